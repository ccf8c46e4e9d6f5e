//! Weights in ggml's blocks: every tier multiplies with the very numbers of the blocks, and keeps them as small.

use crate::testable;
use demask_cpu::{
    isa::Isa,
    linear::{Activations, Linear, Products, Quantisation},
    pool::Pool,
};
use demask_tensor::{BlockFormat, Dtype, TensorView};
use demask_testkit::naive::{linear::Shape, network::noise};

use super::linear::{bits, bytes, expected, gate_up, matmul};

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
        let mut bytes: Vec<u8> =
            noise(blocks * format.bytes(), seed).iter().map(|x| (128.0 + 128.0 * x) as u8).collect();
        let largest = if format.elements() == 256 { 0.001 } else { 0.05 };
        let values = noise(2 * blocks, seed ^ 1);
        for (index, block) in bytes.chunks_mut(format.bytes()).enumerate() {
            for (which, &at) in format.halves_at().iter().enumerate() {
                let half = half::f16::from_f32(values[2 * index + which] * largest);
                block[at..at + 2].copy_from_slice(&half.to_le_bytes());
            }
            if format == BlockFormat::Mxfp4 {
                // An exponent of 2 instead.
                block[0] = 118 + block[0] % 8;
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

/// Every pair of a tier and a type of products.
fn linears() -> Vec<Linear> {
    testable().into_iter().flat_map(|isa| [Dtype::F32, Dtype::Bf16].map(|dtype| Linear::new(isa, dtype))).collect()
}

/// Every tier's products of blocks with inputs of bytes.
fn linears_of_bytes() -> Vec<Linear> {
    let products = Products { activations: Activations::Int8, ..Products::plain(Dtype::Bf16) };
    testable().into_iter().map(|isa| Linear::with_products(isa, products)).collect()
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
                    let input = noise(rows * columns, 3);
                    let [found, expected] =
                        [&kept, &plain].map(|weight| bits(&matmul(&linear, &pool, &input, weight, None)));
                    assert!(found == expected, "{} {format} {out}x{columns}, {rows} rows", linear.name());
                }
            }
        }
    }
}

