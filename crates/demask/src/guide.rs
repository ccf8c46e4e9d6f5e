//! A guide beside a model: whether they share a vocabulary, and the way between two.

use std::{fmt, sync::Arc};

use demask_checkpoint::Tokenizer;
use demask_decode::{Alignment, GuideOptions, GuideText, Translator};
use demask_step::{Mask, TokenId};

use crate::{Error, ModelInfo, Options, Prompt, Segment, model::Guide};

/// Text that a tokenizer must return byte for byte, so that bytes can lead to its tokens.
const PROBE: &str = "The answer is 42.\nSo it is.";

/// The way between the words of a model and those of its guide.
#[derive(Debug, Clone)]
pub struct Bridge {
    shared: bool,
    translator: Option<Arc<Words>>,
}

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

/// Pair of tokenizers.
struct Words {
    model: Arc<Tokenizer>,
    guide: Arc<Tokenizer>,
    /// The guide's token of each single byte, for what is no text or is spelled differently by its tokenizer.
    single: Vec<Option<TokenId>>,
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({} to {})", self.model.file(), self.guide.file())
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
        let words = Words { model: Arc::clone(own), guide: Arc::clone(other), single: single_bytes(other) };
        Ok(Self { shared, translator: Some(Arc::new(words)) })
    }

    /// Supposes that the words of both are the same: for shapes, which have none.
    pub fn supposed() -> Self {
        Self { shared: true, translator: None }
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
                Some(GuideText { prompt: words.prompt(guide, prompt, tokens, options)?, translator })
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
            Prompt::Chat(messages) => guide.chat_ids(messages, options)?,
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

    /// Appends the tokens of a text as far as they stand for its own bytes; returns how far that is.
    fn encode_text(&self, text: &str, out: &mut Vec<(TokenId, usize)>) -> usize {
        let mut done = 0;
        for id in self.guide.encode(text, false).unwrap_or_default() {
            let bytes = self.guide.token_bytes(id).unwrap_or_default();
            if bytes.is_empty() || !text.as_bytes()[done..].starts_with(&bytes) {
                break;
            }
            out.push((id, bytes.len()));
            done += bytes.len();
        }
        done
    }
}

impl Translator for Words {
    fn bytes(&self, token: TokenId, out: &mut Vec<u8>) {
        out.extend(self.model.token_bytes(token).unwrap_or_default());
    }

    fn encode(&self, bytes: &[u8], out: &mut Vec<(TokenId, usize)>) {
        let mut rest = bytes;
        while let Some(&next) = rest.first() {
            let text = rest.utf8_chunks().next().map_or("", |chunk| chunk.valid());
            let done = self.encode_text(text, out);
            rest = &rest[done..];
            if done > 0 && done == text.len() {
                continue;
            }
            // A part of a character, or text that the tokenizer would write differently (normalised, for example).
            let next = rest.first().copied().unwrap_or(next);
            let Some(id) = self.single[usize::from(next)] else { return };
            out.push((id, 1));
            rest = &rest[1..];
        }
    }
}

/// Reports whether a token means the same to both. What only one of them has beside its vocabulary does no harm, and
/// neither do the model's own mask and start: they are in no text (specs/flashdlm.md#2.6).
fn same_words(model: &Tokenizer, guide: &Tokenizer, mask: Option<TokenId>) -> bool {
    let unread = [mask, model.named("mask_token"), model.named("bos_token")];
    let mut compared = false;
    for id in 0..=model.largest_id().max(guide.largest_id()) {
        let added = model.is_added(id) || guide.is_added(id);
        match (model.token(id), guide.token(id)) {
            (None, None) => {}
            (own, other) if own == other => compared |= !added,
            (None, Some(_)) | (Some(_), None) if added => {}
            _ if added && unread.contains(&Some(id)) => {}
            _ => return false,
        }
    }
    compared
}

fn gives_back(tokenizer: &Tokenizer) -> bool {
    let ids = tokenizer.encode(PROBE, false).unwrap_or_default();
    let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap_or_default()).collect();
    bytes == PROBE.as_bytes()
}

fn single_bytes(tokenizer: &Tokenizer) -> Vec<Option<TokenId>> {
    let mut single = vec![None; 256];
    for id in 0..=tokenizer.largest_id() {
        if let Some([byte]) = tokenizer.token_bytes(id).as_deref() {
            single[usize::from(*byte)].get_or_insert(id);
        }
    }
    single
}
