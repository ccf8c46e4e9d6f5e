//! A request on its way, as the Python half waits for it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use demask::{
    Error, Event, Generation, TraceLine,
    trace::{TokenTexts, Tracer},
};
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
#[pyclass(frozen, name = "Ticket", module = "demask._native")]
pub struct RequestHandle {
    inside: Mutex<Inside>,
}

struct Inside {
    /// The request; none once it is given up.
    handle: Option<demask::RequestHandle<Generation>>,
    /// Events so far, where only the end is waited for.
    events: Vec<Event>,
    /// The trace, if its way is written down.
    trace: Option<Trace>,
    /// Place of its transfer rule's exception.
    raised: Option<Raised>,
}

/// Trace of a request.
pub struct Trace {
    tracer: Tracer,
    texts: Arc<TokenTexts>,
    lines: Vec<TraceLine>,
}

impl Trace {
    /// Creates one without lines.
    pub fn new(tracer: Tracer, texts: Arc<TokenTexts>) -> Self {
        Self { tracer, texts, lines: Vec::new() }
    }

    fn write(&mut self, events: &[Event]) {
        let Self { tracer, texts, lines } = self;
        lines.extend(events.iter().filter_map(|event| tracer.line(event, texts)));
    }
}

/// Type that a ticket yields.
#[derive(IntoPyObject)]
pub enum Yield<'py> {
    /// Something has happened.
    Update(Bound<'py, Update>),
    /// The answer, by the names of its fields.
    Answer(Bound<'py, PyDict>),
}

impl RequestHandle {
    /// Wraps a request of an engine.
    pub fn new(handle: demask::RequestHandle<Generation>, raised: Option<Raised>, trace: Option<Trace>) -> Self {
        Self { inside: Mutex::new(Inside { handle: Some(handle), events: Vec::new(), trace, raised }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next events without the interpreter, and lets a Ctrl-C end it; none once the request is over.
    fn wait(&self, py: Python<'_>) -> PyResult<Option<Vec<Event>>> {
        loop {
            let found = py.detach(|| self.lock().read(|handle| handle.events_within(PATIENCE)));
            match found {
                None => return Err(given_up(py)),
                Some(Poll::Ready(found)) => return Ok(found),
                Some(Poll::Pending) => py.check_signals()?,
            }
        }
    }

    /// Returns the answer of a request that is over.
    fn end<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (result, events) = {
            let inside = &mut *self.lock();
            let Some(mut handle) = inside.handle.take() else { return Err(given_up(py)) };
            (handle.result(), std::mem::take(&mut inside.events))
        };
        match result {
            Ok(generation) => answer::fields(py, &generation, &events),
            Err(error) => {
                let raised = self.lock().raised.take();
                Err(failed(py, &error.into(), raised.as_ref()))
            }
        }
    }

    /// Turns events into an update, or the end of the events into the answer.
    fn yielded<'py>(&self, py: Python<'py>, found: Option<Vec<Event>>) -> PyResult<Yield<'py>> {
        match found {
            Some(events) => Ok(Yield::Update(Bound::new(py, Update::new(&events))?)),
            None => self.end(py).map(Yield::Answer),
        }
    }
}

impl Inside {
    /// Reads events, and writes them into the trace; none once the request is given up.
    fn read(
        &mut self,
        read: impl FnOnce(&mut demask::RequestHandle<Generation>) -> Poll<Option<Vec<Event>>>,
    ) -> Option<Poll<Option<Vec<Event>>>> {
        let found = read(self.handle.as_mut()?);
        if let (Some(trace), Poll::Ready(Some(events))) = (&mut self.trace, &found) {
            trace.write(events);
        }
        Some(found)
    }
}

/// Returns the exception of a request that failed: its transfer rule's exception, if that is the reason.
pub fn failed(py: Python<'_>, error: &Error, raised: Option<&Raised>) -> PyErr {
    raised.and_then(|raised| raised.take(py, &error.to_string())).unwrap_or_else(|| raise(py, error))
}

fn given_up(py: Python<'_>) -> PyErr {
    exception(py, "Cancelled", "the request was given up, or its end was read already: ask again")
}

#[pymethods]
impl RequestHandle {
    /// Asks for nothing before the end.
    fn wait_for_the_end(&self) {
        if let Some(handle) = &mut self.lock().handle {
            handle.wait_for_the_end();
        }
    }

    /// Waits for the next thing that happens, without the interpreter.
    #[pyo3(signature = () -> "Update | dict[str, Any]")]
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Yield<'py>> {
        let found = self.wait(py)?;
        self.yielded(py, found)
    }

    /// Waits for the answer, without the interpreter.
    #[pyo3(signature = () -> "dict[str, Any]")]
    fn answer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.wait_for_the_end();
        while let Some(events) = self.wait(py)? {
            self.lock().events.extend(events);
        }
        self.end(py)
    }

    /// Returns what has happened, or `None` and lets the bell ring with this number once there is something.
    #[pyo3(signature = (bell, number) -> "Update | dict[str, Any] | None")]
    fn poll<'py>(&self, py: Python<'py>, bell: &Bell, number: u64) -> PyResult<Option<Yield<'py>>> {
        let waker = Waker::from(bell.ringer(number));
        let found = self.lock().read(|handle| handle.poll_events(&mut Context::from_waker(&waker)));
        match found {
            None => Err(given_up(py)),
            Some(Poll::Pending) => Ok(None),
            Some(Poll::Ready(found)) => self.yielded(py, found).map(Some),
        }
    }

    /// Returns the answer, or `None` and lets the bell ring with this number once it is there.
    #[pyo3(signature = (bell, number) -> "dict[str, Any] | None")]
    fn poll_answer<'py>(&self, py: Python<'py>, bell: &Bell, number: u64) -> PyResult<Option<Bound<'py, PyDict>>> {
        let waker = Waker::from(bell.ringer(number));
        loop {
            let mut inside = self.lock();
            let found = inside.read(|handle| {
                handle.wait_for_the_end();
                handle.poll_events(&mut Context::from_waker(&waker))
            });
            match found {
                None => return Err(given_up(py)),
                Some(Poll::Pending) => return Ok(None),
                Some(Poll::Ready(Some(events))) => inside.events.extend(events),
                Some(Poll::Ready(None)) => break,
            }
        }
        self.end(py).map(Some)
    }

    /// The trace so far, one line of JSON each: none of a request that is not traced.
    fn trace(&self) -> PyResult<String> {
        let lines = self.lock().trace.as_mut().map(|trace| std::mem::take(&mut trace.lines)).unwrap_or_default();
        let mut text = Vec::new();
        lines.iter().try_for_each(|line| line.write(&mut text))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Cancels the request before the next forward. Nothing happens if it is over.
    fn cancel(&self) {
        self.lock().handle = None;
    }
}
