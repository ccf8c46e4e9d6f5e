//! The masks that estimate a bound: how many tokens of a continuation are hidden, and which ones.

use demask_step::random::{mix, uniform};

/// Draws that LLaDA's script spreads evenly, and Dream's.
const LLADA_GROUP: usize = 8;
const DREAM_GROUP: usize = 32;
/// Dream's smallest probability of a mask.
const DREAM_LEAST: f64 = 1e-3;

/// A continuation with some of it masked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draw {
    /// Masked tokens, counted from the continuation's first, ascending.
    pub masked: Vec<usize>,
    /// Weight of the log-probabilities of the masked tokens.
    pub weight: f64,
}

/// Random numbers one after the other.
pub(super) struct Dice(u64);

impl Dice {
    /// Starts with a key.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// Draws a number in (0, 1).
    fn share(&mut self) -> f64 {
        self.0 = mix(self.0);
        uniform(self.0)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((self.share() * bound as f64) as usize).min(bound - 1)
    }
}

/// LLaDA's draws: `k` from 1 to the length is drawn for a group, whose members mask `k`, `k + length / group`, ... tokens
/// (around again from 1), each at random places. A single token leaves nothing to chance.
pub(super) fn llada_draws(length: usize, draws: usize, dice: &mut Dice) -> Vec<Draw> {
    let draws = if length == 1 { 1 } else { draws };
    let mut all = Vec::with_capacity(draws);
    let mut start = 1;
    for index in 0..draws {
        let group = LLADA_GROUP.min(draws);
        if index % group == 0 {
            start = 1 + dice.below(length);
        }
        let count = start as f64 + (index % group) as f64 * length as f64 / group as f64;
        let count = (count.round_ties_even() as usize - 1) % length + 1;
        let mut places: Vec<usize> = (0..length).collect();
        for place in 0..count {
            places.swap(place, place + dice.below(length - place));
        }
        places.truncate(count);
        places.sort_unstable();
        all.push(Draw { masked: places, weight: length as f64 / count as f64 / draws as f64 });
    }
    all
}

/// Dream's draws: the members of a group mask each token with probabilities that lie evenly around a circle.
pub(super) fn dream_draws(length: usize, draws: usize, dice: &mut Dice) -> Vec<Draw> {
    let group = DREAM_GROUP.min(draws);
    let mut start = 0.0;
    (0..draws)
        .map(|index| {
            if index % group == 0 {
                start = dice.share();
            }
            let time = (start + (index % group) as f64 / group as f64).fract();
            let probability = (1.0 - DREAM_LEAST) * time + DREAM_LEAST;
            let masked = (0..length).filter(|_| dice.share() < probability).collect();
            Draw { masked, weight: 1.0 / (probability * draws as f64) }
        })
        .collect()
}
