//! `demask list`: the models in the hub's cache, and whether there is memory for them.

use std::{
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use demask::{
    DeviceOptions, Footprint,
    layers::{
        checkpoint::{Checkpoint, ModelFiles},
        cpu::available_memory,
        step::SequenceNeeds,
    },
};
use demask_terminal::env::hub;
use serde::Serialize;

use crate::{output, settings::Settings};

/// Positions of the answer that a model must have memory for.
const POSITIONS: usize = 1000;

/// A line of the list.
#[derive(Serialize)]
struct Line {
    /// Name as it is typed: `org/name`, of another branch than `main` `org/name@branch`.
    name: String,
    path: Option<PathBuf>,
    /// Bytes that its files take.
    bytes: u64,
    /// Family; none of a broken one.
    family: Option<String>,
    /// Bytes of memory for its weights and an answer.
    needs: Option<u64>,
    /// Whether that much memory is free.
    fits: Option<bool>,
    /// Reason why it cannot be used, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    broken: Option<String>,
}

/// Runs the command.
pub fn run(settings: &Settings) -> anyhow::Result<()> {
    let (cache, device) = (hub().cache, settings.device()?);
    let mut lines: Vec<Line> =
        cached(&cache)?.into_iter().map(|(name, directory)| line(name, directory, &device)).collect();
    lines.sort_by(|one, other| one.name.cmp(&other.name));
    if settings.screen.json {
        return output::json(&lines);
    }
    if lines.is_empty() {
        settings.screen.remark(&format!("no model in {}: demask pull ORG/NAME fetches one", cache.display()));
    }
    Ok(output::text(&told(&lines))?)
}

/// Returns the models of a cache, each with the directory of its files if its download ended. Adapters are left out.
fn cached(cache: &Path) -> anyhow::Result<Vec<(String, Option<PathBuf>)>> {
    let entries = match fs::read_dir(cache) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot read {}", cache.display()))?,
    };
    let mut models = Vec::new();
    for place in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|place| place.is_dir()) {
        let name = place.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("models--"));
        if let Some(id) = name.map(|name| name.replacen("--", "/", 1)) {
            models.extend(of_repository(&id, &place));
        }
    }
    Ok(models)
}

/// Returns the models of a repository, one for each branch that was fetched.
fn of_repository(id: &str, place: &Path) -> Vec<(String, Option<PathBuf>)> {
    let references = fs::read_dir(place.join("refs")).into_iter().flatten();
    let branches: Vec<String> = references.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    if branches.is_empty() {
        // A reference is written last: a download that broke off has none.
        return vec![(id.to_owned(), None)];
    }
    let model = |branch: String| {
        let name = if branch == "main" { id.to_owned() } else { format!("{id}@{branch}") };
        let commit = fs::read_to_string(place.join("refs").join(branch)).ok();
        let is_plain = |commit: &String| commit.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (name, commit.filter(is_plain).map(|commit| place.join("snapshots").join(commit)))
    };
    let is_adapter =
        |directory: &PathBuf| directory.join("adapter_config.json").exists() && !directory.join("config.json").exists();
    branches.into_iter().map(model).filter(|(_, directory)| !directory.as_ref().is_some_and(is_adapter)).collect()
}

fn line(name: String, path: Option<PathBuf>, device: &DeviceOptions) -> Line {
    let bytes = path.as_deref().map_or(0, bytes);
    let mut line = Line { name, path, bytes, family: None, needs: None, fits: None, broken: None };
    match needs(&mut line, device) {
        Ok(needs) => {
            // The largest number is that of a system that does not say.
            let free = Some(available_memory()).filter(|&free| free < u64::MAX);
            (line.needs, line.fits) = (Some(needs), free.map(|free| needs <= free));
        }
        Err(error) => line.broken = Some(format!("{error:#}")),
    }
    line
}

/// Returns the bytes that a model takes with an answer, as the loader checks them.
fn needs(line: &mut Line, device: &DeviceOptions) -> anyhow::Result<u64> {
    let unfinished = || anyhow!("its download did not end: demask pull {} goes on with it", line.name);
    let directory = line.path.as_ref().filter(|path| path.is_dir()).ok_or_else(unfinished)?;
    let checkpoint = Checkpoint::open(ModelFiles::directory(directory)?)?;
    line.family = Some(checkpoint.spec().family.to_string());
    let options = device.backend_options(checkpoint.weights().main_dtype())?;
    let answer = SequenceNeeds { positions: POSITIONS, ..SequenceNeeds::default() };
    Ok(Footprint::of_files(checkpoint.spec(), checkpoint.weights(), &options, POSITIONS, &[answer])?.total())
}

/// Bytes of the files of a directory, links followed.
fn bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| fs::metadata(entry.path()).ok())
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}

fn told(lines: &[Line]) -> String {
    let sizes: Vec<String> = lines.iter().map(|line| output::bytes(line.bytes)).collect();
    let name = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
    let size = sizes.iter().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for (line, bytes) in lines.iter().zip(&sizes) {
        let about = match (&line.broken, line.needs) {
            (Some(reason), _) => format!("broken: {reason}"),
            (None, needs) => {
                let fits = match line.fits {
                    Some(true) => ", which are free",
                    Some(false) => ", more than are free",
                    None => "",
                };
                let family = line.family.as_deref().unwrap_or_default();
                format!("{family}, needs {}{fits}", output::bytes(needs.unwrap_or(0)))
            }
        };
        let _ = writeln!(text, "{:<name$}  {bytes:>size$}  {about}", line.name);
    }
    text
}
