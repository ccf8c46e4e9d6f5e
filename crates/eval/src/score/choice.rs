//! Options by their names (`answer3`, `solution 1`), letters, numbers and texts.

use super::{Verdict, extract, letter};

/// The first option named after the last phrase that names one, else the last one named anywhere, else the option whose
/// own text is the whole output.
pub fn judge(name: &str, triggers: &[&str], options: &[String], gold: usize, output: &str) -> Verdict {
    let plain = extract::without_bold(output);
    let numbered = |region: &str| names(name, region).first().copied();
    let opened = |region: &str| letter::opening(region, options.len()).or_else(|| opening_number(region));
    let regions = || extract::behind(triggers, &plain).into_iter();
    let found = regions()
        .find_map(|region| numbered(region).or_else(|| own_text(options, region)).or_else(|| opened(region)))
        .or_else(|| names(name, &plain).last().copied())
        .or_else(|| own_text(options, &plain))
        .or_else(|| opened(&plain).filter(|_| plain.trim().chars().count() <= 3));
    match found {
        Some(option) => Verdict::of(format!("{name}{}", option + 1), option == gold),
        None => Verdict::none(),
    }
}

/// The options that a text names with a number, from left to right; counted from 0.
fn names(name: &str, text: &str) -> Vec<usize> {
    let behind = extract::behind(&[name], text);
    let number = |rest: &&str| {
        let rest = rest.trim_start_matches([' ', '_', '-', '#', ':']).trim_start_matches('(');
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let ends = !rest[digits..].starts_with(|c: char| c.is_alphanumeric());
        rest[..digits].parse::<usize>().ok().filter(|_| ends)?.checked_sub(1)
    };
    behind.iter().rev().filter_map(number).collect()
}

/// The option whose number opens a region: `3`, `(3)`, `3.`.
fn opening_number(region: &str) -> Option<usize> {
    let bare = region.trim_start_matches([' ', ':', '(', '[', '#', '"', '\n']);
    let digits = bare.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &bare[digits..];
    let ends = rest.is_empty() || rest.starts_with([')', ']', '\n', '"']) || rest == ".";
    bare[..digits].parse::<usize>().ok().filter(|_| ends)?.checked_sub(1)
}

/// The option whose own text a region's first line or sentence is, but for case, spaces and marks.
pub fn own_text(options: &[String], region: &str) -> Option<usize> {
    let line = region.trim().lines().next().unwrap_or_default();
    let sentence = line.split(". ").next().unwrap_or_default();
    let whole = own(region);
    let candidates = [whole, own(line), own(sentence)];
    let fits = |option: &String| Some(own(option)).filter(|text| !text.is_empty() && candidates.contains(text));
    let mut fitting = options.iter().enumerate().filter(|(_, option)| fits(option).is_some());
    let first = fitting.next()?;
    fitting.next().is_none().then_some(first.0)
}

/// A text as it is compared: small letters, single spaces, no marks around it.
fn own(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().map(str::to_lowercase).collect();
    let marks = |c: char| matches!(c, '.' | ',' | ':' | ';' | '"' | '\'' | '`' | '*' | '“' | '”' | '!');
    words.join(" ").trim_matches(marks).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(output: &str) -> Option<String> {
        let options = ["a red ball", "the sun", "12", "a dog"].map(str::to_owned);
        judge("answer", &["the correct answer is"], &options, 0, output).answer
    }

    #[test]
    fn options_are_known_by_name_letter_number_and_text() {
        for (output, option) in [
            ("the correct answer is answer3", "answer3"),
            ("The correct answer is answer 3.", "answer3"),
            ("the correct answer is: (B)", "answer2"),
            ("The correct answer is The sun.", "answer2"),
            ("the correct answer is 4", "answer4"),
            ("answer1 is wrong. It must be Answer2", "answer2"),
            ("a dog", "answer4"),
            ("2", "answer2"),
            ("the correct answer is answer12", "answer12"),
        ] {
            assert_eq!(found(output).as_deref(), Some(option), "{output}");
        }
        assert_eq!(found("none of them"), None);
        assert_eq!(found("the correct answer is [answer_format]"), None);
    }
}
