//! Changes of a request by a command: models and data of one's own in the places of those that are named, and the tasks and rows
//! that are wanted.

use std::{collections::BTreeSet, path::PathBuf};

use demask_settings::names::nearest;

use super::{
    RunError,
    spec::{DEMO, RowSpec, Spec},
};

/// Changes of a request. Each of them has to change something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Models and guides by their names, each with the model that is loaded in its place.
    pub models: Vec<(String, String)>,
    /// Tasks by their names, each with the file of its items.
    pub data: Vec<(String, PathBuf)>,
    /// The tasks that are wanted; empty: all.
    pub tasks: Vec<String>,
    /// The rows that are wanted; empty: all.
    pub rows: Vec<String>,
}

impl Spec {
    /// Changes the request. A row whose baseline is left out is compared with the first one that stays.
    ///
    /// # Errors
    /// If it has no task, row or model of a name, or a name comes twice.
    pub fn change(&mut self, changes: &Changes) -> Result<(), RunError> {
        self.keep_tasks(&changes.tasks)?;
        self.keep_rows(&changes.rows)?;
        twice("data", changes.data.iter().map(|(task, _)| task))?;
        for (name, file) in &changes.data {
            let index = index(name, "task", &self.task_names())?;
            self.tasks[index].data = Some(file.clone());
        }
        twice("map", changes.models.iter().map(|(name, _)| name))?;
        // Names are those of the request, whatever is put in the place of another.
        let named: Vec<Vec<String>> = self.rows.iter().map(names).collect();
        for (name, model) in &changes.models {
            if !named.iter().any(|names| names.contains(name)) {
                let mut known: Vec<String> = named.concat();
                known.sort();
                known.dedup();
                let known = known.join(", ");
                return Err(RunError::Asking(format!("`map` {name}: no row has that model (there are: {known})")));
            }
            for (row, names) in self.rows.iter_mut().zip(&named) {
                row.map(names, name, model);
            }
        }
        Ok(())
    }

    /// Leaves one row and one task, by their places; returns whether there are such.
    pub fn keep_one(&mut self, row: usize, task: usize) -> bool {
        let (Some(mut own), Some(one)) = (self.rows.get(row).cloned(), self.tasks.get(task).cloned()) else {
            return false;
        };
        own.baseline = 0;
        own.seeds.truncate(1);
        own.asks = vec![own.asks[task].clone()];
        (self.rows, self.tasks) = (vec![own], vec![one]);
        self.published.clear();
        true
    }

    fn task_names(&self) -> Vec<&str> {
        self.tasks.iter().map(|task| task.name.as_str()).collect()
    }

    fn keep_tasks(&mut self, wanted: &[String]) -> Result<(), RunError> {
        let kept = indices("only_task", wanted, "task", &self.task_names())?;
        let Some(kept) = kept else { return Ok(()) };
        self.tasks = kept.iter().map(|&index| self.tasks[index].clone()).collect();
        for row in &mut self.rows {
            row.asks = kept.iter().map(|&index| row.asks[index].clone()).collect();
        }
        self.published.retain(|figures| wanted.contains(&figures.task));
        Ok(())
    }

    fn keep_rows(&mut self, wanted: &[String]) -> Result<(), RunError> {
        let names: Vec<&str> = self.rows.iter().map(|row| row.name.as_deref().unwrap_or_default()).collect();
        let Some(kept) = indices("only_row", wanted, "row", &names)? else { return Ok(()) };
        let mut rows: Vec<RowSpec> = kept.iter().map(|&index| self.rows[index].clone()).collect();
        for row in &mut rows {
            row.baseline = kept.iter().position(|&index| index == row.baseline).unwrap_or(0);
        }
        self.rows = rows;
        self.published.retain(|figures| wanted.contains(&figures.row));
        Ok(())
    }
}

impl RowSpec {
    /// Puts a model in the place of another; `names` are those of the row.
    fn map(&mut self, names: &[String], name: &str, model: &str) {
        let load = &mut self.model.load;
        if names[0] == name {
            load.model = (model != DEMO).then(|| model.to_owned());
        }
        let guides = load.guide.iter_mut().flat_map(|guides| &mut guides.0);
        for (guide, named) in guides.zip(&names[1..]) {
            if named == name {
                model.clone_into(&mut guide.model);
            }
        }
    }
}

/// Returns the names of a row's models, its guides after it.
fn names(row: &RowSpec) -> Vec<String> {
    let load = &row.model.load;
    let guides = load.guide.iter().flat_map(|guides| &guides.0).map(|guide| guide.model.clone());
    std::iter::once(load.model.clone().unwrap_or_else(|| DEMO.to_owned())).chain(guides).collect()
}

/// Returns the places of the names that are wanted, in the order of all; none if all are.
fn indices(flag: &str, wanted: &[String], what: &'static str, all: &[&str]) -> Result<Option<Vec<usize>>, RunError> {
    twice(flag, wanted.iter())?;
    let mut kept = wanted.iter().map(|name| index(name, what, all)).collect::<Result<Vec<_>, _>>()?;
    kept.sort_unstable();
    Ok((!kept.is_empty()).then_some(kept))
}

fn index(name: &str, what: &'static str, all: &[&str]) -> Result<usize, RunError> {
    all.iter().position(|other| *other == name).ok_or_else(|| {
        let (meant, listed) = (nearest(name, all), all.join("\", \""));
        let meant = meant.map(|name| format!(", did you mean \"{name}\"?")).unwrap_or_default();
        RunError::Asking(format!("there is no {what} \"{name}\"{meant} (there are: \"{listed}\")"))
    })
}

fn twice<'a>(flag: &str, mut names: impl Iterator<Item = &'a String>) -> Result<(), RunError> {
    let mut known = BTreeSet::new();
    match names.find(|name| !known.insert(*name)) {
        Some(name) => Err(RunError::Asking(format!("`{flag}` has {name} twice: omit one"))),
        None => Ok(()),
    }
}
