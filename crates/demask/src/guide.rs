//! A guide beside a model: whether they share a vocabulary, and the way between two.

use std::sync::Arc;

use demask_decode::{Alignment, GuideOptions, GuideText, Translator};
use demask_step::{Mask, TokenId};

use crate::{
    Error, ModelInfo, Options, Prompt, Segment,
    bridge::{Bridge, Words, gives_back, same_words},
    info::Guide,
};

/// Chooses the guide of a request: its index; none if the decoder asks none.
pub(crate) fn choose(guides: &[Guide], options: &Options) -> Result<Option<usize>, Error> {
    let known = || guides.iter().map(|guide| guide.called().to_owned()).collect::<Vec<_>>();
    match &options.guide {
        Some(_) if !options.wants_guide() => {
            Err(Error::Meaningless { option: "guide", why: "without `decoder` guided, which is the one that asks it" })
        }
        Some(name) => {
            let place = guides.iter().position(|guide| guide.called() == name);
            place.map(Some).ok_or_else(|| Error::UnknownGuide { found: name.clone(), known: known() })
        }
        None if options.wants_guide() && guides.len() > 1 => Err(Error::WhichGuide { known: known() }),
        // A decoder that wants a guide where there is none is refused by the session.
        None => Ok((options.wants_guide() && !guides.is_empty()).then_some(0)),
    }
}

impl Bridge {
    /// Finds the way from `model` to `guide`, or why there is none.
    ///
    /// # Errors
    /// If their words differ and cannot be translated.
    pub fn between(model: &ModelInfo, guide: &ModelInfo) -> Result<Self, Error> {
        let name = || guide.name().to_owned();
        if guide.facts().mask != Mask::Causal {
            return Err(Error::GuideNotCausal { guide: name(), family: guide.spec().family.to_string() });
        }
        let (Some(own), Some(other)) = (&model.text.tokenizer, &guide.text.tokenizer) else {
            // Ids are all there is; they mean the same if there are as many.
            let shared = model.facts().vocab == guide.facts().vocab;
            let missing = if model.text.tokenizer.is_none() { model } else { guide };
            return if shared {
                Ok(Self { shared, translator: None })
            } else {
                Err(Error::GuideWithoutTokenizer { guide: name(), missing: missing.name().to_owned() })
            };
        };
        let shared = same_words(own, other, model.facts().mask_id);
        if !shared && !gives_back(other) {
            return Err(Error::GuideTokenizer { guide: name(), file: other.file().to_owned() });
        }
        Ok(Self { shared, translator: Some(Arc::new(Words::of(own, other))) })
    }

    /// Options of the guide for a prompt; `tokens` is the prompt in the model's words.
    pub(crate) fn options(
        &self,
        guide: &ModelInfo,
        prompt: &Prompt,
        tokens: &[TokenId],
        options: &Options,
    ) -> Result<GuideOptions, Error> {
        // Options without a decoder that asks a guide have no alignment; the session refuses them.
        let wanted = options.guide_use().and_then(|guide| guide.alignment);
        let by_ids = Alignment::fitted(wanted, self.shared) == Alignment::Ids;
        let text = match self.translator.as_ref().filter(|_| !by_ids) {
            Some(words) => {
                let translator: Arc<dyn Translator> = Arc::clone(words) as _;
                let prompt = words.prompt(guide, prompt, tokens, options)?;
                Some(GuideText { prompt, translator, automaton: None })
            }
            None => None,
        };
        Ok(GuideOptions {
            facts: guide.facts().clone(),
            end_ids: if options.ignores_eos() { Vec::new() } else { guide.end_ids().to_vec() },
            shared_vocabulary: self.shared,
            text,
        })
    }
}

impl Words {
    /// The prompt in the guide's own template and tokens.
    fn prompt(
        &self,
        guide: &ModelInfo,
        prompt: &Prompt,
        tokens: &[TokenId],
        options: &Options,
    ) -> Result<Vec<TokenId>, Error> {
        Ok(match prompt {
            Prompt::Chat(chat) => guide.chat_ids(chat, options)?,
            Prompt::Raw(text) => self.guide.encode(text, true)?,
            Prompt::Infill(_) | Prompt::Segments(_) => {
                let segments = prompt.segments()?;
                let before = segments.iter().take_while(|segment| matches!(segment, Segment::Text(_)));
                let before: String = before.map(ToString::to_string).collect();
                self.guide.encode(&before, true)?
            }
            Prompt::Tokens(_) => {
                let (mut bytes, mut encoded) = (Vec::new(), Vec::new());
                for &token in tokens {
                    self.bytes(token, &mut bytes);
                }
                self.encode(&bytes, &mut encoded);
                encoded.into_iter().map(|(token, _)| token).collect()
            }
        })
    }
}
