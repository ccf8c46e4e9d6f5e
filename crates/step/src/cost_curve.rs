//! A network's cost curve: seconds of a forward by its rows, the keys that they see, and the rows of the head.
//!
//! What is measured is a few points. Between them the curve is linear, and it never falls: more rows or more keys cost no
//! less. Whoever chooses how much a forward does asks the curve, never a clock, so that a choice can be made again.

mod shipped;

use std::fmt;

use self::shipped::{SHIPPED_HEAD, SHIPPED_LAYERS};
use crate::random::mix;

/// Seconds of a forward's layers: a measured point of a [`CostCurve`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayersPoint {
    /// Rows of all lanes.
    pub rows: usize,
    /// Keys that each row sees.
    pub keys: usize,
    /// Seconds of everything but the head.
    pub seconds: f64,
}

/// Seconds of a forward's head: a measured point of a [`CostCurve`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadPoint {
    /// Rows that the head computes.
    pub rows: usize,
    /// Seconds of the head.
    pub seconds: f64,
}

/// Seconds of one forward as a function of what runs in it.
#[derive(Debug, Clone, PartialEq)]
pub struct CostCurve {
    machine: String,
    model: String,
    layers: Vec<LayersPoint>,
    head: Vec<HeadPoint>,
    /// Lines of seconds by rows, one for each number of keys, ascending.
    lines: Vec<(f64, Line)>,
    head_line: Line,
}

/// Points that make no curve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CurveError {
    /// Error: this part has no point.
    Empty(&'static str),
    /// A point has no rows or no keys, or seconds that are no number above 0.
    Point {
        /// Part of the curve that the point belongs to.
        part: &'static str,
        /// Index of the point, from 0.
        index: usize,
    },
}

impl fmt::Display for CurveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty(part) => write!(f, "`{part}` has no point, expected at least one"),
            Self::Point { part, index } => {
                write!(f, "point {index} of `{part}` needs rows and keys from 1 on and seconds above 0")
            }
        }
    }
}

impl std::error::Error for CurveError {}

impl CostCurve {
    /// Makes a curve of measured points, in any order, of a model on a machine.
    ///
    /// # Errors
    /// If a part has no points, or a point is none.
    pub fn new(
        machine: impl Into<String>,
        model: impl Into<String>,
        mut layers: Vec<LayersPoint>,
        mut head: Vec<HeadPoint>,
    ) -> Result<Self, CurveError> {
        let seconds = layers.iter_mut().map(|point| &mut point.seconds);
        for seconds in seconds.chain(head.iter_mut().map(|point| &mut point.seconds)) {
            *seconds = whole(*seconds);
        }
        let right = |rows: usize, seconds: f64| rows > 0 && seconds > 0.0 && seconds.is_finite();
        let wrong = layers.iter().position(|point| point.keys == 0 || !right(point.rows, point.seconds));
        let wrong_head = head.iter().position(|point| !right(point.rows, point.seconds));
        for (part, empty, wrong) in [("layers", layers.is_empty(), wrong), ("head", head.is_empty(), wrong_head)] {
            if empty {
                return Err(CurveError::Empty(part));
            }
            if let Some(index) = wrong {
                return Err(CurveError::Point { part, index });
            }
        }
        let mut keys: Vec<usize> = layers.iter().map(|point| point.keys).collect();
        keys.sort_unstable();
        keys.dedup();
        let line = |&keys: &usize| {
            let of_keys = layers.iter().filter(|point| point.keys == keys);
            (keys as f64, Line::new(of_keys.map(|point| (point.rows, point.seconds)).collect()))
        };
        let lines = keys.iter().map(line).collect();
        let head_line = Line::new(head.iter().map(|point| (point.rows, point.seconds)).collect());
        Ok(Self { machine: machine.into(), model: model.into(), layers, head, lines, head_line })
    }

    /// Returns a curve on which every forward costs the same, whatever runs in it.
    pub fn flat() -> Self {
        Self::of_line("flat", 1e-3, 0.0)
    }

    /// Returns a curve on which a forward costs what its rows cost, and nothing else.
    pub fn steep() -> Self {
        Self::of_line("steep", 0.0, 1e-4)
    }

