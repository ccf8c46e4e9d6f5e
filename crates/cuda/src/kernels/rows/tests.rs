use demask_tensor::PAGE;
use demask_testkit::naive::{
    linear::{round_bf16, rounded},
    network::{assert_near, noise, rms_norm, rotate},
};
use half::{bf16, f16};

use super::*;
use crate::{
    arguments::{EmbedArgs, HeadsArgs, NormaliseArgs, Store, heads as target},
    gpu::Address,
    kernels::trial::{Trial, emulators},
};

#[test]
fn embedding_widens_rows_of_every_type() {
    // Every half there is: 256 rows of 256.
    let bits: Vec<u16> = (0..=u16::MAX).collect();
    let ids = [255u32, 0, 7, 255, 130];
    let wide = |bits: u16| f32::from_bits(u32::from(bits) << 16);
    for table in emulators().each_ref().map(Trial) {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            let floats: Vec<f32> = bits.iter().map(|&bits| wide(bits)).collect();
            let weights = if dtype == Dtype::F32 { table.put(&floats) } else { table.put(&bits) };
            let stream = table.room::<f32>(ids.len() * 256);
            let count = table.put(&[4u32]);
            let args = EmbedArgs { table: weights, ids: table.put(&ids), count, stream, hidden: 256, unused: 0 };
            table.run(embed(dtype, ids.len()), &args);
            let found = table.take::<f32>(stream, ids.len() * 256);
            let expected = |bits: u16| if dtype == Dtype::F16 { f16::from_bits(bits).to_f32() } else { wide(bits) };
            for (row, &id) in ids[..4].iter().enumerate() {
                for column in 0..256 {
                    let (found, expected) = (found[row * 256 + column], expected(bits[id as usize * 256 + column]));
                    assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan());
                }
            }
            assert!(found[4 * 256..].iter().all(|value| value.to_bits() == u32::MAX), "a row beyond the count");
        }
    }
}

/// Normed rows of a list, as f32, from a bucket that is larger than the list.
fn normed(table: &Trial<'_>, dtype: Dtype, stream: &[f32], rows: &[u32], weight: &[f32], stride: usize) -> Vec<f32> {
    let bucket = rows.len() + 3;
    let out =
        if dtype == Dtype::Bf16 { table.room::<u16>(bucket * stride) } else { table.room::<f32>(bucket * stride) };
    let args = NormaliseArgs {
        list: table.list(rows),
        stream: table.put(stream),
        weight: table.put(weight),
        out,
        hidden: weight.len() as u32,
        stride: stride as u32,
        epsilon: 1e-5,
        unused: 0,
    };
    table.run(normalise(dtype, bucket), &args);
    take_typed(table, dtype, out, rows.len() * stride)
}

fn take_typed(table: &Trial<'_>, dtype: Dtype, at: Address, count: usize) -> Vec<f32> {
    if dtype == Dtype::Bf16 {
        table.take::<u16>(at, count).into_iter().map(|bits| bf16::from_bits(bits).to_f32()).collect()
    } else {
        table.take(at, count)
    }
}

#[test]
fn norms_match_their_twin_in_any_place_and_company() {
    for table in emulators().each_ref().map(Trial) {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            for hidden in [1usize, 24, 64, 300, 4096] {
                let stride = hidden.next_multiple_of(64);
                let stream = noise(5 * hidden, hidden as u64);
                let weight = noise(hidden, 2);
                let found = normed(&table, dtype, &stream, &[4, 0, 3], &weight, stride);
                for (index, row) in [4, 0, 3].into_iter().enumerate() {
                    let expected = rms_norm(&stream[row * hidden..(row + 1) * hidden], &weight, 1e-5);
                    let (values, rest) = found[index * stride..(index + 1) * stride].split_at(hidden);
                    assert!(rest.iter().all(|&value| value == 0.0));
                    assert_near(values, &expected, if dtype == Dtype::F32 { 1e-6 } else { 4e-3 });
                }
                let alone = normed(&table, dtype, &stream, &[3], &weight, stride);
                assert_eq!(alone, found[2 * stride..]);
                assert!(normed(&table, dtype, &stream, &[], &weight, stride).is_empty());
            }
        }
    }
}

const POSITIONS: usize = 50;

