//! Steps that endpoints share.

use std::sync::Arc;

use bytes::Bytes;
use demask::Prompt;
use serde_json::{Value, json};

use crate::{
    Refusal,
    answers::Answers,
    ask::{self, Ask, Frames},
    endpoint::{Answer, IncomingRequest},
    entry::Entry,
    fields::{Fields, describe},
    form::Form,
    inner::Inner,
    response::{held, json_text},
    run::Run,
    shape::Shape,
};

/// Answers a request for which the model generates.
pub(crate) fn generate(
    asked: IncomingRequest,
    read: fn(&Arc<Inner>, Entry, &Bytes) -> Result<Answers, Refusal>,
) -> Answer {
    let http = Arc::clone(&asked.http);
    Box::pin(async move { Ok(asked.read(|lanes| &lanes.prompts, read).await?.response(&http).await) })
}

/// Answers a request for which texts are put into tokens, or the other way round. Its place is free after the last byte of the
/// answer.
pub(crate) fn tokenize(asked: IncomingRequest, answer: fn(&Inner, &Bytes) -> Result<Value, Refusal>) -> Answer {
    Box::pin(async move {
        let read = move |service: &Arc<Inner>, mut entry: Entry, body: &Bytes| {
            let places = Arc::new(entry.places()?);
            Ok(json_text(held(answer(service, body)?.to_string().into(), &places)))
        };
        asked.read(|lanes| &lanes.tokens, read).await
    })
}

/// Compares the model that a request names with the one that is served. Where its server has given it no names, any will do:
/// many clients have a name built in.
pub(crate) fn check_model(service: &Inner, fields: &mut Fields<'_>) -> Result<(), Refusal> {
    let Some(name) = fields.text("model")? else { return Ok(()) };
    if service.takes_any_name() || service.names().any(|known| known == name) {
        return Ok(());
    }
    let known: Vec<_> = service.names().collect();
    let shown: String = name.chars().take(80).collect();
    let message = format!("the model {shown:?} is not served here, expected {}", known.join(" or "));
    Err(Refusal { param: Some("model".to_owned()), ..Refusal::missing(message).coded("model_not_found") })
}

/// Refuses frames and receipts of the canvas, for which an interface of its own has no place.
pub(crate) fn shows_no_canvas(ask: &Ask) -> Result<(), Refusal> {
    let frames = ask.wishes.stream.is_some_and(|stream| stream.frames != Frames::None);
    let asked = [("diffusion.frames", frames), ("diffusion.receipt", ask.wishes.receipt)];
    let Some((name, _)) = asked.into_iter().find(|(_, asked)| *asked) else { return Ok(()) };
    let message = format!("`{name}` has no place in this interface: omit it, or ask /v1/chat/completions");
    Err(Refusal::parameter(name, message).coded("unsupported_parameter"))
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

/// Reads a text, or puts the texts of parts together; `place` is the name of where they are.
pub fn text_of(place: &str, content: Value) -> Result<String, Refusal> {
    let wrong = |what: String| Refusal::parameter(place, format!("`{place}` {what}"));
    match content {
        Value::String(text) => Ok(text),
        Value::Array(parts) => {
            let text = |part: &Value| match (part["type"].as_str(), part["text"].as_str()) {
                (Some("text" | "input_text" | "output_text"), Some(text)) => Ok(text.to_owned()),
                (Some(kind), _) => {
                    Err(wrong(format!("has a part of type {}, expected parts of type text", describe(&json!(kind)))))
                }
                (None, _) => Err(wrong(format!("has {}, expected parts of type text", describe(part)))),
            };
            parts.iter().map(text).collect()
        }
        Value::Null => Err(wrong("is missing, expected a text".to_owned())),
        other => Err(wrong(format!("is {}, expected a text", describe(&other)))),
    }
}
