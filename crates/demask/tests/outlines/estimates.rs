//! Costs that are known without weights against receipts of real runs, against the formulas of specs/caches.md, and
//! against the operations that dLLM-Cache's paper published; and `docs/scale.md`, which is made of them.

use std::{fmt::Write, fs, ops::ControlFlow, path::Path};

use demask::costs::{
    dry_run::{Assumed, ReplayError, dry_run},
    estimate::{Counting, Estimate},
    model_shape::ModelShape,
    replay::Recorded,
};
use demask::{AdapterChoice, DeviceChoice, DtypeChoice, Event, Generation, Model, Opened, Options, Prompt, TraceLine};
use demask::{
    DeviceOptions,
    trace::{TokenTexts, Tracer},
};
use demask_checkpoint::{AdapterFiles, ModelFiles};
use demask_model::Convention;

use super::demo::{load, opened, question};

/// Demo model, decoder and cache.
type Run = (&'static str, &'static str, &'static str);

/// Runs whose plans follow from what was predicted, and those of a guide.
const RUNS: &[Run] = &[
    ("demo-llada", "static", "none"),
    ("demo-llada", "static", "prefix"),
    ("demo-llada", "static", "dual"),
    ("demo-llada", "static", "freecache"),
    ("demo-llada", "static", "dllm"),
    ("demo-llada", "static", "dllm:prompt=50,response=3,rho=0.25"),
    ("demo-llada", "static", "dkv:refresh=4"),
    ("demo-llada", "threshold:tau=0.9", "dual"),
    ("demo-llada", "threshold:tau=0.7", "dllm"),
    ("demo-llada", "factor:f=1", "prefix"),
    ("demo-llada", "slowfast", "none"),
    ("demo-llada", "freedave:d=4", "none"),
    ("demo-llada", "freedave:d=3", "dual"),
    ("demo-llada", "guided", "none"),
    ("demo-dream", "static", "none"),
    ("demo-dream", "threshold:tau=0.9", "dual"),
    ("demo-dream", "freedave:d=4", "prefix"),
    ("demo-dream", "guided", "freecache"),
    ("demo-sdar", "static", "block"),
    ("demo-sdar", "threshold:tau=0.9", "block"),
    ("demo-sdar", "edit", "block"),
    ("demo-sdar", "freedave:d=4", "block"),
    ("demo-sdar", "freedave:d=8,eager=false", "block"),
    ("demo-qwen", "ar", "causal"),
];

fn options(decoder: &str, cache: &str) -> Options {
    Options {
        decoder: Some(decoder.parse().unwrap()),
        cache: Some(cache.parse().unwrap()),
        gen_length: Some(48),
        ignore_eos: Some(true),
        ..Options::default()
    }
}

/// A model and its outline, with a guide if the decoder wants one.
fn guided(name: &str, options: &Options) -> (Model, ModelShape) {
    let open = || {
        let model = opened(name);
        if options.wants_guide() { model.guided_by(opened("demo-qwen")).unwrap() } else { model }
    };
    (open().load(&DeviceOptions::default(), &[], &mut |_| true).unwrap(), ModelShape::of(open()))
}

/// Answers a prompt, and returns what was recorded on the way.
fn record(model: &mut Model, prompt: &Prompt, options: &Options) -> (Generation, Vec<TraceLine>) {
    let mut answer = model.prepare(prompt, options).unwrap();
    answer.record();
    let (tracer, texts) = (Tracer::new(model.info(), options.seed.unwrap_or(0)), TokenTexts::none());
    let mut lines = Vec::new();
    let answer = model.answer(answer, &mut |event| {
        lines.extend(tracer.line(event, &texts));
        ControlFlow::Continue(())
    });
    (answer.unwrap(), lines)
}

fn counting(device: &DeviceOptions) -> Counting<'_> {
    Counting { convention: Convention::Demask, device }
}

/// Estimate of a recorded run of a model.
fn replayed(outline: &ModelShape, prompt: &Prompt, options: &Options, lines: &[TraceLine]) -> Estimate {
    // What a trace is read from.
    let mut bytes = Vec::new();
    for line in lines {
        line.write(&mut bytes).unwrap();
    }
    let recorded = Recorded::new(demask::trace::read_trace(&bytes[..]).unwrap()).unwrap();
    let mut session = outline.session(prompt, options).unwrap();
    let (spec, networks) = (outline.info().spec().clone(), outline.infos());
    let found = outline.estimate(spec, &mut session, counting(&DeviceOptions::default()), &mut |session, price| {
        recorded.clone().script(session, &networks, price).map(drop)
    });
    found.unwrap()
}

