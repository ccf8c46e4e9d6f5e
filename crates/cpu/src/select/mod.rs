//! Choosing the rows that have drifted most.

use demask_tensor::{Launch, ProbeBy, ProbeTensor};

use crate::kv::Tensor;

/// The stored tensor that a probe compares.
pub(crate) fn probed_tensor(tensor: ProbeTensor) -> Tensor {
    match tensor {
        ProbeTensor::Key => Tensor::Key,
        ProbeTensor::Value => Tensor::Value,
    }
}

/// A probed row and how gladly it is left out: the lowest are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) row: u32,
    /// Cosine, or a random number.
    pub(crate) score: f64,
}

/// Appends the rows of `launch.probed` whose probe compares `tensor`, and their places among the candidates.
pub(crate) fn rows_that_compare(launch: &Launch, tensor: ProbeTensor, rows: &mut Vec<u32>, places: &mut Vec<u32>) {
    rows.clear();
    places.clear();
    let mut first = 0;
    for probe in &launch.probes {
        let range = first..first + probe.rows as usize;
        first = range.end;
        if probe.by == ProbeBy::Drift(tensor) {
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
        if let ProbeBy::Random(key) = probe.by {
            for candidate in &mut candidates[range] {
                let position = launch.positions[candidate.row as usize];
                // 53 bits are exact, and more than enough to tell rows apart.
                candidate.score = (mixed(key, layer as u64, u64::from(position)) >> 11) as f64;
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

/// A well-mixed number of a key, a layer and a position.
fn mixed(key: u64, layer: u64, position: u64) -> u64 {
    mix(mix(key ^ layer.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(mix(position)))
}

/// A bijection that spreads every bit over all others: two rounds of multiply and fold.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use demask_tensor::ProbeLaunch;

    use super::*;

    fn launch(by: ProbeBy, rows: u32, keep: u32) -> Launch {
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
        let launch = launch(ProbeBy::Drift(ProbeTensor::Value), 4, 2);
        let scores = [0.5, 0.25, 0.5, 0.9];
        let mut candidates: Vec<_> = scores.iter().zip(1..).map(|(&score, row)| Candidate { row, score }).collect();
        let mut computed = Vec::new();
        choose(&launch, &mut candidates, &mut computed);
        assert_eq!(computed, [0, 1, 2]);
    }

    #[test]
    fn random_choices_depend_on_key_and_layer() {
        let chosen = |key, layer| {
            let launch = launch(ProbeBy::Random(key), 7, 3);
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
