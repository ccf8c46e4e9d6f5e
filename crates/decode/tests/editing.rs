//! Decoders that revise what they have written: `edit` and `p2` (specs/families.md#6.6 and specs/families.md#2).

use demask_decode::{Event, Finish, Session, SessionOptions, StopRule};
use demask_step::{Job, Mask, Network, Predictions, TokenId};
use demask_testkit::{by_hand::ByHand, property, scripted::Scripted};
use proptest::prelude::*;

use crate::common::{EOS, MASK_ID, Run, VOCAB, drive, drive_on, options, predict};

/// What a forward predicts: token and confidence at positions 2 to 5, which are two blocks' worth of no more than that.
type Said = [(TokenId, f32); 4];

/// Options of a response of so many tokens behind a prompt of four, which is a block.
fn edited(decoder: &str, cache: &str, gen_length: usize) -> SessionOptions {
    let mut options = options(Mask::blocks(4), 0, 4, gen_length);
    (options.decoder, options.cache) = (decoder.parse().unwrap(), cache.parse().unwrap());
    SessionOptions { stop: StopRule::Never, end_ids: vec![EOS], ..options }
}

/// Plays forwards by hand, the last one to the end; of each block the positions are those of [`Said`].
fn play(session: &mut Session, said: &[Said]) -> Run {
    let mut predicted = 0;
    drive(session, |_, requests| {
        let maintenance = requests[0].plan.predict.is_empty();
        let said = said[predicted.min(said.len() - 1)];
        predicted += usize::from(!maintenance);
        vec![predict(&requests[0], |position| said[position as usize % 4])]
    })
}

/// Writes down what was written in each forward: `position=token`, with the token that stood there in front.
fn written(run: &Run) -> Vec<String> {
    let (mut steps, mut step) = (Vec::new(), Vec::new());
    for event in &run.events {
        match *event {
            Event::Commit { position, token, .. } => step.push(format!("{position}={token}")),
            Event::Replace { position, from, to: Some(to), .. } => step.push(format!("{position}:{from}={to}")),
            Event::Replace { position, from, to: None, .. } => step.push(format!("{position}:{from}=mask")),
            Event::Step { .. } => steps.push(std::mem::take(&mut step).join(" ")),
            _ => unreachable!(),
        }
    }
    steps
}

const REST: Said = [(5, 0.97), (6, 0.97), (7, 0.97), (8, 0.97)];

#[test]
fn a_block_is_filled_and_edited_until_it_comes_to_rest() {
    let said = [
        [(5, 0.99), (6, 0.5), (7, 0.96), (8, 0.2)],
        // Not sure enough to edit, sure enough, the best of the masks.
        [(9, 0.9), (6, 0.5), (9, 0.91), (8, 0.2)],
        REST,
        REST,
    ];
    let mut session = Session::new(edited("edit", "none", 4)).unwrap();
    let run = play(&mut session, &said);
    assert_eq!(written(&run), ["4=5 6=7", "5=6 6:7=9", "7=8 6:9=7", ""]);
    assert_eq!((session.counts().nfe, session.counts().commits, session.counts().replaced), (4, 4, 2));
    assert_eq!((run.output.tokens, session.receipt().replaced), (vec![5, 6, 7, 8], 2));
    assert_eq!(session.exactness().name(), "reference");
}

#[test]
fn the_pass_that_changes_nothing_stores_its_block_and_no_other_does() {
    let forwards = |post: usize, cache: &str| {
        let mut session = Session::new(edited(&format!("edit:post={post}"), cache, 8)).unwrap();
        let mut rows = Vec::new();
        drive(&mut session, |_, requests| {
            rows.push(requests[0].plan.to_string());
            vec![predict(&requests[0], |position| REST[position as usize % 4])]
        });
        rows
    };
    let block = |first: usize| format!("live {first}..{0} visible {0} block-causal:4 canvas", first + 4);
    let [read, first, second] = [0, 4, 8].map(block);
    let predicting = |block: &str, first: usize| format!("{block} predict {first}..{}", first + 4);
    let [one, two] = [predicting(&first, 4), predicting(&second, 8)];
    let alone = |post: usize| forwards(post, "block:store=alone");
    assert_eq!(alone(16), [&read, &one, &one, &two, &two].map(String::as_str), "at rest");
    assert_eq!(alone(0), [&read, &one, &first, &two, &second].map(String::as_str), "by the budget: stored again");
    let [with_read, with_first] = [(0, 4), (4, 8)].map(|(from, first)| {
        format!("live {from}..{0} visible {0} block-causal:4 canvas predict {first}..{0}", first + 4)
    });
    assert_eq!(forwards(16, "block"), [&with_read, &one, &two, &two].map(String::as_str), "at rest");
    assert_eq!(forwards(0, "block"), [&with_read, &with_first].map(String::as_str), "with the next block");
}

