//! Names that people type: finding one in a list, and the nearest one when it is not there.

use std::fmt;

/// A name that is not in its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    /// Kind of thing that was named, for example `decoder`.
    pub what: &'static str,
    /// Name that was found.
    pub found: String,
    /// Known names.
    pub known: Vec<&'static str>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} \"{}\"", self.what, in_a_line(&self.found))?;
        if self.known.is_empty() {
            return f.write_str(": none exist here");
        }
        if let Some(nearest) = nearest(&self.found, &self.known) {
            write!(f, ", did you mean \"{nearest}\"?")?;
        }
        write!(f, " (known: {})", self.known.join(", "))
    }
}

impl std::error::Error for UnknownName {}

/// Shortens what somebody typed for a message: one line, at most 100 characters.
pub fn in_a_line(text: &str) -> String {
    const LONGEST: usize = 100;
    let mut line = String::new();
    for character in text.chars().take(LONGEST) {
        if character.is_control() { line.extend(character.escape_debug()) } else { line.push(character) }
    }
    if text.chars().nth(LONGEST).is_some() {
        line.push_str("...");
    }
    line
}

/// Returns whether two names are the same, whatever their case, with hyphens or underscores.
pub const fn same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut index = 0;
    while index < left.len() && index < right.len() && fold(left[index]) == fold(right[index]) {
        index += 1;
    }
    index == left.len() && index == right.len()
}

/// The known name at the smallest edit distance, if it is near enough to be meant.
pub fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    // Of names that are equally near, the one with the same first letter is meant: first letters are seldom mistyped.
    let starts_alike = |name: &str| name.bytes().next().map(fold) == found.bytes().next().map(fold);
    let (distance, _, name) =
        known.iter().map(|name| (edit_distance(found, name), !starts_alike(name), *name)).min()?;
    // Two letters, or a third of them, may be wrong, but never all: beyond that a suggestion is noise.
    (distance <= (name.len() / 3).max(2) && distance < found.len()).then_some(name)
}

const fn fold(byte: u8) -> u8 {
    if byte == b'-' { b'_' } else { byte.to_ascii_lowercase() }
}

/// Levenshtein's distance over folded bytes.
fn edit_distance(left: &str, right: &str) -> usize {
    // Hostile input must not cost quadratic time: no known name is longer than this.
    const LONGEST: usize = 64;
    if left.len() > LONGEST || right.len() > LONGEST {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().map(fold).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.bytes().map(fold).enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_one_line_whatever_was_typed() {
        let told =
            |found: &str| UnknownName { what: "decoder", found: found.to_owned(), known: vec!["ar"] }.to_string();
        assert_eq!(told("a\nb\u{1b}"), "unknown decoder \"a\\nb\\u{1b}\" (known: ar)");
        assert!(told(&"x".repeat(10_000)).len() < 200);
    }

    #[test]
    fn nearest_forgives_a_typo_and_no_more() {
        let known = ["static", "threshold", "entropy_bounded", "ar"];
        assert_eq!(nearest("statc", &known), Some("static"));
        assert_eq!(nearest("Entropy-Bound", &known), Some("entropy_bounded"));
        assert_eq!(nearest("banana", &known), None);
        assert_eq!(nearest("tua", &["sub", "tau"]), Some("tau"), "of two equally near ones");
        assert_eq!(nearest(&"x".repeat(10_000), &known), None);
    }

    #[test]
    fn message_lists_what_is_known() {
        let error = UnknownName { what: "cache", found: "blok".into(), known: vec!["none", "block"] };
        assert_eq!(error.to_string(), "unknown cache \"blok\", did you mean \"block\"? (known: none, block)");
    }
}
