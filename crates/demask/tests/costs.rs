//! Counted operations against the formulas of specs/caches.md#7, evaluated with what really ran, and the averages of
//! its table (specs/caches.md#X9); and the published table of specs/caches.md#2.6, in its own convention
//! (specs/caches.md#T8).

use crate::common::{runner, specs};
use demask_cpu::isa::Isa;
use demask_decode::{CanvasSpec, ModelFacts, Remasking, Session, SessionOptions, StopRule};
use demask_model::ArchSpec;
use demask_step::{Drift, ForwardInput, Job, LayerRows, Mask, Positions, Predictions, StepPlan};
use demask_tensor::Dtype;
use demask_testkit::by_hand::ByHand;

/// Widths that the formulas speak of, and what is counted.
#[derive(Clone, Copy)]
struct Formula {
    d: f64,
    kv: f64,
    f: f64,
    layers: f64,
    vocabulary: f64,
    /// 1, or 0 where attention scores are not counted.
    attention: f64,
}

impl Formula {
    /// All three projections, output and MLP of one row.
    fn row(self) -> f64 {
        2.0 * (2.0 * self.d * self.d + 2.0 * self.d * self.kv + 3.0 * self.d * self.f)
    }

    fn project(self) -> f64 {
        2.0 * self.d * self.kv
    }

    fn attend(self, keys: f64) -> f64 {
        4.0 * self.d * keys * self.attention
    }

    /// A layer that computes rows, and projects one tensor of candidates beside them.
    fn layer(self, computed: f64, candidates: f64, keys: f64) -> f64 {
        computed * (self.row() + self.attend(keys)) + candidates * self.project()
    }

    fn head(self, rows: f64) -> f64 {
        2.0 * self.d * self.vocabulary * rows
    }

    /// A plan's layers. `kept`: rows keep increments, so that the last layer finishes all of them; else only `head`.
    fn layers(self, plan: &StepPlan, kept: bool, head: f64) -> f64 {
        let (live, keys) = (plan.query.len() as f64, f64::from(plan.kv_len));
        let whole = self.layer(live, 0.0, keys);
        match &plan.layers {
            LayerRows::All if kept => self.layers * whole,
            LayerRows::All => {
                let last = self.layer(head, 0.0, keys) + (live - head) * 2.0 * self.project();
                (self.layers - 1.0) * whole + last
            }
            LayerRows::Partial { compute, probe, first_whole } => {
                let chosen = probe.as_ref().map_or(0, |probe| probe.keep) as f64;
                let compared = probe.as_ref().filter(|probe| !matches!(probe.by, Drift::Random { .. }));
                let others = compared.map_or(0, |probe| probe.rows.len() - probe.keep) as f64;
                let (computed, first) = (compute.len() as f64 + chosen, f64::from(*first_whole));
                first * whole + (self.layers - first) * self.layer(computed, others, keys)
            }
        }
    }
}

/// Rows that a plan's average layer computes: a fraction where the last one, or those behind the first, compute fewer.
fn computed(layers: f64, plan: &StepPlan, kept: bool, head: f64) -> f64 {
    let live = plan.query.len() as f64;
    let sum = match &plan.layers {
        LayerRows::All if kept => layers * live,
        LayerRows::All => (layers - 1.0) * live + head,
        LayerRows::Partial { compute, probe, first_whole } => {
            let chosen = compute.len() + probe.as_ref().map_or(0, |probe| probe.keep);
            let first = f64::from(*first_whole);
            first * live + (layers - first) * chosen as f64
        }
    };
    sum / layers
}

/// A canvas: tokens of the prompt and of the response, and how long a block is.
#[derive(Clone, Copy)]
struct Shape {
    prompt: usize,
    length: usize,
    block: usize,
}

fn options(facts: ModelFacts, shape: Shape, cache: &str) -> SessionOptions {
    let canvas = CanvasSpec::Prompt { tokens: vec![5; shape.prompt], gen_length: shape.length };
    SessionOptions {
        stop: StopRule::Never,
        block_length: Some(shape.block),
        cache: cache.parse().unwrap(),
        ..SessionOptions::new(facts, canvas)
    }
}

/// Every position is predicted, the leftmost the surest.
fn script(request: &ForwardInput) -> Predictions {
    let mut positions = Positions::new();
    positions.set_union(&[&request.plan.predict, &request.plan.must, &request.plan.hint]);
    let confidence = positions.iter().map(|position| 0.9 / (1.0 + position as f32)).collect();
    Predictions { lanes: 1, tokens: vec![1; positions.len()], confidence, positions, ..Predictions::default() }
}

