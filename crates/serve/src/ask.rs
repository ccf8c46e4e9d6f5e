//! Request to the engine, whichever endpoint it came through: how to decode, the number of answers, and their form.

use std::time::{Duration, Instant};

use demask::{Mask, ModelInfo, Options, SchedulingParams, Settings, Tenant, seed};
use demask_settings::{Field, whole};
use serde_json::{Value, json};

use crate::{
    Refusal,
    fields::{
        Fields,
        table::{SAMPLING, decoding},
    },
    limits::Limits,
    names::Names,
};

/// Parts that are wanted beside the text.
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
    /// Flag for the receipt.
    pub receipt: bool,
    /// The ids of the answer's tokens.
    pub token_ids: bool,
}

/// Reports whether the prompts are returned with the log-probabilities of their tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Judged {
    /// Prompts are not judged.
    #[default]
    No,
    /// Prompts are judged, and then comes the answer.
    BesideAnswers,
    /// Prompts are judged, and nothing is generated.
    Alone,
}

/// The form of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamWishes {
    /// A last chunk with the counts of tokens.
    pub usage: bool,
    /// Counts of tokens in every chunk.
    pub continuous_usage: bool,
    /// Part of the canvas that is shown.
    pub frames: Frames,
    /// Text replaces all text before it, as Mercury's clients expect.
    pub diffusing: bool,
}

/// Part of the canvas that a stream shows beside the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Frames {
    /// No frames.
    #[default]
    None,
    /// The commits of each forward.
    Commits,
    /// The canvas as text, masks included.
    Canvas,
}

/// Options of the answers, and their form.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Options of the decoding, without the seed.
    pub options: Options,
    /// Names by which the client set options.
    pub names: Names,
    /// The seed of the first answer; the others have those after it.
    pub seed: u64,
    /// Scheduling parameters of the requests.
    pub scheduling: SchedulingParams,
    /// The option that the hole of a text to fill has its length from.
    pub hole: Option<&'static str>,
    /// Salt of the cache: only requests of the same salt share results for equal prompts.
    pub cache_salt: Option<String>,
    /// Parts that are wanted beside the text.
    pub wishes: Wishes,
}

impl Ask {
    /// Asks for log-probabilities of the answer's tokens, and of so many alternatives.
    pub fn ask_logprobs(&mut self, top: usize) {
        self.options.top_logprobs = Some(top);
        self.wishes.logprobs = true;
    }

    /// Bounds answers by the server's cap where no length was asked for and the model's own would be more.
    ///
    /// # Errors
    /// If whole blocks make the canvas longer than that.
    pub fn bound(&mut self, info: &ModelInfo, limits: &Limits) -> Result<(), Refusal> {
        let (most, default) = (limits.gen_length, info.default_gen_length());
        if self.options.gen_length.is_some() {
            return Ok(());
        }
        if self.options.max_tokens.is_none() && default > most {
            self.options.max_tokens = Some(most);
        }
        let wanted = self.options.max_tokens.map_or(default, |most| most.min(default));
        let block = self.options.block_length.filter(|&block| block > 0 && info.facts().mask == Mask::Full);
        let canvas = block.map_or(0, |block| wanted.div_ceil(block).saturating_mul(block));
        if canvas > most {
            let name = self.names.of("block_length");
            let message = format!(
                "whole blocks of `{name}` make a canvas of {canvas} positions, and this server decodes at most {most}: lower \
                 `{name}`"
            );
            return Err(Refusal::parameter(name, message).coded("context_length_exceeded"));
        }
        Ok(())
    }

    /// Returns an error of the library with the name of what made a hole too long, which the library does not know.
    pub fn blame(&self, error: demask::Error) -> demask::Error {
        match error {
            demask::Error::TooLong { prompt, gen_length, context, option } => {
                demask::Error::TooLong { prompt, gen_length, context, option: option.or(self.hole) }
            }
            other => other,
        }
    }
}

