//! A model: what turns prompts into sessions, and what runs them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use demask_checkpoint::{
    ChatTemplate, Checkpoint, CheckpointError, CheckpointText, Family, ModelFiles, StoredWeights, Tokenizer, Warning,
};
use demask_cpu::CpuBackend;
#[cfg(feature = "cuda")]
use demask_cuda::{CudaBackend, Unfit, gpu::Gpu};
use demask_decode::ModelFacts;
#[cfg(feature = "cuda")]
use demask_model::workspace_shape;
use demask_model::{ArchSpec, Inspect, LoadError, Runner};
use demask_step::{MemoryMeter, Need, OutOfMemory, SequenceNeeds, TokenId};
use demask_tensor::Backend;

#[cfg(feature = "cuda")]
use crate::{BackendOptions, DeviceChoice};
use crate::{
    DeviceOptions, Error, Footprint, KeptMatrices, NetworkId, Options, Outline, Over, Prepared, Prompt, Scheduler,
    Task, TooLarge, UnusableDevice, WeightChoice,
    guide::{self, Bridge, Guiding, Named},
    receipt::DeviceUse,
};

/// Rows that a joined step may have unless the caller says otherwise: beyond this, products are bound by operations
/// and more rows gain nothing.
pub(crate) const DEFAULT_ROW_BUDGET: usize = 512;

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
pub struct Prompter {
    pub(crate) text: CheckpointText,
    facts: ModelFacts,
    /// Texts of the control tokens.
    controls: Vec<String>,
    defaults: Defaults,
    /// Memory for K/V beside the weights, where there is a machine to run on; none of a shape alone.
    pub(crate) free_memory: Option<u64>,
}

impl Prompter {
    /// Opens a checkpoint and leaves its weights alone.
    pub fn open(files: ModelFiles) -> Result<Self, ModelError> {
        Ok(Opened::open(files)?.into_prompter())
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
        Ok(Opened::demo()?.into_prompter())
    }

