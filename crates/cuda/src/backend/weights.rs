//! Weights on the device: converted here, a few megabytes at a time, and uploaded.
//!
//! A matrix is row-major, its inputs padded with zeros to a multiple of [`DEPTH`]. Gate and up take turns, row by row, so
//! that neighbours in a product's tile make `silu(gate) * up`. Integers stand as `GemmPart` says, their scales
//! widened to f32, which is exact.

use std::{fmt, panic::resume_unwind, sync::Arc, thread};

use demask_tensor::{
    BlockFormat, BlockParts, Dtype, GROUP_INPUTS, PackError, Quantisation, StoredTensor, TensorView, round_bf16,
    widen_bf16, widen_f16,
};

use super::memory::{Buffer, Failure, check};
use crate::{
    arguments::GemmPart,
    gpu::{Address, Gpu},
};

/// Multiple that inputs are padded to: the depth by which products step.
pub(super) const DEPTH: usize = 64;

/// Bytes that are converted before they are uploaded: enough to keep the link busy, few beside the weights.
const PART_BYTES: usize = 8 << 20;

/// Fewer rows' bytes than this are not worth another thread.
const THREAD_BYTES: usize = 256 << 10;

/// Format of the numbers of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MatrixFormat {
    F32,
    Bf16,
    Integers(Quantisation),
}

impl fmt::Display for MatrixFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.write_str("f32"),
            Self::Bf16 => f.write_str("bf16"),
            Self::Integers(quantisation) => quantisation.fmt(f),
        }
    }
}

impl MatrixFormat {
    /// Chooses the format of tensors stored in these types that are packed together, for products of a type. They are
    /// rounded to integers on request; else integers in blocks of 32 keep their format.
    pub(super) fn of(stored: [Dtype; 2], dtype: Dtype, quantisation: Option<Quantisation>) -> Self {
        let plain = if dtype == Dtype::F32 { Self::F32 } else { Self::Bf16 };
        let [first, second] = stored.map(integers_of);
        let stays = first.filter(|_| first == second);
        quantisation.or(stays).map_or(plain, Self::Integers)
    }

    /// Bytes of a row's numbers, its inputs padded.
    fn row_bytes(self, columns: usize) -> usize {
        let depth = columns.next_multiple_of(DEPTH);
        match self {
            Self::F32 => depth * 4,
            Self::Bf16 => depth * 2,
            Self::Integers(to) => depth * to.bits() / 8,
        }
    }

    /// Bytes of a row's scales.
    fn scale_bytes(self, columns: usize) -> usize {
        match self {
            Self::F32 | Self::Bf16 => 0,
            Self::Integers(_) => columns.next_multiple_of(DEPTH) / GROUP_INPUTS * size_of::<f32>(),
        }
    }

    /// Bytes of a matrix; nothing if they are beyond all memory.
    pub(super) fn bytes(self, rows: usize, columns: usize) -> Option<usize> {
        rows.checked_mul(self.row_bytes(columns).checked_add(self.scale_bytes(columns))?)
    }

