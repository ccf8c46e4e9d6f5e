//! Order in which requests share the next forward of a network: start-time fair queueing over rows.
//!
//! Each ready request has a *tag*: the rows that it was served so far, divided by its weight. So has each tenant: the rows
//! that all its requests were served, divided by its own weight. A forward takes groups by ascending tag of their tenants, of
//! a tenant by ascending tag of its requests, then id, and ends at the first group that does not fit; a group of another
//! launch kind is passed over. What was taken is charged to both, and no tag stays behind the largest one of a group that was
//! taken (the network's *time*, and among requests their tenant's): who had all that it wanted saves up nothing.
//!
//! So between two turns of a request i of a tenant, another request j of it is served at most `w_j r_i / w_i` rows and one
//! group more, where `r_i` are i's rows in the first of the two and w the weights; and between two turns of a tenant the same
//! holds for another tenant and all its requests together. Where launch kinds differ, two groups come on top: one that
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
    /// Index of its tenant among the parties.
    pub party: usize,
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

/// A tenant on a network: its requests that are ready, and its tag.
#[derive(Debug)]
pub(super) struct Party {
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
    pub(super) fn new(id: u64) -> Self {
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
    let head = |party: &Party| party.ready.peek().map(|Reverse(head)| head.id);
    let ready = parties.iter().enumerate().filter_map(|(place, party)| Some((party.tag, head(party)?, place)));
    ready.min_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1))).map(|(.., place)| place)
}

/// Chooses the groups of a forward from the ready requests, which the parties' heaps hold; `next` describes a request's next
/// group, if it has one. Fills `chosen` with the requests that take part, tags and groups taken brought up to date, and returns
/// the network's time.
///
/// The first group is always taken. Others are taken as long as they fit: those whose turn comes before the first one's
/// next turn anyway, and any that are nearly free.
pub(super) fn choose(
    parties: &mut [Party],
    room: Room,
    mut time: f64,
    mut next: impl FnMut(&Ready) -> Option<Group>,
    chosen: &mut Vec<Ready>,
) -> f64 {
    chosen.clear();
    let (mut rows, mut kind) = (0, None);
    // Turn up to which a turn comes before that of the first one passed over comes again.
    let mut passed: Option<Turn> = None;
    // Rows up to which anything fits, and the turn up to which one comes anyway.
    let (mut free, mut due) = (0, Turn { party: 0.0, of: usize::MAX, request: 0.0 });
    while let Some(of) = first(parties) {
        let party = &mut parties[of];
        let Some(Reverse(mut request)) = party.ready.pop() else { break };
        let Some(group) = next(&request) else { continue };
        let served = group.rows as f64;
        let turn = Turn { party: party.tag, of, request: request.tag };
        let again =
            Turn { party: party.tag + served / party.weight, of, request: request.tag + served / request.weight };
        if kind.is_some() && group.kind.is_some() && kind != group.kind {
            passed = passed.or(Some(again));
            continue;
        }
        if passed.is_some_and(|passed| turn.is_after(&passed)) {
            break;
        }
        if rows == 0 {
            (free, due) = (group.rows.saturating_add(room.free), again);
        } else {
            let most = if turn.is_after(&due) { free.min(room.capacity) } else { room.capacity };
            if group.rows > most.saturating_sub(rows) {
                break;
            }
        }
        rows += group.rows;
        kind = kind.or(group.kind);
        time = party.tag.max(time);
        party.time = request.tag.max(party.time);
        (party.tag, request.tag) = (again.party, again.request);
        request.taken += 1;
        request.rows += group.rows;
        match chosen.iter_mut().find(|one| one.slot == request.slot) {
            Some(one) => *one = request,
            None => chosen.push(request),
        }
        // Past one that was passed over, everybody has one group at most.
        if passed.is_none() {
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
