//! Factor-based parallel decoding (Fast-dLLM, section 3.3 of the paper). The rule itself: [`crate::transfer::Factor`].

use demask_step::MaskKind;

use super::{Blockwise, Decoder, DecoderMethod, DecoderSpec, Promise, Setup};
use crate::{
    spec::{About, Kind, Parameter, Value},
    transfer::{Factor, Remasking},
};

pub(super) const METHOD: DecoderMethod = DecoderMethod {
    about: About {
        name: "factor",
        summary: "the most confident tokens as long as (n + 1) (1 - confidence of the n-th) stays within a factor",
        source: "Fast-dLLM (factor); specification caches 3.1",
        parameters: &[
            Parameter {
                name: "f",
                kind: Kind::Number { least: 0.0, most: f32::MAX },
                default: Value::Number(1.0),
                doc: "the factor: more takes more",
            },
            Parameter {
                name: "rule",
                kind: Kind::Choice(&["clean", "code"]),
                default: Value::Choice("clean"),
                doc: "the theorem's; or as released, where a failing last candidate is taken with all the others",
            },
        ],
    },
    attention: &[MaskKind::Full, MaskKind::BlockCausal],
    promise: Promise::Approximate,
    takes_origin: false,
    build,
};

fn build(spec: &DecoderSpec, setup: &Setup<'_>) -> Box<dyn Decoder> {
    let rule = Factor {
        factor: spec.number("f"),
        as_released: spec.choice("rule") == "code",
        run: setup.ranking.remasking == Remasking::LeftToRight,
    };
    Box::new(Blockwise::new(rule, setup))
}
