//! Meaning of a model argument: a directory, a GGUF file, or a model of a hub, as people type and paste it.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use crate::{
    CheckpointError, HubOptions,
    gguf::parts::{self, GgufModel, Named},
    names::{INDEX, SINGLE, is_named_gguf, is_plain, is_repository, is_revision},
};

/// Hosts of the hub that is taken where none is named.
const HOSTS: [&str; 3] = ["huggingface.co", "hf.co", "www.huggingface.co"];

/// Beginning of the paths of the demo models in a clone.
const DEMOS: &str = "demo/demo-";

/// Levels of folders in a repository that GGUF files are looked for in.
const DEEPEST: usize = 3;

/// Meaning of a model argument.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelLocation {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A GGUF file of this machine.
    Gguf(PathBuf),
    /// A repository of the hub.
    Hub {
        /// `org/name`.
        repository: String,
        /// Branch, tag or commit: what follows `@` in the argument.
        revision: Option<String>,
        /// Weights that are meant, of several.
        choice: HubChoice,
    },
}

/// Weights that are meant, of those that a repository has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HubChoice {
    /// Nothing was said: safetensors, else the only GGUF file.
    #[default]
    Any,
    /// The GGUF file of this quantisation, `Q4_K_M` for example, in any case.
    Type(String),
    /// This GGUF file.
    File(String),
}

/// Resolves an argument to a directory, a GGUF file or a model of a hub. A path that exists on this machine goes first. A
/// directory without safetensors that has one GGUF file is that file.
///
/// A model of a hub is `org/name`, `org/name:TYPE` or `org/name/FILE.gguf`, with `@revision` at its end. The hub's host may go
/// before it, and addresses of its pages are taken: `https://huggingface.co/org/name/blob/main/FILE.gguf`.
///
/// # Errors
/// If it means none of them, or a directory has several GGUF files and nothing else.
pub fn resolve(argument: &str, options: &HubOptions) -> Result<ModelLocation, CheckpointError> {
    let path = Path::new(argument);
    if path.is_dir() {
        return of_directory(path);
    }
    if path.is_file() {
        if is_named_gguf(argument) || is_gguf(path) {
            return Ok(ModelLocation::Gguf(path.to_path_buf()));
        }
        return Err(CheckpointError::NotADirectory { path: argument.to_owned() });
    }
    if argument.starts_with(DEMOS) {
        return Err(CheckpointError::NoDemoFolder { argument: argument.to_owned() });
    }
    // A file of a folder that is here is a mistake in its name, and no model of a hub.
    let beside = path.parent().is_some_and(|folder| folder.is_dir() && !folder.as_os_str().is_empty());
    let location = if is_named_gguf(argument) && beside { None } else { of_hub(argument, options)? };
    location.ok_or_else(|| CheckpointError::NoSuchModel { argument: argument.to_owned() })
}

fn of_directory(path: &Path) -> Result<ModelLocation, CheckpointError> {
    let directory = ModelLocation::Directory(path.to_path_buf());
    if [SINGLE, INDEX].iter().any(|file| path.join(file).exists()) {
        return Ok(directory);
    }
    let mut models = parts::models(files_in(path, "", 0));
    if models.len() > 1 {
        let found = parts::listed(&models, Named::ByFile, None);
        return Err(CheckpointError::SeveralFiles { path: path.display().to_string(), found });
    }
    Ok(models.pop().map_or(directory, |model| ModelLocation::Gguf(path.join(model.first()))))
}

/// Returns the models in GGUF files of a directory and of the folders in it, by name.
pub fn gguf_models(directory: &Path) -> Vec<GgufModel> {
    parts::models(files_below(directory))
}

/// Files of a directory and of the folders in it, with their sizes.
pub(crate) fn files_below(directory: &Path) -> Vec<(String, Option<u64>)> {
    files_in(directory, "", DEEPEST)
}

