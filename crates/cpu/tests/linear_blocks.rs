//! Weights in ggml's blocks: every tier multiplies with the very numbers of the blocks, and keeps them as small.

use crate::testable;
use demask_cpu::{
    isa::Isa,
    linear::{Activations, InputBuffer, Linear, Output, Packed, PackedGateUp, Products, Quantisation},
    pool::Pool,
};
use demask_tensor::{BlockFormat, Dtype, TensorView};
use demask_testkit::naive::linear::{self as naive, Shape};

/// Bytes that look like nothing in particular, the same for the same seed.
fn noise(seed: u64, count: usize) -> impl Iterator<Item = u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as u8
    })
}

/// Numbers between -1 and 1.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let bytes: Vec<u8> = noise(seed, 2 * count).collect();
    bytes.chunks(2).map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32768.0).collect()
}

/// A weight of random blocks: any integers and scales, the halves between -0.05 and 0.05.
struct Blocks {
    format: BlockFormat,
    out: usize,
    columns: usize,
    bytes: Vec<u8>,
}

impl Blocks {
    fn new(format: BlockFormat, out: usize, columns: usize, seed: u64) -> Self {
        let blocks = out * columns / format.elements();
        let mut bytes: Vec<u8> = noise(seed, blocks * format.bytes()).collect();
        let halves: &[usize] = match format {
            BlockFormat::Q4K | BlockFormat::Q5K => &[0, 2],
            BlockFormat::Q6K => &[208],
            _ => &[0],
        };
        let largest = if format.elements() == 256 { 0.001 } else { 0.05 };
        let values = numbers(seed ^ 1, 2 * blocks);
        for (index, block) in bytes.chunks_mut(format.bytes()).enumerate() {
            for (which, &at) in halves.iter().enumerate() {
                let half = half::f16::from_f32(values[2 * index + which] * largest);
                block[at..at + 2].copy_from_slice(&half.to_le_bytes());
            }
        }
        Self { format, out, columns, bytes }
    }

    fn view(&self) -> TensorView<'_> {
        TensorView::new(Dtype::Block(self.format), self.out, self.columns, &self.bytes)
    }

    fn wide(&self) -> Vec<f32> {
        self.view().to_f32()
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Every pair of a tier and a type of products.
fn linears() -> Vec<Linear> {
    testable().into_iter().flat_map(|isa| [Dtype::F32, Dtype::Bf16].map(|dtype| Linear::new(isa, dtype))).collect()
}

/// Every tier's products of blocks with inputs of bytes.
fn linears_of_bytes() -> Vec<Linear> {
    let products = Products { activations: Activations::Int8, ..Products::plain(Dtype::Bf16) };
    testable().into_iter().map(|isa| Linear::with_products(isa, products)).collect()
}

fn fill(linear: &Linear, input: &[f32], columns: usize) -> InputBuffer {
    let mut buffer = linear.new_input(input.len() / columns, columns);
    input.chunks(columns).enumerate().for_each(|(index, row)| buffer.set_row(index, row));
    buffer
}

fn matmul(linear: &Linear, pool: &Pool, input: &[f32], weight: &Packed) -> Vec<f32> {
    let (rows, stride) = (input.len() / weight.columns(), weight.rows());
    let mut out = vec![f32::NAN; rows * stride];
    let input = fill(linear, input, weight.columns());
    linear.matmul(pool, &input, rows, weight, None, Output::Store { out: &mut out, stride });
    out
}

fn gate_up(linear: &Linear, pool: &Pool, input: &[f32], weight: &PackedGateUp) -> Vec<f32> {
    let rows = input.len() / weight.columns();
    let mut output = linear.new_input(rows, weight.rows());
    linear.gate_up(pool, &fill(linear, input, weight.columns()), rows, weight, &mut output);
    let mut out = vec![0.0; rows * weight.rows()];
    out.chunks_mut(weight.rows()).enumerate().for_each(|(row, out)| output.read_row(row, out));
    out
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Outputs and inputs in blocks: whole panels and not, one pair and several, deeper than a block of the depth.
fn shapes(format: BlockFormat) -> [(usize, usize); 4] {
    let elements = format.elements();
    [(1, elements), (32, 2 * elements), (45, 3 * elements), (70, 2304)]
}

#[test]
fn products_are_those_of_the_widened_weight_to_the_bit() {
    let pool = Pool::new(2);
    for linear in linears() {
        for format in BlockFormat::ALL {
            for (out, columns) in shapes(format) {
                let weight = Blocks::new(format, out, columns, 1);
                let wide = bytes(&weight.wide());
                let kept = linear.pack(&Pool::new(2), weight.view()).unwrap();
                let plain = linear.pack(&Pool::new(2), TensorView::new(Dtype::F32, out, columns, &wide)).unwrap();
                for rows in [1, 2, 7, 8, 9, 12, 13, 40] {
                    let input = numbers(3, rows * columns);
                    let [found, expected] = [&kept, &plain].map(|weight| bits(&matmul(&linear, &pool, &input, weight)));
                    assert!(found == expected, "{} {format} {out}x{columns}, {rows} rows", linear.name());
                }
            }
        }
    }
}

#[test]
fn products_match_their_twin() {
    let pool = Pool::new(2);
    for linear in linears() {
        for format in BlockFormat::ALL {
            let (out, columns, rows) = (40, 512, 17);
            let weight = Blocks::new(format, out, columns, 2);
            let (input, wide) = (numbers(3, rows * columns), weight.wide());
            let shape = Shape { rows, out, columns };
            let expected = match linear.dtype() {
                Dtype::Bf16 => naive::linear_bf16(shape, &input, &wide, None),
                _ => naive::linear(shape, &input, &wide, None),
            };
            let largest = expected.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            let found = matmul(&linear, &pool, &input, &linear.pack(&Pool::new(2), weight.view()).unwrap());
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() <= 1e-5 * largest, "{} {format}: {found} {expected}", linear.name());
            }
        }
    }
}

