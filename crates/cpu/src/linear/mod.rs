//! Packed weights and their products with rows of inputs.
//!
//! [`Linear`] is the kernel chosen for an [`Isa`] and an input type. It packs weights once, makes input buffers in the
//! format it reads, and multiplies. The kernels stand in one table, so that a new one inherits blocking, epilogues and
//! tests.
//!
//! Weights stay in memory as they were packed, those in ggml's block formats in their blocks. Kernels for quantised ones
//! turn a few at a time into the numbers that the other kernels multiply. The format of inputs depends on nothing but
//! the instruction set and the type of the products: one buffer of inputs serves weights of every format.
//!
//! # Row invariance
//!
//! An output is one sum of products, begun at 0 and taken in ascending order of the inputs by the same instructions,
//! however many rows there are and however they are dealt out to threads; then the bias is added, then the sum to the
//! residual. Rows and outputs are padded with zeros to whole tiles: no remainder takes another path.
//!
//! ```
//! use demask_cpu::{isa::Isa, linear::{Linear, Output}, pool::Pool};
//! use demask_tensor::{Dtype, TensorView};
//!
//! let linear = Linear::new(Isa::best(), Dtype::F32);
//! let bytes: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0].into_iter().flat_map(f32::to_le_bytes).collect();
//! let weight = linear.pack(TensorView::new(Dtype::F32, 2, 2, &bytes))?;
//! let mut input = linear.new_input(1, 2);
//! input.set_row(0, &[1.0, 10.0]);
//! let mut out = [0.0; 2];
//! linear.matmul(&Pool::new(1), &input, 1, &weight, None, Output::Store { out: &mut out, stride: 2 });
//! assert_eq!(out, [21.0, 43.0]);
//! # Ok::<(), demask_tensor::PackError>(())
//! ```

pub mod activation;

mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_quantised;
mod blocks;
mod drive;
mod input;
mod kernel;
mod output;
mod packed;
mod portable;
mod quantised;
mod unpacked;

use demask_tensor::{Dtype, PackError, TensorView};

#[cfg(target_arch = "x86_64")]
pub(crate) use amx::{TILE_ROUND, tile_rounds};
pub use input::{InputBuffer, InputWriter};
pub use output::Output;
pub use packed::{MatrixFormat, Packed, PackedGateUp};
pub use quantised::Quantisation;

use crate::{
    isa::{self, Isa},
    pool::Pool,
};
use kernel::Kernel;
use packed::{Panels, WeightFormat};

/// The kernel for an instruction set and an input type.
#[derive(Clone, Copy)]
pub struct Linear {
    kernel: &'static Kernel,
    isa: Isa,
}

/// Every kernel that this machine runs, slower ones first, the emulated ones at the end: what tests go through.
pub fn kernel_list() -> Vec<Linear> {
    let mut list: Vec<Linear> = Vec::new();
    for isa in Isa::available().into_iter().chain([isa::emulated_amx()]) {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            for quantisation in [None, Some(Quantisation::Q8), Some(Quantisation::Q4)] {
                let linear = Linear::with_weights(isa, dtype, quantisation);
                if list.iter().all(|other| other.name() != linear.name()) {
                    list.push(linear);
                }
            }
        }
    }
    list
}

impl Linear {
    /// Chooses the kernel for products of `dtype`: [`Dtype::F32`] or [`Dtype::Bf16`].
    ///
    /// # Panics
    /// For another type.
    pub fn new(isa: Isa, dtype: Dtype) -> Self {
        Self::with_weights(isa, dtype, None)
    }

    /// The same for weights that are rounded to integers when they are packed, if a quantisation is given.
    ///
    /// # Panics
    /// For a type that [`Linear::new`] refuses.
    pub fn with_weights(isa: Isa, dtype: Dtype, quantisation: Option<Quantisation>) -> Self {
        Self { kernel: Kernel::choose(isa, dtype, quantisation), isa }
    }

