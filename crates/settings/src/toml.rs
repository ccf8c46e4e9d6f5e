//! TOML whose values know their lines.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use serde_json::Value;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{SettingError, Settings, foreign, names::nearest};

/// A line of a file, or the file as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: String,
    /// Number of the line, from 1; 0 for the whole file.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => out.write_str(&self.file),
            line => write!(out, "{}, line {line}", self.file),
        }
    }
}

impl Place {
    /// Returns an error of this line.
    pub fn refused(&self, why: impl Into<String>) -> FileError {
        FileError { place: self.clone(), why: why.into() }
    }
}

/// A file that cannot be meant as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct FileError {
    /// The line.
    pub place: Place,
    /// The problem.
    pub why: String,
}

/// A file and its text.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    /// The file's path.
    pub path: &'a Path,
    /// Its content.
    pub text: &'a str,
}

impl<'a> Reader<'a> {
    /// Returns an error of the file as a whole.
    pub fn refused(&self, why: impl Into<String>) -> FileError {
        self.place(0).refused(why)
    }

    /// Returns the error of a file that cannot be read.
    pub fn unreadable(&self, error: &io::Error) -> FileError {
        match error.kind() {
            io::ErrorKind::NotFound => {
                self.refused("there is no such file: check the path and the folder that you are in")
            }
            _ => self.refused(format!("the file cannot be read: {error}")),
        }
    }

    /// Reads the whole text.
    ///
    /// # Errors
    /// If it is no TOML.
    pub fn parse(&self) -> Result<Table<'a>, FileError> {
        let refused = |error: toml::de::Error| {
            let line = error.span().map_or(1, |span| self.line(span.start));
            self.place(line).refused(format!("this is no TOML: {}", error.message()))
        };
        let table = DeTable::parse(self.text).map_err(refused)?;
        Ok(Table::new(*self, 1, table.into_inner()))
    }

    /// Returns a line of the file.
    pub fn place(&self, line: usize) -> Place {
        Place { file: self.path.display().to_string(), line }
    }

    fn line(&self, at: usize) -> usize {
        self.text.char_indices().take_while(|(place, _)| *place < at).filter(|(_, letter)| *letter == '\n').count() + 1
    }
}

/// A table, its keys in the order of the file.
#[derive(Debug)]
pub struct Table<'a> {
    reader: Reader<'a>,
    line: usize,
    entries: Vec<Entry<'a>>,
}

/// A key and its value.
#[derive(Debug)]
pub struct Entry<'a> {
    reader: Reader<'a>,
    line: usize,
    /// The key as it is written.
    pub key: String,
    value: DeValue<'a>,
}

impl<'a> Table<'a> {
    fn new(reader: Reader<'a>, line: usize, table: DeTable<'a>) -> Self {
        let mut entries: Vec<(usize, Entry<'a>)> = table
            .into_iter()
            .map(|(key, value)| {
                let at = key.span().start;
                let (key, value) = (key.into_inner().into_owned(), value.into_inner());
                (at, Entry { reader, line: reader.line(at), key, value })
            })
            .collect();
        entries.sort_by_key(|(at, _)| *at);
        Self { reader, line, entries: entries.into_iter().map(|(_, entry)| entry).collect() }
    }

    /// Returns its line.
    pub fn place(&self) -> Place {
        self.reader.place(self.line)
    }

    /// Returns an error of its line.
    pub fn refused(&self, why: impl Into<String>) -> FileError {
        self.place().refused(why)
    }

    /// Returns its entries in the order of the file.
    pub fn entries(&self) -> impl Iterator<Item = &Entry<'a>> {
        self.entries.iter()
    }

    /// Returns its entries in the order of the file.
    pub fn into_entries(self) -> Vec<Entry<'a>> {
        self.entries
    }

    /// Returns the entry of a key.
    pub fn get(&self, key: &str) -> Option<&Entry<'a>> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Returns the entry of a key that must be there.
    ///
    /// # Errors
    /// If it is absent. The message begins with `without`, which names the thing that the file does not have.
    pub fn needed(&self, key: &str, without: &str) -> Result<&Entry<'a>, FileError> {
        self.get(key).ok_or_else(|| self.refused(format!("{without}: expected {key} = \"...\"")))
    }

    /// Reports whether a text in it holds these letters, values of the key `but` aside.
    pub fn holds(&self, letters: &str, but: &str) -> bool {
        self.entries.iter().any(|entry| entry.key != but && holds(&entry.value, letters, but))
    }

    /// Says where a thing is that comes again here.
    pub fn first(&self, place: Option<&Place>) -> String {
        let own = self.place();
        match place {
            Some(place) if place.file == own.file => format!("first on line {}", place.line),
            place => format!("first in {}", place.map(Place::to_string).unwrap_or_default()),
        }
    }

    /// Returns the text of a key, if it is there.
    ///
    /// # Errors
    /// If its value is another type.
    pub fn text(&self, key: &str) -> Result<Option<String>, FileError> {
        self.get(key).map(Entry::as_text).transpose()
    }

    /// Refuses keys that are not among these.
    ///
    /// # Errors
    /// For the first of them.
    pub fn only(&self, what: &str, known: &[&str]) -> Result<(), FileError> {
        match self.entries.iter().find(|entry| !known.contains(&entry.key.as_str())) {
            Some(entry) => Err(entry.unknown(what, known)),
            None => Ok(()),
        }
    }

    /// Returns a table in it.
    ///
    /// # Errors
    /// If the key's value is another type.
    pub fn table(&self, key: &str) -> Result<Option<Table<'a>>, FileError> {
        self.get(key).map(Entry::as_table).transpose()
    }

    /// Returns the tables of a list in it. An absent key has none.
    ///
    /// # Errors
    /// If the key's value is another type.
    pub fn tables(&self, key: &str) -> Result<Vec<Table<'a>>, FileError> {
        let Some(entry) = self.get(key) else { return Ok(Vec::new()) };
        let expected = || entry.refused(format!("{key} is no list of tables: write [[{key}]]"));
        let DeValue::Array(list) = &entry.value else { return Err(expected()) };
        let table = |item: &Spanned<DeValue<'a>>| match item.get_ref() {
            DeValue::Table(table) => {
                // A header's own place is unknown to the parser where keys follow: the first key tells it.
                let first = table.keys().map(|key| key.span().start).min();
                let at = item.span().start;
                let at = if at == 0 { first.unwrap_or(at) } else { at };
                Ok(Table::new(entry.reader, entry.reader.line(at), table.clone()))
            }
            _ => Err(expected()),
        };
        list.iter().map(table).collect()
    }
}

