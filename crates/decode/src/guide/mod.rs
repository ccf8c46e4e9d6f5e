//! A second, autoregressive network that judges drafts (FlashDLM's Guided Diffusion; specification flashdlm, section
//! 2): what decoding must know of it, how its tokens lie beside the canvas's, and what it has read.

mod reader;
mod rule;
mod trial;

use std::{fmt, sync::Arc};

use demask_step::{Mask, TokenId};

use crate::{
    decoder::{DecoderSpec, Promise},
    error::OptionsError,
    layout::Layout,
    options::{CanvasSpec, ModelFacts, SessionOptions},
};

pub(crate) use reader::Reader;
pub(crate) use rule::{RULES, Rule};
pub(crate) use trial::{Judge, Trial, Trials};

/// What a session must know of its guide.
#[derive(Debug, Clone, PartialEq)]
pub struct GuideOptions {
    /// The guide; causal.
    pub facts: ModelFacts,
    /// Tokens that end a text of the guide.
    pub end_ids: Vec<TokenId>,
    /// Whether a token means the same to both models.
    pub shared_vocabulary: bool,
    /// How text becomes tokens of the guide, where both models have a tokenizer.
    pub text: Option<GuideText>,
}

/// The guide's own prompt, and the way between the vocabularies.
#[derive(Debug, Clone)]
pub struct GuideText {
    /// The prompt as the guide's own template and tokenizer put it.
    pub prompt: Vec<TokenId>,
    /// The way from one vocabulary to the other.
    pub translator: Arc<dyn Translator>,
}

impl PartialEq for GuideText {
    fn eq(&self, other: &Self) -> bool {
        self.prompt == other.prompt && Arc::ptr_eq(&self.translator, &other.translator)
    }
}

/// The way from the canvas's vocabulary to the guide's, through bytes: tokens may start and end inside a character.
pub trait Translator: fmt::Debug + Send + Sync {
    /// Appends the bytes that a token of the canvas stands for.
    fn bytes(&self, token: TokenId, out: &mut Vec<u8>);

    /// Appends the guide's tokens of a text, each with the number of its bytes. Ends early where the guide has no token
    /// for what follows.
    fn encode(&self, bytes: &[u8], out: &mut Vec<(TokenId, usize)>);
}

/// How the guide's tokens lie beside the canvas's (specification flashdlm, section 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alignment {
    /// M0: one vocabulary; the guide reads the canvas itself.
    Ids,
    /// M1: each token becomes the first guide token of its text: positions line up, content is approximate.
    Table,
    /// M2: the response's text in the guide's own tokens; a draft stands if all tokens that overlap its bytes do.
    Bytes,
    /// M3: each token's text alone in the guide's tokens, all of which must stand.
    Pieces,
}

/// Names of the alignments, for the decoder's parameter.
pub(crate) const ALIGNMENTS: &[&str] = &["ids", "table", "bytes", "pieces"];

impl Alignment {
    /// That of a decoder, chosen to fit if it was not given.
    pub(crate) fn of(spec: &DecoderSpec, guide: &GuideOptions) -> Self {
        match spec.choice("align") {
            "ids" => Self::Ids,
            "table" => Self::Table,
            "bytes" => Self::Bytes,
            "pieces" => Self::Pieces,
            _ if guide.shared_vocabulary => Self::Ids,
            _ => Self::Bytes,
        }
    }
}

/// Whether the decoder's demand for a guide is met, and by a model that can guide this canvas.
pub(crate) fn check(options: &SessionOptions, layout: &Layout) -> Result<(), OptionsError> {
    let spec = &options.decoder;
    let decoder = spec.name();
    let guided = spec.method().promise == Promise::OfGuide;
    let Some(guide) = options.guide.as_ref() else {
        return if guided { Err(OptionsError::GuideMissing { decoder }) } else { Ok(()) };
    };
    if !guided {
        return Err(OptionsError::GuideUnused { decoder });
    }
    if guide.facts.mask != Mask::Causal {
        return Err(OptionsError::GuideNotCausal { attention: guide.facts.mask.kind() });
    }
    let alignment = Alignment::of(spec, guide);
    if alignment == Alignment::Ids && !guide.shared_vocabulary {
        return Err(OptionsError::GuideVocabulary { decoder });
    }
    check_tokens(options, guide)?;
    let prompt = match (alignment, &guide.text, &options.canvas) {
        (Alignment::Ids, ..) => layout.response(),
        (_, None, _) => return Err(OptionsError::GuideWithoutText { decoder }),
        (Alignment::Table, ..) => layout.response(),
        (_, Some(text), _) => text.prompt.len(),
    };
    if prompt == 0 {
        return Err(OptionsError::GuideEmptyPrompt);
    }
    let (needed, available) = (prompt + layout.len() - layout.response(), guide.facts.context);
    if needed > available {
        return Err(OptionsError::GuideContext { needed, available });
    }
    let own = [("fallback=ar", spec.choice("fallback") == "ar"), ("target=guide", targets_guide(spec))];
    match own.into_iter().find(|(_, given)| *given && alignment != Alignment::Ids) {
        Some((parameter, _)) => Err(OptionsError::GuideWrites { decoder, parameter }),
        None if targets_guide(spec) && options.temperature > 0.0 => Err(OptionsError::GuideTemperature { decoder }),
        None => Ok(()),
    }
}

/// Whether the output is to be the guide's own (speculative decoding; specification flashdlm, section 2.7).
pub(crate) fn targets_guide(spec: &DecoderSpec) -> bool {
    spec.choice("target") == "guide"
}

fn check_tokens(options: &SessionOptions, guide: &GuideOptions) -> Result<(), OptionsError> {
    let vocab = guide.facts.vocab;
    let within = |what, tokens: &[TokenId]| match tokens.iter().find(|&&token| token as usize >= vocab) {
        Some(&token) => Err(OptionsError::TokenOutOfRange { what, token, vocab }),
        None => Ok(()),
    };
    within("the guide's end token", &guide.end_ids)?;
    if let Some(text) = &guide.text {
        within("the guide's prompt token", &text.prompt)?;
    }
    if Alignment::of(&options.decoder, guide) == Alignment::Ids {
        let (CanvasSpec::Prompt { tokens, .. } | CanvasSpec::Infill { tokens }) = &options.canvas;
        let given = tokens.iter().copied().filter(|&token| Some(token) != options.facts.mask_id);
        within("for the guide, token", &given.collect::<Vec<_>>())?;
    }
    Ok(())
}
