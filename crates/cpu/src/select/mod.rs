//! Choosing the rows that have drifted most.

use demask_step::{Drift, random::lot};
use demask_tensor::Launch;

/// A probed row and how gladly it is left out: the lowest are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) row: u32,
    /// Cosine, or a random number.
    pub(crate) score: f64,
}

/// The rows of `launch.probed` that are compared by `drift`, and their places among the candidates.
pub(crate) fn rows_that_compare(launch: &Launch, drift: Drift, rows: &mut Vec<u32>, places: &mut Vec<u32>) {
    rows.clear();
    places.clear();
    let mut first = 0;
    for probe in &launch.probes {
        let range = first..first + probe.rows as usize;
        first = range.end;
        if probe.by == drift {
            rows.extend_from_slice(&launch.probed[range.clone()]);
            places.extend(range.start as u32..range.end as u32);
        }
    }
}

/// Gives the candidates of random probes their numbers.
pub(crate) fn roll(launch: &Launch, layer: usize, candidates: &mut [Candidate]) {
    let mut first = 0;
    for probe in &launch.probes {
        let range = first..first + probe.rows as usize;
        first = range.end;
        if let Drift::Random { seed } = probe.by {
            for candidate in &mut candidates[range] {
                let position = launch.positions[candidate.row as usize];
                // 53 bits are exact, and more than enough to tell rows apart.
                candidate.score = (lot(seed, layer as u64, u64::from(position)) >> 11) as f64;
            }
        }
    }
}

/// Fills `computed` with the fixed rows and the chosen ones, ascending. Reorders the candidates.
pub(crate) fn choose(launch: &Launch, candidates: &mut [Candidate], computed: &mut Vec<u32>) {
    computed.clear();
    computed.extend_from_slice(&launch.fixed);
    let mut rest = candidates;
    for probe in &launch.probes {
        let (own, others) = rest.split_at_mut(probe.rows as usize);
        rest = others;
        own.sort_unstable_by(|a, b| a.score.total_cmp(&b.score).then(a.row.cmp(&b.row)));
        computed.extend(own[..probe.keep as usize].iter().map(|candidate| candidate.row));
    }
    computed.sort_unstable();
}

#[cfg(test)]
mod tests {
    use demask_tensor::ProbeLaunch;

    use super::*;

    fn launch(by: Drift, rows: u32, keep: u32) -> Launch {
        Launch {
            positions: (0..8).collect(),
            fixed: vec![0],
            probed: (1..=rows).collect(),
            probes: vec![ProbeLaunch { rows, keep, by }],
            ..Launch::default()
        }
    }

    #[test]
    fn the_lowest_are_chosen_and_ties_go_to_the_lowest_row() {
        let launch = launch(Drift::Value, 4, 2);
        let scores = [0.5, 0.25, 0.5, 0.9];
        let mut candidates: Vec<_> = scores.iter().zip(1..).map(|(&score, row)| Candidate { row, score }).collect();
        let mut computed = Vec::new();
        choose(&launch, &mut candidates, &mut computed);
        assert_eq!(computed, [0, 1, 2]);
    }

    #[test]
    fn random_choices_depend_on_key_and_layer() {
        let chosen = |key, layer| {
            let launch = launch(Drift::Random { seed: key }, 7, 3);
            let mut candidates: Vec<_> = (1..8).map(|row| Candidate { row, score: 0.0 }).collect();
            let mut computed = Vec::new();
            roll(&launch, layer, &mut candidates);
            choose(&launch, &mut candidates, &mut computed);
            computed
        };
        assert_eq!(chosen(1, 1), chosen(1, 1));
        let all: std::collections::HashSet<_> = (0..30).map(|layer| chosen(1, layer)).collect();
        assert!(all.len() > 10);
        assert_ne!(
            (0..9).map(|layer| chosen(1, layer)).collect::<Vec<_>>(),
            (0..9).map(|layer| chosen(2, layer)).collect::<Vec<_>>()
        );
    }
}
