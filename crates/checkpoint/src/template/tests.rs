//! Templates against Jinja2's own answers (`tools/templates/make_cases.py`), and their limits.

use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::Value as Json;

use super::{ChatTemplate, Message, RenderOptions, clock::date};
use crate::Family;

/// A template beside texts of special tokens.
fn template(source: &str) -> ChatTemplate {
    let family = Family::named("Qwen3").unwrap();
    ChatTemplate::from_source(source, "chat_template.jinja", family, &[("bos_token", "<s>"), ("eos_token", "</s>")])
}

fn render(source: &str, messages: &[Message], flags: &Json) -> Result<String, String> {
    let flag = |name: &str| flags[name].as_bool();
    let options = RenderOptions {
        add_generation_prompt: flag("add_generation_prompt").unwrap_or_default(),
        enable_thinking: flag("enable_thinking"),
        now: UNIX_EPOCH,
        ..RenderOptions::default()
    };
    template(source).render(messages, &options).map_err(|error| error.to_string())
}

fn alone(source: &str) -> Result<String, String> {
    render(source, &[], &Json::Null)
}

/// Recorded sources, by their starts, of which the engine makes something else, and why. Released templates have none.
const DIFFERENT: &[(&str, &[&str])] = &[
    ("a default value of a macro does not see the other parameters", &["{% macro f(a, ", "{% macro m(a, b='"]),
    ("what a loop's else sets is seen after it", &["{% for i in []"]),
    ("a loop within itself has no else", &["{% for n in [1"]),
    (
        "macros take no other arguments than they name",
        &["{% macro m() %}{{ v", "{% macro m(a) %}{{ a }}{{", "{% macro m() %}{{ k"],
    ),
    (
        "fewer arguments of methods and filters",
        &[
            "{{ 'abcabc'.fi",
            "{{ 'abcabc'.co",
            "{{ 'abc'.start",
            "{{ 'a\\nb\\n'.splitlines(t",
            "{{ {'b': 1, 'a': 2} | dictsort(",
            "{{ ['b', 'A', 'a",
            "{{ ['a', 'A', 'b'] | unique(",
            "{{ '0x1f' | in",
            "{{ 'a\\nb' | indent(w",
            "{{ {'a': 1}.get('b')",
            "{{ dict([('a',",
            "{{ true is num",
        ],
    ),
    (
        "no such filter or method",
        &[
            "{{ 'a b' | wor",
            "{{ 'a,b c-d e_",
            "{{ 'x' | cente",
            "{{ '½'.isdigit",
            "{{ \"they're bi",
            "{{ 'AB1'.isupp",
            "{{ 'a-b_c'.par",
        ],
    ),
    ("no % of texts", &["{{ '%s-%d' % (", "{{ '%5s|%-5s|%", "{{ '%.2f|%8.3f", "{{ '%s %s' | f"]),
    ("fewer forms of format", &["{{ '<{}_{}>'.f", "{{ '{:.2f}|{:8", "{{ '{:.2}|{:5}"]),
    (
        "letters, spaces and ends of lines that few texts have",
        &["{{ 'a\\x0cb\\u20", "{{ 'ß'.upper()", "{{ 'é'.isalpha", "{{ ' \\x1c\\u200", "{{ ['\\u00a0', "],
    ),
    (
        "what is not defined is nothing that can be called, a dictionary is no sequence and has attributes",
        &["{{ nothing is ", "{{ '<a>' | e }"],
    ),
    ("no exponents in the text of numbers", &["{{ [1.5, 1e16,"]),
    ("parts of queries keep their /", &["{{ 'a b/ü&' | "]),
    ("not refused", &["{{ {} | dictso", "{{ '{:.2d}'.fo", "{{ 1 is starti", "{{ ['a', 1] | ", "{{ 'a' < 1 }}"]),
];

