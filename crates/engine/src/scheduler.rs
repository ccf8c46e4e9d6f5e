//! The owner of networks: lets requests enter, joins their steps into forwards, feeds them, and hands them over when they
//! end.

mod memory;

use std::time::{Duration, Instant};

use demask_step::{DeviceError, DeviceId, Network, Pending, SequenceId, SequenceLimits};

use crate::{
    error::{Busy, RequestError, SubmitError},
    faults::Faults,
    ids::{NetworkId, RequestId},
    memory::{Growths, MemoryBudgets},
    network::{NetworkCounters, NetworkState},
    params::Tenant,
    queue::Queue,
    request::{Observer, Request},
};

/// Forwards for which a request that waits for memory may be overtaken, unless set otherwise.
const PATIENCE: u64 = 64;

/// Owner of networks that runs requests on them, many at a time: each [`step`](Self::step) is one forward of one network.
///
/// It has no thread: you drive it, or an [`Engine`](crate::Engine) does. One table holds the requests that run, one queue those
/// that wait, and a request has one [`RequestId`] from its submission to its end. Which requests share a forward decides when
/// each is served, and changes no prediction.
///
/// ```text
/// let network = scheduler.add(network);
/// let id = scheduler.submit(request, &[network])?;
/// while !scheduler.is_idle() {
///     scheduler.step(&mut |request| ControlFlow::Continue(()), &mut finished);
///     for request in finished.drain(..) { .. }
/// }
/// ```
pub struct Scheduler<N: Network + ?Sized> {
    states: Vec<Option<NetworkState<N>>>,
    running: Vec<Box<Request>>,
    waiting: Queue,
    budgets: MemoryBudgets,
    growths: Growths,
    /// Records whether requests enter before all the memory is free that they may take.
    preempts: bool,
    /// Records whether anything came or went since waiting requests were last looked at.
    stirred: bool,
    /// Records whether any of them was held back then, until a running request has written the prefix that it begins
    /// with.
    held_back: bool,
    counters: Totals,
    clock: Box<dyn FnMut() -> Duration + Send>,
    leak: fn(&str),
}

/// A request that was refused, handed back with the reason.
#[derive(Debug)]
pub struct Refused {
    /// The request.
    pub request: Box<Request>,
    /// Reason of the refusal.
    pub error: SubmitError,
}

/// Summary of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ran {
    /// The network that ran a forward; none if nothing was ready.
    pub network: Option<NetworkId>,
    /// Requests that took part.
    pub requests: usize,
    /// Groups that ran.
    pub groups: usize,
    /// Rows that ran.
    pub rows: usize,
}

/// Counts of requests and forwards over all networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Forwards of all networks.
    pub forwards: u64,
    /// Requests that were refused when they were submitted, or because they could not be opened with nothing else open.
    pub refused: u64,
    /// Requests that still waited for memory when their deadline passed.
    pub expired: u64,
    /// Times that a request gave its memory up to others, to go on later.
    pub preempted: u64,
    /// Requests that were cancelled, waiting or running.
    pub cancelled: u64,
    /// Requests that ended with any other error.
    pub failed: u64,
    /// Requests that were done.
    pub done: u64,
    /// Requests that run: their sequences are open.
    pub running: usize,
    /// Requests that wait for memory.
    pub waiting: usize,
    /// Positions of the sequences, those of guides left out, of all requests that run or wait: the measure by which load is
    /// compared and spread.
    pub waiting_rows: u64,
    /// Longest wait for memory, in forwards.
    pub oldest: u64,
    /// Times that something was still open or held although nothing ran or waited: always 0, or there is a bug.
    pub leaks: u64,
}

