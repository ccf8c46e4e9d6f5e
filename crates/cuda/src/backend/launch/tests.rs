use demask_tensor::{BlendRows, HeadRow, PageCopy, ProbeLaunch, RowSegment, SlotCopy};

use super::*;

/// Rows of two segments.
fn launch(rows: u32) -> Launch {
    let cut = rows / 3;
    let segment = |rows: std::ops::Range<u32>, table: std::ops::Range<u32>| RowSegment { rows, table };
    Launch {
        ids: (0..rows).map(|row| row * 7).collect(),
        positions: (0..rows).map(|row| row + 100).collect(),
        slots: (0..rows).map(|row| row + 64).collect(),
        limits: (0..rows).map(|row| row + 1).collect(),
        segments: vec![segment(0..cut, 0..2), segment(cut..rows, 2..7)],
        tables: (10..17).collect(),
        last: vec![rows - 1],
        ..Launch::default()
    }
}

fn taken(launch: &Launch) -> PackedLaunch {
    let mut taken = PackedLaunch::new(3000);
    taken.take(launch);
    taken
}

fn words(taken: &PackedLaunch, at: usize, count: usize) -> Vec<u32> {
    let words = taken.bytes()[at..].as_chunks::<4>().0.iter();
    words.take(count).map(|word| u32::from_le_bytes(*word)).collect()
}

fn array(taken: &PackedLaunch, array: Array) -> Vec<u32> {
    words(taken, array.at, array.length)
}

#[test]
fn buckets_grow_by_halves_and_never_shrink() {
    let all = [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048];
    for count in 1..=2048 {
        let expected = all.into_iter().find(|&bucket| bucket >= count).unwrap();
        assert_eq!(bucket(count), expected, "{count}");
    }
    assert_eq!(bucket(0), 8);
}

#[test]
fn rows_segments_and_tables_arrive() {
    let launch = launch(30);
    let taken = taken(&launch);
    assert_eq!(array(&taken, taken.ids), launch.ids);
    assert_eq!(array(&taken, taken.positions), launch.positions);
    assert_eq!(array(&taken, taken.slots), launch.slots);
    assert_eq!(array(&taken, taken.limits), launch.limits);
    assert_eq!(array(&taken, taken.tables), launch.tables);
    let segment_of: Vec<u32> = (0..30).map(|row| u32::from(row >= 10)).collect();
    assert_eq!(array(&taken, taken.segment_of), segment_of);
    assert_eq!(words(&taken, taken.segments.at, 8), [0, 10, 0, 2, 10, 30, 2, 5]);
    assert_eq!(taken.keys, 30);
    for array in [taken.ids, taken.segments, taken.tables, taken.head_rows, taken.lists] {
        assert_eq!(array.at % ALIGNMENT, 0);
    }
}

#[test]
fn counts_are_totals_and_those_of_chunks() {
    let mut launch = launch(2500);
    launch.fixed = (0..1030).collect();
    launch.probed = (1100..1200).collect();
    launch.probes = vec![ProbeLaunch { rows: 100, keep: 20, by: Drift::Value }];
    launch.held = (0..5).collect();
    let taken = taken(&launch);
    let count = |of: Count| words(&taken, of.at(), 1)[0];
    let found = [Count::Live, Count::Fixed, Count::Computed, Count::Last, Count::Values, Count::Keys].map(count);
    assert_eq!(found, [2500, 1030, 1050, 1, 100, 0]);
    assert_eq!([Count::Held, Count::Probes, Count::Keeps, Count::Copies, Count::Head].map(count), [5, 1, 0, 0, 0]);
    let chunks = |of| words(&taken, taken.chunk_count_at(of, 0), 3);
    assert_eq!(chunks(Count::Live), [1024, 1024, 452]);
    assert_eq!(chunks(Count::Computed), [1024, 26, 0]);
    assert_eq!(chunks(Count::Keys), [0, 0, 0]);
    // Counts end where arrays begin.
    assert!(taken.chunk_count_at(Count::Keys, taken.chunks - 1) + 4 <= taken.ids.at);
    assert!(Count::Head.at() < taken.chunk_count_at(Count::Live, 0));
}

