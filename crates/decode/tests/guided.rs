//! Guided decoding on models small enough to work out by hand, and on random ones (specification flashdlm, section 6;
//! the tests carry its numbers).

mod common;

use std::{collections::HashMap, sync::Arc};

use common::{EOS, MASK_ID, VOCAB, facts, options, predict};
use demask_decode::{
    Event, Finish, GuideOptions, GuideText, Next, Output, Request, Session, SessionOptions, StopRule, Translator,
};
use demask_step::{Denoiser, Judged, Mask, Predictions, TokenId, random};
use demask_testkit::scripted::Scripted;
use proptest::prelude::*;

/// A guide that remembers what it was fed, slot by slot, and ranks the next token by what stands before it. What it was
/// not fed again it reads from its slots, so that a slot that should have been cut back shows.
struct Guide<F> {
    slots: Vec<Option<TokenId>>,
    /// The tokens from the best on.
    rank: F,
}

impl<F: Fn(&[TokenId]) -> Vec<TokenId>> Guide<F> {
    fn new(rank: F) -> Self {
        Self { slots: vec![None; 256], rank }
    }

    fn answer(&mut self, request: &Request) -> Predictions {
        assert_eq!(request.plan.mask, Mask::Causal);
        for (position, &token) in request.plan.live.iter().zip(&request.tokens) {
            self.slots[position as usize] = Some(token);
        }
        let mut out = Predictions { lanes: 1, positions: request.plan.predict.clone(), ..Predictions::default() };
        for (index, position) in out.positions.clone().iter().enumerate() {
            assert!(request.plan.live.contains(position - 1), "the row that judges is live");
            let before: Option<Vec<TokenId>> = self.slots[..position as usize].iter().copied().collect();
            let ranked = (self.rank)(&before.expect("every slot before a judged token is written"));
            out.tokens.push(ranked[0]);
            out.confidence.push(0.5);
            for token in &request.ask.judge[index * request.ask.judge_width..][..request.ask.judge_width] {
                let rank = ranked.iter().position(|ranked| ranked == token).unwrap_or(ranked.len()) as u32;
                let log_probability = -(rank as f32) * 2f32.ln() - 0.7;
                out.judged.push(Judged { rank, log_probability, best: (-0.7f32).exp() });
            }
        }
        out
    }
}

/// What happened: commits and accepted drafts of each step, forwards of the guide in all.
#[derive(Debug, PartialEq)]
struct Trace {
    steps: Vec<Vec<(u32, TokenId)>>,
    accepted: Vec<usize>,
    guide_nfe: usize,
    output: Output,
}

/// Runs a session; the model predicts from the canvas and a position.
fn trace<F: Fn(&[TokenId]) -> Vec<TokenId>>(
    options: SessionOptions,
    model: impl Fn(&[TokenId], u32) -> TokenId,
    guide: F,
) -> Trace {
    let mut session = Session::new(options).unwrap();
    let mut guide = Guide::new(guide);
    let (mut steps, mut accepted) = (Vec::new(), Vec::new());
    while session.next() != Next::Done {
        let answer = match session.next() {
            Next::Guide => guide.answer(&session.requests()[0]),
            _ => predict(&session.requests()[0], |position| (model(session.canvas(), position), 0.5)),
        };
        session.feed(&[answer]);
        let mut commits = Vec::new();
        for event in session.events() {
            match event {
                Event::Commit { position, token, .. } => commits.push((position, token)),
                Event::Step { accepted: count, .. } => {
                    steps.push(std::mem::take(&mut commits));
                    accepted.push(count);
                }
            }
        }
        assert!(session.next() == Next::Guide || commits.is_empty(), "a guide commits nothing by itself");
    }
    let counts = session.counts();
    assert_eq!(counts.guide.accepted, accepted.iter().sum::<usize>());
    assert_eq!(counts.commits, steps.iter().map(Vec::len).sum::<usize>(), "flashdlm_g7");
    let output = session.output();
    assert!(output.tokens.iter().all(|&token| token != MASK_ID), "flashdlm_g11");
    Trace { steps, accepted, guide_nfe: counts.guide.nfe, output }
}

/// A guide with the model's vocabulary.
fn shared() -> GuideOptions {
    GuideOptions { facts: facts(Mask::Causal, 1), end_ids: Vec::new(), shared_vocabulary: true, text: None }
}

fn guided(decoder: &str, shift: u32, prompt: usize, gen_length: usize) -> SessionOptions {
    let mut options = options(Mask::Full, shift, prompt, gen_length);
    options.decoder = decoder.parse().unwrap();
    options.guide = Some(shared());
    options
}

/// All tokens, the one that follows `last` in the order of ids first.
fn counting(before: &[TokenId]) -> Vec<TokenId> {
    let next = before.last().map_or(0, |last| last + 1);
    (0..20).map(|offset| (next + offset) % 20).collect()
}

/// A model and a guide made of hashes: what they say depends on everything before.
fn hashed(seed: u64, sides: u64, tokens: &[TokenId]) -> TokenId {
    (tokens.iter().fold(random::mix(seed), |hash, &token| random::mix(hash ^ u64::from(token))) % sides) as TokenId
}

