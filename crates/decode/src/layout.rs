//! Layout of the blocks of a canvas.

use std::ops::Range;

use demask_step::{BlockRules, Mask, Origin, Position};

/// The block layout of one canvas. Blocks are decoded left to right and cover every position that starts as a mask.
///
/// * Full attention: blocks of `block_length` are counted from the first mask, the last one may be short
///   (specs/caches.md#0).
/// * Block-causal: blocks are counted from position 0, because the attention mask is; the canvas is filled up to whole
///   blocks, and the first decoded block may begin with prompt tokens (specs/models.md#trap-16).
/// * Causal: one block, the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    attention: Mask,
    response: usize,
    gen_length: usize,
    length: usize,
    start: usize,
    block_length: usize,
    /// Fixed tokens after everything that is decoded.
    tail: usize,
}

impl Layout {
    /// Blocks of a model with full attention: `response` is the first mask, `length` the canvas length.
    pub fn full(response: usize, length: usize, block_length: usize) -> Self {
        let gen_length = length.saturating_sub(response);
        let block_length = block_length.max(1);
        Self { attention: Mask::Full, response, gen_length, length, start: response, block_length, tail: 0 }
    }

    /// Makes room for fixed tokens after everything that is decoded. They are in no block, as the prompt is.
    #[must_use]
    pub(crate) fn with_tail(self, tokens: usize) -> Self {
        Self { length: self.length + tokens, tail: tokens, ..self }
    }

    /// Blocks of a block-causal model. The canvas has `ceil((prompt + gen_length) / block) * block` positions.
    pub fn block_causal(prompt: usize, gen_length: usize, block: usize) -> Self {
        Self::blocks_of(prompt, gen_length, Mask::blocks(block.max(1) as Position), BlockRules::default())
    }

    /// Blocks of a model that decodes block by block, as its rules say. With [`Mask::Context`], the prompt is a causal context
    /// and blocks see themselves.
    pub fn blocks_of(prompt: usize, gen_length: usize, mask: Mask, rules: BlockRules) -> Self {
        let block = mask.block().unwrap_or(1) as usize;
        let (start, whole) = match rules.origin {
            Origin::Start => (prompt / block * block, (prompt + gen_length).next_multiple_of(block)),
            Origin::Prompt => (prompt, prompt + gen_length.next_multiple_of(block)),
        };
        let attention = match mask {
            Mask::Context { .. } => mask,
            _ => Mask::BlockCausal { block: block as Position, offset: ((block - start % block) % block) as Position },
        };
        let length = if rules.ends_short { prompt + gen_length } else { whole };
        Self { attention, response: prompt, gen_length, length, start, block_length: block, tail: 0 }
    }

    /// The one block of an autoregressive model.
    pub fn causal(prompt: usize, gen_length: usize) -> Self {
        Self { attention: Mask::Causal, ..Self::full(prompt, prompt + gen_length, gen_length) }
    }

    /// Attention mask, with the block length of the decoding.
    pub fn attention(&self) -> Mask {
        self.attention
    }

    /// Start of the response: the length of the prompt.
    pub fn response(&self) -> usize {
        self.response
    }

    /// Positions that were asked for, counted from the response's start.
    pub fn gen_length(&self) -> usize {
        self.gen_length
    }

    /// Asks for no more than so many positions of the response; those after them are decoded with it and left out.
    pub(crate) fn ask_for(&mut self, positions: usize) {
        self.gen_length = self.gen_length.min(positions);
    }

    /// Reports whether more positions are decoded than are asked for, and not because blocks are whole.
    pub(crate) fn has_spare(&self) -> bool {
        matches!(self.attention, Mask::Full | Mask::Causal) && self.response + self.gen_length < self.end()
    }

    /// End of the last block: what stands after it was given.
    pub(crate) fn end(&self) -> usize {
        self.length - self.tail
    }

    /// Canvas length, what lies beyond `gen_length` and all blocks included.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Reports whether the canvas has no position at all.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Positions in a whole block.
    pub fn block_length(&self) -> usize {
        self.block_length
    }

