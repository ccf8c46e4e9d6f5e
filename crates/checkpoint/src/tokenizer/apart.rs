//! Ids of a prompt in which no control token is read from people's words.

use std::cell::Cell;

use tokenizers::{Model as _, OffsetReferential, OffsetType, PreTokenizer as _, Token};

use super::{Tokenizer, attempt};
use crate::{CheckpointError, Rendered, error::quoted, said::Hidden};

/// Most times that a prompt is searched for control tokens which normalizers make of people's words.
const MOST_ROUNDS: usize = 16;

impl Tokenizer {
    /// Ids of a prompt in which people's words are known: a control token that overlaps them is text, and its tokens are
    /// those of its letters.
    pub fn encode_apart(&self, prompt: &Rendered, controls: &[String]) -> Result<Vec<u32>, CheckpointError> {
        let mut places = prompt.spelled(controls);
        let inseparable = |places: &[usize]| CheckpointError::Inseparable {
            file: self.file.rsplit(['/', '\\']).next().unwrap_or_default().to_owned(),
            token: quoted(&prompt.text[places[0]..].chars().take(40).collect::<String>()),
        };
        let broken = |detail| CheckpointError::Tokenizer { file: self.file.clone(), detail };
        for _ in 0..MOST_ROUNDS {
            if places.is_empty() && !self.normalizes {
                return self.encode(&prompt.text, false);
            }
            // A private character in the place of its first of people's words keeps the library from finding the token.
            let hidden = Hidden::new(&prompt.text, &places, std::iter::empty());
            let hidden = hidden.ok_or(CheckpointError::NoFreeCharacter)?;
            let normalized = attempt(|| Ok(self.normalized(&hidden, prompt, controls))).map_err(broken)?;
            if normalized.is_empty() && places.is_empty() {
                return self.encode(&prompt.text, false);
            }
            if normalized.is_empty() {
                let ids = attempt(|| self.encode_hidden(&hidden, controls));
                return ids.map_err(broken)?.ok_or_else(|| inseparable(&places));
            }
            places.extend(normalized);
            places.sort_unstable();
            places.dedup();
        }
        Err(inseparable(&places))
    }

    /// Where people's words begin in control tokens that the library finds once it has normalised the prompt.
    fn normalized(&self, hidden: &Hidden, prompt: &Rendered, controls: &[String]) -> Vec<usize> {
        if !self.normalizes {
            return Vec::new();
        }
        let added = self.inner.get_added_vocabulary();
        let pieces = added.extract_and_normalize(self.inner.get_normalizer(), &hidden.text);
        let is_control = |id: u32| self.inner.id_to_token(id).is_some_and(|text| controls.contains(&text));
        let (mut found, mut from, mut start) = (Vec::new(), 0, 0);
        for (_, (begin, end), tokens) in pieces.get_splits(OffsetReferential::Original, OffsetType::Byte) {
            // Places in the prompt, whose characters are hidden by longer ones.
            start += hidden.shown_length(&hidden.text[from..begin]);
            let place = &hidden.text[begin..end];
            let length = hidden.shown_length(place);
            // Tokens may take in spaces around them, which neither the template nor a message owns.
            let before = place.len() - place.trim_start().len();
            let after = place.len() - place.trim_end().len();
            let place = start + before..(start + length).saturating_sub(after).max(start + before);
            if tokens.as_ref().is_some_and(|tokens| tokens.iter().any(|token| is_control(token.id))) {
                found.extend(prompt.first_said(&place));
            }
            (from, start) = (end, start + length);
        }
        found
    }

    /// The library's steps one by one, with the hidden characters put back after the search for added tokens. `None` if
    /// its normalizer changes hidden characters, or its model knows no other way to write a control token's letters.
    fn encode_hidden(&self, hidden: &Hidden, controls: &[String]) -> tokenizers::Result<Option<Vec<u32>>> {
        let added = self.inner.get_added_vocabulary();
        let mut pieces = added.extract_and_normalize(self.inner.get_normalizer(), &hidden.text);
        let left = pieces.get_splits(OffsetReferential::Normalized, OffsetType::None);
        let left = left.iter().filter(|(_, _, tokens)| tokens.is_none()).map(|(text, ..)| hidden.count(text));
        if left.sum::<usize>() != hidden.count(&hidden.text) {
            return Ok(None);
        }
        pieces.normalize(|piece| {
            piece.map(|c| hidden.visible(c));
            Ok(())
        })?;
        if let Some(cutter) = self.inner.get_pre_tokenizer() {
            cutter.pre_tokenize(&mut pieces)?;
        }
        let apart = Cell::new(true);
        pieces.tokenize(|piece| {
            let (tokens, is_apart) = self.letters(piece.get(), controls)?;
            apart.set(apart.get() && is_apart);
            Ok(tokens)
        })?;
        if !apart.get() {
            return Ok(None);
        }
        Ok(Some(pieces.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec()))
    }

    /// The model's tokens of a piece of text, and whether none of them is a control token that the piece spells: some
    /// models have control tokens among their own. Such a model sees the token's first character alone, and then the rest.
    fn letters(&self, piece: &str, controls: &[String]) -> tokenizers::Result<(Vec<Token>, bool)> {
        let model = self.inner.get_model();
        let whole = model.tokenize(piece)?;
        // The token of what a model does not know may be a control token that the piece does not spell.
        let spelled = |id: u32, part: &str| {
            let control =
                self.inner.id_to_token(id).filter(|text| part.contains(text.as_str()) && controls.contains(text));
            control.filter(|_| self.is_added(id))
        };
        // A model that leaves out what it does not know counts the places of the rest wrongly.
        let has_places = whole.last().is_some_and(|token| token.offsets.1 == piece.len());
        let (mut tokens, mut is_apart) = (Vec::with_capacity(whole.len()), true);
        for token in whole {
            let (start, end) = token.offsets;
            let Some(control) = spelled(token.id, piece) else {
                tokens.push(token);
                continue;
            };
            is_apart &= has_places;
            if !has_places || piece.get(start..end) != Some(control.as_str()) {
                tokens.push(token);
                continue;
            }
            let first = start + control.chars().next().map_or(0, char::len_utf8);
            for (start, end) in [(start, first), (first, end)] {
                for mut token in model.tokenize(&piece[start..end])? {
                    is_apart &= spelled(token.id, &piece[start..end]).is_none();
                    token.offsets = (token.offsets.0 + start, token.offsets.1 + start);
                    tokens.push(token);
                }
            }
        }
        Ok((tokens, is_apart))
    }
}
