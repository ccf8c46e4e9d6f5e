//! Order in which requests share the next forward of a network: start-time fair queueing over rows.
//!
//! Each ready request has a *tag*: the rows that it was served so far, divided by its weight. So has each tenant: the rows
//! that all its requests were served, divided by its own weight. A forward takes groups by ascending tag of their tenants, of
//! a tenant by ascending tag of its requests, then id, and ends at the first group that does not fit; a group of another
//! launch kind is passed over. The rows of a group are charged to both, and no tag stays behind the largest one of a group
//! that was taken (the network's *time*, and among requests their tenant's): a request that had all that it wanted saves up
//! nothing.
//!
//! So between two turns of a request i of a tenant, another request j of it is served at most `w_j r_i / w_i` rows and one
//! group more, where `r_i` are i's rows in the first of the two and w the weights; and between two turns of a tenant the same
//! holds for another tenant and all its requests together. Where launch kinds differ, two groups come on top: one that
//! j has while i is passed over, which happens once before i's turn, and one by which j catches up if it was passed over
//! itself.
//!
//! A group that can be cut has at most [`Room::piece`] rows of a forward, together with what runs before it. A *long* group
//! has more than that: it runs in *pieces*, a piece counts as a group, and it comes after others of its tag. No other
//! group is cut, so that a request without a long one runs alike whatever runs beside it. While others are ready, all long
//! ones together have as many rows of a forward as are nearly free, or one of them as many as it is behind the others. So they
//! make progress in each forward that has room for them, and it takes at most about twice the time that it would take without
//! them, unless that is less than their share. Where one is passed over because others of them have these rows, it is as with
//! launch kinds, and others may be as many rows ahead of it as are nearly free.

use std::{cmp::Reverse, collections::BinaryHeap};

use demask_step::LaunchKind;

use crate::pieces::Piece;

/// A request that is ready to run on a network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// Tag of its next group.
    pub tag: f64,
    /// Number of the request, which decides between equal tags.
    pub id: u64,
    /// Index among the running requests.
    pub slot: usize,
    /// Index of its tenant among the parties.
    pub party: usize,
    /// Records whether its next group has more rows than a piece and can be cut.
    pub is_long: bool,
    /// Leading groups that were taken, and their rows; the end of the piece, if one was taken.
    pub groups: usize,
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
pub(crate) struct Group {
    /// The group's rows, or the piece's.
    pub piece: Piece,
    /// Records whether it could be cut: such groups share the rows of a piece, also where they are run whole.
    pub can_be_cut: bool,
    /// Launch kind of the group.
    pub kind: Option<LaunchKind>,
}

/// Capacity of a forward.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Most rows.
    pub capacity: usize,
    /// Rows after the first group that hardly lengthen the forward.
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
    /// Rows up to which anything fits, and the turn up to which one comes before the first one's next turn.
    free: usize,
    due: Option<Turn>,
}

impl Filling {
    /// Returns how many rows a request may add whose turn it is. `behind` is how many rows a long one is behind the others.
    fn most(&self, room: Room, request: &Ready, turn: &Turn, behind: Option<usize>) -> Most {
        let Some(due) = self.due else {
            let beside = |behind: usize| behind.max(room.free).min(room.piece);
            return Most { whole: usize::MAX, piece: behind.map_or(room.piece, beside) };
        };
        let up_to = |bound: usize| bound.min(room.capacity).saturating_sub(self.rows);
        if request.is_long {
            let most = up_to(usize::MAX).min(room.free.min(room.piece).saturating_sub(self.long));
            return Most { whole: most, piece: most };
        }
        let (whole, piece) = if turn.is_after(&due) { (self.free, self.free) } else { (usize::MAX, room.piece) };
        Most { whole: up_to(whole), piece: up_to(piece) }
    }

    /// Adds a group of a request, whose next turn is `again`.
    fn add(&mut self, room: Room, request: &Ready, rows: usize, again: Turn) {
        if self.due.is_none() {
            (self.free, self.due) = (rows.saturating_add(room.free), Some(again));
        }
        if request.is_long {
            self.long += rows;
        }
        self.rows += rows;
    }
}

/// A tenant on a network: its requests that are ready, and its tag.
#[derive(Debug)]
pub(crate) struct Party {
    pub id: u64,
    pub weight: f64,
    /// Tag of its next group.
    pub tag: f64,
    /// Round in which it was ready last.
    pub round: u64,
    /// Largest tag of a request of its that was served.
    pub time: f64,
    /// Least tag of those of its requests that were ready in the last round, while requests are put together.
    pub least: Option<f64>,
    /// Sequences that are open for it.
    pub open: usize,
    pub ready: BinaryHeap<Reverse<Ready>>,
}

