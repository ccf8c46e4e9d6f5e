//! GGUF files, the format of llama.cpp: metadata, tokenizer and weights in one file.
//!
//! The idea: the metadata become what `config.json` and `tokenizer.json` would have said, the tensors are read in
//! the types that they have, and the rows of q and k that some converters permute are handed out in their own order.

mod architecture;
mod ends;
mod names;
pub(crate) mod parts;
mod pieces;
mod reader;
pub(crate) mod remote;
mod vocabulary;

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
};

use demask_model::{ArchSpec, ExpectedTensor, LayerRole, Role, expected_tensors};
use demask_step::Mask;
use demask_tensor::Bytes;
use serde_json::{Map, Value as Json};

use crate::{
    ChatTemplate, CheckpointError, Family, FamilyChoice, Tokenizer,
    error::quoted,
    fields::{Fields, TokenIds},
    files::GgufPart,
    located::Located,
    weights::StoredWeights,
};
use names::{ROPE_FACTORS, tensor_name};
use reader::{Array, Contents, LARGEST_DESCRIPTIONS, MOST_TENSORS, Refusal, Tensor, Value};

const TEMPLATE: &str = "tokenizer.chat_template";

/// Content of a file.
pub(crate) struct Gguf {
    pub family: &'static Family,
    pub spec: ArchSpec,
    pub ids: TokenIds,
    pub tokenizer: Option<Tokenizer>,
    pub template: ChatTemplate,
    pub weights: StoredWeights,
}

/// An opened file with its parts, before its model is known.
struct File<'a> {
    label: &'a str,
    parts: &'a [GgufPart],
    values: HashMap<&'a str, Value<'a>>,
    tensors: HashMap<&'a str, Tensor>,
}

/// Checks the descriptions of a whole GGUF file and returns the number of its tensors; `file` is its name for
/// messages.
pub fn check_gguf(bytes: &[u8], file: &str) -> Result<usize, CheckpointError> {
    let part = [GgufPart { label: file.to_owned(), bytes: Bytes::owned(bytes.to_vec()) }];
    File::read(&part, &[descriptions(&part[0].bytes)?], file).map(|file| file.tensors.len())
}

/// Reads a whole file from its parts; `label` is its name for messages.
pub(crate) fn open(parts: &[GgufPart], label: &str, choice: Option<&FamilyChoice>) -> Result<Gguf, CheckpointError> {
    let descriptions: Vec<_> = parts.iter().map(|part| descriptions(&part.bytes)).collect::<Result<_, _>>()?;
    let file = File::read(parts, &descriptions, label)?;
    let fields = Fields::of(file.plain(), label);
    // The converter's conventions are those of the architecture that it wrote, whatever the weights were trained for.
    let (converted, mut spec) = architecture::read(&file, &fields)?;
    let family = choice.map_or(converted, FamilyChoice::family);
    if let Some(choice) = choice {
        (spec.family, spec.attention, spec.shift) = (family.name, family.attention, family.shift);
        (spec.blocks, spec.rope.full_precision) = (family.blocks, family.full_precision_rope);
        choice.apply(&mut spec);
        if (spec.qkv_bias, spec.head_norms) != (family.qkv_bias, family.head_norms) {
            return Err(CheckpointError::Unsupported {
                file: label.to_owned(),
                what: format!("{family} in a file of {converted}"),
                hint: "name a family with the same tensors",
            });
        }
    }
    let weights = file.weights(converted, &spec)?;
    let mut ids = architecture::token_ids(&fields)?;
    let vocabulary = vocabulary::read(&file, &fields, converted, &ids)?;
    // What fills holes ends where its authors' programs end, and pads with what would be an end here.
    if spec.attention == Mask::Causal {
        ids.ends = ends::read(&fields, |text| vocabulary.as_ref()?.marked(text))?;
    }
    let tokenizer = vocabulary.map(|vocabulary| vocabulary.tokenizer);
    let texts: Vec<_> = tokenizer.iter().flat_map(Tokenizer::named_texts).collect();
    let template = match fields.optional_text(TEMPLATE)? {
        Some(source) => ChatTemplate::from_source(source, label, family, &texts),
        None => ChatTemplate::of_family(family),
    };
    Ok(Gguf { family, spec, ids, tokenizer, template, weights })
}

