//! The paged K/V store: pages in slabs, and tables of their addresses on the device.
//!
//! A page is one piece of memory: for each layer K of all heads and V of all heads, then the increments of all layers,
//! then the differences, the last two only in pages of such a kind. Kernels find a page by its number in three tables:
//! one each of where K/V, increments and differences begin, 0 where a page has none.

use std::sync::Arc;

use demask_step::OutOfMemory;
use demask_tensor::{AttentionShape, Dtype, PAGE, PageKind};

use super::{
    memory::{Buffer, Failure},
    widened,
};
use crate::{
    arguments::Store,
    gpu::{Address, Gpu, GpuError},
};

/// Alignment of pages: the one of allocations, so that no page shares a sector of memory with another.
const ALIGNMENT: usize = 256;
/// Tables at the beginning; they double.
const FIRST_TABLE: usize = 256;
/// Tables: of K/V, of increments, of differences.
const TABLES: usize = 3;

/// Layout of a page; everything in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) shape: AttentionShape,
    pub(super) dtype: Dtype,
    pub(super) layers: usize,
    pub(super) hidden: usize,
}

impl Layout {
    /// K, or V, of a layer.
    fn tensor(&self) -> usize {
        self.shape.kv_heads * PAGE * self.shape.head_dim * self.dtype.size()
    }

    /// Start of K, or of V, of a layer.
    fn tensor_at(&self, layer: usize, value: bool) -> usize {
        (2 * layer + usize::from(value)) * self.tensor()
    }

    /// `[PAGE, hidden]` f32.
    fn rows(&self) -> usize {
        PAGE * self.hidden * size_of::<f32>()
    }

    fn increments_at(&self) -> usize {
        2 * self.layers * self.tensor()
    }

    fn residual_at(&self, kind: PageKind) -> usize {
        self.increments_at() + if kind.increments { self.layers * self.rows() } else { 0 }
    }

    /// A whole page.
    pub(super) fn page(&self, kind: PageKind) -> usize {
        let end = self.residual_at(kind) + if kind.residual { self.rows() } else { 0 };
        end.next_multiple_of(ALIGNMENT)
    }

    /// Entries of the tables for a page that begins at an address.
    fn entries(&self, page: Address, kind: PageKind) -> [u64; TABLES] {
        let at = |there: bool, offset: usize| if there { page.offset(offset).0 } else { 0 };
        [page.0, at(kind.increments, self.increments_at()), at(kind.residual, self.residual_at(kind))]
    }
}

/// Pages that were allocated together.
struct Slab<G: Gpu> {
    memory: Buffer<G>,
    kind: PageKind,
    pages: Vec<u32>,
}

/// One page number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Page {
    kind: PageKind,
    /// No memory: the number waits for some.
    address: Address,
    free: bool,
}

/// The pages of one model.
pub struct Pages<G: Gpu> {
    gpu: Arc<G>,
    pub(super) layout: Layout,
    numbers: Vec<Page>,
    slabs: Vec<Slab<G>>,
    /// `u64[TABLES, capacity]`.
    tables: Option<Buffer<G>>,
}

impl<G: Gpu> Pages<G> {
    pub(super) fn new(gpu: &Arc<G>, layout: Layout) -> Self {
        Self { gpu: Arc::clone(gpu), layout, numbers: Vec::new(), slabs: Vec::new(), tables: None }
    }

    /// Entries that one table has room for.
    fn capacity(&self) -> usize {
        self.tables.as_ref().map_or(0, |tables| tables.bytes() / (TABLES * size_of::<u64>()))
    }

    /// Returns the addresses as kernels read them.
    pub(super) fn store(&self) -> Store {
        let table = |index: usize| match &self.tables {
            Some(tables) => tables.address().offset(index * self.capacity() * size_of::<u64>()),
            None => Address::NULL,
        };
        let Layout { shape, layers, hidden, .. } = self.layout;
        Store {
            pages: table(0),
            increments: table(1),
            residuals: table(2),
            layers: layers as u32,
            kv_heads: shape.kv_heads as u32,
            head_dim: shape.head_dim as u32,
            hidden: hidden as u32,
        }
    }

