//! The tile instructions' arithmetic in software.

use super::{Places, ROW_BYTES, ROWS, TileUnit, WORDS};

/// Bytes of a word.
pub(super) const BYTES: usize = 4;

/// A tile's words.
pub(super) type Tile = [[u32; WORDS]; ROWS];

/// Eight tiles of words.
pub(crate) struct Tiles {
    tiles: [Tile; 8],
}

impl TileUnit for Tiles {
    unsafe fn configure() -> Self {
        Self { tiles: [[[0; WORDS]; ROWS]; 8] }
    }

    unsafe fn multiply<const TALL: bool, const STREAM: bool>(&mut self, places: &Places, steps: &[*const u8]) {
        // SAFETY: as our caller promises.
        unsafe { self.products::<TALL>(places, steps) }
    }
}

impl Tiles {
    /// Products as the hardware orders them.
    ///
    /// # Safety
    /// As [`TileUnit::multiply`].
    unsafe fn products<const TALL: bool>(&mut self, places: &Places, steps: &[*const u8]) {
        let below = places.sums.wrapping_add(ROWS * places.sums_stride);
        let sums = [places.sums, places.sums.wrapping_add(ROW_BYTES), below, below.wrapping_add(ROW_BYTES)];
        let count = if TALL { 4 } else { 2 };
        // SAFETY: as our caller promises.
        unsafe {
            for (tile, &sums) in sums[..count].iter().enumerate() {
                self.tiles[tile] = [[0; WORDS]; ROWS];
                if !places.fresh {
                    self.load(tile, sums, places.sums_stride);
                }
            }
            for (step, &weight) in steps.iter().enumerate() {
                let input = places.input.wrapping_add(step * ROW_BYTES);
                self.load(4, input, places.input_stride);
                self.load(6, weight, places.weight_stride);
                self.load(7, weight.wrapping_add(places.weight_right), places.weight_stride);
                if TALL {
                    self.load(5, input.wrapping_add(ROWS * places.input_stride), places.input_stride);
                }
                for tile in 0..count {
                    let (inputs, weights) = (self.tiles[4 + tile / 2], self.tiles[6 + tile % 2]);
                    add_products(&mut self.tiles[tile], &inputs, &weights, (ROWS, WORDS));
                }
            }
            for (tile, &sums) in sums[..count].iter().enumerate() {
                for (row, words) in self.tiles[tile].iter().enumerate() {
                    sums.add(row * places.sums_stride).cast::<[u32; WORDS]>().write_unaligned(*words);
                }
            }
        }
    }

    /// Loads a tile from rows `stride` bytes apart.
    ///
    /// # Safety
    /// The tile's rows are readable.
    unsafe fn load(&mut self, tile: usize, start: *const u8, stride: usize) {
        for (index, row) in self.tiles[tile].iter_mut().enumerate() {
            for (word, value) in row.iter_mut().enumerate() {
                // SAFETY: the caller vouches for the memory.
                *value = unsafe { start.add(index * stride + word * BYTES).cast::<u32>().read_unaligned() };
            }
        }
    }
}

/// `tdpbf16ps` as the manual has it: the even and the odd products of a tile's depth are summed apart, each by fused
/// multiplications in ascending order from 0; the two sums are added, then their sum to the tile of sums. All of it
/// rounds to nearest even, takes denormal numbers for zero and makes zeros of them.
pub(super) fn add_products(sums: &mut Tile, inputs: &Tile, weights: &Tile, (rows, steps): (usize, usize)) {
    for (sums, inputs) in sums[..rows].iter_mut().zip(inputs) {
        let mut parts = [[0.0f32; WORDS]; 2];
        for (&input, weights) in inputs[..steps].iter().zip(weights) {
            let [even, odd] = halves(input);
            for lane in 0..WORDS {
                let weights = halves(weights[lane]);
                parts[0][lane] = fused(even, weights[0], parts[0][lane]);
                parts[1][lane] = fused(odd, weights[1], parts[1][lane]);
            }
        }
        for lane in 0..WORDS {
            let sum = flushed(parts[0][lane] + parts[1][lane]);
            let total = flushed(f32::from_bits(sums[lane])) + sum;
            sums[lane] = flushed(total).to_bits();
        }
    }
}

/// `tdpbsud` as the manual has it: of each word four products are added to the sum, in 32 bits and without saturation.
#[cfg(any(test, all(target_arch = "x86_64", target_os = "linux")))]
pub(super) fn add_products_of_bytes(sums: &mut Tile, inputs: &Tile, weights: &Tile, (rows, steps): (usize, usize)) {
    for (sums, inputs) in sums[..rows].iter_mut().zip(inputs) {
        for (&input, weights) in inputs[..steps].iter().zip(weights) {
            let inputs = input.to_le_bytes().map(|byte| i32::from(byte as i8));
            for lane in 0..WORDS {
                let weights = weights[lane].to_le_bytes();
                let products = inputs.iter().zip(weights).map(|(input, weight)| input * i32::from(weight));
                sums[lane] = sums[lane].wrapping_add(products.sum::<i32>() as u32);
            }
        }
    }
}

