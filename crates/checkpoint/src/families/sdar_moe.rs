//! SDAR-30B-A3B, a Qwen3 with experts that fills masks block by block, and RND1, which fills the whole canvas
//! (specs/families.md#6).

use demask_model::ArchSpec;
use demask_step::{ConfidenceOf, FilterOrder, Mask, Position};

use super::{
    DecodingDefaults, Family, GgufConventions, Holes, SamplerDefaults, Vocabulary, experts, llada, qwen3, sdar,
    transformers,
};
use crate::{CheckpointError, Warning, fields::Fields};

pub(super) const SDAR: Family = Family {
    name: "SDAR-MoE",
    architecture: "SDARMoeForCausalLM",
    model_type: "sdar_moe",
    parse,
    gguf: transformers::GGUF,
    ..sdar::FAMILY
};

pub(super) const RND1: Family = Family {
    name: "RND1",
    architecture: "RND1LM",
    model_type: "rnd1",
    parse: parse_rnd1,
    attention: Mask::Full,
    shift: 1,
    mask_texts: sdar::FAMILY.mask_texts,
    mask: Some(151_669),
    vocabularies: &[Vocabulary { rows: 151_936, mask: Some(151_669), eos: 151_645, turn_end: 151_645, bos: 151_643 }],
    gguf: GgufConventions { architecture: "rnd1", router: Some(experts::softmax(true)), ..transformers::GGUF },
    // specs/families.md#6.7.
    decoding: DecodingDefaults {
        filter_order: FilterOrder::TopKFirst,
        confidence: ConfidenceOf::Drawn,
        reserves_end: true,
        // RND1's sampler.
        gen_length: 256,
        sampler: Some(SamplerDefaults { schedule: "rnd1", remasking: "entropy", steps: 256, temperature: 0.1 }),
        holes: Holes::Unknown("its own sampler fills them"),
        ..llada::FAMILY.decoding
    },
    ..qwen3::FAMILY
};

fn parse(
    fields: &Fields<'_>,
    family: &Family,
    warnings: &mut Vec<Warning>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    let (mut spec, says_tied) = transformers::parse(fields, family, warnings)?;
    spec.experts = Some(experts::of_qwen3(fields, spec.layers)?);
    if let Some(block) = fields.optional_count("block_size", 1 << 16)? {
        spec.attention = Mask::blocks(block as Position);
    }
    Ok((spec, says_tied))
}

/// Parses RND1, whose files say false where others say null.
fn parse_rnd1(
    fields: &Fields<'_>,
    family: &Family,
    warnings: &mut Vec<Warning>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    let fields = &fields.with_false_as_null(&["rope_scaling", "sliding_window"]);
    experts::refuse_flag(fields, "is_causal", true)?;
    let (mut spec, says_tied) = transformers::parse(fields, family, warnings)?;
    spec.experts = Some(experts::of_qwen3(fields, spec.layers)?);
    Ok((spec, says_tied))
}
