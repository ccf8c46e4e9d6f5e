//! Mathematical expressions in LaTeX: whether an answer has the value of the right one.
//!
//! Two answers are the same if their tokens are, once spellings without meaning are gone; if both are numbers of the same
//! exact value; if both are expressions that agree wherever they are tried; or if both are sets, tuples, intervals or
//! matrices whose parts are the same.

mod expression;
mod parts;
mod tokens;

use super::{Verdict, extract};
use parts::Part;

/// Longer texts are no answers.
const LONGEST: usize = 2000;

/// The expression in the last box, else behind the last of the phrases.
pub fn judge(triggers: &[&str], gold: &str, output: &str) -> Verdict {
    let boxed = extract::boxed(output).map(str::to_owned);
    let plain = extract::without_bold(output);
    let behind = || extract::behind(triggers, &plain).into_iter().find_map(statement).map(str::to_owned);
    let Some(answer) = boxed.or_else(behind).map(|answer| answer.trim().to_owned()) else { return Verdict::none() };
    let correct = equal(extract::boxed(gold).unwrap_or(gold), &answer);
    Verdict::of(answer, correct)
}

/// Reports whether two expressions are the same answer.
pub fn equal(gold: &str, answer: &str) -> bool {
    if gold.len() > LONGEST || answer.len() > LONGEST {
        return gold == answer;
    }
    let part = |text| Part::of(&tokens::of(text));
    let (gold, answer) = (part(gold), part(answer));
    !gold.is_empty() && gold.equals(&answer)
}

/// First statement of a region: a formula between dollars, else the rest of the sentence.
fn statement(region: &str) -> Option<&str> {
    let region = region.trim_start_matches([' ', ':', '\n']);
    for (open, close) in [("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")] {
        if let Some(inner) = region.strip_prefix(open) {
            return inner.split(close).next().filter(|inner| !inner.trim().is_empty());
        }
    }
    let line = region.lines().next()?;
    let end = line.find(". ").unwrap_or(line.len());
    Some(line[..end].trim().trim_end_matches('.')).filter(|statement| !statement.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_in_the_last_box_or_behind_the_phrase() {
        let found = |output: &str| judge(&["final answer is"], "1", output).answer;
        assert_eq!(found(r"\boxed{2}, no, \boxed{1}").as_deref(), Some("1"));
        assert_eq!(found(r"The final answer is $\frac{1}{1}$. I hope it is correct.").as_deref(), Some(r"\frac{1}{1}"));
        assert_eq!(found("The final answer is 1.5. I hope").as_deref(), Some("1.5"));
        assert_eq!(found("1"), None);
        assert!(judge(&[], r"so \boxed{\frac12}", r"\boxed{0.5}").correct);
    }

    #[test]
    fn an_empty_gold_is_never_met() {
        assert!(!equal("", ""));
        assert!(!equal("$", "$"));
    }
}
