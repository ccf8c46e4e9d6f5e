//! Memory that many tasks write at once, and the division of work into ranges.

use std::{marker::PhantomData, ops::Range};

use crate::pool::Pool;

/// A borrowed slice whose parts many tasks may write at the same time.
pub(crate) struct Shared<'a, T> {
    pointer: *mut T,
    length: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: the value stands for an exclusive borrow; parts are handed out by an unsafe function, whose callers keep them
// apart.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { pointer: slice.as_mut_ptr(), length: slice.len(), slice: PhantomData }
    }

    /// A part of the slice.
    ///
    /// # Safety
    /// No other part that overlaps this one is in use at the same time.
    ///
    /// # Panics
    /// If the range is not inside the slice.
    #[expect(clippy::mut_from_ref, reason = "the point of the type: the caller keeps the parts apart")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.length, "{range:?} of {}", self.length);
        // SAFETY: the range is inside the borrowed slice; the caller keeps parts in use apart.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(range.start), range.len()) }
    }

    /// Row `row` of rows of `width`.
    ///
    /// # Safety
    /// As for [`Shared::part`].
    #[expect(clippy::mut_from_ref, reason = "the point of the type: the caller keeps the parts apart")]
    pub(crate) unsafe fn row(&self, row: usize, width: usize) -> &mut [T] {
        // SAFETY: as our caller promises.
        unsafe { self.part(row * width..(row + 1) * width) }
    }
}

/// Divides `0..count` into at most `parts` ranges and runs `task(part, range)` on each.
pub(crate) fn for_ranges(pool: &Pool, count: usize, parts: usize, task: impl Fn(usize, Range<usize>) + Sync) {
    let parts = parts.min(count).max(1);
    pool.run(parts, &|part| task(part, part * count / parts..(part + 1) * count / parts));
}
