//! `POST /v1/completions`: text and tokens without a template, several prompts at a time.

use std::sync::Arc;

use bytes::Bytes;
use demask::{Mask, Prompt};
use demask_settings::whole;
use serde_json::Value;

use super::{
    common::{generate, read_ask, run},
    infill::with_suffix,
};
use crate::{
    Refusal,
    answers::Answers,
    ask::{Ask, Judged},
    endpoint::{Endpoint, Schema},
    entry::Entry,
    fields::{
        Fields,
        table::{DECODING, GENERATING, MODEL, Of, SAMPLING, TEXTS_OR_IDS, Table, field, only, with_default},
    },
    form::Completion,
    inner::Inner,
};

/// The endpoint.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "completions",
    paths: &[("/v1/completions", "completions")],
    schema: Some(Schema::new(TABLE, &["prompt"], "prompt")),
    serve: |asked| generate(asked, answers),
    ..Endpoint::POST
};

/// Alternatives of a token that completions tell, as OpenAI's do.
const LOGPROBS: u64 = 5;

const TABLE: Table = &[
    MODEL,
    &[
        field("prompt", Of::Own(TEXTS_OR_IDS), "A text, token ids, or a list of either."),
        field("suffix", Of::Text, "Text behind the answer, which then fills what is between."),
        with_default("echo", Of::Switch, "false", "Return the prompt in front of the answer."),
        field(
            "logprobs",
            Of::Count(0, |_| LOGPROBS),
            "Return log-probabilities, and so many alternatives of each token.",
        ),
        field("best_of", Of::Count(1, |_| 128), "Not implemented: only the value of `n` passes."),
        only("add_special_tokens", &["true"]),
    ],
    GENERATING,
    SAMPLING,
    DECODING,
];

/// Completes prompts.
///
/// # Errors
/// If the body is wrong, or asks for a feature that is not implemented.
fn answers(service: &Arc<Inner>, entry: Entry, body: &Bytes) -> Result<Answers, Refusal> {
    let limits = &service.config.limits;
    let mut fields = Fields::parse(body, TABLE, limits)?;
    let prompts = prompts(&mut fields, limits.prompts)?;
    let suffix = fields.text("suffix")?.filter(|suffix| !suffix.is_empty());
    let echo = fields.is_on("echo")?;
    let logprobs = fields.count("logprobs")?;
    let judged = echo && logprobs.is_some();
    let alone = judged && fields.zero("max_tokens");
    let mut ask = read_ask(service, &entry, &mut fields)?;
    if let Some(best) = fields.count("best_of")?
        && best != ask.wishes.choices
    {
        let message = format!("`best_of` is {best}, which this server does not implement: omit it, or set it to `n`");
        return Err(Refusal::parameter("best_of", message).coded("unsupported_parameter"));
    }
    fields.finish()?;
    if judged {
        ask.wishes.judged = judging(service, &ask, alone)?;
    }
    if let Some(top) = logprobs {
        ask.ask_logprobs(top);
    }
    if let Some(suffix) = suffix {
        if echo {
            let message =
                "`echo` tells what stands before an answer, and with `suffix` it stands in between: omit `echo`";
            return Err(Refusal::parameter("echo", message).coded("unsupported_parameter"));
        }
        return with_suffix(service, entry, &prompts, &suffix, ask);
    }
    let echo = if echo { prompts.iter().map(|prompt| words(service, prompt)).collect() } else { Vec::new() };
    run(service, entry, &Completion, &prompts, ask, echo)
}

/// Way in which the prompts of a request with `echo` and `logprobs` are judged.
fn judging(service: &Inner, ask: &Ask, alone: bool) -> Result<Judged, Refusal> {
    let unsupported = |name: &str, message: &str| Err(Refusal::parameter(name, message).coded("unsupported_parameter"));
    if service.handle.info().facts().mask != Mask::Causal {
        let message = "`echo` with `logprobs` is for autoregressive models: it does not say where the judged text begins, \
                       send context and continuation to /v1/score";
        return unsupported("echo", message);
    }
    if ask.wishes.stream.is_some() {
        let message = "`stream` with `echo` and `logprobs` is not implemented, which tell the prompt in one forward: set it \
                       to false";
        return unsupported("stream", message);
    }
    if alone && (ask.options.gen_length.is_some() || ask.options.max_tokens.is_some()) {
        let message = "`max_tokens` is 0, which generates nothing, and another length is set beside it: omit one";
        return Err(Refusal::parameter("max_tokens", message));
    }
    Ok(if alone { Judged::Alone } else { Judged::BesideAnswers })
}

/// A prompt as text, as `echo` returns it: with its special tokens, as a text spells them.
fn words(service: &Inner, prompt: &Prompt) -> String {
    match (prompt, service.tokenizer()) {
        (Prompt::Tokens(ids), Some(tokenizer)) => tokenizer.decode(ids, false),
        (Prompt::Raw(text), _) => text.clone(),
        _ => String::new(),
    }
}

/// Reads the prompts: a text, texts, ids, or lists of ids.
fn prompts(fields: &mut Fields<'_>, most: usize) -> Result<Vec<Prompt>, Refusal> {
    let Some(value) = fields.take("prompt") else {
        return Err(Refusal::parameter(
            "prompt",
            "`prompt` is missing: expected a text, token ids, or a list of either",
        ));
    };
    let wrong =
        |value: &Value| fields.wrong("prompt", value, "a text, a list of texts, token ids, or a list of token ids");
    let prompts: Vec<Prompt> = match &value {
        Value::String(text) => vec![Prompt::Raw(text.clone())],
        Value::Array(list) if list.iter().all(Value::is_number) && !list.is_empty() => {
            vec![Prompt::Tokens(ids(list).ok_or_else(|| wrong(&value))?)]
        }
        Value::Array(list) => {
            let one = |value: &Value| match value {
                Value::String(text) => Some(Prompt::Raw(text.clone())),
                Value::Array(list) => ids(list).map(Prompt::Tokens),
                _ => None,
            };
            list.iter().map(one).collect::<Option<_>>().ok_or_else(|| wrong(&value))?
        }
        other => return Err(wrong(other)),
    };
    if prompts.is_empty() || prompts.len() > most {
        let message = format!("`prompt` has {} prompts, expected 1 to {most}", prompts.len());
        return Err(Refusal::parameter("prompt", message));
    }
    Ok(prompts)
}

/// Reads token ids.
pub fn ids(list: &[Value]) -> Option<Vec<u32>> {
    list.iter().map(|value| whole(value).and_then(|id| u32::try_from(id).ok())).collect()
}
