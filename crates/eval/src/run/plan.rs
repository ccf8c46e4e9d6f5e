//! What is asked of a model: the tasks with their prompts, and the combinations of methods that they are asked with.

use demask::{GenerateOptions, Prompt, checkpoint::Message};

use crate::{Problem, Style, Task};

/// One task of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The task.
    pub task: &'static Task,
    /// How its prompts are worded.
    pub style: &'static Style,
    /// What is asked, in order.
    pub problems: Vec<Problem>,
    /// The solved problems in each prompt.
    pub shots: Vec<Problem>,
    /// A system message, in the place of the style's own.
    pub system: Option<String>,
}

/// One way to decode.
#[derive(Debug, Clone, PartialEq)]
pub struct Combination {
    /// Its name in records and tables: decoder and cache as receipts write them, and what else is swept.
    pub label: String,
    /// What it is.
    pub options: GenerateOptions,
}

impl Plan {
    /// The prompt of a problem.
    pub fn prompt(&self, problem: &Problem) -> Prompt {
        let mut prompt = (self.style.prompt)(problem, &self.shots);
        if let (Some(system), Prompt::Chat(messages)) = (&self.system, &mut prompt) {
            messages.retain(|message| message.role != "system");
            messages.insert(0, Message::new("system", system));
        }
        prompt
    }

    /// Whether its prompts are conversations.
    pub fn has_roles(&self) -> bool {
        self.problems.first().is_some_and(|problem| matches!(self.prompt(problem), Prompt::Chat(_)))
    }

    /// A combination's options, with the task's own where nobody says otherwise.
    pub fn options(&self, combination: &Combination) -> GenerateOptions {
        let mut options = combination.options.clone();
        options.gen_length.get_or_insert(self.task.gen_length);
        options.stop.extend(self.style.stop.iter().map(|&stop| stop.to_owned()));
        options
    }
}
