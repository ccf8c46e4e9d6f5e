//! A decoder that reads more of the head than its candidates have: the lead of a prediction's best token over the second.

use std::{cell::RefCell, collections::HashMap};

use demask::methods::{
    Blockwise, Decoder, DecoderKind, DecoderLoop, DecoderMethod, Setup,
    caches::CachePolicy,
    parameters,
    spec::Kind,
    step::{HeadAsk, MaskKind, Position},
    transfer::{Candidate, LaneView, State, Transfer},
};

parameters! {
    /// Decoder that takes tokens in the order of commits, as long as they lead clearly.
    pub struct Clear {
        /// least lead of the best token's probability over the second's
        pub lead: f32 = 0.5, Kind::number(0.0, 1.0);
    }
}

/// The entry of the registry.
pub static CLEAR: DecoderMethod = DecoderMethod::of::<Clear>();

impl DecoderKind for Clear {
    const NAME: &'static str = "clear";
    const SUMMARY: &'static str = "tokens in the order of commits, as long as each leads the second best clearly";
    const SOURCE: &'static str = "this example";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full, MaskKind::BlockCausal];
}

impl DecoderLoop for Clear {
    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        Box::new(Blockwise::new(Seen { lead: self.lead, leads: RefCell::default() }, setup))
    }
}

/// The rule, and the leads that it saw last.
#[derive(Debug)]
struct Seen {
    lead: f32,
    leads: RefCell<HashMap<Position, f32>>,
}

impl Transfer for Seen {
    fn ask(&self, ask: &mut HeadAsk) {
        ask.wanted.top = ask.wanted.top.max(2);
    }

    fn look(&self, lane: &LaneView<'_>, candidates: &[Candidate]) {
        let predictions = lane.predictions;
        // Longer lists may be there, if others ask for them.
        let width = predictions.top.len() / predictions.tokens.len().max(1);
        let lead = |candidate: &Candidate| {
            let at = width * predictions.index(lane.lane, candidate.position)?;
            let [(_, best), (_, second), ..] = predictions.top.get(at..at + width)? else { return None };
            Some((candidate.position, best - second))
        };
        *self.leads.borrow_mut() = candidates.iter().filter_map(lead).collect();
    }

    fn choose(&self, _state: &State, candidates: &mut [Candidate]) -> usize {
        let (leads, first) = (self.leads.borrow(), candidates.first().map(|first| first.block));
        let is_clear = |one: &&Candidate| leads.get(&one.position).is_some_and(|&lead| lead >= self.lead);
        let of_block = candidates.iter().take_while(|one| Some(one.block) == first);
        of_block.take_while(is_clear).count().max(1).min(candidates.len())
    }
}
