//! A decoder that leaves the end of the canvas out of its forwards, and checks that a cache policy's plans end there.

use std::cell::RefCell;

use demask_decode::{
    CacheSpec, DecoderSpec, Setup,
    caches::CachePolicy,
    methods::{Answer, Decoder, DecoderKind, DecoderLoop, Proposal, Query, StepContext, StepResult, View},
    parameters,
};
use demask_step::{HeadAsk, MaskKind, Position};

use super::{Broken, Case, Pair};

parameters! {
    /// Static decoding whose later forwards in a block end after its last mask.
    pub struct Ending {}
}

impl DecoderKind for Ending {
    const NAME: &'static str = "ending";
    const SUMMARY: &'static str = "static decoding that leaves the end of the canvas out";
    const SOURCE: &'static str = "this suite";
    // Elsewhere no row sees what is behind its block.
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];
}

impl DecoderLoop for Ending {
    fn build(&self, setup: &Setup<'_>, cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        Box::new(Ended { inner: DecoderSpec::default().build(setup, cache), block: usize::MAX, end: None })
    }
}

#[derive(Debug)]
struct Ended {
    inner: Box<dyn Decoder>,
    /// Block of the last forward.
    block: usize,
    /// End of the current forward.
    end: Option<Position>,
}

thread_local! {
    /// The first plan that went further than its forward.
    static WRONG: RefCell<Option<String>> = const { RefCell::new(None) };
}

impl Decoder for Ended {
    fn ask(&self, ask: &mut HeadAsk) {
        self.inner.ask(ask);
    }

    fn propose(&mut self, view: &View<'_>, query: &mut Query) -> Proposal {
        let proposal = self.inner.propose(view, query);
        // A block's first forward is a whole one: policies fill their slots by it.
        let is_later = self.block == view.block;
        self.block = view.block;
        self.end = query.predict.last().filter(|_| is_later).map(|last| last + 1);
        query.end = self.end;
        proposal
    }

    fn accept(&mut self, view: &View<'_>, answer: &Answer<'_>, context: &mut StepContext<'_>) -> StepResult {
        let last = answer.plan.query.last();
        if let Some(end) = self.end
            && (answer.plan.kv_len > end || last.is_some_and(|last| last >= end))
        {
            let (visible, last) = (answer.plan.kv_len, last.unwrap_or_default());
            let found =
                format!("a plan of rows up to {last} that see up to {visible}, of a forward that ends at {end}");
            WRONG.with_borrow_mut(|wrong| wrong.get_or_insert(found).len());
        }
        self.inner.accept(view, answer, context)
    }
}

/// Holds the plans of a cache policy to the end of the forward that they are of.
pub(super) fn honoured(cache: &CacheSpec, case: &Case) -> Result<(), Broken> {
    let Some(options) = case.options(&Ending {}.into(), cache) else { return Ok(()) };
    WRONG.take();
    let pair = Pair { case, options, name: format!("cache {cache}") };
    pair.run(&pair.options)?;
    match WRONG.take() {
        Some(found) => Err(pair.broken("a plan ends where the decoder ends the forward (`Query::end`)", found)),
        None => Ok(()),
    }
}
