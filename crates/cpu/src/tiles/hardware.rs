//! The tile instructions of the processor itself.
//!
//! The contents of tiles live from one `asm!` to the next. The compiler neither uses nor saves tile registers in
//! code that does not enable their target feature, as this crate never does; every block is volatile, so that none
//! is moved across another; and the system saves tiles with the rest of a thread's registers.

use std::arch::asm;

use super::{ROW_BYTES, ROWS, TileUnit, WORDS, fit};

/// The tile registers of the current thread.
pub(crate) struct Tiles {
    /// Mark that keeps tiles on their thread.
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
