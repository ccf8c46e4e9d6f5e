//! Measurements of several prompts, laid on top of each other where their answers begin.

use std::collections::BTreeMap;

use demask_figures::Figure;
use demask_terminal::words::counted;
use serde_json::{Value, json};

use super::Similarities;
use crate::analysis::Findings;

/// Compared features, in the order of all arrays.
pub const FEATURES: [&str; 4] = ["K", "V", "attention output", "MLP output"];
/// Names of the features' columns.
pub(super) const COLUMNS: [&str; 4] = ["key", "value", "attention", "mlp"];
/// Features that a cache stores, and so could compare: K and V, as indices of [`FEATURES`].
pub const STORED: [usize; 2] = [KEY, VALUE];
/// K among the features.
pub const KEY: usize = 0;
/// V among the features.
pub const VALUE: usize = 1;
/// Points of a picture with a cloud of them: more would only hide each other.
const CLOUD: usize = 1500;

/// Findings about a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stability {
    /// The model.
    pub model: String,
    /// Device of the runs.
    pub device: String,
    /// Decoded prompts.
    pub prompts: usize,
    /// Layers of the network.
    pub layers: usize,
    /// The average over layers.
    pub(super) average: Map,
    /// Chosen layers.
    pub(super) chosen: BTreeMap<usize, Map>,
    /// `[layers][STORED][FEATURES]`: how the change of a feature goes with the change of K or V, at the positions of
    /// answers.
    moments: Vec<Pairs>,
    /// `moments` of the average over layers.
    average_moments: Pairs,
}

/// `[STORED][FEATURES]`.
type Pairs = [[Moments; 4]; 2];

/// Cosines by step and by position from the answer's start (prompts stand before 0).
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Map(pub(super) BTreeMap<(usize, i64), Cell>);

/// Sums over prompts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Cell {
    sums: [f64; 4],
    count: f64,
}

impl Cell {
    /// Means of the features.
    pub(super) fn means(&self) -> [f64; 4] {
        self.sums.map(|sum| sum / self.count)
    }
}

impl Map {
    fn add(&mut self, step: usize, offset: i64, cosines: [f64; 4]) {
        let cell = self.0.entry((step, offset)).or_default();
        cell.count += 1.0;
        cell.sums.iter_mut().zip(cosines).for_each(|(sum, cosine)| *sum += cosine);
    }

    /// Steps, the first offset and the one after the last.
    pub(super) fn bounds(&self) -> (usize, i64, i64) {
        let offsets = || self.0.keys().map(|key| key.1);
        let steps = self.0.keys().map(|key| key.0 + 1).max().unwrap_or(0);
        (steps, offsets().min().unwrap_or(0), offsets().max().map_or(0, |last| last + 1))
    }

    /// Means of each step over the prompt or over the answer, where there is one.
    pub(super) fn by_step(&self, answer: bool) -> Vec<(usize, [f64; 4])> {
        let mut sums: BTreeMap<usize, Cell> = BTreeMap::new();
        for (&(step, offset), cell) in &self.0 {
            if (offset >= 0) == answer {
                let sum = sums.entry(step).or_default();
                sum.count += 1.0;
                sum.sums.iter_mut().zip(cell.means()).for_each(|(sum, mean)| *sum += mean);
            }
        }
        sums.into_iter().map(|(step, cell)| (step, cell.means())).collect()
    }

    /// Points of the answer, at most [`CLOUD`] of them, evenly taken.
    pub(super) fn cloud(&self) -> Vec<[f64; 4]> {
        let all: Vec<[f64; 4]> =
            self.0.iter().filter(|((_, offset), _)| *offset >= 0).map(|(_, cell)| cell.means()).collect();
        let every = all.len().div_ceil(CLOUD).max(1);
        all.into_iter().step_by(every).collect()
    }
}

/// Sums for the correlation of two changes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Moments {
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

impl Moments {
    /// Takes a pair of cosines, as changes: near 1, where most cosines are, sums of their squares would lose digits.
    fn add(&mut self, x: f64, y: f64) {
        let (x, y) = (1.0 - x, 1.0 - y);
        self.count += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.yy += y * y;
        self.xy += x * y;
    }

    /// Pearson's coefficient; none where one of the two never differs.
    fn correlation(&self) -> Option<f64> {
        let (x, y) = (self.x / self.count, self.y / self.count);
        let (xx, yy) = (self.xx / self.count - x * x, self.yy / self.count - y * y);
        let scale = (xx * yy).sqrt();
        Some((self.xy / self.count - x * y) / scale).filter(|_| scale > 1e-18).map(|r| r.clamp(-1.0, 1.0))
    }
}

