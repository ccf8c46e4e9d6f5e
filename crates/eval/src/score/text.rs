//! Texts: equal but for case, spaces and marks; or worth the words they share with the right one.

use std::collections::HashMap;

use super::{Verdict, extract};

/// The line after the last phrase, else the last line, compared with the right texts.
pub fn judge_exact(triggers: &[&str], golds: &[String], output: &str) -> Verdict {
    let plain = extract::without_bold(output);
    let line =
        |text: &str| text.trim().lines().next().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned);
    let behind = extract::behind(triggers, &plain).into_iter().find_map(line);
    let last = || plain.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
    let Some(answer) = behind.or_else(last) else { return Verdict::none() };
    let correct = golds.iter().any(|gold| equal(gold, &answer));
    Verdict::of(bare(&answer), correct)
}

/// Reports whether two texts are the same. An option's letter may be followed by the option: `(A) yes`. Rows of
/// brackets, which are answers too, are compared without their spaces.
fn equal(gold: &str, answer: &str) -> bool {
    let (gold, answer) = (bare(gold), bare(answer));
    if !gold.is_empty() && gold.chars().all(|c| "()[]{}<> ".contains(c)) {
        return without_spaces(&gold) == without_spaces(&answer);
    }
    if let Some(letter) = option_letter(&gold) {
        let head = answer.trim_start_matches('(');
        let rest = head.strip_prefix(letter);
        let ends = |rest: &str| rest.is_empty() || rest.starts_with([')', '.', ':', ',']);
        return rest.is_some_and(ends);
    }
    gold == answer
}

/// The letter of a text such as `(a)`.
fn option_letter(text: &str) -> Option<char> {
    let mut inner = text.strip_prefix('(')?.strip_suffix(')')?.chars();
    let letter = inner.next().filter(char::is_ascii_alphabetic)?;
    inner.next().is_none().then_some(letter)
}

/// Small letters, single spaces, no marks around it.
fn bare(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().map(str::to_lowercase).collect();
    let marks = |c: char| matches!(c, '.' | ',' | ':' | ';' | '"' | '\'' | '`' | '*' | '$' | '“' | '”' | ' ');
    words.join(" ").trim_matches(marks).to_owned()
}

fn without_spaces(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// The whole output's words against those of the right texts, the best of them: F1 as LongBench computes it, on small
/// letters without punctuation and articles. Right is what shares all words in their order.
pub fn judge_overlap(golds: &[String], output: &str) -> Verdict {
    let found = words(output);
    let credit = golds.iter().map(|gold| f1(&words(gold), &found)).fold(0.0, f64::max);
    let correct = !found.is_empty() && golds.iter().any(|gold| words(gold) == found);
    let answer = Some(output.trim().to_owned()).filter(|answer| !answer.is_empty());
    Verdict { answer, correct, credit: Some(credit), ..Verdict::default() }
}

/// Words as SQuAD's and LongBench's scorers count them: punctuation is deleted, not replaced.
fn words(text: &str) -> Vec<String> {
    let kept: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    kept.split_whitespace().filter(|word| !matches!(*word, "a" | "an" | "the")).map(str::to_owned).collect()
}

/// The harmonic mean of precision and recall.
fn f1(gold: &[String], found: &[String]) -> f64 {
    let mut open = HashMap::<&str, usize>::new();
    for word in gold {
        *open.entry(word).or_default() += 1;
    }
    let mut shared = 0_usize;
    for word in found {
        if let Some(count) = open.get_mut(word.as_str()).filter(|count| **count > 0) {
            *count -= 1;
            shared += 1;
        }
    }
    if shared == 0 {
        return 0.0;
    }
    2.0 * shared as f64 / (gold.len() + found.len()) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(gold: &str, output: &str) -> f64 {
        judge_overlap(&[gold.to_owned()], output).worth()
    }

    #[test]
    fn f1_counts_each_shared_word_once() {
        assert_eq!(overlap("Miller v. California", "miller v california"), 1.0);
        assert_eq!(overlap("the red dog", "A red cat"), 0.5);
        assert_eq!(overlap("no", "no no"), 2.0 / 3.0);
        assert_eq!(overlap("yes", "no"), 0.0);
        assert_eq!(overlap("yes", ""), 0.0);
        assert_eq!(judge_overlap(&["yes".to_owned(), "no".to_owned()], "No.").credit, Some(1.0));
    }

    #[test]
    fn exact_texts_ignore_case_spaces_and_marks() {
        let right = |gold: &str, output: &str| judge_exact(&["answer is"], &[gold.to_owned()], output).correct;
        assert!(right("True", "So the answer is true."));
        assert!(right("(B)", "so the answer is B. Tuesday"));
        assert!(right("] ] )", "the answer is ]])."));
        assert!(!right("True", "the answer is not true"));
        assert!(!right("(B)", "the answer is Because"));
        assert!(right("valid", "First line\n**Valid**"));
    }
}
