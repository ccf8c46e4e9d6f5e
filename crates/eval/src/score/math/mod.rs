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

/// The expression in the last box, else after the last of the phrases.
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
    let (gold, answer) = (tokens::of(gold), tokens::of(answer));
    // A comma between words may not be one between parts.
    if expression::same_text(&gold, &answer) {
        return true;
    }
    let (gold, answer) = (Part::of(&gold), Part::of(&answer));
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

    #[test]
    fn words_beside_a_number_count_unless_they_are_units() {
        for (gold, answer, same) in [
            (r"10:30\text{ a.m.}", r"10:30\text{ p.m.}", false),
            (r"10:30\text{ a.m.}", "10:30", false),
            (r"10:30\text{ a.m.}", "10:30 a.m.", true),
            (r"10:30\text{ a.m.}", r"10:30\text{ AM}", true),
            (r"10:30\text{ a.m.}", "10:30 pm", false),
            (r"3\text{ boys}", r"3\text{ girls}", false),
            (r"3\text{ boys}", "3 boys", true),
            (r"3\text{ boys}", "4 boys", false),
            (r"3\text{ boys}", "3", false),
            (r"5^\circ\text{ north}", r"5^\circ\text{ south}", false),
            (r"5\text{ cm}", "5", true),
            (r"5\text{ cm}^2", r"5\text{ square inches}", true),
            (r"5\text{ students}", "5", true),
            (r"5\text{ m}", "5", true),
            (r"1.5\text{ apples}", r"15\text{ apples}", false),
            (r"12\text{ ways}", "12 ways", true),
            (r"7^{\mathrm{th}}", "7", false),
        ] {
            assert_eq!(equal(gold, answer), same, "{gold} and {answer}");
            assert_eq!(equal(answer, gold), same, "{answer} and {gold}");
        }
    }

    #[test]
    fn words_are_the_same_inside_and_outside_of_text() {
        for (gold, answer, same) in [
            (r"\text{June 20}", "June 20", true),
            (r"\text{June 20}", r"\text{June }20", true),
            (r"\text{June 20}", r"\mathrm{june\ 20}", true),
            (r"\text{June 20}", "June 21", false),
            (r"\text{June 20}", "July 20", false),
            (r"\text{June 20}", "20", false),
            (r"\text{June 20, 2020}", "June 20, 2020", true),
            (r"\text{no solution}", "no solution", true),
            (r"\text{red and blue}", "red and blue", true),
            (r"\text{Monday}", r"\textbf{Monday.}", true),
            (r"\text{Navin's}", "Navin's", true),
            (r"\text{1.5 hours late}", "1.5 hours late", true),
            (r"\text{all } x > 2", "all x > 2", true),
            (r"\text{all } x > 2", "all x > 3", false),
        ] {
            assert_eq!(equal(gold, answer), same, "{gold} and {answer}");
            assert_eq!(equal(answer, gold), same, "{answer} and {gold}");
        }
    }
}
