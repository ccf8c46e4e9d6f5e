//! Adjustments of logits: every commit is what the naive head answers to a row that was adjusted by hand.

use std::collections::BTreeMap;

use demask_decode::{Adjustments, CanvasSpec, Event, GuideOptions, Session, SessionOptions};
use demask_step::{ForwardInput, Job, Mask, NO_TOKEN, Network, Predictions, SequenceId, TokenId};
use demask_testkit::{by_hand::ByHand, naive::head, scripted::Scripted};

use crate::common::{EOS, VOCAB, facts, options};

/// A row with the adjustments of a session, token by token.
fn by_hand(options: &SessionOptions, canvas: &[TokenId], position: u32, logits: &[f32]) -> Vec<f32> {
    let CanvasSpec::Prompt { tokens: prompt, .. } = &options.canvas else { panic!("a prompt") };
    let of = &options.adjustments;
    let is_causal = options.facts.mask == Mask::Causal;
    let spoken: Vec<TokenId> = (0..)
        .zip(canvas)
        .skip(prompt.len())
        .filter(|&(at, &token)| {
            options.facts.mask_id != Some(token)
                && token != NO_TOKEN
                && if is_causal { at < position } else { at != position }
        })
        .map(|(_, &token)| token)
        .collect();
    let adjusted = |(token, &logit): (TokenId, &f32)| {
        let count = spoken.iter().filter(|&&other| other == token).count();
        let mut logit = logit + of.logit_bias.iter().find(|bias| bias.0 == token).map_or(0.0, |bias| bias.1);
        if options.end_ids.contains(&token) {
            let is_early = (position as usize) < prompt.len() + of.min_tokens;
            return if is_early { f32::NEG_INFINITY } else { logit };
        }
        if count > 0 || prompt.contains(&token) {
            logit = if logit > 0.0 { logit / of.repetition_penalty } else { logit * of.repetition_penalty };
        }
        logit -= of.frequency_penalty * count as f32;
        logit - if count > 0 { of.presence_penalty } else { 0.0 }
    };
    (0..).zip(logits).map(adjusted).collect()
}

/// What the naive head answers to each predicted position of a canvas.
fn answers(
    options: &SessionOptions,
    canvas: &[TokenId],
    request: &ForwardInput,
    found: &Predictions,
) -> BTreeMap<u32, (TokenId, f64)> {
    let asked = &request.ask;
    let answer = |(index, position): (usize, u32)| {
        assert_eq!(found.logits.len(), found.tokens.len() * VOCAB);
        let row = by_hand(options, canvas, position, &found.logits[index * VOCAB..(index + 1) * VOCAB]);
        let answer = head::answer(&row, &asked.wanted, asked.key(0, position), &[]);
        (position, (answer.token, answer.confidence))
    };
    found.positions.iter().enumerate().map(answer).collect()
}

/// Decodes, and compares each commit with the answer by hand, where logits are adjusted. Returns the commits.
fn twin(options: &SessionOptions) -> Vec<(u32, TokenId)> {
    let mut model = Scripted::new(options.seed, VOCAB, options.facts.shift).with_spread(6.0);
    let mut session = Session::new(options.clone()).unwrap();
    let ids: Vec<SequenceId> = session.needs().iter().map(|needs| model.open(&needs.limits).unwrap()).collect();
    let mut commits = Vec::new();
    while session.wants() == Some(0) {
        let requests = session.requests().to_vec();
        let batch: Vec<_> = requests.iter().map(|request| request.step(ids[request.sequence])).collect();
        let mut out = vec![Predictions::default(); batch.len()];
        model.step(&batch, &mut out).unwrap();
        let is_adjusted = options.adjustments.first().is_some();
        let expected = is_adjusted.then(|| answers(options, session.canvas(), &requests[0], &out[0]));
        session.feed(&out);
        for event in session.events() {
            let Event::Commit { position, token, confidence, .. } = event else { continue };
            commits.push((position, token));
            let Some((expected, share)) = expected.as_ref().map(|expected| expected[&position]) else { continue };
            assert_eq!(token, expected, "position {position} of {options:?}");
            assert!(
                (f64::from(confidence) - share).abs() < 1e-5,
                "{confidence} instead of {share} at {position} of {options:?}"
            );
        }
    }
    assert_eq!(session.masks(), 0);
    commits
}

fn adjustments() -> [Adjustments; 6] {
    let none = Adjustments::default;
    [
        Adjustments { logit_bias: vec![(3, 4.0), (5, -100.0), (EOS, 1.5)], ..none() },
        Adjustments { presence_penalty: 2.0, ..none() },
        Adjustments { frequency_penalty: -1.5, ..none() },
        Adjustments { repetition_penalty: 1.7, ..none() },
        Adjustments { min_tokens: 7, ..none() },
        Adjustments {
            logit_bias: vec![(3, 2.0)],
            presence_penalty: -0.5,
            frequency_penalty: 0.75,
            repetition_penalty: 0.6,
            min_tokens: 3,
        },
    ]
}

