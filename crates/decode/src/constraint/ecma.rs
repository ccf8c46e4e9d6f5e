//! Patterns of schemas, in the common part of ECMA-262's syntax, in the syntax of the crate `regex`.

use super::error::ConstraintError;

/// What `\s` has in ECMA-262.
const SPACE: &str = r"\t\n\x0B\x0C\r \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000\uFEFF";

/// Returns the same pattern in the other syntax.
///
/// # Errors
///
/// For parts that the other syntax does not have, with the byte in `pattern`.
pub(super) fn translate(pattern: &str) -> Result<String, ConstraintError> {
    let mut reader = Reader { pattern, at: 0, out: String::new() };
    while let Some(symbol) = reader.next() {
        match symbol {
            '\\' => reader.escape(false)?,
            '[' => reader.class()?,
            '.' => reader.out.push_str(r"[^\n\r\u2028\u2029]"),
            '(' => reader.group()?,
            '{' if !reader.is_count() => reader.out.push_str(r"\{"),
            '}' => reader.out.push_str(r"\}"),
            '{' => reader.count(),
            ']' => reader.out.push_str(r"\]"),
            other => reader.out.push(other),
        }
    }
    Ok(reader.out)
}

struct Reader<'a> {
    pattern: &'a str,
    at: usize,
    out: String,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let symbol = self.rest().chars().next()?;
        self.at += symbol.len_utf8();
        Some(symbol)
    }

    fn rest(&self) -> &str {
        &self.pattern[self.at..]
    }

    fn refused<T>(&self, reason: &str) -> Result<T, ConstraintError> {
        Err(ConstraintError::Pattern { position: self.at.saturating_sub(1), reason: reason.to_owned() })
    }

    /// Reports whether `{` begins a count.
    fn is_count(&self) -> bool {
        let Some((inner, _)) = self.rest().split_once('}') else { return false };
        let (least, most) = inner.split_once(',').unwrap_or((inner, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        !least.is_empty() && digits(least) && digits(most)
    }

    fn count(&mut self) {
        let end = self.rest().find('}').map_or(self.pattern.len(), |end| self.at + end + 1);
        self.out.push('{');
        self.out.push_str(&self.pattern[self.at..end]);
        self.at = end;
    }

    fn group(&mut self) -> Result<(), ConstraintError> {
        let rest = self.rest();
        if ["?=", "?!", "?<=", "?<!"].iter().any(|look| rest.starts_with(look)) {
            return self.refused("look-around is not supported: put into the pattern what it looks for");
        }
        // ECMA-262 has two groups that begin so: without a capture, and with a name, which nothing refers to.
        if rest.starts_with("?<") {
            let Some(end) = rest.find('>') else { return self.refused("the group's name has no end") };
            self.at += end + 1;
        } else if rest.starts_with("?:") {
            self.at += 2;
        } else if rest.starts_with('?') {
            return self.refused("the group is unknown, expected (?: or (?<name>");
        }
        self.out.push_str("(?:");
        Ok(())
    }

    fn class(&mut self) -> Result<(), ConstraintError> {
        let negated = self.rest().starts_with('^');
        self.at += usize::from(negated);
        if self.rest().starts_with(']') {
            self.at += 1;
            self.out.push_str(if negated { r"[\x00-\u{10FFFF}]" } else { r"[^\x00-\u{10FFFF}]" });
            return Ok(());
        }
        self.out.push_str(if negated { "[^" } else { "[" });
        let mut first = true;
        while let Some(symbol) = self.next() {
            match symbol {
                ']' => {
                    self.out.push(']');
                    return Ok(());
                }
                '\\' => self.escape(true)?,
                // One between two characters is a range, any other itself.
                '-' if first || self.rest().starts_with(']') || self.beside_set() => self.out.push_str(r"\-"),
                '-' => self.out.push('-'),
                '[' | '&' | '~' | '^' => self.out.extend(['\\', symbol]),
                other => self.out.push(other),
            }
            first = false;
        }
        self.refused("the class has no end")
    }

    /// Reports whether a set is on either side of the dash that was read.
    fn beside_set(&self) -> bool {
        let is_set = |text: &str| {
            let mut symbols = text.chars();
            symbols.next() == Some('\\') && symbols.next().is_some_and(|symbol| "dDwWsSpP".contains(symbol))
        };
        let before = &self.pattern[..self.at - 1];
        let set_before = before.len() >= 2
            && before.is_char_boundary(before.len() - 2)
            && is_set(&before[before.len() - 2..])
            && (before.len() - 1 - before[..before.len() - 1].trim_end_matches('\\').len()) % 2 == 1;
        set_before || is_set(self.rest()) || before.ends_with('}') && before.contains(r"\p{")
    }

    fn escape(&mut self, in_class: bool) -> Result<(), ConstraintError> {
        let Some(symbol) = self.next() else { return self.refused("it ends in a backslash") };
        let set = |inner: &str, negated: bool| match (in_class, negated) {
            (true, false) => inner.to_owned(),
            (_, true) => format!("[^{inner}]"),
            (false, false) => format!("[{inner}]"),
        };
        let written = match symbol {
            'd' => set("0-9", false),
            'D' => set("0-9", true),
            'w' => set("0-9A-Za-z_", false),
            'W' => set("0-9A-Za-z_", true),
            's' => set(SPACE, false),
            'S' => set(SPACE, true),
            'b' if in_class => r"\x08".to_owned(),
            'b' | 'B' => return self.refused("word boundaries are not supported: leave it out"),
            '0' if !self.rest().starts_with(|next: char| next.is_ascii_digit()) => r"\x00".to_owned(),
            '0'..='9' | 'k' => {
                return self.refused("back-references are not supported: no automaton remembers a group");
            }
            'f' => r"\x0C".to_owned(),
            'n' | 'r' | 't' => format!("\\{symbol}"),
            'v' => r"\x0B".to_owned(),
            'c' => match self.next() {
                Some(letter) if letter.is_ascii_alphabetic() => format!("\\x{:02X}", letter as u32 % 32),
                _ => return self.refused(r"\c has no letter"),
            },
            'x' => self.code_point(2)?,
            'u' => self.unicode()?,
            'p' | 'P' => self.property(symbol)?,
            letter if letter.is_ascii_alphanumeric() => return self.refused("the escape is unknown"),
            other if other.is_ascii() => regex_syntax::escape(&other.to_string()),
            other => other.to_string(),
        };
        let written = if in_class && matches!(symbol, '-' | '&' | '~' | '^' | '[' | ']' | '\\') {
            format!("\\{symbol}")
        } else {
            written
        };
        self.out.push_str(&written);
        Ok(())
    }

    /// A property of Unicode, by its name.
    fn property(&mut self, symbol: char) -> Result<String, ConstraintError> {
        let Some(end) = self.rest().find('}').filter(|_| self.rest().starts_with('{')) else {
            return self.refused("a property of Unicode has no name, expected one as in \\p{L}");
        };
        let name = format!("\\{symbol}{}", &self.rest()[..=end]);
        self.at += end + 1;
        Ok(name)
    }

    fn unicode(&mut self) -> Result<String, ConstraintError> {
        if let Some(rest) = self.rest().strip_prefix('{') {
            let Some((digits, _)) = rest.split_once('}') else { return self.refused(r"\u{ has no end") };
            let written = format!("\\x{{{digits}}}");
            self.at += digits.len() + 2;
            return Ok(written);
        }
        let first = self.hexadecimal(4)?;
        if (0xD800..0xDC00).contains(&first) && self.rest().starts_with("\\u") {
            self.at += 2;
            let second = self.hexadecimal(4)?;
            if (0xDC00..0xE000).contains(&second) {
                return Ok(format!("\\x{{{:X}}}", 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)));
            }
        }
        if (0xD800..0xE000).contains(&first) {
            return self.refused("half a pair of surrogates is no character");
        }
        Ok(format!("\\x{{{first:X}}}"))
    }

    fn code_point(&mut self, digits: usize) -> Result<String, ConstraintError> {
        Ok(format!("\\x{{{:X}}}", self.hexadecimal(digits)?))
    }

    fn hexadecimal(&mut self, digits: usize) -> Result<u32, ConstraintError> {
        let value = self.rest().get(..digits).filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(value) = value.and_then(|text| u32::from_str_radix(text, 16).ok()) else {
            return self.refused("the escape lacks hexadecimal digits");
        };
        self.at += digits;
        Ok(value)
    }
}
