//! Layers of experts: rows choose, experts multiply the rows that chose them, and each row sums their outputs.
//!
//! Every expert that some row chose is read once for a pass of rows. A row's results are kept apart, and summed in
//! ascending number of the expert, so that no sum depends on other rows or on threads.

use demask_tensor::{ExpertWeights, Rows};

use super::{
    CpuBackend, Parts, Tools,
    clock::Part,
    layer::Norm,
    workspace::{Workspace, scratch_width},
};
use crate::{
    elementwise::{Shared, for_ranges},
    linear::{InputBuffer, Output, Packed, PackedGateUp},
    pool::Pool,
    routing::{Choices, ExpertWork, PASS, Router},
};

/// Runs [`demask_tensor::Backend::experts`]. Returns the bytes of the experts that it read.
///
/// # Panics
/// If the workspace was made for another shape.
pub(super) fn run((tools, work): Parts<'_>, weights: &ExpertWeights<'_, CpuBackend>, rows: Rows) -> u64 {
    let width = scratch_width(&work.shape);
    let Workspace { prepared: taken, stream, scratch, experts, .. } = work;
    let Some(work) = experts else { panic!("a layer of experts in a workspace without room for any") };
    let norm = Norm { weight: weights.norm.as_slice(), epsilon: weights.epsilon };
    let (stream, scratch) = (stream.as_mut_slice::<f32>(), scratch.as_mut_slice::<f32>());
    let mut read = 0;
    for list in taken.list(rows).chunks(PASS) {
        let pass = Pass { tools, weights, rows: list.len(), hidden: norm.weight.len() };
        tools.normalise(list, norm, stream, scratch, &mut work.normed);
        pass.choose(work, scratch, width);
        work.order.sort(&work.choices.experts[..list.len() * work.shape.per_row]);
        tools.clock.time(Part::Linear, || pass.multiply(work));
        pass.sum(work, (scratch, width), (stream, list));
        let bytes = |&expert: &u32| weights.gate_up[expert as usize].bytes() + weights.down[expert as usize].bytes();
        read += work.order.used.iter().map(bytes).sum::<usize>() as u64;
    }
    read
}

/// Rows that go through a layer of experts together.
#[derive(Clone, Copy)]
struct Pass<'a> {
    tools: &'a Tools,
    weights: &'a ExpertWeights<'a, CpuBackend>,
    rows: usize,
    hidden: usize,
}

impl Pass<'_> {
    /// Lets each row choose.
    fn choose(&self, work: &mut ExpertWork, scratch: &mut [f32], width: usize) {
        let Tools { pool, router, .. } = self.tools;
        let ExpertWork { shape, normed, scores, choices, .. } = work;
        let scores = scores.as_mut_slice::<f32>();
        let store = Output::Store { out: &mut *scores, stride: shape.count };
        router.matmul(pool, normed, self.rows, self.weights.router, None, store);
        let rule = Router { rule: self.weights.rule, bias: self.weights.bias.map(super::Vector::as_slice) };
        let Choices { per_row: taken, experts, weights } = choices;
        let (scores, scratch) = (Shared::new(scores), Shared::new(scratch));
        let (experts, weights) = (Shared::new(experts), Shared::new(weights));
        for_ranges(pool, self.rows, pool.threads(), |part, range| {
            // SAFETY: the part is this task's alone.
            let ranked = unsafe { scratch.row(part, width) };
            for row in range {
                // SAFETY: each row is in one range.
                let (scores, experts, weights) =
                    unsafe { (scores.row(row, shape.count), experts.row(row, *taken), weights.row(row, *taken)) };
                rule.choose(scores, &mut ranked[..shape.count], experts, weights);
            }
        });
    }

    /// The products of the chosen experts, one row for each pair of a row and an expert, and of the shared one.
    fn multiply(&self, work: &mut ExpertWork) {
        let Tools { pool, linear, .. } = self.tools;
        let ExpertWork { normed, choices, order, gathered, inner, given, .. } = work;
        let taken = choices.per_row;
        gather(pool, gathered, order.pairs.len(), |place| normed.floats(order.pairs[place] as usize / taken));
        linear.gate_up_each(pool, gathered, &order.jobs, self.weights.gate_up, inner);
        let (given, hidden, pairs) = (Shared::new(given.as_mut_slice::<f32>()), self.hidden, &order.pairs);
        linear.sums_each(pool, inner, &order.jobs, self.weights.down, &|sums| {
            let first = sums.first_column();
            for row in 0..sums.rows {
                let start = pairs[sums.first_row + row] as usize * hidden;
                let values = sums.row(row);
                let count = values.len().min(hidden - first);
                // SAFETY: sums come for each block once, and each pair has one place.
                let out = unsafe { given.part(start + first..start + first + count) };
                out.copy_from_slice(&values[..count]);
            }
        });
        if let Some(shared) = self.weights.shared {
            self.multiply_shared(shared, work);
        }
    }

    /// The products of the shared expert.
    fn multiply_shared(&self, (gate_up, down): (&PackedGateUp, &Packed), work: &mut ExpertWork) {
        let Tools { pool, linear, .. } = self.tools;
        let ExpertWork { normed, sums, shared: [input, inner], .. } = work;
        gather(pool, input, self.rows, |row| normed.floats(row));
        linear.gate_up(pool, input, self.rows, gate_up, inner);
        let output = Output::Store { out: sums.as_mut_slice(), stride: self.hidden };
        linear.matmul(pool, inner, self.rows, down, None, output);
    }

    /// Adds to the residual stream what each row was given: by ascending expert, then by the shared one.
    fn sum(&self, work: &ExpertWork, (scratch, width): (&mut [f32], usize), (stream, list): (&mut [f32], &[u32])) {
        let ExpertWork { choices: Choices { per_row: taken, weights, .. }, given, sums, .. } = work;
        let (given, shared) = (given.as_slice::<f32>(), sums.as_slice::<f32>());
        let (hidden, pool) = (self.hidden, &self.tools.pool);
        let (stream, scratch) = (Shared::new(stream), Shared::new(scratch));
        for_ranges(pool, self.rows, pool.threads(), |part, range| {
            // SAFETY: the part is this task's alone.
            let sum = &mut unsafe { scratch.row(part, width) }[..hidden];
            for row in range {
                sum.fill(0.0);
                for pair in row * *taken..(row + 1) * *taken {
                    let (weight, given) = (weights[pair], &given[pair * hidden..][..hidden]);
                    sum.iter_mut().zip(given).for_each(|(sum, given)| *sum += weight * given);
                }
                if self.weights.shared.is_some() {
                    sum.iter_mut().zip(&shared[row * hidden..][..hidden]).for_each(|(sum, given)| *sum += given);
                }
                // SAFETY: each row is in one range, and rows of a list differ.
                let target = unsafe { stream.row(list[row] as usize, hidden) };
                target.iter_mut().zip(&*sum).for_each(|(target, sum)| *target += sum);
            }
        });
    }
}

/// Writes rows into an input, each rounded by itself.
fn gather<'r>(pool: &Pool, input: &mut InputBuffer, rows: usize, row_of: impl Fn(usize) -> &'r [f32] + Sync) {
    let writer = input.writer();
    for_ranges(pool, rows, pool.threads(), |_, range| {
        for row in range {
            // SAFETY: each row is in one range.
            unsafe { writer.set_row(row, row_of(row)) }
        }
    });
}
