//! Owned memory, aligned for the kernels that read it.

use std::{
    alloc::{self, Layout},
    ops::Range,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

/// Alignment of every [`AlignedBytes`]: one cache line, which is also the widest vector and tile row.
const ALIGNMENT: usize = 64;

/// Smallest size that is requested from the operating system itself, which zeroes it on first touch, near the touching
/// thread, and in huge pages where it has them: twice the size of a huge page, so that one fits at any alignment.
const MAPPED: usize = 4 << 20;
/// Smallest and largest size (exclusive) of buffers that stand together in a map of [`SHARED`] bytes. Smaller ones gain
/// nothing, and larger ones have huge pages of their own.
const TOGETHER: Range<usize> = 64 << 10..16 << 20;
/// Bytes of a map that buffers share.
const SHARED: usize = 64 << 20;

/// Memory on a cache-line boundary, zeroed, of fixed size, viewed as plain numbers of any type.
pub struct AlignedBytes {
    pointer: NonNull<u8>,
    length: usize,
    /// Mapping that has the memory; none if it is on the heap.
    map: Option<Arc<memmap2::MmapMut>>,
}

/// The map that buffers come from, one after the other, and its part that none has had yet.
struct SharedMap {
    map: Arc<memmap2::MmapMut>,
    rest: Range<*mut u8>,
}

// SAFETY: addresses of memory that no buffer has.
unsafe impl Send for SharedMap {}

static SHARED_MAP: Mutex<Option<SharedMap>> = Mutex::new(None);

impl SharedMap {
    fn new() -> Option<Self> {
        let (map, rest) = map(SHARED)?;
        Some(Self { map, rest })
    }

    /// Takes a part, if there is enough left.
    fn take(&mut self, length: usize) -> Option<AlignedBytes> {
        let needed = length.next_multiple_of(ALIGNMENT);
        let left = self.rest.end as usize - self.rest.start as usize;
        let pointer = NonNull::new(self.rest.start).filter(|_| needed <= left)?;
        self.rest.start = self.rest.start.wrapping_add(needed);
        Some(AlignedBytes { pointer, length, map: Some(Arc::clone(&self.map)) })
    }
}

/// Maps memory, and wishes for huge pages, which a system without them refuses.
fn map(length: usize) -> Option<(Arc<memmap2::MmapMut>, Range<*mut u8>)> {
    let mut map = memmap2::MmapMut::map_anon(length).ok()?;
    #[cfg(all(target_os = "linux", not(miri)))]
    let _ = map.advise(memmap2::Advice::HugePage);
    let range = map.as_mut_ptr_range();
    Some((Arc::new(map), range))
}

// SAFETY: the buffer owns its memory exclusively; access follows the borrow of the buffer.
unsafe impl Send for AlignedBytes {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// `length` zero bytes, or `None` if the system will not give them.
    pub fn try_zeroed(length: usize) -> Option<Self> {
        if length >= MAPPED {
            return Self::try_mapped(length);
        }
        let layout = Layout::from_size_align(length.max(1), ALIGNMENT).ok()?;
        // SAFETY: the layout has a non-zero size.
        let pointer = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        Some(Self { pointer, length, map: None })
    }

    /// `length` zero bytes beside other buffers of the kind, or `None` if the system will not give them. Together they fill
    /// huge pages, which one alone has too few bytes for: a core waits for addresses of small pages. For buffers that live
    /// long and end together, as a model's weights and its inputs do: the memory of one that ends alone may stay the process's.
    pub fn try_together(length: usize) -> Option<Self> {
        let part = TOGETHER.contains(&length).then(|| Self::try_shared(length)).flatten();
        part.or_else(|| Self::try_zeroed(length))
    }

    /// A part of the shared map, or of a new one if that is used up.
    fn try_shared(length: usize) -> Option<Self> {
        let mut shared = SHARED_MAP.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = shared.as_mut().and_then(|shared| shared.take(length)) {
            return Some(part);
        }
        shared.insert(SharedMap::new()?).take(length)
    }

    /// `length` zero bytes that the system gives when they are first touched, or `None` if it will not give them.
    pub fn try_mapped(length: usize) -> Option<Self> {
        let (map, range) = map(length)?;
        Some(Self { pointer: NonNull::new(range.start)?, length, map: Some(map) })
    }

    /// `length` zero bytes.
    ///
    /// # Panics
    /// Aborts through the allocation error handler if the system will not give them.
    pub fn zeroed(length: usize) -> Self {
        Self::try_zeroed(length).unwrap_or_else(|| {
            let layout = Layout::from_size_align(length.max(1), ALIGNMENT).unwrap_or(Layout::new::<u64>());
            alloc::handle_alloc_error(layout)
        })
    }

    /// Copies the bytes into memory of their own, or returns `None` if the system will not give it.
    pub fn try_clone(&self) -> Option<Self> {
        let mut copy = Self::try_together(self.length)?;
        copy.as_mut_slice::<u8>().copy_from_slice(self.as_slice());
        Some(copy)
    }

    /// Gives the memory of a part back to the system, as far as it came from there, and whole pages of it. The
    /// contents of the part are unspecified from then on: 0, or the former ones.
    ///
    /// # Panics
    /// If the part is not inside.
    pub fn give_back(&mut self, part: Range<usize>) {
        assert!(part.start <= part.end && part.end <= self.length, "{part:?} is not inside");
        #[cfg(all(target_os = "linux", not(miri)))]
        if self.map.is_some() {
            // SAFETY: the call takes a number.
            let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(part.len() + 1);
            let first = self.pointer.as_ptr() as usize;
            let (start, end) = ((first + part.start).next_multiple_of(page), (first + part.end) / page * page);
            if start < end {
                // SAFETY: the part is inside the private map, and the buffer's own, which is borrowed exclusively; the system
                // answers with zeros, which are numbers. If it refuses, all stays as it was.
                let _ = unsafe {
                    libc::madvise(self.pointer.as_ptr().add(start - first).cast(), end - start, libc::MADV_DONTNEED)
                };
            }
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Reports whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Start of the memory, aligned to a cache line.
    pub fn as_ptr(&self) -> *const u8 {
        self.pointer.as_ptr()
    }

    /// Start of the memory, aligned to a cache line.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// The memory as numbers; bytes beyond a whole number are left out.
    pub fn as_slice<T: Number>(&self) -> &[T] {
        // SAFETY: the memory is initialised, aligned for every Number (at most 8 bytes), and any bit pattern is valid.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr().cast(), self.length / size_of::<T>()) }
    }

    /// The memory as numbers; bytes beyond a whole number are left out.
    pub fn as_mut_slice<T: Number>(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr().cast(), self.length / size_of::<T>()) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if self.map.as_ref().is_some_and(|map| Arc::strong_count(map) > 1) {
            // Others have parts of the map, which stays until the last is gone.
            self.give_back(0..self.length);
        } else if self.map.is_none()
            && let Ok(layout) = Layout::from_size_align(self.length.max(1), ALIGNMENT)
        {
            // SAFETY: allocated on the heap in `try_zeroed` with this very layout.
            unsafe { alloc::dealloc(self.pointer.as_ptr(), layout) }
        }
    }
}

/// Plain numbers: any bit pattern is a value.
///
/// # Safety
/// Implementors have no padding, no invalid bit pattern, and an alignment of at most 8.
pub unsafe trait Number: Copy + 'static {}
// SAFETY: a plain number.
unsafe impl Number for f32 {}
// SAFETY: a plain number.
unsafe impl Number for u16 {}
// SAFETY: a plain number.
unsafe impl Number for u32 {}
// SAFETY: a plain number.
unsafe impl Number for u8 {}
// SAFETY: a plain number.
unsafe impl Number for i8 {}
// SAFETY: a plain number.
unsafe impl Number for i32 {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zeroed_and_typed() {
        let mut bytes = AlignedBytes::zeroed(130);
        assert_eq!(bytes.as_ptr() as usize % ALIGNMENT, 0);
        assert_eq!(bytes.as_slice::<f32>(), &[0.0; 32]);
        bytes.as_mut_slice::<u16>()[3] = 7;
        assert_eq!(bytes.as_slice::<u8>()[6], 7);
        let copy = bytes.try_clone().unwrap();
        bytes.as_mut_slice::<u16>()[3] = 8;
        assert_eq!((copy.len(), copy.as_slice::<u16>()[3]), (130, 7));
    }

    #[test]
    fn memory_of_the_system_is_like_that_of_the_heap() {
        for length in [MAPPED - 1, MAPPED, MAPPED + 1] {
            let mut bytes = AlignedBytes::zeroed(length);
            assert_eq!((bytes.len(), bytes.as_ptr() as usize % ALIGNMENT), (length, 0));
            assert!(bytes.as_slice::<u8>().iter().all(|&byte| byte == 0));
            bytes.as_mut_slice::<u8>()[length - 1] = 7;
            assert_eq!((bytes.as_slice::<u8>()[length - 1], bytes.map.is_some()), (7, length >= MAPPED));
        }
    }

    #[test]
    fn buffers_of_one_map_keep_apart() {
        let filled = |value: u8| {
            let mut bytes = AlignedBytes::try_together(TOGETHER.start + 100).unwrap();
            assert!(bytes.as_slice::<u8>().iter().all(|&byte| byte == 0));
            bytes.as_mut_slice::<u8>().fill(value);
            bytes
        };
        let mut all: Vec<_> = (1..=8).map(filled).collect();
        // What a buffer gives back when it goes is its own, and never comes again.
        drop(all.remove(3));
        all.push(filled(9));
        for (bytes, value) in all.iter().zip([1, 2, 3, 5, 6, 7, 8, 9]) {
            assert!(bytes.as_slice::<u8>().iter().all(|&byte| byte == value), "{value}");
        }
        let owners = |bytes: &AlignedBytes| bytes.map.as_ref().map_or(0, Arc::strong_count);
        assert!(all.iter().filter(|bytes| owners(bytes) > 1).count() >= 7);
        let [small, large] =
            [TOGETHER.start - 1, TOGETHER.end].map(|length| AlignedBytes::try_together(length).unwrap());
        assert_eq!([owners(&small), owners(&large)], [0, 1]);
    }

    #[test]
    fn what_is_given_back_is_a_part_and_no_more() {
        let (length, part) = (1 << 20, 10_000..600_001);
        for make in [AlignedBytes::try_mapped, AlignedBytes::try_together, AlignedBytes::try_zeroed] {
            let mut bytes = make(length).unwrap();
            bytes.as_mut_slice::<u8>().fill(7);
            bytes.give_back(part.clone());
            let all = bytes.as_slice::<u8>();
            assert!(all[..part.start].iter().chain(&all[part.end..]).all(|&byte| byte == 7));
            assert!(all[part.clone()].iter().all(|&byte| byte == 7 || byte == 0));
            let gone = all[part.clone()].iter().map(|&byte| usize::from(byte == 0)).sum::<usize>();
            let system = bytes.map.is_some() && cfg!(all(target_os = "linux", not(miri)));
            assert_eq!(gone > 400_000, system, "{gone} bytes went back");
            bytes.give_back(5..5);
            assert!(std::panic::catch_unwind(move || bytes.give_back(0..length + 1)).is_err());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends where an allocation fails")]
    fn an_absurd_size_is_refused_not_aborted() {
        assert!(AlignedBytes::try_zeroed(usize::MAX).is_none());
        assert!(AlignedBytes::try_zeroed(usize::MAX >> 1).is_none());
    }
}
