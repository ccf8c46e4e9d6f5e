//! Tokens of a guide that reads text: those of the model in another order.

use std::sync::Arc;

use demask_decode::{
    GuideText, Translator,
    constraint::{Ends, Limits, Role, TokenAutomaton, TokenConstraint, Vocabulary},
};
use demask_step::TokenId;

use super::case::{EOS, MASK_ID, VOCAB};
use crate::language::Language;

/// The language of all texts, over tokens of which many have the same text.
pub(super) fn all() -> Language {
    let text = |token: usize| [token % 2, token / 2 % 2][..=token / 4 % 2].to_vec();
    let texts: Vec<Vec<usize>> = (0..VOCAB).map(text).collect();
    Language { texts: [texts.clone(), texts], ..Language::all(VOCAB) }
}

/// Texts of the model's tokens and of the guide's.
#[derive(Debug)]
pub(super) struct Words {
    model: Vec<Vec<u8>>,
    guide: Vec<Vec<u8>>,
}

impl Words {
    /// The tokens of a language.
    pub(super) fn of(language: &Language) -> Self {
        Self::new(language.texts[0].iter().map(|text| Language::spell(text)).collect())
    }

    fn new(model: Vec<Vec<u8>>) -> Self {
        let mut guide = model.clone();
        guide[..EOS as usize].rotate_left(7);
        for token in [MASK_ID, EOS] {
            guide[token as usize].clear();
        }
        Self { model, guide }
    }

    /// Returns the text options of a guide with these tokens, with its part of a constraint.
    pub(super) fn text(self, constraint: Option<(&TokenConstraint, Limits)>) -> Option<GuideText> {
        let automaton = match constraint {
            Some((constraint, limits)) => {
                let roles: Vec<Role> = self.guide.iter().map(|text| Role::Text(text.clone())).collect();
                let ends = Ends { ends: vec![EOS], padding: Vec::new(), fill: EOS };
                let vocabulary = Arc::new(Vocabulary::new(&roles, ends).ok()?);
                let bytes = Arc::clone(constraint.automaton.bytes());
                Some(Arc::new(TokenAutomaton::new(bytes, vocabulary, limits)))
            }
            None => None,
        };
        Some(GuideText { prompt: vec![1], translator: Arc::new(self), automaton })
    }
}

impl Translator for Words {
    fn bytes(&self, token: TokenId, out: &mut Vec<u8>) {
        out.extend(self.model.get(token as usize).into_iter().flatten());
    }

    fn encode(&self, bytes: &[u8], out: &mut Vec<(TokenId, usize)>) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let begins = |&(_, text): &(TokenId, &Vec<u8>)| !text.is_empty() && rest.starts_with(text);
            let Some((token, text)) = (0..).zip(&self.guide).filter(begins).max_by_key(|(_, text)| text.len()) else {
                return;
            };
            out.push((token, text.len()));
            rest = &rest[text.len()..];
        }
    }
}
