//! One row of logits: the draw, the distribution, and what else is asked.

use demask_tensor::{HeadRequest, gumbel_noise};

use super::{
    filter::{self, Scaled},
    statistics::{self, Statistics},
};
use crate::isa::Isa;

/// No noise is larger: `-ln(-ln(1 - 2^-53))` is below it.
const MOST_NOISE: f32 = 37.0;

/// What every row answers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) token: u32,
    pub(super) confidence: f32,
    pub(super) margin: f32,
    pub(super) entropy: f32,
}

impl Answer {
    /// To a request that asks for nothing but the best tokens of the plain distribution.
    pub(super) fn plain(statistics: &Statistics, request: &HeadRequest) -> Self {
        let Statistics { best, token, .. } = *statistics;
        let margin = if request.margin { statistics.margin(1.0) } else { 0.0 };
        Self { token, confidence: statistics.probability(best, 1.0), margin, entropy: 0.0 }
    }
}

/// A row of logits, its request, and where its lists go.
pub(super) struct Row<'a> {
    pub(super) isa: Isa,
    /// Logits, the forbidden ones minus infinity already.
    pub(super) values: &'a mut [f32],
    /// Of `values`, at temperature 1.
    pub(super) statistics: Statistics,
    pub(super) request: &'a HeadRequest,
    /// Key of the noise.
    pub(super) key: u64,
    /// Tokens to judge.
    pub(super) judge: &'a [u32],
    pub(super) judged: &'a mut [(u32, f32, f32)],
    pub(super) top: &'a mut [(u32, f32)],
    /// Scratch with room for the vocabulary.
    pub(super) order: &'a mut Vec<u32>,
}

/// The distribution that confidence, margin and entropy speak of.
struct Distribution<'a> {
    statistics: Statistics,
    inverse: f32,
    /// The tokens that pass the filter, best first, if there is one.
    passing: Option<&'a [u32]>,
}

impl Row<'_> {
    pub(super) fn answer(mut self) -> Answer {
        self.judge();
        let request = self.request;
        let inverse = if request.temperature > 0.0 { 1.0 / request.temperature } else { 1.0 };
        let filtered = !filter::passes_all(&request.filter, self.values.len());
        if filtered {
            let statistics = self.tempered(inverse);
            filter::passing(Scaled { values: self.values, statistics, inverse }, &request.filter, self.order);
        }
        let token = if request.temperature > 0.0 { self.draw(filtered) } else { self.statistics.token };
        for &muted in &request.mute {
            self.values[muted as usize] = f32::NEG_INFINITY;
        }
        let inverse = if request.drawn { inverse } else { 1.0 };
        if request.drawn && filtered {
            let values = &*self.values;
            self.order.retain(|&token| values[token as usize] > f32::NEG_INFINITY);
        }
        let top = std::mem::take(&mut self.top);
        let distribution = self.distribution(inverse, filtered);
        let answer = Answer {
            token,
            confidence: distribution.statistics.probability(self.values[token as usize], inverse),
            margin: if request.margin { distribution.statistics.margin(inverse) } else { 0.0 },
            entropy: if request.entropy { distribution.entropy(self.isa, self.values) } else { 0.0 },
        };
        distribution.top(self.values, top);
        answer
    }

    /// Rank, log-probability and the best probability of each judged token, of the plain distribution.
    fn judge(&mut self) {
        let Statistics { best, sum, .. } = self.statistics;
        for (judged, &token) in self.judged.iter_mut().zip(self.judge) {
            let value = self.values[token as usize];
            let (before, behind) = self.values.split_at(token as usize);
            let higher = before.iter().filter(|&&other| other >= value).count()
                + behind.iter().filter(|&&other| other > value).count();
            *judged = (higher as u32, (value - best) - sum.ln(), 1.0 / sum);
        }
    }

    fn tempered(&self, inverse: f32) -> Statistics {
        if inverse == 1.0 { self.statistics } else { Statistics::of_row(self.isa, self.values, inverse) }
    }

    /// The token with the largest noised logit among those that pass.
    fn draw(&self, filtered: bool) -> u32 {
        let Self { values, request, key, .. } = self;
        // The most probable token first: it sets a mark that most others cannot reach with any noise.
        let first = self.statistics.token;
        let noised = |token: u32| values[token as usize] / request.temperature + gumbel_noise(*key, token);
        let mut winner = (noised(first), first);
        let mut take = |token: u32| {
            if values[token as usize] / request.temperature + MOST_NOISE < winner.0 {
                return;
            }
            let score = noised(token);
            if score > winner.0 || score == winner.0 && token < winner.1 {
                winner = (score, token);
            }
        };
        if filtered {
            self.order.iter().copied().for_each(&mut take);
        } else {
            (0..values.len() as u32).for_each(&mut take);
        }
        winner.1
    }

    /// Of the values as they are now, the muted ones minus infinity.
    fn distribution(&self, inverse: f32, filtered: bool) -> Distribution<'_> {
        if self.request.drawn && filtered {
            return Distribution::of_passing(self.values, self.order, inverse);
        }
        let statistics = if self.request.mute.is_empty() {
            self.tempered(inverse)
        } else {
            Statistics::of_row(self.isa, self.values, inverse)
        };
        Distribution { statistics, inverse, passing: None }
    }
}

