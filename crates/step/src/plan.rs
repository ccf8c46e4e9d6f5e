//! The plan of one step of one sequence, in positions only: live rows, visible keys, mask, lanes, kept drafts, partly
//! computed layers, and where the head predicts.

use std::fmt;

use crate::{Position, Positions};

/// Description of one step of one sequence: everything that the network must know to run it.
///
/// The order of events in a step: [`Retain`] first; then embedding of the live rows; per layer, fresh K/V of the live
/// rows are written (to their slots, or to the overlay of their lane), attention reads keys `[0, limit)` where the
/// limit follows from `kv_len` and `mask`; at the end the head runs for `predict`, `must` and `hint`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// Positions whose rows enter the network, in each lane.
    pub query: Positions,
    /// Slots `[0, kv_len)` may be attended to; every one of them that the mask lets a live row see must have been
    /// written or be live.
    pub kv_len: Position,
    /// Rule for the visible keys that each row sees.
    pub mask: Mask,
    /// Distance from a position back to the row that predicts it; none: the model's own shift.
    pub shift: Option<Position>,
    /// Content of the rows: the canvas itself, or drafts.
    pub lanes: Lanes,
    /// Part of the last step's overlay that is kept; applied before anything else.
    pub retain: Option<Retain>,
    /// Choice of the rows that run attention and MLP.
    pub layers: LayerRows,
    /// Positions wanted from the head that may be committed.
    pub predict: Positions,
    /// Positions wanted from the head that have to be committed now, because their row leaves the live set.
    pub must: Positions,
    /// Positions wanted from the head that may only seed drafts.
    pub hint: Positions,
}

impl Clone for StepPlan {
    fn clone(&self) -> Self {
        let mut plan = Self::default();
        plan.clone_from(self);
        plan
    }
    fn clone_from(&mut self, source: &Self) {
        self.query.clone_from(&source.query);
        self.kv_len = source.kv_len;
        self.mask = source.mask;
        self.shift = source.shift;
        self.lanes = source.lanes;
        self.retain.clone_from(&source.retain);
        self.layers.clone_from(&source.layers);
        self.predict.clone_from(&source.predict);
        self.must.clone_from(&source.must);
        self.hint.clone_from(&source.hint);
    }
}

impl StepPlan {
    /// Makes room for the plans of a sequence with so many positions.
    pub fn reserve(&mut self, positions: usize) {
        for set in [&mut self.query, &mut self.predict, &mut self.must, &mut self.hint] {
            set.reserve(positions);
        }
    }

    /// Empties the plan for refilling, keeping its allocations.
    pub fn clear(&mut self) {
        self.query.clear();
        self.kv_len = 0;
        self.mask = Mask::Full;
        self.shift = None;
        self.lanes = Lanes::Canvas;
        self.retain = None;
        self.layers = LayerRows::All;
        self.predict.clear();
        self.must.clear();
        self.hint.clear();
    }

    /// Returns the position whose row predicts `position`, for a model whose own shift is `own`: position 0 is predicted by
    /// its own row.
    pub fn predictor(&self, position: Position, own: Position) -> Position {
        position.saturating_sub(self.shift.unwrap_or(own))
    }

    /// Returns how many rows all lanes run together.
    pub fn rows(&self) -> usize {
        self.lanes.count() * self.query.len()
    }

    /// Returns the index among all rows of a position's row in a lane. None if the position is not live.
    pub fn row(&self, lane: usize, position: Position) -> Option<usize> {
        Some(lane * self.query.len() + self.query.rank(position)?)
    }

    /// Counts the positions wanted from the head: the union of `predict`, `must` and `hint`.
    pub fn predictions(&self) -> usize {
        let in_one = |set: &Positions, position| set.contains(position);
        let must = self.must.iter().filter(|&position| !in_one(&self.predict, position)).count();
        let hint =
            self.hint.iter().filter(|&position| !in_one(&self.predict, position) && !in_one(&self.must, position));
        self.predict.len() + must + hint.count()
    }

