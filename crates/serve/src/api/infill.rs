//! Holes in a text: four endpoints with one core.

use std::sync::Arc;

use bytes::Bytes;
use demask::{Prompt, Segment};
use demask_settings::whole;
use serde_json::Value;

use super::{
    chat,
    common::{read_ask, run},
};
use crate::{
    Refusal,
    answer::Kind,
    ask::{self, Ask},
    entry::Entry,
    fields::{Fields, table, told},
    inner::Inner,
    limits::Limits,
    route::Endpoint,
    served::Served,
};

/// Tokens of a hole if nobody says how many.
const HOLE: usize = 32;
/// Pieces of a text with holes, at most.
const SEGMENTS: usize = 1024;

/// Fills holes.
///
/// # Errors
/// If the body is wrong, or the model cannot look ahead.
pub fn serve(service: &Arc<Inner>, entry: Entry, body: &Bytes) -> Result<Served, Refusal> {
    let limits = &service.config.limits;
    let table = match entry.endpoint {
        Endpoint::Infill => table::INFILL,
        Endpoint::PlainInfill => table::PLAIN_INFILL,
        _ => table::FIM,
    };
    let mut fields = Fields::parse(body, table, limits)?;
    let recommended = service.handle.info().recommended_length();
    let (kind, segments) = match entry.endpoint {
        Endpoint::Infill => (Kind::Infill, Some(segments(&mut fields, recommended)?)),
        Endpoint::PlainInfill => (Kind::PlainInfill, None),
        _ => (Kind::Completion, None),
    };
    let (fim, predict) = match kind {
        Kind::Infill => (None, None),
        Kind::PlainInfill => (Some(input_prefix_and_suffix(&mut fields)?), fields.integer("n_predict")?),
        _ => (Some(prompt_and_suffix(&mut fields)?), None),
    };
    let top = if kind == Kind::Infill { chat::logprobs(&mut fields)? } else { None };
    let mut ask = read_ask(service, &entry, &mut fields)?;
    if let Some(top) = top {
        ask.ask_logprobs(top);
    }
    if kind != Kind::Completion && ask.wishes.choices > 1 {
        return Err(Refusal::parameter("n", format!("`n` is {}, expected 1 for this endpoint", ask.wishes.choices)));
    }
    // -1 is how llama.cpp's clients leave it open.
    if let Some(most) = predict.and_then(|most| usize::try_from(most).ok()).filter(|most| *most > 0) {
        ask::set_bound(&mut ask.options, &mut ask.names, most, "n_predict")?;
    }
    fields.finish()?;
    let segments = match (segments, fim) {
        (Some(segments), _) => segments,
        (None, Some((prompt, suffix))) => around(prompt, length(&mut ask, recommended), suffix),
        (None, None) => Vec::new(),
    };
    check(&segments, limits)?;
    run(service, entry, kind, &[Prompt::Segments(segments)], ask, Vec::new())
}

/// Fills what is missing between prompts and a suffix.
///
/// # Errors
/// If a prompt is not text, or the model cannot look ahead.
pub fn with_suffix(
    service: &Arc<Inner>,
    entry: Entry,
    prompts: &[Prompt],
    suffix: &str,
    mut ask: Ask,
) -> Result<Served, Refusal> {
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
    run(service, entry, Kind::Completion, &prompts, ask, Vec::new())
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
    if list.is_empty() || list.len() > SEGMENTS {
        let message = format!("`segments` has {} pieces, expected 1 to {SEGMENTS}", list.len());
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
        let wrong = || Refusal::parameter("segments", format!("`segments[{index}]` is {}, {expected}", told(value)));
        one(value).ok_or_else(wrong)
    };
    list.iter().enumerate().map(read).collect()
}

/// Reads llama.cpp's names.
fn input_prefix_and_suffix(fields: &mut Fields<'_>) -> Result<(String, String), Refusal> {
    let prefix = fields.text("input_prefix")?.unwrap_or_default();
    let suffix = fields.text("input_suffix")?.unwrap_or_default();
    Ok((prefix, suffix))
}

/// Reads Mistral's and Mercury's names.
fn prompt_and_suffix(fields: &mut Fields<'_>) -> Result<(String, String), Refusal> {
    let missing = || Refusal::parameter("prompt", "`prompt` is missing: expected a text");
    let prompt = fields.text("prompt")?.ok_or_else(missing)?;
    Ok((prompt, fields.text("suffix")?.unwrap_or_default()))
}
