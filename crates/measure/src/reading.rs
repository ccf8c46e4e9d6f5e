//! Reading memory: how fast this machine does it, and how much must be read so that no cache answers.

use std::{
    fs,
    hint::black_box,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use demask_cpu::{available_memory, isa::Isa, pool::Pool};
use demask_step::OutOfMemory;
use demask_tensor::AlignedBytes;

use crate::check_memory;

mod walk;

/// Bytes that are streamed at least.
const LEAST: usize = 1 << 30;
/// Bytes that one task reads.
const PIECE: usize = 4 << 20;
/// Seconds of trying, and rounds through all patterns, at least. The best run is reported, because other programs on
/// the machine can only slow a run down.
const PATIENCE: f64 = 0.4;
const ROUNDS: usize = 2;

/// Ways to walk through a piece: streams side by side, and bytes that are asked for ahead of each. No single one is the
/// fastest everywhere: one stream may leave a processor's prefetchers idle at each end of a page, many may overtax them.
const PATTERNS: [Pattern; 5] = [
    Pattern { streams: 1, ahead: 0 },
    Pattern { streams: 4, ahead: 0 },
    Pattern { streams: 1, ahead: 2048 },
    Pattern { streams: 4, ahead: 1024 },
    Pattern { streams: 8, ahead: 1024 },
];

/// Bytes that stream from memory when they are read again and again: twice the largest cache, and 1 GiB at least, for
/// caches that the system does not report.
pub fn streamed_bytes() -> usize {
    largest_cache().unwrap_or(0).saturating_mul(2).max(LEAST)
}

/// Bytes of the largest cache that the system tells of.
fn largest_cache() -> Option<usize> {
    let largest = largest_of_folders();
    #[cfg(target_os = "macos")]
    let largest = largest.or_else(largest_of_names);
    largest
}

/// Bytes of the largest cache of Linux's folders.
fn largest_of_folders() -> Option<usize> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = caches.flatten().filter_map(|cache| fs::read_to_string(cache.path().join("size")).ok());
    sizes.filter_map(|size| cache_size(&size)).max()
}

/// Bytes of the largest cache of macOS: the last one, or the second of the fast cores and of the others.
#[cfg(target_os = "macos")]
fn largest_of_names() -> Option<usize> {
    let size = |name: &std::ffi::CStr| {
        // Numbers take four bytes or eight, the lowest first.
        let (mut size, mut length) = (0u64, size_of::<u64>());
        let no_value = std::ptr::null_mut();
        // SAFETY: the name ends with a zero; the system writes `length` bytes at most, and then how many these were.
        let failed = unsafe { libc::sysctlbyname(name.as_ptr(), (&raw mut size).cast(), &raw mut length, no_value, 0) };
        (failed == 0).then_some(size as usize)
    };
    [c"hw.l3cachesize", c"hw.l2cachesize", c"hw.perflevel0.l2cachesize"].into_iter().filter_map(size).max()
}

/// Reads a size of Linux, as `32K` or `8M`.
fn cache_size(text: &str) -> Option<usize> {
    let text = text.trim();
    let number = |digits: &str, shift: u32| digits.parse::<usize>().ok()?.checked_mul(1 << shift);
    match text.as_bytes().last()? {
        b'K' => number(&text[..text.len() - 1], 10),
        b'M' => number(&text[..text.len() - 1], 20),
        b'G' => number(&text[..text.len() - 1], 30),
        _ => number(text, 0),
    }
}

/// Memory that no cache holds, to be read.
pub struct Reading {
    isa: Isa,
    memory: AlignedBytes,
}

/// Pattern by which a piece is read.
#[derive(Debug, Clone, Copy)]
struct Pattern {
    streams: usize,
    ahead: usize,
}

impl Reading {
    /// Fills the memory.
    ///
    /// # Errors
    /// If there is too little of it.
    pub fn new(isa: Isa, pool: &Pool) -> Result<Self, OutOfMemory> {
        Self::of(isa, pool, streamed_bytes().next_multiple_of(PIECE))
    }

    fn of(isa: Isa, pool: &Pool, bytes: usize) -> Result<Self, OutOfMemory> {
        check_memory(bytes as u64)?;
        let failed = || OutOfMemory { needed: bytes as u64, available: available_memory() };
        let mut memory = AlignedBytes::try_zeroed(bytes).ok_or_else(failed)?;
        let pieces: Vec<_> =
            memory.as_mut_slice::<f32>().chunks_mut(PIECE / size_of::<f32>()).map(Mutex::new).collect();
        // Not zero: pages that were never written are one and the same.
        pool.run(pieces.len(), &|piece| pieces[piece].lock().unwrap_or_else(PoisonError::into_inner).fill(1.0));
        drop(pieces);
        Ok(Self { isa, memory })
    }

    /// Bandwidth in GB/s: the best of several patterns and runs.
    pub fn gbs(&self, pool: &Pool) -> f64 {
        let (begun, mut best, mut rounds) = (Instant::now(), f64::INFINITY, 0);
        while rounds < ROUNDS || begun.elapsed().as_secs_f64() < PATIENCE {
            for pattern in PATTERNS {
                let started = Instant::now();
                black_box(self.read(pool, pattern));
                best = best.min(started.elapsed().as_secs_f64());
            }
            rounds += 1;
        }
        self.memory.len() as f64 / best.max(1e-9) / 1e9
    }

    /// Reads everything once; answers a number that depends on every one of them.
    fn read(&self, pool: &Pool, pattern: Pattern) -> u32 {
        let floats = self.memory.as_slice::<f32>();
        let sum = AtomicU32::new(0);
        pool.run(self.memory.len() / PIECE, &|index| {
            let piece = &floats[index * (PIECE / size_of::<f32>())..][..PIECE / size_of::<f32>()];
            // Sums of ones are whole numbers: exact in any order.
            let part = walk::sum(self.isa, piece, pattern) as u32;
            sum.fetch_add(part, Ordering::Relaxed);
        });
        sum.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_caches_are_read() {
        assert_eq!(cache_size("48K\n"), Some(48 << 10));
        assert_eq!(cache_size("266240K"), Some(266_240 << 10));
        assert_eq!(cache_size("8M"), Some(8 << 20));
        assert_eq!(cache_size("64"), Some(64));
        assert_eq!([cache_size(""), cache_size("K"), cache_size("many")], [None; 3]);
        assert!(streamed_bytes() >= LEAST);
    }

    #[test]
    fn every_pattern_reads_everything_once_on_every_tier() {
        let pool = Pool::new(2);
        for isa in Isa::available() {
            let reading = Reading::of(isa, &pool, 3 * PIECE).unwrap();
            for pattern in PATTERNS {
                assert_eq!(reading.read(&pool, pattern) as usize, 3 * PIECE / size_of::<f32>(), "{isa:?} {pattern:?}");
            }
        }
    }

    #[test]
    fn more_memory_than_there_is_is_refused() {
        assert!(Reading::of(Isa::best(), &Pool::new(1), usize::MAX / 2).is_err());
    }
}
