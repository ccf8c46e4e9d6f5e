//! Promises of dKV-Cache, dLLM-Cache and SlowFast (specs/caches.md#2.8, specs/caches.md#4.5, specs/caches.md#5 and
//! specs/caches.md#8), and of FreeCache (specs/flashdlm.md#6), in bits, on small random networks. Predictions are fed
//! by a script, so that all runs go through the same canvases.

use std::cell::Cell;

use crate::common::{Device, runner, specs, together};
use demask_cpu::isa::Isa;
use demask_decode::{CanvasSpec, ModelFacts, Remasking, Session, SessionOptions, StopRule};
use demask_model::{ArchSpec, Inspect};
use demask_step::{
    ForwardInput, Job, LayerRows, Mask, Position, Positions, Predictions, SequenceId, SequenceLimits, SequenceStep,
};
use demask_tensor::Dtype;
use demask_testkit::by_hand::ByHand;

const MASK_ID: u32 = 69;
const PROMPT: usize = 9;
const LENGTH: usize = 12;

fn spec(shift: usize) -> ArchSpec {
    specs()[shift].1.clone()
}

fn options(shift: usize, cache: &str) -> SessionOptions {
    let facts = ModelFacts {
        mask: Mask::Full,
        shift: shift as u32,
        mask_id: Some(MASK_ID),
        vocab: 70,
        context: 512,
        layers: 3,
        blocks: demask_step::BlockRules::default(),
        free_rows: demask_decode::FREE_ROWS,
    };
    let canvas = CanvasSpec::Prompt { tokens: (20..20 + PROMPT as u32).collect(), gen_length: LENGTH };
    SessionOptions {
        stop: StopRule::Never,
        block_length: Some(LENGTH),
        cache: cache.parse().unwrap(),
        ..SessionOptions::new(facts, canvas)
    }
}

/// One forward: what ran, and the network's answer with all logits.
struct Forward {
    request: ForwardInput,
    answer: Predictions,
}

impl Forward {
    fn logits(&self, position: Position) -> Vec<u32> {
        let index = self.answer.index(0, position).unwrap();
        self.answer.logits[index * 70..(index + 1) * 70].iter().map(|logit| logit.to_bits()).collect()
    }

    /// Reports whether a position's logits are those of another forward but for the rounding of an increment: a row
    /// that lives off it adds attention and MLP at once, a computed row one after the other.
    fn is_near(&self, other: &Self, position: Position) -> bool {
        let values = |forward: &Self| {
            let index = forward.answer.index(0, position).unwrap();
            forward.answer.logits[index * 70..(index + 1) * 70].to_vec()
        };
        values(self).iter().zip(values(other)).all(|(left, right)| (left - right).abs() < 1e-4)
    }

    /// The logits of all positions that may be committed.
    fn all(&self) -> Vec<Vec<u32>> {
        self.request.plan.predict.iter().map(|position| self.logits(position)).collect()
    }
}

/// The tiers that compute in their own ways, of which the first and the last of the list are enough for plans, and for one
/// of the architectures the kernels of GPUs: played on the processor they are slow.
fn devices(shift: usize) -> Vec<Device> {
    let all = Isa::available();
    let processor = [all[0].into(), all[all.len() - 1].into()];
    processor.into_iter().chain((shift == 1).then_some(Device::EmulatedGpu)).collect()
}

/// Position `p` becomes token `p`, those in the middle first.
fn scripted(request: &ForwardInput) -> Predictions {
    let mut positions = Positions::new();
    positions.set_union(&[&request.plan.predict, &request.plan.hint]);
    let confidence = positions.iter().map(|position| 0.9 - (f32::from(position as u16) - 15.3).abs() / 100.0).collect();
    let tokens = positions.iter().collect();
    Predictions { lanes: 1, positions, tokens, confidence, ..Predictions::default() }
}

