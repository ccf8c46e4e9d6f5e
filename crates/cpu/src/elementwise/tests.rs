use super::*;
use demask_testkit::naive::network as naive;

fn values(count: usize, seed: u64) -> Vec<f32> {
    naive::noise(count, seed)
}

#[test]
fn norms_match_their_twin_on_every_tier() {
    for isa in Isa::available() {
        for width in [1, 7, 32, 33, 96, 4096] {
            let (x, weight) = (values(width, 1), values(width, 2));
            let mut out = vec![0.0; width];
            rms_norm(isa, &x, &weight, 1e-6, &mut out);
            naive::assert_near(&out, &naive::rms_norm(&x, &weight, 1e-6), 1e-6);
        }
    }
}

#[test]
fn rotation_matches_its_twin_and_leaves_the_rest_of_a_head() {
    for isa in Isa::available() {
        for (head_dim, rotated) in [(8, 8), (64, 64), (20, 12), (128, 64)] {
            let half = rotated / 2;
            let angles = values(3 * half, 3);
            let rotation = Rotation {
                cos: angles.iter().map(|angle| angle.cos()).collect(),
                sin: angles.iter().map(|angle| angle.sin()).collect(),
                half,
            };
            let mut row = values(2 * head_dim, 4);
            let mut expected = row.clone();
            for head in expected.chunks_exact_mut(head_dim) {
                naive::rotate(head, &rotation.cos[2 * half..], &rotation.sin[2 * half..]);
            }
            HeadFinish { isa, head_dim, norm: None, rotation: &rotation, round: false }.finish(&mut row, 2);
            naive::assert_near(&row, &expected, 1e-6);
        }
    }
}

#[test]
fn finished_heads_are_rounded_as_single_numbers_are() {
    let angles = values(32, 7);
    let rotation = Rotation {
        cos: angles.iter().map(|angle| angle.cos()).collect(),
        sin: angles.iter().map(|angle| angle.sin()).collect(),
        half: 32,
    };
    for isa in Isa::available() {
        let finish = HeadFinish { isa, head_dim: 80, norm: None, rotation: &rotation, round: false };
        let mut plain = values(3 * 80, 8);
        (plain[70], plain[79]) = (f32::NAN, f32::INFINITY);
        let mut rounded = plain.clone();
        finish.finish(&mut plain, 0);
        HeadFinish { round: true, ..finish }.finish(&mut rounded, 0);
        let bits = |x: &f32| half::bf16::from_f32(*x).to_f32().to_bits();
        assert_eq!(rounded.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), plain.iter().map(bits).collect::<Vec<_>>());
    }
}

/// Sum and largest of a tile's lanes.
struct Lane<'a>(&'a [f32; LANES]);

impl Operation for Lane<'_> {
    type Output = [f32; 2];

    #[inline(always)]
    fn run<L: Lanes>(self) -> [f32; 2] {
        // SAFETY: the array is one tile long.
        let tile = unsafe { L::load(self.0.as_ptr()) };
        [L::sum(tile), L::most(tile)]
    }
}

#[test]
fn lanes_are_joined_with_the_same_bits_on_every_tier() {
    for seed in 0..100 {
        let tile: [f32; LANES] = values(LANES, seed).try_into().unwrap();
        let expected = [sum_lanes(tile), max_lanes(tile)].map(f32::to_bits);
        for isa in Isa::available() {
            assert_eq!(dispatch(isa, Lane(&tile)).map(f32::to_bits), expected, "{isa:?}");
        }
    }
}

#[test]
fn cosines_match_their_twin_and_survive_zero() {
    for isa in Isa::available() {
        let (a, b) = (values(100, 5), values(100, 6));
        assert!((cosine(isa, &a, &b) - naive::cosine(&a, &b)).abs() < 1e-6);
        assert_eq!(cosine(isa, &a, &[0.0; 100]), 0.0);
    }
}
