//! Canvas of an answer as a stream knows it: enough to report the changes of each forward, and to show it as text.

use demask::{Event, Position, Started, TokenId, Tokenizer};
use serde_json::{Value, json};

use crate::{answer::Entry, form::Form, logprobs};

/// Character of a mask in text, and of a token that ends answers.
const MASK: char = '▒';
const END: char = '␃';

/// An answer's canvas as far as it was sent.
#[derive(Debug, Default)]
pub struct Picture {
    /// Tokens of all positions; masks are none.
    tokens: Vec<Option<TokenId>>,
    /// Positions before the answer.
    prompt_tokens: usize,
    /// Positions of holes: what stands between and after them was given. 0 if the answer stands after a prompt.
    holes: usize,
    /// Commits after the prompt, by position, where log-probabilities are wanted.
    commits: Vec<Option<Committed>>,
    /// Positions after the prompt that can no longer change, and masks that are left.
    settled: usize,
    masks: usize,
    /// Number of those whose log-probabilities were sent, and their characters.
    sent_logprobs: usize,
    characters: usize,
    step: usize,
    nfe: usize,
}

/// A token that was committed.
#[derive(Debug, Clone, Default)]
pub struct Committed {
    step: usize,
    position: Position,
    token: TokenId,
    confidence: f32,
    forced: bool,
    changed: bool,
    logprob: Option<f32>,
    top: Vec<(TokenId, f32)>,
}

/// Changes of a canvas since the last look.
#[derive(Default)]
pub struct Changes<'a> {
    /// The canvas as it was laid out, in the first ones.
    pub started: Option<&'a Started>,
    /// Tokens that were committed, in their order.
    pub commits: Vec<Committed>,
    /// Positions whose tokens were taken back.
    taken_back: Vec<Position>,
    /// Forwards: step, NFE, drafts, accepted and rejected.
    forwards: Vec<[usize; 5]>,
    /// Forwards that are not listed, because nothing was read for long.
    dropped: usize,
}

