use demask::trace::read_trace;

use super::*;

const HEADER: &str =
    r#"{"event":"header","version":2,"model":"m","prompt":[1,2],"length":4,"decoder":"d","cache":"c","seed":0}"#;

fn trace(lines: &[&str]) -> Vec<TraceLine> {
    read_trace(([HEADER].iter().chain(lines).copied().collect::<Vec<_>>().join("\n")).as_bytes()).unwrap()
}

/// One commit, then two drafts, of which the second is refused.
fn verified() -> Vec<TraceLine> {
    trace(&[
        r#"{"step":0,"position":2,"token":5,"confidence":0.9,"text":"a"}"#,
        r#"{"event":"step","step":0,"nfe":1,"rows":6,"drafts":0,"accepted":0,"rejected":0}"#,
        r#"{"event":"draft","step":1,"draft":1,"at":3,"token":6,"confidence":0.8,"accepted":true,"text":"b"}"#,
        r#"{"event":"draft","step":1,"draft":2,"at":5,"token":7,"confidence":0.7,"accepted":false,"text":"<d>"}"#,
        r#"{"event":"target","step":1,"draft":0,"at":3,"token":6,"confidence":0.81,"text":"b"}"#,
        r#"{"event":"target","step":1,"draft":1,"at":4,"token":8,"confidence":0.71,"text":"c"}"#,
        r#"{"step":1,"position":3,"token":6,"confidence":0.8,"text":"b"}"#,
        r#"{"step":1,"position":4,"token":8,"confidence":0.71,"text":"c"}"#,
        r#"{"event":"step","step":1,"nfe":2,"rows":12,"drafts":3,"accepted":1,"rejected":1}"#,
    ])
}

#[test]
fn drafts_are_shown_beside_what_was_predicted_in_them() {
    let rounds = rounds(&verified());
    assert_eq!(rounds.len(), 1, "a forward without drafts is no round");
    let expected = [
        "step 1 nfe 2: 1 of 2 drafted tokens taken",
        "  canvas           |\u{2591}\u{2591}\u{2591}|  predicts \"b\" at 3 (0.81)",
        "  draft 1  taken   |b\u{2591}\u{2591}|  predicts \"c\" at 4 (0.71)",
        "  draft 2  refused |b\u{2591}<d>|",
    ];
    assert_eq!(rounds[0].lines().lines().collect::<Vec<_>>(), expected);
    assert_eq!(rounds[0].held(0, 2), Some("a"));
}

#[test]
fn a_guide_is_quoted_where_it_disagrees() {
    let lines = trace(&[
        r#"{"event":"draft","step":0,"draft":1,"at":2,"token":5,"confidence":0.9,"accepted":true,"text":"x"}"#,
        r#"{"event":"draft","step":0,"draft":2,"at":3,"token":6,"confidence":0.5,"accepted":false,"text":"y"}"#,
        r#"{"event":"target","step":0,"draft":1,"at":3,"token":900,"confidence":0.6,"guide":true,"text":"z"}"#,
        r#"{"step":0,"position":2,"token":5,"confidence":0.9,"text":"x"}"#,
        r#"{"event":"step","step":0,"nfe":1,"rows":6,"drafts":0,"accepted":1,"rejected":1}"#,
    ]);
    let expected = [
        "step 0 nfe 1: 1 of 2 drafted tokens taken",
        "  agreed   |x|",
        "  left     |y|",
        "  at 3: drafted \"y\" (0.50), the guide says \"z\" (0.60)",
    ];
    assert_eq!(rounds(&lines)[0].lines().lines().collect::<Vec<_>>(), expected);
}

#[test]
fn drafts_are_drawn() {
    let svg = board("m", &rounds(&verified())).svg().unwrap();
    // Three rows of the positions from 3 to 5, five boxes of the legend, and the paper.
    assert_eq!(svg.matches("<rect ").count(), 9 + 5 + 1);
    assert!(
        svg.contains("&lt;d&gt;") && svg.contains("draft\u{a0}2") && svg.matches("stroke-width=\"2\"").count() == 3
    );
}
