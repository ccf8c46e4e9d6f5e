//! A model without its weights: the parts that turn prompts into sessions, and the type of each tensor.

use std::{collections::BTreeMap, sync::Arc};

use demask_decode::{CanvasSpec, ModelFacts, Session, SessionOptions};
use demask_model::{ArchSpec, Role, expected_tensors};
use demask_step::{Mask, TokenId};
use demask_tensor::Dtype;

use super::shapes::{Like, ShapeError};
use crate::{Error, ModelInfo, Opened, Options, Prompt, bridge::Bridge};

/// A model as far as costs depend on it, perhaps with a guide.
pub struct ModelShape {
    info: Arc<ModelInfo>,
    stored: BTreeMap<Role, Dtype>,
    main: Dtype,
    guide: Option<Box<ModelShape>>,
}

impl ModelShape {
    /// Leaves a model's weights after, its first guide's too.
    pub fn of(opened: Opened) -> Self {
        let all = opened.into_parts().into_iter().rev();
        let shape = all.fold(None, |guide: Option<Self>, (info, stored, main)| {
            Some(Self { info, stored, main, guide: guide.map(Box::new) })
        });
        shape.unwrap_or_else(|| unreachable!("a model is a part of itself"))
    }

    /// Makes one of a released shape in bf16, perhaps with another number of layers; it has no tokenizer.
    ///
    /// # Errors
    /// If there is no such number of layers.
    pub fn of_shape(like: Like, layers: Option<usize>) -> Result<Self, ShapeError> {
        let info = ModelInfo::of(like.text(layers)?);
        let stored = expected_tensors(info.spec()).into_iter().map(|tensor| (tensor.role, Dtype::Bf16)).collect();
        Ok(Self { info: Arc::new(info), stored, main: Dtype::Bf16, guide: None })
    }

    /// Puts a guide beside it. Where one of the two has no tokenizer, their words are taken to be the same.
    ///
    /// # Errors
    /// If the two do not go together.
    pub fn guided_by(mut self, guide: Self) -> Result<Self, Error> {
        let wordless = [&self, &guide].iter().any(|shape| shape.info.tokenizer().is_err());
        let causal = guide.info.facts().mask == Mask::Causal;
        let bridge = if wordless && causal { Bridge::supposed() } else { Bridge::between(&self.info, &guide.info)? };
        if let Some(info) = Arc::get_mut(&mut self.info) {
            info.add_guide(Arc::clone(&guide.info), bridge);
        }
        Ok(Self { guide: Some(Box::new(guide)), ..self })
    }

    /// Returns what turns prompts into sessions.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Returns its guide.
    pub fn guide(&self) -> Option<&Self> {
        self.guide.as_deref()
    }

    /// Returns what turns prompts into sessions of each of its networks: its own, and its guide's.
    pub fn infos(&self) -> Vec<&ModelInfo> {
        [Some(&*self.info), self.guide().map(Self::info)].into_iter().flatten().collect()
    }

    /// Returns the type that each tensor is stored in.
    pub fn stored(&self) -> &BTreeMap<Role, Dtype> {
        &self.stored
    }

    /// Returns the type that most weights are stored in.
    pub fn main_dtype(&self) -> Dtype {
        self.main
    }

    /// Returns the session of a prompt, with the guide if the decoder wants one.
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens, or the options contradict each other or the model.
    pub fn session(&self, prompt: &Prompt, options: &Options) -> Result<Session, Error> {
        self.info.session(prompt, options)
    }

    /// Returns the same network trained to take one token after the other, and a session that decodes as many tokens after
    /// as long a prompt with it.
    ///
    /// # Errors
    /// If they are more than the context holds.
    pub fn autoregressive(&self, prompt: usize, gen_length: usize) -> Result<(ArchSpec, Session), Error> {
        let spec = ArchSpec { attention: Mask::Causal, shift: 1, ..self.info.spec().clone() };
        let facts = ModelFacts { mask: Mask::Causal, shift: 1, mask_id: None, ..self.info.facts().clone() };
        let tokens: Vec<TokenId> = vec![self.info.ordinary_tokens()[0]; prompt];
        let canvas = CanvasSpec::Prompt { tokens, gen_length };
        Ok((spec, Session::new(SessionOptions::new(facts, canvas))?))
    }
}
