//! `analyze`.

use std::fs;

use crate::harness::demask;

#[test]
fn stability_is_measured_drawn_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("new/stability");
    let out = out.to_str().unwrap();
    let few = ["analyze", "stability", "--problems", "2", "--gen-length", "16", "--layers", "0", "--out", out];
    let json = demask(&[&few[..], &["--json"]].concat()).json();
    assert_eq!((&json["model"], &json["prompts"]), (&"demo-llada".into(), &2.into()));
    let similarity = |part: &str, feature: &str| json["mean_similarity"][part][feature].as_f64().unwrap();
    for feature in ["key", "value", "attention", "mlp"] {
        assert!(similarity("prompt", feature) > similarity("answer", feature), "prompts change less: {feature}");
    }
    assert_eq!(json["correlation_with_value"]["layers"].as_array().unwrap().len(), json["layers"]);
    let read = |name: &str| fs::read_to_string(format!("{out}/{name}")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&read("stability.json")).unwrap(), json);
    for name in ["stability_average", "stability_layer0", "stability_steps", "stability_correlation"] {
        assert!(read(&format!("plots/{name}.svg")).starts_with("<svg "), "{name}");
        assert!(read(&format!("plots/{name}.csv")).lines().count() > 3, "{name}");
    }
    let told =
        demask(&["analyze", "stability", "--prompt-tokens", "5,6,7", "--gen-length", "8", "--out", out]).success();
    assert!(told.starts_with("1 prompt, decoded without a cache;"), "{told}");
    assert!(told.contains("correlation with the change of V: K "), "{told}");
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
        (&["--layers", "0,6"], "--layers: there is no layer 6, expected numbers from 0 to 5"),
        (&["--layers", "x"], "--layers: \"x\" is not a layer"),
        (&["--problems", "0"], "--problems is 0, expected a number from 1 to 500"),
        (&["--problems", "501"], "--problems is 501, expected a number from 1 to 500"),
        (&["--problems", "2", "Why?"], "--problems takes the place of a prompt: give one of the two"),
    ] {
        let run = demask(&[&base[..], more].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{more:?}: {}", run.stderr);
        assert!(run.stderr.contains(message) && run.stderr.lines().count() == 1, "{more:?}: {}", run.stderr);
        assert!(!out.exists());
    }
    let nowhere = demask(&["analyze", "stability", "Why?"]);
    assert_eq!((nowhere.code, nowhere.stderr.as_str()), (Some(2), "error: nowhere to write: give --out DIR\n"));
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let run = demask(&["analyze", "stability", "--gen-length", "4", "--out", file.to_str().unwrap(), "Why?"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.starts_with("error: cannot write "), "{}", run.stderr);
}
