//! Handle of a model: prompts become requests on the thread that calls, and the engine runs them.

use std::{
    ops::ControlFlow,
    sync::{Arc, OnceLock},
};

use demask_decode::{Event, transfer::OwnRule};
use demask_engine::{EngineCounters, EngineHandle, Heartbeat, Request, RequestHandle, SchedulingParams};
use demask_model::{Inspect, Inspection};
use demask_step::{OpenError, TokenId};

use crate::{
    Decisions, Error, Generation, Likelihood, LikelihoodOptions, ModelInfo, Options, Prompt, Question, TraceLine,
    likelihood::LikelihoodTask,
    receipt::DeviceUse,
    trace::{TokenTexts, Tracer},
};

/// A context and what follows it, as tokens.
type Pair = (Vec<TokenId>, Vec<TokenId>);

/// Handle of a model: asks it, from any thread. All handles of a [`Model`](crate::Model) share its engine.
///
/// A prompt becomes tokens on the thread that calls. Its request then shares forwards with others, and its answer is, to the
/// bit, the one that it has alone.
///
/// ```no_run
/// # use demask::{Event, Model, Options};
/// let model = Model::demo()?;
/// let handle = model.handle();
/// let asking = std::thread::spawn(move || {
///     let mut answer = handle.stream("Ada has 3 pears. Ben gives Ada 4 more. How many?", &Options::default())?;
///     for event in answer.by_ref() {
///         if let Event::Text(text) = event {
///             print!("{text}");
///         }
///     }
///     println!(" ({} NFE)", answer.result()?.receipt.decoding.nfe);
///     Ok::<(), demask::Error>(())
/// });
/// asking.join().unwrap()?;
/// model.drain();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Handle {
    info: Arc<ModelInfo>,
    engine: EngineHandle<dyn Inspect>,
    /// The texts of the vocabulary, once a trace needs them.
    texts: Arc<OnceLock<Arc<TokenTexts>>>,
}

impl Handle {
    pub(crate) fn new(info: Arc<ModelInfo>, engine: EngineHandle<dyn Inspect>) -> Self {
        Self { info, engine, texts: Arc::default() }
    }

    /// Answers a prompt with the model's own methods and lengths.
    ///
    /// ```
    /// let answer = demask::Model::demo()?.generate("Ada has 3 pears. Ben gives Ada 4 more. How many in the end?")?;
    /// assert!(answer.to_string().ends_with("The final answer is 7"));
    /// # Ok::<(), demask::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens or does not fit, or the device fails.
    pub fn generate(&self, prompt: impl Into<Prompt>) -> Result<Generation, Error> {
        self.generate_with(prompt, &Options::default())
    }

    /// Answers a prompt.
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens, the options contradict each other or the model, or the device fails.
    pub fn generate_with(&self, prompt: impl Into<Prompt>, options: &Options) -> Result<Generation, Error> {
        Ok(self.stream(prompt, options)?.wait()?)
    }

    /// Answers a prompt piece by piece.
    ///
    /// ```
    /// # use demask::{Event, Options, Model};
    /// let model = Model::demo()?;
    /// let mut answer = model.stream("Ada has 3 pears. Ben gives Ada 4 more. How many?", &Options::default())?;
    /// for event in answer.by_ref() {
    ///     if let Event::Text(text) = event {
    ///         print!("{text}");
    ///     }
    /// }
    /// println!(" ({} NFE)", answer.result()?.receipt.decoding.nfe);
    /// # Ok::<(), demask::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens, or the options contradict each other or the model. Later errors are the
    /// result's.
    pub fn stream(&self, prompt: impl Into<Prompt>, options: &Options) -> Result<RequestHandle<Generation>, Error> {
        Ok(self.submit(self.prepare(&prompt.into(), options)?))
    }

