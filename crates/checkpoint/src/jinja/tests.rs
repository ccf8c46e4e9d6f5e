//! The engine against Jinja2's own answers (`tools/templates/make_cases.py`), and its budgets.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value as Json;

use super::{Budget, Error, Inputs, Trouble, clock::date};
use crate::said::Marks;

const BUDGET: Budget = Budget { steps: 200_000, bytes: 64 << 20 };

fn inputs<'a>(messages: &'a [(String, String)], flags: Vec<(&'a str, bool)>) -> Inputs<'a> {
    let messages = messages.iter().map(|(role, content)| (&**role, &**content)).collect();
    let texts = vec![("bos_token", "<s>"), ("eos_token", "</s>")];
    Inputs { messages, fields: Vec::new(), texts, flags, now: UNIX_EPOCH, marks: Marks::default() }
}

fn render(source: &str, inputs: &Inputs<'_>, budget: Budget) -> Result<String, Error> {
    super::render(source, inputs, budget).map(|rendered| rendered.text)
}

fn alone(source: &str) -> Result<String, Error> {
    render(source, &inputs(&[], Vec::new()), BUDGET)
}

#[test]
fn texts_are_those_of_jinja2() {
    let whole: Json = serde_json::from_str(include_str!("../../tests/data/templates.json")).unwrap();
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let messages = whole["messages"].as_array().unwrap();
    let messages: Vec<_> = messages.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect();
    let mut wrong = Vec::new();
    for case in whole["cases"].as_array().unwrap() {
        let flags = case["flags"].as_object().unwrap();
        let flags = flags.iter().map(|(name, flag)| (name.as_str(), flag.as_bool().unwrap())).collect();
        let found = render(case["source"].as_str().unwrap(), &inputs(&messages, flags), BUDGET);
        // What Jinja2 refuses has no text.
        let right = if case["text"].is_null() { found.is_err() } else { found == Ok(text(&case["text"])) };
        if !right {
            wrong.push(format!("{}\n  found    {found:?}\n  expected {:?}", case["source"], case["text"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn dates_are_those_of_the_calendar() {
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    assert_eq!(date("%d %b %Y", at(0)), "01 Jan 1970");
    assert_eq!(date("%d %B %Y %H:%M:%S", at(951_827_696)), "29 February 2000 12:34:56");
    assert_eq!(date("%Y-%m-%d 100%% %q %", at(1_735_689_599)), "2024-12-31 100% %q %");
    assert_eq!(alone("{{ strftime_now('%Y') }}"), Ok("1970".to_owned()));
}

#[test]
fn memory_that_grows_is_refused_however_it_grows() {
    let double = |grow: &str| {
        format!(
            "{{% set ns = namespace(s='abcdefgh' * 100, l=[1] * 100) %}}{{% for i in range(100) %}}{grow}{{% endfor %}}"
        )
    };
    let sources = [
        "{{ 'a' * 100000000000 }}".to_owned(),
        "{{ [1] * 100000000000 }}".to_owned(),
        "{{ range(100000000000) | length }}".to_owned(),
        "{% for i in range(20000) %}{{ 'a' * 10000000 }}{% endfor %}".to_owned(),
        double("{% set ns.s = ns.s ~ ns.s %}"),
        double("{% set ns.s = ns.s + ns.s %}"),
        double("{% set ns.s = ns.s * 2 %}"),
        double("{% set ns.s = [ns.s, ns.s] | join %}"),
        double("{% set ns.s = ns.s.join([ns.s, 'x', ns.s]) %}"),
        double("{% set ns.s = ns.s | replace('a', ns.s) %}"),
        double("{% set ns.s = ns.s.replace('', ns.s) %}"),
        double("{% set ns.s = ((ns.s ~ '\\n') * 2) | indent(1000) %}"),
        double("{% set ns.s = ns.s | indent(ns.s | length, true) %}"),
        double("{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}"),
        double("{% set ns.s %}{% filter upper %}{{ ns.s }}{{ ns.s }}{% endfilter %}{% endset %}"),
        double("{% set ns.s = [ns.s, ns.s] | tojson %}"),
        double("{% set ns.s = ns.s | e | replace('&', '&&') ~ '<' * 1000000 %}"),
        double("{% set ns.s = ns.s | list | string %}"),
        double("{% set ns.l = ns.l + ns.l %}"),
        double("{% set ns.l = ns.l * 2 %}"),
        double("{% set ns.l = [ns.l, ns.l] %}") + "{{ ns.l }}",
        double("{% set ns.l = {'a': ns.l, 'b': ns.l} %}") + "{{ ns.l | tojson }}",
        double("{% set ns.l = (ns.l, ns.l) %}") + "{{ ns.l == ns.l | list }}",
        "{% macro f(s) %}{{ s }}{{ s }}{% endmacro %}{% set ns = namespace(s='a' * 1000) %}{% for i in range(99) %}{% set ns.s = f(ns.s) %}{% endfor %}".to_owned(),
    ];
    for source in sources {
        let Err(Error { trouble, .. }) = alone(&source) else { panic!("{source}") };
        let refused = matches!(&trouble, Trouble::Memory | Trouble::Steps)
            || matches!(&trouble, Trouble::Failed(what) if what.contains("deep"));
        assert!(refused, "{source}: {trouble:?}");
    }
}

#[test]
fn what_is_dropped_can_be_used_again() {
    // 100 times 10 MB, never two of them at once: far beyond what may be held.
    let source = "{% set ns = namespace(s='') %}{% for i in range(100) %}{% set ns.s = '' %}{% set ns.s = 'a' * 10000000 %}{% endfor %}{{ ns.s | length }}";
    let generous = Budget { steps: 10_000_000, ..BUDGET };
    assert_eq!(render(source, &inputs(&[], Vec::new()), generous), Ok("10000000".to_owned()));
}

#[test]
fn nothing_overflows_the_stack() {
    let nested = |open: &str, close: &str| format!("{{{{ {}1{} }}}}", open.repeat(50_000), close.repeat(50_000));
    let sources = [
        nested("(", ")"),
        nested("[", "]"),
        nested("{1: ", "}"),
        nested("-", ""),
        nested("not ", ""),
        nested("a[", "]"),
        nested("f(", ")"),
        nested("1 ** ", ""),
        nested("1 + ", ""),
        nested("1 if 1 else ", ""),
        format!("{{{{ a{} }}}}", "|f".repeat(50_000)),
        format!("{{{{ a{} }}}}", ".f".repeat(50_000)),
        format!("{{{{ a{} }}}}", " is f".repeat(50_000)),
        "{% if a %}".repeat(50_000),
        "{% for a in b %}".repeat(50_000),
        "{% set a %}".repeat(50_000),
        format!("{{% set {} = 1 %}}", "(".repeat(50_000)),
    ];
    for source in sources {
        let short: String = source.chars().take(40).collect();
        assert!(matches!(alone(&source), Err(Error { trouble: Trouble::Syntax(_), .. })), "{short}");
    }
    let calls = alone("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
    assert!(
        matches!(calls, Err(Error { trouble: Trouble::Failed(what), .. }) if what.contains("calls macros more than"))
    );
    let itself = "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}{{ ns == ns }}";
    assert_eq!(alone(itself), Ok("<namespace>True".to_owned()));
}

#[test]
fn mistakes_are_told_with_their_line() {
    for (source, line, expected) in [
        ("\n{{ x", 2, "a tag has no }}"),
        ("{% if a %}\n{% endfor %}", 2, "unexpected tag \"endfor\""),
        ("{% if a %}", 1, "expected elif or else or endif"),
        ("{{ 'a }}", 1, "a text has no end"),
        ("\n\n{{ a.b.c }}", 3, "b is asked of what is not defined"),
        ("{{ messages | nope }}", 1, "the filter nope is not known"),
        ("{{ 1 is nope }}", 1, "the test nope is not known"),
        ("{{ nope() }}", 1, "nope is not defined"),
        ("{{ 1 + 'a' }}", 1, "add is not for a number and a text"),
        ("{{ 1 // 0 }}", 1, "a number is divided by zero"),
        ("{{ 9223372036854775807 + 1 }}", 1, "a number is too large"),
        ("{{ -9223372036854775807 - 2 }}", 1, "a number is too large"),
        ("{{ 99999999999999999999 }}", 1, "the number 99999999999999999999 is too large"),
        ("{% break %}", 1, "break stands outside of a loop"),
        ("{% set a.b = 1 %}", 1, "a is not a namespace: only its attributes can be set"),
        ("{{ {} | tojson(nope=1) }}", 1, "tojson knows no argument nope"),
        ("{# a", 1, "a comment has no end"),
    ] {
        match alone(source) {
            Err(Error { trouble: Trouble::Syntax(found) | Trouble::Failed(found), line: at }) => {
                assert_eq!((found.as_str(), at), (expected, line), "{source}");
            }
            other => panic!("{source}: {other:?}"),
        }
    }
}
