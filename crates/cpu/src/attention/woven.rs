//! Queries on their way through woven pages, whichever instruction multiplies pairs of bf16.
//!
//! Keys are taken in strides of [`STRIDE`] from position 0 on, so that the softmax's sums across vectors, and loading and
//! storing of earlier sums, come once in a stride. Scores, their largest and the sums stay f32; weights are
//! rounded to bf16, and the rounded ones are summed: the divisor is the sum that was really added.

use std::mem::MaybeUninit;

use demask_tensor::PAGE;

use super::WOVEN_BATCH;
use crate::{
    elementwise::{Lanes, Operation, dispatch},
    isa::Isa,
    kv::MOST_PAIRED,
    linear::activation::round_bf16,
};

/// Pages of a stride.
pub(super) const STRIDE_PAGES: usize = 8;
/// Keys of a stride.
pub(super) const STRIDE: usize = STRIDE_PAGES * PAGE;
/// Queries that are multiplied at a time, at most.
pub(super) const MOST_AT_A_TIME: usize = 32;

/// Queries, and everything that is computed for them.
#[repr(align(64))]
pub(super) struct Batch {
    /// `[WOVEN_BATCH, head_dim]`, bf16; after the last one as many zeros as may be multiplied with it.
    pub(super) queries: [MaybeUninit<u16>; (WOVEN_BATCH + MOST_AT_A_TIME) * MOST_PAIRED],
    /// `[WOVEN_BATCH, head_dim]`: weighted sums of the values so far, relative to the largest scores; after the last one room for
    /// as many as are multiplied with it.
    pub(super) sums: [MaybeUninit<f32>; (WOVEN_BATCH + MOST_AT_A_TIME) * MOST_PAIRED],
    /// `[MOST_AT_A_TIME, STRIDE]`.
    pub(super) scores: [MaybeUninit<f32>; MOST_AT_A_TIME * STRIDE],
    /// `[MOST_AT_A_TIME, STRIDE]`, bf16.
    pub(super) weights: [MaybeUninit<u16>; MOST_AT_A_TIME * STRIDE],
    pub(super) states: [State; WOVEN_BATCH],
    pub(super) head_dim: usize,
    /// `head_dim^-0.5 / ln 2`: powers of two are quicker than those of e.
    pub(super) scale: f32,
    count: usize,
}

/// A query's state.
#[derive(Clone, Copy)]
pub(super) struct State {
    /// Visible keys.
    limit: usize,
    /// Largest score so far.
    pub(super) largest: f32,
    /// Sum of the weights so far, relative to the largest score.
    pub(super) weight: f32,
    /// Factor of the sums before the stride under way.
    pub(super) decay: f32,
}

/// Some pages of keys and values of one head.
#[derive(Clone, Copy)]
pub(super) struct Stride<'a> {
    /// Position of the first key, a multiple of the stride.
    pub(super) first: usize,
    /// Woven K and V of each page; those of pages that nobody sees are empty.
    pub(super) pages: [(&'a [u16], &'a [u16]); STRIDE_PAGES],
    /// Woven K of the page after them, or empty.
    pub(super) next: &'a [u16],
}

/// Neighbouring queries that see the same keys of a stride, at least one. Only they run together: no other number may
/// come near their sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) first: usize,
    pub(super) count: usize,
    /// Keys that they see, up to [`STRIDE`].
    pub(super) visible: usize,
    /// Records whether the batch's last query is among them.
    pub(super) is_last: bool,
}

