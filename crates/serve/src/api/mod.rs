//! The endpoints: each reads a body, and returns a response or answers on their way.

mod chat;
mod completions;
mod models;
mod openapi;
mod score;
mod status;
mod tokens;

pub use chat::logprobs as chat_logprobs;
pub use score::{Judging, judgement};

use std::sync::Arc;

use bytes::Bytes;
use demask::Prompt;

use crate::{
    Refusal,
    ask::{self, Ask},
    fields::Fields,
    page,
    refusal::{LENGTH, PROMPT},
    route::Endpoint,
    run::Run,
    service::{Entry, Inner, Served},
    shape::{Kind, Shape},
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
        Endpoint::Infill | Endpoint::PlainInfill | Endpoint::Fim => crate::infill::serve(service, entry, body),
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

/// Compares the model that a request names with the one that is served.
pub(crate) fn check_model(service: &Inner, fields: &mut Fields<'_>) -> Result<(), Refusal> {
    let Some(name) = fields.text("model")? else { return Ok(()) };
    if service.names().any(|known| known == name) {
        return Ok(());
    }
    let known: Vec<_> = service.names().collect();
    let shown: String = name.chars().take(80).collect();
    let message = format!("the model {shown:?} is not served here, expected {}", known.join(" or "));
    Err(Refusal { param: Some("model".to_owned()), ..Refusal::missing(message).coded("model_not_found") })
}

/// Submits prompts, and returns their answers on their way.
pub(crate) fn run(
    service: &Arc<Inner>,
    mut entry: Entry,
    kind: Kind,
    prompts: &[Prompt],
    mut ask: Ask,
    echo: Vec<String>,
) -> Result<Served, Refusal> {
    let infills = prompts.iter().any(|prompt| matches!(prompt, Prompt::Segments(_)));
    if !infills {
        ask.bound(service.handle.info(), &service.config.limits)?;
    }
    let places = entry.places()?;
    let run = Run::start(service, prompts, &ask, places, &entry).map_err(|refusal| ask.names.refusal(refusal))?;
    let mut shape = Shape::new(kind, service, ask.wishes, ask.names);
    shape.echo = echo;
    Ok(Served::Run(Box::new(run), shape))
}

/// Reads what endpoints that generate have in common.
pub(crate) fn read_ask(service: &Inner, entry: &Entry, fields: &mut Fields<'_>) -> Result<Ask, Refusal> {
    check_model(service, fields)?;
    let mut ask = ask::read(fields, &service.config.limits, entry.tenant())?;
    ask.cache_salt = entry.salt(ask.cache_salt);
    Ok(ask)
}
