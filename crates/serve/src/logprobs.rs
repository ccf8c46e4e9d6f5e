//! Log-probabilities of an answer's tokens at the moment of their commit, in the two shapes that clients know.

use demask::{Generation, TokenId, TokenLogprob, Tokenizer};
use serde_json::{Map, Value, json};

use crate::{answer::Entry, echo::Echo, form::Form};

/// Number in place of the logarithm of an unknown probability, or of 0: clients expect a number.
const NONE: f32 = -9999.0;

/// Returns those of a whole answer from a token on; none if there are none.
pub fn from(form: &dyn Form, generation: &Generation, first: usize, tokenizer: Option<&Tokenizer>) -> Option<Value> {
    let known = generation.logprobs.as_ref()?;
    // Between and behind holes stand tokens that were given, which are no part of the answer.
    let filled = |at: &&TokenLogprob| generation.holes.is_empty() || at.logprob.is_some();
    let entries = known.iter().skip(first).filter(filled);
    let entries = entries.map(|at| Entry { token: at.token, logprob: at.logprob, top: &at.top });
    let entries: Vec<_> = entries.collect();
    let before = known.iter().take(first).filter(filled).map(|at| length(at.token, tokenizer)).sum();
    (first == 0 || !entries.is_empty()).then(|| value(form.logprobs_by_token(), &entries, tokenizer, before))
}

/// Returns how many characters of an answer's text begin in a token, as offsets count them: none in a special one.
pub fn length(token: TokenId, tokenizer: Option<&Tokenizer>) -> usize {
    letters(&in_answer(token, tokenizer))
}

/// Returns those of a prompt, which is returned as `text`, and of the answer after it if there is one.
pub fn behind(echo: &Echo, text: &str, generation: Option<&Generation>, tokenizer: Option<&Tokenizer>) -> Value {
    let mut entries = echo.entries();
    let prompt = entries.len();
    let answered = generation.and_then(|generation| generation.logprobs.as_ref()).into_iter().flatten();
    entries.extend(answered.map(|at| Entry { token: at.token, logprob: at.logprob, top: &at.top }));
    let mut shown = value(false, &entries, tokenizer, 0);
    let (asked, answered) = entries.split_at(prompt);
    let mut places = prompt_offsets(text, asked.iter().map(|entry| entry.token), tokenizer);
    let answered = answered.iter().map(|entry| in_answer(entry.token, tokenizer));
    places.extend(offsets(text.chars().count(), answered));
    shown["text_offset"] = json!(places);
    shown
}

/// Returns the character of a prompt's text that each of its tokens begins in. A special token is part of the text only where
/// the text spells it out: others were put around it.
fn prompt_offsets(text: &str, tokens: impl Iterator<Item = TokenId>, tokenizer: Option<&Tokenizer>) -> Vec<usize> {
    let mut rest = text.chars();
    let is_special = |token: TokenId| tokenizer.is_some_and(|tokenizer| tokenizer.is_special(token));
    let bytes = |token: TokenId| {
        let bytes = spelled(token, tokenizer);
        if is_special(token) && !rest.as_str().as_bytes().starts_with(&bytes) {
            return Vec::new();
        }
        if let Some(last) = letters(&bytes).checked_sub(1) {
            rest.nth(last);
        }
        bytes
    };
    offsets(0, tokens.map(bytes))
}

/// Returns a token as text; none without a tokenizer, and where it is only a part of a letter.
pub fn text(token: TokenId, tokenizer: Option<&Tokenizer>) -> Option<String> {
    let text = tokenizer?.decode(&[token], false);
    Some(text).filter(|text| !text.contains(char::REPLACEMENT_CHARACTER))
}

/// A token as text, whatever it is; its id, if the model has no tokenizer.
fn words(token: TokenId, tokenizer: Option<&Tokenizer>) -> String {
    tokenizer.map_or_else(|| token.to_string(), |tokenizer| tokenizer.decode(&[token], false))
}

/// Returns log-probabilities, an object for each token or lists over all of them, after tokens of so many characters.
pub fn value(by_token: bool, entries: &[Entry<'_>], tokenizer: Option<&Tokenizer>, before: usize) -> Value {
    let text = |token: TokenId| words(token, tokenizer);
    if by_token {
        let bytes = |token: TokenId| tokenizer.and_then(|tokenizer| tokenizer.token_bytes(token));
        let one = |token: TokenId, logprob: Option<f32>| json!({"token": text(token), "logprob": logprob.unwrap_or(NONE), "bytes": bytes(token)});
        let content = entries.iter().map(|entry| {
            let mut shown = one(entry.token, entry.logprob);
            shown["top_logprobs"] =
                entry.top.iter().map(|&(token, logprob)| one(token, Some(logprob.max(NONE)))).collect();
            shown
        });
        return json!({"content": content.collect::<Vec<_>>(), "refusal": null});
    }
    let tokens: Vec<String> = entries.iter().map(|entry| text(entry.token)).collect();
    let spelled = entries.iter().map(|entry| in_answer(entry.token, tokenizer));
    let top = entries.iter().map(|entry| {
        let mut named = Map::new();
        for &(token, logprob) in entry.top {
            // Of tokens that look the same, as parts of letters do, the best one is told.
            named.entry(text(token)).or_insert_with(|| json!(logprob.max(NONE)));
        }
        Value::Object(named)
    });
    json!({
        "tokens": tokens,
        "token_logprobs": entries.iter().map(|entry| entry.logprob).collect::<Vec<_>>(),
        "top_logprobs": top.collect::<Vec<_>>(),
        "text_offset": offsets(before, spelled),
    })
}

/// Returns the character that each token begins in, by the tokens' bytes and the characters before them: several tokens may be
/// parts of one letter.
fn offsets(before: usize, tokens: impl Iterator<Item = Vec<u8>>) -> Vec<usize> {
    let mut characters = before;
    let offset = |token: Vec<u8>| {
        let inside = token.first().is_some_and(|byte| !begins(*byte));
        let offset = characters.saturating_sub(usize::from(inside));
        characters += letters(&token);
        offset
    };
    tokens.map(offset).collect()
}

/// A token's bytes; those of its text, where the tokenizer does not tell them.
fn spelled(token: TokenId, tokenizer: Option<&Tokenizer>) -> Vec<u8> {
    let bytes = tokenizer.and_then(|tokenizer| tokenizer.token_bytes(token));
    bytes.unwrap_or_else(|| words(token, tokenizer).into_bytes())
}

/// A token's bytes in the text of an answer, which special tokens are no part of.
fn in_answer(token: TokenId, tokenizer: Option<&Tokenizer>) -> Vec<u8> {
    match tokenizer {
        Some(tokenizer) if tokenizer.is_special(token) => Vec::new(),
        _ => spelled(token, tokenizer),
    }
}

/// Number of characters that begin in bytes of UTF-8.
fn letters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| begins(**byte)).count()
}

/// Reports whether a character begins in a byte of UTF-8.
fn begins(byte: u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
}
