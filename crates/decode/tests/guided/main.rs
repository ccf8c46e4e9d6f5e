//! Guided decoding on models small enough to work out by hand, and on random ones (specs/flashdlm.md#6; the tests carry
//! its numbers).

mod caches;
mod confidence;
mod constrained;
mod random;
mod vocabularies;

use crate::common::{EOS, MASK_ID, VOCAB, facts, options, predict};
use demask_decode::{Event, Finish, GuideOptions, Output, Session, SessionOptions, StopRule};
use demask_step::{ForwardInput, Job, Mask, Predictions, TokenId, TokenScore, random::mix};
use demask_testkit::by_hand::ByHand;
use vocabularies::foreign;

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

    fn answer(&mut self, request: &ForwardInput) -> Predictions {
        assert_eq!(request.plan.mask, Mask::Causal);
        for (position, &token) in request.plan.query.iter().zip(&request.tokens) {
            self.slots[position as usize] = Some(token);
        }
        let mut out = Predictions { lanes: 1, positions: request.plan.predict.clone(), ..Predictions::default() };
        for (index, position) in out.positions.clone().iter().enumerate() {
            assert!(request.plan.query.contains(position - 1), "the row that judges is live");
            let before: Option<Vec<TokenId>> = self.slots[..position as usize].iter().copied().collect();
            let ranked = (self.rank)(&before.expect("every slot before a judged token is written"));
            out.tokens.push(ranked[0]);
            out.confidence.push(0.5);
            let width = request.ask.wanted.score_width;
            for token in &request.ask.score[index * width..][..width] {
                let rank = ranked.iter().position(|ranked| ranked == token).unwrap_or(ranked.len()) as u32;
                let log_probability = -(rank as f32) * 2f32.ln() - 0.7;
                out.scores.push(TokenScore { rank, log_probability, best: (-0.7f32).exp() });
            }
        }
        out
    }
}

/// Record of a run: commits and accepted drafts of each step, forwards of the guide in all.
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
    session.tell_drafts();
    let mut guide = Guide::new(guide);
    let (mut steps, mut accepted) = (Vec::new(), Vec::new());
    while session.wants().is_some() {
        let answer = match session.wants() {
            Some(1) => guide.answer(&session.requests()[0]),
            _ => predict(&session.requests()[0], |position| (model(session.canvas(), position), 0.5)),
        };
        session.feed(&[answer]);
        let mut commits = Vec::new();
        let (mut drafted, mut own) = (Vec::new(), Vec::new());
        for event in session.events() {
            match event {
                Event::Commit { position, token, .. } => commits.push((position, token)),
                Event::Draft { position, token, accepted, .. } => drafted.push((position, token, accepted)),
                Event::Target { position, draft, by_guide, .. } => own.push((position, draft, by_guide)),
                Event::Step { accepted: count, rejected, .. } => {
                    // The guide agrees with the first drafts, which are committed, and is quoted at the next one.
                    assert!(drafted.iter().enumerate().all(|(index, draft)| draft.2 == (index < count)));
                    let stands = drafted[..count].iter().map(|&(position, token, _)| (position, token));
                    assert!(stands.eq(commits[..count].iter().copied()));
                    let expected = (rejected > 0).then(|| (drafted[count].0, count, true));
                    assert_eq!(own, expected.into_iter().collect::<Vec<_>>());
                    steps.push(std::mem::take(&mut commits));
                    accepted.push(count);
                }
                _ => unreachable!("drafts revise nothing"),
            }
        }
        assert!(session.wants() == Some(1) || commits.is_empty(), "a guide commits nothing by itself");
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
    (tokens.iter().fold(mix(seed), |hash, &token| mix(hash ^ u64::from(token))) % sides) as TokenId
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
    options.stop = StopRule::PrefixFill;
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

/// What the guide writes was not predicted by the model, not even where it had the same token.
#[test]
fn a_guides_own_token_has_no_log_probability() {
    let mut options = guided("guided:target=guide", 0, 3, 12);
    options.top_logprobs = Some(0);
    let mut session = Session::new(options).unwrap();
    let mut guide =
        Guide::new(|before: &[TokenId]| (0..20).map(|offset| (before.len() as u32 + offset) % 20).collect());
    while session.wants().is_some() {
        let answer = match session.wants() {
            Some(1) => guide.answer(&session.requests()[0]),
            _ => predict(&session.requests()[0], |at| (if at % 5 == 0 { 19 } else { at % 20 }, 0.5)),
        };
        session.feed(&[answer]);
    }
    for position in 0..15 {
        let told = session.logprob(position).map(|known| known.log_probability);
        let predicted = position >= 3 && position % 5 != 0;
        assert_eq!(told, predicted.then(|| 0.5_f32.ln()), "position {position}");
    }
}

/// Appendix C.1 of the paper: under full attention every mask is drafted, whatever the block length.
#[test]
fn blocks_bound_no_drafts_under_full_attention() {
    for cache in ["none", "prefix", "dual", "freecache:block=2", "dkv:variant=prefill"] {
        let run = |block_length: Option<usize>| {
            let mut options = guided("guided", 0, 4, 12);
            (options.block_length, options.cache) = (block_length, cache.parse().unwrap());
            // Wrong every fifth place, so that some steps end inside a block and some behind it.
            trace(
                options,
                |_, position| if position % 5 == 0 { 19 } else { position % 20 },
                |before| {
                    let next = before.len() as TokenId;
                    (0..20).map(|offset| (next + offset) % 20).collect()
                },
            )
        };
        let whole = run(None);
        assert_eq!(whole.steps.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 4, 1, 4, 1], "{cache}");
        for block_length in [1, 3, 4, 6] {
            assert_eq!(run(Some(block_length)), whole, "{cache} {block_length}");
        }
    }
}

