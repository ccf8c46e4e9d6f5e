//! State that an engine's thread and the readers of tickets share, in every order that their steps may have.
//!
//! The mailbox is compiled here once more, over locks whose holders are chosen by a scheduler of the test: it tries all orders
//! one after the other, and finds a reader that nobody wakes, an end that is lost, or text out of order. Without a harness,
//! because the mailbox's own tests are not for these locks.

mod sync {
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
    pub use std::sync::{Arc, PoisonError};
}
mod logprob {
    use demask::internals::decode::Logprob;

    pub fn finite(known: Logprob<'_>) -> Option<f32> {
        Some(known.log_probability).filter(|known| known.is_finite())
    }
}
/// Stand-in for the trace, which these requests do not write.
mod trace {
    use demask::{TraceLine, internals::RunEvent};

    pub struct TokenTexts;
    pub struct Tracer;

    impl Tracer {
        #[allow(clippy::unused_self, reason = "called as the real one is")]
        pub fn line(&self, _: &RunEvent<'_>, _: &TokenTexts) -> Option<TraceLine> {
            None
        }
    }
}
#[path = "../../src/mailbox.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the tests of the mailbox are left out")]
mod mailbox;

use std::{
    sync::Arc,
    task::{Poll, Wake, Waker},
};

use demask::{
    Error, TraceLine,
    internals::{Outcome, RunEvent},
};
use loom::{
    model::Builder,
    sync::{Condvar, Mutex},
    thread,
};

use mailbox::{Mail, Mailbox, Post};

/// Largest number of times that a thread is interrupted where it need not be: orders beyond that are many, and find
/// little.
const INTERRUPTIONS: usize = 3;

fn main() {
    let readers = [a_reader_that_waits as fn(), a_reader_that_is_woken, a_reader_of_the_whole, a_reader_that_pauses];
    for model in readers.into_iter().chain([a_reader_that_leaves as fn(), two_ends, nobody_ends_it]) {
        let mut orders = Builder::new();
        orders.preemption_bound = Some(INTERRUPTIONS);
        orders.check(model);
    }
}

/// Does what an engine's thread does for a request: two forwards, then the end.
fn engine(mailbox: &Arc<Mailbox>) -> thread::JoinHandle<()> {
    let post = Post(Arc::clone(mailbox));
    thread::spawn(move || {
        for texts in [["a", "b"], ["c", "d"]] {
            for text in texts {
                post.0.tell(&RunEvent::Text(text));
            }
            post.0.deliver();
        }
        post.0.close(Err(Error::Interrupted));
    })
}

/// Mail that a reader has received.
#[derive(Default)]
struct Read {
    text: String,
    over: usize,
}

impl Read {
    fn take(&mut self, mail: Mail<Outcome>) {
        assert_eq!(self.over, 0, "nothing follows the end");
        match mail {
            Mail::Update(update) => {
                assert!(update.text.len().is_multiple_of(2), "all of a forward at once: {}", update.text);
                self.text.push_str(&update.text);
            }
            Mail::Over(_) => self.over += 1,
        }
    }

    fn is_all(&self) {
        assert_eq!((self.text.as_str(), self.over), ("abcd", 1));
    }
}

fn a_reader_that_waits() {
    let mailbox = Arc::new(Mailbox::default());
    let engine = engine(&mailbox);
    let mut read = Read::default();
    while let Some(mail) = mailbox.wait() {
        read.take(mail);
    }
    read.is_all();
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
    let mailbox = Arc::new(Mailbox::default());
    let engine = engine(&mailbox);
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut read = Read::default();
    loop {
        match mailbox.poll(Some(&waker)) {
            Poll::Ready(Some(mail)) => read.take(mail),
            Poll::Ready(None) => break,
            // Who is never woken sleeps for ever, which the scheduler of the test finds.
            Poll::Pending => sleeper.sleep(),
        }
    }
    read.is_all();
    engine.join().unwrap();
}

/// One update and the end, whenever it begins to wait.
fn a_reader_of_the_whole() {
    let mailbox = Arc::new(Mailbox::default());
    mailbox.wait_for_the_end();
    let engine = engine(&mailbox);
    let mut read = Read::default();
    let mut mails = 0;
    while let Some(mail) = mailbox.wait() {
        read.take(mail);
        mails += 1;
    }
    read.is_all();
    assert_eq!(mails, 2);
    engine.join().unwrap();
}

/// Takes what is there, and then waits for the end alone.
fn a_reader_that_pauses() {
    let mailbox = Arc::new(Mailbox::default());
    let engine = engine(&mailbox);
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut read = Read::default();
    if let Poll::Ready(Some(mail)) = mailbox.poll(Some(&waker)) {
        read.take(mail);
    }
    while mailbox.poll_over(&waker).is_pending() {
        sleeper.sleep();
    }
    while let Poll::Ready(Some(mail)) = mailbox.poll(Some(&waker)) {
        read.take(mail);
    }
    read.is_all();
    engine.join().unwrap();
}

fn a_reader_that_leaves() {
    let mailbox = Arc::new(Mailbox::default());
    let engine = engine(&mailbox);
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(Arc::clone(&sleeper));
    let _ = mailbox.poll(Some(&waker));
    drop(mailbox);
    engine.join().unwrap();
}

fn two_ends() {
    let mailbox = Arc::new(Mailbox::default());
    let cancelled = {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || mailbox.close(Err(Error::Interrupted)))
    };
    let post = Post(Arc::clone(&mailbox));
    post.0.tell(&RunEvent::Text("ab"));
    post.0.deliver();
    drop(post);
    let mut ends = 0;
    while let Some(mail) = mailbox.wait() {
        ends += usize::from(matches!(mail, Mail::Over(Err(Error::Interrupted | Error::ShutDown))));
    }
    assert_eq!(ends, 1);
    cancelled.join().unwrap();
    assert!(mailbox.wait().is_none() && matches!(mailbox.poll(None), Poll::Ready(None)));
}

fn nobody_ends_it() {
    let mailbox = Arc::new(Mailbox::default());
    let post = Post(Arc::clone(&mailbox));
    let engine = thread::spawn(move || {
        post.0.tell(&RunEvent::Text("ab"));
        drop(post);
    });
    let mut texts = String::new();
    let mut ended = false;
    while let Some(mail) = mailbox.wait() {
        match mail {
            Mail::Update(update) => texts.push_str(&update.text),
            Mail::Over(over) => ended = matches!(over, Err(Error::ShutDown)),
        }
    }
    assert!(ended && texts == "ab", "{texts}");
    engine.join().unwrap();
}
