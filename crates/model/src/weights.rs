//! All weights of a model in the layout of one backend.

use std::collections::BTreeMap;

use demask_step::Operations;
use demask_tensor::{Backend, ExpertWeights, Lora, MlpWeights, PackError, QkvWeights, RouterRule, StoredTensor};

use crate::{
    AdapterUse, ArchSpec, ExpectedTensor, Experts, LayerRole, Mlp, Role, WeightError, WeightSource,
    adapter::{MergeError, MergedWeight},
    expected_tensors,
    lora::{AdapterRows, LayerAdapters, ModelAdapter, PackedLora},
    roles::expert_roles,
};

/// Packed weights.
pub struct Weights<B: Backend> {
    /// Token embeddings.
    pub(crate) embedding: B::Embedding,
    /// One per layer.
    pub(crate) layers: Vec<LayerWeights<B>>,
    /// Norm in front of the head.
    pub(crate) final_norm: B::Vector,
    /// Head; packed from the embedding table in tied models.
    pub(crate) head: B::Matrix,
    /// Adapter that rows take beside the weights.
    pub(crate) adapter: Option<ModelAdapter<B>>,
    bytes: usize,
    embedding_bytes: usize,
    expert_bytes: usize,
    formats: BTreeMap<String, usize>,
}

/// Packed weights of one layer.
pub(crate) struct LayerWeights<B: Backend> {
    attention_norm: B::Vector,
    query: B::Matrix,
    key: B::Matrix,
    value: B::Matrix,
    biases: Option<[B::Vector; 3]>,
    head_norms: Option<[B::Vector; 2]>,
    pub(crate) output: B::Matrix,
    pub(crate) mlp_norm: B::Vector,
    pub(crate) mlp: PackedMlp<B>,
}

/// Part of a layer after attention, packed.
pub(crate) enum PackedMlp<B: Backend> {
    Dense(PackedDense<B>),
    Experts(PackedExperts<B>),
}

/// One MLP.
pub(crate) struct PackedDense<B: Backend> {
    pub(crate) gate_up: B::GateUp,
    pub(crate) down: B::Matrix,
}

/// A router and its experts.
pub(crate) struct PackedExperts<B: Backend> {
    router: B::Matrix,
    bias: Option<B::Vector>,
    rule: RouterRule,
    /// `[experts]`.
    gate_up: Vec<B::GateUp>,
    /// `[experts]`.
    down: Vec<B::Matrix>,
    shared: Option<PackedDense<B>>,
}

/// Weights could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The source lacks a tensor.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// A tensor cannot be packed.
    #[error("the {role} cannot be loaded: {source}")]
    Pack {
        /// Role of the tensor.
        role: Role,
        /// Error of the backend.
        source: PackError,
    },
    /// A weight in integers cannot take an adapter into it.
    #[error(
        "the adapter cannot be merged into the {role}, which is kept in integers: give `adapter_use` all, which computes it \
         beside the weights, or weights that are not quantised"
    )]
    MergeIntoIntegers {
        /// Role of the weight.
        role: Role,
    },
    /// The caller's progress function asked to stop.
    #[error("loading was interrupted")]
    Interrupted,
}

/// Tensors announced to the source ahead: the disk reads while the processor packs.
const AHEAD: usize = 4;

/// Loads tensor by tensor.
struct Loader<'a, B: Backend> {
    backend: &'a B,
    source: &'a dyn WeightSource,
    progress: &'a mut dyn FnMut(u64) -> bool,
    /// Tensors not announced to the source yet, in the order in which they are loaded.
    coming: std::vec::IntoIter<ExpectedTensor>,
    read: u64,
    bytes: usize,
    /// Bytes of experts that a row may choose.
    expert_bytes: usize,
    formats: BTreeMap<String, usize>,
}

