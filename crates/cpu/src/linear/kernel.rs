//! Kernels of products, as values in a table.
//!
//! A kernel adds products to a block of sums: rows of input times pairs of panels, over part of the depth. Everything
//! around it (threads, blocking, epilogues) is the same for all of them.

use demask_tensor::Dtype;

use super::{
    Products,
    input::InputFormat,
    int8::Activations,
    integers::{self, codings},
    packed::{GROUP, MatrixFormat, PANEL, WeightFormat},
    portable,
    unpacked::{self, kernel as unpacking},
};
#[cfg(target_arch = "x86_64")]
use super::{amx, amx_dequant, avx2, avx512, avx512_dequant};
#[cfg(target_arch = "aarch64")]
use super::{bf16i8mm, neon};
use crate::isa::{Isa, Tier};

/// One way to multiply.
pub(super) struct Kernel {
    /// `{isa}_{lhs}x{rhs}_{out}`.
    pub(super) name: &'static str,
    /// Instructions that it takes.
    pub(super) instructions: Instructions,
    /// The type whose products it computes; of no meaning where it multiplies integers.
    pub(super) dtype: Dtype,
    /// Format of the inputs.
    pub(super) input: InputFormat,
    /// Format of the weights.
    pub(super) weight: WeightFormat,
    /// Rows that it multiplies at a time.
    pub(super) row_tile: usize,
    /// Depth of a block, in inputs, a multiple of every padding: the part that is multiplied before the next panels'
    /// turn. The inputs of a block stay in the second-level cache, and the panels of a pair in the first if possible.
    pub(super) depth_block: usize,
    /// Depth of a block for many rows: a deeper one means that sums rest in memory less often. With few rows weights
    /// come from memory at a pace that counts, and short blocks ask for them more evenly.
    pub(super) deep_block: usize,
    /// Adds a block's products to its sums.
    ///
    /// # Safety
    /// The processor has the instructions that are executed, and the block keeps the promises of [`Block`].
    pub(super) accumulate: unsafe fn(&Block),
}

/// Instructions of a kernel.
#[derive(Clone, Copy)]
pub(super) struct Instructions {
    /// The tier that the kernel belongs to.
    pub(super) tier: Tier,
    /// The tier whose instructions it executes: another one for a software twin.
    pub(super) executes: Tier,
    /// Records whether it also executes dot products of bytes, which no tier promises.
    pub(super) vnni: bool,
}

impl Instructions {
    /// Returns the instructions of a tier.
    pub(super) const fn of(tier: Tier) -> Self {
        Self { tier, executes: tier, vnni: false }
    }

    fn run_on(self, isa: Isa) -> bool {
        let twin = self.tier != self.executes;
        self.tier.is_up_to(isa.tier())
            && isa.has(self.executes)
            && (isa.has_vnni() || !self.vnni)
            && (isa.is_emulated() || !twin)
    }
}

/// Kernels of every architecture, slower ones first.
static PORTABLE: &[&[Kernel]] = &[
    &[portable::F32, portable::BF16],
    &codings!(unpacking::<unpacked::PortableF32>, "portable_f32"),
    &codings!(unpacking::<unpacked::PortableBf16>, "portable_bf16"),
    &integers::portable::KERNELS,
];

/// Kernels of this architecture, slower ones first.
#[cfg(target_arch = "x86_64")]
static OWN: &[&[Kernel]] = &[
    &[avx2::F32, avx2::BF16, avx512::F32, avx512_dequant::BF16, avx512::BF16_PAIRS, amx::BF16],
    &codings!(unpacking::<unpacked::Avx2F32>, "avx2_f32"),
    &codings!(unpacking::<unpacked::Avx2Bf16>, "avx2_bf16"),
    &codings!(unpacking::<avx512_dequant::Exact>, "avx512_f32"),
    &avx512_dequant::ROUNDED,
    &avx512_dequant::PAIRS,
    &amx_dequant::KERNELS,
    &integers::avx2::KERNELS,
    &integers::avxvnni::EMULATED,
    &integers::avxvnni::DOTS,
    &integers::avx512::KERNELS,
];

/// Kernels of this architecture, slower ones first.
#[cfg(target_arch = "aarch64")]
static OWN: &[&[Kernel]] = &[
    &[neon::F32, neon::BF16, bf16i8mm::BF16],
    &codings!(unpacking::<unpacked::NeonF32>, "neon_f32"),
    &codings!(unpacking::<unpacked::NeonBf16>, "neon_bf16"),
    &codings!(unpacking::<unpacked::Bf16I8mm>, "bf16i8mm_bf16"),
    &integers::neon::KERNELS,
    &integers::neon::DOTS,
    &integers::i8mm::KERNELS,
];

