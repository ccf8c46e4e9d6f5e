//! Tables and pictures for a paper: CSV, LaTeX, every row against every other, frames that stand still.

use std::fs;

use crate::harness::{demask, lab, questions};

#[test]
fn a_report_has_tables_for_papers_and_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (out, joined) = (path("out"), path("joined"));
    let sweep = "decoder=static|threshold;cache=none|dual";
    lab(&["eval", "wordmath", "--limit", "12", "--batch", "4", "--sweep", sweep, "--out", &out]).success();
    let columns = "run,accuracy,NFE,s/item";
    let call = ["report", &out, "--out", &joined, "--format", "csv,latex", "--columns", columns, "--pairs"];
    let text = lab(&call).success();
    assert!(text.contains("p (Holm)") && text.contains("for the 6 pairs of this task"), "{text}");
    let read = |name: &str| fs::read_to_string(format!("{joined}/{name}")).unwrap();
    let csv = read("tables/wordmath.csv");
    assert!(csv.starts_with("run,accuracy (%),\"accuracy (%), low\",\"accuracy (%), high\",NFE,s/item,\"s/item, low\",\"s/item, high\"\n"), "{csv}");
    assert_eq!(csv.lines().count(), 5);
    // Without a directory, the table is printed.
    let printed = ["report", &out, "--format", "csv", "--columns", columns];
    assert_eq!(lab(&printed).success(), csv);
    assert!(lab(&["report", &out, "--pairs"]).success().contains("p (Holm)"));
    let tex = read("tables/wordmath.tex");
    assert!(tex.contains("\\begin{tabular}{lrrr}") && tex.contains("\\textbf{"), "{tex}");
    assert!(read("report.md").contains("### Pairs\n") && read("report.html").contains("Pairs"));
    let summary: serde_json::Value = serde_json::from_str(&read("summary.json")).unwrap();
    let pairs = summary["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 6);
    // Without a cache, threshold takes fewer forwards than static decoding for every item alike.
    let pair = pairs.iter().find(|pair| pair["run"] == csv.lines().nth(3).unwrap().split(',').next().unwrap());
    let first = pair.unwrap_or(&pairs[0]);
    assert!(first["nfe"]["low"].as_f64() <= first["nfe"]["ratio"].as_f64(), "{first}");
    assert!(pairs.iter().all(|pair| pair["p_holm"].as_f64() >= pair["difference"]["p"].as_f64()));
}

#[test]
fn what_a_report_cannot_write_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().display().to_string();
    for (more, told) in [
        (&["--format", "tex"][..], "error: unknown format \"tex\", did you mean \"latex\"? (known: csv, latex)"),
        (&["--format", "pdf"], "error: --format pdf: pictures are SVG with their texts as text"),
        (&["--format", "csv", "--columns", "accurcy"], "error: unknown column \"accurcy\", did you mean \"accuracy\"?"),
        (&["--columns", "run"], "error: --columns goes with --format csv or latex"),
    ] {
        let run = lab(&[&["report", "nowhere", "--out", &out], more].concat());
        assert!(run.stderr.starts_with(told), "{told}\n{}", run.stderr);
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{}", run.stderr);
    }
    let told = "error: several forms of the tables, and no directory for them: give one --format, or --out DIR";
    assert!(lab(&["report", "nowhere", "--format", "csv,latex"]).stderr.starts_with(told));
}

#[test]
fn frames_of_a_trace_stand_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let [trace, svg] = ["run.jsonl", "run.svg"].map(|name| folder.path().join(name).display().to_string());
    demask(&["generate", &questions()[0].0, "--decoder", "static", "-n", "32", "--trace", &trace]).success();
    lab(&["trace", &trace, "--svg", &svg, "--frames", "0,8,16"]).success();
    let drawn = fs::read_to_string(&svg).unwrap();
    for told in ["forward 0, 0 tokens", "forward 8, 8 tokens", "forward 16, 16 tokens"] {
        assert!(drawn.contains(told), "{told}");
    }
    assert!(!drawn.contains("animation") && !drawn.contains("<style"));
    for (more, told) in [
        (&["--frames", "0,999", "--svg", &svg][..], "no frame 999: expected 0 to"),
        (&["--frames", "0"], "--frames goes with --svg FILE.svg: name the file"),
        (&["--frames", "0", "--svg", &svg, "--drafts"], "--drafts draws each forward's drafts: omit one"),
        (&["--frames", "0", "--svg", &svg, "--speed", "3"], "--speed has no meaning with --frames"),
    ] {
        let run = lab(&[&["trace", &trace], more].concat());
        assert!(run.code != Some(0) && run.stderr.contains(told), "{told}\n{}", run.stderr);
    }
}
