//! Entering and memory: requests enter as far as there is memory, take more of it as they go on, and give it up to others.

use demask_step::{DeviceId, MemoryCost, Network, OpenError, OutOfMemory, Position, Prefix, SequenceLimits};

use super::{PATIENCE, Scheduler};
use crate::{
    error::RequestError,
    ids::NetworkId,
    memory::{Reservation, SequenceCost, reservations},
    queue::{Entry, Queue},
    request::{Observer, Request},
};

impl<N: Network + ?Sized> Scheduler<N> {
    /// Opens sequences for waiting requests, as far as there is memory.
    pub(super) fn admit(&mut self, over: &mut Vec<Box<Request>>) {
        // Until something comes or goes, there is room for none that there was no room for before.
        if !std::mem::take(&mut self.stirred) || self.waiting.len() == 0 {
            return;
        }
        let mut waiting = std::mem::replace(&mut self.waiting, Queue::new(PATIENCE));
        let forwards = self.counters.forwards;
        let running: Vec<u64> = self.running.iter().map(|running| running.tenant().id).collect();
        let entered = |tenant: u64| running.iter().filter(|&&of| of == tenant).count();
        self.held_back = false;
        self.stirred = waiting.admit(forwards, entered, |mut request| {
            if !request.preempted && self.is_being_filled(&request) {
                self.held_back = true;
                return Entry::HeldBack(request);
            }
            match self.open(&mut request) {
                Ok(()) => {
                    self.running.push(request);
                    Entry::Left
                }
                Err(RequestError::Open(OpenError::Memory(_))) if !self.running.is_empty() => Entry::Blocked(request),
                Err(RequestError::Open(OpenError::Memory(error))) if request.preempted => {
                    request.run_out_of_memory(error);
                    let request = self.given_up(request);
                    over.push(request);
                    Entry::Left
                }
                Err(error) => {
                    self.counters.refused += 1;
                    let request = self.refused(request, error);
                    over.push(request);
                    Entry::Left
                }
            }
        });
        self.waiting = waiting;
    }

    /// Reports whether a request that runs is about to write what this one begins with. The wait is for that forward alone: what
    /// the other one writes is published right after it, and if it ends before, the first of those that wait takes its place.
    fn is_being_filled(&self, request: &Request) -> bool {
        let mut needs = request.job().needs().iter().enumerate();
        needs.any(|(index, need)| {
            let Some(&id) = request.on.get(need.network) else { return false };
            let Some(state) = self.states.get(id.0).and_then(Option::as_ref) else { return false };
            if !state.keeps_prefixes() || !self.running.iter().any(|running| running.is_filling()) {
                return false;
            }
            let prefix = request.job().prefix_tokens(index);
            let mut fillers = self.running.iter().flat_map(|running| running.filling(id));
            !prefix.tokens.is_empty() && fillers.any(|filler| state.network.gains(prefix, filler))
        })
    }

    /// Opens all sequences of a request, or none.
    fn open(&mut self, request: &mut Request) -> Result<(), RequestError> {
        for &id in &request.on {
            match self.states.get(id.0).and_then(Option::as_ref).map(|state| &state.failed) {
                Some(None) => {}
                Some(Some(error)) => return Err(error.clone().into()),
                None => return Err(RequestError::Broken("a network went away while work waited for it")),
            }
        }
        // One that was preempted comes back when it need not be again on its own account.
        let all = request.preempted || !self.preempts;
        let (tenant, reservations) = (request.tenant(), self.reservations(request, &request.on, all)?);
        self.budgets.check_now(&reservations)?;
        self.evict(request, &reservations);
        let needs = request.job().needs();
        let (mut sequences, mut filled) = (Vec::with_capacity(needs.len()), Vec::<Position>::new());
        for (index, need) in needs.iter().enumerate() {
            let id = request.on[need.network];
            let Some(state) = &mut self.states[id.0] else { continue };
            let prefix = if state.keeps_prefixes() { request.job().prefix_tokens(index) } else { Prefix::default() };
            match state.open(&need.limits, prefix, tenant) {
                Ok(opened) => {
                    sequences.push((id, opened.sequence));
                    filled.push(opened.filled);
                }
                Err(error) => {
                    self.close_sequences(&sequences, tenant);
                    return Err(error.into());
                }
            }
        }
        self.budgets.reserve(&reservations);
        request.enter(sequences, reservations, &filled);
        Ok(())
    }

