//! Adapters in PEFT's layout (LoRA): `adapter_config.json` and `adapter_model.safetensors`, read for the products of a model.

mod choice;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use demask_model::{AdapterUse, ArchSpec, ExpectedTensor, Role, StoredLora, expected_tensors};
use demask_step::{Mask, TokenId};
use demask_tensor::{Bytes, StoredTensor};
use serde_json::Value;

pub use choice::{AdapterChoice, AdapterFacts, AdapterMatrix, UnknownAdapterUse};

use crate::{
    AdapterFiles, CheckpointError, Family,
    families::LARGEST_WIDTH,
    fields::Fields,
    header::{self, TensorInfo},
    located::{Located, dtype_of},
};

pub(crate) const CONFIG: &str = "adapter_config.json";
pub(crate) const WEIGHTS: &str = "adapter_model.safetensors";

/// Names of PEFT's wrapper around the model, in front of its modules.
const WRAPPER: &str = "base_model.model.";

/// An adapter whose tensors were found and checked.
pub(crate) struct StoredAdapter {
    bytes: Bytes,
    pairs: HashMap<Role, Pair>,
    pub(crate) facts: AdapterFacts,
}

/// Matrices of one product.
struct Pair {
    a: Located,
    b: Located,
    scale: f32,
}

impl StoredAdapter {
    /// Opens an adapter for a model, whose mask is given.
    ///
    /// # Errors
    /// If a file is missing or damaged, the adapter is of another kind or for a model of another shape.
    pub(crate) fn open(
        adapter: &AdapterFiles,
        family: &Family,
        spec: &ArchSpec,
        mask: Option<TokenId>,
    ) -> Result<Self, CheckpointError> {
        let AdapterFiles { files, choice } = adapter;
        let missing = |file| CheckpointError::MissingFile {
            file: files.label(file),
            hint: "expected an adapter in PEFT's layout: adapter_config.json beside adapter_model.safetensors",
        };
        let text = files.text(CONFIG)?.ok_or_else(|| missing(CONFIG))?;
        let label = files.label(CONFIG);
        let config = Config::read(&Fields::parse(&text, &label)?)?;
        let bytes = files.bytes(WEIGHTS)?.ok_or_else(|| missing(WEIGHTS))?;
        let label = files.label(WEIGHTS);
        let tensors = header::read(&bytes, &label)?;
        let pairs = Finder { family, spec, config: &config, label: &label, bytes: &bytes }.find(tensors)?;
        let usage = usage(*choice, files.name(), family, mask).ok_or_else(|| CheckpointError::Unsupported {
            file: files.label(CONFIG),
            what: "an adapter of masks beside a model without a mask token".to_owned(),
            hint: "load the model as `family` NAME:mask=ID, or give `adapter_use` all",
        })?;
        if matches!(usage, AdapterUse::Masks(_)) && spec.attention != Mask::Causal {
            return Err(CheckpointError::Unsupported {
                file: files.label(CONFIG),
                what: "an adapter of masks beside a model whose texts see masks".to_owned(),
                hint: "give `adapter_use` all, or a causal model",
            });
        }
        let ranks = pairs.values().map(|pair| pair.a.rows);
        let matrices = pairs.iter().flat_map(|(role, pair)| {
            let Role::Layer(_, part) = *role else { return Vec::new() };
            let shape = |&Located { dtype, rows, columns, .. }: &Located| AdapterMatrix { part, dtype, rows, columns };
            vec![shape(&pair.a), shape(&pair.b)]
        });
        let facts = AdapterFacts {
            name: files.name().to_owned(),
            base: config.base,
            usage,
            ranks: [ranks.clone().min().unwrap_or(0), ranks.max().unwrap_or(0)],
            matrices: matrices.collect(),
        };
        Ok(Self { bytes, pairs, facts })
    }

    /// Returns the adapter of a product, if there is one.
    pub(crate) fn pair(&self, role: Role) -> Option<StoredLora<'_>> {
        let Pair { a, b, scale } = self.pairs.get(&role)?;
        let tensor = |located: &Located| {
            StoredTensor::new(located.dtype, located.rows, located.columns, &self.bytes, located.start)
        };
        Some(StoredLora { a: tensor(a), b: tensor(b), scale: *scale })
    }

    /// Returns the bytes of all tensors.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.pairs.values().map(|Pair { a, b, .. }| (a.end - a.start + b.end - b.start) as u64).sum()
    }

    /// Returns the roles of the products that it changes.
    pub(crate) fn roles(&self) -> impl Iterator<Item = Role> {
        self.pairs.keys().copied()
    }
}

