//! Loading of problems from files: built-in text, a file that the caller names, or files of the hub.

mod entries;
mod error;
mod exemplars;
mod table;

use std::path::Path;

use demask_checkpoint::{FetchProgress, HubOptions, fetch_dataset};
use demask_step::random::mix;
use serde_json::Value;

pub use error::DataError;
pub use exemplars::{Shots, shots};

use crate::{
    FieldError, Gold, Problem,
    tasks::{DataFile, Dataset, Source, Task},
};

/// Sources of problems, and a choice of them.
#[derive(Debug, Clone, Copy)]
pub struct DataOptions<'a> {
    /// A file instead of the task's own: JSON lines, a JSON list, CSV or parquet, each perhaps in gzip.
    pub file: Option<&'a Path>,
    /// Subject that problems must have, if set.
    pub subject: Option<&'a str>,
    /// Key of the order of options.
    pub seed: u64,
    /// The hub that a task's own files come from.
    pub hub: &'a HubOptions,
}

/// Observer of a download: gets how far it is, and returns whether to go on.
pub type Watch<'a> = dyn FnMut(FetchProgress<'_>) -> bool + 'a;

/// A task's problems, in the order of its files.
pub fn load(task: &Task, options: &DataOptions<'_>, watch: &mut Watch<'_>) -> Result<Vec<Problem>, DataError> {
    let mut problems = match (options.file, task.source) {
        (Some(file), _) => problems_of(task, &entries::of_file(file, None)?, &file.display().to_string(), None)?,
        (None, Source::BuiltIn(text)) => {
            let name = format!("the built-in file of {}", task.name);
            problems_of(task, &entries::of_text(text, &name)?, &name, None)?
        }
        (None, Source::File(file)) => {
            problems_of(task, &entries::of_file(file, None)?, &file.display().to_string(), None)?
        }
        (None, Source::Hub(dataset)) => {
            let wanted = |file: &&DataFile| {
                options.subject.is_none() || file.subject.is_none_or(|it| options.subject == Some(it))
            };
            let files: Vec<DataFile> = dataset.files.iter().filter(wanted).copied().collect();
            if files.is_empty() {
                return Err(no_subject(task, options, dataset.files.iter().filter_map(|file| file.subject)));
            }
            problems_of_hub(task, dataset, &files, options, watch)?
        }
    };
    if let Some(subject) = options.subject {
        let named = |problem: &Problem| problem.subject.clone();
        let mut subjects: Vec<String> = problems.iter().filter_map(named).collect();
        problems.retain(|problem| problem.subject.as_deref() == Some(subject));
        if problems.is_empty() {
            subjects.sort();
            subjects.dedup();
            return Err(no_subject(task, options, subjects.iter().map(String::as_str)));
        }
    }
    if task.shuffled {
        for (index, problem) in problems.iter_mut().enumerate() {
            shuffle(problem, mix(options.seed ^ mix(index as u64)));
        }
    }
    Ok(problems)
}

fn no_subject<'a>(task: &Task, options: &DataOptions<'_>, known: impl Iterator<Item = &'a str>) -> DataError {
    let known: Vec<&str> = known.collect();
    DataError::Subject {
        task: task.name,
        subject: options.subject.unwrap_or_default().to_owned(),
        known: if known.is_empty() { "none: its file names no subjects".to_owned() } else { known.join(", ") },
    }
}

/// The problems of some files of a dataset, which are fetched if they are not in the cache.
fn problems_of_hub(
    task: &Task,
    dataset: Dataset,
    files: &[DataFile],
    options: &DataOptions<'_>,
    watch: &mut Watch<'_>,
) -> Result<Vec<Problem>, DataError> {
    let names: Vec<&str> = files.iter().map(|file| file.path).collect();
    let directory = fetch_dataset(dataset.id, dataset.revision, &names, options.hub, watch)?;
    let mut problems = Vec::new();
    for file in files {
        let path = directory.join(file.path);
        let entries = entries::of_file(&path, file.member)?;
        problems.extend(problems_of(task, &entries, &path.display().to_string(), file.subject)?);
    }
    Ok(problems)
}

/// The problems of a file's entries.
fn problems_of(task: &Task, entries: &[Value], path: &str, subject: Option<&str>) -> Result<Vec<Problem>, DataError> {
    let advice = |field: &FieldError| match (task.file, field) {
        (None, _) => format!("this is no file of {}, or of another release of it", task.name),
        (_, FieldError::Field { field, expected, found: "a number" }) if expected == "text" => {
            format!("read a number by whole(\"{field}\") in [problem] of {}.toml", task.name)
        }
        _ => format!("mend the entry, or [problem] of {}.toml", task.name),
    };
    let read = |(index, entry): (usize, &Value)| {
        let refused =
            |field| DataError::Entry { path: path.to_owned(), entry: index + 1, advice: advice(&field), field };
        let mut problem = task.read(entry, index).map_err(refused)?;
        if let (Some(subject), None) = (subject, &problem.subject) {
            problem.subject = Some(subject.to_owned());
        }
        // Entries of several files may have the same number.
        if subject.is_some() && problem.id == index.to_string() {
            problem.id = format!("{}/{index}", subject.unwrap_or_default());
        }
        Ok(problem)
    };
    entries.iter().enumerate().map(read).collect()
}

/// Puts options into an order that the key draws.
fn shuffle(problem: &mut Problem, key: u64) {
    let mut order: Vec<usize> = (0..problem.options.len()).collect();
    order.sort_by_key(|option| mix(key.wrapping_add(*option as u64 + 1)));
    if let Gold::Option(gold) = &mut problem.gold {
        *gold = order.iter().position(|option| option == gold).unwrap_or(*gold);
    }
    problem.options = order.iter().map(|option| problem.options[*option].clone()).collect();
}
