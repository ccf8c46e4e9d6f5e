//! Many answers at once: the steps of all requests join into one forward, and as soon as one request has ended another
//! one can take its place. Every answer is the same to the bit as if its request were alone.
//!
//! A request's seconds are its share of the time: each forward's seconds are divided by the rows that each request had
//! in it, and what is spent around a forward is divided as the forward is. The seconds of all requests together are
//! thus those of the clock.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use demask_checkpoint::TextStream;
use demask_decode::{GuideCounts, Next, Session, SessionOptions};

use crate::{
    Engine, GenerateError, GenerateOptions, Generation, Model, Network, Progress, Prompt, Prompter,
    engine::{JobId, JobState},
    model::Guide,
    receipt::{Guided, Memory, Receipt, Seconds},
    text,
};

/// Sees the progress of the requests of a batch and may end each of them.
pub type BatchObserver<'a> = dyn FnMut(JobId, Progress<'_>) -> ControlFlow<()> + 'a;

/// A request that is over, and what came of it.
pub type Finished = (JobId, Result<Generation, GenerateError>);

/// Requests that run together on one model. Dropped, it gives up those that are not over.
///
/// ```no_run
/// # use std::ops::ControlFlow;
/// # use demask::{DeviceOptions, GenerateOptions, Model, Prompt};
/// # let mut model = Model::demo(&DeviceOptions::default())?;
/// # let mut prompts = vec![Prompt::user("Ada has 3 pears.", None)].into_iter();
/// let mut batch = model.batch();
/// loop {
///     while batch.len() < 8 && let Some(prompt) = prompts.next() {
///         batch.submit(&prompt, &GenerateOptions::default())?;
///     }
///     if batch.is_empty() {
///         break;
///     }
///     for (_, answer) in batch.step(&mut |_, _| ControlFlow::Continue(()))? {
///         println!("{}", answer?.text.unwrap_or_default());
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Batch<'m> {
    prompter: &'m Prompter,
    guide: Option<&'m Guide>,
    load_time: Duration,
    engine: &'m mut Engine,
    runs: Vec<Run<'m>>,
}

impl Model {
    /// A batch without requests.
    pub fn batch(&mut self) -> Batch<'_> {
        Batch {
            prompter: &self.prompter,
            guide: self.guide.as_ref(),
            load_time: self.load_time,
            engine: &mut self.engine,
            runs: Vec::new(),
        }
    }
}

