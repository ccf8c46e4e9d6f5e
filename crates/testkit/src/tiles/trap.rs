//! Tile instructions on a processor that has none: the signal for an unknown instruction computes them.
//!
//! Machine code runs as it is: its encodings, registers, addresses, strides and configurations are taken from the
//! instructions and held to the demands of Intel's Software Developer's Manual (volume 1 on programming with AMX, and
//! the pages of the instructions in volume 2). Where the processor would raise an exception, the process ends
//! with a line. The arithmetic is in the [module above](super).

use std::{cell::UnsafeCell, mem::MaybeUninit, ptr, sync::OnceLock};

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use super::{ROWS, Tile, WORDS, add_products, add_products_of_bytes};

/// Bytes of a word.
const BYTES: usize = 4;
/// Bytes of a tile's row.
const ROW_BYTES: usize = WORDS * BYTES;
/// Registers of tiles.
const TILES: usize = 8;
/// The number of a register that stands for none in the index of an address.
const NO_INDEX: usize = 4;
/// The number of a register that stands for none in the base of an address, or for the next instruction's place.
const NO_BASE: usize = 5;

/// Installs the handler for this process, once, and reports whether it is there.
pub(super) fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all zeros are an action; the handler has the form that SA_SIGINFO asks for, and touches nothing but
        // its thread's own tiles and what the instruction names.
        unsafe {
            let action = action.assume_init_mut();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGILL, action, ptr::null_mut()) == 0
        }
    })
}

/// Bytes of a row, and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    row_bytes: usize,
    rows: usize,
}

/// The tiles of a thread.
struct Tiles {
    shapes: Option<[Shape; TILES]>,
    tiles: [Tile; TILES],
}

thread_local! {
    static STATE: UnsafeCell<Tiles> =
        const { UnsafeCell::new(Tiles { shapes: None, tiles: [[[0; WORDS]; ROWS]; TILES] }) };
}

/// An address as an instruction gives it: register numbers, the scale of the index and the displacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Address {
    /// `None` where there is none.
    base: Option<usize>,
    /// Records whether it counts from the end of the instruction.
    from_next: bool,
    index: Option<usize>,
    scale: u32,
    displacement: i32,
}

/// Operation of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instruction {
    /// `ldtilecfg`.
    Configure(Address),
    /// `tilerelease`.
    Release,
    /// `tilezero`.
    Zero(usize),
    /// `tileloadd`, or `tileloaddt1`, which differs in what caches keep.
    Load(usize, Address),
    /// `tilestored`.
    Store(usize, Address),
    /// `tdpbf16ps`: sums, inputs, weights.
    Dot([usize; 3]),
    /// `tdpbsud`: sums, inputs, weights.
    DotBytes([usize; 3]),
}

/// # Safety
/// Called by the system for `SIGILL`, with the registers of the thread that met the instruction.
unsafe extern "C" fn handle(signal: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the system hands out the registers, and nobody else has them while the thread is here. The instruction
    // pointer points to the instruction, of which bytes are read one by one, no further than it goes; so are those of the
    // instruction behind it, which the thread executes next. A thread's tiles are used in its handler alone, which does
    // not interrupt itself.
    unsafe {
        let registers = &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs;
        let mut code = Code { next: registers[libc::REG_RIP as usize] as *const u8 };
        let mut met = decode(&mut code);
        if met.is_none() {
            // Not ours: it meets the instruction again, and ends as it would have.
            libc::signal(signal, libc::SIG_DFL);
        }
        // Tile instructions right behind it are executed at once: signals would take longer.
        while let Some(instruction) = met {
            let next = code.next as usize;
            registers[libc::REG_RIP as usize] = next as i64;
            STATE.with(|state| (*state.get()).execute(instruction, registers, next));
            met = decode(&mut code);
        }
    }
}

/// Bytes of an instruction.
struct Code {
    next: *const u8,
}

impl Iterator for Code {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        // SAFETY: only the handler makes one of these, at instructions that the processor executes next, and takes no
        // more bytes than they have.
        let byte = unsafe { *self.next };
        self.next = self.next.wrapping_add(1);
        Some(byte)
    }
}

