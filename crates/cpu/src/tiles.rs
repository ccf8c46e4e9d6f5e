//! Tile instructions: products of 16 rows times 16 columns in one instruction, over 32 numbers of bf16.
//!
//! A product is one block of assembly, or a few with other work between its steps. From one block to the next tiles keep their
//! configuration, and sums where steps are apart. The compiler knows nothing of either, and has no use for tiles of its own;
//! the system saves them with the rest of a thread's registers.

use std::{arch::asm, marker::PhantomData, mem::offset_of};

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

/// The current thread's eight tile registers: four of sums (0 to 3), two of inputs (4 and 5) and two of weights (6 and 7),
/// of full size but for rows that a product does not have. Their contents live no longer than one product.
pub(crate) struct TileUnit {
    /// Mark that keeps tiles on their thread.
    _thread: PhantomData<*const ()>,
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
    /// Place that the second-level cache fetches meanwhile, of either tile of weights. It may be anywhere.
    pub(crate) ahead: *const u8,
    /// Lines of it that are fetched in each step, for either tile.
    pub(crate) ahead_lines: usize,
    /// The first of [`ROWS_AHEAD`] rows of inputs of which a line is fetched in each step too, where there are two tiles of
    /// rows. It may be anywhere.
    pub(crate) rows_ahead: *const u8,
    /// Records whether sums begin at 0 instead of their old values.
    pub(crate) fresh: bool,
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
    /// Eight tiles with rows of full size. Those of sums and inputs have rows for a product of `rows` rows, at most twice
    /// [`ROWS`].
    const fn new(rows: usize) -> Self {
        let first = if rows < ROWS { rows } else { ROWS };
        // A tile has at least a row, even if nothing uses it.
        let second = if rows > ROWS { rows - ROWS } else { 1 };
        let [first, second, all] = [first as u8, second as u8, ROWS as u8];
        let mut row_bytes = [0; 16];
        let mut rows = [0; 16];
        let of_tiles = [first, first, second, second, first, second, all, all];
        let mut tile = 0;
        while tile < of_tiles.len() {
            row_bytes[tile] = ROW_BYTES as u16;
            rows[tile] = of_tiles[tile];
            tile += 1;
        }
        Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
    }
}

