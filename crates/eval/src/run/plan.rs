//! Plan of a run: the items of tasks, the rows that answer them, and each row's prompting of each task.

use std::{cmp::Reverse, collections::HashMap, path::PathBuf, sync::Arc};

use demask::{LikelihoodOptions, LoadOptions, Options, Prompt, Settings};
use demask_checkpoint::{HubOptions, Message};
use demask_settings::{names::UnknownName, toml::Place};
use serde_json::{Map, Value};

use super::{
    DevItems, RunError, fingerprint,
    spec::{Answering, Asking, Heading, ModelSpec, RowSpec, Spec, TaskSpec, at},
};
use crate::{
    Problem, Rule, Style, Task,
    data::{self, DataOptions, Shots, Watch},
    report::Published,
    tasks::{Candidate, Form, WordsError},
};

/// A run with everything that it asks, nothing of it loaded.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Heading of the report.
    pub heading: Heading,
    /// The tasks.
    pub tasks: Vec<TaskPlan>,
    /// The rows of the table.
    pub rows: Vec<Row>,
    /// Published figures, by row and task.
    pub published: Vec<Published>,
    /// The seed of what no row says: the order of options, rows without seeds.
    pub seed: u64,
    /// Sets whether baselines answer some items again, so that the table says how good its seconds are.
    pub again: bool,
}

/// The items of a task.
#[derive(Debug, Clone)]
pub struct TaskPlan {
    /// Name in records and tables.
    pub name: String,
    /// The task.
    pub task: &'static Task,
    /// Problems, in order.
    pub problems: Vec<Problem>,
    /// Number of problems, including those that are not asked.
    pub available: usize,
    /// Fingerprint of all of them.
    pub data: u64,
    /// A sentence on the choice of these problems; empty if the choice needs no remark.
    pub note: String,
}

/// A row of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its line, if a file of runs has it.
    pub place: Option<Place>,
    /// Name of the row; without one it is called after its methods.
    pub name: Option<String>,
    /// Values that a sweep chose for it.
    pub values: Vec<(String, String)>,
    /// Model that answers.
    pub model: ModelSpec,
    /// Keys of randomness, at least one.
    pub seeds: Vec<u64>,
    /// The row that it is compared with.
    pub baseline: usize,
    /// The first items of each task alone.
    pub limit: usize,
    /// Prompting of each task, in the order of the tasks.
    pub asks: Vec<Ask>,
}

/// Prompting of a task by a row.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The task.
    pub task: &'static Task,
    /// Wording of its prompts.
    pub style: &'static Style,
    /// The solved problems that prompts show.
    pub shots: Arc<Shots>,
    /// A system message, in the place of the style's own.
    pub system: Option<String>,
    /// Options of the decoding, including the task's own length and stop texts.
    pub options: Options,
    /// Names of the settings that are given, by flags or a file.
    pub given: Vec<&'static str>,
    /// Sets whether a problem's schema constrains its answer.
    pub holds: bool,
    /// Instead of answers, a choice between the options.
    pub choosing: Option<Choosing>,
}

/// How an option is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choosing {
    /// By the likelihood of each, estimated like this.
    Likelihood(LikelihoodOptions),
    /// By a decision between them.
    Decision,
}

impl Choosing {
    /// Returns the way of answering.
    pub fn answering(&self) -> Answering {
        match self {
            Self::Likelihood(_) => Answering::Likelihood,
            Self::Decision => Answering::Decision,
        }
    }
}

/// Inputs of a plan.
pub struct Means<'a> {
    /// Source of data files.
    pub hub: &'a HubOptions,
    /// The run's seed.
    pub seed: u64,
    /// The first items of each task alone.
    pub limit: Option<usize>,
    /// Records whether programs that a model writes may run.
    pub programs: bool,
    /// Items that a method was chosen by, which are left out.
    pub skip: Option<&'a DevItems>,
    /// Sees downloads.
    pub watch: &'a mut Watch<'a>,
}

