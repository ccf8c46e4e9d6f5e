//! Devices that tests run networks on: tiers of the processor, and the kernels of GPUs.

use std::{fmt, path::Path};

use demask::{DeviceOptions, ModelByHand, ModelError, Opened};
use demask::{DtypeChoice, Model};
use demask_checkpoint::ModelFiles;
use demask_cpu::isa::Isa;
use demask_cuda::backend::{CudaBackend, CudaOptions};
use demask_cuda_emulator::{Emulator, Schedule};
use demask_tensor::{Backend, Dtype};

/// Device that runs a network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Device {
    /// The processor.
    Cpu(Isa),
    /// A GPU's kernels, played on the processor.
    EmulatedGpu,
}

impl From<Isa> for Device {
    fn from(isa: Isa) -> Self {
        Self::Cpu(isa)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu(isa) => isa.tier().name(),
            Self::EmulatedGpu => "emulated GPU",
        })
    }
}

/// The GPU's backend without a GPU.
pub fn emulated(options: CudaOptions) -> impl Backend + 'static {
    CudaBackend::new(Emulator::new(Schedule::Forward).unwrap(), options)
}

impl Device {
    /// Loads the checkpoint of a directory.
    pub fn load(self, directory: &Path, dtype: DtypeChoice) -> Result<ModelByHand, ModelError> {
        self.load_files(ModelFiles::directory(directory)?, dtype)
    }

    /// Loads a checkpoint.
    pub fn load_files(self, files: ModelFiles, dtype: DtypeChoice) -> Result<ModelByHand, ModelError> {
        let model = match self {
            Self::Cpu(isa) => {
                let tier = Some(isa.tier());
                let device = DeviceOptions { dtype, tier, threads: Some(2), ..DeviceOptions::default() };
                Model::load(files, &device, &mut |_| true)
            }
            Self::EmulatedGpu => {
                let dtype = if dtype == DtypeChoice::F32 { Dtype::F32 } else { Dtype::Bf16 };
                let backend = emulated(CudaOptions { dtype, quantisation: None });
                Opened::open(files)?.load_on(backend, None, &mut |_| true)
            }
        };
        Ok(model?.by_hand().unwrap_or_else(|error| panic!("{error}")))
    }
}
