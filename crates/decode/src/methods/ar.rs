//! Plain autoregressive decoding of a causal model: one token a forward, from left to right (specs/models.md#5).

use demask_step::{HeadAsk, MaskKind, NO_TOKEN, Position, Predictions, SequenceLimits};

use crate::{
    event::Commit,
    layout::Layout,
    method::{DecoderKind, DecoderLoop, DecoderTraits, Promise, Setup},
    parameters,
    policy::CachePolicy,
    step::{Answer, Decoder, Proposal, Query, StepContext, StepResult, View},
};

parameters! {
    /// One token a forward, from left to right.
    pub struct Ar {}
}

impl DecoderKind for Ar {
    const NAME: &'static str = "ar";
    const SUMMARY: &'static str = "plain autoregressive decoding of a causal model, one token a forward";
    const SOURCE: &'static str = "transformers generate; specs/models.md#5";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Causal, MaskKind::Context];

    fn traits(&self) -> DecoderTraits {
        DecoderTraits { promise: Promise::Reference, causal: true, ..DecoderTraits::default() }
    }
}

impl DecoderLoop for Ar {
    fn build(&self, _setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        Box::new(Autoregressive)
    }
}

/// Token that was predicted at a position in the first lane, if any.
pub(super) fn predicted(predictions: &Predictions, position: Position) -> Option<Commit> {
    let index = predictions.index(0, position)?;
    let token = predictions.tokens.get(index).copied().filter(|&token| token != NO_TOKEN)?;
    let confidence = predictions.confidence.get(index).copied().unwrap_or(f32::NEG_INFINITY);
    Some(Commit { position, token, confidence })
}

#[derive(Debug)]
struct Autoregressive;

impl Decoder for Autoregressive {
    fn ask(&self, _ask: &mut HeadAsk) {}

    fn reserve(&self, _layout: &Layout, needs: &mut SequenceLimits) {
        needs.predictions = needs.predictions.max(1);
    }

    fn propose(&mut self, view: &View<'_>, query: &mut Query) -> Proposal {
        let next = view.canvas.first_open();
        if next >= view.canvas.len() {
            return Proposal::Done;
        }
        query.predict.push(next as Position);
        Proposal::Predict
    }

    fn accept(&mut self, view: &View<'_>, answer: &Answer<'_>, context: &mut StepContext<'_>) -> StepResult {
        context.progress.commits.extend(predicted(answer.predictions, view.canvas.first_open() as Position));
        StepResult::Settled
    }
}
