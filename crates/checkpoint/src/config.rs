//! `config.json`: the family that it is of, and the architecture.

use demask_model::ArchSpec;
use serde_json::Value;

use crate::{
    CheckpointError, Family, Warning,
    error::quoted,
    families::{Evidence, FAMILIES, FamilyChoice, LLADA_MOE, RELATIVES, experts::too_many},
    fields::{Fields, TokenIds},
};

/// Content of a `config.json`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelConfig {
    /// Family of the model.
    pub family: &'static Family,
    /// The architecture.
    pub spec: ArchSpec,
    /// Sets whether the file says if the head is the embedding table. If it does not, the weights decide.
    pub says_tied: bool,
    /// Special tokens that the file names.
    pub tokens: TokenIds,
    /// Oddities of the file.
    pub warnings: Vec<Warning>,
}

/// Reads the text of a `config.json`; `file` is its name for messages.
pub fn parse_config(text: &[u8], file: &str) -> Result<ModelConfig, CheckpointError> {
    parse_config_as(text, file, None, Evidence::default())
}

/// Reads the configuration as the chosen family, or as the one that its fields, tensors and tokenizer identify.
pub(crate) fn parse_config_as(
    text: &[u8],
    file: &str,
    choice: Option<&FamilyChoice>,
    evidence: Evidence<'_>,
) -> Result<ModelConfig, CheckpointError> {
    let fields = Fields::parse(text, file)?;
    read(&fields, FAMILIES, choice, evidence)
}

/// Reads a configuration of whichever of the families it is, or of the one that was chosen.
pub(crate) fn read(
    fields: &Fields<'_>,
    families: &[&'static Family],
    choice: Option<&FamilyChoice>,
    evidence: Evidence<'_>,
) -> Result<ModelConfig, CheckpointError> {
    let mut warnings = Vec::new();
    let family = match choice {
        Some(choice) => choice.family(),
        None => related(find(fields, families)?, fields, evidence, &mut warnings)?,
    };
    refuse_quantised(fields)?;
    let (mut spec, says_tied) = (family.parse)(fields, family, &mut warnings)?;
    if let Some(choice) = choice {
        choice.apply(&mut spec);
    }
    let count = spec.experts.as_ref().map_or(0, |experts| experts.shape.count);
    if let Some(expected) = too_many(count, spec.layers) {
        return Err(fields.bad("num_experts", &count.into(), expected));
    }
    Ok(ModelConfig { family, spec, says_tied, tokens: fields.token_ids()?, warnings })
}

/// Returns the relative of a family whose sign the checkpoint shows, or the family itself.
fn related(
    family: &'static Family,
    fields: &Fields<'_>,
    evidence: Evidence<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<&'static Family, CheckpointError> {
    let mut found = family;
    for relative in RELATIVES.iter().filter(|relative| relative.of == family) {
        let seen = relative.sign.seen(fields, evidence)?;
        if seen.found {
            found = relative.family;
        }
        if let Some(sign) = seen.reason {
            warnings.push(Warning::FamilyBySign { family: found.name, sign });
        }
    }
    Ok(found)
}

/// `architectures[0]` decides; `model_type` only where it is absent, for LLaDA and LLaDA-MoE share theirs.
fn find(fields: &Fields<'_>, families: &[&'static Family]) -> Result<&'static Family, CheckpointError> {
    let architecture = match fields.get("architectures") {
        Some(Value::Array(list)) => list.first(),
        other => other,
    };
    let key = if architecture.is_some() { "architectures" } else { "model_type" };
    let value = architecture.or_else(|| fields.get("model_type"));
    let value = value.ok_or_else(|| fields.missing("architectures", "a list with the name of the architecture"))?;
    let name = value.as_str().ok_or_else(|| fields.bad(key, value, "the name of an architecture"))?;
    // LLaDA-MoE's files call themselves so, too.
    if key == "model_type" && name == "llada" && fields.get("num_experts").is_some() {
        return Ok(&LLADA_MOE);
    }
    let matches = |family: &&&'static Family| {
        !name.is_empty()
            && (family.aliases.contains(&name)
                || if key == "architectures" {
                    family.architecture == name
                } else {
                    family.model_type.eq_ignore_ascii_case(name)
                })
    };
    families.iter().find(matches).copied().ok_or_else(|| CheckpointError::UnknownArchitecture {
        file: fields.file().to_owned(),
        found: quoted(name),
        known: known(families),
    })
}

/// Architectures that are read, for messages.
fn known(families: &[&'static Family]) -> String {
    let named = families.iter().map(|family| family.architecture).filter(|architecture| !architecture.is_empty());
    let mut named: Vec<_> = named.collect();
    named.dedup();
    named.join(", ")
}

fn refuse_quantised(fields: &Fields<'_>) -> Result<(), CheckpointError> {
    for key in ["quantization_config", "quantization"] {
        if let Some(inner) = fields.object(key)? {
            let method = inner.get("quant_method").and_then(Value::as_str).unwrap_or("unknown");
            let what = format!("a checkpoint quantised by the method {}", quoted(method));
            return Err(fields.unsupported(what, "use the unquantised checkpoint and quantise at load"));
        }
    }
    Ok(())
}
