//! Fingerprints of models and data on disk: numbers that differ where these differ, to notice a change, not to
//! withstand an attack.

use std::fmt::Display;

use demask_checkpoint::StoredWeights;
use demask_model::{ArchSpec, Experts, QueryScale, Rope, RopeScaling, WeightSource, expected_tensors};
use demask_step::{BlockRules, Origin, Stores, random::mix};
use demask_tensor::{ExpertShape, RouterRule, Score, Share, StoredTensor};

use crate::{ModelInfo, Opened};

/// Returns the fingerprint of pieces of data, in order.
pub fn fingerprint(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> u64 {
    let mut state = 0;
    for piece in pieces {
        let piece = piece.as_ref();
        for word in piece.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            state = mix(state ^ u64::from_le_bytes(bytes));
        }
        // Where a piece ends counts too.
        state = mix(state ^ piece.len() as u64);
    }
    state
}

/// Named fields of a value, in a fixed order: what identifies it on disk, whatever the program calls its parts.
///
/// A field that is added later is [`optional`](Self::optional) and left out where it has its default value, so that
/// everything that was identified before keeps its fingerprint. Any other change is a new version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity(Vec<String>);

impl Identity {
    /// No field yet, of the value that `what` names in this version of its fields.
    pub fn new(what: &str, version: u32) -> Self {
        Self(vec![what.to_owned(), version.to_string()])
    }

    /// Adds a field. One that is added several times is a list.
    pub fn field(mut self, name: &str, value: impl Display) -> Self {
        self.0.extend([name.to_owned(), value.to_string()]);
        self
    }

    /// Adds a field if it has a value.
    pub fn optional(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.field(name, value),
            None => self,
        }
    }

    /// Returns the fingerprint of all names and values.
    pub fn fingerprint(&self) -> u64 {
        fingerprint(&self.0)
    }
}

/// Fields of an architecture.
pub(crate) fn architecture(spec: &ArchSpec) -> Identity {
    // Whoever adds a field decides here how it is identified.
    let ArchSpec {
        family,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        ffn,
        experts,
        vocabulary,
        context,
        rope: Rope { theta, rotated, full_precision, scaling },
        norm_epsilon,
        qkv_bias,
        head_norms,
        tied,
        attention,
        shift,
        blocks,
        query_scale,
    } = spec;
    let fields = Identity::new("architecture", 1)
        .field("family", family)
        .field("hidden", hidden)
        .field("layers", layers)
        .field("heads", heads)
        .field("kv_heads", kv_heads)
        .field("head_dim", head_dim)
        .field("ffn", ffn)
        .field("vocabulary", vocabulary)
        .field("context", context)
        .field("rope.theta", theta)
        .field("rope.rotated", rotated)
        .field("rope.full_precision", full_precision)
        .field("norm_epsilon", norm_epsilon)
        .field("qkv_bias", qkv_bias)
        .field("head_norms", head_norms)
        .field("tied", tied)
        .field("attention", attention)
        .field("shift", shift);
    // What models have had from the start is identified as it was.
    let fields = block_rules(fields, *blocks);
    let fields = match query_scale {
        None => fields,
        Some(QueryScale { beta, original_context }) => {
            fields.field("query_scale.beta", beta).field("query_scale.original_context", original_context)
        }
    };
    let fields = match experts {
        None => fields,
        Some(experts) => routed(fields, experts),
    };
    match scaling {
        RopeScaling::None => fields,
        RopeScaling::Linear { factor } => fields.field("rope.scaling", "linear").field("factor", factor),
        RopeScaling::Yarn { factor, original_context, fast, slow, whole, amplitude } => fields
            .field("rope.scaling", "yarn")
            .field("factor", factor)
            .field("original_context", original_context)
            .field("fast", fast)
            .field("slow", slow)
            .field("whole", whole)
            .field("amplitude", amplitude),
        RopeScaling::Llama3 { factor, low, high, original_context } => fields
            .field("rope.scaling", "llama3")
            .field("factor", factor)
            .field("low", low)
            .field("high", high)
            .field("original_context", original_context),
    }
}

/// Adds the fields of block rules that are not the usual ones.
fn block_rules(fields: Identity, rules: BlockRules) -> Identity {
    if rules == BlockRules::default() {
        return fields;
    }
    let BlockRules { origin, ends_short, shares_masks, stores, seeds } = rules;
    let origin = match origin {
        Origin::Start => "start",
        Origin::Prompt => "prompt",
    };
    let stores = match stores {
        Stores::Always => "always",
        Stores::UnlessEnded => "unless_ended",
        Stores::IfRead => "if_read",
    };
    fields
        .field("blocks.origin", origin)
        .field("blocks.ends_short", ends_short)
        .field("blocks.shares_masks", shares_masks)
        .field("blocks.stores", stores)
        .field("blocks.seeds", seeds)
}

