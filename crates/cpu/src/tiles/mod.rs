//! Tile instructions: products of 16 rows times 16 columns in one instruction, over 32 numbers of bf16 or 64 bytes.
//!
//! Kernels are written against [`TileUnit`], which the hardware and its software twin implement: everything but the
//! instructions themselves is the same code on every machine.

#[cfg(target_arch = "x86_64")]
pub(crate) mod hardware;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) mod trap;
pub(crate) mod twin;

/// Rows of a tile.
pub(crate) const ROWS: usize = 16;
/// Bytes of a tile's row.
pub(crate) const ROW_BYTES: usize = 64;
/// Words in a tile's row.
pub(crate) const WORDS: usize = ROW_BYTES / 4;
/// Numbers of bf16 that one product takes: a row of them.
pub(crate) const DEPTH: usize = ROW_BYTES / 2;

/// Eight registers of up to 16 rows of 64 bytes, and what can be done with them: four tiles of sums (0 to 3), two of
/// inputs (4 and 5) and two of weights (6 and 7).
pub(crate) trait TileUnit: Sized {
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

/// Reports whether tiles are what [`TileUnit`] has them for.
const fn fit(sums: usize, inputs: usize, weights: usize) -> bool {
    sums < 4 && inputs / 2 == 2 && weights / 2 == 3
}

/// Places of tiles of rows times two tiles of columns.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    /// The first tile of sums; the next one of its rows lies beside it.
    pub(crate) sums: *mut u8,
    /// Bytes from row to row of sums.
    pub(crate) sums_stride: usize,
    /// Bytes from row to row of inputs.
    pub(crate) input_stride: usize,
    /// Bytes from row to row of a tile of weights.
    pub(crate) weight_stride: usize,
    /// Bytes from the first tile of weights to the second.
    pub(crate) weight_right: usize,
    /// Records whether sums begin at 0 instead of what is there.
    pub(crate) fresh: bool,
}

/// One or two tiles of rows times a pair of tiles of columns, of bf16: adds the products of each step, which is where
/// inputs and weights begin, to the sums.
///
/// # Safety
/// The unit is configured for full tiles. Of sums, inputs and weights, 16 rows of 64 bytes are readable at each of their
/// places, 32 rows of sums and inputs if `TALL`; sums, which may be unwritten where they are fresh, belong to the caller.
#[inline(always)]
pub(crate) unsafe fn multiply<U: TileUnit, const TALL: bool>(
    unit: &mut U,
    places: &Places,
    steps: impl Iterator<Item = (*const u8, *const u8)>,
) {
    let Places { sums, sums_stride, input_stride, weight_stride, weight_right, fresh } = *places;
    // SAFETY: as our caller promises.
    unsafe {
        let (right, below) = (sums.add(ROW_BYTES), sums.add(ROWS * sums_stride));
        let corner = below.add(ROW_BYTES);
        if fresh {
            unit.zero::<0>();
            unit.zero::<1>();
            unit.zero::<2>();
            unit.zero::<3>();
        } else {
            unit.load::<0>(sums, sums_stride);
            unit.load::<1>(right, sums_stride);
            if TALL {
                unit.load::<2>(below, sums_stride);
                unit.load::<3>(corner, sums_stride);
            }
        }
        for (input, weight) in steps {
            unit.load::<4>(input, input_stride);
            unit.load::<6>(weight, weight_stride);
            unit.load::<7>(weight.add(weight_right), weight_stride);
            unit.dot::<0, 4, 6>();
            unit.dot::<1, 4, 7>();
            if TALL {
                unit.load::<5>(input.add(ROWS * input_stride), input_stride);
                unit.dot::<2, 5, 6>();
                unit.dot::<3, 5, 7>();
            }
        }
        unit.store::<0>(sums, sums_stride);
        unit.store::<1>(right, sums_stride);
        if TALL {
            unit.store::<2>(below, sums_stride);
            unit.store::<3>(corner, sums_stride);
        }
    }
}