/// Reads what all endpoints that generate have in common, and leaves the rest.
///
/// # Errors
/// If a parameter is wrong, too large, or would change the answer in a way that is not implemented.
pub fn read(fields: &mut Fields<'_>, limits: &Limits, tenant: Tenant) -> Result<Ask, Refusal> {
    let mut options = Options::default();
    let mut nested = fields.object("diffusion", "diffusion.")?;
    if let Some(nested) = &mut nested {
        fields.adopt(nested, SAMPLING)?;
    }
    let stream = read_stream(fields, nested.as_mut())?;
    read_sampling(fields, &mut options)?;
    let mut names = Names::default();
    read_length(fields, &mut options, &mut names)?;
    options.stop = read_stop(fields, "stop", limits)?;
    options.ignore_eos = fields.switch("ignore_eos")?.filter(|ignore| *ignore);
    // As vLLM's clients call it, who send it with and without stop texts.
    let include = fields.switch("include_stop_str_in_output")?;
    options.include_stop = include.filter(|include| *include && options.stop.is_some());
    let seed = read_seed(fields)?;
    let choices = fields.count("n")?.unwrap_or(1);
    let priority = fields.integer("priority")?.unwrap_or_default();
    let receipt = match &mut nested {
        Some(nested) => nested.is_on("receipt")?,
        None => false,
    };
    read_diffusion(fields, nested, &mut options, &mut names)?;
    read_constraint(fields, &mut options, &mut names)?;
    limit_length(&options, &names, limits)?;
    let token_ids = fields.is_on("return_token_ids")?;
    let cache_salt = fields.text("cache_salt")?;
    fields.pass()?;
    let scheduling = SchedulingParams {
        // The smaller the earlier, as clients of vLLM expect.
        priority: -(priority as i32),
        deadline: options.deadline_ms.and_then(|limit| Instant::now().checked_add(Duration::from_millis(limit))),
        tenant,
        ..SchedulingParams::default()
    };
    let (logprobs, judged) = (false, Judged::No);
    let wishes = Wishes { choices, stream, logprobs, judged, receipt, token_ids };
    Ok(Ask { options, names, seed, scheduling, hole: None, cache_salt, wishes })
}

fn read_stream(fields: &mut Fields<'_>, mut nested: Option<&mut Fields<'_>>) -> Result<Option<StreamWishes>, Refusal> {
    let streams = fields.is_on("stream")?;
    let stream_options = fields.object("stream_options", "stream_options.")?;
    let frames = match nested.as_mut() {
        Some(nested) => nested.text("frames")?,
        None => None,
    };
    let diffusing = fields.is_on("diffusing")?;
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
        wishes.usage = stream_options.is_on("include_usage")?;
        wishes.continuous_usage = stream_options.is_on("continuous_usage_stats")?;
    }
    Ok(Some(wishes))
}

fn read_sampling(fields: &mut Fields<'_>, options: &mut Options) -> Result<(), Refusal> {
    options.temperature = fields.number("temperature")?.map(|value| value as f32);
    options.top_p = fields.number("top_p")?.map(|value| value as f32).filter(|&value| value < 1.0);
    // -1 and 0 are how vLLM's clients say: all of them.
    options.top_k = fields.integer("top_k")?.and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0);
    options.min_p = fields.number("min_p")?.map(|value| value as f32).filter(|&value| value > 0.0);
    let greedy = options.temperature.unwrap_or(0.0) == 0.0;
    if greedy {
        // The most probable token is in whatever they keep.
        (options.top_p, options.top_k, options.min_p) = (None, None, None);
    }
    Ok(())
}

/// Reads how long an answer may be.
fn read_length(fields: &mut Fields<'_>, options: &mut Options, names: &mut Names) -> Result<(), Refusal> {
    for name in ["max_tokens", "max_completion_tokens"] {
        let Some(most) = fields.count(name)? else { continue };
        set_bound(options, names, most, name)?;
    }
    Ok(())
}

