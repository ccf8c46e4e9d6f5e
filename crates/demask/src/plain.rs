//! Texts that people write in files: prompts, keys, settings, recipes, data. One reader for all of them.

use std::{borrow::Cow, fs, io, path::Path};

/// Reads a text file that a person wrote.
///
/// # Errors
/// If it cannot be read, or is not UTF-8.
pub fn read(path: &Path) -> io::Result<String> {
    decoded(fs::read(path)?)
}

/// The text of such a file's bytes.
///
/// # Errors
/// If they are not UTF-8.
pub fn decoded(bytes: Vec<u8>) -> io::Result<String> {
    let utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    let text = String::from_utf8(bytes).map_err(|error| {
        let what = if utf16 { "it is UTF-16".to_owned() } else { error.utf8_error().to_string() };
        io::Error::new(io::ErrorKind::InvalidData, format!("{what}, expected UTF-8: save it as UTF-8"))
    })?;
    Ok(match clean(&text) {
        Cow::Borrowed(same) if same.len() == text.len() => text,
        other => other.into_owned(),
    })
}

/// A text without the marks of its file: U+FEFF at the start, and line ends other than a line feed.
pub fn clean(text: &str) -> Cow<'_, str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if !text.contains('\r') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_a_file_are_no_part_of_its_text() {
        for written in ["\u{feff}a\r\nb\r\n", "a\rb\r", "a\nb\n", "\u{feff}a\nb\r"] {
            assert_eq!(decoded(written.as_bytes().to_vec()).unwrap(), "a\nb\n", "{written:?}");
        }
        // Only the first is a mark.
        assert_eq!(clean("\u{feff}\u{feff}a"), "\u{feff}a");
        assert_eq!(clean("a\u{feff}"), "a\u{feff}");
    }

    #[test]
    fn what_is_not_utf8_is_refused_with_what_to_do() {
        let message = decoded(b"\xff\xfea\0".to_vec()).unwrap_err().to_string();
        assert_eq!(message, "it is UTF-16, expected UTF-8: save it as UTF-8");
        let message = decoded(b"a\xe9".to_vec()).unwrap_err().to_string();
        assert!(message.ends_with(", expected UTF-8: save it as UTF-8"), "{message}");
    }
}
