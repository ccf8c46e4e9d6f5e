//! The demo models solve the word problems that they were trained for, and bf16 solves as many as f32.
//!
//! By default 5 of the 500 problems on the best tier. `DEMASK_PROBLEMS=100`, as the full gate has it, runs more of them on
//! every tier, and `DEMASK_PROBLEMS=500` prints the figures that are stated, of the models and tiers in `DEMASK_MODELS` and
//! `DEMASK_TIERS` (names joined by commas; all of them if unset), and of the quantisations in `DEMASK_KINDS` (`q8-plain`,
//! `q8-int8`, `q4-plain`, `q4-int8`).
//! `DEMASK_RECORD=FILE` appends them as JSON lines.
//!
//! Each model has a test of its own, which computes on one thread: tests of other models have the other cores.

use std::{
    collections::{BTreeMap, HashMap},
    io::Write,
    ops::ControlFlow,
    path::Path,
    time::Instant,
};

use crate::common::{Device, emulated};
use demask::{ActivationChoice, DtypeChoice, Model, Options, Prompt, WeightChoice};
use demask::{DeviceOptions, ModelByHand, Opened};
use demask_checkpoint::ModelFiles;
use demask_cpu::isa::{Isa, Tier};
use demask_cuda::CudaOptions;
use demask_decode::Session;
use demask_engine::RequestId;
use demask_step::{Job, Mask, Predictions, SequenceId, SequenceLimits, SequenceStep};
use demask_tensor::Dtype;
use demask_testkit::by_hand::ByHand;
use serde_json::Value;

/// Right answers of 500, as `demo/README.md` states them.
const STATED: [(&str, usize); 4] = [("demo-llada", 474), ("demo-dream", 470), ("demo-sdar", 493), ("demo-qwen", 500)];

/// A test of each demo model, by a function of its name.
macro_rules! of_each_model {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            #[test]
            fn llada() {
                super::$test("demo-llada");
            }

            #[test]
            fn dream() {
                super::$test("demo-dream");
            }

            #[test]
            fn sdar() {
                super::$test("demo-sdar");
            }

            #[test]
            fn qwen() {
                super::$test("demo-qwen");
            }
        }
    )*};
}

of_each_model!(
    demo_models_are_as_good_as_stated,
    quantised_demo_models_are_nearly_as_good_as_plain_ones,
    quantised_predictions_stay_near_those_of_bf16,
    bf16_decides_differently_only_at_ties_within_rounding,
    emulated_gpu_decides_as_the_processor_does_but_for_ties_within_rounding,
);

#[test]
fn every_stated_model_has_its_tests() {
    let names = STATED.map(|(name, _)| name);
    assert_eq!(names, ["demo-llada", "demo-dream", "demo-sdar", "demo-qwen"]);
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn problems(count: usize) -> Vec<(String, i64)> {
    let text = std::fs::read_to_string(root().join("demo/wordmath-test.jsonl")).unwrap();
    let lines = text.lines().take(count).map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| (line["question"].as_str().unwrap().to_owned(), line["answer"].as_i64().unwrap())).collect()
}

/// Number of problems that the environment asks for.
fn asked() -> Option<usize> {
    std::env::var("DEMASK_PROBLEMS").ok().and_then(|count| count.parse().ok())
}

fn wanted() -> usize {
    asked().unwrap_or(5)
}

/// Every tier that computes bf16 in a way of its own, or the best one alone where no number of problems is asked for.
fn bf16_tiers() -> Vec<Tier> {
    let tiers = Isa::available().into_iter().map(Isa::tier);
    let wanted = |tier: &Tier| asked().is_some() || *tier == Isa::best().tier();
    tiers.filter(|tier| wanted(tier) && listed("DEMASK_TIERS", tier.name())).collect()
}

/// Reports whether a name is in the list of an environment variable, or nobody gave one.
fn listed(variable: &str, name: &str) -> bool {
    std::env::var(variable).map_or(true, |list| list.split(',').any(|listed| listed == name))
}

