//! Runs every case of a folder in the format of `golden/` (described in `golden/README.md`).
//!
//! `DEMASK_GOLDEN=DIR cargo test --release -p demask --test golden` runs another folder; checkpoints that it lacks are
//! taken from the project's own. For each method the number of cases that passed, failed (with the first differing
//! step) and belong to a method not built yet is printed; any failure fails the test.

mod adapters;
mod cases;
#[path = "../common/device.rs"]
mod device;
mod idlm;
mod parameters;
mod rnd1;

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
};

use cases::{Case, DecodeFile, Forward, Input};
use demask::DtypeChoice;
use demask::ModelByHand;
use demask_cpu::isa::{Isa, Tier};
use demask_decode::{Event, Exactness, Session, SessionOptions, StopRule};
use demask_step::{Mask, NO_TOKEN};
use demask_tensor::Score;
use device::Device;

/// Largest accepted distance in f32, relative to the largest magnitude of the expected tensor.
const F32_TOLERANCE: f32 = 1e-4;
/// Tolerance in bf16: 8 significant bits lose 2^-9 at each of the roundings on the way through the layers.
const BF16_TOLERANCE: f32 = 4e-2;

/// Tolerance in bf16 of the families of 2026, whose small networks have sharper predictions: PyTorch in bf16 is as far
/// from f32.
const SHARP_BF16_TOLERANCE: f32 = 8e-2;

/// The tiers that compute f32 in their own way; the others share these kernels.
fn f32_tiers() -> Vec<Isa> {
    let own = [Tier::Portable, Tier::Avx2, Tier::Avx512, Tier::Neon];
    Isa::available().into_iter().filter(|isa| own.contains(&isa.tier())).collect()
}

/// Devices that long tests run on, a test each: threads share them, and any can be left out by its name.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Devices {
    /// Tier `portable`, the same code on all machines.
    Portable,
    /// This machine's other tiers.
    Vectors,
    /// Kernels of GPUs, played on the processor.
    EmulatedGpu,
}

impl Devices {
    /// The devices that compute in a type in their own way.
    fn in_type(self, dtype: DtypeChoice) -> Vec<Device> {
        let tiers = if dtype == DtypeChoice::F32 { f32_tiers() } else { Isa::available() };
        let (portable, others): (Vec<_>, Vec<_>) = tiers.into_iter().partition(|isa| isa.tier() == Tier::Portable);
        match self {
            Self::Portable => portable.into_iter().map(Device::Cpu).collect(),
            Self::Vectors => others.into_iter().map(Device::Cpu).collect(),
            Self::EmulatedGpu => vec![Device::EmulatedGpu],
        }
    }
}

/// A test of the module's name for each of the devices.
macro_rules! tests_on_devices {
    ($($name:ident: $run:expr;)+) => {
        $(mod $name {
            use super::*;

            #[test]
            fn portable() {
                $run(Devices::Portable);
            }

            #[test]
            fn vectors() {
                $run(Devices::Vectors);
            }

            #[test]
            fn emulated_gpu() {
                $run(Devices::EmulatedGpu);
            }
        })+
    };
}

tests_on_devices! {
    forward_f32: |on| forward_cases(on, DtypeChoice::F32, F32_TOLERANCE);
    forward_bf16: |on| forward_cases(on, DtypeChoice::Bf16, BF16_TOLERANCE);
    decode: decode_cases;
    idlm_decode: idlm::cases;
    adapters_f32: |on| adapters::forwards(on, DtypeChoice::F32, F32_TOLERANCE);
    adapters_bf16: |on| adapters::forwards(on, DtypeChoice::Bf16, BF16_TOLERANCE);
}

fn own_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

fn folder() -> PathBuf {
    std::env::var_os("DEMASK_GOLDEN").map_or_else(own_folder, PathBuf::from)
}

/// Written past the test harness, which would swallow it.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn files(folder: &Path, kind: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder.join(kind)) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files
}

fn checkpoint(folder: &Path, name: &str) -> PathBuf {
    let mut path = folder.join("ckpt").join(name);
    if !path.is_dir() {
        path = own_folder().join("ckpt").join(name);
    }
    assert!(path.is_dir(), "no checkpoint {name} in {} or in the project", folder.display());
    path
}

