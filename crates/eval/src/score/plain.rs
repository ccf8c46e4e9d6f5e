//! Options, expressions and texts, each by the plainest rule.

use super::Verdict;

fn verdict(answer: Option<String>, correct: impl FnOnce(&str) -> bool) -> Verdict {
    let correct = answer.as_deref().is_some_and(correct);
    Verdict { answer, correct, failure: None }
}

/// What stands behind the last of the phrases, in any case.
fn behind<'a>(output: &'a str, phrases: &[&str]) -> Option<&'a str> {
    let lower = output.to_ascii_lowercase();
    let ends = phrases.iter().filter_map(|phrase| Some(lower.rfind(&phrase.to_ascii_lowercase())? + phrase.len()));
    ends.max().map(|end| &output[end..])
}

/// The letter behind the first phrase that has one, else the last letter that stands alone.
pub(super) fn letter(triggers: &[&str], gold: usize, options: usize, output: &str) -> Verdict {
    let index = |letter: char| usize::from(letter as u8).wrapping_sub(usize::from(b'A'));
    let alone = |text: &str| -> Vec<char> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.len() == 1);
        words.filter_map(|word| word.chars().next()).filter(|letter| index(*letter) < options).collect()
    };
    let said = triggers.iter().find_map(|trigger| alone(behind(output, &[trigger])?).first().copied());
    let answer = said.or_else(|| alone(output).last().copied());
    verdict(answer.map(String::from), |letter| letter.chars().next().map(index) == Some(gold))
}

/// The first option named behind the last phrase, else the last one named anywhere.
pub(super) fn choice(name: &str, triggers: &[&str], gold: usize, output: &str) -> Verdict {
    let named = |text: &str| -> Vec<String> {
        let lower = text.to_ascii_lowercase();
        let number = |(at, _): (usize, &str)| {
            let digits = lower[at + name.len()..].trim_start_matches(' ');
            let number: usize = digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
            Some(format!("{name}{number}"))
        };
        lower.match_indices(name).filter_map(number).collect()
    };
    let said = behind(output, triggers).and_then(|text| named(text).into_iter().next());
    verdict(said.or_else(|| named(output).pop()), |answer| answer == format!("{name}{}", gold + 1))
}

/// The expression in the last box, else behind the last phrase, without spaces and dollars.
pub(super) fn math(triggers: &[&str], gold: &str, output: &str) -> Verdict {
    let plain = |text: &str| -> String { text.chars().filter(|c| !c.is_whitespace() && *c != '$').collect() };
    let in_box = output.rfind("\\boxed{").and_then(|at| {
        let inside = &output[at + "\\boxed{".len()..];
        let mut depth = 1;
        let end = inside.char_indices().find(|(_, c)| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth == 0
        });
        end.map(|(end, _)| &inside[..end])
    });
    let said = || behind(output, triggers)?.split(". ").next();
    verdict(in_box.or_else(said).map(|text| plain(text.trim_end_matches('.'))), |answer| {
        let (gold, number) = (plain(gold), |text: &str| text.parse::<f64>().ok());
        answer == gold || number(answer).is_some_and(|value| number(&gold) == Some(value))
    })
}

/// The text behind the last phrase, else the last line.
pub(super) fn exact(triggers: &[&str], golds: &[String], output: &str) -> Verdict {
    let last = || output.trim().lines().next_back().unwrap_or_default();
    let said = behind(output, triggers).and_then(|text| text.lines().next()).unwrap_or_else(last);
    let said = said.trim().trim_end_matches('.').to_owned();
    verdict(Some(said), |said| golds.iter().any(|gold| gold.eq_ignore_ascii_case(said)))
}

/// At least half of the words, of either side, in the other.
pub(super) fn overlap(golds: &[String], output: &str) -> Verdict {
    let words = |text: &str| -> Vec<String> {
        let lower = text.to_lowercase();
        let words =
            lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !matches!(*word, "" | "a" | "an" | "the"));
        words.map(str::to_owned).collect()
    };
    let found = words(output);
    let score = |gold: &String| {
        let gold = words(gold);
        let both = gold.iter().filter(|word| found.contains(word)).count();
        2.0 * both as f64 / (gold.len() + found.len()).max(1) as f64
    };
    verdict(Some(output.trim().to_owned()), |_| golds.iter().map(score).fold(0.0, f64::max) >= 0.5)
}
