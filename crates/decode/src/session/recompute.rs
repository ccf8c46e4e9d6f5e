//! Recomputation of slots whose memory was given up: the K/V of settled tokens are computed again, before the forward that was
//! pending.

use std::ops::Range;

use demask_step::{ForwardInput, Mask, Position, SequenceLimits, TokenId};

/// Rows of one recomputing forward, at most, where the session's own forwards have fewer.
const ROWS: usize = 512;

/// Slots that are to be computed again, or found where other requests left them.
#[derive(Debug)]
pub(super) struct Recompute {
    /// End of the lost slots: the first live row of the forward that is pending.
    end: Position,
    /// The next forward; without rows before the sequence is open again.
    request: ForwardInput,
    /// Most rows of a forward.
    rows: usize,
}

impl Recompute {
    /// Slots up to `end` of the sequence with this index are lost. Its needs are raised to those of recomputing forwards, and
    /// memory for `visible` positions is taken with its opening.
    pub(super) fn new(sequence: usize, needs: &mut SequenceLimits, end: Position, visible: Position) -> Self {
        needs.opens_with = Some(visible as usize);
        needs.rows = needs.rows.max(ROWS.min(needs.positions));
        needs.group_rows = needs.group_rows.max(needs.rows);
        Self { end, request: ForwardInput { sequence, ..ForwardInput::default() }, rows: needs.rows }
    }

    /// Returns the end of the lost slots.
    pub(super) fn end(&self) -> Position {
        self.end
    }

    /// Returns the next forward.
    pub(super) fn request(&self) -> &ForwardInput {
        &self.request
    }

    /// Fills the next forward, whose slots before `from` are there; `false` if none is missing.
    pub(super) fn fill(&mut self, from: Position, tokens: &[TokenId], mask: Mask) -> bool {
        if from >= self.end {
            return false;
        }
        let rows = self.rows_from(from, mask);
        let (plan, end) = (&mut self.request.plan, rows.end);
        plan.clear();
        self.request.tokens.clear();
        self.request.tokens.extend_from_slice(&tokens[rows.start as usize..end as usize]);
        plan.query.set_range(rows);
        (plan.kv_len, plan.mask) = (end, mask);
        true
    }

    /// Returns the rows of a forward: none of them sees a later row than the last.
    fn rows_from(&self, from: Position, mask: Mask) -> Range<Position> {
        let ends = |&end: &Position| mask.limit(end - 1, self.end) <= end;
        let most = self.end.min(from.saturating_add(self.rows as Position));
        let end = (from + 1..=most).rev().find(ends).or_else(|| (most..self.end).find(ends));
        from..end.unwrap_or(self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(rows: usize, from: Position, end: Position, mask: Mask) -> Vec<Range<Position>> {
        let tokens: Vec<TokenId> = (0..end).collect();
        let mut recompute = Recompute { end, request: ForwardInput::default(), rows };
        let (mut parts, mut from) = (Vec::new(), from);
        while recompute.fill(from, &tokens, mask) {
            let ForwardInput { tokens, plan, .. } = recompute.request();
            let (first, last) = (plan.query.first().unwrap(), plan.query.last().unwrap());
            assert_eq!(
                (tokens.first(), tokens.last()),
                (Some(&first), Some(&last)),
                "tokens are named by their positions"
            );
            from = plan.kv_len;
            parts.push(first..from);
        }
        parts
    }

    #[test]
    fn forwards_end_where_no_row_sees_further() {
        assert_eq!(parts(5, 3, 12, Mask::Causal), [3..8, 8..12]);
        assert_eq!(parts(10, 0, 24, Mask::blocks(4)), [0..8, 8..16, 16..24]);
        // A block that is longer than a forward runs as a whole.
        assert_eq!(parts(3, 0, 8, Mask::blocks(4)), [0..4, 4..8]);
        let offset = Mask::BlockCausal { block: 4, offset: 1 };
        assert_eq!(parts(6, 0, 11, offset), [0..3, 3..7, 7..11]);
        assert!(parts(6, 11, 11, offset).is_empty());
    }
}
