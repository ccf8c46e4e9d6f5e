//! Plain autoregressive decoding of a causal model: one token a forward, from left to right (specification models,
//! section 5).

use demask_step::{HeadAsk, MaskKind, NO_TOKEN, Position, SequenceNeeds};

use super::{Answer, Decoder, DecoderMethod, DecoderSpec, Intent, Promise, Query, Setup, Turn, Turned, View};
use crate::{event::Commit, layout::Layout, spec::About};

pub(super) const METHOD: DecoderMethod = DecoderMethod {
    about: About {
        name: "ar",
        summary: "plain autoregressive decoding of a causal model, one token a forward",
        source: "transformers generate; specification models 5",
        parameters: &[],
    },
    attention: &[MaskKind::Causal],
    promise: Promise::Reference,
    takes_origin: false,
    build,
};

fn build(_spec: &DecoderSpec, _setup: &Setup<'_>) -> Box<dyn Decoder> {
    Box::new(Autoregressive)
}

#[derive(Debug)]
struct Autoregressive;

impl Decoder for Autoregressive {
    fn ask(&self, _ask: &mut HeadAsk) {}

    fn reserve(&self, _layout: &Layout, needs: &mut SequenceNeeds) {
        needs.predictions = needs.predictions.max(1);
    }

    fn intend(&mut self, view: &View<'_>, query: &mut Query) -> Intent {
        let next = view.canvas.first_mask();
        if next >= view.canvas.len() {
            return Intent::Done;
        }
        query.predict.push(next as Position);
        Intent::Predict
    }

    fn absorb(&mut self, view: &View<'_>, answer: &Answer<'_>, turn: &mut Turn<'_>) -> Turned {
        let (&Answer { predictions, .. }, progress) = (answer, &mut *turn.progress);
        let position = view.canvas.first_mask() as Position;
        let Some(index) = predictions.index(0, position) else { return Turned::Settled };
        let token = predictions.tokens.get(index).copied().unwrap_or(NO_TOKEN);
        let confidence = predictions.confidence.get(index).copied().unwrap_or(f32::NEG_INFINITY);
        if token != NO_TOKEN {
            progress.commits.push(Commit { position, token, confidence });
        }
        Turned::Settled
    }
}