/// Sets how many tokens an answer may have at most, which a client may say once.
///
/// # Errors
/// If it was said before, by another name and of another length.
pub fn set_bound(options: &mut Options, names: &mut Names, most: usize, told: &str) -> Result<(), Refusal> {
    if let Some(before) = options.max_tokens.filter(|before| *before != most) {
        let other = names.of("max_tokens");
        let message = format!("`{other}` is {before} and `{told}` is {most}: omit one");
        return Err(Refusal::parameter(other, message));
    }
    options.max_tokens = Some(most);
    names.note("max_tokens", told);
    Ok(())
}

/// Compares lengths with the server's cap.
///
/// # Errors
/// If one is longer.
pub fn limit_length(options: &Options, names: &Names, limits: &Limits) -> Result<(), Refusal> {
    let most = limits.gen_length;
    let lengths = [
        ("max_tokens", options.max_tokens),
        ("gen_length", options.gen_length),
        ("block_length", options.block_length),
    ];
    let long = lengths.into_iter().find_map(|(name, length)| Some((name, length.filter(|length| *length > most)?)));
    let Some((name, found)) = long else { return Ok(()) };
    let name = names.of(name);
    let message = format!("`{name}` is {found}, and this server decodes at most {most} tokens: lower it");
    Err(Refusal::parameter(name, message).coded("context_length_exceeded"))
}