#[test]
fn nothing_of_an_open_block_is_settled_or_ends_the_text() {
    let ended = [(EOS, 0.99), (6, 0.99), (7, 0.99), (8, 0.99)];
    for stop in [StopRule::Prefix, StopRule::Block, StopRule::FillBehind] {
        let mut session = Session::new(SessionOptions { stop, ..edited("edit", "none", 4) }).unwrap();
        for said in [ended, REST, REST] {
            let predictions = predict(&session.requests()[0], |position| said[position as usize % 4]);
            assert_eq!((session.settled(), session.is_over()), (0, false), "{stop:?}");
            session.feed(&[predictions]);
            assert_eq!(session.masks(), 0);
        }
        let output = session.output();
        assert!(session.is_over(), "{stop:?}");
        assert_eq!((output.tokens, output.finish), (vec![5, 6, 7, 8], Finish::Length), "the end was edited away");
    }
    let stays = [[(5, 0.99), (EOS, 0.99), (7, 0.99), (8, 0.99)]];
    let mut session =
        Session::new(SessionOptions { stop: StopRule::FillBehind, ..edited("edit", "block", 12) }).unwrap();
    let run = play(&mut session, &stays);
    assert_eq!((run.output.tokens, run.output.finish), (vec![5, EOS], Finish::Eos));
    assert_eq!(run.output.canvas[8..], [EOS; 8], "later blocks are filled and closed");
}

#[test]
fn two_tokens_that_replace_each_other_are_ended_by_the_budget() {
    let swaps = [[(5, 0.97); 4], [(6, 0.97); 4], [(5, 0.97); 4], [(6, 0.97); 4], [(5, 0.97); 4]];
    for (decoder, nfe, token) in [
        ("edit:post=3", 4, 6),
        ("edit:post=3,confirm", 5, 6),
        ("edit:post=0", 1, 5),
        ("edit:post=0,confirm", 2, 5),
        ("edit:edit=1", 2, 5),
    ] {
        let mut session = Session::new(edited(decoder, "none", 4)).unwrap();
        let run = play(&mut session, &swaps);
        assert_eq!((session.counts().nfe, run.output.tokens), (nfe, vec![token; 4]), "{decoder}");
    }
}

#[test]
fn a_log_probability_is_that_of_the_last_write() {
    let said = [
        [(5, 0.5), (6, 0.99), (7, 0.99), (8, 0.99)],
        [(5, 0.75), (9, 0.92), (7, 0.2), (8, 0.99)],
        [(4, 0.25), (9, 0.99), (2, 0.3), (8, 0.99)],
    ];
    let options = SessionOptions { top_logprobs: Some(0), ..edited("edit:tau=0.4", "none", 4) };
    let mut session = Session::new(options).unwrap();
    play(&mut session, &said);
    let told = [4, 5, 6, 7].map(|position| session.logprob(position).unwrap().log_probability);
    assert_eq!(told, [0.5f32, 0.92, 0.99, 0.99].map(f32::ln));
}

#[test]
fn p2_takes_tokens_back_and_keeps_what_stands() {
    let mut options = options(Mask::Full, 0, 4, 4);
    options.decoder = "p2".parse().unwrap();
    let mut session = Session::new(SessionOptions { end_ids: vec![EOS], ..options }).unwrap();
    let said = [
        [(EOS, 0.9), (6, 0.5), (7, 0.4), (8, 0.2)],
        [(5, 0.1), (6, 0.5), (7, 0.4), (8, 0.2)],
        [(5, 0.3), (9, 0.8), (7, 0.4), (8, 0.2)],
        REST,
    ];
    let run = play(&mut session, &said);
    assert_eq!(written(&run), [&format!("4={EOS}"), &format!("5=6 6=7 4:{EOS}=mask"), "4=5", "7=8"]);
    assert_eq!((run.output.tokens, run.output.finish), (vec![5, 6, 7, 8], Finish::Length));
    assert_eq!((session.counts().commits, session.counts().replaced), (5, 1));
}

#[test]
fn what_cannot_follow_is_refused() {
    let refusal = |options: SessionOptions| Session::new(options).map(|_| ()).unwrap_err().to_string();
    assert_eq!(
        refusal(edited("edit", "block:live=dual", 8)),
        "decoder edit changes tokens that it has written, and cache block:live=dual takes them as final: use cache none \
         or block"
    );
    for cache in ["prefix", "dual", "dkv", "dllm", "freecache"] {
        let mut options = options(Mask::Full, 0, 4, 8);
        (options.decoder, options.cache) = ("p2".parse().unwrap(), cache.parse().unwrap());
        let refused = refusal(options);
        assert!(refused.ends_with("takes them as final: use cache none"), "{refused}");
    }
    let mut seeded = edited("edit", "block", 8);
    seeded.facts.blocks.seeds = true;
    assert!(refusal(seeded).contains("use decoder threshold"));
    let warm = SessionOptions { temperature: 1.0, ..edited("edit:penalty=1", "none", 8) };
    assert!(refusal(warm).contains("edit with a penalty"));
}