impl Batch {
    /// An empty batch for heads of `head_dim`, a multiple of 16.
    #[expect(
        clippy::large_stack_arrays,
        reason = "on a thread's stack, where allocating is ruled out; not written here"
    )]
    pub(super) fn new(head_dim: usize) -> Self {
        assert!(head_dim.is_multiple_of(16) && head_dim <= MOST_PAIRED, "width of a head");
        Self {
            queries: [MaybeUninit::uninit(); (WOVEN_BATCH + MOST_AT_A_TIME) * MOST_PAIRED],
            sums: [MaybeUninit::uninit(); (WOVEN_BATCH + MOST_AT_A_TIME) * MOST_PAIRED],
            scores: [MaybeUninit::uninit(); MOST_AT_A_TIME * STRIDE],
            weights: [MaybeUninit::uninit(); MOST_AT_A_TIME * STRIDE],
            states: [State { limit: 0, largest: 0.0, weight: 0.0, decay: 0.0 }; WOVEN_BATCH],
            head_dim,
            scale: std::f32::consts::LOG2_E / (head_dim as f32).sqrt(),
            count: 0,
        }
    }

    /// Adds a query; there must be room.
    pub(super) fn push(&mut self, isa: Isa, query: &[f32], limit: usize) {
        assert_eq!(query.len(), self.head_dim, "width of a query");
        let place = self.count * self.head_dim..(self.count + 1) * self.head_dim;
        dispatch(isa, Begin { query, rounded: &mut self.queries[place.clone()], sums: &mut self.sums[place] });
        self.states[self.count] = State { limit, largest: f32::NEG_INFINITY, weight: 0.0, decay: 0.0 };
        self.count += 1;
    }

    /// Puts zeros after the last query, for instructions that take a fixed number of them.
    pub(super) fn pad(&mut self) {
        let end = self.count * self.head_dim;
        self.queries[end..end + MOST_AT_A_TIME * self.head_dim].fill(MaybeUninit::new(0));
        self.sums[end..end + MOST_AT_A_TIME * self.head_dim].fill(MaybeUninit::new(0.0));
    }

    pub(super) fn largest_limit(&self) -> usize {
        self.states[..self.count].iter().map(|state| state.limit).max().unwrap_or(0)
    }

    /// The queries from number `first` on that see the same keys of a stride, if any at all: those that see none are
    /// passed over.
    pub(super) fn next_set(&self, first: usize, stride: &Stride<'_>) -> Option<Set> {
        let visible = |state: &State| state.limit.saturating_sub(stride.first).min(STRIDE);
        let unseeing = self.states[first..self.count].iter().take_while(|state| visible(state) == 0).count();
        let first = first + unseeing;
        let seen = visible(self.states[..self.count].get(first)?);
        let count = self.states[first..self.count].iter().take_while(|state| visible(state) == seen).count();
        assert!(
            stride.pages[..seen.div_ceil(PAGE)]
                .iter()
                .all(|(keys, values)| { keys.len() == self.head_dim * PAGE && values.len() == self.head_dim * PAGE })
        );
        Some(Set { first, count, visible: seen, is_last: first + count == self.count })
    }

    /// Makes sums relative to the new largest scores. Where these are as before, so are the sums.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn decay(&mut self, set: Set) {
        let states = &self.states[set.first..][..set.count];
        let sums = self.sums[set.first * self.head_dim..].chunks_exact_mut(self.head_dim);
        for (state, sums) in states.iter().zip(sums).filter(|(state, _)| state.decay != 1.0) {
            for sum in sums {
                // SAFETY: sums were filled when the query was added, and only floats were written to them since.
                *sum = MaybeUninit::new(unsafe { sum.assume_init() } * state.decay);
            }
        }
    }

    /// Writes result after result, and empties the batch.
    pub(super) fn finish<'o>(&mut self, isa: Isa, mut out: impl FnMut(usize) -> &'o mut [f32]) {
        for (index, state) in self.states[..self.count].iter().enumerate() {
            let sums = &self.sums[index * self.head_dim..(index + 1) * self.head_dim];
            dispatch(isa, Finish { sums, factor: 1.0 / state.weight, out: out(index) });
        }
        self.count = 0;
    }
}

/// A query before its first key.
struct Begin<'a> {
    query: &'a [f32],
    rounded: &'a mut [MaybeUninit<u16>],
    sums: &'a mut [MaybeUninit<f32>],
}

impl Operation for Begin<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let to = self.rounded.iter_mut().zip(self.query);
        to.for_each(|(to, &value)| *to = MaybeUninit::new(round_bf16(value)));
        self.sums.fill(MaybeUninit::new(0.0));
    }
}

/// A query after its last key.
struct Finish<'a> {
    sums: &'a [MaybeUninit<f32>],
    factor: f32,
    out: &'a mut [f32],
}

impl Operation for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (out, sum) in self.out.iter_mut().zip(self.sums) {
            // SAFETY: sums were filled when the query was added, and only floats were written to them since.
            *out = unsafe { sum.assume_init() } * self.factor;
        }
    }
}
