//! `POST /v1/chat/completions`: answers a conversation, through the template of the model.

use std::sync::Arc;

use bytes::Bytes;
use demask::{
    Conversation, Message,
    parts::{AnswerPart, ToolCall, ToolFormat},
};
use serde_json::{Map, Value, json};

use super::{
    common::{generate, read_ask, text_of},
    tools::{self, Choice, Tools},
};
use crate::{
    Refusal,
    answers::Answers,
    endpoint::{Endpoint, Schema},
    entry::Entry,
    fields::{
        Fields, describe,
        table::{
            self, ANY, CHAT_LOGPROBS, DECODING, Field, GENERATING, MESSAGES, MODEL, OBJECT, Of, SAMPLING, Table, field,
            only, with_default,
        },
    },
    form::{self, Form},
    inner::Inner,
    random,
};

/// Messages of a conversation, at most.
pub const MOST_MESSAGES: usize = 1024;

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
    field(
        "tool_choice",
        Of::Own(ANY),
        "`none`: the tools are ignored; `required`, or a function by its name: the answer is a call.",
    ),
    field("tools", Of::Own(ANY), "Functions that the model may call, for templates that know tools."),
    field("functions", Of::Own(ANY), "Not implemented: none, an empty list, or any with tool_choice none."),
    field("function_call", Of::Own(ANY), "Not implemented: none, or any with tool_choice none."),
    with_default("continue_final_message", Of::Switch, "false", "The last message, an assistant's, begins the answer."),
    field(
        "add_generation_prompt",
        Of::Switch,
        "Whether the assistant's turn is opened: true, but where the last message is continued.",
    ),
    field("chat_template_kwargs", Of::Own(OBJECT), "Other variables of the template, such as `enable_thinking`."),
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

    fn aside(&self, index: usize, part: &AnswerPart, number: usize) -> Value {
        let delta = match part {
            AnswerPart::Call(call) => {
                let mut call = call_to_json(call);
                call["index"] = json!(number);
                json!({"tool_calls": [call]})
            }
            AnswerPart::Reasoning(text) => json!({"reasoning_content": text}),
            AnswerPart::Content(text) => json!({"content": text}),
        };
        json!({"index": index, "delta": delta, "finish_reason": null, "logprobs": null})
    }

    fn text<'v>(&self, part: &'v mut Value, first: bool) -> &'v mut Value {
        if first {
            part["delta"]["role"] = Value::from("assistant");
        }
        &mut part["delta"]["content"]
    }

    fn choice(&self, choice: form::Choice<'_>) -> Value {
        let mut message = json!({"role": "assistant", "content": choice.text, "refusal": null});
        let calls: Vec<Value> = choice
            .asides
            .iter()
            .filter_map(|part| if let AnswerPart::Call(call) = part { Some(call_to_json(call)) } else { None })
            .collect();
        let thought: String = choice
            .asides
            .iter()
            .filter_map(|part| if let AnswerPart::Reasoning(text) = part { Some(text.as_str()) } else { None })
            .collect();
        if !thought.is_empty() {
            message["reasoning_content"] = json!(thought);
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
            if choice.text.is_empty() {
                message["content"] = Value::Null;
            }
        }
        json!({
            "index": choice.index,
            "message": message,
            "logprobs": choice.logprobs,
            "finish_reason": choice.finish,
            "stop_reason": choice.stop,
        })
    }
}

