//! Sessions that run without a network: something stands in for it and predicts at once.
//!
//! The plans are those of the session itself, so that what they cost is known without weights: [`Assumed`] predicts what
//! one assumes about a model, [`Recorded`](super::replay::Recorded) what another run recorded.

use std::cell::RefCell;

use demask_decode::{Event, ModelFacts, Session};
use demask_step::{
    ForwardInput, HeadAsk, Job, Mask, NO_TOKEN, Pending, Position, Positions, Predictions, StepPlan, TokenId,
    TokenScore, random,
};

use crate::ModelInfo;

/// A trace that another run cannot follow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// Error: the trace holds commits, not predictions.
    #[error("the trace has no predictions: record it with `trace` and `trace_predictions`")]
    NoPredictions,
    /// A setting differs from its value in the trace.
    #[error("the trace was recorded with {what} {recorded}, this run has {found}: give the same")]
    Different {
        /// Name of the setting that differs.
        what: &'static str,
        /// Value in the trace.
        recorded: String,
        /// Value in this run.
        found: String,
    },
    /// The run wants a forward that is not the recorded one.
    #[error(
        "forward {step} predicts {found}, and in the trace {recorded}: give all decoding options with which it was recorded"
    )]
    Elsewhere {
        /// Index of the forward, from 0.
        step: usize,
        /// Prediction of the run.
        found: String,
        /// Prediction of the trace.
        recorded: String,
    },
    /// The trace ends before the run does.
    #[error(
        "the trace ends after {steps} forwards, and more are needed: record it with `ignore_eos` and all positions"
    )]
    Short {
        /// Recorded forwards.
        steps: usize,
    },
    /// Error: the trace has more tokens than a model's vocabulary.
    #[error("the trace names {recorded} tokens, and the model has {known}: choose a model with a larger vocabulary")]
    Vocabulary {
        /// Different tokens in the trace.
        recorded: usize,
        /// Tokens of the model that are no masks.
        known: usize,
    },
}

/// A mock of networks.
pub trait MockNetwork {
    /// Returns the predictions of a network for a request.
    ///
    /// # Errors
    /// If it has no predictions for such a request.
    fn answer(&mut self, asked: &DryRunGroup<'_>, request: &ForwardInput) -> Result<Predictions, ReplayError>;
}

/// A group of requests of a dry run.
#[derive(Debug, Clone, Copy)]
pub struct DryRunGroup<'a> {
    /// Index of the feed of the session, from 0.
    pub step: usize,
    /// Index of the network: 0 is the model, 1 its guide.
    pub network: usize,
    /// The requests, which would run in one forward.
    pub requests: &'a [ForwardInput],
    /// Records whether the sequence of each request keeps increments.
    pub increments: &'a [bool],
}

/// Function that sees each group with its predictions, and may add what they cost.
pub type See<'a> = dyn FnMut(&DryRunGroup<'_>, &mut [Predictions]) + 'a;

/// Runs a session to its end.
///
/// # Errors
/// If the mock has no answer.
pub fn dry_run(session: &mut Session, mock: &mut dyn MockNetwork, see: &mut See<'_>) -> Result<(), ReplayError> {
    each(session, mock, see, &mut |_| {})
}

/// Runs a session to its end; `heed` gets what has happened by each group.
fn each(
    session: &mut Session,
    mock: &mut dyn MockNetwork,
    see: &mut See<'_>,
    heed: &mut dyn FnMut(Outcome),
) -> Result<(), ReplayError> {
    let needs = session.needs().to_vec();
    let mut step = 0;
    while let Pending::Run { requests, .. } = session.pending() {
        let of = |request: &ForwardInput| needs.get(request.sequence);
        let network = requests.first().and_then(of).map_or(0, |need| need.network);
        let increments: Vec<bool> =
            requests.iter().map(|request| of(request).is_some_and(|need| need.limits.increments)).collect();
        let asked = DryRunGroup { step, network, requests, increments: &increments };
        let answers: Result<Vec<_>, _> = requests.iter().map(|request| mock.answer(&asked, request)).collect();
        let mut answers = answers?;
        see(&asked, &mut answers);
        session.feed(&answers);
        heed(Outcome::of(session));
        step += 1;
    }
    Ok(())
}