#[test]
fn texts_are_those_of_jinja2() {
    let whole: Json = serde_json::from_str(include_str!("../../tests/data/templates.json")).unwrap();
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let messages = whole["messages"].as_array().unwrap();
    let messages: Vec<_> =
        messages.iter().map(|said| Message::new(text(&said["role"]), text(&said["content"]))).collect();
    let mut wrong = Vec::new();
    for case in whole["cases"].as_array().unwrap() {
        let found = render(case["source"].as_str().unwrap(), &messages, &case["flags"]);
        // What Jinja2 refuses has no text.
        let right = if case["text"].is_null() { found.is_err() } else { found == Ok(text(&case["text"])) };
        let source = case["source"].as_str().unwrap();
        let different = DIFFERENT.iter().any(|(_, starts)| starts.iter().any(|start| source.starts_with(start)));
        if right == different {
            wrong.push(format!("{source}\n  found    {found:?}\n  expected {:?}", case["text"]));
        }
    }
    assert!(wrong.is_empty(), "{} are not as they are listed:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn dates_are_those_of_the_calendar() {
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    assert_eq!(date("%d %b %Y", at(0)), "01 Jan 1970");
    assert_eq!(date("%d %B %Y %H:%M:%S", at(951_827_696)), "29 February 2000 12:34:56");
    assert_eq!(date("%Y-%m-%d 100%% %q %", at(1_735_689_599)), "2024-12-31 100% %q %");
    assert_eq!(alone("{{ strftime_now('%Y') }}"), Ok("1970".to_owned()));
}

/// Whatever takes time or memory ends with the budget.
#[test]
fn growth_without_end_is_refused_however_it_grows() {
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
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".to_owned(),
        double("{% set ns.s = ns.s ~ ns.s %}"),
        double("{% set ns.s = ns.s + ns.s %}"),
        double("{% set ns.s = ns.s * 2 %}"),
        double("{% set ns.s = [ns.s, ns.s] | join %}"),
        double("{% set ns.s = ns.s.join([ns.s, 'x', ns.s]) %}"),
        double("{% set ns.s = ns.s | replace('a', ns.s) %}"),
        double("{% set ns.s = ns.s.replace('', ns.s) %}"),
        double("{% set ns.s = ns.s | indent(ns.s | length, true) %}"),
        double("{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}"),
        double("{% set ns.s %}{% filter upper %}{{ ns.s }}{{ ns.s }}{% endfilter %}{% endset %}"),
        double("{% set ns.s = [ns.s, ns.s] | tojson %}"),
        double("{% set ns.s = ns.s | e | replace('&', '&&') ~ '<' * 1000000 %}"),
        double("{% set ns.l = ns.l * 2 %}"),
        double("{% set ns.l = [ns.l, ns.l] %}") + "{{ ns.l }}",
        double("{% set ns.l = [ns.l, ns.l] %}") + "{{ ns.l | string | length }}",
        double("{% set ns.l = {'a': ns.l, 'b': ns.l} %}") + "{{ ns.l | tojson }}",
        "{% macro f(s) %}{{ s }}{{ s }}{% endmacro %}{% set ns = namespace(s='a' * 1000) %}{% for i in range(99) %}{% set ns.s = f(ns.s) %}{% endfor %}".to_owned(),
    ];
    for source in sources {
        let begin = Instant::now();
        let error = alone(&source).expect_err(&source);
        let refused = error.contains("runs for ever or takes too much memory")
            || error.contains("deep")
            || error.contains("too many elements")
            || error.contains("too large");
        assert!(refused && begin.elapsed().as_secs() < 20, "{source}: {error}");
    }
}

#[test]
fn nothing_overflows_the_stack() {
    let many = |open: &str| (super::LONGEST_TEMPLATE - 20) / open.len();
    let long = |open: &str| format!("{{{{ {}1 }}}}", open.repeat(many(open)));
    for open in ["(", "[", "{1: ", "not ", "a[", "f(", "1**", "1+", "1 if 1 else ", "1 and ", "1==", "1 in "] {
        let _ = alone(&long(open));
    }
    let hyphens = |count: usize| format!("{{{{ {}1 }}}}", "-".repeat(count));
    assert!(alone(&hyphens(65_536)).is_ok());
    for (source, found) in [(hyphens(65_537), "65537 signs -"), ("~".repeat(4097), "4097 signs ~")] {
        assert!(alone(&source).unwrap_err().contains(found), "{found}");
    }
    for open in ["|f", ".f", " is odd", "[0]", "()"] {
        let _ = alone(&format!("{{{{ a{} }}}}", open.repeat(many(open))));
    }
    for open in ["{% if a %}", "{% for a in b %}", "{% set a %}", "{% if a %}{% elif a %}"] {
        let _ = alone(&open.repeat(many(open)));
    }
    let calls = alone("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").unwrap_err();
    assert!(calls.contains("recursion limit"), "{calls}");
    let _ = alone("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}{{ ns == ns }}");
}

