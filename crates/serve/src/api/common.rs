//! Steps that endpoints share.

use std::sync::Arc;

use bytes::Bytes;
use demask::Prompt;
use serde_json::Value;

use crate::{
    Refusal,
    answers::Answers,
    ask::{self, Ask},
    endpoint::{Answer, Asked},
    entry::Entry,
    fields::Fields,
    form::Form,
    inner::Inner,
    response::{held, json_text},
    run::Run,
    shape::Shape,
};

/// Answers a request for which the model generates.
pub(crate) fn generate(asked: Asked, read: fn(&Arc<Inner>, Entry, &Bytes) -> Result<Answers, Refusal>) -> Answer {
    let http = Arc::clone(&asked.http);
    Box::pin(async move { Ok(asked.read(|lanes| &lanes.prompts, read).await?.response(&http).await) })
}

/// Answers a request for which texts are put into tokens, or the other way round. Its place is free after the last byte of the
/// answer.
pub(crate) fn tokenize(asked: Asked, answer: fn(&Inner, &Bytes) -> Result<Value, Refusal>) -> Answer {
    Box::pin(async move {
        let read = move |service: &Arc<Inner>, mut entry: Entry, body: &Bytes| {
            let places = Arc::new(entry.places()?);
            Ok(json_text(held(answer(service, body)?.to_string().into(), &places)))
        };
        asked.read(|lanes| &lanes.tokens, read).await
    })
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
    form: &'static dyn Form,
    prompts: &[Prompt],
    mut ask: Ask,
    echo: Vec<String>,
) -> Result<Answers, Refusal> {
    let infills = prompts.iter().any(|prompt| matches!(prompt, Prompt::Segments(_)));
    if !infills {
        ask.bound(service.handle.info(), &service.config.limits)?;
    }
    let places = entry.places()?;
    let run = Run::start(service, prompts, &ask, places, &entry).map_err(|refusal| ask.names.refusal(refusal))?;
    let mut shape = Shape::new(form, service, ask.wishes, ask.names);
    shape.echo = echo;
    Ok(Answers { service: Arc::clone(service), run, shape, key: entry.key })
}

/// Reads what endpoints that generate have in common.
pub(crate) fn read_ask(service: &Inner, entry: &Entry, fields: &mut Fields<'_>) -> Result<Ask, Refusal> {
    check_model(service, fields)?;
    let mut ask = ask::read(fields, &service.config.limits, entry.tenant())?;
    ask.cache_salt = entry.salt(ask.cache_salt);
    Ok(ask)
}