/// The tile instruction that stands there, if it is one of those that demask uses.
fn decode(code: &mut impl Iterator<Item = u8>) -> Option<Instruction> {
    // A prefix of three bytes: registers' high bits, inverted, and the table of opcodes; then an inverted register, the
    // length and a prefix.
    if code.next()? != 0xc4 {
        return None;
    }
    let (first, second, opcode) = (code.next()?, code.next()?, code.next()?);
    let high = |bit: u8| usize::from(first >> bit & 1 ^ 1) << 3;
    let (register_high, index_high, base_high) = (high(7), high(6), high(5));
    let (table, third, prefix) = (first & 0x1f, usize::from(!second >> 3 & 0xf), second & 3);
    // Table 0F38, no wide operand, 128 bits.
    if table != 2 || second & 0x84 != 0 {
        return None;
    }
    let place = code.next()?;
    let (mode, register, low) = (place >> 6, usize::from(place >> 3 & 7) | register_high, usize::from(place & 7));
    let mut memory = || address(code, (mode, low), (index_high, base_high));
    Some(match (opcode, prefix, mode) {
        (0x49, 0, 3) if place == 0xc0 => Instruction::Release,
        (0x49, 0, 0..=2) if register == 0 => Instruction::Configure(memory()?),
        (0x49, 3, 3) if low == 0 => Instruction::Zero(register),
        (0x4b, 1 | 3, 0..=2) if low == 4 => Instruction::Load(register, memory()?),
        (0x4b, 2, 0..=2) if low == 4 => Instruction::Store(register, memory()?),
        (0x5c, 2, 3) => Instruction::Dot([register, low | base_high, third]),
        (0x5e, 2, 3) => Instruction::DotBytes([register, low | base_high, third]),
        _ => return None,
    })
}

/// Reads the bytes after the one with the operands' places: scale, index and base, and the displacement.
fn address(
    code: &mut impl Iterator<Item = u8>,
    (mode, low): (u8, usize),
    (index_high, base_high): (usize, usize),
) -> Option<Address> {
    let mut address = Address { base: Some(low | base_high), from_next: false, index: None, scale: 0, displacement: 0 };
    let mut none = low == NO_BASE && mode == 0;
    address.from_next = none;
    if low == 4 {
        let scaled = code.next()?;
        let (index, base) = (usize::from(scaled >> 3 & 7) | index_high, usize::from(scaled & 7));
        address.index = (index != NO_INDEX).then_some(index);
        address.scale = u32::from(scaled >> 6);
        address.base = Some(base | base_high);
        none = base == NO_BASE && mode == 0;
    }
    if none {
        address.base = None;
    }
    address.displacement = match mode {
        1 => i32::from(code.next()? as i8),
        2 => word(code)?,
        _ if none => word(code)?,
        _ => 0,
    };
    Some(address)
}

fn word(code: &mut impl Iterator<Item = u8>) -> Option<i32> {
    Some(i32::from_le_bytes([code.next()?, code.next()?, code.next()?, code.next()?]))
}

/// The contents of a register by its number.
fn register(registers: &[i64], number: usize) -> usize {
    const ORDER: [c_int; 16] = [
        libc::REG_RAX,
        libc::REG_RCX,
        libc::REG_RDX,
        libc::REG_RBX,
        libc::REG_RSP,
        libc::REG_RBP,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
    ];
    registers[ORDER[number] as usize] as usize
}

impl Address {
    /// Address without its index, and the index: bytes from row to row.
    fn resolve(self, registers: &[i64], next: usize) -> (usize, usize) {
        let base = self.base.map_or(if self.from_next { next } else { 0 }, |number| register(registers, number));
        let index = self.index.map_or(0, |number| register(registers, number) << self.scale);
        (base.wrapping_add_signed(self.displacement as isize), index)
    }
}

impl Tiles {
    /// # Safety
    /// The registers are a thread's at the instruction, and its memory is valid where the instruction reads or writes.
    unsafe fn execute(&mut self, instruction: Instruction, registers: &[i64], next: usize) {
        // SAFETY: the processor would read and write the same memory.
        unsafe {
            match instruction {
                Instruction::Configure(address) => {
                    let (start, index) = address.resolve(registers, next);
                    let configuration = ((start + index) as *const [u8; 64]).read_unaligned();
                    self.shapes = Some(shapes(&configuration).unwrap_or_else(|wrong| end(wrong)));
                    self.tiles = [[[0; WORDS]; ROWS]; TILES];
                }
                Instruction::Release => self.shapes = None,
                Instruction::Zero(tile) => {
                    self.shape(tile);
                    self.tiles[tile] = [[0; WORDS]; ROWS];
                }
                Instruction::Load(tile, address) => {
                    let (shape, (start, stride)) = (self.shape(tile), address.resolve(registers, next));
                    self.tiles[tile] = [[0; WORDS]; ROWS];
                    for (row, words) in self.tiles[tile][..shape.rows].iter_mut().enumerate() {
                        let from = start.wrapping_add(row.wrapping_mul(stride)) as *const u8;
                        ptr::copy_nonoverlapping(from, words.as_mut_ptr().cast(), shape.row_bytes);
                    }
                }
                Instruction::Store(tile, address) => {
                    let (shape, (start, stride)) = (self.shape(tile), address.resolve(registers, next));
                    for (row, words) in self.tiles[tile][..shape.rows].iter().enumerate() {
                        let to = start.wrapping_add(row.wrapping_mul(stride)) as *mut u8;
                        ptr::copy_nonoverlapping(words.as_ptr().cast(), to, shape.row_bytes);
                    }
                }
                Instruction::Dot(tiles) => self.multiply(tiles, add_products),
                Instruction::DotBytes(tiles) => self.multiply(tiles, add_products_of_bytes),
            }
        }
    }

