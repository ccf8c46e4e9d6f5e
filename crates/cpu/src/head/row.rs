//! One row: the draw, the distribution, and what else is asked.

use demask_step::{ConfidenceOf, HeadRequest, TokenScore};

use super::{
    draw::{Draw, Drawn},
    filter::{self, Scaled},
    mark::{Mark, Marks},
    statistics::Statistics,
    tiles::{Look, TileOutputs, Tiles},
    top,
};
use crate::isa::Isa;

/// Answer of every row.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) token: u32,
    pub(super) confidence: f32,
    pub(super) margin: f32,
    pub(super) entropy: f32,
}

/// Request of a row, and the key of its noise.
#[derive(Clone, Copy)]
pub(super) struct RowRequest<'a> {
    pub(super) request: &'a HeadRequest,
    pub(super) key: u64,
    pub(super) vocabulary: usize,
}

impl<'a> RowRequest<'a> {
    /// Reports whether the answer takes all logits of the row at once: for a filter, whose tokens are not known before
    /// all are sorted; for the rank of given tokens; for a long list of best ones; and for the logits themselves.
    pub(super) fn takes_logits(&self) -> bool {
        let HeadRequest { top, score_width, logits, .. } = self.request;
        self.is_filtered() || *score_width > 0 || *top > top::MOST || *logits
    }

    /// Reports whether a filter has a say.
    fn is_filtered(&self) -> bool {
        let sampling = &self.request.sampling;
        (sampling.temperature > 0.0 || self.speaks_of_drawn()) && sampling.filters(self.vocabulary)
    }

    /// Reports whether the answer speaks of the distribution that the token is drawn from.
    fn speaks_of_drawn(&self) -> bool {
        self.request.sampling.confidence == ConfidenceOf::Drawn
    }

    fn temperature(&self) -> f32 {
        self.request.sampling.temperature
    }

    /// Reports whether the row's token is drawn tile by tile: by noise, or where it may be one that weighs nothing.
    fn is_drawn_from_tiles(&self) -> bool {
        if self.temperature() > 0.0 { !self.is_filtered() } else { !self.request.zero_confidence.is_empty() }
    }

    /// Parts of each tile that are kept, with `stored` logits or without.
    pub(super) fn tile_outputs(&self, stored: bool) -> TileOutputs {
        let top = if stored { 0 } else { self.request.top };
        TileOutputs { draws: self.is_drawn_from_tiles(), top }
    }

