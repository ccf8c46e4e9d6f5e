//! Numbers: `1,234`, `-$3.50`, `1 1/2`, `\frac{3}{4}`, `50%`, `1.2e6`, `10^3`.
//!
//! Signs of currency and percent, units and print marks around a number mean nothing. What can be read in two ways
//! (`1.234,5`, `3:45`, `1,2`) is taken for the answer and is wrong: a scorer must not choose the reading that suits.

use super::{Verdict, extract, rational::Rational};

/// Signs that may stand between a minus and the digits, and around a number.
const CURRENCY: [char; 5] = ['$', '€', '£', '¥', '₹'];

/// Separators of groups of three digits, besides the comma. The spaces are narrow or do not break.
const GROUPING: [char; 6] = [',', '_', '\u{a0}', '\u{2009}', '\u{202f}', '\''];

/// The number after the last of the phrases, else the last number, compared with the right one. Of `3 + 4 = 7` after a
/// phrase it is the last member.
pub fn judge(triggers: &[&str], gold: &str, output: &str) -> Verdict {
    let plain = plain(output);
    let behind = extract::behind(triggers, &plain).into_iter().find_map(first);
    let Some(found) = behind.or_else(|| last(&plain)) else { return Verdict::none() };
    let right = value(gold);
    match found.value {
        Some(number) => Verdict::of(number.to_string(), right == Some(number)),
        None => Verdict { failure: Some("ambiguous number".to_owned()), ..Verdict::of(found.text, false) },
    }
}

/// The value of a text that holds one number and nothing else that counts.
pub fn value(text: &str) -> Option<Rational> {
    let characters: Vec<char> = plain(text).chars().collect();
    let found = next(&characters, 0)?;
    let rest = next(&characters, found.end);
    found.value.filter(|_| rest.is_none())
}

/// A number in a text; `value` is none if it can be read in two ways or does not fit into 128 bits.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    text: String,
    value: Option<Rational>,
    end: usize,
}

/// The text with one spelling for each thing.
fn plain(text: &str) -> String {
    const SPELLINGS: [(&str, &str); 13] = [
        ("\u{2212}", "-"),
        ("{,}", ","),
        ("\\!", ""),
        ("\\,", "\u{2009}"),
        ("\\$", "$"),
        ("\\%", "%"),
        ("\\dfrac", "\\frac"),
        ("\\tfrac", "\\frac"),
        ("\\times", "×"),
        ("\\cdot", "·"),
        ("\\div", "÷"),
        ("\\left", ""),
        ("\\right", ""),
    ];
    let bare = extract::without_bold(text);
    SPELLINGS.iter().fold(bare, |text, (from, to)| if text.contains(from) { text.replace(from, to) } else { text })
}

/// The first number of a region, or the last member of the equation that it opens.
fn first(region: &str) -> Option<Found> {
    let characters: Vec<char> = region.chars().collect();
    let opening = next(&characters, 0)?;
    let mut at = opening.end;
    let mut result = None;
    loop {
        let between = characters[at..].iter().take_while(|&&c| joins_members(c)).count();
        // A bracket without an operation before it begins a remark: `10 (5 + 5)`.
        let remark = characters[at..at + between].iter().find(|&&c| c != ' ') == Some(&'(');
        let Some(member) = number_at(&characters, at + between).filter(|_| !remark) else { break };
        let equal = characters[at..at + between].contains(&'=');
        at = member.end;
        result = equal.then_some(member);
    }
    Some(result.unwrap_or(opening))
}

/// Reports whether a character can stand between the numbers of an equation.
fn joins_members(c: char) -> bool {
    matches!(c, ' ' | '+' | '-' | '*' | '/' | '=' | '(' | ')' | '×' | '·' | '÷' | '%') || CURRENCY.contains(&c)
}

/// The last number of a text.
fn last(text: &str) -> Option<Found> {
    let characters: Vec<char> = text.chars().collect();
    let mut at = 0;
    let mut result = None;
    while let Some(found) = next(&characters, at) {
        at = found.end;
        result = Some(found);
    }
    result
}

