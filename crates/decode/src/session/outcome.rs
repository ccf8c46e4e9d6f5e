//! Reports of a session: needs, events, the answer and its receipt.

use std::{ops::Range, vec};

use demask_step::{Position, SequenceLimits, TokenId};

use super::{Phase, Session, stop::GivenUp};
use crate::{
    error::OptionsError,
    event::{Counts, Event, Finish, Logprob, Output},
    layout::Layout,
    legality::{self, Exactness},
    method::{CacheSpec, DecoderSpec, SessionOptions},
    receipt::DecodingReceipt,
    transfer::OwnRule,
};

impl Session {
    /// Returns what its sequences on a network need: 0 is the diffusion model, 1 the guide.
    pub fn needs_of(&self, network: usize) -> Vec<SequenceLimits> {
        let own = self.needs.iter().filter(|need| need.network == network);
        own.map(|need| need.limits.clone()).collect()
    }

    /// Returns whether nothing is pending any more.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Returns whether a guide judges the drafts.
    pub fn has_guide(&self) -> bool {
        self.needs.len() > self.requests.len()
    }

    /// Returns how probable the token at a position was when it was committed, and what else could have stood there. None if
    /// [`top_logprobs`](crate::SessionOptions::top_logprobs) is not set, and where no prediction of the diffusion model was
    /// committed: at given tokens and masks, where a stop rule filled masks, and where a guide's own token stands.
    pub fn logprob(&self, position: Position) -> Option<Logprob<'_>> {
        self.logprobs
            .as_ref()
            .filter(|_| !self.canvas.is_masked(position) && !self.canvas.is_given(position))?
            .of(position)
    }

    /// Returns what happened since the last call. A forward's commits come before its step.
    pub fn events(&mut self) -> vec::Drain<'_, Event> {
        self.events.drain(..)
    }

    /// Makes it report the drafts of each forward from now on, and the predictions in them.
    pub fn tell_drafts(&mut self) {
        self.tells_drafts = true;
    }

    /// Ends the response after `length` tokens: a stop text was found there. Nothing is run any more.
    pub fn finish_at(&mut self, length: usize) {
        self.ending.stop_at(length);
        self.phase = Phase::Over;
        self.recompute = None;
    }

    /// Ends the response with its settled tokens, or with a completion under a constraint that says so: its time is
    /// over. Nothing is run any more, and nothing happens to a session that is over.
    pub fn give_up(&mut self) {
        self.end_with_settled(GivenUp::Deadline);
    }

    /// Ends the response with its settled tokens, as [`give_up`](Self::give_up): there is no memory for more. Its
    /// length has cut it.
    pub fn run_out_of_memory(&mut self) {
        self.end_with_settled(GivenUp::Memory);
    }

    fn end_with_settled(&mut self, reason: GivenUp) {
        if !self.is_over() {
            let completes = reason == GivenUp::Deadline && self.complete();
            self.ending.give_up(reason, completes);
            self.phase = Phase::Over;
            self.recompute = None;
        }
    }

    /// Returns all tokens, masks as the mask id.
    pub fn canvas(&self) -> &[TokenId] {
        self.canvas.tokens()
    }

    /// Returns the number of masks that are left, those after the response in its last block included.
    pub fn masks(&self) -> usize {
        self.canvas.masks()
    }

    /// Returns whether no mask is left among these positions.
    pub fn is_complete(&self, positions: Range<usize>) -> bool {
        self.canvas.is_complete(positions.start as Position..positions.end as Position)
    }

    /// Returns where the blocks lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns how many tokens of the response, from its start, can no longer change and belong to the answer.
    pub fn settled(&self) -> usize {
        self.ending.settled(&self.canvas, &self.layout)
    }

    /// Returns how many of these tokens were decoded: those between and after the holes of a text were there from the start.
    pub fn generated(&self) -> usize {
        let response = self.layout.response() as Position;
        let settled = response..response + self.settled() as Position;
        settled.filter(|&position| !self.canvas.is_given(position)).count()
    }

    /// Returns the answer, or as much of it as is settled.
    pub fn output(&self) -> Output {
        let length = self.settled();
        let response = self.layout.response();
        let finish = self.ending.finish(length);
        let tokens = self.canvas.tokens()[response..response + length].to_vec();
        Output { tokens, finish, canvas: self.canvas.tokens().to_vec() }
    }

    /// Returns why the answer ends where it ends.
    pub fn finish(&self) -> Finish {
        self.ending.finish(self.settled())
    }

    /// Returns whether log-probabilities of commits are kept.
    pub fn keeps_logprobs(&self) -> bool {
        self.logprobs.is_some()
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.tally.counts
    }

    /// Returns the decoder and the cache policy that the options name. A receipt has the parameters that the decoder
    /// chose for the device.
    pub fn methods(&self) -> (&DecoderSpec, &CacheSpec) {
        (&self.options.decoder, &self.options.cache)
    }

    /// Returns the options that it was made from.
    pub fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// Returns the steps over all blocks, as resolved.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Describes the decoder's choice for the device in half a sentence. None if it chose nothing.
    pub fn decoder_rule(&self) -> Option<String> {
        self.decoder.rule()
    }

    /// Says which rows the cache policy computes on this canvas, if that follows from the canvas by a rule: half a sentence.
    pub fn cache_rule(&self) -> Option<String> {
        self.cache.rule(&self.layout)
    }

    /// Returns the exactness that the answer may claim.
    pub fn exactness(&self) -> Exactness {
        // What a deadline completes is no decoder's choice.
        if self.options.rule.is_some() || self.ending.is_completed() {
            return Exactness::Approximate;
        }
        let SessionOptions { decoder, cache, temperature, constraint, .. } = &self.options;
        let claim = legality::exactness_with(decoder, cache, self.cache.memory(), *temperature == 0.0);
        match (claim, constraint) {
            (Exactness::Lossless { against }, Some(constraint)) => {
                Exactness::Lossless { against: format!("{against}, constraint {}", constraint.source.hash) }
            }
            (claim, _) => claim,
        }
    }

    /// Returns how the answer was made.
    pub fn receipt(&self) -> DecodingReceipt {
        let resolved = (self.steps, self.layout.block_length());
        let decoder = match &self.options.rule {
            Some(rule) => rule.to_string(),
            None => self.decoder.chosen().unwrap_or_else(|| self.options.decoder.to_string()),
        };
        let receipt = self.tally.receipt(&self.options, decoder, self.exactness(), resolved, self.generated());
        let response = self.layout.response() as Position;
        let asked = response..response + self.layout.gen_length() as Position;
        let reason = self.ending.given_up();
        let given_up = reason.map(|_| self.canvas.masks_in(asked));
        let constraint = self.constraint_receipt();
        DecodingReceipt { given_up, out_of_memory: reason == Some(GivenUp::Memory), constraint, ..receipt }
    }

    /// Returns the same canvas, not yet begun, for a transfer rule to decide in the place of the decoder.
    ///
    /// # Errors
    /// If the rule does not go with the model or the cache policy.
    pub fn decided_by(self, rule: OwnRule) -> Result<Self, OptionsError> {
        let Self { options, salt, tells_drafts, .. } = self;
        let decoder = DecoderSpec::default();
        let session = Self::new(SessionOptions { rule: Some(rule), decoder, ..options })?;
        Ok(Self { tells_drafts, salt, ..session })
    }

    /// Sets its salt, before its first forward: only sessions of the same salt take slots from each other. 0 at the
    /// beginning.
    pub fn set_salt(&mut self, salt: u64) {
        self.salt = salt;
    }
}
