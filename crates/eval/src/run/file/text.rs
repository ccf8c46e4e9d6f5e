//! The text of a file of runs: TOML whose values know their lines.

use std::path::{Path, PathBuf};

use demask::internals::decode::names::nearest;
use serde_json::Value;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::super::spec::{FileError, Place};

/// Key of the values that a row sweeps.
pub const SWEEP: &str = "sweep";

/// A file and its text.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl Reader<'_> {
    /// Reads the whole text.
    pub fn parse(&self) -> Result<Table<'_>, FileError> {
        let refused = |error: toml::de::Error| {
            let line = error.span().map_or(1, |span| self.line(span.start));
            self.place(line).refused(format!("this is no TOML: {}", error.message()))
        };
        let table = DeTable::parse(self.text).map_err(refused)?;
        Ok(Table::new(*self, 1, table.into_inner()))
    }

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

    pub fn place(&self) -> Place {
        self.reader.place(self.line)
    }

    pub fn refused(&self, told: impl Into<String>) -> FileError {
        self.place().refused(told)
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry<'a>> {
        self.entries.iter()
    }

    pub fn into_entries(self) -> Vec<Entry<'a>> {
        self.entries
    }

    pub fn get(&self, key: &str) -> Option<&Entry<'a>> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub fn needed(&self, key: &str, without: &str) -> Result<&Entry<'a>, FileError> {
        self.get(key).ok_or_else(|| self.refused(format!("{without}: expected {key} = \"...\"")))
    }

    /// Reports whether a text in it holds these letters, sweeps aside.
    pub fn holds(&self, letters: &str) -> bool {
        self.entries.iter().any(|entry| entry.key != SWEEP && holds(&entry.value, letters))
    }

    /// Says where a thing was that comes again here.
    pub fn first(&self, place: Option<&Place>) -> String {
        let own = self.place();
        match place {
            Some(place) if place.file == own.file => format!("first on line {}", place.line),
            place => format!("first in {}", place.map(Place::to_string).unwrap_or_default()),
        }
    }

    pub fn text(&self, key: &str) -> Result<Option<String>, FileError> {
        self.get(key).map(Entry::as_text).transpose()
    }

    /// Refuses keys that are not among these.
    pub fn only(&self, what: &str, known: &[&str]) -> Result<(), FileError> {
        match self.entries.iter().find(|entry| !known.contains(&entry.key.as_str())) {
            Some(entry) => Err(entry.unknown(what, known)),
            None => Ok(()),
        }
    }

    /// A table in it.
    pub fn table(&self, key: &str) -> Result<Option<Table<'a>>, FileError> {
        self.get(key).map(Entry::as_table).transpose()
    }

    /// A list of tables in it; empty if it is not there.
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
    pub fn place(&self) -> Place {
        self.reader.place(self.line)
    }

    pub fn refused(&self, told: impl Into<String>) -> FileError {
        self.place().refused(told)
    }

    pub fn unknown(&self, what: &str, known: &[&str]) -> FileError {
        let meant = nearest(&self.key, known).map(|name| format!(", did you mean \"{name}\"?")).unwrap_or_default();
        self.refused(format!("unknown key \"{}\" of {what}{meant} (known: {})", self.key, known.join(", ")))
    }

    fn expected(&self, expected: &str) -> FileError {
        self.refused(format!("{} is {}, expected {expected}", self.key, self.value.type_str()))
    }

    pub fn as_text(&self) -> Result<String, FileError> {
        self.value.as_str().map(str::to_owned).ok_or_else(|| self.expected("a text"))
    }

    pub fn as_texts(&self) -> Result<Vec<String>, FileError> {
        let list = self.value.as_array();
        let texts = list.and_then(|list| list.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect());
        texts.ok_or_else(|| self.expected("a list of texts"))
    }

    /// A path as it is meant beside the file.
    pub fn beside(&self, path: &Path) -> PathBuf {
        self.reader.path.parent().map_or_else(|| path.to_owned(), |folder| folder.join(path))
    }

    pub fn as_count(&self) -> Result<usize, FileError> {
        let count = self.json()?.as_u64();
        count.map(|count| count as usize).ok_or_else(|| self.expected("a whole number from 0 on"))
    }

    pub fn as_number(&self) -> Result<f64, FileError> {
        self.json()?.as_f64().ok_or_else(|| self.expected("a number"))
    }

    pub fn as_seeds(&self) -> Result<Vec<u64>, FileError> {
        let Value::Array(list) = self.json()? else { return Err(self.expected("a list of whole numbers")) };
        let seeds: Option<Vec<u64>> = list.iter().map(Value::as_u64).collect();
        let seeds = seeds.filter(|seeds| !seeds.is_empty());
        let seeds =
            seeds.ok_or_else(|| self.refused("seeds are not all whole numbers from 0 on, or there are none"))?;
        match seeds.iter().enumerate().find(|(index, seed)| seeds[..*index].contains(seed)) {
            Some((_, seed)) => Err(self.refused(format!("seed {seed} is there twice: omit one"))),
            None => Ok(seeds),
        }
    }

    pub fn as_table(&self) -> Result<Table<'a>, FileError> {
        match &self.value {
            DeValue::Table(table) => Ok(Table::new(self.reader, self.line, table.clone())),
            _ => Err(self.expected("a table")),
        }
    }

    /// The value in JSON.
    pub fn json(&self) -> Result<Value, FileError> {
        json(&self.value).ok_or_else(|| {
            self.refused(format!("{} cannot be read: expected a text, a number, true, false or a list", self.key))
        })
    }
}

fn holds(value: &DeValue<'_>, letters: &str) -> bool {
    match value {
        DeValue::String(text) => text.contains(letters),
        DeValue::Array(list) => list.iter().any(|item| holds(item.get_ref(), letters)),
        DeValue::Table(table) => {
            table.iter().any(|(key, value)| key.get_ref() != SWEEP && holds(value.get_ref(), letters))
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
