use demask_tensor::{BlockFormat, PackError, StoredTensor};
use half::{bf16, f16};

use super::{super::Packed, *};
use crate::{isa::Tier, pool::Pool};

/// Odd numbers of rows and columns, below and above a panel, a pair of them, a block and a strip.
const SHAPES: [(usize, usize); 8] = [(1, 1), (19, 35), (16, 32), (33, 31), (40, 256), (15, 257), (70, 300), (65, 1030)];

/// Types in which a weight is stored: all that the engine reads.
fn stored_types() -> Vec<Dtype> {
    [Dtype::F32, Dtype::F16, Dtype::Bf16].into_iter().chain(BlockFormat::ALL.map(Dtype::Block)).collect()
}

const FORMATS: [WeightFormat; 4] = [
    WeightFormat::F32,
    WeightFormat::Bf16Pairs,
    WeightFormat::Integers(Coding::Q8),
    WeightFormat::Integers(Coding::Q4),
];

/// Numbers of both signs and many magnitudes, some of them zero, halves between integers and repetitions of the
/// largest among them.
fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let mut state = seed as u64 * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 40) as usize
    };
    let number = |random: usize| match random % 7 {
        0 => 0.0,
        1 => ((random >> 8) % 255) as f32 / 2.0 - 63.5,
        2 => 63.5 * if random & 256 == 0 { 1.0 } else { -1.0 },
        _ => (random as f32 / (1 << 23) as f32 - 1.0) * 2.0f32.powi((random % 11) as i32 - 5),
    };
    (0..count).map(|_| number(next())).collect()
}

/// A weight's bytes in a stored type; `columns` are whole blocks.
fn stored(dtype: Dtype, rows: usize, columns: usize) -> Vec<u8> {
    let values = numbers(rows + columns, rows * columns).into_iter();
    match dtype {
        Dtype::F32 => values.flat_map(f32::to_le_bytes).collect(),
        Dtype::F16 => values.flat_map(|value| f16::from_f32(value).to_le_bytes()).collect(),
        Dtype::Bf16 => values.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect(),
        Dtype::Block(format) => {
            // Any bits are integers; the scales among them are made small finite halves.
            let bytes = dtype.row_bytes(columns).unwrap() * rows;
            let mut bytes: Vec<u8> = (0..bytes).map(|index| (index * 89 % 251) as u8).collect();
            for block in bytes.chunks_exact_mut(format.bytes()) {
                format.halves_at().iter().for_each(|&at| block[at + 1] = 0x24);
                if format == BlockFormat::Mxfp4 {
                    block[0] = 120;
                }
            }
            bytes
        }
        _ => unreachable!(),
    }
}

