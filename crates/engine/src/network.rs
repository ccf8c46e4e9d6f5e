//! A network of a scheduler, and the buffers in which its forwards are put together.

use std::{cmp::Reverse, mem, time::Duration};

use demask_step::{
    DeviceError, DeviceId, ForwardInput, Network, OpenError, OpenedSequence, Pages, Predictions, Prefix,
    PrefixCacheStats, RowBudget, SequenceId, SequenceLimits, SequenceStep, room,
};

use crate::{
    curve::{Curve, ForwardCost},
    error::RequestError,
    faults::Faults,
    ids::NetworkId,
    order::{Group, Party, Ready, Room, choose},
    params::Tenant,
    pieces::{Piece, can_be_cut, is_long, rows},
    request::Request,
};

/// A network, and scratch for its forwards, which never allocate: room is made when sequences are opened.
pub(crate) struct NetworkState<N: Network + ?Sized> {
    pub(crate) network: Box<N>,
    /// Faults that are injected, in tests.
    pub(crate) faults: Faults,
    /// Device whose memory the network takes.
    pub(crate) device: DeviceId,
    /// Reason why the network is no longer used.
    pub(crate) failed: Option<DeviceError>,
    /// Count of the scheduler's forwards when it ran last.
    pub(crate) turn: u64,
    pub(crate) counters: NetworkCounters,
    pub(crate) curve: Curve,
    /// Largest tag of a tenant with a group that was served.
    time: f64,
    /// Forwards that were put together.
    round: u64,
    /// Tenants with open sequences, and those that are ahead of others.
    parties: Vec<Party>,
    chosen: Vec<Ready>,
    batch: Vec<SequenceStep<'static>>,
    /// Index of the running request and its sequence, step by step.
    places: Vec<(usize, usize)>,
    out: Vec<Predictions>,
    pub(crate) joined: Vec<Joined>,
}

/// A request's part of a forward.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joined {
    /// Index among the running requests.
    pub(crate) slot: usize,
    /// Index of its first step in the batch.
    first: usize,
    steps: usize,
    pub(crate) groups: usize,
    pub(crate) rows: usize,
    /// Records whether it ran a piece of its first group.
    pub(crate) is_piece: bool,
}

/// Counts of one network since it was added, and its state now.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NetworkCounters {
    /// Forwards that have run.
    pub forwards: u64,
    /// Groups that ran in them, a piece of one counted as one.
    pub groups: u64,
    /// Rows that ran in them.
    pub rows: u64,
    /// Time that they took in the network.
    pub time: Duration,
    /// Sequences that are open.
    pub open: usize,
    /// Pages of K/V.
    pub pages: Pages,
    /// Pages, without anything beside K and V, that would fit into the memory that sequences may take of its device, if
    /// nothing else took any of it; none where no limit is set.
    pub page_capacity: Option<u64>,
    /// Counters of published prefixes; none if the network keeps none.
    pub prefixes: Option<PrefixCacheStats>,
    /// Rows that are nearly free beside others.
    pub free_rows: usize,
    /// Cost of a forward, once enough of them have run.
    pub cost: Option<ForwardCost>,
}

impl<N: Network + ?Sized> NetworkState<N> {
    pub(crate) fn new(network: Box<N>) -> Self {
        let curve = Curve::new(network.rows().free);
        // Nothing at all has a price, which says of which device.
        let device = network.memory_cost(&SequenceLimits::default()).unwrap_or_default().device;
        Self {
            network,
            device,
            failed: None,
            faults: Faults::default(),
            turn: 0,
            counters: NetworkCounters::default(),
            curve,
            time: 0.0,
            round: 0,
            parties: Vec::new(),
            chosen: Vec::new(),
            batch: Vec::new(),
            places: Vec::new(),
            out: Vec::new(),
            joined: Vec::new(),
        }
    }

    pub(crate) fn open(
        &mut self,
        needs: &SequenceLimits,
        prefix: Prefix<'_>,
        tenant: Tenant,
    ) -> Result<OpenedSequence, OpenError> {
        self.faults.opening()?;
        let opened = self.network.open_with_prefix(needs, prefix)?;
        self.counters.open += 1;
        let open = self.counters.open;
        self.enter(tenant);
        room(&mut self.chosen, open);
        room(&mut self.batch, open);
        room(&mut self.places, open);
        room(&mut self.out, open);
        room(&mut self.joined, open);
        Ok(opened)
    }

