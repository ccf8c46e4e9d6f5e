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

#[cfg(test)]
pub use openapi::paths_of_all;

use crate::{
    Refusal,
    endpoint::Endpoint,
    entry::Entry,
    inner::Inner,
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
    &openapi::ENDPOINT,
    &page::ENDPOINT,
];

/// Serves a request.
///
/// # Errors
/// If it is wrong, or cannot be served.
pub(crate) fn serve(service: &Arc<Inner>, entry: Entry, body: &Bytes) -> Result<Served, Refusal> {
    let endpoint = entry.endpoint;
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
