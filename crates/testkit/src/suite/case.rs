//! Random cases: a model, a canvas, and everything that options may say.

use std::fmt;

use demask_decode::{
    Adjustments, Alignment, CacheSpec, CanvasSpec, DecoderSpec, GuideOptions, ModelFacts, Remasking, Schedule, Session,
    SessionOptions, StopRule, constraint::Limits,
};
use demask_step::{BlockRules, Mask, MaskKind, Origin, Stores, TokenId, random};

use super::words::{self, Words};
use crate::{
    language::{Language, Rolls},
    property,
};

pub(super) const VOCAB: usize = 24;
pub(super) const MASK_ID: TokenId = 23;
pub(super) const EOS: TokenId = 22;

/// Cases of each family.
const CASES: u64 = property::count(12) as u64;

/// One case, which any pair of methods may decode.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub seed: u64,
    pub mask: Mask,
    pub shift: u32,
    prompt: usize,
    gen_length: usize,
    block_length: Option<usize>,
    steps: Option<usize>,
    remasking: Remasking,
    schedule: Schedule,
    temperature: f32,
    alg_temp: f32,
    cfg_scale: f32,
    stop: StopRule,
    /// Spread of the confidences, and the share of positions whose prediction never changes.
    pub spread: f64,
    pub easy: f64,
    blocks: BlockRules,
    /// Language that answers are held to.
    pub language: Option<Language>,
}

/// Rules of models that decode block by block: SDAR, Stable-DiffCoder, A2D, Fast-dLLM v2 and Nemotron-Labs-Diffusion.
const RULES: [BlockRules; 5] = {
    let sdar = BlockRules {
        origin: Origin::Start,
        ends_short: false,
        shares_masks: false,
        stores: Stores::Always,
        seeds: false,
    };
    let short = BlockRules { ends_short: true, shares_masks: true, ..sdar };
    let prompt = BlockRules { origin: Origin::Prompt, stores: Stores::IfRead, ..short };
    [
        sdar,
        BlockRules { stores: Stores::UnlessEnded, ..short },
        prompt,
        BlockRules { seeds: true, stores: Stores::IfRead, ..sdar },
        BlockRules { seeds: true, ..prompt },
    ]
};
const SEEDED_BEHIND_PROMPT: usize = 4;

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mask, shift, prompt, gen_length, .. } = self;
        write!(f, "{} with shift {shift}, {gen_length} tokens behind {prompt}", mask.kind())?;
        if let Some(block_length) = self.block_length {
            write!(f, " in blocks of {block_length}")?;
        }
        if let Some(steps) = self.steps {
            write!(f, ", {steps} steps")?;
        }
        write!(f, ", {} {}, temperature {}", self.remasking, self.schedule.name(), self.temperature)?;
        write!(f, ", guidance {}, seed {}", self.cfg_scale, self.seed)
    }
}

/// The cases of these families; the same ones at each call.
pub(super) fn cases(attention: &'static [MaskKind]) -> impl Iterator<Item = Case> {
    attention.iter().flat_map(|&attention| (0..CASES).map(move |index| Case::new(attention, index)))
}

impl Case {
    fn new(attention: MaskKind, index: u64) -> Self {
        let seed = random::mix(index ^ ((attention as u64) << 32));
        let mut state = seed;
        let mut roll = |sides: u64| {
            state = random::mix(state);
            state % sides
        };
        // A case of each family is as plain as can be: what a method refuses is refused for its own sake.
        let plain = index == 0;
        let block = 1 + roll(6) as usize;
        let blocks = 1 + roll(4) as usize;
        let (mask, shift) = match attention {
            MaskKind::Full => (Mask::Full, if plain { 0 } else { roll(2) as u32 }),
            MaskKind::BlockCausal => (Mask::blocks(4), 0),
            MaskKind::Causal => (Mask::Causal, 1),
            MaskKind::Context => (Mask::Context { context: 0, block: 4 }, 0),
        };
        let prompt = 1 + roll(8) as usize;
        let causal = mask == Mask::Causal;
        let pick = |rolled: u64, value: f32| if plain || causal || rolled > 0 { 0.0 } else { value };
        let case = Self {
            seed,
            mask,
            shift,
            prompt,
            gen_length: block * blocks,
            block_length: (!causal).then_some(block),
            steps: (!plain && mask == Mask::Full && roll(3) == 0).then(|| blocks * (1 + roll(5) as usize)),
            remasking: if plain { Remasking::default() } else { Remasking::ALL[roll(8) as usize] },
            schedule: if plain {
                Schedule::default()
            } else {
                Schedule::ALL[roll(Schedule::ALL.len() as u64) as usize]
            },
            temperature: if plain || roll(2) > 0 { 0.0 } else { 0.7 },
            alg_temp: pick(roll(3), 0.5),
            cfg_scale: pick(roll(3), 1.5),
            stop: if plain || roll(3) > 0 { StopRule::Never } else { StopRule::Prefix },
            spread: [3.0, 12.0][roll(2) as usize],
            easy: [0.0, 0.6, 0.95][roll(3) as usize],
            blocks: BlockRules::default(),
            language: None,
        };
        // Rolled last: the cases of models without blocks are those that they were.
        let rules = if plain { 0 } else { roll(RULES.len() as u64) as usize };
        match attention {
            MaskKind::Full | MaskKind::Causal => case,
            // Rows of a block that predict the next position predict all but its first, which is seeded.
            MaskKind::BlockCausal => Self { blocks: RULES[rules], shift: RULES[rules].seeds.into(), ..case },
            MaskKind::Context => Self { blocks: RULES[SEEDED_BEHIND_PROMPT], cfg_scale: 0.0, ..case },
        }
    }

