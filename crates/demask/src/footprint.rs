//! Memory that a model needs, computed from shapes before anything is loaded.

use std::collections::BTreeMap;

use demask_checkpoint::{AdapterFacts, AdapterMatrix, StoredWeights};
use demask_model::{
    ArchSpec, LayerRole, Packing, Role, WeightError, attention_shape, expected_tensors, sequence_pages, workspace_shape,
};
use demask_step::SequenceLimits;
use demask_tensor::{Dtype, WorkspaceShape};

use crate::{BackendOptions, WeightChoice};

/// Bytes that a model takes on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Footprint {
    /// Packed weights and the embedding table, exactly.
    pub weights: u64,
    /// Bytes that steps write beside K and V, a rough upper bound.
    pub workspace: u64,
    /// Pages of the sequences that are open at the same time, exactly.
    pub cache: u64,
}

impl Footprint {
    /// Returns the footprint of a model whose weights are stored in these types, perhaps with an adapter, with joined
    /// steps of up to `row_budget` rows and sequences with these needs.
    ///
    /// # Errors
    /// If a tensor is missing.
    pub fn of(
        spec: &ArchSpec,
        (stored, adapter): (&BTreeMap<Role, Dtype>, Option<&AdapterFacts>),
        options: &BackendOptions,
        row_budget: usize,
        sequences: &[SequenceLimits],
    ) -> Result<Self, WeightError> {
        let cache = sequences.iter().map(|needs| {
            let (pages, kind) = sequence_pages(needs);
            pages as u64 * options.page_bytes(&attention_shape(spec), spec.layers, spec.hidden, kind)
        });
        Ok(Self {
            weights: WeightBytes::of(spec, (stored, adapter), options)?.total(),
            workspace: options.workspace_bytes(&workspace_with(spec, adapter, row_budget, sequences)),
            cache: cache.sum(),
        })
    }

    /// Returns the footprint of a model in files, with its adapter.
    ///
    /// # Errors
    /// As [`Footprint::of`].
    pub fn of_files(
        spec: &ArchSpec,
        source: &StoredWeights,
        options: &BackendOptions,
        row_budget: usize,
        sequences: &[SequenceLimits],
    ) -> Result<Self, WeightError> {
        Self::of(spec, (&source.stored(), source.adapter_facts()), options, row_budget, sequences)
    }

    /// Returns all of it.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.workspace).saturating_add(self.cache)
    }
}

/// Returns the workspace of a model, with what an adapter beside the weights takes.
pub(crate) fn workspace_with(
    spec: &ArchSpec,
    adapter: Option<&AdapterFacts>,
    row_budget: usize,
    sequences: &[SequenceLimits],
) -> WorkspaceShape {
    let beside = adapter.filter(|facts| !facts.beside().is_empty());
    let adapter_rank = beside.map_or(0, |facts| facts.ranks[1]);
    WorkspaceShape { adapter_rank, ..workspace_shape(spec, row_budget, sequences) }
}

/// Bytes of the weights as they are packed, by module: a tied head is packed beside the table, vectors are f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WeightBytes {
    /// The embedding table, of which a forward reads a row for each of its own.
    pub embedding: u64,
    /// Q, K, V and the projection after attention, with their norms and biases.
    pub projections: u64,
    /// The MLPs with their norms, routers and what all rows take.
    pub mlp: u64,
    /// Experts that rows choose among.
    pub experts: u64,
    /// The head with its norm.
    pub head: u64,
}

impl WeightBytes {
    /// Returns those of an architecture whose weights are stored in these types, perhaps with an adapter.
    ///
    /// # Errors
    /// If a tensor is missing.
    pub fn of(
        spec: &ArchSpec,
        (stored, adapter): (&BTreeMap<Role, Dtype>, Option<&AdapterFacts>),
        options: &BackendOptions,
    ) -> Result<Self, WeightError> {
        let stored = |role| stored.get(&role).copied().ok_or(WeightError::Missing(role));
        let mut bytes = Self::default();
        for tensor in expected_tensors(spec) {
            let (role, rows, columns) = (tensor.role, tensor.rows, tensor.columns);
            let packed = match role {
                _ if tensor.vector => (columns * size_of::<f32>()) as u64,
                Role::Embedding => options.embedding_bytes(stored(role)?, rows, columns),
                Role::Layer(layer, part) => match part.packing() {
                    Packing::Gate { up } => {
                        let up = stored(Role::Layer(layer, up))?;
                        options.gate_up_bytes([stored(role)?, up], rows, columns)
                    }
                    // Counted with its gate.
                    Packing::Up { .. } => 0,
                    Packing::Router => options.router_bytes(rows, columns),
                    Packing::Alone => options.matrix_bytes(stored(role)?, rows, columns),
                },
                _ => options.matrix_bytes(stored(role)?, rows, columns),
            };
            let module = bytes.module(role);
            *module = module.saturating_add(packed);
        }
        if spec.tied {
            let head = options.matrix_bytes(stored(Role::Embedding)?, spec.vocabulary, spec.hidden);
            bytes.head = bytes.head.saturating_add(head);
        }
        for &AdapterMatrix { part, dtype, rows, columns } in adapter.map_or(&[][..], AdapterFacts::beside) {
            let module = bytes.module(Role::Layer(0, part));
            *module = module.saturating_add(options.matrix_bytes(dtype, rows, columns));
        }
        Ok(bytes)
    }

