//! Construction of a model from its name, in one call.

use std::path::Path;

use demask_checkpoint::{
    AdapterChoice, AdapterFiles, FamilyChoice, FetchProgress, HubOptions, ModelFiles, Wanted, locate,
};
use demask_settings::{Guide, Settings};

#[cfg(not(feature = "demo"))]
use crate::SettingError;
use crate::{
    ActivationChoice, DeviceChoice, DeviceOptions, DtypeChoice, Error, LoadOptions, LoadProgress, Model, Opened,
    Options, Prompt, WeightChoice,
};

/// Builder of a model: its device, its numbers, its guide. [`Model::builder`] makes one.
///
/// ```no_run
/// # use demask::Model;
/// let model = Model::builder().device("cpu".parse()?).quantize("q8".parse()?).threads(2).open("org/name")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Builder<'a> {
    options: LoadOptions,
    device: DeviceOptions,
    hub: HubOptions,
    prefix_bytes: Option<u64>,
    preemption: bool,
    progress: Box<dyn FnMut(LoadProgress<'_>) -> bool + 'a>,
}

impl Default for Builder<'_> {
    /// A model runs on the best device that there is, without a guide. The hub is the one that the environment names
    /// (`HF_HOME`, `HF_ENDPOINT`, `HF_HUB_OFFLINE`, `HF_TOKEN`).
    fn default() -> Self {
        Self {
            options: LoadOptions::default(),
            device: DeviceOptions::default(),
            hub: HubOptions::from_env(),
            prefix_bytes: None,
            preemption: true,
            progress: Box::new(|_| true),
        }
    }
}

impl<'a> Builder<'a> {
    /// Sets all options that have a value in a set of them.
    pub fn options(mut self, mut options: LoadOptions) -> Self {
        options.fill(self.options);
        self.options = options;
        self
    }

    /// Sets the device.
    pub fn device(mut self, device: DeviceChoice) -> Self {
        self.options.device = Some(device);
        self
    }

    /// Sets what options leave open about the device.
    pub fn device_options(mut self, device: DeviceOptions) -> Self {
        self.device = device;
        self
    }

    /// Reads the model's files as this family, where they do not tell it: `"a2d-qwen3:block=32".parse()`. The
    /// built-in model has its own.
    pub fn family(mut self, family: FamilyChoice) -> Self {
        self.options.family = Some(family);
        self
    }

    /// Puts an adapter beside the model (PEFT LoRA): a directory, or `org/name` of a hub. The built-in model has none.
    pub fn adapter(mut self, adapter: impl Into<String>, choice: AdapterChoice) -> Self {
        self.options.adapter = Some(adapter.into());
        self.options.adapter_use = Some(choice);
        self
    }

    /// Sets the element type of weights and products.
    pub fn dtype(mut self, dtype: DtypeChoice) -> Self {
        self.options.dtype = Some(dtype);
        self
    }

    /// Sets how weights are quantised when they are loaded.
    pub fn quantize(mut self, quantize: WeightChoice) -> Self {
        self.options.quantize = Some(quantize);
        self
    }

    /// Sets what inputs of matrix products are rounded to.
    pub fn activations(mut self, activations: ActivationChoice) -> Self {
        self.options.activations = Some(activations);
        self
    }

