//! The tick: steps of many sessions, joined into one forward.

use std::time::{Duration, Instant};

use demask_decode::{Next, Session};
use demask_step::{LayerRows, OpenError, PlanError, Predictions, SequenceId, SequenceNeeds, SequenceStep, StepError};

use crate::network::Network;

/// Names a submitted session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(usize);

/// One network, perhaps a guide, and the sessions that run on them.
///
/// ```text
/// let job = engine.submit(session)?;
/// while engine.tick()? > 0 { /* look at engine.session(job) */ }
/// let finished = engine.take(job);
/// ```
pub struct Engine {
    denoiser: Host,
    guide: Option<Host>,
    jobs: Vec<Option<Job>>,
}

/// A network and what its forwards are put together in.
struct Host {
    network: Box<dyn Network>,
    /// What sessions say when it is this network's turn.
    wanted: Next,
    /// Open sequences.
    open: usize,
    /// Where the next tick starts to look for ready jobs: everybody gets a turn.
    turn: usize,
    answers: Vec<Predictions>,
    batch: Vec<SequenceStep<'static>>,
    joined: Vec<Joined>,
    time: Duration,
}

/// A job that takes part in a forward.
struct Joined {
    /// Its index.
    job: usize,
    /// How many of the batch's steps are its.
    steps: usize,
    /// Its rows.
    rows: usize,
}

struct Job {
    session: Session,
    /// Sequences of the denoiser, and of the guide.
    sequences: Vec<SequenceId>,
    guided: Vec<SequenceId>,
    state: JobState,
    time: JobTime,
}

/// A job's share of the time in networks: each forward's time is divided by rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobTime {
    /// In the model's network.
    pub model: Duration,
    /// In the guide's.
    pub guide: Duration,
}

impl JobTime {
    /// In both.
    pub fn all(self) -> Duration {
        self.model + self.guide
    }
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It wants another step.
    Running,
    /// Its session is done.
    Done,
    /// Its plan was refused; the others go on.
    Failed(PlanError),
}

impl Engine {
    /// An engine without sessions and without a guide.
    pub fn new(network: Box<dyn Network>) -> Self {
        Self { denoiser: Host::new(network, Next::Step), guide: None, jobs: Vec::new() }
    }

    /// Gives it a guide for the sessions submitted from now on; sessions that run on another guide are lost.
    pub fn set_guide(&mut self, network: Box<dyn Network>) {
        self.guide = Some(Host::new(network, Next::Guide));
    }

    /// Gives up everything but the network.
    pub fn into_network(self) -> Box<dyn Network> {
        self.denoiser.network
    }

    /// The network.
    pub fn network(&self) -> &dyn Network {
        self.denoiser.network.as_ref()
    }

    /// The network, for inspection beside sessions.
    pub fn network_mut(&mut self) -> &mut dyn Network {
        self.denoiser.network.as_mut()
    }

    /// The guide's network, if there is a guide.
    pub fn guide(&self) -> Option<&dyn Network> {
        self.guide.as_ref().map(|guide| guide.network.as_ref())
    }

    /// Time spent in the network so far.
    pub fn model_time(&self) -> Duration {
        self.denoiser.time
    }

    /// Time spent in the guide's network so far.
    pub fn guide_time(&self) -> Duration {
        self.guide.as_ref().map_or(Duration::ZERO, |guide| guide.time)
    }

    /// Reserves memory for a session and lets it join the following ticks.
    pub fn submit(&mut self, session: Session) -> Result<JobId, OpenError> {
        let sequences = self.denoiser.open(session.needs())?;
        let (guided, state) = match (&mut self.guide, session.guide_needs()) {
            (_, []) => (Vec::new(), JobState::Running),
            (Some(guide), needs) => match guide.open(needs) {
                Ok(guided) => (guided, JobState::Running),
                Err(error) => {
                    self.denoiser.close(sequences);
                    return Err(error);
                }
            },
            (None, _) => {
                let without = PlanError::Contradiction("a session with a guide on an engine that has none");
                (Vec::new(), JobState::Failed(without))
            }
        };
        let job = Some(Job { session, sequences, guided, state, time: JobTime::default() });
        let free = self.jobs.iter().position(Option::is_none).unwrap_or_else(|| {
            self.jobs.push(None);
            self.jobs.len() - 1
        });
        self.jobs[free] = job;
        Ok(JobId(free))
    }

