//! Likelihood of a continuation of a text, for multiple choice.
//!
//! An autoregressive model computes it in one forward. A diffusion model has a lower bound, estimated by masking some
//! of the continuation again and again and asking for the masked tokens: LLaDA's estimator draws how many are masked
//! (specs/caches.md#1.2), Dream's how probably each one is (specs/caches.md#1.3). Both spread a group of draws evenly,
//! which costs nothing and calms the estimate.

use std::time::Instant;

use demask_checkpoint::MaskDraws;
use demask_step::{
    Blend, BlendWith, Mask, Need, Pending, Position, Predictions, Request, SequenceNeeds, TokenId, Work,
    random::{mix, uniform},
};

use crate::{Error, Options, Prompt, Prompter, TokenLogprob};

/// Draws that LLaDA's script spreads evenly, and Dream's.
const LLADA_GROUP: usize = 8;
const DREAM_GROUP: usize = 32;
/// Dream's smallest probability of a mask.
const DREAM_LEAST: f64 = 1e-3;

/// Options of the estimate of a bound.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct LikelihoodOptions {
    /// Number of times that the continuation is masked (LLaDA's and Dream's scripts: 128).
    pub draws: usize,
    /// Scale of classifier-free guidance, for LLaDA.
    pub cfg_scale: f32,
    /// Key of the draws.
    pub seed: u64,
    /// Number of the most probable alternatives that are kept beside each token's log-probability, at most 20, for
    /// autoregressive models. None: only the sum of the log-probabilities is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<usize>,
}

impl Default for LikelihoodOptions {
    fn default() -> Self {
        Self { draws: 128, cfg_scale: 0.0, seed: 0, top: None }
    }
}

/// Likelihood of a continuation.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Likelihood {
    /// Natural-log probability, or a lower bound of it.
    pub log_probability: f64,
    /// Tokens of the continuation.
    pub tokens: usize,
    /// The log-probability of each token of the continuation behind those before it, in their order; empty unless
    /// [`LikelihoodOptions::top`] is set.
    pub logprobs: Vec<TokenLogprob>,
    /// Times that the model was asked, guidance included.
    pub forwards: usize,
    /// Floating point operations by formula.
    pub flops: f64,
    /// Seconds in the network.
    pub seconds: f64,
}

/// A continuation with some of it masked.
#[derive(Debug, Clone, PartialEq)]
struct Draw {
    /// Masked tokens, counted from the continuation's first, ascending.
    masked: Vec<usize>,
    /// Weight of the log-probabilities of the masked tokens.
    weight: f64,
}

impl Prompter {
    /// A prompt and a text behind it as tokens, split where the text begins: spaces at the prompt's end belong to the
    /// text, and the tokens are those of both together.
    pub fn pair(&self, prompt: &Prompt, continuation: &str) -> Result<(Vec<TokenId>, Vec<TokenId>), Error> {
        if let Prompt::Tokens(ids) = prompt {
            return Ok((ids.clone(), self.tokenizer()?.encode(continuation, false)?));
        }
        let (mut all, context) = if let Prompt::Chat(messages) = prompt {
            let options = Options::default();
            let mut words = self.rendered(messages, &options)?;
            let length = words.text.trim_end_matches(' ').len();
            let mut context = words.clone();
            context.text.truncate(length);
            words.text.push_str(continuation);
            (self.apart(&words, &options)?, self.apart(&context, &options)?)
        } else {
            let words = self.in_words(prompt)?;
            self.check_length(words.len() + continuation.len())?;
            let encode = |text: &str| Ok::<_, Error>(self.tokenizer()?.encode(text, true)?);
            (encode(&format!("{words}{continuation}"))?, encode(words.trim_end_matches(' '))?)
        };
        let continuation = all.split_off(context.len().min(all.len()));
        Ok((context, continuation))
    }
}

impl Prompter {
    /// Gets a continuation ready to be judged behind a context. Draws run side by side as far as `rows` rows go.
    ///
    /// # Errors
    /// If the model has no such estimate (block-causal ones), an option has no meaning for it or is out of range, or the
    /// tokens cannot be run.
    pub fn likelihood(
        &self,
        context: &[TokenId],
        continuation: &[TokenId],
        options: &LikelihoodOptions,
        rows: usize,
    ) -> Result<LikelihoodTask, Error> {
        let (conventions, facts) = (self.family().decoding().likelihood, self.facts());
        check(self, context, continuation, options)?;
        let length = continuation.len();
        let mut dice = Dice(mix(options.seed));
        let mut draws = match conventions.draws {
            _ if facts.mask == Mask::Causal => vec![Draw { masked: (0..length).collect(), weight: 1.0 }],
            MaskDraws::ByProbability => dream_draws(length, options.draws, &mut dice),
            MaskDraws::ByCount => llada_draws(length, options.draws, &mut dice),
        };
        // A draw that masks nothing says nothing.
        draws.retain(|draw| !draw.masked.is_empty());
        let mut tokens = [context, continuation].concat();
        if conventions.ends {
            // An end that is never masked stands behind what is judged.
            tokens.extend(self.eos_ids()?);
        }
        let mask = facts.mask_id.filter(|_| facts.mask == Mask::Full);
        let options = LikelihoodOptions { top: self.alternatives("top", options.top)?, ..*options };
        let asked = Asked { context: context.len(), tokens, mask, attention: facts.mask, options };
        Ok(LikelihoodTask::new(asked, draws, length, rows))
    }
}

