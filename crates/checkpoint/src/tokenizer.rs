//! Text to ids and back, down to bytes: a token may hold a part of a character.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use tokenizers::DecoderWrapper;

use crate::{
    ChatTemplate, CheckpointError, Family, ModelFiles,
    error::{one_line, quoted},
    families::qwen2,
    fields::{Fields, check_values},
    guard::guarded,
};

mod apart;
mod growth;

const WHOLE: &str = "tokenizer.json";
const SETTINGS: &str = "tokenizer_config.json";
const VOCABULARY: &str = "vocab.json";
const MERGES: &str = "merges.txt";

/// A checkpoint's tokenizer.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    file: String,
    spelling: Spelling,
    special: BTreeSet<u32>,
    /// Texts of the tokens beside the vocabulary that are written in brackets.
    bracketed: Vec<String>,
    texts: BTreeMap<&'static str, String>,
    largest: u32,
    /// Set if added tokens are found in normalised text, too.
    normalizes: bool,
    /// Bytes of a text that one token may stand for.
    longest: usize,
}

/// Spelling of bytes in the vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// One printable character for each byte (GPT-2).
    ByteLevel,
    /// Text with `▁` for a space and `<0xNN>` for a byte (SentencePiece).
    Text,
}

/// A token beside the ordinary vocabulary.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Added {
    #[serde(default)]
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    normalized: bool,
}

impl Added {
    pub(crate) fn literal(id: u32, content: &str, special: bool) -> Self {
        let content = content.to_owned();
        Self { id, content, special, lstrip: false, rstrip: false, single_word: false, normalized: false }
    }

    fn to_json(&self) -> Value {
        json!({
            "id": self.id, "content": self.content, "special": self.special, "lstrip": self.lstrip,
            "rstrip": self.rstrip, "single_word": self.single_word, "normalized": self.normalized,
        })
    }
}

/// The parts of a `tokenizer.json` that are checked here; the rest is its library's.
#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
}

/// Returns whether a decoder, or one of those that it is made of, turns printable characters into bytes.
fn is_byte_level(decoder: &DecoderWrapper) -> bool {
    match decoder {
        DecoderWrapper::ByteLevel(_) => true,
        DecoderWrapper::Sequence(sequence) => sequence.get_decoders().iter().any(is_byte_level),
        _ => false,
    }
}

/// Most values in a `tokenizer.json`: twice those of a vocabulary of 260,000 tokens with twice as many merges.
const MOST_VALUES: usize = 4 << 20;

impl Tokenizer {
    /// The tokenizer of a checkpoint, from `tokenizer.json`, or from `vocab.json` and `merges.txt`; or nothing, if
    /// there is neither.
    pub fn open(files: &ModelFiles, family: &Family) -> Result<Option<Self>, CheckpointError> {
        let settings = Settings::read(files)?;
        let (name, text) = if let Some(text) = files.text(WHOLE)? {
            (WHOLE, text)
        } else if let Some(vocabulary) = files.text(VOCABULARY)? {
            (VOCABULARY, from_vocabulary(files, &vocabulary, &settings, family)?)
        } else {
            return Ok(None);
        };
        Self::parse(&text, &files.label(name), settings).map(Some)
    }

    /// Returns the mask token that a checkpoint's tokenizer files name.
    pub(crate) fn mask_text(files: &ModelFiles) -> Result<Option<String>, CheckpointError> {
        Ok(Settings::read(files)?.texts.remove("mask_token"))
    }

