//! `--check`: answers under load beside those of the same requests alone.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt::Write,
    time::Instant,
};

use super::{
    answer::{Answer, Choice},
    http::Line,
    load::{self, Outcome, Run},
    plan::{Load, Plan},
    report::finished,
};
use crate::{interrupt, progress::Bar};

/// Result of the comparison.
#[derive(Debug, Default)]
pub struct Checked {
    /// Answers that were compared.
    pub compared: usize,
    /// A line for each one that differs, or whose lone run failed.
    pub differences: Vec<String>,
}

/// Sends the requests of all finished answers once more, one at a time.
pub fn check(plan: &Plan, model: &str, runs: &[(Load, Run)], bar: &Bar) -> anyhow::Result<Checked> {
    let mut checked = Checked::default();
    let mut alone: BTreeMap<usize, Result<Vec<Choice>, String>> = BTreeMap::new();
    let mut line = Line::default();
    for (load, run) in runs {
        for (sample, answer, _) in finished(run) {
            let solo = match alone.entry(sample.number) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    interrupt::check()?;
                    let outcome = load::one(plan, &mut line, model, sample.number, Instant::now());
                    bar.advance();
                    entry.insert(choices(outcome))
                }
            };
            checked.compared += 1;
            if let Some(difference) = difference(answer, solo) {
                checked.differences.push(format!("request {} at {load}: {difference}", sample.number));
            }
        }
    }
    interrupt::check()?;
    Ok(checked)
}

fn choices(outcome: Outcome) -> Result<Vec<Choice>, String> {
    match outcome {
        Outcome::Finished(finished) => Ok(finished.0.choices),
        Outcome::Refused { .. } => Err("refused".to_owned()),
        Outcome::Failed(failure) => Err(failure.to_string()),
    }
}

/// Difference of an answer from that of the lone run, if there is one.
fn difference(answer: &Answer, solo: &Result<Vec<Choice>, String>) -> Option<String> {
    let solo = match solo {
        Ok(solo) => solo,
        Err(why) => return Some(format!("the lone run has no answer: {why}")),
    };
    if answer.choices.len() != solo.len() {
        return Some(format!("{} choices, alone {}", answer.choices.len(), solo.len()));
    }
    let mut pairs = answer.choices.iter().zip(solo).enumerate();
    let (index, (found, alone)) = pairs.find(|(_, (found, alone))| found != alone)?;
    let mut told = if index > 0 { format!("choice {index}: ") } else { String::new() };
    if found.text != alone.text {
        let same = found.text.bytes().zip(alone.text.bytes()).take_while(|(one, other)| one == other).count();
        let rest = |text: &str| String::from_utf8_lossy(&text.as_bytes()[same..]).chars().take(20).collect::<String>();
        let _ = write!(told, "text from byte {same} on is {:?}, alone {:?}", rest(&found.text), rest(&alone.text));
    } else if found.tokens != alone.tokens {
        let same = found.tokens.iter().zip(&alone.tokens).take_while(|(one, other)| one == other).count();
        let at = |tokens: &[u32]| tokens.get(same).map_or("none".to_owned(), u32::to_string);
        let _ = write!(told, "token {same} is {}, alone {}", at(&found.tokens), at(&alone.tokens));
    } else {
        let _ = write!(told, "finish_reason is {:?}, alone {:?}", found.finish, alone.finish);
    }
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(text: &str, tokens: &[u32]) -> Choice {
        Choice { text: text.into(), tokens: tokens.to_vec(), finish: Some("stop".into()) }
    }

    fn found(one: Choice, other: Choice) -> Option<String> {
        difference(&Answer { choices: vec![one], ..Answer::default() }, &Ok(vec![other]))
    }

    #[test]
    fn differences_are_told_where_they_begin() {
        assert_eq!(found(choice("same", &[1]), choice("same", &[1])), None);
        let told = found(choice("grün", &[]), choice("gräu", &[])).unwrap();
        assert!(told.starts_with("text from byte 3 on is"), "{told}");
        assert_eq!(found(choice("a", &[1, 2]), choice("a", &[1])).unwrap(), "token 1 is 2, alone none");
        let other = Choice { finish: None, ..choice("a", &[]) };
        assert!(found(choice("a", &[]), other).unwrap().starts_with("finish_reason"));
        let answer = Answer { choices: vec![choice("a", &[]), choice("b", &[])], ..Answer::default() };
        assert_eq!(difference(&answer, &Ok(vec![choice("a", &[])])).unwrap(), "2 choices, alone 1");
        let told = difference(&answer, &Ok(vec![choice("a", &[]), choice("c", &[])])).unwrap();
        assert!(told.starts_with("choice 1: text from byte 0"), "{told}");
        assert!(difference(&answer, &Err("x".into())).unwrap().ends_with("no answer: x"));
    }
}
