//! One open sequence: its pages, which of them are shared, and the overlay of its last drafts.

use demask_step::{Lanes, Position, Positions, SequenceLimits, SequenceState, StepPlan, room};
use demask_tensor::PAGE;

use crate::prefixes::NodeId;

/// An open sequence between steps.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    /// Slots that were written, and the last step's drafts.
    pub(crate) state: SequenceState,
    /// Page of positions `[i * PAGE, (i + 1) * PAGE)` of the canvas.
    pub(crate) pages: Vec<u32>,
    /// Nodes of the index of prefixes that have the leading pages.
    pub(crate) shared: Vec<NodeId>,
    /// Pages of the overlays: `overlay_pages` for each draft.
    pub(crate) draft_pages: Vec<u32>,
    /// Pages that one draft's overlay may take.
    pub(crate) overlay_pages: usize,
    /// Page indices (of the canvas) that the live positions of the last step's drafts touch, ascending.
    pub(crate) touched: Vec<u32>,
}

/// Page indices that hold any of `live`, ascending.
pub(crate) fn touched_pages(live: &Positions, touched: &mut Vec<u32>) {
    touched.clear();
    for position in live.iter() {
        let page = position / PAGE as u32;
        if touched.last() != Some(&page) {
            touched.push(page);
        }
    }
}

/// Pages that `span` positions may touch when they start anywhere.
pub(crate) fn pages_of_span(span: usize) -> usize {
    if span == 0 { 0 } else { (span - 1).div_ceil(PAGE) + 1 }
}

/// Pages that one draft's overlay may take.
pub(crate) fn overlay_pages(needs: &SequenceLimits) -> usize {
    pages_of_span(needs.draft_span).min(needs.positions.div_ceil(PAGE))
}

/// Makes room for the page indices that a step on a canvas of this many positions touches.
pub(crate) fn reserve_touched(touched: &mut Vec<u32>, positions: usize) {
    room(touched, positions.div_ceil(PAGE));
}

impl Sequence {
    pub(crate) fn new(needs: SequenceLimits) -> Self {
        let mut touched = Vec::new();
        reserve_touched(&mut touched, if needs.drafts > 0 { needs.positions } else { 0 });
        // Growing moves no list.
        let pages = Vec::with_capacity(needs.positions.div_ceil(PAGE));
        Self {
            pages,
            overlay_pages: overlay_pages(&needs),
            touched,
            state: SequenceState::new(needs),
            ..Self::default()
        }
    }

    /// Begins with pages that others filled; returns how many positions they hold.
    pub(crate) fn begin(&mut self, shared: Vec<NodeId>, pages: Vec<u32>) -> Position {
        let filled = (pages.len() * PAGE) as Position;
        self.shared = shared;
        self.pages.extend(pages);
        self.state.fill(filled);
        self.state.share(filled);
        filled
    }

    /// Number of leading pages that belong to the index of prefixes.
    pub(crate) fn shared_pages(&self) -> usize {
        self.state.shared() as usize / PAGE
    }

    /// Pages that belong to no index.
    pub(crate) fn own_pages(&self) -> &[u32] {
        &self.pages[self.shared_pages()..]
    }

    /// Records that all of its pages are taken.
    pub(crate) fn grown(&mut self) {
        self.state.grow(self.pages.len() * PAGE);
    }

    /// Page `page` of the canvas in the overlay of `lane`, if that is among the `touched` ones.
    pub(crate) fn overlay_page(&self, touched: &[u32], lane: usize, page: u32) -> Option<u32> {
        let at = touched.binary_search(&page).ok()?;
        self.draft_pages.get(lane * self.overlay_pages + at).copied()
    }

    /// Slot of a canvas position.
    pub(crate) fn slot(&self, position: Position) -> u32 {
        self.pages[position as usize / PAGE] * PAGE as u32 + position % PAGE as u32
    }

    /// Records a plan that ran.
    pub(crate) fn record(&mut self, plan: &StepPlan) {
        self.state.record(plan);
        if plan.lanes != Lanes::Canvas {
            touched_pages(&plan.query, &mut self.touched);
        }
    }
}
