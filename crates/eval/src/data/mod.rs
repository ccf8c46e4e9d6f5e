//! From a task's file to its problems.

use std::{fs, io, path::Path};

use serde_json::Value;
use thiserror::Error;

use crate::{FieldError, Problem, Source, Task};

/// Problems that cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file cannot be read.
    #[error("cannot read {file}: {error}")]
    Io {
        /// The file.
        file: String,
        /// Why.
        error: io::Error,
    },
    /// A line is not JSON.
    #[error("{file}, line {line}: {error}: expected one JSON object a line")]
    Json {
        /// The file.
        file: String,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        error: String,
    },
    /// An entry lacks what the task needs.
    #[error("{file}, line {line}: {error}: expected the fields of task {task}")]
    Field {
        /// The file.
        file: String,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        error: FieldError,
        /// The task.
        task: &'static str,
    },
    /// Nothing to ask.
    #[error("{file} holds no problem: expected one JSON object a line")]
    Empty {
        /// The file.
        file: String,
    },
}

/// The problems of a task: the file's, or the task's own.
pub fn load(task: &Task, from: Option<&Path>) -> Result<Vec<Problem>, DataError> {
    let (file, text) = match (from, task.source) {
        (Some(path), _) => {
            let file = path.display().to_string();
            let text = fs::read_to_string(path).map_err(|error| DataError::Io { file: file.clone(), error })?;
            (file, text)
        }
        (None, Source::BuiltIn(text)) => (task.name.to_owned(), text.to_owned()),
    };
    let problems = read(task, &file, &text)?;
    if problems.is_empty() { Err(DataError::Empty { file }) } else { Ok(problems) }
}

/// The solved problems that may stand in a task's prompts: the file's, or the task's own, of which there may be none.
pub fn exemplars(task: &Task, from: Option<&Path>) -> Result<Vec<Problem>, DataError> {
    from.map_or(Ok(Vec::new()), |path| load(task, Some(path)))
}

fn read(task: &Task, file: &str, text: &str) -> Result<Vec<Problem>, DataError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let entries = lines.map(|(index, line)| {
        let error = |error: serde_json::Error| DataError::Json {
            file: file.to_owned(),
            line: index + 1,
            // The line is told already, and is always 1 of itself.
            error: error.to_string().replace(" at line 1 column", " at column"),
        };
        Ok((index + 1, serde_json::from_str::<Value>(line).map_err(error)?))
    });
    let problem = |(index, entry): (usize, Result<(usize, Value), DataError>)| {
        let (line, entry) = entry?;
        let refused = |error| DataError::Field { file: file.to_owned(), line, error, task: task.name };
        (task.read)(&entry, index).map_err(refused)
    };
    entries.enumerate().map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks;

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let task = tasks::find("wordmath").unwrap();
        let refused = |text: &str| read(task, "x", text).unwrap_err().to_string();
        let good = r#"{"question": "q", "solution": "s", "answer": 1}"#;
        assert_eq!(read(task, "x", &format!("{good}\n\n{good}\n")).unwrap().len(), 2);
        let expected = "field question is missing, expected text: expected the fields of task wordmath";
        assert_eq!(refused(&format!("{good}\n\n{{}}")), format!("x, line 3: {expected}"));
        assert!(refused("{\"question\": ").starts_with("x, line 1: EOF while parsing a value at column 13: expected"));
    }
}