/// Estimate of a run of assumed predictions.
fn assumed(
    outline: &ModelShape,
    prompt: &Prompt,
    options: &Options,
    acceptance: f64,
    counting: Counting<'_>,
) -> Estimate {
    let mut session = outline.session(prompt, options).unwrap();
    let mut mock = Assumed::new(outline.info(), acceptance, 0);
    let spec = outline.info().spec().clone();
    let found =
        outline.estimate(spec, &mut session, counting, &mut |session, price| dry_run(session, &mut mock, price));
    found.unwrap()
}

#[test]
fn costs_are_those_of_receipts() {
    for &(name, decoder, cache) in RUNS {
        let options = options(decoder, cache);
        let (mut model, outline) = guided(name, &options);
        let prompt = question(1);
        let (answer, lines) = record(&mut model, &prompt, &options);
        let what = format!("{name} {decoder} {cache}");
        let found = replayed(&outline, &prompt, &options, &lines);
        same(&found, &answer, &what);
        // Where the plans do not depend on predictions, nothing has to be recorded.
        if ["static", "ar"].contains(&decoder) && !cache.contains("dkv") {
            let device = DeviceOptions::default();
            same(&assumed(&outline, &prompt, &options, 0.0, counting(&device)), &answer, &what);
        }
    }
}

/// Rows that take an adapter cost more, whichever rows they are; beside the weights it takes memory, merged into them none.
#[test]
fn costs_with_an_adapter_are_those_of_receipts() {
    let checkpoints = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt");
    let files = |name: &str| ModelFiles::directory(checkpoints.join(name)).unwrap();
    let weights = [AdapterChoice::Masks, AdapterChoice::All, AdapterChoice::Merged].map(|choice| {
        let open = || {
            let adapter = AdapterFiles { files: files("idlm-base-toy-lora"), choice };
            let base = files("idlm-base-toy").of_family(Some("Qwen3:mask=93".parse().unwrap()));
            Opened::open(base.with_adapter(Some(adapter))).unwrap()
        };
        let prompt = Prompt::Tokens((1..20).collect());
        let options = options("isd", "causal");
        let mut model = open().load(&DeviceOptions::default(), &[], &mut |_| true).unwrap();
        let (answer, lines) = record(&mut model, &prompt, &options);
        let found = replayed(&ModelShape::of(open()), &prompt, &options, &lines);
        same(&found, &answer, &choice.to_string());
        found.network.memory.weights
    });
    let [masks, all, merged] = weights;
    assert!(masks == all && merged < all, "{weights:?}");
}

fn same(found: &Estimate, answer: &Generation, what: &str) {
    let receipt = &answer.receipt;
    assert_eq!(found.decoding, receipt.decoding, "{what}");
    let network = &found.network;
    assert_eq!(network.flops, receipt.decoding.flops, "{what}");
    assert_eq!(network.rows, receipt.decoding.rows as u64, "{what}");
    let by_module: f64 = network.modules.named().iter().map(|(_, module)| module.flops).sum();
    let by_step: f64 = network.steps.iter().map(|kind| kind.flops).sum();
    assert_eq!((by_module, by_step), (network.flops, network.flops), "{what}");
    assert_eq!(network.steps.iter().map(|kind| kind.forwards).sum::<usize>(), receipt.decoding.forwards, "{what}");
    assert_eq!(network.memory.weights, receipt.memory.weights as u64, "{what}");
    let guide = found.guide.as_ref();
    let pages = network.memory.cache + guide.map_or(0, |guide| guide.memory.cache);
    assert_eq!(pages, receipt.memory.cache as u64, "{what}");
    assert_eq!(guide.map_or(0, |guide| guide.forwards), receipt.guide_nfe, "{what}");
    let told = |guide: &demask::receipt::Guided| (guide.rows as u64, guide.flops, guide.acceptance);
    let counted = guide.map(|guide| (guide.rows, guide.flops, found.guide_acceptance.unwrap_or(0.0)));
    assert_eq!(counted, receipt.guide.as_ref().map(told), "{what}");
}