impl<N: Network + ?Sized> Default for Scheduler<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N: Network + ?Sized> Scheduler<N> {
    /// Makes a scheduler without networks.
    pub fn new() -> Self {
        let start = Instant::now();
        Self {
            states: Vec::new(),
            running: Vec::new(),
            waiting: Queue::new(PATIENCE),
            budgets: MemoryBudgets::default(),
            growths: Growths::default(),
            preempts: true,
            stirred: false,
            held_back: false,
            counters: Totals::default(),
            clock: Box::new(move || start.elapsed()),
            leak: |what| tracing::error!("{what} although nothing runs (a bug, please report it)"),
        }
    }

    /// Sets another clock, for tests. Later calls must not return earlier times.
    #[must_use]
    pub fn with_clock(mut self, clock: impl FnMut() -> Duration + Send + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Sets for how many forwards a request that waits for memory may be overtaken by requests that need less. The default is
    /// 64.
    #[must_use]
    pub fn with_patience(mut self, forwards: u64) -> Self {
        self.waiting.patience = forwards;
        self
    }

    /// Sets whether requests enter as soon as there is memory for what they are likely to take: if it does not suffice, the
    /// youngest waits again. The default; without it, they enter once there is memory for all that they may take.
    pub fn set_preemption(&mut self, preempts: bool) {
        self.preempts = preempts;
        self.stirred = true;
    }

    /// Sets the function that is called if something is still open although nothing runs. The default writes a line to the
    /// log.
    #[must_use]
    pub fn with_leak(mut self, leak: fn(&str)) -> Self {
        self.set_leak(leak);
        self
    }

    /// Sets the function that is called if something is still open although nothing runs.
    pub fn set_leak(&mut self, leak: fn(&str)) {
        self.leak = leak;
    }

    /// Adds a network, and returns its name.
    pub fn add(&mut self, network: Box<N>) -> NetworkId {
        self.states.push(Some(NetworkState::new(network)));
        NetworkId(self.states.len() - 1)
    }

    /// Hands a network back, if it is there.
    ///
    /// # Errors
    /// If sequences are open on it, or requests wait for it.
    pub fn remove(&mut self, network: NetworkId) -> Result<Option<Box<N>>, Busy> {
        let waiting = self.waiting.count(|request| request.on.contains(&network));
        let Some(state) = self.states.get_mut(network.0) else { return Ok(None) };
        let open = state.as_ref().map_or(0, |state| state.counters.open) + waiting;
        if open > 0 {
            return Err(Busy { open });
        }
        Ok(state.take().map(|state| state.network))
    }

    /// Sets the faults that are injected before the forwards and openings of a network from now on, for tests.
    pub fn set_faults(&mut self, network: NetworkId, faults: Faults) {
        if let Some(state) = self.states.get_mut(network.0).and_then(Option::as_mut) {
            state.faults = faults;
        }
    }

    /// Returns the names of its networks, in the order in which they were added.
    pub fn networks(&self) -> Vec<NetworkId> {
        let there = self.states.iter().enumerate().filter(|(_, state)| state.is_some());
        there.map(|(index, _)| NetworkId(index)).collect()
    }

    /// Returns a network, to look at it; none if it was removed.
    pub fn network(&self, network: NetworkId) -> Option<&N> {
        Some(&*self.states.get(network.0)?.as_ref()?.network)
    }

    /// Returns a network, to change it or run it between forwards; none if it was removed.
    pub fn network_mut(&mut self, network: NetworkId) -> Option<&mut N> {
        Some(&mut *self.states.get_mut(network.0)?.as_mut()?.network)
    }

    /// Sets how many bytes sequences and the growth of shared buffers may take on a device from now on, beside those that they
    /// hold already. Without a limit the device itself says when it is full.
    pub fn limit(&mut self, device: DeviceId, bytes: u64) {
        let budget = self.budgets.of(device);
        budget.limit = bytes.saturating_add(budget.allocated).saturating_add(budget.grown);
        self.stirred = true;
    }

    /// Returns its counts over all networks.
    pub fn counters(&self) -> Totals {
        let (running, waiting) = (self.running.len(), self.waiting.len());
        let waiting_rows = self.running.iter().map(|request| request.rows()).sum::<u64>() + self.waiting.rows();
        Totals { running, waiting, waiting_rows, oldest: self.waiting.oldest(self.counters.forwards), ..self.counters }
    }

    /// Returns the counts of a network; none if it was removed.
    pub fn network_counters(&self, network: NetworkId) -> Option<NetworkCounters> {
        let state = self.states.get(network.0)?.as_ref()?;
        let one = SequenceLimits { positions: 1, ..SequenceLimits::default() };
        let page = state.network.memory_cost(&one).map_or(0, |cost| cost.own);
        let capacity = self.budgets.capacity(state.device);
        Some(NetworkCounters { page_capacity: capacity.and_then(|bytes| bytes.checked_div(page)), ..state.counters() })
    }

    /// Returns the counts of all networks, in the order in which they were added.
    pub fn all_network_counters(&self) -> impl Iterator<Item = NetworkCounters> {
        (0..self.states.len()).filter_map(|index| self.network_counters(NetworkId(index)))
    }

    /// Returns the error of the first network that has failed; none if all are sound.
    pub fn failure(&self) -> Option<&DeviceError> {
        self.states.iter().flatten().find_map(|state| state.failed.as_ref())
    }

    /// Returns whether nothing runs and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.len() == 0
    }

