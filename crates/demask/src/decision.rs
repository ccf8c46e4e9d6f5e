//! Typed decisions: questions about a prompt, each answered by one of given choices, with the probability of every choice.
//!
//! Nothing is generated. Each question has a slot, and a choice's probability is the model's own of the slot reading just that:
//! the product of the probabilities of its tokens, each as the model predicts it once those before it are written in the slot.
//! They are judged as the tokens of a [`Likelihood`] are. `form` has the rules of the model's input, `json` the
//! questions and answers as programs exchange them.

mod form;
mod json;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::{Error, Likelihood};

/// Questions of a request, at most.
pub const MOST_QUESTIONS: usize = 400;
/// Choices of a question, at most.
pub const MOST_CHOICES: usize = 255;

/// A question about a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Name that its answer repeats in JSON.
    pub name: Option<String>,
    /// Text before the slot, as the model reads it: a space is between them unless other white space ends it.
    pub instructions: String,
    /// Its choices.
    pub kind: QuestionKind,
}

/// The type of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionKind {
    /// Yes or no, written `yes` and `no`.
    Predicate,
    /// One of these texts.
    Choice(Vec<String>),
    /// An integer, both ends included, written in decimal.
    Score {
        /// The lowest.
        min: i64,
        /// The highest.
        max: i64,
    },
    /// One of these texts, from the lowest to the highest; their values count from 0.
    Levels(Vec<String>),
}

impl Question {
    /// A question without a name.
    pub fn new(instructions: impl Into<String>, kind: QuestionKind) -> Self {
        Self { name: None, instructions: instructions.into(), kind }
    }

    /// Returns the texts of its choices.
    ///
    /// # Errors
    /// If there are too few or too many, or one is empty, has several lines or is there twice; `at` is the question's place.
    fn texts(&self, at: &str) -> Result<Vec<String>, Error> {
        match &self.kind {
            QuestionKind::Predicate => Ok(["yes", "no"].map(str::to_owned).to_vec()),
            QuestionKind::Choice(texts) => checked(texts, &format!("{at}.choices")),
            QuestionKind::Levels(texts) => checked(texts, &format!("{at}.levels")),
            &QuestionKind::Score { min, max } => {
                let more = max.checked_sub(min).and_then(|more| usize::try_from(more).ok());
                if more.is_some_and(|more| (1..MOST_CHOICES).contains(&more)) {
                    return Ok((min..=max).map(|value| value.to_string()).collect());
                }
                let expected = format!("`min` below `max`, and at most {MOST_CHOICES} integers");
                Err(wrong(format!("{at}.max"), format!("the score goes from {min} to {max}, expected {expected}")))
            }
        }
    }

    /// Returns the value of its first choice, of a question whose choices have values.
    fn first_value(&self) -> Option<i64> {
        match self.kind {
            QuestionKind::Score { min, .. } => Some(min),
            QuestionKind::Levels(_) => Some(0),
            QuestionKind::Predicate | QuestionKind::Choice(_) => None,
        }
    }
}

/// The error about a part of a question.
fn wrong(param: String, text: impl Into<String>) -> Error {
    Error::Question { param, text: text.into() }
}

/// Returns the texts of choices that are what they have to be.
fn checked(texts: &[String], at: &str) -> Result<Vec<String>, Error> {
    if !(2..=MOST_CHOICES).contains(&texts.len()) {
        return Err(wrong(at.to_owned(), format!("there are {}, expected 2 to {MOST_CHOICES}", texts.len())));
    }
    let mut known = HashMap::new();
    for (index, text) in texts.iter().enumerate() {
        let at_text = || format!("{at}[{index}]");
        if text.trim().is_empty() || text.contains(['\n', '\r']) {
            let expected = "expected a text of one line that is not empty";
            return Err(wrong(at_text(), format!("{:?} cannot be chosen, {expected}", form::excerpt(text))));
        }
        if let Some(first) = known.insert(text.trim(), index) {
            return Err(wrong(at_text(), format!("{:?} is choice {first} already: omit one", form::excerpt(text))));
        }
    }
    Ok(texts.to_vec())
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// Texts of the choices.
    pub choices: Vec<String>,
    /// Probability of each choice among them: they sum to 1.
    pub probabilities: Vec<f64>,
    /// Sum of the probabilities that the choices had among all texts that the slot could have: from 0 to 1. Where it is small,
    /// the model would have written something else.
    pub mass: f64,
    /// The most probable choice, by its place; of equal ones the first.
    pub choice: usize,
    /// Expected value, of a question whose choices have values.
    pub score: Option<f64>,
}

impl Decision {
    /// Makes an answer of the log-probabilities of the choices.
    fn of(question: &Question, choices: Vec<String>, logs: &[f64]) -> Self {
        let best = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let choice = logs.iter().position(|&log| log == best).unwrap_or(0);
        let shares: Vec<f64> = logs.iter().map(|log| (log - best).exp()).collect();
        let all: f64 = shares.iter().sum();
        let probabilities: Vec<f64> = shares.iter().map(|share| share / all).collect();
        let score = question.first_value().map(|first| {
            let weighted = probabilities.iter().enumerate().map(|(place, share)| (first + place as i64) as f64 * share);
            weighted.sum()
        });
        // Each logarithm is rounded by itself.
        let mass = (best.exp() * all).min(1.0);
        Self { choices, probabilities, mass, choice, score }
    }

    /// Returns the probability of the most probable choice among the choices.
    pub fn confidence(&self) -> f64 {
        self.probabilities[self.choice]
    }
}

/// The answers to the questions of a request, and what they took.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Decisions {
    /// An answer for each question, in their order.
    pub answers: Vec<Decision>,
    /// Tokens that were given: the prompt's once, and those of the questions. Slots have none.
    pub input_tokens: usize,
    /// Tokens that were not computed, because another request had left their K/V.
    pub cached_tokens: usize,
    /// Forwards.
    pub forwards: usize,
    /// Floating point operations of these forwards by formula.
    pub flops: f64,
    /// Seconds of these forwards in the network.
    pub seconds: f64,
}

/// Questions that are asked.
#[derive(Debug)]
pub(crate) struct Questions {
    /// Each with the texts of its choices.
    questions: Vec<(Question, Vec<String>)>,
    /// Tokens that are given.
    input_tokens: usize,
}

impl Questions {
    /// Makes the answers of the likelihoods of all choices, question after question.
    pub fn answered(self, found: &[Likelihood]) -> Decisions {
        let mut logs = found.iter().map(|one| one.log_probability);
        let answers = self.questions.into_iter().map(|(question, choices)| {
            let own: Vec<f64> = logs.by_ref().take(choices.len()).collect();
            Decision::of(&question, choices, &own)
        });
        Decisions {
            answers: answers.collect(),
            input_tokens: self.input_tokens,
            cached_tokens: found.iter().map(|one| one.cached_tokens).sum(),
            forwards: found.iter().map(|one| one.forwards).sum(),
            flops: found.iter().map(|one| one.flops).sum(),
            seconds: found.iter().map(|one| one.seconds).sum(),
        }
    }
}