impl Stability {
    /// Creates an empty measurement. Maps are made of the `chosen` layers and of the average.
    pub fn new(model: &str, device: &str, layers: usize, chosen: &[usize]) -> Self {
        Self {
            model: model.to_owned(),
            device: device.to_owned(),
            layers,
            chosen: chosen.iter().map(|&layer| (layer, Map::default())).collect(),
            moments: vec![Default::default(); layers],
            ..Self::default()
        }
    }

    /// Adds a prompt.
    pub fn add(&mut self, found: &Similarities) {
        self.prompts += 1;
        for step in 0..found.steps {
            for position in 0..found.positions {
                self.add_cell(found, step, position);
            }
        }
    }

    fn add_cell(&mut self, found: &Similarities, step: usize, position: usize) {
        let offset = position as i64 - found.prompt as i64;
        let mut average = [0.0; 4];
        for layer in 0..found.layers {
            let cosines: [f64; 4] =
                std::array::from_fn(|feature| f64::from(found.cosine(step, feature, layer, position)));
            average.iter_mut().zip(cosines).for_each(|(sum, cosine)| *sum += cosine / found.layers as f64);
            if let Some(map) = self.chosen.get_mut(&layer) {
                map.add(step, offset, cosines);
            }
            if offset >= 0 {
                take(&mut self.moments[layer], cosines);
            }
        }
        self.average.add(step, offset, average);
        if offset >= 0 {
            take(&mut self.average_moments, average);
        }
    }

    /// Returns the correlation of each feature's change with a stored one's, `KEY` or `VALUE`, in a layer.
    pub fn correlations(&self, layer: usize, stored: usize) -> [Option<f64>; 4] {
        self.moments[layer][stored].map(|moments| moments.correlation())
    }

    /// Returns the correlations of the average over layers.
    pub fn average_correlations(&self, stored: usize) -> [Option<f64>; 4] {
        self.average_moments[stored].map(|moments| moments.correlation())
    }
}

impl Findings for Stability {
    const NAME: &'static str = "stability";

    fn title(&self) -> String {
        format!("Stability of features: {}", self.model)
    }

    fn about(&self) -> String {
        let prompts = counted(self.prompts, "prompt");
        format!(
            "On {}. {prompts}, decoded without a cache; features of each step are compared with those of the step before.",
            self.device
        )
    }

    fn figures(&self) -> Vec<Figure> {
        super::figures::figures(self)
    }

    fn table(&self) -> Vec<Vec<String>> {
        let header = std::iter::once("correlation of the changes").chain(FEATURES).map(str::to_owned).collect();
        let rows = STORED.map(|stored| {
            let told = |r: Option<f64>| r.map_or_else(|| "none".to_owned(), |r| format!("{r:.3}"));
            let of = self.average_correlations(stored).map(told);
            std::iter::once(FEATURES[stored].to_owned()).chain(of).collect()
        });
        std::iter::once(header).chain(rows).collect()
    }

    fn json(&self) -> Value {
        let named = |values: [Option<f64>; 4]| -> Value {
            COLUMNS.iter().zip(values).map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
        };
        let mean = |answer: bool| {
            let steps = self.average.by_step(answer);
            let sum = |feature: usize| steps.iter().map(|(_, means)| means[feature]).sum::<f64>();
            named(std::array::from_fn(|feature| {
                Some(sum(feature) / steps.len() as f64).filter(|mean| mean.is_finite())
            }))
        };
        let with = |stored: usize| {
            let layers = (0..self.layers).map(|layer| named(self.correlations(layer, stored)));
            json!({"average": named(self.average_correlations(stored)), "layers": layers.collect::<Vec<_>>()})
        };
        json!({
            "model": self.model,
            "device": self.device,
            "prompts": self.prompts,
            "layers": self.layers,
            "mean_similarity": {"prompt": mean(false), "answer": mean(true)},
            "correlation_with_key": with(KEY),
            "correlation_with_value": with(VALUE),
        })
    }
}

fn take(pairs: &mut Pairs, cosines: [f64; 4]) {
    for (moments, stored) in pairs.iter_mut().zip(STORED) {
        moments.iter_mut().zip(cosines).for_each(|(moments, cosine)| moments.add(cosines[stored], cosine));
    }
}
