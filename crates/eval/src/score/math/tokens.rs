//! LaTeX as tokens, without what has no meaning for an answer: print, spacing, currency, percent, degrees, units.

use crate::score::extract;

/// A piece of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// ASCII digits with at most one point, without leading and useless trailing zeros.
    Number(String),
    /// A letter that stands for a quantity.
    Letter(char),
    /// Text, in small letters.
    Text(String),
    /// `\name`, or `\` and one mark: `\{`, `\\`.
    Command(String),
    /// Any other mark.
    Symbol(char),
}

/// Commands that set type around their argument.
const TEXT: [&str; 11] = [
    "text",
    "textbf",
    "textit",
    "textrm",
    "textnormal",
    "mathrm",
    "mathbf",
    "mathit",
    "mathsf",
    "mbox",
    "operatorname",
];

/// Commands without meaning for an answer.
const SILENT: [&str; 24] = [
    "left",
    "right",
    "big",
    "Big",
    "bigg",
    "Bigg",
    "bigl",
    "bigr",
    "Bigl",
    "Bigr",
    "quad",
    "qquad",
    "displaystyle",
    "textstyle",
    "limits",
    "degree",
    "degrees",
    "rm",
    "bf",
    "it",
    "$",
    "%",
    "(",
    ")",
];

/// Functions and constants that are also written without a backslash.
pub const NAMES: [&str; 12] = ["sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "sqrt", "pi", "infty", "theta"];

/// Words beside a number that change no answer: units, and those that `minerva_math` takes away. All others stay: 3 boys are
/// not 3 girls.
const UNITS: [&str; 66] = [
    "cm",
    "mm",
    "km",
    "ft",
    "kg",
    "mph",
    "inch",
    "inches",
    "foot",
    "feet",
    "yard",
    "yards",
    "mile",
    "miles",
    "meter",
    "meters",
    "metre",
    "metres",
    "centimeter",
    "centimeters",
    "gram",
    "grams",
    "pound",
    "pounds",
    "liter",
    "liters",
    "degree",
    "degrees",
    "unit",
    "units",
    "square",
    "sq",
    "cubic",
    "dollar",
    "dollars",
    "cent",
    "cents",
    "second",
    "seconds",
    "minute",
    "minutes",
    "hour",
    "hours",
    "day",
    "days",
    "week",
    "weeks",
    "month",
    "months",
    "year",
    "years",
    "percent",
    "gm",
    "integers",
    "points",
    "digits",
    "meals",
    "edges",
    "students",
    "children",
    "tickets",
    "multiples",
    "ways",
    "th",
    "m",
    "s",
];

/// The tokens of an answer.
pub fn of(text: &str) -> Vec<Token> {
    without_units(read(text.trim().trim_end_matches(['.', ',', ';', ' '])))
}

/// One spelling for each command.
fn command(name: &str) -> Option<Token> {
    let name = match name {
        name if SILENT.contains(&name) => return None,
        "dfrac" | "tfrac" | "cfrac" => "frac",
        "cdot" | "ast" | "times" => "times",
        "leq" | "leqslant" => "le",
        "geq" | "geqslant" => "ge",
        "neq" => "ne",
        "lt" => return Some(Token::Symbol('<')),
        "gt" => return Some(Token::Symbol('>')),
        "lbrace" => "{",
        "rbrace" => "}",
        "lvert" | "rvert" | "vert" | "mid" => return Some(Token::Symbol('|')),
        "lbrack" => return Some(Token::Symbol('[')),
        "rbrack" => return Some(Token::Symbol(']')),
        "varnothing" => "emptyset",
        "infin" => "infty",
        "[" | "]" | "," | ";" | ":" | "!" | " " | ">" => return None,
        "&" => return Some(Token::Symbol('&')),
        name => name,
    };
    Some(Token::Command(name.to_owned()))
}

/// Marks that are commands by another name.
fn mark(c: char) -> Option<Token> {
    let name = match c {
        '$' | '%' | '°' | '~' | '€' | '£' | '\u{2009}' => return None,
        '\u{2212}' | '–' => return Some(Token::Symbol('-')),
        '*' | '×' | '·' | '⋅' => "times",
        '÷' => return Some(Token::Symbol('/')),
        'π' => "pi",
        'θ' => "theta",
        '∞' => "infty",
        '√' => "sqrt",
        '≤' => "le",
        '≥' => "ge",
        '≠' => "ne",
        '∈' => "in",
        '∪' => "cup",
        '∩' => "cap",
        '∅' => "emptyset",
        '±' => "pm",
        c => return Some(Token::Symbol(c)),
    };
    Some(Token::Command(name.to_owned()))
}

struct Reader<'a> {
    rest: &'a str,
    tokens: Vec<Token>,
    /// Open round, square and set brackets: commas separate inside of them, even between three digits.
    depth: usize,
    /// Records whether space has just been read.
    spaced: bool,
}