    /// Makes that of a checkpoint without weights.
    pub(crate) fn of(text: CheckpointText) -> Self {
        let special = &text.special;
        let named = [special.mask, special.eos, special.turn_end, special.bos, special.pad];
        let named = named.into_iter().flatten().chain(special.stop.iter().copied());
        let controls = text.tokenizer.as_ref().map(|tokenizer| tokenizer.controls(named, &text.template));
        let (facts, controls) = (facts(&text), controls.unwrap_or_default());
        Self { facts, controls, text, defaults: Defaults::default(), free_memory: None }
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

/// A model, ready to answer: a [`Prompter`] and a scheduler that owns its network. It runs on the thread that owns it,
/// one forward at a time; [`into_engine`](Self::into_engine) gives it a thread of its own.
pub struct Model {
    pub(crate) front: Arc<Front>,
    pub(crate) scheduler: Scheduler<Task, dyn Inspect>,
    /// Networks of the model and its guides.
    pub(crate) networks: Vec<NetworkId>,
    /// Requests that ended while another one was waited for.
    pub(crate) over: Vec<Over>,
    /// Bytes that each network may keep of prefixes.
    pub(crate) prefix_bytes: u64,
}

/// Parts of a model and its guide but their networks.
pub(crate) struct Front {
    pub(crate) prompter: Prompter,
    pub(crate) load_time: Duration,
    pub(crate) device: String,
    /// Bytes of its packed weights.
    pub(crate) weights: usize,
    /// Reads what it takes of a device of its own.
    pub(crate) meter: Option<Arc<dyn MemoryMeter>>,
    /// Guides, in the order of their networks.
    pub(crate) guides: Vec<Guide>,
}

/// Rest of a guide once its network runs beside the model's.
pub(crate) struct Guide {
    /// The name that it was given; without one it is called as its model.
    pub(crate) name: Option<String>,
    pub(crate) prompter: Prompter,
    pub(crate) bridge: Bridge,
    /// Bytes of its packed weights.
    pub(crate) weights: usize,
    /// Reads what it takes of a device of its own.
    pub(crate) meter: Option<Arc<dyn MemoryMeter>>,
}

impl Named for Guide {
    fn called(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.prompter.name())
    }
}

/// A model whose files are open and checked, and whose weights are still where they were; perhaps with guides.
pub struct Opened {
    prompter: Prompter,
    source: StoredWeights,
    guides: Vec<OpenedGuide>,
}

/// A guide that is open, and the way to its words.
struct OpenedGuide {
    name: Option<String>,
    opened: Opened,
    bridge: Bridge,
}

impl Named for OpenedGuide {
    fn called(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.opened.prompter.name())
    }
}

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
        opened.prompter.defaults = crate::demo::DEFAULTS;
        Ok(opened)
    }

    fn of(checkpoint: Checkpoint) -> Self {
        let (source, text) = checkpoint.release_weights();
        // What is left once the weights are there, until they are and it is known.
        let free_memory = Some(demask_cpu::available_memory().saturating_sub(source.stored_bytes()));
        Self { prompter: Prompter { free_memory, ..Prompter::of(text) }, source, guides: Vec::new() }
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

    fn with_guide(mut self, name: Option<String>, opened: Self) -> Result<Self, Error> {
        let bridge = Bridge::between(&self.prompter, &opened.prompter)?;
        let guide = OpenedGuide { name, opened, bridge };
        guide::check_name(&self.guides, guide.called())?;
        self.guides.push(guide);
        Ok(self)
    }

    /// Returns its first guide.
    pub fn guide(&self) -> Option<&Self> {
        self.guides.first().map(|guide| &guide.opened)
    }

    /// Gets a prompt ready to be answered, with the guide if the decoder wants one. What it needs says how much memory the
    /// model must leave free, and once loaded the model runs it as it is.
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens, or the options contradict each other or the model.
    pub fn prepare(&self, prompt: &Prompt, options: &Options) -> Result<Prepared, Error> {
        let chosen = guide::choose(&self.guides, options)?;
        let guide = chosen.map(|index| {
            let OpenedGuide { opened, bridge, .. } = &self.guides[index];
            Guiding { index, prompter: &opened.prompter, bridge }
        });
        self.prompter.prepare_with(prompt, options, guide)
    }

    /// Returns all of the model but the weights.
    pub fn prompter(&self) -> &Prompter {
        &self.prompter
    }

    /// Leaves the weights behind, its first guide's too: what is left says what answers would cost.
    pub fn into_outline(self) -> Outline {
        let Self { mut prompter, source, guides } = self;
        // Estimates are the same on every machine.
        prompter.free_memory = None;
        let outline = Outline::new(prompter, source.stored(), source.main_dtype());
        match guides.into_iter().next() {
            Some(OpenedGuide { opened, bridge, .. }) => outline.with_guide(opened.into_outline(), bridge),
            None => outline,
        }
    }

    pub(crate) fn source(&self) -> &StoredWeights {
        &self.source
    }

    /// Gives up the weights.
    pub fn into_prompter(self) -> Prompter {
        self.prompter
    }

    /// Bytes that it needs on a device while sequences with these needs are open.
    pub fn footprint(&self, device: &DeviceOptions, sequences: &[SequenceNeeds]) -> Result<Footprint, ModelError> {
        let spec = self.prompter.spec();
        let options = device.backend_options(self.source.main_dtype())?;
        let row_budget = device.row_budget.unwrap_or(DEFAULT_ROW_BUDGET);
        Footprint::of(spec, &self.source.stored(), &options, row_budget, sequences)
            .map_err(|error| self.failed(error.into()))
    }

    /// Matrices whose blocks take more memory on a device than in their file, because no kernel there has their format. None, if
    /// the device is to round all weights anyway. Its guides' follow.
    pub fn widened(&self, device: &DeviceOptions) -> Result<Vec<KeptMatrices>, ModelError> {
        let options = device.backend_options(self.source.main_dtype())?;
        if device.quantize != WeightChoice::Plain {
            return Ok(Vec::new());
        }
        let kept = KeptMatrices::of(self.prompter.spec(), &self.source.stored(), &options);
        let kept = kept.map_err(|error| self.failed(error.into()))?;
        let mut widened: Vec<_> = kept.into_iter().filter(KeptMatrices::widened).collect();
        for guide in &self.guides {
            widened.extend(guide.opened.widened(device)?);
        }
        Ok(widened)
    }

    /// Loads the weights, its guides' too, if there is memory for them and for the sequences that will be open at the same
    /// time: those of the model on network 0, those of a guide, whichever it is, on network 1.
    ///
    /// # Errors
    /// If the device cannot be used, or has no room for them.
    pub fn load(
        mut self,
        device: &DeviceOptions,
        needs: &[Need],
        progress: &mut LoadObserver<'_>,
    ) -> Result<Model, ModelError> {
        let of = |network: usize| -> Vec<SequenceNeeds> {
            needs.iter().filter(|need| need.network == network).map(|need| need.sequence.clone()).collect()
        };
        let guides = std::mem::take(&mut self.guides);
        let mut model = self.load_alone(device, &of(0), progress)?;
        for OpenedGuide { name, opened, bridge } in guides {
            model.attach(name, opened.load_alone(device, &of(1), progress)?, bridge);
        }
        Ok(model)
    }

    /// Loads the weights without the guide's.
    fn load_alone(
        self,
        device: &DeviceOptions,
        sequences: &[SequenceNeeds],
        progress: &mut LoadObserver<'_>,
    ) -> Result<Model, ModelError> {
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
        self,
        device: &DeviceOptions,
        number: usize,
        sequences: &[SequenceNeeds],
        progress: &mut LoadObserver<'_>,
    ) -> Result<Model, ModelError> {
        let stored = self.source.main_dtype();
        let BackendOptions::Cuda(options) = device.backend_options(stored)? else {
            return Err(UnusableDevice::NoCuda(number).into());
        };
        let spec = self.prompter.spec();
        let row_budget = device.row_budget.unwrap_or(DEFAULT_ROW_BUDGET);
        options
            .check(&workspace_shape(spec, row_budget, sequences), spec.layers)
            .map_err(|unfit| ModelError::Unfit { name: self.prompter.name().to_owned(), number, unfit })?;
        let gpu = device.open_gpu(number)?;
        self.check_memory(device, sequences, &format!("memory on {}", gpu.describe()), gpu.available())?;
        let card = gpu.card().clone();
        let model = self.load_on(CudaBackend::new(gpu, options), device.row_budget, progress)?;
        DeviceOptions::tell_experimental(&card);
        Ok(model)
    }

    /// Loads the weights to a backend, which refuses what it has no memory for. Joined steps may have up to `row_budget`
    /// rows. `progress` as for [`Opened::load`].
    pub fn load_on<B: Backend + 'static>(
        self,
        backend: B,
        row_budget: Option<usize>,
        progress: &mut LoadObserver<'_>,
    ) -> Result<Model, ModelError> {
        let started = Instant::now();
        let (spec, total) = (self.prompter.spec(), self.source.stored_bytes());
        tracing::debug!(name = %self.prompter.name(), bytes = total, parameters = spec.parameters(), "loading weights");
        let name = self.prompter.name();
        let mut read = |done| progress(LoadProgress { name, done, total });
        let weights =
            demask_model::Weights::load(spec, &self.source, &backend, &mut read).map_err(|error| self.failed(error))?;
        let Self { prompter, source, .. } = self;
        drop(source);
        let row_budget = row_budget.unwrap_or(DEFAULT_ROW_BUDGET);
        let runner = Runner::new(prompter.spec().clone(), weights, backend, row_budget)
            .map_err(|error| ModelError::Memory { name: prompter.name().to_owned(), error })?;
        Ok(Model::of(prompter, Box::new(runner), started))
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
        Ok(TooLarge::check(self.prompter.name(), memory, device.quantize, needs, available)?)
    }

    fn failed(&self, error: LoadError) -> ModelError {
        ModelError::Load { name: self.prompter.name().to_owned(), error }
    }
}

