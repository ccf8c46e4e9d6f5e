//! What a stream knows of an answer's canvas: enough to tell what each forward has changed, and to show it as text.

use demask::{
    Update,
    internals::{
        checkpoint::Tokenizer,
        step::{NO_TOKEN, TokenId},
    },
};
use serde_json::{Value, json};

use crate::shape::Kind;

/// How a mask is shown in text.
const MASK: char = '▒';

/// An answer's canvas as far as it was told.
#[derive(Debug, Default)]
pub struct Picture {
    /// Tokens of the answer's positions; masks are [`NO_TOKEN`].
    tokens: Vec<TokenId>,
    /// Positions before the answer.
    prompt_tokens: usize,
    /// Forwards so far.
    steps: usize,
    nfe: usize,
}

impl Picture {
    /// Takes in what has changed.
    pub fn went(&mut self, update: &Update) {
        if let Some((canvas, prompt_tokens)) = &update.started {
            self.tokens = canvas.get(*prompt_tokens..).unwrap_or_default().to_vec();
            self.prompt_tokens = *prompt_tokens;
        }
        for commit in &update.commits {
            let place = (commit.position as usize).checked_sub(self.prompt_tokens);
            if let Some(token) = place.and_then(|place| self.tokens.get_mut(place)) {
                *token = commit.token;
            }
        }
        self.steps += update.steps;
        self.nfe = self.nfe.max(update.nfe);
    }

    /// Returns the frame of the commits since the last one; none if nothing was committed.
    pub fn frame(&mut self, update: &Update, tokenizer: Option<&Tokenizer>) -> Option<Value> {
        if update.commits.is_empty() && update.started.is_none() && update.steps == 0 {
            return None;
        }
        let text = |token: TokenId| tokenizer.map(|tokenizer| tokenizer.decode(&[token], false));
        let commits = update.commits.iter().map(|commit| json!([commit.position, commit.token, text(commit.token), commit.confidence]));
        Some(json!({"v": 1, "step": self.steps, "nfe": self.nfe, "commits": commits.collect::<Vec<_>>()}))
    }

    /// Returns the frame of the canvas as text; none if nothing was committed.
    pub fn shown(&mut self, update: &Update, tokenizer: Option<&Tokenizer>) -> Option<Value> {
        if update.commits.is_empty() && update.started.is_none() {
            return None;
        }
        Some(json!({"v": 1, "step": self.steps, "nfe": self.nfe, "text": self.text(tokenizer)}))
    }

    /// Returns the answer as it stands, masks included.
    pub fn text(&self, tokenizer: Option<&Tokenizer>) -> String {
        let mut text = String::new();
        for &token in &self.tokens {
            match tokenizer {
                _ if token == NO_TOKEN => text.push(MASK),
                Some(tokenizer) => text.push_str(&tokenizer.decode(&[token], true)),
                None => text.push_str(&format!("{token},")),
            }
        }
        text
    }

    /// Returns the log-probabilities of the tokens that were settled since the last time.
    pub fn logprobs(&mut self, _kind: Kind, _tokenizer: Option<&Tokenizer>) -> Value {
        Value::Null
    }
}
