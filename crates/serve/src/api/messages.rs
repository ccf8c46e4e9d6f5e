//! `POST /v1/messages` and `/v1/messages/count_tokens`, in the form of Anthropic's interface.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use demask::{
    Conversation, Finish, Message as Turn, Options, Prompt,
    parts::{AnswerPart, ToolCall},
};
use serde_json::{Map, Value, json};

use super::{
    chat::MOST_MESSAGES,
    common::{check_model, generate, read_ask, shows_no_canvas, text_of, tokenize},
    tools::{self, Choice, Tools},
};
use crate::{
    Refusal,
    answer::{Counts, Head},
    answers::Answers,
    ask::read_stop,
    endpoint::{Answer, Endpoint, Schema},
    entry::Entry,
    fields::{
        Fields, describe,
        table::{
            ANY, CACHE_SALT, DECODING, Field, MAX_TOKENS, MIN_P, MODEL, OBJECT, OF_DIFFUSION, Of, STREAM, Table, field,
            hint, only,
        },
    },
    form::{Answered, Block, Dialect, Form, Message, named},
    inner::Inner,
    response::json_response,
};

/// `POST /v1/messages`.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "messages",
    paths: &[("/v1/messages", "messages")],
    schema: Some(Schema::new(TABLE, &["model", "messages", "max_tokens"], "messages")),
    serve: |asked| in_envelope(generate(asked, answers)),
    ..Endpoint::POST
};

/// `POST /v1/messages/count_tokens`.
pub static COUNT: Endpoint = Endpoint {
    name: "count_tokens",
    paths: &[("/v1/messages/count_tokens", "count_tokens")],
    schema: Some(Schema::new(COUNT_TABLE, &["model", "messages"], "messages")),
    serve: |asked| in_envelope(tokenize(asked, count)),
    ..Endpoint::POST
};

/// Fields of a conversation.
const CONVERSATION: &[Field] = &[
    field("messages", Of::Own(ANY), "The conversation. A last one of the assistant is the beginning of the answer."),
    field("system", Of::Own(ANY), "What the system says: a text, or parts of type text."),
    field("tools", Of::Own(ANY), "Functions that the model may call, for templates that know tools."),
    field(
        "tool_choice",
        Of::Own(OBJECT),
        "Of type `none`: the tools are ignored; `any`, or `tool` with a `name`: the answer is a call.",
    ),
    field(
        "thinking",
        Of::Object(&[THINKING]),
        "Of type `adaptive` or `disabled`: whether the model thinks, for templates with `enable_thinking`.",
    ),
    only("mcp_servers", &["[]"]),
];

const ALONE: &[Field] = &[
    MAX_TOKENS,
    STREAM,
    field("stop_sequences", Of::Own(ANY), "Texts that end the answer; they are not part of it."),
    field("temperature", Of::Number(0.0, 2.0), "Temperature of tokens; absent or 0: the most probable one."),
    field("top_p", Of::Number(0.0, 1.0), "Probability kept by top-p filtering; 1: all."),
    field("top_k", Of::Integer(-1, 4_294_967_295), "Tokens kept by top-k filtering; -1 and 0: all."),
    MIN_P,
    field("seed", Of::Own(ANY), "Key of all randomness; absent, one is drawn."),
    CACHE_SALT,
    OF_DIFFUSION,
    hint("metadata"),
    hint("service_tier"),
    only("container", &[]),
];

