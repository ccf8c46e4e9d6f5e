//! Errors between a user's request and an answer.

use demask_checkpoint::{CheckpointError, HubError};
#[cfg(feature = "cuda")]
use demask_cuda::Unfit;
use demask_decode::{OptionsError, SpecError};
use demask_engine::{Busy, EngineError, RequestError, SubmitError};
use demask_model::{InspectError, LoadError};
use demask_settings::SettingError;
use demask_step::{DeviceError, OpenError, OutOfMemory, PlanError, TokenId};

use crate::{TooLarge, UnusableDevice, WeightChoice};

/// Error of this library: one line with the value found, the values expected, and a remedy. Names of options are in
/// backticks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model is not there, or cannot be fetched.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The model cannot be loaded.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An option cannot be read.
    #[error(transparent)]
    Option(#[from] SettingError),
    /// A method cannot be read.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The options contradict each other, the model, or arithmetic.
    #[error(transparent)]
    Options(OptionsError),
    /// The checkpoint has no tokenizer.
    #[error("the model {model} has no tokenizer: give the prompt as ids with `prompt_tokens`, or add tokenizer.json")]
    NoTokenizer {
        /// The model.
        model: String,
    },
    /// Tokenizer or template failed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Prompt and response do not fit.
    #[error(
        "{prompt} prompt tokens and {gen_length} to generate exceed the model's context of {context}: shorten the prompt or lower `{}`",
        .option.unwrap_or("gen_length")
    )]
    TooLong {
        /// Prompt tokens.
        prompt: usize,
        /// Positions to decode.
        gen_length: usize,
        /// Largest number of tokens that fits.
        context: usize,
        /// The option that asked for these positions, if one did.
        option: Option<&'static str>,
    },
    /// A text that is too long whatever its tokens are: it is not put into tokens.
    #[error(
        "the prompt has {bytes} bytes, and the {context} tokens of the model's context are {most} bytes at most: shorten it"
    )]
    TextTooLong {
        /// Bytes of the text.
        bytes: usize,
        /// Largest number of tokens that fits.
        context: usize,
        /// Bytes that so many tokens are at most.
        most: usize,
    },
    /// A prompt token that the model does not know.
    #[error("prompt token {token} is outside the vocabulary of {vocabulary}: expected ids from 0 to {}", vocabulary - 1)]
    TokenOutOfRange {
        /// The token.
        token: TokenId,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// Error: the prompt has no token.
    #[error("there are no tokens to run a forward over: give at least one")]
    NoTokens,
    /// The prompt contains the mask token.
    #[error("the prompt contains the model's mask token: remove it, or write holes as <mask:N> and use `infill`")]
    MaskInPrompt,
    /// Error: the text has no hole to fill.
    #[error("the text to fill has no hole: write <mask:N> where N tokens are missing")]
    NoHole,
    /// Error: an answer is to begin with a message that no assistant said.
    #[error(
        "the last message is not the assistant's, which an answer could continue: add one, or leave out `continue_final_message`"
    )]
    NothingToContinue,
    /// A hole that cannot be read.
    #[error("\"{found}\" is not the size of a hole: write <mask:N> with N from 1 to the model's context")]
    BadHole {
        /// Text that was found.
        found: String,
    },
    /// The model cannot look ahead.
    #[error(
        "{family} models cannot fill holes, they do not see what follows: use a model with full attention (LLaDA, Dream)"
    )]
    InfillUnsupported {
        /// The family.
        family: String,
    },
    /// The holes say how much is decoded.
    #[error("`{option}` goes with a prompt, not with `infill`: the holes say how many tokens are decoded")]
    InfillLength {
        /// The option.
        option: &'static str,
    },
    /// An option without effect on the request.
    #[error("`{option}` has no meaning {why}: omit it")]
    Meaningless {
        /// The option.
        option: &'static str,
        /// Place and reason.
        why: &'static str,
    },
    /// A constraint that cannot be held to.
    #[error("`{option}`: {text}")]
    Constraint {
        /// The option.
        option: &'static str,
        /// The mistake, in a line.
        text: String,
    },
    /// A part of a question about a prompt that is not as expected.
    #[error("`{param}`: {text}")]
    Question {
        /// Place of the part: `questions[2].choices[0]`.
        param: String,
        /// The mistake, in a line.
        text: String,
    },
    /// The model knows no end token.
    #[error(
        "the model {model} names no end token: omit `suppress_eos` and `eos_confidence_zero`, and stop rules that fill"
    )]
    NoEnd {
        /// The model.
        model: String,
    },
    /// A guide that does not read from left to right.
    #[error(
        "the guide {guide} is a {family} model, expected an autoregressive one: use a Qwen2.5, Qwen3 or Llama model"
    )]
    GuideNotCausal {
        /// The guide.
        guide: String,
        /// Family of the guide.
        family: String,
    },
    /// Two vocabularies, and no way from one to the other.
    #[error(
        "the guide {guide} has another vocabulary and {missing} has no tokenizer to go through: \
         add tokenizer.json, or use a guide with the model's vocabulary"
    )]
    GuideWithoutTokenizer {
        /// The guide.
        guide: String,
        /// Name of the model without a tokenizer.
        missing: String,
    },
    /// A tokenizer that does not say which bytes its tokens are.
    #[error(
        "the tokens of {file} do not spell a text's own bytes, so drafts cannot be put into the words of the guide \
         {guide}: use a guide with byte-level tokens (Qwen2.5, Qwen3)"
    )]
    GuideTokenizer {
        /// The guide.
        guide: String,
        /// Tokenizer of the guide.
        file: String,
    },
    /// A guide that is not there.
    #[error("unknown `guide` \"{found}\" ({})", known_guides(.known))]
    UnknownGuide {
        /// Guide that was found.
        found: String,
        /// Known guides.
        known: Vec<String>,
    },
    /// Several guides, and none is chosen.
    #[error("`guide` is not set and the model has several: name one of {}", .known.join(", "))]
    WhichGuide {
        /// Known guides.
        known: Vec<String>,
    },
    /// Two guides of one name.
    #[error("the model has a guide {name} already: give the other one another name")]
    GuideTwice {
        /// The name.
        name: String,
    },
    /// A likelihood that nothing is drawn for.
    #[error("`draws` is 0, expected at least 1: a likelihood is estimated from them")]
    NoDraws,
    /// No estimate for this kind of model.
    #[error("{family} models have no estimate of a text's likelihood: let them answer with `score` generate")]
    NoLikelihood {
        /// The family.
        family: String,
    },
    /// Error: no text to judge, or no text before it.
    #[error("a likelihood needs a text and something before it: the prompt or the continuation is empty")]
    EmptyLikelihood,
    /// No memory for the sequence.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A bug.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device failed.
    #[error("the device failed: {0}")]
    Device(DeviceError),
    /// Error of the request, for another reason.
    #[error(transparent)]
    Request(RequestError),
    /// Error of the submission, for another reason.
    #[error(transparent)]
    Submit(SubmitError),
    /// A network is in use.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The observer said stop.
    #[error("interrupted")]
    Interrupted,
    /// The system has no thread for an engine.
    #[error("the engine's thread cannot be started ({0}): raise the limit of threads, or run the model on this one")]
    NoThread(std::io::Error),
    /// The engine takes no requests any more, or its thread has ended.
    #[error("the engine is shut down: start another one")]
    ShutDown,
    /// The engine failed, and serves no request any more.
    #[error("the engine has failed ({why}): start another one")]
    EngineFailed {
        /// Description of the failure.
        why: String,
    },
}

