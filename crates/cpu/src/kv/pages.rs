//! The memory of pages: slabs that the system maps and gives when they are first written, and pages without a holder.
//!
//! A page keeps what its last holder wrote: nothing is zeroed before a page is used again. Slots are written before they are
//! read by any plan (`PlanError::SlotNeverWritten`), and no kernel multiplies what lies beyond a row's keys.

use std::ops::Range;

use demask_step::OutOfMemory;
use demask_tensor::{AlignedBytes, Number, PageKind};

use super::memory;

/// Least bytes of a slab, as long as its pages are not too many: a process has 65,530 maps at most (Linux), and a large
/// request has hundreds of pages.
const SLAB: usize = 16 << 20;
/// Most pages of a slab that are mapped beyond those that are wanted.
const MOST_SPARE: usize = 64;
/// Bytes of free pages that keep their memory, for requests that come one after the other. The memory of further
/// released pages goes back to the system.
const WARM: usize = 64 << 20;

/// Pages of one model.
#[derive(Default)]
pub(super) struct PageMemory {
    slabs: Vec<Slab>,
    pages: Vec<Page>,
    /// Free pages of each kind.
    free: Vec<Free>,
    /// Numbers of pages without memory.
    vacant: Vec<u32>,
    /// Bytes of free pages that have their memory.
    warm: usize,
    /// Bytes of pages that are held and not written yet: the system still counts them as its own.
    promised: u64,
}

/// Pages of one kind in one map; empty if it was given back.
struct Slab {
    bytes: AlignedBytes,
    kind: PageKind,
    pages: Vec<u32>,
    held: usize,
}

#[derive(Debug, Clone, Copy)]
struct Page {
    slab: u32,
    /// First byte in the slab.
    start: usize,
    kind: PageKind,
    /// Records whether it has its memory: it was written since it was mapped or given back.
    resident: bool,
    /// Records whether it may hold anything but zeros.
    used: bool,
}

/// Free pages of a kind.
struct Free {
    kind: PageKind,
    /// Those that have their memory.
    warm: Vec<u32>,
    /// Those that the system gives memory when they are written.
    cold: Vec<u32>,
}

impl PageMemory {
    /// Appends `count` pages of a kind and a size in bytes, a whole number of cache lines; on failure none. `clear` is a part of
    /// each that is zeroed.
    pub(super) fn allocate(
        &mut self,
        count: usize,
        (kind, length): (PageKind, usize),
        clear: Range<usize>,
        pages: &mut Vec<u32>,
    ) -> Result<(), OutOfMemory> {
        let (warm, cold) = self.free(kind).map_or((0, 0), |free| (free.warm.len(), free.cold.len()));
        let fresh = count.saturating_sub(warm);
        if fresh > 0 {
            // Memory of free pages of other kinds goes back before more is taken.
            let own = warm * length;
            let needed = (fresh as u64).saturating_mul(length as u64).saturating_sub((self.warm - own) as u64);
            memory::check(needed)?;
            self.cool_others(kind);
        }
        if fresh > cold {
            self.unmap_others(kind);
            self.map(fresh - cold, kind, length)?;
        }
        for _ in 0..count {
            let page = self.take(kind);
            pages.push(page);
            if self.pages[page as usize].used && !clear.is_empty() {
                self.numbers_mut::<u8>(page)[clear.clone()].fill(0);
            }
        }
        Ok(())
    }

    fn free(&self, kind: PageKind) -> Option<&Free> {
        self.free.iter().find(|free| free.kind == kind)
    }

    fn free_mut(&mut self, kind: PageKind) -> &mut Free {
        let at = self.free.iter().position(|free| free.kind == kind).unwrap_or_else(|| {
            self.free.push(Free { kind, warm: Vec::new(), cold: Vec::new() });
            self.free.len() - 1
        });
        &mut self.free[at]
    }

    /// Takes a free page, of which there is one: best one that has its memory.
    fn take(&mut self, kind: PageKind) -> u32 {
        let free = self.free_mut(kind);
        let Some(number) = free.warm.pop().or_else(|| free.cold.pop()) else { unreachable!("as many were mapped") };
        let Page { slab, resident, .. } = self.pages[number as usize];
        self.slabs[slab as usize].held += 1;
        let length = self.length(number);
        if resident {
            self.warm -= length;
        } else {
            self.promised += length as u64;
            memory::promise(length as u64);
        }
        number
    }