impl<'a> Entry<'a> {
    /// Returns its line.
    pub fn place(&self) -> Place {
        self.reader.place(self.line)
    }

    /// Returns an error of its line.
    pub fn refused(&self, why: impl Into<String>) -> FileError {
        self.place().refused(why)
    }

    /// Returns the refusal of its key.
    pub fn unknown(&self, what: &str, known: &[&str]) -> FileError {
        if let Some(foreign) = foreign::setting(&self.key) {
            return self.refused(format!("unknown key \"{}\" of {what}, {foreign}", self.key));
        }
        let meant = nearest(&self.key, known).map(|name| format!(", did you mean \"{name}\"?")).unwrap_or_default();
        self.refused(format!("unknown key \"{}\" of {what}{meant} (known: {})", self.key, known.join(", ")))
    }

    /// Returns the refusal of a value of another type.
    pub fn expected(&self, expected: &str) -> FileError {
        self.refused(format!("{} is {}, expected {expected}", self.key, self.value.type_str()))
    }

    /// Returns its value as a text.
    ///
    /// # Errors
    /// If it is another type.
    pub fn as_text(&self) -> Result<String, FileError> {
        self.value.as_str().map(str::to_owned).ok_or_else(|| self.expected("a text"))
    }

    /// Returns its value as a list of texts.
    ///
    /// # Errors
    /// If it is another type.
    pub fn as_texts(&self) -> Result<Vec<String>, FileError> {
        let list = self.value.as_array();
        let texts = list.and_then(|list| list.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect());
        texts.ok_or_else(|| self.expected("a list of texts"))
    }

    /// Sets the setting of its key. A text is read as typed, other values as JSON.
    ///
    /// # Errors
    /// If there is no such setting, or it does not take this value.
    pub fn set<S: Settings>(&self, settings: &mut S) -> Result<(), FileError> {
        let json = self.json()?;
        let set = match &json {
            Value::String(text) => settings.set(&self.key, text),
            _ => settings.set_json(&self.key, json),
        };
        set.map_err(|error| {
            self.refused(match error {
                SettingError::Value { name, found, expected } => format!("{name} is {found}, expected {expected}"),
                error => error.to_string(),
            })
        })
    }

    /// Returns a path as it is meant beside the file.
    pub fn beside(&self, path: &Path) -> PathBuf {
        self.reader.path.parent().map_or_else(|| path.to_owned(), |folder| folder.join(path))
    }

    /// Returns its value as a whole number from 0 on.
    ///
    /// # Errors
    /// If it is another type.
    pub fn as_count(&self) -> Result<usize, FileError> {
        let count = self.json()?.as_u64();
        count.map(|count| count as usize).ok_or_else(|| self.expected("a whole number from 0 on"))
    }

    /// Returns its value as a number.
    ///
    /// # Errors
    /// If it is another type.
    pub fn as_number(&self) -> Result<f64, FileError> {
        self.json()?.as_f64().ok_or_else(|| self.expected("a number"))
    }

    /// Returns its value as a table.
    ///
    /// # Errors
    /// If it is another type.
    pub fn as_table(&self) -> Result<Table<'a>, FileError> {
        match &self.value {
            DeValue::Table(table) => Ok(Table::new(self.reader, self.line, table.clone())),
            _ => Err(self.expected("a table")),
        }
    }

    /// Returns its value as JSON.
    ///
    /// # Errors
    /// If JSON has no such value: dates, tables.
    pub fn json(&self) -> Result<Value, FileError> {
        json(&self.value).ok_or_else(|| {
            self.refused(format!("{} cannot be read: expected a text, a number, true, false or a list", self.key))
        })
    }
}

fn holds(value: &DeValue<'_>, letters: &str, but: &str) -> bool {
    match value {
        DeValue::String(text) => text.contains(letters),
        DeValue::Array(list) => list.iter().any(|item| holds(item.get_ref(), letters, but)),
        DeValue::Table(table) => {
            table.iter().any(|(key, value)| key.get_ref() != but && holds(value.get_ref(), letters, but))
        }
        _ => false,
    }
}

/// A value in JSON; none for what JSON has not.
fn json(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::String(text.clone().into_owned()),
        DeValue::Integer(number) => {
            let (digits, radix) = (number.as_str(), number.radix());
            match (u64::from_str_radix(digits, radix), i64::from_str_radix(digits, radix)) {
                (Ok(number), _) => number.into(),
                (_, Ok(number)) => number.into(),
                _ => return None,
            }
        }
        DeValue::Float(number) => serde_json::Number::from_f64(number.as_str().parse().ok()?)?.into(),
        DeValue::Boolean(truth) => Value::Bool(*truth),
        DeValue::Array(list) => list.iter().map(|item| json(item.get_ref())).collect::<Option<Vec<_>>>()?.into(),
        DeValue::Datetime(_) | DeValue::Table(_) => return None,
    })
}