fn formula(spec: &ArchSpec) -> Formula {
    Formula {
        d: spec.hidden as f64,
        kv: spec.kv_width() as f64,
        f: spec.ffn as f64,
        layers: spec.layers as f64,
        vocabulary: spec.vocabulary as f64,
        attention: 1.0,
    }
}

#[test]
fn caches_x9_counted_operations_are_the_formulas() {
    for (_, spec) in &specs()[..2] {
        let mut network = runner(spec, Isa::available()[0], Dtype::F32, 1);
        let formula = formula(spec);
        let facts = ModelFacts {
            mask: Mask::Full,
            shift: spec.shift as u32,
            mask_id: Some(69),
            vocab: spec.vocabulary,
            context: spec.context,
            layers: spec.layers,
            blocks: demask_step::BlockRules::default(),
            free_rows: demask_decode::FREE_ROWS,
        };
        for (decoder, cache, remasking, block) in runs() {
            let shape = Shape { prompt: 7, length: 12, block };
            let options =
                SessionOptions { decoder: decoder.parse().unwrap(), remasking, ..options(facts.clone(), shape, cache) };
            let mut session = Session::new(options).unwrap();
            let id = network.open(&session.needs()[0].limits).unwrap();
            let kept = session.needs()[0].limits.increments;
            let (mut expected, mut head_rows, mut computed_rows) = (0.0, 0, 0.0);
            while session.wants() == Some(0) {
                let request = &session.requests()[0];
                let asked = request.plan.predict.len() + request.plan.must.len();
                let head = asked as f64;
                let flops = formula.layers(&request.plan, kept, head) + formula.head(head);
                let mut out = [Predictions::default()];
                network.step(&[request.step(id)], &mut out).unwrap();
                assert_eq!(out[0].cost.flops(), flops, "{decoder} {cache}: {}", request.plan);
                expected += flops;
                computed_rows += computed(formula.layers, &request.plan, kept, head);
                head_rows += asked as u64;
                let mut answer = script(request);
                answer.cost = out[0].cost;
                session.feed(&[answer]);
            }
            let (receipt, cost) = (session.receipt(), session.counts().cost);
            assert_eq!((receipt.flops, receipt.head_rows), (expected, head_rows), "{decoder} {cache}");
            // Rounded once, after all forwards: rounded in each, blocks of 4 had 3 % too many.
            assert!((receipt.computed_rows as f64 - computed_rows).abs() <= 0.5 + 1e-9, "{decoder} {cache}");
            assert_eq!(cost.rows, session.counts().rows as u64, "{decoder} {cache}");
            network.close(id);
        }
    }
}

/// Decoders, caches, the order of commits, and the length of a block: every cache that runs full attention.
fn runs() -> Vec<(&'static str, &'static str, Remasking, usize)> {
    let confident = Remasking::LowConfidence;
    let mut runs = vec![
        ("static", "none", confident, 12),
        ("static", "dkv:refresh=4", confident, 12),
        ("static:steps=5", "dkv:refresh=3,shift=un_right", Remasking::Entropy, 12),
        ("static", "dkv:variant=prefill", confident, 12),
        ("static", "dkv:variant=pd,refresh=3", confident, 12),
        ("static", "dkv:variant=greedy,refresh=3,window=2", Remasking::Random, 12),
        ("static", "dllm:prompt=5,response=3", confident, 12),
        ("static", "dllm:prompt=5,response=3,count=forwards,rows=drift", confident, 12),
        ("static", "dllm:prompt=5,response=4,rows=drift,rho=0.5", confident, 12),
        ("static", "dllm:prompt=5,response=4,rows=drift,rho=0.5,probe=k", confident, 12),
        ("static", "dllm:prompt=4,response=3,probe=k,first_layer=same", confident, 12),
        ("static", "dllm:prompt=100,response=4,probe=random", confident, 12),
        ("static", "dllm:prompt=3,response=4,rho=0,boundary=before", confident, 12),
        ("threshold:tau=0.04", "dllm:prompt=2,response=2,rho=0.5", confident, 12),
        ("slowfast:explore=2,tau_min=0.06", "none", confident, 12),
        ("slowfast:explore=2,tau_min=0.06", "dllm:prompt=4,response=3", confident, 12),
    ];
    for cache in ["none", "prefix", "prefix:idle", "dual", "dual:horizon=3", "freecache:block=4"] {
        for decoder in ["static", "threshold:tau=0", "factor:f=3"] {
            runs.push((decoder, cache, confident, 4));
        }
    }
    runs
}

