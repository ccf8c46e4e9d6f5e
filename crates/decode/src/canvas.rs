//! The token sequence of one request: prompt, then positions that start as masks.

use std::ops::Range;

use demask_step::{NO_TOKEN, Position, Positions, TokenId};

use crate::event::Commit;

/// Tokens, and which of them are still to be decoded. A commit is never undone.
#[derive(Debug, Clone)]
pub struct Canvas {
    tokens: Vec<TokenId>,
    masked: Vec<bool>,
    /// Records whether a position was not masked at the start.
    given: Vec<bool>,
    masks: usize,
    mask_id: TokenId,
    /// Tokens of the unconditional twin, for classifier-free guidance: every token that was given is a mask.
    unconditional: Option<Vec<TokenId>>,
    /// No mask stands before this position.
    settled: usize,
}

impl Canvas {
    /// `tokens` followed by masks up to `length`. Tokens that equal `mask_id` are masks too.
    ///
    /// Without a mask id (autoregressive models) [`NO_TOKEN`] stands where nothing is decoded yet.
    pub fn new(tokens: &[TokenId], length: usize, mask_id: Option<TokenId>) -> Self {
        let mask_id = mask_id.unwrap_or(NO_TOKEN);
        let mut tokens = tokens.to_vec();
        tokens.resize(length.max(tokens.len()), mask_id);
        let masked: Vec<bool> = tokens.iter().map(|&token| token == mask_id).collect();
        let masks = masked.iter().filter(|&&masked| masked).count();
        let given = masked.iter().map(|&masked| !masked).collect();
        let mut canvas = Self { tokens, masked, given, masks, mask_id, unconditional: None, settled: 0 };
        canvas.settle();
        canvas
    }

    /// Keeps the unconditional twin as well: every position that is not masked now is a mask there for good (LLaDA
    /// `generate`, specs/caches.md#1.1).
    #[must_use]
    pub fn with_unconditional(mut self) -> Self {
        self.unconditional = Some(vec![self.mask_id; self.tokens.len()]);
        self
    }

    /// Writes a token into a masked position. Refused, with `false`, where no mask stands or if the token is none.
    pub fn commit(&mut self, position: Position, token: TokenId) -> bool {
        let index = position as usize;
        if !self.is_masked(position) || token == self.mask_id || token == NO_TOKEN {
            return false;
        }
        self.tokens[index] = token;
        self.masked[index] = false;
        self.masks -= 1;
        if let Some(unconditional) = &mut self.unconditional {
            unconditional[index] = token;
        }
        self.settle();
        true
    }

    /// All tokens, masks as the mask id.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The unconditional twin's tokens, if it is kept.
    pub fn unconditional(&self) -> Option<&[TokenId]> {
        self.unconditional.as_deref()
    }

    /// Number of positions.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Reports whether there is no position at all.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Reports whether a position is still to be decoded; positions outside the canvas are not.
    pub fn is_masked(&self, position: Position) -> bool {
        self.masked.get(position as usize).copied().unwrap_or(false)
    }

    /// Reports whether a position was never a mask: prompt, or a fixed token of an infill canvas.
    pub fn is_given(&self, position: Position) -> bool {
        self.given.get(position as usize).copied().unwrap_or(true)
    }

    /// Number of masks.
    pub fn masks(&self) -> usize {
        self.masks
    }

    /// Number of tokens that are not masks: it names the state of the canvas and keys its randomness.
    pub fn unmasked(&self) -> u32 {
        (self.tokens.len() - self.masks) as u32
    }

    /// The first mask, or the canvas length: no token before it can change any more.
    pub fn first_mask(&self) -> usize {
        self.settled
    }

    /// Reports whether a position is still to be decoded once these commits are written.
    pub fn is_masked_after(&self, position: Position, commits: &[Commit]) -> bool {
        self.is_masked(position) && commits.iter().all(|commit| commit.position != position)
    }

    /// The first mask once these commits are written, or the canvas length.
    pub fn first_mask_after(&self, commits: &[Commit]) -> usize {
        let open = |&position: &usize| self.is_masked_after(position as Position, commits);
        (self.settled..self.len()).find(open).unwrap_or(self.len())
    }

    /// Number of masks in a range.
    pub fn masks_in(&self, range: Range<Position>) -> usize {
        range.filter(|&position| self.is_masked(position)).count()
    }

    /// Reports whether a range has no mask left.
    pub fn is_complete(&self, range: Range<Position>) -> bool {
        range.into_iter().all(|position| !self.is_masked(position))
    }

    /// Replaces `out` by the masked positions of a range.
    pub fn masked_positions(&self, range: Range<Position>, out: &mut Positions) {
        out.clear();
        for position in range.filter(|&position| self.is_masked(position)) {
            out.push(position);
        }
    }

    fn settle(&mut self) {
        while self.masked.get(self.settled) == Some(&false) {
            self.settled += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_never_undone() {
        let mut canvas = Canvas::new(&[4, 5], 5, Some(9));
        assert_eq!((canvas.masks(), canvas.unmasked(), canvas.first_mask()), (3, 2, 2));
        assert!(canvas.commit(3, 7));
        assert!(!canvas.commit(3, 8), "a committed position");
        assert!(!canvas.commit(0, 8), "a prompt position");
        assert!(!canvas.commit(2, 9), "the mask itself");
        assert!(!canvas.commit(2, NO_TOKEN), "no token");
        assert!(!canvas.commit(99, 1), "outside");
        assert_eq!(canvas.tokens(), [4, 5, 9, 7, 9]);
        assert_eq!(canvas.first_mask(), 2);
        assert!(canvas.commit(2, 1));
        assert_eq!((canvas.masks(), canvas.first_mask()), (1, 4));
    }

    #[test]
    fn the_unconditional_twin_hides_what_was_given() {
        let mut canvas = Canvas::new(&[4, 9, 6, 9], 4, Some(9)).with_unconditional();
        canvas.commit(1, 5);
        assert_eq!(canvas.unconditional(), Some(&[9, 5, 9, 9][..]));
    }

    #[test]
    fn commits_to_come_open_nothing() {
        let canvas = Canvas::new(&[4, 9, 6, 9, 9], 5, Some(9));
        let commit = |position| Commit { position, token: 1, confidence: 1.0 };
        assert_eq!(
            [1, 2, 3, 4].map(|position| canvas.is_masked_after(position, &[commit(3)])),
            [true, false, false, true]
        );
        assert_eq!(canvas.first_mask_after(&[]), 1);
        assert_eq!(canvas.first_mask_after(&[commit(3), commit(1)]), 4);
        assert_eq!(canvas.first_mask_after(&[commit(3), commit(1), commit(4)]), 5);
    }

    #[test]
    fn masked_positions_of_a_range() {
        let canvas = Canvas::new(&[4, 9, 6, 9], 4, Some(9));
        let mut positions = Positions::new();
        canvas.masked_positions(0..4, &mut positions);
        assert_eq!(positions.as_slice(), [1, 3]);
        assert!(canvas.is_complete(2..3));
        assert_eq!(canvas.masks_in(2..4), 1);
    }
}
