//! Errors of a checkpoint: each in one line that names the file, the value found, the expected one and a remedy.

use std::fmt;

use demask_model::AdapterUse;

use crate::AdapterFacts;

/// A checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Neither a directory nor a hub id.
    #[error("no model at {argument:?}: {}", wanted(argument))]
    NoSuchModel {
        /// Argument that was given.
        argument: String,
    },
    /// A demo model, and no clone of the repository around it.
    #[error(
        "no model at {argument:?}: the demo models are folders of a clone of demask; run this in the clone, give the folder's \
         path, or name no model for the built-in demo-llada"
    )]
    NoDemoFolder {
        /// Argument that was given.
        argument: String,
    },
    /// An address that is none of the hub.
    #[error(
        "{argument:?} is no address of a hub: expected https://huggingface.co/org/name, or one of {endpoint} \
         (HF_ENDPOINT); fetch other files yourself and name the file"
    )]
    ForeignAddress {
        /// Argument that was given.
        argument: String,
        /// Base address of the hub.
        endpoint: String,
    },
    /// A directory with several GGUF files and no safetensors.
    #[error("{path} has several GGUF files, {found}: name one of its files")]
    SeveralFiles {
        /// The directory.
        path: String,
        /// The files, with their sizes.
        found: String,
    },
    /// A part of a split GGUF file is not there.
    #[error("{file} is a part of a split file, and {part} is not beside it: fetch all parts into one folder")]
    MissingPart {
        /// The part that is there.
        file: String,
        /// The part that is not.
        part: String,
    },
    /// A file where a directory was expected.
    #[error(
        "{path} is a file: expected a GGUF file, or the directory that holds it, with config.json beside the weights"
    )]
    NotADirectory {
        /// The path.
        path: String,
    },
    /// A file where the directory of an adapter was expected.
    #[error("{path} is a file: expected the directory of an adapter, with adapter_config.json, or org/name of a hub")]
    NotAnAdapter {
        /// The path.
        path: String,
    },
    /// A GGUF file whose own description is wrong.
    #[error("{file} cannot be read as GGUF: {detail}; fetch it again")]
    Gguf {
        /// The file.
        file: String,
        /// Description of the finding and the expectation.
        detail: String,
    },
    /// A tensor that a GGUF file's metadata need is not there or not as they say.
    #[error("{file}: the tensor {tensor:?} {detail}; fetch the file again, or convert the model again")]
    GgufTensor {
        /// The file.
        file: String,
        /// Name of the tensor.
        tensor: String,
        /// Description of the finding and the expectation.
        detail: String,
    },
    /// A weight file cannot be read.
    #[error(transparent)]
    Read(#[from] demask_tensor::ReadError),
    /// A link of a model's folder that leads out of it.
    #[error(
        "{file} is a link to {target}, out of the model's folder: clients may see files of a model; put the file itself \
         there, or link the whole folder"
    )]
    LinkOut {
        /// The file.
        file: String,
        /// Where it leads.
        target: String,
    },
    /// The system refused to read a file.
    #[error("cannot read {file}: {cause}")]
    Io {
        /// The file.
        file: String,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// The system gives no thread, or no stack for it.
    #[error(
        "no thread for {work}: {cause}; end other programs, or raise the limits of processes and memory (ulimit -u, \
         ulimit -v)"
    )]
    Thread {
        /// Purpose of the thread.
        work: &'static str,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// A file that every checkpoint needs is not there.
    #[error("{file} is missing: {hint}")]
    MissingFile {
        /// The file.
        file: String,
        /// Expected content, and advice.
        hint: &'static str,
    },
    /// A text file of a size that no checkpoint has.
    #[error("{file} has {found} bytes, expected at most {limit}: not a file of a model; download it again")]
    TooLarge {
        /// The file.
        file: String,
        /// Size of the file in bytes.
        found: u64,
        /// The largest size that is read.
        limit: u64,
    },
    /// Error: the file is not JSON, or not of the expected structure.
    #[error("{file} is not valid JSON ({detail}): the download may be cut off; fetch it again")]
    Json {
        /// The file.
        file: String,
        /// Place and reason.
        detail: String,
    },
    /// A key without which the model is not defined.
    #[error("{file}: the key {key:?} is missing, expected {expected}; add it to the file")]
    MissingKey {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// Expected value.
        expected: &'static str,
    },
    /// A key with a value that cannot be.
    #[error("{file}: {key:?} is {found}, expected {expected}; correct the file or fetch it again")]
    BadValue {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// The value, shortened.
        found: String,
        /// Expected value.
        expected: String,
    },
    /// An architecture that nobody here knows.
    #[error("{file}: unknown architecture {found}, expected one of {known}; use a model of one of these")]
    UnknownArchitecture {
        /// The file.
        file: String,
        /// Architecture that the file names.
        found: String,
        /// Names of all known architectures.
        known: String,
    },
    /// A known thing that the engine does not compute.
    #[error("{file}: {what} is not supported; {hint}")]
    Unsupported {
        /// The file.
        file: String,
        /// Feature that was found.
        what: String,
        /// Advice on how to go on.
        hint: &'static str,
    },
    /// A weight file whose own description is wrong.
    #[error("{file} is not a whole safetensors file: {detail}; fetch it again")]
    Safetensors {
        /// The file.
        file: String,
        /// Description of the finding and the expectation.
        detail: String,
    },
    /// An adapter that does not go with the model, or is damaged.
    #[error("{file}: {detail}")]
    Adapter {
        /// The file.
        file: String,
        /// Description of the finding and the expectation.
        detail: String,
    },
    /// A tensor of the architecture is nowhere.
    #[error(
        "{file}: the tensor {tensor:?} is missing, which config.json's architecture needs; fetch the weights again"
    )]
    MissingTensor {
        /// The file that should have had it.
        file: String,
        /// Name of the tensor.
        tensor: String,
    },
    /// A tensor of another shape than the configuration says.
    #[error(
        "{file}: the tensor {tensor:?} has shape {found:?}, config.json says {expected:?}; are both of the same model?"
    )]
    TensorShape {
        /// The file.
        file: String,
        /// Name of the tensor.
        tensor: String,
        /// Shape in the file.
        found: Vec<u64>,
        /// Shape that the configuration asks for.
        expected: Vec<u64>,
    },
    /// A tensor of a type that is not read.
    #[error("{file}: the tensor {tensor:?} has type {found}, expected F32, F16 or BF16; use an unquantised checkpoint")]
    TensorType {
        /// The file.
        file: String,
        /// Name of the tensor.
        tensor: String,
        /// Type in the file.
        found: String,
    },
    /// The index names a file that is not there.
    #[error("{index} names the shard {shard:?}, which is not there; fetch it, or the whole model, again")]
    MissingShard {
        /// The index file.
        index: String,
        /// The shard.
        shard: String,
    },
    /// The tokenizer cannot be used.
    #[error("{file}: the tokenizer is broken: {detail}; fetch it again")]
    Tokenizer {
        /// The file.
        file: String,
        /// Reason of the refusal.
        detail: String,
    },
    /// The tokenizer makes ids for which there is no embedding.
    #[error(
        "{file}: the tokenizer has ids up to {largest}, the embedding only {rows} rows; are both of the same model?"
    )]
    VocabularyTooLarge {
        /// The tokenizer's file.
        file: String,
        /// Largest id.
        largest: u32,
        /// Rows of the embedding.
        rows: usize,
    },
    /// No mask token, without which a diffusion model cannot start.
    #[error("{file}: no mask token: expected \"mask_token_id\" there or in the tokenizer; add it to config.json")]
    NoMask {
        /// The configuration file.
        file: String,
    },
    /// The mask token that the user names has no embedding.
    #[error(
        "`family` names the mask {found}, expected an id below {rows}, the rows of the embedding: name one that no text has"
    )]
    ChosenMaskOutOfRange {
        /// The id.
        found: u32,
        /// Rows of the embedding.
        rows: usize,
    },
    /// The mask token has no embedding.
    #[error("{file}: the mask token is {found}, expected an id below {rows}, the rows of the embedding; correct it")]
    MaskOutOfRange {
        /// The configuration file.
        file: String,
        /// The id.
        found: u64,
        /// Rows of the embedding.
        rows: usize,
    },
    /// The chat template cannot be run.
    #[error("{file}: the chat template {detail}; give the prompt raw, or correct the template")]
    Template {
        /// The file.
        file: String,
        /// Description of the fault.
        detail: String,
    },
    /// The chat template takes more than any may, whatever the conversation.
    #[error("{file}: the chat template {detail}; correct the template, or omit it: the family has one")]
    HostileTemplate {
        /// The file.
        file: String,
        /// Description of the fault.
        detail: String,
    },
    /// The chat template refuses a conversation, in its own words.
    #[error("the model's chat template refuses the conversation: {words}")]
    Refused {
        /// The template's words.
        words: String,
    },
    /// The chat template gives no prompt for a conversation.
    #[error("the model's chat template {detail}; correct the conversation, or give the prompt raw")]
    Unrendered {
        /// Description of the fault.
        detail: String,
    },
    /// A conversation has every character that could keep its words apart from the template's.
    #[error("the messages have every character of planes 15 and 16 for private use: omit one of them")]
    NoFreeCharacter,
    /// A control token that a message spells cannot be kept apart from the template's.
    #[error(
        "{file}: its normalizer and the control token {token} leave no way to read that token's letters in a message as \
         text: omit them, or set split_special to false"
    )]
    Inseparable {
        /// The file.
        file: String,
        /// The token.
        token: String,
    },
}

