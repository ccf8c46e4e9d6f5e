//! Parts that the tests of sessions share.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod freedave;

use demask_decode::{CanvasSpec, Event, ModelFacts, Output, Session, SessionOptions};
use demask_step::{ForwardInput, Job, LayerRows, Mask, Network, Predictions, SequenceId, SequenceLimits, TokenId};
use demask_testkit::{by_hand::ByHand, scripted::Scripted};

pub const VOCAB: usize = 24;
pub const MASK_ID: TokenId = 23;
pub const EOS: TokenId = 22;

/// A model of a family with a small vocabulary.
pub fn facts(mask: Mask, shift: u32) -> ModelFacts {
    let mask_id = (mask != Mask::Causal).then_some(MASK_ID);
    ModelFacts {
        mask,
        shift,
        mask_id,
        vocab: VOCAB,
        context: 4096,
        layers: 3,
        blocks: demask_step::BlockRules::default(),
        free_rows: demask_decode::FREE_ROWS,
    }
}

/// Options for a prompt of `length` tokens.
pub fn options(mask: Mask, shift: u32, length: usize, gen_length: usize) -> SessionOptions {
    let tokens = (0..length as TokenId).map(|position| position % 20).collect();
    SessionOptions { fill: EOS, ..SessionOptions::new(facts(mask, shift), CanvasSpec::Prompt { tokens, gen_length }) }
}

/// Record of one run.
#[derive(Debug, PartialEq)]
pub struct Run {
    /// `[forward][commit]`: position and token in the order of the events.
    pub steps: Vec<Vec<(u32, TokenId)>>,
    pub output: Output,
    pub events: Vec<Event>,
}

/// Runs a session to its end; `answer` gets the index of the forward and its requests.
pub fn drive(session: &mut Session, mut answer: impl FnMut(usize, &[ForwardInput]) -> Vec<Predictions>) -> Run {
    let mut run = Run { steps: Vec::new(), output: session.output(), events: Vec::new() };
    while session.wants() == Some(0) {
        let forward = run.steps.len();
        assert_eq!(session.requests().len(), session.needs().len());
        let predictions = answer(forward, session.requests());
        session.feed(&predictions);
        run.steps.push(Vec::new());
        for event in session.events() {
            if let Event::Commit { step, position, token, .. } = event {
                assert_eq!(step, forward, "commits belong to the last forward");
                run.steps[forward].push((position, token));
            }
            run.events.push(event);
        }
    }
    assert_eq!(session.requests().len(), 0);
    assert_eq!(session.counts().forwards, run.steps.len());
    run.output = session.output();
    run
}

/// Runs a session on a scripted network, which checks every plan.
pub fn drive_on(script: &mut Scripted, session: &mut Session) -> Run {
    let ids: Vec<SequenceId> = session.needs().iter().map(|needs| script.open(&needs.limits).unwrap()).collect();
    drive(session, |_, requests| {
        let batch: Vec<_> = requests.iter().map(|request| request.step(ids[request.sequence])).collect();
        let mut out = vec![Predictions::default(); batch.len()];
        script.step(&batch, &mut out).unwrap();
        out
    })
}

/// Makes and runs a session on a fresh scripted network.
pub fn run(options: SessionOptions) -> Run {
    let mut script = Scripted::new(5, VOCAB, options.facts.shift);
    let mut session = Session::new(options).unwrap();
    drive_on(&mut script, &mut session)
}

/// One lane of predictions for the positions that a request asks for.
pub fn predict(request: &ForwardInput, mut each: impl FnMut(u32) -> (TokenId, f32)) -> Predictions {
    let mut out = Predictions { lanes: 1, ..Predictions::default() };
    out.positions.set_union(&[&request.plan.predict, &request.plan.must, &request.plan.hint]);
    for position in out.positions.clone().iter() {
        let (token, confidence) = each(position);
        out.tokens.push(token);
        out.confidence.push(confidence);
        out.margin.push(confidence);
        out.entropy.push(if confidence > 0.5 { 1e-3 } else { 100.0 });
    }
    out
}

/// Runs a session whose every forward is made to compute all rows of the canvas in all layers.
pub fn run_all_live(options: SessionOptions, seed: u64) -> Vec<Vec<(u32, TokenId)>> {
    let mut script = Scripted::new(seed, VOCAB, options.facts.shift);
    let mut session = Session::new(options).unwrap();
    let length = session.layout().len();
    let needs = SequenceLimits { rows: length, ..session.needs()[0].limits.clone() };
    let id = script.open(&needs).unwrap();
    let mut steps = Vec::new();
    while session.wants() == Some(0) {
        let mut request = session.requests()[0].clone();
        request.plan.query.set_range(0..length as u32);
        (request.plan.kv_len, request.plan.layers) = (length as u32, LayerRows::All);
        request.tokens = session.canvas().to_vec();
        let mut out = [Predictions::default()];
        script.step(&[request.step(id)], &mut out).unwrap();
        session.feed(&out);
        let commit = |event| match event {
            Event::Commit { position, token, .. } => Some((position, token)),
            _ => None,
        };
        steps.push(session.events().filter_map(commit).collect());
    }
    steps
}
