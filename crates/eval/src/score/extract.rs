//! Search for the answer in an output.

/// Texts after each occurrence of a phrase (in any case), up to the next one; the last comes first.
pub fn behind<'a>(phrases: &[&str], text: &'a str) -> Vec<&'a str> {
    let mut found: Vec<_> = phrases.iter().flat_map(|phrase| occurrences(phrase, text)).collect();
    found.sort_by_key(|&(start, end)| (end, start));
    let mut next = text.len();
    let mut regions = Vec::with_capacity(found.len());
    for &(start, end) in found.iter().rev() {
        regions.push(&text[end..next.max(end)]);
        next = start;
    }
    regions
}

/// Occurrences of a phrase of ASCII characters: starts and ends, both between characters.
fn occurrences(phrase: &str, text: &str) -> Vec<(usize, usize)> {
    let length = phrase.len().max(1);
    let windows = text.as_bytes().windows(length).enumerate();
    let matches = windows.filter(|(_, window)| window.eq_ignore_ascii_case(phrase.as_bytes()));
    matches.map(|(start, _)| (start, start + length)).collect()
}

/// The content of the last complete `\boxed{...}` or `\fbox{...}`; of `\boxed 5` the one word.
pub fn boxed(text: &str) -> Option<&str> {
    let starts = ["\\boxed", "\\fbox"].into_iter().flat_map(|name| occurrences(name, text));
    let mut ends: Vec<_> = starts.map(|(_, end)| end).collect();
    ends.sort_unstable();
    ends.into_iter().rev().find_map(|end| {
        let rest = text[end..].trim_start();
        match rest.strip_prefix('{') {
            Some(inner) => group(inner),
            None => rest.split(|c: char| c.is_whitespace() || matches!(c, '$' | '}')).next().filter(|w| !w.is_empty()),
        }
    })
}

/// Text before the brace that closes a group which is open already.
pub fn group(text: &str) -> Option<&str> {
    let mut depth = 1_usize;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => {}
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        if depth == 0 {
            return Some(&text[..at]);
        }
    }
    None
}

/// The text without Markdown's marks of bold print. `2**3` keeps them: there they mean a power.
pub fn without_bold(text: &str) -> String {
    without_mark(&without_mark(text, "**"), "__")
}

fn without_mark(text: &str, mark: &str) -> String {
    let digit_at = |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
    let mut plain = String::with_capacity(text.len());
    let mut from = 0;
    for (at, _) in text.match_indices(mark) {
        if digit_at(at.checked_sub(1)) && digit_at(Some(at + mark.len())) {
            continue;
        }
        plain.push_str(&text[from..at]);
        from = at + mark.len();
    }
    plain.push_str(&text[from..]);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_phrase_comes_first_and_ends_where_the_next_begins() {
        let text = "The answer is 3. THE ANSWER IS 4, the final answer is 5";
        assert_eq!(behind(&["the answer is"], text), [" 4, the final answer is 5", " 3. "]);
        assert_eq!(behind(&["answer is", "final answer is"], text)[0], " 5");
        assert!(behind(&["answer is"], "no phrase").is_empty());
        assert_eq!(behind(&["answer is"], "İİ answer is ß"), [" ß"]);
    }

    #[test]
    fn the_last_complete_box_counts() {
        assert_eq!(boxed(r"\boxed{1} and \boxed{\frac{1}{2}}."), Some(r"\frac{1}{2}"));
        assert_eq!(boxed(r"\boxed{1} and \boxed{\frac{1}"), Some("1"));
        assert_eq!(boxed(r"$\boxed 7$"), Some("7"));
        assert_eq!(boxed(r"\boxed{\{1,2\}}"), Some(r"\{1,2\}"));
        assert_eq!(boxed(r"\boxed"), None);
        assert_eq!(boxed("nothing"), None);
    }

    #[test]
    fn marks_of_bold_print_go_and_powers_stay() {
        assert_eq!(without_bold("**The answer is** __5__"), "The answer is 5");
        assert_eq!(without_bold("2**3 = **8**"), "2**3 = 8");
        assert_eq!(without_bold("***"), "*");
    }
}
