//! Analysis of paths: the smallest number of forwards for an answer, beside the number that FreeDave needs.
//!
//! FreeDave speaks of the shortest feasible path and never measures it. Its Lemma 1, by which enough drafts find that
//! path, does not hold as stated (specs/freedave.md#4.1): the largest verified jump is not always the best one, so that
//! more drafts can need more forwards. `measure` finds the path, and what FreeDave needs with several numbers of
//! drafts, all without a cache.

mod figures;
mod search;

use std::collections::BTreeSet;

use demask::{Error, ModelByHand, Options, Prompt};
use demask_decode::{CacheSpec, DecoderSpec, Event, Layout};
use demask_figures::{Figure, short};
use demask_step::{
    HeadAsk, Job, Network, Position, Positions, Predictions, SequenceId, SequenceLimits, SequenceStep, StepPlan,
    TokenId,
};
use demask_terminal::words::counted;
use serde_json::{Value, json};

use super::{Findings, decode};
use search::{Goal, Guess, along, beam};

/// Numbers of drafts that are tried; `auto` where the decoder knows it.
const DRAFTS: [&str; 7] = ["1", "2", "4", "8", "16", "32", "auto"];

/// Forwards of one answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OfPrompt {
    /// Tokens of the answer.
    tokens: usize,
    /// Records whether every decoder came to the tokens of static decoding.
    identical: bool,
    /// Forwards by way, as in [`Paths::ways`].
    forwards: Vec<usize>,
}

/// Findings about a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Paths {
    /// The model.
    pub model: String,
    /// Device of the runs.
    pub device: String,
    /// Canvases that the beam search runs at each depth.
    pub width: usize,
    /// Ways to the answer.
    ways: Vec<Way>,
    prompts: Vec<OfPrompt>,
}

/// A way to the tokens of static decoding.
#[derive(Debug, Clone, PartialEq)]
enum Way {
    /// Static decoding.
    Static,
    /// FreeDave with so many drafts.
    FreeDave(String),
    /// The shortest along static decoding: within blocks, or across them.
    Along {
        /// Records whether jumps may lead over the end of a block.
        across: bool,
    },
    /// Through any canvases, as far as the beam search finds.
    Any,
}

impl Paths {
    /// Creates an empty measurement.
    pub fn new(model: &str, device: &str, width: usize) -> Self {
        let known = |drafts: &&str| format!("freedave:d={drafts}").parse::<DecoderSpec>().is_ok();
        let freedave = DRAFTS.into_iter().filter(known).map(|drafts| Way::FreeDave(drafts.to_owned()));
        let bounds = [Way::Along { across: false }, Way::Along { across: true }, Way::Any];
        Self {
            model: model.to_owned(),
            device: device.to_owned(),
            width,
            ways: std::iter::once(Way::Static).chain(freedave).chain(bounds).collect(),
            prompts: Vec::new(),
        }
    }

    /// Name of a way.
    fn name(&self, way: &Way) -> String {
        match way {
            Way::Static => "static".to_owned(),
            Way::FreeDave(drafts) => format!("freedave:d={drafts}"),
            Way::Along { across: false } => "shortest along static, in blocks".to_owned(),
            Way::Along { across: true } => "shortest along static, across blocks".to_owned(),
            Way::Any => format!("any order, beam of {}", self.width),
        }
    }

    /// Forwards by prompt.
    fn of(&self, way: usize) -> impl Iterator<Item = usize> + '_ {
        self.prompts.iter().map(move |prompt| prompt.forwards[way])
    }

    fn mean(&self, way: usize) -> f64 {
        self.of(way).sum::<usize>() as f64 / self.prompts.len().max(1) as f64
    }

    /// Measures a prompt and adds it. `go_on` is asked between forwards.
    pub fn measure(
        &mut self,
        model: &mut ModelByHand,
        prompt: &Prompt,
        options: &Options,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        let mut search = Search::open(model, prompt, options)?;
        let found = search.run(model, self.width, go_on);
        model.network_mut().close(search.sequence);
        let (along, any) = found?;
        let (mut forwards, mut identical) = (Vec::new(), true);
        for way in &self.ways {
            forwards.push(match way {
                Way::Static => search.forwards,
                Way::FreeDave(drafts) => {
                    if !go_on() {
                        return Err(Error::Interrupted);
                    }
                    let decoder = format!("freedave:d={drafts}").parse()?;
                    let options = Options { decoder: Some(decoder), ..uncached(options) };
                    let session = model.session(prompt, &options)?;
                    let session = model.decode(session)?;
                    identical &= session.output().tokens == search.tokens;
                    session.counts().nfe
                }
                Way::Along { across } => {
                    if *across {
                        along.across
                    } else {
                        along.in_blocks
                    }
                }
                Way::Any => any,
            });
        }
        self.prompts.push(OfPrompt { tokens: search.tokens.len(), identical, forwards });
        Ok(())
    }
}

/// The options without a cache.
fn uncached(options: &Options) -> Options {
    Options { cache: Some(CacheSpec::default()), ..options.clone() }
}

/// A canvas whose masks any forward may predict.
struct Search {
    /// Result of static decoding, its forwards, and the tokens of its answer.
    goal: Goal,
    forwards: usize,
    tokens: Vec<TokenId>,
    /// The canvas before anything is decoded.
    canvas: Vec<TokenId>,
    masked: BTreeSet<Position>,
    layout: Layout,
    ask: HeadAsk,
    sequence: SequenceId,
}