/// A random case of editing: seed, prompt, response, decoder, temperature.
fn case() -> impl Strategy<Value = (u64, usize, usize, String, f32)> {
    let decoder = (0.0f32..1.0, 0.0f32..1.0, 0usize..6, 1usize..4, any::<bool>());
    let decoder = decoder.prop_map(|(tau, edit, post, least, confirm)| {
        format!("edit:tau={tau},edit={edit},post={post},least={least},confirm={confirm}")
    });
    (any::<u64>(), 1usize..10, 1usize..20, decoder, prop_oneof![Just(0.0f32), Just(0.8)])
}

fn random(seed: u64, prompt: usize, gen_length: usize, decoder: &str, temperature: f32) -> SessionOptions {
    let mut options = options(Mask::blocks(4), 0, prompt, gen_length);
    options.decoder = decoder.parse().unwrap();
    SessionOptions { temperature, seed, stop: StopRule::Never, ..options }
}

fn run(seed: u64, options: SessionOptions) -> (Run, Session) {
    let mut script = Scripted::new(seed, VOCAB, 0).with_spread(8.0);
    let mut session = Session::new(options).unwrap();
    (drive_on(&mut script, &mut session), session)
}

proptest! {
    #![proptest_config(property::cases(200))]

    /// Each forward's draws are keyed by what was given and written before, so no draw is made twice; no token before the
    /// settled ones changes; and a block takes no more forwards than its masks and its budget.
    #[test]
    fn editing_ends_in_time_and_touches_nothing_settled((seed, prompt, gen_length, decoder, temperature) in case()) {
        let options = random(seed, prompt, gen_length, &decoder, temperature);
        let passes = options.traits().revises.unwrap();
        let mut session = Session::new(SessionOptions { cache: "none".parse().unwrap(), ..options }).unwrap();
        let mut script = Scripted::new(seed, VOCAB, 0).with_spread(8.0);
        let id = script.open(&session.needs()[0].limits).unwrap();
        let (mut tokens, mut writes, mut forwards) = (session.canvas().to_vec(), prompt, vec![0; 10]);
        while session.wants() == Some(0) {
            let request = session.requests()[0].clone();
            prop_assert_eq!(&request.ask.states, &[writes as u32]);
            forwards[request.plan.predict.last().unwrap() as usize / 4] += 1;
            let settled = prompt + session.settled();
            let mut out = [Predictions::default()];
            script.step(&[request.step(id)], &mut out).unwrap();
            session.feed(&out);
            for event in session.events() {
                let (position, from, to) = match event {
                    Event::Commit { position, token, .. } => (position as usize, MASK_ID, token),
                    Event::Replace { position, from, to, .. } => (position as usize, from, to.unwrap()),
                    _ => continue,
                };
                prop_assert!(position >= settled && from != to);
                prop_assert_eq!(std::mem::replace(&mut tokens[position], to), from);
                writes += 1;
            }
            prop_assert_eq!(session.canvas(), &tokens[..]);
        }
        prop_assert!(!tokens.contains(&MASK_ID));
        prop_assert!(forwards.iter().all(|&forwards| forwards <= 4 + passes), "{forwards:?}");
    }

    /// The exact cache, and a second run, write what a run without any cache writes, forward by forward.
    #[test]
    fn editing_is_the_same_over_the_block_cache((seed, prompt, gen_length, decoder, temperature) in case()) {
        let with = |cache: &str| {
            let options = random(seed, prompt, gen_length, &decoder, temperature);
            let (found, session) = run(seed, SessionOptions { cache: cache.parse().unwrap(), ..options });
            let steps: Vec<String> = written(&found).into_iter().filter(|step| !step.is_empty()).collect();
            (steps, found.output.canvas, session.exactness())
        };
        let expected = with("none");
        prop_assert_eq!(&with("none"), &expected);
        prop_assert_eq!(&with("block"), &expected);
    }

    /// Without edits and without passes behind the last mask it is a strict threshold.
    #[test]
    fn without_edits_it_is_a_threshold(
        (seed, prompt, gen_length, _, temperature) in case(),
        tau in 0.0f32..1.0,
    ) {
        let with = |decoder: &str| written(&run(seed, random(seed, prompt, gen_length, decoder, temperature)).0);
        prop_assert_eq!(with(&format!("edit:tau={tau},edit=1,post=0")), with(&format!("threshold:tau={tau},strict")));
    }
}
