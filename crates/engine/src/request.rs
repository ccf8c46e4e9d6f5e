//! A request: its job, the predictions that it is fed, the time that it is charged, its text and its events.

mod running;

use std::{
    any::Any,
    cell::Cell,
    fmt,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use demask_decode::{DecodingReceipt, Event, Session, Started};
use demask_step::{ForwardInput, Job, Predictions, SequenceId};

use crate::{
    error::RequestError,
    ids::{NetworkId, RequestId},
    memory::Reservation,
    output::Sender,
    params::{SchedulingParams, cache_salt},
    pieces::Pieces,
    text::Text,
};

/// Function of a forward's inputs and predictions that returns the predictions that the job is fed instead.
pub type Intercept = dyn FnMut(&[ForwardInput], &[Predictions]) -> Vec<Predictions> + Send;

/// A request from its preparation to its end: it waits for memory, runs, and is finished.
///
/// It owns everything that concerns it alone: the job that asks for forwards, the text and its stop texts, priority and
/// deadline, the time that it has taken, and the queue that its events go to. It goes as a whole from the thread that
/// prepares it to the scheduler, and back to its reader.
pub struct Request {
    pub(crate) id: RequestId,
    job: Box<dyn Job>,
    /// Text of an answer; none of a job that is no session.
    text: Option<Text>,
    /// Index of the guide that judges its drafts, among those of its model.
    guide: Option<usize>,
    /// A note of the caller that prepared it, read at its end.
    note: Option<Box<dyn Any + Send + Sync>>,
    /// Priority, deadline, share and tenant.
    pub(crate) scheduling: SchedulingParams,
    /// Events for its reader.
    pub(crate) output: Option<Sender<Box<Self>>>,
    /// The networks that its own networks 0, 1 are.
    pub(crate) on: Vec<NetworkId>,
    pub(crate) submitted: Duration,
    /// Count of forwards when there was no memory for it for the first time.
    pub(crate) blocked: Option<u64>,
    /// Records whether it waits for memory again, after it has run.
    pub(crate) preempted: bool,
    /// Open sequences, while it runs.
    pub(crate) open: Open,
    /// Time that it took to get ready.
    prepared: Duration,
    pub(crate) spent: Spent,
    /// Bytes that its sequences held.
    pub(crate) bytes: u64,
    /// End of the request, once it has one.
    pub(crate) end: Option<Result<(), RequestError>>,
    /// Records whether its owner has seen it since it entered.
    seen: bool,
    /// Start of its first forward, and whether that was reported.
    began: Option<Instant>,
    started: bool,
    reported_begin: bool,
    /// Records whether log-probabilities are reported, and predictions.
    reports_logprobs: bool,
    records: Option<usize>,
    recorded: Vec<Event>,
    intercept: Option<Box<Intercept>>,
    /// Events of the last forward, while they are reported.
    events: Vec<Event>,
}

/// Sequences of a request that runs.
#[derive(Default)]
pub(crate) struct Open {
    /// The sequence of each of the job's needs, and its network.
    pub(crate) sequences: Vec<(NetworkId, SequenceId)>,
    /// Leading positions of each sequence that have memory.
    pub(crate) room: Vec<usize>,
    /// Predictions by sequence. A forward takes them out while it fills them.
    pub(crate) predictions: Vec<Cell<Predictions>>,
    /// Sequences whose reusable part was published, so that others may begin with it.
    published: Vec<bool>,
    /// Records whether its first forward, which writes what its sequences begin with, is still to come.
    filling: bool,
    /// Tag on each of the request's networks, and the round in which it was ready there; none before.
    tags: Vec<Option<(f64, u64)>>,
    pub(crate) reservations: Vec<Reservation>,
    /// Progress through its next group, if that runs in pieces.
    pub(crate) pieces: Pieces,
}

/// Groups that a request wants to run on a network.
pub(crate) struct Wanted<'a> {
    pub(crate) network: NetworkId,
    pub(crate) requests: &'a [ForwardInput],
    pub(crate) group: usize,
}

impl Wanted<'_> {
    pub(crate) fn group(&self, group: usize) -> &[ForwardInput] {
        &self.requests[group * self.group..(group + 1) * self.group]
    }
}

/// Time that a request took. A forward is divided by rows, and so is the time around it: the shares of all requests
/// together are the time of the clock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spent {
    /// Time in each of the request's networks.
    pub networks: Vec<Duration>,
    /// Total time, including time around forwards.
    pub total: Duration,
    /// Wall time from the submission on, including waiting and others' shares.
    pub wall: Duration,
    /// First tokens of the answer that were final; none as long as there are none.
    pub first: Option<FirstTokens>,
}

/// First tokens of an answer that were final, so that they could be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstTokens {
    /// Their number.
    pub tokens: usize,
    /// Wall time from the submission to them.
    pub wall: Duration,
}