fn known_guides(known: &[String]) -> String {
    match known {
        [] => "the model was loaded without a guide".to_owned(),
        known => format!("known: {}", known.join(", ")),
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Cancelled => Self::Interrupted,
            RequestError::Open(error) => Self::Open(error),
            RequestError::Plan(error) => Self::Plan(error),
            RequestError::Device(error) => Self::Device(error),
            RequestError::Refused(error) => error.into(),
            RequestError::Expired
            | RequestError::Broken(_)
            | RequestError::Fault(_)
            | RequestError::NotNumbers { .. }
            | RequestError::Panicked(_)
            | _ => Self::Request(error),
        }
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Request(error) => error.into(),
            EngineError::NoThread(error) => Self::NoThread(error),
            EngineError::Failed { why } => Self::EngineFailed { why },
            _ => Self::ShutDown,
        }
    }
}

impl From<InspectError> for Error {
    fn from(error: InspectError) -> Self {
        match error {
            InspectError::Open(error) => Self::Open(error),
            InspectError::Plan(error) => Self::Plan(error),
            InspectError::Device(error) => Self::Device(error),
            error => Self::Request(RequestError::Device(DeviceError(error.to_string()))),
        }
    }
}

impl From<SubmitError> for Error {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Open(error) => Self::Open(error),
            SubmitError::Device(error) => Self::Device(error),
            error => Self::Submit(error),
        }
    }
}