    /// The session of a job.
    pub fn session(&self, job: JobId) -> Option<&Session> {
        Some(&self.jobs.get(job.0)?.as_ref()?.session)
    }

    /// The session of a job, to take its events or to end it early.
    pub fn session_mut(&mut self, job: JobId) -> Option<&mut Session> {
        Some(&mut self.jobs.get_mut(job.0)?.as_mut()?.session)
    }

    /// What became of a job.
    pub fn state(&self, job: JobId) -> Option<&JobState> {
        Some(&self.jobs.get(job.0)?.as_ref()?.state)
    }

    /// A job's share of the time spent in networks so far.
    pub fn job_time(&self, job: JobId) -> JobTime {
        let Some(Some(job)) = self.jobs.get(job.0) else { return JobTime::default() };
        job.time
    }

    /// Bytes of a job's caches, its guide's included.
    pub fn cache_bytes(&self, job: JobId) -> usize {
        let Some(Some(job)) = self.jobs.get(job.0) else { return 0 };
        let guided = self.guide.as_ref().map_or(0, |guide| guide.cache_bytes(&job.guided));
        self.denoiser.cache_bytes(&job.sequences) + guided
    }

    /// Gives a job's memory back and hands its session over; also how a job is cancelled.
    pub fn take(&mut self, job: JobId) -> Option<Session> {
        let Job { session, sequences, guided, .. } = self.jobs.get_mut(job.0)?.take()?;
        self.denoiser.close(sequences);
        if let Some(guide) = &mut self.guide {
            guide.close(guided);
        }
        Some(session)
    }

    /// Runs one forward of each network for as many ready sessions as its row budget holds; answers how many took part.
    /// 0: nobody wants a step.
    pub fn tick(&mut self) -> Result<usize, StepError> {
        for job in self.jobs.iter_mut().flatten() {
            if job.state == JobState::Running && job.session.next() == Next::Done {
                job.state = JobState::Done;
            }
        }
        let mut ran = self.denoiser.tick(&mut self.jobs)?;
        if let Some(guide) = &mut self.guide {
            ran += guide.tick(&mut self.jobs)?;
        }
        Ok(ran)
    }
}

impl Host {
    fn new(network: Box<dyn Network>, wanted: Next) -> Self {
        Self {
            network,
            wanted,
            open: 0,
            turn: 0,
            answers: Vec::new(),
            batch: Vec::new(),
            joined: Vec::new(),
            time: Duration::ZERO,
        }
    }

    /// Opens the sequences of one session, all or none.
    fn open(&mut self, needs: &[SequenceNeeds]) -> Result<Vec<SequenceId>, OpenError> {
        // The sequences of one session always run in one step.
        self.network.reserve_rows(needs.iter().map(|needs| needs.rows).sum())?;
        let mut sequences = Vec::new();
        for needs in needs {
            match self.network.open(needs) {
                Ok(sequence) => sequences.push(sequence),
                Err(error) => {
                    self.close(sequences);
                    return Err(error);
                }
            }
            self.open += 1;
            self.reserve_answers(needs);
        }
        Ok(sequences)
    }

    /// Room for the answers of one more open sequence, wherever it stands in a batch.
    fn reserve_answers(&mut self, needs: &SequenceNeeds) {
        let most = self.open.max(self.answers.len());
        self.answers.resize_with(most, Predictions::default);
        self.answers.iter_mut().for_each(|answer| answer.reserve(needs));
        self.joined.reserve(most.saturating_sub(self.joined.len()));
        self.batch.reserve(most.saturating_sub(self.batch.len()));
    }

