//! State that an engine's thread and the readers of requests share, in every order that their steps may have.
//!
//! The queue is compiled here once more, over locks whose holders are chosen by a scheduler of the test: it tries all orders
//! one after the other, and finds a reader that nobody wakes, an end that is lost, or text out of order. Without a harness,
//! because the queue's own tests are not for these locks.

mod sync {
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
    pub use std::sync::{Arc, PoisonError};
}
#[path = "../../src/output.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the tests of the queue are left out")]
mod output;

use std::{
    sync::Arc,
    task::{Poll, Wake, Waker},
};

use demask_decode::Event;
use loom::{
    model::Builder,
    sync::{Condvar, Mutex},
    thread,
};

use output::{OutputQueue, Sender};

/// Largest number of times that a thread is interrupted where it need not be: orders beyond that are many, and find
/// little.
const INTERRUPTIONS: usize = 3;

fn main() {
    let readers = [a_reader_that_waits as fn(), a_reader_that_is_woken, a_reader_of_the_whole, a_reader_that_pauses];
    for model in readers.into_iter().chain([a_reader_that_leaves as fn(), two_ends, an_engine_that_has_gone]) {
        let mut orders = Builder::new();
        orders.preemption_bound = Some(INTERRUPTIONS);
        orders.check(model);
    }
}

/// Does what an engine's thread does for a request: two forwards, then the end.
fn engine(queue: &Arc<OutputQueue<u32>>) -> thread::JoinHandle<()> {
    let sender = Sender(Arc::clone(queue));
    thread::spawn(move || {
        for texts in [["a", "b"], ["c", "d"]] {
            for text in texts {
                sender.0.push(Event::Text(text.to_owned()));
            }
            sender.0.deliver();
        }
        sender.0.close(7);
    })
}

/// Events that a reader has received.
#[derive(Default)]
struct Read {
    text: String,
    batches: usize,
}

impl Read {
    fn take(&mut self, events: Vec<Event>) {
        self.batches += 1;
        for event in events {
            let Event::Text(text) = event else { panic!("only text was pushed") };
            assert!(text.len().is_multiple_of(2), "all of a forward at once: {text}");
            self.text.push_str(&text);
        }
    }

    fn is_all(&self, queue: &OutputQueue<u32>) {
        assert_eq!((self.text.as_str(), queue.take_end()), ("abcd", Some(7)));
    }
}

fn a_reader_that_waits() {
    let queue = Arc::new(OutputQueue::default());
    let engine = engine(&queue);
    let mut read = Read::default();
    while let Some(events) = queue.wait() {
        read.take(events);
    }
    read.is_all(&queue);
    engine.join().unwrap();
}

/// A task that sleeps until its waker is called.
#[derive(Default)]
struct Sleeper {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl Sleeper {
    fn sleep(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.changed.wait(woken).unwrap();
        }
        *woken = false;
    }
}

fn a_reader_that_is_woken() {
    let queue = Arc::new(OutputQueue::default());
    let engine = engine(&queue);
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut read = Read::default();
    loop {
        match queue.poll(Some(&waker)) {
            Poll::Ready(Some(events)) => read.take(events),
            Poll::Ready(None) => break,
            // Who is never woken sleeps for ever, which the scheduler of the test finds.
            Poll::Pending => sleeper.sleep(),
        }
    }
    read.is_all(&queue);
    engine.join().unwrap();
}

/// One batch and the end, whenever it begins to wait.
fn a_reader_of_the_whole() {
    let queue = Arc::new(OutputQueue::default());
    queue.wait_for_the_end();
    let engine = engine(&queue);
    let mut read = Read::default();
    while let Some(events) = queue.wait() {
        read.take(events);
    }
    read.is_all(&queue);
    assert_eq!(read.batches, 1);
    engine.join().unwrap();
}

/// Takes what is there, and then waits for the end alone.
fn a_reader_that_pauses() {
    let queue = Arc::new(OutputQueue::default());
    let engine = engine(&queue);
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut read = Read::default();
    if let Poll::Ready(Some(events)) = queue.poll(Some(&waker)) {
        read.take(events);
    }
    while queue.poll_end(&waker).is_pending() {
        sleeper.sleep();
    }
    while let Poll::Ready(Some(events)) = queue.poll(Some(&waker)) {
        read.take(events);
    }
    read.is_all(&queue);
    engine.join().unwrap();
}

fn a_reader_that_leaves() {
    let queue = Arc::new(OutputQueue::default());
    let engine = engine(&queue);
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(Arc::clone(&sleeper));
    let _ = queue.poll(Some(&waker));
    drop(queue);
    engine.join().unwrap();
}

fn two_ends() {
    let queue = Arc::new(OutputQueue::default());
    let cancelled = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || queue.close(7))
    };
    let sender = Sender(Arc::clone(&queue));
    sender.0.push(Event::Text("ab".to_owned()));
    sender.0.deliver();
    drop(sender);
    while queue.wait().is_some() {}
    // Either end may be the first, and there is one.
    assert!(matches!(queue.take_end(), Some(7) | None));
    cancelled.join().unwrap();
    assert_eq!(queue.take_end(), None);
    assert!(queue.wait().is_none() && matches!(queue.poll(None), Poll::Ready(None)));
}

fn an_engine_that_has_gone() {
    let queue = Arc::new(OutputQueue::default());
    let sender: Sender<u32> = Sender(Arc::clone(&queue));
    let engine = thread::spawn(move || {
        sender.0.push(Event::Text("ab".to_owned()));
        drop(sender);
    });
    let mut read = Vec::new();
    while let Some(events) = queue.wait() {
        read.extend(events);
    }
    assert_eq!((read, queue.take_end()), (vec![Event::Text("ab".to_owned())], None));
    engine.join().unwrap();
}