    /// Values that are looked for in each tile.
    // Inlined, so that they stay in registers where each row of a task looks for a few.
    #[inline(always)]
    pub(super) fn look(&self, marks: &'a Marks, kept: TileOutputs) -> Look<'a> {
        let HeadRequest { banned, zero_confidence, .. } = self.request;
        Look {
            banned,
            limit: self.request.bound(self.vocabulary) as u32,
            zero_confidence,
            inverse: self.inverse(),
            draw: self.is_drawn_from_tiles().then(|| self.draw(&marks.score)),
            top: kept.top,
            listed: &marks.listed,
        }
    }

    fn draw(&self, mark: &'a Mark) -> Draw<'a> {
        Draw { temperature: self.temperature().max(0.0), key: self.key, mark }
    }

    /// 1 / temperature of the draw.
    fn drawn_inverse(&self) -> f32 {
        if self.temperature() > 0.0 { 1.0 / self.temperature() } else { 1.0 }
    }

    /// 1 / temperature of the distribution that the answer speaks of.
    fn inverse(&self) -> f32 {
        if self.speaks_of_drawn() { self.drawn_inverse() } else { 1.0 }
    }

    /// Answers from a row's tiles and, if they were stored, its logits. Fills the list of best tokens.
    pub(super) fn answer(
        &self,
        isa: Isa,
        (tiles, row): (&Tiles<'_>, usize),
        stored: Option<Stored<'_>>,
        top: &mut [(u32, f32)],
    ) -> Answer {
        let (statistics, draws, lists) = tiles.row(row);
        let joined = Statistics::join(isa, statistics, self.inverse());
        let drawn = if self.is_drawn_from_tiles() { Drawn::join(draws) } else { Drawn::plain(&joined) };
        let whole = Distribution { statistics: joined, inverse: self.inverse(), passing: None };
        if let Some(stored) = stored {
            return stored.answer(isa, self, (drawn, whole), top);
        }
        top::join(statistics, lists, tiles.outputs.top, top);
        for (_, logit) in top.iter_mut() {
            *logit = whole.probability(*logit);
        }
        self.answer_of(drawn, &whole)
    }

    /// The answer, of a token and a distribution.
    fn answer_of(&self, drawn: Drawn, distribution: &Distribution<'_>) -> Answer {
        let HeadRequest { zero_confidence, margin, entropy, .. } = self.request;
        let Distribution { statistics, inverse, .. } = distribution;
        Answer {
            token: drawn.token,
            // No logit of the row is a number, or the best one is infinite: nothing was predicted.
            confidence: match drawn.logit.is_finite() {
                false => f32::NAN,
                true if zero_confidence.contains(&drawn.token) => 0.0,
                true => distribution.probability(drawn.logit),
            },
            margin: if *margin { statistics.margin(*inverse) } else { 0.0 },
            entropy: if *entropy { statistics.entropy(*inverse) } else { 0.0 },
        }
    }
}

/// The logits of a row, and what only they can answer.
pub(super) struct Stored<'a> {
    /// Logits, without those that no distribution knows.
    pub(super) values: &'a mut [f32],
    /// Tokens to score.
    pub(super) score: &'a [u32],
    pub(super) scores: &'a mut [TokenScore],
    /// Scratch with room for the vocabulary.
    pub(super) order: &'a mut Vec<u32>,
}

impl Stored<'_> {
    /// Answers what `asked` asks beyond what its tiles tell: a token and a distribution. Shares are found first, of all
    /// tokens. Then forbidden ones are struck out, and the token is chosen among the others.
    fn answer(
        mut self,
        isa: Isa,
        asked: &RowRequest<'_>,
        (mut drawn, whole): (Drawn, Distribution<'_>),
        top: &mut [(u32, f32)],
    ) -> Answer {
        let HeadRequest { banned, zero_confidence, sampling, .. } = asked.request;
        let (is_filtered, vocabulary) = (asked.is_filtered(), self.values.len());
        let plain = (!self.score.is_empty()).then(|| self.score_shares(isa));
        let mut passing = Statistics::NONE;
        if is_filtered {
            let inverse = asked.drawn_inverse();
            let statistics = Statistics::of_row(isa, self.values, inverse);
            let row = Scaled { values: self.values, statistics, inverse };
            filter::passing(row, sampling, &|token| asked.request.allows(token), self.order);
            if asked.speaks_of_drawn() {
                passing = self.shares_of_passing(zero_confidence, inverse);
            }
        }
        self.values[asked.request.bound(vocabulary)..].fill(f32::NEG_INFINITY);
        self.strike(banned);
        if let Some(plain) = plain {
            self.score_ranks(&plain);
        }
        if is_filtered && asked.temperature() > 0.0 {
            self.keep_possible();
            drawn = asked.draw(&Mark::default()).among(self.values, self.order);
        }
        self.strike(zero_confidence);
        if is_filtered {
            self.keep_possible();
        }
        let values = &*self.values;
        let distribution = if is_filtered && asked.speaks_of_drawn() {
            Distribution::of_passing(passing, values, self.order, whole.inverse)
        } else {
            whole
        };
        distribution.top(values, top);
        asked.answer_of(drawn, &distribution)
    }

    fn strike(&mut self, tokens: &[u32]) {
        for &token in tokens {
            self.values[token as usize] = f32::NEG_INFINITY;
        }
    }

    /// Leaves only those of the passing tokens that are not struck out.
    fn keep_possible(&mut self) {
        let values = &*self.values;
        self.order.retain(|&token| values[token as usize] > f32::NEG_INFINITY);
    }

    /// The distribution of the passing tokens, without best ones: of all but muted ones, best first.
    fn shares_of_passing(&self, zero_confidence: &[u32], inverse: f32) -> Statistics {
        let weighing = || self.order.iter().filter(|token| !zero_confidence.contains(token));
        let value = |token: u32| self.values[token as usize];
        let Some(base) = weighing().next().map(|&token| value(token)) else { return Statistics::NONE };
        let mut sums = [0.0; 2];
        // Of a sum of 1, the probability is the weight.
        let unit = Statistics { base, sum: 1.0, ..Statistics::NONE };
        for &token in weighing() {
            let weight = f64::from(unit.probability(value(token), inverse));
            sums[0] += weight;
            sums[1] += weight * f64::from(value(token) - base);
        }
        Statistics { sum: sums[0] as f32, moment: sums[1] as f32, ..unit }
    }

    /// Log-probability of each scored token in the plain distribution of all, which it returns.
    fn score_shares(&mut self, isa: Isa) -> Statistics {
        let plain = Statistics::of_row(isa, self.values, 1.0);
        let nothing = if plain.base.is_finite() { f32::NEG_INFINITY } else { f32::NAN };
        for (score, &token) in self.scores.iter_mut().zip(self.score) {
            let value = self.values[token as usize];
            let weighs = value > f32::NEG_INFINITY && plain.base.is_finite();
            let log_probability = if weighs { (value - plain.base) - plain.sum.ln() } else { nothing };
            *score = TokenScore { log_probability, ..TokenScore::NONE };
        }
        plain
    }

    /// Rank of each scored token among those that may be predicted.
    fn score_ranks(&mut self, plain: &Statistics) {
        let best = self.values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for (score, &token) in self.scores.iter_mut().zip(self.score) {
            let value = self.values[token as usize];
            let (before, behind) = self.values.split_at(token as usize);
            let higher = before.iter().filter(|&&other| other >= value).count()
                + behind.iter().filter(|&&other| other > value).count();
            (score.rank, score.best) = (higher as u32, plain.probability(best, 1.0));
        }
    }
}

/// The distribution that confidence, margin and entropy speak of.
struct Distribution<'a> {
    statistics: Statistics,
    inverse: f32,
    /// The tokens that pass the filter, best first, if there is one.
    passing: Option<&'a [u32]>,
}

impl<'a> Distribution<'a> {
    /// Of passing tokens that may be predicted, best first, by the shares of all that pass.
    fn of_passing(shares: Statistics, values: &[f32], passing: &'a [u32], inverse: f32) -> Self {
        let value = |rank: usize| passing.get(rank).map_or(f32::NEG_INFINITY, |&token| values[token as usize]);
        let token = passing.first().copied().unwrap_or(0);
        let statistics = Statistics { best: value(0), token, second: value(1), ..shares };
        Self { statistics, inverse, passing: Some(passing) }
    }

    fn probability(&self, logit: f32) -> f32 {
        self.statistics.probability(logit, self.inverse)
    }

    /// The best tokens; those that do not pass come last, with probability 0.
    fn top(&self, values: &[f32], list: &mut [(u32, f32)]) {
        let passing = self.passing.unwrap_or(&[]);
        let known = passing.len().min(list.len());
        let (best, rest) = list.split_at_mut(known);
        for (best, &token) in best.iter_mut().zip(passing) {
            *best = (token, self.probability(values[token as usize]));
        }
        top::clear(rest);
        if !rest.is_empty() {
            for (token, &value) in (0..).zip(values) {
                if top::enters(rest, value) && !passing.contains(&token) {
                    top::insert(rest, token, value);
                }
            }
        }
        let passes_all = self.passing.is_none();
        for (_, logit) in rest {
            *logit = if passes_all { self.probability(*logit) } else { 0.0 };
        }
    }
}
