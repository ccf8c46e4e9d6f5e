//! Lanes: work that takes time, elsewhere than on the thread that serves all connections. A lane does so much at a time; what
//! waits is begun in turns by key, and never for a client that has left.

use std::{
    any::Any,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::oneshot, task::spawn_blocking};

use crate::Refusal;

/// A lane. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Lane {
    inside: Arc<Mutex<Inside>>,
}

#[derive(Debug)]
struct Inside {
    /// Jobs that may be begun now.
    free: usize,
    /// Jobs that wait, in the order in which they came, each with its key.
    waiting: VecDeque<(usize, oneshot::Sender<Turn>)>,
    /// The keys in the order of their last turn; one that had none is before all of them.
    turns: Vec<usize>,
}

/// The turn of a job. Dropped, it is the next one's.
#[derive(Debug)]
pub struct Turn {
    lane: Lane,
    given: bool,
}

impl Lane {
    /// Makes a lane for so many jobs at a time.
    pub fn new(jobs: usize) -> Self {
        Self { inside: Arc::new(Mutex::new(Inside { free: jobs, waiting: VecDeque::new(), turns: Vec::new() })) }
    }

    /// Does a job for a key when its turn comes. Dropped before that, it is never done.
    ///
    /// # Errors
    /// If it panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        key: usize,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = self.turn(key).await.ok_or_else(|| Refusal::broken("its lane is gone"))?;
        let done = spawn_blocking(move || {
            // Held for as long as the job goes on, whoever waits for it.
            let _turn = turn;
            // Nothing that the job has touched is looked at again.
            catch_unwind(AssertUnwindSafe(job)).map_err(|panic| Refusal::broken(&said(&*panic)))
        });
        done.await.unwrap_or_else(|error| Err(Refusal::broken(&error.to_string())))
    }

    /// Waits for a turn.
    async fn turn(&self, key: usize) -> Option<Turn> {
        let waits = {
            let mut inside = self.lock();
            if inside.free > 0 {
                inside.free -= 1;
                inside.had(key);
                return Some(Turn { lane: self.clone(), given: true });
            }
            let (give, waits) = oneshot::channel();
            inside.waiting.push_back((key, give));
            waits
        };
        waits.await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lanes for what takes time.
#[derive(Debug, Clone)]
pub struct Lanes {
    /// Requests that generate are read, and their prompts put into tokens.
    pub prompts: Lane,
    /// Texts are put into tokens for clients, and tokens into texts.
    pub tokens: Lane,
    /// Long answers are written.
    pub answers: Lane,
}

impl Lanes {
    /// Jobs of each lane at a time. The engine needs the cores more than they do, and a long answer much memory.
    pub const JOBS: [usize; 3] = [4, 1, 1];

    /// Makes the lanes of a service.
    pub fn new() -> Self {
        let [prompts, tokens, answers] = Self::JOBS.map(Lane::new);
        Self { prompts, tokens, answers }
    }
}

/// Returns a panic's message; `a panic` if it has none.
pub fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

impl Inside {
    fn had(&mut self, key: usize) {
        self.turns.retain(|&other| other != key);
        self.turns.push(key);
    }

    /// Takes out the job that waits longest of the key whose last turn is longest ago.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        self.waiting.retain(|(_, give)| !give.is_closed());
        let last = |key: usize| self.turns.iter().position(|&other| other == key).map_or(0, |place| place + 1);
        let (place, &(key, _)) = self.waiting.iter().enumerate().min_by_key(|(_, (key, _))| last(*key))?;
        self.had(key);
        self.waiting.remove(place).map(|(_, give)| give)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.given {
            return;
        }
        loop {
            let next = {
                let mut inside = self.lane.lock();
                let next = inside.next();
                inside.free += usize::from(next.is_none());
                next
            };
            let Some(next) = next else { return };
            match next.send(Turn { lane: self.lane.clone(), given: true }) {
                Ok(()) => return,
                // It left in this moment: the turn is somebody else's, and given up by hand.
                Err(mut turn) => turn.given = false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn polled<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Option<T> {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => Some(ready),
            Poll::Pending => None,
        }
    }

    #[test]
    fn turns_go_by_key_and_past_those_who_have_left() {
        let lane = Lane::new(1);
        let mut turn = polled(&mut Box::pin(lane.turn(0))).flatten().unwrap();
        let mut waiting: Vec<_> = ["a1", "a2", "a3", "b1", "b2"]
            .map(|name| (name, Box::pin(lane.turn(usize::from(&name[..1] == "b")))))
            .into();
        assert!(waiting.iter_mut().all(|(_, one)| polled(one).is_none()));
        drop(waiting.remove(1));
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(turn);
            let mut ready = waiting.iter_mut().enumerate();
            let (place, next) = ready.find_map(|(place, (_, one))| Some((place, polled(one)??))).unwrap();
            order.push(waiting.remove(place).0);
            turn = next;
        }
        assert_eq!(order, ["b1", "a1", "b2", "a3"]);
        // Given to one that leaves before it is taken, a turn goes on.
        let mut late = Box::pin(lane.turn(0));
        assert!(polled(&mut late).is_none());
        drop(turn);
        drop(late);
        let inside = lane.lock();
        assert_eq!((inside.free, inside.waiting.len()), (1, 0));
    }
}
