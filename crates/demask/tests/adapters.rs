//! Adapters beside the weights: on all rows they are the merged model, on masks they leave every other row its bits, and
//! texts are those of the model without them (specs/families.md#7).

use std::{io::Write, path::Path};

use demask::{AdapterChoice, DeviceOptions, DtypeChoice, Model, Opened, Options, Prompt, WeightChoice};
use demask_checkpoint::{AdapterFiles, ModelFiles};
use demask_cpu::{
    CpuOptions,
    isa::Isa,
    linear::{Activations, Products},
};
use demask_decode::{CanvasSpec, ModelFacts, Session, SessionOptions, StopRule};
use demask_model::{AdapterUse, ArchSpec, Inspect, Rope, RopeScaling};
use demask_step::Mask;
use demask_tensor::Dtype;
use demask_testkit::naive::network::assert_near;

use crate::common::{RandomWeights, quantised, runner_with, specs, together};

/// Token whose rows take adapters of masks.
const MASK: u32 = 69;

fn load(spec: &ArchSpec, weights: &RandomWeights, isa: Isa, products: Products) -> Box<dyn Inspect> {
    let Products { dtype, quantisation, activations } = products;
    runner_with(spec, weights, CpuOptions { isa, dtype, quantisation, activations, threads: 2 })
}

fn random(spec: &ArchSpec) -> RandomWeights {
    RandomWeights::new(spec, 7)
}

/// Bits of the logits of each row.
fn bits(network: &mut dyn Inspect, tokens: &[u32], mask: Mask) -> Vec<Vec<u32>> {
    let logits = network.inspect(tokens, mask, false).unwrap().logits;
    let rows = logits.chunks_exact(logits.len() / tokens.len());
    rows.map(|row| row.iter().map(|value| value.to_bits()).collect()).collect()
}

fn causal() -> ArchSpec {
    let (_, spec) = specs().into_iter().find(|(name, _)| *name == "causal").unwrap();
    spec
}

fn facts(spec: &ArchSpec) -> ModelFacts {
    ModelFacts {
        mask: spec.attention,
        shift: spec.shift as u32,
        mask_id: Some(MASK),
        vocab: spec.vocabulary,
        context: spec.context,
        layers: spec.layers,
        blocks: spec.blocks,
        free_rows: 16,
    }
}

/// Kinds of products on each tier, one of f32 and bf16 where kernels are shared.
fn kinds() -> Vec<(Isa, Products)> {
    let types = [Dtype::F32, Dtype::Bf16];
    let products = types.into_iter().flat_map(|dtype| [vec![Products::plain(dtype)], quantised(dtype)].concat());
    let products: Vec<Products> = products.collect();
    Isa::available().into_iter().flat_map(|isa| products.iter().map(move |products| (isa, *products))).collect()
}

#[test]
fn an_adapter_on_all_rows_is_the_merged_model() {
    let tokens: Vec<u32> = (0..40).map(|at| at * 7 % 60).collect();
    for (_, spec) in specs() {
        for rank in [1, 3, 40] {
            let merged = random(&spec).with_adapter(&spec, (AdapterUse::All, rank), 0.5).merged().twin(&spec, 40);
            let expected = merged.logits(&tokens, &|position| spec.attention.limit(position as u32, 40) as usize);
            for isa in Isa::available() {
                for usage in [AdapterUse::All, AdapterUse::Merged] {
                    let weights = random(&spec).with_adapter(&spec, (usage, rank), 0.5);
                    let mut network = load(&spec, &weights, isa, Products::plain(Dtype::F32));
                    let found = network.inspect(&tokens, spec.attention, false).unwrap().logits;
                    assert_near(&found, &expected, 1e-4);
                }
            }
        }
    }
}

