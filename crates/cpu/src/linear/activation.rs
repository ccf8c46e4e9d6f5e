//! Functions of one number that must give the same bits on every tier.
//!
//! They are written without branches and without fused multiplication, so that the compiler may run them on vectors of
//! any width without changing a result.

pub use demask_tensor::{round_bf16, widen_bf16};

/// The exponential function, to within about one unit in the last place; 0 and infinity where it leaves the range of
/// f32, NaN for NaN.
///
/// `exp(x) = 2^n * exp(r)` with `n` the integer nearest to `x / ln 2`, so that `|r| <= ln 2 / 2`, where a polynomial of
/// degree 7 (Taylor's, whose rest is below 6e-9 there) is enough.
#[inline(always)]
pub fn exp_f32(x: f32) -> f32 {
    /// Added and taken away again, it rounds to an integer, which meanwhile stands in the low bits.
    const ROUNDING: f32 = 12_582_912.0;
    /// ln 2 in two parts, the first with so few bits that its product with any `n` is exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    /// Beyond these the result is 0 or infinite; comparisons leave NaN as it is.
    const LOWEST: f32 = -104.0;
    const HIGHEST: f32 = 89.0;

    // What vanishes, as masked keys do, is not computed: processors take long over results below the normal range.
    let vanishes = x < LOWEST;
    let x = if vanishes { 0.0 } else { x };
    let x = if x > HIGHEST { HIGHEST } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUNDING;
    let exponent = shifted.to_bits().wrapping_sub(ROUNDING.to_bits()) as i32;
    let n = shifted - ROUNDING;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut tail = 1.0 / 5040.0;
    tail = tail * r + 1.0 / 720.0;
    tail = tail * r + 1.0 / 120.0;
    tail = tail * r + 1.0 / 24.0;
    tail = tail * r + 1.0 / 6.0;
    tail = tail * r + 0.5;
    let value = (tail * r) * r + r + 1.0;
    // The power of two is applied in two halves: it may be beyond the range where the result is not.
    let half = exponent >> 1;
    let value = value * power_of_two(half) * power_of_two(exponent.wrapping_sub(half));
    if vanishes { 0.0 } else { value }
}

/// `2^n` for `n` from -126 to 127; nonsense elsewhere, which only a NaN leads to.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `x / (1 + exp(-x))`.
#[inline(always)]
pub fn silu_f32(x: f32) -> f32 {
    x / (1.0 + exp_f32(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_accurate_over_the_whole_range() {
        let mut worst = 0.0f64;
        for step in 0..2_000_000 {
            let x = -87.3 + 176.0 * step as f32 / 2_000_000.0;
            let exact = f64::from(x).exp();
            if exact < f64::from(f32::MAX) {
                worst = worst.max((f64::from(exp_f32(x)) / exact - 1.0).abs());
            }
        }
        assert!(worst < 1.2e-7, "{worst}");
    }

    #[test]
    fn exp_ends_well() {
        assert_eq!(exp_f32(0.0), 1.0);
        assert_eq!(exp_f32(-0.0), 1.0);
        assert_eq!(exp_f32(88.8), f32::INFINITY);
        assert_eq!(exp_f32(1e30), f32::INFINITY);
        assert_eq!(exp_f32(f32::INFINITY), f32::INFINITY);
        assert!(exp_f32(88.7).is_finite());
        assert_eq!(exp_f32(-104.0), 0.0);
        assert_eq!(exp_f32(-1e30), 0.0);
        assert_eq!(exp_f32(f32::NEG_INFINITY), 0.0);
        // Nothing changes where it stops to be computed.
        assert!((0..2000).all(|step| exp_f32(-103.98 - step as f32 * 1e-4).to_bits() == 0));
        assert!(exp_f32(f32::NAN).is_nan() && exp_f32(-f32::NAN).is_nan());
        // Below the normal range the spacing is 2^-149, about 1.4e-45.
        for x in [-88.0f32, -95.0, -100.0, -103.0] {
            assert!((f64::from(exp_f32(x)) - f64::from(x).exp()).abs() < 1.5e-45);
        }
    }

    #[test]
    fn exp_is_monotonic_near_the_seams_of_its_reduction() {
        for n in -20..20 {
            let seam = (n as f32 + 0.5) * std::f32::consts::LN_2;
            let (below, above) = (exp_f32(seam - 1e-5 * seam.abs()), exp_f32(seam + 1e-5 * seam.abs()));
            assert!(below <= above);
        }
    }

    #[test]
    fn silu_matches_its_definition() {
        for step in -4000..4000 {
            let x = step as f32 * 0.01;
            let exact = f64::from(x) / (1.0 + (-f64::from(x)).exp());
            assert!((f64::from(silu_f32(x)) - exact).abs() <= 3e-7 * exact.abs() + 1e-30, "{x}");
        }
        assert_eq!(silu_f32(-200.0), 0.0);
        assert_eq!(silu_f32(200.0), 200.0);
        assert!(silu_f32(f32::NAN).is_nan());
    }
}
