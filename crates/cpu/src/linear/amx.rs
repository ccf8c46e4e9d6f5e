//! Tile products of bf16: 16 rows times 16 outputs over a depth of 32 in one instruction. Those of bytes are
//! [`amx_int8`](super::amx_int8)'s.
//!
//! Four tiles of sums (two of rows times a pair of panels) stay in registers while two tiles of inputs and two of
//! weights pass by. Inputs are tiles as they lie, 16 rows of 64 bytes; panels are tiles as they were packed, 16 pairs
//! of inputs of 64 bytes. Rows are always multiplied by the sixteen; those beyond the block's are never looked at.
//!
//! The kernel is written against [`TileUnit`], which the hardware and its software twin implement: everything but the
//! instructions themselves is the same code on every machine.

use demask_tensor::Dtype;

use super::{
    input::InputFormat,
    kernel::{Block, Kernel},
    packed::{PANEL, WeightFormat},
};
use crate::isa::Tier;

/// Rows of a tile.
pub(super) const ROWS: usize = 16;
/// Bytes of a tile's row.
pub(super) const ROW_BYTES: usize = 64;
/// Words in a tile's row.
const WORDS: usize = ROW_BYTES / 4;
/// Inputs that one product takes: a row of bf16.
const DEPTH: usize = ROW_BYTES / 2;

/// The tile instructions.
#[cfg(target_arch = "x86_64")]
pub(super) const BF16: Kernel = Kernel {
    name: "amx_bf16xbf16_f32",
    tier: Tier::Amx,
    executes: Tier::Amx,
    vnni: false,
    dtype: Dtype::Bf16,
    input: InputFormat::Bf16,
    weight: WeightFormat::Bf16Pairs,
    row_tile: 2 * ROWS,
    depth_block: 2048,
    accumulate: accumulate::<hardware::Tiles>,
};

/// Their software twin, for tests.
pub(super) const EMULATED_BF16: Kernel = Kernel {
    name: "emulatedamx_bf16xbf16_f32",
    tier: Tier::Amx,
    executes: Tier::Portable,
    vnni: false,
    dtype: Dtype::Bf16,
    input: InputFormat::Bf16,
    weight: WeightFormat::Bf16Pairs,
    row_tile: 2 * ROWS,
    depth_block: 2048,
    accumulate: accumulate::<twin::Tiles>,
};

/// Eight registers of up to 16 rows of 64 bytes, and what can be done with them: four tiles of sums (0 to 3), two of
/// inputs (4 and 5) and two of weights (6 and 7).
pub(super) trait TileUnit: Sized {
    /// Configures the thread's registers, for products that take `STEPS` words of a row of inputs: rows of inputs have
    /// so many words, tiles of weights so many rows, at most 16; all else is of full size. All tiles are zero. Dropping
    /// the unit releases them.
    ///
    /// # Safety
    /// The thread may execute tile instructions, and no other unit of the thread is alive.
    unsafe fn configure<const STEPS: usize>() -> Self;

    /// Loads a tile from rows `stride` bytes apart.
    ///
    /// # Safety
    /// The tile's rows are readable.
    unsafe fn load<const TILE: usize>(&mut self, start: *const u8, stride: usize);

    /// Makes a tile zero.
    fn zero<const TILE: usize>(&mut self);

    /// Adds the products of bf16 of a tile of inputs and a tile of weights to a tile of sums of f32.
    fn dot<const SUMS: usize, const INPUTS: usize, const WEIGHTS: usize>(&mut self);

    /// Adds the products of a tile of inputs, bytes with a sign, and a tile of weights, bytes without one, to a tile of
    /// sums of i32.
    fn dot_bytes<const SUMS: usize, const INPUTS: usize, const WEIGHTS: usize>(&mut self);

    /// Stores a tile of sums to rows `stride` bytes apart.
    ///
    /// # Safety
    /// 16 rows of 64 bytes are writable and belong to the caller.
    unsafe fn store<const TILE: usize>(&mut self, start: *mut u8, stride: usize);
}

