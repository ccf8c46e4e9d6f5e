//! The transformer: one forward of one launch, the same for every family and backend.

use demask_step::DeviceError;
use demask_tensor::{Backend, HeadOutput, HeadWeights, Launch, QkvRows, Rows};

use crate::{
    ArchSpec, Weights,
    lora::PackedLora,
    lower::Lowered,
    watch::{Intermediate, Watch, Watcher},
    weights::PackedMlp,
};

/// Inputs of a forward.
pub(crate) struct Forward<'a, B: Backend> {
    pub(crate) spec: &'a ArchSpec,
    pub(crate) weights: &'a Weights<B>,
    pub(crate) launch: &'a Launch,
    pub(crate) lowered: &'a Lowered,
}

/// Runs a launch. With a watcher, every row is finished in every layer and the intermediates are copied out.
pub(crate) fn forward<B: Backend>(
    Forward { spec, weights, launch, lowered }: Forward<'_, B>,
    backend: &mut B,
    kv: &mut B::Kv,
    out: &mut HeadOutput,
    watcher: Option<&mut Watcher<'_>>,
) -> Result<(), DeviceError> {
    // Rows that keep an increment, or live off one, are finished in each layer; otherwise the last layer finishes
    // nothing but what the head reads.
    let holds = launch.partial || !launch.held.is_empty();
    let mut watch = watcher.map(Watch::new);
    backend.begin(launch, kv);
    backend.embed(&weights.embedding);
    if let Some(watch) = &mut watch {
        watch.embedded(backend);
    }
    for (index, layer) in weights.layers.iter().enumerate() {
        let adapters = weights.adapter.as_ref().map(|adapter| &adapter.layers[index]);
        let qkv = layer.qkv(spec.norm_epsilon, adapters);
        let choosing = launch.partial && (index > 0 || !lowered.first_whole);
        let (rows, keys, values) = match () {
            () if choosing => (Rows::Computed, lowered.key_rows, lowered.value_rows),
            () if index + 1 == spec.layers && !holds && watch.is_none() => (Rows::Last, Rows::Live, Rows::Live),
            () => (Rows::Live, Rows::Live, Rows::Live),
        };
        if choosing {
            backend.select(index, &qkv, kv);
        }
        if holds {
            backend.hold(index, rows, kv);
        }
        backend.qkv(index, &qkv, QkvRows { query: rows, key: keys, value: values }, kv);
        if let Some(watch) = &mut watch {
            watch.projected(backend, index, kv);
        }
        backend.attend(index, rows, kv);
        let adapter = adapters.and_then(|adapters| adapters.output.as_ref()).map(PackedLora::weights);
        backend.project_add(&layer.output, adapter, rows);
        if let Some(watch) = &mut watch {
            watch.added(backend, Intermediate::Attention(index));
        }
        match &layer.mlp {
            PackedMlp::Dense(mlp) => {
                backend.mlp(&mlp.weights(&layer.mlp_norm, spec.norm_epsilon, adapters), rows);
            }
            PackedMlp::Experts(experts) => {
                backend.experts(&experts.weights(&layer.mlp_norm, spec.norm_epsilon), rows);
            }
        }
        if let Some(watch) = &mut watch {
            watch.added(backend, Intermediate::Mlp(index));
        }
        if holds {
            backend.settle(index, rows, kv);
        }
        if let Some(watch) = &mut watch {
            watch.finished(backend, index);
        }
    }
    if let Some(watch) = &mut watch {
        watch.normed(backend, &weights.final_norm, spec.norm_epsilon);
    }
    out.clear();
    if !launch.head.rows.is_empty() {
        let head = HeadWeights { norm: &weights.final_norm, epsilon: spec.norm_epsilon, head: &weights.head };
        backend.head(&head, kv, out);
    }
    backend.finish()
}
