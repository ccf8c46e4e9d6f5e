//! A request on its way, as the Python half waits for it.

use std::{
    sync::{Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use demask::{Generation, Mail, Update as News};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    answer,
    bell::Bell,
    error::{exception, raise},
    update::Update,
};

/// How long the interpreter waits before it looks whether somebody pressed Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(100);

/// A request on its way. Dropped, it is given up before the next forward.
#[pyclass(frozen, module = "demask._native")]
pub struct Ticket {
    inside: Mutex<Inside>,
}

struct Inside {
    /// None once the request is given up.
    ticket: Option<demask::Ticket<Generation>>,
    /// What has happened, where only the end is waited for.
    news: Option<News>,
}

/// What a ticket yields.
#[derive(IntoPyObject)]
pub enum Yield<'py> {
    /// Something has happened.
    Update(Bound<'py, Update>),
    /// The answer, by the names of its fields.
    Answer(Bound<'py, PyDict>),
}

impl Ticket {
    /// Wraps a request of an engine.
    pub fn new(ticket: demask::Ticket<Generation>) -> Self {
        Self { inside: Mutex::new(Inside { ticket: Some(ticket), news: None }) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of looking for mail: none behind the end.
type Found = Option<Mail<Generation>>;

fn yielded<'py>(py: Python<'py>, found: Found, news: Option<News>) -> PyResult<Yield<'py>> {
    match found {
        Some(Mail::Update(update)) => Ok(Yield::Update(Bound::new(py, Update::new(update))?)),
        Some(Mail::Over(Ok(generation))) => answer::fields(py, &generation, news.as_ref()).map(Yield::Answer),
        Some(Mail::Over(Err(error))) => Err(raise(py, &error)),
        None => Err(given_up(py)),
    }
}

fn given_up(py: Python<'_>) -> PyErr {
    exception(py, "Cancelled", "the request was given up, or its end was read already: ask again")
}

#[pymethods]
impl Ticket {
    /// Asks for nothing before the end.
    fn wait_for_the_end(&self) {
        if let Some(ticket) = &mut self.lock().ticket {
            ticket.wait_for_the_end();
        }
    }

    /// Waits for the next thing that happens, without the interpreter.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Yield<'py>> {
        loop {
            let found = py.detach(|| self.lock().ticket.as_mut().map(|ticket| ticket.next_within(PATIENCE)));
            match found {
                None => return Err(given_up(py)),
                Some(Poll::Ready(found)) => return yielded(py, found, None),
                Some(Poll::Pending) => py.check_signals()?,
            }
        }
    }

    /// Waits for the answer, without the interpreter.
    fn answer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.wait_for_the_end();
        let mut news = None;
        loop {
            let found = py.detach(|| self.lock().ticket.as_mut().map(|ticket| ticket.next_within(PATIENCE)));
            match found {
                None => return Err(given_up(py)),
                Some(Poll::Pending) => py.check_signals()?,
                Some(Poll::Ready(Some(Mail::Update(update)))) => news = Some(update),
                Some(Poll::Ready(found)) => {
                    let Yield::Answer(answer) = yielded(py, found, news)? else { return Err(given_up(py)) };
                    return Ok(answer);
                }
            }
        }
    }

    /// Returns what has happened, or `None` and lets the bell ring with this number once there is something.
    fn poll<'py>(&self, py: Python<'py>, bell: &Bell, number: u64) -> PyResult<Option<Yield<'py>>> {
        let waker = Waker::from(bell.ringer(number));
        let found = self.lock().ticket.as_mut().map(|ticket| ticket.poll_next(&mut Context::from_waker(&waker)));
        match found {
            None => Err(given_up(py)),
            Some(Poll::Pending) => Ok(None),
            Some(Poll::Ready(found)) => yielded(py, found, None).map(Some),
        }
    }

    /// Returns the answer, or `None` and lets the bell ring with this number once it is there.
    fn poll_answer<'py>(&self, py: Python<'py>, bell: &Bell, number: u64) -> PyResult<Option<Bound<'py, PyDict>>> {
        let waker = Waker::from(bell.ringer(number));
        let mut inside = self.lock();
        loop {
            let Some(ticket) = inside.ticket.as_mut() else { return Err(given_up(py)) };
            ticket.wait_for_the_end();
            match ticket.poll_next(&mut Context::from_waker(&waker)) {
                Poll::Pending => return Ok(None),
                Poll::Ready(Some(Mail::Update(update))) => inside.news = Some(update),
                Poll::Ready(found) => {
                    let news = inside.news.take();
                    let Yield::Answer(answer) = yielded(py, found, news)? else { return Err(given_up(py)) };
                    return Ok(Some(answer));
                }
            }
        }
    }

    /// Gives the request up before the next forward. Nothing happens if it is over.
    fn cancel(&self) {
        self.lock().ticket = None;
    }
}