/// Whether tiles are what [`TileUnit`] has them for.
const fn fit(sums: usize, inputs: usize, weights: usize) -> bool {
    sums < 4 && inputs / 2 == 2 && weights / 2 == 3
}

/// # Safety
/// As [`Kernel::accumulate`]; this thread has no other unit.
unsafe fn accumulate<U: TileUnit>(block: &Block) {
    // SAFETY: the kernel executes on a tier that has the unit; this function is the only one that configures tiles, and
    // calls nothing that does. Parts lie inside the block.
    unsafe {
        // In each call anew: which thread runs a task is chance, and the configuration is the thread's.
        let mut unit = U::configure::<WORDS>();
        for group in 0..block.groups {
            for row in (0..block.rows).step_by(2 * ROWS) {
                let rows = (block.rows - row).min(2 * ROWS);
                let part = block.part(row, rows, group);
                if rows > ROWS {
                    multiply::<U, true>(&mut unit, &part);
                } else {
                    multiply::<U, false>(&mut unit, &part);
                }
            }
        }
    }
}

/// One or two tiles of rows times a pair of panels.
///
/// # Safety
/// The block keeps its promises, and has one pair of panels and at most 16 rows, or 32 if `TALL`.
unsafe fn multiply<U: TileUnit, const TALL: bool>(unit: &mut U, block: &Block) {
    // SAFETY: the block promises sums and inputs for whole tiles of rows, and a depth of whole tiles.
    unsafe {
        let sums_stride = block.sums_stride * size_of::<f32>();
        let sums = block.sums.cast::<u8>();
        let (right, below) = (PANEL * size_of::<f32>(), ROWS * sums_stride);
        unit.load::<0>(sums, sums_stride);
        unit.load::<1>(sums.add(right), sums_stride);
        if TALL {
            unit.load::<2>(sums.add(below), sums_stride);
            unit.load::<3>(sums.add(below + right), sums_stride);
        }
        for step in 0..block.depth / DEPTH {
            let input = block.input.add(step * ROW_BYTES);
            let weight = block.weight.add(step * DEPTH * PANEL * 2);
            unit.load::<4>(input, block.input_stride);
            unit.load::<6>(weight, ROW_BYTES);
            unit.load::<7>(weight.add(block.panel_stride), ROW_BYTES);
            unit.dot::<0, 4, 6>();
            unit.dot::<1, 4, 7>();
            if TALL {
                unit.load::<5>(input.add(ROWS * block.input_stride), block.input_stride);
                unit.dot::<2, 5, 6>();
                unit.dot::<3, 5, 7>();
            }
        }
        unit.store::<0>(sums, sums_stride);
        unit.store::<1>(sums.add(right), sums_stride);
        if TALL {
            unit.store::<2>(sums.add(below), sums_stride);
            unit.store::<3>(sums.add(below + right), sums_stride);
        }
    }
}

/// Operations of one round of [`tile_rounds`].
#[cfg(target_arch = "x86_64")]
pub(crate) const TILE_ROUND: u64 = (4 * 2 * ROWS * PANEL * DEPTH) as u64;
/// Operations of one round of [`byte_tile_rounds`].
#[cfg(target_arch = "x86_64")]
pub(crate) const BYTE_TILE_ROUND: u64 = (4 * 2 * ROWS * PANEL * ROW_BYTES) as u64;

/// The products of `multiply` on registers alone, for measuring what the instruction can do at most.
///
/// # Safety
/// The processor has the tier AMX; this thread has no other unit.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn tile_rounds(rounds: u64) {
    // SAFETY: as our caller promises. Configuring makes all tiles zero.
    let mut unit = unsafe { hardware::Tiles::configure::<WORDS>() };
    for _ in 0..rounds {
        unit.dot::<0, 4, 6>();
        unit.dot::<1, 4, 7>();
        unit.dot::<2, 5, 6>();
        unit.dot::<3, 5, 7>();
    }
}

