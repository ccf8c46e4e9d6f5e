//! The tick: steps of many sessions, joined into one forward.

use std::time::{Duration, Instant};

use demask_decode::{Next, Session};
use demask_step::{LayerRows, OpenError, PlanError, Predictions, SequenceId, SequenceStep, StepError};

use crate::network::Network;

/// Names a submitted session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(usize);

/// One network and the sessions that run on it.
///
/// ```text
/// let job = engine.submit(session)?;
/// while engine.tick()? > 0 { /* look at engine.session(job) */ }
/// let finished = engine.take(job);
/// ```
pub struct Engine {
    network: Box<dyn Network>,
    jobs: Vec<Option<Job>>,
    /// Where the next tick starts to look for ready jobs: everybody gets a turn.
    turn: usize,
    answers: Vec<Predictions>,
    batch: Vec<SequenceStep<'static>>,
    /// Which job a run of answers belongs to, and how many.
    joined: Vec<(usize, usize)>,
    model_time: Duration,
}

struct Job {
    session: Session,
    sequences: Vec<SequenceId>,
    state: JobState,
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
    /// An engine without sessions.
    pub fn new(network: Box<dyn Network>) -> Self {
        Self {
            network,
            jobs: Vec::new(),
            turn: 0,
            answers: Vec::new(),
            batch: Vec::new(),
            joined: Vec::new(),
            model_time: Duration::ZERO,
        }
    }

    /// The network.
    pub fn network(&self) -> &dyn Network {
        self.network.as_ref()
    }

    /// The network, for inspection beside sessions.
    pub fn network_mut(&mut self) -> &mut dyn Network {
        self.network.as_mut()
    }

    /// Time spent in the network so far.
    pub fn model_time(&self) -> Duration {
        self.model_time
    }

    /// Reserves memory for a session and lets it join the following ticks.
    pub fn submit(&mut self, session: Session) -> Result<JobId, OpenError> {
        // The sequences of one session always run in one step.
        self.network.reserve_rows(session.needs().iter().map(|needs| needs.rows).sum())?;
        let mut sequences = Vec::new();
        for needs in session.needs() {
            match self.network.open(needs) {
                Ok(sequence) => sequences.push(sequence),
                Err(error) => {
                    for sequence in sequences {
                        self.network.close(sequence);
                    }
                    return Err(error);
                }
            }
        }
        let job = Some(Job { session, sequences, state: JobState::Running });
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

    /// Bytes of a job's caches.
    pub fn cache_bytes(&self, job: JobId) -> usize {
        let Some(Some(job)) = self.jobs.get(job.0) else { return 0 };
        job.sequences.iter().map(|&sequence| self.network.cache_bytes(sequence)).sum()
    }

    /// Gives a job's memory back and hands its session over; also how a job is cancelled.
    pub fn take(&mut self, job: JobId) -> Option<Session> {
        let job = self.jobs.get_mut(job.0)?.take()?;
        for sequence in job.sequences {
            self.network.close(sequence);
        }
        Some(job.session)
    }

    /// Runs one forward for as many ready sessions as the row budget holds; answers how many took part. 0: nobody
    /// wants a step.
    pub fn tick(&mut self) -> Result<usize, StepError> {
        let Self { network, jobs, turn, answers, batch, joined, model_time } = self;
        let mut steps = recycle(std::mem::take(batch));
        joined.clear();
        let (mut rows, mut first_layer_all) = (0, None);
        let count = jobs.len();
        for job in jobs.iter_mut().flatten() {
            if job.state == JobState::Running && job.session.next() == Next::Done {
                job.state = JobState::Done;
            }
        }
        let mut failed = None;
        for at in (0..count).map(|offset| (*turn + offset) % count) {
            let Some(job) = jobs[at].as_ref().filter(|job| job.state == JobState::Running) else { continue };
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
            join(job, &mut steps);
            if let Some(error) = steps[first..].iter().find_map(|step| network.check(step).err()) {
                steps.truncate(first);
                failed = Some((at, error));
                break;
            }
            rows += needed;
            joined.push((at, steps.len() - first));
        }
        *turn = joined.first().map_or(0, |&(first, _)| first + 1);
        if answers.len() < steps.len() {
            answers.resize_with(steps.len(), Predictions::default);
        }
        let started = Instant::now();
        let result = if failed.is_none() { network.step(&steps, &mut answers[..steps.len()]) } else { Ok(()) };
        *model_time += started.elapsed();
        *batch = recycle(steps);
        if let Some((at, error)) = failed {
            // Found before anything ran: the culprit leaves, everybody else starts over.
            if let Some(job) = jobs[at].as_mut() {
                job.state = JobState::Failed(error);
            }
            return self.tick();
        }
        result?;
        let mut next = 0;
        for &(at, count) in joined.iter() {
            if let Some(job) = jobs[at].as_mut() {
                job.session.feed(&answers[next..next + count]);
            }
            next += count;
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

/// Appends a job's requests to the batch.
fn join<'a>(job: &'a Job, steps: &mut Vec<SequenceStep<'a>>) {
    let first = steps.len();
    steps.extend(job.session.requests().iter().map(|request| request.step(job.sequences[request.sequence], first)));
}

/// An empty vector for other lifetimes in the same allocation: collecting in place reuses it.
fn recycle<'b>(mut steps: Vec<SequenceStep<'_>>) -> Vec<SequenceStep<'b>> {
    steps.clear();
    steps.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}
