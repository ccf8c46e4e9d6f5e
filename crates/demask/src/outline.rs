//! A model without its weights: what turns prompts into sessions, and what is known of each tensor's type.

use std::collections::BTreeMap;

use demask_checkpoint::{CheckpointText, Like, SynthError};
use demask_decode::{ModelFacts, Session, SessionOptions};
use demask_model::{ArchSpec, Role, expected_tensors};
use demask_step::{Mask, TokenId};
use demask_tensor::Dtype;

use crate::{
    Error, Options, Prepared, Prompt, Prompter,
    guide::{Bridge, Guiding},
};

/// A model as far as costs depend on it, perhaps with a guide.
pub struct Outline {
    prompter: Prompter,
    stored: BTreeMap<Role, Dtype>,
    main: Dtype,
    guide: Option<(Box<Outline>, Bridge)>,
}

impl Outline {
    /// Makes one of a model whose weights are stored in these types, most of them in `main`.
    pub(crate) fn new(prompter: Prompter, stored: BTreeMap<Role, Dtype>, main: Dtype) -> Self {
        Self { prompter, stored, main, guide: None }
    }

    /// Makes one of a released shape in bf16, perhaps with another number of layers; it has no tokenizer.
    ///
    /// # Errors
    /// If there is no such number of layers.
    pub fn of_shape(like: Like, layers: Option<usize>) -> Result<Self, SynthError> {
        let prompter = Prompter::of(CheckpointText::of_shape(like, layers)?);
        let stored = expected_tensors(prompter.spec()).into_iter().map(|tensor| (tensor.role, Dtype::Bf16)).collect();
        Ok(Self::new(prompter, stored, Dtype::Bf16))
    }

    pub(crate) fn with_guide(self, guide: Self, bridge: Bridge) -> Self {
        Self { guide: Some((Box::new(guide), bridge)), ..self }
    }

    /// Puts a guide beside it. Where one of the two has no tokenizer, their words are taken to be the same.
    ///
    /// # Errors
    /// If the two do not go together.
    pub fn guided_by(self, guide: Self) -> Result<Self, Error> {
        let wordless = [&self, &guide].iter().any(|outline| outline.prompter.tokenizer().is_err());
        let causal = guide.prompter.facts().mask == Mask::Causal;
        let bridge =
            if wordless && causal { Bridge::supposed() } else { Bridge::between(&self.prompter, &guide.prompter)? };
        Ok(self.with_guide(guide, bridge))
    }

    /// Returns what turns prompts into sessions.
    pub fn prompter(&self) -> &Prompter {
        &self.prompter
    }

    /// Returns its guide.
    pub fn guide(&self) -> Option<&Self> {
        self.guide.as_ref().map(|(guide, _)| &**guide)
    }

    /// Returns what turns prompts into sessions of each of its networks: its own, and its guide's.
    pub fn prompters(&self) -> Vec<&Prompter> {
        [Some(&self.prompter), self.guide().map(Self::prompter)].into_iter().flatten().collect()
    }

    /// Returns the type that each tensor is stored in.
    pub fn stored(&self) -> &BTreeMap<Role, Dtype> {
        &self.stored
    }

    /// Returns the type that most weights are stored in.
    pub(crate) fn main_dtype(&self) -> Dtype {
        self.main
    }

    /// Gets a prompt ready to be answered, with the guide if the decoder wants one.
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens, or the options contradict each other or the model.
    pub fn prepare(&self, prompt: &Prompt, options: &Options) -> Result<Prepared, Error> {
        let guide = self.guide.as_ref().filter(|_| options.wants_guide());
        let guide = guide.map(|(guide, bridge)| Guiding { index: 0, prompter: &guide.prompter, bridge });
        self.prompter.prepare_with(prompt, options, guide)
    }

    /// Returns the same network trained to take one token after the other, and a session that decodes as many tokens behind
    /// as long a prompt with it.
    ///
    /// # Errors
    /// If they are more than the context holds.
    pub fn autoregressive(&self, prompt: usize, gen_length: usize) -> Result<(ArchSpec, Session), Error> {
        let spec = ArchSpec { attention: Mask::Causal, shift: 1, ..self.prompter.spec().clone() };
        let facts = ModelFacts { mask: Mask::Causal, shift: 1, mask_id: None, ..self.prompter.facts().clone() };
        let tokens: Vec<TokenId> = vec![self.prompter.ordinary_tokens()[0]; prompt];
        let canvas = demask_decode::CanvasSpec::Prompt { tokens, gen_length };
        Ok((spec, Session::new(SessionOptions::new(facts, canvas))?))
    }
}
