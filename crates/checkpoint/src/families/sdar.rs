//! SDAR, TraDo: a Qwen3 trained to fill masks block by block.

use demask_model::ArchSpec;
use demask_step::{ConfidenceOf, FilterOrder, Mask, Position};

use super::{
    DecodingDefaults, Family, GgufConventions, Holes, LikelihoodConventions, MaskDraws, Vocabulary, transformers,
};
use crate::{CheckpointError, Warning, fields::Fields};

/// Block length if the file has none: the released checkpoints' without a suffix.
const BLOCK: Position = 4;

pub(super) const FAMILY: Family = Family {
    name: "SDAR",
    architecture: "SDARForCausalLM",
    model_type: "sdar",
    parse,
    attention: Mask::blocks(BLOCK),
    shift: 0,
    mask_texts: &["<|MASK|>", "<MASK>"],
    head_norms: true,
    vocabularies: &[Vocabulary { rows: 151_936, mask: Some(151_669), eos: 151_643, turn_end: 151_645, bos: 151_643 }],
    gguf: GgufConventions { architecture: "sdar", ..transformers::GGUF },
    decoding: DecodingDefaults {
        filter_order: FilterOrder::TopKFirst,
        confidence: ConfidenceOf::Drawn,
        // No script of the authors estimates likelihoods, and a model that sees blocks has no such bound.
        likelihood: LikelihoodConventions { draws: MaskDraws::ByCount, ends: false, guidance: false },
        reserves_end: false,
        // SDAR's `generate.py`. The blocks behind an end are not decoded, whatever the length.
        gen_length: 128,
        sampler: None,
        holes: Holes::Unknown("a block model fills none"),
    },
    ..transformers::CAUSAL
};

fn parse(
    fields: &Fields<'_>,
    family: &Family,
    warnings: &mut Vec<Warning>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    let (mut spec, says_tied) = transformers::parse(fields, family, warnings)?;
    if let Some(block) = fields.optional_count("block_size", 1 << 16)? {
        spec.attention = Mask::blocks(block as Position);
    }
    Ok((spec, says_tied))
}
