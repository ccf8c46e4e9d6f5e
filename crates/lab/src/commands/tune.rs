//! `demask-lab tune`: the decoder and cache that cost least and keep a task's accuracy.

use anyhow::anyhow;
use demask::Settings as _;
use demask_decode::{caches::CacheMethod, methods::DecoderMethod, spec::Method};
use demask_eval::{
    report::{self, Extras, Numbers, Summary},
    run::{
        DevItems, Peaks, Plan, Row, Spec, fingerprint,
        tune::{Cost, Floor, cheapest, most_accurate, rounds, still_possible},
    },
};
use demask_settings::names::UnknownName;
use serde::Serialize;

use super::eval::{Answers, Ready, plan, spec_of_file, spec_of_flags, width};
use crate::{
    args::{TuneArgs, flag},
    exit::usage,
    output,
    settings::Settings,
};

/// Decoders whose number says how much they dare, beside each decoder as it is.
const DARING: [&str; 2] = ["threshold:tau=0.8", "threshold:tau=0.95"];
/// The reference: what all others are compared with.
const REFERENCE: (&str, &str) = ("static", "none");
/// Points of accuracy below the reference that are borne if nothing else is said.
const LOSS: f64 = 1.5;
/// Items of the dev set if nothing else is said: as many, or half of what there is.
const DEV: usize = 64;

/// The object that `--json` prints.
#[derive(Serialize)]
struct Tuned<'a> {
    flags: &'a str,
    floor: f64,
    dev: &'a [Summary],
    test: &'a [Summary],
    warnings: &'a [String],
}

/// Runs the command.
pub fn run(settings: &Settings, args: &TuneArgs) -> anyhow::Result<()> {
    let width = width(args.eval.batch)?;
    let (floor, cost) = (floor(args)?, cost(args)?);
    let (dev, test, chosen_freely) = plans(settings, args)?;
    let mut ready = Ready::open(settings, dev, args.eval.allow_code_execution, !chosen_freely)?;
    if ready.plan.rows.len() < 2 {
        return Err(usage("there is one candidate, expected several: name more in --sweep or --runs"));
    }
    let out = |name: &str| args.eval.out.as_ref().map(|directory| directory.join(name));
    let mut answers = ready.answers(out("dev").as_deref(), width)?;
    if let Some(directory) = &args.eval.out {
        let dev = &ready.plan.tasks[0];
        DevItems::of(dev.task.name, &dev.problems).write(directory)?;
    }
    let rows = narrow(settings, &mut ready, &mut answers, floor, cost)?;
    let evaluation = ready.evaluation(&answers);
    let numbers = Numbers::of(&evaluation)?;
    if let Some(directory) = out("dev") {
        report::write(&directory, &evaluation, &Extras::default())?;
    }
    let reference = ready.plan.rows[0].baseline;
    let wanted = floor.beside(&numbers.rows[reference]);
    let finalists: Vec<&Summary> = rows.iter().map(|&row| &numbers.rows[row]).collect();
    if !settings.screen.json {
        output::text(&report::plain(&numbers))?;
        settings
            .screen
            .remark(&format!("dev set: {} candidates, rows with more items came further", numbers.rows.len()));
    }
    let Some(chosen) = cheapest(&finalists, floor, cost) else {
        let best = most_accurate(&finalists, cost).map(|best| finalists[best]);
        let best = best.map(|row| format!("{} with {:.1} % of {} items", row.run, 100.0 * row.accuracy, row.items));
        let best = best.unwrap_or_default();
        return Err(anyhow!(
            "no candidate reaches {:.1} % on the dev set; the best is {best}: lower --floor, or name other candidates",
            100.0 * wanted
        ));
    };
    let chosen = rows[chosen];
    let (on_dev, row) = (&numbers.rows[chosen], ready.plan.rows[chosen].clone());
    let base = ready.plan.rows[reference].clone();
    // The test set is asked once, for two rows: nothing is chosen by it.
    let (test, on_test) = test_of(test, base, row.clone());
    drop(ready);
    let mut ready = Ready::open(settings, test, args.eval.allow_code_execution, true)?;
    let mut answers = ready.answers(out("test").as_deref(), width)?;
    ready.go(settings, &mut answers)?;
    let evaluation = ready.evaluation(&answers);
    if let Some(directory) = out("test") {
        report::write(&directory, &evaluation, &Extras::default())?;
    }
    let tested = Numbers::of(&evaluation)?;
    let on_test = &tested.rows[on_test];
    let warnings = warnings(floor, [("dev", on_dev, wanted), ("test", on_test, floor.beside(&tested.rows[0]))]);
    let flags = flags(&row);
    if settings.screen.json {
        let (dev, test) = (&numbers.rows[..], &tested.rows[..]);
        return output::json(&Tuned { flags: &flags, floor: wanted, dev, test, warnings: &warnings });
    }
    output::text(&format!("\n{}\n{flags}\n", report::plain(&tested)))?;
    for warning in &warnings {
        settings.screen.remark(&format!("warning: {warning}"));
    }
    if let Some(directory) = out("dev") {
        let picture = directory.join("plots/accuracy_latency.svg");
        settings.screen.remark(&format!("{} has the front of the dev set", picture.display()));
    }
    Ok(())
}

