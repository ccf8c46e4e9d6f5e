//! Tensors by what they do, whatever a checkpoint calls them.

use std::fmt;

use demask_tensor::StoredTensor;

use crate::{AdapterUse, ArchSpec, Experts, Mlp, StoredLora};

/// Role of a tensor in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Token embeddings, `[vocabulary, hidden]`.
    Embedding,
    /// Norm in front of the head, `[hidden]`.
    FinalNorm,
    /// Head, `[vocabulary, hidden]`; absent in tied models.
    Head,
    /// A tensor of one layer.
    Layer(usize, LayerRole),
}

/// Role of a tensor in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerRole {
    /// Norm in front of attention, `[hidden]`.
    AttentionNorm,
    /// `[heads * head_dim, hidden]`.
    Query,
    /// `[kv_heads * head_dim, hidden]`.
    Key,
    /// `[kv_heads * head_dim, hidden]`.
    Value,
    /// `[heads * head_dim]`.
    QueryBias,
    /// `[kv_heads * head_dim]`.
    KeyBias,
    /// `[kv_heads * head_dim]`.
    ValueBias,
    /// Norm of each query head, `[head_dim]`.
    QueryNorm,
    /// Norm of each key head, `[head_dim]`.
    KeyNorm,
    /// Output projection, `[hidden, heads * head_dim]`.
    Output,
    /// Norm in front of the MLP, `[hidden]`.
    MlpNorm,
    /// Gate (SiLU goes here), `[ffn, hidden]`.
    Gate,
    /// `[ffn, hidden]`.
    Up,
    /// `[hidden, ffn]`.
    Down,
    /// Scores of experts, `[experts, hidden]`.
    Router,
    /// Added to scores for the choice, `[experts]`.
    RouterBias,
    /// Gate of an expert, `[expert ffn, hidden]`.
    ExpertGate(usize),
    /// Weight up of an expert, `[expert ffn, hidden]`.
    ExpertUp(usize),
    /// Down of an expert, `[hidden, expert ffn]`.
    ExpertDown(usize),
    /// Gate of the expert that all rows take, `[shared ffn, hidden]`.
    SharedGate,
    /// Weight up of the expert that all rows take, `[shared ffn, hidden]`.
    SharedUp,
    /// Down of the expert that all rows take, `[hidden, shared ffn]`.
    SharedDown,
}

/// Packing of a tensor of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Gate, packed together with its up.
    Gate {
        /// The up.
        up: LayerRole,
    },
    /// Weight up, packed together with its gate.
    Up {
        /// The gate.
        gate: LayerRole,
    },
    /// Router that scores experts, kept in f32.
    Router,
    /// Tensor that is packed alone.
    Alone,
}

impl LayerRole {
    /// Returns how it is packed.
    pub fn packing(self) -> Packing {
        match self {
            Self::Gate => Packing::Gate { up: Self::Up },
            Self::ExpertGate(expert) => Packing::Gate { up: Self::ExpertUp(expert) },
            Self::SharedGate => Packing::Gate { up: Self::SharedUp },
            Self::Up => Packing::Up { gate: Self::Gate },
            Self::ExpertUp(expert) => Packing::Up { gate: Self::ExpertGate(expert) },
            Self::SharedUp => Packing::Up { gate: Self::SharedGate },
            Self::Router => Packing::Router,
            _ => Packing::Alone,
        }
    }

    /// Returns whether it is a product that can have an adapter beside it.
    pub fn takes_adapter(self) -> bool {
        matches!(self, Self::Query | Self::Key | Self::Value | Self::Output | Self::Gate | Self::Up | Self::Down)
    }

    /// Returns whether it follows attention: in the MLP, with its norm, its router and its experts.
    pub fn is_mlp(self) -> bool {
        self >= Self::MlpNorm
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedding => f.write_str("embedding"),
            Self::FinalNorm => f.write_str("final norm"),
            Self::Head => f.write_str("head"),
            Self::Layer(layer, LayerRole::ExpertGate(expert)) => write!(f, "Gate of expert {expert} of layer {layer}"),
            Self::Layer(layer, LayerRole::ExpertUp(expert)) => write!(f, "Up of expert {expert} of layer {layer}"),
            Self::Layer(layer, LayerRole::ExpertDown(expert)) => write!(f, "Down of expert {expert} of layer {layer}"),
            Self::Layer(layer, role) => write!(f, "{role:?} of layer {layer}"),
        }
    }
}