/// A call of a function.
fn call_to_json(call: &ToolCall) -> Value {
    let ToolCall { name, arguments } = call;
    json!({"id": random::name("call_"), "type": "function", "function": {"name": name, "arguments": arguments}})
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
    let top = logprobs(&mut fields)?;
    let mut ask = read_ask(service, &entry, &mut fields)?;
    fields.finish()?;
    if let Some(top) = top {
        ask.ask_logprobs(top);
    }
    if !tools.all.is_empty() && ask.wishes.stream.is_some_and(|stream| stream.diffusing) {
        let message = "`diffusing` replaces all text before it, and calls are sent once: omit it, or `tools`";
        return Err(Refusal::parameter("diffusing", message).coded("unsupported_parameter"));
    }
    tools.answers((service, entry), &Chat, conversation, ask)
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

/// Reads the functions that the model may call.
fn tools(fields: &mut Fields<'_>, service: &Inner) -> Result<Tools, Refusal> {
    let choice = fields.take("tool_choice");
    let word = |choice: &Value| choice.as_str().map(str::to_owned);
    let name = |choice: &Value| {
        choice["function"]["name"].as_str().filter(|_| choice["type"] == "function").map(str::to_owned)
    };
    let choice = Choice::read(choice.as_ref(), word, name, "none, auto, required or a function with its name")?;
    if choice == Choice::None {
        fields.ignore(&["functions", "function_call"]);
    }
    fields.only("functions", &["[]"])?;
    fields.only("function_call", &[r#""none""#])?;
    let single = fields.switch("parallel_tool_calls")? == Some(false);
    Tools::read(fields, service, (choice, single.then_some("parallel_tool_calls")), |at, tool| {
        if tool["type"] == "function" && tool["function"]["name"].is_string() {
            return Ok(tool);
        }
        let message = format!("`{at}` is {}, expected type function and a function with a name", describe(&tool));
        Err(Refusal::parameter(at, message))
    })
}

/// Reads the calls that an assistant has made.
fn calls(at: &str, value: Value) -> Result<Value, Refusal> {
    let Value::Array(calls) = value else {
        return Err(Refusal::parameter(at, format!("`{at}` is no list, expected a list of calls")));
    };
    let read = |mut call: Value| {
        if !call.get("function").is_some_and(Value::is_object) {
            let message = format!("`{at}` has what is no call, expected a function with name and arguments");
            return Err(Refusal::parameter(at, message));
        }
        let mut function = call["function"].take();
        tools::call(at, call["id"].take(), &function["name"].take(), function["arguments"].take())
    };
    calls.into_iter().map(read).collect()
}

/// Reads the messages, and what their template sees beside them.
fn conversation(fields: &mut Fields<'_>, service: &Inner) -> Result<Conversation, Refusal> {
    let messages = messages(fields, service)?;
    let continues = fields.is_on("continue_final_message")?;
    if fields.switch("add_generation_prompt")?.is_some_and(|opens| opens == continues) {
        let message = if continues {
            "`add_generation_prompt` opens another turn than the one that `continue_final_message` continues: omit it"
        } else {
            "`add_generation_prompt` is false, which leaves no turn to answer in: omit it, or set `continue_final_message`"
        };
        return Err(Refusal::parameter("add_generation_prompt", message));
    }
    let template_kwargs = match fields.take("chat_template_kwargs") {
        None => Map::new(),
        Some(Value::Object(map)) => map,
        Some(other) => return Err(fields.wrong("chat_template_kwargs", &other, "an object")),
    };
    let template = service.handle.info().template();
    if let Some(name) = template_kwargs.keys().find(|name| !template.takes_variable(name)) {
        let known = format!("chat_template_kwargs.{name}");
        let message = format!("`{known}` is no variable of the model's template: omit it");
        return Err(Refusal::parameter(known, message));
    }
    Ok(Conversation { messages, template_kwargs, continue_final_message: continues, ..Conversation::default() })
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
    let template = service.handle.info().template();
    let knows_tools = ToolFormat::of(template).is_some();
    let known: &[&str] =
        if knows_tools { &["system", "user", "assistant", "tool"] } else { &["system", "user", "assistant"] };
    if !known.contains(&role.as_str()) {
        let more = if knows_tools { ", user, assistant or tool" } else { ", user or assistant" };
        let message = format!("`{}` is {role:?}, expected system, developer{more}", at("role"));
        return Err(Refusal::parameter(at("role"), message));
    }
    let made = fields.take("tool_calls").filter(|calls| *calls != json!([]));
    if made.is_some() && !(knows_tools && role == "assistant") {
        let message = format!(
            "`{}` are calls, which only an assistant makes whose template writes tools: omit it",
            at("tool_calls")
        );
        return Err(Refusal::parameter(at("tool_calls"), message).coded("unsupported_parameter"));
    }
    let content = match fields.take("content") {
        None if role == "assistant" => String::new(),
        content => text_of(&at("content"), content.unwrap_or_default())?,
    };
    fields.pass()?;
    // A name that the template does not have is more likely a slip than a wish.
    let mut others = fields.rest(|name| table::FOR_TEMPLATES.contains(&name) || template.reads(name));
    fields.finish()?;
    if let Some(made) = made {
        others.insert("tool_calls".to_owned(), calls(&at("tool_calls"), made)?);
    }
    Ok(Message { fields: others, ..Message::new(role, content) })
}
