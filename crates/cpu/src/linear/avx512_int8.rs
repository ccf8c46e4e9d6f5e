//! Byte dot products of AVX-512 VNNI: eight rows times a pair of panels at a time, or twelve where there are no more.
//! Integer sums have the registers to themselves. Sums rest in memory between two groups: that costs less than weights
//! that are read, and unpacked, more often.
//!
//! Weights of four bits are multiplied as they leave their registers if one tile has them; for more, blocks are unpacked
//! once to bytes and read again by all tiles of rows. Integer sums are exact, so that both give the same bits.

#![expect(clippy::cast_ptr_alignment, reason = "blocks and sums begin on cache lines; elements follow each other")]

use std::{
    arch::x86_64::{
        __m256i, __m512, __m512i, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm512_and_si512, _mm512_cvtepi32_ps,
        _mm512_cvtph_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps,
        _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
        _mm512_slli_epi16, _mm512_storeu_ps, _mm512_storeu_si512,
    },
    mem::MaybeUninit,
};

use super::{
    input::InputFormat,
    int8::{InputGroup, QUAD, QUAD_BYTES, QUADS, scale_factor},
    integers::Coding,
    kernel::{Block, Kernel, tiles},
    packed::{GROUP, PANEL, WeightFormat},
    quantised::{self, INPUTS, Quantisation, SCALES},
    unpacked::format,
};

/// Eight bits.
pub(super) const Q8: Kernel = Kernel {
    name: "avx512vnni_i8xq8_f32",
    vnni: true,
    input: InputFormat::Int8,
    weight: WeightFormat::Integers(Coding::Q8),
    row_tile: ALONE,
    depth_block: DEPTH,
    deep_block: DEPTH,
    accumulate: avx512vnni_i8xq8_f32,
    ..super::avx512::F32
};
/// Four bits.
pub(super) const Q4: Kernel = Kernel {
    name: "avx512vnni_i8xq4_f32",
    weight: WeightFormat::Integers(Coding::Q4),
    accumulate: avx512vnni_i8xq4_f32,
    ..Q8
};

/// Rows of a tile among others.
const ROWS: usize = 8;
/// Rows of a tile that has the weights to itself, at most.
const ALONE: usize = 12;
/// Inputs of a block: its bytes of a pair of panels fill half of a 32 KiB first-level cache.
const DEPTH: usize = 512;
/// Bytes of a block of eight bits.
const BYTES: usize = quantised::block_bytes(Quantisation::Q8);
/// Bytes that weights are asked for ahead of their use: what a core reads while memory answers once.
const AHEAD: usize = 4096;

/// Format in which a block of weights is read.
const EIGHT: usize = 0;
const FOUR: usize = 1;
/// Four bits that were unpacked to the bytes of eight.
const UNPACKED: usize = 2;

/// Weights that are asked for while a tile multiplies: `lines` lines of each block, the first at `start`.
#[derive(Clone, Copy)]
struct Ahead {
    start: *const u8,
    lines: usize,
    /// Bytes from block to block.
    step: usize,
}

/// A tile of a fixed number of rows, as [`TileFn`](super::kernel::TileFn).
type Tile = unsafe fn(&Block, Ahead);

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx512vnni_i8xq8_f32(block: &Block) {
    const TILES: [Tile; ALONE] = tiles!(eight_tile: 1 2 3 4 5 6 7 8 9 10 11 12);
    for group in 0..block.groups {
        // SAFETY: the caller vouches for the processor and the block.
        unsafe { run_tiles(&TILES, &block.part(0, block.rows, group), next(block, group, BYTES), BYTES) }
    }
}

