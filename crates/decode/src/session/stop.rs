//! End of a response, and of its decoding.

use demask_step::{Mask, Position, TokenId};

use crate::{canvas::Canvas, event::Finish, layout::Layout, method::SessionOptions, stop_rule::StopRule};

/// Masks that are filled with one token: all from a position on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fill {
    pub start: Position,
    pub token: TokenId,
}

/// Verdict of a stop rule on the next forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    GoOn,
    /// End: nothing more is decoded, but this is filled.
    Over(Option<Fill>),
}

/// Reason for which decoding is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GivenUp {
    /// The time is over.
    Deadline,
    /// No memory is left for the next position.
    Memory,
}

/// The stop rule of a session and the tokens that it has seen.
#[derive(Debug)]
pub(super) struct Ending {
    rule: StopRule,
    /// Token that the rule fills with.
    fill: TokenId,
    end_ids: Vec<TokenId>,
    /// Response tokens looked at for end ids, and the length up to and including the first one.
    scanned: usize,
    ended: Option<usize>,
    /// Position where a stop text ends the response.
    stopped: Option<usize>,
    /// Reason for which decoding was given up before the response was complete.
    given_up: Option<GivenUp>,
    /// The first block that the rule has not looked at.
    unchecked: usize,
    /// Records whether the response is a complete text wherever it ends.
    is_complete: bool,
}

impl Ending {
    pub(super) fn new(options: &SessionOptions) -> Self {
        let (rule, fill, is_complete) =
            (options.stop, options.fill, options.constraint.as_ref().is_some_and(|constraint| constraint.says_end));
        let end_ids = [&options.end_ids[..], &options.stop_ids].concat();
        Self { rule, fill, end_ids, scanned: 0, ended: None, stopped: None, given_up: None, unchecked: 0, is_complete }
    }

    /// Ends the response after `length` tokens.
    pub(super) fn stop_at(&mut self, length: usize) {
        self.stopped = Some(self.stopped.map_or(length, |stopped| stopped.min(length)));
    }

    /// Ends the response with its settled tokens. `completes` says that they are all of it.
    pub(super) fn give_up(&mut self, reason: GivenUp, completes: bool) {
        self.given_up = Some(reason);
        self.is_complete = completes;
    }

    /// Returns the reason for which decoding was given up.
    pub(super) fn given_up(&self) -> Option<GivenUp> {
        self.given_up
    }

    /// Returns whether the response was completed when its time was over.
    pub(super) fn is_completed(&self) -> bool {
        self.given_up == Some(GivenUp::Deadline) && self.is_complete
    }

    /// Number of leading tokens of the response that can no longer change and belong to the answer.
    pub(super) fn settled(&self, canvas: &Canvas, layout: &Layout) -> usize {
        let final_tokens = canvas.first_open().saturating_sub(layout.response());
        let end = self.ended.unwrap_or(usize::MAX).min(self.stopped.unwrap_or(usize::MAX));
        final_tokens.min(layout.gen_length()).min(end)
    }

    /// Reason why a response of this many tokens ends there.
    pub(super) fn finish(&self, length: usize) -> Finish {
        if self.stopped == Some(length) {
            Finish::Stop
        } else if self.ended == Some(length) {
            Finish::Eos
        } else if self.is_complete {
            Finish::Stop
        } else if self.given_up == Some(GivenUp::Deadline) {
            Finish::Deadline
        } else {
            Finish::Length
        }
    }

    /// Looks for end ids in what has settled.
    pub(super) fn look_back(&mut self, canvas: &Canvas, layout: &Layout) {
        if self.ended.is_some() {
            return;
        }
        let response = layout.response();
        let settled = self.settled(canvas, layout);
        let mut fresh = response + self.scanned..response + settled;
        self.ended = fresh.find(|&position| self.is_end(canvas, position)).map(|position| position + 1 - response);
        self.scanned = settled;
    }

    /// Applies the rules that look at what has settled.
    pub(super) fn of_prefix(&self, canvas: &Canvas) -> Verdict {
        match self.rule {
            StopRule::Prefix if self.ended.is_some() => Verdict::Over(None),
            StopRule::PrefixFill if self.ended.is_some() => {
                Verdict::Over(Some(Fill { start: canvas.first_open() as Position, token: self.fill }))
            }
            _ => Verdict::GoOn,
        }
    }

    /// Applies the rules that look at finished blocks: those before `block`.
    pub(super) fn of_blocks(&mut self, canvas: &Canvas, layout: &Layout, block: usize) -> Verdict {
        while self.unchecked < block {
            let finished = self.unchecked;
            self.unchecked += 1;
            if self.stops_behind(canvas, layout, finished) {
                let fill = Fill { start: layout.block(finished).end, token: self.fill };
                return Verdict::Over((self.rule == StopRule::WholeBlock).then_some(fill));
            }
        }
        Verdict::GoOn
    }

    /// Applies the rules that fill what lies after an end token and go on.
    pub(super) fn early(&self, canvas: &Canvas, layout: &Layout) -> Option<Fill> {
        let tokens = canvas.tokens();
        let is_decoded = |place: Position| !canvas.is_given(place) && !canvas.is_open(place);
        let decoded = |place: usize| tokens[place] == self.fill && is_decoded(place as Position);
        let (response, length) = (layout.response(), canvas.len());
        let start = match self.rule {
            StopRule::FillBehind => (response..length).find(|&place| decoded(place)),
            StopRule::EndRun(run) => {
                let (end, run) = (canvas.first_open(), run.max(1));
                let ends = response + run <= end && (end - run..end).all(decoded);
                (ends && canvas.masks() + end == layout.end()).then_some(end)
            }
            _ => return None,
        };
        start.map(|start| Fill { start: start as Position, token: self.fill })
    }

    /// Reports whether a block finished before this position ends decoding, or an end of a text that is written from left to
    /// right: drafts may have reached beyond it.
    pub(super) fn is_over_before(&self, canvas: &Canvas, layout: &Layout, position: Position) -> bool {
        if self.rule == StopRule::Prefix && layout.attention() == Mask::Causal {
            let mut fresh = layout.response() + self.scanned..position as usize;
            return fresh.any(|place| self.is_end(canvas, place));
        }
        let mut finished = self.unchecked..layout.block_of(position);
        finished.any(|block| canvas.is_complete(layout.block(block)) && self.stops_behind(canvas, layout, block))
    }

    /// Reports whether a finished block is one after which nothing is decoded.
    fn stops_behind(&self, canvas: &Canvas, layout: &Layout, block: usize) -> bool {
        let mut block = layout.block(block);
        match self.rule {
            StopRule::Block => (layout.response()..block.end as usize).any(|place| self.is_end(canvas, place)),
            StopRule::WholeBlock => block.all(|place| canvas.tokens()[place as usize] == self.fill),
            _ => false,
        }
    }

    /// Reports whether an end id was decoded at a position: given tokens end nothing.
    fn is_end(&self, canvas: &Canvas, position: usize) -> bool {
        !canvas.is_given(position as Position) && self.end_ids.contains(&canvas.tokens()[position])
    }
}
