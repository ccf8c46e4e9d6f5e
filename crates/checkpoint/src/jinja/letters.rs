//! What Python says of characters: which are spaces, digits, letters, cased or printable, and where lines end.

use std::sync::OnceLock;

use regex::Regex;

/// Digits that are no decimals: `²`, `①` and the like.
const DIGITS: [(u32, u32); 20] = [
    (0xb2, 0xb3),
    (0xb9, 0xb9),
    (0x1369, 0x1371),
    (0x19da, 0x19da),
    (0x2070, 0x2070),
    (0x2074, 0x2079),
    (0x2080, 0x2089),
    (0x2460, 0x2468),
    (0x2474, 0x247c),
    (0x2488, 0x2490),
    (0x24ea, 0x24ea),
    (0x24f5, 0x24fd),
    (0x24ff, 0x24ff),
    (0x2776, 0x277e),
    (0x2780, 0x2788),
    (0x278a, 0x2792),
    (0x10a40, 0x10a43),
    (0x10e60, 0x10e68),
    (0x11052, 0x1105a),
    (0x1f100, 0x1f10a),
];

/// Letters that are numbers: ideographs.
const IDEOGRAPHS: &str = "㐅㒃㠪㭍一七万三九二五世亿什仟仨伍佰儁兆兩八六十千卄卅卌厁叁参參叄四壱壹幺廾廿弌弍弎弐拾捌柒漆玖百肆萬貮貳贰阡陆陌陸零\u{f96b}\u{f973}\u{f978}\u{f9b2}\u{f9d1}\u{f9d3}\u{f9fd}𠀁𠁤𠃢𠄡𠤪𠦃𠦌𠦜𠫪𠫽𠬙𢎐𢦘𣬛𦉭\u{2f890}";

/// Reports whether a character is of a category of Unicode: `L`, `Nd` and the like.
fn is(category: &'static str, found: &OnceLock<Regex>, character: char) -> bool {
    // The pattern is a constant, which tests compile.
    let pattern = found.get_or_init(|| Regex::new(category).unwrap_or_else(|error| panic!("{category}: {error}")));
    pattern.is_match(character.encode_utf8(&mut [0; 4]))
}

pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

pub(super) fn is_letter(character: char) -> bool {
    static FOUND: OnceLock<Regex> = OnceLock::new();
    character.is_ascii_alphabetic() || (!character.is_ascii() && is(r"\p{L}", &FOUND, character))
}

pub(super) fn is_decimal(character: char) -> bool {
    static FOUND: OnceLock<Regex> = OnceLock::new();
    character.is_ascii_digit() || (!character.is_ascii() && is(r"\p{Nd}", &FOUND, character))
}

pub(super) fn is_digit(character: char) -> bool {
    let code = u32::from(character);
    is_decimal(character) || DIGITS.iter().any(|(first, last)| (*first..=*last).contains(&code))
}

pub(super) fn is_number(character: char) -> bool {
    // Roman numerals and fractions are numbers too.
    character.is_numeric() || IDEOGRAPHS.contains(character)
}

pub(super) fn is_letter_or_number(character: char) -> bool {
    is_letter(character) || is_number(character)
}

pub(super) fn is_printable(character: char) -> bool {
    static FOUND: OnceLock<Regex> = OnceLock::new();
    if character.is_ascii() {
        return (' '..='~').contains(&character);
    }
    !is(r"[\p{C}\p{Z}]", &FOUND, character)
}

pub(super) fn is_titlecase(character: char) -> bool {
    static FOUND: OnceLock<Regex> = OnceLock::new();
    !character.is_ascii() && is(r"\p{Lt}", &FOUND, character)
}

pub(super) fn is_cased(character: char) -> bool {
    character.is_lowercase() || character.is_uppercase() || is_titlecase(character)
}

/// The start of a word: what a character is where the others are small.
fn titled(character: char, out: &mut String) {
    let code = u32::from(character);
    let single = match code {
        // Digraphs have a form of their own.
        0x1c4..=0x1c6 => Some(0x1c5),
        0x1c7..=0x1c9 => Some(0x1c8),
        0x1ca..=0x1cc => Some(0x1cb),
        0x1f1..=0x1f3 => Some(0x1f2),
        // Georgian has none, and these have it already.
        0x10d0..=0x10fa | 0x10fd..=0x10ff | 0x1fbc | 0x1fcc | 0x1ffc => Some(code),
        // Greek with an iota below.
        0x1f80..=0x1faf => Some(code | 8),
        0x1fb3 | 0x1fc3 | 0x1ff3 => Some(code + 9),
        _ => None,
    };
    if let Some(single) = single.and_then(char::from_u32) {
        out.push(single);
        return;
    }
    let iota_below = matches!(code, 0x1fb2 | 0x1fb4 | 0x1fb7 | 0x1fc2 | 0x1fc4 | 0x1fc7 | 0x1ff2 | 0x1ff4 | 0x1ff7);
    for (index, upper) in character.to_uppercase().enumerate() {
        match upper {
            'Ι' if iota_below => out.push('\u{345}'),
            _ if index == 0 || code == 0x149 => out.push(upper),
            _ => out.extend(upper.to_lowercase()),
        }
    }
}

/// Large letters where a run of letters begins, small ones behind.
pub(super) fn title(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_cased) {
        made.push_str(&rest[..start]);
        let word = &rest[start..];
        let length = word.find(|c| !is_cased(c)).unwrap_or(word.len());
        made.push_str(&capitalised(&word[..length]));
        rest = &word[length..];
    }
    made + rest
}

/// A large letter first, small ones behind.
pub(super) fn capitalised(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    let mut characters = text.chars();
    if let Some(first) = characters.next() {
        titled(first, &mut made);
    }
    // The whole at once: the small form of a letter can depend on the one in front of it.
    let small = text.to_lowercase();
    let first = text.chars().next().map_or(0, |first| first.to_lowercase().map(char::len_utf8).sum());
    made + &small[first..]
}

/// Small letters for large ones, and the other way round.
pub(super) fn swapped(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_uppercase() {
            made.extend(character.to_lowercase());
        } else if character.is_lowercase() {
            made.extend(character.to_uppercase());
        } else {
            made.push(character);
        }
    }
    made
}

/// Lines with the lengths of their ends.
pub(super) fn lines(text: &str) -> Vec<(&str, usize)> {
    let ends = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some(at) = rest.find(ends) else {
            found.push((rest, 0));
            break;
        };
        let tail = &rest[at..];
        let end = if tail.starts_with("\r\n") { 2 } else { tail.chars().next().map_or(0, char::len_utf8) };
        found.push((&rest[..at + end], end));
        rest = &tail[end..];
    }
    found
}
