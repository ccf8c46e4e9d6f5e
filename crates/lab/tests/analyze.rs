//! `analyze`.

use std::fs;

use crate::harness::{lab, project};

#[test]
fn stability_is_measured_drawn_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("new/stability");
    let out = out.to_str().unwrap();
    let few = ["analyze", "stability", "--problems", "2", "--gen-length", "16", "--drawn-layers", "0", "--out", out];
    let json = lab(&[&few[..], &["--json"]].concat()).json();
    assert_eq!((&json["model"], &json["prompts"]), (&"demo-llada".into(), &2.into()));
    let similarity = |part: &str, feature: &str| json["mean_similarity"][part][feature].as_f64().unwrap();
    for feature in ["key", "value", "attention", "mlp"] {
        assert!(similarity("prompt", feature) > similarity("answer", feature), "prompts change less: {feature}");
    }
    for with in ["correlation_with_key", "correlation_with_value"] {
        assert_eq!(json[with]["layers"].as_array().unwrap().len(), json["layers"]);
        assert!(json[with]["average"]["attention"].is_f64());
    }
    let read = |name: &str| fs::read_to_string(format!("{out}/{name}")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&read("stability.json")).unwrap(), json);
    for name in ["stability_average", "stability_layer0", "stability_steps", "stability_correlation"] {
        assert!(read(&format!("plots/{name}.svg")).starts_with("<svg "), "{name}");
        assert!(read(&format!("plots/{name}.csv")).lines().count() > 3, "{name}");
    }
    let told = lab(&["analyze", "stability", "--prompt-tokens", "5,6,7", "--gen-length", "8", "--out", out]).success();
    assert!(told.contains(". 1 prompt, decoded without a cache; features"), "{told}");
    let table: Vec<&str> = told.lines().skip(1).collect();
    assert!(table[0].starts_with("correlation of the changes") && table[0].ends_with("MLP output"), "{told}");
    assert!(table[1].starts_with("K ") && table[2].starts_with("V ") && table.len() == 3, "{told}");
}

