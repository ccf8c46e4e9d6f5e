//! A build without the commands that evaluate and analyze; the full gate runs it.

use crate::harness::demask;

#[test]
fn a_command_that_this_build_lacks_is_refused_in_one_line_and_listed() {
    for (typed, name) in [
        (&["eval", "wordmath", "--limit", "2", "--decoder=static"][..], "eval"),
        (&["eval"], "eval"),
        (&["eval", "--help"], "eval"),
        (&["recipe", "list"], "recipe"),
        (&["report", "a", "--out", "b"], "report"),
        (&["tune", "wordmath"], "tune"),
        (&["analyze", "stability", "--out", "x"], "analyze"),
        (&["serve", "--port", "0"], "serve"),
    ] {
        let run = demask(typed);
        let feature = if ["analyze", "serve"].contains(&name) { name } else { "eval" };
        let told = format!("error: this build has no {name}: build demask with --features {feature}\n");
        assert_eq!((run.code, run.stdout, run.stderr), (Some(2), String::new(), told), "{typed:?}");
    }
    let help = demask(&["--help"]).success();
    for name in ["eval", "analyze", "serve"] {
        assert!(help.contains(&format!("Not in this build: --features {name} adds it")), "{help}");
    }
}
