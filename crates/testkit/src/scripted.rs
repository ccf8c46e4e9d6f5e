//! Denoisers that follow a script instead of a network: deterministic, instant, and strict about plans.
//!
//! [`Scripted`] is a [`Denoiser`] made of hashes. It has the data flow of a transformer of two layers: each live row
//! writes a slot per layer, reads every slot that its mask lets it see, and its row becomes the logits of a small
//! vocabulary. So its answers change with every token that may matter and with nothing else: a cache that is exact
//! gives the tokens of no cache, a slot that is stale or was never written shows, and two runs of the same plans are
//! equal to the bit.

use demask_step::{
    Blend, BlendWith, ConfidenceOf, Cost, Denoiser, HeadAsk, Lanes, LayerRows, NO_TOKEN, OpenError, PlanError,
    Position, Positions, Predictions, SequenceId, SequenceNeeds, SequenceStep, StepError, StepPlan, TokenId,
    random::{self, Use},
};

/// Layers of the data flow: with two, what a row wrote depends on what it saw.
const LAYERS: usize = 2;

/// The content of one slot, or of one row, in one layer.
type Content = u64;

/// A denoiser made of hashes. See the module's description.
#[derive(Debug, Clone)]
pub struct Scripted {
    seed: u64,
    vocab: usize,
    shift: u32,
    spread: f64,
    layers: usize,
    easy: f64,
    sequences: Vec<Option<Slots>>,
    steps: usize,
}

/// The stored slots of one sequence, and the drafts of its last step.
#[derive(Debug, Clone)]
struct Slots {
    needs: SequenceNeeds,
    stored: [Vec<Option<Content>>; LAYERS],
    /// Per lane of the last step's drafts: live positions and their contents.
    drafts: Vec<Overlay>,
}

/// What one lane wrote: contents by the rank of the live position.
#[derive(Debug, Clone, Default)]
struct Overlay {
    live: Positions,
    content: [Vec<Content>; LAYERS],
}

impl Overlay {
    fn at(&self, layer: usize, position: Position) -> Option<Content> {
        self.live.rank(position).and_then(|rank| self.content[layer].get(rank).copied())
    }
}

impl Scripted {
    /// A denoiser over `vocab` tokens whose row `p - shift` predicts position `p`.
    pub fn new(seed: u64, vocab: usize, shift: u32) -> Self {
        Self { seed, vocab, shift, spread: 3.0, easy: 0.0, layers: LAYERS, sequences: Vec::new(), steps: 0 }
    }

    /// Sets the standard width of the logits: large values make predictions sure. The default is 3.
    #[must_use]
    pub fn with_spread(mut self, spread: f64) -> Self {
        self.spread = spread;
        self
    }

    /// Leaves one layer of the data flow: what a row writes then depends on its own token and position alone.
    #[must_use]
    pub fn with_one_layer(mut self) -> Self {
        self.layers = 1;
        self
    }

    /// Sets the share of positions whose prediction depends on the position alone: drafts of them come true. The default
    /// is 0.
    #[must_use]
    pub fn with_easy(mut self, easy: f64) -> Self {
        self.easy = easy;
        self
    }

    /// How many batches were run.
    pub fn steps(&self) -> usize {
        self.steps
    }

    fn slots(&self, id: SequenceId) -> Result<&Slots, PlanError> {
        self.sequences.get(id.0 as usize).and_then(Option::as_ref).ok_or(PlanError::UnknownSequence(id))
    }

    /// The rows after the last layer, `[lanes, live]`, writing slots on the way.
    fn forward(&mut self, step: &SequenceStep<'_>) -> Vec<Vec<Content>> {
        let (seed, layers) = (self.seed, self.layers);
        let Some(slots) = self.sequences[step.sequence.0 as usize].as_mut() else { return Vec::new() };
        let plan = step.plan;
        if let Some(keep) = &plan.keep {
            for position in keep.positions.iter() {
                for layer in 0..LAYERS {
                    slots.stored[layer][position as usize] = slots.drafts[keep.lane as usize].at(layer, position);
                }
            }
        }
        slots.drafts.clear();
        let mut rows = Vec::new();
        for lane in 0..plan.lanes.count() {
            let tokens = &step.tokens[lane * plan.live.len()..];
            let mut overlay = Overlay { live: plan.live.clone(), ..Overlay::default() };
            let embedded = plan.live.iter().zip(tokens).map(|(position, &token)| {
                random::mix(seed ^ random::mix((u64::from(position) << 32) | u64::from(token)))
            });
            let mut row: Vec<Content> = embedded.collect();
            for layer in 0..layers {
                overlay.content[layer].clone_from(&row);
                row = plan
                    .live
                    .iter()
                    .zip(&row)
                    .map(|(position, &own)| slots.attend(plan, &overlay, layer, position, own))
                    .collect();
            }
            if plan.lanes == Lanes::Canvas {
                for (position, rank) in plan.live.iter().zip(0..) {
                    for layer in 0..layers {
                        slots.stored[layer][position as usize] = Some(overlay.content[layer][rank]);
                    }
                }
            } else {
                slots.drafts.push(overlay);
            }
            rows.push(row);
        }
        rows
    }

