//! Answers under a constraint: every one of them is a text of the language, whatever decodes it, and losslessness holds.

use std::path::Path;

use demask::{Generation, Model, Options, Prompt};
use serde_json::{Value, json};

use crate::batch::{by_hand, same, together};

/// A demo model.
fn demo(name: &str) -> Model {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo").join(name);
    Model::builder().threads(2).open(folder).unwrap()
}

const QUESTION: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

/// Models, each with decoders and caches that it knows.
const RUNS: &[(&str, &[(&str, &str)])] = &[
    (
        "demo-llada",
        &[
            ("static", "none"),
            ("static", "prefix"),
            ("threshold:tau=0.9", "dual"),
            ("threshold:tau=0.5", "dllm"),
            ("factor:f=1", "prefix"),
            ("entropy_bounded", "none"),
            ("slowfast", "none"),
            ("freedave:d=4", "dual"),
        ],
    ),
    ("demo-dream", &[("static", "none"), ("threshold:tau=0.9", "dual"), ("freedave:d=4", "prefix")]),
    ("demo-sdar", &[("static", "block"), ("threshold:tau=0.9", "block"), ("freedave:d=4", "block")]),
    ("demo-qwen", &[("ar", "causal")]),
];

fn options(decoder: &str, cache: &str, asked: &Value) -> Options {
    let mut all = json!({"decoder": decoder, "cache": cache, "max_tokens": 72, "seed": 3});
    for (name, value) in asked.as_object().unwrap() {
        all[name] = value.clone();
    }
    serde_json::from_value(all).unwrap()
}

fn answer(model: &Model, options: &Options) -> Generation {
    model.generate_with(QUESTION, options).unwrap()
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "steps": {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 2},
            "answer": {"type": "integer", "minimum": 0, "maximum": 99},
            "sure": {"enum": [true, false, null]},
        },
        "required": ["answer", "sure"],
    })
}

/// Reports whether JSON is valid under [`schema`].
fn is_valid(text: &str) -> bool {
    let Ok(Value::Object(object)) = serde_json::from_str(text) else { return false };
    let steps = object.get("steps").is_none_or(|steps| {
        let short = |step: &Value| step.as_str().is_some_and(|step| step.chars().count() <= 6);
        steps.as_array().is_some_and(|steps| steps.len() <= 2 && steps.iter().all(short))
    });
    let answer = object["answer"].as_u64().is_some_and(|answer| answer <= 99);
    steps && answer && (object["sure"].is_boolean() || object["sure"].is_null()) && object.len() <= 3
}

#[test]
fn structure_s1_every_answer_is_a_text_of_its_language() {
    for &(name, methods) in RUNS {
        let model = demo(name);
        for &(decoder, cache) in methods {
            for temperature in [0.0, 0.9] {
                let ask = |asked: Value| {
                    let mut asked = asked;
                    asked["temperature"] = json!(temperature);
                    let answer = answer(&model, &options(decoder, cache, &asked));
                    let receipt = serde_json::to_value(&answer.receipt).unwrap();
                    assert!(receipt["constraint"]["states"].as_u64().unwrap() > 0, "{receipt}");
                    (answer.to_string(), format!("{name} {decoder} {cache} {temperature}"))
                };
                let (text, what) = ask(json!({"choice": ["yes", "no", "perhaps so"]}));
                assert!(["yes", "no", "perhaps so"].contains(&text.as_str()), "{what}: {text:?}");
                let (text, what) = ask(json!({"regex": "(?s:.)*\nThe final answer is [0-9]{1,3}"}));
                let end = text.rsplit_once("\nThe final answer is ").map(|(_, end)| end);
                let figures = |end: &str| (1..=3).contains(&end.len()) && end.bytes().all(|byte| byte.is_ascii_digit());
                assert!(end.is_some_and(figures), "{what}: {text:?}");
                // Most of it leaves no choice: whole blocks are forced at once.
                let (text, what) =
                    ask(json!({"regex": "[0-9]The quick brown fox jumps over the lazy dog and rests[0-9]"}));
                let (first, rest) = text.split_at(1);
                let forced = rest.strip_prefix("The quick brown fox jumps over the lazy dog and rests");
                let digit = |text: &str| text.len() == 1 && text.as_bytes()[0].is_ascii_digit();
                assert!(digit(first) && forced.is_some_and(digit), "{what}: {text:?}");
                let (text, what) = ask(json!({"json_schema": schema()}));
                assert!(is_valid(&text), "{what}: {text:?}");
                let (text, what) = ask(json!({"bad_words": ["pears", "7", "swer"]}));
                assert!(["pears", "7", "swer"].iter().all(|word| !text.contains(word)), "{what}: {text:?}");
                let (text, what) = ask(json!({"regex": "[0-9]{1,9}", "bad_words": ["7", "1"]}));
                let allowed =
                    |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() && byte != b'7' && byte != b'1');
                assert!(!text.is_empty() && allowed(&text), "{what}: {text:?}");
            }
        }
    }
}