impl<B: Backend> Loader<'_, B> {
    /// Announces the next tensors to the source.
    fn announce(&mut self, count: usize) {
        self.coming.by_ref().take(count).for_each(|tensor| self.source.coming(tensor.role));
    }

    fn count_read(&mut self, role: Role) -> Result<(), LoadError> {
        let adapter = self.source.adapter(role).map_or(0, |adapter| adapter.stored_bytes());
        self.read += (self.source.tensor(role)?.stored_bytes() + adapter) as u64;
        self.announce(1);
        if (self.progress)(self.read) { Ok(()) } else { Err(LoadError::Interrupted) }
    }

    fn packed(&mut self, format: String, bytes: usize) {
        self.bytes += bytes;
        *self.formats.entry(format).or_default() += bytes;
    }

    /// The table.
    fn embedding(&mut self) -> Result<B::Embedding, LoadError> {
        let role = Role::Embedding;
        let table = self.backend.pack_embedding(self.source.tensor(role)?);
        let table = table.map_err(|source| LoadError::Pack { role, source })?;
        self.bytes += self.backend.embedding_bytes(&table);
        Ok(table)
    }

    fn vector(&mut self, role: Role) -> Result<B::Vector, LoadError> {
        let failed = |source| LoadError::Pack { role, source };
        let values = self.source.tensor(role)?.to_f32().map_err(|error| failed(error.into()))?;
        // No norm and no bias has such a number, and products in integers would hide it.
        if !values.iter().all(|value| value.is_finite()) {
            return Err(failed(PackError::NotFinite));
        }
        self.bytes += values.len() * size_of::<f32>();
        let vector = self.backend.vector(&values).map_err(failed)?;
        self.count_read(role)?;
        Ok(vector)
    }

    /// Returns a weight with the adapter that is to be added into it; nothing where there is none.
    fn merged(&self, role: Role) -> Result<Option<MergedWeight>, LoadError> {
        let adapter = self.source.adapter(role).filter(|_| self.source.adapter_use() == Some(AdapterUse::Merged));
        let Some(adapter) = adapter else { return Ok(None) };
        match MergedWeight::new(&self.source.tensor(role)?, &adapter) {
            Ok(merged) => Ok(Some(merged)),
            Err(MergeError::Integers) => Err(LoadError::MergeIntoIntegers { role }),
            Err(MergeError::Pack(source)) => Err(LoadError::Pack { role, source }),
        }
    }

    fn matrix(&mut self, role: Role) -> Result<B::Matrix, LoadError> {
        let merged = self.merged(role)?;
        let weight = self.source.tensor(role)?;
        let weight = merged.as_ref().map_or(weight, |merged| merged.view().into());
        let matrix = self.backend.pack(weight).map_err(|source| LoadError::Pack { role, source })?;
        self.packed(self.backend.matrix_format(&matrix), self.backend.matrix_bytes(&matrix));
        self.count_read(role)?;
        Ok(matrix)
    }

    fn layer(&mut self, spec: &ArchSpec, layer: usize) -> Result<LayerWeights<B>, LoadError> {
        let role = |role| Role::Layer(layer, role);
        let attention_norm = self.vector(role(LayerRole::AttentionNorm))?;
        let (query, key) = (self.matrix(role(LayerRole::Query))?, self.matrix(role(LayerRole::Key))?);
        let value = self.matrix(role(LayerRole::Value))?;
        let biases = if spec.qkv_bias {
            Some([
                self.vector(role(LayerRole::QueryBias))?,
                self.vector(role(LayerRole::KeyBias))?,
                self.vector(role(LayerRole::ValueBias))?,
            ])
        } else {
            None
        };
        let head_norms = if spec.head_norms {
            Some([self.vector(role(LayerRole::QueryNorm))?, self.vector(role(LayerRole::KeyNorm))?])
        } else {
            None
        };
        let output = self.matrix(role(LayerRole::Output))?;
        let mlp_norm = self.vector(role(LayerRole::MlpNorm))?;
        let mlp = match spec.mlp(layer) {
            Mlp::Dense { .. } => {
                PackedMlp::Dense(self.dense([LayerRole::Gate, LayerRole::Up, LayerRole::Down].map(role))?)
            }
            Mlp::Experts(experts) => PackedMlp::Experts(self.experts(experts, role)?),
        };
        Ok(LayerWeights { attention_norm, query, key, value, biases, head_norms, output, mlp_norm, mlp })
    }

    fn dense(&mut self, [gate, up, down]: [Role; 3]) -> Result<PackedDense<B>, LoadError> {
        Ok(PackedDense { gate_up: self.gate_up(gate, up)?, down: self.matrix(down)? })
    }

    fn experts(
        &mut self,
        Experts { shape, rule, biased, .. }: &Experts,
        role: impl Fn(LayerRole) -> Role + Copy,
    ) -> Result<PackedExperts<B>, LoadError> {
        let (mut gate_up, mut down) = (Vec::with_capacity(shape.count), Vec::with_capacity(shape.count));
        let before = self.bytes;
        for expert in 0..shape.count {
            let packed = self.dense(expert_roles(expert).map(role))?;
            gate_up.push(packed.gate_up);
            down.push(packed.down);
        }
        self.expert_bytes += self.bytes - before;
        let shared = [LayerRole::SharedGate, LayerRole::SharedUp, LayerRole::SharedDown].map(role);
        let shared = (shape.shared_ffn > 0).then(|| self.dense(shared)).transpose()?;
        let router = self.router(role(LayerRole::Router))?;
        let bias = biased.then(|| self.vector(role(LayerRole::RouterBias))).transpose()?;
        Ok(PackedExperts { router, bias, rule: *rule, gate_up, down, shared })
    }

    /// The adapters of all layers, unless they are in the weights.
    fn adapter(&mut self, spec: &ArchSpec) -> Result<Option<ModelAdapter<B>>, LoadError> {
        let token = match self.source.adapter_use() {
            None | Some(AdapterUse::Merged) => return Ok(None),
            Some(AdapterUse::Masks(token)) => Some(token),
            Some(AdapterUse::All) => None,
        };
        let mut rows = AdapterRows { token, rank: 0, operations: Operations::default() };
        let layers = (0..spec.layers).map(|layer| self.layer_adapters(layer, &mut rows)).collect::<Result<_, _>>()?;
        Ok(Some(ModelAdapter { layers, rows }))
    }

    fn layer_adapters(&mut self, layer: usize, rows: &mut AdapterRows) -> Result<LayerAdapters<B>, LoadError> {
        let mut pack = |part| self.lora(layer, part, rows);
        Ok(LayerAdapters {
            qkv: [pack(LayerRole::Query)?, pack(LayerRole::Key)?, pack(LayerRole::Value)?],
            output: pack(LayerRole::Output)?,
            gate_up: [pack(LayerRole::Gate)?, pack(LayerRole::Up)?],
            down: pack(LayerRole::Down)?,
        })
    }

    fn lora(
        &mut self,
        layer: usize,
        part: LayerRole,
        rows: &mut AdapterRows,
    ) -> Result<Option<PackedLora<B>>, LoadError> {
        let role = Role::Layer(layer, part);
        let Some(stored) = self.source.adapter(role) else { return Ok(None) };
        rows.count(part, &stored);
        let pack = |matrix| self.backend.pack(matrix).map_err(|source| LoadError::Pack { role, source });
        let packed = PackedLora { a: pack(stored.a)?, b: pack(stored.b)?, scale: stored.scale };
        for matrix in [&packed.a, &packed.b] {
            self.packed(self.backend.matrix_format(matrix), self.backend.matrix_bytes(matrix));
        }
        Ok(Some(packed))
    }

    /// A matrix that is kept in f32, which is no format of matrices that anybody asked for.
    fn router(&mut self, role: Role) -> Result<B::Matrix, LoadError> {
        let matrix = self.backend.pack_router(self.source.tensor(role)?);
        let matrix = matrix.map_err(|source| LoadError::Pack { role, source })?;
        self.bytes += self.backend.matrix_bytes(&matrix);
        self.count_read(role)?;
        Ok(matrix)
    }

    fn gate_up(&mut self, gate: Role, up: Role) -> Result<B::GateUp, LoadError> {
        let merged = [self.merged(gate)?, self.merged(up)?];
        let stored = [self.source.tensor(gate)?, self.source.tensor(up)?];
        let weight = |index: usize| -> StoredTensor<'_> {
            merged[index].as_ref().map_or(stored[index], |merged| merged.view().into())
        };
        let packed =
            self.backend.pack_gate_up(weight(0), weight(1)).map_err(|source| LoadError::Pack { role: gate, source })?;
        self.packed(self.backend.gate_up_format(&packed), self.backend.gate_up_bytes(&packed));
        self.count_read(gate)?;
        self.count_read(up)?;
        Ok(packed)
    }
}

