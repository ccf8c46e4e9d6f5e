//! Epilogues: where complete sums go.

use std::marker::PhantomData;

use demask_tensor::NO_ROW;

use super::{
    activation::silu_f32,
    drive::{Sums, TASK_GROUPS},
    input::InputWriter,
    packed::{GROUP, PANEL},
};
use crate::{
    elementwise::{Lanes, Operation, dispatch},
    isa::Isa,
};

/// Destination of a product.
pub enum Output<'a> {
    /// Row `i` of the product becomes `out[i * stride..]`.
    Store {
        /// Overwritten.
        out: &'a mut [f32],
        /// Floats from row to row.
        stride: usize,
    },
    /// Row `i` of the product is added to row `i`, or `rows[i]`, of the residual.
    Add {
        /// Added to.
        residual: &'a mut [f32],
        /// Floats from row to row.
        stride: usize,
        /// Residual rows of the product's rows; ascending ones let more threads work.
        rows: Option<&'a [u32]>,
    },
}

impl<'a> Output<'a> {
    /// Checks that `rows` rows of `columns` fit.
    pub(super) fn target(self, rows: usize, columns: usize) -> Target<'a> {
        let (values, stride, map, add) = match self {
            Output::Store { out, stride } => (out, stride, None, false),
            Output::Add { residual, stride, rows } => (residual, stride, rows, true),
        };
        assert!(columns <= stride, "{columns} columns in rows of {stride}");
        assert!(map.is_none_or(|map| map.len() == rows), "one residual row for each input row");
        let last = map.map_or(rows.checked_sub(1), |map| map.iter().max().map(|&row| row as usize));
        let end = last.map_or(Some(0), |last| last.checked_mul(stride)?.checked_add(columns));
        assert!(end.is_some_and(|end| end <= values.len()), "rows beyond the output");
        Target { values: values.as_mut_ptr(), stride, columns, map, add, output: PhantomData }
    }
}

/// A checked output that many threads write to.
pub(super) struct Target<'a> {
    values: *mut f32,
    stride: usize,
    columns: usize,
    map: Option<&'a [u32]>,
    add: bool,
    output: PhantomData<&'a mut [f32]>,
}

// SAFETY: the target stands for an exclusive borrow of floats; writing through a shared one is unsafe, and its callers
// keep their parts apart.
unsafe impl Sync for Target<'_> {}

impl Target<'_> {
    /// Reports whether different input rows surely go to different output rows. Only ascending rows are recognised:
    /// that is quick to see, and how rows usually come.
    pub(super) fn has_distinct_rows(&self) -> bool {
        self.map.is_none_or(|map| map.is_sorted_by(|a, b| a < b))
    }

    /// Takes complete sums, in the order of their rows.
    ///
    /// # Safety
    /// The sums are of rows and panels of the checked product, and no other thread takes sums of the same output rows
    /// and columns at the same time.
    pub(super) unsafe fn take(&self, isa: Isa, sums: &Sums<'_>, bias: Option<&[f32]>) {
        dispatch(isa, Take { target: self, sums, bias });
    }
}

/// Complete sums on their way to where they go.
struct Take<'a, 't> {
    target: &'a Target<'t>,
    sums: &'a Sums<'a>,
    bias: Option<&'a [f32]>,
}

impl Operation for Take<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { target, sums, bias } = self;
        let first = sums.first_column();
        let count = (sums.groups * GROUP * PANEL).min(target.columns - first);
        let bias = bias.map(|bias| &bias[first..first + count]);
        for row in 0..sums.rows {
            let place = target.map.map_or(sums.first_row + row, |map| map[sums.first_row + row] as usize);
            // SAFETY: the row was checked to be inside the output, the columns are less than `columns`; our maker keeps
            // other threads away from them.
            let out =
                unsafe { std::slice::from_raw_parts_mut(target.values.add(place * target.stride + first), count) };
            finish_row(out, &sums.row(row)[..count], bias, target.add);
        }
    }
}

/// Bias, then residual.
#[inline(always)]
fn finish_row(out: &mut [f32], sums: &[f32], bias: Option<&[f32]>, add: bool) {
    match (bias, add) {
        (None, false) => copy_row(out, sums),
        (None, true) => out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum),
        (Some(bias), false) => out.iter_mut().zip(sums).zip(bias).for_each(|((out, sum), bias)| *out = sum + bias),
        (Some(bias), true) => out.iter_mut().zip(sums).zip(bias).for_each(|((out, sum), bias)| *out += sum + bias),
    }
}