    /// The kernel's name.
    pub fn name(&self) -> &'static str {
        self.kernel.name
    }

    /// The type whose products are computed.
    pub fn dtype(&self) -> Dtype {
        self.kernel.dtype
    }

    /// The integers that weights are rounded to.
    pub fn quantisation(&self) -> Option<Quantisation> {
        self.kernel.quantisation()
    }

    /// The instruction set that the kernel was chosen for.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Packs a weight `[out, in]` of any element type: kept as f32, or rounded to bf16 or to integers. One in blocks
    /// stays in its blocks, unless it is to be rounded to other integers.
    pub fn pack(&self, weight: TensorView<'_>) -> Result<Packed, PackError> {
        Packed::new(self.format_of([weight.dtype(); 2]), weight)
    }

    /// Packs gate and up projections, both `[ffn, hidden]`. They stay in their blocks if these are of the same format,
    /// for panels of both stand together; else both are packed as if they were not in blocks.
    ///
    /// # Panics
    /// If their shapes differ.
    pub fn pack_gate_up(&self, gate: TensorView<'_>, up: TensorView<'_>) -> Result<PackedGateUp, PackError> {
        PackedGateUp::new(self.format_of([gate.dtype(), up.dtype()]), gate, up)
    }

    fn format_of(&self, stored: [Dtype; 2]) -> WeightFormat {
        MatrixFormat::of(stored, self.dtype(), self.quantisation()).0
    }

    /// The kernel for weights of a format, with the inputs of this one.
    fn kernel_for(&self, format: WeightFormat) -> Option<&'static Kernel> {
        if format == self.kernel.weight { Some(self.kernel) } else { self.kernel.sibling(self.isa, format) }
    }

    /// The same for a packed weight; this one where there is none, which refuses the weight.
    fn kernel_of(&self, panels: &Panels) -> &'static Kernel {
        self.kernel_for(panels.format).unwrap_or(self.kernel)
    }

    /// Zeroed inputs: `rows` rows of `width` numbers.
    ///
    /// # Panics
    /// If there is no memory for them; [`Linear::try_new_input`] answers that with `None`.
    pub fn new_input(&self, rows: usize, width: usize) -> InputBuffer {
        self.try_new_input(rows, width).unwrap_or_else(|| panic!("no memory for {rows} rows of {width} inputs"))
    }

    /// Zeroed inputs, or `None` if there is no memory for them.
    pub fn try_new_input(&self, rows: usize, width: usize) -> Option<InputBuffer> {
        InputBuffer::try_new(self.kernel.input, rows, width)
    }

    /// Multiplies the first `rows` rows of `input` with a weight, adds the bias, and stores or adds the result.
    /// Allocates nothing.
    ///
    /// # Panics
    /// If a shape does not fit, or the weight or the input was made for another kernel.
    pub fn matmul(
        &self,
        pool: &Pool,
        input: &InputBuffer,
        rows: usize,
        weight: &Packed,
        bias: Option<&[f32]>,
        output: Output<'_>,
    ) {
        assert_eq!(input.width(), weight.columns(), "width of the input");
        assert!(bias.is_none_or(|bias| bias.len() == weight.rows()), "length of the bias");
        let target = output.target(rows, weight.rows());
        let all_rows = !target.has_distinct_rows();
        drive::multiply(self.kernel_of(&weight.panels), pool, (input, rows), &weight.panels, all_rows, &|sums| {
            // SAFETY: sums come for each block once, and blocks that run at the same time differ in columns or, where
            // the target's rows are distinct, in rows.
            unsafe { target.take(sums, bias) }
        });
    }

    /// `silu(gate) * up` of the first `rows` rows of `input`, rounded to the input format: rows of `output`, which is
    /// the input of the down projection. Allocates nothing.
    ///
    /// # Panics
    /// If a shape does not fit, or one of the arguments was made for another kernel.
    pub fn gate_up(
        &self,
        pool: &Pool,
        input: &InputBuffer,
        rows: usize,
        weight: &PackedGateUp,
        output: &mut InputBuffer,
    ) {
        assert_eq!(input.width(), weight.columns(), "width of the input");
        assert_eq!(output.width(), weight.rows(), "width of the output");
        assert_eq!(output.format(), self.kernel.input, "the output was made for another kernel than {}", self.name());
        assert!(rows <= output.capacity(), "{rows} rows for an output of {}", output.capacity());
        let writer = output.writer();
        drive::multiply(self.kernel_of(&weight.panels), pool, (input, rows), &weight.panels, false, &|sums| {
            // SAFETY: sums come for each block once, so that no two threads write the same columns of a row.
            unsafe { output::take_gate_up(self.isa, &writer, sums) }
        });
    }
}
