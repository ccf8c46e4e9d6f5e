//! A cache policy of one's own: a window around what is decoded is computed in each forward, everything else now and then.
//!
//! `cargo run --release -p demask --example own_cache -- --cache sliding:every=4,reach=8 "Ada has 3 pears. Ben gives Ada 4
//! more. How many pears are there in the end?"`; without a question it answers this one.
#![expect(clippy::print_stdout, reason = "the answer is for whoever runs it")]

use std::error::Error;

use demask::{
    Model, Options, Registry,
    methods::{
        Memory, Progress, Query, Setup, View,
        caches::{CacheKind, CacheMethod, CachePolicy},
        parameters,
        spec::Kind,
        step::{MaskKind, Position, StepPlan},
    },
};

parameters! {
    /// A window around what is decoded, and a refresh of everything every few forwards.
    pub struct Sliding {
        /// forwards from one refresh of all rows to the next
        pub every: usize = 4, Kind::count(1, usize::MAX);
        /// rows computed on either side of what is decoded
        pub reach: usize = 8;
    }
}

/// The entry that a [`Registry`] takes.
pub static METHOD: CacheMethod = CacheMethod::of::<Sliding>();

/// Cache kind whose slots depend on when they were last computed: it claims nothing, the traits stay the defaults.
impl CacheKind for Sliding {
    const NAME: &'static str = "sliding";
    const SUMMARY: &'static str =
        "a window around what is decoded is live; everything is computed again every few forwards";
    const SOURCE: &'static str = "this example";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

    fn build(&self, _setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        Box::new(SlidingWindow { parameters: *self, forwards: 0 })
    }
}

#[derive(Debug)]
struct SlidingWindow {
    parameters: Sliding,
    /// Forwards so far.
    forwards: usize,
}

impl CachePolicy for SlidingWindow {
    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        // A decoder may leave the end of the canvas out.
        let end = query.end(view.canvas);
        plan.kv_len = end;
        plan.predict.clone_from(&query.predict);
        let window = query.predict.first().zip(query.predict.last());
        let Some((first, last)) = window.filter(|_| !self.forwards.is_multiple_of(self.parameters.every)) else {
            plan.query.set_range(0..end);
            return;
        };
        let reach = Position::try_from(self.parameters.reach).unwrap_or(Position::MAX);
        // The row that predicts a position may stand before it, and must be live.
        let start = first.saturating_sub(view.shift).saturating_sub(reach);
        plan.query.set_range(start..last.saturating_add(1).saturating_add(reach).min(end));
    }

    fn observe(&mut self, _view: &View<'_>, _plan: &StepPlan, _progress: &Progress) {
        self.forwards += 1;
    }

    fn memory(&self) -> Memory {
        Memory::OfHistory
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let registry = Registry::default().with_cache(&METHOD)?;
    let (mut decoder, mut cache) = (registry.decoder("static")?, Sliding::default().into());
    let mut question = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?".to_owned();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value, for example sliding:every=4"));
        match argument.as_str() {
            "--decoder" => decoder = registry.decoder(&value()?)?,
            "--cache" => cache = registry.cache(&value()?)?,
            _ => question = argument,
        }
    }
    let model = Model::demo()?;
    let options = Options { decoder: Some(decoder), cache: Some(cache), gen_length: Some(64), ..Options::default() };
    let answer = model.generate_with(question, &options)?;
    let receipt = &answer.receipt.decoding;
    println!("{answer}");
    println!(
        "decoder {}, cache {}: {}, {} rows in {} forwards",
        receipt.decoder, receipt.cache, receipt.exactness, receipt.rows, receipt.nfe
    );
    Ok(())
}