/// One or two pairs of panels are copied in registers: they are too short for a call.
#[inline(always)]
fn copy_row(out: &mut [f32], sums: &[f32]) {
    const ONE: usize = Sums::COLUMNS;
    const TWO: usize = 2 * Sums::COLUMNS;
    if let (Ok(out), Ok(sums)) = (<&mut [f32; ONE]>::try_from(&mut *out), <&[f32; ONE]>::try_from(sums)) {
        *out = *sums;
    } else if let (Ok(out), Ok(sums)) = (<&mut [f32; TWO]>::try_from(&mut *out), <&[f32; TWO]>::try_from(sums)) {
        *out = *sums;
    } else {
        out.copy_from_slice(sums);
    }
}

/// `silu(gate) * up` of complete sums, to the columns that their panels stand for: the same bits on every tier, for
/// nothing in it is fused.
///
/// # Safety
/// No other thread takes sums of the same rows and panels at the same time.
pub(super) unsafe fn take_gate_up(isa: Isa, writer: &InputWriter<'_>, sums: &Sums<'_>, addend: Option<&Addend<'_>>) {
    dispatch(isa, GateUp { writer, sums, addend });
}

/// Numbers that gate and up of some rows get before the SiLU.
pub(crate) struct Addend<'a> {
    /// `[added rows, 2, width of gate]`.
    pub(crate) values: &'a [f32],
    /// Added row of each row of the input, or [`NO_ROW`].
    pub(crate) index_of: &'a [u32],
}

impl Addend<'_> {
    /// Returns what gate and up of a row get, both `width` long; nothing for most rows.
    fn row(&self, row: usize, width: usize) -> Option<(&[f32], &[f32])> {
        let index = self.index_of.get(row).copied().filter(|&index| index != NO_ROW)? as usize;
        Some(self.values[2 * width * index..][..2 * width].split_at(width))
    }
}

/// Complete sums of gate and up on their way to the inputs of the down projection.
struct GateUp<'a, 'w> {
    writer: &'a InputWriter<'w>,
    sums: &'a Sums<'a>,
    addend: Option<&'a Addend<'a>>,
}

impl Operation for GateUp<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { writer, sums, addend } = self;
        for row in 0..sums.rows {
            let added = addend.and_then(|addend| addend.row(sums.first_row + row, writer.width()));
            // Columns of two pairs at a time: formats that share a scale among inputs need its inputs together.
            for (index, pairs) in sums.row(row).chunks(TASK_GROUPS * GROUP * PANEL).enumerate() {
                let mut values = [0.0; TASK_GROUPS * PANEL];
                let first = (sums.first_group + index * TASK_GROUPS) * PANEL;
                let count = (pairs.len() / GROUP).min(writer.width() - first);
                for (values, pair) in values.chunks_exact_mut(PANEL).zip(pairs.chunks_exact(GROUP * PANEL)) {
                    let (gate, up) = pair.split_at(PANEL);
                    for lane in 0..PANEL {
                        values[lane] = silu_f32(gate[lane]) * up[lane];
                    }
                }
                if let Some((gates, ups)) = added {
                    let sums = |column: usize| column / PANEL * GROUP * PANEL + column % PANEL;
                    for (column, value) in values[..count].iter_mut().enumerate() {
                        let (gate, up) = (pairs[sums(column)], pairs[sums(column) + PANEL]);
                        *value = silu_f32(gate + gates[first + column]) * (up + ups[first + column]);
                    }
                }
                // SAFETY: our maker keeps other threads away from the rows and panels of these sums.
                unsafe { writer.write_columns(sums.first_row + row, first, &values[..count]) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        isa::Isa,
        linear::input::{InputBuffer, InputFormat},
    };

    #[test]
    fn activations_have_the_same_bits_on_every_tier() {
        let (rows, width) = (32, 20);
        let extremes = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 88.5, -88.5, -103.5, 1e-40];
        let sum = |index: usize| if index < 8 { extremes[index] } else { (index as f32 * 0.7).sin() * 30.0 };
        let values: Vec<f32> = (0..rows * TASK_GROUPS * GROUP * PANEL).map(sum).collect();
        let sums = Sums { values: &values, first_row: 0, rows, first_group: 0, groups: 2 };
        let results = Isa::available().into_iter().map(|isa| {
            let mut buffer = InputBuffer::try_new(isa, InputFormat::F32, rows, width).unwrap();
            // SAFETY: nobody else writes to the buffer.
            unsafe { take_gate_up(isa, &buffer.writer(), &sums, None) };
            let mut all = vec![0.0; rows * width];
            all.chunks_exact_mut(width).enumerate().for_each(|(row, out)| buffer.read_row(row, out));
            // Which of its operands' signs a NaN keeps is not defined.
            all.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect::<Vec<_>>()
        });
        let results: Vec<_> = results.collect();
        assert!(results.iter().all(|result| *result == results[0]));
    }
}
