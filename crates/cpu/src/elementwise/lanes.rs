//! Tiles of 32 numbers in the vectors of each instruction set, so that a kernel is written once.

use super::{max_lanes, sum_lanes};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::isa::Tier;
use crate::{
    isa::Isa,
    linear::{activation::widen_bf16, pack},
};

/// Numbers in a tile: as many as a page has positions.
pub(crate) const LANES: usize = demask_tensor::PAGE;

/// Vector arithmetic on tiles of [`LANES`] numbers.
pub(crate) trait Lanes {
    /// A tile in registers.
    type Tile: Copy;
    /// Vectors in which weights are packed.
    type Packing: pack::Vectors;
    /// Number of tiles of sums that fit into the registers, beside their inputs.
    const SUMS: usize;

    /// All zero.
    fn zero() -> Self::Tile;
    /// Reads [`LANES`] numbers.
    ///
    /// # Safety
    /// They must be readable; they need not be aligned.
    unsafe fn load(from: *const f32) -> Self::Tile;
    /// Reads [`LANES`] bf16 numbers.
    ///
    /// # Safety
    /// They must be readable; they need not be aligned.
    unsafe fn load_bf16(from: *const u16) -> Self::Tile;
    /// Writes [`LANES`] numbers.
    ///
    /// # Safety
    /// They must be writable; they need not be aligned.
    unsafe fn store(tile: Self::Tile, to: *mut f32);
    /// `tile * factor`.
    fn scale(tile: Self::Tile, factor: f32) -> Self::Tile;
    /// `sum + tile * factor`, fused where the instruction set does so.
    fn scale_add(sum: Self::Tile, tile: Self::Tile, factor: f32) -> Self::Tile;
    /// Scales and adds single numbers, with the same rounding.
    fn scale_add_one(sum: f32, value: f32, factor: f32) -> f32;
    /// Adds the lanes pair by pair: each with the one half a tile away, and so on.
    fn sum(tile: Self::Tile) -> f32;
    /// The largest lane; a NaN may be passed over.
    fn most(tile: Self::Tile) -> f32;
    /// [`Self::sum`] of an array.
    #[inline(always)]
    fn sum_of(lanes: &[f32; LANES]) -> f32 {
        // SAFETY: the array is one tile long.
        Self::sum(unsafe { Self::load(lanes.as_ptr()) })
    }
    /// [`Self::most`] of an array.
    #[inline(always)]
    fn most_of(lanes: &[f32; LANES]) -> f32 {
        // SAFETY: the array is one tile long.
        Self::most(unsafe { Self::load(lanes.as_ptr()) })
    }
    /// Lets a cache line come that will be read soon. It may be anywhere.
    fn fetch(line: *const u8);
}

/// Numbers that K and V are stored in.
pub(crate) trait Element: demask_tensor::Number + Send + Sync {
    /// Reads a tile.
    ///
    /// # Safety
    /// [`LANES`] numbers must be readable.
    unsafe fn load<L: Lanes>(from: *const Self) -> L::Tile;
    /// Widens one number.
    fn widen(self) -> f32;
    /// Rounds one number.
    fn narrow(value: f32) -> Self;
}

impl Element for f32 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const Self) -> L::Tile {
        // SAFETY: as our caller promises.
        unsafe { L::load(from) }
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        value
    }
}

/// bf16.
impl Element for u16 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const Self) -> L::Tile {
        // SAFETY: as our caller promises.
        unsafe { L::load_bf16(from) }
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        widen_bf16(self)
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        crate::linear::activation::round_bf16(value)
    }
}

/// Work that is compiled for each instruction set.
pub(crate) trait Operation {
    /// Result of the operation.
    type Output;
    /// Does it. Implementations are `#[inline(always)]`, so that they are compiled with the caller's instructions.
    fn run<L: Lanes>(self) -> Self::Output;
}

/// Runs an operation with the widest vectors that may be executed.
#[inline]
pub(crate) fn dispatch<O: Operation>(isa: Isa, operation: O) -> O::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if isa.has(Tier::Avx512) {
            // SAFETY: `Isa` is the proof that the tier's instructions may be executed.
            return unsafe { x86::run_avx512(operation) };
        }
        if isa.has(Tier::Avx2) {
            // SAFETY: as above.
            return unsafe { x86::run_avx2(operation) };
        }
    }
    #[cfg(target_arch = "aarch64")]
    if isa.has(Tier::Neon) {
        // SAFETY: as above.
        return unsafe { super::neon::run(operation) };
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = isa;
    operation.run::<Portable>()
}

