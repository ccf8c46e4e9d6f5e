//! One answer: what is seen of it while it is made, and what it is in the end.

use std::{
    fmt,
    ops::{ControlFlow, Range},
    time::Instant,
};

use demask_decode::{Event, Finish, GuideCounts, Logprob, Session};
use demask_step::{DeviceMemory, MemoryMeter, Position, TokenId};

use crate::{
    Error, Finished, Likelihood, Prepared, Task, TokenLogprob,
    answer::Answered,
    model::Front,
    receipt::{DeviceUse, Guided, MemoryUse, Receipt, Seconds, forget_peak_memory, peak_memory},
    replay::Record,
    scheduler::Spent,
};

/// Event of a running request.
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
        /// Positions of a block.
        block_length: usize,
        /// Positions of the holes in the canvas; none if the answer follows the prompt.
        holes: &'a [Range<usize>],
        /// The decoder, with its parameters.
        decoder: &'a str,
        /// The cache policy, with its parameters.
        cache: &'a str,
    },
    /// The first forward has begun, and ended.
    Began {
        /// Start of the first forward: until then the request waited.
        at: Instant,
    },
    /// A commit, or the end of a step.
    Event(Event),
    /// Probability of the token of the commit right before, if it is kept.
    Logprob {
        /// Position of the token.
        position: Position,
        /// Log-probability; none if no prediction of the model was committed.
        logprob: Option<Logprob<'a>>,
    },
    /// Predictions of one sequence in one forward, if they are recorded.
    Predicted(&'a Record),
    /// The canvas after a step.
    Canvas(&'a [TokenId]),
    /// Work that is left, after whatever has changed it.
    Left {
        /// Masks of the canvas.
        masks: usize,
        /// Positions behind the prompt, from the first on, that can no longer change and belong to the answer.
        settled: usize,
    },
    /// Text that can no longer change and was not reported yet; of a text with holes see `Hole`.
    Text(&'a str),
    /// A hole is filled: its text can no longer change.
    Hole {
        /// Index of the hole, from 0.
        index: usize,
        /// Text of the hole.
        text: &'a str,
    },
    /// Forwards of likelihoods that were made.
    Draws {
        /// Number of finished canvases: draws that hide the same have one.
        done: usize,
        /// Number of all canvases.
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
    /// The text of each hole that was filled, in their order; empty if the answer stands behind a prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holes: Vec<String>,
    /// Positions of these holes in the canvas. Everything else in it was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hole_positions: Vec<Range<usize>>,
    /// All tokens after the prompt, up to and including the end token; of a text with holes all from the first hole on, those
    /// between and behind the holes included.
    pub tokens: Vec<TokenId>,
    /// Log-probability of each of these tokens when it was committed, in their order; none if
    /// [`top_logprobs`](crate::Options::top_logprobs) is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<TokenLogprob>>,
    /// Reason why it ends where it ends.
    pub finish: Finish,
    /// The end token that ended it; none if it ended otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_token: Option<TokenId>,
    /// The stop text that ended it; none if it ended otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_text: Option<String>,
    /// Tokens of the prompt; of a text with holes those before the first hole.
    pub prompt_tokens: usize,
    /// Tokens that were decoded: those of the answer, or those in the holes.
    pub generated_tokens: usize,
    /// Receipt of the answer.
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

/// Outcome of a [`Task`].
pub enum Outcome {
    /// An answer.
    Answer(Box<Generation>),
    /// Likelihoods, in the order of their continuations.
    Likelihoods(Vec<Likelihood>),
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
                Outcome::Likelihoods(task.likelihoods(seconds))
            }
            Task::Session(session) => Outcome::Session(session),
        })
    }

    fn generation(&self, answer: Prepared, spent: &Spent, bytes: u64) -> Generation {
        let guide = answer.guide();
        let Answered { session, text, stop_text, holes, hole_positions, logprobs, length, prepared } =
            answer.into_answered(self.prompter.text.tokenizer.as_deref());
        let output = session.output();
        let seconds = |network: usize| spent.networks.get(network).map_or(0.0, std::time::Duration::as_secs_f64);
        Generation {
            text,
            holes,
            hole_positions,
            logprobs,
            finish: output.finish,
            end_token: (output.finish == Finish::Eos).then(|| output.tokens.last().copied()).flatten(),
            stop_text,
            prompt_tokens: session.layout().response(),
            generated_tokens: session.generated(),
            receipt: Receipt {
                model: self.prompter.name().to_owned(),
                device: self.device.clone(),
                decoding: session.receipt(),
                more: length.more(output.finish),
                guide_nfe: session.counts().guide.nfe,
                guide: self.guided(&session, guide),
                seconds: Seconds {
                    load: self.load_time.as_secs_f64(),
                    model: seconds(0),
                    guide: seconds(1),
                    total: (prepared + spent.total).as_secs_f64(),
                    wall: (prepared + spent.wall).as_secs_f64(),
                },
                memory: MemoryUse {
                    weights: self.weights,
                    guide: self.guides.iter().map(|guide| guide.weights).sum(),
                    cache: bytes as usize,
                    peak: peak_memory(),
                    device: self.device_memory(),
                },
            },
            canvas: output.canvas,
            tokens: output.tokens,
        }
    }

    fn meters(&self) -> impl Iterator<Item = &(dyn MemoryMeter + 'static)> {
        let guides = self.guides.iter().map(|guide| &guide.meter);
        std::iter::once(&self.meter).chain(guides).filter_map(Option::as_deref)
    }

    /// Device memory of the model and its guides now; none where the processor computes.
    pub(crate) fn device_memory(&self) -> Option<DeviceUse> {
        self.meters().map(MemoryMeter::read).reduce(DeviceMemory::and).map(DeviceUse::from)
    }

    /// Lets the peaks of this process and of its devices begin anew with what is taken now.
    pub(crate) fn forget_peak_memory(&self) {
        forget_peak_memory();
        self.meters().for_each(MemoryMeter::forget_peak);
    }

    /// Counts of the guide of a session that had one.
    fn guided(&self, session: &Session, guide: Option<usize>) -> Option<Guided> {
        let guide = self.guides.get(guide?)?;
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
