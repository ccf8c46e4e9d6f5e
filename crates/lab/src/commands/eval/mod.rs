//! `demask-lab eval`: the problems of tasks, answered and judged.

mod made;
mod peak;
mod perform;
mod spec;

use anyhow::Context;
use demask_eval::{
    report::{self, Extras, Numbers, Summary},
    run::{Answering, DevItems, Made, Means, Plan},
    sandbox::{Confinement, Limits, Permission},
};
use serde::Serialize;

use crate::{
    args::{CodeExecution, EvalArgs, EvalCommandArgs},
    env,
    exit::usage,
    interrupt::{self, Watched},
    load::fetching,
    output::{self, Screen},
    settings::Settings,
};

pub use perform::{Answers, Ready};
pub use spec::{of_file as spec_of_file, of_flags as spec_of_flags};

/// The object that `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    device: &'a str,
    /// Problems at the same time.
    batch: usize,
    /// Number of items that this call made, and its wall time.
    items: usize,
    seconds: f64,
    rows: &'a [Summary],
}

/// Runs the command.
pub fn run(settings: &Settings, command: &EvalCommandArgs) -> anyhow::Result<()> {
    let args = &command.eval;
    let width = width(args.batch)?;
    if args.limit == Some(0) {
        return Err(usage("--limit is 0, expected at least 1"));
    }
    let spec = match &args.runs {
        Some(file) => spec::of_file(settings, file, args)?,
        None => spec::of_flags(settings, args)?,
    };
    if args.batch.is_some()
        && spec.rows.iter().flat_map(|row| &row.asks).all(|ask| !matches!(ask.answering(), Ok(Answering::Generate)))
    {
        return Err(usage(
            "--batch has no meaning with --score likelihood and decision, whose items share no forwards: omit it",
        ));
    }
    if !command.peak_of.is_empty() {
        return peak::alone(settings, spec, args, width, &command.peak_of);
    }
    let mut plan = plan(settings, spec, args, args.limit)?;
    plan.again = true;
    let mut ready = Ready::open(settings, plan, args.allow_code_execution, true)?;
    let mut answers = ready.answers(args.out.as_deref(), width)?;
    ready.report(&answers, settings.screen);
    if command.peak_memory {
        // Before a model is loaded: the memory has to hold one at a time.
        peak::measure(&ready, &mut answers, settings.screen)?;
    }
    ready.go(settings, &mut answers)?;
    let evaluation = ready.evaluation(&answers);
    if let Some(directory) = &args.out {
        report::write(directory, &evaluation, &Extras::default())?;
    }
    let numbers = Numbers::of(&evaluation)?;
    let Made { items, seconds } = answers.made;
    let screen = settings.screen;
    for warning in numbers.warnings() {
        screen.remark(&format!("warning: {warning}"));
    }
    if screen.json {
        let Numbers { model, device, rows, .. } = &numbers;
        return output::json(&Report { model, device, batch: width, items, seconds, rows });
    }
    output::text(&report::plain(&numbers))?;
    screen.remark(&format!("{} in {seconds:.1} s, {width} at a time", output::counted(items, "problem")));
    if let Some(directory) = &args.out {
        screen.remark(&format!("{} has the tables and pictures", directory.join("report.html").display()));
    }
    Ok(())
}

/// Problems at a time.
pub fn width(batch: Option<usize>) -> anyhow::Result<usize> {
    match batch.unwrap_or(1) {
        0 => Err(usage("--batch is 0, expected at least 1")),
        width => Ok(width),
    }
}

/// Reads the data of a run.
pub fn plan(
    settings: &Settings,
    spec: demask_eval::run::Spec,
    args: &EvalArgs,
    limit: Option<usize>,
) -> anyhow::Result<Plan> {
    let skip = args.skip_dev.as_deref().map(DevItems::read).transpose()?;
    if let Some(skip) = skip.as_ref().filter(|skip| spec.tasks.iter().all(|task| task.task.name != skip.task)) {
        return Err(usage(format!("--skip-dev has items of {}, which is none of these tasks: omit it", skip.task)));
    }
    laid_out(settings, spec, args, limit, skip.as_ref())
}

/// Reads the data of a run without the items that a method was chosen by.
fn laid_out(
    settings: &Settings,
    spec: demask_eval::run::Spec,
    args: &EvalArgs,
    limit: Option<usize>,
    skip: Option<&DevItems>,
) -> anyhow::Result<Plan> {
    let programs = args.allow_code_execution.is_some();
    let _watched = Watched::begin();
    let mut fetching = fetching(settings.screen);
    let hub = env::hub();
    let seed = settings.seed;
    let mut means = Means { hub: &hub, seed, limit, programs, skip, watch: &mut fetching };
    let plan = Plan::of(spec, &mut means);
    interrupt::check()?;
    Ok(plan?)
}

/// Returns the permission to run programs, and warns of the parts of their confinement that the kernel denies.
fn permission(screen: Screen, execution: CodeExecution) -> anyhow::Result<Permission> {
    let binary = std::env::current_exe().context("cannot find the running binary")?;
    let confinement = match execution {
        CodeExecution::Complete => Confinement::Complete,
        CodeExecution::Confined => Confinement::Whole,
        CodeExecution::Unconfined => Confinement::Partial,
    };
    let permission = Permission::grant(binary, Limits::default(), confinement)?;
    if let Some(warning) = permission.warning() {
        screen.remark(&format!("warning: {warning}"));
    }
    Ok(permission)
}
