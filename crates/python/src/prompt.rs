//! Prompts as the Python half hands them over: the word for a form, and its content.

use demask::{Message, Prompt, Segment};
use pyo3::{
    prelude::*,
    types::{PyString, PyTuple},
};

use crate::error::wrong_type;

/// A prompt in one of its forms, as `demask._prompt` has checked it: `("chat", [(role, content, fields)])`, where `fields` is JSON and
/// may be missing, `("raw", text)`, `("tokens", ids)` or `("infill", text | [text | size])`.
pub fn prompt(of: &Bound<'_, PyAny>) -> PyResult<Prompt> {
    let (form, held): (String, Bound<'_, PyAny>) = of.extract()?;
    Ok(match form.as_str() {
        "chat" => {
            let held: Vec<Bound<'_, PyTuple>> = held.extract()?;
            messages(held.iter().map(parts).collect::<PyResult<_>>()?)?.into()
        }
        "raw" => Prompt::Raw(held.extract()?),
        "tokens" => Prompt::Tokens(held.extract()?),
        "infill" if held.is_instance_of::<PyString>() => Prompt::Infill(held.extract()?),
        "infill" => Prompt::Segments(held.try_iter()?.map(|piece| segment(&piece?)).collect::<PyResult<_>>()?),
        other => return Err(wrong_type(format!("{other} is no form of a prompt"))),
    })
}

/// Messages from their roles, their contents, and an object of JSON with all their other fields.
pub fn messages(of: Vec<(String, String, String)>) -> PyResult<Vec<Message>> {
    let message = |(role, content, fields): (String, String, String)| {
        let fields = serde_json::from_str(&fields)
            .map_err(|error| wrong_type(format!("the fields of a message are no JSON ({error})")))?;
        Ok(Message { fields, ..Message::new(role, content) })
    };
    of.into_iter().map(message).collect()
}

/// A message's role, content and other fields; none if they are missing.
fn parts(of: &Bound<'_, PyTuple>) -> PyResult<(String, String, String)> {
    if of.len() > 2 {
        return of.extract();
    }
    let (role, content) = of.extract()?;
    Ok((role, content, "{}".to_owned()))
}

fn segment(of: &Bound<'_, PyAny>) -> PyResult<Segment> {
    match of.cast::<PyString>() {
        Ok(text) => Ok(Segment::Text(text.to_str()?.to_owned())),
        Err(_) => Ok(Segment::Hole(of.extract()?)),
    }
}
