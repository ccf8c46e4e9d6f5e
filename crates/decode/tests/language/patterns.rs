//! Regular expressions and choices against a search of the crate `regex`.

use std::collections::HashSet;

use demask_decode::constraint::{ByteAutomaton, Constraint, ConstraintError, Language};
use regex::Regex;

use super::texts::{Draws, draw};

fn automaton(pattern: &str) -> Result<ByteAutomaton, ConstraintError> {
    Constraint::new(Language::Regex(pattern.to_owned())).compile().map(|made| made.automaton)
}

/// The position and the reason of a pattern's refusal.
fn refusal(pattern: &str) -> (usize, String) {
    match automaton(pattern) {
        Err(ConstraintError::Pattern { position, reason }) => (position, reason),
        other => panic!("{pattern}: {other:?}"),
    }
}

/// A pattern with nested parts, of few characters, so that texts of one are often those of another.
fn pattern(draws: &mut Draws, depth: usize) -> String {
    const LEAVES: &[&str] = &[
        "a",
        "b",
        "ab",
        "é",
        "[ab]",
        "[^a]",
        ".",
        r"\d",
        r"\w",
        r"\s",
        "(?i:k)",
        "[a-cé]",
        r"\pL",
        "日",
        "(?-u:[a-c])",
        "^",
        "$",
        "",
    ];
    if depth == 0 {
        return LEAVES[draws.below(LEAVES.len())].to_owned();
    }
    let mut part = || pattern(draws, depth - 1);
    let (left, right) = (part(), part());
    match draws.below(8) {
        0 | 1 => format!("{left}{right}"),
        2 => format!("(?:{left}|{right})"),
        3 => format!("({left})*{right}"),
        4 => format!("(?:{left})+?{right}"),
        5 => format!("(?:{left})?{right}"),
        6 => format!("(?:{left}){{1,3}}{right}"),
        _ => format!("{left}|{right}"),
    }
}

/// Changes one character of a text: leaves it out, doubles it, or puts another one there.
fn near(text: &str, draws: &mut Draws) -> String {
    let mut symbols: Vec<char> = text.chars().collect();
    let at = draws.below(symbols.len() + 1);
    let symbol = ['a', 'b', 'k', 'K', '7', ' ', '\n', 'é', '日', '\u{212A}', '𝒳'][draws.below(11)];
    match draws.below(3) {
        0 if at < symbols.len() => drop(symbols.remove(at)),
        1 if at < symbols.len() => symbols[at] = symbol,
        _ => symbols.insert(at, symbol),
    }
    symbols.into_iter().collect()
}

#[test]
fn structure_s1_s15_random_patterns_have_the_texts_that_a_search_matches() {
    let mut draws = Draws(1);
    let (mut inside, mut outside, mut empty, mut large) = (0, 0, 0, 0);
    for _ in 0..1_500 {
        let depth = draws.below(4);
        let pattern = pattern(&mut draws, depth);
        let search = Regex::new(&format!(r"\A(?:{pattern})\z")).unwrap();
        let automaton = match automaton(&pattern) {
            Ok(automaton) => automaton,
            Err(error @ (ConstraintError::Empty { .. } | ConstraintError::OnlyEmpty)) => {
                empty += 1;
                assert_eq!(search.is_match(""), error == ConstraintError::OnlyEmpty, "{pattern:?}");
                for text in ["a", "b", "ab", "ba", "aa", "é", "a\n"] {
                    assert!(!search.is_match(text), "{pattern:?} has {text:?}");
                }
                continue;
            }
            // Counted classes of Unicode that begin in many ways.
            Err(ConstraintError::TooLarge { .. }) => {
                large += 1;
                continue;
            }
            Err(error) => panic!("{pattern:?}: {error}"),
        };
        for round in 0..20 {
            let text = String::from_utf8(draw(&automaton, round % 7, &mut draws)).unwrap();
            assert!(search.is_match(&text), "{pattern:?} has no {text:?}");
            let near = near(&text, &mut draws);
            let matches = search.is_match(&near);
            assert_eq!(automaton.contains(near.as_bytes()), matches, "{pattern:?} and {near:?}");
            if matches { inside += 1 } else { outside += 1 }
        }
    }
    assert!(inside > 3_000 && outside > 3_000 && empty > 10 && large < 15, "{inside} {outside} {empty} {large}");
}

#[test]
fn alternatives_have_no_preference() {
    let two = automaton("a|ab").unwrap();
    assert!(two.contains(b"a") && two.contains(b"ab") && !two.contains(b"b"));
    let answer = automaton("(yes|yes please)").unwrap();
    assert!(answer.contains(b"yes please") && answer.contains(b"yes") && !answer.contains(b"yes "));
    let lazy = automaton("a+?").unwrap();
    assert!(lazy.contains(b"aaa"));
}

#[test]
fn structure_s16_patterns_are_refused_with_a_position() {
    let (position, reason) = refusal("ab(?=c)");
    assert!(position == 2 && reason.contains("look-around"), "{position} {reason}");
    let (position, reason) = refusal(r"(a)é\1");
    assert!(position == 5 && reason.contains("backreferences"), "{position} {reason}");
    let (position, reason) = refusal(r"ab\b");
    assert_eq!((position, reason.as_str()), (2, "word boundaries are not supported: leave it out"));
    let (position, _) = refusal("ab(c");
    assert_eq!(position, 2);
    refusal("(?m)^a");
    refusal(r"(?-u)\xFF");
    assert_eq!(automaton("a$b").unwrap_err(), ConstraintError::Empty { path: None });
    for pattern in ["", "^$", "(|)", "a{0}"] {
        assert_eq!(automaton(pattern).unwrap_err(), ConstraintError::OnlyEmpty, "{pattern:?}");
    }
    assert_eq!(automaton("[^\0-\u{10FFFF}]").unwrap_err().to_string(), "no text fits the form: expected at least one");
}

