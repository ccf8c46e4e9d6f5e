//! `demask eval`: the problems of tasks, answered and judged.

use std::ops::ControlFlow;

use anyhow::Context;
use demask::internals::{DeviceOptions, Opened, decode::names::UnknownName, step::Need};
use demask::{LikelihoodOptions, Model, Options};
use demask_eval::{
    Rule, Style, Task,
    data::{self, DataOptions},
    report::{self, Numbers, Summary},
    run::{self, Happened, Made, Plan, Rehearsed, RunError, Runs, Store, Swept},
    sandbox::{Limits, Permission},
    tasks::{self, Form},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    args::{DecodeArgs, EvalArgs, flag},
    env,
    exit::{Interrupted, usage},
    interrupt::{self, Watched},
    load::{Source, fetching, load},
    output::{self, Screen},
    progress::Bar,
    settings::{Settings, generate_options},
    sweep,
};

/// What is printed with `--json`.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    device: &'a str,
    /// Problems at the same time.
    batch: usize,
    /// What this call made, and what it took by the clock.
    items: usize,
    seconds: f64,
    rows: &'a [Summary],
}

/// Runs the command.
pub fn run(settings: &Settings, args: &EvalArgs) -> anyhow::Result<()> {
    let width = args.batch.unwrap_or(1);
    if width == 0 {
        return Err(usage("--batch is 0, expected at least 1"));
    }
    let sweep = sweep(args, settings.seed)?;
    let guide = guide(&args.decode, &sweep)?;
    let (plans, data) = plans(settings, args)?;
    let device = &settings.device()?;
    let screen = settings.screen;
    let mut opened = settings.source.open(screen)?;
    if let Some(guide) = guide {
        opened = opened.guided_by(guide.open(screen)?)?;
    }
    let permission = if plans.iter().any(Plan::runs_programs) { Some(permission(screen)?) } else { None };
    let rehearsed = run::rehearse(&|prompt, options| opened.prepare(prompt, options), &plans, &sweep)?;
    let combinations: Vec<_> = rehearsed.iter().map(|rehearsed| rehearsed.combination.clone()).collect();
    let about = model(&opened, device);
    let configuration = run::configuration(&about, &plans, &data, &combinations, settings.seed);
    let mut store = match &args.out {
        Some(directory) => Store::open(directory, &configuration)?,
        None => Store::nowhere(),
    };
    let mut model = load(opened, device, &needs(&rehearsed, width), screen)?;
    let runs = Runs { plans: &plans, combinations: &combinations, width, permission: permission.as_ref() };
    let made = answer(&mut model, runs, &mut store, screen)?;
    let evaluation = runs.evaluation(&model, &store);
    if let Some(directory) = &args.out {
        report::write(directory, &evaluation)?;
    }
    let numbers = Numbers::of(&evaluation)?;
    let Made { items, seconds } = made;
    if screen.json {
        let Numbers { model, device, rows, .. } = &numbers;
        return output::json(&Report { model, device, batch: width, items, seconds, rows });
    }
    output::text(&report::plain(&numbers))?;
    screen.remark(&format!("{items} problems in {seconds:.1} s, {width} at a time"));
    if let Some(directory) = &args.out {
        screen.remark(&format!("{} has the tables and pictures", directory.join("report.html").display()));
    }
    Ok(())
}

/// Leave to run programs, and what the kernel denies of their limits.
fn permission(screen: Screen) -> anyhow::Result<Permission> {
    let binary = std::env::current_exe().context("cannot find the running binary")?;
    let permission = Permission::grant(binary, Limits::default())?;
    if let Some(warning) = permission.warning() {
        screen.remark(&format!("warning: {warning}"));
    }
    Ok(permission)
}

/// The tasks with their prompts, and the fingerprints of their problems.
fn plans(settings: &Settings, args: &EvalArgs) -> anyhow::Result<(Vec<Plan>, Vec<u64>)> {
    let tasks = named(&args.tasks)?;
    let of_one = [
        ("--data", args.data.is_some()),
        ("--shots-file", args.shots_file.is_some()),
        ("--subject", args.subject.is_some()),
    ];
    if let Some((flag, _)) = of_one.iter().find(|(_, given)| tasks.len() > 1 && *given) {
        return Err(usage(format!("{flag} is of one task, found {}: name one task", tasks.len())));
    }
    if args.limit == Some(0) {
        return Err(usage("--limit is 0, expected at least 1"));
    }
    let styles = tasks.iter().map(|task| style(task, args)).collect::<anyhow::Result<Vec<_>>>()?;
    let plans = tasks.into_iter().zip(styles).map(|(task, style)| plan(settings, args, task, style));
    Ok(plans.collect::<anyhow::Result<Vec<_>>>()?.into_iter().unzip())
}

