mod unmatched;

use demask_figures::{Content, Figure};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    Counts, Verdict,
    report::{figures::pareto, readme},
    run::{Call, Heading, MadeBy},
};

/// A made-up item.
#[derive(Debug, Clone)]
struct Item {
    correct: bool,
    seconds: f64,
    nfe: usize,
    tokens: usize,
}

const RIGHT: Item = Item { correct: true, seconds: 2.0, nfe: 64, tokens: 32 };

fn record(run: &str, decoder: &str, cache: &str, index: usize, item: &Item) -> Record {
    let steps = if decoder == "static" { item.nfe } else { 64 };
    Record {
        run: run.to_owned(),
        task: "sums".to_owned(),
        index,
        id: format!("sums/{index}"),
        prompt: "1+1".to_owned(),
        output: "It is 2".to_owned(),
        verdict: Verdict::of("2", item.correct),
        expected: "2".to_owned(),
        counts: Counts { tokens: item.tokens, ..Counts::default() },
        receipt: json!({
            "model": "demo/tiny", "device": "cpu, 2 threads", "decoder": decoder, "cache": cache, "remasking": "low_confidence",
            "schedule": "even", "steps": steps, "block_length": 16,
            "exactness": "reference", "against": null, "seed": 0, "nfe": item.nfe, "forwards": item.nfe,
            "tokens_per_nfe": 0.5, "rows": 1000, "flops": 64e9, "guide_nfe": 0,
            "seconds": {"load": 0.1, "model": 1.9, "guide": 0.0, "total": item.seconds},
            "memory": {"weights": 100, "guide": 0, "cache": 3 << 20, "peak": 50 << 20},
        }),
    }
}

fn run(decoder: &str, cache: &str, items: &[Item]) -> RunResult {
    let label = format!("{decoder}, {cache}");
    let records = items.iter().enumerate().map(|(index, item)| record(&label, decoder, cache, index, item));
    RunResult {
        again: Vec::new(),
        peaks: BTreeMap::new(),
        made: None,
        records: records.collect(),
        info: RunInfo { records: vec![label.clone()], label, ..RunInfo::default() },
    }
}

fn task() -> TaskInfo {
    let (name, style, metric) = ("sums".into(), "plain".into(), "exact_match".into());
    TaskInfo { name, shots: 2, style, metric, available: 500, items: 500, data: "1".into(), note: String::new() }
}

fn evaluation(runs: Vec<RunResult>) -> Evaluation {
    Evaluation { heading: Heading::default(), tasks: vec![task()], runs, made: Vec::new() }
}

/// Two runs of four items each: the second is four times as fast and less accurate.
fn two() -> Evaluation {
    let fast = |correct| Item { correct, seconds: 0.5, nfe: 10, tokens: 32 };
    evaluation(vec![
        run("static", "none", &[RIGHT, RIGHT, RIGHT, Item { correct: false, ..RIGHT }]),
        run("threshold:tau=0.9", "dual", &[fast(true), fast(true), fast(false), fast(false)]),
    ])
}

/// Runs of eight items, by decoder, cache, right items, and a common number of forwards.
fn sweep(specs: &[(&str, &str, usize, usize)]) -> Numbers {
    let runs = specs.iter().map(|&(decoder, cache, right, nfe)| {
        let item = |index| Item { correct: index < right, seconds: nfe as f64 / 20.0, nfe, tokens: 32 };
        run(decoder, cache, &(0..8).map(item).collect::<Vec<_>>())
    });
    Numbers::of(&evaluation(runs.collect())).unwrap()
}

fn names(figures: &[Figure]) -> Vec<&str> {
    figures.iter().map(|figure| figure.name.as_str()).collect()
}

#[test]
fn a_row_is_the_sum_of_its_items() {
    let rows = summarise(&two()).unwrap();
    let row = &rows[1];
    assert_eq!((row.items, row.correct, row.accuracy, row.standard_error), (4, 2, 0.5, 0.25));
    assert_eq!((row.seconds_per_item, row.tokens_per_second), (0.5, Some(64.0)));
    assert_eq!((row.nfe, row.tokens_per_nfe, row.gflop_per_token), (10.0, Some(3.2), Some(2.0)));
    assert_eq!((row.peak_memory, row.cache_memory, row.speed_up), (50 << 20, 3 << 20, 4.0));
    assert_eq!(row.device_memory, None);
    assert_eq!(rows[0].speed_up, 1.0);
}

