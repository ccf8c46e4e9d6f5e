//! A second, autoregressive network that judges drafts (FlashDLM's Guided Diffusion; specs/flashdlm.md#2): the facts
//! that decoding needs, how its tokens map to the canvas's, and the tokens that it has read.

mod reader;
mod rule;
mod trial;

use std::{fmt, sync::Arc};

use demask_step::TokenId;

use crate::{choices, constraint::TokenAutomaton, facts::ModelFacts};

pub(crate) use reader::Reader;
pub use rule::Agreement;
pub(crate) use rule::Rule;
pub(crate) use trial::{Judge, Text, Trial, Trials};

/// Facts about a guide that a session must know.
#[derive(Debug, Clone, PartialEq)]
pub struct GuideOptions {
    /// The guide; causal.
    pub facts: ModelFacts,
    /// Tokens that end a text of the guide.
    pub end_ids: Vec<TokenId>,
    /// Sets whether a token means the same to both models.
    pub shared_vocabulary: bool,
    /// Translation of text into tokens of the guide, where both models have a tokenizer.
    pub text: Option<GuideText>,
}

/// The guide's own prompt, and the way between the vocabularies.
#[derive(Debug, Clone)]
pub struct GuideText {
    /// The prompt as the guide's own template and tokenizer put it.
    pub prompt: Vec<TokenId>,
    /// The way from one vocabulary to the other.
    pub translator: Arc<dyn Translator>,
    /// The session's constraint over the guide's tokens. Without one the guide ranks all of them. A guide that reads ids
    /// has the automaton of the canvas.
    pub automaton: Option<Arc<TokenAutomaton>>,
}

impl PartialEq for GuideText {
    fn eq(&self, other: &Self) -> bool {
        let automata = [self, other].map(|text| text.automaton.as_ref().map(Arc::as_ptr));
        self.prompt == other.prompt && Arc::ptr_eq(&self.translator, &other.translator) && automata[0] == automata[1]
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

choices! {
    /// Alignment of the guide's tokens with the canvas's (specs/flashdlm.md#2.6).
    pub enum Alignment {
        /// One vocabulary; the guide reads the canvas itself.
        Ids = "ids",
        /// The response's text in the guide's own tokens; a draft stands if all tokens that overlap its bytes do.
        Bytes = "bytes",
    }
}

impl Alignment {
    /// Returns the wanted one, or what fits if none is wanted.
    pub fn fitted(wanted: Option<Self>, shared_vocabulary: bool) -> Self {
        wanted.unwrap_or(if shared_vocabulary { Self::Ids } else { Self::Bytes })
    }
}

/// Use of a guide by a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuideUse {
    /// Alignment by which the guide reads drafts; none to have it chosen to fit ([`Alignment::fitted`]).
    pub alignment: Option<Alignment>,
    /// Records whether the output is to be the guide's own (speculative decoding; specs/flashdlm.md#2.7): it then ends
    /// where the guide ends it.
    pub is_target: bool,
}
