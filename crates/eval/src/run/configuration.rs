//! Configuration that must agree for a results directory to be continued, and that a report needs beside its records.

use std::collections::BTreeMap;

use demask::{
    DeviceOptions, ModelInfo, Opened,
    methods::spec::{Method, Spec},
};
use serde_json::{Map, Value, json};

use super::{
    Ask, Combination, DryRun, ModelSpec, Plan, Row,
    effective::{Table, values},
};
use crate::{
    Problem,
    report::{Outline, Prompting, RunInfo, TaskInfo},
};

/// Returns everything that decides the content of records, but not how many of them are wanted, how many are made at a
/// time, or how fast. `models` has the facts of each row's model, as [`about_model`] returns them.
pub fn configuration(
    plan: &Plan,
    dry_runs: &[DryRun],
    combinations: &[Combination],
    models: &[Map<String, Value>],
) -> Map<String, Value> {
    let mut configuration = Map::new();
    configuration.insert("seed".to_owned(), plan.seed.into());
    let tasks = plan.tasks.iter().map(|task| {
        let mut about = json!({"task": task.task.name, "data": hexadecimal(task.data)});
        if let Some(file) = task.task.file {
            about["file"] = hexadecimal(file).into();
        }
        (task.name.clone(), about)
    });
    configuration.insert("tasks".to_owned(), Value::Object(tasks.collect()));
    let rows = combinations.iter().map(|combination| {
        let asks = plan.rows[combination.row].asks.iter().zip(&dry_runs[combination.row].settings);
        let asks = plan.tasks.iter().zip(asks);
        let asks: Map<String, Value> = asks
            .map(|(task, (ask, settings))| (task.name.clone(), prompting(ask, settings, combination.seed)))
            .collect();
        let mut about = json!({"model": models[combination.row], "tasks": asks});
        let own = own_methods(&plan.rows[combination.row]);
        if !own.is_empty() {
            about["methods"] = Value::Object(own);
        }
        (combination.label.clone(), about)
    });
    configuration.insert("rows".to_owned(), Value::Object(rows.collect()));
    configuration
}

/// Returns the methods of a row that are none of demask's own, each with the crate that has it: `decoder falls`,
/// `falls-and-near 0.2.0`.
fn own_methods(row: &Row) -> Map<String, Value> {
    fn own<M: Method>(spec: Option<&Spec<M>>) -> Option<(String, Value)> {
        let spec = spec.filter(|spec| !spec.is_built_in())?;
        let (package, version) = spec.method().about().of_crate;
        Some((format!("{} {}", M::WHAT, spec.name()), format!("{package} {version}").into()))
    }
    let options = row.asks.iter().map(|ask| &ask.options);
    options.flat_map(|options| own(options.decoder.as_ref()).into_iter().chain(own(options.cache.as_ref()))).collect()
}

fn prompting(ask: &Ask, settings: &Table, seed: u64) -> Value {
    let mut settings = values(settings);
    settings["seed"] = seed.into();
    settings["exemplars"] = hexadecimal(fingerprint(ask.shots.pool())).into();
    settings
}

/// Name of the setting in a results directory: absent where the model has nothing to share.
const PREFIX_CACHE: &str = "prefix_cache";

/// Returns the facts of a row's model that a results directory keeps: the weights that answer, their number formats,
/// and whether items share prefixes, which changes the operations of receipts.
pub fn about_model(opened: &Opened, row: &ModelSpec, device: &DeviceOptions) -> Map<String, Value> {
    let guided = row.guide().is_some();
    let about =
        |(info, fingerprint): (&ModelInfo, u64)| json!({"name": info.name(), "fingerprint": hexadecimal(fingerprint)});
    let own = (opened.info(), opened.fingerprint());
    let mut model = Map::from_iter([("denoiser".to_owned(), about(own))]);
    model.extend(opened.guide_fingerprint().filter(|_| guided).map(|guide| ("guide".to_owned(), about(guide))));
    let numbers = [
        ("dtype", device.dtype.to_string()),
        ("quantize", device.quantize.to_string()),
        ("activations", device.activations.to_string()),
    ];
    model.extend(numbers.map(|(name, value)| (name.to_owned(), value.into())));
    let networks = opened.info().infos().into_iter().take(1 + usize::from(guided));
    if networks.map(ModelInfo::why_no_prefixes).any(|why| why.is_none()) {
        model.insert(PREFIX_CACHE.to_owned(), row.shares_prefixes().into());
    }
    model
}