/// Returns the expectation of an argument that names no model.
fn wanted(argument: &str) -> &'static str {
    if argument.to_ascii_lowercase().ends_with(".gguf") {
        "there is no such file here, and a file of a hub is org/name/FILE.gguf"
    } else {
        "expected a directory with config.json and safetensors, a GGUF file, or a hub id org/name"
    }
}

impl CheckpointError {
    /// Returns whether the call itself was wrong: a name that names nothing.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoSuchModel { .. }
                | Self::NoDemoFolder { .. }
                | Self::NotADirectory { .. }
                | Self::ForeignAddress { .. }
                | Self::SeveralFiles { .. }
                | Self::MissingPart { .. }
        )
    }

    /// Returns whether a conversation was wrong: another one has a prompt.
    pub fn is_conversation(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. } | Self::Unrendered { .. } | Self::NoFreeCharacter | Self::Inseparable { .. }
        )
    }
}

/// Something that is odd but not wrong, to be shown to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Tensors that the architecture does not know and that are not read.
    UnexpectedTensors {
        /// Names of all of them, in order.
        names: Vec<String>,
    },
    /// Two files disagree about a special token.
    SpecialTokensDisagree {
        /// Name of the special token.
        token: &'static str,
        /// The id that is used, and where it comes from.
        used: (u32, &'static str),
        /// The id that is not, and where it comes from.
        ignored: (u32, &'static str),
    },
    /// A special token without an embedding; it is not used.
    SpecialTokenOutOfRange {
        /// Name of the special token.
        token: &'static str,
        /// Id of the token.
        id: u32,
    },
    /// A key of the configuration that has no effect, as in the official code.
    IgnoredKey {
        /// The key.
        key: String,
    },
    /// `config.json` does not tell the family, something else does.
    FamilyBySign {
        /// The family that it is taken for.
        family: &'static str,
        /// Sign by which the family was recognised.
        sign: String,
    },
    /// Nobody said how an adapter is used.
    AdapterUse {
        /// The adapter, and the use that was chosen.
        facts: AdapterFacts,
    },
    /// The checkpoint's chat template cannot be used; asking for it gives this error.
    BrokenTemplate {
        /// The error.
        message: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnexpectedTensors { names } => {
                let first = names.first().map(|name| quoted(name)).unwrap_or_default();
                match names.len() {
                    1 => write!(f, "the tensor {first} is not part of the architecture and is not read"),
                    n => {
                        write!(f, "{n} tensors are not part of the architecture and are not read, the first is {first}")
                    }
                }
            }
            Self::SpecialTokensDisagree { token, used, ignored } => write!(
                f,
                "the {token} token is {} in the {} and {} in the {}; the first is used",
                used.0, used.1, ignored.0, ignored.1
            ),
            Self::SpecialTokenOutOfRange { token, id } => {
                write!(f, "the {token} token {id} has no row in the embedding and is not used")
            }
            Self::IgnoredKey { key } => write!(f, "config.json: {key:?} has no effect on this architecture"),
            Self::FamilyBySign { family, sign } => {
                write!(f, "it is taken for {family}, because {sign}; `--family` names another one")
            }
            Self::AdapterUse { facts: AdapterFacts { name, usage, .. } } => {
                let (rows, other) = match usage {
                    AdapterUse::Masks(_) => ("rows of masks alone, so that texts are the model's own", "all"),
                    AdapterUse::All | AdapterUse::Merged => ("all rows", "masks"),
                };
                write!(f, "the adapter {name} changes {rows}; `--adapter-use` {other} overrides this")
            }
            Self::BrokenTemplate { message } => f.write_str(message),
        }
    }
}

/// Text of a file for a message: quoted, on one line, not longer than a line.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    let short: String = text.chars().take(LONGEST).collect();
    let dots = if short.len() < text.len() { "..." } else { "" };
    format!("\"{}{dots}\"", short.escape_debug())
}

/// Somebody else's message on one line, not longer than a few.
pub(crate) fn one_line(message: impl fmt::Display) -> String {
    const LONGEST: usize = 300;
    let text = message.to_string();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= LONGEST { line } else { line.chars().take(LONGEST).chain("...".chars()).collect() }
}
