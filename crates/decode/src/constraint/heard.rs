//! Predictions under a constraint: scores of tokens, the best one that is admitted, and what it is worth.

use std::{cmp::Reverse, collections::BinaryHeap};

use demask_step::{ConfidenceOf, HeadAsk, HeadRequest, Position, Predictions, TokenId, random};

use super::tokens::Scores;
use crate::distribution::{Distribution, RowReader};

/// Score of a token of no probability, so that every filling has a finite sum. A token that a filter leaves out is that
/// much worse than one that it keeps.
const FLOOR: f64 = -1e4;

/// Least probability of a predicted token by which another one's is measured: smaller numbers have fewer digits.
const LEAST_KNOWN: f32 = 1e-30;

/// Distance that rounding cannot bridge: the head's own token is the best one.
const NEXT_BEST: f64 = -1.0 / (1 << 20) as f64;

/// Tokens whose largest logit is looked at first.
const BLOCK: usize = 64;
/// Tokens that are tried one by one, from the best on, before all are compared.
const TRIES: usize = 64;

/// A network's predictions, and the request that they answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard<'a> {
    pub predictions: &'a Predictions,
    pub ask: &'a HeadAsk,
}

impl Heard<'_> {
    /// Returns the index of a lane's position, and its row of logits.
    pub(crate) fn row(&self, lane: usize, position: Position, vocab: usize) -> Option<(usize, &[f32])> {
        let index = self.predictions.index(lane, position)?;
        Some((index, self.predictions.logits.get(index * vocab..(index + 1) * vocab)?))
    }

    /// Returns the best token that `admits` takes, the one that [`fill`](Self::fill) gives the highest score. None where that
    /// takes more than a few tries, and where scores are not in the order of the logits.
    pub(super) fn best_admitted(
        &self,
        (lane, position): (usize, Position),
        vocab: usize,
        admits: impl Fn(TokenId) -> bool,
    ) -> Option<TokenId> {
        let (index, logits) = self.row(lane, position, vocab)?;
        let wanted = &self.ask.wanted;
        let drawn = *self.predictions.tokens.get(index)?;
        let most = f64::from(*logits.get(drawn as usize).filter(|logit| logit.is_finite())?);
        if wanted.sampling.temperature > 0.0 {
            return None;
        }
        // Distances from the best one are never negative, nor a negative zero: their bits are in their order.
        let distance = |logit: f32| (most - f64::from(logit) + 0.0).to_bits();
        let blocks = || (0..).step_by(BLOCK).zip(logits.chunks(BLOCK));
        let largest = |logits: &[f32]| {
            logits.iter().fold(f32::NEG_INFINITY, |most, &logit| if logit > most { logit } else { most })
        };
        if blocks().any(|(_, logits)| f64::from(largest(logits)) > most) {
            return None;
        }
        // The least distance first: of a block before it is opened, then of single tokens, the lowest of several.
        let block = |(first, logits): (TokenId, &[f32])| Reverse((distance(largest(logits)), false, first));
        let mut open: BinaryHeap<Reverse<(u64, bool, TokenId)>> = blocks().map(block).collect();
        let mut tries = TRIES;
        while let Some(Reverse((found, is_token, token))) = open.pop() {
            if f64::from_bits(found) >= -FLOOR || tries == 0 {
                return None;
            }
            if !is_token {
                let tokens = (token..).zip(&logits[token as usize..]).take(BLOCK).filter(|(_, logit)| !logit.is_nan());
                open.extend(tokens.map(|(token, &logit)| Reverse((distance(logit), true, token))));
            } else if token != drawn && wanted.allows(token) {
                if found == 0 && token < drawn {
                    return None;
                }
                if admits(token) {
                    return Some(token);
                }
                tries -= 1;
            }
        }
        None
    }

    /// Fills in the scores of a position: the logarithm of a token's probability less the logarithm for the token that
    /// the head drew, which is the best one. Nothing if no row of logits says more.
    pub(super) fn fill(&self, lane: usize, position: Position, vocab: usize, scores: &mut Scores) -> Option<()> {
        let (index, logits) = self.row(lane, position, vocab)?;
        let drawn = *self.predictions.tokens.get(index)?;
        let wanted = &self.ask.wanted;
        let temperature = wanted.sampling.temperature;
        let key = self.ask.key(lane, position);
        let value = |(token, &logit): (TokenId, &f32)| {
            let value = if temperature > 0.0 { logit / temperature + random::token_gumbel(key, token) } else { logit };
            if value.is_nan() { f64::NEG_INFINITY } else { f64::from(value) }
        };
        let best = logits.get(drawn as usize).map(|logit| value((drawn, logit))).filter(|best| best.is_finite());
        let best =
            best.unwrap_or_else(|| (0..).zip(logits).map(value).filter(|value| value.is_finite()).fold(0.0, f64::max));
        let left = (temperature > 0.0 && wanted.sampling.filters(vocab)).then(|| {
            let mut left = Distribution::with_capacity(vocab);
            RowReader::new(wanted.clone(), vocab).filtered(logits, &mut left);
            left
        });
        let score = |(token, logit): (TokenId, &f32)| {
            let score = (value((token, logit)) - best).max(FLOOR);
            if score > 0.0 || score == 0.0 && token < drawn { NEXT_BEST } else { score }
        };
        scores.fill(|of| {
            of.extend((0..).zip(logits).map(score));
            let mut leave_out = |token: TokenId| {
                let Some(logit) = logits.get(token as usize).filter(|_| token != drawn) else { return };
                of[token as usize] = (value((token, logit)) - best).max(FLOOR) + FLOOR;
            };
            wanted.refused(vocab).for_each(&mut leave_out);
            if let Some(left) = left {
                (0..vocab as TokenId).filter(|&token| left.share(token) <= 0.0).for_each(leave_out);
            }
            if let Some(score) = of.get_mut(drawn as usize) {
                *score = 0.0;
            }
        });
        Some(())
    }

    /// Returns the probability of a token as the head measures it; none if no row of logits says it.
    pub(super) fn confidence(&self, lane: usize, position: Position, token: TokenId, vocab: usize) -> Option<f32> {
        let index = self.predictions.index(lane, position)?;
        if self.predictions.tokens.get(index) == Some(&token) {
            return self.predictions.confidence.get(index).copied();
        }
        let (_, logits) = self.row(lane, position, vocab)?;
        if let Some(confidence) = self.beside_predicted(index, logits, token) {
            return Some(confidence);
        }
        let mut rows = RowReader::new(self.wanted_of_all(), vocab);
        let mut drawn = Distribution::default();
        if self.ask.wanted.sampling.confidence == ConfidenceOf::Drawn {
            rows.filtered(logits, &mut drawn);
        }
        Some(rows.confidence(logits, token, &drawn))
    }

    /// Returns the probability of a token by the predicted one's: both are of one softmax where no filter is between them. None
    /// where the predicted one's says too little.
    fn beside_predicted(&self, index: usize, logits: &[f32], token: TokenId) -> Option<f32> {
        let wanted = self.wanted_of_all();
        let logit = |token: TokenId| logits.get(token as usize).copied().filter(|logit| logit.is_finite());
        let probability =
            self.predictions.confidence.get(index).filter(|&&known| known > LEAST_KNOWN && known <= 1.0)?;
        let is_drawn = wanted.sampling.confidence == ConfidenceOf::Drawn;
        let weighs = |&token: &TokenId| {
            wanted.zero_confidence.binary_search(&token).is_err() && (!is_drawn || wanted.allows(token))
        };
        let predicted = self.predictions.tokens.get(index).filter(|token| weighs(token))?;
        if wanted.sampling.filters(logits.len()) || !weighs(&token) {
            return None;
        }
        let temperature = if is_drawn { f64::from(wanted.sampling.temperature) } else { 1.0 };
        let distance = f64::from(logit(token)?) - f64::from(logit(*predicted)?);
        Some((f64::from(*probability) * (distance / temperature).exp()).min(1.0) as f32)
    }

    /// The request, at a temperature that distributions have.
    fn wanted_of_all(&self) -> HeadRequest {
        let mut wanted = self.ask.wanted.clone();
        if wanted.sampling.temperature == 0.0 {
            wanted.sampling.temperature = 1.0;
        }
        wanted
    }

    /// Measures a prediction by the distribution over these tokens alone.
    pub(super) fn renormalise(&self, lane: usize, position: Position, among: &[bool], read: &mut Predictions) {
        let Some((index, logits)) = self.row(lane, position, among.len()) else { return };
        let sampling = self.ask.wanted.sampling;
        let tempered = sampling.confidence == ConfidenceOf::Drawn && sampling.temperature > 0.0;
        let temperature = if tempered { f64::from(sampling.temperature) } else { 1.0 };
        let allowed = || {
            logits
                .iter()
                .zip(among)
                .map(|(&logit, &is_in)| if is_in && !logit.is_nan() { f64::from(logit) } else { f64::NEG_INFINITY })
        };
        let most = allowed().fold(f64::NEG_INFINITY, f64::max);
        if !most.is_finite() {
            return;
        }
        let weight = |logit: f64| ((logit - most) / temperature).exp();
        let sum: f64 = allowed().map(weight).sum();
        let own = allowed().nth(read.tokens[index] as usize).map_or(0.0, weight);
        if let Some(confidence) = read.confidence.get_mut(index) {
            *confidence = (own / sum) as f32;
        }
        if let Some(margin) = read.margin.get_mut(index) {
            let (mut first, mut second) = (0.0, 0.0);
            for weight in allowed().map(weight) {
                if weight > first {
                    (first, second) = (weight, first);
                } else if weight > second {
                    second = weight;
                }
            }
            *margin = ((first - second) / sum) as f32;
        }
        if let Some(entropy) = read.entropy.get_mut(index) {
            let shares = allowed().map(|logit| weight(logit) / sum).filter(|&share| share > 0.0);
            *entropy = shares.map(|share| -share * share.ln()).sum::<f64>() as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use demask_step::Positions;
    use demask_testkit::property;
    use proptest::prelude::*;

    use super::*;

    /// The best of the tokens that are admitted, by the scores of all.
    fn best_of_all(heard: Heard<'_>, vocab: usize, admits: impl Fn(TokenId) -> bool) -> Option<TokenId> {
        let mut scores = Scores::default();
        heard.fill(0, 0, vocab, &mut scores)?;
        let admitted = (0..).zip(scores.of_tokens()).filter(|(token, _)| admits(*token));
        admitted.max_by(|left, right| left.1.total_cmp(right.1).then(right.0.cmp(&left.0))).map(|(token, _)| token)
    }

    proptest! {
        #![proptest_config(property::cases(2_000))]

        /// Logits of few values, so that many are equal, NaN and infinities among them.
        #[test]
        fn the_best_admitted_token_is_that_of_all_scores(
            logits in prop::collection::vec(prop::sample::select(&[
                f32::NAN, f32::NEG_INFINITY, -3e4, -2.5, -1e-30, 0.0, -0.0, 1e-30, 0.5, 7.25, 7.5,
            ][..]), 1..300),
            every in 1u32..90,
            limit in prop::option::of(1u32..300),
        ) {
            let drawn = (0..).zip(&logits).max_by(|left, right| {
                let of = |logit: f32| if logit.is_nan() { f32::NEG_INFINITY } else { logit + 0.0 };
                of(*left.1).total_cmp(&of(*right.1)).then(right.0.cmp(&left.0))
            });
            let drawn: TokenId = drawn.map_or(0, |(token, _)| token);
            let vocab = logits.len();
            let mut positions = Positions::default();
            positions.set_range(0..1);
            let predictions = Predictions {
                lanes: 1, positions, tokens: vec![drawn], confidence: vec![0.5], logits, ..Predictions::default()
            };
            let mut ask = HeadAsk::default();
            ask.wanted.limit = limit;
            let heard = Heard { predictions: &predictions, ask: &ask };
            let admits = |token: TokenId| token != drawn && token % every == every - 1;
            if let Some(found) = heard.best_admitted((0, 0), vocab, admits) {
                prop_assert_eq!(Some(found), best_of_all(heard, vocab, admits));
            }
        }
    }

    #[test]
    fn a_token_near_the_best_is_found_by_a_few_tries() {
        let logits: Vec<f32> = (0..1000).map(|token| -((token * 7 % 1000) as f32)).collect();
        let mut positions = Positions::default();
        positions.set_range(0..1);
        let tokens = vec![0];
        let predictions = Predictions { lanes: 1, positions, tokens, logits, ..Predictions::default() };
        let heard = Heard { predictions: &predictions, ask: &HeadAsk::default() };
        let tried = std::cell::Cell::new(0);
        let admits = |nth: usize| {
            tried.set(tried.get() + 1);
            tried.get() == nth
        };
        // Logits of -1, -2 and -3 are 143 tokens apart.
        assert_eq!(heard.best_admitted((0, 0), 1000, |_| admits(3)), Some(3 * 143));
        tried.set(0);
        assert_eq!((heard.best_admitted((0, 0), 1000, |_| admits(TRIES + 1)), tried.get()), (None, TRIES));
    }
}
