//! Adjustments of logits by a request, and by the tokens that its answer has so far, before anything is read from them.

use std::collections::{BTreeMap, btree_map::Entry};

use demask_step::{HeadAsk, HeadRequest, NO_TOKEN, Position, Predictions, TokenId};

use crate::{
    canvas::Canvas,
    constraint::{Heard, tokens_of},
    distribution::RowReader,
    error::{self, OptionsError},
    event::Commit,
};

/// Adjustments of logits, in the order in which they are made: the bias, then the penalties `repetition`, `frequency` and
/// `presence`, then ends that come too early.
///
/// *So far* means the tokens that the answer has at other positions when a forward runs, wherever they are on the canvas; in a
/// causal pass those before the position. Tokens that end an answer have no penalty: a canvas has a run of them after its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Adjustments {
    /// Numbers that are added to the logits of tokens.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Number that is subtracted from the logit of each token that the answer has so far.
    pub presence_penalty: f32,
    /// Number that is subtracted from the logit of a token once for each time that the answer has it so far.
    pub frequency_penalty: f32,
    /// Number that the logit of each token is divided by that the prompt or the answer has so far, or multiplied with if it is
    /// below 0.
    pub repetition_penalty: f32,
    /// Positions of the answer that hold no token that ends it, from the first on.
    pub min_tokens: usize,
}

impl Default for Adjustments {
    fn default() -> Self {
        Self {
            logit_bias: Vec::new(),
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            min_tokens: 0,
        }
    }
}

impl Adjustments {
    /// Returns the name of the first one that changes anything.
    pub fn first(&self) -> Option<&'static str> {
        let changing = [
            ("logit_bias", self.logit_bias.iter().any(|bias| bias.1 != 0.0)),
            ("presence_penalty", self.presence_penalty != 0.0),
            ("frequency_penalty", self.frequency_penalty != 0.0),
            ("repetition_penalty", self.repetition_penalty != 1.0),
            ("min_tokens", self.min_tokens > 0),
        ];
        changing.into_iter().find(|(_, changes)| *changes).map(|(name, _)| name)
    }

    /// Refuses numbers out of range, tokens outside the vocabulary of `vocab`, and more least tokens than `most`, those of an answer.
    pub(crate) fn check(&self, vocab: usize, most: usize) -> Result<(), OptionsError> {
        let numbers = [
            ("presence_penalty", self.presence_penalty, self.presence_penalty.abs() <= 2.0, "a number from -2 to 2"),
            ("frequency_penalty", self.frequency_penalty, self.frequency_penalty.abs() <= 2.0, "a number from -2 to 2"),
            (
                "repetition_penalty",
                self.repetition_penalty,
                self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite(),
                "a number above 0; 1 is none",
            ),
        ];
        for (name, found, right, expected) in numbers {
            if !right {
                return Err(error::value(name, format_args!("`{name}` is {found}, expected {expected}")));
            }
        }
        for &(token, bias) in &self.logit_bias {
            if bias.is_nan() || bias.abs() > 100.0 {
                let text = format_args!("`logit_bias` of token {token} is {bias}, expected a number from -100 to 100");
                return Err(error::value("logit_bias", text));
            }
            if token as usize >= vocab {
                let text = format_args!("`logit_bias` has token {token}, expected ids from 0 to {}", vocab - 1);
                return Err(error::value("logit_bias", text));
            }
        }
        if self.min_tokens > most {
            let text = format_args!(
                "`min_tokens` is {}, and the answer has {most} tokens at most: lower it, or ask for a longer answer",
                self.min_tokens
            );
            return Err(error::value("min_tokens", text));
        }
        Ok(())
    }

    /// Adjusts a row of logits. `prompt` are the tokens of the prompt, each once, and `so_far` those of the answer with their
    /// numbers; `early` are the tokens that may not stand here yet.
    fn adjust(&self, row: &mut [f32], prompt: &[TokenId], so_far: &SoFar, early: &[TokenId]) {
        for &(token, bias) in &self.logit_bias {
            row[token as usize] += bias;
        }
        if self.repetition_penalty != 1.0 {
            let new = so_far.keys().copied().filter(|token| prompt.binary_search(token).is_err());
            for token in prompt.iter().copied().chain(new) {
                let logit = &mut row[token as usize];
                *logit = if *logit > 0.0 { *logit / self.repetition_penalty } else { *logit * self.repetition_penalty };
            }
        }
        for (&token, &count) in so_far {
            let logit = &mut row[token as usize];
            *logit -= self.frequency_penalty * count as f32;
            *logit -= self.presence_penalty;
        }
        for &token in early {
            row[token as usize] = f32::NEG_INFINITY;
        }
    }
}

/// Tokens of an answer, with their numbers.
type SoFar = BTreeMap<TokenId, u32>;

/// Predictions of a session, read again from logits that are adjusted.
#[derive(Debug)]
pub(crate) struct Adjuster {
    adjustments: Adjustments,
    /// Tokens of the prompt that have a penalty, each once.
    prompt: Vec<TokenId>,
    /// Tokens that end an answer.
    ends: Vec<TokenId>,
    /// First position of the answer.
    response: usize,
    vocab: usize,
    /// Records whether others read the adjusted logits too.
    keeps_logits: bool,
    rows: RowReader,
    row: Vec<f32>,
}

