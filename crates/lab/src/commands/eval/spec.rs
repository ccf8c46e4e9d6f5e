//! Request of `eval`: the flags of one model, or a file of runs.

use std::path::Path;

use demask::{Guides, LoadOptions, Options, Settings as _};
use demask_eval::run::{AskOptions, Asking, ModelSpec, RowSpec, Spec, TaskSpec, task};

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
        ("--data", args.data.is_some()),
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
    Ok(spec)
}

/// The flags of one model as a run: a row for each combination of the sweep.
pub fn of_flags(settings: &Settings, args: &EvalArgs) -> anyhow::Result<Spec> {
    let tasks = tasks(args)?;
    let mut rows = Vec::new();
    for one in sweep::combinations(args.sweep.as_deref(), &args.decode)? {
        let options = Options { seed: None, ..generate_options(&one.decode, settings.seed)? };
        refuse_logprobs(&options, false)?;
        refuse_deadline(&options)?;
        let ask = AskOptions { system: args.decode.system.clone(), ..args.ask.settings()? };
        let asking = Asking { ask, options };
        // Before data is read: it may have to be fetched.
        asking.by_likelihood()?;
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
    Ok(Spec { rows, tasks, ..Spec::default() })
}

/// The tasks that are named, with what is said of their items.
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
        let (data, subject) = (args.data.clone(), args.subject.clone());
        tasks.push(TaskSpec { place: None, name: task.name.to_owned(), task, limit: None, data, subject });
    }
    let of_one = [
        ("--data", args.data.is_some()),
        ("--shots-file", args.ask.text("shots_file").is_some()),
        ("--subject", args.subject.is_some()),
    ];
    match of_one.iter().find(|(_, given)| tasks.len() > 1 && *given) {
        Some((flag, _)) => Err(usage(format!("{flag} is of one task, found {}: name one task", tasks.len()))),
        None => Ok(tasks),
    }
}
