//! A model with its thread, as the Python half holds it.

use std::{
    collections::VecDeque,
    process,
    sync::{Mutex, PoisonError},
};

use demask::{Error, Handle, Mask, Model, Request, layers::decode::transfer::OwnRule, trace::Tracer};
use pyo3::{prelude::*, types::PyDict};
use serde_json::{Value, json};

use crate::{
    batch::{self, Batch},
    error::{closed, exception, raise},
    options::options,
    prompt::prompt,
    request_handle::{RequestHandle, Trace},
    rule::{self, Handed, Raised},
    tokenizer::Tokenizer,
};

/// A loaded model on a thread of its own.
#[pyclass(frozen, name = "Model", module = "demask._native")]
pub struct Engine {
    /// Engine; none once it is closed.
    inside: Mutex<Option<Model>>,
    handle: Handle,
    /// The process that loaded it: threads do not come along into the child of a fork.
    process: u32,
    fingerprint: u64,
    /// Facts since it was loaded, as JSON.
    info: Value,
}

impl Engine {
    /// Wraps a model.
    pub fn start(model: Model, fingerprint: u64) -> Self {
        let info = info(&model, fingerprint);
        let handle = model.handle();
        Self { inside: Mutex::new(Some(model)), handle, process: process::id(), fingerprint, info }
    }

    /// Returns the way to the engine's thread.
    ///
    /// # Errors
    /// If it was closed, or belongs to the process that this one was forked from.
    pub fn handle(&self, py: Python<'_>) -> PyResult<&Handle> {
        if self.process != process::id() {
            return Err(forked(py));
        }
        if rule::is_running() {
            let why = "a transfer rule asked an engine, on a thread that runs its forwards: ask from elsewhere";
            return Err(exception(py, "Error", why));
        }
        if self.is_closed() {
            return Err(closed(py));
        }
        Ok(&self.handle)
    }

    /// Calls a function with the engine itself.
    ///
    /// # Errors
    /// As [`handle`](Self::handle).
    pub fn with<R>(&self, py: Python<'_>, act: impl FnOnce(&Model, u64) -> R) -> PyResult<R> {
        self.handle(py)?;
        let engine = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        engine.as_ref().map(|engine| act(engine, self.fingerprint)).ok_or_else(|| closed(py))
    }

    fn is_closed(&self) -> bool {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn take(&self) -> Option<Model> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).take()
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
    /// Facts about the model and its abilities, as JSON.
    fn info(&self) -> String {
        self.info.to_string()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.is_closed() || self.process != process::id() || !self.handle.is_alive()
    }

    /// Cancels what runs, and ends the thread. Nothing happens if it has ended.
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
    #[pyo3(signature = (prompt: "tuple[str, Any]", options: "dict[str, Any]"))]
    fn submit(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<RequestHandle> {
        let handle = self.handle(py)?;
        let (wanted, raised) = Wanted::read(prompt, options)?;
        let prepared = py.detach(|| wanted.prepare(handle));
        Ok(RequestHandle::new(handle.submit(prepared.map_err(|error| raise(py, &error))?), raised, None))
    }

    /// Submits a prompt whose way is written down: with the drafts of each forward, and with all predictions, if asked for.
    #[pyo3(signature = (prompt: "tuple[str, Any]", options: "dict[str, Any]", drafts, predictions))]
    fn submit_traced(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
        drafts: bool,
        predictions: bool,
    ) -> PyResult<RequestHandle> {
        let handle = self.handle(py)?;
        let (wanted, raised) = Wanted::read(prompt, options)?;
        let mut prepared = py.detach(|| wanted.prepare(handle)).map_err(|error| raise(py, &error))?;
        if let Some(session) = prepared.session_mut().filter(|_| drafts) {
            session.tell_drafts();
        }
        if predictions {
            prepared.record();
        }
        let tracer = Tracer::new(handle.info(), wanted.options.seed.unwrap_or(0));
        let trace = py.detach(|| Trace::new(tracer, handle.texts()));
        Ok(RequestHandle::new(handle.submit_for_every_event(prepared), raised, Some(trace)))
    }

    /// Prepares many prompts, each with its options. Where one cannot be prepared, its exception is raised; if `keep` is set, it
    /// stands in its place.
    #[pyo3(signature = (wanted: "list[tuple[tuple[str, Any], dict[str, Any]]]", keep))]
    fn prepare_all<'py>(
        &self,
        py: Python<'py>,
        wanted: Vec<(Bound<'py, PyAny>, Bound<'py, PyDict>)>,
        keep: bool,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let handle = self.handle(py)?;
        let read =
            wanted.iter().map(|(prompt, options)| Wanted::read(prompt, options)).collect::<PyResult<Vec<_>>>()?;
        let (wanted, raised): (Vec<Wanted>, Vec<_>) = read.into_iter().unzip();
        let prepared: Vec<_> = py.detach(|| wanted.iter().map(|wanted| wanted.prepare(handle)).collect());
        let place = |(prepared, raised): (Result<_, _>, _)| match prepared {
            Ok(prepared) => Ok(Bound::new(py, batch::Prepared::new((prepared, raised)))?.into_any()),
            Err(error) if keep => Ok(raise(py, &error).into_value(py).into_bound(py).into_any()),
            Err(error) => Err(raise(py, &error)),
        };
        prepared.into_iter().zip(raised).map(place).collect()
    }