    /// The tokenizer of a `tokenizer.json`'s text; `file` is its name for messages.
    pub(crate) fn parse(text: &[u8], file: &str, settings: Settings) -> Result<Self, CheckpointError> {
        let broken = |detail: String| CheckpointError::Tokenizer { file: file.to_owned(), detail };
        check_values(text, MOST_VALUES).map_err(broken)?;
        let outline: Outline = serde_json::from_slice(text).map_err(|error| broken(one_line(error)))?;
        growth::check(&outline.normalizer).map_err(broken)?;
        let mut inner = attempt(|| tokenizers::Tokenizer::from_bytes(text)).map_err(broken)?;
        // Neither belongs to an engine that plans its own canvas, and a padding of absurd length would be memory.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| broken(one_line(error)))?;
        for added in &outline.added_tokens {
            let found = inner.token_to_id(&added.content);
            if found != Some(added.id) {
                let found = found.map_or_else(|| "none".to_owned(), |id| id.to_string());
                let token = quoted(&added.content);
                return Err(broken(format!(
                    "the added token {token} should have the id {} and gets {found}",
                    added.id
                )));
            }
        }
        let vocabulary = inner.get_vocab(true);
        let longest = vocabulary.keys().map(String::len).max().unwrap_or(1);
        let largest = vocabulary.into_values().max();
        let largest = largest.ok_or_else(|| broken("it has no tokens".to_owned()))?;
        let special = outline.added_tokens.iter().filter(|added| added.special).map(|added| added.id).collect();
        let is_bracketed = |text: &str| text.starts_with(['<', '[', '{']) && text.ends_with(['>', ']', '}']);
        let bracketed = outline.added_tokens.iter().filter(|added| !added.special && is_bracketed(&added.content));
        let bracketed = bracketed.map(|added| added.content.clone()).collect();
        let spelling =
            if inner.get_decoder().is_some_and(is_byte_level) { Spelling::ByteLevel } else { Spelling::Text };
        let normalizes = inner.get_normalizer().is_some() && outline.added_tokens.iter().any(|added| added.normalized);
        // A normaliser composes letters, or spells them shorter.
        let shrinks = spelling == Spelling::Text || inner.get_normalizer().is_some();
        let longest = if shrinks { 4 * longest } else { longest };
        let texts = settings.texts;
        Ok(Self { inner, file: file.to_owned(), spelling, special, bracketed, texts, largest, normalizes, longest })
    }

    /// Ids of a text. Special tokens that the text spells out become those tokens; `add_special` also adds the tokens
    /// that the tokenizer puts around a raw text (never after a chat template, which has written them).
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, CheckpointError> {
        let encoding = attempt(|| self.inner.encode_fast(text, add_special));
        let broken = |detail| CheckpointError::Tokenizer { file: self.file.clone(), detail };
        encoding.map(|encoding| encoding.get_ids().to_vec()).map_err(broken)
    }

    /// Texts of the control tokens: those that are special, those of these ids, and those in brackets (`<think>`) that the
    /// template itself writes or looks for. A message's own text is read as none of them.
    pub fn controls(&self, ids: impl Iterator<Item = u32>, template: &ChatTemplate) -> Vec<String> {
        let ids = ids.chain(self.special.iter().copied()).collect::<BTreeSet<u32>>();
        let named = ids.into_iter().filter_map(|id| self.inner.id_to_token(id));
        let source = template.source().unwrap_or_default();
        let written = self.bracketed.iter().filter(|text| source.contains(text.as_str())).cloned();
        let mut controls: Vec<String> = named.chain(written).filter(|text| !text.is_empty()).collect();
        controls.sort_unstable();
        controls.dedup();
        controls
    }

    /// Returns how many bytes of text so many tokens are at most: a longer text has more tokens.
    pub fn most_bytes(&self, tokens: usize) -> usize {
        tokens.saturating_mul(self.longest)
    }

    /// Text of ids. Invalid UTF-8 becomes U+FFFD, as in a stream of the same ids.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut stream = self.stream(skip_special);
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// A decoder for ids that arrive one by one.
    pub fn stream(&self, skip_special: bool) -> TextStream<&Self> {
        TextStream::new(self, skip_special)
    }

    /// Id of a token by its text.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Id of a token by its part: `mask_token`, `eos_token`, `bos_token`, `pad_token`, `unk_token`.
    pub fn named(&self, part: &str) -> Option<u32> {
        self.texts.get(part).and_then(|text| self.id(text))
    }