#[test]
fn rows_without_the_adapter_keep_their_bits_and_rows_with_it_have_theirs_in_any_company() {
    let spec = causal();
    let text: Vec<u32> = (0..21).map(|at| at * 7 % 60).collect();
    let with = |masks: usize| [text.clone(), vec![MASK; masks]].concat();
    for (isa, products) in kinds() {
        let mut base = load(&spec, &random(&spec), isa, products);
        let weights = random(&spec).with_adapter(&spec, (AdapterUse::Masks(MASK), 5), 0.5);
        let mut adapted = load(&spec, &weights, isa, products);
        let [plain, found] = [&mut base, &mut adapted].map(|network| bits(&mut **network, &with(3), Mask::Causal));
        assert_eq!(found[..21], plain[..21], "{isa:?} {products:?}: rows of tokens");
        assert!((21..24).all(|row| found[row] != plain[row]), "{isa:?} {products:?}: rows of masks");
        let alone = bits(&mut *adapted, &with(1), Mask::Causal);
        assert_eq!(alone[21], found[21], "{isa:?} {products:?}: a mask beside fewer");
        // Several runs of masks in one product, each row of which sees the same as before.
        let spread = [with(2), text.clone(), vec![MASK]].concat();
        let spread = bits(&mut *adapted, &spread, Mask::Causal);
        assert_eq!(spread[..23], found[..23], "{isa:?} {products:?}: masks in two places");
    }
}

#[test]
fn idlm_4_an_adapter_of_zeros_changes_no_bit() {
    let spec = causal();
    let tokens: Vec<u32> = (0..30).map(|at| if at > 25 { MASK } else { at * 7 % 60 }).collect();
    for (isa, products) in kinds() {
        let expected = bits(&mut *load(&spec, &random(&spec), isa, products), &tokens, Mask::Causal);
        for usage in [AdapterUse::Masks(MASK), AdapterUse::All] {
            let weights = random(&spec).with_adapter(&spec, (usage, 5), 0.0);
            let found = bits(&mut *load(&spec, &weights, isa, products), &tokens, Mask::Causal);
            assert_eq!(found, expected, "{isa:?} {products:?} {usage:?}");
        }
    }
}

/// Layers of which a cache computes some rows have the adapter on those rows, as the merged model has.
#[test]
fn partly_computed_layers_beside_an_adapter_are_those_of_the_merged_model() {
    let (_, spec) = specs().into_iter().find(|(_, spec)| spec.attention == Mask::Full).unwrap();
    let facts = facts(&spec);
    let answered = |usage: AdapterUse, cache: &str| {
        let session = |index: u32| {
            let tokens = (0..5 + index).map(|at| (index * 13 + at * 7) % 60).collect();
            Session::new(SessionOptions {
                stop: StopRule::Never,
                block_length: Some(8),
                cache: cache.parse().unwrap(),
                ..SessionOptions::new(facts.clone(), CanvasSpec::Prompt { tokens, gen_length: 16 })
            })
            .unwrap()
        };
        let weights = random(&spec).with_adapter(&spec, (usage, 5), 0.5);
        let network = load(&spec, &weights, Isa::best(), Products::plain(Dtype::F32));
        let (over, _) = together(network, (0..4).map(session).collect());
        over.iter().map(|session| session.output().tokens).collect::<Vec<_>>()
    };
    let plain = answered(AdapterUse::All, "none");
    let mut differ = 0;
    for cache in ["dllm:prompt=3,response=4", "dllm:response=6,rows=drift,rho=0.5", "dkv:refresh=4", "dual"] {
        let found = answered(AdapterUse::All, cache);
        assert_eq!(found, answered(AdapterUse::Merged, cache), "{cache}");
        differ += usize::from(found != plain);
    }
    assert!(differ > 0, "the caches compute every row");
}

/// A golden checkpoint, trained autoregressively alone, perhaps with its adapter.
fn golden(adapter: Option<AdapterChoice>, dtype: DtypeChoice, quantize: WeightChoice) -> Model {
    let checkpoints = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt");
    let open = |name: &str| ModelFiles::directory(checkpoints.join(name)).unwrap();
    let adapter = adapter.map(|choice| AdapterFiles { files: open("idlm-base-toy-lora"), choice });
    let files = open("idlm-base-toy").of_family(Some("Qwen3:mask=93".parse().unwrap())).with_adapter(adapter);
    let device = DeviceOptions { dtype, quantize, threads: Some(2), ..DeviceOptions::default() };
    Model::load(files, &device, &mut |_| true).unwrap()
}

