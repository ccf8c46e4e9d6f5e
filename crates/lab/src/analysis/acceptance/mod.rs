//! Analysis of acceptance: how often drafts are accepted, and how often a prediction of a given confidence is right.
//!
//! [`measure`] decodes a prompt and adds up two things. Of every draft that a decoder verifies (`freedave`, `guided`): where
//! in its block it was, in which forward, after how many other drafts, and whether it stood. Of every prediction of every
//! forward: its confidence, and whether the position holds that token in the end.
//!
//! A draft counts as reached if everything drafted before it stood: those after the first one that does not stand were
//! never tested.

mod figures;

use std::collections::BTreeMap;

use demask::{Error, ModelByHand};
use demask_decode::{Event, Layout, Session};
use demask_figures::{Figure, short};
use demask_step::{NO_TOKEN, Position, TokenId};
use demask_terminal::words::counted;
use serde_json::{Value, json};

use super::{Findings, Look, decode};

/// Lower bounds of the bins of confidence: finer where most predictions are.
const BINS: [f32; 14] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999];

/// Fate of drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Rate {
    /// Drafts that stood.
    accepted: usize,
    /// Number of drafts after which everything was accepted.
    reached: usize,
    /// Number of all drafts.
    drafted: usize,
}

impl Rate {
    fn add(&mut self, draft: &Draft) {
        self.accepted += usize::from(draft.accepted);
        self.reached += usize::from(draft.reached);
        self.drafted += 1;
    }

    /// The share of the reached that stood; none of nothing.
    pub(super) fn of_reached(self) -> Option<f64> {
        (self.reached > 0).then(|| self.accepted as f64 / self.reached as f64)
    }

    /// The share of all that stood; none of nothing.
    pub(super) fn of_all(self) -> Option<f64> {
        (self.drafted > 0).then(|| self.accepted as f64 / self.drafted as f64)
    }
}

/// Confidences that fell into a bin, and how often they were right.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Bin {
    confidence: f64,
    right: usize,
    pub(super) count: usize,
}

impl Bin {
    /// The mean confidence, and the share that was right.
    pub(super) fn means(&self) -> Option<(f64, f64)> {
        let count = self.count as f64;
        (self.count > 0).then(|| (self.confidence / count, self.right as f64 / count))
    }
}

/// Confidences and how often they were right, by bin.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Calibration(pub(super) [Bin; BINS.len()]);

impl Calibration {
    fn add(&mut self, confidence: f32, right: bool) {
        let index = BINS.iter().rposition(|&bound| confidence >= bound).unwrap_or(0);
        let bin = &mut self.0[index];
        bin.confidence += f64::from(confidence);
        bin.right += usize::from(right);
        bin.count += 1;
    }

    fn count(&self) -> usize {
        self.0.iter().map(|bin| bin.count).sum()
    }

    /// The expected calibration error: the mean distance of confidence and share, weighted by count.
    fn error(&self) -> Option<f64> {
        let weighted = |bin: &Bin| bin.means().map(|(mean, share)| (mean - share).abs() * bin.count as f64);
        (self.count() > 0).then(|| self.0.iter().filter_map(weighted).sum::<f64>() / self.count() as f64)
    }

    fn right(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.0.iter().map(|bin| bin.right).sum::<usize>() as f64 / self.count() as f64)
    }
}

/// Findings about a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Acceptance {
    /// The model.
    pub model: String,
    /// Device of the runs.
    pub device: String,
    /// The decoder and the cache with their parameters.
    pub methods: [String; 2],
    prompts: usize,
    /// Drafts by place in the block, by forward, and by how many drafts are before them.
    places: BTreeMap<usize, Rate>,
    steps: BTreeMap<usize, Rate>,
    ranks: BTreeMap<usize, Rate>,
    /// Forwards with drafts by how many tokens of them stood.
    stood: BTreeMap<usize, usize>,
    all: Rate,
    /// Calibration of reached drafts, of predictions in the current block, and of those after it.
    drafts: Calibration,
    current: Calibration,
    behind: Calibration,
}

/// A token of a draft.
struct Draft {
    step: usize,
    /// Drafts before it.
    rank: usize,
    position: Position,
    confidence: f32,
    accepted: bool,
    reached: bool,
}

/// A prediction, to be judged when the answer is known.
struct Predicted {
    position: Position,
    token: TokenId,
    confidence: f32,
    behind: bool,
}

/// Decodes a session, and adds what became of its drafts and predictions. `go_on` gets how many masks are filled after
/// each forward, and returns whether to go on.
pub fn measure(
    model: &mut ModelByHand,
    mut session: Session,
    found: &mut Acceptance,
    go_on: &mut dyn FnMut(usize) -> bool,
) -> Result<(), Error> {
    session.tell_drafts();
    let mask = model.info().facts().mask_id;
    let mut predicted = Vec::new();
    let mut session = decode(model, session, &mut |look| {
        note(&look, &mut predicted);
        if go_on(look.session.counts().commits) { Ok(()) } else { Err(Error::Interrupted) }
    })?;
    let layout = session.layout().clone();
    found.prompts += 1;
    found.take_drafts(&layout, session.events());
    for Predicted { position, token, confidence, behind } in predicted {
        let last = session.canvas()[position as usize];
        // What was never decoded is neither right nor wrong.
        if Some(last) != mask {
            let of = if behind { &mut found.behind } else { &mut found.current };
            of.add(confidence, token == last);
        }
    }
    Ok(())
}

