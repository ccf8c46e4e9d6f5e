//! One problem, in the words that all prompts and scorers share.

/// One problem of a task, as its data file states it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Problem {
    /// Its name: the file's own, or the line's number.
    pub id: String,
    /// What is asked.
    pub question: String,
    /// What the question is about: a passage, the start of a program.
    pub context: Option<String>,
    /// The subject or the sort of problem, where the file names one.
    pub subject: Option<String>,
    /// The options of multiple choice, in the order in which they are shown.
    pub options: Vec<String>,
    /// A worked solution, where the file has one: exemplars show it.
    pub solution: Option<String>,
    /// What is right.
    pub gold: Gold,
}

/// What is right.
#[derive(Debug, Clone, PartialEq)]
pub enum Gold {
    /// A number as the file writes it.
    Number(String),
    /// A mathematical expression in LaTeX.
    Math(String),
    /// An option, counted from 0.
    Option(usize),
    /// Any of these texts.
    Text(Vec<String>),
    /// A program that passes.
    Program {
        /// What stands before the completion; empty if the answer is the whole program.
        prompt: String,
        /// Statements that raise if the program is wrong.
        tests: String,
        /// The function that the tests call, if the file names one.
        entry_point: Option<String>,
    },
}

impl Default for Gold {
    fn default() -> Self {
        Self::Text(Vec::new())
    }
}