impl Batch<'_> {
    /// How many requests are not over.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// What turns prompts into requests.
    pub fn prompter(&self) -> &Prompter {
        self.prompter
    }

    /// Whether all requests are over.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Lets a request join the following steps. The id names it until it is over.
    ///
    /// # Errors
    /// If it cannot be run; [`OpenError::Memory`](demask_step::OpenError::Memory) may pass once another one is over.
    pub fn submit(&mut self, prompt: &Prompt, options: &GenerateOptions) -> Result<JobId, GenerateError> {
        let started = Instant::now();
        let guide = self.guide.filter(|_| options.wants_guide()).map(|guide| (&guide.prompter, &guide.bridge));
        let session_options = self.prompter.options(prompt, options, guide)?;
        let prepared = Prepared::new(self.prompter, session_options, options, matches!(prompt, Prompt::Infill(_)))?;
        let job = self.engine.submit(prepared.session)?;
        let tokenizer = self.prompter.text.tokenizer.as_ref().filter(|_| !prepared.announcement.infill);
        self.runs.push(Run {
            job,
            announcement: prepared.announcement,
            prompt_tokens: prepared.prompt_tokens,
            stops: options.stop.clone(),
            stream: tokenizer.map(|tokenizer| tokenizer.stream(true)),
            text: String::new(),
            told: 0,
            read: 0,
            stopped: None,
            announced: false,
            submitted: started,
            share: started.elapsed(),
        });
        Ok(job)
    }

    /// Runs one forward for as many requests as fit into it, tells what it changed, and hands over those that are over.
    ///
    /// # Errors
    /// If the device failed: every request is lost then. What fails for one request alone is that request's answer.
    pub fn step(&mut self, observer: &mut BatchObserver<'_>) -> Result<Vec<Finished>, GenerateError> {
        let started = Instant::now();
        let mut over: Vec<(usize, Result<(), GenerateError>)> = Vec::new();
        for (index, run) in self.runs.iter_mut().enumerate() {
            if let Err(error) = run.announce(self.engine, &mut teller(run.job, observer)) {
                over.push((index, Err(error)));
            }
        }
        let spent = |engine: &Engine, run: &Run<'_>| engine.job_time(run.job).all();
        let before: Vec<_> = self.runs.iter().map(|run| spent(self.engine, run)).collect();
        if over.is_empty() {
            self.engine.tick()?;
            for (index, run) in self.runs.iter_mut().enumerate() {
                let looked = run.look(self.engine, &mut teller(run.job, observer));
                match looked {
                    Ok(false) => {}
                    Ok(true) => over.push((index, Ok(()))),
                    Err(error) => over.push((index, Err(error))),
                }
            }
        }
        let after: Vec<_> = self.runs.iter().map(|run| spent(self.engine, run)).collect();
        share(&mut self.runs, &before, &after, started.elapsed());
        let mut finished = Vec::new();
        // From behind, so that the other indices stay what they are.
        for (index, result) in over.into_iter().rev() {
            let run = self.runs.remove(index);
            finished.push((run.job, self.finish(&run, result)));
        }
        finished.reverse();
        Ok(finished)
    }

    /// Gives a request's memory back and puts its answer together.
    fn finish(&mut self, run: &Run<'_>, result: Result<(), GenerateError>) -> Result<Generation, GenerateError> {
        let (time, cache) = (self.engine.job_time(run.job), self.engine.cache_bytes(run.job));
        let session = self.engine.take(run.job);
        result?;
        let session = session.ok_or(GenerateError::Interrupted)?;
        let output = session.output();
        let shown = if run.announcement.infill { &output.canvas } else { &output.tokens };
        let mut text = self.prompter.text.tokenizer.as_ref().map(|tokenizer| tokenizer.decode(shown, true));
        if let (Some(text), Some(length)) = (&mut text, run.stopped) {
            text.truncate(length);
        }
        let network = self.engine.network();
        Ok(Generation {
            text,
            finish: output.finish.name(),
            prompt_tokens: run.prompt_tokens,
            generated_tokens: output.tokens.len(),
            receipt: Receipt {
                model: self.prompter.name().to_owned(),
                device: network.describe(),
                decoding: session.receipt(),
                guide_nfe: session.counts().guide.nfe,
                guide: self.guided(&session),
                seconds: Seconds {
                    load: self.load_time.as_secs_f64(),
                    model: time.model.as_secs_f64(),
                    guide: time.guide.as_secs_f64(),
                    total: run.share.as_secs_f64(),
                    wall: run.submitted.elapsed().as_secs_f64(),
                },
                memory: Memory {
                    weights: network.weight_bytes(),
                    guide: self.engine.guide().map_or(0, Network::weight_bytes),
                    cache,
                    peak: crate::receipt::peak_memory(),
                },
            },
            canvas: output.canvas,
            tokens: output.tokens,
        })
    }

    /// What the guide did for a session that had one.
    fn guided(&self, session: &Session) -> Option<Guided> {
        let guide = self.guide.filter(|_| !session.guide_needs().is_empty())?;
        let GuideCounts { rows, accepted, rejected, cost, .. } = session.counts().guide;
        let decided = accepted + rejected;
        Some(Guided {
            model: guide.prompter.name().to_owned(),
            rows,
            flops: cost.flops,
            accepted,
            rejected,
            acceptance: if decided == 0 { 0.0 } else { accepted as f64 / decided as f64 },
        })
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for run in &self.runs {
            self.engine.take(run.job);
        }
    }
}