impl Plan {
    /// Reads the items of a run, and chooses wordings and exemplars.
    ///
    /// # Errors
    /// If data cannot be read, or a row asks a task in a way that it cannot be asked.
    pub fn of(spec: Spec, means: &mut Means<'_>) -> Result<Self, RunError> {
        let seed = means.seed;
        // Before data is read: it may have to be fetched.
        for row in &spec.rows {
            row.check(&spec.tasks, means.programs).map_err(|error| at(row.place.as_ref(), error))?;
        }
        let mut tasks = Vec::new();
        for task in &spec.tasks {
            tasks.push(TaskPlan::load(task, means).map_err(|error| at(task.place.as_ref(), error))?);
        }
        let mut exemplars = Exemplars::default();
        let mut rows = Vec::new();
        for row in &spec.rows {
            rows.push(
                Row::of(row, &tasks, &spec.tasks, means, &mut exemplars)
                    .map_err(|error| at(row.place.as_ref(), error))?,
            );
        }
        for (task, of) in tasks.iter_mut().zip(&spec.tasks) {
            let limit = of.limit.unwrap_or(usize::MAX).min(means.limit.unwrap_or(usize::MAX));
            task.problems.truncate(limit);
        }
        Ok(Self { heading: spec.heading, tasks, rows, published: spec.published, seed, again: false })
    }

    /// Leaves the longest items of each task, as the first row asks them: their sequences are the largest.
    ///
    /// # Errors
    /// If a prompt cannot be made.
    pub fn keep_longest(&mut self, count: usize) -> Result<(), RunError> {
        let Some(row) = self.rows.first() else { return Ok(()) };
        for (ask, task) in row.asks.iter().zip(&mut self.tasks) {
            let mut lengths = Vec::new();
            for (index, problem) in task.problems.iter().enumerate() {
                lengths.push((Reverse(ask.prompt(problem)?.length()), index));
            }
            lengths.sort_unstable();
            lengths.truncate(count);
            let problems = std::mem::take(&mut task.problems);
            task.problems = lengths.iter().map(|&(_, index)| problems[index].clone()).collect();
        }
        Ok(())
    }

    /// Returns an error with the line of its row, if a file of runs has the row.
    pub fn at(&self, row: usize, error: RunError) -> RunError {
        at(self.rows[row].place.as_ref(), error)
    }

    /// Returns whether a row answers some items again: the baseline of others, where there are enough items.
    pub(super) fn runs_again(&self, row: usize) -> bool {
        let is_compared = || self.rows.iter().enumerate().any(|(at, other)| at != row && other.baseline == row);
        let is_long = || self.tasks.iter().any(|task| task.problems.len() >= super::MANY);
        let writes = || self.rows[row].asks.iter().all(|ask| ask.choosing.is_none());
        self.again && is_compared() && is_long() && writes()
    }

    /// Returns whether any answer is a program, which has to run to be judged.
    pub fn runs_programs(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.asks).any(|ask| ask.choosing.is_none() && ask.runs_programs())
    }

    /// Returns the rows grouped by the model that is loaded for them, in the order in which models are first named.
    /// Rows without a guide share a model that has one; rows that share prefixes do not share a model with rows that do
    /// not.
    pub fn groups(&self) -> Vec<(ModelSpec, Vec<usize>)> {
        let mut groups: Vec<(ModelSpec, Vec<usize>)> = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            let loaded =
                |model: &ModelSpec| (LoadOptions { guide: None, ..model.load.clone() }, model.shares_prefixes());
            let alike = |other: &ModelSpec| {
                let (one, own) = (&other.load.guide, &row.model.load.guide);
                loaded(other) == loaded(&row.model) && (one == own || one.is_none() || own.is_none())
            };
            match groups.iter_mut().find(|(other, _)| alike(other)) {
                Some((model, rows)) => {
                    model.load.guide = model.load.guide.take().or_else(|| row.model.load.guide.clone());
                    rows.push(index);
                }
                None => groups.push((row.model.clone(), vec![index])),
            }
        }
        groups
    }
}

