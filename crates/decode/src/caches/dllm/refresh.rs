//! Schedule by which a sequence's prompt and response are computed again.

use demask_step::{Position, Positions};

use crate::{choices, event::Commit, step::View};

choices! {
    /// Origin from which the forwards to a refresh of the response are counted.
    pub enum CountFrom {
        /// Count from the first forward, as released.
        Up = "up",
        /// Count from the last step of a fixed number of steps, as published; the first forward always refreshes.
        Down = "down",
    }
}

choices! {
    /// Unit in which intervals are counted.
    pub enum Count {
        /// Forwards.
        Forwards = "forwards",
        /// Committed tokens, so that intervals mean the same under every decoder.
        Tokens = "tokens",
    }
}

/// Rule by which a refresh is due.
#[derive(Debug)]
pub(super) struct Intervals {
    pub phase: CountFrom,
    pub count: Count,
    /// Forwards, or tokens, from one refresh to the next.
    pub prompt: usize,
    pub response: usize,
    /// Forwards of the whole decoding, if their number is fixed.
    pub steps: usize,
}

/// Parts that a forward computes again as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub prompt: bool,
    pub response: bool,
}

/// Record of a sequence since its parts were computed.
#[derive(Debug)]
pub(super) struct Track {
    /// Forwards so far, over all blocks.
    forwards: usize,
    /// Tokens committed since the prompt was computed, and since the response was.
    prompt_tokens: usize,
    response_tokens: usize,
    /// Positions committed since their rows were computed.
    pub stale: Positions,
}

impl Track {
    pub(super) fn with_capacity(positions: usize) -> Self {
        Self { forwards: 0, prompt_tokens: 0, response_tokens: 0, stale: Positions::with_capacity(positions) }
    }

    /// Returns the number of the forward that comes, from 0.
    pub(super) fn forward(&self) -> usize {
        self.forwards
    }

    /// Returns the parts, prompt and response, that the next forward computes as a whole.
    pub(super) fn due(&self, rule: &Intervals) -> Due {
        let first = self.forwards == 0;
        let counted = |every: usize, tokens: usize| match (rule.count, rule.phase) {
            (Count::Tokens, _) => tokens >= every,
            // Counted from the last step, which is number 1, to the first.
            (Count::Forwards, CountFrom::Down) => rule.steps.saturating_sub(self.forwards).is_multiple_of(every),
            (Count::Forwards, CountFrom::Up) => self.forwards.is_multiple_of(every),
        };
        Due {
            prompt: first || counted(rule.prompt, self.prompt_tokens),
            response: first || counted(rule.response, self.response_tokens),
        }
    }

    /// Notes the rows of the planned forward: the parts that are due, and these rows besides.
    pub(super) fn plan(&mut self, due: Due, computed: &Positions) {
        if due.prompt {
            self.prompt_tokens = 0;
        }
        if due.response {
            self.response_tokens = 0;
            self.stale.clear();
        } else {
            self.stale.retain(|position| !computed.contains(position));
        }
    }

    /// Notes that the planned forward was run.
    pub(super) fn ran(&mut self) {
        self.forwards += 1;
    }

    /// Notes commits: a forward's on the canvas, or those that a draft holds before it is run.
    pub(super) fn committed(&mut self, commits: &[Commit]) {
        self.prompt_tokens += commits.len();
        self.response_tokens += commits.len();
        for commit in commits {
            self.stale.insert(commit.position);
        }
    }
}

/// The first block that still has masks with these commits on the canvas; the last block if there is no mask.
pub(super) fn block(view: &View<'_>, held: &[Commit]) -> usize {
    let first = view.canvas.first_open_after(held).min(view.canvas.len().saturating_sub(1));
    view.layout.block_of(first as Position)
}
