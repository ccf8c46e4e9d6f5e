//! Entropy-bounded decoding: as many of the surest positions as a bound on their summed entropy allows (SDAR). The rule
//! itself: [`crate::transfer::EntropyBounded`].

use demask_step::MaskKind;

use super::{Blockwise, Decoder, DecoderMethod, DecoderSpec, Promise, Setup};
use crate::{
    spec::{About, Kind, Parameter, Value},
    transfer::EntropyBounded,
};

pub(super) const METHOD: DecoderMethod = DecoderMethod {
    about: About {
        name: "entropy_bounded",
        summary: "the tokens of lowest entropy while the sum of their entropies stays below a bound, at least one",
        source: "SDAR entropy_bounded; specification models 4.5, freedave 2.1",
        parameters: &[Parameter {
            name: "eb",
            kind: Kind::Number { least: 0.0, most: f32::MAX },
            default: Value::Number(0.35),
            doc: "the bound in nats",
        }],
    },
    attention: &[MaskKind::Full, MaskKind::BlockCausal],
    promise: Promise::Approximate,
    takes_origin: false,
    build,
};

fn build(spec: &DecoderSpec, setup: &Setup<'_>) -> Box<dyn Decoder> {
    Box::new(Blockwise::new(EntropyBounded { bound: spec.number("eb") }, setup))
}