fn load(folder: &Path, name: &str, on: Device, dtype: DtypeChoice) -> ModelByHand {
    on.load(&checkpoint(folder, name), dtype).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Loads a checkpoint whose logits are divided by a temperature.
fn load_tempered(folder: &Path, name: &str, on: Device, temperature: f64) -> ModelByHand {
    if temperature == 1.0 {
        return load(folder, name, on, DtypeChoice::F32);
    }
    let path = rnd1::tempered(&checkpoint(folder, name), temperature);
    let model = on.load(&path, DtypeChoice::F32).unwrap_or_else(|error| panic!("{name}: {error}"));
    std::fs::remove_dir_all(path).unwrap();
    model
}

/// Largest absolute difference, relative to the largest expected magnitude.
fn distance(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len(), "sizes differ");
    let scale = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
    let most = found.iter().zip(expected).fold(0f32, |most, (a, b)| most.max(if a == b { 0.0 } else { (a - b).abs() }));
    if most.is_nan() || found.iter().any(|value| value.is_nan()) { f32::INFINITY } else { most / scale }
}

/// Whether a network's experts are chosen by sigmoids.
fn is_sigmoid(model: &ModelByHand) -> bool {
    model.info().spec().experts.as_ref().is_some_and(|experts| experts.rule.score == Score::Sigmoid)
}

/// Compares some inputs of one forward file; answers the largest distance.
fn check_forward(
    model: &mut ModelByHand,
    (forward, inputs): (&Forward, &[&Input]),
    tolerance: f32,
    failures: &mut Vec<String>,
) -> f32 {
    let mut worst = 0f32;
    for &input in inputs {
        let hidden = model.info().spec().hidden;
        let (ids, rows) = forward.ids(input);
        let mask = match input.mask(model.info().spec().attention) {
            Ok(mask) => mask,
            Err(error) => {
                failures.push(format!("{} {}: {error}", forward.model, input.tag));
                continue;
            }
        };
        let found = model.network_mut().inspect(&ids, mask, true).unwrap();
        let mut compare = |what: String, found: &[f32], width: usize| {
            let Some(expected) = forward.tensor(&format!("{}.{what}", input.tag)) else { return };
            let found = &found[(found.len() / width - rows) * width..];
            let distance = distance(found, &expected);
            worst = worst.max(distance);
            if distance > tolerance || distance.is_nan() {
                failures.push(format!("{} {} {what}: distance {distance:e}", forward.model, input.tag));
            }
        };
        compare("embed".into(), &found.hidden.embed, hidden);
        for (layer, output) in found.hidden.layers.iter().enumerate() {
            compare(format!("layer{layer}"), output, hidden);
        }
        compare("final".into(), &found.hidden.last, hidden);
        compare("logits".into(), &found.logits, found.logits.len() / ids.len());
    }
    worst
}