#[test]
fn idlm_3_texts_with_an_adapter_on_masks_are_those_of_ar_without_it() {
    let prompts = || (0..8).map(|first| Prompt::Tokens((0..7 + first).map(|at| (first * 11 + at) % 80).collect()));
    let (mut tokens, mut forwards, mut others) = (0, 0, 0);
    for (dtype, quantize) in [
        (DtypeChoice::F32, WeightChoice::Plain),
        (DtypeChoice::Bf16, WeightChoice::Plain),
        (DtypeChoice::Auto, WeightChoice::Q8),
        (DtypeChoice::Auto, WeightChoice::Q4),
    ] {
        let [base, adapted, changed] = [None, Some(AdapterChoice::Masks), Some(AdapterChoice::All)]
            .map(|adapter| golden(adapter, dtype, quantize));
        for temperature in [0.0, 0.7, 1.0] {
            let options = |decoder: &str| Options {
                decoder: Some(decoder.parse().unwrap()),
                temperature: Some(temperature),
                ignore_eos: Some(true),
                max_tokens: Some(24),
                seed: Some(5),
                ..Options::default()
            };
            let answers = |model: &Model, decoder: &str| {
                let answers = model.batch(prompts(), &options(decoder));
                answers.into_iter().map(|answer| answer.unwrap()).collect::<Vec<_>>()
            };
            let alone = prompts().map(|prompt| base.generate_with(prompt, &options("ar")).unwrap().tokens);
            let (expected, found) = (alone.collect::<Vec<_>>(), answers(&adapted, "isd"));
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.tokens, *expected, "{dtype:?} {quantize:?} temperature {temperature}");
                tokens += expected.len();
                forwards += found.receipt.decoding.forwards;
            }
            let changed = answers(&changed, "ar");
            others += changed.iter().zip(&expected).filter(|(found, expected)| found.tokens != **expected).count();
        }
    }
    assert!(tokens * 10 > forwards * 13, "guesses come true: {tokens} tokens in {forwards} forwards");
    assert!(others > 48, "on all rows it is another model: {others} of 96 texts differ");
}

/// Random networks whose guesses hardly come true: every answer by itself, and 8 at the same time of which every other one is
/// decoded by `ar`. `DEMASK_ANSWERS=1000` sets the number of prompts and takes a network of Qwen3-1.7B's width. The default is 36 prompts on a small one.
#[test]
fn idlm_3_random_networks_write_what_ar_writes_without_the_adapter() {
    let asked = std::env::var("DEMASK_ANSWERS").ok().map(|count| count.parse::<usize>().unwrap());
    let wide = ArchSpec { hidden: 2048, heads: 16, kv_heads: 8, head_dim: 128, ffn: 6144, layers: 2, ..causal() };
    let rope = Rope { theta: 1e6, rotated: 128, full_precision: false, scaling: RopeScaling::None };
    let wide = ArchSpec { rope, head_norms: true, qkv_bias: false, tied: false, ..wide };
    let spec = if asked.is_some() { wide } else { causal() };
    let plain = [Products::plain(Dtype::Bf16)].into_iter();
    let kinds: Vec<Products> =
        plain.chain(quantised(Dtype::Bf16).into_iter().filter(|kind| kind.activations == Activations::Int8)).collect();
    let each = asked.unwrap_or(36).div_ceil(3 * kinds.len()).next_multiple_of(4);
    let facts = facts(&spec);
    let (base, adapted) = (random(&spec), random(&spec).with_adapter(&spec, (AdapterUse::Masks(MASK), 8), 0.5));
    let mut answers = 0;
    for products in kinds {
        for temperature in [0.0, 0.7, 1.0] {
            let session = |index: usize, decoder: &str| {
                let tokens = (0..5 + index % 9).map(|at| ((index * 13 + at * 7) % 60) as u32).collect();
                Session::new(SessionOptions {
                    stop: StopRule::Never,
                    decoder: decoder.parse().unwrap(),
                    cache: "causal".parse().unwrap(),
                    temperature,
                    seed: index as u64,
                    ..SessionOptions::new(facts.clone(), CanvasSpec::Prompt { tokens, gen_length: 20 })
                })
                .unwrap()
            };
            let answered = |weights: &RandomWeights, sessions: Vec<Session>| -> Vec<Vec<u32>> {
                let network = load(&spec, weights, Isa::best(), products);
                let (over, _) = together(network, sessions);
                over.iter().map(|session| session.output().tokens).collect()
            };
            let expected = answered(&base, (0..each).map(|index| session(index, "ar")).collect());
            // The scheduler takes as many at a time as there is room for: strangers are among them.
            let mixed = (0..2 * each).map(|place| session(place / 2, if place % 2 == 0 { "isd" } else { "ar" }));
            let mixed = answered(&adapted, mixed.collect());
            for (index, pair) in mixed.chunks_exact(2).enumerate() {
                assert_eq!(pair[0], expected[index], "isd, {products:?} temperature {temperature} answer {index}");
                assert_eq!(
                    pair[1], expected[index],
                    "ar beside it, {products:?} temperature {temperature} answer {index}"
                );
            }
            for index in (0..each).step_by(each.div_ceil(3)) {
                let alone = answered(&adapted, vec![session(index, "isd:stride=7")]);
                assert_eq!(alone[0], expected[index], "alone, {products:?} temperature {temperature} answer {index}");
            }
            answers += each;
        }
    }
    writeln!(std::io::stdout(), "{answers} answers of 20 tokens on {} numbers a row: equal", spec.hidden).unwrap();
}

