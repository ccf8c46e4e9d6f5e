//! Comparisons of every row with every other one, also of two rows neither of which is the baseline.

use demask_figures::short;
use serde::{Deserialize, Serialize};

use super::{
    Difference, Evaluation, Faster, ReportError,
    columns::{optional, points, times},
    compare::{difference, faster},
    sheets::Sheet,
    summary::TaskItems,
};

/// Two rows on the items of a task that both answered.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Pair {
    /// The task.
    pub task: String,
    /// The one row.
    pub run: String,
    /// The other row.
    pub against: String,
    /// The one's accuracy less the other's.
    pub difference: Difference,
    /// The difference's p after Holm's correction for all pairs of the task; none where answers can be right in part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_holm: Option<f64>,
    /// The other's NFE by the one's, with its interval over blocks of items; none where there are too few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nfe: Option<Faster>,
    /// The other's operations by the one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<Faster>,
    /// The other's seconds by the one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Faster>,
}

/// Compares every row of each task with every later one.
///
/// # Errors
/// If a receipt cannot be read.
pub fn pairs(evaluation: &Evaluation) -> Result<Vec<Pair>, ReportError> {
    let mut all = Vec::new();
    for task in &evaluation.tasks {
        let asked = evaluation.runs.iter().map(|run| TaskItems::of(&task.name, run)).collect::<Result<Vec<_>, _>>()?;
        let mut of_task = Vec::new();
        for (place, run) in evaluation.runs.iter().enumerate() {
            for (other, against) in evaluation.runs.iter().enumerate().skip(place + 1) {
                let (own, base) = (&asked[place], &asked[other]);
                let Some(difference) = difference(&own.worths(), &base.worths()) else { continue };
                of_task.push(Pair {
                    task: task.name.clone(),
                    run: run.info.label.clone(),
                    against: against.info.label.clone(),
                    difference,
                    p_holm: None,
                    nfe: faster(&own.nfe(), &base.nfe()),
                    operations: faster(&own.operations(), &base.operations()),
                    seconds: faster(&own.seconds(), &base.seconds()),
                });
            }
        }
        let ps: Vec<Option<f64>> = of_task.iter().map(|pair| pair.difference.p).collect();
        of_task.iter_mut().zip(holm(&ps)).for_each(|(pair, p)| pair.p_holm = p);
        all.append(&mut of_task);
    }
    Ok(all)
}

/// Holm's correction: the smallest p counts as often as there are tests, the next once less, and none falls below one before it.
fn holm(ps: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<usize> = (0..ps.len()).filter(|&place| ps[place].is_some()).collect();
    order.sort_by(|&a, &b| ps[a].unwrap_or(1.0).total_cmp(&ps[b].unwrap_or(1.0)));
    let (mut corrected, mut least) = (vec![None; ps.len()], 0.0_f64);
    for (rank, &place) in order.iter().enumerate() {
        let times = (order.len() - rank) as f64;
        least = least.max(times * ps[place].unwrap_or(1.0)).min(1.0);
        corrected[place] = Some(least);
    }
    corrected
}

/// The pairs of a task as a table.
pub fn sheet(pairs: &[&Pair]) -> Option<Sheet> {
    const HEADER: [&str; 9] =
        ["run", "against", "items", "difference", "p", "p (Holm)", "NFE", "operations", "seconds"];
    let cells = pairs.iter().map(|pair| {
        let Difference { mean, low, high, items, p, .. } = pair.difference;
        let difference = format!("{} ({} to {})", points(mean), points(low), points(high));
        let [p, corrected] = [p, pair.p_holm].map(optional);
        let factors = [(pair.nfe, FEWER), (pair.operations, FEWER), (pair.seconds, FASTER)];
        let factors = factors.map(|(found, words)| factor(found, words));
        let words = [pair.run.clone(), pair.against.clone(), short(items as f64), difference, p, corrected];
        words.into_iter().chain(factors).collect()
    });
    let note = format!(
        "Points of accuracy above the other's on the items that both answered, with McNemar's p and the one after Holm's \
         correction for the {} of this task. NFE, operations and seconds are factors of the run beside the other, with 95 % \
         intervals over blocks of items: one around 1 tells no difference.",
        if pairs.len() == 1 { "1 pair".to_owned() } else { format!("{} pairs", pairs.len()) }
    );
    let header = HEADER.map(str::to_owned).to_vec();
    let cells = std::iter::once(header).chain(cells).collect();
    (!pairs.is_empty()).then_some(Sheet { title: "Pairs", note, cells })
}

/// Words after a factor: of a run that takes less than the other, and of one that takes more.
type Words = [&'static str; 2];
const FEWER: Words = ["fewer", "as many"];
const FASTER: Words = ["as fast", "as slow"];

/// Writes how many times less a run takes than the other, or how many times as much.
fn factor(found: Option<Faster>, [less, more]: Words) -> String {
    let Some(Faster { ratio, low, high }) = found else { return "–".to_owned() };
    let (ratio, low, high, words) =
        if ratio > 1.0 { (ratio, low, high, less) } else { (1.0 / ratio, 1.0 / high, 1.0 / low, more) };
    format!("{} {words} ({} to {})", times(Some(ratio)), bare(low), bare(high))
}

fn bare(factor: f64) -> String {
    times(Some(factor)).trim_end_matches('x').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_said_of_what_is_more() {
        let of = |ratio, low, high, words| factor(Some(Faster { ratio, low, high }), words);
        assert_eq!(of(2.5, 2.0, 3.0, FEWER), "2.50x fewer (2.00 to 3.00)");
        assert_eq!(of(0.096, 0.08, 0.125, FEWER), "10.42x as many (8.00 to 12.50)");
        assert_eq!(of(0.5, 0.4, 1.25, FASTER), "2.00x as slow (0.80 to 2.50)");
        assert_eq!(factor(None, FASTER), "–");
    }

    #[test]
    fn holms_correction_is_that_of_the_textbook() {
        // Holm, 1979: 0.01, 0.04, 0.03, 0.005 become 0.03, 0.06, 0.06, 0.02.
        let found = holm(&[Some(0.01), Some(0.04), None, Some(0.03), Some(0.005)]);
        let expected = [Some(0.03), Some(0.06), None, Some(0.06), Some(0.02)];
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.is_some(), expected.is_some());
            assert!((found.unwrap_or(0.0) - expected.unwrap_or(0.0)).abs() < 1e-12, "{found:?} {expected:?}");
        }
        assert_eq!(holm(&[Some(0.7), Some(0.8)]), [Some(1.0), Some(1.0)]);
    }
}
