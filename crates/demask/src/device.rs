//! Choice of the device that runs a model, and of its number formats.

#[cfg(feature = "cuda")]
use std::sync::Once;
use std::{fmt, str::FromStr};

use demask_cpu::{
    CpuOptions, cores,
    isa::{Isa, IsaError, Tier},
    linear::{Activations, MatrixFormat, Products, Quantisation},
};
#[cfg(feature = "cuda")]
use demask_cuda::{Card, Cuda, CudaOptions, Driver, NoGpu, Places};
use demask_step::Mask;
use demask_tensor::{AttentionShape, Dtype, PageKind, WorkspaceShape};

/// Device that was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The processor; the first GPU only if it is a card on which `tests/system/gpu_checks.py` has passed, of which there is none yet,
    /// and nothing is asked for that only the processor has (threads, a tier, activations of int8).
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// An NVIDIA GPU by number.
    Cuda(usize),
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// Element type of weights and matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DtypeChoice {
    /// f32 if the checkpoint holds f32, else bf16.
    #[default]
    Auto,
    /// Computes everything in f32, in which golden values are compared.
    F32,
    /// bf16 inputs, f32 sums.
    Bf16,
}

/// Format of the weights in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightChoice {
    /// Element type of the products.
    #[default]
    Plain,
    /// Matrices in eight bits and a scale for each 32 inputs; embeddings and vectors plain.
    Q8,
    /// Matrices in four bits and a scale for each 32 inputs; embeddings and vectors plain.
    Q4,
}

/// Rounding of the inputs of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActivationChoice {
    /// Integers for quantised weights where that is measured to be faster and as good, by the tier and the rows of the model's
    /// forwards, unless everything is to be f32.
    #[default]
    Auto,
    /// The element type of the products.
    Plain,
    /// Eight bits and a scale for each 32 inputs of a row, for quantised weights.
    Int8,
}

/// Device settings.
#[derive(Debug, Clone, Default)]
pub struct DeviceOptions {
    /// Device to run on.
    pub device: DeviceChoice,
    /// Element type.
    pub dtype: DtypeChoice,
    /// Sets whether weights are quantised when they are loaded.
    pub quantize: WeightChoice,
    /// Sets whether inputs of products are rounded to integers too.
    pub activations: ActivationChoice,
    /// Threads; none given: one for each fast core that this process may use.
    pub threads: Option<usize>,
    /// A CPU tier to use instead of the best.
    pub tier: Option<Tier>,
    /// Rows that one joined step may have.
    pub row_budget: Option<usize>,
    /// Folders in which the driver, the compiler of kernels and compiled kernels are looked for.
    #[cfg(feature = "cuda")]
    pub cuda: Places,
}

/// A device that cannot be used as asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UnusableDevice {
    /// A word that names nothing.
    #[error("{what} \"{found}\" is unknown: use one of {known}")]
    Unknown {
        /// Name of the setting.
        what: &'static str,
        /// Value that was found.
        found: String,
        /// Known names.
        known: &'static str,
    },
    /// Error: this build has no GPU backend.
    #[error("device cuda:{0} was asked for, and this build runs on the CPU only: use `device` cpu or auto")]
    NoCuda(usize),
    /// Error: the GPU does not exist, or cannot be used.
    #[cfg(feature = "cuda")]
    #[error("device cuda:{number} cannot be used: {reason}; `device` cpu runs without it")]
    NoGpu {
        /// Number of the GPU.
        number: usize,
        /// Reason of the refusal.
        reason: NoGpu,
    },
    /// Something that only the processor has.
    #[error("{what} with device cuda:{number}, where {why}: omit it, or use `device` cpu")]
    CpuOnly {
        /// Feature that was requested.
        what: &'static str,
        /// Number of the GPU.
        number: usize,
        /// Alternative on GPUs.
        why: &'static str,
    },
    /// The processor lacks a forced tier.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// Integers are to meet numbers that are none.
    #[error("activations of int8 need quantised weights, found plain ones: add `quantize` q8 or q4")]
    Activations,
    /// A number of threads that cannot be meant.
    #[error("{found} threads were asked for, expected 1 to {most}: omit `threads` to use {usual}")]
    Threads {
        /// Number of threads that was found.
        found: usize,
        /// The most that is accepted.
        most: usize,
        /// Number that is taken without a wish: fast cores.
        usual: usize,
    },
}