/// A tensor that an architecture must have; vectors have one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedTensor {
    /// Role of the tensor.
    pub role: Role,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Records whether it is a vector, stored with one dimension.
    pub vector: bool,
}

/// Gate, up and down of an expert.
pub(crate) fn expert_roles(expert: usize) -> [LayerRole; 3] {
    [LayerRole::ExpertGate(expert), LayerRole::ExpertUp(expert), LayerRole::ExpertDown(expert)]
}

/// All tensors of an architecture, in the order of the forward pass.
pub fn expected_tensors(spec: &ArchSpec) -> Vec<ExpectedTensor> {
    let matrix = |role, rows, columns| ExpectedTensor { role, rows, columns, vector: false };
    let vector = |role, columns| ExpectedTensor { role, rows: 1, columns, vector: true };
    let (hidden, query, kv) = (spec.hidden, spec.query_width(), spec.kv_width());
    let mut tensors = vec![matrix(Role::Embedding, spec.vocabulary, hidden)];
    for layer in 0..spec.layers {
        let role = |role| Role::Layer(layer, role);
        tensors.push(vector(role(LayerRole::AttentionNorm), hidden));
        tensors.push(matrix(role(LayerRole::Query), query, hidden));
        tensors.push(matrix(role(LayerRole::Key), kv, hidden));
        tensors.push(matrix(role(LayerRole::Value), kv, hidden));
        if spec.qkv_bias {
            tensors.push(vector(role(LayerRole::QueryBias), query));
            tensors.push(vector(role(LayerRole::KeyBias), kv));
            tensors.push(vector(role(LayerRole::ValueBias), kv));
        }
        if spec.head_norms {
            tensors.push(vector(role(LayerRole::QueryNorm), spec.head_dim));
            tensors.push(vector(role(LayerRole::KeyNorm), spec.head_dim));
        }
        tensors.push(matrix(role(LayerRole::Output), hidden, query));
        tensors.push(vector(role(LayerRole::MlpNorm), hidden));
        let mut mlp = |[gate, up, down]: [LayerRole; 3], ffn| {
            tensors.push(matrix(role(gate), ffn, hidden));
            tensors.push(matrix(role(up), ffn, hidden));
            tensors.push(matrix(role(down), hidden, ffn));
        };
        match spec.mlp(layer) {
            Mlp::Dense { ffn } => mlp([LayerRole::Gate, LayerRole::Up, LayerRole::Down], ffn),
            Mlp::Experts(Experts { shape, biased, .. }) => {
                for expert in 0..shape.count {
                    mlp(expert_roles(expert), shape.ffn);
                }
                if shape.shared_ffn > 0 {
                    mlp([LayerRole::SharedGate, LayerRole::SharedUp, LayerRole::SharedDown], shape.shared_ffn);
                }
                tensors.push(matrix(role(LayerRole::Router), shape.count, hidden));
                if *biased {
                    tensors.push(vector(role(LayerRole::RouterBias), shape.count));
                }
            }
        }
    }
    tensors.push(vector(Role::FinalNorm, hidden));
    if !spec.tied {
        tensors.push(matrix(Role::Head, spec.vocabulary, hidden));
    }
    tensors
}

/// Source of the weights of the forward pass.
pub trait WeightSource {
    /// The tensor of a role, shape already checked against [`expected_tensors`].
    fn tensor(&self, role: Role) -> Result<StoredTensor<'_>, WeightError>;

    /// Returns how the adapter is used, if the source has one.
    fn adapter_use(&self) -> Option<AdapterUse> {
        None
    }

    /// Returns the adapter of a product, if there is one; shapes already checked against the product's.
    fn adapter(&self, role: Role) -> Option<StoredLora<'_>> {
        let _ = role;
        None
    }

    /// The tensor will be read soon: a file begins to be read from the disk.
    fn coming(&self, role: Role) {
        let _ = role;
    }
}

/// A weight cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightError {
    /// The source has no such tensor.
    #[error("the {0} is missing")]
    Missing(Role),
}

impl ArchSpec {
    /// Number of parameters, biases and norms included.
    pub fn parameters(&self) -> u64 {
        expected_tensors(self).iter().map(|tensor| (tensor.rows * tensor.columns) as u64).sum()
    }
}
