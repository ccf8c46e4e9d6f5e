//! Loading of an engine from a model's name and keywords.

use std::{fmt::Display, path::PathBuf, str::FromStr};

use demask::{
    AdapterChoice, Builder, Error, FamilyChoice, LoadProgress, Model,
    internals::{DeviceOptions, Opened, decode::names::UnknownName},
};
use pyo3::{
    prelude::*,
    types::{PyDict, PyString},
};

use crate::{
    engine::Engine,
    error::{exception, raise, wrong_type},
};

/// Settings from the keywords of `demask.load`.
#[derive(Default)]
pub struct Settings {
    /// Device of the model, and its number formats.
    pub device: DeviceOptions,
    /// Guides, with the names that they are given.
    guides: Vec<(Option<String>, String)>,
    /// Family that the model's files are read as.
    family: Option<FamilyChoice>,
    /// Adapter beside the model, and its use.
    adapter: Option<String>,
    adapter_use: Option<AdapterChoice>,
    /// Bytes that are kept of prefixes, if that is said.
    pub prefix_bytes: Option<u64>,
}

/// The keywords of a load.
const KNOWN: [&str; 10] = [
    "device",
    "dtype",
    "quantize",
    "activations",
    "threads",
    "guide",
    "family",
    "adapter",
    "adapter_use",
    "prefix_cache",
];

impl Settings {
    /// Reads keywords. What is `None` is not set.
    ///
    /// # Errors
    /// `TypeError` for a name that is none of them and for a value of another type, `OptionsError` for a wrong word.
    pub fn read(keywords: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut settings = Self::default();
        for (name, value) in keywords {
            if !value.is_none() {
                settings.set(name.extract::<&str>()?, &value)?;
            }
        }
        if settings.adapter.is_none() && settings.adapter_use.is_some() {
            return Err(wrong_type(
                "adapter_use says how an adapter is used, and none is named: give adapter".to_owned(),
            ));
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let device = &mut self.device;
        match name {
            "device" => device.device = word(name, value)?,
            "dtype" => device.dtype = word(name, value)?,
            "quantize" => device.quantize = word(name, value)?,
            "activations" => device.activations = word(name, value)?,
            "threads" => device.threads = Some(count(name, value)?),
            "prefix_cache" => self.prefix_bytes = Some((count(name, value)? as u64) << 20),
            "guide" => self.guides = guides(value)?,
            "family" => self.family = Some(word(name, value)?),
            "adapter" => self.adapter = Some(path(name, value, "a directory or the id of a hub")?),
            "adapter_use" => self.adapter_use = Some(word(name, value)?),
            other => {
                let unknown = UnknownName { what: "setting", found: other.to_owned(), known: KNOWN.to_vec() };
                return Err(wrong_type(unknown.to_string()));
            }
        }
        Ok(())
    }

    /// Opens a model and its guides, the built-in model if none is named; the weights stay where they are.
    ///
    /// # Errors
    /// If it is not there or cannot be read, or a guide does not go with it.
    pub fn opened(
        &self,
        model: Option<&PathBuf>,
        progress: &mut dyn FnMut(LoadProgress<'_>) -> bool,
    ) -> Result<Opened, Error> {
        let mut builder = self.builder(progress);
        match model {
            Some(name) => builder.opened(name),
            None => builder.opened_demo(),
        }
    }

    /// Loads a model that was opened.
    ///
    /// # Errors
    /// If the device cannot be used, or has no room for it.
    pub fn load(&self, opened: Opened, progress: &mut dyn FnMut(LoadProgress<'_>) -> bool) -> Result<Model, Error> {
        self.builder(progress).load(opened)
    }

    fn builder<'a>(&self, progress: &'a mut dyn FnMut(LoadProgress<'_>) -> bool) -> Builder<'a> {
        let builder = Model::builder().device_options(self.device.clone()).progress(progress);
        let builder = match self.prefix_bytes {
            Some(bytes) => builder.prefix_cache(bytes),
            None => builder,
        };
        let builder = match &self.family {
            Some(family) => builder.family(family.clone()),
            None => builder,
        };
        let builder = match &self.adapter {
            Some(adapter) => builder.adapter(adapter, self.adapter_use.unwrap_or_default()),
            None => builder,
        };
        self.guides.iter().fold(builder, |builder, (name, model)| match name {
            Some(name) => builder.named_guide(name, model),
            None => builder.guide(model),
        })
    }
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
    let settings = Settings::read(keywords)?;
    let mut broken = None;
    let loaded = py.detach(|| {
        let mut watch = |progressed: LoadProgress<'_>| match told(progress.as_ref(), progressed) {
            Ok(()) => true,
            Err(error) => {
                broken = Some(error);
                false
            }
        };
        let opened = settings.opened(model.as_ref(), &mut watch)?;
        let fingerprint = opened.fingerprint();
        settings.load(opened, &mut watch).map(|model| (model, fingerprint))
    });
    match (broken, loaded) {
        (Some(broken), _) => Err(broken),
        (None, Err(error)) => Err(raise(py, &error)),
        (None, Ok((model, fingerprint))) => Ok(Engine::start(model, fingerprint)),
    }
}

/// Reports progress to Python, and ends the loading at Ctrl-C.
fn told(progress: Option<&Py<PyAny>>, LoadProgress { name, done, total, .. }: LoadProgress<'_>) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        progress.map_or(Ok(()), |progress| progress.call1(py, (name, done, total)).map(drop))
    })
}

/// A word of a device's settings.
fn word<T: FromStr<Err: Display>>(name: &str, value: &Bound<'_, PyAny>) -> PyResult<T> {
    let text = value.cast::<PyString>().map_err(|_| expected(name, value, "a text"))?;
    text.to_str()?.parse().map_err(|error: T::Err| exception(value.py(), "OptionsError", &error.to_string()))
}

fn count(name: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let count: i64 = value.extract().map_err(|_| expected(name, value, "a whole number"))?;
    let refused = || format!("`{name}` is {count}, expected a whole number from 0 on");
    usize::try_from(count).map_err(|_| exception(value.py(), "OptionsError", &refused()))
}

fn path(name: &str, value: &Bound<'_, PyAny>, what: &str) -> PyResult<String> {
    let path: PathBuf = value.extract().map_err(|_| expected(name, value, what))?;
    Ok(path.to_string_lossy().into_owned())
}

/// A guide's model, or several by their names.
fn guides(value: &Bound<'_, PyAny>) -> PyResult<Vec<(Option<String>, String)>> {
    let path = |value: &Bound<'_, PyAny>| path("guide", value, "a model, or a dict of models by name");
    match value.cast::<PyDict>() {
        Ok(named) => named.iter().map(|(name, model)| Ok((Some(name.extract()?), path(&model)?))).collect(),
        Err(_) => Ok(vec![(None, path(value)?)]),
    }
}

fn expected(name: &str, value: &Bound<'_, PyAny>, what: &str) -> PyErr {
    let found = value.get_type().name().map_or_else(|_| "another type".to_owned(), |name| name.to_string());
    wrong_type(format!("`{name}` is of type {found}, expected {what}"))
}