/// What has happened by a group of requests.
#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    commits: usize,
    /// Commits that no forward decided, because a constraint leaves no choice.
    forced: usize,
    /// Draft tokens that came true, and those that did not.
    drafts: [usize; 2],
}

impl Outcome {
    fn of(session: &mut Session) -> Self {
        session.events().fold(Self::default(), |outcome, event| outcome.and(&event))
    }

    fn and(mut self, event: &Event) -> Self {
        match *event {
            Event::Commit { forced, .. } => {
                self.commits += 1;
                self.forced += usize::from(forced);
            }
            Event::Step { accepted, rejected, .. } => self.drafts = [accepted, rejected],
            _ => {}
        }
        self
    }

    /// Says it where drafts were decided, or tokens were forced.
    fn describe(self) -> Option<String> {
        let [accepted, rejected] = self.drafts;
        let drafts = (accepted + rejected > 0).then(|| {
            let (drafts, tokens) = (counted(accepted + rejected, "draft"), counted(self.commits, "token"));
            format!("accepts {accepted} of {drafts}, settles {tokens}")
        });
        let forced = (self.forced > 0).then(|| format!("forces {}", counted(self.forced, "token")));
        let told: Vec<String> = drafts.into_iter().chain(forced).collect();
        (!told.is_empty()).then(|| format!(": {}", told.join(", ")))
    }
}

/// Writes a number of things.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Describes the plans of a group, a line each. The guide's sequences follow the `own` ones of the model. Where a causal model's
/// rows hold `open`, the token of positions that are not written, their predictions are guesses.
fn lines(asked: &DryRunGroup<'_>, own: usize, open: Option<TokenId>) -> impl Iterator<Item = String> {
    asked.requests.iter().map(move |request| {
        let (whose, index) = match request.sequence.checked_sub(own) {
            Some(index) => ("guide", index),
            None => ("sequence", request.sequence),
        };
        let guesses = guesses(request, open.filter(|_| asked.network == 0));
        let guessed = if guesses.is_empty() { String::new() } else { format!(" (guesses {guesses})") };
        format!("step {} {whose} {index}: {}{guessed}", asked.step, request.plan)
    })
}

/// Returns the positions that rows of `open` predict, if the pass is causal: each row predicts the next position then.
fn guesses(ForwardInput { plan, tokens, .. }: &ForwardInput, open: Option<TokenId>) -> Positions {
    let mut guesses = Positions::new();
    if plan.mask == Mask::Causal {
        let row = |position| plan.row(0, plan.predictor(position, 1)).map(|row| tokens[row]);
        plan.predict
            .iter()
            .filter(|&position| open.is_some() && row(position) == open)
            .for_each(|position| guesses.insert(position));
    }
    guesses
}