#[test]
fn answers_that_are_right_in_part_count_in_part() {
    let mut evaluation = evaluation(vec![run("static", "none", &[RIGHT, RIGHT])]);
    evaluation.runs[0].records[1].verdict = Verdict { credit: Some(0.5), ..Verdict::of("2", false) };
    let row = &summarise(&evaluation).unwrap()[0];
    assert_eq!((row.correct, row.accuracy), (1, 0.75));
    assert!((row.standard_error - 0.25 / 2f64.sqrt()).abs() < 1e-12);
}

#[test]
fn the_terminal_shows_the_columns_of_the_page() {
    let numbers = Numbers::of(&two()).unwrap();
    let text = plain(&numbers);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(
        lines[0].starts_with("task  run                      items   accuracy %              difference  s/item"),
        "{text}"
    );
    assert!(lines[2].starts_with("sums  threshold:tau=0.9, dual      4  50.0 ± 25.0"), "{text}");
    assert!(lines[2].contains("4.00x"), "{text}");
    let page = markdown(&numbers, &[]);
    let shown = lines[0].split("  ").map(str::trim).filter(|name| !name.is_empty() && *name != "task");
    shown.for_each(|name| assert!(page.contains(&format!("| {name} |")), "{name}"));
}

#[test]
fn memory_of_a_gpu_is_shown_where_one_computed() {
    let mut on_gpu = two();
    assert!(!plain(&Numbers::of(&on_gpu).unwrap()).contains("device memory"));
    for (peak, record) in [7, 9, 8, 7].into_iter().zip(&mut on_gpu.runs[1].records) {
        record.receipt["memory"]["device"] = json!({"current": 6 << 20, "peak": peak << 20, "in_use": 11 << 20});
    }
    let rows = summarise(&on_gpu).unwrap();
    assert_eq!((rows[0].device_memory, rows[1].device_memory), (None, Some(9 << 20)));
    let text = plain(&Numbers::of(&on_gpu).unwrap());
    assert!(text.contains("device memory") && text.lines().nth(2).unwrap().contains("9 MiB"), "{text}");
}

#[test]
fn a_guide_counts_and_runs_without_tokens_have_no_rates() {
    let mut guided = two();
    guided.runs[0].records[0].receipt["guide_nfe"] = json!(8);
    guided.runs[0].records[0].receipt["guide"] = json!({"flops": 64e9});
    let row = &summarise(&guided).unwrap()[0];
    assert_eq!((row.guide_nfe, row.gflop_per_token), (2.0, Some(2.5)));
    assert!(markdown(&Numbers::of(&guided).unwrap(), &[]).contains("| guide NFE |"));
    guided.runs[0].records.iter_mut().for_each(|record| record.counts.tokens = 0);
    let row = &summarise(&guided).unwrap()[0];
    assert_eq!((row.tokens_per_second, row.tokens_per_nfe, row.gflop_per_token), (None, None, None));
}

#[test]
fn a_receipt_that_is_none_is_refused_by_name() {
    for receipt in [Value::Null, json!({}), json!({"seconds": {"total": "x"}}), json!({"seconds": {"total": -1.0}})] {
        let mut broken = two();
        broken.runs[1].records[2].receipt = receipt;
        let error = summarise(&broken).unwrap_err().to_string();
        assert!(error.starts_with("item sums/2 of run \"threshold:tau=0.9, dual\" has no usable receipt"), "{error}");
    }
}

#[test]
fn a_run_without_items_has_no_row() {
    let mut empty = two();
    empty.runs[0].records.clear();
    let rows = summarise(&empty).unwrap();
    assert_eq!((rows.len(), rows[0].speed_up), (1, 1.0));
    empty.runs.clear();
    let numbers = Numbers::of(&empty).unwrap();
    assert!(markdown(&numbers, &figures(&numbers)).contains("No item was judged."));
}

