//! Settings of a hub's client, and the variables of the hub's own tools that they are read from.

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Sources of models and datasets, and the folder in which they are kept.
#[derive(Clone)]
#[non_exhaustive]
pub struct HubOptions {
    /// Base address of the hub.
    pub endpoint: String,
    /// Directory of the cache (the one with `models--org--name` in it).
    pub cache: PathBuf,
    /// Sets whether only the cache may answer.
    pub offline: bool,
    /// Token for private and gated repositories. The hub alone sees it, not the servers that it redirects to.
    pub token: Option<String>,
    /// Number of times that an interrupted transfer is resumed without any progress in between.
    pub retries: u32,
    /// Longest wait for the next bytes; a connection that stalls must not hold a call for ever.
    pub patience: Duration,
}

impl fmt::Debug for HubOptions {
    /// Formats the options without the token, because options end up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, cache, offline, token, retries, patience } = self;
        let token = token.as_ref().map(|_| "(set)");
        let mut lines = f.debug_struct("HubOptions");
        lines.field("endpoint", endpoint).field("cache", cache).field("offline", offline);
        lines.field("token", &token).field("retries", retries).field("patience", patience).finish()
    }
}

impl HubOptions {
    /// A hub and a cache, online, without a token.
    pub fn new(endpoint: impl Into<String>, cache: impl Into<PathBuf>) -> Self {
        let endpoint = endpoint.into().trim_end_matches('/').to_owned();
        let patience = Duration::from_mins(1);
        Self { endpoint, cache: cache.into(), offline: false, token: None, retries: 5, patience }
    }

    /// Reads the variables of the hub's own tools, as `huggingface_hub` reads them.
    pub fn from_env() -> Self {
        Self::from_lookup(&|name| env::var(name).ok())
    }

    /// Reads the settings from any table of variables; an empty one counts as unset. Paths may begin with `~` and have
    /// `$NAME` and `${NAME}` in them. `HUGGINGFACE_HUB_CACHE`, `HUGGING_FACE_HUB_TOKEN` and `TRANSFORMERS_OFFLINE` are
    /// older names, which the newer ones go before.
    pub fn from_lookup(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let variable = &|name: &str| variable(name).filter(|value| !value.is_empty());
        let first = |names: [&str; 2]| names.into_iter().find_map(variable);
        let on = |value: String| matches!(value.to_ascii_lowercase().as_str(), "1" | "on" | "yes" | "true");
        let path = |text: String| expanded(&text, variable);
        let home = variable("HF_HOME").map_or_else(|| default_home(variable), path);
        let cache = first(["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"]).map_or_else(|| home.join("hub"), path);
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let token_file = variable("HF_TOKEN_PATH").map_or_else(|| home.join("token"), path);
        let token = first(["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]).or_else(|| fs::read_to_string(token_file).ok());
        let token = token.map(|token| token.replace(['\r', '\n'], "").trim().to_owned());
        let token =
            token.filter(|token| !token.is_empty() && !variable("HF_HUB_DISABLE_IMPLICIT_TOKEN").is_some_and(on));
        let offline = first(["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"]).is_some_and(on);
        Self { offline, token, ..Self::new(endpoint, cache) }
    }
}

fn default_home(variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let cache = variable("XDG_CACHE_HOME").map(|text| expanded(&text, variable));
    cache.unwrap_or_else(|| own_home(variable).join(".cache")).join("huggingface")
}

/// The user's directory.
fn own_home(variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    PathBuf::from(variable("HOME").unwrap_or_else(|| ".".to_owned()))
}

/// A path with `~` or `~user` at its start, and then `$NAME` and `${NAME}` anywhere, replaced. What has no value stays.
fn expanded(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let (first, rest) = text.split_at(text.find('/').unwrap_or(text.len()));
    let home = match first.strip_prefix('~') {
        Some("") => Some(own_home(variable)),
        Some(user) => home_of(user),
        None => None,
    };
    let text = home.map_or_else(|| text.to_owned(), |home| format!("{}{rest}", home.display()));
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let (name, length) = name_of(&rest[at + 1..]);
        match name.and_then(variable) {
            Some(value) => out.push_str(&value),
            None => out.push_str(&rest[at..=at + length]),
        }
        rest = &rest[at + 1 + length..];
    }
    PathBuf::from(out + rest)
}

/// The name after a dollar sign, if there is one, and the bytes that it takes.
fn name_of(text: &str) -> (Option<&str>, usize) {
    if let Some(inside) = text.strip_prefix('{') {
        let end = inside.find('}');
        return end.map_or((None, 0), |end| (Some(&inside[..end]), end + 2));
    }
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    (Some(&text[..end]).filter(|name| !name.is_empty()), end)
}

/// The directory of another user of this machine.
fn home_of(user: &str) -> Option<PathBuf> {
    let users = fs::read_to_string(Path::new("/etc/passwd")).ok()?;
    let line = users.lines().find(|line| line.split(':').next() == Some(user))?;
    line.split(':').nth(5).map(PathBuf::from)
}
