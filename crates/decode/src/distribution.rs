//! Distributions that rows of logits stand for, where decoding draws by itself: those that the head draws from, by the same
//! rules.

use std::cmp::Ordering;

use demask_step::{
    ConfidenceOf, FilterOrder, HeadRequest, NO_TOKEN, Position, Predictions, Sampling, TokenId, TokenScore,
    random::{gumbel, token_bits, token_gumbel},
};

/// Tokens that may be drawn, by ascending id, each with its share of 1; empty if nothing may be.
#[derive(Debug, Default)]
pub(crate) struct Distribution {
    shares: Vec<(TokenId, f32)>,
}

impl Distribution {
    /// One with room for a vocabulary.
    pub(crate) fn with_capacity(vocab: usize) -> Self {
        Self { shares: Vec::with_capacity(vocab) }
    }

    /// Leaves nothing to draw.
    pub(crate) fn clear(&mut self) {
        self.shares.clear();
    }

    /// Returns the share of a token; 0 if it may not be drawn.
    pub(crate) fn share(&self, token: TokenId) -> f64 {
        let found = self.shares.binary_search_by_key(&token, |share| share.0);
        found.map_or(0.0, |index| f64::from(self.shares[index].1))
    }

    /// Returns the most probable token, the lowest of several.
    pub(crate) fn best(&self) -> Option<TokenId> {
        best(self.shares.iter().map(|&(token, share)| (token, f64::from(share))))
    }

    /// Draws a token by the noise of a key.
    pub(crate) fn draw(&self, key: u64) -> Option<TokenId> {
        let noisy = |&(token, share): &(TokenId, f32)| (token, f64::from(share).ln() + gumbel(token_bits(key, token)));
        best(self.shares.iter().filter(|share| share.1 > 0.0).map(noisy))
    }

    /// Becomes what one distribution has more of than another, or the first one if it has nothing more. Shares need not sum to 1
    /// then: a draw does not depend on their sum.
    pub(crate) fn beyond(&mut self, one: &Self, other: &Self) {
        self.shares.clear();
        let more = |&(token, share): &(TokenId, f32)| (token, (f64::from(share) - other.share(token)) as f32);
        self.shares.extend(one.shares.iter().map(more).filter(|more| more.1 > 0.0));
        if self.shares.is_empty() {
            self.shares.extend_from_slice(&one.shares);
        }
    }
}

/// Answer of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowAnswer {
    /// The token; none if nothing may be predicted.
    pub token: TokenId,
    /// Its probability.
    pub confidence: f32,
    /// The best token's probability minus the second's.
    pub margin: f32,
    /// Entropy of the distribution, in nats.
    pub entropy: f32,
    /// Largest logit, sum of weights and temperature of the distribution.
    scale: (f32, f64, f32),
}

/// The largest of some logits.
fn most(left: &[(TokenId, f32)]) -> f32 {
    left.iter().map(|left| left.1).fold(f32::NEG_INFINITY, f32::max)
}

/// The token of the largest score, the first of several.
fn best(scores: impl Iterator<Item = (TokenId, f64)>) -> Option<TokenId> {
    let larger = |best: (TokenId, f64), next: (TokenId, f64)| if next.1 > best.1 { next } else { best };
    scores.reduce(larger).map(|best| best.0)
}

/// Reader of rows of logits as a request to the head means them.
#[derive(Debug)]
pub(crate) struct RowReader {
    wanted: HeadRequest,
    vocab: usize,
    /// Tokens of a row with their logits.
    left: Vec<(TokenId, f32)>,
}

impl RowReader {
    /// Reads rows of this vocabulary.
    pub(crate) fn new(wanted: HeadRequest, vocab: usize) -> Self {
        Self { wanted, vocab, left: Vec::with_capacity(vocab) }
    }

