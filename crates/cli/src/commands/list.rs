//! `demask list`: the models in the hub's cache, and whether there is memory for them.

use std::{
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use demask::{
    DeviceOptions,
    layers::checkpoint::{Checkpoint, GgufModel, ModelFiles, gguf_models},
};
use demask_terminal::{
    env::hub,
    room::{footprint, free_memory},
};
use serde::Serialize;

use crate::{output, settings::Settings};

/// A line of the list.
#[derive(Serialize)]
struct Line {
    /// Name as it is typed: `org/name`, `org/name:Q4_K_M` or `org/name/FILE.gguf`, of another branch than `main` with
    /// `@branch` after it.
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
    Ok(output::text(&describe(&lines))?)
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

/// Returns the models of a repository, one or more for each branch that was fetched.
fn of_repository(id: &str, place: &Path) -> Vec<(String, Option<PathBuf>)> {
    let references = fs::read_dir(place.join("refs")).into_iter().flatten();
    let branches: Vec<String> = references.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    if branches.is_empty() {
        // A reference is written last: a download that broke off has none. Neither has a model of which only the description
        // was read.
        return if has_begun(place) { vec![(id.to_owned(), None)] } else { Vec::new() };
    }
    branches.iter().flat_map(|branch| of_branch(id, branch, place)).collect()
}

/// Returns whether contents of a repository are here that are no small files, or a part of some.
fn has_begun(place: &Path) -> bool {
    let blobs = fs::read_dir(place.join("blobs")).into_iter().flatten().flatten();
    let is_part = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|extension| extension == "part");
    let is_safetensors =
        |entry: fs::DirEntry| entry.path().extension().is_some_and(|extension| extension == "safetensors");
    let has_weights = |commit: &Path| {
        let safetensors = fs::read_dir(commit).into_iter().flatten().flatten().any(is_safetensors);
        safetensors || !gguf_models(commit).is_empty()
    };
    let mut commits = fs::read_dir(place.join("snapshots")).into_iter().flatten().flatten();
    blobs.into_iter().any(|entry| is_part(&entry)) || commits.any(|commit| has_weights(&commit.path()))
}

/// Returns the models of a branch: each one in GGUF files, and the directory's own.
fn of_branch(id: &str, branch: &str, place: &Path) -> Vec<(String, Option<PathBuf>)> {
    let suffix = if branch == "main" { String::new() } else { format!("@{branch}") };
    let commit = fs::read_to_string(place.join("refs").join(branch)).ok();
    let commit = commit.filter(|commit| commit.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let directory = commit.map(|commit| place.join("snapshots").join(commit));
    let has = |file: &str| directory.as_ref().is_some_and(|directory| directory.join(file).exists());
    if has("adapter_config.json") && !has("config.json") {
        return Vec::new();
    }
    let files = directory.as_deref().map(gguf_models).unwrap_or_default();
    let name = |model: &GgufModel| match model.quantisation() {
        Some(kind) => format!("{id}:{kind}{suffix}"),
        None => format!("{id}/{}{suffix}", model.first()),
    };
    let path = |model: &GgufModel| directory.as_ref().map(|directory| directory.join(model.first()));
    let mut models: Vec<_> = files.iter().map(|model| (name(model), path(model))).collect();
    if models.is_empty() || has("model.safetensors") || has("model.safetensors.index.json") {
        models.push((format!("{id}{suffix}"), directory.clone()));
    }
    models
}

fn line(name: String, path: Option<PathBuf>, device: &DeviceOptions) -> Line {
    let bytes = path.as_deref().map_or(0, bytes);
    let mut line = Line { name, path, bytes, family: None, needs: None, fits: None, broken: None };
    match needs(&mut line, device) {
        Ok(needs) => {
            (line.needs, line.fits) = (Some(needs), free_memory().map(|free| needs <= free));
        }
        Err(error) => line.broken = Some(format!("{error:#}")),
    }
    line
}

/// Returns the bytes that a model takes with an answer, as the loader checks them.
fn needs(line: &mut Line, device: &DeviceOptions) -> anyhow::Result<u64> {
    let unfinished = || anyhow!("its download did not end: demask pull {} goes on with it", line.name);
    let path = line.path.as_ref().filter(|path| path.exists()).ok_or_else(unfinished)?;
    let files = if path.is_dir() { ModelFiles::directory(path)? } else { ModelFiles::gguf(path)? };
    let checkpoint = Checkpoint::open(files)?;
    line.family = Some(checkpoint.spec().family.to_string());
    Ok(footprint(&checkpoint, device)?.total())
}

/// Bytes of the files of a directory, links followed, or of a GGUF file with all of its parts.
fn bytes(path: &Path) -> u64 {
    if let Some(folder) = path.parent().filter(|_| path.is_file()) {
        let models = gguf_models(folder);
        let model = models.iter().find(|model| path.file_name().is_some_and(|name| name == model.first()));
        return model.and_then(|model| model.bytes).unwrap_or(0);
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| fs::metadata(entry.path()).ok())
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}

fn describe(lines: &[Line]) -> String {
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
