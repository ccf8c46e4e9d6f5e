//! Updates that a reader of mail gets while an answer is made, whether it reads often or late.

use demask::{Class, Mail, Model, Options, Prompt, Update};

use crate::batch::{load, question};

fn options(decoder: &str) -> Options {
    Options {
        decoder: Some(decoder.parse().unwrap()),
        gen_length: Some(32),
        block_length: Some(8),
        top_logprobs: Some(2),
        ..Options::default()
    }
}

/// All updates of an answer, and it.
fn read(model: &mut Model, prompt: Prompt, options: &Options) -> (Vec<Update>, demask::Generation) {
    let mut updates = Vec::new();
    for mail in model.stream(prompt, options).unwrap() {
        match mail {
            Mail::Update(update) => updates.push(update),
            Mail::Over(answer) => return (updates, answer.unwrap()),
        }
    }
    panic!("a stream ends with an end");
}

#[test]
fn an_update_says_what_was_done_and_what_is_left() {
    let mut model = load("demo-llada");
    for decoder in ["static", "freedave:d=4"] {
        let (updates, answer) = read(&mut model, question(1), &options(decoder));
        let started = updates[0].started.as_ref().unwrap();
        assert_eq!((started.prompt_tokens, started.positions, started.block_length), (answer.prompt_tokens, 32, 8));
        assert_eq!(started.canvas.len(), answer.prompt_tokens + 32);
        let receipt = &answer.receipt.decoding;
        assert_eq!((&started.decoder, &started.cache), (&receipt.decoder, &receipt.cache));
        assert!(started.holes.is_empty() && updates[1..].iter().all(|update| update.started.is_none()));
        let mut masks = 32;
        for update in &updates {
            masks -= update.commits.len();
            assert_eq!(update.masks, masks, "{decoder}");
            assert!(update.commits.iter().all(|commit| commit.top.len() == 2 && commit.logprob.is_some()));
            let steps: Vec<_> = update.forwards.iter().map(|forward| forward.step).collect();
            assert!(update.commits.iter().all(|commit| steps.contains(&commit.step)), "{decoder}");
        }
        assert!(updates.windows(2).all(|pair| pair[0].settled <= pair[1].settled));
        assert_eq!(updates.last().unwrap().settled, answer.tokens.len());
        let forwards: Vec<_> = updates.iter().flat_map(|update| &update.forwards).collect();
        assert_eq!(forwards.len(), receipt.forwards);
        assert!(forwards.iter().enumerate().all(|(index, forward)| forward.step == index));
        assert_eq!(forwards.iter().map(|forward| forward.rows).sum::<usize>(), receipt.rows);
        assert_eq!(forwards.last().unwrap().nfe, receipt.nfe);
        let drafted: usize = forwards.iter().map(|forward| forward.accepted).sum();
        assert_eq!(drafted > 0, decoder != "static");
    }
}

#[test]
fn a_reader_that_comes_late_is_told_everything_at_once() {
    let engine = load("demo-llada").into_engine().unwrap();
    let prompt = question(1);
    let ticket = engine.handle().generate(&prompt, &options("static"), Class::default()).unwrap();
    let handle = engine.handle();
    engine.drain();
    assert_eq!(handle.counters().mailboxes, 0);
    let mails: Vec<_> = ticket.collect();
    let [Mail::Update(update), Mail::Over(Ok(answer))] = &mails[..] else { panic!("{mails:?}") };
    assert!(update.started.is_some());
    assert_eq!(Some(&update.text), answer.text.as_ref());
    assert_eq!((update.forwards.len(), update.dropped), (answer.receipt.decoding.forwards, 0));
    assert_eq!(update.settled, answer.tokens.len());
}
