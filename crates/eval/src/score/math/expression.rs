//! The value of an expression: exact where it is a number, else tried at a few points.

use std::fmt::Write;

use super::{
    parts::{closing, is},
    tokens::{Token, has_words, text},
};
use crate::score::rational::Rational;

/// Points at which expressions are tried.
const POINTS: u64 = 4;

/// Floating-point results that differ by less, in relation, are the same: far above what rounding does to a formula of an
/// answer's length, far below what any rounded decimal number in an answer is off.
const TOLERANCE: f64 = 1e-11;

/// Deeper nesting is no answer.
const DEEPEST: usize = 40;

/// Reports whether two expressions are the same answer.
pub fn same(left: &[Token], right: &[Token]) -> bool {
    let (left, right) = without_base(left, right);
    left == right || same_text(left, right) || same_value(left, right)
}

/// Digits of a number in another base (`1011_2`), without the base if the other answer leaves it out.
fn without_base<'a>(left: &'a [Token], right: &'a [Token]) -> (&'a [Token], &'a [Token]) {
    let bare = |tokens: &'a [Token], other: &[Token]| match tokens {
        [Token::Number(_), Token::Symbol('_'), ..] if !other.contains(&Token::Symbol('_')) => &tokens[..1],
        _ => tokens,
    };
    (bare(left, right), bare(right, left))
}

/// Reports whether one has words, and both are the same text.
pub fn same_text(left: &[Token], right: &[Token]) -> bool {
    (has_words(left) || has_words(right)) && text(left) == text(right)
}

fn same_value(left: &[Token], right: &[Token]) -> bool {
    let agree = |point| {
        let values = value(left, point).zip(value(right, point));
        values.is_some_and(|(left, right)| left.equals(right))
    };
    (0..POINTS).all(agree)
}

fn value(tokens: &[Token], point: u64) -> Option<Value> {
    let mut parser = Parser { tokens, point, depth: 0 };
    let value = parser.sum()?;
    (parser.tokens.is_empty() && value.is_finite()).then_some(value)
}

/// A number, exact as long as it can be.
#[derive(Debug, Clone, Copy)]
enum Value {
    Exact(Rational),
    Rounded(f64),
}

impl Value {
    fn rounded(self) -> f64 {
        match self {
            Self::Exact(value) => value.as_f64(),
            Self::Rounded(value) => value,
        }
    }

    fn is_finite(self) -> bool {
        self.rounded().is_finite()
    }

    fn equals(self, other: Self) -> bool {
        if let (Self::Exact(left), Self::Exact(right)) = (self, other) {
            return left == right;
        }
        let (left, right) = (self.rounded(), other.rounded());
        (left - right).abs() <= TOLERANCE * left.abs().max(right.abs())
    }

    /// An operation; one on exact numbers whose result does not fit has no value, rather than a rounded one that would be
    /// the same as its neighbours.
    fn with(
        self,
        other: Self,
        exact: fn(Rational, Rational) -> Option<Rational>,
        rounded: fn(f64, f64) -> f64,
    ) -> Option<Self> {
        match (self, other) {
            (Self::Exact(left), Self::Exact(right)) => Some(Self::Exact(exact(left, right)?)),
            _ => Some(Self::Rounded(rounded(self.rounded(), other.rounded()))),
        }
    }

    fn add(self, other: Self) -> Option<Self> {
        self.with(other, Rational::add, |left, right| left + right)
    }

    fn multiply(self, other: Self) -> Option<Self> {
        self.with(other, Rational::multiply, |left, right| left * right)
    }

    fn divide(self, other: Self) -> Option<Self> {
        self.with(other, Rational::divide, |left, right| left / right)
    }

    fn negate(self) -> Option<Self> {
        self.multiply(Self::Exact(Rational::whole(-1)))
    }

    fn power(self, exponent: Self) -> Option<Self> {
        match (self, exponent) {
            (Self::Exact(base), Self::Exact(exponent)) if exponent.as_whole().is_some() => {
                Some(Self::Exact(base.power(exponent)?))
            }
            _ => Some(self.root_or_power(exponent)),
        }
    }

    fn root_or_power(self, exponent: Self) -> Self {
        if let (Self::Exact(base), Self::Exact(half)) = (self, exponent)
            && Some(half) == Rational::new(1, 2)
            && let Some(root) = base.square_root()
        {
            return Self::Exact(root);
        }
        Self::Rounded(self.rounded().powf(exponent.rounded()))
    }
}