impl TaskPlan {
    fn load(spec: &TaskSpec, means: &mut Means<'_>) -> Result<Self, RunError> {
        let options = data_options(spec, means.hub, means.seed);
        let mut problems = data::load(spec.task, &options, means.watch)?;
        let skip = means.skip.filter(|skip| skip.task == spec.task.name);
        let skipped = skip.map_or(0, |skip| skip.leave_out(&mut problems));
        let note = if skipped == 0 {
            String::new()
        } else {
            format!("{skipped} items that a method was chosen by are left out")
        };
        let data = fingerprint(&problems);
        Ok(Self { name: spec.name.clone(), task: spec.task, available: problems.len(), data, note, problems })
    }
}

fn data_options<'a>(spec: &'a TaskSpec, hub: &'a HubOptions, seed: u64) -> DataOptions<'a> {
    DataOptions { file: spec.data.as_deref(), subject: spec.subject.as_deref(), seed, hub }
}

/// Exemplars that were read already, by task, number and file.
type Exemplars = HashMap<(usize, usize, Option<PathBuf>), Arc<Shots>>;

impl Row {
    fn of(
        row: &RowSpec,
        tasks: &[TaskPlan],
        specs: &[TaskSpec],
        means: &mut Means<'_>,
        exemplars: &mut Exemplars,
    ) -> Result<Self, RunError> {
        let mut asks = Vec::new();
        for (place, asking) in row.asks.iter().enumerate() {
            let (task, spec) = (&tasks[place], &specs[place]);
            let answering = asking.answering()?;
            let style = style(task.task, asking, answering, means.programs)?;
            let own = match answering {
                Answering::Likelihood => task.task.likelihood.map_or(0, |likelihood| likelihood.shots),
                Answering::Generate | Answering::Decision => style.shots,
            };
            let wanted = asking.ask.shots.unwrap_or(own);
            if wanted == 0 && asking.ask.shots_file.is_some() {
                return Err(RunError::Asking("`shots_file` goes with `shots` N: say how many".to_owned()));
            }
            let shots = match exemplars.entry((place, wanted, asking.ask.shots_file.clone())) {
                std::collections::hash_map::Entry::Occupied(known) => known.get().clone(),
                std::collections::hash_map::Entry::Vacant(free) => {
                    let options = data_options(spec, means.hub, means.seed);
                    let file = asking.ask.shots_file.as_deref();
                    let shots = data::shots(task.task, wanted, file, &task.problems, &options, means.watch)?;
                    free.insert(Arc::new(shots)).clone()
                }
            };
            asks.push(Ask::of(task.task, style, shots, asking)?);
        }
        let has_schema = |task: &TaskPlan| task.problems.iter().any(|problem| problem.schema.is_some());
        if row.asks.iter().any(|asking| asking.ask.free_form == Some(true)) && !tasks.iter().any(has_schema) {
            let told = "`free_form` has no meaning where no problem has a schema that constrains its answer: omit it";
            return Err(RunError::Asking(told.to_owned()));
        }
        let seeds = if row.seeds.is_empty() { vec![means.seed] } else { row.seeds.clone() };
        let (name, values, model) = (row.name.clone(), row.values.clone(), row.model.clone());
        let (place, baseline) = (row.place.clone(), row.baseline);
        Ok(Self { place, name, values, model, seeds, baseline, limit: usize::MAX, asks })
    }
}

impl RowSpec {
    /// Refuses styles, answers and choices that are wrong whatever the data.
    fn check(&self, tasks: &[TaskSpec], programs: bool) -> Result<(), RunError> {
        for (asking, task) in self.asks.iter().zip(tasks) {
            style(task.task, asking, asking.answering()?, programs)?;
            choosing(asking)?;
        }
        Ok(())
    }
}