/// The same of bytes, on tiles of full size.
///
/// # Safety
/// As [`tile_rounds`].
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn byte_tile_rounds(rounds: u64) {
    // SAFETY: as our caller promises. Configuring makes all tiles zero.
    let mut unit = unsafe { hardware::Tiles::configure::<WORDS>() };
    for _ in 0..rounds {
        unit.dot_bytes::<0, 4, 6>();
        unit.dot_bytes::<1, 4, 7>();
        unit.dot_bytes::<2, 5, 6>();
        unit.dot_bytes::<3, 5, 7>();
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod hardware {
    //! The instructions.
    //!
    //! The contents of tiles live from one `asm!` to the next. The compiler neither uses nor saves tile registers in
    //! code that does not enable their target feature, as this crate never does; every block is volatile, so that none
    //! is moved across another; and the system saves tiles with the rest of a thread's registers.

    use std::arch::asm;

    use super::{ROW_BYTES, ROWS, TileUnit, WORDS, fit};

    /// The tile registers of the current thread.
    pub(in crate::linear) struct Tiles {
        /// They stay with their thread.
        _thread: std::marker::PhantomData<*const ()>,
    }

    /// Operand of `ldtilecfg`, laid out by palette 1.
    #[repr(C, align(64))]
    struct Configuration {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        /// Bytes of a row; the palette has eight tiles, the other entries must be 0.
        row_bytes: [u16; 16],
        /// Rows.
        rows: [u8; 16],
    }

    const _: () = assert!(size_of::<Configuration>() == 64);

    impl Configuration {
        /// Eight tiles for products that take `steps` words of a row.
        const fn new(steps: usize) -> Self {
            assert!(0 < steps && steps <= WORDS);
            let mut row_bytes = [0; 16];
            let mut rows = [0; 16];
            let mut tile = 0;
            while tile < 8 {
                row_bytes[tile] = if tile / 2 == 2 { 4 * steps as u16 } else { ROW_BYTES as u16 };
                rows[tile] = if tile / 2 == 3 { steps as u8 } else { ROWS as u8 };
                tile += 1;
            }
            Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
        }
    }

    impl TileUnit for Tiles {
        #[inline(always)]
        unsafe fn configure<const STEPS: usize>() -> Self {
            let configuration: &'static Configuration = const { &Configuration::new(STEPS) };
            // SAFETY: the caller vouches for the instruction; the operand is a valid configuration of 64 bytes.
            unsafe {
                asm!("ldtilecfg [{}]", in(reg) &raw const *configuration, options(nostack, preserves_flags));
            }
            Self { _thread: std::marker::PhantomData }
        }

        #[inline(always)]
        unsafe fn load<const TILE: usize>(&mut self, start: *const u8, stride: usize) {
            // SAFETY: the unit is configured as long as it lives; the caller vouches for the memory.
            unsafe {
                asm!(
                    "tileloadd tmm{tile}, [{start} + {stride}*1]",
                    tile = const TILE,
                    start = in(reg) start,
                    stride = in(reg) stride,
                    options(nostack, preserves_flags, readonly),
                );
            }
        }

        #[inline(always)]
        fn zero<const TILE: usize>(&mut self) {
            // SAFETY: the unit is configured as long as it lives.
            unsafe { asm!("tilezero tmm{tile}", tile = const TILE, options(nostack, preserves_flags, nomem)) }
        }

        #[inline(always)]
        fn dot<const SUMS: usize, const INPUTS: usize, const WEIGHTS: usize>(&mut self) {
            const { assert!(fit(SUMS, INPUTS, WEIGHTS)) }
            // SAFETY: the unit is configured as long as it lives, its tiles for shapes that fit each other.
            unsafe {
                asm!(
                    "tdpbf16ps tmm{sums}, tmm{inputs}, tmm{weights}",
                    sums = const SUMS,
                    inputs = const INPUTS,
                    weights = const WEIGHTS,
                    options(nostack, preserves_flags, nomem),
                );
            }
        }

        #[inline(always)]
        fn dot_bytes<const SUMS: usize, const INPUTS: usize, const WEIGHTS: usize>(&mut self) {
            const { assert!(fit(SUMS, INPUTS, WEIGHTS)) }
            // SAFETY: the unit is configured as long as it lives, its tiles for shapes that fit each other.
            unsafe {
                asm!(
                    "tdpbsud tmm{sums}, tmm{inputs}, tmm{weights}",
                    sums = const SUMS,
                    inputs = const INPUTS,
                    weights = const WEIGHTS,
                    options(nostack, preserves_flags, nomem),
                );
            }
        }

        #[inline(always)]
        unsafe fn store<const TILE: usize>(&mut self, start: *mut u8, stride: usize) {
            // SAFETY: the unit is configured as long as it lives; the caller vouches for the memory.
            unsafe {
                asm!(
                    "tilestored [{start} + {stride}*1], tmm{tile}",
                    tile = const TILE,
                    start = in(reg) start,
                    stride = in(reg) stride,
                    options(nostack, preserves_flags),
                );
            }
        }
    }

    impl Drop for Tiles {
        fn drop(&mut self) {
            // SAFETY: a unit exists only where tile instructions may be executed. Releasing lets the system leave the
            // tiles out when it switches threads.
            unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn shapes_of_tiles_fit_each_other() {
            for (steps, input_bytes) in [(8, 32), (16, 64)] {
                let configuration = Configuration::new(steps);
                assert_eq!(configuration.palette, 1);
                let [inputs, full] = [input_bytes, 64];
                assert_eq!(configuration.row_bytes[..8], [full, full, full, full, inputs, inputs, full, full]);
                let weights = steps as u8;
                assert_eq!(configuration.rows[..8], [16, 16, 16, 16, 16, 16, weights, weights]);
                assert_eq!((&configuration.row_bytes[8..], &configuration.rows[8..]), (&[0; 8][..], &[0; 8][..]));
            }
        }
    }
}

pub(super) mod twin {
    //! The instructions' arithmetic in software.

    use super::{DEPTH, ROWS, TileUnit, WORDS, fit};

    /// Bytes of a word.
    const BYTES: usize = 4;

    /// Eight tiles of words.
    pub(in crate::linear) struct Tiles {
        tiles: [[[u32; WORDS]; ROWS]; 8],
        /// Words of a row of inputs that a product takes.
        steps: usize,
    }

    impl TileUnit for Tiles {
        unsafe fn configure<const STEPS: usize>() -> Self {
            const { assert!(0 < STEPS && STEPS <= WORDS) }
            Self { tiles: [[[0; WORDS]; ROWS]; 8], steps: STEPS }
        }

        unsafe fn load<const TILE: usize>(&mut self, start: *const u8, stride: usize) {
            let words = if TILE / 2 == 2 { self.steps } else { WORDS };
            let rows = if TILE / 2 == 3 { self.steps } else { ROWS };
            for (index, row) in self.tiles[TILE][..rows].iter_mut().enumerate() {
                for (word, value) in row[..words].iter_mut().enumerate() {
                    // SAFETY: the caller vouches for the memory.
                    *value = unsafe { start.add(index * stride + word * BYTES).cast::<u32>().read_unaligned() };
                }
            }
        }

        fn zero<const TILE: usize>(&mut self) {
            self.tiles[TILE] = [[0; WORDS]; ROWS];
        }

        /// As the manual has it: the even and the odd products of a tile's depth are summed apart, each by fused
        /// multiplications in ascending order from 0; the two sums are added, then their sum to the tile of sums. All
        /// of it rounds to nearest even, takes denormal numbers for zero and makes zeros of them.
        fn dot<const SUMS: usize, const INPUTS: usize, const WEIGHTS: usize>(&mut self) {
            const { assert!(fit(SUMS, INPUTS, WEIGHTS)) }
            assert_eq!(self.steps, DEPTH / 2, "products of bf16 take tiles of full size");
            for row in 0..ROWS {
                let mut parts = [[0.0f32; WORDS]; 2];
                for pair in 0..DEPTH / 2 {
                    let [even, odd] = halves(self.tiles[INPUTS][row][pair]);
                    for lane in 0..WORDS {
                        let weights = halves(self.tiles[WEIGHTS][pair][lane]);
                        parts[0][lane] = fused(even, weights[0], parts[0][lane]);
                        parts[1][lane] = fused(odd, weights[1], parts[1][lane]);
                    }
                }
                for lane in 0..WORDS {
                    let sum = flushed(parts[0][lane] + parts[1][lane]);
                    let total = flushed(f32::from_bits(self.tiles[SUMS][row][lane])) + sum;
                    self.tiles[SUMS][row][lane] = flushed(total).to_bits();
                }
            }
        }

        /// As the manual has it: of each word four products are added to the sum, in 32 bits and without saturation.
        fn dot_bytes<const SUMS: usize, const INPUTS: usize, const WEIGHTS: usize>(&mut self) {
            const { assert!(fit(SUMS, INPUTS, WEIGHTS)) }
            for row in 0..ROWS {
                for step in 0..self.steps {
                    let inputs = self.tiles[INPUTS][row][step].to_le_bytes().map(|byte| i32::from(byte as i8));
                    for lane in 0..WORDS {
                        let weights = self.tiles[WEIGHTS][step][lane].to_le_bytes();
                        let products = inputs.iter().zip(weights).map(|(input, weight)| input * i32::from(weight));
                        let sum = &mut self.tiles[SUMS][row][lane];
                        *sum = sum.wrapping_add(products.sum::<i32>() as u32);
                    }
                }
            }
        }

        unsafe fn store<const TILE: usize>(&mut self, start: *mut u8, stride: usize) {
            for (index, row) in self.tiles[TILE].iter().enumerate() {
                // SAFETY: the caller vouches for the memory.
                unsafe { start.add(index * stride).cast::<[u32; WORDS]>().write_unaligned(*row) }
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
            let mut unit = Tiles { tiles: [[[0; WORDS]; ROWS]; 8], steps: WORDS };
            unit.tiles[0] = [[sum.to_bits(); WORDS]; ROWS];
            for (pair, words) in inputs.iter().map(word).enumerate() {
                (0..ROWS).for_each(|row| unit.tiles[4][row][pair] = words);
            }
            for (pair, words) in weights.iter().map(word).enumerate() {
                unit.tiles[6][pair] = [words; WORDS];
            }
            unit.dot::<0, 4, 6>();
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
            let mut unit = Tiles { tiles: [[[0; WORDS]; ROWS]; 8], steps: 8 };
            // Beyond the eighth step nothing counts.
            unit.tiles[4] = [[u32::from_le_bytes([0x81, 1, 0, 0]); WORDS]; ROWS];
            unit.tiles[4][3][7] = u32::from_le_bytes([0x81; 4]);
            unit.tiles[6] = [[u32::from_le_bytes([255, 2, 7, 7]); WORDS]; ROWS];
            unit.tiles[0] = [[1000; WORDS]; ROWS];
            unit.dot_bytes::<0, 4, 6>();
            let each = -127 * 255 + 2;
            assert_eq!(unit.tiles[0][2], [(1000 + 8 * each) as u32; WORDS]);
            assert_eq!(unit.tiles[0][3], [(1000 + 7 * each - 127 * (255 + 2 + 7 + 7)) as u32; WORDS]);
            unit.zero::<0>();
            assert_eq!(unit.tiles[0], [[0; WORDS]; ROWS]);
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
}
