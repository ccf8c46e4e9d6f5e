//! AVX2 and FMA: six rows times one panel at a time, or three times both, which is twelve of the sixteen registers.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "rows, panels and sums begin on cache lines; elements follow each other"
)]

use std::arch::{
    asm,
    x86_64::{
        __m256, _mm256_and_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_loadu_ps, _mm256_set1_epi32,
        _mm256_slli_epi32,
    },
};

use super::{
    kernel::{Block, Instructions, Kernel, LINE, tiles},
    packed::{GROUP, PANEL},
    portable::{self, line_inputs},
};
use crate::{fetch, isa::Tier};

/// f32 weights.
pub(super) const F32: Kernel = Kernel {
    name: "avx2_f32xf32_f32",
    instructions: Instructions::of(Tier::Avx2),
    row_tile: 6,
    accumulate: accumulate::<false>,
    ..portable::F32
};

/// bf16 weights, widened.
pub(super) const BF16: Kernel = Kernel {
    name: "avx2_bf16xbf16_f32",
    instructions: F32.instructions,
    row_tile: F32.row_tile,
    accumulate: accumulate::<true>,
    ..portable::BF16
};

/// Registers in a panel.
const PARTS: usize = 2;

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn accumulate<const BF16: bool>(block: &Block) {
    // SAFETY: the caller vouches for the processor and the block.
    unsafe { block.for_tiles(const { &tiles!((tile, BF16), registers: 1 2 3 4 5 6) }, line_inputs(BF16)) }
}

/// Registers of sums of each row that are multiplied at a time: those of both panels, where all fit.
const fn registers(rows: usize) -> usize {
    if rows <= 3 { GROUP * PARTS } else { PARTS }
}

/// # Safety
/// The processor has AVX2 and FMA; the block keeps its promises and has `ROWS` rows and one pair of panels, of pairs of bf16
/// if `BF16`.
#[target_feature(enable = "avx2,fma")]
unsafe fn tile<const BF16: bool, const ROWS: usize, const REGISTERS: usize>(block: &Block) {
    // SAFETY: every access is inside what the block promises: `depth` elements of `ROWS` rows and of two panels. What is
    // fetched may lie anywhere.
    unsafe {
        let odd = _mm256_castsi256_ps(_mm256_set1_epi32(0xffff_0000_u32 as i32));
        for first in (0..GROUP).step_by(REGISTERS / PARTS) {
            let mut sums = block.load_sums::<__m256, ROWS, REGISTERS>(first * PARTS);
            let mut weight = block.weight.add(first * block.panel_stride);
            let mut input = block.input.cast::<f32>();
            // Each panel fetches its own lines to come, or the share of both where one is multiplied after the other.
            let mut ahead = block.ahead;
            for _ in 0..block.depth / line_inputs(BF16) {
                for panel in 0..REGISTERS / PARTS {
                    fetch::near(ahead[first + panel]);
                    ahead[first + panel] = ahead[first + panel].wrapping_add(block.ahead_step);
                }
                for panel in 0..REGISTERS / PARTS {
                    let line = weight.add(panel * block.panel_stride).cast::<f32>();
                    let words = [_mm256_loadu_ps(line), _mm256_loadu_ps(line.add(PANEL / PARTS))];
                    if BF16 {
                        add_products(&mut sums, panel, input, block.input_stride, [even(words[0]), even(words[1])]);
                        let words = [_mm256_and_ps(words[0], odd), _mm256_and_ps(words[1], odd)];
                        add_products(&mut sums, panel, input.add(1), block.input_stride, words);
                    } else {
                        add_products(&mut sums, panel, input, block.input_stride, words);
                    }
                }
                weight = weight.add(LINE);
                input = input.add(line_inputs(BF16));
            }
            block.store_sums(first * PARTS, &sums);
        }
    }
}

/// The first of each pair of bf16.
#[inline]
#[target_feature(enable = "avx2")]
fn even(pairs: __m256) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_castps_si256(pairs)))
}

/// Adds the products of one input of each row with a panel.
///
/// # Safety
/// `input` points to a float in each of `ROWS` rows, `stride` bytes apart.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn add_products<const ROWS: usize, const REGISTERS: usize>(
    sums: &mut [[__m256; REGISTERS]; ROWS],
    panel: usize,
    input: *const f32,
    stride: usize,
    [low, high]: [__m256; PARTS],
) {
    for (row, sums) in sums.iter_mut().enumerate() {
        let input = input.wrapping_byte_add(row * stride);
        let [low_sum, high_sum] = &mut sums.as_chunks_mut::<PARTS>().0[panel];
        // In one piece: the compiler would read the inputs of all rows first, and has no registers for them.
        // SAFETY: the caller vouches for the rows.
        unsafe {
            asm!(
                "vbroadcastss {x}, dword ptr [{input}]",
                "vfmadd231ps {low_sum}, {x}, {low}",
                "vfmadd231ps {high_sum}, {x}, {high}",
                x = out(ymm_reg) _,
                input = in(reg) input,
                low_sum = inout(ymm_reg) *low_sum,
                high_sum = inout(ymm_reg) *high_sum,
                low = in(ymm_reg) low,
                high = in(ymm_reg) high,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
    }
}