    /// Maps a slab for at least this number of pages. Further pages take no memory before they are used.
    fn map(&mut self, count: usize, kind: PageKind, length: usize) -> Result<(), OutOfMemory> {
        let size = |count: usize| count.saturating_mul(length);
        let mapped = [count.max((SLAB / length.max(1)).min(MOST_SPARE)), count]
            .into_iter()
            .find_map(|count| AlignedBytes::try_mapped(size(count)).map(|bytes| (count, bytes)));
        let (count, bytes) = mapped.ok_or_else(|| memory::refused(size(count)))?;
        let slab = self.slabs.iter().position(|slab| slab.bytes.is_empty()).unwrap_or(self.slabs.len());
        let mut numbers = Vec::with_capacity(count);
        for index in 0..count {
            let number = self.vacant.pop().unwrap_or(self.pages.len() as u32);
            let page = Page { slab: slab as u32, start: index * length, kind, resident: false, used: false };
            match self.pages.get_mut(number as usize) {
                Some(old) => *old = page,
                None => self.pages.push(page),
            }
            numbers.push(number);
        }
        // Giving pages back allocates nothing: it happens between forwards.
        let all =
            self.slabs.iter().filter(|slab| slab.kind == kind).map(|slab| slab.pages.len()).sum::<usize>() + count;
        let free = self.free_mut(kind);
        free.cold.extend(numbers.iter().rev());
        free.cold.reserve(all - free.cold.len().min(all));
        free.warm.reserve(all - free.warm.len().min(all));
        let slab_of_pages = Slab { bytes, kind, pages: numbers, held: 0 };
        match self.slabs.get_mut(slab) {
            Some(old) => *old = slab_of_pages,
            None => self.slabs.push(slab_of_pages),
        }
        Ok(())
    }

    /// Gives the memory of free pages of other kinds back.
    fn cool_others(&mut self, kind: PageKind) {
        for index in 0..self.free.len() {
            if self.free[index].kind != kind {
                while let Some(number) = self.free[index].warm.pop() {
                    self.warm -= self.length(number);
                    self.cool(number);
                    self.free[index].cold.push(number);
                }
            }
        }
    }

    /// Unmaps slabs of other kinds without a held page.
    fn unmap_others(&mut self, kind: PageKind) {
        for slab in self.slabs.iter_mut().filter(|slab| slab.kind != kind && slab.held == 0 && !slab.bytes.is_empty()) {
            slab.bytes = AlignedBytes::zeroed(0);
            for free in self.free.iter_mut().filter(|free| free.kind == slab.kind) {
                free.cold.retain(|number| !slab.pages.contains(number));
            }
            self.vacant.append(&mut slab.pages);
        }
    }

    /// Gives the memory of a page back.
    fn cool(&mut self, number: u32) {
        let (part, page) = (self.part(number), &mut self.pages[number as usize]);
        page.resident = false;
        self.slabs[page.slab as usize].bytes.give_back(part);
    }

    /// Takes pages back. Those beyond the warm ones lose their memory.
    pub(super) fn release(&mut self, pages: &[u32]) {
        for &number in pages {
            let Page { slab, kind, resident, .. } = self.pages[number as usize];
            self.slabs[slab as usize].held -= 1;
            let length = self.length(number);
            let warm = resident && self.warm + length <= WARM;
            if warm {
                self.warm += length;
                self.free_mut(kind).warm.push(number);
                continue;
            }
            if resident {
                self.cool(number);
            } else {
                self.promised -= length as u64;
                memory::keep(length as u64);
            }
            self.free_mut(kind).cold.push(number);
        }
    }

    /// Learns that a page that is held is written from now on.
    pub(super) fn touch(&mut self, number: u32) {
        let length = self.length(number) as u64;
        let page = &mut self.pages[number as usize];
        if !page.resident {
            (page.resident, page.used) = (true, true);
            self.promised -= length;
            memory::keep(length);
        }
    }

    pub(super) fn kind(&self, number: u32) -> PageKind {
        self.pages[number as usize].kind
    }

    /// Bytes of a page.
    fn length(&self, number: u32) -> usize {
        let slab = &self.slabs[self.pages[number as usize].slab as usize];
        slab.bytes.len() / slab.pages.len().max(1)
    }

    /// The page's part of its slab.
    fn part(&self, number: u32) -> Range<usize> {
        let start = self.pages[number as usize].start;
        start..start + self.length(number)
    }

    /// Numbers of a page.
    pub(super) fn numbers<T: Number>(&self, number: u32) -> &[T] {
        let (part, slab) = (self.part(number), self.pages[number as usize].slab);
        &self.slabs[slab as usize].bytes.as_slice::<T>()[part.start / size_of::<T>()..part.end / size_of::<T>()]
    }

    /// Numbers of a page.
    pub(super) fn numbers_mut<T: Number>(&mut self, number: u32) -> &mut [T] {
        let (part, slab) = (self.part(number), self.pages[number as usize].slab);
        let bytes = &mut self.slabs[slab as usize].bytes;
        &mut bytes.as_mut_slice::<T>()[part.start / size_of::<T>()..part.end / size_of::<T>()]
    }

    /// Address of the first byte of a page, and how many there are.
    pub(super) fn place(&self, number: u32) -> (*const u8, usize) {
        let (part, slab) = (self.part(number), self.pages[number as usize].slab);
        (self.slabs[slab as usize].bytes.as_ptr().wrapping_add(part.start), part.len())
    }
}

#[cfg(test)]
impl PageMemory {
    pub(super) fn maps(&self) -> usize {
        self.slabs.iter().filter(|slab| !slab.bytes.is_empty()).count()
    }

    pub(super) fn promised(&self) -> u64 {
        self.promised
    }

    pub(super) fn resident(&self) -> usize {
        self.pages.iter().filter(|page| page.resident).count()
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        memory::keep(self.promised);
    }
}