    /// Takes a request on, and returns its name. It waits, and enters before one of the next forwards: as soon as there is
    /// memory for all its sequences. Its network 0 is `on[0]`, and so on.
    ///
    /// # Errors
    /// If it could never run: a network is missing or has failed, a weight is not above 0, or its sequences need more memory
    /// than there is. It is handed back.
    pub fn submit(&mut self, request: impl Into<Box<Request>>, on: &[NetworkId]) -> Result<RequestId, Refused> {
        let mut request = request.into();
        if let Err(error) = self.refuse(&request, on) {
            self.counters.refused += 1;
            return Err(Refused { request, error });
        }
        if request.id == RequestId::default() {
            request.id = RequestId::next();
        }
        // What it does not need it is not bound to: that may fail without it.
        let needed = request.job().needs().iter().map(|need| need.network + 1).max().unwrap_or(0);
        request.on = on[..needed].to_vec();
        request.submitted = (self.clock)();
        let id = request.id;
        self.waiting.push(request);
        self.stirred = true;
        Ok(id)
    }

    fn refuse(&mut self, request: &Request, on: &[NetworkId]) -> Result<(), SubmitError> {
        let scheduling = request.scheduling;
        for weight in [scheduling.weight, scheduling.tenant.weight] {
            if !(weight > 0.0 && weight.is_finite()) {
                return Err(SubmitError::Weight(weight));
            }
        }
        for need in request.job().needs() {
            let state = on.get(need.network).and_then(|id| self.states.get(id.0)).and_then(Option::as_ref);
            let state = state.ok_or(SubmitError::NoNetwork(need.network))?;
            if let Some(error) = &state.failed {
                return Err(error.clone().into());
            }
        }
        let reservations = self.reservations(request, on, true)?;
        Ok(self.budgets.check_ever(&reservations)?)
    }

    /// Gives up a request that waits or runs, and hands it over; none if it is over or was never there.
    pub fn cancel(&mut self, id: RequestId) -> Option<Box<Request>> {
        self.cancel_all(|request| request.id == id).pop()
    }

    /// Gives up the requests for which `of` returns true, waiting or running, and hands them over.
    pub fn cancel_all(&mut self, of: impl Fn(&Request) -> bool) -> Vec<Box<Request>> {
        let mut cancelled = self.waiting.take(&of);
        while let Some(place) = self.running.iter().position(|request| of(request)) {
            cancelled.push(self.close(place, true));
        }
        if !cancelled.is_empty() {
            // Others may have waited for its memory, or after it.
            self.stirred = true;
            self.counters.cancelled += cancelled.len() as u64;
            for request in &mut cancelled {
                request.fail(RequestError::Cancelled);
            }
            self.check_leaks();
        }
        cancelled
    }

