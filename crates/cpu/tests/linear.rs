//! Every kernel against its naive twin, and the promise that a row's result depends on nothing but the row.

use crate::{kernel_list, testable};
use demask_cpu::{
    isa::{Isa, Tier},
    linear::{Activations, InputBuffer, Linear, Output, Packed, PackedGateUp, Products, Quantisation},
    pool::Pool,
};
use demask_tensor::{Dtype, TensorView};
use demask_testkit::naive::{
    linear::{self as naive, Shape},
    network::noise,
};
use proptest::prelude::*;

pub(crate) fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn pack(linear: &Linear, out: usize, columns: usize, values: &[f32]) -> Packed {
    linear.pack(&Pool::new(2), TensorView::new(Dtype::F32, out, columns, &bytes(values))).unwrap()
}

fn pack_gate_up(linear: &Linear, out: usize, columns: usize, gate: &[f32], up: &[f32]) -> PackedGateUp {
    let (gate, up) = (bytes(gate), bytes(up));
    let [gate, up] = [&gate, &up].map(|bytes| TensorView::new(Dtype::F32, out, columns, bytes));
    linear.pack_gate_up(&Pool::new(2), gate, up).unwrap()
}

/// Inputs of whole rows.
fn fill(linear: &Linear, input: &[f32], columns: usize) -> InputBuffer {
    let mut buffer = linear.new_input(input.len() / columns, columns);
    input.chunks_exact(columns).enumerate().for_each(|(index, row)| buffer.set_row(index, row));
    buffer
}

pub(crate) fn matmul(linear: &Linear, pool: &Pool, input: &[f32], weight: &Packed, bias: Option<&[f32]>) -> Vec<f32> {
    let (rows, stride) = (input.len() / weight.columns(), weight.rows());
    let mut out = vec![f32::NAN; rows * stride];
    let input = fill(linear, input, weight.columns());
    linear.matmul(pool, &input, rows, weight, bias, Output::Store { out: &mut out, stride });
    out
}

