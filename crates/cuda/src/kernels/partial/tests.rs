use demask_step::random::lot;
use demask_tensor::PAGE;
use demask_testkit::naive::{
    linear::round_bf16,
    network::{cosine, noise},
};
use demask_testkit::property;
use proptest::{prelude::*, test_runner::RngSeed};

use super::*;
use crate::{
    arguments::{ChooseArgs, CompareArgs, IncrementArgs, MarkArgs, Probe, RollArgs, Store},
    gpu::Address,
    kernels::trial::{Trial, emulators},
};

fn store(table: &Trial<'_>, pages: &[Address], increments: &[Address], widths: [usize; 3]) -> Store {
    let [kv_heads, head_dim, hidden] = widths.map(|width| width as u32);
    let (pages, increments) = (table.put(pages), table.put(increments));
    Store { pages, increments, residuals: Address::NULL, layers: 2, kv_heads, head_dim, hidden }
}

#[test]
fn rows_are_marked() {
    for table in emulators().each_ref().map(Trial) {
        for (rows, live) in [(&[][..], 3usize), (&[2], 3), (&[0, 1, 2, 4000, 4999], 5000)] {
            let flags = table.room::<u32>(live + 1);
            let args = MarkArgs { list: table.list(rows), live: table.put(&[live as u32]), flags };
            table.run(mark(), &args);
            let expected: Vec<u32> = (0..live as u32).map(|row| u32::from(rows.contains(&row))).collect();
            let found = table.take::<u32>(flags, live + 1);
            assert_eq!((&found[..live], found[live]), (&expected[..], u32::MAX));
        }
    }
}

/// Increments of two pages in both layers, and rows that stand in some of their slots.
struct Held {
    stream: Vec<f32>,
    increments: [Vec<f32>; 2],
    flags: [u32; 6],
    slots: [u32; 6],
}

const LAYER: usize = 1;

impl Held {
    fn new(hidden: usize) -> Self {
        let page = 2 * PAGE * hidden;
        // The last page has no increments.
        let slots = [0, 33, 63, 5, 64 + 7, 31];
        let increments = [noise(page, 2), noise(page, 3)];
        Self { stream: noise(slots.len() * hidden, 1), increments, flags: [1, 1, 0, 0, 1, 1], slots }
    }

    /// A row's numbers and its increments, if it has some.
    fn pair(&mut self, row: u32, hidden: usize) -> Option<(&mut [f32], &mut [f32])> {
        let slot = self.slots[row as usize] as usize;
        let increments = self.increments.get_mut(slot / PAGE)?;
        let at = (LAYER * PAGE + slot % PAGE) * hidden;
        let row = &mut self.stream[row as usize * hidden..(row as usize + 1) * hidden];
        Some((row, &mut increments[at..at + hidden]))
    }
}

