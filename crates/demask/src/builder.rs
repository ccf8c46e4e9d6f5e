//! Construction of a model from its name, in one call.

use std::path::Path;

use crate::{
    ActivationChoice, DeviceChoice, DeviceOptions, DtypeChoice, Error, LoadProgress, Model, ModelError, Opened,
    Options, Prompt, WeightChoice,
};
use demask_checkpoint::{
    AdapterChoice, AdapterFiles, CheckpointError, FamilyChoice, FetchProgress, HubOptions, ModelFiles, locate,
    locate_adapter,
};

/// Builder of a model: its device, its numbers, its guide. [`Model::builder`] makes one.
///
/// ```no_run
/// # use demask::Model;
/// let model = Model::builder().device("cpu".parse()?).quantize("q8".parse()?).threads(2).open("org/name")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Builder<'a> {
    device: DeviceOptions,
    hub: HubOptions,
    prefix_cache: Option<u64>,
    preemption: bool,
    family: Option<FamilyChoice>,
    adapter: Option<(String, AdapterChoice)>,
    /// Names of guides, where they have one, and their models.
    guides: Vec<(Option<String>, String)>,
    progress: Box<dyn FnMut(LoadProgress<'_>) -> bool + 'a>,
}

impl Default for Builder<'_> {
    /// A model runs on the best device that there is, without a guide. The hub is the one that the environment names
    /// (`HF_HOME`, `HF_ENDPOINT`, `HF_HUB_OFFLINE`, `HF_TOKEN`).
    fn default() -> Self {
        Self {
            device: DeviceOptions::default(),
            hub: HubOptions::from_env(),
            prefix_cache: None,
            preemption: true,
            family: None,
            adapter: None,
            guides: Vec::new(),
            progress: Box::new(|_| true),
        }
    }
}

impl<'a> Builder<'a> {
    /// Sets the device.
    pub fn device(mut self, device: DeviceChoice) -> Self {
        self.device.device = device;
        self
    }

    /// Sets everything about the device at once.
    #[doc(hidden)]
    pub fn device_options(mut self, device: DeviceOptions) -> Self {
        self.device = device;
        self
    }

    /// Reads the model's files as this family, where they do not tell it: `"a2d-qwen3:block=32".parse()`. The
    /// built-in model has its own.
    pub fn family(mut self, family: FamilyChoice) -> Self {
        self.family = Some(family);
        self
    }

    /// Puts an adapter beside the model (PEFT LoRA): a directory, or `org/name` of a hub. The built-in model has none.
    pub fn adapter(mut self, adapter: impl Into<String>, choice: AdapterChoice) -> Self {
        self.adapter = Some((adapter.into(), choice));
        self
    }

    /// Sets the element type of weights and products.
    pub fn dtype(mut self, dtype: DtypeChoice) -> Self {
        self.device.dtype = dtype;
        self
    }

    /// Sets how weights are quantised when they are loaded.
    pub fn quantize(mut self, quantize: WeightChoice) -> Self {
        self.device.quantize = quantize;
        self
    }

    /// Sets what inputs of matrix products are rounded to.
    pub fn activations(mut self, activations: ActivationChoice) -> Self {
        self.device.activations = activations;
        self
    }

    /// Sets the number of threads; one for each core that this process may use if it is not set.
    pub fn threads(mut self, threads: usize) -> Self {
        self.device.threads = Some(threads);
        self
    }

    /// Sets the guide, for decoder `guided`: an autoregressive model, named as in [`open`](Self::open).
    pub fn guide(mut self, model: impl Into<String>) -> Self {
        self.guides.retain(|(name, _)| name.is_some());
        self.guides.push((None, model.into()));
        self
    }

    /// Adds a guide that requests choose by this name ([`Options::guide`]), out of several.
    pub fn named_guide(mut self, name: impl Into<String>, model: impl Into<String>) -> Self {
        self.guides.push((Some(name.into()), model.into()));
        self
    }

    /// Sets how many bytes of K/V are kept of prompts and answers that are over, on each network, so that requests that
    /// begin with the same tokens do not compute them again: see
    /// [`Handle::set_prefix_cache`](crate::Handle::set_prefix_cache). 0: none. The default is a quarter of the memory that is
    /// left when the model is loaded.
    pub fn prefix_cache(mut self, bytes: u64) -> Self {
        self.prefix_cache = Some(bytes);
        self
    }

    /// Sets whether requests enter before all the memory is free that they may take: see
    /// [`Handle::set_preemption`](crate::Handle::set_preemption). The default is that they do.
    pub fn preemption(mut self, preempts: bool) -> Self {
        self.preemption = preempts;
        self
    }

    /// Sets the hub that models are fetched from.
    pub fn hub(mut self, hub: HubOptions) -> Self {
        self.hub = hub;
        self
    }