/// Returns the regular files of a directory with their sizes, and those of its folders up to `levels` levels down.
fn files_in(directory: &Path, prefix: &str, levels: usize) -> Vec<(String, Option<u64>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Ok(about) = fs::metadata(entry.path()) else { continue };
        if about.is_file() {
            files.push((format!("{prefix}{name}"), Some(about.len())));
        } else if about.is_dir() && levels > 0 {
            files.extend(files_in(&entry.path(), &format!("{prefix}{name}/"), levels - 1));
        }
    }
    files
}

/// Reads an argument as the name of a hub. Returns nothing for another form.
fn of_hub(argument: &str, options: &HubOptions) -> Result<Option<ModelLocation>, CheckpointError> {
    let (name, pasted) = without_host(argument, options)?;
    if pasted && let Some(location) = of_page(name) {
        return Ok(Some(location));
    }
    let (name, revision) = match name.trim_end_matches('/').split_once('@') {
        Some((name, revision)) => (name, Some(revision.to_owned())),
        None => (name.trim_end_matches('/'), None),
    };
    if !revision.as_deref().is_none_or(is_revision) {
        return Ok(None);
    }
    let (name, kind) = match name.split_once(':') {
        Some((name, kind)) => (name, Some(kind)),
        None => (name, None),
    };
    let (repository, file) = repository_and_file(name);
    let choice = match (kind, file) {
        (None, None) => HubChoice::Any,
        (Some(kind), None) if is_plain(kind) => HubChoice::Type(kind.to_owned()),
        (None, Some(file)) if is_named_gguf(file) && is_revision(file) => HubChoice::File(file.to_owned()),
        _ => return Ok(None),
    };
    // `models/x.gguf` is a path that is missing.
    let is_name = is_repository(repository) && !(choice == HubChoice::Any && is_named_gguf(repository));
    Ok(is_name.then(|| ModelLocation::Hub { repository: repository.to_owned(), revision, choice }))
}

/// The address of a page or of a file: `org/name/blob/REVISION/FILE.gguf`, `resolve` or `tree`.
fn of_page(path: &str) -> Option<ModelLocation> {
    let path = path.split(['?', '#']).next()?.trim_end_matches('/');
    let (repository, rest) = repository_and_file(path);
    let (kind, rest) = rest?.split_once('/')?;
    let (revision, file) = match (kind, rest.split_once('/')) {
        ("tree", None) => (rest, None),
        ("blob" | "resolve", Some((revision, file))) => (revision, Some(file)),
        _ => return None,
    };
    let revision = revision.replace("%2F", "/").replace("%2f", "/");
    let choice = match file {
        Some(file) if is_named_gguf(file) && is_revision(file) => HubChoice::File(file.to_owned()),
        Some(_) => return None,
        None => HubChoice::Any,
    };
    let is_name = is_repository(repository) && is_revision(&revision);
    is_name.then(|| ModelLocation::Hub { repository: repository.to_owned(), revision: Some(revision), choice })
}

/// `org/name`, and what follows it.
fn repository_and_file(path: &str) -> (&str, Option<&str>) {
    match path.match_indices('/').nth(1) {
        Some((at, _)) => (&path[..at], Some(&path[at + 1..])),
        None => (path, None),
    }
}

/// What follows the host of the hub, and whether there was one.
fn without_host<'a>(argument: &'a str, options: &HubOptions) -> Result<(&'a str, bool), CheckpointError> {
    let own = options.endpoint.split_once("://").map_or(&*options.endpoint, |(_, own)| own);
    let (scheme, address) = argument.split_once("://").map_or((None, argument), |(scheme, rest)| (Some(scheme), rest));
    let hosts = HOSTS.into_iter().chain([own]);
    let mut rests = hosts.filter_map(|host| {
        let start = address.get(..host.len()).filter(|start| start.eq_ignore_ascii_case(host))?;
        address[start.len()..].strip_prefix('/')
    });
    match (rests.next(), scheme) {
        (Some(rest), None) => Ok((rest, true)),
        (Some(rest), Some(scheme)) if ["http", "https"].contains(&scheme) => Ok((rest, true)),
        (_, Some(_)) => {
            let (argument, endpoint) = (argument.to_owned(), options.endpoint.clone());
            Err(CheckpointError::ForeignAddress { argument, endpoint })
        }
        (None, None) => Ok((argument, false)),
    }
}

