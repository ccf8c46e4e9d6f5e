//! Pages that nobody holds are as good as free ones: they go before anybody waits or is refused.

use std::ops::Range;

use demask_cuda::{
    backend::{CudaBackend, CudaOptions},
    gpu::Limits,
};
use demask_cuda_emulator::{Emulator, Schedule};
use demask_engine::NetworkCounters;
use demask_model::{Inspect, Runner, Weights};
use demask_step::{
    HeadAsk, Mask, Network, OpenError, Pages, PlanError, Predictions, Prefix, SequenceId, SequenceLimits, SequenceStep,
    StepPlan, TokenId,
};
use demask_tensor::Dtype;

use super::{ALL, Bench, PAGE, session, tokens};
use crate::common::{RandomWeights, specs};

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
    // Each takes four pages, and leaves them: three of its prompt, and one of its answer.
    for first in 10..14 {
        assert_eq!(bench.run(make(&bench, first, 3)).counts().cached, 0);
        assert!(bench.idle() <= 8, "{}", bench.idle());
        assert_eq!(bench.scheduler.counters().oldest, 0);
    }
    // All that fits beside four is kept: all of the last two requests.
    assert_eq!(bench.idle(), 8);
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

    fn needs(pages: usize) -> SequenceLimits {
        SequenceLimits { positions: pages * PAGE, rows: 3 * PAGE, ..SequenceLimits::default() }
    }

    /// Runs these positions of a sequence, whatever they predict.
    fn step(&mut self, sequence: SequenceId, positions: Range<u32>) -> Result<(), PlanError> {
        let tokens = tokens(4 * PAGE);
        let mask = Mask::blocks(4);
        let plan = StepPlan { query: positions.clone().into(), kv_len: positions.end, mask, ..StepPlan::default() };
        let (tokens, ask) = (&tokens[positions.start as usize..positions.end as usize], HeadAsk::default());
        let step = SequenceStep { sequence, tokens, plan: &plan, ask: &ask, blend: None };
        self.network.check(&[step])?;
        self.network.step(&[step], &mut [Predictions::default()]).unwrap();
        Ok(())
    }

    /// Leaves three pages of four that were used.
    fn leave(&mut self) {
        let prefix = tokens(3 * PAGE);
        let prefix = Prefix { tokens: &prefix, mask: Mask::blocks(4), salt: 0 };
        let sequence = self.network.open(&Self::needs(4)).unwrap();
        self.step(sequence, 0..2 * PAGE as u32).unwrap();
        // Nobody is to read what was never written.
        self.network.cache_prefix(sequence, prefix, false);
        assert_eq!(self.network.touch_prefix(prefix), 0, "it is held");
        self.step(sequence, 2 * PAGE as u32..3 * PAGE as u32).unwrap();
        // What is shared is neither live nor kept again.
        for first in [0, PAGE as u32, 2 * PAGE as u32 - 4] {
            let refused = self.step(sequence, first..first + 8).unwrap_err().to_string();
            assert!(refused.ends_with("a position is live or kept whose slot is shared"), "{refused}");
        }
        self.network.cache_prefix(sequence, prefix, false);
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
    let page = roomy.network.memory_cost(&Small::needs(1)).unwrap().own;
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
