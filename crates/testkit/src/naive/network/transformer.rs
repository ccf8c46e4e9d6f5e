//! A whole transformer in f64, one row after the other, with slots that outlive a step.

use demask_step::random::lot;

use super::experts::{Experts, mlp};

/// Weights of one layer; matrices are `[out, in]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer {
    /// Norm in front of attention.
    pub attention_norm: Vec<f32>,
    /// `[heads * head_dim, hidden]`.
    pub query: Vec<f32>,
    /// `[kv_heads * head_dim, hidden]`.
    pub key: Vec<f32>,
    /// `[kv_heads * head_dim, hidden]`.
    pub value: Vec<f32>,
    /// Biases of q, k, v.
    pub biases: Option<[Vec<f32>; 3]>,
    /// Norms over each head of q and k.
    pub head_norms: Option<[Vec<f32>; 2]>,
    /// `[hidden, heads * head_dim]`.
    pub output: Vec<f32>,
    /// Norm in front of the MLP.
    pub mlp_norm: Vec<f32>,
    /// `[ffn, hidden]`.
    pub gate: Vec<f32>,
    /// `[ffn, hidden]`.
    pub up: Vec<f32>,
    /// `[hidden, ffn]`.
    pub down: Vec<f32>,
    /// Experts instead of gate, up and down.
    pub experts: Option<Experts>,
}

/// A transformer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transformer {
    /// Query heads.
    pub heads: usize,
    /// K/V heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Epsilon of all norms.
    pub epsilon: f32,
    /// `[vocabulary, hidden]`.
    pub embedding: Vec<f32>,
    /// `[positions, rotated / 2]`.
    pub cos: Vec<f32>,
    /// `[positions, rotated / 2]`.
    pub sin: Vec<f32>,
    /// Number of rotated dimensions of a head.
    pub rotated: usize,
    /// The layers.
    pub layers: Vec<Layer>,
    /// Norm in front of the head.
    pub final_norm: Vec<f32>,
    /// `[vocabulary, hidden]`.
    pub head: Vec<f32>,
}

/// Number of keys that a position sees, by position.
pub type Mask<'a> = &'a dyn Fn(usize) -> usize;

/// Memory of a sequence between steps, by layer and position.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Slots {
    keys: Vec<Vec<Vec<f64>>>,
    values: Vec<Vec<Vec<f64>>>,
    /// Contribution of attention and MLP together to each row, by layer.
    increments: Vec<Vec<Vec<f64>>>,
    /// Records whether keys are kept as they are projected, and normed and turned whenever they are read.
    turned_late: bool,
    /// Contribution of attention alone to each row.
    attended: Vec<Vec<Vec<f64>>>,
}

impl Slots {
    /// Keeps keys unturned, as programs do that turn all of them again in each step.
    #[must_use]
    pub fn turned_late(mut self) -> Self {
        self.turned_late = true;
        self
    }

    /// Takes over the slots that a draft, which ran on a copy of these, wrote at some positions.
    pub fn keep(&mut self, draft: &Self, positions: &[usize]) {
        let pairs = [
            (&mut self.keys, &draft.keys),
            (&mut self.values, &draft.values),
            (&mut self.increments, &draft.increments),
            (&mut self.attended, &draft.attended),
        ];
        for (own, other) in pairs.into_iter().flat_map(|(own, other)| own.iter_mut().zip(other)) {
            for &position in positions {
                own[position].clone_from(&other[position]);
            }
        }
    }

    /// K as it is kept, V, and what attention and the MLP add to the residual stream, of all positions of a layer:
    /// `[positions, width]` each.
    pub fn parts(&self, layer: usize) -> [Vec<f32>; 4] {
        let mlp = self.increments[layer].iter().zip(&self.attended[layer]);
        let mlp: Vec<Vec<f64>> =
            mlp.map(|(both, attended)| both.iter().zip(attended).map(|(both, one)| both - one).collect()).collect();
        [&self.keys[layer], &self.values[layer], &self.attended[layer], &mlp]
            .map(|rows| rows.iter().flatten().map(|&value| value as f32).collect())
    }
}

/// A step that computes only some of its rows in the layers after the first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Partial {
    /// Positions computed in any case.
    pub fixed: Vec<usize>,
    /// Positions of which the `keep` that have drifted most are computed too.
    pub probed: Vec<usize>,
    /// Number of rows that are computed.
    pub keep: usize,
    /// Records whether drift is seen in K (turned) and not in V; the probed tensor is replaced for all probed
    /// positions.
    pub by_key: bool,
    /// A key: chance chooses, from key, layer and position, and nothing is replaced but for those that are chosen.
    pub random: Option<u64>,
}

impl Transformer {
    /// Width of the residual stream.
    pub fn hidden(&self) -> usize {
        self.final_norm.len()
    }