/// The widths of the published models.
fn published(dream: bool, attention: f64) -> Formula {
    if dream {
        Formula { d: 3584.0, kv: 512.0, f: 18944.0, layers: 28.0, vocabulary: 152_064.0, attention }
    } else {
        Formula { d: 4096.0, kv: 4096.0, f: 12288.0, layers: 32.0, vocabulary: 126_464.0, attention }
    }
}

/// Average operations of a step with one token each, in units of 1e12; `head` says how many rows have logits.
fn average(formula: Formula, shift: u32, shape: Shape, cache: &str, head: &dyn Fn(&StepPlan) -> usize) -> f64 {
    let facts = ModelFacts {
        mask: Mask::Full,
        shift,
        mask_id: Some(69),
        vocab: 70,
        context: 4096,
        layers: 3,
        blocks: demask_step::BlockRules::default(),
        free_rows: demask_decode::FREE_ROWS,
    };
    let mut session = Session::new(options(facts, shape, cache)).unwrap();
    let mut sum = 0.0;
    while session.wants() == Some(0) {
        let request = &session.requests()[0];
        sum += formula.layers(&request.plan, true, 0.0) + formula.head(head(&request.plan) as f64);
        let answer = script(request);
        session.feed(&[answer]);
    }
    assert_eq!(session.counts().forwards, shape.length);
    sum / shape.length as f64 / 1e12
}

/// The table of specs/caches.md#7: logits of all rows that entered, as the references compute them, or of those
/// predicted.
#[test]
fn caches_x9_average_costs_are_those_of_the_table() {
    let shape = Shape { prompt: 819, length: 256, block: 32 };
    let all = |plan: &StepPlan| plan.query.len();
    let asked = |plan: &StepPlan| plan.predict.len();
    let cost = |cache: &str, head: &dyn Fn(&StepPlan) -> usize| average(published(false, 1.0), 0, shape, cache, head);
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 0.006, "{found} is not {expected}");
    near(cost("none", &all), 16.73);
    near(cost("prefix", &all), 2.69);
    near(cost("dual", &all), 1.00);
    near(cost("freecache:block=32,freeze=reference", &all), 2.29);
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 0.03, "{found} is not {expected}");
    close(cost("none", &asked), 15.64);
    close(cost("prefix", &asked), 2.55);
    close(cost("dual", &asked), 0.97);
}

/// T8: as published, neither attention scores nor a full first layer count, the head runs on all rows, and prompts are
/// those for which the ratios were published.
#[test]
fn caches_t8_published_operations() {
    // Prompt, response, intervals, Dream, operations of a step in units of 1e12 without and with the cache, ratio.
    let table = [
        (819, 256, (25, 5), false, 16.119, 3.207, 5.03),
        (1344, 128, (50, 6), false, 22.07, 2.727, 8.09),
        (1080, 256, (50, 6), false, 20.03, 3.25, 6.16),
        (1140, 256, (100, 8), true, 19.74, 2.86, 6.90),
        (1275, 256, (100, 8), true, 21.65, 3.03, 7.15),
        (790, 256, (100, 8), true, 14.79, 2.43, 6.10),
    ];
    for (prompt, length, (prompt_steps, response_steps), dream, base, cached, ratio) in table {
        let shape = Shape { prompt, length, block: length };
        let all = |_: &StepPlan| prompt + length;
        let cost = |cache: &str| average(published(dream, 0.0), u32::from(dream), shape, cache, &all);
        let cache = format!(
            "dllm:prompt={prompt_steps},response={response_steps},rho=0.25,count=forwards,rows=drift,first_layer=same"
        );
        let (whole, found) = (cost("none"), cost(&cache));
        // The table has three to five digits.
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 3e-3;
        assert!(near(whole, base), "prompt {prompt}: {whole} for {base}");
        assert!(near(found, cached), "prompt {prompt}: {found} for {cached}");
        assert!(near(whole / found, ratio), "prompt {prompt}: {} for {ratio}", whole / found);
    }
}