fn load(name: &str, tier: Tier, dtype: DtypeChoice) -> ModelByHand {
    load_on(name, &DeviceOptions { tier: Some(tier), dtype, threads: Some(1), ..DeviceOptions::default() })
}

fn load_on(name: &str, device: &DeviceOptions) -> ModelByHand {
    let files = ModelFiles::directory(root().join("demo").join(name)).unwrap();
    Model::load(files, device, &mut |_| true).unwrap().by_hand().unwrap()
}

/// The number behind the phrase that every solution ends with.
fn answer(text: &str) -> Option<i64> {
    let (_, rest) = text.split_once("The final answer is ")?;
    let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
    digits.parse().ok()
}

#[derive(Clone)]
struct Outcome {
    right: usize,
    forwards: usize,
    tokens: Vec<Vec<u32>>,
}

/// Reference decoding of a whole solution.
fn reference(model: &ModelByHand) -> Options {
    let causal = model.info().facts().mask == Mask::Causal;
    let decoder = (!causal).then(|| "static".parse().unwrap());
    Options { gen_length: Some(64), decoder, ..Options::default() }
}

/// Solves problems by reference decoding.
fn solve(model: &mut ModelByHand, problems: &[(String, i64)]) -> Outcome {
    let options = reference(model);
    solve_with(model, problems, options)
}

/// Solves problems, many sessions at a time.
fn solve_with(model: &mut ModelByHand, problems: &[(String, i64)], options: Options) -> Outcome {
    let block_length = (model.info().facts().mask == Mask::Full).then_some(16);
    let options = Options { block_length, ..options };
    let mut outcome = Outcome { right: 0, forwards: 0, tokens: Vec::new() };
    for group in problems.chunks(8) {
        let sessions: Vec<Session> = group
            .iter()
            .map(|(question, _)| model.info().session(&Prompt::user(question.as_str(), None), &options).unwrap())
            .collect();
        let ids = sessions.into_iter().map(|session| model.submit(session).unwrap());
        let ids: Vec<RequestId> = ids.collect();
        let mut over = HashMap::new();
        while !model.is_idle() {
            over.extend(model.step(&mut |_| ControlFlow::Continue(())));
        }
        for (id, (_, expected)) in ids.into_iter().zip(group) {
            let session: Session = over.remove(&id).unwrap().unwrap().into_job().unwrap();
            let output = session.output();
            let text = model.info().tokenizer().unwrap().decode(&output.tokens, true);
            outcome.right += usize::from(answer(&text) == Some(*expected));
            outcome.forwards += session.counts().forwards;
            outcome.tokens.push(output.tokens);
        }
    }
    outcome
}

