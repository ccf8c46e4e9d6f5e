use crate::isa::tests::testable;
use demask_testkit::naive::{linear::rounded, network as naive};

use super::*;
use demask_tensor::{AttentionShape, PageKind};

/// Pages whose slots hold noise up to `written` keys and NaN beyond.
struct Case {
    shape: AttentionShape,
    kv: KvStore,
    table: Vec<u32>,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

fn case(isa: Isa, shape: AttentionShape, dtype: Dtype, written: usize) -> Case {
    let mut kv = KvStore::new(isa, shape, dtype, 2, 10);
    let mut table = Vec::new();
    kv.allocate(written.div_ceil(PAGE), PageKind::default(), &mut table).unwrap();
    table.reverse();
    let width = shape.kv_heads * shape.head_dim;
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for position in 0..table.len() * PAGE {
        let fill = |seed: usize| {
            let row = if position < written { naive::noise(width, seed as u64) } else { vec![f32::NAN; width] };
            if dtype == Dtype::Bf16 { rounded(&row) } else { row }
        };
        let (key, value) = (fill(2 * position), fill(2 * position + 1));
        let slot = table[position / PAGE] * PAGE as u32 + (position % PAGE) as u32;
        let writer = kv.writer();
        for head in 0..shape.kv_heads {
            let part = head * shape.head_dim..(head + 1) * shape.head_dim;
            for (tensor, row) in [(Tensor::Key, &key), (Tensor::Value, &value)] {
                // SAFETY: there is only this thread.
                unsafe { writer.set_heads((1, tensor, head), std::iter::once((slot, &row[part.clone()]))) }
            }
        }
        keys.push(key);
        values.push(value);
    }
    Case { shape, kv, table, keys, values }
}

impl Case {
    fn run(&self, isa: Isa, threads: usize, queries: &[f32], limits: &[u32]) -> Vec<f32> {
        let rows: Vec<u32> = (0..limits.len() as u32).collect();
        let mut blocks = Vec::new();
        cut_blocks(&self.kv, threads, rows.iter().map(|_| 0), &mut blocks);
        let mut out = vec![f32::NAN; queries.len()];
        let table = |_| &self.table[..];
        let (kv, blocks) = (&self.kv, &blocks[..]);
        Attend { isa, layer: 1, kv, blocks, rows: &rows, limits, table: &table, queries }
            .run(&Pool::new(threads), &mut out);
        out
    }

    fn twin(&self, queries: &[f32], limits: &[u32]) -> Vec<f32> {
        let AttentionShape { heads, kv_heads, head_dim } = self.shape;
        let mut out = Vec::new();
        for (row, &limit) in limits.iter().enumerate() {
            for head in 0..heads {
                let kv_head = head / (heads / kv_heads);
                let part = |rows: &[Vec<f32>]| -> Vec<Vec<f32>> {
                    let range = kv_head * head_dim..(kv_head + 1) * head_dim;
                    rows[..limit as usize].iter().map(|row| row[range.clone()].to_vec()).collect()
                };
                let start = (row * heads + head) * head_dim;
                out.extend(naive::attention(&queries[start..start + head_dim], &part(&self.keys), &part(&self.values)));
            }
        }
        out
    }
}

const SHAPES: [AttentionShape; 5] = [
    AttentionShape { heads: 2, kv_heads: 2, head_dim: 128 },
    AttentionShape { heads: 14, kv_heads: 2, head_dim: 64 },
    AttentionShape { heads: 4, kv_heads: 1, head_dim: 8 },
    AttentionShape { heads: 6, kv_heads: 3, head_dim: 80 },
    AttentionShape { heads: 40, kv_heads: 1, head_dim: 32 },
];

#[test]
fn attention_matches_its_twin_on_every_tier_and_ignores_what_is_beyond_the_limit() {
    let limits: Vec<u32> = vec![75, 75, 75, 75, 75, 1, 32, 33, 40, 64, 64, 31, 2, 75, 70, 69, 68, 67];
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for shape in SHAPES {
            let queries: Vec<f32> = naive::noise(limits.len() * shape.heads * shape.head_dim, 7);
            let queries: Vec<f32> = rounded(&queries).iter().map(|query| 4.0 * query).collect();
            for isa in testable() {
                let case = case(isa, shape, dtype, 75);
                // Weights of pairs are rounded to bf16.
                let tolerance = if case.kv.weave().is_some() { 3e-3 } else { 1e-5 };
                naive::assert_near(&case.run(isa, 2, &queries, &limits), &case.twin(&queries, &limits), tolerance);
            }
        }
    }
}

#[test]
fn a_query_depends_on_nothing_but_itself() {
    // Beyond a stride of keys, within one, at its seams, odd and even.
    let limits: Vec<u32> = (0..23).map(|row| [300, 90, 77, 256, 257, 300, 300][row % 7]).collect();
    let written = 300;
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for shape in SHAPES {
            let width = shape.heads * shape.head_dim;
            let queries = naive::noise(limits.len() * width, 9);
            for isa in testable() {
                let case = case(isa, shape, dtype, written);
                let all = case.run(isa, 1, &queries, &limits);
                for threads in [2, 3] {
                    assert!(all == case.run(isa, threads, &queries, &limits));
                }
                for row in 0..limits.len() {
                    let range = row * width..(row + 1) * width;
                    let alone = case.run(isa, 1, &queries[range.clone()], &limits[row..=row]);
                    assert!(alone == all[range], "{isa:?} {dtype} row {row}");
                }
            }
        }
    }
}
