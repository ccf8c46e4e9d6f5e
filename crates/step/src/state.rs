//! State of an open sequence that its plans are checked against: what earlier steps wrote to its slots, and their drafts.

use crate::{Lanes, Position, Positions, SequenceLimits, StepPlan};

/// Slots of an open sequence that hold K and V, and the drafts of its last step. Every [`Network`](crate::Network) has one
/// for each sequence: it [records](Self::record) the plans that ran.
#[derive(Debug, Clone, Default)]
pub struct SequenceState {
    needs: SequenceLimits,
    /// Leading positions that have memory.
    room: usize,
    /// Leading slots that other sequences share.
    shared: Position,
    /// By position: the slot holds K and V.
    written: Vec<bool>,
    /// Drafts of the last step; 0 if it ran on the canvas.
    drafts: usize,
    /// Live positions of the last step with drafts.
    drafted: Positions,
}

impl SequenceState {
    /// Makes the state of a sequence that holds nothing.
    pub fn new(needs: SequenceLimits) -> Self {
        let mut drafted = Positions::new();
        drafted.reserve(if needs.drafts > 0 { needs.positions } else { 0 });
        Self { written: vec![false; needs.positions], room: needs.opening(), needs, drafted, ..Self::default() }
    }

    /// Returns the needs that the sequence was opened with.
    pub fn needs(&self) -> &SequenceLimits {
        &self.needs
    }

    /// Returns how many leading positions have memory: no step may see more.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Records that at least this number of leading positions have memory.
    pub fn grow(&mut self, positions: usize) {
        self.room = self.room.max(positions).min(self.needs.positions);
    }

    /// Fills this many leading slots with what other sequences published.
    pub fn fill(&mut self, positions: Position) {
        self.written[..positions as usize].fill(true);
        self.grow(positions as usize);
    }

    /// Shares this many leading slots with other sequences: no step may write them from now on.
    pub fn share(&mut self, positions: Position) {
        self.shared = positions;
    }

    /// Returns how many leading slots other sequences share.
    pub fn shared(&self) -> Position {
        self.shared
    }

    /// Reports whether the slot of a position holds K and V.
    pub fn is_written(&self, position: Position) -> bool {
        self.written.get(position as usize).is_some_and(|&written| written)
    }

    /// Returns how many leading slots hold K and V without a gap.
    pub fn written(&self) -> usize {
        self.written.iter().take_while(|&&written| written).count()
    }

    /// Reports whether the last step had this draft, with the position live in it.
    pub(crate) fn has_drafted(&self, lane: u32, position: Position) -> bool {
        (lane as usize) < self.drafts && self.drafted.contains(position)
    }

    /// Records a plan that ran.
    pub fn record(&mut self, plan: &StepPlan) {
        let kept = plan.retain.as_ref().map(|keep| &keep.positions);
        let live = (plan.lanes == Lanes::Canvas).then_some(&plan.query);
        for set in [kept, live].into_iter().flatten() {
            set.iter().for_each(|position| self.written[position as usize] = true);
        }
        self.drafts = 0;
        if let Lanes::Drafts(drafts) = plan.lanes {
            self.drafts = drafts as usize;
            self.drafted.clone_from(&plan.query);
        }
    }
}