/// Notes a forward's predictions for the canvas, or for the smallest draft.
fn note(look: &Look<'_>, predicted: &mut Vec<Predicted>) {
    let Some((_, predictions)) = look.ran else { return };
    let layout = look.session.layout();
    let known = predictions.positions.iter().zip(predictions.tokens.iter().zip(&predictions.confidence));
    let known: Vec<(Position, TokenId, f32)> = known
        .filter(|(_, (token, confidence))| **token != NO_TOKEN && confidence.is_finite())
        .map(|(position, (&token, &confidence))| (position, token, confidence))
        .collect();
    // Positions ascend, and so do blocks.
    let Some(block) = known.first().map(|first| layout.block_of(first.0)) else { return };
    predicted.extend(known.into_iter().map(|(position, token, confidence)| Predicted {
        position,
        token,
        confidence,
        behind: layout.block_of(position) > block,
    }));
}

impl Acceptance {
    /// Creates an empty measurement of a decoder and a cache.
    pub fn new(model: &str, device: &str, methods: [String; 2]) -> Self {
        Self { model: model.to_owned(), device: device.to_owned(), methods, ..Self::default() }
    }

    /// Takes the drafts among the events of a decoding.
    fn take_drafts(&mut self, layout: &Layout, events: impl Iterator<Item = Event>) {
        let mut drafts: Vec<Draft> = Vec::new();
        // The smallest draft that does not stand: larger ones were not reached.
        let mut first_refused = None;
        for event in events {
            match event {
                // Draft 0 is known to be good.
                Event::Draft { step, draft, position, confidence, accepted, .. } if draft > 0 => {
                    if !accepted {
                        first_refused = first_refused.or(Some(draft));
                    }
                    let reached = first_refused.is_none_or(|first| draft <= first);
                    drafts.push(Draft { step, rank: draft, position, confidence, accepted, reached });
                }
                Event::Step { .. } => {
                    self.take_forward(layout, &drafts);
                    drafts.clear();
                    first_refused = None;
                }
                _ => {}
            }
        }
    }

    fn take_forward(&mut self, layout: &Layout, drafts: &[Draft]) {
        for draft in drafts {
            let block = layout.block(layout.block_of(draft.position));
            self.places.entry((draft.position - block.start) as usize).or_default().add(draft);
            self.steps.entry(draft.step).or_default().add(draft);
            self.ranks.entry(draft.rank).or_default().add(draft);
            self.all.add(draft);
            if draft.reached {
                self.drafts.add(draft.confidence, draft.accepted);
            }
        }
        if !drafts.is_empty() {
            *self.stood.entry(drafts.iter().filter(|draft| draft.accepted).count()).or_default() += 1;
        }
    }

    /// The three calibrations with their names.
    fn calibrations(&self) -> [(&'static str, &Calibration); 3] {
        [
            ("predictions in the block", &self.current),
            ("predictions behind the block", &self.behind),
            ("drafts that were reached", &self.drafts),
        ]
    }
}

impl Findings for Acceptance {
    const NAME: &'static str = "acceptance";

    fn title(&self) -> String {
        format!("Acceptance of drafts, and calibration: {}", self.model)
    }

    fn about(&self) -> String {
        let [decoder, cache] = &self.methods;
        let drafts = match self.all.of_all() {
            Some(share) => format!(
                "; {:.1} % of {} drafted tokens stood, {:.1} % of those that were reached",
                100.0 * share,
                self.all.drafted,
                100.0 * self.all.of_reached().unwrap_or(0.0)
            ),
            None => "; nothing was drafted".to_owned(),
        };
        format!("On {}. {}, decoder {decoder}, cache {cache}{drafts}.", self.device, counted(self.prompts, "prompt"))
    }

    fn figures(&self) -> Vec<Figure> {
        figures::figures(self)
    }

    fn table(&self) -> Vec<Vec<String>> {
        let header = ["confidence of", "count", "mean", "right", "calibration error"];
        let rows = self.calibrations().into_iter().filter(|(_, of)| of.count() > 0).map(|(name, of)| {
            let mean = of.0.iter().map(|bin| bin.confidence).sum::<f64>() / of.count() as f64;
            let told = |value: Option<f64>| value.map(short).unwrap_or_default();
            vec![name.to_owned(), of.count().to_string(), short(mean), told(of.right()), told(of.error())]
        });
        std::iter::once(header.map(str::to_owned).to_vec()).chain(rows).collect()
    }

    fn json(&self) -> Value {
        let rate = |rate: &Rate| {
            json!({
                "accepted": rate.accepted, "reached": rate.reached, "drafted": rate.drafted,
                "of_reached": rate.of_reached(), "of_drafted": rate.of_all(),
            })
        };
        let calibration = |of: &Calibration| {
            let bins = BINS.iter().zip(&of.0).map(|(from, bin)| {
                let (mean, right) = bin.means().unzip();
                json!({"from": from, "count": bin.count, "mean": mean, "right": right})
            });
            json!({"count": of.count(), "right": of.right(), "error": of.error(), "bins": bins.collect::<Vec<_>>()})
        };
        json!({
            "model": self.model,
            "device": self.device,
            "decoder": self.methods[0],
            "cache": self.methods[1],
            "prompts": self.prompts,
            "drafts": rate(&self.all),
            "accepted_per_forward": self.stood,
            "calibration": {
                "block": calibration(&self.current),
                "behind": calibration(&self.behind),
                "drafts": calibration(&self.drafts),
            },
        })
    }
}

#[cfg(test)]
mod tests;
