//! What is asked of a model: the tasks with their prompts, and the combinations of methods that they are asked with.

use demask::internals::checkpoint::Message;
use demask::{LikelihoodOptions, Options, Prompt};

use crate::{Problem, Rule, Style, Task, data::Shots, tasks::Candidate};

/// What stands for a style's name where likelihoods are compared, whose wording is the task's own.
const LIKELIHOOD: &str = "likelihood";

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
    /// The solved problems that prompts show.
    pub shots: Shots,
    /// A system message, in the place of the style's own.
    pub system: Option<String>,
}

/// One way to decode.
#[derive(Debug, Clone, PartialEq)]
pub struct Combination {
    /// Its name in records and tables: decoder and cache as receipts write them, and what else is swept.
    pub label: String,
    /// Swept names and values, in their order.
    pub values: Vec<(String, String)>,
    /// What it is.
    pub options: Options,
    /// Instead of answers, the likelihood of each option, estimated like this.
    pub likelihood: Option<LikelihoodOptions>,
}

impl Combination {
    /// Names it: decoder and cache as receipts write them, and what else is swept.
    pub(super) fn name(&mut self, methods: &str) {
        let others = self.others(&["decoder", "cache"]);
        self.label = if others.is_empty() { methods.to_owned() } else { format!("{methods}, {others}") };
    }

    /// What is swept beside these names: `steps=32, early-stop=off`.
    pub(super) fn others(&self, beside: &[&str]) -> String {
        let others = self.values.iter().filter(|(name, _)| !beside.contains(&name.as_str()));
        others.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
    }
}

impl Plan {
    /// The prompt of a problem.
    pub fn prompt(&self, problem: &Problem) -> Prompt {
        let mut prompt = self.style.prompt(problem, &self.shots.of(problem));
        if let (Some(system), Prompt::Chat(messages)) = (&self.system, &mut prompt) {
            messages.retain(|message| message.role != "system");
            messages.insert(0, Message::new("system", system));
        }
        prompt
    }

    /// Whether its answers are programs, which have to run to be judged.
    pub fn runs_programs(&self) -> bool {
        self.style.rule == Rule::Program
    }

    /// What likelihoods choose between, a candidate for each option: none if the task is not asked like that.
    pub fn candidates(&self, problem: &Problem) -> Vec<Candidate> {
        let likelihood = self.task.likelihood.as_ref();
        likelihood.map(|likelihood| likelihood.candidates(problem, &self.shots.of(problem))).unwrap_or_default()
    }

    /// The name of the wording that a combination reads.
    pub fn wording(&self, combination: &Combination) -> &'static str {
        if combination.likelihood.is_some() { LIKELIHOOD } else { self.style.name }
    }

    /// What harnesses call its accuracy.
    pub fn metric(&self, combination: &Combination) -> &'static str {
        match (combination.likelihood, self.style.rule) {
            (Some(_), _) => "acc",
            (None, Rule::Program) => "pass@1",
            (None, Rule::Overlap) => "f1",
            (None, _) => "exact_match",
        }
    }

    /// A combination's options, with the task's own where nobody says otherwise.
    pub fn options(&self, combination: &Combination) -> Options {
        let mut options = combination.options.clone();
        options.gen_length.get_or_insert(self.task.gen_length);
        options.stop.get_or_insert_default().extend(self.style.stop.iter().map(|&stop| stop.to_owned()));
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gold, tasks};

    fn plan(task: &str) -> Plan {
        let task = tasks::find(task).unwrap();
        let problem = Problem {
            question: "What is wet?".to_owned(),
            options: vec!["water".to_owned(), "sand".to_owned()],
            gold: Gold::Option(0),
            ..Problem::default()
        };
        let problems = vec![problem];
        Plan { task, style: &task.styles[0], problems, available: 1, shots: Shots::default(), system: None }
    }

    #[test]
    fn a_system_message_stands_before_the_question() {
        let plan = Plan { system: Some("Be brief.".to_owned()), ..plan("wordmath") };
        let turns = vec![Message::new("system", "Be brief."), Message::new("user", "What is wet?")];
        assert_eq!(plan.prompt(&plan.problems[0]), Prompt::Chat(turns));
    }

    #[test]
    fn candidates_are_those_of_the_task() {
        let asked = plan("arc-easy");
        let texts = asked.candidates(&asked.problems[0]).into_iter().map(|candidate| candidate.text);
        assert_eq!(texts.collect::<Vec<_>>(), [" water", " sand"]);
        assert!(plan("wordmath").candidates(&asked.problems[0]).is_empty());
    }

    #[test]
    fn programs_are_known_before_they_run() {
        assert!(plan("humaneval").runs_programs() && plan("mbpp").runs_programs());
        assert!(!plan("wordmath").runs_programs());
    }
}