    /// Reports whether the step asks nothing of the head: a prefill or a store.
    pub fn predicts_nothing(&self) -> bool {
        self.predict.is_empty() && self.must.is_empty() && self.hint.is_empty()
    }
}

/// Rule for the visible keys that a row at position `p` sees. Positions count from 0 at the prompt's start, inside
/// drafts too.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mask {
    /// All visible keys.
    #[default]
    Full,
    /// Keys at or before `p`.
    Causal,
    /// Keys in the blocks up to and including `p`'s.
    BlockCausal {
        /// Positions in a block, at least 1.
        block: Position,
        /// Number of positions of its first block that lie before position 0: `p` is in block `(p + offset) / block`.
        offset: Position,
    },
    /// A block over a causal context: those at or before `p` if `p` lies before `context`, else all of them. Of a model,
    /// with `context` 0: its passes are causal or see everything, as a plan says.
    Context {
        /// First position of the block.
        context: Position,
        /// Positions in a block, at least 1.
        block: Position,
    },
}

/// Rules by which a model that decodes block by block lays its blocks out, shares steps among them and stores them. The
/// default is SDAR's.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockRules {
    /// Position that blocks are counted from.
    pub origin: Origin,
    /// Sets whether the canvas ends where it was asked to, in a block that may be short; else it is filled up to whole
    /// blocks.
    pub ends_short: bool,
    /// Sets whether steps share the masks that a block starts with; else they share a whole block, whatever part of it
    /// is prompt.
    pub shares_masks: bool,
    /// Moment when a finished block is stored.
    pub stores: Stores,
    /// Sets whether the pass that stores the prompt or a block also predicts the token after it, from its last row.
    pub seeds: bool,
}

/// Position that blocks are counted from.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Position 0: the first decoded block may begin with prompt tokens.
    #[default]
    Start,
    /// The prompt's end.
    Prompt,
}

/// Moment when a finished block of a block-diffusion model is stored.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stores {
    /// Always, the last one too, and before anybody asks whether it ends the text.
    #[default]
    Always,
    /// Unless it ends the text; the last one too.
    UnlessEnded,
    /// Stored only when another block follows.
    IfRead,
}

/// Kind of attention mask, without numbers: methods declare the kinds that they support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskKind {
    /// Everyone sees everyone: LLaDA, Dream.
    Full,
    /// Blocks see the blocks up to their own: SDAR, TraDo.
    BlockCausal,
    /// Tokens see those before them: Qwen.
    Causal,
    /// Some passes are causal and in others a block sees itself: Nemotron-Labs-Diffusion.
    Context,
}

impl Mask {
    /// Blocks that are counted from position 0.
    pub const fn blocks(block: Position) -> Self {
        Self::BlockCausal { block, offset: 0 }
    }

    /// Returns the block length that the mask has, if it has one.
    pub fn block(self) -> Option<Position> {
        match self {
            Self::BlockCausal { block, .. } | Self::Context { block, .. } => Some(block.max(1)),
            Self::Full | Self::Causal => None,
        }
    }

    /// Returns the mask by which rows are read that are stored for later ones.
    #[must_use]
    pub fn stored(self) -> Self {
        if let Self::Context { .. } = self { Self::Causal } else { self }
    }

    /// Returns the mask of a pass that predicts in the block that begins at `start`.
    #[must_use]
    pub fn in_block(self, start: Position) -> Self {
        if let Self::Context { block, .. } = self { Self::Context { context: start, block } } else { self }
    }

    /// Returns the kind of this mask.
    pub fn kind(self) -> MaskKind {
        match self {
            Self::Full => MaskKind::Full,
            Self::BlockCausal { .. } => MaskKind::BlockCausal,
            Self::Causal => MaskKind::Causal,
            Self::Context { .. } => MaskKind::Context,
        }
    }