impl Model {
    /// Returns the model's name, for people.
    pub fn name(&self) -> &str {
        self.prompter().name()
    }

    /// Returns what runs it: device, tier, threads, element type.
    pub fn device(&self) -> &str {
        &self.front.device
    }

    /// Returns what it and its guides take of a GPU's memory now; none where the processor computes.
    #[doc(hidden)]
    pub fn device_memory(&self) -> Option<DeviceUse> {
        self.front.device_memory()
    }

    /// Lets the peaks of memory in receipts, of this process and of its GPU, begin anew with what is taken now.
    #[doc(hidden)]
    pub fn forget_peak_memory(&self) {
        self.front.forget_peak_memory();
    }

    /// Returns the bytes of its packed weights, its guides' not included.
    pub fn weight_bytes(&self) -> usize {
        self.front.weights
    }

    /// Sets how many bytes of K/V are kept of prompts and answers that are over, on its network and on its guide's, so that
    /// requests that begin with the same tokens do not compute them again. 0, as it begins: none.
    ///
    /// It changes no token and no confidence of an answer, only what is computed for it: the receipt's `cached_tokens` says
    /// how much was not. Block-causal models (SDAR, TraDo) share whole blocks under cache `block`, causal ones (Qwen,
    /// Llama) tokens under cache `causal`, both in whole pages. Models with full attention (LLaDA, Dream) share nothing:
    /// the K/V of a prompt depend on the masks behind it, and so on the request.
    ///
    /// Kept pages go, the least recently used first, before any request waits for memory.
    pub fn set_prefix_cache(&mut self, bytes: u64) {
        self.prefix_bytes = bytes;
        for &network in &self.networks {
            if let Some(network) = self.scheduler.network_mut(network) {
                network.keep_prefixes(bytes);
            }
        }
    }

