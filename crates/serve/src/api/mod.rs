//! The endpoints: each file has all of one, and [`ENDPOINTS`] lists them.

mod apply_template;
pub mod chat;
mod common;
pub mod completions;
mod fim;
pub mod infill;
mod models;
mod openapi;
mod page;
mod plain_infill;
mod responses;
mod score;
mod status;
mod tokens;

use std::sync::Arc;

use bytes::Bytes;
use http::Method;

use crate::{
    Refusal,
    endpoint::{Access, Endpoint},
    entry::Entry,
    inner::Inner,
    path::Path,
    refusal::{LENGTH, PROMPT},
    served::Served,
};

/// Every endpoint, in the order of `/openapi.json`.
pub static ENDPOINTS: &[&Endpoint] = &[
    &chat::ENDPOINT,
    &completions::ENDPOINT,
    &infill::ENDPOINT,
    &plain_infill::ENDPOINT,
    &fim::ENDPOINT,
    &score::ENDPOINT,
    &responses::ENDPOINT,
    &models::LIST,
    &models::ONE,
    &tokens::TOKENIZE,
    &tokens::DETOKENIZE,
    &apply_template::ENDPOINT,
    &tokens::INFO,
    &status::HEALTH,
    &status::LIVE,
    &status::VERSION,
    &status::INFO,
    &status::METRICS,
    &OPENAPI,
    &page::ENDPOINT,
];

/// `GET /openapi.json`: here, because it describes the others.
static OPENAPI: Endpoint = Endpoint {
    name: "openapi",
    paths: &[("/openapi.json", "openapi")],
    access: Access::All,
    serve: |service, _, _| Ok(Served::Whole(openapi::document(ENDPOINTS, &service.config.limits))),
    ..Endpoint::GET
};

/// Serves a request.
///
/// # Errors
/// If it is wrong, or cannot be served.
pub(crate) fn serve(endpoint: &Endpoint, service: &Arc<Inner>, entry: Entry, body: &Bytes) -> Result<Served, Refusal> {
    (endpoint.serve)(service, entry, body).map_err(|refusal| named(refusal, endpoint))
}

/// Names what is wrong as the endpoint calls it: the library does not know where a prompt came from.
fn named(refusal: Refusal, endpoint: &Endpoint) -> Refusal {
    let (prompt, length) = endpoint.body.as_ref().map_or(("prompt", "prompt"), |body| (body.prompt, body.length));
    let name = match refusal.param.as_deref() {
        Some(PROMPT) => prompt,
        Some(LENGTH) => length,
        _ => return refusal,
    };
    Refusal { param: Some(name.to_owned()), ..refusal }
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
