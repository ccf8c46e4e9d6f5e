//! A model on a thread of its own, for handles that any thread may hold.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender, TryRecvError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use demask_decode::{OptionsError, transfer::OwnRule};
use demask_model::{Inspect, Inspection};
use demask_step::TokenId;

use crate::{
    Class, Error, Generation, Likelihood, LikelihoodOptions, Model, Options, Prepared, Prompt, Prompter, RequestId,
    Task, Ticket,
    guide::Named,
    mailbox::{Mailbox, Post},
    model::Front,
    scheduler::{NetworkCounters, Totals, message},
    ticket::Outcomes,
    trace::{TokenTexts, Tracer},
};

/// A thread that owns a model's networks and runs the requests of all handles on them. Dropped, it gives up what runs and
/// ends.
///
/// ```no_run
/// # use demask::{Class, Options, Mail, Model, Prompt};
/// let engine = Model::demo()?.into_engine()?;
/// let handle = engine.handle();
/// let asking = std::thread::spawn(move || {
///     let prompt = Prompt::user("Ada has 3 pears. Ben gives Ada 4 more. How many in the end?", None);
///     for mail in handle.generate(&prompt, &Options::default(), Class::default())? {
///         match mail {
///             Mail::Update(update) => print!("{}", update.text),
///             Mail::Over(answer) => println!(" ({} NFE)", answer?.receipt.decoding.nfe),
///         }
///     }
///     Ok::<(), demask::Error>(())
/// });
/// asking.join().unwrap()?;
/// engine.drain();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

/// Submits requests to an engine, from any thread. Prompts are put into tokens on the thread that calls.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    commands: Sender<Command>,
}

/// State that an engine's thread and its handles share.
struct Shared {
    front: Arc<Front>,
    /// Rows that one forward may have.
    rows: usize,
    next: AtomicU64,
    counters: Mutex<EngineCounters>,
    heart: Heart,
    /// The texts of the vocabulary, once a trace needs them.
    texts: OnceLock<Arc<TokenTexts>>,
}

/// Counts of an engine as they were after its last forward.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EngineCounters {
    /// Counts over all networks.
    pub totals: Totals,
    /// Counts of the model's network, and of its guide's.
    pub networks: Vec<NetworkCounters>,
    /// Requests that are not over.
    pub mailboxes: usize,
}

/// Condition of an engine's thread, for health checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pulse {
    /// Records whether the thread runs: it was not shut down, and has not panicked.
    pub alive: bool,
    /// Records whether a network or the thread itself has failed: what needs it ends with an error from now on, until a
    /// new engine is made. [`Handle::failure`] says why.
    pub failed: bool,
    /// Records whether it has work to do. A thread without any waits, for as long as nobody asks.
    pub busy: bool,
    /// Time since it last began a forward or took a command: of a busy thread no longer than a forward takes, unless it is
    /// stuck.
    pub since: Duration,
}

/// Report of an engine's thread about itself, without a lock.
struct Heart {
    start: Instant,
    /// Milliseconds from the start to the last beat.
    beat: AtomicU64,
    busy: AtomicBool,
    ended: AtomicBool,
    /// Reason why it failed, once it has.
    failure: OnceLock<String>,
}

impl Default for Heart {
    fn default() -> Self {
        let (beat, busy, ended) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Self { start: Instant::now(), beat, busy, ended, failure: OnceLock::new() }
    }
}

impl Heart {
    fn beat(&self, busy: bool) {
        self.beat.store(self.start.elapsed().as_millis() as u64, Ordering::Release);
        self.busy.store(busy, Ordering::Release);
    }

    fn pulse(&self) -> Pulse {
        let (alive, busy) = (!self.ended.load(Ordering::Acquire), self.busy.load(Ordering::Acquire));
        let beat = Duration::from_millis(self.beat.load(Ordering::Acquire));
        let failed = self.failure.get().is_some();
        Pulse { alive, failed, busy: alive && busy, since: self.start.elapsed().saturating_sub(beat) }
    }

    /// Writes down why it failed; the first reason counts.
    fn fail(&self, why: String) {
        let _ = self.failure.set(why);
    }

    /// Returns the end of a request that nobody runs any more.
    fn end(&self) -> Error {
        self.failure.get().map_or(Error::ShutDown, |why| Error::EngineFailed { why: why.clone() })
    }
}

