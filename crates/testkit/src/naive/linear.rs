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

/// The same with inputs and weights rounded to bf16 first.
pub fn linear_bf16(shape: Shape, input: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    linear(shape, &rounded(input), &rounded(weight), bias)
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
    fn bf16_ties_go_to_even() {
        assert_eq!(round_bf16(1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(round_bf16(1.0 + 3.0 / 256.0), 1.0 + 4.0 / 256.0);
        assert_eq!(round_bf16(-1.0 - 1.1 / 256.0), -1.0 - 2.0 / 256.0);
        assert_eq!(round_bf16(f32::MAX), f32::INFINITY);
    }
}