/// Runs a session on a network, which is fed by the script. `change` may replace a plan.
fn run_on(
    network: &mut dyn Inspect,
    options: &SessionOptions,
    change: impl Fn(&mut ForwardInput),
) -> (Vec<Forward>, Session) {
    let mut session = Session::new(options.clone()).unwrap();
    let open = |needs: &SequenceLimits| SequenceLimits { logits: true, ..needs.clone() };
    let ids: Vec<SequenceId> =
        session.needs().iter().map(|needs| network.open(&open(&needs.limits)).unwrap()).collect();
    let mut forwards = Vec::new();
    while session.wants() == Some(0) {
        let mut requests = session.requests().to_vec();
        let mut answers = Vec::new();
        for request in &mut requests {
            request.ask.wanted.logits = true;
            answers.push(scripted(request));
            change(request);
        }
        let batch: Vec<SequenceStep<'_>> = requests.iter().map(|request| request.step(ids[request.sequence])).collect();
        let mut out = vec![Predictions::default(); batch.len()];
        network.step(&batch, &mut out).unwrap();
        session.feed(&answers);
        forwards.push(Forward { request: requests.remove(0), answer: out.remove(0) });
    }
    for id in ids {
        network.close(id);
    }
    (forwards, session)
}

fn run(shift: usize, device: Device, options: &SessionOptions) -> Vec<Forward> {
    run_on(&mut *runner(&spec(shift), device, Dtype::F32, 2), options, |_| {}).0
}

fn assert_same(left: &[Forward], right: &[Forward], what: &str) {
    assert_eq!(left.len(), right.len(), "{what}");
    for (step, (left, right)) in left.iter().zip(right).enumerate() {
        assert_eq!(left.request.plan.predict, right.request.plan.predict, "{what}: step {step}");
        assert!(left.all() == right.all(), "{what}: step {step} differs");
    }
}

fn assert_caches_equal(shift: usize, left: &str, right: &str) {
    for device in devices(shift) {
        let (one, other) = (run(shift, device, &options(shift, left)), run(shift, device, &options(shift, right)));
        assert_same(&one, &other, &format!("{left} and {right}, shift {shift}"));
    }
}

/// T1: both intervals 1, everything is fresh. K1: so it is with dKV-Cache refreshed in each step. X1: and that is no
/// cache, to the bit.
#[test]
fn caches_t1_k1_x1_refreshed_in_each_step_is_no_cache() {
    for shift in [0, 1] {
        for cache in ["dllm:prompt=1,response=1,rho=0.3", "dllm:prompt=1,response=1,rho=0", "dkv:refresh=1"] {
            assert_caches_equal(shift, cache, "none");
        }
        for first_layer in ["full", "same"] {
            let cache = format!("dllm:prompt=1,response=1,first_layer={first_layer}");
            assert_caches_equal(shift, &cache, "none");
        }
    }
}

/// X2: the first forward of every policy is that of no cache. K2: with dKV-Cache so is the second, without shift.
#[test]
fn caches_x2_k2_first_forwards_are_whole_ones() {
    for shift in [0, 1] {
        for device in devices(shift) {
            let reference = run(shift, device, &options(shift, "none"));
            for cache in ["dllm", "dllm:first_layer=same,probe=k", "dkv", "dkv:variant=prefill", "dkv:variant=pd"] {
                let cached = run(shift, device, &options(shift, cache));
                assert!(cached[0].all() == reference[0].all(), "{cache} shift {shift}");
                if cache == "dkv" && shift == 0 {
                    assert!(cached[1].all() == reference[1].all(), "{cache}");
                }
                assert!(cached[4].all() != reference[4].all(), "{cache} shift {shift}: stale slots show");
            }
        }
    }
}

/// T2: all rows chosen is all rows refreshed, whatever chooses them.
#[test]
fn caches_t2_all_rows_chosen_is_a_refresh() {
    for shift in [0, 1] {
        for probe in ["v", "k", "random"] {
            for first_layer in ["full", "same"] {
                let rest = format!("prompt=3,count=forwards,first_layer={first_layer}");
                let refreshed = format!("dllm:response=1,{rest}");
                let chosen = format!("dllm:response=5,rho=1,rows=drift,probe={probe},{rest}");
                assert_caches_equal(shift, &chosen, &refreshed);
                // The row that predicts the response's first token is one of those that predict.
                let before = format!("boundary=before,{rest}");
                let chosen = format!("dllm:response=5,rho=1,rows=block,probe={probe},{before}");
                assert_caches_equal(shift, &chosen, &format!("dllm:response=1,{before}"));
            }
        }
    }
}