fn record(line: &Value) {
    let _ = writeln!(std::io::stdout(), "{line}");
    if let Some(path) = std::env::var_os("DEMASK_RECORD") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

/// A client that sends `temperature: 0.1` beside no decoder gets a threshold, and answers as good as those of static decoding.
#[test]
fn thresholds_at_a_low_temperature_solve_what_static_decoding_solves() {
    let problems = problems(asked().map_or(10, |count| count.min(40)));
    for name in ["demo-dream", "demo-sdar"] {
        let mut model = load(name, Isa::best().tier(), DtypeChoice::F32);
        let mut right = |decoder: &str, temperature: f32| {
            let (decoder, temperature) = (Some(decoder.parse().unwrap()), Some(temperature));
            solve_with(
                &mut model,
                &problems,
                Options { decoder, temperature, gen_length: Some(64), ..Options::default() },
            )
        };
        for temperature in [0.1, 0.5] {
            let (sure, expected) = (right("threshold", temperature), right("static", temperature));
            assert!(sure.right + 2 >= expected.right, "{name}: {} of {}", sure.right, expected.right);
            assert!(sure.forwards < expected.forwards * 2 / 3, "{name}: several tokens a forward");
            let tempered = right("threshold:confidence=tempered", temperature);
            assert!(tempered.forwards < sure.forwards, "{name}: the released reading is sure of more");
        }
    }
}

fn demo_models_are_as_good_as_stated(name: &str) {
    if !listed("DEMASK_MODELS", name) {
        return;
    }
    let problems = problems(wanted());
    let count = problems.len();
    let (_, stated) = STATED.into_iter().find(|(stated, _)| *stated == name).unwrap();
    let mut runs = vec![(Isa::best().tier(), DtypeChoice::F32)];
    runs.extend(bf16_tiers().into_iter().map(|tier| (tier, DtypeChoice::Bf16)));
    let mut reference: Option<Outcome> = None;
    for (tier, dtype) in runs {
        let started = Instant::now();
        let outcome = solve(&mut load(name, tier, dtype), &problems);
        let reference = reference.get_or_insert_with(|| outcome.clone());
        let differing = reference.tokens.iter().zip(&outcome.tokens).filter(|(a, b)| a != b).count();
        let line = BTreeMap::from([
            ("model", Value::from(name)),
            ("tier", tier.name().into()),
            ("dtype", dtype.to_string().into()),
            ("problems", count.into()),
            ("right", outcome.right.into()),
            ("answers_unlike_f32", differing.into()),
            ("forwards_per_problem", (outcome.forwards as f64 / count as f64).into()),
            ("seconds", started.elapsed().as_secs_f64().into()),
        ]);
        record(&serde_json::to_value(line).unwrap());
        // 1.5 points for the model, 1 point for bf16; a part of the problems may scatter by 3 deviations more.
        let scatter = if count == 500 { 0.0 } else { 3.0 * (0.06 / count as f64).sqrt() };
        let accuracy = outcome.right as f64 / count as f64;
        let expected = stated as f64 / 500.0;
        assert!((accuracy - expected).abs() <= 0.015 + scatter, "{name} {}: {accuracy}", tier.name());
        let f32_accuracy = reference.right as f64 / count as f64;
        assert!((accuracy - f32_accuracy).abs() <= 0.01 + 1.0 / count as f64, "{name} {}", tier.name());
    }
}

/// Weights and inputs of products, and the share of right answers that they may cost.
const QUANTISED: [(WeightChoice, ActivationChoice, f64); 4] = [
    (WeightChoice::Q8, ActivationChoice::Plain, 0.01),
    (WeightChoice::Q8, ActivationChoice::Int8, 0.01),
    (WeightChoice::Q4, ActivationChoice::Plain, 0.03),
    (WeightChoice::Q4, ActivationChoice::Int8, 0.03),
];

/// The best tier, or those in `DEMASK_TIERS`.
fn chosen_tiers() -> Vec<Tier> {
    let tiers = Isa::available().into_iter().map(Isa::tier);
    match std::env::var("DEMASK_TIERS") {
        Ok(_) => tiers.filter(|tier| listed("DEMASK_TIERS", tier.name())).collect(),
        Err(_) => vec![Isa::best().tier()],
    }
}

fn bf16_on(tier: Tier, weights: WeightChoice, activations: ActivationChoice) -> DeviceOptions {
    let (tier, dtype, threads) = (Some(tier), DtypeChoice::Bf16, Some(1));
    DeviceOptions { tier, dtype, quantize: weights, activations, threads, ..DeviceOptions::default() }
}

/// Eight bits cost at most 1 point, four bits at most 3, whether inputs are integers too or not: rounding is not what a
/// model fails by.
fn quantised_demo_models_are_nearly_as_good_as_plain_ones(name: &str) {
    if !listed("DEMASK_MODELS", name) {
        return;
    }
    let problems = problems(wanted());
    let count = problems.len();
    for tier in chosen_tiers() {
        let right = |weights, activations| {
            let outcome = solve(&mut load_on(name, &bf16_on(tier, weights, activations)), &problems);
            let line = BTreeMap::from([
                ("model", Value::from(name)),
                ("tier", tier.name().into()),
                ("weights", format!("{weights:?}").to_lowercase().into()),
                ("activations", format!("{activations:?}").to_lowercase().into()),
                ("problems", count.into()),
                ("right", outcome.right.into()),
                ("forwards_per_problem", (outcome.forwards as f64 / count as f64).into()),
            ]);
            record(&serde_json::to_value(line).unwrap());
            outcome.right as f64 / count as f64
        };
        let plain = right(WeightChoice::Plain, ActivationChoice::Plain);
        for (weights, activations, allowed) in QUANTISED {
            if !listed("DEMASK_KINDS", &format!("{weights:?}-{activations:?}").to_lowercase()) {
                continue;
            }
            let found = right(weights, activations);
            // A part of the problems scatters: those that tip are few of few.
            let scatter = if count == 500 { 0.0 } else { 3.0 * (0.06 / count as f64).sqrt() };
            let what = format!("{name} {} {weights:?} {activations:?}", tier.name());
            assert!(found >= plain - allowed - scatter, "{what}: {found}, {plain} with bf16");
        }
    }
}

/// What predictions lose where numbers are rounded to integers, on the canvases of bf16: the mean over all predicted
/// positions of the divergence (Kullback-Leibler, in nats) of the distribution from that of bf16.
fn quantised_predictions_stay_near_those_of_bf16(name: &str) {
    /// Largest accepted means for eight bits and for four.
    const MOST: [f64; 2] = [1e-3, 1e-2];
    if !listed("DEMASK_MODELS", name) {
        return;
    }
    let problems = problems(wanted().min(100) / 5);
    for tier in chosen_tiers() {
        let mut plain = load_on(name, &bf16_on(tier, WeightChoice::Plain, ActivationChoice::Plain));
        let options = reference(&plain);
        let mut rounded =
            QUANTISED.map(|(weights, activations, _)| load_on(name, &bf16_on(tier, weights, activations)));
        let vocabulary = plain.info().facts().vocab;
        let (mut sums, mut positions) = ([0f64; QUANTISED.len()], 0);
        for (question, _) in &problems {
            let mut session = plain.info().session(&Prompt::user(question.as_str(), None), &options).unwrap();
            let needs = SequenceLimits { logits: true, ..session.needs()[0].limits.clone() };
            let id = plain.network_mut().open(&needs).unwrap();
            let ids = rounded.each_mut().map(|model| model.network_mut().open(&needs).unwrap());
            while session.wants() == Some(0) {
                let mut answer = [Predictions::default()];
                step(&mut plain, id, &session, &mut answer[0]);
                let rows = answer[0].logits.chunks_exact(vocabulary);
                positions += rows.len();
                for ((model, id), sum) in rounded.iter_mut().zip(ids).zip(&mut sums) {
                    let mut found = Predictions::default();
                    step(model, id, &session, &mut found);
                    let pairs = rows.clone().zip(found.logits.chunks_exact(vocabulary));
                    *sum += pairs.map(|(plain, found)| divergence(plain, found)).sum::<f64>();
                }
                session.feed(&answer);
            }
            plain.network_mut().close(id);
            rounded.iter_mut().zip(ids).for_each(|(model, id)| model.network_mut().close(id));
        }
        for ((weights, activations, _), sum) in QUANTISED.into_iter().zip(sums) {
            let mean = sum / positions as f64;
            let line = BTreeMap::from([
                ("model", Value::from(name)),
                ("tier", tier.name().into()),
                ("weights", format!("{weights:?}").to_lowercase().into()),
                ("activations", format!("{activations:?}").to_lowercase().into()),
                ("problems", problems.len().into()),
                ("positions", positions.into()),
                ("mean_divergence_from_bf16", mean.into()),
            ]);
            record(&serde_json::to_value(line).unwrap());
            let most = MOST[usize::from(weights == WeightChoice::Q4)];
            assert!(mean <= most, "{name} {} {weights:?} {activations:?}: {mean}", tier.name());
        }
    }
}

/// Sum of `p * ln(p / q)` of the distributions of two rows of logits. Tokens that cannot be predicted have none.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let normaliser = |logits: &[f32]| {
        let most = logits.iter().copied().fold(f32::MIN, f32::max);
        f64::from(most) + logits.iter().map(|logit| f64::from(logit - most).exp()).sum::<f64>().ln()
    };
    let (all_p, all_q) = (normaliser(p), normaliser(q));
    let both = p.iter().zip(q).filter(|(p, _)| p.is_finite());
    both.map(|(p, q)| {
        let (p, q) = (f64::from(*p) - all_p, f64::from(*q) - all_q);
        p.exp() * (p - q)
    })
    .sum()
}

