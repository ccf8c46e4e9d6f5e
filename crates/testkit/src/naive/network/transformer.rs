//! A whole transformer in f64, every row attending to a list of positions.

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
    /// How much of a head is turned.
    pub rotated: usize,
    /// The layers.
    pub layers: Vec<Layer>,
    /// Norm in front of the head.
    pub final_norm: Vec<f32>,
    /// `[vocabulary, hidden]`.
    pub head: Vec<f32>,
}

/// How many keys a position sees.
pub type Mask<'a> = &'a dyn Fn(usize) -> usize;

impl Transformer {
    /// Width of the residual stream.
    pub fn hidden(&self) -> usize {
        self.final_norm.len()
    }

    /// Logits `[rows, vocabulary]` of tokens at positions 0, 1, ...; position `i` sees the first `mask(i)` positions.
    pub fn logits(&self, ids: &[u32], mask: Mask<'_>) -> Vec<f32> {
        let stream = self.stream(ids, mask);
        let rows = stream.iter().map(|row| norm(row, &self.final_norm, self.epsilon));
        rows.flat_map(|row| product(&self.head, &row, None)).map(|logit| logit as f32).collect()
    }

    /// The residual stream behind the last layer.
    pub fn stream(&self, ids: &[u32], mask: Mask<'_>) -> Vec<Vec<f64>> {
        let hidden = self.hidden();
        let embedding = |&id: &u32| widened(&self.embedding[id as usize * hidden..(id as usize + 1) * hidden]);
        let mut stream: Vec<Vec<f64>> = ids.iter().map(embedding).collect();
        for layer in &self.layers {
            self.attend(layer, &mut stream, mask);
            for row in &mut stream {
                let h = norm(row, &layer.mlp_norm, self.epsilon);
                let (gate, up) = (product(&layer.gate, &h, None), product(&layer.up, &h, None));
                let inner: Vec<f64> = gate.iter().zip(up).map(|(g, up)| g / (1.0 + (-g).exp()) * up).collect();
                add(row, &product(&layer.down, &inner, None));
            }
        }
        stream
    }

    fn attend(&self, layer: &Layer, stream: &mut [Vec<f64>], mask: Mask<'_>) {
        let biases = layer.biases.as_ref();
        let norms = layer.head_norms.as_ref();
        let (mut queries, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (position, row) in stream.iter().enumerate() {
            let h = norm(row, &layer.attention_norm, self.epsilon);
            let q = product(&layer.query, &h, biases.map(|biases| &biases[0][..]));
            let k = product(&layer.key, &h, biases.map(|biases| &biases[1][..]));
            queries.push(self.turned(&q, norms.map(|norms| &norms[0][..]), position));
            keys.push(self.turned(&k, norms.map(|norms| &norms[1][..]), position));
            values.push(product(&layer.value, &h, biases.map(|biases| &biases[2][..])));
        }
        for (position, row) in stream.iter_mut().enumerate() {
            let visible = mask(position);
            let mut out = Vec::new();
            for head in 0..self.heads {
                let kv_head = head / (self.heads / self.kv_heads);
                let part = |row: &Vec<f64>, head: usize| row[head * self.head_dim..(head + 1) * self.head_dim].to_vec();
                let keys: Vec<_> = keys[..visible].iter().map(|row| part(row, kv_head)).collect();
                let values: Vec<_> = values[..visible].iter().map(|row| part(row, kv_head)).collect();
                out.extend(attention(&part(&queries[position], head), &keys, &values));
            }
            add(row, &product(&layer.output, &out, None));
        }
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

fn product(matrix: &[f32], x: &[f64], bias: Option<&[f32]>) -> Vec<f64> {
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
