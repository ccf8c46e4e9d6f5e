//! The engine of templates: minijinja as `transformers` sets Jinja2 up, with a budget and a stack of its own.

use std::{
    cell::RefCell,
    error::Error as _,
    fmt, io,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, SystemTime},
};

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, Value,
    syntax::SyntaxConfig,
    value::{Kwargs, ValueKind},
};

use super::{LONGEST_TEMPLATE, budget::afford, clock, json, methods};
use crate::guard::guarded;

/// Most signs of the two operators whose chains take time or stack in proportion to more than their length.
const MOST_TILDES: usize = 4096;
const MOST_HYPHENS: usize = 64 << 10;
/// Room for the deepest tree of the longest source and for the deepest value of the largest budget, and a smaller one
/// for a process whose memory is limited.
const ROOMS: [Room; 2] = [Room { stack: 64 << 20, share: 1 }, Room { stack: 2 << 20, share: 32 }];

/// Reason why a template gave no text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TemplateErrorKind {
    /// The source is no template.
    Syntax(String),
    /// The budget is spent, or the source is longer than its bound.
    Limit(String),
    /// Something in it cannot be done.
    Failed(String),
    /// It refuses the conversation in words of its own.
    Raised(String),
}

/// A [`Trouble`] and the line of the source that it is in, if that is known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TemplateError {
    pub(crate) kind: TemplateErrorKind,
    pub(crate) line: Option<usize>,
}

impl TemplateError {
    fn new(trouble: TemplateErrorKind) -> Self {
        Self { kind: trouble, line: None }
    }

    fn of(error: &Error) -> Self {
        let mut cause = error.source();
        while let Some(inner) = cause {
            if let Some(Raised(words)) = inner.downcast_ref() {
                return Self { kind: TemplateErrorKind::Raised(words.clone()), line: error.line() };
            }
            cause = inner.source();
        }
        let words = || error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        let trouble = match error.kind() {
            ErrorKind::OutOfFuel => TemplateErrorKind::Limit("runs for ever or takes too much memory".to_owned()),
            ErrorKind::SyntaxError => TemplateErrorKind::Syntax(words()),
            _ => TemplateErrorKind::Failed(words()),
        };
        Self { kind: trouble, line: error.line() }
    }
}

/// The words that a template refuses a conversation with.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// Stack of the thread that templates run on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    stack: usize,
    /// Divisor of a template's most signs and most steps: 1 in the largest room.
    pub(super) share: usize,
}

impl Room {
    fn thread(self) -> thread::Builder {
        thread::Builder::new().name("demask-template".to_owned()).stack_size(self.stack)
    }
}

/// Returns what starts in the first room that there is memory for.
fn start<T>(start: impl Fn(Room) -> io::Result<T>) -> Result<T, TemplateError> {
    let [large, small] = ROOMS;
    let started = start(large).or_else(|_| start(small));
    started.map_err(|error| TemplateError::new(TemplateErrorKind::Limit(format!("gets no thread: {error}"))))
}

/// Runs work that renders templates on a stack with room for any of them. A thread of its own would take as long as the
/// rendering, or longer.
pub(super) fn on_own_stack<T>(work: impl Fn(Room) -> T) -> Result<T, TemplateError> {
    // Where there is no memory for a stack, the attempt panics before the work begins.
    let run = |room: Room| guarded(|| stacker::grow(room.stack, || guarded(|| work(room))));
    let done = ROOMS.into_iter().find_map(run);
    let lost = |words: &str| TemplateError::new(TemplateErrorKind::Limit(words.to_owned()));
    done.ok_or_else(|| lost("gets no stack"))?.ok_or_else(|| lost("makes the template library fail"))
}

/// The same, but for work that is given up after a time. No thread can be ended from outside: this one goes on until its
/// work is done, or the process is.
pub(super) fn within<T: Send + 'static>(
    patience: Duration,
    work: impl Fn(Room) -> T + Send + Sync + 'static,
) -> Result<T, TemplateError> {
    let lost = |words: String| TemplateError::new(TemplateErrorKind::Limit(words));
    let (sender, receiver) = mpsc::sync_channel(1);
    let work = Arc::new(work);
    start(|room| {
        let (work, sender) = (work.clone(), sender.clone());
        room.thread().spawn(move || sender.send(guarded(|| work(room))))
    })?;
    drop(sender);
    match receiver.recv_timeout(patience) {
        Ok(Some(done)) => Ok(done),
        Err(RecvTimeoutError::Timeout) => {
            Err(lost(format!("runs for more than {} s with a short conversation", patience.as_secs())))
        }
        Ok(None) | Err(RecvTimeoutError::Disconnected) => Err(lost("makes the template library fail".to_owned())),
    }
}

