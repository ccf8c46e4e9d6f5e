//! Weights on their way from files to a device.

use std::time::Instant;

use demask_checkpoint::{Checkpoint, ModelFiles, StoredWeights};
use demask_cpu::CpuBackend;
#[cfg(feature = "cuda")]
use demask_cuda::{CudaBackend, gpu::Gpu};
use demask_model::{AdapterUse, LoadError, Runner, WeightSource};
use demask_step::{Mask, SequenceLimits, SequenceSpec};
use demask_tensor::Backend;

#[cfg(feature = "cuda")]
use crate::{BackendOptions, DeviceChoice, UnusableDevice, footprint::workspace_with};
use crate::{
    DeviceOptions, Footprint, MatrixFormats, Model, ModelError, ModelInfo, Opened, TooLarge, WeightChoice,
    model::LoadedNetwork,
};

/// Rows that a joined step may have unless the caller says otherwise: beyond this, products are bound by operations
/// and more rows gain nothing.
pub const DEFAULT_ROW_BUDGET: usize = 512;

/// Progress of the loading of a model.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LoadProgress<'a> {
    /// The model, or its guide.
    pub name: &'a str,
    /// Bytes read.
    pub done: u64,
    /// Bytes to read.
    pub total: u64,
}

/// Sees how far loading is, and returns whether to go on.
pub type LoadObserver<'a> = dyn FnMut(LoadProgress<'_>) -> bool + 'a;

impl Opened {
    /// Bytes that it needs on a device while sequences with these needs are open.
    pub fn footprint(&self, device: &DeviceOptions, sequences: &[SequenceLimits]) -> Result<Footprint, ModelError> {
        self.own().footprint(device, sequences)
    }

    /// Matrices whose blocks take more memory on a device than in their file, because no kernel there has their format. None, if
    /// the device is to round all weights anyway. Its guides' follow.
    pub fn widened(&self, device: &DeviceOptions) -> Result<Vec<MatrixFormats>, ModelError> {
        let mut widened = Vec::new();
        for one in self.all() {
            let options = device.backend_options(one.source.main_dtype(), one.attention)?;
            if device.quantize != WeightChoice::Plain {
                return Ok(Vec::new());
            }
            let kept = MatrixFormats::of(one.info.spec(), &one.source.stored(), &options);
            let kept = kept.map_err(|error| one.failed(error.into()))?;
            widened.extend(kept.into_iter().filter(MatrixFormats::widened));
        }
        Ok(widened)
    }

    /// The model and its guides.
    fn all(&self) -> impl Iterator<Item = Loading<'_>> {
        let guides = self.info.guides.iter().zip(&self.guides);
        let guides = guides.map(|(guide, source)| Loading { info: &guide.info, source, ..self.own() });
        std::iter::once(self.own()).chain(guides)
    }

    fn own(&self) -> Loading<'_> {
        Loading { info: &self.info, source: &self.source, attention: self.info.facts().mask }
    }

    /// Loads the weights, its guides' too, if there is memory for them and for the sequences that will be open at the same
    /// time: those of the model on network 0, those of a guide, whichever it is, on network 1.
    ///
    /// # Errors
    /// If the device cannot be used, or has no room for them.
    pub fn load(
        self,
        device: &DeviceOptions,
        needs: &[SequenceSpec],
        progress: &mut LoadObserver<'_>,
    ) -> Result<Model, ModelError> {
        let mut networks = Vec::new();
        for (index, one) in self.all().enumerate() {
            let needs = needs.iter().filter(|need| need.network == index.min(1));
            let sequences: Vec<SequenceLimits> = needs.map(|need| need.limits.clone()).collect();
            networks.push(one.load(device, &sequences, progress)?);
        }
        Model::of(self.info, networks)
    }

    /// Loads the weights to a backend, which refuses weights for which it has no memory. Joined steps may have up to `row_budget`
    /// rows. `progress` as for [`Opened::load`].
    pub fn load_on<B: Backend + 'static>(
        self,
        backend: B,
        row_budget: Option<usize>,
        progress: &mut LoadObserver<'_>,
    ) -> Result<Model, ModelError> {
        let network = self.own().load_on(backend, row_budget, progress)?;
        Model::of(self.info, vec![network])
    }
}

/// Weights of a model or a guide on their way to a device.
struct Loading<'a> {
    info: &'a ModelInfo,
    source: &'a StoredWeights,
    /// The model's attention mask, of a guide that of the model that it judges.
    attention: Mask,
}