/// Choice of static decoding among predictions: the surest position, ties to the lowest, and its token.
fn choice(predictions: &Predictions) -> Option<(usize, u32)> {
    let rows = predictions.confidence.iter().enumerate();
    let open = rows.filter(|&(row, _)| predictions.tokens[row] != demask_step::NO_TOKEN);
    let best = open.reduce(|best, row| if row.1 > best.1 { row } else { best })?;
    Some((best.0, predictions.tokens[best.0]))
}

/// Natural logarithm of a token's probability in a row of logits.
fn log_probability(logits: &[f32], token: u32) -> f32 {
    let most = logits.iter().copied().fold(f32::MIN, f32::max);
    logits[token as usize] - most - logits.iter().map(|logit| (logit - most).exp()).sum::<f32>().ln()
}

/// Runs one step of a session's first sequence and asks for all logits.
fn step(model: &mut ModelByHand, sequence: SequenceId, session: &Session, out: &mut Predictions) {
    let request = &session.requests()[0];
    let mut ask = request.ask.clone();
    ask.wanted.logits = true;
    let step = SequenceStep { ask: &ask, ..request.step(sequence) };
    model.network_mut().step(&[step], std::slice::from_mut(out)).unwrap();
}

/// Decisions of two models on the same canvases.
#[derive(Default)]
struct Compared {
    decisions: usize,
    /// Number of differences, all of them closer than logits have moved.
    ties: usize,
    /// Largest distance of logits, relative to the largest expected one of the step.
    worst: f32,
}

