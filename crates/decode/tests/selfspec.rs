//! Self-speculation against autoregressive decoding of the same network, and the plans of models whose passes differ
//! (specs/families.md#5).

use demask_decode::{Event, Remasking, Session, SessionOptions, StopRule};
use demask_step::{BlockRules, Job, Mask, Network, Origin, Predictions, Stores, random};
use demask_testkit::property;

use crate::common::{
    EOS, drive, drive_on,
    freedave::{Script, run},
    options,
};

/// Cases, unless they are built without optimisation or run by Miri.
const CASES: u64 = property::count(if cfg!(debug_assertions) { 500 } else { 10_000 }) as u64;

/// Rules of Nemotron-Labs-Diffusion.
const RULES: BlockRules =
    BlockRules { origin: Origin::Prompt, ends_short: true, shares_masks: true, stores: Stores::IfRead, seeds: true };

fn by_pass(prompt: usize, gen_length: usize) -> SessionOptions {
    let mut options = options(Mask::Context { context: 0, block: 4 }, 0, prompt, gen_length);
    options.facts.blocks = RULES;
    options
}

fn causal(prompt: usize, gen_length: usize, decoder: &str) -> SessionOptions {
    let mut options = by_pass(prompt, gen_length);
    (options.decoder, options.cache) = (decoder.parse().unwrap(), "causal".parse().unwrap());
    options
}

/// The tokens of `ar`, in no more verifying passes than tokens, whatever is drafted and wherever a text ends.
#[test]
fn families_selfspec_writes_the_tokens_of_ar() {
    let (mut tokens, mut forwards, mut cycles, mut true_drafts) = (0, 0, 0, 0);
    for case in 0..CASES {
        let mut state = random::mix(case);
        let mut roll = |sides: u64| {
            state = random::mix(state);
            state % sides
        };
        let (prompt, gen_length) = (1 + roll(9) as usize, 1 + roll(40) as usize);
        let end = if roll(2) == 0 { u32::MAX } else { roll(50) as u32 };
        let (easy, spread) = ([0.0, 0.6, 0.95, 1.0][roll(4) as usize], [3.0, 12.0][roll(2) as usize]);
        let script = Script { seed: case, easy, spread, end };
        let tau = [0.0, 0.3, 0.9][roll(3) as usize];
        let decoder = format!("selfspec:block={},tau={tau}", 2 + roll(31));
        let mut options = causal(prompt, gen_length, "ar");
        options.end_ids = vec![EOS];
        options.stop = if roll(3) == 0 { StopRule::Never } else { StopRule::Prefix };
        // Above 0 both draw with the noise of the position.
        options.temperature = [0.0, 0.7, 1.0][roll(3) as usize];
        options.seed = case;
        let reference = run(script, options.clone(), "ar").unwrap();
        let found = run(script, options, &decoder).unwrap();
        assert_eq!(found.run.output.tokens, reference.run.output.tokens, "case {case}: {decoder}");
        assert_eq!(found.run.output.finish, reference.run.output.finish, "case {case}: {decoder}");
        assert_eq!(found.session.exactness().against(), Some("ar, cache causal"));
        let [receipt, own] = [found.session.receipt(), reference.session.receipt()];
        assert_eq!(own.nfe, own.forwards);
        // With one drafting pass each, a cycle is two forwards; the first and the last token may be read alone.
        let most = if tau == 0.0 { 2 * own.forwards } else { usize::MAX };
        assert!(receipt.forwards <= most, "case {case}: {decoder}: {} forwards", receipt.forwards);
        tokens += found.run.output.tokens.len();
        forwards += receipt.forwards;
        for event in &found.run.events {
            if let Event::Step { drafts, accepted, rejected, .. } = *event
                && drafts > 0
                && accepted + rejected > 0
            {
                (cycles, true_drafts) = (cycles + 1, true_drafts + accepted);
            }
        }
    }
    // The scripts' easy positions are predicted alike by every pass: windows do come true.
    assert!(tokens > 0 && cycles > 0 && true_drafts > cycles, "{tokens} {forwards} {cycles} {true_drafts}");
}