    /// Returns the logits that predict a position in the first lane, if they were asked for.
    pub(crate) fn of<'p>(&self, predictions: &'p Predictions, position: Position) -> Option<&'p [f32]> {
        let start = predictions.index(0, position)? * self.vocab;
        predictions.logits.get(start..start + self.vocab)
    }

    /// Fills in the distribution that the head draws from: tempered, filtered, without forbidden tokens.
    pub(crate) fn filtered(&mut self, logits: &[f32], into: &mut Distribution) {
        let temperature = self.wanted.sampling.temperature;
        self.read(logits);
        self.filter(logits, temperature);
        self.share(temperature, into);
    }

    /// Keeps the tokens that pass the filters, by ascending id: at least the first token that may be predicted, with
    /// all before it.
    fn filter(&mut self, logits: &[f32], temperature: f32) {
        let sampling = self.wanted.sampling;
        if !sampling.filters(self.vocab) {
            return;
        }
        match sampling.order {
            FilterOrder::TopKFirst => {
                keep_best(&mut self.left, sampling.top_k);
                keep_probable(&mut self.left, sampling.top_p, temperature);
            }
            FilterOrder::TopPFirst => {
                keep_probable(&mut self.left, sampling.top_p, temperature);
                keep_best(&mut self.left, sampling.top_k);
            }
        }
        let bound = most(&self.left) + sampling.reach();
        self.left.retain(|left| left.1.partial_cmp(&bound) != Some(Ordering::Less));
        if !self.left.iter().any(|&(token, _)| self.wanted.allows(token)) {
            self.read(logits);
            let allowed = self.left.iter().copied().filter(|&(token, _)| self.wanted.allows(token));
            if let Some(first) = allowed.min_by(|&left, &right| better(left, right)) {
                self.left.retain(|&left| better(left, first).is_le());
            }
        }
        self.left.sort_unstable_by_key(|left| left.0);
    }

    /// Answers a row as a head does, with the draw of this key.
    pub(crate) fn answer(&mut self, logits: &[f32], key: u64) -> RowAnswer {
        let Sampling { temperature, confidence, .. } = self.wanted.sampling;
        let (draws, drawn) = (temperature > 0.0, confidence == ConfidenceOf::Drawn);
        let tempered = if draws { temperature } else { 1.0 };
        self.read(logits);
        if draws || drawn {
            self.filter(logits, tempered);
        }
        let allowed = self.left.iter().filter(|left| self.wanted.allows(left.0));
        let score = |&(token, logit): &(TokenId, f32)| {
            (token, if draws { f64::from(logit / temperature + token_gumbel(key, token)) } else { f64::from(logit) })
        };
        let token = best(allowed.map(score)).unwrap_or(NO_TOKEN);
        // Filters say what is drawn, and no more, unless the confidence speaks of the draw.
        if draws && !drawn {
            self.read(logits);
        }
        let logit = logits.get(token as usize).copied().unwrap_or(f32::NAN);
        self.measure(token, logit, if drawn { tempered } else { 1.0 })
    }

    /// Measures a token in the distribution of the tokens left, at a temperature.
    fn measure(&mut self, token: TokenId, logit: f32, temperature: f32) -> RowAnswer {
        let wanted = &self.wanted;
        self.left.retain(|left| wanted.zero_confidence.binary_search(&left.0).is_err());
        let most = most(&self.left);
        let scaled = |logit: f32| f64::from(logit - most) / f64::from(temperature);
        let (mut sum, mut moment) = (0.0, 0.0);
        let [mut first, mut second] = [f32::NEG_INFINITY; 2];
        for &(token, logit) in &self.left {
            let (distance, weight) = (scaled(logit), scaled(logit).exp());
            (sum, moment) = (sum + weight, moment + distance * weight);
            if wanted.allows(token) {
                (first, second) = if logit > first { (logit, first) } else { (first, second.max(logit)) };
            }
        }
        let share = |logit: f32| if sum > 0.0 { scaled(logit).exp() / sum } else { 0.0 };
        let is_left = self.left.binary_search_by_key(&token, |left| left.0).is_ok();
        let confidence = if !logit.is_finite() {
            f64::NAN
        } else if is_left {
            share(logit)
        } else {
            0.0
        };
        let entropy = if sum > 0.0 { sum.ln() - moment / sum } else { 0.0 };
        RowAnswer {
            token,
            confidence: confidence as f32,
            margin: (share(first) - share(second)) as f32,
            entropy: entropy as f32,
            scale: (most, sum, temperature),
        }
    }

    /// Fills in the best tokens of a row that was answered last, best first, with the shares that this answer's distribution has.
    pub(crate) fn list(&mut self, logits: &[f32], answer: &RowAnswer, into: &mut [(TokenId, f32)]) {
        let (most, sum, temperature) = answer.scale;
        let mut listed: Vec<(TokenId, f32)> = (0..)
            .zip(logits.iter().copied())
            .filter(|&(token, logit)| {
                logit > f32::NEG_INFINITY
                    && self.wanted.allows(token)
                    && self.wanted.zero_confidence.binary_search(&token).is_err()
            })
            .collect();
        let count = into.len().min(listed.len());
        if count > 0 && count < listed.len() {
            listed.select_nth_unstable_by(count - 1, |&left, &right| better(left, right));
        }
        listed.truncate(count);
        listed.sort_unstable_by(|&left, &right| better(left, right));
        let left = |token: TokenId| self.left.binary_search_by_key(&token, |left| left.0).is_ok();
        let share = |logit: f32| ((f64::from(logit - most) / f64::from(temperature)).exp() / sum) as f32;
        let told = listed.iter().map(|&(token, logit)| (token, if left(token) { share(logit) } else { 0.0 }));
        for (place, told) in into.iter_mut().zip(told.chain(std::iter::repeat((NO_TOKEN, 0.0)))) {
            *place = told;
        }
    }

    /// Judges a token by the softmax of a row.
    pub(crate) fn score(&mut self, logits: &[f32], token: TokenId) -> TokenScore {
        self.read(logits);
        let most = most(&self.left);
        let sum: f64 = self.left.iter().map(|left| f64::from(left.1 - most).exp()).sum();
        let log = |logit: f32| (f64::from(logit - most) - sum.ln()) as f32;
        let found = self.left.binary_search_by_key(&token, |left| left.0).ok().map(|index| self.left[index]);
        let allowed = || self.left.iter().copied().filter(|left| self.wanted.allows(left.0));
        let best = allowed().map(|left| left.1).fold(f32::NEG_INFINITY, f32::max);
        let rank = match found.filter(|found| self.wanted.allows(found.0)) {
            Some(found) => allowed().filter(|&left| better(left, found).is_lt()).count(),
            // Behind all that may be predicted, by their ids.
            None => allowed().count() + token as usize - allowed().filter(|left| left.0 < token).count(),
        };
        TokenScore {
            rank: rank as u32,
            log_probability: if most.is_finite() {
                found.map_or(f32::NEG_INFINITY, |found| log(found.1))
            } else {
                f32::NAN
            },
            best: log(best).exp(),
        }
    }

    /// Fills in the softmax of the logits divided by the temperature `times` times, without filters and without
    /// forbidden tokens.
    pub(crate) fn spread(&mut self, logits: &[f32], times: i32, into: &mut Distribution) {
        self.read(logits);
        self.share(self.wanted.sampling.temperature.powi(times), into);
    }

    /// Returns the probability that the head gives a token: among all tokens that weigh anything, or in `drawn`, the
    /// distribution that it is drawn from.
    pub(crate) fn confidence(&self, logits: &[f32], token: TokenId, drawn: &Distribution) -> f32 {
        if self.wanted.sampling.confidence == ConfidenceOf::Drawn {
            return drawn.share(token) as f32;
        }
        let mutes = |token: &TokenId| self.wanted.zero_confidence.binary_search(token).is_ok();
        let weighing =
            || (0..).zip(logits).filter(|(token, logit)| !logit.is_nan() && !mutes(token)).map(|found| *found.1);
        let most = f64::from(weighing().fold(f32::NEG_INFINITY, f32::max));
        let weight = |logit: f32| (f64::from(logit) - most).exp();
        let own = logits.get(token as usize).filter(|_| !mutes(&token)).map_or(0.0, |&logit| weight(logit));
        (own / weighing().map(weight).sum::<f64>()) as f32
    }

    /// Reads the tokens that a distribution knows, by ascending id.
    fn read(&mut self, logits: &[f32]) {
        self.left.clear();
        let known = |&(token, logit): &(TokenId, f32)| {
            let muted = self.wanted.zero_confidence.binary_search(&token).is_ok();
            logit > f32::NEG_INFINITY && (!muted || self.wanted.allows(token))
        };
        self.left.extend((0..).zip(logits.iter().copied()).filter(known));
    }

    /// Shares 1 among the tokens that are left and may be predicted.
    fn share(&mut self, temperature: f32, into: &mut Distribution) {
        self.left.retain(|&(token, _)| self.wanted.allows(token));
        let most = most(&self.left);
        let weight = |logit: f32| (f64::from(logit - most) / f64::from(temperature)).exp();
        let sum: f64 = self.left.iter().map(|left| weight(left.1)).sum();
        into.shares.clear();
        into.shares.extend(self.left.iter().map(|&(token, logit)| (token, (weight(logit) / sum) as f32)));
    }
}

