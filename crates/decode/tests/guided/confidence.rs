//! The matching rule of the paper's appendix C.4, taken literally, against a program of a few lines that follows the
//! text and nothing else.

use demask_decode::{Event, Session};
use demask_step::{ForwardInput, Job, Predictions, TokenId, TokenScore, random::mix};
use demask_testkit::{by_hand::ByHand, property};
use proptest::prelude::*;

use super::{guided, hashed};
use crate::common::{MASK_ID, predict};

/// A number from 0 to 1 that depends on a text.
fn share(seed: u64, tokens: &[TokenId]) -> f32 {
    (hashed(seed, 1 << 10, tokens) as f32) / 1024.0
}

/// Prediction of the diffusion model at a position of a canvas, and its confidence.
fn model(seed: u64, canvas: &[TokenId], position: u32) -> (TokenId, f32) {
    let seen: Vec<TokenId> = canvas.iter().copied().filter(|&token| token != MASK_ID).collect();
    let seed = mix(seed ^ u64::from(position));
    (hashed(seed, 20, &seen), share(seed ^ 1, &seen))
}

/// The probability of the guide's best token behind a text.
fn best(seed: u64, text: &[TokenId]) -> f32 {
    share(seed ^ 2, text)
}

/// Algorithm 1 with the rule of appendix C.4: of all masks, drafted in one step, the longest run from the first on in
/// which the diffusion model's largest value is at least `tau` times the guide's; if there is none, the first mask.
fn naive(seed: u64, prompt: &[TokenId], gen_length: usize, tau: f32) -> Vec<Vec<(u32, TokenId)>> {
    let mut canvas = prompt.to_vec();
    canvas.resize(prompt.len() + gen_length, MASK_ID);
    let mut steps = Vec::new();
    while let Some(first) = canvas.iter().position(|&token| token == MASK_ID) {
        let drafts: Vec<_> = (first..canvas.len()).map(|position| model(seed, &canvas, position as u32)).collect();
        let mut text = canvas[..first].to_vec();
        let mut stands = 0;
        for &(token, confidence) in &drafts {
            if confidence < tau * best(seed, &text) {
                break;
            }
            text.push(token);
            stands += 1;
        }
        let taken = (first as u32..).zip(&drafts).take(stands.max(1)).map(|(position, draft)| (position, draft.0));
        steps.push(taken.collect::<Vec<_>>());
        for &(position, token) in steps.last().into_iter().flatten() {
            canvas[position as usize] = token;
        }
    }
    steps
}

/// The guide: its best token is never the draft, so that agreement cannot be what counts.
fn judge(seed: u64, slots: &mut Vec<TokenId>, request: &ForwardInput) -> Predictions {
    let width = request.ask.wanted.score_width;
    for (position, &token) in request.plan.query.iter().zip(&request.tokens) {
        slots.truncate(position as usize);
        slots.push(token);
    }
    let mut out = Predictions { lanes: 1, positions: request.plan.predict.clone(), ..Predictions::default() };
    for position in out.positions.clone().iter() {
        out.tokens.push(21);
        out.confidence.push(0.5);
        let judged = TokenScore { rank: 3, log_probability: -20.0, best: best(seed, &slots[..position as usize]) };
        out.scores.extend(std::iter::repeat_n(judged, width));
    }
    out
}

proptest! {
    #![proptest_config(property::cases(300))]

    #[test]
    fn the_literal_rule_is_that_of_a_program_that_follows_the_text(
        (seed, gen_length, verify, shift) in (any::<u64>(), 1usize..40, 1usize..9, 0u32..2),
        tau in 0.0f32..=1.0,
    ) {
        let options = guided(&format!("guided:match=confidence,tau={tau},verify={verify}"), shift, 3, gen_length);
        let mut session = Session::new(options).unwrap();
        let (mut steps, mut commits, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        while session.wants().is_some() {
            let answer = match session.wants() {
                Some(1) => judge(seed, &mut slots, &session.requests()[0]),
                _ => predict(&session.requests()[0], |position| model(seed, session.canvas(), position)),
            };
            session.feed(&[answer]);
            for event in session.events() {
                match event {
                    Event::Commit { position, token, .. } => commits.push((position, token)),
                    Event::Step { .. } => steps.push(std::mem::take(&mut commits)),
                    _ => {}
                }
            }
        }
        prop_assert_eq!(steps, naive(seed, &[0, 1, 2], gen_length, tau));
    }
}
