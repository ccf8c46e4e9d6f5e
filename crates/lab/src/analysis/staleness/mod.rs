//! Distance of cached K and V from the true ones (FlashDLM, figure 2 and limitations).
//!
//! The true K/V of a forward are those of a forward without a cache over the same canvas. [`measure`] decodes a prompt
//! over a cache, and after each forward compares every slot that attention could read with them: one minus the cosine of
//! the two, by layer, position and age. A slot's age is the number of forwards since its row was last computed in that
//! layer. At the end the slots are compared once more, with the forward over the canvas that was run last.
//!
//! Slots of the same age 0 need not be true: their rows were computed from what other slots held.

mod figures;

use std::collections::BTreeMap;

use demask::{Error, ModelByHand};
use demask_decode::Session;
use demask_figures::{Figure, short};
use demask_model::{Inspect, Intermediate};
use demask_step::{ForwardInput, LayerRows, Mask, Positions, SequenceId};
use demask_terminal::words::counted;
use serde_json::{Value, json};

use super::{Findings, Look, decode};

/// K and V, in the order of all arrays.
const TENSORS: [&str; 2] = ["K", "V"];
/// Prompt and answer, in the order of all arrays.
const PLACES: [&str; 2] = ["prompt", "answer"];

/// Distances, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sum {
    all: f64,
    largest: f64,
    count: usize,
}

impl Sum {
    fn add(&mut self, distance: f64) {
        self.join(Self { all: distance, largest: distance, count: 1 });
    }

    fn join(&mut self, other: Self) {
        self.all += other.all;
        self.largest = self.largest.max(other.largest);
        self.count += other.count;
    }

    /// The mean; none of nothing.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.all / self.count as f64)
    }
}

/// `[TENSORS][PLACES]`.
pub(super) type Sums = [[Sum; 2]; 2];

/// Findings about one cache.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OfCache {
    /// The cache with its parameters.
    pub name: String,
    /// Forwards of all prompts.
    forwards: usize,
    /// Sums by layer: along the runs, and at their ends.
    layers: Vec<Sums>,
    ends: Vec<Sums>,
    /// Sums by forward and by age, of all layers.
    steps: BTreeMap<usize, Sums>,
    ages: BTreeMap<usize, Sums>,
    /// Sums by layer and position from the answer's start: along the runs.
    cells: BTreeMap<(usize, i64), [Sum; 2]>,
}

impl OfCache {
    /// Creates an empty measurement.
    pub fn new(name: &str, layers: usize) -> Self {
        let none = vec![Sums::default(); layers];
        Self { name: name.to_owned(), layers: none.clone(), ends: none, ..Self::default() }
    }

    fn add(&mut self, place: &Place, tensor: usize, distance: f64) {
        let of = usize::from(place.offset >= 0);
        self.layers[place.layer][tensor][of].add(distance);
        self.steps.entry(place.step).or_default()[tensor][of].add(distance);
        self.ages.entry(place.age).or_default()[tensor][of].add(distance);
        self.cells.entry((place.layer, place.offset)).or_default()[tensor].add(distance);
    }

    /// All layers in one.
    fn total(layers: &[Sums]) -> Sums {
        let mut total = Sums::default();
        for (tensor, place) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            for layer in layers {
                total[tensor][place].join(layer[tensor][place]);
            }
        }
        total
    }

    /// The mean age of the slots that forwards read, and the share of them that their forward computed.
    fn age(&self) -> Option<(f64, f64)> {
        let slots = |sums: &Sums| (sums[0][0].count + sums[0][1].count) as f64;
        let all: f64 = self.ages.values().map(slots).sum();
        let aged: f64 = self.ages.iter().map(|(&age, sums)| age as f64 * slots(sums)).sum();
        let fresh = self.ages.get(&0).map_or(0.0, slots);
        (all > 0.0).then(|| (aged / all, fresh / all))
    }
}

/// One slot in one forward.
struct Place {
    step: usize,
    layer: usize,
    offset: i64,
    age: usize,
}

/// Findings about a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Staleness {
    /// The model.
    pub model: String,
    /// Device of the runs.
    pub device: String,
    /// The decoder with its parameters.
    pub decoder: String,
    /// Decoded prompts.
    pub prompts: usize,
    /// The caches.
    pub caches: Vec<OfCache>,
}