/// A task with its problems and exemplars, and the fingerprint of all its problems.
fn plan(
    settings: &Settings,
    args: &EvalArgs,
    task: &'static Task,
    style: &'static Style,
) -> anyhow::Result<(Plan, u64)> {
    let options = DataOptions {
        file: args.data.as_deref(),
        subject: args.subject.as_deref(),
        seed: settings.seed,
        hub: &env::hub(),
    };
    let own = if by_likelihood(args)? { task.likelihood.map_or(0, |likelihood| likelihood.shots) } else { style.shots };
    let wanted = args.shots.unwrap_or(own);
    if wanted == 0 && args.shots_file.is_some() {
        return Err(usage("--shots-file goes with --shots N: say how many"));
    }
    let _watched = Watched::new();
    let mut fetching = fetching(settings.screen);
    let loaded = data::load(task, &options, &mut fetching).and_then(|problems| {
        let shots = data::shots(task, wanted, args.shots_file.as_deref(), &problems, &options, &mut fetching)?;
        Ok((problems, shots))
    });
    interrupt::check()?;
    let (mut problems, shots) = loaded?;
    let (available, fingerprint) = (problems.len(), run::fingerprint(&problems));
    problems.truncate(args.limit.unwrap_or(usize::MAX));
    Ok((Plan { task, style, problems, available, shots, system: args.decode.system.clone() }, fingerprint))
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

/// How a task is worded, if what was asked for goes with it.
fn style(task: &'static Task, args: &EvalArgs) -> anyhow::Result<&'static Style> {
    let name = args.prompt_style.as_deref();
    let found = task.styles.iter().find(|style| name.is_none_or(|name| style.name == name));
    let style = found.ok_or_else(|| {
        let known = task.styles.iter().map(|style| style.name).collect();
        UnknownName { what: "prompt style", found: name.unwrap_or_default().to_owned(), known }
    })?;
    if by_likelihood(args)? {
        let words = [("--prompt-style", name.is_some()), ("--system", args.decode.system.is_some())];
        if let Some((flag, _)) = words.iter().find(|(_, given)| *given) {
            return Err(usage(format!(
                "{flag} has no meaning with --score likelihood, which has the harness's own wording: omit it"
            )));
        }
        return Ok(style);
    }
    if style.rule == Rule::Program && !args.allow_code_execution {
        let name = task.name;
        return Err(usage(format!("task {name} runs what the model writes: allow it with --allow-code-execution")));
    }
    if args.decode.system.is_some() && style.form != Form::Chat {
        return Err(usage(format!(
            "--system is put into words by the chat template, which prompt style {} of {} has no use for: omit it",
            style.name, task.name
        )));
    }
    Ok(style)
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
        (false, Some(_), _) => Err(usage("--likelihood-draws goes with --score likelihood: omit it")),
        (true, Some(0), _) => Err(usage("--likelihood-draws is 0, expected at least 1")),
        (true, _, Some(_)) => {
            Err(usage("--batch has no meaning with --score likelihood, whose draws share forwards: omit it"))
        }
        _ => Ok(by_likelihood),
    }
}

/// How a likelihood is estimated, if nothing else was asked for.
fn likelihood(args: &EvalArgs, options: &Options) -> anyhow::Result<LikelihoodOptions> {
    let meaningless = |name: &&str| !["cfg_scale", "seed"].contains(name);
    if let Some(name) = options.given().into_iter().find(meaningless) {
        let flag = flag(name);
        return Err(usage(format!("{flag} has no meaning with --score likelihood, which decodes nothing: omit it")));
    }
    let defaults = LikelihoodOptions::default();
    Ok(LikelihoodOptions {
        draws: args.likelihood_draws.unwrap_or(defaults.draws),
        cfg_scale: options.cfg_scale.unwrap_or(defaults.cfg_scale),
        seed: options.seed.unwrap_or(defaults.seed),
    })
}

/// The guide, if any of the decoders has one.
fn guide(args: &DecodeArgs, sweep: &[Swept]) -> anyhow::Result<Option<Source>> {
    let guided = sweep.iter().map(|swept| &swept.options).find(|options| options.wants_guide());
    crate::settings::guide(args, guided.unwrap_or(&Options::default()))
}

/// What a results directory remembers of a model.
fn model(opened: &Opened, device: &DeviceOptions) -> Map<String, Value> {
    let about = |opened: &Opened| json!({"name": opened.prompter().name(), "fingerprint": format!("{:016x}", opened.fingerprint())});
    let mut model = Map::new();
    model.insert("denoiser".to_owned(), about(opened));
    model.extend(opened.guide().map(|guide| ("guide".to_owned(), about(guide))));
    let numbers = [
        ("dtype", device.dtype.to_string()),
        ("quantize", device.quantize.to_string()),
        ("activations", device.activations.to_string()),
    ];
    model.extend(numbers.map(|(name, value)| (name.to_owned(), value.into())));
    model
}

/// What as many of the largest prompts need as run at the same time.
fn needs(rehearsed: &[Rehearsed], width: usize) -> Vec<Need> {
    let positions = |one: &&Rehearsed| one.needs.iter().map(|need| need.sequence.positions).sum::<usize>();
    let largest = rehearsed.iter().max_by_key(positions).map(|one| one.needs.as_slice());
    std::iter::repeat_n(largest.unwrap_or_default(), width).flatten().cloned().collect()
}

/// Answers what is not answered yet.
fn answer(model: &mut Model, runs: Runs<'_>, store: &mut Store, screen: Screen) -> anyhow::Result<Made> {
    let (kept, missing) = (store.records().len(), runs.missing(store));
    if kept > 0 {
        screen.remark(&format!("{kept} results are there already, {missing} are missing"));
    }
    let _watched = Watched::new();
    let mut bar = Bar::positions(screen, "");
    bar.set(0, missing as u64);
    let made = run::run(model, runs, store, &mut |happened| {
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
