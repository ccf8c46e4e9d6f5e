//! The cost curves of a results directory: measured once for each model and machine, and read again by whoever goes on
//! there, so that what decoders choose by them does not change between two calls.

use std::{fs, io, path::Path};

use demask::{Model, SharedCurve};
use demask_figures::files::{WriteError, write_whole};
use serde_json::Value;

use super::StoreError;

/// Name of the file with the curves.
pub const CURVES: &str = "curves.json";

/// Gives a model the curve that a directory keeps of it on this machine, or measures it and keeps it there.
///
/// # Errors
/// If the file cannot be read or written, or holds something else.
pub fn settle(model: &mut Model, directory: &Path) -> Result<(), StoreError> {
    if model.has_curve() {
        return Ok(());
    }
    let path = directory.join(CURVES);
    let mut kept = read(&path)?;
    let (machine, name) = model.curve_names();
    let own = |curve: &&SharedCurve| curve.curve().machine() == machine && curve.curve().model() == name;
    if let Some(curve) = kept.iter().find(own) {
        model.use_curve(curve.clone());
        return Ok(());
    }
    kept.push(model.curve());
    let curves: Vec<Value> = kept.iter().map(SharedCurve::to_value).collect();
    let text = serde_json::to_string(&curves).map_err(|error| wrong(&path, &error))?;
    write_whole(&path, (text + "\n").as_bytes()).map_err(|WriteError { path, error }| StoreError::Io {
        what: "write",
        path,
        error,
    })
}

fn read(path: &Path) -> Result<Vec<SharedCurve>, StoreError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::Io { what: "read", path: path.to_owned(), error }),
    };
    let values: Vec<Value> = serde_json::from_str(&text).map_err(|error| wrong(path, &error))?;
    values.iter().map(|value| SharedCurve::from_value(value).map_err(|error| wrong(path, &error))).collect()
}

fn wrong(path: &Path, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Curves { path: path.to_owned(), error: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_the_curve_that_was_measured_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(CURVES);
        let mut first = Model::demo().unwrap();
        settle(&mut first, directory.path()).unwrap();
        let kept = fs::read(&path).unwrap();
        // Measured anew it would hardly be the same to the bit.
        let mut second = Model::demo().unwrap();
        settle(&mut second, directory.path()).unwrap();
        assert_eq!(first.curve(), second.curve());
        assert_eq!(fs::read(&path).unwrap(), kept);
        for (text, told) in [("[", "EOF while parsing"), ("[3]", "a cost curve needs a text `machine`")] {
            fs::write(&path, text).unwrap();
            let refused = settle(&mut Model::demo().unwrap(), directory.path()).unwrap_err().to_string();
            assert!(refused.contains("curves.json holds no cost curves (") && refused.contains(told), "{refused}");
            assert!(refused.ends_with("remove that file, or name another `out`"), "{refused}");
        }
    }
}
