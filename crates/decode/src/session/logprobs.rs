//! Log-probabilities of tokens when they were predicted, and of their alternatives, by position.

use demask_step::{Lanes, NO_TOKEN, Position, Predictions, StepPlan, TokenId};

use crate::{
    canvas::Canvas,
    event::Logprob,
    step::{Judgement, Progress},
};

/// Value of positions without a prediction.
const UNKNOWN: (TokenId, f32) = (NO_TOKEN, f32::NEG_INFINITY);

/// The last prediction of each position that may be committed. Everything has its place from the start.
#[derive(Debug)]
pub(super) struct Logprobs {
    /// Alternatives of each position.
    width: usize,
    /// `[positions]`: the predicted token and its probability; no token where nothing is known.
    predicted: Vec<(TokenId, f32)>,
    /// `[positions, width]`: the most probable tokens with their natural-log probabilities, best first.
    top: Vec<(TokenId, f32)>,
}

impl Logprobs {
    /// Creates an empty store for a number of positions with a number of alternatives each.
    pub(super) fn new(positions: usize, width: usize) -> Self {
        Self { width, predicted: vec![UNKNOWN; positions], top: vec![UNKNOWN; positions * width] }
    }

    /// Notes a forward's predictions. Of the canvas, all are noted but those of tokens that stay. Of drafts, those that
    /// decided are noted. The progress lists them with the draft in which they were predicted.
    pub(super) fn note(&mut self, plan: &StepPlan, predictions: &Predictions, progress: &Progress, canvas: &Canvas) {
        match plan.lanes {
            Lanes::Canvas => {
                let changes = |position| progress.replaced.iter().any(|change| change.position == position);
                let open = predictions.positions.iter().filter(|&at| canvas.is_masked(at) || changes(at));
                open.for_each(|position| self.take(predictions, 0, position));
            }
            Lanes::Drafts(_) => plan.must.iter().for_each(|position| self.take(predictions, 0, position)),
        }
        for Judgement { draft, commit, .. } in progress.targets.iter().filter(|target| !target.by_guide) {
            self.take(predictions, *draft, commit.position);
            // A decoder may draw by itself.
            if let Some(predicted) = self.predicted.get_mut(commit.position as usize) {
                *predicted = (commit.token, commit.confidence);
            }
        }
    }

    fn take(&mut self, predictions: &Predictions, lane: usize, position: Position) {
        let Some(index) = predictions.index(lane, position) else { return };
        let token = predictions.tokens.get(index).copied().unwrap_or(NO_TOKEN);
        let Some(predicted) = self.predicted.get_mut(position as usize).filter(|_| token != NO_TOKEN) else { return };
        *predicted = (token, predictions.confidence.get(index).copied().unwrap_or(f32::NEG_INFINITY));
        // A decoder may have asked for more of them than are told.
        let asked = predictions.top.len() / predictions.tokens.len();
        let best = predictions.top.get(index * asked..(index + 1) * asked).unwrap_or(&[]);
        let known = best.iter().filter(|(token, probability)| *token != NO_TOKEN && *probability > 0.0);
        let known = known.map(|&(token, probability)| (token, probability.ln()));
        let own = self.width * position as usize..self.width * (position as usize + 1);
        for (place, best) in self.top[own].iter_mut().zip(known.chain(std::iter::repeat(UNKNOWN))) {
            *place = best;
        }
    }

    /// Forgets the prediction at a position if something else is committed there: a token that a rule chose.
    pub(super) fn settle(&mut self, position: Position, token: TokenId, confidence: f32) {
        if let Some(predicted) = self.predicted.get_mut(position as usize)
            && *predicted != (token, confidence)
        {
            *predicted = UNKNOWN;
        }
    }

    /// Forgets the prediction at a position.
    pub(super) fn forget(&mut self, position: Position) {
        self.settle(position, NO_TOKEN, f32::NEG_INFINITY);
    }

