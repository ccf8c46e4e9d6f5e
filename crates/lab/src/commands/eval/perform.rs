//! A plan carried out: everything opened and run dry, then one model after the other loaded and its rows answered.

use std::{cell::RefCell, collections::BTreeMap, ops::ControlFlow, path::Path};

use demask::{DeviceOptions, Model, ModelError, Opened, Settings as _, receipt::peak_memory};
use demask_eval::{
    Record,
    report::{Evaluation, Outline},
    run::{
        self, Combination, DryRun, Happened, Made, MadeBy, ModelRows, ModelSpec, Plan, RunError, Runs, Store,
        about_model, needs, outline,
    },
    sandbox::Permission,
    tasks::UNMATCHED,
};
use demask_step::SequenceSpec;
use serde_json::{Map, Value};

use super::{
    made::{command, made},
    permission,
};
use crate::{
    args::CodeExecution,
    exit::{Interrupted, usage},
    interrupt::{self, Watched},
    load::{Source, load},
    output::Screen,
    progress::Bar,
    settings::{Settings, usable},
};

/// A model, and the rows that it answers.
struct Group {
    spec: ModelSpec,
    rows: Vec<usize>,
    device: DeviceOptions,
    state: State,
}

/// State of a model.
enum State {
    /// Opened: its weights are not read.
    Opened(Box<Opened>),
    /// Loaded: it can answer.
    Loaded(Box<Model>),
    /// Gone: it has answered, and made room for the next one.
    Gone,
}

/// A plan with its models open, none of them loaded.
pub struct Ready {
    /// Tasks and rows; rows may be limited to other items between two calls.
    pub plan: Plan,
    groups: Vec<Group>,
    dry_runs: Vec<DryRun>,
    combinations: Vec<Combination>,
    models: Vec<Map<String, Value>>,
    permission: Option<Permission>,
}

/// Destination of the answers, and the number that are made at a time.
pub struct Answers {
    /// Answers that are there.
    pub store: Store,
    /// Items at a time.
    pub width: usize,
    /// Results of this call.
    pub made: Made,
}

impl Ready {
    /// Opens the models of a plan and runs its rows dry; without `strict`, rows that cannot be run are left out.
    pub fn open(
        settings: &Settings,
        plan: Plan,
        execution: Option<CodeExecution>,
        strict: bool,
    ) -> anyhow::Result<Self> {
        let mut groups = Vec::new();
        for (model, rows) in plan.groups() {
            groups.push(Group::open(settings, &plan, model, rows)?);
        }
        let execution = execution.filter(|_| plan.runs_programs());
        let permission = execution.map(|execution| permission(settings.screen, execution)).transpose()?;
        let mut ready =
            Self { plan, groups, dry_runs: Vec::new(), combinations: Vec::new(), models: Vec::new(), permission };
        let dry_runs = (0..ready.plan.rows.len()).map(|row| ready.dry_run(row)).collect::<Vec<_>>();
        if strict {
            ready.dry_runs = dry_runs.into_iter().collect::<Result<_, _>>()?;
        } else {
            ready.keep(dry_runs)?;
        }
        ready.combinations = Combination::all(&ready.plan, &ready.dry_runs)?;
        ready.models = (0..ready.plan.rows.len()).map(|row| ready.about(row)).collect();
        Ok(ready)
    }

    /// The row's group.
    fn group(&self, row: usize) -> Option<&Group> {
        self.groups.iter().find(|group| group.rows.contains(&row))
    }

    /// Prepares a row's requests without running them.
    fn dry_run(&self, row: usize) -> Result<DryRun, RunError> {
        match self.group(row).map(|group| &group.state) {
            Some(State::Opened(opened)) => self.plan.dry_run(row, &|prompt, options| opened.prepare(prompt, options)),
            _ => Err(RunError::Interrupted),
        }
    }

