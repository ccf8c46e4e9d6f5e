//! Parts of an answer: a model's thoughts, its text, and the functions that it calls.
//!
//! A chat template shows how its model writes them. [`AnswerReader`] takes an answer as it grows, and hands out what can no longer
//! become another part.

use demask_checkpoint::ChatTemplate;
use serde_json::{Map, Value, json};

use crate::{Conversation, Error, ModelInfo, Options};

/// Marks of a thought.
const THOUGHT: [&str; 2] = ["<think>", "</think>"];

/// Form in which models of a kind write calls.
#[derive(Debug, PartialEq, Eq)]
pub struct ToolFormat {
    /// Text of a template that has it.
    sign: &'static str,
    /// Mark before calls; empty where a call is the whole answer.
    open: &'static str,
    /// Mark after them.
    close: &'static str,
    /// Name of the arguments in a call, which is an object with its function's `name`.
    arguments: &'static str,
}

/// Forms of calls, of which a template has the first whose sign it contains.
static FORMATS: [ToolFormat; 3] = [
    // Qwen2.5, Qwen3, SDAR, LLaDA2 and others that follow Hermes.
    ToolFormat { sign: "<tool_call>", open: "<tool_call>", close: "</tool_call>", arguments: "arguments" },
    // Nemotron: a list of calls.
    ToolFormat { sign: "<TOOLCALL>", open: "<TOOLCALL>", close: "</TOOLCALL>", arguments: "arguments" },
    // Llama 3.
    ToolFormat { sign: "\"parameters\":", open: "", close: "", arguments: "parameters" },
];

impl ToolFormat {
    /// Returns the form of a template's calls; none if the template writes no tools.
    pub fn of(template: &ChatTemplate) -> Option<&'static Self> {
        let source = template.source().filter(|_| template.reads("tools"))?;
        FORMATS.iter().find(|format| source.contains(format.sign))
    }

    /// Returns the options of an answer that is one call of one of these tools.
    pub fn one_of(&self, tools: &[Value]) -> Options {
        let list = self.open == "<TOOLCALL>";
        let root = if list { "#/items/anyOf" } else { "#/anyOf" };
        let calls = tools.iter().enumerate().map(|(index, tool)| {
            let function = &tool["function"];
            let mut parameters = function.get("parameters").cloned().unwrap_or_else(|| json!({"type": "object"}));
            let place = format!("{root}/{index}/properties/{}", self.arguments);
            move_references(&mut parameters, &place);
            let mut properties = Map::new();
            properties.insert("name".to_owned(), json!({"const": function["name"]}));
            properties.insert(self.arguments.to_owned(), parameters);
            json!({"type": "object", "properties": properties, "required": ["name", self.arguments]})
        });
        let call = json!({"anyOf": calls.collect::<Vec<_>>()});
        let schema = if list { json!({"type": "array", "items": call, "minItems": 1, "maxItems": 1}) } else { call };
        let around = |text: String| Some(text).filter(|text| !text.is_empty());
        // Models of Hermes' form have a line for each mark.
        let line = if self.open == "<tool_call>" { "\n" } else { "" };
        Options {
            json_schema: schema.to_string().parse().ok(),
            constraint_before: around(format!("{}{line}", self.open)),
            constraint_behind: around(format!("{line}{}", self.close)),
            ..Options::default()
        }
    }

    /// Reads the calls between two marks: an object, or a list of objects.
    fn calls(&self, text: &str) -> Option<Vec<ToolCall>> {
        let value: Value = serde_json::from_str(text.trim()).ok()?;
        let call = |value: &Value| {
            let name = value.get("name")?.as_str()?.to_owned();
            let arguments = value.get(self.arguments).cloned().unwrap_or_else(|| Value::Object(Map::new()));
            let arguments = match arguments {
                Value::String(text) => text,
                object @ Value::Object(_) => object.to_string(),
                _ => return None,
            };
            Some(ToolCall { name, arguments })
        };
        match &value {
            Value::Array(calls) if !calls.is_empty() => calls.iter().map(call).collect(),
            value => call(value).map(|call| vec![call]),
        }
    }
}

/// Makes the references of a schema those of a schema that it has become a part of.
fn move_references(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(map) => {
            for (name, value) in map {
                match value {
                    Value::String(target) if name == "$ref" => {
                        if let Some(rest) = target.strip_prefix('#') {
                            *target = format!("{place}{rest}");
                        }
                    }
                    value => move_references(value, place),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| move_references(item, place)),
        _ => {}
    }
}

/// A call of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Name of the function.
    pub name: String,
    /// Its arguments, as JSON.
    pub arguments: String,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerPart {
    /// A piece of a thought.
    Reasoning(String),
    /// A piece of text.
    Content(String),
    /// A whole call.
    Call(ToolCall),
}

/// Reader of an answer that grows.
#[derive(Debug, Clone)]
pub struct AnswerReader {
    format: Option<&'static ToolFormat>,
    place: Place,
    /// Text that may still become another part.
    held: String,
}

/// Place that a reader has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing was read that tells whether the answer begins with a thought.
    Start,
    /// Before any letter of a thought.
    Opening,
    Thought,
    /// Before any letter that follows a thought or a call.
    Gap,
    Content,
    Call,
}

