//! One scorer per task for all methods: from a model's output to a verdict.
//!
//! Every rule sees the output alone, never the prompt: an answer that repeats nothing of its own cannot be right because
//! the question held the number. Of several answers the last one counts.

mod choice;
mod extract;
mod fences;
mod json;
mod letter;
mod math;
mod number;
mod program;
mod rational;
mod text;

use serde::{Deserialize, Serialize};

use crate::{Gold, Problem};

pub(crate) use extract::boxed;
pub use program::judge as judge_program;

/// The extracted answer and its worth.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// Text that was taken for the answer; none if nothing looks like one.
    pub answer: Option<String>,
    /// Records whether it is right.
    pub correct: bool,
    /// Credit of the answer, from 0 to 1, where it can be right in part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit: Option<f64>,
    /// Records whether the output is JSON as the problem's schema says, where one says something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid: Option<bool>,
    /// Reason of the failure, where it is not plain: `timeout`, `memory`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Verdict {
    /// Verdict on an output without an answer.
    pub fn none() -> Self {
        Self::default()
    }

    /// An answer, right or wrong.
    pub fn of(answer: impl Into<String>, correct: bool) -> Self {
        Self { answer: Some(answer.into()), correct, ..Self::default() }
    }

    /// A wrong answer for a reason of its own.
    pub fn failed(failure: impl Into<String>) -> Self {
        Self { failure: Some(failure.into()), ..Self::default() }
    }

    /// Worth of the answer, from 0 to 1; accuracy is its mean.
    pub fn worth(&self) -> f64 {
        self.credit.unwrap_or(if self.correct { 1.0 } else { 0.0 })
    }
}

/// Rule that finds the answer in a model's output. Phrases are matched in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The number after the last of these phrases, else the last number.
    Number(&'static [&'static str]),
    /// The letter of an option: after the first of these phrases that has one, else the last letter on its own.
    Letter(&'static [&'static str]),
    /// An option by a name such as `answer3` or `solution 1`, by its letter or its number, or by its own text.
    Choice {
        /// Word for an option: `answer`, `solution`, `option`, `ending`.
        name: &'static str,
        /// Phrases that stand before the answer; the last one counts.
        triggers: &'static [&'static str],
    },
    /// A mathematical expression: in the last `\boxed{}`, else after the last of these phrases.
    Math(&'static [&'static str]),
    /// A text that is the right one but for case, spaces and marks around it: after the last of these phrases, else the
    /// last line.
    Exact(&'static [&'static str]),
    /// A text worth the F1 of its words and the right one's.
    Overlap,
    /// A program that passes its tests: needs leave to run it, see [`judge_program`].
    Program,
    /// A value in JSON that is valid by the problem's schema, and equal to the right one where there is one: the whole output,
    /// or its last fenced block.
    Json,
}

impl Rule {
    /// Judges a model's output. Programs are not run here: their verdict is `not run`.
    pub fn judge(self, problem: &Problem, output: &str) -> Verdict {
        match (self, &problem.gold) {
            (Self::Number(triggers), Gold::Number(gold)) => number::judge(triggers, gold, output),
            (Self::Letter(triggers), Gold::Option(gold)) => letter::judge(triggers, &problem.options, *gold, output),
            (Self::Choice { name, triggers }, Gold::Option(gold)) => {
                choice::judge(name, triggers, &problem.options, *gold, output)
            }
            (Self::Math(triggers), Gold::Math(gold) | Gold::Number(gold)) => math::judge(triggers, gold, output),
            (Self::Exact(triggers), Gold::Text(golds)) => text::judge_exact(triggers, golds, output),
            (Self::Overlap, Gold::Text(golds)) => text::judge_overlap(golds, output),
            (Self::Json, Gold::Json(gold)) => json::judge(problem.schema.as_deref(), gold.as_deref(), output),
            (Self::Program, Gold::Program { .. }) => Verdict::failed("not run"),
            _ => Verdict::failed("rule"),
        }
    }
}
