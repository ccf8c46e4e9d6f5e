//! Questions and answers as JSON, in the form of OpenAI's Decisions.

use serde_json::{Map, Value, json};

use super::{Decision, MOST_CHOICES, MOST_QUESTIONS, Question, QuestionKind, form::excerpt, wrong};
use crate::Error;

impl Question {
    /// Reads a list of questions, of which each is an object: `type` is `predicate`, `choice` or `score`, and
    /// `instructions` is the text that the model reads. A choice has `choices`, a score `min` and `max`, or `levels`,
    /// which have values from 0 up. A choice or level is a text, or an object with `value` or `label` and, if it has to
    /// be explained, a `description`. These are listed after the instructions.
    ///
    /// # Errors
    /// If a part is not as expected. The error names its place: `questions[2].choices[0]`.
    pub fn list(value: &Value) -> Result<Vec<Self>, Error> {
        match value.as_array() {
            Some(list) if (1..=MOST_QUESTIONS).contains(&list.len()) => {
                list.iter().enumerate().map(|(index, one)| Self::read(one, &format!("questions[{index}]"))).collect()
            }
            Some(list) => {
                Err(wrong("questions".to_owned(), format!("there are {}, expected 1 to {MOST_QUESTIONS}", list.len())))
            }
            None => Err(expected("questions", value, "a list of questions")),
        }
    }

    fn read(value: &Value, at: &str) -> Result<Self, Error> {
        let mut fields = QuestionFields::of(value, at)?;
        let kind = fields.text("type")?;
        let name = fields.take("name").map(|name| text_of(name, &format!("{at}.name"))).transpose()?;
        let mut instructions = fields.text("instructions")?;
        let kind = match kind.as_str() {
            "predicate" => QuestionKind::Predicate,
            "choice" => QuestionKind::Choice(fields.options("choices", "value", &mut instructions)?),
            "score" if fields.0.contains_key("levels") => {
                QuestionKind::Levels(fields.options("levels", "label", &mut instructions)?)
            }
            "score" => QuestionKind::Score { min: fields.integer("min")?, max: fields.integer("max")? },
            _ => return Err(expected(&format!("{at}.type"), &json!(kind), "predicate, choice or score")),
        };
        fields.finish()?;
        Ok(Self { name, instructions, kind })
    }

    /// Returns its answer: the fields of OpenAI's Decisions, and of every type the winner as `choice` with its probability
    /// among the choices as `confidence`, and the `mass` of all choices.
    pub fn answer(&self, decision: &Decision) -> Value {
        let Decision { choices, probabilities, mass, choice, score } = decision;
        let mut answer = json!({"name": self.name, "confidence": decision.confidence(), "mass": mass});
        let shares = || choices.iter().zip(probabilities);
        match self.first_value() {
            Some(first) => {
                let share = |(place, (label, probability)): (usize, (&String, &f64))| json!({"value": first + place as i64, "label": label, "probability": probability});
                answer["type"] = json!("score");
                answer["score"] = json!(score);
                answer["choice"] = json!(first + *choice as i64);
                answer["probabilities"] = shares().enumerate().map(share).collect();
            }
            None if self.kind == QuestionKind::Predicate => {
                answer["type"] = json!("predicate");
                answer["probability"] = json!(probabilities[0]);
                answer["choice"] = json!(*choice == 0);
            }
            None => {
                let share = |(value, probability): (&String, &f64)| json!({"value": value, "probability": probability});
                answer["type"] = json!("choice");
                answer["choice"] = json!(choices[*choice]);
                answer["probabilities"] = shares().map(share).collect();
            }
        }
        answer
    }
}

/// The fields of an object that are left, and its place.
struct QuestionFields<'v>(Map<String, Value>, &'v str);

impl<'v> QuestionFields<'v> {
    fn of(value: &Value, at: &'v str) -> Result<Self, Error> {
        let map = value.as_object().ok_or_else(|| expected(at, value, "an object"))?;
        let set = map.iter().filter(|(_, value)| !value.is_null());
        Ok(Self(set.map(|(name, value)| (name.clone(), value.clone())).collect(), at))
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    fn needed(&mut self, name: &str, what: &str) -> Result<(Value, String), Error> {
        let at = format!("{}.{name}", self.1);
        let value = self.take(name).ok_or_else(|| wrong(at.clone(), format!("it is missing, expected {what}")))?;
        Ok((value, at))
    }

    fn text(&mut self, name: &str) -> Result<String, Error> {
        let (value, at) = self.needed(name, "a text")?;
        text_of(value, &at)
    }

    fn integer(&mut self, name: &str) -> Result<i64, Error> {
        let (value, at) = self.needed(name, "an integer")?;
        value.as_i64().ok_or_else(|| expected(&at, &value, "an integer"))
    }

    /// Takes a list of choices; their descriptions are appended to the instructions.
    fn options(&mut self, name: &str, key: &str, instructions: &mut String) -> Result<Vec<String>, Error> {
        let (value, at) = self.needed(name, "a list of texts")?;
        let list = value.as_array().ok_or_else(|| expected(&at, &value, "a list of texts"))?;
        if list.len() > MOST_CHOICES {
            return Err(wrong(at, format!("there are {}, expected 2 to {MOST_CHOICES}", list.len())));
        }
        let (mut texts, mut described) = (Vec::with_capacity(list.len()), String::new());
        for (index, option) in list.iter().enumerate() {
            let at = format!("{at}[{index}]");
            if !option.is_object() {
                texts.push(text_of(option.clone(), &at)?);
                continue;
            }
            let mut fields = QuestionFields::of(option, &at)?;
            let text = fields.text(key)?;
            if let Some(description) = fields.take("description") {
                let description = text_of(description, &format!("{at}.description"))?;
                described.extend(["\n- ", &text, ": ", &description]);
            }
            fields.finish()?;
            texts.push(text);
        }
        if !described.is_empty() {
            instructions.push_str(&described);
            instructions.push('\n');
        }
        Ok(texts)
    }

    /// Refuses a field that nothing was taken of.
    fn finish(self) -> Result<(), Error> {
        match self.0.keys().next() {
            Some(name) => Err(wrong(format!("{}.{}", self.1, excerpt(name)), "it is unknown: omit it")),
            None => Ok(()),
        }
    }
}

fn text_of(value: Value, at: &str) -> Result<String, Error> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(expected(at, &other, "a text")),
    }
}

/// The error about a value.
fn expected(at: &str, found: &Value, what: &str) -> Error {
    wrong(at.to_owned(), format!("it is {}, expected {what}", excerpt(&found.to_string())))
}