    /// Appends `count` zeroed pages; where there is no memory, none.
    pub(super) fn allocate(&mut self, count: usize, kind: PageKind, pages: &mut Vec<u32>) -> Result<(), Failure> {
        let fits = |page: &&(usize, &Page)| page.1.free && page.1.address != Address::NULL && page.1.kind == kind;
        let reused: Vec<u32> = self
            .numbers
            .iter()
            .enumerate()
            .filter(|page| fits(&page))
            .map(|(number, _)| number as u32)
            .take(count)
            .collect();
        let fresh = self.allocate_slab(count - reused.len(), kind)?;
        for &page in &reused {
            self.zero(page)?;
        }
        for &page in reused.iter().chain(&fresh) {
            self.numbers[page as usize].free = false;
        }
        pages.extend(reused);
        pages.extend(fresh);
        Ok(())
    }

    /// Writes all of a page.
    pub(super) fn write(&self, page: u32, bytes: &[u8]) -> Result<(), GpuError> {
        let Page { kind, address, .. } = self.numbers[page as usize];
        assert_eq!((bytes.len(), address == Address::NULL), (self.layout.page(kind), false), "bytes of page {page}");
        // SAFETY: a page has as many bytes, which belong to a slab of this store.
        unsafe { self.gpu.upload(address, bytes) }
    }

    /// Numbers of `count` pages that have no memory and that nothing must read: for a device that has failed.
    pub(super) fn allocate_nothing(&mut self, count: usize, pages: &mut Vec<u32>) {
        let numbers = self.vacant(count);
        for &number in &numbers {
            self.numbers[number as usize].free = false;
        }
        pages.extend(numbers);
    }

