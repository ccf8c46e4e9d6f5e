//! The way between the words of a model and those of its guide.

use std::{fmt, sync::Arc};

use demask_checkpoint::Tokenizer;
use demask_decode::Translator;
use demask_step::TokenId;

/// Text that a tokenizer must return byte for byte, so that bytes can lead to its tokens.
const PROBE: &str = "The answer is 42.\nSo it is.";

/// The way between the words of a model and those of its guide.
#[derive(Debug, Clone)]
pub struct Bridge {
    pub(crate) shared: bool,
    pub(crate) translator: Option<Arc<Words>>,
}

impl Bridge {
    /// Supposes that the words of both are the same: for shapes, which have none.
    pub fn supposed() -> Self {
        Self { shared: true, translator: None }
    }
}

/// Pair of tokenizers.
pub(crate) struct Words {
    model: Arc<Tokenizer>,
    pub(crate) guide: Arc<Tokenizer>,
    /// The guide's token of each single byte, for bytes that are no text or that the guide's tokenizer spells
    /// differently.
    single: Vec<Option<TokenId>>,
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({} to {})", self.model.file(), self.guide.file())
    }
}

impl Words {
    /// Returns the pair, with the guide's token of each byte.
    pub(crate) fn of(model: &Arc<Tokenizer>, guide: &Arc<Tokenizer>) -> Self {
        Self { model: Arc::clone(model), guide: Arc::clone(guide), single: single_bytes(guide) }
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
pub(crate) fn same_words(model: &Tokenizer, guide: &Tokenizer, mask: Option<TokenId>) -> bool {
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

/// Reports whether a tokenizer returns a text byte for byte.
pub(crate) fn gives_back(tokenizer: &Tokenizer) -> bool {
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