    /// Texts of the named special tokens, as chat templates see them.
    pub fn named_texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.texts.iter().map(|(part, text)| (*part, text.as_str()))
    }

    /// A token as the vocabulary spells it.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The bytes that a token stands for; they may start or end inside a character.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        let token = self.inner.id_to_token(id)?;
        if self.is_added(id) {
            return Some(token.into_bytes());
        }
        Some(match self.spelling {
            Spelling::ByteLevel => bytes_of_characters(&token),
            Spelling::Text => bytes_of_text(&token),
        })
    }

    /// Reports whether a token is special: not part of the text.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// Reports whether a token stands beside the ordinary vocabulary, special or not.
    pub fn is_added(&self, id: u32) -> bool {
        self.inner.get_added_vocabulary().simple_id_to_token(id).is_some()
    }

    /// Largest id.
    pub fn largest_id(&self) -> u32 {
        self.largest
    }

    /// Name of the tokenizer's file, for messages.
    pub fn file(&self) -> &str {
        &self.file
    }
}

/// Turns ids into text as they arrive; a character whose bytes are not complete is held back. It borrows its tokenizer or
/// shares it.
pub struct TextStream<T> {
    tokenizer: T,
    skip_special: bool,
    held: Vec<u8>,
}

impl<T: Deref<Target = Tokenizer>> TextStream<T> {
    /// Starts a text; special tokens are left out if `skip_special` is set.
    pub fn new(tokenizer: T, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, held: Vec::new() }
    }

    /// The text that has become certain with one more token; empty in the middle of a character.
    pub fn push(&mut self, id: u32) -> String {
        if !(self.skip_special && self.tokenizer.is_special(id)) {
            self.held.extend(self.tokenizer.token_bytes(id).unwrap_or_default());
        }
        self.take(false)
    }

    /// Returns the rest at the end; half a character becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        self.take(true)
    }

    fn take(&mut self, all: bool) -> String {
        let (mut text, mut rest) = (String::new(), Vec::new());
        let mut chunks = self.held.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            let unfinished =
                chunks.peek().is_none() && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if unfinished && !all {
                rest = invalid.to_vec();
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.held = rest;
        text
    }
}

/// Content of `tokenizer_config.json` and of the small files beside it.
#[derive(Default)]
pub(crate) struct Settings {
    added: BTreeMap<u32, Added>,
    /// Texts of the named tokens, by their part.
    pub(crate) texts: BTreeMap<&'static str, String>,
}

impl Settings {
    fn read(files: &ModelFiles) -> Result<Self, CheckpointError> {
        let mut settings = Self::default();
        for file in [SETTINGS, "special_tokens_map.json"] {
            let Some(text) = files.text(file)? else { continue };
            let label = files.label(file);
            let fields = Fields::parse(&text, &label)?;
            settings.read_texts(&fields);
            if let Some(decoder) = fields.object("added_tokens_decoder")? {
                settings.read_added(&decoder)?;
            }
        }
        if let Some(text) = files.text("added_tokens.json")? {
            let label = files.label("added_tokens.json");
            let fields = Fields::parse(&text, &label)?;
            for content in fields.keys() {
                // Some copies spell a token differently here: the id's first owner stays.
                if let Some(id) = fields.optional_token(content)? {
                    settings.added.entry(id).or_insert_with(|| Added::literal(id, content, content.starts_with("<|")));
                }
            }
        }
        Ok(settings)
    }

    /// Named tokens are texts, or objects with the text under `content`.
    fn read_texts(&mut self, fields: &Fields<'_>) {
        for part in ["mask_token", "eos_token", "bos_token", "pad_token", "unk_token"] {
            let value = fields.get(part);
            let text = value.and_then(|value| value.as_str().or_else(|| value.get("content")?.as_str()));
            if let Some(text) = text {
                self.texts.entry(part).or_insert_with(|| text.to_owned());
            }
        }
    }