pub(crate) fn gate_up(linear: &Linear, pool: &Pool, input: &[f32], weight: &PackedGateUp) -> Vec<f32> {
    let rows = input.len() / weight.columns();
    let mut output = linear.new_input(rows, weight.rows());
    linear.gate_up(pool, &fill(linear, input, weight.columns()), rows, weight, &mut output);
    let mut out = vec![0.0; rows * weight.rows()];
    out.chunks_exact_mut(weight.rows()).enumerate().for_each(|(index, row)| output.read_row(index, row));
    out
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Kernels of inputs that are rounded to bytes.
fn kernels_of_bytes() -> impl Iterator<Item = Linear> {
    kernel_list().into_iter().filter(|linear| linear.activations() == Activations::Int8)
}

/// Sums of `columns` products of numbers up to 1, each rounded a few times.
fn tolerance(columns: usize) -> f32 {
    3e-7 * (columns as f32).sqrt() * 4.0
}

#[track_caller]
fn assert_close(actual: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(actual.len(), expected.len());
    for (index, (&actual, &expected)) in actual.iter().zip(expected).enumerate() {
        let error = (actual - expected).abs();
        assert!(error <= tolerance * expected.abs().max(1.0), "{what}: [{index}] is {actual}, not {expected}");
    }
}

/// Outputs and inputs: whole panels and not, odd, smaller than any padding, deeper than a block of the depth.
const SHAPES: [(usize, usize); 14] = [
    (1, 1),
    (8, 24),
    (24, 8),
    (16, 32),
    (17, 33),
    (32, 64),
    (56, 96),
    (96, 56),
    (33, 257),
    (64, 320),
    (320, 64),
    (48, 512),
    (70, 1100),
    (130, 2100),
];

/// The weights that a kernel multiplies with, before they are rounded to bf16.
fn kept(linear: &Linear, weight: &[f32], columns: usize) -> Vec<f32> {
    linear.quantisation().map_or_else(|| weight.to_vec(), |to| naive::quantised(weight, columns, to.bits()))
}

/// The twin of a product.
pub(crate) fn expected(linear: &Linear, shape: Shape, input: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let weight = kept(linear, weight, shape.columns);
    if linear.activations() == Activations::Int8 {
        return naive::linear(shape, &naive::int8(input, shape.columns), &weight, bias);
    }
    match linear.dtype() {
        Dtype::Bf16 => naive::linear_bf16(shape, input, &weight, bias),
        _ => naive::linear(shape, input, &weight, bias),
    }
}

#[test]
fn every_kernel_matches_its_twin_over_shapes_and_row_counts() {
    let pools = [2, 3].map(Pool::new);
    let few = SHAPES.map(|shape| (shape, vec![1, 2, 5, 13, 16, 33]));
    let many = ((40, 72), (1..=70).chain([191, 192, 193, 400]).collect());
    for linear in kernel_list() {
        for ((out, columns), row_counts) in few.iter().chain([&many]) {
            let (out, columns) = (*out, *columns);
            let (weight, bias) = (noise(out * columns, 1), noise(out, 2));
            let packed = pack(&linear, out, columns, &weight);
            for &rows in row_counts {
                let shape = Shape { rows, out, columns };
                let input = noise(rows * columns, rows as u64);
                for (pool, bias) in pools.iter().zip([None, Some(&bias[..])]) {
                    let actual = matmul(&linear, pool, &input, &packed, bias);
                    let twin = expected(&linear, shape, &input, &weight, bias);
                    assert_close(&actual, &twin, tolerance(columns), &format!("{} {shape:?}", linear.name()));
                }
            }
        }
    }
}

#[test]
fn gate_up_matches_its_twin() {
    let pool = Pool::new(2);
    for linear in kernel_list() {
        for (out, columns) in SHAPES {
            // Sums of about 1, as in networks: the rounding of one factor is not blown up by the other.
            let scale = (columns as f32).sqrt().recip();
            let [mut gate, mut up] = [1, 2]
                .map(|seed| noise(out * columns, seed).into_iter().map(|value| value * scale).collect::<Vec<_>>());
            let packed = pack_gate_up(&linear, out, columns, &gate, &up);
            for values in [&mut gate, &mut up] {
                *values = kept(&linear, values, columns);
            }
            for rows in [1, 3, 12, 40] {
                let mut input = noise(rows * columns, 3);
                // Outputs are rounded to the input format: half a unit in the last place of bf16.
                let mut allowed = tolerance(columns);
                if linear.dtype() == Dtype::Bf16 {
                    for values in [&mut gate, &mut up, &mut input] {
                        *values = naive::rounded(values);
                    }
                    allowed += 1.0 / 256.0;
                }
                if linear.activations() == Activations::Int8 {
                    input = naive::int8(&input, columns);
                }
                let twin = naive::gate_up(Shape { rows, out, columns }, &input, &gate, &up);
                if linear.activations() == Activations::Int8 {
                    // Half a step of the largest output, and a whole one where another sum tips an integer.
                    allowed += twin.iter().fold(0.0f32, |most, value| most.max(value.abs())) / 127.0;
                }
                let actual = gate_up(&linear, &pool, &input, &packed);
                assert_close(&actual, &twin, allowed, &format!("{} {out}x{columns}, {rows} rows", linear.name()));
            }
        }
    }
}

#[test]
fn outputs_are_stored_and_added_where_they_belong() {
    let pool = Pool::new(2);
    let (out, columns, rows, stride) = (37, 50, 5, 41);
    let (weight, bias, input) = (noise(out * columns, 1), noise(out, 2), noise(rows * columns, 3));
    let residual = noise(9 * stride, 4);
    for linear in kernel_list() {
        let packed = pack(&linear, out, columns, &weight);
        let product = matmul(&linear, &pool, &input, &packed, Some(&bias));
        let input = fill(&linear, &input, columns);
        let map = [7, 0, 8, 3, 4];
        for targets in [None, Some(&map), Some(&[0, 2, 3, 5, 8])] {
            let mut added = residual.clone();
            let output = Output::Add { residual: &mut added, stride, rows: targets.map(|map| &map[..]) };
            linear.matmul(&pool, &input, rows, &packed, Some(&bias), output);
            let mut wanted = residual.clone();
            for row in 0..rows {
                let target = targets.map_or(row, |map| map[row] as usize);
                for column in 0..out {
                    wanted[target * stride + column] += product[row * out + column];
                }
            }
            assert_eq!(added, wanted, "{}", linear.name());
        }
        let mut stored = residual.clone();
        let output = Output::Store { out: &mut stored, stride };
        linear.matmul(&pool, &input, 3, &packed, Some(&bias), output);
        for row in 0..9 {
            let (inside, outside) = stored[row * stride..(row + 1) * stride].split_at(out);
            assert_eq!(outside, &residual[row * stride + out..(row + 1) * stride]);
            let wanted = if row < 3 { &product[row * out..(row + 1) * out] } else { &residual[row * stride..][..out] };
            assert_eq!(inside, wanted, "{}", linear.name());
        }
    }
}

#[test]
fn rows_that_repeat_are_added_one_after_the_other() {
    let pool = Pool::new(3);
    let (out, columns, rows) = (64, 32, 400);
    let (weight, input) = (noise(out * columns, 1), noise(rows * columns, 3));
    for linear in kernel_list() {
        let packed = pack(&linear, out, columns, &weight);
        let product = matmul(&linear, &pool, &input, &packed, None);
        let mut residual = vec![0.0; out];
        let output = Output::Add { residual: &mut residual, stride: out, rows: Some(&vec![0; rows]) };
        linear.matmul(&pool, &fill(&linear, &input, columns), rows, &packed, None, output);
        let wanted = product.chunks_exact(out).fold(vec![0.0; out], |mut sums: Vec<f32>, row| {
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            sums
        });
        assert_eq!(residual, wanted);
    }
}

/// Every integer at an end of its range: sums of 32 products of 127 and -127 or -8, which leave 16 bits.
#[test]
fn integers_at_their_ends_are_summed_exactly() {
    let pool = Pool::new(1);
    let (out, columns) = (33, 96);
    for linear in kernels_of_bytes() {
        for (weight_sign, input_sign) in [(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)] {
            for step in [1, 2, 3, 33] {
                // Of four bits the largest magnitude becomes -8, so that both signs of the scale occur.
                let sign = |index: usize| if index.is_multiple_of(step) { 1.0 } else { -1.0 };
                let weight: Vec<f32> = (0..out * columns).map(|index| weight_sign * 127.0 * sign(index)).collect();
                let input: Vec<f32> = (0..columns).map(|index| input_sign * 127.0 * sign(index)).collect();
                let actual = matmul(&linear, &pool, &input, &pack(&linear, out, columns, &weight), None);
                let shape = Shape { rows: 1, out, columns };
                assert_close(&actual, &expected(&linear, shape, &input, &weight, None), 1e-6, linear.name());
            }
        }
    }
}

/// A single tile of rows takes weights as they are packed, more tiles find them prepared, and tiles differ in rows.
#[test]
fn a_row_of_bytes_has_the_same_bits_in_every_tile() {
    let pool = Pool::new(1);
    let (out, columns) = (70, 1100);
    let (weight, input) = (noise(out * columns, 1), noise(37 * columns, 2));
    for linear in kernels_of_bytes() {
        let packed = pack(&linear, out, columns, &weight);
        let sums = |rows: usize| bits(&matmul(&linear, &pool, &input[..rows * columns], &packed, None));
        let all = sums(37);
        for rows in [1, 5, 8, 9, 12, 13, 16, 25] {
            assert!(sums(rows) == all[..rows * out], "{}, {rows} rows", linear.name());
        }
    }
}

/// Inputs of the down projection are rounded by groups of which gate and up yield a half at a time: the result is that
/// of the whole row.
#[test]
fn gate_up_rounds_whole_groups() {
    let (out, columns, rows) = (200, 64, 3);
    let (gate, up, input) = (noise(out * columns, 1), noise(out * columns, 2), noise(rows * columns, 3));
    for linear in kernels_of_bytes() {
        let [gates, ups] = [&gate, &up]
            .map(|weight| matmul(&linear, &Pool::new(1), &input, &pack(&linear, out, columns, weight), None));
        let whole: Vec<f32> =
            gates.iter().zip(&ups).map(|(gate, up)| demask_cpu::linear::activation::silu_f32(*gate) * up).collect();
        let expected = naive::int8(&whole, out);
        let packed = pack_gate_up(&linear, out, columns, &gate, &up);
        for threads in [1, 2, 3, 8] {
            let actual = gate_up(&linear, &Pool::new(threads), &input, &packed);
            assert_close(&actual, &expected, 1e-6, linear.name());
        }
    }
}

#[test]
fn every_tier_multiplies_integers() {
    for isa in Isa::available() {
        for to in Quantisation::ALL {
            let products =
                Products { quantisation: Some(to), activations: Activations::Int8, ..Products::plain(Dtype::Bf16) };
            let linear = Linear::with_products(isa, products);
            assert_eq!((linear.dtype(), linear.activations()), (Dtype::Bf16, Activations::Int8));
            assert_eq!(linear.quantisation(), Some(to));
            assert!(linear.name().contains("_i8x"), "{}", linear.name());
        }
    }
}

#[test]
fn plain_weights_beside_inputs_of_bytes_are_rounded_to_eight_bits() {
    let (out, columns) = (40, 96);
    let (weight, input) = (noise(out * columns, 1), noise(5 * columns, 2));
    let products = Products { activations: Activations::Int8, ..Products::plain(Dtype::Bf16) };
    let [found, expected] = [None, Some(Quantisation::Q8)].map(|quantisation| {
        let linear = Linear::with_products(Isa::best(), Products { quantisation, ..products });
        let packed = pack(&linear, out, columns, &weight);
        assert_eq!((packed.kept_in(), linear.quantisation()), ("q8".to_owned(), quantisation));
        matmul(&linear, &Pool::new(1), &input, &packed, None)
    });
    assert_eq!(found, expected);
}

#[test]
fn extreme_numbers_stay_in_their_rows() {
    let pool = Pool::new(2);
    let (out, columns) = (20, 40);
    let weight = noise(out * columns, 1);
    for linear in kernel_list() {
        let packed = pack(&linear, out, columns, &weight);
        let plain = noise(columns, 3);
        let [nan, infinite, huge] = [f32::NAN, f32::INFINITY, f32::MAX].map(|extreme| {
            let mut row = plain.clone();
            row[7] = extreme;
            row
        });
        let alone = matmul(&linear, &pool, &plain, &packed, None);
        let among = matmul(&linear, &pool, &[nan, plain, infinite, huge].concat(), &packed, None);
        assert!(among[..out].iter().all(|value| value.is_nan()));
        assert_eq!(among[out..2 * out], alone);
        assert!(among[2 * out..3 * out].iter().all(|value| !value.is_finite()));
    }
}

#[test]
fn a_buffer_may_be_used_again_for_fewer_rows() {
    let pool = Pool::new(2);
    let (out, columns) = (20, 40);
    let (weight, values) = (noise(out * columns, 1), noise(columns, 3));
    for linear in kernel_list() {
        let packed = pack(&linear, out, columns, &weight);
        let mut input = fill(&linear, &[f32::NAN; 30 * 40], columns);
        input.set_row(0, &values);
        let mut actual = vec![0.0; out];
        linear.matmul(&pool, &input, 1, &packed, None, Output::Store { out: &mut actual, stride: out });
        assert_eq!(actual, matmul(&linear, &pool, &values, &packed, None));
    }
}

#[test]
fn no_rows_are_no_work() {
    let pool = Pool::new(2);
    for linear in kernel_list() {
        let packed = pack(&linear, 4, 4, &[1.0; 16]);
        assert!(matmul(&linear, &pool, &[], &packed, None).is_empty());
    }
}

#[test]
fn a_weight_packed_for_another_kernel_is_refused() {
    let kernels = kernel_list();
    let (first, other) = (&kernels[0], kernels.iter().find(|linear| linear.dtype() == Dtype::Bf16).unwrap());
    let packed = pack(other, 4, 4, &[1.0; 16]);
    let attempt = std::panic::catch_unwind(|| matmul(first, &Pool::new(1), &[0.0; 4], &packed, None));
    let message = attempt.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("the weight was packed for another kernel than portable_f32xf32_f32"), "{message}");
}

