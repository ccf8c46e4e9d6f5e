//! Facts that need no model: its costs, and the abilities of this machine.

use std::path::PathBuf;

use demask::{
    DeviceOptions,
    costs::{CostError, Predicted, Subject, model_shape::ModelShape, shapes::ShapeError},
    doctor::Doctor,
    layers::model::Convention,
};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    error::{exception, raise},
    load,
    options::options,
};

/// Costs of an answer, as JSON: of a released shape (`like`), of a model's files, or of the built-in model.
#[pyfunction]
#[pyo3(signature = (model, like, settings: "dict[str, Any]", prompt_length, acceptance, keywords: "dict[str, Any]"))]
pub fn cost(
    py: Python<'_>,
    model: Option<PathBuf>,
    like: Option<&str>,
    settings: &Bound<'_, PyDict>,
    prompt_length: usize,
    acceptance: f64,
    keywords: &Bound<'_, PyDict>,
) -> PyResult<String> {
    let (load, options) = (load::read(settings)?, options(keywords)?);
    let refused = |what: String| exception(py, "OptionsError", &what);
    if prompt_length == 0 {
        return Err(refused("`prompt_tokens` is 0, expected at least 1".to_owned()));
    }
    if !(0.0..=1.0).contains(&acceptance) {
        return Err(refused(format!("`acceptance` is {acceptance}, expected a share from 0 to 1")));
    }
    let shape = if let Some(like) = like {
        let like = like.parse().map_err(|error: ShapeError| refused(error.to_string()))?;
        ModelShape::of_shape(like, None).map_err(|error| refused(error.to_string()))?
    } else {
        let opened = py.detach(|| load::opened(model.as_deref(), &load, &mut |_| true));
        ModelShape::of(opened.map_err(|error| raise(py, &error))?)
    };
    let costs = py.detach(|| {
        let device = &load.device_options(&DeviceOptions::default());
        let (convention, seed) = (Convention::default(), options.seed.unwrap_or(0));
        let subject = Subject { shape: &shape, options: &options, device, convention, seed };
        subject.costs(prompt_length, &Predicted::Assumed(acceptance))
    });
    let costs = costs.map_err(|error| match error {
        CostError::Answer(error) => raise(py, &error),
        error => refused(error.to_string()),
    })?;
    serde_json::to_string(&costs).map_err(|error| exception(py, "Error", &error.to_string()))
}

/// Abilities of this machine, as JSON. The measurement takes the processor for about a second.
#[pyfunction]
#[pyo3(signature = (settings: "dict[str, Any]"))]
pub fn doctor(py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<String> {
    let device = load::read(settings)?.device_options(&DeviceOptions::default());
    let found = py.detach(|| Doctor::look(&device));
    let found = found.map_err(|error| {
        exception(py, if error.is_usage() { "OptionsError" } else { "DeviceError" }, &error.to_string())
    })?;
    serde_json::to_string(&found).map_err(|error| exception(py, "Error", &error.to_string()))
}
