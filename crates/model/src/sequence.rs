//! One open sequence: its pages, which of them are shared, what has been written, and the overlay of its last drafts.

use demask_step::{
    Blend, BlendWith, Lanes, LayerRows, PlanError, Position, Positions, SequenceNeeds, SequenceStep, StepPlan,
};
use demask_tensor::PAGE;

use crate::{ArchSpec, prefixes::NodeId};

/// State of an open sequence between steps.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    pub(crate) needs: SequenceNeeds,
    /// Page of positions `[i * PAGE, (i + 1) * PAGE)` of the canvas.
    pub(crate) pages: Vec<u32>,
    /// Leading ones of them that belong to the index of prefixes, and its nodes that have them.
    pub(crate) shared_pages: usize,
    pub(crate) shared: Vec<NodeId>,
    /// Pages of the overlays: `overlay_pages` for each draft.
    pub(crate) draft_pages: Vec<u32>,
    /// Pages that one draft's overlay may take.
    pub(crate) overlay_pages: usize,
    /// Slots that hold K/V of this sequence.
    written: Vec<bool>,
    /// The last step's drafts.
    pub(crate) overlay: Overlay,
}

/// Place of the K/V of the last step's drafts.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    /// Number of drafts; 0 if the last step ran on the canvas.
    pub(crate) lanes: usize,
    /// Positions that were live.
    pub(crate) live: Positions,
    /// Page indices (of the canvas) that the live positions touch, ascending.
    pub(crate) touched: Vec<u32>,
}

impl Overlay {
    /// Makes room for drafts on a canvas of so many positions.
    pub(crate) fn reserve(&mut self, positions: usize) {
        self.live.reserve(positions);
        let pages = positions.div_ceil(PAGE);
        self.touched.reserve(pages.saturating_sub(self.touched.len()));
    }

    pub(crate) fn set(&mut self, lanes: usize, plan: &StepPlan) {
        self.lanes = lanes;
        self.live.clone_from(&plan.live);
        touched_pages(&plan.live, &mut self.touched);
    }
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

impl Sequence {
    pub(crate) fn new(needs: SequenceNeeds) -> Self {
        let canvas_pages = needs.positions.div_ceil(PAGE);
        let overlay_pages = pages_of_span(needs.draft_span).min(canvas_pages);
        let mut overlay = Overlay::default();
        overlay.reserve(if needs.drafts > 0 { needs.positions } else { 0 });
        Self { overlay_pages, written: vec![false; needs.positions], needs, overlay, ..Self::default() }
    }

    /// Begins with pages that others filled; returns how many positions that are.
    pub(crate) fn begin(&mut self, shared: Vec<NodeId>, pages: Vec<u32>) -> Position {
        (self.shared, self.shared_pages, self.pages) = (shared, pages.len(), pages);
        let filled = self.filled();
        self.written[..filled as usize].fill(true);
        filled
    }

    /// Leading positions whose slots are shared: no step may write them.
    pub(crate) fn filled(&self) -> Position {
        (self.shared_pages * PAGE) as Position
    }

    /// Reports whether a position's slot holds K and V of a step.
    pub(crate) fn is_written(&self, position: Position) -> bool {
        self.written.get(position as usize).is_some_and(|&written| written)
    }

    /// Leading positions that have been written without a gap.
    pub(crate) fn written(&self) -> usize {
        self.written.iter().take_while(|&&written| written).count()
    }

    /// Pages that are its own: those that no index has.
    pub(crate) fn own_pages(&self) -> &[u32] {
        &self.pages[self.shared_pages..]
    }

    /// Canvas pages and overlay pages to allocate.
    pub(crate) fn page_counts(&self) -> (usize, usize) {
        (self.needs.positions.div_ceil(PAGE), self.needs.drafts * self.overlay_pages)
    }

    /// Page that holds `position` in the overlay of `lane`, if that page is touched by the overlay.
    pub(crate) fn overlay_page(&self, overlay: &Overlay, lane: usize, page: u32) -> Option<u32> {
        let at = overlay.touched.binary_search(&page).ok()?;
        self.draft_pages.get(lane * self.overlay_pages + at).copied()
    }

    /// Slot of a canvas position.
    pub(crate) fn slot(&self, position: Position) -> u32 {
        self.pages[position as usize / PAGE] * PAGE as u32 + position % PAGE as u32
    }