/// Style of a task's prompts, if it fits the request.
fn style(
    task: &'static Task,
    asking: &Asking,
    answering: Answering,
    programs: bool,
) -> Result<&'static Style, RunError> {
    let name = asking.ask.prompt_style.as_deref();
    let found = task.styles.iter().find(|style| name.is_none_or(|name| style.name == name));
    let style = found.ok_or_else(|| {
        let known = task.styles.iter().map(|style| style.name).collect();
        UnknownName { what: "prompt style", found: name.unwrap_or_default().to_owned(), known }
    })?;
    let refused = |told: String| Err(RunError::Asking(told));
    if answering == Answering::Likelihood {
        let words = [("prompt_style", name.is_some()), ("system", asking.ask.system.is_some())];
        return match words.iter().find(|(_, given)| *given) {
            Some((name, _)) => refused(format!(
                "`{name}` has no meaning with `score` likelihood, which has the harness's own wording: omit it"
            )),
            None => Ok(style),
        };
    }
    if style.rule == Rule::Program && !programs {
        let name = task.name;
        return refused(format!("task {name} runs what the model writes: allow it with `allow_code_execution`"));
    }
    if asking.ask.system.is_some() && style.form != Form::Chat {
        return refused(format!(
            "`system` is put into words by the chat template, which prompt style {} of {} has no use for: omit it",
            style.name, task.name
        ));
    }
    Ok(style)
}

impl Ask {
    pub(super) fn of(
        task: &'static Task,
        style: &'static Style,
        shots: Arc<Shots>,
        asking: &Asking,
    ) -> Result<Self, RunError> {
        let choosing = choosing(asking)?;
        let mut options = asking.options.clone();
        if choosing.is_none() {
            options.gen_length.get_or_insert(task.gen_length);
            options.stop.get_or_insert_default().extend(style.stop.iter().map(|&stop| stop.to_owned()));
        }
        let given = [asking.ask.given(), asking.options.given()].concat();
        // Another constraint of the row takes the place of the schemas.
        let holds = asking.ask.free_form != Some(true) && !options.has_constraint();
        Ok(Self { task, style, shots, system: asking.ask.system.clone(), options, given, holds, choosing })
    }

    /// Returns the options of a problem's answer: those of all, and its schema as the form of the answer.
    pub fn options_of(&self, problem: &Problem) -> Options {
        let schema = problem.schema.as_ref().filter(|_| self.holds).and_then(|schema| schema.parse().ok());
        Options { json_schema: schema.or_else(|| self.options.json_schema.clone()), ..self.options.clone() }
    }

    /// Returns the prompt of a problem.
    ///
    /// # Errors
    /// If the task's words cannot be made of it.
    pub fn prompt(&self, problem: &Problem) -> Result<Prompt, WordsError> {
        let mut prompt = self.style.prompt(problem, &self.shots.of(problem))?;
        if let (Some(system), Prompt::Chat(chat)) = (&self.system, &mut prompt) {
            chat.messages.retain(|message| message.role != "system");
            chat.messages.insert(0, Message::new("system", system));
        }
        Ok(prompt)
    }

    /// Returns the options that are set, as they are written.
    pub fn settings(&self) -> Map<String, Value> {
        // Through text: 0.1 and not the f64 next to the f32.
        let text = serde_json::to_string(&self.options).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Returns whether answers are programs, which have to run to be judged.
    pub fn runs_programs(&self) -> bool {
        self.style.rule == Rule::Program
    }

    /// Returns what likelihoods choose between, a candidate for each option: none if the task is not asked like that.
    ///
    /// # Errors
    /// If the task's words cannot be made of the problem.
    pub fn candidates(&self, problem: &Problem) -> Result<Vec<Candidate>, WordsError> {
        let Some(likelihood) = self.task.likelihood else { return Ok(Vec::new()) };
        likelihood.candidates(problem, &self.shots.of(problem))
    }

    /// Returns the name of the wording.
    pub fn wording(&self) -> &'static str {
        match self.choosing {
            Some(Choosing::Likelihood(_)) => Answering::Likelihood.name(),
            Some(Choosing::Decision) | None => self.style.name,
        }
    }

    /// Returns what harnesses call its accuracy.
    pub fn metric(&self) -> &'static str {
        match (self.choosing, self.style.rule) {
            (Some(_), _) => "acc",
            (None, Rule::Program) => "pass@1",
            (None, Rule::Overlap) => "f1",
            (None, Rule::Json) => "json_match",
            (None, _) => "exact_match",
        }
    }
}

