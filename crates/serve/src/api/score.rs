//! `POST /v1/score`: how probable a continuation is after a context. Of a diffusion model it is a lower bound.

use std::{collections::HashMap, future::poll_fn, sync::Arc};

use axum::response::Response;
use bytes::Bytes;
use demask::{LikelihoodOptions, Prompt, SchedulingParams, TokenId};
use serde_json::Value;

use super::{common::check_model, completions};
use crate::{
    Refusal,
    account::Account,
    endpoint::{Endpoint, IncomingRequest, Schema},
    entry::Entry,
    fields::{
        Fields,
        table::{MODEL, Of, TEXTS_OR_IDS, Table, field, hint, with_default},
    },
    inner::{Ending, Inner},
    judging::{Group, Judging},
    response::json_response,
};

/// The endpoint.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "score",
    paths: &[("/v1/score", "score")],
    schema: Some(Schema {
        table: TABLE,
        required: &["context", "continuation"],
        prompt: "context",
        length: "continuation",
    }),
    serve: |asked| Box::pin(serve(asked)),
    ..Endpoint::POST
};

/// Draws of an estimate, at most: each is a forward's rows.
const DRAWS: u64 = 4096;

const TABLE: Table = &[
    MODEL,
    &[
        field("context", Of::Own(TEXTS_OR_IDS), "What stands before: a text, token ids, or a list of either."),
        field("continuation", Of::Own(TEXTS_OR_IDS), "What is judged, as many as contexts."),
        with_default("draws", Of::Count(1, |_| DRAWS), "128", "Draws of a diffusion model's estimate."),
        with_default("cfg_scale", Of::Number(0.0, 100.0), "0", "Scale of classifier-free guidance."),
        with_default("seed", Of::Count(0, |_| u64::MAX >> 12), "0", "Key of the draws."),
        hint("user"),
    ],
];

/// Judges continuations after their contexts.
async fn serve(asked: IncomingRequest) -> Result<Response, Refusal> {
    let mut judging = asked.read(|lanes| &lanes.prompts, read).await?;
    let service = Arc::clone(&judging.service);
    let over = tokio::select! {
        over = poll_fn(|context| judging.poll(context)) => over,
        () = service.until(Ending::GivingUp) => Err(judging.fail(Refusal::shutting_down())),
    };
    // What is written down of it is known already.
    Ok(over.map_or_else(|refusal| refusal.response(), |()| json_response(&judging.body())))
}

/// Reads the contexts and continuations, and submits them.
///
/// # Errors
/// If the body is wrong, or the model has no such estimate.
fn read(service: &Arc<Inner>, mut entry: Entry, body: &Bytes) -> Result<Judging, Refusal> {
    let mut fields = Fields::parse(body, TABLE, &service.config.limits)?;
    check_model(service, &mut fields)?;
    let most = service.config.limits.prompts;
    let (contexts, continuations) = (texts(&mut fields, "context", most)?, texts(&mut fields, "continuation", most)?);
    if contexts.len() != continuations.len() {
        let message = format!(
            "`context` has {} and `continuation` {} entries: expected as many",
            contexts.len(),
            continuations.len()
        );
        return Err(Refusal::parameter("continuation", message));
    }
    let options = LikelihoodOptions {
        draws: fields.count("draws")?.unwrap_or_default(),
        cfg_scale: fields.number("cfg_scale")?.unwrap_or_default() as f32,
        seed: fields.count("seed")?.unwrap_or_default() as u64,
        ..LikelihoodOptions::default()
    };
    fields.pass()?;
    fields.finish()?;
    let mut places = entry.places()?;
    places.grow(contexts.len())?;
    let mut pairs = Vec::new();
    for (context, continuation) in contexts.iter().zip(&continuations) {
        pairs.push(pair(service, context, continuation)?);
    }
    let (scheduling, salt) =
        (SchedulingParams { tenant: entry.tenant(), ..SchedulingParams::default() }, entry.salt(None));
    let context_tokens = pairs.iter().map(|(context, _)| context.len()).sum();
    let found = vec![None; pairs.len()];
    let mut groups = Vec::new();
    for (places, pairs) in by_context(pairs) {
        let answer = service.handle.submit_likelihoods(&pairs, &options, scheduling, salt.as_deref())?;
        groups.push(Group { places, answer });
    }
    service.metrics.admitted();
    let account = Account::new(service, entry.caller.clone(), entry.started);
    let service = Arc::clone(service);
    Ok(Judging { service, groups, found, context_tokens, account, _places: places })
}

/// A context and what follows it, as tokens.
type Pair = (Vec<TokenId>, Vec<TokenId>);

/// Groups pairs by their contexts, which are read once then; each group with the places of its pairs.
fn by_context(pairs: Vec<Pair>) -> Vec<(Vec<usize>, Vec<Pair>)> {
    let (mut groups, mut known) = (Vec::<(Vec<usize>, Vec<Pair>)>::new(), HashMap::new());
    for (place, pair) in pairs.into_iter().enumerate() {
        let group = *known.entry(pair.0.clone()).or_insert_with(|| {
            groups.push(Default::default());
            groups.len() - 1
        });
        groups[group].0.push(place);
        groups[group].1.push(pair);
    }
    groups
}

/// Puts a context and what follows it into tokens.
fn pair(service: &Inner, context: &Prompt, continuation: &Prompt) -> Result<Pair, Refusal> {
    let info = service.handle.info();
    Ok(match (context, continuation) {
        (Prompt::Raw(_), Prompt::Raw(text)) => info.pair(context, text)?,
        _ => (info.ids(context)?, info.ids(continuation)?),
    })
}

/// Reads a text, token ids, or a list of either.
fn texts(fields: &mut Fields<'_>, name: &'static str, most: usize) -> Result<Vec<Prompt>, Refusal> {
    let Some(value) = fields.take(name) else {
        return Err(Refusal::parameter(
            name,
            format!("`{name}` is missing: expected a text, token ids, or a list of either"),
        ));
    };
    let wrong = || fields.wrong(name, &value, "a text, token ids, or a list of either");
    let ids = |list: &[Value]| completions::ids(list).map(Prompt::Tokens);
    let one = |value: &Value| match value {
        Value::String(text) => Some(Prompt::Raw(text.clone())),
        Value::Array(list) => ids(list),
        _ => None,
    };
    let entries = match &value {
        Value::String(_) => one(&value).map(|entry| vec![entry]),
        Value::Array(list) if list.iter().all(Value::is_number) && !list.is_empty() => {
            ids(list).map(|entry| vec![entry])
        }
        Value::Array(list) => list.iter().map(one).collect(),
        _ => None,
    };
    let entries = entries.ok_or_else(wrong)?;
    if entries.is_empty() || entries.len() > most {
        return Err(Refusal::parameter(name, format!("`{name}` has {} entries, expected 1 to {most}", entries.len())));
    }
    Ok(entries)
}
