//! SlowFast Sampling (specs/caches.md#5): no reference trace exists, so it is worked out by hand.

use crate::common::{VOCAB, drive, drive_on, options, predict};
use demask_decode::{Session, SessionOptions};
use demask_step::{Job, Mask, Network, Predictions, SequenceLimits};
use demask_testkit::{property, scripted::Scripted};
use proptest::prelude::*;

fn slowfast(shift: u32, prompt: usize, gen_length: usize, decoder: &str, cache: &str) -> SessionOptions {
    let mut options = options(Mask::Full, shift, prompt, gen_length);
    options.decoder = decoder.parse().unwrap();
    options.cache = cache.parse().unwrap();
    options.block_length = Some(gen_length);
    options
}

/// Two exploring forwards a cycle. First cycle: both estimates say 4, so the region is `[0, 4)`. Second cycle: nothing
/// passes (one position behind the region: 5), then the last position does (8); they disagree, and their mean, 6, ends
/// the region. Its second fast forward leaves out what lies behind.
#[test]
fn a_trace_by_hand() {
    let confidences: [&[(u32, f32)]; 7] = [
        &[(2, 0.5), (3, 0.95), (4, 0.4), (5, 0.35)],
        &[(2, 0.6), (4, 0.92), (5, 0.91)],
        &[(2, 0.2)],
        &[(6, 0.2), (8, 0.25)],
        &[(6, 0.2), (9, 0.31)],
        &[(6, 0.5), (7, 0.6)],
        &[(6, 0.1)],
    ];
    let decoder = "slowfast:explore=2,tau_min=0.3,tau=0.9,window=2,sigma=1";
    let mut session = Session::new(slowfast(0, 2, 8, decoder, "none")).unwrap();
    let mut plans = Vec::new();
    let run = drive(&mut session, |forward, requests| {
        plans.push(requests[0].plan.to_string());
        let confidence = |position| confidences[forward].iter().find(|known| known.0 == position).map_or(0.1, |k| k.1);
        vec![predict(&requests[0], |position| (position, confidence(position)))]
    });
    let committed: Vec<Vec<u32>> = run.steps.iter().map(|step| step.iter().map(|commit| commit.0).collect()).collect();
    assert_eq!(committed, [vec![3], vec![4, 5], vec![2], vec![8], vec![9], vec![7], vec![6]]);
    assert_eq!(
        plans,
        [
            "live 0..10 visible 10 full canvas predict 2..10",
            "live 0..10 visible 10 full canvas predict 2,4..10",
            "live 0..10 visible 10 full canvas predict 2",
            "live 0..10 visible 10 full canvas predict 6..10",
            "live 0..10 visible 10 full canvas predict 6..8,9",
            "live 0..10 visible 10 full canvas predict 6..8",
            "live 0..8 visible 8 full canvas predict 6",
        ]
    );
}

/// One estimate more than the window forgets the oldest; an end that stands is not moved by later exploring.
#[test]
fn the_window_slides_and_an_end_stands() {
    // The farthest sure positions, counted from 1: 8, 3, 3, and 12, which comes too late.
    let confidences: [&[(u32, f32)]; 4] =
        [&[(6, 0.5), (7, 0.4)], &[(1, 0.5), (2, 0.4)], &[(0, 0.5), (2, 0.4)], &[(11, 0.6)]];
    let mut session = Session::new(slowfast(0, 0, 12, "slowfast:explore=4,tau=2", "none")).unwrap();
    let mut plans = Vec::new();
    drive(&mut session, |forward, requests| {
        plans.push(requests[0].plan.predict.to_string());
        let known = confidences.get(forward).copied().unwrap_or_default();
        let confidence = |position| known.iter().find(|known| known.0 == position).map_or(0.1, |known| known.1);
        vec![predict(&requests[0], |position| (1, confidence(position)))]
    });
    assert_eq!(plans[..5], ["0..12", "0..6,7..12", "0,2..6,7..12", "2..6,7..12", "2"]);
}

