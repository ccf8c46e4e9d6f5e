//! From a model argument to a model.

use demask::{
    DeviceOptions, Model, Prompter,
    checkpoint::{Checkpoint, ModelFiles, locate},
    tensor::Dtype,
};

use crate::{
    env,
    interrupt::{self, Watched},
    output::Screen,
    progress::Bar,
};

/// What is meant by a model argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// No model named.
    Demo,
    /// A directory or the id of a hub.
    Named(String),
}

impl Source {
    /// Its files, fetched if they are not on this machine.
    pub fn files(&self, screen: Screen) -> anyhow::Result<ModelFiles> {
        let Self::Named(argument) = self else { return Ok(demask::demo::files()) };
        let mut current: Option<(String, Bar)> = None;
        let _watched = Watched::new();
        let files = locate(argument, &env::hub(), &mut |progress| {
            if current.as_ref().is_none_or(|(file, _)| file != progress.file) {
                let bar = Bar::bytes(screen, &format!("fetching {}", progress.file));
                current = Some((progress.file.to_owned(), bar));
            }
            if let Some((_, bar)) = &current {
                bar.set(progress.done, progress.total.unwrap_or(progress.done));
            }
            !interrupt::requested()
        });
        interrupt::check()?;
        Ok(files?)
    }

    /// Its checkpoint, opened and checked, weights not read.
    pub fn checkpoint(&self, screen: Screen) -> anyhow::Result<Checkpoint> {
        Ok(Checkpoint::open(self.files(screen)?)?)
    }

    /// The type that most of its weights are stored in.
    pub fn stored_dtype(&self, screen: Screen) -> anyhow::Result<Dtype> {
        let stored = self.checkpoint(screen)?.weights().dtypes();
        Ok(stored.into_iter().max_by_key(|&(_, bytes)| bytes).map_or(Dtype::Bf16, |(dtype, _)| dtype))
    }

    /// The model without its weights.
    pub fn prompter(&self, screen: Screen) -> anyhow::Result<Prompter> {
        let prompter = match self {
            Self::Demo => Prompter::demo()?,
            Self::Named(_) => Prompter::open(self.files(screen)?)?,
        };
        warn(&prompter, screen);
        Ok(prompter)
    }

    /// The model, loaded.
    pub fn model(&self, device: &DeviceOptions, screen: Screen) -> anyhow::Result<Model> {
        let files = self.files(screen)?;
        let _watched = Watched::new();
        let model = match self {
            Self::Demo => Model::demo(device),
            Self::Named(_) => {
                let bar = Bar::bytes(screen, &format!("loading {}", files.name()));
                Model::load(files, device, &mut |done, total| {
                    bar.set(done, total);
                    !interrupt::requested()
                })
            }
        };
        interrupt::check()?;
        let model = model?;
        warn(&model, screen);
        Ok(model)
    }
}

/// Tells what is odd about a checkpoint.
fn warn(prompter: &Prompter, screen: Screen) {
    for warning in prompter.warnings() {
        screen.remark(&format!("warning: {warning}"));
    }
}
