//! Wordings of prompts: how a problem is asked and how an exemplar answers. How turns or paragraphs are put together is
//! the same for all tasks.

use demask::Prompt;
use demask_checkpoint::Message;
use minijinja::Value;
use regex::Regex;

use super::{
    instruction::Instruction,
    letter,
    words::{Words, WordsError},
};
use crate::{Gold, Problem, Rule, Verdict};

/// Failure of an answer in which the pattern of its task finds nothing.
pub const UNMATCHED: &str = "no match";

/// One way to word a task's prompts.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Name for `--prompt-style`.
    pub name: &'static str,
    /// Origin of the wording.
    pub about: &'static str,
    /// Conversation or plain text.
    pub form: Form,
    /// Text before everything else; a system message in a conversation.
    pub(super) head: Words,
    /// The problem.
    pub(super) ask: Words,
    /// Answer of an exemplar; none where prompts have no exemplars.
    pub(super) solve: Option<Words>,
    /// Texts that end an answer.
    pub stop: &'static [&'static str],
    /// Exemplars in the prompt if nobody says how many.
    pub shots: usize,
    /// Rule that finds the answer.
    pub rule: Rule,
    /// Pattern of the part of an output that the rule judges; the whole output without one.
    pub(super) pattern: Option<&'static Regex>,
    pub(super) scope: &'static Scope,
}

/// Form of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Turns: an exemplar is a user's and an assistant's.
    Chat,
    /// Paragraphs without a chat template.
    Text {
        /// Text between a problem and its answer.
        gap: &'static str,
    },
}

impl Style {
    /// The prompt for a problem after solved exemplars.
    ///
    /// # Errors
    /// If the task's words cannot be made of one of them.
    pub fn prompt(&self, problem: &Problem, exemplars: &[Problem]) -> Result<Prompt, WordsError> {
        let head = self.head.of(&self.scope.of(problem), &problem.id)?;
        match self.form {
            Form::Chat => {
                let system = Some(head.trim_end()).filter(|head| !head.is_empty());
                let mut turns: Vec<Message> = system.map(|head| Message::new("system", head)).into_iter().collect();
                for exemplar in exemplars {
                    turns.push(Message::new("user", self.ask(exemplar)?));
                    turns.push(Message::new("assistant", self.solve(exemplar)?));
                }
                turns.push(Message::new("user", self.ask(problem)?));
                Ok(turns.into())
            }
            Form::Text { gap } => {
                let mut text = head;
                for exemplar in exemplars {
                    text.extend([&self.ask(exemplar)?, gap, self.solve(exemplar)?.trim_end(), "\n\n"]);
                }
                Ok(Prompt::Raw(text + &self.ask(problem)?))
            }
        }
    }

    /// The problem in words.
    ///
    /// # Errors
    /// If the words cannot be made of it.
    pub fn ask(&self, problem: &Problem) -> Result<String, WordsError> {
        self.ask.of(&self.scope.of(problem), &problem.id)
    }

    /// Judges a model's output by its rule: all of it, or the part that its pattern finds, of several places the last.
    /// Where the pattern finds nothing, there is no answer, and the failure is [`UNMATCHED`].
    pub fn judge(&self, problem: &Problem, output: &str) -> Verdict {
        let Some(pattern) = self.pattern else { return self.rule.judge(problem, output) };
        let found = pattern.captures_iter(output).last();
        let part = found.and_then(|found| found.get(1).or_else(|| found.get(0)));
        part.map_or_else(|| Verdict::failed(UNMATCHED), |part| self.rule.judge(problem, part.as_str()))
    }

    /// Returns the pattern of answers, if it has one.
    pub fn pattern(&self) -> Option<&'static str> {
        self.pattern.map(Regex::as_str)
    }

    /// Answer of a problem that is an exemplar.
    ///
    /// # Errors
    /// If the words cannot be made of it, or the style has none.
    pub fn solve(&self, problem: &Problem) -> Result<String, WordsError> {
        let detail =
            || format!("style {} has no solve, the answer of an exemplar: use `shots` 0, or add it", self.name);
        let missing = || WordsError { name: "solve", problem: problem.id.clone(), detail: detail() };
        self.solve.ok_or_else(missing)?.of(&self.scope.of(problem), &problem.id)
    }
}

/// One of the texts that a likelihood chooses between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Text that the model reads.
    pub context: String,
    /// Text whose likelihood is computed, with the space before it.
    pub text: String,
}