/// The first number at or after a place.
fn next(characters: &[char], from: usize) -> Option<Found> {
    let mut at = from;
    while at < characters.len() {
        if let Some(found) = number_at(characters, at) {
            return Some(found);
        }
        // Digits inside a word are no number: `H2O`, `x2`.
        at += run(&characters[at..], in_word).max(1);
    }
    None
}

/// The number that begins here, its sign before it.
fn number_at(characters: &[char], at: usize) -> Option<Found> {
    let before = at.checked_sub(1).map(|before| characters[before]);
    if before.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters[at..].first().is_some_and(char::is_ascii_digit)
    {
        return None;
    }
    let (unsigned, end) = unsigned_at(characters, at)?;
    let (start, negative) = sign_before(characters, at);
    let signed = |value: Rational| if negative { value.negate() } else { Some(value) };
    let text = characters[start..end].iter().collect();
    Some(Found { text, value: unsigned.and_then(signed), end })
}

/// Start of the number with its signs, and whether it is negative. A minus after a word, a number or a closing bracket
/// is an operation.
fn sign_before(characters: &[char], at: usize) -> (usize, bool) {
    let currency = characters[..at].iter().rev().take_while(|c| CURRENCY.contains(c)).count();
    let start = at - currency;
    let minus = |at: usize| at.checked_sub(1).is_some_and(|at| matches!(characters[at], '-' | '–'));
    let skip = |at: usize| at - characters[..at].iter().rev().take_while(|&&c| c == ' ').count();
    let apart = skip(start);
    if apart < start && minus(apart) {
        let opening = skip(apart - 1).checked_sub(1).map(|before| characters[before]);
        return if matches!(opening, Some('=' | '(' | '[' | '{' | '$')) { (apart - 1, true) } else { (start, false) };
    }
    let operand = |c: char| c.is_ascii_alphanumeric() || matches!(c, ')' | ']' | '}' | '%' | '-' | '–');
    let is_sign = minus(start) && start.checked_sub(2).is_none_or(|before| !operand(characters[before]));
    if is_sign { (start - 1, true) } else { (start, false) }
}

/// A number without sign: its value, and where it ends.
fn unsigned_at(characters: &[char], at: usize) -> Option<(Option<Rational>, usize)> {
    if let Some((value, end)) = fraction_at(characters, at) {
        return Some((value, end));
    }
    let (whole, end) = decimal_at(characters, at)?;
    if let Some((part, end)) = mixed_part(characters, at, end) {
        return Some((whole.zip(part).and_then(|(whole, part)| whole.add(part)), end));
    }
    let (value, end) = powered(characters, whole, end);
    Some(divided(characters, value, end))
}

/// Digits with a point and separators between groups of three.
fn decimal_at(characters: &[char], at: usize) -> Option<(Option<Rational>, usize)> {
    let digit = |at: usize| characters.get(at).is_some_and(char::is_ascii_digit);
    let opens =
        digit(at) || characters.get(at) == Some(&'.') && digit(at + 1) && (at == 0 || !continues(characters[at - 1]));
    if !opens {
        return None;
    }
    let mut end = at;
    while digit(end) || digit(end + 1) && characters.get(end).is_some_and(|&c| joins_digits(c)) {
        end += 1;
    }
    Some((grouped(&characters[at..end]), end))
}

/// Reports whether a point after this character is no decimal point: `Rs.5`, `...5`.
fn continues(c: char) -> bool {
    in_word(c) || c == '.'
}

fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Reports whether a character between two digits makes them one number, well written or not.
fn joins_digits(c: char) -> bool {
    c == '.' || c == ':' || GROUPING.contains(&c)
}

