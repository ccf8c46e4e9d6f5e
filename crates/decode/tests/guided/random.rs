//! Guided decoding on models and guides made of hashes.

use demask_decode::{Finish, GuideOptions, Session, StopRule};
use demask_step::TokenId;
use demask_testkit::property;
use proptest::prelude::*;

use super::{Trace, guided, hashed, ranked, shared, trace};
use crate::common::{EOS, MASK_ID, VOCAB};

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

proptest! {
    #![proptest_config(property::cases(200))]

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
        (options.end_ids, options.stop) = (vec![EOS], StopRule::PrefixFill);
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
}