/// T3: without shift the first layer's rule matters only where the response is partly computed.
#[test]
fn caches_t3_the_first_layer_matters_only_to_partial_responses() {
    for prompt in [1, 4, 100] {
        let cache = |first_layer: &str| format!("dllm:prompt={prompt},response=1,first_layer={first_layer}");
        assert_caches_equal(0, &cache("full"), &cache("same"));
    }
    let device = devices(0)[0];
    let full = run(0, device, &options(0, "dllm:response=9,rows=drift"));
    let same = run(0, device, &options(0, "dllm:response=9,rows=drift,first_layer=same"));
    assert!(full[1].all() != same[1].all(), "it does matter there");
}

/// T4: as coded, every row of the prompt goes through every layer of every forward, and layer 0 computes it each time.
/// Without shift nobody reads the result.
#[test]
fn caches_t4_rows_of_the_prompt_are_dead_between_refreshes() {
    let as_coded = |request: &mut ForwardInput| {
        let plan = &mut request.plan;
        let end = plan.kv_len;
        if plan.query.first() == Some(0) {
            return;
        }
        if plan.layers == LayerRows::All {
            let compute = Positions::from(PROMPT as Position..end);
            plan.layers = LayerRows::Partial { compute, probe: None, first_whole: true };
        }
        plan.query.set_range(0..end);
        request.tokens.splice(0..0, 20..20 + PROMPT as u32);
    };
    for device in devices(0) {
        for cache in ["prompt=3,response=2,rho=0.5", "prompt=5,response=3,rho=0.34", "prompt=50,response=4,rho=0"] {
            let options = options(0, &format!("dllm:{cache},count=forwards,rows=drift"));
            let mut network = runner(&spec(0), device, Dtype::F32, 2);
            let coded = run_on(&mut *network, &options, as_coded).0;
            assert!(coded.iter().all(|forward| forward.request.plan.query.len() == PROMPT + LENGTH));
            assert_same(&run(0, device, &options), &coded, cache);
        }
    }
}

/// T7: with share 0 nothing stored changes between refreshes: what is still a mask is predicted as it was. If layer 0
/// computes every row, predictions change through it.
#[test]
fn caches_t7_without_a_share_stored_rows_stand_still() {
    for shift in [0, 1] {
        for (first_layer, still) in [("same", true), ("full", false)] {
            let cache = format!("dllm:prompt=6,response=6,rho=0,count=forwards,rows=drift,first_layer={first_layer}");
            let forwards = run(shift, devices(shift)[0], &options(shift, &cache));
            for step in (1..LENGTH).filter(|step| step % 6 != 0) {
                // Under shift a row whose own token was just decoded has another embedding.
                let open =
                    |row: Position| row >= PROMPT as Position && forwards[step].request.plan.predict.contains(row);
                let rows = forwards[step].request.plan.predict.iter();
                for position in rows.filter(|position| open(position.saturating_sub(shift as Position))) {
                    let what = format!("{cache} shift {shift} step {step} position {position}");
                    let (before, now) = (&forwards[step - 1], &forwards[step]);
                    assert_eq!(now.is_near(before, position), still, "{what}");
                    if still && step % 6 > 1 {
                        assert_eq!(now.logits(position), before.logits(position), "{what}");
                    }
                }
            }
        }
    }
}

