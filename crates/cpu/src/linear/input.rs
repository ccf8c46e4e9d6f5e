//! Rows of inputs in the format that a kernel reads.

use std::marker::PhantomData;

use demask_tensor::AlignedBytes;

use super::{
    activation::widen_bf16,
    int8::{self, InputGroup},
    integers::INPUTS,
    kernel::LINE,
};
use crate::{
    elementwise::{Lanes, Operation, copy_rounded, dispatch},
    isa::Isa,
};

/// Format in which a kernel reads its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputFormat {
    /// f32.
    F32,
    /// f32 that hold values rounded to bf16: for kernels that multiply in f32.
    RoundedF32,
    /// bf16.
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        expect(dead_code, reason = "portable kernels multiply floats")
    )]
    Bf16,
    /// Groups of bytes that share a scale.
    Int8,
}

impl InputFormat {
    /// Bytes from the start of a row to input `depth`, a multiple of 32 where inputs stand in groups.
    pub(super) const fn offset(self, depth: usize) -> usize {
        match self {
            Self::F32 | Self::RoundedF32 => depth * 4,
            Self::Bf16 => depth * 2,
            Self::Int8 => depth / INPUTS * size_of::<InputGroup>(),
        }
    }
}

/// Rows are padded with zeros to a multiple of this: the depth of a tile product, and of every smaller step.
pub(super) const DEPTH_PADDING: usize = 32;
/// The number of rows is padded to a multiple of this: the height of a tile.
pub(super) const ROW_PADDING: usize = 16;

/// Inputs of matrix products: `capacity` rows of `width` numbers, in the format of the kernel that made the buffer.
pub struct InputBuffer {
    data: AlignedBytes,
    layout: Layout,
}

/// Places of numbers in a buffer.
#[derive(Clone, Copy)]
struct Layout {
    isa: Isa,
    format: InputFormat,
    capacity: usize,
    width: usize,
    /// Bytes from row to row.
    stride: usize,
}

impl InputBuffer {
    /// Allocates zeroed rows, or returns `None` if there is no memory.
    pub(super) fn try_new(isa: Isa, format: InputFormat, rows: usize, width: usize) -> Option<Self> {
        // An odd number of lines: rows of a tile then fall into different sets of the caches.
        let padded = width.checked_next_multiple_of(DEPTH_PADDING)?;
        // No element takes more than four bytes.
        let lines = padded.checked_mul(4).map(|_| format.offset(padded))?.div_ceil(LINE) | 1;
        let stride = lines.checked_mul(LINE)?;
        let data = AlignedBytes::try_together(rows.checked_next_multiple_of(ROW_PADDING)?.checked_mul(stride)?)?;
        Some(Self { data, layout: Layout { isa, format, capacity: rows, width, stride } })
    }

    /// Makes rows of another width, in the memory of those that it was made with: all of them are zeros then.
    ///
    /// # Panics
    /// If they do not fit.
    pub(crate) fn set_width(&mut self, width: usize) {
        if width == self.layout.width {
            return;
        }
        let needed = self.layout.format.offset(width.next_multiple_of(DEPTH_PADDING));
        assert!(needed <= self.layout.stride, "{width} numbers in rows of {} bytes", self.layout.stride);
        self.data.as_mut_slice::<u8>().fill(0);
        self.layout.width = width;
    }

