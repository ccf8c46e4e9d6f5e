//! Decoders that revise what they have written, from the prompt to the text: the tokens that are reported, the end, the record.

use std::ops::ControlFlow;

use demask::{Event, Finish, Generation, Model, Options, TraceLine};

use crate::batch::{by_hand, load, question, same, together};

/// Editing that finds much to change in a model that is not trained for it.
const RESTLESS: &str = "edit:tau=0.2,edit=0.05,post=3";

fn options(cache: &str) -> Options {
    Options {
        decoder: Some(RESTLESS.parse().unwrap()),
        cache: Some(cache.parse().unwrap()),
        block_length: Some(8),
        gen_length: Some(48),
        ..Options::default()
    }
}

/// The answer, and after each forward the number of settled tokens and the text that came with it.
fn streamed(model: &mut Model, options: &Options) -> (Generation, Vec<(usize, String)>, usize) {
    let (mut told, mut replaced, mut text) = (Vec::new(), 0, String::new());
    let request = model.prepare(&question(1), options).unwrap();
    let answer = model.answer(request, &mut |event| {
        match event {
            Event::Replace { .. } => replaced += 1,
            Event::Text(more) => text.push_str(more),
            Event::Step { settled, .. } => told.push((*settled, std::mem::take(&mut text))),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    (answer.unwrap(), told, replaced)
}

#[test]
fn text_is_told_and_stopped_at_the_ends_of_blocks() {
    let mut model = load("demo-sdar");
    let (whole, told, replaced) = streamed(&mut model, &options("block"));
    assert!(replaced > 0 && replaced == whole.receipt.decoding.replaced, "{replaced} edits");
    let ends = |position: usize| (whole.prompt_tokens + position).is_multiple_of(8) || position == whole.tokens.len();
    assert!(told.iter().all(|(settled, _)| *settled == 0 || ends(*settled)), "{told:?}");
    let text: String = told.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(Some(text.trim_end()), whole.text.as_deref().map(str::trim_end));
    // A stop text that ends within a block is found once the block is closed.
    let stop = text.get(2..5).unwrap().to_owned();
    let options = Options { stop: Some(vec![stop.clone()]), ..options("block") };
    let (stopped, _, _) = streamed(&mut model, &options);
    assert_eq!((stopped.finish, stopped.stop_text), (Finish::Stop, Some(stop)));
    let last = (stopped.prompt_tokens + stopped.tokens.len() - 1) / 8 * 8;
    assert_eq!(stopped.canvas[..last + 8], whole.canvas[..last + 8], "the whole block was decoded");
}

#[test]
fn answers_do_not_depend_on_neighbours_or_the_cache() {
    let mut model = by_hand("demo-sdar");
    let request = |index: usize, cache: &str| {
        let temperature = Some([0.0, 0.7][index % 2]);
        (question(index), Options { temperature, seed: Some(index as u64), ..options(cache) })
    };
    let requests: Vec<_> = (0..6).map(|index| request(index, ["none", "block"][index / 3])).collect();
    let alone: Vec<_> = requests.iter().map(|one| together(&mut model, std::slice::from_ref(one), 1)).collect();
    let found = together(&mut model, &requests, 4);
    alone.iter().zip(&found).for_each(|(alone, found)| same(&alone[0], found));
    for index in 0..3 {
        let pair = ["none", "block"].map(|cache| request(index, cache));
        let found = together(&mut model, &pair, 1);
        assert_eq!(found[0].canvas, found[1].canvas);
        assert_eq!(found[0].receipt.decoding.exactness.name(), "reference");
    }
}

#[test]
fn a_trace_replays_to_the_canvas() {
    for (name, decoder) in [("demo-sdar", RESTLESS), ("demo-dream", "p2")] {
        let model = load(name);
        let cache = Some("none".parse().unwrap());
        let options =
            Options { decoder: Some(decoder.parse().unwrap()), cache, gen_length: Some(32), ..Options::default() };
        let (answer, lines) = model.trace(question(2), &options).unwrap();
        let mask = model.info().facts().mask_id.unwrap();
        let mut canvas = answer.canvas[..answer.prompt_tokens].to_vec();
        canvas.resize(answer.canvas.len(), mask);
        let mut changes = 0;
        for line in lines {
            match line {
                TraceLine::Commit { position, token, .. } => {
                    assert_eq!(std::mem::replace(&mut canvas[position as usize], token), mask);
                }
                TraceLine::Replace { at, from, to, .. } => {
                    changes += 1;
                    assert_eq!(std::mem::replace(&mut canvas[at as usize], to.unwrap_or(mask)), from);
                    assert_eq!(to.is_none(), decoder == "p2");
                }
                _ => {}
            }
        }
        assert_eq!((changes > 0, &canvas), (true, &answer.canvas), "{name}");
    }
}
