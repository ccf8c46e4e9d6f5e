//! Changes of a network's features from step to step (FlashDLM, figure 2; dLLM-Cache, figures 1 and 2).
//!
//! Caches of diffusion models live off features that hardly change between two steps. [`measure`] decodes a prompt
//! without any cache, and compares K, V and the additions of attention and of the MLP to the residual stream, in each
//! layer and at each position, with those of the step before: the cosine of the two. K is compared as attention reads
//! it, rotated: a position's rotation is the same in all steps, so the cosine equals the one of K before the rotation.
//! [`Stability`] joins the measurements of several prompts.

mod figures;
mod joined;

use std::{collections::BTreeMap, ops::ControlFlow};

use demask::ModelByHand;
use demask::{Error, Generation, Options, Prompt};
use demask_decode::{DecoderSpec, Session};
use demask_model::Intermediate;
use demask_step::TokenId;

pub use joined::Stability;

use joined::FEATURES;

/// Cosines of features with those of the step before, of one decoded prompt.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Similarities {
    /// Positions of the prompt.
    pub prompt: usize,
    /// Positions of the canvas.
    pub positions: usize,
    /// Layers of the network.
    pub layers: usize,
    /// Pairs of consecutive steps.
    pub steps: usize,
    /// `[steps, FEATURES, layers, positions]`.
    cosines: Vec<f32>,
}

impl Similarities {
    /// The cosine of a feature (its number in `FEATURES`) in a layer, between forwards `step` and `step + 1`.
    pub fn cosine(&self, step: usize, feature: usize, layer: usize, position: usize) -> f32 {
        self.cosines[((step * FEATURES.len() + feature) * self.layers + layer) * self.positions + position]
    }
}

/// Decodes a prompt with decoder `static` and no cache, and compares the features of its steps. `progress` is told
/// forwards and forwards in all, and answers whether to go on. One forward's features and the next one's are in memory
/// at the same time: `2 * layers * positions * (2 * kv width + 2 * hidden)` numbers of 4 bytes.
pub fn measure(
    model: &mut ModelByHand,
    prompt: &Prompt,
    options: &Options,
    progress: &mut dyn FnMut(usize, usize) -> bool,
) -> Result<(Similarities, Generation), Error> {
    let options = Options {
        decoder: Some(DecoderSpec::default()),
        cache: Some(demask_decode::CacheSpec::default()),
        ..options.clone()
    };
    let mut canvases: Vec<Vec<TokenId>> = Vec::new();
    let answer = model.answer(model.prepare(prompt, &options)?, &mut |request| {
        let canvas = request.session().map(Session::canvas).unwrap_or_default();
        if canvases.last().is_none_or(|last| last != canvas) {
            canvases.push(canvas.to_vec());
        }
        if progress(0, 0) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    // No forward has read what the last one committed.
    canvases.pop();
    let mut features =
        Features::new(answer.prompt_tokens, canvases.first().map_or(0, Vec::len), model.info().spec().layers);
    let mask = model.info().facts().mask;
    for (done, canvas) in canvases.iter().enumerate() {
        if !progress(done, canvases.len()) {
            return Err(Error::Interrupted);
        }
        model.network_mut().watch(canvas, mask, &mut |part, values| features.see(part, values))?;
        features.next_step();
    }
    Ok((features.similarities, answer))
}

/// The features of the last forward, and what comparing them has told so far.
struct Features {
    last: BTreeMap<Intermediate, Vec<f32>>,
    similarities: Similarities,
}

impl Features {
    fn new(prompt: usize, positions: usize, layers: usize) -> Self {
        let similarities = Similarities { prompt, positions, layers, ..Similarities::default() };
        Self { last: BTreeMap::new(), similarities }
    }

    /// Compares an intermediate with the previous forward's, and keeps it for the next one.
    fn see(&mut self, part: Intermediate, values: &[f32]) {
        let (feature, layer) = match part {
            Intermediate::Key(layer) => (0, layer),
            Intermediate::Value(layer) => (1, layer),
            Intermediate::Attention(layer) => (2, layer),
            Intermediate::Mlp(layer) => (3, layer),
            Intermediate::Embedding | Intermediate::Layer(_) | Intermediate::Last => return,
        };
        let Similarities { positions, layers, steps, cosines, .. } = &mut self.similarities;
        let width = values.len() / *positions;
        let Some(last) = self.last.get_mut(&part) else {
            self.last.insert(part, values.to_vec());
            return;
        };
        let size = FEATURES.len() * *layers * *positions;
        cosines.resize((*steps + 1) * size, 0.0);
        let row = &mut cosines[*steps * size + (feature * *layers + layer) * *positions..][..*positions];
        let pairs = values.chunks_exact(width).zip(last.chunks_exact(width));
        row.iter_mut().zip(pairs).for_each(|(cosine_at, (now, before))| *cosine_at = cosine(now, before));
        last.copy_from_slice(values);
    }

    fn next_step(&mut self) {
        let Similarities { positions, layers, steps, cosines, .. } = &mut self.similarities;
        *steps = cosines.len() / (FEATURES.len() * *layers * *positions).max(1);
    }
}

/// `a . b / (max(|a|, 1e-8) * max(|b|, 1e-8))`.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    (dot(a, b) / (dot(a, a).sqrt().max(1e-8) * dot(b, b).sqrt().max(1e-8))) as f32
}

#[cfg(test)]
mod tests;
