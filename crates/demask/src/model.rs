//! A model: what turns prompts into sessions, and what runs them.

use std::{
    ops::Deref,
    time::{Duration, Instant},
};

use demask_checkpoint::{ChatTemplate, Checkpoint, CheckpointError, CheckpointText, ModelFiles, Tokenizer, Warning};
use demask_decode::ModelFacts;
use demask_model::{ArchSpec, Attention, LoadError, Runner, Weights};
use demask_step::{Mask, TokenId};
use demask_tensor::{Dtype, OutOfMemory};

use crate::{DeviceError, DeviceOptions, Engine, GenerateError};

/// Rows that a joined step may have unless the caller says otherwise: beyond this, products are bound by operations
/// and more rows gain nothing.
const DEFAULT_ROW_BUDGET: usize = 512;

/// A model that cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The checkpoint is not usable.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The device is not usable.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The weights cannot be packed.
    #[error("{name} cannot be loaded: {error}")]
    Load {
        /// The model.
        name: String,
        /// Why.
        error: LoadError,
    },
    /// No memory.
    #[error("{name} does not fit: {error}")]
    Memory {
        /// The model.
        name: String,
        /// How much is missing.
        error: OutOfMemory,
    },
}

/// Lengths that a model works best with, where it differs from what the engine would choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Defaults {
    /// Positions to decode.
    pub gen_length: Option<usize>,
    /// Positions of a block.
    pub block_length: Option<usize>,
}

/// Everything about a model but its weights: enough to turn a prompt into a session.
pub struct Prompter {
    pub(crate) text: CheckpointText,
    facts: ModelFacts,
    defaults: Defaults,
}

impl Prompter {
    /// Opens a checkpoint and leaves its weights alone.
    pub fn open(files: ModelFiles) -> Result<Self, ModelError> {
        Ok(Self::of(Checkpoint::open(files)?.release_weights().1))
    }

    /// That of the model that is part of this library.
    pub fn demo() -> Result<Self, ModelError> {
        Ok(Self { defaults: crate::demo::DEFAULTS, ..Self::open(crate::demo::files())? })
    }

    fn of(text: CheckpointText) -> Self {
        Self { facts: facts(&text), text, defaults: Defaults::default() }
    }

    /// The model's name, for people.
    pub fn name(&self) -> &str {
        &self.text.name
    }

    /// Its architecture.
    pub fn spec(&self) -> &ArchSpec {
        &self.text.spec
    }

    /// What decoding knows of it.
    pub fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    /// Lengths it works best with.
    pub fn defaults(&self) -> Defaults {
        self.defaults
    }

    /// What is odd about the checkpoint but not wrong.
    pub fn warnings(&self) -> &[Warning] {
        &self.text.warnings
    }

    /// The tokenizer, or the error that says what to do without.
    pub fn tokenizer(&self) -> Result<&Tokenizer, GenerateError> {
        self.text.tokenizer.as_ref().ok_or_else(|| GenerateError::NoTokenizer { model: self.name().to_owned() })
    }

    /// The chat template.
    pub fn template(&self) -> &ChatTemplate {
        &self.text.template
    }

    /// Tokens that end an answer.
    pub fn end_ids(&self) -> &[TokenId] {
        &self.text.special.stop
    }

    /// The end-of-text token alone (LLaDA's `logits_eos_inf` speaks of this one only).
    pub(crate) fn eos_ids(&self) -> Result<Vec<TokenId>, GenerateError> {
        let eos = self.text.special.eos;
        eos.map(|eos| vec![eos]).ok_or_else(|| GenerateError::NoEnd { model: self.name().to_owned() })
    }
}

/// A model, ready to answer: a [`Prompter`] and the engine that runs its sessions.
pub struct Model {
    pub(crate) prompter: Prompter,
    load_time: Duration,
    pub(crate) engine: Engine,
}

/// A model can do what its prompter can.
impl Deref for Model {
    type Target = Prompter;

    fn deref(&self) -> &Prompter {
        &self.prompter
    }
}

impl Model {
    /// Opens and loads a checkpoint. `progress` is told bytes read and bytes in all, and answers whether to go on.
    pub fn load(
        files: ModelFiles,
        device: &DeviceOptions,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Self, ModelError> {
        Self::from_checkpoint(Checkpoint::open(files)?, device, progress)
    }

    /// The model that is part of this library: a small LLaDA that solves word problems.
    pub fn demo(device: &DeviceOptions) -> Result<Self, ModelError> {
        let mut model = Self::load(crate::demo::files(), device, &mut |_, _| true)?;
        model.prompter.defaults = crate::demo::DEFAULTS;
        Ok(model)
    }

    /// Loads an opened checkpoint.
    pub fn from_checkpoint(
        checkpoint: Checkpoint,
        device: &DeviceOptions,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Self, ModelError> {
        let started = Instant::now();
        let (source, text) = checkpoint.release_weights();
        let prompter = Prompter::of(text);
        let (spec, name) = (prompter.spec(), prompter.name());
        // The type that most of the weights are stored in.
        let stored =
            source.dtypes().into_iter().max_by_key(|&(_, bytes)| bytes).map_or(Dtype::Bf16, |(dtype, _)| dtype);
        let backend = device.cpu(stored)?;
        let total = source.stored_bytes();
        tracing::debug!(%name, bytes = total, parameters = spec.parameters(), "loading weights");
        let weights = Weights::load(spec, &source, &backend, &mut |read| progress(read, total))
            .map_err(|error| ModelError::Load { name: name.to_owned(), error })?;
        drop(source);
        let runner = Runner::new(spec.clone(), weights, backend, device.row_budget.unwrap_or(DEFAULT_ROW_BUDGET))
            .map_err(|error| ModelError::Memory { name: name.to_owned(), error })?;
        let engine = Engine::new(Box::new(runner));
        Ok(Self { prompter, load_time: started.elapsed(), engine })
    }

    /// How long loading took.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }

    /// The engine that runs it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine that runs it, for many sessions at once.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

fn facts(text: &CheckpointText) -> ModelFacts {
    let spec = &text.spec;
    ModelFacts {
        mask: match spec.attention {
            Attention::Full => Mask::Full,
            Attention::BlockCausal { block } => Mask::BlockCausal { block: block as u32 },
            Attention::Causal => Mask::Causal,
        },
        shift: spec.shift as u32,
        mask_id: text.special.mask,
        vocab: spec.vocabulary,
        context: spec.context,
    }
}
