//! Estimate of an answer's costs, computed without weights: operations and bytes by module and by step, and memory.
//!
//! A session runs with a mock in place of its networks, so that its plans are those of a real run. The formula is the
//! receipts'. Numbers that depend on predictions are only as right as the mock.

use demask_checkpoint::AdapterFacts;
use demask_decode::{DecodingReceipt, Session};
use demask_model::{ArchSpec, Convention, StepInput, WeightError, attention_shape, keys_read, step_cost};
use demask_step::{Cost, ForwardInput, LayerRows, Mask, Operations, Predictions};
use demask_tensor::{PAGE, PageKind};
use serde::Serialize;

use super::{
    dry_run::{DryRunGroup, ReplayError},
    model_shape::ModelShape,
};
use crate::{
    BackendOptions, DeviceOptions, UnusableDevice,
    footprint::{Footprint, WeightBytes},
    load::DEFAULT_ROW_BUDGET,
};

/// Rules for counting costs.
#[derive(Debug, Clone, Copy)]
pub struct Counting<'a> {
    /// Rule for counting operations.
    pub convention: Convention,
    /// Device of the networks: it decides the formats of weights and K/V.
    pub device: &'a DeviceOptions,
}

/// Costs cannot be known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EstimateError {
    /// The device is not usable.
    #[error(transparent)]
    Device(#[from] UnusableDevice),
    /// A tensor is missing.
    #[error(transparent)]
    Weights(#[from] WeightError),
    /// The mock has no predictions for the run.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// Costs of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Estimate {
    /// Rule for counting operations.
    pub convention: &'static str,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Methods and counts, as the receipt of a run has them.
    #[serde(flatten)]
    pub decoding: DecodingReceipt,
    /// The network's part.
    pub network: NetworkEstimate,
    /// The guide's part, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guide: Option<NetworkEstimate>,
    /// Share of drafts that were accepted among those that were decided, where a guide decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guide_acceptance: Option<f64>,
}

/// Work of one network for an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
#[non_exhaustive]
pub struct NetworkEstimate {
    /// Forwards.
    pub forwards: usize,
    /// Live rows.
    pub rows: u64,
    /// Rows that ran attention and MLP, averaged over layers.
    #[serde(serialize_with = "rounded")]
    pub computed_rows: f64,
    /// Rows that the head answered.
    pub head_rows: u64,
    /// Floating point operations.
    pub flops: f64,
    /// Bytes that have to be read: weights once a forward, keys and values once a sequence or draft.
    pub bytes: u64,
    /// Operations and bytes by module.
    pub modules: Modules,
    /// Memory of weights, of steps and of K/V.
    pub memory: Footprint,
    /// Forwards by their size, in the order in which they first come.
    pub steps: Vec<StepKind>,
}

/// Costs by module.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct Modules {
    /// Products that make Q, K and V, and the one after attention.
    pub projections: Module,
    /// Scores of attention, and sums of values by them.
    pub attention: Module,
    /// MLPs.
    pub mlp: Module,
    /// Logits.
    pub head: Module,
}

/// Costs of a module.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct Module {
    /// Floating point operations.
    pub flops: f64,
    /// Bytes that have to be read.
    pub bytes: u64,
}

impl Modules {
    /// Returns the modules with their names.
    pub fn named(&self) -> [(&'static str, Module); 4] {
        [("projections", self.projections), ("attention", self.attention), ("mlp", self.mlp), ("head", self.head)]
    }
}

/// Forwards of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StepKind {
    /// The first of them, from 0.
    pub first: usize,
    /// Number of forwards.
    pub forwards: usize,
    /// Live rows of each.
    pub rows: u64,
    /// Keys that each reads.
    pub keys: u64,
    /// Records whether layers compute some of the rows alone.
    pub partial: bool,
    /// Rows that ran attention and MLP, averaged over layers, of all together.
    #[serde(serialize_with = "rounded")]
    pub computed_rows: f64,
    /// Rows that the head answered, of all together.
    pub head_rows: u64,
    /// Floating point operations of all together.
    pub flops: f64,
}

/// A network as costs see it.
struct Priced {
    spec: ArchSpec,
    weights: WeightBytes,
    adapter: Option<AdapterFacts>,
    /// Bytes of K and V at one position, all layers together.
    position: u64,
    found: NetworkEstimate,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn rounded<S: serde::Serializer>(rows: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(rows.round() as u64)
}

impl Priced {
    /// Creates the prices of a network of an architecture whose tensors are stored as a model shape's are. The attention mask is
    /// the one of network 0.
    fn new(
        spec: ArchSpec,
        shape: &ModelShape,
        (device, attention): (&DeviceOptions, Mask),
        session: &Session,
        network: usize,
    ) -> Result<Self, EstimateError> {
        let options: BackendOptions = device.backend_options(shape.main_dtype(), attention)?;
        let row_budget = device.row_budget.unwrap_or(DEFAULT_ROW_BUDGET);
        let needs = session.needs_of(network);
        let memory = Footprint::of(&spec, (shape.stored(), shape.info().adapter()), &options, row_budget, &needs)?;
        let kind = PageKind { increments: false, residual: false };
        let page = options.page_bytes(&attention_shape(&spec), spec.layers, spec.hidden, kind);
        let weights = WeightBytes::of(&spec, (shape.stored(), shape.info().adapter()), &options)?;
        let found = NetworkEstimate { memory, ..NetworkEstimate::default() };
        let adapter = shape.info().adapter().cloned();
        Ok(Self { weights, adapter, position: page / PAGE as u64, found, spec })
    }