/// Divides a step's seconds like the time that its forwards took for each run.
fn share(runs: &mut [Run<'_>], before: &[Duration], after: &[Duration], elapsed: Duration) {
    let taken = |index: usize| after[index].saturating_sub(before[index]).as_secs_f64();
    let all: f64 = (0..runs.len()).map(taken).sum();
    for (index, run) in runs.iter_mut().enumerate() {
        let part = if all > 0.0 { taken(index) / all } else { 1.0 / after.len() as f64 };
        run.share += elapsed.mul_f64(part);
    }
}

/// Tells one request's progress.
fn teller<'a>(
    job: JobId,
    observer: &'a mut BatchObserver<'_>,
) -> impl FnMut(Progress<'_>) -> Result<(), GenerateError> + 'a {
    move |progress| match observer(job, progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(GenerateError::Interrupted),
    }
}

/// What is told before the first step.
struct Announcement {
    decoder: String,
    cache: String,
    infill: bool,
}

/// A session that is about to run.
struct Prepared {
    session: Session,
    prompt_tokens: usize,
    announcement: Announcement,
}

impl Prepared {
    fn new(
        prompter: &Prompter,
        options: SessionOptions,
        generate: &GenerateOptions,
        infill: bool,
    ) -> Result<Self, GenerateError> {
        if !generate.stop.is_empty() {
            prompter.tokenizer()?;
        }
        let announcement =
            Announcement { decoder: options.decoder.to_string(), cache: options.cache.to_string(), infill };
        let mask = options.facts.mask_id;
        let session = Session::new(options)?;
        let canvas = session.canvas();
        let prompt_tokens = canvas
            .iter()
            .position(|&token| Some(token) == mask || token == demask_step::NO_TOKEN)
            .unwrap_or(canvas.len());
        Ok(Self { session, prompt_tokens, announcement })
    }
}

/// A request under way.
struct Run<'m> {
    job: JobId,
    announcement: Announcement,
    prompt_tokens: usize,
    stops: Vec<String>,
    /// Turns settled tokens into text; none without a tokenizer, and none for infilling, which has no settled end.
    stream: Option<TextStream<'m>>,
    /// Settled text.
    text: String,
    /// Bytes of it that the observer has seen.
    told: usize,
    /// Settled tokens that went into it.
    read: usize,
    /// Length of the text before the stop text that ended it.
    stopped: Option<usize>,
    /// Whether the observer knows the canvas.
    announced: bool,
    submitted: Instant,
    /// Its share of the time so far.
    share: Duration,
}

type Tell<'a> = dyn FnMut(Progress<'_>) -> Result<(), GenerateError> + 'a;

impl Run<'_> {
    /// Tells the canvas before the first step.
    fn announce(&mut self, engine: &Engine, tell: &mut Tell<'_>) -> Result<(), GenerateError> {
        let Some(session) = engine.session(self.job).filter(|_| !self.announced) else { return Ok(()) };
        self.announced = true;
        let canvas = session.canvas();
        tell(Progress::Started {
            canvas,
            prompt_tokens: self.prompt_tokens,
            positions: canvas.len() - self.prompt_tokens,
            decoder: &self.announcement.decoder,
            cache: &self.announcement.cache,
        })
    }

    /// Tells what the last step changed; whether it was the last one.
    fn look(&mut self, engine: &mut Engine, tell: &mut Tell<'_>) -> Result<bool, GenerateError> {
        if let Some(JobState::Failed(error)) = engine.state(self.job) {
            return Err(error.clone().into());
        }
        let Some(session) = engine.session_mut(self.job) else { return Ok(true) };
        self.look_at(session, tell)?;
        if session.next() != Next::Done {
            return Ok(false);
        }
        if self.stopped.is_none() {
            // Half a character at the very end, and text held back as a possible stop text.
            self.text.extend(self.stream.as_mut().map(TextStream::finish));
        }
        self.tell_up_to(self.stopped.unwrap_or(self.text.len()), tell)?;
        Ok(true)
    }

    fn look_at(&mut self, session: &mut Session, tell: &mut Tell<'_>) -> Result<(), GenerateError> {
        for event in session.events() {
            tell(Progress::Event(event))?;
        }
        tell(Progress::Canvas(session.canvas()))?;
        let Some(stream) = self.stream.as_mut().filter(|_| self.stopped.is_none()) else { return Ok(()) };
        while self.read < session.settled() {
            self.text.push_str(&stream.push(session.canvas()[self.prompt_tokens + self.read]));
            self.read += 1;
            if let Some((at, _)) = text::find_stop(&self.text, &self.stops) {
                self.stopped = Some(at);
                session.finish_at(self.read);
                break;
            }
        }
        self.tell_up_to(self.stopped.unwrap_or_else(|| text::safe_length(&self.text, &self.stops)), tell)
    }

    /// Tells the text up to here, as far as it was not told.
    fn tell_up_to(&mut self, end: usize, tell: &mut Tell<'_>) -> Result<(), GenerateError> {
        if self.told < end {
            tell(Progress::Text(&self.text[self.told..end]))?;
            self.told = end;
        }
        Ok(())
    }
}
