//! Public library as a program meets it that knows nothing behind it.

use demask::{Chat, Error, Event, Finish, LikelihoodOptions, Model, Options, Prompt};

#[allow(dead_code)]
#[path = "../examples/answer.rs"]
mod answer;
#[allow(dead_code)]
#[path = "../examples/engine.rs"]
mod engine;
#[allow(dead_code)]
#[path = "../examples/stream.rs"]
mod stream;

const QUESTION: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

fn demo() -> Model {
    Model::demo().unwrap()
}

#[test]
fn the_examples_do_what_they_say() {
    let answer = answer::ask(QUESTION, None).unwrap();
    assert_eq!(answer.to_string(), "3+4=7 pears.\nThe final answer is 7");
    let (model, mut shown) = (demo(), Vec::new());
    let slow = Options { decoder: Some("static".parse().unwrap()), ..Options::default() };
    stream::show(&model, &slow, &mut shown).unwrap();
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.starts_with("13+5=18 pears.\nThe final answer is 18 (") && shown.ends_with(" NFE)\n"), "{shown}");
    assert_eq!(stream::give_up(&model, &slow, 2).unwrap(), 2);
    let questions = [QUESTION, "Ada has 13 pears. Ben gives Ada 5 more. How many pears are there in the end?"];
    let answers = engine::ask(&model, &questions).unwrap();
    assert_eq!(
        answers.iter().map(|answer| answer.text.clone().unwrap()).collect::<Vec<_>>(),
        ["3+4=7 pears.\nThe final answer is 7", "13+5=18 pears.\nThe final answer is 18",]
    );
    model.drain();
}

#[test]
fn a_stream_that_is_dropped_leaves_nothing_behind() {
    let model = demo();
    let alone = model.generate(QUESTION).unwrap();
    let slow = Options { decoder: Some("static".parse().unwrap()), ..Options::default() };
    for pieces in 0..4 {
        let taken = model.stream(QUESTION, &slow).unwrap().take(pieces).count();
        assert_eq!(taken, pieces);
        assert!(model.is_idle(), "after {pieces} pieces");
    }
    assert_eq!(model.generate(QUESTION).unwrap().tokens, alone.tokens);
}

#[test]
fn a_stream_is_the_answer_in_pieces() {
    let model = demo();
    let alone = model.generate(QUESTION).unwrap();
    let (mut text, mut commits) = (String::new(), 0);
    let mut handle = model.stream(QUESTION, &Options::default()).unwrap();
    for event in handle.by_ref() {
        match event {
            Event::Text(more) => text += &more,
            Event::Commit { .. } => commits += 1,
            _ => {}
        }
    }
    let last = handle.result().unwrap();
    assert_eq!((Some(&text), &last.tokens), (alone.text.as_ref(), &alone.tokens));
    assert!(commits >= last.generated_tokens && last.finish == Finish::Eos);
}

#[test]
fn a_batch_has_the_answers_in_order_and_refusals_in_their_places() {
    let model = demo();
    let prompts = [Prompt::from(QUESTION), Prompt::Tokens(vec![u32::MAX]), Prompt::user("Ada has 5 pears.", None)];
    let alone = model.generate(QUESTION).unwrap();
    let answers = model.batch(prompts, &Options::default());
    assert_eq!(answers[0].as_ref().unwrap().tokens, alone.tokens);
    assert!(matches!(answers[1], Err(Error::TokenOutOfRange { .. })) && answers[2].is_ok());
}

#[test]
fn a_conversation_grows_by_what_was_said_and_forgets() {
    let (model, mut chat) = (demo(), Chat::new(Some("Answer in one line.")));
    let first = chat.say(&model, QUESTION).unwrap();
    assert_eq!(chat.messages().len(), 3);
    assert_eq!(chat.messages()[2].content, first.to_string());
    // What cannot be said is not part of the conversation.
    assert!(chat.say(&model, "pears ".repeat(10_000)).unwrap_err().is_usage());
    assert_eq!(chat.messages().len(), 3);
    chat.reset();
    assert_eq!(chat.messages().len(), 1);
    assert_eq!(chat.say(&model, QUESTION).unwrap().tokens, first.tokens);
}