impl Adjuster {
    /// Makes one for the canvas of a session whose forwards want this of the head, if anything is adjusted. `ends` end an answer,
    /// `keeps_logits`: others read the adjusted logits too.
    pub(crate) fn new(
        adjustments: &Adjustments,
        (canvas, response): (&Canvas, usize),
        (wanted, vocab): (&HeadRequest, usize),
        mut ends: Vec<TokenId>,
        keeps_logits: bool,
    ) -> Option<Self> {
        adjustments.first()?;
        ends.sort_unstable();
        let given = (0..).zip(canvas.tokens()).filter(|(position, _)| canvas.is_given(*position));
        let mut prompt: Vec<TokenId> = given.map(|(_, &token)| token).collect();
        prompt.retain(|token| ends.binary_search(token).is_err());
        prompt.sort_unstable();
        prompt.dedup();
        Some(Self {
            adjustments: adjustments.clone(),
            prompt,
            ends,
            response,
            vocab,
            keeps_logits,
            rows: RowReader::new(wanted.clone(), vocab),
            row: Vec::with_capacity(vocab),
        })
    }

    /// Fills `read` with the predictions of the adjusted logits. `lanes` returns the commits that each draft fills in.
    pub(crate) fn read<'l>(
        &mut self,
        canvas: &Canvas,
        lanes: impl Fn(usize) -> &'l [Commit],
        is_causal: bool,
        heard: Heard<'_>,
        read: &mut Predictions,
    ) {
        let found = heard.predictions;
        read.copy_tokens(found);
        read.top.extend_from_slice(&found.top);
        read.scores.extend_from_slice(&found.scores);
        for lane in 0..found.lanes {
            let tokens = (0..).zip(tokens_of(canvas, lanes(lane), &[]));
            let own: Vec<Option<TokenId>> =
                tokens.map(|(at, token)| token.filter(|&token| self.counts(canvas, at, token))).collect();
            let (mut so_far, mut next) = (SoFar::new(), self.response);
            for position in found.positions.iter() {
                let at = position as usize;
                // Positions ascend, and a causal pass sees what is before each of them.
                let end = if is_causal { at.min(own.len()) } else { own.len() };
                own[next.min(end)..end].iter().flatten().for_each(|&token| *so_far.entry(token).or_default() += 1);
                next = next.max(end);
                let here = own.get(at).copied().flatten().filter(|_| !is_causal);
                if let Some(token) = here {
                    take(&mut so_far, token);
                }
                self.read_row((lane, position), &so_far, heard, read);
                if let Some(token) = here {
                    *so_far.entry(token).or_default() += 1;
                }
            }
        }
    }

    /// Reports whether a token at a position counts: one of the answer's own, and no end.
    fn counts(&self, canvas: &Canvas, at: usize, token: TokenId) -> bool {
        at >= self.response && !canvas.is_given(at as Position) && self.ends.binary_search(&token).is_err()
    }

    /// Fills in the prediction of one position. A row without a prediction stays as it is.
    fn read_row(
        &mut self,
        (lane, position): (usize, Position),
        so_far: &SoFar,
        heard: Heard<'_>,
        read: &mut Predictions,
    ) {
        let Some((index, logits)) = heard.row(lane, position, self.vocab) else { return };
        self.row.clear();
        self.row.extend_from_slice(logits);
        if heard.predictions.tokens[index] != NO_TOKEN {
            let is_early = (position as usize) < self.response + self.adjustments.min_tokens;
            let early = if is_early { &self.ends[..] } else { &[] };
            self.adjustments.adjust(&mut self.row, &self.prompt, so_far, early);
            self.answer(index, heard.ask, lane, position, read);
        }
        if self.keeps_logits {
            read.logits.extend_from_slice(&self.row);
        }
    }

    /// Writes the answer of the row that was adjusted last.
    fn answer(&mut self, index: usize, ask: &HeadAsk, lane: usize, position: Position, read: &mut Predictions) {
        let (rows, row, predicted) = (&mut self.rows, &self.row[..], read.tokens.len());
        let answer = rows.answer(row, ask.key(lane, position));
        (read.tokens[index], read.confidence[index]) = (answer.token, answer.confidence);
        read.margin.get_mut(index).into_iter().for_each(|margin| *margin = answer.margin);
        read.entropy.get_mut(index).into_iter().for_each(|entropy| *entropy = answer.entropy);
        let width = read.top.len() / predicted;
        if width > 0 {
            rows.list(row, &answer, &mut read.top[index * width..(index + 1) * width]);
        }
        let width = read.scores.len() / predicted;
        let judged = index * width..(index + 1) * width;
        for (place, &token) in read.scores[judged.clone()].iter_mut().zip(&ask.score[judged]) {
            *place = rows.score(row, token);
        }
    }
}

/// Takes a token out once.
fn take(so_far: &mut SoFar, token: TokenId) {
    if let Entry::Occupied(mut found) = so_far.entry(token) {
        *found.get_mut() -= 1;
        if *found.get() == 0 {
            found.remove();
        }
    }
}
