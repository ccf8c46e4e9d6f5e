//! Prompts as the Python half hands them over: the word for a form, and what it holds.

use demask::{Message, Prompt, Segment};
use pyo3::{prelude::*, types::PyString};

use crate::error::wrong_type;

/// A prompt in one of its forms, as `demask._prompt` has checked it: `("chat", [(role, content)])`, `("raw", text)`,
/// `("tokens", ids)` or `("infill", text | [text | size])`.
pub fn prompt(of: &Bound<'_, PyAny>) -> PyResult<Prompt> {
    let (form, held): (String, Bound<'_, PyAny>) = of.extract()?;
    Ok(match form.as_str() {
        "chat" => {
            let messages: Vec<(String, String)> = held.extract()?;
            Prompt::Chat(messages.into_iter().map(|(role, content)| Message::new(role, content)).collect())
        }
        "raw" => Prompt::Raw(held.extract()?),
        "tokens" => Prompt::Tokens(held.extract()?),
        "infill" if held.is_instance_of::<PyString>() => Prompt::Infill(held.extract()?),
        "infill" => Prompt::Segments(held.try_iter()?.map(|piece| segment(&piece?)).collect::<PyResult<_>>()?),
        other => return Err(wrong_type(format!("{other} is no form of a prompt"))),
    })
}

fn segment(of: &Bound<'_, PyAny>) -> PyResult<Segment> {
    match of.cast::<PyString>() {
        Ok(text) => Ok(Segment::Text(text.to_str()?.to_owned())),
        Err(_) => Ok(Segment::Hole(of.extract()?)),
    }
}
