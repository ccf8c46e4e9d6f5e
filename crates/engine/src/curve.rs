//! Cost model of a network: growth of its seconds with the rows of a forward, learned from the forwards that run.
//!
//! `seconds = fixed + per_row * rows + per_key * keys`, where keys are counted row by row. Least squares over the forwards
//! so far, of which older ones weigh less and less. The result changes which requests share a forward, hence speed;
//! it never changes a prediction.

use std::time::Duration;

/// Decay of a forward's weight in the sums with each later one: those of the last few hundred count.
const DECAY: f64 = 0.995;
/// Forwards before the curve is believed.
const FIRST: u64 = 24;
/// Scales that keep the sums of rows and keys near those of 1.
const ROWS: f64 = 1.0 / 256.0;
const KEYS: f64 = 1.0 / 65_536.0;

/// A line through the seconds of forwards.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    /// Rows that are taken for nearly free until the curve is known.
    guess: usize,
    /// Sums of the products of `[1, rows, keys]` with each other, and with the seconds.
    squares: [[f64; 3]; 3],
    products: [f64; 3],
    forwards: u64,
}

/// Cost of a forward: seconds, and seconds for each row and each key of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForwardCost {
    /// Seconds of a forward beside those of its rows and keys.
    pub fixed: f64,
    /// Seconds of a row.
    pub per_row: f64,
    /// Seconds of a key that a row reads.
    pub per_key: f64,
}

impl Curve {
    pub(crate) fn new(guess: usize) -> Self {
        Self { guess, squares: [[0.0; 3]; 3], products: [0.0; 3], forwards: 0 }
    }

    /// Learns from a forward.
    pub(crate) fn learn(&mut self, rows: usize, keys: u64, elapsed: Duration) {
        let features = [1.0, rows as f64 * ROWS, keys as f64 * KEYS];
        let seconds = elapsed.as_secs_f64();
        for (row, left) in features.iter().enumerate() {
            for (column, right) in features.iter().enumerate() {
                self.squares[row][column] = self.squares[row][column] * DECAY + left * right;
            }
            self.products[row] = self.products[row] * DECAY + left * seconds;
        }
        self.forwards += 1;
    }

    /// Returns the curve, once enough different forwards have run for it to be one that grows.
    pub(crate) fn cost(&self) -> Option<ForwardCost> {
        if self.forwards < FIRST {
            return None;
        }
        // Keys hardly matter or hardly differ on short canvases: then two terms do.
        let three = solve(self.squares, self.products).filter(|[_, row, key]| *row > 0.0 && *key >= 0.0);
        let [fixed, row, key] = three.or_else(|| {
            let mut squares = self.squares;
            squares[2] = [0.0, 0.0, 1.0];
            (squares[0][2], squares[1][2]) = (0.0, 0.0);
            solve(squares, [self.products[0], self.products[1], 0.0]).filter(|[_, row, _]| *row > 0.0)
        })?;
        Some(ForwardCost { fixed: fixed.max(0.0), per_row: row * ROWS, per_key: key * KEYS })
    }

    /// Returns how many more rows are nearly free: as many as take the time that a forward takes without any.
    pub(crate) fn free(&self) -> usize {
        let Some(ForwardCost { fixed, per_row, per_key }) = self.cost() else { return self.guess };
        let (rows, keys) = (self.squares[0][1] / ROWS, self.squares[0][2] / KEYS);
        let row = per_row + per_key * if rows > 0.0 { keys / rows } else { 0.0 };
        (fixed / row).min(f64::from(u32::MAX)) as usize
    }
}

/// Solves a symmetric system by elimination; nothing if it is close to having no single solution.
fn solve(mut matrix: [[f64; 3]; 3], mut right: [f64; 3]) -> Option<[f64; 3]> {
    for pivot in 0..3 {
        let scale = matrix[pivot].iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        let best = (pivot..3).max_by(|&a, &b| matrix[a][pivot].abs().total_cmp(&matrix[b][pivot].abs()))?;
        matrix.swap(pivot, best);
        right.swap(pivot, best);
        if matrix[pivot][pivot].abs() <= 1e-9 * scale.max(1e-12) {
            return None;
        }
        for row in 0..3 {
            if row != pivot {
                let factor = matrix[row][pivot] / matrix[pivot][pivot];
                for column in 0..3 {
                    matrix[row][column] -= factor * matrix[pivot][column];
                }
                right[row] -= factor * right[pivot];
            }
        }
    }
    Some([right[0] / matrix[0][0], right[1] / matrix[1][1], right[2] / matrix[2][2]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(of: impl Fn(usize, u64) -> f64, forwards: usize) -> Curve {
        let mut curve = Curve::new(16);
        for index in 0..forwards {
            let rows = 32 + 37 * (index % 7);
            let keys = (rows * (64 + 50 * (index % 5))) as u64;
            curve.learn(rows, keys, Duration::from_secs_f64(of(rows, keys)));
        }
        curve
    }

    #[test]
    fn the_curve_is_found_again() {
        let curve = learned(|rows, keys| 3e-4 + 2e-5 * rows as f64 + 1e-8 * keys as f64, 200);
        let cost = curve.cost().unwrap();
        let near = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 1e-3, "{found} is not {wanted}");
        near(cost.fixed, 3e-4);
        near(cost.per_row, 2e-5);
        near(cost.per_key, 1e-8);
        // Rows see 64 to 264 keys: each takes about 21.6 microseconds.
        assert!((13..=14).contains(&curve.free()), "{}", curve.free());
    }

    #[test]
    fn forwards_that_are_all_alike_teach_nothing() {
        let mut curve = Curve::new(16);
        for _ in 0..100 {
            curve.learn(32, 2048, Duration::from_millis(1));
        }
        assert_eq!((curve.cost(), curve.free()), (None, 16));
    }

    #[test]
    fn a_few_forwards_are_not_believed() {
        assert_eq!(learned(|rows, _| rows as f64, 5).free(), 16);
    }

    #[test]
    fn what_changed_is_learned_anew() {
        let mut curve = learned(|rows, _| 1e-3 + 1e-5 * rows as f64, 300);
        assert!((95..=105).contains(&curve.free()), "{}", curve.free());
        for index in 0..3000 {
            let rows = 32 + 37 * (index % 7);
            curve.learn(rows, (rows * 64) as u64, Duration::from_secs_f64(1e-4 + 1e-5 * rows as f64));
        }
        assert!((9..=11).contains(&curve.free()), "{}", curve.free());
    }
}