    /// The same case whose answers are texts of a language: of all texts without ends, so that nothing may differ, or of a random one.
    pub(super) fn constrained(&self, by_all: bool) -> Self {
        let mut language =
            if by_all { words::all() } else { Language::roll(&mut Rolls(self.seed ^ 7), VOCAB, Some(&[EOS])) };
        language.leave_out(MASK_ID);
        Self { language: Some(language), ..self.clone() }
    }

    /// The case's options under its language; none where they are refused, or nothing is long or short enough.
    pub(super) fn under(&self, options: &SessionOptions) -> Option<SessionOptions> {
        let language = self.language.as_ref()?;
        let classes = [4096, 3][(self.seed % 2) as usize];
        let limits = Limits { classes, ..Limits::default() };
        let constraint = language.constraint(Some(MASK_ID), limits)?;
        let mut options = options.clone();
        if let Some(text) = options.guide.as_mut().and_then(|guide| guide.text.as_mut()) {
            *text = Words::of(language).text(Some((&constraint, limits)))?;
        }
        options.constraint = Some(constraint);
        Session::new(options.clone()).is_ok().then_some(options)
    }

    /// The case's options with adjustments of logits; none where they are refused.
    pub(super) fn adjusted(&self, options: &SessionOptions) -> Option<SessionOptions> {
        let adjustments = Adjustments {
            logit_bias: vec![(3, 1.0), (EOS, -1.0)],
            presence_penalty: [0.0, 1.5][(self.seed % 2) as usize],
            frequency_penalty: [0.5, -0.5][(self.seed / 2 % 2) as usize],
            repetition_penalty: [1.0, 1.3][(self.seed / 4 % 2) as usize],
            min_tokens: self.gen_length / 2,
        };
        let options = SessionOptions { adjustments, ..options.clone() };
        Session::new(options.clone()).is_ok().then_some(options)
    }

    /// The options of a pair of methods; none where one of them refuses the case.
    pub(super) fn options(&self, decoder: &DecoderSpec, cache: &CacheSpec) -> Option<SessionOptions> {
        let facts = |mask, shift| ModelFacts {
            mask,
            shift,
            mask_id: Some(MASK_ID),
            vocab: VOCAB,
            context: 4096,
            layers: 2,
            blocks: self.blocks,
            free_rows: demask_decode::FREE_ROWS,
        };
        let tokens = (0..self.prompt as TokenId).map(|position| position % 20).collect();
        let canvas = CanvasSpec::Prompt { tokens, gen_length: self.gen_length };
        let guide = decoder.traits().guide.map(|guide| GuideOptions {
            facts: facts(Mask::Causal, 1),
            end_ids: vec![EOS],
            shared_vocabulary: true,
            text: (guide.alignment == Some(Alignment::Bytes)).then(|| Words::of(&words::all()).text(None)).flatten(),
        });
        let options = SessionOptions {
            // Causal passes have no blocks, whatever the model's others have.
            block_length: self.block_length.filter(|_| !decoder.traits().causal),
            steps: self.steps.filter(|_| !decoder.traits().causal),
            remasking: self.remasking,
            schedule: self.schedule,
            temperature: self.temperature,
            alg_temp: self.alg_temp,
            cfg_scale: self.cfg_scale,
            decoder: decoder.clone(),
            cache: cache.clone(),
            seed: self.seed ^ 1,
            end_ids: vec![EOS],
            stop: self.stop,
            guide,
            ..SessionOptions::new(facts(self.mask, self.shift), canvas)
        };
        Session::new(options.clone()).is_ok().then_some(options)
    }
}