/// Products of tiles in one block of assembly, from the sums' coming to their going: `$dot` is the instruction,
/// `$input` and `$weight` are those that load. The part in brackets runs with two tiles of rows. Temporaries are used
/// twice where they can: registers are few.
macro_rules! products {
    ($places:expr, $steps:expr, $dot:literal, ($input:literal, $weight:literal), [$($tall:tt)?]) => {{
        let steps: &[*const u8] = $steps;
        let range = steps.as_ptr_range();
        asm!(
            "mov {weight}, [{places} + {SUMS}]",
            "mov {apart}, [{places} + {SUMS_STRIDE}]",
            products!(@ [$($tall)?] "mov {below}, {apart}\nshl {below}, 4\nadd {below}, {weight}"),
            "cmp byte ptr [{places} + {FRESH}], 0",
            "jne 2f",
            "tileloadd tmm0, [{weight} + {apart}*1]",
            "tileloadd tmm1, [{weight} + {apart}*1 + 64]",
            products!(@ [$($tall)?] "tileloadd tmm2, [{below} + {apart}*1]\ntileloadd tmm3, [{below} + {apart}*1 + 64]"),
            "jmp 3f",
            "2:",
            "tilezero tmm0",
            "tilezero tmm1",
            products!(@ [$($tall)?] "tilezero tmm2\ntilezero tmm3"),
            "3:",
            "mov {input}, [{places} + {INPUT}]",
            "mov {input_stride}, [{places} + {INPUT_STRIDE}]",
            "mov {weight_stride}, [{places} + {WEIGHT_STRIDE}]",
            "mov {apart}, [{places} + {WEIGHT_RIGHT}]",
            "mov {ahead}, [{places} + {AHEAD}]",
            "mov {rows_ahead}, [{places} + {ROWS_AHEAD}]",
            products!(@ [$($tall)?] "mov {below}, {input_stride}\nshl {below}, 4\nadd {below}, {input}"),
            "cmp {step}, {end}",
            "je 6f",
            "4:",
            "mov {weight}, [{step}]",
            concat!($input, " tmm4, [{input} + {input_stride}*1]"),
            concat!($weight, " tmm6, [{weight} + {weight_stride}*1]"),
            "add {weight}, {apart}",
            concat!($dot, " tmm0, tmm4, tmm6"),
            concat!($weight, " tmm7, [{weight} + {weight_stride}*1]"),
            concat!($dot, " tmm1, tmm4, tmm7"),
            products!(@ [$($tall)?] concat!($input, " tmm5, [{below} + {input_stride}*1]")),
            products!(@ [$($tall)?] concat!($dot, " tmm2, tmm5, tmm6\n", $dot, " tmm3, tmm5, tmm7\nadd {below}, 64")),
            "mov {line}, [{places} + {AHEAD_LINES}]",
            "test {line}, {line}",
            "jz 8f",
            "7:",
            "prefetcht1 [{ahead}]",
            "prefetcht1 [{ahead} + {apart}*1]",
            "add {ahead}, 64",
            "dec {line}",
            "jnz 7b",
            "8:",
            products!(@ [$($tall)?] concat!(
                "prefetcht1 [{rows_ahead}]\nprefetcht1 [{rows_ahead} + {input_stride}*1]\n",
                "lea {line}, [{rows_ahead} + {input_stride}*2]\nadd {rows_ahead}, 64\n",
                "prefetcht1 [{line}]\nprefetcht1 [{line} + {input_stride}*1]",
            )),
            "add {input}, 64",
            "add {step}, 8",
            "cmp {step}, {end}",
            "jne 4b",
            "6:",
            "mov {weight}, [{places} + {SUMS}]",
            "mov {apart}, [{places} + {SUMS_STRIDE}]",
            "tilestored [{weight} + {apart}*1], tmm0",
            "tilestored [{weight} + {apart}*1 + 64], tmm1",
            products!(@ [$($tall)?] "mov {below}, {apart}\nshl {below}, 4\nadd {below}, {weight}"),
            products!(@ [$($tall)?] "tilestored [{below} + {apart}*1], tmm2\ntilestored [{below} + {apart}*1 + 64], tmm3"),
            "/* {below} {rows_ahead} */",
            places = in(reg) &raw const *$places,
            step = inout(reg) range.start => _,
            end = in(reg) range.end,
            input = out(reg) _,
            input_stride = out(reg) _,
            below = out(reg) _,
            weight = out(reg) _,
            weight_stride = out(reg) _,
            apart = out(reg) _,
            ahead = out(reg) _,
            rows_ahead = out(reg) _,
            line = out(reg) _,
            SUMS = const offset_of!(Places, sums),
            SUMS_STRIDE = const offset_of!(Places, sums_stride),
            INPUT = const offset_of!(Places, input),
            INPUT_STRIDE = const offset_of!(Places, input_stride),
            WEIGHT_STRIDE = const offset_of!(Places, weight_stride),
            WEIGHT_RIGHT = const offset_of!(Places, weight_right),
            AHEAD = const offset_of!(Places, ahead),
            ROWS_AHEAD = const offset_of!(Places, rows_ahead),
            AHEAD_LINES = const offset_of!(Places, ahead_lines),
            FRESH = const offset_of!(Places, fresh),
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }};
    (@ [tall] $line:expr) => { $line };
    (@ [] $line:expr) => { "" };
}

impl TileUnit {
    /// Configures the thread's registers as tiles of full size. Dropping the unit releases them.
    ///
    /// # Safety
    /// The thread may execute tile instructions, and has no other unit.
    #[inline(always)]
    pub(crate) unsafe fn configure() -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::configured(const { &Configuration::new(2 * ROWS) }) }
    }

    /// Configures the thread's registers for products of `rows` rows, from 1 to 32, in [steps](Self::step): fewer rows take
    /// less time to load, to multiply and to store.
    ///
    /// # Safety
    /// As [`configure`](Self::configure).
    #[inline(always)]
    pub(crate) unsafe fn configure_rows(rows: usize) -> Self {
        debug_assert!((1..=2 * ROWS).contains(&rows), "{rows} rows");
        // SAFETY: the caller's promise.
        unsafe { Self::configured(&Configuration::new(rows)) }
    }

    /// # Safety
    /// As [`configure`](Self::configure).
    #[inline(always)]
    unsafe fn configured(configuration: &Configuration) -> Self {
        // SAFETY: the caller vouches for the instruction; the operand is a valid configuration of 64 bytes.
        unsafe {
            asm!(
                "ldtilecfg [{}]",
                in(reg) &raw const *configuration,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags),
            );
        }
        Self { _thread: PhantomData }
    }

    /// Multiplies one or two tiles of rows with a pair of tiles of columns, of bf16: adds the products of each step to the
    /// sums. Steps are the starts of tiles of weights; inputs go on by a row of a tile from step to step. Where weights are
    /// a `stream`, each is loaded once and inputs stay in the caches; otherwise it is the other way round.
    ///
    /// # Safety
    /// Of sums, inputs and weights, 16 rows of 64 bytes are readable at each of their places, 32 rows of sums and inputs if
    /// `tall`; sums, which may be unwritten where they are fresh, belong to the caller.
    #[expect(clippy::unused_self, reason = "a unit is the proof that tiles are configured")]
    #[inline(always)]
    pub(crate) unsafe fn multiply(&mut self, tall: bool, stream: bool, places: &Places, steps: &[*const u8]) {
        // SAFETY: tiles are configured as long as the unit lives, and fit each other; the caller vouches for the memory.
        unsafe {
            match (tall, stream) {
                (true, false) => products!(places, steps, "tdpbf16ps", ("tileloaddt1", "tileloadd"), [tall]),
                (false, false) => products!(places, steps, "tdpbf16ps", ("tileloaddt1", "tileloadd"), []),
                (true, true) => products!(places, steps, "tdpbf16ps", ("tileloadd", "tileloaddt1"), [tall]),
                (false, true) => products!(places, steps, "tdpbf16ps", ("tileloadd", "tileloaddt1"), []),
            }
        }
    }
}

