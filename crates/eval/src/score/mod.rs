//! One scorer per task for all methods: from what a model wrote to a verdict.

mod number;

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
}

impl Rule {
    /// Judges what a model wrote.
    pub fn judge(self, problem: &Problem, output: &str) -> Verdict {
        match (self, &problem.gold) {
            (Self::Number(triggers), Gold::Number(gold)) => number::judge(triggers, gold, output),
            (Self::Number(_), _) => Verdict { answer: None, correct: false, failure: Some("rule".to_owned()) },
        }
    }
}
