//! The suite finds broken methods: one method for each fault.

use demask_decode::{
    CacheSpec, DecoderSpec, Memory, Setup,
    caches::{CacheKind, CacheMethod, CachePolicy, CacheTraits, Maintenance, NoCache},
    event::Commit,
    methods::{
        Answer, Decoder, DecoderKind, DecoderLoop, DecoderMethod, DecoderTraits, Progress, Promise, Proposal, Query,
        Static, StepContext, StepResult, Threshold, View,
    },
    parameters,
};
use demask_step::{HeadAsk, MaskKind, StepPlan};

use super::{Broken, cache, decoder};

/// Faults of broken decoders.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Promises,
    Foresees,
    Refuses,
    LeavesMasks,
    Repeats,
    Invents,
}

/// Static or threshold decoding with a fault.
macro_rules! broken_decoder {
    ($module:ident, $fault:expr) => {
        mod $module {
            use super::*;

            parameters! {
                /// A broken decoder.
                pub struct BrokenDecoder {}
            }

            impl DecoderKind for BrokenDecoder {
                const NAME: &'static str = stringify!($module);
                const SUMMARY: &'static str = "broken";
                const SOURCE: &'static str = "this test";
                const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

                fn traits(&self) -> DecoderTraits {
                    let promise = if $fault == Fault::Promises { Promise::Reference } else { Promise::Approximate };
                    DecoderTraits { promise, foresees: $fault == Fault::Foresees, ..DecoderTraits::default() }
                }

                fn check(&self, _setup: &Setup<'_>) -> Result<(), demask_decode::OptionsError> {
                    let reason = "never".to_owned();
                    match $fault {
                        Fault::Refuses => {
                            Err(demask_decode::OptionsError::Method { what: "decoder", name: Self::NAME, reason })
                        }
                        _ => Ok(()),
                    }
                }
            }

            impl DecoderLoop for BrokenDecoder {
                fn build(&self, setup: &Setup<'_>, cache: &dyn CachePolicy) -> Box<dyn Decoder> {
                    let spec: DecoderSpec = match $fault {
                        Fault::Promises | Fault::Foresees | Fault::Repeats => {
                            Threshold { tau: 0.2, ..Threshold::default() }.into()
                        }
                        _ => Static::default().into(),
                    };
                    Box::new(Faulty { inner: spec.build(setup, cache), fault: $fault })
                }
            }

            pub(super) static METHOD: DecoderMethod = DecoderMethod::of::<BrokenDecoder>();
        }
    };
}

broken_decoder!(promising, Fault::Promises);
broken_decoder!(foreseeing, Fault::Foresees);
broken_decoder!(refusing, Fault::Refuses);
broken_decoder!(leaving, Fault::LeavesMasks);
broken_decoder!(repeating, Fault::Repeats);
broken_decoder!(inventing, Fault::Invents);

#[derive(Debug)]
struct Faulty {
    inner: Box<dyn Decoder>,
    fault: Fault,
}

impl Decoder for Faulty {
    fn ask(&self, ask: &mut HeadAsk) {
        self.inner.ask(ask);
    }

    fn propose(&mut self, view: &View<'_>, query: &mut Query) -> Proposal {
        if self.fault == Fault::LeavesMasks && view.canvas.masks() == 1 {
            return Proposal::Done;
        }
        self.inner.propose(view, query)
    }

    fn accept(&mut self, view: &View<'_>, answer: &Answer<'_>, context: &mut StepContext<'_>) -> StepResult {
        let result = self.inner.accept(view, answer, context);
        if self.fault == Fault::Repeats {
            // A token stands there already: the session drops it.
            context.progress.commits.push(Commit { position: 0, token: 1, confidence: f32::NAN });
        }
        if self.fault == Fault::Invents {
            context.progress.commits.iter_mut().for_each(|commit| commit.token = 99);
        }
        result
    }
}

/// Flaws of broken cache policies.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Flaw {
    /// Rows are computed every third forward only, and it calls itself exact.
    Exact,
    /// Rows are computed every third forward only, and it calls its slots a function of the canvas.
    OfState,
    /// Slots are seen that nothing was written to.
    Unwritten,
    /// Reserves too few rows.
    Reserves,
    /// Remembers something beyond its session.
    Remembers,
    /// Rows are computed every third forward only, and it says that the others can be computed again at any time.
    Recomputes,
    /// The end of a forward is the canvas's, whatever the decoder says.
    Overruns,
}

