//! The scorers on a corpus of awkward answers, on numbers written in every way, and on noise.

use demask_eval::{Gold, Problem, Rule, Verdict};
use proptest::prelude::*;
use serde::Deserialize;

const CORPUS: &str = include_str!("data/answers.jsonl");
const PHRASE: &[&str] = &["The final answer is"];
const CHOSEN: &[&str] = &["the final answer is", "the correct answer is"];

/// One line of the corpus: what was right, what a model wrote, what is taken for its answer and what that is worth.
#[derive(Debug, Deserialize)]
struct Line {
    rule: String,
    gold: String,
    output: String,
    answer: Option<String>,
    correct: bool,
    #[serde(default)]
    credit: Option<f64>,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default)]
    name: String,
}

impl Line {
    fn judge(&self) -> Verdict {
        let gold = self.gold.clone();
        let option = |text: &str| Gold::Option(text.parse::<usize>().unwrap() - 1);
        let letter = || Gold::Option(usize::from(gold.as_bytes()[0] - b'A'));
        let (rule, gold) = match self.rule.as_str() {
            "number" => (Rule::Number(PHRASE), Gold::Number(gold)),
            "math" => (Rule::Math(PHRASE), Gold::Math(gold)),
            "letter" => (Rule::Letter(&["answer is", "answer:"]), letter()),
            "exact" => (Rule::Exact(&["the answer is"]), Gold::Text(vec![gold])),
            "overlap" => (Rule::Overlap, Gold::Text(vec![gold])),
            "choice" => {
                let name =
                    ["answer", "solution", "option", "ending"].into_iter().find(|name| *name == self.name).unwrap();
                (Rule::Choice { name, triggers: CHOSEN }, option(gold.strip_prefix(name).unwrap()))
            }
            other => panic!("{other}"),
        };
        let mut options = self.options.clone();
        if self.rule == "letter" && options.is_empty() {
            options = vec![String::new(); 4];
        }
        rule.judge(&Problem { options, gold, ..Problem::default() }, &self.output)
    }

    fn holds(&self, verdict: &Verdict) -> bool {
        let credit = match (self.credit, verdict.credit) {
            (Some(expected), Some(found)) => (expected - found).abs() < 1e-12,
            (expected, found) => expected == found,
        };
        credit && verdict.answer == self.answer && verdict.correct == self.correct
    }
}

#[test]
fn every_line_of_the_corpus_holds() {
    let lines: Vec<Line> = CORPUS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() >= 200);
    let judged = lines.iter().map(|line| (line, line.judge()));
    let failing: Vec<_> = judged.filter(|(line, verdict)| !line.holds(verdict)).collect();
    let tell = |(line, verdict): &(&Line, Verdict)| format!("{line:?}\n    judged {verdict:?}\n");
    assert!(
        failing.is_empty(),
        "{} of {}:\n{}",
        failing.len(),
        lines.len(),
        failing.iter().map(tell).collect::<String>()
    );
}

#[test]
fn what_can_be_read_in_two_ways_is_said_to_be() {
    let problem = Problem { gold: Gold::Number("1234.5".to_owned()), ..Problem::default() };
    let verdict = Rule::Number(PHRASE).judge(&problem, "The final answer is 1.234,5");
    assert_eq!(verdict.failure.as_deref(), Some("ambiguous number"));
}

/// A number of hundredths as decimal text.
fn decimal(hundredths: i64) -> String {
    let (sign, rest) = (if hundredths < 0 { "-" } else { "" }, hundredths.unsigned_abs());
    match rest % 100 {
        0 => format!("{sign}{}", rest / 100),
        part => format!("{sign}{}.{part:02}", rest / 100),
    }
}

/// Puts commas between thousands.
fn with_commas(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, part) = rest.split_once('.').map_or((rest, String::new()), |(whole, part)| (whole, format!(".{part}")));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{part}")
}

/// Ways in which people and models write a number.
fn written(hundredths: i64, style: usize) -> String {
    let plain = decimal(hundredths);
    let unsigned = plain.trim_start_matches('-');
    let sign = if hundredths < 0 { "-" } else { "" };
    match style {
        0 => plain,
        1 => with_commas(&plain),
        2 => format!("{sign}${}", with_commas(unsigned)),
        3 => format!("**{plain}**"),
        4 => format!("$\\boxed{{{plain}}}$"),
        5 => format!("{plain} dollars"),
        6 => format!("{plain}%"),
        7 => format!("{hundredths}/100"),
        8 => format!("\\frac{{{hundredths}}}{{100}}"),
        9 => format!("{hundredths}e-2"),
        10 => format!("{hundredths} \\times 10^{{-2}}"),
        11 => with_commas(&plain).replace(',', "{,}"),
        12 => format!("{}{}", sign.replace('-', "−"), with_commas(unsigned).replace(',', "\u{a0}")),
        _ => {
            if plain.contains('.') {
                format!("{plain}0")
            } else {
                format!("{plain}.00")
            }
        }
    }
}