/// Operations of one round of [`tile_rounds`].
#[cfg(target_arch = "x86_64")]
pub(crate) const TILE_ROUND: u64 = (4 * 2 * ROWS * WORDS * DEPTH) as u64;
/// Operations of one round of [`byte_tile_rounds`].
#[cfg(target_arch = "x86_64")]
pub(crate) const BYTE_TILE_ROUND: u64 = (4 * 2 * ROWS * WORDS * ROW_BYTES) as u64;

/// The products of [`multiply`] on registers alone, for measuring what the instruction can do at most.
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

/// Runs rounds of bytes, on tiles of full size.
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

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::isa::{self, Tier};

    /// Bytes from row to row of what tiles are loaded from.
    const STRIDE: usize = 96;

    /// Results of a unit: sums of both kinds of products, on memory and registers of other places each time.
    unsafe fn results<U: TileUnit, const STEPS: usize>(words: &[u32]) -> Vec<u32> {
        let from = words.as_ptr().cast::<u8>();
        let tile = |index: usize| from.wrapping_add(index * ROWS * STRIDE);
        let mut out = vec![0u32; 4 * ROWS * WORDS];
        // SAFETY: the caller vouches for the unit and for six tiles of rows; `out` has room for the four tiles of sums.
        unsafe {
            let mut unit = U::configure::<STEPS>();
            unit.load::<0>(tile(0), STRIDE);
            unit.load::<1>(tile(1), STRIDE);
            unit.load::<2>(tile(2), STRIDE);
            unit.zero::<2>();
            unit.load::<4>(tile(2), STRIDE);
            unit.load::<5>(tile(3), STRIDE);
            unit.load::<6>(tile(4), STRIDE);
            unit.load::<7>(tile(5), STRIDE);
            if STEPS == WORDS {
                unit.dot::<0, 4, 6>();
                unit.dot::<1, 5, 7>();
                unit.dot::<2, 5, 6>();
                unit.dot::<3, 4, 7>();
            } else {
                unit.dot_bytes::<0, 4, 6>();
                unit.dot_bytes::<1, 5, 7>();
                unit.dot_bytes::<2, 5, 6>();
                unit.dot_bytes::<3, 4, 7>();
            }
            let to = out.as_mut_ptr().cast::<u8>();
            unit.store::<0>(to, ROW_BYTES);
            unit.store::<1>(to.add(ROWS * ROW_BYTES), ROW_BYTES);
            unit.store::<2>(to.add(2 * ROWS * ROW_BYTES), 2 * ROW_BYTES);
            unit.store::<3>(to.add((2 * ROWS + 1) * ROW_BYTES), 2 * ROW_BYTES);
        }
        out
    }

    /// Numbers of bf16, two in a word, of every sign and many sizes, some of them zero.
    fn words() -> Vec<u32> {
        let mut state = 1u32;
        let mut half = || {
            state = state.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
            let value = (f64::from(state >> 8) / f64::from(1 << 24) - 0.5) * f64::from(1 << (state & 15));
            u32::from(crate::linear::activation::round_bf16(if state & 0x70 == 0 { 0.0 } else { value as f32 }))
        };
        (0..6 * ROWS * STRIDE / 4).map(|_| half() | half() << 16).collect()
    }

    #[test]
    fn the_instructions_do_what_their_twin_does() {
        // Without tiles, trapped or not, there is nothing to compare.
        if !isa::testable().iter().any(|isa| isa.has(Tier::Amx)) {
            return;
        }
        let words = words();
        // SAFETY: the tier was just found; there are six tiles of rows.
        unsafe {
            assert_eq!(results::<hardware::Tiles, WORDS>(&words), results::<twin::Tiles, WORDS>(&words));
            assert_eq!(results::<hardware::Tiles, 8>(&words), results::<twin::Tiles, 8>(&words));
        }
    }
}