fn forward_cases(on: Devices, dtype: DtypeChoice, tolerance: f32) {
    let folder = folder();
    let mut failures = Vec::new();
    for path in files(&folder, "forward") {
        let forward = Forward::read(&path);
        if forward.adapter.is_some() {
            continue;
        }
        let of_2026 = forward.model.starts_with("dense-") || forward.model.starts_with("moe-");
        let sharp = dtype == DtypeChoice::Bf16 && of_2026;
        let tolerance = if sharp { SHARP_BF16_TOLERANCE } else { tolerance };
        let mut names = vec![forward.model.clone()];
        if forward.model == "tiny-llada" {
            // The same weights in two shards.
            names.push("tiny-llada-sharded".into());
        }
        let devices = on.in_type(dtype);
        for (device, name) in devices.iter().flat_map(|device| names.iter().map(move |name| (*device, name))) {
            let mut model = load(&folder, name, device, dtype);
            if device == Device::EmulatedGpu && model.info().spec().experts.is_some() {
                let refused = model.network_mut().inspect(&[1], Mask::Full, false).unwrap_err().to_string();
                assert!(refused.ends_with("experts, GPU kernels take none: use `device` cpu"), "{refused}");
                continue;
            }
            if device == Device::EmulatedGpu
                && dtype == DtypeChoice::Bf16
                && !model.info().spec().head_dim.is_multiple_of(8)
            {
                let refused = model.network_mut().inspect(&[1], Mask::Full, false).unwrap_err();
                let told = "a head has 12 numbers, GPU kernels take multiples of 8 up to 256 in bf16: ";
                assert!(refused.to_string().starts_with(&format!("the device failed: {told}")), "{refused}");
                continue;
            }
            let sigmoid = is_sigmoid(&model);
            let chosen = |input: &&Input| dtype == DtypeChoice::F32 || input.chooses_in_bf16(sigmoid);
            let inputs: Vec<_> = forward.inputs.iter().filter(chosen).collect();
            let worst = check_forward(&mut model, (&forward, &inputs), tolerance, &mut failures);
            let (run, all) = (inputs.len(), forward.inputs.len());
            say(&format!("forward {name} {dtype} {device}: {run} of {all} inputs, distance {worst:.1e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Trace of a session, in the words of a golden case.
#[derive(Default)]
struct Trace {
    steps: Vec<Vec<(u32, u32)>>,
    rows: Vec<usize>,
    nfe: usize,
    /// Drafts accepted in each step, and forwards of the guide.
    accepted: Vec<usize>,
    /// Tokens of each verified window.
    cycles: Vec<usize>,
    guide_nfe: usize,
    canvas: Vec<u32>,
}

fn run(model: &mut ModelByHand, session: Session) -> Result<Trace, String> {
    let mask = model.info().facts().mask_id.unwrap_or(NO_TOKEN);
    let mut session = model.decode(session).map_err(|error| error.to_string())?;
    let mut trace = Trace::default();
    // The references count calls, which are NFE: a forward that the method's paper counts twice commits in the second.
    let mut commits = Vec::new();
    for event in session.events() {
        match event {
            Event::Step { rows, nfe, accepted, rejected, drafts, .. } => {
                trace.rows.push(rows);
                if drafts > 0 && accepted + rejected > 0 {
                    trace.cycles.push(accepted + 1);
                }
                trace.accepted.push(accepted);
                trace.steps.resize(nfe, Vec::new());
                trace.steps[nfe - 1].append(&mut commits);
            }
            Event::Commit { position, token, .. } => commits.push((position, token)),
            // What is taken back is the mask in the references' words.
            Event::Replace { position, to, .. } => commits.push((position, to.unwrap_or(mask))),
            _ => {}
        }
    }
    trace.steps.iter_mut().for_each(|step| step.sort_unstable());
    trace.nfe = session.counts().nfe;
    trace.guide_nfe = session.counts().guide.nfe;
    trace.canvas = session.output().canvas;
    Ok(trace)
}

/// The first difference between a case and a trace, as far as the answer goes: the loops of 2026's families write and run
/// on behind it.
fn difference_of_answers(case: &Case, trace: &mut Trace) -> Option<String> {
    let (answered, end) = (case.answered(), case.answer_end());
    let rows = case.fed_rows.as_ref().map(|fed| fed.iter().zip(&trace.rows).position(|(fed, own)| fed != own));
    if let Some(Some(step)) = rows {
        return Some(format!("rows: expected {:?}, found {:?}: step {step}", case.fed_rows, trace.rows));
    }
    if case.accepted_per_cycle.as_ref().is_some_and(|cycles| *cycles != trace.cycles) {
        return Some(format!("cycles: expected {:?}, found {:?}", case.accepted_per_cycle, trace.cycles));
    }
    trace.steps = cases::settled(&trace.steps, end);
    trace.nfe = trace.steps.len();
    trace.canvas.truncate(end);
    difference(&answered, trace)
}

/// The first difference between a case and a trace.
fn difference(case: &Case, trace: &Trace) -> Option<String> {
    let steps = case.steps.len().max(trace.steps.len());
    for step in 0..steps {
        let (expected, found) = (case.steps.get(step), trace.steps.get(step));
        if expected != found {
            return Some(format!("step {step}: expected {expected:?}, found {found:?}"));
        }
    }
    if case.nfe != trace.nfe {
        return Some(format!("nfe: expected {}, found {}", case.nfe, trace.nfe));
    }
    if case.rows.as_ref().is_some_and(|rows| *rows != trace.rows) {
        return Some(format!("rows: expected {:?}, found {:?}", case.rows, trace.rows));
    }
    if case.ar_calls.is_some_and(|calls| calls != trace.guide_nfe) {
        return Some(format!("forwards of the guide: expected {:?}, found {}", case.ar_calls, trace.guide_nfe));
    }
    if let Some(accepted) = &case.accept_len {
        // Nothing behind an end is put before the guide: there the reference counts further.
        let end = case.output.iter().skip(case.prompt.len()).position(|&token| token == case.eos_id);
        let fits = |step: usize, accepted: usize, found: usize| {
            let last = end.is_some() && step + 1 == trace.accepted.len();
            found == accepted || (last && found < accepted && found > 0)
        };
        let same = accepted.len() == trace.accepted.len()
            && (0..).zip(accepted.iter().zip(&trace.accepted)).all(|(step, (&a, &b))| fits(step, a, b));
        if !same {
            return Some(format!("accepted: expected {accepted:?}, found {:?}", trace.accepted));
        }
    }
    (case.output != trace.canvas).then(|| format!("output: expected {:?}, found {:?}", case.output, trace.canvas))
}

/// The cases that run on a device: what is played on the processor is slow, the one with the fewest forwards has to do.
fn device_cases(file: &DecodeFile, device: Device) -> Vec<&Case> {
    let all = file.cases.iter();
    match device {
        Device::Cpu(_) => all.collect(),
        Device::EmulatedGpu => all.min_by_key(|case| case.nfe).into_iter().collect(),
    }
}

fn decode_cases(on: Devices) {
    let folder = folder();
    let mut failures = Vec::new();
    for device in on.in_type(DtypeChoice::F32) {
        let mut models = BTreeMap::new();
        let of_rounds =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(idlm::FILES));
        for path in files(&folder, "decode").iter().filter(|path| !of_rounds(path)) {
            let file = DecodeFile::read(path);
            let (mut passed, mut failed) = (0, 0);
            // No kernel of GPUs computes experts.
            if device == Device::EmulatedGpu && file.cases.iter().any(|case| case.model.starts_with("moe-")) {
                continue;
            }
            for case in device_cases(&file, device) {
                let temperature = rnd1::temperature(&file.method, case);
                let key = (case.model.clone(), case.guider.clone(), temperature.to_bits());
                let (model, guide) = models.entry(key).or_insert_with(|| {
                    let mut model = load_tempered(&folder, &case.model, device, temperature);
                    let guide = case.guider.as_ref().map(|guider| load(&folder, guider, device, DtypeChoice::F32));
                    let facts = guide.as_ref().map(|guide| guide.info().facts().clone());
                    if let Some(guide) = guide {
                        model.set_guide(guide).unwrap();
                    }
                    (model, facts)
                });
                let facts = model.info().facts();
                let options = if rnd1::is_of(&file.method) {
                    rnd1::map(case, facts)
                } else {
                    parameters::map(&file.method, case, facts, guide.as_ref())
                };
                let outcome = match options {
                    Ok(options) => {
                        Session::new(SessionOptions { max_tokens: parameters::kept(&file.method, case), ..options })
                            .map_err(|error| error.to_string())
                            .and_then(|session| run(model, session))
                            .map(|mut trace| {
                                if file.method.starts_with("dense_") {
                                    difference_of_answers(case, &mut trace)
                                } else {
                                    difference(case, &trace)
                                }
                            })
                    }
                    Err(error) => Err(error),
                };
                match outcome {
                    Ok(None) => passed += 1,
                    Ok(Some(error)) | Err(error) => {
                        failed += 1;
                        failures.push(format!("{} on {device}: {error}", case.id));
                    }
                }
            }
            say(&format!("decode {} {device}: {passed} passed, {failed} failed", file.method));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The harness itself must notice a wrong token, a shifted step and an unknown parameter.
#[test]
fn differences_are_seen() {
    let path = files(&own_folder(), "decode").into_iter().find(|path| path.ends_with("llada_generate.json")).unwrap();
    let file = DecodeFile::read(&path);
    let mut case = file.cases[0].clone();
    let trace = Trace { steps: case.steps.clone(), nfe: case.nfe, canvas: case.output.clone(), ..Trace::default() };
    assert_eq!(difference(&case, &trace), None);
    case.steps.swap(0, 1);
    assert!(difference(&case, &trace).unwrap().starts_with("step 0"));
    case.steps.swap(0, 1);
    case.output[10] += 1;
    assert!(difference(&case, &trace).unwrap().starts_with("output"));
    case.params.insert("unheard_of".into(), 1.into());
    let model = load(&own_folder(), &case.model, f32_tiers()[0].into(), DtypeChoice::F32);
    let error = parameters::map(&file.method, &case, model.info().facts(), None).err().unwrap();
    assert!(error.contains("unheard_of"), "{error}");
}

/// A head that is divided by any temperature, one whose quotients round too, gives the logits that are divided by it.
#[test]
fn a_head_is_divided_by_any_temperature() {
    let (folder, on) = (own_folder(), f32_tiers()[0].into());
    let logits = |temperature| {
        let mut model = load_tempered(&folder, "moe-rnd1-sdar", on, temperature);
        model.network_mut().inspect(&[1, 2, 3], Mask::Full, true).unwrap().logits
    };
    let plain = logits(1.0);
    for temperature in [0.3, 0.25, 1.7] {
        let divided: Vec<f32> = plain.iter().map(|&logit| (f64::from(logit) / temperature) as f32).collect();
        let distance = distance(&logits(temperature), &divided);
        assert!(distance < 1e-6, "{temperature}: {distance:e}");
    }
}

/// Speculative decoding writes what the guide writes alone, whatever the model drafts (specs/flashdlm.md#G8).
#[test]
fn flashdlm_g8_the_target_writes_its_own_text() {
    let folder = own_folder();
    let files = ["guided_dream.json", "guided_llada.json"];
    for (file, tier) in files.iter().flat_map(|file| f32_tiers().into_iter().map(move |isa| (file, Device::Cpu(isa)))) {
        let file = DecodeFile::read(&folder.join("decode").join(file));
        let uncached = |case: &&Case| case.model.starts_with("toy") && case.params["dlm_cache"] == "none";
        for case in file.cases.iter().filter(uncached) {
            let guider = case.guider.as_ref().unwrap();
            let mut guide = load(&folder, guider, tier, DtypeChoice::F32);
            let mut model = load(&folder, &case.model, tier, DtypeChoice::F32);
            let facts = guide.info().facts().clone();
            let mut options = parameters::map(&file.method, case, model.info().facts(), Some(&facts)).unwrap();
            options.decoder = "guided:target=guide,verify=5".parse().unwrap();
            (options.stop, options.end_ids) = (StopRule::Never, Vec::new());
            let own = SessionOptions {
                suppress: options.facts.mask_id.into_iter().collect(),
                stop: StopRule::Never,
                ..SessionOptions::new(facts, options.canvas.clone())
            };
            let expected = run(&mut guide, Session::new(own).unwrap()).unwrap();
            model.set_guide(guide).unwrap();
            // G9: what the model keeps changes its drafts only.
            for cache in ["none", "dkv:refresh=3", "dllm:prompt=5,response=3", "freecache:block=4"] {
                options.cache = cache.parse().unwrap();
                let found = run(&mut model, Session::new(options.clone()).unwrap()).unwrap();
                assert_eq!(found.canvas, expected.canvas, "{} on {tier}, cache {cache}", case.id);
                assert!(found.nfe <= expected.nfe);
            }
        }
    }
}

/// Guided decoding over dKV-Cache and dLLM-Cache: refreshed in each forward they give the reference's trace without a
/// cache; as they are meant, every forward commits, and everything is decoded.
#[test]
fn guided_over_caches_that_are_not_exact() {
    let folder = own_folder();
    let files = ["guided_dream.json", "guided_llada.json"];
    let mut others = 0;
    for (file, tier) in files.iter().flat_map(|file| f32_tiers().into_iter().map(move |isa| (file, Device::Cpu(isa)))) {
        let file = DecodeFile::read(&folder.join("decode").join(file));
        for case in file.cases.iter().filter(|case| case.params["dlm_cache"] == "none") {
            let guide = load(&folder, case.guider.as_ref().unwrap(), tier, DtypeChoice::F32);
            let (facts, mut model) = (guide.info().facts().clone(), load(&folder, &case.model, tier, DtypeChoice::F32));
            model.set_guide(guide).unwrap();
            let mut options = parameters::map(&file.method, case, model.info().facts(), Some(&facts)).unwrap();
            for cache in ["dkv:refresh=1", "dllm:prompt=1,response=1"] {
                options.cache = cache.parse().unwrap();
                let found = run(&mut model, Session::new(options.clone()).unwrap()).unwrap();
                assert_eq!(difference(case, &found), None, "{} on {tier}, cache {cache}", case.id);
            }
            for cache in ["dkv", "dkv:variant=pd", "dllm", "dllm:prompt=9,response=4,rho=0,first_layer=same"] {
                options.cache = cache.parse().unwrap();
                let session = Session::new(options.clone()).unwrap();
                assert_eq!(session.exactness(), Exactness::Approximate);
                let found = run(&mut model, session).unwrap();
                let what = format!("{} on {tier}, cache {cache}", case.id);
                assert!(found.steps.iter().all(|step| !step.is_empty()), "{what}: every forward commits");
                assert!(found.canvas.iter().all(|&token| i64::from(token) != case.mask_id), "{what}");
                others += usize::from(found.canvas != case.output);
            }
        }
    }
    assert!(others > 0, "inexact caches show somewhere");
}