    /// Records what a step wrote to the canvas's slots.
    pub(crate) fn record(&mut self, step: &SequenceStep<'_>) {
        if let Some(keep) = &step.plan.keep {
            keep.positions.iter().for_each(|position| self.written[position as usize] = true);
        }
        match step.plan.lanes {
            Lanes::Canvas => {
                step.plan.live.iter().for_each(|position| self.written[position as usize] = true);
                self.overlay.lanes = 0;
            }
            Lanes::Drafts(lanes) => self.overlay.set(lanes as usize, step.plan),
        }
    }

    /// Finds what is wrong with one sequence's step, but for its guidance.
    pub(crate) fn check(&self, spec: &ArchSpec, step: &SequenceStep<'_>) -> Result<(), PlanError> {
        let plan = step.plan;
        self.check_sizes(spec, step)?;
        self.check_shared(plan)?;
        if let Some(keep) = &plan.keep {
            let missing = keep.positions.iter().find(|&position| !self.overlay.live.contains(position));
            if let Some(position) =
                missing.or(keep.positions.first().filter(|_| keep.lane as usize >= self.overlay.lanes))
            {
                return Err(PlanError::NothingToKeep(position));
            }
        }
        self.check_keys(plan)?;
        for set in [&plan.predict, &plan.must, &plan.hint] {
            for position in set.iter() {
                let row = plan.predictor(position, spec.shift as u32);
                if !plan.live.contains(row) {
                    return Err(PlanError::RowNotLive { position, row });
                }
            }
        }
        self.check_layers(plan)?;
        self.check_ask(spec, step)
    }

    /// Finds what is wrong with what is asked of the head.
    fn check_ask(&self, spec: &ArchSpec, step: &SequenceStep<'_>) -> Result<(), PlanError> {
        let (plan, ask, wanted) = (step.plan, step.ask, &step.ask.wanted);
        let rows = plan.predictions() * plan.lanes.count();
        let reserved = [
            ("predictions", rows, self.needs.predictions),
            ("best tokens", wanted.top, self.needs.top),
            ("judged tokens", wanted.judge_width, self.needs.judge_width),
            ("logits", wanted.logits.into(), self.needs.logits.into()),
        ];
        if let Some(&(what, needed, reserved)) = reserved.iter().find(|(_, needed, reserved)| needed > reserved) {
            return Err(PlanError::BeyondReserve { what, needed, reserved });
        }
        if ask.judge.len() != rows * wanted.judge_width {
            return Err(PlanError::JudgeCount { expected: rows * wanted.judge_width, found: ask.judge.len() });
        }
        let mut named = wanted.forbid.iter().chain(wanted.mute.iter()).chain(&ask.judge);
        if let Some(&token) = named.find(|&&token| token as usize >= spec.vocabulary) {
            return Err(PlanError::TokenOutOfRange(token));
        }
        match wanted.limit {
            Some(0) => return Err(PlanError::Contradiction("predictions below token 0, of which there are none")),
            Some(limit) if limit as usize > spec.vocabulary => return Err(PlanError::TokenOutOfRange(limit - 1)),
            _ => {}
        }
        let sampling = &wanted.sampling;
        if !(sampling.temperature >= 0.0 && sampling.temperature.is_finite()) {
            return Err(PlanError::Contradiction("a temperature that is no number from 0 up"));
        }
        if !(sampling.top_p > 0.0 && sampling.top_p <= 1.0) {
            return Err(PlanError::Contradiction("top-p that is no number above 0 and up to 1"));
        }
        Ok(())
    }

