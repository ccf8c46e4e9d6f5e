//! A launch on its way to the device: one buffer, one upload a step.
//!
//! Counts are at its beginning, at fixed places; arrays follow, each with room for its bucket, so that launches of one
//! bucket have every array at the same place and their commands are equal to the byte. The arrays that are read back
//! have their own buffer of the same form: see [`Answers`].

use demask_step::{Drift, HeadRequest};
use demask_tensor::{HeadLaunch, Launch, NO_ROW, Rows};

use crate::arguments::{HeadRowData, Probe, RequestData, SegmentRows};

/// Rows that go through a product together: inputs and the MLP's intermediate stay small, and there are enough to keep
/// every multiprocessor busy.
pub(super) const CHUNK: usize = 1024;

/// Rows of the smallest bucket.
const LEAST: usize = 8;

/// Rounds a count up to a bucket: 8, 16, 32, 48, 64, 96, 128, ...: powers of two and one and a half times them, so that
/// few graphs serve all steps and at most half of a grid is idle.
pub(super) fn bucket(count: usize) -> usize {
    let power = count.next_power_of_two().max(LEAST);
    let between = power / 4 * 3;
    if count <= between && power >= 8 * LEAST { between } else { power }
}

/// Arrays begin at multiples of it, the size of the widest loads, and of every structure in them.
const ALIGNMENT: usize = 16;

/// A structure or number whose bytes go to the device as they are.
///
/// # Safety
/// `repr(C)` or a number, without padding.
unsafe trait Plain: Copy {}
// SAFETY: a number.
unsafe impl Plain for u32 {}
// SAFETY: `repr(C)`, four numbers of four bytes.
unsafe impl Plain for SegmentRows {}
// SAFETY: `repr(C)`, four numbers of four bytes before one of eight.
unsafe impl Plain for Probe {}
// SAFETY: `repr(C)`, two numbers of four bytes, one of eight, six of four.
unsafe impl Plain for HeadRowData {}
// SAFETY: `repr(C)`, numbers of four bytes.
unsafe impl Plain for RequestData {}

/// An array in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Array {
    /// First byte.
    pub(super) at: usize,
    /// Elements.
    pub(super) length: usize,
}

/// Counted list, by the place of its count in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Live,
    Fixed,
    Computed,
    Last,
    /// Rows that compare V.
    Values,
    /// Rows that compare K.
    Keys,
    Held,
    Probes,
    Keeps,
    Copies,
    Head,
}

impl Count {
    /// Number of the lists that products go over in chunks.
    const CHUNKED: usize = 6;
    const ALL: usize = 11;

    /// Place of the count in the buffer.
    pub(super) fn at(self) -> usize {
        self as usize * size_of::<u32>()
    }

    pub(super) fn of(rows: Rows) -> Self {
        match rows {
            Rows::Live => Self::Live,
            Rows::Fixed => Self::Fixed,
            Rows::Computed => Self::Computed,
            Rows::Last => Self::Last,
        }
    }
}

/// The bytes of a launch, and where things are in them.
pub(super) struct PackedLaunch {
    bytes: Vec<u8>,
    /// Chunks of as many rows as there can be.
    chunks: usize,
    counts: [usize; Count::ALL],
    pub(super) ids: Array,
    pub(super) positions: Array,
    pub(super) slots: Array,
    pub(super) limits: Array,
    pub(super) segment_of: Array,
    pub(super) segments: Array,
    pub(super) tables: Array,
    pub(super) fixed: Array,
    pub(super) last: Array,
    pub(super) held: Array,
    pub(super) probed: Array,
    pub(super) probes: Array,
    /// Rows that compare V, then those that compare K, and their places among the probed.
    pub(super) compared: [Array; 2],
    pub(super) places: [Array; 2],
    pub(super) keeps: Array,
    pub(super) copies: Array,
    pub(super) head_rows: Array,
    pub(super) requests: Array,
    pub(super) lists: Array,
    /// Records whether a probe is random.
    pub(super) rolls: bool,
    /// Keys that the row with the most of them sees.
    pub(super) keys: usize,
    /// Requests of the head rows.
    pub(super) row_requests: Vec<HeadRowRequest>,
    /// Slots of the rows.
    pub(super) row_slots: Vec<u32>,
    /// Scratch.
    rows: Vec<u32>,
}

