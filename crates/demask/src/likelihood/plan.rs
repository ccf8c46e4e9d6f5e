//! The forwards of an estimate: what several continuations or several draws ask of the same tokens runs once.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use demask_step::{Mask, NO_TOKEN, Position, Predictions, TokenId};

use super::draws::Draw;
use crate::TokenLogprob;

/// Likelihood of a continuation.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Likelihood {
    /// Natural-log probability, or a lower bound of it.
    pub log_probability: f64,
    /// Tokens of the continuation.
    pub tokens: usize,
    /// The log-probability of each token of the continuation after those before it, in their order; empty unless
    /// [`LikelihoodOptions::top`](crate::LikelihoodOptions::top) is set.
    pub logprobs: Vec<TokenLogprob>,
    /// Times that the model was asked, guidance included. What several continuations ask together counts for
    /// one of them.
    pub forwards: usize,
    /// Tokens of the context that were not computed, because another request had left their K/V: of autoregressive models. What
    /// several continuations begin with counts for one of them.
    pub cached_tokens: usize,
    /// Floating point operations of these forwards by formula.
    pub flops: f64,
    /// Seconds of these forwards in the network.
    pub seconds: f64,
}

/// A continuation after its context, or a canvas with one of the choices of a slot.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    /// All of its tokens: context, continuation and the end after them, if there is one.
    pub tokens: Vec<TokenId>,
    /// Positions of the tokens that are judged.
    pub judged: Range<usize>,
}

/// Rows of a text that run in a forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pass {
    /// The rows.
    pub rows: Range<usize>,
    /// Rule for the keys that each sees.
    pub attention: Mask,
    /// Distance from a position back to the row that predicts it; none: the model's own.
    pub shift: Option<Position>,
}

/// Choices for the same place of a text. Each is a text of its own, which has it there.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    /// The texts.
    pub texts: Range<usize>,
    /// The positions, masks where a choice has not been written yet.
    pub places: Range<usize>,
}

/// One forward.
#[derive(Debug)]
pub(super) struct Canvas {
    /// The text whose tokens run: it is the first that needs this forward.
    pub text: usize,
    /// Rows that run.
    pub pass: Pass,
    /// Positions that are hidden, beside those that are predicted.
    pub hidden: Range<usize>,
    /// Positions that are predicted, ascending.
    pub predict: Vec<usize>,
    /// The tokens that are judged: one at each of these positions, and others at some of them.
    first: Vec<TokenId>,
    others: BTreeMap<usize, Vec<TokenId>>,
    /// Sums that it adds to.
    readers: Vec<usize>,
}

impl Canvas {
    fn new(text: usize, pass: Pass, hidden: Range<usize>) -> Self {
        let (predict, first, others, readers) = (Vec::new(), Vec::new(), BTreeMap::new(), Vec::new());
        Self { text, pass, hidden, predict, first, others, readers }
    }

    /// Lets a token be judged at one of the predicted positions; returns its place among those that are.
    fn judge(&mut self, place: usize, token: TokenId) -> usize {
        let first = &mut self.first[place];
        if *first == NO_TOKEN {
            *first = token;
        }
        if *first == token {
            return 0;
        }
        let others = self.others.entry(place).or_default();
        let known = others.iter().position(|&other| other == token);
        1 + known.unwrap_or_else(|| {
            others.push(token);
            others.len() - 1
        })
    }

    /// Returns how many tokens are judged at each position.
    pub fn width(&self) -> usize {
        1 + self.others.values().map(Vec::len).max().unwrap_or(0)
    }

    /// Appends the tokens that are judged, position after position.
    pub fn judged(&self, out: &mut Vec<TokenId>) {
        let width = self.width();
        for (place, &first) in self.first.iter().enumerate() {
            let end = out.len() + width;
            out.push(first);
            out.extend(self.others.get(&place).into_iter().flatten());
            out.resize(end, first);
        }
    }
}

