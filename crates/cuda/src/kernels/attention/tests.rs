use demask_testkit::naive::linear::rounded;

use super::*;
use crate::{
    arguments::{AttendArgs, List, Store},
    emulator::Emulator,
    gpu::{Address, Gpu},
    kernels::trial::{Trial, emulators, noise},
};

const PAGE: usize = demask_tensor::PAGE;
/// Layers of the store, and the one that is read.
const LAYERS: usize = 2;
const LAYER: usize = 1;

/// Rows of some segments, their keys, and the rows that are asked.
struct Case {
    element: Element,
    shape: AttentionShape,
    /// `[rows]`: segment and limit.
    rows: Vec<(usize, usize)>,
    list: Vec<u32>,
    queries: Vec<f32>,
    /// K and V of each segment, `[positions, kv_heads, head_dim]`.
    keys: Vec<[Vec<f32>; 2]>,
}

impl Case {
    /// Segments of so many rows and keys each.
    fn new(element: Element, shape: AttentionShape, segments: &[(usize, usize)]) -> Self {
        let width = shape.kv_heads * shape.head_dim;
        let store = |values: Vec<f32>| if element == Element::Bf16 { rounded(&values) } else { values };
        let (mut rows, mut keys) = (Vec::new(), Vec::new());
        for (segment, &(count, visible)) in segments.iter().enumerate() {
            // Limits go up and down; one row sees all keys, one a single key.
            let limit = |row: usize| if row == 0 { visible } else { row * 7919 % visible + 1 };
            rows.extend((0..count).map(|row| (segment, if row == 2 { 1 } else { limit(row) })));
            let seed = segment as u64 * 11;
            keys.push([1, 2].map(|which| store(noise(seed + which, visible * width))));
        }
        let queries = store(noise(5, rows.len() * shape.heads * shape.head_dim));
        let list = (0..rows.len() as u32).filter(|row| rows.len() < 4 || row % 4 != 3).collect();
        Self { element, shape, rows, list, queries, keys }
    }

    fn bytes(&self) -> usize {
        match self.element {
            Element::F32 => 4,
            Element::Bf16 => 2,
        }
    }

    fn upload(&self, trial: &Trial<'_>, values: &[f32]) -> Address {
        match self.element {
            Element::F32 => trial.floats(values),
            Element::Bf16 => trial.halves(values),
        }
    }

    /// Pages in an order of their own; what no row sees holds no numbers.
    fn pages(&self, trial: &Trial<'_>) -> (Vec<u64>, Vec<u32>, Vec<u32>) {
        let (shape, mut pages) = (&self.shape, Vec::new());
        let (mut tables, mut segments) = (Vec::new(), Vec::new());
        let head = PAGE * shape.head_dim;
        for (segment, tensors) in self.keys.iter().enumerate() {
            let positions = tensors[0].len() / shape.kv_heads / shape.head_dim;
            let entries = positions.div_ceil(PAGE);
            let first = self.rows.iter().position(|row| row.0 == segment).unwrap_or(0);
            let end = self.rows.iter().rposition(|row| row.0 == segment).map_or(first, |row| row + 1);
            segments.extend([first as u32, end as u32, tables.len() as u32, entries as u32]);
            for entry in 0..entries {
                let mut page = vec![f32::NAN; LAYERS * 2 * shape.kv_heads * head];
                for (which, values) in tensors.iter().enumerate() {
                    for position in entry * PAGE..positions.min((entry + 1) * PAGE) {
                        for kv_head in 0..shape.kv_heads {
                            let from = (position * shape.kv_heads + kv_head) * shape.head_dim;
                            let to = ((LAYER * 2 + which) * shape.kv_heads + kv_head) * head
                                + position % PAGE * shape.head_dim;
                            page[to..to + shape.head_dim].copy_from_slice(&values[from..from + shape.head_dim]);
                        }
                    }
                }
                // The last page made is the first of the list.
                tables.push(pages.len() as u32);
                pages.push(self.upload(trial, &page).0);
            }
        }
        pages.reverse();
        let last = pages.len() as u32 - 1;
        let tables = tables.into_iter().map(|page| last - page).collect();
        (pages, tables, segments)
    }

