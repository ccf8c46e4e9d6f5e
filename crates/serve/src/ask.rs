//! What a request asks of the engine, whichever of the endpoints it came through: how to decode, how many answers, and in
//! which form they are wanted.

use std::time::{Duration, Instant};

use demask::{Class, Options};
use serde_json::{Value, json};

use crate::{Refusal, fields::Fields, limits::Limits};

/// What is wanted beside the text.
#[derive(Debug, Clone, PartialEq)]
pub struct Wishes {
    /// Answers to each prompt.
    pub choices: usize,
    /// The form of a stream; none: one body at the end.
    pub stream: Option<StreamWishes>,
    /// Log-probabilities of the answer's tokens.
    pub logprobs: bool,
    /// Log-probabilities of the prompt's tokens.
    pub judged: Judged,
    /// How an answer was made.
    pub receipt: bool,
    /// The ids of the answer's tokens.
    pub token_ids: bool,
}

/// Whether the prompts are told again with the log-probabilities of their tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Judged {
    /// They are not.
    #[default]
    No,
    /// They are, and then comes the answer.
    BesideAnswers,
    /// They are, and nothing is generated.
    Alone,
}

/// The form of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamWishes {
    /// A last chunk with the counts of tokens.
    pub usage: bool,
    /// Counts of tokens in every chunk.
    pub continuous_usage: bool,
    /// What is shown of the canvas.
    pub frames: Frames,
    /// Text replaces all text before it, as Mercury's clients expect.
    pub diffusing: bool,
}

/// What a stream shows of the canvas beside the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Frames {
    /// Nothing.
    #[default]
    None,
    /// The commits of each forward.
    Commits,
    /// The canvas as text, masks included.
    Canvas,
}

/// How the answers are made, and in which form they are wanted.
#[derive(Debug, Clone)]
pub struct Ask {
    /// How to decode, without the seed.
    pub options: Options,
    /// Tokens that an answer may have at most, as `max_tokens` promises; the canvas may need more.
    pub keep: Option<usize>,
    /// The seed of the first answer; the others have those behind it.
    pub seed: u64,
    /// How the requests are treated beside others.
    pub class: Class,
    /// Only requests of the same salt share what was computed for equal prompts.
    pub cache_salt: Option<String>,
    /// What is wanted beside the text.
    pub wishes: Wishes,
}

impl Ask {
    /// Asks for log-probabilities of the answer's tokens, and of so many alternatives.
    pub fn ask_logprobs(&mut self, top: usize) {
        self.options.top_logprobs = Some(top);
        self.wishes.logprobs = true;
    }

    /// Rounds the canvas up to whole blocks where a block length was asked for that does not divide `max_tokens`.
    ///
    /// # Errors
    /// If the server decodes no canvas of that length.
    pub fn round_up(&mut self, limits: &Limits) -> Result<(), Refusal> {
        let (Some(keep), Some(block)) = (self.keep, self.options.block_length.filter(|block| *block > 0)) else {
            return Ok(());
        };
        let canvas = keep.div_ceil(block).saturating_mul(block);
        if canvas > limits.gen_length {
            let most = limits.gen_length;
            let message = format!(
                "`max_tokens` is {keep}, which whole blocks of {block} make {canvas} positions, and this server decodes at \
                 most {most}: lower `block_length`"
            );
            return Err(Refusal::parameter("diffusion.block_length", message).coded("context_length_exceeded"));
        }
        self.options.gen_length = Some(canvas);
        Ok(())
    }
}

/// Parameters that change no answer: hints, and names of things that this server does not keep.
const HINTS: [&str; 11] = [
    "user",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "verbosity",
    "parallel_tool_calls",
    "stream_interval",
    "request_id",
    "spaces_between_special_tokens",
];

/// Reads what all endpoints that generate have in common, and leaves the rest.
///
/// # Errors
/// If a parameter is wrong, too large, or would change the answer in a way that is not implemented.
pub fn read(fields: &mut Fields, limits: &Limits, weight: f64) -> Result<Ask, Refusal> {
    let mut options = Options::default();
    let mut nested = fields.object("diffusion", "diffusion.")?;
    let stream = read_stream(fields, nested.as_mut())?;
    read_sampling(fields, &mut options)?;
    read_length(fields, &mut options)?;
    let keep = options.gen_length;
    options.stop = read_stop(fields, limits)?;
    if fields.switch("ignore_eos")? == Some(true) {
        options.ignore_eos = Some(true);
    }
    // As vLLM's clients call it.
    if options.stop.is_some() {
        options.include_stop = fields.switch("include_stop_str_in_output")?.filter(|include| *include);
    } else {
        fields.ignore(&["include_stop_str_in_output"]);
    }
    let seed = read_seed(fields)?;
    let choices = fields.count("n", 1, limits.choices as u64)?.unwrap_or(1);
    let priority = fields.number("priority", -1e9, 1e9)?.unwrap_or(0.0);
    let receipt = nested.as_mut().map(|nested| nested.switch("receipt")).transpose()?.flatten();
    let deadline = match &mut nested {
        Some(nested) => nested.count("deadline_ms", 1, 86_400_000)?,
        None => None,
    };
    read_diffusion(fields, nested, &mut options)?;
    limit_length(&mut options, limits)?;
    let token_ids = fields.switch("return_token_ids")?.unwrap_or(false);
    let cache_salt = fields.text("cache_salt")?;
    refuse_unimplemented(fields)?;
    fields.ignore(&HINTS);
    let class = Class {
        // The smaller the earlier, as clients of vLLM expect.
        priority: -(priority as i32),
        deadline: deadline.map(|milliseconds| Instant::now() + Duration::from_millis(milliseconds as u64)),
        weight,
    };
    let (logprobs, judged) = (false, Judged::No);
    let wishes = Wishes { choices, stream, logprobs, judged, receipt: receipt.unwrap_or(false), token_ids };
    Ok(Ask { options, keep, seed, class, cache_salt, wishes })
}

