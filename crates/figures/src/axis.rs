//! Axes: names, ranges and where their numbers stand.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// One axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axis {
    /// Name of the measured quantity, with its unit.
    pub label: String,
    /// Doubling is a step of equal width, if all values allow it.
    pub log: bool,
    /// Values that the axis shows in any case.
    pub shows: Vec<f64>,
    /// Upper bound: no number beside the axis and no end of an error bar lies above it.
    pub most: Option<f64>,
}

impl Axis {
    /// An even axis.
    pub fn new(label: &str) -> Self {
        Self { label: label.to_owned(), ..Self::default() }
    }

    /// An axis of doublings.
    pub fn log(label: &str) -> Self {
        Self { log: true, ..Self::new(label) }
    }

    /// An even axis that shows these values in any case.
    pub fn showing(label: &str, shows: &[f64]) -> Self {
        Self { shows: shows.to_vec(), ..Self::new(label) }
    }

    /// The scale for values: a little wider than they are.
    pub(super) fn scale(&self, values: impl Iterator<Item = f64>) -> Scale {
        // What lies above all that can be, the end of an error bar, makes no room for itself.
        let values = values.map(|value| self.most.map_or(value, |most| value.min(most)));
        let values: Vec<f64> = values.chain(self.shows.iter().copied()).filter(|value| value.is_finite()).collect();
        let (low, high) = values
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| (low.min(value), high.max(value)));
        let log = self.log && low > 0.0;
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let even = Scale { log, low, high, ticks: Vec::new() };
        let (from, to) = (even.place(low), even.place(high));
        let margin = match (to - from) * 0.07 {
            0.0 if log => 0.5,
            0.0 => (to.abs() * 0.1).max(0.5),
            margin => margin,
        };
        // What is shown in any case is no value that needs room around it.
        let kept = |bound: f64, moved: f64| if self.shows.contains(&bound) { bound } else { even.value(moved) };
        let bottom = kept(low, from - margin);
        // What is never negative has no room below 0.
        let (low, high) = (if low >= 0.0 { bottom.max(0.0) } else { bottom }, kept(high, to + margin));
        let mut ticks = if log { log_ticks(low, high) } else { ticks(low, high) };
        ticks.retain(|&tick| self.most.is_none_or(|most| tick <= most));
        Scale { log, low, high, ticks }
    }
}

/// An axis with its range.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    log: bool,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<f64>,
}

impl Scale {
    /// Position of a value on an even ruler.
    fn place(&self, value: f64) -> f64 {
        if self.log { value.log2() } else { value }
    }

    /// The value at a place.
    fn value(&self, place: f64) -> f64 {
        if self.log { place.exp2() } else { place }
    }
}

/// Conversion for the plotting library.
impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let [low, high, at] = [self.low, self.high, *value].map(|value| self.place(value));
        // In floats: the library asks for places far outside of the picture, too, whose difference no i32 holds.
        let [from, to] = [from, to].map(f64::from);
        (from + (to - from) * (at - low) / (high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(value: &f64) -> String {
        super::short(*value)
    }
}

/// Multiples of 1, 2 or 5 times a power of ten: about five of them.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let raw = (high - low) / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|&step| step >= raw);
    let step = step.unwrap_or(power * 10.0);
    let slack = step * 1e-9;
    let (first, last) = (((low - slack) / step).ceil() as i64, ((high + slack) / step).floor() as i64);
    (first..=last).map(|count| count as f64 * step).collect()
}

/// Powers of two, every second or third one if there are many. Below a half people write 0.1 and 0.05, not 0.125 and 0.0625:
/// there 1, 2 and 5 times powers of ten stand.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log2().ceil() as i64, high.log2().floor() as i64);
    if last - first < 1 {
        // Less than a doubling: even numbers say more.
        return ticks(low, high).into_iter().filter(|&tick| tick > 0.0).collect();
    }
    if low < 0.5 {
        let powers = (low.log10().floor() as i32)..=(high.log10().floor() as i32);
        let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit: f64| format!("{digit}e{power}")));
        // Through their digits: 0.3 and not 0.30000000000000004.
        let all: Vec<f64> = all.filter_map(|text| text.parse().ok()).collect();
        let within: Vec<f64> = all.into_iter().filter(|tick| (low..=high).contains(tick)).collect();
        let every = within.len() / 8 + 1;
        return within.into_iter().step_by(every).collect();
    }
    let every = ((last - first) / 7 + 1) as usize;
    (first..=last).step_by(every).map(|power| (power as f64).exp2()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 5.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(ticks(-30.0, 64.0), [-20.0, 0.0, 20.0, 40.0, 60.0]);
        assert_eq!(log_ticks(1.0, 32.0), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
        assert!(log_ticks(1.1, 1.9).len() > 2);
        assert_eq!(log_ticks(0.012, 0.4), [0.02, 0.05, 0.1, 0.2]);
        assert_eq!(log_ticks(0.03, 2.5), [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]);
        assert!(log_ticks(1e-6, 1e6).len() <= 8);
    }

    #[test]
    fn scales_hold_all_values_and_no_more_than_asked() {
        let scale = Axis::showing("accuracy", &[0.0, 100.0]).scale([40.0, f64::NAN].into_iter());
        assert_eq!((scale.low, scale.high), (0.0, 100.0));
        let scale = Axis::log("seconds").scale([0.5, 8.0].into_iter());
        assert!(scale.low < 0.5 && scale.high > 8.0);
        let [half, one, two] = [0.5, 1.0, 2.0].map(|value| scale.map(&value, (0, 1000)));
        assert!(half > 0 && one > half + 100 && (two - one - (one - half)).abs() <= 1, "a doubling is a step");
        let scale = Axis::log("not positive").scale([0.0, 8.0].into_iter());
        assert!(scale.low == 0.0 && scale.high > 8.0, "an even axis");
        let scale = Axis { most: Some(100.0), ..Axis::new("%") }.scale([100.0].into_iter());
        assert!(scale.high > 100.0 && scale.ticks.iter().all(|&tick| tick <= 100.0));
        let with_error = Axis { most: Some(100.0), ..Axis::new("%") }.scale([60.0, 130.0].into_iter());
        assert_eq!(with_error, Axis { most: Some(100.0), ..Axis::new("%") }.scale([60.0, 100.0].into_iter()));
        let scale = Axis::new("one value").scale([3.0].into_iter());
        assert!(scale.low < 3.0 && scale.high > 3.0);
        let scale = Axis::new("none").scale(std::iter::empty());
        assert!(scale.low < scale.high);
    }
}
