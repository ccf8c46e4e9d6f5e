use super::*;
use crate::isa::tests::testable;

const SHAPE: AttentionShape = AttentionShape { heads: 4, kv_heads: 2, head_dim: 6 };
const BOTH: PageKind = PageKind { increments: true, residual: true };
const NONE: PageKind = PageKind { increments: false, residual: false };

fn store(dtype: Dtype) -> KvStore {
    KvStore::new(Isa::best(), SHAPE, dtype, 3, 10)
}

fn write(store: &mut KvStore, layer: usize, slot: u32, first: f32) {
    let writer = store.writer();
    for (tensor, first) in [(Tensor::Key, first), (Tensor::Value, first + 100.0)] {
        for head in 0..2 {
            let values: Vec<f32> = (0..6).map(|column| first + (head * 6 + column) as f32).collect();
            // SAFETY: there is only this thread.
            unsafe { writer.set_heads((layer, tensor, head), std::iter::once((slot, &values[..]))) }
        }
    }
    // SAFETY: there is only this thread.
    if let Some(increment) = unsafe { writer.increment(layer, slot, 0..10) } {
        increment.fill(first);
    }
}

fn read(store: &KvStore, layer: usize, slot: u32) -> [Vec<f32>; 2] {
    [Tensor::Key, Tensor::Value].map(|tensor| {
        let mut row = vec![0.0; 12];
        store.read_row(slot, layer, tensor, &mut row);
        row
    })
}

fn row(first: f32) -> Vec<f32> {
    (0..12).map(|column| first + column as f32).collect()
}

#[test]
fn rows_are_read_as_written_and_a_page_that_is_used_again_has_no_residual() {
    let mut store = store(Dtype::F32);
    let mut pages = Vec::new();
    store.allocate(2, BOTH, &mut pages).unwrap();
    let slot = pages[1] * PAGE as u32 + 5;
    touch(&mut store, slot);
    write(&mut store, 1, slot, 7.0);
    assert_eq!(read(&store, 1, slot), [row(7.0), row(107.0)]);
    assert_eq!(read(&store, 1, slot - 1), [vec![0.0; 12], vec![0.0; 12]]);
    store.residual(slot).fill(1.0);
    store.release(&pages[1..]);
    let mut again = Vec::new();
    store.allocate(1, BOTH, &mut again).unwrap();
    assert_eq!(again, pages[1..], "one that has its memory goes first");
    assert_eq!(store.residual(slot), [0.0; 10]);
    assert_eq!(read(&store, 1, slot), [row(7.0), row(107.0)], "nothing is zeroed that nobody reads");
}

/// Begins a launch of one row.
fn touch(store: &mut KvStore, slot: u32) {
    store.begin(&Pool::new(1), &Launch { slots: vec![slot], ..Launch::default() });
}

#[test]
fn pages_of_another_kind_give_their_numbers_and_their_map() {
    let mut store = store(Dtype::Bf16);
    let mut pages = Vec::new();
    store.allocate(1, NONE, &mut pages).unwrap();
    touch(&mut store, pages[0] * PAGE as u32);
    store.release(&pages);
    let mut others = Vec::new();
    store.allocate(100, BOTH, &mut others).unwrap();
    assert!(others.iter().any(|&page| page < 64) && others.iter().all(|&page| page < 100), "{others:?}");
    assert_eq!(store.pages.numbers::<u8>(others[0]).len(), store.page_bytes(BOTH));
    assert_eq!(store.pages.maps(), 1);
    let mut held = Vec::new();
    store.allocate(1, NONE, &mut held).unwrap();
    store.release(&others);
    store.allocate(70, NONE, &mut held).unwrap();
    assert_eq!(store.pages.maps(), 2);
    held.sort_unstable();
    held.dedup();
    assert_eq!(held.len(), 71, "no page has two holders");
}

#[test]
fn too_many_pages_are_refused_and_none_are_taken() {
    let mut store = store(Dtype::Bf16);
    let mut pages = vec![9];
    for many in [usize::MAX / 2, usize::MAX, 1 << 40] {
        let error = store.allocate(many, BOTH, &mut pages).unwrap_err();
        assert!(error.needed > error.available);
        assert_eq!((&pages[..], store.pages.maps(), store.pages.promised()), (&[9][..], 0, 0));
    }
}

#[test]
fn a_page_takes_memory_when_it_is_written_and_what_is_released_goes_back() {
    // 1 MiB each.
    let shape = AttentionShape { heads: 4, kv_heads: 4, head_dim: 128 };
    let mut store = KvStore::new(Isa::best(), shape, Dtype::F32, 8, 10);
    assert_eq!(store.page_bytes(NONE), 1 << 20);
    let mut pages = Vec::new();
    // Of 500 pages the system gives those that are written.
    store.allocate(500, NONE, &mut pages).unwrap();
    assert_eq!((store.pages.maps(), store.pages.promised()), (1, 500 << 20));
    for &page in &pages[..100] {
        touch(&mut store, page * PAGE as u32 + 31);
    }
    assert_eq!((store.pages.promised(), store.pages.resident()), (400 << 20, 100));
    for &page in &pages[..100] {
        store.pages.numbers_mut::<u8>(page).fill(7);
    }
    store.release(&pages);
    assert_eq!((store.pages.promised(), store.pages.resident()), (0, 64));
    #[cfg(all(target_os = "linux", not(miri)))]
    assert_eq!(pages[..100].iter().filter(|&&page| store.pages.numbers::<u8>(page).contains(&7)).count(), 64);
    // Those that have their memory are used again, and then one that has none.
    pages.clear();
    store.allocate(65, NONE, &mut pages).unwrap();
    assert_eq!((store.pages.maps(), store.pages.promised()), (1, 1 << 20));
}

