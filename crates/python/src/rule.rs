//! Transfer rules that are written in Python: called on the engine's thread, once a forward and lane.

use std::{
    cell::RefCell,
    sync::{Arc, Mutex, PoisonError},
};

use demask::{
    layers::decode::transfer::OwnRule,
    methods::{
        step::HeadAsk,
        transfer::{Candidate, LaneView, State, Transfer},
    },
};
use pyo3::{prelude::*, types::PyBytes};

use crate::error::exception;

thread_local! {
    /// Records whether a rule is asked on this thread, which must not wait for the engine then.
    static RUNNING: RefCell<bool> = const { RefCell::new(false) };
}

/// Returns whether a rule is asked on this thread.
pub fn is_running() -> bool {
    RUNNING.with_borrow(|asked| *asked)
}

/// Exception that a rule raised, for the caller that waits for its request.
#[derive(Clone, Default)]
pub struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    fn put(&self, error: PyErr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// Returns the exception for a request that its rule has ended, with the rule's own exception as its cause; none if
    /// the rule raised nothing.
    pub fn take(&self, py: Python<'_>, message: &str) -> Option<PyErr> {
        let cause = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let error = exception(py, "HookError", message);
        error.set_cause(py, Some(cause));
        Some(error)
    }
}

/// A rule as the Python half hands it over: its name, its wishes for each prediction, and a function of candidates,
/// quota, rate, canvas, best tokens and logits that returns which of them are taken.
#[derive(FromPyObject)]
pub struct Handed(String, Wishes, Py<PyAny>);

/// Parts of each prediction that a rule wants to see: its entropy, a number of its most probable tokens, its logits.
#[derive(Debug, Clone, Copy, FromPyObject)]
struct Wishes(bool, usize, bool);

impl Handed {
    /// Returns the rule of one request, and the place of its exception.
    pub fn rule(self) -> (OwnRule, Raised) {
        let Self(name, wishes, choose) = self;
        let (raised, choose) = (Raised::default(), Arc::new(choose));
        let left = raised.clone();
        let told = name.clone();
        let make = move || -> Box<dyn Transfer> {
            let (name, choose, raised) = (told.clone(), Arc::clone(&choose), left.clone());
            let (seen, fault) = (RefCell::default(), RefCell::default());
            Box::new(PyTransfer { name, wishes, choose, raised, seen, fault })
        };
        (OwnRule::new(&name, make), raised)
    }
}

/// A rule of one session.
struct PyTransfer {
    name: String,
    wishes: Wishes,
    choose: Arc<Py<PyAny>>,
    raised: Raised,
    seen: RefCell<Seen>,
    fault: RefCell<Option<String>>,
}

/// Data that a rule sees besides its candidates: numbers with the low byte first.
#[derive(Default)]
struct Seen {
    /// The canvas's tokens, u32.
    canvas: Vec<u8>,
    /// The most probable tokens of each candidate, best first: the token as u32, its probability as f32.
    top: Vec<u8>,
    /// The logits of each candidate, f32.
    logits: Vec<u8>,
}

impl Seen {
    /// Takes over the data of its candidates that a rule wants to see.
    fn of(&mut self, Wishes(_, most, logits): Wishes, lane: &LaneView<'_>, candidates: &[Candidate]) {
        let Self { canvas, top, logits: raw } = self;
        canvas.clear();
        canvas.extend(lane.canvas.tokens().iter().flat_map(|token| token.to_le_bytes()));
        top.clear();
        raw.clear();
        let predictions = lane.predictions;
        let rows = predictions.tokens.len().max(1);
        // Whoever watches may have asked for longer lists.
        let (width, vocabulary) = (predictions.top.len() / rows, predictions.logits.len() / rows);
        for index in candidates.iter().filter_map(|candidate| predictions.index(lane.lane, candidate.position)) {
            let best = predictions.top[index * width..][..width].iter().take(most);
            top.extend(best.flat_map(|(token, share)| [token.to_le_bytes(), share.to_le_bytes()]).flatten());
            if logits {
                let row = &predictions.logits[index * vocabulary..][..vocabulary];
                raw.extend(row.iter().flat_map(|logit| logit.to_le_bytes()));
            }
        }
    }
}

impl std::fmt::Debug for PyTransfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PyTransfer").field(&self.name).finish()
    }
}

impl PyTransfer {
    fn ask(&self, py: Python<'_>, state: &State, candidates: &[Candidate]) -> PyResult<Vec<usize>> {
        let columns = PyBytes::new(py, &columns(candidates));
        let seen = self.seen.borrow();
        let [canvas, top, logits] = [&seen.canvas, &seen.top, &seen.logits].map(|bytes| PyBytes::new(py, bytes));
        RUNNING.set(true);
        let found = self.choose.call1(py, (columns, state.tick.quota, state.tick.rate, canvas, top, logits));
        RUNNING.set(false);
        found?.extract(py)
    }
}

impl Transfer for PyTransfer {
    fn ask(&self, ask: &mut HeadAsk) {
        let Wishes(entropy, top, logits) = self.wishes;
        ask.wanted.entropy |= entropy;
        ask.wanted.top = ask.wanted.top.max(top);
        ask.wanted.logits |= logits;
    }

    fn look(&self, lane: &LaneView<'_>, candidates: &[Candidate]) {
        self.seen.borrow_mut().of(self.wishes, lane, candidates);
    }

    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        let found = Python::attach(|py| self.ask(py, state, candidates));
        match found {
            Ok(chosen) => lead(candidates, &chosen),
            Err(error) => {
                *self.fault.borrow_mut() = Some(format!("the transfer rule {} broke off: {error}", self.name));
                self.raised.put(error);
                0
            }
        }
    }

    fn fault(&self) -> Option<String> {
        self.fault.borrow().clone()
    }
}

/// Puts those that are chosen in front, in their order, and returns how many they are. Indices that are out of range or
/// repeated, which the Python half has refused, are passed over.
fn lead(candidates: &mut [Candidate], chosen: &[usize]) -> usize {
    let mut left: Vec<Option<Candidate>> = candidates.iter().copied().map(Some).collect();
    let taken: Vec<Candidate> = chosen.iter().filter_map(|&index| left.get_mut(index)?.take()).collect();
    let count = taken.len();
    for (place, candidate) in candidates.iter_mut().zip(taken.into_iter().chain(left.into_iter().flatten())) {
        *place = candidate;
    }
    count
}

/// Candidates as the Python half reads them, 24 bytes each: position and token as u32, confidence and entropy as f32, score
/// as f64, all with the low byte first.
fn columns(candidates: &[Candidate]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(candidates.len() * 24);
    for candidate in candidates {
        bytes.extend(candidate.position.to_le_bytes());
        bytes.extend(candidate.token.to_le_bytes());
        bytes.extend(candidate.confidence.to_le_bytes());
        bytes.extend(candidate.entropy.to_le_bytes());
        bytes.extend(candidate.score.to_le_bytes());
    }
    bytes
}
