//! What items of a run share of their prompts: exemplars are computed once, no row profits from another one, and a directory
//! holds no results of both settings.

use std::{ops::ControlFlow, path::Path};

use demask::{DeviceOptions, Model, Opened};
use demask_checkpoint::{HubOptions, ModelFiles};
use demask_eval::{
    Record,
    report::{self, Numbers},
    run::{
        Combination, DryRun, Means, Peaks, Plan, Runs, Spec, Store, about_model, configuration, needs, outline, run,
    },
};
use serde_json::{Map, Value};

use crate::recipes::{items, root};

/// A file of runs with its models, carried out.
struct Carried {
    plan: Plan,
    dry_runs: Vec<DryRun>,
    combinations: Vec<Combination>,
    models: Vec<Map<String, Value>>,
    store: Store,
}

/// Makes a plan of a file's text.
fn planned(text: &str) -> Plan {
    let text = text.replace("DEV", root().join("demo/wordmath-dev.jsonl").to_str().unwrap());
    let spec = Spec::parse(Path::new("runs.toml"), &text, None).unwrap_or_else(|error| panic!("{error}"));
    let hub = HubOptions::new("http://127.0.0.1:1", "/nowhere");
    Plan::of(spec, &mut Means { hub: &hub, seed: 0, limit: None, programs: false, skip: None, watch: &mut |_| true })
        .unwrap()
}

fn opened(name: &str) -> Opened {
    Opened::open(ModelFiles::directory(root().join(name)).unwrap()).unwrap()
}

/// Carries a file of runs out, `width` items at a time.
fn carry_out(text: &str, width: usize) -> Carried {
    let plan = planned(text);
    let open = |row: usize| opened(plan.rows[row].model.load.model.as_deref().unwrap());
    let rows = 0..plan.rows.len();
    let dry_run = |row| plan.dry_run(row, &|prompt, options| open(row).prepare(prompt, options)).unwrap();
    let dry_runs: Vec<DryRun> = rows.clone().map(dry_run).collect();
    let device = DeviceOptions::default();
    let models = rows.map(|row| about_model(&open(row), &plan.rows[row].model, &device)).collect();
    let combinations = Combination::all(&plan, &dry_runs).unwrap();
    let mut store = Store::nowhere();
    for (_, rows) in plan.groups() {
        let model: Model = open(rows[0]).load(&device, &needs(&dry_runs, &rows, width), &mut |_| true).unwrap();
        let runs = Runs { plan: &plan, combinations: &combinations, width, permission: None, part: None };
        run(&[(&model, &rows)], runs, &mut store, &mut |_| ControlFlow::Continue(())).unwrap();
    }
    Carried { plan, dry_runs, combinations, models, store }
}

impl Carried {
    /// The records of a row, in the order of the items.
    fn records(&self, row: &str) -> Vec<&Record> {
        let mut records: Vec<_> = self.store.records().iter().filter(|record| record.run == row).collect();
        records.sort_by_key(|record| record.index);
        records
    }

    fn cached(&self, row: &str) -> Vec<u64> {
        self.records(row).iter().map(|record| record.receipt["cached_tokens"].as_u64().unwrap_or(0)).collect()
    }

    fn sum(&self, row: &str, of: &str) -> f64 {
        self.records(row).iter().map(|record| record.receipt[of].as_f64().unwrap()).sum()
    }

    fn numbers(&self) -> Numbers {
        let outline = outline(&self.plan, &self.dry_runs, &self.combinations, &self.models);
        Numbers::of(&outline.evaluation(self.store.records(), None, &Peaks::new())).unwrap()
    }
}

const EXEMPLARS: &str = r#"
[defaults]
model = "demo/demo-sdar"

[[task]]
task = "wordmath"
shots = 5
shots_file = "DEV"
limit = 4

[[row]]
name = "first"

[[row]]
name = "again"

[[row]]
name = "whole"
no_prefix_cache = true
"#;

#[test]
fn exemplars_are_computed_once_in_each_row() {
    for width in [1, 4] {
        let carried = carry_out(EXEMPLARS, width);
        let [first, again, whole] = ["first", "again", "whole"].map(|row| carried.cached(row));
        for row in [&first, &again] {
            let computed = row.iter().filter(|&&cached| cached == 0).count();
            assert_eq!(computed, 1, "one item of each row computes the exemplars, whoever enters with it: {row:?}");
        }
        // Which items beside each other share parts of a page depends on who ends first.
        assert!(width > 1 || again == first, "a row begins without what one before left: {again:?} {first:?}");
        let least = first.iter().filter(|&&cached| cached > 0).min().unwrap();
        assert!(*least >= 128, "the exemplars of the others were there: {first:?}");
        assert_eq!(whole, [0; 4]);
        for (shared, whole) in carried.records("first").iter().zip(carried.records("whole")) {
            assert_eq!((&shared.output, &shared.verdict), (&whole.output, &whole.verdict));
            assert_eq!(shared.receipt["nfe"], whole.receipt["nfe"]);
        }
        let cached = first.iter().sum::<u64>() as f64;
        assert_eq!(carried.sum("first", "rows") + cached, carried.sum("whole", "rows"));
        assert!(carried.sum("first", "flops") < carried.sum("whole", "flops"));
    }
}