    /// Writes a row and its scales; `wide` is scratch for as many numbers as the padded row has. Numbers have to be finite,
    /// for integers would hide it, and all others would spoil every answer.
    fn write(
        self,
        (weight, row): (&TensorView<'_>, usize),
        wide: &mut [f32],
        out: &mut [u8],
        scales: &mut [u8],
    ) -> Result<(), PackError> {
        let columns = weight.columns();
        match self {
            Self::Bf16 if weight.dtype() == Dtype::Bf16 => {
                let words = weight.row_bytes(row).as_chunks::<2>().0.iter();
                if !words.map(|&word| widen_bf16(u16::from_le_bytes(word))).all(f32::is_finite) {
                    return Err(PackError::NotFinite);
                }
                out[..2 * columns].copy_from_slice(weight.row_bytes(row));
                out[2 * columns..].fill(0);
            }
            Self::Integers(to) if integers_of(weight.dtype()) == Some(to) => {
                keep_integers(to, weight, row, out, scales);
            }
            _ => {
                weight.read_row(row, &mut wide[..columns]);
                wide[columns..].fill(0.0);
                if !wide.iter().all(|value| value.is_finite()) {
                    return Err(PackError::NotFinite);
                }
                match self {
                    Self::F32 => write_words(out, wide.iter().map(|value| value.to_le_bytes())),
                    Self::Bf16 => write_words(out, wide.iter().map(|&value| round_bf16(value).to_le_bytes())),
                    Self::Integers(to) => round_integers(to, wide, out, scales),
                }
            }
        }
        Ok(())
    }
}

fn write_words<const N: usize>(out: &mut [u8], words: impl Iterator<Item = [u8; N]>) {
    out.as_chunks_mut::<N>().0.iter_mut().zip(words).for_each(|(out, word)| *out = word);
}

/// The integers that a block format holds as they are here: the same groups, a half as their scale, nothing else.
fn integers_of(dtype: Dtype) -> Option<Quantisation> {
    let Dtype::Block(format) = dtype else { return None };
    match format.parts_as() {
        Some(BlockFormat::Q8_0) => Some(Quantisation::Q8),
        Some(BlockFormat::Q4_0) => Some(Quantisation::Q4),
        _ => None,
    }
}

/// One group's integers and scale, at their places in a row.
fn write_group(to: Quantisation, integers: &[i8; GROUP_INPUTS], scale: u16, out: &mut [u8], place: &mut [u8; 4]) {
    *place = widen_f16(scale).to_le_bytes();
    match to {
        Quantisation::Q8 => out.iter_mut().zip(integers).for_each(|(out, &integer)| *out = integer as u8),
        Quantisation::Q4 => {
            let half = |integer: i8| (integer + 8) as u8;
            let pairs = integers.as_chunks::<2>().0.iter();
            out.iter_mut().zip(pairs).for_each(|(out, &[low, high])| *out = half(low) | half(high) << 4);
        }
    }
}

/// Rounds a row.
fn round_integers(to: Quantisation, wide: &[f32], out: &mut [u8], scales: &mut [u8]) {
    let groups = wide.as_chunks::<GROUP_INPUTS>().0.iter().zip(out.chunks_exact_mut(GROUP_INPUTS * to.bits() / 8));
    for ((values, out), place) in groups.zip(scales.as_chunks_mut::<4>().0) {
        let (scale, integers) = to.round(values);
        write_group(to, &integers, scale, out, place);
    }
}

/// Takes a row of blocks over, integer by integer.
fn keep_integers(to: Quantisation, weight: &TensorView<'_>, row: usize, out: &mut [u8], scales: &mut [u8]) {
    let Dtype::Block(format) = weight.dtype() else { return };
    let blocks = weight.row_bytes(row).chunks_exact(format.bytes()).map(Some).chain(std::iter::repeat(None));
    let groups = out.chunks_exact_mut(GROUP_INPUTS * to.bits() / 8).zip(scales.as_chunks_mut::<4>().0);
    let mut parts = BlockParts::ZERO;
    for ((out, place), block) in groups.zip(blocks) {
        let mut integers = [0; GROUP_INPUTS];
        match block {
            Some(block) => {
                format.take_apart(block, &mut parts);
                let middle = if to == Quantisation::Q4 { 8 } else { 0 };
                integers.iter_mut().zip(parts.integers).for_each(|(to, from)| *to = from as i8 - middle);
            }
            None => parts.halves = [0; 2],
        }
        write_group(to, &integers, parts.halves[0], out, place);
    }
}

/// A weight matrix.
pub struct Matrix<G: Gpu> {
    format: MatrixFormat,
    rows: usize,
    columns: usize,
    weight: Buffer<G>,
    scales: Buffer<G>,
}

impl<G: Gpu> Matrix<G> {
    /// Uploads a matrix.
    pub(super) fn new(gpu: &Arc<G>, format: MatrixFormat, weight: StoredTensor<'_>) -> Result<Self, PackError> {
        Self::of_rows(gpu, format, [weight.rows(), weight.columns()], |row| (weight, row))
    }

