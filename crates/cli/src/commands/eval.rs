//! `demask eval`: the problems of tasks, answered and judged.

use std::ops::ControlFlow;

use demask::{
    DeviceOptions, GenerateOptions, LikelihoodOptions, Model, Opened, decode::names::UnknownName, step::SequenceNeeds,
};
use demask_eval::{
    Problem, Style, Task, data,
    run::{self, Combination, Happened, Made, Plan, Rehearsed, Row, RunError, Store, Swept},
    tasks,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    args::{DecodeArgs, EvalArgs},
    exit::{Interrupted, usage},
    interrupt::{self, Watched},
    load::{Source, add_guide, load},
    output::{self, Screen},
    progress::Bar,
    settings::{Settings, generate_options},
    sweep,
};

/// What is printed with `--json`.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    device: String,
    /// Problems at the same time.
    batch: usize,
    /// What this call made, and what it took by the clock.
    items: usize,
    seconds: f64,
    rows: &'a [Row],
}

/// Runs the command.
pub fn run(settings: &Settings, args: &EvalArgs) -> anyhow::Result<()> {
    let width = args.batch.unwrap_or(1);
    if width == 0 {
        return Err(usage("--batch is 0, expected at least 1"));
    }
    let (plans, data) = plans(args)?;
    let sweep = sweep(args, settings.seed)?;
    let guide = guide(&args.decode, &sweep)?;
    let device = settings.device()?;
    let screen = settings.screen;
    let opened = settings.source.open(screen)?;
    let guide = guide.map(|guide| guide.open(screen)).transpose()?;
    let rehearsed = run::rehearse(opened.prompter(), guide.as_ref().map(Opened::prompter), &plans, &sweep)?;
    let combinations: Vec<_> = rehearsed.iter().map(|rehearsed| rehearsed.combination.clone()).collect();
    let about = model(&opened, guide.as_ref(), device);
    let configuration = run::configuration(&about, &plans, &data, &combinations, settings.seed);
    let mut store = match &args.out {
        Some(directory) => Store::open(directory, &configuration)?,
        None => Store::nowhere(),
    };
    let mut model = loaded(opened, guide, device, &rehearsed, width, screen)?;
    let made = answer(&mut model, &plans, &combinations, width, &mut store, screen)?;
    let rows = run::rows(&plans, &combinations, &store);
    if screen.json {
        let (model, device) = (model.name(), model.engine().network().describe());
        return output::json(&Report {
            model,
            device,
            batch: width,
            items: made.items,
            seconds: made.seconds,
            rows: &rows,
        });
    }
    output::text(&run::text(&rows))?;
    let Made { items, seconds } = made;
    screen.remark(&format!("{items} problems in {seconds:.1} s, {width} at a time"));
    Ok(())
}

/// The tasks with their prompts, and the fingerprints of their problems.
fn plans(args: &EvalArgs) -> anyhow::Result<(Vec<Plan>, Vec<u64>)> {
    let tasks = named(&args.tasks)?;
    if tasks.len() > 1 && (args.data.is_some() || args.shots_file.is_some()) {
        let flag = if args.data.is_some() { "--data" } else { "--shots-file" };
        return Err(usage(format!("{flag} is of one task, found {}: name one task", tasks.len())));
    }
    if args.limit == Some(0) {
        return Err(usage("--limit is 0, expected at least 1"));
    }
    let mut plans = Vec::new();
    let mut fingerprints = Vec::new();
    for task in tasks {
        let style = style(task, args.prompt_style.as_deref())?;
        let mut problems = data::load(task, args.data.as_deref())?;
        fingerprints.push(run::fingerprint(&problems));
        let available = problems.len();
        problems.truncate(args.limit.unwrap_or(usize::MAX));
        let system = args.decode.system.clone();
        let plan = Plan { task, style, problems, available, shots: shots(task, args)?, system };
        if plan.runs_programs() && !args.allow_code_execution {
            let name = task.name;
            return Err(usage(format!("task {name} runs what the model writes: allow it with --allow-code-execution")));
        }
        if plan.system.is_some() && !plan.has_roles() {
            return Err(usage(format!(
                "--system is put into words by the chat template, which prompt style {} of {} has no use for: leave it \
                 away",
                style.name, task.name
            )));
        }
        plans.push(plan);
    }
    Ok((plans, fingerprints))
}

/// Tasks by their names.
fn named(names: &[String]) -> anyhow::Result<Vec<&'static Task>> {
    let known = || tasks::TASKS.iter().map(|task| task.name).collect::<Vec<_>>();
    if names.is_empty() {
        return Err(usage(format!("no task given: name some of {}", known().join(", "))));
    }
    let mut found: Vec<&'static Task> = Vec::new();
    for name in names {
        let Some(task) = tasks::find(name) else {
            return Err(UnknownName { what: "task", found: name.clone(), known: known() }.into());
        };
        if found.iter().any(|other| other.name == task.name) {
            return Err(usage(format!("task {name} is named twice: name it once")));
        }
        found.push(task);
    }
    Ok(found)
}