    /// Sets how many rows of a prompt run in one forward, on its network and on its guides', at least 1; 512 at the beginning.
    ///
    /// It changes no token and no confidence of an answer: a longer prompt is read in several forwards, between which other
    /// requests have their turns. Models with full attention (LLaDA, Dream) read a prompt in one forward whatever its length:
    /// each of its rows sees all others.
    pub fn set_piece_rows(&mut self, rows: usize) {
        for &network in &self.networks {
            if let Some(network) = self.scheduler.network_mut(network) {
                network.set_piece(rows);
            }
        }
    }

    /// Returns the names that requests choose its guides by.
    pub fn guides(&self) -> Vec<&str> {
        self.front.guides.iter().map(Named::called).collect()
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

    fn of(mut prompter: Prompter, network: Box<dyn Inspect>, started: Instant) -> Self {
        prompter.free_memory = Some(network.available().1);
        prompter.facts.free_rows = network.rows().free;
        let (device, weights, meter) = (network.describe(), network.weight_bytes(), network.memory_meter());
        let mut scheduler = Scheduler::new();
        let networks = vec![scheduler.add(network)];
        let (load_time, guides) = (started.elapsed(), Vec::new());
        let front = Arc::new(Front { prompter, load_time, device, weights, meter, guides });
        let mut model = Self { front, scheduler, networks, over: Vec::new(), prefix_bytes: 0 };
        model.limit_memory();
        model
    }

    /// Lets open sequences take what its devices have left now that all weights are there.
    pub(crate) fn limit_memory(&mut self) {
        for &id in &self.networks {
            if let Some((device, available)) = self.scheduler.network(id).map(Inspect::available) {
                self.scheduler.limit(device, available);
            }
        }
    }

    /// Returns all of it but the networks.
    pub fn prompter(&self) -> &Prompter {
        &self.front.prompter
    }

    /// Duration of the loading, its guide's included.
    pub fn load_time(&self) -> Duration {
        self.front.load_time
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