/// The two bf16 of a word, widened, denormals flushed.
#[inline(always)]
fn halves(word: u32) -> [f32; 2] {
    [f32::from_bits(word << 16), f32::from_bits(word & 0xffff_0000)].map(flushed)
}

/// `x`, or a zero of its sign if it is denormal.
#[inline(always)]
fn flushed(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0.0f32.copysign(x) } else { x }
}

/// `x * y + sum`, rounded once.
#[inline(always)]
fn fused(x: f32, y: f32, sum: f32) -> f32 {
    let product = x * y;
    // The product of two bf16 is exact unless it leaves the normal range.
    let exact = product.is_normal() || x == 0.0 || y == 0.0;
    flushed(if exact { product + sum } else { x.mul_add(y, sum) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::activation::round_bf16;

    /// One product with the same pairs in every row and lane.
    fn dot(sum: f32, inputs: &[(f32, f32)], weights: &[(f32, f32)]) -> f32 {
        let word = |&(even, odd): &(f32, f32)| u32::from(round_bf16(odd)) << 16 | u32::from(round_bf16(even));
        let mut unit = Tiles { tiles: [[[0; WORDS]; ROWS]; 8] };
        unit.tiles[0] = [[sum.to_bits(); WORDS]; ROWS];
        for (pair, words) in inputs.iter().map(word).enumerate() {
            (0..ROWS).for_each(|row| unit.tiles[4][row][pair] = words);
        }
        for (pair, words) in weights.iter().map(word).enumerate() {
            unit.tiles[6][pair] = [words; WORDS];
        }
        let (inputs, weights) = (unit.tiles[4], unit.tiles[6]);
        add_products(&mut unit.tiles[0], &inputs, &weights, (ROWS, WORDS));
        assert!(unit.tiles[0].as_flattened().iter().all(|&word| word == unit.tiles[0][0][0]));
        f32::from_bits(unit.tiles[0][0][0])
    }

    #[test]
    fn even_and_odd_products_are_summed() {
        assert_eq!(dot(100.0, &[(1.0, 2.0), (3.0, 4.0)], &[(1.0, 10.0), (100.0, 1000.0)]), 100.0 + 21.0 + 4300.0);
    }

    #[test]
    fn even_products_meet_odd_ones_last() {
        // One after the other, the small products would vanish beside the large ones before these cancel.
        let large = 2.0f32.powi(60);
        assert_eq!(dot(0.0, &[(large, -large), (0.0, 0.0)], &[(1.0, 1.0), (1.0, 1.0)]), 0.0);
        assert_eq!(dot(0.0, &[(large, 1.0), (-large, 1.0)], &[(1.0, 1.0), (1.0, 1.0)]), 2.0);
    }

    #[test]
    fn bytes_of_inputs_have_a_sign_and_those_of_weights_none() {
        let mut unit = Tiles { tiles: [[[0; WORDS]; ROWS]; 8] };
        // Beyond the eighth step nothing counts.
        unit.tiles[4] = [[u32::from_le_bytes([0x81, 1, 0, 0]); WORDS]; ROWS];
        unit.tiles[4][3][7] = u32::from_le_bytes([0x81; 4]);
        unit.tiles[6] = [[u32::from_le_bytes([255, 2, 7, 7]); WORDS]; ROWS];
        unit.tiles[0] = [[1000; WORDS]; ROWS];
        let (inputs, weights) = (unit.tiles[4], unit.tiles[6]);
        add_products_of_bytes(&mut unit.tiles[0], &inputs, &weights, (ROWS, 8));
        let each = -127 * 255 + 2;
        assert_eq!(unit.tiles[0][2], [(1000 + 8 * each) as u32; WORDS]);
        assert_eq!(unit.tiles[0][3], [(1000 + 7 * each - 127 * (255 + 2 + 7 + 7)) as u32; WORDS]);
    }

    #[test]
    fn denormals_count_as_zero() {
        let tiny = f32::from_bits(0x0040_0000);
        assert_eq!(dot(0.0, &[(tiny, 0.0)], &[(1e30, 0.0)]), 0.0);
        assert_eq!(dot(tiny, &[(0.0, 0.0)], &[(0.0, 0.0)]), 0.0);
        assert_eq!(dot(0.0, &[(1e-20, 0.0)], &[(1e-20, 0.0)]), 0.0);
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        assert!(dot(0.0, &[(f32::NAN, 0.0)], &[(1.0, 0.0)]).is_nan());
        assert!(dot(0.0, &[(f32::INFINITY, 0.0)], &[(0.0, 0.0)]).is_nan());
        assert_eq!(dot(0.0, &[(1e38, 0.0)], &[(1e38, 0.0)]), f32::INFINITY);
    }
}