    /// The shape of a tile that may be used.
    fn shape(&self, tile: usize) -> Shape {
        let Some(shapes) = self.shapes else { end("tiles are not configured") };
        match shapes.get(tile) {
            Some(shape) if shape.rows > 0 && shape.row_bytes.is_multiple_of(BYTES) => *shape,
            _ => end("a tile that is not configured"),
        }
    }

    fn multiply(&mut self, tiles: [usize; 3], add: impl Fn(&mut Tile, &Tile, &Tile, (usize, usize))) {
        let [sums, inputs, weights] = tiles;
        let shapes = tiles.map(|tile| self.shape(tile));
        check(tiles, shapes).unwrap_or_else(|wrong| end(wrong));
        let (inputs, weights) = (self.tiles[inputs], self.tiles[weights]);
        add(&mut self.tiles[sums], &inputs, &weights, (shapes[0].rows, shapes[2].rows));
    }
}

/// The shapes of tiles that the operand of `ldtilecfg` asks for.
fn shapes(configuration: &[u8; 64]) -> Result<[Shape; TILES], &'static str> {
    let reserved = [&configuration[2..16], &configuration[32..48], &configuration[56..64]];
    if configuration[..2] != [1, 0] || reserved.iter().any(|part| part.iter().any(|&byte| byte != 0)) {
        return Err("a configuration that is not one of palette 1");
    }
    let shape = |tile: usize| Shape {
        row_bytes: usize::from(u16::from_le_bytes([configuration[16 + 2 * tile], configuration[17 + 2 * tile]])),
        rows: usize::from(configuration[48 + tile]),
    };
    let shapes = std::array::from_fn(shape);
    let fits = |shape: &Shape| {
        shape.row_bytes <= ROW_BYTES && shape.rows <= ROWS && (shape.rows == 0) == (shape.row_bytes == 0)
    };
    if shapes.iter().all(fits) { Ok(shapes) } else { Err("a configuration of tiles that are too large, or half empty") }
}

/// Reports whether tiles of sums, inputs and weights may meet.
fn check(tiles: [usize; 3], [sums, inputs, weights]: [Shape; 3]) -> Result<(), &'static str> {
    if tiles[0] == tiles[1] || tiles[1] == tiles[2] || tiles[0] == tiles[2] {
        return Err("a product of a tile with itself");
    }
    let same = sums.row_bytes == weights.row_bytes && sums.rows == inputs.rows;
    if !same || inputs.row_bytes != weights.rows * BYTES {
        return Err("a product of tiles that do not fit each other");
    }
    // Others exist; nothing here has them.
    if sums.row_bytes == ROW_BYTES { Ok(()) } else { Err("a product of narrow tiles") }
}

