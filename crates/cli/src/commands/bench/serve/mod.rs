//! `demask bench serve`: how fast a server answers, by how many ask it at the same time.
//!
//! Any server of the OpenAI kind can be measured. [`load`] sends requests, [`http`], [`framing`] and [`sse`] read what comes
//! back, [`answer`] makes an answer of it, [`report`] sums up what all of them show, [`check`] compares them with the answers
//! to lone requests.

mod answer;
mod check;
mod framing;
mod http;
mod load;
mod plan;
mod process;
mod prompts;
mod report;
mod sse;
mod statistics;

use std::time::Instant;

use anyhow::{anyhow, bail};
use serde_json::Value;

use self::{
    check::Checked,
    http::{Failure, Head, Line, Receiver, Request},
    load::{Outcome, Run},
    plan::{Load, Plan},
    report::Report,
};
use crate::{
    args::{BenchServeArgs, SharedArgs},
    exit::{Interrupted, usage},
    interrupt::Watched,
    output::{self, Screen},
    progress::Bar,
    settings::Settings,
};

/// Bytes that the list of models may have.
const LONGEST_LIST: usize = 16 << 20;
/// Differences that are listed one by one.
const TOLD: usize = 10;

/// Refuses shared flags that are about a model in this process.
pub fn shared(shared: SharedArgs) -> anyhow::Result<SharedArgs> {
    let given = [
        ("--family", shared.family.is_some()),
        ("--device", shared.device.is_some()),
        ("--dtype", shared.dtype.is_some()),
        ("--quantize", shared.quantize.is_some()),
        ("--activations", shared.activations.is_some()),
        ("--threads", shared.threads.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(usage(format!("{flag} belongs to the server, which runs already: omit it"))),
        None => Ok(shared),
    }
}

/// Runs the command.
pub fn run(settings: &Settings, args: &BenchServeArgs) -> anyhow::Result<()> {
    let plan = Plan::resolve(settings, args)?;
    if let Some(pid) = plan.pid {
        process::seconds(pid)?;
    }
    let _watched = Watched::new();
    let model = match &plan.model {
        Some(model) => model.clone(),
        None => first_model(&plan)?,
    };
    warm(&plan, &model)?;
    let mut runs = Vec::new();
    let mut reports = Vec::new();
    for &load in &plan.loads {
        let before = processors(&plan)?;
        let run = measured(&plan, &model, load, settings.screen)?;
        // A server that has gone away has no seconds to tell, but the requests have.
        let spent = before.zip(processors(&plan).ok().flatten());
        let spent = spent.map(|(before, after)| (after.0 - before.0, after.1 - before.1));
        tell_failures(&run, load, settings.screen);
        reports.push(Report::new(load, &run, plan.bounds.as_ref(), spent));
        runs.push((load, run));
    }
    show(&plan, &model, &reports, &runs, settings.screen)?;
    if runs.iter().all(|(_, run)| report::finished(run).next().is_none()) {
        bail!("no request was answered{}", first_reason(&runs));
    }
    if plan.check { compare(&plan, &model, &runs, settings.screen) } else { Ok(()) }
}

/// A load behind a bar.
fn measured(plan: &Plan, model: &str, load: Load, screen: Screen) -> anyhow::Result<Run> {
    let bar = Bar::positions(screen, &load.to_string());
    bar.set(0, plan.requests as u64);
    load::run(plan, model, load, &bar)
}

/// Requests that are not measured: the first ones make room for those behind them.
fn warm(plan: &Plan, model: &str) -> anyhow::Result<()> {
    let mut line = Line::default();
    for number in 0..plan.warm {
        match load::one(plan, &mut line, model, number, Instant::now()) {
            Outcome::Finished(_) => {}
            Outcome::Refused { .. } => bail!("a warm-up request was refused, with no other under way"),
            Outcome::Failed(Failure::Interrupted) => return Err(Interrupted.into()),
            Outcome::Failed(failure) => return Err(anyhow!(failure).context("a warm-up request failed")),
        }
    }
    Ok(())
}

/// Processor seconds of the server and of this process, if they are asked for.
fn processors(plan: &Plan) -> anyhow::Result<Option<(f64, f64)>> {
    let Some(pid) = plan.pid else { return Ok(None) };
    Ok(Some((process::seconds(pid)?, process::seconds(std::process::id())?)))
}

/// The table, or the JSON: an object for one load, a list for several.
fn show(plan: &Plan, model: &str, reports: &[Report], runs: &[(Load, Run)], screen: Screen) -> anyhow::Result<()> {
    if !screen.json {
        return Ok(output::text(&report::table(reports))?);
    }
    let objects = reports.iter().zip(runs).map(|(report, (_, run))| report.json(plan, model, run));
    let mut objects: Vec<_> = objects.collect();
    if objects.len() == 1 { output::json(&objects.remove(0)) } else { output::json(&objects) }
}

/// Compares with lone runs, and fails if any answer differs.
fn compare(plan: &Plan, model: &str, runs: &[(Load, Run)], screen: Screen) -> anyhow::Result<()> {
    let bar = Bar::positions(screen, "alone");
    bar.set(0, plan.requests as u64);
    let Checked { compared, differences } = check::check(plan, model, runs, &bar)?;
    drop(bar);
    for difference in differences.iter().take(TOLD) {
        output::note(difference);
    }
    if let Some(more) = differences.len().checked_sub(TOLD).filter(|&more| more > 0) {
        output::note(&format!("and {more} more"));
    }
    if differences.is_empty() {
        screen.remark(&format!("{compared} answers, each equal to that of the request alone"));
        return Ok(());
    }
    bail!("{} of {compared} answers differ from those of the requests alone", differences.len())
}

/// Reports the number of failed requests, and the reason of the first failure.
fn tell_failures(run: &Run, load: Load, screen: Screen) {
    let failures = run.samples.iter().filter_map(|sample| match &sample.outcome {
        Outcome::Failed(failure) => Some((sample.number, failure)),
        _ => None,
    });
    let failures: Vec<_> = failures.collect();
    if let Some((number, failure)) = failures.first() {
        screen.remark(&format!("{} requests failed at {load}, the first is {number}: {failure}", failures.len()));
    }
}

/// Reason why the first request has no answer.
fn first_reason(runs: &[(Load, Run)]) -> String {
    let outcome = runs.iter().flat_map(|(_, run)| &run.samples).map(|sample| &sample.outcome).next();
    match outcome {
        Some(Outcome::Failed(failure)) => format!(": {failure}"),
        Some(Outcome::Refused { .. }) => ": the server refused all of them".to_owned(),
        _ => String::new(),
    }
}

/// The name of the server's first model.
fn first_model(plan: &Plan) -> anyhow::Result<String> {
    let mut list = List::default();
    let request = Request { method: "GET", path: "/v1/models", body: "" };
    match plan.client.ask(&mut Line::default(), request, &mut list) {
        Err(Failure::Interrupted) => return Err(Interrupted.into()),
        asked => asked?,
    }
    let found: Option<Value> = serde_json::from_slice(&list.body).ok();
    let name = found.as_ref().and_then(|found| found.pointer("/data/0/id")).and_then(Value::as_str);
    match name {
        Some(name) if (200..300).contains(&list.status) => Ok(name.to_owned()),
        _ => Err(anyhow!(
            "{}/v1/models (HTTP {}) lists no model: --model NAME names one",
            plan.client.address.authority(),
            list.status
        )),
    }
}

/// The list of models, as bytes.
#[derive(Default)]
struct List {
    status: u16,
    body: Vec<u8>,
}

impl Receiver for List {
    fn head(&mut self, head: &Head) -> Result<(), Failure> {
        self.status = head.status;
        Ok(())
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.body.len() + bytes.len() > LONGEST_LIST {
            return Err(Failure::protocol(format!("the list of models is longer than {LONGEST_LIST} bytes")));
        }
        self.body.extend_from_slice(bytes);
        Ok(())
    }
}