    /// Uploads gate and up as one matrix of twice the rows.
    ///
    /// # Panics
    /// If their shapes differ.
    pub(super) fn gate_up(gpu: &Arc<G>, format: MatrixFormat, parts: [StoredTensor<'_>; 2]) -> Result<Self, PackError> {
        let [gate, up] = parts;
        assert_eq!((gate.rows(), gate.columns()), (up.rows(), up.columns()), "gate and up differ in shape");
        Self::of_rows(gpu, format, [2 * gate.rows(), gate.columns()], |row| (parts[row % 2], row / 2))
    }

    /// Uploads rows from wherever they are.
    pub(super) fn of_rows<'a>(
        gpu: &Arc<G>,
        format: MatrixFormat,
        [rows, columns]: [usize; 2],
        row_of: impl Fn(usize) -> (StoredTensor<'a>, usize) + Sync,
    ) -> Result<Self, PackError> {
        let failed = |failure: Failure| failure.packing(rows, columns);
        let needed = format.bytes(rows, columns).unwrap_or(usize::MAX);
        check(&**gpu, needed as u64).map_err(|error| failed(Failure::Memory(error)))?;
        let (row_bytes, scale_bytes) = (format.row_bytes(columns), format.scale_bytes(columns));
        let buffer = |bytes| Buffer::new(gpu, bytes).map_err(|error| failed(error.into()));
        let (weight, scales) = (buffer(rows * row_bytes)?, buffer(rows * scale_bytes)?);
        let count = (PART_BYTES / (row_bytes + scale_bytes).max(1)).clamp(1, rows.max(1));
        let (mut numbers, mut factors) = (vec![0; count * row_bytes], vec![0; count * scale_bytes]);
        for first in (0..rows).step_by(count) {
            let part = first..rows.min(first + count);
            let numbers = &mut numbers[..part.len() * row_bytes];
            let factors = &mut factors[..part.len() * scale_bytes];
            convert(format, columns, part, &row_of, (numbers, factors))?;
            weight.upload(first * row_bytes, numbers).map_err(|error| failed(error.into()))?;
            scales.upload(first * scale_bytes, factors).map_err(|error| failed(error.into()))?;
        }
        Ok(Self { format, rows, columns, weight, scales })
    }

    pub(super) fn bytes(&self) -> usize {
        self.weight.bytes() + self.scales.bytes()
    }

    pub(super) fn format(&self) -> MatrixFormat {
        self.format
    }

    /// Outputs; of gate and up both.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs, padded.
    pub(super) fn depth(&self) -> usize {
        self.columns.next_multiple_of(DEPTH)
    }

    /// Returns the matrix as a part of a product that writes to `out`, rows `stride` apart.
    pub(super) fn part(&self, bias: Option<&Vector<G>>, out: Address, stride: usize) -> GemmPart {
        GemmPart {
            weight: self.weight.address(),
            scales: self.scales.address(),
            bias: bias.map_or(Address::NULL, Vector::address),
            out,
            columns: self.rows as u32,
            stride: stride as u32,
        }
    }

    /// Some of its rows alone, as a part of a product that stores to `out`.
    pub(super) fn rows_part(&self, first: usize, count: usize, out: Address) -> GemmPart {
        let all = self.part(None, out, count);
        GemmPart {
            weight: all.weight.offset(first * self.format.row_bytes(self.columns)),
            scales: all.scales.offset(first * self.format.scale_bytes(self.columns)),
            columns: count as u32,
            ..all
        }
    }
}

/// Converts rows, dealt out to threads: the numbers of all, and their scales.
fn convert<'a>(
    format: MatrixFormat,
    columns: usize,
    rows: std::ops::Range<usize>,
    row_of: &(impl Fn(usize) -> (StoredTensor<'a>, usize) + Sync),
    (numbers, factors): (&mut [u8], &mut [u8]),
) -> Result<(), PackError> {
    let (row_bytes, scale_bytes) = (format.row_bytes(columns), format.scale_bytes(columns));
    let work = |first: usize, numbers: &mut [u8], factors: &mut [u8]| {
        let (mut wide, mut scratch) = (vec![0.0; columns.next_multiple_of(DEPTH)], Vec::new());
        for (index, out) in numbers.chunks_exact_mut(row_bytes).enumerate() {
            let (stored, row) = row_of(first + index);
            let weight = stored.take_row(row, &mut scratch)?;
            format.write((&weight, 0), &mut wide, out, &mut factors[index * scale_bytes..][..scale_bytes])?;
        }
        Ok(())
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = (numbers.len() / THREAD_BYTES).clamp(1, cores);
    let share = rows.len().div_ceil(threads).max(1);
    if threads == 1 || row_bytes == 0 {
        return work(rows.start, numbers, factors);
    }
    thread::scope(|scope| {
        let (mut factors, mut workers) = (factors, Vec::new());
        for (index, numbers) in numbers.chunks_mut(share * row_bytes).enumerate() {
            let own = (share * scale_bytes).min(factors.len());
            let (own, rest) = std::mem::take(&mut factors).split_at_mut(own);
            factors = rest;
            let (work, first) = (&work, rows.start + index * share);
            workers.push(scope.spawn(move || work(first, numbers, own)));
        }
        let joined = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|thrown| resume_unwind(thrown)));
        joined.collect()
    })
}

/// A short f32 vector.
pub struct Vector<G: Gpu>(Buffer<G>);

impl<G: Gpu> Vector<G> {
    pub(super) fn new(gpu: &Arc<G>, values: &[f32]) -> Result<Self, PackError> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Buffer::holding(gpu, &bytes).map(Self).map_err(|error| Failure::from(error).packing(1, values.len()))
    }

