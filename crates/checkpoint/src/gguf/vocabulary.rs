//! Conversion of the metadata's tokens, merges and kinds of tokens to the `tokenizer.json` that they amount to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};

use super::{
    File,
    pieces::{self, Pieces},
    reader::Array,
};
use crate::{
    CheckpointError, Family, Tokenizer,
    error::quoted,
    families::FirstToken,
    fields::{Fields, TokenIds},
    tokenizer::{Added, Settings, byte_pairs},
};

/// Most tokens, and most merges: four times the largest vocabularies. Each takes some 500 bytes until the tokenizer stands.
const MOST_TEXTS: usize = 1 << 20;

// Kinds of tokens; all but the first are not made by merges.
const ORDINARY: u64 = 1;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;

/// The tokenizer of a file, and which of its tokens are no ordinary text.
pub(super) struct Vocabulary {
    pub tokenizer: Tokenizer,
    /// Ids of control tokens, and of those that users defined; none if the file gives no token's kind.
    marked: Option<BTreeSet<u32>>,
}

impl Vocabulary {
    /// The token of a text, unless it is ordinary text.
    pub(super) fn marked(&self, text: &str) -> Option<u32> {
        let known = |id: &u32| self.marked.as_ref().is_none_or(|marked| marked.contains(id));
        self.tokenizer.id(text).filter(known)
    }
}

/// The vocabulary of a file, or nothing if it has none.
pub(super) fn read(
    file: &File<'_>,
    fields: &Fields<'_>,
    family: &Family,
    ids: &TokenIds,
) -> Result<Option<Vocabulary>, CheckpointError> {
    let Some(model) = fields.optional_text("tokenizer.ggml.model")?.filter(|model| *model != "none") else {
        return Ok(None);
    };
    if model != "gpt2" {
        let what = format!("a tokenizer of the kind {}", quoted(model));
        return Err(fields.unsupported(what, "expected \"gpt2\", byte pairs; use the model's safetensors"));
    }
    let pieces = pieces::read(fields)?;
    let tokens = Tokens::read(file, fields)?;
    let mut settings = Settings::default();
    for (part, id) in [("mask_token", ids.mask), ("eos_token", ids.eos.first().copied()), ("bos_token", ids.bos)] {
        if let Some(text) = id.and_then(|id| tokens.text(id)) {
            settings.texts.insert(part, text);
        }
    }
    if let Some(text) = ids.pad.and_then(|id| tokens.text(id)) {
        settings.texts.insert("pad_token", text);
    }
    let mask = family.mask_texts.iter().find(|text| tokens.vocabulary.contains_key(**text));
    if let Some(text) = mask {
        settings.texts.entry("mask_token").or_insert_with(|| (*text).to_owned());
    }
    let merges = texts(file.list("tokenizer.ggml.merges")?, fields, "tokenizer.ggml.merges")?;
    let first =
        if starts(fields, family, pieces)? { ids.bos.and_then(|id| Some((id, tokens.text(id)?))) } else { None };
    let marked = tokens.kinds.then(|| tokens.added.keys().copied().collect());
    let mut whole = byte_pairs(pieces.patterns, tokens.vocabulary, &merges, tokens.added.values());
    if !pieces.nfc {
        whole["normalizer"] = Json::Null;
    }
    whole["model"]["ignore_merges"] = pieces.ignore_merges.into();
    if let Some((id, text)) = first {
        whole["post_processor"] = starting_with(id, &text);
    }
    let text = whole.to_string();
    let tokenizer = Tokenizer::parse(text.as_bytes(), file.label, settings)?;
    Ok(Some(Vocabulary { tokenizer, marked }))
}

/// Reports whether a raw text starts with the first token.
fn starts(fields: &Fields<'_>, family: &Family, pieces: &Pieces) -> Result<bool, CheckpointError> {
    let said = fields.optional_flag("tokenizer.ggml.add_bos_token")?;
    Ok(family.gguf.first_token == FirstToken::AsSaid && said.unwrap_or(pieces.begins))
}

fn starting_with(id: u32, text: &str) -> Json {
    let first = json!({"SpecialToken": {"id": text, "type_id": 0}});
    let sequence = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
    json!({
        "type": "TemplateProcessing",
        "single": [first.clone(), sequence("A")],
        "pair": [first, sequence("A"), sequence("B")],
        "special_tokens": {text: {"id": text, "ids": [id], "tokens": [text]}},
    })
}

/// The tokens of a file.
struct Tokens {
    /// Ids by text, unused ones left out.
    vocabulary: Map<String, Json>,
    added: BTreeMap<u32, Added>,
    texts: Vec<String>,
    /// Records whether the file says what each token is.
    kinds: bool,
}

impl Tokens {
    fn read(file: &File<'_>, fields: &Fields<'_>) -> Result<Self, CheckpointError> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        const KINDS: &str = "tokenizer.ggml.token_type";
        let tokens = file.list(TOKENS)?.ok_or_else(|| fields.missing(TOKENS, "a list of texts"))?;
        let texts = texts(Some(tokens), fields, TOKENS)?;
        let kinds = file.list(KINDS)?;
        if let Some(kinds) = kinds.filter(|kinds| kinds.len() != tokens.len()) {
            let expected = format!("a list as long as that of the tokens, {}", tokens.len());
            return Err(fields.bad(KINDS, &kinds.len().into(), expected));
        }
        // Kinds that are no numbers say nothing.
        let kinds = kinds.and_then(Array::magnitudes);
        let said = kinds.is_some();
        let mut kinds = kinds.into_iter().flatten();
        let (mut vocabulary, mut added) = (Map::new(), BTreeMap::new());
        for (id, text) in (0u32..).zip(&texts) {
            let kind = kinds.next().unwrap_or(ORDINARY);
            if kind == UNUSED {
                continue;
            }
            if vocabulary.insert(text.clone(), id.into()).is_some() {
                return Err(fields.bad(TOKENS, &text.as_str().into(), "each token once"));
            }
            if matches!(kind, CONTROL | USER_DEFINED) {
                added.insert(id, Added::literal(id, text, kind == CONTROL));
            }
        }
        Ok(Self { vocabulary, added, texts, kinds: said })
    }

    fn text(&self, id: u32) -> Option<String> {
        self.texts.get(id as usize).cloned()
    }
}

fn texts(list: Option<Array<'_>>, fields: &Fields<'_>, key: &str) -> Result<Vec<String>, CheckpointError> {
    let Some(list) = list else { return Ok(Vec::new()) };
    // Both are looked at before the first text is copied.
    let texts = list.texts().ok_or_else(|| fields.bad(key, &Json::Array(Vec::new()), "a list of texts"))?;
    if list.len() > MOST_TEXTS {
        return Err(fields.bad(key, &list.len().into(), format!("at most {MOST_TEXTS} texts")));
    }
    Ok(texts.map(str::to_owned).collect())
}
