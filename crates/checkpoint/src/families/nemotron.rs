//! Nemotron-Labs-Diffusion: a Llama whose passes are causal or see their block, one after the other (
//! specs/families.md#5).

use demask_model::{ArchSpec, QueryScale, Role};
use demask_step::{BlockRules, Mask, Origin, Position, Stores};

use super::{Family, Vocabulary, sdar, transformers};
use crate::{CheckpointError, Warning, error::quoted, fields::Fields};

/// Block length where the file does not say.
const BLOCK: Position = 32;

pub(super) const FAMILY: Family = Family {
    name: "Nemotron-Labs-Diffusion",
    architecture: "NemotronLabsDiffusionModel",
    model_type: "nemotron_labs_diffusion",
    parse,
    tensor_name,
    attention: Mask::Context { context: 0, block: BLOCK },
    shift: 0,
    blocks: BlockRules {
        origin: Origin::Prompt,
        ends_short: true,
        shares_masks: true,
        stores: Stores::IfRead,
        seeds: true,
    },
    mask: Some(100),
    vocabularies: &[Vocabulary { rows: 131_072, mask: Some(100), eos: 11, turn_end: 11, bos: 1 }],
    gguf: transformers::GGUF,
    decoding: sdar::FAMILY.decoding,
    ..transformers::CAUSAL
};

fn parse(
    fields: &Fields<'_>,
    family: &Family,
    warnings: &mut Vec<Warning>,
) -> Result<(ArchSpec, bool), CheckpointError> {
    const HINT: &str = "expected a configuration like that of Nemotron-Labs-Diffusion-8B";
    for (key, wanted) in [("dlm_paradigm", "bidirectional"), ("dlm_type", "llada")] {
        if let Some(found) = fields.optional_text(key)?.filter(|found| *found != wanted) {
            return Err(fields.unsupported(format!("{key} {} (only {wanted:?} is)", quoted(found)), HINT));
        }
    }
    if fields.get("sliding_window").is_some() {
        return Err(fields.unsupported("a sliding window", HINT));
    }
    let (mut spec, says_tied) = transformers::parse(fields, family, warnings)?;
    if let Some(block) = fields.optional_count("block_size", 1 << 16)? {
        spec.attention = Mask::Context { context: 0, block: block as Position };
    }
    if let Some(rope) = fields.object("rope_parameters")?
        && let Some(beta) = rope.optional_number("llama_4_scaling_beta")?.filter(|beta| *beta != 0.0)
    {
        if spec.rope.rotated != spec.head_dim {
            return Err(fields.unsupported("a query scale where only a part of each head is turned", HINT));
        }
        let original_context = rope.positive("original_max_position_embeddings")?;
        spec.query_scale = Some(QueryScale { beta, original_context });
    }
    Ok((spec, says_tied))
}

/// Names of transformers below `encoder`, and a head of its own name.
fn tensor_name(role: Role) -> String {
    match role {
        Role::Head => "diffusion_head.weight".to_owned(),
        role => transformers::tensor_name(role).replacen("model.", "encoder.", 1),
    }
}
