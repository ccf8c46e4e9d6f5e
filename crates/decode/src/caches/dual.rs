//! Fast-dLLM's dual cache: what lies before and after the block is computed once, when the block starts; only the
//! block is computed in each forward, in place (Fast-dLLM, section 3.2 of the paper; specs/caches.md#3.4,
//! specs/caches.md#3.5 and specs/freedave.md#1.5).

use demask_step::MaskKind;

use super::{prefix::Behind, prefix::BlockStart, prefix::Renewal, prefix::Start, prefix::check_start};
use crate::{
    error::OptionsError,
    method::{CacheKind, CacheTraits, Setup},
    parameters,
    policy::{CachePolicy, Memory},
};

parameters! {
    /// Cache of the positions before and after the block, kept from the block's first forward.
    pub struct Dual {
        /// rows after the block that are live too; fitted: none
        pub horizon: Option<usize> = None;
        /// one idle forward where the first one completed the block (Fast-dLLM as first released)
        pub idle: bool = false;
        /// blocks from one computation of the prompt's rows to the next; first: they are computed once; fitted: 1, as
        /// published
        pub prompt: Option<Renewal> = None;
        /// predictions of a block's first forward that may be committed, where rows predict the token after them: all, or
        /// the first one alone as published for Dream
        pub start: Start = Start::All;
    }
}

impl CacheKind for Dual {
    const NAME: &'static str = "dual";
    const SUMMARY: &'static str =
        "what precedes and what follows the block is kept from the block's first forward; the block is live";
    const SOURCE: &'static str = "Fast-dLLM DualCache; specs/caches.md#3.4 and specs/freedave.md#1.5";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

    fn traits(&self) -> CacheTraits {
        CacheTraits { memory: Memory::OfState, ..CacheTraits::default() }
    }

    fn check(&self, setup: &Setup<'_>) -> Result<(), OptionsError> {
        check_start(self.start, setup)
    }

    fn build(&self, _setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        let Self { horizon, idle, prompt, start } = *self;
        Box::new(BlockStart::new(
            Behind::Stale { horizon: horizon.unwrap_or(0) },
            idle,
            prompt.unwrap_or(Renewal::Every(1)),
            start,
        ))
    }
}
