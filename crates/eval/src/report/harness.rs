//! Results in the files of lm-evaluation-harness: for each run a directory with `results_demask.json` and one
//! `samples_TASK_demask.jsonl` for each task, which its tables, comparisons and viewers read.
//!
//! Hashes of documents and prompts are left out, and so is the date: the same items give the same files. The version of a task is
//! the fingerprint of its data, and its error is the harness's, of a sample.

use serde_json::{Map, Value, json};

use super::{Evaluation, Numbers, RunResult, Summary, TaskInfo, figures::slug};
use crate::Record;

/// The harness names results by metric and filter; all answers of ours went through one filter.
const FILTER: &str = "demask";

/// The files of all runs: names below the report's directory, and texts.
pub fn files(evaluation: &Evaluation, numbers: &Numbers) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for (index, run) in evaluation.runs.iter().enumerate() {
        // Two labels may differ only in what file names cannot hold.
        let directory = format!("lm_eval/{}-{}", index + 1, slug(&run.info.label));
        let results = results(evaluation, run, numbers);
        files.push((format!("{directory}/results_{FILTER}.json"), format!("{results:#}\n")));
        for task in &evaluation.tasks {
            let lines: String = run
                .records
                .iter()
                .filter(|record| record.task == task.name)
                .map(|record| sample(task, record))
                .collect();
            if !lines.is_empty() {
                files.push((format!("{directory}/samples_{}_{FILTER}.jsonl", slug(&task.name)), lines));
            }
        }
    }
    files
}

fn results(evaluation: &Evaluation, run: &RunResult, numbers: &Numbers) -> Value {
    let told: Vec<(&TaskInfo, &Summary)> = evaluation
        .tasks
        .iter()
        .filter_map(|task| Some((task, numbers.of_task(task).find(|row| row.run == run.info.label)?)))
        .collect();
    let by_task = |value: &dyn Fn(&TaskInfo, &Summary) -> Value| -> Value {
        told.iter().map(|(task, row)| (task.name.clone(), value(task, row))).collect::<Map<_, _>>().into()
    };
    let first = told.first().map(|(_, row)| *row);
    let row_model = first.map_or("", |row| row.model.as_str());
    let arguments = first.map_or_else(String::new, |row| {
        let named = format!("pretrained={},decoder={},cache={},steps={}", row.model, row.decoder, row.cache, row.steps);
        // What tasks ask for otherwise is in their own configurations.
        let shared = |name: &&str| told.iter().all(|(_, other)| value(other, name) == value(row, name));
        let more = ["block_length", "gen_length"].into_iter().filter(shared);
        let more = more.filter_map(|name| Some(format!(",{name}={}", value(row, name)?)));
        std::iter::once(named).chain(more).collect()
    });
    let made = run.made.and_then(|place| evaluation.made.get(place));
    json!({
        "results": by_task(&|task, row| json!({
            "name": task.name,
            "alias": task.name,
            "sample_len": row.items,
            format!("{},{FILTER}", task.metric): row.accuracy,
            format!("{}_stderr,{FILTER}", task.metric): sample_error(row),
        })),
        "group_subtasks": {},
        "configs": by_task(&|task, row| json!({
            "task": task.name,
            "num_fewshot": task.shots,
            "output_type": if task.metric == "acc" { "multiple_choice" } else { "generate_until" },
            "generation_kwargs": generation(row),
            "metric_list": [{"metric": task.metric, "aggregation": "mean", "higher_is_better": true}],
            "metadata": {"prompt_style": task.style, "model": row_model},
        })),
        "versions": by_task(&|task, _| json!(task.data)),
        "n-shot": by_task(&|task, _| json!(task.shots)),
        "higher_is_better": by_task(&|task, _| json!({task.metric.clone(): true})),
        "n-samples": by_task(&|task, row| json!({
            "original": task.available.max(row.items), "effective": row.items,
        })),
        "config": {
            "model": "demask",
            "model_args": arguments,
            "batch_size": made.map(|made| made.batch),
            "device": first.map(|row| row.device.as_str()),
            "limit": first.map(|row| row.items),
            "gen_kwargs": first.map(generation),
        },
        "git_hash": made.and_then(|made| made.commit.as_deref()),
        "model_source": "demask",
        "model_name": row_model,
        "model_name_sanitized": row_model.replace(['/', '\\'], "__"),
        "total_evaluation_time_seconds":
            told.iter().map(|(_, row)| row.seconds_per_item * row.items as f64).sum::<f64>().to_string(),
    })
}

/// The value of a setting of a row, where it has one.
fn value<'a>(row: &'a Summary, name: &str) -> Option<&'a Value> {
    row.settings.get(name).map(|setting| &setting.value).filter(|value| !value.is_null())
}

/// Settings of answers by the harness's names; null where none is written.
fn generation(row: &Summary) -> Value {
    let names = [
        ("until", "stop"),
        ("max_gen_toks", "gen_length"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("top_k", "top_k"),
    ];
    let told = names.iter().filter_map(|(theirs, ours)| Some(((*theirs).to_owned(), value(row, ours)?.clone())));
    let mut told: Map<String, Value> = told.collect();
    let Some(temperature) = told.get("temperature").and_then(Value::as_f64) else { return Value::Null };
    told.insert("do_sample".to_owned(), (temperature > 0.0).into());
    told.into()
}

/// Standard error of the accuracy as the harness has it: deviations by `n - 1`; null of a single item.
fn sample_error(row: &Summary) -> Value {
    let count = row.items as f64;
    if row.items < 2 { Value::Null } else { json!(row.standard_error * (count / (count - 1.0)).sqrt()) }
}

/// One line of the samples.
fn sample(task: &TaskInfo, record: &Record) -> String {
    let mut sample = json!({
        "doc_id": record.index,
        "doc": {"id": record.id},
        "target": record.expected,
        "arguments": {"gen_args_0": {"arg_0": record.prompt, "arg_1": {}}},
        "resps": [[record.output]],
        "filtered_resps": [record.verdict.answer.clone().unwrap_or_default()],
        "filter": FILTER,
        "metrics": [task.metric],
    });
    sample[&task.metric] = json!(record.verdict.worth());
    format!("{sample}\n")
}
