//! Small random models, for tests of what the engine promises whatever the weights.
#![allow(dead_code)]

mod device;

use std::{collections::HashMap, ops::ControlFlow};

use demask::Request;
use demask_cpu::{
    CpuBackend, CpuOptions,
    isa::{Isa, testable},
    linear::{Activations, Products, Quantisation},
};
use demask_cuda::CudaOptions;
use demask_decode::Session;
use demask_engine::{RequestId, Scheduler};
use demask_model::{
    AdapterUse, ArchSpec, Experts, Inspect, LayerRole, Mlp, Role, Rope, RopeScaling, Runner, StoredLora, WeightError,
    WeightSource, Weights, expected_tensors,
};
use demask_step::{BlockRules, Mask, random::mix};
use demask_tensor::{Backend, Dtype, ExpertGroups, ExpertShape, RouterRule, Score, Share, StoredTensor, TensorView};
use demask_testkit::naive::network::{Experts as NaiveExperts, Layer, Transformer};

pub use device::{Device, emulated};

/// Random numbers from a counter.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Roughly normal, deviation 1.
    pub fn normal(&mut self) -> f32 {
        (0..6).map(|_| (self.roll() >> 40) as f32 / (1u64 << 24) as f32 - 0.5).sum::<f32>() * 1.4
    }
}

/// Factor of random adapters.
const ADAPTER_SCALE: f32 = 1.5;

/// Random weights of an architecture.
pub struct RandomWeights {
    tensors: HashMap<Role, (usize, usize, Vec<u8>)>,
    adapter: Option<RandomAdapter>,
}

/// A random adapter: its use, its rank, and its two matrices for each product that has one.
struct RandomAdapter {
    usage: AdapterUse,
    rank: usize,
    pairs: HashMap<Role, [Vec<u8>; 2]>,
}

impl RandomWeights {
    pub fn new(spec: &ArchSpec, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let tensors = expected_tensors(spec)
            .into_iter()
            .map(|tensor| {
                let scale = if tensor.vector { 0.3 } else { 2.0 / (tensor.columns as f32).sqrt() };
                let centre = if tensor.vector { 1.0 } else { 0.0 };
                let count = tensor.rows * tensor.columns;
                let bytes = (0..count).flat_map(|_| (centre + scale * dice.normal()).to_le_bytes()).collect();
                (tensor.role, (tensor.rows, tensor.columns, bytes))
            })
            .collect();
        Self { tensors, adapter: None }
    }
}

impl RandomWeights {
    /// Makes the embedding of a token infinite and not a number in turns: whatever is computed for it is no number.
    pub fn with_no_number(mut self, token: u32) -> Self {
        if let Some((_, columns, bytes)) = self.tensors.get_mut(&Role::Embedding) {
            let row = &mut bytes[token as usize * *columns * 4..][..*columns * 4];
            let values = [f32::NAN, f32::INFINITY].map(f32::to_le_bytes).concat();
            row.chunks_mut(8).for_each(|pair| pair.copy_from_slice(&values[..pair.len()]));
        }
        self
    }

    /// Puts a random adapter beside every product of the layers but experts. `size` 0: its second matrices are zeros.
    pub fn with_adapter(mut self, spec: &ArchSpec, (usage, rank): (AdapterUse, usize), size: f32) -> Self {
        let mut dice = Dice::new(91);
        let mut numbers = |count: usize, scale: f32| -> Vec<u8> {
            (0..count).flat_map(|_| (scale * dice.normal()).to_le_bytes()).collect()
        };
        let of_layers = |role: &Role| match role {
            Role::Layer(layer, part) => {
                !part.is_mlp() || (*part > LayerRole::MlpNorm && matches!(spec.mlp(*layer), Mlp::Dense { .. }))
            }
            _ => false,
        };
        let tensors = expected_tensors(spec).into_iter().filter(|tensor| !tensor.vector && of_layers(&tensor.role));
        let pairs = tensors.map(|tensor| {
            let a = numbers(rank * tensor.columns, 1.0 / (tensor.columns as f32).sqrt());
            (tensor.role, [a, numbers(tensor.rows * rank, size / (rank as f32).sqrt())])
        });
        self.adapter = Some(RandomAdapter { usage, rank, pairs: pairs.collect() });
        self
    }

