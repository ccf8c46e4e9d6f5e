//! Events that a reader gets while an answer is made, whether it reads often or late.

use std::task::{Context, Poll, Waker};

use demask::{Event, Options};

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

#[test]
fn events_say_what_was_done_and_what_is_left() {
    let model = load("demo-llada");
    for decoder in ["static", "freedave:d=4"] {
        let mut handle = model.stream(question(1), &options(decoder)).unwrap();
        let events: Vec<Event> = handle.by_ref().collect();
        let answer = handle.result().unwrap();
        let Event::Started(started) = &events[0] else { panic!("the canvas comes first: {:?}", events[0]) };
        assert_eq!((started.prompt_tokens, started.positions, started.block_length), (answer.prompt_tokens, 32, 8));
        assert_eq!((started.canvas.len(), started.masks), (answer.prompt_tokens + 32, 32));
        let receipt = &answer.receipt.decoding;
        assert_eq!((&started.decoder, &started.cache), (&receipt.decoder, &receipt.cache));
        assert!(started.holes.is_empty());
        assert!(events[1..].iter().all(|event| !matches!(event, Event::Started(_))));
        let (mut text, mut commits, mut logprobs, mut steps) = (String::new(), Vec::new(), 0, Vec::new());
        for event in &events {
            match event {
                Event::Text(more) => text.push_str(more),
                Event::Commit { step, .. } => commits.push(*step),
                Event::Logprob { logprob, top, .. } => {
                    assert!(logprob.is_some() && top.len() == 2);
                    logprobs += 1;
                }
                &Event::Step { step, nfe, rows, accepted, masks, settled, merged, .. } => {
                    assert_eq!((step, masks, merged), (steps.len(), 32 - commits.len(), 0), "{decoder}");
                    assert!(commits.iter().all(|&of| of <= step));
                    steps.push((nfe, rows, accepted, settled));
                }
                _ => {}
            }
        }
        assert_eq!((Some(text), logprobs), (answer.text, commits.len()));
        assert_eq!(steps.len(), receipt.forwards);
        assert!(steps.windows(2).all(|pair| pair[0].3 <= pair[1].3));
        assert_eq!(steps.last().map(|&(nfe, .., settled)| (nfe, settled)), Some((receipt.nfe, answer.tokens.len())));
        assert_eq!(steps.iter().map(|(_, rows, ..)| rows).sum::<usize>(), receipt.rows);
        assert_eq!(steps.iter().map(|(.., accepted, _)| accepted).sum::<usize>() > 0, decoder != "static");
        assert_eq!(events.last(), Some(&Event::Finished(answer.finish)));
    }
}

#[test]
fn a_reader_that_comes_late_gets_everything_at_once() {
    let model = load("demo-llada");
    let mut handle = model.stream(question(1), &options("static")).unwrap();
    model.drain();
    let context = &mut Context::from_waker(Waker::noop());
    let Poll::Ready(Some(events)) = handle.poll_events(context) else { panic!("it is over") };
    assert!(matches!(handle.poll_events(context), Poll::Ready(None)));
    let answer = handle.result().unwrap();
    let texts: Vec<_> = events.iter().filter(|event| matches!(event, Event::Text(_))).collect();
    assert_eq!(texts, [&Event::Text(answer.text.unwrap())]);
    let steps = events.iter().filter(|event| matches!(event, Event::Step { merged: 0, .. })).count();
    assert_eq!(steps, answer.receipt.decoding.forwards);
    assert!(matches!(events[0], Event::Started(_)));
}
