//! An endpoint: all that the server knows of one is in its file of `api`.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::Method;

use crate::{Refusal, entry::Entry, fields::table::Table, inner::Inner, served::Served};

/// An endpoint.
pub struct Endpoint {
    /// Name in logs.
    pub name: &'static str,
    /// Method that it takes. Where that is GET, it takes HEAD, too.
    pub method: Method,
    /// Its paths, each with its name in `/openapi.json`.
    pub paths: &'static [(&'static str, &'static str)],
    /// Folder whose paths are all its own, `/` at its end; empty if it has none.
    pub folder: &'static str,
    /// Callers that it is there for.
    pub access: Access,
    /// Work for a request.
    pub work: Work,
    /// Body of its requests, if they have one.
    pub body: Option<Body>,
    /// Answers a request.
    pub serve: fn(&Arc<Inner>, Entry, &Bytes) -> Result<Served, Refusal>,
}

/// Callers that an endpoint is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Holders of a key, where the server has keys.
    Keys,
    /// Everybody: it says nothing of anybody's requests.
    All,
    /// Everybody, whatever host the request names: balancers, managers and scrapers know an address of this machine and no name.
    Probes,
    /// Everybody, where the server has a page.
    Page,
}

/// Work for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// No work.
    None,
    /// Tokens are made of a text, or the other way round. The request needs a place.
    Tokens,
    /// The model computes. The request needs a place.
    Model,
    /// Nothing is done: the request is refused with this message, whatever its body is.
    Refused(&'static str),
}

/// Body of requests.
#[derive(Debug)]
pub struct Body {
    /// Its fields.
    pub table: Table,
    /// Fields that must be there.
    pub required: &'static [&'static str],
    /// Field that is the prompt: the library does not know where one came from.
    pub prompt: &'static str,
    /// Field that is too long where prompt and answer are.
    pub length: &'static str,
}

impl Body {
    /// Returns a body whose prompt is this field.
    pub const fn new(table: Table, required: &'static [&'static str], prompt: &'static str) -> Self {
        Self { table, required, prompt, length: prompt }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

impl Endpoint {
    /// Endpoint of GET that answers at once, for holders of a key.
    pub const GET: Self = Self {
        name: "",
        method: Method::GET,
        paths: &[],
        folder: "",
        access: Access::Keys,
        work: Work::None,
        body: None,
        serve: |_, _, _| Err(Refusal::missing("this endpoint answers nothing")),
    };
    /// Endpoint of POST for which the model computes.
    pub const POST: Self = Self { method: Method::POST, work: Work::Model, ..Self::GET };

    /// Returns whether a path is one of its own.
    pub fn has(&self, path: &str) -> bool {
        self.paths.iter().any(|(own, _)| *own == path)
    }

    /// Returns whether it works for a request, and so needs a place.
    pub fn works(&self) -> bool {
        matches!(self.work, Work::Tokens | Work::Model)
    }

    /// Returns whether requests may have a body.
    pub fn takes_body(&self) -> bool {
        self.work != Work::None
    }

    /// Returns whether everybody is served, with or without a key.
    pub fn is_open(&self) -> bool {
        self.access != Access::Keys
    }
}
