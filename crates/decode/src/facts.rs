//! Facts about a model that decoding must know, and the first content of a canvas.

use demask_step::{BlockRules, Mask, TokenId};

/// Facts about a model that decoding must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFacts {
    /// Attention mask of the model.
    pub mask: Mask,
    /// The row of position `p - shift` predicts position `p`: 1 for causal models and Dream, 0 for the others.
    pub shift: u32,
    /// The mask token. Of a causal model it only holds the place of a guess, and models without one write no guesses.
    pub mask_id: Option<TokenId>,
    /// Number of tokens that there are.
    pub vocab: usize,
    /// Positions that the model knows.
    pub context: usize,
    /// Layers that it has.
    pub layers: usize,
    /// Rules for its blocks, if it decodes block by block.
    pub blocks: BlockRules,
    /// Rows that hardly lengthen a forward on the device that runs it; [`FREE_ROWS`] without one.
    pub free_rows: usize,
}

/// Rows that are taken as nearly free where no device runs the model.
pub const FREE_ROWS: usize = 16;

/// First content of the canvas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CanvasSpec {
    /// A prompt, and a response of this many positions after it.
    Prompt {
        /// The prompt.
        tokens: Vec<TokenId>,
        /// Positions to decode.
        gen_length: usize,
    },
    /// Tokens with the mask id wherever something is to be filled in; full attention only.
    Infill {
        /// The whole canvas.
        tokens: Vec<TokenId>,
    },
}