    /// Start of block 0; everything before it is prompt.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Number of blocks to decode.
    pub fn blocks(&self) -> usize {
        (self.end() - self.start).div_ceil(self.block_length)
    }

    /// The positions of a block; empty beyond the last one.
    pub fn block(&self, index: usize) -> Range<Position> {
        let start = self.start.saturating_add(index.saturating_mul(self.block_length)).min(self.end());
        let end = (start + self.block_length).min(self.end());
        start as Position..end as Position
    }

    /// The block that a position at or after [`start`](Self::start) lies in; after all blocks, the one after the last.
    pub fn block_of(&self, position: Position) -> usize {
        if position as usize >= self.end() {
            return self.blocks();
        }
        (position as usize).saturating_sub(self.start) / self.block_length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_attention_counts_from_the_response() {
        let layout = Layout::full(5, 17, 8);
        assert_eq!((layout.blocks(), layout.block(0), layout.block(1), layout.block(2)), (2, 5..13, 13..17, 17..17));
        assert_eq!((layout.block_of(5), layout.block_of(12), layout.block_of(13)), (0, 0, 1));
    }

    #[test]
    fn what_is_not_asked_for_stays_in_the_canvas() {
        let mut layout = Layout::full(5, 21, 8);
        assert!(!layout.has_spare());
        layout.ask_for(11);
        assert_eq!((layout.gen_length(), layout.len(), layout.blocks()), (11, 21, 2));
        assert!(layout.has_spare());
        layout.ask_for(40);
        assert_eq!(layout.gen_length(), 11, "never more than before");
    }

    #[test]
    fn a_tail_is_in_no_block() {
        let layout = Layout::full(5, 17, 8).with_tail(2);
        assert_eq!((layout.len(), layout.gen_length(), layout.end(), layout.blocks()), (19, 12, 17, 2));
        assert_eq!((layout.block(1), layout.block_of(16), layout.block_of(17)), (13..17, 1, 2));
        assert!(!layout.has_spare());
    }

    #[test]
    fn block_causal_counts_from_zero_and_fills_up() {
        let layout = Layout::block_causal(9, 16, 4);
        assert_eq!((layout.len(), layout.start(), layout.blocks()), (28, 8, 5));
        assert_eq!((layout.block(0), layout.block(4)), (8..12, 24..28));
        assert_eq!(layout.gen_length(), 16);
        let aligned = Layout::block_causal(8, 16, 4);
        assert_eq!((aligned.len(), aligned.start(), aligned.blocks()), (24, 8, 4));
        assert_eq!(Layout::block_causal(0, 1, 4).block(0), 0..4);
    }

    #[test]
    fn rules_say_where_blocks_begin_and_end() {
        let (prompt, short) = (Origin::Prompt, BlockRules { ends_short: true, ..BlockRules::default() });
        let layout = |rules| Layout::blocks_of(9, 10, Mask::blocks(4), rules);
        assert_eq!(layout(BlockRules::default()), Layout::block_causal(9, 10, 4));
        let ragged = layout(short);
        assert_eq!((ragged.block(0), ragged.block(2), ragged.len()), (8..12, 16..19, 19));
        assert_eq!((ragged.block_of(18), ragged.block_of(19)), (2, 3), "nothing lies behind a short last block");
        let behind = layout(BlockRules { origin: prompt, ..short });
        assert_eq!((behind.block(0), behind.block(2), behind.blocks()), (9..13, 17..19, 3));
        assert_eq!(behind.attention(), Mask::BlockCausal { block: 4, offset: 3 });
        let whole = layout(BlockRules { origin: prompt, ..BlockRules::default() });
        assert_eq!((whole.len(), whole.gen_length()), (21, 10));
        let context = Layout::blocks_of(9, 10, Mask::Context { context: 0, block: 4 }, short);
        assert_eq!((context.block(0), context.attention()), (8..12, Mask::Context { context: 0, block: 4 }));
    }

    #[test]
    fn causal_is_one_block() {
        let layout = Layout::causal(3, 7);
        assert_eq!((layout.blocks(), layout.block(0), layout.attention()), (1, 3..10, Mask::Causal));
    }
}
