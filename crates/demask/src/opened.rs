//! A model whose files are open and whose weights are not read yet.

use std::{collections::BTreeMap, sync::Arc};

use demask_checkpoint::{Checkpoint, ModelFiles, StoredWeights};
use demask_engine::Request;
use demask_model::Role;
use demask_tensor::Dtype;

use crate::{Error, ModelError, ModelInfo, Options, Prompt, bridge::Bridge, info::Guide};

/// A model whose files are open and checked, and whose weights are still where they were; perhaps with guides.
pub struct Opened {
    pub(crate) info: ModelInfo,
    pub(crate) source: StoredWeights,
    /// Weights of the guides.
    pub(crate) guides: Vec<StoredWeights>,
}

/// A model without its weights, the type of each tensor, and the type of most of them.
pub type Stored = (Arc<ModelInfo>, BTreeMap<Role, Dtype>, Dtype);

impl Opened {
    /// Opens files.
    pub fn open(files: ModelFiles) -> Result<Self, ModelError> {
        Ok(Self::of(Checkpoint::open(files)?))
    }

    /// The model that is part of this library.
    #[cfg(feature = "demo")]
    pub fn demo() -> Result<Self, ModelError> {
        Self::open(crate::demo::files())
    }

    pub(crate) fn of(checkpoint: Checkpoint) -> Self {
        let (source, text) = checkpoint.release_weights();
        // What is left once the weights are there, until they are and it is known.
        let free_memory = Some(demask_cpu::available_memory().saturating_sub(source.stored_bytes()));
        let mut info = ModelInfo::of(text);
        info.free_memory = free_memory;
        Self { info, source, guides: Vec::new() }
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

    /// Gets a prompt ready to be answered, with the guide if the decoder wants one. The request's needs say how much
    /// memory the model must leave free, and once loaded the model runs it as it is.
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

    /// Leaves the weights after: of the model and its first guide what turns prompts into sessions, the type of each tensor
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
}

impl ModelInfo {
    /// Opens a checkpoint and leaves its weights alone.
    pub fn open(files: ModelFiles) -> Result<Self, ModelError> {
        Ok(Opened::open(files)?.into_info())
    }

    /// Opens the model that is part of this library.
    #[cfg(feature = "demo")]
    pub fn demo() -> Result<Self, ModelError> {
        Ok(Opened::demo()?.into_info())
    }
}
