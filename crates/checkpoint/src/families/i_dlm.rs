//! I-DLM: a Qwen3 whose masks are trained under causal attention; its files bear SDAR's class name
//! (specs/families.md#7).

use demask_step::FilterOrder;

use super::{DecodingDefaults, Evidence, Family, Seen, Vocabulary, sdar, transformers};
use crate::{CheckpointError, fields::Fields};

pub(super) const FAMILY: Family = Family {
    name: "I-DLM",
    trains_causal_masks: true,
    mask_texts: sdar::FAMILY.mask_texts,
    head_norms: true,
    vocabularies: &[Vocabulary { rows: 151_936, mask: Some(151_669), eos: 151_643, turn_end: 151_645, bos: 151_643 }],
    decoding: DecodingDefaults { filter_order: FilterOrder::TopKFirst, ..transformers::CAUSAL.decoding },
    ..transformers::CAUSAL
};

/// Most masks in a row in training that are read.
const MOST_MASKS: usize = 1 << 16;

/// Looks in a file of SDAR's class for what only an I-DLM has, the surest sign first.
pub(super) fn sign(fields: &Fields<'_>, evidence: Evidence<'_>) -> Result<Seen, CheckpointError> {
    let masks = fields.optional_count("block_size", MOST_MASKS)?;
    let causal = fields.optional_flag("use_regular_causal")?;
    if let Some(causal) = causal {
        return Ok(Seen { found: causal, reason: Some(format!("config.json says use_regular_causal {causal}")) });
    }
    let name = evidence.name.to_ascii_lowercase();
    if let Some(part) = ["i-dlm", "idlm"].into_iter().find(|part| name.contains(part)) {
        return Ok(Seen { found: true, reason: Some(format!("its name contains {part:?}{}", stride(masks))) });
    }
    match masks {
        Some(masks) if !masks.is_multiple_of(4) => {
            let reason =
                format!("its block_size is {masks} and those of SDAR are multiples of 4{}", stride(Some(masks)));
            Ok(Seen { found: true, reason: Some(reason) })
        }
        _ => Ok(Seen { found: false, reason: doubt(fields, masks)? }),
    }
}

/// Returns the stride of decoding for a model that was trained with this number of masks in a row, in words.
fn stride(masks: Option<usize>) -> String {
    masks.map_or_else(String::new, |masks| format!(", trained for decoder isd with stride {}", masks + 1))
}

/// Says why a file that is taken for SDAR may be of an I-DLM, if it may.
fn doubt(fields: &Fields<'_>, masks: Option<usize>) -> Result<Option<String>, CheckpointError> {
    let context = fields.get("max_position_embeddings").and_then(serde_json::Value::as_u64);
    let ends = fields.tokens("eos_token_id")?;
    let alike = masks == Some(4) && context == Some(40_960) && ends.first() == Some(&151_645);
    Ok(alike.then(|| {
        "its block_size is 4, but with this context and this end it may be an I-DLM that was trained for stride 5: name I-DLM \
         if it is one"
            .to_owned()
    }))
}