impl UnusableDevice {
    /// Returns whether the call itself was wrong, not the machine.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::Threads { .. } | Self::Activations | Self::CpuOnly { .. } => true,
            #[cfg(feature = "cuda")]
            Self::NoGpu { reason: NoGpu::NoSuchDevice { .. }, .. } => true,
            _ => false,
        }
    }
}

/// Reports whether int8 activations are faster by 0.3 times at least, and nearly as good, as `docs/performance.md` has
/// it: with AVX2 and with dot products of bytes, not with AVX-512 alone. Tile products of bf16 multiply many rows faster, so
/// that on their tier int8 is for models that answer token by token. On ARM the count of products in an instruction decides:
/// four times as many bytes as floats, or twice as many as bf16.
fn int8_pays(isa: Isa, attention: Mask) -> bool {
    match isa.tier() {
        Tier::Avx2 | Tier::AvxVnni | Tier::Dotprod | Tier::Bf16I8mm => true,
        Tier::Avx512 | Tier::Avx512Bf16 => isa.has_vnni(),
        Tier::Amx => attention == Mask::Causal,
        Tier::Portable | Tier::Neon => false,
    }
}

/// Cards on which all of `tests/system/gpu_checks.py` has passed, as their drivers name them: `auto` takes these and no others. The records
/// of cards are in `bench/record/`.
#[cfg(feature = "cuda")]
const PROVEN_CARDS: &[&str] = &[];

/// Support for GPUs, in words, as the table of proven cards has it.
#[cfg(feature = "cuda")]
pub const STANDING: &str = if PROVEN_CARDS.is_empty() {
    "experimental: device auto is the processor, device cuda takes a card"
} else {
    "device auto takes cards on which tests/system/gpu_checks.py has passed"
};

/// Largest number of threads for each processor: more are a mistake, not a wish.
const MOST_THREADS_PER_PROCESSOR: usize = 4;

/// Options of a backend, from which its memory follows.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum BackendOptions {
    /// The processor's.
    Cpu(CpuOptions),
    /// Options of NVIDIA GPUs.
    #[cfg(feature = "cuda")]
    Cuda(CudaOptions),
}

/// One rule for all devices: the same question is put to whichever computes.
macro_rules! asked {
    ($self:ident, $options:ident => $answer:expr) => {
        match $self {
            Self::Cpu($options) => $answer,
            #[cfg(feature = "cuda")]
            Self::Cuda($options) => $answer,
        }
    };
}

impl BackendOptions {
    /// A packed matrix `[rows, columns]` that is stored in a type, exactly.
    pub fn matrix_bytes(&self, stored: Dtype, rows: usize, columns: usize) -> u64 {
        asked!(self, options => options.matrix_bytes(stored, rows, columns))
    }

    /// Packed gate and up projections, both `[rows, columns]`, that are stored in two types, exactly.
    pub fn gate_up_bytes(&self, stored: [Dtype; 2], rows: usize, columns: usize) -> u64 {
        asked!(self, options => options.gate_up_bytes(stored, rows, columns))
    }

    /// A matrix that scores experts, `[rows, columns]`, exactly.
    pub fn router_bytes(&self, rows: usize, columns: usize) -> u64 {
        asked!(self, options => options.router_bytes(rows, columns))
    }

    /// An embedding table that is stored in a type, exactly.
    pub fn embedding_bytes(&self, stored: Dtype, rows: usize, columns: usize) -> u64 {
        asked!(self, options => options.embedding_bytes(stored, rows, columns))
    }

    /// A workspace, roughly from above.
    pub fn workspace_bytes(&self, shape: &WorkspaceShape) -> u64 {
        asked!(self, options => options.workspace_bytes(shape))
    }

    /// A page of K/V of all layers, exactly.
    pub fn page_bytes(&self, shape: &AttentionShape, layers: usize, hidden: usize, kind: PageKind) -> u64 {
        asked!(self, options => options.page_bytes(shape, layers, hidden, kind))
    }