fn style(task: &'static Task, name: Option<&str>) -> anyhow::Result<&'static Style> {
    let found = task.styles.iter().find(|style| name.is_none_or(|name| style.name == name));
    found.ok_or_else(|| {
        let known = task.styles.iter().map(|style| style.name).collect();
        UnknownName { what: "prompt style", found: name.unwrap_or_default().to_owned(), known }.into()
    })
}

/// The solved problems of a task's prompts.
fn shots(task: &Task, args: &EvalArgs) -> anyhow::Result<Vec<Problem>> {
    let wanted = args.shots.unwrap_or(task.shots);
    if wanted == 0 {
        if args.shots_file.is_some() {
            return Err(usage("--shots-file goes with --shots N: say how many"));
        }
        return Ok(Vec::new());
    }
    let mut shots = data::exemplars(task, args.shots_file.as_deref())?;
    if shots.len() < wanted {
        let (found, task) = (shots.len(), task.name);
        return Err(usage(format!(
            "{wanted} shots are wanted and {task} has {found}: lower --shots, or give more with --shots-file"
        )));
    }
    shots.truncate(wanted);
    Ok(shots)
}

/// The combinations as options.
fn sweep(args: &EvalArgs, seed: u64) -> anyhow::Result<Vec<Swept>> {
    let by_likelihood = by_likelihood(args)?;
    let combinations = sweep::combinations(args.sweep.as_deref(), &args.decode)?;
    let swept = |one: sweep::Combination| {
        let options = generate_options(&one.decode, seed)?;
        let likelihood = by_likelihood.then(|| likelihood(args, &options)).transpose()?;
        Ok(Swept { values: one.values, options, likelihood })
    };
    combinations.into_iter().map(swept).collect()
}

/// Whether options are compared instead of answers written.
fn by_likelihood(args: &EvalArgs) -> anyhow::Result<bool> {
    let by_likelihood = match args.score.as_deref() {
        None | Some("generate") => false,
        Some("likelihood") => true,
        Some(found) => {
            let known = vec!["generate", "likelihood"];
            return Err(UnknownName { what: "score", found: found.to_owned(), known }.into());
        }
    };
    match (by_likelihood, args.likelihood_draws, args.batch) {
        (false, Some(_), _) => Err(usage("--likelihood-draws goes with --score likelihood: leave it away")),
        (true, Some(0), _) => Err(usage("--likelihood-draws is 0, expected at least 1")),
        (true, _, Some(_)) => {
            Err(usage("--batch has no meaning with --score likelihood, whose draws share forwards: leave it away"))
        }
        _ => Ok(by_likelihood),
    }
}

/// How a likelihood is estimated, if nothing else was asked for.
fn likelihood(args: &EvalArgs, options: &GenerateOptions) -> anyhow::Result<LikelihoodOptions> {
    let given = serde_json::to_value(options)?;
    let given = given.as_object().into_iter().flatten().filter(|(_, value)| **value != Value::Bool(false));
    if let Some((name, _)) = given.into_iter().find(|(name, _)| !["cfg_scale", "seed"].contains(&name.as_str())) {
        let name = name.replace('_', "-");
        return Err(usage(format!(
            "--{name} has no meaning with --score likelihood, which decodes nothing: leave it away"
        )));
    }
    let defaults = LikelihoodOptions::default();
    Ok(LikelihoodOptions {
        draws: args.likelihood_draws.unwrap_or(defaults.draws),
        cfg_scale: options.cfg_scale.unwrap_or(defaults.cfg_scale),
        seed: options.seed,
    })
}

/// The guide, if any of the decoders has one.
fn guide(args: &DecodeArgs, sweep: &[Swept]) -> anyhow::Result<Option<Source>> {
    let guided = sweep.iter().map(|swept| &swept.options).find(|options| options.wants_guide());
    crate::settings::guide(args, guided.unwrap_or(&GenerateOptions::default()))
}

/// What a results directory remembers of a model.
fn model(opened: &Opened, guide: Option<&Opened>, device: &DeviceOptions) -> Map<String, Value> {
    let about = |opened: &Opened| json!({"name": opened.prompter().name(), "fingerprint": format!("{:016x}", opened.fingerprint())});
    let mut model = Map::new();
    model.insert("denoiser".to_owned(), about(opened));
    model.extend(guide.map(|guide| ("guide".to_owned(), about(guide))));
    let numbers = [
        ("dtype", device.dtype.to_string()),
        ("quantize", device.weights.to_string()),
        ("activations", device.activations.to_string()),
    ];
    model.extend(numbers.map(|(name, value)| (name.to_owned(), value.into())));
    model
}

/// The model and its guide, if there is memory for them and for as many sequences as run at the same time.
fn loaded(
    opened: Opened,
    guide: Option<Opened>,
    device: &DeviceOptions,
    rehearsed: &[Rehearsed],
    width: usize,
    screen: Screen,
) -> anyhow::Result<Model> {
    let needs = |of: fn(&Rehearsed) -> &[SequenceNeeds]| -> Vec<SequenceNeeds> {
        let largest =
            rehearsed.iter().map(of).max_by_key(|needs| needs.iter().map(|needs| needs.positions).sum::<usize>());
        std::iter::repeat_n(largest.unwrap_or_default(), width).flatten().cloned().collect()
    };
    let (own, guided) = (needs(|one| &one.needs), needs(|one| &one.guide_needs));
    let mut model = load(opened, device, &own, screen)?;
    if let Some(guide) = guide {
        add_guide(&mut model, guide, device, &guided, screen)?;
    }
    Ok(model)
}

/// Answers what is not answered yet.
fn answer(
    model: &mut Model,
    plans: &[Plan],
    combinations: &[Combination],
    width: usize,
    store: &mut Store,
    screen: Screen,
) -> anyhow::Result<Made> {
    let (kept, missing) = (store.records().len(), run::missing(plans, combinations, store));
    if kept > 0 {
        screen.remark(&format!("{kept} results are there already, {missing} are missing"));
    }
    let _watched = Watched::new();
    let mut bar = Bar::positions(screen, "");
    bar.set(0, missing as u64);
    let made = run::run(model, plans, combinations, width, store, &mut |happened| {
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