    /// Prices the requests of a forward.
    fn forward(&mut self, convention: Convention, asked: &DryRunGroup<'_>, answers: &mut [Predictions]) {
        let (mut cost, mut keys, mut partial) = (Cost::default(), 0, false);
        for ((request, &increments), answer) in asked.requests.iter().zip(asked.increments).zip(answers) {
            let ForwardInput { plan, tokens, ask, .. } = request;
            answer.cost = step_cost(&self.spec, convention, StepInput { plan, tokens, ask }, increments);
            if let Some(adapter) = &self.adapter {
                answer.cost.operations += adapter.operations(tokens);
            }
            cost += answer.cost;
            keys += keys_read(plan);
            partial |= plan.layers != LayerRows::All;
        }
        let head = if cost.head_rows > 0 { self.weights.head } else { 0 };
        let Operations { projections, attention, mlp, head: logits } = cost.operations;
        let experts = self.experts(cost.rows);
        let modules = &mut self.found.modules;
        for (module, flops, bytes) in [
            (&mut modules.projections, projections, self.weights.projections),
            (&mut modules.attention, attention, keys * self.position),
            (&mut modules.mlp, mlp, self.weights.mlp + experts),
            (&mut modules.head, logits, head),
        ] {
            module.flops += flops;
            module.bytes += bytes;
        }
        self.count(&cost, keys, partial);
    }

    /// Bytes of experts that so many rows choose, if they choose as chance would: those of `count` of which each row takes
    /// `taken`. Rows that are alike choose fewer.
    fn experts(&self, rows: u64) -> u64 {
        let Some(experts) = &self.spec.experts else { return 0 };
        let left_out = 1.0 - experts.shape.per_row as f64 / experts.shape.count as f64;
        let share = 1.0 - left_out.powi(i32::try_from(rows).unwrap_or(i32::MAX));
        (self.weights.experts as f64 * share).round() as u64
    }

    fn count(&mut self, cost: &Cost, keys: u64, partial: bool) {
        let Cost { rows, computed_rows, head_rows, .. } = *cost;
        let found = &mut self.found;
        let index = found.forwards;
        found.forwards += 1;
        found.rows += rows;
        found.computed_rows += computed_rows;
        found.head_rows += head_rows;
        let same = |kind: &StepKind| (kind.rows, kind.keys, kind.partial) == (rows, keys, partial);
        let at = found.steps.iter().position(same).unwrap_or_else(|| {
            let (first, forwards, flops) = (index, 0, 0.0);
            let kind = StepKind { first, forwards, rows, keys, partial, computed_rows: 0.0, head_rows: 0, flops };
            found.steps.push(kind);
            found.steps.len() - 1
        });
        let kind = &mut found.steps[at];
        kind.forwards += 1;
        kind.computed_rows += computed_rows;
        kind.head_rows += head_rows;
        kind.flops += cost.flops();
    }

    fn finish(self) -> NetworkEstimate {
        let modules = self.found.modules.named();
        NetworkEstimate {
            flops: modules.iter().map(|(_, module)| module.flops).sum(),
            bytes: modules.iter().map(|(_, module)| module.bytes).sum(),
            ..self.found
        }
    }
}

impl ModelShape {
    /// Returns the costs of a session on a network of this architecture, whose tensors are stored in this model's
    /// types. `run` runs the session and lets every group be priced.
    ///
    /// # Errors
    /// If the device is not usable, or what `run` returns.
    pub fn estimate(
        &self,
        spec: ArchSpec,
        session: &mut Session,
        counting: Counting<'_>,
        run: &mut Run<'_>,
    ) -> Result<Estimate, EstimateError> {
        let Counting { convention, device } = counting;
        let device = (device, self.info().facts().mask);
        let mut networks = vec![Priced::new(spec, self, device, session, 0)?];
        if let Some(guide) = self.guide().filter(|_| session.has_guide()) {
            networks.push(Priced::new(guide.info().spec().clone(), guide, device, session, 1)?);
        }
        run(session, &mut |asked, answers| {
            if let Some(network) = networks.get_mut(asked.network) {
                network.forward(convention, asked, answers);
            }
        })?;
        let guide = session.counts().guide;
        let decided = guide.accepted + guide.rejected;
        let mut networks = networks.into_iter().map(Priced::finish);
        Ok(Estimate {
            convention: convention.name(),
            prompt_tokens: session.layout().response(),
            decoding: session.receipt(),
            network: networks.next().unwrap_or_default(),
            guide: networks.next(),
            guide_acceptance: (decided > 0).then(|| guide.accepted as f64 / decided as f64),
        })
    }
}

/// Runs a session, and lets a function price each group.
pub type Run<'a> =
    dyn FnMut(&mut Session, &mut dyn FnMut(&DryRunGroup<'_>, &mut [Predictions])) -> Result<(), ReplayError> + 'a;
