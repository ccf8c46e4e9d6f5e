//! One answer: tokenize, decode, turn settled tokens into text.

use std::{ops::ControlFlow, time::Instant};

use demask_checkpoint::TextStream;
use demask_decode::{Event, GuideCounts, Session, SessionOptions, decoder::Promise};
use demask_step::TokenId;

use crate::{
    Engine, GenerateError, GenerateOptions, Model, Network, Prompt,
    engine::{JobId, JobState},
    receipt::{Guided, Memory, Receipt, Seconds},
    text,
};

/// What happens while an answer is made.
#[derive(Debug)]
pub enum Progress<'a> {
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
    /// The canvas after a step.
    Canvas(&'a [TokenId]),
    /// Text that can no longer change and was not told yet.
    Text(&'a str),
}

/// Sees the progress of a generation and may end it.
pub type Observer<'a> = dyn FnMut(Progress<'_>) -> ControlFlow<()> + 'a;

/// An answer.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Generation {
    /// The text without special tokens; none if the model has no tokenizer.
    pub text: Option<String>,
    /// All tokens after the prompt, up to and including the end token.
    pub tokens: Vec<TokenId>,
    /// `eos`, `stop` or `length`.
    pub finish: &'static str,
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

impl Model {
    /// Answers a prompt.
    pub fn generate(
        &mut self,
        prompt: &Prompt,
        options: &GenerateOptions,
        observer: &mut Observer<'_>,
    ) -> Result<Generation, GenerateError> {
        let started = Instant::now();
        let guide = self.guide.as_ref().filter(|_| needs_guide(options));
        let guide = guide.map(|guide| (&guide.prompter, &guide.bridge));
        let session_options = self.prompter.options(prompt, options, guide)?;
        let (model_time, guide_time) = (self.engine.model_time(), self.engine.guide_time());
        let prepared = Prepared::new(self, session_options, options, matches!(prompt, Prompt::Infill(_)))?;
        let job = self.engine.submit(prepared.session)?;
        let told = prepared.announcement;
        let mut run = Run {
            engine: &mut self.engine,
            job,
            prompt_tokens: prepared.prompt_tokens,
            stops: &options.stop,
            stream: self
                .prompter
                .text
                .tokenizer
                .as_ref()
                .filter(|_| !told.infill)
                .map(|tokenizer| tokenizer.stream(true)),
            text: String::new(),
            told: 0,
            read: 0,
            stopped: None,
        };
        let result = run.all(&told, observer);
        let stopped = run.stopped;
        let cache = self.engine.cache_bytes(job);
        let session = self.engine.take(job);
        result?;
        let Some(session) = session else { return Err(GenerateError::Interrupted) };
        let seconds = Seconds {
            load: self.load_time().as_secs_f64(),
            model: self.engine.model_time().saturating_sub(model_time).as_secs_f64(),
            guide: self.engine.guide_time().saturating_sub(guide_time).as_secs_f64(),
            total: started.elapsed().as_secs_f64(),
        };
        let prompt_tokens = prepared.prompt_tokens;
        Ok(self.finish(&session, &told, Measured { prompt_tokens, stopped, cache, seconds }))
    }

    /// What the guide did for a session that had one.
    fn guided(&self, session: &Session) -> Option<Guided> {
        let guide = self.guide.as_ref().filter(|_| !session.guide_needs().is_empty())?;
        let GuideCounts { rows, accepted, rejected, cost, .. } = session.counts().guide;
        let decided = accepted + rejected;
        Some(Guided {
            model: guide.prompter.name().to_owned(),
            rows,
            flops: cost.flops,
            accepted,
            rejected,
            acceptance: if decided == 0 { 0.0 } else { accepted as f64 / decided as f64 },
        })
    }

    fn finish(
        &self,
        session: &Session,
        told: &Announcement,
        Measured { prompt_tokens, stopped, cache, seconds }: Measured,
    ) -> Generation {
        let output = session.output();
        let shown = if told.infill { &output.canvas } else { &output.tokens };
        let mut text = self.text.tokenizer.as_ref().map(|tokenizer| tokenizer.decode(shown, true));
        if let (Some(text), Some(length)) = (&mut text, stopped) {
            text.truncate(length);
        }
        Generation {
            text,
            finish: output.finish.name(),
            prompt_tokens,
            generated_tokens: output.tokens.len(),
            receipt: Receipt {
                model: self.name().to_owned(),
                device: self.engine.network().describe(),
                decoding: session.receipt(),
                guide_nfe: session.counts().guide.nfe,
                guide: self.guided(session),
                seconds,
                memory: Memory {
                    weights: self.engine.network().weight_bytes(),
                    guide: self.engine.guide().map_or(0, Network::weight_bytes),
                    cache,
                    peak: crate::receipt::peak_memory(),
                },
            },
            canvas: output.canvas,
            tokens: output.tokens,
        }
    }
}

