//! The endpoints: each reads a body, and returns a response or answers on their way.

mod chat;
mod common;
mod completions;
mod infill;
mod models;
mod openapi;
mod score;
mod status;
mod tokens;

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    Refusal,
    entry::Entry,
    inner::Inner,
    page,
    refusal::{LENGTH, PROMPT},
    route::Endpoint,
    served::Served,
};

/// Serves a request.
///
/// # Errors
/// If it is wrong, or cannot be served.
pub(crate) fn serve(service: &Arc<Inner>, entry: Entry, body: &Bytes) -> Result<Served, Refusal> {
    let endpoint = entry.endpoint;
    lead(service, entry, body).map_err(|refusal| named(refusal, endpoint))
}

/// Names what is wrong as the endpoint calls it: the library does not know where a prompt came from.
fn named(refusal: Refusal, endpoint: Endpoint) -> Refusal {
    let name = match (refusal.param.as_deref(), endpoint) {
        (Some(PROMPT), Endpoint::Chat | Endpoint::Tokenize) => "messages",
        (Some(PROMPT), Endpoint::Infill) => "segments",
        (Some(PROMPT), Endpoint::PlainInfill) => "input_prefix",
        (Some(PROMPT), Endpoint::Score) => "context",
        (Some(PROMPT), _) => "prompt",
        (Some(LENGTH), Endpoint::Score) => "continuation",
        (Some(LENGTH), _) => return named(Refusal { param: Some(PROMPT.to_owned()), ..refusal }, endpoint),
        _ => return refusal,
    };
    Refusal { param: Some(name.to_owned()), ..refusal }
}

fn lead(service: &Arc<Inner>, entry: Entry, body: &Bytes) -> Result<Served, Refusal> {
    let whole = |response| Ok(Served::Whole(response));
    match entry.endpoint {
        Endpoint::Chat => chat::serve(service, entry, body),
        Endpoint::Completions => completions::serve(service, entry, body),
        Endpoint::Infill | Endpoint::PlainInfill | Endpoint::Fim => infill::serve(service, entry, body),
        Endpoint::Score => score::serve(service, entry, body),
        // Refused by its head.
        Endpoint::Responses => Err(Refusal::missing("/v1/responses is not served")),
        Endpoint::Models => whole(models::list(service)),
        Endpoint::Model => models::one(service, &entry.path).map(Served::Whole),
        Endpoint::Tokenize | Endpoint::Detokenize => tokens::serve(service, entry, body).map(Served::Whole),
        Endpoint::TokenizerInfo => tokens::info(service).map(Served::Whole),
        Endpoint::Health => status::health(service).map(Served::Whole),
        Endpoint::Live => whole(status::live()),
        Endpoint::Version => whole(status::version()),
        Endpoint::Info => whole(status::info(service)),
        Endpoint::Metrics => whole(status::metrics(service)),
        Endpoint::OpenApi => whole(openapi::document(service)),
        Endpoint::Page => page::file(&entry.path.whole().unwrap_or_default()).map(Served::Whole),
    }
}