/// An answer of a forward that a sum is made of.
#[derive(Debug, Clone, Copy)]
struct Read {
    canvas: u32,
    /// The position, by its place among those that are predicted once they are known.
    place: u32,
    /// The token, by its place among those that are judged there once they are known.
    column: u32,
}

/// The log-probabilities of some of a text's tokens, added up in the order of the tokens.
#[derive(Debug)]
struct Sum {
    text: usize,
    reads: Vec<Read>,
    /// Answers that were added.
    added: usize,
    value: f64,
}

/// A log-probability that a forward told of a text's token.
pub(super) struct ScoredToken {
    /// The text.
    pub text: usize,
    /// Its log-probability.
    pub log_probability: f32,
    /// Place of its position among those that the forward predicts.
    pub place: usize,
}

/// Forwards and the sums that are made of them.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub canvases: Vec<Canvas>,
    sums: Vec<Sum>,
    /// Each text's sums with their weights, in the order of its draws, and how many of them are part of its likelihood.
    draws: Vec<(Vec<(usize, f64)>, usize)>,
}

impl Plan {
    /// Plans the draws of a model that sees everything. Draws share a canvas if they have the same hidden and the same
    /// shown tokens.
    pub fn hiding(texts: &[Text], draws: &[Vec<Draw>]) -> Self {
        let mut plan = Self::default();
        let (mut contexts, mut known) = (HashMap::new(), HashMap::new());
        for (index, (text, draws)) in texts.iter().zip(draws).enumerate() {
            let (context, continuation) = text.tokens.split_at(text.judged.start);
            let next = contexts.len();
            let context = *contexts.entry(context).or_insert(next);
            let mut own = HashMap::new();
            let sums = draws.iter().map(|draw| {
                let sum = *own.entry(&draw.masked).or_insert_with(|| {
                    let mut seen: Vec<Option<TokenId>> = continuation.iter().copied().map(Some).collect();
                    draw.masked.iter().for_each(|&place| seen[place] = None);
                    let canvas = *known.entry((context, seen)).or_insert_with(|| {
                        let pass = Pass { rows: 0..text.tokens.len(), attention: Mask::Full, shift: None };
                        plan.canvas(index, pass, 0..0)
                    });
                    let sum = plan.sum(index);
                    for place in &draw.masked {
                        plan.read(sum, canvas, text, text.judged.start + place);
                    }
                    sum
                });
                (sum, draw.weight)
            });
            let sums = sums.collect();
            plan.draws.push((sums, 0));
        }
        plan.settled()
    }

    /// Plans slots whose tokens are judged one after the other, each as it is predicted once those before it are written and
    /// the others are masks. `pass` is the forward that predicts a position of a slot. Where all rows see each other, one
    /// forward predicts the first tokens of all slots: nothing is written in any of them.
    pub fn chaining(texts: &[Text], slots: &[Slot], pass: impl Fn(&Slot, usize) -> Pass) -> Self {
        let (mut plan, mut known) = (Self::default(), HashMap::new());
        for (number, slot) in slots.iter().enumerate() {
            for index in slot.texts.clone() {
                let (text, sum) = (&texts[index], plan.sum(index));
                for position in text.judged.clone() {
                    let (written, pass) = (&text.tokens[slot.places.start..position], pass(slot, position));
                    let of_all = written.is_empty() && pass.attention == Mask::Full;
                    let canvas = *known.entry(((!of_all).then_some(number), written)).or_insert_with(|| {
                        let hidden = position..slot.places.end.min(pass.rows.end).max(position);
                        plan.canvas(index, pass, hidden)
                    });
                    plan.read(sum, canvas, text, position);
                }
                plan.draws.push((vec![(sum, 1.0)], 0));
            }
        }
        plan.settled()
    }

