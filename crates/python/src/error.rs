//! Errors of the library as exceptions of the package, each with one line that says what to do.

use demask::{Error, ModelError};
use pyo3::{
    exceptions::{PyRuntimeError, PyTypeError},
    prelude::*,
    types::PyType,
};

/// Returns an exception of the package by the name of its class.
pub fn exception(py: Python<'_>, class: &str, message: &str) -> PyErr {
    let class =
        py.import("demask.errors").and_then(|module| module.getattr(class)?.cast_into::<PyType>().map_err(PyErr::from));
    match class {
        Ok(class) => PyErr::from_type(class, (message.to_owned(),)),
        // Without its Python half the package cannot have been imported.
        Err(_) => PyRuntimeError::new_err(message.to_owned()),
    }
}

/// Returns the exception of an error.
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::ShutDown => closed(py),
        error => exception(py, class(error), &error.to_string()),
    }
}

/// Returns the exception of a request to an engine that was closed.
pub fn closed(py: Python<'_>) -> PyErr {
    exception(py, "Closed", "the engine was closed: load the model again")
}

/// Returns a `TypeError`.
pub fn wrong_type(message: impl Into<String>) -> PyErr {
    PyTypeError::new_err(message.into())
}

/// The class of the package that an error belongs to.
pub fn class(error: &Error) -> &'static str {
    match error {
        Error::Hub(_)
        | Error::GuideNotCausal { .. }
        | Error::GuideWithoutTokenizer { .. }
        | Error::GuideTokenizer { .. } => "ModelError",
        Error::Model(error) => of_model(error),
        Error::NoTokenizer { .. }
        | Error::Checkpoint(_)
        | Error::TooLong { .. }
        | Error::TokenOutOfRange { .. }
        | Error::NoTokens
        | Error::MaskInPrompt
        | Error::NoHole
        | Error::BadHole { .. }
        | Error::InfillUnsupported { .. }
        | Error::EmptyLikelihood => "PromptError",
        Error::Open(_) => "OutOfMemory",
        Error::Device(_) => "DeviceError",
        Error::Interrupted => "Cancelled",
        Error::ShutDown => "Closed",
        error if error.is_expired() => "Expired",
        error if error.is_usage() => "OptionsError",
        _ => "Error",
    }
}

fn of_model(error: &ModelError) -> &'static str {
    match error {
        ModelError::TooLarge(_) | ModelError::Memory { .. } => "OutOfMemory",
        ModelError::Device(error) if error.is_usage() => "OptionsError",
        ModelError::Device(_) => "DeviceError",
        _ => "ModelError",
    }
}