#[test]
fn bytes_of_forwards_are_those_of_the_network() {
    let model = load("demo-llada");
    let outline = ModelShape::of(opened("demo-llada"));
    let device = DeviceOptions::default();
    let found = assumed(&outline, &question(0), &options("static", "none"), 0.0, counting(&device));
    let modules = found.network.modules;
    let read = modules.projections.bytes + modules.mlp.bytes + modules.head.bytes;
    assert_eq!(read, (model.with_network(|network| network.forward_bytes()).unwrap() * found.network.forwards) as u64);
}

/// The predictions of a recorded run decide, whatever the network that runs: forwards, commits and operations are those of
/// the trace.
#[test]
fn replays_follow_the_trace_on_other_weights() {
    // Each demo has a block length of its own.
    let options = Options { block_length: Some(24), ..options("threshold:tau=0.8", "none") };
    let prompt = Prompt::Tokens((5..25).collect());
    let (told, lines) = record(&mut load("demo-llada"), &prompt, &options);
    // Its mask is a token of the other's, and it has fewer tokens.
    let other = load("demo-dream");
    let script = |options: &Options, lines: &[TraceLine]| {
        let mut session = other.info().session(&prompt, options).unwrap();
        Recorded::new(lines.to_vec())?.script(&mut session, &[other.info()], &mut |_, _| {})
    };
    let followed = script(&options, &lines).unwrap();
    let plain = lines.iter().filter(|line| !matches!(line, TraceLine::Predictions { .. })).cloned().collect::<Vec<_>>();
    assert_eq!(script(&options, &plain).unwrap_err(), ReplayError::NoPredictions);
    let longer = Options { gen_length: Some(64), block_length: Some(32), ..options.clone() };
    let refusal = script(&longer, &lines).unwrap_err().to_string();
    assert_eq!(
        refusal,
        "the trace was recorded with a response of 48 positions, this run has 64 positions: give the same"
    );
    let blocks = Options { block_length: Some(8), ..options.clone() };
    let refusal = script(&blocks, &lines).unwrap_err().to_string();
    assert!(refusal.starts_with("forward 0 predicts 20..28, and in the trace 20..44: give all"), "{refusal}");
    let half: Vec<_> = lines[..lines.len() / 2].to_vec();
    assert!(matches!(script(&options, &half).unwrap_err(), ReplayError::Short { .. }));
    let mut answer = other.prepare(&prompt, &options).unwrap();
    let mut followed = followed;
    answer.intercept(Box::new(move |_, answers| followed.next(answers)));
    let (mut forwards, mut commits) = (Vec::new(), 0);
    let mut watch = |event: &Event| {
        match event {
            Event::Step { rows, .. } => forwards.push(*rows),
            Event::Commit { .. } => commits += 1,
            _ => {}
        }
        ControlFlow::Continue(())
    };
    let ran = other.answer(answer, &mut watch).unwrap();
    assert_eq!(ran.receipt.decoding.nfe, told.receipt.decoding.nfe);
    assert_eq!((forwards.len(), commits), (told.receipt.decoding.forwards, 48));
    assert_eq!(ran.receipt.decoding.rows, told.receipt.decoding.rows);
}

/// A share of drafts is accepted: a forward takes 1 / (1 - share) tokens on average, where nothing limits it.
#[test]
fn acceptance_is_tokens_a_forward() {
    let outline = ModelShape::of_shape("llada-8b".parse().unwrap(), None).unwrap();
    let sdar = ModelShape::of_shape("sdar-4b".parse().unwrap(), None).unwrap();
    let device = device();
    let prompt = Prompt::Tokens(vec![7; 32]);
    let tokens = |outline: &ModelShape, decoder: &str, cache: &str, acceptance| {
        let options = Options { gen_length: Some(1024), block_length: None, ..options(decoder, cache) };
        let found = assumed(outline, &prompt, &options, acceptance, counting(&device));
        assert_eq!(found.decoding.generated_tokens, 1024);
        found.decoding.tokens_per_nfe
    };
    for acceptance in [0.0, 0.5, 0.8] {
        let expected = 1.0 / (1.0 - acceptance);
        for decoder in ["threshold:tau=0.9", "factor:f=1", "freedave:d=64"] {
            let found = tokens(&outline, decoder, "none", acceptance);
            assert!((found / expected - 1.0).abs() < 0.1, "{decoder} {acceptance}: {found} for {expected}");
        }
    }
    let chained = (0..4).map(|drafts| 0.7f64.powi(drafts)).sum::<f64>();
    let found = tokens(&outline, "freedave:d=4", "none", 0.7);
    assert!((found / chained - 1.0).abs() < 0.1, "{found} for {chained}");
    assert_eq!(tokens(&sdar, "static", "block", 0.9), tokens(&sdar, "static", "block", 0.0));
    assert!(tokens(&sdar, "freedave:d=4,eager", "block", 0.9) > 2.0);
}