    /// Returns the log-probability and the best tokens of a position's last prediction. None without a prediction.
    pub(super) fn of(&self, position: Position) -> Option<Logprob<'_>> {
        let &(token, probability) = self.predicted.get(position as usize)?;
        let own = self.width * position as usize..self.width * (position as usize + 1);
        let top = &self.top[own];
        let known = top.iter().take_while(|best| best.0 != NO_TOKEN).count();
        (token != NO_TOKEN).then(|| Logprob { log_probability: probability.ln(), top: &top[..known] })
    }
}

#[cfg(test)]
mod tests {
    use demask_step::Positions;

    use super::*;
    use crate::event::Commit;

    /// Two lanes that predict position 1 and 2; the first refuses position 1.
    fn predictions() -> Predictions {
        let mut positions = Positions::new();
        positions.set_range(1..3);
        Predictions {
            lanes: 2,
            positions,
            tokens: vec![NO_TOKEN, 4, 5, 6],
            confidence: vec![f32::NEG_INFINITY, 0.5, 0.25, 1.0],
            top: vec![
                (NO_TOKEN, 0.0),
                (NO_TOKEN, 0.0),
                (4, 0.5),
                (9, 0.25),
                (7, 0.75),
                (5, 0.25),
                (6, 1.0),
                (NO_TOKEN, 0.0),
            ],
            ..Predictions::default()
        }
    }

    #[test]
    fn the_canvas_is_noted_as_it_is_and_refused_positions_keep_what_was_known() {
        let (mut known, canvas) = (Logprobs::new(3, 1), Canvas::new(&[], 3, Some(9)));
        let progress = Progress::default();
        known.note(&StepPlan::default(), &predictions(), &progress, &canvas);
        assert_eq!(known.of(1), None);
        assert_eq!(known.of(2), Some(Logprob { log_probability: 0.5_f32.ln(), top: &[(4, 0.5_f32.ln())] }));
        known.settle(2, 4, 0.5);
        assert!(known.of(2).is_some(), "it is what was predicted");
        known.settle(2, 4, 1.0);
        assert_eq!((known.of(2), known.of(7)), (None, None), "a rule chose it, and there is no position 7");
    }

    #[test]
    fn of_drafts_only_what_decided_is_noted() {
        let (mut known, canvas) = (Logprobs::new(3, 2), Canvas::new(&[], 3, Some(9)));
        let target = |draft, (position, token, confidence), by_guide| Judgement {
            draft,
            commit: Commit { position, token, confidence },
            by_guide,
        };
        let targets = vec![target(1, (1, 5, 0.25), false), target(1, (2, 6, 1.0), true)];
        let plan = StepPlan { lanes: Lanes::Drafts(2), ..StepPlan::default() };
        known.note(&plan, &predictions(), &Progress { targets, ..Progress::default() }, &canvas);
        let best = [(7, 0.75_f32.ln()), (5, 0.25_f32.ln())];
        assert_eq!(known.of(1), Some(Logprob { log_probability: 0.25_f32.ln(), top: &best }));
        assert_eq!(known.of(2), None);
        let progress = Progress { targets: vec![target(1, (2, 6, 1.0), false)], ..Progress::default() };
        known.note(&plan, &predictions(), &progress, &canvas);
        assert_eq!(known.of(2), Some(Logprob { log_probability: 0.0, top: &[(6, 0.0)] }), "there is no second token");
        known.forget(2);
        assert_eq!(known.of(2), None);
        // A decoder that draws by itself says what it drew.
        let progress = Progress { targets: vec![target(1, (2, 9, 0.5), false)], ..Progress::default() };
        known.note(&plan, &predictions(), &progress, &canvas);
        known.settle(2, 9, 0.5);
        assert_eq!(known.of(2), Some(Logprob { log_probability: 0.5_f32.ln(), top: &[(6, 0.0)] }));
    }
}
