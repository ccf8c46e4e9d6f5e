//! Chat templates: the checkpoint's own Jinja, run with a budget, or the one of the family's released models.

mod apart;
mod budget;
mod clock;
mod engine;
mod json;
mod methods;
#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use apart::Words;
use engine::{Room, TemplateError, TemplateErrorKind};
use minijinja::Value as Input;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{CheckpointError, Family, ModelFiles, Tokenizer, error::one_line, fields::Fields, said::Rendered};

/// Longest template, in bytes.
pub(crate) const LONGEST_TEMPLATE: usize = 256 << 10;

/// Steps that any template may take, and those for each message beyond: 20 times the need of the longest released
/// templates. A step is an instruction, or 64 bytes that are made or read, so steps bound the memory, too.
const STEPS: u64 = 200_000;
const STEPS_PER_MESSAGE: u64 = 4_000;
/// Number of times that a template may make or read the whole conversation beside that.
const PASSES: u64 = 16;
/// Most steps of a rendering: a value nested by this many fits the stack of the template's thread.
const MOST_STEPS: u64 = 1_500_000;

/// Time for the short conversations of the load: 1,000 times the need of the longest released templates. It ends work
/// that takes time without steps, such as a list that is added to itself again and again.
const PATIENCE: Duration = Duration::from_secs(5);

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// The text.
    pub content: String,
    /// What else the message has, for templates that read it: `reasoning_content`, `name` and others.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl Message {
    /// A turn.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), fields: Map::new() }
    }

    /// The same turn with another field.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.fields.insert(name.into(), value.into());
        self
    }

    /// Bytes of all of it, as JSON has them beside role and content.
    fn length(&self) -> usize {
        let fields = self.fields.iter().map(|(name, value)| name.len() + value.to_string().len());
        self.role.len() + self.content.len() + fields.sum::<usize>()
    }
}

/// Names that every template sees, which no other variable has.
const RESERVED: [&str; 4] = ["messages", "add_generation_prompt", "tools", "documents"];

/// Options of the rendering of a conversation.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Sets whether the prompt ends with the start of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Sets whether the model thinks first, for templates that ask; nothing leaves it to the template.
    pub enable_thinking: Option<bool>,
    /// Functions that the model may call, each as an object of JSON in OpenAI's form.
    pub tools: Vec<Value>,
    /// Other variables, for templates that read them.
    pub variables: Map<String, Value>,
    /// Time for templates that write the date.
    pub now: SystemTime,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self {
            add_generation_prompt: true,
            enable_thinking: None,
            tools: Vec::new(),
            variables: Map::new(),
            now: SystemTime::now(),
        }
    }
}

/// A chat template, ready to render.
#[derive(Clone)]
pub struct ChatTemplate {
    kind: Kind,
    family: &'static Family,
    /// Texts of the special tokens, by their part.
    tokens: Vec<(&'static str, String)>,
}

#[derive(Clone)]
enum Kind {
    /// The checkpoint's own: its source, and the file that it is from.
    Own { source: Arc<str>, file: String },
    /// The template of the family's released models.
    Family,
}

impl ChatTemplate {
    /// The template of a checkpoint, or its family's if it has none.
    pub fn open(
        files: &ModelFiles,
        family: &'static Family,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Self, CheckpointError> {
        let kind = match find(files)? {
            Some((source, file)) => Kind::Own { source: source.into(), file },
            None => Kind::Family,
        };
        let tokens = tokenizer.into_iter().flat_map(Tokenizer::named_texts);
        Ok(Self { kind, family, tokens: tokens.map(|(part, text)| (part, text.to_owned())).collect() })
    }

    /// Returns the template's source; none for a family's own, which is no text.
    pub fn source(&self) -> Option<&str> {
        match &self.kind {
            Kind::Own { source, .. } => Some(source),
            Kind::Family => None,
        }
    }

