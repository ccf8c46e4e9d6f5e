use demask_testkit::naive::linear::{self, Shape};

use super::*;
use crate::{
    arguments::{GemmArgs, GemmPart, List},
    emulator::Emulator,
    gpu::{Address, Gpu},
    kernels::trial::{Trial, emulators, noise},
};

const PRODUCTS: [Product; 6] = [Product::F32, Product::Bf16, Product::Q8, Product::Q4, Product::Q8F32, Product::Q4F32];

impl Product {
    fn bits(self) -> usize {
        match self {
            Self::F32 => 32,
            Self::Bf16 => 16,
            Self::Q8 | Self::Q8F32 => 8,
            Self::Q4 | Self::Q4F32 => 4,
        }
    }

    fn single(self) -> bool {
        matches!(self, Self::F32 | Self::Q8F32 | Self::Q4F32)
    }
}

/// A weight matrix as the device has it, and as numbers.
struct Weight {
    columns: usize,
    bytes: Vec<u8>,
    scales: Vec<f32>,
    numbers: Vec<f32>,
    bias: Option<Vec<f32>>,
}

impl Weight {
    fn new(product: Product, [columns, depth]: [usize; 2], seed: u64, biased: bool) -> Self {
        let values = noise(seed, columns * depth);
        let bias = biased.then(|| noise(seed + 1, columns));
        let (mut bytes, mut scales) = (Vec::new(), Vec::new());
        let numbers = match product {
            Product::F32 => values,
            Product::Bf16 => linear::rounded(&values),
            _ => linear::quantised(&values, depth, product.bits()),
        };
        match product {
            Product::F32 => bytes.extend(numbers.iter().flat_map(|value| value.to_le_bytes())),
            Product::Bf16 => {
                bytes.extend(numbers.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()));
            }
            _ => {
                // The scales come back from the largest integer of each group, which is known.
                for group in numbers.chunks(32) {
                    let largest = group.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap();
                    let scale = if product.bits() == 8 { largest.abs() / 127.0 } else { largest / -8.0 };
                    let scale = half::f16::from_f32(scale).to_f32();
                    scales.push(scale);
                    let integers: Vec<i8> = group.iter().map(|value| (value / scale).round() as i8).collect();
                    match product.bits() {
                        8 => bytes.extend(integers.iter().map(|&integer| integer as u8)),
                        _ => bytes.extend(integers.chunks(2).map(|pair| ((pair[0] + 8) | ((pair[1] + 8) << 4)) as u8)),
                    }
                }
            }
        }
        let numbers = match product {
            Product::Q8 | Product::Q4 => linear::rounded(&numbers),
            _ => numbers,
        };
        Self { columns, bytes, scales, numbers, bias }
    }
}

/// A product with its inputs.
struct Case {
    product: Product,
    depth: usize,
    rows: usize,
    first: usize,
    input: Vec<f32>,
    weights: Vec<Weight>,
}

/// Rows of the residual stream, of which every second one is in the list.
const SPREAD: usize = 2;

impl Case {
    fn new(product: Product, rows: usize, columns: &[usize], depth: usize) -> Self {
        let input = noise(rows as u64 * 31 + depth as u64, rows * depth);
        let input = if product.single() { input } else { linear::rounded(&input) };
        let weight = |(index, &columns): (usize, &usize)| {
            Weight::new(product, [columns, depth], (index * 7 + columns) as u64, index % 2 == 1)
        };
        let weights = columns.iter().enumerate().map(weight).collect();
        Self { product, depth, rows, first: 3, input, weights }
    }

    /// Returns the case with one of the rows alone.
    fn row(&self, row: usize) -> Case {
        let input = self.input[row * self.depth..(row + 1) * self.depth].to_vec();
        let weights = self.weights.iter().map(|weight| Weight {
            columns: weight.columns,
            bytes: weight.bytes.clone(),
            scales: weight.scales.clone(),
            numbers: weight.numbers.clone(),
            bias: weight.bias.clone(),
        });
        Case { rows: 1, input, weights: weights.collect(), ..*self }
    }

    fn columns(&self) -> Vec<u32> {
        self.weights.iter().map(|weight| weight.columns as u32).collect()
    }

    /// Content of the stream before the sums are added.
    fn stream(&self, columns: usize) -> Vec<f32> {
        noise(columns as u64 + 99, (self.first + self.rows + 1) * SPREAD * columns)
    }