const THINKING: &[Field] = &[
    field("type", Of::Own(r#"{"enum": ["adaptive", "enabled", "disabled"]}"#), "Whether it does."),
    hint("display"),
    only("budget_tokens", &[]),
];

/// A function that the model may call.
const OF_TOOL: Table = &[&[
    field("type", Of::Own(r#"{"enum": ["custom", null]}"#), "A function of the client's own."),
    field("name", Of::Text, "Its name."),
    field("description", Of::Text, "What it does."),
    field("input_schema", Of::Own(OBJECT), "JSON schema of its arguments."),
    hint("cache_control"),
    hint("strict"),
]];

const TABLE: Table = &[MODEL, CONVERSATION, ALONE, DECODING];
const COUNT_TABLE: Table = &[MODEL, CONVERSATION];

/// A message of a conversation.
const OF_TURN: Table = &[&[
    field("role", Of::Own(r#"{"enum": ["user", "assistant"]}"#), "Who speaks."),
    field(
        "content",
        Of::Own(ANY),
        "What is said: a text, or parts of type text, thinking and tool_use (an assistant's) or tool_result (a user's).",
    ),
]];

/// Form of the answers.
#[derive(Debug)]
struct Messages;

impl Form for Messages {
    fn prefix(&self) -> &'static str {
        "msg_"
    }

    fn dialect(&self) -> Option<&dyn Dialect> {
        Some(self)
    }
}

impl Dialect for Messages {
    fn body(&self, head: &Head, answered: &Answered<'_>) -> Value {
        let mut body = message(head);
        body["content"] = answered.blocks.iter().map(|block| whole(block, &block.part)).collect();
        let (reason, stop) = ending(head, answered);
        (body["stop_reason"], body["stop_sequence"]) = (json!(reason), stop);
        body["usage"] = usage(Counts::of(answered.answer));
        body
    }

    fn begun(&self, head: &Head, counts: Counts) -> Vec<Message> {
        let mut message = message(head);
        message["usage"] = usage(counts);
        vec![named("message_start", json!({"message": message}))]
    }

    fn opened(&self, block: &Block) -> Vec<Message> {
        let empty = match &block.part {
            AnswerPart::Content(_) => AnswerPart::Content(String::new()),
            AnswerPart::Reasoning(_) => AnswerPart::Reasoning(String::new()),
            AnswerPart::Call(call) => AnswerPart::Call(ToolCall { arguments: "{}".to_owned(), ..call.clone() }),
        };
        vec![named("content_block_start", json!({"index": block.index, "content_block": whole(block, &empty)}))]
    }

    fn grown(&self, block: &Block, more: &str) -> Message {
        let delta = match block.part {
            AnswerPart::Content(_) => json!({"type": "text_delta", "text": more}),
            AnswerPart::Reasoning(_) => json!({"type": "thinking_delta", "thinking": more}),
            AnswerPart::Call(_) => json!({"type": "input_json_delta", "partial_json": more}),
        };
        named("content_block_delta", json!({"index": block.index, "delta": delta}))
    }

    fn closed(&self, block: &Block) -> Vec<Message> {
        vec![named("content_block_stop", json!({"index": block.index}))]
    }

    fn over(&self, head: &Head, answered: &Answered<'_>) -> Vec<Message> {
        let (reason, stop) = ending(head, answered);
        let delta = json!({"stop_reason": reason, "stop_sequence": stop});
        vec![
            named("message_delta", json!({"delta": delta, "usage": usage(Counts::of(answered.answer))})),
            named("message_stop", json!({})),
        ]
    }

    fn broken(&self, _: &Head, refusal: &Refusal) -> Message {
        ("error", envelope(refusal))
    }
}

/// A block with a content. No thought is signed: it is sent back as it is.
fn whole(block: &Block, part: &AnswerPart) -> Value {
    match part {
        AnswerPart::Content(text) => json!({"type": "text", "text": text}),
        AnswerPart::Reasoning(text) => json!({"type": "thinking", "thinking": text, "signature": ""}),
        AnswerPart::Call(ToolCall { name, arguments }) => {
            let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
            json!({"type": "tool_use", "id": format!("toolu_{}", block.name), "name": name, "input": input})
        }
    }
}

/// An answer without content.
fn message(head: &Head) -> Value {
    json!({
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
    })
}

/// Counts of tokens: what an earlier request had computed of the prompt is counted apart.
fn usage(counts: Counts) -> Value {
    json!({
        "input_tokens": counts.prompt - counts.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached,
        "output_tokens": counts.generated,
    })
}

/// Word for how an answer ended, and the text that ended it.
fn ending(head: &Head, answered: &Answered<'_>) -> (&'static str, Value) {
    let answer = answered.answer;
    match (&answer.stop_text, answer.finish) {
        (Some(text), _) => ("stop_sequence", json!(text)),
        (None, Finish::Eos | Finish::Stop) if answered.calls() => ("tool_use", Value::Null),
        (None, Finish::Eos | Finish::Stop) => ("end_turn", head.stop_reason(answer)),
        _ => ("max_tokens", Value::Null),
    }
}

/// A refusal as clients of this interface read it.
fn envelope(refusal: &Refusal) -> Value {
    let kind = match refusal.status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    };
    let Refusal { message, param, code, .. } = refusal;
    json!({"type": "error", "error": {"type": kind, "message": message, "param": param, "code": code}})
}

/// Puts refusals into the form of this interface.
fn in_envelope(answer: Answer) -> Answer {
    Box::pin(async move {
        Ok(answer.await.unwrap_or_else(|refusal| {
            let body = json_response(&envelope(&refusal)).into_body();
            let (mut head, _) = refusal.into_response().into_parts();
            head.headers.remove(http::header::CONTENT_LENGTH);
            Response::from_parts(head, body)
        }))
    })
}

/// Answers a conversation.
///
/// # Errors
/// If the body is wrong, or asks for a feature that is not implemented.
fn answers(service: &Arc<Inner>, entry: Entry, body: &Bytes) -> Result<Answers, Refusal> {
    let limits = &service.config.limits;
    let mut fields = Fields::parse(body, TABLE, limits)?;
    let conversation = conversation(&mut fields, service)?;
    let tools = tools(&mut fields, service)?;
    let stop = read_stop(&mut fields, "stop_sequences", limits)?;
    let mut ask = read_ask(service, &entry, &mut fields)?;
    shows_no_canvas(&ask)?;
    ask.options.stop = stop;
    if ask.options.max_tokens.is_none() {
        let message = "`max_tokens` is missing: expected the tokens that the answer may have at most";
        return Err(Refusal::parameter("max_tokens", message));
    }
    fields.finish()?;
    tools.answers((service, entry), &Messages, conversation, ask)
}

/// Counts the tokens of a conversation.
///
/// # Errors
/// If the body is wrong, or the model has no tokenizer.
fn count(service: &Inner, body: &Bytes) -> Result<Value, Refusal> {
    let mut fields = Fields::parse(body, COUNT_TABLE, &service.config.limits)?;
    check_model(service, &mut fields)?;
    let mut conversation = conversation(&mut fields, service)?;
    conversation.tools = tools(&mut fields, service)?.all;
    fields.pass()?;
    fields.finish()?;
    let ids = service.handle.info().ids_as(&Prompt::Chat(conversation), &Options::default())?;
    Ok(json!({"input_tokens": ids.len()}))
}

/// Reads the conversation.
fn conversation(fields: &mut Fields<'_>, service: &Inner) -> Result<Conversation, Refusal> {
    let limits = &service.config.limits;
    let missing = || Refusal::parameter("messages", "`messages` is missing: expected a list of messages");
    let list = fields.list("messages")?.ok_or_else(missing)?;
    if list.is_empty() || list.len() > MOST_MESSAGES {
        let message = format!("`messages` has {} messages, expected 1 to {MOST_MESSAGES}", list.len());
        return Err(Refusal::parameter("messages", message));
    }
    let mut messages = Vec::with_capacity(list.len() + 1);
    if let Some(system) = fields.take("system") {
        messages.push(Turn::new("system", text_of("system", system)?));
    }
    for (index, value) in list.into_iter().enumerate() {
        let at = |name: &str| format!("messages[{index}].{name}");
        let mut turn = Fields::of(value, OF_TURN, limits, "messages[].")?;
        let role = turn.text("role")?.unwrap_or_default();
        let content = turn.take("content").unwrap_or_default();
        turn.finish()?;
        match role.as_str() {
            "user" => user(&at("content"), content, service, &mut messages)?,
            "assistant" => messages.push(assistant(&at("content"), content, service)?),
            _ => {
                let message = format!("`{}` is {role:?}, expected user or assistant", at("role"));
                return Err(Refusal::parameter(at("role"), message));
            }
        }
    }
    let begins = |last: &Turn| last.role == "assistant" && !last.fields.contains_key("tool_calls");
    let continue_final_message = messages.last().is_some_and(begins);
    let template_kwargs = thinking(fields, service)?;
    Ok(Conversation { messages, continue_final_message, template_kwargs, ..Conversation::default() })
}

/// Reads whether the model thinks, as a variable of its template.
fn thinking(fields: &mut Fields<'_>, service: &Inner) -> Result<Map<String, Value>, Refusal> {
    let Some(mut thinking) = fields.object("thinking", "thinking.")? else { return Ok(Map::new()) };
    let kind = thinking.text("type")?.unwrap_or_default();
    thinking.pass()?;
    thinking.finish()?;
    let thinks = match kind.as_str() {
        "adaptive" | "enabled" => true,
        "disabled" => false,
        other => {
            let message = format!("`thinking.type` is {other:?}, expected adaptive, enabled or disabled");
            return Err(Refusal::parameter("thinking.type", message));
        }
    };
    let takes = service.handle.info().template().takes_variable("enable_thinking");
    Ok(takes.then(|| ("enable_thinking".to_owned(), json!(thinks))).into_iter().collect())
}

/// Reads the functions that the model may call.
fn tools(fields: &mut Fields<'_>, service: &Inner) -> Result<Tools, Refusal> {
    let choice = fields.take("tool_choice");
    let single = choice.as_ref().is_some_and(|choice| choice["disable_parallel_tool_use"] == true);
    let word = |choice: &Value| choice["type"].as_str().filter(|word| *word != "tool").map(str::to_owned);
    let name = |choice: &Value| choice["name"].as_str().filter(|_| choice["type"] == "tool").map(str::to_owned);
    let choice = Choice::read(choice.as_ref(), word, name, "type none, auto, any, or tool with a name")?;
    let single = single.then_some("tool_choice.disable_parallel_tool_use");
    Tools::read(fields, service, (choice, single), |at, tool| {
        let mut tool = Fields::of(tool, OF_TOOL, &service.config.limits, "tools[].")?;
        let kind = tool.text("type")?.unwrap_or_else(|| "custom".to_owned());
        let (name, about) = (tool.text("name")?, tool.text("description")?);
        let parameters = tool.take("input_schema").unwrap_or_else(|| json!({"type": "object"}));
        let Some(name) = name.filter(|_| kind == "custom") else {
            let message = format!("`{at}` is of type {kind:?}, expected custom, with a name");
            return Err(Refusal::parameter(at, message));
        };
        tool.pass()?;
        tool.finish()?;
        Ok(tools::function(name, about, parameters))
    })
}

/// Reads a user's text and the results of functions: turns of their own, in the order of the parts.
fn user(at: &str, content: Value, service: &Inner, messages: &mut Vec<Turn>) -> Result<(), Refusal> {
    let Value::Array(parts) = content else {
        messages.push(Turn::new("user", text_of(at, content)?));
        return Ok(());
    };
    let has_results = parts.iter().any(|part| part["type"] == "tool_result");
    let mut said: Vec<Value> = Vec::new();
    for mut part in parts {
        if part["type"] != "tool_result" {
            said.push(part);
            continue;
        }
        tools::known(at, service)?;
        if !said.is_empty() {
            messages.push(Turn::new("user", text_of(at, Value::Array(std::mem::take(&mut said)))?));
        }
        messages.push(tools::result(at, part["tool_use_id"].take(), part["content"].take())?);
    }
    if !said.is_empty() || !has_results {
        messages.push(Turn::new("user", text_of(at, Value::Array(said))?));
    }
    Ok(())
}

/// Reads what an assistant has thought, said and called.
fn assistant(at: &str, content: Value, service: &Inner) -> Result<Turn, Refusal> {
    let Value::Array(parts) = content else { return Ok(Turn::new("assistant", text_of(at, content)?)) };
    let (mut said, mut thought, mut calls) = (Vec::new(), String::new(), Vec::new());
    for mut part in parts {
        match part["type"].as_str() {
            Some("thinking") => {
                let message = || format!("`{at}` has {}, expected a thought with its text", describe(&part));
                thought.push_str(part["thinking"].as_str().ok_or_else(|| Refusal::parameter(at, message()))?);
            }
            Some("tool_use") => {
                tools::known(at, service)?;
                let [id, name, input] = ["id", "name", "input"].map(|field| part[field].take());
                calls.push(tools::call(at, id, &name, input)?);
            }
            _ => said.push(part),
        }
    }
    let mut turn = Turn::new("assistant", text_of(at, Value::Array(said))?);
    tools::add(&mut turn, &thought, calls);
    Ok(turn)
}
