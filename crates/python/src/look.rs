//! Looks into a model: likelihoods, decisions, logits and hidden states.

use std::task::Poll;

use demask::{
    Likelihood as Found, LikelihoodOptions, Question, RequestHandle, SchedulingParams, layers::model::Inspection,
};
use pyo3::{prelude::*, types::PyByteArray};
use serde_json::{Value, json};

use crate::{
    engine::Engine,
    error::{exception, raise},
    prompt::prompt,
    request_handle::PATIENCE,
};

/// A likelihood: log-probability, tokens, log-probabilities of tokens with those of others, forwards, operations, seconds,
/// tokens that were not computed.
type Likelihood = (f64, usize, Vec<(Option<f32>, Vec<(u32, f32)>)>, usize, f64, f64, usize);

/// Waits for a request's end without the interpreter.
fn wait<T: Send>(py: Python<'_>, mut handle: RequestHandle<T>) -> PyResult<T> {
    handle.wait_for_the_end();
    loop {
        match py.detach(|| handle.events_within(PATIENCE)) {
            Poll::Pending => py.check_signals()?,
            Poll::Ready(Some(_)) => {}
            Poll::Ready(None) => return handle.result().map_err(|error| raise(py, &error.into())),
        }
    }
}

/// Judges how probable a text is after a prompt. `how` is the number of draws, the scale of guidance, the seed, each with the
/// library's default, and how many other tokens are reported in the place of each, if any.
#[pyfunction]
#[pyo3(signature = (engine, context: "tuple[str, Any]", continuation, how))]
pub fn score(
    py: Python<'_>,
    engine: &Engine,
    context: &Bound<'_, PyAny>,
    continuation: &str,
    how: (Option<usize>, Option<f32>, Option<u64>, Option<usize>),
) -> PyResult<Likelihood> {
    let handle = engine.handle(py)?;
    let (draws, cfg_scale, seed, top) = how;
    let usual = LikelihoodOptions::default();
    let options = LikelihoodOptions {
        draws: draws.unwrap_or(usual.draws),
        cfg_scale: cfg_scale.unwrap_or(usual.cfg_scale),
        seed: seed.unwrap_or(usual.seed),
        top,
    };
    let context = prompt(context)?;
    let submitted = py.detach(|| {
        let (context, continuation) = handle.info().pair(&context, continuation)?;
        handle.submit_likelihoods(&[(context, continuation)], &options, SchedulingParams::default(), None)
    });
    let found = wait(py, submitted.map_err(|error| raise(py, &error))?)?.pop().unwrap_or_default();
    let logprobs = found.logprobs.iter().map(|one| (one.logprob, one.top.clone())).collect();
    let Found { log_probability, tokens, forwards, flops, seconds, cached_tokens, .. } = found;
    Ok((log_probability, tokens, logprobs, forwards, flops, seconds, cached_tokens))
}

/// Answers questions about a prompt, which are JSON, as the answers are.
#[pyfunction]
#[pyo3(signature = (engine, prompt: "tuple[str, Any]", questions))]
pub fn decide(py: Python<'_>, engine: &Engine, prompt: &Bound<'_, PyAny>, questions: &str) -> PyResult<String> {
    let (handle, prompt) = (engine.handle(py)?, crate::prompt::prompt(prompt)?);
    let unread =
        |error: serde_json::Error| exception(py, "PromptError", &format!("the questions cannot be read: {error}"));
    let list: Value = serde_json::from_str(questions).map_err(unread)?;
    let list = Question::list(&list).map_err(|error| raise(py, &error))?;
    let submitted = py.detach(|| handle.submit_decisions(&prompt, &list, SchedulingParams::default(), None));
    let found = wait(py, submitted.map_err(|error| raise(py, &error))?)?;
    let answers = list.iter().zip(&found.answers).map(|(question, answer)| question.answer(answer));
    let told = json!({
        "answers": answers.collect::<Value>(),
        "input_tokens": found.input_tokens,
        "cached_tokens": found.cached_tokens,
        "forwards": found.forwards,
        "flops": found.flops,
        "seconds": found.seconds,
    });
    Ok(told.to_string())
}

/// Runs a forward over tokens, and returns their logits, `[tokens, vocabulary]` as f32.
#[pyfunction]
pub fn logits<'py>(py: Python<'py>, engine: &Engine, tokens: Vec<u32>) -> PyResult<Bound<'py, PyByteArray>> {
    let found = inspect(py, engine, tokens, false)?;
    Ok(bytes(py, &found.logits))
}

/// Runs a forward over tokens, and returns a layer's output, `[tokens, hidden]` as f32: 0 is the embedding, 1 the first
/// layer, and one after the last layer the final norm.
#[pyfunction]
pub fn hidden<'py>(
    py: Python<'py>,
    engine: &Engine,
    tokens: Vec<u32>,
    place: usize,
) -> PyResult<Bound<'py, PyByteArray>> {
    let found = inspect(py, engine, tokens, true)?.hidden;
    let values = match place {
        0 => &found.embed,
        place => found.layers.get(place - 1).unwrap_or(&found.last),
    };
    Ok(bytes(py, values))
}

fn inspect(py: Python<'_>, engine: &Engine, tokens: Vec<u32>, layers: bool) -> PyResult<Inspection> {
    let handle = engine.handle(py)?;
    py.detach(|| handle.inspect(tokens, layers)).map_err(|error| raise(py, &error))
}

/// Returns numbers as bytes of the machine's order, which their receiver may write to.
fn bytes<'py>(py: Python<'py>, values: &[f32]) -> Bound<'py, PyByteArray> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    PyByteArray::new(py, &bytes)
}
