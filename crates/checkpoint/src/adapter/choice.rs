//! Use of an adapter, as a user names it, and facts about one.

use std::{fmt, str::FromStr};

use demask_model::{AdapterUse, LayerRole};
use demask_step::{Operations, TokenId};
use demask_tensor::Dtype;

/// Use of an adapter that a user names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AdapterChoice {
    /// Masks for I-DLM and for an adapter whose name contains `i-dlm` or `idlm`, else all rows.
    #[default]
    Auto,
    /// Rows that hold a mask.
    Masks,
    /// All rows, beside the weights.
    All,
    /// All rows, added into the weights.
    Merged,
}

impl AdapterChoice {
    /// All of them, by name.
    pub const NAMES: [(&'static str, Self); 4] =
        [("auto", Self::Auto), ("masks", Self::Masks), ("all", Self::All), ("merged", Self::Merged)];
}

impl From<AdapterUse> for AdapterChoice {
    fn from(usage: AdapterUse) -> Self {
        match usage {
            AdapterUse::Masks(_) => Self::Masks,
            AdapterUse::All => Self::All,
            AdapterUse::Merged => Self::Merged,
        }
    }
}

impl fmt::Display for AdapterChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::NAMES.iter().find(|(_, choice)| choice == self);
        f.write_str(named.map_or("auto", |(name, _)| name))
    }
}

impl FromStr for AdapterChoice {
    type Err = UnknownAdapterUse;

    fn from_str(text: &str) -> Result<Self, UnknownAdapterUse> {
        let named = Self::NAMES.iter().find(|(name, _)| *name == text);
        named.map(|(_, choice)| *choice).ok_or_else(|| UnknownAdapterUse { found: text.to_owned() })
    }
}

/// A use of adapters that there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("adapter use {found:?}: expected auto, masks, all or merged")]
pub struct UnknownAdapterUse {
    found: String,
}

/// Facts about an adapter, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdapterFacts {
    /// Name of the adapter.
    pub name: String,
    /// Model that it says it was trained for, if it says so.
    pub base: Option<String>,
    /// Use of the adapter.
    pub usage: AdapterUse,
    /// Smallest and largest rank.
    pub ranks: [usize; 2],
    /// Its matrices, two for each product that it changes.
    pub matrices: Vec<AdapterMatrix>,
}

/// Shape of a matrix of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdapterMatrix {
    /// The layer's product that it is for.
    pub part: LayerRole,
    /// Type that it is stored in.
    pub dtype: Dtype,
    /// Rows: the rank, or the product's outputs.
    pub rows: usize,
    /// Columns: the product's inputs, or the rank.
    pub columns: usize,
}

impl AdapterFacts {
    /// Returns the number of products that it changes.
    pub fn products(&self) -> usize {
        self.matrices.len() / 2
    }

    /// Returns the parameters of all its matrices.
    pub fn parameters(&self) -> u64 {
        self.matrices.iter().map(|matrix| (matrix.rows * matrix.columns) as u64).sum()
    }

    /// Returns the matrices that are computed beside the weights: none if it is merged into them.
    pub fn beside(&self) -> &[AdapterMatrix] {
        if self.usage == AdapterUse::Merged { &[] } else { &self.matrices }
    }

    /// Returns its operations in a step whose rows hold these tokens.
    pub fn operations(&self, tokens: &[TokenId]) -> Operations {
        let takes = |token: &&TokenId| !matches!(self.usage, AdapterUse::Masks(mask) if mask != **token);
        let rows = tokens.iter().filter(takes).count();
        let mut operations = Operations::default();
        for matrix in self.beside() {
            let counter = if matrix.part.is_mlp() { &mut operations.mlp } else { &mut operations.projections };
            *counter += 2.0 * (rows * matrix.rows * matrix.columns) as f64;
        }
        operations
    }
}
