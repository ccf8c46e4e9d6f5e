//! Events of a request between two looks, as Python reads them.

use demask::Event;
use pyo3::prelude::*;

/// Changes of a request since the last update.
#[pyclass(frozen, get_all, module = "demask.types")]
#[derive(Default)]
pub struct Update {
    /// Text that can no longer change.
    text: String,
    /// Tokens that were committed, in their order.
    commits: Vec<Commit>,
    /// Positions whose tokens were taken back: masks stand there again.
    taken_back: Vec<u32>,
    /// The canvas as it was laid out, in the first update; `None` in the others.
    started: Option<Started>,
    /// Texts of holes that can no longer change, as pairs of the hole's index and its text.
    holes: Vec<(usize, String)>,
    /// Forwards since the last update, at most 256 of them.
    forwards: Vec<Forward>,
    /// Number of forwards since the last update.
    steps: usize,
    /// NFE so far; 0 if no forward has ended since the last update.
    nfe: usize,
    /// Masks that are left in the canvas.
    masks: usize,
    /// Count of positions after the prompt that can no longer change and belong to the answer.
    settled: usize,
}

/// A token that was committed to a position of the canvas.
#[pyclass(frozen, get_all, module = "demask._native")]
#[derive(Clone)]
pub struct Commit {
    /// The forward whose prediction was taken, from 0.
    step: usize,
    /// The position in the canvas, from 0; the prompt's are the first.
    position: u32,
    /// The id of the token.
    token: u32,
    /// The id of the token whose place it took, if one stood there.
    replaces: Option<u32>,
    /// Probability of the token when it was committed; 1 where a rule, not the model, chose it.
    confidence: f32,
    /// Natural-log probability; `None` unless `top_logprobs` is set.
    logprob: Option<f32>,
    /// The most probable tokens in its place, as pairs of id and log-probability, the best first.
    top: Vec<(u32, f32)>,
}

/// A forward of a request.
#[pyclass(frozen, get_all, module = "demask.types")]
#[derive(Clone)]
pub struct Forward {
    /// Index of the forward, from 0.
    step: usize,
    /// NFE so far, this forward included.
    nfe: usize,
    /// Rows of the request that entered it.
    rows: usize,
    /// Drafts that ran in it.
    drafts: usize,
    /// Draft tokens that were accepted.
    accepted: usize,
    /// Draft tokens that were not.
    rejected: usize,
}

/// The canvas as it was laid out.
#[pyclass(frozen, get_all, module = "demask.types")]
#[derive(Clone)]
pub struct Started {
    /// All tokens: the prompt, and masks where something is decoded.
    canvas: Vec<u32>,
    /// Tokens of the prompt.
    prompt_tokens: usize,
    /// Positions after the prompt.
    positions: usize,
    /// Positions of a block.
    block_length: usize,
    /// The decoder, with its parameters.
    decoder: String,
    /// The cache policy, with its parameters.
    cache: String,
    /// The holes that are filled, as pairs of the first position and the one after the last.
    holes: Vec<(usize, usize)>,
}

impl Update {
    /// Sums up what has happened.
    pub fn new(events: &[Event]) -> Self {
        let mut update = Self::default();
        for event in events {
            update.add(event);
        }
        update
    }

    fn add(&mut self, event: &Event) {
        match event {
            Event::Started(started) => {
                self.masks = started.masks;
                self.started = Some(Started::of(started));
            }
            Event::Text(text) => self.text.push_str(text),
            Event::Hole { index, text } => self.holes.push((*index, text.clone())),
            &Event::Commit { step, position, token, confidence, .. } => {
                self.commits.push(Commit {
                    step,
                    position,
                    token,
                    replaces: None,
                    confidence,
                    logprob: None,
                    top: vec![],
                });
            }
            &Event::Replace { step, position, from, to: Some(token), confidence, .. } => {
                let replaces = Some(from);
                self.commits.push(Commit { step, position, token, replaces, confidence, logprob: None, top: vec![] });
            }
            &Event::Replace { position, to: None, .. } => self.taken_back.push(position),
            Event::Logprob { position, logprob, top } => {
                if let Some(commit) = self.commits.iter_mut().rev().find(|commit| commit.position == *position) {
                    (commit.logprob, commit.top) = (*logprob, top.clone());
                }
            }
            &Event::Step { step, nfe, rows, drafts, accepted, rejected, masks, settled, merged } => {
                (self.nfe, self.masks, self.settled) = (nfe, masks, settled);
                self.steps += merged.max(1);
                if merged == 0 {
                    self.forwards.push(Forward { step, nfe, rows, drafts, accepted, rejected });
                }
            }
            _ => {}
        }
    }
}

impl Started {
    fn of(started: &demask::Started) -> Self {
        Self {
            canvas: started.canvas.clone(),
            prompt_tokens: started.prompt_tokens,
            positions: started.positions,
            block_length: started.block_length,
            decoder: started.decoder.clone(),
            cache: started.cache.clone(),
            holes: started.holes.iter().map(|hole| (hole.start, hole.end)).collect(),
        }
    }
}

#[pymethods]
impl Commit {
    fn __repr__(&self) -> String {
        let Self { step, position, token, confidence, .. } = self;
        format!("Commit(step={step}, position={position}, token={token}, confidence={confidence:.4})")
    }
}

#[pymethods]
impl Forward {
    fn __repr__(&self) -> String {
        let Self { step, nfe, rows, drafts, accepted, rejected } = self;
        format!(
            "Forward(step={step}, nfe={nfe}, rows={rows}, drafts={drafts}, accepted={accepted}, rejected={rejected})"
        )
    }
}

#[pymethods]
impl Started {
    fn __repr__(&self) -> String {
        let Self { prompt_tokens, positions, block_length, decoder, cache, .. } = self;
        format!(
            "Started(prompt_tokens={prompt_tokens}, positions={positions}, block_length={block_length}, \
             decoder='{decoder}', cache='{cache}')"
        )
    }
}

#[pymethods]
impl Update {
    fn __repr__(&self) -> String {
        let Self { text, commits, nfe, masks, .. } = self;
        format!("Update(text={text:?}, commits={}, nfe={nfe}, masks={masks})", commits.len())
    }

    fn __str__(&self) -> &str {
        &self.text
    }
}
