//! The measuring of a cost curve: forwards of a few layers and the head, each number of rows a few times.

use std::time::{Duration, Instant};

use demask_model::Inspect;
use demask_step::{
    CostCurve, HeadAsk, HeadPoint, LayersPoint, Predictions, SequenceId, SequenceNeeds, SequenceStep, StepPlan,
};

use crate::{Error, Model, Prompter, fingerprint};

/// Rows that are measured, and the keys that they see: for each number of keys as many rows as there are keys.
const ROWS: [usize; 12] = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256];
const KEYS: [usize; 2] = [128, 512];
/// Time that all of it may take, and that one point runs for unless a single forward takes longer.
const BUDGET: Duration = Duration::from_millis(1800);
const POINT: Duration = Duration::from_millis(8);
const MOST_RUNS: usize = 40;
/// Weights that no cache of a processor holds: so many bytes of layers are run, or all layers.
const BEYOND_CACHES: usize = 256 << 20;

impl Model {
    /// Measures its network's cost curve, in 2 s at most.
    ///
    /// # Errors
    /// If there is no memory for the forwards, or the device fails.
    pub fn measure_curve(&mut self) -> Result<CostCurve, Error> {
        let (machine, model) = self.curve_names();
        let started = Instant::now();
        let network = self.network_mut();
        let positions = KEYS[KEYS.len() - 1].min(network.spec().context);
        let needs = SequenceNeeds { positions, rows: positions, predictions: positions, ..SequenceNeeds::default() };
        let sequence = network.open(&needs)?;
        let (all, few) = (network.spec().layers, layers_beyond_caches(network));
        network.run_layers(Some(few));
        network.time_parts(true);
        let mut bench = Bench { network, sequence, started, layers: Vec::new(), head: Vec::new() };
        let measured = bench.points(positions);
        let (mut layers, head) = (bench.layers, bench.head);
        network.time_parts(false);
        network.run_layers(None);
        network.close(sequence);
        measured?;
        for point in &mut layers {
            point.seconds *= all as f64 / few as f64;
        }
        CostCurve::new(machine, model, layers, head).map_err(|error| Error::CostCurve(error.into()))
    }
}

/// Returns what a curve says of the model that it was measured on: forwards cost what its shape makes them cost.
pub(crate) fn curve_model(prompter: &Prompter) -> String {
    format!("{} {:016x}", prompter.name(), fingerprint::architecture(prompter.spec()).fingerprint())
}

/// Number of layers that exceed the processor's caches.
fn layers_beyond_caches(network: &dyn Inspect) -> usize {
    let layers = network.spec().layers.max(1);
    BEYOND_CACHES.div_ceil((network.forward_bytes() / layers).max(1)).clamp(1, layers)
}

/// A network while it is measured.
struct Bench<'a> {
    network: &'a mut dyn Inspect,
    sequence: SequenceId,
    started: Instant,
    layers: Vec<LayersPoint>,
    head: Vec<HeadPoint>,
}

impl Bench<'_> {
    /// Measures all points, few rows first: where time runs out, the curve goes on as it went.
    fn points(&mut self, positions: usize) -> Result<(), Error> {
        let written = self.forward(positions.min(KEYS[0]), 0)?;
        let mut slowest = Duration::from_secs_f64(written.0 + written.1);
        if positions > KEYS[0] {
            // Slots are written once, the rows behind them see them.
            self.forward(positions, positions.min(KEYS[0]))?;
        }
        let mut before = 0;
        for keys in KEYS.map(|keys| keys.min(positions)) {
            if keys == before {
                continue;
            }
            for rows in ROWS.into_iter().filter(|&rows| rows <= keys) {
                if self.started.elapsed() + slowest * 3 > BUDGET && !self.layers.is_empty() {
                    break;
                }
                let (layers, head) = self.point(keys, rows)?;
                slowest = slowest.max(Duration::from_secs_f64(layers + head));
                self.layers.push(LayersPoint { rows, keys, seconds: layers });
                if before == 0 {
                    self.head.push(HeadPoint { rows, seconds: head });
                }
            }
            before = keys;
        }
        Ok(())
    }

    /// The fastest of several forwards of the last `rows` positions of `keys`: layers and head.
    fn point(&mut self, keys: usize, rows: usize) -> Result<(f64, f64), Error> {
        let (started, mut best) = (Instant::now(), (f64::INFINITY, f64::INFINITY));
        for run in 0..MOST_RUNS {
            if run >= 3 && started.elapsed() > POINT {
                break;
            }
            let (layers, head) = self.forward(keys, keys - rows)?;
            best = (best.0.min(layers), best.1.min(head));
        }
        Ok((best.0.max(1e-9), best.1.max(1e-9)))
    }

    /// Seconds of a forward of the positions from `first` to `end`: layers and head.
    fn forward(&mut self, end: usize, first: usize) -> Result<(f64, f64), Error> {
        let live = first as u32..end as u32;
        let tokens: Vec<u32> = live.clone().map(|position| position % self.network.spec().vocabulary as u32).collect();
        let shift = self.network.spec().shift as u32;
        let mask = self.network.spec().attention;
        let mut plan = StepPlan { live: live.clone().into(), visible: end as u32, mask, ..StepPlan::default() };
        plan.predict = (live.start + shift..live.end.max(live.start + shift)).collect();
        let ask = HeadAsk::default();
        let step = SequenceStep { sequence: self.sequence, tokens: &tokens, plan: &plan, ask: &ask, blend: None };
        let mut answers = [Predictions::default()];
        let (before, started) = (self.network.part_seconds(), Instant::now());
        self.network.step(&[step], &mut answers).map_err(Error::Device)?;
        let seconds = started.elapsed().as_secs_f64();
        let head = self.network.part_seconds().head - before.head;
        Ok(((seconds - head).max(0.0), head))
    }
}
