//! Names of files, repositories and revisions.

use std::path::Path;

pub(crate) const SINGLE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// Reports whether a name ends as those of GGUF files do.
pub(crate) fn is_named_gguf(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// Reports whether a text is `org/name` as the hub allows it.
pub(crate) fn is_repository(text: &str) -> bool {
    text.split_once('/').is_some_and(|(organisation, name)| is_plain(organisation) && is_plain(name))
}

/// Reports whether a text can name a revision, or a file of a repository, without leaving its directory.
pub(crate) fn is_revision(text: &str) -> bool {
    !text.is_empty() && text.len() <= 200 && text.split('/').all(is_plain)
}

/// Reports whether a text is one safe component of a path.
pub(crate) fn is_plain(text: &str) -> bool {
    let allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
    !text.is_empty() && text.len() <= 200 && text.chars().all(allowed) && !text.starts_with('.')
}
