//! Released shapes: the configuration files as the authors wrote them, one file of `shapes/` each.

use std::{fmt, str::FromStr, sync::LazyLock};

use demask_checkpoint::{CheckpointError, CheckpointText, Family};
use serde_json::Value;

/// Files of the shapes, in the order of their families.
macro_rules! files {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!(concat!("../../shapes/", $name, ".json")))),*] };
}

const FILES: [(&str, &str); 22] = files![
    "llada-8b",
    "dream-7b",
    "sdar-1.7b",
    "sdar-4b",
    "sdar-8b",
    "i-dlm-8b",
    "qwen2.5-1.5b",
    "qwen3-1.7b",
    "qwen3-8b",
    "stable-diffcoder-8b",
    "open-dcoder-0.5b",
    "a2d-qwen2.5-coder-0.5b",
    "a2d-qwen3-0.6b",
    "fast-dllm-v2-1.5b",
    "fast-dllm-v2-7b",
    "nemotron-labs-diffusion-3b",
    "nemotron-labs-diffusion-8b",
    "llada-moe-7b-a1b",
    "sdar-30b-a3b",
    "llada2.0-mini",
    "llada2.1-mini",
    "rnd1-30b-a3b",
];

/// Most layers that a shape is made with.
const MOST_LAYERS: usize = 1024;

static SHAPES: LazyLock<Vec<Shape>> =
    LazyLock::new(|| FILES.iter().filter_map(|(name, text)| Shape::read(name, text)).collect());

struct Shape {
    name: &'static str,
    hub: String,
    family: &'static Family,
    config: Value,
    generation: Value,
}

impl Shape {
    fn read(name: &'static str, text: &str) -> Option<Self> {
        let mut file: Value = serde_json::from_str(text).ok()?;
        let family = Family::named(file["family"].as_str()?)?;
        let hub = file["hub"].as_str()?.to_owned();
        Some(Self { name, hub, family, config: file["config"].take(), generation: file["generation"].take() })
    }

    /// Key of the number of layers.
    fn layers(&self) -> &'static str {
        if self.config.get("n_layers").is_some() { "n_layers" } else { "num_hidden_layers" }
    }
}

/// A shape that cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// No such shape.
    #[error("unknown shape {found:?}, expected one of {}", Like::names())]
    Unknown {
        /// Name that was given.
        found: String,
    },
    /// A number of layers that no network has.
    #[error("{found} layers cannot be made, expected 1 to 1024")]
    BadLayers {
        /// Number that was given.
        found: usize,
    },
    /// The configuration of a shape is not one that can be read back.
    #[error(transparent)]
    Config(#[from] CheckpointError),
}

/// A released shape.
#[derive(Clone, Copy)]
pub struct Like(&'static Shape);

impl Like {
    /// Returns all shapes, in the order of their families.
    pub fn all() -> impl Iterator<Item = Self> {
        SHAPES.iter().map(Self)
    }

    /// Returns the name, as people type it.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns the hub's name of a checkpoint of this shape.
    pub fn hub(self) -> &'static str {
        &self.0.hub
    }

    /// Returns the family that the shape belongs to.
    pub fn family(self) -> &'static Family {
        self.0.family
    }

    /// Returns the names of all shapes, for an error message.
    pub fn names() -> String {
        Self::all().map(Self::name).collect::<Vec<_>>().join(", ")
    }

    /// Returns a checkpoint of this shape as far as it is known without weights and tokenizer, perhaps with another number of
    /// layers.
    ///
    /// # Errors
    /// If there is no such number of layers.
    pub fn text(self, layers: Option<usize>) -> Result<CheckpointText, ShapeError> {
        let (config, generation) = (self.config(layers)?.to_string(), self.generation().to_string());
        Ok(CheckpointText::of_configuration(self.name(), self.family(), &config, &generation)?)
    }

    /// Returns its `config.json`, perhaps with another number of layers.
    ///
    /// # Errors
    /// If there is no such number of layers.
    pub fn config(self, layers: Option<usize>) -> Result<Value, ShapeError> {
        let mut config = self.0.config.clone();
        if let Some(layers) = layers {
            if !(1..=MOST_LAYERS).contains(&layers) {
                return Err(ShapeError::BadLayers { found: layers });
            }
            config[self.0.layers()] = layers.into();
        }
        Ok(config)
    }

    /// Returns its `generation_config.json`.
    pub fn generation(self) -> &'static Value {
        &self.0.generation
    }
}

impl fmt::Debug for Like {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Like {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for Like {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Like {}

impl FromStr for Like {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        Self::all().find(|like| like.name() == text).ok_or_else(|| ShapeError::Unknown { found: text.to_owned() })
    }
}