/// A network whose positions are all easy: each cycle keeps its window and one token more.
#[test]
fn families_selfspec_counts_its_forwards() {
    let script = Script::endless(1, 1.0, 3.0);
    let mut options = causal(5, 25, "ar");
    options.stop = StopRule::Never;
    let found = run(script, options, "selfspec:block=8").unwrap();
    // The prompt's token, then three cycles of 7 drafts and the token behind them.
    assert_eq!(found.session.counts().forwards, 1 + 2 * 3);
    let rows: Vec<usize> = found.session.receipt().acceptance;
    assert_eq!(rows, [0, 0, 0, 0, 0, 0, 0, 3]);
    let rounds = found.session.receipt().rounds.unwrap();
    assert_eq!((rounds.verify, rounds.cold, rounds.drafted, rounds.accepted), (3, 4, vec![3; 7], vec![3; 7]));
}

/// Of drafts that are told, those that came true are told as accepted, and no others.
#[test]
fn refused_drafts_are_not_told_as_accepted() {
    let mut options = causal(5, 40, "selfspec:block=8");
    options.stop = StopRule::Never;
    let mut session = Session::new(options).unwrap();
    session.tell_drafts();
    let run = drive_on(&mut Script::endless(1, 0.8, 3.0).denoiser(0), &mut session);
    let (mut refused, mut told) = (0, Vec::new());
    for event in &run.events {
        match *event {
            Event::Draft { position, token, accepted, draft, .. } => {
                assert_eq!(draft, 1, "the canvas is draft 0");
                told.push((position, token, accepted));
            }
            Event::Step { accepted, rejected, .. } => {
                assert_eq!(told.len(), accepted + rejected);
                for (index, (position, token, held)) in told.drain(..).enumerate() {
                    assert_eq!(held, index < accepted);
                    assert!(!held || run.output.canvas[position as usize] == token);
                    refused += usize::from(!held);
                }
            }
            _ => {}
        }
    }
    assert!(refused > 0);
}

fn plans(options: SessionOptions) -> Vec<String> {
    let mut session = Session::new(options).unwrap();
    let mut script = Script::endless(3, 1.0, 3.0).denoiser(0);
    let id = script.open(&session.needs()[0].limits).unwrap();
    let mut plans = Vec::new();
    drive(&mut session, |_, requests| {
        plans.push(requests[0].plan.to_string());
        let mut out = vec![Predictions::default()];
        script.step(&[requests[0].step(id)], &mut out).unwrap();
        out
    });
    plans
}

/// A window is drafted by rows that see each other, verified causally in a lane, and what came true is kept.
#[test]
fn passes_of_a_window() {
    let mut options = causal(4, 10, "selfspec:block=4");
    options.stop = StopRule::Never;
    assert_eq!(
        plans(options),
        [
            "live 0..4 visible 4 causal canvas shift 1 predict 4",
            "live 4..8 visible 8 full canvas shift 0 hint 5..8",
            "live 4..8 visible 8 causal drafts 1 shift 1 predict 5..9",
            "keep 4..8 of lane 0; live 8..12 visible 12 full canvas shift 0 hint 9..12",
            "live 8..12 visible 12 causal drafts 1 shift 1 predict 9..13",
            "keep 8..12 of lane 0; live 12 visible 13 causal canvas shift 1 predict 13",
        ]
    );
}

/// A block starts with the token that the stored context predicts, sees itself, and is stored causally.
#[test]
fn passes_of_a_block() {
    let mut options = by_pass(3, 7);
    (options.decoder, options.cache) = ("threshold:tau=0".parse().unwrap(), "block".parse().unwrap());
    options.stop = StopRule::Never;
    assert_eq!(
        plans(options.clone()),
        [
            "live 0..3 visible 3 causal canvas shift 1 must 3",
            "live 3..7 visible 7 full canvas predict 4..7",
            "live 3..7 visible 7 causal canvas shift 1 must 7",
            "live 7..10 visible 10 full canvas predict 8..10",
        ]
    );
    options.cache = "none".parse().unwrap();
    assert_eq!(
        plans(options),
        [
            "live 0..3 visible 3 causal canvas shift 1 must 3",
            "live 0..7 visible 7 causal to 3, then blocks of 4 canvas predict 4..7",
            "live 0..7 visible 7 causal canvas shift 1 must 7",
            "live 0..10 visible 10 causal to 7, then blocks of 4 canvas predict 8..10",
        ]
    );
}

