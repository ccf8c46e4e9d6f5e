//! Costs without weights, and runs that follow recorded predictions.

use serde_json::Value;

use crate::harness::{demask, lab, project, refused};

const DECODING: [&str; 8] =
    ["--gen-length", "32", "--decoder", "freedave:d=4", "--cache", "dual", "--ignore-eos", "--json"];

fn with<'a>(first: &[&'a str], rest: &[&'a str]) -> Vec<&'a str> {
    [first, rest].concat()
}

#[test]
fn costs_of_a_shape_are_told_by_module_and_beside_autoregressive_decoding() {
    let args = ["cost", "--like", "sdar-4b", "--prompt-length", "64", "--gen-length", "32", "--decoder", "static"];
    let text = lab(&args).success();
    for told in [
        "sdar-4b: decoder static, cache block; 64 prompt tokens, 32 decoded; acceptance 0",
        "K/V memory",
        "autoregressive",
        "time, at least",
        "it takes the time of autoregression, above that less",
    ] {
        assert!(text.contains(told), "{told} is missing in {text}");
    }
    let json = lab(&with(&args, &["--json"])).json();
    let modules = json["estimate"]["network"]["modules"].as_object().unwrap();
    let sum: f64 = modules.values().map(|module| module["flops"].as_f64().unwrap()).sum();
    assert_eq!(sum, json["estimate"]["flops"].as_f64().unwrap());
    assert_eq!(json["autoregressive"]["forwards"], 32);
    // Half the tokens a forward at an acceptance of a half.
    let args = [
        "cost",
        "--like",
        "sdar-4b",
        "--prompt-length",
        "64",
        "--gen-length",
        "512",
        "--decoder",
        "freedave:d=8,eager",
    ];
    let json = lab(&with(&args, &["--acceptance", "0.5", "--json"])).json();
    let tokens = json["estimate"]["tokens_per_nfe"].as_f64().unwrap();
    assert!((1.4..2.2).contains(&tokens), "{tokens}");
}

/// The worst case alone makes each diffusion model look slow.
#[test]
fn the_worst_case_is_beside_a_better_one_with_its_source() {
    let args = ["cost", "--like", "llada-8b", "--gen-length", "64", "--cache", "dual"];
    let text = lab(&args).success();
    for told in ["worst case", "acceptance 0.6", "Fast-dLLM"] {
        assert!(text.contains(told), "{told} is missing in {text}");
    }
    let json = lab(&with(&args, &["--json"])).json();
    let forwards = |estimate: &Value| estimate["nfe"].as_u64().unwrap();
    assert_eq!((json["acceptance"].as_f64(), forwards(&json["estimate"])), (Some(0.0), 64));
    assert!(forwards(&json["hoped"]["estimate"]) < 32, "{}", json["hoped"]);
    assert!(json["machine"]["gbs"].as_f64().unwrap() > 0.0, "{}", json["machine"]);
    // Who names an acceptance has one answer.
    let json = lab(&with(&args, &["--json", "--acceptance", "0.5"])).json();
    assert_eq!(json.get("hoped"), None);
}

#[test]
fn published_operations_are_counted_as_the_paper_does() {
    let flops = |cache: &str| {
        let run = lab(&[
            "cost",
            "--like",
            "llada-8b",
            "--prompt-length",
            "1080",
            "--gen-length",
            "256",
            "--block-length",
            "256",
            "--decoder",
            "static",
            "--cache",
            cache,
            "--convention",
            "published",
            "--json",
        ]);
        run.json()["estimate"]["flops"].as_f64().unwrap()
    };
    let ratio = flops("none") / flops("dllm:prompt=50,response=6,rho=0.25,count=forwards,rows=drift");
    assert!((ratio - 6.16).abs() < 0.02, "{ratio}");
}

#[test]
fn a_recorded_run_costs_what_its_receipt_says_and_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let trace = path.to_str().unwrap();
    let prompt = ["generate", "--prompt-tokens", "5,6,7,8,9,10,11,12", "--trace", trace, "--trace-predictions"];
    let receipt = &demask(&with(&prompt, &DECODING)).json()["receipt"];
    assert!(lab(&["trace", trace, "--speed", "100000"]).success().contains("freedave:d=4"));
    let cost = &lab(&with(&["cost", "--replay", trace], &DECODING)).json()["estimate"];
    for field in ["nfe", "forwards", "rows", "computed_rows", "head_rows", "flops", "acceptance"] {
        assert_eq!(cost[field], receipt[field], "{field}");
    }
    assert_eq!(cost["network"]["memory"]["cache"], receipt["memory"]["cache"]);
    assert_eq!(cost["network"]["memory"]["weights"], receipt["memory"]["weights"]);
    // Another seed, so another prompt: the network would commit something else.
    let bench = ["bench", "generate", "--replay", trace, "--repeat", "1", "--seed", "3"];
    let followed = lab(&with(&bench, &DECODING[..7])).code;
    assert_eq!(followed, Some(0));
    let json = lab(&with(&bench, &DECODING)).json();
    for field in ["nfe", "forwards", "rows", "acceptance", "flops"] {
        assert_eq!(json["receipt"][field], receipt[field], "{field}");
    }
    assert_eq!((&json["prompt_length"], &json["replay"]), (&Value::from(8), &Value::from(trace)));
    let other =
        ["bench", "generate", "--replay", trace, "--gen-length", "32", "--decoder", "static", "--cache", "dual"];
    refused(&lab(&other), 2, "the trace was recorded with decoder freedave:d=4, this run has static: give the same");
    let longer = with(&["bench", "generate", "--replay", trace, "--prompt-length", "9"], &DECODING);
    refused(&lab(&longer), 2, "the trace was recorded with a prompt of 8 tokens, this run has 9 tokens: give the same");
    let plain = ["generate", "--prompt-tokens", "5,6", "--gen-length", "4", "--trace", trace, "-q"];
    demask(&plain).success();
    refused(
        &lab(&["cost", "--replay", trace]),
        2,
        &format!("cannot replay {trace}: the trace has no predictions: record it with --trace and --trace-predictions"),
    );
}