    /// Counts a sequence of a tenant, and makes room for its turns.
    fn enter(&mut self, tenant: Tenant) {
        let Self { parties, time, .. } = self;
        // One that left with more than its share is remembered until others have caught up.
        parties.retain(|party| party.open > 0 || party.tag > *time || party.id == tenant.id);
        let place = parties.iter().position(|party| party.id == tenant.id).unwrap_or_else(|| {
            parties.push(Party::new(tenant.id));
            parties.len() - 1
        });
        let party = &mut parties[place];
        party.weight = tenant.weight;
        party.open += 1;
        // Each sequence may be another request's.
        party.ready.reserve(party.open + 1);
    }

    /// Reports whether sequences may share prefixes on it.
    pub(crate) fn keeps_prefixes(&self) -> bool {
        self.failed.is_none() && self.network.prefix_cache_stats().is_some()
    }

    pub(crate) fn close(&mut self, sequence: SequenceId, tenant: Tenant) {
        self.counters.open -= 1;
        if let Some(party) = self.parties.iter_mut().find(|party| party.id == tenant.id) {
            party.open -= 1;
        }
        self.network.close(sequence);
    }

    /// Chooses the requests of the next forward, and how many groups of each; brings their tags up to date.
    pub(crate) fn choose(&mut self, id: NetworkId, running: &mut [Box<Request>]) {
        let Self { network, time, round, parties, chosen, curve, .. } = self;
        let RowBudget { capacity, piece, .. } = network.rows();
        let wants = |one: &Request| one.wanted().ok().flatten().is_some_and(|wanted| wanted.network == id);
        for party in parties.iter_mut() {
            party.least = None;
        }
        let mut least = None;
        for one in running.iter().filter(|one| wants(one)) {
            let Some(party) = one.party(parties).map(|place| &mut parties[place]) else { continue };
            if let Some(tag) = one.tag(id, *round) {
                party.least = Some(party.least.map_or(tag, |least: f64| least.min(tag)));
            }
            if party.round == *round {
                least = Some(least.map_or(party.tag, |least: f64| least.min(party.tag)));
            }
        }
        // One that comes, or comes back, begins at the least tag that is ready: a tenant among tenants, a request among its
        // tenant's.
        let entry = least.unwrap_or(*time).max(*time);
        for (slot, one) in running.iter_mut().enumerate() {
            let Some(place) = one.party(parties).filter(|_| wants(one)) else { continue };
            let party = &mut parties[place];
            if party.round < *round {
                party.tag = party.tag.max(entry);
            }
            party.round = *round + 1;
            let entry = party.least.unwrap_or(party.time).max(party.time);
            let tag = one.tag(id, *round).unwrap_or_else(|| entry.max(one.last_tag(id)));
            // Also of those that are not taken now: their turn comes.
            one.set_tag(id, tag, *round + 1);
            let is_long = one.wanted().ok().flatten().is_some_and(|wanted| is_long(wanted.group(0), piece));
            let (id, weight) = (one.id.0, one.scheduling.weight);
            let ready = Ready { tag, id, slot, party: place, is_long, groups: 0, rows: 0, end: None, weight };
            party.ready.push(Reverse(ready));
        }
        *round += 1;
        let room = Room { capacity, free: curve.free(), piece };
        let next = |ready: &Ready, most: usize| {
            let one = &running[ready.slot];
            let wanted = one.wanted().ok().flatten()?;
            if ready.groups >= wanted.requests.len() / wanted.group {
                return None;
            }
            let group = wanted.group(ready.groups);
            let piece = match ready.groups {
                0 if ready.is_long => one.open.pieces.next(group, most),
                _ => Piece { rows: rows(group), end: None },
            };
            Some(Group {
                piece,
                can_be_cut: can_be_cut(group),
                kind: group.iter().find_map(|request| request.plan.layers.launch_kind()),
            })
        };
        *time = choose(parties, room, *time, next, chosen);
        for taken in chosen {
            let one = &mut running[taken.slot];
            one.set_tag(id, taken.tag, *round);
            if let Some(end) = taken.end {
                one.cut(end, network.shift());
            }
            one.begin();
        }
    }