    /// Sets what sees how far fetching and loading are; where it returns `false`, opening is given up.
    pub fn progress(mut self, progress: impl FnMut(LoadProgress<'_>) -> bool + 'a) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Opens a model: `org/name` of a hub (`org/name@revision`), a directory, or a `.gguf` file.
    ///
    /// # Errors
    /// If it is not there, cannot be read or run, or does not fit into the memory.
    pub fn open(mut self, name: impl AsRef<Path>) -> Result<Model, Error> {
        let opened = self.opened(name.as_ref())?;
        self.load(opened)
    }

    /// Opens the model that is part of this library: a small LLaDA that solves word problems.
    ///
    /// # Errors
    /// If the device or the guide cannot be used.
    #[cfg(feature = "demo")]
    pub fn demo(mut self) -> Result<Model, Error> {
        let opened = self.opened_demo()?;
        self.load(opened)
    }

    /// Opens a model with its guides; the weights stay where they are.
    ///
    /// # Errors
    /// If it is not there or cannot be read, or a guide does not go with it.
    #[doc(hidden)]
    pub fn opened(&mut self, name: &Path) -> Result<Opened, Error> {
        let (family, adapter) = (self.family.take(), self.adapter.take());
        let opened = self.files(name, family, adapter)?;
        self.beside_guides(opened)
    }

    /// Opens the model that is part of this library with its guides; the weights stay where they are.
    ///
    /// # Errors
    /// If a guide is not there, or does not go with it.
    #[cfg(feature = "demo")]
    #[doc(hidden)]
    pub fn opened_demo(&mut self) -> Result<Opened, Error> {
        if self.adapter.is_some() || self.family.is_some() {
            let (file, what) = ("the built-in model".to_owned(), "an adapter or another family".to_owned());
            let hint = "open the model that it is for";
            return Err(ModelError::from(CheckpointError::Unsupported { file, what, hint }).into());
        }
        self.beside_guides(Opened::demo()?)
    }

    fn beside_guides(&mut self, mut opened: Opened) -> Result<Opened, Error> {
        for (name, guide) in std::mem::take(&mut self.guides) {
            let guide = self.files(Path::new(&guide), None, None)?;
            opened = match name {
                Some(name) => opened.guided_by_named(name, guide)?,
                None => opened.guided_by(guide)?,
            };
        }
        Ok(opened)
    }

    fn files(
        &mut self,
        name: &Path,
        family: Option<FamilyChoice>,
        adapter: Option<(String, AdapterChoice)>,
    ) -> Result<Opened, Error> {
        let progress = &mut self.progress;
        let mut fetching = |FetchProgress { file, done, total }: FetchProgress<'_>| {
            progress(LoadProgress { name: file, done, total: total.unwrap_or(done) })
        };
        let files = match name.to_str() {
            Some(name) => locate(name, &self.hub, &mut fetching)?,
            None => ModelFiles::directory(name)?,
        };
        let adapter = match adapter {
            Some((name, choice)) => {
                Some(AdapterFiles { files: locate_adapter(&name, &self.hub, &mut fetching)?, choice })
            }
            None => None,
        };
        Ok(Opened::open(files.of_family(family).with_adapter(adapter))?)
    }

    /// Loads the weights of a model that [`opened`](Self::opened) has opened.
    ///
    /// # Errors
    /// If the device cannot be used, or has no room for them.
    #[doc(hidden)]
    pub fn load(mut self, opened: Opened) -> Result<Model, Error> {
        // There must be room for an answer of the usual length; a model that answers no message has its own lengths.
        let usual = opened.prepare(&Prompt::from(""), &Options::default());
        let needs = usual.as_ref().map(|answer| answer.job().needs().to_vec()).unwrap_or_default();
        let model = opened.load(&self.device, &needs, &mut self.progress)?;
        if let Some(bytes) = self.prefix_cache {
            model.set_prefix_cache(bytes)?;
        }
        if !self.preemption {
            model.set_preemption(false)?;
        }
        Ok(model)
    }
}

impl Model {
    /// Opens a model on the best device that there is: `org/name` of a hub, a directory, or a `.gguf` file.
    ///
    /// # Errors
    /// If it is not there, cannot be read or run, or does not fit into the memory.
    pub fn open(name: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().open(name)
    }

    /// Opens the model that is part of this library: a small LLaDA that solves word problems.
    ///
    /// # Errors
    /// If there is too little memory.
    #[cfg(feature = "demo")]
    pub fn demo() -> Result<Self, Error> {
        Self::builder().demo()
    }

    /// Starts to say how a model is opened.
    pub fn builder<'a>() -> Builder<'a> {
        Builder::default()
    }
}
