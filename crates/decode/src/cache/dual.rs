//! Fast-dLLM's dual cache: what lies before and behind the block is computed once, when the block starts; only the
//! block is computed in each forward, in place (Fast-dLLM, section 3.2 of the paper; specs/caches.md#3.4,
//! specs/caches.md#3.5 and specs/freedave.md#1.5).

use demask_step::MaskKind;

use super::{
    CacheKind, CachePolicy, CacheTraits, Memory,
    prefix::{Behind, BlockStart},
};
use crate::{parameters, resolve::Setup};

parameters! {
    /// Cache of the positions before and behind the block, kept from the block's first forward.
    pub struct Dual {
        /// rows behind the block that are live too; fitted: none
        pub horizon: Option<usize> = None;
        /// one idle forward where the first one completed the block (Fast-dLLM as first released)
        pub idle: bool = false;
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

    fn build(&self, _setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        Box::new(BlockStart::new(Behind::Stale { horizon: self.horizon.unwrap_or(0) }, self.idle))
    }
}
