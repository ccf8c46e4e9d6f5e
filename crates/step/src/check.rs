//! Checks of plans before they run. Every network checks by them, the scripted one of the tests too: a group that passes
//! cannot fail a forward.

use crate::{
    Blend, BlendWith, Lanes, LayerRows, PlanError, Position, SequenceId, SequenceState, SequenceStep, StepPlan, TokenId,
};

/// Facts of a network that plans are checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLimits {
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Distance from a position back to the row that predicts it, for plans that do not name theirs.
    pub shift: Position,
    /// Most rows of a group.
    pub rows: usize,
}

impl PlanLimits {
    /// Finds the first fault of a group; `state_of` returns the state of an open sequence.
    ///
    /// # Errors
    /// If a plan contradicts itself, the state of its sequence, the needs that it was opened with or the rest of the group.
    pub fn check<'s>(
        &self,
        group: &[SequenceStep<'_>],
        state_of: impl Fn(SequenceId) -> Option<&'s SequenceState>,
    ) -> Result<(), PlanError> {
        for (index, step) in group.iter().enumerate() {
            let state = state_of(step.sequence).ok_or(PlanError::UnknownSequence(step.sequence))?;
            let earlier = &group[..index];
            if earlier.iter().any(|earlier| earlier.sequence == step.sequence) {
                return Err(PlanError::Contradiction("a sequence runs twice in one step"));
            }
            self.check_step(state, step)?;
            self.check_blend(state, group, index)?;
            let kind = step.plan.layers.launch_kind();
            let mut others = earlier.iter().filter_map(|earlier| earlier.plan.layers.launch_kind());
            if kind.is_some_and(|kind| others.any(|other| other != kind)) {
                return Err(PlanError::Contradiction("a group treats the first layer of its sequences differently"));
            }
        }
        let rows = group.iter().map(|step| step.plan.rows()).sum();
        within("rows of a group", rows, self.rows)
    }

    /// Finds the first fault of one step, its guidance left out.
    fn check_step(&self, state: &SequenceState, step: &SequenceStep<'_>) -> Result<(), PlanError> {
        let plan = step.plan;
        self.check_sizes(state, step)?;
        check_shared(state, plan)?;
        if let Some(keep) = &plan.retain
            && let Some(position) = keep.positions.iter().find(|&position| !state.has_drafted(keep.lane, position))
        {
            return Err(PlanError::NothingToKeep(position));
        }
        check_keys(state, plan)?;
        for set in [&plan.predict, &plan.must, &plan.hint] {
            for position in set.iter() {
                let row = plan.predictor(position, self.shift);
                if !plan.query.contains(row) {
                    return Err(PlanError::RowNotLive { position, row });
                }
            }
        }
        check_layers(state, plan)?;
        self.check_head(state, step)
    }

    fn check_sizes(&self, state: &SequenceState, step: &SequenceStep<'_>) -> Result<(), PlanError> {
        let (plan, needs, rows) = (step.plan, state.needs(), step.plan.rows());
        if step.tokens.len() != rows {
            return Err(PlanError::TokenCount { expected: rows, found: step.tokens.len() });
        }
        let (Some(first), Some(last), 1..) = (plan.query.first(), plan.query.last(), rows) else {
            return Err(PlanError::Contradiction("a step without rows"));
        };
        self.check_tokens(step.tokens)?;
        let end = last.max(plan.kv_len.saturating_sub(1));
        if end as usize >= state.room() {
            return Err(PlanError::PositionOutOfRange { position: end, reserved: state.room() });
        }
        within("rows", rows, needs.rows)?;
        if let Lanes::Drafts(drafts) = plan.lanes {
            within("drafts", drafts as usize, needs.drafts)?;
            within("positions between drafted rows", (last - first) as usize + 1, needs.draft_span)?;
        }
        Ok(())
    }

