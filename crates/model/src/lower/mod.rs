//! Lowering of plans to rows: pure integer code, the only place where a position becomes a row.

use demask_step::{
    BlendWith, Cost, Drift, Lanes, LayerRows, Positions, Predictions, SequenceLimits, SequenceStep, TokenScore, room,
};
use demask_tensor::{
    BlendRows, HeadOutput, HeadRow, Launch, NO_ROW, PAGE, PageCopy, ProbeLaunch, RowSegment, Rows, SlotCopy,
};

use crate::{
    ArchSpec, Sequence,
    cost::{Answered, Predictor, StepInput, cost},
    lora::AdapterRows,
    sequence::{reserve_touched, touched_pages},
};

/// Record of the lowering: it turns the head's output back into predictions, and holds the choice of partial layers.
#[derive(Debug)]
pub(crate) struct Lowered {
    /// One per step of the batch.
    parts: Vec<LoweredStep>,
    /// Records whether the first layer of a partial launch computes every row.
    pub(crate) first_whole: bool,
    /// Rows that write K in the choosing layers of a partial launch.
    pub(crate) key_rows: Rows,
    /// Rows that write V in the choosing layers of a partial launch.
    pub(crate) value_rows: Rows,
    /// Scratch: the page indices that the overlay being built touches.
    touched: Vec<u32>,
}

/// One step's share of a launch.
#[derive(Debug, Default)]
struct LoweredStep {
    first_row: u32,
    /// Predicted positions.
    positions: Positions,
    /// Head row of each `[lane, position]`, or [`NO_ROW`].
    answers: Vec<u32>,
    cost: Cost,
}

impl Default for Lowered {
    fn default() -> Self {
        Self {
            parts: Vec::new(),
            first_whole: false,
            key_rows: Rows::Computed,
            value_rows: Rows::Computed,
            touched: Vec::new(),
        }
    }
}

impl Lowered {
    /// Makes room for steps of this many sequences, one of them with these needs.
    pub(crate) fn reserve(&mut self, sequences: usize, needs: &SequenceLimits) {
        reserve_touched(&mut self.touched, needs.positions);
        self.parts.resize_with(sequences.max(self.parts.len()), LoweredStep::default);
        for part in &mut self.parts {
            part.positions.reserve(needs.predictions);
            room(&mut part.answers, needs.predictions);
        }
    }

    /// Fills `launch` from steps whose groups were checked; `sequence_of(i)` is the state of `batch[i]`'s sequence.
    pub(crate) fn lower<'s>(
        &mut self,
        spec: &ArchSpec,
        batch: &[SequenceStep<'_>],
        sequence_of: impl Fn(usize) -> &'s Sequence,
        launch: &mut Launch,
    ) {
        launch.clear();
        self.parts.resize_with(batch.len().max(self.parts.len()), LoweredStep::default);
        launch.partial = batch.iter().any(|step| step.plan.layers != LayerRows::All);
        self.plan_partial(batch);
        for (index, step) in batch.iter().enumerate() {
            let sequence = sequence_of(index);
            self.parts[index].first_row = launch.len() as u32;
            lower_rows(step, sequence, &mut self.touched, launch);
            lower_layers(step, sequence, self.parts[index].first_row, launch);
            lower_head(spec, step, index, &mut self.parts[index], launch);
        }
        for (index, step) in batch.iter().enumerate() {
            self.lower_blend(spec, batch, index, sequence_of(index), launch);
            let part = &mut self.parts[index];
            let answers = part.answers.iter().filter(|&&answer| answer != NO_ROW);
            let rows = answers.map(|&answer| launch.positions[launch.head.rows[answer as usize].row as usize]);
            part.cost =
                cost(spec, step.plan, sequence_of(index).state.needs().increments, Answered::of(step.plan, rows));
        }
        finish_last(launch);
    }

