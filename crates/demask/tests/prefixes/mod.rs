//! Prefixes that requests share: what is not computed again changes no bit of an answer, nobody reads what is not theirs,
//! and every page is accounted for, whoever comes, goes and is given up.

mod company;
mod counters;
mod exactness;
mod guides;
mod likelihoods;
mod memory;
mod pieces;
mod preemption;

use std::ops::ControlFlow;

use demask::{Prompt, Request};
use demask_cpu::isa::Isa;
use demask_decode::{CanvasSpec, Event, ModelFacts, Session, SessionOptions, StopRule};
use demask_engine::{NetworkCounters, NetworkId, RequestError, RequestId, Scheduler};
use demask_model::{ArchSpec, Inspect};
use demask_step::{Mask, SequenceLimits, TokenId};
use demask_tensor::Dtype;

use crate::common::{Device, runner, specs};

/// Positions of a page.
const PAGE: usize = 32;
/// Number of bytes that is more than any test keeps.
const ALL: u64 = 1 << 30;

/// Position, token and the bits of the confidence, in the order of the commits.
type Commits = Vec<(u32, TokenId, u32)>;

fn commits(session: &mut Session) -> Commits {
    let commit = |event| match event {
        Event::Commit { position, token, confidence, .. } => Some((position, token, confidence.to_bits())),
        _ => None,
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

/// The best tier that this machine has.
fn best() -> Isa {
    Isa::available().pop().unwrap()
}

/// A session that is over.
struct Finished {
    id: RequestId,
    work: Session,
    end: Result<(), RequestError>,
}

impl Finished {
    fn of(request: Box<Request>) -> Self {
        let (id, end) = (request.id(), request.end().unwrap().clone());
        Self { id, end, work: request.into_job().unwrap() }
    }
}

/// One network and its scheduler.
struct Bench {
    scheduler: Scheduler<dyn Inspect>,
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
        let facts = ModelFacts {
            mask: spec.attention,
            shift,
            mask_id,
            vocab: 70,
            context: 512,
            layers: 3,
            blocks: demask_step::BlockRules::default(),
            free_rows: demask_decode::FREE_ROWS,
        };
        Self { scheduler, network, facts }
    }

    /// The synthetic model of a kind on the best tier that there is.
    fn of(kind: &str, bytes: u64) -> Self {
        let spec = specs().into_iter().find(|(name, _)| *name == kind).unwrap().1;
        Self::new(&spec, best(), Dtype::Bf16, bytes)
    }

    fn submit(&mut self, session: Session) -> RequestId {
        self.scheduler.submit(Request::new(session), &[self.network]).unwrap()
    }

    fn step(&mut self) -> Vec<Finished> {
        let mut over = Vec::new();
        self.scheduler.step(&mut |_| ControlFlow::Continue(()), &mut over);
        over.into_iter().map(Finished::of).collect()
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
        let needs = SequenceLimits { positions: PAGE, ..SequenceLimits::default() };
        self.scheduler.network(self.network).unwrap().memory_cost(&needs).unwrap().own
    }
}
