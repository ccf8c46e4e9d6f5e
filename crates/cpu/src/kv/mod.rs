//! The paged K/V store: where K, V, increments and the residual of each position lie.
//!
//! A page is one piece of memory: for each layer K of all heads and V of all heads, then the increments of all layers, then
//! the residual, the last two only in pages of such a kind. Within a head, K is `[head_dim, PAGE]`, so that a query's
//! products with all keys of the page are sums over rows of the page; V is `[PAGE, head_dim]`, so that its weighted sum
//! is one too. Neither needs a sum across a vector. Where products take pairs of bf16, two rows each are woven into one
//! of twice the length: K is `[head_dim / 2, PAGE, 2]` and V `[PAGE / 2, head_dim, 2]`.

pub(crate) mod memory;
mod pages;

use std::marker::PhantomData;

use demask_step::OutOfMemory;
use demask_tensor::{AttentionShape, Dtype, Launch, Number, PAGE, PageCopy, PageKind, SlotCopy};

#[cfg(target_arch = "x86_64")]
use crate::{attention::fits_tiles, isa::Tier};
use crate::{
    elementwise::{Element, LANES, Lanes, Operation, dispatch},
    isa::Isa,
    pool::Pool,
};
use pages::PageMemory;

/// K or V.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tensor {
    Key,
    Value,
}

/// The pages of one model.
pub struct KvStore {
    isa: Isa,
    layout: Layout,
    pages: PageMemory,
}

/// Layout of a page; everything in bytes.
#[derive(Debug, Clone, Copy)]
struct Layout {
    shape: AttentionShape,
    dtype: Dtype,
    layers: usize,
    hidden: usize,
    /// Records whether two rows each are woven, and for what.
    weave: Option<Weave>,
}

/// Products of pairs that two rows each of K and V are woven for: those of x86.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weave {
    /// Weave for vectors.
    #[cfg(target_arch = "x86_64")]
    Pairs,
    /// Weave for tiles.
    #[cfg(target_arch = "x86_64")]
    Tiles,
}

impl Weave {
    /// Chooses the weave: tiles for heads of whole tiles on a tier that has them; pairs for heads of whole vectors where there
    /// are products of pairs; neither for heads that do not fit into the products' scratch.
    #[cfg(target_arch = "x86_64")]
    fn of(isa: Isa, shape: &AttentionShape, dtype: Dtype) -> Option<Self> {
        let width = shape.head_dim;
        if dtype != Dtype::Bf16 {
            None
        } else if isa.has(Tier::Amx) && fits_tiles(width) {
            Some(Self::Tiles)
        } else {
            (isa.has(Tier::Avx512Bf16) && width.is_multiple_of(16) && width <= MOST_PAIRED).then_some(Self::Pairs)
        }
    }

    /// Chooses no weave.
    #[cfg(not(target_arch = "x86_64"))]
    fn of(_: Isa, _: &AttentionShape, _: Dtype) -> Option<Self> {
        None
    }
}

/// Widest head whose K and V are woven.
#[cfg(target_arch = "x86_64")]
pub(crate) const MOST_PAIRED: usize = 256;

impl Layout {
    /// Place of one number in a head of K or V, in elements.
    #[inline(always)]
    fn element(&self, tensor: Tensor, at: usize, column: usize) -> usize {
        let head_dim = self.shape.head_dim;
        match (tensor, self.weave.is_some()) {
            (Tensor::Key, false) => column * PAGE + at,
            (Tensor::Value, false) => at * head_dim + column,
            (Tensor::Key, true) => (column / 2 * PAGE + at) * 2 + column % 2,
            (Tensor::Value, true) => (at / 2 * head_dim + column) * 2 + at % 2,
        }
    }

    /// One head of K or of V.
    fn head(&self) -> usize {
        self.shape.head_dim * PAGE * self.dtype.size()
    }

    /// K and V of a layer.
    fn layer(&self) -> usize {
        2 * self.shape.kv_heads * self.head()
    }

    /// Start of a head.
    fn head_at(&self, layer: usize, tensor: Tensor, head: usize) -> usize {
        assert!(layer < self.layers && head < self.shape.kv_heads, "head {head} of layer {layer}");
        let tensor = if tensor == Tensor::Key { 0 } else { self.shape.kv_heads };
        layer * self.layer() + (tensor + head) * self.head()
    }