    /// A template from its source; `file` is its name for messages.
    pub fn from_source(source: &str, file: &str, family: &'static Family, tokens: &[(&'static str, &str)]) -> Self {
        let tokens = tokens.iter().map(|(part, text)| (*part, (*text).to_owned())).collect();
        Self { kind: Kind::Own { source: source.into(), file: file.to_owned() }, family, tokens }
    }

    /// The template of a family's released models.
    pub fn of_family(family: &'static Family) -> Self {
        Self { kind: Kind::Family, family, tokens: Vec::new() }
    }

    /// Reports whether it may read a field of a message: a checkpoint's own, whose source has the name as a word.
    pub fn reads(&self, field: &str) -> bool {
        let part_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        match &self.kind {
            Kind::Own { source, .. } => {
                !field.is_empty() && source.split(|letter| !part_of_name(letter)).any(|word| word == field)
            }
            // Qwen3's template, which the family's form follows.
            Kind::Family => field == "reasoning_content",
        }
    }

    /// Reports whether the template may read a variable beside the messages.
    pub fn takes_variable(&self, name: &str) -> bool {
        match self.kind {
            Kind::Own { .. } => !RESERVED.contains(&name) && self.reads(name),
            Kind::Family => name == "enable_thinking",
        }
    }

    /// Reports whether the checkpoint has none and its family's is used.
    pub fn is_fallback(&self) -> bool {
        matches!(self.kind, Kind::Family)
    }

    /// Renders two short conversations, so that a template that would take a request's time or memory ends the load
    /// instead. Returns the error of a template that does not parse: a prompt that is given raw needs none. A
    /// template's refusal of a conversation, for example of its system message, is left to those who send one.
    pub fn probe(&self) -> Result<Option<String>, CheckpointError> {
        let Kind::Own { source, file } = &self.kind else { return Ok(None) };
        let (own, source) = (self.clone(), source.clone());
        let found = engine::within(PATIENCE, move |room| own.tried(&source, room));
        let Err(error) = found.and_then(|found| found) else { return Ok(None) };
        let (file, beyond) = (file.clone(), matches!(error.kind, TemplateErrorKind::Limit(_)));
        let detail = detail(error);
        if beyond {
            return Err(CheckpointError::HostileTemplate { file, detail });
        }
        Ok(Some(CheckpointError::Template { file, detail }.to_string()))
    }

    /// Renders the two conversations; an error is one of the template's, not one of a conversation.
    fn tried(&self, source: &str, room: Room) -> Result<(), TemplateError> {
        let turn = |role: &str| Message::new(role, "Hi");
        let options = RenderOptions::default();
        let source = engine::prepared(source, room)?;
        engine::parse(&source)?;
        for messages in [&[turn("user")][..], &["system", "user", "assistant", "user"].map(turn)] {
            let inputs = self.inputs(messages, &options, &self.texts(), &as_they_are);
            match engine::render(&source, &inputs, steps(messages, room), options.now) {
                Err(error) if matches!(error.kind, TemplateErrorKind::Limit(_)) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The prompt of a conversation, as a text: nothing tells the template's marks from the same letters in a message.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, CheckpointError> {
        self.render_apart(messages, options, &[]).map(|prompt| prompt.text)
    }

    /// The prompt of a conversation, in which the words of messages can be told from the template's own wherever they
    /// spell one of the control tokens (see [`Tokenizer::controls`]).
    ///
    /// A checkpoint's own template is a foreign program: it ends after a number of steps, in proportion to the
    /// conversation, or is an error.
    pub fn render_apart(
        &self,
        messages: &[Message],
        options: &RenderOptions,
        controls: &[String],
    ) -> Result<Rendered, CheckpointError> {
        let Kind::Own { source, .. } = &self.kind else {
            return Ok((self.family.prompt)(messages, options));
        };
        let rendered = engine::on_own_stack(|room| {
            let source = engine::prepared(source, room)?;
            let run = |source: &str, texts: &[String], words: &Words<'_>| {
                engine::render(
                    source,
                    &self.inputs(messages, options, texts, words),
                    steps(messages, room),
                    options.now,
                )
            };
            let text = run(&source, &self.texts(), &as_they_are)?;
            Ok(apart::separated(text, &source, &self.texts(), messages, controls, &run))
        });
        rendered.and_then(|rendered| rendered).map_err(refused)?.ok_or(CheckpointError::NoFreeCharacter)
    }

    /// Texts of the special tokens.
    fn texts(&self) -> Vec<String> {
        self.tokens.iter().map(|(_, text)| text.clone()).collect()
    }

    /// All that a template sees: the conversation, with the words of people as `words` makes them, the texts of special
    /// tokens, and the options.
    fn inputs(&self, messages: &[Message], options: &RenderOptions, texts: &[String], words: &Words<'_>) -> Input {
        let message = |message: &Message| {
            let named = [("role", &message.role, true), ("content", &message.content, false)];
            let named = named.map(|(name, text, is_name)| (name.to_owned(), Input::from(words(text, is_name))));
            let fields = message.fields.iter().map(|(name, value)| (words(name, true), input(value, words)));
            Input::from_pairs(named.into_iter().chain(fields))
        };
        let mut all: Vec<(&str, Input)> = vec![
            ("messages", messages.iter().map(message).collect::<Input>()),
            ("add_generation_prompt", Input::from(options.add_generation_prompt)),
            ("documents", Input::from(())),
        ];
        let tools = options.tools.iter().map(|tool| input(tool, words)).collect::<Input>();
        all.push(("tools", if options.tools.is_empty() { Input::from(()) } else { tools }));
        let own = |name: &&String| !RESERVED.contains(&name.as_str());
        all.extend(
            options
                .variables
                .iter()
                .filter(|(name, _)| own(name))
                .map(|(name, value)| (name.as_str(), input(value, words))),
        );
        all.extend(options.enable_thinking.map(|thinking| ("enable_thinking", Input::from(thinking))));
        all.extend(self.tokens.iter().zip(texts).map(|((part, _), text)| (*part, Input::from(text.as_str()))));
        Input::from_pairs(all)
    }
}

