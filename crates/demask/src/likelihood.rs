//! How probable a continuation of a text is, for multiple choice.
//!
//! An autoregressive model tells it in one forward. A diffusion model tells a lower bound, estimated by masking some of
//! the continuation again and again and asking for the masked tokens: LLaDA's estimator draws how many are masked
//! (specification caches, section 1.2), Dream's how probably each one is (section 1.3). Both spread a group of draws
//! evenly, which costs nothing and calms the estimate.

use std::time::Instant;

use demask_model::Family;
use demask_step::{
    Blend, BlendWith, HeadAsk, Mask, Position, Predictions, SequenceId, SequenceNeeds, SequenceStep, StepPlan, TokenId,
    random::{mix, uniform},
};

use crate::{GenerateError, Model, Network, Prompt, Prompter};

/// Draws that LLaDA's script spreads evenly, and Dream's.
const LLADA_GROUP: usize = 8;
const DREAM_GROUP: usize = 32;
/// Dream's smallest probability of a mask.
const DREAM_LEAST: f64 = 1e-3;

/// How a bound is estimated.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct LikelihoodOptions {
    /// How many times the continuation is masked (LLaDA's and Dream's scripts: 128).
    pub draws: usize,
    /// Scale of classifier-free guidance, for LLaDA.
    pub cfg_scale: f32,
    /// Key of the draws.
    pub seed: u64,
}

impl Default for LikelihoodOptions {
    fn default() -> Self {
        Self { draws: 128, cfg_scale: 0.0, seed: 0 }
    }
}

/// Answers whether to go on.
pub type GoOn<'a> = dyn FnMut() -> bool + 'a;

/// How probable a continuation is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Likelihood {
    /// Its natural-log probability, or a lower bound of it.
    pub log_probability: f64,
    /// Tokens of the continuation.
    pub tokens: usize,
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
    /// What the log-probabilities of the masked tokens weigh.
    weight: f64,
}

impl Prompter {
    /// A prompt and a text behind it as tokens, split where the text begins: spaces at the prompt's end belong to the
    /// text, and the tokens are those of both together.
    pub fn pair(&self, prompt: &Prompt, continuation: &str) -> Result<(Vec<TokenId>, Vec<TokenId>), GenerateError> {
        if let Prompt::Tokens(ids) = prompt {
            return Ok((ids.clone(), self.tokenizer()?.encode(continuation, false)?));
        }
        let special = !matches!(prompt, Prompt::Chat(_));
        let words = self.in_words(prompt)?;
        let context = words.trim_end_matches(' ');
        let encode = |text: &str| Ok::<_, GenerateError>(self.tokenizer()?.encode(text, special)?);
        let (mut all, context) = (encode(&format!("{words}{continuation}"))?, encode(context)?);
        let continuation = all.split_off(context.len().min(all.len()));
        Ok((context, continuation))
    }
}

impl Model {
    /// How probable `continuation` is behind `context`. `go_on` is asked after each forward.
    ///
    /// # Errors
    /// If the model has no such estimate (block-causal ones), an option has no meaning for it, or the tokens cannot be
    /// run.
    pub fn log_likelihood(
        &mut self,
        context: &[TokenId],
        continuation: &[TokenId],
        options: &LikelihoodOptions,
        go_on: &mut GoOn<'_>,
    ) -> Result<Likelihood, GenerateError> {
        let family = self.spec().family;
        check(&self.prompter, context, continuation, options)?;
        let length = continuation.len();
        let mut dice = Dice(mix(options.seed));
        let draws = match family {
            Family::Dream => dream_draws(length, options.draws, &mut dice),
            _ if self.facts().mask == Mask::Causal => vec![Draw { masked: (0..length).collect(), weight: 1.0 }],
            _ => llada_draws(length, options.draws, &mut dice),
        };
        let mut tokens = [context, continuation].concat();
        if family == Family::Dream {
            // An end that is never masked stands behind what Dream judges.
            tokens.extend(self.eos_ids()?);
        }
        let mask = self.facts().mask_id.filter(|_| self.facts().mask == Mask::Full);
        let asked = Asked { context: context.len(), tokens, mask, attention: self.facts().mask, options: *options };
        let network = self.engine.network_mut();
        let sequences = Sequences::open(network, &asked)?;
        let answer = sequences.ask(network, &asked, &draws, go_on);
        sequences.close(network);
        answer.map(|answer| Likelihood { tokens: length, ..answer })
    }
}

/// Refuses what cannot be estimated.
fn check(
    model: &Prompter,
    context: &[TokenId],
    continuation: &[TokenId],
    options: &LikelihoodOptions,
) -> Result<(), GenerateError> {
    let (facts, family) = (model.facts(), model.spec().family);
    if matches!(facts.mask, Mask::BlockCausal { .. }) {
        return Err(GenerateError::NoLikelihood { family: family.to_string() });
    }
    if continuation.is_empty() || context.is_empty() && facts.shift > 0 {
        return Err(GenerateError::EmptyLikelihood);
    }
    if options.draws == 0 {
        return Err(GenerateError::Meaningless { option: "a likelihood", why: "without draws" });
    }
    if options.cfg_scale != 0.0 && family != Family::Llada {
        let why = "for the likelihood of models that are not LLaDA";
        return Err(GenerateError::Meaningless { option: "--cfg-scale", why });
    }
    let end = usize::from(family == Family::Dream);
    let (prompt, gen_length, available) = (context.len(), continuation.len() + end, facts.context);
    if prompt + gen_length > available {
        return Err(GenerateError::TooLong { prompt, gen_length, context: available });
    }
    let mut tokens = context.iter().chain(continuation);
    match tokens.find(|&&token| token as usize >= facts.vocab) {
        Some(&token) => Err(GenerateError::TokenOutOfRange { token, vocabulary: facts.vocab }),
        None => Ok(()),
    }
}

