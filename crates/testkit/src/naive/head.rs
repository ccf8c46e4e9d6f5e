//! The head: the answers of a row of logits to a request, from the definition, in f64.

use demask_step::{ConfidenceOf, FilterOrder, HeadRequest, Sampling, TokenId, random::token_gumbel};

use super::network::{argmax, entropy, falling, min_p, softmax, top_k, top_p};

/// Filters under which heads are compared with the definition: top-k, top-p, min-p.
pub const FILTERS: [(u32, f32, f32); 11] = [
    (0, 1.0, 0.0),
    (3, 1.0, 0.0),
    (0, 0.9, 0.0),
    (4, 0.5, 0.0),
    (60, 0.99, 0.0),
    (0, 0.0, 0.0),
    (1, 1.0, 0.0),
    (0, 1.0, 0.1),
    (0, 1.0, 1.0),
    (5, 0.99, 0.2),
    (0, 0.8, 0.01),
];

/// Answer of a row: all that a head may be asked, wanted or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The token.
    pub token: TokenId,
    /// Its probability.
    pub confidence: f64,
    /// The best token's probability minus the second's.
    pub margin: f64,
    /// The entropy of the distribution.
    pub entropy: f64,
    /// All tokens, best first, with their probabilities; those that weigh nothing or are forbidden come last.
    pub top: Vec<(TokenId, f64)>,
    /// Rank, natural-log probability, and the best token's probability, of each judged token.
    pub judged: Vec<(u32, f64, f64)>,
    /// Records whether rounding decides which tokens a filter leaves out.
    pub close: bool,
}

/// Answers a request by a row of logits. A logit that is not a number counts as minus infinity. Where the chosen logit is
/// infinite, of whichever sign, nothing was predicted: the confidence is not a number.
pub fn answer(logits: &[f32], request: &HeadRequest, key: u64, judge: &[TokenId]) -> Answer {
    let Sampling { temperature: given, confidence, .. } = request.sampling;
    let draws = given > 0.0;
    let temperature = if draws { f64::from(given) } else { 1.0 };
    let numbers = logits.iter().map(|&logit| if logit.is_nan() { f32::NEG_INFINITY } else { logit }).collect();
    let all = without(numbers, |token| request.zero_confidence.contains(&token) && !request.allows(token));
    let allowed = |values: &[f32]| without(values.to_vec(), |token| !request.allows(token));
    let weighing = |values: &[f32]| without(values.to_vec(), |token| request.zero_confidence.contains(&token));

    let drawn = confidence == ConfidenceOf::Drawn;
    let (filtered, close) = if draws || drawn { filter(&all, request, temperature) } else { (all.clone(), false) };
    let token = if draws {
        let scores =
            allowed(&filtered).into_iter().zip(0..).map(|(logit, token)| logit / given + token_gumbel(key, token));
        argmax(&scores.collect::<Vec<_>>())
    } else {
        argmax(&allowed(&all))
    };

    let (speaks, temperature) = if drawn { (weighing(&filtered), temperature) } else { (weighing(&all), 1.0) };
    let shares = probabilities(&speaks, temperature);
    let share = |token: usize| if request.allows(token as TokenId) { shares[token] } else { 0.0 };
    let best = falling(&allowed(&speaks));
    let place = |rank: usize| best.get(rank).map_or(0.0, |&token| share(token));
    let listed = falling(&allowed(&weighing(&all)));
    Answer {
        token: token as TokenId,
        confidence: if allowed(&all)[token].is_finite() { share(token) } else { f64::NAN },
        margin: place(0) - place(1),
        entropy: entropy(&shares),
        top: listed.into_iter().map(|token| (token as TokenId, share(token))).collect(),
        judged: judge.iter().map(|&token| judged(&all, &allowed(&all), token as usize)).collect(),
        close,
    }
}

/// Logits of which some are minus infinity.
fn without(mut logits: Vec<f32>, is_out: impl Fn(TokenId) -> bool) -> Vec<f32> {
    let out = logits.iter_mut().zip(0..).filter(|(_, token)| is_out(*token));
    out.for_each(|(logit, _)| *logit = f32::NEG_INFINITY);
    logits
}

/// `softmax(logits / temperature)`; zeros where nothing weighs anything.
fn probabilities(logits: &[f32], temperature: f64) -> Vec<f64> {
    if logits.iter().all(|&logit| logit == f32::NEG_INFINITY) {
        return vec![0.0; logits.len()];
    }
    softmax(logits, temperature)
}

