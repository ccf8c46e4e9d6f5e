//! Text that is put before the guide: its own tokens of the prompt, of the settled part and of the drafts, and which of
//! them decide about which draft.

use std::sync::Arc;

use demask_step::TokenId;

use super::{Alignment, GuideOptions, Translator};
use crate::{canvas::Canvas, event::Commit};

/// One of the guide's tokens that may be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judge {
    /// Accepted whatever the guide predicts: it belongs to no draft.
    Given,
    /// The guide may agree with this token.
    Token(TokenId),
    /// The draft ends the text: the guide may agree with any of its end tokens, or with this one.
    End(Option<TokenId>),
    /// A draft for which the guide has no token.
    Unknown,
}

/// Tokens put before the guide in one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Trial {
    /// The guide's tokens.
    pub ids: Vec<TokenId>,
    /// Index of the first judged token.
    pub first: usize,
    /// Judged tokens from there on; the last may lie one after the tokens.
    pub scored: Vec<Judge>,
    /// Number of judged tokens that must be accepted for each draft, from the first on. Drafts beyond are not judged.
    pub needs: Vec<usize>,
}

impl Trial {
    /// Makes room for so many tokens of the guide.
    pub(crate) fn with_capacity(tokens: usize) -> Self {
        Self {
            ids: Vec::with_capacity(tokens),
            first: 0,
            scored: Vec::with_capacity(tokens + 1),
            needs: Vec::with_capacity(tokens + 1),
        }
    }

    fn clear(&mut self) {
        self.ids.clear();
        self.scored.clear();
        self.needs.clear();
        self.first = 0;
    }
}