    /// Allocates zeroed pages in new memory.
    fn allocate_slab(&mut self, count: usize, kind: PageKind) -> Result<Vec<u32>, Failure> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let page_bytes = self.layout.page(kind);
        let needed = (count as u64).saturating_mul(page_bytes as u64);
        if needed > self.gpu.available() {
            // Pages of other kinds go before there is none: what is free of this kind is in use again already.
            self.give_back(kind);
        }
        let available = self.gpu.available();
        if needed > available {
            return Err(Failure::Memory(OutOfMemory { needed, available }));
        }
        let pages = self.vacant(count);
        self.grow_tables()?;
        let memory = Buffer::new(&self.gpu, count * page_bytes)?;
        memory.zero(0, memory.bytes())?;
        for (index, &page) in pages.iter().enumerate() {
            let address = memory.address().offset(index * page_bytes);
            self.numbers[page as usize] = Page { kind, address, free: true };
        }
        self.slabs.push(Slab { memory, kind, pages: pages.clone() });
        self.upload_tables()?;
        Ok(pages)
    }

    /// Numbers without memory, old ones first.
    fn vacant(&mut self, count: usize) -> Vec<u32> {
        let vacant = |page: &Page| page.free && page.address == Address::NULL;
        let old = self.numbers.iter().enumerate().filter(|(_, page)| vacant(page)).map(|(number, _)| number as u32);
        let mut numbers: Vec<u32> = old.take(count).collect();
        while numbers.len() < count {
            numbers.push(self.numbers.len() as u32);
            self.numbers.push(Page { free: true, ..Page::default() });
        }
        numbers
    }

    /// Gives slabs of other kinds back whose pages are all free.
    fn give_back(&mut self, kind: PageKind) {
        let Self { slabs, numbers, .. } = self;
        slabs.retain(|slab| {
            let unused = slab.kind != kind && slab.pages.iter().all(|&page| numbers[page as usize].free);
            if unused {
                slab.pages.iter().for_each(|&page| numbers[page as usize].address = Address::NULL);
            }
            !unused
        });
    }

    /// Makes room in the tables for all numbers.
    fn grow_tables(&mut self) -> Result<(), Failure> {
        if self.numbers.len() > self.capacity() {
            let capacity = self.numbers.len().next_power_of_two().max(FIRST_TABLE);
            self.tables = Some(Buffer::new(&self.gpu, TABLES * capacity * size_of::<u64>())?);
            self.upload_tables()?;
        }
        Ok(())
    }

    /// Writes all tables.
    fn upload_tables(&self) -> Result<(), Failure> {
        let capacity = self.capacity();
        let mut bytes = vec![0; TABLES * capacity * size_of::<u64>()];
        for (number, page) in self.numbers.iter().enumerate().filter(|(_, page)| page.address != Address::NULL) {
            for (table, entry) in self.layout.entries(page.address, page.kind).into_iter().enumerate() {
                let at = (table * capacity + number) * size_of::<u64>();
                bytes[at..at + size_of::<u64>()].copy_from_slice(&entry.to_le_bytes());
            }
        }
        if let Some(tables) = &self.tables {
            tables.upload(0, &bytes)?;
        }
        Ok(())
    }

    fn zero(&self, page: u32) -> Result<(), Failure> {
        let Page { address, kind, .. } = self.numbers[page as usize];
        let slab = self.slab(page);
        Ok(slab.memory.zero((address.0 - slab.memory.address().0) as usize, self.layout.page(kind))?)
    }

    fn slab(&self, page: u32) -> &Slab<G> {
        let slab = self.slabs.iter().find(|slab| slab.pages.contains(&page));
        slab.unwrap_or_else(|| panic!("page {page} has no memory"))
    }

    pub(super) fn release(&mut self, pages: &[u32]) {
        for &page in pages {
            self.numbers[page as usize].free = true;
        }
    }

    /// K or V of slots, widened: `[slots, kv_heads * head_dim]`. Reads each run of slots' page once.
    pub(super) fn read_rows(&self, slots: &[u32], layer: usize, value: bool) -> Result<Vec<f32>, Failure> {
        let AttentionShape { kv_heads, head_dim, .. } = self.layout.shape;
        let (mut bytes, mut tensor) = (vec![0; self.layout.tensor()], Vec::new());
        let (mut rows, mut last) = (Vec::with_capacity(slots.len() * kv_heads * head_dim), None);
        for &slot in slots {
            let (page, at) = (slot / PAGE as u32, slot as usize % PAGE);
            if last != Some(page) {
                let slab = self.slab(page);
                let start = (self.numbers[page as usize].address.0 - slab.memory.address().0) as usize;
                slab.memory.download(start + self.layout.tensor_at(layer, value), &mut bytes)?;
                tensor.clear();
                widened(self.layout.dtype, &bytes, &mut tensor);
                last = Some(page);
            }
            for head in 0..kv_heads {
                rows.extend_from_slice(&tensor[(head * PAGE + at) * head_dim..][..head_dim]);
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fake::Fake;

    const LAYOUT: Layout = Layout {
        shape: AttentionShape { heads: 4, kv_heads: 2, head_dim: 16 },
        dtype: Dtype::Bf16,
        layers: 3,
        hidden: 24,
    };
    const PLAIN: PageKind = PageKind { increments: false, residual: false };
    const ALL: PageKind = PageKind { increments: true, residual: true };

    fn taken(store: &mut Pages<Fake>, count: usize, kind: PageKind) -> Vec<u32> {
        let mut pages = Vec::new();
        store.allocate(count, kind, &mut pages).unwrap();
        pages
    }

    /// Addresses of a page in the three tables on the device.
    fn entries(store: &Pages<Fake>, page: u32) -> [u64; TABLES] {
        let tables = store.store();
        [tables.pages, tables.increments, tables.residuals].map(|table| {
            let words = store.gpu.words(table.offset(page as usize * 8), 2);
            u64::from(words[0]) | u64::from(words[1]) << 32
        })
    }

    #[test]
    fn pages_are_as_large_as_what_they_hold() {
        let kv = 3 * 2 * 2 * PAGE * 16 * 2;
        assert_eq!(LAYOUT.page(PLAIN), kv);
        assert_eq!(LAYOUT.page(ALL), kv + (3 + 1) * PAGE * 24 * 4);
        assert_eq!(LAYOUT.page(PLAIN) % ALIGNMENT, 0);
    }

    #[test]
    fn tables_tell_where_everything_is() {
        let mut store = Pages::new(&Arc::new(Fake::recording()), LAYOUT);
        let plain = taken(&mut store, 2, PLAIN);
        let rich = taken(&mut store, 1, ALL);
        let first = entries(&store, plain[0]);
        assert_eq!(entries(&store, plain[1]), [first[0] + LAYOUT.page(PLAIN) as u64, 0, 0]);
        let page = entries(&store, rich[0]);
        assert_eq!(page[1] - page[0], LAYOUT.increments_at() as u64);
        assert_eq!(page[2] - page[1], 3 * LAYOUT.rows() as u64);
    }

    #[test]
    fn freed_pages_are_reused_zeroed_and_nothing_is_allocated_for_them() {
        let gpu = Arc::new(Fake::recording());
        let mut store = Pages::new(&gpu, LAYOUT);
        let first = taken(&mut store, 3, PLAIN);
        let at = Address(entries(&store, first[1])[0]);
        assert_eq!(gpu.words(at, 4), [0; 4]);
        // SAFETY: inside of a page.
        unsafe { gpu.upload(at, &[9; 16]).unwrap() }
        let held = gpu.held();
        store.release(&first);
        let mut second = taken(&mut store, 3, PLAIN);
        second.sort_unstable();
        assert_eq!((second, gpu.held()), (first, held));
        assert_eq!(gpu.words(at, 4), [0; 4]);
    }

    #[test]
    fn tables_grow_and_keep_what_they_held() {
        let mut store = Pages::new(&Arc::new(Fake::recording()), LAYOUT);
        let first = taken(&mut store, 1, PLAIN);
        let before = entries(&store, first[0]);
        taken(&mut store, FIRST_TABLE, PLAIN);
        assert_eq!(store.capacity(), 2 * FIRST_TABLE);
        assert_eq!(entries(&store, first[0]), before);
    }

    #[test]
    fn memory_of_other_kinds_goes_before_there_is_none() {
        let page = LAYOUT.page(ALL);
        let gpu = Arc::new(Fake::with_memory((10 * page + 3 * 8 * FIRST_TABLE) as u64));
        let mut store = Pages::new(&gpu, LAYOUT);
        let rich = taken(&mut store, 9, ALL);
        let refused = store.allocate(20, PLAIN, &mut Vec::new());
        let needed = 20 * LAYOUT.page(PLAIN) as u64;
        assert_eq!(refused, Err(Failure::Memory(OutOfMemory { needed, available: page as u64 })));
        store.release(&rich);
        let plain = taken(&mut store, 20, PLAIN);
        assert_eq!(plain.len(), 20);
        assert!(plain.contains(&rich[0]), "numbers are used again");
        assert_eq!(entries(&store, plain[0])[1], 0);
    }

    #[test]
    fn one_that_failed_hands_out_numbers_alone() {
        let gpu = Arc::new(Fake::recording());
        let mut store = Pages::new(&gpu, LAYOUT);
        gpu.fail_from_now_on("gone");
        let mut pages = Vec::new();
        assert!(matches!(store.allocate(2, PLAIN, &mut pages), Err(Failure::Device(_))));
        assert!(pages.is_empty());
        store.allocate_nothing(2, &mut pages);
        assert_eq!(pages.len(), 2);
        store.release(&pages);
    }
}
