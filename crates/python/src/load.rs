//! Loading of an engine from a model's name and keywords.

use std::path::{Path, PathBuf};

use demask::{Error, LoadOptions, LoadProgress, Model, Opened, Settings as _};
use demask_settings::{foreign, names::UnknownName};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    engine::Engine,
    error::{raise, wrong_type},
    options::set,
};

/// The keywords of a load: all options but the model, which is an argument.
fn keywords() -> impl Iterator<Item = &'static str> {
    LoadOptions::FIELDS.iter().map(|field| field.name).filter(|name| *name != "model")
}

/// Reads the keywords of a load. A keyword that is `None` is not set.
///
/// # Errors
/// `TypeError` for a name that is none of them and for a value of another type, `OptionsError` for a wrong word.
pub fn read(given: &Bound<'_, PyDict>) -> PyResult<LoadOptions> {
    let mut options = LoadOptions::default();
    for (name, value) in given {
        let name: String = name.extract()?;
        if !keywords().any(|known| known == name) {
            if let Some(foreign) = foreign::setting(&name) {
                return Err(wrong_type(format!("unknown {} \"{name}\", {foreign}", LoadOptions::WHAT)));
            }
            let unknown = UnknownName { what: LoadOptions::WHAT, found: name, known: keywords().collect() };
            return Err(wrong_type(unknown.to_string()));
        }
        set(&mut options, &name, &value)?;
    }
    Ok(options)
}

/// Opens a model and its guides, the built-in model without a name; the weights stay where they are.
///
/// # Errors
/// If it is not there or cannot be read, or a guide does not go with it.
pub fn opened(
    model: Option<&Path>,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadProgress<'_>) -> bool,
) -> Result<Opened, Error> {
    Model::builder().options(options.clone()).progress(progress).opened(model)
}

/// Opens a model, the built-in one if none is named, and starts its thread. The keywords are those of `demask.load`.
/// `progress(name, done, total)` is called with the bytes that were read and those there are.
#[pyfunction]
#[pyo3(signature = (model, keywords: "dict[str, Any]", progress = None))]
pub fn open(
    py: Python<'_>,
    model: Option<PathBuf>,
    keywords: &Bound<'_, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Engine> {
    let options = read(keywords)?;
    let mut broken = None;
    let loaded = py.detach(|| {
        let mut watch = |progressed: LoadProgress<'_>| match report_progress(progress.as_ref(), progressed) {
            Ok(()) => true,
            Err(error) => {
                broken = Some(error);
                false
            }
        };
        let opened = opened(model.as_deref(), &options, &mut watch)?;
        let fingerprint = opened.fingerprint();
        let builder = Model::builder().options(options).progress(&mut watch);
        builder.load(opened).map(|model| (model, fingerprint))
    });
    match (broken, loaded) {
        (Some(broken), _) => Err(broken),
        (None, Err(error)) => Err(raise(py, &error)),
        (None, Ok((model, fingerprint))) => Ok(Engine::start(model, fingerprint)),
    }
}

/// Reports progress to Python, and ends the loading at Ctrl-C.
fn report_progress(
    progress: Option<&Py<PyAny>>,
    LoadProgress { name, done, total, .. }: LoadProgress<'_>,
) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        progress.map_or(Ok(()), |progress| progress.call1(py, (name, done, total)).map(drop))
    })
}