    /// Name of the format, in a word, in which matrices are kept that are stored in these types and packed together.
    pub fn matrix_format(&self, stored: [Dtype; 2]) -> String {
        match self {
            Self::Cpu(CpuOptions { dtype, quantisation, activations, .. }) => {
                let products = Products { dtype: *dtype, quantisation: *quantisation, activations: *activations };
                MatrixFormat::of(stored, products).to_string()
            }
            #[cfg(feature = "cuda")]
            Self::Cuda(options) => options.matrix_format(stored),
        }
    }
}

impl DeviceOptions {
    /// Returns these options for a device that is there: what `auto` means on this machine, or the device that was asked for. A GPU that
    /// `auto` cannot use although there is one is written to the log.
    pub fn resolved(&self) -> Result<Self, UnusableDevice> {
        let device = match (self.device, self.cpu_only()) {
            (DeviceChoice::Cpu, _) | (DeviceChoice::Auto, Some(_)) => DeviceChoice::Cpu,
            (DeviceChoice::Cuda(number), Some((what, why))) => {
                return Err(UnusableDevice::CpuOnly { what, number, why });
            }
            (DeviceChoice::Cuda(number), None) => find_gpu(self, number)?,
            (DeviceChoice::Auto, None) => find_any(self),
        };
        Ok(Self { device, ..self.clone() })
    }

    /// Returns the option that only the processor has, if it is set, and the fact about GPUs that excludes it.
    fn cpu_only(&self) -> Option<(&'static str, &'static str)> {
        let int8 = self.activations == ActivationChoice::Int8;
        let checks = [
            (int8, "activations of int8", "products take their inputs in bf16"),
            (self.threads.is_some(), "a number of threads (`threads`)", "none of the processor's compute"),
            (self.tier.is_some(), "a tier of the processor (DEMASK_ISA)", "none of its instructions compute"),
        ];
        checks.into_iter().find(|(asked, ..)| *asked).map(|(_, what, why)| (what, why))
    }

    /// Opens a GPU. Remarks about its kernels are written to the log.
    #[cfg(feature = "cuda")]
    pub fn open_gpu(&self, number: usize) -> Result<Driver, UnusableDevice> {
        let opened = Cuda::probe(&self.cuda)
            .and_then(|cuda| cuda.open(number, &demask_cuda::sources(), &mut |remark| tracing::warn!("{remark}")));
        opened.map_err(|reason| UnusableDevice::NoGpu { number, reason })
    }

    /// Writes to the log that a card about to compute is none of those on which the checks have passed; one line, however many
    /// models and guides it runs.
    #[cfg(feature = "cuda")]
    pub fn tell_experimental(card: &Card) {
        static LOGGED: Once = Once::new();
        if let Some(remark) = unproven(card, PROVEN_CARDS) {
            LOGGED.call_once(|| tracing::warn!("{remark}"));
        }
    }

    /// The processor tier that these options mean.
    pub fn isa(&self) -> Result<Isa, UnusableDevice> {
        Ok(match self.tier {
            Some(tier) => Isa::force(tier)?,
            None => Isa::best(),
        })
    }

    /// The number of threads that these options mean.
    pub fn thread_count(&self) -> Result<usize, UnusableDevice> {
        let most = cores::available_threads() * MOST_THREADS_PER_PROCESSOR;
        match self.threads {
            None => Ok(cores::fast_cores()),
            Some(found) if (1..=most).contains(&found) => Ok(found),
            Some(found) => Err(UnusableDevice::Threads { found, most, usual: cores::fast_cores() }),
        }
    }

    /// The element type for a checkpoint stored in `stored`.
    pub fn resolve_dtype(&self, stored: Dtype) -> Dtype {
        match (self.dtype, stored) {
            (DtypeChoice::F32, _) | (DtypeChoice::Auto, Dtype::F32) => Dtype::F32,
            _ => Dtype::Bf16,
        }
    }

    /// Returns the kind of matrix products for a checkpoint stored in `stored` of a model with the mask `attention`. For a guide
    /// that is the mask of the model that it judges, because its forwards have the same rows.
    pub fn products(&self, stored: Dtype, attention: Mask) -> Result<Products, UnusableDevice> {
        let (dtype, quantisation) = (self.resolve_dtype(stored), self.quantize.quantisation());
        let on_cpu = !matches!(self.device, DeviceChoice::Cuda(_));
        let quantised = quantisation.is_some() || matches!(stored, Dtype::Block(_));
        let auto = on_cpu && dtype == Dtype::Bf16 && quantised && int8_pays(self.isa()?, attention);
        let activations = match self.activations {
            ActivationChoice::Int8 if !quantised => return Err(UnusableDevice::Activations),
            ActivationChoice::Int8 => Activations::Int8,
            ActivationChoice::Auto if auto => Activations::Int8,
            ActivationChoice::Auto | ActivationChoice::Plain => Activations::Plain,
        };
        Ok(Products { dtype, quantisation, activations })
    }

