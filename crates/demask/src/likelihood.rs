//! Likelihood of a continuation of a text, for multiple choice.
//!
//! An autoregressive model computes it in one forward. A diffusion model has a lower bound, estimated by masking some
//! of the continuation again and again and asking for the masked tokens: LLaDA's estimator draws how many are masked
//! (specs/caches.md#1.2), Dream's how probably each one is (specs/caches.md#1.3). Both spread a group of draws evenly,
//! which costs nothing and calms the estimate.
//!
//! Continuations that are compared share what they have in common: a canvas that several draws or several of them ask for runs
//! once, and an autoregressive model reads a context once. What all of them begin with, it shares with other requests too.
//!
//! The choices of a decision are continuations without draws: their tokens are judged one after the other, in slots that are
//! masks until a token is written there.

mod draws;
mod plan;

use demask_checkpoint::MaskDraws;
use demask_decode::{Layout, ModelFacts};
use demask_engine::cache_salt;
use demask_step::{
    Blend, BlendWith, BlockRules, ForwardInput, Job, Mask, Pending, Position, Predictions, Prefix, SequenceLimits,
    SequenceSpec, TokenId,
};

pub use self::plan::Likelihood;
pub(crate) use self::plan::{Slot, Text};
use self::{
    draws::{Dice, Draw, dream_draws, llada_draws},
    plan::{Canvas, Pass, Plan},
};
use crate::{Error, ModelInfo, Options, Prompt, TokenLogprob};

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

