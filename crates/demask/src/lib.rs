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
//! [`Model::builder`] says where a model runs, in which numbers and with which guide. A model has an engine on a thread of its
//! own, and [`Handle`]s that any thread may hold. [`Options`] are how a
//! prompt is answered, and each answer has a [`Receipt`] of how it was. [`methods`] has what a decoder or a cache policy of
//! your own is made from.
#![forbid(unsafe_code)]

mod bridge;
mod builder;
mod by_hand;
mod chat;
#[doc(hidden)]
pub mod costs;
#[cfg(feature = "demo")]
#[doc(hidden)]
pub mod demo;
mod device;
#[doc(hidden)]
pub mod doctor;
mod error;
mod fingerprint;
mod footprint;
mod generate;
mod guide;
mod handle;
mod info;
mod kept;
mod length;
mod likelihood;
mod load;
mod load_options;
mod logprob;
mod model;
mod opened;
mod options;
#[doc(hidden)]
pub mod plain;
mod prepare;
mod prompt;
mod receipt;
mod record;
mod trace;

pub use builder::Builder;
pub use chat::Chat;
pub use demask_checkpoint::{AdapterChoice, FamilyChoice, Message};
pub use demask_decode::{CacheSpec, DecoderSpec, Exactness, Finish, Registry, StopRule};
pub use demask_engine::{Class, Event, Pulse, Request, RequestHandle, Started, Tenant};
pub use demask_settings::{Guides, SettingError, Settings};
pub use device::{ActivationChoice, DeviceChoice, DtypeChoice, WeightChoice};
pub use error::Error;
pub use generate::Generation;
pub use handle::Handle;
pub use likelihood::{Likelihood, LikelihoodOptions};
pub use load::LoadProgress;
pub use load_options::LoadOptions;
pub use logprob::TokenLogprob;
pub use model::Model;
pub use options::Options;
pub use prompt::{Prompt, Segment};
pub use receipt::Receipt;
pub use trace::TraceLine;

// What the rooms of this crate share beside the face.
use device::{BackendOptions, DeviceOptions, UnusableDevice};
use error::ModelError;
use footprint::{Footprint, TooLarge};
use info::ModelInfo;
use kept::KeptMatrices;
use opened::Opened;

/// Parts of a decoder or a cache policy of your own: one type with parameters, one `static` entry, and a [`Registry`]
/// that reads its name. The examples `own_decoder` and `own_cache` are complete.
pub mod methods {
    pub use demask_decode::{
        CanvasSpec, Commit, Layout, Memory, ModelFacts, OptionsError, Remasking, SessionOptions, Setup, caches, canvas,
        methods::*, parameters, schedule, spec, transfer,
    };
    pub use demask_step as step;
}

/// Parts of the library for the programs of this project. They change without notice.
#[doc(hidden)]
pub mod internals {
    pub use demask_checkpoint as checkpoint;
    pub use demask_cpu as cpu;
    #[cfg(feature = "cuda")]
    pub use demask_cuda as cuda;
    pub use demask_decode as decode;
    pub use demask_engine as engine;
    pub use demask_measure as measure;
    pub use demask_model as model_parts;
    pub use demask_step as step;
    pub use demask_tensor as tensor;

    #[cfg(feature = "demo")]
    pub use crate::demo;
    #[cfg(feature = "cuda")]
    pub use crate::device::STANDING;
    pub use crate::{
        bridge::Bridge,
        by_hand::ModelByHand,
        costs,
        device::{BackendOptions, DeviceOptions, UnusableDevice},
        doctor,
        error::ModelError,
        fingerprint::{Fields, fingerprint},
        footprint::{Footprint, TooLarge, WeightBytes},
        info::{Defaults, ModelInfo},
        kept::KeptMatrices,
        likelihood::LikelihoodTask,
        load::{DEFAULT_ROW_BUDGET, LoadObserver},
        opened::Opened,
        receipt::{DeviceUse, Guided, MemoryUse, Seconds, peak_memory},
        record::{Number, Record},
        trace::{Given, TRACE_VERSION, TokenTexts, TraceError, Tracer, read_trace},
    };
}
