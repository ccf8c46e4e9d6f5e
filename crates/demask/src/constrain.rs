//! Constraints on answers: the languages that the options ask for, over a model's tokens.

use std::sync::Arc;

use demask_checkpoint::Tokenizer;
use demask_decode::{
    SessionOptions,
    constraint::{Constraint, Ends, Forced, Language, Role, Spelling, TokenConstraint, Vocabulary},
};
use demask_step::TokenId;

use crate::{Error, ModelInfo, Options};

impl Options {
    /// Reports whether an option constrains the answer's text, and so its end.
    pub fn has_constraint(&self) -> bool {
        let choices = self.choice.as_ref().is_some_and(|texts| !texts.is_empty());
        self.regex.is_some() || choices || self.json_schema.is_some() || self.json_object == Some(true)
    }

    /// Returns the constraint on the answer's text: a language, or texts that it must not have.
    ///
    /// # Errors
    /// If more than one of its options says so.
    pub fn constraint(&self) -> Result<Option<Constraint>, Error> {
        let given = [
            ("regex", self.regex.clone().map(Language::Regex)),
            ("choice", self.choice.clone().filter(|texts| !texts.is_empty()).map(Language::Choice)),
            ("json_schema", self.json_schema.as_ref().map(|schema| Language::JsonSchema(schema.to_string()))),
            ("json_object", self.json_object.filter(|on| *on).map(|_| Language::JsonObject)),
        ];
        let mut given = given.into_iter().filter_map(|(name, language)| Some((name, language?)));
        let first = given.next();
        if let (Some(_), Some((option, _))) = (&first, given.next()) {
            return Err(Error::Meaningless { option, why: "beside another constraint, of which an answer has one" });
        }
        let without: Vec<String> = self.bad_words.iter().flatten().cloned().collect();
        let Some((_, language)) = first else {
            let beside = [
                ("json_space", self.json_space.is_some()),
                ("constraint_before", self.constraint_before.is_some()),
                ("constraint_behind", self.constraint_behind.is_some()),
                ("constraint_after", self.constraint_after.is_some()),
                ("constraint_confidence", self.constraint_confidence.is_some()),
                ("constraint_forced", self.constraint_forced.is_some()),
                ("deadline", self.deadline.is_some()),
            ];
            return match beside.into_iter().find(|(_, set)| *set) {
                Some((option, _)) => {
                    Err(Error::Meaningless { option, why: "without `regex`, `choice`, `json_schema` or `json_object`" })
                }
                None if without.is_empty() => Ok(None),
                None => Ok(Some(Constraint { without, ..Constraint::new(Language::Any) })),
            };
        };
        let around = [&self.constraint_before, &self.constraint_behind];
        let given = around.iter().any(|text| text.is_some());
        Ok(Some(Constraint {
            space: self.json_space.unwrap_or_default(),
            around: given.then(|| around.map(|text| text.clone().unwrap_or_default())),
            after: self.constraint_after.clone(),
            without,
            ..Constraint::new(language)
        }))
    }
}

impl ModelInfo {
    /// Returns a constraint over the model's tokens. Its rows are made when they are first needed, and kept.
    ///
    /// # Errors
    /// If there is no tokenizer, or the language cannot be held to: one line says which part.
    pub(crate) fn token_constraint(&self, asked: Constraint, options: &Options) -> Result<TokenConstraint, Error> {
        let vocabulary = self.vocabulary(asked.kind())?;
        let constraint = self.languages.constraint(asked, vocabulary)?;
        let spelling = match options.constraint_forced.unwrap_or_default() {
            Forced::Tokens => None,
            Forced::Text => Some(self.spelling()?),
        };
        Ok(TokenConstraint {
            spelling,
            confidence: options.constraint_confidence.unwrap_or_default(),
            deadline: options.deadline.unwrap_or_default(),
            ..constraint
        })
    }

    /// Gives a session's guide, which this model is, the session's constraint over its own tokens, where it reads the text in
    /// them.
    ///
    /// # Errors
    /// If its tokens are no vocabulary.
    pub(crate) fn constrain_guide(&self, session: &mut SessionOptions, options: &Options) -> Result<(), Error> {
        let (Some(constraint), Some(guide)) = (&session.constraint, &mut session.guide) else { return Ok(()) };
        let (Some(text), Some(asked)) = (&mut guide.text, options.constraint()?) else { return Ok(()) };
        text.automaton = Some(if guide.shared_vocabulary {
            Arc::clone(&constraint.automaton)
        } else {
            let vocabulary = self.vocabulary(asked.kind())?;
            self.languages.automaton(asked, constraint, vocabulary)
        });
        Ok(())
    }

    /// The tokenizer's own tokens of texts.
    fn spelling(&self) -> Result<Spelling, Error> {
        self.tokenizer()?;
        let tokenizer = self.text.tokenizer.clone();
        let encode = move |bytes: &[u8]| {
            // A text of bytes may end inside of a character.
            let whole = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
            tokenizer.as_ref().and_then(|tokenizer| tokenizer.encode(whole, false).ok()).unwrap_or_default()
        };
        Ok(self.languages.spelling.get_or_init(|| Spelling::new(encode)).clone())
    }

    /// The model's tokens as constraints read them.
    fn vocabulary(&self, option: &'static str) -> Result<&Arc<Vocabulary>, Error> {
        if let Some(known) = self.languages.vocabulary.get() {
            return Ok(known);
        }
        let tokenizer = self.tokenizer()?;
        let ends = self.end_ids().to_vec();
        let padding: Vec<TokenId> =
            self.text.special.pad.into_iter().chain(self.eos_ids().unwrap_or_default()).collect();
        let fill = ends.first().or(padding.first()).copied().unwrap_or(0);
        let roles: Vec<Role> = (0..self.facts.vocab as TokenId).map(|token| self.role(tokenizer, token)).collect();
        let vocabulary = Vocabulary::new(&roles, Ends { ends, padding, fill });
        let vocabulary = vocabulary.map_err(|error| Error::Constraint { option, text: error.to_string() })?;
        Ok(self.languages.vocabulary.get_or_init(|| Arc::new(vocabulary)))
    }

    fn role(&self, tokenizer: &Tokenizer, token: TokenId) -> Role {
        if Some(token) == self.facts.mask_id {
            return Role::Mask;
        }
        // Control tokens that a tokenizer does not call special are written like `<|im_end|>`.
        let is_control = |text: &[u8]| tokenizer.is_added(token) && text.starts_with(b"<|") && text.ends_with(b"|>");
        match tokenizer.token_bytes(token) {
            Some(text) if !tokenizer.is_special(token) && !is_control(&text) => Role::Text(text),
            _ => Role::Special,
        }
    }
}