/// The beginning of a file, with all that is described: a few megabytes do for nearly all of them.
fn descriptions(bytes: &Bytes) -> Result<Cow<'_, [u8]>, CheckpointError> {
    const USUAL: usize = 8 << 20;
    let readable = bytes.readable();
    let first = bytes.get(0..USUAL.min(readable))?;
    if first.len() == readable || reader::read(&first, bytes.len()).is_ok() {
        return Ok(first);
    }
    Ok(bytes.get(0..LARGEST_DESCRIPTIONS.min(readable))?)
}

impl<'a> File<'a> {
    /// Reads the descriptions of all parts: the first names the model, each its tensors.
    fn read(parts: &'a [GgufPart], descriptions: &'a [Cow<'_, [u8]>], label: &'a str) -> Result<Self, CheckpointError> {
        let mut file = Self { label, parts, values: HashMap::new(), tensors: HashMap::new() };
        for (index, (part, descriptions)) in parts.iter().zip(descriptions).enumerate() {
            let Contents { values, tensors } = part.contents(descriptions)?;
            part.check_place(&values, index, parts.len())?;
            if index == 0 {
                file.values = values;
            }
            for (name, mut tensor) in tensors {
                tensor.part = index;
                if file.tensors.insert(name, tensor).is_some() {
                    return Err(part.damaged(format!("another part has the tensor {}, too", quoted(name))));
                }
            }
            if file.tensors.len() as u64 > MOST_TENSORS {
                return Err(part.damaged(format!("with those before it there are more than {MOST_TENSORS} tensors")));
            }
        }
        Ok(file)
    }

    /// The part that has a tensor.
    fn bytes_of(&self, tensor: &Tensor) -> &Bytes {
        &self.parts[tensor.part].bytes
    }

    /// The values as an object, lists left empty.
    fn plain(&self) -> Map<String, Json> {
        let mut map = Map::new();
        for (key, value) in &self.values {
            let value = match *value {
                Value::Unsigned(number) => number.into(),
                Value::Signed(number) => number.into(),
                Value::Float(number) => number.into(),
                Value::Flag(flag) => flag.into(),
                Value::Text(text) => text.into(),
                // Empty: its reader takes the list itself, all others refuse one.
                Value::Array(_) => Json::Array(Vec::new()),
            };
            map.insert((*key).to_owned(), value);
        }
        map
    }

    /// A list, or nothing.
    fn list(&self, key: &str) -> Result<Option<Array<'a>>, CheckpointError> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(*list)),
            Some(_) => Err(CheckpointError::BadValue {
                file: self.label.to_owned(),
                key: key.to_owned(),
                found: "a single value".to_owned(),
                expected: "a list".to_owned(),
            }),
        }
    }

    /// All tensors of the architecture, checked.
    fn weights(&self, family: &Family, spec: &ArchSpec) -> Result<StoredWeights, CheckpointError> {
        let paired = family.gguf.paired;
        if paired && spec.qkv_bias {
            return Err(CheckpointError::Unsupported {
                file: self.label.to_owned(),
                what: "an attention bias in this architecture".to_owned(),
                hint: "use a checkpoint as released by its authors",
            });
        }
        let (mut located, mut used) = (HashMap::new(), BTreeSet::from([ROPE_FACTORS.to_owned()]));
        for expected in expected_tensors(spec) {
            let name = tensor_name(expected.role);
            let tensor = self.tensors.get(name.as_str());
            let tensor = tensor.ok_or_else(|| self.wrong(&name, "is missing".to_owned()))?;
            let expert = expert_of(expected.role);
            // Experts stand one behind the other in a tensor of three dimensions.
            let count = if expert.is_some() { spec.experts.as_ref().map(|experts| experts.shape.count) } else { None };
            self.check_shape(&name, tensor, &expected, count)?;
            let turned = matches!(expected.role, Role::Layer(_, LayerRole::Query | LayerRole::Key));
            let paired = if paired && turned { Some(spec.head_dim) } else { None };
            let part = expert.zip(count).unwrap_or((0, 1));
            located.insert(expected.role, located_at(tensor, part, &expected, paired));
            used.insert(name);
        }
        let unexpected = self.tensors.keys().filter(|name| !used.contains(**name)).map(|name| (*name).to_owned());
        let unexpected = unexpected.collect::<BTreeSet<_>>().into_iter().collect();
        let shards = self.parts.iter().map(|part| part.bytes.clone()).collect();
        Ok(StoredWeights::of_files(shards, located, unexpected))
    }

    fn check_shape(
        &self,
        name: &str,
        tensor: &Tensor,
        expected: &ExpectedTensor,
        experts: Option<usize>,
    ) -> Result<(), CheckpointError> {
        let columns = expected.columns as u64;
        let shape = if expected.vector { vec![columns] } else { vec![expected.rows as u64, columns] };
        let shape: Vec<u64> = experts.map(|experts| experts as u64).into_iter().chain(shape).collect();
        if tensor.shape == shape {
            return Ok(());
        }
        Err(self.wrong(name, format!("has shape {:?}, the metadata say {shape:?}", tensor.shape)))
    }

    fn wrong(&self, tensor: &str, detail: String) -> CheckpointError {
        CheckpointError::GgufTensor { file: self.label.to_owned(), tensor: tensor.to_owned(), detail }
    }
}

