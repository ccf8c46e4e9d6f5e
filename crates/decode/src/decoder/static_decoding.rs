//! Static decoding: a fixed number of commits per step, the first in the order. The run that lossless methods must
//! reproduce (LLaDA `generate`, Dream `diffusion_generate`, SDAR's static strategies).

use demask_step::MaskKind;

use super::{Blockwise, Decoder, DecoderMethod, DecoderSpec, Promise, Setup};
use crate::{
    spec::{About, Kind, Parameter, Value},
    transfer::{Quota, Remasking, Transferred},
};

pub(super) const METHOD: DecoderMethod = DecoderMethod {
    about: About {
        name: "static",
        summary: "a fixed number of tokens per step, as the schedule says, the most confident first",
        source: "LLaDA generate.py, Dream diffusion_generate, SDAR generate.py; \
                 specification caches 1, models 2.5, 3.5 and 4.5",
        parameters: &[Parameter {
            name: "steps",
            kind: Kind::Count { least: 1, most: usize::MAX },
            default: Value::Fit,
            doc: "steps over all blocks; fitted: one token a step",
        }],
    },
    attention: &[MaskKind::Full, MaskKind::BlockCausal],
    promise: Promise::Reference,
    takes_origin: true,
    build,
};

fn build(_spec: &DecoderSpec, setup: &Setup<'_>) -> Box<dyn Decoder> {
    if setup.ranking.remasking == Remasking::Origin {
        Box::new(Blockwise::new(Transferred, setup))
    } else {
        Box::new(Blockwise::new(Quota, setup))
    }
}