    fn spans(&self) -> u32 {
        spans(self.rows.iter().map(|row| row.1).max().unwrap())
    }

    /// Attention of the listed rows, `[listed, heads * head_dim]`.
    fn run(&self, gpu: &Emulator, narrow: bool) -> Vec<f32> {
        let (trial, shape) = (Trial(gpu), &self.shape);
        let (pages, tables, segments) = self.pages(&trial);
        let width = shape.heads * shape.head_dim;
        let stride = width.next_multiple_of(64);
        // A bucket larger than the list.
        let bucket = self.list.len() as u32 + 3;
        let attention = variant(self.element, shape, bucket, self.spans(), narrow);
        let store = Store {
            pages: trial.longs(&pages),
            increments: Address::NULL,
            residuals: Address::NULL,
            layers: LAYERS as u32,
            kv_heads: shape.kv_heads as u32,
            head_dim: shape.head_dim as u32,
            hidden: 0,
        };
        let out = trial.empty(self.list.len() * stride * self.bytes());
        let partial = partial_numbers(shape, self.list.len() as u32, self.spans());
        let argument = AttendArgs {
            list: List { rows: trial.words(&self.list), count: trial.words(&[self.list.len() as u32]) },
            segment_of: trial.words(&self.rows.iter().map(|row| row.0 as u32).collect::<Vec<_>>()),
            segments: trial.words(&segments),
            tables: trial.words(&tables),
            limits: trial.words(&self.rows.iter().map(|row| row.1 as u32).collect::<Vec<_>>()),
            queries: self.upload(&trial, &self.queries),
            out,
            partial: trial.empty(partial * 4),
            store,
            heads: shape.heads as u32,
            layer: LAYER as u32,
            stride: stride as u32,
            spans: self.spans(),
            scale: 1.0 / (shape.head_dim as f32).sqrt(),
            unused: 0,
        };
        for (kernel, geometry) in [Some(attention.attend), attention.merge].into_iter().flatten() {
            // SAFETY: the arrays have the sizes of the case.
            unsafe { gpu.launch(kernel, geometry, &argument) }.unwrap();
        }
        let found = match self.element {
            Element::F32 => trial.read_floats(out, self.list.len() * stride),
            Element::Bf16 => trial.read_halves(out, self.list.len() * stride),
        };
        let rows = found.chunks(stride);
        assert!(rows.clone().all(|row| row[width..].iter().all(|&value| value == 0.0)), "zeros behind the heads");
        rows.flat_map(|row| &row[..width]).copied().collect()
    }

    /// The naive twin: all scores of a query, their softmax, the weighted sum.
    fn expected(&self) -> Vec<f32> {
        let AttentionShape { heads, kv_heads, head_dim } = self.shape;
        let mut out = Vec::new();
        for &row in &self.list {
            let (segment, limit) = self.rows[row as usize];
            for head in 0..heads {
                let query = &self.queries[(row as usize * heads + head) * head_dim..][..head_dim];
                let of = |which: usize, key: usize| {
                    let start = (key * kv_heads + head * kv_heads / heads) * head_dim;
                    &self.keys[segment][which][start..start + head_dim]
                };
                let score = |key| {
                    let dot: f64 = query.iter().zip(of(0, key)).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                    dot / (head_dim as f64).sqrt()
                };
                let scores: Vec<f64> = (0..limit).map(score).collect();
                let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for place in 0..head_dim {
                    let weighted = (0..limit).map(|key| weights[key] * f64::from(of(1, key)[place]));
                    out.push((weighted.sum::<f64>() / sum) as f32);
                }
            }
        }
        out
    }
}