/// Steps that a conversation may take.
fn steps(messages: &[Message], room: Room) -> u64 {
    let length: usize = messages.iter().map(Message::length).sum();
    let steps = STEPS + STEPS_PER_MESSAGE * messages.len() as u64 + PASSES * length as u64 / 64;
    steps.min(MOST_STEPS / room.share as u64)
}

/// People's words without marks.
fn as_they_are(words: &str, _is_name: bool) -> String {
    words.to_owned()
}

/// A value of JSON as templates see it: what Python's reader makes of it.
fn input(value: &Value, words: &Words<'_>) -> Input {
    match value {
        Value::Null => Input::from(()),
        Value::Bool(flag) => Input::from(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Input::from(whole),
            (None, Some(number)) => Input::from(number),
            (None, None) => Input::from(()),
        },
        Value::String(text) => Input::from(words(text, false)),
        Value::Array(items) => items.iter().map(|item| input(item, words)).collect(),
        Value::Object(map) => {
            Input::from_pairs(map.iter().map(|(name, value)| (words(name, true), input(value, words))))
        }
    }
}

/// The error of a conversation that a template gives no prompt for. The template's file is no business of those who sent it.
fn refused(error: TemplateError) -> CheckpointError {
    match error.kind {
        TemplateErrorKind::Raised(words) => CheckpointError::Refused { words: one_line(words) },
        _ => CheckpointError::Unrendered { detail: detail(error) },
    }
}

/// The mistake, with its line.
fn detail(error: TemplateError) -> String {
    let what = match error.kind {
        TemplateErrorKind::Syntax(what) => format!("does not parse: {}", one_line(what)),
        TemplateErrorKind::Limit(what) => what,
        TemplateErrorKind::Failed(what) | TemplateErrorKind::Raised(what) => format!("fails: {}", one_line(what)),
    };
    error.line.map_or(what.clone(), |line| format!("{what} in line {line}"))
}

/// Source and file of the checkpoint's template, in the order of transformers.
fn find(files: &ModelFiles) -> Result<Option<(String, String)>, CheckpointError> {
    const ALONE: &str = "chat_template.jinja";
    if let Some(text) = files.text(ALONE)? {
        let file = files.label(ALONE);
        let source = String::from_utf8(text)
            .map_err(|_| CheckpointError::Template { file: file.clone(), detail: "is not UTF-8".to_owned() })?;
        return Ok(Some((source, file)));
    }
    for name in ["chat_template.json", "tokenizer_config.json"] {
        let Some(text) = files.text(name)? else { continue };
        let file = files.label(name);
        if let Some(source) = in_json(&Fields::parse(&text, &file)?)? {
            return Ok(Some((source, file)));
        }
    }
    Ok(None)
}

/// A template as a text, or as a list of named ones, of which `default` goes first.
fn in_json(fields: &Fields<'_>) -> Result<Option<String>, CheckpointError> {
    const KEY: &str = "chat_template";
    let Some(value) = fields.get(KEY) else { return Ok(None) };
    let bad = || fields.bad(KEY, value, "a text, or a list of objects with name and template");
    let Value::Array(list) = value else { return value.as_str().map(|text| Some(text.to_owned())).ok_or_else(bad) };
    let default = list.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"));
    let entry = default.or(list.first()).ok_or_else(bad)?;
    entry.get("template").and_then(Value::as_str).map(|text| Some(text.to_owned())).ok_or_else(bad)
}
