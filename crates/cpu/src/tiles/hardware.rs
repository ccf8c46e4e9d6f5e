//! The tile instructions of the processor itself.
//!
//! A product is one block of assembly, which names all tiles as overwritten: none holds anything from one block to the
//! next. What stays is their configuration, of which the compiler knows nothing; the system saves it, and the tiles, with
//! the rest of a thread's registers.

use std::{arch::asm, mem::offset_of};

use super::{Places, ROW_BYTES, ROWS, TileUnit};

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
    /// Eight tiles of full size.
    const fn new() -> Self {
        let mut row_bytes = [0; 16];
        let mut rows = [0; 16];
        let mut tile = 0;
        while tile < 8 {
            row_bytes[tile] = ROW_BYTES as u16;
            rows[tile] = ROWS as u8;
            tile += 1;
        }
        Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
    }
}

/// Products of tiles in one block of assembly, from the sums' coming to their going: `$dot` is the instruction, `$input`
/// and `$weight` are those that load, and what is in brackets is done where there are two tiles of rows. Temporaries are
/// used twice where they can: registers are few.
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

impl TileUnit for Tiles {
    #[inline(always)]
    unsafe fn configure() -> Self {
        let configuration: &'static Configuration = const { &Configuration::new() };
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
        Self { _thread: std::marker::PhantomData }
    }

    #[inline(always)]
    unsafe fn multiply<const TALL: bool, const STREAM: bool>(&mut self, places: &Places, steps: &[*const u8]) {
        // SAFETY: the unit is configured as long as it lives, and its tiles fit each other; the caller vouches for the
        // memory.
        unsafe {
            match (TALL, STREAM) {
                (true, false) => products!(places, steps, "tdpbf16ps", ("tileloaddt1", "tileloadd"), [tall]),
                (false, false) => products!(places, steps, "tdpbf16ps", ("tileloaddt1", "tileloadd"), []),
                (true, true) => products!(places, steps, "tdpbf16ps", ("tileloadd", "tileloaddt1"), [tall]),
                (false, true) => products!(places, steps, "tdpbf16ps", ("tileloadd", "tileloaddt1"), []),
            }
        }
    }
}

impl Drop for Tiles {
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
    use super::*;

    #[test]
    fn tiles_are_of_full_size() {
        let configuration = Configuration::new();
        assert_eq!(configuration.palette, 1);
        assert_eq!((&configuration.row_bytes[..8], &configuration.rows[..8]), (&[64; 8][..], &[16; 8][..]));
        assert_eq!((&configuration.row_bytes[8..], &configuration.rows[8..]), (&[0; 8][..], &[0; 8][..]));
    }
}
