//! Requests of one caller that are waited for together.

use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use demask_decode::Event;

use crate::{error::EngineError, handle::RequestHandle};

/// Requests of one caller, each with a key, that one thread waits for together. Dropped, it cancels those that are not over
/// before the next forward.
pub struct Group<K, T> {
    bell: Arc<Bell>,
    running: HashMap<usize, Member<K, T>>,
    next: usize,
}

struct Member<K, T> {
    key: K,
    handle: RequestHandle<T>,
    waker: Waker,
    events: Vec<Event>,
}

/// A request of a group that is over.
pub struct Over<K, T> {
    /// The key that it was added with.
    pub key: K,
    /// Its result.
    pub result: Result<T, EngineError>,
    /// All its events, merged: of a position that was written twice the last token.
    pub events: Vec<Event>,
}

/// Numbers of requests that are over, for the thread that waits for any of them.
#[derive(Default)]
struct Bell {
    rung: Mutex<Vec<usize>>,
    heard: Condvar,
}

/// Rings a bell with the number of a request.
struct Ringer {
    bell: Arc<Bell>,
    number: usize,
}

impl Wake for Ringer {
    fn wake(self: Arc<Self>) {
        self.bell.lock().push(self.number);
        self.bell.heard.notify_one();
    }
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, Vec<usize>> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, T> Default for Group<K, T> {
    fn default() -> Self {
        Self { bell: Arc::default(), running: HashMap::new(), next: 0 }
    }
}

impl<K, T> Group<K, T> {
    /// Returns how many of its requests are not over.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Returns whether all of its requests are over.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Adds a request. Its events come with its end.
    pub fn add(&mut self, key: K, mut handle: RequestHandle<T>) {
        let number = self.next;
        self.next += 1;
        handle.wait_for_the_end();
        let waker = Waker::from(Arc::new(Ringer { bell: Arc::clone(&self.bell), number }));
        // A request that is looked at for the first time asks to be woken.
        waker.wake_by_ref();
        self.running.insert(number, Member { key, handle, waker, events: Vec::new() });
    }

    /// Waits until a request is over, for `limit` at most, and takes out all that are. Empty if none is.
    pub fn over_within(&mut self, limit: Duration) -> Vec<Over<K, T>> {
        let rung = self.bell.lock();
        let rung = self.bell.heard.wait_timeout_while(rung, limit, |rung| rung.is_empty());
        let mut numbers = std::mem::take(&mut *rung.unwrap_or_else(PoisonError::into_inner).0);
        numbers.sort_unstable();
        let mut over = Vec::new();
        for number in numbers {
            let Some(member) = self.running.get_mut(&number) else { continue };
            while let Poll::Ready(events) = member.handle.poll_events(&mut Context::from_waker(&member.waker)) {
                if let Some(events) = events {
                    member.events.extend(events);
                    continue;
                }
                if let Some(Member { key, mut handle, events, .. }) = self.running.remove(&number) {
                    over.push(Over { key, result: handle.result(), events });
                }
                break;
            }
        }
        over
    }
}