/// Reads and computes in one pass.
struct Parser<'a> {
    tokens: &'a [Token],
    point: u64,
    depth: usize,
}

impl Parser<'_> {
    fn take(&mut self, symbol: char) -> bool {
        let found = self.tokens.first() == Some(&Token::Symbol(symbol));
        self.tokens = &self.tokens[usize::from(found)..];
        found
    }

    fn take_command(&mut self, name: &str) -> bool {
        let found = self.tokens.first().is_some_and(|token| is(token, name));
        self.tokens = &self.tokens[usize::from(found)..];
        found
    }

    fn sum(&mut self) -> Option<Value> {
        let negative = self.take('-');
        if !negative {
            self.take('+');
        }
        let mut total = self.product()?;
        total = if negative { total.negate()? } else { total };
        loop {
            total = if self.take('+') {
                total.add(self.product()?)?
            } else if self.take('-') {
                total.add(self.product()?.negate()?)?
            } else {
                return Some(total);
            };
        }
    }

    fn product(&mut self) -> Option<Value> {
        let mut total = self.mixed()?;
        loop {
            total = if self.take_command("times") {
                let negative = self.take('-');
                let factor = self.power()?;
                total.multiply(if negative { factor.negate()? } else { factor })?
            } else if self.take('/') || self.take_command("div") {
                total.divide(self.power()?)?
            } else if self.opens_factor() {
                total.multiply(self.power()?)?
            } else {
                return Some(total);
            };
        }
    }

    /// A factor, or a mixed number: `1\frac{1}{2}`, `1 1/2`.
    fn mixed(&mut self) -> Option<Value> {
        let whole = self.tokens;
        let [Token::Number(digits), rest @ ..] = whole else { return self.power() };
        let digit = |token: Option<&Token>| matches!(token, Some(Token::Number(digits)) if !digits.contains('.'));
        let plain = !digits.contains('.');
        if plain && is_plain_fraction(rest) {
            self.tokens = rest;
            let part = self.power()?;
            return Value::Exact(Rational::decimal(digits)?).add(part);
        }
        if plain
            && rest.first() == Some(&Token::Symbol(' '))
            && digit(rest.get(1))
            && rest.get(2) == Some(&Token::Symbol('/'))
        {
            self.tokens = &rest[1..];
            let numerator = self.base()?;
            let part = if self.take('/') { numerator.divide(self.base()?)? } else { return None };
            return Value::Exact(Rational::decimal(digits)?).add(part);
        }
        self.power()
    }

    fn opens_factor(&self) -> bool {
        match self.tokens.first() {
            Some(Token::Letter(_) | Token::Number(_)) => true,
            Some(Token::Symbol(c)) => matches!(c, '(' | '[' | '{'),
            Some(Token::Command(name)) => {
                !matches!(name.as_str(), "times" | "div" | "}" | "{" | "\\" | "begin" | "end" | "pm" | "cup" | "cap")
            }
            Some(Token::Text(_)) | None => false,
        }
    }

    fn power(&mut self) -> Option<Value> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let mut base = self.base()?;
        if self.take('!') {
            base = factorial(base)?;
        }
        if self.take('^') {
            let negative = self.take('-');
            let exponent = self.argument()?;
            base = base.power(if negative { exponent.negate()? } else { exponent })?;
        }
        self.depth -= 1;
        Some(base)
    }

    fn base(&mut self) -> Option<Value> {
        if let Some(end) = closing(self.tokens).filter(|_| !is(&self.tokens[0], "{")) {
            return self.group(end);
        }
        let (token, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        match token {
            Token::Number(digits) if rest.first() != Some(&Token::Symbol('_')) => {
                Some(Value::Exact(Rational::decimal(digits)?))
            }
            Token::Number(name) => self.quantity(name),
            Token::Letter(name) => self.quantity(&name.to_string()),
            Token::Command(name) => self.command(name),
            Token::Text(_) | Token::Symbol(_) => None,
        }
    }

    /// Value between the bracket here and its partner.
    fn group(&mut self, end: usize) -> Option<Value> {
        let (group, rest) = self.tokens.split_at(end + 1);
        let mut inner = Parser { tokens: &group[1..end], point: self.point, depth: self.depth + 1 };
        if inner.depth > DEEPEST {
            return None;
        }
        self.tokens = rest;
        let value = inner.sum()?;
        inner.tokens.is_empty().then_some(value)
    }

    /// The argument of a command: a group, or one token; of `12` the first digit.
    fn argument(&mut self) -> Option<Value> {
        if self.tokens.first() == Some(&Token::Symbol('{')) {
            return self.group(closing(self.tokens)?);
        }
        self.base()
    }

    fn command(&mut self, name: &str) -> Option<Value> {
        match name {
            "frac" => self.fraction(),
            "sqrt" => self.root(),
            "pi" => Some(Value::Rounded(std::f64::consts::PI)),
            "sin" | "cos" | "tan" | "cot" | "sec" | "csc" | "ln" | "log" => self.function(name),
            _ if name.chars().all(|c| c.is_ascii_alphabetic()) => self.quantity(name),
            _ => None,
        }
    }

    fn fraction(&mut self) -> Option<Value> {
        if let [Token::Number(digits), rest @ ..] = self.tokens
            && digits.len() == 2
            && rest.first() != Some(&Token::Symbol('{'))
        {
            self.tokens = rest;
            let digit = |at: usize| Some(Value::Exact(Rational::decimal(digits.get(at..=at)?)?));
            return digit(0)?.divide(digit(1)?);
        }
        let numerator = self.argument()?;
        numerator.divide(self.argument()?)
    }

    fn root(&mut self) -> Option<Value> {
        let index = if self.tokens.first() == Some(&Token::Symbol('[')) {
            self.group(closing(self.tokens)?)?
        } else {
            Value::Exact(Rational::whole(2))
        };
        let exponent = Value::Exact(Rational::whole(1)).divide(index)?;
        self.argument()?.power(exponent)
    }

    fn function(&mut self, name: &str) -> Option<Value> {
        let base = if self.take('_') { Some(self.argument()?.rounded()) } else { None };
        self.take(' ');
        let exponent = if self.take('^') { Some(self.argument()?) } else { None };
        let argument = self.power()?.rounded();
        let result = match (name, base) {
            ("sin", None) => argument.sin(),
            ("cos", None) => argument.cos(),
            ("tan", None) => argument.tan(),
            ("cot", None) => argument.tan().recip(),
            ("sec", None) => argument.cos().recip(),
            ("csc", None) => argument.sin().recip(),
            ("ln", None) => argument.ln(),
            ("log", None) => argument.log10(),
            ("log", Some(base)) => argument.ln() / base.ln(),
            _ => return None,
        };
        let result = Value::Rounded(result);
        exponent.map_or(Some(result), |exponent| result.power(exponent))
    }

    /// Reads a quantity without a value of its own, with its index. The point decides its value.
    fn quantity(&mut self, name: &str) -> Option<Value> {
        let mut key = name.to_owned();
        if self.take('_') {
            let end = closing(self.tokens).unwrap_or(0);
            let (index, rest) = (self.tokens.get(..=end)?, &self.tokens[end + 1..]);
            let bare = if end > 1 && index[0] == Token::Symbol('{') { &index[1..end] } else { index };
            let _ = write!(key, "{bare:?}");
            self.tokens = rest;
        }
        Some(Value::Rounded(somewhere(&key, self.point)))
    }
}

/// Reports whether a fraction of two whole numbers stands here.
fn is_plain_fraction(tokens: &[Token]) -> bool {
    let whole = |token: &Token| matches!(token, Token::Number(digits) if !digits.contains('.'));
    let group = |tokens: &[Token]| matches!(tokens, [Token::Symbol('{'), inner, Token::Symbol('}')] if whole(inner));
    match tokens {
        [frac, digits, ..] if is(frac, "frac") && whole(digits) => true,
        [frac, rest @ ..] if is(frac, "frac") && rest.len() >= 6 => group(&rest[..3]) && group(&rest[3..6]),
        _ => false,
    }
}

/// A number from 0.6 to 1.6 for a name at a point: below and above 1, so that neither high powers nor small terms vanish
/// at all points.
fn somewhere(name: &str, point: u64) -> f64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ point.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^= hash >> 29;
    let low = if point.is_multiple_of(2) { 0.6 } else { 1.1 };
    low + 0.5 * ((hash.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1_u64 << 53) as f64)
}

fn factorial(value: Value) -> Option<Value> {
    let Value::Exact(number) = value else { return None };
    let number = number.as_whole().filter(|number| (0..=30).contains(number))?;
    Some(Value::Exact(Rational::whole((1..=number).product())))
}