impl ModelInfo {
    /// Returns a prompt and a text after it as tokens, split where the text begins: spaces at the prompt's end belong to the
    /// text, and the tokens are those of both together.
    pub fn pair(&self, prompt: &Prompt, continuation: &str) -> Result<(Vec<TokenId>, Vec<TokenId>), Error> {
        if let Prompt::Tokens(ids) = prompt {
            return Ok((ids.clone(), self.tokenizer()?.encode(continuation, false)?));
        }
        let (mut all, context) = if let Prompt::Chat(chat) = prompt {
            let options = Options::default();
            let mut words = self.rendered(chat, &options)?;
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

impl ModelInfo {
    /// Gets continuations ready to be judged, each after its context. Draws run side by side as far as `rows` rows go.
    ///
    /// # Errors
    /// If the model has no such estimate (block-causal ones), an option has no meaning for it or is out of range, or the
    /// tokens cannot be run.
    pub fn likelihoods(
        &self,
        pairs: &[(Vec<TokenId>, Vec<TokenId>)],
        options: &LikelihoodOptions,
        rows: usize,
    ) -> Result<LikelihoodTask, Error> {
        let (conventions, facts) = (self.family().decoding().likelihood, self.facts());
        let end = if conventions.ends { self.eos_ids()? } else { Vec::new() };
        let mut texts = Vec::with_capacity(pairs.len());
        for (context, continuation) in pairs {
            check(self, context, continuation, options)?;
            let judged = context.len()..context.len() + continuation.len();
            // An end that is never masked stands behind what is judged.
            texts.push(Text { tokens: [context, continuation, &end[..]].concat(), judged });
        }
        let plan = if facts.mask == Mask::Causal {
            Plan::reading(&texts, facts.shift as usize)
        } else {
            let draws: Vec<_> = texts.iter().map(|text| drawn(conventions.draws, text.judged.len(), options)).collect();
            Plan::hiding(&texts, &draws)
        };
        let options = LikelihoodOptions { top: self.alternatives("top", options.top)?, ..*options };
        Ok(LikelihoodTask::new(ScoringInput::new(facts, texts, options), plan, rows))
    }

    /// Gets the choices of slots ready to be judged, each a text that has it in its slot. A model that sees everything has all
    /// slots in each text, and one that does not has its slot at a text's end, up to whole blocks.
    pub(crate) fn chained(&self, texts: Vec<Text>, slots: &[Slot], rows: usize) -> LikelihoodTask {
        let facts = self.facts();
        let plan = if facts.mask == Mask::Causal {
            Plan::reading(&texts, facts.shift as usize)
        } else {
            Plan::chaining(&texts, slots, |slot, position| pass(facts, &texts[slot.texts.start], slot, position))
        };
        LikelihoodTask::new(ScoringInput::new(facts, texts, LikelihoodOptions::default()), plan, rows)
    }
}

/// The blocks in which a model decodes so many positions from a start on, the last one up to its end.
pub(crate) fn whole_blocks(facts: &ModelFacts, start: usize, length: usize) -> Layout {
    Layout::blocks_of(start, length, facts.mask, BlockRules { ends_short: false, ..facts.blocks })
}

/// The forward that predicts a position of a slot, as one that decodes the slot has it.
fn pass(facts: &ModelFacts, text: &Text, slot: &Slot, position: usize) -> Pass {
    if facts.mask == Mask::Full {
        return Pass { rows: 0..text.tokens.len(), attention: Mask::Full, shift: None };
    }
    let layout = whole_blocks(facts, slot.places.start, slot.places.len());
    let block = layout.block(layout.block_of(position as Position));
    if facts.blocks.seeds && block.start as usize == position && position > 0 {
        return Pass { rows: 0..position, attention: layout.attention().stored(), shift: Some(1) };
    }
    Pass { rows: 0..block.end as usize, attention: layout.attention().in_block(block.start), shift: None }
}

/// The draws of a continuation of this length; one that masks nothing says nothing.
fn drawn(by: MaskDraws, length: usize, options: &LikelihoodOptions) -> Vec<Draw> {
    let mut dice = Dice::new(options.seed);
    let mut draws = match by {
        MaskDraws::ByProbability => dream_draws(length, options.draws, &mut dice),
        MaskDraws::ByCount => llada_draws(length, options.draws, &mut dice),
    };
    draws.retain(|draw| !draw.masked.is_empty());
    draws
}

/// Refuses what cannot be estimated.
fn check(
    model: &ModelInfo,
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

/// Counts the leading tokens that all texts have.
pub(crate) fn common<'t>(mut texts: impl Iterator<Item = &'t [TokenId]>) -> usize {
    let Some(first) = texts.next() else { return 0 };
    let with = |other: &[TokenId]| first.iter().zip(other).take_while(|(one, other)| one == other).count();
    texts.map(with).min().unwrap_or(first.len())
}

/// Texts to judge, and the facts of the network by which they are judged.
#[derive(Debug, Clone)]
struct ScoringInput {
    texts: Vec<Text>,
    /// Token that hides a token; none for models that see no further than it.
    mask: Option<TokenId>,
    attention: Mask,
    /// Positions between a row and the token that it predicts.
    shift: usize,
    options: LikelihoodOptions,
}

impl ScoringInput {
    fn new(facts: &ModelFacts, texts: Vec<Text>, options: LikelihoodOptions) -> Self {
        let mask = facts.mask_id.filter(|_| facts.mask != Mask::Causal);
        Self { texts, mask, attention: facts.mask, shift: facts.shift as usize, options }
    }

    /// Alternatives of each token.
    fn top(&self) -> usize {
        self.options.top.unwrap_or(0)
    }

    /// Fills a canvas's request.
    fn fill(&self, canvas: &Canvas, request: &mut ForwardInput) {
        let (Canvas { text, pass, hidden, predict, .. }, plan) = (canvas, &mut request.plan);
        let rows = &pass.rows;
        request.tokens.clear();
        request.tokens.extend_from_slice(&self.texts[*text].tokens[rows.clone()]);
        plan.clear();
        plan.query.set_range(rows.start as Position..rows.end as Position);
        plan.kv_len = rows.end as Position;
        plan.mask = pass.attention;
        plan.shift = pass.shift;
        for &position in predict {
            plan.predict.push(position as Position);
        }
        request.ask.wanted.score_width = canvas.width();
        request.ask.wanted.top = self.top();
        request.ask.score.clear();
        canvas.judged(&mut request.ask.score);
        if let Some(mask) = self.mask {
            for position in predict.iter().copied().chain(hidden.clone()) {
                // The row behind all rows is predicted where a block begins.
                if let Some(token) = request.tokens.get_mut(position) {
                    *token = mask;
                }
            }
        }
    }

    /// Fills the request of guidance's twin: the same without the context, and nothing of the head.
    fn fill_twin(&self, canvas: &Canvas, request: &ForwardInput, twin: &mut ForwardInput) {
        twin.tokens.clone_from(&request.tokens);
        twin.plan.clone_from(&request.plan);
        twin.plan.predict.clear();
        if let Some(mask) = self.mask {
            twin.tokens[..self.texts[canvas.text].judged.start].fill(mask);
        }
    }
}

/// Continuations to be judged: their canvases run side by side, and are summed in the order of the draws.
pub struct LikelihoodTask {
    input: ScoringInput,
    plan: Plan,
    needs: Vec<SequenceSpec>,
    /// Requests of the next canvases, group after group.
    requests: Vec<ForwardInput>,
    /// Sequences of a canvas: with guidance two.
    each: usize,
    found: Vec<Likelihood>,
    /// Canvases that have run.
    done: usize,
    /// Leading tokens that all texts have, of which K and V depend on these alone: none unless a text is read.
    shared: usize,
    /// Leading tokens whose rows predict nothing that is judged.
    unjudged: usize,
    salt: u64,
}

impl LikelihoodTask {
    fn new(asked: ScoringInput, plan: Plan, rows: usize) -> Self {
        let each = 1 + usize::from(asked.options.cfg_scale != 0.0);
        let (texts, canvases) = (&asked.texts, &plan.canvases);
        let length = texts.iter().map(|text| text.tokens.len()).max().unwrap_or(1);
        let limits = SequenceLimits {
            positions: length,
            rows: length,
            group_rows: length * each,
            predictions: canvases.iter().map(|canvas| canvas.predict.len()).max().unwrap_or(0),
            score_width: plan.width(),
            top: asked.top(),
            ..SequenceLimits::default()
        };
        // A text that is read goes on from where the one before it has come to.
        let apart = if asked.attention == Mask::Causal { 1 } else { canvases.len().max(1) };
        let side_by_side = (rows / (length * each)).clamp(1, apart);
        let needs = vec![SequenceSpec { network: 0, limits }; side_by_side * each];
        let requests = vec![ForwardInput::default(); side_by_side.min(canvases.len()) * each];
        let found =
            texts.iter().map(|text| Likelihood { tokens: text.judged.len(), ..Likelihood::default() }).collect();
        let shared =
            if asked.attention == Mask::Causal { common(texts.iter().map(|text| &text.tokens[..])) } else { 0 };
        let unjudged = texts.iter().map(|text| text.judged.start.saturating_sub(asked.shift)).min().unwrap_or(0);
        let mut task = Self {
            input: asked,
            plan,
            needs,
            requests,
            each,
            found,
            done: 0,
            shared,
            unjudged: unjudged.min(shared),
            salt: 0,
        };
        for place in 0..task.requests.len() / each {
            task.fill(place);
        }
        task
    }

    /// Fills the requests of the group at a place with its canvas.
    fn fill(&mut self, place: usize) {
        let Self { input: asked, plan, needs, requests, each, done, .. } = self;
        let (index, side_by_side) = (*done + place, needs.len() / *each);
        let (canvas, group) = (&plan.canvases[index], &mut requests[place * *each..(place + 1) * *each]);
        for (twin, request) in group.iter_mut().enumerate() {
            request.sequence = index % side_by_side * *each + twin;
        }
        if let Some((request, twin)) = group.split_first_mut() {
            asked.fill(canvas, request);
            if let Some(twin) = twin.first_mut() {
                asked.fill_twin(canvas, request, twin);
                request.blend = Some(Blend { scale: asked.options.cfg_scale, with: BlendWith::Behind(1) });
            }
        }
    }

    /// Lets it share K and V of what its texts begin with among requests of the same salt alone.
    #[must_use]
    pub fn salted(self, salt: Option<&str>) -> Self {
        Self { salt: salt.map_or(0, cache_salt), ..self }
    }

    /// The leading tokens of every text.
    fn prefix(&self, length: usize) -> Prefix<'_> {
        let tokens = self.input.texts.first().map_or(&[][..], |text| &text.tokens[..length]);
        Prefix { tokens, mask: self.input.attention, salt: self.salt }
    }

    /// Returns the tokens of all forwards together, each as often as it is computed.
    pub(crate) fn tokens(&self) -> usize {
        self.plan.canvases.iter().map(|canvas| canvas.pass.rows.len()).sum()
    }

    /// Returns how many canvases run side by side.
    pub fn side_by_side(&self) -> usize {
        self.needs.len() / self.each
    }

    /// Returns the likelihoods so far, of a task that took this long: each has the part of its forwards.
    pub fn likelihoods(&self, seconds: f64) -> Vec<Likelihood> {
        let all: f64 = self.found.iter().map(|likelihood| likelihood.flops).sum();
        let part = |flops: f64| if all > 0.0 { flops / all } else { 0.0 };
        let timed = |one: &Likelihood| Likelihood { seconds: seconds * part(one.flops), ..one.clone() };
        self.found.iter().map(timed).collect()
    }
}

impl Job for LikelihoodTask {
    fn needs(&self) -> &[SequenceSpec] {
        &self.needs
    }

    fn pending(&self) -> Pending<'_> {
        match self.requests.as_slice() {
            [] => Pending::Done,
            requests => Pending::Run { requests, group: self.each },
        }
    }

    fn feed(&mut self, answers: &[Predictions]) {
        let fed = answers.len() / self.each;
        for group in answers.chunks(self.each) {
            self.take(group);
            self.done += 1;
        }
        let left = self.plan.canvases.len() - self.done;
        let places = self.requests.len() / self.each;
        self.requests.rotate_left(fed * self.each);
        self.requests.truncate(places.min(left) * self.each);
        for place in places - fed..places.min(left) {
            self.fill(place);
        }
    }

    fn progress(&self) -> Option<(usize, usize)> {
        Some((self.done, self.plan.canvases.len()))
    }

    fn prefix_tokens(&self, _sequence: usize) -> Prefix<'_> {
        self.prefix(self.unjudged)
    }

