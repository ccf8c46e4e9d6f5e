//! Ends of answers: end tokens and stop texts, and the record of which one it was.

use demask::{Event, Finish, Generation, Model, Options, Prompt};

const QUESTION: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

fn answer(options: &Options) -> Generation {
    Model::demo().unwrap().generate_with(QUESTION, options).unwrap()
}

fn refusal(prompt: Prompt, options: &Options) -> String {
    let error = Model::demo().unwrap().generate_with(prompt, options).unwrap_err();
    assert!(error.is_usage(), "{error}");
    error.to_string()
}

#[test]
fn an_answer_says_which_end_token_ended_it() {
    let found = answer(&Options::default());
    assert_eq!((found.finish, found.end_token), (Finish::Eos, found.tokens.last().copied()));
    assert_eq!(found.stop_text, None);
    let json = serde_json::to_value(&found).unwrap();
    assert!(json.get("stop_text").is_none() && json["end_token"].is_number());
    let cut = answer(&Options { gen_length: Some(4), ..Options::default() });
    assert_eq!((cut.finish, cut.end_token, cut.stop_text), (Finish::Length, None, None));
}

#[test]
fn an_answer_says_which_stop_text_ended_it_and_keeps_it_if_asked() {
    let stop = Some(vec!["never there".to_owned(), "final".to_owned(), "7 pears".to_owned()]);
    let found = answer(&Options { stop: stop.clone(), ..Options::default() });
    assert_eq!((found.finish, found.stop_text.as_deref(), found.end_token), (Finish::Stop, Some("7 pears"), None));
    assert_eq!(found.text.as_deref(), Some("3+4="));
    let options = Options { stop, include_stop: Some(true), ..Options::default() };
    let kept = answer(&options);
    assert_eq!((kept.text.as_deref(), kept.tokens), (Some("3+4=7 pears"), found.tokens));
    let mut told = String::new();
    let model = Model::demo().unwrap();
    for event in model.stream(QUESTION, &options).unwrap() {
        if let Event::Text(text) = event {
            told.push_str(&text);
        }
    }
    assert_eq!(told, "3+4=7 pears");
}

#[test]
fn other_tokens_end_an_answer_too() {
    let whole = answer(&Options::default());
    let ends = |at: usize, options: Options| {
        let ids = Some(vec![whole.tokens[at]]);
        let found = answer(&Options { stop_token_ids: ids, ..options });
        let first = whole.tokens.iter().position(|token| *token == whole.tokens[at]).unwrap();
        assert_eq!((found.finish, found.end_token), (Finish::Eos, Some(whole.tokens[at])));
        assert_eq!(found.tokens, whole.tokens[..=first]);
        found
    };
    let found = ends(3, Options::default());
    assert!(found.receipt.decoding.generated_tokens < whole.tokens.len());
    // The model's own end is a token like any other then, and these still end it.
    ends(3, Options { ignore_eos: Some(true), ..Options::default() });
    ends(whole.tokens.len() - 1, Options { ignore_eos: Some(true), ..Options::default() });
    // None in sight: nothing changes.
    let unused = (0..489).find(|token| !whole.canvas.contains(token)).unwrap();
    let same = answer(&Options { stop_token_ids: Some(vec![unused]), ..Options::default() });
    assert_eq!((same.tokens, same.receipt.decoding), (whole.tokens, whole.receipt.decoding));
}

#[test]
fn endings_without_meaning_are_refused() {
    let ids = Options { stop_token_ids: Some(vec![5, 489]), ..Options::default() };
    let question = || Prompt::from(QUESTION);
    assert_eq!(refusal(question(), &ids), "`stop_token_ids` is 489, expected ids from 0 to 488");
    let infill = Prompt::Infill("Ada has <mask:1> pears.".into());
    let ids = Options { stop_token_ids: Some(vec![5]), ..Options::default() };
    let told = "`stop_token_ids` has no meaning with `infill`, where the text's end is given: omit it";
    assert_eq!(refusal(infill, &ids), told);
    let kept = Options { include_stop: Some(true), ..Options::default() };
    assert_eq!(
        refusal(question(), &kept),
        "`include_stop` has no meaning without `stop`, whose texts it keeps: omit it"
    );
    let none = Options { deadline_ms: Some(0), ..Options::default() };
    assert_eq!(refusal(question(), &none), "`deadline_ms` has no meaning as 0, when nothing can be decoded: omit it");
}

#[test]
fn an_answer_may_be_shorter_than_its_canvas() {
    let model = Model::demo().unwrap();
    let prompt = Prompt::user(QUESTION, None);
    for (cache, steps) in [("none", None), ("dual", None), ("none", Some(8))] {
        let cache = Some(cache.parse().unwrap());
        let options = Options { gen_length: Some(32), block_length: Some(8), steps, cache, ..Options::default() };
        let options = Options { ignore_eos: Some(true), top_logprobs: Some(0), ..options };
        let whole = model.generate_with(prompt.clone(), &options).unwrap();
        for length in [1, 7, 8, 9, 31, 32, 40] {
            let options = Options { max_tokens: Some(length), ..options.clone() };
            let prepared = model.prepare(&prompt, &options).unwrap();
            let mut told = String::new();
            let mut handle = model.submit(prepared);
            for event in handle.by_ref() {
                if let Event::Text(text) = event {
                    told.push_str(&text);
                }
            }
            let found = handle.result().unwrap();
            let kept = length.min(32);
            assert_eq!(found.tokens, whole.tokens[..kept], "{length}");
            assert_eq!((found.generated_tokens, found.finish), (kept, Finish::Length));
            assert_eq!(found.logprobs.as_deref(), Some(&whole.logprobs.as_ref().unwrap()[..kept]));
            assert_eq!(found.canvas.len(), whole.canvas.len(), "the canvas keeps its length");
            let text = model.info().tokenizer().unwrap().decode(&whole.tokens[..kept], true);
            assert_eq!((found.text.as_deref(), &told), (Some(text.as_str()), &text));
            // Blocks behind the bound are not decoded for nothing.
            let blocks = kept.div_ceil(8);
            assert!(found.receipt.decoding.nfe <= whole.receipt.decoding.nfe * blocks / 4 + 1, "{length}");
        }
    }
    assert!(model.is_idle());
}