fn read_stream(fields: &mut Fields, mut nested: Option<&mut Fields>) -> Result<Option<StreamWishes>, Refusal> {
    let streams = fields.switch("stream")?.unwrap_or(false);
    let stream_options = fields.object("stream_options", "stream_options.")?;
    let frames = match nested.as_mut() {
        Some(nested) => nested.text("frames")?,
        None => None,
    };
    let diffusing = fields.switch("diffusing")?.unwrap_or(false);
    let mut wishes = StreamWishes { diffusing, ..StreamWishes::default() };
    wishes.frames = match frames.as_deref() {
        None | Some("none") => Frames::None,
        Some("commits") => Frames::Commits,
        Some("canvas") => Frames::Canvas,
        Some(other) => {
            let message = format!("`diffusion.frames` is {other:?}, expected none, commits or canvas");
            return Err(Refusal::parameter("diffusion.frames", message));
        }
    };
    if !streams {
        let given = [
            ("stream_options", stream_options.is_some()),
            ("diffusion.frames", wishes.frames != Frames::None),
            ("diffusing", diffusing),
        ];
        return match given.into_iter().find(|(_, given)| *given) {
            Some((name, _)) => {
                Err(Refusal::parameter(name, format!("`{name}` goes with a stream: set `stream` to true, or omit it")))
            }
            None => Ok(None),
        };
    }
    if let Some(mut stream_options) = stream_options {
        // Clients send keys of their own here: they ask for nothing else than counts.
        wishes.usage = stream_options.switch("include_usage")?.unwrap_or(false);
        wishes.continuous_usage = stream_options.switch("continuous_usage_stats")?.unwrap_or(false);
    }
    Ok(Some(wishes))
}

fn read_sampling(fields: &mut Fields, options: &mut Options) -> Result<(), Refusal> {
    options.temperature = fields.number("temperature", 0.0, 2.0)?.map(|value| value as f32);
    options.top_p = fields.number("top_p", 0.0, 1.0)?.map(|value| value as f32).filter(|&value| value < 1.0);
    // -1 and 0 are how vLLM's clients say: all of them.
    let top_k = fields.number("top_k", -1.0, f64::from(u32::MAX))?.filter(|value| *value > 0.0);
    options.top_k = top_k.map(|value| value as u32);
    let greedy = options.temperature.unwrap_or(0.0) == 0.0;
    if greedy {
        // The most probable token is in whatever they keep.
        (options.top_p, options.top_k) = (None, None);
    }
    Ok(())
}

/// Reads how long an answer may be.
fn read_length(fields: &mut Fields, options: &mut Options) -> Result<(), Refusal> {
    let old = fields.count("max_tokens", 1, 1 << 40)?;
    let new = fields.count("max_completion_tokens", 1, 1 << 40)?;
    if let (Some(old), Some(new)) = (old, new)
        && old != new
    {
        let message = format!("`max_tokens` is {old} and `max_completion_tokens` is {new}: omit one");
        return Err(Refusal::parameter("max_tokens", message));
    }
    options.gen_length = new.or(old);
    Ok(())
}

/// Compares the canvas with the server's cap.
fn limit_length(options: &mut Options, limits: &Limits) -> Result<(), Refusal> {
    match options.gen_length {
        Some(wanted) if wanted > limits.gen_length => {
            let message = format!(
                "`max_tokens` is {wanted}, and this server decodes at most {} tokens: lower it",
                limits.gen_length
            );
            Err(Refusal::parameter("max_tokens", message).coded("context_length_exceeded"))
        }
        _ => Ok(()),
    }
}

