//! Drafts of a trace: forward by forward, the drafts, the predictions in them, and the tokens taken (FreeDave, figure
//! 3).
//!
//! A round is a forward that verified drafts. Each draft holds the tokens of those before it; it is taken if the tokens
//! that it adds equal the predictions in the largest draft that was taken before it. A guide reads drafts token by
//! token, and its own token is shown where it disagrees.

mod picture;

use std::{collections::BTreeMap, fmt::Write};

use demask::TraceLine;
use demask::trace::Given;

use crate::canvas::{harmless, token_text};

pub use picture::board;

/// A mask.
const MASK: &str = "\u{2591}";

/// The tokens of a canvas that are known, as texts.
type Known = BTreeMap<u32, String>;

/// A forward that verified drafts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Round {
    /// Index of the forward, from 0.
    pub step: usize,
    /// NFE so far.
    pub nfe: usize,
    /// Tokens after the prompt that were known before it.
    known: Known,
    /// Tokens of the drafts, in their order.
    drafted: Vec<Drafted>,
    /// Predictions in the drafts that were reached.
    targets: Vec<Target>,
}

/// A token of a draft.
#[derive(Debug, Clone, PartialEq)]
struct Drafted {
    draft: usize,
    at: u32,
    text: String,
    confidence: f32,
    accepted: bool,
}

/// Prediction in a draft.
#[derive(Debug, Clone, PartialEq)]
struct Target {
    draft: usize,
    at: u32,
    text: String,
    confidence: f32,
    guide: bool,
}

/// The rounds of a trace.
pub fn rounds(lines: &[TraceLine]) -> Vec<Round> {
    let (mut rounds, mut round, mut known) = (Vec::new(), Round::default(), Known::new());
    for line in lines {
        match line {
            TraceLine::Header { given, .. } => {
                let text = |Given { position, token, text }: &Given| (*position, token_text(*token, text.as_deref()));
                known.extend(given.iter().map(text));
            }
            TraceLine::Draft { draft, at, token, confidence, accepted, text, .. } => {
                let text = token_text(*token, text.as_deref());
                let drafted = Drafted { draft: *draft, at: *at, text, confidence: *confidence, accepted: *accepted };
                round.drafted.push(drafted);
            }
            TraceLine::Target { draft, at, token, confidence, guide, text, .. } => {
                let text = token_text(*token, text.as_deref());
                let target = Target { draft: *draft, at: *at, text, confidence: *confidence, guide: *guide };
                round.targets.push(target);
            }
            TraceLine::Commit { position, token, text, .. } => {
                if round.known.is_empty() {
                    round.known.clone_from(&known);
                }
                known.insert(*position, token_text(*token, text.as_deref()));
            }
            TraceLine::Predictions { .. } => {}
            TraceLine::Replace { at, to: Some(token), text, .. } => {
                known.insert(*at, token_text(*token, text.as_deref()));
            }
            TraceLine::Replace { at, to: None, .. } => {
                known.remove(at);
            }
            TraceLine::Step { step, nfe, .. } => {
                let mut over = std::mem::take(&mut round);
                if !over.drafted.is_empty() {
                    (over.step, over.nfe) = (*step, *nfe);
                    rounds.push(over);
                }
            }
        }
    }
    rounds
}

impl Round {
    /// Number of tokens of the drafts that were accepted, and the number of all.
    fn accepted(&self) -> (usize, usize) {
        (self.drafted.iter().filter(|one| one.accepted).count(), self.drafted.len())
    }

    /// The forward in a line.
    fn head(&self) -> String {
        let (taken, of) = self.accepted();
        format!("step {} nfe {}: {taken} of {of} drafted tokens taken", self.step, self.nfe)
    }

    fn judged_by_guide(&self) -> bool {
        self.drafted.iter().all(|one| one.draft > 0) && self.targets.iter().all(|target| target.guide)
    }

    /// The largest draft.
    fn last(&self) -> usize {
        self.drafted.iter().map(|one| one.draft).max().unwrap_or(0)
    }

    /// Reports whether a draft was taken.
    fn is_accepted(&self, draft: usize) -> bool {
        self.drafted.iter().filter(|one| one.draft <= draft).all(|one| one.accepted)
    }

    /// The positions that drafts and predictions are about, from the first to the last.
    fn window(&self) -> std::ops::RangeInclusive<u32> {
        let all = || self.drafted.iter().map(|one| one.at).chain(self.targets.iter().map(|target| target.at));
        all().min().unwrap_or(0)..=all().max().unwrap_or(0)
    }

    /// Content of a draft at a position: known before, or drafted.
    fn held(&self, draft: usize, position: u32) -> Option<&str> {
        let drafted = self.drafted.iter().find(|one| one.at == position && one.draft <= draft);
        drafted.map(|one| one.text.as_str()).or_else(|| self.known.get(&position).map(String::as_str))
    }

    /// Prediction in a draft, in words.
    fn predicted(&self, draft: usize) -> String {
        let targets = self.targets.iter().filter(|target| target.draft == draft);
        let words = targets
            .map(|Target { at, text, confidence, .. }| format!("{:?} at {at} ({confidence:.2})", harmless(text)));
        words.collect::<Vec<_>>().join(", ")
    }

    /// The round as lines for a terminal.
    pub fn lines(&self) -> String {
        let mut text = self.head() + "\n";
        if self.judged_by_guide() {
            self.guided_lines(&mut text);
            return text;
        }
        let first = self.drafted.iter().map(|one| one.draft).min().unwrap_or(0).min(1);
        for draft in (0..=self.last()).filter(|&draft| first == 0 || draft > 0 || !self.predicted(0).is_empty()) {
            let holds = self.drafted.iter().any(|one| one.draft <= draft);
            let (label, verdict) = match (holds, self.is_accepted(draft)) {
                (false, _) => ("canvas".to_owned(), ""),
                (true, true) => (format!("draft {draft}"), "taken"),
                (true, false) => (format!("draft {draft}"), "refused"),
            };
            let cell = |position| {
                self.held(draft, position).map_or(MASK.to_owned(), |held| harmless(held).replace('\n', "\u{21b5}"))
            };
            let canvas: String = self.window().map(cell).collect();
            let predicted = self.predicted(draft);
            let next = if predicted.is_empty() { String::new() } else { format!("  predicts {predicted}") };
            let _ = writeln!(text, "  {label:<8} {verdict:<7} |{canvas}|{next}");
        }
        text
    }

    /// Lines about a guide: the run that it agreed with, and the token at which it did not.
    fn guided_lines(&self, text: &mut String) {
        let run = |accepted: bool| -> String {
            let of = self.drafted.iter().filter(|one| one.accepted == accepted);
            of.map(|one| harmless(&one.text).replace('\n', "\u{21b5}")).collect()
        };
        let _ = writeln!(text, "  agreed   |{}|", run(true));
        let _ = writeln!(text, "  left     |{}|", run(false));
        for Target { at, text: own, confidence, draft, .. } in &self.targets {
            let drafted = self.drafted.iter().find(|one| one.draft == draft + 1);
            let drafted =
                drafted.map_or_else(String::new, |one| format!("{:?} ({:.2})", harmless(&one.text), one.confidence));
            let _ =
                writeln!(text, "  at {at}: drafted {drafted}, the guide says {:?} ({confidence:.2})", harmless(own));
        }
    }
}

#[cfg(test)]
mod tests;
