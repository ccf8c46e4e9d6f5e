//! Traces that `demask generate` writes, replayed and drawn.

use std::fs;

use serde_json::Value;

use crate::harness::{demask, lab, lab_with_input, project, questions};

#[test]
fn traces_are_whole_and_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let path = path.to_str().unwrap();
    let (question, answer) = &questions()[0];
    let result = demask(&["generate", question, "--decoder", "threshold", "--trace", path, "--json"]).json();
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["event"], &lines[0]["decoder"]), (&"header".into(), &"threshold:tau=0.9".into()));
    let steps = lines.iter().filter(|line| line["event"] == "step").count();
    assert_eq!(steps as u64, result["receipt"]["forwards"].as_u64().unwrap());
    assert!(lines.iter().any(|line| line.get("event").is_none() && line["position"].is_u64()));

    let replayed = lab(&["trace", path]).success();
    assert_eq!(replayed.lines().count(), 1 + steps);
    assert!(replayed.starts_with("demo-llada, decoder threshold:tau=0.9, cache dual, seed 0: 47 prompt tokens, 64 "));
    assert!(replayed.contains(&format!("The final answer is {answer}")), "{replayed}");
    assert!(!replayed.contains('\u{1b}'));
    assert_eq!(lab_with_input(&["trace", "-"], &text).success(), replayed);
    // What is watched is what is traced.
    let watched = demask(&["generate", question, "--decoder", "threshold", "--watch", "-q"]);
    let drawn: Vec<_> = replayed.lines().skip(1).collect();
    assert_eq!(watched.stderr.lines().collect::<Vec<_>>(), drawn);
    assert!(watched.success().ends_with(&format!("The final answer is {answer}\n")));
}

/// Drafts in traces: told only if asked for, shown in the terminal, drawn into a file.
#[test]
fn drafts_are_traced_shown_and_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let [path, plain, svg] = ["run.jsonl", "plain.jsonl", "run.svg"].map(|name| directory.path().join(name));
    let [path, plain, svg] = [&path, &plain, &svg].map(|path| path.to_str().unwrap());
    let (dream, guide) = (project("demo/demo-dream"), project("demo/demo-qwen"));
    let (question, _) = &questions()[0];
    let freedave = ["generate", question, "-q", "--decoder", "freedave:d=4", "--cache", "none"];
    let guided = ["generate", question, "-q", "--model", &dream, "--guide", &guide, "--decoder", "guided"];
    for (arguments, words) in [(&freedave[..], "predicts"), (&guided, "the guide says")] {
        demask(&[arguments, &["--trace", path, "--drafts"]].concat()).success();
        demask(&[arguments, &["--trace", plain]].concat()).success();
        let [with, without] = [path, plain].map(|path| fs::read_to_string(path).unwrap());
        let told = |line: &&str| line.contains("\"event\":\"draft\"") || line.contains("\"event\":\"target\"");
        assert!(with.lines().filter(told).count() > 3, "{with}");
        assert!(with.lines().filter(|line| !told(line)).eq(without.lines()), "drafts are told beside the rest");
        // Replaying leaves them out.
        assert_eq!(lab(&["trace", path]).success(), lab(&["trace", plain]).success());
        let shown = lab(&["trace", path, "--drafts"]).success();
        assert!(shown.contains(words) && shown.starts_with("step "), "{shown}");
        lab(&["trace", path, "--drafts", "--svg", svg]).success();
        let drawn = fs::read_to_string(svg).unwrap();
        assert!(drawn.starts_with("<svg ") && drawn.contains("drafted tokens taken".replace(' ', "\u{a0}").as_str()));
        let run = lab(&["trace", plain, "--drafts"]);
        assert_eq!((run.code, run.stderr.lines().count()), (Some(1), 1), "{}", run.stderr);
        assert!(run.stderr.contains("the trace has no drafts"), "{}", run.stderr);
    }
    let run = demask(&["generate", "hi", "--drafts"]);
    let message = "error: --drafts writes drafts into a trace: give --trace FILE\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(2), message));
}

/// The canvas of a trace as a picture: one group for each token that was committed, in as many forwards as there were.
#[test]
fn a_trace_is_drawn_as_a_picture_that_moves() {
    let directory = tempfile::tempdir().unwrap();
    let [path, svg] = ["run.jsonl", "run.svg"].map(|name| directory.path().join(name));
    let [path, svg] = [&path, &svg].map(|path| path.to_str().unwrap());
    let answered = ["generate", &questions()[0].0, "--json", "--decoder", "static", "--trace", path, "--svg", svg];
    assert!(demask(&answered).json()["text"].as_str().unwrap().contains("The final answer is"));
    let at_once = fs::read_to_string(svg).unwrap();
    assert_eq!(lab(&["trace", path, "--svg", svg]).success(), "");
    assert_eq!(fs::read_to_string(svg).unwrap(), at_once, "generate --svg draws the same picture");
    assert_eq!(lab(&["trace", path, "--svg", svg, "--speed", "8"]).success(), "");
    let (trace, drawn) = (fs::read_to_string(path).unwrap(), fs::read_to_string(svg).unwrap());
    let forwards = trace.matches("\"event\":\"step\"").count();
    assert!(drawn.starts_with("<svg ") && drawn.contains(&format!("@keyframes a{} ", forwards - 1)));
    assert!(!drawn.contains(&format!("@keyframes a{forwards} ")));
    assert_eq!(drawn.matches("<g class=\"f").count(), trace.matches("\"confidence\"").count());
    let run = lab(&["trace", "-", "--svg", svg]);
    assert_eq!(run.code, Some(1), "an empty trace is none: {}", run.stderr);
    assert_eq!(fs::read_to_string(svg).unwrap(), drawn, "and leaves what is there alone");
}

/// Drafts of both kinds, watched, traced and replayed: the same lines, which say what became of the drafts.
#[test]
fn drafts_are_watched_and_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let path = path.to_str().unwrap();
    let (dream, guide) = (project("demo/demo-dream"), project("demo/demo-qwen"));
    let (question, _) = &questions()[0];
    let guided = ["--model", &dream, "--guide", &guide, "--decoder", "guided"];
    for arguments in [&["--decoder", "freedave:d=4"][..], &guided] {
        let arguments = [&["generate", question, "--watch", "-q", "--trace", path], arguments].concat();
        let watched = demask(&arguments);
        let drawn: Vec<_> = watched.stderr.lines().collect();
        let replayed = lab(&["trace", path]).success();
        assert_eq!(replayed.lines().skip(1).collect::<Vec<_>>(), drawn);
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let steps: Vec<&Value> = lines.iter().filter(|line| line["event"] == "step").collect();
        assert_eq!(steps.len(), drawn.len());
        let [mut accepted, mut rejected] = [0, 0];
        for (step, drawn) in steps.into_iter().zip(drawn) {
            let [taken, refused] = ["accepted", "rejected"].map(|key| step[key].as_u64().unwrap());
            let drafts = format!(" drafts {taken} accepted {refused} rejected ");
            assert_eq!(drawn.contains(&drafts), taken + refused > 0, "{drawn}");
            let commits = lines.iter().filter(|line| line["event"].is_null() && line["step"] == step["step"]).count();
            assert!(drawn.contains(&format!(" +{commits} ")) && commits as u64 >= taken, "{drawn}");
            (accepted, rejected) = (accepted + taken, rejected + refused);
        }
        assert!(accepted > 5 && rejected > 0, "{accepted} accepted, {rejected} rejected");
        watched.success();
    }
}