    /// Submits a prepared prompt, once.
    fn submit_prepared(&self, py: Python<'_>, prepared: &batch::Prepared) -> PyResult<RequestHandle> {
        let handle = self.handle(py)?;
        let again = || exception(py, "Error", "a prepared prompt is submitted once: prepare it again");
        let (prepared, raised) = prepared.take().ok_or_else(again)?;
        Ok(RequestHandle::new(handle.submit(prepared), raised, None))
    }

    /// Runs prepared prompts, `width` of them at the same time, and returns the fields of each answer in their order.
    /// An entry that is an exception already stays in its place. Where a request fails, its exception is raised and the
    /// others are given up, or put into its place if `keep` is set. `progress` is called with the number of those that
    /// are over.
    #[pyo3(signature = (prepared, width, keep, progress) -> "list[Any]")]
    fn answer_all<'py>(
        &self,
        py: Python<'py>,
        prepared: Vec<Bound<'py, PyAny>>,
        width: usize,
        keep: bool,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let handle = self.handle(py)?;
        let mut waiting = VecDeque::new();
        let mut places = Vec::new();
        for (number, one) in prepared.into_iter().enumerate() {
            let ready = one.cast::<batch::Prepared>().ok().and_then(|one| one.get().take());
            places.push(if ready.is_some() { None } else { Some(one) });
            waiting.extend(ready.map(|ready| (number, ready)));
        }
        let mut told = |done: usize| progress.as_ref().map_or(Ok(()), |progress| progress.call1((done,)).map(drop));
        Batch::new(handle, waiting, width).run(py, &mut places, keep, &mut told)?;
        Ok(places.into_iter().flatten().collect())
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

/// A prompt with the options of its answer.
struct Wanted {
    prompt: demask::Prompt,
    options: demask::Options,
    rule: Option<OwnRule>,
}

impl Wanted {
    /// Reads a prompt and keywords, and returns the place of a transfer rule's exception, if there is a rule.
    fn read(of: &Bound<'_, PyAny>, keywords: &Bound<'_, PyDict>) -> PyResult<(Self, Option<Raised>)> {
        let mut handed = None;
        if let Some(rule) = keywords.get_item("transfer")? {
            keywords.del_item("transfer")?;
            handed = rule.extract::<Option<Handed>>()?;
        }
        let (rule, raised) = handed.map(Handed::rule).unzip();
        let mut options = options(keywords)?;
        options.draw_seed();
        Ok((Self { prompt: prompt(of)?, options, rule }, raised))
    }

    fn prepare(&self, handle: &Handle) -> Result<Request, Error> {
        match &self.rule {
            Some(rule) => handle.prepare_by(rule.clone(), &self.prompt, &self.options),
            None => handle.prepare(&self.prompt, &self.options),
        }
    }
}

/// Facts about the model and its abilities.
fn info(model: &Model, fingerprint: u64) -> Value {
    let info = model.info();
    let facts = info.facts();
    let (attention, block) = match facts.mask {
        Mask::Full => ("full", None),
        Mask::BlockCausal { block, .. } => ("block", Some(block)),
        Mask::Context { block, .. } => ("by-pass", Some(block)),
        Mask::Causal => ("causal", None),
    };
    let (decoder, cache) = info.default_methods();
    let warnings: Vec<String> = info.warnings().iter().map(ToString::to_string).collect();
    json!({
        "name": model.name(),
        "fingerprint": format!("{fingerprint:016x}"),
        "family": info.family().name(),
        "attention": attention,
        "attention_block": block,
        "vocabulary": facts.vocab,
        "context": facts.context,
        "layers": info.spec().layers,
        "hidden": info.spec().hidden,
        "mask_token": facts.mask_id,
        "end_tokens": info.end_ids(),
        "gen_length": info.default_gen_length(),
        "block_length": info.recommended_block_length(),
        "decoder": decoder.to_string(),
        "cache": cache.to_string(),
        "guides": model.guides(),
        "device": model.device(),
        "weights_bytes": model.weight_bytes(),
        "load_seconds": model.load_time().as_secs_f64(),
        "warnings": warnings,
    })
}
