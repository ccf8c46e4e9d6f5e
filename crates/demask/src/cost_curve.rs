//! Cost curves of models on machines: measured from a few layers and the head, kept in files, replayed from them.

mod measure;

pub(crate) use measure::curve_model;

use std::{io, path::PathBuf, sync::Arc};

use demask_step::{CostCurve, CurveError, HeadPoint, LayersPoint};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// The name of the curve that is part of this library.
const SHIPPED: &str = "shipped";

/// A cost curve, shared by everything that asks it.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedCurve(Arc<CostCurve>);

/// A cost curve that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CurveFileError {
    /// Error: the file does not exist, or cannot be opened.
    #[error("cannot read the cost curve {}: {error}; `demask bench curve --out FILE` writes one, and `shipped` names the built-in one", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// Error: the file is not JSON.
    #[error("the cost curve {} is no JSON ({error}): expected what `demask bench curve --out FILE` writes", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Error of the parser, with its place.
        error: serde_json::Error,
    },
    /// Error: the JSON is not a curve.
    #[error("a cost curve needs {0}: expected what `demask bench curve --out FILE` writes")]
    Shape(&'static str),
    /// Error: the points make no curve.
    #[error("a cost curve is not usable: {0}")]
    Points(#[from] CurveError),
    /// Error: the hash differs from that of the points.
    #[error(
        "a cost curve says that its hash is {told}, and its points have {found}: it was changed by hand, or cut; measure it again"
    )]
    Hash {
        /// Hash in the file.
        told: String,
        /// Hash of the points.
        found: String,
    },
}

impl SharedCurve {
    /// Returns the curve itself.
    pub fn curve(&self) -> Arc<CostCurve> {
        Arc::clone(&self.0)
    }

    /// Reads a file, or returns the built-in curve by its name.
    ///
    /// # Errors
    /// If there is no such file, or it holds no curve.
    pub fn named(name: &str) -> Result<Self, CurveFileError> {
        if name == SHIPPED {
            return Ok(CostCurve::shipped().into());
        }
        let path = PathBuf::from(name);
        let text = match crate::plain::read(&path) {
            Ok(text) => text,
            Err(error) => return Err(CurveFileError::Read { path, error }),
        };
        let value = serde_json::from_str(&text).map_err(|error| CurveFileError::Json { path, error })?;
        Self::from_value(&value)
    }

    /// Reads JSON: the curve itself, or the built-in one's name.
    ///
    /// # Errors
    /// If it is not a curve.
    pub fn from_value(value: &Value) -> Result<Self, CurveFileError> {
        if value == SHIPPED {
            return Ok(CostCurve::shipped().into());
        }
        let text = |key: &str, what| value[key].as_str().map(str::to_owned).ok_or(CurveFileError::Shape(what));
        let (machine, model) = (text("machine", "a text `machine`")?, text("model", "a text `model`")?);
        let layers =
            points(&value["layers"], 3).ok_or(CurveFileError::Shape("`layers`: [rows, keys, seconds], ..."))?;
        let head = points(&value["head"], 2).ok_or(CurveFileError::Shape("`head`: [rows, seconds], ..."))?;
        let layers =
            layers.iter().map(|(counts, seconds)| LayersPoint { rows: counts[0], keys: counts[1], seconds: *seconds });
        let head = head.iter().map(|(counts, seconds)| HeadPoint { rows: counts[0], seconds: *seconds });
        let curve = CostCurve::new(machine, model, layers.collect(), head.collect())?;
        let found = hash(&curve);
        match value["hash"].as_str() {
            Some(told) if told != found => Err(CurveFileError::Hash { told: told.to_owned(), found }),
            _ => Ok(curve.into()),
        }
    }

    /// Returns what stands in a file.
    pub fn to_value(&self) -> Value {
        let layers: Vec<_> = self.0.layers().iter().map(|at| json!([at.rows, at.keys, at.seconds])).collect();
        let head: Vec<_> = self.0.head().iter().map(|at| json!([at.rows, at.seconds])).collect();
        json!({
            "machine": self.0.machine(),
            "model": self.0.model(),
            "hash": hash(&self.0),
            "layers": layers,
            "head": head,
        })
    }
}

impl From<CostCurve> for SharedCurve {
    fn from(curve: CostCurve) -> Self {
        Self(Arc::new(curve))
    }
}

impl Serialize for SharedCurve {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(serializer)
    }
}

fn hash(curve: &CostCurve) -> String {
    format!("{:016x}", curve.hash())
}

/// Lists of `width` numbers, the last of which are seconds and the others counts.
fn points(value: &Value, width: usize) -> Option<Vec<(Vec<usize>, f64)>> {
    let point = |value: &Value| {
        let numbers = value.as_array().filter(|numbers| numbers.len() == width)?;
        let (seconds, counts) = numbers.split_last()?;
        let counts: Option<Vec<usize>> = counts.iter().map(|count| usize::try_from(count.as_u64()?).ok()).collect();
        Some((counts?, seconds.as_f64()?))
    };
    value.as_array()?.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let curve = SharedCurve::from(CostCurve::shipped());
        let text = curve.to_value().to_string();
        let again = SharedCurve::from_value(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!((again.0.hash(), &again), (curve.0.hash(), &curve));
        assert_eq!(SharedCurve::named("shipped").unwrap(), curve);
        assert_eq!(SharedCurve::from_value(&json!("shipped")).unwrap(), curve);
        assert!(SharedCurve::from_value(&json!("curve.json")).is_err(), "JSON names no files");
    }

    #[test]
    fn what_is_no_curve_is_refused_in_one_line() {
        let whole = SharedCurve::from(CostCurve::shipped()).to_value();
        let changed = |key: &str, value: Value| {
            let mut changed = whole.clone();
            changed[key] = value;
            SharedCurve::from_value(&changed).unwrap_err().to_string()
        };
        for (key, value, told) in [
            ("machine", json!(1), "a cost curve needs a text `machine`"),
            ("layers", json!([[1, 2]]), "a cost curve needs `layers`: [rows, keys, seconds], ..."),
            ("layers", json!([[1, -2, 0.1]]), "a cost curve needs `layers`"),
            ("layers", json!([]), "a cost curve is not usable: `layers` has no point"),
            ("head", json!("x"), "a cost curve needs `head`: [rows, seconds], ..."),
            ("head", json!([[1, 0.0]]), "a cost curve is not usable: point 0 of `head`"),
            ("head", json!([[1, 0.5]]), "a cost curve says that its hash is "),
        ] {
            let refused = changed(key, value);
            assert!(refused.starts_with(told) && !refused.contains('\n'), "{refused}");
        }
        let refused = SharedCurve::named("no/such/file").unwrap_err().to_string();
        assert!(refused.starts_with("cannot read the cost curve no/such/file: "), "{refused}");
    }
}
