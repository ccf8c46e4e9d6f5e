//! Prefixes that requests share: what is not computed again changes no bit of an answer, nobody reads what is not theirs,
//! and every page is accounted for, whoever comes, goes and is given up.

use std::{
    collections::HashMap,
    ops::{ControlFlow, Range},
};

use demask::internals::{
    Finished, NetworkId, Outcome, RequestId, Scheduler,
    cpu::isa::Isa,
    decode::{CanvasSpec, Event, GuideOptions, ModelFacts, Session, SessionOptions, StopRule},
    model_parts::{ArchSpec, Inspect, Runner, Weights},
    scheduler::NetworkCounters,
    step::{
        HeadAsk, Mask, Network, OpenError, Pages, PlanError, Predictions, Prefix, SequenceId, SequenceNeeds,
        SequenceStep, StepPlan, TokenId,
    },
    tensor::Dtype,
};
use demask::{Class, Generation, Model, Options, Prompt};
use demask_cuda::{
    backend::{CudaBackend, CudaOptions},
    gpu::Limits,
};
use demask_cuda_emulator::{Emulator, Schedule};

use crate::{
    batch::{answer, load},
    common::{Device, Dice, RandomWeights, devices, runner, specs},
};

/// Positions of a page.
const PAGE: usize = 32;
/// As much as anybody wants to keep.
const ALL: u64 = 1 << 30;

/// Position, token and the bits of the confidence, in the order of the commits.
type Commits = Vec<(u32, TokenId, u32)>;

fn commits(session: &mut Session) -> Commits {
    let commit = |event| match event {
        Event::Commit { position, token, confidence, .. } => Some((position, token, confidence.to_bits())),
        Event::Step { .. } | Event::Draft { .. } | Event::Target { .. } => None,
    };
    session.events().filter_map(commit).collect()
}

/// A question of several sentences, which all have their first ones in common.
fn question(index: usize) -> Prompt {
    let long = "Ada has 12 pears, 7 cards and 3 boxes of old books. Ben gives Ada 4 pears. Ada eats 2 pears. Ada buys 3 cards. Ben \
                loses 5 cards, and Ada gives Ben 2 of the boxes.";
    Prompt::user(format!("{long} Then Ada finds {index} pears. How many pears does Ada have in the end?"), None)
}

/// Tokens that no model of these tests treats as special.
fn tokens(length: usize) -> Vec<TokenId> {
    (0..length).map(|at| (3 + at * 7 % 60) as TokenId).collect()
}

/// A session of a model for a prompt of these tokens.
fn session(facts: &ModelFacts, tokens: &[TokenId], gen_length: usize, (decoder, cache): (&str, &str)) -> Session {
    Session::new(options(facts, tokens, gen_length, (decoder, cache))).unwrap()
}

fn options(
    facts: &ModelFacts,
    tokens: &[TokenId],
    gen_length: usize,
    (decoder, cache): (&str, &str),
) -> SessionOptions {
    SessionOptions {
        stop: StopRule::Never,
        decoder: decoder.parse().unwrap(),
        cache: cache.parse().unwrap(),
        seed: 3,
        ..SessionOptions::new(facts.clone(), CanvasSpec::Prompt { tokens: tokens.to_vec(), gen_length })
    }
}

/// Decoders and caches that share, by who sees whom.
fn methods(mask: Mask) -> &'static [(&'static str, &'static str)] {
    match mask {
        Mask::Causal => &[("ar", "causal")],
        _ => &[
            ("static", "block"),
            ("threshold:tau=0.3", "block"),
            ("freedave", "block"),
            ("freedave:d=3,eager=false", "block"),
            ("freedave:d=3,mode=reference,eager=false", "block"),
        ],
    }
}

/// How many leading positions of a prompt are whole units of this length that a model can take.
fn shared(mask: Mask, prompt: usize, unit: usize) -> usize {
    let takes = match mask {
        Mask::Causal => prompt - 1,
        _ => prompt,
    };
    takes / unit * unit
}

/// The best tier that this machine has.
fn best() -> Isa {
    Isa::available().pop().unwrap()
}

/// One network and its scheduler.
struct Bench {
    scheduler: Scheduler<Session, dyn Inspect>,
    network: NetworkId,
    facts: ModelFacts,
}

