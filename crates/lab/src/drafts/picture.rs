//! Drafts as a picture: a row for each draft, boxes for its tokens, and the predictions in it.

use demask_figures::board::{Board, Cell, Line, Tone};

use super::Round;
use crate::canvas::harmless;

/// The rounds of a trace as a board.
pub fn board(title: &str, rounds: &[Round]) -> Board {
    let legend = [
        (Tone::Known, "stood before"),
        (Tone::Good, "drafted and taken"),
        (Tone::Bad, "drafted and refused"),
        (Tone::Wanted, "predicted in this draft"),
        (Tone::Empty, "mask"),
    ];
    Board {
        title: title.to_owned(),
        legend: legend.map(|(tone, meaning)| (tone, meaning.to_owned())).to_vec(),
        lines: rounds.iter().flat_map(lines).collect(),
    }
}

fn lines(round: &Round) -> Vec<Line> {
    let mut lines = vec![Line::Heading(round.head())];
    if round.judged_by_guide() {
        // The guide reads one text: the largest draft.
        lines.push(row(round, "drafted", round.last(), false));
        if let Some(target) = round.targets.first() {
            lines.push(row(round, "the guide", target.draft, true));
        }
        return lines;
    }
    for draft in 0..=round.last() {
        let holds = round.drafted.iter().any(|one| one.draft <= draft);
        let label = if holds { format!("draft {draft}") } else { "canvas".to_owned() };
        lines.push(row(round, &label, draft, true));
    }
    lines
}

/// A draft, with the predictions in it if `predicted` is set.
fn row(round: &Round, label: &str, draft: usize, predicted: bool) -> Line {
    let cell = |position: u32| {
        let drafted = round.drafted.iter().find(|one| one.at == position && one.draft <= draft);
        let target = round.targets.iter().find(|target| predicted && target.draft == draft && target.at == position);
        let (text, tone) = match (drafted, target, round.held(draft, position)) {
            (_, Some(target), _) => (target.text.as_str(), Tone::Wanted),
            (Some(one), None, _) => (one.text.as_str(), if one.accepted { Tone::Good } else { Tone::Bad }),
            (None, None, Some(known)) => (known, Tone::Known),
            (None, None, None) => ("", Tone::Empty),
        };
        Cell { text: harmless(text), tone }
    };
    let reached = round.targets.iter().filter(|target| predicted && target.draft == draft);
    let note = reached.map(|target| format!("{:.2}", target.confidence)).collect::<Vec<_>>().join(", ");
    Line::Boxes { label: label.to_owned(), boxes: round.window().map(cell).collect(), note }
}
