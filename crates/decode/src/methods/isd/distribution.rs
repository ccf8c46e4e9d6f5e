//! Distributions that rows of logits stand for, where decoding draws by itself: those that the head draws from, by the same
//! rules.

use std::cmp::Ordering;

use demask_step::{
    ConfidenceOf, FilterOrder, HeadRequest, Position, Predictions, Sampling, TokenId,
    random::{gumbel, token_bits},
};

/// Tokens that may be drawn, by ascending id, each with its share of 1; empty if nothing may be.
#[derive(Debug, Default)]
pub(super) struct Distribution {
    shares: Vec<(TokenId, f32)>,
}

impl Distribution {
    /// One with room for a vocabulary.
    pub(super) fn with_capacity(vocab: usize) -> Self {
        Self { shares: Vec::with_capacity(vocab) }
    }

    /// Leaves nothing to draw.
    pub(super) fn clear(&mut self) {
        self.shares.clear();
    }

    /// Returns the share of a token; 0 if it may not be drawn.
    pub(super) fn share(&self, token: TokenId) -> f64 {
        let found = self.shares.binary_search_by_key(&token, |share| share.0);
        found.map_or(0.0, |index| f64::from(self.shares[index].1))
    }

    /// Returns the most probable token, the lowest of several.
    pub(super) fn best(&self) -> Option<TokenId> {
        best(self.shares.iter().map(|&(token, share)| (token, f64::from(share))))
    }

    /// Draws a token by the noise of a key.
    pub(super) fn draw(&self, key: u64) -> Option<TokenId> {
        let noisy = |&(token, share): &(TokenId, f32)| (token, f64::from(share).ln() + gumbel(token_bits(key, token)));
        best(self.shares.iter().filter(|share| share.1 > 0.0).map(noisy))
    }

    /// Becomes what one distribution has more of than another, or the first one if it has nothing more. Shares need not sum to 1
    /// then: a draw does not depend on their sum.
    pub(super) fn beyond(&mut self, one: &Self, other: &Self) {
        self.shares.clear();
        let more = |&(token, share): &(TokenId, f32)| (token, (f64::from(share) - other.share(token)) as f32);
        self.shares.extend(one.shares.iter().map(more).filter(|more| more.1 > 0.0));
        if self.shares.is_empty() {
            self.shares.extend_from_slice(&one.shares);
        }
    }
}

/// The token of the largest score, the first of several.
fn best(scores: impl Iterator<Item = (TokenId, f64)>) -> Option<TokenId> {
    let larger = |best: (TokenId, f64), next: (TokenId, f64)| if next.1 > best.1 { next } else { best };
    scores.reduce(larger).map(|best| best.0)
}

/// Reader of rows of logits as a request to the head means them.
#[derive(Debug)]
pub(super) struct Rows {
    wanted: HeadRequest,
    vocab: usize,
    /// Tokens of a row with their logits.
    left: Vec<(TokenId, f32)>,
}

impl Rows {
    /// Reads rows of this vocabulary.
    pub(super) fn new(wanted: HeadRequest, vocab: usize) -> Self {
        Self { wanted, vocab, left: Vec::with_capacity(vocab) }
    }

    /// Returns the logits that predict a position in the first lane, if they were asked for.
    pub(super) fn of<'p>(&self, predictions: &'p Predictions, position: Position) -> Option<&'p [f32]> {
        let start = predictions.index(0, position)? * self.vocab;
        predictions.logits.get(start..start + self.vocab)
    }

    /// Fills in the distribution that the head draws from: tempered, filtered, without what is forbidden.
    pub(super) fn filtered(&mut self, logits: &[f32], into: &mut Distribution) {
        self.read(logits);
        let Sampling { temperature, top_k, top_p, order, .. } = self.wanted.sampling;
        if top_k > 0 || top_p < 1.0 {
            let allowed = self.left.iter().copied().filter(|&(token, _)| self.wanted.allows(token));
            let first = allowed.min_by(|&left, &right| better(left, right));
            match order {
                FilterOrder::TopKFirst => {
                    keep_best(&mut self.left, top_k);
                    keep_probable(&mut self.left, top_p, temperature);
                }
                FilterOrder::TopPFirst => {
                    keep_probable(&mut self.left, top_p, temperature);
                    keep_best(&mut self.left, top_k);
                }
            }
            if !self.left.iter().any(|&(token, _)| self.wanted.allows(token)) {
                self.left.extend(first);
            }
            self.left.sort_unstable_by_key(|left| left.0);
        }
        self.share(temperature, into);
    }

    /// Fills in the softmax of the logits divided by the temperature so many times, without filters and what is forbidden.
    pub(super) fn spread(&mut self, logits: &[f32], times: i32, into: &mut Distribution) {
        self.read(logits);
        self.share(self.wanted.sampling.temperature.powi(times), into);
    }

    /// Returns the probability that the head gives a token: of all that weighs anything, or of `drawn`, what it is drawn from.
    pub(super) fn confidence(&self, logits: &[f32], token: TokenId, drawn: &Distribution) -> f32 {
        if self.wanted.sampling.confidence == ConfidenceOf::Drawn {
            return drawn.share(token) as f32;
        }
        let mutes = |token: &TokenId| self.wanted.mute.binary_search(token).is_ok();
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
            let muted = self.wanted.mute.binary_search(&token).is_ok();
            logit > f32::NEG_INFINITY && (!muted || self.wanted.allows(token))
        };
        self.left.extend((0..).zip(logits.iter().copied()).filter(known));
    }

    /// Shares 1 among what is left and may be predicted.
    fn share(&mut self, temperature: f32, into: &mut Distribution) {
        self.left.retain(|&(token, _)| self.wanted.allows(token));
        let most = self.left.iter().map(|left| left.1).fold(f32::NEG_INFINITY, f32::max);
        let weight = |logit: f32| (f64::from(logit - most) / f64::from(temperature)).exp();
        let sum: f64 = self.left.iter().map(|left| weight(left.1)).sum();
        into.shares.clear();
        into.shares.extend(self.left.iter().map(|&(token, logit)| (token, (weight(logit) / sum) as f32)));
    }
}

/// Order of tokens by their logits: the largest first, of equal ones the lowest id.
fn better(left: (TokenId, f32), right: (TokenId, f32)) -> Ordering {
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
    use super::*;

    fn rows(sampling: Sampling, forbid: &[TokenId]) -> Rows {
        Rows::new(HeadRequest { sampling, forbid: forbid.to_vec().into(), ..HeadRequest::default() }, 5)
    }

    fn shares(sampling: Sampling, forbid: &[TokenId]) -> Vec<(TokenId, f32)> {
        let mut found = Distribution::default();
        rows(sampling, forbid).filtered(&[0.0, 2.0, f32::NAN, 1.0, 1.0], &mut found);
        found.shares
    }

    #[test]
    fn filters_leave_what_the_head_leaves() {
        let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
        let tokens =
            |sampling, forbid: &[TokenId]| shares(sampling, forbid).iter().map(|share| share.0).collect::<Vec<_>>();
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
    fn confidence_is_the_heads() {
        let logits = [0.0, 2.0, f32::NAN, 1.0, 1.0];
        let reader = rows(Sampling { temperature: 0.5, ..Sampling::default() }, &[1]);
        let sum = 1.0 + 2f32.exp() + 2.0 * 1f32.exp();
        let found = reader.confidence(&logits, 3, &Distribution::default());
        assert!((found - 1f32.exp() / sum).abs() < 1e-6, "a forbidden token keeps its share: {found}");
    }
}