/// Device on which costs of the page are counted: the same on every machine.
fn device() -> DeviceOptions {
    DeviceOptions {
        device: DeviceChoice::Cpu,
        dtype: DtypeChoice::Bf16,
        tier: Some(demask_cpu::isa::Isa::available()[0].tier()),
        threads: Some(1),
        ..DeviceOptions::default()
    }
}

/// Tokens of a prompt and of a response.
type Lengths = (usize, usize);

/// A published run: its name, the shape, lengths, the intervals of prompt and response, and the published ratio.
type Published = (&'static str, &'static str, Lengths, (u32, u32), f64);

/// dLLM-Cache's table. Prompts are those for which the published ratio comes out (specs/caches.md#2.6).
const PUBLISHED: &[Published] = &[
    ("LLaDA Base, GSM8K", "llada-8b", (819, 256), (25, 5), 5.02),
    ("LLaDA Instruct, GPQA", "llada-8b", (1344, 128), (50, 6), 8.08),
    ("LLaDA Instruct, BBH", "llada-8b", (1080, 256), (50, 6), 6.16),
    ("Dream Base, GSM8K", "dream-7b", (1140, 256), (100, 8), 6.90),
    ("Dream Base, GPQA", "dream-7b", (1275, 256), (100, 8), 7.15),
    ("Dream Instruct, MMLU", "dream-7b", (790, 256), (100, 8), 6.10),
];

/// dLLM-Cache as released, with these intervals.
fn released(prompt: u32, response: u32) -> String {
    format!("dllm:prompt={prompt},response={response},rho=0.25,count=forwards,rows=drift")
}

fn shape(name: &str) -> ModelShape {
    ModelShape::of_shape(name.parse().unwrap(), None).unwrap()
}

/// Operations of a step, in units of 1e12, of a published run with a cache.
fn published(outline: &ModelShape, (prompt, length): Lengths, cache: &str, convention: Convention) -> f64 {
    let options = Options { gen_length: Some(length), block_length: Some(length), ..options("static", cache) };
    let prompt = Prompt::Tokens(vec![7; prompt]);
    let device = device();
    let found = assumed(outline, &prompt, &options, 0.0, Counting { convention, device: &device });
    assert_eq!(found.decoding.forwards, length);
    found.network.flops / length as f64 / 1e12
}

/// T8, by the command's own way of counting.
#[test]
fn caches_t8_costs_are_the_published_ones() {
    for &(name, like, lengths, (prompt, response), ratio) in PUBLISHED {
        let outline = shape(like);
        let cost = |cache: &str| published(&outline, lengths, cache, Convention::Published);
        let found = cost("none") / cost(&released(prompt, response));
        assert!((found / ratio - 1.0).abs() < 3e-3, "{name}: {found} for {ratio}");
    }
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scale.md");

#[test]
fn the_page_of_scale_is_up_to_date() {
    let page = page();
    if std::env::var_os("DEMASK_BLESS").is_some() {
        fs::write(PAGE, &page).unwrap();
    }
    let found = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(found == page, "docs/scale.md differs: run again with DEMASK_BLESS=1");
}

fn page() -> String {
    let mut text = include_str!("scale.md").to_owned();
    for (mark, table) in
        [("<published>", published_table()), ("<modules>", modules_table()), ("<capacity>", capacity_table())]
    {
        assert!(text.contains(mark), "{mark}");
        text = text.replace(mark, table.trim_end());
    }
    text
}

fn published_table() -> String {
    let mut text =
        "| run | prompt, response | Kp/Kr | TFLOP a step | with dLLM-Cache | ratio | published | ratio of all that \
                    is computed here |\n|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for &(name, like, (prompt, length), (kp, kr), ratio) in PUBLISHED {
        let outline = shape(like);
        let cache = released(kp, kr);
        let both = |convention| ["none", &cache].map(|cache| published(&outline, (prompt, length), cache, convention));
        let ([base, cached], [ours, ours_cached]) = (both(Convention::Published), both(Convention::Demask));
        writeln!(
            text,
            "| {name} | {prompt}, {length} | {kp}/{kr} | {base:.3} | {cached:.3} | {:.2} | {ratio:.2} | {:.2} |",
            base / cached,
            ours / ours_cached
        )
        .unwrap();
    }
    text
}

