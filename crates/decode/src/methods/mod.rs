//! Decoders, and what one of your own is made from: parameters, rule and loop of a method in one file, a line each in
//! [`DECODERS`].

mod ar;
mod edit;
mod entropy_bounded;
mod factor;
mod freedave;
mod guided;
mod isd;
mod p2;
mod selfspec;
mod slowfast;
mod speculation;
mod static_decoding;
mod threshold;

use std::sync::OnceLock;

use crate::{
    method::CacheMethod,
    spec::{About, Method},
};

pub use crate::{
    blockwise::Blockwise,
    method::{Confidence, DecoderKind, DecoderLoop, DecoderMethod, DecoderSpec, DecoderTraits, Promise},
    step::{
        Accepted, Answer, AnswerSource, Decoder, Drafts, Judgement, Progress, Proposal, Query, StepContext, StepResult,
        View,
    },
};
pub use ar::Ar;
pub use edit::Edit;
pub use entropy_bounded::{EntropyBounded, EntropyRule};
pub use factor::{Factor, FactorRule};
pub use freedave::{DraftRule, FreeDave, Mode};
pub use guided::{GuidedDecoding, Target, Writer};
pub use isd::{DraftCheck, Isd};
pub use p2::P2;
pub use selfspec::SelfSpec;
pub use slowfast::SlowFast;
pub use static_decoding::Static;
pub use threshold::Threshold;

/// All decoders of this crate, the default first.
pub static DECODERS: &[DecoderMethod] = &[
    DecoderMethod::of::<Static>(),
    DecoderMethod::of::<Threshold>(),
    DecoderMethod::of::<Factor>(),
    DecoderMethod::of::<EntropyBounded>(),
    DecoderMethod::of::<SlowFast>(),
    DecoderMethod::of::<Edit>(),
    DecoderMethod::of::<P2>(),
    DecoderMethod::of::<FreeDave>(),
    DecoderMethod::of::<GuidedDecoding>(),
    DecoderMethod::of::<Ar>(),
    DecoderMethod::of::<SelfSpec>(),
    DecoderMethod::of::<Isd>(),
];

/// The decoders that the program knows: they never change, so that a text always means the same.
static KNOWN: OnceLock<Vec<&'static DecoderMethod>> = OnceLock::new();

impl Method for DecoderMethod {
    type Other = CacheMethod;

    const WHAT: &'static str = "decoder";

    fn built_in() -> &'static [Self] {
        DECODERS
    }

    fn known() -> &'static [&'static Self] {
        KNOWN.get_or_init(|| DECODERS.iter().collect())
    }

    fn install(methods: Vec<&'static Self>) -> bool {
        KNOWN.set(methods).is_ok()
    }

    fn about(&self) -> &About {
        &self.about
    }
}