    /// Creates empty slots for a number of positions.
    pub fn slots(&self, positions: usize) -> Slots {
        let rows = |width: usize| vec![vec![vec![0.0; width]; positions]; self.layers.len()];
        let kv = self.kv_heads * self.head_dim;
        Slots {
            keys: rows(kv),
            values: rows(kv),
            increments: rows(self.hidden()),
            turned_late: false,
            attended: rows(self.hidden()),
        }
    }

    /// Logits `[rows, vocabulary]` of tokens at positions 0, 1, ...; position `i` sees the first `mask(i)` positions.
    pub fn logits(&self, ids: &[u32], mask: Mask<'_>) -> Vec<f32> {
        let rows: Vec<(usize, u32)> = ids.iter().copied().enumerate().collect();
        self.step(&mut self.slots(ids.len()), &rows, mask, None)
    }

    /// Logits `[rows, vocabulary]` of some positions with their tokens; the others are as the last steps left them.
    pub fn step(
        &self,
        slots: &mut Slots,
        rows: &[(usize, u32)],
        mask: Mask<'_>,
        partial: Option<&Partial>,
    ) -> Vec<f32> {
        let hidden = self.hidden();
        let embedding =
            |&(_, id): &(usize, u32)| widened(&self.embedding[id as usize * hidden..(id as usize + 1) * hidden]);
        let positions: Vec<usize> = rows.iter().map(|row| row.0).collect();
        let mut stream: Vec<Vec<f64>> = rows.iter().map(embedding).collect();
        for layer in 0..self.layers.len() {
            self.layer(layer, slots, &positions, &mut stream, mask, partial.filter(|_| layer > 0));
        }
        let rows = stream.iter().map(|row| norm(row, &self.final_norm, self.epsilon));
        rows.flat_map(|row| product(&self.head, &row, None)).map(|logit| logit as f32).collect()
    }

    fn layer(
        &self,
        index: usize,
        slots: &mut Slots,
        positions: &[usize],
        stream: &mut [Vec<f64>],
        mask: Mask<'_>,
        partial: Option<&Partial>,
    ) {
        let layer = &self.layers[index];
        let row_of = |position: usize| positions.iter().position(|&other| other == position).unwrap_or(usize::MAX);
        let mut computed = positions.to_vec();
        if let Some(partial) = partial {
            computed = self.choose(index, slots, partial, &|position| stream[row_of(position)].clone());
        }
        let before: Vec<Vec<f64>> = stream.to_vec();
        for &position in &computed {
            let [k, v] = self.key_value(layer, &stream[row_of(position)], position, slots.turned_late);
            let compared = partial.filter(|partial| partial.random.is_none());
            let probed = compared.filter(|partial| partial.probed.contains(&position));
            if probed.is_none_or(|partial| !partial.by_key) {
                slots.keys[index][position] = k;
            }
            if probed.is_none_or(|partial| partial.by_key) {
                slots.values[index][position] = v;
            }
        }
        for &position in &computed {
            let row = &mut stream[row_of(position)];
            let (keys, values) = (&slots.keys[index], &slots.values[index]);
            let turned: Vec<Vec<f64>>;
            let keys = if slots.turned_late {
                let weight = layer.head_norms.as_ref().map(|norms| &norms[1][..]);
                turned = keys.iter().enumerate().map(|(at, key)| self.turned(key, weight, at)).collect();
                &turned
            } else {
                keys
            };
            let out = self.attend(layer, row, position, keys, values, mask(position));
            slots.attended[index][position] = product(&layer.output, &out, None);
            add(row, &slots.attended[index][position]);
            let h = norm(row, &layer.mlp_norm, self.epsilon);
            let given = match &layer.experts {
                Some(experts) => experts.give(&h),
                None => mlp([&layer.gate, &layer.up, &layer.down], &h),
            };
            add(row, &given);
        }
        for (row, &position) in positions.iter().enumerate() {
            let increment = &mut slots.increments[index][position];
            if computed.contains(&position) {
                *increment = stream[row].iter().zip(&before[row]).map(|(after, before)| after - before).collect();
            } else {
                add(&mut stream[row], increment);
            }
        }
    }