/// Estimate of an answer of a shape with some methods.
fn costs(like: &str, (prompt, length): Lengths, decoder: &str, cache: &str, acceptance: f64) -> Estimate {
    let device = device();
    let block_length = (!like.starts_with("sdar")).then_some(32);
    let options = Options { gen_length: Some(length), block_length, ..options(decoder, cache) };
    let prompt = Prompt::Tokens(vec![7; prompt]);
    assumed(&shape(like), &prompt, &options, acceptance, counting(&device))
}

/// Estimate of the same network that takes one token after the other.
fn autoregressive(like: &str, (prompt, length): Lengths) -> Estimate {
    let (outline, device) = (shape(like), device());
    let (spec, mut session) = outline.autoregressive(prompt, length).unwrap();
    let mut mock = Assumed::new(outline.info(), 0.0, 0);
    let found = outline
        .estimate(spec, &mut session, counting(&device), &mut |session, price| dry_run(session, &mut mock, price));
    found.unwrap()
}

fn modules_table() -> String {
    let mut text = "| way | forwards | rows | projections | attention | MLP | head | all, TFLOP | read, GB |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let lengths = (1024, 256);
    let mut ways = vec![("autoregressive".to_owned(), autoregressive("llada-8b", lengths))];
    for (decoder, cache, acceptance) in [
        ("static", "none", 0.0),
        ("static", "prefix", 0.0),
        ("static", "dual", 0.0),
        ("static", "dllm:prompt=50,response=7,rho=0.25,count=forwards,rows=drift", 0.0),
        ("threshold:tau=0.9", "dual", 0.6),
    ] {
        let name = match acceptance {
            0.0 => format!("`{decoder}` over `{cache}`"),
            share => format!("`{decoder}` over `{cache}`, acceptance {share}"),
        };
        ways.push((name, costs("llada-8b", lengths, decoder, cache, acceptance)));
    }
    for (name, found) in ways {
        let network = found.network;
        let [projections, attention, mlp, head] = network.modules.named().map(|(_, module)| module.flops / 1e12);
        writeln!(
            text,
            "| {name} | {} | {} | {projections:.2} | {attention:.2} | {mlp:.2} | {head:.2} | {:.2} | {:.0} |",
            network.forwards,
            network.rows,
            network.flops / 1e12,
            network.bytes as f64 / 1e9
        )
        .unwrap();
    }
    text
}

fn capacity_table() -> String {
    let mut text = "| shape | prompt, response | way | forwards | GFLOP a token | read a token, GB | weights, GB | \
                    K/V of one request, MB |\n|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for (like, ways) in [
        ("llada-8b", [("static", "none", 0.0), ("static", "dual", 0.0), ("threshold:tau=0.9", "dual", 0.6)]),
        ("dream-7b", [("static", "none", 0.0), ("static", "dual", 0.0), ("threshold:tau=0.9", "dual", 0.6)]),
        ("sdar-4b", [("static", "block", 0.0), ("threshold:tau=0.9", "block", 0.6), ("freedave:d=4", "block", 0.6)]),
        ("sdar-8b", [("static", "block", 0.0), ("threshold:tau=0.9", "block", 0.6), ("freedave:d=4", "block", 0.6)]),
    ] {
        for lengths in [(256, 256), (1024, 256), (1024, 1024)] {
            let own = ways.map(|(decoder, cache, acceptance)| {
                let share = if acceptance > 0.0 { format!(", acceptance {acceptance}") } else { String::new() };
                (format!("`{decoder}` over `{cache}`{share}"), costs(like, lengths, decoder, cache, acceptance))
            });
            let ar = ("autoregressive".to_owned(), autoregressive(like, lengths));
            for (name, found) in own.into_iter().chain([ar]) {
                let (network, tokens) = (found.network, found.decoding.generated_tokens as f64);
                writeln!(
                    text,
                    "| {like} | {}, {} | {name} | {} | {:.0} | {:.2} | {:.2} | {:.0} |",
                    lengths.0,
                    lengths.1,
                    network.forwards,
                    network.flops / tokens / 1e9,
                    network.bytes as f64 / tokens / 1e9,
                    network.memory.weights as f64 / 1e9,
                    network.memory.cache as f64 / 1e6
                )
                .unwrap();
            }
        }
    }
    text
}