impl Compared {
    /// Compares what two models decide in the first `most` steps of each problem; the canvases are the first one's.
    fn of([expected, found]: [&mut ModelByHand; 2], problems: &[(String, i64)], most: usize, what: &str) -> Self {
        let (options, mut compared) = (reference(expected), Self::default());
        for (question, _) in problems {
            let mut session = expected.info().session(&Prompt::user(question.as_str(), None), &options).unwrap();
            let needs = SequenceLimits { logits: true, ..session.needs()[0].limits.clone() };
            let ids = [&mut *expected, &mut *found].map(|model| model.network_mut().open(&needs).unwrap());
            for _ in 0..most {
                if session.wants() != Some(0) {
                    break;
                }
                let mut answers = [Predictions::default(), Predictions::default()];
                step(expected, ids[0], &session, &mut answers[0]);
                step(found, ids[1], &session, &mut answers[1]);
                compared.add(&answers, expected.info().facts().vocab, what);
                session.feed(&answers[..1]);
            }
            expected.network_mut().close(ids[0]);
            found.network_mut().close(ids[1]);
        }
        compared
    }

    /// Compares one step, if it decides anything.
    fn add(&mut self, [expected, found]: &[Predictions; 2], vocabulary: usize, what: &str) {
        let (Some(a), Some(b)) = (choice(expected), choice(found)) else { return };
        let moved = expected.logits.iter().zip(&found.logits).filter(|(a, _)| a.is_finite());
        let moved = moved.fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        let scale = expected.logits.iter().filter(|a| a.is_finite()).fold(0f32, |most, a| most.max(a.abs()));
        self.worst = self.worst.max(moved / scale);
        let row = |row: usize| &expected.logits[row * vocabulary..(row + 1) * vocabulary];
        let gap = log_probability(row(a.0), a.1) - log_probability(row(b.0), b.1);
        self.decisions += 1;
        self.ties += usize::from(a != b);
        // Each log-probability moves by at most twice what a logit moves.
        assert!(a == b || gap <= 4.0 * moved, "{what}: {gap} beyond rounding");
    }