#[test]
fn what_stability_cannot_do_is_refused_in_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("never");
    let base = ["analyze", "stability", "--out", out.to_str().unwrap()];
    for (more, message) in [
        (&["--decoder", "threshold"][..], "analyze stability decodes with decoder static, no cache and no guidance"),
        (&["--cache", "none"], "omit --cache"),
        (&["--cfg-scale", "2"], "omit --cfg-scale"),
        (&["--watch"], "--watch belongs to generate: omit it"),
        (&["--drawn-layers", "0,6"], "--drawn-layers: there is no layer 6, expected numbers from 0 to 5"),
        (&["--drawn-layers", "x"], "--drawn-layers: \"x\" is not a layer"),
        (&["--problems", "0"], "--problems is 0, expected a number from 1 to 500"),
        (&["--problems", "501"], "--problems is 501, expected a number from 1 to 500"),
        (&["--problems", "2", "Why?"], "--problems takes the place of a prompt: give one of the two"),
    ] {
        let run = lab(&[&base[..], more].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{more:?}: {}", run.stderr);
        assert!(run.stderr.contains(message) && run.stderr.lines().count() == 1, "{more:?}: {}", run.stderr);
        assert!(!out.exists());
    }
    let nowhere = lab(&["analyze", "stability", "Why?"]);
    assert_eq!((nowhere.code, nowhere.stderr.as_str()), (Some(2), "error: no output named: give --out DIR\n"));
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let run = lab(&["analyze", "stability", "--gen-length", "4", "--out", file.to_str().unwrap(), "Why?"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.starts_with("error: cannot write "), "{}", run.stderr);
}

#[test]
fn staleness_is_measured_for_every_cache_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("stale");
    let few = ["analyze", "staleness", "--problems", "1", "--gen-length", "16", "--out", out.to_str().unwrap()];
    let json = lab(&[&few[..], &["--json"]].concat()).json();
    let caches: Vec<&str> = json["caches"].as_array().unwrap().iter().map(|of| of["cache"].as_str().unwrap()).collect();
    assert!(
        caches.len() >= 6 && caches[0] == "none" && caches.iter().any(|name| name.starts_with("dllm")),
        "{caches:?}"
    );
    assert_eq!(json["caches"][0]["along"]["all"]["value"]["answer"]["mean"], 0.0, "nothing is kept without a cache");
    assert_eq!(json["caches"][0]["end"]["all"]["value"]["answer"]["mean"], 0.0, "nor at the end");
    assert!(json["caches"][1]["end"]["all"]["value"]["answer"]["mean"].as_f64().unwrap() > 0.0);
    let told = lab(&[&few[..], &["--caches", "dual|freecache:block=8"]].concat()).success();
    let table: Vec<&str> = told.lines().skip(1).collect();
    assert!(table.len() == 3 && table[1].starts_with("dual ") && table[2].starts_with("freecache:block=8"), "{told}");
    for name in ["staleness_layers", "staleness_end", "staleness_steps", "staleness_age", "staleness_map1"] {
        assert!(fs::read_to_string(out.join(format!("plots/{name}.svg"))).unwrap().starts_with("<svg "), "{name}");
    }
    let base = ["analyze", "staleness", "--out", "never"];
    for (more, message) in [
        (&["--decoder", "freedave"][..], "decoder freedave runs drafts beside them: use --decoder static or threshold"),
        (&["--cfg-scale", "2"], "without guidance: omit --cfg-scale"),
        (&["--caches", "dual", "--cache", "none"], "--caches names every cache that is compared: omit --cache"),
        (&["--caches", "dual|"], "cache"),
        (&["--cache", "block"], "block"),
    ] {
        let run = lab(&[&base[..], more].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{more:?}: {}", run.stderr);
        assert!(run.stderr.contains(message) && run.stderr.lines().count() == 1, "{more:?}: {}", run.stderr);
    }
}

#[test]
fn acceptance_is_measured_drawn_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("accepted");
    let few = ["analyze", "acceptance", "--problems", "2", "--gen-length", "32", "--out", out.to_str().unwrap()];
    let json = lab(&[&few[..], &["--decoder", "freedave:d=4", "--json"]].concat()).json();
    let number = |key: &str| json["drafts"][key].as_u64().unwrap();
    assert!(number("accepted") > 0 && number("accepted") <= number("reached"));
    assert!(number("reached") <= number("drafted"));
    let bins = json["calibration"]["block"]["bins"].as_array().unwrap();
    let counts: u64 = bins.iter().map(|bin| bin["count"].as_u64().unwrap()).sum();
    assert_eq!(json["calibration"]["block"]["count"], counts);
    for name in ["acceptance_drafts", "acceptance_calibration"] {
        assert!(fs::read_to_string(out.join(format!("plots/{name}.svg"))).unwrap().starts_with("<svg "), "{name}");
    }
    let told = lab(&[&few[..], &["--decoder", "freedave:d=4"]].concat()).success();
    assert!(told.contains("decoder freedave") && told.contains("% of those that were reached"), "{told}");
    assert!(told.contains("\npredictions in the block "), "{told}");
    let (dream, guide) = (project("demo/demo-dream"), project("demo/demo-qwen"));
    let guided = ["--model", &dream, "--guide", &guide, "--decoder", "guided", "--json"];
    let json = lab(&[&few[..], &guided].concat()).json();
    assert!(json["drafts"]["accepted"].as_u64().unwrap() > 0, "a guide's drafts are drafts: {json}");
}

#[test]
fn paths_are_bounded_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("path");
    let few = ["analyze", "path", "--problems", "1", "--gen-length", "32", "--out", out.to_str().unwrap()];
    let json = lab(&[&few[..], &["--width", "2", "--json"]].concat()).json();
    assert_eq!((&json["identical"], &json["width"]), (&true.into(), &2.into()));
    let ways = json["ways"].as_array().unwrap();
    let of = |name: &str| ways.iter().find(|way| way["way"] == name).unwrap()["mean_forwards"].as_f64().unwrap();
    let [any, across] = ["any order, beam of 2", "shortest along static, across blocks"].map(of);
    let [freedave, reference] = ["freedave:d=8", "static"].map(of);
    assert!(any <= across && across <= freedave && freedave <= reference, "{json}");
    for name in ["path_drafts", "path_prompts"] {
        assert!(fs::read_to_string(out.join(format!("plots/{name}.csv"))).unwrap().lines().count() > 5, "{name}");
    }
    for (more, message) in [
        (&["--width", "0"][..], "--width is 0, expected a number from 1 to 4096"),
        (&["--temperature", "0.5"], "without a cache and guidance: omit --temperature"),
        (&["--decoder", "threshold"], "omit --decoder"),
    ] {
        let run = lab(&[&["analyze", "path", "--out", "never"][..], more].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{more:?}: {}", run.stderr);
        assert!(run.stderr.contains(message) && run.stderr.lines().count() == 1, "{more:?}: {}", run.stderr);
    }
}