#[test]
fn structure_s1_choices_are_their_texts() {
    let mut draws = Draws(2);
    let texts: HashSet<String> = (0..300)
        .map(|n| "ab\u{e9}\n".chars().cycle().skip(n % 4).take(n % 23).collect::<String>() + ["", "x", "日"][n % 3])
        .collect();
    let choices: Vec<String> = texts.iter().cloned().collect();
    let automaton = Constraint::new(Language::Choice(choices)).compile().unwrap().automaton;
    for text in &texts {
        assert!(automaton.contains(text.as_bytes()), "{text:?}");
        let near = near(text, &mut draws);
        assert_eq!(automaton.contains(near.as_bytes()), texts.contains(&near), "{near:?}");
    }
    let refused = |choices: &[&str]| {
        let choices = choices.iter().map(ToString::to_string).collect();
        Constraint::new(Language::Choice(choices)).compile().unwrap_err().to_string()
    };
    assert_eq!(refused(&[]), "the choices are not usable: there are 0, expected 1 to 4096");
    assert_eq!(refused(&["a\n", "b", "a\n"]), "the choices are not usable: \"a\\n\" is there twice");
}

#[test]
fn a_text_may_come_after_a_mark() {
    let mut constraint = Constraint::new(Language::Regex("[0-9]+".to_owned()));
    constraint.after = Some("</think>".to_owned());
    let automaton = constraint.compile().unwrap().automaton;
    for text in ["</think>7", "hm </thin</think>\n\n42", "</</think>\n1", "日\n</think>0"] {
        assert!(automaton.contains(text.as_bytes()), "{text}");
    }
    for text in ["7", "</think>", "</think>\n\n\n7", "</think></think>7", "hm </think>7 ", "</think> 7"] {
        assert!(!automaton.contains(text.as_bytes()), "{text}");
    }
    constraint.after = Some(String::new());
    assert_eq!(
        constraint.compile().unwrap_err().to_string(),
        "the constraint's option after has 0 bytes, expected 1 to 256"
    );
}

/// Of all texts of few characters, exactly those that have none of the words.
#[test]
fn bad_words_are_nowhere_in_a_text() {
    let mut draws = Draws(5);
    let mut texts = vec![String::new()];
    for length in 0..5 {
        let longer: Vec<String> = texts.iter().filter(|text| text.chars().count() == length).cloned().collect();
        texts.extend(longer.iter().flat_map(|text| ["a", "b", "é", "."].map(|letter| format!("{text}{letter}"))));
    }
    for _ in 0..40 {
        let word = |draws: &mut Draws| (0..=draws.below(3)).map(|_| ["a", "b", "é", "."][draws.below(4)]).collect();
        let without: Vec<String> = (0..=draws.below(3)).map(|_| word(&mut draws)).collect();
        let has = |text: &str| without.iter().any(|word| text.contains(word.as_str()));
        for language in [Language::Any, Language::Regex("a.*|b?".to_owned())] {
            let all = Constraint::new(language);
            let made = Constraint { without: without.clone(), ..all.clone() }.compile();
            let all = all.compile().unwrap().automaton;
            let made = match made {
                Ok(made) => made.automaton,
                Err(error) => {
                    assert_eq!(error, ConstraintError::OnlyEmpty);
                    let left = texts.iter().filter(|text| all.contains(text.as_bytes()) && !has(text));
                    assert!(left.eq([""]), "{without:?}");
                    continue;
                }
            };
            for text in &texts {
                assert_eq!(
                    made.contains(text.as_bytes()),
                    all.contains(text.as_bytes()) && !has(text),
                    "{text} {without:?}"
                );
            }
        }
    }
    let choices = ["class", "cases"].map(str::to_owned).to_vec();
    let one = Constraint { without: vec!["ass".to_owned()], ..Constraint::new(Language::Choice(choices.clone())) };
    let one = one.compile().unwrap().automaton;
    assert!(one.contains(b"cases") && !one.contains(b"class"));
    let none = Constraint { without: vec!["c".to_owned()], ..Constraint::new(Language::Choice(choices)) };
    assert_eq!(none.compile().unwrap_err().to_string(), "no text fits the form: expected at least one");
}

#[test]
fn names_of_constraints_tell_them_apart() {
    let plain = Constraint::new(Language::Regex("a".to_owned()));
    let mut others = vec![
        Constraint::new(Language::Regex("b".to_owned())),
        Constraint::new(Language::Choice(vec!["a".to_owned()])),
        Constraint::new(Language::Choice(vec!["a".to_owned(), String::new()])),
        Constraint::new(Language::JsonObject),
        Constraint { after: Some(String::new()), ..plain.clone() },
        Constraint { depth: 2, ..plain.clone() },
        Constraint { without: vec!["a".to_owned()], ..plain.clone() },
        Constraint { without: vec!["b".to_owned()], ..plain.clone() },
    ];
    others.push(plain.clone());
    let names: HashSet<String> = others.iter().map(Constraint::hash).collect();
    assert_eq!(names.len(), others.len());
    assert_eq!(plain.hash().len(), 32);
}