    fn read_added(&mut self, decoder: &Fields<'_>) -> Result<(), CheckpointError> {
        for key in decoder.keys() {
            let Some(value) = decoder.get(key) else { continue };
            let id = key.parse::<u32>().ok();
            let added = Added::deserialize(value).ok();
            let (Some(id), Some(added)) = (id, added) else {
                return Err(decoder.bad(key, value, "an id with the token's content"));
            };
            self.added.entry(id).or_insert(Added { id, ..added });
        }
        Ok(())
    }
}

/// Writes the `tokenizer.json` that `vocab.json`, `merges.txt` and the special tokens amount to: Qwen2's kind.
fn from_vocabulary(
    files: &ModelFiles,
    vocabulary: &[u8],
    settings: &Settings,
    family: &Family,
) -> Result<Vec<u8>, CheckpointError> {
    let file = files.label(VOCABULARY);
    let broken = |detail: String| CheckpointError::Tokenizer { file: file.clone(), detail };
    check_values(vocabulary, MOST_VALUES).map_err(broken)?;
    let vocabulary: Map<String, Value> = serde_json::from_slice(vocabulary).map_err(|e| broken(one_line(e)))?;
    let merges = files.text(MERGES)?.ok_or_else(|| CheckpointError::MissingFile {
        file: files.label(MERGES),
        hint: "vocab.json needs it; fetch it, or a tokenizer.json",
    })?;
    let merges = String::from_utf8(merges).map_err(|_| broken("merges.txt is not UTF-8".to_owned()))?;
    let pairs: Vec<&str> = merges.lines().filter(|line| !line.starts_with("#version") && !line.is_empty()).collect();
    let mut added = settings.added.clone();
    if added.is_empty() && vocabulary.len() == qwen2::TOKENS {
        added = released_specials(family);
    }
    let whole = byte_pairs(&[qwen2::PATTERN], vocabulary, &pairs, added.values());
    serde_json::to_vec(&whole).map_err(|error| broken(one_line(error)))
}

/// The `tokenizer.json` of byte pairs: text in NFC, cut by one pattern after the other.
pub(crate) fn byte_pairs<'a>(
    patterns: &[&str],
    mut vocabulary: Map<String, Value>,
    merges: &[impl Serialize],
    added: impl Iterator<Item = &'a Added> + Clone,
) -> Value {
    // In the vocabulary too, so that each keeps the id that the file gives it, gaps or not.
    for token in added.clone() {
        vocabulary.insert(token.content.clone(), token.id.into());
    }
    let split = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    let cuts: Vec<_> = patterns.iter().map(split).chain([bytes.clone()]).collect();
    json!({
        "version": "1.0",
        "added_tokens": added.map(Added::to_json).collect::<Vec<_>>(),
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts},
        "post_processor": null,
        "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    })
}

/// Special tokens of the released Qwen2.5 and of the family, for directories that do not list them.
fn released_specials(family: &Family) -> BTreeMap<u32, Added> {
    let numbered = qwen2::SPECIALS.iter().chain(family.own_specials).zip(qwen2::TOKENS as u32..);
    numbered.map(|(&(content, special), id)| (id, Added::literal(id, content, special))).collect()
}

/// Runs the tokenizer library on somebody else's data.
fn attempt<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match guarded(work) {
        Some(result) => result.map_err(one_line),
        None => Err("it makes the tokenizer library fail".to_owned()),
    }
}

/// The bytes of GPT-2's printable characters: printable bytes stand for themselves, the others follow from
/// U+0100 on in ascending order.
fn bytes_of_characters(token: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(token.len());
    for character in token.chars() {
        match byte_of(character) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(character.to_string().bytes()),
        }
    }
    bytes
}

fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

fn bytes_of_text(token: &str) -> Vec<u8> {
    let byte = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    match byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        Some(byte) => vec![byte],
        None => token.replace('\u{2581}', " ").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_and_comes_back() {
        // GPT-2's own rule, spelled out the long way.
        let mut next = 0x100;
        for byte in 0..=255u8 {
            let plain = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
            let code = if plain { u32::from(byte) } else { next };
            next += u32::from(!plain);
            assert_eq!(byte_of(char::from_u32(code).unwrap()), Some(byte));
        }
    }
}