    /// Rows that fit.
    pub fn capacity(&self) -> usize {
        self.layout.capacity
    }

    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.layout.width
    }

    /// Bytes that the buffer takes.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// The format.
    pub(super) fn format(&self) -> InputFormat {
        self.layout.format
    }

    /// Bytes from row to row.
    pub(super) fn stride(&self) -> usize {
        self.layout.stride
    }

    /// Start of the first row.
    pub(super) fn as_ptr(&self) -> *const u8 {
        self.data.as_ptr()
    }

    /// Writes a row, rounding it to the buffer's format.
    ///
    /// # Panics
    /// If the row is not one of the buffer's or `values` is not one row long.
    pub fn set_row(&mut self, row: usize, values: &[f32]) {
        // SAFETY: the buffer is borrowed exclusively: nobody else writes or reads the row.
        unsafe { self.writer().set_row(row, values) }
    }

    /// Reads a row back, as f32.
    ///
    /// # Panics
    /// If the row is not one of the buffer's or `out` is not one row long.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.layout.capacity, "row {row} of {}", self.layout.capacity);
        assert_eq!(out.len(), self.layout.width, "length of a row");
        let start = row * self.layout.stride;
        match self.layout.format {
            InputFormat::F32 | InputFormat::RoundedF32 => {
                out.copy_from_slice(&self.data.as_slice::<f32>()[start / 4..][..self.layout.width]);
            }
            InputFormat::Bf16 => {
                let values = &self.data.as_slice::<u16>()[start / 2..][..self.layout.width];
                out.iter_mut().zip(values).for_each(|(out, &value)| *out = widen_bf16(value));
            }
            InputFormat::Int8 => int8::read(&self.data.as_slice::<u8>()[start..][..self.layout.stride], out),
        }
    }

    /// A row of a buffer that holds f32.
    ///
    /// # Panics
    /// If the row is not one of the buffer's, or it holds something else.
    pub(crate) fn floats(&self, row: usize) -> &[f32] {
        assert!(row < self.layout.capacity, "row {row} of {}", self.layout.capacity);
        assert_eq!(self.layout.format, InputFormat::F32, "floats of a buffer of another format");
        &self.data.as_slice::<f32>()[row * self.layout.stride / 4..][..self.layout.width]
    }

    /// Lets many threads write different rows.
    pub fn writer(&mut self) -> InputWriter<'_> {
        InputWriter { data: self.data.as_mut_ptr(), layout: self.layout, buffer: PhantomData }
    }
}

/// A borrowed [`InputBuffer`] whose rows many threads may write at the same time.
pub struct InputWriter<'a> {
    data: *mut u8,
    layout: Layout,
    buffer: PhantomData<&'a mut InputBuffer>,
}

// SAFETY: the writer stands for an exclusive borrow of plain memory, which may move to another thread.
unsafe impl Send for InputWriter<'_> {}
// SAFETY: the only way to write through a shared writer is unsafe, and its callers keep rows apart.
unsafe impl Sync for InputWriter<'_> {}

impl InputWriter<'_> {
    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.layout.width
    }

    /// Writes a row, rounding it to the buffer's format.
    ///
    /// # Safety
    /// No other thread writes the same row at the same time.
    ///
    /// # Panics
    /// If the row is not one of the buffer's or `values` is not one row long.
    pub unsafe fn set_row(&self, row: usize, values: &[f32]) {
        assert_eq!(values.len(), self.layout.width, "length of a row");
        // SAFETY: the caller keeps other threads away from the row.
        unsafe { self.set_columns(row, 0, values) }
    }

    /// Writes part of a row, from column `first` on.
    ///
    /// # Safety
    /// No other thread writes the same columns of the same row at the same time.
    ///
    /// # Panics
    /// If the row or the columns are not the buffer's, or are part of a group where inputs stand in groups.
    pub unsafe fn set_columns(&self, row: usize, first: usize, values: &[f32]) {
        dispatch(self.layout.isa, SetColumns { writer: self, row, first, values });
    }

    /// Writes columns in code that is compiled for an instruction set already.
    ///
    /// # Safety
    /// As for [`InputWriter::set_columns`].
    #[expect(clippy::cast_ptr_alignment, reason = "rows begin on cache lines, and elements follow each other")]
    #[inline(always)]
    pub(super) unsafe fn write_columns(&self, row: usize, first: usize, values: &[f32]) {
        assert!(row < self.layout.capacity, "row {row} of {}", self.layout.capacity);
        assert!(
            first <= self.layout.width && values.len() <= self.layout.width - first,
            "columns beyond the row's {}",
            self.layout.width
        );
        // SAFETY: row and columns are inside the buffer, whose memory the writer borrows exclusively; rows begin on
        // cache lines, so elements are aligned; the caller keeps other threads away.
        unsafe {
            let start = self.data.add(row * self.layout.stride + self.layout.format.offset(first));
            match self.layout.format {
                InputFormat::F32 => {
                    let out = std::slice::from_raw_parts_mut(start.cast::<f32>(), values.len());
                    out.copy_from_slice(values);
                }
                InputFormat::RoundedF32 => {
                    copy_rounded(values, std::slice::from_raw_parts_mut(start.cast::<f32>(), values.len()));
                }
                InputFormat::Bf16 => {
                    copy_rounded(values, std::slice::from_raw_parts_mut(start.cast::<u16>(), values.len()));
                }
                InputFormat::Int8 => {
                    let whole = values.len().is_multiple_of(INPUTS) || first + values.len() == self.layout.width;
                    assert!(first.is_multiple_of(INPUTS) && whole, "part of a group of inputs");
                    int8::write(values, start.cast());
                }
            }
        }
    }
}