    fn close(&mut self, sequences: Vec<SequenceId>) {
        self.open -= sequences.len();
        for sequence in sequences {
            self.network.close(sequence);
        }
    }

    fn cache_bytes(&self, sequences: &[SequenceId]) -> usize {
        sequences.iter().map(|&sequence| self.network.cache_bytes(sequence)).sum()
    }

    /// One forward for those who want this network; answers how many took part.
    fn tick(&mut self, jobs: &mut [Option<Job>]) -> Result<usize, StepError> {
        let Self { network, wanted, turn, answers, batch, joined, time, .. } = self;
        let mut steps = recycle(std::mem::take(batch));
        joined.clear();
        let (mut rows, mut first_layer_all) = (0, None);
        let count = jobs.len();
        let mut failed = None;
        for at in (0..count).map(|offset| (*turn + offset) % count) {
            let ready = |job: &&Job| job.state == JobState::Running && job.session.next() == *wanted;
            let Some(job) = jobs[at].as_ref().filter(ready) else { continue };
            let needed: usize = job.session.requests().iter().map(|request| request.tokens.len()).sum();
            if !steps.is_empty() && rows + needed > network.row_capacity() {
                continue;
            }
            // One launch treats the first layer of all its partly computed sequences alike: the others wait their turn.
            let own = first_layer(job);
            if own.is_some() && first_layer_all.is_some() && own != first_layer_all {
                continue;
            }
            first_layer_all = first_layer_all.or(own);
            let first = steps.len();
            join(job, *wanted, &mut steps);
            if let Some(error) = steps[first..].iter().find_map(|step| network.check(step).err()) {
                steps.truncate(first);
                failed = Some((at, error));
                break;
            }
            rows += needed;
            joined.push(Joined { job: at, steps: steps.len() - first, rows: needed });
        }
        *turn = joined.first().map_or(0, |first| first.job + 1);
        if answers.len() < steps.len() {
            answers.resize_with(steps.len(), Predictions::default);
        }
        let started = Instant::now();
        let result = if failed.is_none() { network.step(&steps, &mut answers[..steps.len()]) } else { Ok(()) };
        let elapsed = started.elapsed();
        *time += elapsed;
        *batch = recycle(steps);
        if let Some((at, error)) = failed {
            // Found before anything ran: the culprit leaves, everybody else starts over.
            if let Some(job) = jobs[at].as_mut() {
                job.state = JobState::Failed(error);
            }
            return self.tick(jobs);
        }
        result?;
        let mut next = 0;
        for part in joined.iter() {
            if let Some(job) = jobs[part.job].as_mut() {
                let time = if *wanted == Next::Guide { &mut job.time.guide } else { &mut job.time.model };
                *time += elapsed.mul_f64(part.rows as f64 / rows as f64);
                job.session.feed(&answers[next..next + part.steps]);
            }
            next += part.steps;
        }
        Ok(joined.len())
    }
}

/// Whether the first layer of a job's partly computed sequences computes every row; `None` if it has no such sequence.
fn first_layer(job: &Job) -> Option<bool> {
    job.session.requests().iter().find_map(|request| match request.plan.layers {
        LayerRows::Partial { first_layer_all, .. } => Some(first_layer_all),
        LayerRows::All => None,
    })
}

/// Appends a job's requests to the batch of the network that it wants.
fn join<'a>(job: &'a Job, wanted: Next, steps: &mut Vec<SequenceStep<'a>>) {
    let first = steps.len();
    let sequences = if wanted == Next::Guide { &job.guided } else { &job.sequences };
    steps.extend(job.session.requests().iter().map(|request| request.step(sequences[request.sequence], first)));
}

/// An empty vector for other lifetimes in the same allocation: collecting in place reuses it.
fn recycle<'b>(mut steps: Vec<SequenceStep<'_>>) -> Vec<SequenceStep<'b>> {
    steps.clear();
    steps.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}