/// Compares a product with its twin, relative to the largest output.
#[track_caller]
fn assert_matches(linear: &Linear, shape: Shape, (weight, wide): (TensorView<'_>, &[f32])) {
    let input = noise(shape.rows * shape.columns, shape.rows as u64);
    let expected = expected(linear, shape, &input, wide, None);
    let largest = expected.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let found = matmul(linear, &Pool::new(2), &input, &linear.pack(&Pool::new(2), weight).unwrap(), None);
    for (found, expected) in found.iter().zip(&expected) {
        let what = format!("{} on {} {} {shape:?}", linear.name(), linear.isa().tier(), weight.dtype());
        assert!((found - expected).abs() <= 1e-5 * largest, "{what}: {found} {expected}");
    }
}

#[test]
fn products_match_their_twin() {
    for format in BlockFormat::ALL {
        let weight = Blocks::new(format, 40, 512, 2);
        for linear in linears() {
            assert_matches(&linear, Shape { rows: 17, out: 40, columns: 512 }, (weight.view(), &weight.wide()));
        }
        // Beside inputs of bytes, weights that no blocks have room for are rounded.
        for (out, columns) in shapes(format).into_iter().filter(|_| format.parts_as().is_some()) {
            let weight = Blocks::new(format, out, columns, 2);
            for (linear, rows) in
                linears_of_bytes().iter().flat_map(|linear| [1, 2, 3, 7, 8, 9, 17, 40].map(|rows| (linear, rows)))
            {
                assert_matches(linear, Shape { rows, out, columns }, (weight.view(), &weight.wide()));
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
            let found = matmul(&linear, &Pool::new(1), &vec![input; columns], &packed, None);
            assert_eq!(found, vec![f32::from(weight) * input * columns as f32; out], "{:?}", linear.isa());
        }
    }
}

#[test]
fn gate_and_up_stay_in_blocks_that_have_room_for_both() {
    let (pool, out, columns) = (Pool::new(2), 45, 768);
    for linear in linears() {
        let pairs = |gate| [gate, BlockFormat::Q8_0, BlockFormat::Q6K, BlockFormat::Q4K].map(|up| (gate, up));
        for (gate, up) in BlockFormat::ALL.into_iter().flat_map(pairs) {
            let weights = [Blocks::new(gate, out, columns, 1), Blocks::new(up, out, columns, 2)];
            let kept = linear.pack_gate_up(&Pool::new(2), weights[0].view(), weights[1].view()).unwrap();
            let wide = weights.each_ref().map(|weight| bytes(&weight.wide()));
            let [first, second] = wide.each_ref().map(|wide| TensorView::new(Dtype::F32, out, columns, wide));
            let plain = linear.pack_gate_up(&Pool::new(2), first, second).unwrap();
            let shared = gate.parts_as().filter(|kept| up.parts_as() == Some(*kept));
            assert_eq!(kept.bytes() == plain.bytes(), shared.is_none(), "{} {gate} {up}", linear.name());
            for rows in [1, 11, 33] {
                let input = noise(rows * columns, 3);
                let [found, expected] = [&kept, &plain].map(|weight| bits(&gate_up(&linear, &pool, &input, weight)));
                assert!(found == expected, "{} {gate} {up}, {rows} rows", linear.name());
            }
        }
    }
}

#[test]
fn rows_do_not_depend_on_company_or_threads() {
    let (out, columns) = (70, 1536);
    let input = noise(40 * columns, 5);
    for linear in linears().into_iter().chain(linears_of_bytes()) {
        for format in BlockFormat::ALL {
            let weight = linear.pack(&Pool::new(2), Blocks::new(format, out, columns, 4).view()).unwrap();
            let all = matmul(&linear, &Pool::new(1), &input, &weight, None);
            for row in [0, 7, 39] {
                let alone = matmul(&linear, &Pool::new(3), &input[row * columns..][..columns], &weight, None);
                assert_eq!(bits(&alone), bits(&all[row * out..][..out]), "{} {format}", linear.name());
            }
        }
    }
}

#[test]
fn memory_is_that_of_the_blocks_that_keep_the_numbers() {
    let (out, columns) = (64, 512);
    for linear in linears().into_iter().chain(linears_of_bytes()) {
        for (format, kept) in BlockFormat::ALL.into_iter().filter_map(|format| Some((format, format.parts_as()?))) {
            let weight = Blocks::new(format, out, columns, 1);
            let packed = linear.pack(&Pool::new(2), weight.view()).unwrap();
            // For 256 inputs, the six bits of scales and minima become bytes, and the steps of IQ4_XS and its scales too.
            let more = match kept {
                BlockFormat::Q4K | BlockFormat::Q5K => 4,
                BlockFormat::Iq4Xs => 128 + 10,
                _ => 0,
            };
            let blocks = out * columns / kept.elements();
            assert_eq!(packed.bytes(), blocks * (kept.bytes() + more), "{} {format}", linear.name());
            let name = match kept {
                BlockFormat::Q8_0 => "q8".to_owned(),
                BlockFormat::Q4_0 => "q4".to_owned(),
                other => other.to_string(),
            };
            assert_eq!(packed.kept_in(), name);
        }
    }
}

#[test]
fn blocks_that_none_have_room_for_become_what_products_take() {
    let (out, columns) = (64, 512);
    for format in BlockFormat::ALL.into_iter().filter(|format| format.parts_as().is_none()) {
        let weight = Blocks::new(format, out, columns, 1);
        let kept_in = |linear: &Linear| linear.pack(&Pool::new(2), weight.view()).unwrap().kept_in();
        let isa = Isa::best();
        let [f32, bf16] = [Dtype::F32, Dtype::Bf16].map(|dtype| kept_in(&Linear::new(isa, dtype)));
        let bytes = Products { activations: Activations::Int8, ..Products::plain(Dtype::Bf16) };
        assert_eq!([f32, bf16, kept_in(&Linear::with_products(isa, bytes))], ["f32", "bf16", "q8"], "{format}");
    }
}

#[test]
fn rows_in_pairs_are_packed_in_their_order() {
    let (out, columns) = (64, 256);
    for format in BlockFormat::ALL {
        let weight = Blocks::new(format, out, columns, 1);
        let view = weight.view().unpaired(16);
        let wide = bytes(&view.to_f32());
        let (linear, pool, input) = (Linear::new(Isa::best(), Dtype::F32), Pool::new(1), noise(columns, 2));
        let kept = matmul(&linear, &pool, &input, &linear.pack(&Pool::new(2), view).unwrap(), None);
        let plain = linear.pack(&Pool::new(2), TensorView::new(Dtype::F32, out, columns, &wide)).unwrap();
        assert_eq!(bits(&kept), bits(&matmul(&linear, &pool, &input, &plain, None)), "{format}");
    }
}

#[test]
fn asking_for_other_integers_rounds_the_values_anew() {
    let (out, columns, pool) = (40, 512, Pool::new(1));
    let input = noise(columns, 3);
    for to in Quantisation::ALL {
        let linear =
            Linear::with_products(Isa::best(), Products { quantisation: Some(to), ..Products::plain(Dtype::F32) });
        for format in [BlockFormat::Q4K, BlockFormat::Q5_0, BlockFormat::Q6K, BlockFormat::Q4_1, BlockFormat::Iq4Xs] {
            let weight = Blocks::new(format, out, columns, 1);
            let wide = bytes(&weight.wide());
            let [found, expected] = [weight.view(), TensorView::new(Dtype::F32, out, columns, &wide)].map(|view| {
                let packed = linear.pack(&Pool::new(2), view).unwrap();
                assert_eq!((packed.kept_in(), packed.bytes()), (to.to_string(), plain_bytes(to, out, columns)));
                bits(&matmul(&linear, &pool, &input, &packed, None))
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
    let mut rest = FIXTURE;
    let mut take = |count: usize| -> &[u8] { rest.split_off(..count).unwrap() };
    for _ in BlockFormat::ALL {
        let name = String::from_utf8_lossy(take(8)).trim_end().to_owned();
        let format = BlockFormat::ALL.into_iter().find(|format| format.to_string() == name).unwrap();
        let count = u32::from_le_bytes(take(4).try_into().unwrap()) as usize;
        let blocks = take(count * format.bytes());
        let wide = take(count * format.elements() * 4).chunks(4);
        let wide: Vec<f32> = wide.map(|raw| f32::from_le_bytes(raw.try_into().unwrap())).collect();
        let (out, columns) = (2, count / 2 * format.elements());
        let weight = TensorView::new(Dtype::Block(format), out, columns, blocks);
        for linear in linears() {
            assert_matches(&linear, Shape { rows: 11, out, columns }, (weight, &wide));
        }
    }
}