    /// `[PAGE, hidden]` f32.
    fn rows(&self) -> usize {
        PAGE * self.hidden * size_of::<f32>()
    }

    /// Start of a layer's increments.
    fn increments_at(&self, layer: usize) -> usize {
        assert!(layer < self.layers, "layer {layer} of {}", self.layers);
        self.layers * self.layer() + layer * self.rows()
    }

    /// Start of the residual.
    fn residual_at(&self, kind: PageKind) -> usize {
        self.layers * (self.layer() + if kind.increments { self.rows() } else { 0 })
    }

    /// A whole page.
    fn page(&self, kind: PageKind) -> usize {
        self.residual_at(kind) + if kind.residual { self.rows() } else { 0 }
    }
}

impl KvStore {
    pub(crate) fn new(isa: Isa, shape: AttentionShape, dtype: Dtype, layers: usize, hidden: usize) -> Self {
        let layout = Layout { shape, dtype, layers, hidden, weave: Weave::of(isa, &shape, dtype) };
        Self { isa, layout, pages: PageMemory::default() }
    }

    pub(crate) fn page_bytes(&self, kind: PageKind) -> usize {
        self.layout.page(kind)
    }

    /// Element type of K and V.
    pub(crate) fn dtype(&self) -> Dtype {
        self.layout.dtype
    }

    pub(crate) fn shape(&self) -> AttentionShape {
        self.layout.shape
    }

    /// Reports whether two rows each of K and V are woven, and for what.
    pub(crate) fn weave(&self) -> Option<Weave> {
        self.layout.weave
    }

    /// Appends `count` pages; on failure none. Their residuals are zeros: stored guidance reads those of rows that were
    /// never predicted. K, V and increments keep their last written values.
    pub(crate) fn allocate(&mut self, count: usize, kind: PageKind, pages: &mut Vec<u32>) -> Result<(), OutOfMemory> {
        let length = self.page_bytes(kind);
        self.pages.allocate(count, (kind, length), self.layout.residual_at(kind)..length, pages)
    }

    pub(crate) fn release(&mut self, pages: &[u32]) {
        self.pages.release(pages);
    }

    /// Begins a launch: its pages are written from now on, and its slots are kept before its pages are copied.
    pub(crate) fn begin(&mut self, pool: &Pool, launch: &Launch) {
        let written = launch.slots.iter().copied().chain(launch.keeps.iter().map(|keep| keep.to));
        for page in written.map(|slot| slot / PAGE as u32).chain(launch.copies.iter().map(|copy| copy.to)) {
            self.pages.touch(page);
        }
        self.copy(pool, &launch.keeps, &launch.copies);
    }

    /// One head of one page: K `[head_dim, PAGE]` or V `[PAGE, head_dim]`, or woven.
    pub(crate) fn head<T: Number>(&self, page: u32, layer: usize, tensor: Tensor, head: usize) -> &[T] {
        assert_eq!(size_of::<T>(), self.layout.dtype.size(), "element type of the store");
        let start = self.layout.head_at(layer, tensor, head) / size_of::<T>();
        &self.pages.numbers::<T>(page)[start..][..self.layout.head() / size_of::<T>()]
    }

    /// Reads K or V of one slot, all heads, widened.
    pub(crate) fn read_row(&self, slot: u32, layer: usize, tensor: Tensor, out: &mut [f32]) {
        match self.dtype() {
            Dtype::Bf16 => self.read_row_of::<u16>(slot, layer, tensor, out),
            _ => self.read_row_of::<f32>(slot, layer, tensor, out),
        }
    }

    fn read_row_of<T: Element>(&self, slot: u32, layer: usize, tensor: Tensor, out: &mut [f32]) {
        let (page, at) = (slot / PAGE as u32, slot as usize % PAGE);
        for (head, out) in out.chunks_exact_mut(self.shape().head_dim).enumerate() {
            let stored = self.head::<T>(page, layer, tensor, head);
            for (column, out) in out.iter_mut().enumerate() {
                *out = stored[self.layout.element(tensor, at, column)].widen();
            }
        }
    }

