//! A model: what turns prompts into sessions, and what runs them.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use demask_checkpoint::{
    ChatTemplate, Checkpoint, CheckpointError, CheckpointText, Family, ModelFiles, StoredWeights, Tokenizer, Warning,
};
use demask_cpu::CpuBackend;
#[cfg(feature = "cuda")]
use demask_cuda::{CudaBackend, Unfit, gpu::Gpu};
use demask_decode::ModelFacts;
use demask_engine::{Engine, EngineError, Faults, NetworkId, Request, Scheduler};
#[cfg(feature = "cuda")]
use demask_model::workspace_shape;
use demask_model::{ArchSpec, Inspect, LoadError, Role, Runner};
use demask_step::{MemoryMeter, Need, OutOfMemory, SequenceNeeds, TokenId};
use demask_tensor::{Backend, Dtype};

#[cfg(feature = "cuda")]
use crate::{BackendOptions, DeviceChoice};
use crate::{
    DeviceOptions, Error, Footprint, Handle, KeptMatrices, Options, Prompt, TokenTexts, TooLarge, UnusableDevice,
    WeightChoice, guide::Bridge,
};

/// Rows that a joined step may have unless the caller says otherwise: beyond this, products are bound by operations
/// and more rows gain nothing.
pub const DEFAULT_ROW_BUDGET: usize = 512;

/// A model that cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The checkpoint is not usable.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The device is not usable.
    #[error(transparent)]
    Device(#[from] UnusableDevice),
    /// The weights cannot be packed.
    #[error("{name} cannot be loaded: {error}")]
    Load {
        /// The model.
        name: String,
        /// Error of the loader.
        error: LoadError,
    },
    /// The system has no thread for its engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Error: the model needs more memory than there is, found before it was loaded.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The kernels of a device cannot take it.
    #[cfg(feature = "cuda")]
    #[error("{name} cannot run on cuda:{number}: {unfit}")]
    Unfit {
        /// The model.
        name: String,
        /// Number of the GPU.
        number: usize,
        /// Feature that the GPU lacks.
        unfit: Unfit,
    },
    /// No memory.
    #[error("{name} does not fit: {error}")]
    Memory {
        /// The model.
        name: String,
        /// Error with the missing amount.
        error: OutOfMemory,
    },
}

impl ModelError {
    /// Returns whether the call itself was wrong, not its execution.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Checkpoint(error) => error.is_usage(),
            Self::Device(error) => error.is_usage(),
            _ => false,
        }
    }
}

/// Lengths that a model works best with, where it differs from what the engine would choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Defaults {
    /// Positions of a block.
    pub block_length: Option<usize>,
}

/// Parts of a model but its weights: enough to turn a prompt into a session.
pub struct ModelInfo {
    pub(crate) text: CheckpointText,
    facts: ModelFacts,
    /// Texts of the control tokens.
    controls: Vec<String>,
    defaults: Defaults,
    /// Memory for K/V beside the weights, where there is a machine to run on; none of a shape alone.
    pub(crate) free_memory: Option<u64>,
    /// Guides, in the order in which they were added.
    pub(crate) guides: Vec<Guide>,
    /// Place where it runs, once its weights are loaded.
    pub(crate) machine: OnceLock<Machine>,
    /// The texts of the vocabulary, once a trace needs them.
    pub(crate) texts: OnceLock<Arc<TokenTexts>>,
}

/// A guide of a model.
pub(crate) struct Guide {
    /// The name that it was given; without one it is called as its model.
    name: Option<String>,
    pub(crate) info: Arc<ModelInfo>,
    pub(crate) bridge: Bridge,
}

impl Guide {
    /// Returns the name that requests choose it by.
    pub(crate) fn called(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.info.name())
    }
}

/// Place where a model runs.
pub(crate) struct Machine {
    pub(crate) network: NetworkId,
    load_time: Duration,
    /// Device, tier, threads, element type.
    pub(crate) device: String,
    /// Bytes of its packed weights.
    weights: usize,
    /// Rows that one forward may have.
    pub(crate) rows: usize,
    /// Reads what it takes of a device of its own.
    pub(crate) meter: Option<Arc<dyn MemoryMeter>>,
}