    /// Returns the options of the backend of a device that was [found](Self::resolved), for a checkpoint as
    /// [`products`](Self::products) has it.
    pub fn backend_options(&self, stored: Dtype, attention: Mask) -> Result<BackendOptions, UnusableDevice> {
        match self.device {
            #[cfg(feature = "cuda")]
            DeviceChoice::Cuda(_) => {
                let Products { dtype, quantisation, .. } = self.products(stored, attention)?;
                Ok(BackendOptions::Cuda(CudaOptions { dtype, quantisation }))
            }
            #[cfg(not(feature = "cuda"))]
            DeviceChoice::Cuda(number) => Err(UnusableDevice::NoCuda(number)),
            DeviceChoice::Auto | DeviceChoice::Cpu => self.cpu_options(stored, attention).map(BackendOptions::Cpu),
        }
    }

    /// Returns the options of the CPU backend for a checkpoint as [`products`](Self::products) has it.
    pub fn cpu_options(&self, stored: Dtype, attention: Mask) -> Result<CpuOptions, UnusableDevice> {
        let Products { dtype, quantisation, activations } = self.products(stored, attention)?;
        Ok(CpuOptions { isa: self.isa()?, dtype, quantisation, activations, threads: self.thread_count()? })
    }
}

/// A GPU that was asked for, if it can be used.
#[cfg(not(feature = "cuda"))]
fn find_gpu(_: &DeviceOptions, number: usize) -> Result<DeviceChoice, UnusableDevice> {
    Err(UnusableDevice::NoCuda(number))
}

/// The best device that there is.
#[cfg(not(feature = "cuda"))]
fn find_any(_: &DeviceOptions) -> DeviceChoice {
    DeviceChoice::Cpu
}

/// A GPU that was asked for, if it can be used.
#[cfg(feature = "cuda")]
fn find_gpu(options: &DeviceOptions, number: usize) -> Result<DeviceChoice, UnusableDevice> {
    let found = Cuda::probe(&options.cuda).and_then(|cuda| cuda.card(number).map(drop));
    found.map(|()| DeviceChoice::Cuda(number)).map_err(|reason| UnusableDevice::NoGpu { number, reason })
}

/// The best device that there is, as far as it is proven to be one.
#[cfg(feature = "cuda")]
fn find_any(options: &DeviceOptions) -> DeviceChoice {
    find_proven(options, PROVEN_CARDS)
}

/// The first card if it is one of these and can be used, else the processor.
#[cfg(feature = "cuda")]
fn find_proven(options: &DeviceOptions, proven: &[&str]) -> DeviceChoice {
    if proven.is_empty() {
        return DeviceChoice::Cpu;
    }
    let found = Cuda::probe(&options.cuda).and_then(|cuda| {
        let is_proven = unproven(cuda.card(0)?, proven).is_none();
        if is_proven { cuda.check_kernels(0, &demask_cuda::sources()).map(|()| true) } else { Ok(false) }
    });
    match found {
        Ok(true) => DeviceChoice::Cuda(0),
        Ok(false) => DeviceChoice::Cpu,
        Err(reason) => {
            if !reason.is_absence() {
                tracing::warn!("the CPU is used, because {reason}");
            }
            DeviceChoice::Cpu
        }
    }
}

/// Returns the remark about a card on which the checks have not passed.
#[cfg(feature = "cuda")]
fn unproven(card: &Card, proven: &[&str]) -> Option<String> {
    let remark = || {
        let Card { number, name, .. } = card;
        format!(
            "device cuda:{number} ({name}) is experimental: not all checks have passed on it; device cpu is the default"
        )
    };
    (!proven.contains(&card.name.as_str())).then(remark)
}

