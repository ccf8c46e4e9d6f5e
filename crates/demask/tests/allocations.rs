//! A warm step allocates nothing.

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ops::ControlFlow,
    sync::atomic::{AtomicUsize, Ordering},
};

use common::{RandomWeights, quantised, runner, runner_of, runner_with, specs, tiers};
use demask::Request;
use demask_cpu::{CpuOptions, isa::Isa, linear::Products};
use demask_decode::{CanvasSpec, GuideOptions, ModelFacts, Remasking, Session, SessionOptions, StopRule};
use demask_engine::Scheduler;
use demask_model::{AdapterUse, ArchSpec};
use demask_step::{HeadRequest, Lanes, Mask, Predictions, SequenceLimits, SequenceStep, StepPlan};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: everything is handed to the system's allocator; counting touches no memory that it manages.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.try_with(Cell::get).unwrap_or(false) {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread while `work` runs. Worker threads only run kernels, which have nothing to allocate; the
/// runs with one thread see those too.
fn count(work: impl FnOnce()) -> usize {
    COUNT.store(0, Ordering::Relaxed);
    COUNTS.with(|counts| counts.set(true));
    work();
    COUNTS.with(|counts| counts.set(false));
    COUNT.load(Ordering::Relaxed)
}

#[test]
fn a_warm_step_allocates_nothing() {
    // One test function: the counter is the process's.
    steps_of_the_network();
    steps_with_an_adapter();
    forwards_of_the_scheduler();
    forwards_that_many_share();
    forwards_behind_a_prefix();
}

/// Every kind of products on every tier.
fn kinds() -> Vec<(Isa, Products)> {
    let kinds = tiers().into_iter().flat_map(|(isa, dtype)| {
        let kinds = quantised(dtype).into_iter().chain([Products::plain(dtype)]);
        kinds.map(move |products| (isa, products))
    });
    kinds.collect()
}

fn steps_of_the_network() {
    for (name, spec) in specs() {
        for (isa, products) in kinds() {
            let mut network = runner_of(&spec, isa, products, 1);
            let needs = SequenceLimits {
                positions: 40,
                rows: 120,
                drafts: 3,
                draft_span: 40,
                predictions: 120,
                top: 2,
                ..SequenceLimits::default()
            };
            let id = network.open(&needs).unwrap();
            let mut plan = StepPlan { kv_len: 40, ..StepPlan::default() };
            plan.mask = spec.attention;
            plan.query.set_range(0..40);
            plan.predict.set_range(1..40);
            let banned = vec![3].into();
            let ask = HeadRequest { margin: true, entropy: true, top: 2, banned, ..HeadRequest::default() }.into();
            let tokens = vec![5; 120];
            let mut out = [Predictions::default()];
            for lanes in [Lanes::Canvas, Lanes::Drafts(3)] {
                plan.lanes = lanes;
                let tokens = &tokens[..40 * lanes.count()];
                let step = [SequenceStep { sequence: id, tokens, plan: &plan, ask: &ask, blend: None }];
                network.step(&step, &mut out).unwrap();
                let allocations = count(|| network.step(&step, &mut out).unwrap());
                assert_eq!(allocations, 0, "{name} {} {products:?} {lanes:?}", isa.tier().name());
            }
        }
    }
}

/// Rows with an adapter beside rows without it.
fn steps_with_an_adapter() {
    const MASK: u32 = 69;
    for (name, spec) in specs() {
        for (isa, Products { dtype, quantisation, activations }) in kinds() {
            for usage in [AdapterUse::Masks(MASK), AdapterUse::All] {
                let weights = RandomWeights::new(&spec, 7).with_adapter(&spec, (usage, 5), 0.5);
                let options = CpuOptions { isa, dtype, quantisation, activations, threads: 1 };
                let mut network = runner_with(&spec, &weights, options);
                let needs = SequenceLimits { positions: 40, rows: 40, predictions: 40, ..SequenceLimits::default() };
                let id = network.open(&needs).unwrap();
                let mut plan = StepPlan { kv_len: 40, mask: spec.attention, ..StepPlan::default() };
                plan.query.set_range(0..40);
                plan.predict.set_range(20..40);
                let tokens: Vec<u32> = (0..40).map(|at| if at % 3 == 2 { MASK } else { 5 }).collect();
                let ask = HeadRequest::default().into();
                let step = [SequenceStep { sequence: id, tokens: &tokens, plan: &plan, ask: &ask, blend: None }];
                let mut out = [Predictions::default()];
                network.step(&step, &mut out).unwrap();
                let allocations = count(|| network.step(&step, &mut out).unwrap());
                assert_eq!(allocations, 0, "{name} {} {dtype:?} {usage:?}", isa.tier().name());
            }
        }
    }
}

