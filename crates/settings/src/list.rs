use std::fmt;

/// Texts that are separated by commas where they are typed, and a list in JSON and TOML.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List(pub Vec<String>);

impl List {
    /// Splits a text at its commas. Empty pieces are left out.
    pub fn of(text: &str) -> Self {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        Self(words.map(str::to_owned).collect())
    }
}

impl fmt::Display for List {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join(","))
    }
}
