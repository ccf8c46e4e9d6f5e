//! `POST /v1/infill`: holes in a text, and the code that it shares with other endpoints that have a hole.

use std::sync::Arc;

use bytes::Bytes;
use demask::{Generation, Prompt, Segment};
use demask_settings::whole;
use serde_json::{Value, json};

use super::{
    chat,
    common::{generate, read_ask, run},
};
use crate::{
    Refusal,
    answers::Answers,
    ask::Ask,
    endpoint::{Endpoint, Schema},
    entry::Entry,
    fields::{
        Fields, describe,
        table::{CHAT_LOGPROBS, DECODING, GENERATING, MODEL, Of, SAMPLING, Table, field},
    },
    form::{Choice, Completion, Form},
    inner::Inner,
    limits::Limits,
};

/// Tokens of a hole if nobody says how many.
const HOLE: usize = 32;
/// Pieces of a text with holes, at most.
const MOST_SEGMENTS: usize = 1024;

/// The endpoint.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "infill",
    paths: &[("/v1/infill", "infill")],
    schema: Some(Schema::new(TABLE, &["segments"], "segments")),
    serve: |asked| generate(asked, answers),
    ..Endpoint::POST
};

/// Pieces of a text, and holes between them.
const SEGMENTS: &str = r#"{"type": "array", "minItems": 1, "maxItems": 1024, "items": {"anyOf": [{"type": "string"},
    {"type": "object", "required": ["hole"], "additionalProperties": false, "properties": {"hole": {"type": "object",
    "minProperties": 1, "maxProperties": 1, "additionalProperties": false, "properties": {
    "tokens": {"type": "integer", "minimum": 1}, "max_tokens": {"type": "integer", "minimum": 1}}}}}]}}"#;

const TABLE: Table = &[
    MODEL,
    &[field("segments", Of::Own(SEGMENTS), "Texts and holes.")],
    CHAT_LOGPROBS,
    GENERATING,
    SAMPLING,
    DECODING,
];

/// Form of a text with holes.
#[derive(Debug)]
struct Infill;

impl Form for Infill {
    fn prefix(&self) -> &'static str {
        "infill-"
    }

    fn object(&self, chunk: bool) -> &'static str {
        if chunk { "infill.chunk" } else { "infill" }
    }

    fn is_list(&self) -> bool {
        false
    }

    fn logprobs_by_token(&self) -> bool {
        true
    }

    fn has_whole_text(&self) -> bool {
        true
    }

    fn last(&self, mut part: Value, generation: &Generation) -> Value {
        // The stream's text is that of all holes: here is where one ends and the next begins.
        part["holes"] = json!(generation.holes);
        part
    }

    fn choice(&self, choice: Choice<'_>) -> Value {
        json!({"text": choice.text, "holes": choice.holes, "logprobs": choice.logprobs})
    }
}

/// Fills holes.
///
/// # Errors
/// If the body is wrong, or the model cannot look ahead.
fn answers(service: &Arc<Inner>, entry: Entry, body: &Bytes) -> Result<Answers, Refusal> {
    let mut fields = Fields::parse(body, TABLE, &service.config.limits)?;
    let segments = segments(&mut fields, service.handle.info().recommended_length())?;
    let top = chat::logprobs(&mut fields)?;
    let mut ask = read_ask(service, &entry, &mut fields)?;
    if let Some(top) = top {
        ask.ask_logprobs(top);
    }
    one_answer(&ask)?;
    fields.finish()?;
    fill(service, entry, &Infill, segments, ask)
}

/// Refuses several answers where a body has one.
pub fn one_answer(ask: &Ask) -> Result<(), Refusal> {
    match ask.wishes.choices {
        0 | 1 => Ok(()),
        choices => Err(Refusal::parameter("n", format!("`n` is {choices}, expected 1 for this endpoint"))),
    }
}

/// Fills the hole between two texts.
///
/// # Errors
/// If the model cannot look ahead.
pub fn fill_between(
    service: &Arc<Inner>,
    entry: Entry,
    form: &'static dyn Form,
    (before, after): (String, String),
    mut ask: Ask,
) -> Result<Answers, Refusal> {
    let hole = length(&mut ask, service.handle.info().recommended_length());
    fill(service, entry, form, around(before, hole, after), ask)
}

