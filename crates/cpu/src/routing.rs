//! Routing of rows to experts, and the rows in the order of their experts.
//!
//! A row's choice depends on nothing but its logits. Pairs of a row and an expert are then counted per expert, so that
//! each expert is read once for all rows that chose it; a row's results find their way back by the number of the pair.

use demask_step::OutOfMemory;
use demask_tensor::{AlignedBytes, ExpertGroups, ExpertShape, RouterRule, Score, Share, WorkspaceShape};

use crate::{
    kv::memory,
    linear::{InputBuffer, Job, Linear, ROWS_BEHIND, activation::exp_f32},
};

/// Rows that choose together: each chosen expert is read once for them.
pub(crate) const PASS: usize = 512;

/// Memory of layers of experts, allocated once for the most that rows can choose.
pub(crate) struct ExpertWork {
    pub(crate) shape: ExpertShape,
    /// `[PASS, hidden]`: normed rows in f32, unrounded.
    pub(crate) normed: InputBuffer,
    /// `[PASS, experts]`: logits, then scores.
    pub(crate) scores: AlignedBytes,
    /// The chosen experts of each row and their weights.
    pub(crate) choices: Choices,
    /// Rows in the order of their experts.
    pub(crate) order: Order,
    /// `[PASS * taken, hidden]`: inputs in that order.
    pub(crate) gathered: InputBuffer,
    /// `[PASS * taken, expert ffn]`: what stands between the products.
    pub(crate) inner: InputBuffer,
    /// `[PASS * taken, hidden]`: what experts give, row by row.
    pub(crate) given: AlignedBytes,
    /// `[PASS, hidden]`: the shared expert's output, without rows if there is none.
    pub(crate) sums: AlignedBytes,
    /// `[PASS, hidden]` and `[PASS, shared ffn]`: inputs of the shared expert's products; no rows if there is none.
    pub(crate) shared: [InputBuffer; 2],
}

impl ExpertWork {
    pub(crate) fn new(
        of: &WorkspaceShape,
        shape: ExpertShape,
        [linear, router]: [&Linear; 2],
    ) -> Result<Self, OutOfMemory> {
        let rows = PASS.min(of.rows);
        let pairs = rows * shape.per_row;
        let failed = |bytes: usize| OutOfMemory { needed: bytes as u64, available: memory::available() };
        let floats = |count: usize| {
            let bytes = count * size_of::<f32>();
            AlignedBytes::try_zeroed(bytes).ok_or_else(|| failed(bytes))
        };
        let input = |linear: &Linear, rows: usize, width: usize| {
            linear.try_new_input(rows, width).ok_or_else(|| failed(rows * width * size_of::<f32>()))
        };
        let shared = if shape.shared_ffn > 0 { rows } else { 0 };
        Ok(Self {
            shape,
            normed: input(router, rows, of.hidden)?,
            scores: floats(rows * shape.count)?,
            choices: Choices { per_row: shape.per_row, experts: vec![0; pairs], weights: vec![0.0; pairs] },
            order: Order::new(shape.count, pairs),
            gathered: input(linear, pairs + ROWS_BEHIND, of.hidden)?,
            inner: input(linear, pairs + ROWS_BEHIND, shape.ffn)?,
            given: floats(pairs * of.hidden)?,
            sums: floats(shared * of.hidden)?,
            shared: [input(linear, shared, of.hidden)?, input(linear, shared, shape.shared_ffn)?],
        })
    }

    /// Numbers that it takes, roughly from above.
    pub(crate) fn floats(of: &WorkspaceShape, shape: ExpertShape) -> usize {
        let rows = PASS.min(of.rows);
        let pairs = rows * shape.per_row + ROWS_BEHIND;
        let by_row = 3 * of.hidden + shape.count + shape.shared_ffn + 64;
        let by_pair = 2 * of.hidden + shape.ffn + 64;
        // Rows of inputs end on odd lines, and are padded to tiles.
        (rows + 16) * by_row + (pairs + 16) * by_pair + 8 * shape.count
    }
}

/// Chosen experts.
pub(crate) struct Choices {
    /// Experts of a row.
    pub(crate) per_row: usize,
    /// `[rows, taken]`: ascending in each row.
    pub(crate) experts: Vec<u32>,
    /// `[rows, taken]`.
    pub(crate) weights: Vec<f32>,
}

/// Rule by which a row chooses.
#[derive(Clone, Copy)]
pub(crate) struct Router<'a> {
    pub(crate) rule: &'a RouterRule,
    pub(crate) bias: Option<&'a [f32]>,
}