#[test]
fn turns_are_forgotten_and_taken_back_and_the_system_message_stays() {
    let mut chat = Chat::new(Some("Be brief."));
    for turn in ["a", "b", "c"] {
        chat.heard(turn, turn.to_uppercase());
    }
    assert_eq!(chat.take_back(), Some(("c".to_owned(), "C".to_owned())));
    chat.forget(1);
    let said = |chat: &Chat| chat.messages().iter().map(|message| message.content.clone()).collect::<Vec<_>>();
    assert_eq!(
        (said(&chat), chat.turns(), chat.system()),
        (vec!["Be brief.".into(), "b".into(), "B".into()], 1, Some("Be brief."))
    );
    chat.set_system(None);
    assert_eq!((said(&chat).len(), chat.system(), chat.turns()), (2, None, 1));
    chat.set_system(Some("Be kind."));
    chat.set_system(Some("Be bold."));
    assert_eq!(said(&chat), ["Be bold.", "b", "B"]);
    assert!(chat.take_back().is_some() && chat.take_back().is_none());
    assert_eq!(said(&chat), ["Be bold."]);
}

#[test]
fn texts_are_filled_in_judged_and_traced() {
    let model = demo();
    let filled = model.infill("3+4=<mask:1> pears.", &Options::default()).unwrap();
    assert!(filled.to_string().starts_with("3+4="));
    let options = LikelihoodOptions { draws: 32, ..LikelihoodOptions::default() };
    let score = |text: &str| model.score(QUESTION, text, &options).unwrap().log_probability;
    assert!(score("3+4=7 pears.") > score("3+4=9 pears."));
    let (answer, lines) = model.trace(QUESTION, &Options::default()).unwrap();
    let commits = lines.iter().filter(|line| matches!(line, demask::TraceLine::Commit { .. })).count();
    assert!(matches!(lines[0], demask::TraceLine::Header { .. }) && commits >= answer.generated_tokens);
}

#[test]
fn what_cannot_be_opened_is_refused_in_one_line() {
    let refused = |model: Result<Model, Error>| {
        let error = model.err().unwrap();
        let line = error.to_string();
        assert!(!line.contains('\n') && !line.contains("--"), "{line}");
        (line, error.is_usage())
    };
    let (line, usage) = refused(Model::open("/nowhere/at/all"));
    assert!(line.contains("/nowhere/at/all") && usage, "{line}");
    let (line, usage) = refused(Model::open(""));
    assert!(usage, "{line}");
    let (line, usage) = refused(Model::builder().threads(0).demo());
    assert!(line.starts_with("0 threads were asked for, expected 1 to ") && usage, "{line}");
    let (line, usage) =
        refused(Model::builder().guide(concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/demo-dream")).demo());
    assert!(line.contains("expected an autoregressive one") && usage, "{line}");
    let (line, _) = refused(Model::builder().progress(|_| false).demo());
    assert!(line.contains("demo-llada"), "{line}");
}

#[test]
fn a_request_that_cannot_be_run_is_refused_in_words_of_its_fields() {
    let model = demo();
    for (options, told) in [
        (r#"{"gen_length": 100000}"#, "lower `gen_length`"),
        (r#"{"gen_length": 0}"#, "expected at least 1"),
        (r#"{"eps": 0.1}"#, "`eps` has no meaning without `schedule` dream or dream_total"),
        (r#"{"decoder": "guided"}"#, "load one with the model, as `guide`"),
        (r#"{"temperature": -1}"#, "`temperature` is -1, expected a number from 0 on"),
        (r#"{"decoder": "static", "cache": "block"}"#, "cache block cannot run a model with full attention"),
    ] {
        let options: Options = serde_json::from_str(options).unwrap();
        let error = model.generate_with(QUESTION, &options).unwrap_err();
        assert!(error.to_string().contains(told) && error.is_usage(), "{error}");
    }
}

#[test]
fn the_readme_shows_what_the_documentation_compiles() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let readme = std::fs::read_to_string(format!("{root}/README.md")).unwrap();
    let library = std::fs::read_to_string(format!("{root}/crates/demask/src/lib.rs")).unwrap();
    let between = |text: &str, begin: &str| {
        let (_, rest) = text.split_once(begin).unwrap();
        rest.split_once("```").unwrap().0.trim().to_owned()
    };
    let page: Vec<_> = library.lines().filter_map(|line| line.strip_prefix("//!")).collect();
    let page = page.into_iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n");
    let compiled = between(&page, "```\n");
    let compiled: Vec<_> = compiled.lines().filter(|line| !line.starts_with("# ")).collect();
    assert_eq!(between(&readme, "```rust\n"), compiled.join("\n"));
}