impl Request {
    /// Creates a request for a job without text.
    pub fn new(job: impl Job) -> Self {
        Self {
            id: RequestId::default(),
            job: Box::new(job),
            text: None,
            guide: None,
            note: None,
            scheduling: SchedulingParams::default(),
            output: None,
            on: Vec::new(),
            submitted: Duration::ZERO,
            blocked: None,
            preempted: false,
            open: Open::default(),
            prepared: Duration::ZERO,
            spent: Spent::default(),
            bytes: 0,
            end: None,
            seen: false,
            began: None,
            started: false,
            reported_begin: false,
            reports_logprobs: false,
            records: None,
            recorded: Vec::new(),
            intercept: None,
            events: Vec::new(),
        }
    }

    /// Creates a request for a session whose answer becomes this text. `prepared` is the time that its preparation took; the
    /// receipt counts it.
    pub fn of_answer(session: Session, text: Text, prepared: Duration) -> Self {
        let reports_logprobs = session.keeps_logprobs();
        Self { text: Some(text), prepared, reports_logprobs, ..Self::new(session) }
    }

    /// Sets the index of the guide that judges its drafts, among those of its model.
    #[must_use]
    pub fn guided_by(self, guide: Option<usize>) -> Self {
        Self { guide, ..self }
    }

    /// Keeps a note of the caller that prepares it, who reads it at its end.
    #[must_use]
    pub fn with_note(self, note: impl Any + Send + Sync) -> Self {
        Self { note: Some(Box::new(note)), ..self }
    }

    /// Returns the index of the guide that judges its drafts, among those of its model; none without a guide.
    pub fn guide(&self) -> Option<usize> {
        self.guide
    }

    /// Returns the note that was kept, if it is of this type.
    pub fn note<T: Any>(&self) -> Option<&T> {
        self.note.as_deref()?.downcast_ref()
    }

    /// Sets its priority, deadline, share and tenant. Of two deadlines the earlier one counts.
    pub fn set_scheduling(&mut self, scheduling: SchedulingParams) {
        let deadline = self.scheduling.deadline.into_iter().chain(scheduling.deadline).min();
        self.scheduling = SchedulingParams { deadline, ..scheduling };
    }

    /// Lets it share the K/V of its prompt with requests of the same salt alone, so that the time of an answer reveals nothing
    /// about the prompts of others. Requests without a salt share with each other.
    pub fn set_cache_salt(&mut self, salt: &str) {
        if let Some(session) = self.session_mut() {
            session.set_salt(cache_salt(salt));
        }
    }

    /// Sets the time at which it ends with its settled part; none: no limit.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.scheduling.deadline = deadline;
    }

    /// Makes it report the predictions of networks, as [`Event::Predicted`].
    pub fn record(&mut self) {
        self.records = Some(0);
    }

    /// Feeds its job the predictions that `intercept` returns for each forward. Networks run all the same.
    pub fn intercept(&mut self, intercept: Box<Intercept>) {
        self.intercept = Some(intercept);
    }

    /// Returns its name; the default before it is submitted.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Returns its job.
    pub fn job(&self) -> &dyn Job {
        &*self.job
    }

    /// Returns its job, if it is of this type.
    pub fn job_as<J: Job>(&self) -> Option<&J> {
        let job: &dyn Any = &*self.job;
        job.downcast_ref()
    }

    /// Returns its job, to change it, if it is of this type.
    pub fn job_as_mut<J: Job>(&mut self) -> Option<&mut J> {
        let job: &mut dyn Any = &mut *self.job;
        job.downcast_mut()
    }

    /// Gives up all but its job, and returns that, if it is of this type.
    pub fn into_job<J: Job>(self) -> Option<J> {
        let job: Box<dyn Any> = self.job;
        job.downcast().ok().map(|job| *job)
    }

    /// Returns the session that decodes it, if one does.
    pub fn session(&self) -> Option<&Session> {
        self.job_as()
    }

    /// Returns the session that decodes it, to change it, if one does.
    pub fn session_mut(&mut self) -> Option<&mut Session> {
        self.job_as_mut()
    }

    /// Returns its session and its text, if it is a request for an answer.
    pub fn answer(&mut self) -> Option<(&mut Session, &mut Text)> {
        let job: &mut dyn Any = &mut *self.job;
        Some((job.downcast_mut()?, self.text.as_mut()?))
    }

    /// Returns whether it fills holes of a text, so that its answer has no length of its own.
    pub fn fills_holes(&self) -> bool {
        self.text.as_ref().is_some_and(|text| !text.holes().is_empty())
    }

    /// Returns the time that its preparation took.
    pub fn prepared(&self) -> Duration {
        self.prepared
    }

    /// Returns the time that it has taken since it was submitted.
    pub fn spent(&self) -> &Spent {
        &self.spent
    }

    /// Returns the bytes of K/V that its sequences hold, or held; 0 before it runs.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns its end: done, or the reason why not; none as long as it waits or runs.
    pub fn end(&self) -> Option<&Result<(), RequestError>> {
        self.end.as_ref()
    }

    /// Positions of its own sequences.
    pub(crate) fn rows(&self) -> u64 {
        let own = self.job.needs().iter().filter(|need| need.network == 0);
        own.map(|need| need.limits.positions as u64).sum()
    }

    /// Returns whether its deadline has passed.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        self.scheduling.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Forwards for which it has waited for memory.
    pub(crate) fn age(&self, forwards: u64) -> u64 {
        self.blocked.map_or(0, |since| forwards - since)
    }

    /// Returns whether its reader has gone.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.output.as_ref().is_some_and(|output| output.0.is_cancelled())
    }
}

