//! Files of runs: the rows of a table with models, guides, devices and options of their own, and the figures published
//! for them. `docs/evaluation.md` has the format.

mod base;
mod rows;
mod settings;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use demask_settings::{
    names::nearest,
    toml::{Entry, FileError, Place, Reader, Table},
};
use serde_json::Value;

use super::spec::{Heading, Spec, TaskSpec, is_file, task};
use crate::{
    recipes::{self, Recipe},
    report::{METRICS, Published},
};
use rows::{MOST, Named, Row};
use settings::{Layers, Settings, allowed};

/// Keys of the file itself.
const FILE: [&str; 13] = [
    "base",
    "only_tasks",
    "only_rows",
    "change",
    "title",
    "source",
    "about",
    "baseline",
    "seeds",
    "defaults",
    "task",
    "row",
    "published",
];
/// Keys of a task beside how it is asked.
const TASK: [&str; 5] = ["task", "name", "limit", "data", "subject"];
/// Those that say which items are asked.
const ITEMS: [&str; 3] = ["limit", "data", "subject"];

impl Spec {
    /// Reads a file of runs, or the recipe that `recipe:NAME` names; rows that name no model use `model`.
    ///
    /// # Errors
    /// If the file cannot be read, or says what cannot be meant: with its line.
    pub fn read(path: &Path, model: Option<&str>) -> Result<Self, FileError> {
        let file = Reader { path, text: "" };
        if let Some(name) = recipes::named(path) {
            return Recipe::find(name).map_err(|error| file.refused(error.to_string()))?.spec(model);
        }
        let text = demask::plain::read(path).map_err(|error| file.unreadable(&error))?;
        Self::parse(path, &text, model)
    }

    /// Reads the text of a file of runs.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(path: &Path, text: &str, model: Option<&str>) -> Result<Self, FileError> {
        let reader = Reader { path, text };
        let draft = Draft::read(reader, &[])?;
        for (key, empty) in [("task", draft.tasks.is_empty()), ("row", draft.rows.is_empty())] {
            if empty {
                return Err(reader.place(1).refused(format!("no [[{key}]]: expected at least one")));
            }
        }
        let rows = draft.rows.iter().map(|row| row.over(&draft, model)).collect::<Result<_, _>>()?;
        let tasks = draft.tasks.into_iter().map(|(task, _)| task).collect();
        Ok(Self { heading: draft.heading, tasks, rows, published: draft.published })
    }
}

/// A file laid over its base, its rows not yet over tasks and defaults.
#[derive(Debug, Default)]
struct Draft {
    heading: Heading,
    defaults: Settings,
    /// The tasks, each with its own settings of how it is asked.
    tasks: Vec<(TaskSpec, Settings)>,
    rows: Vec<Row>,
    published: Vec<Published>,
    seeds: Vec<u64>,
    baseline: Option<Named>,
}

impl Draft {
    /// Reads a file; `within` are those whose base it is.
    fn read(reader: Reader<'_>, within: &[PathBuf]) -> Result<Self, FileError> {
        let file = reader.parse()?;
        file.only("the file", &FILE)?;
        let mut draft = base::read(&file, &[within, &[base::identity(reader.path)]].concat())?;
        let heading = &mut draft.heading;
        for (key, text) in
            [("title", &mut heading.title), ("source", &mut heading.source), ("about", &mut heading.about)]
        {
            if let Some(said) = file.text(key)? {
                *text = said;
            }
        }
        if let Some(table) = file.table("defaults")? {
            draft.defaults.add(Settings::read(&table, "defaults", &[])?);
        }
        if let Some(seeds) = file.get("seeds") {
            draft.seeds = self::seeds(seeds)?;
        }
        draft.baseline = Named::read(&file, "baseline")?.or(draft.baseline);
        for table in file.tables("task")? {
            draft.add_task(&table)?;
        }
        for table in file.tables("row")? {
            draft.add_rows(&table)?;
        }
        draft.publish(&file)?;
        Ok(draft)
    }

    fn task_names(&self) -> Vec<&str> {
        self.tasks.iter().map(|(task, _)| task.name.as_str()).collect()
    }

    fn row_names(&self) -> Vec<&str> {
        self.rows.iter().map(|row| row.name.as_str()).collect()
    }

