//! Length of an answer: the canvas that it is decoded on, the tokens that are kept of it, and what set either.

use demask_step::Mask;

use crate::{Error, ModelInfo, Options, SettingError};

/// Shortest recommended canvas that follows from a context, and the part of the context that it is at most: the authors of
/// LLaDA, whose models see 4,096 positions, evaluate with 256, and a model that was trained on fewer positions decodes fewer.
const SHORT: usize = 64;
const PART_OF_CONTEXT: usize = 16;

/// Part of the memory that is free beside a model's weights which one answer of open length may take: so many such answers are
/// made at the same time.
const PART_OF_MEMORY: u64 = 8;

/// What set the length of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// `gen_length`.
    GenLength,
    /// `max_tokens`.
    MaxTokens,
    /// The length that the model is made for.
    Recommended,
    /// Memory, which would not hold a longer one beside others.
    Memory,
    /// The end of the context.
    Context,
}

/// Length of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Length {
    /// Positions of the canvas.
    pub(crate) canvas: usize,
    /// Tokens that are kept of it at most, as `max_tokens` promises.
    pub(crate) max_tokens: Option<usize>,
    /// What set it.
    pub(crate) limit: Limit,
}

impl Length {
    /// Length of an answer whose holes say how much is decoded.
    pub(crate) const GIVEN: Self = Self { canvas: 0, max_tokens: None, limit: Limit::Context };

    /// Returns how to get a longer answer, for one that is cut by its length.
    pub(crate) fn when_cut(self) -> Option<String> {
        let length = self.max_tokens.map_or(self.canvas, |kept| kept.min(self.canvas));
        if self.canvas == 0 {
            return None;
        }
        Some(match self.limit {
            Limit::GenLength => format!("the answer fills its {length} positions: raise `gen_length` for a longer one"),
            Limit::MaxTokens => format!("the answer was cut at {length} tokens: raise `max_tokens` for a longer one"),
            Limit::Recommended => format!(
                "the answer fills the {length} positions that are recommended for this model: set `gen_length` for a \
                 longer one"
            ),
            Limit::Memory => format!(
                "the answer was cut at {length} tokens, which leave memory for others: set `max_tokens` for a longer one"
            ),
            Limit::Context => {
                format!(
                    "the answer was cut at {length} tokens, where the context ends: shorten the prompt for a longer one"
                )
            }
        })
    }
}

impl ModelInfo {
    /// Returns the positions that the model decodes best by default: what its own `generation_config.json` names
    /// (`max_new_tokens`), else what its family's authors evaluate with. Under full attention each of them is seen by all,
    /// so that more change the answer; elsewhere it is no more than a bound.
    pub fn recommended_length(&self) -> usize {
        let named = self.text.generation.max_new_tokens.and_then(|length| usize::try_from(length).ok());
        let of_family = self.family().decoding().gen_length;
        let fits = match (self.facts().mask, self.family().decoding().sampler) {
            (Mask::Full, None) => (self.facts().context / PART_OF_CONTEXT).max(SHORT),
            // A sampler is of one piece with its length.
            _ => usize::MAX,
        };
        named.filter(|&length| length > 0).unwrap_or_else(|| of_family.min(fits))
    }

    /// Returns the positions of a block that the checkpoint's own `generation_config.json` names (`block_length`) for canvases
    /// under full attention; none where it names none, and elsewhere, where blocks are a part of the network.
    pub fn recommended_block_length(&self) -> Option<usize> {
        let named = self.text.generation.block_length.and_then(|length| usize::try_from(length).ok());
        named.filter(|&length| length > 0 && self.facts().mask == Mask::Full)
    }

    /// Returns what to say of a canvas that is far longer than the model is made for: under full attention its length is no
    /// bound but an input, and other answers come of it.
    pub fn long_canvas(&self, length: usize) -> Option<String> {
        let recommended = self.recommended_length();
        (self.facts().mask == Mask::Full && length > 2 * recommended).then(|| {
            format!(
                "`gen_length` {length} is an input, which every position sees, and this model is made for {recommended}: answers \
                 may be wrong; `max_tokens` bounds an answer and changes nothing else"
            )
        })
    }

    /// Returns how many positions are decoded by default, where the prompt leaves room for them: under causal
    /// attention as many as the context and the memory hold, since nothing is decoded after an end.
    pub fn default_gen_length(&self) -> usize {
        self.default_length().0
    }

