//! The model's words: tokens of texts, texts of tokens, and its chat template.

use demask::{Error, Handle, layers::checkpoint::RenderOptions};
use pyo3::{prelude::*, types::PyBytes};

use crate::{error::raise, prompt};

/// A model's tokenizer and chat template.
#[pyclass(frozen, module = "demask._native")]
pub struct Tokenizer {
    handle: Handle,
}

impl Tokenizer {
    /// Returns the tokenizer of an engine's model.
    pub fn new(handle: &Handle) -> Self {
        Self { handle: handle.clone() }
    }
}

#[pymethods]
impl Tokenizer {
    /// The tokens of a text; `special` adds the tokens that the tokenizer puts around texts.
    fn encode(&self, py: Python<'_>, text: &str, special: bool) -> PyResult<Vec<u32>> {
        let tokenizer = self.handle.info().tokenizer().map_err(|error| raise(py, &error))?;
        py.detach(|| tokenizer.encode(text, special)).map_err(|error| raise(py, &Error::from(error)))
    }

    /// The text of tokens; `special` keeps those that are no text.
    fn decode(&self, py: Python<'_>, tokens: Vec<u32>, special: bool) -> PyResult<String> {
        let tokenizer = self.handle.info().tokenizer().map_err(|error| raise(py, &error))?;
        Ok(py.detach(|| tokenizer.decode(&tokens, !special)))
    }

    /// The bytes of a token; none of one that is no text.
    fn token<'py>(&self, py: Python<'py>, token: u32) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let tokenizer = self.handle.info().tokenizer().map_err(|error| raise(py, &error))?;
        Ok(tokenizer.token_bytes(token).map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// The pieces of text that tokens stand for, each for itself; a special token has its name.
    fn pieces(&self, tokens: Vec<u32>) -> Vec<String> {
        let tokenizer = self.handle.info().tokenizer();
        let piece = |token: u32| {
            let Ok(tokenizer) = &tokenizer else { return format!("{token} ") };
            let text = tokenizer.token_bytes(token).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            text.or_else(|| tokenizer.token(token)).unwrap_or_else(|| format!("<{token}>"))
        };
        tokens.into_iter().map(piece).collect()
    }

    /// Messages as the model's template puts them.
    fn template(
        &self,
        py: Python<'_>,
        messages: Vec<(String, String, String)>,
        generation_prompt: bool,
    ) -> PyResult<String> {
        let messages = prompt::messages(messages)?;
        let options = RenderOptions { add_generation_prompt: generation_prompt, ..RenderOptions::default() };
        let template = self.handle.info().template();
        py.detach(|| template.render(&messages, &options)).map_err(|error| raise(py, &Error::from(error)))
    }
}