fn fill(
    service: &Arc<Inner>,
    entry: Entry,
    form: &'static dyn Form,
    segments: Vec<Segment>,
    ask: Ask,
) -> Result<Answers, Refusal> {
    check(&segments, &service.config.limits)?;
    run(service, entry, form, &[Prompt::Segments(segments)], ask, Vec::new())
}

/// Fills the gap between each prompt and a suffix.
///
/// # Errors
/// If a prompt is not text, or the model cannot look ahead.
pub fn with_suffix(
    service: &Arc<Inner>,
    entry: Entry,
    prompts: &[Prompt],
    suffix: &str,
    mut ask: Ask,
) -> Result<Answers, Refusal> {
    let hole = length(&mut ask, service.handle.info().recommended_length());
    let segments = prompts.iter().map(|prompt| match prompt {
        Prompt::Raw(text) => Ok(around(text.clone(), hole, suffix.to_owned())),
        _ => Err(Refusal::parameter("suffix", "`suffix` goes with a prompt that is text, not token ids")),
    });
    let segments = segments.collect::<Result<Vec<_>, _>>()?;
    for segments in &segments {
        check(segments, &service.config.limits)?;
    }
    let prompts: Vec<_> = segments.into_iter().map(Prompt::Segments).collect();
    run(service, entry, &Completion, &prompts, ask, Vec::new())
}

/// Takes the length of the hole out of the options: holes say how much is decoded. A bound makes none longer than the model
/// is made for, as it makes no canvas.
fn length(ask: &mut Ask, recommended: usize) -> usize {
    let (asked, most) = (ask.options.gen_length.take(), ask.options.max_tokens.take());
    ask.hole = match (asked, most) {
        (Some(_), _) => Some("gen_length"),
        (None, Some(_)) => Some("max_tokens"),
        (None, None) => None,
    };
    let wanted = asked.unwrap_or(if most.is_some() { recommended } else { HOLE });
    most.map_or(wanted, |most| wanted.min(most))
}

fn around(prompt: String, hole: usize, suffix: String) -> Vec<Segment> {
    let text = |text: String| (!text.is_empty()).then_some(Segment::Text(text));
    [text(prompt), Some(Segment::Hole(hole)), text(suffix)].into_iter().flatten().collect()
}

/// Compares the holes with the server's cap.
fn check(segments: &[Segment], limits: &Limits) -> Result<(), Refusal> {
    let wanted = segments.iter().map(|segment| if let Segment::Hole(tokens) = segment { *tokens } else { 0 });
    let wanted = wanted.fold(0_usize, usize::saturating_add);
    if wanted > limits.gen_length {
        let message = format!(
            "the holes have {wanted} tokens, and this server decodes at most {}: ask for less",
            limits.gen_length
        );
        return Err(Refusal::parameter("segments", message).coded("context_length_exceeded"));
    }
    Ok(())
}

/// Reads `segments`: texts and holes. A hole of at most so many tokens has no more than are recommended.
fn segments(fields: &mut Fields<'_>, recommended: usize) -> Result<Vec<Segment>, Refusal> {
    let expected = "expected a list such as [\"def f(\", {\"hole\": {\"tokens\": 12}}, \"):\\n\"]";
    let missing = || Refusal::parameter("segments", format!("`segments` is missing: {expected}"));
    let list = fields.list("segments")?.ok_or_else(missing)?;
    if list.is_empty() || list.len() > MOST_SEGMENTS {
        let message = format!("`segments` has {} pieces, expected 1 to {MOST_SEGMENTS}", list.len());
        return Err(Refusal::parameter("segments", message));
    }
    let one = |value: &Value| {
        let hole = &value["hole"];
        let count = |name: &str| whole(&hole[name]).and_then(|count| usize::try_from(count).ok());
        let tokens =
            count("tokens").or_else(|| Some(count("max_tokens")?.min(recommended))).filter(|tokens| *tokens > 0);
        let known =
            value.as_object().is_some_and(|map| map.len() == 1) && hole.as_object().is_some_and(|map| map.len() == 1);
        match value {
            Value::String(text) => Some(Segment::Text(text.clone())),
            _ if known => Some(Segment::Hole(tokens?)),
            _ => None,
        }
    };
    let read = |(index, value): (usize, &Value)| {
        let wrong =
            || Refusal::parameter("segments", format!("`segments[{index}]` is {}, {expected}", describe(value)));
        one(value).ok_or_else(wrong)
    };
    list.iter().enumerate().map(read).collect()
}
