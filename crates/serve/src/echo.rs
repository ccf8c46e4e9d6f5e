//! A prompt that is returned with the log-probabilities of its tokens: what `echo` with `logprobs` asks for.
//!
//! Only an autoregressive model has them: each token after those before it, and none for the first.

use std::task::{Context, Poll};

use demask::{Likelihood, LikelihoodOptions, Prompt, RequestHandle, SchedulingParams, TokenId};

use crate::{Refusal, account::Account, answer::Entry, inner::Inner, judging::judgement};

/// A prompt that is judged in one forward.
pub struct Echo {
    ids: Vec<TokenId>,
    judging: Judging,
}

/// Progress of the judging of a prompt.
enum Judging {
    Waits(RequestHandle<Vec<Likelihood>>),
    Over(Likelihood),
}

impl Echo {
    /// Reads a prompt that is to be judged.
    ///
    /// # Errors
    /// If it cannot be put into tokens, or is longer than the model's context.
    pub fn read(service: &Inner, prompt: &Prompt) -> Result<Vec<TokenId>, Refusal> {
        let info = service.handle.info();
        let (ids, context) = (info.ids(prompt)?, info.facts().context);
        if ids.len() > context {
            let message = format!("`prompt` has {} tokens, expected at most {context} for this model", ids.len());
            return Err(Refusal::parameter("prompt", message).coded("context_length_exceeded"));
        }
        Ok(ids)
    }

    /// Submits a prompt to be judged, with so many alternatives of each token. It shares K/V with requests of its salt alone.
    ///
    /// # Errors
    /// If it has no tokens.
    pub fn start(
        service: &Inner,
        ids: Vec<TokenId>,
        top: usize,
        scheduling: SchedulingParams,
        salt: Option<&str>,
    ) -> Result<Self, Refusal> {
        let judging = match ids.split_at_checked(1) {
            None => {
                let message = "`prompt` is empty, expected at least one token to tell again: start with its bos token";
                return Err(Refusal::parameter("prompt", message));
            }
            // Nothing stands before its only token.
            Some((_, [])) => Judging::Over(Likelihood::default()),
            Some((first, others)) => {
                let options = LikelihoodOptions { top: Some(top), ..LikelihoodOptions::default() };
                let pair = (first.to_vec(), others.to_vec());
                Judging::Waits(service.handle.submit_likelihoods(&[pair], &options, scheduling, salt)?)
            }
        };
        Ok(Self { ids, judging })
    }

    /// Waits until it is judged.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn poll(&mut self, account: &mut Account, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        if let Judging::Waits(answer) = &mut self.judging {
            match judgement(answer, account, context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(judged) => self.judging = Judging::Over(judged?.pop().unwrap_or_default()),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Returns whether it is judged.
    pub fn is_over(&self) -> bool {
        matches!(self.judging, Judging::Over(_))
    }

    /// Returns how many tokens the prompt has.
    pub fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// Returns how many tokens it has, each of their alternatives counted.
    pub fn length(&self) -> usize {
        self.entries().iter().map(|entry| 1 + entry.top.len()).sum()
    }

    /// Returns the forwards that the judging took.
    pub fn forwards(&self) -> usize {
        match &self.judging {
            Judging::Waits(_) => 0,
            Judging::Over(likelihood) => likelihood.forwards,
        }
    }

    /// Returns the prompt's tokens with their log-probabilities; none before it is judged.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        let Judging::Over(likelihood) = &self.judging else { return Vec::new() };
        let first = self.ids.first().map(|&token| Entry { token, logprob: None, top: &[] });
        let others = likelihood.logprobs.iter();
        let others = others.map(|judged| Entry { token: judged.token, logprob: judged.logprob, top: &judged.top });
        first.into_iter().chain(others).collect()
    }
}