impl AnswerReader {
    /// Returns the reader of answers to a conversation: with tools, calls are parts. None if the template has neither thoughts
    /// nor calls.
    ///
    /// # Errors
    /// If the template gives the conversation no prompt.
    pub fn new(info: &ModelInfo, conversation: &Conversation) -> Result<Option<Self>, Error> {
        let template = info.template();
        let format = ToolFormat::of(template).filter(|_| !conversation.tools.is_empty());
        let thinks = template.source().is_some_and(|source| source.contains(THOUGHT[1]));
        if !thinks {
            return Ok(format.map(|_| Self { format, place: Place::Content, held: String::new() }));
        }
        // A template may open the thought itself.
        let opened = info.words_of(conversation)?.trim_end().ends_with(THOUGHT[0]);
        let place = if opened { Place::Opening } else { Place::Start };
        Ok(Some(Self { format, place, held: String::new() }))
    }

    /// Returns the reader of an answer that is one call, without a thought before it.
    pub fn of_call(format: &'static ToolFormat) -> Self {
        Self { format: Some(format), place: Place::Content, held: String::new() }
    }

    /// Takes more of the answer, and returns the parts that are certain.
    pub fn feed(&mut self, text: &str) -> Vec<AnswerPart> {
        self.held.push_str(text);
        let mut parts = Vec::new();
        while self.step(&mut parts) {}
        parts
    }

    /// Returns the rest of an answer that is over.
    pub fn end(&mut self) -> Vec<AnswerPart> {
        let held = std::mem::take(&mut self.held);
        match (self.place, self.format) {
            (Place::Thought, _) => reasoning(held),
            // An answer may end without the mark.
            (Place::Call, Some(format)) => match format.calls(&held) {
                Some(calls) => calls.into_iter().map(AnswerPart::Call).collect(),
                None => content(format!("{}{held}", format.open)),
            },
            (Place::Gap, _) => content(held.trim_start().to_owned()),
            _ => content(held),
        }
    }

    /// Takes a step, if the held text allows one.
    fn step(&mut self, parts: &mut Vec<AnswerPart>) -> bool {
        match self.place {
            Place::Start => {
                let begins = self.held.trim_start();
                if let Some(rest) = begins.strip_prefix(THOUGHT[0]) {
                    (self.held, self.place) = (rest.to_owned(), Place::Opening);
                    return true;
                }
                if THOUGHT[0].starts_with(begins) {
                    return false;
                }
                self.place = Place::Content;
                true
            }
            Place::Opening => {
                let begins = self.held.len() - self.held.trim_start_matches('\n').len();
                self.held.drain(..begins);
                if !self.held.is_empty() {
                    self.place = Place::Thought;
                }
                !self.held.is_empty()
            }
            Place::Thought => {
                let Some(end) = self.held.find(THOUGHT[1]) else {
                    parts.extend(reasoning(self.certain(THOUGHT[1])));
                    return false;
                };
                parts.extend(reasoning(self.held[..end].trim_end_matches('\n').to_owned()));
                self.held.drain(..end + THOUGHT[1].len());
                self.place = Place::Gap;
                true
            }
            Place::Gap => {
                let begins = self.held.len() - self.held.trim_start().len();
                self.held.drain(..begins);
                if !self.held.is_empty() {
                    self.place = Place::Content;
                }
                !self.held.is_empty()
            }
            Place::Content => self.step_content(parts),
            Place::Call => self.step_call(parts),
        }
    }

    fn step_content(&mut self, parts: &mut Vec<AnswerPart>) -> bool {
        let Some(format) = self.format else {
            parts.extend(content(std::mem::take(&mut self.held)));
            return false;
        };
        if format.open.is_empty() {
            match self.held.trim_start().chars().next() {
                None => return false,
                Some('{') => self.place = Place::Call,
                Some(_) => self.format = None,
            }
            return true;
        }
        let Some(start) = self.held.find(format.open) else {
            parts.extend(content(self.certain(format.open)));
            return false;
        };
        parts.extend(content(self.held[..start].trim_end().to_owned()));
        self.held.drain(..start + format.open.len());
        self.place = Place::Call;
        true
    }

    fn step_call(&mut self, parts: &mut Vec<AnswerPart>) -> bool {
        let Some(format) = self.format.filter(|format| !format.close.is_empty()) else { return false };
        let Some(end) = self.held.find(format.close) else { return false };
        match format.calls(&self.held[..end]) {
            Some(calls) => parts.extend(calls.into_iter().map(AnswerPart::Call)),
            None => parts.extend(content(format!("{}{}{}", format.open, &self.held[..end], format.close))),
        }
        self.held.drain(..end + format.close.len());
        self.place = Place::Gap;
        true
    }