    /// Plans the texts of a model that reads from left to right, one after the other in one sequence: each from where it
    /// parts from the one before, so that no row runs twice. A row predicts the token `shift` positions after it.
    pub fn reading(texts: &[Text], shift: usize) -> Self {
        let mut plan = Self { draws: vec![Default::default(); texts.len()], ..Self::default() };
        let mut order: Vec<usize> = (0..texts.len()).collect();
        // Behind those that go on from it, a text costs nothing.
        order.sort_by_key(|&index| Reverse(&texts[index].tokens));
        // The forward of each row that is kept.
        let (mut rows, mut last): (Vec<usize>, &[TokenId]) = (Vec::new(), &[]);
        for index in order {
            let Text { tokens, judged } = &texts[index];
            rows.truncate(last.iter().zip(tokens).take_while(|(last, token)| last == token).count());
            // Behind the last token nothing is predicted.
            let end = tokens.len() - shift;
            if rows.len() < end {
                let pass = Pass { rows: rows.len()..end, attention: Mask::Causal, shift: None };
                let canvas = plan.canvas(index, pass, 0..0);
                rows.resize(end, canvas);
            }
            let sum = plan.sum(index);
            for position in judged.clone() {
                plan.read(sum, rows[position - shift], &texts[index], position);
            }
            plan.draws[index].0.push((sum, 1.0));
            last = tokens;
        }
        plan.settled()
    }

    fn canvas(&mut self, text: usize, pass: Pass, hidden: Range<usize>) -> usize {
        self.canvases.push(Canvas::new(text, pass, hidden));
        self.canvases.len() - 1
    }

    fn sum(&mut self, text: usize) -> usize {
        self.sums.push(Sum { text, reads: Vec::new(), added: 0, value: 0.0 });
        self.sums.len() - 1
    }

    /// Adds the log-probability of a text's token, as a forward predicts it, to a sum.
    fn read(&mut self, sum: usize, canvas: usize, text: &Text, position: usize) {
        let token = text.tokens[position];
        self.sums[sum].reads.push(Read { canvas: canvas as u32, place: position as u32, column: token });
        let Canvas { predict, readers, .. } = &mut self.canvases[canvas];
        predict.push(position);
        if readers.last() != Some(&sum) {
            readers.push(sum);
        }
    }

    /// Settles where each forward has its answers.
    fn settled(mut self) -> Self {
        for canvas in &mut self.canvases {
            canvas.predict.sort_unstable();
            canvas.predict.dedup();
            canvas.first = vec![NO_TOKEN; canvas.predict.len()];
        }
        for read in self.sums.iter_mut().flat_map(|sum| &mut sum.reads) {
            let (canvas, position) = (&mut self.canvases[read.canvas as usize], read.place as usize);
            let place = canvas.predict.partition_point(|&known| known < position);
            read.column = canvas.judge(place, read.column) as u32;
            read.place = place as u32;
        }
        self
    }

    /// Returns how many tokens a forward judges at a position, at most.
    pub fn width(&self) -> usize {
        self.canvases.iter().map(Canvas::width).max().unwrap_or(1)
    }

    /// Adds a forward's judged tokens to the sums that they are part of. `emit` gets them token by token.
    pub fn add(&mut self, canvas: usize, answer: &Predictions, emit: &mut dyn FnMut(ScoredToken)) {
        let width = self.canvases[canvas].width();
        for &reader in &self.canvases[canvas].readers {
            let Sum { text, reads, added, value } = &mut self.sums[reader];
            let own = reads[*added..].iter().take_while(|read| read.canvas as usize == canvas);
            for read in own {
                let place = read.place as usize;
                let log_probability = answer.scores[place * width + read.column as usize].log_probability;
                *value += f64::from(log_probability);
                *added += 1;
                emit(ScoredToken { text: *text, log_probability, place });
            }
        }
    }

    /// Adds the draws whose sums are there, in the order of the draws, to the likelihoods of their texts.
    pub fn settle(&mut self, likelihoods: &mut [Likelihood]) {
        for ((draws, settled), likelihood) in self.draws.iter_mut().zip(likelihoods) {
            while let Some(&(sum, weight)) = draws.get(*settled)
                && let Sum { reads, added, value, .. } = &self.sums[sum]
                && reads.len() == *added
            {
                likelihood.log_probability += weight * value;
                *settled += 1;
            }
        }
    }
}
