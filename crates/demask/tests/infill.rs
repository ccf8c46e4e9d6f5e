//! Texts that are filled: in pieces, so that nothing a user writes becomes a hole, and told hole by hole.

use std::ops::ControlFlow;

use demask::{Error, Event, Model, Options, Prompt, Segment};

use crate::batch::load;

fn text(text: &str) -> Segment {
    Segment::Text(text.to_owned())
}

fn refusal(model: &mut Model, prompt: Prompt) -> String {
    let error = model.generate_with(prompt, &Options::default()).unwrap_err();
    assert!(error.is_usage(), "{error}");
    error.to_string()
}

#[test]
fn pieces_are_filled_as_the_text_with_holes_is() {
    let model = Model::demo().unwrap();
    let segments = vec![
        text("Ada has "),
        text("3 pears. Ben gives Ada"),
        Segment::Hole(1),
        text(" more. How many are"),
        Segment::Hole(3),
    ];
    let prompt = Prompt::Segments(segments);
    let written = "Ada has 3 pears. Ben gives Ada<mask:1> more. How many are<mask:3>";
    assert_eq!(model.info().in_words(&prompt).unwrap(), written);
    assert_eq!(prompt.length(), written.len());
    let found = model.generate_with(prompt, &Options::default()).unwrap();
    let expected = model.infill(written, &Options::default()).unwrap();
    assert_eq!((&found.tokens, &found.text, &found.holes), (&expected.tokens, &expected.text, &expected.holes));
    let [first, second] = &found.holes[..] else { panic!("two holes: {:?}", found.holes) };
    assert!(!first.is_empty() && !second.is_empty());
    let whole = format!("Ada has 3 pears. Ben gives Ada{first} more. How many are{second}");
    assert_eq!(found.text, Some(whole));
    // What was decoded is told from what was there: between the holes, and in front of them.
    assert_eq!((found.generated_tokens, found.receipt.decoding.generated_tokens), (4, 4));
    let [one, three] = &found.hole_positions[..] else { panic!("two holes: {:?}", found.hole_positions) };
    assert_eq!((one.len(), three.len(), one.start), (1, 3, found.prompt_tokens));
    assert_eq!(found.tokens.len(), three.end - one.start, "the last hole ends the text");
    let tokenizer = model.info().tokenizer().unwrap();
    assert_eq!(&tokenizer.decode(&found.canvas[three.clone()], true), second);
}

#[test]
fn holes_have_two_spellings_but_one_in_a_text() {
    let mut model = Model::demo().unwrap();
    let filled = |text: &str| model.infill(text, &Options::default()).unwrap();
    let (angles, brackets) = (filled("3+4=<mask:1> [[x]] pears<mask:2>"), filled("3+4=[[1]] [[x]] pears[[ 2 ]]"));
    assert_eq!((&brackets.tokens, &brackets.holes), (&angles.tokens, &angles.holes));
    // A list in a list of code that has the other kind of hole stays what it is.
    let code = filled("a = [[1]]; b = <mask:1>");
    assert_eq!(code.holes.len(), 1);
    assert!(code.text.unwrap().starts_with("a = [[1]]; b = "));
    let zero = refusal(&mut model, Prompt::Infill("3+4=[[0]]".into()));
    assert_eq!(zero, "\"0\" is not the size of a hole: write <mask:N> with N from 1 to the model's context");
    let none = refusal(&mut model, Prompt::Infill("3+4=[[x]]".into()));
    assert_eq!(none, "the text to fill has no hole: write <mask:N> where N tokens are missing");
}

#[test]
fn what_a_user_writes_becomes_no_hole() {
    let mut model = Model::demo().unwrap();
    let options = Options::default();
    let prompt = Prompt::Segments(vec![text("Ada has <mask:5> pears and"), Segment::Hole(2), text(" cards <mask:x>.")]);
    let answer = model.generate_with(prompt, &options).unwrap();
    assert_eq!((answer.holes.len(), answer.receipt.decoding.nfe), (1, 2));
    let filled = answer.text.unwrap();
    assert!(filled.starts_with("Ada has <mask:5> pears and") && filled.ends_with(" cards <mask:x>."), "{filled}");
    let told = "the prompt contains the model's mask token: remove it, or write holes as <mask:N> and use `infill`";
    let mask = "Ada has <|mdm_mask|> pears and";
    assert_eq!(refusal(&mut model, Prompt::Segments(vec![text(mask), Segment::Hole(2)])), told);
    assert_eq!(refusal(&mut model, Prompt::Infill(format!("{mask} <mask:2>"))), told);
    // Not even in two pieces.
    let halves = vec![text("Ada has <|mdm_"), text("mask|> pears"), Segment::Hole(2)];
    assert_eq!(refusal(&mut model, Prompt::Segments(halves)), told);
}

#[test]
fn pieces_that_cannot_be_filled_are_refused() {
    let mut model = Model::demo().unwrap();
    let context = model.info().facts().context;
    for segments in [vec![], vec![text("no hole")], vec![text("<mask:3>")]] {
        assert!(refusal(&mut model, Prompt::Segments(segments)).starts_with("the text to fill has no hole"));
    }
    for size in [0, context + 1, usize::MAX] {
        let told = refusal(&mut model, Prompt::Segments(vec![text("a"), Segment::Hole(size)]));
        assert!(told.starts_with(&format!("\"{size}\" is not the size of a hole")), "{told}");
    }
    // Many that fit one by one are refused before they are laid out.
    let many = vec![Segment::Hole(context); 100_000];
    assert!(refusal(&mut model, Prompt::Segments(many)).contains("exceed the model's context"));
    let ar = load("demo-qwen");
    let prompt = Prompt::Segments(vec![text("a"), Segment::Hole(1)]);
    assert!(matches!(ar.generate_with(prompt, &Options::default()).unwrap_err(), Error::InfillUnsupported { .. }));
}

#[test]
fn a_hole_is_told_once_it_can_no_longer_change() {
    let model = Model::demo().unwrap();
    let prompt =
        Prompt::Segments(vec![Segment::Hole(2), text(" has 3 pears. Ben gives Ada"), Segment::Hole(3), text(" more.")]);
    let (mut told, mut holes, mut canvas) = (Vec::new(), Vec::new(), Vec::new());
    let mask = model.info().facts().mask_id.unwrap();
    let answer = model
        .watch(&prompt, &Options::default(), &mut |event| {
            match event {
                Event::Started(started) => (holes, canvas) = (started.holes.clone(), started.canvas.clone()),
                &Event::Commit { position, token, .. } => canvas[position as usize] = token,
                Event::Hole { index, text } => {
                    assert!(!canvas[holes[*index].clone()].contains(&mask), "nothing is missing in it");
                    told.push((*index, text.clone()));
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    told.sort();
    assert_eq!(told, answer.holes.iter().cloned().enumerate().collect::<Vec<_>>());
    // The same where events are merged.
    let (mut mailed, mut started) = (Vec::new(), None);
    for event in model.stream(prompt, &Options::default()).unwrap() {
        match event {
            Event::Hole { index, text } => mailed.push((index, text)),
            Event::Started(found) => started = Some(found),
            _ => {}
        }
    }
    mailed.sort();
    assert_eq!((mailed, started.unwrap().holes), (told, holes));
}
