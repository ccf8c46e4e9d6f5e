//! Operations of a step by formula, known from its plan: what receipts report, and what estimates without weights add up.

use std::ops::Range;

use demask_step::{Cost, Drift, HeadAsk, LayerRows, Operations, Position, Positions, SequenceStep, StepPlan, TokenId};

use crate::ArchSpec;

/// Rule for counting operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Convention {
    /// Operations that are computed here (specs/caches.md#7).
    #[default]
    Demask,
    /// Operations as dLLM-Cache's table counts them (specs/caches.md#2.6): attention scores are left out, the head runs
    /// on all rows that entered (on the whole canvas, where rows that did not enter keep increments), the last layer is
    /// finished for all of them, and no first layer is computed whole in a partial step.
    Published,
}

impl Convention {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Demask => "demask",
            Self::Published => "published",
        }
    }
}

/// Request of a step to the network: its plan, the tokens at its live positions, and the head's part.
#[derive(Debug, Clone, Copy)]
pub struct StepInput<'a> {
    /// Plan of the step.
    pub plan: &'a StepPlan,
    /// The tokens at the live positions, lane after lane.
    pub tokens: &'a [TokenId],
    /// Wanted of the head.
    pub ask: &'a HeadAsk,
}

impl<'a> From<&SequenceStep<'a>> for StepInput<'a> {
    fn from(step: &SequenceStep<'a>) -> Self {
        Self { plan: step.plan, tokens: step.tokens, ask: step.ask }
    }
}

impl StepInput<'_> {
    /// Returns which live position of a lane has the row that predicts `position`, if the head is asked there.
    pub(crate) fn predictor(&self, spec: &ArchSpec, lane: usize, position: Position) -> Option<Predictor> {
        let plan = self.plan;
        let held = plan.row(lane, position).map(|row| self.tokens[row]);
        let skip = self.ask.only_where.is_some_and(|wanted| held.is_some_and(|token| token != wanted));
        let position = plan.predictor(position, spec.shift as u32);
        let rank = plan.query.rank(position).filter(|_| !skip)?;
        Some(Predictor { position, rank })
    }
}

/// A row that predicts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Predictor {
    /// Position of the row.
    pub(crate) position: Position,
    /// Index among the live positions.
    pub(crate) rank: usize,
}

/// Returns the cost of a step on a network of this architecture, in a convention. `increments` says whether its sequence keeps
/// them.
pub fn step_cost(spec: &ArchSpec, convention: Convention, asked: StepInput<'_>, increments: bool) -> Cost {
    let plan = asked.plan;
    let mut positions = Positions::new();
    positions.set_union(&[&plan.predict, &plan.must, &plan.hint]);
    let lanes = 0..plan.lanes.count();
    let rows = lanes.flat_map(|lane| {
        let predictor = move |position| asked.predictor(spec, lane, position);
        positions.iter().filter_map(predictor).map(|row| row.position)
    });
    let answered = Answered::of(plan, rows);
    match convention {
        Convention::Demask => cost(spec, plan, increments, answered),
        Convention::Published => published(spec, plan, increments, answered),
    }
}

/// Returns how many keys a step must read: those of its sequence that any row sees, and what each draft writes for itself.
pub fn keys_read(plan: &StepPlan) -> u64 {
    let limit = plan.query.last().map_or(0, |last| plan.mask.limit(last, plan.kv_len));
    u64::from(limit) + plan.rows().saturating_sub(plan.query.len()) as u64
}

/// Rows that the head reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    rows: f64,
    /// Keys that they see together.
    keys: f64,
}

impl Answered {
    /// Counts the rows of a plan, by their positions.
    pub(crate) fn of(plan: &StepPlan, rows: impl Iterator<Item = Position>) -> Self {
        let mut answered = Self { rows: 0.0, keys: 0.0 };
        for position in rows {
            answered.rows += 1.0;
            answered.keys += f64::from(plan.mask.limit(position, plan.kv_len));
        }
        answered
    }
}

