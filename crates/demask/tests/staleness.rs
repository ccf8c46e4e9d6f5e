//! Distance of the K/V that a cache ends with from those of a full forward over the finished canvas: FlashDLM's figure
//! 2 claims that it is small (specs/flashdlm.md#I10). `--nocapture` prints the distances by layer.
#![expect(clippy::print_stdout, reason = "distances are for whoever asks with --nocapture")]

use std::collections::BTreeMap;

use demask::ModelByHand;
use demask::{Model, Options, Prompt};
use demask_model::Intermediate;
use demask_step::{Job, Positions, Predictions, SequenceId, SequenceStep};
use demask_testkit::by_hand::ByHand;

const PROBLEMS: [&str; 3] = [
    "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?",
    "Mia has 12 books. Mia gives 5 of them to Leo. How many books are left?",
    "Tom has 7 coins. Tom finds twice as many. How many coins does Tom have in the end?",
];

/// Cosine distances of one layer's K and V: sum, largest, and how many.
#[derive(Debug, Clone, Copy, Default)]
struct Distance {
    sum: f64,
    largest: f64,
    count: usize,
}

impl Distance {
    fn take(&mut self, left: &[f32], right: &[f32]) {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
        let distance = 1.0 - dot(left, right) / (dot(left, left) * dot(right, right)).sqrt().max(1e-12);
        self.sum += distance;
        self.largest = self.largest.max(distance);
        self.count += 1;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }
}

/// The slots that decoding ends with, the canvas, and where the response begins.
fn decode(model: &mut ModelByHand, problem: &str, cache: &str) -> (Vec<[Vec<f32>; 2]>, Vec<u32>, usize) {
    let options =
        Options { decoder: Some("static".parse().unwrap()), cache: Some(cache.parse().unwrap()), ..Options::default() };
    let mut session = model.info().session(&Prompt::user(problem, None), &options).unwrap();
    let needs = session.needs().to_vec();
    let network = model.network_mut();
    let id: SequenceId = network.open(&needs[0].limits).unwrap();
    while session.wants() == Some(0) {
        let steps: Vec<SequenceStep<'_>> = session.requests().iter().map(|request| request.step(id)).collect();
        let mut out = vec![Predictions::default(); steps.len()];
        network.step(&steps, &mut out).unwrap();
        session.feed(&out);
    }
    let canvas = session.canvas().to_vec();
    let mut all = Positions::new();
    all.set_range(0..canvas.len() as u32);
    let stored = network.stored(id, &all).unwrap();
    network.close(id);
    (stored, canvas, session.layout().response())
}

/// Distances of K and V by layer, of the prompt's positions and of the response's.
fn distances(model: &mut ModelByHand, cache: &str) -> Vec<[[Distance; 2]; 2]> {
    let (layers, mask) = (model.info().spec().layers, model.info().facts().mask);
    let mut found = vec![[[Distance::default(); 2]; 2]; layers];
    for problem in PROBLEMS {
        let (stored, canvas, response) = decode(model, problem, cache);
        let mut fresh = BTreeMap::new();
        let network = model.network_mut();
        network.watch(&canvas, mask, &mut |part, values| drop(fresh.insert(part, values.to_vec()))).unwrap();
        for (layer, tensors) in stored.iter().enumerate() {
            let parts = [Intermediate::Key(layer), Intermediate::Value(layer)];
            for (tensor, (stored, part)) in tensors.iter().zip(parts).enumerate() {
                let width = stored.len() / canvas.len();
                let rows = stored.chunks_exact(width).zip(fresh[&part].chunks_exact(width));
                for (position, (stored, fresh)) in rows.enumerate() {
                    found[layer][tensor][usize::from(position >= response)].take(stored, fresh);
                }
            }
        }
    }
    found
}

#[test]
fn flashdlm_i10_what_a_cache_ends_with_is_near_the_truth() {
    let mut model = Model::demo().unwrap().by_hand().unwrap();
    // Without a cache, the last forward has seen everything but what it committed itself.
    for (cache, most) in [("none", 0.03), ("freecache:block=16", 0.06), ("freecache:block=16,freeze=reference", 0.06)] {
        let found = distances(&mut model, cache);
        println!("{cache}: cosine distance to a full forward, mean and largest");
        for (layer, tensors) in found.iter().enumerate() {
            for (name, places) in ["K", "V"].into_iter().zip(tensors) {
                for (place, distance) in ["prompt", "response"].into_iter().zip(places) {
                    println!("  layer {layer} {name} {place}: {:.4} {:.4}", distance.mean(), distance.largest);
                }
            }
        }
        let worst = found.iter().flatten().flatten().map(Distance::mean).fold(0.0, f64::max);
        assert!(worst <= most, "{cache}: a mean distance of {worst}");
        let stale: f64 = found.iter().flatten().flatten().map(|distance| distance.sum).sum();
        assert!(stale > 0.0, "{cache}: slots are older than the last commits");
    }
}
