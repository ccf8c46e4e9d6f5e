//! Records whether there is a GPU, and if not, why: one sentence.
//!
//! [`Cuda`] is the proof that a driver is there and has begun; [`Cuda::open`] makes a [`Driver`] of one of its cards.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    driver::{self, Driver, Library},
    gpu::GpuError,
    modules,
    nvrtc::{self, Nvrtc, NvrtcError, Source},
    version::Version,
};

/// The name that the system finds the driver by.
const DRIVER: &str = "libcuda.so.1";

/// The least capability: the first with products of bf16 and copies to shared memory that run beside the work.
const LEAST_CAPABILITY: u32 = 80;

/// Folders and files to search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Places {
    /// The driver's library, if somebody names it.
    pub driver: Option<PathBuf>,
    /// The compiler's library, if somebody names it: then no other is tried.
    pub nvrtc: Option<PathBuf>,
    /// Folders of CUDA.
    pub toolkits: Vec<PathBuf>,
    /// Python environments.
    pub environments: Vec<PathBuf>,
    /// Folder of compiled kernels; none: they are not kept.
    pub kernels: Option<PathBuf>,
}

impl Places {
    /// Reads the places from the environment: `DEMASK_CUDA_DRIVER`, `DEMASK_NVRTC`, `CUDA_HOME`, `CUDA_PATH`,
    /// `VIRTUAL_ENV`, `CONDA_PREFIX`, `XDG_CACHE_HOME`, `HOME`.
    pub fn from_env() -> Self {
        Self::from_lookup(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// Reads the places from any table of variables.
    pub fn from_lookup(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let path = |name: &str| variable(name).map(PathBuf::from);
        let paths = |names: [&str; 2]| names.into_iter().filter_map(path).collect::<Vec<_>>();
        let usual = nvrtc::DEFAULT_FOLDERS.map(PathBuf::from);
        let home = || path("HOME").map(|home| home.join(".cache"));
        Self {
            driver: path("DEMASK_CUDA_DRIVER"),
            nvrtc: path("DEMASK_NVRTC"),
            toolkits: paths(["CUDA_HOME", "CUDA_PATH"]).into_iter().chain(usual).collect(),
            environments: paths(["VIRTUAL_ENV", "CONDA_PREFIX"]),
            kernels: path("XDG_CACHE_HOME").or_else(home).map(|cache| cache.join("demask/kernels")),
        }
    }

    /// The compiler, if there is one whose code a driver reads.
    pub(crate) fn nvrtc(&self, driver: Version) -> Result<Nvrtc, NvrtcError> {
        let candidates = match &self.nvrtc {
            Some(named) => vec![named.clone().into_os_string()],
            None => nvrtc::candidates(&self.toolkits, &self.environments),
        };
        Nvrtc::find(&candidates, driver)
    }
}

/// Reason why there is no GPU to use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoGpu {
    /// No driver.
    #[error("there is no NVIDIA driver: {reason}")]
    NoDriver {
        /// Library that was looked for.
        library: String,
        /// Reason in the system's words.
        reason: String,
    },
    /// A library that is something else.
    #[error("{library} is not NVIDIA's driver: it cannot tell its version ({symbol}); unset DEMASK_CUDA_DRIVER")]
    NotADriver {
        /// File of the library.
        library: String,
        /// Function that it lacks.
        symbol: &'static str,
    },
    /// A driver of the past.
    #[error("the NVIDIA driver is for CUDA {found}, {needed} or later is needed: update the driver ({library})")]
    OldDriver {
        /// File of the library.
        library: String,
        /// Version that it supports.
        found: Version,
        /// Version that is needed.
        needed: Version,
    },
    /// A driver that lacks something it should have.
    #[error("the NVIDIA driver for CUDA {version} lacks {symbol}: update or reinstall it ({library})")]
    IncompleteDriver {
        /// File of the library.
        library: String,
        /// Version that it supports.
        version: Version,
        /// Function that is missing.
        symbol: &'static str,
    },
    /// A driver without a device.
    #[error("the NVIDIA driver (CUDA {version}) finds no GPU: look at nvidia-smi and at CUDA_VISIBLE_DEVICES")]
    NoDevice {
        /// Version that the driver supports.
        version: Version,
    },
    /// A device that is not there.
    #[error("there is no GPU number {number}, the NVIDIA driver finds {count}, counted from 0")]
    NoSuchDevice {
        /// Number that was requested.
        number: usize,
        /// Number of GPUs.
        count: usize,
    },
    /// A card that is too old.
    #[error(
        "{name} has compute capability {}.{}, 8.0 or later is needed (Ampere)", capability / 10, capability % 10
    )]
    OldCard {
        /// Name of the card.
        name: String,
        /// Capability of the card, 10 * major + minor.
        capability: u32,
    },
    /// Kernels that are not compiled, and nobody to compile them.
    #[error(
        "the kernels are not compiled for {card} yet, and there is no compiler for it: {reason}; install one (pip \
         install nvidia-cuda-nvrtc-cu12) and activate its environment, or name libnvrtc with DEMASK_NVRTC"
    )]
    NoCompiler {
        /// The card.
        card: String,
        /// Reason in the compiler library's error.
        reason: NvrtcError,
    },
    /// Kernels that the compiler refuses.
    #[error("the kernels cannot be compiled: {0}")]
    Compiler(NvrtcError),
    /// The driver fails.
    #[error("the GPU cannot be used: {0}")]
    Fails(GpuError),
}