#[test]
fn products_with_bytes_match_their_twin() {
    let pool = Pool::new(2);
    for linear in linears_of_bytes() {
        for format in BlockFormat::ALL {
            for (out, columns) in shapes(format) {
                let weight = Blocks::new(format, out, columns, 2);
                let (packed, wide) = (linear.pack(&Pool::new(2), weight.view()).unwrap(), weight.wide());
                for rows in [1, 2, 3, 7, 8, 9, 17, 40] {
                    let input = numbers(rows as u64, rows * columns);
                    let shape = Shape { rows, out, columns };
                    let expected = naive::linear(shape, &naive::int8(&input, columns), &wide, None);
                    let largest = expected.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
                    for (found, expected) in matmul(&linear, &pool, &input, &packed).iter().zip(&expected) {
                        let what = format!("{:?} {format} {out}x{columns}, {rows} rows", linear.isa());
                        assert!((found - expected).abs() <= 1e-5 * largest, "{what}: {found} {expected}");
                    }
                }
            }
        }
    }
}

/// Bytes of a file may be -128, which no weight is rounded to: two products with inputs at their ends just fit 16 bits.
#[test]
fn bytes_at_their_ends_are_summed_exactly() {
    let (out, columns) = (3, 64);
    for linear in linears_of_bytes() {
        for (weight, input) in [(-128i8, 127.0f32), (-128, -127.0), (127, 127.0), (127, -127.0)] {
            let mut blocks = Blocks::new(BlockFormat::Q8_0, out, columns, 1);
            for block in blocks.bytes.chunks_mut(BlockFormat::Q8_0.bytes()) {
                block[..2].copy_from_slice(&half::f16::ONE.to_le_bytes());
                block[2..].fill(weight as u8);
            }
            let packed = linear.pack(&Pool::new(1), blocks.view()).unwrap();
            let found = matmul(&linear, &Pool::new(1), &vec![input; columns], &packed);
            assert_eq!(found, vec![f32::from(weight) * input * columns as f32; out], "{:?}", linear.isa());
        }
    }
}

#[test]
fn gate_and_up_stay_in_blocks_of_one_format() {
    let (pool, out, columns) = (Pool::new(2), 45, 768);
    for linear in linears() {
        for (gate, up) in BlockFormat::ALL.into_iter().flat_map(|gate| BlockFormat::ALL.map(|up| (gate, up))) {
            let weights = [Blocks::new(gate, out, columns, 1), Blocks::new(up, out, columns, 2)];
            let kept = linear.pack_gate_up(&Pool::new(2), weights[0].view(), weights[1].view()).unwrap();
            let wide = weights.each_ref().map(|weight| bytes(&weight.wide()));
            let [first, second] = wide.each_ref().map(|wide| TensorView::new(Dtype::F32, out, columns, wide));
            let plain = linear.pack_gate_up(&Pool::new(2), first, second).unwrap();
            assert_eq!(kept.bytes() == plain.bytes(), gate != up, "{} {gate} {up}", linear.name());
            for rows in [1, 11, 33] {
                let input = numbers(3, rows * columns);
                let [found, expected] = [&kept, &plain].map(|weight| bits(&gate_up(&linear, &pool, &input, weight)));
                assert!(found == expected, "{} {gate} {up}, {rows} rows", linear.name());
            }
        }
    }
}

#[test]
fn rows_do_not_depend_on_company_or_threads() {
    let (out, columns) = (70, 1536);
    let input = numbers(5, 40 * columns);
    for linear in linears().into_iter().chain(linears_of_bytes()) {
        for format in BlockFormat::ALL {
            let weight = linear.pack(&Pool::new(2), Blocks::new(format, out, columns, 4).view()).unwrap();
            let all = matmul(&linear, &Pool::new(1), &input, &weight);
            for row in [0, 7, 39] {
                let alone = matmul(&linear, &Pool::new(3), &input[row * columns..][..columns], &weight);
                assert_eq!(bits(&alone), bits(&all[row * out..][..out]), "{} {format}", linear.name());
            }
        }
    }
}