    /// Adds the adapter into the weights, one number after the other.
    pub fn merged(mut self) -> Self {
        let read = |bytes: &[u8], at: usize| f32::from_le_bytes(bytes[4 * at..][..4].try_into().unwrap());
        let Some(RandomAdapter { rank, pairs, .. }) = self.adapter.take() else { return self };
        for (role, [a, b]) in pairs {
            let (rows, columns, bytes) = self.tensors.get_mut(&role).unwrap();
            for (at, value) in bytes.chunks_exact_mut(4).enumerate().take(*rows * *columns) {
                let (row, column) = (at / *columns, at % *columns);
                let products = (0..rank).map(|rank_| {
                    f64::from(read(&b, row * rank + rank_)) * f64::from(read(&a, rank_ * *columns + column))
                });
                let merged = f64::from(read(value, 0)) + f64::from(ADAPTER_SCALE) * products.sum::<f64>();
                value.copy_from_slice(&(merged as f32).to_le_bytes());
            }
        }
        self
    }

    /// Returns these weights as a naive transformer that knows this many positions.
    pub fn twin(&self, spec: &ArchSpec, positions: usize) -> Transformer {
        let values = |role: Role| -> Vec<f32> {
            let bytes = self.tensors[&role].2.chunks_exact(4);
            bytes.map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect()
        };
        let layer = |layer: usize| {
            let of = |role| values(Role::Layer(layer, role));
            let dense = |role| if matches!(spec.mlp(layer), Mlp::Dense { .. }) { of(role) } else { Vec::new() };
            Layer {
                attention_norm: of(LayerRole::AttentionNorm),
                query: of(LayerRole::Query),
                key: of(LayerRole::Key),
                value: of(LayerRole::Value),
                biases: spec.qkv_bias.then(|| [LayerRole::QueryBias, LayerRole::KeyBias, LayerRole::ValueBias].map(of)),
                head_norms: spec.head_norms.then(|| [LayerRole::QueryNorm, LayerRole::KeyNorm].map(of)),
                output: of(LayerRole::Output),
                mlp_norm: of(LayerRole::MlpNorm),
                gate: dense(LayerRole::Gate),
                up: dense(LayerRole::Up),
                down: dense(LayerRole::Down),
                experts: match spec.mlp(layer) {
                    Mlp::Dense { .. } => None,
                    Mlp::Experts(experts) => Some(naive_experts(experts, &of)),
                },
            }
        };
        let frequencies = spec.rope.inverse_frequencies();
        let angles: Vec<f32> = (0..positions)
            .flat_map(|position| frequencies.iter().map(move |frequency| position as f32 * frequency))
            .collect();
        Transformer {
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            epsilon: spec.norm_epsilon,
            embedding: values(Role::Embedding),
            cos: angles.iter().map(|angle| angle.cos()).collect(),
            sin: angles.iter().map(|angle| angle.sin()).collect(),
            rotated: spec.rope.rotated,
            layers: (0..spec.layers).map(layer).collect(),
            final_norm: values(Role::FinalNorm),
            head: values(if spec.tied { Role::Embedding } else { Role::Head }),
        }
    }
}

/// The same experts in f64.
fn naive_experts(experts: &Experts, of: &dyn Fn(LayerRole) -> Vec<f32>) -> NaiveExperts {
    let Experts { shape, rule, biased, .. } = experts;
    let expert =
        |expert| [LayerRole::ExpertGate(expert), LayerRole::ExpertUp(expert), LayerRole::ExpertDown(expert)].map(of);
    NaiveExperts {
        router: of(LayerRole::Router),
        bias: biased.then(|| of(LayerRole::RouterBias)),
        experts: (0..shape.count).map(expert).collect(),
        shared: (shape.shared_ffn > 0)
            .then(|| [LayerRole::SharedGate, LayerRole::SharedUp, LayerRole::SharedDown].map(of)),
        per_row: shape.per_row,
        sigmoid: rule.score == Score::Sigmoid,
        groups: rule.groups.map(|groups| [groups.count, groups.selected]),
        renormalised: rule.share != Share::Whole,
        scale: f64::from(rule.scale),
    }
}

