//! Editing, the sampler of LLaDA2.1: each forward fills the masks of the block that are sure enough and replaces tokens of
//! which another prediction is sure enough, until one changes nothing (LLaDA2.1 `generate`, SGLang JointThreshold;
//! specs/families.md#6.6).

use demask_step::{HeadAsk, MaskKind, NO_TOKEN, Position, Predictions, SequenceLimits, TokenId};

use crate::{
    blockwise::Blockwise,
    error::{self, OptionsError},
    layout::Layout,
    method::{Confidence, DecoderKind, DecoderLoop, DecoderTraits, Promise, Setup},
    parameters,
    policy::CachePolicy,
    spec::Kind,
    step::{Answer, Decoder, Proposal, Query, StepContext, StepResult, View},
    transfer::{Candidate, Pass, State, Transfer},
};

parameters! {
    /// Filling and editing of a block until a forward changes nothing.
    pub struct Edit {
        /// masks of a higher confidence are filled
        pub tau: f32 = 0.95, Kind::number(0.0, 1.0);
        /// tokens are replaced by others of a higher confidence; 1: never
        pub edit: f32 = 0.9, Kind::number(0.0, 1.0);
        /// forwards over a block without masks, at most
        pub post: usize = 16, Kind::count(0, 4096);
        /// masks that a forward fills at least, the best of them
        pub least: usize = 1, Kind::count(1, 65536);
        /// end a block at that bound by one more forward, of which nothing is taken (SGLang)
        pub confirm: bool = false;
        /// subtract this from the logit of each position's left neighbour in the block (SGLang); 0: nothing
        pub penalty: f32 = 0.0, Kind::number(0.0, f32::MAX);
        /// confidences of the model's own distribution, or of the tempered and filtered one that tokens are drawn from (as
        /// released for Dream, SDAR, LLaDA2 and RND1), which calls nearly everything sure at low temperatures
        pub confidence: Confidence = Confidence::Clean;
    }
}

impl DecoderKind for Edit {
    const NAME: &'static str = "edit";
    const SUMMARY: &'static str =
        "every mask and every other token whose confidence passes its threshold, until a block comes to rest";
    const SOURCE: &'static str = "LLaDA2.1 generate, SGLang JointThreshold; specs/families.md#6.6";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::BlockCausal];

    fn traits(&self) -> DecoderTraits {
        let revises = Some(self.post + usize::from(self.confirm));
        let confidence = Some(self.confidence.into());
        DecoderTraits {
            promise: Promise::Official,
            confidence,
            ignores_steps: true,
            revises,
            ..DecoderTraits::default()
        }
    }

    fn check(&self, setup: &Setup<'_>) -> Result<(), OptionsError> {
        let found = setup.options.temperature;
        if self.penalty > 0.0 && found > 0.0 {
            return Err(error::greedy_only("edit with a penalty", found));
        }
        if self.penalty > 0.0 && setup.options.constraint.is_some() {
            return Err(error::constrained("decoder edit with a penalty", "omit penalty"));
        }
        Ok(())
    }
}

/// The loop over blocks, inside of the penalty if there is one.
impl DecoderLoop for Edit {
    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        let blocks = Blockwise::new(Editing(*self), setup);
        if self.penalty == 0.0 {
            return Box::new(blocks);
        }
        let left = f64::from(-self.penalty).exp();
        Box::new(Penalised { blocks, left, predictions: Predictions::default() })
    }
}

/// The rule: takes every mask whose confidence is above `tau`, or else the first few of the order, and every token of the block
/// in whose place another one is predicted with a confidence above `edit`.
#[derive(Debug)]
struct Editing(Edit);

impl Transfer for Editing {
    fn ask(&self, ask: &mut HeadAsk) {
        ask.only_where = None;
    }

    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        let Self(Edit { tau, edit, post, least, .. }) = *self;
        if state.posts > post {
            return 0;
        }
        let masks = candidates.iter().filter(|candidate| candidate.held.is_none());
        let sure = masks.filter(|candidate| candidate.confidence > tau).count();
        let mut due = if sure < least { least } else { 0 };
        let mut is_taken = |candidate: &Candidate| match candidate.held {
            Some(held) => held != candidate.token && candidate.confidence > edit,
            None if due > 0 => {
                due -= 1;
                true
            }
            None => sure >= least && candidate.confidence > tau,
        };
        // Each candidate is asked once, in the order; those that are taken move to the front and keep it.
        let mut taken = 0;
        for index in 0..candidates.len() {
            if is_taken(&candidates[index]) {
                candidates[taken..=index].rotate_right(1);
                taken += 1;
            }
        }
        taken
    }

    /// Keeps by the same rule: so many masks at least, and what passes its threshold.
    fn keeps(&self, state: &State, wanted: &mut [Candidate]) -> usize {
        self.choose(state, wanted)
    }

    fn closes(&self, pass: &Pass) -> bool {
        pass.masks == 0 && (!pass.changed || (pass.posts >= self.0.post && !self.0.confirm))
    }
}

/// Predictions under a penalty on the token to the left: greedy ones, worked out from the two best tokens and the
/// probability of the one that is penalised.
#[derive(Debug)]
struct Penalised {
    blocks: Blockwise<Editing>,
    /// Share of its weight that the left neighbour keeps.
    left: f64,
    /// Predictions with the penalty, filled again in each forward.
    predictions: Predictions,
}

