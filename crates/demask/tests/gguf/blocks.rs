//! Files that mix block formats as converters do: weights stay in their blocks and compute what they stand for.

use demask::{ActivationChoice, DeviceChoice, DtypeChoice, Model, WeightChoice};
use demask::{DeviceOptions, ModelByHand, Opened};
use demask_cpu::isa::Isa;
use demask_cuda::{CudaBackend, CudaOptions};
use demask_cuda_emulator::{Emulator, Schedule};
use demask_tensor::{BlockFormat, Dtype, TensorView};

use super::{in_memory, logits, writer::Writer};

const HIDDEN: usize = 256;
const FFN: usize = 512;
const LAYERS: usize = 2;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const VOCABULARY: usize = 96;

/// Formats of a file.
#[derive(Debug, Clone, Copy)]
struct Mixture {
    most: BlockFormat,
    /// Format of values, of the down projection and of the head.
    finer: BlockFormat,
    up: BlockFormat,
    table: BlockFormat,
}

/// `Q4_K_M`, `Q5_K_M`, what rows that are no multiples of 256 fall back to, and one whose gate and up differ.
const MIXTURES: [Mixture; 4] = [
    Mixture { most: BlockFormat::Q4K, finer: BlockFormat::Q6K, up: BlockFormat::Q4K, table: BlockFormat::Q4K },
    Mixture { most: BlockFormat::Q5K, finer: BlockFormat::Q6K, up: BlockFormat::Q5K, table: BlockFormat::Q6K },
    Mixture { most: BlockFormat::Q5_0, finer: BlockFormat::Q8_0, up: BlockFormat::Q5_0, table: BlockFormat::Q8_0 },
    Mixture { most: BlockFormat::Q4_0, finer: BlockFormat::Q4_0, up: BlockFormat::Q5K, table: BlockFormat::Q4_0 },
];

/// A file of one format.
fn of(format: BlockFormat) -> Mixture {
    Mixture { most: format, finer: format, up: format, table: format }
}

/// Formats that are not among those mixtures, and what matrices become beside plain inputs.
const OTHERS: [(BlockFormat, &str); 9] = [
    (BlockFormat::Q4_1, "q4_1"),
    (BlockFormat::Q5_1, "q5_1"),
    (BlockFormat::Q2K, "bf16"),
    (BlockFormat::Q3K, "q6_k"),
    (BlockFormat::Iq4Nl, "q8"),
    (BlockFormat::Iq4Xs, "iq4_xs"),
    (BlockFormat::Tq1_0, "q6_k"),
    (BlockFormat::Tq2_0, "q6_k"),
    (BlockFormat::Mxfp4, "bf16"),
];

