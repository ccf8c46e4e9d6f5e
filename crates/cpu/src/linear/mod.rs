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
//! let pool = Pool::new(1);
//! let weight = linear.pack(&pool, TensorView::new(Dtype::F32, 2, 2, &bytes))?;
//! let mut input = linear.new_input(1, 2);
//! input.set_row(0, &[1.0, 10.0]);
//! let mut out = [0.0; 2];
//! linear.matmul(&pool, &input, 1, &weight, None, Output::Store { out: &mut out, stride: 2 });
//! assert_eq!(out, [21.0, 43.0]);
//! # Ok::<(), demask_tensor::PackError>(())
//! ```

pub mod activation;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod amx_dequant;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_dequant;
#[cfg(target_arch = "aarch64")]
mod bf16i8mm;
mod drive;
mod input;
mod int8;
mod integers;
mod kernel;
#[cfg(target_arch = "aarch64")]
mod neon;
mod output;
pub(crate) mod pack;
mod packed;
mod portable;
mod unpacked;

pub use demask_tensor::Quantisation;
use demask_tensor::{Dtype, PackError, StoredTensor};

pub(crate) use drive::{Job, ROWS_BEHIND, Sums};
pub use input::{InputBuffer, InputWriter};
pub use int8::Activations;
pub(crate) use output::Addend;
pub use output::Output;
pub use packed::{MatrixFormat, Packed, PackedGateUp};

use crate::{isa::Isa, pool::Pool};
use drive::{Factor, Together};
use input::InputFormat;
use kernel::Kernel;
use packed::{Panels, WeightFormat};

/// The kind of products that a kernel is chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Products {
    /// Element type of inputs and weights: [`Dtype::F32`] or [`Dtype::Bf16`].
    pub dtype: Dtype,
    /// Integers that weights are rounded to when they are packed, if any.
    pub quantisation: Option<Quantisation>,
    /// Records whether inputs are rounded to integers too. Weights beside them are integers: those of their blocks,
    /// where they are stored in any, or else those that are asked for, or eight bits.
    pub activations: Activations,
}

impl Products {
    /// Products of a type, nothing rounded to integers.
    pub const fn plain(dtype: Dtype) -> Self {
        Self { dtype, quantisation: None, activations: Activations::Plain }
    }

    /// All kinds.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let plain = [Dtype::F32, Dtype::Bf16].into_iter().flat_map(|dtype| {
            let weights = [None, Some(Quantisation::Q8), Some(Quantisation::Q4)].into_iter();
            weights.map(move |quantisation| Self { quantisation, ..Self::plain(dtype) })
        });
        let integers = Quantisation::ALL.map(|to| Self {
            quantisation: Some(to),
            activations: Activations::Int8,
            ..Self::plain(Dtype::F32)
        });
        plain.chain(integers)
    }
}

/// A weight that an input is multiplied with, and where the result goes.
pub(crate) struct Stored<'a> {
    pub(crate) weight: &'a Packed,
    pub(crate) bias: Option<&'a [f32]>,
    /// `[rows, outputs]`.
    pub(crate) out: &'a mut [f32],
}

/// The kernel for an instruction set and a kind of products.
#[derive(Clone, Copy)]
pub struct Linear {
    kernel: &'static Kernel,
    products: Products,
    isa: Isa,
}

