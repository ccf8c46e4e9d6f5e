//! Batches of prompts in one call: a number of them at the same time, the next one as soon as any is over.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

use demask::{Class, Error, Generation, Handle, Mail, Ticket, Update, internals};
use pyo3::prelude::*;

use crate::{
    answer,
    rule::Raised,
    ticket::{self, PATIENCE},
};

/// A prompt that is ready to be submitted.
#[pyclass(frozen, module = "demask._native")]
pub struct Prepared {
    inside: Mutex<Option<Ready>>,
}

/// Submitted request, and the place of its transfer rule's exception.
pub type Ready = (internals::Prepared, Option<Raised>);

impl Prepared {
    /// Wraps what was prepared.
    pub fn new(ready: Ready) -> Self {
        Self { inside: Mutex::new(Some(ready)) }
    }

    /// Takes it, once.
    pub fn take(&self) -> Option<Ready> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Gong that is struck by requests that have news, for one thread that waits for any of them.
#[derive(Default)]
struct Gong {
    struck: Mutex<Vec<usize>>,
    heard: Condvar,
}

/// Strikes a gong with the number of a request.
struct Stroke {
    gong: Arc<Gong>,
    number: usize,
}

impl Wake for Stroke {
    fn wake(self: Arc<Self>) {
        self.gong.lock().push(self.number);
        self.gong.heard.notify_one();
    }
}

impl Gong {
    fn lock(&self) -> MutexGuard<'_, Vec<usize>> {
        self.struck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is struck, for a while.
    fn wait(&self) -> Vec<usize> {
        let struck = self.lock();
        let waited = self.heard.wait_timeout_while(struck, PATIENCE, |struck| struck.is_empty());
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// A request that runs.
struct Running {
    ticket: Ticket<Generation>,
    waker: Waker,
    news: Vec<Update>,
    raised: Option<Raised>,
}

/// A request that is over.
struct Over {
    number: usize,
    end: Result<Generation, Error>,
    news: Vec<Update>,
    raised: Option<Raised>,
}

/// Requests of one call. Dropped, those that run are given up before the next forward.
pub struct Batch<'a> {
    handle: &'a Handle,
    gong: Arc<Gong>,
    waiting: VecDeque<(usize, Ready)>,
    running: HashMap<usize, Running>,
}

impl<'a> Batch<'a> {
    /// Starts the first of these requests, which keep their numbers.
    pub fn new(handle: &'a Handle, waiting: VecDeque<(usize, Ready)>, width: usize) -> Self {
        let mut batch = Self { handle, gong: Arc::default(), waiting, running: HashMap::new() };
        (0..width.max(1)).for_each(|_| batch.start());
        batch
    }

    /// Starts the next one, if there is one.
    fn start(&mut self) {
        let Some((number, (prepared, raised))) = self.waiting.pop_front() else { return };
        let mut ticket = self.handle.submit(prepared, Class::default());
        ticket.wait_for_the_end();
        let waker = Waker::from(Arc::new(Stroke { gong: Arc::clone(&self.gong), number }));
        // Whoever is looked at for the first time asks to be woken.
        waker.wake_by_ref();
        self.running.insert(number, Running { ticket, waker, news: Vec::new(), raised });
    }

    /// Waits for a while, and returns those that are over by then.
    fn over(&mut self) -> Vec<Over> {
        let mut all = Vec::new();
        for number in self.gong.wait() {
            let Some(one) = self.running.get_mut(&number) else { continue };
            let over = loop {
                match one.ticket.poll_next(&mut Context::from_waker(&one.waker)) {
                    Poll::Pending => break None,
                    Poll::Ready(Some(Mail::Update(update))) => one.news.push(update),
                    Poll::Ready(Some(Mail::Over(over))) => break Some(over),
                    Poll::Ready(None) => break Some(Err(Error::ShutDown)),
                }
            };
            let Some(over) = over else { continue };
            if let Some(Running { news, raised, .. }) = self.running.remove(&number) {
                all.push(Over { number, end: over, news, raised });
                self.start();
            }
        }
        all
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
            for Over { number, end, news, raised } in over {
                let place = match end {
                    Ok(generation) => answer::fields(py, &generation, &news)?.into_any(),
                    Err(error) => {
                        let error = ticket::failed(py, &error, raised.as_ref());
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
