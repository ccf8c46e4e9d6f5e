//! Functions that a model may call: how each interface names them, and the answers to requests that have some.

use std::sync::Arc;

use demask::{
    Conversation, Message as Turn, Prompt, Settings as _,
    parts::{AnswerReader, ToolFormat},
};
use serde_json::{Map, Value, json};

use super::common::{run, text_of};
use crate::{
    Refusal,
    answers::Answers,
    ask::Ask,
    entry::Entry,
    fields::{Fields, describe},
    form::Form,
    inner::Inner,
};

/// Functions that a model may call, at most.
const MOST: usize = 128;

/// Functions that a model may call, in the form that templates read, and those of which it must call one.
#[derive(Debug, Default)]
pub struct Tools {
    /// Those that it may call.
    pub all: Vec<Value>,
    /// Those of which it must call one; none where it may answer without a call.
    pub must_call: Vec<Value>,
}

/// A request's choice of whether the model calls a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The tools are ignored.
    None,
    /// The model calls some, or none.
    Auto,
    /// It calls one.
    Any,
    /// It calls the one of this name.
    Named(String),
}

impl Choice {
    /// Reads the choice of a request: `word` finds the word in it that is its interface's for [`Auto`](Self::Auto),
    /// [`Any`](Self::Any) or [`None`](Self::None), and `name` the name of a function.
    ///
    /// # Errors
    /// If it is something else.
    pub fn read(
        choice: Option<&Value>,
        word: impl Fn(&Value) -> Option<String>,
        name: impl Fn(&Value) -> Option<String>,
        expected: &str,
    ) -> Result<Self, Refusal> {
        let Some(choice) = choice else { return Ok(Self::Auto) };
        match (word(choice).as_deref(), name(choice)) {
            (Some("none"), _) => Ok(Self::None),
            (Some("auto"), _) => Ok(Self::Auto),
            (Some("required" | "any"), _) => Ok(Self::Any),
            (_, Some(name)) => Ok(Self::Named(name)),
            _ => {
                let message = format!("`tool_choice` is {}, expected {expected}", describe(choice));
                Err(Refusal::parameter("tool_choice", message))
            }
        }
    }
}

