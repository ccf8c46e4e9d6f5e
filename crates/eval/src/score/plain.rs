//! Options, expressions and texts, each by the plainest rule.

use super::Verdict;

fn verdict(answer: Option<String>, correct: impl FnOnce(&str) -> bool) -> Verdict {
    let correct = answer.as_deref().is_some_and(correct);
    Verdict { answer, correct, failure: None }
}

/// What stands behind the last of the phrases, in any case.
fn behind<'a>(output: &'a str, phrases: &[&str]) -> Option<&'a str> {
    let lower = output.to_ascii_lowercase();
    let ends = phrases.iter().filter_map(|phrase| Some(lower.rfind(phrase)? + phrase.len()));
    ends.max().map(|end| &output[end..])
}

/// The letter behind the last usual phrase, else the last letter that stands alone.
pub(super) fn letter(gold: usize, options: usize, output: &str) -> Verdict {
    let alone = |text: &str| -> Vec<char> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let letters = words.filter_map(|word| word.chars().next().filter(|_| word.len() == 1));
        letters.filter(|letter| (usize::from(*letter as u8).wrapping_sub(usize::from(b'A'))) < options).collect()
    };
    let said = behind(output, &["answer is", "answer:", "boxed{"]).and_then(|text| alone(text).first().copied());
    let answer = said.or_else(|| alone(output).last().copied());
    verdict(answer.map(String::from), |letter| usize::from(letter.as_bytes()[0] - b'A') == gold)
}

/// The last of the words with a number behind it.
pub(super) fn named(words: &[&str], gold: usize, output: &str) -> Verdict {
    let lower = output.to_ascii_lowercase();
    let number = |text: &str| -> Option<usize> {
        let text = text.strip_prefix(' ').unwrap_or(text);
        text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let named = words.iter().flat_map(|word| {
        lower
            .match_indices(word)
            .filter_map(move |(at, _)| Some((at, format!("{word}{}", number(&lower[at + word.len()..])?))))
    });
    let answer = named.max_by_key(|(at, _)| *at).map(|(_, name)| name);
    verdict(answer, |name| words.iter().any(|word| *name == format!("{word}{}", gold + 1)))
}

/// The expression in the last box, else behind the last phrase, without spaces and dollars.
pub(super) fn boxed(gold: &str, output: &str) -> Verdict {
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
    let said = || behind(output, &["final answer is"])?.split(". ").next();
    verdict(in_box.or_else(said).map(|text| plain(text.trim_end_matches('.'))), |answer| answer == plain(gold))
}

/// The text behind the last phrase, else all of it.
pub(super) fn exact(gold: &[String], output: &str) -> Verdict {
    let said = behind(output, &["the answer is"]).unwrap_or(output).lines().next().unwrap_or_default();
    let said = said.trim().trim_end_matches('.').to_owned();
    verdict(Some(said), |said| gold.iter().any(|gold| gold.eq_ignore_ascii_case(said)))
}

/// At least half of the words, of either side, in the other.
pub(super) fn shared(gold: &[String], output: &str) -> Verdict {
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
    verdict(Some(output.trim().to_owned()), |_| gold.iter().map(score).fold(0.0, f64::max) >= 0.5)
}
