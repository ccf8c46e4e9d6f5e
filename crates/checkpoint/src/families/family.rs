//! Facts of a model family: how its files are read, and how its authors decode it.

use std::fmt;

use demask_model::{ArchSpec, ExpectedTensor, LayerRole, Role, expected_tensors};
use demask_step::{BlockRules, ConfidenceOf, FilterOrder, Mask};
use demask_tensor::RouterRule;
use serde_json::Value;

use crate::{CheckpointError, Message, RenderOptions, Rendered, Warning, fields::Fields};

/// Model family: how its files are read, and how its authors decode it.
pub struct Family {
    /// Name for people.
    pub(crate) name: &'static str,
    /// Name in the `architectures` of `config.json`; empty if it is another family's.
    pub(crate) architecture: &'static str,
    /// `model_type` that decides where `architectures` is absent; empty if it is another family's.
    pub(crate) model_type: &'static str,
    /// Other names that files have for either.
    pub(crate) aliases: &'static [&'static str],
    /// Parser of `config.json`.
    pub(crate) parse: Parse,
    /// Name of a role's tensor in checkpoints as released.
    pub(crate) tensor_name: fn(Role) -> String,
    /// Rows of a tensor that a role has, where several roles share one.
    pub(crate) fused: fn(&ArchSpec, LayerRole) -> Option<Rows>,
    /// Attention that the models are trained with, unless their files say more.
    pub(crate) attention: Mask,
    /// Distance from a row to the position that it predicts, see [`ArchSpec::shift`].
    pub(crate) shift: usize,
    /// Rules for its blocks, see [`ArchSpec::blocks`].
    pub(crate) blocks: BlockRules,
    /// Texts of the mask token where no key names it.
    pub(crate) mask_texts: &'static [&'static str],
    /// Id of the mask where no file names one: a constant of the official code.
    pub(crate) mask: Option<u32>,
    /// Sets whether a causal model is trained to guess tokens at masks: its files name the mask, and it needs one.
    pub(crate) trains_causal_masks: bool,
    /// Sets whether q, k and v have biases by construction.
    pub(crate) qkv_bias: bool,
    /// Sets whether the heads of q and k are normed.
    pub(crate) head_norms: bool,
    /// Sets whether the official code rotates in f32 whatever the type of the model.
    pub(crate) full_precision_rope: bool,
    /// Vocabularies of released models.
    pub(crate) vocabularies: &'static [Vocabulary],
    /// Special tokens after Qwen2.5's, for directories with a bare vocabulary.
    pub(crate) own_specials: &'static [(&'static str, bool)],
    /// Text of the token that ends a turn.
    pub(crate) turn_end: &'static str,
    /// Prompt of a conversation as the released models write it, for checkpoints without a template.
    pub(crate) prompt: fn(&[Message], &RenderOptions) -> Rendered,
    /// Conventions of the family's GGUF files.
    pub(crate) gguf: GgufConventions,
    /// Conventions of the official decoding.
    pub(crate) decoding: DecodingDefaults,
}

/// Rows of a tensor that several roles share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Rows in front of the role's own.
    pub first: usize,
    /// Rows of the tensor.
    pub all: usize,
}

/// A family that the `config.json` of another one names.
pub(crate) struct Relative {
    /// Family that the file names.
    pub of: &'static Family,
    /// Family of the files with the sign.
    pub family: &'static Family,
    /// Sign that identifies it.
    pub sign: Sign,
}

/// Sign of a family that `config.json` does not name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sign {
    /// The tokenizer's files name this mask token.
    MaskToken(&'static str),
    /// A value of `auto_map` contains this.
    Code(&'static str),
    /// The model's name contains this; without it the model is of the first family.
    Name(&'static str),
    /// Several signs, read by the family itself.
    Rule(fn(&Fields<'_>, Evidence<'_>) -> Result<Seen, CheckpointError>),
}

/// Result of a look for a sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Records whether the sign is there.
    pub found: bool,
    /// Reason for the choice, for a warning; none where the code itself names the family, or nothing is in doubt.
    pub reason: Option<String>,
}

/// Evidence for a family beside `config.json`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Evidence<'a> {
    /// Name of the model.
    pub name: &'a str,
    /// The mask token that the tokenizer's files name.
    pub mask_token: Option<&'a str>,
}

impl Sign {
    /// Looks for the sign in a checkpoint.
    pub(crate) fn seen(self, fields: &Fields<'_>, evidence: Evidence<'_>) -> Result<Seen, CheckpointError> {
        Ok(match self {
            Self::MaskToken(text) => {
                let found = evidence.mask_token == Some(text);
                let reason = || format!("its tokenizer names the mask token {text:?}");
                Seen { found, reason: found.then(reason) }
            }
            Self::Code(part) => {
                let values = fields.get("auto_map").and_then(Value::as_object).into_iter().flat_map(|map| map.values());
                let found = values.filter_map(Value::as_str).any(|code| code.contains(part));
                Seen { found, reason: None }
            }
            Self::Name(part) => {
                let found = evidence.name.to_ascii_lowercase().contains(part);
                let verb = if found { "contains" } else { "does not contain" };
                Seen { found, reason: Some(format!("its name {verb} {part:?}")) }
            }
            Self::Rule(rule) => rule(fields, evidence)?,
        })
    }
}

