//! Numbers.

use super::Verdict;

/// The number behind the last of the phrases, else the last number, compared with the right one.
pub fn judge(triggers: &[&str], gold: &str, output: &str) -> Verdict {
    let lower = output.to_lowercase();
    let behind =
        triggers.iter().filter_map(|trigger| Some(lower.rfind(&trigger.to_lowercase())? + trigger.len())).max();
    let answer = behind.and_then(|at| numbers(&lower[at..]).next()).or_else(|| numbers(&lower).last());
    let value = |text: &str| text.replace(',', "").parse::<f64>().ok();
    let correct = answer.as_deref().and_then(value).is_some_and(|found| value(gold) == Some(found));
    Verdict { answer, correct, failure: None }
}

/// The numbers of a text from left to right, without commas.
fn numbers(text: &str) -> impl Iterator<Item = String> {
    let part = |c: char| !(c.is_ascii_digit() || matches!(c, '-' | '.' | ','));
    text.split(part).filter_map(|word| {
        let word = word.trim_end_matches(['.', ',', '-']).replace(',', "");
        word.parse::<f64>().ok().map(|_| word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_behind_the_trigger_wins_over_the_last_one() {
        let verdict = judge(&["The final answer is"], "1234", "1+1=2. The final answer is 1,234. (7 lines)");
        assert_eq!(verdict, Verdict { answer: Some("1234".to_owned()), correct: true, failure: None });
        assert!(!judge(&["The final answer is"], "7", "The final answer is 8, not 7").correct);
        assert_eq!(judge(&[], "7", "no number").answer, None);
    }
}