    /// Takes memory for the positions that running requests see next, the oldest first. Where it does not suffice, the
    /// youngest of those whose memory grows waits again. A request that is alone ends with its settled tokens.
    pub(super) fn grow(&mut self, seen: &mut Observer<'_>) {
        let short = |request: &Request| request.wants_room().is_some();
        while let Some(place) = self.place(short, false) {
            if let Err(error) = self.grow_one(place) {
                match self.place(|request| !request.is_fixed() && request.end.is_none(), true) {
                    Some(youngest) if self.running.len() > 1 => self.preempt(youngest),
                    _ => {
                        self.running[place].run_out_of_memory(error);
                        self.running[place].show(seen);
                    }
                }
            }
        }
    }

    /// Finds the oldest running request for which `of` returns true, or the youngest: of the lowest priority, the last that came.
    fn place(&self, of: impl Fn(&Request) -> bool, youngest: bool) -> Option<usize> {
        let found = self.running.iter().enumerate().filter(|(_, request)| of(request));
        let ages = found.map(|(place, request)| (-i64::from(request.scheduling.priority), request.id, place));
        let found = if youngest { ages.max() } else { ages.min() };
        found.map(|(.., place)| place)
    }

    /// Takes memory for the positions that a running request sees next in one of its sequences.
    fn grow_one(&mut self, place: usize) -> Result<(), OutOfMemory> {
        let request = &mut self.running[place];
        let Some((sequence, positions)) = request.wants_room() else { return Ok(()) };
        let (id, name) = request.open.sequences[sequence];
        let Some(state) = &self.states[id.0] else { return Ok(()) };
        let (device, needed) = (state.device, state.network.growth(name, positions));
        let available = self.budgets.left(device);
        if needed > available {
            return Err(OutOfMemory { needed, available });
        }
        self.evict_to(device, available - needed);
        let request = &mut self.running[place];
        if let Some(state) = &mut self.states[id.0] {
            request.open.room[sequence] = state.network.grow(name, positions)?.max(positions);
        }
        if let Some(reservation) = request.open.reservations.iter_mut().find(|reservation| reservation.device == device)
        {
            self.budgets.add(reservation, needed);
        }
        request.count_bytes();
        Ok(())
    }

    /// Closes the sequences of a running request, to be opened again later. The prefixes that it has published stay
    /// until the memory is needed.
    fn preempt(&mut self, place: usize) {
        self.counters.preempted += 1;
        let mut request = self.close(place, true);
        request.preempt();
        self.waiting.push(request);
    }

    /// Makes room for a request that is about to enter: idle pages are as good as free, and go where they would not fit beside
    /// it. The pages that it begins with itself go last, and are part of its reservation.
    fn evict(&mut self, request: &Request, reservations: &[Reservation]) {
        for reservation in reservations {
            let left = self.budgets.left(reservation.device);
            let mut left = left.saturating_sub(reservation.allocated).saturating_sub(reservation.growth);
            for (index, need) in request.job().needs().iter().enumerate() {
                if let Some(state) = &mut self.states[request.on[need.network].0]
                    && state.device == reservation.device
                    && state.keeps_prefixes()
                {
                    left = left.saturating_add(state.network.touch_prefix(request.job().prefix_tokens(index)));
                }
            }
            self.evict_to(reservation.device, left);
        }
    }

    /// Evicts idle pages of a device until they take at most this number of bytes.
    fn evict_to(&mut self, device: DeviceId, mut bytes: u64) {
        for state in self.states.iter_mut().flatten().filter(|state| state.device == device) {
            bytes = bytes.saturating_sub(state.network.evict(bytes));
        }
    }

    /// Returns the memory of each device that a request takes when it is opened, and the memory that is promised to it:
    /// all that it may ever take, or a likely amount.
    pub(super) fn reservations(
        &self,
        request: &Request,
        on: &[NetworkId],
        all: bool,
    ) -> Result<Vec<Reservation>, OpenError> {
        let cost_of = |network: NetworkId, needs: &SequenceLimits| {
            let model = self.network(network)?;
            let opening = model.memory_cost(needs);
            let likely = |opens_with| opens_with + self.growths.likely(needs.positions.saturating_sub(opens_with));
            let opens_with = needs.opens_with.filter(|_| !all).map(likely);
            let promised = if needs.opens_with.is_none() {
                opening.clone()
            } else {
                model.memory_cost(&SequenceLimits { opens_with, ..needs.clone() })
            };
            let cost = |opening, promised: MemoryCost| SequenceCost { network, opening, promised: promised.own };
            Some(opening.and_then(|opening| promised.map(|promised| cost(opening, promised))))
        };
        let needs = request.job().needs().iter();
        reservations(needs.filter_map(|need| cost_of(*on.get(need.network)?, &need.limits)))
    }
}
