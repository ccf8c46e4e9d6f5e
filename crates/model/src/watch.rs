//! Observation of a forward while it runs. Nothing is read if there is no observer.

use demask_tensor::{Backend, Stage};

/// An intermediate of a forward, all rows; numbers are layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Intermediate {
    /// `[rows, hidden]`: embeddings.
    Embedding,
    /// `[rows, kv width]`: K, rotated, as attention reads it.
    Key(usize),
    /// `[rows, kv width]`: V.
    Value(usize),
    /// `[rows, hidden]`: what attention adds to the residual stream.
    Attention(usize),
    /// `[rows, hidden]`: the MLP's addition to the residual stream.
    Mlp(usize),
    /// `[rows, hidden]`: the residual stream after a layer.
    Layer(usize),
    /// `[rows, hidden]`: after the final norm.
    Last,
}

/// Sees each intermediate of a forward, in the order in which they come about.
pub type Watcher<'a> = dyn FnMut(Intermediate, &[f32]) + 'a;

/// Intermediate results of a forward, for inspection.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hidden {
    /// `[rows, hidden]`: embeddings.
    pub embed: Vec<f32>,
    /// `[layers][rows, hidden]`: the residual stream after each layer.
    pub layers: Vec<Vec<f32>>,
    /// `[rows, hidden]`: after the final norm.
    pub last: Vec<f32>,
}

impl Hidden {
    /// Keeps an intermediate if it is one of these.
    pub(crate) fn take(&mut self, part: Intermediate, values: &[f32]) {
        match part {
            Intermediate::Embedding => self.embed = values.to_vec(),
            Intermediate::Layer(_) => self.layers.push(values.to_vec()),
            Intermediate::Last => self.last = values.to_vec(),
            Intermediate::Key(_) | Intermediate::Value(_) | Intermediate::Attention(_) | Intermediate::Mlp(_) => {}
        }
    }
}

/// A forward under observation.
pub(crate) struct Watch<'a, 'w> {
    watcher: &'a mut Watcher<'w>,
    /// The residual stream as it was read last.
    stream: Vec<f32>,
    read: Vec<f32>,
}

impl<'a, 'w> Watch<'a, 'w> {
    pub(crate) fn new(watcher: &'a mut Watcher<'w>) -> Self {
        Self { watcher, stream: Vec::new(), read: Vec::new() }
    }

    pub(crate) fn embedded<B: Backend>(&mut self, backend: &mut B) {
        backend.read(Stage::Residual, &mut self.stream);
        (self.watcher)(Intermediate::Embedding, &self.stream);
    }

    pub(crate) fn projected<B: Backend>(&mut self, backend: &mut B, layer: usize, kv: &B::Kv) {
        backend.read(Stage::Key(layer, kv), &mut self.read);
        (self.watcher)(Intermediate::Key(layer), &self.read);
        backend.read(Stage::Value(layer, kv), &mut self.read);
        (self.watcher)(Intermediate::Value(layer), &self.read);
    }

    /// The residual stream has grown by a part: no backend keeps the addition, so it is the difference.
    pub(crate) fn added<B: Backend>(&mut self, backend: &mut B, part: Intermediate) {
        backend.read(Stage::Residual, &mut self.read);
        for (before, &now) in self.stream.iter_mut().zip(&self.read) {
            *before = now - *before;
        }
        (self.watcher)(part, &self.stream);
        std::mem::swap(&mut self.stream, &mut self.read);
    }

    pub(crate) fn finished<B: Backend>(&mut self, backend: &mut B, layer: usize) {
        backend.read(Stage::Residual, &mut self.stream);
        (self.watcher)(Intermediate::Layer(layer), &self.stream);
    }

    pub(crate) fn normed<B: Backend>(&mut self, backend: &mut B, weight: &B::Vector, epsilon: f32) {
        backend.read(Stage::Normed(weight, epsilon), &mut self.read);
        (self.watcher)(Intermediate::Last, &self.read);
    }
}