/// A pair of panels, number by number: the twin of the tested code.
fn naive_group(format: WeightFormat, rows: [PanelRows<'_>; GROUP]) -> Vec<u8> {
    let depth = format.depth(rows[0].weight.columns());
    let mut group = vec![0; format.group_bytes(depth)];
    for (panel, PanelRows { weight, first }) in rows.into_iter().enumerate() {
        for lane in 0..PANEL {
            let mut row = vec![0.0; weight.columns()];
            if first + lane < weight.rows() {
                weight.read_row(first + lane, &mut row);
            }
            row.resize(depth, 0.0);
            let half = panel * group.len() / GROUP;
            match format {
                WeightFormat::F32 => {
                    for (k, value) in row.into_iter().enumerate() {
                        group[half + (k * PANEL + lane) * 4..][..4].copy_from_slice(&value.to_le_bytes());
                    }
                }
                WeightFormat::Bf16Pairs => {
                    for (k, value) in row.into_iter().enumerate() {
                        let place = half + ((k / 2 * PANEL + lane) * 2 + k % 2) * 2;
                        group[place..][..2].copy_from_slice(&bf16::from_f32(value).to_le_bytes());
                    }
                }
                WeightFormat::Integers(coding) => {
                    let blocks = group.chunks_exact_mut(coding.block_bytes());
                    for (block, values) in blocks.zip(row.chunks_exact(INPUTS)) {
                        naive_quantised(coding, values, block, panel, lane);
                    }
                }
            }
        }
    }
    group
}

/// The group of one lane of a block.
fn naive_quantised(coding: Coding, values: &[f32], block: &mut [u8], panel: usize, lane: usize) {
    let to = coding.quantisation().unwrap();
    let largest = values.iter().fold(0.0f32, |most, value| if value.abs() > most.abs() { *value } else { most });
    let scale = f16::from_f32(if to == Quantisation::Q8 { largest.abs() / 127.0 } else { largest / -8.0 });
    let inverse = if scale == f16::ZERO { 0.0 } else { scale.to_f32().recip() };
    block[(panel * PANEL + lane) * 2..][..2].copy_from_slice(&scale.to_le_bytes());
    let integers = &mut block[coding.head_bytes() + panel * coding.panel_bytes()..];
    for (k, &value) in values.iter().enumerate() {
        let nearest = (value * inverse).round();
        let place = |width: usize| (k / width * PANEL + lane) * 4 + k % 4;
        match to {
            Quantisation::Q8 => integers[place(4)] = (nearest.clamp(-127.0, 127.0) + 128.0) as u8,
            Quantisation::Q4 => integers[place(8)] |= ((nearest.clamp(-8.0, 7.0) + 8.0) as u8) << (k / 4 % 2 * 4),
        }
    }
}

#[test]
fn every_type_packs_to_every_format_like_its_twin_on_any_threads() {
    let pools = [1, 2, 3].map(Pool::new);
    for dtype in stored_types() {
        for (rows, columns) in SHAPES {
            let columns = columns.next_multiple_of(dtype.granularity());
            let bytes = stored(dtype, rows, columns);
            let weight = TensorView::new(dtype, rows, columns, &bytes);
            // What a format keeps as it is has tests of its own.
            let kept = Coding::keeping(dtype).map(WeightFormat::Integers);
            for format in FORMATS.into_iter().filter(|&format| kept != Some(format)) {
                let groups = (0..rows.div_ceil(PANEL * GROUP))
                    .map(|group| [2 * group, 2 * group + 1].map(|panel| PanelRows { weight, first: panel * PANEL }));
                let twin: Vec<u8> = groups.flat_map(|rows| naive_group(format, rows)).collect();
                for isa in Isa::available() {
                    for pool in &pools {
                        let packed = Packed::new(isa, format, pool, [weight.into()]).unwrap();
                        let threads = pool.threads();
                        let what = format!("{dtype} {rows}x{columns} to {format:?}, {}, {threads}", isa.tier());
                        assert!(packed.panels.bytes() == twin, "{what}");
                        assert_eq!((packed.rows(), packed.columns(), packed.bytes()), (rows, columns, twin.len()));
                    }
                }
            }
        }
    }
}

#[test]
fn gate_and_up_take_turns() {
    let pool = Pool::new(3);
    for (rows, columns) in SHAPES {
        let bytes = [stored(Dtype::Bf16, rows, columns), stored(Dtype::Bf16, rows + 1, columns)];
        let views = [0, 1].map(|which| {
            TensorView::new(Dtype::Bf16, rows, columns, &bytes[which][which * columns * 2..][..rows * columns * 2])
        });
        for format in FORMATS {
            let packed = Packed::new(Isa::best(), format, &pool, views.map(StoredTensor::from)).unwrap();
            let groups =
                (0..rows.div_ceil(PANEL)).map(|group| views.map(|weight| PanelRows { weight, first: group * PANEL }));
            let twin: Vec<u8> = groups.flat_map(|rows| naive_group(format, rows)).collect();
            assert!(packed.panels.bytes() == twin, "{rows}x{columns} {format:?}");
        }
    }
}

#[test]
fn rows_in_pairs_are_packed_in_the_order_of_halves() {
    let (rows, columns) = (48, 40);
    let bytes = stored(Dtype::Bf16, rows, columns);
    let weight = TensorView::new(Dtype::Bf16, rows, columns, &bytes).unpaired(12);
    let twin = [0, 32].map(|first| {
        naive_group(WeightFormat::Bf16Pairs, [first, first + PANEL].map(|first| PanelRows { weight, first }))
    });
    let isa = Isa::force(Tier::Portable).unwrap();
    let packed = Packed::new(isa, WeightFormat::Bf16Pairs, &Pool::new(2), [weight.into()]).unwrap();
    assert!(packed.panels.bytes() == twin.concat());
}

#[test]
fn the_largest_numbers_stay_and_the_smallest_round_to_zero() {
    let pool = Pool::new(1);
    let row = [bf16::MAX.to_f32(), bf16::MIN.to_f32(), f32::from_bits(1), 1.0];
    let bytes: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
    let weight = TensorView::new(Dtype::F32, 1, 4, &bytes);
    let packed = Packed::new(Isa::best(), WeightFormat::Bf16Pairs, &pool, [weight.into()]).unwrap();
    let word = |place: usize| bf16::from_le_bytes([packed.panels.bytes()[place], packed.panels.bytes()[place + 1]]);
    assert_eq!([word(0), word(2), word(64), word(66)], [bf16::MAX, bf16::MIN, bf16::ZERO, bf16::ONE]);
}

/// A number that is none, at either end and in the middle of a weight, in every format that it could be packed in.
#[test]
fn numbers_that_are_none_are_refused() {
    let (rows, columns) = (37, 300);
    for format in FORMATS {
        for place in [None, Some(0), Some(5000), Some(rows * columns - 1)] {
            for none in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut values = vec![0.5f32; rows * columns];
                if let Some(place) = place {
                    values[place] = none;
                }
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let weight = TensorView::new(Dtype::F32, rows, columns, &bytes);
                for isa in Isa::available() {
                    let packed = Packed::<1>::new(isa, format, &Pool::new(2), [weight.into()]).map(|_| ());
                    let expected = place.map_or(Ok(()), |_| Err(PackError::NotFinite));
                    assert_eq!(packed, expected, "{format:?} {place:?} {none}");
                }
            }
        }
    }
}