/// Random blocks: any integers and scales, halves so small that the numbers are about those of a network.
fn blocks(format: BlockFormat, count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as u8
    };
    let mut bytes: Vec<u8> = (0..count * format.bytes()).map(|_| byte()).collect();
    let (scale, minimum) = match format {
        BlockFormat::Q4K | BlockFormat::Q5K => (2e-4, 1e-3),
        BlockFormat::Q2K => (4e-3, 6e-3),
        BlockFormat::Q6K => (4e-5, 0.0),
        BlockFormat::Q3K | BlockFormat::Q8_0 | BlockFormat::Iq4Nl => (1e-3, 0.0),
        BlockFormat::Iq4Xs => (5e-5, 0.0),
        BlockFormat::Q4_1 | BlockFormat::Q5_1 => (8e-3, -7e-2),
        BlockFormat::Tq1_0 | BlockFormat::Tq2_0 => (6e-2, 0.0),
        _ => (8e-3, 0.0),
    };
    for block in bytes.chunks_mut(format.bytes()) {
        if format == BlockFormat::Mxfp4 {
            // Around 2^-6.
            block[0] = 120 + block[0] % 4;
        }
        for (&at, size) in format.halves_at().iter().zip([scale, minimum]) {
            let half = half::f16::from_f32(size * (f32::from(byte()) / 255.0 + 0.5));
            block[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
    }
    bytes
}

/// A file of an architecture; `widen` writes what the blocks of all matrices but the table of embeddings stand for in f32
/// (a table of f32 would be rounded to bf16 where products are in bf16). Beside it the bytes of its matrices.
fn file(architecture: &str, mixture: Mixture, widen: bool) -> (Vec<u8>, usize) {
    let mut writer = Writer::default();
    writer.text("general.architecture", architecture);
    let head_dim = HIDDEN / HEADS;
    for (key, value) in [
        ("block_count", LAYERS),
        ("context_length", 128),
        ("embedding_length", HIDDEN),
        ("feed_forward_length", FFN),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV_HEADS),
        ("attention.key_length", head_dim),
        ("attention.value_length", head_dim),
        ("vocab_size", VOCABULARY),
    ] {
        writer.count(&format!("{architecture}.{key}"), value as u64);
    }
    writer.number(&format!("{architecture}.attention.layer_norm_rms_epsilon"), 1e-5);
    writer.number(&format!("{architecture}.rope.freq_base"), 10_000.0);
    if architecture == "llada" {
        writer.flag("llada.attention.causal", false);
    }
    writer.count("tokenizer.ggml.mask_token_id", 1);
    let mut bytes = 0;
    let mut matrix = |writer: &mut Writer, name: &str, rows: usize, columns: usize, format: BlockFormat| {
        let stored = blocks(format, rows * columns / format.elements(), name.len() as u64 + 31 * bytes as u64);
        bytes += stored.len();
        if widen && name != "token_embd.weight" {
            let values = TensorView::new(Dtype::Block(format), rows, columns, &stored).to_f32();
            let stored: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
            writer.stored(name, &[rows, columns], 0, &stored);
        } else {
            writer.stored(name, &[rows, columns], kind(format), &stored);
        }
    };
    let norm = |writer: &mut Writer, name: &str, width: usize| {
        let ones: Vec<u8> = vec![1f32; width].into_iter().flat_map(f32::to_le_bytes).collect();
        writer.stored(name, &[width], 0, &ones);
    };
    matrix(&mut writer, "token_embd.weight", VOCABULARY, HIDDEN, mixture.table);
    for layer in 0..LAYERS {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        norm(&mut writer, &name("attn_norm"), HIDDEN);
        norm(&mut writer, &name("ffn_norm"), HIDDEN);
        if architecture == "qwen3" {
            norm(&mut writer, &name("attn_q_norm"), head_dim);
            norm(&mut writer, &name("attn_k_norm"), head_dim);
        }
        matrix(&mut writer, &name("attn_q"), HIDDEN, HIDDEN, mixture.most);
        matrix(&mut writer, &name("attn_k"), KV_HEADS * head_dim, HIDDEN, mixture.most);
        matrix(&mut writer, &name("attn_v"), KV_HEADS * head_dim, HIDDEN, mixture.finer);
        matrix(&mut writer, &name("attn_output"), HIDDEN, HIDDEN, mixture.most);
        matrix(&mut writer, &name("ffn_gate"), FFN, HIDDEN, mixture.most);
        matrix(&mut writer, &name("ffn_up"), FFN, HIDDEN, mixture.up);
        matrix(&mut writer, &name("ffn_down"), HIDDEN, FFN, mixture.finer);
    }
    norm(&mut writer, "output_norm.weight", HIDDEN);
    matrix(&mut writer, "output.weight", VOCABULARY, HIDDEN, mixture.finer);
    (writer.finish(), bytes)
}

