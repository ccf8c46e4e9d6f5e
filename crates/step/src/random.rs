//! Counter-based randomness: a draw depends on its purpose, never on when or where it is made.
//!
//! Keys are built from (seed, position, writes), where writes are the number of tokens given and of writes in the lane
//! so far. This is the number of its unmasked tokens where a commit is final. So a lossless decoder draws at each of
//! its verified states exactly the tokens that static decoding draws there, whatever the batch and the order of
//! evaluation (specs/freedave.md#8.3).

use crate::TokenId;

/// Purpose of a key: different uses of the same state must not correlate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Noise on the logits of a position; the token id is mixed in by the head.
    Token,
    /// The confidence of a position under `random` remasking.
    Confidence,
    /// Records whether a position is transferred (Dream's `origin`).
    Transfer,
    /// The order of positions under `alg_temp`.
    Order,
    /// Noise on the logits of a draft that has a distribution of its own; the token id is mixed in.
    Draft,
    /// Records whether such a draft is accepted.
    Check,
    /// Noise on the rest of the distribution where such a draft is refused; the token id is mixed in.
    Correction,
}

/// A well-mixed 64-bit key for one use at one position in one state of the canvas.
pub fn key(seed: u64, purpose: Use, position: u32, writes: u32) -> u64 {
    let place = (u64::from(position) << 32) | u64::from(writes);
    mix(mix(seed ^ ((purpose as u64 + 1) << 56)).wrapping_add(mix(place)))
}

/// Increment of the counter of SplitMix64 (Steele, Lea, Flood 2014).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64: a bijection that spreads every bit over all others.
#[inline(always)]
const fn finalise(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One step of SplitMix64: its increment, then its finaliser.
#[inline]
pub const fn mix(value: u64) -> u64 {
    finalise(value.wrapping_add(GOLDEN))
}

/// Random bits of one token in the row with this [`key`]: they depend neither on the batch nor on how the head's work is
/// divided.
#[inline]
pub fn token_bits(key: u64, token: TokenId) -> u64 {
    finalise(key.wrapping_add(u64::from(token).wrapping_mul(GOLDEN)))
}

/// The Gumbel number of one token in the row with this [`key`], of its [`token_bits`].
pub fn token_gumbel(key: u64, token: TokenId) -> f32 {
    gumbel(token_bits(key, token)) as f32
}

/// The lot of a position in a layer, of whose 64 bits any may be taken: [`Drift::Random`](crate::Drift::Random) chooses
/// rows by it.
pub fn lot(seed: u64, layer: u64, position: u64) -> u64 {
    mix(mix(seed ^ layer.wrapping_mul(GOLDEN)).wrapping_add(mix(position)))
}

/// A uniform number in the open interval (0, 1) from a key: never 0, so its logarithm is finite.
pub fn uniform(key: u64) -> f64 {
    ((key >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
}

/// A standard Gumbel number from a key.
pub fn gumbel(key: u64) -> f64 {
    -(-uniform(key).ln()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_stays_inside_the_open_interval() {
        assert!(uniform(0) > 0.0);
        assert!(uniform(u64::MAX) < 1.0);
    }

    #[test]
    fn bits_are_those_of_splitmix64() {
        // The first two numbers of the released program with seed 0.
        assert_eq!([token_bits(0, 1), token_bits(0, 2)], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        assert_eq!(mix(0), token_bits(0, 1));
    }

    #[test]
    fn keys_differ_in_each_part() {
        let base = key(1, Use::Token, 2, 3);
        for other in
            [key(2, Use::Token, 2, 3), key(1, Use::Order, 2, 3), key(1, Use::Token, 3, 3), key(1, Use::Token, 2, 4)]
        {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn gumbel_has_the_mean_of_the_distribution() {
        let count = 20_000u64;
        let mean = (0..count).map(|i| gumbel(mix(i))).sum::<f64>() / count as f64;
        assert!((mean - 0.577_215_664_9).abs() < 0.03, "mean {mean}");
    }
}
