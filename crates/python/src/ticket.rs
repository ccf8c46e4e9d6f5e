//! A request on its way, as the Python half waits for it.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use demask::{Error, Generation, Mail, Update as News};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    answer,
    bell::Bell,
    error::{exception, raise},
    rule::Raised,
    update::Update,
};

/// Pause of the interpreter between two looks at whether Ctrl-C was pressed.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// A request on its way. Dropped, it is given up before the next forward.
#[pyclass(frozen, module = "demask._native")]
pub struct Ticket {
    inside: Mutex<Inside>,
}

struct Inside {
    /// Ticket; none once the request is given up.
    ticket: Option<demask::Ticket<Generation>>,
    /// News so far, where only the end is waited for.
    news: Vec<News>,
    /// Place of its transfer rule's exception.
    raised: Option<Raised>,
}

/// Type that a ticket yields.
#[derive(IntoPyObject)]
pub enum Yield<'py> {
    /// Something has happened.
    Update(Bound<'py, Update>),
    /// The answer, by the names of its fields.
    Answer(Bound<'py, PyDict>),
}

impl Ticket {
    /// Wraps a request of an engine.
    pub fn new(ticket: demask::Ticket<Generation>, raised: Option<Raised>) -> Self {
        Self { inside: Mutex::new(Inside { ticket: Some(ticket), news: Vec::new(), raised }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next mail without the interpreter, and lets whoever presses Ctrl-C end it.
    fn wait(&self, py: Python<'_>) -> PyResult<Found> {
        loop {
            let found = py.detach(|| self.lock().ticket.as_mut().map(|ticket| ticket.next_within(PATIENCE)));
            match found {
                None => return Err(given_up(py)),
                Some(Poll::Ready(found)) => return Ok(found),
                Some(Poll::Pending) => py.check_signals()?,
            }
        }
    }

    /// Turns mail into what is yielded.
    fn yielded<'py>(&self, py: Python<'py>, found: Found, news: &[News]) -> PyResult<Yield<'py>> {
        match found {
            Some(Mail::Update(update)) => Ok(Yield::Update(Bound::new(py, Update::new(update))?)),
            Some(Mail::Over(Ok(generation))) => answer::fields(py, &generation, news).map(Yield::Answer),
            Some(Mail::Over(Err(error))) => {
                let raised = self.lock().raised.take();
                Err(failed(py, &error, raised.as_ref()))
            }
            None => Err(given_up(py)),
        }
    }
}

/// Result of looking for mail: none behind the end.
type Found = Option<Mail<Generation>>;

/// Returns the exception of a request that failed: that of its transfer rule, if it is why.
pub fn failed(py: Python<'_>, error: &Error, raised: Option<&Raised>) -> PyErr {
    raised.and_then(|raised| raised.take(py, &error.to_string())).unwrap_or_else(|| raise(py, error))
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
    #[pyo3(signature = () -> "Update | dict[str, Any]")]
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Yield<'py>> {
        let found = self.wait(py)?;
        self.yielded(py, found, &[])
    }

    /// Waits for the answer, without the interpreter.
    #[pyo3(signature = () -> "dict[str, Any]")]
    fn answer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.wait_for_the_end();
        // One, and perhaps another that came before it was asked for the end alone.
        let mut news = Vec::new();
        loop {
            match self.wait(py)? {
                Some(Mail::Update(update)) => news.push(update),
                found => {
                    let Yield::Answer(answer) = self.yielded(py, found, &news)? else { return Err(given_up(py)) };
                    return Ok(answer);
                }
            }
        }
    }

    /// Returns what has happened, or `None` and lets the bell ring with this number once there is something.
    #[pyo3(signature = (bell, number) -> "Update | dict[str, Any] | None")]
    fn poll<'py>(&self, py: Python<'py>, bell: &Bell, number: u64) -> PyResult<Option<Yield<'py>>> {
        let waker = Waker::from(bell.ringer(number));
        let found = self.lock().ticket.as_mut().map(|ticket| ticket.poll_next(&mut Context::from_waker(&waker)));
        match found {
            None => Err(given_up(py)),
            Some(Poll::Pending) => Ok(None),
            Some(Poll::Ready(found)) => self.yielded(py, found, &[]).map(Some),
        }
    }

    /// Returns the answer, or `None` and lets the bell ring with this number once it is there.
    #[pyo3(signature = (bell, number) -> "dict[str, Any] | None")]
    fn poll_answer<'py>(&self, py: Python<'py>, bell: &Bell, number: u64) -> PyResult<Option<Bound<'py, PyDict>>> {
        let waker = Waker::from(bell.ringer(number));
        let mut inside = self.lock();
        loop {
            let Some(ticket) = inside.ticket.as_mut() else { return Err(given_up(py)) };
            ticket.wait_for_the_end();
            match ticket.poll_next(&mut Context::from_waker(&waker)) {
                Poll::Pending => return Ok(None),
                Poll::Ready(Some(Mail::Update(update))) => inside.news.push(update),
                Poll::Ready(found) => {
                    let news = std::mem::take(&mut inside.news);
                    drop(inside);
                    let Yield::Answer(answer) = self.yielded(py, found, &news)? else { return Err(given_up(py)) };
                    return Ok(Some(answer));
                }
            }
        }
    }

    /// The trace so far, one line of JSON each: none of a request that is not traced.
    fn trace(&self) -> PyResult<String> {
        let lines = self.lock().ticket.as_ref().map(demask::Ticket::take_trace).unwrap_or_default();
        let mut text = Vec::new();
        lines.iter().try_for_each(|line| line.write(&mut text))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Cancels the request before the next forward. Nothing happens if it is over.
    fn cancel(&self) {
        self.lock().ticket = None;
    }
}
