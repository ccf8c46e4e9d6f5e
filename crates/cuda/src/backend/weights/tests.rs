use super::*;
use crate::backend::{CudaOptions, fake::Fake};

/// Numbers of both signs and some magnitudes.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 7919 % 1009) as f32 - 504.0) * 0.013 * (1 + index % 5) as f32).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn read<G: Gpu>(buffer: &Buffer<G>) -> Vec<u8> {
    let mut bytes = vec![0; buffer.bytes()];
    buffer.download(0, &mut bytes).unwrap();
    bytes
}

/// A matrix as the kernels would widen it, rows of the padded depth.
fn widened<G: Gpu>(matrix: &Matrix<G>) -> Vec<f32> {
    let (weight, scales) = (read(&matrix.weight), read(&matrix.scales));
    let scale = |index: usize| f32::from_le_bytes(*scales.as_chunks::<4>().0[index / GROUP_INPUTS..].first().unwrap());
    match matrix.format {
        MatrixFormat::F32 => weight.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect(),
        MatrixFormat::Bf16 => {
            let values = weight.as_chunks::<2>().0.iter();
            values.map(|value| widen_bf16(u16::from_le_bytes(*value))).collect()
        }
        MatrixFormat::Integers(Quantisation::Q8) => {
            weight.iter().enumerate().map(|(index, &byte)| scale(index) * f32::from(byte as i8)).collect()
        }
        MatrixFormat::Integers(Quantisation::Q4) => (0..2 * weight.len())
            .map(|index| scale(index) * (f32::from(weight[index / 2] >> (index % 2 * 4) & 15) - 8.0))
            .collect(),
    }
}

const KINDS: [(Dtype, Option<Quantisation>); 4] = [
    (Dtype::F32, None),
    (Dtype::Bf16, None),
    (Dtype::Bf16, Some(Quantisation::Q8)),
    (Dtype::F32, Some(Quantisation::Q4)),
];

/// Row of a weight as it should be in a format, its depth padded.
fn expected(kept: MatrixFormat, row: &[f32]) -> Vec<f32> {
    let mut row = row.to_vec();
    row.resize(row.len().next_multiple_of(DEPTH), 0.0);
    match kept {
        MatrixFormat::F32 => row,
        MatrixFormat::Bf16 => row.iter().map(|&value| half::bf16::from_f32(value).to_f32()).collect(),
        MatrixFormat::Integers(to) => {
            let groups = row.as_chunks::<GROUP_INPUTS>().0.iter();
            groups
                .flat_map(|group| {
                    let (scale, integers) = to.round(group);
                    integers.map(|integer| widen_f16(scale) * f32::from(integer))
                })
                .collect()
        }
    }
}

#[test]
fn matrices_arrive_rounded_and_padded() {
    let gpu = Arc::new(Fake::recording());
    for (dtype, quantisation) in KINDS {
        for (rows, columns) in [(1, 1), (5, 64), (7, 100), (3, 33)] {
            let (values, kept) = (numbers(rows * columns), MatrixFormat::of([Dtype::F32; 2], dtype, quantisation));
            let stored = bytes(&values);
            let matrix = Matrix::new(&gpu, kept, TensorView::new(Dtype::F32, rows, columns, &stored).into()).unwrap();
            let expected: Vec<f32> = values.chunks(columns).flat_map(|row| expected(kept, row)).collect();
            assert_eq!(widened(&matrix), expected, "{kept} {rows}x{columns}");
            let options = CudaOptions { dtype, quantisation };
            assert_eq!(matrix.bytes() as u64, options.matrix_bytes(Dtype::F32, rows, columns));
        }
    }
}

#[test]
fn gate_and_up_take_turns() {
    let gpu = Arc::new(Fake::recording());
    let (rows, columns) = (9, 40);
    let (gate, up) = (numbers(rows * columns), numbers(2 * rows * columns)[rows * columns..].to_vec());
    let (gate_bytes, up_bytes) = (bytes(&gate), bytes(&up));
    let view = |bytes| TensorView::new(Dtype::F32, rows, columns, bytes);
    for (dtype, quantisation) in KINDS {
        let kept = MatrixFormat::of([Dtype::F32; 2], dtype, quantisation);
        let matrix = Matrix::gate_up(&gpu, kept, [view(&gate_bytes).into(), view(&up_bytes).into()]).unwrap();
        let pairs = gate.chunks(columns).zip(up.chunks(columns));
        let expected: Vec<f32> =
            pairs.flat_map(|(gate, up)| [expected(kept, gate), expected(kept, up)]).flatten().collect();
        assert_eq!(widened(&matrix), expected, "{kept}");
        assert_eq!(matrix.rows(), 2 * rows);
        let options = CudaOptions { dtype, quantisation };
        assert_eq!(matrix.bytes() as u64, options.gate_up_bytes([Dtype::F32; 2], rows, columns));
    }
}

/// Rows of a block format with every byte of an integer, and scales that are no denormals.
fn blocks(format: BlockFormat, rows: usize, columns: usize) -> Vec<u8> {
    let count = rows * columns / format.elements();
    let block = |index: usize| {
        let scale = half::f16::from_f32(0.01 * (1 + index % 7) as f32).to_le_bytes();
        let rest = (2..format.bytes()).map(move |byte| (byte * 37 + index * 11) as u8);
        scale.into_iter().chain(rest)
    };
    (0..count).flat_map(block).collect()
}