impl NoGpu {
    /// Reports whether this is a machine without a GPU, and not one whose GPU cannot be used.
    pub fn is_absence(&self) -> bool {
        match self {
            Self::NoDriver { library, .. } => library == DRIVER,
            Self::NoDevice { .. } => true,
            _ => false,
        }
    }
}

/// Facts about a card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Card {
    /// Number of the card.
    pub number: usize,
    /// Name of the card.
    pub name: String,
    /// Compute capability, as 10 * major + minor.
    pub capability: u32,
    /// Multiprocessors.
    pub processors: u32,
    /// Bytes of shared memory that a block may have.
    pub shared: u32,
    /// Bytes of memory in all.
    pub memory: u64,
}

/// A driver that has begun, and the cards that it has: at least one.
pub struct Cuda {
    library: Arc<Library>,
    places: Places,
    cards: Vec<Card>,
}

impl Cuda {
    /// Looks for a driver and its cards.
    pub fn probe(places: &Places) -> Result<Self, NoGpu> {
        let file = places.driver.clone().map_or_else(|| OsString::from(DRIVER), PathBuf::into_os_string);
        let library = Library::load(&file)?;
        let cards = driver::cards(&library)?;
        if cards.is_empty() {
            return Err(NoGpu::NoDevice { version: library.version() });
        }
        Ok(Self { library: Arc::new(library), places: places.clone(), cards })
    }

    /// The version of CUDA that the driver is for.
    pub fn version(&self) -> Version {
        self.library.version()
    }

    /// All cards, those that are too old included.
    pub fn cards(&self) -> &[Card] {
        &self.cards
    }

    /// A card that kernels run on.
    pub fn card(&self, number: usize) -> Result<&Card, NoGpu> {
        let count = self.cards.len();
        let card = self.cards.get(number).ok_or(NoGpu::NoSuchDevice { number, count })?;
        if card.capability < LEAST_CAPABILITY {
            return Err(NoGpu::OldCard { name: card.name.clone(), capability: card.capability });
        }
        Ok(card)
    }

    /// The compiler that would be used.
    pub fn nvrtc(&self) -> Result<Nvrtc, NvrtcError> {
        self.places.nvrtc(self.version())
    }

    /// Folder of compiled kernels, if they are kept.
    pub fn kernel_folder(&self) -> Option<&Path> {
        self.places.kernels.as_deref()
    }

    /// Reports whether kernels for a card are in the cache, or can be compiled.
    pub fn check_kernels(&self, number: usize, kernels: &[Source]) -> Result<(), NoGpu> {
        modules::check(self.card(number)?, self.version(), &self.places, kernels)
    }

    /// Opens a card. Kernels come from the cache, or are compiled. `remark` gets warnings about that which are no
    /// errors.
    pub fn open(&self, number: usize, kernels: &[Source], remark: &mut dyn FnMut(&str)) -> Result<Driver, NoGpu> {
        let card = self.card(number)?;
        let images = modules::images(card, self.version(), &self.places, kernels, remark)?;
        Driver::open(&self.library, card.clone(), &images).map_err(NoGpu::Fails)
    }
}
