//! Pieces of a job's first pending group: the rows that have run, and their predictions so far.

use demask_step::{ForwardInput, Position, Predictions};

/// Progress of a job's first pending group through its pieces. Nothing is cut until [`prepare`](Self::prepare) is called.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Rows of each request that have run.
    done: usize,
    /// Rows of each request that have run once the prepared piece has.
    end: usize,
    /// Rows of each request.
    rows: usize,
    /// Inputs of the prepared piece, and the predictions of the pieces so far, input by input.
    requests: Vec<ForwardInput>,
    answers: Vec<Predictions>,
}

/// The part of a group that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Rows of all its requests.
    pub(crate) rows: usize,
    /// End of the piece in each request; none if it is the whole group.
    pub(crate) end: Option<usize>,
}

/// Rows of a group.
pub(crate) fn rows(group: &[ForwardInput]) -> usize {
    group.iter().map(|request| request.tokens.len()).sum()
}

/// Returns where a piece of a group ends that starts at a row of its requests and has at most so many rows of each. They
/// are cut alike: where they differ, nothing is cut.
fn end(group: &[ForwardInput], from: usize, most: usize) -> Option<usize> {
    let (first, others) = group.split_first()?;
    let (live, end) = (&first.plan.query, first.plan.piece_end(from, most));
    let alike = |other: &ForwardInput| other.plan.piece_end(from, most) == end && other.plan.query == *live;
    let is_cut = first.tokens.len() == live.len() && (from > 0 || end < live.len());
    (is_cut && others.iter().all(alike)).then_some(end)
}

/// Reports whether a group has more rows than a piece may have and can be cut.
pub(crate) fn is_long(group: &[ForwardInput], most: usize) -> bool {
    rows(group) > most && end(group, 0, most / group.len()).is_some()
}

/// Reports whether a group has a row before which it can be cut.
pub(crate) fn can_be_cut(group: &[ForwardInput]) -> bool {
    end(group, 0, 1).is_some()
}

impl Pieces {
    /// Returns the part of the first group that may run next in a forward that has room for so many rows of it, or the
    /// shortest one if there is none.
    pub(crate) fn next(&self, group: &[ForwardInput], most: usize) -> Piece {
        let whole = Piece { rows: rows(group), end: None };
        let end = end(group, self.done, most / group.len().max(1));
        end.map_or(whole, |end| Piece { rows: end.saturating_sub(self.done) * group.len(), end: Some(end) })
    }

    /// Prepares the piece that ends there, for a network whose own shift is `shift`; nothing if the group has changed.
    pub(crate) fn prepare(&mut self, group: &[ForwardInput], end: usize, shift: Position) {
        (self.end, self.rows) = (end, group.first().map_or(0, |request| request.tokens.len()));
        if self.done >= end || group.iter().any(|request| request.tokens.len() < end) {
            self.requests.clear();
            return;
        }
        self.requests.resize_with(group.len(), ForwardInput::default);
        for (request, piece) in group.iter().zip(&mut self.requests) {
            request.fill_piece(self.done..end, shift, piece);
        }
    }

    /// Returns the rows of each request that have run, and how many it has; none before the first piece and after the last.
    pub(crate) fn progress(&self) -> Option<(usize, usize)> {
        (self.done > 0).then_some((self.done, self.rows))
    }

    /// Returns the requests of the prepared piece.
    pub(crate) fn requests(&self) -> &[ForwardInput] {
        &self.requests
    }

    /// Takes the predictions of the prepared piece; `true` if the group has run as a whole.
    pub(crate) fn accept(&mut self, predictions: &[Predictions]) -> bool {
        if self.done == 0 {
            self.answers.resize_with(predictions.len(), Predictions::default);
            self.answers.iter_mut().for_each(Predictions::clear);
        }
        self.answers.iter_mut().zip(predictions).for_each(|(all, next)| all.append(next));
        self.done = self.end;
        self.done >= self.rows
    }

    /// Hands over the predictions of all pieces, and begins with the next group. The list comes back by
    /// [`give_back`](Self::give_back).
    pub(crate) fn take(&mut self) -> Vec<Predictions> {
        self.done = 0;
        std::mem::take(&mut self.answers)
    }

    pub(crate) fn give_back(&mut self, answers: Vec<Predictions>) {
        self.answers = answers;
    }
}
