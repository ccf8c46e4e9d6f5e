//! Norms, rotation, attention, head and row selection, one number after the other.

mod experts;
mod transformer;

pub use experts::Experts;
pub use transformer::{Layer, Mask, Partial, Slots, Transformer};

/// Reproducible numbers in (-1, 1).
pub fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 + 0.5) / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Panics unless all numbers agree to `tolerance`, relative to the largest expected one.
pub fn assert_near(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "how many numbers");
    let scale = expected.iter().fold(1e-20f32, |scale, value| scale.max(value.abs()));
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / scale;
        assert!(error <= tolerance, "number {index}: {found} instead of {expected}, {error} off");
    }
}

/// `x * rsqrt(mean(x^2) + epsilon) * weight`.
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    let mut sum = 0.0f64;
    for &value in x {
        sum += f64::from(value) * f64::from(value);
    }
    let scale = 1.0 / (sum / x.len() as f64 + f64::from(epsilon)).sqrt();
    x.iter().zip(weight).map(|(&value, &weight)| (f64::from(value) * scale * f64::from(weight)) as f32).collect()
}

/// Turns the pairs `(i, i + half)` of a head, `half` being the number of cosines; the rest stays.
pub fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    for i in 0..half {
        let (a, b) = (f64::from(head[i]), f64::from(head[i + half]));
        let (cos, sin) = (f64::from(cos[i]), f64::from(sin[i]));
        head[i] = (a * cos - b * sin) as f32;
        head[i + half] = (b * cos + a * sin) as f32;
    }
}

/// One head's attention of one query over a list of keys and their values.
pub fn attention(query: &[f32], keys: &[Vec<f32>], values: &[Vec<f32>]) -> Vec<f32> {
    let dot = |key: &Vec<f32>| -> f64 { query.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum() };
    let scale = 1.0 / (query.len() as f64).sqrt();
    let scores: Vec<f64> = keys.iter().map(|key| dot(key) * scale).collect();
    let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - best).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut out = vec![0.0f64; query.len()];
    for (weight, value) in weights.iter().zip(values) {
        for (out, &value) in out.iter_mut().zip(value) {
            *out += weight / sum * f64::from(value);
        }
    }
    out.into_iter().map(|value| value as f32).collect()
}

/// `a . b / (max(|a|, 1e-8) * max(|b|, 1e-8))`.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum() };
    (dot(a, b) / (dot(a, a).sqrt().max(1e-8) * dot(b, b).sqrt().max(1e-8))) as f32
}

/// Indices of the `keep` lowest scores, ascending; of equal scores the first.
pub fn lowest(scores: &[f32], keep: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    order.truncate(keep);
    order.sort_unstable();
    order
}

/// `softmax(logits / temperature)`; minus infinity weighs nothing.
pub fn softmax(logits: &[f32], temperature: f64) -> Vec<f64> {
    let best = logits.iter().fold(f32::NEG_INFINITY, |best, &logit| best.max(logit));
    let weights: Vec<f64> =
        logits.iter().map(|&logit| ((f64::from(logit) - f64::from(best)) / temperature).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Tokens by falling logit, ties by id.
pub fn falling(logits: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    order
}

/// Keeps the `k` best logits and all that tie with the last of them; the others become minus infinity. 0 keeps all.
pub fn top_k(logits: &mut [f32], k: usize) {
    if k == 0 || k >= logits.len() {
        return;
    }
    let last = logits[falling(logits)[k - 1]];
    logits.iter_mut().filter(|logit| **logit < last).for_each(|logit| *logit = f32::NEG_INFINITY);
}

/// Keeps tokens in falling order until the probability before one exceeds `p`; the others become minus infinity. 1
/// keeps all.
pub fn top_p(logits: &mut [f32], p: f64, temperature: f64) {
    if p >= 1.0 {
        return;
    }
    let probabilities = softmax(logits, temperature);
    let mut before = 0.0;
    for (rank, token) in falling(logits).into_iter().enumerate() {
        if rank > 0 && before > p {
            logits[token] = f32::NEG_INFINITY;
        }
        before += probabilities[token];
    }
}

/// Keeps logits up to a distance below the best one, which is 0 or less; the others become minus infinity.
pub fn min_p(logits: &mut [f32], reach: f32) {
    let bound = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max) + reach;
    logits.iter_mut().filter(|logit| **logit < bound).for_each(|logit| *logit = f32::NEG_INFINITY);
}

/// `-sum p ln p`.
pub fn entropy(probabilities: &[f64]) -> f64 {
    -probabilities.iter().filter(|&&p| p > 0.0).map(|p| p * p.ln()).sum::<f64>()
}

/// The largest logit's token, the lowest of several.
pub fn argmax(logits: &[f32]) -> usize {
    let mut best = 0;
    for token in 1..logits.len() {
        if logits[token] > logits[best] {
            best = token;
        }
    }
    best
}