/// Whether a decoder wants a guide; a model that has one decodes without it too.
fn needs_guide(options: &GenerateOptions) -> bool {
    options.decoder.as_ref().is_some_and(|decoder| decoder.method().promise == Promise::OfGuide)
}

/// What is told before the first step.
struct Announcement {
    decoder: String,
    cache: String,
    infill: bool,
}

/// What a run left behind beside its session.
#[derive(Clone, Copy)]
struct Measured {
    prompt_tokens: usize,
    stopped: Option<usize>,
    cache: usize,
    seconds: Seconds,
}

/// A session that is about to run.
struct Prepared {
    session: Session,
    prompt_tokens: usize,
    announcement: Announcement,
}

impl Prepared {
    fn new(
        model: &Model,
        options: SessionOptions,
        generate: &GenerateOptions,
        infill: bool,
    ) -> Result<Self, GenerateError> {
        if !generate.stop.is_empty() {
            model.tokenizer()?;
        }
        let announcement =
            Announcement { decoder: options.decoder.to_string(), cache: options.cache.to_string(), infill };
        let mask = options.facts.mask_id;
        let session = Session::new(options)?;
        let canvas = session.canvas();
        let prompt_tokens = canvas
            .iter()
            .position(|&token| Some(token) == mask || token == demask_step::NO_TOKEN)
            .unwrap_or(canvas.len());
        Ok(Self { session, prompt_tokens, announcement })
    }
}

/// A generation under way.
struct Run<'a> {
    engine: &'a mut Engine,
    job: JobId,
    prompt_tokens: usize,
    stops: &'a [String],
    /// Turns settled tokens into text; none without a tokenizer, and none for infilling, which has no settled end.
    stream: Option<TextStream<'a>>,
    /// Settled text.
    text: String,
    /// Bytes of it that the observer has seen.
    told: usize,
    /// Settled tokens that went into it.
    read: usize,
    /// Length of the text before the stop text that ended it.
    stopped: Option<usize>,
}

impl Run<'_> {
    fn all(&mut self, announcement: &Announcement, observer: &mut Observer<'_>) -> Result<(), GenerateError> {
        let mut tell = |progress: Progress<'_>| match observer(progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(GenerateError::Interrupted),
        };
        if let Some(session) = self.engine.session(self.job) {
            let canvas = session.canvas();
            tell(Progress::Started {
                canvas,
                prompt_tokens: self.prompt_tokens,
                positions: canvas.len() - self.prompt_tokens,
                decoder: &announcement.decoder,
                cache: &announcement.cache,
            })?;
        }
        loop {
            let ran = self.engine.tick()?;
            if let Some(JobState::Failed(error)) = self.engine.state(self.job) {
                return Err(error.clone().into());
            }
            self.look(&mut tell)?;
            if ran == 0 {
                break;
            }
        }
        if self.stopped.is_none() {
            // Half a character at the very end, and text held back as a possible stop text.
            self.text.extend(self.stream.as_mut().map(TextStream::finish));
        }
        let end = self.stopped.unwrap_or(self.text.len());
        if self.told < end {
            tell(Progress::Text(&self.text[self.told..end]))?;
            self.told = end;
        }
        Ok(())
    }

    /// Tells what the last step changed.
    fn look(&mut self, tell: &mut dyn FnMut(Progress<'_>) -> Result<(), GenerateError>) -> Result<(), GenerateError> {
        let Some(session) = self.engine.session_mut(self.job) else { return Ok(()) };
        for event in session.events() {
            tell(Progress::Event(event))?;
        }
        tell(Progress::Canvas(session.canvas()))?;
        let Some(stream) = self.stream.as_mut().filter(|_| self.stopped.is_none()) else { return Ok(()) };
        while self.read < session.settled() {
            self.text.push_str(&stream.push(session.canvas()[self.prompt_tokens + self.read]));
            self.read += 1;
            if let Some((at, _)) = text::find_stop(&self.text, self.stops) {
                self.stopped = Some(at);
                session.finish_at(self.read);
                break;
            }
        }
        let safe = self.stopped.unwrap_or_else(|| text::safe_length(&self.text, self.stops));
        if self.told < safe {
            tell(Progress::Text(&self.text[self.told..safe]))?;
            self.told = safe;
        }
        Ok(())
    }
}
