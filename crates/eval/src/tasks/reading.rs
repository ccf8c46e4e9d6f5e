//! One entry of a data file to one problem: an expression for each part, in the order of the task's file.

use minijinja::{Expression, Value};
use serde_json::Value as Json;

use super::{
    FieldError,
    entry::{ENTRY, Entry},
    instruction::Instruction,
    number,
    words::field_error,
};
use crate::{Gold, Problem, Rule};

/// The parts of a problem that a file can say.
pub(super) const PARTS: [&str; 11] = [
    "id",
    "question",
    "context",
    "subject",
    "options",
    "solution",
    "schema",
    "answer",
    "prompt",
    "tests",
    "entry_point",
];

/// Parts and their expressions; each sees the parts before it.
pub(super) type Expressions = &'static [(&'static str, Expression<'static, 'static>)];

/// How a task's entries are read.
#[derive(Debug)]
pub(super) struct Reading {
    /// The parts.
    pub parts: Expressions,
    /// Wording of entries that are instructions.
    pub instruction: Option<Instruction>,
    /// A rule of the task: what answers are.
    pub rule: Rule,
}

impl Reading {
    /// One problem from one entry; the number is the entry's, from 0.
    pub(super) fn problem(&self, entry: &Json, index: usize) -> Result<Problem, FieldError> {
        if let (Some(instruction), Some(_)) = (self.instruction, entry.get("instruction")) {
            return instruction.read(entry, index);
        }
        let mut found = Parts(vec![(ENTRY, Value::from_object(Entry(entry.clone(), index)))]);
        for (name, expression) in self.parts {
            let value = expression.eval(Value::from_pairs(found.0.iter().cloned()));
            found.0.push((name, value.map_err(|error| field_error(name, &error))?));
        }
        Ok(Problem {
            id: found.text("id")?.unwrap_or_else(|| index.to_string()),
            question: found.needed("question")?,
            context: found.text("context")?,
            subject: found.text("subject")?,
            options: found.texts("options")?,
            solution: found.text("solution")?,
            schema: found.text("schema")?,
            gold: found.gold(self.rule)?,
        })
    }
}

/// Values of the expressions.
struct Parts(Vec<(&'static str, Value)>);

impl Parts {
    fn get(&self, part: &str) -> Option<&Value> {
        let (_, value) = self.0.iter().find(|(name, _)| *name == part)?;
        (!value.is_undefined() && !value.is_none()).then_some(value)
    }

    fn text(&self, part: &'static str) -> Result<Option<String>, FieldError> {
        self.get(part).map(|value| as_text(part, value)).transpose()
    }

    fn needed(&self, part: &'static str) -> Result<String, FieldError> {
        let nothing = || FieldError::Part { part, detail: "it is nothing, expected text".to_owned() };
        self.text(part)?.ok_or_else(nothing)
    }

    fn texts(&self, part: &'static str) -> Result<Vec<String>, FieldError> {
        let Some(list) = self.get(part) else { return Ok(Vec::new()) };
        let items = list.try_iter().ok().filter(|_| list.as_str().is_none());
        items.ok_or_else(|| other(part, list, "a list of texts"))?.map(|item| as_text(part, &item)).collect()
    }

    fn gold(&self, rule: Rule) -> Result<Gold, FieldError> {
        Ok(match rule {
            Rule::Number(_) => Gold::Number(self.needed("answer")?),
            Rule::Math(_) => Gold::Math(self.needed("answer")?),
            Rule::Letter(_) | Rule::Choice { .. } => {
                let answer = self.needed("answer")?;
                let odd = || FieldError::Part { part: "answer", detail: format!("{answer} is no number of an option") };
                Gold::Option(answer.parse().map_err(|_| odd())?)
            }
            Rule::Exact(_) | Rule::Overlap => match self.get("answer").and_then(Value::as_str) {
                Some(text) => Gold::Text(vec![text.to_owned()]),
                None => Gold::Text(self.texts("answer")?),
            },
            Rule::Json => Gold::Json(self.text("answer")?),
            Rule::Program => Gold::Program {
                prompt: self.text("prompt")?.unwrap_or_default(),
                tests: self.needed("tests")?,
                entry_point: self.text("entry_point")?,
            },
        })
    }
}

/// The right answer of an exemplar that a task's file has itself.
pub(super) fn published(rule: Rule, answer: String) -> Option<Gold> {
    match rule {
        Rule::Number(_) => Some(Gold::Number(answer)),
        Rule::Math(_) => Some(Gold::Math(answer)),
        Rule::Letter(_) | Rule::Choice { .. } => number(&answer).map(Gold::Option),
        Rule::Exact(_) | Rule::Overlap => Some(Gold::Text(vec![answer])),
        Rule::Json => Some(Gold::Json(Some(answer))),
        Rule::Program => None,
    }
}

fn as_text(part: &'static str, value: &Value) -> Result<String, FieldError> {
    let text = value.as_str().map(str::to_owned).or_else(|| value.as_i64().map(|number| number.to_string()));
    text.ok_or_else(|| other(part, value, "text"))
}

fn other(part: &'static str, value: &Value, expected: &str) -> FieldError {
    FieldError::Part { part, detail: format!("it is a {}, expected {expected}", value.kind()) }
}