/// # Safety
/// As [`Kernel::accumulate`].
unsafe fn avx512vnni_i8xq4_f32(block: &Block) {
    const FOUR: [Tile; ALONE] = tiles!(four_tile: 1 2 3 4 5 6 7 8 9 10 11 12);
    const UNPACKED: [Tile; ALONE] = tiles!(unpacked_tile: 1 2 3 4 5 6 7 8 9 10 11 12);
    const PACKED: usize = quantised::block_bytes(format::<4>());
    /// Unpacked blocks, on the stack of their thread.
    #[repr(align(64))]
    struct Blocks(MaybeUninit<[u8; DEPTH / INPUTS * BYTES]>);

    let mut blocks = Blocks(MaybeUninit::uninit());
    let blocks = blocks.0.as_mut_ptr().cast::<u8>();
    for group in 0..block.groups {
        // SAFETY: the caller vouches for the processor and the block. Blocks of four bits are unpacked where the rows
        // are more than a tile takes, which have blocks of `DEPTH` inputs at most: then there is room for all of
        // them, and they are there when the tiles read them.
        unsafe {
            let part = block.part(0, block.rows, group);
            let next = next(block, group, PACKED);
            if block.rows <= ALONE || block.depth > DEPTH {
                run_tiles(&FOUR, &part, next, PACKED);
            } else {
                unpack(part.weight, block.depth / INPUTS, blocks);
                run_tiles(&UNPACKED, &Block { weight: blocks, ..part }, next, PACKED);
            }
        }
    }
}

/// Address of the weights that come after a pair of panels: the next pair of the block, or the first pair's next
/// inputs. Blocks have `bytes` bytes.
fn next(block: &Block, group: usize, bytes: usize) -> *const u8 {
    if group + 1 < block.groups {
        block.weight.wrapping_add((group + 1) * GROUP * block.panel_stride)
    } else {
        block.weight.wrapping_add(block.depth / INPUTS * bytes)
    }
}

/// Cuts rows into tiles as [`Block::for_tiles`] does. One tile asks for its own weights ahead, more of them together for
/// the `next` ones, so that memory works while they multiply.
///
/// # Safety
/// The block keeps its promises, has one pair of panels, and the functions may be called on parts of it.
unsafe fn run_tiles(tiles: &[Tile; ALONE], block: &Block, next: *const u8, bytes: usize) {
    let count = if block.rows <= ALONE { 1 } else { block.rows.div_ceil(ROWS) };
    let all_lines = bytes / 64;
    let lines = all_lines.div_ceil(count);
    let mut row = 0;
    for index in 0..count {
        let ahead = if count == 1 {
            Ahead { start: block.weight.wrapping_add(AHEAD), lines, step: bytes }
        } else {
            let first = index * lines;
            Ahead {
                start: next.wrapping_add(first * 64),
                lines: lines.min(all_lines.saturating_sub(first)),
                step: bytes,
            }
        };
        let rows = (block.rows - row).div_ceil(count - index);
        // SAFETY: a part of a block that keeps its promises keeps them too.
        unsafe { tiles[rows - 1](&block.part(row, rows, 0), ahead) };
        row += rows;
    }
}

/// # Safety
/// As [`tile`].
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn eight_tile<const ROWS: usize>(block: &Block, ahead: Ahead) {
    // SAFETY: the caller's promise.
    unsafe { tile::<EIGHT, ROWS>(block, ahead) }
}

/// # Safety
/// As [`tile`].
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn four_tile<const ROWS: usize>(block: &Block, ahead: Ahead) {
    // SAFETY: the caller's promise.
    unsafe { tile::<FOUR, ROWS>(block, ahead) }
}

/// # Safety
/// As [`tile`].
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn unpacked_tile<const ROWS: usize>(block: &Block, ahead: Ahead) {
    // SAFETY: the caller's promise.
    unsafe { tile::<UNPACKED, ROWS>(block, ahead) }
}

