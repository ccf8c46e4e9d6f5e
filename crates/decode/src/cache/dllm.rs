//! dLLM-Cache: the prompt is computed again rarely, the response now and then, and in between only those of its rows
//! whose value projection has drifted most (dLLM-Cache, arXiv 2506.06295; specification caches, section 2).
//!
//! The released code carries every row through every layer. Rows of the prompt are live here only when the prompt is
//! due: between two refreshes their K and V stand in the slots, and nobody reads their output, except that of the row
//! before the response under shift, which is live and lives off its stored increments. Attention and MLP of a row are
//! always refreshed together, so one increment for both is stored.

use std::ops::Range;

use demask_step::{Drift, LayerRows, MaskKind, Position, Positions, Probe, SequenceNeeds, StepPlan, random};

use super::{CacheKind, CachePolicy, Memory};
use crate::{
    choices,
    decoder::{Progress, Query, View},
    layout::Layout,
    parameters,
    resolve::Setup,
    spec::Kind,
};

/// The unconditional pass runs in each of the first forwards, whatever its interval.
const ALWAYS_GUIDED: usize = 5;

choices! {
    /// What says which rows have drifted.
    pub enum ProbeBy {
        /// Their values.
        Values = "v",
        /// Their keys.
        Keys = "k",
        /// Chance: a control experiment.
        Random = "random",
    }
}

choices! {
    /// What layer 0 computes.
    pub enum FirstLayer {
        /// Every live row, as released.
        Full = "full",
        /// What the others compute, as published.
        Same = "same",
    }
}

choices! {
    /// What the row before the response is refreshed with, where rows predict the next token.
    pub enum Boundary {
        /// The prompt: what is refreshed with the response starts at the response.
        Response = "response",
        /// The response.
        Before = "before",
    }
}

parameters! {
    /// Prompt and response, computed again at intervals of their own, in between only what has drifted most.
    pub struct Dllm {
        /// forwards from one refresh of the prompt to the next
        pub prompt: usize = 50, Kind::count(1, usize::MAX);
        /// forwards from one refresh of the response to the next
        pub response: usize = 7, Kind::count(1, usize::MAX);
        /// share of the response computed in the other forwards; 0: none, and nothing is compared
        pub rho: f32 = 0.25, Kind::number(0.0, 1.0);
        /// what tells which rows have drifted: their values, their keys, or chance (a control experiment)
        pub probe: ProbeBy = ProbeBy::Values;
        /// layer 0 computes every live row (as released), or does as the others (as published)
        pub first_layer: FirstLayer = FirstLayer::Full;
        /// models whose rows predict the next token: the row before the response is refreshed with the prompt (as
        /// released) or with the response
        pub boundary: Boundary = Boundary::Response;
        /// forwards from one unconditional pass of guidance to the next, after the first 5, which all have one
        pub cfg: usize = 1, Kind::count(1, usize::MAX);
    }
}

impl CacheKind for Dllm {
    const NAME: &'static str = "dllm";
    const SUMMARY: &'static str =
        "prompt and response are computed again at their own intervals, in between only what has drifted most";
    const SOURCE: &'static str = "dLLM-Cache; specification caches 2";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

    fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        Box::new(DllmCache {
            prompt: self.prompt,
            response: self.response,
            // As a decimal, not as the nearest f32: the share is multiplied in f64 and truncated.
            rho: self.rho.to_string().parse().unwrap_or(0.0),
            by: match self.probe {
                ProbeBy::Values => Drift::Value,
                ProbeBy::Keys => Drift::Key,
                ProbeBy::Random => Drift::Random { seed: setup.options.seed },
            },
            first_layer_all: self.first_layer == FirstLayer::Full,
            before: self.boundary == Boundary::Before,
            guided: self.cfg,
            forwards: 0,
            unconditional: None,
            passes: 0,
            // Computed rows and candidates of the canvas, and of the unconditional sequence.
            spare: (0..4).map(|_| Positions::with_capacity(setup.layout.len())).collect(),
        })
    }
}