#[test]
fn integers_in_blocks_stay_what_they_are_and_other_blocks_are_widened() {
    let gpu = Arc::new(Fake::recording());
    let (rows, columns) = (3, 96);
    for (format, kept) in [
        (BlockFormat::Q8_0, MatrixFormat::Integers(Quantisation::Q8)),
        (BlockFormat::Q4_0, MatrixFormat::Integers(Quantisation::Q4)),
        (BlockFormat::Iq4Nl, MatrixFormat::Integers(Quantisation::Q8)),
        (BlockFormat::Q5_0, MatrixFormat::F32),
    ] {
        let dtype = Dtype::Block(format);
        let stored = blocks(format, rows, columns);
        let view = TensorView::new(dtype, rows, columns, &stored);
        assert_eq!(MatrixFormat::of([dtype; 2], Dtype::F32, None), kept);
        let matrix = Matrix::new(&gpu, kept, view.into()).unwrap();
        let found = widened(&matrix);
        for (found, expected) in found.chunks(128).zip(view.to_f32().chunks(columns)) {
            assert_eq!(found[..columns], *expected, "{format}");
            assert!(found[columns..].iter().all(|&value| value == 0.0));
        }
        // Together with another type, blocks are widened.
        assert_eq!(MatrixFormat::of([dtype, Dtype::F16], Dtype::Bf16, None), MatrixFormat::Bf16);
        assert_eq!(
            MatrixFormat::of([dtype; 2], Dtype::Bf16, Some(Quantisation::Q4)),
            MatrixFormat::Integers(Quantisation::Q4)
        );
    }
}

#[test]
fn large_matrices_arrive_in_parts_by_many_threads() {
    let gpu = Arc::new(Fake::recording());
    let (rows, columns) = (4099, 1030);
    let values = numbers(rows * columns);
    let stored = bytes(&values);
    let matrix =
        Matrix::new(&gpu, MatrixFormat::F32, TensorView::new(Dtype::F32, rows, columns, &stored).into()).unwrap();
    assert!(matrix.bytes() > 2 * PART_BYTES && gpu.uploads() >= 3, "{} uploads", gpu.uploads());
    let found = widened(&matrix);
    for (found, expected) in found.chunks(matrix.depth()).zip(values.chunks(columns)) {
        assert_eq!(found[..columns], *expected);
    }
    drop(matrix);
    assert_eq!((gpu.held(), gpu.allocated().current()), (0, 0), "everything is given back");
}

#[test]
fn tables_in_blocks_are_widened_and_counted_as_what_they_become() {
    let gpu = Arc::new(Fake::recording());
    let stored = Dtype::Block(BlockFormat::Q8_0);
    let bytes: Vec<u8> = (0..6 * 2 * 34).map(|byte: usize| if byte % 34 == 1 { 0x20 } else { byte as u8 }).collect();
    let view = TensorView::new(stored, 6, 64, &bytes);
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let table = Embedding::new(&gpu, dtype, view.into()).unwrap();
        let options = CudaOptions { dtype, quantisation: None };
        assert_eq!((table.dtype(), table.bytes()), (dtype, 6 * 64 * dtype.size()));
        assert_eq!(table.bytes() as u64, options.embedding_bytes(stored, 6, 64));
        let found = TensorView::new(dtype, 6, 64, &read(&table.table)).to_f32();
        let round = |value: f32| if dtype == Dtype::F32 { value } else { half::bf16::from_f32(value).to_f32() };
        assert_eq!(found, view.to_f32().into_iter().map(round).collect::<Vec<_>>());
    }
}

#[test]
fn tables_keep_what_fits_and_are_not_padded() {
    let gpu = Arc::new(Fake::recording());
    let values = numbers(6 * 33);
    let f16: Vec<u8> = values.iter().flat_map(|&value| half::f16::from_f32(value).to_le_bytes()).collect();
    for (stored, bytes, dtype, kept) in [
        (Dtype::F32, bytes(&values), Dtype::F32, Dtype::F32),
        (Dtype::F32, bytes(&values), Dtype::Bf16, Dtype::Bf16),
        (Dtype::F16, f16, Dtype::F32, Dtype::F16),
    ] {
        let table = Embedding::new(&gpu, dtype, TensorView::new(stored, 6, 33, &bytes).into()).unwrap();
        assert_eq!((table.dtype(), table.hidden(), table.bytes()), (kept, 33, 6 * 33 * kept.size()));
        let options = CudaOptions { dtype, quantisation: None };
        assert_eq!(table.bytes() as u64, options.embedding_bytes(stored, 6, 33));
        let found = TensorView::new(kept, 6, 33, &read(&table.table)).to_f32();
        let round = |value: f32| match kept {
            Dtype::F16 => half::f16::from_f32(value).to_f32(),
            Dtype::Bf16 => half::bf16::from_f32(value).to_f32(),
            _ => value,
        };
        assert_eq!(found, values.iter().map(|&value| round(value)).collect::<Vec<_>>());
    }
}

#[test]
fn what_has_no_room_is_refused_with_numbers() {
    let gpu = Arc::new(Fake::with_memory(1000));
    let stored = bytes(&numbers(16 * 64));
    let view = TensorView::new(Dtype::F32, 16, 64, &stored);
    let refused = Matrix::new(&gpu, MatrixFormat::Bf16, view.into()).err().unwrap();
    let source = demask_step::OutOfMemory { needed: 2048, available: 1000 };
    assert_eq!(refused, PackError::Memory { rows: 16, columns: 64, source });
    let refused = Embedding::new(&gpu, Dtype::F32, view.into()).err().unwrap();
    assert!(matches!(refused, PackError::Memory { .. }), "{refused}");
    assert!(Vector::new(&gpu, &[0.0; 251]).is_err() && Vector::new(&gpu, &[0.0; 250]).is_ok());
    gpu.fail_from_now_on("gone");
    let failed = Vector::new(&gpu, &[0.0; 3]).err().unwrap();
    assert_eq!(failed.to_string(), "packing a 1x3 weight: cuFake: gone");
}