#[test]
fn increments_are_begun_completed_and_added() {
    type Kernel = fn(usize) -> (&'static str, Geometry);
    type Step = fn(&mut f32, &mut f32);
    let steps: [(Kernel, u32, Step); 3] = [
        (hold, 1, |x, increment| *increment = -*x),
        (settle_held, 1, |x, increment| *increment += *x),
        (settle_rest, 0, |x, increment| *x += *increment),
    ];
    for hidden in [7, 300] {
        for rows in [&[][..], &[0, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]] {
            for table in emulators().each_ref().map(Trial) {
                for (kernel, wanted, step) in steps {
                    let mut held = Held::new(hidden);
                    let pages = held.increments.each_ref().map(|increments| table.put(increments));
                    let stream = table.put(&held.stream);
                    let args = IncrementArgs {
                        list: table.list(rows),
                        flags: table.put(&held.flags),
                        slots: table.put(&held.slots),
                        stream,
                        store: store(&table, &[], &[pages[0], pages[1], Address::NULL], [1, 1, hidden]),
                        layer: LAYER as u32,
                        unused: 0,
                    };
                    table.run(kernel(8), &args);
                    let flags = held.flags;
                    for &row in rows.iter().filter(|&&row| flags[row as usize] == wanted) {
                        if let Some((row, increment)) = held.pair(row, hidden) {
                            row.iter_mut().zip(increment).for_each(|(x, increment)| step(x, increment));
                        }
                    }
                    assert_eq!(table.take::<f32>(stream, held.stream.len()), held.stream);
                    for (page, expected) in pages.into_iter().zip(&held.increments) {
                        assert_eq!(&table.take::<f32>(page, expected.len()), expected);
                    }
                }
            }
        }
    }
}

#[test]
fn random_probes_roll_the_numbers_of_their_key_layer_and_position() {
    let probed: Vec<u32> = (0..700).rev().collect();
    let positions: Vec<u32> = (0..700).map(|row| row * 3 + 1).collect();
    let probe = |first, rows, random, key| Probe { first, rows, keep: 1, random, key };
    let probes = [probe(0, 300, 1, 5), probe(300, 10, 0, 6), probe(310, 390, 1, u64::MAX), probe(0, 700, 1, 1)];
    for table in emulators().each_ref().map(Trial) {
        for layer in [0, 3, 31] {
            let scores = table.put(&[-1f64; 700]);
            let args = RollArgs {
                probes: table.put(&probes),
                count: table.put(&[3u32]),
                probed: table.put(&probed),
                positions: table.put(&positions),
                scores,
                layer,
                unused: 0,
            };
            table.run(roll(8), &args);
            let number = |place: usize, key: u64| {
                let position = positions[probed[place] as usize];
                (lot(key, u64::from(layer), u64::from(position)) >> 11) as f64
            };
            let expected: Vec<f64> = (0..700)
                .map(|place| match place {
                    0..300 => number(place, 5),
                    300..310 => -1.0,
                    _ => number(place, u64::MAX),
                })
                .collect();
            assert_eq!(table.take::<f64>(scores, 700), expected);
        }
    }
}

#[test]
fn rows_are_compared_with_what_their_slots_hold() {
    let (rows, places, slots) = ([5u32, 0, 3], [7u32, 2, 0], [40u32, 0, 0, 63, 0, 1]);
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for (kv_heads, head_dim) in [(1, 4), (2, 12), (8, 128)] {
            let width = kv_heads * head_dim;
            let pages: Vec<Vec<f32>> = (0..2).map(|page| noise(2 * 2 * PAGE * width, 10 + page)).collect();
            let pages: Vec<Vec<f32>> = match dtype {
                Dtype::Bf16 => pages.iter().map(|page| page.iter().map(|&x| round_bf16(x)).collect()).collect(),
                _ => pages,
            };
            let mut fresh = noise(3 * width, 5);
            // A row of zeros has a cosine too.
            fresh[width..2 * width].fill(0.0);
            for table in emulators().each_ref().map(Trial) {
                let put = |page: &Vec<f32>| match dtype {
                    Dtype::Bf16 => table.put(&page.iter().map(|x| (x.to_bits() >> 16) as u16).collect::<Vec<_>>()),
                    _ => table.put(page),
                };
                let addresses: Vec<Address> = pages.iter().map(put).collect();
                for value in [0, 1] {
                    let scores = table.put(&[9f64; 8]);
                    let args = CompareArgs {
                        list: table.list(&rows),
                        places: table.put(&places),
                        fresh: table.put(&fresh),
                        slots: table.put(&slots),
                        scores,
                        store: store(&table, &addresses, &[], [kv_heads, head_dim, 0]),
                        layer: LAYER as u32,
                        value,
                    };
                    table.run(compare(dtype, 6), &args);
                    let found = table.take::<f64>(scores, 8);
                    let mut expected = [9f64; 8];
                    for (index, &row) in rows.iter().enumerate() {
                        let slot = slots[row as usize] as usize;
                        let stored: Vec<f32> = (0..width)
                            .map(|column| {
                                let head = (LAYER * 2 + value as usize) * kv_heads + column / head_dim;
                                pages[slot / PAGE][(head * PAGE + slot % PAGE) * head_dim + column % head_dim]
                            })
                            .collect();
                        let cosine = cosine(&fresh[index * width..(index + 1) * width], &stored);
                        expected[places[index] as usize] = f64::from(cosine);
                    }
                    for (found, expected) in found.iter().zip(expected) {
                        assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
                    }
                    assert_eq!(found[2], 0.0);
                }
            }
        }
    }
}

/// Rows, fixed rows, and probes with their rows and scores.
#[derive(Debug, Clone)]
struct Choice {
    live: u32,
    fixed: Vec<u32>,
    /// Rows with scores, and how many are kept.
    probes: Vec<(Vec<(u32, f64)>, usize)>,
}

impl Choice {
    /// Expected choice, by sorting everything.
    fn expected(&self) -> Vec<u32> {
        let mut computed = self.fixed.clone();
        for (rows, keep) in &self.probes {
            let mut rows = rows.clone();
            rows.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
            computed.extend(rows[..*keep].iter().map(|&(row, _)| row));
        }
        computed.sort_unstable();
        computed
    }