/// Writes a line for the rules of the decoder and the cache policy, if they have any. One follows for the tokens that a
/// constraint forces before the first forward, one for each step that `session` would run with a mock, and one for
/// their sum. `see` as for [`dry_run`]. Steps that depend on predictions may differ in a real run.
///
/// # Errors
/// As [`dry_run`].
pub fn explain(
    session: &mut Session,
    mock: &mut dyn MockNetwork,
    emit: &mut dyn FnMut(String),
    see: &mut See<'_>,
) -> Result<(), ReplayError> {
    let own = session.needs().iter().filter(|need| need.network == 0).count();
    if let Some(rule) = session.decoder_rule() {
        emit(format!("decoder: {rule}"));
    }
    if let Some(rule) = session.cache_rule() {
        emit(format!("cache: {rule}"));
    }
    let before = Outcome::of(session).forced;
    if before > 0 {
        emit(format!("form: leaves no choice about {} before the first forward", counted(before, "token")));
    }
    let open = session.canvas().last().copied();
    let told = RefCell::new(Vec::new());
    let mut note = |asked: &DryRunGroup<'_>, answers: &mut [Predictions]| {
        told.borrow_mut().extend(lines(asked, own, open));
        see(asked, answers);
    };
    each(session, mock, &mut note, &mut |outcome| {
        let mut lines = told.take();
        if let (Some(line), Some(outcome)) = (lines.last_mut(), outcome.describe()) {
            *line += &outcome;
        }
        lines.into_iter().for_each(&mut *emit);
    })?;
    let counts = session.counts();
    emit(format!("{} forwards, {} NFE, {} rows", counts.forwards, counts.nfe, counts.rows));
    Ok(())
}

/// A model as one assumes it to be: a share of its drafts comes true.
///
/// Of each forward's open positions the first is sure and right, and so are those after it up to the next one that is
/// *new*; the others are unsure, and wrong as a draft. Whether a position is new is drawn once, by seed and position, with a
/// probability of 1 - `acceptance`. So a forward takes 1 / (1 - `acceptance`) tokens on average where nothing else limits it, whether
/// it is a threshold, a chain of drafts or a guide that decides. With 0, each forward takes as few as the decoder allows.
///
/// A causal model's rows are right where they hold text, and guess where they hold masks. A pass that makes nothing but
/// drafts is not sure of the first one either. Under a constraint it knows no form: its predictions seldom fit, so that
/// each forward takes as few tokens as the decoder allows.
#[derive(Debug, Clone)]
pub struct Assumed {
    /// The token that is right everywhere, and one that is not.
    tokens: [TokenId; 2],
    mask: Option<TokenId>,
    vocab: usize,
    /// Distance from a position back to the row that predicts it, if a plan says nothing else.
    shift: Position,
    acceptance: f64,
    seed: u64,
    /// Records whether the guide has judged some of the last drafts: its next forward continues, and begins nothing.
    judging: bool,
}

/// Rule for a forward's predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sure {
    /// The first one, and the run after it.
    First,
    /// The run alone, the first one included.
    Run,
    /// Predictions of rows with text are right, and so is the run after them.
    Text,
}

impl Assumed {
    /// Makes one that predicts ordinary tokens of a model, of which a share from 0 to 1 is accepted as drafts.
    pub fn new(model: &ModelInfo, acceptance: f64, seed: u64) -> Self {
        Self::with_tokens(model.facts(), model.ordinary_tokens(), acceptance, seed)
    }

    /// Makes one of a model that predicts these two tokens.
    pub fn with_tokens(facts: &ModelFacts, tokens: [TokenId; 2], acceptance: f64, seed: u64) -> Self {
        Self { tokens, mask: facts.mask_id, vocab: facts.vocab, shift: facts.shift, acceptance, seed, judging: false }
    }

    /// Returns what takes the place of what networks predict for a session: it gets a forward's requests and their predictions,
    /// whose cost it keeps.
    pub fn in_place_of_networks(
        mut self,
        session: &Session,
    ) -> impl FnMut(&[ForwardInput], &[Predictions]) -> Vec<Predictions> + Send + use<> {
        let networks: Vec<usize> = session.needs().iter().map(|need| need.network).collect();
        move |requests, ran| {
            let of = |request: &ForwardInput| networks.get(request.sequence).copied().unwrap_or(0);
            let told = |(request, ran): (&ForwardInput, &Predictions)| Predictions {
                cost: ran.cost,
                ..self.predict(of(request), request)
            };
            requests.iter().zip(ran).map(told).collect()
        }
    }

    /// Reports whether a position is accepted from a draft.
    fn accepts(&self, position: u32) -> bool {
        random::uniform(random::mix(self.seed ^ random::mix(u64::from(position)))) < self.acceptance
    }

