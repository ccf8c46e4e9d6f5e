//! Matrix products, one multiplication after the other.

/// Sizes of a product: inputs `[rows, columns]`, weight `[out, columns]`, outputs `[rows, out]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Input rows.
    pub rows: usize,
    /// Outputs of each.
    pub out: usize,
    /// Inputs of each.
    pub columns: usize,
}

/// Products in f64, plus the bias.
pub fn linear(shape: Shape, input: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let Shape { rows, out, columns } = shape;
    assert_eq!([input.len(), weight.len()], [rows * columns, out * columns]);
    let mut result = Vec::with_capacity(rows * out);
    for row in 0..rows {
        for output in 0..out {
            let mut sum = 0.0f64;
            for k in 0..columns {
                sum += f64::from(input[row * columns + k]) * f64::from(weight[output * columns + k]);
            }
            result.push((sum + bias.map_or(0.0, |bias| f64::from(bias[output]))) as f32);
        }
    }
    result
}

/// Product of inputs and weights that are rounded to bf16 first.
pub fn linear_bf16(shape: Shape, input: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    linear(shape, &rounded(input), &rounded(weight), bias)
}

/// Weights as their quantisation keeps them: in each row, groups of 32 are integers of 8 or 4 bits times a half.
pub fn quantised(weight: &[f32], columns: usize, bits: usize) -> Vec<f32> {
    weight.chunks(columns).flat_map(|row| row.chunks(32)).flat_map(|group| quantised_group(group, bits)).collect()
}

/// Quantises a group as GGUF does: eight bits are symmetric; with four bits the weight of the largest magnitude becomes
/// -8.
fn quantised_group(group: &[f32], bits: usize) -> Vec<f32> {
    let magnitude = group.iter().map(|weight| weight.abs()).fold(0.0, f32::max);
    let (scale, lowest, highest) = match bits {
        8 => (magnitude / 127.0, -127.0, 127.0),
        4 => (group.iter().find(|weight| weight.abs() == magnitude).copied().unwrap_or(0.0) / -8.0, -8.0, 7.0),
        _ => panic!("no quantisation has {bits} bits"),
    };
    let scale = round_f16(scale);
    let integer =
        |weight: f32| if scale == 0.0 { 0.0 } else { (weight * (1.0 / scale)).round().clamp(lowest, highest) };
    group.iter().map(|&weight| integer(weight) * scale).collect()
}

/// Inputs as bytes keep them: in each row, groups of 32 are integers times a scale that spreads the largest over 127.
pub fn int8(input: &[f32], columns: usize) -> Vec<f32> {
    let groups = input.chunks(columns).flat_map(|row| row.chunks(32));
    let kept = groups.flat_map(|group| {
        let largest = group.iter().map(|value| value.abs()).fold(0.0, f32::max);
        let integer =
            move |value: f32| if largest == 0.0 { 0.0 } else { (value * (127.0 / largest)).round_ties_even() };
        group.iter().map(move |&value| integer(value) * (largest / 127.0))
    });
    kept.collect()
}

/// The nearest half of a number in the range of halves, as f32.
fn round_f16(value: f32) -> f32 {
    // Below 2^-14 halves are multiples of 2^-24; above, they have eleven significant bits.
    let exponent = f64::from(value.abs()).log2().floor().max(-14.0) as i32;
    let unit = 2f64.powi(exponent - 10);
    ((f64::from(value) / unit).round_ties_even() * unit) as f32
}

/// `silu(gate) * up` of two products of the same shape.
pub fn gate_up(shape: Shape, input: &[f32], gate: &[f32], up: &[f32]) -> Vec<f32> {
    let (gate, up) = (linear(shape, input, gate, None), linear(shape, input, up, None));
    gate.into_iter().zip(up).map(|(gate, up)| silu(gate) * up).collect()
}

/// `x / (1 + exp(-x))`.
pub fn silu(x: f32) -> f32 {
    let x = f64::from(x);
    (x / (1.0 + (-x).exp())) as f32
}

/// All values rounded to bf16.
pub fn rounded(values: &[f32]) -> Vec<f32> {
    values.iter().map(|&value| round_bf16(value)).collect()
}

/// The nearest bf16, as f32; of two equally near the one whose last bit is 0.
pub fn round_bf16(value: f32) -> f32 {
    if value.is_nan() {
        return value;
    }
    let below = value.to_bits() & 0xffff_0000;
    let rest = value.to_bits() & 0xffff;
    let up = rest > 0x8000 || rest == 0x8000 && below & 0x1_0000 != 0;
    f32::from_bits(below + if up { 0x1_0000 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_by_hand() {
        let shape = Shape { rows: 2, out: 1, columns: 2 };
        assert_eq!(linear(shape, &[1.0, 2.0, 3.0, 4.0], &[10.0, 1.0], Some(&[0.5])), [12.5, 34.5]);
    }

    #[test]
    fn quantised_weights_by_hand() {
        assert_eq!(quantised(&[127.0, -63.4, 0.4, 1.0], 4, 8), [127.0, -63.0, 0.0, 1.0]);
        assert_eq!(quantised(&[127.0, -63.4, 254.0, 1.0], 2, 8), [127.0, -63.0, 254.0, 2.0]);
        assert_eq!(quantised(&[16.0, -15.0, 4.9, 0.0], 4, 4), [16.0, -14.0, 4.0, 0.0]);
        assert_eq!(quantised(&[0.0; 3], 3, 4), [0.0; 3]);
    }

    #[test]
    fn bytes_by_hand() {
        assert_eq!(int8(&[254.0, -3.0, -5.0, 0.9], 4), [254.0, -4.0, -4.0, 0.0]);
        assert_eq!(int8(&[254.0, 127.0, 63.0, 0.0], 2), [254.0, 128.0, 63.0, 0.0]);
        assert_eq!(int8(&[0.0; 33], 33), [0.0; 33]);
    }

    #[test]
    fn halves_have_eleven_bits() {
        assert_eq!(round_f16(1.0 + 2f32.powi(-11)), 1.0);
        assert_eq!(round_f16(-1.0 - 3.0 * 2f32.powi(-11)), -1.0 - 2f32.powi(-9));
        assert_eq!(round_f16(2f32.powi(-24) * 2.6), 2f32.powi(-24) * 3.0);
        assert_eq!(round_f16(0.0), 0.0);
    }

    #[test]
    fn bf16_ties_go_to_even() {
        assert_eq!(round_bf16(1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(round_bf16(1.0 + 3.0 / 256.0), 1.0 + 4.0 / 256.0);
        assert_eq!(round_bf16(-1.0 - 1.1 / 256.0), -1.0 - 2.0 / 256.0);
        assert_eq!(round_bf16(f32::MAX), f32::INFINITY);
    }
}