#[test]
fn likelihoods_read_their_exemplars_once() {
    let scratch = std::env::temp_dir().join(format!("demask-likelihoods-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let lines = std::fs::read_to_string(items("mmlu", &scratch)).unwrap();
    // An item is never among its own exemplars: others than those that are asked are the same for each.
    let (shown, asked): (Vec<&str>, Vec<&str>) =
        lines.lines().partition(|line| ["(8)", "(9)"].iter().any(|other| line.contains(other)));
    let [exemplars, data] = [("exemplars.jsonl", shown), ("asked.jsonl", asked)].map(|(name, lines)| {
        std::fs::write(scratch.join(name), lines.join("\n")).unwrap();
        scratch.join(name).display().to_string()
    });
    let carried = carry_out(
        &format!(
            r#"
            [defaults]
            model = "demo/demo-qwen"
            score = "likelihood"
            shots = 2
            shots_file = "{exemplars}"
            [[task]]
            task = "mmlu"
            data = "{data}"
            subject = "biology"
            limit = 6
            [[row]]
            name = "shared"
            [[row]]
            name = "whole"
            no_prefix_cache = true
            "#
        ),
        1,
    );
    std::fs::remove_dir_all(&scratch).unwrap();
    let (cached, whole) = (carried.cached("shared"), carried.cached("whole"));
    assert!(cached[0] == 0 && cached[1..].iter().all(|&cached| cached >= 128), "{cached:?}");
    assert_eq!(whole, [0; 6]);
    for (shared, whole) in carried.records("shared").iter().zip(carried.records("whole")) {
        assert_eq!(shared.receipt["log_likelihoods"], whole.receipt["log_likelihoods"]);
        assert_eq!(shared.receipt["nfe"], whole.receipt["nfe"]);
    }
    assert!(carried.sum("shared", "flops") < carried.sum("whole", "flops"));
}

#[test]
fn a_report_says_which_runs_share_prefixes() {
    let carried = carry_out(EXEMPLARS, 1);
    let numbers = carried.numbers();
    let told: Vec<_> = numbers.rows.iter().map(|row| row.prefix_cache).collect();
    assert_eq!(told, [Some(true), Some(true), Some(false)]);
    assert!(numbers.rows[0].cached_tokens > 0.0 && numbers.rows[2].cached_tokens == 0.0);
    let (page, text) = (report::markdown(&numbers, &[]), report::plain(&numbers));
    for text in [&page, &text] {
        assert!(text.contains("Prefixes: shared in some runs, not shared in others."), "{text}");
        assert!(text.contains("cached/item") && text.contains("prefixes"), "{text}");
    }
    let mut alone = numbers;
    alone.rows.truncate(2);
    assert!(report::plain(&alone).contains("Prefixes: shared. Each run began without any."));
    assert!(!report::plain(&alone).contains("prefixes"), "no column where rows say the same");
    alone.rows.iter_mut().for_each(|row| row.prefix_cache = Some(false));
    assert!(
        report::plain(&alone).contains("Prefixes: not shared. Every prompt was computed as a whole, as papers do.")
    );
}

#[test]
fn a_directory_holds_no_results_of_the_other_setting() {
    let configured = |model: &str, setting: &str| {
        let text = format!(
            "[[task]]\ntask = \"wordmath\"\nlimit = 1\n[[row]]\nname = \"row\"\nmodel = \"demo/{model}\"\n{setting}"
        );
        let Carried { plan, dry_runs, combinations, models, .. } = carry_out(&text, 1);
        configuration(&plan, &dry_runs, &combinations, &models)
    };
    let (shared, whole) = (configured("demo-sdar", ""), configured("demo-sdar", "no_prefix_cache = true"));
    let directory = std::env::temp_dir().join(format!("demask-prefixes-{}", std::process::id()));
    let record = || {
        let line = r#"{"run":"row","task":"wordmath","index":0,"id":"0","prompt":"","output":"","answer":null,
            "correct":false,"expected":"","tokens":0,"receipt":{"seconds":{"total":1.0}}}"#;
        line.replace('\n', "")
    };
    Store::open(&directory, &whole, None).unwrap().add_line(&record()).unwrap();
    let refused = Store::open(&directory, &shared, None).unwrap_err().to_string();
    assert!(refused.contains("rows.row.model.prefix_cache was false and is true"), "{refused}");
    assert!(Store::open(&directory, &whole, None).is_ok());
    std::fs::remove_dir_all(&directory).unwrap();
    // Where K and V depend on the whole canvas there is nothing to share, so nothing differs.
    assert_eq!(configured("demo-llada", ""), configured("demo-llada", "no_prefix_cache = true"));
}