fn read_stop(fields: &mut Fields, limits: &Limits) -> Result<Option<Vec<String>>, Refusal> {
    let Some(value) = fields.take("stop") else { return Ok(None) };
    let texts = match &value {
        Value::String(text) => vec![text.clone()],
        Value::Array(list) => {
            // Some clients fill their list up with null.
            let texts = list.iter().filter(|value| !value.is_null()).map(|value| value.as_str().map(str::to_owned));
            texts
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| fields.wrong("stop", &value, "a text or a list of texts"))?
        }
        other => return Err(fields.wrong("stop", other, "a text or a list of texts")),
    };
    let long = texts.iter().find(|text| text.len() > limits.stop_bytes);
    if texts.len() > limits.stops || long.is_some() {
        let (most, bytes) = (limits.stops, limits.stop_bytes);
        let message = format!(
            "`stop` has {} texts, the longest of {} bytes: expected at most {most}, each of at most {bytes} bytes",
            texts.len(),
            texts.iter().map(String::len).max().unwrap_or(0)
        );
        return Err(Refusal::parameter("stop", message));
    }
    if texts.iter().any(String::is_empty) {
        return Err(Refusal::parameter("stop", "`stop` has an empty text, which would end every answer: omit it"));
    }
    Ok(Some(texts).filter(|texts| !texts.is_empty()))
}

/// Reads the seed; without one, it is drawn.
fn read_seed(fields: &mut Fields) -> Result<u64, Refusal> {
    let Some(value) = fields.take("seed") else { return Ok(crate::random::number() >> 12) };
    // Negative ones are as good as others.
    let seed = value.as_u64().or_else(|| value.as_i64().map(|seed| seed as u64));
    seed.ok_or_else(|| fields.wrong("seed", &value, "a whole number of at most 64 bits"))
}

/// Reads the options of decoding: nested under `diffusion`, and those of the same names beside it.
fn read_diffusion(fields: &mut Fields, nested: Option<Fields>, options: &mut Options) -> Result<(), Refusal> {
    // These have their own readers, or names that mean something else here.
    let own = ["temperature", "top_p", "top_k", "stop", "ignore_eos", "seed", "top_logprobs", "include_stop"];
    let names = || Options::FIELDS.iter().map(|field| field.name).filter(|name| !own.contains(name));
    for name in names() {
        if let Some(value) = fields.take(name) {
            set(options, name, value, name)?;
        }
    }
    let mut threshold = fields.number("threshold", 0.0, 1.0)?;
    if let Some(mut nested) = nested {
        for name in names() {
            if let Some(value) = nested.take(name) {
                set(options, name, value, &format!("diffusion.{name}"))?;
            }
        }
        threshold = nested.number("threshold", 0.0, 1.0)?.or(threshold);
        nested.finish()?;
    }
    if options.guide.is_some() && options.decoder.is_none() {
        // Only one decoder asks a guide.
        set(options, "decoder", json!("guided"), "diffusion.guide")?;
    }
    if let Some(tau) = threshold {
        if options.decoder.is_some() {
            let message = "`threshold` goes without `decoder`: write decoder threshold:tau=... instead of both";
            return Err(Refusal::parameter("threshold", message));
        }
        set(options, "decoder", json!(format!("threshold:tau={tau}")), "threshold")?;
    }
    Ok(())
}

/// Sets an option of the library, which says itself what is wrong with a value.
fn set(options: &mut Options, name: &'static str, value: Value, told: &str) -> Result<(), Refusal> {
    let given = options.given();
    if name == "gen_length"
        && given.contains(&"gen_length")
        && Some(&value) != options.gen_length.map(Value::from).as_ref()
    {
        let message = format!("`{told}` and `max_tokens` are both set and differ: omit one");
        return Err(Refusal::parameter(told, message));
    }
    options.set_json(name, value).map_err(|error| Refusal::parameter(told, error.to_string()))
}

/// Parameters that would change the answer and are not implemented: their neutral values pass.
fn refuse_unimplemented(fields: &mut Fields) -> Result<(), Refusal> {
    for (name, neutral) in [
        ("frequency_penalty", json!([0])),
        ("presence_penalty", json!([0])),
        ("repetition_penalty", json!([1])),
        ("length_penalty", json!([1])),
        ("min_p", json!([0])),
        ("min_tokens", json!([0])),
        ("logit_bias", json!([{}])),
        ("use_beam_search", json!([false])),
        ("store", json!([false])),
        ("response_format", json!([{"type": "text"}])),
        ("structured_outputs", json!([])),
        ("guided_json", json!([])),
        ("guided_regex", json!([])),
        ("guided_choice", json!([])),
        ("guided_grammar", json!([])),
        ("allowed_token_ids", json!([])),
        ("bad_words", json!([[]])),
        ("skip_special_tokens", json!([true])),
        ("truncate_prompt_tokens", json!([])),
        ("prompt_logprobs", json!([0])),
        ("vllm_xargs", json!([{}])),
        ("logits_processors", json!([[]])),
    ] {
        fields.neutral(name, neutral.as_array().map_or(&[][..], Vec::as_slice))?;
    }
    Ok(())
}
