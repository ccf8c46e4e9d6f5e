//! `POST /v1/responses`, in the form of OpenAI's interface, without stored conversations: each request has all of its own.

use std::sync::Arc;

use bytes::Bytes;
use demask::{
    Conversation, Finish, Message as Turn,
    parts::{AnswerPart, ToolCall},
};
use serde_json::{Map, Value, json};

use super::{
    common::{generate, read_ask, shows_no_canvas, text_of},
    tools::{self, Choice, Tools},
};
use crate::{
    Refusal,
    answer::{Counts, Head},
    answers::Answers,
    ask::{limit_length, set_bound, set_format},
    endpoint::{Endpoint, Schema},
    entry::Entry,
    fields::{
        Fields, describe,
        table::{
            ANY, CACHE_SALT, DECODING, Field, MIN_P, MODEL, OBJECT, OF_DIFFUSION, Of, STREAM, Table, field, hint, only,
        },
    },
    form::{Answered, Block, Dialect, Form, Message, named},
    inner::Inner,
};

/// The endpoint.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "responses",
    paths: &[("/v1/responses", "responses")],
    schema: Some(Schema::new(TABLE, &["input"], "input")),
    serve: |asked| generate(asked, answers),
    ..Endpoint::POST
};

/// Items of a conversation, at most.
const MOST_ITEMS: usize = 1024;

