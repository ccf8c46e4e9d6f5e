//! Wordings of prompts: how a problem is asked and how an exemplar answers. How turns or paragraphs are put together is
//! the same for all tasks.

use demask::Prompt;
use demask::internals::checkpoint::Message;

use crate::{Gold, Problem, Rule};

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
    pub head: fn(&Problem) -> String,
    /// The problem.
    pub ask: fn(&Problem) -> String,
    /// Answer of an exemplar.
    pub solve: fn(&Problem) -> String,
    /// Texts that end an answer.
    pub stop: &'static [&'static str],
    /// Exemplars in the prompt if nobody says how many.
    pub shots: usize,
    /// Rule that finds the answer.
    pub rule: Rule,
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
    /// The prompt for a problem behind solved exemplars.
    pub fn prompt(&self, problem: &Problem, exemplars: &[Problem]) -> Prompt {
        let head = (self.head)(problem);
        match self.form {
            Form::Chat => {
                let system = Some(head.trim_end()).filter(|head| !head.is_empty());
                let mut turns: Vec<Message> = system.map(|head| Message::new("system", head)).into_iter().collect();
                for exemplar in exemplars {
                    turns.push(Message::new("user", (self.ask)(exemplar)));
                    turns.push(Message::new("assistant", (self.solve)(exemplar)));
                }
                turns.push(Message::new("user", (self.ask)(problem)));
                Prompt::Chat(turns)
            }
            Form::Text { gap } => {
                let mut text = head;
                for exemplar in exemplars {
                    let solved = (self.solve)(exemplar);
                    text.extend([&(self.ask)(exemplar), gap, solved.trim_end(), "\n\n"]);
                }
                Prompt::Raw(text + &(self.ask)(problem))
            }
        }
    }

    /// Puts the words as turns, as the harness does for instructed models (`--apply_chat_template
    /// --fewshot_as_multiturn`).
    pub(super) const fn as_chat(self) -> Self {
        Self { name: "lm-eval-chat", form: Form::Chat, about: "lm-evaluation-harness with a chat template", ..self }
    }
}

/// Empty text before the first problem.
pub(super) fn no_head(_: &Problem) -> String {
    String::new()
}

/// A worked solution as the file has it.
pub(super) fn solution(problem: &Problem) -> String {
    problem.solution.clone().unwrap_or_default()
}

/// A worked solution, or the right answer where there is none, behind a phrase.
pub(super) fn concluded(problem: &Problem, phrase: &str, end: &str) -> String {
    let conclusion = format!("{phrase}{}{end}", answer(problem));
    match &problem.solution {
        Some(solution) => format!("{} {conclusion}", solution.trim_end()),
        None => conclusion,
    }
}

/// The right answer as an exemplar writes it.
pub(super) fn answer(problem: &Problem) -> String {
    match &problem.gold {
        Gold::Number(text) | Gold::Math(text) => text.clone(),
        Gold::Option(option) => super::choice::letter(*option).to_string(),
        Gold::Text(texts) => texts.first().cloned().unwrap_or_default(),
        Gold::Program { .. } => solution(problem),
    }
}
