//! Drawn seeds, for answers without a seed of their own.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::Options;

/// Draws a seed from the system's randomness. It has 52 bits: every reader of JSON takes it as it is written.
pub fn drawn() -> u64 {
    // Each state has keys of its own, drawn from the system.
    RandomState::new().build_hasher().finish() >> 12
}

impl Options {
    /// Draws a seed for an answer whose tokens, or their order, are drawn at a temperature above 0 and that has none, and returns
    /// it. Other answers keep seed 0.
    pub fn draw_seed(&mut self) -> Option<u64> {
        let is_above = |temperature: Option<f32>| temperature.is_some_and(|temperature| temperature > 0.0);
        let draws = is_above(self.temperature) || is_above(self.alg_temp);
        let seed = (draws && self.seed.is_none()).then(drawn)?;
        self.seed = Some(seed);
        Some(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_drawn_where_tokens_are_and_none_is_named() {
        let drawn = |mut options: Options| options.draw_seed();
        let warm = Options { temperature: Some(1.0), ..Options::default() };
        let seeds: std::collections::HashSet<_> = (0..50).map(|_| drawn(warm.clone()).unwrap()).collect();
        assert_eq!(seeds.len(), 50);
        assert!(seeds.iter().all(|seed| seed >> 52 == 0));
        assert!(drawn(Options { alg_temp: Some(0.5), ..Options::default() }).is_some());
        for options in
            [Options { seed: Some(3), ..warm.clone() }, Options { temperature: Some(0.0), ..warm }, Options::default()]
        {
            assert_eq!(drawn(options), None);
        }
    }
}