impl Loading<'_> {
    fn footprint(&self, device: &DeviceOptions, sequences: &[SequenceLimits]) -> Result<Footprint, ModelError> {
        let spec = self.info.spec();
        let options = device.backend_options(self.source.main_dtype(), self.attention)?;
        let row_budget = device.row_budget.unwrap_or(DEFAULT_ROW_BUDGET);
        Footprint::of_files(spec, self.source, &options, row_budget, sequences)
            .map_err(|error| self.failed(error.into()))
    }

    fn load(
        &self,
        device: &DeviceOptions,
        sequences: &[SequenceLimits],
        progress: &mut LoadObserver<'_>,
    ) -> Result<LoadedNetwork, ModelError> {
        let device = &device.resolved()?;
        self.check_merging(device)?;
        match device.device {
            #[cfg(feature = "cuda")]
            DeviceChoice::Cuda(number) => self.load_on_gpu(device, number, sequences, progress),
            _ => {
                self.check_memory(device, sequences, "memory", demask_cpu::available_memory())?;
                let backend = CpuBackend::new(device.cpu_options(self.source.main_dtype(), self.attention)?);
                self.load_on(backend, device.row_budget, progress)
            }
        }
    }

    #[cfg(feature = "cuda")]
    fn load_on_gpu(
        &self,
        device: &DeviceOptions,
        number: usize,
        sequences: &[SequenceLimits],
        progress: &mut LoadObserver<'_>,
    ) -> Result<LoadedNetwork, ModelError> {
        let stored = self.source.main_dtype();
        let BackendOptions::Cuda(options) = device.backend_options(stored, self.attention)? else {
            return Err(UnusableDevice::NoCuda(number).into());
        };
        let spec = self.info.spec();
        let row_budget = device.row_budget.unwrap_or(DEFAULT_ROW_BUDGET);
        options
            .check(&workspace_with(spec, self.source.adapter_facts(), row_budget, sequences), spec.layers)
            .map_err(|unfit| ModelError::Unfit { name: self.info.name().to_owned(), number, unfit })?;
        let gpu = device.open_gpu(number)?;
        self.check_memory(device, sequences, &format!("memory on {}", gpu.describe()), gpu.available())?;
        let card = gpu.card().clone();
        let network = self.load_on(CudaBackend::new(gpu, options), device.row_budget, progress)?;
        DeviceOptions::tell_experimental(&card);
        Ok(network)
    }

    fn load_on<B: Backend + 'static>(
        &self,
        backend: B,
        row_budget: Option<usize>,
        progress: &mut LoadObserver<'_>,
    ) -> Result<LoadedNetwork, ModelError> {
        let started = Instant::now();
        let (spec, total) = (self.info.spec(), self.source.stored_bytes());
        let name = self.info.name();
        tracing::debug!(%name, bytes = total, parameters = spec.parameters(), "loading weights");
        let mut read = |done| progress(LoadProgress { name, done, total });
        let weights =
            demask_model::Weights::load(spec, self.source, &backend, &mut read).map_err(|error| self.failed(error))?;
        let row_budget = row_budget.unwrap_or(DEFAULT_ROW_BUDGET);
        let runner = Runner::new(spec.clone(), weights, backend, row_budget)
            .map_err(|error| ModelError::Memory { name: name.to_owned(), error })?;
        Ok((Box::new(runner), started.elapsed()))
    }

    /// Refuses to add an adapter into weights that are to be integers.
    fn check_merging(&self, device: &DeviceOptions) -> Result<(), ModelError> {
        let merges = self.source.adapter_use() == Some(AdapterUse::Merged);
        if merges && device.quantize != WeightChoice::Plain {
            return Err(ModelError::MergeIntoIntegers { name: self.info.name().to_owned(), quantize: device.quantize });
        }
        Ok(())
    }

    fn check_memory(
        &self,
        device: &DeviceOptions,
        sequences: &[SequenceLimits],
        memory: &str,
        available: u64,
    ) -> Result<(), ModelError> {
        // What can fail does so here, for the choice that was made; another choice fails no differently.
        self.footprint(device, sequences)?;
        let needs = |weights| {
            self.footprint(&DeviceOptions { quantize: weights, ..device.clone() }, sequences).unwrap_or_default()
        };
        Ok(TooLarge::check(self.info.name(), memory, device.quantize, needs, available)?)
    }

    fn failed(&self, error: LoadError) -> ModelError {
        ModelError::Load { name: self.info.name().to_owned(), error }
    }
}

impl Model {
    /// Opens and loads a checkpoint.
    ///
    /// # Errors
    /// If its files cannot be used, or the device.
    pub fn load(
        files: ModelFiles,
        device: &DeviceOptions,
        progress: &mut LoadObserver<'_>,
    ) -> Result<Self, ModelError> {
        Opened::open(files)?.load(device, &[], progress)
    }

    /// Loads an opened checkpoint.
    ///
    /// # Errors
    /// If its weights or the device cannot be used.
    pub fn from_checkpoint(
        checkpoint: Checkpoint,
        device: &DeviceOptions,
        progress: &mut LoadObserver<'_>,
    ) -> Result<Self, ModelError> {
        Opened::of(checkpoint).load(device, &[], progress)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_guide_is_loaded_for_the_rows_of_the_model_that_it_judges() {
        let open = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo").join(name);
            Opened::open(ModelFiles::directory(path).unwrap()).unwrap()
        };
        let attentions = |opened: &Opened| opened.all().map(|one| one.attention).collect::<Vec<_>>();
        assert_eq!(attentions(&open("demo-qwen")), [Mask::Causal]);
        assert_eq!(attentions(&open("demo-llada").guided_by(open("demo-qwen")).unwrap()), [Mask::Full; 2]);
    }
}