/// Lets the candidates that may still be chosen answer twice as many items until all items are answered; returns who is left.
fn narrow(
    settings: &Settings,
    ready: &mut Ready,
    answers: &mut Answers,
    floor: Floor,
    cost: Cost,
) -> anyhow::Result<Vec<usize>> {
    let reference = ready.plan.rows[0].baseline;
    let mut alive: Vec<usize> = (0..ready.plan.rows.len()).collect();
    for row in &mut ready.plan.rows {
        row.limit = 0;
    }
    let rounds = rounds(alive.len(), ready.plan.tasks[0].problems.len());
    for (index, &items) in rounds.iter().enumerate() {
        for &row in alive.iter().chain([&reference]) {
            ready.plan.rows[row].limit = items;
        }
        settings.screen.remark(&format!(
            "round {} of {}: {} candidates, {items} items",
            index + 1,
            rounds.len(),
            alive.len()
        ));
        ready.go(settings, answers)?;
        if index + 1 == rounds.len() {
            break;
        }
        let mut outline = ready.outline();
        // A directory may hold more than this round asks for: who goes on must not depend on that.
        outline.tasks[0].items = items;
        let numbers = Numbers::of(&outline.evaluation(answers.store.records(), None, &Peaks::new()))?;
        let rows: Vec<&Summary> = alive.iter().map(|&row| &numbers.rows[row]).collect();
        alive = still_possible(&rows, floor, cost).into_iter().map(|place| alive[place]).collect();
    }
    alive.sort_unstable();
    if !alive.contains(&reference) {
        alive.push(reference);
    }
    Ok(alive)
}

/// The accuracy that is wanted.
fn floor(args: &TuneArgs) -> anyhow::Result<Floor> {
    let share = |name: &str, points: f64| {
        let refused = || usage(format!("{name} is {points}, expected percent from 0 to 100"));
        if (0.0..=100.0).contains(&points) { Ok(points / 100.0) } else { Err(refused()) }
    };
    match (args.floor, args.loss) {
        (Some(_), Some(_)) => Err(usage("--floor and --loss both say what accuracy is wanted: give one of them")),
        (Some(floor), None) => Ok(Floor::At(share("--floor", floor)?)),
        (None, loss) => Ok(Floor::Below(share("--loss", loss.unwrap_or(LOSS))?)),
    }
}

/// Returns the cost to make small.
fn cost(args: &TuneArgs) -> anyhow::Result<Cost> {
    let Some(name) = &args.by else { return Ok(Cost::default()) };
    let found = Cost::NAMES.iter().find(|(known, _)| known == name).map(|(_, cost)| *cost);
    let known = Cost::NAMES.iter().map(|(known, _)| *known).collect();
    found.ok_or_else(|| UnknownName { what: "cost", found: name.clone(), known }.into())
}

/// The candidates on the dev set, what they are asked on the test set, and whether they are ours: then those that the
/// model cannot run are left out.
fn plans(settings: &Settings, args: &TuneArgs) -> anyhow::Result<(Plan, Plan, bool)> {
    let eval = &args.eval;
    if eval.ask.text("score").is_some() {
        return Err(usage("--score has no meaning with tune, whose candidates decode: omit it"));
    }
    let mut ours = false;
    let spec = if let Some(file) = &eval.runs {
        spec_of_file(settings, file, eval)?
    } else {
        let mut spec = spec_of_flags(settings, eval)?;
        ours = eval.sweep.is_none();
        if ours {
            candidates(&mut spec)?;
        }
        spec
    };
    if spec.tasks.len() != 1 {
        return Err(usage(format!("tune works on one task, found {}: name one", spec.tasks.len())));
    }
    let mut dev_spec = spec.clone();
    let task = &mut dev_spec.tasks[0];
    let own = match (&args.dev_data, task.task.on_dev().filter(|_| task.data.is_none())) {
        (Some(file), _) => {
            task.data = Some(file.clone());
            true
        }
        (None, Some(on_dev)) => {
            task.task = on_dev;
            true
        }
        (None, None) => false,
    };
    let mut dev = plan(settings, dev_spec, eval, None)?;
    let mut test = plan(settings, spec, eval, None)?;
    split(&mut dev, &mut test, own, args)?;
    // All candidates are compared with one: pairs are of it.
    let reference = dev.rows[0].baseline;
    dev.rows.iter_mut().for_each(|row| row.baseline = reference);
    Ok((dev, test, ours))
}

