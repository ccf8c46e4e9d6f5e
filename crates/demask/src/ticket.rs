//! Requests of an engine, as those who submitted them wait for them.

use std::{
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use crate::{Error, Generation, Handle, Likelihood, Mail, Outcome, TraceLine, mailbox::Mailbox, scheduler::WorkError};

/// A request of an engine: an iterator over what happens to it. Dropped, it cancels the request before the next forward.
pub struct Ticket<T> {
    number: u64,
    mailbox: Arc<Mailbox>,
    handle: Handle,
    of: PhantomData<fn() -> T>,
}

/// Outcomes of a ticket's request.
pub trait Outcomes: Sized {
    /// Takes it out of an outcome; none if it is another kind.
    fn of(outcome: Outcome) -> Option<Self>;
}

impl Outcomes for Generation {
    fn of(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Answer(generation) => Some(*generation),
            _ => None,
        }
    }
}

impl Outcomes for Likelihood {
    fn of(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Likelihoods(mut all) => all.pop(),
            _ => None,
        }
    }
}

impl Outcomes for Vec<Likelihood> {
    fn of(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Likelihoods(all) => Some(all),
            _ => None,
        }
    }
}

impl Outcomes for Outcome {
    fn of(outcome: Outcome) -> Option<Self> {
        Some(outcome)
    }
}

impl<T: Outcomes> Ticket<T> {
    pub(crate) fn new(number: u64, mailbox: Arc<Mailbox>, handle: Handle) -> Self {
        Self { number, mailbox, handle, of: PhantomData }
    }

    /// Takes the next mail if there is one; `Ready(None)` behind the end.
    pub fn poll(&mut self) -> Poll<Option<Mail<T>>> {
        self.mailbox.poll(None).map(|mail| mail.map(|mail| self.opened(mail)))
    }

    /// Takes the next mail, or wakes the task once there is one; `Ready(None)` behind the end.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Mail<T>>> {
        self.mailbox.poll(Some(context.waker())).map(|mail| mail.map(|mail| self.opened(mail)))
    }

    /// Returns a mail as this ticket's kind; whoever was dropped by an engine that failed learns why.
    fn opened(&self, mail: Mail<Outcome>) -> Mail<T> {
        match typed(mail) {
            Mail::Over(Err(Error::ShutDown)) => Mail::Over(Err(self.handle.lost())),
            mail => mail,
        }
    }

    /// Wakes the task once the end is there, and for nothing before it: updates are merged until
    /// [`poll_next`](Self::poll_next) takes them. For readers that want the whole answer, or that pass pieces on at their own
    /// pace: nobody is woken by each forward.
    pub fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.mailbox.poll_over(context.waker())
    }

    /// Waits for the next mail for as long as this; `Ready(None)` behind the end, `Pending` if none has come.
    pub fn next_within(&mut self, limit: Duration) -> Poll<Option<Mail<T>>> {
        self.mailbox.wait_until(Instant::now() + limit).map(|mail| mail.map(|mail| self.opened(mail)))
    }

    /// Takes the lines of the trace that were written since it was last asked; none of a request that is not traced.
    #[doc(hidden)]
    pub fn take_trace(&self) -> Vec<TraceLine> {
        self.mailbox.take_trace()
    }

    /// Asks for no mail before the end: then one update holds all that has happened, and whoever waits is not woken by every
    /// forward.
    pub fn wait_for_the_end(&mut self) {
        self.mailbox.wait_for_the_end();
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// If the request failed, or the engine ended before it.
    pub fn wait(mut self) -> Result<T, Error> {
        self.wait_for_the_end();
        let over = self.find_map(|mail| match mail {
            Mail::Over(over) => Some(over),
            Mail::Update(_) => None,
        });
        over.unwrap_or(Err(Error::ShutDown))
    }
}

impl<T: Outcomes> Iterator for Ticket<T> {
    type Item = Mail<T>;

    /// Waits for the next mail; none behind the end.
    fn next(&mut self) -> Option<Mail<T>> {
        self.mailbox.wait().map(|mail| self.opened(mail))
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        // Of a request that is over, and of an engine that has ended, nothing is left to cancel.
        self.handle.cancel(self.number);
    }
}

pub(crate) fn typed<T: Outcomes>(mail: Mail<Outcome>) -> Mail<T> {
    match mail {
        Mail::Update(update) => Mail::Update(update),
        Mail::Over(over) => Mail::Over(over.and_then(|outcome| {
            T::of(outcome).ok_or(Error::Work(WorkError::Broken("a ticket waits for another kind of outcome")))
        })),
    }
}
