//! What a kernel is: a value in a table.
//!
//! A kernel adds products to a block of sums: rows of input times pairs of panels, over part of the depth. Everything
//! around it (threads, blocking, epilogues) is the same for all of them.

use demask_tensor::Dtype;

use super::{
    blocks,
    input::InputFormat,
    packed::{GROUP, PANEL, WeightFormat},
    quantised::Quantisation,
};
use crate::isa::{Isa, Tier};

/// One way to multiply.
pub(super) struct Kernel {
    /// `{isa}_{lhs}x{rhs}_{out}`.
    pub(super) name: &'static str,
    /// The tier that it belongs to.
    pub(super) tier: Tier,
    /// The tier whose instructions it executes.
    pub(super) executes: Tier,
    /// The type whose products it computes.
    pub(super) dtype: Dtype,
    /// How it reads inputs.
    pub(super) input: InputFormat,
    /// How it reads weights.
    pub(super) weight: WeightFormat,
    /// Rows that it multiplies at a time.
    pub(super) row_tile: usize,
    /// Depth of a block, a multiple of every padding: what is multiplied before the next panels' turn, so that the
    /// inputs of a block stay in the second-level cache, and the panels of a pair in the first if possible.
    pub(super) depth_block: usize,
    /// Adds a block's products to its sums.
    ///
    /// # Safety
    /// The processor has the tier `executes`, and the block keeps the promises of [`Block`].
    pub(super) accumulate: unsafe fn(&Block),
}

/// All kernels; of those that an instruction set can run, the last is the best.
static KERNELS: &[Kernel] = &[
    super::portable::F32,
    super::portable::BF16,
    #[cfg(target_arch = "x86_64")]
    super::avx2::F32,
    #[cfg(target_arch = "x86_64")]
    super::avx2::BF16,
    #[cfg(target_arch = "x86_64")]
    super::avx512::F32,
    #[cfg(target_arch = "x86_64")]
    super::avx512::BF16,
    #[cfg(target_arch = "x86_64")]
    super::avx512::BF16_PAIRS,
    super::amx::EMULATED_BF16,
    #[cfg(target_arch = "x86_64")]
    super::amx::BF16,
    super::unpacked::PORTABLE_F32_Q8,
    super::unpacked::PORTABLE_F32_Q4,
    super::unpacked::PORTABLE_BF16_Q8,
    super::unpacked::PORTABLE_BF16_Q4,
    #[cfg(target_arch = "x86_64")]
    super::unpacked::AVX2_F32_Q8,
    #[cfg(target_arch = "x86_64")]
    super::unpacked::AVX2_F32_Q4,
    #[cfg(target_arch = "x86_64")]
    super::unpacked::AVX2_BF16_Q8,
    #[cfg(target_arch = "x86_64")]
    super::unpacked::AVX2_BF16_Q4,
    #[cfg(target_arch = "x86_64")]
    super::unpacked::AVX512_F32_Q8,
    #[cfg(target_arch = "x86_64")]
    super::unpacked::AVX512_F32_Q4,
    #[cfg(target_arch = "x86_64")]
    super::unpacked::AVX512_BF16_Q8,
    #[cfg(target_arch = "x86_64")]
    super::unpacked::AVX512_BF16_Q4,
    #[cfg(target_arch = "x86_64")]
    super::avx512_quantised::Q8,
    #[cfg(target_arch = "x86_64")]
    super::avx512_quantised::Q4,
    super::unpacked::EMULATED_AMX_Q8,
    super::unpacked::EMULATED_AMX_Q4,
    #[cfg(target_arch = "x86_64")]
    super::avx512_quantised::AMX_Q8,
    #[cfg(target_arch = "x86_64")]
    super::avx512_quantised::AMX_Q4,
];

impl Kernel {
    /// Integers that it reads weights from.
    pub(super) fn quantisation(&self) -> Option<Quantisation> {
        match self.weight {
            WeightFormat::Quantised(quantisation) => Some(quantisation),
            WeightFormat::F32 | WeightFormat::Bf16Pairs | WeightFormat::Blocks(_) => None,
        }
    }

    /// The kernel for weights of another format that takes the same inputs on the same tier, if there is one.
    pub(super) fn sibling(&self, isa: Isa, weight: WeightFormat) -> Option<&'static Self> {
        let fits = |kernel: &&Self| {
            kernel.weight == weight && (kernel.dtype, kernel.input) == (self.dtype, self.input) && kernel.runs_on(isa)
        };
        KERNELS.iter().chain(blocks::KERNELS.as_flattened()).rfind(fits)
    }

    fn runs_on(&self, isa: Isa) -> bool {
        self.tier <= isa.tier() && isa.has(self.executes)
    }

    /// The best kernel of a tier for products of a type with weights of a kind.
    pub(super) fn choose(isa: Isa, dtype: Dtype, quantisation: Option<Quantisation>) -> &'static Self {
        assert!(matches!(dtype, Dtype::F32 | Dtype::Bf16), "no kernel takes inputs of type {dtype}");
        let fits = |kernel: &&Self| kernel.dtype == dtype && kernel.quantisation() == quantisation;
        let runs = |kernel: &&Self| fits(kernel) && kernel.runs_on(isa);
        // Portable kernels of every kind run everywhere: there is always a last one.
        KERNELS.iter().rfind(runs).unwrap_or(&KERNELS[0])
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
}

/// A kernel's innermost part for a fixed number of rows: the block holds just these rows and one pair of panels.
pub(super) type TileFn = unsafe fn(&Block);

/// A function generic over its number of rows, for each of these numbers.
macro_rules! tiles {
    ($tile:ident: $($rows:literal)+) => { [$($tile::<$rows>),+] };
}
pub(super) use tiles;

impl Block {
    /// Cuts the block into tiles and runs for each the function for its number of rows: `tiles[n - 1]` for `n`.
    ///
    /// # Safety
    /// The block keeps its promises, and the functions may be called on parts of it.
    #[inline(always)]
    pub(super) unsafe fn for_tiles(&self, tiles: &[TileFn]) {
        // As even as can be: a last tile of one row would wait for its weights alone.
        let count = self.rows.div_ceil(tiles.len());
        for group in 0..self.groups {
            let mut row = 0;
            for index in 0..count {
                let rows = (self.rows - row).div_ceil(count - index);
                // SAFETY: a part of a block that keeps its promises keeps them too.
                unsafe { tiles[rows - 1](&self.part(row, rows, group)) };
                row += rows;
            }
        }
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
}