/// Refuses what cannot be estimated.
fn check(
    model: &Prompter,
    context: &[TokenId],
    continuation: &[TokenId],
    options: &LikelihoodOptions,
) -> Result<(), Error> {
    let (facts, conventions) = (model.facts(), model.family().decoding().likelihood);
    if facts.mask.block().is_some() {
        return Err(Error::NoLikelihood { family: model.spec().family.to_owned() });
    }
    if continuation.is_empty() || context.is_empty() && facts.shift > 0 {
        return Err(Error::EmptyLikelihood);
    }
    if options.draws == 0 {
        return Err(Error::NoDraws);
    }
    if options.cfg_scale != 0.0 && !conventions.guidance {
        let why = "for the likelihood of models that are not LLaDA";
        return Err(Error::Meaningless { option: "cfg_scale", why });
    }
    let end = usize::from(conventions.ends);
    let (prompt, gen_length, available) = (context.len(), continuation.len() + end, facts.context);
    if prompt + gen_length > available {
        return Err(Error::TooLong { prompt, gen_length, context: available, option: None });
    }
    let mut tokens = context.iter().chain(continuation);
    if let Some(&token) = tokens.find(|&&token| token as usize >= facts.vocab) {
        return Err(Error::TokenOutOfRange { token, vocabulary: facts.vocab });
    }
    match options.top {
        // The draws of a bound mask several tokens at a time: no token has a probability of its own.
        Some(_) if facts.mask != Mask::Causal => {
            let why = "for the likelihood of models that are not autoregressive";
            Err(Error::Meaningless { option: "top", why })
        }
        top => model.alternatives("top", top).map(drop),
    }
}

/// Random numbers one after the other.
struct Dice(u64);

impl Dice {
    /// Draws a number in (0, 1).
    fn share(&mut self) -> f64 {
        self.0 = mix(self.0);
        uniform(self.0)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((self.share() * bound as f64) as usize).min(bound - 1)
    }
}

/// LLaDA's draws: `k` from 1 to the length is drawn for a group, whose members mask `k`, `k + length / group`, ... tokens
/// (around again from 1), each at random places. A single token leaves nothing to chance.
fn llada_draws(length: usize, draws: usize, dice: &mut Dice) -> Vec<Draw> {
    let draws = if length == 1 { 1 } else { draws };
    let mut all = Vec::with_capacity(draws);
    let mut start = 1;
    for index in 0..draws {
        let group = LLADA_GROUP.min(draws);
        if index % group == 0 {
            start = 1 + dice.below(length);
        }
        let count = start as f64 + (index % group) as f64 * length as f64 / group as f64;
        let count = (count.round_ties_even() as usize - 1) % length + 1;
        let mut places: Vec<usize> = (0..length).collect();
        for place in 0..count {
            places.swap(place, place + dice.below(length - place));
        }
        places.truncate(count);
        places.sort_unstable();
        all.push(Draw { masked: places, weight: length as f64 / count as f64 / draws as f64 });
    }
    all
}

/// Dream's draws: the members of a group mask each token with probabilities that lie evenly around a circle.
fn dream_draws(length: usize, draws: usize, dice: &mut Dice) -> Vec<Draw> {
    let group = DREAM_GROUP.min(draws);
    let mut start = 0.0;
    (0..draws)
        .map(|index| {
            if index % group == 0 {
                start = dice.share();
            }
            let time = (start + (index % group) as f64 / group as f64).fract();
            let probability = (1.0 - DREAM_LEAST) * time + DREAM_LEAST;
            let masked = (0..length).filter(|_| dice.share() < probability).collect();
            Draw { masked, weight: 1.0 / (probability * draws as f64) }
        })
        .collect()
}

/// One question to the network.
#[derive(Debug, Clone)]
struct Asked {
    /// Tokens before the continuation.
    context: usize,
    tokens: Vec<TokenId>,
    /// Token that hides a token; none for models that see no further than it.
    mask: Option<TokenId>,
    attention: Mask,
    options: LikelihoodOptions,
}

impl Asked {
    /// Alternatives of each token.
    fn top(&self) -> usize {
        self.options.top.unwrap_or(0)
    }

    /// Returns what one forward says of each token of the continuation.
    fn told(&self, answer: &Predictions) -> Vec<TokenLogprob> {
        let continuation = self.tokens[self.context..].iter().zip(&answer.judged).enumerate();
        let told = continuation.map(|(index, (&token, judged))| {
            let top = answer.top.get(index * self.top()..(index + 1) * self.top()).unwrap_or(&[]);
            TokenLogprob::judged(token, judged.log_probability, top)
        });
        told.collect()
    }

