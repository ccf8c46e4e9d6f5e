//! What schemas are written as: order, space, numbers, narrowing, refusals.

use demask_decode::constraint::{Compiled, Constraint, Language, Space};
use serde_json::{Value, json};

use super::{
    texts::{Draws, draw, has},
    validator::Validator,
};

fn compile(schema: &str) -> Compiled {
    Constraint::new(Language::JsonSchema(schema.to_owned()))
        .compile()
        .unwrap_or_else(|error| panic!("{schema}: {error}"))
}

fn refusal(schema: &str) -> String {
    Constraint::new(Language::JsonSchema(schema.to_owned())).compile().unwrap_err().to_string()
}

fn is_text(made: &Compiled, text: &str) -> bool {
    made.automaton.contains(text.as_bytes())
}

#[test]
fn properties_are_written_in_the_schemas_order() {
    let made = compile(
        r#"{"type":"object","properties":{"z":{"type":"null"},"a":{"const":1},"m":{"const":2}},"required":["a"]}"#,
    );
    for text in [r#"{"z":null,"a":1,"m":2}"#, r#"{"z": null, "a": 1}"#, r#"{"a":1, "m": 2}"#, r#"{"a":1}"#] {
        assert!(is_text(&made, text), "{text}");
    }
    for text in [
        r#"{"a":1,"z":null}"#,
        r#"{"z":null}"#,
        "{}",
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"x":1}"#,
        r#"{ "a":1}"#,
        r#"{"a":1} "#,
    ] {
        assert!(!is_text(&made, text), "{text}");
    }
    assert_eq!(made.narrowed.len(), 1);
    assert_eq!(
        (made.narrowed[0].path.as_str(), made.narrowed[0].what.as_str()),
        ("#", "properties that are not listed are left out")
    );
}

#[test]
fn space_is_where_it_is_asked_for() {
    let schema =
        r#"{"type":"object","properties":{"a":{"type":"array","items":{"const":1},"maxItems":2},"b":{"const":{}}}}"#;
    let with = |space| {
        let constraint = Constraint { space, ..Constraint::new(Language::JsonSchema(schema.to_owned())) };
        constraint.compile().unwrap()
    };
    let (compact, spaced, pretty) = (with(Space::Compact), with(Space::Spaced), with(Space::Pretty));
    let tight = r#"{"a":[1,1],"b":{}}"#;
    let usual = r#"{"a": [1, 1], "b": {}}"#;
    let lines = "{\n  \"a\": [\n    1,\n    1\n  ],\n  \"b\": {}\n}";
    assert_eq!([tight, usual, lines].map(|text| is_text(&compact, text)), [true, false, false]);
    assert_eq!([tight, usual, lines].map(|text| is_text(&spaced, text)), [true, true, false]);
    assert_eq!([tight, usual, lines].map(|text| is_text(&pretty, text)), [true, true, true]);
    for text in ["{\"a\":  [1]}", "{ }", "{\n\n\"a\":[1]}", "\n{}", "{}\n"] {
        assert!(!is_text(&pretty, text), "{text:?}");
    }
}

#[test]
fn structure_s15_numbers_keep_their_bounds() {
    let mut draws = Draws(3);
    let texts = |draws: &mut Draws| {
        let sign = ["", "-"][draws.below(2)];
        let whole = ["0", "1", "2", "7", "9", "10", "12", "99", "100", "1000"][draws.below(10)];
        let fraction = ["", ".0", ".5", ".25", ".05", ".249", ".251", ".999", ".50"][draws.below(9)];
        format!("{sign}{whole}{fraction}")
    };
    let keywords = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
    let mut inside = 0;
    for round in 0..600 {
        let kind = ["integer", "number"][round % 2];
        let mut schema = json!({"type": kind});
        for _ in 0..=draws.below(2) {
            schema[keywords[draws.below(4)]] = serde_json::from_str(&texts(&mut draws)).unwrap();
        }
        let validator = Validator::new(&schema);
        let Ok(made) = Constraint::new(Language::JsonSchema(schema.to_string())).compile() else {
            for _ in 0..50 {
                let value: Value = serde_json::from_str(&texts(&mut draws)).unwrap();
                assert!(!validator.is_valid(&value), "{schema} has {value}");
            }
            continue;
        };
        for _ in 0..50 {
            let text = texts(&mut draws);
            let value: Value = serde_json::from_str(&text).unwrap();
            let spelled = kind == "number" && !text.starts_with("-0") || !text.contains('.') && text != "-0";
            let spelled = spelled || kind == "number" && value.as_f64() != Some(0.0);
            let expected = validator.is_valid(&value) && spelled;
            assert_eq!(is_text(&made, &text), expected, "{schema}: {text}");
            inside += usize::from(expected);
            let drawn = String::from_utf8(draw(&made.automaton, 12, &mut draws)).unwrap();
            assert!(validator.is_valid(&serde_json::from_str(&drawn).unwrap()), "{schema}: {drawn}");
        }
    }
    assert!(inside > 3_000, "{inside}");
}

