//! The load: who asks when, on a thread for each request that is under way.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use demask::internals::step::random::{token_bits, uniform};

use super::{
    answer::{Answer, Reader, Times},
    http::{Failure, Line, Request},
    plan::{Load, MOST_AT_ONCE, Plan},
};
use crate::{interrupt, progress::Bar};

/// Memory of a thread's stack: a request needs little, and there may be hundreds.
const STACK: usize = 512 << 10;
/// Sleep between two looks at whether the user has ended the arrivals.
const NAP: Duration = Duration::from_millis(100);

/// One request and what came of it.
#[derive(Debug)]
pub struct Sample {
    /// Number of the request: the same number is the same request.
    pub number: usize,
    /// Delay between the planned and the actual start.
    pub late: Duration,
    /// Outcome of the request.
    pub outcome: Outcome,
}

/// Outcome of a request.
#[derive(Debug)]
pub enum Outcome {
    /// An answer.
    Finished(Box<(Answer, Times)>),
    /// The server had no room (503), or the key no requests left (429).
    Refused {
        /// Time to the refusal, from the actual start: earlier delay is this client's own.
        after: Duration,
        /// Records whether it said when to come again.
        says_when: bool,
    },
    /// Failure of another kind.
    Failed(Failure),
}

/// All requests of a load.
#[derive(Debug)]
pub struct Run {
    /// Samples, in the order of their numbers.
    pub samples: Vec<Sample>,
    /// Seconds from the first request to the end of the last answer.
    pub seconds: f64,
}

/// Sends one request and waits for its end; its times count from `asked` on.
pub fn one(plan: &Plan, line: &mut Line, model: &str, number: usize, asked: Instant) -> Outcome {
    let body = plan.body(model, number);
    let (mut reader, sent) = (Reader::new(asked, plan.replaces()), Instant::now());
    let request = Request { method: "POST", path: plan.endpoint.path(), body: &body };
    if let Err(failure) = plan.client.ask(line, request, &mut reader) {
        return Outcome::Failed(failure);
    }
    let says_when = reader.retry_after().is_some();
    match reader.finish() {
        Ok(finished) => Outcome::Finished(Box::new(finished)),
        Err(Failure::Status { status: 429 | 503, .. }) => Outcome::Refused { after: sent.elapsed(), says_when },
        Err(failure) => Outcome::Failed(failure),
    }
}

/// Runs a load to its end, or until the user stops it.
pub fn run(plan: &Plan, model: &str, load: Load, bar: &Bar) -> anyhow::Result<Run> {
    let began = Instant::now();
    let mut samples = match load {
        Load::Closed(count) => closed(plan, model, count, bar)?,
        Load::Open(rate) => open(plan, model, rate, bar)?,
    };
    let seconds = began.elapsed().as_secs_f64();
    interrupt::check()?;
    samples.sort_by_key(|sample| sample.number);
    Ok(Run { samples, seconds })
}

/// Runs a number of requests at the same time, each thread on a connection of its own.
fn closed(plan: &Plan, model: &str, count: usize, bar: &Bar) -> anyhow::Result<Vec<Sample>> {
    let (next, samples) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(plan.requests)));
    let work = || {
        let mut line = Line::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= plan.requests || interrupt::requested() {
                return;
            }
            let outcome = one(plan, &mut line, model, number, Instant::now());
            bar.advance();
            locked(&samples).push(Sample { number, late: Duration::ZERO, outcome });
        }
    };
    thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let threads: Result<Vec<_>, _> = (0..count.min(plan.requests)).map(spawn).collect();
        threads.map(drop).context("cannot start a thread for each request")
    })?;
    Ok(samples.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Requests at random moments: the time between two is distributed exponentially, as between calls of many people who
/// know nothing of each other. An answer's times count from the moment that its request was to go out: a server that is
/// behind shall not be asked less.
fn open(plan: &Plan, model: &str, rate: f64, bar: &Bar) -> anyhow::Result<Vec<Sample>> {
    let (under_way, samples) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(plan.requests)));
    // Connections that wait for the next request: clients keep theirs, and opening one costs a server more than refusing.
    let kept = Mutex::new(Vec::new());
    let began = Instant::now();
    let mut arrival = 0.0;
    thread::scope(|scope| {
        for number in 0..plan.requests {
            let due = began + Duration::from_secs_f64(arrival);
            arrival += pause(plan.seed, number, rate);
            wait(|| Instant::now() < due, due);
            wait(|| under_way.load(Ordering::Acquire) >= MOST_AT_ONCE, due);
            if interrupt::requested() {
                break;
            }
            under_way.fetch_add(1, Ordering::AcqRel);
            let (under_way, samples, kept) = (&under_way, &samples, &kept);
            let work = move || {
                let late = due.elapsed();
                let mut line = locked(kept).pop().unwrap_or_default();
                let outcome = one(plan, &mut line, model, number, due);
                if line.is_open() {
                    locked(kept).push(line);
                }
                bar.advance();
                locked(samples).push(Sample { number, late, outcome });
                under_way.fetch_sub(1, Ordering::AcqRel);
            };
            let started = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
            started.context("cannot start a thread for each request")?;
        }
        anyhow::Ok(())
    })?;
    Ok(samples.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Seconds between the arrival of that number and the next one.
fn pause(seed: u64, number: usize, rate: f64) -> f64 {
    // An hour: a rate that is this low is a slip, and sums of it must stay numbers.
    (-uniform(token_bits(seed, number as u32)).ln() / rate).min(3600.0)
}

/// Sleeps while a condition holds and the user has not stopped it: until `due`, or in short naps behind it.
fn wait(holds: impl Fn() -> bool, due: Instant) {
    while holds() && !interrupt::requested() {
        let left = due.saturating_duration_since(Instant::now());
        thread::sleep(if left.is_zero() { Duration::from_millis(1) } else { left.min(NAP) });
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_their_rate_and_repeat() {
        let pauses: Vec<_> = (0..20_000).map(|number| pause(3, number, 50.0)).collect();
        let mean = pauses.iter().sum::<f64>() / pauses.len() as f64;
        assert!((mean - 0.02).abs() < 0.001, "{mean}");
        // Of an exponential distribution, the standard deviation is the mean.
        let variance = pauses.iter().map(|pause| (pause - mean).powi(2)).sum::<f64>() / pauses.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{variance}");
        assert_eq!(pause(3, 7, 50.0), pause(3, 7, 50.0));
        assert_ne!(pause(3, 7, 50.0), pause(4, 7, 50.0));
    }
}
