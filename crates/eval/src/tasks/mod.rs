//! Tasks that can be evaluated: each is a file of `tasks`, and [`find`] reads it. A file of the user's is read like them.

mod entry;
mod file;
mod instruction;
mod reading;
mod style;
mod words;

use std::{
    path::Path,
    sync::{LazyLock, OnceLock},
};

use serde_json::Value;

use crate::Problem;

pub use entry::FieldError;
pub(crate) use file::read;
pub use style::{Candidate, Form, Instructions, Likelihood, Style, UNMATCHED};
pub use words::WordsError;

/// A file that is part of the program, with the task that it describes.
struct File {
    name: &'static str,
    text: &'static str,
    task: OnceLock<Option<&'static Task>>,
}

macro_rules! files {
    ($($name:literal),*) => {
        [$(File { name: $name, text: include_str!(concat!("../../tasks/", $name, ".toml")), task: OnceLock::new() }),*]
    };
}

static FILES: [File; 20] = files! {
    "wordmath", "wordmath-choice", "gsm8k", "math", "math500", "aime2024", "humaneval", "mbpp", "mmlu", "mmlu-pro", "gpqa", "arc-easy",
    "arc-challenge", "piqa", "hellaswag", "winogrande", "bbh", "longbench-hotpotqa",
    "calls", "jsonschemabench"
};

/// Data that is part of the program, by the names in files of tasks.
const DATA: [(&str, &str); 3] = [
    ("calls-test.jsonl", include_str!("../../data/calls-test.jsonl")),
    ("wordmath-test.jsonl", include_str!("../../data/wordmath-test.jsonl")),
    ("wordmath-dev.jsonl", include_str!("../../data/wordmath-dev.jsonl")),
];

/// Every task that is part of the program.
pub static TASKS: LazyLock<Vec<&'static Task>> =
    LazyLock::new(|| FILES.iter().filter_map(|file| find(file.name)).collect());

/// A task by its name.
pub fn find(name: &str) -> Option<&'static Task> {
    let file = FILES.iter().find(|file| file.name == name)?;
    *file.task.get_or_init(|| file::built_in(file.name, file.text).ok())
}

/// A task. What its file says is kept as long as the program runs: plans name it everywhere.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// Name on the command line.
    pub name: &'static str,
    /// Description, in a line.
    pub about: &'static str,
    /// Source of its problems.
    pub source: Source,
    /// Source of other problems, to choose a method by, if the task has one.
    pub dev: Option<Source>,
    /// Source of its solved problems.
    pub exemplars: Exemplars,
    /// Wordings of its prompts; the first is the default.
    pub styles: &'static [Style],
    /// Positions to decode if nobody says how many.
    pub gen_length: usize,
    /// The fields that are read, for people.
    pub fields: &'static str,
    reading: &'static reading::Reading,
    /// Records whether the file lists the right option first, so that the options are put in an order that the seed
    /// draws.
    pub shuffled: bool,
    /// Candidates between which a model's likelihood chooses, where a harness requests no text; none where answers are
    /// free.
    pub likelihood: Option<Likelihood>,
    /// Words before the options that a model decides between; none where it is not asked to.
    pub decision: Option<Instructions>,
    /// Fingerprint of the file, if it is the user's: where it changes, results are others.
    pub file: Option<u64>,
}

/// Source of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Text of the binary, one JSON object a line.
    BuiltIn(&'static str),
    /// A file beside the user's file of the task.
    File(&'static Path),
    /// Files of a dataset on the hub.
    Hub(Dataset),
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
    /// Path in the repository.
    pub path: &'static str,
    /// The file in it, if it is an archive.
    pub member: Option<&'static str>,
    /// Subject of all of its problems, where entries do not name it.
    pub subject: Option<&'static str>,
}

/// Source of solved problems.
#[derive(Debug, Clone, Copy)]
pub enum Exemplars {
    /// No source: only a file that the caller names has some.
    None,
    /// Paper that published them; they are in the task's file.
    Published(&'static [Problem]),
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

impl Task {
    /// A wording by its name.
    pub fn style(&self, name: &str) -> Option<&'static Style> {
        self.styles.iter().find(|style| style.name == name)
    }

    /// Returns the task with its problems to choose by in the place of its own, if it has some.
    pub fn on_dev(&self) -> Option<&'static Self> {
        let task = Self { source: self.dev?, ..*self };
        Some(Box::leak(Box::new(task)))
    }

    /// One problem from one entry of a data file; the number is the entry's, from 0.
    ///
    /// # Errors
    /// If a field of the entry is missing or unexpected.
    pub fn read(&self, entry: &Value, index: usize) -> Result<Problem, FieldError> {
        self.reading.problem(entry, index)
    }
}

/// The letter of an option.
fn letter(option: usize) -> char {
    char::from(b'A' + (option % 26) as u8)
}

/// The number of an option's letter.
fn number(letter: &str) -> Option<usize> {
    let mut bytes = letter.trim().bytes();
    let byte = bytes.next().filter(u8::is_ascii_uppercase)?;
    bytes.next().is_none().then_some(usize::from(byte - b'A'))
}