macro_rules! broken_cache {
    ($module:ident, $flaw:expr) => {
        mod $module {
            use super::*;

            parameters! {
                /// A broken cache policy.
                pub struct BrokenCache {}
            }

            impl CacheKind for BrokenCache {
                const NAME: &'static str = stringify!($module);
                const SUMMARY: &'static str = "broken";
                const SOURCE: &'static str = "this test";
                const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

                fn traits(&self) -> CacheTraits {
                    CacheTraits { exact: $flaw == Flaw::Exact, memory: memory($flaw), ..CacheTraits::default() }
                }

                fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy> {
                    let spec: CacheSpec = NoCache::default().into();
                    Box::new(Flawed { inner: spec.build(setup), flaw: $flaw, forwards: 0 })
                }
            }

            pub(super) static METHOD: CacheMethod = CacheMethod::of::<BrokenCache>();
        }
    };
}

broken_cache!(exact, Flaw::Exact);
broken_cache!(of_state, Flaw::OfState);
broken_cache!(unwritten, Flaw::Unwritten);
broken_cache!(reserving, Flaw::Reserves);
broken_cache!(remembering, Flaw::Remembers);
broken_cache!(recomputing, Flaw::Recomputes);
broken_cache!(overrunning, Flaw::Overruns);

fn memory(flaw: Flaw) -> Memory {
    if flaw == Flaw::OfState { Memory::OfState } else { Memory::OfHistory }
}

#[derive(Debug)]
struct Flawed {
    inner: Box<dyn CachePolicy>,
    flaw: Flaw,
    forwards: usize,
}

thread_local! {
    static SESSIONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl CachePolicy for Flawed {
    fn needs(&self, layout: &demask_decode::Layout) -> demask_step::SequenceLimits {
        let mut needs = self.inner.needs(layout);
        if self.flaw == Flaw::Reserves {
            needs.rows -= 1;
        }
        needs
    }

    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        self.inner.plan(view, query, plan);
        let first = query.predict.first().unwrap_or(0).saturating_sub(view.shift);
        let last = query.predict.last().map_or(plan.kv_len, |last| last + 1);
        let offset = if self.flaw == Flaw::Remembers { SESSIONS.get() } else { 0 };
        let narrow = match self.flaw {
            Flaw::Exact | Flaw::OfState | Flaw::Recomputes => !self.forwards.is_multiple_of(3),
            Flaw::Remembers => !(self.forwards + offset).is_multiple_of(3) && self.forwards > 0,
            Flaw::Unwritten => true,
            Flaw::Reserves | Flaw::Overruns => false,
        };
        if self.flaw == Flaw::Overruns {
            plan.kv_len = view.canvas.len() as demask_step::Position;
            plan.query.set_range(0..plan.kv_len);
        }
        if narrow {
            plan.query.set_range(first..last);
        }
    }

    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, progress: &Progress) {
        if self.forwards == 0 {
            SESSIONS.set(SESSIONS.get() + 1);
        }
        self.forwards += 1;
        self.inner.observe(view, plan, progress);
    }

    fn memory(&self) -> Memory {
        memory(self.flaw)
    }

    fn recomputes(&self) -> bool {
        self.flaw == Flaw::Recomputes
    }
}

parameters! {
    /// A cache that says that it has stored more than it has.
    pub struct Generous {}
}

impl CacheKind for Generous {
    const NAME: &'static str = "generous";
    const SUMMARY: &'static str = "broken";
    const SOURCE: &'static str = "this test";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::BlockCausal];

    fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        Box::new(Leaving(CacheSpec::from(demask_decode::caches::Block::default()).build(setup)))
    }
}

static GENEROUS: CacheMethod = CacheMethod::of::<Generous>();

/// Blocks are stored as they should be, and one more is said to be.
#[derive(Debug)]
struct Leaving(Box<dyn CachePolicy>);

impl CachePolicy for Leaving {
    fn maintenance(&mut self, view: &View<'_>, plan: &mut StepPlan) -> Maintenance {
        self.0.maintenance(view, plan)
    }

    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        self.0.plan(view, query, plan);
    }

    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, progress: &Progress) {
        self.0.observe(view, plan, progress);
    }

    fn memory(&self) -> Memory {
        Memory::OfHistory
    }

    fn reusable(&self) -> demask_step::Position {
        self.0.reusable() + 12
    }
}