    /// Answers many prompts, which share forwards, and returns their answers in order.
    ///
    /// # Errors
    /// A prompt that cannot be answered has an error in its place, and the others their answers.
    pub fn batch<P: Into<Prompt>>(
        &self,
        prompts: impl IntoIterator<Item = P>,
        options: &Options,
    ) -> Vec<Result<Generation, Error>> {
        let submitted: Vec<_> = prompts.into_iter().map(|prompt| self.stream(prompt, options)).collect();
        submitted.into_iter().map(|answer| Ok(answer?.wait()?)).collect()
    }

    /// Fills the `<mask:N>` holes of a text in place, or its `[[N]]` holes where it has none of those.
    ///
    /// # Errors
    /// If the model cannot look ahead, or the text has no hole.
    pub fn infill(&self, text: impl Into<String>, options: &Options) -> Result<Generation, Error> {
        self.generate_with(Prompt::Infill(text.into()), options)
    }

    /// Judges how probable a text is after a prompt: its natural-log probability, or a lower bound of it. Diffusion models
    /// estimate it from draws.
    ///
    /// # Errors
    /// If the model has no such estimate (block-causal ones), or one of the texts is empty.
    pub fn score(
        &self,
        prompt: impl Into<Prompt>,
        continuation: &str,
        options: &LikelihoodOptions,
    ) -> Result<Likelihood, Error> {
        let (context, continuation) = self.info.pair(&prompt.into(), continuation)?;
        self.log_likelihood(&context, &continuation, options)
    }

    /// Answers questions about a prompt, each by one of given choices, with the probability of every choice. Nothing is
    /// generated, and nothing is drawn. A model that sees everything answers all questions on one canvas: one forward judges the
    /// first token of every choice of all questions, and one more each beginning that choices of several tokens have.
    ///
    /// ```
    /// # use demask::{Model, Question, QuestionKind};
    /// let kind = QuestionKind::Choice(["5", "7", "9"].map(str::to_owned).to_vec());
    /// let question = Question::new("3+4=7 pears.\nThe final answer is", kind);
    /// let found = Model::demo()?.decide("Ada has 3 pears. Ben gives Ada 4 more. How many in the end?", &[question])?;
    /// let answer = &found.answers[0];
    /// assert_eq!((answer.choices[answer.choice].as_str(), found.forwards), ("7", 1));
    /// assert!(answer.confidence() > 0.9 && answer.mass > 0.9);
    /// # Ok::<(), demask::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no question, a question or its choices are not what they have to be, or all of it does not fit.
    pub fn decide(&self, prompt: impl Into<Prompt>, questions: &[Question]) -> Result<Decisions, Error> {
        let form = self.info.form(&prompt.into(), questions)?;
        let found = self.judged(&|rows| self.info.deciding(&form, rows), &mut || true)?;
        Ok(form.questions.answered(&found))
    }

    /// Answers a prompt, and returns the answer and its trace: the canvas, commits and steps.
    ///
    /// # Errors
    /// As [`generate_with`](Self::generate_with).
    pub fn trace(&self, prompt: impl Into<Prompt>, options: &Options) -> Result<(Generation, Vec<TraceLine>), Error> {
        let (tracer, texts) = (Tracer::new(&self.info, options.seed.unwrap_or(0)), self.texts());
        let mut answer = self.submit_for_every_event(self.prepare(&prompt.into(), options)?);
        let lines = answer.by_ref().filter_map(|event| tracer.line(&event, &texts)).collect();
        Ok((answer.result()?, lines))
    }

    /// Returns the model's name, for people.
    pub fn name(&self) -> &str {
        self.info.name()
    }

    /// Returns the device that runs it: device, tier, threads, element type.
    pub fn device(&self) -> &str {
        self.info.device()
    }

    /// Returns the bytes of its packed weights, its guides' not included.
    pub fn weight_bytes(&self) -> usize {
        self.info.weight_bytes()
    }

    /// Returns the names that requests choose the model's guides by.
    pub fn guides(&self) -> Vec<&str> {
        self.info.guides()
    }

