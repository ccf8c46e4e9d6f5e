//! A source in tokens, with Jinja2's rules for the white space around tags: `trim_blocks` and `lstrip_blocks` are on.

use super::{Error, Trouble, letters::is_space};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// Text outside of tags.
    Data(String),
    PrintStart,
    PrintEnd,
    BlockStart,
    BlockEnd,
    Name(String),
    Text(String),
    Int(i64),
    Float(f64),
    Sign(&'static str),
    End,
}

/// Tokens with their lines. The last is [`Token::End`].
pub(super) fn tokens(source: &str) -> Result<Vec<(Token, usize)>, Error> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    // One line break at the end of a file belongs to the file.
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut lexer = Lexer { source, at: 0, counted: (0, 1), line_starts: true, tokens: Vec::new() };
    lexer.run()?;
    Ok(lexer.tokens)
}

/// Longer signs go before those that they start with.
const SIGNS: [&str; 27] = [
    "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(", ")", "[", "]", "{", "}", "|",
    ".", ",", ":", ";", "!",
];

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    /// A place, and the line that it is on: lines are counted from there.
    counted: (usize, usize),
    /// Records whether the text that comes starts a line.
    line_starts: bool,
    tokens: Vec<(Token, usize)>,
}

impl<'a> Lexer<'a> {
    fn run(&mut self) -> Result<(), Error> {
        loop {
            let rest = self.rest();
            let found =
                rest.match_indices('{').find(|(at, _)| matches!(rest.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')));
            let Some((length, _)) = found else {
                self.data(rest, rest, false);
                self.push(Token::End);
                return Ok(());
            };
            let (data, tag) = rest.split_at(length);
            let kind = tag.as_bytes()[1];
            let control = tag.as_bytes().get(2).copied();
            let strips = kind != b'{' && control != Some(b'+');
            self.data(
                data,
                if control == Some(b'-') { data.trim_end_matches(is_space) } else { data },
                strips && control != Some(b'-'),
            );
            self.at += length;
            let opening = 2 + usize::from(matches!(control, Some(b'-' | b'+')));
            match kind {
                b'#' => self.comment()?,
                b'%' => match raw_end(&tag[opening..]) {
                    Some(inside) => self.raw(opening + inside)?,
                    None => self.tag(opening, Token::BlockStart, Token::BlockEnd, "%}")?,
                },
                _ => self.tag(opening, Token::PrintStart, Token::PrintEnd, "}}")?,
            }
        }
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn line(&mut self) -> usize {
        let (place, line) = self.counted;
        let passed = self.source[place..self.at].matches('\n').count();
        self.counted = (self.at, line + passed);
        line + passed
    }

    fn push(&mut self, token: Token) {
        let line = self.line();
        self.tokens.push((token, line));
    }

    fn wrong<T>(&mut self, what: impl Into<String>) -> Result<T, Error> {
        Err(Error { trouble: Trouble::Syntax(what.into()), line: self.line() })
    }

    /// Text before a tag; spaces between the start of a line and a block are its author's.
    fn data(&mut self, whole: &str, text: &str, strips: bool) {
        let mut text = text;
        if strips {
            let start = whole.rfind('\n').map(|at| at + 1);
            let start = start.or(if self.line_starts { Some(0) } else { None });
            if let Some(start) = start.filter(|start| whole[*start..].chars().all(is_space)) {
                text = &whole[..start];
            }
        }
        if !text.is_empty() {
            self.push(Token::Data(text.to_owned()));
        }
    }

    /// Goes behind the end of a block or comment, `length` bytes away, and what white space it takes with it.
    fn close(&mut self, sign: Option<u8>, length: usize, trims: bool) {
        self.at += length;
        let rest = self.rest();
        let taken = match sign {
            Some(b'-') => rest.len() - rest.trim_start_matches(is_space).len(),
            Some(b'+') => 0,
            _ if trims => usize::from(rest.starts_with('\n')),
            _ => 0,
        };
        self.line_starts = rest[..taken].ends_with('\n');
        self.at += taken;
    }

    fn comment(&mut self) -> Result<(), Error> {
        let Some(length) = self.rest()[2..].find("#}") else { return self.wrong("a comment has no end") };
        let sign = self.rest()[..2 + length].bytes().last();
        self.close(sign, length + 4, true);
        Ok(())
    }

    /// Text between `raw` and `endraw`, which starts `opening` bytes away.
    fn raw(&mut self, opening: usize) -> Result<(), Error> {
        let inside = &self.rest()[opening..];
        let found = inside.match_indices("{%").find_map(|(at, _)| {
            let control = inside[at + 2..].bytes().next().filter(|sign| matches!(sign, b'-' | b'+'));
            let length = tag_end(&inside[at + 2 + usize::from(control.is_some())..], "endraw")?;
            Some((at, control, at + 2 + usize::from(control.is_some()) + length))
        });
        let Some((at, control, end)) = found else { return self.wrong("raw has no endraw") };
        let strip_start = self.rest()[..opening].ends_with("-%}");
        // A line break behind raw is part of the text, other than behind a block.
        let trimmed = if strip_start { inside[..at].trim_start_matches(is_space) } else { &inside[..at] };
        self.line_starts = inside[..at - trimmed.len()].ends_with('\n');
        self.at += opening;
        self.data(
            trimmed,
            if control == Some(b'-') { trimmed.trim_end_matches(is_space) } else { trimmed },
            control.is_none(),
        );
        let sign = inside[..end - 2].bytes().last();
        self.close(sign, end, true);
        Ok(())
    }

    /// Tokens of one tag.
    fn tag(&mut self, opening: usize, start: Token, end: Token, closing: &str) -> Result<(), Error> {
        self.push(start);
        self.at += opening;
        let mut open = 0usize;
        loop {
            let rest = self.rest();
            let spaces = rest.len() - rest.trim_start_matches(is_space).len();
            self.at += spaces;
            let rest = self.rest();
            if open == 0 {
                let sign = rest.bytes().next().filter(|sign| matches!(sign, b'-' | b'+'));
                if rest[usize::from(sign.is_some())..].starts_with(closing) {
                    self.push(end);
                    self.close(sign, closing.len() + usize::from(sign.is_some()), closing == "%}");
                    return Ok(());
                }
            }
            let Some(first) = rest.chars().next() else { return self.wrong(format!("a tag has no {closing}")) };
            if first.is_alphabetic() || first == '_' {
                let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                self.push(Token::Name(rest[..length].to_owned()));
                self.at += length;
            } else if first.is_ascii_digit() {
                self.number()?;
            } else if first == '\'' || first == '"' {
                self.text(first)?;
            } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
                match sign {
                    "(" | "[" | "{" => open += 1,
                    ")" | "]" | "}" => open = open.saturating_sub(1),
                    _ => {}
                }
                self.push(Token::Sign(sign));
                self.at += sign.len();
            } else {
                return self.wrong(format!("the character {first:?} has no meaning in a tag"));
            }
        }
    }

    fn number(&mut self) -> Result<(), Error> {
        let rest = self.rest();
        for (prefixes, radix) in [(["0x", "0X"], 16), (["0o", "0O"], 8), (["0b", "0B"], 2)] {
            let Some(inside) = prefixes.iter().find_map(|prefix| rest.strip_prefix(prefix)) else { continue };
            let length = inside.find(|c: char| !(c.is_digit(radix) || c == '_')).unwrap_or(inside.len());
            let Ok(number) = i64::from_str_radix(&inside[..length].replace('_', ""), radix) else {
                return self.wrong("a number has no digits, or too many");
            };
            self.push(Token::Int(number));
            self.at += 2 + length;
            return Ok(());
        }
        let digits = |text: &str| text.find(|c: char| !(c.is_ascii_digit() || c == '_')).unwrap_or(text.len());
        let mut length = digits(rest);
        let mut whole = true;
        // Behind a dot it is an index: `a.0.1` has two of them.
        let index = matches!(self.tokens.last(), Some((Token::Sign("."), _)));
        if !index && rest[length..].starts_with('.') && rest[length + 1..].starts_with(|c: char| c.is_ascii_digit()) {
            whole = false;
            length += 1 + digits(&rest[length + 1..]);
        }
        if !index && rest[length..].starts_with(['e', 'E']) {
            let signed = 1 + usize::from(rest[length + 1..].starts_with(['+', '-']));
            let exponent = digits(&rest[length + signed..]);
            if exponent > 0 {
                whole = false;
                length += signed + exponent;
            }
        }
        let text = rest[..length].replace('_', "");
        let token = if whole { text.parse().ok().map(Token::Int) } else { text.parse().ok().map(Token::Float) };
        let Some(token) = token else {
            return self.wrong(format!("the number {} is too large", &text[..text.len().min(40)]));
        };
        self.push(token);
        self.at += length;
        Ok(())
    }

    fn text(&mut self, quote: char) -> Result<(), Error> {
        let mut text = String::new();
        let mut characters = self.rest().char_indices().skip(1);
        while let Some((at, character)) = characters.next() {
            if character == quote {
                self.push(Token::Text(text));
                self.at += at + 1;
                return Ok(());
            }
            if character != '\\' {
                text.push(character);
                continue;
            }
            let Some((_, escaped)) = characters.next() else { break };
            let code = match escaped {
                'n' => Some('\n'),
                't' => Some('\t'),
                'r' => Some('\r'),
                'a' => Some('\u{7}'),
                'b' => Some('\u{8}'),
                'f' => Some('\u{c}'),
                'v' => Some('\u{b}'),
                '0'..='7' => {
                    let mut code = u32::from(escaped) - u32::from('0');
                    for _ in 0..2 {
                        let digit = characters.clone().next().and_then(|(_, digit)| digit.to_digit(8));
                        let Some(digit) = digit else { break };
                        characters.next();
                        code = code * 8 + digit;
                    }
                    char::from_u32(code)
                }
                '\\' | '\'' | '"' => Some(escaped),
                '\n' => None,
                'x' | 'u' | 'U' => {
                    let digits = match escaped {
                        'x' => 2,
                        'u' => 4,
                        _ => 8,
                    };
                    let code: String = characters.by_ref().take(digits).map(|(_, digit)| digit).collect();
                    let code = u32::from_str_radix(&code, 16).ok().filter(|_| code.len() == digits);
                    match code.and_then(char::from_u32) {
                        Some(code) => Some(code),
                        None => return self.wrong("an escape in a text is no character"),
                    }
                }
                other => {
                    text.push('\\');
                    Some(other)
                }
            };
            text.extend(code);
        }
        self.wrong("a text has no end")
    }
}

/// Length of a tag's inside and end, if the tag is of this word alone.
fn tag_end(inside: &str, word: &str) -> Option<usize> {
    let rest = inside.trim_start_matches(is_space).strip_prefix(word)?.trim_start_matches(is_space);
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest).strip_prefix("%}")?;
    Some(inside.len() - rest.len())
}

fn raw_end(inside: &str) -> Option<usize> {
    tag_end(inside, "raw")
}