/// Reports whether a file starts as GGUF files do, whatever it is called.
fn is_gguf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"GGUF"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(argument: &str) -> String {
        let options = HubOptions::new("http://mirror.example:8080/hf", "/nowhere");
        match resolve(argument, &options) {
            Ok(ModelLocation::Hub { repository, revision, choice }) => {
                let choice = match choice {
                    HubChoice::Any => String::new(),
                    HubChoice::Type(kind) => format!(" type {kind}"),
                    HubChoice::File(file) => format!(" file {file}"),
                };
                format!(
                    "{repository}{choice}{}",
                    revision.map_or_else(String::new, |revision| format!(" at {revision}"))
                )
            }
            Ok(other) => format!("{other:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn names_of_a_hub_are_read_as_other_programs_write_them() {
        for (argument, meaning) in [
            ("org/name", "org/name"),
            ("org/name@refs/pr/1", "org/name at refs/pr/1"),
            ("org/name:Q4_K_M", "org/name type Q4_K_M"),
            ("org/name:q8_0@v2", "org/name type q8_0 at v2"),
            ("org/name/a.gguf", "org/name file a.gguf"),
            ("org/name/Q4/a-00001-of-00002.GGUF@v2", "org/name file Q4/a-00001-of-00002.GGUF at v2"),
            ("hf.co/org/name", "org/name"),
            ("hf.co/org/name:Q4_K_M", "org/name type Q4_K_M"),
            ("huggingface.co/org/name/a.gguf", "org/name file a.gguf"),
            ("https://huggingface.co/org/name", "org/name"),
            ("https://HuggingFace.co/org/name/", "org/name"),
            ("https://huggingface.co/org/name:Q4_K_M", "org/name type Q4_K_M"),
            ("https://huggingface.co/org/name/tree/v2", "org/name at v2"),
            ("https://huggingface.co/org/name/blob/main/a.gguf", "org/name file a.gguf at main"),
            (
                "https://huggingface.co/org/name/resolve/refs%2Fpr%2F1/b/a.gguf?download=true",
                "org/name file b/a.gguf at refs/pr/1",
            ),
            ("http://mirror.example:8080/hf/org/name/resolve/main/a.gguf", "org/name file a.gguf at main"),
            ("mirror.example:8080/hf/org/name:Q8_0", "org/name type Q8_0"),
        ] {
            assert_eq!(read(argument), meaning, "{argument}");
        }
    }

    #[test]
    fn what_no_hub_can_mean_is_refused_in_one_line() {
        for argument in [
            "a.gguf",
            "models/a.gguf",
            "src/hub/a.gguf",
            "org/name:",
            "org/name:Q4:K",
            "org/name/other",
            "org/name/.hidden.gguf",
            "org/name/../a.gguf",
            "org/name/a.gguf:Q4_K_M",
            "org/name@",
            "https://huggingface.co/org",
            "https://huggingface.co/org/name/blob/main/model.safetensors",
        ] {
            let wanted = if argument.rsplit_once('.').is_some_and(|(_, end)| end == "gguf") {
                "there is no such file here, and a file of a hub is org/name/FILE.gguf"
            } else {
                "expected a directory with config.json and safetensors, a GGUF file, or a hub id org/name"
            };
            assert_eq!(read(argument), format!("no model at {argument:?}: {wanted}"));
        }
        let told = "no model at \"demo/demo-sdar\": the demo models are folders of a clone of demask; run this in the clone, give";
        assert!(read("demo/demo-sdar").starts_with(told), "{}", read("demo/demo-sdar"));
        for argument in ["https://example.com/org/name", "ftp://huggingface.co/org/name", "https://huggingface.com/o/n"]
        {
            assert_eq!(
                read(argument),
                format!(
                    "{argument:?} is no address of a hub: expected https://huggingface.co/org/name, or one of \
                     http://mirror.example:8080/hf (HF_ENDPOINT); fetch other files yourself and name the file"
                )
            );
        }
    }
}
