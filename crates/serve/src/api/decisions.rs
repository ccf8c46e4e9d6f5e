//! `POST /v1/decisions`, in the form of OpenAI's interface: questions about a prompt, each answered by one of given choices with
//! the probability of every choice. Nothing is generated.

use std::{future::poll_fn, sync::Arc};

use axum::response::Response;
use bytes::Bytes;
use demask::{Decisions, Prompt, Question, RequestHandle, SchedulingParams};
use serde_json::{Value, json};

use super::{common::check_model, completions, responses};
use crate::{
    Refusal,
    account::Account,
    admission::Places,
    endpoint::{Endpoint, IncomingRequest, Schema},
    entry::Entry,
    fields::{
        Fields,
        table::{ANY, CACHE_SALT, MODEL, Of, Table, field, hint},
    },
    inner::{Ending, Inner},
    judging::judgement,
    refusal::PROMPT,
    response::json_response,
};

/// The endpoint.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "decisions",
    paths: &[("/v1/decisions", "decisions")],
    schema: Some(Schema::new(TABLE, &["questions"], "input")),
    serve: |asked| Box::pin(serve(asked)),
    ..Endpoint::POST
};

const TABLE: Table = &[
    MODEL,
    &[
        field("input", Of::Own(ANY), "The user's text, or the conversation as items of type message."),
        field("prompt", Of::Own(RAW), "In place of `input`: a text without a chat template, or token ids."),
        field("questions", Of::Own(QUESTIONS), "What is asked, and what is chosen from."),
        CACHE_SALT,
        hint("user"),
        hint("metadata"),
        hint("safety_identifier"),
        hint("prompt_cache_key"),
        hint("prompt_cache_options"),
    ],
];

/// A text, or token ids.
const RAW: &str = r#"{"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer", "minimum": 0}},
    {"type": "null"}]}"#;

/// Questions.
const QUESTIONS: &str = r#"{"type": "array", "minItems": 1, "maxItems": 400, "items": {
    "type": "object", "required": ["type", "instructions"], "additionalProperties": false, "properties": {
        "type": {"enum": ["predicate", "choice", "score"]},
        "name": {"type": ["string", "null"], "description": "Returned with the answer."},
        "instructions": {"type": "string", "description": "The question in words, which the answer follows."},
        "choices": {"type": "array", "minItems": 2, "maxItems": 255, "description": "Texts of which one is the answer; of `choice`.",
            "items": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["value"], "additionalProperties": false,
                "properties": {"value": {"type": "string"}, "description": {"type": ["string", "null"]}}}]}},
        "levels": {"type": "array", "minItems": 2, "maxItems": 255, "description": "Texts from the lowest to the highest; of `score`.",
            "items": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["label"], "additionalProperties": false,
                "properties": {"label": {"type": "string"}, "description": {"type": ["string", "null"]}}}]}},
        "min": {"type": "integer", "description": "The lowest integer; of `score` without `levels`."},
        "max": {"type": "integer", "description": "The highest integer; of `score` without `levels`."}}}}"#;

/// Questions that are being answered. A drop cancels the unfinished ones before the next forward.
struct Deciding {
    service: Arc<Inner>,
    questions: Vec<Question>,
    answer: RequestHandle<Decisions>,
    account: Account,
    /// Held for as long as anything of the request is alive.
    _places: Places,
}

/// Answers questions.
async fn serve(asked: IncomingRequest) -> Result<Response, Refusal> {
    let mut deciding = asked.read(|lanes| &lanes.prompts, read).await?;
    let service = Arc::clone(&deciding.service);
    let over = tokio::select! {
        over = poll_fn(|context| judgement(&mut deciding.answer, &mut deciding.account, context)) => over,
        () = service.until(Ending::GivingUp) => Err(Refusal::shutting_down()),
    };
    // What is written down of it is known here.
    Ok(match over {
        Ok(found) => {
            deciding.account.done(200);
            json_response(&body(&service, &deciding.questions, &found))
        }
        Err(refusal) => {
            deciding.account.failed(&refusal);
            refusal.response()
        }
    })
}

/// Reads the prompt and its questions, and submits them.
///
/// # Errors
/// If the body is wrong.
fn read(service: &Arc<Inner>, mut entry: Entry, body: &Bytes) -> Result<Deciding, Refusal> {
    let mut fields = Fields::parse(body, TABLE, &service.config.limits)?;
    check_model(service, &mut fields)?;
    let (named, prompt) = prompt(&mut fields, service)?;
    let missing = || Refusal::parameter("questions", "`questions` is missing: expected a list of questions");
    let questions = Question::list(&fields.take("questions").ok_or_else(missing)?)?;
    let salt = entry.salt(fields.text("cache_salt")?);
    fields.pass()?;
    fields.finish()?;
    let mut places = entry.places()?;
    places.grow(1)?;
    let scheduling = SchedulingParams { tenant: entry.tenant(), ..SchedulingParams::default() };
    let submitted = service.handle.submit_decisions(&prompt, &questions, scheduling, salt.as_deref());
    let answer = submitted.map_err(|error| match Refusal::from(error) {
        refusal if refusal.param.as_deref() == Some(PROMPT) => Refusal { param: Some(named.to_owned()), ..refusal },
        refusal => refusal,
    })?;
    service.metrics.admitted();
    let account = Account::new(service, entry.caller.clone(), entry.started);
    Ok(Deciding { service: Arc::clone(service), questions, answer, account, _places: places })
}

/// Reads the prompt, and the name of the field that has it.
fn prompt(fields: &mut Fields<'_>, service: &Inner) -> Result<(&'static str, Prompt), Refusal> {
    let expected = "a text or a list of token ids";
    match fields.take("prompt") {
        Some(_) if !fields.seen("input").is_null() => {
            Err(Refusal::parameter("prompt", "`prompt` and `input` are both set: omit one"))
        }
        Some(Value::String(text)) => Ok(("prompt", Prompt::Raw(text))),
        Some(Value::Array(list)) => match completions::ids(&list) {
            Some(ids) => Ok(("prompt", Prompt::Tokens(ids))),
            None => Err(fields.wrong("prompt", &Value::Array(list), expected)),
        },
        Some(other) => Err(fields.wrong("prompt", &other, expected)),
        None => Ok(("input", Prompt::from(responses::input(fields, service)?))),
    }
}

/// The body of an answer.
fn body(service: &Inner, questions: &[Question], found: &Decisions) -> Value {
    let answers = questions.iter().zip(&found.answers).map(|(question, answer)| question.answer(answer));
    json!({
        "object": "decision",
        "model": service.name(),
        "answers": answers.collect::<Value>(),
        "forwards": found.forwards,
        "usage": {
            "input_tokens": found.input_tokens,
            "input_tokens_details": {"cached_tokens": found.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": found.input_tokens,
        },
    })
}