    fn answer(
        &self,
        step: &SequenceStep<'_>,
        rows: &[Vec<Content>],
        other: Option<&[Vec<Content>]>,
        out: &mut Predictions,
    ) {
        let (plan, ask) = (step.plan, step.ask);
        out.clear();
        out.lanes = plan.lanes.count();
        out.positions.set_union(&[&plan.predict, &plan.must, &plan.hint]);
        out.cost = Cost {
            rows: step.tokens.len() as u64,
            computed_rows: step.tokens.len() as u64,
            head_rows: (out.lanes * out.positions.len()) as u64,
            flops: step.tokens.len() as f64,
        };
        for lane in 0..out.lanes {
            for position in out.positions.clone().iter() {
                let token = plan.live.rank(position).map(|rank| step.tokens[lane * plan.live.len() + rank]);
                if ask.only_where.is_some() && token.is_some() && token != ask.only_where {
                    self.refuse(ask, out);
                    continue;
                }
                let Some(rank) = plan.live.rank(position.saturating_sub(self.shift)) else { continue };
                let mut row = rows[lane][rank];
                let alone = random::mix(self.seed ^ random::mix(u64::from(position)));
                if random::uniform(alone) < self.easy {
                    row = random::mix(alone);
                } else if let (Some(other), Some(Blend { scale, .. })) = (other, step.blend) {
                    row = random::mix(row ^ random::mix(other[lane][rank] ^ u64::from(scale.to_bits())));
                }
                let state = ask.states.get(lane).copied().unwrap_or(0);
                self.head(ask, row, random::key(ask.sampling.seed, Use::Token, position, state), out);
            }
        }
    }

    fn refuse(&self, ask: &HeadAsk, out: &mut Predictions) {
        out.tokens.push(NO_TOKEN);
        out.confidence.push(f32::NEG_INFINITY);
        if ask.margin {
            out.margin.push(0.0);
        }
        if ask.entropy {
            out.entropy.push(0.0);
        }
        if ask.logits {
            out.logits.extend(std::iter::repeat_n(0.0, self.vocab));
        }
    }

    /// Draws a token from a row. Filters, `top` and `judge` are not part of the script.
    fn head(&self, ask: &HeadAsk, row: Content, key: u64, out: &mut Predictions) {
        let mut logits: Vec<f64> = (0..self.vocab as u64)
            .map(|token| self.spread * random::gumbel(random::mix(row ^ random::mix(token))))
            .collect();
        for &token in &ask.forbid {
            logits[token as usize] = f64::NEG_INFINITY;
        }
        let temperature = f64::from(ask.sampling.temperature);
        let noisy = |(token, &logit): (usize, &f64)| {
            if temperature > 0.0 {
                logit / temperature + random::gumbel(random::mix(key ^ token as u64))
            } else {
                logit
            }
        };
        let token = argmax(logits.iter().enumerate().map(noisy));
        if ask.logits {
            out.logits.extend(logits.iter().map(|&logit| logit as f32));
        }
        for &token in &ask.mute {
            logits[token as usize] = f64::NEG_INFINITY;
        }
        if ask.sampling.confidence == ConfidenceOf::Drawn && temperature > 0.0 {
            for logit in &mut logits {
                *logit /= temperature;
            }
        }
        let best = logits[argmax(logits.iter().copied())];
        let sum: f64 = logits.iter().map(|logit| (logit - best).exp()).sum();
        let probability = |logit: &f64| (logit - best).exp() / sum;
        out.tokens.push(token as TokenId);
        out.confidence.push(probability(&logits[token]) as f32);
        if ask.entropy {
            let entropy: f64 = logits.iter().map(probability).filter(|&p| p > 0.0).map(|p| -p * p.ln()).sum();
            out.entropy.push(entropy as f32);
        }
        if ask.margin {
            let mut sorted: Vec<f64> = logits.iter().map(probability).collect();
            sorted.sort_by(|left, right| right.total_cmp(left));
            out.margin.push((sorted[0] - sorted[1]) as f32);
        }
    }
}

