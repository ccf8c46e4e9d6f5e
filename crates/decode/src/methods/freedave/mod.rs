//! FreeDave: several steps of static decoding are drafted from one set of predictions, all drafts are run in one
//! forward, and those that static decoding would have come to are taken (Free Draft-and-Verification, Algorithm 2 of
//! the paper; specs/freedave.md#1.7, specs/freedave.md#1.9 and specs/freedave.md#8.1).
//!
//! The predictions at a state of the canvas say what static decoding commits next, so the first draft is known to be
//! good. A draft that equals the predictions in the accepted draft before it is good as well: it is the next state of
//! static decoding. So the tokens are those of static decoding, whatever is drafted, as long as a forward's predictions
//! are a function of the canvas.
//!
//! Over a cache whose slots depend on the steps before (dKV-Cache, dLLM-Cache, FreeCache as released) they are not:
//! each draft runs on the slots of the last step, where static decoding would have come to it by several. Such a run is
//! approximate. A forward is one step of the cache, the accepted draft's: its K/V, increments and drift become the
//! slots'. So with one draft it is static decoding over that cache, token by token and forward by forward.
//!
//! Two ways to spend the forwards:
//!
//! * `reference`, as released: a forward over each block before the first drafts; the first draft is the first known
//!   step; finished blocks are stored by forwards of their own.
//! * `rolling`: known steps are committed at once and the first draft is the canvas itself, predictions are carried
//!   into the next block, and the cache policy stores rows without forwards of its own where it can.

mod drafting;

use demask_step::MaskKind;

use super::{static_decoding::Static, threshold::Threshold};
use crate::{
    choices,
    error::{self, OptionsError},
    method::{CacheMethod, Confidence, DecoderKind, DecoderLoop, DecoderTraits, Promise, Setup, Store},
    parameters,
    policy::{CachePolicy, Memory},
    spec::{Kind, OrAuto, alternatives},
    step::Decoder,
    transfer::Transfer,
};

use drafting::Drafting;

choices! {
    /// Use of the forwards.
    pub enum Mode {
        /// Predictions carried into the next block, stores fused.
        Rolling = "rolling",
        /// The forwards of the released program.
        Reference = "reference",
    }
}

choices! {
    /// Rule by which a draft agrees with the prediction.
    pub enum DraftRule {
        /// Agreement of a draft that equals the prediction.
        Exact = "exact",
        /// Agreement also of a draft that lacks some of the predicted tokens.
        Subset = "subset",
    }
}

parameters! {
    /// Several static steps drafted at once and verified in one forward.
    pub struct FreeDave {
        /// drafts of one forward; auto: as many as are nearly free on the device, or 4 (for block-causal models 8) where the
        /// number changes the tokens
        pub d: OrAuto<usize> = OrAuto::Auto, Kind::or_auto(&Kind::Count { least: 1, most: 256 });
        /// predictions carried into the next block and stores fused, or the forwards of the released program
        pub mode: Mode = Mode::Rolling;
        /// drafts reach into the next blocks; fitted: with d=auto where those rows are nearly free too, with a fixed d under
        /// full attention where the cache allows it
        pub eager: Option<bool> = None;
        /// over decoder threshold with this tau instead of static decoding
        pub tau: Option<f32> = None, Kind::number(0.0, 1.0);
        /// with tau: only confidences above tau pass, not those equal to it
        pub strict: bool = false;
        /// with tau: take the schedule's count if fewer than that pass
        pub quota: bool = false;
        /// a draft must equal the predictions, or may lack some of them (as released; lossy with tau)
        pub rule: DraftRule = DraftRule::Exact;
        /// with tau: confidences of the model's own distribution, or of the tempered and filtered one, as threshold has them
        pub confidence: Confidence = Confidence::Clean;
    }
}

/// Drafts of one forward where `auto` must be a fixed number: under full attention, and of block-causal models.
const USUAL_DRAFTS: [usize; 2] = [4, 8];

impl FreeDave {
    /// The threshold that it runs over, if it does not run over static decoding.
    fn threshold(&self) -> Option<Threshold> {
        let Self { strict, quota, confidence, .. } = *self;
        self.tau.map(|tau| Threshold { tau, strict, quota, confidence, ..Threshold::default() })
    }
}

impl DecoderKind for FreeDave {
    const NAME: &'static str = "freedave";
    const SUMMARY: &'static str =
        "several static steps drafted at once and verified in one forward; the tokens of static decoding";
    const SOURCE: &'static str = "FreeDave (Free Draft-and-Verification); specs/freedave.md#1.7, specs/freedave.md#1.9 and specs/freedave.md#8.1";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full, MaskKind::BlockCausal];

    /// Drafts that lack some of the tokens that a threshold takes lead to canvases that the threshold alone never comes
    /// to. Then it promises nothing (specs/freedave.md#4.2).
    fn traits(&self) -> DecoderTraits {
        let confidence = self.threshold().map(|threshold| threshold.confidence.into());
        let promise = match self.threshold() {
            None => Promise::SameAs(Static::default().into()),
            Some(threshold) if self.rule == DraftRule::Exact => Promise::SameAs(threshold.into()),
            Some(_) => Promise::Approximate,
        };
        let stores = Some(if self.mode == Mode::Rolling { Store::Fused } else { Store::Alone });
        DecoderTraits { promise, confidence, stores, ..DecoderTraits::default() }
    }