/// Ends the process as an exception of the processor would.
fn end(why: &str) -> ! {
    for part in ["tile instruction refused: ", why, "\n"] {
        // SAFETY: the bytes are the string's. Nothing that a signal may interrupt is used.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(code: &[u8]) -> Option<Instruction> {
        let mut rest = code.iter().copied();
        let instruction = decode(&mut rest);
        assert!(instruction.is_none() || rest.next().is_none(), "an instruction has all of its bytes");
        instruction
    }

    /// Bytes of a row and rows of tiles, from the first on.
    fn configuration(tiles: &[(u8, u8)]) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        for (index, &(row_bytes, rows)) in tiles.iter().enumerate() {
            (bytes[16 + 2 * index], bytes[48 + index]) = (row_bytes, rows);
        }
        bytes
    }

    #[test]
    fn instructions_are_what_an_assembler_makes_of_them() {
        let at = |base| Address { base: Some(base), from_next: false, index: None, scale: 0, displacement: 0 };
        let cases: [(&[u8], Instruction); 11] = [
            // ldtilecfg [rdi], [rip + 0x1234], [r13 - 8]
            (&[0xc4, 0xe2, 0x78, 0x49, 0x07], Instruction::Configure(at(7))),
            (
                &[0xc4, 0xe2, 0x78, 0x49, 0x05, 0x34, 0x12, 0, 0],
                Instruction::Configure(Address { base: None, from_next: true, displacement: 0x1234, ..at(0) }),
            ),
            (&[0xc4, 0xc2, 0x78, 0x49, 0x45, 0xf8], Instruction::Configure(Address { displacement: -8, ..at(13) })),
            // tilerelease; tilezero tmm3
            (&[0xc4, 0xe2, 0x78, 0x49, 0xc0], Instruction::Release),
            (&[0xc4, 0xe2, 0x7b, 0x49, 0xd8], Instruction::Zero(3)),
            // tileloadd tmm6, [rsi + rdx]; tmm1, [r13 + r12 * 4 + 0x100]
            (&[0xc4, 0xe2, 0x7b, 0x4b, 0x34, 0x16], Instruction::Load(6, Address { index: Some(2), ..at(6) })),
            (
                &[0xc4, 0x82, 0x7b, 0x4b, 0x8c, 0xa5, 0, 1, 0, 0],
                Instruction::Load(1, Address { index: Some(12), scale: 2, displacement: 0x100, ..at(13) }),
            ),
            // tileloaddt1 tmm6, [rsi + rdx]
            (&[0xc4, 0xe2, 0x79, 0x4b, 0x34, 0x16], Instruction::Load(6, Address { index: Some(2), ..at(6) })),
            // tilestored [r9 + r10], tmm1
            (&[0xc4, 0x82, 0x7a, 0x4b, 0x0c, 0x11], Instruction::Store(1, Address { index: Some(10), ..at(9) })),
            // tdpbf16ps tmm0, tmm4, tmm6; tdpbsud tmm3, tmm5, tmm7
            (&[0xc4, 0xe2, 0x4a, 0x5c, 0xc4], Instruction::Dot([0, 4, 6])),
            (&[0xc4, 0xe2, 0x42, 0x5e, 0xdd], Instruction::DotBytes([3, 5, 7])),
        ];
        for (code, instruction) in cases {
            assert_eq!(decoded(code), Some(instruction), "{code:02x?}");
        }
    }

    #[test]
    fn other_instructions_are_not_taken() {
        // ud2; a product of another opcode; one of 256 bits; a load without a second register.
        let cases: [&[u8]; 4] = [
            &[0x0f, 0x0b],
            &[0xc4, 0xe2, 0x4a, 0x5d, 0xc4],
            &[0xc4, 0xe2, 0x4e, 0x5c, 0xc4],
            &[0xc4, 0xe2, 0x7b, 0x4b, 0x07],
        ];
        assert!(cases.into_iter().all(|code| decoded(code).is_none()));
    }

    #[test]
    fn configurations_are_held_to_the_manual() {
        let full = shapes(&configuration(&[(64, 16); 8])).unwrap();
        assert_eq!(full, [Shape { row_bytes: 64, rows: 16 }; TILES]);
        for wrong in [[(65, 16)], [(64, 17)], [(64, 0)], [(0, 16)]] {
            assert!(shapes(&configuration(&wrong)).is_err(), "{wrong:?}");
        }
        for reserved in [0, 1, 2, 15, 32, 47, 56, 63] {
            let mut bytes = configuration(&[(64, 16)]);
            bytes[reserved] = 2;
            assert!(shapes(&bytes).is_err(), "byte {reserved}");
        }
    }

    #[test]
    fn products_are_of_tiles_that_fit() {
        let (full, half) = (Shape { row_bytes: 64, rows: 16 }, Shape { row_bytes: 32, rows: 16 });
        let eight = Shape { row_bytes: 64, rows: 8 };
        assert_eq!(check([0, 4, 6], [full, full, full]), Ok(()));
        assert_eq!(check([0, 4, 6], [full, half, eight]), Ok(()));
        assert!(check([0, 0, 6], [full, full, full]).is_err());
        assert!(check([0, 4, 6], [full, half, full]).is_err());
        assert!(check([0, 4, 6], [full, full, eight]).is_err());
        assert!(check([0, 4, 6], [eight, full, full]).is_err());
        assert!(check([0, 4, 6], [half, full, half]).is_err());
    }
}