#[test]
fn strings_are_counted_and_escaped_as_they_are_parsed() {
    let made = compile(r#"{"type":"string","minLength":2,"maxLength":3,"pattern":"^[^b]*$"}"#);
    for text in [r#""aé""#, r#""日\n𝒳""#, r#""\u0001\"\\""#, r#""//""#] {
        assert!(is_text(&made, text), "{text}");
    }
    for text in [r#""a""#, r#""abc""#, r#""aaaa""#, r#""\u0061a""#, r#""\/a""#, "\"a\n\"", r#""\ud83d\ude00a""#] {
        assert!(!is_text(&made, text), "{text}");
    }
}

#[test]
fn alternatives_that_may_hold_together_are_kept_apart() {
    let made = compile(
        r#"{"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"oneOf":[{"required":["a"]},{"required":["b"]}]}"#,
    );
    assert!(has(&made.automaton, &json!({"a": 1})) && has(&made.automaton, &json!({"b": 2})));
    assert!(!has(&made.automaton, &json!({"a": 1, "b": 2})) && !has(&made.automaton, &json!({})));
    assert!(made.narrowed.iter().any(|of| of.what.starts_with("oneOf")));
    let made = compile(
        r#"{"oneOf":[{"type":"object","properties":{"kind":{"const":"x"}},"required":["kind"]},{"type":"object","properties":{"kind":{"enum":["y","z"]}},"required":["kind"]}]}"#,
    );
    assert!(has(&made.automaton, &json!({"kind": "x"})) && has(&made.automaton, &json!({"kind": "z"})));
    assert!(!made.narrowed.iter().any(|of| of.what.starts_with("oneOf")));
    assert!(
        refusal(r#"{"oneOf":[{"type":"string"},{"type":"string","format":"date"}]}"#)
            .starts_with("the JSON schema's oneOf at # has branches")
    );
}

#[test]
fn references_come_back_so_often() {
    let schema = r##"{"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false}"##;
    let constraint = Constraint { recursion: 2, ..Constraint::new(Language::JsonSchema(schema.to_owned())) };
    let made = constraint.compile().unwrap();
    assert!(is_text(&made, r#"{"next":{"next":{}}}"#) && !is_text(&made, r#"{"next":{"next":{"next":{}}}}"#));
    assert_eq!(made.narrowed[0].what, "$ref comes back at most 2 times");
    let endless = r##"{"type":"object","properties":{"next":{"$ref":"#"}},"required":["next"]}"##;
    assert_eq!(
        refusal(endless),
        "no text fits the form (nothing is valid at #/properties/next): expected at least one"
    );
}

#[test]
fn structure_s15_a_schema_that_is_too_large_is_narrowed_and_says_so() {
    let members: Vec<String> = (0..30).map(|n| format!(r#""p{n}":{{"type":"string","maxLength":1024}}"#)).collect();
    let made = compile(&format!(r#"{{"type":"object","properties":{{{}}}}}"#, members.join(",")));
    assert!(made.automaton.states() <= 20_000);
    let what = "strings have at most 64 characters";
    assert!(made.narrowed.iter().any(|of| of.path == "#/properties/p7" && of.what == what), "{:?}", made.narrowed);
    assert!(!is_text(&made, &format!(r#"{{"p7":"{}"}}"#, "x".repeat(65))));
    assert!(is_text(&made, &format!(r#"{{"p7":"{}"}}"#, "x".repeat(64))));
}

#[test]
fn structure_s16_refusals_name_the_keyword_and_its_place() {
    let at = |inner: &str| format!(r#"{{"type":"object","properties":{{"a/b":{inner}}}}}"#);
    let cases = [
        (at(r#"{"type":"array","uniqueItems":true}"#), "the JSON schema's uniqueItems at #/properties/a~1b is true"),
        (at(r#"{"type":"array","contains":{}}"#), "the JSON schema's contains at #/properties/a~1b is not supported"),
        (at(r#"{"if":{},"then":{}}"#), "the JSON schema's if at #/properties/a~1b is not supported: use anyOf"),
        (
            at(r#"{"type":"number","multipleOf":0.1}"#),
            "the JSON schema's multipleOf at #/properties/a~1b is not supported",
        ),
        (at(r#"{"$ref":"other.json"}"#), "the JSON schema's $ref at #/properties/a~1b leads to another document"),
        (at(r##"{"$ref":"#/nowhere"}"##), "the JSON schema's $ref at #/properties/a~1b leads to nothing"),
        (
            at(r#"{"type":"string","pattern":"a(?!b)"}"#),
            "the JSON schema's pattern at #/properties/a~1b is not usable at byte 1",
        ),
        (at(r#"{"type":"text"}"#), "the JSON schema's type at #/properties/a~1b has no usable value"),
        (at(r#"{"minLength":-1}"#), "the JSON schema's minLength at #/properties/a~1b has no usable value"),
        ("{".to_owned(), "the JSON schema is not readable: EOF"),
        (r#"{"a":1,"a":2}"#.to_owned(), "the JSON schema is not readable: the key \"a\" is there twice"),
        ("7".to_owned(), "the JSON schema's value at # is no schema"),
        ("false".to_owned(), "no text fits the form (nothing is valid at #)"),
    ];
    for (schema, expected) in cases {
        let message = refusal(&schema);
        assert!(message.starts_with(expected) && !message.contains('\n'), "{schema}: {message}");
    }
    let made = compile(r#"{"type":"string","x-note":1,"format":"color"}"#);
    let ignored: Vec<&str> = made.ignored.iter().map(|of| of.what.as_str()).collect();
    assert_eq!(ignored, ["format color", "x-note"]);
}

#[test]
fn any_object_is_an_object() {
    let made = Constraint::new(Language::JsonObject).compile().unwrap();
    for text in ["{}", r#"{"a": [1, {"b": null}], "": -0.5e3}"#] {
        assert!(is_text(&made, text), "{text}");
    }
    assert!(!is_text(&made, "[]") && !is_text(&made, "{\"a\":}"));
    let mut draws = Draws(4);
    for _ in 0..300 {
        let text = draw(&made.automaton, 60, &mut draws);
        assert!(serde_json::from_slice::<Value>(&text).unwrap().is_object());
    }
}
