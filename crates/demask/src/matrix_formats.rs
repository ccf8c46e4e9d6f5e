//! What matrices become in memory: the blocks that a file has, or a format that takes more room.

use std::collections::BTreeMap;

use demask_model::{ArchSpec, Packing, Role, WeightError, expected_tensors};
use demask_tensor::Dtype;

use crate::BackendOptions;

/// Matrices that are stored in one type, and kept in one format.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct MatrixFormats {
    /// Type in the files.
    pub stored: String,
    /// Format in memory.
    #[serde(rename = "kept")]
    pub format: String,
    /// Number of tensors; experts count one by one.
    pub tensors: usize,
    /// Bytes in the files.
    pub stored_bytes: u64,
    /// Bytes in memory.
    pub bytes: u64,
}

impl MatrixFormats {
    /// Returns all matrices of an architecture on a device, in the order of the types in the files.
    pub fn of(
        spec: &ArchSpec,
        stored: &BTreeMap<Role, Dtype>,
        options: &BackendOptions,
    ) -> Result<Vec<Self>, WeightError> {
        let stored = |role| stored.get(&role).copied().ok_or(WeightError::Missing(role));
        let mut all: BTreeMap<[String; 2], Self> = BTreeMap::new();
        for tensor in expected_tensors(spec) {
            let Some(role) = matrix(tensor.role, spec).filter(|_| !tensor.vector) else { continue };
            let (rows, columns) = (tensor.rows, tensor.columns);
            // Gate and up are packed together, and each takes half.
            let (pair, bytes) = match partner(role) {
                Some((gate, up)) => {
                    let pair = [stored(gate)?, stored(up)?];
                    (pair, options.gate_up_bytes(pair, rows, columns) / 2)
                }
                None => ([stored(role)?; 2], options.matrix_bytes(stored(role)?, rows, columns)),
            };
            let dtype = stored(role)?;
            let (name, kept) = (dtype.to_string(), options.matrix_format(pair));
            let sum = all.entry([name.clone(), kept.clone()]).or_insert_with(|| Self {
                stored: name,
                format: kept,
                tensors: 0,
                stored_bytes: 0,
                bytes: 0,
            });
            sum.tensors += 1;
            sum.stored_bytes += dtype.row_bytes(columns).map_or(0, |row| (row * rows) as u64);
            sum.bytes += bytes;
        }
        Ok(all.into_values().collect())
    }

    /// Reports whether blocks of the file take more memory than there: a tenth at least, for scales that become bytes take a
    /// little.
    pub fn widened(&self) -> bool {
        let blocks = !["f32", "f16", "bf16"].contains(&self.stored.as_str());
        blocks && self.bytes / 11 > self.stored_bytes / 10
    }
}

/// The role of a tensor that is packed as a matrix: routers are kept in f32, and a table of embeddings is one where it is the
/// head too.
fn matrix(role: Role, spec: &ArchSpec) -> Option<Role> {
    match role {
        Role::Embedding => spec.tied.then_some(role),
        Role::Layer(_, part) if part.packing() == Packing::Router => None,
        role => Some(role),
    }
}

/// Gate and up of a tensor that is one of them.
fn partner(role: Role) -> Option<(Role, Role)> {
    let Role::Layer(layer, part) = role else { return None };
    match part.packing() {
        Packing::Gate { up } => Some((role, Role::Layer(layer, up))),
        Packing::Up { gate } => Some((Role::Layer(layer, gate), role)),
        _ => None,
    }
}