/// Returns a number that differs where problems differ.
pub fn fingerprint(problems: &[Problem]) -> u64 {
    demask::fingerprint::fingerprint(problems.iter().map(|problem| problem.fields().fingerprint().to_le_bytes()))
}

fn hexadecimal(number: u64) -> String {
    format!("{number:016x}")
}

/// Returns the parts of a plan that a report needs besides the records. `models` has the facts of each row's model, as
/// [`about_model`] returns them.
pub fn outline(
    plan: &Plan,
    dry_runs: &[DryRun],
    combinations: &[Combination],
    models: &[Map<String, Value>],
) -> Outline {
    let tasks = plan.tasks.iter().enumerate().map(|(at, task)| {
        let ask = plan.rows.first().map(|row| &row.asks[at]);
        TaskInfo {
            name: task.name.clone(),
            shots: ask.map_or(0, |ask| ask.shots.count()),
            style: ask.map_or("", Ask::wording).to_owned(),
            metric: ask.map_or("", Ask::metric).to_owned(),
            available: task.available,
            items: task.problems.len(),
            data: hexadecimal(task.data),
            note: task.note.clone(),
        }
    });
    let others = others(plan);
    let runs = plan.rows.iter().enumerate().map(|(index, row)| {
        let asks = plan.tasks.iter().zip(row.asks.iter().zip(&dry_runs[index].settings));
        let asked = asks.map(|(task, (ask, settings))| {
            let (early_stop, settings) = (ask.options.stops_early(), settings.clone());
            let (style, shots, metric) = (ask.wording().to_owned(), ask.shots.count(), ask.metric().to_owned());
            (task.name.clone(), Prompting { style, shots, metric, early_stop, settings })
        });
        let own = |again: bool| {
            let of_row = combinations.iter().filter(move |one| one.row == index && one.again == again);
            of_row.map(|combination| combination.label.clone()).collect()
        };
        let label = dry_runs[index].label.clone();
        RunInfo {
            records: own(false),
            again: own(true),
            guide: row.model.guide().unwrap_or_default().to_owned(),
            baseline: row.baseline,
            others: others[index].clone(),
            prefix_cache: models.get(index).and_then(|model| model.get(PREFIX_CACHE)?.as_bool()),
            prompting: asked.collect(),
            published: plan.published.iter().filter(|figures| figures.row == label).cloned().collect(),
            label,
        }
    });
    Outline { heading: plan.heading.clone(), tasks: tasks.collect(), runs: runs.collect() }
}

/// The options in which rows differ beside those that receipts have: `temperature=0.2`.
fn others(plan: &Plan) -> Vec<String> {
    /// Options for which the rows of a table have fields.
    const REPORTED: [&str; 6] = ["decoder", "cache", "steps", "remasking", "no_early_stop", "stop"];
    let options = |ask: &Ask| -> BTreeMap<String, Value> {
        ask.settings().into_iter().filter(|(name, _)| !REPORTED.contains(&name.as_str())).collect()
    };
    let all: Vec<BTreeMap<String, Value>> =
        plan.rows.iter().map(|row| row.asks.first().map(options).unwrap_or_default()).collect();
    let differs = |name: &str| all.iter().any(|map| map.get(name) != all[0].get(name));
    let own = |map: &BTreeMap<String, Value>| {
        let told = map.iter().filter(|(name, _)| differs(name));
        told.map(|(name, value)| format!("{}={value}", name.replace('_', "-"))).collect::<Vec<_>>().join(", ")
    };
    all.iter().map(own).collect()
}