    /// Distance of rows of an output.
    fn stride(end: End, columns: usize) -> usize {
        match end {
            End::Store | End::Add => columns,
            End::Silu => (columns / 2).next_multiple_of(64),
        }
    }

    /// All outputs by a kernel, part after part.
    fn run(&self, gpu: &Emulator, end: End, kernel: &'static str, geometry: Geometry) -> Vec<Vec<f32>> {
        let trial = Trial(gpu);
        let rows: Vec<u32> = (0..=self.first + self.rows).map(|row| (row * SPREAD) as u32).collect();
        let list = List { rows: trial.words(&rows), count: trial.words(&[(self.first + self.rows) as u32]) };
        let mut part = [GemmPart {
            weight: Address::NULL,
            scales: Address::NULL,
            bias: Address::NULL,
            out: Address::NULL,
            columns: u32::MAX,
            stride: u32::MAX,
        }; 3];
        let silu_bytes = if self.product.single() { 4 } else { 2 };
        for (part, weight) in part.iter_mut().zip(&self.weights) {
            let stride = Self::stride(end, weight.columns);
            part.weight = trial.bytes(&weight.bytes);
            part.scales = trial.floats(&weight.scales);
            part.bias = weight.bias.as_ref().map_or(Address::NULL, |bias| trial.floats(bias));
            part.columns = weight.columns as u32;
            part.stride = stride as u32;
            part.out = match end {
                End::Store => trial.empty(self.rows * stride * 4),
                End::Add => trial.floats(&self.stream(weight.columns)),
                End::Silu => trial.empty(self.rows * stride * silu_bytes),
            };
        }
        let input = if self.product.single() { trial.floats(&self.input) } else { trial.halves(&self.input) };
        let (parts, depth) = (self.weights.len() as u32, self.depth as u32);
        let argument =
            GemmArgs { input, list, part, parts, depth, first: self.first as u32, rows: self.rows as u32 + 100 };
        // SAFETY: the arrays have the sizes of the case.
        unsafe { gpu.launch(kernel, geometry, &argument) }.unwrap();
        let read = |(part, weight): (&GemmPart, &Weight)| {
            let count = self.rows * Self::stride(end, weight.columns);
            match end {
                End::Store => trial.read_floats(part.out, count),
                End::Add => trial.read_floats(part.out, self.stream(weight.columns).len()),
                End::Silu if self.product.single() => trial.read_floats(part.out, count),
                End::Silu => trial.read_halves(part.out, count),
            }
        };
        part.iter().zip(&self.weights).map(read).collect()
    }

    /// All outputs by the naive twin.
    fn expected(&self, end: End) -> Vec<Vec<f32>> {
        let expected = |weight: &Weight| {
            let shape = Shape { rows: self.rows, out: weight.columns, columns: self.depth };
            let sums = linear::linear(shape, &self.input, &weight.numbers, weight.bias.as_deref());
            let (columns, stride) = (weight.columns, Self::stride(end, weight.columns));
            match end {
                End::Store => sums,
                End::Add => {
                    let mut stream = self.stream(columns);
                    for (index, sum) in sums.iter().enumerate() {
                        stream[(self.first + index / columns) * SPREAD * columns + index % columns] += sum;
                    }
                    stream
                }
                End::Silu => {
                    let mut out = vec![0.0; self.rows * stride];
                    for (index, pair) in sums.chunks(2).enumerate() {
                        let (row, place) = (index / (columns / 2), index % (columns / 2));
                        out[row * stride + place] = linear::silu(pair[0]) * pair[1];
                    }
                    out
                }
            }
        };
        self.weights.iter().map(expected).collect()
    }

    fn kernels(&self, gpu: &Emulator, end: End) -> Vec<(&'static str, Geometry)> {
        let columns = self.columns();
        let limits = gpu.limits();
        let all = variants(&limits, (self.product, end), &columns, self.rows as u32);
        all.map(|(name, geometry, _)| (name, geometry)).collect()
    }
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        assert!(error <= tolerance * (1.0 + expected.abs()), "{what}: {found} at {place}, expected {expected}");
    }
}

/// Rows, columns of the parts, depth: single rows, ragged tiles, several tiles each way, three parts.
const SHAPES: &[(usize, &[usize], usize)] = &[
    (1, &[8], 64),
    (5, &[40, 24, 34], 128),
    (17, &[64, 96], 192),
    (33, &[130], 320),
    (70, &[300, 18], 64),
    (129, &[258, 2], 128),
    (260, &[140], 64),
];

