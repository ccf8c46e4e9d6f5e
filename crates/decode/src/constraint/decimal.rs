//! Numbers between bounds as automata over their characters.

use std::cmp::Ordering;

use super::{
    automaton::{Dfa, Fuel, Operation},
    error::ConstraintError,
    pattern::{self, Reach},
};

/// Most digits of the whole part: all 64-bit integers without sign that have fewer are integers in every parser.
pub(super) const WHOLE: usize = 19;
/// Most digits of a fraction.
pub(super) const FRACTION: usize = 17;
/// Most digits of which every two numbers are different in 64 bits.
const EXACT: usize = 15;

/// Any number, of the digits there may be.
const NUMBER: &str = r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?";
const INTEGER: &str = r"0|-?[1-9][0-9]{0,18}";

/// A decimal number by its digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Decimal {
    negative: bool,
    /// Without leading zeros, empty for 0.
    whole: String,
    /// Without zeros at the end.
    fraction: String,
}

impl Decimal {
    /// Reads digits without an exponent.
    pub(super) fn parse(text: &str) -> Self {
        let (negative, magnitude) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (whole, fraction) = magnitude.split_once('.').unwrap_or((magnitude, ""));
        let (whole, fraction) = (whole.trim_start_matches('0').to_owned(), fraction.trim_end_matches('0').to_owned());
        Self { negative: negative && !(whole.is_empty() && fraction.is_empty()), whole, fraction }
    }

    fn magnitude(&self) -> (usize, &str, &str) {
        (self.whole.len(), &self.whole, &self.fraction)
    }

    /// The same number with the other sign.
    fn negated(&self) -> Self {
        Self { negative: !self.negative, ..self.clone() }
    }

    /// Compares two numbers.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.magnitude().cmp(&other.magnitude()),
            (true, true) => other.magnitude().cmp(&self.magnitude()),
            (left, right) => right.cmp(&left),
        }
    }
}

/// A bound, and whether it is left out itself.
pub(super) type Bound = (Decimal, bool);

/// The bounds of a number, both or one or none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Range {
    pub(super) low: Option<Bound>,
    pub(super) high: Option<Bound>,
}

impl Range {
    /// Takes a lower bound into account.
    pub(super) fn at_least(&mut self, bound: Bound) {
        Self::tighten(&mut self.low, bound, Ordering::Greater);
    }

    /// Takes an upper bound into account.
    pub(super) fn at_most(&mut self, bound: Bound) {
        Self::tighten(&mut self.high, bound, Ordering::Less);
    }

    fn tighten(old: &mut Option<Bound>, new: Bound, tighter: Ordering) {
        let replaces = old.as_ref().is_none_or(|old| match new.0.compare(&old.0) {
            Ordering::Equal => new.1,
            order => order == tighter,
        });
        if replaces {
            *old = Some(new);
        }
    }

    /// Reports whether no number is between the bounds.
    pub(super) fn is_empty(&self) -> bool {
        let (Some(low), Some(high)) = (&self.low, &self.high) else { return false };
        match low.0.compare(&high.0) {
            Ordering::Less => false,
            Ordering::Equal => low.1 || high.1,
            Ordering::Greater => true,
        }
    }

    /// Reports whether no number is in both ranges.
    pub(super) fn is_disjoint(&self, other: &Self) -> bool {
        let mut both = self.clone();
        other.low.iter().for_each(|low| both.at_least(low.clone()));
        other.high.iter().for_each(|high| both.at_most(high.clone()));
        both.is_empty()
    }

    /// The numbers between the bounds, written in digits: without exponent unless there is no bound.
    pub(super) fn automaton(&self, integer: bool, fuel: &mut Fuel) -> Result<Dfa, ConstraintError> {
        let form = if integer { INTEGER } else { NUMBER };
        let mut bounds = [self.low.as_ref(), self.high.as_ref()].into_iter().flatten().peekable();
        if bounds.peek().is_none() {
            return pattern::automaton(form, Reach::Whole, fuel);
        }
        // Two numbers of more digits may be one number in a parser, and its bound.
        let strict = !integer && bounds.any(|bound| bound.1);
        let form = pattern::automaton(if integer { INTEGER } else { DECIMAL }, Reach::Whole, fuel)?;
        let zero = pattern::automaton(NEGATIVE_ZERO, Reach::Whole, fuel)?;
        let mut texts = form.combine(Operation::Without, &zero, fuel)?;
        if strict {
            let few = pattern::automaton(&format!(r"-?\.?([0-9]\.?){{1,{EXACT}}}"), Reach::Whole, fuel)?;
            texts = texts.combine(Operation::And, &few, fuel)?;
        }
        for (bound, exclusive, side) in self
            .low
            .iter()
            .map(|of| (&of.0, of.1, Side::Above))
            .chain(self.high.iter().map(|of| (&of.0, of.1, Side::Below)))
        {
            let bounded = pattern::automaton(&side.pattern(bound, exclusive), Reach::Whole, fuel)?;
            texts = texts.combine(Operation::And, &bounded, fuel)?;
        }
        Ok(texts)
    }
}