/// Arrays, for any processor: no fused multiplication.
pub(crate) struct Portable;

impl Lanes for Portable {
    type Tile = [f32; LANES];
    type Packing = pack::Portable;
    const SUMS: usize = 1;

    #[inline(always)]
    fn zero() -> Self::Tile {
        [0.0; LANES]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Tile {
        // SAFETY: as our caller promises.
        unsafe { from.cast::<Self::Tile>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::Tile {
        // SAFETY: as our caller promises.
        let raw = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        raw.map(widen_bf16)
    }

    #[inline(always)]
    unsafe fn store(tile: Self::Tile, to: *mut f32) {
        // SAFETY: as our caller promises.
        unsafe { to.cast::<Self::Tile>().write_unaligned(tile) }
    }

    #[inline(always)]
    fn scale(tile: Self::Tile, factor: f32) -> Self::Tile {
        tile.map(|value| value * factor)
    }

    #[inline(always)]
    fn scale_add(mut sum: Self::Tile, tile: Self::Tile, factor: f32) -> Self::Tile {
        for lane in 0..LANES {
            sum[lane] += tile[lane] * factor;
        }
        sum
    }

    #[inline(always)]
    fn scale_add_one(sum: f32, value: f32, factor: f32) -> f32 {
        sum + value * factor
    }

    #[inline(always)]
    fn sum(tile: Self::Tile) -> f32 {
        sum_lanes(tile)
    }

    #[inline(always)]
    fn most(tile: Self::Tile) -> f32 {
        max_lanes(tile)
    }

    #[inline(always)]
    fn fetch(_line: *const u8) {}
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! The vectors of x86. Their methods are inlined into functions compiled for the instruction set: `run_avx2` and
    //! `run_avx512` are the only ways to them, and are called with an [`Isa`](crate::isa::Isa) in hand.

    use std::arch::x86_64::{
        __m256, __m512, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_loadu_si128, _mm_max_ps, _mm_max_ss,
        _mm_movehdup_ps, _mm_movehl_ps, _mm256_add_ps, _mm256_castps256_ps128, _mm256_castsi256_ps,
        _mm256_cvtepu16_epi32, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
        _mm256_max_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps,
        _mm512_add_ps, _mm512_castps512_ps256, _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_extractf32x8_ps,
        _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_max_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps,
        _mm512_slli_epi32, _mm512_storeu_ps,
    };

    use super::{Lanes, Operation};
    use crate::{fetch, linear::pack};

    /// # Safety
    /// AVX2 and FMA must be there.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn run_avx2<O: Operation>(operation: O) -> O::Output {
        operation.run::<Avx2>()
    }

    /// # Safety
    /// AVX-512 F, BW, DQ and VL must be there.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub(super) unsafe fn run_avx512<O: Operation>(operation: O) -> O::Output {
        operation.run::<Avx512>()
    }

    /// Adds eight lanes pair by pair: each with the one half a vector away, and so on.
    ///
    /// # Safety
    /// AVX must be there.
    #[inline(always)]
    unsafe fn sum_eight(lanes: __m256) -> f32 {
        // SAFETY: as our caller promises.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    /// The largest of eight lanes.
    ///
    /// # Safety
    /// AVX must be there.
    #[inline(always)]
    unsafe fn most_of_eight(lanes: __m256) -> f32 {
        // SAFETY: as our caller promises.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    /// Four vectors of 8.
    pub(super) struct Avx2;

    impl Lanes for Avx2 {
        type Tile = [__m256; 4];
        type Packing = pack::Portable;
        const SUMS: usize = 2;

        #[inline(always)]
        fn zero() -> Self::Tile {
            // SAFETY: reached through `run_avx2` alone.
            [unsafe { _mm256_setzero_ps() }; 4]
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self::Tile {
            // SAFETY: reached through `run_avx2` alone; the numbers are readable, as our caller promises.
            std::array::from_fn(|part| unsafe { _mm256_loadu_ps(from.add(8 * part)) })
        }

        #[inline(always)]
        unsafe fn load_bf16(from: *const u16) -> Self::Tile {
            // SAFETY: reached through `run_avx2` alone; the numbers are readable, as our caller promises.
            std::array::from_fn(|part| unsafe {
                let raw = _mm_loadu_si128(from.add(8 * part).cast());
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(raw)))
            })
        }

        #[inline(always)]
        unsafe fn store(tile: Self::Tile, to: *mut f32) {
            for (part, values) in tile.into_iter().enumerate() {
                // SAFETY: reached through `run_avx2` alone; the numbers are writable, as our caller promises.
                unsafe { _mm256_storeu_ps(to.add(8 * part), values) }
            }
        }

        #[inline(always)]
        fn scale(tile: Self::Tile, factor: f32) -> Self::Tile {
            // SAFETY: reached through `run_avx2` alone.
            tile.map(|values| unsafe { _mm256_mul_ps(values, _mm256_set1_ps(factor)) })
        }

        #[inline(always)]
        fn scale_add(sum: Self::Tile, tile: Self::Tile, factor: f32) -> Self::Tile {
            // SAFETY: reached through `run_avx2` alone.
            std::array::from_fn(|part| unsafe { _mm256_fmadd_ps(tile[part], _mm256_set1_ps(factor), sum[part]) })
        }

        #[inline(always)]
        fn scale_add_one(sum: f32, value: f32, factor: f32) -> f32 {
            value.mul_add(factor, sum)
        }

        #[inline(always)]
        fn sum([first, second, third, fourth]: Self::Tile) -> f32 {
            // SAFETY: reached through `run_avx2` alone.
            unsafe { sum_eight(_mm256_add_ps(_mm256_add_ps(first, third), _mm256_add_ps(second, fourth))) }
        }

        #[inline(always)]
        fn most([first, second, third, fourth]: Self::Tile) -> f32 {
            // SAFETY: reached through `run_avx2` alone.
            unsafe { most_of_eight(_mm256_max_ps(_mm256_max_ps(first, third), _mm256_max_ps(second, fourth))) }
        }

        #[inline(always)]
        fn fetch(line: *const u8) {
            fetch::near(line);
        }
    }

    /// Two vectors of 16.
    pub(super) struct Avx512;

    impl Lanes for Avx512 {
        type Tile = [__m512; 2];
        type Packing = pack::Avx512;
        const SUMS: usize = 12;

        #[inline(always)]
        fn zero() -> Self::Tile {
            // SAFETY: reached through `run_avx512` alone.
            [unsafe { _mm512_setzero_ps() }; 2]
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self::Tile {
            // SAFETY: reached through `run_avx512` alone; the numbers are readable, as our caller promises.
            std::array::from_fn(|part| unsafe { _mm512_loadu_ps(from.add(16 * part)) })
        }

        #[inline(always)]
        unsafe fn load_bf16(from: *const u16) -> Self::Tile {
            // SAFETY: reached through `run_avx512` alone; the numbers are readable, as our caller promises.
            std::array::from_fn(|part| unsafe {
                let raw = _mm256_loadu_si256(from.add(16 * part).cast());
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(raw)))
            })
        }

        #[inline(always)]
        unsafe fn store(tile: Self::Tile, to: *mut f32) {
            for (part, values) in tile.into_iter().enumerate() {
                // SAFETY: reached through `run_avx512` alone; the numbers are writable, as our caller promises.
                unsafe { _mm512_storeu_ps(to.add(16 * part), values) }
            }
        }

        #[inline(always)]
        fn scale(tile: Self::Tile, factor: f32) -> Self::Tile {
            // SAFETY: reached through `run_avx512` alone.
            tile.map(|values| unsafe { _mm512_mul_ps(values, _mm512_set1_ps(factor)) })
        }

        #[inline(always)]
        fn scale_add(sum: Self::Tile, tile: Self::Tile, factor: f32) -> Self::Tile {
            // SAFETY: reached through `run_avx512` alone.
            std::array::from_fn(|part| unsafe { _mm512_fmadd_ps(tile[part], _mm512_set1_ps(factor), sum[part]) })
        }

        #[inline(always)]
        fn scale_add_one(sum: f32, value: f32, factor: f32) -> f32 {
            value.mul_add(factor, sum)
        }

        #[inline(always)]
        fn sum([first, second]: Self::Tile) -> f32 {
            // SAFETY: reached through `run_avx512` alone.
            unsafe {
                let sums = _mm512_add_ps(first, second);
                sum_eight(_mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps::<1>(sums)))
            }
        }

        #[inline(always)]
        fn most([first, second]: Self::Tile) -> f32 {
            // SAFETY: reached through `run_avx512` alone.
            unsafe {
                let most = _mm512_max_ps(first, second);
                most_of_eight(_mm256_max_ps(_mm512_castps512_ps256(most), _mm512_extractf32x8_ps::<1>(most)))
            }
        }

        #[inline(always)]
        fn fetch(line: *const u8) {
            fetch::near(line);
        }
    }
}