impl Bench {
    fn new(spec: &ArchSpec, device: impl Into<Device>, dtype: Dtype, bytes: u64) -> Self {
        let mut network = runner(spec, device, dtype, 1);
        network.keep_prefixes(bytes);
        let mut scheduler = Scheduler::new().with_leak(|leak| panic!("{leak}"));
        let network = scheduler.add(network);
        let mask_id = (spec.attention != Mask::Causal).then_some(69);
        let shift = spec.shift as u32;
        let facts = ModelFacts { mask: spec.attention, shift, mask_id, vocab: 70, context: 512, layers: 3 };
        Self { scheduler, network, facts }
    }

    /// The synthetic model of a kind on the best tier that there is.
    fn of(kind: &str, bytes: u64) -> Self {
        let spec = specs().into_iter().find(|(name, _)| *name == kind).unwrap().1;
        Self::new(&spec, best(), Dtype::Bf16, bytes)
    }

    fn submit(&mut self, session: Session) -> RequestId {
        self.scheduler.submit(session, &[self.network], Class::default()).unwrap()
    }

    fn step(&mut self) -> Vec<Finished<Session>> {
        let mut over = Vec::new();
        self.scheduler.step(&mut |_, _| ControlFlow::Continue(()), &mut over);
        over
    }

    fn run(&mut self, session: Session) -> Session {
        self.submit(session);
        loop {
            if let Some(one) = self.step().pop() {
                one.end.unwrap();
                return one.work;
            }
        }
    }

    fn counters(&self) -> NetworkCounters {
        self.scheduler.network_counters(self.network).unwrap()
    }

    /// Pages that nobody holds, once nobody runs.
    fn idle(&self) -> usize {
        let NetworkCounters { open, pages, .. } = self.counters();
        assert_eq!((open, pages.used, self.scheduler.counters().leaks), (0, 0, 0));
        pages.idle
    }

    fn page_bytes(&self) -> u64 {
        let needs = SequenceNeeds { positions: PAGE, ..SequenceNeeds::default() };
        self.scheduler.network(self.network).unwrap().price(&needs).unwrap().own
    }
}

/// Runs a prompt on a bench that keeps nothing, and twice on one that does, each time with the same result.
fn cold_and_warm(benches: [&mut Bench; 2], length: usize, method: (&str, &str)) {
    let [plain, keeping] = benches;
    let prompt = tokens(length);
    let make = |bench: &Bench| session(&bench.facts, &prompt, 12, method);
    let mut cold = plain.run(make(plain));
    let expected = commits(&mut cold);
    let facts = keeping.facts.clone();
    for round in 0..3 {
        let mut warm = keeping.run(make(keeping));
        let name = format!("{method:?} behind {length} tokens, run {round}");
        assert_eq!(commits(&mut warm), expected, "{name}");
        assert_eq!(warm.canvas(), cold.canvas(), "{name}");
        let cached = warm.counts().cached;
        if round > 0 {
            assert_eq!(cached, shared(facts.mask, length, PAGE), "{name}");
        }
        // Of a fused prompt each draft has the rows.
        assert!(warm.counts().rows + cached <= cold.counts().rows, "{name}");
        assert!(warm.counts().cost.flops() <= cold.counts().cost.flops(), "{name}");
        assert_eq!(warm.receipt().cached_tokens, cached);
    }
    assert_eq!(plain.counters().pages.idle, 0);
    assert_eq!(plain.counters().prefixes, None, "nothing is counted where nothing is kept");
}

#[test]
fn what_is_not_computed_again_changes_no_bit_on_any_device() {
    for (name, spec) in specs().into_iter().filter(|(name, _)| ["block", "causal"].contains(name)) {
        for (device, dtype) in devices(name) {
            let slow = device == Device::EmulatedGpu;
            for &method in methods(spec.attention).iter().take(if slow { 1 } else { 9 }) {
                let mut plain = Bench::new(&spec, device, dtype, 0);
                let lengths = if slow { &[PAGE + 3][..] } else { &[PAGE, 2 * PAGE + 5] };
                for &length in lengths {
                    let mut keeping = Bench::new(&spec, device, dtype, ALL);
                    cold_and_warm([&mut plain, &mut keeping], length, method);
                    assert!(keeping.idle() > 0 || length < PAGE);
                }
            }
        }
    }
}

