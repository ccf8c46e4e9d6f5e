//! A plan carried out: everything opened and rehearsed, then one model after the other loaded and its rows answered.

use std::{ops::ControlFlow, path::Path};

use demask::{DeviceOptions, Opened};
use demask::{Model, Settings as _};
use demask_eval::{
    report::{Evaluation, Outline},
    run::{
        self, Combination, Happened, Made, ModelSpec, Plan, Rehearsed, RunError, Runs, Store, about_model, needs,
        outline,
    },
    sandbox::Permission,
};
use demask_step::Need;
use serde_json::{Map, Value};

use super::permission;
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
    rehearsed: Vec<Rehearsed>,
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
    /// Opens the models of a plan and rehearses its rows; without `strict`, rows that cannot be run are left out.
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
            Self { plan, groups, rehearsed: Vec::new(), combinations: Vec::new(), models: Vec::new(), permission };
        let rehearsed = (0..ready.plan.rows.len()).map(|row| ready.rehearse(row)).collect::<Vec<_>>();
        if strict {
            ready.rehearsed = rehearsed.into_iter().collect::<Result<_, _>>()?;
        } else {
            ready.keep(rehearsed)?;
        }
        ready.combinations = Combination::all(&ready.plan, &ready.rehearsed)?;
        ready.models = (0..ready.plan.rows.len()).map(|row| ready.about(row)).collect();
        Ok(ready)
    }

    /// The row's group.
    fn group(&self, row: usize) -> Option<&Group> {
        self.groups.iter().find(|group| group.rows.contains(&row))
    }

    /// Lays out what a row asks for.
    fn rehearse(&self, row: usize) -> Result<Rehearsed, RunError> {
        match self.group(row).map(|group| &group.state) {
            Some(State::Opened(opened)) => self.plan.rehearse(row, &|prompt, options| opened.prepare(prompt, options)),
            _ => Err(RunError::Interrupted),
        }
    }

    /// Leaves out the rows that cannot be run, and those that are another one by another name.
    fn keep(&mut self, rehearsed: Vec<Result<Rehearsed, RunError>>) -> Result<(), RunError> {
        let mut place = vec![None; rehearsed.len()];
        let (mut rows, mut first) = (Vec::new(), None);
        for (index, one) in rehearsed.into_iter().enumerate() {
            match one {
                Ok(one) if !self.rehearsed.iter().any(|other: &Rehearsed| other.label == one.label) => {
                    place[index] = Some(rows.len());
                    rows.push(self.plan.rows[index].clone());
                    self.rehearsed.push(one);
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

    /// Returns what a report needs beside the records.
    pub fn outline(&self) -> Outline {
        outline(&self.plan, &self.rehearsed, &self.combinations, &self.models)
    }

    /// Opens the place for answers: a results directory, or nowhere.
    pub fn answers(&self, out: Option<&Path>, width: usize) -> anyhow::Result<Answers> {
        let store = match out {
            Some(directory) => {
                let configuration = run::configuration(&self.plan, &self.combinations, &self.models);
                let store = Store::open(directory, &configuration)?;
                self.outline().write(directory)?;
                store
            }
            None => Store::nowhere(),
        };
        Ok(Answers { store, width, made: Made::default() })
    }

    /// Returns all answers that there are as an evaluation.
    pub fn evaluation(&self, answers: &Answers) -> Evaluation {
        self.outline().evaluation(answers.store.records())
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
    pub fn tell(&self, answers: &Answers, screen: Screen) {
        let kept = answers.store.records().len();
        if kept > 0 {
            let rows: Vec<usize> = (0..self.plan.rows.len()).collect();
            let missing = self.runs(answers.width).missing(&rows, &answers.store);
            screen.remark(&format!("{kept} results are there already, {missing} are missing"));
        }
    }

    /// Answers what is not answered yet, one model after the other. A model that is alone stays loaded.
    pub fn go(&mut self, settings: &Settings, answers: &mut Answers) -> anyhow::Result<()> {
        for index in 0..self.groups.len() {
            let rows = self.groups[index].rows.clone();
            // What is there already needs no model.
            if self.runs(answers.width).missing(&rows, &answers.store) == 0 {
                continue;
            }
            let needs = needs(&self.rehearsed, &rows, answers.width);
            let model = self.load(settings, index, &needs)?;
            let runs = self.runs(answers.width);
            let made = answer(&model, &rows, runs, &mut answers.store, settings.screen)?;
            answers.made =
                Made { items: answers.made.items + made.items, seconds: answers.made.seconds + made.seconds };
            if self.groups.len() == 1 {
                self.groups[index].state = State::Loaded(model);
            }
        }
        if let Some(warning) = self.permission.as_ref().and_then(Permission::late_warning) {
            settings.screen.remark(&format!("warning: {warning}"));
        }
        Ok(())
    }

    /// Takes the loaded model of a group.
    fn load(&mut self, settings: &Settings, index: usize, needs: &[Need]) -> anyhow::Result<Box<Model>> {
        let group = &mut self.groups[index];
        let opened = match std::mem::replace(&mut group.state, State::Gone) {
            State::Loaded(model) => return Ok(model),
            State::Opened(opened) => *opened,
            State::Gone => opened(settings, &group.spec)?.0,
        };
        Ok(Box::new(load(opened, &group.device, needs, settings.screen)?))
    }
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
    let device = load.device_options(settings.asked());
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

/// Answers what is not answered yet.
fn answer(model: &Model, rows: &[usize], runs: Runs<'_>, store: &mut Store, screen: Screen) -> anyhow::Result<Made> {
    let _watched = Watched::begin();
    let mut bar = Bar::positions(screen, "");
    bar.set(0, runs.missing(rows, store) as u64);
    let made = run::run(model, rows, runs, store, &mut |happened| {
        match happened {
            Happened::Began(combination) => bar.tell(&combination.label),
            Happened::Item(_) => bar.advance(),
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