/// # Safety
/// The processor has AVX-512 with VNNI; the block keeps its promises and has `ROWS` rows and one pair of panels in
/// blocks of the kind `KIND`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn tile<const KIND: usize, const ROWS: usize>(block: &Block, ahead: Ahead) {
    const { assert!(QUADS == 8) };
    let bytes = if KIND == FOUR { quantised::block_bytes(format::<4>()) } else { BYTES };
    // SAFETY: every access is inside what the block promises. Four inputs are one word, aligned because rows begin on
    // cache lines and groups take twelve words. What is asked for ahead may lie anywhere.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); GROUP]; ROWS];
        for row in 0..ROWS {
            for panel in 0..GROUP {
                sums[row][panel] = _mm512_loadu_ps(block.sums.add(row * block.sums_stride + panel * PANEL));
            }
        }
        let mut input = block.input;
        let mut weight = block.weight;
        let mut next = ahead.start;
        for _ in 0..block.depth / INPUTS {
            for line in 0..ahead.lines {
                _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(line * 64).cast());
            }
            next = next.wrapping_add(ahead.step);
            // The next tile's inputs of this group: rows lie pages apart, where no processor looks ahead by itself.
            for row in ROWS..2 * ROWS {
                _mm_prefetch::<_MM_HINT_T0>(input.wrapping_add(row * block.input_stride).cast());
            }
            let group = |row: usize| input.add(row * block.input_stride).cast::<InputGroup>();
            let mut totals = [[_mm512_setzero_si512(); GROUP]; ROWS];
            for row in 0..ROWS {
                totals[row] = [_mm512_set1_epi32((*group(row)).start); GROUP];
            }
            for quad in 0..QUADS {
                let weights = [quad_of::<KIND>(weight, 0, quad), quad_of::<KIND>(weight, 1, quad)];
                for row in 0..ROWS {
                    let inputs = _mm512_set1_epi32(*input.add(row * block.input_stride + quad * QUAD).cast::<i32>());
                    for panel in 0..GROUP {
                        totals[row][panel] = _mm512_dpbusd_epi32(totals[row][panel], weights[panel], inputs);
                    }
                }
            }
            let scales = [scales::<KIND>(weight, 0), scales::<KIND>(weight, 1)];
            for row in 0..ROWS {
                let scale = _mm512_set1_ps((*group(row)).scale);
                for panel in 0..GROUP {
                    let total = _mm512_cvtepi32_ps(totals[row][panel]);
                    sums[row][panel] = _mm512_fmadd_ps(total, _mm512_mul_ps(scale, scales[panel]), sums[row][panel]);
                }
            }
            input = input.add(size_of::<InputGroup>());
            weight = weight.add(bytes);
        }
        for row in 0..ROWS {
            for panel in 0..GROUP {
                _mm512_storeu_ps(block.sums.add(row * block.sums_stride + panel * PANEL), sums[row][panel]);
            }
        }
    }
}

/// Four weights of each output of a panel, as bytes.
///
/// # Safety
/// `start` points to a block of the kind; the processor has AVX-512 F and BW.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn quad_of<const KIND: usize>(start: *const u8, panel: usize, quad: usize) -> __m512i {
    // SAFETY: the caller vouches for the block.
    unsafe {
        if KIND != FOUR {
            let panel_bytes = quantised::panel_bytes(format::<8>());
            return _mm512_loadu_si512(start.add(SCALES + panel * panel_bytes + quad * QUAD_BYTES).cast());
        }
        let line = start.add(SCALES + panel * quantised::panel_bytes(format::<4>()) + quad / 2 * QUAD_BYTES);
        let halves = _mm512_loadu_si512(line.cast());
        let halves = if quad.is_multiple_of(2) { _mm512_slli_epi16::<4>(halves) } else { halves };
        _mm512_and_si512(halves, _mm512_set1_epi8(0xf0_u8 as i8))
    }
}

/// Scales of one panel of a block.
///
/// # Safety
/// `start` points to a block of the kind; the processor has AVX-512 F.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn scales<const KIND: usize>(start: *const u8, panel: usize) -> __m512 {
    // SAFETY: the block begins with its scales.
    let halves = unsafe { _mm256_loadu_si256(start.add(panel * PANEL * 2).cast::<__m256i>()) };
    let scales = _mm512_cvtph_ps(halves);
    if KIND == EIGHT { scales } else { _mm512_mul_ps(scales, _mm512_set1_ps(scale_factor::<4>())) }
}

/// Unpacks `count` blocks of four bits to blocks of bytes, whose scales stay those of four bits.
///
/// # Safety
/// The processor has AVX-512 F and BW; `packed` points to `count` blocks, and `blocks` has room for as many.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn unpack(packed: *const u8, count: usize, blocks: *mut u8) {
    for index in 0..count {
        // SAFETY: the caller vouches for the blocks.
        unsafe {
            let (from, to) = (packed.add(index * quantised::block_bytes(format::<4>())), blocks.add(index * BYTES));
            _mm512_storeu_si512(to.cast(), _mm512_loadu_si512(from.cast()));
            for panel in 0..GROUP {
                for quad in 0..QUADS {
                    let bytes = quad_of::<FOUR>(from, panel, quad);
                    let place = SCALES + panel * quantised::panel_bytes(format::<8>()) + quad * QUAD_BYTES;
                    _mm512_storeu_si512(to.add(place).cast(), bytes);
                }
            }
        }
    }
}