/// Fast-dLLM v2: parts of a block from left to right; with `live=dual` only their rows run once all have run.
#[test]
fn parts_of_a_block() {
    let mut options = options(Mask::blocks(8), 1, 9, 15);
    options.facts.blocks = BlockRules { seeds: true, stores: Stores::IfRead, ..BlockRules::default() };
    options.decoder = "threshold:tau=1,strict,sub=4".parse().unwrap();
    (options.stop, options.remasking) = (StopRule::Never, Remasking::LeftToRight);
    let run = |cache: &str| {
        let options = SessionOptions { cache: cache.parse().unwrap(), ..options.clone() };
        let mut session = Session::new(options).unwrap();
        let run = drive_on(&mut Script::endless(3, 1.0, 3.0).denoiser(1), &mut session);
        let rows = |event: &Event| if let Event::Step { rows, .. } = *event { Some(rows) } else { None };
        (run.output.tokens, run.events.iter().filter_map(rows).collect::<Vec<_>>())
    };
    let (tokens, rows) = run("block:store=alone");
    assert_eq!(rows, [8; 16]);
    let (fused, rows) = run("block");
    // The prompt ends within a block, so that its store predicts nothing and rides along.
    assert_eq!((fused, rows), (tokens.clone(), [vec![16], vec![8; 14]].concat()));
    assert_eq!(run("block:live=dual").1, [16, 4, 4, 8, 4, 4, 4, 8, 8, 4, 4, 8, 4, 4, 4]);
    let (dual, rows) = run("block:live=dual,store=alone");
    // The prompt's block; its parts, the first of which begins with the prompt; its store; the parts of the next block, the
    // first of which begins with the seed. While a part's first row is a mask, the whole block runs.
    assert_eq!(rows, [8, 8, 4, 4, 8, 4, 4, 4, 8, 8, 4, 4, 8, 4, 4, 4]);
    assert_eq!(dual, tokens, "a network of easy positions predicts alike whatever it sees");
}

#[test]
fn what_cannot_follow_is_refused() {
    let refused = |mut options: SessionOptions, decoder: &str, cache: &str| {
        (options.decoder, options.cache) = (decoder.parse().unwrap(), cache.parse().unwrap());
        Session::new(options).unwrap_err().to_string()
    };
    let model = || by_pass(4, 8);
    assert_eq!(
        refused(model(), "ar", "block"),
        "cache block cannot run a model with causal attention: use none, causal"
    );
    assert_eq!(
        refused(model(), "selfspec", "none"),
        "decoder selfspec keeps the K/V of its causal passes, found cache none: use cache causal"
    );
    assert_eq!(
        refused(model(), "threshold", "causal"),
        "cache causal cannot run a model with attention by pass: use none, block"
    );
    let guided = SessionOptions { cfg_scale: 1.0, ..model() };
    assert_eq!(
        refused(guided, "static", "block"),
        "the model's stored blocks predict the token behind them, which guidance cannot follow: omit cfg_scale"
    );
    let mut seeded = options(Mask::blocks(4), 1, 4, 8);
    seeded.facts.blocks = BlockRules { seeds: true, ..BlockRules::default() };
    assert_eq!(
        refused(seeded.clone(), "freedave", "block"),
        "the model's stored blocks predict the token behind them, which decoder freedave cannot follow: use decoder \
         threshold"
    );
    assert_eq!(
        refused(seeded, "threshold", "block:canvas=masks"),
        "cache block with canvas=masks is for models with attention by pass, found block-causal attention: omit canvas"
    );
}