/// Decodes a session, and adds the distances of its slots to the findings of its cache. `go_on` gets how many masks are
/// filled after each forward, and returns whether to go on.
pub fn measure(
    model: &mut ModelByHand,
    session: Session,
    found: &mut OfCache,
    go_on: &mut dyn FnMut(usize) -> bool,
) -> Result<(), Error> {
    let mask = model.info().facts().mask;
    let mut slots = Slots::new(model.info().spec().layers, session.layout().len(), session.layout().response());
    decode(model, session, &mut |look| {
        if !go_on(look.session.counts().commits) {
            return Err(Error::Interrupted);
        }
        slots.look(look, mask, found)
    })?;
    Ok(())
}

/// The slots of a sequence: what they hold, and when their rows were last computed.
struct Slots {
    response: usize,
    /// Forwards so far.
    step: usize,
    /// `[layers][positions]`: the forward that computed the row; none if none did yet.
    written: Vec<Vec<Option<usize>>>,
    held: Vec<[Vec<f32>; 2]>,
    /// K and V of a forward without a cache over the canvas that was run last.
    truth: Vec<[Vec<f32>; 2]>,
}

impl Slots {
    fn new(layers: usize, positions: usize, response: usize) -> Self {
        Self { response, step: 0, written: vec![vec![None; positions]; layers], held: Vec::new(), truth: Vec::new() }
    }

    fn look(&mut self, look: Look<'_>, mask: Mask, found: &mut OfCache) -> Result<(), Error> {
        let Look { session, ran, network, sequence } = look;
        let canvas = session.canvas();
        let held = stored(network, sequence, canvas.len())?;
        let Some((request, _)) = ran else {
            self.compare_end(&held, found);
            return Ok(());
        };
        let mut truth = vec![[Vec::new(), Vec::new()]; self.written.len()];
        network.watch(canvas, mask, &mut |part, values| match part {
            Intermediate::Key(layer) => truth[layer][0] = values.to_vec(),
            Intermediate::Value(layer) => truth[layer][1] = values.to_vec(),
            _ => {}
        })?;
        self.note(request, &held);
        self.compare(request.plan.kv_len as usize, &held, &truth, found);
        (self.held, self.truth) = (held, truth);
        self.step += 1;
        found.forwards += 1;
        Ok(())
    }

    /// Notes which rows a forward computed.
    fn note(&mut self, request: &ForwardInput, held: &[[Vec<f32>; 2]]) {
        let (plan, step) = (&request.plan, self.step);
        for (layer, written) in self.written.iter_mut().enumerate() {
            let positions = written.len();
            let changed = |position: u32| {
                let Some(before) = self.held.get(layer) else { return true };
                // A row that a probe chose has both of its slots replaced, one that it left at most one.
                before.iter().zip(&held[layer]).all(|(before, held)| {
                    row_of(before, position as usize, positions) != row_of(held, position as usize, positions)
                })
            };
            let computed = |position: &u32| match &plan.layers {
                LayerRows::All => true,
                LayerRows::Partial { compute, first_whole, .. } => {
                    layer == 0 && *first_whole || compute.contains(*position) || changed(*position)
                }
            };
            let rows: Vec<u32> = plan.query.iter().filter(computed).collect();
            for position in rows {
                written[position as usize] = Some(step);
            }
        }
    }

    fn compare(&self, visible: usize, held: &[[Vec<f32>; 2]], truth: &[[Vec<f32>; 2]], found: &mut OfCache) {
        for (layer, written) in self.written.iter().enumerate() {
            for (position, written_at) in written.iter().enumerate().take(visible) {
                let Some(written_at) = written_at else { continue };
                let offset = position as i64 - self.response as i64;
                let place = Place { step: self.step, layer, offset, age: self.step - written_at };
                for (tensor, (held, truth)) in held[layer].iter().zip(&truth[layer]).enumerate() {
                    found.add(&place, tensor, distance(held, truth, position, written.len()));
                }
            }
        }
    }

    /// Compares the slots at the end with the truth of the last canvas that was run: no forward has read its commits.
    fn compare_end(&self, held: &[[Vec<f32>; 2]], found: &mut OfCache) {
        for (layer, written) in self.written.iter().enumerate() {
            for position in (0..written.len()).filter(|&position| written[position].is_some()) {
                let place = usize::from(position >= self.response);
                for (tensor, (held, truth)) in held[layer].iter().zip(&self.truth[layer]).enumerate() {
                    found.ends[layer][tensor][place].add(distance(held, truth, position, written.len()));
                }
            }
        }
    }
}