    /// Fills a draw's request.
    fn fill(&self, draw: &Draw, request: &mut Request) {
        let position = |index: &usize| (self.context + index) as Position;
        request.tokens.clear();
        request.tokens.extend_from_slice(&self.tokens);
        let plan = &mut request.plan;
        plan.clear();
        plan.live.set_range(0..self.tokens.len() as Position);
        plan.visible = self.tokens.len() as Position;
        plan.mask = self.attention;
        draw.masked.iter().for_each(|index| plan.predict.push(position(index)));
        request.ask.wanted.judge_width = 1;
        request.ask.wanted.top = self.top();
        request.ask.judge.clear();
        request.ask.judge.extend(draw.masked.iter().map(|index| self.tokens[self.context + index]));
        if let Some(mask) = self.mask {
            draw.masked.iter().for_each(|index| request.tokens[self.context + index] = mask);
        }
    }

    /// Fills the request of guidance's twin: the same without the context, and nothing of the head.
    fn fill_twin(&self, draw: &Request, twin: &mut Request) {
        twin.tokens.clone_from(&draw.tokens);
        twin.plan.clone_from(&draw.plan);
        twin.plan.predict.clear();
        if let Some(mask) = self.mask {
            twin.tokens[..self.context].fill(mask);
        }
    }
}

/// A continuation to be judged: its draws run side by side, and are summed in their order.
pub struct LikelihoodTask {
    asked: Asked,
    draws: Vec<Draw>,
    needs: Vec<Need>,
    /// Requests of the next draws, group after group.
    requests: Vec<Request>,
    /// Sequences of a draw: with guidance two.
    each: usize,
    sum: Likelihood,
    /// Draws that were summed.
    done: usize,
    /// Start of its first forward, until it is reported.
    pub(crate) began: Option<Instant>,
}

impl LikelihoodTask {
    fn new(asked: Asked, draws: Vec<Draw>, tokens: usize, rows: usize) -> Self {
        let (length, each) = (asked.tokens.len(), 1 + usize::from(asked.options.cfg_scale != 0.0));
        let sequence = SequenceNeeds {
            positions: length,
            rows: length,
            group_rows: length * each,
            predictions: length - asked.context,
            judge_width: 1,
            top: asked.top(),
            ..SequenceNeeds::default()
        };
        let side_by_side = (rows / (length * each)).clamp(1, draws.len().max(1));
        let needs = vec![Need { network: 0, sequence }; side_by_side * each];
        let requests = vec![Request::default(); side_by_side.min(draws.len()) * each];
        let sum = Likelihood { tokens, ..Likelihood::default() };
        let mut task = Self { asked, draws, needs, requests, each, sum, done: 0, began: None };
        for place in 0..task.requests.len() / each {
            task.fill(place);
        }
        task
    }

    /// Fills the requests of the group at a place with its draw.
    fn fill(&mut self, place: usize) {
        let Self { asked, draws, needs, requests, each, done, .. } = self;
        let draw = *done + place;
        let side_by_side = needs.len() / *each;
        let group = &mut requests[place * *each..(place + 1) * *each];
        for (index, request) in group.iter_mut().enumerate() {
            request.sequence = draw % side_by_side * *each + index;
        }
        if let Some((request, twin)) = group.split_first_mut() {
            asked.fill(&draws[draw], request);
            if let Some(twin) = twin.first_mut() {
                asked.fill_twin(request, twin);
                request.blend = Some(Blend { scale: asked.options.cfg_scale, with: BlendWith::Behind(1) });
            }
        }
    }

    /// Returns how many draws were made, and of how many.
    pub fn done(&self) -> (usize, usize) {
        (self.done, self.draws.len())
    }

    /// Returns how many draws run side by side.
    pub fn side_by_side(&self) -> usize {
        self.needs.len() / self.each
    }

    /// Returns the sum of the draws so far, without the time that they took.
    pub fn likelihood(&self) -> Likelihood {
        self.sum.clone()
    }
}

impl Work for LikelihoodTask {
    fn needs(&self) -> &[Need] {
        &self.needs
    }

    fn pending(&self) -> Pending<'_> {
        match self.requests.as_slice() {
            [] => Pending::Done,
            requests => Pending::Run { requests, group: self.each },
        }
    }

    fn feed(&mut self, answers: &[Predictions]) {
        self.sum.forwards += answers.len();
        self.sum.flops += answers.iter().map(|answer| answer.cost.flops()).sum::<f64>();
        let fed = answers.len() / self.each;
        for (draw, answer) in self.draws[self.done..].iter().zip(answers.iter().step_by(self.each)) {
            let all: f64 = answer.judged.iter().map(|judged| f64::from(judged.log_probability)).sum();
            self.sum.log_probability += draw.weight * all;
            if self.asked.options.top.is_some() {
                // An autoregressive model has one draw, of all tokens.
                self.sum.logprobs = self.asked.told(answer);
            }
        }
        self.done += fed;
        let left = self.draws.len() - self.done;
        let places = self.requests.len() / self.each;
        self.requests.rotate_left(fed * self.each);
        self.requests.truncate(places.min(left) * self.each);
        for place in places - fed..places.min(left) {
            self.fill(place);
        }
    }

    fn began(&mut self) {
        self.began = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests;