/// What all filters leave, and at least the first token that may be predicted with all before it; and whether rounding
/// decides.
fn filter(logits: &[f32], request: &HeadRequest, temperature: f64) -> (Vec<f32>, bool) {
    let Sampling { top_k: k, top_p: p, order, .. } = request.sampling;
    let mut left = logits.to_vec();
    let mut close = false;
    if logits.iter().any(|&logit| logit > f32::NEG_INFINITY) {
        let mut share = |left: &mut Vec<f32>| {
            close |= p < 1.0 && is_close(left, f64::from(p), temperature);
            top_p(left, f64::from(p), temperature);
        };
        match order {
            FilterOrder::TopKFirst => {
                top_k(&mut left, k as usize);
                share(&mut left);
            }
            FilterOrder::TopPFirst => {
                share(&mut left);
                top_k(&mut left, k as usize);
            }
        }
        min_p(&mut left, request.sampling.reach());
    }
    let order = falling(logits);
    let first = order.iter().position(|&token| request.allows(token as TokenId)).map_or(0, |rank| rank + 1);
    order[..first].iter().for_each(|&token| left[token] = logits[token]);
    (left, close)
}

/// Whether the sum of some best tokens is nearly `p`.
fn is_close(logits: &[f32], p: f64, temperature: f64) -> bool {
    let (shares, mut before) = (softmax(logits, temperature), 0.0f64);
    falling(logits).into_iter().any(|token| {
        let close = before > 0.0 && (before - p).abs() < 1e-5;
        before += shares[token];
        close
    })
}

/// Rank among what may be predicted, log-probability among all, and the best probability of what may be predicted.
fn judged(all: &[f32], allowed: &[f32], token: usize) -> (u32, f64, f64) {
    let most = |values: &[f32]| f64::from(values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let logarithm = |logit: f64| {
        if !most(all).is_finite() {
            return f64::NAN;
        }
        if logit == f64::NEG_INFINITY {
            return logit;
        }
        let sum: f64 = all.iter().map(|&other| (f64::from(other) - most(all)).exp()).sum();
        logit - most(all) - sum.ln()
    };
    let rank = falling(allowed).iter().position(|&other| other == token).unwrap_or(all.len());
    // Where nothing has a share, the best share is none.
    let best = if most(all) == f64::NEG_INFINITY { 0.0 } else { logarithm(most(allowed)).exp() };
    (rank as u32, logarithm(f64::from(all[token])), best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
    }

    /// Token 1 of logits 0, 2, 1, by all four combinations of the two lists.
    #[test]
    fn forbidden_tokens_keep_their_share_and_muted_ones_their_turn() {
        let of = |banned: &[u32], zero_confidence: &[u32]| {
            let request = HeadRequest {
                banned: banned.to_vec().into(),
                zero_confidence: zero_confidence.to_vec().into(),
                ..HeadRequest::default()
            };
            answer(&[0.0, 2.0, 1.0], &request, 0, &[1, 2])
        };
        let weights: [f64; 3] = [1.0, 2f64.exp(), 1f64.exp()];
        let (whole, rest) = (weights.iter().sum::<f64>(), weights[0] + weights[2]);
        let [plain, forbidden, muted, both] = [of(&[], &[]), of(&[1], &[]), of(&[], &[1]), of(&[1], &[1])];
        assert_eq!([&plain, &forbidden, &muted, &both].map(|answer| answer.token), [1, 2, 1, 2]);
        near(plain.confidence, weights[1] / whole);
        near(forbidden.confidence, weights[2] / whole);
        near(muted.confidence, 0.0);
        near(both.confidence, weights[2] / rest);
        near(forbidden.margin, (weights[2] - weights[0]) / whole);
        near(both.margin, (weights[2] - weights[0]) / rest);
        near(forbidden.entropy, plain.entropy);
        near(both.entropy, muted.entropy);
        assert_eq!(forbidden.top[0].0, 2);
        assert_eq!(forbidden.judged.iter().map(|judged| judged.0).collect::<Vec<_>>(), [2, 0]);
        near(forbidden.judged[0].1, (weights[1] / whole).ln());
        near(forbidden.judged[1].2, weights[2] / whole);
    }

    #[test]
    fn a_filter_that_only_a_forbidden_token_passes_lets_the_best_other_one_pass() {
        let sampling = Sampling { top_k: 1, confidence: ConfidenceOf::Drawn, ..Sampling::default() };
        let request = HeadRequest { banned: vec![1].into(), sampling, ..HeadRequest::default() };
        let found = answer(&[0.0, 2.0, 1.0], &request, 0, &[]);
        assert_eq!(found.token, 2);
        near(found.confidence, 1.0 / (1.0 + 1f64.exp()));
    }
}