/// How an option is chosen, where no answer is written.
fn choosing(asking: &Asking) -> Result<Option<Choosing>, RunError> {
    let answering = asking.answering()?;
    let meaning: &[&str] = match answering {
        Answering::Generate => return Ok(None),
        Answering::Likelihood => &["cfg_scale", "seed"],
        Answering::Decision => &["seed"],
    };
    if let Some(name) = asking.options.given().into_iter().find(|name| !meaning.contains(name)) {
        return Err(RunError::Asking(format!(
            "`{name}` has no meaning with `score` {}, which decodes nothing: omit it",
            answering.name()
        )));
    }
    if answering == Answering::Decision {
        return Ok(Some(Choosing::Decision));
    }
    let defaults = LikelihoodOptions::default();
    Ok(Some(Choosing::Likelihood(LikelihoodOptions {
        draws: asking.ask.likelihood_draws(),
        cfg_scale: asking.options.cfg_scale.unwrap_or(defaults.cfg_scale),
        ..defaults
    })))
}

#[cfg(test)]
mod tests {
    use demask::Guides;

    use super::*;
    use crate::{Gold, run::AskOptions, tasks};

    fn ask(task: &str, system: Option<&str>) -> Ask {
        let task = tasks::find(task).unwrap();
        let ask = AskOptions { system: system.map(str::to_owned), ..AskOptions::default() };
        let asking = Asking { ask, ..Asking::default() };
        Ask::of(task, &task.styles[0], Arc::default(), &asking).unwrap()
    }

    fn problem() -> Problem {
        Problem {
            question: "What is wet?".to_owned(),
            options: vec!["water".to_owned(), "sand".to_owned()],
            gold: Gold::Option(0),
            ..Problem::default()
        }
    }

    #[test]
    fn a_system_message_stands_before_the_question() {
        let turns = vec![Message::new("system", "Be brief."), Message::new("user", "What is wet?")];
        assert_eq!(ask("wordmath", Some("Be brief.")).prompt(&problem()), Ok(turns.into()));
    }

    #[test]
    fn candidates_are_those_of_the_task() {
        let texts = ask("arc-easy", None).candidates(&problem()).unwrap().into_iter().map(|candidate| candidate.text);
        assert_eq!(texts.collect::<Vec<_>>(), [" water", " sand"]);
        assert!(ask("wordmath", None).candidates(&problem()).unwrap().is_empty());
    }

    #[test]
    fn programs_are_known_before_they_run() {
        assert!(ask("humaneval", None).runs_programs() && ask("mbpp", None).runs_programs());
        assert!(!ask("wordmath", None).runs_programs());
    }

    #[test]
    fn rows_that_share_a_model_are_of_one_group() {
        let row = |model: &str, guide: Option<&str>| Row {
            place: None,
            name: None,
            values: Vec::new(),
            model: ModelSpec {
                load: LoadOptions {
                    model: Some(model.to_owned()),
                    guide: guide.map(Guides::one),
                    ..LoadOptions::default()
                },
                ..ModelSpec::default()
            },
            seeds: vec![0],
            baseline: 0,
            limit: usize::MAX,
            asks: Vec::new(),
        };
        let rows = vec![row("a", None), row("b", None), row("a", Some("g")), row("a", Some("h")), row("a", None)];
        let plan = Plan { rows, ..Plan::default() };
        let group = |(model, rows): (ModelSpec, _)| {
            let guide = model.guide().map(str::to_owned);
            (model.load.model.unwrap(), guide, rows)
        };
        let groups: Vec<_> = plan.groups().into_iter().map(group).collect();
        let guide = |name: &str| Some(name.to_owned());
        let expected = vec![
            ("a".to_owned(), guide("g"), vec![0, 2, 4]),
            ("b".to_owned(), None, vec![1]),
            ("a".to_owned(), guide("h"), vec![3]),
        ];
        assert_eq!(groups, expected);
    }
}