fn ranked(seed: u64, sides: u64, tokens: &[TokenId]) -> Vec<TokenId> {
    let best = hashed(seed, sides, tokens);
    (0..20).map(|offset| (best + offset) % 20).collect()
}

/// Worked out by hand: the prompt is 0 1 2, the guide counts on, the model writes 3 4 9 6 7 8 and, asked again, the
/// same. Step 0: 3 and 4 stand, 9 does not (the guide wants 5). Step 1 starts at 9, which no row can make the guide
/// agree with: it is taken all the same. Then 6 is judged after 9 (10 is wanted) and falls, and so on: 7 and 8 follow
/// 6 and stand.
#[test]
fn flashdlm_g6_the_run_that_the_guide_agrees_with_is_taken() {
    let text = [0, 0, 0, 3, 4, 9, 6, 7, 8];
    for shift in [0, 1] {
        let run = trace(guided("guided", shift, 3, 6), |_, position| text[position as usize], counting);
        assert_eq!(run.steps, [vec![(3, 3), (4, 4)], vec![(5, 9)], vec![(6, 6)], vec![(7, 7), (8, 8)]]);
        assert_eq!((run.accepted, run.guide_nfe), (vec![2, 0, 0, 2], 4));
    }
}

/// The same with the guide's own token where it agrees with nothing: 5 in the place of 9, after which 6 7 8 stand.
#[test]
fn the_fallback_may_be_the_guides() {
    let text = [0, 0, 0, 3, 4, 9, 6, 7, 8];
    let run = trace(guided("guided:fallback=ar", 0, 3, 6), |_, position| text[position as usize], counting);
    assert_eq!(run.steps, [vec![(3, 3), (4, 4)], vec![(5, 5)], vec![(6, 6), (7, 7), (8, 8)]]);
    assert_eq!(run.accepted, [2, 0, 3]);
}

/// As the target the guide adds its own token to each run that ends in disagreement.
#[test]
fn the_target_may_be_the_guide() {
    let text = [0, 0, 0, 3, 4, 9, 6, 7, 8];
    let options = guided("guided:target=guide", 0, 3, 6);
    let run = trace(options, |_, position| text[position as usize], counting);
    assert_eq!(run.steps, [vec![(3, 3), (4, 4), (5, 5)], vec![(6, 6), (7, 7), (8, 8)]]);
    assert_eq!(run.accepted, [2, 3]);
}

#[test]
fn flashdlm_g1_a_guide_that_agrees_ends_in_one_step() {
    for (verify, calls) in [(32, 1), (6, 1), (5, 2), (4, 2), (1, 6)] {
        let run = trace(guided(&format!("guided:verify={verify}"), 0, 3, 6), |_, position| position % 20, counting);
        assert_eq!((run.steps.len(), run.guide_nfe, run.output.tokens), (1, calls, vec![3, 4, 5, 6, 7, 8]));
    }
}

#[test]
fn flashdlm_g2_a_guide_that_never_agrees_leaves_the_model_alone() {
    // The guide wants what the model never says; the model looks at what stands.
    let model = |canvas: &[TokenId], position: u32| {
        let seen: Vec<TokenId> = canvas.iter().copied().filter(|&token| token != MASK_ID).collect();
        hashed(u64::from(position), 19, &seen)
    };
    let run = trace(guided("guided", 0, 3, 8), model, |_| vec![19]);
    assert_eq!((run.steps.len(), &run.accepted[..], run.guide_nfe), (8, &[0; 8][..], 8));
    for (step, commits) in run.steps.iter().enumerate() {
        let canvas: Vec<TokenId> = run.output.canvas[..3 + step].to_vec();
        assert_eq!(commits[..], [(3 + step as u32, model(&canvas, 3 + step as u32))]);
    }
}

#[test]
fn flashdlm_g7_ends_agree_as_a_class_and_end_at_once() {
    let text = [0, 0, 3, EOS, EOS, 5, EOS];
    // The model ends with 22, the guide with 18 or 19: neither of them is among its best otherwise.
    let ends_with = |token: TokenId| {
        move |before: &[TokenId]| if before.len() == 3 { vec![token, 7] } else { counting(&before[..2]) }
    };
    let mut options = guided("guided", 0, 2, 5);
    options.canvas = demask_decode::CanvasSpec::Prompt { tokens: vec![1, 2], gen_length: 5 };
    options.end_ids = vec![EOS];
    options.guide = Some(GuideOptions { end_ids: vec![18, 19], ..shared() });
    let model = |_: &[TokenId], position: u32| text[position as usize];
    for token in [18, 19, EOS] {
        let run = trace(options.clone(), model, ends_with(token));
        assert_eq!((&run.steps[..], run.output.finish), (&[vec![(2, 3), (3, EOS)]][..], Finish::Eos));
        assert_eq!((run.accepted, run.guide_nfe), (vec![2], 1));
    }
    // No end in sight: it is taken alone, after the forward that could not take it.
    let run = trace(options.clone(), model, ends_with(7));
    assert_eq!((run.steps, run.accepted), (vec![vec![(2, 3)], vec![(3, EOS)]], vec![1, 0]));
    options.stop = StopRule::PrefixFill { fill: EOS };
    let run = trace(options.clone(), model, ends_with(18));
    assert_eq!(run.output.canvas, [1, 2, 3, EOS, EOS, EOS, EOS]);
    assert_eq!(run.output.tokens, [3, EOS]);
    // Where nothing ends a text, ends are tokens like any other.
    (options.stop, options.end_ids) = (StopRule::Never, Vec::new());
    options.guide = Some(shared());
    let run = trace(options, model, ends_with(18));
    assert_eq!(run.output.tokens, [3, EOS, EOS, 5, EOS]);
}