    /// Appends K or V of some slots, all heads, widened: `[slots, kv width]`.
    pub(crate) fn read_rows(&self, slots: &[u32], layer: usize, tensor: Tensor, out: &mut Vec<f32>) {
        let (width, first) = (self.shape().kv_heads * self.shape().head_dim, out.len());
        out.resize(first + slots.len() * width, 0.0);
        for (&slot, out) in slots.iter().zip(out[first..].chunks_exact_mut(width)) {
            self.read_row(slot, layer, tensor, out);
        }
    }

    /// The residual of one slot.
    ///
    /// # Panics
    /// If its page has none.
    pub(crate) fn residual(&mut self, slot: u32) -> &mut [f32] {
        let (page, kind) = (slot / PAGE as u32, self.pages.kind(slot / PAGE as u32));
        assert!(kind.residual, "a page without a residual");
        let start = self.layout.residual_at(kind) / size_of::<f32>() + slot as usize % PAGE * self.layout.hidden;
        &mut self.pages.numbers_mut::<f32>(page)[start..][..self.layout.hidden]
    }

    /// Lets many tasks write.
    pub(crate) fn writer(&mut self) -> KvWriter<'_> {
        KvWriter { store: self, exclusive: PhantomData }
    }

    /// Copies slots one by one, then pages: each layer and the residual by one task, so that the order is kept.
    fn copy(&mut self, pool: &Pool, keeps: &[SlotCopy], copies: &[PageCopy]) {
        if keeps.is_empty() && copies.is_empty() {
            return;
        }
        let layers = self.layout.layers;
        let writer = self.writer();
        pool.run(layers + 1, &|task| {
            let layer = (task < layers).then_some(task);
            // SAFETY: this task is the only one for the layer, or for the residual.
            keeps.iter().for_each(|keep| unsafe { writer.copy_slot(layer, *keep) });
            // SAFETY: as above.
            copies.iter().for_each(|copy| unsafe { writer.copy_page(layer, *copy) });
        });
    }
}

/// Rows that are stored together: a line of the pairs that one column of K takes.
const TOGETHER: usize = 16;

/// One head of some rows on its way into neighbouring places of a page.
struct SetHead<'a, 'r, T> {
    layout: &'a Layout,
    tensor: Tensor,
    /// Place of the first row in the page.
    at: usize,
    /// The head of each row, at most [`TOGETHER`].
    rows: &'a [&'r [f32]],
    /// The head of the page.
    stored: &'a mut [T],
}

impl<T: Element> Operation for SetHead<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { layout, tensor, at, rows, stored } = self;
        let head_dim = layout.shape.head_dim;
        // A tile of each row is rounded in vectors before its numbers go their ways.
        let mut tiles = [[T::narrow(0.0); LANES]; TOGETHER];
        for first in (0..head_dim).step_by(LANES) {
            let width = LANES.min(head_dim - first);
            for (tile, row) in tiles.iter_mut().zip(rows) {
                let values = &row[first..first + width];
                tile.iter_mut().zip(values).for_each(|(narrow, &value)| *narrow = T::narrow(value));
            }
            let tiles = &tiles[..rows.len()];
            match (tensor, layout.weave.is_some()) {
                (Tensor::Key, false) => {
                    for column in 0..width {
                        let places = &mut stored[(first + column) * PAGE + at..][..tiles.len()];
                        places.iter_mut().zip(tiles).for_each(|(place, tile)| *place = tile[column]);
                    }
                }
                (Tensor::Key, true) => {
                    for pair in 0..width / 2 {
                        let places = &mut stored[((first / 2 + pair) * PAGE + at) * 2..][..2 * tiles.len()];
                        let places = places.as_chunks_mut::<2>().0.iter_mut().zip(tiles);
                        places.for_each(|(place, tile)| *place = [tile[2 * pair], tile[2 * pair + 1]]);
                    }
                }
                (Tensor::Value, false) => {
                    for (row, tile) in tiles.iter().enumerate() {
                        stored[(at + row) * head_dim + first..][..width].copy_from_slice(&tile[..width]);
                    }
                }
                (Tensor::Value, true) => weave_values((at, tiles), (first, width, head_dim), stored),
            }
        }
    }
}