    /// Replaces the probed tensor, and gives the positions that a partly computed layer computes, ascending.
    fn choose(
        &self,
        index: usize,
        slots: &mut Slots,
        partial: &Partial,
        row: &dyn Fn(usize) -> Vec<f64>,
    ) -> Vec<usize> {
        if let Some(key) = partial.random {
            let mut order = partial.probed.clone();
            order.sort_by_key(|&position| (lot(key, index as u64, position as u64) >> 11, position));
            let mut computed: Vec<usize> = partial.fixed.iter().copied().chain(order).collect();
            computed.truncate(partial.fixed.len() + partial.keep);
            computed.sort_unstable();
            return computed;
        }
        let mut scores = Vec::new();
        for &position in &partial.probed {
            let [key, value] = self.key_value(&self.layers[index], &row(position), position, slots.turned_late);
            let (fresh, stored) = if partial.by_key {
                (key, &mut slots.keys[index][position])
            } else {
                (value, &mut slots.values[index][position])
            };
            let narrow = |row: &[f64]| row.iter().map(|&value| value as f32).collect::<Vec<_>>();
            scores.push(super::cosine(&narrow(&fresh), &narrow(stored)));
            *stored = fresh;
        }
        let chosen = super::lowest(&scores, partial.keep).into_iter().map(|at| partial.probed[at]);
        let mut computed: Vec<usize> = partial.fixed.iter().copied().chain(chosen).collect();
        computed.sort_unstable();
        computed
    }

    /// K and V of a row, K as it is projected if it is turned late.
    fn key_value(&self, layer: &Layer, row: &[f64], position: usize, late: bool) -> [Vec<f64>; 2] {
        let bias = |index: usize| layer.biases.as_ref().map(|biases| &biases[index][..]);
        let h = norm(row, &layer.attention_norm, self.epsilon);
        let k = product(&layer.key, &h, bias(1));
        let weight = layer.head_norms.as_ref().map(|norms| &norms[1][..]);
        let k = if late { k } else { self.turned(&k, weight, position) };
        [k, product(&layer.value, &h, bias(2))]
    }

    /// Attention of one row over the first `visible` keys.
    fn attend(
        &self,
        layer: &Layer,
        row: &[f64],
        position: usize,
        keys: &[Vec<f64>],
        values: &[Vec<f64>],
        visible: usize,
    ) -> Vec<f64> {
        let h = norm(row, &layer.attention_norm, self.epsilon);
        let q = product(&layer.query, &h, layer.biases.as_ref().map(|biases| &biases[0][..]));
        let q = self.turned(&q, layer.head_norms.as_ref().map(|norms| &norms[0][..]), position);
        let mut out = Vec::new();
        for (head, query) in q.chunks_exact(self.head_dim).enumerate() {
            let first = head / (self.heads / self.kv_heads) * self.head_dim;
            let part = |row: &Vec<f64>| row[first..first + self.head_dim].to_vec();
            let keys: Vec<_> = keys[..visible].iter().map(part).collect();
            let values: Vec<_> = values[..visible].iter().map(part).collect();
            out.extend(attention(query, &keys, &values));
        }
        out
    }

    /// Norms and turns all heads of a row.
    fn turned(&self, row: &[f64], weight: Option<&[f32]>, position: usize) -> Vec<f64> {
        let half = self.rotated / 2;
        let at = position * half..(position + 1) * half;
        let mut out = Vec::new();
        for head in row.chunks_exact(self.head_dim) {
            let mut head = weight.map_or_else(|| head.to_vec(), |weight| norm(head, weight, self.epsilon));
            for (i, (&cos, &sin)) in self.cos[at.clone()].iter().zip(&self.sin[at.clone()]).enumerate() {
                let (a, b) = (head[i], head[i + half]);
                head[i] = a * f64::from(cos) - b * f64::from(sin);
                head[i + half] = b * f64::from(cos) + a * f64::from(sin);
            }
            out.extend(head);
        }
        out
    }
}

fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

fn add(row: &mut [f64], other: &[f64]) {
    row.iter_mut().zip(other).for_each(|(value, other)| *value += other);
}

fn norm(x: &[f64], weight: &[f32], epsilon: f32) -> Vec<f64> {
    let mean = x.iter().map(|value| value * value).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(epsilon)).sqrt();
    x.iter().zip(weight).map(|(value, &weight)| value * scale * f64::from(weight)).collect()
}

pub(super) fn product(matrix: &[f32], x: &[f64], bias: Option<&[f32]>) -> Vec<f64> {
    let dot = |row: &[f32]| row.iter().zip(x).map(|(&weight, value)| f64::from(weight) * value).sum::<f64>();
    let sums = matrix.chunks_exact(x.len()).map(dot).enumerate();
    sums.map(|(output, sum)| sum + bias.map_or(0.0, |bias| f64::from(bias[output]))).collect()
}

fn attention(query: &[f64], keys: &[Vec<f64>], values: &[Vec<f64>]) -> Vec<f64> {
    let scale = 1.0 / (query.len() as f64).sqrt();
    let dot = |key: &Vec<f64>| query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() * scale;
    let scores: Vec<f64> = keys.iter().map(dot).collect();
    let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|score| (score - best).exp()).sum();
    let mut out = vec![0.0; query.len()];
    for (score, value) in scores.iter().zip(values) {
        let weight = (score - best).exp() / sum;
        out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value);
    }
    out
}