impl Slots {
    /// One row of one layer: what it sees, in ascending order, folded into what it is.
    fn attend(&self, plan: &StepPlan, overlay: &Overlay, layer: usize, position: Position, own: Content) -> Content {
        (0..plan.mask.limit(position, plan.visible)).fold(own, |row, key| {
            let seen = overlay.at(layer, key).or(self.stored[layer][key as usize]);
            random::mix(row ^ seen.unwrap_or(0).rotate_left(layer as u32 + 1))
        })
    }
}

/// The first of the largest.
fn argmax(values: impl Iterator<Item = f64>) -> usize {
    let best = values
        .enumerate()
        .fold((0, f64::NEG_INFINITY), |best, (i, value)| if value > best.1 { (i, value) } else { best });
    best.0
}

impl Denoiser for Scripted {
    fn open(&mut self, needs: &SequenceNeeds) -> Result<SequenceId, OpenError> {
        let empty = || vec![None; needs.positions];
        let slots = Slots { needs: needs.clone(), stored: [empty(), empty()], drafts: Vec::new() };
        self.sequences.push(Some(slots));
        Ok(SequenceId(self.sequences.len() as u32 - 1))
    }

    fn close(&mut self, sequence: SequenceId) {
        if let Some(slots) = self.sequences.get_mut(sequence.0 as usize) {
            *slots = None;
        }
    }

    fn check(&self, step: &SequenceStep<'_>) -> Result<(), PlanError> {
        let slots = self.slots(step.sequence)?;
        let (plan, needs) = (step.plan, &slots.needs);
        let expected = plan.lanes.count() * plan.live.len();
        if step.tokens.len() != expected {
            return Err(PlanError::TokenCount { expected, found: step.tokens.len() });
        }
        if let Some(&token) = step.tokens.iter().find(|&&token| token as usize >= self.vocab) {
            return Err(PlanError::TokenOutOfRange(token));
        }
        if plan.layers != LayerRows::All {
            return Err(PlanError::Contradiction("the script computes every row in each layer"));
        }
        let reserved = needs.positions;
        if let Some(position) =
            plan.live.last().max(plan.visible.checked_sub(1)).filter(|&last| last as usize >= reserved)
        {
            return Err(PlanError::PositionOutOfRange { position, reserved });
        }
        if let Some(position) = plan.live.last().filter(|&last| last >= plan.visible) {
            return Err(PlanError::LiveNotVisible(position));
        }
        if let Some(keep) = &plan.keep {
            let lane = slots.drafts.get(keep.lane as usize);
            let missing = keep.positions.iter().find(|&position| lane.is_none_or(|lane| !lane.live.contains(position)));
            if let Some(position) = missing {
                return Err(PlanError::NothingToKeep(position));
            }
        }
        let kept = |position| plan.keep.as_ref().is_some_and(|keep| keep.positions.contains(position));
        let written = |position: Position| slots.stored[0][position as usize].is_some() || kept(position);
        if let Some(position) = (0..plan.visible).find(|&position| !plan.live.contains(position) && !written(position))
        {
            return Err(PlanError::SlotNeverWritten(position));
        }
        let mut asked = Positions::new();
        asked.set_union(&[&plan.predict, &plan.must, &plan.hint]);
        for position in asked.iter() {
            let row = position.saturating_sub(self.shift);
            if !plan.live.contains(row) {
                return Err(PlanError::RowNotLive { position, row });
            }
        }
        let lanes = plan.lanes.count();
        let (drafts, span) = match (plan.lanes, plan.live.first(), plan.live.last()) {
            (Lanes::Drafts(drafts), Some(first), Some(last)) => (drafts as usize, (last - first) as usize + 1),
            _ => (0, 0),
        };
        let beyond = [
            ("rows", lanes * plan.live.len(), needs.rows),
            ("predictions", lanes * asked.len(), needs.predictions),
            ("drafts", drafts, needs.drafts),
            ("positions between drafted rows", span, needs.draft_span),
        ];
        match beyond.into_iter().find(|(_, needed, reserved)| needed > reserved) {
            Some((what, needed, reserved)) => Err(PlanError::BeyondReserve { what, needed, reserved }),
            None => Ok(()),
        }
    }