#[test]
#[should_panic(expected = "width of the input")]
fn an_input_of_another_width_is_refused() {
    let linear = kernel_list()[0];
    let packed = pack(&linear, 4, 4, &[1.0; 16]);
    let mut out = [0.0; 4];
    let output = Output::Store { out: &mut out, stride: 4 };
    linear.matmul(&Pool::new(1), &linear.new_input(1, 5), 1, &packed, None, output);
}

#[test]
#[should_panic(expected = "rows beyond the output")]
fn an_output_that_is_too_small_is_refused() {
    let linear = kernel_list()[0];
    let packed = pack(&linear, 4, 4, &[1.0; 16]);
    let mut out = [0.0; 7];
    let output = Output::Store { out: &mut out, stride: 4 };
    linear.matmul(&Pool::new(1), &linear.new_input(2, 4), 2, &packed, None, output);
}

#[test]
fn quantised_weights_take_the_bytes_of_their_blocks() {
    for linear in kernel_list() {
        let Some(to) = linear.quantisation() else { continue };
        let packed = pack(&linear, 64, 96, &noise(64 * 96, 1));
        assert_eq!(packed.bytes(), to.bytes(64, 96), "{}", linear.name());
        let bits = if to == Quantisation::Q8 { 17 } else { 9 };
        assert_eq!(packed.bytes(), 64 * 96 * bits / 16);
    }
}

