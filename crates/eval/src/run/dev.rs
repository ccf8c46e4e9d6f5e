//! Items that a method was chosen by: a file beside the results, by which later evaluations leave them out.

use std::{
    fs,
    path::{Path, PathBuf},
};

use demask_figures::files::{WriteError, write_whole};
use serde::{Deserialize, Serialize};

use super::RunError;
use crate::Problem;

/// Name of the file.
pub const DEV: &str = "dev.json";

/// Items that a method was chosen by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DevItems {
    /// The task.
    pub task: String,
    /// Names of the items.
    pub ids: Vec<String>,
    /// Fingerprints of the items, in hexadecimal.
    pub items: Vec<String>,
}

fn named(problem: &Problem) -> String {
    format!("{:016x}", problem.fields().fingerprint())
}

impl DevItems {
    /// Returns these items of a task.
    pub fn of(task: &str, problems: &[Problem]) -> Self {
        let ids = problems.iter().map(|problem| problem.id.clone()).collect();
        Self { task: task.to_owned(), ids, items: problems.iter().map(named).collect() }
    }

    /// Writes them into a directory.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, directory: &Path) -> Result<PathBuf, WriteError> {
        let path = directory.join(DEV);
        // Plain texts: there is nothing to refuse.
        write_whole(&path, (serde_json::to_string_pretty(self).unwrap_or_default() + "\n").as_bytes())?;
        Ok(path)
    }

    /// Reads those of a directory that `tune` wrote.
    ///
    /// # Errors
    /// If there are none.
    pub fn read(directory: &Path) -> Result<Self, RunError> {
        let path = directory.join(DEV);
        let text = fs::read_to_string(&path).map_err(|error| error.to_string());
        let read = text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
        let told = |error| {
            format!("{} has no dev items ({error}): name a directory that `tune` wrote with `out`", path.display())
        };
        read.map_err(|error| RunError::Asking(told(error)))
    }

    /// Leaves them out of a task's problems; returns how many were there.
    pub fn leave_out(&self, problems: &mut Vec<Problem>) -> usize {
        let before = problems.len();
        problems.retain(|problem| !self.items.contains(&named(problem)));
        before - problems.len()
    }
}