    /// Ends the requests that still wait although their deadline has passed, and appends them to `over`.
    pub fn expire(&mut self, now: Instant, over: &mut Vec<Box<Request>>) {
        let late = self.waiting.take(|request| request.is_late(now));
        // Others may have waited after them.
        self.stirred |= !late.is_empty();
        for request in late {
            let request = if request.preempted {
                self.given_up(request)
            } else {
                self.counters.expired += 1;
                self.refused(request, RequestError::Expired)
            };
            over.push(request);
        }
    }

    /// Ends a request that has run and waits for memory, with the settled tokens of its answer.
    fn given_up(&mut self, mut request: Box<Request>) -> Box<Request> {
        request.spent.wall = (self.clock)().saturating_sub(request.submitted);
        if let Some(session) = request.session_mut() {
            session.give_up();
        }
        request.report_to_reader();
        request.end_if_due();
        if request.end.is_none() {
            let over = matches!(request.job().pending(), Pending::Done);
            request.end = Some(if over { Ok(()) } else { Err(RequestError::Expired) });
        }
        match request.end {
            Some(Ok(())) => self.counters.done += 1,
            Some(Err(RequestError::Expired)) => self.counters.expired += 1,
            _ => self.counters.failed += 1,
        }
        request
    }

    /// Ends a request that never entered.
    fn refused(&mut self, mut request: Box<Request>, error: RequestError) -> Box<Request> {
        request.spent.wall = (self.clock)().saturating_sub(request.submitted);
        request.fail(error);
        request
    }

    /// Lets requests enter and runs one forward of one network: of those with ready requests, the one whose last turn is
    /// longest ago. `seen` is called with each request when it enters and after each of its forwards, and returns whether it
    /// goes on. Requests that are over are appended to `over`.
    pub fn step(&mut self, seen: &mut Observer<'_>, over: &mut Vec<Box<Request>>) -> Ran {
        let started = (self.clock)();
        self.admit(over);
        self.grow(seen);
        self.running.iter_mut().for_each(|running| running.show_first(seen));
        let ran = match self.turn() {
            Some(network) => self.forward(network, started, seen),
            None => Ran::default(),
        };
        self.retire(over);
        self.check_leaks();
        ran
    }

    /// Returns the requests that run.
    pub fn running(&self) -> impl Iterator<Item = &Request> {
        self.running.iter().map(|request| &**request)
    }

    fn close_sequences(&mut self, sequences: &[(NetworkId, SequenceId)], tenant: Tenant) {
        for &(network, sequence) in sequences {
            if let Some(state) = &mut self.states[network.0] {
                state.close(sequence, tenant);
            }
        }
    }

    /// Takes a running request out and gives back its memory. The reusable prefixes of a sound one are published.
    fn close(&mut self, place: usize, sound: bool) -> Box<Request> {
        let mut request = self.running.swap_remove(place);
        if sound {
            for (id, state) in self.states.iter_mut().enumerate() {
                if let Some(state) = state.as_mut().filter(|state| state.keeps_prefixes()) {
                    request.cache_prefixes(NetworkId(id), &mut *state.network, true);
                }
            }
        }
        self.stirred = true;
        for (need, &room) in request.job().needs().iter().zip(&request.open.room) {
            if let Some(opens_with) = need.limits.opens_with.filter(|_| request.end.as_ref().is_some_and(Result::is_ok))
            {
                self.growths.learn(need.limits.positions.saturating_sub(opens_with), room.saturating_sub(opens_with));
            }
        }
        let open = std::mem::take(&mut request.open);
        self.close_sequences(&open.sequences, request.tenant());
        self.budgets.release(&open.reservations);
        request.spent.wall = (self.clock)().saturating_sub(request.submitted);
        request
    }

