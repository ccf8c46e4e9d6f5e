//! Likelihoods of continuations while they are made.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use demask::{Error, Likelihood, Mask, RequestHandle};
use serde_json::{Value, json};

use crate::{Refusal, account::Account, admission::Places, inner::Inner};

/// Continuations after one context.
pub struct Group {
    /// Their places in the request.
    pub(crate) places: Vec<usize>,
    /// The judgements.
    pub(crate) answer: RequestHandle<Vec<Likelihood>>,
}

/// Judgements on their way. Dropped, those that are not over are cancelled before the next forward.
pub struct Judging {
    pub(crate) service: Arc<Inner>,
    pub(crate) groups: Vec<Group>,
    pub(crate) found: Vec<Option<Likelihood>>,
    /// Tokens of all contexts.
    pub(crate) context_tokens: usize,
    pub(crate) account: Account,
    /// Held for as long as anything of the request is alive.
    pub(crate) _places: Places,
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
    pub fn fail(&mut self, refusal: Refusal) -> Refusal {
        self.account.failed(&refusal);
        refusal
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
            "usage": {
                "prompt_tokens": tokens,
                "completion_tokens": 0,
                "total_tokens": tokens,
                "prompt_tokens_details": {"cached_tokens": found().map(|likelihood| likelihood.cached_tokens).sum::<usize>()},
            },
        })
    }
}

/// Takes what has happened to a request, up to its end.
///
/// # Errors
/// If its result cannot be made.
pub fn judgement<T>(
    answer: &mut RequestHandle<T>,
    account: &mut Account,
    context: &mut Context<'_>,
) -> Poll<Result<T, Refusal>> {
    while let Some(events) = ready!(answer.poll_events(context)) {
        account.went(&events);
    }
    Poll::Ready(answer.result().map_err(|error| Error::from(error).into()))
}
