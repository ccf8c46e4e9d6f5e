//! Options by their letters: `A`, `(A)`, `A.`, `answer is **(B)**`.

use super::{Verdict, choice, extract};

/// Letters if a problem does not name its options: as many as MMLU-Pro has.
const MOST_OPTIONS: usize = 10;

/// The letter after a phrase, else an option's own text there, else the last letter that stands alone. The phrases are
/// tried in their order, as MMLU-Pro's scorer does; of one phrase the last occurrence counts that has a letter.
pub fn judge(triggers: &[&str], options: &[String], gold: usize, output: &str) -> Verdict {
    let plain = extract::without_bold(output);
    let count = if options.is_empty() { MOST_OPTIONS } else { options.len() };
    let regions = || triggers.iter().flat_map(|trigger| extract::behind(&[*trigger], &plain));
    let found = regions()
        .find_map(|region| opening(region, count))
        .or_else(|| regions().find_map(|region| choice::own_text(options, region)))
        .or_else(|| choice::own_text(options, &plain))
        .or_else(|| last_alone(&plain, count));
    match found {
        Some(option) => Verdict::of(name(option), option == gold),
        None => Verdict::none(),
    }
}

/// The letter of an option.
pub fn name(option: usize) -> String {
    u8::try_from(option)
        .ok()
        .filter(|option| *option < 26)
        .map_or_else(String::new, |o| char::from(b'A' + o).to_string())
}

/// The option whose letter opens a region. A small letter counts where nothing but a mark follows it.
pub fn opening(region: &str, count: usize) -> Option<usize> {
    let bare = unwrapped(region);
    let letter = bare.chars().next().filter(char::is_ascii_alphabetic)?;
    let rest = &bare[1..];
    // A quotation or print mark may end the letter, an apostrophe inside a word does not.
    let tail = rest.strip_prefix(['\'', '’', '_', '-']).unwrap_or(rest);
    let ends = !tail.starts_with(|c: char| c.is_alphanumeric()) && !rest.starts_with(['+', '#']);
    let marked =
        rest.trim_start_matches(' ').is_empty() || rest.starts_with([')', ']', '}', '.', ',', ':', '\n', '*', '$']);
    let article = letter == 'A' && followed_by_word(rest) && !asserts(rest);
    let counts = ends && (letter.is_ascii_uppercase() && !article || marked);
    index(letter.to_ascii_uppercase(), count).filter(|_| counts)
}

/// Text after the marks and filling words before an answer.
fn unwrapped(region: &str) -> &str {
    let mut bare = region;
    loop {
        let marks = |c: char| {
            c.is_whitespace() || matches!(c, ':' | '*' | '(' | '[' | '{' | '$' | '"' | '\'' | '`' | '“' | '_')
        };
        let mut next = bare.trim_start_matches(marks);
        for filling in ["\\boxed", "\\text", "\\mathrm", "\\mathbf", "\\textbf", "\\(", "\\["] {
            next = next.strip_prefix(filling).unwrap_or(next);
        }
        for filling in ["option ", "choice ", "letter ", "option: ", "answer "] {
            let fits = next.get(..filling.len()).is_some_and(|head| head.eq_ignore_ascii_case(filling));
            next = if fits { &next[filling.len()..] } else { next };
        }
        if next == bare {
            return bare;
        }
        bare = next;
    }
}

fn followed_by_word(rest: &str) -> bool {
    rest.strip_prefix(' ').is_some_and(|rest| rest.starts_with(|c: char| c.is_alphabetic()))
}

/// Reports whether the next word makes a statement about the letter: `A is right`.
fn asserts(rest: &str) -> bool {
    let word: String = rest.trim_start().chars().take_while(|c| c.is_alphabetic()).collect();
    ["is", "was", "because", "since", "as", "and", "or", "would", "seems"].contains(&word.as_str())
}

/// The last capital letter that stands alone and is neither an article nor a pronoun.
fn last_alone(text: &str, count: usize) -> Option<usize> {
    let characters: Vec<char> = text.chars().collect();
    (0..characters.len()).rev().find_map(|at| {
        let option = index(characters[at], count)?;
        alone(&characters, at).then_some(option)
    })
}

fn alone(characters: &[char], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| characters[before]);
    let after = characters.get(at + 1).copied();
    let joined = |c: char| c.is_alphanumeric() || matches!(c, '_' | '\'' | '’' | '-' | '+' | '#' | '&');
    let initial = after == Some('.') && characters.get(at + 2).is_some_and(|c| c.is_alphanumeric());
    if before.is_some_and(|c| joined(c) || c == '.') || after.is_some_and(joined) || initial {
        return false;
    }
    let rest: String = characters[at + 1..].iter().take(12).collect();
    let opens_sentence = characters[..at]
        .iter()
        .rev()
        .find(|c| !matches!(c, ' ' | '"' | '('))
        .is_none_or(|c| matches!(c, '.' | '\n' | '!' | '?'));
    match characters[at] {
        'I' => !followed_by_word(&rest),
        'A' => !(opens_sentence && followed_by_word(&rest) && !asserts(&rest)),
        _ => true,
    }
}

fn index(letter: char, count: usize) -> Option<usize> {
    let index = (letter as usize).checked_sub('A' as usize)?;
    (index < count.min(26)).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(output: &str) -> Option<String> {
        judge(&["answer is", "answer:"], &vec![String::new(); 4], 0, output).answer
    }

    #[test]
    fn phrases_are_tried_in_their_order() {
        assert_eq!(found("The answer is (B). Answer: C").as_deref(), Some("B"));
        assert_eq!(found("Answer: C. That answer is right").as_deref(), Some("C"));
        assert_eq!(found("The answer is A. No, the answer is D").as_deref(), Some("D"));
    }

    #[test]
    fn articles_and_pronouns_are_no_options() {
        assert_eq!(found("A dog barks. I think so."), None);
        assert_eq!(found("I would say B"), Some("B".to_owned()));
        assert_eq!(found("A is right"), Some("A".to_owned()));
        assert_eq!(found("The answer is a dog"), None);
        assert_eq!(found("The answer is a."), Some("A".to_owned()));
    }
}