/// Case of a kernel that finishes heads of a width.
struct Finish {
    dtype: Dtype,
    heads: usize,
    head_dim: usize,
    half: usize,
    norm: Option<Vec<f32>>,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Finish {
    fn new(dtype: Dtype, heads: usize, head_dim: usize, half: usize, normed: bool) -> Self {
        let angles: Vec<f32> = (0..POSITIONS * half).map(|place| place as f32 * 0.37).collect();
        let norm = normed.then(|| noise(head_dim, 8));
        let [cos, sin] = [f32::cos, f32::sin].map(|turn| angles.iter().map(|&angle| turn(angle)).collect());
        Self { dtype, heads, head_dim, half, norm, cos, sin }
    }

    fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// The twin, of one row.
    fn expected(&self, row: &[f32], position: u32) -> Vec<f32> {
        let at = position as usize * self.half..(position as usize + 1) * self.half;
        let finish = |head: &[f32]| {
            let mut head = self.norm.as_ref().map_or_else(|| head.to_vec(), |norm| rms_norm(head, norm, 1e-6));
            rotate(&mut head, &self.cos[at.clone()], &self.sin[at.clone()]);
            head
        };
        row.chunks_exact(self.head_dim).flat_map(finish).collect()
    }

    fn tolerance(&self) -> f32 {
        if self.dtype == Dtype::F32 { 1e-6 } else { 5e-3 }
    }

    fn args(&self, table: &Trial<'_>, rows: &[u32], positions: &[u32], projected: Address) -> HeadsArgs {
        let nothing = Store {
            pages: Address::NULL,
            increments: Address::NULL,
            residuals: Address::NULL,
            layers: 2,
            kv_heads: self.heads as u32,
            head_dim: self.head_dim as u32,
            hidden: 0,
        };
        HeadsArgs {
            list: table.list(rows),
            projected,
            norm: self.norm.as_ref().map_or(Address::NULL, |norm| table.put(norm)),
            cos: table.put(&self.cos),
            sin: table.put(&self.sin),
            positions: table.put(positions),
            slots: Address::NULL,
            out: Address::NULL,
            store: nothing,
            heads: self.heads as u32,
            head_dim: self.head_dim as u32,
            half: self.half as u32,
            epsilon: 1e-6,
            layer: 1,
            target: target::IN_PLACE,
        }
    }
}

fn finishes() -> Vec<Finish> {
    let mut all = Vec::new();
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for (heads, head_dim, half) in [(1, 128, 64), (7, 12, 6), (4, 12, 4), (3, 64, 0), (5, 96, 48)] {
            all.extend([false, true].map(|normed| Finish::new(dtype, heads, head_dim, half, normed)));
        }
    }
    all
}

#[test]
fn heads_are_finished_in_place_and_as_queries() {
    let (rows, positions) = ([6, 1, 4], [3, 49, 0, 0, 17, 0, 8]);
    for finish in finishes() {
        let width = finish.width();
        let values = noise(rows.len() * width, 3);
        for table in emulators().each_ref().map(Trial) {
            let projected = table.put(&values);
            let mut args = finish.args(&table, &rows, &positions, projected);
            args.target = target::QUERIES;
            args.out = table.room::<f32>(positions.len() * width);
            table.run(heads(finish.dtype, 5), &args);
            assert_eq!(table.take::<f32>(projected, values.len()), values);
            let queries = take_typed(&table, finish.dtype, args.out, positions.len() * width);
            args.target = target::IN_PLACE;
            table.run(heads(finish.dtype, 5), &args);
            let in_place = table.take::<f32>(projected, values.len());
            for (index, &row) in rows.iter().enumerate() {
                let expected = finish.expected(&values[index * width..(index + 1) * width], positions[row as usize]);
                let found = &in_place[index * width..(index + 1) * width];
                assert_near(found, &expected, finish.tolerance());
                assert_eq!(found, &queries[row as usize * width..(row as usize + 1) * width]);
                if finish.dtype == Dtype::Bf16 {
                    assert_eq!(found, rounded(found));
                }
            }
        }
    }
}

#[test]
fn keys_and_values_go_to_their_slots_and_nowhere_else() {
    let (rows, positions, slots) = ([0, 2, 1], [3u32, 49, 20], [2 * 32 + 31u32, 5, 2 * 32]);
    for finish in finishes() {
        let (width, heads_count, head_dim) = (finish.width(), finish.heads, finish.head_dim);
        let values = noise(rows.len() * width, 4);
        let page = 2 * 2 * PAGE * width;
        let size = finish.dtype.size();
        for table in emulators().each_ref().map(Trial) {
            let pages = [0, 1, 2].map(|_| table.put(&vec![0xffu8; page * size]));
            for (value, tensor) in [target::KEYS, target::VALUES].into_iter().enumerate() {
                let mut args = finish.args(&table, &rows, &positions, table.put(&values));
                args.slots = table.put(&slots);
                args.store.pages = table.put(&pages);
                args.target = tensor;
                table.run(heads(finish.dtype, 4), &args);
                for (index, &row) in rows.iter().enumerate() {
                    let (slot, row) = (slots[row as usize] as usize, row as usize);
                    let expected = finish.expected(&values[index * width..(index + 1) * width], positions[row]);
                    let stored = take_typed(&table, finish.dtype, pages[slot / PAGE], page);
                    for head in 0..heads_count {
                        let at = (((2 + value) * heads_count + head) * PAGE + slot % PAGE) * head_dim;
                        let expected = &expected[head * head_dim..(head + 1) * head_dim];
                        assert_near(&stored[at..at + head_dim], expected, finish.tolerance());
                    }
                }
            }
            // Both tensors of one layer have as many numbers as there are rows.
            let all: Vec<f32> =
                pages.iter().flat_map(|&address| take_typed(&table, finish.dtype, address, page)).collect();
            assert_eq!(all.iter().filter(|value| !value.is_nan()).count(), 2 * rows.len() * width);
        }
    }
}

#[test]
fn what_is_rounded_already_is_stored_as_it_is() {
    let finish = Finish::new(Dtype::Bf16, 2, 12, 0, false);
    let values: Vec<f32> = noise(24, 6).into_iter().map(round_bf16).collect();
    let [gpu, _] = emulators();
    let table = Trial(&gpu);
    let mut args = finish.args(&table, &[0], &[0], table.put(&values));
    args.out = table.room::<u16>(24);
    args.target = target::QUERIES;
    table.run(heads(Dtype::Bf16, 1), &args);
    assert_eq!(take_typed(&table, Dtype::Bf16, args.out, 24), values);
}