#[test]
fn structure_s9_drafts_change_no_token_under_a_constraint() {
    for (name, cache) in [("demo-llada", "dual"), ("demo-dream", "prefix"), ("demo-sdar", "block")] {
        let model = demo(name);
        for asked in [
            json!({"json_schema": schema()}),
            json!({"regex": "[0-9+= ]{3,12}\nThe final answer is [0-9]+"}),
            json!({"bad_words": ["7"]}),
            json!({"presence_penalty": 1.5, "frequency_penalty": 0.5, "repetition_penalty": 1.2, "min_tokens": 30}),
            json!({"logit_bias": {"5": 3.0, "28": -100}, "temperature": 0.8, "min_p": 0.05, "bad_words": ["pears"]}),
        ] {
            let of = |decoder: &str| answer(&model, &options(decoder, cache, &asked));
            let (plain, drafted) = (of("static"), of("freedave:d=4"));
            assert_eq!(plain.tokens, drafted.tokens, "{name} {asked}");
            assert!(drafted.receipt.decoding.forwards <= plain.receipt.decoding.forwards, "{name} {asked}");
        }
    }
}

/// A guide beside models of its own tokens and of others: answers are texts of their form, and in a batch those of one request
/// after the other.
#[test]
fn structure_s1_s10_s11_guided_answers_are_texts_of_their_form_alone_and_in_a_batch() {
    for (name, cache) in [("demo-llada", "dual"), ("demo-dream", "prefix"), ("demo-sdar", "block")] {
        let mut model = by_hand(name);
        model.set_guide(by_hand("demo-qwen")).unwrap();
        let mut requests = Vec::new();
        for decoder in ["guided", "guided:match=topk,k=3", "guided:align=bytes,match=topk_relative,verify=4"] {
            for form in
                [json!({"json_schema": schema()}), json!({"regex": "[0-9+= ]{3,12}\nThe final answer is [0-9]+"})]
            {
                requests.push((Prompt::user(QUESTION, None), options(decoder, cache, &form)));
            }
        }
        let alone: Vec<_> =
            requests.iter().map(|(prompt, options)| model.generate_with(prompt.clone(), options).unwrap()).collect();
        for (index, answer) in alone.iter().enumerate() {
            let text = answer.to_string();
            let figures = |end: &str| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
            let end = text.rsplit_once("\nThe final answer is ").map(|(_, end)| end);
            assert!(if index % 2 == 0 { is_valid(&text) } else { end.is_some_and(figures) }, "{name}: {text:?}");
        }
        let found = together(&mut model, &requests, 4);
        alone.iter().zip(&found).for_each(|(alone, found)| same(alone, found));
    }
}

/// An answer whose time is over is a text of its form, if it is asked to be whole.
#[test]
fn a_deadline_leaves_a_whole_answer_where_one_is_asked_for() {
    let model = demo("demo-llada");
    let cut = |deadline: &str| {
        let form = json!({"regex": "x{3}[0-9]{200,400}y", "max_tokens": 480, "gen_length": 480, "deadline_ms": 200});
        let mut asked = form;
        asked["deadline"] = json!(deadline);
        answer(&model, &options("static", "none", &asked))
    };
    let whole = cut("complete");
    let text = whole.to_string();
    let inner = text.strip_prefix("xxx").and_then(|text| text.strip_suffix('y')).unwrap_or_else(|| panic!("{text}"));
    assert!((200..=400).contains(&inner.len()) && inner.bytes().all(|byte| byte.is_ascii_digit()), "{text}");
    assert_eq!(whole.receipt.decoding.given_up, Some(0), "the deadline came first, and nothing is left open");
    let receipt = &whole.receipt;
    assert_eq!(receipt.decoding.exactness.name(), "approximate", "the reference did not write what completes it");
    assert_eq!(receipt.more.as_deref(), Some("the deadline ended the answer: raise `deadline_ms`, or omit it"));
    assert_eq!(cut("settled").finish, demask::Finish::Deadline);
}

