//! The fields of all bodies, for the readers and for `/openapi.json`.

use demask::{Options, Settings};

use crate::limits::Limits;

/// A field that an object may have.
#[derive(Debug)]
pub struct Field {
    /// Name of the field.
    pub name: &'static str,
    /// Type of its value.
    pub of: Of,
    /// Default of an absent field, as JSON; empty if it has none.
    pub default: &'static str,
    /// Description, in a sentence.
    pub about: &'static str,
}

/// Type of a field's value. Null is always the same as an absent field.
#[derive(Debug)]
pub enum Of {
    /// A text.
    Text,
    /// True or false.
    Switch,
    /// A whole number from the first to the second, which the server's limits may say.
    Count(u64, fn(&Limits) -> u64),
    /// A whole number from the first to the second, which may be negative.
    Integer(i64, i64),
    /// A number from the first to the second.
    Number(f64, f64),
    /// The length of an answer, from 1 to the server's limit.
    Length,
    /// An object with fields of its own.
    Object(Table),
    /// Type of the field's own reader, as a schema.
    Own(&'static str),
    /// Values, as JSON, that change nothing: others, which would change the answer, are refused.
    Only(&'static [&'static str]),
    /// Hint: any value, which changes no answer and is ignored.
    Hint,
    /// Field that stands elsewhere: the text names the place.
    Elsewhere(&'static str),
    /// Options of decoding, all that the library has but those that a request has under other names.
    Decoding,
}

/// The fields of an object, in groups that several objects share.
pub type Table = &'static [&'static [Field]];

/// Options of the library that a request has under other names, or in other places.
const NOT_OF_DECODING: [&str; 10] = [
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "stop",
    "ignore_eos",
    "seed",
    "top_logprobs",
    "include_stop",
];

/// Returns the library's options of decoding that a request may set by their own names.
pub fn decoding() -> impl Iterator<Item = &'static demask_settings::Field> {
    Options::FIELDS.iter().filter(|field| !NOT_OF_DECODING.contains(&field.name))
}

/// Returns the names that a field of a table stands for: its own, or those of all options of decoding.
pub fn names(field: &'static Field) -> Vec<&'static str> {
    match field.of {
        Of::Decoding => decoding().map(|option| option.name).collect(),
        Of::Elsewhere(_) => Vec::new(),
        _ => vec![field.name],
    }
}

/// Returns a field.
pub const fn field(name: &'static str, of: Of, about: &'static str) -> Field {
    Field { name, of, default: "", about }
}

/// Returns a field with a default.
pub const fn with_default(name: &'static str, of: Of, default: &'static str, about: &'static str) -> Field {
    Field { name, of, default, about }
}

/// Returns a field that is ignored.
pub const fn hint(name: &'static str) -> Field {
    field(name, Of::Hint, "Ignored: it changes no answer.")
}

const fn for_template(name: &'static str) -> Field {
    field(name, Of::Own(ANY), "Reaches the template, as any other field that the template reads.")
}

/// Returns a field that is not implemented.
pub const fn only(name: &'static str, values: &'static [&'static str]) -> Field {
    field(name, Of::Only(values), "Not implemented: only what changes nothing passes.")
}

/// Token ids, or a text, or a list of either.
pub const TEXTS_OR_IDS: &str = r#"{"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer", "minimum": 0}},
    {"type": "array", "items": {"type": "string"}},
    {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}}]}"#;
const TEXT_OR_TEXTS: &str =
    r#"{"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "null"]}}, {"type": "null"}]}"#;
/// Token ids.
pub const IDS: &str = r#"{"type": "array", "items": {"type": "integer", "minimum": 0}}"#;
const SEED: &str = r#"{"type": ["integer", "null"]}"#;
/// An object, or nothing.
pub const OBJECT: &str = r#"{"type": ["object", "null"]}"#;
/// Any value.
pub const ANY: &str = "{}";
/// Content of a message: a text, or several parts.
const CONTENT: &str = r#"{"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "array", "items": {"type": "object",
    "required": ["type", "text"], "properties": {"type": {"enum": ["text", "input_text"]}, "text": {"type": "string"}}}}]}"#;