#[test]
fn memory_is_that_of_the_blocks() {
    let (out, columns) = (64, 512);
    for linear in linears().into_iter().chain(linears_of_bytes()) {
        for format in BlockFormat::ALL {
            let weight = Blocks::new(format, out, columns, 1);
            let packed = linear.pack(&Pool::new(2), weight.view()).unwrap();
            // The six bits of scales and minima become bytes: 4 bytes for 256 inputs.
            let more = if matches!(format, BlockFormat::Q4K | BlockFormat::Q5K) { out * columns / 64 } else { 0 };
            assert_eq!(packed.bytes(), weight.bytes.len() + more, "{} {format}", linear.name());
            let name = match format {
                BlockFormat::Q8_0 => "q8".to_owned(),
                BlockFormat::Q4_0 => "q4".to_owned(),
                other => other.to_string(),
            };
            assert_eq!(packed.kept_in(), name);
        }
    }
}

#[test]
fn rows_in_pairs_are_packed_in_their_order() {
    let (out, columns) = (64, 256);
    for format in BlockFormat::ALL {
        let weight = Blocks::new(format, out, columns, 1);
        let view = weight.view().unpaired(16);
        let wide = bytes(&view.to_f32());
        let (linear, pool, input) = (Linear::new(Isa::best(), Dtype::F32), Pool::new(1), numbers(2, columns));
        let kept = matmul(&linear, &pool, &input, &linear.pack(&Pool::new(2), view).unwrap());
        let plain = linear.pack(&Pool::new(2), TensorView::new(Dtype::F32, out, columns, &wide)).unwrap();
        assert_eq!(bits(&kept), bits(&matmul(&linear, &pool, &input, &plain)), "{format}");
    }
}

#[test]
fn asking_for_other_integers_rounds_the_values_anew() {
    let (out, columns, pool) = (40, 512, Pool::new(1));
    let input = numbers(3, columns);
    for to in Quantisation::ALL {
        let linear =
            Linear::with_products(Isa::best(), Products { quantisation: Some(to), ..Products::plain(Dtype::F32) });
        for format in [BlockFormat::Q4K, BlockFormat::Q5_0, BlockFormat::Q6K] {
            let weight = Blocks::new(format, out, columns, 1);
            let wide = bytes(&weight.wide());
            let [found, expected] = [weight.view(), TensorView::new(Dtype::F32, out, columns, &wide)].map(|view| {
                let packed = linear.pack(&Pool::new(2), view).unwrap();
                assert_eq!((packed.kept_in(), packed.bytes()), (to.to_string(), plain_bytes(to, out, columns)));
                bits(&matmul(&linear, &pool, &input, &packed))
            });
            assert_eq!(found, expected, "{to} of {format}");
        }
    }
}

/// Bytes of 64 outputs: those of 40 with the padding of pairs of panels.
fn plain_bytes(to: Quantisation, out: usize, columns: usize) -> usize {
    to.bytes(out.next_multiple_of(32), columns)
}

/// Blocks of every format and their numbers by the format's own Python package: `tools/gguf/make_fixture.py`. Of each
/// format its name in 8 bytes, the number of blocks, the blocks, their numbers.
const FIXTURE: &[u8] = include_bytes!("../../tensor/tests/data/blocks.bin");

#[test]
fn products_match_those_of_the_reference_package() {
    let (pool, mut rest) = (Pool::new(1), FIXTURE);
    let mut take = |count: usize| -> &[u8] { rest.split_off(..count).unwrap() };
    for _ in BlockFormat::ALL {
        let name = String::from_utf8_lossy(take(8)).trim_end().to_owned();
        let format = BlockFormat::ALL.into_iter().find(|format| format.to_string() == name).unwrap();
        let count = u32::from_le_bytes(take(4).try_into().unwrap()) as usize;
        let blocks = take(count * format.bytes());
        let wide = take(count * format.elements() * 4).chunks(4);
        let wide: Vec<f32> = wide.map(|raw| f32::from_le_bytes(raw.try_into().unwrap())).collect();
        let (out, columns, rows) = (2, count / 2 * format.elements(), 11);
        let (input, shape) = (numbers(7, rows * columns), Shape { rows, out, columns });
        for linear in linears() {
            let expected = match linear.dtype() {
                Dtype::Bf16 => naive::linear_bf16(shape, &input, &wide, None),
                _ => naive::linear(shape, &input, &wide, None),
            };
            let largest = expected.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            let packed =
                linear.pack(&Pool::new(2), TensorView::new(Dtype::Block(format), out, columns, blocks)).unwrap();
            let found = matmul(&linear, &pool, &input, &packed);
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() <= 1e-5 * largest, "{} {format}: {found} {expected}", linear.name());
            }
        }
    }
}