impl GgufPart {
    /// The descriptions, read.
    fn contents<'a>(&self, descriptions: &'a [u8]) -> Result<Contents<'a>, CheckpointError> {
        reader::read(descriptions, self.bytes.len()).map_err(|refusal| match refusal {
            Refusal::Damaged(detail) => self.damaged(detail),
            Refusal::Unsupported(what) => CheckpointError::Unsupported {
                file: self.label.clone(),
                what,
                hint: "use the model in another quantisation, Q4_K_M or Q8_0 for example",
            },
        })
    }

    /// Compares a part's own place with the place in its name.
    fn check_place(
        &self,
        values: &HashMap<&str, Value<'_>>,
        index: usize,
        count: usize,
    ) -> Result<(), CheckpointError> {
        let said = |key: &str| match values.get(key) {
            Some(Value::Unsigned(number)) => *number,
            _ => 0,
        };
        // A whole file says nothing, or a count of 0 if it was joined from parts.
        let (number, all) = (said("split.no"), said("split.count").max(1));
        if (number, all) == (index as u64, count as u64) {
            return Ok(());
        }
        let (found, expected) = (number.saturating_add(1), index + 1);
        Err(self.damaged(format!(
            "it says that it is part {found} of {all}, expected {expected} of {count}: parts are named \
             NAME-00001-of-00002.gguf, and all are in one folder"
        )))
    }

    fn damaged(&self, detail: String) -> CheckpointError {
        CheckpointError::Gguf { file: self.label.clone(), detail }
    }
}

/// The expert that a tensor belongs to, if it is one of those that rows choose.
fn expert_of(role: Role) -> Option<usize> {
    match role {
        Role::Layer(_, LayerRole::ExpertGate(expert) | LayerRole::ExpertUp(expert) | LayerRole::ExpertDown(expert)) => {
            Some(expert)
        }
        _ => None,
    }
}

/// One of so many equal parts of a tensor.
fn located_at(
    tensor: &Tensor,
    (part, parts): (usize, usize),
    expected: &ExpectedTensor,
    paired: Option<usize>,
) -> Located {
    let bytes = (tensor.end - tensor.start) / parts;
    let start = tensor.start + part * bytes;
    Located {
        shard: tensor.part,
        start,
        end: start + bytes,
        dtype: tensor.dtype,
        rows: expected.rows,
        columns: expected.columns,
        paired,
    }
}
