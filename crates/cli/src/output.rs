//! The only way to standard output and standard error.

use std::io::{self, IsTerminal, Write};

use demask::internals::KeptMatrices;
use serde::Serialize;

use crate::env;

/// Destination of each kind of output.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// Standard output holds JSON and nothing else.
    pub json: bool,
    /// Flag for errors alone on standard error.
    pub quiet: bool,
}

impl Screen {
    /// Reports whether progress bars are drawn: on a terminal, unless nobody wants to see them.
    pub fn has_bars(self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// A remark that is not part of the answer.
    pub fn remark(self, text: &str) {
        if !self.quiet {
            note(text);
        }
    }
}

/// Reports whether standard output is a terminal.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Reports whether standard error shows colours.
pub fn stderr_has_colour() -> bool {
    io::stderr().is_terminal() && env::wants_colour()
}

/// Text as it is, at once.
pub fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| io::Error::new(error.kind(), format!("cannot write to standard output: {error}")))
}

/// One line.
pub fn line(line: &str) -> io::Result<()> {
    text(&format!("{line}\n"))
}

/// One JSON document on one line.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(line(&serde_json::to_string(value)?)?)
}

/// One line on standard error. If that fails, there is nowhere to report it.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Matrices that take more memory than in their file.
pub fn widened(matrices: &KeptMatrices) -> String {
    let KeptMatrices { stored, kept, tensors, stored_bytes, bytes: taken, .. } = matrices;
    let (stored_bytes, taken) = (bytes(*stored_bytes), bytes(*taken));
    format!("{} of {stored}, {stored_bytes} in the file, as {kept} in {taken}", counted(*tensors, "tensor"))
}

/// Bytes for people.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// Count with its noun.
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::{bytes, counted};

    #[test]
    fn bytes_are_short() {
        assert_eq!([0, 1023, 1536, 5 << 30].map(bytes), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
    }

    #[test]
    fn one_has_no_plural() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "prompt")), ["0 prompts", "1 prompt", "2 prompts"]);
    }
}