/// A look into the network between two forwards.
type Look = Box<dyn FnOnce(&mut dyn Inspect) + Send>;

enum Command {
    Submit {
        number: u64,
        task: Task,
        class: Class,
        post: Post,
    },
    Cancel(u64),
    Look(Look),
    /// Ends the thread: once everything that was submitted is over, or at once.
    Shut {
        drain: bool,
    },
}

impl Model {
    /// Gives the model a thread of its own. Requests that run already go on there; what they come to is given up.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn into_engine(self) -> Result<Engine, Error> {
        let (commands, received) = mpsc::channel();
        let shared = Arc::new(Shared {
            front: Arc::clone(&self.front),
            rows: self.network().rows().capacity,
            next: AtomicU64::new(0),
            counters: Mutex::new(EngineCounters::default()),
            heart: Heart::default(),
            texts: OnceLock::new(),
        });
        let handle = Handle { shared: Arc::clone(&shared), commands };
        let mut work = Loop {
            shared,
            model: self,
            open: HashMap::new(),
            told: Vec::new(),
            names: HashMap::new(),
            draining: false,
        };
        let thread = thread::Builder::new().name("demask-engine".to_owned()).spawn(move || work.live(&received));
        Ok(Engine { handle, thread: Some(thread.map_err(Error::NoThread)?) })
    }
}

impl Engine {
    /// Returns a handle, which may be cloned and sent anywhere.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Takes no requests any more, finishes those that were submitted, and ends.
    pub fn drain(mut self) {
        self.shut(true);
    }

    /// Takes no requests any more, gives up those that were submitted, and ends. So does dropping it.
    pub fn shut_down(mut self) {
        self.shut(false);
    }

    fn shut(&mut self, drain: bool) {
        let Some(thread) = self.thread.take() else { return };
        // A thread that has ended already takes no command, and has closed all mailboxes.
        let _ = self.handle.commands.send(Command::Shut { drain });
        let _ = thread.join();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shut(false);
    }
}

impl Handle {
    /// Returns everything about the model but its network.
    #[doc(hidden)]
    pub fn prompter(&self) -> &Prompter {
        &self.shared.front.prompter
    }

    /// Gets a prompt ready to be answered, with the guide if the decoder wants one.
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens, or the options contradict each other or the model.
    #[doc(hidden)]
    pub fn prepare(&self, prompt: &Prompt, options: &Options) -> Result<Prepared, Error> {
        self.shared.front.prepare(prompt, options)
    }

    /// Gets a prompt ready to be answered by a transfer rule in the place of a decoder.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare), and if a decoder is named, or the rule does not go with the model or the cache policy.
    #[doc(hidden)]
    pub fn prepare_by(&self, rule: OwnRule, prompt: &Prompt, options: &Options) -> Result<Prepared, Error> {
        if let Some(decoder) = &options.decoder {
            return Err(OptionsError::own_rule_beside_decoder(rule.name(), decoder.name()).into());
        }
        self.prepare(prompt, options)?.decided_by(rule)
    }

    /// Returns the names that requests choose the model's guides by.
    pub fn guides(&self) -> Vec<&str> {
        self.shared.front.guides.iter().map(Named::called).collect()
    }

    /// Submits a prompt.
    ///
    /// # Errors
    /// If it cannot be prepared. What goes wrong later is the ticket's end.
    pub fn generate(
        &self,
        prompt: impl Into<Prompt>,
        options: &Options,
        class: Class,
    ) -> Result<Ticket<Generation>, Error> {
        Ok(self.submit(self.prepare(&prompt.into(), options)?, class))
    }

    /// Submits a continuation to be judged behind a context.
    ///
    /// # Errors
    /// If the model has no such estimate. What goes wrong later is the ticket's end.
    #[doc(hidden)]
    pub fn log_likelihood(
        &self,
        context: &[TokenId],
        continuation: &[TokenId],
        options: &LikelihoodOptions,
        class: Class,
    ) -> Result<Ticket<Likelihood>, Error> {
        self.judge(&[(context.to_vec(), continuation.to_vec())], options, class)
    }

