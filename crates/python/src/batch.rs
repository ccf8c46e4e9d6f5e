//! Batches of prompts in one call: a number of them at the same time, the next one as soon as any is over.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use demask::{
    Generation, Handle, Request,
    layers::engine::{Group, Over},
};
use pyo3::prelude::*;

use crate::{
    answer,
    request_handle::{self, PATIENCE},
    rule::Raised,
};

/// A prompt that is ready to be submitted.
#[pyclass(frozen, module = "demask._native")]
pub struct Prepared {
    inside: Mutex<Option<Ready>>,
}

/// Submitted request, and the place of its transfer rule's exception.
pub type Ready = (Request, Option<Raised>);

impl Prepared {
    /// Wraps a prepared request.
    pub fn new(ready: Ready) -> Self {
        Self { inside: Mutex::new(Some(ready)) }
    }

    /// Takes it, once.
    pub fn take(&self) -> Option<Ready> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Requests of one call. Dropped, those that run are given up before the next forward.
pub struct Batch<'a> {
    handle: &'a Handle,
    waiting: VecDeque<(usize, Ready)>,
    running: Group<(usize, Option<Raised>), Generation>,
}

impl<'a> Batch<'a> {
    /// Starts the first of these requests, which keep their numbers.
    pub fn new(handle: &'a Handle, waiting: VecDeque<(usize, Ready)>, width: usize) -> Self {
        let mut batch = Self { handle, waiting, running: Group::default() };
        (0..width.max(1)).for_each(|_| batch.start());
        batch
    }

    /// Starts the next one, if there is one.
    fn start(&mut self) {
        let Some((number, (request, raised))) = self.waiting.pop_front() else { return };
        self.running.add((number, raised), self.handle.submit(request));
    }

    /// Waits for a while, and returns those that are over by then.
    fn over(&mut self) -> Vec<Over<(usize, Option<Raised>), Generation>> {
        let over = self.running.over_within(PATIENCE);
        for _ in &over {
            self.start();
        }
        over
    }

    /// Runs all of them, and puts the fields of each answer, or its exception, into its place. Without `keep`, the first
    /// exception is raised. `progress` is called with the number of those that are over.
    ///
    /// # Errors
    /// If one fails that is not to be kept, somebody presses Ctrl-C, or `progress` raises.
    pub fn run<'py>(
        mut self,
        py: Python<'py>,
        places: &mut [Option<Bound<'py, PyAny>>],
        keep: bool,
        progress: &mut dyn FnMut(usize) -> PyResult<()>,
    ) -> PyResult<()> {
        let mut done = places.iter().flatten().count();
        while !self.running.is_empty() {
            let over = py.detach(|| self.over());
            py.check_signals()?;
            for Over { key: (number, raised), result, events } in over {
                let place = match result {
                    Ok(generation) => answer::fields(py, &generation, &events)?.into_any(),
                    Err(error) => {
                        let error = request_handle::failed(py, &error.into(), raised.as_ref());
                        if !keep {
                            return Err(error);
                        }
                        error.into_value(py).into_bound(py).into_any()
                    }
                };
                places[number] = Some(place);
                done += 1;
                progress(done)?;
            }
        }
        Ok(())
    }
}
