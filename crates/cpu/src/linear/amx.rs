//! Tile products of bf16: 16 rows times 16 outputs over a depth of 32 in one instruction.
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
const ROWS: usize = 16;
/// Bytes of a tile's row.
const ROW_BYTES: usize = 64;
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

/// Eight registers of 16 rows of 64 bytes, and what can be done with them.
trait TileUnit: Sized {
    /// Configures the thread's registers; dropping the unit releases them.
    ///
    /// # Safety
    /// The thread may execute tile instructions, and no other unit of the thread is alive.
    unsafe fn configure() -> Self;

    /// Loads a tile from rows `stride` bytes apart.
    ///
    /// # Safety
    /// 16 rows of 64 bytes are readable.
    unsafe fn load<const TILE: usize>(&mut self, start: *const u8, stride: usize);

    /// Adds the products of a tile of inputs and a tile of weights to a tile of sums.
    fn dot<const SUMS: usize, const INPUTS: usize, const WEIGHTS: usize>(&mut self);

    /// Stores a tile to rows `stride` bytes apart.
    ///
    /// # Safety
    /// 16 rows of 64 bytes are writable and belong to the caller.
    unsafe fn store<const TILE: usize>(&mut self, start: *mut u8, stride: usize);
}

/// # Safety
/// As [`Kernel::accumulate`]; this thread has no other unit.
unsafe fn accumulate<U: TileUnit>(block: &Block) {
    // SAFETY: the kernel executes on a tier that has the unit; this function is the only one that configures tiles, and
    // calls nothing that does. Parts lie inside the block.
    unsafe {
        // In each call anew: which thread runs a task is chance, and the configuration is the thread's.
        let mut unit = U::configure();
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

/// The products of `multiply` on registers alone, for measuring what the instruction can do at most.
///
/// # Safety
/// The processor has the tier AMX; this thread has no other unit.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn tile_rounds(rounds: u64) {
    // SAFETY: as our caller promises. Configuring makes all tiles zero.
    let mut unit = unsafe { hardware::Tiles::configure() };
    for _ in 0..rounds {
        unit.dot::<0, 4, 6>();
        unit.dot::<1, 4, 7>();
        unit.dot::<2, 5, 6>();
        unit.dot::<3, 5, 7>();
    }
}

#[cfg(target_arch = "x86_64")]
mod hardware {
    //! The instructions.
    //!
    //! The contents of tiles live from one `asm!` to the next. The compiler neither uses nor saves tile registers in
    //! code that does not enable their target feature, as this crate never does; every block is volatile, so that none
    //! is moved across another; and the system saves tiles with the rest of a thread's registers.

    use std::arch::asm;

    use super::{ROW_BYTES, ROWS, TileUnit};

    /// The tile registers of the current thread.
    pub(super) struct Tiles {
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

    /// Eight tiles, all of full size.
    static CONFIGURATION: Configuration = Configuration {
        palette: 1,
        start_row: 0,
        reserved: [0; 14],
        row_bytes: {
            let mut all = [0; 16];
            let mut tile = 0;
            while tile < 8 {
                all[tile] = ROW_BYTES as u16;
                tile += 1;
            }
            all
        },
        rows: {
            let mut all = [0; 16];
            let mut tile = 0;
            while tile < 8 {
                all[tile] = ROWS as u8;
                tile += 1;
            }
            all
        },
    };

    impl TileUnit for Tiles {
        #[inline(always)]
        unsafe fn configure() -> Self {
            // SAFETY: the caller vouches for the instruction; the operand is a valid configuration of 64 bytes.
            unsafe {
                asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION, options(nostack, preserves_flags));
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
        fn dot<const SUMS: usize, const INPUTS: usize, const WEIGHTS: usize>(&mut self) {
            const { assert!(SUMS != INPUTS && SUMS != WEIGHTS && INPUTS != WEIGHTS, "the operands must differ") }
            // SAFETY: the unit is configured as long as it lives, all tiles for shapes that fit each other.
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
}

mod twin {
    //! The instructions' arithmetic in software.

    use super::{DEPTH, ROW_BYTES, ROWS, TileUnit};

    /// Words in a tile's row.
    const WORDS: usize = ROW_BYTES / 4;

    /// Eight tiles of words.
    pub(super) struct Tiles([[[u32; WORDS]; ROWS]; 8]);

    impl TileUnit for Tiles {
        unsafe fn configure() -> Self {
            Self([[[0; WORDS]; ROWS]; 8])
        }

        unsafe fn load<const TILE: usize>(&mut self, start: *const u8, stride: usize) {
            for (index, row) in self.0[TILE].iter_mut().enumerate() {
                // SAFETY: the caller vouches for the memory.
                *row = unsafe { start.add(index * stride).cast::<[u32; WORDS]>().read_unaligned() };
            }
        }

        /// As the manual has it: the even and the odd products of a tile's depth are summed apart, each by fused
        /// multiplications in ascending order from 0; the two sums are added, then their sum to the tile of sums. All
        /// of it rounds to nearest even, takes denormal numbers for zero and makes zeros of them.
        fn dot<const SUMS: usize, const INPUTS: usize, const WEIGHTS: usize>(&mut self) {
            for row in 0..ROWS {
                let mut parts = [[0.0f32; WORDS]; 2];
                for pair in 0..DEPTH / 2 {
                    let [even, odd] = halves(self.0[INPUTS][row][pair]);
                    for lane in 0..WORDS {
                        let weights = halves(self.0[WEIGHTS][pair][lane]);
                        parts[0][lane] = fused(even, weights[0], parts[0][lane]);
                        parts[1][lane] = fused(odd, weights[1], parts[1][lane]);
                    }
                }
                for lane in 0..WORDS {
                    let sum = flushed(parts[0][lane] + parts[1][lane]);
                    let total = flushed(f32::from_bits(self.0[SUMS][row][lane])) + sum;
                    self.0[SUMS][row][lane] = flushed(total).to_bits();
                }
            }
        }

        unsafe fn store<const TILE: usize>(&mut self, start: *mut u8, stride: usize) {
            for (index, row) in self.0[TILE].iter().enumerate() {
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
            let mut unit = Tiles([[[0; WORDS]; ROWS]; 8]);
            unit.0[0] = [[sum.to_bits(); WORDS]; ROWS];
            for (pair, words) in inputs.iter().map(word).enumerate() {
                (0..ROWS).for_each(|row| unit.0[4][row][pair] = words);
            }
            for (pair, words) in weights.iter().map(word).enumerate() {
                unit.0[6][pair] = [words; WORDS];
            }
            unit.dot::<0, 4, 6>();
            assert!(unit.0[0].as_flattened().iter().all(|&word| word == unit.0[0][0][0]));
            f32::from_bits(unit.0[0][0][0])
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
