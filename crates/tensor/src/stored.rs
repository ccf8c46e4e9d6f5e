//! Tensors where they are stored: in memory, or in a file, of which rows are read as they are wanted.

use std::ops::Range;

use crate::{Bytes, Dtype, ReadError, TensorView, dtype::Form};

/// A tensor of bytes that it holds on to, of which single rows are read when they are wanted.
pub struct HeldTensor {
    form: Form,
    bytes: Bytes,
    start: usize,
}

impl HeldTensor {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.form.rows
    }

    /// Bytes of a stored row.
    pub fn row_bytes(&self) -> usize {
        self.form.stride
    }

    /// Reads one row, widened; `scratch` holds its bytes meanwhile. Allocates nothing unless it fails.
    ///
    /// # Panics
    /// If there is no such row, or `scratch` is shorter than a stored row.
    pub fn read_row(&self, row: usize, scratch: &mut [u8], out: &mut [f32]) -> Result<(), ReadError> {
        assert!(row < self.rows(), "row {row} of {}", self.rows());
        let stride = self.row_bytes();
        let stored = &mut scratch[..stride];
        self.bytes.read(self.start + self.form.place(row) * stride, stored)?;
        TensorView::new(self.form.dtype, 1, self.form.columns, stored).read_row(0, out);
        Ok(())
    }

    /// Refuses a file that was written since it was opened: see [`Bytes::check_unwritten`].
    pub fn check_unwritten(&self) -> Result<(), ReadError> {
        self.bytes.check_unwritten()
    }
}

/// A tensor somewhere: little-endian elements, row-major.
#[derive(Clone, Copy)]
pub struct StoredTensor<'a> {
    form: Form,
    place: Place<'a>,
}

#[derive(Clone, Copy)]
enum Place<'a> {
    Memory(&'a [u8]),
    /// Bytes, and the first of the tensor's among them.
    Bytes(&'a Bytes, usize),
}

impl<'a> From<TensorView<'a>> for StoredTensor<'a> {
    fn from(view: TensorView<'a>) -> Self {
        Self { form: view.form, place: Place::Memory(view.bytes()) }
    }
}

impl<'a> StoredTensor<'a> {
    /// A matrix `[rows, columns]` whose bytes begin at `start`; a vector has one row.
    ///
    /// # Panics
    /// If the bytes end before, or rows are not whole blocks: readers check it first and say so in their own words.
    pub fn new(dtype: Dtype, rows: usize, columns: usize, bytes: &'a Bytes, start: usize) -> Self {
        let (form, length) = Form::new(dtype, rows, columns);
        assert!(length.checked_add(start).is_some_and(|end| end <= bytes.len()));
        Self { form, place: Place::Bytes(bytes, start) }
    }

    /// Reads the matrix in another order of its rows: see [`TensorView::unpaired`].
    ///
    /// # Panics
    /// If the rows are not whole heads of even width.
    pub fn unpaired(self, head_dim: usize) -> Self {
        Self { form: self.form.unpaired(head_dim), ..self }
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.form.dtype
    }

    /// Number of rows (outputs of a linear layer).
    pub fn rows(&self) -> usize {
        self.form.rows
    }

    /// Number of columns (inputs of a linear layer).
    pub fn columns(&self) -> usize {
        self.form.columns
    }

    /// Bytes of a stored row.
    pub fn row_bytes(&self) -> usize {
        self.form.stride
    }

    /// Bytes of all rows.
    pub fn stored_bytes(&self) -> usize {
        self.rows() * self.row_bytes()
    }

    /// Returns the tensor with a hold on its bytes; none for a view of somebody's memory.
    pub fn hold(&self) -> Option<HeldTensor> {
        match self.place {
            Place::Memory(_) => None,
            Place::Bytes(bytes, start) => Some(HeldTensor { form: self.form, bytes: bytes.clone(), start }),
        }
    }

    /// Brings rows into memory, and returns them with the number of the first one: `scratch` holds those of a file. Where
    /// rows are stored in pairs, those of whole heads come.
    pub fn take<'b>(
        &'b self,
        rows: Range<usize>,
        scratch: &'b mut Vec<u8>,
    ) -> Result<(TensorView<'b>, usize), ReadError> {
        let paired = self.form.paired;
        let unit = paired.max(1);
        let rows = rows.start / unit * unit..rows.end.next_multiple_of(unit);
        let view = self.stored(rows.clone(), scratch)?;
        let view = if paired > 0 && !rows.is_empty() { view.unpaired(paired) } else { view };
        Ok((view, rows.start))
    }

    /// Brings one row into memory; `scratch` holds a file's.
    pub fn take_row<'b>(&'b self, row: usize, scratch: &'b mut Vec<u8>) -> Result<TensorView<'b>, ReadError> {
        let row = self.form.place(row);
        self.stored(row..row + 1, scratch)
    }

    /// Rows in stored order.
    fn stored<'b>(&'b self, rows: Range<usize>, scratch: &'b mut Vec<u8>) -> Result<TensorView<'b>, ReadError> {
        let stride = self.row_bytes();
        let part = rows.start * stride..rows.end * stride;
        let bytes = match self.place {
            Place::Memory(bytes) => &bytes[part],
            Place::Bytes(bytes, start) => bytes.take(start + part.start..start + part.end, scratch)?,
        };
        Ok(TensorView::new(self.dtype(), rows.len(), self.columns(), bytes))
    }

    /// Widens the whole tensor to f32.
    pub fn to_f32(&self) -> Result<Vec<f32>, ReadError> {
        Ok(self.take(0..self.rows(), &mut Vec::new())?.0.to_f32())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_as_they_do_from_memory() {
        let columns = 3;
        let stored: Vec<u8> = (0..24 * columns).flat_map(|index| (index as f32).to_le_bytes()).collect();
        let bytes = Bytes::owned([&[9; 5][..], &stored].concat());
        let whole = TensorView::new(Dtype::F32, 24, columns, &stored);
        let there = StoredTensor::new(Dtype::F32, 24, columns, &bytes, 5);
        assert_eq!((there.rows(), there.columns(), there.stored_bytes()), (24, columns, stored.len()));
        for (whole, there) in [(whole, there), (whole.unpaired(4), there.unpaired(4)), (whole, whole.into())] {
            assert_eq!(there.to_f32().unwrap(), whole.to_f32());
            if let Some(held) = there.hold() {
                assert_eq!((held.rows(), held.row_bytes()), (24, 12));
                for row in [0, 5, 23] {
                    let (mut scratch, mut found, mut expected) = ([1; 13], [0.0; 3], [0.0; 3]);
                    held.read_row(row, &mut scratch, &mut found).unwrap();
                    whole.read_row(row, &mut expected);
                    assert_eq!(found, expected, "{row}");
                }
                assert!(std::panic::catch_unwind(|| held.read_row(24, &mut [0; 12], &mut [0.0; 3])).is_err());
            }
            let mut scratch = Vec::new();
            for rows in [0..24, 3..4, 7..17, 23..24, 5..5] {
                let (view, first) = there.take(rows.clone(), &mut scratch).unwrap();
                for row in rows {
                    assert_eq!(view.row_bytes(row - first), whole.row_bytes(row), "{row}");
                    let mut scratch = Vec::new();
                    assert_eq!(there.take_row(row, &mut scratch).unwrap().row_bytes(0), whole.row_bytes(row), "{row}");
                }
            }
        }
    }
}