    /// Runs the chosen groups as one forward and leaves the predictions with the network. A request that is found wrong
    /// before it ends with an error, alone. Returns how long the network took.
    pub(crate) fn run(
        &mut self,
        running: &mut [Box<Request>],
        clock: &mut (dyn FnMut() -> Duration + Send),
    ) -> Result<Duration, DeviceError> {
        let Self { network, faults, chosen, batch, places, out, joined, .. } = self;
        joined.clear();
        places.clear();
        let mut wrong: Vec<(usize, RequestError)> = Vec::new();
        let mut steps = recycle(mem::take(batch));
        let mut keys = 0;
        for taken in chosen.iter() {
            let first = steps.len();
            match join(&running[taken.slot], taken, &**network, &mut steps) {
                Ok(requests) => {
                    places.extend(requests.iter().map(|request| (taken.slot, request.sequence)));
                    keys += requests.iter().map(read).sum::<u64>();
                    let (slot, groups, rows, is_piece) = (taken.slot, taken.groups, taken.rows, taken.end.is_some());
                    joined.push(Joined { slot, first, steps: steps.len() - first, groups, rows, is_piece });
                }
                Err(error) => {
                    steps.truncate(first);
                    wrong.push((taken.slot, error));
                }
            }
        }
        out.extend(places.iter().map(|&(slot, sequence)| running[slot].open.predictions[sequence].take()));
        let started = clock();
        let result = if steps.is_empty() { Ok(()) } else { faults.forward().and_then(|()| network.step(&steps, out)) };
        let elapsed = clock().saturating_sub(started);
        let ran = !steps.is_empty();
        *batch = recycle(steps);
        for (slot, error) in wrong {
            running[slot].fail(error);
        }
        if ran && result.is_ok() {
            let rows = joined.iter().map(|part| part.rows).sum();
            self.count(rows, keys, elapsed);
        }
        result.map(|()| elapsed)
    }

    fn count(&mut self, rows: usize, keys: u64, elapsed: Duration) {
        self.curve.learn(rows, keys, elapsed);
        self.counters.forwards += 1;
        self.counters.groups += self.joined.iter().map(|part| part.groups as u64).sum::<u64>();
        self.counters.rows += rows as u64;
        self.counters.time += elapsed;
    }

    /// Returns the predictions of a part of the last forward.
    pub(crate) fn predictions(&self, part: &Joined) -> &[Predictions] {
        &self.out[part.first..part.first + part.steps]
    }

    /// Puts predictions back beside the requests that they were for.
    pub(crate) fn put_back(&mut self, running: &[Box<Request>]) {
        for (&(slot, sequence), predictions) in self.places.iter().zip(self.out.drain(..)) {
            running[slot].open.predictions[sequence].set(predictions);
        }
    }

    pub(crate) fn counters(&self) -> NetworkCounters {
        let (pages, prefixes) = (self.network.pages(), self.network.prefix_cache_stats());
        let (free_rows, cost) = (self.curve.free(), self.curve.cost());
        NetworkCounters { pages, prefixes, free_rows, cost, ..self.counters }
    }
}

/// Appends the chosen groups of a request to a batch, each checked; returns their inputs.
fn join<'a, N: Network + ?Sized>(
    running: &'a Request,
    taken: &Ready,
    network: &N,
    steps: &mut Vec<SequenceStep<'a>>,
) -> Result<&'a [ForwardInput], RequestError> {
    let wanted = running.wanted().map_err(RequestError::Broken)?;
    let changed = RequestError::Broken("what is pending changed before it was fed");
    let Some(wanted) = wanted.filter(|wanted| taken.groups * wanted.group <= wanted.requests.len()) else {
        return Err(changed);
    };
    let requests = match taken.end {
        Some(_) => running.open.pieces.requests(),
        None => &wanted.requests[..taken.groups * wanted.group],
    };
    if rows(requests) != taken.rows {
        return Err(changed);
    }
    for group in requests.chunks(wanted.group) {
        let first = steps.len();
        steps.extend(group.iter().map(|request| request.step(running.open.sequences[request.sequence].1)));
        network.check(&steps[first..])?;
    }
    Ok(requests)
}

/// Keys that an input's rows read, roughly: all that are visible.
fn read(request: &ForwardInput) -> u64 {
    request.tokens.len() as u64 * u64::from(request.plan.kv_len)
}

/// Returns an empty vector for other lifetimes in the same allocation: collecting in place reuses it.
fn recycle<'b>(mut steps: Vec<SequenceStep<'_>>) -> Vec<SequenceStep<'b>> {
    steps.clear();
    steps.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}
