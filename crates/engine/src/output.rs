//! Queue of events between an engine and the reader of a request: bounded, because events that were not read yet are merged.

use std::{
    collections::HashMap,
    mem,
    sync::atomic::{AtomicBool, Ordering},
    task::{Poll, Waker},
    time::Instant,
};

use demask_decode::Event;
use demask_step::Position;

// By way of the module above, so that a test can put other locks in their place.
use super::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Forwards that are listed one by one until they are read.
const MOST_STEPS: usize = 256;

/// Queue of the events of one request, and its end, which is a `T`. The engine writes, and one reader takes: by waiting, with a
/// limit of time, or as a task that is woken.
///
/// Events are read once they are delivered, all of a forward at once. Unread ones are merged in linear time: text is joined, a
/// position has its last token alone, and forwards are listed up to 256 and counted from there on.
pub struct OutputQueue<T> {
    inside: Mutex<Inside<T>>,
    arrived: Condvar,
    cancelled: AtomicBool,
}

struct Inside<T> {
    unread: Unread,
    /// Records whether they may be read: all of a forward is there.
    delivered: bool,
    /// Records whether nothing is delivered before the end: then one batch holds all that has happened.
    whole: bool,
    /// Records whether nothing is merged.
    every: bool,
    end: End<T>,
    waker: Option<Waker>,
    /// Records whether the waker is for the end alone.
    patient: bool,
    /// Threads that wait.
    waiting: usize,
}

/// End of a request.
enum End<T> {
    Open,
    /// Its result; none if the engine has gone.
    Closed(Option<T>),
    Taken,
}

/// Events that were not read.
#[derive(Default)]
struct Unread {
    events: Vec<Event>,
    /// Index of the last event that says which token a position has, and of its log-probability.
    tokens: HashMap<Position, usize>,
    logprobs: HashMap<Position, usize>,
    text: Option<usize>,
    progress: Option<usize>,
    /// Steps that are listed, and the index of the one that the others are merged into.
    steps: usize,
    last_step: Option<usize>,
}

impl Unread {
    /// Adds an event. The size is bounded: text by the answer, tokens by the canvas, steps by a number.
    fn push(&mut self, event: Event) {
        let next = self.events.len();
        let place = match event {
            Event::Text(_) => *self.text.get_or_insert(next),
            Event::Progress { .. } => *self.progress.get_or_insert(next),
            Event::Commit { position, .. } | Event::Replace { position, .. } => {
                *self.tokens.entry(position).or_insert(next)
            }
            Event::Logprob { position, .. } => *self.logprobs.entry(position).or_insert(next),
            Event::Step { .. } if self.steps < MOST_STEPS => {
                self.steps += 1;
                next
            }
            Event::Step { .. } => *self.last_step.get_or_insert(next),
            _ => next,
        };
        let is_rest = self.last_step == Some(place);
        match self.events.get_mut(place) {
            Some(former) => merge(former, event),
            None => self.events.push(if is_rest { counted(event, 1) } else { event }),
        }
    }

    fn take(&mut self) -> Vec<Event> {
        mem::take(self).events
    }
}

/// Merges an event into the one that has its place: an event that was not read is as if it had not been.
fn merge(former: &mut Event, event: Event) {
    *former = match (&mut *former, event) {
        (Event::Text(text), Event::Text(more)) => {
            text.push_str(&more);
            return;
        }
        (Event::Step { merged, .. }, step) => counted(step, *merged + 1),
        (Event::Commit { .. }, Event::Replace { step, position, to: Some(token), confidence, changed, .. }) => {
            Event::Commit { step, position, token, confidence, forced: false, changed }
        }
        (&mut Event::Commit { token: from, .. }, Event::Replace { step, position, to, confidence, changed, .. })
        | (&mut Event::Replace { from, .. }, Event::Replace { step, position, to, confidence, changed, .. }) => {
            Event::Replace { step, position, from, to, confidence, changed }
        }
        (&mut Event::Replace { from, .. }, Event::Commit { step, position, token, confidence, changed, .. }) => {
            Event::Replace { step, position, from, to: Some(token), confidence, changed }
        }
        (_, event) => event,
    };
}

/// Returns a step that others are merged into.
fn counted(mut event: Event, forwards: usize) -> Event {
    if let Event::Step { merged, .. } = &mut event {
        *merged = forwards;
    }
    event
}

impl<T> Default for OutputQueue<T> {
    fn default() -> Self {
        let inside = Inside {
            unread: Unread::default(),
            delivered: false,
            whole: false,
            every: false,
            end: End::Open,
            waker: None,
            patient: false,
            waiting: 0,
        };
        Self { inside: Mutex::new(inside), arrived: Condvar::new(), cancelled: AtomicBool::new(false) }
    }
}