    fn check(&self, setup: &Setup<'_>) -> Result<(), OptionsError> {
        let options = setup.options;
        let decoder = Self::NAME;
        if options.facts.blocks.seeds {
            return Err(error::seeds("decoder freedave", "use decoder threshold"));
        }
        let of_threshold =
            [("strict", self.strict), ("quota", self.quota), ("confidence", self.confidence != Confidence::Clean)];
        let unused = of_threshold.into_iter().find(|&(_, given)| given);
        if let (Some((parameter, _)), None) = (unused, self.tau) {
            let text = format!(
                "decoder {decoder} has {parameter} without tau, expected it with a threshold only: add tau or omit \
                 it"
            );
            return Err(error::value("decoder", text));
        }
        if self.eager == Some(true) && !options.cache.traits().spans_blocks {
            let (cache, spans) = (&options.cache, alternatives::<CacheMethod>(|cache| cache.traits().spans_blocks));
            let text = format!(
                "decoder {decoder} with eager drafts reaches into the next block, and cache {cache} has a forward \
                 predict one block only: omit eager, or use cache {spans}"
            );
            return Err(error::value("decoder", text));
        }
        Ok(())
    }
}

impl DecoderLoop for FreeDave {
    fn build(&self, setup: &Setup<'_>, cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        let (drafts, ahead) = self.lanes(setup, cache);
        let spans = setup.options.cache.traits().spans_blocks;
        let usual = self.usual_ahead(setup, drafts);
        let spec =
            Self { d: OrAuto::Given(drafts), eager: self.eager.or((ahead != usual).then_some(ahead > 0)), ..*self };
        let rule: Box<dyn Transfer> = match self.threshold() {
            None => Box::new(Static::default()),
            Some(threshold) => Box::new(threshold),
        };
        let rolling = self.mode == Mode::Rolling;
        let mut drafting = Drafting::new(rule, setup, cache, (spec.into(), drafts, rolling), ahead);
        drafting.eager = spans && ahead > 0;
        drafting.fitted = self.d == OrAuto::Auto && self.may_be_any(cache);
        drafting.subset = self.rule == DraftRule::Subset;
        drafting.parallel = self.tau.is_some();
        drafting.history = cache.memory() == Memory::OfHistory;
        drafting.starts_wide = setup.options.cache.traits().starts_wide;
        Box::new(drafting)
    }
}

fn block_causal(setup: &Setup<'_>) -> bool {
    setup.layout.attention().kind() == MaskKind::BlockCausal
}

impl FreeDave {
    /// Reports whether the number of drafts may be any. Over a cache with a history, or with rule `subset`, the number
    /// changes the tokens. The released program knows a fixed number.
    fn may_be_any(&self, cache: &dyn CachePolicy) -> bool {
        self.mode == Mode::Rolling && self.rule == DraftRule::Exact && cache.memory() == Memory::OfState
    }

    /// Returns how many drafts a forward runs, and how many blocks after the current one they may reach into.
    fn lanes(&self, setup: &Setup<'_>, cache: &dyn CachePolicy) -> (usize, usize) {
        let drafts = match self.d {
            OrAuto::Given(drafts) => drafts,
            OrAuto::Auto if !self.may_be_any(cache) => USUAL_DRAFTS[usize::from(block_causal(setup))],
            OrAuto::Auto => return self.free_lanes(setup, cache),
        };
        (drafts, self.usual_ahead(setup, drafts))
    }

    /// Blocks that a fixed number of drafts reaches into. Under full attention the rows of later blocks run anyway; a
    /// block-causal model's are extra ones, of each draft.
    fn usual_ahead(&self, setup: &Setup<'_>, drafts: usize) -> usize {
        let fitted = self.mode == Mode::Rolling && drafts > 1 && !block_causal(setup);
        let eager = self.eager.unwrap_or(fitted) && setup.options.cache.traits().spans_blocks;
        if eager { drafts.div_ceil(setup.layout.block_length()) } else { 0 }
    }

    /// As many drafts as have nearly free rows together, within the block. They reach into the next ones where those of a whole
    /// block are as free with the rows of these.
    fn free_lanes(&self, setup: &Setup<'_>, cache: &dyn CachePolicy) -> (usize, usize) {
        let options = setup.options;
        let block = setup.layout.block_length();
        let sequences = 1 + usize::from(options.cfg_scale > 0.0);
        let is_free = |drafts: usize, ahead: usize| {
            let rows = cache.draft_rows(setup.layout, 1 + ahead).saturating_mul(drafts * sequences);
            rows <= options.facts.free_rows
        };
        let near = (2..=block).rev().find(|&drafts| is_free(drafts, 0)).unwrap_or(1);
        let far = (2..=2 * block).rev().find(|&drafts| is_free(drafts, drafts.div_ceil(block))).unwrap_or(1);
        let spans = options.cache.traits().spans_blocks && self.eager != Some(false);
        match far {
            drafts if spans && (self.eager == Some(true) || drafts >= block.max(2)) => (drafts, drafts.div_ceil(block)),
            _ => (near, 0),
        }
    }
}