/// The kernels that are chosen for some tiers, each once.
pub fn kernels_of(isas: impl IntoIterator<Item = Isa>) -> Vec<Linear> {
    let mut list: Vec<Linear> = Vec::new();
    for isa in isas {
        for products in Products::all() {
            let linear = Linear::with_products(isa, products);
            if list.iter().all(|other| other.name() != linear.name()) {
                list.push(linear);
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
        Self::with_products(isa, Products::plain(dtype))
    }

    /// Creates the products of any kind.
    ///
    /// # Panics
    /// For a type that [`Linear::new`] refuses.
    pub fn with_products(isa: Isa, products: Products) -> Self {
        Self { kernel: Kernel::choose(isa, products), products, isa }
    }

    /// The kernel's name.
    pub fn name(&self) -> &'static str {
        self.kernel.name
    }

    /// Returns the name of the kernel that multiplies a weight: another one than [`Linear::name`] where it is in blocks.
    pub fn name_for(&self, weight: &Packed) -> &'static str {
        self.kernel_of(&weight.panels).name
    }

    /// The type that was asked for: of products, or of what stands around products of integers.
    pub fn dtype(&self) -> Dtype {
        self.products.dtype
    }

    /// The integers that weights are rounded to.
    pub fn quantisation(&self) -> Option<Quantisation> {
        self.products.quantisation
    }

    /// Returns the rounding of the inputs.
    pub fn activations(&self) -> Activations {
        self.products.activations
    }

    /// Returns the requested products.
    pub fn products(&self) -> Products {
        self.products
    }

    /// The instruction set that the kernel was chosen for.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Packs a weight `[out, in]` of any element type: kept as f32, or rounded to bf16 or to integers. One in blocks
    /// stays in its blocks, unless it is to be rounded to other integers.
    pub fn pack<'a>(&self, pool: &Pool, weight: impl Into<StoredTensor<'a>>) -> Result<Packed, PackError> {
        let weight = weight.into();
        Packed::new(self.isa, self.format_of([weight.dtype(); 2]), pool, [weight])
    }

    /// Bytes that a weight `[rows, columns]` of an element type takes when it is packed; nothing if they are beyond all
    /// memory.
    pub fn packed_bytes(&self, stored: Dtype, rows: usize, columns: usize) -> Option<usize> {
        Packed::<1>::bytes_of(self.format_of([stored; 2]), rows, columns)
    }

    /// Bytes that gate and up projections, both `[rows, columns]`, take when they are packed; nothing if they are beyond
    /// all memory.
    pub fn packed_gate_up_bytes(&self, stored: [Dtype; 2], rows: usize, columns: usize) -> Option<usize> {
        PackedGateUp::bytes_of(self.format_of(stored), rows, columns)
    }

    /// Packs gate and up projections, both `[ffn, hidden]`. They stay in their blocks if these are of the same format,
    /// for panels of both stand together; else both are packed as if they were not in blocks.
    ///
    /// # Panics
    /// If their shapes differ.
    pub fn pack_gate_up<'a>(
        &self,
        pool: &Pool,
        gate: impl Into<StoredTensor<'a>>,
        up: impl Into<StoredTensor<'a>>,
    ) -> Result<PackedGateUp, PackError> {
        let (gate, up) = (gate.into(), up.into());
        Packed::new(self.isa, self.format_of([gate.dtype(), up.dtype()]), pool, [gate, up])
    }

    fn format_of(&self, stored: [Dtype; 2]) -> WeightFormat {
        MatrixFormat::of(stored, self.products).0
    }

    /// Returns the kernel of a packed weight, with the inputs of this one; this one where there is none, which refuses the
    /// weight.
    fn kernel_of(&self, panels: &Panels) -> &'static Kernel {
        let own = panels.format == self.kernel.weight;
        if own { self.kernel } else { self.kernel.sibling(self.isa, panels.format).unwrap_or(self.kernel) }
    }

    /// Allocates zeroed inputs: `rows` rows of `width` numbers.
    ///
    /// # Panics
    /// If there is no memory for them; [`Linear::try_new_input`] answers that with `None`.
    pub fn new_input(&self, rows: usize, width: usize) -> InputBuffer {
        self.try_new_input(rows, width).unwrap_or_else(|| panic!("no memory for {rows} rows of {width} inputs"))
    }

    /// Allocates zeroed inputs, or returns `None` if there is no memory for them.
    pub fn try_new_input(&self, rows: usize, width: usize) -> Option<InputBuffer> {
        InputBuffer::try_new(self.isa, self.kernel.input, rows, width)
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
        let together = if target.has_distinct_rows() { Together::Nothing } else { Together::Rows };
        drive::multiply(pool, (input, rows), self.factor(&weight.panels, together), &|sums| {
            // SAFETY: sums come for each block once, and blocks that run at the same time differ in columns or, where
            // the target's rows are distinct, in rows.
            unsafe { target.take(self.isa, sums, bias) }
        });
    }

    /// Multiplies the first `rows` rows of `input` with each weight, adds the bias if it has one, and stores the results,
    /// `[rows, outputs]` each: all in one job of the pool. Allocates nothing.
    ///
    /// # Panics
    /// As [`Linear::matmul`].
    pub(crate) fn matmul_each<const WEIGHTS: usize>(
        &self,
        pool: &Pool,
        input: &InputBuffer,
        rows: usize,
        weights: [Stored<'_>; WEIGHTS],
    ) {
        let weights = weights.map(|Stored { weight, bias, out }| {
            assert_eq!(input.width(), weight.columns(), "width of the input");
            assert!(bias.is_none_or(|bias| bias.len() == weight.rows()), "length of the bias");
            let output = Output::Store { out, stride: weight.rows() };
            (&weight.panels, bias, output.target(rows, weight.rows()))
        });
        let factors = std::array::from_fn(|index| self.factor(weights[index].0, Together::Nothing));
        drive::multiply_with::<WEIGHTS>(pool, (input, rows), factors, &|index, sums| {
            let (_, bias, target) = &weights[index];
            // SAFETY: sums come for each block once, and each weight has a target of its own, whose rows are distinct.
            unsafe { target.take(self.isa, sums, *bias) }
        });
    }

    fn factor<'a>(&self, panels: &'a Panels, together: Together) -> Factor<'a> {
        Factor { kernel: self.kernel_of(panels), panels, together }
    }

    /// Multiplies the first `rows` rows of `input` with a weight and hands the sums out instead of storing them: each
    /// once, by whichever thread made them. Allocates nothing.
    ///
    /// # Panics
    /// If a shape does not fit, or the weight or the input was made for another kernel.
    pub(crate) fn sums(
        &self,
        pool: &Pool,
        input: &InputBuffer,
        rows: usize,
        weight: &Packed,
        take: &(impl Fn(&Sums<'_>) + Sync),
    ) {
        assert_eq!(input.width(), weight.columns(), "width of the input");
        drive::multiply(pool, (input, rows), self.factor(&weight.panels, Together::Nothing), take);
    }

    /// Multiplies the rows of each job with its weight and hands the sums out: each once, by whichever thread made them.
    /// A row's sums are those that it has in any other product. Allocates nothing.
    ///
    /// # Panics
    /// If a shape does not fit, jobs do not follow each other, or something was made for another kernel.
    pub(crate) fn sums_each(
        &self,
        pool: &Pool,
        input: &InputBuffer,
        jobs: &[Job],
        weights: &[Packed],
        take: &(impl Fn(&Sums<'_>) + Sync),
    ) {
        assert!(weights.iter().all(|weight| weight.columns() == input.width()), "width of the input");
        let (kernel_of, panels_of) =
            (|panels: &Panels| self.kernel_of(panels), |weight: usize| &weights[weight].panels);
        drive::multiply_each(kernel_of, pool, input, jobs, panels_of, take);
    }

    /// Multiplies the rows of each job with one weight and stores the results, `[rows, outputs]`, in the rows with the same
    /// numbers. Allocates nothing.
    ///
    /// # Panics
    /// As [`Linear::sums_each`].
    pub(crate) fn store_each(&self, pool: &Pool, input: &InputBuffer, jobs: &[Job], weight: &Packed, out: &mut [f32]) {
        let end = jobs.last().map_or(0, |job| (job.first_row + job.rows) as usize);
        let target = Output::Store { out, stride: weight.rows() }.target(end, weight.rows());
        self.sums_each(pool, input, jobs, std::slice::from_ref(weight), &|sums| {
            // SAFETY: sums come for each block once, and jobs have rows of their own.
            unsafe { target.take(self.isa, sums, None) }
        });
    }

    /// `silu(gate) * up` of the rows of each job with its weight, rounded to the input format: rows of `output` with the
    /// same numbers. Allocates nothing.
    ///
    /// # Panics
    /// As [`Linear::sums_each`].
    pub(crate) fn gate_up_each(
        &self,
        pool: &Pool,
        input: &InputBuffer,
        jobs: &[Job],
        weights: &[PackedGateUp],
        output: &mut InputBuffer,
    ) {
        let fits = |weight: &PackedGateUp| [weight.columns(), weight.rows()] == [input.width(), output.width()];
        assert!(weights.iter().all(fits), "widths of the input and of the output");
        assert_eq!(output.format(), self.kernel.input, "the output was made for another kernel than {}", self.name());
        assert!(input.capacity() <= output.capacity(), "as many rows of the output as of the input");
        let writer = output.writer();
        let (kernel_of, panels_of) =
            (|panels: &Panels| self.kernel_of(panels), |weight: usize| &weights[weight].panels);
        drive::multiply_each(kernel_of, pool, input, jobs, panels_of, &|sums| {
            // SAFETY: sums come for each block once, and jobs have rows of their own, so that no two threads write the
            // same columns of a row. A task takes whole groups of inputs of the down projection: two pairs of panels.
            unsafe { output::take_gate_up(self.isa, &writer, sums, None) }
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
        self.gate_up_with(pool, input, rows, (weight, None), output);
    }

    /// [`gate_up`](Self::gate_up), with numbers that some rows of gate and up get first.
    ///
    /// # Panics
    /// As [`Linear::gate_up`].
    pub(crate) fn gate_up_with(
        &self,
        pool: &Pool,
        input: &InputBuffer,
        rows: usize,
        (weight, addend): (&PackedGateUp, Option<Addend<'_>>),
        output: &mut InputBuffer,
    ) {
        assert_eq!(input.width(), weight.columns(), "width of the input");
        assert_eq!(output.width(), weight.rows(), "width of the output");
        assert_eq!(output.format(), self.kernel.input, "the output was made for another kernel than {}", self.name());
        assert!(rows <= output.capacity(), "{rows} rows for an output of {}", output.capacity());
        // A group of inputs of the down projection is what two pairs of panels yield.
        let together = if output.format() == InputFormat::Int8 { Together::Groups } else { Together::Nothing };
        let writer = output.writer();
        drive::multiply(pool, (input, rows), self.factor(&weight.panels, together), &|sums| {
            // SAFETY: sums come for each block once, so that no two threads write the same columns of a row.
            unsafe { output::take_gate_up(self.isa, &writer, sums, addend.as_ref()) }
        });
    }
}
