//! Pieces of a request: leading rows that may run in a forward of their own, before the rows that follow them.

use std::ops::Range;

use crate::{ForwardInput, Lanes, LayerRows, Position, Positions, Predictions, StepPlan};

impl StepPlan {
    /// Returns the end of the longest piece of at most `most` rows that starts at row `from`: no row of it sees a row that
    /// follows it, so that its result does not depend on when those run. If `most` is too small for any, it is the
    /// shortest one. Where nothing can be cut, as under full attention, in drafts and in partly computed layers, it is
    /// the end of all rows.
    pub fn piece_end(&self, from: usize, most: usize) -> usize {
        let (live, rows) = (self.query.as_slice(), self.query.len());
        let cannot = self.lanes != Lanes::Canvas || self.layers != LayerRows::All;
        let sees = |row: usize| self.mask.limit(live[row], self.kv_len);
        if cannot || rows.saturating_sub(from) <= most || sees(from) > live[rows - 1] {
            return rows;
        }
        let ends = |&end: &usize| sees(end - 1) <= live[end];
        let longest = (from + 1..=from + most).rev().find(ends);
        longest.or_else(|| (from + most + 1..rows).find(ends)).unwrap_or(rows)
    }
}

impl ForwardInput {
    /// Fills `piece` with these rows of the canvas, for a model whose own shift is `own`: what they predict is asked with
    /// them, and drafts are kept with the first ones.
    pub fn fill_piece(&self, rows: Range<usize>, own: Position, piece: &mut Self) {
        let (whole, plan) = (&self.plan, &mut piece.plan);
        let is_last = rows.end == whole.query.len();
        plan.clear();
        whole.query.as_slice()[rows.clone()].iter().for_each(|&position| plan.query.push(position));
        plan.kv_len = match plan.query.last() {
            Some(last) if !is_last => whole.mask.limit(last, whole.kv_len),
            _ => whole.kv_len,
        };
        (plan.mask, plan.shift) = (whole.mask, whole.shift);
        if rows.start == 0 {
            plan.retain.clone_from(&whole.retain);
        }
        // A row that is not live is the last piece's mistake, as it was the request's.
        let row = |position| whole.query.rank(whole.predictor(position, own)).unwrap_or(whole.query.len() - 1);
        let parts = [(&mut plan.predict, &whole.predict), (&mut plan.must, &whole.must), (&mut plan.hint, &whole.hint)];
        for (part, all) in parts {
            all.iter().filter(|&position| rows.contains(&row(position))).for_each(|position| part.push(position));
        }
        piece.sequence = self.sequence;
        piece.tokens.clear();
        piece.tokens.extend_from_slice(&self.tokens[rows.clone()]);
        piece.blend = self.blend;
        piece.ask.wanted = self.ask.wanted.clone();
        piece.ask.only_where = self.ask.only_where;
        piece.ask.states.clone_from(&self.ask.states);
        piece.ask.in_order = self.ask.in_order;
        piece.ask.score.clear();
        let width = self.ask.wanted.score_width;
        if width > 0 {
            let mut wanted = Positions::new();
            wanted.set_union(&[&whole.predict, &whole.must, &whole.hint]);
            let judged = wanted.iter().zip(self.ask.score.chunks(width));
            let own = judged.filter(|&(position, _)| rows.contains(&row(position)));
            own.for_each(|(_, tokens)| piece.ask.score.extend_from_slice(tokens));
        }
    }
}

impl Predictions {
    /// Appends the predictions of the next piece of the same request.
    pub fn append(&mut self, next: &Self) {
        self.lanes = next.lanes;
        next.positions.iter().for_each(|position| self.positions.push(position));
        self.tokens.extend_from_slice(&next.tokens);
        self.confidence.extend_from_slice(&next.confidence);
        self.margin.extend_from_slice(&next.margin);
        self.entropy.extend_from_slice(&next.entropy);
        self.top.extend_from_slice(&next.top);
        self.scores.extend_from_slice(&next.scores);
        self.logits.extend_from_slice(&next.logits);
        self.cost += next.cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeadAsk, HeadRequest, Mask, Retain};

    fn plan(mask: Mask, live: Range<Position>) -> StepPlan {
        StepPlan { kv_len: live.end, query: live.into(), mask, ..StepPlan::default() }
    }

    /// Ends of the pieces of at most so many rows.
    fn ends(plan: &StepPlan, most: usize) -> Vec<usize> {
        let mut ends = vec![plan.piece_end(0, most)];
        while ends[ends.len() - 1] < plan.query.len() {
            ends.push(plan.piece_end(ends[ends.len() - 1], most));
        }
        ends
    }