#[test]
fn confidence_among_what_fits_is_never_lower() {
    let model = demo("demo-llada");
    let of = |confidence: &str| {
        let asked = json!({"regex": "[0-9+= ]{3,12}\nThe final answer is [0-9]+", "constraint_confidence": confidence});
        answer(&model, &options("threshold:tau=0.9", "dual", &asked))
    };
    let (raw, allowed) = (of("raw"), of("allowed"));
    assert!(allowed.receipt.decoding.forwards <= raw.receipt.decoding.forwards);
}

/// Text that every answer has needs no forward where it is committed as the tokenizer spells it.
#[test]
fn structure_s8_forced_text_is_spelled_as_the_tokenizer_spells_it() {
    let model = demo("demo-llada");
    let form = "Ada has [0-9] pears in the end, and Ben has none at all\\. The final answer is [0-9]+";
    for (decoder, cache) in [("static", "none"), ("threshold:tau=0.9", "dual"), ("freedave:d=4", "none")] {
        let of = |forced: &str| {
            answer(&model, &options(decoder, cache, &json!({"regex": form, "constraint_forced": forced})))
        };
        let (tokens, text) = (of("tokens"), of("text"));
        let matched = text.to_string();
        let middle = " pears in the end, and Ben has none at all. The final answer is ";
        assert!(matched.starts_with("Ada has ") && matched.contains(middle), "{decoder}: {matched}");
        assert!(text.receipt.decoding.forwards < tokens.receipt.decoding.forwards, "{decoder}: {matched}");
        let forced = |of: &Generation| of.receipt.decoding.constraint.as_ref().unwrap().counts.forced;
        assert!(forced(&text) > forced(&tokens), "{decoder}");
    }
    // A decoder that revises commits what every answer has, and spells nothing before it is final.
    let asked = options("p2", "none", &json!({"regex": form, "constraint_forced": "text"}));
    let refused = model.generate_with(QUESTION, &asked).unwrap_err();
    assert!(refused.is_usage() && refused.to_string().contains("constraint_forced"), "{refused}");
}

#[test]
fn structure_s16_what_cannot_be_held_to_is_refused_before_any_forward() {
    let model = demo("demo-llada");
    for (asked, words) in [
        (json!({"regex": "a(b"}), "`regex`"),
        (json!({"regex": "a\\bb"}), "`regex`"),
        (json!({"json_schema": {"not": {}}}), "not"),
        (json!({"json_schema": "{"}), "`json_schema`"),
        (json!({"json_schema": false}), "`json_schema`"),
        (json!({"choice": ["a", "a"]}), "twice"),
        (json!({"regex": "a{500}", "max_tokens": 8}), "takes 500 tokens, and there is room for 8"),
        (json!({"regex": "a", "choice": ["b"]}), "beside another constraint"),
        (json!({"json_space": "compact"}), "without `regex`"),
        (json!({"regex": "a", "stop": ["b"]}), "stop"),
        (json!({"regex": "a", "ignore_eos": true}), "ignore_eos"),
        (json!({"regex": "a", "min_tokens": 2}), "min_tokens"),
        (json!({"regex": "a", "deadline": "complete"}), "without `deadline_ms`"),
        (json!({"deadline": "complete", "deadline_ms": 50}), "without `regex`"),
        (json!({"constraint_confidence": "allowed"}), "without `regex`"),
        (json!({"constraint_forced": "text"}), "without `regex`"),
        (json!({"bad_words": [""]}), "`bad_words`"),
        (json!({"choice": ["ab"], "bad_words": ["b"]}), "no text fits the form"),
    ] {
        let options = options("static", "none", &asked);
        let error = model.generate_with(QUESTION, &options).unwrap_err();
        assert!(error.is_usage(), "{asked}: {error}");
        let told = error.to_string();
        assert!(told.contains(words) && !told.contains('\n'), "{asked}: {told}");
    }
}