impl From<Session> for Request {
    fn from(session: Session) -> Self {
        Self::new(session)
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("id", &self.id).field("end", &self.end).finish_non_exhaustive()
    }
}

/// Its events.
impl Request {
    /// Emits its events since the last call: the canvas first, then commits, text and steps. Looks for stop texts and for the
    /// deadline, and ends the session where one is reached.
    pub fn report(&mut self, emit: &mut dyn FnMut(Event)) {
        if !std::mem::replace(&mut self.started, true) {
            if let Some((session, text)) = self.answer() {
                emit(Event::Started(Box::new(laid_out(session, text))));
            }
            return;
        }
        if !self.reported_begin
            && let Some(at) = self.began
        {
            self.reported_begin = true;
            emit(Event::Began { at });
        }
        if let Some((done, all)) = self.job.progress().or_else(|| self.open.pieces.progress()) {
            emit(Event::Progress { done, all });
        }
        self.recorded.drain(..).for_each(&mut *emit);
        let Self { job, text, scheduling, events, reports_logprobs, .. } = self;
        let job: &mut dyn Any = &mut **job;
        let Some(session) = job.downcast_mut::<Session>() else { return };
        events.extend(session.events());
        let last = events.pop_if(|event| matches!(event, Event::Step { .. }));
        for event in events.drain(..) {
            let written = match event {
                Event::Commit { position, .. } | Event::Replace { position, to: Some(_), .. } => Some(position),
                _ => None,
            };
            emit(event);
            if let Some(position) = written.filter(|_| *reports_logprobs) {
                let known = session.logprob(position);
                let logprob = known.map(|known| known.log_probability).filter(|logprob| logprob.is_finite());
                emit(Event::Logprob {
                    position,
                    logprob,
                    top: known.map_or_else(Vec::new, |known| known.top.to_vec()),
                });
            }
        }
        if let Some(text) = text {
            end_if_due(session, text, scheduling, emit);
        }
        if let Some(Event::Step { step, nfe, rows, drafts, accepted, rejected, merged, .. }) = last {
            let (masks, settled) = (session.masks(), session.settled());
            emit(Event::Step { step, nfe, rows, drafts, accepted, rejected, masks, settled, merged });
        }
        if session.is_over() {
            emit(Event::Finished(session.finish()));
        }
    }

    /// Ends the session at a stop text or the deadline, for an owner that takes the session's events itself.
    pub fn end_if_due(&mut self) {
        let Self { job, text: Some(text), scheduling, .. } = self else { return };
        let job: &mut dyn Any = &mut **job;
        if let Some(session) = job.downcast_mut::<Session>() {
            end_if_due(session, text, scheduling, &mut drop);
        }
    }

    /// Reports to its reader, if it has one.
    pub(crate) fn report_to_reader(&mut self) {
        if let Some(output) = self.output.take() {
            self.report(&mut |event| output.0.push(event));
            self.output = Some(output);
        }
    }

    /// Hands the events since the last time to its reader, all of a forward at once.
    pub(crate) fn deliver(&self) {
        if let Some(output) = &self.output {
            output.0.deliver();
        }
    }

    /// Ends it for its reader.
    pub(crate) fn close(mut self: Box<Self>) {
        if let Some(output) = self.output.take() {
            output.0.close(self);
        }
    }
}

/// Extends the text, and ends the session at a stop text or the deadline.
fn end_if_due(session: &mut Session, text: &mut Text, scheduling: &SchedulingParams, emit: &mut dyn FnMut(Event)) {
    text.report(session, emit);
    if scheduling.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
        session.give_up();
        text.report(session, emit);
    }
}

/// Its canvas at the start.
fn laid_out(session: &Session, text: &Text) -> Started {
    let (canvas, prompt_tokens) = (session.canvas().to_vec(), session.layout().response());
    let DecodingReceipt { decoder, cache, .. } = session.receipt();
    let mut started = Started::default();
    started.positions = canvas.len() - prompt_tokens;
    (started.canvas, started.prompt_tokens, started.masks) = (canvas, prompt_tokens, session.masks());
    started.block_length = session.layout().block_length();
    (started.decoder, started.cache, started.holes) = (decoder, cache, text.holes().to_vec());
    started
}

/// Function that is called with each request when it enters and after each of its forwards, and returns whether it goes on.
pub type Observer<'a> = dyn FnMut(&mut Request) -> ControlFlow<()> + 'a;

/// Returns the message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
