//! `POST /v1/score`: how probable a continuation is behind a context. Of a diffusion model it is a lower bound.

use std::{
    collections::HashMap,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use demask::{
    Class, Error, Likelihood, LikelihoodOptions, Prompt, RequestHandle,
    internals::step::{Mask, TokenId},
};
use serde_json::{Value, json};

use crate::{
    Refusal,
    account::Account,
    admission::Places,
    api::completions,
    fields::{Fields, table},
    service::{Entry, Inner, Served},
};

/// Judges continuations behind their contexts.
///
/// # Errors
/// If the body is wrong, or the model has no such estimate.
pub fn serve(service: &Arc<Inner>, mut entry: Entry, body: &Bytes) -> Result<Served, Refusal> {
    let mut fields = Fields::parse(body, table::SCORE, &service.config.limits)?;
    super::check_model(service, &mut fields)?;
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
    let class = Class { tenant: entry.tenant(), ..Class::default() };
    let context_tokens = pairs.iter().map(|(context, _)| context.len()).sum();
    let found = vec![None; pairs.len()];
    let mut groups = Vec::new();
    for (places, pairs) in by_context(pairs) {
        groups.push(Group { places, answer: service.handle.submit_likelihoods(&pairs, &options, class)? });
    }
    service.metrics.admitted();
    let account = service.account(&entry);
    let service = Arc::clone(service);
    Ok(Served::Judging(Box::new(Judging { service, groups, found, context_tokens, account, _places: places })))
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

/// Continuations behind one context.
struct Group {
    /// Their places in the request.
    places: Vec<usize>,
    answer: RequestHandle<Vec<Likelihood>>,
}

/// Judgements on their way. Dropped, those that are not over are cancelled before the next forward.
pub struct Judging {
    service: Arc<Inner>,
    groups: Vec<Group>,
    found: Vec<Option<Likelihood>>,
    /// Tokens of all contexts.
    context_tokens: usize,
    account: Account,
    /// Held for as long as anything of the request is alive.
    _places: Places,
}

impl Judging {
    /// Waits until all are over.
    ///
    /// # Errors
    /// If one cannot be made.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        for Group { places, answer } in &mut self.groups {
            if places.iter().all(|&place| self.found[place].is_some()) {
                continue;
            }
            match judgement(answer, &mut self.account, context) {
                Poll::Pending => {}
                Poll::Ready(Ok(all)) => {
                    places.iter().zip(all).for_each(|(&place, likelihood)| self.found[place] = Some(likelihood));
                }
                Poll::Ready(Err(refusal)) => {
                    self.account.failed(&refusal);
                    return Poll::Ready(Err(refusal));
                }
            }
        }
        if self.found.iter().any(Option::is_none) {
            return Poll::Pending;
        }
        self.account.done(200);
        Poll::Ready(Ok(()))
    }

    /// Gives the request up.
    pub fn fail(&mut self, refusal: &Refusal) {
        self.account.failed(refusal);
    }

    /// Returns the body, once all are over.
    pub fn body(&self) -> Value {
        let found = || self.found.iter().flatten();
        // Only a model that reads from left to right tells the probability itself.
        let bound = self.service.handle.info().facts().mask != Mask::Causal;
        let data = found().enumerate().map(|(index, likelihood)| {
            json!({
                "index": index,
                "log_probability": likelihood.log_probability,
                "tokens": likelihood.tokens,
                "forwards": likelihood.forwards,
                "bound": bound,
            })
        });
        let tokens = found().map(|likelihood| likelihood.tokens).sum::<usize>() + self.context_tokens;
        json!({
            "object": "score",
            "model": self.service.name(),
            "data": data.collect::<Vec<_>>(),
            "usage": {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens},
        })
    }
}

/// Takes what has happened to a request, up to its end.
///
/// # Errors
/// If the likelihoods cannot be made.
pub fn judgement(
    answer: &mut RequestHandle<Vec<Likelihood>>,
    account: &mut Account,
    context: &mut Context<'_>,
) -> Poll<Result<Vec<Likelihood>, Refusal>> {
    while let Some(events) = ready!(answer.poll_events(context)) {
        account.went(&events);
    }
    Poll::Ready(answer.result().map_err(|error| Error::from(error).into()))
}
