//! From the metadata's tokens, merges and kinds of tokens to the `tokenizer.json` that they amount to.

use std::collections::BTreeMap;

use demask_model::Family;
use serde_json::{Map, Value as Json, json};

use super::{
    File,
    reader::{Array, Value},
};
use crate::{
    CheckpointError, Tokenizer,
    config::{Fields, TokenIds},
    error::shown,
    tokenizer::{Added, Settings, byte_pairs},
};

// Kinds of tokens that are not made by merges.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;

/// How a model's tokenizer cuts text; `tokenizer.ggml.pre` names it.
struct Pieces {
    names: &'static [&'static str],
    pattern: &'static str,
    /// Whether Hugging Face's tokenizer normalises to NFC first.
    nfc: bool,
    /// Whether a piece that is a token is taken as it is.
    ignore_merges: bool,
}

const PIECES: &[Pieces] = &[
    Pieces { names: &["qwen2"], pattern: crate::tokenizer::QWEN2_PIECES, nfc: true, ignore_merges: false },
    Pieces {
        names: &["llada-moe", "bailingmoe"],
        pattern: r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        nfc: false,
        ignore_merges: false,
    },
    Pieces {
        names: &["llama-bpe", "llama3", "llama-v3"],
        pattern: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        nfc: false,
        ignore_merges: true,
    },
];

/// Texts of the mask token where no key names it.
fn mask_texts(family: Family) -> &'static [&'static str] {
    match family {
        Family::Llada => &["<|mdm_mask|>"],
        Family::Dream => &["<|mask|>"],
        Family::Sdar => &["<|MASK|>", "<MASK>"],
        _ => &[],
    }
}

/// The tokenizer of a file, or nothing if it has none.
pub(super) fn read(
    file: &File<'_>,
    fields: &Fields<'_>,
    family: Family,
    ids: &TokenIds,
) -> Result<Option<Tokenizer>, CheckpointError> {
    let Some(model) = fields.optional_text("tokenizer.ggml.model")?.filter(|model| *model != "none") else {
        return Ok(None);
    };
    if model != "gpt2" {
        let what = format!("a tokenizer of the kind {}", shown(model));
        return Err(fields.unsupported(what, "expected \"gpt2\", byte pairs; use the model's safetensors"));
    }
    let pieces = pieces(fields)?;
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
    let mask = mask_texts(family).iter().find(|text| tokens.vocabulary.contains_key(**text));
    if let Some(text) = mask {
        settings.texts.entry("mask_token").or_insert_with(|| (*text).to_owned());
    }
    let merges = texts(file.list("tokenizer.ggml.merges")?, fields, "tokenizer.ggml.merges")?;
    let start = start(fields, family)?.and_then(|()| Some((ids.bos?, tokens.text(ids.bos?)?)));
    let mut whole = byte_pairs(pieces.pattern, tokens.vocabulary, &merges, tokens.added.values());
    if !pieces.nfc {
        whole["normalizer"] = Json::Null;
    }
    whole["model"]["ignore_merges"] = pieces.ignore_merges.into();
    if let Some((id, text)) = start {
        whole["post_processor"] = starting_with(id, &text);
    }
    let text = whole.to_string();
    Tokenizer::parse(text.as_bytes(), file.label, settings).map(Some)
}

fn pieces(fields: &Fields<'_>) -> Result<&'static Pieces, CheckpointError> {
    let name = fields.optional_text("tokenizer.ggml.pre")?;
    let name = name.ok_or_else(|| fields.missing("tokenizer.ggml.pre", "the name of a way to cut text"))?;
    PIECES.iter().find(|pieces| pieces.names.contains(&name)).ok_or_else(|| {
        let known: Vec<_> = PIECES.iter().flat_map(|pieces| pieces.names).copied().collect();
        fields.bad("tokenizer.ggml.pre", &name.into(), format!("one of {}", known.join(", ")))
    })
}

/// Whether a raw text starts with the first token. LLaDA's files say so and its own tokenizer does not: with a chat
/// template, which writes the token, there would be two.
fn start(fields: &Fields<'_>, family: Family) -> Result<Option<()>, CheckpointError> {
    let said = fields.optional_flag("tokenizer.ggml.add_bos_token")?.unwrap_or(family == Family::Llama);
    Ok((said && family != Family::Llada).then_some(()))
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
}

impl Tokens {
    fn read(file: &File<'_>, fields: &Fields<'_>) -> Result<Self, CheckpointError> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        const KINDS: &str = "tokenizer.ggml.token_type";
        let tokens = file.list(TOKENS)?.ok_or_else(|| fields.missing(TOKENS, "a list of texts"))?;
        let kinds = file.list(KINDS)?;
        if let Some(kinds) = kinds.filter(|kinds| kinds.len() != tokens.len()) {
            let expected = format!("a list as long as that of the tokens, {}", tokens.len());
            return Err(fields.bad(KINDS, &kinds.len().into(), expected));
        }
        let texts = texts(Some(tokens), fields, TOKENS)?;
        let mut kinds = kinds.into_iter().flat_map(|kinds| kinds.values().collect::<Vec<_>>());
        let (mut vocabulary, mut added) = (Map::new(), BTreeMap::new());
        for (id, text) in (0u32..).zip(&texts) {
            let kind = match kinds.next() {
                Some(Value::Signed(kind)) => kind.unsigned_abs(),
                Some(Value::Unsigned(kind)) => kind,
                _ => 1,
            };
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
        Ok(Self { vocabulary, added, texts })
    }

    fn text(&self, id: u32) -> Option<String> {
        self.texts.get(id as usize).cloned()
    }
}

fn texts(list: Option<Array<'_>>, fields: &Fields<'_>, key: &str) -> Result<Vec<String>, CheckpointError> {
    let values = list.into_iter().flat_map(|list| list.values().collect::<Vec<_>>());
    let text = |value| match value {
        Value::Text(text) => Ok(text.to_owned()),
        _ => Err(fields.bad(key, &Json::Array(Vec::new()), "a list of texts")),
    };
    values.map(text).collect()
}
