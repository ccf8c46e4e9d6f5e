//! What makes the results of a call: this program, this machine, and where each row runs.

use demask::{DeviceOptions, UnusableDevice};
use demask_eval::run::MadeBy;

/// Returns what makes results here; `rows` has the device of each row by its name in records.
pub fn made<'a>(
    batch: usize,
    rows: impl Iterator<Item = (&'a str, &'a DeviceOptions)>,
) -> Result<MadeBy, UnusableDevice> {
    let commit = option_env!("DEMASK_COMMIT").map(str::to_owned);
    let dirty = option_env!("DEMASK_CHANGED") == Some("true");
    Ok(MadeBy { commit, dirty, ..MadeBy::here(std::env::current_exe().ok().as_deref(), batch, rows)? })
}

/// Returns the command line as it was typed, as far as a shell shows it.
pub fn command() -> String {
    let quoted = |word: String| {
        let plain = |letter: char| letter.is_alphanumeric() || "-_./:=,+@%".contains(letter);
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    std::iter::once(name).chain(words).map(quoted).collect::<Vec<_>>().join(" ")
}