/// K and V of all slots, layer by layer.
fn stored(network: &mut dyn Inspect, sequence: SequenceId, positions: usize) -> Result<Vec<[Vec<f32>; 2]>, Error> {
    let mut all = Positions::new();
    all.set_range(0..positions as u32);
    network.stored(sequence, &all).map_err(Error::Device)
}

fn row_of(values: &[f32], position: usize, positions: usize) -> &[f32] {
    let width = values.len() / positions;
    &values[position * width..][..width]
}

/// One minus the cosine of a row of two tensors; 0 where they are equal, whatever rounding would say.
fn distance(held: &[f32], truth: &[f32], position: usize, positions: usize) -> f64 {
    let [a, b] = [held, truth].map(|values| row_of(values, position, positions));
    if a == b {
        return 0.0;
    }
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    (1.0 - dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(1e-12)).max(0.0)
}

impl Findings for Staleness {
    const NAME: &'static str = "staleness";

    fn title(&self) -> String {
        format!("Staleness of cached K and V: {}", self.model)
    }

    fn about(&self) -> String {
        format!(
            "On {}. {}, decoder {}; the distance of a slot is one minus the cosine with K or V of a forward without a \
             cache over the same canvas.",
            self.device,
            counted(self.prompts, "prompt"),
            self.decoder
        )
    }

    fn figures(&self) -> Vec<Figure> {
        figures::figures(self)
    }

    fn table(&self) -> Vec<Vec<String>> {
        let mut header = vec!["cache".to_owned(), "forwards".to_owned()];
        for (place, tensor, when) in columns() {
            header.push(format!("{} {}{when}", TENSORS[tensor], PLACES[place]));
        }
        header.extend(["mean age".to_owned(), "% computed".to_owned()]);
        let rows = self.caches.iter().map(|cache| {
            let sums = [OfCache::total(&cache.layers), OfCache::total(&cache.ends)];
            let per_prompt = cache.forwards as f64 / self.prompts.max(1) as f64;
            let mut row = vec![cache.name.clone(), short(per_prompt)];
            for (place, tensor, when) in columns() {
                let mean = sums[usize::from(!when.is_empty())][tensor][place].mean();
                row.push(mean.map(|mean| format!("{mean:.4}")).unwrap_or_default());
            }
            let age = cache.age();
            row.push(age.map(|(age, _)| format!("{age:.1}")).unwrap_or_default());
            row.push(age.map(|(_, fresh)| format!("{:.0}", 100.0 * fresh)).unwrap_or_default());
            row
        });
        std::iter::once(header).chain(rows).collect()
    }

    fn json(&self) -> Value {
        let named = |sums: Sums| -> Value {
            let of = |tensor: usize| -> Value {
                let place = |place: usize| {
                    let sum = &sums[tensor][place];
                    json!({"mean": sum.mean(), "largest": sum.mean().map(|_| sum.largest), "slots": sum.count})
                };
                json!({"prompt": place(0), "answer": place(1)})
            };
            json!({"key": of(0), "value": of(1)})
        };
        let caches = self.caches.iter().map(|cache| {
            json!({
                "cache": cache.name,
                "forwards": cache.forwards,
                "mean_age": cache.age().map(|(age, _)| age),
                "computed": cache.age().map(|(_, fresh)| fresh),
                "along": {
                    "all": named(OfCache::total(&cache.layers)),
                    "layers": cache.layers.iter().copied().map(named).collect::<Vec<_>>(),
                },
                "end": {
                    "all": named(OfCache::total(&cache.ends)),
                    "layers": cache.ends.iter().copied().map(named).collect::<Vec<_>>(),
                },
            })
        });
        json!({
            "model": self.model,
            "device": self.device,
            "decoder": self.decoder,
            "prompts": self.prompts,
            "caches": caches.collect::<Vec<_>>(),
        })
    }
}

/// The columns of distances in a table: place, tensor, and at which time.
fn columns() -> impl Iterator<Item = (usize, usize, &'static str)> {
    let times = ["", " at end"].into_iter();
    times.flat_map(|when| [(0, 0, when), (0, 1, when), (1, 0, when), (1, 1, when)])
}

#[cfg(test)]
mod tests;