/// Part of a row on its way into the buffer.
struct SetColumns<'a, 'b> {
    /// Writer of these columns of the row, which no other thread writes at the same time.
    writer: &'a InputWriter<'b>,
    row: usize,
    first: usize,
    values: &'a [f32],
}

impl Operation for SetColumns<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        // SAFETY: as our maker promises.
        unsafe { self.writer.write_columns(self.row, self.first, self.values) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::activation::round_bf16;

    #[test]
    fn rows_come_back_as_the_format_rounds_them() {
        let values = [1.0, -2.5, 1.0 + 2.0f32.powi(-12), std::f32::consts::PI, f32::MAX];
        for format in [InputFormat::F32, InputFormat::RoundedF32, InputFormat::Bf16] {
            let mut buffer = InputBuffer::try_new(Isa::best(), format, 3, values.len()).unwrap();
            buffer.set_row(2, &values);
            let mut row = [0.0; 5];
            buffer.read_row(2, &mut row);
            let rounded = values.map(|x| half::bf16::from_f32(x).to_f32());
            assert_eq!(row, if format == InputFormat::F32 { values } else { rounded });
            buffer.read_row(1, &mut row);
            assert_eq!(row, [0.0; 5]);
        }
    }

    #[test]
    fn rounding_has_the_same_bits_on_every_tier() {
        let (count, extremes) = (150, [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MAX, f32::MIN, 1e-40]);
        let ties = (0..count as u32).map(|index| f32::from_bits(0x3f80_8000 + (index << 15) + index % 3));
        let values: Vec<f32> = extremes.into_iter().chain(ties).collect();
        let expected: Vec<u32> = values.iter().map(|&value| u32::from(round_bf16(value)) << 16).collect();
        for isa in Isa::available() {
            for format in [InputFormat::RoundedF32, InputFormat::Bf16] {
                let mut buffer = InputBuffer::try_new(isa, format, 1, values.len()).unwrap();
                for first in [0, 1, 37] {
                    // SAFETY: nobody else writes to the buffer.
                    unsafe { buffer.writer().set_columns(0, first, &values[first..]) }
                }
                let mut row = vec![0.0; values.len()];
                buffer.read_row(0, &mut row);
                assert_eq!(row.iter().map(|value| value.to_bits()).collect::<Vec<_>>(), expected, "{isa:?} {format:?}");
            }
        }
    }

    #[test]
    fn rows_are_whole_lines_and_the_padding_stays_zero() {
        let mut buffer = InputBuffer::try_new(Isa::best(), InputFormat::Bf16, 1, 33).unwrap();
        assert_eq!(buffer.stride() / LINE % 2, 1);
        assert_eq!(buffer.bytes(), ROW_PADDING * buffer.stride());
        buffer.set_row(0, &[1.0; 33]);
        assert_eq!(buffer.data.as_slice::<u16>()[33..64], [0; 31]);
    }

    #[test]
    #[should_panic(expected = "length of a row")]
    fn a_row_of_another_width_is_refused() {
        InputBuffer::try_new(Isa::best(), InputFormat::F32, 1, 4).unwrap().set_row(0, &[0.0; 5]);
    }

    #[test]
    #[should_panic(expected = "row 1 of 1")]
    fn a_row_beyond_the_capacity_is_refused() {
        InputBuffer::try_new(Isa::best(), InputFormat::F32, 1, 4).unwrap().set_row(1, &[0.0; 4]);
    }
}