/// Prompting for a likelihood instead of an answer, as a harness does it. The wording is its own: prompts that ask for
/// a letter show the options, these mostly do not.
#[derive(Debug, Clone, Copy)]
pub struct Likelihood {
    /// Text before everything else.
    pub(super) head: Words,
    /// Text before an option.
    pub(super) context: Words,
    /// The option.
    pub(super) option: Words,
    /// Number of exemplars by default (LLaDA's and Dream's evaluation).
    pub shots: usize,
    pub(super) scope: &'static Scope,
}

impl Likelihood {
    /// One candidate for each option, after exemplars with their right options.
    ///
    /// # Errors
    /// If the task's words cannot be made of one of them.
    pub fn candidates(&self, problem: &Problem, exemplars: &[Problem]) -> Result<Vec<Candidate>, WordsError> {
        let mut before = self.head.of(&self.scope.of(problem), &problem.id)?;
        for exemplar in exemplars {
            if let Gold::Option(right) = exemplar.gold
                && right < exemplar.options.len()
            {
                let Candidate { context, text } = self.candidate(exemplar, right)?;
                before.extend([&*context, &text, "\n\n"]);
            }
        }
        let behind = |option| {
            let candidate = self.candidate(problem, option)?;
            Ok(Candidate { context: format!("{before}{}", candidate.context), ..candidate })
        };
        (0..problem.options.len()).map(behind).collect()
    }

    fn candidate(&self, problem: &Problem, option: usize) -> Result<Candidate, WordsError> {
        let mut parts = self.scope.parts(problem);
        parts.push(("option", problem.options[option].as_str().into()));
        parts.push(("letter", letter(option).to_string().into()));
        let scope = Value::from_pairs(parts);
        let text = |words: &Words| words.of(&scope, &problem.id);
        Ok(Candidate { context: text(&self.context)?, text: text(&self.option)? })
    }
}

/// Words before the options that a model decides between, after a prompt in one of the task's styles.
#[derive(Debug, Clone, Copy)]
pub struct Instructions {
    pub(super) words: Words,
    pub(super) scope: &'static Scope,
}

impl Instructions {
    /// Returns the words for a problem.
    ///
    /// # Errors
    /// If they cannot be made of it.
    pub fn of(&self, problem: &Problem) -> Result<String, WordsError> {
        self.words.of(&self.scope.of(problem), &problem.id)
    }
}

/// Values that the words of a task may use beside the problem.
#[derive(Debug)]
pub(super) struct Scope {
    /// Names of its subjects.
    pub names: Vec<&'static str>,
    /// Description of each, if it has one.
    pub subjects: Value,
    /// How its problems are worded as instructions.
    pub instruction: Option<Instruction>,
}

/// Names in the words of tasks, in those of tasks with instructions, and in those of likelihoods.
pub(super) const NAMES: [&str; 9] =
    ["question", "context", "subject", "options", "solution", "schema", "answer", "right", "subjects"];
pub(super) const INSTRUCTION_NAMES: [&str; 2] = ["instruction", "numbered"];
pub(super) const OPTION_NAMES: [&str; 2] = ["option", "letter"];

impl Scope {
    fn of(&self, problem: &Problem) -> Value {
        Value::from_pairs(self.parts(problem))
    }

    /// Returns the parts of a problem. A part that it lacks is not defined.
    fn parts(&self, problem: &Problem) -> Vec<(&'static str, Value)> {
        let options: Value = problem.options.iter().map(|option| Value::from(option.as_str())).collect();
        let mut parts = vec![
            ("question", problem.question.as_str().into()),
            ("options", options),
            ("answer", answer(problem).into()),
            ("subjects", self.subjects.clone()),
        ];
        let optional = [
            ("context", &problem.context),
            ("subject", &problem.subject),
            ("solution", &problem.solution),
            ("schema", &problem.schema),
        ];
        parts.extend(optional.iter().filter_map(|(name, text)| Some((*name, text.as_deref()?.into()))));
        if let Gold::Option(right) = problem.gold {
            parts.push(("right", right.into()));
        }
        if let Some(instruction) = self.instruction {
            parts.push(("instruction", instruction.words(problem).into()));
            parts.push(("numbered", instruction.numbered(problem).into()));
        }
        parts
    }
}

/// The right answer as an exemplar writes it.
fn answer(problem: &Problem) -> String {
    match &problem.gold {
        Gold::Number(text) | Gold::Math(text) => text.clone(),
        Gold::Option(option) => letter(*option).to_string(),
        Gold::Text(texts) => texts.first().cloned().unwrap_or_default(),
        Gold::Json(text) => text.clone().unwrap_or_default(),
        Gold::Program { .. } => problem.solution.clone().unwrap_or_default(),
    }
}
