//! The token sequence of one request: prompt, then positions that start as masks.

use std::ops::Range;

use demask_step::{NO_TOKEN, Position, Positions, TokenId};

use crate::event::Commit;

/// Tokens, and which of them are still open. A commit is never undone, but for a canvas that is
/// [open to revision](Self::open_to_revision): there a token may be replaced, or taken back, until its block is closed.
#[derive(Debug, Clone)]
pub struct Canvas {
    tokens: Vec<TokenId>,
    masked: Vec<bool>,
    /// Records whether a position was not masked at the start.
    given: Vec<bool>,
    masks: usize,
    mask_id: TokenId,
    /// Tokens of the unconditional sequence, for classifier-free guidance: every token that was given is a mask.
    unconditional: Option<Vec<TokenId>>,
    /// Nothing before this position is open.
    settled: usize,
    /// End of the closed positions, on a canvas whose tokens may be revised. None where a commit is final.
    closed: Option<usize>,
    /// Tokens that were given, and writes since then.
    writes: u32,
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
        let given: Vec<bool> = masked.iter().map(|&masked| !masked).collect();
        let writes = (tokens.len() - masks) as u32;
        let mut canvas =
            Self { tokens, masked, given, masks, mask_id, unconditional: None, settled: 0, closed: None, writes };
        canvas.settle();
        canvas
    }

    /// `tokens`, masks, and `tail` up to `length`: fixed tokens after everything that is decoded.
    pub fn with_tail(tokens: &[TokenId], length: usize, tail: &[TokenId], mask_id: Option<TokenId>) -> Self {
        if tail.is_empty() {
            return Self::new(tokens, length, mask_id);
        }
        let mut all = tokens.to_vec();
        all.resize(length.saturating_sub(tail.len()).max(tokens.len()), mask_id.unwrap_or(NO_TOKEN));
        all.extend_from_slice(tail);
        Self::new(&all, length, mask_id)
    }

    /// Keeps the unconditional sequence as well: every position that is not masked now is a mask there for good (LLaDA
    /// `generate`, specs/caches.md#1.1).
    #[must_use]
    pub fn with_unconditional(mut self) -> Self {
        self.unconditional = Some(vec![self.mask_id; self.tokens.len()]);
        self
    }

    /// Leaves tokens that are written open until their block is [closed](Self::close).
    #[must_use]
    pub fn open_to_revision(self) -> Self {
        Self { closed: Some(0), ..self }
    }

    /// Writes a token into a masked position. Refused, with `false`, where no mask stands or if the token is none.
    pub fn commit(&mut self, position: Position, token: TokenId) -> bool {
        if !self.is_masked(position) || token == self.mask_id || token == NO_TOKEN {
            return false;
        }
        self.masks -= 1;
        self.write(position as usize, token);
        self.settle();
        true
    }

    /// Writes another token over one that is open, or a mask if there is none, and returns what stood there. Refused where
    /// nothing was written that is open, or if it would be the same.
    pub fn replace(&mut self, position: Position, token: Option<TokenId>) -> Option<TokenId> {
        let before = self.tokens.get(position as usize).copied()?;
        let stays = token.is_some_and(|token| [before, self.mask_id, NO_TOKEN].contains(&token));
        if stays || self.is_masked(position) || !self.is_open(position) {
            return None;
        }
        self.masks += usize::from(token.is_none());
        self.write(position as usize, token.unwrap_or(self.mask_id));
        Some(before)
    }

    /// Closes everything before a position: tokens that were written there are final.
    pub fn close(&mut self, end: Position) {
        self.closed = self.closed.map(|closed| closed.max(end as usize));
        self.settle();
    }

    fn write(&mut self, index: usize, token: TokenId) {
        self.tokens[index] = token;
        self.masked[index] = token == self.mask_id;
        self.writes += 1;
        if let Some(unconditional) = &mut self.unconditional {
            unconditional[index] = token;
        }
    }

    /// All tokens, masks as the mask id.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The mask id.
    pub fn mask_id(&self) -> TokenId {
        self.mask_id
    }

    /// The unconditional sequence's tokens, if it is kept.
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

    /// Reports whether a position may still change: a mask stands there, or a token that is open to revision.
    pub fn is_open(&self, position: Position) -> bool {
        self.is_masked(position)
            || self.closed.is_some_and(|closed| position as usize >= closed) && !self.is_given(position)
    }

    /// Number of masks.
    pub fn masks(&self) -> usize {
        self.masks
    }

    /// Number of tokens that were given, and of writes since then: it names the state of the canvas and keys its randomness.
    /// Where a commit is final it is the number of tokens that are not masks.
    pub fn writes(&self) -> u32 {
        self.writes
    }

    /// The first open position, or the canvas length: no token before it can change any more.
    pub fn first_open(&self) -> usize {
        self.settled
    }

    /// Reports whether a position is still open once these commits are written, on a canvas where they are final.
    pub fn is_open_after(&self, position: Position, commits: &[Commit]) -> bool {
        self.is_open(position) && commits.iter().all(|commit| commit.position != position)
    }

    /// The first open position once these commits are written, or the canvas length.
    pub fn first_open_after(&self, commits: &[Commit]) -> usize {
        let open = |&position: &usize| self.is_open_after(position as Position, commits);
        (self.settled..self.len()).find(open).unwrap_or(self.len())
    }

    /// Number of masks in a range.
    pub fn masks_in(&self, range: Range<Position>) -> usize {
        range.filter(|&position| self.is_masked(position)).count()
    }

    /// Reports whether nothing in a range can change any more.
    pub fn is_complete(&self, range: Range<Position>) -> bool {
        range.into_iter().all(|position| !self.is_open(position))
    }

    /// Replaces `out` by the open positions of a range.
    pub fn open_positions(&self, range: Range<Position>, out: &mut Positions) {
        out.clear();
        for position in range.filter(|&position| self.is_open(position)) {
            out.push(position);
        }
    }

    fn settle(&mut self) {
        while self.settled < self.len() && !self.is_open(self.settled as Position) {
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
        assert_eq!((canvas.masks(), canvas.writes(), canvas.first_open()), (3, 2, 2));
        assert!(canvas.commit(3, 7));
        assert!(!canvas.commit(3, 8), "a committed position");
        assert!(!canvas.commit(0, 8), "a prompt position");
        assert!(!canvas.commit(2, 9), "the mask itself");
        assert!(!canvas.commit(2, NO_TOKEN), "no token");
        assert!(!canvas.commit(99, 1), "outside");
        assert_eq!(canvas.tokens(), [4, 5, 9, 7, 9]);
        assert_eq!(canvas.first_open(), 2);
        assert!(canvas.commit(2, 1));
        assert_eq!((canvas.masks(), canvas.first_open()), (1, 4));
    }

    #[test]
    fn a_tail_was_given_and_never_opens() {
        let canvas = Canvas::with_tail(&[4, 5], 6, &[7], Some(9));
        assert_eq!((canvas.tokens(), canvas.masks(), canvas.writes()), (&[4, 5, 9, 9, 9, 7][..], 3, 3));
        assert!(canvas.is_given(5) && !canvas.is_open(5));
        assert_eq!(Canvas::with_tail(&[4, 9], 3, &[7], Some(9)).tokens(), [4, 9, 7]);
    }

    #[test]
    fn what_is_open_to_revision_changes_until_it_is_closed() {
        let mut canvas = Canvas::new(&[4], 4, Some(9)).with_unconditional().open_to_revision();
        assert_eq!(canvas.replace(1, Some(5)), None, "a mask");
        assert!(canvas.commit(1, 5) && canvas.commit(2, 6));
        assert_eq!((canvas.first_open(), canvas.is_complete(1..3)), (1, false));
        for (position, token) in [(0, 8), (1, 5), (1, 9), (1, NO_TOKEN), (7, 1)] {
            assert_eq!(canvas.replace(position, Some(token)), None, "{token} at {position}");
        }
        assert_eq!((canvas.replace(1, Some(7)), canvas.replace(2, None)), (Some(5), Some(6)));
        assert_eq!((canvas.tokens(), canvas.unconditional()), (&[4, 7, 9, 9][..], Some(&[9, 7, 9, 9][..])));
        assert_eq!((canvas.masks(), canvas.writes()), (2, 5), "each write is one");
        canvas.close(3);
        assert_eq!((canvas.first_open(), canvas.replace(1, Some(8))), (2, None), "a mask stays open");
        assert!(canvas.commit(2, 6));
        assert_eq!((canvas.first_open(), canvas.replace(2, None)), (3, None));
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
            [1, 2, 3, 4].map(|position| canvas.is_open_after(position, &[commit(3)])),
            [true, false, false, true]
        );
        assert_eq!(canvas.first_open_after(&[]), 1);
        assert_eq!(canvas.first_open_after(&[commit(3), commit(1)]), 4);
        assert_eq!(canvas.first_open_after(&[commit(3), commit(1), commit(4)]), 5);
    }

    #[test]
    fn masked_positions_of_a_range() {
        let canvas = Canvas::new(&[4, 9, 6, 9], 4, Some(9));
        let mut positions = Positions::new();
        canvas.open_positions(0..4, &mut positions);
        assert_eq!(positions.as_slice(), [1, 3]);
        assert!(canvas.is_complete(2..3));
        assert_eq!(canvas.masks_in(2..4), 1);
    }
}
