//! Which rows are computed and which stored keys they see: one policy a file, one line each in [`CACHES`].

mod block;
mod causal;
pub(crate) mod dkv;
mod dllm;
mod dual;
mod freecache;
mod none;
mod prefix;

use std::fmt;

use demask_step::{LayerRows, MaskKind, SequenceNeeds, StepPlan};

use crate::{
    decoder::{Progress, Query, View},
    layout::Layout,
    spec::{About, Method, Spec},
};

/// All cache policies, the default first.
pub static CACHES: &[CacheMethod] = &[
    none::METHOD,
    prefix::METHOD,
    dual::METHOD,
    freecache::METHOD,
    dkv::METHOD,
    dllm::METHOD,
    block::METHOD,
    causal::METHOD,
];

/// A cache policy by name, with its parameters.
pub type CacheSpec = Spec<CacheMethod>;

/// An entry of [`CACHES`].
#[derive(Debug)]
pub struct CacheMethod {
    /// Name, parameters, source.
    pub about: About,
    /// The models it serves.
    pub attention: &'static [MaskKind],
    /// Whether predictions are those of a run without any cache.
    pub exact: bool,
    /// What its slots depend on, at worst: a policy whose parameters matter says more ([`CachePolicy::memory`]).
    pub memory: Memory,
    /// Makes one for a canvas and a key of all randomness.
    pub build: fn(&CacheSpec, &Layout, u64) -> Box<dyn CachePolicy>,
}

impl Method for CacheMethod {
    const WHAT: &'static str = "cache";

    fn registry() -> &'static [Self] {
        CACHES
    }

    fn about(&self) -> &About {
        &self.about
    }
}

/// What the slots of a policy depend on. Draft-and-verify is lossless only over policies of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// A function of the canvas. What drafts wrote is dropped, but for what the policy itself keeps of it.
    OfState,
    /// Also of the steps that led to it. A forward with drafts is a step of the accepted one: the session keeps all that
    /// this draft wrote, and the policy's clocks count forwards. A run with single drafts is then, forward by forward,
    /// that of the canvas; more drafts pass through fewer steps, and may write other tokens.
    OfHistory,
}

/// Plans the forwards of one canvas. Plans come empty and depend on positions only, so that the same policy plans for
/// the conditional and the unconditional sequence of guidance.
pub trait CachePolicy: fmt::Debug + Send {
    /// The most positions and rows that its steps need; by default every row may be live.
    fn needs(&self, layout: &Layout) -> SequenceNeeds {
        SequenceNeeds { positions: layout.len(), rows: layout.len(), ..SequenceNeeds::default() }
    }

    /// A forward that predicts nothing (prefill, store), if one is due: fills the plan and answers `true`. Asked before
    /// each intent until it declines; by default it always does.
    fn upkeep(&mut self, _view: &View<'_>, _plan: &mut StepPlan) -> bool {
        false
    }

    /// Fills the plan of a forward that answers the query.
    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan);

    /// Fills the plan of guidance's unconditional sequence beside the plan of the canvas, if it runs in this forward;
    /// `false` if guidance uses the difference stored when it last did. By default it runs the same rows every time.
    fn guide(&mut self, _view: &View<'_>, _query: &Query, plan: &mut StepPlan, twin: &mut StepPlan) -> bool {
        twin.clone_from(plan);
        true
    }

    /// NFE of a forward that runs this many sequences, as the method's paper counts them: 1 if guidance stacks them.
    fn nfe(&self, _sequences: usize) -> usize {
        1
    }

    /// Learns that a plan was run and what came of it. `view` is the canvas that was run, before these commits; if drafts
    /// were run, the accepted one held some of them already ([`Progress::held`]).
    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, progress: &Progress);

    /// Gets the lists of a plan that was run, to fill them again without an allocation.
    fn reclaim(&mut self, _layers: LayerRows) {}

    /// What its slots depend on.
    fn memory(&self) -> Memory;

    /// Whether one forward may predict positions of several blocks: nothing is computed anew because a block starts.
    /// Drafts that reach into the next blocks need it.
    fn spans_blocks(&self) -> bool {
        false
    }

    /// Positions from the first to the last live row, at most, of a forward with drafts that predicts this many blocks.
    fn draft_span(&self, layout: &Layout, _blocks: usize) -> usize {
        layout.len()
    }

    /// From now on prefills and stores are part of the forwards that predict, and the K/V of accepted drafts are kept.
    /// Nothing to do for policies without them.
    fn fuse(&mut self) {}
}