    /// Sets the number of threads; one for each fast core that this process may use if it is not set.
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.threads = Some(threads);
        self
    }

    /// Adds the guide, for decoder `guided`: an autoregressive model, named as in [`open`](Self::open).
    pub fn guide(mut self, model: impl Into<String>) -> Self {
        let guides = &mut self.options.guide.get_or_insert_default().0;
        guides.retain(|guide| guide.name.is_some());
        guides.push(Guide { name: None, model: model.into() });
        self
    }

    /// Adds a guide that requests choose by this name ([`Options::guide`]), out of several.
    pub fn named_guide(mut self, name: impl Into<String>, model: impl Into<String>) -> Self {
        let guide = Guide { name: Some(name.into()), model: model.into() };
        self.options.guide.get_or_insert_default().0.push(guide);
        self
    }

    /// Sets how many bytes of K/V are kept of prompts and answers that are over, on each network, so that requests that
    /// begin with the same tokens do not compute them again: see
    /// [`Handle::set_prefix_cache`](crate::Handle::set_prefix_cache). 0: none. The default is a quarter of the memory that is
    /// left when the model is loaded.
    pub fn prefix_cache(mut self, bytes: u64) -> Self {
        self.prefix_bytes = Some(bytes);
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

    /// Opens a model: `org/name` of a hub (`org/name@revision`, `org/name:Q4_K_M`, `org/name/FILE.gguf`), a directory, or a
    /// `.gguf` file.
    ///
    /// # Errors
    /// If it is not there, cannot be read or run, or does not fit into the memory.
    pub fn open(self, name: impl AsRef<Path>) -> Result<Model, Error> {
        self.open_files(Some(name.as_ref()))
    }

    /// Opens the model that the options name, the built-in one if they name none.
    ///
    /// # Errors
    /// As [`open`](Self::open), and for options of a part that is not named ([`LoadOptions::check`]).
    pub fn build(self) -> Result<Model, Error> {
        let name = self.options.model.clone();
        self.open_files(name.as_deref().map(Path::new))
    }

    /// Opens the model that is part of this library: a small LLaDA that solves word problems.
    ///
    /// # Errors
    /// If the device or the guide cannot be used.
    #[cfg(feature = "demo")]
    pub fn demo(self) -> Result<Model, Error> {
        self.open_files(None)
    }

    fn open_files(mut self, name: Option<&Path>) -> Result<Model, Error> {
        let opened = self.opened(name)?;
        self.load(opened)
    }

    /// Opens a model with its guides, the built-in one without a name; the weights stay where they are.
    ///
    /// # Errors
    /// If it is not there or cannot be read, or a guide does not go with it.
    pub fn opened(&mut self, name: Option<&Path>) -> Result<Opened, Error> {
        let model = name.map(|name| name.to_string_lossy().into_owned());
        LoadOptions { model, ..self.options.clone() }.check()?;
        let opened = match name {
            Some(name) => {
                let family = self.options.family.clone();
                let adapter = self.options.adapter.clone();
                self.files(name, family, adapter)?
            }
            None => builtin()?,
        };
        self.beside_guides(opened)
    }

    fn beside_guides(&mut self, mut opened: Opened) -> Result<Opened, Error> {
        for Guide { name, model } in self.options.guide.take().unwrap_or_default().0 {
            let guide = self.files(Path::new(&model), None, None)?;
            opened = match name {
                Some(name) => opened.guided_by_named(&name, guide)?,
                None => opened.guided_by(guide)?,
            };
        }
        Ok(opened)
    }

    fn files(&mut self, name: &Path, family: Option<FamilyChoice>, adapter: Option<String>) -> Result<Opened, Error> {
        let choice = self.options.adapter_use.unwrap_or_default();
        let progress = &mut self.progress;
        let mut fetching = |FetchProgress { file, done, total }: FetchProgress<'_>| {
            progress(LoadProgress { name: file, done, total: total.unwrap_or(done) })
        };
        let files = match name.to_str() {
            Some(name) => locate(name, Wanted::Model, &self.hub, &mut fetching)?,
            None => ModelFiles::directory(name)?,
        };
        let adapter = match adapter {
            Some(name) => {
                Some(AdapterFiles { files: locate(&name, Wanted::Adapter, &self.hub, &mut fetching)?, choice })
            }
            None => None,
        };
        Ok(Opened::open(files.of_family(family).with_adapter(adapter))?)
    }

    /// Loads the weights of a model that [`opened`](Self::opened) has opened.
    ///
    /// # Errors
    /// If the device cannot be used, or has no room for them.
    pub fn load(mut self, opened: Opened) -> Result<Model, Error> {
        // There must be room for an answer of the usual length; a model that answers no message has its own lengths.
        let usual = opened.prepare(&Prompt::from(""), &Options::default());
        let needs = usual.as_ref().map(|answer| answer.job().needs().to_vec()).unwrap_or_default();
        let device = self.options.device_options(&self.device);
        let model = opened.load(&device, &needs, &mut self.progress)?;
        if let Some(bytes) = self.prefix_bytes.or(self.options.prefix_cache.map(|mebibytes| mebibytes << 20)) {
            model.set_prefix_cache(bytes)?;
        }
        if !self.preemption {
            model.set_preemption(false)?;
        }
        Ok(model)
    }
}

/// Opens the model that is part of this library.
#[cfg(feature = "demo")]
fn builtin() -> Result<Opened, Error> {
    Ok(Opened::demo()?)
}

/// Refuses to open a model that this build does not have.
#[cfg(not(feature = "demo"))]
fn builtin() -> Result<Opened, Error> {
    Err(SettingError::Content("this build has no built-in model: give `model`".to_owned()).into())
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
