//! dLLM-Cache: the prompt is computed again rarely, the response now and then, and in between only those of its rows
//! whose value projection has drifted most (dLLM-Cache, arXiv 2506.06295; specs/caches.md#2).
//!
//! The released code carries every row through every layer. Here, rows of the prompt are live only when the prompt is
//! due: between two refreshes their K and V stay in the slots, and their outputs are not read. The exception is the row
//! before the response under shift, which is live and adds its stored increments. Attention and MLP of a row are always
//! refreshed together, so one increment for both is stored.
//!
//! The released program counts forwards up and computes the rows that have drifted most, so that a block may end long
//! after its last refresh. Static decoding commits the surest tokens first, so its hardest ones are read off old rows.
//! `phase`, `count` and `rows` each change one of these rules. The defaults kept the accuracy of no cache in
//! docs/ablations.md: the block is computed in each forward, and intervals count committed tokens. Released is
//! `prompt=50,response=7,count=forwards,rows=drift`, published is the same with `phase=down,first_layer=same`.

mod refresh;

use std::ops::Range;

use demask_step::{Drift, LayerRows, MaskKind, Position, Positions, Probe, SequenceLimits, StepPlan, random};

pub use self::refresh::{Count, CountFrom};
use self::refresh::{Intervals, Track};
use crate::{
    choices,
    error::{self, OptionsError},
    event::Commit,
    layout::Layout,
    method::{CacheKind, Promise, Setup},
    parameters,
    policy::{CachePolicy, Memory},
    spec::Kind,
    step::{Progress, Query, View},
};

/// The unconditional pass runs in each of the first forwards, whatever its interval.
const ALWAYS_GUIDED: usize = 5;

choices! {
    /// Quantity whose change shows which rows have drifted.
    pub enum ProbeBy {
        /// Values of the rows.
        Values = "v",
        /// Keys of the rows.
        Keys = "k",
        /// Chance: a control experiment.
        Random = "random",
    }
}

choices! {
    /// Rows that layer 0 computes.
    pub enum FirstLayer {
        /// Every live row, as released.
        Full = "full",
        /// Rows that the other layers compute, as published.
        Same = "same",
    }
}

choices! {
    /// Refresh of the row before the response, for models whose rows predict the next token.
    pub enum Boundary {
        /// The prompt: a refresh of the response starts at the response.
        Response = "response",
        /// The response.
        Before = "before",
    }
}

choices! {
    /// Rows of the response that are computed in forwards that do not refresh it.
    pub enum PartialRows {
        /// Rows that have drifted most.
        Drift = "drift",
        /// The block that is decoded and the tokens committed since it was computed, however many rows these are. Then,
        /// up to the share, the most drifted rows of the rest.
        Block = "block",
    }
}

parameters! {
    /// Prompt and response, computed again at intervals of their own, in between only what has drifted most.
    pub struct Dllm {
        /// what lies between a refresh of the prompt and the next, in what `count` counts (released: 50 forwards)
        pub prompt: usize = 16, Kind::count(1, usize::MAX);
        /// what lies between a refresh of the response and the next (released: 7 forwards)
        pub response: usize = 32, Kind::count(1, usize::MAX);
        /// share of the response computed in the other forwards, what `rows` names included, which is computed even if it is
        /// more; 0: nothing is compared, and only what `rows` names is computed
        pub rho: f32 = 0.25, Kind::number(0.0, 1.0);
        /// what tells which rows have drifted: their values, their keys, or chance (a control experiment)
        pub probe: ProbeBy = ProbeBy::Values;
        /// layer 0 computes every live row (as released), or does as the others (as published)
        pub first_layer: FirstLayer = FirstLayer::Full;
        /// models whose rows predict the next token: the row before the response is refreshed with the prompt (as
        /// released) or with the response
        pub boundary: Boundary = Boundary::Response;
        /// from where forwards to a refresh of the response are counted: the first one (as released), or the last step of
        /// static decoding (as published)
        pub phase: CountFrom = CountFrom::Up;
        /// what intervals count: forwards (as released), or committed tokens
        pub count: Count = Count::Tokens;
        /// rows computed between refreshes: those that have drifted most (as released); or the block and the tokens
        /// committed since it was computed, then those
        pub rows: PartialRows = PartialRows::Block;
        /// forwards from one unconditional pass of guidance to the next, after the first 5, which all have one
        pub cfg: usize = 1, Kind::count(1, usize::MAX);
    }
}

impl CacheKind for Dllm {
    const NAME: &'static str = "dllm";
    const SUMMARY: &'static str =
        "prompt and response are computed again at their own intervals, in between only what has drifted most";
    const SOURCE: &'static str = "dLLM-Cache; specs/caches.md#2";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