/// The value of digits with a point and separators, if there is only one way to read them.
fn grouped(characters: &[char]) -> Option<Rational> {
    let point = characters.iter().position(|&c| c == '.').unwrap_or(characters.len());
    let (whole, part) = characters.split_at(point);
    let digits: String = characters.iter().filter(|&&c| c.is_ascii_digit() || c == '.').collect();
    if whole.iter().all(char::is_ascii_digit) {
        return part.iter().skip(1).all(char::is_ascii_digit).then(|| Rational::decimal(&digits)).flatten();
    }
    let separator = *whole.iter().find(|c| !c.is_ascii_digit())?;
    let groups: Vec<&[char]> = whole.split(|&c| c == separator).collect();
    let (head, tail) = groups.split_first()?;
    let well_written = GROUPING.contains(&separator)
        && (1..=3).contains(&head.len())
        && head[0] != '0'
        && tail.iter().all(|group| group.len() == 3)
        && groups.concat().iter().all(char::is_ascii_digit)
        && part.iter().skip(1).all(char::is_ascii_digit);
    well_written.then(|| Rational::decimal(&digits)).flatten()
}

/// `\frac{3}{4}`, `\frac34`, `¾`.
fn fraction_at(characters: &[char], at: usize) -> Option<(Option<Rational>, usize)> {
    if let Some(value) = characters.get(at).and_then(|&c| vulgar(c)) {
        return Some((Some(value), at + 1));
    }
    let name: Vec<char> = "\\frac".chars().collect();
    if !characters[at..].starts_with(&name) {
        return None;
    }
    let (numerator, end) = argument(characters, at + name.len())?;
    let (denominator, end) = argument(characters, end)?;
    Some((numerator.zip(denominator).and_then(|(numerator, denominator)| numerator.divide(denominator)), end))
}

/// A number in braces, or a single digit.
fn argument(characters: &[char], at: usize) -> Option<(Option<Rational>, usize)> {
    let at = at + run(&characters[at..], |c| c == ' ');
    if characters.get(at) != Some(&'{') {
        let digit = characters.get(at).filter(|c| c.is_ascii_digit())?;
        return Some((Rational::decimal(&digit.to_string()), at + 1));
    }
    let negative = characters.get(at + 1) == Some(&'-');
    let (value, end) = decimal_at(characters, at + 1 + usize::from(negative))?;
    let value = if negative { value.and_then(Rational::negate) } else { value };
    (characters.get(end) == Some(&'}')).then_some((value, end + 1))
}

fn vulgar(c: char) -> Option<Rational> {
    let (numerator, denominator) = match c {
        '½' => (1, 2),
        '⅓' => (1, 3),
        '⅔' => (2, 3),
        '¼' => (1, 4),
        '¾' => (3, 4),
        '⅕' => (1, 5),
        '⅛' => (1, 8),
        _ => return None,
    };
    Rational::new(numerator, denominator)
}

/// The fraction of a mixed number after its whole part: `1 1/2`, `1\frac{1}{2}`, `1½`.
fn mixed_part(characters: &[char], start: usize, end: usize) -> Option<(Option<Rational>, usize)> {
    if !characters[start..end].iter().all(char::is_ascii_digit) {
        return None;
    }
    let space = usize::from(characters.get(end) == Some(&' '));
    if let Some(found) = fraction_at(characters, end + space) {
        return Some(found);
    }
    let digits = |at: usize| run(characters.get(at..).unwrap_or_default(), |c| c.is_ascii_digit());
    let slash = end + space + digits(end + space);
    let close = slash + 1 + digits(slash + 1);
    let written = space == 1 && slash > end + 1 && characters.get(slash) == Some(&'/') && close > slash + 1;
    let followed = characters.get(close).is_some_and(|&c| c.is_ascii_alphanumeric() || c == '/');
    let number = |range: &[char]| Rational::decimal(&range.iter().collect::<String>());
    (written && !followed).then(|| {
        let parts = number(&characters[end + 1..slash]).zip(number(&characters[slash + 1..close]));
        (parts.and_then(|(numerator, denominator)| numerator.divide(denominator)), close)
    })
}