/// Decides the use of an adapter; nothing if it is for masks, and there is no mask.
fn usage(choice: AdapterChoice, name: &str, family: &Family, mask: Option<TokenId>) -> Option<AdapterUse> {
    let name = name.to_ascii_lowercase();
    let of_masks = family.trains_causal_masks() || ["i-dlm", "idlm"].into_iter().any(|part| name.contains(part));
    Some(match choice {
        AdapterChoice::Masks => AdapterUse::Masks(mask?),
        AdapterChoice::Auto if of_masks => AdapterUse::Masks(mask?),
        AdapterChoice::Auto | AdapterChoice::All => AdapterUse::All,
        AdapterChoice::Merged => AdapterUse::Merged,
    })
}

/// Content of `adapter_config.json`.
struct Config {
    rank: usize,
    alpha: f64,
    /// Alpha of modules whose names end so.
    alphas: BTreeMap<String, f64>,
    /// Rank of modules whose names end so.
    ranks: BTreeMap<String, usize>,
    /// Sets whether the factor is alpha over the root of the rank.
    by_root: bool,
    base: Option<String>,
}

/// Keys that say nothing about the computation.
const OF_TRAINING: &[&str] = &[
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "corda_config",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "alpha_pattern",
    "lora_dropout",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "rank_pattern",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
    "use_rslora",
];

impl Config {
    fn read(fields: &Fields<'_>) -> Result<Self, CheckpointError> {
        let kind = fields.optional_text("peft_type")?.ok_or_else(|| fields.missing("peft_type", "\"LORA\""))?;
        if kind != "LORA" {
            return Err(fields.unsupported(format!("an adapter of kind {kind:?}"), "use one of kind LORA"));
        }
        let off = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        let others = fields.keys().filter(|key| !OF_TRAINING.contains(&key.as_str()));
        for key in others {
            if fields.get(key).is_some_and(|value| !off(value)) {
                return Err(fields.unsupported(format!("an adapter with {key}"), "train or export one without it"));
            }
        }
        if let Some(bias) = fields.optional_text("bias")?.filter(|bias| *bias != "none") {
            return Err(fields.unsupported(format!("an adapter with bias {bias:?}"), "train one with bias \"none\""));
        }
        if let Some(Value::String(way)) = fields.get("init_lora_weights")
            && ["pissa", "olora", "corda", "loftq"].iter().any(|changes| way.starts_with(changes))
        {
            let what = format!("an adapter for weights that init_lora_weights {way:?} has changed");
            return Err(fields.unsupported(what, "convert it to one for the weights as released"));
        }
        Ok(Self {
            rank: fields.count("r", LARGEST_WIDTH)?,
            alpha: fields.positive("lora_alpha")?,
            alphas: pattern(fields, "alpha_pattern", |value| value.as_f64().filter(|alpha| *alpha > 0.0))?,
            ranks: pattern(fields, "rank_pattern", |value| {
                value.as_u64().map(|rank| rank as usize).filter(|rank| (1..=LARGEST_WIDTH).contains(rank))
            })?,
            by_root: fields.optional_flag("use_rslora")?.unwrap_or(false),
            base: fields.optional_text("base_model_name_or_path")?.map(str::to_owned),
        })
    }

    /// Returns the rank that the file says a module has.
    fn rank_of(&self, module: &str) -> usize {
        of_module(&self.ranks, module).unwrap_or(self.rank)
    }

    /// Returns the factor of a module whose matrices have this rank.
    fn scale_of(&self, module: &str, rank: usize) -> f32 {
        let alpha = of_module(&self.alphas, module).unwrap_or(self.alpha);
        let rank = rank as f64;
        (alpha / if self.by_root { rank.sqrt() } else { rank }) as f32
    }
}

/// Reads a table of values by the ends of modules' names.
fn pattern<T>(
    fields: &Fields<'_>,
    key: &'static str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<BTreeMap<String, T>, CheckpointError> {
    let Some(map) = fields.object(key)? else { return Ok(BTreeMap::new()) };
    let mut values = BTreeMap::new();
    for name in map.keys() {
        let Some(value) = map.get(name) else { continue };
        if !name.chars().all(|character| character.is_ascii_alphanumeric() || matches!(character, '_' | '.')) {
            let what = format!("{key} with the expression {name:?}");
            return Err(fields.unsupported(what, "write the names of modules out"));
        }
        let read = read(value).ok_or_else(|| map.bad(name, value, "a number above 0"))?;
        values.insert(name.clone(), read);
    }
    Ok(values)
}

