//! Shapes that the kernels cannot take, known before anything is loaded.
//!
//! The kernels take all shapes that are not named here: inputs are padded to whole slabs, matrices and lists have any
//! length, queries of any group share a K/V head.

use demask_tensor::{AttentionShape, Dtype, WorkspaceShape};

use super::{
    CudaOptions,
    products::element,
    workspace::{kv_width, query_width},
};
use crate::kernels::{attention, gemm, head};

/// Blocks along y or z of a grid, by CUDA's limits.
const MOST_BLOCKS: usize = 65_535;

/// A shape that the kernels cannot take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{whole} has {found} {parts}, GPU kernels take {taken}: use {instead}")]
pub struct Unfit {
    /// Name of the quantity.
    pub whole: &'static str,
    /// Unit in which it is counted.
    pub parts: &'static str,
    /// Number that was found.
    pub found: usize,
    /// Numbers that are possible.
    pub taken: String,
    /// Advice on how to go on.
    pub instead: &'static str,
}

/// Refuses more than there may be.
fn at_most(most: usize, found: usize, whole: &'static str, parts: &'static str) -> Result<(), Unfit> {
    let unfit = || Unfit { whole, parts, found, taken: format!("up to {most}"), instead: "`device` cpu" };
    if found <= most { Ok(()) } else { Err(unfit()) }
}

impl CudaOptions {
    /// Refuses a model of so many layers whose steps have a workspace of this shape, if the kernels cannot take it.
    pub fn check(&self, shape: &WorkspaceShape, layers: usize) -> Result<(), Unfit> {
        let WorkspaceShape { hidden, ffn, experts, attention, vocabulary, adapter_rank, .. } = *shape;
        if let Some(experts) = experts {
            return Err(self::experts(experts.count));
        }
        if adapter_rank > 0 {
            return Err(adapter(adapter_rank));
        }
        check_heads(&attention, self.dtype)?;
        // Layers and heads stand along y of grids.
        at_most(MOST_BLOCKS, layers, "the model", "layers")?;
        at_most(MOST_BLOCKS, attention.heads, "the model", "query heads")?;
        at_most(head::MOST_TOKENS, vocabulary, "the vocabulary", "tokens")?;
        // So do the columns of a product's tiles.
        let most = gemm::MOST_COLUMNS;
        at_most(most, hidden, "the model", "numbers in a row")?;
        at_most(most, ffn.saturating_mul(2), "the MLP", "numbers of gate and up in a row")?;
        at_most(most, query_width(&attention) + 2 * kv_width(&attention), "attention", "numbers of q, K and V in a row")
    }
}

/// The refusal of layers of experts, for which there are no kernels.
pub(super) fn experts(found: usize) -> Unfit {
    Unfit { whole: "a layer", parts: "experts", found, taken: "none".to_owned(), instead: "`device` cpu" }
}

/// The refusal of an adapter, for whose products there are no kernels.
fn adapter(rank: usize) -> Unfit {
    let instead = "`device` cpu, or `adapter_use` merged";
    Unfit { whole: "a product", parts: "ranks of an adapter", found: rank, taken: "none".to_owned(), instead }
}

/// Refuses heads that attention has no kernels for.
fn check_heads(shape: &AttentionShape, dtype: Dtype) -> Result<(), Unfit> {
    let found = shape.head_dim;
    if attention::fits(element(dtype), found) {
        return Ok(());
    }
    let most = attention::WIDEST;
    let exact = dtype == Dtype::F32;
    let taken = if exact { format!("1 to {most}") } else { format!("multiples of 8 up to {most} in bf16") };
    let instead =
        if attention::fits(attention::Element::F32, found) { "`dtype` f32 or `device` cpu" } else { "`device` cpu" };
    Err(Unfit { whole: "a head", parts: "numbers", found, taken, instead })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: WorkspaceShape = WorkspaceShape {
        rows: 64,
        head_rows: 64,
        hidden: 4096,
        ffn: 12_288,
        experts: None,
        attention: AttentionShape { heads: 32, kv_heads: 8, head_dim: 128 },
        vocabulary: 126_464,
        table_entries: 64,
        adapter_rank: 0,
    };

    fn refused(dtype: Dtype, change: impl Fn(&mut WorkspaceShape)) -> Option<String> {
        let mut shape = SHAPE;
        change(&mut shape);
        let options = CudaOptions { dtype, quantisation: None };
        options.check(&shape, 32).err().map(|unfit| unfit.to_string())
    }

    #[test]
    fn heads_that_no_kernel_takes_are_refused_with_what_would_run() {
        let head = |head_dim| move |shape: &mut WorkspaceShape| shape.attention.head_dim = head_dim;
        for width in [8, 16, 64, 72, 128, 256] {
            assert_eq!(refused(Dtype::Bf16, head(width)), None);
        }
        assert_eq!(refused(Dtype::F32, head(20)), None);
        let told =
            "a head has 20 numbers, GPU kernels take multiples of 8 up to 256 in bf16: use `dtype` f32 or `device` cpu";
        assert_eq!(refused(Dtype::Bf16, head(20)).as_deref(), Some(told));
        let told = "a head has 264 numbers, GPU kernels take multiples of 8 up to 256 in bf16: use `device` cpu";
        assert_eq!(refused(Dtype::Bf16, head(264)).as_deref(), Some(told));
        let told = "a head has 258 numbers, GPU kernels take 1 to 256: use `device` cpu";
        assert_eq!(refused(Dtype::F32, head(258)).as_deref(), Some(told));
    }

    #[test]
    fn what_is_beyond_a_grid_or_a_sum_is_refused() {
        /// Change of a shape, and the first words of the refusal, if there is one.
        type Case = (fn(&mut WorkspaceShape), &'static str);
        let cases: [Case; 5] = [
            (|shape| shape.vocabulary = 1 << 20, ""),
            (|shape| shape.vocabulary += 1 << 20, "the vocabulary has 1175040 tokens, GPU kernels take up to 1048576"),
            (|shape| shape.ffn = 1 << 20, "the MLP has 2097152 numbers of gate and up in a row, "),
            (|shape| shape.attention.heads = 16_384, "attention has 2099200 numbers of q, K and V in a row, "),
            (
                |shape| shape.hidden = 1 << 22,
                "the model has 4194304 numbers in a row, GPU kernels take up to 2097024: ",
            ),
        ];
        for (change, told) in cases {
            let refusal = refused(Dtype::Bf16, change).unwrap_or_default();
            assert!(refusal.starts_with(told) && refusal.is_empty() == told.is_empty(), "{refusal}");
        }
        let options = CudaOptions { dtype: Dtype::F32, quantisation: None };
        assert!(options.check(&SHAPE, 65_535).is_ok());
        assert!(options.check(&SHAPE, 65_536).unwrap_err().to_string().starts_with("the model has 65536 layers"));
    }
}