/// Splits the items: those of the dev set are not in the test set. `own` are those of a file of their own.
fn split(dev: &mut Plan, test: &mut Plan, own: bool, args: &TuneArgs) -> anyhow::Result<()> {
    let (first, second) = (&mut dev.tasks[0], &mut test.tasks[0]);
    let available = first.problems.len();
    let usual = match (&args.dev_data, own) {
        (Some(_), _) => available,
        (None, true) => DEV.min(available),
        (None, false) => DEV.min(available / 2),
    };
    let wanted = args.dev.unwrap_or(usual);
    if wanted == 0 || wanted > available || (!own && wanted == available) {
        let most = if own { available } else { available.saturating_sub(1) };
        return Err(usage(format!("--dev is {wanted}, expected 1 to {most} of {available} items")));
    }
    if own {
        first.problems.truncate(wanted);
    } else {
        // An evaluation with a limit asks the first ones.
        first.problems.drain(..available - wanted);
        second.problems.truncate(available - wanted);
    }
    // An item of the dev set's file may be one of the task's too.
    second.problems.retain(|problem| {
        !first.problems.iter().any(|seen| seen.question == problem.question && seen.context == problem.context)
    });
    second.problems.truncate(args.eval.limit.unwrap_or(usize::MAX));
    if second.problems.is_empty() {
        return Err(usage("no item is left for the test set: name a --dev-data of other items"));
    }
    let chosen = first.problems.len();
    "These items choose: what they say of the chosen row is too good".clone_into(&mut first.note);
    second.note = format!("The row was chosen by {chosen} other items");
    for task in [first, second] {
        task.available = task.problems.len();
        task.data = fingerprint(&task.problems);
    }
    Ok(())
}

/// Puts every decoder over every cache in the place of the one row that the flags make.
fn candidates(spec: &mut Spec) -> anyhow::Result<()> {
    let Some(row) = spec.rows.pop() else { return Ok(()) };
    let given = &row.asks[0].options;
    if let Some(name) = given.given().into_iter().find(|name| ["decoder", "cache"].contains(name)) {
        let flag = flag(name);
        return Err(usage(format!("{flag} names one candidate: name several with --sweep, or omit it")));
    }
    let decoders = DecoderMethod::known().iter().map(|method| method.about().name);
    let decoders: Vec<&str> = decoders.chain(DARING).collect();
    let caches = CacheMethod::known().iter().map(|method| method.about().name);
    let all = caches.flat_map(|cache| decoders.iter().map(move |decoder| (*decoder, cache)));
    for (decoder, cache) in std::iter::once(REFERENCE).chain(all) {
        let mut row = row.clone();
        for asking in &mut row.asks {
            asking.options.set("decoder", decoder)?;
            asking.options.set("cache", cache)?;
        }
        if row.asks.iter().any(|asking| asking.options.wants_guide()) {
            continue;
        }
        spec.rows.push(row);
    }
    Ok(())
}

/// The reference and the chosen row on the test set, and the place of the chosen one.
fn test_of(mut test: Plan, reference: Row, chosen: Row) -> (Plan, usize) {
    let alone = reference.asks[0].options == chosen.asks[0].options && reference.model == chosen.model;
    let mut rows = if alone { vec![chosen] } else { vec![reference, chosen] };
    for row in &mut rows {
        (row.baseline, row.limit) = (0, usize::MAX);
    }
    let place = rows.len() - 1;
    test.rows = rows;
    (test, place)
}

/// Flags that run the chosen row again.
fn flags(row: &Row) -> String {
    let mut words = Vec::new();
    let mut say = |name: &str, value: &str| {
        let quoted = value.chars().any(|letter| !letter.is_alphanumeric() && !"-_./:=,+".contains(letter));
        let mark = if quoted { "'" } else { "" };
        words.push(if value.is_empty() { flag(name) } else { format!("{} {mark}{value}{mark}", flag(name)) });
    };
    let load = &row.model.load;
    let load = load.given().into_iter().filter_map(|name| Some((name.to_owned(), load.json(name)?)));
    for (name, value) in load.chain(row.asks[0].settings()) {
        match &value {
            serde_json::Value::Bool(true) => say(&name, ""),
            // Lists are the task's own texts, which a prompt of another kind does not want.
            serde_json::Value::Bool(false) | serde_json::Value::Array(_) => {}
            serde_json::Value::String(text) => say(&name, text),
            value => say(&name, &value.to_string()),
        }
    }
    words.join(" ")
}

/// Returns a warning if the samples, each with its row and the accuracy that is wanted there, are too small, and if the second one
/// says otherwise than the first.
fn warnings(floor: Floor, samples: [(&str, &Summary, f64); 2]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, row, wanted) in samples {
        if let Some(needed) = floor.items_to_tell(row) {
            let more = needed.map_or_else(String::new, |needed| format!(" (about {needed} would do)"));
            warnings.push(format!(
                "{} items of the {name} set are too few to separate {:.1} % from the floor of {:.1} %{more}",
                row.items,
                100.0 * row.accuracy,
                100.0 * wanted
            ));
        }
    }
    let [_, (_, test, wanted)] = samples;
    if !floor.is_reached(test) {
        warnings.push(format!(
            "on the test set it is below the floor: {:.1} % of {} items, wanted {:.1} %",
            100.0 * test.accuracy,
            test.items,
            100.0 * wanted
        ));
    }
    warnings
}