/// What Jinja2's reader and `transformers` make of a source before it is parsed: lines end in one way, and the marks of what
/// a model generates, which change no text, are conditions that always hold.
pub(super) fn prepared(source: &str, room: Room) -> Result<String, TemplateError> {
    let (most_tildes, most_hyphens) = (MOST_TILDES / room.share, MOST_HYPHENS / room.share);
    let beyond = |what: &str, found: usize, most: usize| {
        let words = format!("has {found} {what}, expected at most {most}");
        Err(TemplateError::new(TemplateErrorKind::Limit(words)))
    };
    let (tildes, hyphens) = (source.matches('~').count(), source.matches('-').count());
    match source.len() {
        bytes if bytes > LONGEST_TEMPLATE => return beyond("bytes", bytes, LONGEST_TEMPLATE),
        _ if tildes > most_tildes => return beyond("signs ~", tildes, most_tildes),
        _ if hyphens > most_hyphens => return beyond("signs -", hyphens, most_hyphens),
        _ => {}
    }
    let mut prepared = source.replace("\r\n", "\n").replace('\r', "\n");
    // Jinja2 keeps the line break after this tag alone, and the engine takes one from it.
    prepared = prepared.replace("raw %}\n", "raw %}\n\n").replace("endraw %}\n\n", "endraw %}\n");
    for (tag, condition) in [("generation", "if true"), ("endgeneration", "endif")] {
        for open in ["{% ", "{%- ", "{%", "{%-"] {
            for close in [" %}", " -%}", "%}", "-%}"] {
                let (from, to) = (format!("{open}{tag}{close}"), format!("{open} {condition} {close}"));
                if prepared.contains(&from) {
                    prepared = prepared.replace(&from, &to);
                }
            }
        }
    }
    Ok(prepared)
}

/// Checks that a prepared source is a template.
pub(super) fn parse(source: &str) -> Result<(), TemplateError> {
    let environment = environment();
    environment.template_from_str(source).map(|_| ()).map_err(|error| TemplateError::of(&error))
}

/// Renders a prepared source.
pub(super) fn render(source: &str, inputs: &Value, steps: u64, now: SystemTime) -> Result<String, TemplateError> {
    let text = CACHE.with_borrow_mut(|kept| {
        let known = kept.iter().position(|(known, _)| known == source).map(|index| kept.remove(index));
        let (source, mut environment) = match known {
            Some(known) => known,
            None => (source.to_owned(), parsed(source.to_owned())?),
        };
        environment.set_fuel(Some(steps));
        environment.add_function("strftime_now", move |format: &str| clock::date(format, now));
        let text = environment.get_template(TEMPLATE).and_then(|template| template.render(inputs.clone()));
        kept.push((source, environment));
        if kept.len() > MOST_CACHED {
            kept.remove(0);
        }
        text
    });
    text.map_err(|error| TemplateError::of(&error))
}

/// Name of the one template of an environment.
const TEMPLATE: &str = "chat";
/// Parsed templates that a thread keeps.
const MOST_CACHED: usize = 4;

thread_local! {
    /// Templates that this thread has rendered, the latest last: to parse one takes longer than to render it.
    static CACHE: RefCell<Vec<(String, Environment<'static>)>> = const { RefCell::new(Vec::new()) };
}

/// A template, parsed, in an environment of its own.
fn parsed(source: String) -> Result<Environment<'static>, Error> {
    let mut environment = environment();
    environment.add_template_owned(TEMPLATE, source)?;
    Ok(environment)
}

/// Jinja2 as `transformers` sets it up, but for the time.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(write);
    environment.set_unknown_method_callback(methods::call);
    environment.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        let words: String = message.to_string().chars().take(1000).collect();
        Err(Error::new(ErrorKind::InvalidOperation, "raised").with_source(Raised(words)))
    });
    environment.add_filter("tojson", json::to_json);
    environment.add_filter("string", |state: &State, value: Value| {
        afford(state, &value, 0)?;
        Ok::<_, Error>(if value.kind() == ValueKind::String { value } else { Value::from(value.to_string()) })
    });
    for name in ["e", "escape", "forceescape"] {
        environment.add_filter(name, escaped);
    }
    environment.add_filter("default", otherwise);
    environment.add_filter("d", otherwise);
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    environment
}

/// Writes a value that is printed, once its whole text is paid for: lists can share their parts, and a text of them be far
/// longer than they are.
fn write(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    afford(state, value, 0)?;
    write!(out, "{value}").map_err(Error::from)
}

/// A text with its signs written for HTML, as `markupsafe` writes them.
fn escaped(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    afford(state, value, 0)?;
    let mut text = String::new();
    for character in value.to_string().chars() {
        match character {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&#34;"),
            '\'' => text.push_str("&#39;"),
            other => text.push(other),
        }
    }
    Ok(text)
}

/// A value, or another one if it is not defined or, where that is asked for, not true.
#[expect(clippy::needless_pass_by_value, reason = "the engine hands named arguments over")]
fn otherwise(value: Value, first: Option<Value>, second: Option<bool>, named: Kwargs) -> Result<Value, Error> {
    let instead = match first {
        Some(instead) => Some(instead),
        None => named.get("default_value")?,
    };
    let falsy = match second {
        Some(falsy) => falsy,
        None => named.get::<Option<bool>>("boolean")?.unwrap_or(false),
    };
    named.assert_all_used()?;
    let keeps = !value.is_undefined() && (!falsy || value.is_true());
    Ok(if keeps { value } else { instead.unwrap_or_else(|| Value::from("")) })
}