fn shape(heads: usize, kv_heads: usize, head_dim: usize) -> AttentionShape {
    AttentionShape { heads, kv_heads, head_dim }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Heads of all widths of fragments and of awkward ones between, groups that divide a tile of queries and that do not.
const SHAPES: [[usize; 3]; 8] =
    [[2, 1, 24], [4, 4, 8], [7, 1, 56], [2, 2, 64], [2, 1, 128], [3, 3, 80], [1, 1, 256], [14, 2, 128]];

fn check(element: Element, tolerance: f32) {
    let gpus = emulators();
    for [heads, kv_heads, head_dim] in SHAPES {
        // Segments that share tiles of queries; one, two and three spans; a last page that is not full.
        for segments in [&[(1, 1)][..], &[(5, 300), (3, 31), (2, 256)], &[(40, 65), (9, 600)]] {
            let case = Case::new(element, shape(heads, kv_heads, head_dim), segments);
            let expected = case.expected();
            let wide = case.run(&gpus[0], false);
            let what = format!("{element:?}, {heads} heads of {head_dim}, segments {segments:?}");
            for (place, (found, expected)) in wide.iter().zip(&expected).enumerate() {
                assert!((found - expected).abs() <= tolerance, "{what}: {found} at {place}, expected {expected}");
            }
            assert!(bits(&wide) == bits(&case.run(&gpus[0], true)), "{what}: narrow and wide differ");
            assert!(bits(&wide) == bits(&case.run(&gpus[1], false)), "{what}: a barrier is missing in wide");
            assert!(bits(&wide) == bits(&case.run(&gpus[1], true)), "{what}: a barrier is missing in narrow");
        }
    }
    assert_eq!(gpus.map(|gpu| gpu.bank_conflicts()), [0, 0], "{element:?}");
}

#[test]
fn attention_in_f32_is_that_of_the_naive_twin() {
    check(Element::F32, 1e-5);
}

#[test]
fn attention_in_bf16_is_that_of_the_naive_twin() {
    check(Element::Bf16, 1e-2);
}

#[test]
fn a_row_alone_has_the_bits_that_it_has_among_others() {
    let [gpu, _] = emulators();
    for element in [Element::F32, Element::Bf16] {
        let mut case = Case::new(element, shape(7, 1, 56), &[(5, 300), (30, 520), (3, 40)]);
        let all = case.run(&gpu, false);
        let width = 7 * 56;
        let list = case.list.clone();
        for (index, &row) in list.iter().enumerate() {
            case.list = vec![row];
            let alone = case.run(&gpu, index % 2 == 0);
            assert_eq!(bits(&alone), bits(&all[index * width..(index + 1) * width]), "{element:?}, row {row}");
        }
    }
}

#[test]
fn keys_behind_a_limit_have_no_influence() {
    let [gpu, _] = emulators();
    for element in [Element::F32, Element::Bf16] {
        let mut case = Case::new(element, shape(2, 1, 32), &[(20, 400)]);
        let before = case.run(&gpu, true);
        // The second row sees some of the keys; what stands behind them becomes huge.
        let limit = case.rows[1].1;
        for tensor in &mut case.keys[0] {
            tensor[limit * 32..].iter_mut().for_each(|value| *value = 1e30);
        }
        let after = case.run(&gpu, true);
        assert!(limit < 400 && bits(&before[64..128]) == bits(&after[64..128]));
        assert_ne!(bits(&before[..64]), bits(&after[..64]));
    }
}

#[test]
fn few_rows_run_their_spans_at_once() {
    let limits = Limits { capability: 90, processors: 132, shared: 227 << 10, memory: 0 };
    let names = |rows, spans| {
        let Attention { attend, merge } =
            choose(&limits, Element::Bf16, &shape(32, 32, 128), (rows, spans), usize::MAX);
        (attend.0, attend.1.grid, merge.map(|merge| merge.0))
    };
    assert_eq!(names(32, 4), ("attend_bf16_narrow_128", [1, 32, 4], Some("attend_merge_bf16")));
    assert_eq!(names(32, 1), ("attend_bf16_wide_128", [1, 32, 1], None));
    assert_eq!(names(1024, 4), ("attend_bf16_wide_128", [16, 32, 1], None));
    let bf16 = |head_dim| fits(Element::Bf16, head_dim);
    assert!(bf16(24) && bf16(256) && !bf16(20) && !bf16(264) && !bf16(0));
    assert!(fits(Element::F32, 20) && !fits(Element::F32, 257));
    let widest = choose(&limits, Element::Bf16, &shape(1, 1, 256), (1, 1), 0).attend.1.shared;
    assert!(widest <= 99 << 10, "{widest}");
}