/// Operations by formula (specs/caches.md#7), from the step's own work, as if it had the forward for itself: beside partly
/// computed steps the last layer may finish more of its rows.
pub(crate) fn cost(spec: &ArchSpec, plan: &StepPlan, increments: bool, answered: Answered) -> Cost {
    let live = RowCounts::live(plan);
    let layers = spec.layers;
    let parts = match &plan.layers {
        LayerRows::All if increments => [(0..layers, live), (0..0, live)],
        // The last layer finishes only the rows that the head reads.
        LayerRows::All => {
            let last = RowCounts { computed: answered.rows, keys: answered.keys, ..live };
            [(0..layers - 1, live), (layers - 1..layers, last)]
        }
        LayerRows::Partial { first_whole, .. } => {
            let whole = layers.min(usize::from(*first_whole));
            [(whole..layers, RowCounts::partial(plan)), (0..whole, live)]
        }
    };
    summed(spec, plan, &parts, answered.rows, true)
}

/// Operations as dLLM-Cache's table counts them.
fn published(spec: &ArchSpec, plan: &StepPlan, increments: bool, answered: Answered) -> Cost {
    let rows = if plan.layers == LayerRows::All { RowCounts::live(plan) } else { RowCounts::partial(plan) };
    let positions = if increments { plan.kv_len as usize * plan.lanes.count() } else { plan.rows() };
    let logits = if answered.rows == 0.0 { 0.0 } else { positions as f64 };
    summed(spec, plan, &[(0..spec.layers, rows)], logits, false)
}

/// Rows of a layer, lanes included.
#[derive(Debug, Clone, Copy)]
struct RowCounts {
    /// Rows that run attention and MLP.
    computed: f64,
    /// Rows that project K and V.
    stored: f64,
    /// Rows beside them that project one of the two, to be compared.
    compared: f64,
    /// Keys that the computed rows see together.
    keys: f64,
}

impl RowCounts {
    /// All live rows of a plan.
    fn live(plan: &StepPlan) -> Self {
        let rows = plan.rows() as f64;
        let limit = |position| f64::from(plan.mask.limit(position, plan.kv_len));
        let keys = (0..plan.lanes.count()).flat_map(|_| plan.query.iter()).map(limit).sum();
        Self { computed: rows, stored: rows, compared: 0.0, keys }
    }

    /// Rows of a layer that is computed in part.
    fn partial(plan: &StepPlan) -> Self {
        let LayerRows::Partial { compute, probe, .. } = &plan.layers else { return Self::live(plan) };
        let lanes = plan.lanes.count() as f64;
        let chosen = probe.as_ref().map_or(0, |probe| probe.keep);
        // A drift probe projects one tensor for all candidates, and the chosen do not project it again.
        let drift = probe.as_ref().filter(|probe| !matches!(probe.by, Drift::Random { .. }));
        let others = drift.map_or(0, |probe| probe.rows.len() - probe.keep);
        let computed = lanes * (compute.len() + chosen) as f64;
        let keys = computed * f64::from(plan.kv_len);
        Self { computed, stored: computed, compared: lanes * others as f64, keys }
    }
}

/// Sums layers, ranges that do the same, and the head's rows.
fn summed(spec: &ArchSpec, plan: &StepPlan, layers: &[(Range<usize>, RowCounts)], logits: f64, scores: bool) -> Cost {
    let hidden = spec.hidden as f64;
    let (query, kv) = (2.0 * hidden * spec.query_width() as f64, 2.0 * hidden * spec.kv_width() as f64);
    let score = if scores { 4.0 * spec.query_width() as f64 } else { 0.0 };
    let mut operations = Operations { head: 2.0 * hidden * spec.vocabulary as f64 * logits, ..Operations::default() };
    let mut computed = 0.0;
    for (range, rows) in layers {
        let count = range.len() as f64;
        let mlp: f64 = range.clone().map(|layer| spec.mlp(layer).operations(spec.hidden)).sum();
        operations += Operations {
            projections: count * (rows.computed * 2.0 * query + rows.stored * 2.0 * kv + rows.compared * kv),
            attention: count * score * rows.keys,
            mlp: rows.computed * mlp,
            head: 0.0,
        };
        computed += count * rows.computed;
    }
    Cost {
        rows: plan.rows() as u64,
        computed_rows: computed / spec.layers as f64,
        head_rows: logits as u64,
        operations,
    }
}