#[test]
fn markdown_is_as_agreed() {
    let numbers = Numbers::of(&two()).unwrap();
    let expected = "\
# Evaluation of demo/tiny

On cpu, 2 threads.

## sums

4 of 500 items, 2 exemplars, prompts in the style `plain`.

| # | run | items | accuracy % | difference | s/item | tokens/s | NFE | tokens/NFE | GFLOP/token | memory | speed-up | exactness |
|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|
| 1 | static, none | 4 | 75.0 ± 21.7 | – | 2 | 16 | 64 | 0.5 | 2 | 3 MiB | 1.00x | reference |
| 2 | threshold:tau=0.9, dual | 4 | 50.0 ± 25.0 | -25.0 (-60.9 to +27.6) | 0.5 | 64 | 10 | 3.2 | 2 | 3 MiB | 4.00x | reference |

### Against the baseline

On the items that both answered.

| # | run | baseline | p | tokens/s ratio | tokens/NFE ratio | operations saved |
|---:|---|---|---:|---:|---:|---:|
| 2 | threshold:tau=0.9, dual | static, none | 1 | 4.00x | 6.40x | 1.00x |

## Columns

* run: its name, or decoder and cache and what else differs
* items: judged items
* accuracy %: mean worth of answers, 1 where right, ± its standard error, sqrt(p (1 - p) / n) where none is right in part; where all or none is right, Wilson's 95 % interval
* difference: points of accuracy above the baseline's on the same items, with the 95 % interval of matched pairs (Agresti and Min): an interval around 0 tells no difference
* s/item: mean seconds of an item, prompt included, with the 95 % interval over turns; of items that share forwards, their shares
* tokens/s: decoded tokens of all items by their seconds
* NFE: mean forwards of an item, as the method's paper counts them
* tokens/NFE: decoded tokens of all items by their forwards
* GFLOP/token: operations by formula, a guide's included, by decoded tokens
* memory: weights, the guide's too, and K/V of the largest sequence, as counted
* speed-up: seconds per item of the baseline by those of this run, with the 95 % interval over turns
* exactness: what the answers may claim, and against which run
* baseline: the run that it is compared with
* p: how probable such different verdicts are between equals: McNemar's exact test
* tokens/s ratio: tokens per second by the baseline's
* tokens/NFE ratio: tokens per forward by the baseline's
* operations saved: the baseline's operations per token by those of this run
";
    assert_eq!(markdown(&numbers, &[]), expected);
}

#[test]
fn the_short_table_is_as_agreed() {
    let expected = "\
| task | run | accuracy % | s/item | NFE | tokens/NFE | speed-up |
|---|---|---:|---:|---:|---:|---:|
| sums | static, none | 75.0 ± 21.7 | 2 | 64 | 0.5 | 1.00x |
| sums | threshold:tau=0.9, dual | 50.0 ± 25.0 | 0.5 | 10 | 3.2 | 4.00x |

demo/tiny on cpu, 2 threads.
";
    assert_eq!(readme::table(&Numbers::of(&two()).unwrap()), expected);
}

#[test]
fn numbers_come_back_from_their_file() {
    let numbers = Numbers::of(&two()).unwrap();
    assert_eq!(serde_json::from_str::<Numbers>(&numbers.json()).unwrap(), numbers);
}

#[test]
fn pictures_appear_where_there_is_data_for_them() {
    assert!(figures(&sweep(&[("static", "none", 4, 64)])).is_empty());
    let numbers = sweep(&[("static", "none", 4, 64), ("threshold", "none", 5, 20)]);
    assert_eq!(names(&figures(&numbers)), ["accuracy_latency"]);
    let numbers = sweep(&[("static", "none", 4, 64), ("static", "none", 2, 32), ("static", "dllm:rho=0", 4, 63)]);
    assert_eq!(names(&figures(&numbers)), ["accuracy_latency", "fewer_steps", "accuracy_steps"]);
    let numbers =
        sweep(&[("freedave:d=1", "none", 4, 32), ("freedave:d=4", "none", 4, 12), ("freedave:d=8", "none", 4, 9)]);
    assert_eq!(names(&figures(&numbers)), ["accuracy_latency", "decoder_freedave_d"]);
    let numbers = sweep(&[
        ("static", "dllm:rho=0,response=4", 2, 64),
        ("static", "dllm:rho=0.5,response=4", 4, 64),
        ("static", "dllm:rho=0,response=8", 1, 64),
        ("static", "dllm:rho=0.5,response=8", 4, 64),
        ("static", "dllm:rho=0.5,response=8,prompt=1", 4, 64),
    ]);
    let expected = ["accuracy_latency", "cache_dllm_prompt", "cache_dllm_response", "cache_dllm_rho"];
    assert_eq!(names(&figures(&numbers)), expected);
}

