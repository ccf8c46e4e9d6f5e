//! Fast inference of diffusion language models.
//!
//! ```
//! let model = demask::Model::demo()?; // or Model::open("org/name"), a directory, a .gguf file
//! let question = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";
//! println!("{}", model.generate(question)?);
//!
//! let options = demask::Options { decoder: Some("freedave:d=4".parse()?), ..demask::Options::default() };
//! let mut answer = model.stream(question, &options)?;
//! for event in answer.by_ref() {
//!     if let demask::Event::Text(text) = event {
//!         print!("{text}");
//!     }
//! }
//! println!(" ({} NFE)", answer.result()?.receipt.decoding.nfe);
//! # Ok::<(), demask::Error>(())
//! ```
//!
//! [`Model::builder`] says where a model runs, in which numbers and with which guide. A model has an engine on a thread
//! of its own, and [`Handle`]s that any thread may hold. [`Options`] say how a prompt is answered, and each answer has
//! a [`Receipt`] of how it was. [`methods`] has the parts from which a decoder or a cache policy of your own is made.
#![forbid(unsafe_code)]
#![deny(unnameable_types)]

mod bridge;
mod builder;
mod by_hand;
mod chat;
mod chosen;
mod constrain;
pub mod costs;
mod decision;
#[cfg(feature = "demo")]
pub mod demo;
mod device;
pub mod doctor;
mod error;
pub mod fingerprint;
mod footprint;
mod generate;
mod guide;
mod handle;
mod info;
mod languages;
mod length;
mod like;
mod likelihood;
mod load;
mod load_options;
mod logprob;
mod matrix_formats;
mod model;
mod opened;
mod options;
pub mod parts;
pub mod plain;
mod prepare;
mod prompt;
pub mod receipt;
pub mod record;
pub mod seed;
pub mod trace;

pub use bridge::Bridge;
pub use builder::Builder;
pub use by_hand::ModelByHand;
pub use chat::Chat;
pub use chosen::Chosen;
pub use decision::{Decision, Decisions, MOST_CHOICES, MOST_QUESTIONS, Question, QuestionKind};
pub use demask_checkpoint::{AdapterChoice, FamilyChoice, Message, Tokenizer};
pub use demask_decode::{CacheSpec, DecoderSpec, Exactness, Finish, Registry, StopRule};
pub use demask_engine::{Event, Heartbeat, Request, RequestHandle, SchedulingParams, Started, Tenant};
pub use demask_settings::{Guides, SettingError, Settings};
pub use demask_step::{Mask, Position, TokenId};
pub use device::{
    ActivationChoice, BackendOptions, DeviceChoice, DeviceOptions, DtypeChoice, UnusableDevice, WeightChoice,
};
pub use error::{Error, ModelError};
pub use footprint::{Footprint, TooLarge, WeightBytes};
pub use generate::Generation;
pub use handle::Handle;
pub use info::ModelInfo;
pub use like::{Like, NotAlike};
pub use likelihood::{Likelihood, LikelihoodOptions, LikelihoodTask};
pub use load::{DEFAULT_ROW_BUDGET, LoadObserver, LoadProgress};
pub use load_options::LoadOptions;
pub use logprob::TokenLogprob;
pub use matrix_formats::MatrixFormats;
pub use model::Model;
pub use opened::Opened;
pub use options::{JsonSchema, Options};
pub use prompt::{Conversation, Prompt, Segment};
pub use receipt::Receipt;
pub use trace::TraceLine;

/// Parts of a decoder or a cache policy of your own: one type with parameters, one `static` entry, and a [`Registry`]
/// that reads its name. The examples `own_decoder` and `own_cache` are complete.
pub mod methods {
    pub use demask_decode::{
        CanvasSpec, Commit, Layout, Memory, ModelFacts, OptionsError, Remasking, SessionOptions, Setup, caches, canvas,
        methods::*, parameters, registry::RegistryError, schedule, spec, transfer,
    };
    pub use demask_step as step;
}

/// The crates that this one is made of, for programs that look inside a model or its answers.
pub mod layers {
    pub use demask_checkpoint as checkpoint;
    pub use demask_cpu as cpu;
    #[cfg(feature = "cuda")]
    pub use demask_cuda as cuda;
    pub use demask_decode as decode;
    pub use demask_engine as engine;
    pub use demask_model as model;
    pub use demask_step as step;
    pub use demask_tensor as tensor;
}