    #[test]
    fn causal_rows_are_cut_anywhere_and_blocks_between_them() {
        assert_eq!(ends(&plan(Mask::Causal, 3..13), 4), [4, 8, 10]);
        assert_eq!(ends(&plan(Mask::Causal, 3..13), 10), [10]);
        assert_eq!(ends(&plan(Mask::blocks(4), 8..20), 7), [4, 8, 12]);
        assert_eq!(ends(&plan(Mask::blocks(4), 8..20), 9), [8, 12]);
        // The first block has one position.
        assert_eq!(ends(&plan(Mask::BlockCausal { block: 4, offset: 3 }, 0..9), 6), [5, 9]);
    }

    #[test]
    fn a_block_longer_than_a_piece_is_a_piece() {
        assert_eq!(ends(&plan(Mask::blocks(32), 0..96), 5), [32, 64, 96]);
        assert_eq!(ends(&plan(Mask::Causal, 0..3), 0), [1, 2, 3]);
    }

    #[test]
    fn rows_that_see_what_follows_them_are_not_cut() {
        assert_eq!(ends(&plan(Mask::Full, 0..100), 10), [100]);
        // A block over a causal context: the context alone is cut.
        assert_eq!(ends(&plan(Mask::Context { context: 20, block: 8 }, 0..28), 8), [8, 16, 20, 28]);
        let drafts = StepPlan { lanes: Lanes::Drafts(1), ..plan(Mask::Causal, 0..100) };
        assert_eq!(ends(&drafts, 10), [100]);
        let layers = LayerRows::Partial { compute: Positions::new(), probe: None, first_whole: false };
        assert_eq!(ends(&StepPlan { layers, ..plan(Mask::Causal, 0..100) }, 10), [100]);
    }

    #[test]
    fn pieces_ask_together_what_the_request_asks() {
        for (shift, own) in [(None, 0), (None, 1), (Some(0), 1)] {
            let step = StepPlan {
                shift,
                retain: Some(Retain { lane: 0, positions: (1..2).into() }),
                predict: [4, 7, 11].into_iter().collect(),
                must: (8..9).into(),
                ..plan(Mask::Causal, 2..12)
            };
            let judge = (100..108).collect();
            let wanted = HeadRequest { score_width: 2, ..HeadRequest::default() };
            let ask = HeadAsk { wanted, score: judge, states: vec![9], in_order: true, ..HeadAsk::default() };
            let whole = ForwardInput { sequence: 3, tokens: (2..12).collect(), plan: step, ask, blend: None };
            let (mut at, mut pieces, mut piece) = (0, Vec::new(), ForwardInput::default());
            while at < 10 {
                let end = whole.plan.piece_end(at, 3);
                whole.fill_piece(at..end, own, &mut piece);
                assert_eq!(piece.plan.kv_len as usize, 2 + end, "a piece sees up to its own end");
                assert_eq!((piece.sequence, &piece.ask.states, piece.ask.in_order), (3, &whole.ask.states, true));
                assert_eq!(piece.plan.retain.is_some(), at == 0);
                for position in piece.plan.predict.iter().chain(piece.plan.must.iter()) {
                    assert!(piece.plan.query.contains(piece.plan.predictor(position, own)), "its row is there");
                }
                assert_eq!(piece.ask.score.len(), 2 * piece.plan.predictions());
                pieces.push(piece.clone());
                at = end;
            }
            let joined = |of: fn(&ForwardInput) -> Vec<u32>| pieces.iter().flat_map(of).collect::<Vec<_>>();
            assert_eq!(joined(|piece| piece.tokens.clone()), whole.tokens);
            assert_eq!(joined(|piece| piece.ask.score.clone()), whole.ask.score);
            assert_eq!(joined(|piece| piece.plan.predict.as_slice().to_vec()), whole.plan.predict.as_slice());
            assert_eq!(joined(|piece| piece.plan.must.as_slice().to_vec()), [8]);
        }
    }

    #[test]
    fn predictions_of_pieces_are_those_of_the_request() {
        let of = |positions: Range<Position>| Predictions {
            lanes: 1,
            tokens: positions.clone().collect(),
            confidence: positions.clone().map(|position| position as f32).collect(),
            top: positions.clone().flat_map(|position| [(position, 0.5), (position, 0.25)]).collect(),
            positions: positions.into(),
            ..Predictions::default()
        };
        let mut all = Predictions::default();
        for next in [of(3..3), of(3..5), of(5..9)] {
            all.append(&next);
        }
        assert_eq!(all, of(3..9));
    }
}
