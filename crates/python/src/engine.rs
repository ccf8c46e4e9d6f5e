//! A model with its thread, as the Python half holds it.

use std::{
    process,
    sync::{Mutex, PoisonError},
};

use demask::{
    Class, Handle, Model,
    internals::{decode::recommended, step::Mask},
};
use pyo3::{prelude::*, types::PyDict};
use serde_json::{Value, json};

use crate::{
    error::{exception, raise},
    options::options,
    prompt::prompt,
    ticket::Ticket,
    tokenizer::Tokenizer,
};

/// A loaded model on a thread of its own.
#[pyclass(frozen, module = "demask._native")]
pub struct Engine {
    engine: Mutex<Option<demask::Engine>>,
    handle: Handle,
    /// The process that loaded it: threads do not come along into the child of a fork.
    process: u32,
    fingerprint: u64,
    /// What is known since it was loaded, as JSON.
    info: Value,
}

impl Engine {
    /// Gives a model a thread.
    ///
    /// # Errors
    /// If the system has none to give.
    pub fn start(py: Python<'_>, model: Model, fingerprint: u64) -> PyResult<Self> {
        let info = info(&model, fingerprint);
        let engine = model.into_engine().map_err(|error| raise(py, &error))?;
        let handle = engine.handle();
        Ok(Self { engine: Mutex::new(Some(engine)), handle, process: process::id(), fingerprint, info })
    }

    /// Returns the way to the engine's thread.
    ///
    /// # Errors
    /// If it was closed, or belongs to the process that this one was forked from.
    pub fn handle(&self, py: Python<'_>) -> PyResult<&Handle> {
        if self.process != process::id() {
            return Err(forked(py));
        }
        if self.is_closed() {
            return Err(exception(py, "Closed", "the engine is closed: load the model again"));
        }
        Ok(&self.handle)
    }

    /// Calls a function with the engine itself.
    ///
    /// # Errors
    /// As [`handle`](Self::handle).
    pub fn with<R>(&self, py: Python<'_>, act: impl FnOnce(&demask::Engine, u64) -> R) -> PyResult<R> {
        self.handle(py)?;
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = || exception(py, "Closed", "the engine is closed: load the model again");
        engine.as_ref().map(|engine| act(engine, self.fingerprint)).ok_or_else(closed)
    }

    fn is_closed(&self) -> bool {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn take(&self) -> Option<demask::Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The exception for a child of a fork.
fn forked(py: Python<'_>) -> PyErr {
    exception(
        py,
        "ForkError",
        "the engine was loaded before this process was forked, and its threads stayed behind: load the model in this process \
         (multiprocessing: start method \"spawn\" or \"forkserver\"; servers: load after the workers have started)",
    )
}

#[pymethods]
impl Engine {
    /// What the model is and can do, as JSON.
    fn info(&self) -> String {
        self.info.to_string()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.is_closed() || self.process != process::id() || !self.handle.is_alive()
    }

    /// Gives up what runs, and ends the thread. Nothing happens if it has ended.
    fn close(&self, py: Python<'_>) {
        let engine = self.take();
        if self.process != process::id() {
            // Nobody is there to be told, and nothing may be waited for.
            std::mem::forget(engine);
            return;
        }
        py.detach(|| drop(engine));
    }

    /// Submits a prompt.
    fn submit(&self, py: Python<'_>, prompt: &Bound<'_, PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Ticket> {
        let handle = self.handle(py)?;
        let wanted = Wanted::read(prompt, options)?;
        let prepared = py.detach(|| handle.prepare(&wanted.prompt, &wanted.options));
        Ok(Ticket::new(handle.submit(prepared.map_err(|error| raise(py, &error))?, Class::default())))
    }

    /// Submits many prompts, each with its options, once all of them are prepared. Where one cannot be prepared, its exception
    /// is raised and nothing runs; if `keep` is set, it stands in the place of its ticket.
    fn submit_all<'py>(
        &self,
        py: Python<'py>,
        wanted: Vec<(Bound<'py, PyAny>, Bound<'py, PyDict>)>,
        keep: bool,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let handle = self.handle(py)?;
        let wanted = wanted.iter().map(|(prompt, options)| Wanted::read(prompt, options)).collect::<PyResult<Vec<_>>>()?;
        let prepared: Vec<_> =
            py.detach(|| wanted.iter().map(|wanted| handle.prepare(&wanted.prompt, &wanted.options)).collect());
        if let Some(Err(error)) = prepared.iter().find(|prepared| !keep && prepared.is_err()) {
            return Err(raise(py, error));
        }
        let submit = |prepared: Result<_, _>| match prepared {
            Ok(prepared) => Ok(Bound::new(py, Ticket::new(handle.submit(prepared, Class::default())))?.into_any()),
            Err(error) => Ok(raise(py, &error).into_value(py).into_bound(py).into_any()),
        };
        prepared.into_iter().map(submit).collect()
    }

    /// The counts of the engine as they were after its last forward, as JSON. It never waits for a forward.
    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        self.handle(py).map(|handle| crate::metrics::metrics(handle).to_string())
    }

    /// The model's tokenizer and template.
    fn tokenizer(&self, py: Python<'_>) -> PyResult<Tokenizer> {
        self.handle(py).map(Tokenizer::new)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        Python::attach(|py| self.close(py));
    }
}

/// A prompt and how it is to be answered.
struct Wanted {
    prompt: demask::Prompt,
    options: demask::Options,
}

impl Wanted {
    fn read(of: &Bound<'_, PyAny>, keywords: &Bound<'_, PyDict>) -> PyResult<Self> {
        Ok(Self { prompt: prompt(of)?, options: options(keywords)? })
    }
}

/// What the model is and can do.
fn info(model: &Model, fingerprint: u64) -> Value {
    let prompter = model.prompter();
    let facts = prompter.facts();
    let (attention, block) = match facts.mask {
        Mask::Full => ("full", None),
        Mask::BlockCausal { block } => ("block", Some(block)),
        Mask::Causal => ("causal", None),
    };
    let (decoder, cache) = recommended(facts.mask)
        .map_or(("ar".to_owned(), "causal".to_owned()), |(decoder, cache)| (decoder.to_string(), cache.to_string()));
    let warnings: Vec<String> = prompter.warnings().iter().map(ToString::to_string).collect();
    json!({
        "name": model.name(),
        "fingerprint": format!("{fingerprint:016x}"),
        "family": prompter.family().name(),
        "attention": attention,
        "attention_block": block,
        "vocabulary": facts.vocab,
        "context": facts.context,
        "layers": prompter.spec().layers,
        "hidden": prompter.spec().hidden,
        "mask_token": facts.mask_id,
        "end_tokens": prompter.end_ids(),
        "gen_length": prompter.default_gen_length(),
        "block_length": prompter.defaults().block_length,
        "decoder": decoder,
        "cache": cache,
        "guides": model.guides(),
        "device": model.device(),
        "weights_bytes": model.weight_bytes(),
        "load_seconds": model.load_time().as_secs_f64(),
        "warnings": warnings,
    })
}
