//! Slots that a script remembers of a sequence between steps, and the path of its rows through the layers.

use demask_step::{
    Drift, Lanes, LayerRows, Position, Positions, Probe, Retain, SequenceLimits, SequenceState, SequenceStep, random,
};

use super::{Content, LAYERS};

/// The slots of one sequence, and a copy of them for each draft of its last step.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    pub(super) state: SequenceState,
    pub(super) stored: Stored,
    drafts: Vec<Stored>,
}

/// Contents by layer and position.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    keys: [Vec<Option<Content>>; LAYERS],
    values: [Vec<Option<Content>>; LAYERS],
    /// Increment that each layer added to a row when it last computed it.
    increments: [Vec<Option<Content>>; LAYERS],
    /// Difference between a row's contents with and without the condition of guidance.
    residual: Vec<Option<Content>>,
}

impl Slots {
    pub(super) fn new(needs: &SequenceLimits) -> Self {
        let empty = || std::array::from_fn(|_| vec![None; needs.positions]);
        let residual = vec![None; needs.positions];
        let stored = Stored { keys: empty(), values: empty(), increments: empty(), residual };
        Self { state: SequenceState::new(needs.clone()), stored, drafts: Vec::new() }
    }

    /// The contents of the live rows after the last layer, `[lanes, live]`.
    pub(super) fn forward(
        &mut self,
        step: &SequenceStep<'_>,
        layers: usize,
        embed: impl Fn(Position, u32) -> Content,
    ) -> Vec<Vec<Content>> {
        let plan = step.plan;
        if let Some(Retain { lane, positions }) = &plan.retain
            && let Some(draft) = self.drafts.get(*lane as usize)
        {
            self.stored.keep(draft, positions);
        }
        self.drafts.clear();
        let mut rows = Vec::new();
        for lane in 0..plan.lanes.count() {
            let live = &plan.query;
            let tokens = &step.tokens[lane * live.len()..][..live.len()];
            let mut row: Vec<Content> =
                live.iter().zip(tokens).map(|(position, &token)| embed(position, token)).collect();
            let mut draft = self.stored.clone();
            for layer in 0..layers {
                draft.layer(step, live, layer, &mut row);
            }
            rows.push(row);
            if plan.lanes == Lanes::Canvas {
                self.stored = draft;
            } else {
                self.drafts.push(draft);
            }
        }
        self.state.record(plan);
        rows
    }

    /// Slots where guidance stores its differences: the canvas's own, or a draft's of the step that was just run.
    pub(super) fn lane(&mut self, lane: usize) -> &mut Stored {
        self.drafts.get_mut(lane).unwrap_or(&mut self.stored)
    }
}

impl Stored {
    /// Reports whether so many leading slots were all written.
    pub(super) fn is_written(&self, positions: usize) -> bool {
        self.keys.iter().chain(&self.values).all(|layer| layer[..positions].iter().all(Option::is_some))
    }

    /// Reports whether so many leading slots hold the same K and V.
    pub(super) fn same(&self, other: &Self, positions: usize) -> bool {
        let of = |stored: &Self| {
            let layers = stored.keys.iter().chain(&stored.values);
            layers.map(|layer| layer[..positions].to_vec()).collect::<Vec<_>>()
        };
        of(self) == of(other)
    }

    /// Takes the K and V of so many leading slots from another.
    pub(super) fn begin(&mut self, other: &Self, positions: usize) {
        for layer in 0..LAYERS {
            self.keys[layer][..positions].copy_from_slice(&other.keys[layer][..positions]);
            self.values[layer][..positions].copy_from_slice(&other.values[layer][..positions]);
        }
    }

    fn keep(&mut self, draft: &Self, positions: &Positions) {
        for position in positions.iter().map(|position| position as usize) {
            for layer in 0..LAYERS {
                self.keys[layer][position] = draft.keys[layer][position];
                self.values[layer][position] = draft.values[layer][position];
                self.increments[layer][position] = draft.increments[layer][position];
            }
            self.residual[position] = draft.residual[position];
        }
    }

    /// The difference of a row from the unconditional one, stored; or the one that is stored, if there is none now.
    pub(super) fn difference(&mut self, position: Position, fresh: Option<Content>) -> Option<Content> {
        let residual = &mut self.residual[position as usize];
        *residual = fresh.or(*residual);
        *residual
    }

    /// One layer: slots are written, computed rows read what they see, the others add their increments.
    fn layer(&mut self, step: &SequenceStep<'_>, live: &Positions, layer: usize, rows: &mut [Content]) {
        let plan = step.plan;
        let computed = match &plan.layers {
            LayerRows::All => live.clone(),
            LayerRows::Partial { first_whole: true, .. } if layer == 0 => live.clone(),
            LayerRows::Partial { compute, probe, .. } => {
                let mut chosen = compute.clone();
                if let Some(probe) = probe {
                    self.choose(probe, layer, |position| row_of(live, rows, position), &mut chosen);
                }
                chosen
            }
        };
        for position in computed.iter() {
            let row = Some(row_of(live, rows, position));
            (self.keys[layer][position as usize], self.values[layer][position as usize]) = (row, row);
        }
        for (position, row) in live.iter().zip(rows) {
            let increment = &mut self.increments[layer][position as usize];
            if computed.contains(position) {
                let limit = plan.mask.limit(position, plan.kv_len) as usize;
                let seen = self.keys[layer][..limit].iter().zip(&self.values[layer]);
                let after = seen.fold(*row, |row, (key, value)| {
                    let (key, value) = (key.unwrap_or(0), value.unwrap_or(0));
                    let both = key ^ random::mix(key ^ value) ^ random::mix(0);
                    random::mix(row ^ both.rotate_left(layer as u32 + 1))
                });
                *increment = Some(after.wrapping_sub(*row));
                *row = after;
            } else {
                *row = row.wrapping_add(increment.unwrap_or(0));
            }
        }
    }

    /// Replaces the probed tensor, and adds the rows that differ most from their stored values.
    fn choose(&mut self, probe: &Probe, layer: usize, row: impl Fn(Position) -> Content, computed: &mut Positions) {
        let stored = match probe.by {
            Drift::Value => Some(&mut self.values[layer]),
            Drift::Key => Some(&mut self.keys[layer]),
            Drift::Random { .. } => None,
        };
        let mut order: Vec<(u64, Position)> = match (stored, probe.by) {
            (Some(stored), _) => probe
                .rows
                .iter()
                .map(|position| {
                    let fresh = row(position);
                    let likeness = !(fresh ^ stored[position as usize].unwrap_or(0));
                    stored[position as usize] = Some(fresh);
                    (u64::from(likeness.count_ones()), position)
                })
                .collect(),
            (None, Drift::Random { seed }) => {
                let chance = |position: Position| random::mix(random::mix(seed ^ layer as u64) ^ u64::from(position));
                probe.rows.iter().map(|position| (chance(position), position)).collect()
            }
            (None, _) => Vec::new(),
        };
        order.sort_unstable();
        order[..probe.keep].iter().for_each(|&(_, position)| computed.insert(position));
    }
}

/// The content of a live row.
fn row_of(live: &Positions, rows: &[Content], position: Position) -> Content {
    live.rank(position).map_or(0, |rank| rows[rank])
}