    /// Sets how many bytes of K/V are kept of prompts and answers that are over, on its network and on its guides', so that
    /// requests that begin with the same tokens do not compute them again. 0: none. It begins with a quarter of the memory that
    /// was left when the model was loaded.
    ///
    /// It changes no token and no confidence of an answer, only the computation: the receipt's `cached_tokens` counts the
    /// tokens that were not computed again. Block-causal models (SDAR, TraDo) share whole blocks under cache `block`, causal
    /// ones (Qwen, Llama) tokens under cache `causal`. Models with full attention (LLaDA, Dream) share
    /// nothing: the K/V of a prompt depend on the masks after it, and so on the request.
    ///
    /// Kept pages go, the least recently used first, before any request waits for memory.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn set_prefix_cache(&self, bytes: u64) -> Result<(), Error> {
        self.with_networks(move |network| network.keep_prefixes(bytes))
    }

    /// Sets whether requests enter as soon as there is memory for what they are likely to take, as it begins: what answers of
    /// their length have taken. Where that does not suffice, the youngest waits: its K/V are given up, and computed again when
    /// it goes on. Without it, requests enter once there is memory for all that they may take.
    ///
    /// It changes no token and no confidence of an answer. Models with full attention (LLaDA, Dream) take all of their memory
    /// when they enter in either case: the first forward fills it.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn set_preemption(&self, preempts: bool) -> Result<(), Error> {
        Ok(self.engine().with_scheduler(move |scheduler| scheduler.set_preemption(preempts))?)
    }

    /// Returns how many bytes of K/V are kept of prompts and answers that are over, at most: 0 under full attention, where none
    /// can be.
    pub fn prefix_cache(&self) -> u64 {
        self.counters().networks.iter().filter_map(|network| network.prefixes).map(|prefixes| prefixes.capacity).sum()
    }

    /// Gives up the K/V that are kept of prompts and answers that are over: the next request is computed as a whole.
    /// The K/V of running requests stay.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn forget_prefixes(&self) -> Result<(), Error> {
        self.with_networks(|network| _ = network.evict(0))
    }

    /// Sets how many rows of a prompt run in one forward, on its network and on its guides', at least 1; 512 at the beginning.
    ///
    /// It changes no token and no confidence of an answer: a longer prompt is read in several forwards, between which other
    /// requests have their turns. Models with full attention (LLaDA, Dream) read a prompt in one forward whatever its length:
    /// each of its rows sees all others.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn set_piece_rows(&self, rows: usize) -> Result<(), Error> {
        self.with_networks(move |network| network.set_piece(rows))
    }

    /// Returns the condition of the engine's thread, without waiting for it.
    pub fn heartbeat(&self) -> Heartbeat {
        self.engine.heartbeat()
    }

    /// Returns the reason why the engine failed; none if it has not. Another model has to be made from the files.
    pub fn failure(&self) -> Option<&str> {
        self.engine.failure()
    }

    /// Returns whether the engine's thread runs; one that has ended serves no request any more.
    pub fn is_alive(&self) -> bool {
        self.engine.is_alive()
    }

    /// Returns whether every request is over.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn is_idle(&self) -> bool {
        self.engine.with_scheduler(|scheduler| scheduler.is_idle()).unwrap_or(true)
    }

    /// Returns the engine's counts as they were after its last forward.
    pub fn counters(&self) -> EngineCounters {
        self.engine.counters()
    }
}

impl Handle {
    /// Returns everything about the model but its network.
    pub fn info(&self) -> &Arc<ModelInfo> {
        &self.info
    }

    /// Returns the handle of the engine.
    pub fn engine(&self) -> &EngineHandle<dyn Inspect> {
        &self.engine
    }

    /// Gets a prompt ready to be answered, with the guide if the decoder wants one.
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens, or the options contradict each other or the model.
    pub fn prepare(&self, prompt: &Prompt, options: &Options) -> Result<Request, Error> {
        self.info.prepare(prompt, options)
    }

    /// Gets a prompt ready to be answered by a transfer rule in the place of a decoder.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare), and if a decoder is named, or the rule does not go with the model or the cache policy.
    pub fn prepare_by(&self, rule: OwnRule, prompt: &Prompt, options: &Options) -> Result<Request, Error> {
        self.info.prepare_by(rule, prompt, options)
    }