fn read(text: &str) -> Vec<Token> {
    let joined = text.replace("{,}", "\u{2009}").replace(",\\!", "\u{2009}").replace("\\$", "").replace("^\\circ", "");
    let joined = joined.replace("^{\\circ}", "").replace("^ \\circ", "").replace("\\^\\circ", "");
    let mut reader = Reader { rest: &joined, tokens: Vec::new(), depth: 0, spaced: false };
    while let Some(c) = reader.rest.chars().next() {
        reader.step(c);
    }
    reader.tokens
}

impl<'a> Reader<'a> {
    fn step(&mut self, c: char) {
        let spaced = std::mem::replace(&mut self.spaced, c.is_whitespace());
        match c {
            '\\' => self.command(),
            c if c.is_ascii_digit() || c == '.' && self.rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                self.number();
            }
            c if c.is_alphabetic() && mark(c) == Some(Token::Symbol(c)) => self.word(spaced),
            c if c.is_whitespace() => self.take(c.len_utf8()),
            c => {
                self.take(c.len_utf8());
                self.bracket(c);
                self.tokens.extend(mark(c));
            }
        }
    }

    fn take(&mut self, length: usize) {
        self.rest = &self.rest[length..];
    }

    fn bracket(&mut self, c: char) {
        match c {
            '(' | '[' => self.depth += 1,
            ')' | ']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    fn command(&mut self) {
        let rest = &self.rest[1..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let length = if letters > 0 { letters } else { rest.chars().next().map_or(0, char::len_utf8) };
        let name = &rest[..length];
        self.take(1 + length);
        match name {
            "{" => self.depth += 1,
            "}" => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        if TEXT.contains(&name)
            && let Some(inner) = self.rest.trim_start().strip_prefix('{')
            && let Some(content) = extract::group(inner)
        {
            self.rest = &inner[content.len() + 1..];
            return self.text(content);
        }
        self.tokens.extend(command(name).filter(|_| length > 0));
    }

    /// The argument of a command for text: a separator, a letter, a formula after all, or text.
    fn text(&mut self, content: &'a str) {
        let content = content.trim().trim_end_matches('.');
        let mut letters = content.chars().filter(|c| c.is_alphabetic());
        let after_number = matches!(self.tokens.last(), Some(Token::Number(_)));
        match (letters.next(), letters.next()) {
            _ if after_number && is_unit(content) => self.tokens.push(Token::Text(content.to_lowercase())),
            (None, _) => self.tokens.extend(read(content)),
            (Some(_), None) if content.len() <= 3 => self.tokens.extend(read(content)),
            _ if content.starts_with(|c: char| c.is_ascii_digit()) => self.tokens.extend(read(content)),
            _ if matches!(content, "and" | "or") => self.tokens.push(Token::Symbol(',')),
            _ if NAMES.contains(&content) => self.tokens.push(Token::Command(content.to_owned())),
            _ => self.tokens.push(Token::Text(content.to_lowercase())),
        }
    }

    /// A number; its value does not depend on how its thousands are written. Two numbers with nothing but space between
    /// them are kept apart: `1 1/2` is not `11/2`.
    fn number(&mut self) {
        let bytes = self.rest.as_bytes();
        let mut digits = String::new();
        let mut at = 0;
        loop {
            let run = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            digits.push_str(&self.rest[at..at + run]);
            at += run;
            let rest = &self.rest[at..];
            let separator =
                if rest.starts_with('\u{2009}') { 3 } else { usize::from(rest.starts_with(',') && self.depth == 0) };
            let group = rest[separator..].bytes().take_while(u8::is_ascii_digit).count();
            if separator == 0
                || group != 3
                || digits.len() > 3 && run != 3
                || digits.starts_with('0')
                || digits.is_empty()
            {
                break;
            }
            at += separator;
        }
        if let Some(part) = self.rest[at..].strip_prefix('.') {
            let run = part.bytes().take_while(u8::is_ascii_digit).count();
            digits.push_str(&self.rest[at..=at + run]);
            at += 1 + run;
        }
        self.take(at);
        if matches!(self.tokens.last(), Some(Token::Number(_))) {
            self.tokens.push(Token::Symbol(' '));
        }
        self.tokens.push(Token::Number(shortest(&digits)));
    }

    /// Letters in a row: a name that is known, text (a unit; a long word apart from the number before it), or a product of
    /// quantities.
    fn word(&mut self, spaced: bool) {
        let length = self.rest.chars().take_while(|&c| c.is_alphabetic()).map(char::len_utf8).sum();
        let word = &self.rest[..length];
        self.take(length);
        let small = word.to_lowercase();
        match small.as_str() {
            "and" | "or" => self.tokens.push(Token::Symbol(',')),
            name if NAMES.contains(&name) => self.tokens.push(Token::Command(small)),
            // One letter is a quantity.
            name if length > 1 && UNITS.contains(&name) => self.tokens.push(Token::Text(small)),
            _ if spaced && length > 2 && matches!(self.tokens.last(), Some(Token::Number(_))) => {
                self.tokens.push(Token::Text(small));
            }
            _ => self.tokens.extend(word.chars().map(Token::Letter)),
        }
    }
}

/// Digits without leading zeros and zeros after the point.
fn shortest(digits: &str) -> String {
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    let part = part.trim_end_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    if part.is_empty() { whole.to_owned() } else { format!("{whole}.{part}") }
}

/// Units beside a formula go, with their powers: `5\text{ cm}^2`. Other text stays, and text alone does.
fn without_units(tokens: Vec<Token>) -> Vec<Token> {
    let unit = |token: &Token| matches!(token, Token::Text(text) if is_unit(text));
    if !tokens.iter().any(|token| matches!(token, Token::Number(_) | Token::Command(_))) {
        return tokens;
    }
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if !unit(&tokens[at]) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at += 1 + power_length(&tokens[at + 1..]);
    }
    while matches!(kept.as_slice(), [.., Token::Symbol('^' | ' ' | ',')]) {
        kept.pop();
    }
    kept
}

/// Reports whether a text is made of units alone, with powers perhaps: `square feet`, `cm^2`.
fn is_unit(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()).peekable();
    let marks = |c: char| c.is_alphabetic() || c.is_whitespace() || matches!(c, '^' | '{' | '}' | '2' | '3' | '.');
    words.peek().is_some() && text.chars().all(marks) && words.all(|word| UNITS.contains(&word.to_lowercase().as_str()))
}

