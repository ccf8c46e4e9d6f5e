//! Sessions that run without a network: something stands in for it and predicts at once.
//!
//! The plans are those of the session itself, so that what they cost is known without weights: [`Assumed`] predicts what
//! one assumes about a model, [`Recorded`](crate::replay::Recorded) what another run recorded.

use demask::internals::{
    ModelInfo,
    decode::Session,
    step::{
        ForwardInput, HeadAsk, Job, Judged, Lanes, Mask, NO_TOKEN, Pending, Positions, Predictions, TokenId, random,
    },
};

use crate::replay::ReplayError;

/// A stand-in for networks.
pub trait StandIn {
    /// Returns what a network would predict.
    ///
    /// # Errors
    /// If it has no predictions for such a request.
    fn answer(&mut self, asked: &Rehearsed<'_>, request: &ForwardInput) -> Result<Predictions, ReplayError>;
}

/// A group of requests of a rehearsed session.
#[derive(Debug, Clone, Copy)]
pub struct Rehearsed<'a> {
    /// Index of the feed of the session, from 0.
    pub step: usize,
    /// Index of the network: 0 is the model, 1 its guide.
    pub network: usize,
    /// The requests, which would run in one forward.
    pub requests: &'a [ForwardInput],
    /// Records whether the sequence of each request keeps increments.
    pub increments: &'a [bool],
}