impl Router<'_> {
    /// Turns a row's logits into scores, and writes its experts, ascending, with their weights. `ranked` is scratch for as
    /// many numbers. A row with a score that is not a number takes the first experts, with weights that are none.
    pub(crate) fn choose(&self, logits: &mut [f32], ranked: &mut [f32], experts: &mut [u32], weights: &mut [f32]) {
        let scores = logits;
        score(self.rule.score, scores);
        ranked.copy_from_slice(scores);
        if let Some(bias) = self.bias {
            ranked.iter_mut().zip(bias).for_each(|(ranked, bias)| *ranked += bias);
        }
        if ranked.iter().any(|value| value.is_nan()) {
            experts.iter_mut().zip(0..).for_each(|(expert, number)| *expert = number);
            weights.fill(f32::NAN);
            return;
        }
        if let Some(groups) = self.rule.groups {
            drop_groups(groups, ranked);
        }
        for expert in experts.iter_mut() {
            let best = best(ranked);
            // None again: whatever is no number was taken.
            ranked[best] = f32::NAN;
            *expert = best as u32;
        }
        experts.sort_unstable();
        weights.iter_mut().zip(&*experts).for_each(|(weight, &expert)| *weight = scores[expert as usize]);
        let divisor = match self.rule.share {
            Share::Whole => 1.0,
            Share::OfChosen(epsilon) => weights.iter().sum::<f32>() + epsilon,
        };
        for weight in weights.iter_mut() {
            *weight = *weight / divisor * self.rule.scale;
        }
    }
}

/// Makes scores of logits, in place.
fn score(score: Score, values: &mut [f32]) {
    match score {
        Score::Sigmoid => values.iter_mut().for_each(|value| *value = 1.0 / (1.0 + exp_f32(-*value))),
        Score::Softmax => {
            let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            for value in values.iter_mut() {
                *value = exp_f32(*value - most);
            }
            let sum: f32 = values.iter().sum();
            for value in values.iter_mut() {
                *value /= sum;
            }
        }
    }
}

/// Leaves only experts of the best groups to choose from.
fn drop_groups(groups: ExpertGroups, ranked: &mut [f32]) {
    let size = ranked.len() / groups.count;
    for group in 0..groups.count {
        // The best groups stay as they are: whatever was dropped before, they are better than those that are not.
        let worth = |group: usize| two_best(&ranked[group * size..][..size]);
        let own = worth(group);
        let is_better = |&other: &usize| {
            let worth = worth(other);
            worth > own || (worth == own && other < group)
        };
        if (0..groups.count).filter(is_better).count() >= groups.selected {
            ranked[group * size..][..size].fill(f32::NEG_INFINITY);
        }
    }
}

/// Sum of the two best.
fn two_best(members: &[f32]) -> f32 {
    let mut best = [f32::NEG_INFINITY; 2];
    for &value in members {
        if value > best[0] {
            best = [value, best[0]];
        } else if value > best[1] {
            best[1] = value;
        }
    }
    best[0] + best[1]
}

/// The first of the largest that are numbers; the very first if none is.
fn best(ranked: &[f32]) -> usize {
    let mut best = None;
    for (expert, &value) in ranked.iter().enumerate() {
        if !value.is_nan() && best.is_none_or(|(_, most)| value > most) {
            best = Some((expert, value));
        }
    }
    best.map_or(0, |(expert, _)| expert)
}

/// Pairs of a row and an expert, by ascending expert, each expert's by ascending row.
pub(crate) struct Order {
    /// `[pairs]`: numbers of pairs, `row * taken + place`.
    pub(crate) pairs: Vec<u32>,
    /// Index of the next pair of each expert.
    next: Vec<u32>,
    /// Experts that somebody chose, in jobs of a few rows.
    pub(crate) jobs: Vec<Job>,
    /// Experts that somebody chose, ascending.
    pub(crate) used: Vec<u32>,
}

impl Order {
    fn new(experts: usize, pairs: usize) -> Self {
        let jobs = experts + pairs / Job::MOST_ROWS;
        Self {
            pairs: Vec::with_capacity(pairs),
            next: vec![0; experts],
            jobs: Vec::with_capacity(jobs),
            used: Vec::with_capacity(experts),
        }
    }

    /// Puts pairs, given as the expert of each, in order.
    pub(crate) fn sort(&mut self, experts: &[u32]) {
        let Self { pairs, next, jobs, used } = self;
        next.fill(0);
        for &expert in experts {
            next[expert as usize] += 1;
        }
        jobs.clear();
        used.clear();
        let mut start = 0;
        for (expert, next) in (0..).zip(next.iter_mut()) {
            let count = std::mem::replace(next, start);
            if count > 0 {
                used.push(expert);
            }
            for first in (0..count).step_by(Job::MOST_ROWS) {
                let rows = (count - first).min(Job::MOST_ROWS as u32);
                jobs.push(Job { weight: expert, first_row: start + first, rows });
            }
            start += count;
        }
        pairs.clear();
        pairs.resize(experts.len(), 0);
        for (pair, &expert) in (0..).zip(experts) {
            let place = &mut next[expert as usize];
            pairs[*place as usize] = pair;
            *place += 1;
        }
    }
}

#[cfg(test)]
mod tests;