/// Order of tokens by their logits: the largest first, of equal ones the lowest id.
pub(crate) fn better(left: (TokenId, f32), right: (TokenId, f32)) -> Ordering {
    right.1.total_cmp(&left.1).then(left.0.cmp(&right.0))
}

/// Keeps the `k` best tokens, in any order, and those that tie with the last of them; 0 keeps all.
fn keep_best(left: &mut Vec<(TokenId, f32)>, k: u32) {
    if let Some(last) = (k as usize).checked_sub(1).filter(|&last| last < left.len()) {
        let (_, &mut (_, last), _) = left.select_nth_unstable_by(last, |&left, &right| better(left, right));
        left.retain(|left| left.1 >= last);
    }
}

/// Keeps tokens, best first, until the probability of those before one exceeds `p`; 1 keeps all.
fn keep_probable(left: &mut Vec<(TokenId, f32)>, p: f32, temperature: f32) {
    if p >= 1.0 {
        return;
    }
    left.sort_unstable_by(|&left, &right| better(left, right));
    let Some(&(_, most)) = left.first() else { return };
    let weight = |left: &(TokenId, f32)| (f64::from(left.1 - most) / f64::from(temperature)).exp();
    let bound = f64::from(p) * left.iter().map(weight).sum::<f64>();
    let mut before = 0.0;
    let passes = |left: &&(TokenId, f32)| {
        let passes = before <= bound;
        before += weight(left);
        passes
    };
    let kept = left.iter().take_while(passes).count();
    left.truncate(kept);
}

