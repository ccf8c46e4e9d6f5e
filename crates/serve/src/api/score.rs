//! `POST /v1/score`: how probable a continuation is behind a context. Of a diffusion model it is a lower bound.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use demask::{
    Class, Likelihood, LikelihoodOptions, Mail, Prompt, Ticket,
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
    let submit = |(context, continuation): &(Vec<TokenId>, Vec<TokenId>)| {
        service.handle.log_likelihood(context, continuation, &options, class)
    };
    let tickets = pairs.iter().map(submit).collect::<Result<Vec<Ticket<Likelihood>>, _>>()?;
    service.metrics.admitted();
    let account = service.account(&entry);
    let context_tokens = pairs.iter().map(|(context, _)| context.len()).sum();
    let (service, found) = (Arc::clone(service), vec![None; tickets.len()]);
    Ok(Served::Judging(Box::new(Judging { service, tickets, found, context_tokens, account, _places: places })))
}

/// A context and what follows it, as tokens.
fn pair(service: &Inner, context: &Prompt, continuation: &Prompt) -> Result<(Vec<TokenId>, Vec<TokenId>), Refusal> {
    let prompter = service.handle.prompter();
    Ok(match (context, continuation) {
        (Prompt::Raw(_), Prompt::Raw(text)) => prompter.pair(context, text)?,
        _ => (prompter.ids(context)?, prompter.ids(continuation)?),
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

/// Judgements on their way. Dropped, those that are not over are cancelled before the next forward.
pub struct Judging {
    service: Arc<Inner>,
    tickets: Vec<Ticket<Likelihood>>,
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
        for (ticket, found) in self.tickets.iter_mut().zip(&mut self.found).filter(|(_, found)| found.is_none()) {
            match judgement(ticket, &mut self.account, context) {
                Poll::Pending => {}
                Poll::Ready(Ok(likelihood)) => *found = Some(likelihood),
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
        let bound = self.service.handle.prompter().facts().mask != Mask::Causal;
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

/// Takes what a ticket has, up to its end.
///
/// # Errors
/// If the likelihood cannot be made.
pub fn judgement(
    ticket: &mut Ticket<Likelihood>,
    account: &mut Account,
    context: &mut Context<'_>,
) -> Poll<Result<Likelihood, Refusal>> {
    loop {
        match ticket.poll_next(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Mail::Update(update))) => account.went(&update),
            Poll::Ready(Some(Mail::Over(over))) => return Poll::Ready(over.map_err(Refusal::from)),
            Poll::Ready(None) => return Poll::Ready(Err(Refusal::shutting_down())),
        }
    }
}