/// A model, its decoding, and its guide.
type Subject = (&'static str, &'static [&'static str], Option<&'static str>);

/// Both run the session's own plans, with the same stand-in: one prices its forwards, the other runs them.
#[test]
fn forwards_at_an_acceptance_are_those_that_cost_counts() {
    let subjects: &[Subject] = &[
        ("golden/ckpt/idlm-toy", &["--decoder", "isd:stride=4"], None),
        ("golden/ckpt/dense-nemotron-toy", &["--decoder", "selfspec:block=8", "--cache", "causal"], None),
        ("demo/demo-llada", &["--decoder", "threshold:tau=0.9", "--cache", "dual"], None),
        ("demo/demo-sdar", &["--decoder", "freedave:d=4", "--cache", "block"], None),
        ("demo/demo-dream", &["--decoder", "guided", "--cache", "none"], Some("demo/demo-qwen")),
    ];
    let lengths = ["--prompt-length", "8", "--gen-length", "32", "--acceptance", "0.7", "--seed", "5", "--json"];
    for (model, decoding, guide) in subjects {
        let (model, guide) = (project(model), guide.map(project));
        let mut args = vec!["--model", &model];
        args.extend(guide.iter().flat_map(|guide| ["--guide", guide]));
        args.extend_from_slice(decoding);
        args.extend(lengths);
        let cost = lab(&with(&["cost"], &args)).json();
        let ran = lab(&with(&["bench", "generate", "--repeat", "1"], &args));
        assert!(ran.stderr.contains("acceptance 0.7: the network runs, and a stand-in says what"), "{}", ran.stderr);
        let ran = ran.json();
        for field in ["nfe", "forwards", "rows", "computed_rows", "head_rows", "flops", "acceptance"] {
            assert_eq!(cost["estimate"][field], ran["receipt"][field], "{model}: {field}");
        }
        assert_eq!((&cost["acceptance"], &ran["acceptance"]), (&Value::from(0.7), &Value::from(0.7)), "{model}");
        assert!(ran["receipt"]["tokens_per_nfe"].as_f64().unwrap() > 1.0, "{model}: some drafts come true");
    }
    let bench = ["bench", "generate", "--gen-length", "8"];
    refused(&lab(&with(&bench, &["--acceptance", "-1"])), 2, "--acceptance is -1, expected a share from 0 to 1");
    refused(
        &lab(&with(&bench, &["--acceptance", "0.5", "--decoder", "static"])),
        2,
        "--acceptance changes nothing with decoder static here: omit it",
    );
}

#[test]
fn costs_that_cannot_be_known_are_refused() {
    let like = ["cost", "--like", "llada-8b"];
    for (rest, told) in [
        (&["--acceptance", "1.5"][..], "--acceptance is 1.5, expected a share from 0 to 1"),
        (
            &["--acceptance", "0.5", "--decoder", "static", "--cache", "dual"],
            "--acceptance changes nothing with decoder static here: omit it",
        ),
        (&["--convention", "mine"], "--convention is \"mine\", expected demask or published"),
        (&["--prompt-length", "0"], "--prompt-length is 0, expected at least 1"),
        (&["--model", "x"], "found --like and --model, expected one of them: omit the other"),
        (&["--system", "x"], "--system belongs to a prompt in words, and cost knows its length alone: omit it"),
    ] {
        refused(&lab(&with(&like, rest)), 2, told);
    }
    refused(
        &lab(&["cost", "--like", "gpt"]),
        2,
        "unknown shape \"gpt\", expected one of llada-8b, dream-7b, sdar-1.7b, sdar-4b, sdar-8b, i-dlm-8b, qwen2.5-1.5b, qwen3-1.7b, qwen3-8b, \
         stable-diffcoder-8b, open-dcoder-0.5b, a2d-qwen2.5-coder-0.5b, a2d-qwen3-0.6b, \
         fast-dllm-v2-1.5b, fast-dllm-v2-7b, nemotron-labs-diffusion-3b, nemotron-labs-diffusion-8b, \
         llada-moe-7b-a1b, sdar-30b-a3b, llada2.0-mini, llada2.1-mini, rnd1-30b-a3b",
    );
    let long = lab(&with(&like, &["--prompt-length", "4000", "--gen-length", "256"]));
    assert_eq!(long.code, Some(2), "{}", long.stderr);
}

#[test]
fn guides_may_be_shapes() {
    let args = ["cost", "--like", "dream-7b", "--guide", "qwen2.5-1.5b", "--decoder", "guided", "--cache", "none"];
    let lengths = ["--prompt-length", "32", "--gen-length", "64", "--acceptance", "0.7", "--json"];
    let json = lab(&with(&args, &lengths)).json();
    assert_eq!(json["guide_model"], "qwen2.5-1.5b");
    assert!(json["estimate"]["guide"]["flops"].as_f64().unwrap() > 0.0);
    assert!(json["estimate"]["guide_acceptance"].as_f64().unwrap() > 0.5);
    assert!(json["estimate"]["tokens_per_nfe"].as_f64().unwrap() > 2.0);
}

#[test]
fn pictures_show_several_lengths() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("costs");
    lab(&[
        "cost",
        "--like",
        "llada-8b",
        "--prompt-length",
        "64",
        "--gen-length",
        "64",
        "--decoder",
        "static",
        "--cache",
        "prefix",
        "--block-length",
        "16",
        "--out",
        out.to_str().unwrap(),
    ])
    .success();
    let json: Value = serde_json::from_slice(&std::fs::read(out.join("cost.json")).unwrap()).unwrap();
    assert_eq!(json["lengths"].as_array().unwrap().len(), 7);
    assert!(std::fs::read_to_string(out.join("plots/cost_length.csv")).unwrap().contains("autoregressive"));
    assert!(std::fs::read_to_string(out.join("cost.html")).unwrap().contains("<svg"));
}