/// A step of products whose sums stay in their tiles from one block of assembly to the next.
macro_rules! step {
    ($step:expr, [$($tall:tt)?]) => {{
        let Step { input, input_stride, weight, weight_right } = $step;
        asm!(
            "tileloadd tmm4, [{input} + {input_stride}*1]",
            "tileloadd tmm6, [{weight} + {row}*1]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{right} + {row}*1]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            products!(@ [$($tall)?] concat!(
                "tileloadd tmm5, [{below} + {input_stride}*1]\n",
                "tdpbf16ps tmm2, tmm5, tmm6\ntdpbf16ps tmm3, tmm5, tmm7",
            )),
            "/* {below} */",
            input = in(reg) input,
            input_stride = in(reg) input_stride,
            below = in(reg) input.wrapping_add(ROWS * input_stride),
            weight = in(reg) weight,
            right = in(reg) weight.wrapping_add(weight_right),
            row = in(reg) ROW_BYTES,
            options(nostack, preserves_flags),
        );
    }};
}

/// Operands of a step of products.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// The first tile of inputs.
    pub(crate) input: *const u8,
    /// Bytes from row to row of inputs.
    pub(crate) input_stride: usize,
    /// The first tile of weights, its rows one after the other.
    pub(crate) weight: *const u8,
    /// Bytes from the first tile of weights to the second.
    pub(crate) weight_right: usize,
}

