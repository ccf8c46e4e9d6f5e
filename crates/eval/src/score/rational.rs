//! Exact numbers: an answer is right or wrong, never nearly right.

use std::fmt;

/// Exponents beyond this are no answers; their powers would not fit anyway.
const MAX_EXPONENT: i128 = 200;

/// A fraction in lowest terms with a positive denominator. Every operation is `None` where the result does not fit into
/// 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rational {
    numerator: i128,
    denominator: i128,
}

impl Rational {
    /// A whole number.
    pub fn whole(value: i128) -> Self {
        Self { numerator: value, denominator: 1 }
    }

    /// `numerator / denominator`; `None` for a division by zero.
    pub fn new(numerator: i128, denominator: i128) -> Option<Self> {
        let divisor = common_divisor(numerator.checked_abs()?, denominator.checked_abs()?);
        if denominator == 0 {
            return None;
        }
        let divisor = divisor.checked_mul(denominator.signum())?;
        Some(Self { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    /// A number of ASCII digits with at most one point, such as `12`, `3.50`, `.5`.
    pub fn decimal(digits: &str) -> Option<Self> {
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let part = part.trim_end_matches('0');
        let all = format!("{whole}{part}");
        if all.is_empty() && !digits.contains('0') || !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let numerator = if all.is_empty() { 0 } else { all.parse().ok()? };
        Self::new(numerator, 10_i128.checked_pow(u32::try_from(part.len()).ok()?)?)
    }

    /// The sum.
    pub fn add(self, other: Self) -> Option<Self> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::new(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?)
    }

    /// The number with the other sign.
    pub fn negate(self) -> Option<Self> {
        Some(Self { numerator: self.numerator.checked_neg()?, ..self })
    }

    /// The product.
    pub fn multiply(self, other: Self) -> Option<Self> {
        let numerator = self.numerator.checked_mul(other.numerator)?;
        Self::new(numerator, self.denominator.checked_mul(other.denominator)?)
    }

    /// The quotient; `None` for a division by zero.
    pub fn divide(self, other: Self) -> Option<Self> {
        self.multiply(Self::new(other.denominator, other.numerator)?)
    }

    /// The power with a whole exponent; `None` for any other.
    pub fn power(self, exponent: Self) -> Option<Self> {
        let exponent = exponent.as_whole().filter(|exponent| exponent.abs() <= MAX_EXPONENT)?;
        let base = if exponent < 0 { Self::whole(1).divide(self)? } else { self };
        let times = u32::try_from(exponent.abs()).ok()?;
        Some(Self { numerator: base.numerator.checked_pow(times)?, denominator: base.denominator.checked_pow(times)? })
    }

    /// The square root, if it is a fraction too.
    pub fn square_root(self) -> Option<Self> {
        let root = |value: i128| Some(value.checked_isqrt()?).filter(|root| root * root == value);
        Some(Self { numerator: root(self.numerator)?, denominator: root(self.denominator)? })
    }

    /// The number, if it is whole.
    pub fn as_whole(self) -> Option<i128> {
        (self.denominator == 1).then_some(self.numerator)
    }

    /// The nearest floating-point number.
    pub fn as_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

/// Writes a decimal number where it has an end, else a fraction.
impl fmt::Display for Rational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((digits, places)) = self.as_decimal() else {
            return write!(f, "{}/{}", self.numerator, self.denominator);
        };
        if places == 0 {
            return write!(f, "{digits}");
        }
        let text = format!("{:0>width$}", digits.unsigned_abs(), width = places + 1);
        let (whole, part) = text.split_at(text.len() - places);
        write!(f, "{}{whole}.{part}", if digits < 0 { "-" } else { "" })
    }
}

impl Rational {
    /// Digits and how many of them stand after the point, if finitely many do.
    fn as_decimal(self) -> Option<(i128, usize)> {
        let (mut digits, mut rest, mut places) = (self.numerator, self.denominator, 0);
        while rest != 1 {
            let factor = [10, 2, 5].into_iter().find(|factor| rest % factor == 0)?;
            digits = digits.checked_mul(10 / factor)?;
            rest /= factor;
            places += 1;
        }
        Some((digits, places))
    }
}

fn common_divisor(mut left: i128, mut right: i128) -> i128 {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fraction(numerator: i128, denominator: i128) -> Rational {
        Rational::new(numerator, denominator).unwrap()
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(Rational::decimal("3.50"), Some(fraction(7, 2)));
        assert_eq!(Rational::decimal(".5"), Some(fraction(1, 2)));
        assert_eq!(Rational::decimal("0.0"), Some(Rational::whole(0)));
        assert_eq!(Rational::decimal("007"), Some(Rational::whole(7)));
        for refused in ["", ".", "1.2.3", "-1", "1e5", "9".repeat(60).as_str()] {
            assert_eq!(Rational::decimal(refused), None, "{refused}");
        }
    }

    #[test]
    fn arithmetic_is_exact_and_tells_when_it_does_not_fit() {
        assert_eq!(fraction(1, 3).add(fraction(1, 6)), Some(fraction(1, 2)));
        assert_eq!(fraction(2, -4), fraction(-1, 2));
        assert_eq!(fraction(2, 3).power(Rational::whole(-2)), Some(fraction(9, 4)));
        assert_eq!(fraction(9, 4).square_root(), Some(fraction(3, 2)));
        assert_eq!(fraction(2, 1).square_root(), None);
        assert_eq!(fraction(-4, 1).square_root(), None);
        assert_eq!(fraction(1, 2).divide(Rational::whole(0)), None);
        assert_eq!(Rational::whole(i128::MAX).add(Rational::whole(1)), None);
        assert_eq!(Rational::whole(10).power(Rational::whole(100)), None);
        assert_eq!(Rational::new(1, 0), None);
        assert_eq!(Rational::new(i128::MIN, -1), None);
    }

    #[test]
    fn numbers_are_shown_shortest() {
        for (shown, number) in
            [("7", fraction(7, 1)), ("-3.5", fraction(-7, 2)), ("0.05", fraction(1, 20)), ("-2/3", fraction(-2, 3))]
        {
            assert_eq!(number.to_string(), shown);
        }
    }
}
