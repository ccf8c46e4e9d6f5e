//! What a user may ask of one generation, and how it becomes a session.

use std::fmt;

use demask_checkpoint::{Message, RenderOptions};
use demask_decode::{
    CacheSpec, CanvasSpec, DecoderSpec, OptionsError, Remasking, Schedule, Session, SessionOptions, StopRule,
    decoder::Promise, recommended,
};
use demask_step::{Mask, TokenId};
use serde::{Serialize, Serializer};

use crate::{GenerateError, Prompter, guide::Bridge};

/// Positions decoded if nobody says how many (LLaDA's and SDAR's scripts: 128).
const DEFAULT_GEN_LENGTH: usize = 128;

/// The prompt in one of its forms.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// A conversation, put into words by the checkpoint's chat template.
    Chat(Vec<Message>),
    /// Text without a template.
    Raw(String),
    /// Token ids as they are.
    Tokens(Vec<TokenId>),
    /// Text without a template, with `<mask:N>` holes to fill.
    Infill(String),
}

impl Prompt {
    /// One user message, after a system message if there is one.
    pub fn user(text: impl Into<String>, system: Option<&str>) -> Self {
        let system = system.map(|text| Message::new("system", text));
        let user = Message::new("user", text);
        Self::Chat(system.into_iter().chain([user]).collect())
    }

    /// Roughly how long it is: its tokens, or the bytes of its texts. For comparing prompts of one form.
    pub fn length(&self) -> usize {
        match self {
            Self::Chat(messages) => messages.iter().map(|message| message.content.len()).sum(),
            Self::Raw(text) | Self::Infill(text) => text.len(),
            Self::Tokens(ids) => ids.len(),
        }
    }
}

/// One generation. What is `None` is chosen to fit the model: the recommended decoder and cache if neither they nor steps,
/// schedule or remasking are given, the reference for what is missing otherwise. Written out, it names
/// only what was chosen.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct GenerateOptions {
    /// Positions to decode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gen_length: Option<usize>,
    /// Positions of a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_length: Option<usize>,
    /// Denoising steps over all blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    /// What ranks predictions.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_typed")]
    pub remasking: Option<Remasking>,
    /// How steps share the masks.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_typed")]
    pub schedule: Option<Schedule>,
    /// Where Dream's time ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eps: Option<f32>,
    /// 0: greedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Temperature of the order of commits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alg_temp: Option<f32>,
    /// Probability kept by top-p filtering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    /// Tokens kept by top-k filtering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Scale of classifier-free guidance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cfg_scale: Option<f32>,
    /// Decoder.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_typed")]
    pub decoder: Option<DecoderSpec>,
    /// Cache policy.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_typed")]
    pub cache: Option<CacheSpec>,
    /// Texts that end the answer; they are not part of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Decode all positions, whatever end tokens stand there, and keep them in the answer.
    pub ignore_eos: bool,
    /// Go on behind an end token; the answer still ends there.
    pub no_early_stop: bool,
    /// Never predict the end-of-text token (LLaDA's `logits_eos_inf`).
    pub suppress_eos: bool,
    /// Predict end tokens with confidence 0 (LLaDA's `confidence_eos_eot_inf`).
    pub eos_confidence_zero: bool,
    /// Key of all randomness.
    pub seed: u64,
}

impl GenerateOptions {
    /// Whether nothing is said of how to decode: neither a method nor what only static decoding knows. Otherwise the
    /// reference decodes, with what is given in the place of its own.
    fn leaves_methods_open(&self) -> bool {
        let methods = self.decoder.is_none() && self.cache.is_none();
        let order = self.remasking.is_none() && self.alg_temp.is_none();
        let time = self.steps.is_none() && self.schedule.is_none() && self.eps.is_none();
        methods && order && time
    }

    /// Whether the decoder wants a guide; a model that has one decodes without it too.
    pub fn wants_guide(&self) -> bool {
        self.decoder.as_ref().is_some_and(|decoder| decoder.method().promise == Promise::OfGuide)
    }
}

