//! Introspective strided decoding: one causal forward verifies the drafts of the last one and makes the next, by masks after
//! them (I-DLM; specs/families.md#7.1).

use demask_step::{
    HeadAsk, HeadRequest, MaskKind, Position, Predictions, SequenceLimits,
    random::{self, Use},
};

use super::{
    ar::{Ar, predicted},
    speculation::{self, Speculation},
};
use crate::{
    choices,
    constraint::LaneOf,
    distribution::{Distribution, RowReader},
    error::{self, OptionsError},
    event::Commit,
    layout::Layout,
    method::{DecoderKind, DecoderLoop, DecoderTraits, Promise, Setup},
    parameters,
    policy::CachePolicy,
    spec::Kind,
    step::{Answer, Decoder, Proposal, Query, StepContext, StepResult, View},
};

choices! {
    /// Rule by which drafts are accepted above temperature 0.
    pub enum DraftCheck {
        /// Acceptance of the token that `ar` draws, from noise that drafts share.
        Coupled = "coupled",
        /// Acceptance by the ratio of both distributions. A refused draft is drawn again from the excess of
        /// autoregressive decoding's distribution over the draft's.
        Pq = "pq",
        /// The released server's: most probable drafts, distributions without filters.
        Released = "released",
    }
}

parameters! {
    /// Drafts of masks in the forward that verifies the last ones.
    pub struct Isd {
        /// most tokens that a forward settles; it also guesses one less
        pub stride: usize = 4, Kind::count(2, 16);
        /// acceptance above temperature 0: as ar draws; as its distribution; approximately, as released
        pub rule: DraftCheck = DraftCheck::Coupled;
    }
}

impl DecoderKind for Isd {
    const NAME: &'static str = "isd";
    const SUMMARY: &'static str =
        "masks after the text guess the next tokens, and the forward that verifies them guesses on: the tokens of ar";
    const SOURCE: &'static str = "I-DLM (Introspective Diffusion Language Models); specs/families.md#7.1";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Causal];

    fn traits(&self) -> DecoderTraits {
        let ar = Ar::default().into();
        let promise = if self.rule == DraftCheck::Coupled { Promise::SameAs(ar) } else { Promise::Greedy(ar) };
        DecoderTraits { promise, causal: true, ..DecoderTraits::default() }
    }

    fn check(&self, setup: &Setup<'_>) -> Result<(), OptionsError> {
        let options = setup.options;
        if self.rule != DraftCheck::Coupled && options.temperature > 0.0 && options.constraint.is_some() {
            return Err(error::constrained("decoder isd with draws of its own", "use rule=coupled, or temperature 0"));
        }
        match options.facts.mask_id {
            Some(_) => speculation::check(Self::NAME, setup),
            None => Err(error::unfit(format_args!(
                "decoder {} guesses at masks, and the model names no mask token: load it as `family` NAME:mask=ID, with an \
                 id that no text has, or use ar",
                Self::NAME
            ))),
        }
    }
}

impl DecoderLoop for Isd {
    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        let options = setup.options;
        let draws = self.rule != DraftCheck::Coupled && options.temperature > 0.0;
        Box::new(Striding {
            stride: self.stride,
            speculation: Speculation::with_capacity(self.stride),
            draws: draws.then(|| Draws::new(self, options.wanted(), options.facts.vocab)),
        })
    }
}

#[derive(Debug)]
struct Striding {
    stride: usize,
    speculation: Speculation,
    /// Draws of its own; without them the head's own tokens decide.
    draws: Option<Draws>,
}

impl Striding {
    /// Makes drafts of the mask rows' predictions, from a position on.
    fn draft(&mut self, first: Position, predictions: &Predictions) {
        let guesses = (first..).map_while(|position| predicted(predictions, position)).take(self.stride - 1);
        for (index, guess) in guesses.enumerate() {
            let drawn = match &mut self.draws {
                Some(draws) => draws.guess(index, guess, predictions),
                None => guess,
            };
            self.speculation.drafts.push(drawn);
        }
    }
}

impl Decoder for Striding {
    fn ask(&self, ask: &mut HeadAsk) {
        speculation::ask(ask);
        ask.wanted.logits |= self.draws.is_some();
    }

    fn reserve(&self, layout: &Layout, needs: &mut SequenceLimits) {
        let round = (2 * self.stride - 1).min(layout.len());
        needs.predictions = needs.predictions.max(round);
        needs.rows = (needs.rows + self.stride - 1).max(round).min(layout.len());
        needs.drafts = 1;
        needs.draft_span = round;
        needs.logits |= self.draws.is_some();
    }