#[test]
fn blocks_bound_the_drafts_of_block_causal_models() {
    let mut options = guided("guided", 0, 4, 8);
    options.facts = facts(Mask::blocks(4), 0);
    // The prompt's block is stored, then each decoded block after it is taken.
    for (cache, steps) in [("block", &[4, 4][..]), ("block:store=alone", &[0, 4, 0, 4, 0])] {
        let options = SessionOptions { cache: cache.parse().unwrap(), ..options.clone() };
        let run = trace(options, |_, position| position % 20, counting);
        assert_eq!(run.steps.iter().map(Vec::len).collect::<Vec<_>>(), steps, "{cache}");
        assert_eq!(run.output.tokens, [4, 5, 6, 7, 8, 9, 10, 11]);
    }
}

#[test]
fn a_guide_of_fewer_tokens_limits_drafts_without_a_list_of_those_that_it_lacks() {
    let wanted = |vocab: usize| {
        let mut options = guided("guided", 1, 2, 4);
        let mut guide = shared();
        guide.facts.vocab = vocab;
        options.guide = Some(guide);
        let session = Session::new(options).unwrap();
        session.requests()[0].ask.wanted.clone()
    };
    let (same, fewer, more) = (wanted(VOCAB), wanted(VOCAB - 2), wanted(VOCAB + 2));
    assert_eq!((same.limit, fewer.limit, more.limit), (None, Some(VOCAB as u32 - 2), None));
    assert_eq!(fewer.banned, same.banned);
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
        while session.wants().is_some() {
            let request = &session.requests()[0];
            let answer = match session.wants() {
                Some(1) => guide.answer(request),
                _ => predict(request, |position| {
                    let row = position - shift;
                    assert!(request.plan.query.contains(row), "the row that drafts is live");
                    (text[row as usize] + shift, 0.5)
                }),
            };
            session.feed(&[answer]);
            commits.extend(session.events().filter_map(|event| match event {
                Event::Commit { position, token, .. } => Some((position, token)),
                _ => None,
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