    fn opened(&mut self, filled: &[Position]) {
        if let (Some(&filled @ 1..), Some(first)) = (filled.first(), self.plan.canvases.first_mut()) {
            first.pass.rows.start = filled as usize;
            self.found[first.text].cached_tokens = filled as usize;
            self.fill(0);
        }
    }

    /// The first forward writes what all texts begin with, and each later one begins where a text parts from another.
    fn reusable(&self, _sequence: usize) -> Prefix<'_> {
        let written = self.plan.canvases.first().filter(|_| self.done > 0).map_or(0, |first| first.pass.rows.end);
        self.prefix(written.min(self.shared))
    }
}

impl From<LikelihoodTask> for demask_engine::Request {
    fn from(task: LikelihoodTask) -> Self {
        Self::new(task)
    }
}

impl LikelihoodTask {
    /// Takes the predictions of the next canvas's forward.
    fn take(&mut self, group: &[Predictions]) {
        let Self { input: asked, plan, found, done, .. } = self;
        let first = &mut found[plan.canvases[*done].text];
        first.forwards += group.len();
        first.flops += group.iter().map(|answer| answer.cost.flops()).sum::<f64>();
        let Some(answer) = group.first() else { return };
        let (top, keeps) = (asked.top(), asked.options.top.is_some());
        plan.add(*done, answer, &mut |told| {
            if keeps {
                let Likelihood { logprobs, .. } = &mut found[told.text];
                let text = &asked.texts[told.text];
                // A text's tokens are told in their order.
                let token = text.tokens[text.judged.start + logprobs.len()];
                let best = answer.top.get(told.place * top..(told.place + 1) * top).unwrap_or(&[]);
                logprobs.push(TokenLogprob::judged(token, told.log_probability, best));
            }
        });
        plan.settle(found);
    }
}

#[cfg(test)]
mod tests;