#[test]
fn lines_join_runs_that_differ_in_one_number_and_are_named_by_the_rest() {
    let numbers = sweep(&[
        ("static", "dllm:rho=0.1,probe=v", 4, 64),
        ("static", "dllm:rho=0.1,probe=k", 4, 64),
        ("static", "dllm:rho=0.4,probe=k", 5, 64),
        ("static", "dllm:rho=0.4,probe=v", 6, 64),
        ("threshold", "dllm:rho=0.4,probe=v", 6, 64),
    ]);
    let figures = figures(&numbers);
    let figure = figures.iter().find(|figure| figure.name == "cache_dllm_rho").unwrap();
    assert_eq!(figure.panels.len(), 6);
    let Content::Series(series) = &figure.panels[0].content else { panic!("lines") };
    let told: Vec<_> =
        series.iter().map(|line| (line.label.as_str(), line.points.iter().map(|p| (p.x, p.y)).collect())).collect();
    let expected: Vec<(&str, Vec<(f64, f64)>)> =
        vec![("probe=v", vec![(0.1, 50.0), (0.4, 75.0)]), ("probe=k", vec![(0.1, 50.0), (0.4, 62.5)])];
    assert_eq!(told, expected);
    assert!(figure.data.csv().starts_with(
        "series,rho,accuracy_percent,tokens_per_nfe,seconds_per_item,tokens_per_second,cache_mib,memory_mib,"
    ));
}

#[test]
fn tasks_have_pictures_of_their_own() {
    let mut evaluation = two();
    evaluation.tasks.push(TaskInfo { name: "Word Sums".into(), ..task() });
    for run in &mut evaluation.runs {
        let copies: Vec<Record> =
            run.records.iter().map(|record| Record { task: "Word Sums".into(), ..record.clone() }).collect();
        run.records.extend(copies);
    }
    let numbers = Numbers::of(&evaluation).unwrap();
    assert_eq!(numbers.rows.len(), 4);
    let page = markdown(&numbers, &[]);
    assert!(page.contains("| threshold:tau=0.9, dual | 50.0, 4.00x | 50.0, 4.00x |"), "{page}");
    assert!(
        page.contains("### Means over tasks")
            && page.contains("| speed-up: mean of ratios | speed-up: ratio of means |")
    );
    assert_eq!(names(&figures(&numbers)), ["accuracy_latency_sums", "accuracy_latency_word-sums"]);
}

#[test]
fn all_files_are_written_and_the_page_needs_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let files = write(&directory.path().join("new"), &two(), &Extras::default()).unwrap();
    let names: Vec<String> = files
        .iter()
        .map(|path| path.strip_prefix(directory.path().join("new")).unwrap().display().to_string())
        .collect();
    let expected = [
        "summary.json",
        "plots/accuracy_latency.svg",
        "plots/accuracy_latency.csv",
        "lm_eval/1-static-none/results_demask.json",
        "lm_eval/1-static-none/samples_sums_demask.jsonl",
        "lm_eval/2-threshold-tau-0.9-dual/results_demask.json",
        "lm_eval/2-threshold-tau-0.9-dual/samples_sums_demask.jsonl",
        "report.html",
        "report.md",
    ];
    assert_eq!(names, expected);
    let read = |name: &str| std::fs::read_to_string(directory.path().join("new").join(name)).unwrap();
    let page = read("report.html");
    assert!(page.contains("<td class=\"left\">static, none</td>") && page.contains("<svg "));
    for fetched in ["<script", "src=", "<link", "@import", "url("] {
        assert!(!page.contains(fetched), "{fetched}");
    }
    let results: Value = serde_json::from_str(&read(expected[5])).unwrap();
    assert_eq!(results["results"]["sums"]["exact_match,demask"], 0.5);
    assert_eq!(results["n-samples"]["sums"], json!({"original": 500, "effective": 4}));
    let samples = read(expected[6]);
    let sample: Value = serde_json::from_str(samples.lines().last().unwrap()).unwrap();
    assert_eq!((&sample["doc_id"], &sample["exact_match"], &sample["target"]), (&json!(3), &json!(0.0), &json!("2")));
    assert_eq!(sample["resps"], json!([["It is 2"]]));
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    let error = write(&directory.path().join("file"), &two(), &Extras::default()).unwrap_err().to_string();
    assert!(error.starts_with("cannot write ") && error.contains("summary.json: "), "{error}");
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let item = (any::<bool>(), 0.01f64..50.0, 1usize..200, 0usize..300);
    prop::collection::vec(item, 1..30).prop_map(|items| {
        let item = |(correct, seconds, nfe, tokens)| Item { correct, seconds, nfe, tokens };
        items.into_iter().map(item).collect()
    })
}