/// Tensors in the order in which they are loaded, without a table that no head is packed from: of it, rows may be all that
/// is ever read.
fn in_order(spec: &ArchSpec) -> Vec<ExpectedTensor> {
    let mut tensors = expected_tensors(spec);
    tensors.retain(|tensor| spec.tied || tensor.role != Role::Embedding);
    tensors.sort_by_key(|tensor| match tensor.role {
        Role::Embedding => 0,
        Role::Head => 1,
        _ => 2,
    });
    tensors
}

impl<B: Backend> Weights<B> {
    /// Packs every tensor of `spec` out of `source`. `progress` gets the bytes read so far and returns whether to go
    /// on.
    pub fn load(
        spec: &ArchSpec,
        source: &dyn WeightSource,
        backend: &B,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Self, LoadError> {
        let (coming, formats) = (in_order(spec).into_iter(), BTreeMap::new());
        let mut loader = Loader { backend, source, progress, coming, read: 0, bytes: 0, expert_bytes: 0, formats };
        loader.announce(AHEAD);
        let embedding = loader.embedding()?;
        let embedding_bytes = loader.bytes;
        let head = if spec.tied {
            loader.matrix(Role::Embedding)?
        } else {
            loader.count_read(Role::Embedding)?;
            loader.matrix(Role::Head)?
        };
        let layers = (0..spec.layers).map(|layer| loader.layer(spec, layer)).collect::<Result<_, _>>()?;
        let final_norm = loader.vector(Role::FinalNorm)?;
        let adapter = loader.adapter(spec)?;
        let Loader { bytes, expert_bytes, formats, .. } = loader;
        Ok(Self { embedding, layers, final_norm, head, adapter, bytes, embedding_bytes, expert_bytes, formats })
    }

    /// Bytes that the packed weights take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of them that every forward reads: all but the table of embeddings, of which it reads rows, and experts, of
    /// which it reads those that its rows choose.
    pub fn bytes_of_a_forward(&self) -> usize {
        self.bytes - self.embedding_bytes - self.expert_bytes
    }

    /// Bytes of all experts that rows choose among.
    pub fn expert_bytes(&self) -> usize {
        self.expert_bytes
    }

    /// Formats that matrices are kept in, each with the bytes that it takes.
    pub fn formats(&self) -> &BTreeMap<String, usize> {
        &self.formats
    }
}

/// Adapters of several products.
fn weights_of<B: Backend, const PRODUCTS: usize>(
    adapters: &[Option<PackedLora<B>>; PRODUCTS],
) -> [Option<Lora<'_, B>>; PRODUCTS] {
    adapters.each_ref().map(|adapter| adapter.as_ref().map(PackedLora::weights))
}

impl<B: Backend> PackedDense<B> {
    pub(crate) fn weights<'a>(
        &'a self,
        norm: &'a B::Vector,
        epsilon: f32,
        adapters: Option<&'a LayerAdapters<B>>,
    ) -> MlpWeights<'a, B> {
        MlpWeights {
            norm,
            epsilon,
            gate_up: &self.gate_up,
            down: &self.down,
            gate_up_adapters: adapters.map_or([None; 2], |adapters| weights_of(&adapters.gate_up)),
            down_adapter: adapters.and_then(|adapters| adapters.down.as_ref()).map(PackedLora::weights),
        }
    }
}

impl<B: Backend> PackedExperts<B> {
    pub(crate) fn weights<'a>(&'a self, norm: &'a B::Vector, epsilon: f32) -> ExpertWeights<'a, B> {
        ExpertWeights {
            norm,
            epsilon,
            router: &self.router,
            bias: self.bias.as_ref(),
            rule: &self.rule,
            gate_up: &self.gate_up,
            down: &self.down,
            shared: self.shared.as_ref().map(|shared| (&shared.gate_up, &shared.down)),
        }
    }
}

impl<B: Backend> LayerWeights<B> {
    pub(crate) fn qkv<'a>(&'a self, epsilon: f32, adapters: Option<&'a LayerAdapters<B>>) -> QkvWeights<'a, B> {
        QkvWeights {
            norm: &self.attention_norm,
            epsilon,
            query: &self.query,
            key: &self.key,
            value: &self.value,
            biases: self.biases.as_ref().map(|[query, key, value]| [query, key, value]),
            head_norms: self.head_norms.as_ref().map(|[query, key]| [query, key]),
            adapters: adapters.map_or([None; 3], |adapters| weights_of(&adapters.qkv)),
        }
    }
}