impl ModelInfo {
    /// Opens a checkpoint and leaves its weights alone.
    pub fn open(files: ModelFiles) -> Result<Self, ModelError> {
        Ok(Opened::open(files)?.into_info())
    }

    /// Returns two tokens that are no masks and end nothing; fewer only if there are no more.
    pub fn ordinary_tokens(&self) -> [TokenId; 2] {
        let ordinary = |token: &TokenId| Some(*token) != self.facts.mask_id && !self.end_ids().contains(token);
        let mut tokens = (0..self.facts.vocab as TokenId).filter(ordinary);
        let first = tokens.next().unwrap_or(0);
        [first, tokens.next().unwrap_or(first)]
    }

    /// Opens the model that is part of this library.
    #[cfg(feature = "demo")]
    pub fn demo() -> Result<Self, ModelError> {
        Ok(Opened::demo()?.into_info())
    }

    /// Makes that of a checkpoint without weights.
    pub fn of(text: CheckpointText) -> Self {
        let special = &text.special;
        let named = [special.mask, special.eos, special.turn_end, special.bos, special.pad];
        let named = named.into_iter().flatten().chain(special.stop.iter().copied());
        let controls = text.tokenizer.as_ref().map(|tokenizer| tokenizer.controls(named, &text.template));
        let (facts, controls) = (facts(&text), controls.unwrap_or_default());
        Self {
            facts,
            controls,
            text,
            defaults: Defaults::default(),
            free_memory: None,
            guides: Vec::new(),
            machine: OnceLock::new(),
            texts: OnceLock::new(),
        }
    }

    /// The model's name, for people.
    pub fn name(&self) -> &str {
        &self.text.name
    }

    /// The model's family.
    pub fn family(&self) -> &'static Family {
        self.text.family
    }

    /// Returns the architecture.
    pub fn spec(&self) -> &ArchSpec {
        &self.text.spec
    }

    /// Returns the facts that decoding needs.
    pub fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    /// Lengths it works best with.
    pub fn defaults(&self) -> Defaults {
        self.defaults
    }

    /// Returns what about the checkpoint is odd but not wrong.
    pub fn warnings(&self) -> &[Warning] {
        &self.text.warnings
    }

    /// The tokenizer, or the error that says what to do without.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.text.tokenizer.as_deref().ok_or_else(|| Error::NoTokenizer { model: self.name().to_owned() })
    }

    /// The chat template.
    pub fn template(&self) -> &ChatTemplate {
        &self.text.template
    }

    /// Texts of the control tokens, which no message spells.
    pub(crate) fn controls(&self) -> &[String] {
        &self.controls
    }

    /// Duration of the loading, its guides' included.
    pub fn load_time(&self) -> Duration {
        let own = self.machine.get().map_or(Duration::ZERO, |machine| machine.load_time);
        own + self.guides.iter().map(|guide| guide.info.load_time()).sum::<Duration>()
    }

    /// Returns the device that runs it: device, tier, threads, element type. Empty before it is loaded.
    pub fn device(&self) -> &str {
        self.machine.get().map_or("", |machine| &machine.device)
    }

    /// Returns the bytes of its packed weights, its guides' not included; 0 before it is loaded.
    pub fn weight_bytes(&self) -> usize {
        self.machine.get().map_or(0, |machine| machine.weights)
    }

    /// Notes that its network has another name.
    pub(crate) fn move_to(&mut self, network: NetworkId) {
        if let Some(machine) = self.machine.get_mut() {
            machine.network = network;
        }
    }

    /// Puts a guide beside it, called as its model.
    pub fn add_guide(&mut self, guide: Arc<Self>, bridge: Bridge) {
        self.guides.push(Guide { name: None, info: guide, bridge });
    }

    /// Returns what turns prompts into sessions of each of its networks: its own, and its first guide's.
    pub fn infos(&self) -> Vec<&Self> {
        std::iter::once(self).chain(self.guides.first().map(|guide| &*guide.info)).collect()
    }

    /// Returns the names that requests choose its guides by.
    pub fn guides(&self) -> Vec<&str> {
        self.guides.iter().map(Guide::called).collect()
    }

    /// Tokens that end an answer.
    pub fn end_ids(&self) -> &[TokenId] {
        &self.text.special.stop
    }

    /// The end-of-text token alone (LLaDA's `logits_eos_inf` speaks of this one only).
    pub(crate) fn eos_ids(&self) -> Result<Vec<TokenId>, Error> {
        let eos = self.text.special.eos;
        eos.map(|eos| vec![eos]).ok_or_else(|| Error::NoEnd { model: self.name().to_owned() })
    }
}