/// Kernels of this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static OWN: &[&[Kernel]] = &[];

/// All kernels; of those that an instruction set can run, the last is the best.
fn all() -> impl DoubleEndedIterator<Item = &'static Kernel> {
    PORTABLE.iter().chain(OWN).copied().flatten()
}

impl Kernel {
    /// Rounding of the inputs.
    pub(super) fn activations(&self) -> Activations {
        if self.input == InputFormat::Int8 { Activations::Int8 } else { Activations::Plain }
    }

    /// Reports whether the kernel looks at [`Block::fresh`]: sums of others are filled with zeros.
    pub(super) fn begins_at_zero(&self) -> bool {
        self.instructions.tier == Tier::Amx
    }

    /// The kernel for weights of another format that takes the same inputs on the same tier, if there is one.
    pub(super) fn sibling(&self, isa: Isa, weight: WeightFormat) -> Option<&'static Self> {
        let fits = |kernel: &&Self| {
            kernel.weight == weight
                && (kernel.dtype, kernel.input) == (self.dtype, self.input)
                && kernel.instructions.run_on(isa)
        };
        all().rfind(fits)
    }

    /// The best kernel of a tier for products of a kind.
    pub(super) fn choose(isa: Isa, products: Products) -> &'static Self {
        let Products { dtype, activations, .. } = products;
        assert!(matches!(dtype, Dtype::F32 | Dtype::Bf16), "no kernel takes inputs of type {dtype}");
        // That of weights that are stored in no blocks.
        let weight = MatrixFormat::of([dtype; 2], products).0;
        let fits = |kernel: &&Self| kernel.weight == weight && kernel.activations() == activations;
        let runs = |kernel: &&Self| {
            fits(kernel)
                && (kernel.dtype == dtype || activations == Activations::Int8)
                && kernel.instructions.run_on(isa)
        };
        // Portable kernels of every kind run everywhere: there is always a last one.
        all().rfind(runs).unwrap_or(&PORTABLE[0][0])
    }
}

/// Inputs, weights and sums of one call of a kernel.
///
/// # Promises
/// - `input` points to `rows` rows, `input_stride` bytes apart, each readable for `depth` elements; memory is readable
///   up to the next multiple of 16 rows.
/// - `weight` points to `groups` pairs of panels; panels are `panel_stride` bytes apart and readable for `depth`.
///   Pairs of panels in blocks are twice `panel_stride` apart and readable for `depth`.
/// - `sums` points to 16-row multiples of initialised rows, `sums_stride` floats apart, of `groups * 32` floats each,
///   which nobody else accesses.
/// - `depth` is a multiple of 32 where the weights' format pads it, of a block's inputs where weights are in ggml's blocks.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) input: *const u8,
    pub(super) input_stride: usize,
    pub(super) rows: usize,
    pub(super) weight: *const u8,
    pub(super) panel_stride: usize,
    pub(super) groups: usize,
    pub(super) depth: usize,
    pub(super) sums: *mut f32,
    pub(super) sums_stride: usize,
    /// Address that will be read next of either panel, for all pairs of the block: with one tile of rows the data
    /// after the first pair, with more the data after the last. It is fetched, not read, and may point anywhere.
    pub(super) ahead: [*const u8; GROUP],
    /// Bytes of it that are fetched in a step, where the kernel multiplies a cache line of each panel.
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        expect(dead_code, reason = "portable kernels fetch nothing")
    )]
    pub(super) ahead_step: usize,
    /// The inputs that will be multiplied next. They may be anywhere.
    #[cfg(target_arch = "x86_64")]
    pub(super) input_ahead: *const u8,
    /// Records whether sums begin at 0 instead of their old values, and may be unwritten: see [`Kernel::begins_at_zero`].
    #[cfg(target_arch = "x86_64")]
    pub(super) fresh: bool,
}

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// A kernel's innermost part for a fixed number of rows: the block holds just these rows and one pair of panels.
pub(super) type TileFn = unsafe fn(&Block);

/// A function generic over its number of rows, for each of these numbers. Its other parameters stand before them; after them
/// may stand one that is a function of the rows: `tiles!((tile, Floats), registers: 1 2)` is
/// `[tile::<Floats, 1, { registers(1) }>, tile::<Floats, 2, { registers(2) }>]`.
macro_rules! tiles {
    (@ ($tile:ident $(, $kind:tt)*) $rows:literal $($registers:ident)?) => {
        $tile::<$($kind,)* $rows $(, { $registers($rows) })?>
    };
    ($tile:tt: $($rows:literal)+) => {
        [$($crate::linear::kernel::tiles!(@ $tile $rows)),+]
    };
    ($tile:tt, $registers:ident: $($rows:literal)+) => {
        [$($crate::linear::kernel::tiles!(@ $tile $rows $registers)),+]
    };
}
pub(super) use tiles;

