//! One scorer per task for all methods: from what a model wrote to a verdict.

mod number;
mod plain;

use serde::{Deserialize, Serialize};

use crate::{Gold, Problem};

/// The extracted answer and what it is worth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What was taken for the answer; none if nothing looks like one.
    pub answer: Option<String>,
    /// Whether it is right.
    pub correct: bool,
    /// Why not, where that is not plain: `timeout`, `memory`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// How the answer is found in what a model wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The number behind the last of these phrases (in any case), else the last number.
    Number(&'static [&'static str]),
    /// The letter of an option.
    Letter,
    /// An option by one of these words and its number: `answer2`.
    Named(&'static [&'static str]),
    /// A mathematical expression in the last `\boxed{}`.
    Boxed,
    /// One of the right texts.
    Exact,
    /// The words shared with a right text.
    F1,
    /// A program that passes its tests.
    Program,
}

impl Rule {
    /// Judges what a model wrote.
    pub fn judge(self, problem: &Problem, output: &str) -> Verdict {
        match (self, &problem.gold) {
            (Self::Number(triggers), Gold::Number(gold)) => number::judge(triggers, gold, output),
            (Self::Letter, Gold::Option(gold)) => plain::letter(*gold, problem.options.len(), output),
            (Self::Named(words), Gold::Option(gold)) => plain::named(words, *gold, output),
            (Self::Boxed, Gold::Math(gold)) => plain::boxed(gold, output),
            (Self::Exact, Gold::Text(gold)) => plain::exact(gold, output),
            (Self::F1, Gold::Text(gold)) => plain::shared(gold, output),
            _ => Verdict { answer: None, correct: false, failure: Some("rule".to_owned()) },
        }
    }
}