    /// Finds what is wrong with the guidance of a group's step, which passed [`check`](Self::check).
    pub(crate) fn check_blend(
        &self,
        spec: &ArchSpec,
        group: &[SequenceStep<'_>],
        index: usize,
    ) -> Result<(), PlanError> {
        let step = &group[index];
        let Some(Blend { scale, with }) = step.blend else { return Ok(()) };
        if !scale.is_finite() {
            return Err(PlanError::Contradiction("guidance by a scale that is no number"));
        }
        let BlendWith::Behind(places) = with else {
            let stored = self.needs.residual.then_some(());
            return stored.ok_or(PlanError::Contradiction("stored guidance without a reserved residual"));
        };
        let lanes = step.plan.lanes.count();
        let twin = group.get(index.saturating_add(places)).filter(|twin| twin.plan.lanes.count() == lanes);
        let Some(twin) = twin else {
            return Err(PlanError::Contradiction("guidance by a step that is not in the group or has other lanes"));
        };
        let sets = [&step.plan.predict, &step.plan.must, &step.plan.hint];
        let mut rows =
            sets.iter().flat_map(|set| set.iter()).map(|position| step.plan.predictor(position, spec.shift as u32));
        match rows.find(|&row| !twin.plan.live.contains(row)) {
            Some(_) => Err(PlanError::Contradiction("guidance by a row that is not live")),
            None => Ok(()),
        }
    }

    fn check_sizes(&self, spec: &ArchSpec, step: &SequenceStep<'_>) -> Result<(), PlanError> {
        let plan = step.plan;
        let rows = plan.rows();
        if step.tokens.len() != rows {
            return Err(PlanError::TokenCount { expected: rows, found: step.tokens.len() });
        }
        if rows == 0 {
            return Err(PlanError::Contradiction("a step without rows"));
        }
        if let Some(&token) = step.tokens.iter().find(|&&token| token as usize >= spec.vocabulary) {
            return Err(PlanError::TokenOutOfRange(token));
        }
        let last = plan.live.last().unwrap_or(0).max(plan.visible.saturating_sub(1));
        if last as usize >= self.needs.positions {
            return Err(PlanError::PositionOutOfRange { position: last, reserved: self.needs.positions });
        }
        if rows > self.needs.rows {
            return Err(PlanError::BeyondReserve { what: "rows", needed: rows, reserved: self.needs.rows });
        }
        if let Lanes::Drafts(drafts) = plan.lanes {
            let span = live_span(&plan.live);
            if drafts as usize > self.needs.drafts || drafts == 0 {
                return Err(PlanError::BeyondReserve {
                    what: "drafts",
                    needed: drafts as usize,
                    reserved: self.needs.drafts,
                });
            }
            if span > self.needs.draft_span {
                return Err(PlanError::BeyondReserve {
                    what: "positions between drafted rows",
                    needed: span,
                    reserved: self.needs.draft_span,
                });
            }
        }
        Ok(())
    }

    /// Refuses to write what others read.
    fn check_shared(&self, plan: &StepPlan) -> Result<(), PlanError> {
        let kept = plan.keep.as_ref().and_then(|keep| keep.positions.first());
        match [plan.live.first(), kept].into_iter().flatten().min() {
            Some(first) if first < self.filled() => {
                Err(PlanError::Contradiction("a position is live or kept whose slot is shared"))
            }
            _ => Ok(()),
        }
    }

    fn check_keys(&self, plan: &StepPlan) -> Result<(), PlanError> {
        if let Some(position) = plan.live.iter().find(|&position| position >= plan.visible) {
            return Err(PlanError::LiveNotVisible(position));
        }
        let last = plan.live.last().unwrap_or(0);
        let kept = plan.keep.as_ref().map(|keep| &keep.positions);
        for position in 0..plan.mask.limit(last, plan.visible) {
            let written = self.written[position as usize] || kept.is_some_and(|kept| kept.contains(position));
            if !written && !plan.live.contains(position) {
                return Err(PlanError::SlotNeverWritten(position));
            }
        }
        Ok(())
    }

    fn check_layers(&self, plan: &StepPlan) -> Result<(), PlanError> {
        let LayerRows::Partial { compute, probe, .. } = &plan.layers else {
            return Ok(());
        };
        if !self.needs.increments {
            return Err(PlanError::Contradiction("partly computed layers without reserved increments"));
        }
        let probed = probe.as_ref().map(|probe| &probe.rows);
        for set in [Some(compute), probed].into_iter().flatten() {
            if let Some(position) = set.iter().find(|&position| !plan.live.contains(position)) {
                return Err(PlanError::ComputedNotLive(position));
            }
        }
        if probe.as_ref().is_some_and(|probe| probe.keep > probe.rows.len()) {
            return Err(PlanError::Contradiction("a probe keeps more rows than it has"));
        }
        if probed.is_some_and(|rows| rows.iter().any(|position| compute.contains(position))) {
            return Err(PlanError::Contradiction("a probed row is computed anyway"));
        }
        // Rows that layers leave out live off what stands in their slots.
        let kept = plan.keep.as_ref().map(|keep| &keep.positions);
        let stands = |position| self.is_written(position) || kept.is_some_and(|kept| kept.contains(position));
        match plan.live.iter().find(|&position| !compute.contains(position) && !stands(position)) {
            Some(position) => Err(PlanError::SlotNeverWritten(position)),
            None => Ok(()),
        }
    }
}

fn live_span(live: &Positions) -> usize {
    match (live.first(), live.last()) {
        (Some(first), Some(last)) => (last - first) as usize + 1,
        _ => 0,
    }
}