/// Random numbers one after the other.
struct Dice(u64);

impl Dice {
    /// In (0, 1).
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

/// What is asked of the network.
struct Asked {
    /// Tokens before the continuation.
    context: usize,
    tokens: Vec<TokenId>,
    /// What hides a token; none for models that see no further than it.
    mask: Option<TokenId>,
    attention: Mask,
    options: LikelihoodOptions,
}

/// One draw as a step.
#[derive(Default)]
struct Question {
    tokens: Vec<TokenId>,
    plan: StepPlan,
    ask: HeadAsk,
}

impl Question {
    fn of(asked: &Asked, draw: &Draw) -> Self {
        let position = |index: &usize| (asked.context + index) as Position;
        let mut question = Self { tokens: asked.tokens.clone(), ..Self::default() };
        question.plan.live.set_range(0..asked.tokens.len() as Position);
        question.plan.visible = asked.tokens.len() as Position;
        question.plan.mask = asked.attention;
        question.plan.predict = draw.masked.iter().map(position).collect();
        question.ask.judge_width = 1;
        question.ask.judge = draw.masked.iter().map(|index| asked.tokens[asked.context + index]).collect();
        if let Some(mask) = asked.mask {
            draw.masked.iter().for_each(|index| question.tokens[asked.context + index] = mask);
        }
        question
    }

    /// The same without the context, which asks for nothing.
    fn unconditional(&self, asked: &Asked) -> Self {
        let mut twin = Self { tokens: self.tokens.clone(), plan: self.plan.clone(), ask: HeadAsk::default() };
        twin.plan.predict.clear();
        if let Some(mask) = asked.mask {
            twin.tokens[..asked.context].fill(mask);
        }
        twin
    }
}

/// Sequences that draws run in, some at a time.
struct Sequences {
    /// One for each draw of a forward, or with guidance two.
    open: Vec<SequenceId>,
    /// Sequences of one draw.
    each: usize,
}

impl Sequences {
    /// As many as fit into one forward.
    fn open(network: &mut dyn Network, asked: &Asked) -> Result<Self, GenerateError> {
        let (length, each) = (asked.tokens.len(), 1 + usize::from(asked.options.cfg_scale != 0.0));
        network.reserve_rows(length * each)?;
        let needs = SequenceNeeds {
            positions: length,
            rows: length,
            predictions: length - asked.context,
            judge_width: 1,
            ..SequenceNeeds::default()
        };
        let mut sequences = Self { open: Vec::new(), each };
        let wanted = network.row_capacity() / (length * each);
        while sequences.open.len() < wanted.clamp(1, asked.options.draws) * each {
            match network.open(&needs) {
                Ok(sequence) => sequences.open.push(sequence),
                // Fewer do as well.
                Err(_) if sequences.open.len() >= each => break,
                Err(error) => {
                    sequences.close(network);
                    return Err(error.into());
                }
            }
        }
        Ok(sequences)
    }

    fn close(self, network: &mut dyn Network) {
        self.open.into_iter().for_each(|sequence| network.close(sequence));
    }

    /// Sums up the weighted log-probabilities of all draws.
    fn ask(
        &self,
        network: &mut dyn Network,
        asked: &Asked,
        draws: &[Draw],
        go_on: &mut GoOn<'_>,
    ) -> Result<Likelihood, GenerateError> {
        let mut sum = Likelihood::default();
        // A draw that masks nothing says nothing.
        let draws: Vec<_> = draws.iter().filter(|draw| !draw.masked.is_empty()).collect();
        for draws in draws.chunks(self.open.len() / self.each) {
            let questions = draws.iter().flat_map(|draw| {
                let question = Question::of(asked, draw);
                let twin = (self.each > 1).then(|| question.unconditional(asked));
                [Some(question), twin].into_iter().flatten()
            });
            let questions: Vec<_> = questions.collect();
            let steps: Vec<_> = questions.iter().enumerate().map(|(index, one)| self.step(asked, index, one)).collect();
            let mut answers = vec![Predictions::default(); steps.len()];
            let started = Instant::now();
            network.step(&steps, &mut answers)?;
            sum.seconds += started.elapsed().as_secs_f64();
            sum.forwards += answers.len();
            sum.flops += answers.iter().map(|answer| answer.cost.flops).sum::<f64>();
            for (draw, answer) in draws.iter().zip(answers.iter().step_by(self.each)) {
                let all: f64 = answer.judged.iter().map(|judged| f64::from(judged.log_probability)).sum();
                sum.log_probability += draw.weight * all;
            }
            if !go_on() {
                return Err(GenerateError::Interrupted);
            }
        }
        Ok(sum)
    }

    fn step<'a>(&self, asked: &Asked, index: usize, question: &'a Question) -> SequenceStep<'a> {
        let guided = self.each > 1 && index.is_multiple_of(self.each);
        SequenceStep {
            sequence: self.open[index],
            tokens: &question.tokens,
            plan: &question.plan,
            ask: &question.ask,
            blend: guided.then_some(Blend { scale: asked.options.cfg_scale, with: BlendWith::Step(index + 1) }),
        }
    }
}

#[cfg(test)]
mod tests;
