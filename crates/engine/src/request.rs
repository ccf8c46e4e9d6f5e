//! A request: its job, the predictions that it is fed, the time that it is charged, its text and its events.

use std::{
    any::Any,
    cell::Cell,
    fmt,
    hash::{BuildHasher, RandomState},
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::LazyLock,
    time::{Duration, Instant},
};

use demask_decode::{DecodingReceipt, Event, Session, Started};
use demask_step::{ForwardInput, Job, Network, OutOfMemory, Pending, Position, Predictions, Prefix, SequenceId};

use crate::{
    error::{RequestError, SubmitError},
    ids::{NetworkId, RequestId},
    memory::Bill,
    order::Party,
    output::Sender,
    params::{Class, Tenant},
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
    /// Advice for an answer that its length has cut.
    when_cut: Option<String>,
    /// Priority, deadline, share and tenant.
    pub(crate) class: Class,
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
    pub(crate) bills: Vec<Bill>,
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
}

impl Request {
    /// Creates a request for a job without text.
    pub fn new(job: impl Job) -> Self {
        Self {
            id: RequestId::default(),
            job: Box::new(job),
            text: None,
            guide: None,
            when_cut: None,
            class: Class::default(),
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

    /// Sets the advice that the receipt gives where its length has cut the answer.
    #[must_use]
    pub fn with_advice(self, when_cut: Option<String>) -> Self {
        Self { when_cut, ..self }
    }

    /// Returns the index of the guide that judges its drafts, among those of its model; none without a guide.
    pub fn guide(&self) -> Option<usize> {
        self.guide
    }

    /// Returns the advice for the case that its length has cut the answer.
    pub fn when_cut(&self) -> Option<&str> {
        self.when_cut.as_deref()
    }

    /// Sets its priority, deadline, share and tenant. Of two deadlines the earlier one counts.
    pub fn set_class(&mut self, class: Class) {
        let deadline = self.class.deadline.into_iter().chain(class.deadline).min();
        self.class = Class { deadline, ..class };
    }

    /// Lets it share the K/V of its prompt with requests of the same salt alone, so that the time of an answer reveals nothing
    /// about the prompts of others. Requests without a salt share with each other.
    pub fn set_cache_salt(&mut self, salt: &str) {
        if let Some(session) = self.session_mut() {
            session.set_salt(keyed(salt));
        }
    }

    /// Sets the time at which it ends with its settled part; none: no limit.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.class.deadline = deadline;
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
        own.map(|need| need.sequence.positions as u64).sum()
    }

    /// Returns whether its deadline has passed.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        self.class.deadline.is_some_and(|deadline| deadline <= now)
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
        if let Some((done, all)) = self.job.progress() {
            emit(Event::Progress { done, all });
        }
        self.recorded.drain(..).for_each(&mut *emit);
        let Self { job, text, class, events, reports_logprobs, .. } = self;
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
            end_if_due(session, text, class, emit);
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
        let Self { job, text: Some(text), class, .. } = self else { return };
        let job: &mut dyn Any = &mut **job;
        if let Some(session) = job.downcast_mut::<Session>() {
            end_if_due(session, text, class, &mut drop);
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
fn end_if_due(session: &mut Session, text: &mut Text, class: &Class, emit: &mut dyn FnMut(Event)) {
    text.report(session, emit);
    if class.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
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

/// Its forwards, predictions and charges while it runs.
impl Request {
    /// Returns the inputs that it wants to run, or how its job breaks its contract.
    pub(crate) fn wanted(&self) -> Result<Option<Wanted<'_>>, &'static str> {
        let (None, Pending::Run { requests, group }) = (&self.end, self.job.pending()) else { return Ok(None) };
        if group == 0 || requests.is_empty() || !requests.len().is_multiple_of(group) {
            return Err("what is pending is no whole number of groups");
        }
        let network = |sequence: usize| self.open.sequences.get(sequence).map(|&(network, _)| network);
        let unknown = "what is pending names a sequence that was not needed";
        let first = network(requests[0].sequence).ok_or(unknown)?;
        for request in requests {
            if network(request.sequence).ok_or(unknown)? != first {
                return Err("what is pending runs on two networks");
            }
        }
        Ok(Some(Wanted { network: first, requests, group }))
    }

    /// Returns the place of its tenant among those of a network.
    pub(crate) fn party(&self, parties: &[Party]) -> Option<usize> {
        parties.iter().position(|party| party.id == self.tenant().id)
    }

    pub(crate) fn tenant(&self) -> Tenant {
        self.class.tenant
    }

    /// Returns its tag on a network, if it was ready there in this round.
    pub(crate) fn tag(&self, network: NetworkId, round: u64) -> Option<f64> {
        let place = self.on.iter().position(|&on| on == network)?;
        self.open.tags[place].filter(|&(_, ready)| ready == round).map(|(tag, _)| tag)
    }

    /// Returns the tag that it had on a network when it was last ready there; 0 if it never was.
    pub(crate) fn last_tag(&self, network: NetworkId) -> f64 {
        let place = self.on.iter().position(|&on| on == network);
        place.and_then(|place| self.open.tags[place]).map_or(0.0, |(tag, _)| tag)
    }

    pub(crate) fn set_tag(&mut self, network: NetworkId, tag: f64, round: u64) {
        if let Some(place) = self.on.iter().position(|&on| on == network) {
            self.open.tags[place] = Some((tag, round));
        }
    }

    /// Lets it run on open sequences; `filled` counts the leading slots of each that are filled already.
    pub(crate) fn enter(&mut self, sequences: Vec<(NetworkId, SequenceId)>, bills: Vec<Bill>, filled: &[Position]) {
        let predictions = self.job.needs().iter().map(|need| {
            let mut predictions = Predictions::default();
            predictions.reserve(&need.sequence);
            Cell::new(predictions)
        });
        self.open = Open {
            predictions: predictions.collect(),
            published: vec![false; sequences.len()],
            filling: true,
            tags: vec![None; self.on.len()],
            pieces: Pieces::default(),
            room: self.job.needs().iter().map(|need| need.sequence.opens_with.unwrap_or(usize::MAX)).collect(),
            sequences,
            bills,
        };
        self.spent.networks.resize(self.on.len(), Duration::ZERO);
        self.preempted = false;
        self.count_bytes();
        self.guarded(|job| job.opened(filled));
    }

    /// Counts the bytes that its sequences have taken by now.
    pub(crate) fn count_bytes(&mut self) {
        let taken = self.open.bills.iter().map(|bill| bill.taken).sum();
        self.bytes = self.bytes.max(taken);
    }

    /// Returns the first of its sequences that has memory for fewer positions than its next forwards see, and how many these are.
    pub(crate) fn wants_room(&self) -> Option<(usize, usize)> {
        if self.end.is_some() || self.open.room.iter().all(|&room| room == usize::MAX) {
            return None;
        }
        let short = |input: &&ForwardInput| {
            self.open.room.get(input.sequence).is_some_and(|&room| input.plan.visible as usize > room)
        };
        let input = self.job.pending().requests().iter().find(short)?;
        Some((input.sequence, input.plan.visible as usize))
    }

    /// Returns whether memory for all of its positions is taken when it enters.
    pub(crate) fn is_fixed(&self) -> bool {
        self.job.needs().iter().all(|need| need.sequence.opens_with.is_none())
    }

    /// Learns that its sequences were closed, for it to wait again.
    pub(crate) fn preempt(&mut self) {
        self.preempted = true;
        self.guarded(|job| job.preempted());
    }

    /// Ends its answer with what is settled, since there is no memory for more.
    pub(crate) fn run_out_of_memory(&mut self, error: OutOfMemory) {
        match self.session_mut() {
            Some(session) => session.run_out_of_memory(),
            None => self.fail(RequestError::Open(error.into())),
        }
    }

    /// Prepares the piece of its next group that ends there, for a network whose own shift is `shift`.
    pub(crate) fn cut(&mut self, end: usize, shift: Position) {
        if let Pending::Run { requests, group } = self.job.pending() {
            self.open.pieces.prepare(&requests[..group.min(requests.len())], end, shift);
        }
    }

    /// Takes the predictions of a piece, and feeds those of its group once that has run as a whole.
    pub(crate) fn feed_piece(&mut self, predictions: &[Predictions]) {
        if self.open.pieces.absorb(predictions) {
            let predictions = self.open.pieces.take();
            self.feed(&predictions);
            self.open.pieces.give_back(predictions);
        }
    }

    /// Feeds it predictions, if they are those that it asked for.
    pub(crate) fn feed(&mut self, predictions: &[Predictions]) {
        let mut asked = self.job.pending().requests().iter().zip(predictions);
        let whole = |(request, answer): (&ForwardInput, &Predictions)| {
            let lanes = request.plan.lanes.count();
            answer.lanes == lanes && answer.tokens.len() == lanes * request.plan.predictions()
        };
        if !asked.all(whole) {
            self.fail(RequestError::Broken("the network's answer has another length than what was asked"));
            return;
        }
        if let Some(position) = predictions.iter().find_map(Predictions::without_numbers) {
            self.fail(RequestError::NotNumbers { position });
            return;
        }
        let own = self.intercept.as_mut().map(|intercept| intercept(self.job.pending().requests(), predictions));
        let predictions = own.as_deref().unwrap_or(predictions);
        self.keep(predictions);
        self.open.filling = false;
        self.guarded(|job| job.feed(predictions));
        if let (None, Some(fault)) = (&self.end, self.job.fault()) {
            self.end = Some(Err(RequestError::Fault(fault.to_owned())));
        }
    }

    /// Keeps predictions as events, if they are recorded.
    fn keep(&mut self, predictions: &[Predictions]) {
        let Some(feed) = &mut self.records else { return };
        let needs = self.job.needs();
        for (input, predictions) in self.job.pending().requests().iter().zip(predictions) {
            let network = needs.get(input.sequence).map_or(0, |need| need.network);
            self.recorded.push(Event::Predicted { step: *feed, network, predictions: Box::new(predictions.clone()) });
        }
        *feed += 1;
    }

    /// Ends it before it is taken on.
    pub(crate) fn refuse(&mut self, error: SubmitError) {
        self.fail(RequestError::Refused(error));
    }

    /// Ends it with an error.
    pub(crate) fn fail(&mut self, error: RequestError) {
        self.end = Some(Err(error));
    }

    /// Calls its job; a panic ends this request alone.
    fn guarded(&mut self, call: impl FnOnce(&mut dyn Job)) {
        let job = &mut *self.job;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| call(job))) {
            self.fail(RequestError::Panicked(message(&*panic)));
        }
    }

    /// Notes that a forward begins, if it is the first.
    pub(crate) fn begin(&mut self) {
        self.began.get_or_insert_with(Instant::now);
    }

    /// Publishes the reusable prefixes of its sequences on a network: each the first time that there is one, and all where no
    /// forward of it follows.
    pub(crate) fn publish<N: Network + ?Sized>(&mut self, on: NetworkId, network: &mut N, ends: bool) {
        let Open { sequences, published, .. } = &mut self.open;
        let sequences = sequences.iter().zip(published).enumerate();
        for (index, (&(_, sequence), published)) in
            sequences.filter(|(_, ((id, _), done))| *id == on && (ends || !**done))
        {
            let prefix = self.job.reusable(index);
            if !prefix.tokens.is_empty() {
                network.publish(sequence, prefix, ends);
                *published = true;
            }
        }
    }

    /// Reports whether it is about to write what its sequences begin with.
    pub(crate) fn is_filling(&self) -> bool {
        self.open.filling && self.end.is_none()
    }

    /// Returns what its sequences on a network begin with, while it is about to write it.
    pub(crate) fn filling(&self, on: NetworkId) -> impl Iterator<Item = Prefix<'_>> {
        let sequences =
            self.open.sequences.iter().enumerate().filter(move |(_, (id, _))| *id == on && self.is_filling());
        sequences.map(|(index, _)| self.job.begins(index)).filter(|prefix| !prefix.tokens.is_empty())
    }

    /// Shows it to its owner for the first time.
    pub(crate) fn show_first(&mut self, seen: &mut Observer<'_>) {
        if !std::mem::replace(&mut self.seen, true) {
            self.show(seen);
        }
    }

    /// Shows it to its owner, who may end it.
    pub(crate) fn show(&mut self, seen: &mut Observer<'_>) {
        if self.end.is_none() && seen(self).is_break() {
            self.fail(RequestError::Cancelled);
        }
    }

    /// Charges its share of a forward that took `elapsed` in the network, and of `all`, which counts the time around it, too.
    pub(crate) fn charge(&mut self, network: NetworkId, elapsed: Duration, all: Duration, share: f64) {
        if let Some(place) = self.on.iter().position(|&on| on == network) {
            self.spent.networks[place] += elapsed.mul_f64(share);
        }
        self.spent.total += all.mul_f64(share);
    }
}

/// Returns a number for a salt, the same as long as this process runs; nobody outside can tell which texts have the same one.
/// 0 is the number of no salt.
fn keyed(salt: &str) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(salt).max(1)
}

/// Function that is called with each request when it enters and after each of its forwards, and returns whether it goes on.
pub type Observer<'a> = dyn FnMut(&mut Request) -> ControlFlow<()> + 'a;

/// Returns the message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
