//! Events of a request between two looks, as Python reads them.

use demask::Update as News;
use pyo3::prelude::*;

/// Changes of a request since the last update.
#[pyclass(frozen, module = "demask")]
pub struct Update {
    news: News,
}

/// A token that was committed to a position of the canvas.
#[pyclass(frozen, get_all, module = "demask")]
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
#[pyclass(frozen, get_all, module = "demask")]
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
#[pyclass(frozen, get_all, module = "demask")]
#[derive(Clone)]
pub struct Started {
    /// All tokens: the prompt, and masks where something is decoded.
    canvas: Vec<u32>,
    /// Tokens of the prompt.
    prompt_tokens: usize,
    /// Positions behind the prompt.
    positions: usize,
    /// Positions of a block.
    block_length: usize,
    /// The decoder, with its parameters.
    decoder: String,
    /// The cache policy, with its parameters.
    cache: String,
    /// The holes that are filled, as pairs of the first position and the one behind the last.
    holes: Vec<(usize, usize)>,
}

impl Update {
    /// Wraps what a ticket has yielded.
    pub fn new(news: News) -> Self {
        Self { news }
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
    /// Text that can no longer change.
    #[getter]
    fn text(&self) -> &str {
        &self.news.text
    }

    /// Tokens that were committed, in their order.
    #[getter]
    fn commits(&self) -> Vec<Commit> {
        let commit = |of: &demask::Committed| Commit {
            step: of.step,
            position: of.position,
            token: of.token,
            replaces: of.replaces,
            confidence: of.confidence,
            logprob: of.logprob,
            top: of.top.clone(),
        };
        self.news.commits.iter().map(commit).collect()
    }

    /// Positions whose tokens were taken back: masks stand there again.
    #[getter]
    fn taken_back(&self) -> Vec<u32> {
        self.news.taken_back.clone()
    }

    /// The canvas as it was laid out, in the first update; `None` in the others.
    #[getter]
    fn started(&self) -> Option<Started> {
        self.news.started.as_ref().map(|of| Started {
            canvas: of.canvas.clone(),
            prompt_tokens: of.prompt_tokens,
            positions: of.positions,
            block_length: of.block_length,
            decoder: of.decoder.clone(),
            cache: of.cache.clone(),
            holes: of.holes.iter().map(|hole| (hole.start, hole.end)).collect(),
        })
    }

    /// Texts of holes that can no longer change, as pairs of the hole's index and its text.
    #[getter]
    fn holes(&self) -> Vec<(usize, String)> {
        self.news.holes.clone()
    }

    /// Forwards since the last update, at most 256 of them.
    #[getter]
    fn forwards(&self) -> Vec<Forward> {
        let forward = |of: &demask::Forward| Forward {
            step: of.step,
            nfe: of.nfe,
            rows: of.rows,
            drafts: of.drafts,
            accepted: of.accepted,
            rejected: of.rejected,
        };
        self.news.forwards.iter().map(forward).collect()
    }

    /// Number of forwards since the last update.
    #[getter]
    fn steps(&self) -> usize {
        self.news.steps
    }

    /// NFE so far; 0 if no forward has ended since the last update.
    #[getter]
    fn nfe(&self) -> usize {
        self.news.nfe
    }

    /// Masks that are left in the canvas.
    #[getter]
    fn masks(&self) -> usize {
        self.news.masks
    }

    /// Count of positions behind the prompt that can no longer change and belong to the answer.
    #[getter]
    fn settled(&self) -> usize {
        self.news.settled
    }

    fn __repr__(&self) -> String {
        let News { text, commits, nfe, masks, .. } = &self.news;
        format!("Update(text={text:?}, commits={}, nfe={nfe}, masks={masks})", commits.len())
    }

    fn __str__(&self) -> &str {
        &self.news.text
    }
}
