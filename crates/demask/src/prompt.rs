//! Prompts, and the way from their words to tokens.

use demask_checkpoint::{Message, RenderOptions};
use demask_step::{Mask, TokenId};

use crate::{Error, Prompter};

/// The prompt in one of its forms.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// A conversation, put into words by the checkpoint's chat template.
    Chat(Vec<Message>),
    /// Text without a template.
    Raw(String),
    /// Token ids as they are.
    Tokens(Vec<TokenId>),
    /// Text without a template, with `<mask:N>` holes to fill.
    Infill(String),
}

impl Prompt {
    /// One user message, after a system message if there is one.
    pub fn user(text: impl Into<String>, system: Option<&str>) -> Self {
        let system = system.map(|text| Message::new("system", text));
        let user = Message::new("user", text);
        Self::Chat(system.into_iter().chain([user]).collect())
    }

    /// Roughly how long it is: its tokens, or the bytes of its texts. For comparing prompts of one form.
    pub fn length(&self) -> usize {
        match self {
            Self::Chat(messages) => messages.iter().map(|message| message.content.len()).sum(),
            Self::Raw(text) | Self::Infill(text) => text.len(),
            Self::Tokens(ids) => ids.len(),
        }
    }
}

/// A user's message.
impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::user(text, None)
    }
}

/// A user's message.
impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::user(text, None)
    }
}

/// A conversation.
impl From<Vec<Message>> for Prompt {
    fn from(messages: Vec<Message>) -> Self {
        Self::Chat(messages)
    }
}

/// A copy.
impl From<&Prompt> for Prompt {
    fn from(prompt: &Prompt) -> Self {
        prompt.clone()
    }
}

/// A prompt as tokens, and where its holes are filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) ids: Vec<TokenId>,
    /// Whether masks stand inside already.
    pub(crate) infill: bool,
}

impl Prompter {
    /// A prompt in words, as the model's template puts it; ids, separated by commas, where it has none.
    pub fn in_words(&self, prompt: &Prompt) -> Result<String, Error> {
        Ok(match prompt {
            Prompt::Tokens(ids) => ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            Prompt::Raw(text) | Prompt::Infill(text) => text.clone(),
            Prompt::Chat(messages) => self.template().render(messages, &RenderOptions::default())?,
        })
    }

    /// Returns a prompt's tokens.
    ///
    /// # Errors
    /// If there is no tokenizer for its words, or they hold what no prompt may.
    pub fn ids(&self, prompt: &Prompt) -> Result<Vec<TokenId>, Error> {
        Ok(self.tokenize(prompt)?.ids)
    }

    /// Turns a prompt into tokens.
    pub(crate) fn tokenize(&self, prompt: &Prompt) -> Result<Tokens, Error> {
        let infill = matches!(prompt, Prompt::Infill(_));
        let ids = match prompt {
            Prompt::Tokens(ids) => ids.clone(),
            Prompt::Raw(text) => self.tokenizer()?.encode(text, true)?,
            Prompt::Chat(_) => {
                let text = self.in_words(prompt)?;
                self.tokenizer()?.encode(&text, false)?
            }
            Prompt::Infill(text) => self.tokenize_holes(text)?,
        };
        let vocabulary = self.facts().vocab;
        if let Some(&token) = ids.iter().find(|&&token| token as usize >= vocabulary) {
            return Err(Error::TokenOutOfRange { token, vocabulary });
        }
        let holds_mask = self.facts().mask_id.is_some_and(|mask| ids.contains(&mask));
        match (infill, holds_mask) {
            (false, true) => Err(Error::MaskInPrompt),
            (true, false) => Err(Error::NoHole),
            _ => Ok(Tokens { ids, infill }),
        }
    }

    fn tokenize_holes(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        let (Mask::Full, Some(mask)) = (self.facts().mask, self.facts().mask_id) else {
            return Err(Error::InfillUnsupported { family: self.spec().family.to_string() });
        };
        let mut ids = Vec::new();
        let mut rest = text;
        while let Some((before, hole)) = rest.split_once("<mask:") {
            let (count, after) = hole.split_once('>').ok_or_else(|| Error::BadHole { found: shorten(hole) })?;
            let count: usize = count
                .trim()
                .parse()
                .ok()
                .filter(|count| (1..=self.facts().context).contains(count))
                .ok_or_else(|| Error::BadHole { found: shorten(count) })?;
            ids.extend(self.tokenizer()?.encode(before, ids.is_empty())?);
            ids.extend(std::iter::repeat_n(mask, count));
            rest = after;
        }
        ids.extend(self.tokenizer()?.encode(rest, ids.is_empty())?);
        Ok(ids)
    }
}

/// The beginning of a text for a message.
fn shorten(text: &str) -> String {
    text.chars().take(20).collect()
}