/// Numbers without exponent.
const DECIMAL: &str = r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,17})?";
/// 0 with a sign, which is neither above nor below 0.
const NEGATIVE_ZERO: &str = r"-0(\.0+)?";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Above,
    Below,
}

impl Side {
    fn other(self) -> Self {
        if self == Self::Above { Self::Below } else { Self::Above }
    }

    /// A pattern for all numbers on this side of a bound.
    fn pattern(self, bound: &Decimal, exclusive: bool) -> String {
        if bound.negative {
            // Numbers above -5 are all that have no sign, and `-` before what is below 5.
            let mirrored = self.other().pattern(&bound.negated(), exclusive);
            return if self == Self::Above { format!("[0-9.]+|-(?:{mirrored})") } else { format!("-(?:{mirrored})") };
        }
        let magnitudes = self.magnitudes(bound, exclusive);
        if self == Self::Above { magnitudes } else { format!("-[0-9.]+|{magnitudes}") }
    }

    /// A pattern for the numbers without sign on this side of a bound that has none.
    fn magnitudes(self, bound: &Decimal, exclusive: bool) -> String {
        let whole: &str = if bound.whole.is_empty() { "0" } else { &bound.whole };
        // No text has so many digits.
        let fraction = &bound.fraction[..bound.fraction.len().min(FRACTION + 1)];
        if whole.len() > WHOLE {
            return if self == Self::Above { r"[^\x00-\u{10FFFF}]".to_owned() } else { "[0-9.]+".to_owned() };
        }
        // A whole part of as many digits that differs, then one of more digits, or of fewer.
        let mut options: Vec<String> = self.differing(whole, whole.len());
        options.extend(match self {
            Self::Above if whole == "0" => None,
            Self::Above => Some(format!(r"[0-9]{{{},}}(?:\.[0-9]+)?", whole.len() + 1)),
            Self::Below if whole.len() == 1 => None,
            Self::Below => Some(format!(r"[0-9]{{1,{}}}(?:\.[0-9]+)?", whole.len() - 1)),
        });
        if whole == "0" && self == Self::Above {
            options.push(r"[1-9][0-9]*(?:\.[0-9]+)?".to_owned());
        }
        // The same whole part: its fraction decides.
        let decided = self.fractions(fraction, exclusive);
        options.extend(decided.into_iter().map(|fraction| format!("{whole}{fraction}")));
        options.join("|")
    }

    /// Digits of which the first that differs from a text's is on this side, then any.
    fn differing(self, digits: &str, length: usize) -> Vec<String> {
        let mut options = Vec::new();
        for (at, digit) in digits.bytes().enumerate() {
            let digit = digit - b'0';
            let (low, high) = if self == Self::Above { (digit + 1, 9) } else { (0, digit.wrapping_sub(1)) };
            if digit == if self == Self::Above { 9 } else { 0 } {
                continue;
            }
            options.push(format!(r"{}[{low}-{high}][0-9]{{{}}}(?:\.[0-9]+)?", &digits[..at], length - at - 1));
        }
        options
    }

    /// Digits that may come after an equal whole part.
    fn fractions(self, fraction: &str, exclusive: bool) -> Vec<String> {
        let mut options = Vec::new();
        for (at, digit) in fraction.bytes().enumerate() {
            let digit = digit - b'0';
            match self {
                Self::Above if digit < 9 => {
                    options.push(format!(r"\.{}[{}-9][0-9]*", &fraction[..at], digit + 1));
                }
                Self::Below if digit > 0 => {
                    options.push(format!(r"\.{}[0-{}][0-9]*", &fraction[..at], digit - 1));
                }
                _ => (),
            }
            if self == Self::Below {
                // Fewer digits are less: the last one of the bound is not 0.
                options.push(if at == 0 { String::new() } else { format!(r"\.{}", &fraction[..at]) });
            }
        }
        match (self, exclusive, fraction.is_empty()) {
            (Self::Above, false, true) => options.push(r"(?:\.[0-9]+)?".to_owned()),
            (Self::Above, false, false) => options.push(format!(r"\.{fraction}[0-9]*")),
            (Self::Above, true, _) => options.push(format!(r"\.{fraction}[0-9]*[1-9][0-9]*")),
            (Self::Below, false, true) => options.push(r"(?:\.0+)?".to_owned()),
            (Self::Below, false, false) => options.push(format!(r"\.{fraction}0*")),
            (Self::Below, true, _) => (),
        }
        options
    }
}
