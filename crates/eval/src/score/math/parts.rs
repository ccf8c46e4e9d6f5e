//! Answers of several parts: lists, sets, tuples, intervals, unions, matrices, equations.

use super::{expression, tokens::Token};

/// Deeper nesting is no answer.
const DEEPEST: usize = 12;

/// An answer, taken apart.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// One expression.
    Expression(Vec<Token>),
    /// Parts in any order: a set, a list of solutions.
    Set(Vec<Part>),
    /// Intervals joined, in any order.
    Union(Vec<Part>),
    /// Parts in their order between two brackets: a point, an interval.
    Tuple(char, Vec<Part>, char),
    /// Rows of cells.
    Matrix(Vec<Vec<Part>>),
    /// Two sides and what stands between them.
    Relation(Box<Part>, Token, Box<Part>),
}

impl Part {
    /// Takes an answer apart.
    pub fn of(tokens: &[Token]) -> Self {
        Self::read(tokens, DEEPEST)
    }

    fn read(tokens: &[Token], depth: usize) -> Self {
        let expression = || Self::Expression(tokens.to_vec());
        let Some(depth) = depth.checked_sub(1) else { return expression() };
        let all = |pieces: Vec<&[Token]>| pieces.into_iter().map(|piece| Self::read(piece, depth)).collect();
        let pieces = split(tokens, |token| matches!(token, Token::Symbol(',' | ';')));
        if pieces.len() > 1 && pieces.iter().all(|piece| !piece.is_empty()) {
            return Self::Set(all(pieces));
        }
        let pieces = split(tokens, |token| is(token, "cup"));
        if pieces.len() > 1 {
            return Self::Union(all(pieces));
        }
        if let Some(relation) = Self::relation(tokens, depth) {
            return relation;
        }
        if let Some(wrapped) = Self::wrapped(tokens, depth) {
            return wrapped;
        }
        if let Some(at) = tokens.iter().position(|token| is(token, "pm")) {
            let with = |sign| [&tokens[..at], &[Token::Symbol(sign)], &tokens[at + 1..]].concat();
            return Self::Set(['+', '-'].map(|sign| Self::read(&with(sign), depth)).to_vec());
        }
        expression()
    }

    /// Reads two sides around the first sign of relation. The larger side comes right.
    fn relation(tokens: &[Token], depth: usize) -> Option<Self> {
        let at = position(tokens, is_relation)?;
        let (left, right) = (Self::read(&tokens[..at], depth), Self::read(&tokens[at + 1..], depth));
        let turned = match &tokens[at] {
            Token::Symbol('>') => Some(Token::Symbol('<')),
            sign if is(sign, "ge") => Some(Token::Command("le".to_owned())),
            _ => None,
        };
        Some(match turned {
            Some(sign) => Self::Relation(Box::new(right), sign, Box::new(left)),
            None => Self::Relation(Box::new(left), tokens[at].clone(), Box::new(right)),
        })
    }

    /// Part between one pair of brackets around everything.
    fn wrapped(tokens: &[Token], depth: usize) -> Option<Self> {
        if let [token] = tokens {
            return is(token, "emptyset").then(|| Self::Set(Vec::new()));
        }
        if let Some(rows) = matrix(tokens) {
            let cells = |row: &[Token]| {
                split(row, |token| *token == Token::Symbol('&'))
                    .into_iter()
                    .map(|cell| Self::read(cell, depth))
                    .collect()
            };
            return Some(Self::Matrix(rows.into_iter().map(cells).collect()));
        }
        let (first, last) = (tokens.first()?, tokens.last()?);
        let inner = &tokens[1..tokens.len() - 1];
        if closing(tokens) != Some(tokens.len() - 1) {
            return None;
        }
        let parts = match Self::read(inner, depth) {
            _ if inner.is_empty() => Vec::new(),
            Self::Set(parts) if !matches!(inner.first(), Some(token) if is(token, "{")) => parts,
            one => vec![one],
        };
        match (first, last) {
            (open, _) if is(open, "{") => Some(Self::Set(parts)),
            (Token::Symbol('{'), _) => Some(Self::read(inner, depth)),
            (Token::Symbol(open), Token::Symbol(close)) if parts.len() > 1 => Some(Self::Tuple(*open, parts, *close)),
            _ => parts.into_iter().next(),
        }
    }

