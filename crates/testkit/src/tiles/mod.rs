//! The tile instructions of x86 (AMX) in software: their arithmetic, the naive twin of the processor's, and a trap that
//! lets machine code with these instructions run where a processor lacks them.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[expect(unsafe_code, reason = "a signal's handler works on the registers and on the memory of what it interrupts")]
mod trap;

/// Rows of a tile.
pub const ROWS: usize = 16;
/// Words in a tile's row.
pub const WORDS: usize = 16;

/// A tile's words.
pub type Tile = [[u32; WORDS]; ROWS];

/// Makes tile instructions work in all threads of this process, on Linux, and reports whether they do. Where the
/// processor has none, each takes as long as a signal.
pub fn trap() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return trap::install();
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    false
}

/// `tdpbf16ps` as the manual has it: the even and the odd products of a tile's depth are summed apart, each by fused
/// multiplications in ascending order from 0; the two sums are added, then their sum to the tile of sums. All of it
/// rounds to nearest even, takes denormal numbers for zero and makes zeros of them. The tiles of sums and inputs have `rows`
/// rows, the tile of weights has `steps`.
pub fn add_products(sums: &mut Tile, inputs: &Tile, weights: &Tile, (rows, steps): (usize, usize)) {
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
/// Tiles are as in [`add_products`].
pub fn add_products_of_bytes(sums: &mut Tile, inputs: &Tile, weights: &Tile, (rows, steps): (usize, usize)) {
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

    /// One product with the same pairs in every row and lane.
    fn dot(sum: f32, inputs: &[(f32, f32)], weights: &[(f32, f32)]) -> f32 {
        // The numbers are of few bits, or their last ones are of no account.
        let word = |&(even, odd): &(f32, f32)| (odd.to_bits() & 0xffff_0000) | (even.to_bits() >> 16);
        let mut row = [0; WORDS];
        row.iter_mut().zip(inputs).for_each(|(place, pair)| *place = word(pair));
        let mut columns = [[0; WORDS]; ROWS];
        columns.iter_mut().zip(weights).for_each(|(place, pair)| *place = [word(pair); WORDS]);
        let mut sums = [[sum.to_bits(); WORDS]; ROWS];
        add_products(&mut sums, &[row; ROWS], &columns, (ROWS, WORDS));
        assert!(sums.as_flattened().iter().all(|&word| word == sums[0][0]));
        f32::from_bits(sums[0][0])
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
        // Beyond the eighth step nothing counts.
        let mut inputs = [[u32::from_le_bytes([0x81, 1, 0, 0]); WORDS]; ROWS];
        inputs[3][7] = u32::from_le_bytes([0x81; 4]);
        let weights = [[u32::from_le_bytes([255, 2, 7, 7]); WORDS]; ROWS];
        let mut sums = [[1000; WORDS]; ROWS];
        add_products_of_bytes(&mut sums, &inputs, &weights, (ROWS, 8));
        let each = -127 * 255 + 2;
        assert_eq!(sums[2], [(1000 + 8 * each) as u32; WORDS]);
        assert_eq!(sums[3], [(1000 + 7 * each - 127 * (255 + 2 + 7 + 7)) as u32; WORDS]);
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
