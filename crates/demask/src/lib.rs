//! Fast inference of diffusion language models.
//!
//! ```
//! let mut model = demask::Model::demo()?; // or Model::open("org/name"), a directory, a .gguf file
//! let question = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";
//! println!("{}", model.generate(question)?);
//!
//! let options = demask::Options { decoder: Some("freedave:d=4".parse()?), ..demask::Options::default() };
//! for mail in model.stream(question, &options)? {
//!     match mail {
//!         demask::Mail::Update(update) => print!("{}", update.text),
//!         demask::Mail::Over(answer) => println!(" ({} NFE)", answer?.receipt.decoding.nfe),
//!     }
//! }
//! # Ok::<(), demask::Error>(())
//! ```
//!
//! [`Model::builder`] says where a model runs, in which numbers and with which guide. A model runs on the thread that owns
//! it; [`Model::into_engine`] gives it a thread of its own, and [`Handle`]s that any thread may hold. [`Options`] are how a
//! prompt is answered, and each answer has a [`Receipt`] of how it was. [`methods`] has what a decoder or a cache policy of
//! your own is made from.
#![forbid(unsafe_code)]

mod answer;
mod builder;
mod chat;
mod costs;
#[cfg(feature = "demo")]
#[doc(hidden)]
pub mod demo;
mod device;
#[doc(hidden)]
pub mod doctor;
mod engine;
mod error;
mod estimate;
mod faults;
mod filling;
mod fingerprint;
mod footprint;
mod generate;
mod guide;
mod inline;
mod kept;
mod length;
mod likelihood;
mod logprob;
mod mailbox;
mod model;
mod options;
mod outline;
#[doc(hidden)]
pub mod plain;
mod prepare;
mod prompt;
mod receipt;
mod rehearsal;
mod replay;
#[doc(hidden)]
pub mod scheduler;
mod stream;
/// Locks of what threads share.
mod sync {
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
}
mod task;
mod text;
mod ticket;
mod trace;

pub use builder::Builder;
pub use chat::Chat;
pub use demask_checkpoint::{FamilyChoice, Message};
pub use demask_decode::{CacheSpec, DecoderSpec, Exactness, Finish, Registry, StopRule};
pub use device::{ActivationChoice, DeviceChoice, DtypeChoice, WeightChoice};
pub use engine::{Engine, Handle, Pulse};
pub use error::Error;
pub use generate::Generation;
pub use likelihood::{Likelihood, LikelihoodOptions};
pub use logprob::TokenLogprob;
pub use mailbox::{Committed, Forward, Mail, Started, Update};
pub use model::{LoadProgress, Model};
pub use options::Options;
pub use prompt::{Prompt, Segment};
pub use receipt::Receipt;
pub use scheduler::{Class, Tenant};
pub use stream::Stream;
pub use ticket::Ticket;
pub use trace::TraceLine;

// What the rooms of this crate share beside the face.
use answer::Prepared;
use device::{BackendOptions, DeviceOptions, UnusableDevice};
use footprint::{Footprint, TooLarge};
use generate::{Observer, Outcome, RunEvent};
use inline::Over;
use kept::KeptMatrices;
use likelihood::LikelihoodTask;
use model::{ModelError, Opened, Prompter};
use options::OptionError;
use outline::Outline;
use scheduler::{Finished, NetworkId, Refused, RequestId, Scheduler};
use task::Task;

/// Parts of a decoder or a cache policy of your own: one type with parameters, one `static` entry, and a [`Registry`]
/// that reads its name. The examples `own_decoder` and `own_cache` are complete.
pub mod methods {
    pub use demask_decode::{
        CanvasSpec, Commit, Layout, Memory, ModelFacts, OptionsError, Remasking, SessionOptions, Setup, cache, canvas,
        decoder, parameters, schedule, spec, transfer,
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
    pub use demask_measure as measure;
    pub use demask_model as model_parts;
    pub use demask_step as step;
    pub use demask_tensor as tensor;

    #[cfg(feature = "demo")]
    pub use crate::demo;
    pub use crate::doctor;
    pub use crate::{
        answer::Prepared,
        costs::{CostError, Costs, Predicted, Subject},
        device::{BackendOptions, DeviceOptions, UnusableDevice},
        engine::EngineCounters,
        estimate::{Counting, Estimate, EstimateError, Module, Modules, NetworkEstimate, Run, StepKind},
        faults::Faults,
        fingerprint::{Fields, fingerprint},
        footprint::{Footprint, TooLarge, WeightBytes},
        generate::{Observer, Outcome, RunEvent},
        inline::{Over, RequestObserver},
        kept::KeptMatrices,
        likelihood::LikelihoodTask,
        model::{Defaults, LoadObserver, ModelError, Opened, Prompter},
        options::{OptionError, OptionField, OptionType, whole},
        outline::Outline,
        receipt::{DeviceUse, Guided, MemoryUse, Seconds, peak_memory},
        rehearsal::{Assumed, Rehearsed, StandIn, explain, rehearse},
        replay::{Record, Recorded, ReplayError, Script},
        scheduler::{self, Finished, NetworkId, Refused, RequestId, Scheduler},
        task::Task,
        ticket::Outcomes,
        trace::{
            DraftTag, Given, HeaderTag, PredictionsTag, ReplaceTag, StepTag, TRACE_VERSION, TargetTag, TokenTexts,
            TraceError, Tracer, read_trace,
        },
    };
}