    fn found(&self, table: &Trial<'_>) -> Vec<u32> {
        let all: Vec<(u32, f64)> = self.probes.iter().flat_map(|(rows, _)| rows.clone()).collect();
        let mut first = 0;
        let mut probes = Vec::new();
        for (rows, keep) in &self.probes {
            probes.push(Probe { first, rows: rows.len() as u32, keep: *keep as u32, random: 0, key: 0 });
            first += rows.len() as u32;
        }
        let live = self.live as usize;
        let args = ChooseArgs {
            fixed: table.list(&self.fixed),
            count: table.put(&[probes.len() as u32]),
            probes: table.put(&probes),
            probed: table.put(&all.iter().map(|&(row, _)| row).collect::<Vec<_>>()),
            scores: table.put(&all.iter().map(|&(_, score)| score).collect::<Vec<_>>()),
            live: table.put(&[self.live]),
            flags: table.room::<u32>(live),
            computed: crate::arguments::List { rows: table.room::<u32>(live), count: table.room::<u32>(1) },
        };
        table.run(choose(), &args);
        let count = table.take::<u32>(args.computed.count, 1)[0] as usize;
        let computed = table.take::<u32>(args.computed.rows, live);
        assert!(computed[count..].iter().all(|&row| row == u32::MAX), "rows behind the count");
        computed[..count].to_vec()
    }
}

/// Scores as they come: cosines of few and of many values, random numbers, and what should not come.
fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (0..4u32).prop_map(|step| f64::from(step as f32 / 4.0)),
        4 => (-1f32..1.0).prop_map(f64::from),
        2 => any::<u64>().prop_map(|number| (number >> 11) as f64),
        1 => any::<f64>(),
        1 => prop::sample::select(vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY]),
    ]
}

/// Each live row is fixed, in one of some probes, or in none.
fn choices(most: usize) -> impl Strategy<Value = Choice> {
    let row = (0..5usize, score());
    (prop::collection::vec(row, 1..most), prop::collection::vec(0f64..=1.0, 3)).prop_map(|(rows, shares)| {
        let live = rows.len() as u32;
        let of = |wanted: usize| {
            let rows = rows.iter().zip(0..).filter(move |((part, _), _)| *part == wanted);
            rows.map(|(&(_, score), row)| (row, score)).collect::<Vec<(u32, f64)>>()
        };
        let probe = |(part, share): (usize, &f64)| {
            let rows = of(part + 2);
            let keep = (rows.len() as f64 * share).round() as usize;
            (rows, keep)
        };
        let probes = shares.iter().enumerate().map(probe).collect();
        Choice { live, fixed: of(0).into_iter().map(|(row, _)| row).collect(), probes }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..property::cases(60) })]

    #[test]
    fn choices_are_those_of_a_sort(choice in choices(300)) {
        for table in emulators().each_ref().map(Trial) {
            prop_assert_eq!(choice.found(&table), choice.expected());
        }
    }
}

#[test]
fn thousands_of_rows_are_chosen_from_and_ties_go_to_the_lowest() {
    let gpus = emulators();
    for rows in [1u32, 1023, 1024, 1025, 5000] {
        for scores in [
            |_: u32| 0.5,
            |row: u32| f64::from(row % 7) - 3.0,
            |row: u32| f64::from(!row),
            |row: u32| f64::from((row as f32 * 0.37).sin()),
        ] {
            for keep in [0, 1, rows / 3, rows - 1, rows] {
                let probe = ((1..=rows).map(|row| (row, scores(row))).collect(), keep as usize);
                let choice = Choice { live: rows + 5, fixed: vec![0, rows + 2], probes: vec![probe] };
                for gpu in &gpus {
                    assert_eq!(choice.found(&Trial(gpu)), choice.expected(), "{keep} of {rows}");
                }
            }
        }
    }
}

#[test]
fn without_probes_the_fixed_rows_are_computed_and_without_those_none() {
    for table in emulators().each_ref().map(Trial) {
        for fixed in [vec![], vec![3, 9]] {
            let choice = Choice { live: 10, fixed: fixed.clone(), probes: vec![(vec![], 0)] };
            assert_eq!(choice.found(&table), fixed);
            assert_eq!(Choice { probes: vec![], ..choice }.found(&table), fixed);
        }
    }
}
