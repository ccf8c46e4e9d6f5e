//! Filling and editing in one pass: masks that are sure enough get their tokens, and tokens of which another prediction is
//! sure enough are replaced (LLaDA2.1 `generate`, SGLang JointThreshold; specs/families.md#6.6).

use demask_step::HeadAsk;

use super::{Candidate, Pass, State, Transfer};

/// Takes every mask whose confidence lies above a threshold, or else the first few of the order, and every other token of
/// the block than the one that stands there, if its confidence lies above another threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edit {
    /// The confidence that fills a mask must lie above this.
    pub tau: f32,
    /// The confidence that replaces a token must lie above this.
    pub edit: f32,
    /// Masks that are filled at least.
    pub least: usize,
    /// Passes over a block without masks that may change it, at most.
    pub post: usize,
    /// Rule if these are over. `false`: the block is closed. `true`: one pass more, of which nothing is taken.
    pub confirm: bool,
}

impl Transfer for Edit {
    fn ask(&self, ask: &mut HeadAsk) {
        ask.only_where = None;
    }

    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        if state.posts > self.post {
            return 0;
        }
        let masks = candidates.iter().filter(|candidate| candidate.held.is_none());
        let sure = masks.filter(|candidate| candidate.confidence > self.tau).count();
        let mut due = if sure < self.least { self.least } else { 0 };
        let mut is_taken = |candidate: &Candidate| match candidate.held {
            Some(held) => held != candidate.token && candidate.confidence > self.edit,
            None if due > 0 => {
                due -= 1;
                true
            }
            None => sure >= self.least && candidate.confidence > self.tau,
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

    fn closes(&self, pass: &Pass) -> bool {
        pass.masks == 0 && (!pass.changed || (pass.posts >= self.post && !self.confirm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{schedule::Tick, transfer::candidates};

    const OFFICIAL: Edit = Edit { tau: 0.95, edit: 0.9, least: 1, post: 2, confirm: false };

    /// Positions that are taken of a block: confidence, and the token that stands there. 1 is predicted everywhere.
    fn taken(rule: Edit, posts: usize, block: &[(f32, Option<u32>)]) -> Vec<u32> {
        let confidence: Vec<f32> = block.iter().map(|&(confidence, _)| confidence).collect();
        let mut candidates = candidates(&confidence);
        candidates.iter_mut().zip(block).for_each(|(candidate, &(_, held))| candidate.held = held);
        let tick = Tick { quota: 1, rate: 0.0 };
        let count = rule.choose(&State { posts, ..State::from(tick) }, &mut candidates);
        candidates[..count].iter().map(|candidate| candidate.position).collect()
    }

    #[test]
    fn masks_and_tokens_have_thresholds_of_their_own() {
        let block = [(0.96, None), (0.93, None), (0.93, Some(7)), (0.99, Some(1)), (0.9, Some(7)), (0.97, None)];
        assert_eq!(taken(OFFICIAL, 0, &block), [0, 2, 5], "above, and another token");
        assert_eq!(taken(Edit { edit: 1.0, ..OFFICIAL }, 0, &block), [0, 5]);
        assert_eq!(taken(Edit { tau: 0.96, ..OFFICIAL }, 0, &block[..3]), [0, 2], "the first mask all the same");
        assert_eq!(taken(Edit { least: 3, ..OFFICIAL }, 0, &block), [0, 1, 2, 5], "too few are sure");
        assert_eq!(taken(OFFICIAL, 1, &[(f32::NAN, Some(7)), (0.5, Some(7))]), [] as [u32; 0]);
        assert_eq!(taken(OFFICIAL, 3, &block), [] as [u32; 0], "behind the budget nothing is taken");
    }

    #[test]
    fn a_block_is_closed_by_rest_or_by_its_budget() {
        let closes = |rule: Edit, masks, changed, posts| rule.closes(&Pass { masks, changed, posts });
        assert!(!closes(OFFICIAL, 1, false, 0) && !closes(OFFICIAL, 0, true, 1));
        assert!(closes(OFFICIAL, 0, false, 1) && closes(OFFICIAL, 0, true, 2));
        assert!(closes(Edit { post: 0, ..OFFICIAL }, 0, true, 0), "as soon as the masks are gone");
        let confirmed = Edit { confirm: true, ..OFFICIAL };
        assert!(!closes(confirmed, 0, true, 2) && closes(confirmed, 0, false, 3));
    }
}