impl Tools {
    /// Reads the field `tools` of a request: `of` puts one into the form that templates read, and `single` is the name of the
    /// field that asks for one call at most, if one does.
    ///
    /// # Errors
    /// If there are too many, the model's template writes none, one is no function with a name, or the choice names none of them.
    pub fn read(
        fields: &mut Fields<'_>,
        service: &Inner,
        (choice, single): (Choice, Option<&'static str>),
        of: impl Fn(&str, Value) -> Result<Value, Refusal>,
    ) -> Result<Self, Refusal> {
        if choice == Choice::None {
            fields.ignore(&["tools"]);
            return Ok(Self::default());
        }
        let tools = fields.list("tools")?.unwrap_or_default();
        if tools.len() > MOST {
            let message = format!("`tools` has {} functions, expected at most {MOST}", tools.len());
            return Err(Refusal::parameter("tools", message));
        }
        if !tools.is_empty() && ToolFormat::of(service.handle.info().template()).is_none() {
            let message =
                "`tools` are given, and the model's template writes none: omit them, or set `tool_choice` to none";
            return Err(Refusal::parameter("tools", message).coded("unsupported_parameter"));
        }
        let read = |(index, tool)| of(&format!("tools[{index}]"), tool);
        let all = tools.into_iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        let must_call = chosen(&all, choice)?;
        // One that must call makes one call; what a model writes by itself is returned whole.
        if let Some(single) = single.filter(|_| !all.is_empty() && must_call.is_empty()) {
            let message = format!(
                "`{single}` asks for one call at most, and all calls that a model writes are returned: omit it, or ask for a \
                 call by `tool_choice`"
            );
            return Err(Refusal::parameter(single, message).coded("unsupported_parameter"));
        }
        Ok(Self { all, must_call })
    }

    /// Answers a conversation in which the model may call these functions.
    ///
    /// # Errors
    /// If an answer that is a call is to have another form too, or the template gives the conversation no prompt.
    pub fn answers(
        self,
        (service, entry): (&Arc<Inner>, Entry),
        form: &'static dyn Form,
        mut conversation: Conversation,
        mut ask: Ask,
    ) -> Result<Answers, Refusal> {
        conversation.tools = self.all;
        let info = service.handle.info();
        let mut reader = AnswerReader::new(info, &conversation)?;
        if let Some(format) = ToolFormat::of(info.template()).filter(|_| !self.must_call.is_empty()) {
            reader = Some(AnswerReader::of_call(format));
            ask.names.note("json_schema", "tools");
            ask.names.note("constraint", "tool_choice");
            if ask.options.has_constraint() {
                let message =
                    "`tool_choice` asks for a call, and another field for another form of the answer: omit one";
                return Err(Refusal::parameter("tool_choice", message));
            }
            ask.options.fill(format.one_of(&self.must_call));
        }
        let mut answers = run(service, entry, form, &[Prompt::Chat(conversation)], ask, Vec::new())?;
        answers.shape.reader = reader;
        Ok(answers)
    }
}

/// The functions of which a choice asks for one.
fn chosen(tools: &[Value], choice: Choice) -> Result<Vec<Value>, Refusal> {
    let wrong = |message: String| Err(Refusal::parameter("tool_choice", message));
    match choice {
        Choice::None | Choice::Auto => Ok(Vec::new()),
        _ if tools.is_empty() => wrong("`tool_choice` asks for a call, and there are no `tools`: add them".to_owned()),
        Choice::Any => Ok(tools.to_vec()),
        Choice::Named(name) => {
            let named: Vec<Value> =
                tools.iter().filter(|tool| tool["function"]["name"] == name.as_str()).cloned().collect();
            if named.is_empty() {
                return wrong(format!("`tool_choice` names {name:?}, which is none of `tools`: add it"));
            }
            Ok(named)
        }
    }
}

/// Returns a call of a conversation as templates see it: its arguments are an object, which may be written as a text.
///
/// # Errors
/// If its name or its arguments are none.
pub fn call(at: &str, id: Value, name: &Value, arguments: Value) -> Result<Value, Refusal> {
    let wrong = |what: &str| Refusal::parameter(at, format!("`{at}` {what}"));
    if !name.is_string() {
        return Err(wrong("has a call without a name"));
    }
    let arguments = match arguments {
        Value::Null => json!({}),
        Value::String(text) => serde_json::from_str(&text).map_err(|_| wrong("has arguments that are no JSON"))?,
        other => other,
    };
    if !arguments.is_object() {
        return Err(wrong("has arguments that are no object"));
    }
    let mut call = json!({"id": null, "type": "function", "function": {"name": name, "arguments": arguments}});
    call["id"] = id;
    Ok(call)
}

/// Returns a function in the form that templates read.
pub fn function(name: String, about: Option<String>, parameters: Value) -> Value {
    let mut function = Map::from_iter([("name".to_owned(), name.into()), ("parameters".to_owned(), parameters)]);
    function.extend(about.map(|about| ("description".to_owned(), about.into())));
    json!({"type": "function", "function": function})
}

/// Returns the turn of a call's result.
///
/// # Errors
/// If it is no text.
pub fn result(at: &str, id: Value, content: Value) -> Result<Turn, Refusal> {
    let content = if content.is_null() { String::new() } else { text_of(at, content)? };
    let fields = [("tool_call_id".to_owned(), id)].into_iter().filter(|(_, id)| !id.is_null()).collect();
    Ok(Turn { fields, ..Turn::new("tool", content) })
}

/// Adds a thought and calls to an assistant's turn, after the calls that it has.
pub fn add(turn: &mut Turn, thought: &str, calls: Vec<Value>) {
    if !thought.is_empty() {
        turn.fields.insert("reasoning_content".to_owned(), json!(thought));
    }
    if !calls.is_empty() {
        let made = turn.fields.entry("tool_calls").or_insert_with(|| json!([]));
        if let Some(made) = made.as_array_mut() {
            made.extend(calls);
        }
    }
}

/// Refuses calls and their results in a conversation whose template writes none.
///
/// # Errors
/// If it does not.
pub fn known(at: &str, service: &Inner) -> Result<(), Refusal> {
    if ToolFormat::of(service.handle.info().template()).is_some() {
        return Ok(());
    }
    let message = format!("`{at}` is of a call, and the model's template writes no tools: omit it");
    Err(Refusal::parameter(at, message).coded("unsupported_parameter"))
}
