//! What is asked of a model: the tasks with their prompts, and the combinations of methods that they are asked with.

use demask::{GenerateOptions, LikelihoodOptions, Prompt, checkpoint::Message};

use crate::{Gold, Problem, Style, Task};

/// One task of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The task.
    pub task: &'static Task,
    /// How its prompts are worded.
    pub style: &'static Style,
    /// What is asked, in order.
    pub problems: Vec<Problem>,
    /// How many problems there are, those that are not asked included.
    pub available: usize,
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
    /// The part of the name behind decoder and cache: `steps=32, early-stop=off`.
    pub others: String,
    /// What it is.
    pub options: GenerateOptions,
    /// Instead of answers, the likelihood of each option, estimated like this.
    pub likelihood: Option<LikelihoodOptions>,
}

impl Combination {
    /// Names it: decoder and cache as receipts write them, and what else is swept.
    pub(super) fn name(&mut self, methods: &str) {
        self.label = if self.others.is_empty() { methods.to_owned() } else { format!("{methods}, {}", self.others) };
    }
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

    /// Whether its answers are programs, which have to run to be judged.
    pub fn runs_programs(&self) -> bool {
        self.problems.iter().any(|problem| matches!(problem.gold, Gold::Program { .. }))
    }

    /// What likelihoods choose between: for each option, what the model reads and the text that is judged. It is the
    /// option's letter if the prompt shows all options, else the option itself; behind a text without a template it
    /// begins with a space.
    pub fn candidates(&self, problem: &Problem) -> Vec<(Prompt, String)> {
        let prompt = self.prompt(problem);
        let (shown, space) = match &prompt {
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
        let texts: Vec<_> = problem.options.iter().enumerate().map(text).collect();
        texts.into_iter().map(|text| (prompt.clone(), text)).collect()
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

    fn plan(prompt: fn(&Problem, &[Problem]) -> Prompt, problem: Problem) -> Plan {
        let style: &'static Style = Box::leak(Box::new(Style { name: "plain", prompt, stop: &[] }));
        let task = tasks::find("wordmath").unwrap();
        Plan { task, style, problems: vec![problem], available: 1, shots: Vec::new(), system: None }
    }

    #[test]
    fn letters_stand_for_options_that_are_shown() {
        let problem = Problem {
            question: "What is wet?".to_owned(),
            options: vec!["water".to_owned(), "sand".to_owned()],
            ..Problem::default()
        };
        let of = |prompt: fn(&Problem, &[Problem]) -> Prompt| {
            let plan = plan(prompt, problem.clone());
            let candidates = plan.candidates(&problem);
            assert!(candidates.iter().all(|(context, _)| *context == plan.prompt(&problem)));
            candidates.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        assert_eq!(of(|_, _| Prompt::Raw("What is wet?\nA. water\nB. sand\nAnswer:".to_owned())), [" A", " B"]);
        assert_eq!(of(|_, _| Prompt::user("What is wet?\nA. water\nB. sand\nAnswer:", None)), ["A", "B"]);
        assert_eq!(of(|_, _| Prompt::Raw("water, sand. What is wet? ".to_owned())), ["water", "sand"]);
        assert_eq!(of(|_, _| Prompt::Raw("What is wet?".to_owned())), [" water", " sand"]);
    }

    #[test]
    fn programs_are_known_before_they_run() {
        let gold = Gold::Program { prompt: String::new(), tests: "assert f()".to_owned(), entry_point: None };
        let ask: fn(&Problem, &[Problem]) -> Prompt = |problem, _| Prompt::Raw(problem.question.clone());
        assert!(plan(ask, Problem { gold, ..Problem::default() }).runs_programs());
        assert!(!plan(ask, Problem::default()).runs_programs());
    }
}
