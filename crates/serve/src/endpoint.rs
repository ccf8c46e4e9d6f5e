//! Endpoints: all that the server knows of one is in its file of `api`, and the list of them in [`ENDPOINTS`].

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::Method;

use crate::{Refusal, api::ENDPOINTS, entry::Entry, fields::table::Table, inner::Inner, path::Path, served::Served};

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

    fn has(&self, path: &str) -> bool {
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

/// Finds the endpoint of a request; the page's files are there only if the page is.
///
/// # Errors
/// If there is no such path, or it has another method.
pub fn find(method: &Method, path: &Path, page: bool) -> Result<&'static Endpoint, Refusal> {
    let whole = path.whole();
    let own = |endpoint: &&&Endpoint| whole.as_deref().is_some_and(|path| endpoint.has(path));
    let inside = |endpoint: &&&Endpoint| !endpoint.folder.is_empty() && path.behind(endpoint.folder).is_some();
    match ENDPOINTS.iter().find(own).or_else(|| ENDPOINTS.iter().find(inside)) {
        Some(Endpoint { access: Access::Page, .. }) if !page => {
            Err(Refusal::missing("this server has no page: it was started with --no-ui"))
        }
        // A head is a get whose body is left out, which is the connection's to do.
        Some(endpoint) if endpoint.method == method || endpoint.method == Method::GET && method == Method::HEAD => {
            Ok(endpoint)
        }
        Some(Endpoint { method: known, .. }) => {
            let allow = if known == Method::GET { "GET, HEAD" } else { "POST" };
            let method = method.as_str().get(..20).unwrap_or(method.as_str());
            Err(Refusal::method(allow, format!("{} takes {known}, not {method}", path.shown())))
        }
        None => Err(Refusal::missing(format!(
            "there is no {}: expected /v1/chat/completions, /v1/completions, or another path of /openapi.json",
            path.shown()
        ))),
    }
}

/// Returns whether a path is there whatever host a request names.
#[cfg(feature = "http")]
pub fn is_probe(path: &str) -> bool {
    let Some(path) = Path::read(path).ok().and_then(|path| path.whole()) else { return false };
    ENDPOINTS.iter().any(|endpoint| endpoint.access == Access::Probes && endpoint.has(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_endpoints() {
        let find = |method: &Method, path: &str| find(method, &Path::read(path).unwrap(), true).unwrap().name;
        for (path, name) in [
            ("/v1/models", "models"),
            ("/v1/models/org/name", "model"),
            ("/page/page.js", "page"),
            ("/ready", "health"),
        ] {
            assert_eq!(find(&Method::GET, path), name);
        }
        assert_eq!((find(&Method::HEAD, "/health"), find(&Method::POST, "/v1/score")), ("health", "score"));
    }

    #[test]
    fn others_are_refused_in_the_envelope() {
        let status =
            |method: &Method, path: &str| find(method, &Path::read(path).unwrap(), false).unwrap_err().status.as_u16();
        assert_eq!(status(&Method::GET, "/v1/chat/completions"), 405);
        assert_eq!(status(&Method::DELETE, "/v1/models/x"), 405);
        assert_eq!(status(&Method::GET, "/v2"), 404);
        assert_eq!(status(&Method::GET, "/v1/models/"), 404);
        assert_eq!(status(&Method::GET, "/"), 404);
    }
}