    /// Submits continuations to be judged, each behind its context: forwards that several of them need run once.
    ///
    /// # Errors
    /// If the model has no such estimate. What goes wrong later is the ticket's end.
    #[doc(hidden)]
    pub fn log_likelihoods(
        &self,
        pairs: &[(Vec<TokenId>, Vec<TokenId>)],
        options: &LikelihoodOptions,
        class: Class,
    ) -> Result<Ticket<Vec<Likelihood>>, Error> {
        self.judge(pairs, options, class)
    }

    fn judge<T: Outcomes>(
        &self,
        pairs: &[(Vec<TokenId>, Vec<TokenId>)],
        options: &LikelihoodOptions,
        class: Class,
    ) -> Result<Ticket<T>, Error> {
        Ok(self.submit(self.prompter().likelihoods(pairs, options, self.shared.rows)?, class))
    }

    /// Submits work that is ready to run. It waits for nothing; whatever goes wrong is the ticket's end.
    #[doc(hidden)]
    pub fn submit<T: Outcomes>(&self, task: impl Into<Task>, class: Class) -> Ticket<T> {
        self.post(task.into(), class, Mailbox::default())
    }

    /// Submits a prompt that is ready, and lets its way be written down: [`Ticket::take_trace`] has it.
    #[doc(hidden)]
    pub fn submit_traced(&self, answer: Prepared, class: Class) -> Ticket<Generation> {
        let front = &self.shared.front;
        let texts = self.shared.texts.get_or_init(|| Arc::new(TokenTexts::of_front(front)));
        let tracer = Tracer::of(&front.prompter, answer.session().receipt().seed);
        self.post(answer.into(), class, Mailbox::traced(tracer, Arc::clone(texts)))
    }

    fn post<T: Outcomes>(&self, task: Task, class: Class, mailbox: Mailbox) -> Ticket<T> {
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let mailbox = Arc::new(mailbox);
        let post = Post(Arc::clone(&mailbox));
        // An engine that has ended drops the command, and with it the post, which ends the ticket.
        let _ = self.commands.send(Command::Submit { number, task, class, post });
        Ticket::new(number, mailbox, self.clone())
    }

    /// Gives a request up, if it is not over.
    pub(crate) fn cancel(&self, number: u64) {
        // An engine that has ended has nothing to cancel.
        let _ = self.commands.send(Command::Cancel(number));
    }

    /// Returns the end of a request that the engine has dropped: why it failed, if it did.
    pub(crate) fn lost(&self) -> Error {
        self.shared.heart.end()
    }

