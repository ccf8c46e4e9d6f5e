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

/// Rows of inputs of which a step of two tiles of rows fetches a line.
pub(crate) const ROWS_AHEAD: usize = 4;

/// Eight registers of up to 16 rows of 64 bytes, and products on them: four tiles of sums (0 to 3), two of inputs (4 and
/// 5) and two of weights (6 and 7). Their contents live no longer than one product.
pub(crate) trait TileUnit: Sized {
    /// Configures the thread's registers as tiles of full size. Dropping the unit releases them.
    ///
    /// # Safety
    /// The thread may execute tile instructions, and no other unit of the thread is alive.
    unsafe fn configure() -> Self;

    /// One or two tiles of rows times a pair of tiles of columns, of bf16: adds the products of each step to the sums.
    /// Steps are the starts of tiles of weights; inputs go on by a row of a tile from step to step. Where weights are a
    /// `STREAM`, each is loaded once and inputs stay in the caches; otherwise it is the other way round.
    ///
    /// # Safety
    /// Of sums, inputs and weights, 16 rows of 64 bytes are readable at each of
    /// their places, 32 rows of sums and inputs if `TALL`; sums, which may be unwritten where they are fresh, belong to
    /// the caller.
    unsafe fn multiply<const TALL: bool, const STREAM: bool>(&mut self, places: &Places, steps: &[*const u8]);
}

/// Places of tiles of rows times two tiles of columns.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Places {
    /// The first tile of sums; the next one of its rows lies beside it.
    pub(crate) sums: *mut u8,
    /// Bytes from row to row of sums.
    pub(crate) sums_stride: usize,
    /// The first tile of inputs.
    pub(crate) input: *const u8,
    /// Bytes from row to row of inputs.
    pub(crate) input_stride: usize,
    /// Bytes from row to row of a tile of weights.
    pub(crate) weight_stride: usize,
    /// Bytes from the first tile of weights to the second.
    pub(crate) weight_right: usize,
    /// Place of what the second-level cache is to fetch meanwhile, of either tile of weights. It may be anywhere.
    pub(crate) ahead: *const u8,
    /// Lines of it that are fetched in each step, for either tile.
    pub(crate) ahead_lines: usize,
    /// The first of [`ROWS_AHEAD`] rows of inputs of which a line is fetched in each step too, where there are two tiles of
    /// rows. It may be anywhere.
    pub(crate) rows_ahead: *const u8,
    /// Records whether sums begin at 0 instead of what is there.
    pub(crate) fresh: bool,
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::isa::{self, Tier};

    /// Bytes from row to row of what tiles are loaded from.
    const STRIDE: usize = 2 * ROW_BYTES + 32;

    /// Results of a unit: sums, fresh ones and others, of one and of two tiles of rows.
    unsafe fn results<U: TileUnit>(words: &[u32]) -> Vec<u32> {
        let tile = |index: usize| words.as_ptr().cast::<u8>().wrapping_add(index * ROWS * STRIDE);
        let mut out: Vec<u32> = words[..8 * ROWS * WORDS].to_vec();
        let places = Places {
            sums: out.as_mut_ptr().cast(),
            sums_stride: 2 * ROW_BYTES,
            input: tile(0),
            input_stride: STRIDE,
            weight_stride: STRIDE,
            weight_right: ROWS * STRIDE,
            ahead: tile(0),
            ahead_lines: 3,
            rows_ahead: tile(0),
            fresh: false,
        };
        let short =
            Places { sums: places.sums.wrapping_add(4 * ROWS * ROW_BYTES), input: tile(1), fresh: true, ..places };
        // Inputs of the second step begin a row of a tile later.
        let steps = [tile(3), tile(2)];
        // SAFETY: the caller vouches for the unit and for words; `out` has room for two times four tiles of sums.
        unsafe {
            let mut unit = U::configure();
            unit.multiply::<true, false>(&places, &steps);
            unit.multiply::<false, true>(&short, &steps[1..]);
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
            assert_eq!(results::<hardware::Tiles>(&words), results::<twin::Tiles>(&words));
        }
    }
}