/// Returns the value whose name is the end of a module's, whole components of it.
fn of_module<T: Copy>(values: &BTreeMap<String, T>, module: &str) -> Option<T> {
    let ends = |name: &str| module.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    values.iter().find(|(name, _)| ends(name)).map(|(_, value)| *value)
}

/// Finds the matrices of each product in a file.
struct Finder<'a> {
    family: &'a Family,
    spec: &'a ArchSpec,
    config: &'a Config,
    label: &'a str,
    bytes: &'a Bytes,
}

impl Finder<'_> {
    fn find(&self, mut tensors: HashMap<String, TensorInfo>) -> Result<HashMap<Role, Pair>, CheckpointError> {
        let mut pairs = HashMap::new();
        for expected in expected_tensors(self.spec) {
            let Role::Layer(_, part) = expected.role else { continue };
            if !part.takes_adapter() || (self.family.fused)(self.spec, part).is_some() {
                continue;
            }
            let name = (self.family.tensor_name)(expected.role);
            let module = name.strip_suffix(".weight").unwrap_or(&name);
            if let Some(pair) = self.pair(module, &expected, &mut tensors)? {
                pairs.insert(expected.role, pair);
            }
        }
        // What no product takes would be a part of the model that is left out.
        if let Some(name) = tensors.keys().min() {
            return Err(
                self.wrong(name, "is for no product that takes an adapter: q, k, v, o, gate, up or down of a layer")
            );
        }
        if pairs.is_empty() {
            return Err(CheckpointError::Adapter {
                file: self.label.to_owned(),
                detail: "it has no tensors".to_owned(),
            });
        }
        Ok(pairs)
    }

    fn wrong(&self, name: &str, detail: impl fmt::Display) -> CheckpointError {
        CheckpointError::Adapter { file: self.label.to_owned(), detail: format!("the tensor {name:?} {detail}") }
    }

    /// Takes the two matrices of a module out of the tensors.
    fn pair(
        &self,
        module: &str,
        expected: &ExpectedTensor,
        tensors: &mut HashMap<String, TensorInfo>,
    ) -> Result<Option<Pair>, CheckpointError> {
        let full = |half: &str| format!("{WRAPPER}{module}.{half}.weight");
        let [name_a, name_b] = [full("lora_A"), full("lora_B")];
        let (a, b) = match (tensors.remove(&name_a), tensors.remove(&name_b)) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(self.wrong(&name_a, format_args!("has no {name_b:?} beside it"))),
            (None, Some(_)) => return Err(self.wrong(&name_b, format_args!("has no {name_a:?} beside it"))),
            (Some(a), Some(b)) => (a, b),
        };
        let rank = self.config.rank_of(module);
        let (columns, rows) = (expected.columns as u64, expected.rows as u64);
        for (name, info, shape) in [(&name_a, &a, [rank as u64, columns]), (&name_b, &b, [rows, rank as u64])] {
            if info.shape != shape {
                let found = &info.shape[..info.shape.len().min(4)];
                let detail =
                    format!("has shape {found:?}, the model and the rank say {shape:?}: is it for this model?");
                return Err(self.wrong(name, detail));
            }
        }
        let a = self.located(&name_a, &a, [rank, expected.columns])?;
        let b = self.located(&name_b, &b, [expected.rows, rank])?;
        Ok(Some(Pair { a, b, scale: self.config.scale_of(module, rank) }))
    }

    /// Checks the type and the numbers of a tensor.
    fn located(&self, name: &str, info: &TensorInfo, [rows, columns]: [usize; 2]) -> Result<Located, CheckpointError> {
        let dtype = dtype_of(self.label, name, info)?;
        let located = Located { shard: 0, start: info.start, end: info.end, dtype, rows, columns, paired: None };
        let values = StoredTensor::new(dtype, rows, columns, self.bytes, info.start).to_f32()?;
        if !values.iter().all(|value| value.is_finite()) {
            return Err(self.wrong(name, "has numbers that are infinite or not numbers (NaN): fetch the adapter again"));
        }
        Ok(located)
    }
}
