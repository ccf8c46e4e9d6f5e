//! Chat templates: the checkpoint's own Jinja, run with a budget, or what the released models of the family use.

use std::{
    sync::Arc,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use minijinja::{Environment, Error, ErrorKind, Value as Jinja, context, syntax::SyntaxConfig, value::Kwargs};
use serde::Serialize;
use serde_json::Value;

use crate::{CheckpointError, Family, ModelFiles, Tokenizer, config::Fields, error::one_line, guard::guarded};

/// Instructions that any template may take, and those for each message beyond: twenty times what the longest
/// released templates need. Bounds time, and how deep values can be nested.
const FUEL: u64 = 200_000;
const FUEL_PER_MESSAGE: u64 = 4_000;
/// Instructions that a rendering may take on the caller's own thread: as many as most conversations need, and too few for
/// values that are nested too deeply for any stack.
const SHORT_FUEL: u64 = 500;

/// Stack of the thread that renders what takes longer: room to drop the deepest value that the fuel can build.
const STACK: usize = 256 << 20;

/// Longest prompt that a template may make, in bytes.
const LONGEST: usize = 64 << 20;

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A turn.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// How a conversation is rendered.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Whether the prompt ends with the start of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Whether the model thinks first, for templates that ask; nothing leaves it to the template.
    pub enable_thinking: Option<bool>,
    /// What time it is for templates that write the date.
    pub now: SystemTime,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { add_generation_prompt: true, enable_thinking: None, now: SystemTime::now() }
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
    /// That of the released models of the family.
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

    /// Whether the checkpoint has none and its family's is used.
    pub fn is_fallback(&self) -> bool {
        matches!(self.kind, Kind::Family)
    }

    /// The error of a template that does not parse.
    pub fn broken(&self) -> Option<String> {
        let Kind::Own { source, file } = &self.kind else { return None };
        let parse = || {
            let mut environment = environment(FUEL, UNIX_EPOCH);
            environment.add_template("chat", source).map_err(|error| failed(file, &error).to_string())
        };
        guarded(parse)
            .unwrap_or_else(|| Err(format!("{file}: the chat template makes the template library fail")))
            .err()
    }

    /// The prompt of a conversation.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, CheckpointError> {
        let Kind::Own { source, file } = &self.kind else {
            return Ok((self.family.prompt)(messages, options));
        };
        let broken = |detail: &str| CheckpointError::Template { file: file.clone(), detail: detail.to_owned() };
        let run = |fuel| {
            let rendered = guarded(|| self.run(source, messages, options, fuel));
            rendered.ok_or_else(|| broken("makes the template library fail"))
        };
        let told =
            |rendered: Result<String, Error>| rendered.map_err(|error| failed(file, &error)).and_then(checked(file));
        match run(SHORT_FUEL)? {
            Err(error) if error.kind() == ErrorKind::OutOfFuel => {}
            rendered => return told(rendered),
        }
        let fuel = FUEL.saturating_add((messages.len() as u64).saturating_mul(FUEL_PER_MESSAGE));
        thread::scope(|scope| {
            let worker = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || run(fuel).and_then(told));
            let worker = worker.map_err(|cause| CheckpointError::Thread { work: "the chat template", cause })?;
            worker.join().unwrap_or_else(|_| Err(broken("makes the template library fail")))
        })
    }

    /// Renders with so many instructions.
    fn run(&self, source: &str, messages: &[Message], options: &RenderOptions, fuel: u64) -> Result<String, Error> {
        let mut environment = environment(fuel, options.now);
        environment.add_template("chat", source)?;
        for (part, text) in &self.tokens {
            environment.add_global(*part, text.as_str());
        }
        if let Some(thinking) = options.enable_thinking {
            environment.add_global("enable_thinking", thinking);
        }
        let context = context! {
            messages => messages.iter().map(|message| {
                Jinja::from_pairs([("role", message.role.as_str()), ("content", message.content.as_str())])
            }).collect::<Vec<_>>(),
            add_generation_prompt => options.add_generation_prompt,
            tools => Jinja::from(()),
            documents => Jinja::from(()),
        };
        environment.get_template("chat")?.render(context)
    }
}

