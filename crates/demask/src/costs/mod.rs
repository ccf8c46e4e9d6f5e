//! Costs of an answer beside those of an autoregressive model of the same shape, computed without weights.

pub mod dry_run;
pub mod estimate;
pub mod model_shape;
pub mod replay;
pub mod shapes;

use demask_decode::Session;
use demask_model::Convention;
use serde::Serialize;

use self::{
    dry_run::{Assumed, dry_run, explain},
    estimate::{Counting, Estimate, EstimateError},
    model_shape::ModelShape,
    replay::Recorded,
};
use crate::{DeviceOptions, Error, Options, Prompt};

/// Costs that cannot be known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// The answer cannot be prepared.
    #[error(transparent)]
    Answer(#[from] Error),
    /// Error: the answer cannot be priced.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
}

impl CostError {
    /// Returns whether the call itself was wrong, not its execution.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Answer(error) => error.is_usage(),
            Self::Estimate(EstimateError::Device(error)) => error.is_usage(),
            Self::Estimate(error) => matches!(error, EstimateError::Replay(_)),
        }
    }
}

/// Model, methods and lengths whose cost is wanted.
pub struct Subject<'a> {
    /// The model, perhaps with a guide.
    pub shape: &'a ModelShape,
    /// Options of the decoding.
    pub options: &'a Options,
    /// Device of the run.
    pub device: &'a DeviceOptions,
    /// Rule for counting operations.
    pub convention: Convention,
    /// Key of the random draws.
    pub seed: u64,
}

/// Source of the predictions.
pub enum Predicted<'a> {
    /// A share of drafts is accepted.
    Assumed(f64),
    /// Predictions that another run recorded.
    Recorded(&'a Recorded),
}

/// Costs of an answer, beside those of an autoregressive model of the same shape.
#[derive(Debug, Clone, Serialize)]
pub struct Costs {
    /// The model.
    pub model: String,
    /// The guide, if the decoder has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guide_model: Option<String>,
    /// Share of drafts that is accepted; none where a recorded run decides.
    pub acceptance: Option<f64>,
    /// Costs of the answer.
    pub estimate: Estimate,
    /// Costs of taking one token after the other; none if that is how the answer is decoded anyway.
    pub autoregressive: Option<Estimate>,
}

impl Subject<'_> {
    fn counting(&self) -> Counting<'_> {
        Counting { convention: self.convention, device: self.device }
    }

    /// Returns the session of a prompt of this many tokens.
    ///
    /// # Errors
    /// If the options contradict each other or the model.
    pub fn session(&self, prompt_length: usize) -> Result<Session, Error> {
        let prompt = Prompt::Tokens(vec![self.shape.info().ordinary_tokens()[0]; prompt_length]);
        self.shape.session(&prompt, self.options)
    }

    /// Returns the costs of an answer to a prompt of this many tokens.
    pub fn costs(&self, prompt_length: usize, predicted: &Predicted<'_>) -> Result<Costs, CostError> {
        self.costs_of(self.session(prompt_length)?, predicted, &mut |_| {})
    }

    /// Returns the costs of a session, and hands out a line for each of its plans.
    pub fn costs_of(
        &self,
        mut session: Session,
        predicted: &Predicted<'_>,
        emit: &mut dyn FnMut(String),
    ) -> Result<Costs, CostError> {
        let (info, counting) = (self.shape.info(), self.counting());
        let (spec, session) = (info.spec().clone(), &mut session);
        let (estimate, acceptance) = match *predicted {
            Predicted::Assumed(acceptance) => {
                let mut mock = Assumed::new(info, acceptance, self.seed);
                let estimate = self.shape.estimate(spec, session, counting, &mut |session, price| {
                    explain(session, &mut mock, emit, price)
                })?;
                (estimate, Some(acceptance))
            }
            Predicted::Recorded(recorded) => {
                let networks = self.shape.infos();
                let estimate = self.shape.estimate(spec, session, counting, &mut |session, price| {
                    recorded.clone().script(session, &networks, price).map(drop)
                })?;
                (estimate, None)
            }
        };
        let guide_model = self.shape.guide().filter(|_| session.has_guide());
        let layout = session.layout();
        // What is decoded so anyway is no comparison.
        let compared = session.methods().0.name() != "ar";
        let autoregressive =
            compared.then(|| self.autoregressive(layout.response(), layout.gen_length())).transpose()?;
        Ok(Costs {
            model: info.name().to_owned(),
            guide_model: guide_model.map(|guide| guide.info().name().to_owned()),
            acceptance,
            autoregressive,
            estimate,
        })
    }

    /// Returns the costs of taking one token after the other.
    fn autoregressive(&self, prompt_length: usize, gen_length: usize) -> Result<Estimate, CostError> {
        let (spec, mut session) = self.shape.autoregressive(prompt_length, gen_length)?;
        let mut mock = Assumed::new(self.shape.info(), 0.0, self.seed);
        let estimate = self
            .shape
            .estimate(spec, &mut session, self.counting(), &mut |session, price| dry_run(session, &mut mock, price))?;
        Ok(estimate)
    }
}
