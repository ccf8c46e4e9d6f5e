//! One answer: what is seen of it while it is made, and what it is in the end.

use std::{fmt, ops::ControlFlow};

use demask_decode::{Event, Finish, GuideCounts, Session};
use demask_step::TokenId;

use crate::{
    Error, Finished, Likelihood, Prepared, Task,
    answer::Answered,
    model::Front,
    receipt::{Guided, MemoryUse, Receipt, Seconds, peak_memory},
    replay::Record,
    scheduler::Spent,
};

/// What happens while work is done.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// The canvas is laid out; nothing is decoded yet.
    Started {
        /// The canvas.
        canvas: &'a [TokenId],
        /// Prompt tokens.
        prompt_tokens: usize,
        /// Positions to decode, the last block's overhang included.
        positions: usize,
        /// The decoder, with its parameters.
        decoder: &'a str,
        /// The cache policy, with its parameters.
        cache: &'a str,
    },
    /// A commit, or the end of a step.
    Event(Event),
    /// Predictions of one sequence in one forward, if they are recorded.
    Predicted(&'a Record),
    /// The canvas after a step.
    Canvas(&'a [TokenId]),
    /// Text that can no longer change and was not told yet.
    Text(&'a str),
    /// Draws of a likelihood that were made.
    Draws {
        /// How many.
        done: usize,
        /// Of how many.
        all: usize,
    },
}

/// Sees the progress of a generation and may end it.
pub type Observer<'a> = dyn FnMut(RunEvent<'_>) -> ControlFlow<()> + 'a;

/// An answer.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct Generation {
    /// The text without special tokens; none if the model has no tokenizer.
    pub text: Option<String>,
    /// All tokens after the prompt, up to and including the end token.
    pub tokens: Vec<TokenId>,
    /// Why it ends where it ends.
    pub finish: Finish,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the answer.
    pub generated_tokens: usize,
    /// How it was made.
    pub receipt: Receipt,
    /// The whole canvas, for infilling and for those who want to see it.
    #[serde(skip)]
    pub canvas: Vec<TokenId>,
}

/// Writes the text; without a tokenizer, the ids of the tokens.
impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => f.write_str(&self.tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        }
    }
}

/// What came of a [`Task`].
pub enum Outcome {
    /// An answer.
    Answer(Box<Generation>),
    /// A likelihood.
    Likelihood(Likelihood),
    /// A session that is over.
    Session(Box<Session>),
}

impl Front {
    /// Puts together what came of a task.
    pub(crate) fn outcome(&self, finished: Finished<Task>) -> Result<Outcome, Error> {
        let Finished { work, end, spent, bytes, .. } = finished;
        end?;
        Ok(match work {
            Task::Answer(answer) => Outcome::Answer(Box::new(self.generation(*answer, &spent, bytes))),
            Task::Likelihood(task) => {
                let seconds = spent.networks.iter().map(std::time::Duration::as_secs_f64).sum();
                Outcome::Likelihood(Likelihood { seconds, ..task.likelihood() })
            }
            Task::Session(session) => Outcome::Session(session),
        })
    }

    /// What is to be said of a curve that was measured elsewhere.
    fn curve_note(&self, session: &Session) -> Option<String> {
        let curve = session.receipt().cost_curve?;
        let own = crate::cost_curve::curve_model(&self.prompter);
        let elsewhere = curve.machine != self.device || curve.model != own;
        elsewhere.then(|| {
            format!(
                "the cost curve is of {} on {}, and this is {own} on {}: choices go by it, tokens do not",
                curve.model, curve.machine, self.device
            )
        })
    }

    fn generation(&self, answer: Prepared, spent: &Spent, bytes: u64) -> Generation {
        let Answered { session, text, prepared } = answer.into_answered(self.prompter.text.tokenizer.as_deref());
        let output = session.output();
        let seconds = |network: usize| spent.networks.get(network).map_or(0.0, std::time::Duration::as_secs_f64);
        Generation {
            text,
            finish: output.finish,
            prompt_tokens: session.layout().response(),
            generated_tokens: output.tokens.len(),
            receipt: Receipt {
                model: self.prompter.name().to_owned(),
                device: self.device.clone(),
                decoding: session.receipt(),
                cost_curve_note: self.curve_note(&session),
                guide_nfe: session.counts().guide.nfe,
                guide: self.guided(&session),
                seconds: Seconds {
                    load: self.load_time.as_secs_f64(),
                    model: seconds(0),
                    guide: seconds(1),
                    total: (prepared + spent.total).as_secs_f64(),
                    wall: (prepared + spent.wall).as_secs_f64(),
                },
                memory: MemoryUse {
                    weights: self.weights,
                    guide: self.guide.as_ref().map_or(0, |guide| guide.weights),
                    cache: bytes as usize,
                    peak: peak_memory(),
                },
            },
            canvas: output.canvas,
            tokens: output.tokens,
        }
    }

    /// Tells what the guide did for a session that had one.
    fn guided(&self, session: &Session) -> Option<Guided> {
        let guide = self.guide.as_ref().filter(|_| session.has_guide())?;
        let GuideCounts { cached, rows, accepted, rejected, cost, .. } = session.counts().guide;
        let decided = accepted + rejected;
        Some(Guided {
            model: guide.prompter.name().to_owned(),
            rows,
            cached_tokens: cached,
            flops: cost.flops(),
            accepted,
            rejected,
            acceptance: if decided == 0 { 0.0 } else { accepted as f64 / decided as f64 },
        })
    }
}