fn forwards_of_the_scheduler() {
    for (shift, decoder, cache) in [
        (0, "static", "none"),
        (0, "static", "prefix"),
        (1, "factor", "dual"),
        (1, "threshold:tau=1,cap", "freecache:block=4"),
    ] {
        ticks_with(shift, decoder, cache, 0.0);
    }
    ticks_with(0, "p2", "none", 0.0);
    for decoder in ["edit", "edit:penalty=0.5", "edit:tau=0.5,edit=0.4,post=2,confirm,penalty=2"] {
        ticks_of(&specs()[2].1, decoder, "block", 0.0);
    }
    let context = ArchSpec { attention: Mask::Context { context: 0, block: 4 }, ..specs().remove(2).1 };
    for decoder in ["selfspec:block=3", "selfspec:block=5,tau=0.02"] {
        ticks_of(&context, decoder, "causal", 0.0);
    }
    let causal = ArchSpec { attention: Mask::Causal, shift: 1, ..specs().remove(2).1 };
    for decoder in ["isd", "isd:stride=9"] {
        ticks_of(&causal, decoder, "causal", 0.0);
    }
    for (decoder, cache) in [
        ("static", "dkv:refresh=4"),
        ("static", "dkv:variant=greedy"),
        ("static", "dllm:prompt=3,response=2"),
        ("static", "dllm:response=6,count=tokens"),
        ("static", "dllm:response=6,rows=drift,count=forwards"),
        ("static", "dllm:response=6,rows=drift,rho=0.5"),
        ("threshold", "dllm:rows=block,response=3"),
        ("slowfast:explore=2", "none"),
        ("slowfast:explore=2", "dllm:prompt=4,response=3"),
        ("slowfast:explore=2", "dual"),
        ("freedave", "none"),
        ("freedave:d=3,mode=reference", "dkv:refresh=4"),
        ("static", "dllm:rho=0,cfg=2"),
        ("freedave", "dllm:prompt=3,response=2"),
        ("freedave", "dllm:prompt=7,response=3,cfg=3"),
        ("freedave", "dllm:cfg=3"),
        ("freedave:d=12", "dual"),
    ] {
        for cfg_scale in [0.0, 1.0] {
            ticks_with(0, decoder, cache, cfg_scale);
        }
    }
}

fn ticks_with(shift: u32, decoder: &str, cache: &str, cfg_scale: f32) {
    let (_, spec) = specs().remove(shift as usize);
    ticks_of(&spec, decoder, cache, cfg_scale);
}

fn ticks_of(spec: &ArchSpec, decoder: &str, cache: &str, cfg_scale: f32) {
    let (isa, dtype) = tiers().pop().unwrap();
    let mut scheduler = Scheduler::new().with_leak(|leak| panic!("{leak}"));
    let network = scheduler.add(runner(spec, isa, dtype, 1));
    let facts = ModelFacts {
        mask: spec.attention,
        shift: spec.shift as u32,
        mask_id: Some(69),
        vocab: 70,
        context: 512,
        layers: 3,
        blocks: demask_step::BlockRules::default(),
        free_rows: demask_decode::FREE_ROWS,
    };
    let canvas = CanvasSpec::Prompt { tokens: vec![1, 2, 3], gen_length: 64 };
    let options = SessionOptions {
        stop: StopRule::Never,
        block_length: (spec.attention == Mask::Full).then_some(8),
        remasking: if cache.contains("greedy") { Remasking::Random } else { Remasking::LowConfidence },
        decoder: decoder.parse().unwrap(),
        cache: cache.parse().unwrap(),
        cfg_scale,
        ..SessionOptions::new(facts, canvas)
    };
    let session = Session::new(options).unwrap();
    scheduler.submit(Request::new(session), &[network]).unwrap();
    let mut over = Vec::with_capacity(1);
    let mut tick = |scheduler: &mut Scheduler<_>| {
        let mut look = |request: &mut Request| {
            request.session_mut().unwrap().events().for_each(drop);
            ControlFlow::Continue(())
        };
        scheduler.step(&mut look, &mut over);
        // What ends gives back what it held.
        over.is_empty()
    };
    for _ in 0..10 {
        tick(&mut scheduler);
    }
    let (mut ticks, mut allocations, mut goes_on) = (0, 0, true);
    // To the end: refreshes come late. Where pages are taken, the system is asked how much memory there is.
    while goes_on {
        let used = |scheduler: &Scheduler<_>| scheduler.network_counters(network).unwrap().pages.used;
        let before = used(&scheduler);
        let here = count(|| goes_on = tick(&mut scheduler));
        allocations += if used(&scheduler) > before { 0 } else { here };
        ticks += usize::from(goes_on);
    }
    assert!(ticks >= 5, "{decoder} {cache} ended before it was measured");
    assert_eq!(allocations, 0, "in {ticks} ticks behind the first ten: {decoder} {cache} guidance {cfg_scale}");
}

