//! Transfer rules that are written in Python: called on the engine's thread, once a forward and lane.

use std::{
    cell::RefCell,
    sync::{Arc, Mutex, PoisonError},
};

use demask::{
    layers::decode::transfer::OwnRule,
    methods::{
        step::HeadAsk,
        transfer::{Candidate, State, Transfer},
    },
};
use pyo3::{prelude::*, types::PyBytes};

use crate::error::exception;

thread_local! {
    /// Records whether a rule is asked on this thread, which must not wait for the engine then.
    static ASKED: RefCell<bool> = const { RefCell::new(false) };
}

/// Returns whether a rule is asked on this thread.
pub fn is_asked() -> bool {
    ASKED.with_borrow(|asked| *asked)
}

/// Exception that a rule raised, for the caller that waits for its request.
#[derive(Clone, Default)]
pub struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    fn put(&self, error: PyErr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// Returns the exception for a request that its rule has ended: what the rule raised is its cause.
    pub fn take(&self, py: Python<'_>, message: &str) -> Option<PyErr> {
        let cause = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let error = exception(py, "HookError", message);
        error.set_cause(py, Some(cause));
        Some(error)
    }
}

/// A rule as the Python half hands it over: its name, whether it wants the entropy of each prediction, and a function of
/// candidates, quota and rate that returns which of them are taken.
#[derive(FromPyObject)]
pub struct Handed(String, bool, Py<PyAny>);

impl Handed {
    /// Returns the rule of one request, and where it leaves what it raises.
    pub fn rule(self) -> (OwnRule, Raised) {
        let Self(name, entropy, choose) = self;
        let (raised, choose) = (Raised::default(), Arc::new(choose));
        let left = raised.clone();
        let told = name.clone();
        let make = move || -> Box<dyn Transfer> {
            let (name, choose, raised) = (told.clone(), Arc::clone(&choose), left.clone());
            Box::new(PyTransfer { name, entropy, choose, raised, fault: RefCell::default() })
        };
        (OwnRule::new(&name, make), raised)
    }
}

/// A rule of one session.
struct PyTransfer {
    name: String,
    entropy: bool,
    choose: Arc<Py<PyAny>>,
    raised: Raised,
    fault: RefCell<Option<String>>,
}

impl std::fmt::Debug for PyTransfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PyTransfer").field(&self.name).finish()
    }
}

impl PyTransfer {
    fn ask(&self, py: Python<'_>, state: &State, candidates: &[Candidate]) -> PyResult<Vec<usize>> {
        let columns = PyBytes::new(py, &columns(candidates));
        ASKED.set(true);
        let found = self.choose.call1(py, (columns, state.tick.quota, state.tick.rate));
        ASKED.set(false);
        found?.extract(py)
    }
}

impl Transfer for PyTransfer {
    fn ask(&self, ask: &mut HeadAsk) {
        ask.wanted.entropy |= self.entropy;
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

/// Puts those that are chosen in front, in their order, and returns how many they are. What is out of range or there twice,
/// which the Python half has refused, is passed over.
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
