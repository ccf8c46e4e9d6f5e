//! Words of task files: Jinja as harnesses set it up, and the check of the names in it.

use std::{collections::HashSet, error::Error as _, fmt, sync::LazyLock};

use demask_settings::names::nearest;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Expression, Template, Value, syntax::SyntaxConfig};
use regex::Regex;
use thiserror::Error;

use super::{FieldError, entry, letter};

/// Most steps of a text: 64 bytes of it are one. The longest of the published benchmarks take a hundredth.
const STEPS: u64 = 10_000_000;

/// Jinja's own functions.
const GLOBALS: [&str; 3] = ["range", "namespace", "dict"];

static JINJA: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut jinja = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        jinja.set_syntax(syntax);
    }
    jinja.set_auto_escape_callback(|_| AutoEscape::None);
    jinja.set_fuel(Some(STEPS));
    jinja.add_filter("letter", |option: usize| letter(option).to_string());
    jinja.add_filter("trim_start", |text: String| text.trim_start().to_owned());
    jinja.add_filter("trim_end", |text: String| text.trim_end().to_owned());
    jinja.add_filter("regex_replace", |text: String, from: &str, to: &str| {
        Ok(regex(from)?.replace_all(&text, to).into_owned())
    });
    entry::add_functions(&mut jinja);
    jinja
});

/// A regular expression, which may stand in any file.
pub(super) fn regex(pattern: &str) -> Result<Regex, Error> {
    Regex::new(pattern)
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, format!("{pattern} is no regular expression")))
}

/// A text that cannot be made of a problem.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name} of problem {problem} cannot be made: {detail}; mend the file of the task")]
pub struct WordsError {
    /// Key of the task's file.
    pub name: &'static str,
    /// The problem.
    pub problem: String,
    /// Message of the template's engine.
    pub detail: String,
}

/// A template of a task's file.
#[derive(Clone, Copy)]
pub(super) struct Words {
    name: &'static str,
    template: &'static Template<'static, 'static>,
}

impl fmt::Debug for Words {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {:?}", self.name, self.template.source())
    }
}

impl Words {
    /// Parses a template over these names. An error is one line.
    pub(super) fn parse(name: &'static str, source: &'static str, known: &[&str]) -> Result<Self, String> {
        let template = JINJA.template_from_str(source).map_err(|error| detail(&error))?;
        only(&template.undeclared_variables(false), known)?;
        Ok(Self { name, template: Box::leak(Box::new(template)) })
    }

    /// The template as it is written.
    pub(super) fn source(self) -> &'static str {
        self.template.source()
    }

    /// The text; `id` names the problem in errors.
    pub(super) fn of(&self, scope: &Value, id: &str) -> Result<String, WordsError> {
        let refused = |error: Error| WordsError { name: self.name, problem: id.to_owned(), detail: detail(&error) };
        self.template.render(scope.clone()).map_err(refused)
    }
}

/// Parses an expression over these names and the functions of entries. An error is one line.
pub(super) fn expression(source: &'static str, known: &[&str]) -> Result<Expression<'static, 'static>, String> {
    let expression = JINJA.compile_expression(source).map_err(|error| detail(&error))?;
    only(&expression.undeclared_variables(false), &[known, &entry::FUNCTIONS].concat())?;
    Ok(expression)
}

/// Reports the field that an expression found to be wrong, or why its part of a problem cannot be made.
pub(super) fn field_error(part: &'static str, error: &Error) -> FieldError {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(field) = inner.downcast_ref::<FieldError>() {
            return field.clone();
        }
        cause = inner.source();
    }
    FieldError::Part { part, detail: detail(error) }
}

fn only(found: &HashSet<String>, known: &[&str]) -> Result<(), String> {
    let unknown = |name: &&String| !known.contains(&name.as_str()) && !GLOBALS.contains(&name.as_str());
    let Some(name) = found.iter().filter(unknown).min() else { return Ok(()) };
    let meant = nearest(name, known).map(|name| format!(", did you mean {name}?")).unwrap_or_default();
    Err(format!("unknown name {name}{meant} (known: {})", known.join(", ")))
}

/// Returns the detail of an error, in one line.
fn detail(error: &Error) -> String {
    if error.kind() == ErrorKind::OutOfFuel {
        return "it runs for ever or takes too much memory".to_owned();
    }
    let words = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