/// The body's model.
pub const MODEL: &[Field] =
    &[field("model", Of::Text, "One of the names of /v1/models; absent: the one that is served.")];

/// A filter of tokens.
pub const MIN_P: Field =
    field("min_p", Of::Number(0.0, 1.0), "Tokens kept are at least this share as probable as the best one; 0: all.");

/// Fields of sampling and of ends, which stand beside `diffusion`, or inside of it.
pub const SAMPLING: &[Field] = &[
    field("temperature", Of::Number(0.0, 2.0), "Temperature of tokens; absent or 0: the most probable one."),
    field("top_p", Of::Number(0.0, 1.0), "Probability kept by top-p filtering; 1: all."),
    field("top_k", Of::Integer(-1, 4_294_967_295), "Tokens kept by top-k filtering; -1 and 0: all."),
    MIN_P,
    field("seed", Of::Own(SEED), "Key of all randomness; absent, one is drawn and returned in `diffusion.seed`."),
    field("stop", Of::Own(TEXT_OR_TEXTS), "Texts that end the answer; they are not part of it."),
    with_default("ignore_eos", Of::Switch, "false", "Decode all positions, whatever end tokens stand there."),
];

/// Options that a request has in `diffusion` alone.
const DIFFUSION: &[Field] = &[
    with_default(
        "frames",
        Of::Own(r#"{"enum": ["none", "commits", "canvas", null]}"#),
        r#""none""#,
        "What a stream shows of the canvas.",
    ),
    with_default("receipt", Of::Switch, "false", "Return how the answer was made."),
    field("max_tokens", Of::Elsewhere("`max_tokens` stands beside `diffusion`"), ""),
    field("top_logprobs", Of::Elsewhere("`logprobs` and `top_logprobs` stand beside `diffusion`"), ""),
    field("include_stop", Of::Elsewhere("`include_stop_str_in_output` stands beside `diffusion`"), ""),
];

/// Options of decoding, flat in a body or inside of `diffusion`.
pub const DECODING: &[Field] = &[
    field("threshold", Of::Number(0.0, 1.0), "Short for the decoder threshold with this confidence."),
    field("", Of::Decoding, ""),
];

const STREAM_OPTIONS: &[Field] = &[
    with_default("include_usage", Of::Switch, "false", "A last chunk with the counts of tokens."),
    with_default("continuous_usage_stats", Of::Switch, "false", "Counts of tokens in every chunk."),
];

/// Length of an answer.
pub const MAX_TOKENS: Field = field(
    "max_tokens",
    Of::Length,
    "Tokens that the answer may have at most; absent: as many as the model decodes by default.",
);

/// The answer in pieces.
pub const STREAM: Field =
    with_default("stream", Of::Switch, "false", "Send the answer in pieces, as server-sent events.");

/// Salt of the cache.
pub const CACHE_SALT: Field =
    field("cache_salt", Of::Text, "Only requests of the same salt share what was computed for equal prompts.");

/// Options of decoding in an object of their own.
pub const OF_DIFFUSION: Field = field(
    "diffusion",
    Of::Object(&[SAMPLING, DIFFUSION, DECODING]),
    "How the answer is decoded, and what is shown of it.",
);

/// Form of the answer.
pub const RESPONSE_FORMAT: Field = field(
    "response_format",
    Of::Own(OBJECT),
    "`text`, `json_object`, or `json_schema` with a schema: the answer is valid under it.",
);

const STRUCTURED: &[Field] = &[
    field("json", Of::Own(ANY), "A JSON schema under which the answer is valid."),
    field("json_object", Of::Switch, "The answer is a JSON object."),
    field("regex", Of::Text, "A regular expression that the whole answer matches."),
    field("choice", Of::Own(ANY), "Texts of which the answer is one."),
    only("grammar", &[]),
    only("structural_tag", &[]),
    only("disable_any_whitespace", &["false"]),
    only("disable_additional_properties", &["false"]),
    only("whitespace_pattern", &[]),
];

/// Fields of all endpoints that generate in OpenAI's first form.
pub const GENERATING: &[Field] = &[
    MAX_TOKENS,
    field("max_completion_tokens", Of::Length, "The same."),
    with_default(
        "n",
        Of::Count(1, |limits| limits.choices as u64),
        "1",
        "Answers to each prompt, with the seeds from `seed` on.",
    ),
    STREAM,
    field(
        "stream_options",
        Of::Object(&[STREAM_OPTIONS]),
        "What a stream has beside the text; other names are ignored.",
    ),
    with_default("diffusing", Of::Switch, "false", "Send texts each of which replaces all before it."),
    field("include_stop_str_in_output", Of::Switch, "Keep the stop text that ended the answer at its end."),
    with_default("return_token_ids", Of::Switch, "false", "Return the ids of the answer's tokens."),
    with_default(
        "priority",
        Of::Integer(-1_000_000_000, 1_000_000_000),
        "0",
        "The smaller, the earlier out of the queue.",
    ),
    CACHE_SALT,
    OF_DIFFUSION,
    hint("user"),
    hint("metadata"),
    hint("service_tier"),
    hint("safety_identifier"),
    hint("prompt_cache_key"),
    hint("prompt_cache_options"),
    hint("verbosity"),
    hint("parallel_tool_calls"),
    hint("stream_interval"),
    hint("request_id"),
    hint("spaces_between_special_tokens"),
    only("length_penalty", &["1"]),
    only("use_beam_search", &["false"]),
    only("store", &["false"]),
    RESPONSE_FORMAT,
    field(
        "structured_outputs",
        Of::Object(&[STRUCTURED]),
        "What the answer is, as vLLM's clients say it: one of them.",
    ),
    field("guided_json", Of::Own(ANY), "The same as `structured_outputs.json`."),
    field("guided_regex", Of::Text, "The same as `structured_outputs.regex`."),
    field("guided_choice", Of::Own(ANY), "The same as `structured_outputs.choice`."),
    only("guided_grammar", &[]),
    only("allowed_token_ids", &[]),
    only("skip_special_tokens", &["true"]),
    only("truncate_prompt_tokens", &[]),
    only("prompt_logprobs", &["0"]),
    only("vllm_xargs", &["{}"]),
    only("logits_processors", &["[]"]),
];

const MESSAGE: &[Field] = &[
    field("role", Of::Own(r#"{"enum": ["system", "developer", "user", "assistant", "tool"]}"#), "Who speaks."),
    field("content", Of::Own(CONTENT), "What is said."),
    for_template(FOR_TEMPLATES[0]),
    for_template(FOR_TEMPLATES[1]),
    for_template(FOR_TEMPLATES[2]),
    for_template(FOR_TEMPLATES[3]),
    for_template(FOR_TEMPLATES[4]),
    field("tool_calls", Of::Own(ANY), "Calls that an assistant has made, for templates that know tools."),
    for_template(FOR_TEMPLATES[5]),
    only("function_call", &[]),
    only("audio", &[]),
];

/// Fields of a message that every client may send, whatever the template reads.
pub const FOR_TEMPLATES: [&str; 6] =
    ["name", "refusal", "annotations", "reasoning_content", "reasoning", "tool_call_id"];

/// A message of a conversation.
pub const OF_MESSAGE: Table = &[MESSAGE];

/// A conversation.
pub const MESSAGES: Field =
    field("messages", Of::Own(ANY), "The conversation, from its first message to the one that is answered.");

/// Log-probabilities in the form of chat.
pub const CHAT_LOGPROBS: &[Field] = &[
    with_default("logprobs", Of::Switch, "false", "Return the log-probabilities of the answer's tokens."),
    field(
        "top_logprobs",
        Of::Count(0, |limits| limits.top_logprobs as u64),
        "Alternatives of each token; goes with `logprobs`.",
    ),
];