#[cfg(test)]
mod tests {
    use demask_testkit::naive;

    use super::*;

    fn rows(sampling: Sampling, banned: &[TokenId]) -> RowReader {
        RowReader::new(HeadRequest { sampling, banned: banned.to_vec().into(), ..HeadRequest::default() }, 5)
    }

    fn shares(sampling: Sampling, banned: &[TokenId]) -> Vec<(TokenId, f32)> {
        let mut found = Distribution::default();
        rows(sampling, banned).filtered(&[0.0, 2.0, f32::NAN, 1.0, 1.0], &mut found);
        found.shares
    }

    #[test]
    fn filters_leave_what_the_head_leaves() {
        let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
        let tokens =
            |sampling, banned: &[TokenId]| shares(sampling, banned).iter().map(|share| share.0).collect::<Vec<_>>();
        assert_eq!(tokens(sampling, &[]), [0, 1, 3, 4]);
        assert_eq!(tokens(sampling, &[1]), [0, 3, 4]);
        assert_eq!(tokens(Sampling { top_k: 2, ..sampling }, &[]), [1, 3, 4], "equal logits pass together");
        assert_eq!(tokens(Sampling { top_p: 0.6, ..sampling }, &[]), [1, 3]);
        assert_eq!(tokens(Sampling { top_k: 1, ..sampling }, &[1]), [3], "the best that may be predicted passes");
        let sum: f32 =
            shares(Sampling { top_k: 2, temperature: 0.7, ..sampling }, &[]).iter().map(|share| share.1).sum();
        assert!((sum - 1.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_left_of_a_refused_draft_is_what_the_text_has_more_of() {
        let of = |shares: &[(TokenId, f32)]| Distribution { shares: shares.to_vec() };
        let (p, q) = (of(&[(0, 0.4), (1, 0.6)]), of(&[(0, 0.8), (1, 0.2)]));
        let mut rest = Distribution::default();
        rest.beyond(&p, &q);
        assert_eq!(rest.shares.iter().map(|share| share.0).collect::<Vec<_>>(), [1]);
        rest.beyond(&p, &p);
        assert_eq!(rest.shares, p.shares, "nothing is left: the text's own");
        assert_eq!((p.best(), p.share(7), Distribution::default().draw(1)), (Some(1), 0.0, None));
    }

    #[test]
    fn rows_are_answered_as_the_head_answers_them() {
        let logits: Vec<f32> = naive::network::noise(60, 4).iter().map(|logit| logit * 4.0).collect();
        let (mut close, mut all) = (0, 0);
        for (top_k, top_p, min_p) in naive::head::FILTERS {
            for (index, temperature) in [0.0, 0.4, 1.6].into_iter().enumerate() {
                for confidence in [ConfidenceOf::Raw, ConfidenceOf::Drawn] {
                    for order in [FilterOrder::TopKFirst, FilterOrder::TopPFirst] {
                        let best = naive::network::argmax(&logits) as TokenId;
                        let lists = [vec![], vec![best], vec![7, best]];
                        for (banned, zero_confidence) in lists
                            .iter()
                            .flat_map(|banned| lists.iter().map(move |zero_confidence| (banned, zero_confidence)))
                        {
                            let sampling = Sampling { temperature, top_k, top_p, min_p, order, confidence, seed: 0 };
                            let mut zero_confidence = zero_confidence.clone();
                            zero_confidence.sort_unstable();
                            let mut banned = banned.clone();
                            banned.sort_unstable();
                            let request = HeadRequest {
                                sampling,
                                banned: banned.into(),
                                zero_confidence: zero_confidence.into(),
                                ..HeadRequest::default()
                            };
                            let expected = naive::head::answer(&logits, &request, 9 + index as u64, &[2, best]);
                            all += 1;
                            if expected.close {
                                close += 1;
                                continue;
                            }
                            let mut rows = RowReader::new(request.clone(), logits.len());
                            let found = rows.answer(&logits, 9 + index as u64);
                            let near = |found: f32, expected: f64| (f64::from(found) - expected).abs() < 1e-5;
                            assert_eq!(found.token, expected.token, "{request:?}");
                            assert!(
                                near(found.confidence, expected.confidence),
                                "{found:?} for {expected:?} by {request:?}"
                            );
                            assert!(near(found.margin, expected.margin) && near(found.entropy, expected.entropy));
                            let mut top = [(NO_TOKEN, 0.0); 3];
                            rows.list(&logits, &found, &mut top);
                            for (found, expected) in top.iter().zip(&expected.top) {
                                assert!(found.0 == expected.0 && near(found.1, expected.1), "{top:?}");
                            }
                            for (token, &(rank, log_probability, share)) in [2, best].into_iter().zip(&expected.judged)
                            {
                                let found = rows.score(&logits, token);
                                assert_eq!(found.rank, rank, "{request:?}");
                                assert!(near(found.best, share));
                                assert!(
                                    found.log_probability == f32::NEG_INFINITY
                                        || near(found.log_probability, log_probability)
                                );
                            }
                        }
                    }
                }
            }
        }
        assert!(close * 10 < all, "{close} of {all} are a matter of rounding");
    }

    #[test]
    fn confidence_is_the_heads() {
        let logits = [0.0, 2.0, f32::NAN, 1.0, 1.0];
        let reader = rows(Sampling { temperature: 0.5, ..Sampling::default() }, &[1]);
        let sum = 1.0 + 2f32.exp() + 2.0 * 1f32.exp();
        let found = reader.confidence(&logits, 3, &Distribution::default());
        assert!((found - 1f32.exp() / sum).abs() < 1e-6, "a forbidden token keeps its share: {found}");
    }
}