    /// Takes the held text but for an end that may be the beginning of a mark, and the space before one.
    fn certain(&mut self, mark: &str) -> String {
        let starts = (1..mark.len()).rev().find(|&length| self.held.ends_with(&mark[..length])).unwrap_or(0);
        let certain = self.held[..self.held.len() - starts].trim_end().len();
        self.held.drain(..certain).collect()
    }
}

fn content(text: String) -> Vec<AnswerPart> {
    if text.is_empty() { Vec::new() } else { vec![AnswerPart::Content(text)] }
}

fn reasoning(text: String) -> Vec<AnswerPart> {
    if text.is_empty() { Vec::new() } else { vec![AnswerPart::Reasoning(text)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(format: Option<usize>, thinks: bool) -> AnswerReader {
        let place = if thinks { Place::Start } else { Place::Content };
        AnswerReader { format: format.map(|index| &FORMATS[index]), place, held: String::new() }
    }

    /// Parts of an answer that comes at once, and in pieces of each length: pieces of one part are joined.
    fn parts(reader: &AnswerReader, text: &str) -> Vec<AnswerPart> {
        let read = |length: usize| {
            let (mut reader, mut joined) = (reader.clone(), Vec::new());
            let letters: Vec<char> = text.chars().collect();
            let pieces = letters.chunks(length).map(|piece| piece.iter().collect::<String>());
            let mut all: Vec<AnswerPart> = pieces.flat_map(|piece| reader.feed(&piece)).collect();
            all.extend(reader.end());
            for part in all {
                match (joined.last_mut(), part) {
                    (Some(AnswerPart::Content(before)), AnswerPart::Content(more))
                    | (Some(AnswerPart::Reasoning(before)), AnswerPart::Reasoning(more)) => before.push_str(&more),
                    (_, part) => joined.push(part),
                }
            }
            joined
        };
        let whole = read(text.len().max(1));
        for length in 1..12 {
            assert_eq!(read(length), whole, "in pieces of {length}");
        }
        whole
    }

    fn call(name: &str, arguments: &str) -> AnswerPart {
        AnswerPart::Call(ToolCall { name: name.to_owned(), arguments: arguments.to_owned() })
    }

    #[test]
    fn calls_are_parts_in_whatever_pieces_they_come() {
        let hermes = reader(Some(0), false);
        let one = "Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
        assert_eq!(parts(&hermes, one), [AnswerPart::Content("Let me see.".into()), call("add", r#"{"a":1}"#)]);
        let two = "<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"b\"}</tool_call>\nDone.";
        assert_eq!(parts(&hermes, two), [call("a", "{}"), call("b", "{}"), AnswerPart::Content("Done.".into())]);
        let nemotron = reader(Some(1), false);
        let list =
            r#"<TOOLCALL>[{"name": "a", "arguments": {"x": [1, 2]}}, {"name": "b", "arguments": "{}"}]</TOOLCALL>"#;
        assert_eq!(parts(&nemotron, list), [call("a", r#"{"x":[1,2]}"#), call("b", "{}")]);
        let llama = reader(Some(2), false);
        assert_eq!(parts(&llama, r#" {"name": "a", "parameters": {"x": 1}}"#), [call("a", r#"{"x":1}"#)]);
    }

    #[test]
    fn what_is_no_call_is_text() {
        let hermes = reader(Some(0), false);
        for text in
            ["1 < 2 and <tool is no mark", "<tool_call>{\"name\": 1}</tool_call>", "<tool_call>{\"name", "a <tool_cal"]
        {
            assert_eq!(parts(&hermes, text), [AnswerPart::Content(text.into())], "{text}");
        }
        let llama = reader(Some(2), false);
        for text in [r#"{"answer": 7}"#, "The answer is {7}."] {
            assert_eq!(parts(&llama, text), [AnswerPart::Content(text.into())], "{text}");
        }
        assert_eq!(parts(&reader(None, false), "a <tool_call>"), [AnswerPart::Content("a <tool_call>".into())]);
        // A call that ends without its mark is one.
        assert_eq!(parts(&hermes, "<tool_call>{\"name\": \"a\"}"), [call("a", "{}")]);
    }

    #[test]
    fn thoughts_end_at_their_mark() {
        let thinking = reader(Some(0), true);
        let text = "<think>\nThree\n\nand four.\n</think>\n\nSeven.";
        let expected = [AnswerPart::Reasoning("Three\n\nand four.".into()), AnswerPart::Content("Seven.".into())];
        assert_eq!(parts(&thinking, text), expected);
        assert_eq!(parts(&thinking, "Seven."), [AnswerPart::Content("Seven.".into())]);
        assert_eq!(parts(&thinking, "<think>\nThree"), [AnswerPart::Reasoning("Three".into())]);
        assert_eq!(parts(&thinking, "<thin air>"), [AnswerPart::Content("<thin air>".into())]);
    }
}