/// T9: sequences in one launch are as many runs, also where their first layers differ and they have to take turns, and
/// where some of them run drafts whose layers are partly computed.
#[test]
fn caches_t9_company_changes_nothing() {
    let methods = [
        ("static", "dllm:response=3"),
        ("static", "dllm:response=4,first_layer=same,probe=k"),
        ("freedave:d=3", "dllm:response=4,rho=0.5"),
        ("freedave", "dkv:refresh=3"),
        ("static", "none"),
        ("freedave:d=2,mode=reference", "dllm:prompt=4,response=3,first_layer=same"),
        ("freedave", "freecache:block=3,freeze=reference"),
        ("static", "dllm"),
        ("static", "dllm:response=4,rows=drift,rho=0.5"),
        ("threshold", "dllm:response=4,rho=0.6"),
    ];
    let session = |&(decoder, cache): &(&str, &str)| {
        Session::new(SessionOptions { decoder: decoder.parse().unwrap(), ..options(0, cache) }).unwrap()
    };
    let network = || runner(&spec(0), devices(0)[1], Dtype::F32, 2);
    let alone: Vec<Vec<u32>> =
        methods.iter().map(|method| together(network(), vec![session(method)]).0[0].output().tokens).collect();
    let (sessions, most) = together(network(), methods.iter().map(session).collect());
    assert!(most > 1, "they do run together");
    for ((session, alone), method) in sessions.iter().zip(alone).zip(methods) {
        assert_eq!(session.output().tokens, alone, "{method:?}");
    }
}

/// T10: guidance in each forward and everything refreshed is stacked guidance.
#[test]
fn caches_t10_guidance_in_each_forward() {
    for shift in [0, 1] {
        for device in devices(shift) {
            let guided = |cache: &str| {
                let options = SessionOptions { cfg_scale: 0.7, ..options(shift, cache) };
                let mut network = runner(&spec(shift), device, Dtype::F32, 2);
                let (forwards, session) = run_on(&mut *network, &options, |_| {});
                (forwards, session.counts().nfe)
            };
            let (cached, twice) = guided("dllm:prompt=1,response=1,cfg=1");
            let (stacked, once) = guided("none");
            assert_same(&cached, &stacked, "guidance");
            assert_eq!((twice, once), (2 * LENGTH, LENGTH), "the reference runs two forwards, LLaDA one of two rows");
            let (stored, nfe) = guided("dllm:prompt=1,response=1,cfg=4");
            assert_eq!(nfe, LENGTH + 5 + 1, "the first five and forward 8");
            for step in 0..LENGTH {
                let fresh = step < 5 || step == 8;
                assert_eq!(stored[step].all() == stacked[step].all(), fresh, "shift {shift} step {step}");
            }
        }
    }
}

/// T11: under shift the row before the response stays as the last refresh of the prompt left it; as part of the
/// response it is refreshed with it. Only where both are due is it that of no cache.
#[test]
fn caches_t11_the_first_token_under_shift() {
    let first = PROMPT as Position;
    for device in devices(1) {
        let runs = ["none", "dllm:prompt=4,response=1,first_layer=same", "dllm:prompt=4,response=1,boundary=before"]
            .map(|cache| run(1, device, &options(1, cache)));
        let [reference, stale, before] = &runs;
        for step in 0..8 {
            let [reference, stale_now, before_now] = [reference, stale, before].map(|run| &run[step]);
            if step % 4 == 0 {
                assert!(stale_now.logits(first) == reference.logits(first), "step {step}");
                assert!(before_now.logits(first) == reference.logits(first), "step {step}");
                continue;
            }
            assert!(stale_now.is_near(&stale[step - step % 4], first), "step {step}: it stands still");
            assert!(!before_now.is_near(stale_now, first) && !before_now.is_near(reference, first), "step {step}");
        }
    }
}

