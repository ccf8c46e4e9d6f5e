//! Jinja as chat templates use it, within a budget: of steps, so that every template ends, and of bytes that are held at
//! once, so that none takes the machine's memory.
//!
//! The idea: a template is a program from a stranger. Engines made for web pages bound its time but not its memory,
//! since a text doubles with each `a ~ a` and a list that holds itself twice prints as 2ⁿ items. Here every text, list and
//! map is made through one [`Meter`], which refuses before anything is allocated, and takes back what is dropped; nothing
//! nests deeper than [`DEEPEST`], so that no walk over a value or a tree can exhaust the stack.
//!
//! Meaning follows Jinja2 as `transformers` sets it up: `trim_blocks`, `lstrip_blocks`, `break` and `continue`, and Python's
//! methods of texts and dictionaries. Templates are one file: there is no `include`, `import` or `extends`.

mod arithmetic;
mod calls;
mod checks;
mod clock;
mod evaluate;
mod filters;
mod format;
mod functions;
mod given;
mod items;
mod letters;
mod lexer;
mod meter;
mod methods;
mod parser;
mod search;
#[cfg(test)]
mod tests;
mod tree;
mod value;
mod write;

use std::{rc::Rc, time::SystemTime};

use evaluate::Evaluator;
pub(crate) use meter::Budget;
use meter::Meter;
use value::Value;

use crate::said::{Marks, Rendered};

/// Longest source, in bytes.
const LONGEST_SOURCE: usize = 1 << 20;
/// Most levels of a tree, of a value, and of calls within calls.
const DEEPEST: usize = 100;

/// Reason why a template gave no text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Trouble {
    /// The source is no template.
    Syntax(String),
    /// The budget of steps is spent.
    Steps,
    /// The budget of bytes is held.
    Memory,
    /// Something in it cannot be done.
    Failed(String),
    /// It refuses the conversation in words of its own.
    Raised(String),
}

impl Trouble {
    fn failed<T>(what: impl Into<String>) -> Result<T, Self> {
        Err(Self::Failed(what.into()))
    }
}

/// A [`Trouble`] and the line of the source that it is in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Error {
    pub(crate) trouble: Trouble,
    pub(crate) line: usize,
}

/// Inputs that a template sees beside its own variables.
pub(crate) struct Inputs<'a> {
    /// Role and content of each message.
    pub(crate) messages: Vec<(&'a str, &'a str)>,
    /// What else each message has, in the order of the messages; those beyond have nothing.
    pub(crate) fields: Vec<&'a serde_json::Map<String, serde_json::Value>>,
    /// Texts by name.
    pub(crate) texts: Vec<(&'a str, &'a str)>,
    /// Flags by name.
    pub(crate) flags: Vec<(&'a str, bool)>,
    /// Time that `strftime_now` uses.
    pub(crate) now: SystemTime,
    /// Marks for the words of messages.
    pub(crate) marks: Marks,
}

/// The beginning of a text for a message.
fn brief(text: &str) -> String {
    text.chars().take(40).collect()
}

/// People's words as a value.
fn said(meter: &Rc<Meter>, text: &str) -> Result<Value, Trouble> {
    meter.text(meter.marks.mark(text).into_owned())
}

/// A value of JSON as templates see it: what Python's reader makes of it.
fn of_json(meter: &Rc<Meter>, value: &serde_json::Value) -> Result<Value, Trouble> {
    use serde_json::Value as Json;
    Ok(match value {
        Json::Null => Value::None,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Value::Int(whole),
            (None, Some(number)) => Value::Float(number),
            (None, None) => Value::None,
        },
        Json::String(text) => said(meter, text)?,
        Json::Array(items) => meter.list(items.iter().map(|item| of_json(meter, item)).collect::<Result<_, _>>()?)?,
        Json::Object(map) => {
            let entry = |(name, value): (&String, &Json)| Ok((said(meter, name)?, of_json(meter, value)?));
            meter.map(map.iter().map(entry).collect::<Result<_, Trouble>>()?)?
        }
    })
}

/// Looks for mistakes in a source that show before it is rendered.
pub(crate) fn check(source: &str, budget: Budget) -> Result<(), Error> {
    parser::parse(source, &Meter::new(budget, Marks::default())).map(|_| ())
}

/// Renders a source.
pub(crate) fn render(source: &str, inputs: &Inputs<'_>, budget: Budget) -> Result<Rendered, Error> {
    let meter = Meter::new(budget, inputs.marks.clone());
    let tree = parser::parse(source, &meter)?;
    let start = |trouble| Error { trouble, line: 1 };
    let mut evaluator = Evaluator::new(Rc::clone(&meter), inputs.now);
    let named =
        |name: &str, text: &str| -> Result<_, Trouble> { Ok((meter.text(name.to_owned())?, said(&meter, text)?)) };
    let message = |(index, &(role, content)): (usize, &(&str, &str))| {
        let mut entries = vec![named("role", role)?, named("content", content)?];
        for (name, value) in inputs.fields.get(index).copied().into_iter().flatten() {
            entries.push((meter.text(name.clone())?, of_json(&meter, value)?));
        }
        meter.map(entries)
    };
    let messages = inputs.messages.iter().enumerate().map(message).collect::<Result<Vec<_>, _>>();
    let messages = messages.and_then(|list| meter.list(list)).map_err(start)?;
    evaluator.define("messages", messages).map_err(start)?;
    for (name, text) in &inputs.texts {
        let text = meter.text((*text).to_owned()).map_err(start)?;
        evaluator.define(name, text).map_err(start)?;
    }
    for (name, flag) in &inputs.flags {
        evaluator.define(name, Value::Bool(*flag)).map_err(start)?;
    }
    for name in ["tools", "documents"] {
        evaluator.define(name, Value::None).map_err(start)?;
    }
    let text = evaluator.run(&tree)?;
    Ok(inputs.marks.rendered(&text))
}