#[test]
fn infilling_reads_what_stands_between() {
    let mut options = guided("guided", 0, 1, 1);
    let (m, canvas) = (MASK_ID, |tokens: &[TokenId]| demask_decode::CanvasSpec::Infill { tokens: tokens.to_vec() });
    options.canvas = canvas(&[1, 2, m, m, 5, 9, m, m]);
    let text = [0, 0, 3, 4, 0, 0, 10, 12];
    let run = trace(options.clone(), |_, position| text[position as usize], counting);
    // 3 4, then given 5 9, then 10; 12 is not 11.
    assert_eq!(run.steps, [vec![(2, 3), (3, 4), (6, 10)], vec![(7, 12)]]);
    assert_eq!((run.accepted, run.guide_nfe), (vec![3, 0], 2));
    options.canvas = canvas(&[m, 2]);
    let refusal = Session::new(options).unwrap_err().to_string();
    assert!(refusal.starts_with("nothing stands before the first mask"), "{refusal}");
}

#[test]
fn blocks_bound_the_drafts() {
    let mut options = guided("guided", 0, 4, 8);
    options.block_length = Some(4);
    let run = trace(options, |_, position| position % 20, counting);
    assert_eq!(run.steps.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
    let mut options = guided("guided", 0, 4, 8);
    (options.facts, options.cache) = (facts(Mask::BlockCausal { block: 4 }, 0), "block".parse().unwrap());
    let run = trace(options, |_, position| position % 20, counting);
    // The prompt's block is stored, then each decoded block after it is taken.
    assert_eq!(run.steps.iter().map(Vec::len).collect::<Vec<_>>(), [0, 4, 0, 4, 0]);
    assert_eq!(run.output.tokens, [4, 5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn what_cannot_guide_is_refused() {
    let refusal = |change: &dyn Fn(&mut SessionOptions, &mut GuideOptions)| {
        let (mut options, mut guide) = (guided("guided", 0, 3, 6), shared());
        change(&mut options, &mut guide);
        if options.guide.is_some() {
            options.guide = Some(guide);
        }
        Session::new(options).unwrap_err().to_string()
    };
    let decoder = |text: &str| text.parse().unwrap();
    for (message, found) in [
        ("decoder guided needs an autoregressive model", refusal(&|options, _| options.guide = None)),
        ("decoder static has no guide", refusal(&|options, _| options.decoder = decoder("static"))),
        (
            "the guide has full attention, expected an autoregressive",
            refusal(&|_, guide| guide.facts.mask = Mask::Full),
        ),
        ("the guide must read 9 positions and its context holds 8", refusal(&|_, guide| guide.facts.context = 8)),
        ("guided: the guide has another vocabulary", refusal(&|_, guide| guide.shared_vocabulary = false)),
        ("for the guide, token 2 is outside", refusal(&|_, guide| guide.facts.vocab = 2)),
        (
            "guided: align=ids, and the guide has another vocabulary",
            refusal(&|options, guide| {
                options.decoder = decoder("guided:align=ids");
                guide.shared_vocabulary = false;
            }),
        ),
        (
            "guided: fallback=ar writes tokens of the guide",
            refusal(&|options, guide| {
                options.decoder = decoder("guided:fallback=ar");
                *guide = foreign(guide.facts.vocab);
            }),
        ),
        (
            "guided: target=guide gives the guide's greedy output",
            refusal(&|options, _| {
                options.decoder = decoder("guided:target=guide");
                options.temperature = 0.5;
            }),
        ),
    ] {
        assert!(found.starts_with(message), "{found}");
    }
}

/// What happened in a run of two scripts: the tokens drafted and committed in each step.
#[derive(Debug, PartialEq)]
struct Scripts {
    drafted: Vec<Vec<(u32, TokenId)>>,
    committed: Vec<Vec<(u32, TokenId)>>,
    canvas: Vec<TokenId>,
    exactness: &'static str,
}

/// Runs a session on a script of slots, which checks every plan, with another one as its guide. Both predict the same
/// token at a share of the positions.
fn on_scripts(seed: u64, options: SessionOptions) -> Scripts {
    let mut model = Scripted::new(seed, VOCAB, options.facts.shift).with_easy(0.6);
    let mut guide = Scripted::new(seed, VOCAB, 1).with_easy(0.6);
    let mut session = Session::new(options).unwrap();
    let ids: Vec<_> = session.needs().iter().map(|needs| model.open(needs).unwrap()).collect();
    let reader = guide.open(&session.guide_needs()[0]).unwrap();
    let (mut drafted, mut committed, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    while session.next() != Next::Done {
        let requests = session.requests();
        let mut out = vec![Predictions::default(); requests.len()];
        if session.next() == Next::Guide {
            guide.step(&[requests[0].step(reader, 0)], &mut out).unwrap();
        } else {
            let batch: Vec<_> = requests.iter().map(|request| request.step(ids[request.sequence], 0)).collect();
            model.step(&batch, &mut out).unwrap();
            drafted.push(out[0].positions.iter().zip(out[0].tokens.iter().copied()).collect());
        }
        session.feed(&out);
        for event in session.events() {
            match event {
                Event::Commit { position, token, .. } => commits.push((position, token)),
                Event::Step { .. } => committed.push(std::mem::take(&mut commits)),
            }
        }
    }
    Scripts { drafted, committed, canvas: session.canvas().to_vec(), exactness: session.exactness().name() }
}

/// Caches that compute only some rows, or show old ones, with the parameters that matter.
const INEXACT: &[&str] = &[
    "dkv:refresh=3",
    "dkv:refresh=4,shift=un_right",
    "dkv:variant=prefill",
    "dkv:variant=pd,refresh=3",
    "dllm:prompt=5,response=3",
    "dllm:prompt=3,response=2,rho=0.5,first_layer=same,boundary=before",
    "dllm:response=4,probe=k,rho=0.4",
    "dllm:response=4,probe=random,rho=0",
    "freecache:block=3",
    "freecache:block=4,freeze=reference,lookahead=6,lag=1",
];

/// They are caches: what they leave out shows.
#[test]
fn inexact_caches_draft_other_tokens() {
    for cache in INEXACT {
        let differs = (0..40).any(|seed| {
            let run = |cache: &str| {
                let mut options = guided("guided", 0, 4, 24);
                options.cache = cache.parse().unwrap();
                on_scripts(seed, options).canvas
            };
            run(cache) != run("none")
        });
        assert!(differs, "{cache}");
    }
}

/// K1 and T1 of specification caches: refreshed in each forward, they are no cache.
#[test]
fn guided_over_caches_that_are_always_fresh_is_guided_over_none() {
    for (seed, shift) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
        for rule in ["guided", "guided:match=topk,k=4", "guided:fallback=ar"] {
            let run = |cache: &str| {
                let mut options = guided(rule, shift, 4, 24);
                options.cache = cache.parse().unwrap();
                on_scripts(seed, options)
            };
            let reference = run("none");
            for cache in ["dkv:refresh=1", "dllm:prompt=1,response=1", "dllm:prompt=1,response=5,rho=1"] {
                assert_eq!(run(cache), reference, "{rule} {cache}");
            }
        }
    }
}

/// Two toy vocabularies of bytes: the model's tokens are the letters a to r, `ab`, and the two halves of é; the guide's
/// are `abc`, `ab`, `b` and so on, the longest first, or any single byte.
#[derive(Debug)]
struct Toy {
    model: Vec<&'static [u8]>,
    guide: HashMap<&'static [u8], TokenId>,
}

const MODEL: &[&[u8]] = &[b"a", b"b", b"c", b"d", b"ab", b"\xc3", b"\xa9", b"cd", b"", b"e"];
const GUIDE: &[&[u8]] = &[b"abc", b"ab", b"bc", b"a", b"b", b"c", b"d", b"\xc3\xa9", b"\xc3", b"\xa9", b"e"];

impl Translator for Toy {
    fn bytes(&self, token: TokenId, out: &mut Vec<u8>) {
        out.extend_from_slice(self.model.get(token as usize).copied().unwrap_or(b""));
    }

    fn encode(&self, bytes: &[u8], out: &mut Vec<(TokenId, usize)>) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let found = (1..=3).rev().find_map(|length| Some((*self.guide.get(rest.get(..length)?)?, length)));
            let Some((token, length)) = found else { return };
            out.push((token, length));
            rest = &rest[length..];
        }
    }
}

/// A guide with its own prompt (token 15) and the toy vocabulary.
fn foreign(vocab: usize) -> GuideOptions {
    let guide = GUIDE.iter().zip(0..).map(|(&bytes, id)| (bytes, id)).collect();
    let translator = Arc::new(Toy { model: MODEL.to_vec(), guide });
    let mut facts = facts(Mask::Causal, 1);
    facts.vocab = vocab;
    let text = Some(GuideText { prompt: vec![15], translator });
    GuideOptions { facts, end_ids: vec![14], shared_vocabulary: false, text }
}

fn foreign_options(decoder: &str, gen_length: usize) -> SessionOptions {
    let mut options = guided(decoder, 0, 2, gen_length);
    options.end_ids = vec![EOS];
    options.guide = Some(foreign(VOCAB));
    options
}

/// A guide that goes through a text of its tokens, its prompt first.
fn follows(text: &'static [TokenId]) -> impl Fn(&[TokenId]) -> Vec<TokenId> {
    move |before| vec![if text.starts_with(before) { text.get(before.len()).copied().unwrap_or(14) } else { 13 }]
}

/// Worked out by hand. The model drafts a b c d and an end; their text `abcd` is `abc` `d` to the guide.
#[test]
fn flashdlm_g10_bytes_align_drafts_with_tokens_of_another_vocabulary() {
    let text = [0, 0, 0, 1, 2, 3, EOS, EOS];
    let model = |_: &[TokenId], position: u32| text[position as usize];
    // The guide writes abc d and ends: all of it, the end as one of its own, in one step.
    let run = trace(foreign_options("guided", 6), model, follows(&[15, 0, 6]));
    assert_eq!(run.steps, [vec![(2, 0), (3, 1), (4, 2), (5, 3), (6, EOS)]]);
    assert_eq!((run.accepted, run.guide_nfe, run.output.finish), (vec![5], 1, Finish::Eos));
    // It writes abc and then something else: a b c stand; d is taken alone, and judged as what stands the end falls,
    // and is taken alone.
    let run = trace(foreign_options("guided", 6), model, follows(&[15, 0, 5]));
    assert_eq!(run.steps, [vec![(2, 0), (3, 1), (4, 2)], vec![(5, 3)], vec![(6, EOS)]]);
    assert_eq!(run.accepted, [3, 0, 0]);
    // It begins with ab: abc is another token, so nothing stands. With a alone taken, the text is still abc d.
    let run = trace(foreign_options("guided", 6), model, follows(&[15, 1, 5, 6]));
    assert_eq!(run.steps.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 1, 1]);
    // In pieces ab is what nobody writes, but a b c d one by one are.
    let run = trace(foreign_options("guided:align=pieces", 6), model, follows(&[15, 3, 4, 5, 6]));
    assert_eq!((run.steps.len(), run.accepted), (1, vec![5]));
    let run = trace(foreign_options("guided:align=pieces", 6), model, follows(&[15, 3, 4, 6]));
    assert_eq!(run.accepted, [2, 0, 0, 0]);
}

/// The table reads the canvas's prompt, here a b, by the first guide token of each token's text: cd becomes c.
#[test]
fn flashdlm_g10_the_table_keeps_positions() {
    let text = [0, 0, 7, 3, EOS];
    let model = |_: &[TokenId], position: u32| text[position as usize];
    let run = trace(foreign_options("guided:align=table", 3), model, follows(&[3, 4, 5, 6]));
    assert_eq!((run.steps, run.accepted), (vec![vec![(2, 7), (3, 3), (4, EOS)]], vec![3]));
}

#[test]
fn flashdlm_g10_halves_of_characters_and_tokens_without_text() {
    // é in two halves, then e: one guide token overlaps both drafts.
    let text = [0, 0, 5, 6, 9, EOS];
    let model = |_: &[TokenId], position: u32| text[position as usize];
    let run = trace(foreign_options("guided", 4), model, follows(&[15, 7, 10]));
    assert_eq!((run.steps.len(), run.accepted), (1, vec![4]));
    // A lone half stays a byte: e follows it, é is never completed.
    let text = [0, 0, 5, 9, EOS];
    let model = |_: &[TokenId], position: u32| text[position as usize];
    let run = trace(foreign_options("guided", 3), model, follows(&[15, 8, 10]));
    assert_eq!((run.steps.len(), run.accepted), (1, vec![3]));
    // Token 8 has no text: nothing behind it is judged until it is taken, and then it is not there.
    let text = [0, 0, 0, 8, 9, EOS];
    let model = |_: &[TokenId], position: u32| text[position as usize];
    let run = trace(foreign_options("guided", 4), model, follows(&[15, 3, 10]));
    assert_eq!(run.steps, [vec![(2, 0)], vec![(3, 8)], vec![(4, 9), (5, EOS)]]);
    assert_eq!((run.accepted, run.guide_nfe), (vec![1, 0, 2], 2));
}

/// G6: each model is a table, and each of its rows says one token. The guide's row before a draft judges it; the row of
/// the diffusion model that drafts is that before the draft under shift, and the draft's own without. A pairing that is
/// off by one finds another token.
#[test]
fn flashdlm_g6_rows_and_drafts_are_paired() {
    // Everything but row 3 and row 6 of the model says what the guide says.
    let text: Vec<TokenId> = (0..9).map(|row| if row == 3 || row == 6 { 15 } else { row % 20 }).collect();
    for shift in [0, 1] {
        let mut session = Session::new(guided("guided:verify=2", shift, 3, 6)).unwrap();
        let mut guide = Guide::new(counting);
        let mut commits = Vec::new();
        while session.next() != Next::Done {
            let request = &session.requests()[0];
            let answer = match session.next() {
                Next::Guide => guide.answer(request),
                _ => predict(request, |position| {
                    let row = position - shift;
                    assert!(request.plan.live.contains(row), "the row that drafts is live");
                    (text[row as usize] + shift, 0.5)
                }),
            };
            session.feed(&[answer]);
            commits.extend(session.events().filter_map(|event| match event {
                Event::Commit { position, token, .. } => Some((position, token)),
                Event::Step { .. } => None,
            }));
        }
        // Where the model errs it is taken alone; what follows is judged after the token that stands.
        let drafted = |position: u32| (position, text[(position - shift) as usize] + shift);
        assert_eq!(commits, (3..9).map(drafted).collect::<Vec<_>>());
        let errs = |row: &u32| commits.iter().any(|&(position, token)| position == row + shift && token == 15 + shift);
        assert_eq!([3, 6].iter().filter(|row| errs(row)).count(), 2);
        assert!(session.counts().guide.accepted > 0, "shift {shift}: the others are agreed with");
    }
}

/// The canvas on which each step was drafted.
fn canvases(prompt: &[TokenId], run: &Trace) -> Vec<Vec<TokenId>> {
    let mut canvas = prompt.to_vec();
    canvas.resize(run.output.canvas.len(), MASK_ID);
    let before = |commits: &Vec<(u32, TokenId)>| {
        let before = canvas.clone();
        for &(position, token) in commits {
            canvas[position as usize] = token;
        }
        before
    };
    run.steps.iter().map(before).collect()
}

/// G5 at the edges of chunks: after each number of accepted drafts the guide's slots hold what stands and nothing else
/// (`Guide` reads every slot before a judged token), and the drafts behind are judged.
#[test]
fn flashdlm_g5_any_number_of_accepted_drafts_leaves_the_guide_in_step() {
    for accepted in [0, 1, 31, 32, 33, 63, 64, 65] {
        let (prompt, length) = (3, 80);
        let wrong = prompt + accepted as u32;
        let model = |_: &[TokenId], position: u32| if position == wrong { 19 } else { position % 19 };
        let guide = |before: &[TokenId]| {
            let next = before.len() as TokenId % 19;
            (0..19).map(|offset| (next + offset) % 19).collect::<Vec<_>>()
        };
        let run = trace(guided("guided:verify=32", 0, prompt as usize, length), model, guide);
        let rest = length - accepted - 1;
        let (stood, taken) = (vec![accepted, 0, rest], vec![accepted, 1, rest]);
        // The rejected draft is taken alone, at once if it is the first.
        let from = usize::from(accepted == 0);
        assert_eq!(run.accepted, stood[from..], "{accepted} accepted");
        assert_eq!(run.steps.iter().map(Vec::len).collect::<Vec<_>>(), taken[from..], "{accepted} accepted");
    }
}

/// G9 on a model whose stale slots show: as the target the guide writes one text whatever the cache, as the judge it
/// may get other drafts.
#[test]
fn flashdlm_g9_caches_change_drafts_only() {
    let caches = ["none", "prefix", "dual", "freecache:block=4", "freecache:block=2,freeze=reference", "dkv"];
    let mut differing = 0;
    for seed in 0..20 {
        let run = |target: &str, cache: &str| {
            let mut options = guided(&format!("guided:match=topk,k=3,{target}"), 0, 4, 16);
            if target == "target=guide" {
                options.decoder = "guided:target=guide".parse().unwrap();
            }
            (options.cache, options.block_length) = (cache.parse().unwrap(), Some(8));
            let mut session = Session::new(options).unwrap();
            let mut script = Scripted::new(seed, VOCAB, 0);
            let id = script.open(&session.needs()[0]).unwrap();
            let mut guide = Guide::new(|before: &[TokenId]| ranked(seed, 20, &before[before.len() - 1..]));
            while session.next() != Next::Done {
                let mut out = [Predictions::default()];
                match session.next() {
                    Next::Guide => out[0] = guide.answer(&session.requests()[0]),
                    _ => script.step(&[session.requests()[0].step(id, 0)], &mut out).unwrap(),
                }
                session.feed(&out);
            }
            (session.output().canvas, session.counts().forwards)
        };
        let (own, _) = run("target=guide", "none");
        let reference = run("target=dlm", "none");
        for cache in caches {
            assert_eq!(run("target=guide", cache).0, own, "{cache}");
            differing += usize::from(run("target=dlm", cache) != reference);
        }
    }
    assert!(differing > 20, "stale slots change {differing} of 100 guided runs");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// G3: replayed on the canvas of its step, the model says every token that was committed, whatever the rule and the
    /// guide. G7: each step commits, so there are no more than tokens. G11: no mask.
    #[test]
    fn flashdlm_g3_g7_g11_every_token_is_what_the_model_said(
        (seed, gen_length, sides, verify) in (any::<u64>(), 1usize..40, 1u64..8, 1usize..9),
        rule in 0usize..4,
    ) {
        let rule = ["exact", "topk,k=2", "topk,k=20", "topk_relative,k=3,tau=0.5"][rule];
        let model = |canvas: &[TokenId], position: u32| {
            let seen: Vec<TokenId> = canvas.iter().copied().filter(|&token| token != MASK_ID).collect();
            hashed(seed ^ u64::from(position), sides, &seen)
        };
        let guide = |before: &[TokenId]| ranked(seed ^ 1, sides, &before[before.len() - 1..]);
        let run = trace(guided(&format!("guided:match={rule},verify={verify}"), 0, 3, gen_length), model, guide);
        for (commits, canvas) in run.steps.iter().zip(canvases(&[0, 1, 2], &run)) {
            prop_assert!(!commits.is_empty());
            for &(position, token) in commits {
                prop_assert_eq!(token, model(&canvas, position));
            }
        }
        prop_assert!(run.steps.len() <= gen_length);
        prop_assert_eq!(run.steps.iter().map(Vec::len).sum::<usize>(), gen_length);
    }

    /// G7 and G11 where texts end: the first end token is the last one of the answer, nothing is decided behind it, and
    /// the rest of the canvas is filled.
    #[test]
    fn flashdlm_g7_g11_nothing_stands_behind_an_end(
        (seed, gen_length, sides) in (any::<u64>(), 1usize..40, 2u64..9),
        rule in 0usize..2,
    ) {
        let mut options = guided(["guided", "guided:match=topk,k=3"][rule], 0, 3, gen_length);
        (options.end_ids, options.stop) = (vec![EOS], StopRule::PrefixFill { fill: EOS });
        options.guide = Some(GuideOptions { end_ids: vec![18, 19], ..shared() });
        let model = |_: &[TokenId], position: u32| match hashed(seed, sides, &[position]) {
            0 => EOS,
            token => token,
        };
        let guide = |before: &[TokenId]| ranked(seed ^ 1, 20, &before[before.len() - 1..]);
        let run = trace(options, model, guide);
        let text: Vec<TokenId> = (3..3 + gen_length as u32).map(|position| model(&[], position)).collect();
        let length = text.iter().position(|&token| token == EOS).map_or(gen_length, |end| end + 1);
        prop_assert_eq!(&run.output.tokens[..], &text[..length]);
        prop_assert_eq!(run.output.finish == Finish::Eos, text[length - 1] == EOS);
        prop_assert!(run.output.canvas[3 + length..].iter().all(|&token| token == EOS));
    }

    /// G4 over whole texts: from one and the same canvas a more tolerant rule never takes less; at their ends the rules
    /// meet.
    #[test]
    fn flashdlm_g4_more_tolerant_rules_take_no_less(
        (seed, sides, k) in (any::<u64>(), 1u64..8, 1usize..8),
        tau in 0.0f32..1.0,
    ) {
        let model = |_: &[TokenId], position: u32| hashed(seed, sides, &[position]);
        let guide = |before: &[TokenId]| ranked(seed ^ 1, sides, &before[before.len() - 1..]);
        let first = |rule: &str| trace(guided(&format!("guided:match={rule}"), 0, 3, 24), model, guide).accepted[0];
        let (exact, topk) = (first("exact"), first(&format!("topk,k={k}")));
        let relative = |k: usize, tau: f32| first(&format!("topk_relative,k={k},tau={tau}"));
        prop_assert!(exact <= relative(k, tau) && relative(k, tau) <= topk);
        prop_assert_eq!(relative(k, 0.0), topk);
        prop_assert_eq!((relative(k, 1.0), relative(1, tau)), (exact, exact));
        prop_assert_eq!(relative(VOCAB, 0.0), 24);
    }

    /// G10: the table keeps but the first guide token of each text (`cd` becomes c), and of a token without text nothing.
    /// A guide that would write these is agreed with as far as it can read; behind that drafts are only taken one by one.
    #[test]
    fn flashdlm_g10_a_lossy_table_only_takes_less(text in proptest::collection::vec(0u32..10, 1..20)) {
        let mut options = foreign_options("guided:align=table", text.len());
        options.stop = StopRule::Never;
        // The guide's tokens for the model's: a b c d ab, the halves of é, cd, none, e.
        let table = [3, 4, 5, 6, 1, 8, 9, 5, 0, 10];
        let model = |_: &[TokenId], position: u32| text[position as usize - 2];
        let run = trace(options, model, |before| vec![table[text[before.len() - 2] as usize]]);
        prop_assert_eq!(&run.output.tokens, &text);
        let readable = text.iter().position(|&token| token == 8).unwrap_or(text.len());
        let mut steps = vec![1; text.len() - readable];
        steps.splice(0..0, (readable > 0).then_some(readable));
        prop_assert_eq!(run.steps.iter().map(Vec::len).collect::<Vec<_>>(), steps);
        prop_assert_eq!(run.accepted.iter().sum::<usize>(), readable);
    }

    /// G5: chunks change nothing but the number of calls; what the guide remembers is what it would read afresh (its
    /// slots are looked at in full).
    #[test]
    fn flashdlm_g5_chunks_and_slots_change_nothing(seed in any::<u64>(), gen_length in 1usize..70, sides in 1u64..6) {
        let model = |canvas: &[TokenId], position: u32| {
            hashed(seed ^ u64::from(position), sides, &canvas[..(position as usize).min(4)])
        };
        let guide = |before: &[TokenId]| ranked(seed ^ 1, sides, &before[before.len().saturating_sub(2)..]);
        for rule in ["exact", "topk,k=2", "topk_relative,k=3,tau=0.5"] {
            let run = |verify: usize| {
                let options = guided(&format!("guided:match={rule},verify={verify}"), 0, 4, gen_length);
                trace(options, model, guide)
            };
            let whole = run(1000);
            prop_assert_eq!(whole.guide_nfe, whole.steps.len());
            for verify in [1, 7, 32] {
                let chunked = run(verify);
                prop_assert_eq!((&chunked.steps, &chunked.accepted), (&whole.steps, &whole.accepted));
            }
        }
    }

    /// G8: the guide's own greedy output, whatever is drafted.
    #[test]
    fn flashdlm_g8_the_target_writes_its_own_text(
        (seed, gen_length, sides, verify) in (any::<u64>(), 1usize..40, 1u64..5, 1usize..9),
    ) {
        let options = guided(&format!("guided:target=guide,verify={verify}"), 1, 3, gen_length);
        let model = |canvas: &[TokenId], position: u32| hashed(seed ^ u64::from(position), sides, &canvas[..3]);
        let guide = |before: &[TokenId]| ranked(seed ^ 1, sides, before);
        let run = trace(options.clone(), model, guide);
        let mut own = Session::new(options).unwrap().canvas()[..3].to_vec();
        for _ in 0..gen_length {
            own.push(guide(&own)[0]);
        }
        prop_assert_eq!(&run.output.canvas, &own);
        prop_assert!(run.steps.len() <= gen_length);
    }

    /// G10: text of any tokens: offsets never part, every step commits, nothing is committed out of order.
    #[test]
    fn flashdlm_g10_texts_of_any_tokens_stay_aligned(
        text in proptest::collection::vec(0u32..10, 1..30),
        (seed, align) in (any::<u64>(), 0usize..3),
    ) {
        let align = ["bytes", "pieces", "table"][align];
        let mut options = foreign_options(&format!("guided:align={align},match=topk,k=4,verify=5"), text.len());
        options.stop = StopRule::Never;
        let model = |_: &[TokenId], position: u32| text[position as usize - 2];
        let guide = |before: &[TokenId]| {
            let best = hashed(seed, 11, before);
            (0..11).map(|offset| (best + offset) % 11).collect()
        };
        let run = trace(options, model, guide);
        prop_assert_eq!(&run.output.tokens, &text);
        prop_assert!(run.steps.iter().all(|commits| !commits.is_empty()));
        let positions: Vec<u32> = run.steps.iter().flatten().map(|commit| commit.0).collect();
        prop_assert!(positions.is_sorted());
    }

    /// G3, G7, G11 over caches that are not exact: each step commits a run of what the model drafted in it, the first of
    /// it always, in order and without a mask.
    #[test]
    fn flashdlm_g3_g7_g11_over_inexact_caches(seed in any::<u64>(), shift in 0u32..2, gen_length in 1usize..30) {
        for cache in INEXACT {
            let mut options = guided("guided:match=topk,k=3,verify=5", shift, 4, gen_length);
            (options.cache, options.block_length) = (cache.parse().unwrap(), Some(gen_length));
            let run = on_scripts(seed, options);
            prop_assert_eq!(run.exactness, "approximate");
            prop_assert_eq!(run.committed.len(), run.drafted.len());
            for (commits, drafts) in run.committed.iter().zip(&run.drafted) {
                prop_assert!(!commits.is_empty() && commits[..] == drafts[..commits.len()], "{}", cache);
            }
            let positions: Vec<u32> = run.committed.iter().flatten().map(|commit| commit.0).collect();
            prop_assert_eq!(positions, (4..4 + gen_length as u32).collect::<Vec<_>>());
            prop_assert!(!run.canvas.contains(&MASK_ID));
        }
    }

    /// G8, G9: what the model keeps changes its drafts, and never the output if that is the guide's.
    #[test]
    fn flashdlm_g8_g9_the_guides_output_over_any_cache(
        (seed, shift, gen_length) in (any::<u64>(), 0u32..2, 1usize..30),
    ) {
        let run = |cache: &str, decoder: &str| {
            let mut options = guided(decoder, shift, 4, gen_length);
            options.cache = cache.parse().unwrap();
            on_scripts(seed, options)
        };
        let reference = run("none", "guided:target=guide,verify=1");
        for cache in INEXACT.iter().chain(&["prefix", "dual"]) {
            let found = run(cache, "guided:target=guide,verify=7");
            prop_assert_eq!((&found.canvas, found.exactness), (&reference.canvas, "lossless"), "{}", cache);
        }
    }

    /// G10: where both have the same tokens and each byte is one, bytes and pieces are ids.
    #[test]
    fn flashdlm_g10_one_vocabulary_makes_all_alignments_one(seed in any::<u64>(), gen_length in 1usize..30) {
        let letters: Vec<&'static [u8]> = b"abcdefgh".chunks(1).collect();
        let model = |canvas: &[TokenId], position: u32| hashed(seed ^ u64::from(position), 8, &canvas[..2]);
        let guide = |before: &[TokenId]| {
            let best = hashed(seed ^ 2, 3, &before[2..]);
            (0..8).map(|offset| (best + offset) % 8).collect()
        };
        let run = |align: &str| {
            let mut options = guided(&format!("guided:match=topk,k=4,align={align}"), 0, 2, gen_length);
            let guide_words = letters.iter().zip(0..).map(|(&bytes, id)| (bytes, id)).collect();
            let translator = Arc::new(Toy { model: letters.clone(), guide: guide_words });
            options.guide = Some(GuideOptions { text: Some(GuideText { prompt: vec![0, 1], translator }), ..shared() });
            trace(options, model, guide)
        };
        let ids = run("ids");
        for align in ["bytes", "pieces", "table"] {
            prop_assert_eq!(&run(align), &ids);
        }
    }
}