/// A model whose files are open and checked, and whose weights are still where they were; perhaps with guides.
pub struct Opened {
    info: ModelInfo,
    source: StoredWeights,
    /// Weights of the guides.
    guides: Vec<StoredWeights>,
}

/// A model without its weights, the type of each tensor, and the type of most of them.
pub type Stored = (Arc<ModelInfo>, BTreeMap<Role, Dtype>, Dtype);

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
    /// Opens files.
    pub fn open(files: ModelFiles) -> Result<Self, ModelError> {
        Ok(Self::of(Checkpoint::open(files)?))
    }

    /// The model that is part of this library.
    #[cfg(feature = "demo")]
    pub fn demo() -> Result<Self, ModelError> {
        let mut opened = Self::open(crate::demo::files())?;
        opened.info.defaults = crate::demo::DEFAULTS;
        Ok(opened)
    }

    fn of(checkpoint: Checkpoint) -> Self {
        let (source, text) = checkpoint.release_weights();
        // What is left once the weights are there, until they are and it is known.
        let free_memory = Some(demask_cpu::available_memory().saturating_sub(source.stored_bytes()));
        Self { info: ModelInfo { free_memory, ..ModelInfo::of(text) }, source, guides: Vec::new() }
    }

    /// Puts a guide beside it: an autoregressive model that decoder `guided` lets judge drafts. It is called as its model.
    ///
    /// # Errors
    /// If the two do not go together, or there is a guide of that name.
    pub fn guided_by(self, guide: Self) -> Result<Self, Error> {
        self.with_guide(None, guide)
    }

    /// Puts a guide beside it that requests choose by this name.
    ///
    /// # Errors
    /// As [`guided_by`](Self::guided_by).
    pub fn guided_by_named(self, name: impl Into<String>, guide: Self) -> Result<Self, Error> {
        self.with_guide(Some(name.into()), guide)
    }

    fn with_guide(mut self, name: Option<String>, guide: Self) -> Result<Self, Error> {
        let bridge = Bridge::between(&self.info, &guide.info)?;
        let Self { info, source, .. } = guide;
        let guide = Guide { name, info: Arc::new(info), bridge };
        if self.info.guides.iter().any(|other| other.called() == guide.called()) {
            return Err(Error::GuideTwice { name: guide.called().to_owned() });
        }
        self.info.guides.push(guide);
        self.guides.push(source);
        Ok(self)
    }

    /// Returns its first guide, and where its weights are.
    pub(crate) fn guide(&self) -> Option<(&ModelInfo, &StoredWeights)> {
        self.info.guides.first().map(|guide| &*guide.info).zip(self.guides.first())
    }

    /// Gets a prompt ready to be answered, with the guide if the decoder wants one. What it needs says how much memory the
    /// model must leave free, and once loaded the model runs it as it is.
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens, or the options contradict each other or the model.
    pub fn prepare(&self, prompt: &Prompt, options: &Options) -> Result<Request, Error> {
        self.info.prepare(prompt, options)
    }

    /// Returns all of the model but the weights.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Leaves the weights behind: of the model and its first guide what turns prompts into sessions, the type of each tensor
    /// and of most of them. Their lengths are the same on every machine.
    pub fn into_parts(self) -> Vec<Stored> {
        let Self { mut info, source, guides } = self;
        info.free_memory = None;
        let guide = info.guides.first().map(|guide| Arc::clone(&guide.info));
        let infos = std::iter::once(Arc::new(info)).chain(guide);
        let sources = std::iter::once(source).chain(guides);
        infos.zip(sources).map(|(info, source)| (info, source.stored(), source.main_dtype())).collect()
    }

    pub(crate) fn source(&self) -> &StoredWeights {
        &self.source
    }

    /// Gives up the weights.
    pub fn into_info(self) -> ModelInfo {
        self.info
    }

    /// Bytes that it needs on a device while sequences with these needs are open.
    pub fn footprint(&self, device: &DeviceOptions, sequences: &[SequenceNeeds]) -> Result<Footprint, ModelError> {
        Loading { info: &self.info, source: &self.source }.footprint(device, sequences)
    }

    /// Matrices whose blocks take more memory on a device than in their file, because no kernel there has their format. None, if
    /// the device is to round all weights anyway. Its guides' follow.
    pub fn widened(&self, device: &DeviceOptions) -> Result<Vec<KeptMatrices>, ModelError> {
        let mut widened = Vec::new();
        for one in self.all() {
            let options = device.backend_options(one.source.main_dtype())?;
            if device.quantize != WeightChoice::Plain {
                return Ok(Vec::new());
            }
            let kept = KeptMatrices::of(one.info.spec(), &one.source.stored(), &options);
            let kept = kept.map_err(|error| one.failed(error.into()))?;
            widened.extend(kept.into_iter().filter(KeptMatrices::widened));
        }
        Ok(widened)
    }

    /// The model and its guides.
    fn all(&self) -> impl Iterator<Item = Loading<'_>> {
        let guides = self.info.guides.iter().zip(&self.guides);
        let guides = guides.map(|(guide, source)| Loading { info: &guide.info, source });
        std::iter::once(Loading { info: &self.info, source: &self.source }).chain(guides)
    }

    /// Loads the weights, its guides' too, if there is memory for them and for the sequences that will be open at the same
    /// time: those of the model on network 0, those of a guide, whichever it is, on network 1.
    ///
    /// # Errors
    /// If the device cannot be used, or has no room for them.
    pub fn load(
        self,
        device: &DeviceOptions,
        needs: &[Need],
        progress: &mut LoadObserver<'_>,
    ) -> Result<Model, ModelError> {
        let mut networks = Vec::new();
        for (index, one) in self.all().enumerate() {
            let needs = needs.iter().filter(|need| need.network == index.min(1));
            let sequences: Vec<SequenceNeeds> = needs.map(|need| need.sequence.clone()).collect();
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
        let own = Loading { info: &self.info, source: &self.source };
        let network = own.load_on(backend, row_budget, progress)?;
        Model::of(self.info, vec![network])
    }
}