    /// Leaves out the rows that cannot be run, and those that are another one by another name.
    fn keep(&mut self, dry_runs: Vec<Result<DryRun, RunError>>) -> Result<(), RunError> {
        let mut place = vec![None; dry_runs.len()];
        let (mut rows, mut first) = (Vec::new(), None);
        for (index, one) in dry_runs.into_iter().enumerate() {
            match one {
                Ok(one) if !self.dry_runs.iter().any(|other: &DryRun| other.label == one.label) => {
                    place[index] = Some(rows.len());
                    rows.push(self.plan.rows[index].clone());
                    self.dry_runs.push(one);
                }
                Ok(_) => {}
                Err(error) if error.is_usage() => first = first.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        if let (true, Some(error)) = (rows.is_empty(), first) {
            return Err(error);
        }
        for row in &mut rows {
            row.baseline = place[row.baseline].unwrap_or(0);
        }
        for group in &mut self.groups {
            group.rows = group.rows.iter().filter_map(|&row| place[row]).collect();
        }
        self.plan.rows = rows;
        Ok(())
    }

    /// Facts about a row's model that a results directory remembers.
    fn about(&self, row: usize) -> Map<String, Value> {
        let Some(Group { state: State::Opened(opened), device, .. }) = self.group(row) else { return Map::new() };
        about_model(opened, &self.plan.rows[row].model, device)
    }

    /// Returns the parts of the plan that a report needs besides the records.
    pub fn outline(&self) -> Outline {
        outline(&self.plan, &self.dry_runs, &self.combinations, &self.models)
    }

    /// Opens the place for answers: a results directory, or nowhere.
    pub fn answers(&self, out: Option<&Path>, width: usize) -> anyhow::Result<Answers> {
        let store = match out {
            Some(directory) => {
                let configuration = run::configuration(&self.plan, &self.dry_runs, &self.combinations, &self.models);
                let store = Store::open(directory, &configuration, Some(&self.made(width)?))?;
                self.outline().write(directory)?;
                store
            }
            None => Store::nowhere(),
        };
        Ok(Answers { store, width, made: Made::default() })
    }

    /// Returns the rows, each under its first seed.
    pub fn rows(&self) -> impl Iterator<Item = &Combination> {
        let first = |row| self.combinations.iter().find(move |one| one.row == row && !one.again);
        (0..self.plan.rows.len()).filter_map(first)
    }

    /// Loads the model of the first row, answers all items of its rows, and returns the largest resident memory of the process.
    pub fn peak_memory(&mut self, settings: &Settings, answers: &mut Answers) -> anyhow::Result<u64> {
        let rows = self.groups[0].rows.clone();
        let model = self.load(settings, 0, &needs(&self.dry_runs, &rows, answers.width))?;
        // Answering begins with a peak of its own: loading may have taken more.
        let loaded = peak_memory();
        answer(&[(&model, &rows)], self.runs(answers.width), &mut answers.store, settings.screen)?;
        Ok(loaded.max(peak_memory()))
    }

    /// Returns all answers that there are as an evaluation.
    pub fn evaluation(&self, answers: &Answers) -> Evaluation {
        self.outline().evaluation(answers.store.records(), answers.store.made(), answers.store.peaks())
    }

    /// What makes results here.
    fn made(&self, width: usize) -> anyhow::Result<MadeBy> {
        let rows = self.combinations.iter();
        let rows = rows.filter_map(|one| Some((one.label.as_str(), &self.group(one.row)?.device)));
        Ok(made(width, rows)?)
    }

    fn runs(&self, width: usize) -> Runs<'_> {
        Runs {
            plan: &self.plan,
            combinations: &self.combinations,
            width,
            permission: self.permission.as_ref(),
            part: None,
        }
    }

    /// Reports the items that are done already.
    pub fn report(&self, answers: &Answers, screen: Screen) {
        let kept = answers.store.records().len();
        if kept > 0 {
            let rows: Vec<usize> = (0..self.plan.rows.len()).collect();
            let missing = self.runs(answers.width).missing(&rows, &answers.store);
            screen.remark(&format!("{kept} results are there already, {missing} are missing"));
        }
    }

    /// Answers the items that have no answer yet. Models take turns as far as the memory holds them together; a model
    /// that is alone stays loaded.
    pub fn go(&mut self, settings: &Settings, answers: &mut Answers) -> anyhow::Result<()> {
        let missing: Vec<usize> = (0..self.groups.len())
            .map(|group| self.runs(answers.width).missing(&self.groups[group].rows, &answers.store))
            .collect();
        let (width, ready) = (answers.width, RefCell::new(&mut *self));
        let mut load = |group: usize| {
            // What is there already needs no model.
            if missing[group] == 0 {
                return Ok(None);
            }
            let mut ready = ready.borrow_mut();
            let needs = needs(&ready.dry_runs, &ready.groups[group].rows, width);
            ready.load(settings, group, &needs).map(Some)
        };
        let mut work = |models: Vec<(usize, Box<Model>)>| ready.borrow_mut().take_turns(settings, models, answers);
        let rounds = run::together(missing.len(), &mut load, &lacks_memory, &mut work)?;
        if rounds > 0 {
            let told = "warning: the memory does not hold all models: rows take turns with those beside them alone";
            settings.screen.remark(told);
        }
        if let Some(warning) = self.permission.as_ref().and_then(Permission::late_warning) {
            settings.screen.remark(&format!("warning: {warning}"));
        }
        Ok(())
    }

    /// Answers what these models have not answered yet.
    fn take_turns(
        &mut self,
        settings: &Settings,
        mut models: Vec<(usize, Box<Model>)>,
        answers: &mut Answers,
    ) -> anyhow::Result<()> {
        if !models.is_empty() {
            answers.store.begin(command)?;
        }
        let rows: Vec<ModelRows<'_>> =
            models.iter().map(|(group, model)| (&**model, self.groups[*group].rows.as_slice())).collect();
        let made = answer(&rows, self.runs(answers.width), &mut answers.store, settings.screen);
        let ended = answers.store.end();
        let made = made?;
        ended?;
        answers.made = Made { items: answers.made.items + made.items, seconds: answers.made.seconds + made.seconds };
        if let (1, Some((_, model))) = (self.groups.len(), models.pop()) {
            self.groups[0].state = State::Loaded(model);
        }
        Ok(())
    }

    /// Takes the loaded model of a group.
    fn load(&mut self, settings: &Settings, index: usize, needs: &[SequenceSpec]) -> anyhow::Result<Box<Model>> {
        let group = &mut self.groups[index];
        let opened = match std::mem::replace(&mut group.state, State::Gone) {
            State::Loaded(model) => return Ok(model),
            State::Opened(opened) => *opened,
            State::Gone => opened(settings, &group.spec)?.0,
        };
        Ok(Box::new(load(opened, &group.device, needs, settings.screen)?))
    }
}

/// Returns whether a model was refused for want of memory.
fn lacks_memory(error: &anyhow::Error) -> bool {
    let is_memory = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(ModelError::TooLarge(_) | ModelError::Memory { .. }))
    };
    error.chain().any(is_memory)
}