impl<T> OutputQueue<T> {
    // A holder of the lock that panicked has left nothing half done: each change is one assignment.
    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, mut inside: MutexGuard<'_, Inside<T>>) {
        let waker = inside.waker.take();
        let waiting = inside.waiting > 0;
        drop(inside);
        // A call to the system each time, whether or not anybody waits.
        if waiting {
            self.arrived.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Merges nothing from now on: each event is read as it was.
    pub fn keep_every_event(&self) {
        self.lock().every = true;
    }

    /// Adds an event. It is read once it is [delivered](Self::deliver).
    pub fn push(&self, event: Event) {
        let mut inside = self.lock();
        // Events that a slow reader has left wait for the rest of this forward.
        inside.delivered = false;
        if inside.every { inside.unread.events.push(event) } else { inside.unread.push(event) }
    }

    /// Lets the reader take the events that were added since the last time, and wakes it.
    pub fn deliver(&self) {
        let mut inside = self.lock();
        let is_news = !inside.unread.events.is_empty() && !inside.whole;
        if is_news && !mem::replace(&mut inside.delivered, true) && !inside.patient {
            self.changed(inside);
        }
    }

    /// Delivers nothing from now on before the end: then one batch has all events.
    pub fn wait_for_the_end(&self) {
        self.lock().whole = true;
    }

    /// Puts the end in, and wakes the reader; only the first end counts.
    pub fn close(&self, end: T) {
        self.end(Some(end));
    }

    /// Ends the request without a result, because the engine has gone, unless it has an end already.
    pub fn abandon(&self) {
        self.end(None);
    }

    fn end(&self, end: Option<T>) {
        let mut inside = self.lock();
        if matches!(inside.end, End::Open) {
            inside.end = End::Closed(end);
            inside.delivered = true;
            self.changed(inside);
        }
    }

    /// Gives the request up: the engine drops it before its next forward.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Returns whether the reader has given the request up.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Takes the events that were delivered; `Ready(None)` at the end. If there are none yet, `waker` is woken once there are
    /// some.
    pub fn poll(&self, waker: Option<&Waker>) -> Poll<Option<Vec<Event>>> {
        Self::take(&mut self.lock(), waker)
    }

    /// Reports whether the end is there, and wakes the task once it is. Events before it stay here and wake no task.
    pub fn poll_end(&self, waker: &Waker) -> Poll<()> {
        let mut inside = self.lock();
        if !matches!(inside.end, End::Open) {
            return Poll::Ready(());
        }
        (inside.waker, inside.patient) = (Some(waker.clone()), true);
        Poll::Pending
    }

    fn take(inside: &mut Inside<T>, waker: Option<&Waker>) -> Poll<Option<Vec<Event>>> {
        if mem::take(&mut inside.delivered) {
            let events = inside.unread.take();
            inside.delivered = !matches!(inside.end, End::Open);
            if !events.is_empty() {
                return Poll::Ready(Some(events));
            }
        }
        if !matches!(inside.end, End::Open) {
            return Poll::Ready(None);
        }
        (inside.waker, inside.patient) = (waker.cloned(), false);
        Poll::Pending
    }

    /// Waits for events and takes them; none at the end.
    pub fn wait(&self) -> Option<Vec<Event>> {
        let mut inside = self.lock();
        loop {
            if let Poll::Ready(events) = Self::take(&mut inside, None) {
                return events;
            }
            inside.waiting += 1;
            inside = self.arrived.wait(inside).unwrap_or_else(PoisonError::into_inner);
            inside.waiting -= 1;
        }
    }

    /// Waits for events until a time and takes them; `Ready(None)` at the end, `Pending` if none has come.
    pub fn wait_until(&self, limit: Instant) -> Poll<Option<Vec<Event>>> {
        let mut inside = self.lock();
        loop {
            let left = limit.saturating_duration_since(Instant::now());
            match Self::take(&mut inside, None) {
                Poll::Pending if !left.is_zero() => {}
                found => return found,
            }
            inside.waiting += 1;
            inside = self.arrived.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner).0;
            inside.waiting -= 1;
        }
    }

    /// Waits for the end and takes it; none if the engine has gone, or it was taken before.
    pub fn take_end(&self) -> Option<T> {
        let mut inside = self.lock();
        while matches!(inside.end, End::Open) {
            inside.waiting += 1;
            inside = self.arrived.wait(inside).unwrap_or_else(PoisonError::into_inner);
            inside.waiting -= 1;
        }
        match mem::replace(&mut inside.end, End::Taken) {
            End::Closed(end) => end,
            End::Open | End::Taken => None,
        }
    }
}

/// The engine's side of a queue. Dropped before the end, it ends the request without a result.
pub(crate) struct Sender<T>(pub(crate) Arc<OutputQueue<T>>);

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

#[cfg(test)]
#[path = "output/tests.rs"]
mod tests;