impl<'a> Distribution<'a> {
    fn of_passing(values: &[f32], passing: &'a [u32], inverse: f32) -> Self {
        let value = |rank: usize| passing.get(rank).map_or(f32::NEG_INFINITY, |&token| values[token as usize]);
        let mut statistics =
            Statistics { best: value(0), token: passing.first().copied().unwrap_or(0), second: value(1), sum: 1.0 };
        let weights = passing.iter().map(|&token| statistics.probability(values[token as usize], inverse));
        let sum = if passing.is_empty() { 0.0 } else { weights.map(f64::from).sum::<f64>() };
        statistics.sum = sum as f32;
        Self { statistics, inverse, passing: Some(passing) }
    }

    fn entropy(&self, isa: Isa, values: &[f32]) -> f32 {
        let Some(passing) = self.passing else {
            return statistics::entropy(isa, values, &self.statistics, self.inverse);
        };
        let part =
            |&token: &u32| statistics::entropy_part(self.statistics.probability(values[token as usize], self.inverse));
        passing.iter().map(part).map(f64::from).sum::<f64>() as f32
    }

    /// The best tokens; those that do not pass come last, with probability 0.
    fn top(&self, values: &[f32], top: &mut [(u32, f32)]) {
        let Some(last) = top.len().checked_sub(1) else { return };
        let passing = self.passing.unwrap_or(&[]);
        let known = passing.len().min(top.len());
        for (top, &token) in top.iter_mut().zip(passing) {
            *top = (token, values[token as usize]);
        }
        let rest = &mut top[known..];
        rest.fill((u32::MAX, f32::NEG_INFINITY));
        if !rest.is_empty() {
            for (token, &value) in values.iter().enumerate() {
                let full = rest[last - known].0 != u32::MAX;
                if full && value <= rest[last - known].1 || passing.contains(&(token as u32)) {
                    continue;
                }
                let better = |entry: &(u32, f32)| entry.0 != u32::MAX && entry.1 >= value;
                let at = rest.iter().take_while(|entry| better(entry)).count();
                rest[at..].rotate_right(1);
                rest[at] = (token as u32, value);
            }
        }
        let probability = |value: f32| self.statistics.probability(value, self.inverse);
        top[..known].iter_mut().for_each(|(_, value)| *value = probability(*value));
        let passes_all = self.passing.is_none();
        top[known..].iter_mut().for_each(|(_, value)| *value = if passes_all { probability(*value) } else { 0.0 });
    }
}
