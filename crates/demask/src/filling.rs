//! The holes of a text that is filled, and the text that comes into them.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use demask_checkpoint::Tokenizer;
use demask_decode::Session;

use crate::{RunEvent, answer::Tell};

/// The holes of a text, and which of them were reported. A prompt that is answered behind its end has none.
pub(crate) struct Filling {
    /// Positions of the canvas.
    holes: Vec<Range<usize>>,
    tokenizer: Option<Arc<Tokenizer>>,
    /// Records whether the text of each hole was reported.
    told: Vec<bool>,
}

impl Filling {
    /// Creates the state of these holes.
    pub(crate) fn new(holes: Vec<Range<usize>>, tokenizer: Option<&Arc<Tokenizer>>) -> Self {
        Self { told: vec![false; holes.len()], holes, tokenizer: tokenizer.cloned() }
    }

    /// Returns whether anything is filled.
    pub(crate) fn is_some(&self) -> bool {
        !self.holes.is_empty()
    }

    /// Returns where the holes are.
    pub(crate) fn holes(&self) -> &[Range<usize>] {
        &self.holes
    }

    /// Reports the holes that are complete: no token of theirs can change any more.
    pub(crate) fn look(&mut self, session: &Session, tell: &mut Tell<'_>) -> ControlFlow<()> {
        for index in 0..self.holes.len() {
            if !self.told[index] && session.is_complete(self.holes[index].clone()) {
                self.told[index] = true;
                tell(RunEvent::Hole { index, text: &self.text(session, index) })?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the text of each hole, as far as it is filled.
    pub(crate) fn texts(&self, session: &Session) -> Vec<String> {
        (0..self.holes.len()).map(|index| self.text(session, index)).collect()
    }

    /// The text of a hole without special tokens, and without what is not filled yet.
    fn text(&self, session: &Session, index: usize) -> String {
        let Some(tokenizer) = &self.tokenizer else { return String::new() };
        let filled = self.holes[index].clone().filter(|&position| session.is_complete(position..position + 1));
        let tokens: Vec<_> = filled.map(|position| session.canvas()[position]).collect();
        tokenizer.decode(&tokens, true)
    }
}