impl Error {
    /// Returns whether the call itself was wrong, not its execution: a command ends with 2 instead of 1, a server calls it a
    /// bad request.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Hub(error) => error.is_usage(),
            Self::Model(error) => error.is_usage(),
            Self::Checkpoint(error) => error.is_usage(),
            Self::Option(_)
            | Self::Spec(_)
            | Self::Options(_)
            | Self::TooLong { .. }
            | Self::TextTooLong { .. }
            | Self::TokenOutOfRange { .. }
            | Self::NoTokens
            | Self::MaskInPrompt
            | Self::NoHole
            | Self::NothingToContinue
            | Self::BadHole { .. }
            | Self::InfillUnsupported { .. }
            | Self::InfillLength { .. }
            | Self::Meaningless { .. }
            | Self::Constraint { .. }
            | Self::Question { .. }
            | Self::NoEnd { .. }
            | Self::GuideNotCausal { .. }
            | Self::GuideWithoutTokenizer { .. }
            | Self::GuideTokenizer { .. }
            | Self::UnknownGuide { .. }
            | Self::WhichGuide { .. }
            | Self::GuideTwice { .. }
            | Self::NoDraws
            | Self::NoLikelihood { .. }
            | Self::EmptyLikelihood
            | Self::Submit(_) => true,
            Self::Open(_)
            | Self::Plan(_)
            | Self::Device(_)
            | Self::Request(_)
            | Self::Busy(_)
            | Self::NoThread(_)
            | Self::ShutDown
            | Self::EngineFailed { .. }
            | Self::Interrupted
            | Self::NoTokenizer { .. } => false,
        }
    }

    /// Returns whether the request's deadline passed while it waited for memory: nothing was decoded.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Request(RequestError::Expired))
    }

    /// Returns whether the request was given up by its reader.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Interrupted)
    }
}

/// A model that cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The checkpoint is not usable.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The device is not usable.
    #[error(transparent)]
    Device(#[from] UnusableDevice),
    /// The weights cannot be packed.
    #[error("{name} cannot be loaded: {error}")]
    Load {
        /// The model.
        name: String,
        /// Error of the loader.
        error: LoadError,
    },
    /// An adapter is to be added into weights that are to be integers.
    #[error(
        "{name} cannot be loaded: the adapter cannot be merged into weights that are quantised to {quantize}: give \
         `adapter_use` all, which computes it beside them, or `quantize` none"
    )]
    MergeIntoIntegers {
        /// The model.
        name: String,
        /// Format of the weights.
        quantize: WeightChoice,
    },
    /// The system has no thread for its engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The model needs more memory than there is, found before it was loaded.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The kernels of a device cannot take it.
    #[cfg(feature = "cuda")]
    #[error("{name} cannot run on cuda:{number}: {unfit}")]
    Unfit {
        /// The model.
        name: String,
        /// Number of the GPU.
        number: usize,
        /// Feature that the GPU lacks.
        unfit: Unfit,
    },
    /// No memory.
    #[error("{name} does not fit: {error}")]
    Memory {
        /// The model.
        name: String,
        /// Error with the missing amount.
        error: OutOfMemory,
    },
}

impl ModelError {
    /// Returns whether the call itself was wrong, not its execution.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Checkpoint(error) => error.is_usage(),
            Self::Device(error) => error.is_usage(),
            _ => false,
        }
    }
}
