//! Confidence-aware parallel decoding: all predictions above a threshold (Fast-dLLM, section 3.3 of the paper; SDAR's
//! dynamic strategy). The rule itself: [`crate::transfer::Threshold`].

use demask_step::MaskKind;

use super::{Blockwise, Decoder, DecoderMethod, DecoderSpec, Promise, Setup};
use crate::{
    spec::{About, Kind, Parameter, Value},
    transfer::{Capped, Remasking, Threshold},
};

pub(super) const METHOD: DecoderMethod = DecoderMethod {
    about: About {
        name: "threshold",
        summary: "every token whose confidence passes the threshold, and always the best one",
        source: "Fast-dLLM (threshold), SDAR low_confidence_dynamic; specification caches 3.1, models 4.5",
        parameters: &[
            Parameter {
                name: "tau",
                kind: Kind::Number { least: 0.0, most: 1.0 },
                default: Value::Number(0.9),
                doc: "the confidence to pass",
            },
            Parameter {
                name: "strict",
                kind: Kind::Flag,
                default: Value::Flag(false),
                doc: "only confidences above tau pass, not those equal to it",
            },
            Parameter {
                name: "quota",
                kind: Kind::Flag,
                default: Value::Flag(false),
                doc: "take the schedule's count if fewer than that pass (SDAR's dynamic rule)",
            },
            Parameter {
                name: "cap",
                kind: Kind::Flag,
                default: Value::Flag(false),
                doc: "take at most the schedule's count, what fails is added to the next step's (Fast-dLLM on Dream)",
            },
        ],
    },
    attention: &[MaskKind::Full, MaskKind::BlockCausal],
    promise: Promise::Approximate,
    takes_origin: false,
    build,
};

fn build(spec: &DecoderSpec, setup: &Setup<'_>) -> Box<dyn Decoder> {
    let rule = Threshold {
        tau: spec.number("tau"),
        strict: spec.flag("strict"),
        quota: spec.flag("quota"),
        run: setup.ranking.remasking == Remasking::LeftToRight,
    };
    if spec.flag("cap") {
        return Box::new(Blockwise::new(Capped(rule), setup));
    }
    Box::new(Blockwise::new(rule, setup))
}