/// The number of a format in a file.
fn kind(format: BlockFormat) -> u32 {
    match format {
        BlockFormat::Q4_0 => 2,
        BlockFormat::Q4_1 => 3,
        BlockFormat::Q5_0 => 6,
        BlockFormat::Q5_1 => 7,
        BlockFormat::Q8_0 => 8,
        BlockFormat::Q2K => 10,
        BlockFormat::Q3K => 11,
        BlockFormat::Q4K => 12,
        BlockFormat::Q5K => 13,
        BlockFormat::Q6K => 14,
        BlockFormat::Iq4Nl => 20,
        BlockFormat::Iq4Xs => 23,
        BlockFormat::Tq1_0 => 34,
        BlockFormat::Tq2_0 => 35,
        BlockFormat::Mxfp4 => 39,
        other => panic!("{other} has no number"),
    }
}

fn load(bytes: Vec<u8>, device: &DeviceOptions) -> ModelByHand {
    Model::load(in_memory("mixed", bytes), device, &mut |_| true).unwrap().by_hand().unwrap()
}

fn devices() -> Vec<DeviceOptions> {
    let tiers: Vec<_> = Isa::available().into_iter().map(Isa::tier).collect();
    let of = |tier| {
        [DtypeChoice::F32, DtypeChoice::Bf16].map(|dtype| DeviceOptions {
            dtype,
            tier: Some(tier),
            threads: Some(2),
            activations: ActivationChoice::Plain,
            ..DeviceOptions::default()
        })
    };
    tiers.into_iter().flat_map(of).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    assert!(values.iter().all(|value| value.is_finite()));
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn logits_are_those_of_the_widened_file_to_the_bit() {
    for architecture in ["llada", "qwen3"] {
        for mixture in MIXTURES {
            let [kept, wide] = [false, true].map(|widen| file(architecture, mixture, widen).0);
            for device in devices() {
                let [mut kept, mut wide] = [&kept, &wide].map(|bytes| load(bytes.clone(), &device));
                let found = bits(&logits(&mut kept));
                assert!(found == bits(&logits(&mut wide)), "{architecture} {mixture:?} {device:?}");
            }
        }
    }
}

#[test]
fn every_format_computes_what_its_numbers_do() {
    for (format, _) in OTHERS {
        let [kept, wide] = [false, true].map(|widen| file("llada", of(format), widen).0);
        for device in devices() {
            let [mut kept, mut wide] = [&kept, &wide].map(|bytes| load(bytes.clone(), &device));
            assert!(bits(&logits(&mut kept)) == bits(&logits(&mut wide)), "{format} {device:?}");
        }
    }
}

/// What takes more memory than in the file is told before it is loaded, and takes as much as was told.
#[test]
fn weights_without_a_kernel_of_their_own_are_told_and_counted() {
    for (format, kept) in OTHERS {
        let (bytes, matrices) = file("llada", of(format), false);
        let device = DeviceOptions {
            device: DeviceChoice::Cpu,
            dtype: DtypeChoice::Bf16,
            activations: ActivationChoice::Plain,
            ..DeviceOptions::default()
        };
        let opened = Opened::open(in_memory("mixed", bytes)).unwrap();
        let (widened, told) = (opened.widened(&device).unwrap(), opened.footprint(&device, &[]).unwrap());
        let anew = DeviceOptions { quantize: WeightChoice::Q8, ..device.clone() };
        assert!(opened.widened(&anew).unwrap().is_empty(), "{format}: what was asked for is no news");
        let model = opened.load(&device, &[], &mut |_| true).unwrap();
        assert_eq!(model.weight_bytes() as u64, told.weights, "{format}");
        let device = model.device().to_owned();
        let weights = if kept == "bf16" { ", bf16".to_owned() } else { format!(", bf16, {kept} weights") };
        assert!(device.ends_with(&weights), "{format}: {device}");
        let own = matches!(format, BlockFormat::Q4_1 | BlockFormat::Q5_1);
        assert_eq!(widened.is_empty(), own, "{format}: {widened:?}");
        let Some(widened) = widened.first() else { continue };
        let table = VOCABULARY * Dtype::Block(format).row_bytes(HIDDEN).unwrap();
        let found = (widened.stored.as_str(), widened.format.as_str(), widened.tensors, widened.stored_bytes as usize);
        assert_eq!(found, (format.to_string().as_str(), kept, 7 * LAYERS + 1, matrices - table));
        let vectors = (2 * LAYERS + 1) * HIDDEN * 4;
        // The table stays in the file.
        assert_eq!(widened.bytes as usize, told.weights as usize - vectors);
    }
}

#[test]
fn memory_is_that_of_the_file() {
    for (mixture, formats) in MIXTURES.into_iter().zip(["q4_k + q6_k", "q5_k + q6_k", "q5_0 + q8", "bf16 + q4"]) {
        let (bytes, matrices) = file("llada", mixture, false);
        let activations = ActivationChoice::Plain;
        let device = DeviceOptions { dtype: DtypeChoice::Bf16, activations, ..DeviceOptions::default() };
        let model = load(bytes, &device);
        let network = model.network();
        assert!(network.describe().ends_with(&format!(", bf16, {formats} weights")), "{}", network.describe());
        let vectors = (2 * LAYERS + 1) * HIDDEN * 4;
        let weights = network.weight_bytes() - vectors;
        // The table stays in the file.
        let matrices = matrices - VOCABULARY * Dtype::Block(mixture.table).row_bytes(HIDDEN).unwrap();
        if mixture.up == mixture.most {
            // Six bits of scale become eight: 4 bytes for 144 at the most.
            assert!(weights >= matrices && weights <= matrices * 37 / 36, "{mixture:?}: {weights}, file {matrices}");
        } else {
            // Gate and up are bf16, 2 bytes instead of 18/32 and 176/256.
            let (pair, count) = (LAYERS * FFN * HIDDEN, 2);
            let in_file = pair * 18 / 32 + pair * 176 / 256;
            assert_eq!(weights, matrices - in_file + pair * count * 2, "{mixture:?}");
        }
        assert_eq!(network.forward_bytes(), network.weight_bytes());
    }
}

/// A GPU reads rows of a table one by one: blocks become the numbers of products there, and are counted as that.
#[test]
fn memory_on_a_gpu_is_what_was_told_and_the_table_is_widened() {
    for mixture in MIXTURES {
        for (choice, dtype) in [(DtypeChoice::F32, Dtype::F32), (DtypeChoice::Bf16, Dtype::Bf16)] {
            let opened = Opened::open(in_memory("mixed", file("llada", mixture, false).0)).unwrap();
            let device = DeviceOptions { device: DeviceChoice::Cuda(0), dtype: choice, ..DeviceOptions::default() };
            let told = opened.footprint(&device, &[]).unwrap();
            let emulator = Emulator::new(Schedule::Forward).unwrap();
            let backend = CudaBackend::new(emulator, CudaOptions { dtype, quantisation: None });
            let model = opened.load_on(backend, None, &mut |_| true).unwrap().by_hand().unwrap();
            let network = model.network();
            assert_eq!(network.weight_bytes() as u64, told.weights, "{mixture:?} {dtype}");
            let table = network.weight_bytes() - network.forward_bytes();
            assert_eq!(table, VOCABULARY * HIDDEN * dtype.size(), "{mixture:?} {dtype}");
        }
    }
}

#[test]
fn asked_for_other_integers_values_are_rounded_anew() {
    let [kept, wide] = [false, true].map(|widen| file("llada", MIXTURES[0], widen).0);
    for weights in [WeightChoice::Q8, WeightChoice::Q4] {
        let device = DeviceOptions { dtype: DtypeChoice::F32, quantize: weights, ..DeviceOptions::default() };
        let [mut kept, mut wide] = [&kept, &wide].map(|bytes| load(bytes.clone(), &device));
        assert_eq!(bits(&logits(&mut kept)), bits(&logits(&mut wide)), "{weights:?}");
        let name = if weights == WeightChoice::Q8 { "f32, q8 weights" } else { "f32, q4 weights" };
        assert!(kept.network().describe().ends_with(name));
    }
}