/// The options of each kind of run.
fn runs() -> Vec<SessionOptions> {
    let mut runs = Vec::new();
    for (mask, shift, decoder) in [
        (Mask::Full, 0, "static"),
        (Mask::Full, 1, "threshold:tau=0.3"),
        (Mask::blocks(4), 0, "static"),
        (Mask::blocks(4), 0, "threshold:tau=0.3"),
        (Mask::Causal, 1, "ar"),
    ] {
        for (seed, temperature) in [(1, 0.0), (2, 0.8), (3, 0.0)] {
            let usual = options(mask, shift, 5, 16);
            let steps = (decoder == "static" && mask == Mask::Full).then_some(8);
            let decoder = decoder.parse().unwrap();
            runs.push(SessionOptions {
                decoder,
                steps,
                seed,
                temperature,
                end_ids: vec![EOS],
                stop: demask_decode::StopRule::Never,
                ..usual
            });
        }
    }
    runs
}

#[test]
fn every_commit_is_the_heads_answer_to_the_adjusted_row() {
    let mut changed = [0; 6];
    for run in runs() {
        let usual = twin(&run);
        for (adjustments, changed) in adjustments().into_iter().zip(&mut changed) {
            *changed += usize::from(twin(&SessionOptions { adjustments, ..run.clone() }) != usual);
        }
    }
    assert!(changed.iter().all(|&changed| changed > 0), "each of them changes answers: {changed:?}");
}

#[test]
fn no_answer_ends_before_its_least_length() {
    for run in runs() {
        let adjustments = Adjustments { min_tokens: 9, logit_bias: vec![(EOS, 40.0)], ..Adjustments::default() };
        let commits = twin(&SessionOptions { adjustments, ..run });
        let ends: Vec<u32> = commits.iter().filter(|commit| commit.1 == EOS).map(|commit| commit.0).collect();
        assert!(!ends.is_empty() && ends.iter().all(|&position| position >= 5 + 9), "{ends:?}");
    }
}

#[test]
fn what_changes_nothing_asks_for_no_logits() {
    let mut options = options(Mask::Full, 0, 5, 8);
    let asks = |options: &SessionOptions| Session::new(options.clone()).unwrap().requests()[0].ask.wanted.logits;
    options.adjustments = Adjustments { logit_bias: vec![(3, 0.0)], ..Adjustments::default() };
    assert!(!asks(&options));
    options.adjustments.logit_bias[0].1 = 1.0;
    assert!(asks(&options));
}

#[test]
fn numbers_that_adjust_nothing_are_refused_by_name() {
    let of = |adjustments: Adjustments| {
        let options = SessionOptions { adjustments, ..options(Mask::Full, 0, 5, 8) };
        let refused = Session::new(options).map(|_| ()).unwrap_err();
        (refused.option().unwrap(), refused.to_string())
    };
    let none = Adjustments::default;
    for (adjustments, name, told) in [
        (Adjustments { presence_penalty: 2.5, ..none() }, "presence_penalty", "is 2.5, expected a number from -2 to 2"),
        (Adjustments { frequency_penalty: f32::NAN, ..none() }, "frequency_penalty", "is NaN"),
        (Adjustments { repetition_penalty: 0.0, ..none() }, "repetition_penalty", "is 0, expected a number above 0"),
        (Adjustments { logit_bias: vec![(3, 101.0)], ..none() }, "logit_bias", "of token 3 is 101"),
        (
            Adjustments { logit_bias: vec![(24, 1.0)], ..none() },
            "logit_bias",
            "has token 24, expected ids from 0 to 23",
        ),
        (Adjustments { min_tokens: 9, ..none() }, "min_tokens", "is 9, and the answer has 8 tokens at most"),
    ] {
        let (option, text) = of(adjustments);
        assert!(option == name && text.contains(told) && text.contains(&format!("`{name}`")), "{text}");
    }
}

#[test]
fn a_guide_is_not_adjusted_and_refuses_adjustments_by_name() {
    let guide = GuideOptions { facts: facts(Mask::Causal, 1), end_ids: vec![EOS], shared_vocabulary: true, text: None };
    let options = SessionOptions {
        decoder: "guided".parse().unwrap(),
        guide: Some(guide),
        adjustments: Adjustments { presence_penalty: 1.0, ..Adjustments::default() },
        ..options(Mask::Full, 0, 5, 8)
    };
    let refused = Session::new(options).map(|_| ()).unwrap_err();
    assert_eq!(refused.option(), Some("presence_penalty"));
    assert!(refused.to_string().starts_with("decoder guided commits what its guide agrees with"), "{refused}");
}