#[test]
fn requests_that_grow_page_by_page_map_few_slabs() {
    let mut store = store(Dtype::Bf16);
    let mut pages = Vec::new();
    for _ in 0..1000 {
        store.allocate(1, NONE, &mut pages).unwrap();
    }
    assert_eq!(store.pages.maps(), 1000_usize.div_ceil(64));
    pages.sort_unstable();
    pages.dedup();
    assert_eq!(pages.len(), 1000);
}

#[test]
fn slots_are_kept_before_pages_are_copied() {
    let pool = Pool::new(2);
    let mut store = store(Dtype::Bf16);
    let mut pages = Vec::new();
    store.allocate(2, BOTH, &mut pages).unwrap();
    store.allocate(1, NONE, &mut pages).unwrap();
    for layer in 0..3 {
        write(&mut store, layer, 33, layer as f32);
    }
    store.residual(33).fill(4.0);
    let keeps = [SlotCopy { from: 33, to: 2 }, SlotCopy { from: 33, to: 34 }];
    store.copy(&pool, &keeps, &[PageCopy { from: 0, to: 2 }, PageCopy { from: 0, to: 1 }]);
    for layer in 0..3 {
        let expected = [row(layer as f32), row(layer as f32 + 100.0)];
        assert_eq!(read(&store, layer, 2), expected);
        // Copied over: what page 0 had.
        assert_eq!(read(&store, layer, 34), expected);
        assert_eq!(read(&store, layer, 33), [vec![0.0; 12], vec![0.0; 12]]);
        assert_eq!(read(&store, layer, 66), expected);
        // SAFETY: there is only this thread.
        let increment = unsafe { store.writer().increment(layer, 34, 0..10).map(|increment| increment.to_vec()) };
        assert_eq!(increment, Some(vec![layer as f32; 10]));
    }
    assert_eq!(store.residual(34), [4.0; 10]);
}

#[test]
fn rows_are_read_as_written_together_or_alone_and_copied_alone() {
    // Runs that begin and end at even and odd places, in the middle of a page and across its end, and single rows.
    let slots: Vec<u32> = (5..23).chain(0..5).chain([23, 25, 24]).chain(26..64).collect();
    for (isa, head_dim) in testable().into_iter().flat_map(|isa| [32, 48].map(|head_dim| (isa, head_dim))) {
        let shape = AttentionShape { heads: 2, kv_heads: 2, head_dim };
        let mut store = KvStore::new(isa, shape, Dtype::Bf16, 2, 10);
        #[cfg(target_arch = "x86_64")]
        {
            let pairs = isa.has(Tier::Avx512Bf16).then_some(Weave::Pairs);
            let tiles = isa.has(Tier::Amx) && head_dim == 32;
            assert_eq!(store.weave(), if tiles { Some(Weave::Tiles) } else { pairs });
        }
        let mut pages = Vec::new();
        store.allocate(2, NONE, &mut pages).unwrap();
        let row = |slot: u32, tensor: Tensor| -> Vec<f32> {
            let first = slot as f32 * if tensor == Tensor::Key { 1.0 } else { -1.0 };
            (0..2 * head_dim).map(|column| first + (column % 5) as f32).collect()
        };
        for (tensor, head) in [(Tensor::Key, 0), (Tensor::Key, 1), (Tensor::Value, 0), (Tensor::Value, 1)] {
            let rows: Vec<_> = slots.iter().map(|&slot| row(slot, tensor)).collect();
            let values = rows.iter().map(|row| &row[head * head_dim..(head + 1) * head_dim]);
            // SAFETY: there is only this thread.
            unsafe { store.writer().set_heads((1, tensor, head), slots.iter().copied().zip(values)) }
        }
        store.copy(&Pool::new(1), &[SlotCopy { from: 7, to: 36 }, SlotCopy { from: 6, to: 5 }], &[]);
        for slot in 0..64 {
            let from = [(36, 7), (5, 6)].iter().find(|(to, _)| *to == slot).map_or(slot, |(_, from)| *from);
            for tensor in [Tensor::Key, Tensor::Value] {
                let mut stored = vec![0.0; 2 * head_dim];
                store.read_row(slot, 1, tensor, &mut stored);
                assert_eq!(stored, row(from, tensor), "{isa:?} {tensor:?} {slot}");
            }
        }
    }
}