    /// A curve that is one line, for tests and for reasoning about extremes.
    fn of_line(name: &str, fixed: f64, per_row: f64) -> Self {
        let layers = [1, 1024].map(|rows| LayersPoint { rows, keys: 1, seconds: fixed + per_row * rows as f64 });
        let head = vec![HeadPoint { rows: 1, seconds: 1e-12 }];
        match Self::new(name, name, layers.to_vec(), head) {
            Ok(curve) => curve,
            Err(error) => unreachable!("two points make a line: {error}"),
        }
    }

    /// Returns the shipped curve: that of a demo model on a small server processor. Sessions that nobody gives another
    /// one use it.
    pub fn shipped() -> Self {
        let layers = SHIPPED_LAYERS.iter().map(|&(rows, keys, seconds)| LayersPoint { rows, keys, seconds });
        let head = SHIPPED_HEAD.iter().map(|&(rows, seconds)| HeadPoint { rows, seconds });
        match Self::new("shipped", "demo", layers.collect(), head.collect()) {
            Ok(curve) => curve,
            Err(error) => unreachable!("the shipped points are right: {error}"),
        }
    }

    /// Returns what the points were measured on.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// Returns which model was measured: its fingerprint.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the measured points of the layers.
    pub fn layers(&self) -> &[LayersPoint] {
        &self.layers
    }

    /// Returns the measured points of the head.
    pub fn head(&self) -> &[HeadPoint] {
        &self.head
    }

    /// Returns a number that differs where the points do.
    pub fn hash(&self) -> u64 {
        let layers = self.layers.iter().flat_map(|at| [at.rows as u64, at.keys as u64, at.seconds.to_bits()]);
        let head = self.head.iter().flat_map(|at| [at.rows as u64, at.seconds.to_bits()]);
        layers.chain([u64::MAX]).chain(head).fold(0, |state, word| mix(state ^ word))
    }

    /// Returns the seconds of a forward of so many rows that each see so many keys, some of which the head computes.
    pub fn seconds(&self, rows: usize, keys: usize, head_rows: usize) -> f64 {
        let head = if head_rows == 0 { 0.0 } else { self.head_line.at(head_rows as f64) };
        self.layers_seconds(rows as f64, keys as f64) + head
    }

    /// Interpolates between two lines, linearly in keys; no line lies below those of fewer keys.
    fn layers_seconds(&self, rows: f64, keys: f64) -> f64 {
        let (mut before, mut highest) = (None, 0.0_f64);
        for (at, line) in &self.lines {
            let last = highest;
            highest = highest.max(line.at(rows));
            if keys <= *at {
                let Some((from, _)) = before else { return highest };
                return last + (highest - last) * (keys - from) / (at - from);
            }
            before = Some((*at, last));
        }
        // Beyond the last line the slope goes on.
        match (before, self.lines.len()) {
            (Some((at, _)), 2..) => {
                let (from, last) = (self.lines[self.lines.len() - 2].0, before.map_or(0.0, |(_, last)| last));
                highest + (highest - last) * (keys - at) / (at - from)
            }
            _ => highest,
        }
    }
}

/// Seconds in whole picoseconds: a curve that is written in decimals and read again is the same to the bit.
fn whole(seconds: f64) -> f64 {
    (seconds * 1e12).round() / 1e12
}

/// Seconds by rows, linear between points that never fall.
#[derive(Debug, Clone, PartialEq)]
struct Line(Vec<(f64, f64)>);

impl Line {
    /// Neighbours of which the later is cheaper become one mean: what is nearest to the points and never falls.
    fn new(mut points: Vec<(usize, f64)>) -> Self {
        points.sort_by_key(|&(rows, _)| rows);
        // Mean seconds, and how many points share them.
        let mut pools: Vec<(f64, usize)> = Vec::new();
        for &(_, seconds) in &points {
            let mut pool = (seconds, 1);
            while let Some(&(mean, count)) = pools.last().filter(|(mean, _)| *mean > pool.0) {
                let all = count + pool.1;
                pool = ((mean * count as f64 + pool.0 * pool.1 as f64) / all as f64, all);
                pools.pop();
            }
            pools.push(pool);
        }
        let seconds = pools.iter().flat_map(|&(mean, count)| std::iter::repeat_n(mean, count));
        let mut line: Vec<(f64, f64)> = Vec::new();
        for (&(rows, _), seconds) in points.iter().zip(seconds) {
            // The same rows twice: their last pool is the highest.
            if line.last().is_some_and(|&(at, _)| at == rows as f64) {
                line.pop();
            }
            line.push((rows as f64, seconds));
        }
        Self(line)
    }