    fn record(&self, name: &str, tier: &str, problems: usize) {
        let line = BTreeMap::from([
            ("model", Value::from(name)),
            ("tier", tier.into()),
            ("problems", problems.into()),
            ("decisions", self.decisions.into()),
            ("ties_decided_differently", self.ties.into()),
            ("largest_logit_distance", f64::from(self.worst).into()),
        ]);
        record(&serde_json::to_value(line).unwrap());
    }
}

/// Largest accepted distance of bf16 logits, relative to the largest logit of the step.
const ROUNDING: f32 = 4e-2;

/// On one and the same canvas, bf16 decides as f32 does, except where the two candidates are closer than the rounding
/// of bf16 moves them. Such ties are counted.
fn bf16_decides_differently_only_at_ties_within_rounding(name: &str) {
    let problems = problems(wanted().min(100) / 5);
    let mut exact = load(name, Isa::best().tier(), DtypeChoice::F32);
    for tier in bf16_tiers() {
        let mut rounded = load(name, tier, DtypeChoice::Bf16);
        let what = format!("{name} {}", tier.name());
        let compared = Compared::of([&mut exact, &mut rounded], &problems, usize::MAX, &what);
        compared.record(name, tier.name(), problems.len());
        assert!(compared.worst <= ROUNDING, "{what}: logits {} away", compared.worst);
    }
}

/// The kernels of GPUs decide in bf16 as the processor does in bf16, but for such ties. Played on the processor they are
/// slow: the first steps of a problem have to do.
fn emulated_gpu_decides_as_the_processor_does_but_for_ties_within_rounding(name: &str) {
    let problems = problems(1);
    let mut processor = load(name, Isa::best().tier(), DtypeChoice::Bf16);
    let mut gpu = Device::EmulatedGpu.load(&root().join("demo").join(name), DtypeChoice::Bf16).unwrap();
    let what = format!("{name} emulated GPU");
    let compared = Compared::of([&mut processor, &mut gpu], &problems, 6, &what);
    compared.record(name, "emulated GPU", problems.len());
    assert!(compared.decisions >= 3 && 4 * compared.ties <= compared.decisions, "{what}: {} ties", compared.ties);
    assert!(compared.worst <= ROUNDING, "{what}: logits {} away", compared.worst);
}

/// Quantised weights are the same numbers on a GPU: in f32 nothing but the order of sums differs.
#[test]
fn emulated_gpu_multiplies_the_quantised_weights_of_the_processor() {
    const TOKENS: [u32; 9] = [3, 1, 4, 1, 5, 9, 2, 6, 5];
    let logits = |model: &mut ModelByHand| model.network_mut().inspect(&TOKENS, Mask::Causal, false).unwrap().logits;
    for weights in [WeightChoice::Q8, WeightChoice::Q4] {
        let device = DeviceOptions { quantize: weights, dtype: DtypeChoice::F32, ..DeviceOptions::default() };
        let expected = logits(&mut load_on("demo-qwen", &device));
        let backend = emulated(CudaOptions { dtype: Dtype::F32, quantisation: weights.quantisation() });
        let opened = Opened::open(ModelFiles::directory(root().join("demo/demo-qwen")).unwrap()).unwrap();
        let found = logits(&mut opened.load_on(backend, None, &mut |_| true).unwrap().by_hand().unwrap());
        let scale = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
        let moved = expected.iter().zip(&found).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(expected.len() == found.len() && moved <= 1e-4 * scale, "{weights}: {moved} of {scale}");
    }
}