/// Stores columns of V that are woven: two rows of a pair together where both are there.
#[inline(always)]
fn weave_values<T: Element>(
    (at, tiles): (usize, &[[T; LANES]]),
    (first, width, head_dim): (usize, usize, usize),
    stored: &mut [T],
) {
    let mut row = 0;
    while row < tiles.len() {
        let place = at + row;
        let (pair, odd) = (place / 2, place % 2);
        let places = stored[(pair * head_dim + first) * 2..][..2 * width].as_chunks_mut::<2>().0;
        if odd == 0 && row + 1 < tiles.len() {
            let values = tiles[row].iter().zip(&tiles[row + 1]);
            places.iter_mut().zip(values).for_each(|(place, (&even, &odd))| *place = [even, odd]);
            row += 2;
        } else {
            places.iter_mut().zip(&tiles[row]).for_each(|(place, &value)| place[odd] = value);
            row += 1;
        }
    }
}

/// A borrowed store that many tasks write at once.
pub(crate) struct KvWriter<'a> {
    store: &'a KvStore,
    exclusive: PhantomData<&'a mut KvStore>,
}

impl KvWriter<'_> {
    /// A part of a page.
    ///
    /// # Safety
    /// No other part that overlaps this one is in use at the same time, not even for reading.
    #[expect(clippy::mut_from_ref, reason = "the writer stands for an exclusive borrow: the caller keeps parts apart")]
    unsafe fn part<T: Number>(&self, page: usize, start: usize, length: usize) -> &mut [T] {
        let (place, bytes) = self.store.pages.place(page as u32);
        assert!(start.is_multiple_of(size_of::<T>()) && start + length <= bytes, "part of a page");
        // SAFETY: the part is inside the page, whose memory is initialised and aligned for numbers; the store is
        // borrowed exclusively by this writer, and the caller keeps parts apart.
        unsafe {
            let first = place.cast_mut().add(start);
            std::slice::from_raw_parts_mut(first.cast(), length / size_of::<T>())
        }
    }

    /// Stores one head of rows, each at its slot, in the order of the rows.
    ///
    /// # Safety
    /// No other task uses this head of this layer's K or V.
    pub(crate) unsafe fn set_heads<'r>(
        &self,
        place: (usize, Tensor, usize),
        rows: impl Iterator<Item = (u32, &'r [f32])>,
    ) {
        match self.store.dtype() {
            // SAFETY: as our caller promises.
            Dtype::Bf16 => unsafe { self.set_heads_of::<u16>(place, rows) },
            // SAFETY: as our caller promises.
            _ => unsafe { self.set_heads_of::<f32>(place, rows) },
        }
    }

    /// # Safety
    /// As [`KvWriter::set_heads`].
    unsafe fn set_heads_of<'r, T: Element>(
        &self,
        (layer, tensor, head): (usize, Tensor, usize),
        rows: impl Iterator<Item = (u32, &'r [f32])>,
    ) {
        let layout = &self.store.layout;
        let mut rows = rows.peekable();
        while let Some((slot, values)) = rows.next() {
            let (page, at) = (slot as usize / PAGE, slot as usize % PAGE);
            let (mut together, mut count) = ([values; TOGETHER], 1);
            let most = TOGETHER.min(PAGE - at);
            while count < most
                && let Some((_, values)) = rows.next_if(|(next, _)| *next == slot + count as u32)
            {
                together[count] = values;
                count += 1;
            }
            // SAFETY: heads are disjoint parts of a page, and this one is the caller's.
            let stored = unsafe { self.part::<T>(page, layout.head_at(layer, tensor, head), layout.head()) };
            dispatch(self.store.isa, SetHead { layout, tensor, at, rows: &together[..count], stored });
        }
    }

    /// Columns of the increment of one slot, or `None` if its page has no increments.
    ///
    /// # Safety
    /// No other task uses these columns.
    #[expect(clippy::mut_from_ref, reason = "the writer stands for an exclusive borrow: the caller keeps parts apart")]
    pub(crate) unsafe fn increment(
        &self,
        layer: usize,
        slot: u32,
        columns: std::ops::Range<usize>,
    ) -> Option<&mut [f32]> {
        let (page, at) = (slot as usize / PAGE, slot as usize % PAGE);
        let layout = &self.store.layout;
        if !self.store.pages.kind(page as u32).increments {
            return None;
        }
        assert!(columns.start <= columns.end && columns.end <= layout.hidden, "columns of an increment");
        let start = layout.increments_at(layer) + (at * layout.hidden + columns.start) * size_of::<f32>();
        // SAFETY: the columns are inside the slot's row, and the caller's.
        Some(unsafe { self.part(page, start, columns.len() * size_of::<f32>()) })
    }

    /// Copies a slot: K, V and the increment of a layer, or the residual if none is given.
    ///
    /// # Safety
    /// No other task uses this layer, or the residual.
    unsafe fn copy_slot(&self, layer: Option<usize>, SlotCopy { from, to }: SlotCopy) {
        if from == to {
            return;
        }
        // SAFETY: as our caller promises.
        unsafe {
            match (layer, self.store.dtype()) {
                (Some(layer), Dtype::Bf16) => self.copy_slot_heads::<u16>(layer, from, to),
                (Some(layer), _) => self.copy_slot_heads::<f32>(layer, from, to),
                (None, _) => (),
            }
            self.copy_rows(layer, (from, to), 1);
        }
    }

    /// # Safety
    /// No other task uses this layer.
    unsafe fn copy_slot_heads<T: Element>(&self, layer: usize, from: u32, to: u32) {
        let layout = &self.store.layout;
        // SAFETY: the layer is the caller's; the borrow ends with the call that uses it, so that two slots of one page
        // do not overlap.
        let part = |slot: u32| unsafe { self.part::<T>(slot as usize / PAGE, layer * layout.layer(), layout.layer()) };
        let (kv_heads, head_dim) = (layout.shape.kv_heads, layout.shape.head_dim);
        let (from_at, to_at) = (from as usize % PAGE, to as usize % PAGE);
        for head in 0..2 * kv_heads {
            let tensor = if head < kv_heads { Tensor::Key } else { Tensor::Value };
            let start = head * PAGE * head_dim;
            for column in 0..head_dim {
                let value = part(from)[start + layout.element(tensor, from_at, column)];
                part(to)[start + layout.element(tensor, to_at, column)] = value;
            }
        }
    }

    /// Copies a page: K, V and the increments of a layer, or the residual if none is given.
    ///
    /// # Safety
    /// No other task uses this layer, or the residual.
    unsafe fn copy_page(&self, layer: Option<usize>, PageCopy { from, to }: PageCopy) {
        if from == to {
            return;
        }
        // SAFETY: as our caller promises; the two pages differ.
        unsafe {
            if let Some(layer) = layer {
                let bytes = self.store.layout.layer();
                let part = |page: u32| self.part::<u8>(page as usize, layer * bytes, bytes);
                part(to).copy_from_slice(part(from));
            }
            self.copy_rows(layer, (from * PAGE as u32, to * PAGE as u32), PAGE);
        }
    }

    /// Copies the increments of some slots of a page, or their residual if no layer is given, where both pages have them.
    ///
    /// # Safety
    /// No other task uses this layer's increments, or the residual; the slots differ.
    unsafe fn copy_rows(&self, layer: Option<usize>, (from, to): (u32, u32), slots: usize) {
        let layout = &self.store.layout;
        let rows = |slot: u32| {
            let (page, at) = (slot as usize / PAGE, slot as usize % PAGE);
            let kind = self.store.pages.kind(page as u32);
            let start = match layer {
                Some(layer) => kind.increments.then(|| layout.increments_at(layer))?,
                None => kind.residual.then(|| layout.residual_at(kind))?,
            };
            let row = layout.hidden * size_of::<f32>();
            // SAFETY: the rows are the caller's, and those of the other slots do not overlap them.
            Some(unsafe { self.part::<u8>(page, start + at * row, slots * row) })
        };
        if let (Some(from), Some(to)) = (rows(from), rows(to)) {
            to.copy_from_slice(from);
        }
    }
}

#[cfg(test)]
mod tests;
