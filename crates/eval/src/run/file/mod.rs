//! Files of runs: the rows of a table with models, guides, devices and options of their own, and the figures published
//! for them. `docs/evaluation.md` has the format.

mod rows;
mod settings;
mod text;

use std::path::Path;

use demask::internals::decode::names::nearest;

use super::spec::{FileError, Heading, RowSpec, Spec, TaskSpec, task};
use crate::{
    recipes::{self, Recipe},
    report::{METRICS, Published},
};
use rows::Rows;
use settings::{Layers, Settings, allowed};
use text::{Entry, Reader, Table};

/// Keys of the file itself.
const FILE: [&str; 9] = ["title", "source", "about", "baseline", "seeds", "defaults", "task", "row", "published"];
/// Keys of a task beside how it is asked.
const TASK: [&str; 5] = ["task", "name", "limit", "data", "subject"];

impl Spec {
    /// Reads a file of runs, or the recipe that `recipe:NAME` names; `model` is that of rows that name none.
    ///
    /// # Errors
    /// If the file cannot be read, or says what cannot be meant: with its line.
    pub fn read(path: &Path, model: Option<&str>) -> Result<Self, FileError> {
        if let Some(name) = recipes::named(path) {
            let found = Recipe::find(name);
            return found.map_err(|error| FileError::new(path, 1, error.to_string()))?.spec(model);
        }
        let text = demask::plain::read(path)
            .map_err(|error| FileError::new(path, 1, format!("the file cannot be read: {error}")))?;
        Self::parse(path, &text, model)
    }

    /// Reads the text of a file of runs.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(path: &Path, text: &str, model: Option<&str>) -> Result<Self, FileError> {
        let reader = Reader { path, text };
        let file = reader.parse()?;
        file.only("the file", &FILE)?;
        let heading = Heading {
            title: file.text("title")?.unwrap_or_default(),
            source: file.text("source")?.unwrap_or_default(),
            about: file.text("about")?.unwrap_or_default(),
        };
        let defaults = match file.table("defaults")? {
            Some(table) => Settings::read(&table, "defaults", &[])?,
            None => Settings::default(),
        };
        let tasks = tasks(&file)?;
        let rows = Rows { file: &file, defaults: &defaults, tasks: &tasks, model }.read()?;
        let published = published(&file, &heading, &tasks, &rows)?;
        let tasks = tasks.into_iter().map(|(task, _)| task).collect();
        Ok(Self { file: Some(path.to_owned()), heading, tasks, rows, published })
    }
}

/// The tasks, each with what it says of how it is asked.
fn tasks(file: &Table<'_>) -> Result<Vec<(TaskSpec, Settings)>, FileError> {
    let mut tasks: Vec<(TaskSpec, Settings)> = Vec::new();
    for table in file.tables("task")? {
        let named = table.needed("task", "a task without its name")?;
        let found = task(&named.as_text()?).map_err(|error| named.refused(error.to_string()))?;
        let limit = table.get("limit").map(Entry::as_count).transpose()?;
        if limit == Some(0) {
            return Err(table.get("limit").map_or_else(
                || table.refused("limit is 0"),
                |entry| entry.refused("limit is 0, expected at least 1"),
            ));
        }
        let name = table.text("name")?.unwrap_or_else(|| found.name.to_owned());
        if let Some((other, _)) = tasks.iter().find(|(other, _)| other.name == name) {
            let first = other.line;
            return Err(
                table.refused(format!("task \"{name}\" is there twice, first on line {first}: give it a `name`"))
            );
        }
        let settings = Settings::read(&table, "task", &TASK)?;
        let data = table.text("data")?.map(Into::into);
        let subject = table.text("subject")?;
        tasks.push((TaskSpec { line: table.line, name, task: found, limit, data, subject }, settings));
    }
    if tasks.is_empty() {
        return Err(file.refused("no [[task]]: expected at least one"));
    }
    Ok(tasks)
}

/// Figures of the source.
fn published(
    file: &Table<'_>,
    heading: &Heading,
    tasks: &[(TaskSpec, Settings)],
    rows: &[RowSpec],
) -> Result<Vec<Published>, FileError> {
    let metrics: Vec<&'static str> = METRICS.iter().map(|metric| metric.name).collect();
    let keys = [&["row", "task", "note", "source"], &metrics[..]].concat();
    let mut all: Vec<Published> = Vec::new();
    for table in file.tables("published")? {
        table.only("a published figure", &keys)?;
        let row = table.needed("row", "published figures of no row")?;
        let names: Vec<&str> = rows.iter().filter_map(|row| row.name.as_deref()).collect();
        let row = known(row, "row", &names)?;
        let task = table.needed("task", "published figures of no task")?;
        let names: Vec<&str> = tasks.iter().map(|(task, _)| task.name.as_str()).collect();
        let task = known(task, "task", &names)?;
        if all.iter().any(|other| other.row == row && other.task == task) {
            return Err(table.refused(format!("figures of row \"{row}\" on {task} are there twice: put them together")));
        }
        let mut figures = std::collections::BTreeMap::new();
        for entry in table.entries().filter(|entry| metrics.contains(&entry.key.as_str())) {
            figures.insert(entry.key.clone(), entry.as_number()?);
        }
        if figures.is_empty() {
            return Err(table.refused(format!("no figure published: expected one of {}", metrics.join(", "))));
        }
        let source = table.text("source")?.unwrap_or_else(|| heading.source.clone());
        all.push(Published { row, task, figures, source, note: table.text("note")?.unwrap_or_default() });
    }
    Ok(all)
}

/// A name that must be one of those in the file.
fn known(entry: &Entry<'_>, what: &str, names: &[&str]) -> Result<String, FileError> {
    let name = entry.as_text()?;
    if names.contains(&name.as_str()) {
        return Ok(name);
    }
    let meant = nearest(&name, names).map(|name| format!(", did you mean \"{name}\"?")).unwrap_or_default();
    let listed: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    Err(entry.refused(format!("there is no {what} \"{name}\"{meant} (there are: {})", listed.join(", "))))
}

#[cfg(test)]
mod tests;