impl WeightSource for RandomWeights {
    fn tensor(&self, role: Role) -> Result<StoredTensor<'_>, WeightError> {
        let (rows, columns, bytes) = self.tensors.get(&role).ok_or(WeightError::Missing(role))?;
        Ok(TensorView::new(Dtype::F32, *rows, *columns, bytes).into())
    }

    fn adapter_use(&self) -> Option<AdapterUse> {
        self.adapter.as_ref().map(|adapter| adapter.usage)
    }

    fn adapter(&self, role: Role) -> Option<StoredLora<'_>> {
        let RandomAdapter { rank, pairs, .. } = self.adapter.as_ref()?;
        let [a, b] = pairs.get(&role)?;
        let matrix =
            |rows: usize, bytes| TensorView::new(Dtype::F32, rows, <[u8]>::len(bytes) / 4 / rows, bytes).into();
        let rows = self.tensors[&role].0;
        Some(StoredLora { a: matrix(*rank, a), b: matrix(rows, b), scale: ADAPTER_SCALE })
    }
}

fn base() -> ArchSpec {
    ArchSpec {
        family: "LLaDA",
        hidden: 48,
        layers: 3,
        heads: 4,
        kv_heads: 4,
        head_dim: 12,
        ffn: 80,
        experts: None,
        vocabulary: 70,
        context: 512,
        rope: Rope { theta: 1e4, rotated: 12, full_precision: true, scaling: RopeScaling::None },
        norm_epsilon: 1e-5,
        qkv_bias: false,
        head_norms: false,
        tied: false,
        attention: Mask::Full,
        shift: 0,
        blocks: BlockRules::default(),
        query_scale: None,
    }
}

/// Weights that do not add up to 1, as LLaDA-MoE has them.
fn softmax_experts() -> Experts {
    Experts {
        shape: ExpertShape { count: 10, per_row: 3, ffn: 20, shared_ffn: 0 },
        rule: RouterRule { score: Score::Softmax, groups: None, share: Share::Whole, scale: 1.0 },
        biased: false,
        dense: Vec::new(),
    }
}

/// All that LLaDA2 has: groups, a bias, a scale, an expert for all rows, a first layer without any.
fn grouped_experts() -> Experts {
    let rule = RouterRule {
        score: Score::Sigmoid,
        groups: Some(ExpertGroups { count: 4, selected: 2 }),
        share: Share::OfChosen(1e-20),
        scale: 2.5,
    };
    let shape = ExpertShape { count: 12, per_row: 4, ffn: 24, shared_ffn: 40 };
    Experts { shape, rule, biased: true, dense: vec![0] }
}

/// One architecture of each kind that the forward pass distinguishes.
pub fn specs() -> Vec<(&'static str, ArchSpec)> {
    let wide = Rope { theta: 1e6, rotated: 24, full_precision: false, scaling: RopeScaling::None };
    vec![
        ("full", base()),
        ("shifted", ArchSpec { kv_heads: 1, qkv_bias: true, shift: 1, ..base() }),
        (
            "block",
            ArchSpec {
                kv_heads: 2,
                head_dim: 24,
                rope: wide.clone(),
                head_norms: true,
                attention: Mask::blocks(4),
                ..base()
            },
        ),
        ("causal", ArchSpec { kv_heads: 2, tied: true, qkv_bias: true, shift: 1, attention: Mask::Causal, ..base() }),
        ("experts", ArchSpec { experts: Some(softmax_experts()), head_norms: true, ..base() }),
        (
            "grouped experts",
            ArchSpec {
                kv_heads: 2,
                experts: Some(grouped_experts()),
                head_norms: true,
                attention: Mask::blocks(4),
                rope: Rope { rotated: 6, ..base().rope },
                ..base()
            },
        ),
    ]
}

/// A network with random weights.
pub fn runner(spec: &ArchSpec, device: impl Into<Device>, dtype: Dtype, threads: usize) -> Box<dyn Inspect> {
    runner_of(spec, device, Products::plain(dtype), threads)
}

/// Kinds of products with quantised weights that a device has.
pub fn quantised_on(device: Device, dtype: Dtype) -> Vec<Products> {
    let mut kinds = quantised(dtype);
    kinds.retain(|kind| device != Device::EmulatedGpu || kind.activations == Activations::Plain);
    kinds
}

/// Every kind of products with quantised weights.
pub fn quantised(dtype: Dtype) -> Vec<Products> {
    let kinds = Quantisation::ALL.into_iter().flat_map(|to| {
        [Activations::Plain, Activations::Int8].map(|activations| Products {
            dtype,
            quantisation: Some(to),
            activations,
        })
    });
    kinds.collect()
}