    /// The number of keys, counted from slot 0, that a row at `position` sees out of `visible`.
    pub fn limit(self, position: Position, visible: Position) -> Position {
        match self {
            Self::Causal => visible.min(position + 1),
            Self::BlockCausal { block, offset } => {
                // As `block` says: a mask of one's own may have the number 0.
                let block = block.max(1);
                visible.min((((position + offset) / block + 1) * block).saturating_sub(offset))
            }
            Self::Context { context, .. } if position < context => visible.min(position + 1),
            Self::Full | Self::Context { .. } => visible,
        }
    }
}

/// Owner of the rows that run in a step.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Lanes {
    /// The canvas: its K/V are written through to the slots.
    #[default]
    Canvas,
    /// Number of drafts: each reads the shared slots and writes to an overlay of its own. A key is the lane's own
    /// overlay where that lane is live, else the shared slot. The other contents of an overlay's positions (increments,
    /// the stored difference of guidance) start as a copy of the slots'.
    Drafts(u32),
}

impl Lanes {
    /// Number of lanes that run.
    pub fn count(self) -> usize {
        match self {
            Self::Canvas => 1,
            Self::Drafts(count) => count as usize,
        }
    }
}

/// Part of the last step's drafts that becomes permanent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retain {
    /// The accepted lane of the last step.
    pub lane: u32,
    /// The positions (live in that step) whose K/V, and whatever else is stored with them, are copied from the lane's
    /// overlay to the slots.
    pub positions: Positions,
}

/// Choice of the live rows that run attention and MLP.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum LayerRows {
    /// All live rows, in each layer.
    #[default]
    All,
    /// Some of them; every other live row adds the increment (attention plus MLP output) stored when it was last
    /// computed (dLLM-Cache; specs/caches.md#2.2).
    ///
    /// Each draft is partly computed by itself, as if it ran alone on the canvas's slots: its rows are compared with
    /// those of its own overlay, the choice is its own, and so are the replaced rows and the increments that are stored
    /// and added. [`Retain`] turns all of it into the slots', so that a single draft that is kept whole is a step of
    /// the canvas (specs/freedave.md#I2, specs/freedave.md#I7 and specs/freedave.md#I8).
    Partial {
        /// Rows computed in each layer.
        compute: Positions,
        /// Rows of which the most drifted are computed too, chosen by each lane for itself.
        probe: Option<Probe>,
        /// Records whether the first layer computes every live row.
        first_whole: bool,
    },
}

impl LayerRows {
    /// Returns the kind of launch that these layers need: steps that name different kinds cannot share a forward. `None`
    /// joins all.
    pub fn launch_kind(&self) -> Option<LaunchKind> {
        match self {
            Self::All => None,
            Self::Partial { first_whole, .. } => Some(LaunchKind(u32::from(*first_whole))),
        }
    }
}

/// Names a kind of launch that not all plans can share: a forward treats the first layer of all its partly computed
/// sequences alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaunchKind(pub u32);

/// A choice of rows by how far a projection has drifted from its stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The candidates.
    pub rows: Positions,
    /// Number of probed rows that are computed: those with the lowest cosine similarity, ties to the lowest position.
    pub keep: usize,
    /// Compared projection.
    pub by: Drift,
}

/// Quantity that a [`Probe`] compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drift {
    /// The value projection; all probed rows' V are replaced in the slots.
    Value,
    /// The key projection; all probed rows' K are replaced in the slots.
    Key,
    /// No comparison: a keyed random choice, the control experiment of the paper.
    Random {
        /// Key of the choice; the layer is mixed in.
        seed: u64,
    },
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::Causal => f.write_str("causal"),
            Self::BlockCausal { block, offset: 0 } => write!(f, "block-causal:{block}"),
            Self::BlockCausal { block, offset } => write!(f, "block-causal:{block}+{offset}"),
            Self::Context { context, block } => write!(f, "causal to {context}, then blocks of {block}"),
        }
    }
}