#[test]
fn launches_of_one_bucket_have_everything_at_the_same_places() {
    let (a, b, c) = (taken(&launch(97)), taken(&launch(128)), taken(&launch(129)));
    let places = |taken: &PackedLaunch| [taken.ids, taken.limits, taken.tables, taken.last].map(|array| array.at);
    assert_eq!(places(&a), places(&b));
    assert_eq!(a.bytes().len(), b.bytes().len());
    assert_ne!(places(&b), places(&c));
}

#[test]
fn probes_know_their_rows_and_who_compares_what() {
    let mut launch = launch(20);
    let probe = |rows, by| ProbeLaunch { rows, keep: 1, by };
    launch.probed = vec![3, 4, 5, 8, 9, 12];
    launch.probes =
        vec![probe(2, Drift::Value), probe(1, Drift::Random { seed: 0x1234_5678_9abc_def0 }), probe(3, Drift::Key)];
    let taken = taken(&launch);
    assert!(taken.rolls);
    let probes = words(&taken, taken.probes.at, 18);
    assert_eq!(probes[..6], [0, 2, 1, 0, 0, 0]);
    assert_eq!(probes[6..12], [2, 1, 1, 1, 0x9abc_def0, 0x1234_5678]);
    assert_eq!(probes[12..], [3, 3, 1, 0, 0, 0]);
    assert_eq!(taken.compared.map(|list| array(&taken, list)), [vec![3, 4], vec![8, 9, 12]]);
    assert_eq!(taken.places.map(|list| array(&taken, list)), [vec![0, 1], vec![3, 4, 5]]);
}

#[test]
fn copies_are_pairs() {
    let mut launch = launch(9);
    launch.keeps = vec![SlotCopy { from: 1, to: 2 }, SlotCopy { from: 3, to: 4 }];
    launch.copies = vec![PageCopy { from: 5, to: 6 }];
    let taken = taken(&launch);
    assert_eq!((array(&taken, taken.keeps), array(&taken, taken.copies)), (vec![1, 2, 3, 4], vec![5, 6]));
    assert_eq!((taken.count(Count::Keeps), taken.count(Count::Copies)), (2, 1));
}

/// Reads the written bytes as the structure that they are.
fn structures<T: Plain>(taken: &PackedLaunch, array: Array) -> Vec<T> {
    let bytes = &taken.bytes()[array.at..][..array.length * size_of::<T>()];
    // SAFETY: the bytes of plain structures.
    bytes.chunks_exact(size_of::<T>()).map(|bytes| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }).collect()
}