impl Search {
    /// Decodes a prompt with static decoding, and opens a sequence for the search.
    fn open(model: &mut ModelByHand, prompt: &Prompt, options: &Options) -> Result<Self, Error> {
        let options = Options { decoder: Some(DecoderSpec::default()), ..uncached(options) };
        let session = model.session(prompt, &options)?;
        let (canvas, layout) = (session.canvas().to_vec(), session.layout().clone());
        let ask = session.pending().requests().first().map(|request| request.ask.clone()).unwrap_or_default();
        let mut session = decode(model, session, &mut |_| Ok(()))?;
        let tokens = session.output().tokens;
        let mut goal = Goal { end: (layout.response() + tokens.len()) as Position, ..Goal::default() };
        for event in session.events() {
            match event {
                Event::Commit { position, token, .. } => goal.commits.push((position, token)),
                Event::Step { .. } if goal.sizes.last().copied().unwrap_or(0) < goal.commits.len() => {
                    goal.sizes.push(goal.commits.len());
                }
                _ => {}
            }
        }
        let mask = model.info().facts().mask_id;
        let is_mask = |position: &usize| Some(canvas[*position]) == mask;
        let masked = (layout.response()..canvas.len()).filter(is_mask).map(|position| position as Position).collect();
        let rows = canvas.len();
        let needs = SequenceLimits { positions: rows, rows, predictions: rows, ..SequenceLimits::default() };
        let sequence = model.network_mut().open(&needs)?;
        Ok(Self { goal, forwards: session.counts().nfe, tokens, canvas, masked, layout, ask, sequence })
    }

    /// Returns the shortest ways along static decoding, and the fewest forwards that the beam search finds.
    fn run(
        &mut self,
        model: &mut ModelByHand,
        width: usize,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(search::Along, usize), Error> {
        let mut predict = |state: &[bool]| {
            if !go_on() {
                return Err(Error::Interrupted);
            }
            self.predict(model.network_mut(), state)
        };
        let along = along(&self.goal, &mut predict)?;
        let any = beam(&self.goal, width, along.across, &mut predict)?;
        Ok((along, any))
    }

    /// Predicts all masks of a canvas on which some commits stand.
    fn predict(&self, network: &mut (impl Network + ?Sized), state: &[bool]) -> Result<Vec<Guess>, Error> {
        let (mut tokens, mut masked) = (self.canvas.clone(), self.masked.clone());
        for (&(position, token), _) in self.goal.commits.iter().zip(state).filter(|(_, stands)| **stands) {
            tokens[position as usize] = token;
            masked.remove(&position);
        }
        let all = tokens.len() as Position;
        let mut plan = StepPlan { kv_len: all, mask: self.layout.attention(), ..StepPlan::default() };
        plan.query.set_range(0..all);
        plan.predict = masked.iter().copied().fold(Positions::new(), |mut set, position| {
            set.push(position);
            set
        });
        let unmasked = (self.masked.len() - masked.len()) as u32;
        let ask = HeadAsk { states: vec![unmasked], ..self.ask.clone() };
        let step = SequenceStep { sequence: self.sequence, tokens: &tokens, plan: &plan, ask: &ask, blend: None };
        let mut out = [Predictions::default()];
        network.check(std::slice::from_ref(&step))?;
        network.step(&[step], &mut out).map_err(Error::Device)?;
        let [out] = out;
        let guess = |(index, position): (usize, Position)| Guess {
            position,
            block: self.layout.block_of(position),
            token: out.tokens[index],
            confidence: out.confidence[index],
        };
        Ok(out.positions.iter().enumerate().map(guess).collect())
    }
}

impl Findings for Paths {
    const NAME: &'static str = "path";

    fn title(&self) -> String {
        format!("Shortest ways to the tokens of static decoding: {}", self.model)
    }

    fn about(&self) -> String {
        let identical = self.prompts.iter().filter(|prompt| prompt.identical).count();
        format!(
            "On {}. {}, without a cache; in {identical} of them all decoders ended with static decoding's tokens. Ways in any order are found by \
             a beam search of width {}, which is an upper bound.",
            self.device,
            counted(self.prompts.len(), "prompt"),
            self.width
        )
    }

    fn figures(&self) -> Vec<Figure> {
        figures::figures(self)
    }

    fn table(&self) -> Vec<Vec<String>> {
        let header = ["way", "forwards", "least", "most", "tokens/forward", "static / it"];
        let tokens = self.prompts.iter().map(|prompt| prompt.tokens).sum::<usize>();
        let rows = self.ways.iter().enumerate().map(|(index, way)| {
            let end = |bound: Option<usize>| bound.map(|bound| bound.to_string()).unwrap_or_default();
            let forwards = self.of(index).sum::<usize>().max(1) as f64;
            vec![
                self.name(way),
                short(self.mean(index)),
                end(self.of(index).min()),
                end(self.of(index).max()),
                short(tokens as f64 / forwards),
                format!("{:.2}", self.mean(0) / self.mean(index).max(f64::MIN_POSITIVE)),
            ]
        });
        std::iter::once(header.map(str::to_owned).to_vec()).chain(rows).collect()
    }

    fn json(&self) -> Value {
        let ways = self.ways.iter().enumerate().map(|(index, way)| {
            json!({
                "way": self.name(way),
                "mean_forwards": self.mean(index),
                "forwards": self.of(index).collect::<Vec<_>>(),
            })
        });
        json!({
            "model": self.model,
            "device": self.device,
            "width": self.width,
            "identical": self.prompts.iter().all(|prompt| prompt.identical),
            "tokens": self.prompts.iter().map(|prompt| prompt.tokens).collect::<Vec<_>>(),
            "ways": ways.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests;