impl Party {
    /// A tenant that was served nothing.
    pub(crate) fn new(id: u64) -> Self {
        Self { id, weight: 1.0, tag: 0.0, round: 0, time: 0.0, least: None, open: 0, ready: BinaryHeap::new() }
    }
}

/// Point in the order of all turns: tag of the tenant, the tenant, tag of the request.
#[derive(Debug, Clone, Copy)]
struct Turn {
    party: f64,
    of: usize,
    request: f64,
}

impl Turn {
    /// Reports whether a turn comes after another one.
    fn is_after(&self, other: &Self) -> bool {
        if self.of == other.of { self.request > other.request } else { self.party > other.party }
    }
}

/// Finds the party whose turn it is.
fn first(parties: &[Party]) -> Option<usize> {
    let head = |party: &Party| party.ready.peek().map(|Reverse(head)| (head.is_long, head.id));
    let ready = parties.iter().enumerate().filter_map(|(place, party)| Some((party.tag, head(party)?, place)));
    ready.min_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1))).map(|(.., place)| place)
}

/// Returns how many rows a long request of a party is behind the ready requests that are not long: behind those of its
/// tenant, and its tenant behind others. None if there are none, or it is not long itself.
fn rows_behind(parties: &[Party], of: usize, request: &Ready) -> Option<usize> {
    if !request.is_long {
        return None;
    }
    let own = &parties[of];
    let behind = parties.iter().enumerate().filter_map(|(place, party)| {
        let others = party.ready.iter().filter(|Reverse(other)| !other.is_long).map(|Reverse(other)| other.tag);
        let least = others.reduce(f64::min)?;
        Some(if place == of { (least - request.tag) * request.weight } else { (party.tag - own.tag) * own.weight })
    });
    behind.reduce(f64::min).map(|rows| rows as usize)
}

/// Chooses the groups of a forward from the ready requests, which the parties' heaps hold; `next` describes a request's next
/// group, if it has one, or the piece of it that has at most as many rows. Fills `chosen` with the requests that take part,
/// tags and groups taken brought up to date, and returns the network's time.
///
/// The first group is always taken. Others are taken as long as they fit: those whose turn comes before the first one's
/// next turn anyway, and any that are nearly free.
pub(crate) fn choose(
    parties: &mut [Party],
    room: Room,
    mut time: f64,
    mut next: impl FnMut(&Ready, usize) -> Option<Group>,
    chosen: &mut Vec<Ready>,
) -> f64 {
    chosen.clear();
    let (mut filling, mut kind) = (Filling::default(), None);
    // Turn up to which a turn comes before that of the first one passed over comes again.
    let mut passed: Option<Turn> = None;
    while let Some(of) = first(parties) {
        let Some(Reverse(mut request)) = parties[of].ready.pop() else { break };
        let behind = rows_behind(parties, of, &request);
        let party = &mut parties[of];
        let turn = Turn { party: party.tag, of, request: request.tag };
        let after = |rows: usize| {
            let served = rows as f64;
            Turn { party: turn.party + served / party.weight, of, request: turn.request + served / request.weight }
        };
        let most = filling.most(room, &request, &turn, behind);
        let Some(Group { piece: Piece { rows, end }, can_be_cut, kind: own }) = next(&request, most.piece) else {
            continue;
        };
        let again = after(rows);
        if kind.is_some() && own.is_some() && kind != own {
            passed = passed.or(Some(again));
            continue;
        }
        if passed.is_some_and(|passed| turn.is_after(&passed)) {
            break;
        }
        if filling.rows > 0 && rows > if can_be_cut { most.piece } else { most.whole } {
            if !request.is_long {
                break;
            }
            // Other long groups have its rows: requests that are not long go on beside them, before its turn comes.
            passed = passed.or(Some(after(room.free)));
            continue;
        }
        filling.add(room, &request, rows, again);
        kind = kind.or(own);
        time = party.tag.max(time);
        party.time = request.tag.max(party.time);
        (party.tag, request.tag) = (again.party, again.request);
        request.groups += 1;
        request.rows += rows;
        request.end = end;
        match chosen.iter_mut().find(|one| one.slot == request.slot) {
            Some(one) => *one = request,
            None => chosen.push(request),
        }
        // After one that was passed over, each request has one group at most; and a group is fed before the next one begins if
        // it runs in pieces.
        if passed.is_none() && end.is_none() {
            party.ready.push(Reverse(request));
        }
    }
    for request in chosen {
        let party = &mut parties[request.party];
        request.tag = request.tag.max(party.time);
        party.tag = party.tag.max(time);
    }
    for party in parties {
        party.ready.clear();
    }
    time
}