/// The largest budget that a conversation gives nests values as deep as the stack allows.
#[test]
fn a_long_conversation_gives_no_template_a_way_to_the_end_of_the_stack() {
    let long = [Message::new("user", "a".repeat(8 << 20))];
    for body in ["[ns.x]", "{'a': ns.x}", "namespace(x=ns.x)"] {
        for end in ["{{ ns.x == ns.y }}", "{{ ns.x | upper | length }}", "{{ [ns.x, ns.y] | sort }}"] {
            let other = body.replace("ns.x", "ns.y");
            let source = format!(
                "{{% set ns = namespace(x=[], y=[]) %}}{{% for j in range(3) %}}{{% for i in range(20000) %}}\
                 {{% set ns.x = {body} %}}{{% set ns.y = {other} %}}{{% endfor %}}{{% endfor %}}{end}"
            );
            // Whatever it answers, it answers.
            let _ = render(&source, &long, &Json::Null);
        }
    }
}

#[test]
fn mistakes_name_their_line() {
    for (source, expected) in [
        ("\n{{ x", "does not parse: unexpected end of input, expected end of variable block in line 2"),
        ("{% if a %}\n{% endfor %}", "does not parse: unknown statement endfor in line 2"),
        ("\n\n{{ a.b.c }}", "fails: undefined value in line 3"),
        ("{{ messages | nope }}", "fails: filter nope is unknown in line 1"),
        ("{{ 1 is nope }}", "fails: test nope is unknown in line 1"),
        ("{{ nope() }}", "fails: nope is unknown in line 1"),
        ("{{ {} | tojson(nope=1) }}", "fails: unknown keyword argument 'nope' in line 1"),
        ("{% include 'other' %}", "does not parse: unknown statement include in line 1"),
    ] {
        let whole = format!("the model's chat template {expected}; correct the conversation, or give the prompt raw");
        assert_eq!(alone(source), Err(whole), "{source}");
    }
}

#[test]
fn a_hostile_template_ends_the_load_and_one_that_refuses_a_conversation_does_not() {
    let probe = |source: &str| template(source).probe().map_err(|error| error.to_string());
    for source in [
        "{{ messages[0].content }}",
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system messages') }}{% endif %}",
        "{{ raise_exception('nothing suits it') }}",
        "{{ messages[7].content }}{{ nope() }}",
    ] {
        assert_eq!(probe(source), Ok(None), "{source}");
    }
    let broken = probe("{% for %}").unwrap().unwrap();
    assert!(broken.starts_with("chat_template.jinja: the chat template does not parse: "), "{broken}");
    let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    let of_long = "{% if messages | length > 3 %}".to_owned() + endless + "{% endif %}";
    let end = "correct the template, or omit it: the family has one";
    for source in [endless, of_long.as_str()] {
        let detail = "runs for ever or takes too much memory in line 1";
        assert_eq!(probe(source), Err(format!("chat_template.jinja: the chat template {detail}; {end}")));
    }
    let detail = "has 262145 bytes, expected at most 262144";
    let whole = format!("chat_template.jinja: the chat template {detail}; {end}");
    assert_eq!(probe(&"a".repeat(262_145)), Err(whole));
    assert_eq!(probe(&"a".repeat(262_144)), Ok(None));
}

#[test]
fn a_template_whose_load_would_take_for_ever_without_steps_is_refused() {
    let grown = |grow: &str, end: &str| {
        format!("{{% set ns = namespace(a=[1], b=[1]) %}}{{% for i in range(60) %}}{grow}{{% endfor %}}{end}")
    };
    let nested = "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}";
    for source in [grown("{% set ns.a = ns.a + ns.a %}", ""), grown(nested, "{{ ns.a == ns.b }}")] {
        let begin = Instant::now();
        let detail = "runs for more than 5 s with a short conversation";
        let end = "correct the template, or omit it: the family has one";
        let whole = format!("chat_template.jinja: the chat template {detail}; {end}");
        assert_eq!(template(&source).probe().map_err(|error| error.to_string()), Err(whole), "{source}");
        assert!(begin.elapsed().as_secs() < 20);
    }
}