    /// Returns the predictions of a network for a request: 0 is the model, 1 its guide.
    fn predict(&mut self, network: usize, request: &ForwardInput) -> Predictions {
        let ForwardInput { plan, ask, tokens, .. } = request;
        let rule = self.rule(network, plan, ask);
        self.judging = network > 0;
        let mut positions = Positions::new();
        positions.set_union(&[&plan.predict, &plan.must, &plan.hint]);
        let mut predictions =
            Predictions { lanes: plan.lanes.count(), positions: positions.clone(), ..Predictions::default() };
        for lane in 0..predictions.lanes {
            let held = |position| plan.row(lane, position).map(|row| tokens[row]);
            let mut run = Some(0);
            for position in positions.iter() {
                let filled = |mask| held(position).is_some_and(|held| held != mask);
                if ask.only_where.is_some_and(filled) {
                    self.push_nothing(&mut predictions, ask);
                    continue;
                }
                let sure = match rule {
                    Sure::First => run == Some(0),
                    Sure::Run => false,
                    Sure::Text => {
                        held(plan.predictor(position, self.shift)).is_some_and(|held| Some(held) != self.mask)
                    }
                };
                run = run.filter(|_| sure || self.accepts(position));
                self.push(&mut predictions, ask, position, run);
                run = run.map(|length| length + 1);
            }
        }
        predictions
    }

    fn rule(&self, network: usize, plan: &StepPlan, ask: &HeadAsk) -> Sure {
        if network > 0 {
            return if self.judging { Sure::Run } else { Sure::First };
        }
        // Self-speculation asks a causal model in a pass that sees ahead.
        let drafts = ask.in_order && plan.predict.is_empty() && plan.must.is_empty();
        match plan.mask {
            Mask::Causal => Sure::Text,
            _ if drafts => Sure::Run,
            Mask::Full | Mask::BlockCausal { .. } | Mask::Context { .. } => Sure::First,
        }
    }

    /// Appends the prediction of one position. `run` is the number of open positions that are sure up to it, if it is
    /// one of them.
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
            Some(_) => TokenScore { rank: 0, log_probability: 0.0, best: 1.0 },
            None => TokenScore { rank: u32::MAX - 1, log_probability: f32::MIN, best: 1.0 },
        };
        predictions.scores.extend(std::iter::repeat_n(judged, ask.wanted.score_width));
        self.push_row(predictions, ask, Some(token));
    }

    /// Appends a row of logits where rows are asked for: all tokens but one are equal.
    fn push_row(&self, predictions: &mut Predictions, ask: &HeadAsk, best: Option<TokenId>) {
        if ask.wanted.logits {
            let logit = |token: usize| if best.is_some_and(|best| best as usize == token) { 1.0 } else { 0.0 };
            predictions.logits.extend((0..self.vocab).map(logit));
        }
    }

    /// Appends that nothing was asked at a position.
    fn push_nothing(&self, predictions: &mut Predictions, ask: &HeadAsk) {
        predictions.tokens.push(NO_TOKEN);
        predictions.confidence.push(f32::NEG_INFINITY);
        if ask.wanted.margin {
            predictions.margin.push(f32::NEG_INFINITY);
        }
        if ask.wanted.entropy {
            predictions.entropy.push(f32::INFINITY);
        }
        predictions.top.extend(std::iter::repeat_n((NO_TOKEN, 0.0), ask.wanted.top));
        predictions.scores.extend(std::iter::repeat_n(TokenScore::NONE, ask.wanted.score_width));
        self.push_row(predictions, ask, None);
    }
}

impl MockNetwork for Assumed {
    fn answer(&mut self, asked: &DryRunGroup<'_>, request: &ForwardInput) -> Result<Predictions, ReplayError> {
        Ok(self.predict(asked.network, request))
    }
}
