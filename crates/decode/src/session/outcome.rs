//! What a session reports: needs, events, the answer and how it was made.

use std::{sync::Arc, vec};

use demask_step::{CostCurve, SequenceNeeds, TokenId};

use super::{Phase, Session};
use crate::{
    event::{Counts, Event, Output},
    layout::Layout,
    legality::{self, Exactness},
    receipt::DecodingReceipt,
};

impl Session {
    /// Returns what its sequences on a network need: 0 is the diffusion model, 1 the guide.
    pub fn needs_of(&self, network: usize) -> Vec<SequenceNeeds> {
        let own = self.needs.iter().filter(|need| need.network == network);
        own.map(|need| need.sequence.clone()).collect()
    }

    /// Returns whether nothing is pending any more.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Returns whether a guide judges the drafts.
    pub fn has_guide(&self) -> bool {
        self.needs.len() > self.requests.len()
    }

    /// Returns what happened since the last call. A forward's commits come before its step.
    pub fn events(&mut self) -> vec::Drain<'_, Event> {
        self.events.drain(..)
    }

    /// Lets it tell the drafts of each forward from now on, and what was predicted in them.
    pub fn tell_drafts(&mut self) {
        self.tells_drafts = true;
    }

    /// Ends the response after `length` tokens: a stop text was found there. Nothing is run any more.
    pub fn finish_at(&mut self, length: usize) {
        self.ending.stop_at(length);
        self.phase = Phase::Over;
    }

    /// Returns all tokens, masks as the mask id.
    pub fn canvas(&self) -> &[TokenId] {
        self.canvas.tokens()
    }

    /// Returns where the blocks lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns how many tokens of the response, from its start, can no longer change and belong to the answer.
    pub fn settled(&self) -> usize {
        self.ending.settled(&self.canvas, &self.layout)
    }

    /// Returns the answer, or as much of it as is settled.
    pub fn output(&self) -> Output {
        let length = self.settled();
        let response = self.layout.response();
        let finish = self.ending.finish(length);
        let tokens = self.canvas.tokens()[response..response + length].to_vec();
        Output { tokens, finish, canvas: self.canvas.tokens().to_vec() }
    }

    /// Returns what was done so far.
    pub fn counts(&self) -> Counts {
        self.tally.counts
    }

    /// Returns what the answer may claim.
    pub fn exactness(&self) -> Exactness {
        legality::exactness_with(&self.options.decoder, &self.options.cache, self.cache.memory())
    }

    /// Returns how the answer was made.
    pub fn receipt(&self) -> DecodingReceipt {
        let resolved = (self.steps, self.layout.block_length());
        // Where nobody asked for a curve and nothing was chosen by one, there is none to tell of.
        let told = self.decoder.chooses() || self.options.cost_curve.is_some();
        let drafts = (self.decoder.drafted(), told.then_some(&*self.curve));
        self.tally.receipt(&self.options, self.exactness(), resolved, self.settled(), drafts)
    }

    /// Sets its salt, before its first forward: only sessions of the same salt take slots from each other. 0 at the
    /// beginning.
    pub fn set_salt(&mut self, salt: u64) {
        self.salt = salt;
    }

    /// Returns whether the decoder chooses by a cost curve, and nobody gave it one.
    pub fn wants_curve(&self) -> bool {
        self.decoder.chooses() && self.options.cost_curve.is_none()
    }

    /// Gives it a cost curve, before its first forward.
    pub fn set_curve(&mut self, curve: Arc<CostCurve>) {
        if self.tally.counts.forwards == 0 {
            self.options.cost_curve = Some(Arc::clone(&curve));
            self.curve = curve;
        }
    }
}