impl fmt::Display for MaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full attention",
            Self::BlockCausal => "block-causal attention",
            Self::Causal => "causal attention",
            Self::Context => "attention by pass",
        })
    }
}

impl fmt::Display for LayerRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Partial { compute, probe, first_whole } = self else {
            return f.write_str("all");
        };
        write!(f, "compute {compute}")?;
        if let Some(Probe { rows, keep, by }) = probe {
            let by = match by {
                Drift::Value => "value",
                Drift::Key => "key",
                Drift::Random { .. } => "random",
            };
            write!(f, " and {keep} of {rows} by {by}")?;
        }
        if *first_whole { f.write_str(" (layer 0: all)") } else { Ok(()) }
    }
}

/// One line; parts at their default are left out.
impl fmt::Display for StepPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Retain { lane, positions }) = &self.retain {
            write!(f, "keep {positions} of lane {lane}; ")?;
        }
        write!(f, "live {} visible {} {}", self.query, self.kv_len, self.mask)?;
        match self.lanes {
            Lanes::Canvas => f.write_str(" canvas")?,
            Lanes::Drafts(count) => write!(f, " drafts {count}")?,
        }
        if let Some(shift) = self.shift {
            write!(f, " shift {shift}")?;
        }
        if self.layers != LayerRows::All {
            write!(f, " {}", self.layers)?;
        }
        for (name, positions) in [("predict", &self.predict), ("must", &self.must), ("hint", &self.hint)] {
            if !positions.is_empty() {
                write!(f, " {name} {positions}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_prefixes_of_the_visible_keys() {
        assert_eq!(Mask::Full.limit(3, 10), 10);
        assert_eq!(Mask::Causal.limit(3, 10), 4);
        assert_eq!(Mask::blocks(4).limit(3, 10), 4);
        assert_eq!(Mask::blocks(4).limit(4, 10), 8);
        assert_eq!(Mask::blocks(4).limit(9, 10), 10);
        // The first block has one position: three of it lie before position 0.
        let offset = Mask::BlockCausal { block: 4, offset: 3 };
        assert_eq!([0, 1, 4, 5].map(|position| offset.limit(position, 20)), [1, 5, 5, 9]);
        let context = Mask::Context { context: 3, block: 4 };
        assert_eq!([0, 2, 3, 5].map(|position| context.limit(position, 7)), [1, 3, 7, 7]);
    }

    #[test]
    fn blocks_of_0_positions_divide_by_nothing() {
        let blocks = Mask::BlockCausal { block: 0, offset: 0 };
        assert_eq!((blocks.block(), blocks.limit(3, 10)), (Some(1), 4));
    }

    #[test]
    fn rows_of_lanes_follow_each_other() {
        let plan = StepPlan { query: (8..16).into(), kv_len: 16, lanes: Lanes::Drafts(3), ..StepPlan::default() };
        assert_eq!((plan.rows(), plan.row(2, 9), plan.row(0, 16)), (24, Some(17), None));
    }

    #[test]
    fn display_names_every_part() {
        let plan = StepPlan {
            query: (8..12).into(),
            kv_len: 12,
            mask: Mask::blocks(4),
            shift: Some(1),
            lanes: Lanes::Drafts(3),
            retain: Some(Retain { lane: 1, positions: (4..8).into() }),
            layers: LayerRows::Partial {
                compute: Positions::new(),
                probe: Some(Probe { rows: (8..12).into(), keep: 1, by: Drift::Value }),
                first_whole: true,
            },
            predict: (9..12).into(),
            must: (8..9).into(),
            hint: Positions::new(),
        };
        assert_eq!(
            plan.to_string(),
            "keep 4..8 of lane 1; live 8..12 visible 12 block-causal:4 drafts 3 shift 1 compute none and 1 of 8..12 by value \
             (layer 0: all) predict 9..12 must 8"
        );
    }
}