    fn check(&self, setup: &Setup<'_>) -> Result<(), OptionsError> {
        let options = setup.options;
        let refuse = |parameter, of| Err(error::useless_parameter(&options.cache, parameter, of));
        match self.phase {
            CountFrom::Down if options.traits().promise != Promise::Reference => {
                refuse("phase=down", "decoder static, whose number of steps is fixed")
            }
            CountFrom::Down if self.count == Count::Tokens => refuse("phase=down", "count=forwards"),
            _ => Ok(()),
        }
    }

    fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        Box::new(DllmCache {
            rule: Intervals {
                phase: self.phase,
                count: self.count,
                prompt: self.prompt,
                response: self.response,
                steps: setup.steps,
            },
            rows: self.rows,
            // As a decimal, not as the nearest f32: the share is multiplied in f64 and truncated.
            rho: self.rho.to_string().parse().unwrap_or(0.0),
            by: match self.probe {
                ProbeBy::Values => Drift::Value,
                ProbeBy::Keys => Drift::Key,
                ProbeBy::Random => Drift::Random { seed: setup.options.seed },
            },
            first_whole: self.first_layer == FirstLayer::Full,
            before: self.boundary == Boundary::Before,
            guided: self.cfg,
            canvas: Track::with_capacity(setup.layout.len()),
            unconditional: Track::with_capacity(setup.layout.len()),
            passes: false,
            held: 0,
            // Computed rows and candidates of the canvas, and of the unconditional sequence.
            spare: (0..4).map(|_| Positions::with_capacity(setup.layout.len())).collect(),
        })
    }
}

#[derive(Debug)]
struct DllmCache {
    rule: Intervals,
    rows: PartialRows,
    rho: f64,
    by: Drift,
    first_whole: bool,
    before: bool,
    guided: usize,
    canvas: Track,
    /// Track of the unconditional sequence, which counts its own passes only; and whether one is planned.
    unconditional: Track,
    passes: bool,
    /// Commits that the first of the planned drafts holds.
    held: usize,
    /// Lists for plans, which come back when these were run.
    spare: Vec<Positions>,
}

/// The sequence of a plan.
#[derive(Clone, Copy)]
enum Sequence {
    Canvas,
    Unconditional,
}

impl DllmCache {
    /// Plans the next forward of a sequence.
    fn fill(&mut self, view: &View<'_>, query: &Query, sequence: Sequence, plan: &mut StepPlan) {
        let end = query.end(view.canvas);
        let response = view.layout.response() as Position;
        let start = if self.before { response.saturating_sub(view.shift) } else { response };
        let held = query.branches.lane(0);
        let track = match sequence {
            Sequence::Canvas => &self.canvas,
            Sequence::Unconditional => &self.unconditional,
        };
        let (due, clock) = (track.due(&self.rule), track.forward());
        plan.mask = view.layout.attention();
        plan.kv_len = end;
        plan.predict.clone_from(&query.predict);
        // The row before the response may be wanted while it is not due.
        let before = query.predict.first().map(|first| first.saturating_sub(view.shift)).filter(|&row| row < start);
        if due.prompt {
            plan.query.set_range(0..end);
        } else {
            if let Some(row) = before {
                plan.query.push(row);
            }
            plan.query.extend_range(start..end);
        }
        let rows = start..end;
        let mut compute = self.list(match (due.prompt, due.response) {
            (true, _) => 0..start,
            (false, true) => rows.clone(),
            (false, false) => 0..0,
        });
        let block = block_rows(view, held, &rows);
        if !due.response {
            self.choose(view, query, sequence, &rows, block, &mut compute);
        }
        let track = match sequence {
            Sequence::Canvas => &mut self.canvas,
            Sequence::Unconditional => &mut self.unconditional,
        };
        track.plan(due, &compute);
        if due.response && (due.prompt || before.is_none()) {
            self.spare.push(compute);
            return;
        }
        let probe = (!due.response && self.rho > 0.0).then(|| {
            let chosen = compute.iter().rev().take_while(|&row| row >= start).count();
            let mut rest = self.list(0..0);
            let share = self.share(rows.len()).saturating_sub(chosen);
            for row in rows.filter(|&row| !compute.contains(row)) {
                rest.push(row);
            }
            Probe {
                // What is chosen by itself counts: a share is a share of the response, whatever it is chosen by.
                keep: share.min(rest.len()),
                rows: rest,
                by: match self.by {
                    // Another choice in each forward.
                    Drift::Random { seed } => Drift::Random { seed: random::mix(seed ^ clock as u64) },
                    by => by,
                },
            }
        });
        plan.layers = LayerRows::Partial { compute, probe, first_whole: self.first_whole };
    }

