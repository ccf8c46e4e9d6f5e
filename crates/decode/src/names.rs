//! Names that people type: finding one in a list, and the nearest one when it is not there.

use std::fmt;

/// A name that is not in its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    /// What was being named, for example `decoder`.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// What is known.
    pub known: Vec<&'static str>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} \"{}\"", self.what, self.found)?;
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

/// The same name whatever its case and whether it is written with hyphens or underscores.
pub fn same(left: &str, right: &str) -> bool {
    left.len() == right.len() && left.bytes().map(fold).eq(right.bytes().map(fold))
}

/// The known name at the smallest edit distance, if it is near enough to be what was meant.
pub fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    let (distance, name) = known.iter().map(|name| (edit_distance(found, name), *name)).min()?;
    // Two letters, or a third of them, may be wrong, but never all: beyond that a suggestion is noise.
    (distance <= (name.len() / 3).max(2) && distance < found.len()).then_some(name)
}

fn fold(byte: u8) -> u8 {
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
    fn nearest_forgives_a_typo_and_no_more() {
        let known = ["static", "threshold", "entropy_bounded", "ar"];
        assert_eq!(nearest("statc", &known), Some("static"));
        assert_eq!(nearest("Entropy-Bound", &known), Some("entropy_bounded"));
        assert_eq!(nearest("banana", &known), None);
        assert_eq!(nearest(&"x".repeat(10_000), &known), None);
    }

    #[test]
    fn message_lists_what_is_known() {
        let error = UnknownName { what: "cache", found: "blok".into(), known: vec!["none", "block"] };
        assert_eq!(error.to_string(), "unknown cache \"blok\", did you mean \"block\"? (known: none, block)");
    }
}
