//! A decoder with a memory: it takes tokens that were predicted the same several times.

use std::{cell::RefCell, collections::HashMap};

use demask::methods::{
    Blockwise, Decoder, DecoderKind, DecoderLoop, DecoderMethod, Setup,
    caches::CachePolicy,
    parameters,
    spec::Kind,
    step::{MaskKind, Position, TokenId},
    transfer::{Candidate, State, Transfer},
};

parameters! {
    /// Decoder that takes what stays the same over several forwards.
    pub struct Steady {
        /// forwards in which a position was predicted the same, before it is taken
        pub times: usize = 2, Kind::count(1, 64);
    }
}

/// The entry of the registry.
pub static STEADY: DecoderMethod = DecoderMethod::of::<Steady>();

impl DecoderKind for Steady {
    const NAME: &'static str = "steady";
    const SUMMARY: &'static str = "every token that was predicted the same several times, or else the surest";
    const SOURCE: &'static str = "this example";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full, MaskKind::BlockCausal];
}

/// A rule with a memory has a loop of its own: it is made once for each request.
impl DecoderLoop for Steady {
    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        Box::new(Blockwise::new(Remembered { times: self.times, seen: RefCell::default() }, setup))
    }
}

/// The rule, and what each position was predicted as before.
#[derive(Debug)]
struct Remembered {
    times: usize,
    /// The last prediction of a position, and how often it came in a row.
    seen: RefCell<HashMap<Position, (TokenId, usize)>>,
}

impl Transfer for Remembered {
    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        let mut seen = self.seen.borrow_mut();
        for &Candidate { position, token, .. } in candidates.iter() {
            let (before, times) = seen.entry(position).or_insert((token, 0));
            *times = if *before == token { *times + 1 } else { 1 };
            *before = token;
        }
        let is_steady =
            |candidate: &Candidate| seen.get(&candidate.position).is_some_and(|&(_, times)| times >= self.times);
        // Later blocks wait for the first one, and an order by position is kept.
        let block = candidates.first().map(|first| first.block);
        let within = candidates.iter().take_while(|candidate| Some(candidate.block) == block).count();
        let candidates = &mut candidates[..within];
        if !state.is_run() {
            candidates.sort_by_key(|candidate| !is_steady(candidate));
        }
        candidates.iter().take_while(|candidate| is_steady(candidate)).count().max(1).min(within)
    }
}