#[test]
fn seeds_are_one_row_with_their_spread() {
    let mut evaluation = two();
    let run = &mut evaluation.runs[0];
    let mut again = run.records.clone();
    for record in &mut again {
        record.run = "static, none, seed=1".to_owned();
        record.verdict = Verdict::of("2", record.index == 0);
    }
    run.records.extend(again);
    let row = &summarise(&evaluation).unwrap()[0];
    // 3 of 4 under one seed, 1 of 4 under the other; items are worth 1, 0.5, 0.5, 0.
    assert_eq!((row.items, row.accuracy, row.seeds), (4, 0.5, 2));
    assert!((row.seed_spread.unwrap() - 0.5 / 2f64.sqrt()).abs() < 1e-12);
    assert!((row.standard_error - 0.5f64.sqrt() / 4.0).abs() < 1e-12);
    assert!(markdown(&Numbers::of(&evaluation).unwrap(), &[]).contains("| seeds |"));
}

#[test]
fn comparisons_are_on_the_items_that_both_have() {
    let mut evaluation = two();
    // The second answered the first two alone, both right.
    evaluation.runs[1].records.truncate(2);
    // What the first needs for the others does not count.
    for record in &mut evaluation.runs[0].records[2..] {
        record.receipt["seconds"]["total"] = json!(100.0);
    }
    let row = &summarise(&evaluation).unwrap()[1];
    assert_eq!((row.speed_up, row.difference.unwrap().items, row.difference.unwrap().mean), (4.0, 2, 0.0));
    assert_eq!(row.baseline, "static, none");
    evaluation.runs[0].info.baseline = 1;
    evaluation.runs[1].info.baseline = 1;
    let rows = summarise(&evaluation).unwrap();
    assert_eq!((rows[0].speed_up, rows[1].speed_up), (0.25, 1.0));
    assert!(!rows[1].compared() && rows[1].difference.is_none());
}

#[test]
fn published_figures_stand_before_ours() {
    let mut evaluation = two();
    let figures = [("accuracy", 79.1), ("speed_up", 3.5)].map(|(name, figure)| (name.to_owned(), figure));
    evaluation.runs[1].info.published =
        vec![Published { task: "sums".into(), figures: figures.into(), ..Published::default() }];
    evaluation.heading.source = "a paper, table 2".to_owned();
    let page = markdown(&Numbers::of(&evaluation).unwrap(), &[]);
    let expected = "\
### Published, and here

Published in a paper, table 2.

| # | run | accuracy %, published | here | speed-up, published | here |
|---:|---|---:|---:|---:|---:|
| 2 | threshold:tau=0.9, dual | 79.1 | 50 | 3.5 | 4 |
";
    assert!(page.contains(expected), "{page}");
}

