//! Means and percentiles of a measurement.

/// Order statistics of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Mean of the numbers.
    pub mean: f64,
    /// Half of them lie below.
    pub median: f64,
    /// Standard deviation of the numbers.
    pub deviation: f64,
    /// Nine in ten lie below.
    pub p90: f64,
    /// 99 in a hundred lie below.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Summarises numbers; `None` if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let max = *values.last()?;
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        Some(Self {
            mean,
            median: percentile(&values, 0.5),
            deviation: variance.sqrt(),
            p90: percentile(&values, 0.9),
            p99: percentile(&values, 0.99),
            max,
        })
    }
}

/// The value below which a share of ascending values lies, between two of them by their distance.
fn percentile(ascending: &[f64], share: f64) -> f64 {
    let at = share * (ascending.len() - 1) as f64;
    let (low, high) = (ascending[at as usize], ascending[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_values() {
        let summary = Summary::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((summary.mean, summary.median, summary.max), (2.5, 2.5, 4.0));
        assert!((summary.p90 - 3.7).abs() < 1e-9 && (summary.p99 - 3.97).abs() < 1e-9);
        assert!((summary.deviation - 1.25f64.sqrt()).abs() < 1e-9);
        assert_eq!(Summary::of(vec![7.0]).unwrap().p99, 7.0);
        assert_eq!(Summary::of(vec![]), None);
    }
}