/// Parser of a family's `config.json`: the architecture, and whether the file says if the head is the embedding table.
pub(crate) type Parse = fn(&Fields<'_>, &Family, &mut Vec<Warning>) -> Result<(ArchSpec, bool), CheckpointError>;

/// Ids of one released vocabulary; they hold for models with as many rows.
pub(crate) struct Vocabulary {
    pub rows: usize,
    pub mask: Option<u32>,
    pub eos: u32,
    pub turn_end: u32,
    pub bos: u32,
}

/// Conventions of a family's GGUF files.
pub(crate) struct GgufConventions {
    /// `general.architecture`, and the prefix of the keys; empty if no converter knows the family.
    pub architecture: &'static str,
    /// Sets whether the converter puts the rows of q and k in pairs, for a rotation of neighbours.
    pub paired: bool,
    /// Family of a file that has this architecture and says that it is not causal.
    pub not_causal: Option<&'static Family>,
    /// Rule by which rows choose experts, in a family that has them: files name no rule, or this one.
    pub router: Option<RouterRule>,
    /// Sets whether a raw text starts with the first token.
    pub first_token: FirstToken,
}

/// Rule for the token at the start of a raw text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstToken {
    /// Never there, whatever the file says.
    Never,
    /// As the file says, or its way to cut texts if it does not.
    AsSaid,
}

/// Conventions of a family's official decoding, where options leave them open.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct DecodingDefaults {
    /// Order of the filters of a draw.
    pub filter_order: FilterOrder,
    /// Distribution whose probability ranks the predictions.
    pub confidence: ConfidenceOf,
    /// Estimate of how probable a text is.
    pub likelihood: LikelihoodConventions,
    /// Sets whether the last requested position is fixed from the start, and seen by all rows: it is the padding, or
    /// the text's end where there is none.
    pub reserves_end: bool,
    /// Positions of a response without a given length: those with which the family's authors evaluate or show their
    /// models. Each family's value cites its source.
    pub gen_length: usize,
    /// The authors' sampler, where it decodes if nobody says how; none where the engine recommends methods.
    pub sampler: Option<SamplerDefaults>,
    /// Evidence of how holes are filled over a cache.
    pub holes: Holes,
}

/// Evidence that the holes of a text are filled over the recommended cache as without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holes {
    /// They are, and the cache is used, as measured.
    AsWithoutCache(&'static str),
    /// Not known, and no cache is used: why.
    Unknown(&'static str),
}

/// Settings of static decoding with which a family's authors decode.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SamplerDefaults {
    /// Name of the schedule.
    pub schedule: &'static str,
    /// Name of the quantity that ranks predictions.
    pub remasking: &'static str,
    /// Steps, of one block that is the whole response.
    pub steps: usize,
    /// Temperature of tokens.
    pub temperature: f32,
}

/// Conventions of the scripts that estimate how probable a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LikelihoodConventions {
    /// Way in which masks are drawn; a causal model needs none.
    pub draws: MaskDraws,
    /// Sets whether the text is followed by an end that is never masked.
    pub ends: bool,
    /// Sets whether classifier-free guidance has a meaning.
    pub guidance: bool,
}

/// Way to draw the masks of an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskDraws {
    /// Draws how many tokens are masked, then which ones (LLaDA).
    ByCount,
    /// Draws how probably each token is masked (Dream).
    ByProbability,
}

impl Family {
    /// Returns the tensors that files of an architecture have: place among those of the architecture, name, and shape. Roles
    /// that share a tensor are one of them.
    pub fn stored_tensors(&self, spec: &ArchSpec) -> Vec<(usize, String, ExpectedTensor)> {
        let stored = |(place, mut tensor): (usize, ExpectedTensor)| {
            if let Role::Layer(_, role) = tensor.role
                && let Some(rows) = (self.fused)(spec, role)
            {
                // The first of them brings it.
                if rows.first > 0 {
                    return None;
                }
                tensor.rows = rows.all;
            }
            Some((place, (self.tensor_name)(tensor.role), tensor))
        };
        expected_tensors(spec).into_iter().enumerate().filter_map(stored).collect()
    }

    /// Returns the name, for people.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the name in the `architectures` of `config.json`; none if it is another family's.
    pub fn architecture(&self) -> Option<&'static str> {
        Some(self.architecture).filter(|name| !name.is_empty())
    }

    /// Returns the distance from a row to the position that it predicts, unless a file of the family says otherwise.
    pub fn shift(&self) -> usize {
        self.shift
    }

    /// Returns how blocks lie and end.
    pub fn blocks(&self) -> BlockRules {
        self.blocks
    }

    /// Returns who sees whom, unless a file of the family says more.
    pub fn attention(&self) -> Mask {
        self.attention
    }

    /// Returns the conventions of the official decoding.
    pub fn decoding(&self) -> &DecodingDefaults {
        &self.decoding
    }

    /// Returns how many tensors the files of an architecture have: several roles may share one.
    pub fn tensors(&self, spec: &ArchSpec) -> usize {
        let begins = |role: Role| match role {
            Role::Layer(_, role) => (self.fused)(spec, role).is_none_or(|rows| rows.first == 0),
            _ => true,
        };
        expected_tensors(spec).into_iter().filter(|tensor| begins(tensor.role)).count()
    }

    /// Returns whether the models are causal and trained to guess tokens at masks.
    pub fn trains_causal_masks(&self) -> bool {
        self.trains_causal_masks
    }

    /// Returns whether the models are trained to fill masks.
    pub(crate) fn is_diffusion(&self) -> bool {
        self.attention != Mask::Causal
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A family is its name: constants have many addresses.
impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Family {}