    /// Returns that length, and what sets it.
    fn default_length(&self) -> (usize, Limit) {
        let (facts, spec) = (self.facts(), self.spec());
        let (Mask::Causal, Some(free)) = (facts.mask, self.free_memory) else {
            return (self.recommended_length(), Limit::Recommended);
        };
        let position = 2 * spec.layers as u64 * spec.kv_width() as u64 * size_of::<f32>() as u64;
        let holds = usize::try_from(free / PART_OF_MEMORY / position.max(1)).unwrap_or(usize::MAX);
        let holds = holds.max(self.recommended_length());
        if holds < facts.context { (holds, Limit::Memory) } else { (facts.context, Limit::Context) }
    }

    /// Chooses the length of the answer to a prompt of `prompt` tokens. `tail` positions after it are fixed.
    ///
    /// `gen_length` asks for a canvas; `max_tokens` is a bound, which the context may make smaller, and sets the canvas where
    /// that costs the answer nothing.
    pub(crate) fn length(&self, prompt: usize, tail: usize, options: &Options) -> Result<Length, Error> {
        let (facts, context) = (self.facts(), self.facts().context);
        if options.max_tokens == Some(0) {
            let (name, found, expected) = ("max_tokens", "0".to_owned(), "a whole number from 1 on".to_owned());
            return Err(SettingError::Value { name, found, expected }.into());
        }
        // A block-causal canvas is rounded up to whole blocks, which must still fit.
        let block = match facts.mask {
            Mask::BlockCausal { block, .. } if !facts.blocks.ends_short => {
                options.block_length.unwrap_or(block as usize).max(1)
            }
            _ => 1,
        };
        let room = (context / block * block).saturating_sub(prompt);
        let (default, why) = self.default_length();
        let (wanted, limit) = match (options.gen_length, options.max_tokens) {
            (Some(length), _) => (length, Limit::GenLength),
            (None, Some(most)) if facts.mask != Mask::Full || most <= default => (most, Limit::MaxTokens),
            (None, _) => (default, why),
        };
        let too_long = |gen_length: usize, option| Err(Error::TooLong { prompt, gen_length, context, option });
        if options.gen_length.is_some() && wanted > room {
            return too_long(wanted, Some("gen_length"));
        }
        if room <= tail {
            let asked = options.max_tokens.map(|most| (most, "max_tokens"));
            let (wanted, option) = asked.map_or((1 + tail, None), |(most, option)| (most, Some(option)));
            return too_long(wanted, option);
        }
        let (canvas, limit) = if wanted > room { (room, Limit::Context) } else { (wanted, limit) };
        let canvas =
            if options.gen_length.is_some() { canvas } else { self.whole_blocks(canvas, room, tail, options)? };
        let kept = options.max_tokens;
        let limit = if kept.is_some_and(|kept| kept < canvas) { Limit::MaxTokens } else { limit };
        Ok(Length { canvas, max_tokens: kept, limit })
    }

    /// Rounds a canvas of default length up to the blocks that were asked for. Only full attention needs it: blocks of
    /// others may end after the answer.
    fn whole_blocks(&self, canvas: usize, room: usize, tail: usize, options: &Options) -> Result<usize, Error> {
        let Some(block) = options.block_length.filter(|&block| block > 0 && self.facts().mask == Mask::Full) else {
            return Ok(canvas);
        };
        let most = room - tail;
        let whole = [canvas.saturating_sub(tail).max(1).div_ceil(block).saturating_mul(block), most / block * block];
        match whole.into_iter().find(|&whole| whole > 0 && whole <= most) {
            Some(whole) => Ok(whole + tail),
            None => Err(SettingError::Value {
                name: "block_length",
                found: block.to_string(),
                expected: format!("at most {room}, the positions that the prompt leaves of the context"),
            }
            .into()),
        }
    }
}

#[cfg(all(test, feature = "demo"))]
mod tests {
    use std::path::Path;

    use demask_checkpoint::ModelFiles;

    use super::*;
    use crate::Prompt;

    fn demo(name: &str) -> ModelInfo {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo").join(name);
        ModelInfo::open(ModelFiles::directory(&folder).unwrap()).unwrap()
    }

    fn length(info: &ModelInfo, prompt: usize, options: &Options) -> Length {
        let prepared = info.length(prompt, 0, options).unwrap();
        // What is chosen can be decoded.
        info.session(&Prompt::Tokens(vec![5; prompt]), options).unwrap();
        prepared
    }