parameters! {
    /// An exact cache whose forwards predict one block.
    pub struct Narrow {}
}

impl CacheKind for Narrow {
    const NAME: &'static str = "narrow";
    const SUMMARY: &'static str = "no cache, block by block";
    const SOURCE: &'static str = "this test";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

    fn traits(&self) -> CacheTraits {
        CacheTraits { exact: true, memory: Memory::OfState, ..CacheTraits::default() }
    }

    fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        CacheSpec::from(NoCache::default()).build(setup)
    }
}

static NARROW: CacheMethod = CacheMethod::of::<Narrow>();

#[test]
fn an_exact_cache_may_draft_less_than_no_cache_behind_the_end() {
    assert_eq!(cache(&NARROW), Ok(()));
}

#[test]
fn a_plan_that_ignores_the_end_of_its_forward_is_found() {
    let told = message(cache(&overrunning::METHOD));
    assert!(told.contains("expected that a plan ends where the decoder ends the forward (`Query::end`)"), "{told}");
    assert!(told.contains("found a plan of rows up to "), "{told}");
}

fn message(found: Result<(), Broken>) -> String {
    found.expect_err("the suite must find it").to_string()
}

#[test]
fn a_false_promise_is_found() {
    let told = message(decoder(&promising::METHOD));
    assert!(told.starts_with("decoder promising, cache none"), "{told}");
    assert!(told.contains(" (full attention with shift 0, "), "{told}");
    assert!(told.contains("a decoder that promises the reference commits what it commits, found token "), "{told}");
}

#[test]
fn false_foresight_is_found() {
    let told = message(decoder(&foreseeing::METHOD));
    assert!(told.contains("it commits what it foresees, and foresees where it says so, found that it fore"), "{told}");
}

#[test]
fn a_decoder_that_refuses_its_models_is_found() {
    assert_eq!(
        message(decoder(&refusing::METHOD)),
        "decoder refusing: expected that it decodes the models that it names, found that it refuses every case with \
         full attention"
    );
}

#[test]
fn masks_that_are_left_are_found() {
    let told = message(decoder(&leaving::METHOD));
    assert!(told.ends_with("expected that a run decodes everything, found that it ends with 1 masks"), "{told}");
}

#[test]
fn tokens_that_nobody_has_are_found() {
    let told = message(decoder(&inventing::METHOD));
    assert!(told.contains("expected that commits are tokens, found 99 at position "), "{told}");
}

#[test]
fn a_session_drops_commits_where_tokens_stand() {
    assert_eq!(decoder(&repeating::METHOD), Ok(()));
}

#[test]
fn a_cache_that_is_not_exact_is_found() {
    let told = message(cache(&exact::METHOD));
    assert!(told.starts_with("cache exact, decoder static (full attention with shift 0, "), "{told}");
    assert!(told.contains("an exact cache gives the commits of no cache, found token "), "{told}");
}

#[test]
fn slots_that_are_no_function_of_the_canvas_are_found() {
    let told = message(cache(&of_state::METHOD));
    assert!(told.contains("drafts are lossless: the commits are those of the decoder that is promised"), "{told}");
}

#[test]
fn slots_that_were_never_written_are_found() {
    let told = message(cache(&unwritten::METHOD));
    assert!(told.contains("expected that its plans are legal and within what it reserved, found "), "{told}");
}

#[test]
fn rows_beyond_the_reserve_are_found() {
    let told = message(cache(&reserving::METHOD));
    assert!(told.contains("expected that its plans are legal and within what it reserved, found "), "{told}");
    assert!(told.contains("rows"), "{told}");
}

#[test]
fn what_outlives_a_session_is_found() {
    let told = message(cache(&remembering::METHOD));
    assert!(told.contains("expected that two equal runs are equal, found token "), "{told}");
}

#[test]
fn slots_that_cannot_be_computed_again_are_found() {
    // Its first live row is not the first that it needs: what is after that is not computed again.
    let told = message(cache(&recomputing::METHOD));
    assert!(told.ends_with(" is visible and was never written"), "{told}");
}

#[test]
fn slots_that_are_left_too_early_are_found() {
    let told = message(cache(&GENEROUS));
    assert!(
        told.contains("expected that what it leaves of its slots is right, found a slot is cached that "),
        "{told}"
    );
}
