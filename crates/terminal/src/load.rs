//! Loading of a model from a model argument.

use demask::{
    DeviceOptions, ModelInfo, Opened,
    layers::{
        checkpoint::{
            AdapterFiles, Checkpoint, FetchProgress, HubChoice, HubError, ModelFiles, ModelLocation, Survey, Wanted,
            locate, resolve, survey,
        },
        step::SequenceSpec,
        tensor::Dtype,
    },
};
use demask::{LoadOptions, LoadProgress, Model};

use crate::{
    env,
    interrupt::{self, Watched},
    output::{self, Screen},
    progress::Bar,
    room::{Room, free_memory},
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
    /// Returns its name; none: the built-in model.
    pub fn name(&self) -> Option<&str> {
        self.0.model.as_deref()
    }

    /// Returns whether its weights are known to be those of a GGUF file.
    pub fn is_gguf(&self) -> bool {
        let Some(argument) = self.name() else { return false };
        match resolve(argument, &env::hub()) {
            Ok(ModelLocation::Gguf(_)) => true,
            Ok(ModelLocation::Hub { choice, .. }) => choice != HubChoice::Any,
            _ => false,
        }
    }

    /// Files of the model, fetched if they are not on this machine. Where there is no room for them, they are refused before.
    pub fn files(&self, screen: Screen) -> anyhow::Result<ModelFiles> {
        let Some(name) = self.name() else { return Ok(demask::demo::files()) };
        let _watched = Watched::begin();
        let found = surveyed(name, screen)?;
        let adapter = self.adapter(screen)?;
        let whole = |files: ModelFiles| files.of_family(self.0.family.clone()).with_adapter(adapter.clone());
        if found.missing_files == 0 {
            return Ok(whole(found.files));
        }
        let device = self.0.device_options(&DeviceOptions { tier: env::tier()?, ..DeviceOptions::default() });
        let checkpoint = Checkpoint::open(whole(found.files.clone()))?;
        let room = Room::of(name, &found, Some(&checkpoint), &device)?;
        room.check_memory(&checkpoint, &device)?;
        room.check_disk()?;
        room.report(screen);
        Ok(whole(answered(locate(name, Wanted::Model, &env::hub(), &mut fetching(screen)))?))
    }

    /// Checkpoint of the model, opened and checked; of one on a hub only the headers of weights are fetched.
    pub fn headers(&self, screen: Screen) -> anyhow::Result<Checkpoint> {
        let Some(name) = self.name() else { return self.checkpoint(screen) };
        let _watched = Watched::begin();
        let files = surveyed(name, screen)?.files.of_family(self.0.family.clone());
        Ok(Checkpoint::open(files.with_adapter(self.adapter(screen)?))?)
    }

    /// The adapter, which is fetched.
    fn adapter(&self, screen: Screen) -> anyhow::Result<Option<AdapterFiles>> {
        let choice = self.0.adapter_use.unwrap_or_default();
        let fetch = |name: &String| answered(locate(name, Wanted::Adapter, &env::hub(), &mut fetching(screen)));
        Ok(self.0.adapter.as_ref().map(fetch).transpose()?.map(|files| AdapterFiles { files, choice }))
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

/// Returns the survey of a model: its facts without its weights.
pub fn surveyed(name: &str, screen: Screen) -> anyhow::Result<Survey> {
    answered(survey(name, &env::hub(), &mut fetching(screen)))
}

/// Returns a hub's answer, unless Ctrl-C was pressed meanwhile. Errors that list files say which of them fit in the
/// memory.
pub fn answered<T>(fetched: Result<T, HubError>) -> anyhow::Result<T> {
    interrupt::check()?;
    Ok(fetched.map_err(|error| match free_memory() {
        Some(free) => error.with_free_memory(free),
        None => error,
    })?)
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
pub fn load(opened: Opened, device: &DeviceOptions, needs: &[SequenceSpec], screen: Screen) -> anyhow::Result<Model> {
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
