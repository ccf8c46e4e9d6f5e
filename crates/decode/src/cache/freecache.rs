//! FreeCache: the prompt's K/V are kept from the first forward, those of finished blocks are frozen one after another,
//! and nothing is ever refreshed (FlashDLM, section 3.2.1 of the paper; specification flashdlm, section 1).

use demask_step::{Lanes, Position, SequenceNeeds, StepPlan};

use super::{CacheMethod, CachePolicy, CacheSpec, Memory};
use crate::{
    decoder::{Progress, Query, View},
    layout::Layout,
    legality::Attention,
    spec::{About, Kind, Parameter, Value},
};

pub(super) const METHOD: CacheMethod = CacheMethod {
    about: About {
        name: "freecache",
        summary: "prompt and finished blocks are frozen and never computed again",
        source: "FlashDLM FreeCache; specification flashdlm 1, caches 6",
        parameters: &[
            Parameter {
                name: "block",
                kind: Kind::Count { least: 1, most: usize::MAX },
                default: Value::Count(256),
                doc: "positions that are frozen together, counted from the response's start",
            },
            Parameter {
                name: "freeze",
                kind: Kind::Choice(&["exact", "reference", "prompt"]),
                default: Value::Choice("exact"),
                doc: "after a forward that saw the block finished; with the one that finished it, as released; never",
            },
            Parameter {
                name: "lookahead",
                kind: Kind::Count { least: 1, most: usize::MAX },
                default: Value::Fit,
                doc: "live rows from the first mask on, what follows keeps its slots; fitted: all",
            },
            Parameter {
                name: "lag",
                kind: Kind::Count { least: 0, most: usize::MAX },
                default: Value::Fit,
                doc: "finished positions that stay live before what is frozen; fitted: none",
            },
        ],
    },
    attention: &[Attention::Full],
    exact: false,
    // What the parameters may make of it: an instance says more.
    memory: Memory::OfHistory,
    build,
};

/// When a finished block is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freeze {
    /// Once a forward has computed it without a mask.
    Exact,
    /// With the forward that completes it: what was written last keeps the K/V of masks, as in the released program.
    Reference,
    /// Never: only the prompt is.
    Prompt,
}

fn build(spec: &CacheSpec, layout: &Layout) -> Box<dyn CachePolicy> {
    let freeze = match spec.choice("freeze") {
        "reference" => Freeze::Reference,
        "prompt" => Freeze::Prompt,
        _ => Freeze::Exact,
    };
    let block = spec.count("block").unwrap_or(usize::MAX);
    let lookahead = spec.count("lookahead");
    Box::new(FreeCache {
        block,
        freeze,
        lookahead: lookahead.unwrap_or(usize::MAX),
        lag: spec.count("lag").unwrap_or(0),
        memory: memory(freeze, block, lookahead, layout),
        begun: false,
        finished: layout.response(),
    })
}

/// A block that is frozen clean has the K/V of the canvas at the moment it was completed, which is a moment that every
/// run passes through if it ends where a block of the decoder ends. What is never frozen before the end has no history
/// either.
fn memory(freeze: Freeze, block: usize, lookahead: Option<usize>, layout: &Layout) -> Memory {
    let frozen_early = freeze != Freeze::Prompt && block < layout.len() - layout.response();
    let of_state = freeze == Freeze::Exact && block.is_multiple_of(layout.block_length());
    if lookahead.is_none() && (!frozen_early || of_state) { Memory::OfState } else { Memory::OfHistory }
}

#[derive(Debug)]
struct FreeCache {
    block: usize,
    freeze: Freeze,
    lookahead: usize,
    lag: usize,
    memory: Memory,
    /// Whether the first forward, which computes everything, was run.
    begun: bool,
    /// The end of the last block that was frozen, or of the prompt. With a shift the last row before it stays live: it
    /// predicts the first position behind it.
    finished: usize,
}

impl FreeCache {
    /// The first row that is live after the first forward.
    fn start(&self, view: &View<'_>) -> usize {
        let response = view.layout.response();
        self.finished.saturating_sub(self.lag).max(response).saturating_sub(view.shift as usize)
    }

    /// The end of the tokens without a mask that the forward leaves behind in the slots to be frozen.
    fn clean(&self, view: &View<'_>, progress: &Progress) -> usize {
        let seen = view.canvas.first_mask();
        let taken = |position: usize| progress.commits.iter().any(|commit| commit.position as usize == position);
        match self.freeze {
            Freeze::Exact => seen,
            Freeze::Prompt => 0,
            Freeze::Reference => (seen..view.layout.len())
                .find(|&position| view.canvas.is_masked(position as Position) && !taken(position))
                .unwrap_or(view.layout.len()),
        }
    }
}

impl CachePolicy for FreeCache {
    fn needs(&self, layout: &Layout) -> SequenceNeeds {
        SequenceNeeds { positions: layout.len(), rows: layout.len(), ..SequenceNeeds::default() }
    }

    fn upkeep(&mut self, _view: &View<'_>, _plan: &mut StepPlan) -> bool {
        false
    }

    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        let length = view.layout.len();
        let (mut start, mut end) = (0, length);
        if self.begun {
            let shift = view.shift as usize;
            let asked = |position: Position| position as usize;
            // What is asked for is live, wherever it is: a refused prediction is asked for again.
            start = self.start(view);
            start = query.predict.first().map_or(start, |first| start.min(asked(first).saturating_sub(shift)));
            end = view.canvas.first_mask().saturating_add(self.lookahead).min(length);
            end = query.predict.last().map_or(end, |last| end.max(asked(last) + 1));
        }
        plan.live.set_range(start as Position..end as Position);
        plan.visible = length as Position;
        plan.predict.clone_from(&query.predict);
    }

    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, progress: &Progress) {
        if plan.lanes != Lanes::Canvas {
            return;
        }
        self.begun = true;
        let (clean, length) = (self.clean(view, progress), view.layout.len());
        while self.finished < length {
            let next = self.finished.saturating_add(self.block).min(length);
            if next > clean {
                break;
            }
            self.finished = next;
        }
    }

    fn memory(&self) -> Memory {
        self.memory
    }
}
