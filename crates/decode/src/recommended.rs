//! Defaults of decoding: for each kind of attention the fastest pair that is lossless or whose loss on the demo tasks
//! is within noise. The figures behind the choice are in `docs/methods.md`.

use demask_step::Mask;

use crate::{
    CacheSpec, DecoderSpec,
    cache::{Block, Dual},
    decoder::Threshold,
};

/// A decoder and a cache for those who name neither; none where the reference is the fastest (autoregressive models).
pub fn recommended(mask: Mask) -> Option<(DecoderSpec, CacheSpec)> {
    // Fast-dLLM's settings (specs/caches.md#3.6).
    let threshold = Threshold { tau: 0.9, ..Threshold::default() };
    let cache = match mask {
        Mask::Full => Dual::default().into(),
        Mask::BlockCausal { .. } | Mask::Context { .. } => Block::default().into(),
        Mask::Causal => return None,
    };
    Some((threshold.into(), cache))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_diffusion_model_has_a_recommendation() {
        let told = |mask| recommended(mask).map(|(decoder, cache)| format!("{decoder}, cache {cache}"));
        assert_eq!(told(Mask::Full).as_deref(), Some("threshold:tau=0.9, cache dual"));
        assert_eq!(told(Mask::blocks(4)).as_deref(), Some("threshold:tau=0.9, cache block"));
        assert_eq!(told(Mask::Causal), None);
    }
}
