//! Cache policies, and what one of your own is made from: parameters and policy of a method in one file, a line each in
//! [`CACHES`].

mod block;
mod causal;
mod dkv;
mod dllm;
mod dual;
mod freecache;
mod none;
mod prefix;

use std::sync::OnceLock;

use crate::{
    method::DecoderMethod,
    spec::{About, Method},
};

pub use crate::{
    method::{CacheKind, CacheMethod, CacheSpec, CacheTraits, Store},
    policy::{CachePolicy, Maintenance, Memory},
};
pub use block::{Block, BlockCanvas, Live};
pub use causal::Causal;
pub use dkv::{Dkv, Shift, Variant};
pub use dllm::{Boundary, Count, CountFrom, Dllm, FirstLayer, PartialRows, ProbeBy};
pub use dual::Dual;
pub use freecache::{FreeCache, Freeze};
pub use none::NoCache;
pub use prefix::{PrefixCache, Renewal, Start};

/// All cache policies of this crate, the default first.
pub static CACHES: &[CacheMethod] = &[
    CacheMethod::of::<NoCache>(),
    CacheMethod::of::<PrefixCache>(),
    CacheMethod::of::<Dual>(),
    CacheMethod::of::<FreeCache>(),
    CacheMethod::of::<Dkv>(),
    CacheMethod::of::<Dllm>(),
    CacheMethod::of::<Block>(),
    CacheMethod::of::<Causal>(),
];

/// The cache policies that the program knows: they never change, so that a text always means the same.
static KNOWN: OnceLock<Vec<&'static CacheMethod>> = OnceLock::new();

impl Method for CacheMethod {
    type Other = DecoderMethod;

    const WHAT: &'static str = "cache";

    fn built_in() -> &'static [Self] {
        CACHES
    }

    fn known() -> &'static [&'static Self] {
        KNOWN.get_or_init(|| CACHES.iter().collect())
    }

    fn install(methods: Vec<&'static Self>) -> bool {
        KNOWN.set(methods).is_ok()
    }

    fn about(&self) -> &About {
        &self.about
    }
}
