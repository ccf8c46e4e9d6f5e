//! Texts that people name or pipe: prompts, conversations, tokens. One reader with one bound.

use std::{
    fs::File,
    io::{self, IsTerminal, Read},
    path::Path,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use anyhow::Context;
use demask::plain;

use crate::output::Screen;

/// Most bytes of a text: more than any context holds, and little enough for every machine.
const MOST: u64 = 64 << 20;
/// Time after which a pipe that stays open is named.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns whether a path, or a prompt, names standard input.
pub fn is_standard_input(name: &Path) -> bool {
    name.as_os_str() == "-"
}

/// Reads a text file, or standard input for `-`.
///
/// # Errors
/// If it cannot be read, is no text, or has more than 64 MiB.
pub fn read(path: &Path) -> anyhow::Result<String> {
    if is_standard_input(path) { bounded(io::stdin()).context("cannot read standard input") } else { read_file(path) }
}

/// Reads a text file.
///
/// # Errors
/// As [`read`].
pub fn read_file(path: &Path) -> anyhow::Result<String> {
    File::open(path).and_then(bounded).with_context(|| format!("cannot read {}", path.display()))
}

/// Reads the text that was piped to a command: the only one, or a second one if `beside` is set. None where there is no
/// text.
///
/// The only text is read from any standard input that is no terminal. A second text is read from a pipe or a file
/// alone: many programs start others with a socket or a device that is never written to. A pipe is read to its end,
/// however long that takes, since without its text the answer would be another. A line on standard error names the
/// wait.
///
/// # Errors
/// As [`read`].
pub fn piped(beside: bool, screen: Screen) -> anyhow::Result<Option<String>> {
    if io::stdin().is_terminal() || beside && !is_pipe_or_file() {
        return Ok(None);
    }
    let (done, waits) = channel::<()>();
    thread::spawn(move || {
        if waits.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            screen
                .remark("waiting for the end of standard input, which is a pipe: where nothing comes, add < /dev/null");
        }
    });
    let text = bounded(io::stdin()).context("cannot read standard input")?;
    drop(done);
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

#[cfg(unix)]
fn is_pipe_or_file() -> bool {
    use std::os::{fd::AsFd, unix::fs::FileTypeExt};
    let own = io::stdin().as_fd().try_clone_to_owned();
    let metadata = own.and_then(|own| File::from(own).metadata());
    metadata.is_ok_and(|metadata| metadata.is_file() || metadata.file_type().is_fifo())
}

/// Elsewhere all but terminals are read: a device without text is empty.
#[cfg(not(unix))]
fn is_pipe_or_file() -> bool {
    true
}

/// Reads a text to its end.
fn bounded(source: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    let refused = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if source.take(MOST + 1).read_to_end(&mut bytes)? as u64 > MOST {
        return Err(refused(format!("it has more than {} MiB, expected a text of that at most", MOST >> 20)));
    }
    let text = plain::decoded(bytes)?;
    match text.find('\0') {
        Some(place) => Err(refused(format!("byte {place} is 0, expected text"))),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_or_never_ends_is_refused() {
        let refusal = |bytes: &[u8]| bounded(bytes).unwrap_err().to_string();
        assert_eq!(refusal(b"ab\0c"), "byte 2 is 0, expected text");
        assert!(refusal(b"a\xff").ends_with("expected UTF-8: save it as UTF-8"));
        let endless = bounded(io::repeat(b'a')).unwrap_err().to_string();
        assert_eq!(endless, "it has more than 64 MiB, expected a text of that at most");
        assert_eq!(bounded(&b"\xef\xbb\xbfa\r\nb"[..]).unwrap(), "a\nb");
    }
}