/// Runs a session to its end. `see` sees each group with its predictions, and may add what they cost.
///
/// # Errors
/// If the stand-in has no answer.
pub fn rehearse(
    session: &mut Session,
    stand_in: &mut dyn StandIn,
    see: &mut dyn FnMut(&Rehearsed<'_>, &mut [Predictions]),
) -> Result<(), ReplayError> {
    let needs = session.needs().to_vec();
    let mut step = 0;
    while let Pending::Run { requests, .. } = session.pending() {
        let of = |request: &ForwardInput| needs.get(request.sequence);
        let network = requests.first().and_then(of).map_or(0, |need| need.network);
        let increments: Vec<bool> =
            requests.iter().map(|request| of(request).is_some_and(|need| need.sequence.increments)).collect();
        let asked = Rehearsed { step, network, requests, increments: &increments };
        let answers: Result<Vec<_>, _> = requests.iter().map(|request| stand_in.answer(&asked, request)).collect();
        let mut answers = answers?;
        see(&asked, &mut answers);
        session.feed(&answers);
        session.events().for_each(drop);
        step += 1;
    }
    Ok(())
}

/// Describes the plans of a group, a line each. The guide's sequences follow the `own` ones of the model.
fn lines(asked: &Rehearsed<'_>, own: usize) -> impl Iterator<Item = String> {
    asked.requests.iter().map(move |request| {
        let (whose, index) = match request.sequence.checked_sub(own) {
            Some(index) => ("guide", index),
            None => ("sequence", request.sequence),
        };
        format!("step {} {whose} {index}: {}", asked.step, request.plan)
    })
}

/// Writes a line for the rules of the decoder and the cache policy, if they have any, for each step that `session` would run with a stand-in, and
/// for their sum. `see` as for [`rehearse`]. Steps that depend on predictions may differ in a real run.
///
/// # Errors
/// As [`rehearse`].
pub fn explain(
    session: &mut Session,
    stand_in: &mut dyn StandIn,
    tell: &mut dyn FnMut(String),
    see: &mut dyn FnMut(&Rehearsed<'_>, &mut [Predictions]),
) -> Result<(), ReplayError> {
    let own = session.needs().iter().filter(|need| need.network == 0).count();
    if let Some(rule) = session.decoder_rule() {
        tell(format!("decoder: {rule}"));
    }
    if let Some(rule) = session.cache_rule() {
        tell(format!("cache: {rule}"));
    }
    rehearse(session, stand_in, &mut |asked, answers| {
        lines(asked, own).for_each(&mut *tell);
        see(asked, answers);
    })?;
    let counts = session.counts();
    tell(format!("{} forwards, {} NFE, {} rows", counts.forwards, counts.nfe, counts.rows));
    Ok(())
}

/// A model as one assumes it to be: what it predicts is cut into pieces, each of which can be taken in one forward.
///
/// Of each forward's open positions the first is sure and right, and so are those behind it up to the next one that is
/// *new*; the others are unsure, and wrong as a draft. Whether a position is new is drawn once, with a probability of 1 -
/// `acceptance`. So a forward takes 1 / (1 - `acceptance`) tokens on average where nothing else limits it, whether it is a
/// threshold, a chain of drafts or a guide that decides. With 0, each forward takes as few as the decoder allows.
#[derive(Debug, Clone, Copy)]
pub struct Assumed {
    /// The token that is right everywhere, and one that is not.
    tokens: [TokenId; 2],
    acceptance: f64,
    seed: u64,
}

impl Assumed {
    /// Makes one that predicts ordinary tokens of a model, of which a share from 0 to 1 is accepted as drafts.
    pub fn new(model: &ModelInfo, acceptance: f64, seed: u64) -> Self {
        Self::with_tokens(model.ordinary_tokens(), acceptance, seed)
    }

    /// Makes one that predicts these two tokens.
    pub fn with_tokens(tokens: [TokenId; 2], acceptance: f64, seed: u64) -> Self {
        Self { tokens, acceptance, seed }
    }

    /// Reports whether a position is accepted from a draft.
    fn accepts(&self, position: u32) -> bool {
        random::uniform(random::mix(self.seed ^ random::mix(u64::from(position)))) < self.acceptance
    }

    /// Appends what is predicted at one position; `run` is how many open ones are sure up to it, if it is one of them.
    fn push(&self, predictions: &mut Predictions, ask: &HeadAsk, position: u32, run: Option<usize>) {
        let unsure = 1.0 + position as f32;
        // Sure ones differ by a few units in the last place of 1, so that the leftmost is the surest.
        let (token, confidence, entropy) = match run {
            Some(run) => (self.tokens[0], 1.0 - 4.0 * f32::EPSILON * run as f32, f32::EPSILON * run as f32),
            None => (self.tokens[1], 0.5 / unsure, unsure),
        };
        predictions.tokens.push(token);
        predictions.confidence.push(confidence);
        if ask.wanted.margin {
            predictions.margin.push(confidence);
        }
        if ask.wanted.entropy {
            predictions.entropy.push(entropy);
        }
        predictions.top.extend(std::iter::repeat_n((token, confidence), ask.wanted.top));
        let judged = match run {
            Some(_) => Judged { rank: 0, log_probability: 0.0, best: 1.0 },
            None => Judged { rank: u32::MAX - 1, log_probability: f32::MIN, best: 1.0 },
        };
        predictions.judged.extend(std::iter::repeat_n(judged, ask.wanted.judge_width));
    }

    /// Appends that nothing was asked at a position.
    fn push_nothing(predictions: &mut Predictions, ask: &HeadAsk) {
        predictions.tokens.push(NO_TOKEN);
        predictions.confidence.push(f32::NEG_INFINITY);
        if ask.wanted.margin {
            predictions.margin.push(f32::NEG_INFINITY);
        }
        if ask.wanted.entropy {
            predictions.entropy.push(f32::INFINITY);
        }
        predictions.top.extend(std::iter::repeat_n((NO_TOKEN, 0.0), ask.wanted.top));
        predictions.judged.extend(std::iter::repeat_n(Judged::NONE, ask.wanted.judge_width));
    }
}

impl StandIn for Assumed {
    fn answer(
        &mut self,
        _: &Rehearsed<'_>,
        ForwardInput { plan, ask, tokens, .. }: &ForwardInput,
    ) -> Result<Predictions, ReplayError> {
        let mut positions = Positions::new();
        positions.set_union(&[&plan.predict, &plan.must, &plan.hint]);
        let mut predictions =
            Predictions { lanes: plan.lanes.count(), positions: positions.clone(), ..Predictions::default() };
        for lane in 0..predictions.lanes {
            // A causal pass over a draft predicts what is right.
            let verifies = plan.mask == Mask::Causal && plan.lanes != Lanes::Canvas;
            let mut run = Some(0);
            for position in positions.iter() {
                let held = plan.row(lane, position).map(|row| tokens[row]);
                let open = ask.only_where.is_none_or(|mask| held.is_none_or(|held| held == mask));
                if !open {
                    Self::push_nothing(&mut predictions, ask);
                    continue;
                }
                run = run.filter(|&sure| sure == 0 || verifies || self.accepts(position));
                self.push(&mut predictions, ask, position, run);
                run = run.map(|sure| sure + 1);
            }
        }
        Ok(predictions)
    }
}