/// Block and page each one position off, for every decoder, with what earlier lengths left.
#[test]
fn lengths_around_blocks_and_pages_are_right() {
    for kind in ["block", "causal"] {
        let (mut plain, mut keeping) = (Bench::of(kind, 0), Bench::of(kind, ALL));
        let around = |edge: usize| [edge - 1, edge, edge + 1];
        let lengths = [2, 4, 28, 32, 36, 64].into_iter().flat_map(around);
        for length in lengths.collect::<Vec<_>>() {
            for &method in methods(plain.facts.mask) {
                let prompt = tokens(length);
                let expected = commits(&mut plain.run(session(&plain.facts, &prompt, 9, method)));
                let mut warm = keeping.run(session(&keeping.facts, &prompt, 9, method));
                assert_eq!(commits(&mut warm), expected, "{kind} {method:?} behind {length} tokens");
                let cached = warm.counts().cached;
                assert!(cached <= shared(plain.facts.mask, length, PAGE) && cached % PAGE == 0, "{cached}");
            }
        }
        keeping.idle();
    }
}

/// The demo's models in their own words, through the face.
#[test]
fn demo_models_answer_the_same_cold_and_warm() {
    let told = |options: &Options, model: &mut Model, index| -> Generation {
        model.watch(&question(index), options, &mut |_| ControlFlow::Continue(())).unwrap()
    };
    for (name, decoders) in [("demo-sdar", &["static", "freedave", "threshold:tau=0.9"][..]), ("demo-qwen", &["ar"])] {
        let (mut plain, mut keeping) = (load(name), load(name));
        keeping.set_prefix_cache(ALL);
        keeping.scheduler().0.set_leak(|leak| panic!("{leak}"));
        for decoder in decoders {
            let options = Options {
                decoder: Some(decoder.parse().unwrap()),
                gen_length: Some(32),
                temperature: Some(if *decoder == "static" { 0.5 } else { 0.0 }),
                ..Options::default()
            };
            for index in 0..4 {
                let cold = told(&options, &mut plain, index);
                for round in 0..2 {
                    let warm = told(&options, &mut keeping, index);
                    assert_eq!((&warm.text, &warm.canvas, warm.finish), (&cold.text, &cold.canvas, cold.finish));
                    let (cold, warm) = (&cold.receipt.decoding, &warm.receipt.decoding);
                    assert_eq!(cold.cached_tokens, 0);
                    if round > 0 {
                        assert!(warm.cached_tokens >= PAGE, "{name} {decoder} {index}: {}", warm.cached_tokens);
                        assert!(warm.rows < cold.rows && warm.flops < cold.flops, "{name} {decoder} {index}");
                    }
                }
            }
        }
        let prompt = Prompt::Tokens(tokens(4 * PAGE));
        let short = Options { gen_length: Some(8), ..Options::default() };
        let cached = |model: &mut Model, salt: &str| {
            let prepared = model.prepare(&prompt, &short).unwrap().with_cache_salt(salt);
            model.answer(prepared, &mut |_| ControlFlow::Continue(())).unwrap().receipt.decoding.cached_tokens
        };
        assert_eq!(["a", "b", "a", "b"].map(|salt| cached(&mut keeping, salt) > 0), [false, false, true, true]);
        assert!(told(&short, &mut keeping, 0).receipt.decoding.cached_tokens > 0);
    }
}

#[test]
fn other_block_lengths_and_other_salts_share_nothing() {
    let mut bench = Bench::of("block", ALL);
    let prompt = tokens(3 * PAGE + 1);
    let mut cached = |block_length: usize, salt: u64| {
        let options = options(&bench.facts, &prompt, 12, ("static", "block"));
        let mut session = Session::new(SessionOptions { block_length: Some(block_length), ..options }).unwrap();
        session.set_salt(salt);
        bench.run(session).counts().cached
    };
    for (block_length, salt, expected) in [
        (4, 0, 0),
        (8, 0, 0),
        (4, 1, 0),
        (4, 2, 0),
        (4, 0, 96),
        (8, 0, 96),
        (4, 1, 96),
        // Whole blocks of six and whole pages: 96 positions.
        (6, 0, 0),
        (6, 0, 96),
        // Five and 32 have nothing in common but 160.
        (5, 0, 0),
        (5, 0, 0),
    ] {
        assert_eq!(cached(block_length, salt), expected, "blocks of {block_length}, salt {salt}");
    }
    bench.idle();
}