/// X4: a response that is refreshed in each step makes dLLM-Cache a prefix cache of the prompt alone with an interval.
#[test]
fn caches_x4_a_fresh_response_leaves_a_prompt_with_an_interval() {
    for device in devices(0) {
        for (interval, rho) in [(1, 0.5), (2, 0.3), (3, 0.0), (5, 1.0)] {
            let step = Cell::new(0);
            let freeze_prompt = |request: &mut ForwardInput| {
                if step.replace(step.get() + 1) % interval > 0 {
                    request.plan.query.set_range(PROMPT as Position..(PROMPT + LENGTH) as Position);
                    request.tokens.drain(..PROMPT);
                }
            };
            let mut network = runner(&spec(0), device, Dtype::F32, 2);
            let frozen = run_on(&mut *network, &options(0, "none"), freeze_prompt).0;
            let cache = format!("dllm:prompt={interval},response=1,rho={rho}");
            assert_same(&run(0, device, &options(0, &cache)), &frozen, &cache);
        }
        let vanilla = run(0, device, &options(0, "none"));
        let frozen = run(0, device, &options(0, "dllm:prompt=3,response=1"));
        let same: Vec<bool> = (0..LENGTH).map(|step| vanilla[step].all() == frozen[step].all()).collect();
        assert!((0..LENGTH).all(|step| same[step] == (step % 3 == 0)), "the interval shows: {same:?}");
    }
}

/// X6: one block for the whole response makes the prefix cache freeze the prompt and nothing else.
#[test]
fn caches_x6_one_block_makes_the_prefix_cache_a_frozen_prompt() {
    assert_caches_equal(0, "prefix", "dllm:prompt=1000,response=1");
    assert_caches_equal(0, "prefix", "freecache:freeze=prompt");
}

/// Runs a session on a sequence and on its shadow, which leaves out each forward that does not compute every row until
/// it was looked at: with the same new tokens in the live rows of both, whatever else is read must be the same, for it
/// was not written. Answers how often that was looked at, and how often the forward did write what is live.
fn kept_slots(shift: usize, options: &SessionOptions) -> (usize, usize) {
    let mut network = runner(&spec(shift), devices(shift)[1], Dtype::F32, 2);
    let mut session = Session::new(options.clone()).unwrap();
    let needs = SequenceLimits { logits: true, ..session.needs()[0].limits.clone() };
    let ids = [network.open(&needs).unwrap(), network.open(&needs).unwrap()];
    let mut step = |id: SequenceId, request: &ForwardInput| {
        let mut out = [Predictions::default()];
        network.step(&[request.step(id)], &mut out).unwrap();
        out[0].logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>()
    };
    let (mut looked, mut wrote) = (0, 0);
    while session.wants() == Some(0) {
        let mut request = session.requests()[0].clone();
        request.ask.wanted.logits = true;
        if request.plan.query.len() < PROMPT + LENGTH {
            step(ids[0], &request);
            let rows: Vec<Position> =
                request.plan.predict.iter().map(|p| p.saturating_sub(shift as Position)).collect();
            if let Some(unasked) = request.plan.query.iter().find(|row| !rows.contains(row)) {
                // One live row less: its slot is what the forward wrote, in the shadow what it was before.
                let narrow = |at: &(Position, u32)| at.0 != unasked;
                let left = request.plan.query.iter().zip(request.tokens.iter().copied()).filter(narrow);
                let (live, tokens): (Vec<Position>, Vec<u32>) = left.unzip();
                let mut narrow = request.clone();
                (narrow.plan.query, narrow.tokens) = (live.into_iter().collect(), tokens);
                wrote += usize::from(step(ids[0], &narrow) != step(ids[1], &narrow));
            }
            let mut probe = request.clone();
            probe.tokens = (0..probe.tokens.len() as u32).map(|at| (7 * at + 1) % 60).collect();
            assert_eq!(step(ids[0], &probe), step(ids[1], &probe), "{}", request.plan);
            looked += 1;
        }
        for id in ids {
            step(id, &request);
        }
        session.feed(&[scripted(&request)]);
    }
    (looked, wrote)
}

/// K6: what greedy dKV-Cache does not run keeps its K and V, bit for bit. K8: so does dKV-Prefill's prompt, for good.
#[test]
fn caches_k6_k8_rows_that_are_not_live_keep_their_slots() {
    for shift in [0, 1] {
        for (cache, remasking) in [
            ("dkv:variant=greedy,refresh=4,window=2", Remasking::Random),
            ("dkv:variant=greedy,refresh=9,window=0", Remasking::Random),
            ("dkv:variant=prefill", Remasking::LowConfidence),
            ("dkv:refresh=5", Remasking::LowConfidence),
        ] {
            let (looked, wrote) = kept_slots(shift, &SessionOptions { remasking, ..options(shift, cache) });
            assert!(looked > LENGTH / 2 && wrote > looked / 3, "{cache} shift {shift}: {looked} looks, {wrote} writes");
        }
    }
}

