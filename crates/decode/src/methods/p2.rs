//! Path planning, the sampler of Open-dCoder: in each step the least confident tokens of all become masks again (Open-dLLM
//! `diffusion_generate`, `alg=p2`; specs/families.md#2).

use demask_step::{HeadAsk, MaskKind};

use crate::{
    method::{DecoderKind, DecoderTraits, Promise},
    parameters,
    transfer::{Candidate, State, Transfer},
};

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
}

/// Keeps the first of the order, written or not: all but the share of the positions that the steps left over have. Masks
/// among them get their tokens, tokens among them stay, and all others are masks after the step.
impl Transfer for P2 {
    fn ask(&self, ask: &mut HeadAsk) {
        ask.only_where = None;
    }

    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        // The share in double precision, the product in single precision, as released.
        let masked = candidates.len() as f32 * state.left as f32;
        candidates.len() - (masked as usize).min(candidates.len())
    }

    fn takes_back(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{schedule::Tick, transfer::candidates};

    #[test]
    fn the_share_of_the_steps_left_is_masked_again() {
        let tick = Tick { quota: 1, rate: 0.0 };
        let kept = |masks: usize, step: usize, steps: usize| {
            let left = 1.0 - (step + 1) as f64 / steps as f64;
            P2 {}.choose(&State { left, ..State::from(tick) }, &mut candidates(&vec![0.5; masks]))
        };
        assert_eq!([0, 1, 2, 3].map(|step| kept(8, step, 4)), [2, 4, 6, 8]);
        assert_eq!([0, 1, 22].map(|step| kept(12, step, 24)), [1, 1, 12], "what is left is rounded down");
        assert_eq!((kept(5, 9, 4), kept(0, 0, 4)), (5, 0), "behind the last step everything stays");
    }
}