#[test]
fn the_list_has_a_kernel_of_each_type_for_every_tier() {
    let names: Vec<_> = kernel_list().iter().map(Linear::name).collect();
    assert_eq!(names[..3], ["portable_f32xf32_f32", "portable_f32xq8_f32", "portable_f32xq4_f32"]);
    // Products of floats on the tiers with dot products of bytes are those of the tier below.
    let own = |isa: &Isa| ![Tier::AvxVnni, Tier::Dotprod].contains(&isa.tier());
    for isa in testable().into_iter().filter(own) {
        for weights in ["bf16", "q8", "q4"] {
            let name = format!("{}_bf16x{weights}_f32", isa.tier());
            assert!(names.contains(&&*name), "{name}");
        }
    }
    let arm = |isa: &Isa| [Tier::Neon, Tier::Dotprod, Tier::Bf16I8mm].contains(&isa.tier());
    for isa in Isa::available().into_iter().filter(arm) {
        for weights in ["q8", "q4"] {
            let name = format!("{}_i8x{weights}_f32", isa.tier());
            assert!(names.contains(&&*name), "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Rows give the same bits alone, among others, in another order, and on any number of threads.
    #[test]
    fn row_invariance(
        out in 1usize..100,
        columns in 1usize..1200,
        chosen in prop::collection::vec(0usize..70, 1..70),
        threads in 1usize..=3,
        seed in any::<u64>(),
    ) {
        let values = noise(70 * columns, seed);
        let rows: Vec<f32> = chosen.iter().flat_map(|&row| &values[row * columns..][..columns]).copied().collect();
        let (weight, other) = (noise(out * columns, seed ^ 1), noise(out * columns, seed ^ 2));
        for linear in kernel_list() {
            let (packed, pair) = (pack(&linear, out, columns, &weight), pack_gate_up(&linear, out, columns, &weight, &other));
            let (one, many) = (Pool::new(1), Pool::new(threads));
            let whole = [matmul(&linear, &one, &values, &packed, None), gate_up(&linear, &one, &values, &pair)];
            let part = [matmul(&linear, &many, &rows, &packed, None), gate_up(&linear, &many, &rows, &pair)];
            for (whole, part) in whole.iter().zip(&part) {
                for (index, &row) in chosen.iter().enumerate() {
                    let [part, whole] = [&part[index * out..][..out], &whole[row * out..][..out]].map(bits);
                    prop_assert_eq!(part, whole, "{} row {}", linear.name(), row);
                }
            }
        }
    }
}
