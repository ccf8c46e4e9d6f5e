//! Norms, rotation and rounding of single rows, and the tools that the other operations share: vectors of any
//! instruction set, and memory that many tasks write at once.
//!
//! Sums have one fixed order, which depends on the width of the row alone: neither on its neighbours nor on threads.

mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod round;
mod share;

#[cfg(test)]
pub(crate) use lanes::Portable;
pub(crate) use lanes::{Element, LANES, Lanes, Operation, dispatch};
pub(crate) use round::copy_rounded;
use round::round_all;
pub(crate) use share::{Shared, for_ranges};

use crate::isa::Isa;

/// `out = x * rsqrt(mean(x^2) + epsilon) * weight`.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn rms_norm(isa: Isa, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "lengths of a norm");
    dispatch(isa, RmsNorm { x, weight, epsilon, out });
}

/// Applies the norm in place.
pub(crate) fn rms_norm_in_place(isa: Isa, x: &mut [f32], weight: &[f32], epsilon: f32) {
    assert_eq!(x.len(), weight.len(), "lengths of a norm");
    dispatch(isa, RmsNormInPlace { x, weight, epsilon });
}

struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    epsilon: f32,
    out: &'a mut [f32],
}

impl Operation for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { x, weight, epsilon, out } = self;
        let scale = norm_scale(x, epsilon);
        out.iter_mut().zip(x).zip(weight).for_each(|((out, x), weight)| *out = x * scale * weight);
    }
}

struct RmsNormInPlace<'a> {
    x: &'a mut [f32],
    weight: &'a [f32],
    epsilon: f32,
}

impl Operation for RmsNormInPlace<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { x, weight, epsilon } = self;
        let scale = norm_scale(x, epsilon);
        x.iter_mut().zip(weight).for_each(|(x, weight)| *x = *x * scale * weight);
    }
}

/// `rsqrt(mean(x^2) + epsilon)`.
#[inline(always)]
fn norm_scale(x: &[f32], epsilon: f32) -> f32 {
    let mean = products(x, x) / x.len() as f32;
    1.0 / (mean + epsilon).sqrt()
}

/// Sum of products, in [`LANES`] partial sums that are then added pair by pair.
#[inline(always)]
fn products(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (a_tiles, b_tiles) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a_tiles.remainder().iter().zip(b_tiles.remainder());
    for (a, b) in a_tiles.clone().zip(b_tiles.clone()) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter_mut().zip(rest).for_each(|(sum, (a, b))| *sum += a * b);
    sum_lanes(sums)
}

/// Adds the lanes pair by pair.
#[inline(always)]
pub(crate) fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// The largest lane; a NaN may be passed over.
#[inline(always)]
pub(crate) fn max_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            let other = lanes[lane + width];
            lanes[lane] = if lanes[lane] > other { lanes[lane] } else { other };
        }
        width /= 2;
    }
    lanes[0]
}

/// `a . b / (max(|a|, 1e-8) * max(|b|, 1e-8))`.
pub(crate) fn cosine(isa: Isa, a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "lengths of a cosine");
    dispatch(isa, Cosine { a, b })
}

struct Cosine<'a> {
    a: &'a [f32],
    b: &'a [f32],
}

impl Operation for Cosine<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f32 {
        let norms = products(self.a, self.a).sqrt().max(1e-8) * products(self.b, self.b).sqrt().max(1e-8);
        products(self.a, self.b) / norms
    }
}

/// Cosines and sines of all positions, and how much of a head they turn.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    /// `[positions, rotated / 2]`.
    pub(crate) cos: Vec<f32>,
    /// `[positions, rotated / 2]`.
    pub(crate) sin: Vec<f32>,
    /// Half of the turned numbers.
    pub(crate) half: usize,
}

/// Treatment of each head of q and k after the projection.
#[derive(Clone, Copy)]
pub(crate) struct HeadFinish<'a> {
    pub(crate) isa: Isa,
    /// Width of a head.
    pub(crate) head_dim: usize,
    /// Norm over the head: weight and epsilon.
    pub(crate) norm: Option<(&'a [f32], f32)>,
    pub(crate) rotation: &'a Rotation,
    /// Records whether the result is rounded to bf16.
    pub(crate) round: bool,
}

impl HeadFinish<'_> {
    /// Norms, turns and rounds all heads of one row at `position`.
    pub(crate) fn finish(&self, row: &mut [f32], position: u32) {
        let half = self.rotation.half;
        let at = position as usize * half;
        let (cos, sin) = (&self.rotation.cos[at..at + half], &self.rotation.sin[at..at + half]);
        if let Some((weight, epsilon)) = self.norm {
            row.chunks_exact_mut(self.head_dim).for_each(|head| rms_norm_in_place(self.isa, head, weight, epsilon));
        }
        dispatch(self.isa, Rotate { row, head_dim: self.head_dim, cos, sin, round: self.round });
    }
}

struct Rotate<'a> {
    row: &'a mut [f32],
    head_dim: usize,
    cos: &'a [f32],
    sin: &'a [f32],
    /// Records whether the result is rounded to bf16.
    round: bool,
}

impl Operation for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let half = self.cos.len();
        for head in self.row.chunks_exact_mut(self.head_dim) {
            let (low, high) = head[..2 * half].split_at_mut(half);
            for (((low, high), cos), sin) in low.iter_mut().zip(high).zip(self.cos).zip(self.sin) {
                let (a, b) = (*low, *high);
                *low = a * cos - b * sin;
                *high = b * cos + a * sin;
            }
            if self.round {
                round_all(head);
            }
        }
    }
}

#[cfg(test)]
mod tests;
