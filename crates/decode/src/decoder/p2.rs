//! Path planning, the sampler of Open-dCoder (Open-dLLM `diffusion_generate`, `alg=p2`; specs/families.md#2). The rule
//! itself: [`crate::transfer::P2`].

use demask_step::MaskKind;

use super::{Blockwise, Decoder, DecoderKind, DecoderTraits, Promise};
use crate::{cache::CachePolicy, method::Setup, parameters, transfer};

parameters! {
    /// The most confident of all positions in each step, which may take tokens back.
    pub struct P2 {}
}

impl DecoderKind for P2 {
    const NAME: &'static str = "p2";
    const SUMMARY: &'static str =
        "the most confident positions in each step, of those that are written too: what falls short is a mask again";
    const SOURCE: &'static str = "Open-dLLM diffusion_generate with alg p2; specs/families.md#2";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

    fn traits(&self) -> DecoderTraits {
        DecoderTraits { promise: Promise::Official, revises: Some(0), ..DecoderTraits::default() }
    }

    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        Box::new(Blockwise::new(transfer::P2, setup))
    }
}