    /// Submits a prompt that is ready. Whatever goes wrong is the handle's result.
    pub fn submit(&self, request: Request) -> RequestHandle<Generation> {
        let (info, on) = (Arc::clone(&self.info), self.info.networks(&request));
        self.engine.submit(request, &on, move |request| info.generation(request))
    }

    /// Submits a prompt that is ready, and reports every event of it as it was.
    pub fn submit_for_every_event(&self, request: Request) -> RequestHandle<Generation> {
        let (info, on) = (Arc::clone(&self.info), self.info.networks(&request));
        self.engine.submit_for_every_event(request, &on, move |request| info.generation(request))
    }

    /// Answers a prompt, and shows each event of it to an observer that may end it.
    ///
    /// # Errors
    /// As [`generate_with`](Self::generate_with), and if the observer ends it.
    pub fn watch(
        &self,
        prompt: &Prompt,
        options: &Options,
        observer: &mut dyn FnMut(&Event) -> ControlFlow<()>,
    ) -> Result<Generation, Error> {
        self.answer(self.prepare(prompt, options)?, observer)
    }

    /// Runs a prompt that was prepared for this model, and shows each event of it to an observer that may end it.
    ///
    /// # Errors
    /// If it cannot be run, or breaks off.
    pub fn answer(
        &self,
        request: Request,
        observer: &mut dyn FnMut(&Event) -> ControlFlow<()>,
    ) -> Result<Generation, Error> {
        let mut answer = self.submit_for_every_event(request);
        for event in answer.by_ref() {
            if observer(&event).is_break() {
                return Err(Error::Interrupted);
            }
        }
        Ok(answer.result()?)
    }

    /// Judges how probable `continuation` is after `context`.
    ///
    /// # Errors
    /// As [`log_likelihoods`](Self::log_likelihoods).
    pub fn log_likelihood(
        &self,
        context: &[TokenId],
        continuation: &[TokenId],
        options: &LikelihoodOptions,
    ) -> Result<Likelihood, Error> {
        let pair = (context.to_vec(), continuation.to_vec());
        self.log_likelihoods(&[pair], options, &mut || true)?.pop().ok_or(Error::EmptyLikelihood)
    }