    fn step(&mut self, batch: &[SequenceStep<'_>], out: &mut [Predictions]) -> Result<(), StepError> {
        for (index, step) in batch.iter().enumerate() {
            self.check(step).map_err(|error| StepError::Plan { index, error })?;
        }
        self.steps += 1;
        let rows: Vec<_> = batch.iter().map(|step| self.forward(step)).collect();
        for ((step, own), out) in batch.iter().zip(&rows).zip(out) {
            let other = match step.blend {
                Some(Blend { with: BlendWith::Step(other), .. }) => rows.get(other).map(Vec::as_slice),
                _ => None,
            };
            self.answer(step, own, other, out);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use demask_step::Mask;

    use super::*;

    fn run(
        script: &mut Scripted,
        id: SequenceId,
        tokens: &[TokenId],
        live: std::ops::Range<u32>,
        mask: Mask,
    ) -> Predictions {
        let plan = StepPlan {
            live: live.clone().into(),
            visible: live.end,
            mask,
            predict: (live.end - 2..live.end).into(),
            ..StepPlan::default()
        };
        let ask = HeadAsk { forbid: vec![9], ..HeadAsk::default() };
        let mut out = [Predictions::default()];
        let step = SequenceStep { sequence: id, tokens, plan: &plan, ask: &ask, blend: None };
        script.step(&[step], &mut out).unwrap();
        let [out] = out;
        out
    }

    fn open(script: &mut Scripted) -> SequenceId {
        script.open(&SequenceNeeds { positions: 8, rows: 8, predictions: 4, ..SequenceNeeds::default() }).unwrap()
    }

    #[test]
    fn what_is_stored_is_what_would_be_computed() {
        let mask = Mask::BlockCausal { block: 4 };
        let mut script = Scripted::new(1, 12, 0);
        let (whole, stored) = (open(&mut script), open(&mut script));
        let at_once = run(&mut script, whole, &[1, 2, 3, 4, 9, 9, 9, 9], 0..8, mask);
        run(&mut script, stored, &[1, 2, 3, 4], 0..4, mask);
        assert_eq!(
            run(&mut script, stored, &[9, 9, 9, 9], 4..8, mask),
            Predictions { cost: Cost { rows: 4, computed_rows: 4, head_rows: 2, flops: 4.0 }, ..at_once.clone() }
        );
        run(&mut script, stored, &[1, 2, 9, 4], 0..4, mask);
        let stale = run(&mut script, stored, &[9, 9, 9, 9], 4..8, mask);
        assert_ne!(stale.confidence, at_once.confidence, "a stale slot shows");
    }

    #[test]
    fn wrong_plans_are_refused() {
        let mut script = Scripted::new(1, 12, 1);
        let id = open(&mut script);
        let check = |plan: &StepPlan, tokens: &[TokenId]| {
            script.check(&SequenceStep { sequence: id, tokens, plan, ask: &HeadAsk::default(), blend: None })
        };
        let plan = StepPlan { live: (2..4).into(), visible: 4, ..StepPlan::default() };
        assert_eq!(check(&plan, &[1, 1]), Err(PlanError::SlotNeverWritten(0)));
        assert_eq!(check(&plan, &[1]), Err(PlanError::TokenCount { expected: 2, found: 1 }));
        assert_eq!(check(&plan, &[1, 12]), Err(PlanError::TokenOutOfRange(12)));
        let plan = StepPlan { live: (0..3).into(), visible: 3, predict: (4..5).into(), ..StepPlan::default() };
        assert_eq!(check(&plan, &[1, 1, 1]), Err(PlanError::RowNotLive { position: 4, row: 3 }));
        let plan = StepPlan { live: (0..9).into(), visible: 9, ..StepPlan::default() };
        assert_eq!(check(&plan, &[1; 9]), Err(PlanError::PositionOutOfRange { position: 8, reserved: 8 }));
    }
}