    /// Returns all of them.
    pub fn total(&self) -> u64 {
        [self.embedding, self.projections, self.mlp, self.experts, self.head].into_iter().fold(0, u64::saturating_add)
    }

    /// The module of a tensor.
    fn module(&mut self, role: Role) -> &mut u64 {
        match role {
            Role::Embedding => &mut self.embedding,
            Role::FinalNorm | Role::Head => &mut self.head,
            Role::Layer(_, LayerRole::ExpertGate(_) | LayerRole::ExpertUp(_) | LayerRole::ExpertDown(_)) => {
                &mut self.experts
            }
            Role::Layer(_, role) if role.is_mlp() => &mut self.mlp,
            Role::Layer(..) => &mut self.projections,
        }
    }
}

/// A model that does not fit into memory, found out before it is loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name} needs {} MiB of {memory} ({} of weights, {} of workspace, {} of K/V) and {} MiB are available: {}",
    mebibytes(needed.total()), mebibytes(needed.weights), mebibytes(needed.workspace), mebibytes(needed.cache),
    available >> 20, advice(*.fitting)
)]
pub struct TooLarge {
    /// The model.
    pub name: String,
    /// Device whose memory is too small.
    pub memory: String,
    /// Memory that the model needs.
    pub needed: Footprint,
    /// Bytes that there are.
    pub available: u64,
    /// Format of the weights in which the model would fit, and the bytes that it would need then.
    pub fitting: Option<(WeightChoice, u64)>,
}

impl TooLarge {
    /// Refuses a model that needs more than is `available` of some `memory`. `needs` returns the needs for any way to keep weights.
    pub fn check(
        name: &str,
        memory: &str,
        chosen: WeightChoice,
        needs: impl Fn(WeightChoice) -> Footprint,
        available: u64,
    ) -> Result<(), Self> {
        let needed = needs(chosen);
        if needed.total() <= available {
            return Ok(());
        }
        let smaller = [WeightChoice::Q8, WeightChoice::Q4].map(|choice| (choice, needs(choice).total()));
        let fitting = smaller.into_iter().find(|&(_, total)| total <= available);
        Err(Self { name: name.to_owned(), memory: memory.to_owned(), needed, available, fitting })
    }
}

/// Rounded up: so much is enough.
fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

fn advice(fitting: Option<(WeightChoice, u64)>) -> String {
    match fitting {
        Some((choice, total)) => format!("`quantize` {choice} needs {} MiB", mebibytes(total)),
        None => "no `quantize` makes it fit".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn check(chosen: WeightChoice, available: u64) -> Result<(), String> {
        let needs = |choice| {
            let weights = match choice {
                WeightChoice::Plain => 160 * MIB,
                WeightChoice::Q8 => 85 * MIB,
                WeightChoice::Q4 => 45 * MIB,
            };
            Footprint { weights, workspace: 3 * MIB, cache: 2 * MIB - 1 }
        };
        TooLarge::check("m", "memory", chosen, needs, available).map_err(|error| error.to_string())
    }

    #[test]
    fn what_fits_is_let_through() {
        assert_eq!(check(WeightChoice::Plain, 165 * MIB), Ok(()));
        assert_eq!(check(WeightChoice::Q8, 165 * MIB), Ok(()));
        assert_eq!(check(WeightChoice::Q4, 50 * MIB - 1), Ok(()));
    }

    #[test]
    fn a_refusal_says_what_would_fit() {
        let told = "m needs 165 MiB of memory (160 of weights, 3 of workspace, 2 of K/V) and 90 MiB are available: ";
        assert_eq!(check(WeightChoice::Plain, 90 * MIB), Err(format!("{told}`quantize` q8 needs 90 MiB")));
        let refused = check(WeightChoice::Plain, 60 * MIB).unwrap_err();
        assert!(refused.ends_with("60 MiB are available: `quantize` q4 needs 50 MiB"), "{refused}");
        let refused = check(WeightChoice::Q8, 60 * MIB).unwrap_err();
        assert!(refused.starts_with("m needs 90 MiB") && refused.contains("`quantize` q4"), "{refused}");
        let refused = check(WeightChoice::Q4, 49 * MIB).unwrap_err();
        assert!(refused.ends_with("49 MiB are available: no `quantize` makes it fit"), "{refused}");
    }
}