impl Penalised {
    /// The best token of a position and its probability, with the penalty.
    fn penalise(&self, neighbour: TokenId, probability: f64, best: &[(TokenId, f32)]) -> Option<(TokenId, f32)> {
        let rest = 1.0 - probability * (1.0 - self.left);
        let (token, found) = *best.first()?;
        let (mut token, mut weight) = (token, f64::from(found));
        if token == neighbour {
            weight = probability * self.left;
            let second = best.get(1).filter(|second| second.0 != NO_TOKEN);
            if let Some(&(other, found)) = second
                && (f64::from(found) > weight || f64::from(found) == weight && other < token)
            {
                (token, weight) = (other, f64::from(found));
            }
        }
        Some((token, (weight / rest) as f32))
    }

    /// Works out the predictions with the penalty: of all positions but the block's first.
    fn penalise_all(&mut self, view: &View<'_>, found: &Predictions) {
        let canvas = view.canvas;
        self.predictions.copy_tokens(found);
        let width = found.top.len() / found.tokens.len().max(1);
        let first = view.layout.block(view.block).start;
        for (index, position) in found.positions.iter().enumerate().filter(|&(_, position)| position > first) {
            let neighbour = canvas.tokens().get(position as usize - 1).copied().unwrap_or(canvas.mask_id());
            let judged = found.scores.get(index).map_or(0.0, |judged| f64::from(judged.log_probability).exp());
            let best = found.top.get(index * width..(index + 1) * width).unwrap_or(&[]);
            let penalised = self.penalise(neighbour, judged, best);
            let Predictions { tokens, confidence, .. } = &mut self.predictions;
            let place = tokens.get_mut(index).zip(confidence.get_mut(index));
            if let (Some((token, confidence)), Some(penalised)) = (place, penalised) {
                (*token, *confidence) = penalised;
            }
        }
    }
}

impl Decoder for Penalised {
    fn ask(&self, ask: &mut HeadAsk) {
        self.blocks.ask(ask);
        ask.wanted.top = ask.wanted.top.max(2);
        ask.wanted.score_width = 1;
    }

    fn reserve(&self, layout: &Layout, needs: &mut SequenceLimits) {
        self.blocks.reserve(layout, needs);
        needs.top = needs.top.max(2);
        needs.score_width = 1;
    }

    fn propose(&mut self, view: &View<'_>, query: &mut Query) -> Proposal {
        let proposal = self.blocks.propose(view, query);
        let (first, canvas) = (view.layout.block(view.block).start, view.canvas);
        // What stands before a block is not penalised: a mask stands for it, which weighs nothing.
        let neighbour = |position: Position| match position {
            position if position > first => canvas.tokens()[position as usize - 1],
            _ => canvas.mask_id(),
        };
        query.score.extend(query.predict.iter().map(neighbour));
        proposal
    }

    fn accept(&mut self, view: &View<'_>, answer: &Answer<'_>, context: &mut StepContext<'_>) -> StepResult {
        self.penalise_all(view, answer.predictions);
        self.blocks.accept(view, &Answer { predictions: &self.predictions, ..*answer }, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{schedule::Tick, transfer::candidates};

    const OFFICIAL: Edit =
        Edit { tau: 0.95, edit: 0.9, post: 2, least: 1, confirm: false, penalty: 0.0, confidence: Confidence::Clean };

    /// Positions that are taken of a block: confidence, and the token that stands there. 1 is predicted everywhere.
    fn chosen(rule: Edit, posts: usize, block: &[(f32, Option<u32>)]) -> Vec<u32> {
        let confidence: Vec<f32> = block.iter().map(|&(confidence, _)| confidence).collect();
        let mut candidates = candidates(&confidence);
        candidates.iter_mut().zip(block).for_each(|(candidate, &(_, held))| candidate.held = held);
        let tick = Tick { quota: 1, rate: 0.0 };
        let count = Editing(rule).choose(&State { posts, ..State::from(tick) }, &mut candidates);
        candidates[..count].iter().map(|candidate| candidate.position).collect()
    }

    #[test]
    fn masks_and_tokens_have_thresholds_of_their_own() {
        let block = [(0.96, None), (0.93, None), (0.93, Some(7)), (0.99, Some(1)), (0.9, Some(7)), (0.97, None)];
        assert_eq!(chosen(OFFICIAL, 0, &block), [0, 2, 5], "above, and another token");
        assert_eq!(chosen(Edit { edit: 1.0, ..OFFICIAL }, 0, &block), [0, 5]);
        assert_eq!(chosen(Edit { tau: 0.96, ..OFFICIAL }, 0, &block[..3]), [0, 2], "the first mask all the same");
        assert_eq!(chosen(Edit { least: 3, ..OFFICIAL }, 0, &block), [0, 1, 2, 5], "too few are sure");
        assert_eq!(chosen(OFFICIAL, 1, &[(f32::NAN, Some(7)), (0.5, Some(7))]), [] as [u32; 0]);
        assert_eq!(chosen(OFFICIAL, 3, &block), [] as [u32; 0], "after the budget nothing is taken");
    }

    #[test]
    fn a_block_is_closed_by_rest_or_by_its_budget() {
        let closes = |rule: Edit, masks, changed, posts| Editing(rule).closes(&Pass { masks, changed, posts });
        assert!(!closes(OFFICIAL, 1, false, 0) && !closes(OFFICIAL, 0, true, 1));
        assert!(closes(OFFICIAL, 0, false, 1) && closes(OFFICIAL, 0, true, 2));
        assert!(closes(Edit { post: 0, ..OFFICIAL }, 0, true, 0), "as soon as the masks are gone");
        let confirmed = Edit { confirm: true, ..OFFICIAL };
        assert!(!closes(confirmed, 0, true, 2) && closes(confirmed, 0, false, 3));
    }
}
