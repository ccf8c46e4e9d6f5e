//! Special tokens: who says which id, and what happens when the files disagree.
//!
//! The order is `config.json`, `generation_config.json`, the tokenizer, and last the ids of the family's released
//! models. The last count only for a vocabulary of the released size, where an id keeps its meaning.

use demask_model::ArchSpec;
use demask_step::Mask;

use crate::{CheckpointError, Family, Tokenizer, Warning, families::Vocabulary, fields::TokenIds};

/// Ids of the special tokens of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpecialTokens {
    /// Token of undecided positions. Only diffusion models have one, and all of them do.
    pub mask: Option<u32>,
    /// Ends a text; diffusion models fill the rest of the canvas with it.
    pub eos: Option<u32>,
    /// Ends a turn of a chat.
    pub turn_end: Option<u32>,
    /// Starts a text.
    pub bos: Option<u32>,
    /// Fills a batch.
    pub pad: Option<u32>,
    /// All ids that end an answer: the text's end first.
    pub stop: Vec<u32>,
    /// What names each of them: a file, a key, a text.
    pub stop_from: Vec<String>,
}

/// Sources that may name special tokens.
pub(crate) struct Sources<'a> {
    pub family: &'a Family,
    pub spec: &'a ArchSpec,
    pub config: &'a TokenIds,
    pub generation: &'a TokenIds,
    pub tokenizer: Option<&'a Tokenizer>,
    /// The mask that the user names.
    pub chosen: Option<u32>,
    /// Name of the configuration file, for messages.
    pub file: &'a str,
}

impl Sources<'_> {
    /// Settles all special tokens.
    pub(crate) fn resolve(&self, warnings: &mut Vec<Warning>) -> Result<SpecialTokens, CheckpointError> {
        let released = self.family.vocabularies.iter().find(|known| known.rows == self.spec.vocabulary);
        let of = |read: fn(&TokenIds) -> Option<u32>, name: &'static str, default: Option<u32>| {
            [
                (read(self.config), "config"),
                (read(self.generation), "generation config"),
                (self.tokenizer.and_then(|tokenizer| tokenizer.named(name)), "tokenizer"),
                (default, "released model"),
            ]
        };
        let by_text = || self.tokenizer.and_then(|known| self.family.mask_texts.iter().find_map(|text| known.id(text)));
        let usual = by_text().or(released.and_then(|known| known.mask)).or(self.family.mask);
        let mask = self.mask(of(|ids| ids.mask, "mask_token", usual), warnings)?;
        let eos = of(|ids| ids.eos.first().copied(), "eos_token", released.map(|known| known.eos));
        let bos = of(|ids| ids.bos, "bos_token", released.map(|known| known.bos));
        let pad = of(|ids| ids.pad, "pad_token", None);
        let mut tokens = SpecialTokens {
            mask,
            eos: self.settle("end-of-text", eos, warnings),
            turn_end: self.turn_end(released),
            bos: self.settle("beginning-of-text", bos, warnings),
            pad: self.settle("padding", pad, warnings),
            stop: Vec::new(),
            stop_from: Vec::new(),
        };
        (tokens.stop, tokens.stop_from) = self.stops(&tokens, released).into_iter().unzip();
        Ok(tokens)
    }

    fn in_range(&self, id: u32) -> bool {
        (id as usize) < self.spec.vocabulary
    }

    /// Finds the mask token. In the files of a causal model that was not trained with masks a key of that name means something
    /// else: it has the one that the user names, or an id that no text of a released vocabulary has.
    fn mask(
        &self,
        candidates: [(Option<u32>, &'static str); 4],
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<u32>, CheckpointError> {
        let rows = self.spec.vocabulary;
        if let Some(found) = self.chosen {
            let refused = CheckpointError::ChosenMaskOutOfRange { found, rows };
            return if self.in_range(found) { Ok(Some(found)) } else { Err(refused) };
        }
        if self.spec.attention == Mask::Causal && !self.family.trains_causal_masks {
            let released = self.family.vocabularies.iter().find(|known| known.rows == rows);
            return Ok(released.and_then(|known| known.mask));
        }
        let found = candidates.iter().find_map(|(id, _)| *id);
        let found = found.ok_or_else(|| CheckpointError::NoMask { file: self.file.to_owned() })?;
        if !self.in_range(found) {
            return Err(CheckpointError::MaskOutOfRange { file: self.file.to_owned(), found: u64::from(found), rows });
        }
        Ok(self.settle("mask", candidates, warnings))
    }

    /// The first source that knows the token; the released default takes no part in disagreements.
    fn settle(
        &self,
        token: &'static str,
        candidates: [(Option<u32>, &'static str); 4],
        warnings: &mut Vec<Warning>,
    ) -> Option<u32> {
        let mut known = candidates.iter().filter_map(|(id, source)| id.map(|id| (id, *source)));
        let used = known.next()?;
        if !self.in_range(used.0) {
            warnings.push(Warning::SpecialTokenOutOfRange { token, id: used.0 });
            return None;
        }
        // A generation config that ends on the turn's end is no disagreement about the text's end.
        let disagrees = |other: &(u32, &'static str)| {
            other.0 != used.0 && other.1 != "released model" && !(token == "end-of-text" && used.1 == "config")
        };
        if let Some(ignored) = known.find(disagrees) {
            warnings.push(Warning::SpecialTokensDisagree { token, used, ignored });
        }
        Some(used.0)
    }

    /// Returns the token that ends a turn: by its text where there is a tokenizer, else the generation config's stop
    /// token other than the text's end, else the released vocabulary's.
    fn turn_end(&self, released: Option<&Vocabulary>) -> Option<u32> {
        if let Some(tokenizer) = self.tokenizer {
            return tokenizer.id(self.family.turn_end).filter(|&id| self.in_range(id));
        }
        let end = self.config.eos.first();
        let other = self.generation.eos.iter().find(|&id| Some(id) != end && self.in_range(*id));
        other.copied().or_else(|| released.map(|known| known.turn_end))
    }

    /// Ids that end an answer, each with what names it.
    fn stops(&self, tokens: &SpecialTokens, released: Option<&Vocabulary>) -> Vec<(u32, String)> {
        let ends = self.config.ends.iter().map(|(id, _)| id);
        let named = self.config.eos.iter().chain(&self.generation.eos).chain(ends).copied();
        // I-DLM's configuration calls the turn's end the text's end.
        let text_end = released.filter(|_| self.family.trains_causal_masks).map(|known| known.eos);
        let mut stop: Vec<(u32, String)> = Vec::new();
        for id in tokens.eos.into_iter().chain(tokens.turn_end).chain(named).chain(text_end) {
            if self.in_range(id) && Some(id) != tokens.mask && stop.iter().all(|(known, _)| *known != id) {
                stop.push((id, self.names_end(id)));
            }
        }
        stop
    }

    /// What names an end.
    fn names_end(&self, id: u32) -> String {
        let said = self.config.ends.iter().find(|(end, _)| *end == id);
        let known = |text| self.tokenizer.is_some_and(|tokenizer| tokenizer.id(text) == Some(id));
        match said {
            Some((_, from)) => from.clone(),
            None if self.config.eos.contains(&id) => "config.json".to_owned(),
            None if self.generation.eos.contains(&id) => "generation_config.json".to_owned(),
            None if known(self.family.turn_end) => "its text".to_owned(),
            None if self.tokenizer.is_some_and(|tokenizer| tokenizer.named("eos_token") == Some(id)) => {
                "the tokenizer".to_owned()
            }
            None => "the released models".to_owned(),
        }
    }
}