    fn propose(&mut self, view: &View<'_>, query: &mut Query) -> Proposal {
        let (next, length) = (view.canvas.first_open() as Position, view.canvas.len() as Position);
        if next >= length {
            return Proposal::Done;
        }
        // Drafts of another place follow from a token that was not written.
        if self.speculation.drafts.first().is_some_and(|draft| draft.position != next) {
            self.speculation.drafts.clear();
        }
        let round = self.speculation.drafts.len() + self.stride;
        query.predict.set_range(next..length.min(next + round as Position));
        if next + 1 < length {
            self.speculation.run(query);
        }
        Proposal::Predict
    }

    fn accept(&mut self, view: &View<'_>, answer: &Answer<'_>, context: &mut StepContext<'_>) -> StepResult {
        let (next, predictions) = (view.canvas.first_open() as Position, answer.predictions);
        let Self { speculation, draws, .. } = self;
        let drafts = speculation.drafts.len();
        speculation.verify(answer.plan, (next, predictions), context.progress, |found, draft| {
            match (&mut *draws, draft) {
                (Some(draws), Some((index, draft))) => draws.settle(index, draft, found, predictions),
                _ => found,
            }
        });
        // The token after the drafts came from the row of the last one: they all came true.
        if context.progress.commits.len() > drafts {
            self.draft(next + drafts as Position + 1, predictions);
            if let Some(constraint) = answer.constraint {
                let filled = &context.progress.commits;
                constraint.fit(LaneOf { canvas: view.canvas, index: 0, filled }, &[], &mut self.speculation.drafts);
            }
        }
        StepResult::Settled
    }
}

/// Draws of drafts, of their acceptance and of corrections, from rows of logits.
#[derive(Debug)]
struct Draws {
    rows: RowReader,
    seed: u64,
    released: bool,
    /// Distributions that the drafts were drawn from, in their order.
    guesses: Vec<Distribution>,
    /// Distribution of autoregressive decoding at a draft's position, and its excess over the draft's.
    own: Distribution,
    rest: Distribution,
}

impl Draws {
    fn new(parameters: &Isd, wanted: HeadRequest, vocab: usize) -> Self {
        Self {
            seed: wanted.sampling.seed,
            rows: RowReader::new(wanted, vocab),
            released: parameters.rule == DraftCheck::Released,
            guesses: (1..parameters.stride).map(|_| Distribution::with_capacity(vocab)).collect(),
            own: Distribution::with_capacity(vocab),
            rest: Distribution::with_capacity(vocab),
        }
    }

    fn key(&self, purpose: Use, position: Position) -> u64 {
        random::key(self.seed, purpose, position, position)
    }

    /// Draws the draft of this index. The predicted token stays where no row of logits says more.
    fn guess(&mut self, index: usize, found: Commit, predictions: &Predictions) -> Commit {
        let key = self.key(Use::Draft, found.position);
        let Some(guess) = self.guesses.get_mut(index) else { return found };
        let Some(logits) = self.rows.of(predictions, found.position) else {
            guess.clear();
            return found;
        };
        let drawn = if self.released {
            // The server divides by the temperature twice.
            self.rows.spread(logits, 2, guess);
            guess.best()
        } else {
            self.rows.filtered(logits, guess);
            guess.draw(key)
        };
        drawn.map_or(found, |token| Commit { token, confidence: self.rows.confidence(logits, token, guess), ..found })
    }

    /// Returns the draft if it is accepted, else its correction.
    fn settle(&mut self, index: usize, draft: Commit, found: Commit, predictions: &Predictions) -> Commit {
        let [checked, corrected] = [Use::Check, Use::Correction].map(|purpose| self.key(purpose, found.position));
        let (Some(logits), Some(guess)) = (self.rows.of(predictions, found.position), self.guesses.get(index)) else {
            return found;
        };
        if self.released {
            self.rows.spread(logits, 1, &mut self.own);
        } else {
            self.rows.filtered(logits, &mut self.own);
        }
        let accepted = random::uniform(checked) * guess.share(draft.token) < self.own.share(draft.token);
        let drawn = if accepted {
            Some(draft.token)
        } else {
            self.rest.beyond(&self.own, guess);
            self.rest.draw(corrected)
        };
        drawn.map_or(found, |token| Commit {
            token,
            confidence: self.rows.confidence(logits, token, &self.own),
            ..found
        })
    }
}
