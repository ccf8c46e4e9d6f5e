//! Reads model directories and GGUF files: configuration, weights, tokenizer, chat template, generation defaults.
//! Fetches directories from a hub.
//!
//! The idea: every file is somebody else's, so nothing in it is believed before it is checked, and every mistake in it
//! becomes one line that names the file, the value found, the expected one and a remedy. The result is plain data: an
//! [`ArchSpec`](demask_model::ArchSpec) and weights by [`Role`](demask_model::Role).
//!
//! ```no_run
//! use demask_checkpoint::{Checkpoint, ModelFiles};
//! let checkpoint = Checkpoint::open(ModelFiles::directory("models/LLaDA-8B-Instruct")?)?;
//! println!("{} has {} parameters", checkpoint.name(), checkpoint.spec().parameters());
//! # Ok::<(), demask_checkpoint::CheckpointError>(())
//! ```
#![forbid(unsafe_code)]

mod adapter;
mod checkpoint;
mod config;
mod error;
mod families;
mod fields;
mod files;
mod generation;
mod gguf;
mod guard;
mod header;
mod hub;
mod located;
mod location;
mod names;
mod said;
mod special;
mod template;
mod tokenizer;
mod weights;

pub use adapter::{AdapterChoice, AdapterFacts, AdapterMatrix, UnknownAdapterUse};
pub use checkpoint::{Checkpoint, CheckpointText};
pub use config::{ModelConfig, parse_config};
pub use error::{CheckpointError, Warning};
pub use families::{
    DecodingDefaults, FAMILIES, Family, FamilyChoice, Holes, LikelihoodConventions, MaskDraws, SamplerDefaults,
    UnknownFamily,
};
pub use fields::TokenIds;
pub use files::{AdapterFiles, ModelFiles};
pub use generation::GenerationConfig;
pub use gguf::{check_gguf, parts::GgufModel};
pub use guard::guarded;
pub use header::check_safetensors;
pub use hub::{FetchProgress, HubError, HubOptions, RepositoryKind, Survey, Wanted, fetch_dataset, locate, survey};
pub use location::{HubChoice, ModelLocation, gguf_models, resolve};
pub use said::Rendered;
pub use special::SpecialTokens;
pub use template::{ChatTemplate, Message, RenderOptions};
pub use tokenizer::{TextStream, Tokenizer};
pub use weights::{ShardIndex, StoredWeights};
