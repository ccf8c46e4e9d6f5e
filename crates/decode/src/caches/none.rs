//! No cache: every position that a prediction can depend on is computed in each forward (specs/caches.md#1 and
//! specs/caches.md#8).

use demask_step::{Mask, MaskKind, StepPlan};

use crate::{
    method::{CacheKind, CacheTraits, Setup},
    parameters,
    policy::{CachePolicy, Maintenance, Memory},
    step::{Progress, Query, View},
};

parameters! {
    /// No cache: everything is computed in each forward.
    pub struct NoCache {}
}

impl CacheKind for NoCache {
    const NAME: &'static str = "none";
    const SUMMARY: &'static str = "everything is computed in each forward";
    const SOURCE: &'static str = "LLaDA generate.py, Dream diffusion_generate; specs/caches.md#1";
    const ATTENTION: &'static [MaskKind] =
        &[MaskKind::Full, MaskKind::BlockCausal, MaskKind::Causal, MaskKind::Context];

    fn traits(&self) -> CacheTraits {
        let memory = Memory::OfState;
        CacheTraits { exact: true, memory, spans_blocks: true, revisable: true, ..CacheTraits::default() }
    }

    fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        Box::new(Uncached { seeds: setup.options.facts.blocks.seeds && setup.layout.attention().block().is_some() })
    }
}

#[derive(Debug)]
struct Uncached {
    /// Records whether the first token of a block is predicted by a forward of what lies before it.
    seeds: bool,
}

impl CachePolicy for Uncached {
    fn maintenance(&mut self, view: &View<'_>, plan: &mut StepPlan) -> Maintenance {
        let start = view.layout.block(view.block).start;
        if !self.seeds || start == 0 || !view.canvas.is_masked(start) {
            return Maintenance::None;
        }
        plan.mask = view.layout.attention().stored();
        plan.query.set_range(0..start);
        plan.kv_len = start;
        plan.shift = Some(1);
        plan.must.push(start);
        Maintenance::Alone
    }

    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        let last = query.predict.last().unwrap_or(0);
        // What lies beyond is seen by nobody: later blocks of a block-causal model, and what a causal model has not
        // read yet, the predicted position itself included.
        let end = match view.layout.attention() {
            Mask::Full => query.end(view.canvas),
            Mask::BlockCausal { .. } | Mask::Context { .. } => view.layout.block(view.layout.block_of(last)).end,
            Mask::Causal => last,
        };
        plan.mask = view.layout.attention().in_block(view.layout.block(view.block).start);
        plan.query.set_range(0..end);
        plan.kv_len = end;
        plan.predict.clone_from(&query.predict);
    }

    fn observe(&mut self, _view: &View<'_>, _plan: &StepPlan, _progress: &Progress) {}

    fn memory(&self) -> Memory {
        Memory::OfState
    }
}