const ALONE: &[Field] = &[
    field("input", Of::Own(ANY), "The user's text, or the conversation as items of type message."),
    field("instructions", Of::Text, "What the system says, before all else."),
    field("max_output_tokens", Of::Length, "Tokens that the answer may have at most."),
    STREAM,
    field("temperature", Of::Number(0.0, 2.0), "Temperature of tokens; absent or 0: the most probable one."),
    field("top_p", Of::Number(0.0, 1.0), "Probability kept by top-p filtering; 1: all."),
    field("top_k", Of::Integer(-1, 4_294_967_295), "Tokens kept by top-k filtering; -1 and 0: all."),
    MIN_P,
    field("seed", Of::Own(ANY), "Key of all randomness; absent, one is drawn."),
    field("metadata", Of::Own(OBJECT), "Returned with the answer."),
    CACHE_SALT,
    OF_DIFFUSION,
    field(
        "previous_response_id",
        Of::Own(ANY),
        "Not implemented: no conversation is stored, send all of it as `input`.",
    ),
    only("store", &["false"]),
    only("background", &["false"]),
    only("conversation", &[]),
    only("prompt", &[]),
    field("text", Of::Object(&[TEXT]), "Form of the answer."),
    field("tools", Of::Own(ANY), "Functions that the model may call, for templates that know tools."),
    field(
        "tool_choice",
        Of::Own(ANY),
        "`none`: the tools are ignored; `required`, or a function by its name: the answer is a call.",
    ),
    field("parallel_tool_calls", Of::Switch, "Whether an answer may have several calls."),
    only("max_tool_calls", &[]),
    only("include", &["[]"]),
    only("truncation", &[r#""disabled""#]),
    only("reasoning", &["{}", r#"{"effort": "none"}"#]),
    only("top_logprobs", &["0"]),
    only("stream_options", &["{}"]),
    hint("user"),
    hint("safety_identifier"),
    hint("prompt_cache_key"),
    hint("prompt_cache_retention"),
    hint("service_tier"),
];

const TEXT: &[Field] =
    &[field("format", Of::Own(OBJECT), "`text`, `json_object`, or `json_schema` with a `schema`."), hint("verbosity")];

const TABLE: Table = &[MODEL, ALONE, DECODING];

/// Item of a conversation.
const OF_ITEM: Table = &[&[
    field(
        "type",
        Of::Own(r#"{"enum": ["message", "reasoning", "function_call", "function_call_output", null]}"#),
        "The item's type; absent: a message.",
    ),
    field("role", Of::Own(r#"{"enum": ["system", "developer", "user", "assistant"]}"#), "Who speaks."),
    field("content", Of::Own(ANY), "What is said: a text, or parts of type input_text or output_text; a thought."),
    field("summary", Of::Own(ANY), "Of a thought without content."),
    field("call_id", Of::Text, "Name of a call, in it and in its result."),
    field("name", Of::Text, "The function of a call."),
    field("arguments", Of::Text, "Its arguments, as JSON."),
    field("output", Of::Own(ANY), "Its result: a text, or parts of type input_text."),
    hint("id"),
    hint("status"),
    hint("phase"),
    only("encrypted_content", &[]),
]];

/// A function that the model may call.
const OF_TOOL: Table = &[&[
    field("type", Of::Own(r#"{"enum": ["function"]}"#), "A function of the client's own."),
    field("name", Of::Text, "Its name."),
    field("description", Of::Text, "What it does."),
    field("parameters", Of::Own(OBJECT), "JSON schema of its arguments."),
    hint("strict"),
]];

/// Form of the answers.
#[derive(Debug)]
struct Responses;

impl Form for Responses {
    fn prefix(&self) -> &'static str {
        "resp_"
    }

    fn dialect(&self) -> Option<&dyn Dialect> {
        Some(self)
    }
}

impl Dialect for Responses {
    fn body(&self, head: &Head, answered: &Answered<'_>) -> Value {
        let cut = !matches!(answered.answer.finish, Finish::Eos | Finish::Stop);
        let mut body = response(head, if cut { "incomplete" } else { "completed" });
        if cut {
            body["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        // An answer is cut in its last item.
        let last = answered.blocks.len() - 1;
        let status = |block: &Block| if cut && block.index == last { "incomplete" } else { "completed" };
        body["output"] = answered.blocks.iter().map(|block| item(block, status(block))).collect();
        body["usage"] = usage(answered);
        body
    }

    fn begun(&self, head: &Head, _: Counts) -> Vec<Message> {
        let begun = response(head, "in_progress");
        vec![
            named("response.created", json!({"response": begun})),
            named("response.in_progress", json!({"response": begun})),
        ]
    }

    fn opened(&self, block: &Block) -> Vec<Message> {
        let mut opened = item(block, "in_progress");
        let content =
            if matches!(block.part, AnswerPart::Call(_)) { ("arguments", json!("")) } else { ("content", json!([])) };
        opened[content.0] = content.1;
        let opened = named("response.output_item.added", json!({"output_index": block.index, "item": opened}));
        let text = matches!(block.part, AnswerPart::Content(_));
        let begun = text.then(|| named("response.content_part.added", at(block, json!({"part": part("")}))));
        [Some(opened), begun].into_iter().flatten().collect()
    }

    fn grown(&self, block: &Block, more: &str) -> Message {
        match &block.part {
            AnswerPart::Content(_) => {
                named("response.output_text.delta", at(block, json!({"delta": more, "logprobs": []})))
            }
            AnswerPart::Reasoning(_) => named("response.reasoning_text.delta", at(block, json!({"delta": more}))),
            AnswerPart::Call(_) => {
                let call = json!({"item_id": name(block), "output_index": block.index, "delta": more});
                named("response.function_call_arguments.delta", call)
            }
        }
    }

    fn closed(&self, block: &Block) -> Vec<Message> {
        let item = item(block, "completed");
        let over = named("response.output_item.done", json!({"output_index": block.index, "item": item.clone()}));
        match &block.part {
            AnswerPart::Content(text) => vec![
                named("response.output_text.done", at(block, json!({"text": text, "logprobs": []}))),
                named("response.content_part.done", at(block, json!({"part": item["content"][0]}))),
                over,
            ],
            AnswerPart::Reasoning(text) => {
                vec![named("response.reasoning_text.done", at(block, json!({"text": text}))), over]
            }
            AnswerPart::Call(ToolCall { name, arguments }) => {
                let call = json!({
                    "item_id": item["id"],
                    "output_index": block.index,
                    "name": name,
                    "arguments": arguments,
                });
                vec![named("response.function_call_arguments.done", call), over]
            }
        }
    }

    fn over(&self, head: &Head, answered: &Answered<'_>) -> Vec<Message> {
        let body = self.body(head, answered);
        let end = if body["status"] == "completed" { "response.completed" } else { "response.incomplete" };
        vec![named(end, json!({"response": body}))]
    }

    fn broken(&self, head: &Head, refusal: &Refusal) -> Message {
        let mut body = response(head, "failed");
        body["error"] = json!({"code": refusal.code.unwrap_or("server_error"), "message": refusal.message});
        named("response.failed", json!({"response": body}))
    }

    fn numbers(&self) -> bool {
        true
    }
}

/// Content with the place of a block's text.
fn at(block: &Block, mut content: Value) -> Value {
    (content["item_id"], content["output_index"], content["content_index"]) =
        (json!(name(block)), json!(block.index), json!(0));
    content
}

/// Name of the item of a block.
fn name(block: &Block) -> String {
    let prefix = match block.part {
        AnswerPart::Content(_) => "msg",
        AnswerPart::Reasoning(_) => "rs",
        AnswerPart::Call(_) => "fc",
    };
    format!("{prefix}_{}", block.name)
}

/// The part of an item that is text.
fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// The item of a block.
fn item(block: &Block, status: &str) -> Value {
    let mut item = match &block.part {
        AnswerPart::Content(text) => json!({"type": "message", "role": "assistant", "content": [part(text)]}),
        AnswerPart::Reasoning(text) => {
            json!({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]})
        }
        AnswerPart::Call(ToolCall { name, arguments }) => {
            let id = format!("call_{}", block.name);
            json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
        }
    };
    (item["id"], item["status"]) = (json!(name(block)), json!(status));
    item
}

/// Returns a response without an answer, with the request's own settings.
fn response(head: &Head, status: &str) -> Value {
    let mut body = json!({
        "id": head.id,
        "object": "response",
        "created_at": head.created,
        "status": status,
        "background": false,
        "error": null,
        "incomplete_details": null,
        "model": head.model,
        "output": [],
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "reasoning": {"effort": null, "summary": null},
        "store": false,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "truncation": "disabled",
        "usage": null,
    });
    if let Value::Object(body) = &mut body {
        body.extend(head.request.clone());
    }
    body
}

/// Counts of tokens.
fn usage(answered: &Answered<'_>) -> Value {
    let Counts { prompt, cached, generated, .. } = Counts::of(answered.answer);
    json!({
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": generated,
        "output_tokens_details": {"reasoning_tokens": answered.thought.min(generated)},
        "total_tokens": prompt + generated,
    })
}

/// Answers a conversation.
///
/// # Errors
/// If the body is wrong, or asks for a feature that is not implemented.
fn answers(service: &Arc<Inner>, entry: Entry, body: &Bytes) -> Result<Answers, Refusal> {
    let mut fields = Fields::parse(body, TABLE, &service.config.limits)?;
    if fields.take("previous_response_id").is_some() {
        let message =
            "`previous_response_id` names a stored conversation, and none is stored here: send all of it as `input`";
        return Err(Refusal::parameter("previous_response_id", message).coded("unsupported_parameter"));
    }
    let request = echoed(&mut fields)?;
    let mut messages: Vec<Turn> =
        request["instructions"].as_str().map(|text| Turn::new("system", text)).into_iter().collect();
    messages.extend(input(&mut fields, service)?);
    let tools = tools(&mut fields, service)?;
    let most = fields.count("max_output_tokens")?;
    let format = match fields.object("text", "text.")? {
        Some(mut text) => {
            let format = text.take("format");
            text.pass()?;
            text.finish()?;
            format
        }
        None => None,
    };
    let mut ask = read_ask(service, &entry, &mut fields)?;
    shows_no_canvas(&ask)?;
    if let Some(format) = format {
        set_format(&mut ask.options, &mut ask.names, format, "text.format")?;
    }
    if let Some(most) = most {
        set_bound(&mut ask.options, &mut ask.names, most, "max_output_tokens")?;
        limit_length(&ask.options, &ask.names, &service.config.limits)?;
    }
    fields.finish()?;
    let mut answers = tools.answers((service, entry), &Responses, Conversation::from(messages), ask)?;
    answers.shape.head.request = request;
    Ok(answers)
}

/// Fields of a request that its answer returns, as they were set.
fn echoed(fields: &mut Fields<'_>) -> Result<Map<String, Value>, Refusal> {
    let mut request = Map::new();
    for name in ["temperature", "top_p", "max_output_tokens"] {
        request.insert(name.to_owned(), fields.seen(name));
    }
    let metadata = fields.take("metadata").unwrap_or_else(|| json!({}));
    if !metadata.is_object() {
        return Err(fields.wrong("metadata", &metadata, "an object"));
    }
    request.insert("metadata".to_owned(), metadata);
    for name in ["tools", "tool_choice", "parallel_tool_calls"] {
        let value = fields.seen(name);
        if !value.is_null() {
            request.insert(name.to_owned(), value);
        }
    }
    let text = fields.seen("text");
    if text.get("format").is_some() {
        request.insert("text".to_owned(), text);
    }
    request.insert("instructions".to_owned(), fields.text("instructions")?.into());
    Ok(request)
}

/// Reads the functions that the model may call.
fn tools(fields: &mut Fields<'_>, service: &Inner) -> Result<Tools, Refusal> {
    let choice = fields.take("tool_choice");
    let single = fields.switch("parallel_tool_calls")? == Some(false);
    let word = |choice: &Value| choice.as_str().map(str::to_owned);
    let name = |choice: &Value| choice["name"].as_str().filter(|_| choice["type"] == "function").map(str::to_owned);
    let choice = Choice::read(choice.as_ref(), word, name, "none, auto, required or a function with its name")?;
    Tools::read(fields, service, (choice, single.then_some("parallel_tool_calls")), |at, tool| {
        let kind = tool["type"].clone();
        let name = tool["name"].as_str().map(str::to_owned);
        let Some(name) = name.filter(|_| kind == "function") else {
            let message = format!("`{at}` is of type {}, expected function, with a name", describe(&kind));
            return Err(Refusal::parameter(at, message));
        };
        let mut tool = Fields::of(tool, OF_TOOL, &service.config.limits, "tools[].")?;
        for name in ["type", "name"] {
            tool.take(name);
        }
        let about = tool.text("description")?;
        let parameters = tool.take("parameters").unwrap_or_else(|| json!({"type": "object"}));
        tool.pass()?;
        tool.finish()?;
        Ok(tools::function(name, about, parameters))
    })
}

/// Reads the conversation.
pub(super) fn input(fields: &mut Fields<'_>, service: &Inner) -> Result<Vec<Turn>, Refusal> {
    match fields.take("input") {
        Some(Value::String(text)) => Ok(vec![Turn::new("user", text)]),
        Some(Value::Array(items)) if !items.is_empty() && items.len() <= MOST_ITEMS => {
            let mut turns = Vec::new();
            for (index, value) in items.into_iter().enumerate() {
                turn(index, value, service, &mut turns)?;
            }
            Ok(turns)
        }
        Some(Value::Array(items)) => {
            let message = format!("`input` has {} items, expected 1 to {MOST_ITEMS}", items.len());
            Err(Refusal::parameter("input", message))
        }
        Some(other) => Err(fields.wrong("input", &other, "a text or a list of items")),
        None => Err(Refusal::parameter("input", "`input` is missing: expected a text or a list of items")),
    }
}

/// Reads an item: a turn of its own, or a part of the assistant's turn before it.
fn turn(index: usize, value: Value, service: &Inner, turns: &mut Vec<Turn>) -> Result<(), Refusal> {
    let at = |name: &str| format!("input[{index}].{name}");
    let mut fields = Fields::of(value, OF_ITEM, &service.config.limits, "input[].")?;
    let kind = fields.text("type")?.unwrap_or_else(|| "message".to_owned());
    fields.pass()?;
    let [id, content] = ["call_id", "content"].map(|name| fields.take(name).unwrap_or_default());
    match kind.as_str() {
        "message" => {
            let role = match fields.text("role")?.as_deref() {
                Some("developer" | "system") => "system",
                Some("user") => "user",
                Some("assistant") => "assistant",
                other => {
                    let message =
                        format!("`{}` is {other:?}, expected system, developer, user or assistant", at("role"));
                    return Err(Refusal::parameter(at("role"), message));
                }
            };
            let said = text_of(&at("content"), content)?;
            match turns.last_mut().filter(|last| role == "assistant" && is_thought(last)) {
                Some(last) => last.content = said,
                None => turns.push(Turn::new(role, said)),
            }
        }
        "reasoning" => {
            let summary = fields.take("summary").unwrap_or_default();
            let content = if content.as_array().is_some_and(|parts| !parts.is_empty()) { content } else { summary };
            let thought: String =
                content.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect();
            let mut turn = Turn::new("assistant", "");
            tools::add(&mut turn, &thought, Vec::new());
            turns.push(turn);
        }
        "function_call" => {
            tools::known(&at("type"), service)?;
            let [name, arguments] = ["name", "arguments"].map(|name| fields.take(name).unwrap_or_default());
            let call = tools::call(&at("arguments"), id, &name, arguments)?;
            if turns.last().is_none_or(|last| last.role != "assistant") {
                turns.push(Turn::new("assistant", ""));
            }
            turns.last_mut().into_iter().for_each(|last| tools::add(last, "", vec![call.clone()]));
        }
        "function_call_output" => {
            tools::known(&at("type"), service)?;
            turns.push(tools::result(&at("output"), id, fields.take("output").unwrap_or_default())?);
        }
        other => {
            let message = format!(
                "`{}` is {}, expected message, reasoning, function_call or function_call_output",
                at("type"),
                describe(&json!(other))
            );
            return Err(Refusal::parameter(at("type"), message));
        }
    }
    fields.finish()
}

/// Reports whether a turn is a thought alone, which the next item goes on from.
fn is_thought(turn: &Turn) -> bool {
    turn.content.is_empty() && turn.fields.contains_key("reasoning_content") && !turn.fields.contains_key("tool_calls")
}
