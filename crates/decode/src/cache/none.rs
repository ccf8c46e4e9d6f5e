//! No cache: every position that a prediction can depend on is computed in each forward (specification caches, sections
//! 1 and 8).

use demask_step::{Mask, MaskKind, StepPlan};

use super::{CacheMethod, CachePolicy, CacheSpec, Memory};
use crate::{
    decoder::{Progress, Query, View},
    layout::Layout,
    spec::About,
};

pub(super) const METHOD: CacheMethod = CacheMethod {
    about: About {
        name: "none",
        summary: "everything is computed in each forward",
        source: "LLaDA generate.py, Dream diffusion_generate; specification caches 1",
        parameters: &[],
    },
    attention: &[MaskKind::Full, MaskKind::BlockCausal, MaskKind::Causal],
    exact: true,
    memory: Memory::OfState,
    build,
};

fn build(_spec: &CacheSpec, _layout: &Layout, _seed: u64) -> Box<dyn CachePolicy> {
    Box::new(NoCache)
}

#[derive(Debug)]
struct NoCache;

impl CachePolicy for NoCache {
    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        let last = query.predict.last().unwrap_or(0);
        // What lies beyond is seen by nobody: later blocks of a block-causal model, and what a causal model has not
        // read yet, the predicted position itself included.
        let end = match view.layout.attention() {
            Mask::Full => query.end(view.canvas),
            Mask::BlockCausal { .. } => view.layout.block(view.layout.block_of(last)).end,
            Mask::Causal => last,
        };
        plan.mask = view.layout.attention();
        plan.live.set_range(0..end);
        plan.visible = end;
        plan.predict.clone_from(&query.predict);
    }

    fn observe(&mut self, _view: &View<'_>, _plan: &StepPlan, _progress: &Progress) {}

    fn memory(&self) -> Memory {
        METHOD.memory
    }

    fn spans_blocks(&self) -> bool {
        true
    }
}