    /// The share of so many rows, truncated as released.
    fn share(&self, rows: usize) -> usize {
        (rows as f64 * self.rho) as usize
    }

    /// Adds the rows that are computed whatever they have drifted.
    fn choose(
        &self,
        view: &View<'_>,
        query: &Query,
        sequence: Sequence,
        rows: &Range<Position>,
        block: Range<Position>,
        compute: &mut Positions,
    ) {
        if self.rows == PartialRows::Drift {
            return;
        }
        let held = query.branches.lane(0);
        for position in query.predict.iter().filter(|&position| view.canvas.is_open_after(position, held)) {
            compute.insert(position.saturating_sub(view.shift));
        }
        for row in block {
            compute.insert(row);
        }
        // What the other drafts hold is theirs to see: the largest holds it all.
        let largest = query.branches.lane(query.branches.sizes.len().saturating_sub(1));
        for commit in largest.iter().filter(|commit| rows.contains(&commit.position)) {
            compute.insert(commit.position);
        }
        let stale = match sequence {
            Sequence::Canvas => &self.canvas.stale,
            Sequence::Unconditional => &self.unconditional.stale,
        };
        for row in stale.iter().filter(|row| rows.contains(row)) {
            compute.insert(row);
        }
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

/// The rows of the block that is decoded, among these.
fn block_rows(view: &View<'_>, held: &[Commit], rows: &Range<Position>) -> Range<Position> {
    let block = view.layout.block(refresh::block(view, held));
    (block.start as Position).max(rows.start)..(block.end as Position).min(rows.end)
}

impl CachePolicy for DllmCache {
    fn needs(&self, layout: &Layout) -> SequenceLimits {
        let stored = self.guided > 1;
        SequenceLimits {
            positions: layout.len(),
            rows: layout.len(),
            // A pass whose difference is stored reads every mask.
            predictions: if stored { layout.len() - layout.response() } else { 0 },
            increments: true,
            residual: stored,
            ..SequenceLimits::default()
        }
    }

    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        // The first draft is good: what it holds counts as committed, as it is where no drafts run.
        let held = query.branches.lane(0);
        self.held = held.len();
        self.canvas.committed(held);
        self.unconditional.committed(held);
        self.fill(view, query, Sequence::Canvas, plan);
    }

    /// The unconditional sequence has clocks of its own, which count its passes only.
    fn guide(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan, unconditional: &mut StepPlan) -> bool {
        self.passes = self.is_guided(self.canvas.forward());
        if !self.passes {
            return false;
        }
        self.fill(view, query, Sequence::Unconditional, unconditional);
        if !self.is_guided(self.canvas.forward() + 1) {
            // The next forwards live off the difference, wherever they decode.
            let held = query.branches.lane(0);
            let open = |&position: &Position| view.canvas.is_open_after(position, held);
            for position in (view.layout.response() as Position..plan.kv_len).filter(open) {
                plan.hint.push(position);
            }
        }
        true
    }

    /// The released code runs the two passes one after the other.
    fn nfe(&self, sequences: usize) -> usize {
        sequences
    }

    fn observe(&mut self, _view: &View<'_>, _plan: &StepPlan, progress: &Progress) {
        self.canvas.ran();
        if std::mem::take(&mut self.passes) {
            self.unconditional.ran();
        }
        // What the first draft held was counted when it was planned.
        let fresh = progress.commits.get(self.held..).unwrap_or_default();
        self.canvas.committed(fresh);
        self.unconditional.committed(fresh);
    }

    fn reclaim(&mut self, layers: LayerRows) {
        if let LayerRows::Partial { compute, probe, .. } = layers {
            self.spare.extend([Some(compute), probe.map(|probe| probe.rows)].into_iter().flatten());
        }
    }

    fn memory(&self) -> Memory {
        Memory::OfHistory
    }

    fn rule(&self, layout: &Layout) -> Option<String> {
        let (block, response) = (layout.block_length(), layout.len() - layout.response());
        let share = self.share(response);
        let of = format!("{share} of the response's {response} rows (rho)");
        Some(match self.rows {
            PartialRows::Block if block >= response => {
                format!("the block is the whole response, whose {response} rows are computed in each forward")
            }
            PartialRows::Block if block > share => {
                format!("the block's {block} rows are computed in each forward, which are more than the share of {of}")
            }
            PartialRows::Block => {
                format!("the block's {block} rows are computed in each forward, and what has drifted most, up to {of}")
            }
            PartialRows::Drift => format!("what has drifted most is computed between refreshes, {of}"),
        })
    }
}