/// specs/flashdlm.md#I7: frozen slots are the same bits from then on.
#[test]
fn flashdlm_i7_frozen_slots_stand_still() {
    for shift in [0, 1] {
        for cache in ["freecache:block=4", "freecache:block=3,freeze=reference", "freecache:freeze=prompt"] {
            let (looked, wrote) = kept_slots(shift, &options(shift, cache));
            assert!(looked > LENGTH / 2 && wrote > 0, "{cache} shift {shift}: {looked} looks, {wrote} writes");
        }
    }
}

/// X5: the prompt frozen and everything else fresh is dKV-Prefill and dLLM-Cache alike.
#[test]
fn caches_x5_a_frozen_prompt_is_one_thing() {
    assert_caches_equal(0, "dkv:variant=prefill", "dllm:prompt=1000,response=1");
    assert_caches_equal(1, "dkv:variant=prefill", "dllm:prompt=1000,response=1,boundary=before");
}

/// K5: the greedy variant refreshed in each step is random remasking, in the same order.
#[test]
fn caches_k5_greedy_is_random_remasking() {
    for shift in [0, 1] {
        for device in devices(shift) {
            let order = vec![12, 9, 20, 10, 15, 14, 13, 18, 11, 19, 16, 17];
            let run = |cache: &str| {
                let options =
                    SessionOptions { remasking: Remasking::Random, order: order.clone(), ..options(shift, cache) };
                run(shift, device, &options)
            };
            let (greedy, reference) = (run("dkv:variant=greedy,refresh=1"), run("none"));
            for (step, &position) in order.iter().enumerate() {
                assert_eq!(greedy[step].request.plan.predict.as_slice(), [position]);
                assert!(greedy[step].logits(position) == reference[step].logits(position), "step {step}");
            }
        }
    }
}

/// S4: a forward of SlowFast without the end of the canvas is one of the shorter canvas.
#[test]
fn caches_s4_truncated_forwards() {
    for shift in [0, 1] {
        let options = SessionOptions {
            decoder: "slowfast:explore=2,tau_min=0.88,tau=2".parse().unwrap(),
            ..options(shift, "none")
        };
        let mut network = runner(&spec(shift), devices(shift)[0], Dtype::F32, 1);
        let (forwards, _) = run_on(&mut *network, &options, |_| {});
        let truncated: Vec<_> =
            forwards.iter().filter(|forward| (forward.request.plan.kv_len as usize) < PROMPT + LENGTH).collect();
        assert!(truncated.len() > 1);
        for forward in truncated {
            let rows = forward.request.plan.kv_len as usize;
            let needs =
                SequenceLimits { positions: rows, rows, predictions: rows, logits: true, ..SequenceLimits::default() };
            let id = network.open(&needs).unwrap();
            let mut out = [Predictions::default()];
            network.step(&[forward.request.step(id)], &mut out).unwrap();
            assert_eq!(out[0].logits, forward.answer.logits);
            network.close(id);
        }
    }
}

/// SlowFast over the inexact caches runs to its end, on truncated forwards too.
#[test]
fn slowfast_goes_with_every_cache_that_it_may() {
    for shift in [0, 1] {
        for cache in ["dkv:refresh=3", "dllm:prompt=4,response=3", "dllm:response=5,rho=0,first_layer=same"] {
            let options = SessionOptions {
                decoder: "slowfast:explore=2,tau_min=0.88,tau=2".parse().unwrap(),
                ..options(shift, cache)
            };
            let forwards = run(shift, devices(shift)[0], &options);
            assert_eq!(forwards.len(), LENGTH, "{cache}: one token a forward");
            assert!(forwards.iter().any(|forward| (forward.request.plan.kv_len as usize) < PROMPT + LENGTH));
        }
    }
}