/// Reads texts that end an answer.
///
/// # Errors
/// If they are no texts, too many, too long or empty.
pub fn read_stop(fields: &mut Fields<'_>, name: &'static str, limits: &Limits) -> Result<Option<Vec<String>>, Refusal> {
    let Some(value) = fields.take(name) else { return Ok(None) };
    let texts = match &value {
        Value::String(text) => vec![text.clone()],
        Value::Array(list) => {
            // Some clients fill their list up with null.
            let texts = list.iter().filter(|value| !value.is_null()).map(|value| value.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>().ok_or_else(|| fields.wrong(name, &value, "a text or a list of texts"))?
        }
        other => return Err(fields.wrong(name, other, "a text or a list of texts")),
    };
    let long = texts.iter().find(|text| text.len() > limits.stop_bytes);
    if texts.len() > limits.stops || long.is_some() {
        let (most, bytes) = (limits.stops, limits.stop_bytes);
        let message = format!(
            "`{name}` has {} texts, the longest of {} bytes: expected at most {most}, each of at most {bytes} bytes",
            texts.len(),
            texts.iter().map(String::len).max().unwrap_or(0)
        );
        return Err(Refusal::parameter(name, message));
    }
    if texts.iter().any(String::is_empty) {
        return Err(Refusal::parameter(
            name,
            format!("`{name}` has an empty text, which would end every answer: omit it"),
        ));
    }
    Ok(Some(texts).filter(|texts| !texts.is_empty()))
}

/// Reads the constraint of the answer, in the names of OpenAI's clients and of vLLM's.
fn read_constraint(fields: &mut Fields<'_>, options: &mut Options, names: &mut Names) -> Result<(), Refusal> {
    if let Some(format) = fields.take("response_format") {
        set_format(options, names, format, "response_format")?;
    }
    let mut given: Vec<(&'static str, Value, &'static str)> = Vec::new();
    if let Some(mut nested) = fields.object("structured_outputs", "structured_outputs.")? {
        for (name, option, told) in [
            ("json", "json_schema", "structured_outputs.json"),
            ("regex", "regex", "structured_outputs.regex"),
            ("choice", "choice", "structured_outputs.choice"),
        ] {
            given.extend(nested.take(name).map(|value| (option, value, told)));
        }
        if nested.is_on("json_object")? {
            given.push(("json_object", json!(true), "structured_outputs.json_object"));
        }
        nested.pass()?;
        nested.finish()?;
    }
    for (name, option) in [("guided_json", "json_schema"), ("guided_regex", "regex"), ("guided_choice", "choice")] {
        given.extend(fields.take(name).map(|value| (option, value, name)));
    }
    for (option, value, told) in given {
        constrain(options, names, (option, value), told)?;
    }
    if options.bad_words.is_some() {
        let told = names.of("bad_words");
        names.note("constraint", &told);
    }
    Ok(())
}

/// Sets the constraint of a form of the answer, whose fields have this name before theirs.
///
/// # Errors
/// If the form is none of those that there are.
pub fn set_format(
    options: &mut Options,
    names: &mut Names,
    mut format: Value,
    name: &'static str,
) -> Result<(), Refusal> {
    match format["type"].as_str() {
        Some("text") => Ok(()),
        Some("json_object") => constrain(options, names, ("json_object", json!(true)), name),
        Some("json_schema") => {
            // OpenAI's two interfaces have the schema in different places.
            let inner = format.get_mut("json_schema").map(Value::take).unwrap_or(format);
            match inner.get("schema") {
                Some(schema) => constrain(options, names, ("json_schema", schema.clone()), name),
                None => Err(Refusal::parameter(name, format!("`{name}` is a json_schema without a `schema`: add it"))),
            }
        }
        _ => {
            let kind = format.get("type").unwrap_or(&format);
            let message = format!("`{name}` is of type {kind}, expected text, json_object or json_schema");
            Err(Refusal::parameter(name, message))
        }
    }
}

/// Sets the constraint of the answer; a second one is refused.
fn constrain(
    options: &mut Options,
    names: &mut Names,
    (option, value): (&'static str, Value),
    name: &str,
) -> Result<(), Refusal> {
    // What the library says of a constraint on this canvas is about what was sent.
    names.note("constraint", name);
    set(options, names, option, value, name)
}

/// Reads the seed; without one, it is drawn.
fn read_seed(fields: &mut Fields<'_>) -> Result<u64, Refusal> {
    let Some(value) = fields.take("seed") else { return Ok(seed::drawn()) };
    // Negative ones are as good as others.
    let seed =
        whole(&value).and_then(|seed| u64::try_from(seed).ok().or(i64::try_from(seed).ok().map(|seed| seed as u64)));
    seed.ok_or_else(|| fields.wrong("seed", &value, "a whole number of at most 64 bits"))
}

/// Reads the options of decoding: nested under `diffusion`, or beside it by the same names.
fn read_diffusion(
    fields: &mut Fields<'_>,
    nested: Option<Fields<'_>>,
    options: &mut Options,
    names: &mut Names,
) -> Result<(), Refusal> {
    for Field { name, .. } in decoding() {
        if let Some(value) = fields.take(name) {
            set(options, names, name, value, name)?;
        }
    }
    let mut threshold = fields.number("threshold")?.map(|tau| (tau, "threshold"));
    if let Some(mut nested) = nested {
        for Field { name, .. } in decoding() {
            if let Some(value) = nested.take(name) {
                set(options, names, name, value, &format!("diffusion.{name}"))?;
            }
        }
        if let Some(tau) = nested.number("threshold")? {
            let told = "diffusion.threshold";
            if threshold.is_some() {
                return Err(Refusal::parameter(told, format!("`{told}` and `threshold` are both set: omit one")));
            }
            threshold = Some((tau, told));
        }
        nested.finish()?;
    }
    if options.guide.is_some() && options.decoder.is_none() {
        // Only one decoder asks a guide.
        set(options, names, "decoder", json!("guided"), "diffusion.guide")?;
    }
    if let Some((tau, told)) = threshold {
        if options.decoder.is_some() {
            let message = format!("`{told}` goes without `decoder`: write decoder threshold:tau=... instead of both");
            return Err(Refusal::parameter(told, message));
        }
        set(options, names, "decoder", json!(format!("threshold:tau={tau}")), told)?;
    }
    Ok(())
}

/// Sets an option of the library, whose own error refuses a wrong value.
fn set(options: &mut Options, names: &mut Names, name: &'static str, value: Value, told: &str) -> Result<(), Refusal> {
    if options.given().contains(&name) {
        let message = format!("`{told}` and `{}` are both set: omit one", names.of(name));
        return Err(Refusal::parameter(told, message));
    }
    names.note(name, told);
    options.set_json(name, value).map_err(|error| Refusal::parameter(told, names.with_client_names(&error.to_string())))
}