impl WeightChoice {
    /// The integers that matrices are rounded to.
    pub fn quantisation(self) -> Option<Quantisation> {
        match self {
            Self::Plain => None,
            Self::Q8 => Some(Quantisation::Q8),
            Self::Q4 => Some(Quantisation::Q4),
        }
    }
}

impl fmt::Display for WeightChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "none",
            Self::Q8 => "q8",
            Self::Q4 => "q4",
        })
    }
}

impl FromStr for WeightChoice {
    type Err = UnusableDevice;

    fn from_str(text: &str) -> Result<Self, UnusableDevice> {
        match text {
            "none" => Ok(Self::Plain),
            "q8" => Ok(Self::Q8),
            "q4" => Ok(Self::Q4),
            found => {
                let known = "none, q8, q4; without it a GGUF file keeps its own types";
                Err(UnusableDevice::Unknown { what: "quantisation", found: found.into(), known })
            }
        }
    }
}

impl fmt::Display for ActivationChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Plain => "bf16",
            Self::Int8 => "int8",
        })
    }
}

impl FromStr for ActivationChoice {
    type Err = UnusableDevice;

    fn from_str(text: &str) -> Result<Self, UnusableDevice> {
        match text {
            "auto" => Ok(Self::Auto),
            // Their own name, and the one of what they are in mostly.
            "plain" | "bf16" => Ok(Self::Plain),
            "int8" => Ok(Self::Int8),
            found => Err(UnusableDevice::Unknown {
                what: "activation format",
                found: found.into(),
                known: "auto, plain (or bf16), int8",
            }),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = UnusableDevice;

    fn from_str(text: &str) -> Result<Self, UnusableDevice> {
        let number = |text: &str| text.parse().ok().map(Self::Cuda);
        match text {
            "auto" => Some(Self::Auto),
            "cpu" => Some(Self::Cpu),
            "cuda" => Some(Self::Cuda(0)),
            other => other.strip_prefix("cuda:").and_then(number),
        }
        .ok_or_else(|| UnusableDevice::Unknown {
            what: "device",
            found: text.into(),
            known: "auto, cpu, cuda, cuda:N",
        })
    }
}

impl FromStr for DtypeChoice {
    type Err = UnusableDevice;

    fn from_str(text: &str) -> Result<Self, UnusableDevice> {
        match text {
            "auto" => Ok(Self::Auto),
            "f32" => Ok(Self::F32),
            "bf16" => Ok(Self::Bf16),
            found => Err(UnusableDevice::Unknown { what: "dtype", found: found.into(), known: "auto, f32, bf16" }),
        }
    }
}

impl fmt::Display for DtypeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        })
    }
}

#[cfg(test)]
mod tests {
    use demask_tensor::BlockFormat;

    use super::*;

    fn activations(options: &DeviceOptions) -> Result<Activations, UnusableDevice> {
        options.products(Dtype::Bf16, Mask::Full).map(|products| products.activations)
    }

    #[test]
    fn integers_meet_quantised_weights_alone() {
        let plain = DeviceOptions { activations: ActivationChoice::Int8, ..DeviceOptions::default() };
        assert_eq!(activations(&plain), Err(UnusableDevice::Activations));
        for weights in [WeightChoice::Q8, WeightChoice::Q4] {
            assert_eq!(activations(&DeviceOptions { quantize: weights, ..plain.clone() }), Ok(Activations::Int8));
        }
    }

    #[test]
    fn integers_meet_the_blocks_of_a_quantised_file() {
        let asked = DeviceOptions { activations: ActivationChoice::Int8, ..DeviceOptions::default() };
        let stored = Dtype::Block(BlockFormat::Q4K);
        let expected = Products { activations: Activations::Int8, ..Products::plain(Dtype::Bf16) };
        assert_eq!(asked.products(stored, Mask::Full).unwrap(), expected);
        let rounded = DeviceOptions { quantize: WeightChoice::Q8, ..asked };
        assert_eq!(
            rounded.products(stored, Mask::Full).unwrap(),
            Products { quantisation: Some(Quantisation::Q8), ..expected }
        );
    }

