//! How a model is opened: one type, whether it comes from flags, the environment, a file or a program.

use demask_checkpoint::{AdapterChoice, FamilyChoice};
use demask_settings::{Guides, SettingError, settings};

use crate::{ActivationChoice, DeviceChoice, DeviceOptions, DtypeChoice, WeightChoice};

settings! {
    /// Options of opening a model. Fields that are `None` are chosen to fit the model and the machine.
    ///
    /// ```
    /// # use demask::{LoadOptions, Model};
    /// let options: LoadOptions = serde_json::from_str(r#"{"quantize": "q8", "activations": "plain", "threads": 1}"#)?;
    /// # if false {
    /// let model = Model::builder().options(options).open("org/name")?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct LoadOptions of "setting" {
        /// Directory, .gguf file, or org/name[:Q4_K_M] of a hub.
        model: String, "MODEL" or "a demo";
        /// Family that the model's files are read as, where they do not tell: `NAME` or `NAME:shift=0|1,block=N|none,mask=ID`.
        family: FamilyChoice as Word, "NAME[:...]";
        /// Adapter (PEFT LoRA) beside the model: a directory, or org/name of a hub.
        adapter: String, "DIR|ORG/NAME";
        /// Rows that take the adapter: `auto`, `masks` (texts stay the model's own), `all`, or `merged` into the weights at load.
        adapter_use: AdapterChoice as Word, "USE";
        /// Device: `auto` (the processor), `cpu`, `cuda`, `cuda:N` (experimental).
        device: DeviceChoice as Word, "DEVICE";
        /// Numbers of weights and products: `auto`, `f32`, `bf16`.
        dtype: DtypeChoice as Word, "DTYPE";
        /// Quantisation of weights at load: `none`, `q8`, `q4`.
        quantize: WeightChoice as Word, "FORMAT";
        /// Inputs of products: `auto`, `plain` (as `dtype` says), `int8` (quantised weights).
        activations: ActivationChoice as Word, "FORMAT";
        /// Threads.
        threads: usize, "N" or "one for each fast core";
        /// Autoregressive model that decoder `guided` lets judge drafts; of several, requests choose one by its name.
        guide: Guides, "[NAME=]MODEL";
        /// MiB of K/V that are kept of prompts and finished answers, on each network, for requests that begin with the same tokens; 0: none.
        /// Only models with causal or block-causal attention have any.
        prefix_cache: u64, "MIB" or "a quarter of the free memory" in (0, 1 << 24);
    }
}

impl LoadOptions {
    /// Refuses options of a part that is not named.
    ///
    /// # Errors
    /// For an empty name, a family or an adapter without a model, and a use without an adapter.
    pub fn check(&self) -> Result<(), SettingError> {
        let says = |message: &str| Err(SettingError::Content(message.to_owned()));
        match (&self.model, &self.adapter) {
            // An empty name is a mistake, and no choice of the demo.
            (Some(name), _) if name.trim().is_empty() => says(
                "the model has an empty name: give a folder, a GGUF file or an id of a hub, or omit `model` for the demo",
            ),
            (_, None) if self.adapter_use.is_some() => {
                says("`adapter_use` says how an adapter is used, and none is named: give `adapter`")
            }
            (None, _) if self.family.is_some() => {
                says("`family` says how a model's files are read, and no model is named: give `model`")
            }
            (None, Some(_)) => says("`adapter` goes with a model, and no model is named: give `model`"),
            _ => Ok(()),
        }
    }

    /// Returns the options of a device, with the ones set here in the place of `usual`'s.
    pub fn device_options(&self, usual: &DeviceOptions) -> DeviceOptions {
        DeviceOptions {
            device: self.device.unwrap_or(usual.device),
            dtype: self.dtype.unwrap_or(usual.dtype),
            quantize: self.quantize.unwrap_or(usual.quantize),
            activations: self.activations.unwrap_or(usual.activations),
            threads: self.threads.or(usual.threads),
            ..usual.clone()
        }
    }
}