/// Products whose sums stay in tiles between steps, so that other instructions run at the same time. The compiler uses no tile
/// of its own: between a unit's blocks of assembly nothing changes one.
#[expect(clippy::unused_self, reason = "a unit is the proof that tiles are configured")]
impl TileUnit {
    /// Sets all sums to 0.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        // SAFETY: a unit exists only where tile instructions may be executed.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                options(nomem, nostack, preserves_flags),
            );
        }
    }

    /// Adds the products of one step to the sums of one or two tiles of rows.
    ///
    /// # Safety
    /// 16 rows of 64 bytes are readable at each of the operands' places, 32 rows of inputs if `tall`.
    #[inline(always)]
    pub(crate) unsafe fn step(&mut self, tall: bool, operands: Step) {
        // SAFETY: tiles are configured as long as the unit lives; the caller vouches for the memory.
        unsafe {
            if tall {
                step!(operands, [tall]);
            } else {
                step!(operands, []);
            }
        }
    }

    /// Stores the sums of one or two tiles of rows, `stride` bytes from row to row.
    ///
    /// # Safety
    /// 16 rows of 128 bytes are the caller's at `sums`, 32 if `tall`.
    #[inline(always)]
    pub(crate) unsafe fn store(&mut self, tall: bool, sums: *mut u8, stride: usize) {
        // SAFETY: as the caller promises.
        unsafe {
            asm!(
                "tilestored [{sums} + {stride}*1], tmm0",
                "tilestored [{sums} + {stride}*1 + 64], tmm1",
                sums = in(reg) sums,
                stride = in(reg) stride,
                options(nostack, preserves_flags),
            );
            if tall {
                asm!(
                    "tilestored [{sums} + {stride}*1], tmm2",
                    "tilestored [{sums} + {stride}*1 + 64], tmm3",
                    sums = in(reg) sums.wrapping_add(ROWS * stride),
                    stride = in(reg) stride,
                    options(nostack, preserves_flags),
                );
            }
        }
    }
}

