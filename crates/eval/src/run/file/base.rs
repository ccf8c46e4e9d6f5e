//! The base of a file of runs: another file whose tasks, rows and figures it takes, leaves out or changes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use demask_settings::toml::{Entry, FileError, Reader, Table};

use super::{Draft, ITEMS, Settings, items, known};
use crate::recipes::{self, Recipe};

/// Keys of a file that go with a base.
const OF_BASE: [&str; 3] = ["only_tasks", "only_rows", "change"];

/// Reads the tasks, rows and figures that a file takes of its base; a draft without any if the file has no base.
/// `within` are the file and those whose base it is.
pub fn read(file: &Table<'_>, within: &[PathBuf]) -> Result<Draft, FileError> {
    let Some(base) = file.get("base") else {
        return match OF_BASE.iter().find_map(|key| file.get(key)) {
            Some(entry) => {
                let told = "is of a base, and the file has none: add base = \"recipe:NAME\", or omit it";
                Err(entry.refused(format!("{} {told}", entry.key)))
            }
            None => Ok(Draft::default()),
        };
    };
    let mut draft = open(base, within)?;
    draft.choose(file)?;
    if let Some(change) = file.table("change")? {
        draft.change(&change)?;
    }
    Ok(draft)
}

/// A file, however its path is written.
pub fn identity(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn open(base: &Entry<'_>, within: &[PathBuf]) -> Result<Draft, FileError> {
    let named = PathBuf::from(base.as_text()?);
    let recipe = recipes::named(&named).map(Recipe::find).transpose();
    let recipe = recipe.map_err(|error| base.refused(error.to_string()))?;
    let path = if recipe.is_some() { named } else { base.beside(&named) };
    if within.contains(&identity(&path)) {
        return Err(base.refused(format!("base \"{}\" has this file as a base: omit one", base.as_text()?)));
    }
    let text = match recipe {
        Some(recipe) => Ok(recipe.text.to_owned()),
        None => demask::plain::read(&path),
    };
    let text = text.map_err(|error| base.refused(format!("the base {} cannot be read: {error}", path.display())))?;
    Draft::read(Reader { path: &path, text: &text }, within)
}

impl Draft {
    /// Leaves out tasks and rows that are not chosen, and the figures of those.
    fn choose(&mut self, file: &Table<'_>) -> Result<(), FileError> {
        let chosen = |key: &str, what: &str, names: &[&str]| {
            let Some(entry) = file.get(key) else { return Ok(None) };
            let chosen = entry.as_texts()?;
            chosen.iter().try_for_each(|name| known(&entry.place(), name, what, names).map(drop))?;
            Ok(Some(chosen))
        };
        if let Some(chosen) = chosen("only_tasks", "task", &self.task_names())? {
            self.tasks.retain(|(task, _)| chosen.contains(&task.name));
            self.published.retain(|figures| chosen.contains(&figures.task));
        }
        if let Some(chosen) = chosen("only_rows", "row", &self.row_names())? {
            self.rows.retain(|row| chosen.contains(&row.name));
            self.published.retain(|figures| chosen.contains(&figures.row));
        }
        Ok(())
    }

    /// Changes tasks and rows by their names.
    fn change(&mut self, change: &Table<'_>) -> Result<(), FileError> {
        change.only("change", &["task", "row"])?;
        for entry in change.table("task")?.iter().flat_map(Table::entries) {
            let index = known(&entry.place(), &entry.key, "task", &self.task_names())?;
            let (table, (spec, settings)) = (entry.as_table()?, &mut self.tasks[index]);
            settings.add(Settings::read(&table, "task", &ITEMS)?);
            items(&table, spec)?;
        }
        let tasks = self.tasks.iter().map(|(task, _)| task.name.clone()).collect::<Vec<_>>();
        let tasks: Vec<&str> = tasks.iter().map(String::as_str).collect();
        for entry in change.table("row")?.iter().flat_map(Table::entries) {
            let index = known(&entry.place(), &entry.key, "row", &self.row_names())?;
            self.rows[index].change(&entry.as_table()?, &tasks)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
