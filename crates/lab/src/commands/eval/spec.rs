//! Request of `eval`: the flags of one model, or a file of runs.

use std::path::{Path, PathBuf};

use demask::{Guides, LoadOptions, Options, Settings as _};
use demask_eval::run::{AskOptions, Asking, Changes, ModelSpec, RowSpec, Spec, TaskSpec, task};

use crate::{
    args::{EvalArgs, flag},
    exit::usage,
    load::Source,
    settings::{Settings, generate_options, guide, refuse_deadline, refuse_logprobs},
    sweep,
};

/// A file of runs, if nothing stands beside it that it has words for.
pub fn of_file(settings: &Settings, file: &Path, args: &EvalArgs) -> anyhow::Result<Spec> {
    let beside = [
        ("TASK", !args.tasks.is_empty()),
        ("--subject", args.subject.is_some()),
        ("--sweep", args.sweep.is_some()),
        ("--system", args.decode.system.is_some()),
        ("--guide", args.decode.guide.is_some()),
    ];
    let beside = beside.iter().find(|(_, given)| *given).map(|(name, _)| (*name).to_owned());
    let typed = args.ask.first().or_else(|| args.decode.options.first());
    if let Some(name) = beside.or_else(|| typed.map(flag)) {
        return Err(usage(format!("{name} beside --runs: write it into the file, or omit it")));
    }
    let mut spec = Spec::read(file, settings.source.name())?;
    let run = args.run.settings()?;
    spec.rows.iter_mut().for_each(|row| row.model.run.fill(run.clone()));
    let [tasks, rows] = [&args.only_task, &args.only_row].map(Clone::clone);
    spec.change(&Changes { tasks, rows, ..Changes::default() })?;
    refuse_idle_model(settings, file, &spec)?;
    let models = args.map.iter().map(|text| mapped(text)).collect::<anyhow::Result<_>>()?;
    let data = data(args, &spec.tasks)?;
    spec.change(&Changes { models, data, ..Changes::default() })?;
    Ok(spec)
}

/// Refuses a model that answers in no row.
fn refuse_idle_model(settings: &Settings, file: &Path, spec: &Spec) -> anyhow::Result<()> {
    let Some(model) = settings.source.name().filter(|_| settings.names_model) else { return Ok(()) };
    // With an adapter, the refusal of other rows names both.
    let has_adapter = settings.source.0.adapter.is_some();
    let answers = |row: &RowSpec| row.model.load.model.as_deref().unwrap_or("demo") == model;
    if has_adapter || spec.rows.iter().any(answers) {
        return Ok(());
    }
    let named = spec.rows.first().and_then(|row| row.model.load.model.as_deref()).unwrap_or("demo");
    let file = file.display();
    Err(usage(format!(
        "--model answers in no row, every row of {file} names a model: put yours in its place with --map {named}={model}"
    )))
}

/// Reads a name and the model that is put in its place.
fn mapped(text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((name, model)) if !name.is_empty() && !model.is_empty() => Ok((name.to_owned(), model.to_owned())),
        _ => Err(usage(format!("--map is \"{text}\", expected a row's model and yours: --map org/name=DIR"))),
    }
}

/// Reads the files of tasks' problems: `TASK=FILE`, or the file alone where there is one task.
fn data(args: &EvalArgs, tasks: &[TaskSpec]) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let of = |text: &String| match (text.split_once('='), tasks) {
        (Some((task, file)), _) if tasks.iter().any(|other| other.name == task) => Ok((task.to_owned(), file.into())),
        (_, [one]) => Ok((one.name.clone(), text.into())),
        _ => {
            let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
            let names = names.join(", ");
            Err(usage(format!("--data is \"{text}\", expected a task and its file, TASK=FILE: the tasks are {names}")))
        }
    };
    args.data.iter().map(of).collect()
}

/// The flags of one model as a run: a row for each combination of the sweep.
pub fn of_flags(settings: &Settings, args: &EvalArgs) -> anyhow::Result<Spec> {
    let of_runs = [("--map", &args.map), ("--only-task", &args.only_task), ("--only-row", &args.only_row)];
    if let Some((flag, _)) = of_runs.iter().find(|(_, given)| !given.is_empty()) {
        return Err(usage(format!("{flag} goes with --runs FILE: omit it, and name tasks and --model themselves")));
    }
    let tasks = tasks(args)?;
    let mut rows = Vec::new();
    for one in sweep::combinations(args.sweep.as_deref(), &args.decode)? {
        let options = Options { seed: None, ..generate_options(&one.decode, settings.seed)? };
        refuse_logprobs(&options, false)?;
        refuse_deadline(&options)?;
        let ask = AskOptions { system: args.decode.system.clone(), ..args.ask.settings()? };
        let asking = Asking { ask, options };
        // Before data is read: it may have to be fetched.
        asking.answering()?;
        rows.push((one.values, asking));
    }
    let guided = rows.iter().map(|(_, asking)| &asking.options).find(|options| options.wants_guide());
    let guide = guide(&args.decode, guided.unwrap_or(&Options::default()))?;
    let run = args.run.settings()?;
    let row = |(values, asking): (_, Asking)| RowSpec {
        place: None,
        name: None,
        values,
        model: ModelSpec {
            load: LoadOptions {
                model: settings.source.name().map(str::to_owned),
                guide: guide.as_ref().filter(|_| asking.options.wants_guide()).and_then(Source::name).map(Guides::one),
                ..LoadOptions::default()
            },
            run: run.clone(),
        },
        seeds: Vec::new(),
        baseline: 0,
        asks: vec![asking; tasks.len()],
    };
    let rows = rows.into_iter().map(row).collect();
    let data = data(args, &tasks)?;
    let mut spec = Spec { rows, tasks, ..Spec::default() };
    spec.change(&Changes { data, ..Changes::default() })?;
    Ok(spec)
}

/// Returns the named tasks, with the choice of their items.
fn tasks(args: &EvalArgs) -> anyhow::Result<Vec<TaskSpec>> {
    if args.tasks.is_empty() {
        let known: Vec<_> = demask_eval::tasks::TASKS.iter().map(|task| task.name).collect();
        return Err(usage(format!("no task given: name some of {}", known.join(", "))));
    }
    let mut tasks: Vec<TaskSpec> = Vec::new();
    for name in &args.tasks {
        let task = task(name)?;
        if tasks.iter().any(|other| other.name == task.name) {
            return Err(usage(format!("task {name} is named twice: name it once")));
        }
        let (name, subject) = (task.name.to_owned(), args.subject.clone());
        tasks.push(TaskSpec { place: None, name, task, limit: None, data: None, subject });
    }
    let of_one = [("--shots-file", args.ask.text("shots_file").is_some()), ("--subject", args.subject.is_some())];
    match of_one.iter().find(|(_, given)| tasks.len() > 1 && *given) {
        Some((flag, _)) => Err(usage(format!("{flag} is of one task, found {}: name one task", tasks.len()))),
        None => Ok(tasks),
    }
}
