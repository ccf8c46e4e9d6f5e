//! What decodes a model if nobody says how: for each kind of attention the fastest pair that is lossless or whose loss on
//! the demo tasks is within noise. The figures behind the choice are in `docs/methods.md`.

use demask_step::Mask;

use crate::{CacheSpec, DecoderSpec};

/// A decoder and a cache for those who name neither; none where the reference is the fastest (autoregressive models).
pub fn recommended(mask: Mask) -> Option<(DecoderSpec, CacheSpec)> {
    let (decoder, cache) = match mask {
        // Fast-dLLM's settings (specification caches, section 3.6).
        Mask::Full => ("threshold:tau=0.9", "dual"),
        Mask::BlockCausal { .. } => ("threshold:tau=0.9", "block"),
        Mask::Causal => return None,
    };
    Some((decoder.parse().ok()?, cache.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_diffusion_model_has_a_recommendation() {
        let told = |mask| recommended(mask).map(|(decoder, cache)| format!("{decoder}, cache {cache}"));
        assert_eq!(told(Mask::Full).as_deref(), Some("threshold:tau=0.9, cache dual"));
        assert_eq!(told(Mask::BlockCausal { block: 4 }).as_deref(), Some("threshold:tau=0.9, cache block"));
        assert_eq!(told(Mask::Causal), None);
    }
}