#[test]
fn guides_are_told_by_memory_time_and_acceptance() {
    let mut evaluation = two();
    for record in evaluation.runs.iter_mut().flat_map(|run| &mut run.records) {
        let tokens = record.counts.tokens;
        record.counts =
            Counts { plain_tokens: Some(tokens - 1), plain_prompt_tokens: Some(9), positions: 64, ..record.counts };
    }
    for record in &mut evaluation.runs[1].records {
        record.receipt["guide"] = json!({"model": "judge", "flops": 1e9, "accepted": 30, "rejected": 10});
        record.receipt["seconds"]["guide"] = json!(0.125);
        record.receipt["memory"]["guide"] = json!(7 << 20);
        record.receipt["acceptance"] = json!([1, 0, 3]);
    }
    let row = &summarise(&evaluation).unwrap()[1];
    assert_eq!((row.guide_share, row.acceptance, row.accepted_drafts), (Some(0.25), Some(0.75), Some(1.5)));
    assert_eq!((row.guide_memory, row.plain_tokens, row.guide.as_str()), (7 << 20, Some(31.0), "judge"));
    // Rates in the papers' tokens, and beside those of the baseline, with its 64 forwards in 2 seconds.
    let metric = |name: &str| METRICS.iter().find(|metric| metric.name == name).and_then(|metric| (metric.ours)(row));
    assert_eq!((metric("valid_tokens_per_nfe"), metric("valid_tokens_per_nfe_ratio")), (Some(4.0), Some(6.4)));
    assert_eq!((metric("positions_per_second"), metric("positions_per_second_ratio")), (Some(128.0), Some(4.0)));
    assert_eq!((metric("text_tokens_per_second"), metric("text_tokens_per_nfe_ratio")), (Some(62.0), Some(6.4)));
    // On a processor the device's memory is what the receipt names: weights, guide and K/V.
    let named = (100 + (7 << 20) + (3 << 20)) as f64 / f64::from(1 << 30);
    assert_eq!(metric("device_memory_gib"), Some(named));
    let page = markdown(&Numbers::of(&evaluation).unwrap(), &[]);
    assert!(
        page.contains(
            "| 2 | threshold:tau=0.9, dual | 32 | 31 | 62 | 3.1 | 4 | 128 | 3 MiB | judge | 7 MiB | 25.0 | 75.0 | 1.5 |"
        ),
        "{page}"
    );
}

/// The files said batch 1, no settings, the program's version for the task's, and an error by `n`.
#[test]
fn files_of_the_harness_say_how_answers_were_made() {
    let mut evaluation = two();
    let told =
        [("temperature", json!(0.6)), ("gen_length", json!(64)), ("block_length", json!(8)), ("stop", json!(["Q:"]))];
    for run in &mut evaluation.runs {
        let settings = told.iter().map(|(name, value)| {
            let from = crate::run::From::Flag;
            ((*name).to_owned(), crate::run::Effective { value: value.clone(), from })
        });
        let asked = Prompting { settings: settings.collect(), ..Prompting::default() };
        run.info.prompting.insert("sums".to_owned(), asked);
        run.made = Some(0);
    }
    evaluation.made = vec![MadeBy { batch: 16, commit: Some("c".to_owned()), ..MadeBy::default() }];
    let numbers = Numbers::of(&evaluation).unwrap();
    let files = harness::files(&evaluation, &numbers);
    let results: Value =
        serde_json::from_str(&files.iter().find(|(name, _)| name.contains("results")).unwrap().1).unwrap();
    let config = &results["config"];
    assert_eq!((&config["batch_size"], &config["gen_kwargs"]["temperature"]), (&json!(16), &json!(0.6)));
    assert_eq!(config["gen_kwargs"]["until"], json!(["Q:"]));
    assert_eq!(results["configs"]["sums"]["generation_kwargs"]["max_gen_toks"], 64);
    assert!(config["model_args"].as_str().unwrap().ends_with("steps=64,block_length=8,gen_length=64"), "{config}");
    assert_eq!((&results["versions"]["sums"], &results["git_hash"]), (&json!("1"), &json!("c")));
    // 3 of 4: sqrt(0.75 * 0.25 / 3), as statistics of a sample have it.
    let error = results["results"]["sums"]["exact_match_stderr,demask"].as_f64().unwrap();
    assert!((error - 0.25).abs() < 1e-12, "{error}");
}