    pub(super) fn address(&self) -> Address {
        self.0.address()
    }

    /// Numbers in it.
    pub(super) fn len(&self) -> usize {
        self.0.bytes() / size_of::<f32>()
    }
}

/// The type that a table is kept in, whose rows are read one by one: as it was stored; f32 is rounded to what products
/// take, and blocks are widened to it.
pub(super) fn table_dtype(stored: Dtype, dtype: Dtype) -> Dtype {
    if matches!(stored, Dtype::F16 | Dtype::Bf16) { stored } else { dtype }
}

/// The embedding table, row-major without padding.
pub struct Embedding<G: Gpu> {
    dtype: Dtype,
    hidden: usize,
    table: Buffer<G>,
}

impl<G: Gpu> Embedding<G> {
    /// Uploads a table for products of a type.
    pub(super) fn new(gpu: &Arc<G>, dtype: Dtype, table: StoredTensor<'_>) -> Result<Self, PackError> {
        let (rows, columns, dtype) = (table.rows(), table.columns(), table_dtype(table.dtype(), dtype));
        let row_bytes = columns * dtype.size();
        let needed = rows.checked_mul(row_bytes).map_or(u64::MAX, |bytes| bytes as u64);
        let failed = |failure: Failure| failure.packing(rows, columns);
        check(&**gpu, needed).map_err(|error| failed(Failure::Memory(error)))?;
        let buffer = Buffer::new(gpu, rows * row_bytes).map_err(|error| failed(error.into()))?;
        let count = (PART_BYTES / row_bytes.max(1)).clamp(1, rows.max(1));
        let (mut part, mut wide, mut scratch) = (Vec::with_capacity(count * row_bytes), vec![0.0; columns], Vec::new());
        for first in (0..rows).step_by(count) {
            part.clear();
            let wanted = first..rows.min(first + count);
            let (view, base) = table.take(wanted.clone(), &mut scratch)?;
            for row in wanted {
                append_row(&view, row - base, dtype, &mut wide, &mut part);
            }
            buffer.upload(first * row_bytes, &part).map_err(|error| failed(error.into()))?;
        }
        Ok(Self { dtype, hidden: columns, table: buffer })
    }

    pub(super) fn bytes(&self) -> usize {
        self.table.bytes()
    }

    pub(super) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Width of a row.
    pub(super) fn hidden(&self) -> usize {
        self.hidden
    }

    pub(super) fn address(&self) -> Address {
        self.table.address()
    }
}

/// Appends a row of a table in a type.
fn append_row(table: &TensorView<'_>, row: usize, dtype: Dtype, wide: &mut [f32], out: &mut Vec<u8>) {
    if table.dtype() == dtype {
        return out.extend_from_slice(table.row_bytes(row));
    }
    table.read_row(row, wide);
    match dtype {
        Dtype::Bf16 => out.extend(wide.iter().flat_map(|&value| round_bf16(value).to_le_bytes())),
        _ => out.extend(wide.iter().flat_map(|value| value.to_le_bytes())),
    }
}

#[cfg(test)]
mod tests;