    /// Finds the network whose turn it is. A request that breaks its contract ends here.
    fn turn(&mut self) -> Option<NetworkId> {
        let mut least: Option<(u64, NetworkId)> = None;
        for running in &mut self.running {
            let wanted = match running.wanted() {
                Ok(wanted) => wanted.map(|wanted| wanted.network),
                Err(broken) => {
                    running.fail(RequestError::Broken(broken));
                    continue;
                }
            };
            let Some(network) = wanted else { continue };
            let Some(state) = &self.states[network.0] else { continue };
            least = Some(least.map_or((state.turn, network), |least| least.min((state.turn, network))));
        }
        least.map(|(_, network)| network)
    }

    /// Runs one forward of a network and feeds the requests that took part.
    fn forward(&mut self, id: NetworkId, started: Duration, seen: &mut Observer<'_>) -> Ran {
        let Self { states, running, clock, counters, stirred, held_back, .. } = self;
        let Some(state) = &mut states[id.0] else { return Ran::default() };
        counters.forwards += 1;
        state.turn = counters.forwards;
        state.choose(id, running);
        let result = state.run(running, &mut **clock);
        let elapsed = match result {
            Ok(elapsed) => elapsed,
            Err(error) => {
                state.put_back(running);
                for one in running.iter_mut().filter(|one| one.end.is_none() && one.on.contains(&id)) {
                    one.fail(error.clone().into());
                }
                state.failed = Some(error);
                return Ran { network: Some(id), ..Ran::default() };
            }
        };
        let mut ran = Ran { network: Some(id), ..Ran::default() };
        let keeps = state.keeps_prefixes();
        for part in &state.joined {
            let one = &mut running[part.slot];
            let was_filling = one.is_filling();
            if part.is_piece {
                one.feed_piece(state.predictions(part));
            } else {
                one.feed(state.predictions(part));
            }
            if keeps && one.end.is_none() {
                one.cache_prefixes(id, &mut *state.network, false);
            }
            *stirred |= *held_back && was_filling && !one.is_filling();
            one.show(seen);
            ran.requests += 1;
            ran.groups += part.groups;
            ran.rows += part.rows;
        }
        state.put_back(running);
        let now = clock();
        let all = now.saturating_sub(started);
        for part in &state.joined {
            // A network may take groups without rows: these are not charged.
            running[part.slot].charge(id, elapsed, all, part.rows as f64 / ran.rows.max(1) as f64, now);
        }
        ran
    }

    /// Hands over the requests that are over.
    fn retire(&mut self, over: &mut Vec<Box<Request>>) {
        let mut place = 0;
        while place < self.running.len() {
            let request = &mut self.running[place];
            if request.end.is_none() && matches!(request.job().pending(), Pending::Done) {
                request.end = Some(Ok(()));
            }
            let sound = match &request.end {
                None => {
                    place += 1;
                    continue;
                }
                Some(Ok(())) => {
                    self.counters.done += 1;
                    true
                }
                Some(Err(RequestError::Cancelled)) => {
                    self.counters.cancelled += 1;
                    true
                }
                Some(Err(_)) => {
                    self.counters.failed += 1;
                    false
                }
            };
            let request = self.close(place, sound);
            over.push(request);
        }
    }

    /// Reports sequences, pages and bytes that are still held although nothing runs.
    fn check_leaks(&mut self) {
        if !self.is_idle() {
            return;
        }
        let mut leaks = Vec::new();
        for state in self.states.iter().flatten() {
            let (open, pages) = (state.counters.open, state.network.pages().used);
            if open > 0 || pages > 0 {
                leaks.push(format!("{open} sequences and {pages} pages are open"));
            }
        }
        let held = self.budgets.held();
        if held > 0 {
            leaks.push(format!("{held} bytes are held"));
        }
        self.counters.leaks += leaks.len() as u64;
        for leak in leaks {
            (self.leak)(&leak);
        }
    }
}

#[cfg(test)]
mod tests;
