//! Cache policies: the rows that are computed and the stored keys that they see; one policy a file, one line each in
//! [`CACHES`].

mod block;
mod causal;
mod dkv;
mod dllm;
mod dual;
mod freecache;
mod none;
mod prefix;

use std::fmt;

use demask_step::{LayerRows, MaskKind, Position, SequenceNeeds, StepPlan};

use crate::{
    decoder::{Progress, Query, View},
    error::OptionsError,
    layout::Layout,
    resolve::Setup,
    spec::{About, Method, Parameters, Spec, Value},
};

pub use block::{Block, BlockCanvas, Live, Store};
pub use causal::Causal;
pub use dkv::{Dkv, Shift, Variant};
pub use dllm::{Boundary, Count, Dllm, FirstLayer, Phase, ProbeBy, Rows};
pub use dual::Dual;
pub use freecache::{FreeCache, Freeze};
pub use none::NoCache;
pub use prefix::{Prefix, Renewal, Start};

/// All cache policies of this crate, the default first.
pub static CACHES: &[CacheMethod] = &[
    CacheMethod::of::<NoCache>(),
    CacheMethod::of::<Prefix>(),
    CacheMethod::of::<Dual>(),
    CacheMethod::of::<FreeCache>(),
    CacheMethod::of::<Dkv>(),
    CacheMethod::of::<Dllm>(),
    CacheMethod::of::<Block>(),
    CacheMethod::of::<Causal>(),
];

/// A cache policy by name, with its parameters.
pub type CacheSpec = Spec<CacheMethod>;

/// A caching method: its parameters, which [`parameters!`](crate::parameters) declares, say what it is and make a
/// [`CachePolicy`].
pub trait CacheKind: Parameters {
    /// The name on the command line and in reports.
    const NAME: &'static str;
    /// One line: what it does.
    const SUMMARY: &'static str;
    /// Paper or program.
    const SOURCE: &'static str;
    /// The models it serves.
    const ATTENTION: &'static [MaskKind];

    /// Returns what others must know of it. By default it is not exact, and its slots have a history.
    fn traits(&self) -> CacheTraits {
        CacheTraits::default()
    }

    /// Refuses what does not go together with it: its own parameters, the decoder, the options.
    fn check(&self, _setup: &Setup<'_>) -> Result<(), OptionsError> {
        Ok(())
    }

    /// Makes one for a canvas.
    fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy>;
}

/// Facts about a cache policy with its parameters that other parts must know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheTraits {
    /// Records whether predictions are those of a run without any cache.
    pub exact: bool,
    /// Memory of its slots, at worst: on a given canvas a policy may declare less ([`CachePolicy::memory`]).
    pub memory: Memory,
    /// Records whether one forward may predict positions of several blocks: nothing is computed anew because a block
    /// starts. Drafts that reach into the next blocks need it.
    pub spans_blocks: bool,
    /// Records whether a block's first forward sees keys that its later ones do not, so that the same canvas, run
    /// again, may be predicted otherwise.
    pub starts_wide: bool,
    /// Records whether it takes no token as final before the canvas does, so that decoders may revise what they have
    /// written.
    pub revisable: bool,
}

/// An entry of a registry: a [`CacheKind`] whose type is erased.
#[derive(Debug)]
pub struct CacheMethod {
    /// Name, models, parameters, source.
    pub about: About,
    traits: fn(&[Value]) -> CacheTraits,
    check: fn(&[Value], &Setup<'_>) -> Result<(), OptionsError>,
    build: fn(&[Value], &Setup<'_>) -> Box<dyn CachePolicy>,
}

impl CacheMethod {
    /// Makes the entry of a method.
    pub const fn of<K: CacheKind>() -> Self {
        Self {
            about: About::new::<K>(K::NAME, K::SUMMARY, K::SOURCE, K::ATTENTION),
            traits: |values| K::of_values(values).traits(),
            check: |values, setup| K::of_values(values).check(setup),
            build: |values, setup| K::of_values(values).build(setup),
        }
    }
}

impl Method for CacheMethod {
    const WHAT: &'static str = "cache";

    fn built_in() -> &'static [Self] {
        CACHES
    }

    fn about(&self) -> &About {
        &self.about
    }
}

impl<K: CacheKind> From<K> for CacheSpec {
    /// Returns the method with these parameters. A session refuses those that are out of bounds.
    fn from(parameters: K) -> Self {
        Self::with(const { &CacheMethod::of::<K>() }, &parameters)
    }
}

impl CacheSpec {
    /// Returns what others must know of it.
    pub fn traits(&self) -> CacheTraits {
        (self.method().traits)(self.bare())
    }

    /// Refuses what does not go together with it.
    pub fn check(&self, setup: &Setup<'_>) -> Result<(), OptionsError> {
        (self.method().check)(self.bare(), setup)
    }

    /// Makes one for a canvas; what [`check`](Self::check) refuses may not work.
    pub fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        (self.method().build)(self.bare(), setup)
    }
}

/// Causes that the slots of a policy depend on. Draft-and-verify is lossless only over policies of state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Memory {
    /// A function of the canvas. What drafts wrote is dropped, but for what the policy itself keeps of it.
    OfState,
    /// State and steps: the slots also depend on the steps that led to the canvas. A forward with drafts is a step of
    /// the accepted one: the session keeps all that this draft wrote, and the policy's clocks count forwards. A run
    /// with single drafts is then, forward by forward, that of the canvas; more drafts pass through fewer steps, and
    /// may write other tokens.
    #[default]
    OfHistory,
}

/// Rows that have to be computed before the next prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upkeep {
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
    fn needs(&self, layout: &Layout) -> SequenceNeeds {
        SequenceNeeds { positions: layout.len(), rows: layout.len(), ..SequenceNeeds::default() }
    }

    /// Returns what has to be computed before the next prediction (prefill, store), and fills the plan of a forward of its
    /// own. Called before each intent until no such forward is due; by default nothing ever is.
    fn upkeep(&mut self, _view: &View<'_>, _plan: &mut StepPlan) -> Upkeep {
        Upkeep::None
    }

    /// Fills the plan of the query's forward.
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
    /// tokens: it never has them live then. By default none, and none can be where what stands behind a token changes its
    /// K/V, as under full attention.
    fn takes(&self, _layout: &Layout) -> Position {
        0
    }

    /// Learns, before the first plan or right behind it, that the slots of so many leading positions are filled, no more
    /// than it [takes](Self::takes).
    fn resume(&mut self, _filled: Position) {}

    /// Returns how many leading slots are written from final tokens, depend on nothing else, and will never be live or kept
    /// again: other requests may take them as they are. By default none.
    fn reusable(&self) -> Position {
        0
    }
}