/// Rows of one name whose settings differ were joined without a word, and no report said how answers were made.
#[test]
fn settings_that_differ_are_columns_and_the_others_stand_once() {
    let mut evaluation = two();
    for (length, run) in [16, 32].into_iter().zip(&mut evaluation.runs) {
        let setting = |value: Value, from| crate::run::Effective { value, from };
        let settings = [
            ("block_length".to_owned(), setting(length.into(), crate::run::From::Checkpoint)),
            ("temperature".to_owned(), setting(0.6.into(), crate::run::From::Flag)),
            ("stop_rule".to_owned(), setting("prefix".into(), crate::run::From::Default)),
        ];
        run.info.prompting.insert("sums".to_owned(), Prompting { settings: settings.into(), ..Prompting::default() });
    }
    let call = Call {
        command: "demask-lab eval sums".to_owned(),
        began: "2026-01-01T00:00:00Z".to_owned(),
        ..Call::default()
    };
    evaluation.made = vec![MadeBy { calls: vec![call.clone(), call], batch: 3, ..MadeBy::default() }];
    let numbers = Numbers::of(&evaluation).unwrap();
    assert_eq!(serde_json::from_str::<Numbers>(&numbers.json()).unwrap(), numbers);
    let page = markdown(&numbers, &[]);
    for line in [
        "| temperature | 0.6 | flag |",
        "| stop_rule | prefix | default |",
        "| run | task | block_length |",
        "| static, none | sums | 16 (checkpoint) |",
        "| threshold:tau=0.9, dual | sums | 32 (checkpoint) |",
        "| batch | 3 |",
        "| command | demask-lab eval sums |",
        "| continued | 1 times |",
    ] {
        assert!(page.lines().any(|other| other == line), "{line}\n{page}");
    }
    assert!(!page.contains("| block_length | 16"), "{page}");
    let html = html::report(&numbers, &[], &[]).unwrap();
    assert!(html.contains("Different between rows") && html.contains("What made these numbers"), "{html}");
}

#[test]
fn equal_seconds_show_what_each_can_do_within_them() {
    let numbers = sweep(&[("static", "none", 8, 64), ("static", "none", 6, 32), ("threshold", "none", 7, 16)]);
    let rows: Vec<&Summary> = numbers.rows.iter().collect();
    // Two runs of one name: this report was never joined, and its table needs them apart.
    let page = markdown(&numbers, &[]);
    assert_eq!(rows.len(), 3);
    assert!(page.contains("| s/item at most | static | threshold |"), "{page}");
    assert!(page.contains("| 0.8 | – | 87.5 (#3) |") && page.contains("| 3.2 | 100.0 (#1) | 87.5 (#3) |"), "{page}");
}

/// A directory as `eval` leaves it.
fn directory(evaluation: &Evaluation) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let runs = evaluation.runs.iter().map(|run| run.info.clone()).collect();
    let outline = Outline { heading: evaluation.heading.clone(), tasks: evaluation.tasks.clone(), runs };
    outline.write(directory.path()).unwrap();
    let records = evaluation.runs.iter().flat_map(|run| &run.records);
    let lines: String = records.map(|record| serde_json::to_string(record).unwrap() + "\n").collect();
    std::fs::write(directory.path().join(crate::run::RESULTS), lines).unwrap();
    directory
}

#[test]
fn directories_of_several_models_are_one_report() {
    let first = two();
    let mut second = two();
    for record in second.runs.iter_mut().flat_map(|run| &mut run.records) {
        record.receipt["model"] = json!("demo/large");
        record.receipt["seconds"]["total"] = json!(8.0);
    }
    let directories = [directory(&first), directory(&second)];
    let paths: Vec<PathBuf> = directories.iter().map(|directory| directory.path().to_owned()).collect();
    let joined = join(&paths, None).unwrap();
    let numbers = Numbers::of(&joined).unwrap();
    let labels: Vec<&str> = numbers.rows.iter().map(|row| row.run.as_str()).collect();
    let names = ["static, none (demo/tiny)", "threshold:tau=0.9, dual (demo/tiny)"];
    assert_eq!(labels[..2], names);
    assert_eq!(
        (labels[2], numbers.rows[3].baseline.as_str()),
        ("static, none (demo/large)", "static, none (demo/large)")
    );
    assert_eq!(numbers.rows[3].speed_up, 1.0);
    assert!(markdown(&numbers, &[]).contains("| # | run | model | items |"));
    let picture = figures(&numbers).remove(0);
    let Content::Series(series) = &picture.panels[0].content else { panic!("points") };
    assert!(series.iter().any(|series| series.label.starts_with("demo/large, static")), "{series:?}");
    let against = join(&paths, Some(names[0])).unwrap();
    assert_eq!(Numbers::of(&against).unwrap().rows[2].speed_up, 0.25);
    let refused = join(&paths, Some("x")).unwrap_err().to_string();
    assert!(
        refused.starts_with("there is no row \"x\" to compare with (there are: \"static, none (demo/tiny)\""),
        "{refused}"
    );
}