/// Refuses prompts that are longer than any model's.
fn checked(file: &str) -> impl Fn(String) -> Result<String, CheckpointError> {
    move |prompt| {
        if prompt.len() <= LONGEST {
            return Ok(prompt);
        }
        let detail = format!("makes a prompt of {} bytes, expected at most {LONGEST}", prompt.len());
        Err(CheckpointError::Template { file: file.to_owned(), detail })
    }
}

/// What transformers gives its templates: the whitespace rules, Python's methods, and four functions.
fn environment(fuel: u64, now: SystemTime) -> Environment<'static> {
    let mut environment = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(fuel));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", move |format: String| date(&format, now));
    environment.add_filter("tojson", |value: &Jinja, options: Kwargs| to_json(value, &options));
    environment
}

/// The error of a template, with its line.
fn failed(file: &str, error: &Error) -> CheckpointError {
    let line = error.line().map(|line| format!(" in line {line}")).unwrap_or_default();
    let what = match error.kind() {
        ErrorKind::OutOfFuel => "runs for ever".to_owned(),
        ErrorKind::SyntaxError => format!("does not parse: {}", one_line(error.detail().unwrap_or("syntax error"))),
        kind => format!("fails: {}", error.detail().map_or_else(|| kind.to_string(), one_line)),
    };
    CheckpointError::Template { file: file.to_owned(), detail: format!("{what}{line}") }
}

/// JSON as Python writes it: a space behind commas and colons, nothing escaped for HTML.
fn to_json(value: &Jinja, options: &Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    for ignored in ["ensure_ascii", "sort_keys", "separators"] {
        let _: Option<Jinja> = options.get(ignored)?;
    }
    options.assert_all_used()?;
    let value = serde_json::to_value(value)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("tojson: {error}")))?;
    let mut text = String::new();
    write_json(&value, indent.map(|width| width.min(16)), 0, &mut text);
    Ok(text)
}

fn write_json(value: &Value, indent: Option<usize>, depth: usize, text: &mut String) {
    let line = |depth: usize, text: &mut String| {
        if let Some(width) = indent {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', width * depth));
        }
    };
    let comma = if indent.is_some() { "," } else { ", " };
    match value {
        Value::Array(items) if !items.is_empty() => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index > 0 { comma } else { "" });
                line(depth + 1, text);
                write_json(item, indent, depth + 1, text);
            }
            line(depth, text);
            text.push(']');
        }
        Value::Object(items) if !items.is_empty() => {
            text.push('{');
            for (index, (key, item)) in items.iter().enumerate() {
                text.push_str(if index > 0 { comma } else { "" });
                line(depth + 1, text);
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push_str(": ");
                write_json(item, indent, depth + 1, text);
            }
            line(depth, text);
            text.push('}');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

/// The date in the format that templates ask for, in UTC; specifiers that none uses stay as they are.
fn date(format: &str, now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let name = MONTHS[month - 1];
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let part = match characters.next() {
            Some('Y') => year.to_string(),
            Some('m') => format!("{month:02}"),
            Some('d') => format!("{day:02}"),
            Some('B') => name.to_owned(),
            Some('b') => name[..3].to_owned(),
            Some('H') => format!("{hour:02}"),
            Some('M') => format!("{minute:02}"),
            Some('S') => format!("{second:02}"),
            Some('%') | None => "%".to_owned(),
            Some(other) => format!("%{other}"),
        };
        text.push_str(&part);
    }
    text
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Year, month and day of a number of days since 1970.
fn civil(mut days: u64) -> (u64, usize, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // A clock that is off by millennia must not cost time.
    days = days.min(4_000_000);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        assert_eq!(date("%d %b %Y", at(0)), "01 Jan 1970");
        assert_eq!(date("%d %B %Y %H:%M:%S", at(951_827_696)), "29 February 2000 12:34:56");
        assert_eq!(date("%Y-%m-%d 100%% %q %", at(1_735_689_599)), "2024-12-31 100% %q %");
    }

    #[test]
    fn json_is_written_as_python_does() {
        let value = serde_json::json!({"a": [1, "<é>"], "b": {}, "c": null});
        let mut text = String::new();
        write_json(&value, None, 0, &mut text);
        assert_eq!(text, r#"{"a": [1, "<é>"], "b": {}, "c": null}"#);
        text.clear();
        write_json(&value, Some(2), 0, &mut text);
        assert_eq!(text, "{\n  \"a\": [\n    1,\n    \"<é>\"\n  ],\n  \"b\": {},\n  \"c\": null\n}");
    }
}
