//! A request between its head and its body.

use std::time::Instant;

use demask::Tenant;

use crate::{Refusal, admission::Places};

/// Facts about a request before anything is done for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The request's name, the client's own if it sent one.
    pub id: String,
    /// Name of the endpoint.
    pub endpoint: &'static str,
    /// Name of its key.
    pub key: Option<String>,
    /// The trace that it belongs to, as the client sent it.
    pub trace: Option<String>,
}

/// Facts about a request that may send its body: its caller and its place.
pub struct Entry {
    pub(crate) caller: Caller,
    /// Number of its key, and the key's weight.
    pub(crate) key: usize,
    pub(crate) weight: f64,
    /// The path that it came by, as it was sent.
    pub(crate) path: String,
    /// Form of the body by the request's head, if it is not JSON.
    pub(crate) foreign: Option<String>,
    pub(crate) places: Option<Places>,
    pub(crate) started: Instant,
}

impl Entry {
    /// Waits for the request's body, which is not there yet: see [`body_came`](Self::body_came).
    ///
    /// # Errors
    /// If too many large bodies are waited for.
    pub(crate) fn await_body(&mut self, is_small: bool) -> Result<(), Refusal> {
        self.places.as_mut().map_or(Ok(()), |places| places.await_body(is_small))
    }

    /// Goes on with the body that was waited for.
    ///
    /// # Errors
    /// If no place is left for the request.
    pub(crate) fn body_came(&mut self) -> Result<(), Refusal> {
        self.places.as_mut().map_or(Ok(()), Places::body_came)
    }

    /// Returns the tenant that its work is for: the holder of its key.
    pub(crate) fn tenant(&self) -> Tenant {
        Tenant { id: self.key as u64, weight: self.weight }
    }

    /// Returns the salt of its cache. It contains the key, so that keys share no computed prefixes, whatever salt they
    /// name.
    pub(crate) fn salt(&self, own: Option<String>) -> Option<String> {
        match (&self.caller.key, own) {
            (Some(key), None) => Some(format!("{}:{key}", key.len())),
            (Some(key), Some(own)) => Some(format!("{}:{key}:{own}", key.len())),
            (None, own) => own,
        }
    }

    /// Takes the request's place, to hand it to the work on the request.
    pub(crate) fn places(&mut self) -> Result<Places, Refusal> {
        self.places.take().ok_or_else(|| Refusal::failed("the request has no place (a bug, please report it)"))
    }
}
