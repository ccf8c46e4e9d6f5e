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
fn rows_are_read_as_written_and_pages_are_zeroed_for_the_next() {
    let mut store = store(Dtype::F32);
    let mut pages = Vec::new();
    store.allocate(2, BOTH, &mut pages).unwrap();
    write(&mut store, 1, pages[1] * PAGE as u32 + 5, 7.0);
    assert_eq!(read(&store, 1, pages[1] * PAGE as u32 + 5), [row(7.0), row(107.0)]);
    assert_eq!(read(&store, 1, pages[1] * PAGE as u32 + 4), [vec![0.0; 12], vec![0.0; 12]]);
    store.residual(pages[1] * PAGE as u32 + 31).fill(1.0);
    store.release(&pages[1..]);
    let mut again = Vec::new();
    store.allocate(1, BOTH, &mut again).unwrap();
    assert_eq!(again, pages[1..]);
    assert!(store.pages[again[0] as usize].bytes.as_slice::<u8>().iter().all(|&byte| byte == 0));
}

#[test]
fn a_free_page_of_another_kind_gives_its_number() {
    let mut store = store(Dtype::Bf16);
    let mut pages = Vec::new();
    store.allocate(1, NONE, &mut pages).unwrap();
    store.release(&pages);
    let mut others = Vec::new();
    store.allocate(2, BOTH, &mut others).unwrap();
    assert_eq!(others, [0, 1]);
    assert_eq!(store.pages[0].bytes.len(), store.page_bytes(BOTH));
}

#[test]
fn too_many_pages_are_refused_and_none_are_taken() {
    let mut store = store(Dtype::Bf16);
    let mut pages = vec![9];
    let error = store.allocate(usize::MAX / 2, BOTH, &mut pages).unwrap_err();
    assert!(error.needed > error.available);
    assert_eq!(pages, [9]);
    assert!(store.pages.is_empty());
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