#[derive(Debug)]
struct DllmCache {
    prompt: usize,
    response: usize,
    rho: f64,
    by: Drift,
    first_layer_all: bool,
    before: bool,
    guided: usize,
    /// Forwards so far, over all blocks: the clock of both intervals.
    forwards: usize,
    /// The same of the unconditional sequence: the pass that is planned, and those that were run.
    unconditional: Option<usize>,
    passes: usize,
    /// Lists for plans, which come back when these were run.
    spare: Vec<Positions>,
}

impl DllmCache {
    /// The plan of forward number `clock` of a sequence.
    fn fill(&mut self, view: &View<'_>, query: &Query, clock: usize, plan: &mut StepPlan) {
        let end = query.end(view.canvas);
        let response = view.layout.response() as Position;
        let start = if self.before { response.saturating_sub(view.shift) } else { response };
        let (prompt_due, response_due) = (clock.is_multiple_of(self.prompt), clock.is_multiple_of(self.response));
        plan.mask = view.layout.attention();
        plan.visible = end;
        plan.predict.clone_from(&query.predict);
        // The row before the response may be wanted while it is not due.
        let before = query.predict.first().map(|first| first.saturating_sub(view.shift)).filter(|&row| row < start);
        if prompt_due {
            plan.live.set_range(0..end);
        } else {
            if let Some(row) = before {
                plan.live.push(row);
            }
            plan.live.extend_range(start..end);
        }
        if response_due && (prompt_due || before.is_none()) {
            return;
        }
        let rows = start..end;
        let compute = self.list(match (prompt_due, response_due) {
            (true, _) => 0..start,
            (false, true) => rows.clone(),
            (false, false) => 0..0,
        });
        let probe = (!response_due && self.rho > 0.0).then(|| Probe {
            keep: (rows.len() as f64 * self.rho) as usize,
            rows: self.list(rows),
            by: match self.by {
                // Another choice in each forward.
                Drift::Random { seed } => Drift::Random { seed: random::mix(seed ^ clock as u64) },
                by => by,
            },
        });
        plan.layers = LayerRows::Partial { compute, probe, first_layer_all: self.first_layer_all };
    }

    fn list(&mut self, range: Range<Position>) -> Positions {
        let mut list = self.spare.pop().unwrap_or_default();
        list.set_range(range);
        list
    }

    fn is_guided(&self, forward: usize) -> bool {
        forward < ALWAYS_GUIDED || forward.is_multiple_of(self.guided)
    }
}

impl CachePolicy for DllmCache {
    fn needs(&self, layout: &Layout) -> SequenceNeeds {
        let stored = self.guided > 1;
        SequenceNeeds {
            positions: layout.len(),
            rows: layout.len(),
            // A pass whose difference is stored reads every mask.
            predictions: if stored { layout.len() - layout.response() } else { 0 },
            increments: true,
            residual: stored,
            ..SequenceNeeds::default()
        }
    }

    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        self.fill(view, query, self.forwards, plan);
    }

    /// The unconditional sequence has clocks of its own, which count its passes only.
    fn guide(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan, twin: &mut StepPlan) -> bool {
        self.unconditional = self.is_guided(self.forwards).then_some(self.passes);
        let Some(clock) = self.unconditional else { return false };
        self.fill(view, query, clock, twin);
        if !self.is_guided(self.forwards + 1) {
            // The next forwards live off the difference, wherever they decode.
            let held = query.branches.lane(0);
            let open = |&position: &Position| view.canvas.is_masked_after(position, held);
            for position in (view.layout.response() as Position..plan.visible).filter(open) {
                plan.hint.push(position);
            }
        }
        true
    }

    /// The released code runs the two passes one after the other.
    fn nfe(&self, sequences: usize) -> usize {
        sequences
    }

    fn observe(&mut self, _view: &View<'_>, _plan: &StepPlan, _progress: &Progress) {
        self.forwards += 1;
        self.passes += usize::from(self.unconditional.take().is_some());
    }

    fn reclaim(&mut self, layers: LayerRows) {
        if let LayerRows::Partial { compute, probe, .. } = layers {
            self.spare.extend([Some(compute), probe.map(|probe| probe.rows)].into_iter().flatten());
        }
    }

    fn memory(&self) -> Memory {
        Memory::OfHistory
    }
}