    fn add_task(&mut self, table: &Table<'_>) -> Result<(), FileError> {
        let named = table.needed("task", "a task without its name")?;
        let told = named.as_text()?;
        let told = if is_file(&told) { named.beside(Path::new(&told)).to_string_lossy().into_owned() } else { told };
        let task = task(&told).map_err(|error| named.refused(error.to_string()))?;
        let name = table.text("name")?.unwrap_or_else(|| task.name.to_owned());
        let place = Some(table.place());
        let mut spec = TaskSpec { place, name, task, limit: None, data: None, subject: None };
        items(table, &mut spec)?;
        if let Some((other, _)) = self.tasks.iter().find(|(other, _)| other.name == spec.name) {
            let (name, first) = (&other.name, table.first(other.place.as_ref()));
            return Err(table.refused(format!("task \"{name}\" is there twice, {first}: give it a `name`")));
        }
        self.tasks.push((spec, Settings::read(table, "task", &TASK)?));
        Ok(())
    }

    fn add_rows(&mut self, table: &Table<'_>) -> Result<(), FileError> {
        for row in Row::read(table, &self.task_names())? {
            if let Some(other) = self.rows.iter().find(|other| other.name == row.name) {
                let first = table.first(Some(&other.place));
                let told = format!("row \"{}\" is there twice, {first}: name one otherwise", row.name);
                return Err(row.place.refused(told));
            }
            self.rows.push(row);
        }
        if self.rows.len() > MOST {
            return Err(table.refused(format!("there are more than {MOST} rows: sweep less at once")));
        }
        Ok(())
    }

    /// Adds figures of the source, in the place of the base's for the same row and task.
    fn publish(&mut self, file: &Table<'_>) -> Result<(), FileError> {
        let metrics: Vec<&'static str> = METRICS.iter().map(|metric| metric.name).collect();
        let keys = [&["row", "task", "note", "source"], &metrics[..]].concat();
        let mut own: Vec<Published> = Vec::new();
        for table in file.tables("published")? {
            table.only("a published figure", &keys)?;
            let row = existing(table.needed("row", "published figures of no row")?, "row", &self.row_names())?;
            let task = existing(table.needed("task", "published figures of no task")?, "task", &self.task_names())?;
            if own.iter().any(|other| other.row == row && other.task == task) {
                let told = format!("figures of row \"{row}\" on {task} are there twice: put them together");
                return Err(table.refused(told));
            }
            let mut figures = BTreeMap::new();
            for entry in table.entries().filter(|entry| metrics.contains(&entry.key.as_str())) {
                figures.insert(entry.key.clone(), entry.as_number()?);
            }
            if figures.is_empty() {
                return Err(table.refused(format!("no figure published: expected one of {}", metrics.join(", "))));
            }
            let source = table.text("source")?.unwrap_or_else(|| self.heading.source.clone());
            own.push(Published { row, task, figures, source, note: table.text("note")?.unwrap_or_default() });
        }
        let same = |one: &Published| own.iter().any(|other| other.row == one.row && other.task == one.task);
        self.published.retain(|published| !same(published));
        self.published.append(&mut own);
        Ok(())
    }
}

/// Reads keys of randomness.
fn seeds(entry: &Entry<'_>) -> Result<Vec<u64>, FileError> {
    let Value::Array(list) = entry.json()? else { return Err(entry.expected("a list of whole numbers")) };
    let seeds: Option<Vec<u64>> = list.iter().map(Value::as_u64).collect();
    let seeds = seeds.filter(|seeds| !seeds.is_empty());
    let seeds = seeds.ok_or_else(|| entry.refused("seeds are not all whole numbers from 0 on, or there are none"))?;
    match seeds.iter().enumerate().find(|(index, seed)| seeds[..*index].contains(seed)) {
        Some((_, seed)) => Err(entry.refused(format!("seed {seed} is there twice: omit one"))),
        None => Ok(seeds),
    }
}

/// Which items of a task are asked, as far as a table says it.
fn items(table: &Table<'_>, spec: &mut TaskSpec) -> Result<(), FileError> {
    if let Some(entry) = table.get("limit") {
        spec.limit = Some(entry.as_count()?);
        if spec.limit == Some(0) {
            return Err(entry.refused("limit is 0, expected at least 1"));
        }
    }
    spec.data = table.text("data")?.map(Into::into).or(spec.data.take());
    spec.subject = table.text("subject")?.or(spec.subject.take());
    Ok(())
}

/// Reads a name that must be one of those in the file.
fn existing(entry: &Entry<'_>, what: &str, names: &[&str]) -> Result<String, FileError> {
    let name = entry.as_text()?;
    known(&entry.place(), &name, what, names).map(|_| name)
}

/// Finds a name that must be one of those in the file.
fn known(place: &Place, name: &str, what: &str, names: &[&str]) -> Result<usize, FileError> {
    names.iter().position(|other| *other == name).ok_or_else(|| {
        let meant = nearest(name, names).map(|name| format!(", did you mean \"{name}\"?")).unwrap_or_default();
        let listed: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        place.refused(format!("there is no {what} \"{name}\"{meant} (there are: {})", listed.join(", ")))
    })
}

#[cfg(test)]
mod tests;
