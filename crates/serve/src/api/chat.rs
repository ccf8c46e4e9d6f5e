//! `POST /v1/chat/completions`: answers a conversation, through the template of the model.

use std::sync::Arc;

use bytes::Bytes;
use demask::{Message, Prompt};
use serde_json::{Map, Value, json};

use super::common::{generate, read_ask, run};
use crate::{
    Refusal,
    answers::Answers,
    endpoint::{Endpoint, Schema},
    entry::Entry,
    fields::{
        Fields,
        table::{
            self, ANY, CHAT_LOGPROBS, DECODING, Field, GENERATING, MESSAGES, MODEL, Of, SAMPLING, Table, field, only,
        },
        told,
    },
    form::{Choice, Form},
    inner::Inner,
};

/// Messages of a conversation, at most.
const MOST_MESSAGES: usize = 1024;

/// The endpoint.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "chat",
    paths: &[("/v1/chat/completions", "chat")],
    schema: Some(Schema::new(TABLE, &["messages"], "messages")),
    serve: |asked| generate(asked, answers),
    ..Endpoint::POST
};

const ALONE: &[Field] = &[
    MESSAGES,
    field("tool_choice", Of::Own(r#"{"enum": ["none", "auto", null]}"#), "With none, the tools are ignored."),
    field("tools", Of::Own(ANY), "Not implemented: none, an empty list, or any with tool_choice none."),
    field("functions", Of::Own(ANY), "The same."),
    field("function_call", Of::Own(ANY), "Not implemented: none, or any with tool_choice none."),
    only("add_generation_prompt", &["true"]),
    only("continue_final_message", &["false"]),
    only("add_special_tokens", &["false"]),
    only("chat_template", &[]),
    only("documents", &["[]"]),
    only("modalities", &[r#"["text"]"#]),
    only("audio", &[]),
    only("prediction", &[]),
    only("web_search_options", &[]),
    only("moderation", &[]),
    only("reasoning_effort", &[r#""none""#]),
    only("include_reasoning", &["false", "true"]),
    only("echo", &["false"]),
    only("chat_template_kwargs", &["{}"]),
];

const TABLE: Table = &[MODEL, ALONE, CHAT_LOGPROBS, GENERATING, SAMPLING, DECODING];

/// Form of chat's answers.
#[derive(Debug)]
struct Chat;

impl Form for Chat {
    fn prefix(&self) -> &'static str {
        "chatcmpl-"
    }

    fn object(&self, chunk: bool) -> &'static str {
        if chunk { "chat.completion.chunk" } else { "chat.completion" }
    }

    fn logprobs_by_token(&self) -> bool {
        true
    }

    fn says_diffusing(&self) -> bool {
        true
    }

    fn part(&self, index: usize, text: &str, first: bool, logprobs: Option<&Value>) -> Value {
        let mut delta = Map::new();
        if first && !text.is_empty() {
            delta.insert("role".to_owned(), json!("assistant"));
        }
        if !text.is_empty() {
            delta.insert("content".to_owned(), json!(text));
        }
        json!({"index": index, "delta": delta, "finish_reason": null, "logprobs": logprobs})
    }

    fn text<'v>(&self, part: &'v mut Value, first: bool) -> &'v mut Value {
        if first {
            part["delta"]["role"] = Value::from("assistant");
        }
        &mut part["delta"]["content"]
    }

    fn choice(&self, choice: Choice<'_>) -> Value {
        json!({
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": null},
            "logprobs": choice.logprobs,
            "finish_reason": choice.finish,
            "stop_reason": choice.stop,
        })
    }
}

/// Answers a conversation.
///
/// # Errors
/// If the body is wrong, or asks for what is not implemented.
fn answers(service: &Arc<Inner>, entry: Entry, body: &Bytes) -> Result<Answers, Refusal> {
    let limits = &service.config.limits;
    let mut fields = Fields::parse(body, TABLE, limits)?;
    let messages = messages(&mut fields, service)?;
    refuse_tools(&mut fields)?;
    let top = logprobs(&mut fields)?;
    let mut ask = read_ask(service, &entry, &mut fields)?;
    fields.finish()?;
    if let Some(top) = top {
        ask.ask_logprobs(top);
    }
    run(service, entry, &Chat, &[Prompt::Chat(messages)], ask, Vec::new())
}

/// Reads whether log-probabilities are wanted, and of how many alternatives.
pub fn logprobs(fields: &mut Fields<'_>) -> Result<Option<usize>, Refusal> {
    let wanted = fields.is_on("logprobs")?;
    let top = fields.count("top_logprobs")?;
    if top.is_some_and(|top| top > 0) && !wanted {
        return Err(Refusal::parameter("top_logprobs", "`top_logprobs` goes with `logprobs`: set it to true"));
    }
    Ok(wanted.then_some(top.unwrap_or(0)))
}

/// Functions that a model may call: none are.
fn refuse_tools(fields: &mut Fields<'_>) -> Result<(), Refusal> {
    let choice = fields.take("tool_choice");
    if choice == Some(json!("none")) {
        fields.ignore(&["tools", "functions", "function_call"]);
        return Ok(());
    }
    match choice {
        None => {}
        Some(Value::String(choice)) if choice == "auto" => {}
        Some(choice) => {
            let message = format!("`tool_choice` is {}, which this server does not implement: omit it", told(&choice));
            return Err(Refusal::parameter("tool_choice", message).coded("unsupported_parameter"));
        }
    }
    fields.only("tools", &["[]"])?;
    fields.only("functions", &["[]"])?;
    fields.only("function_call", &[r#""none""#])
}

/// Reads the messages.
pub fn messages(fields: &mut Fields<'_>, service: &Inner) -> Result<Vec<Message>, Refusal> {
    let missing = || Refusal::parameter("messages", "`messages` is missing: expected a list of messages");
    let list = fields.list("messages")?.ok_or_else(missing)?;
    if list.is_empty() || list.len() > MOST_MESSAGES {
        let message = format!("`messages` has {} messages, expected 1 to {MOST_MESSAGES}", list.len());
        return Err(Refusal::parameter("messages", message));
    }
    list.into_iter().enumerate().map(|(index, value)| message(index, value, service)).collect()
}

fn message(index: usize, value: Value, service: &Inner) -> Result<Message, Refusal> {
    let at = |name: &str| format!("messages[{index}].{name}");
    let mut fields = Fields::of(value, table::OF_MESSAGE, &service.config.limits, "messages[].")?;
    let role =
        fields.text("role")?.ok_or_else(|| Refusal::parameter(at("role"), format!("`{}` is missing", at("role"))))?;
    // As OpenAI calls the system's role of its newest models.
    let role = if role == "developer" { "system".to_owned() } else { role };
    if !["system", "user", "assistant"].contains(&role.as_str()) {
        let message = format!("`{}` is {role:?}, expected system, developer, user or assistant", at("role"));
        return Err(Refusal::parameter(at("role"), message));
    }
    let content = match fields.take("content") {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => content_of(&parts).map_err(|what| {
            Refusal::parameter(at("content"), format!("`{}` has {what}, expected parts of type text", at("content")))
        })?,
        None if role == "assistant" => String::new(),
        other => {
            let found = other.map_or("missing".to_owned(), |value| told(&value));
            return Err(Refusal::parameter(at("content"), format!("`{}` is {found}, expected a text", at("content"))));
        }
    };
    fields.pass()?;
    // A name that the template does not have is more likely a slip than a wish.
    let template = service.handle.info().template();
    let others = fields.rest(|name| table::FOR_TEMPLATES.contains(&name) || template.reads(name));
    fields.finish()?;
    Ok(Message { fields: others, ..Message::new(role, content) })
}

/// Puts text parts together.
fn content_of(parts: &[Value]) -> Result<String, String> {
    let text = |part: &Value| match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text" | "input_text"), Some(text)) => Ok(text.to_owned()),
        (Some(kind), _) => Err(format!("a part of type {}", told(&json!(kind)))),
        (None, _) => Err(told(part)),
    };
    parts.iter().map(text).collect()
}