/// All tiles of a product against the naive twin, in both orders, with equal bits.
fn check(product: Product) {
    let gpus = emulators();
    for &(rows, columns, depth) in SHAPES {
        let case = Case::new(product, rows, columns, depth);
        for end in [End::Store, End::Add, End::Silu] {
            let expected = case.expected(end);
            let mut first: Option<Vec<Vec<f32>>> = None;
            for (kernel, geometry) in case.kernels(&gpus[0], end) {
                for gpu in &gpus {
                    let found = case.run(gpu, end, kernel, geometry);
                    let what = format!("{kernel} of {rows} rows, {columns:?} columns, {depth} deep");
                    let tolerance = if end == End::Silu && !product.single() { 5e-3 } else { 2e-5 };
                    for (found, expected) in found.iter().zip(&expected) {
                        assert_close(found, expected, tolerance, &what);
                    }
                    let first = first.get_or_insert_with(|| found.clone());
                    assert!(bits(first) == bits(&found), "{what}: bits depend on tile or order");
                }
            }
        }
    }
    assert_eq!(gpus.map(|gpu| gpu.bank_conflicts()), [0, 0], "{product:?}");
}

fn bits(values: &[Vec<f32>]) -> Vec<Vec<u32>> {
    values.iter().map(|values| values.iter().map(|value| value.to_bits()).collect()).collect()
}

#[test]
fn f32_products_are_those_of_the_naive_twin_in_every_tile() {
    check(Product::F32);
}

#[test]
fn bf16_products_are_those_of_the_naive_twin_in_every_tile() {
    check(Product::Bf16);
}

#[test]
fn q8_products_are_those_of_the_naive_twin_in_every_tile() {
    check(Product::Q8);
    check(Product::Q8F32);
}

#[test]
fn q4_products_are_those_of_the_naive_twin_in_every_tile() {
    check(Product::Q4);
    check(Product::Q4F32);
}

#[test]
fn a_row_alone_has_the_bits_that_it_has_among_others() {
    let [gpu, _] = emulators();
    for product in PRODUCTS {
        let case = Case::new(product, 37, &[34], 192);
        let (kernel, geometry) = *case.kernels(&gpu, End::Store).last().unwrap();
        let all = case.run(&gpu, End::Store, kernel, geometry).remove(0);
        for row in [0, 15, 16, 36] {
            let alone = case.row(row);
            let (kernel, geometry) = choose(&gpu.limits(), (product, End::Store), &alone.columns(), 1);
            let alone = alone.run(&gpu, End::Store, kernel, geometry);
            assert_eq!(bits(&alone), bits(&[all[row * 34..(row + 1) * 34].to_vec()]), "{product:?}, row {row}");
        }
    }
}

#[test]
fn blocks_beyond_the_count_leave_the_output_alone() {
    let [gpu, _] = emulators();
    for product in [Product::Bf16, Product::F32] {
        let case = Case::new(product, 3, &[16], 64);
        let columns = case.columns();
        for (kernel, geometry, _) in variants(&gpu.limits(), (product, End::Store), &columns, 700) {
            assert_eq!(case.run(&gpu, End::Store, kernel, geometry)[0].len(), 48, "{kernel}");
        }
    }
}

#[test]
fn few_rows_take_small_tiles_and_many_rows_large_ones() {
    let limits = |shared: u32| Limits { capability: 90, processors: 132, shared: shared << 10, memory: 0 };
    let chosen = |shared, columns: &[u32], rows| choose(&limits(shared), (Product::Bf16, End::Store), columns, rows).0;
    assert_eq!(chosen(227, &[4096], 16), "gemm_bf16_store_32x16");
    assert_eq!(chosen(227, &[4096], 32), "gemm_bf16_store_32x32");
    assert_eq!(chosen(227, &[24576], 32), "gemm_bf16_store_64x32");
    assert_eq!(chosen(227, &[4096, 4096, 4096], 1024), "gemm_bf16_store_128x256");
    assert_eq!(chosen(99, &[4096], 1024), "gemm_bf16_store_128x128");
    let (_, geometry) = choose(&limits(99), (Product::Q4, End::Silu), &[24576], 1024);
    assert_eq!(geometry, Geometry { grid: [8, 192, 1], threads: 256, shared: 76 << 10 });
}