#[test]
fn head_rows_find_their_requests_tokens_and_answers() {
    let mut launch = launch(9);
    let row = |row, request| HeadRow { row, request, key: u64::from(row) << 40 };
    launch.head.rows = vec![row(3, 0), row(5, 1), row(6, 1)];
    let judging = HeadRequest { score_width: 2, top: 3, zero_confidence: vec![8].into(), ..HeadRequest::default() };
    let forbidding = HeadRequest { banned: vec![1, 2].into(), margin: true, ..HeadRequest::default() };
    // No row has the third.
    launch.head.requests = vec![forbidding.clone(), judging, HeadRequest { top: 90, ..forbidding }];
    launch.head.score = vec![40, 41, 50, 51];
    launch.head.blends = vec![BlendRows { head_row: 1, other: NO_ROW, scale: 0.5, slot: 77 }];
    let taken = taken(&launch);
    assert_eq!(array(&taken, taken.lists), [40, 41, 50, 51, 1, 2, 8]);
    let rows = structures::<HeadRowData>(&taken, taken.head_rows);
    assert_eq!(rows.iter().map(|row| (row.row, row.request)).collect::<Vec<_>>(), [(3, 0), (5, 1), (6, 1)]);
    assert_eq!(rows.iter().map(|row| (row.top, row.judged)).collect::<Vec<_>>(), [(0, 0), (0, 0), (3, 2)]);
    assert_eq!(rows.iter().map(|row| row.blended).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!((rows[1].other, rows[1].slot, rows[1].scale, rows[1].key), (NO_ROW, 77, 0.5, 5 << 40));
    let requests = structures::<RequestData>(&taken, taken.requests);
    assert_eq!(requests.len(), 2);
    assert_eq!((requests[0].forbid, requests[0].forbidden, requests[0].muted, requests[0].margin), (4, 2, 0, 1));
    assert_eq!((requests[1].mute, requests[1].muted, requests[1].judge_width, requests[1].top), (6, 1, 2, 3));
    assert_eq!(taken.row_requests.len(), 3);
    assert_eq!(taken.row_requests[2], HeadRowRequest { top: 3, judged: 2, ..HeadRowRequest::default() });
}

#[test]
fn a_shape_has_room_for_its_launches() {
    let mut launch = launch(300);
    launch.fixed = (0..100).collect();
    launch.last = (0..300).collect();
    launch.held = (0..300).collect();
    launch.probed = (100..300).collect();
    launch.probes = vec![ProbeLaunch { rows: 200, keep: 3, by: Drift::Key }];
    launch.keeps = (0..300).map(|slot| SlotCopy { from: slot, to: slot + 300 }).collect();
    launch.copies = (0..7).map(|page| PageCopy { from: page, to: page + 7 }).collect();
    launch.head.rows = (0..300).map(|row| HeadRow { row, request: 0, key: 0 }).collect();
    launch.head.requests = vec![HeadRequest { banned: vec![1].into(), ..HeadRequest::default() }];
    let mut taken = PackedLaunch::new(300);
    taken.take(&launch);
    assert!(taken.bytes().len() <= PackedLaunch::room(300, 300, 7), "{}", taken.bytes().len());
}

#[test]
fn answers_lie_behind_each_other() {
    let answers = Answers::of(20, 60, 5);
    let (tokens, top) = (answers.confidence, answers.judged - answers.top);
    assert_eq!((tokens, answers.top, top, answers.end - answers.judged), (128, 512, 64 * 8, 8 * 12));
    assert_eq!(Answers::of(17, 49, 8), answers);
    assert_eq!(Answers::of(20, 0, 0).end, 512);
}

/// Symptom: kernels on computed rows believe the count that was taken over; a row that is named twice would be computed
/// in place of another that the device never wrote.
#[test]
fn launches_that_count_other_rows_than_the_device_will_list_are_refused() {
    let by = Drift::Random { seed: 1 };
    let refused = |fixed: &[u32], probed: &[u32], probes: &[ProbeLaunch]| {
        let (fixed, probed, probes) = (fixed.to_vec(), probed.to_vec(), probes.to_vec());
        let launch = Launch { partial: true, fixed, probed, probes, ..launch(30) };
        let panic = std::panic::catch_unwind(|| taken(&launch)).err()?;
        Some(*panic.downcast_ref::<&str>().expect("a text"))
    };
    let probe = |rows: u32, keep: u32| ProbeLaunch { rows, keep, by };
    let twice = Some("no row is both fixed and probed, or either twice");
    assert_eq!(refused(&[1, 2], &[3, 4, 5, 6], &[probe(2, 2), probe(2, 1)]), None);
    assert_eq!(refused(&[1, 4], &[3, 4, 5], &[probe(3, 2)]), twice);
    assert_eq!(refused(&[1], &[3, 4, 4, 5], &[probe(2, 1), probe(2, 1)]), twice);
    assert_eq!(refused(&[1, 1], &[], &[]), twice);
    assert_eq!(refused(&[1], &[3, 4], &[probe(2, 3)]), Some("a probe keeps as many rows as it has, or fewer"));
}