    fn check_tokens<'t>(&self, tokens: impl IntoIterator<Item = &'t TokenId>) -> Result<(), PlanError> {
        match tokens.into_iter().find(|&&token| token as usize >= self.vocabulary) {
            Some(&token) => Err(PlanError::TokenOutOfRange(token)),
            None => Ok(()),
        }
    }

    /// Finds the first fault of the request to the head.
    fn check_head(&self, state: &SequenceState, step: &SequenceStep<'_>) -> Result<(), PlanError> {
        let (ask, wanted, needs) = (step.ask, &step.ask.wanted, state.needs());
        let rows = step.plan.predictions() * step.plan.lanes.count();
        within("predictions", rows, needs.predictions)?;
        within("best tokens", wanted.top, needs.top)?;
        within("judged tokens", wanted.score_width, needs.score_width)?;
        within("logits", wanted.logits.into(), needs.logits.into())?;
        if ask.score.len() != rows * wanted.score_width {
            return Err(PlanError::ScoreCount { expected: rows * wanted.score_width, found: ask.score.len() });
        }
        self.check_tokens(wanted.banned.iter().chain(wanted.zero_confidence.iter()).chain(&ask.score))?;
        match wanted.limit {
            Some(0) => return Err(PlanError::Contradiction("predictions below token 0, of which there are none")),
            Some(limit) => self.check_tokens(&[limit - 1])?,
            None => {}
        }
        let sampling = &wanted.sampling;
        if !(sampling.temperature >= 0.0 && sampling.temperature.is_finite()) {
            return Err(PlanError::Contradiction("a temperature that is no number from 0 up"));
        }
        if !(sampling.top_p > 0.0 && sampling.top_p <= 1.0) {
            return Err(PlanError::Contradiction("top-p that is no number above 0 and up to 1"));
        }
        if !(0.0..=1.0).contains(&sampling.min_p) {
            return Err(PlanError::Contradiction("min-p that is no number from 0 to 1"));
        }
        Ok(())
    }

    /// Finds the first fault of the guidance of `group[index]`.
    fn check_blend(&self, state: &SequenceState, group: &[SequenceStep<'_>], index: usize) -> Result<(), PlanError> {
        let step = &group[index];
        let Some(Blend { scale, with }) = step.blend else { return Ok(()) };
        if !scale.is_finite() {
            return Err(PlanError::Contradiction("guidance by a scale that is no number"));
        }
        let BlendWith::Behind(places) = with else {
            let stored = state.needs().residual.then_some(());
            return stored.ok_or(PlanError::Contradiction("stored guidance without a reserved residual"));
        };
        let lanes = step.plan.lanes.count();
        let twin = group.get(index.saturating_add(places)).filter(|twin| twin.plan.lanes.count() == lanes);
        let Some(twin) = twin else {
            return Err(PlanError::Contradiction("guidance by a step that is not in the group or has other lanes"));
        };
        let sets = [&step.plan.predict, &step.plan.must, &step.plan.hint];
        let mut rows = sets.iter().flat_map(|set| set.iter()).map(|position| step.plan.predictor(position, self.shift));
        match rows.find(|&row| !twin.plan.query.contains(row)) {
            Some(_) => Err(PlanError::Contradiction("guidance by a row that is not live")),
            None => Ok(()),
        }
    }
}

/// Refuses more of a resource than was reserved.
fn within(what: &'static str, needed: usize, reserved: usize) -> Result<(), PlanError> {
    if needed > reserved { Err(PlanError::BeyondReserve { what, needed, reserved }) } else { Ok(()) }
}

/// Refuses to write what other sequences read.
fn check_shared(state: &SequenceState, plan: &StepPlan) -> Result<(), PlanError> {
    let kept = plan.retain.as_ref().and_then(|keep| keep.positions.first());
    match [plan.query.first(), kept].into_iter().flatten().min() {
        Some(first) if first < state.shared() => {
            Err(PlanError::Contradiction("a position is live or kept whose slot is shared"))
        }
        _ => Ok(()),
    }
}

/// Reports whether a slot holds K and V once the plan's drafts are kept.
fn stands(state: &SequenceState, plan: &StepPlan, position: Position) -> bool {
    state.is_written(position) || plan.retain.as_ref().is_some_and(|keep| keep.positions.contains(position))
}

/// Refuses rows that see what nothing has written.
fn check_keys(state: &SequenceState, plan: &StepPlan) -> Result<(), PlanError> {
    if let Some(position) = plan.query.iter().find(|&position| position >= plan.kv_len) {
        return Err(PlanError::LiveNotVisible(position));
    }
    // No row sees more than the last one.
    let mut seen = 0..plan.mask.limit(plan.query.last().unwrap_or(0), plan.kv_len);
    match seen.find(|&position| !stands(state, plan, position) && !plan.query.contains(position)) {
        Some(position) => Err(PlanError::SlotNeverWritten(position)),
        None => Ok(()),
    }
}

/// Finds the first fault of partly computed layers.
fn check_layers(state: &SequenceState, plan: &StepPlan) -> Result<(), PlanError> {
    let LayerRows::Partial { compute, probe, .. } = &plan.layers else { return Ok(()) };
    if !state.needs().increments {
        return Err(PlanError::Contradiction("partly computed layers without reserved increments"));
    }
    let probed = probe.as_ref().map(|probe| &probe.rows);
    for set in [Some(compute), probed].into_iter().flatten() {
        if let Some(position) = set.iter().find(|&position| !plan.query.contains(position)) {
            return Err(PlanError::ComputedNotLive(position));
        }
    }
    if probe.as_ref().is_some_and(|probe| probe.keep > probe.rows.len()) {
        return Err(PlanError::Contradiction("a probe keeps more rows than it has"));
    }
    if probed.is_some_and(|rows| rows.iter().any(|position| compute.contains(position))) {
        return Err(PlanError::Contradiction("a probed row is computed anyway"));
    }
    // Rows that layers leave out live off what their slots hold.
    match plan.query.iter().find(|&position| !compute.contains(position) && !stands(state, plan, position)) {
        Some(position) => Err(PlanError::SlotNeverWritten(position)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
