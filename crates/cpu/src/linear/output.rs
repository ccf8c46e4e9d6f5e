//! Epilogues: where complete sums go.

use std::marker::PhantomData;

use super::{
    activation::silu_f32,
    drive::Sums,
    input::InputWriter,
    packed::{GROUP, PANEL},
};

/// Where a product goes.
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
    /// Whether different input rows surely go to different output rows. Only ascending rows are recognised: that is
    /// quick to see, and how rows usually come.
    pub(super) fn has_distinct_rows(&self) -> bool {
        self.map.is_none_or(|map| map.is_sorted_by(|a, b| a < b))
    }

    /// Takes complete sums, in the order of their rows.
    ///
    /// # Safety
    /// The sums are of rows and panels of the checked product, and no other thread takes sums of the same output rows
    /// and columns at the same time.
    pub(super) unsafe fn take(&self, sums: &Sums<'_>, bias: Option<&[f32]>) {
        let first = sums.first_group * GROUP * PANEL;
        let count = (sums.groups * GROUP * PANEL).min(self.columns - first);
        let bias = bias.map(|bias| &bias[first..first + count]);
        for row in 0..sums.rows {
            let target = self.map.map_or(sums.first_row + row, |map| map[sums.first_row + row] as usize);
            // SAFETY: the row was checked to be inside the output, the columns are less than `columns`; the caller
            // keeps other threads away from them.
            let out = unsafe { std::slice::from_raw_parts_mut(self.values.add(target * self.stride + first), count) };
            finish_row(out, &sums.row(row)[..count], bias, self.add);
        }
    }
}

/// Bias, then residual.
fn finish_row(out: &mut [f32], sums: &[f32], bias: Option<&[f32]>, add: bool) {
    match (bias, add) {
        (None, false) => out.copy_from_slice(sums),
        (None, true) => out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum),
        (Some(bias), false) => out.iter_mut().zip(sums).zip(bias).for_each(|((out, sum), bias)| *out = sum + bias),
        (Some(bias), true) => out.iter_mut().zip(sums).zip(bias).for_each(|((out, sum), bias)| *out += sum + bias),
    }
}

/// `silu(gate) * up` of complete sums, to the columns that their panels stand for.
///
/// # Safety
/// No other thread takes sums of the same rows and panels at the same time.
pub(super) unsafe fn take_gate_up(writer: &InputWriter<'_>, sums: &Sums<'_>) {
    for row in 0..sums.rows {
        for (group, pair) in sums.row(row).chunks_exact(GROUP * PANEL).enumerate() {
            let (gate, up) = pair.split_at(PANEL);
            let values: [f32; PANEL] = std::array::from_fn(|lane| silu_f32(gate[lane]) * up[lane]);
            let first = (sums.first_group + group) * PANEL;
            let count = PANEL.min(writer.width() - first);
            // SAFETY: the caller keeps other threads away from the rows and panels of these sums.
            unsafe { writer.set_columns(sums.first_row + row, first, &values[..count]) }
        }
    }
}