/// A number with its power of ten or its exponent: `1.5e3`, `1.5 × 10^3`, `10^{3}`.
fn powered(characters: &[char], base: Option<Rational>, end: usize) -> (Option<Rational>, usize) {
    let ten = Rational::whole(10);
    let scale = |exponent: Rational| base.and_then(|base| base.multiply(ten.power(exponent)?));
    if matches!(characters.get(end), Some('e' | 'E'))
        && let Some((exponent, end)) = exponent_at(characters, end + 1)
    {
        return (exponent.and_then(scale), end);
    }
    if let Some(power) = characters.get(end).filter(|&&c| c == '^').and_then(|_| exponent_at(characters, end + 1)) {
        let (exponent, end) = power;
        return (base.zip(exponent).and_then(|(base, exponent)| base.power(exponent)), end);
    }
    let spaces = |at: usize| at + run(characters.get(at..).unwrap_or_default(), |c| c == ' ');
    let times = spaces(end);
    let factor = spaces(times + 1);
    let is_times = matches!(characters.get(times), Some('×' | '·' | '*' | 'x'));
    if is_times
        && characters.get(factor..).is_some_and(|rest| rest.starts_with(&['1', '0', '^']))
        && let Some((exponent, end)) = exponent_at(characters, factor + 3)
    {
        return (exponent.and_then(scale), end);
    }
    (base, end)
}

/// A whole exponent, in braces or not, that no word or further digits follow.
fn exponent_at(characters: &[char], at: usize) -> Option<(Option<Rational>, usize)> {
    let brace = usize::from(characters.get(at) == Some(&'{'));
    let sign = characters.get(at + brace).filter(|c| matches!(c, '-' | '+'));
    let start = at + brace + usize::from(sign.is_some());
    let end = start + run(characters.get(start..).unwrap_or_default(), |c| c.is_ascii_digit());
    let closed = brace == 0 || characters.get(end) == Some(&'}');
    if end == start || !closed || characters.get(end).is_some_and(char::is_ascii_alphabetic) {
        return None;
    }
    let value = Rational::decimal(&characters[start..end].iter().collect::<String>());
    let value = if sign == Some(&'-') { value.and_then(Rational::negate) } else { value };
    Some((value, end + brace))
}

/// A number with the denominator after it. Two strokes are a date or worse.
fn divided(characters: &[char], value: Option<Rational>, end: usize) -> (Option<Rational>, usize) {
    let denominator = |at: usize| match characters.get(at) {
        Some('/') if characters.get(at + 1).is_some_and(char::is_ascii_digit) => decimal_at(characters, at + 1),
        _ => None,
    };
    let Some((first, mut end)) = denominator(end) else { return (value, end) };
    let mut quotient = value.zip(first).and_then(|(value, first)| value.divide(first));
    while let Some((_, further)) = denominator(end) {
        (quotient, end) = (None, further);
    }
    (quotient, end)
}

fn run(characters: &[char], test: impl Fn(char) -> bool) -> usize {
    characters.iter().take_while(|&&c| test(c)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_behind_the_trigger_wins_over_the_last_one() {
        let verdict = judge(&["The final answer is"], "1234", "1+1=2. The final answer is 1,234. (7 lines)");
        assert_eq!(verdict, Verdict::of("1234".to_owned(), true));
        assert!(!judge(&["The final answer is"], "7", "The final answer is 8, not 7").correct);
        assert_eq!(judge(&[], "7", "no number").answer, None);
    }

    #[test]
    fn values_are_read_in_full_or_not_at_all() {
        let read = |text: &str| value(text).map(|value| value.to_string());
        for (text, expected) in [
            ("1,234", Some("1234")),
            ("-$3.50", Some("-3.5")),
            ("\\frac{3}{4}", Some("0.75")),
            ("1 1/2", Some("1.5")),
            ("1.2e6", Some("1200000")),
            ("10^{-2}", Some("0.01")),
            ("1.234,5", None),
            ("1 2", None),
            ("", None),
        ] {
            assert_eq!(read(text).as_deref(), expected, "{text}");
        }
    }
}