    fn at(&self, rows: f64) -> f64 {
        let points = &self.0;
        let next = points.partition_point(|&(at, _)| at < rows);
        match (next.checked_sub(1).map(|before| points[before]), points.get(next)) {
            (_, Some(&(at, seconds))) if at == rows => seconds,
            (None, Some(&(_, seconds))) => seconds,
            (Some((from, low)), Some(&(to, high))) => low + (high - low) * (rows - from) / (to - from),
            (Some((from, low)), None) => {
                let slope = match points.len() {
                    0 | 1 => 0.0,
                    count => (low - points[0].1) / (points[count - 1].0 - points[0].0),
                };
                low + slope * (rows - from)
            }
            (None, None) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(points: &[(usize, usize, f64)]) -> Vec<LayersPoint> {
        points.iter().map(|&(rows, keys, seconds)| LayersPoint { rows, keys, seconds }).collect()
    }

    fn curve(points: &[(usize, usize, f64)]) -> CostCurve {
        CostCurve::new("here", "this", layers(points), vec![HeadPoint { rows: 4, seconds: 0.5 }]).unwrap()
    }

    #[test]
    fn points_are_met_and_what_lies_between_is_linear() {
        let curve = curve(&[(8, 10, 2.0), (4, 10, 1.0), (4, 20, 3.0), (8, 20, 4.0)]);
        for (rows, keys, seconds) in
            [(4, 10, 1.0), (8, 20, 4.0), (6, 10, 1.5), (4, 15, 2.0), (1, 1, 1.0), (12, 10, 3.0), (4, 30, 5.0)]
        {
            assert!((curve.seconds(rows, keys, 0) - seconds).abs() < 1e-12, "{rows} rows, {keys} keys");
        }
        assert!((curve.seconds(4, 10, 1) - 1.5).abs() < 1e-12);
    }

    #[test]
    fn curves_never_fall() {
        let uneven =
            curve(&[(1, 8, 2.0), (2, 8, 1.0), (4, 8, 3.0), (8, 8, 1.0), (1, 64, 1.0), (8, 64, 9.0), (8, 99, 1.0)]);
        // Miri takes a thousand times as long for each.
        let step = if cfg!(miri) { 30 } else { 1 };
        for curve in [uneven, CostCurve::flat(), CostCurve::steep(), CostCurve::shipped()] {
            let (mut rows_before, mut keys_before) = (vec![0.0; 200], 0.0);
            for rows in (1..100).step_by(step) {
                for keys in (1..200).step_by(step) {
                    let seconds = curve.seconds(rows, keys, rows);
                    assert!(seconds >= rows_before[keys] - 1e-12, "{rows} rows, {keys} keys");
                    assert!(keys == 1 || seconds >= keys_before - 1e-12, "{rows} rows, {keys} keys");
                    (rows_before[keys], keys_before) = (seconds, seconds);
                }
            }
        }
    }

    #[test]
    fn hashes_are_of_the_points() {
        let one = curve(&[(4, 10, 1.0)]);
        assert_eq!(one.hash(), curve(&[(4, 10, 1.0)]).hash());
        assert_ne!(one.hash(), curve(&[(4, 10, 1.5)]).hash());
        assert_ne!(one.hash(), curve(&[(4, 11, 1.0)]).hash());
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        let head = || vec![HeadPoint { rows: 1, seconds: 1.0 }];
        let refused = |points: &[(usize, usize, f64)], head| {
            CostCurve::new("", "", layers(points), head).unwrap_err().to_string()
        };
        assert_eq!(refused(&[], head()), "`layers` has no point, expected at least one");
        assert_eq!(refused(&[(1, 1, 1.0)], Vec::new()), "`head` has no point, expected at least one");
        for wrong in [(0, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0), (1, 1, f64::NAN), (1, 1, f64::INFINITY)] {
            let expected = "point 1 of `layers` needs rows and keys from 1 on and seconds above 0";
            assert_eq!(refused(&[(1, 1, 1.0), wrong], head()), expected);
        }
    }
}