/// Gathering, running and feeding requests of all kinds at once: guidance, drafts, partly computed layers, a guide; every
/// second one keeps log-probabilities.
fn forwards_that_many_share() {
    let (isa, dtype) = tiers().pop().unwrap();
    let mut scheduler = Scheduler::new().with_leak(|leak| panic!("{leak}"));
    let specs = specs();
    let on = [0, 3].map(|which| scheduler.add(runner(&specs[which].1, isa, dtype, 1)));
    let facts = |mask, shift: u32| {
        let mask_id = (mask == Mask::Full).then_some(69);
        ModelFacts {
            mask,
            shift,
            mask_id,
            vocab: 70,
            context: 512,
            layers: 3,
            blocks: demask_step::BlockRules::default(),
            free_rows: demask_decode::FREE_ROWS,
        }
    };
    let methods = [
        ("static", "none", 0.0),
        ("static", "dllm:prompt=3,response=2", 1.0),
        ("freedave:d=3", "none", 0.0),
        ("slowfast:explore=2", "dual", 0.0),
        ("guided:verify=4", "none", 0.0),
        ("guided:verify=4", "dual", 0.5),
        ("static", "dllm:rho=0,first_layer=same", 0.0),
    ];
    let submit = |scheduler: &mut Scheduler<_>| {
        for (index, (decoder, cache, cfg_scale)) in methods.into_iter().enumerate() {
            let canvas = CanvasSpec::Prompt { tokens: vec![1, 2, 3], gen_length: 96 };
            let guide = decoder.starts_with("guided").then(|| GuideOptions {
                facts: facts(Mask::Causal, 1),
                end_ids: Vec::new(),
                shared_vocabulary: true,
                text: None,
            });
            let options = SessionOptions {
                stop: StopRule::Never,
                block_length: Some(8),
                decoder: decoder.parse().unwrap(),
                cache: cache.parse().unwrap(),
                cfg_scale,
                guide,
                top_logprobs: (index % 2 == 0).then_some(3 * index),
                ..SessionOptions::new(facts(Mask::Full, 0), canvas)
            };
            scheduler.submit(Request::new(Session::new(options).unwrap()), &on).unwrap();
        }
    };
    let mut over = Vec::with_capacity(methods.len());
    let mut look = |request: &mut Request| {
        request.session_mut().unwrap().events().for_each(drop);
        ControlFlow::Continue(())
    };
    // Once to the end of all of them: so many rows and requests as then share a forward have their places.
    submit(&mut scheduler);
    while over.len() < methods.len() {
        scheduler.step(&mut look, &mut over);
    }
    over.clear();
    submit(&mut scheduler);
    let mut most = 0;
    let mut tick = |scheduler: &mut Scheduler<_>| {
        let ran = scheduler.step(&mut look, &mut over);
        most = most.max(ran.requests);
        over.is_empty()
    };
    for _ in 0..60 {
        assert!(tick(&mut scheduler), "nobody is over while things warm up");
    }
    let mut forwards = 0;
    let allocations = count(|| {
        while tick(&mut scheduler) {
            forwards += 1;
        }
    });
    // Guided works draft every mask: their forwards are wide, and what is shared with them is bounded by cost.
    assert!(forwards > 30 && most > 2, "{forwards} forwards of up to {most} works");
    assert_eq!(allocations, 0, "in {forwards} forwards that many share");
}

/// Where prefixes are kept, what was published before costs a forward nothing. Publishing does, once the prompt is in and at
/// the end.
fn forwards_behind_a_prefix() {
    let (isa, dtype) = tiers().pop().unwrap();
    let (_, spec) = specs().remove(2);
    for decoder in ["static", "freedave:d=3"] {
        let mut scheduler = Scheduler::new().with_leak(|leak| panic!("{leak}"));
        let mut network = runner(&spec, isa, dtype, 1);
        network.keep_prefixes(1 << 30);
        let network = scheduler.add(network);
        let mut over = Vec::with_capacity(1);
        let mut look = |request: &mut Request| {
            request.session_mut().unwrap().events().for_each(drop);
            ControlFlow::Continue(())
        };
        for warm in [false, true] {
            let facts = ModelFacts {
                mask: spec.attention,
                shift: 0,
                mask_id: Some(69),
                vocab: 70,
                context: 512,
                layers: 3,
                blocks: demask_step::BlockRules::default(),
                free_rows: demask_decode::FREE_ROWS,
            };
            let canvas = CanvasSpec::Prompt { tokens: (0..64).collect(), gen_length: 64 };
            let options = SessionOptions {
                stop: StopRule::Never,
                decoder: decoder.parse().unwrap(),
                cache: "block".parse().unwrap(),
                ..SessionOptions::new(facts, canvas)
            };
            scheduler.submit(Request::new(Session::new(options).unwrap()), &[network]).unwrap();
            for _ in 0..6 {
                scheduler.step(&mut look, &mut over);
            }
            let allocations = count(|| {
                for _ in 0..6 {
                    scheduler.step(&mut look, &mut over);
                }
            });
            assert!(over.is_empty(), "{decoder} ended before it was measured");
            assert_eq!(allocations, 0, "in 6 forwards behind the first 6: {decoder}, warm {warm}");
            while over.is_empty() {
                scheduler.step(&mut look, &mut over);
            }
            let finished = over.remove(0);
            assert_eq!(finished.session().unwrap().counts().cached, if warm { 64 } else { 0 });
        }
    }
}