impl Picture {
    /// Takes in what has changed; `keeps` says whether log-probabilities are wanted.
    pub fn went<'a>(&mut self, events: &'a [Event], keeps: bool) -> Changes<'a> {
        let mut changes = Changes::default();
        for event in events {
            match event {
                Event::Started(started) => {
                    self.start(started, keeps);
                    changes.started = Some(started);
                }
                &Event::Commit { step, position, token, confidence, forced, changed } => {
                    let commit =
                        Committed { step, position, token, confidence, forced, changed, ..Committed::default() };
                    changes.commits.push(commit);
                }
                &Event::Replace { step, position, to: Some(token), confidence, changed, .. } => {
                    let commit = Committed { step, position, token, confidence, changed, ..Committed::default() };
                    changes.commits.push(commit);
                }
                &Event::Replace { position, to: None, .. } => changes.taken_back.push(position),
                Event::Logprob { position, logprob, top } => {
                    let written = changes.commits.iter_mut().rev().find(|commit| commit.position == *position);
                    if let Some(commit) = written {
                        (commit.logprob, commit.top) = (*logprob, top.clone());
                    }
                }
                &Event::Step { step, nfe, drafts, accepted, rejected, masks, settled, merged, .. } => {
                    (self.masks, self.nfe) = (masks, self.nfe.max(nfe));
                    self.settled = self.settled.max(settled);
                    if merged == 0 {
                        self.step = step;
                        changes.forwards.push([step, nfe, drafts, accepted, rejected]);
                    }
                    changes.dropped += merged;
                }
                _ => {}
            }
        }
        self.write(&changes);
        changes
    }

    fn start(&mut self, started: &Started, keeps: bool) {
        let first = started.canvas.get(started.prompt_tokens);
        let mask = |position: usize| match &started.holes[..] {
            // An answer begins with a mask; a family's fixed token behind it is none.
            [] => position >= started.prompt_tokens && started.canvas.get(position) == first,
            holes => holes.iter().any(|hole| hole.contains(&position)),
        };
        let tokens = started.canvas.iter().enumerate();
        self.tokens = tokens.map(|(position, token)| (!mask(position)).then_some(*token)).collect();
        self.prompt_tokens = started.prompt_tokens;
        self.holes = started.holes.iter().map(ExactSizeIterator::len).sum();
        self.masks = started.masks;
        if keeps {
            self.commits = vec![None; self.tokens.len().saturating_sub(self.prompt_tokens)];
        }
    }

    fn write(&mut self, changes: &Changes<'_>) {
        for commit in &changes.commits {
            if let Some(token) = self.tokens.get_mut(commit.position as usize) {
                *token = Some(commit.token);
            }
            let place = (commit.position as usize).checked_sub(self.prompt_tokens);
            if let Some(kept) = place.and_then(|place| self.commits.get_mut(place)) {
                *kept = Some(commit.clone());
            }
        }
        for &position in &changes.taken_back {
            if let Some(token) = self.tokens.get_mut(position as usize) {
                *token = None;
            }
        }
    }

    /// Returns the frame of the tokens committed since the last one; none if there was neither a commit nor a forward
    /// nor a start.
    ///
    /// With `ids` the first one has the prompt's tokens, too.
    pub fn frame(&self, update: &Changes<'_>, tokenizer: Option<&Tokenizer>, ids: bool) -> Option<Value> {
        if update.commits.is_empty() && update.started.is_none() && update.forwards.is_empty() {
            return None;
        }
        let text = |token: TokenId| logprobs::text(token, tokenizer);
        let commits = update.commits.iter().map(|commit| {
            let mut entry = vec![
                json!(commit.position),
                json!(commit.token),
                json!(text(commit.token)),
                json!(commit.confidence),
                json!(commit.step),
            ];
            if !commit.top.is_empty() {
                let alternative = |&(token, logprob): &(TokenId, f32)| json!([token, text(token), logprob.exp()]);
                entry.push(commit.top.iter().map(alternative).collect());
            }
            Value::Array(entry)
        });
        let mut frame = json!({
            "v": 1,
            "step": self.step,
            "nfe": self.nfe,
            "masks": self.masks,
            "settled": self.settled,
            "commits": commits.collect::<Vec<_>>(),
            "forwards": update.forwards,
        });
        let those = |is: fn(&Committed) -> bool| update.commits.iter().filter(move |commit| is(commit));
        for (name, positions) in [
            ("forced", those(|commit| commit.forced).map(|commit| commit.position).collect()),
            ("changed", those(|commit| commit.changed).map(|commit| commit.position).collect()),
            ("taken_back", update.taken_back.clone()),
        ] {
            if !positions.is_empty() {
                frame[name] = json!(positions);
            }
        }
        if update.dropped > 0 {
            frame["dropped"] = json!(update.dropped);
        }
        if update.started.is_some() {
            frame["canvas"] = self.laid_out(update, tokenizer, ids);
        }
        Some(frame)
    }

    /// The canvas as it was laid out: its lengths, and the tokens after the prompt that were given.
    fn laid_out(&self, update: &Changes<'_>, tokenizer: Option<&Tokenizer>, ids: bool) -> Value {
        let Some(started) = update.started else { return Value::Null };
        let committed = |position: usize| update.commits.iter().any(|commit| commit.position as usize == position);
        let behind = self.tokens.iter().enumerate().skip(self.prompt_tokens);
        let given = behind.filter_map(|(position, token)| Some((position, (*token)?)));
        let given = given.filter(|(position, _)| !committed(*position));
        let prompt = ids.then(|| started.canvas.get(..started.prompt_tokens).unwrap_or_default());
        json!({
            "prompt": prompt,
            "prompt_tokens": started.prompt_tokens,
            "length": started.canvas.len(),
            "block_length": started.block_length,
            "decoder": started.decoder,
            "cache": started.cache,
            "given": given.map(|(at, token)| json!([at, token, logprobs::text(token, tokenizer)])).collect::<Vec<_>>(),
        })
    }

    /// Returns the frame of the canvas as text; none if nothing has changed.
    /// `ends` are the tokens that end answers, which have no text of their own.
    pub fn to_json(&self, update: &Changes<'_>, tokenizer: Option<&Tokenizer>, ends: &[TokenId]) -> Option<Value> {
        if update.commits.is_empty() && update.taken_back.is_empty() && update.started.is_none() {
            return None;
        }
        let text = self.text(tokenizer, ends);
        Some(json!({"v": 1, "step": self.step, "nfe": self.nfe, "masks": self.masks, "text": text}))
    }

    /// Returns the answer as it stands, masks included, and with a sign for each of the tokens `shown`.
    pub fn text(&self, tokenizer: Option<&Tokenizer>, shown: &[TokenId]) -> String {
        let mut text = String::new();
        let answer = self.tokens.get(self.prompt_tokens..).unwrap_or_default();
        let sign = |token: &Option<TokenId>| match token {
            None => Some(MASK),
            Some(token) => shown.contains(token).then_some(END),
        };
        // What stands together is put into text together: a letter may be several tokens.
        for run in answer.chunk_by(|left, right| sign(left) == sign(right)) {
            if let Some(sign) = run.first().and_then(sign) {
                text.extend(run.iter().map(|_| sign));
                continue;
            }
            let tokens: Vec<TokenId> = run.iter().copied().flatten().collect();
            match tokenizer {
                Some(tokenizer) => text.push_str(&tokenizer.decode(&tokens, true)),
                None => text.extend(tokens.iter().map(|token| format!("{token},"))),
            }
        }
        text
    }

    /// Returns the log-probabilities of the tokens that were settled since the last time; none if there are none.
    pub fn logprobs(&mut self, form: &dyn Form, tokenizer: Option<&Tokenizer>) -> Option<Value> {
        let settled = self.settled.min(self.commits.len());
        let new = self.commits.get(self.sent_logprobs..settled).filter(|new| !new.is_empty())?;
        // What was given, between and behind holes, was never committed.
        let entries = new.iter().flatten();
        let entries = entries.map(|commit| Entry { token: commit.token, logprob: commit.logprob, top: &commit.top });
        let entries: Vec<_> = entries.collect();
        let value = logprobs::value(form.logprobs_by_token(), &entries, tokenizer, self.characters);
        let characters: usize = entries.iter().map(|entry| logprobs::length(entry.token, tokenizer)).sum();
        (self.sent_logprobs, self.characters) = (settled, self.characters + characters);
        Some(value)
    }

    /// Returns how many tokens were given, and how many of the answer can no longer change; of holes those that are filled.
    pub fn counts(&self) -> (usize, usize) {
        if self.holes == 0 {
            return (self.prompt_tokens, self.settled);
        }
        let masks = self.tokens.iter().filter(|token| token.is_none()).count();
        (self.tokens.len() - self.holes, self.holes - masks)
    }

    /// Returns how many positions may be shown at once: those of the answer, or those whose log-probabilities were not sent.
    pub fn length(&self) -> usize {
        let listed =
            self.commits.iter().skip(self.sent_logprobs).flatten().map(|commit| 1 + commit.top.len()).sum::<usize>();
        listed.max(self.tokens.len().saturating_sub(self.prompt_tokens))
    }

    /// Returns how many tokens' log-probabilities were sent.
    pub fn sent_logprobs(&self) -> usize {
        self.sent_logprobs
    }
}