    /// Judges how probable continuations are, each after its context: forwards that several of them need run once, and each
    /// likelihood is the same to the bit as alone. `go_on` is asked as they go on.
    ///
    /// # Errors
    /// If the model has no such estimate (block-causal ones), an option has no meaning for it, or the tokens cannot be
    /// run.
    pub fn log_likelihoods(
        &self,
        pairs: &[Pair],
        options: &LikelihoodOptions,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Likelihood>, Error> {
        self.judged(&|rows| self.info.likelihoods(pairs, options, rows), go_on)
    }

    /// Waits for likelihoods. `task` makes the work to judge, for a number of rows side by side.
    fn judged(
        &self,
        task: &dyn Fn(usize) -> Result<LikelihoodTask, Error>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Likelihood>, Error> {
        let mut rows = self.info.rows();
        loop {
            let task = task(rows)?;
            let side_by_side = task.side_by_side();
            let mut judged = self.judge(task, SchedulingParams::default(), |found| found);
            for event in judged.by_ref() {
                if matches!(event, Event::Progress { .. }) && !go_on() {
                    return Err(Error::Interrupted);
                }
            }
            match judged.result().map_err(Error::from) {
                // Fewer canvases side by side do as well.
                Err(Error::Open(OpenError::Memory(_))) if side_by_side > 1 => rows /= 2,
                found => return found,
            }
        }
    }

    /// Submits continuations to be judged, each after its context, as one request: forwards that several of them need run once.
    /// K/V of what they begin with are shared with requests of the same salt alone; those without one share with each other.
    ///
    /// # Errors
    /// If the model has no such estimate. Later errors are the result's.
    pub fn submit_likelihoods(
        &self,
        pairs: &[Pair],
        options: &LikelihoodOptions,
        scheduling: SchedulingParams,
        salt: Option<&str>,
    ) -> Result<RequestHandle<Vec<Likelihood>>, Error> {
        let task = self.info.likelihoods(pairs, options, self.info.rows())?;
        Ok(self.judge(task.salted(salt), scheduling, |found| found))
    }

    /// Submits questions about a prompt to be answered, as one request. A causal model's work on the prompt is shared
    /// with requests of the same salt alone. Requests without a salt share with each other.
    ///
    /// # Errors
    /// As [`decide`](Self::decide). Later errors are the result's.
    pub fn submit_decisions(
        &self,
        prompt: &Prompt,
        questions: &[Question],
        scheduling: SchedulingParams,
        salt: Option<&str>,
    ) -> Result<RequestHandle<Decisions>, Error> {
        let form = self.info.form(prompt, questions)?;
        let task = self.info.deciding(&form, self.info.rows())?;
        Ok(self.judge(task.salted(salt), scheduling, move |found| form.questions.answered(&found)))
    }

    /// Submits a task. `read` makes the result of its likelihoods.
    pub(crate) fn judge<T>(
        &self,
        task: LikelihoodTask,
        scheduling: SchedulingParams,
        read: impl FnOnce(Vec<Likelihood>) -> T + Send + 'static,
    ) -> RequestHandle<T> {
        let mut request = Request::new(task);
        request.set_scheduling(scheduling);
        let on = self.info.networks(&request);
        self.engine.submit(request, &on, move |request| {
            let seconds = request.spent().networks.iter().map(std::time::Duration::as_secs_f64).sum();
            Some(read(request.job_as::<LikelihoodTask>()?.likelihoods(seconds)))
        })
    }

    /// Calls a function with the network between two forwards, and waits for it.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn with_network<R: Send + 'static>(
        &self,
        look: impl FnOnce(&mut dyn Inspect) -> R + Send + 'static,
    ) -> Result<R, Error> {
        let own = self.info.machine.get().map(|machine| machine.network);
        let found = self.engine.with_scheduler(move |scheduler| Some(look(scheduler.network_mut(own?)?)))?;
        found.ok_or(Error::ShutDown)
    }

    /// Calls a function with each network between two forwards.
    fn with_networks(&self, change: impl Fn(&mut dyn Inspect) + Send + 'static) -> Result<(), Error> {
        Ok(self.engine.with_scheduler(move |scheduler| {
            for id in scheduler.networks() {
                if let Some(network) = scheduler.network_mut(id) {
                    change(network);
                }
            }
        })?)
    }

    /// Runs a forward over tokens between two others, and returns all logits, and the output of each layer if `layers` is set.
    ///
    /// # Errors
    /// If the tokens are no tokens or too many, there is no memory, or the engine has ended.
    pub fn inspect(&self, tokens: Vec<TokenId>, layers: bool) -> Result<Inspection, Error> {
        let facts = self.info.facts();
        let (vocabulary, context, mask) = (facts.vocab, facts.context, facts.mask);
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
            return Err(Error::TokenOutOfRange { token, vocabulary });
        }
        if tokens.is_empty() {
            return Err(Error::NoTokens);
        }
        if tokens.len() > context {
            return Err(Error::TooLong { prompt: tokens.len(), gen_length: 0, context, option: None });
        }
        Ok(self.with_network(move |network| network.inspect(&tokens, mask, layers))??)
    }

    /// Returns the texts of the vocabulary, for traces.
    pub fn texts(&self) -> Arc<TokenTexts> {
        Arc::clone(self.texts.get_or_init(|| Arc::new(TokenTexts::of(&self.info))))
    }

    /// Duration of the loading, its guides' included.
    pub fn load_time(&self) -> std::time::Duration {
        self.info.load_time()
    }

    /// Returns the memory of a GPU that it and its guides take now; none where the processor computes.
    pub fn device_memory(&self) -> Option<DeviceUse> {
        self.info.device_memory()
    }

    /// Lets the peaks of memory in receipts, of this process and of its GPU, begin again with the memory that is taken now.
    pub fn forget_peak_memory(&self) {
        self.info.forget_peak_memory();
    }
}
