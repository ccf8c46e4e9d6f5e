//! Tensors of files, found and checked.

use demask_tensor::Dtype;
use serde_json::Value;

use crate::{CheckpointError, header::TensorInfo};

/// A tensor that has been found and checked.
#[derive(Debug)]
pub(crate) struct Located {
    pub shard: usize,
    pub start: usize,
    pub end: usize,
    pub dtype: Dtype,
    pub rows: usize,
    pub columns: usize,
    /// Width of heads whose rows the file has in pairs.
    pub paired: Option<usize>,
}

/// Returns the type of a tensor of a safetensors file.
pub(crate) fn dtype_of(file: &str, name: &str, info: &TensorInfo) -> Result<Dtype, CheckpointError> {
    match info.dtype.as_str() {
        "F32" => Ok(Dtype::F32),
        "F16" => Ok(Dtype::F16),
        "BF16" => Ok(Dtype::Bf16),
        other => Err(CheckpointError::TensorType {
            file: file.to_owned(),
            tensor: name.to_owned(),
            found: Value::from(other.chars().take(20).collect::<String>()).to_string(),
        }),
    }
}