/// A method as it is typed.
#[expect(clippy::ref_option, reason = "serde hands fields over by reference")]
fn as_typed<T: fmt::Display, S: Serializer>(method: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match method {
        Some(method) => serializer.collect_str(method),
        None => serializer.serialize_none(),
    }
}

/// A prompt as tokens, and where its holes are filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) ids: Vec<TokenId>,
    /// Whether masks stand inside already.
    pub(crate) infill: bool,
}

impl Prompter {
    /// A session for a prompt.
    pub fn session(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<Session, GenerateError> {
        Ok(Session::new(self.options(prompt, options, None)?)?)
    }

    /// A session for a prompt, with a guide.
    pub fn guided_session(
        &self,
        guide: &Prompter,
        prompt: &Prompt,
        options: &GenerateOptions,
    ) -> Result<Session, GenerateError> {
        let bridge = Bridge::between(self, guide)?;
        Ok(Session::new(self.options(prompt, options, Some((guide, &bridge)))?)?)
    }

    /// Session options for a prompt, perhaps with a guide and the way to its words.
    pub(crate) fn options(
        &self,
        prompt: &Prompt,
        options: &GenerateOptions,
        guide: Option<(&Prompter, &Bridge)>,
    ) -> Result<SessionOptions, GenerateError> {
        let tokens = self.tokenize(prompt)?;
        if let (Some(decoder), Some(_), false) = (&options.decoder, guide, options.wants_guide()) {
            return Err(OptionsError::GuideUnused { decoder: decoder.name() }.into());
        }
        let guide = guide.map(|(guide, bridge)| bridge.options(guide, prompt, &tokens.ids, options)).transpose()?;
        check_guided(guide.is_some(), options)?;
        let own = self.session_options(tokens, options)?;
        let Some(guide) = guide else { return Ok(own) };
        // The guide's own output ends where the guide ends it.
        let to_guide = options.wants_guide()
            && options.decoder.as_ref().is_some_and(|decoder| decoder.choice("target") == "guide");
        let end_ids = if to_guide { guide.end_ids.clone() } else { own.end_ids };
        Ok(SessionOptions {
            // Drafts reach over the whole response unless somebody says otherwise.
            block_length: options.block_length,
            end_ids,
            guide: Some(guide),
            ..own
        })
    }

    /// A prompt in words, as the model's template puts it; ids, separated by commas, where it has none.
    pub fn in_words(&self, prompt: &Prompt) -> Result<String, GenerateError> {
        Ok(match prompt {
            Prompt::Tokens(ids) => ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            Prompt::Raw(text) | Prompt::Infill(text) => text.clone(),
            Prompt::Chat(messages) => self.template().render(messages, &RenderOptions::default())?,
        })
    }

    /// Turns a prompt into tokens.
    pub(crate) fn tokenize(&self, prompt: &Prompt) -> Result<Tokens, GenerateError> {
        let infill = matches!(prompt, Prompt::Infill(_));
        let ids = match prompt {
            Prompt::Tokens(ids) => ids.clone(),
            Prompt::Raw(text) => self.tokenizer()?.encode(text, true)?,
            Prompt::Chat(_) => {
                let text = self.in_words(prompt)?;
                self.tokenizer()?.encode(&text, false)?
            }
            Prompt::Infill(text) => self.tokenize_holes(text)?,
        };
        let vocabulary = self.facts().vocab;
        if let Some(&token) = ids.iter().find(|&&token| token as usize >= vocabulary) {
            return Err(GenerateError::TokenOutOfRange { token, vocabulary });
        }
        let holds_mask = self.facts().mask_id.is_some_and(|mask| ids.contains(&mask));
        match (infill, holds_mask) {
            (false, true) => Err(GenerateError::MaskInPrompt),
            (true, false) => Err(GenerateError::NoHole),
            _ => Ok(Tokens { ids, infill }),
        }
    }

    fn tokenize_holes(&self, text: &str) -> Result<Vec<TokenId>, GenerateError> {
        let (Mask::Full, Some(mask)) = (self.facts().mask, self.facts().mask_id) else {
            return Err(GenerateError::InfillUnsupported { family: self.spec().family.to_string() });
        };
        let mut ids = Vec::new();
        let mut rest = text;
        while let Some((before, hole)) = rest.split_once("<mask:") {
            let (count, after) = hole.split_once('>').ok_or_else(|| GenerateError::BadHole { found: shorten(hole) })?;
            let count: usize = count
                .trim()
                .parse()
                .ok()
                .filter(|count| (1..=self.facts().context).contains(count))
                .ok_or_else(|| GenerateError::BadHole { found: shorten(count) })?;
            ids.extend(self.tokenizer()?.encode(before, ids.is_empty())?);
            ids.extend(std::iter::repeat_n(mask, count));
            rest = after;
        }
        ids.extend(self.tokenizer()?.encode(rest, ids.is_empty())?);
        Ok(ids)
    }

    /// Session options for a prompt: explicit values are checked by the session, missing ones are chosen here.
    pub(crate) fn session_options(
        &self,
        tokens: Tokens,
        options: &GenerateOptions,
    ) -> Result<SessionOptions, GenerateError> {
        self.check_meaning(&tokens, options)?;
        let infill = tokens.infill;
        let canvas = self.canvas(tokens, options)?;
        let mut defaults = SessionOptions::new(self.facts().clone(), canvas);
        if let Some(methods) = recommended(self.facts().mask).filter(|_| !infill && options.leaves_methods_open()) {
            (defaults.decoder, defaults.cache) = methods;
        }
        let decoding = self.family().decoding();
        let temperature = options.temperature.unwrap_or(0.0);
        Ok(SessionOptions {
            block_length: options.block_length.or_else(|| self.default_block_length(&defaults.canvas, options)),
            steps: options.steps,
            remasking: options.remasking.unwrap_or_default(),
            schedule: options.schedule.unwrap_or_default(),
            eps: options.eps.unwrap_or(defaults.eps),
            temperature,
            top_p: options.top_p.unwrap_or(defaults.top_p),
            top_k: options.top_k.unwrap_or(defaults.top_k),
            alg_temp: options.alg_temp.unwrap_or(defaults.alg_temp),
            cfg_scale: options.cfg_scale.unwrap_or(defaults.cfg_scale),
            // The order of filters and whose probability ranks are the family's own, as in its official code.
            filter_order: decoding.filter_order,
            confidence: decoding.confidence,
            decoder: options.decoder.clone().unwrap_or_else(|| defaults.decoder.clone()),
            cache: options.cache.clone().unwrap_or_else(|| defaults.cache.clone()),
            seed: options.seed,
            end_ids: if options.ignore_eos { Vec::new() } else { self.end_ids().to_vec() },
            stop: if options.ignore_eos || options.no_early_stop { StopRule::Never } else { StopRule::Prefix },
            suppress: match (infill, options.suppress_eos) {
                // A hole is filled with text: an end in front of what follows it would be none.
                (true, _) => self.end_ids().to_vec(),
                (false, true) => self.eos_ids()?,
                (false, false) => Vec::new(),
            },
            mute: self.muted(options, temperature)?,
            ..defaults
        })
    }

    /// Refuses options that would be ignored.
    fn check_meaning(&self, tokens: &Tokens, options: &GenerateOptions) -> Result<(), GenerateError> {
        let causal = self.facts().mask == Mask::Causal;
        let even = !matches!(options.schedule, Some(Schedule::Dream | Schedule::DreamTotal));
        let greedy = options.temperature.unwrap_or(0.0) == 0.0;
        let ar = "for autoregressive decoding, which takes one token after the other";
        let checks = [
            (options.eps.is_some() && even, "--eps", "without --schedule dream or dream_total, whose time it ends"),
            (!options.stop.is_empty() && tokens.infill, "--stop", "with --infill, where the text's end is given"),
            (options.stop.iter().any(String::is_empty), "--stop", "without a text"),
            (options.remasking.is_some() && causal, "--remasking", ar),
            (options.schedule.is_some() && causal, "--schedule", ar),
            (options.alg_temp.is_some() && causal, "--alg-temp", ar),
            (options.top_k.is_some() && causal && greedy, "--top-k", "at temperature 0, where the best token is taken"),
            (options.top_p.is_some() && causal && greedy, "--top-p", "at temperature 0, where the best token is taken"),
        ];
        match checks.into_iter().find(|(meaningless, ..)| *meaningless) {
            Some((_, option, why)) => Err(GenerateError::Meaningless { option, why }),
            None => Ok(()),
        }
    }

    /// LLaDA's `confidence_eos_eot_inf` as it acts: both end tokens at temperature 0, only the turn end above
    /// (specification models, trap 7).
    fn muted(&self, options: &GenerateOptions, temperature: f32) -> Result<Vec<TokenId>, GenerateError> {
        if !options.eos_confidence_zero {
            return Ok(Vec::new());
        }
        let eos = self.eos_ids()?;
        Ok(self.end_ids().iter().copied().filter(|id| temperature == 0.0 || !eos.contains(id)).collect())
    }

    fn canvas(&self, Tokens { ids, infill }: Tokens, options: &GenerateOptions) -> Result<CanvasSpec, GenerateError> {
        let context = self.facts().context;
        if infill {
            if options.gen_length.is_some() {
                return Err(GenerateError::InfillLength);
            }
            return if ids.len() <= context {
                Ok(CanvasSpec::Infill { tokens: ids })
            } else {
                Err(GenerateError::TooLong { prompt: ids.len(), gen_length: 0, context })
            };
        }
        let wanted = self.defaults().gen_length.unwrap_or(DEFAULT_GEN_LENGTH);
        // A block-causal canvas is rounded up to whole blocks, which must still fit.
        let block = match self.facts().mask {
            Mask::BlockCausal { block } => options.block_length.unwrap_or(block as usize).max(1),
            _ => 1,
        };
        let room = (context / block * block).saturating_sub(ids.len());
        let gen_length = options.gen_length.unwrap_or_else(|| wanted.min(room));
        if gen_length > room || room == 0 {
            let gen_length = gen_length.max(1);
            return Err(GenerateError::TooLong { prompt: ids.len(), gen_length, context });
        }
        Ok(CanvasSpec::Prompt { tokens: ids, gen_length })
    }

    /// The block length that the model was made for, where nothing given speaks against it; the session fits one
    /// otherwise.
    fn default_block_length(&self, canvas: &CanvasSpec, options: &GenerateOptions) -> Option<usize> {
        let CanvasSpec::Prompt { gen_length, .. } = canvas else { return None };
        let free = options.steps.is_none() && options.schedule.is_none();
        self.defaults().block_length.filter(|length| free && gen_length % length == 0)
    }
}

/// Refuses options that a guide makes pointless.
fn check_guided(guided: bool, options: &GenerateOptions) -> Result<(), GenerateError> {
    let why = "with a guide, which takes drafts from left to right";
    let checks = [
        (options.steps.is_some(), "--steps"),
        (options.remasking.is_some(), "--remasking"),
        (options.schedule.is_some(), "--schedule"),
        (options.alg_temp.is_some(), "--alg-temp"),
    ];
    match checks.into_iter().find(|(given, _)| guided && *given) {
        Some((_, option)) => Err(GenerateError::Meaningless { option, why }),
        None => Ok(()),
    }
}

/// The beginning of a text for a message.
fn shorten(text: &str) -> String {
    text.chars().take(20).collect()
}

/// What a session says of options, as an error of this crate.
impl From<OptionsError> for GenerateError {
    fn from(error: OptionsError) -> Self {
        Self::Options(error)
    }
}