/// An answer's own blocks, and the next turn of a talk.
#[test]
fn the_next_turn_begins_with_the_answer_of_the_last_one() {
    for kind in ["block", "causal"] {
        for &method in methods(Bench::of(kind, 0).facts.mask) {
            let (mut plain, mut keeping) = (Bench::of(kind, 0), Bench::of(kind, ALL));
            let first = keeping.run(session(&keeping.facts, &tokens(20), 60, method));
            let second: Vec<TokenId> = first.canvas().iter().copied().chain(tokens(9)).collect();
            let expected = commits(&mut plain.run(session(&plain.facts, &second, 12, method)));
            let mut warm = keeping.run(session(&keeping.facts, &second, 12, method));
            assert_eq!(commits(&mut warm), expected, "{kind} {method:?}");
            assert_eq!(warm.counts().cached, 64, "{kind} {method:?}: the prompt of 20, and 44 of the answer");
        }
    }
}

/// Those that come while the first one's prompt is in begin with it already, and what is the same is kept once.
#[test]
fn requests_that_run_share_the_prompt_of_the_first() {
    let (mut plain, mut bench) = (Bench::of("block", 0), Bench::of("block", ALL));
    let prompt = tokens(2 * PAGE);
    let make = |bench: &Bench| session(&bench.facts, &prompt, 24, ("static", "block"));
    let expected = commits(&mut plain.run(make(&plain)));
    let own = (prompt.len() + 24).div_ceil(PAGE);
    // Two at once find nothing; the third comes when both have left the same.
    bench.submit(make(&bench));
    bench.submit(make(&bench));
    let mut used = Vec::new();
    for _ in 0..4 {
        assert!(bench.step().is_empty());
        used.push(bench.counters().pages.used);
    }
    assert!(used[0] >= 2 * own - 2 && used[3] == 2 * own - 2, "the prompt's two pages are there once: {used:?}");
    bench.submit(make(&bench));
    let mut over = Vec::new();
    while over.len() < 3 {
        over.extend(bench.step());
    }
    let mut cached = Vec::new();
    for one in &mut over {
        assert_eq!(commits(&mut one.work), expected);
        cached.push(one.work.counts().cached);
    }
    cached.sort_unstable();
    assert_eq!(cached, [0, 0, 2 * PAGE]);
    assert_eq!(bench.idle(), (prompt.len() + 24) / PAGE, "all three left the same");
}

/// A request that is given up at any time leaves what was right, and holds nothing: drafts that were run are no slots
/// before the next forward keeps them.
#[test]
fn whoever_is_given_up_leaves_no_page_held() {
    for kind in ["block", "causal"] {
        for &method in methods(Bench::of(kind, 0).facts.mask) {
            let mut plain = Bench::of(kind, 0);
            let first = |bench: &Bench| session(&bench.facts, &tokens(PAGE - 4), 4 * PAGE, method);
            let talk = plain.run(first(&plain)).canvas()[..4 * PAGE - 3].to_vec();
            let second = |bench: &Bench| session(&bench.facts, &talk, 8, method);
            let expected = commits(&mut plain.run(second(&plain)));
            let mut most = 0;
            for steps in [0, 1, 2, 3, 5, 8, 13, 40, 110] {
                let mut bench = Bench::of(kind, ALL);
                let id = bench.submit(first(&bench));
                let over = (0..steps).any(|_| !bench.step().is_empty());
                assert_eq!(bench.scheduler.cancel(id).is_some(), !over);
                let left = bench.idle();
                assert!(steps > 0 || left == 0, "before the first forward there is nothing to leave");
                most = most.max(left);
                let mut next = bench.run(second(&bench));
                assert_eq!(commits(&mut next), expected, "{kind} {method:?} behind {steps} steps of another");
                assert_eq!(next.counts().cached, left.min(3) * PAGE, "{kind} {method:?} {steps}");
            }
            assert!(most >= 3, "{kind} {method:?}");
        }
    }
}