impl Block {
    /// Cuts the block into tiles and runs for each the function for its number of rows: `tiles[n - 1]` for `n`. A cache
    /// line of a panel holds `line_inputs` inputs.
    ///
    /// # Safety
    /// The block keeps its promises, and the functions may be called on parts of it.
    #[inline(always)]
    pub(super) unsafe fn for_tiles(&self, tiles: &[TileFn], line_inputs: usize) {
        // As even as can be: a last tile of one row would wait for its weights alone.
        let count = self.rows.div_ceil(tiles.len());
        let steps = self.depth / line_inputs;
        for group in 0..self.groups {
            let mut row = 0;
            for index in 0..count {
                let rows = (self.rows - row).div_ceil(count - index);
                // SAFETY: a part of a block that keeps its promises keeps them too.
                unsafe {
                    let part = self.part(row, rows, group);
                    tiles[rows - 1](&self.fetching(part, group, (index, count), steps));
                }
                row += rows;
            }
        }
    }

    /// A tile that fetches its share of the next weights while it multiplies. Prefetchers of the hardware stop at the
    /// end of a memory page, and miss weights that are read once in many thousand cycles.
    #[inline(always)]
    fn fetching(&self, tile: Self, group: usize, (index, count): (usize, usize), steps: usize) -> Self {
        let pair = GROUP * self.panel_stride;
        let next = if count == 1 {
            self.ahead.map(|ahead| ahead.wrapping_add(group * pair))
        } else if group + 1 < self.groups {
            [tile.weight.wrapping_add(pair), tile.weight.wrapping_add(pair + self.panel_stride)]
        } else {
            self.ahead
        };
        let step = LINE.div_ceil(count);
        Self { ahead: next.map(|next| next.wrapping_add(index * steps * step)), ahead_step: step, ..tile }
    }

    /// Some rows of one pair of panels.
    ///
    /// # Safety
    /// The rows and the pair are the block's.
    #[inline(always)]
    pub(super) unsafe fn part(&self, row: usize, rows: usize, group: usize) -> Self {
        // SAFETY: inside the memory that the block promises.
        unsafe {
            Self {
                input: self.input.add(row * self.input_stride),
                rows,
                weight: self.weight.add(group * GROUP * self.panel_stride),
                groups: 1,
                sums: self.sums.add(row * self.sums_stride + group * GROUP * PANEL),
                ..*self
            }
        }
    }

    /// Place of register `register` of a row's sums, where registers are of type `R`.
    ///
    /// # Safety
    /// The block keeps its promises and has the row.
    #[inline(always)]
    unsafe fn sums_at<R>(&self, row: usize, register: usize) -> *mut R {
        // SAFETY: sums of two panels stand side by side in each row.
        unsafe { self.sums.add(row * self.sums_stride).cast::<R>().add(register) }
    }

    /// Loads the sums of a tile of one pair of panels, in registers `R` of floats from number `first` of each row on.
    ///
    /// # Safety
    /// The block keeps its promises and has `ROWS` rows.
    #[inline(always)]
    pub(super) unsafe fn load_sums<R: Copy, const ROWS: usize, const REGISTERS: usize>(
        &self,
        first: usize,
    ) -> [[R; REGISTERS]; ROWS] {
        // SAFETY: zeros are floats, and the block promises initialised sums of two panels in each row.
        unsafe {
            let mut sums: [[R; REGISTERS]; ROWS] = std::mem::zeroed();
            for row in 0..ROWS {
                for register in 0..REGISTERS {
                    sums[row][register] = self.sums_at::<R>(row, first + register).read_unaligned();
                }
            }
            sums
        }
    }

    /// Stores what [`Block::load_sums`] loaded.
    ///
    /// # Safety
    /// As [`Block::load_sums`].
    #[inline(always)]
    pub(super) unsafe fn store_sums<R: Copy, const ROWS: usize, const REGISTERS: usize>(
        &self,
        first: usize,
        sums: &[[R; REGISTERS]; ROWS],
    ) {
        for row in 0..ROWS {
            for register in 0..REGISTERS {
                // SAFETY: the block promises sums of two panels in each row, which nobody else accesses.
                unsafe { self.sums_at::<R>(row, first + register).write_unaligned(sums[row][register]) }
            }
        }
    }
}