    /// Looks into the network between two forwards, and waits for it.
    ///
    /// # Errors
    /// If the engine has ended.
    #[doc(hidden)]
    pub fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&mut dyn Inspect) -> R + Send + 'static,
    ) -> Result<R, Error> {
        let (sender, found) = mpsc::sync_channel(1);
        let look: Look = Box::new(move |network| {
            let _ = sender.send(look(network));
        });
        self.commands.send(Command::Look(look)).map_err(|_| Error::ShutDown)?;
        found.recv().map_err(|_| Error::ShutDown)
    }

    /// Runs a forward over tokens between two others, and returns all logits, and what each layer puts out if asked for.
    ///
    /// # Errors
    /// If the tokens are no tokens or too many, there is no memory, or the engine has ended.
    #[doc(hidden)]
    pub fn inspect(&self, tokens: Vec<TokenId>, layers: bool) -> Result<Inspection, Error> {
        let facts = self.prompter().facts();
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
        Ok(self.look(move |network| network.inspect(&tokens, mask, layers))??)
    }

    /// Returns how the engine's thread is. It never waits for it.
    pub fn pulse(&self) -> Pulse {
        self.shared.heart.pulse()
    }

    /// Returns why the engine failed; none if it has not. Another one has to be made from the model's files.
    pub fn failure(&self) -> Option<&str> {
        self.shared.heart.failure.get().map(String::as_str)
    }

    /// Returns whether the engine's thread runs; one that has ended serves no request any more.
    pub fn is_alive(&self) -> bool {
        self.pulse().alive
    }

    /// Returns the engine's counts as they were after its last forward.
    pub fn counters(&self) -> EngineCounters {
        self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The engine's thread.
struct Loop {
    shared: Arc<Shared>,
    model: Model,
    /// Posts of the requests that are not over, each with the number of its ticket.
    open: HashMap<RequestId, (u64, Post)>,
    /// Requests that the forward under way has changed.
    told: Vec<RequestId>,
    /// Names of these requests by the numbers of their tickets.
    names: HashMap<u64, RequestId>,
    draining: bool,
}

impl Loop {
    /// Runs to the end, and leaves in the pulse how it ended before those who wait learn that it did.
    fn live(&mut self, commands: &Receiver<Command>) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run(commands))) {
            let said = message(&*panic);
            self.shared.heart.fail(format!("its thread panicked (a bug, please report it): {said}"));
        }
        self.shared.heart.ended.store(true, Ordering::Release);
    }

    /// Takes commands and runs forwards until it is shut down, or nobody is left to send a command.
    fn run(&mut self, commands: &Receiver<Command>) {
        loop {
            if !self.obey_all(commands) {
                return;
            }
            self.shared.heart.beat(true);
            let Self { model, open, told, .. } = self;
            let over = model.step(&mut |id, progress| {
                if let Some((_, post)) = open.get(&id) {
                    post.0.tell(&progress);
                    if told.last() != Some(&id) {
                        told.push(id);
                    }
                }
                ControlFlow::Continue(())
            });
            let told = std::mem::take(told);
            let ended: Vec<_> =
                over.into_iter().filter_map(|(id, outcome)| Some((self.forget(id)?, outcome))).collect();
            // Whoever reads of a forward finds it counted.
            self.publish();
            // A reader is woken once a forward, not by each commit.
            for id in &told {
                if let Some((_, post)) = self.open.get(id) {
                    post.0.deliver();
                }
            }
            if let Some(error) = self.model.scheduler.failure() {
                self.shared.heart.fail(format!("the device failed: {error}"));
            }
            for (post, outcome) in ended {
                post.0.close(outcome);
            }
            self.told = told;
            self.told.clear();
            if self.model.is_idle() && !self.open.is_empty() {
                // Dropped, they tell those who wait.
                tracing::error!(
                    "{} mailboxes are open although nothing runs (a bug, please report it)",
                    self.open.len()
                );
                self.open.clear();
                self.names.clear();
                self.publish();
            }
        }
    }

    /// Returns the post of a request that is over.
    fn forget(&mut self, id: RequestId) -> Option<Post> {
        let (number, post) = self.open.remove(&id)?;
        self.names.remove(&number);
        Some(post)
    }

    /// Takes all commands that are there, and waits for one if nothing runs; whether to go on.
    fn obey_all(&mut self, commands: &Receiver<Command>) -> bool {
        loop {
            let idle = self.model.is_idle();
            if idle && self.draining {
                return false;
            }
            if idle {
                self.shared.heart.beat(false);
            }
            let command =
                if idle { commands.recv().map_err(|_| TryRecvError::Disconnected) } else { commands.try_recv() };
            if idle {
                self.shared.heart.beat(true);
            }
            match command {
                Ok(Command::Submit { number, task, class, post }) => self.submit(number, task, class, post),
                Ok(Command::Cancel(number)) => self.cancel(number),
                Ok(Command::Look(look)) => look(self.model.network_mut()),
                Ok(Command::Shut { drain: true }) => self.draining = true,
                Ok(Command::Shut { drain: false }) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn submit(&mut self, number: u64, task: Task, class: Class, post: Post) {
        if self.draining {
            return;
        }
        match self.model.submit(task, class) {
            Ok(id) => {
                self.names.insert(number, id);
                self.open.insert(id, (number, post));
            }
            Err(error) => post.0.close(Err(error)),
        }
        self.publish();
    }

    fn cancel(&mut self, number: u64) {
        if let Some(id) = self.names.remove(&number) {
            self.model.cancel(id);
            if let Some((_, post)) = self.open.remove(&id) {
                post.0.close(Err(Error::Interrupted));
            }
            self.publish();
        }
    }

    fn publish(&self) {
        let Model { scheduler, networks, .. } = &self.model;
        let mut counters = self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.totals = scheduler.counters();
        counters.networks.clear();
        counters.networks.extend(networks.iter().filter_map(|&id| scheduler.network_counters(id)));
        counters.mailboxes = self.open.len();
    }
}

#[cfg(all(test, feature = "demo"))]
mod tests;
