//! A decoder of one's own: everything that is nearly as sure as the surest prediction of the block.
//!
//! `cargo run --release -p demask --example own_decoder -- --decoder margin_drop:delta=0.2 "Ada has 3 pears. Ben gives Ada
//! 4 more. How many pears are there in the end?"`; without a question it answers this one.
#![expect(clippy::print_stdout, reason = "the answer is for whoever runs it")]

use std::error::Error;

use demask::{
    Model, Options, Registry,
    methods::{
        DecoderKind, DecoderMethod, parameters,
        spec::Kind,
        step::MaskKind,
        transfer::{Candidate, State, Transfer},
    },
};

parameters! {
    /// Decoder that takes every prediction within a margin of the surest one.
    pub struct MarginDrop {
        /// how far below the surest prediction's confidence others may lie
        pub delta: f32 = 0.1, Kind::number(0.0, 1.0);
    }
}

/// The entry that a [`Registry`] takes.
pub static METHOD: DecoderMethod = DecoderMethod::of::<MarginDrop>();

impl DecoderKind for MarginDrop {
    const NAME: &'static str = "margin_drop";
    const SUMMARY: &'static str = "every token whose confidence lies within a margin of the best one's";
    const SOURCE: &'static str = "this example";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full, MaskKind::BlockCausal];
}

/// The rule of the loop over blocks: the surest prediction of the first block, and those that follow it closely.
impl Transfer for MarginDrop {
    fn choose(&self, state: &State, candidates: &mut [Candidate]) -> usize {
        // What is no number is not sure.
        let confidence = |candidate: &Candidate| candidate.confidence.max(0.0);
        let Some(first) = candidates.first() else { return 0 };
        let block = first.block;
        let within = candidates.iter().take_while(|candidate| candidate.block == block).count();
        let candidates = &mut candidates[..within];
        let best = candidates.iter().map(confidence).fold(0.0, f32::max);
        let close = |candidate: &Candidate| confidence(candidate) >= best - self.delta;
        // An order by position is kept: what comes first must be sure too.
        if !state.is_run() {
            // Candidates come in the order of commits, and a rule takes the first: those that are close move to the front.
            candidates.sort_by_key(|candidate| !close(candidate));
        }
        candidates.iter().take_while(|candidate| close(candidate)).count().max(1)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let registry = Registry::default().with_decoder(&METHOD)?;
    let (mut decoder, mut cache) = (MarginDrop::default().into(), None);
    let mut question = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?".to_owned();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value =
            || arguments.next().ok_or(format!("{argument} needs a value, for example margin_drop:delta=0.2"));
        match argument.as_str() {
            "--decoder" => decoder = registry.decoder(&value()?)?,
            "--cache" => cache = Some(registry.cache(&value()?)?),
            _ => question = argument,
        }
    }
    let model = Model::demo()?;
    let options = Options { decoder: Some(decoder), cache, gen_length: Some(64), ..Options::default() };
    let answer = model.generate_with(question, &options)?;
    let receipt = &answer.receipt.decoding;
    println!("{answer}");
    println!(
        "decoder {}, cache {}: {}, {} tokens in {} forwards",
        receipt.decoder, receipt.cache, receipt.exactness, receipt.generated_tokens, receipt.nfe
    );
    Ok(())
}