/// Runs sessions on a network, all at the same time; also how many of them shared a forward at most.
pub fn together(network: Box<dyn Inspect>, sessions: Vec<Session>) -> (Vec<Session>, usize) {
    let mut scheduler = Scheduler::new().with_leak(|leak| panic!("{leak}"));
    let network = scheduler.add(network);
    let ids = sessions.into_iter().map(|session| scheduler.submit(Request::new(session), &[network]).unwrap());
    let ids: Vec<RequestId> = ids.collect();
    let (mut over, mut most) = (Vec::new(), 0);
    while !scheduler.is_idle() {
        most = most.max(scheduler.step(&mut |_| ControlFlow::Continue(()), &mut over).requests);
    }
    over.sort_by_key(|request| ids.iter().position(|id| *id == request.id()));
    let sessions = over.into_iter().map(|request| {
        request.end().unwrap().as_ref().unwrap();
        request.into_job().unwrap()
    });
    (sessions.collect(), most)
}

/// The naive twin of [`runner`].
pub fn twin(spec: &ArchSpec, positions: usize) -> Transformer {
    RandomWeights::new(spec, 7).twin(spec, positions)
}

/// A network with random weights for products of any kind.
pub fn runner_of(spec: &ArchSpec, device: impl Into<Device>, products: Products, threads: usize) -> Box<dyn Inspect> {
    let Products { dtype, quantisation, activations } = products;
    match device.into() {
        Device::Cpu(isa) => on(spec, CpuBackend::new(CpuOptions { isa, dtype, quantisation, activations, threads })),
        Device::EmulatedGpu => {
            let spec = if dtype == Dtype::F32 { spec.clone() } else { in_eights(spec) };
            on(&spec, emulated(CudaOptions { dtype, quantisation }))
        }
    }
}

/// Returns the architecture with heads of a multiple of eight: matrix units take no others.
fn in_eights(spec: &ArchSpec) -> ArchSpec {
    let wide = |width: usize| width.next_multiple_of(8);
    let rope = Rope { rotated: wide(spec.rope.rotated), ..spec.rope.clone() };
    ArchSpec { head_dim: wide(spec.head_dim), rope, ..spec.clone() }
}

/// A network on a processor, with these weights.
pub fn runner_with(spec: &ArchSpec, weights: &RandomWeights, options: CpuOptions) -> Box<dyn Inspect> {
    let backend = CpuBackend::new(options);
    let weights = Weights::load(spec, weights, &backend, &mut |_| true).unwrap();
    Box::new(Runner::new(spec.clone(), weights, backend, 64).unwrap())
}

fn on<B: Backend + 'static>(spec: &ArchSpec, backend: B) -> Box<dyn Inspect> {
    let weights = Weights::load(spec, &RandomWeights::new(spec, 7), &backend, &mut |_| true).unwrap();
    Box::new(Runner::new(spec.clone(), weights, backend, 64).unwrap())
}

/// Every tier and element type that this machine has, and bf16 in tiles where their instructions are trapped.
pub fn tiers() -> Vec<(Isa, Dtype)> {
    // SAFETY: the trap executes tile instructions where it says so.
    let isas = unsafe { testable(demask_testkit::tiles::trap) };
    let available = Isa::available();
    let executed = isas.into_iter().filter(|isa| isa.has(isa.tier()));
    let tiers = executed.flat_map(|isa| [(isa, Dtype::F32), (isa, Dtype::Bf16)]);
    tiers.filter(|(isa, dtype)| *dtype == Dtype::Bf16 || available.contains(isa)).collect()
}

/// Returns the tiers as devices.
pub fn processor() -> Vec<(Device, Dtype)> {
    tiers().into_iter().map(|(isa, dtype)| (Device::Cpu(isa), dtype)).collect()
}

/// Returns the devices for one of the [`specs`], with the kernels of GPUs for those that differ most: played on the
/// processor they are slow.
pub fn devices(spec: &str) -> Vec<(Device, Dtype)> {
    let mut devices = processor();
    if ["shifted", "block"].contains(&spec) {
        devices.extend([Dtype::F32, Dtype::Bf16].map(|dtype| (Device::EmulatedGpu, dtype)));
    }
    devices
}
