//! The cache policy of a session, which plans the rows of each forward.

use std::{fmt, ops::Range};

use demask_step::{LayerRows, Position, SequenceLimits, StepPlan};

use crate::{
    layout::Layout,
    step::{Progress, Query, View},
};

/// Causes that the slots of a policy depend on. Draft-and-verify is lossless only over policies of state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Memory {
    /// A function of the canvas. Rows that drafts wrote are dropped, except those that the policy itself keeps.
    OfState,
    /// State and steps: the slots also depend on the steps that led to the canvas. A forward with drafts is a step of
    /// the accepted one: the session keeps all that this draft wrote, and the policy's clocks count forwards. A run
    /// with single drafts then equals the canvas's run, forward by forward. More drafts pass through fewer steps, and
    /// may write other tokens.
    #[default]
    OfHistory,
}

/// Rows that have to be computed before the next prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maintenance {
    /// No rows.
    None,
    /// Rows of a forward of their own.
    Alone,
    /// Rows that the plan of the next prediction has too. Published programs run them in a forward of their own, which counts
    /// as one NFE.
    Rides,
}

/// Plans the forwards of one canvas. Plans come empty and depend on positions only, so that the same policy plans for
/// the conditional and the unconditional sequence of guidance.
pub trait CachePolicy: fmt::Debug + Send {
    /// The most positions and rows that its steps need; by default every row may be live.
    fn needs(&self, layout: &Layout) -> SequenceLimits {
        SequenceLimits { positions: layout.len(), rows: layout.len(), ..SequenceLimits::default() }
    }

    /// Returns what has to be computed before the next prediction (prefill, store), and fills the plan of a forward of its
    /// own. Called before each proposal until no such forward is due; by default nothing ever is.
    fn maintenance(&mut self, _view: &View<'_>, _plan: &mut StepPlan) -> Maintenance {
        Maintenance::None
    }

    /// Fills the plan of the query's forward.
    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan);

    /// Fills the plan of guidance's unconditional sequence beside the plan of the canvas, if it runs in this forward;
    /// `false` if guidance uses the difference stored when it last did. By default it runs the same rows every time.
    fn guide(&mut self, _view: &View<'_>, _query: &Query, plan: &mut StepPlan, unconditional: &mut StepPlan) -> bool {
        unconditional.clone_from(plan);
        true
    }

    /// NFE of a forward that runs this many sequences, as the method's paper counts them: 1 if guidance stacks them.
    fn nfe(&self, _sequences: usize) -> usize {
        1
    }

    /// Learns that a plan was run and what came of it. `view` is the canvas that was run, before these commits; if drafts
    /// were run, the accepted one held some of them already ([`Progress::held`]).
    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, progress: &Progress);

    /// Returns the positions whose K/V the next forward keeps of the accepted draft, of a policy of state; asked once after each
    /// forward that it [observes](Self::observe). Of a policy with a history the session keeps all that the draft wrote. By
    /// default none.
    fn retains(&mut self) -> Option<Range<Position>> {
        None
    }

    /// Gets the lists of a plan that was run, to fill them again without an allocation.
    fn reclaim(&mut self, _layers: LayerRows) {}

    /// Memory of its slots on this canvas.
    fn memory(&self) -> Memory;

    /// Says which rows it computes on such a canvas, if that follows from the canvas by a rule: half a sentence. By default
    /// there is nothing to say.
    fn rule(&self, _layout: &Layout) -> Option<String> {
        None
    }

    /// Positions from the first to the last live row, at most, of a forward with drafts that predicts this many blocks: each
    /// draft reserves memory for them. By default the whole canvas.
    fn draft_span(&self, layout: &Layout, _blocks: usize) -> usize {
        layout.len()
    }

    /// Rows of one draft in most forwards that predict this many blocks. By default those that it reserves memory for.
    fn draft_rows(&self, layout: &Layout, blocks: usize) -> usize {
        self.draft_span(layout, blocks)
    }

    /// Returns how many leading positions of a canvas it would take as they are from another request that read the same
    /// tokens: it never has them live then. By default none, and none can be where what stands after a token changes its
    /// K/V, as under full attention.
    fn reusable_on_open(&self, _layout: &Layout) -> Position {
        0
    }

    /// Learns, before the first plan or right after it, that the slots of so many leading positions are filled, no more
    /// than it [takes](Self::reusable_on_open).
    fn resume(&mut self, _filled: Position) {}

    /// Reports whether the slots before the first live row of every plan hold nothing but the K/V of the canvas's final tokens
    /// there, as the prompt's are read: they can be computed again at any time, so that memory is taken as the canvas fills,
    /// and may be given up. By default they cannot.
    fn recomputes(&self) -> bool {
        false
    }

    /// Returns how many leading slots are written from final tokens, depend on nothing else, and will never be live or kept
    /// again: other requests may take them as they are. By default none.
    fn reusable(&self) -> Position {
        0
    }
}