/// A network that was loaded, and the time that it took.
pub(crate) type LoadedNetwork = (Box<dyn Inspect>, Duration);

/// Weights of a model or a guide on their way to a device.
struct Loading<'a> {
    info: &'a ModelInfo,
    source: &'a StoredWeights,
}

impl Loading<'_> {
    fn footprint(&self, device: &DeviceOptions, sequences: &[SequenceNeeds]) -> Result<Footprint, ModelError> {
        let spec = self.info.spec();
        let options = device.backend_options(self.source.main_dtype())?;
        let row_budget = device.row_budget.unwrap_or(DEFAULT_ROW_BUDGET);
        Footprint::of(spec, &self.source.stored(), &options, row_budget, sequences)
            .map_err(|error| self.failed(error.into()))
    }

    fn load(
        &self,
        device: &DeviceOptions,
        sequences: &[SequenceNeeds],
        progress: &mut LoadObserver<'_>,
    ) -> Result<LoadedNetwork, ModelError> {
        let device = &device.found()?;
        match device.device {
            #[cfg(feature = "cuda")]
            DeviceChoice::Cuda(number) => self.load_on_gpu(device, number, sequences, progress),
            _ => {
                self.check_memory(device, sequences, "memory", demask_cpu::available_memory())?;
                let backend = CpuBackend::new(device.cpu_options(self.source.main_dtype())?);
                self.load_on(backend, device.row_budget, progress)
            }
        }
    }

    #[cfg(feature = "cuda")]
    fn load_on_gpu(
        &self,
        device: &DeviceOptions,
        number: usize,
        sequences: &[SequenceNeeds],
        progress: &mut LoadObserver<'_>,
    ) -> Result<LoadedNetwork, ModelError> {
        let stored = self.source.main_dtype();
        let BackendOptions::Cuda(options) = device.backend_options(stored)? else {
            return Err(UnusableDevice::NoCuda(number).into());
        };
        let spec = self.info.spec();
        let row_budget = device.row_budget.unwrap_or(DEFAULT_ROW_BUDGET);
        options
            .check(&workspace_shape(spec, row_budget, sequences), spec.layers)
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

    fn check_memory(
        &self,
        device: &DeviceOptions,
        sequences: &[SequenceNeeds],
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

/// A model, ready to answer: the engine that its requests run on, and a [`Handle`] to it, whose methods are the model's.
/// [`handle`](Self::handle) returns one for another thread. Dropped, it gives up all requests and ends its engine.
pub struct Model {
    handle: Handle,
    engine: Engine<dyn Inspect>,
}

impl Deref for Model {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Model {
    /// Returns a handle, which may be cloned and sent anywhere.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Takes no requests from now on, finishes those that were submitted, and ends the engine.
    pub fn drain(self) {
        self.engine.drain();
    }

    /// Takes no requests from now on, gives up those that were submitted, and ends the engine. So does dropping it.
    pub fn shut_down(self) {
        drop(self.engine);
    }
}

// Behind the face: what the programs of this project need of a model.
#[doc(hidden)]
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

    /// Puts networks, the model's own and its guides', to work.
    fn of(info: ModelInfo, networks: Vec<LoadedNetwork>) -> Result<Self, ModelError> {
        let mut scheduler = Scheduler::new();
        for (index, (network, load_time)) in networks.into_iter().enumerate() {
            let (device, weights, meter) = (network.describe(), network.weight_bytes(), network.memory_meter());
            let (rows, network) = (network.rows().capacity, scheduler.add(network));
            let machine = Machine { network, load_time, device, weights, rows, meter };
            let at = index.checked_sub(1).map_or(&info, |guide| &*info.guides[guide].info);
            let _ = at.machine.set(machine);
        }
        Self::on(info, scheduler)
    }

    /// Gives a scheduler with a model's networks a thread.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn on(mut info: ModelInfo, mut scheduler: Scheduler<dyn Inspect>) -> Result<Self, ModelError> {
        limit_memory(&mut scheduler);
        let own = info.machine.get().and_then(|machine| scheduler.network(machine.network));
        if let Some(network) = own {
            info.free_memory = Some(network.available().1);
            info.facts.free_rows = network.rows().free;
        }
        let engine = Engine::start(scheduler)?;
        let handle = Handle::new(Arc::new(info), engine.handle());
        Ok(Self { handle, engine })
    }

    /// Sets the faults that are injected before the forwards and openings of its network from now on, for tests.
    #[must_use]
    pub fn with_faults(self, faults: Faults) -> Self {
        let own = self.info().machine.get().map(|machine| machine.network);
        let _ = self.engine().with_scheduler(move |scheduler| own.map(|own| scheduler.set_faults(own, faults)));
        self
    }

    /// Ends its engine, and returns the scheduler with its networks: to be driven by hand, one forward at a time.
    ///
    /// # Errors
    /// If the engine has failed.
    pub fn into_scheduler(self) -> Result<(Arc<ModelInfo>, Scheduler<dyn Inspect>), Error> {
        let Self { handle, engine } = self;
        let scheduler = engine.into_scheduler().ok_or(Error::ShutDown)?;
        Ok((Arc::clone(handle.info()), scheduler))
    }
}

/// Lets open sequences take the memory that the devices have left now that all weights are there.
pub(crate) fn limit_memory(scheduler: &mut Scheduler<dyn Inspect>) {
    for id in scheduler.networks() {
        if let Some((device, available)) = scheduler.network(id).map(Inspect::available) {
            scheduler.limit(device, available);
        }
    }
}

fn facts(text: &CheckpointText) -> ModelFacts {
    let spec = &text.spec;
    ModelFacts {
        mask: spec.attention,
        shift: spec.shift as u32,
        mask_id: text.special.mask,
        vocab: spec.vocabulary,
        context: spec.context,
        layers: spec.layers,
        blocks: spec.blocks,
        free_rows: demask_decode::FREE_ROWS,
    }
}