/// Reports whether an answer has words: text, or letters in a row.
pub fn has_words(tokens: &[Token]) -> bool {
    let is_word = |token: &Token| matches!(token, Token::Text(text) if text.chars().any(char::is_alphabetic));
    let letters = |row: &[Token]| row.iter().all(|token| matches!(token, Token::Letter(_)));
    tokens.iter().any(is_word) || tokens.windows(LETTERS_OF_WORD).any(letters)
}

/// An answer as one text: letters are small, spaces and full stops are none, and it makes no difference which words a
/// command declares to be text.
pub fn text(tokens: &[Token]) -> String {
    let mut text = String::new();
    for token in tokens {
        match token {
            Token::Letter(c) => text.extend(c.to_lowercase()),
            Token::Number(digits) => text.push_str(digits),
            Token::Command(name) => text.push_str(name),
            Token::Symbol(c) => text.extend(Some(*c).filter(|c| !is_silent(*c))),
            Token::Text(words) => text.push_str(&joined(words)),
        }
    }
    text
}

/// Letters in a row that are a word: fewer are a product.
const LETTERS_OF_WORD: usize = 4;

/// Marks that make no difference between words.
fn is_silent(c: char) -> bool {
    c.is_whitespace() || matches!(c, '.' | '!' | '?' | '"' | '\'' | '’' | '`' | '“' | '”' | '-' | '\\')
}

/// Words without what makes no difference; a point between digits does.
fn joined(words: &str) -> String {
    let words = words.replace(" and ", ",").replace(" or ", ",");
    let characters: Vec<char> = words.chars().collect();
    let digit = |at: Option<usize>| at.and_then(|at| characters.get(at)).is_some_and(char::is_ascii_digit);
    let point = |at: usize| characters[at] == '.' && digit(at.checked_sub(1)) && digit(Some(at + 1));
    (0..characters.len()).filter(|&at| point(at) || !is_silent(characters[at])).map(|at| characters[at]).collect()
}

/// Number of tokens of the exponent at the start.
fn power_length(tokens: &[Token]) -> usize {
    match tokens {
        [Token::Symbol('^'), Token::Number(_), ..] => 2,
        [Token::Symbol('^'), Token::Symbol('{'), Token::Number(_), Token::Symbol('}'), ..] => 4,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let show = |token: &Token| match token {
            Token::Number(digits) => digits.clone(),
            Token::Letter(c) | Token::Symbol(c) => c.to_string(),
            Token::Text(text) => format!("<{text}>"),
            Token::Command(name) => format!("\\{name}"),
        };
        of(text).iter().map(show).collect::<Vec<_>>().join("_")
    }

    #[test]
    fn spellings_without_meaning_go() {
        for (text, tokens) in [
            (r"\left( \dfrac{1}{2}\,,\; 3.50 \right)", r"(_\frac_{_1_}_{_2_}_,_3.5_)"),
            (r"\$1,234.00", "1234"),
            (r"10{,}000", "10000"),
            (r"10,\!000\text{ cm}^2", "10000"),
            (r"45^\circ", "45"),
            (r"50\%", "50"),
            (r"12 square units", "12"),
            (r"\text{Evelyn}", "<evelyn>"),
            (r"2\text{ and }3", "2_,_3"),
            (r"(100,200)", "(_100_,_200_)"),
            (r"1 1/2", "1_ _1_/_2"),
            (r"\sin\theta", r"\sin_\theta"),
            (r"2xy", "2_x_y"),
            ("", ""),
            (r"\", ""),
            (r"5\,\mathrm{kg}", "5"),
            (r"5\text{ m}", "5"),
            (r"5m", "5_m"),
            (r"5\text{ square feet}", "5"),
            (r"\text{20 km}", "20"),
            (r"3\text{ boys}", "3_<boys>"),
            (r"10:30\text{ a.m.}", "10_:_30_<a.m>"),
        ] {
            assert_eq!(shown(text), tokens, "{text}");
        }
    }
}