/// S1: above 1 nothing passes, one token a forward. S3: every position is decoded once.
#[test]
fn caches_s1_s3_one_token_a_forward() {
    let caches =
        ["none", "dkv", "dkv:refresh=3", "dllm:prompt=5,response=3", "prefix", "dual:horizon=2", "prefix:horizon=3"];
    let frozen = ["freecache:block=4", "freecache:block=3,freeze=reference", "freecache:block=4,lookahead=3"];
    let all = [0, 1].into_iter().flat_map(|shift| caches.iter().chain(&frozen).map(move |cache| (shift, *cache)));
    for (shift, cache) in all.step_by(if cfg!(miri) { 9 } else { 1 }) {
        for decoder in ["slowfast:tau=1.5", "slowfast:explore=3,tau=0.3,tau_min=0.2", "slowfast:explore=1,window=3"] {
            let mut options = slowfast(shift, 3, 16, decoder, cache);
            options.block_length = Some(8);
            let mut session = Session::new(options).unwrap();
            let run = drive_on(&mut Scripted::new(5, VOCAB, shift).with_spread(2.0), &mut session);
            let mut positions: Vec<u32> = run.steps.iter().flatten().map(|commit| commit.0).collect();
            positions.sort_unstable();
            assert_eq!(positions, (3..19).collect::<Vec<_>>(), "{decoder} {cache}");
            assert!(run.steps.iter().all(|step| !step.is_empty()), "every forward decodes");
            if decoder == "slowfast:tau=1.5" {
                // A first token whose row leaves is taken beside another one, in each of two blocks.
                let beside =
                    if shift == 1 && ["prefix", "dual"].iter().any(|name| cache.starts_with(name)) { 2 } else { 0 };
                assert_eq!(run.steps.len(), 16 - beside);
            }
        }
    }
}

/// A cache runs a forward without the end of the canvas as far as the region goes, and shows it nothing behind.
#[test]
fn caches_leave_out_the_end() {
    let plans = |shift: u32, cache: &str| {
        let decoder = "slowfast:explore=1,tau_min=0.3,tau=0.9,window=2";
        let mut session = Session::new(slowfast(shift, 2, 8, decoder, cache)).unwrap();
        let mut plans = Vec::new();
        drive(&mut session, |_, requests| {
            plans.push(requests[0].plan.to_string());
            let sure = |position| if position == 5 { 0.5 } else { 0.2 - position as f32 / 100.0 };
            vec![predict(&requests[0], |position| (1, sure(position)))]
        });
        plans
    };
    // The region ends behind position 5: explored, a whole forward of it, then two that leave out the rest.
    assert_eq!(
        plans(0, "prefix")[..4],
        [
            "live 0..10 visible 10 full canvas predict 2..10",
            "live 2..10 visible 10 full canvas predict 2..5",
            "live 2..6 visible 6 full canvas predict 3..5",
            "live 2..6 visible 6 full canvas predict 4",
        ]
    );
    for cache in ["dual", "freecache", "freecache:block=2,lag=9"] {
        assert_eq!(plans(0, cache), plans(0, "prefix"), "{cache}");
    }
    assert_eq!(plans(0, "freecache:block=2,freeze=reference")[3], "live 4..6 visible 6 full canvas predict 4");
    assert_eq!(plans(0, "prefix:horizon=0")[2..4], plans(0, "prefix")[2..4]);
    // Under shift the first token has to be taken from the block's first forward, which explores nothing as published.
    assert_eq!(plans(1, "dual")[0], "live 0..10 visible 10 full canvas predict 3..10 must 2");
    assert_eq!(
        plans(1, "dual:start=one")[..4],
        [
            "live 0..10 visible 10 full canvas must 2",
            "live 2..10 visible 10 full canvas predict 3..10",
            "live 2..10 visible 10 full canvas predict 3..5",
            "live 2..6 visible 6 full canvas predict 4",
        ]
    );
}

/// S4: a forward without the end of the canvas is that of the shorter canvas.
#[test]
fn caches_s4_truncated_forwards() {
    let mut truncated = 0;
    for seed in 0..property::count(20).into() {
        for shift in [0, 1] {
            let options = slowfast(shift, 4, 24, "slowfast:explore=2,tau_min=0.2,tau=0.6", "none");
            let mut session = Session::new(options).unwrap();
            let mut script = Scripted::new(seed, VOCAB, shift).with_spread(2.0);
            let id = script.open(&session.needs()[0].limits).unwrap();
            let run = drive(&mut session, |_, requests| {
                let request = &requests[0];
                let mut out = [Predictions::default()];
                script.step(&[request.step(id)], &mut out).unwrap();
                if request.plan.kv_len < 28 {
                    truncated += 1;
                    let positions = request.plan.kv_len as usize;
                    let needs = SequenceLimits { positions, rows: positions, predictions: 24, ..Default::default() };
                    let alone = script.open(&needs).unwrap();
                    let mut shorter = [Predictions::default()];
                    script.step(&[request.step(alone)], &mut shorter).unwrap();
                    assert_eq!(out, shorter);
                }
                out.to_vec()
            });
            assert!(run.steps.iter().all(|step| !step.is_empty()));
        }
    }
    let least = if cfg!(miri) { 1 } else { 21 };
    assert!(truncated >= least, "{truncated} truncated forwards");
}

