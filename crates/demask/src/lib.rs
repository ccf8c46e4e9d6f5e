//! Fast inference of diffusion language models.
//!
//! ```
//! let mut model = demask::Model::demo()?; // or Model::open("org/name"), a directory, a .gguf file
//! let answer = model.generate("Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?")?;
//! println!("{answer} ({} NFE)", answer.receipt.decoding.nfe);
//! # Ok::<(), demask::Error>(())
//! ```
//!
//! [`Opened`] is a checkpoint that can be loaded, [`Model`] a loaded one, [`Prompter`] all of it but the weights.
//! [`Model::generate`] answers one prompt; [`Model::submit`] and [`Model::step`] run many at once, joined into forwards by
//! a [`Scheduler`]; [`Engine`] does so on a thread of its own, for [`Handle`]s that any thread may hold.
#![forbid(unsafe_code)]

mod answer;
mod builder;
mod chat;
#[cfg(feature = "demo")]
pub mod demo;
mod device;
mod engine;
mod error;
mod explain;
mod fingerprint;
mod footprint;
mod generate;
mod guide;
mod inline;
mod likelihood;
mod mailbox;
mod model;
mod options;
mod prepare;
mod prompt;
mod receipt;
pub mod scheduler;
mod stream;
mod task;
mod text;
mod trace;

pub use answer::Answer;
pub use builder::Builder;
pub use chat::Chat;
pub use demask_checkpoint as checkpoint;
pub use demask_cpu as cpu;
#[cfg(feature = "cuda")]
pub use demask_cuda as cuda;
pub use demask_decode as decode;
pub use demask_decode::Finish;
pub use demask_model as model_parts;
pub use demask_step as step;
pub use demask_tensor as tensor;
pub use device::{
    ActivationChoice, BackendOptions, DeviceChoice, DeviceError, DeviceOptions, DtypeChoice, WeightChoice,
};
pub use engine::{Engine, EngineCounters, Handle, Outcomes, Ticket};
pub use error::Error;
pub use explain::explain;
pub use fingerprint::{Fields, fingerprint};
pub use footprint::{Footprint, TooLarge};
pub use generate::{Generation, Observer, Outcome, Progress};
pub use inline::{Over, RequestObserver};
pub use likelihood::{Likelihood, LikelihoodOptions, LikelihoodTask};
pub use mailbox::{Mail, Update};
pub use model::{Defaults, LoadObserver, LoadProgress, Model, ModelError, Opened, Prompter};
pub use options::{OptionError, OptionField, Options};
pub use prompt::Prompt;
pub use receipt::{Guided, Memory, Receipt, Seconds, forget_peak_memory, peak_memory};
pub use scheduler::{Class, Finished, NetworkId, Refused, RequestId, Scheduler};
pub use stream::Stream;
pub use task::Task;
pub use trace::{Given, HeaderTag, StepTag, TokenTexts, TraceError, TraceLine, Tracer, read_trace};