#[test]
fn models_whose_masks_guess_decode_by_isd() {
    let decoder = |adapter| {
        let model = golden(adapter, DtypeChoice::F32, WeightChoice::Plain);
        model.info().default_methods().0.to_string()
    };
    assert_eq!(decoder(None), "ar");
    assert_eq!(decoder(Some(AdapterChoice::All)), "ar");
    // The adapter's name says what it is for.
    assert_eq!(decoder(Some(AdapterChoice::Auto)), "isd:stride=4");
}

#[test]
fn a_receipt_says_that_a_model_was_not_trained_to_guess() {
    let note = |adapter, decoder: &str| {
        let model = golden(adapter, DtypeChoice::F32, WeightChoice::Plain);
        let decoder = Some(decoder.parse().unwrap());
        let options = Options { decoder, gen_length: Some(8), ignore_eos: Some(true), ..Options::default() };
        model.generate_with(Prompt::Tokens(vec![5, 6, 7]), &options).unwrap().receipt.note
    };
    assert!(note(None, "isd:stride=3").unwrap().contains("was not trained with masks"));
    assert_eq!(note(None, "ar"), None);
    assert_eq!(note(Some(AdapterChoice::Auto), "isd:stride=3"), None);
}

/// Results of one adapter are no results of another, nor of the model alone.
#[test]
fn an_adapter_and_its_use_are_part_of_the_fingerprint() {
    let checkpoints = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt");
    let open = |name: &str| ModelFiles::directory(checkpoints.join(name)).unwrap();
    let fingerprint = |choice: Option<AdapterChoice>| {
        let adapter = choice.map(|choice| AdapterFiles { files: open("idlm-base-toy-lora"), choice });
        let files = open("idlm-base-toy").of_family(Some("Qwen3:mask=93".parse().unwrap()));
        Opened::open(files.with_adapter(adapter)).unwrap().fingerprint()
    };
    let found = [None, Some(AdapterChoice::Masks), Some(AdapterChoice::All)].map(fingerprint);
    assert_eq!(found, [None, Some(AdapterChoice::Masks), Some(AdapterChoice::All)].map(fingerprint));
    assert!(found[0] != found[1] && found[0] != found[2] && found[1] != found[2], "{found:x?}");
}

#[test]
fn the_built_in_model_takes_no_adapter_and_no_other_family() {
    let refused = |builder: demask::Builder<'_>| builder.demo().err().unwrap().to_string();
    let adapter = refused(Model::builder().adapter("x/y", AdapterChoice::All));
    assert_eq!(adapter, "`adapter` goes with a model, and no model is named: give `model`");
    let family = refused(Model::builder().family("Dream".parse().unwrap()));
    assert_eq!(family, "`family` says how a model's files are read, and no model is named: give `model`");
}

#[test]
fn an_adapter_is_not_merged_into_integers() {
    let refused = |dtype, quantize| {
        let checkpoints = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt");
        let open = |name: &str| ModelFiles::directory(checkpoints.join(name)).unwrap();
        let adapter = AdapterFiles { files: open("idlm-base-toy-lora"), choice: AdapterChoice::Merged };
        let device = DeviceOptions { dtype, quantize, ..DeviceOptions::default() };
        Model::load(open("idlm-base-toy").with_adapter(Some(adapter)), &device, &mut |_| true)
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(refused(DtypeChoice::Bf16, WeightChoice::Plain), None);
    assert_eq!(
        refused(DtypeChoice::Auto, WeightChoice::Q4).unwrap(),
        "idlm-base-toy+idlm-base-toy-lora cannot be loaded: the adapter cannot be merged into weights that are quantised to \
         q4: give `adapter_use` all, which computes it beside them, or `quantize` none"
    );
}