/// Twin of specs/caches.md#5 for one canvas that is one block: the request of each forward, its end, and the number of
/// forwards of each region beside its masks.
struct Twin {
    masked: Vec<bool>,
    explore: usize,
    tau_min: f32,
    tau: f32,
}

/// A forward of the twin: positions asked, and where the canvas ends for it.
type Asked = (Vec<usize>, usize);

impl Twin {
    fn open(&self, region: std::ops::Range<usize>) -> Vec<usize> {
        region.filter(|&position| self.masked[position]).collect()
    }

    /// All that pass if they are more than one, else the best.
    fn take(&mut self, asked: &[usize], confidence: &dyn Fn(usize) -> f32) {
        let sure: Vec<usize> = asked.iter().copied().filter(|&position| confidence(position) >= self.tau).collect();
        if sure.len() > 1 {
            for position in sure {
                self.masked[position] = false;
            }
        } else {
            let best = asked.iter().copied().reduce(|best, p| if confidence(p) > confidence(best) { p } else { best });
            self.masked[best.unwrap()] = false;
        }
    }

    /// Runs to the end; window 2 and deviation below 1, as released.
    fn run(mut self, confidence: &dyn Fn(usize, usize) -> f32) -> Vec<Asked> {
        let length = self.masked.len();
        let (mut last, mut forwards) = (0, Vec::new());
        while last < length {
            let (mut history, mut end) = (Vec::new(), None);
            for _ in 0..self.explore {
                let asked = self.open(last..length);
                if asked.is_empty() {
                    return forwards;
                }
                let of = |position: usize| confidence(forwards.len(), position);
                let sure = asked.iter().rev().find(|&&position| of(position) >= self.tau_min);
                history.push(sure.map_or(last + 1, |position| position + 1).min(length));
                if let ([.., one, two], None) = (&history[..], end)
                    && one.abs_diff(*two) < 2
                {
                    end = Some(*two);
                }
                self.take(&asked, &of);
                forwards.push((asked, length));
            }
            let end = end.unwrap_or_else(|| {
                let known = &history[history.len().saturating_sub(2)..];
                known.iter().sum::<usize>() / known.len()
            });
            let mut first = true;
            while !self.open(last..end).is_empty() {
                let asked = self.open(last..end);
                self.take(&asked, &|position| confidence(forwards.len(), position));
                forwards.push((asked, if first { length } else { end }));
                first = false;
            }
            last = end;
        }
        forwards
    }
}

proptest! {
    #![proptest_config(property::cases(300))]

    /// S2: while a region is decoded nothing outside of it is asked, hence nothing of it changes. S5: a cycle has its
    /// exploring forwards and at most one for each mask of its region. Both follow from the twin, forward by forward.
    #[test]
    fn caches_s2_s5_regions_are_those_of_the_twin(
        (seed, length, explore) in (any::<u64>(), 1usize..24, 1usize..5),
        (tau_min, tau) in (0.3f32..1.0, 0.3f32..1.0),
    ) {
        let confidence = |forward: usize, position: usize| {
            let dice = demask_step::random::mix(seed ^ ((forward as u64) << 32 | position as u64));
            (demask_step::random::uniform(dice) as f32).clamp(0.001, 0.999)
        };
        let decoder = format!("slowfast:explore={explore},tau_min={tau_min},tau={tau},window=2,sigma=1");
        let mut session = Session::new(slowfast(0, 3, length, &decoder, "none")).unwrap();
        let mut asked: Vec<Asked> = Vec::new();
        let run = drive(&mut session, |forward, requests| {
            let plan = &requests[0].plan;
            let positions = plan.predict.iter().map(|position| position as usize - 3).collect();
            asked.push((positions, plan.kv_len as usize - 3));
            vec![predict(&requests[0], |position| (1, confidence(forward, position as usize - 3)))]
        });
        let twin = Twin { masked: vec![true; length], explore, tau_min, tau };
        prop_assert_eq!(&asked, &twin.run(&confidence));
        for (step, (asked, _)) in run.steps.iter().zip(&asked) {
            prop_assert!(!step.is_empty(), "each forward decodes");
            prop_assert!(step.iter().all(|commit| asked.contains(&(commit.0 as usize - 3))));
        }
    }
}