impl Drop for TileUnit {
    fn drop(&mut self) {
        // SAFETY: a unit exists only where tile instructions may be executed. Releasing lets the system leave the
        // tiles out when it switches threads.
        unsafe {
            asm!(
                "tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use demask_testkit::tiles::{Tile, add_products};

    use super::*;
    use crate::isa::{Tier, tests::testable};

    /// Bytes from row to row of what tiles are loaded from.
    const STRIDE: usize = 2 * ROW_BYTES + 32;
    /// Tiles of weights, the first of each step; the second lies after it.
    const STEPS: [usize; 2] = [3, 2];

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

    /// Sums of one and of two tiles of rows, fresh ones and others.
    ///
    /// # Safety
    /// Tile instructions may be executed.
    unsafe fn results(words: &[u32]) -> Vec<u32> {
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
        let steps = STEPS.map(tile);
        // SAFETY: the caller vouches for the instructions; there are six tiles of words, and `out` has room for two times
        // four tiles of sums.
        unsafe {
            let mut unit = TileUnit::configure();
            unit.multiply(true, false, &places, &steps);
            unit.multiply(false, true, &short, &steps[1..]);
        }
        out
    }

    /// The same sums by the arithmetic of the instructions.
    fn expected(words: &[u32]) -> Vec<u32> {
        let tile = |words: &[u32], start: usize, stride: usize| -> Tile {
            std::array::from_fn(|row| words[start + row * stride..][..WORDS].try_into().unwrap())
        };
        // Inputs of the second step begin a row of a tile later.
        let operand = |index: usize, step: usize| tile(words, index * ROWS * STRIDE / 4 + step * WORDS, STRIDE / 4);
        let mut out: Vec<u32> = words[..8 * ROWS * WORDS].to_vec();
        for (rows, input, steps, fresh) in [(0, 0, &STEPS[..], false), (1, 1, &STEPS, false), (2, 1, &STEPS[1..], true)]
        {
            for column in 0..2 {
                let start = (rows * ROWS * 2 + column) * WORDS;
                let mut sums = if fresh { [[0; WORDS]; ROWS] } else { tile(&out, start, 2 * WORDS) };
                for (step, weight) in steps.iter().enumerate() {
                    add_products(&mut sums, &operand(input, step), &operand(weight + column, 0), (ROWS, WORDS));
                }
                for (row, sums) in sums.iter().enumerate() {
                    out[start + row * 2 * WORDS..][..WORDS].copy_from_slice(sums);
                }
            }
        }
        out
    }

    /// On a processor with tiles this compares its arithmetic with its twin's; where they are trapped, the twin
    /// computes, and the test compares instructions, places and strides.
    #[test]
    fn the_instructions_do_what_their_twin_does() {
        if testable().iter().any(|isa| isa.has(Tier::Amx)) {
            let words = words();
            // SAFETY: the tier was just found.
            assert_eq!(unsafe { results(&words) }, expected(&words));
        }
    }

    /// Sums of two steps that stay in tiles between them: of one tile of rows and of two, whole ones and others. Nothing is
    /// written beyond the rows.
    #[test]
    fn sums_stay_from_step_to_step() {
        const RIGHT: usize = 2 * ROWS * WORDS;
        if !testable().iter().any(|isa| isa.has(Tier::Amx)) {
            return;
        }
        let words = words();
        let place = |word: usize| words[word..].as_ptr().cast::<u8>();
        let tile = |start: usize, stride: usize| -> Tile {
            std::array::from_fn(|row| words[start + row * stride..][..WORDS].try_into().unwrap())
        };
        for rows in [1, 5, ROWS, ROWS + 1, 2 * ROWS] {
            let tall = rows > ROWS;
            let mut out = vec![7u32; 2 * ROWS * 2 * WORDS];
            let mut expected = vec![[[0; WORDS]; ROWS]; rows.div_ceil(ROWS) * 2];
            // SAFETY: the tier was just found; six tiles of words are enough for two of inputs and four of weights.
            let mut unit = unsafe { TileUnit::configure_rows(rows) };
            unit.clear();
            for step in 0..2 {
                let (input, weight) = (step * WORDS, 5 * ROWS * STRIDE / 8 + step * ROWS * WORDS);
                let [operand, panels] = [input, weight].map(place);
                // SAFETY: as above.
                unsafe {
                    let operands =
                        Step { input: operand, input_stride: STRIDE, weight: panels, weight_right: 4 * RIGHT };
                    unit.step(tall, operands);
                }
                for (index, sums) in expected.iter_mut().enumerate() {
                    let rows = tile(input + index / 2 * ROWS * STRIDE / 4, STRIDE / 4);
                    add_products(sums, &rows, &tile(weight + index % 2 * RIGHT, WORDS), (ROWS, WORDS));
                }
            }
            // SAFETY: as above; `out` has as many rows.
            unsafe { unit.store(tall, out.as_mut_ptr().cast(), 2 * ROW_BYTES) };
            assert!(out[rows * 2 * WORDS..].iter().all(|&word| word == 7), "{rows} rows");
            for (row, found) in out[..rows * 2 * WORDS].chunks(2 * WORDS).enumerate() {
                let [left, right] = [0, 1].map(|column| expected[row / ROWS * 2 + column][row % ROWS]);
                assert_eq!(found, [left, right].concat(), "row {row} of {rows}");
            }
        }
    }

    #[test]
    fn tiles_are_of_full_size() {
        let configuration = Configuration::new(2 * ROWS);
        assert_eq!(configuration.palette, 1);
        assert_eq!((&configuration.row_bytes[..8], &configuration.rows[..8]), (&[64; 8][..], &[16; 8][..]));
        assert_eq!((&configuration.row_bytes[8..], &configuration.rows[8..]), (&[0; 8][..], &[0; 8][..]));
        assert_eq!(Configuration::new(5).rows[..8], [5, 5, 1, 1, 5, 1, 16, 16]);
        assert_eq!(Configuration::new(20).rows[..8], [16, 16, 4, 4, 16, 4, 16, 16]);
    }
}