    #[test]
    fn recommended_lengths_are_the_checkpoint_s_or_the_family_s() {
        for (model, expected) in [("demo-llada", 64), ("demo-dream", 64), ("demo-sdar", 128)] {
            assert_eq!(demo(model).recommended_length(), expected, "{model}");
        }
        assert_eq!(ModelInfo::demo().unwrap().recommended_length(), 64);
        assert_eq!(demo("demo-llada").recommended_block_length(), Some(16));
        assert_eq!(demo("demo-dream").recommended_block_length(), None);
        // A model that sees fewer positions than its family's others is made for fewer: no file has to say so.
        let mut small = demo("demo-dream");
        small.text.generation.max_new_tokens = None;
        assert_eq!(small.recommended_length(), 64);
    }

    #[test]
    fn a_bound_sets_the_canvas_only_where_that_changes_no_answer() {
        let (full, blocks, causal) = (demo("demo-dream"), demo("demo-sdar"), demo("demo-qwen"));
        let bound = |most: usize| Options { max_tokens: Some(most), ..Options::default() };
        for (most, canvas) in [(1, 1), (32, 32), (64, 64), (128, 64), (4096, 64)] {
            assert_eq!(length(&full, 30, &bound(most)).canvas, canvas);
        }
        for info in [&blocks, &causal] {
            for (most, canvas) in [(32, 32), (512, 512), (4096, 1024 - 32)] {
                assert_eq!(length(info, 32, &bound(most)).canvas, canvas);
            }
        }
        let both = Options { gen_length: Some(128), ..bound(10) };
        assert_eq!(length(&full, 30, &both), Length { canvas: 128, max_tokens: Some(10), limit: Limit::MaxTokens });
        // Whole blocks, where somebody asks for blocks.
        let whole = |block: usize, most: usize| Options { block_length: Some(block), ..bound(most) };
        for (block, most, canvas) in [(16, 20, 32), (16, 4096, 64), (48, 4096, 96), (1000, 5, 0)] {
            let chosen = full.length(40, 0, &whole(block, most));
            assert_eq!(chosen.map_or(0, |length| length.canvas), canvas, "{block} {most}");
        }
        let refused = full.length(100, 0, &whole(1000, 5)).unwrap_err().to_string();
        assert_eq!(
            refused,
            "`block_length` is 1000, expected at most 924, the positions that the prompt leaves of the context"
        );
        let nothing = full.length(10, 0, &bound(0)).unwrap_err().to_string();
        assert_eq!(nothing, "`max_tokens` is 0, expected a whole number from 1 on");
    }

    #[test]
    fn an_open_answer_of_a_causal_model_ends_with_the_context_or_the_memory() {
        let mut causal = demo("demo-qwen");
        let open = Options::default();
        assert_eq!(length(&causal, 24, &open), Length { canvas: 1000, max_tokens: None, limit: Limit::Context });
        // Two tensors of 64 numbers in each of 4 layers.
        causal.free_memory = Some(PART_OF_MEMORY * 300 * 2 * 64 * 4 * 4);
        assert_eq!(length(&causal, 24, &open), Length { canvas: 300, max_tokens: None, limit: Limit::Memory });
        assert_eq!(causal.default_gen_length(), 300);
        let asked = Options { max_tokens: Some(700), ..Options::default() };
        assert_eq!(length(&causal, 24, &asked).canvas, 700);
        // However little there is, an answer of the usual length is tried.
        causal.free_memory = Some(0);
        assert_eq!(length(&causal, 24, &open).canvas, 128);
        let more = length(&causal, 24, &open).when_cut().unwrap();
        assert!(more.contains("leave memory for others: set `max_tokens`"), "{more}");
        // Estimates are of the usual length on every machine.
        causal.free_memory = None;
        assert_eq!(causal.default_gen_length(), 128);
    }

    #[test]
    fn what_does_not_fit_names_what_asked_for_it() {
        let full = demo("demo-dream");
        let told = |prompt: usize, options: Options| full.length(prompt, 0, &options).unwrap_err().to_string();
        let asked = Options { gen_length: Some(64), ..Options::default() };
        assert_eq!(
            told(1000, asked),
            "1000 prompt tokens and 64 to generate exceed the model's context of 1024: shorten the prompt or lower `gen_length`"
        );
        let bound = Options { max_tokens: Some(5), ..Options::default() };
        let message = told(1100, bound);
        assert!(
            message.contains("1100 prompt tokens and 5 to generate") && message.contains("`max_tokens`"),
            "{message}"
        );
        assert!(told(1024, Options::default()).ends_with("shorten the prompt or lower `gen_length`"));
    }
}
