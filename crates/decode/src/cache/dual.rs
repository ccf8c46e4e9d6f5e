//! Fast-dLLM's dual cache: what lies before and behind the block is computed once, when the block starts; only the
//! block is computed in each forward, in place (Fast-dLLM, section 3.2 of the paper; specification caches, sections 3.4
//! and 3.5, and freedave, section 1.5).

use demask_step::MaskKind;

use super::{
    CacheMethod, CachePolicy, CacheSpec, Memory,
    prefix::{Behind, BlockStart, IDLE},
};
use crate::{
    layout::Layout,
    spec::{About, Kind, Parameter, Value},
};

pub(super) const METHOD: CacheMethod = CacheMethod {
    about: About {
        name: "dual",
        summary: "what precedes and what follows the block is kept from the block's first forward; the block is live",
        source: "Fast-dLLM DualCache; specification caches 3.4, freedave 1.5",
        parameters: &[
            Parameter {
                name: "horizon",
                kind: Kind::Count { least: 0, most: usize::MAX },
                default: Value::Fit,
                doc: "rows behind the block that are live too; fitted: none",
            },
            IDLE,
        ],
    },
    attention: &[MaskKind::Full],
    exact: false,
    memory: Memory::OfState,
    build,
};

fn build(spec: &CacheSpec, _layout: &Layout, _seed: u64) -> Box<dyn CachePolicy> {
    let behind = Behind::Stale { horizon: spec.count("horizon").unwrap_or(0) };
    Box::new(BlockStart::new(behind, spec.flag("idle")))
}