/// Request of a head row beside its token and the token's probability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct HeadRowRequest {
    pub(super) margin: bool,
    pub(super) entropy: bool,
    pub(super) logits: bool,
    pub(super) top: usize,
    pub(super) judged: usize,
}

impl PackedLaunch {
    /// Creates the lists of launches of up to this many rows.
    pub(super) fn new(rows: usize) -> Self {
        let none = Array::default();
        Self {
            bytes: Vec::new(),
            chunks: bucket(rows).div_ceil(CHUNK),
            counts: [0; Count::ALL],
            ids: none,
            positions: none,
            slots: none,
            limits: none,
            segment_of: none,
            segments: none,
            tables: none,
            fixed: none,
            last: none,
            held: none,
            probed: none,
            probes: none,
            compared: [none; 2],
            places: [none; 2],
            keeps: none,
            copies: none,
            head_rows: none,
            requests: none,
            lists: none,
            rolls: false,
            keys: 0,
            row_requests: Vec::new(),
            row_slots: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// The bytes to upload.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of entries of a list.
    pub(super) fn count(&self, of: Count) -> usize {
        self.counts[of as usize]
    }

    /// Address of the count of a chunk of a list.
    pub(super) fn chunk_count_at(&self, of: Count, chunk: usize) -> usize {
        (Count::ALL + of as usize * self.chunks + chunk) * size_of::<u32>()
    }

    /// Takes a launch over. Allocates nothing, but for launches that are longer than any before.
    ///
    /// # Panics
    /// If its arrays contradict each other.
    pub(super) fn take(&mut self, launch: &Launch) {
        let rows = launch.len();
        let arrays = [&launch.positions, &launch.slots, &launch.limits];
        assert!(arrays.iter().all(|array| array.len() == rows), "one position, slot and limit for each row");
        self.bytes.clear();
        self.bytes.resize((Count::ALL + Count::CHUNKED * self.chunks) * size_of::<u32>(), 0);
        self.take_rows(launch);
        self.take_lists(launch);
        self.take_probes(launch);
        self.take_head(&launch.head);
        self.write_counts(launch);
        self.keys = launch.limits.iter().copied().max().unwrap_or(0) as usize;
        self.row_slots.clone_from(&launch.slots);
    }

    fn take_rows(&mut self, launch: &Launch) {
        self.ids = self.array(launch.ids.iter().copied());
        self.positions = self.array(launch.positions.iter().copied());
        self.slots = self.array(launch.slots.iter().copied());
        self.limits = self.array(launch.limits.iter().copied());
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        for (index, segment) in launch.segments.iter().enumerate() {
            assert_eq!(segment.rows.start as usize, rows.len(), "segments follow each other");
            rows.resize(segment.rows.end as usize, index as u32);
        }
        assert_eq!(rows.len(), launch.len(), "segments cover all rows");
        self.segment_of = self.array(rows.iter().copied());
        self.rows = rows;
        self.segments = self.array(launch.segments.iter().map(|segment| SegmentRows {
            first: segment.rows.start,
            end: segment.rows.end,
            table: segment.table.start,
            entries: segment.table.end - segment.table.start,
        }));
        self.tables = self.array(launch.tables.iter().copied());
    }

    fn take_lists(&mut self, launch: &Launch) {
        self.fixed = self.array(launch.fixed.iter().copied());
        self.last = self.array(launch.last.iter().copied());
        self.held = self.array(launch.held.iter().copied());
        let keeps = (0..2 * launch.keeps.len()).map(|index| {
            let keep = launch.keeps[index / 2];
            if index % 2 == 0 { keep.from } else { keep.to }
        });
        self.keeps = self.array(keeps);
        let copies = (0..2 * launch.copies.len()).map(|index| {
            let copy = launch.copies[index / 2];
            if index % 2 == 0 { copy.from } else { copy.to }
        });
        self.copies = self.array(copies);
    }

    fn take_probes(&mut self, launch: &Launch) {
        self.check_computed(launch);
        self.probed = self.array(launch.probed.iter().copied());
        let mut first = 0;
        self.probes = self.array(launch.probes.iter().map(|probe| {
            let (random, key) = match probe.by {
                Drift::Random { seed } => (1, seed),
                Drift::Value | Drift::Key => (0, 0),
            };
            first += probe.rows;
            Probe { first: first - probe.rows, rows: probe.rows, keep: probe.keep, random, key }
        }));
        self.rolls = launch.probes.iter().any(|probe| matches!(probe.by, Drift::Random { .. }));
        for (index, drift) in [Drift::Value, Drift::Key].into_iter().enumerate() {
            let (mut places, mut first) = (std::mem::take(&mut self.rows), 0);
            places.clear();
            for probe in &launch.probes {
                if probe.by == drift {
                    places.extend(first..first + probe.rows);
                }
                first += probe.rows;
            }
            self.compared[index] = self.array(places.iter().map(|&place| launch.probed[place as usize]));
            self.places[index] = self.array(places.iter().copied());
            self.rows = places;
        }
    }

    /// Reports whether the computed rows are as many as are counted, whatever the device chooses: no row is listed
    /// twice, and no probe keeps more rows than it has. The device lists each row once, and what runs on the list
    /// believes the count.
    fn check_computed(&mut self, launch: &Launch) {
        let listed = &mut self.rows;
        listed.clear();
        listed.resize(launch.len(), 0);
        launch.fixed.iter().chain(&launch.probed).for_each(|&row| listed[row as usize] += 1);
        assert!(listed.iter().all(|&times| times <= 1), "no row is both fixed and probed, or either twice");
        let has_room = launch.probes.iter().all(|probe| probe.keep <= probe.rows);
        assert!(has_room, "a probe keeps as many rows as it has, or fewer");
    }

    /// Appends the head rows, their requests, and all tokens that these name. Tokens to judge come first, so that a
    /// row's are at the same place in this list and among the answers.
    fn take_head(&mut self, head: &HeadLaunch) {
        self.row_requests.clear();
        let (mut next_top, mut next_judged) = (0, 0);
        let Self { bytes, row_requests: asked, rows: blends, .. } = self;
        blends.clear();
        blends.resize(head.rows.len(), NO_ROW);
        (0..).zip(&head.blends).for_each(|(index, blend)| blends[blend.head_row as usize] = index);
        let rows = head.rows.iter().zip(&*blends).map(|(row, &blend)| {
            let request = &head.requests[row.request as usize];
            let HeadRequest { margin, entropy, logits, top, score_width: judge_width, .. } = *request;
            asked.push(HeadRowRequest { margin, entropy, logits, top, judged: judge_width });
            let (own_top, own_judged) = (next_top, next_judged);
            (next_top, next_judged) = (next_top + top as u32, next_judged + judge_width as u32);
            let blend = head.blends.get(blend as usize);
            HeadRowData {
                row: row.row,
                request: row.request,
                key: row.key,
                other: blend.map_or(NO_ROW, |blend| blend.other),
                slot: blend.map_or(NO_ROW, |blend| blend.slot),
                scale: blend.map_or(0.0, |blend| blend.scale),
                blended: u32::from(blend.is_some()),
                top: own_top,
                judged: own_judged,
            }
        });
        self.head_rows = append(bytes, rows);
        assert_eq!(next_judged as usize, head.score.len(), "as many tokens to judge as are asked for");
        // Requests that no row has are behind those that one has.
        let used = head.rows.iter().map(|row| row.request as usize + 1).max().unwrap_or(0);
        let requests = &head.requests[..used];
        let mut next = head.score.len() as u32;
        self.requests = self.array(requests.iter().map(|request| {
            let (forbid, mute) = (next, next + request.banned.len() as u32);
            next = mute + request.zero_confidence.len() as u32;
            RequestData::of(request, forbid, mute)
        }));
        let named = requests.iter().flat_map(|request| request.banned.iter().chain(request.zero_confidence.iter()));
        self.lists = append(&mut self.bytes, head.score.iter().chain(named).copied());
    }

    fn write_counts(&mut self, launch: &Launch) {
        let lists = [launch.len(), launch.fixed.len(), launch.count(Rows::Computed), launch.last.len()];
        let [values, keys] = self.compared.map(|array| array.length);
        let others = [launch.held.len(), launch.probes.len(), launch.keeps.len(), launch.copies.len()];
        let all = lists.into_iter().chain([values, keys]).chain(others).chain([launch.head.rows.len()]);
        self.counts.iter_mut().zip(all).for_each(|(count, found)| *count = found);
        let totals = self.counts.into_iter();
        let chunks = self.chunks;
        let of_chunks = self.counts[..Count::CHUNKED]
            .iter()
            .flat_map(move |&count| (0..chunks).map(move |chunk| count.saturating_sub(chunk * CHUNK).min(CHUNK)));
        let counts: usize = Count::ALL + Count::CHUNKED * chunks;
        let places = self.bytes[..counts * size_of::<u32>()].as_chunks_mut::<4>().0;
        for (place, count) in places.iter_mut().zip(totals.chain(of_chunks)) {
            *place = (count as u32).to_le_bytes();
        }
    }

    fn array<T: Plain>(&mut self, values: impl IntoIterator<Item = T>) -> Array {
        append(&mut self.bytes, values)
    }

    /// Bytes that launches of a shape take, those with more tokens named than rows aside.
    pub(super) fn room(rows: usize, head_rows: usize, table_entries: usize) -> usize {
        let (rows, head, tables) = (bucket(rows), bucket(head_rows), bucket(table_entries));
        let counts = Count::ALL + Count::CHUNKED * rows.div_ceil(CHUNK);
        let words = counts + 16 * rows + rows * (size_of::<SegmentRows>() + size_of::<Probe>()) / size_of::<u32>();
        let of_head = head * (size_of::<HeadRowData>() + size_of::<RequestData>() + 2 * size_of::<u32>());
        // Copies are at most of every page of every table.
        (words + 3 * tables) * size_of::<u32>() + of_head + 32 * ALIGNMENT
    }
}

/// Appends an array and room for the rest of its bucket.
fn append<T: Plain>(bytes: &mut Vec<u8>, values: impl IntoIterator<Item = T>) -> Array {
    let at = bytes.len().next_multiple_of(ALIGNMENT);
    bytes.resize(at, 0);
    let mut length = 0;
    for value in values {
        let start = bytes.len();
        bytes.resize(start + size_of::<T>(), 0);
        write(&mut bytes[start..], value);
        length += 1;
    }
    if length > 0 {
        bytes.resize(at + bucket(length) * size_of::<T>(), 0);
    }
    Array { at, length }
}

/// Writes a value's bytes.
fn write<T: Plain>(bytes: &mut [u8], value: T) {
    let out = &mut bytes[..size_of::<T>()];
    // SAFETY: `out` is as long as the value, which is plain; nothing asks for alignment.
    unsafe { out.as_mut_ptr().cast::<T>().write_unaligned(value) }
}

/// Addresses of the head's answers on the device, by buckets as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answers {
    pub(super) tokens: usize,
    pub(super) confidence: usize,
    pub(super) margin: usize,
    pub(super) entropy: usize,
    pub(super) top: usize,
    pub(super) judged: usize,
    /// All bytes.
    pub(super) end: usize,
}

impl Answers {
    /// Creates the addresses for a number of head rows, with numbers of best and judged tokens in all.
    pub(super) fn of(rows: usize, top: usize, judged: usize) -> Self {
        let some = |count: usize| if count > 0 { bucket(count) } else { 0 };
        let row = some(rows) * size_of::<u32>();
        let judged_at = (4 * row + some(top) * 8).next_multiple_of(ALIGNMENT);
        Self {
            tokens: 0,
            confidence: row,
            margin: 2 * row,
            entropy: 3 * row,
            top: 4 * row,
            judged: judged_at,
            end: judged_at + some(judged) * 12,
        }
    }
}

#[cfg(test)]
mod tests;