impl Group {
    /// Opens a model and its guide, as the first of its rows asks for them.
    fn open(settings: &Settings, plan: &Plan, spec: ModelSpec, rows: Vec<usize>) -> anyhow::Result<Self> {
        let of_file = |error: anyhow::Error| match &plan.rows[rows[0]].place {
            Some(_) if !error.is::<Interrupted>() => plan.at(rows[0], RunError::Asking(format!("{error:#}"))).into(),
            _ => error,
        };
        let (opened, device) = opened(settings, &spec).map_err(of_file)?;
        Ok(Self { spec, rows, device, state: State::Opened(Box::new(opened)) })
    }
}

fn opened(settings: &Settings, spec: &ModelSpec) -> anyhow::Result<(Opened, DeviceOptions)> {
    let own = &settings.source.0;
    let mut load = spec.load.clone();
    let device = load.device_options(settings.requested_device());
    if load.model.is_some() && load.model == own.model {
        // The model of the command line is read as its flags say.
        load.fill(own.clone());
    } else if own.adapter.is_some() {
        let name = own.model.as_deref().unwrap_or_default();
        return Err(usage(format!("--adapter goes with --model {name}, and a row names another model: omit one")));
    }
    load.check()?;
    let source = Source(load);
    let device = usable(&device, &source)?;
    let mut opened = source.open(settings.screen)?;
    if let Some(guide) = spec.guide() {
        opened = opened.guided_by(Source::from(guide.to_owned()).open(settings.screen)?)?;
    }
    Ok((opened, device))
}

/// Answers the items that have no answer yet.
fn answer(models: &[ModelRows<'_>], runs: Runs<'_>, store: &mut Store, screen: Screen) -> anyhow::Result<Made> {
    let _watched = Watched::begin();
    let missing: usize = models.iter().map(|(_, rows)| runs.missing(rows, store)).sum();
    let mut bar = Bar::positions(screen, "");
    bar.set(0, missing as u64);
    let mut unmatched = Unmatched::default();
    let made = run::run(models, runs, store, &mut |happened| {
        match happened {
            Happened::Began(combination) => bar.report(&combination.label),
            Happened::Item(record) => {
                bar.advance();
                if let Some(warning) = unmatched.warning(record, runs.plan) {
                    screen.remark(&warning);
                }
            }
            Happened::Step => {}
        }
        if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.clear();
    match made {
        Err(RunError::Interrupted) => Err(Interrupted.into()),
        made => Ok(made?),
    }
}

/// Answers without a match of a task's pattern, before its first match.
#[derive(Default)]
struct Unmatched(BTreeMap<String, usize>);

impl Unmatched {
    /// So many answers without a match are no accident.
    const MANY: usize = 20;

    /// Notes an answer, and returns a warning where the pattern of its task has never matched.
    fn warning(&mut self, record: &Record, plan: &Plan) -> Option<String> {
        let is_unmatched = record.verdict.failure.as_deref() == Some(UNMATCHED);
        let count = self.0.entry(record.task.clone()).or_default();
        // A match ends the counting.
        *count = if is_unmatched { count.saturating_add(1) } else { usize::MAX };
        if *count != Self::MANY {
            return None;
        }
        let task = plan.tasks.iter().position(|task| task.name == record.task)?;
        let pattern = plan.rows.iter().find_map(|row| row.asks[task].style.pattern())?;
        let example: String = record.output.chars().take(200).collect();
        Some(format!(
            "warning: answer_regex '{pattern}' of {} matched none of {} answers, so they count as wrong: the last is {example:?}",
            record.task,
            Self::MANY
        ))
    }
}
