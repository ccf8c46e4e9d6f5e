//! Fast-dLLM v2: a Qwen2.5 trained to fill masks block by block, rows predicting the next position of their block; the
//! pass that stores a block predicts the first token of the next (specs/families.md#4).

use demask_model::ArchSpec;
use demask_step::{BlockRules, Mask, Position, Stores};

use super::{Family, Vocabulary, qwen2, sdar, transformers};
use crate::{CheckpointError, Warning, fields::Fields};

/// Block length where the file does not say.
const BLOCK: Position = 32;

pub(super) const FAMILY: Family = Family {
    name: "Fast-dLLM-v2",
    architecture: "Fast_dLLM_QwenForCausalLM",
    model_type: "Fast_dLLM_Qwen",
    parse,
    attention: Mask::blocks(BLOCK),
    shift: 1,
    blocks: BlockRules { shares_masks: true, stores: Stores::IfRead, seeds: true, ..transformers::BLOCKS },
    mask_texts: &["|<MASK>|"],
    vocabularies: &[
        Vocabulary { rows: 151_936, mask: Some(151_665), eos: 151_645, turn_end: 151_645, bos: 151_643 },
        Vocabulary { rows: 152_064, mask: Some(151_665), eos: 151_645, turn_end: 151_645, bos: 151_643 },
    ],
    own_specials: &[("|<MASK>|", true)],
    gguf: transformers::GGUF,
    decoding: sdar::FAMILY.decoding,
    ..qwen2::FAMILY
};

fn parse(
    fields: &Fields<'_>,
    family: &Family,
    warnings: &mut Vec<Warning>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    let (mut spec, says_tied) = transformers::parse(fields, family, warnings)?;
    if let Some(block) = fields.optional_count("bd_size", 1 << 16)? {
        spec.attention = Mask::blocks(block as Position);
    }
    Ok((spec, says_tied))
}
