//! Loading of a model from a model argument.

use demask::{
    DeviceOptions, ModelInfo, Opened,
    layers::{
        checkpoint::{
            AdapterFiles, Checkpoint, FetchProgress, ModelFiles, ModelLocation, locate, locate_adapter, resolve,
        },
        step::Need,
        tensor::Dtype,
    },
};
use demask::{LoadOptions, LoadProgress, Model};

use crate::{
    env,
    interrupt::{self, Watched},
    output::{self, Screen},
    progress::Bar,
};

/// The model that is meant, and what goes with it. Without a name it is the built-in one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Source(pub LoadOptions);

impl From<String> for Source {
    fn from(name: String) -> Self {
        Self(LoadOptions { model: Some(name), ..LoadOptions::default() })
    }
}

impl Source {
    /// Returns what it is named; none: the built-in model.
    pub fn name(&self) -> Option<&str> {
        self.0.model.as_deref()
    }

    /// Returns whether it is a GGUF file on this machine.
    pub fn is_gguf(&self) -> bool {
        let Some(argument) = self.name() else { return false };
        matches!(resolve(argument), Ok(ModelLocation::Gguf(_)))
    }

    /// Files of the model, fetched if they are not on this machine.
    pub fn files(&self, screen: Screen) -> anyhow::Result<ModelFiles> {
        let LoadOptions { family, adapter, adapter_use, .. } = &self.0;
        let Some(name) = self.name() else { return Ok(demask::demo::files()) };
        let _watched = Watched::begin();
        let files = locate(name, &env::hub(), &mut fetching(screen));
        interrupt::check()?;
        let choice = adapter_use.unwrap_or_default();
        let adapter = adapter.as_ref().map(|name| locate_adapter(name, &env::hub(), &mut fetching(screen)));
        interrupt::check()?;
        let adapter = adapter.transpose()?.map(|files| AdapterFiles { files, choice });
        Ok(files?.of_family(family.clone()).with_adapter(adapter))
    }

    /// Checkpoint of the model, opened and checked, weights not read.
    pub fn checkpoint(&self, screen: Screen) -> anyhow::Result<Checkpoint> {
        Ok(Checkpoint::open(self.files(screen)?)?)
    }

    /// The type that most of its weights are stored in.
    pub fn stored_dtype(&self, screen: Screen) -> anyhow::Result<Dtype> {
        Ok(self.checkpoint(screen)?.weights().main_dtype())
    }

    /// The model with its weights where they are.
    pub fn open(&self, screen: Screen) -> anyhow::Result<Opened> {
        let opened = match self.name() {
            None => Opened::demo()?,
            Some(_) => Opened::open(self.files(screen)?)?,
        };
        warn(opened.info(), screen);
        Ok(opened)
    }
}

/// Shows how far downloads are, a bar for each file, until somebody presses Ctrl-C.
pub fn fetching(screen: Screen) -> impl FnMut(FetchProgress<'_>) -> bool {
    let mut current: Option<(String, Bar)> = None;
    move |progress| {
        if current.as_ref().is_none_or(|(file, _)| file != progress.file) {
            let bar = Bar::bytes(screen, &format!("fetching {}", progress.file));
            current = Some((progress.file.to_owned(), bar));
        }
        if let Some((_, bar)) = &current {
            bar.set(progress.done, progress.total.unwrap_or(progress.done));
        }
        !interrupt::requested()
    }
}

/// Loads a model, and its guide, if there is memory for them and for sequences with these needs.
pub fn load(opened: Opened, device: &DeviceOptions, needs: &[Need], screen: Screen) -> anyhow::Result<Model> {
    let _watched = Watched::begin();
    let widened = opened.widened(device)?;
    if !widened.is_empty() {
        let widened: Vec<_> = widened.iter().map(output::widened).collect();
        screen.remark(&format!("warning: weights take more memory than in their file: {}", widened.join("; ")));
    }
    let mut current: Option<(String, Bar)> = None;
    let model = opened.load(device, needs, &mut |LoadProgress { name, done, total, .. }| {
        if current.as_ref().is_none_or(|(loading, _)| loading != name) {
            current = Some((name.to_owned(), Bar::bytes(screen, &format!("loading {name}"))));
        }
        if let Some((_, bar)) = &current {
            bar.set(done, total);
        }
        !interrupt::requested()
    });
    interrupt::check()?;
    Ok(model?)
}

/// Prints warnings about a checkpoint.
fn warn(info: &ModelInfo, screen: Screen) {
    for warning in info.warnings() {
        screen.remark(&format!("warning: {warning}"));
    }
}
