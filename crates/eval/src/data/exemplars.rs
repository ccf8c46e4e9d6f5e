//! Solved problems before the one that is asked.

use std::path::Path;

use super::{DataError, DataOptions, Watch, entries, problems_of, problems_of_hub};
use crate::{
    Problem,
    tasks::{DataFile, Exemplars, Source, Task},
};

/// The solved problems that prompts show.
#[derive(Debug, Clone, Default)]
pub struct Shots {
    count: usize,
    pool: Vec<Problem>,
    per_subject: bool,
}

/// The exemplars of a task: `count` for each prompt, from `file` if there is one, else from where the task has them.
/// Whether there are enough for each of `problems` is known before the first prompt is made.
pub fn shots(
    task: &Task,
    count: usize,
    file: Option<&Path>,
    problems: &[Problem],
    options: &DataOptions<'_>,
    watch: &mut Watch<'_>,
) -> Result<Shots, DataError> {
    if count == 0 {
        return Ok(Shots::default());
    }
    let (pool, per_subject, from) = match (file, task.exemplars) {
        (Some(file), exemplars) => {
            let name = file.display().to_string();
            let pool = problems_of(task, &entries::of_file(file, None)?, &name, None)?;
            let named = matches!(exemplars, Exemplars::Files { per_subject: true, .. });
            // A file that names no subjects is for all of them.
            let per_subject = named && pool.iter().all(|problem| problem.subject.is_some());
            (pool, per_subject, name)
        }
        (None, Exemplars::Published(published)) => (published.to_vec(), false, task.name.to_owned()),
        (None, Exemplars::Others) => (problems.to_vec(), false, task.name.to_owned()),
        (None, Exemplars::Files { files, skip, per_subject }) => {
            let mut pool = match task.source {
                Source::Hub(dataset) => problems_of_hub(task, dataset, files, options, watch)?,
                Source::File(problems) => problems_beside(task, problems, files)?,
                Source::BuiltIn(_) => return Err(DataError::NoExemplars { task: task.name }),
            };
            pool.drain(..skip.min(pool.len()));
            (pool, per_subject, task.name.to_owned())
        }
        (None, Exemplars::None) => return Err(DataError::NoExemplars { task: task.name }),
    };
    let shots = Shots { count, pool, per_subject };
    for problem in problems {
        let available = shots.fitting(problem).count();
        if available < count {
            let about = problem.subject.as_deref().filter(|_| per_subject);
            let from = about.map_or_else(|| format!("{from} has"), |about| format!("{from} has about {about}"));
            return Err(DataError::TooFewExemplars { wanted: count, available, from });
        }
    }
    Ok(shots)
}

/// The problems of files in the folder of another.
fn problems_beside(task: &Task, other: &Path, files: &[DataFile]) -> Result<Vec<Problem>, DataError> {
    let mut problems = Vec::new();
    for file in files {
        let path = other.with_file_name(file.path);
        problems.extend(problems_of(task, &entries::of_file(&path, None)?, &path.display().to_string(), file.subject)?);
    }
    Ok(problems)
}

impl Shots {
    /// Number of exemplars before each problem.
    pub fn count(&self) -> usize {
        self.count
    }

    /// All that they are taken from.
    pub fn pool(&self) -> &[Problem] {
        &self.pool
    }

    /// The exemplars for a problem, in the order of their file.
    pub fn of(&self, problem: &Problem) -> Vec<Problem> {
        self.fitting(problem).take(self.count).cloned().collect()
    }

    /// All that may stand before a problem: never itself.
    fn fitting<'a>(&'a self, problem: &'a Problem) -> impl Iterator<Item = &'a Problem> {
        let fits = move |shot: &&Problem| !self.per_subject || shot.subject == problem.subject;
        self.pool.iter().filter(fits).filter(move |shot| shot.question != problem.question)
    }
}