#[test]
fn directories_of_other_data_are_refused_with_the_difference() {
    let mut other = two();
    other.tasks[0].data = "2".to_owned();
    let directories = [directory(&two()), directory(&other)];
    let paths: Vec<PathBuf> = directories.iter().map(|directory| directory.path().to_owned()).collect();
    let refused = join(&paths, None).unwrap_err().to_string();
    let (first, second) = (paths[0].display(), paths[1].display());
    let told = format!(
        "task sums has other data in {second} (500 items, fingerprint 2) than in {first} (500 items, fingerprint 1): \
         accuracies on different items cannot be compared; report them apart, or answer the same data"
    );
    assert_eq!(refused, told);
    let twice = [paths[0].clone(), paths[0].clone()];
    assert_eq!(join(&twice, None).unwrap_err().to_string(), format!("{first} is named twice: name it once"));
    let nothing = tempfile::tempdir().unwrap();
    let refused = join(&[nothing.path().to_owned()], None).unwrap_err().to_string();
    assert!(refused.contains("has no results to report (outline.json: No such file"), "{refused}");
}

proptest! {
    #[test]
    fn sums_do_not_depend_on_the_order_and_rates_are_those_of_sums(items in items()) {
        let mut evaluation = evaluation(vec![run("threshold", "none", &items)]);
        let row = summarise(&evaluation).unwrap().remove(0);
        evaluation.runs[0].records.reverse();
        let reversed = summarise(&evaluation).unwrap().remove(0);
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (a.abs() + b.abs());
        prop_assert!(near(row.seconds_per_item, reversed.seconds_per_item) && row.correct == reversed.correct);
        prop_assert!((0.0..=1.0).contains(&row.accuracy) && row.standard_error <= 0.5 / (items.len() as f64).sqrt() + 1e-12);
        let (tokens, nfe): (usize, usize) = items.iter().fold((0, 0), |sum, item| (sum.0 + item.tokens, sum.1 + item.nfe));
        let seconds: f64 = items.iter().map(|item| item.seconds).sum();
        if tokens > 0 {
            prop_assert!(near(row.tokens_per_nfe.unwrap(), tokens as f64 / nfe as f64));
            prop_assert!(near(row.tokens_per_second.unwrap(), tokens as f64 / seconds));
        }
        // Twice as many items like these: the same means, an error smaller by the root of two.
        let mut again = evaluation.runs[0].records.clone();
        for record in &mut again {
            record.index += 1000;
        }
        evaluation.runs[0].records.extend(again);
        let twice = summarise(&evaluation).unwrap().remove(0);
        prop_assert!(near(twice.accuracy, row.accuracy));
        prop_assert!((twice.standard_error * 2f64.sqrt() - row.standard_error).abs() < 1e-9);
    }

    #[test]
    fn nothing_beats_a_run_on_the_front(runs in prop::collection::vec((0.1f64..9.0, 0usize..9), 1..20)) {
        let rows: Vec<Summary> = runs
            .iter()
            .map(|&(seconds_per_item, right)| Summary { seconds_per_item, accuracy: right as f64 / 8.0, ..Summary::default() })
            .collect();
        let rows: Vec<&Summary> = rows.iter().collect();
        let front = pareto(&rows);
        let beats = |a: &Summary, b: &Summary| a.seconds_per_item <= b.seconds_per_item && a.accuracy > b.accuracy;
        for (index, row) in rows.iter().enumerate() {
            let beaten = rows.iter().any(|other| beats(other, row));
            prop_assert!(!(front.contains(&index) && beaten));
            let covered = front.iter().any(|&best| rows[best].accuracy >= row.accuracy
                && rows[best].seconds_per_item <= row.seconds_per_item);
            prop_assert!(covered);
        }
    }
}