    #[test]
    fn what_only_the_processor_has_decides_for_it() {
        let quantised = DeviceOptions { quantize: WeightChoice::Q8, ..DeviceOptions::default() };
        for options in [
            DeviceOptions { threads: Some(1), ..DeviceOptions::default() },
            DeviceOptions { tier: Some(Tier::Portable), ..DeviceOptions::default() },
            DeviceOptions { activations: ActivationChoice::Int8, ..quantised },
        ] {
            assert_eq!(options.resolved().unwrap().device, DeviceChoice::Cpu);
            let refused = DeviceOptions { device: DeviceChoice::Cuda(1), ..options }.resolved().unwrap_err();
            assert!(matches!(refused, UnusableDevice::CpuOnly { number: 1, .. }), "{refused}");
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn a_gpu_rounds_no_inputs_to_integers_by_itself() {
        let device = DeviceChoice::Cuda(0);
        let options = DeviceOptions { device, quantize: WeightChoice::Q8, ..DeviceOptions::default() };
        assert_eq!(activations(&options), Ok(Activations::Plain));
        let expected = CudaOptions { dtype: Dtype::Bf16, quantisation: Some(Quantisation::Q8) };
        assert_eq!(options.backend_options(Dtype::Bf16, Mask::Full), Ok(BackendOptions::Cuda(expected)));
    }

    #[test]
    fn activations_are_read_by_the_names_that_python_documents() {
        for name in ["plain", "bf16"] {
            assert_eq!(name.parse(), Ok(ActivationChoice::Plain));
        }
        for choice in [ActivationChoice::Auto, ActivationChoice::Plain, ActivationChoice::Int8] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert!("fp8".parse::<ActivationChoice>().unwrap_err().to_string().contains("auto, plain (or bf16), int8"));
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn a_card_that_nothing_has_run_on_is_not_taken_by_itself() {
        let card = Card { number: 0, name: "Card A".to_owned(), ..Card::default() };
        assert!(
            unproven(&card, &["Card B"]).unwrap().starts_with("device cuda:0 (Card A) is experimental: not all checks")
        );
        assert_eq!(unproven(&card, &["Card B", "Card A"]), None);
        // Whatever the machine has: no card is in the table.
        assert_eq!(PROVEN_CARDS, <[&str; 0]>::default());
        assert_eq!(DeviceOptions::default().resolved().unwrap().device, DeviceChoice::Cpu);
    }

    #[test]
    fn integers_are_the_default_where_they_pay() {
        assert_eq!(activations(&DeviceOptions::default()), Ok(Activations::Plain));
        for isa in Isa::available() {
            let options =
                DeviceOptions { quantize: WeightChoice::Q8, tier: Some(isa.tier()), ..DeviceOptions::default() };
            let expected = if int8_pays(isa, Mask::Full) { Activations::Int8 } else { Activations::Plain };
            assert_eq!(activations(&options), Ok(expected), "{}", isa.tier());
            let plain = DeviceOptions { activations: ActivationChoice::Plain, ..options.clone() };
            assert_eq!(activations(&plain), Ok(Activations::Plain));
            let exact = DeviceOptions { dtype: DtypeChoice::F32, ..options };
            assert_eq!(activations(&exact), Ok(Activations::Plain));
        }
        assert!(!int8_pays(Isa::available()[0], Mask::Causal), "portable");
    }

    #[test]
    fn a_quantised_file_has_the_default_of_quantised_weights() {
        let stored = Dtype::Block(BlockFormat::Q8_0);
        for isa in Isa::available() {
            let options =
                DeviceOptions { device: DeviceChoice::Cpu, tier: Some(isa.tier()), ..DeviceOptions::default() };
            for attention in [Mask::Full, Mask::blocks(4), Mask::Causal] {
                let expected = if int8_pays(isa, attention) { Activations::Int8 } else { Activations::Plain };
                assert_eq!(options.products(stored, attention).unwrap().activations, expected, "{}", isa.tier());
                let exact = DeviceOptions { dtype: DtypeChoice::F32, ..options.clone() };
                assert_eq!(exact.products(stored, attention).unwrap().activations, Activations::Plain);
            }
        }
    }

    #[test]
    fn beside_tile_products_integers_are_for_models_that_answer_token_by_token() {
        for isa in Isa::available().into_iter().filter(|isa| isa.tier() == Tier::Amx) {
            let found = [Mask::Causal, Mask::blocks(4), Mask::Context { context: 0, block: 4 }, Mask::Full]
                .map(|attention| int8_pays(isa, attention));
            assert_eq!(found, [true, false, false, false]);
        }
    }
}
