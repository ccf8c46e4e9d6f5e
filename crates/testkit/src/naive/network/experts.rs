//! A layer of experts in f64, one row and one expert after the other.

use super::transformer::product;

/// Weights of a layer of experts, and how rows choose; matrices are `[out, in]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Experts {
    /// `[experts, hidden]`.
    pub router: Vec<f32>,
    /// `[experts]`: added to scores for the choice alone.
    pub bias: Option<Vec<f32>>,
    /// Gate, up and down of each expert.
    pub experts: Vec<[Vec<f32>; 3]>,
    /// Gate, up and down of the one that all rows take.
    pub shared: Option<[Vec<f32>; 3]>,
    /// Experts that a row takes.
    pub per_row: usize,
    /// Whether scores are sigmoids, and not a softmax over all experts.
    pub sigmoid: bool,
    /// Groups of neighbours, and how many of them are kept.
    pub groups: Option<[usize; 2]>,
    /// Whether weights are divided by their sum.
    pub renormalised: bool,
    /// What weights are multiplied with.
    pub scale: f64,
}

impl Experts {
    /// The chosen experts of a normed row, ascending, with their weights.
    pub fn choose(&self, row: &[f64]) -> Vec<(usize, f64)> {
        let logits = product(&self.router, row, None);
        let scores: Vec<f64> = if self.sigmoid {
            logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect()
        } else {
            let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
            logits.iter().map(|logit| logit.exp() / sum).collect()
        };
        let bias = |expert: usize| self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[expert]));
        let ranked: Vec<f64> = scores.iter().enumerate().map(|(expert, score)| score + bias(expert)).collect();
        let allowed = self.allowed(&ranked);
        let mut order: Vec<usize> = (0..ranked.len()).filter(|&expert| allowed[expert]).collect();
        order.sort_by(|&a, &b| ranked[b].total_cmp(&ranked[a]).then(a.cmp(&b)));
        order.truncate(self.per_row);
        order.sort_unstable();
        let sum: f64 = if self.renormalised { order.iter().map(|&expert| scores[expert]).sum() } else { 1.0 };
        order.into_iter().map(|expert| (expert, scores[expert] / sum * self.scale)).collect()
    }

    /// Which experts stand in a group that is kept.
    fn allowed(&self, ranked: &[f64]) -> Vec<bool> {
        let Some([count, kept]) = self.groups else { return vec![true; ranked.len()] };
        let size = ranked.len() / count;
        let worth = |group: usize| {
            let mut members = ranked[group * size..(group + 1) * size].to_vec();
            members.sort_by(|a, b| b.total_cmp(a));
            members[0] + members[1]
        };
        let mut groups: Vec<usize> = (0..count).collect();
        groups.sort_by(|&a, &b| worth(b).total_cmp(&worth(a)).then(a.cmp(&b)));
        groups.truncate(kept);
        (0..ranked.len()).map(|expert| groups.contains(&(expert / size))).collect()
    }

    /// Returns the layer's output for a normed row.
    pub fn give(&self, row: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; row.len()];
        for (expert, weight) in self.choose(row) {
            let given = mlp(self.experts[expert].each_ref().map(Vec::as_slice), row);
            sum.iter_mut().zip(given).for_each(|(sum, given)| *sum += weight * given);
        }
        if let Some(shared) = &self.shared {
            sum.iter_mut().zip(mlp(shared.each_ref().map(Vec::as_slice), row)).for_each(|(sum, given)| *sum += given);
        }
        sum
    }
}

/// `down(silu(gate(row)) * up(row))`.
pub(super) fn mlp([gate, up, down]: [&[f32]; 3], row: &[f64]) -> Vec<f64> {
    let (gate, up) = (product(gate, row, None), product(up, row, None));
    let inner: Vec<f64> = gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
    product(down, &inner, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two experts of one number each, worked out by hand.
    #[test]
    fn a_layer_is_what_the_formula_says() {
        let expert = |factor: f32| [vec![1.0], vec![1.0], vec![factor]];
        let layer = Experts {
            router: vec![0.0, 3f32.ln()],
            experts: vec![expert(1.0), expert(10.0)],
            per_row: 2,
            scale: 1.0,
            ..Experts::default()
        };
        // Scores 1/4 and 3/4; silu(1) * 1 = 0.731...
        let silu = 1.0 / (1.0 + (-1f64).exp());
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        near(layer.give(&[1.0])[0], silu * (0.25 + 7.5));
        let one = Experts { per_row: 1, ..layer.clone() };
        assert_eq!(one.choose(&[1.0]).len(), 1);
        near(one.give(&[1.0])[0], silu * 7.5);
        let whole = Experts { renormalised: true, scale: 2.0, ..one };
        near(whole.give(&[1.0])[0], silu * 20.0);
        let biased = Experts { bias: Some(vec![5.0, 0.0]), per_row: 1, shared: Some(expert(1.0)), ..layer };
        near(biased.give(&[1.0])[0], silu * (0.25 + 1.0));
    }
}
