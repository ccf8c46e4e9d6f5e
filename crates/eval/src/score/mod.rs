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
    /// The letter of an option: behind the first of these phrases that has one, else the last letter on its own.
    Letter(&'static [&'static str]),
    /// An option by its name and number: `answer3`, `solution 1`.
    Choice {
        /// What options are called: `answer`, `solution`, `option`, `ending`.
        name: &'static str,
        /// Phrases that stand before the answer; the last one counts.
        triggers: &'static [&'static str],
    },
    /// A mathematical expression: in the last `\boxed{}`, else behind the last of these phrases.
    Math(&'static [&'static str]),
    /// A text that is the right one: behind the last of these phrases, else the last line.
    Exact(&'static [&'static str]),
    /// A text worth the words that it shares with the right one.
    Overlap,
    /// A program that passes its tests.
    Program,
}

impl Rule {
    /// Judges what a model wrote.
    pub fn judge(self, problem: &Problem, output: &str) -> Verdict {
        match (self, &problem.gold) {
            (Self::Number(triggers), Gold::Number(gold)) => number::judge(triggers, gold, output),
            (Self::Letter(triggers), Gold::Option(gold)) => {
                plain::letter(triggers, *gold, problem.options.len(), output)
            }
            (Self::Choice { name, triggers }, Gold::Option(gold)) => plain::choice(name, triggers, *gold, output),
            (Self::Math(triggers), Gold::Math(gold)) => plain::math(triggers, gold, output),
            (Self::Exact(triggers), Gold::Text(golds)) => plain::exact(triggers, golds, output),
            (Self::Overlap, Gold::Text(golds)) => plain::overlap(golds, output),
            _ => Verdict { answer: None, correct: false, failure: Some("rule".to_owned()) },
        }
    }
}