/// The observer ends it in the very forward whose prefill is published.
#[test]
fn whoever_ends_while_it_publishes_leaves_no_page_held() {
    let mut bench = Bench::of("block", ALL);
    let make = |bench: &Bench| session(&bench.facts, &tokens(2 * PAGE), 20, ("static", "block"));
    bench.submit(make(&bench));
    let (mut over, mut seen) = (Vec::new(), 0);
    let mut look = |_, _: &mut Session| {
        seen += 1;
        if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    bench.scheduler.step(&mut look, &mut over);
    assert_eq!((over.len(), over[0].end.is_err()), (1, true));
    assert_eq!(bench.idle(), 2);
    assert_eq!(bench.run(make(&bench)).counts().cached, 2 * PAGE);
}

/// Pages that nobody holds go before anybody waits for memory, and what is asked for goes last.
#[test]
fn idle_pages_go_before_anybody_waits() {
    let mut bench = Bench::of("block", ALL);
    let page = bench.page_bytes();
    let device = bench.scheduler.network(bench.network).unwrap().available().0;
    // Grown once, buffers stay: what is left is for pages.
    let method = ("static", "block");
    let prompt = |first: TokenId, pages: usize| -> Vec<TokenId> {
        let mut prompt = tokens(pages * PAGE);
        prompt[0] = first;
        prompt
    };
    let make =
        |bench: &Bench, first: TokenId, pages: usize| session(&bench.facts, &prompt(first, pages), PAGE - 4, method);
    bench.run(make(&bench, 9, 6));
    bench.scheduler.network_mut(bench.network).unwrap().keep_prefixes(0);
    assert_eq!(bench.idle(), 0);
    bench.scheduler.network_mut(bench.network).unwrap().keep_prefixes(ALL);
    bench.scheduler.limit(device, 8 * page);
    assert_eq!(bench.counters().page_capacity, Some(8));
    // Each takes four pages, and leaves three of its prompt.
    for first in 10..14 {
        assert_eq!(bench.run(make(&bench, first, 3)).counts().cached, 0);
        assert!(bench.idle() + 4 <= 8 + 3, "{}", bench.idle());
        assert_eq!(bench.scheduler.counters().oldest, 0);
    }
    // All that fits beside four is kept: of the last two requests all, of the one before what is left.
    assert_eq!(bench.idle(), 7);
    assert_eq!(bench.run(make(&bench, 13, 3)).counts().cached, 3 * PAGE);
    // One takes everything but a page; of the idle ones its own go last.
    let mut big = prompt(13, 3);
    big.extend(tokens(3 * PAGE));
    let big = session(&bench.facts, &big, PAGE - 4, method);
    bench.submit(big);
    let mut over = bench.step();
    assert_eq!(bench.scheduler.counters().waiting, 0, "it need not wait");
    while over.is_empty() {
        over = bench.step();
    }
    assert_eq!(over[0].work.counts().cached, 3 * PAGE);
    // Two at once have no room: the second waits for the first alone.
    bench.submit(make(&bench, 20, 4));
    bench.submit(make(&bench, 21, 4));
    over = bench.step();
    assert_eq!((over.len(), bench.scheduler.counters().waiting), (0, 1));
    while over.len() < 2 {
        over.extend(bench.step());
    }
    assert!(over.iter().all(|one| one.end.is_ok()));
    assert!(bench.idle() <= 8);
}

#[test]
fn no_more_stays_than_was_asked_for() {
    let page = Bench::of("causal", 0).page_bytes();
    let mut bench = Bench::of("causal", 3 * page + 1);
    for first in 10..15 {
        let mut prompt = tokens(2 * PAGE + 1);
        prompt[0] = first;
        bench.run(session(&bench.facts, &prompt, 4, ("ar", "causal")));
        assert!(bench.idle() <= 3, "{}", bench.idle());
    }
    assert_eq!(bench.idle(), 3, "of the last all, of the one before its first page");
    let NetworkCounters { pages, .. } = bench.counters();
    assert!(pages.free > 0);
    bench.scheduler.network_mut(bench.network).unwrap().keep_prefixes(0);
    assert_eq!((bench.idle(), bench.counters().prefixes), (0, None));
}

#[test]
fn queries_and_hits_are_counted_in_tokens() {
    let mut bench = Bench::of("causal", ALL);
    for _ in 0..3 {
        bench.run(session(&bench.facts, &tokens(70), 4, ("ar", "causal")));
    }
    let found = bench.counters().prefixes.unwrap();
    assert_eq!((found.queries, found.hits), (3 * 69, 2 * 64));
}

/// Under full attention what stands behind a token changes its K/V: there is nothing to share.
#[test]
fn models_with_full_attention_share_nothing() {
    let mut bench = Bench::of("full", ALL);
    for cache in ["none", "dual", "freecache:block=8", "dllm"] {
        for _ in 0..2 {
            let session = bench.run(session(&bench.facts, &tokens(70), 16, ("static", cache)));
            assert_eq!(session.counts().cached, 0);
        }
    }
    assert_eq!((bench.idle(), bench.counters().prefixes.unwrap().queries), (0, 0));
}

/// Plans of the canvas are those of the unconditional sequence too: it begins with nothing, and only the canvas leaves
/// anything.
#[test]
fn guidance_shares_nothing_of_its_twin() {
    let (mut plain, mut bench) = (Bench::of("block", 0), Bench::of("block", ALL));
    let make = |bench: &Bench, cfg_scale| {
        let options = options(&bench.facts, &tokens(70), 12, ("static", "block"));
        Session::new(SessionOptions { cfg_scale, ..options }).unwrap()
    };
    let expected = [1.0, 0.0].map(|scale| commits(&mut plain.run(make(&plain, scale))));
    for round in 0..2 {
        let mut guided = bench.run(make(&bench, 1.0));
        assert_eq!((commits(&mut guided), guided.counts().cached), (expected[0].clone(), 0));
        let mut alone = bench.run(make(&bench, 0.0));
        assert_eq!((commits(&mut alone), alone.counts().cached), (expected[1].clone(), 64), "round {round}");
    }
    // What both canvases have, and nothing of masks.
    assert_eq!(bench.idle(), 2);
}

/// A causal guide does not read a prompt again, whoever drafts.
#[test]
fn a_guide_shares_what_it_has_read() {
    let models = || {
        let mut model = load("demo-llada");
        model.set_guide(load("demo-qwen")).unwrap();
        model.scheduler().0.set_leak(|leak| panic!("{leak}"));
        model
    };
    let (mut plain, mut keeping) = (models(), models());
    keeping.set_prefix_cache(ALL);
    for (align, target) in [("bytes", "dlm"), ("table", "dlm"), ("pieces", "dlm")] {
        let options = Options {
            decoder: Some(format!("guided:align={align},target={target}").parse().unwrap()),
            gen_length: Some(32),
            ..Options::default()
        };
        let told = |model: &mut Model, index| {
            model.watch(&question(index), &options, &mut |_| ControlFlow::Continue(())).unwrap()
        };
        for index in 0..3 {
            let cold = told(&mut plain, index);
            let _ = told(&mut keeping, index);
            let warm = told(&mut keeping, index);
            assert_eq!((&warm.text, &warm.canvas), (&cold.text, &cold.canvas), "{align} {index}");
            let [cold, warm] = [cold, warm].map(|one| one.receipt.guide.unwrap());
            assert_eq!((cold.accepted, cold.rejected), (warm.accepted, warm.rejected), "{align} {index}");
            assert!(warm.cached_tokens >= PAGE && cold.cached_tokens == 0, "{align}: {}", warm.cached_tokens);
            assert_eq!(warm.rows + warm.cached_tokens, cold.rows, "{align} {index}");
        }
    }
    let (scheduler, networks) = keeping.scheduler();
    let idle = |network: usize| scheduler.network_counters(networks[network]).unwrap().pages;
    assert_eq!((idle(0).used, idle(0).idle, idle(1).used), (0, 0, 0));
    assert!(idle(1).idle > 0);
}

/// A block-causal model and a causal guide of one vocabulary: both share, each its own.
#[test]
fn canvas_and_guide_both_share() {
    let specs: HashMap<_, _> = specs().into_iter().collect();
    let facts = |mask, shift, mask_id| ModelFacts { mask, shift, mask_id, vocab: 70, context: 512, layers: 3 };
    let run = |bytes: u64, rounds: usize| {
        let mut scheduler = Scheduler::new().with_leak(|leak| panic!("{leak}"));
        let on = ["block", "causal"].map(|kind| {
            let mut network = runner(&specs[kind], best(), Dtype::Bf16, 1);
            network.keep_prefixes(bytes);
            scheduler.add(network)
        });
        let one = |_: usize| {
            let guide = GuideOptions {
                facts: facts(Mask::Causal, 1, None),
                end_ids: Vec::new(),
                shared_vocabulary: true,
                text: None,
            };
            let own =
                options(&facts(Mask::BlockCausal { block: 4 }, 0, Some(69)), &tokens(70), 40, ("guided", "block"));
            let session = Session::new(SessionOptions { guide: Some(guide), ..own }).unwrap();
            scheduler.submit(session, &on, Class::default()).unwrap();
            let mut over = Vec::new();
            while over.is_empty() {
                scheduler.step(&mut |_, _| ControlFlow::Continue(()), &mut over);
            }
            let mut session = over.remove(0).work;
            (commits(&mut session), session.counts().cached, session.counts().guide.cached)
        };
        (0..rounds).map(one).collect::<Vec<_>>()
    };
    let (expected, ..) = run(0, 1).remove(0);
    for (round, (found, canvas, guide)) in run(ALL, 2).into_iter().enumerate() {
        assert_eq!(found, expected);
        assert_eq!((canvas, guide), if round == 0 { (0, 0) } else { (64, 64) });
    }
}

/// Random requests whose prompts have random beginnings in common, beside each other, some given up, in too little memory:
/// every finished one is what it is alone.
#[test]
fn random_company_shares_and_stays_right() {
    for kind in ["block", "causal"] {
        let (mut plain, mut bench) = (Bench::of(kind, 0), Bench::of(kind, 0));
        let methods = methods(plain.facts.mask);
        let page = bench.page_bytes();
        bench.scheduler.network_mut(bench.network).unwrap().keep_prefixes(9 * page);
        let make = |facts: &ModelFacts, index: usize| {
            let mut dice = Dice::new(index as u64 / 2);
            let mut prompt = tokens(120);
            // Prompts part at one of few places.
            let part = [0, 31, 40, 64, 100][dice.below(5)];
            prompt[part..].iter_mut().for_each(|token| *token = 3 + dice.below(60) as TokenId);
            prompt.truncate(20 + dice.below(100));
            let mut session = session(facts, &prompt, 4 + dice.below(30), methods[index % methods.len()]);
            session.set_salt(u64::from(dice.chance(10)));
            session
        };
        let expected: Vec<_> = (0..40).map(|index| commits(&mut plain.run(make(&plain.facts, index)))).collect();
        bench.run(make(&bench.facts, 0));
        let device = bench.scheduler.network(bench.network).unwrap().available().0;
        bench.scheduler.limit(device, 60 * page + (4 << 20));
        let (mut dice, mut next, mut running, mut cached) = (Dice::new(5), 0, HashMap::new(), 0);
        while next < expected.len() || !bench.scheduler.is_idle() {
            if next < expected.len() && dice.chance(40) {
                running.insert(bench.submit(make(&bench.facts, next)), next);
                next += 1;
            }
            if dice.chance(4)
                && let Some(&id) = running.keys().min()
            {
                bench.scheduler.cancel(id);
                running.remove(&id);
            }
            for mut one in bench.step() {
                let Some(index) = running.remove(&one.id) else { continue };
                one.end.unwrap();
                cached += one.work.counts().cached;
                assert_eq!(commits(&mut one.work), expected[index], "{kind} request {index}");
            }
        }
        assert!(cached > 10 * PAGE, "{kind}: {cached} tokens were not computed again");
        assert!(bench.idle() <= 9);
    }
}

/// A network by itself, with as many pages as fill a small device.
struct Small {
    network: Runner<CudaBackend<Emulator>>,
}

impl Small {
    fn new(memory: u64) -> Self {
        let spec = specs().into_iter().find(|(name, _)| *name == "block").unwrap().1;
        let limits = Limits { capability: 80, processors: 108, shared: 163 << 10, memory };
        let gpu = Emulator::with_limits(Schedule::Forward, limits).unwrap();
        let backend = CudaBackend::new(gpu, CudaOptions { dtype: Dtype::F32, quantisation: None });
        let weights = Weights::load(&spec, &RandomWeights::new(&spec, 7), &backend, &mut |_| true).unwrap();
        let mut network = Runner::new(spec, weights, backend, 3 * PAGE).unwrap();
        network.keep_prefixes(ALL);
        Self { network }
    }

    fn needs(pages: usize) -> SequenceNeeds {
        SequenceNeeds { positions: pages * PAGE, rows: 3 * PAGE, ..SequenceNeeds::default() }
    }

    /// Runs these positions of a sequence, whatever they predict.
    fn step(&mut self, sequence: SequenceId, positions: Range<u32>) -> Result<(), PlanError> {
        let tokens = tokens(4 * PAGE);
        let mask = Mask::BlockCausal { block: 4 };
        let plan = StepPlan { live: positions.clone().into(), visible: positions.end, mask, ..StepPlan::default() };
        let (tokens, ask) = (&tokens[positions.start as usize..positions.end as usize], HeadAsk::default());
        let step = SequenceStep { sequence, tokens, plan: &plan, ask: &ask, blend: None };
        self.network.check(&[step])?;
        self.network.step(&[step], &mut [Predictions::default()]).unwrap();
        Ok(())
    }

    /// Leaves three pages of four that were used.
    fn leave(&mut self) {
        let prefix = tokens(3 * PAGE);
        let prefix = Prefix { tokens: &prefix, mask: Mask::BlockCausal { block: 4 }, salt: 0 };
        let sequence = self.network.open(&Self::needs(4)).unwrap();
        self.step(sequence, 0..2 * PAGE as u32).unwrap();
        // Nobody is to read what was never written.
        self.network.publish(sequence, prefix);
        assert_eq!(self.network.spare(prefix), 0, "it is held");
        self.step(sequence, 2 * PAGE as u32..3 * PAGE as u32).unwrap();
        // What is shared is neither live nor kept again.
        for first in [0, PAGE as u32, 2 * PAGE as u32 - 4] {
            let refused = self.step(sequence, first..first + 8).unwrap_err().to_string();
            assert!(refused.ends_with("a position is live or kept whose slot is shared"), "{refused}");
        }
        self.network.publish(sequence, prefix);
        self.network.close(sequence);
        assert_eq!(self.network.pages(), Pages { used: 0, free: 1, idle: 3 });
    }
}

/// Without a scheduler too, what is idle goes before a sequence is refused for lack of memory.
#[test]
fn a_full_device_gives_idle_pages_up() {
    let mut roomy = Small::new(1 << 30);
    roomy.leave();
    let taken = (1 << 30) - roomy.network.available().1;
    let page = roomy.network.price(&Small::needs(1)).unwrap().own;
    let mut small = Small::new(taken + 2 * page + page / 2);
    small.leave();
    let all = small.network.open(&Small::needs(6)).unwrap();
    assert_eq!(small.network.pages(), Pages { used: 6, free: 0, idle: 0 });
    small.network.close(all);
    assert_eq!(small.network.pages(), Pages { used: 0, free: 6, idle: 0 });
    let mut small = Small::new(taken + 2 * page + page / 2);
    small.leave();
    assert!(matches!(small.network.open(&Small::needs(7)), Err(OpenError::Memory(_))));
    assert_eq!(small.network.pages().used, 0);
    small.network.open(&Small::needs(6)).unwrap();
}

/// An engine that was asked to keeps prefixes, and tells of it.
#[test]
fn an_engine_tells_pages_queries_and_hits() {
    let mut model = load("demo-sdar");
    model.set_prefix_cache(ALL);
    let engine = model.into_engine().unwrap();
    let handle = engine.handle();
    let options = Options { gen_length: Some(32), ..Options::default() };
    let answers = [0, 1].map(|_| handle.generate(question(1), &options, Class::default()).unwrap().wait().unwrap());
    assert_eq!(answers[0].text, answers[1].text);
    let cached = answers[1].receipt.decoding.cached_tokens;
    assert!(cached > 0);
    let json = serde_json::to_value(&answers[1].receipt).unwrap();
    assert_eq!(json["cached_tokens"], cached);
    let without = serde_json::to_value(&answers[0].receipt).unwrap();
    assert_eq!(without.get("cached_tokens"), None, "what did not happen is not told");
    // A look comes after the counts of the forward before it.
    handle.look(|_| ()).unwrap();
    let network = handle.counters().networks[0];
    let found = network.prefixes.unwrap();
    assert_eq!((found.hits, network.pages.used), (cached as u64, 0));
    assert!(network.pages.idle > 0 && network.page_capacity.unwrap() > network.pages.idle as u64);
    engine.drain();
}

/// Nobody who did not ask for it shares anything.
#[test]
fn nothing_is_shared_unless_somebody_asks() {
    let mut model = load("demo-sdar");
    let options = Options { gen_length: Some(16), ..Options::default() };
    for _ in 0..2 {
        let prepared = model.prepare(&question(1), &options).unwrap();
        let id = model.submit(prepared, Class::default()).unwrap();
        let mut over = Vec::new();
        while over.is_empty() {
            over = model.step(&mut |_, _| ControlFlow::Continue(()));
        }
        let (found, outcome) = over.remove(0);
        assert_eq!(found, id);
        assert!(matches!(&outcome, Ok(Outcome::Answer(_))));
        assert_eq!(answer(outcome).unwrap().receipt.decoding.cached_tokens, 0);
    }
    let (scheduler, networks) = model.scheduler();
    let counters = scheduler.network_counters(networks[0]).unwrap();
    assert_eq!((counters.pages.idle, counters.prefixes), (0, None));
}
