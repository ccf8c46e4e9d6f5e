//! Order in which requests share the next forward of a network: start-time fair queueing over rows.
//!
//! Each ready request has a *tag*: the rows that it was served so far, divided by its weight. A forward takes groups of
//! requests by ascending tag, then id, and ends at the first group that does not fit; a group of another launch kind is
//! passed over. What was taken is charged, and no tag stays behind the largest one of a group that was taken (the
//! network's *time*): who had all that it wanted saves up nothing.
//!
//! So between two turns of a request i, another request j is served at most `w_j r_i / w_i` rows and one group more, where
//! `r_i` are i's rows in the first of the two and w the weights. Where launch kinds differ, two groups come on top: one that
//! j has while i is passed over, which happens once before i's turn, and one by which j catches up if it was passed over
//! itself.

use std::{cmp::Reverse, collections::BinaryHeap};

use demask_step::LaunchKind;

/// A request that is ready to run on a network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    /// Tag of its next group.
    pub tag: f64,
    /// Number of the request, which decides between equal tags.
    pub id: u64,
    /// Index among the running requests.
    pub slot: usize,
    /// Leading groups that were taken, and their rows.
    pub taken: usize,
    pub rows: usize,
    /// Share of the request.
    pub weight: f64,
}

impl PartialEq for Ready {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ready {}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ready {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.tag.total_cmp(&other.tag).then(self.id.cmp(&other.id))
    }
}

/// The next group of a ready request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    /// Rows of the group.
    pub rows: usize,
    /// Launch kind of the group.
    pub kind: Option<LaunchKind>,
}

/// Capacity of a forward.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Most rows.
    pub capacity: usize,
    /// Rows behind the first group that hardly lengthen the forward.
    pub free: usize,
}

/// Chooses the groups of a forward from the ready requests, which the heap holds; `next` describes a request's next group,
/// if it has one. Fills `chosen` with the requests that take part, tags and groups taken brought up to date, and returns
/// the network's time.
///
/// The first group is always taken. Others are taken as long as they fit: those whose turn comes before the first one's
/// next turn anyway, and any that are nearly free.
pub(super) fn choose(
    ready: &mut BinaryHeap<Reverse<Ready>>,
    room: Room,
    mut time: f64,
    mut next: impl FnMut(&Ready) -> Option<Group>,
    chosen: &mut Vec<Ready>,
) -> f64 {
    chosen.clear();
    let (mut rows, mut kind) = (0, None);
    // Tag up to which a turn comes before that of the first one passed over comes again.
    let mut passed: Option<f64> = None;
    // Rows up to which anything fits, and the tag up to which a turn comes anyway.
    let (mut free, mut due) = (0, 0.0);
    while let Some(Reverse(mut request)) = ready.pop() {
        let Some(group) = next(&request) else { continue };
        if kind.is_some() && group.kind.is_some() && kind != group.kind {
            passed = passed.or(Some(request.tag + group.rows as f64 / request.weight));
            continue;
        }
        if passed.is_some_and(|passed| request.tag > passed) {
            break;
        }
        if rows == 0 {
            (free, due) = (group.rows.saturating_add(room.free), request.tag + group.rows as f64 / request.weight);
        } else {
            let most = if request.tag <= due { room.capacity } else { free.min(room.capacity) };
            if group.rows > most.saturating_sub(rows) {
                break;
            }
        }
        rows += group.rows;
        kind = kind.or(group.kind);
        time = request.tag.max(time);
        request.tag += group.rows as f64 / request.weight;
        request.taken += 1;
        request.rows += group.rows;
        match chosen.iter_mut().find(|one| one.slot == request.slot) {
            Some(one) => *one = request,
            None => chosen.push(request),
        }
        // Past one that was passed over, everybody has one group at most.
        if passed.is_none() {
            ready.push(Reverse(request));
        }
    }
    ready.clear();
    for request in chosen {
        request.tag = request.tag.max(time);
    }
    time
}