    /// Names the rows of a lowered launch that take an adapter, and counts their operations.
    pub(crate) fn adapt(&mut self, adapter: &AdapterRows, batch: &[SequenceStep<'_>], launch: &mut Launch) {
        for (step, part) in batch.iter().zip(&mut self.parts) {
            let rows = (part.first_row..).zip(step.tokens).filter(|(_, token)| adapter.takes(**token));
            let before = launch.adapted.len();
            launch.adapted.extend(rows.map(|(row, _)| row));
            let rows = (launch.adapted.len() - before) as f64;
            part.cost.operations.projections += rows * adapter.operations.projections;
            part.cost.operations.mlp += rows * adapter.operations.mlp;
        }
    }

    /// Plans the partial layers: those of all steps alike, which are of one [`LaunchKind`](demask_step::LaunchKind).
    fn plan_partial(&mut self, batch: &[SequenceStep<'_>]) {
        self.first_whole = false;
        (self.key_rows, self.value_rows) = (Rows::Fixed, Rows::Fixed);
        for step in batch {
            let LayerRows::Partial { probe, first_whole, .. } = &step.plan.layers else { continue };
            self.first_whole = *first_whole;
            // What a probe replaced for all its rows need not be projected again for the chosen ones.
            match probe.as_ref().map(|probe| probe.by) {
                Some(Drift::Value) => self.key_rows = Rows::Computed,
                Some(Drift::Key) => self.value_rows = Rows::Computed,
                Some(Drift::Random { .. }) | None => {
                    (self.key_rows, self.value_rows) = (Rows::Computed, Rows::Computed);
                }
            }
        }
    }

    fn lower_blend(
        &self,
        spec: &ArchSpec,
        batch: &[SequenceStep<'_>],
        index: usize,
        sequence: &Sequence,
        launch: &mut Launch,
    ) {
        let (step, part) = (&batch[index], &self.parts[index]);
        let Some(blend) = step.blend else { return };
        for (answer, &head_row) in part.answers.iter().enumerate() {
            if head_row == NO_ROW {
                continue;
            }
            let (lane, rank) = (answer / part.positions.len(), answer % part.positions.len());
            let position = step.plan.predictor(part.positions.as_slice()[rank], spec.shift as u32);
            let other = match blend.with {
                BlendWith::Stored => NO_ROW,
                BlendWith::Behind(places) => {
                    let (first, plan) = (self.parts[index + places].first_row, batch[index + places].plan);
                    plan.row(lane, position).map_or(NO_ROW, |row| first + row as u32)
                }
            };
            let row = launch.head.rows[head_row as usize].row;
            let slot = if sequence.state.needs().residual { launch.slots[row as usize] } else { NO_ROW };
            launch.head.blends.push(BlendRows { head_row, other, scale: blend.scale, slot });
        }
    }

    /// Turns the head's output into the predictions of each step.
    pub(crate) fn scatter(
        &self,
        batch: &[SequenceStep<'_>],
        output: &mut HeadOutput,
        vocabulary: usize,
        out: &mut [Predictions],
    ) {
        let (mut top, mut judged, mut logits) = (0, 0, 0);
        for ((step, part), predictions) in batch.iter().zip(&self.parts).zip(out) {
            predictions.clear();
            predictions.lanes = step.plan.lanes.count();
            predictions.positions.clone_from(&part.positions);
            predictions.cost = part.cost;
            let wanted = &step.ask.wanted;
            for &answer in &part.answers {
                let row = (answer != NO_ROW).then_some(answer as usize);
                predictions.tokens.push(row.map_or(demask_step::NO_TOKEN, |row| output.tokens[row]));
                predictions.confidence.push(row.map_or(f32::NEG_INFINITY, |row| output.confidence[row]));
                if wanted.margin {
                    predictions.margin.push(row.map_or(f32::NEG_INFINITY, |row| output.margin[row]));
                }
                if wanted.entropy {
                    predictions.entropy.push(row.map_or(f32::INFINITY, |row| output.entropy[row]));
                }
                take(row.is_some(), wanted.top, &mut top, |at| {
                    predictions.top.push(at.map_or((demask_step::NO_TOKEN, 0.0), |at| output.top[at]));
                });
                take(row.is_some(), wanted.score_width, &mut judged, |at| {
                    predictions.scores.push(at.map_or(TokenScore::NONE, |at| output.scores[at]));
                });
            }
            if wanted.logits {
                scatter_logits(&part.answers, (&mut output.logits, &mut logits), vocabulary, &mut predictions.logits);
            }
        }
    }
}

/// Hands out the rows of logits of some answers, of those from `next` on: all at once where they are all that there are.
fn scatter_logits(answers: &[u32], (logits, next): (&mut Vec<f32>, &mut usize), vocabulary: usize, out: &mut Vec<f32>) {
    if !answers.contains(&NO_ROW) && logits.len() == answers.len() * vocabulary {
        std::mem::swap(logits, out);
        return;
    }
    for &answer in answers {
        if answer == NO_ROW {
            out.resize(out.len() + vocabulary, f32::NEG_INFINITY);
        } else {
            out.extend_from_slice(&logits[*next..*next + vocabulary]);
            *next += vocabulary;
        }
    }
}

/// Hands out the next `width` indices of an output array, or `None`s for a row that was not asked for.
fn take(asked: bool, width: usize, next: &mut usize, mut put: impl FnMut(Option<usize>)) {
    for _ in 0..width {
        put(asked.then_some(*next));
        *next += usize::from(asked);
    }
}

/// Ids, positions, slots, limits, page tables, copies of all lanes of one step.
fn lower_rows(step: &SequenceStep<'_>, sequence: &Sequence, touched: &mut Vec<u32>, launch: &mut Launch) {
    let plan = step.plan;
    if let Some(keep) = &plan.retain {
        for position in keep.positions.iter() {
            let page = sequence.overlay_page(&sequence.touched, keep.lane as usize, position / PAGE as u32);
            if let Some(page) = page {
                let from = page * PAGE as u32 + position % PAGE as u32;
                launch.keeps.push(SlotCopy { from, to: sequence.slot(position) });
            }
        }
    }
    let drafts = matches!(plan.lanes, Lanes::Drafts(_));
    touched_pages(&plan.query, touched);
    let visible_pages = (plan.kv_len as usize).div_ceil(PAGE);
    for lane in 0..plan.lanes.count() {
        let table_start = launch.tables.len() as u32;
        for (index, &page) in sequence.pages[..visible_pages].iter().enumerate() {
            let own = if drafts { sequence.overlay_page(touched, lane, index as u32) } else { None };
            launch.tables.push(own.unwrap_or(page));
            if let Some(own) = own {
                launch.copies.push(PageCopy { from: page, to: own });
            }
        }
        let first_row = launch.len() as u32;
        let tokens = &step.tokens[lane * plan.query.len()..][..plan.query.len()];
        for (position, &token) in plan.query.iter().zip(tokens) {
            let page = launch.tables[table_start as usize + position as usize / PAGE];
            launch.ids.push(token);
            launch.positions.push(position);
            launch.slots.push(page * PAGE as u32 + position % PAGE as u32);
            launch.limits.push(plan.mask.limit(position, plan.kv_len));
        }
        let rows = first_row..launch.len() as u32;
        launch.segments.push(RowSegment { rows, table: table_start..launch.tables.len() as u32 });
    }
}

/// Rows of one step that are computed, probed and held.
fn lower_layers(step: &SequenceStep<'_>, sequence: &Sequence, first_row: u32, launch: &mut Launch) {
    let end = launch.len() as u32;
    if sequence.state.needs().increments {
        launch.held.extend(first_row..end);
    }
    if !launch.partial {
        return;
    }
    let LayerRows::Partial { compute, probe, .. } = &step.plan.layers else {
        launch.fixed.extend(first_row..end);
        return;
    };
    for lane in 0..step.plan.lanes.count() {
        let row_of = |position| step.plan.row(lane, position).map(|row| first_row + row as u32);
        launch.fixed.extend(compute.iter().filter_map(row_of));
        if let Some(probe) = probe {
            launch.probed.extend(probe.rows.iter().filter_map(row_of));
            launch.probes.push(ProbeLaunch { rows: probe.rows.len() as u32, keep: probe.keep as u32, by: probe.by });
        }
    }
}

/// Head rows of one step.
fn lower_head(spec: &ArchSpec, step: &SequenceStep<'_>, index: usize, part: &mut LoweredStep, launch: &mut Launch) {
    let (plan, ask, width) = (step.plan, step.ask, step.ask.wanted.score_width);
    part.positions.set_union(&[&plan.predict, &plan.must, &plan.hint]);
    part.answers.clear();
    launch.head.requests.push(ask.wanted.clone());
    for lane in 0..plan.lanes.count() {
        let before = lane * plan.query.len();
        for (rank, position) in part.positions.iter().enumerate() {
            let Some(Predictor { rank: row, .. }) = StepInput::from(step).predictor(spec, lane, position) else {
                part.answers.push(NO_ROW);
                continue;
            };
            part.answers.push(launch.head.rows.len() as u32);
            launch.head.rows.push(HeadRow {
                row: part.first_row + (before + row) as u32,
                request: index as u32,
                key: ask.key(lane, position),
            });
            let judged = (lane * part.positions.len() + rank) * width;
            launch.head.score.extend_from_slice(&ask.score[judged..judged + width]);
        }
    }
}

/// Rows that the last layer must finish: those that the head reads, its blends included.
fn finish_last(launch: &mut Launch) {
    launch.last.extend(launch.head.rows.iter().map(|head| head.row));
    launch.last.extend(launch.head.blends.iter().map(|blend| blend.other).filter(|&row| row != NO_ROW));
    launch.last.sort_unstable();
    launch.last.dedup();
}

#[cfg(test)]
mod tests;
