//! What is asked of a model: the tasks with their prompts, and the combinations of methods that they are asked with.

use demask::{GenerateOptions, LikelihoodOptions, Prompt, checkpoint::Message};

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
    /// Instead of answers, the likelihood of each option, estimated like this.
    pub likelihood: Option<LikelihoodOptions>,
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

    /// The texts whose likelihoods are compared: the options' letters if the prompt shows all options, else the options
    /// themselves. Behind a text without a template they begin with a space.
    pub fn continuations(&self, problem: &Problem, prompt: &Prompt) -> Vec<String> {
        let (shown, space) = match prompt {
            Prompt::Chat(messages) => (messages.last().map_or("", |message| message.content.as_str()), ""),
            Prompt::Raw(text) | Prompt::Infill(text) => {
                let question = text.rfind(&problem.question).unwrap_or(0);
                (&text[question..], if text.ends_with(char::is_whitespace) { "" } else { " " })
            }
            Prompt::Tokens(_) => ("", ""),
        };
        let letters = problem.options.iter().all(|option| shown.contains(option.as_str()));
        let text = |(index, option): (usize, &String)| match char::from_u32('A' as u32 + index as u32) {
            Some(letter) if letters => format!("{space}{letter}"),
            _ => format!("{space}{option}"),
        };
        problem.options.iter().enumerate().map(text).collect()
    }

    /// A combination's options, with the task's own where nobody says otherwise.
    pub fn options(&self, combination: &Combination) -> GenerateOptions {
        let mut options = combination.options.clone();
        options.gen_length.get_or_insert(self.task.gen_length);
        options.stop.extend(self.style.stop.iter().map(|&stop| stop.to_owned()));
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks;

    #[test]
    fn letters_stand_for_options_that_are_shown() {
        let task = tasks::find("wordmath").unwrap();
        let plan = Plan { task, style: &task.styles[0], problems: Vec::new(), shots: Vec::new(), system: None };
        let problem = Problem {
            question: "What is wet?".to_owned(),
            options: vec!["water".to_owned(), "sand".to_owned()],
            ..Problem::default()
        };
        let of = |prompt: Prompt| plan.continuations(&problem, &prompt);
        let shown = "What is wet?\nA. water\nB. sand\nAnswer:";
        assert_eq!(of(Prompt::Raw(shown.to_owned())), [" A", " B"]);
        assert_eq!(of(Prompt::user(shown, None)), ["A", "B"]);
        assert_eq!(of(Prompt::Raw("water, sand. What is wet? ".to_owned())), ["water", "sand"]);
        assert_eq!(of(Prompt::Raw("What is wet?".to_owned())), [" water", " sand"]);
    }
}
