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
//!
//! A group that can be cut runs in *pieces*, and a piece counts as a group. It has at most [`Room::piece`] rows. A *long*
//! group has more of them, and comes behind others of its tag. While others are ready, all long ones together have as many
//! rows of a forward as are nearly free, or one of them as many as it is behind the others: so they make progress in each
//! forward that has room for them, and it takes at most about twice the time that it would take without them, unless that
//! is less than their share. Where one is passed over because others of them have these rows, it is as with launch kinds.

use std::{cmp::Reverse, collections::BinaryHeap};

use demask_step::LaunchKind;

use super::pieces::Piece;

/// A request that is ready to run on a network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    /// Tag of its next group.
    pub tag: f64,
    /// Number of the request, which decides between equal tags.
    pub id: u64,
    /// Index among the running requests.
    pub slot: usize,
    /// Records whether its next group has more rows than a piece and can be cut.
    pub is_long: bool,
    /// Leading groups that were taken, and their rows; the end of the piece, if one was taken.
    pub taken: usize,
    pub rows: usize,
    pub end: Option<usize>,
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
        self.tag.total_cmp(&other.tag).then(self.is_long.cmp(&other.is_long)).then(self.id.cmp(&other.id))
    }
}

/// The next group of a ready request, or a piece of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    /// The group's rows, or the piece's.
    pub piece: Piece,
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
    /// Most rows of a piece.
    pub piece: usize,
}

/// Most rows that a request may add to a forward.
#[derive(Debug, Clone, Copy)]
struct Most {
    /// By a whole group, and by a piece.
    whole: usize,
    piece: usize,
}

/// Rows of the groups that a forward has so far.
#[derive(Debug, Default)]
struct Filling {
    rows: usize,
    /// Rows of long groups among them.
    long: usize,
    /// Least tag of the ready requests that are not long.
    others: Option<f64>,
    /// Rows up to which anything fits, and the tag up to which a turn comes before the first one's next turn.
    free: usize,
    due: f64,
}

impl Filling {
    /// Returns how many rows a request may add.
    fn most(&self, room: Room, request: &Ready) -> Most {
        if self.rows == 0 {
            let behind = |others: f64| ((others - request.tag) * request.weight) as usize;
            let beside = |others: f64| behind(others).max(room.free).min(room.piece);
            let others = self.others.filter(|_| request.is_long);
            return Most { whole: usize::MAX, piece: others.map_or(room.piece, beside) };
        }
        let up_to = |bound: usize| bound.min(room.capacity).saturating_sub(self.rows);
        if request.is_long {
            let most = up_to(usize::MAX).min(room.free.min(room.piece).saturating_sub(self.long));
            return Most { whole: most, piece: most };
        }
        let (whole, piece) = if request.tag <= self.due { (usize::MAX, room.piece) } else { (self.free, self.free) };
        Most { whole: up_to(whole), piece: up_to(piece) }
    }

    /// Adds a group of a request, whose tag is that before it.
    fn add(&mut self, room: Room, request: &Ready, rows: usize) {
        if self.rows == 0 {
            (self.free, self.due) = (rows.saturating_add(room.free), request.tag + rows as f64 / request.weight);
        }
        if request.is_long {
            self.long += rows;
        }
        self.rows += rows;
    }
}

/// Chooses the groups of a forward from the ready requests, which the heap holds; `next` describes a request's next group,
/// if it has one, or the piece of it that has at most so many rows. Fills `chosen` with the requests that take part, tags
/// and groups taken brought up to date, and returns the network's time.
///
/// The first group is always taken. Others are taken as long as they fit: those whose turn comes before the first one's
/// next turn anyway, and any that are nearly free.
pub(super) fn choose(
    ready: &mut BinaryHeap<Reverse<Ready>>,
    room: Room,
    mut time: f64,
    mut next: impl FnMut(&Ready, usize) -> Option<Group>,
    chosen: &mut Vec<Ready>,
) -> f64 {
    chosen.clear();
    let others = ready.iter().filter(|Reverse(request)| !request.is_long).map(|Reverse(request)| request.tag);
    let (mut filling, mut kind) = (Filling { others: others.reduce(f64::min), ..Filling::default() }, None);
    // Tag up to which a turn comes before that of the first one passed over comes again.
    let mut passed: Option<f64> = None;
    while let Some(Reverse(mut request)) = ready.pop() {
        let most = filling.most(room, &request);
        let Some(Group { piece: Piece { rows, end }, kind: own }) = next(&request, most.piece) else { continue };
        if kind.is_some() && own.is_some() && kind != own {
            passed = passed.or(Some(request.tag + rows as f64 / request.weight));
            continue;
        }
        if passed.is_some_and(|passed| request.tag > passed) {
            break;
        }
        if filling.rows > 0 && rows > if end.is_some() { most.piece } else { most.whole } {
            if !request.is_long {
                break;
            }
            // Other long groups have its rows: what is not long goes on beside them, before its turn comes.
            passed = passed.or(Some(request.tag + room.free as f64 / request.weight));
            continue;
        }
        filling.add(room, &request, rows);
        kind = kind.or(own);
        time = request.tag.max(time);
        request.tag += rows as f64 / request.weight;
        request.taken += 1;
        request.rows += rows;
        request.end = end;
        match chosen.iter_mut().find(|one| one.slot == request.slot) {
            Some(one) => *one = request,
            None => chosen.push(request),
        }
        // Past one that was passed over, everybody has one group at most; and a group is fed before the next one begins if
        // it runs in pieces.
        if passed.is_none() && end.is_none() {
            ready.push(Reverse(request));
        }
    }
    ready.clear();
    for request in chosen {
        request.tag = request.tag.max(time);
    }
    time
}