/// Adds the fields of experts.
fn routed(fields: Identity, experts: &Experts) -> Identity {
    let Experts { shape, rule, biased, dense } = experts;
    let ExpertShape { count, per_row: taken, ffn, shared_ffn } = shape;
    let RouterRule { score, groups, share, scale } = rule;
    let score = match score {
        Score::Softmax => "softmax",
        Score::Sigmoid => "sigmoid",
    };
    let share = match share {
        Share::Whole => "whole".to_owned(),
        Share::OfChosen(least) => format!("of_chosen {least}"),
    };
    let fields = fields
        .field("experts.count", count)
        .field("experts.taken", taken)
        .field("experts.ffn", ffn)
        .field("experts.shared_ffn", shared_ffn)
        .field("experts.score", score)
        .optional("experts.groups", groups.map(|groups| groups.count))
        .optional("experts.groups_kept", groups.map(|groups| groups.selected))
        .field("experts.share", share)
        .field("experts.scale", scale)
        .field("experts.biased", biased);
    dense.iter().fold(fields, |fields, layer| fields.field("experts.dense", layer))
}

impl Opened {
    /// Returns the fingerprint of the architecture, of the first row of every tensor, and of the adapter with its use: training
    /// changes them all, and nothing else of the weights has to be read.
    pub fn fingerprint(&self) -> u64 {
        of_weights(self.info().spec(), self.source())
    }

    /// Returns its first guide with its fingerprint.
    pub fn guide_fingerprint(&self) -> Option<(&ModelInfo, u64)> {
        self.guide().map(|(guide, source)| (guide, of_weights(guide.spec(), source)))
    }
}

fn of_weights(spec: &ArchSpec, source: &StoredWeights) -> u64 {
    let tensors = expected_tensors(spec).into_iter().filter_map(|tensor| source.tensor(tensor.role).ok());
    // What cannot be read now is an error when the model is loaded.
    let first = |tensor: StoredTensor<'_>| {
        tensor.take_row(0, &mut Vec::new()).map(|row| row.bytes().to_vec()).unwrap_or_default()
    };
    let rows = tensors.map(first);
    let pairs = expected_tensors(spec).into_iter().filter_map(|tensor| source.adapter(tensor.role));
    let pairs = pairs.flat_map(|lora| [first(lora.a), first(lora.b), lora.scale.to_le_bytes().to_vec()]);
    let usage = source.adapter_use().map(|usage| format!("{usage:?}").into_bytes());
    let architecture = architecture(spec).fingerprint().to_le_bytes().to_vec();
    fingerprint(std::iter::once(architecture).chain(rows).chain(usage).chain(pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_every_border_counts() {
        let whole = fingerprint(["abcdefgh", "i"]);
        for other in [&["abcdefgh", "j"][..], &["abcdefghi"], &["abcdefg", "hi"], &["abcdefgh", "i", ""], &["abcdefgh"]]
        {
            assert_ne!(whole, fingerprint(other));
        }
        assert_eq!(whole, fingerprint(["abcdefgh".to_owned(), "i".to_owned()]));
    }

    #[test]
    fn fields_and_their_borders_count_and_one_without_a_value_does_not() {
        let fields = || Identity::new("it", 1).field("a", 1).field("b", "x");
        let none: Option<u32> = None;
        assert_eq!(fields().optional("c", none), fields());
        assert_eq!(fields().fingerprint(), 0xc67b_6096_0835_b44f);
        for other in [
            fields().optional("c", Some(0)),
            fields().field("b", "x"),
            Identity::new("it", 2).field("a", 1).field("b", "x"),
            Identity::new("it", 1).field("b", "x").field("a", 1),
            Identity::new("it", 1).field("a1", "").field("b", "x"),
        ] {
            assert_ne!(other.fingerprint(), fields().fingerprint(), "{other:?}");
        }
    }

    /// Results directories hold these numbers: where they change, no earlier directory goes on.
    #[test]
    fn architectures_are_identified_as_ever() {
        let mut spec = tiny_llada().info().spec().clone();
        let llama3 = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original_context: 8192.0 };
        let found = [RopeScaling::None, RopeScaling::Linear { factor: 2.0 }, llama3].map(|scaling| {
            spec.rope.scaling = scaling;
            architecture(&spec).fingerprint()
        });
        assert_eq!(found, [0xa7b7_0a4d_3479_1f7c, 0x41dc_c987_4549_1411, 0x2f45_a565_35a2_9d34], "{found:#x?}");
        let whole = tiny_llada().fingerprint();
        assert_eq!(whole, 0x2f0f_a044_b199_3bbb, "{whole:#x}");
    }

    fn tiny_llada() -> Opened {
        let tiny = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt/tiny-llada");
        Opened::open(demask_checkpoint::ModelFiles::directory(tiny).unwrap()).unwrap()
    }

    #[test]
    #[cfg(feature = "demo")]
    fn models_differ() {
        let demo = Opened::demo().unwrap();
        assert_ne!(demo.fingerprint(), tiny_llada().fingerprint());
        assert_eq!(demo.fingerprint(), Opened::demo().unwrap().fingerprint());
    }
}