const STYLES: usize = 14;

fn judged(rule: Rule, gold: Gold, output: &str) -> Verdict {
    rule.judge(&Problem { gold, ..Problem::default() }, output)
}

proptest! {
    #[test]
    fn a_number_is_right_however_it_is_written_and_wrong_if_it_is_another(
        value in -100_000_000_i64..100_000_000,
        off in prop_oneof![Just(1_i64), Just(-1), Just(100), -5000_i64..5000],
        style in 0..STYLES,
        gold_has_commas: bool,
        sentence in 0..4_usize,
    ) {
        let gold = if gold_has_commas { with_commas(&decimal(value)) } else { decimal(value) };
        let answer = |value| {
            let number = written(value, style);
            match sentence {
                0 => format!("1+1=2. The final answer is {number}"),
                1 => format!("The final answer is {number}."),
                2 => format!("The final answer is 7? No. THE FINAL ANSWER IS: {number}, of 12 things."),
                _ => format!("She has 3 left, so it makes {number}."),
            }
        };
        let number = Gold::Number(gold);
        let verdict = judged(Rule::Number(PHRASE), number.clone(), &answer(value));
        prop_assert!(verdict.correct, "{}: {:?}", answer(value), verdict);
        let wrong = if off == 0 { 1 } else { off };
        prop_assert!(!judged(Rule::Number(PHRASE), number, &answer(value + wrong)).correct, "{}", answer(value + wrong));
    }

    #[test]
    fn a_fraction_is_right_however_it_is_written_and_wrong_if_it_is_another(
        numerator in 1_i64..500,
        denominator in 2_i64..500,
        times in 1_i64..9,
        style in 0..4_usize,
    ) {
        let written = |numerator: i64, denominator: i64| match style {
            0 => format!("\\boxed{{\\frac{{{numerator}}}{{{denominator}}}}}"),
            1 => format!("\\boxed{{{numerator}/{denominator}}}"),
            2 => format!("\\boxed{{x = \\dfrac{{{numerator}}}{{{denominator}}}\\text{{ cm}}}}"),
            _ => format!("The final answer is $\\tfrac{{{numerator}}}{{{denominator}}}$. I hope it is correct."),
        };
        let gold = Gold::Math(format!("\\frac{{{numerator}}}{{{denominator}}}"));
        let verdict = judged(Rule::Math(PHRASE), gold.clone(), &written(numerator * times, denominator * times));
        prop_assert!(verdict.correct, "{verdict:?}");
        prop_assert!(!judged(Rule::Math(PHRASE), gold.clone(), &written(numerator * times + 1, denominator * times)).correct);
        prop_assert!(!judged(Rule::Math(PHRASE), gold, &written(numerator, denominator + 1)).correct);
    }

    #[test]
    fn no_output_makes_a_scorer_panic(
        output in prop_oneof![
            any::<String>(),
            "[-0-9.,$%/^ (){}=eE×_\u{2009}½–−]{0,60}",
            r"(\\(frac|dfrac|sqrt|boxed|left|right|text|begin|end|pm|cup|log|le|\{|\})|[{}()\[\]0-9xyA-D.,&=^_+/! -]|pmatrix|array){0,40}",
            "(the answer is|answer|[A-J(). \n*]|answer[0-9]){0,20}",
        ],
        gold in r"(\\(frac|sqrt|\{|\}|begin|pm)|[{}(),0-9x^_=]){0,20}",
    ) {
        let options = ["a", "b", "c"].map(str::to_owned).to_vec();
        let boxed = format!("\\boxed{{{output}}}");
        for (rule, gold) in [
            (Rule::Number(PHRASE), Gold::Number(gold.clone())),
            (Rule::Math(PHRASE), Gold::Math(gold.clone())),
            (Rule::Letter(&["answer is"]), Gold::Option(1)),
            (Rule::Choice { name: "answer", triggers: &["the answer is"] }, Gold::Option(1)),
            (Rule::Exact(&["answer is"]), Gold::Text(vec![gold.clone()])),
            (Rule::Overlap, Gold::Text(vec![gold.clone()])),
        ] {
            let problem = Problem { options: options.clone(), gold, ..Problem::default() };
            for output in [&output, &boxed] {
                let verdict = rule.judge(&problem, output);
                prop_assert!((0.0..=1.0).contains(&verdict.worth()));
                prop_assert!(!verdict.correct || verdict.answer.is_some());
            }
        }
    }
}