    /// Reports whether nothing is there.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Expression(tokens) if tokens.is_empty())
    }

    /// Reports whether two answers are the same. `x = 5` is the same as `5`, `\{5\}` too.
    pub fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Relation(..), Self::Relation(..)) => self.same_relation(other),
            (Self::Relation(name, sign, value), bare) | (bare, Self::Relation(name, sign, value)) => {
                let names = (*sign == Token::Symbol('=') || is(sign, "in")) && name.is_name();
                names && value.equals(bare)
            }
            (Self::Set(left), Self::Set(right)) | (Self::Union(left), Self::Union(right)) => {
                same_in_any_order(left, right)
            }
            (Self::Set(parts), one) | (one, Self::Set(parts)) => parts.len() == 1 && parts[0].equals(one),
            (Self::Tuple(open, left, close), Self::Tuple(other_open, right, other_close)) => {
                (open, close) == (other_open, other_close) && same_in_order(left, right)
            }
            (Self::Matrix(left), Self::Matrix(right)) => {
                left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same_in_order(left, right))
            }
            (Self::Expression(left), Self::Expression(right)) => expression::same(left, right),
            _ => false,
        }
    }

    fn same_relation(&self, other: &Self) -> bool {
        let (Self::Relation(left, sign, right), Self::Relation(other_left, other_sign, other_right)) = (self, other)
        else {
            return false;
        };
        let straight = left.equals(other_left) && right.equals(other_right);
        let symmetric = *sign == Token::Symbol('=') || is(sign, "ne");
        sign == other_sign && (straight || symmetric && left.equals(other_right) && right.equals(other_left))
    }

    /// Reports whether this names a quantity: `x`, `f(x)`, `x_1`, a word; nothing is left of text.
    fn is_name(&self) -> bool {
        let Self::Expression(tokens) = self else { return false };
        let head = matches!(tokens.first(), Some(Token::Letter(_) | Token::Text(_) | Token::Command(_)));
        let operation =
            |token: &Token| matches!(token, Token::Symbol('+' | '-' | '/' | '^' | '*')) || is(token, "times");
        let word = tokens.len() > 2 && tokens.iter().all(|token| matches!(token, Token::Letter(_)));
        let adjacent = tokens.windows(2).any(|pair| matches!(pair, [Token::Letter(_), Token::Letter(_)]));
        if tokens.is_empty() || word {
            return true;
        }
        head && !tokens.iter().any(operation) && !adjacent && !tokens.iter().any(|token| is(token, "frac"))
    }
}

fn same_in_order(left: &[Part], right: &[Part]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.equals(right))
}

fn same_in_any_order(left: &[Part], right: &[Part]) -> bool {
    let mut open: Vec<&Part> = right.iter().collect();
    let mut matched = |part: &Part| {
        let at = open.iter().position(|other| part.equals(other));
        at.map(|at| open.swap_remove(at)).is_some()
    };
    left.len() == right.len() && left.iter().all(&mut matched)
}

/// Reports whether a token is a command of this name.
pub fn is(token: &Token, name: &str) -> bool {
    matches!(token, Token::Command(found) if found == name)
}

fn is_relation(token: &Token) -> bool {
    matches!(token, Token::Symbol('=' | '<' | '>')) || ["le", "ge", "ne", "in"].iter().any(|name| is(token, name))
}

fn opens(token: &Token) -> bool {
    matches!(token, Token::Symbol('(' | '[' | '{')) || is(token, "{") || is(token, "begin")
}

fn closes(token: &Token) -> bool {
    matches!(token, Token::Symbol(')' | ']' | '}')) || is(token, "}") || is(token, "end")
}

/// The first such token outside of all brackets.
fn position(tokens: &[Token], test: impl Fn(&Token) -> bool) -> Option<usize> {
    let mut depth = 0_usize;
    tokens.iter().position(|token| {
        depth = if closes(token) { depth.saturating_sub(1) } else { depth };
        let found = depth == 0 && test(token);
        depth += usize::from(opens(token));
        found
    })
}

/// The pieces between such tokens outside of all brackets.
fn split(tokens: &[Token], test: impl Fn(&Token) -> bool) -> Vec<&[Token]> {
    let mut pieces = Vec::new();
    let mut rest = tokens;
    while let Some(at) = position(rest, &test) {
        pieces.push(&rest[..at]);
        rest = &rest[at + 1..];
    }
    pieces.push(rest);
    pieces
}

/// Index of the bracket that closes the first one.
pub fn closing(tokens: &[Token]) -> Option<usize> {
    if !tokens.first().is_some_and(opens) {
        return None;
    }
    let mut depth = 0_usize;
    tokens.iter().position(|token| {
        depth += usize::from(opens(token));
        depth -= usize::from(closes(token)).min(depth);
        depth == 0
    })
}

/// The rows of a matrix that is all there is: `\begin{pmatrix} a & b \\ c & d \end{pmatrix}`.
fn matrix(tokens: &[Token]) -> Option<Vec<&[Token]>> {
    if !is(tokens.first()?, "begin") {
        return None;
    }
    let begin = 2 + closing(&tokens[1..])?;
    let end = tokens.iter().rposition(|token| is(token, "end"))?;
    let name: String = tokens[2..begin - 1]
        .iter()
        .filter_map(|token| if let Token::Letter(c) = token { Some(c) } else { None })
        .collect();
    if end < begin || end + begin != tokens.len() {
        return None;
    }
    let columns = if name == "array" { 1 + closing(&tokens[begin..end])? } else { 0 };
    let rows = split(&tokens[begin + columns..end], |token| is(token, "\\"));
    let known = ["matrix", "pmatrix", "bmatrix", "vmatrix", "array"].contains(&name.as_str());
    known.then(|| rows.into_iter().filter(|row| !row.is_empty()).collect())
}
