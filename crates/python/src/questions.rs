//! The problems of a task, for a loop of one's own: prompts that a model is asked, and a judge of its outputs.

use std::path::PathBuf;

use demask::{Prompt, layers::checkpoint::HubOptions};
use demask_eval::{
    Problem, Rule, Source,
    run::{Ask, AskOptions, Asking, Means, ModelSpec, Plan, RunError},
    tasks::TASKS,
};
use pyo3::{exceptions::PyIndexError, prelude::*};
use serde_json::{Value, json};

use crate::evaluation::{Failure, spec};

/// The problems of a task in the words of a style.
#[pyclass(frozen, module = "demask._native")]
pub struct Questions {
    plan: Plan,
}

#[pymethods]
impl Questions {
    /// Reads the problems of a task.
    #[new]
    #[pyo3(signature = (task, *, seed, limit, shots, shots_file, prompt_style, data, subject))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords, each a flag of `demask-lab eval`")]
    fn new(
        py: Python<'_>,
        task: String,
        seed: u64,
        limit: Option<usize>,
        shots: Option<usize>,
        shots_file: Option<PathBuf>,
        prompt_style: Option<String>,
        data: Option<PathBuf>,
        subject: Option<String>,
    ) -> PyResult<Self> {
        let ask = AskOptions { prompt_style, shots, shots_file, ..AskOptions::default() };
        let read = py.detach(|| {
            let asking = Asking { ask, ..Asking::default() };
            let spec = spec(&[task], ModelSpec::default(), asking, data.as_deref(), subject.as_deref())?;
            let hub = HubOptions::from_env();
            // Programs are never run: who asks for their problems may.
            let mut means = Means { hub: &hub, seed, limit, programs: true, skip: None, watch: &mut |_| true };
            Plan::of(spec, &mut means)
        });
        let plan = read.map_err(|error: RunError| Failure::from(error).raise(py))?;
        Ok(Self { plan })
    }

    /// Number of problems.
    fn __len__(&self) -> usize {
        self.problems().len()
    }

    /// Options of an answer that the task has, as JSON: its length and its stop texts.
    fn options(&self) -> String {
        Value::Object(self.ask().settings()).to_string()
    }

    /// A problem as JSON.
    fn item(&self, index: usize) -> PyResult<String> {
        let problem = self.problem(index)?;
        let Problem { id, question, context, subject, options, solution, .. } = problem;
        let expected = problem.expected();
        let item = json!({"index": index, "id": id, "question": question, "context": context, "subject": subject,
            "options": options, "solution": solution, "expected": expected});
        Ok(item.to_string())
    }

    /// The prompt of a problem as JSON: a list of messages, or a text that is continued as it is.
    fn prompt(&self, py: Python<'_>, index: usize) -> PyResult<String> {
        let problem = self.problem(index)?;
        let prompt = self.ask().prompt(problem).map_err(|error| Failure::from(RunError::from(error)).raise(py))?;
        let told = match prompt {
            Prompt::Chat(chat) => {
                let turn = |message: &demask::Message| json!({"role": message.role, "content": message.content});
                chat.messages.iter().map(turn).collect()
            }
            Prompt::Raw(text) => Value::from(text),
            _ => Value::Null,
        };
        Ok(told.to_string())
    }

    /// The verdict on an answer to a problem, as JSON.
    fn judge(&self, py: Python<'_>, index: usize, answer: &str) -> PyResult<String> {
        let problem = self.problem(index)?;
        let style = self.ask().style;
        if style.rule == Rule::Program {
            let name = self.ask().task.name;
            let why = format!(
                "answers to {name} are programs, which `demask-lab eval {name} --allow-code-execution` runs, confined: nothing \
                 judges them here"
            );
            return Err(Failure::from(RunError::Asking(why)).raise(py));
        }
        Ok(serde_json::to_string(&style.judge(problem, answer)).unwrap_or_default())
    }
}

impl Questions {
    fn problems(&self) -> &[Problem] {
        &self.plan.tasks[0].problems
    }

    fn ask(&self) -> &Ask {
        &self.plan.rows[0].asks[0]
    }

    fn problem(&self, index: usize) -> PyResult<&Problem> {
        let count = self.problems().len();
        let found = self.problems().get(index);
        found.ok_or_else(|| {
            PyIndexError::new_err(format!("item {index} is not there, expected 0 to {}", count.saturating_sub(1)))
        })
    }
}

/// The tasks that have names, as JSON.
#[pyfunction]
pub fn tasks() -> String {
    let all = TASKS.iter().map(|task| {
        let styles: Vec<&str> = task.styles.iter().map(|style| style.name).collect();
        let source = match task.source {
            Source::BuiltIn(_) => "built in".to_owned(),
            Source::File(file) => file.display().to_string(),
            Source::Hub(dataset) => dataset.id.to_owned(),
        };
        let runs_programs = task.styles.iter().any(|style| style.rule == Rule::Program);
        json!({"name": task.name, "about": task.about, "source": source, "styles": styles, "gen_length": task.gen_length,
            "runs_programs": runs_programs, "by_likelihood": task.likelihood.is_some()})
    });
    all.collect::<Value>().to_string()
}