/// A text that the guide has read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Text<'a> {
    /// The guide's tokens, which are the canvas's.
    Tokens(&'a [TokenId]),
    Bytes(&'a [u8]),
}

/// Makes trials.
#[derive(Debug)]
pub(crate) struct Trials {
    alignment: Alignment,
    vocab: usize,
    /// Start of the response.
    response: usize,
    /// Tokens of the canvas that end it.
    ends: Vec<TokenId>,
    /// The guide's own prompt.
    prompt: Vec<TokenId>,
    translator: Option<Arc<dyn Translator>>,
    bytes: Vec<u8>,
    encoded: Vec<(TokenId, usize)>,
    /// [`Alignment::Bytes`]: the first byte of each position of the response up to the last draft.
    offsets: Vec<usize>,
    /// [`Alignment::Bytes`]: where the drafts' bytes lie.
    spans: Vec<(usize, usize)>,
}

impl Trials {
    /// Creates the trials of a guide and a canvas whose response starts at `response`; `ends` empty if nothing ends it.
    pub(crate) fn new(alignment: Alignment, guide: &GuideOptions, response: usize, ends: &[TokenId]) -> Self {
        let text = guide.text.as_ref().filter(|_| alignment != Alignment::Ids);
        Self {
            alignment,
            vocab: guide.facts.vocab,
            response,
            ends: ends.to_vec(),
            prompt: text.map(|text| text.prompt.clone()).unwrap_or_default(),
            translator: text.map(|text| Arc::clone(&text.translator)),
            bytes: Vec::new(),
            encoded: Vec::new(),
            offsets: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// First tokens of every trial if the canvas begins with these tokens, but for the last one, whose row judges the
    /// first draft.
    pub(crate) fn prefix_tokens(&self, given: &[TokenId]) -> Vec<TokenId> {
        let mut own = match self.alignment {
            Alignment::Ids => given.iter().map_while(|&token| self.in_place(token)).collect(),
            Alignment::Bytes => self.prompt.clone(),
        };
        own.pop();
        own
    }

    /// Reports whether what stands before the drafts stays as it is read, whatever follows it.
    pub(crate) fn stays(&self) -> bool {
        self.alignment == Alignment::Ids
    }

    /// Returns the text before a trial's token, from the place `start` of the canvas on. None if the token begins before
    /// `start`, as one may that reaches into a hole.
    pub(crate) fn text_before<'a>(&'a self, trial: &'a Trial, start: usize, token: usize) -> Option<Text<'a>> {
        match self.alignment {
            Alignment::Ids => trial.ids.get(start..token).map(Text::Tokens),
            Alignment::Bytes => {
                let lengths = self.encoded.get(..token.checked_sub(self.prompt.len())?)?;
                let before = lengths.iter().map(|encoded| encoded.1).sum();
                let start = *self.offsets.get(start.checked_sub(self.response)?)?;
                self.bytes.get(start..before).map(Text::Bytes)
            }
        }
    }

    /// The trial of the drafts, which are the first masks of the canvas.
    pub(crate) fn make(&mut self, canvas: &Canvas, drafts: &[Commit], trial: &mut Trial) {
        trial.clear();
        match self.alignment {
            Alignment::Ids => self.in_step(canvas, drafts, trial),
            Alignment::Bytes => self.in_bytes(canvas, drafts, trial),
        }
    }

    /// One guide token for each position.
    fn in_step(&self, canvas: &Canvas, drafts: &[Commit], trial: &mut Trial) {
        let mut drafts = drafts.iter().peekable();
        trial.first = drafts.peek().map_or(0, |draft| draft.position as usize);
        for (position, &standing) in (0..).zip(canvas.tokens()) {
            let Some(&next) = drafts.peek() else { break };
            let drafted = next.position == position;
            let token = if drafted { next.token } else { standing };
            let own = self.in_place(token);
            let judge = match own {
                _ if !drafted => Judge::Given,
                own if self.ends.contains(&token) => Judge::End(own),
                Some(own) => Judge::Token(own),
                None => Judge::Unknown,
            };
            if position as usize >= trial.first {
                trial.scored.push(judge);
            }
            if drafted {
                drafts.next();
                trial.needs.push(trial.scored.len());
            }
            match own {
                Some(own) if !matches!(judge, Judge::End(_)) => trial.ids.push(own),
                _ => break,
            }
        }
        if trial.ids.len() < trial.first {
            // What stands cannot be read: nothing is judged.
            trial.clear();
        }
    }

    /// A token that both vocabularies have.
    fn in_place(&self, token: TokenId) -> Option<TokenId> {
        Some(token).filter(|&own| (own as usize) < self.vocab)
    }

    /// The guide's tokens of the whole response's text, up to the first end.
    fn in_bytes(&mut self, canvas: &Canvas, drafts: &[Commit], trial: &mut Trial) {
        let Some(translator) = self.translator.clone() else { return };
        let ended = self.lay_out(&*translator, canvas, drafts);
        self.encoded.clear();
        translator.encode(&self.bytes, &mut self.encoded);
        trial.ids.extend_from_slice(&self.prompt);
        let (mut start, mut draft) = (0, 0);
        let mut judging = false;
        for &(id, length) in &self.encoded {
            let end = start + length;
            // Drafts that end before this token begins are complete.
            while self.spans.get(draft).is_some_and(|span| span.1 <= start) {
                trial.needs.push(trial.scored.len());
                draft += 1;
            }
            let touches = self.spans.get(draft).is_some_and(|span| span.0 < end);
            if touches && !judging {
                trial.first = trial.ids.len();
                judging = true;
            }
            if judging {
                trial.scored.push(if touches { Judge::Token(id) } else { Judge::Given });
            }
            trial.ids.push(id);
            start = end;
        }
        while self.spans.get(draft).is_some_and(|span| span.1 <= start) {
            trial.needs.push(trial.scored.len());
            draft += 1;
        }
        if ended && draft == self.spans.len() {
            if !judging {
                trial.first = trial.ids.len();
            }
            trial.scored.push(Judge::End(None));
            trial.needs.push(trial.scored.len());
        }
    }

    /// Lays the response's bytes out up to the last draft or the first that ends the text; `true` if one does.
    fn lay_out(&mut self, translator: &dyn Translator, canvas: &Canvas, drafts: &[Commit]) -> bool {
        self.bytes.clear();
        self.offsets.clear();
        self.spans.clear();
        let mut drafts = drafts.iter().peekable();
        for (position, &standing) in (0..).zip(canvas.tokens()).skip(self.response) {
            let Some(&next) = drafts.peek() else { break };
            self.offsets.push(self.bytes.len());
            if next.position != position {
                translator.bytes(standing, &mut self.bytes);
                continue;
            }
            if self.ends.contains(&next.token) {
                return true;
            }
            let start = self.bytes.len();
            translator.bytes(next.token, &mut self.bytes);
            if self.bytes.len() == start {
                // A token without a text: there is nothing that the guide could agree with.
                return false;
            }
            self.spans.push((start, self.bytes.len()));
            drafts.next();
        }
        false
    }
}
