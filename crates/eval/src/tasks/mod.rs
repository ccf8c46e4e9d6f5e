//! Tasks that can be evaluated: one task a file, a family where tasks differ by data only, all of them in [`TASKS`].

mod aime;
mod arc;
mod bbh;
mod choice;
mod fields;
mod gpqa;
mod gsm8k;
mod hellaswag;
mod humaneval;
mod longbench;
mod math;
mod mbpp;
mod mmlu;
mod piqa;
mod style;
mod winogrande;
mod wordmath;

use serde_json::Value;

use crate::{Gold, Problem};

pub use choice::{Candidate, Likelihood};
pub use fields::FieldError;
pub use style::{Form, Style};

/// Every task.
pub const TASKS: &[&Task] = &[
    &wordmath::TASK,
    &gsm8k::TASK,
    &math::MATH,
    &math::MATH500,
    &aime::TASK,
    &humaneval::TASK,
    &mbpp::TASK,
    &mmlu::MMLU,
    &mmlu::MMLU_PRO,
    &gpqa::TASK,
    &arc::EASY,
    &arc::CHALLENGE,
    &piqa::TASK,
    &hellaswag::TASK,
    &winogrande::TASK,
    &bbh::TASK,
    &longbench::TASK,
];

/// A task.
#[derive(Debug)]
pub struct Task {
    /// Name on the command line.
    pub name: &'static str,
    /// Description, in a line.
    pub about: &'static str,
    /// Source of its problems.
    pub source: Source,
    /// Source of its solved problems.
    pub exemplars: Exemplars,
    /// Wordings of its prompts; the first is the default.
    pub styles: &'static [Style],
    /// Positions to decode if nobody says how many.
    pub gen_length: usize,
    /// The fields that are read, for people.
    pub fields: &'static str,
    /// One problem from one entry of a data file; the number is the entry's, from 0.
    pub read: fn(&Value, usize) -> Result<Problem, FieldError>,
    /// Records whether the file lists the right option first, so that the options are put in an order that the seed
    /// draws.
    pub shuffled: bool,
    /// Candidates between which a model's likelihood chooses, where a harness requests no text; none where answers are
    /// free.
    pub likelihood: Option<Likelihood>,
}

/// Source of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Text of the binary, one JSON object a line.
    BuiltIn(&'static str),
    /// Files of a dataset on the hub.
    Hub(Dataset),
}

impl Source {
    /// Files of a dataset, `org/name`, at a branch, tag or commit.
    pub const fn hub(id: &'static str, revision: &'static str, files: &'static [DataFile]) -> Self {
        Self::Hub(Dataset { id, revision, files })
    }
}

/// A dataset of the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dataset {
    /// `org/name`.
    pub id: &'static str,
    /// Branch, tag or commit.
    pub revision: &'static str,
    /// The files with the problems.
    pub files: &'static [DataFile],
}

/// A file of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataFile {
    /// Path in the repository, the subject's name left out as `{}`.
    path: &'static str,
    /// The file in it, if it is an archive.
    pub member: Option<&'static str>,
    /// Subject of all of its problems, where entries do not name it.
    pub subject: Option<&'static str>,
}

impl DataFile {
    /// A plain file.
    pub const fn plain(path: &'static str) -> Self {
        Self { path, member: None, subject: None }
    }

    /// A file in an archive.
    pub const fn packed(path: &'static str, member: &'static str) -> Self {
        Self { path, member: Some(member), subject: None }
    }

    /// A file for each subject; `{}` in the path stands for its name.
    pub const fn each<const COUNT: usize>(path: &'static str, subjects: &[&'static str; COUNT]) -> [Self; COUNT] {
        let mut files = [Self::plain(path); COUNT];
        let mut index = 0;
        while index < COUNT {
            files[index].subject = Some(subjects[index]);
            index += 1;
        }
        files
    }

    /// Path in the repository.
    pub fn path(&self) -> String {
        self.path.replace("{}", self.subject.unwrap_or_default())
    }
}

/// Source of solved problems.
#[derive(Debug, Clone, Copy)]
pub enum Exemplars {
    /// No source: only a file that the caller names has some.
    None,
    /// Paper that published them; they are part of the binary.
    Published(fn() -> Vec<Problem>),
    /// Other files of the task's dataset.
    Files {
        /// The files.
        files: &'static [DataFile],
        /// Entries before the first that the papers use.
        skip: usize,
        /// Records whether an exemplar has to have the problem's subject.
        per_subject: bool,
    },
    /// The other problems of the same file, as harnesses do where a dataset is a single file.
    Others,
}

impl Exemplars {
    /// All entries of other files, whatever they are about.
    pub const fn files(files: &'static [DataFile]) -> Self {
        Self::Files { files, skip: 0, per_subject: false }
    }

    /// Exemplars of other files that have the problem's subject.
    pub const fn of_subject(files: &'static [DataFile]) -> Self {
        Self::Files { files, skip: 0, per_subject: true }
    }
}

/// Exemplars of a paper: question, solution and answer of each.
fn published(exemplars: &[(&str, &str, &str)], gold: fn(String) -> Gold) -> Vec<Problem> {
    let problem = |(index, (question, solution, answer)): (usize, &(&str, &str, &str))| Problem {
        id: format!("published/{index}"),
        question: (*question).to_owned(),
        solution: Some((*solution).to_owned()),
        gold: gold((*answer).to_owned()),
        ..Problem::default()
    };
    exemplars.iter().enumerate().map(problem).collect()
}

/// A task by its name.
pub fn find(name: &str) -> Option<&'static Task> {
    TASKS.iter().find(|task| task.name == name).copied()
}

impl Task {
    /// A wording by its name.
    pub fn style(&self, name: &str) -> Option<&'static Style> {
        self.styles.iter().find(|style| style.name == name)
    }
}
