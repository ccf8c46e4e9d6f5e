//! The owner of networks: lets work enter, joins its steps into forwards, feeds it, and hands it over when it ends.

mod curve;
mod error;
mod host;
mod memory;
mod order;
mod pieces;
mod queue;
mod running;
#[cfg(test)]
mod tests;

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use demask_step::{
    DeviceError, DeviceId, Network, OpenError, Pending, Position, Predictions, Prefix, SequenceId, SequenceNeeds, Work,
};

use crate::faults::Faults;

pub use curve::ForwardCost;
pub use error::{Busy, Refused, SubmitError, WorkError};
use host::Host;
pub use host::{NetworkCounters, NetworkId};
use memory::{Bill, Ledgers, bills};
use pieces::Pieces;
pub use queue::{Class, Tenant};
use queue::{Entry, Queue};
use running::Running;
pub use running::Spent;
pub(crate) use running::message;

/// Forwards for which work that waits for memory may be overtaken, unless somebody says otherwise.
const PATIENCE: u64 = 64;

/// Names a submitted work. Never given twice by one scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(u64);

/// Owns networks and runs work on them, many at a time: each [`step`](Self::step) is one forward of one network.
///
/// Which requests share a forward decides when each is served, and never what is predicted for it.
///
/// ```text
/// let network = scheduler.add(network);
/// let id = scheduler.submit(work, &[network], Class::default())?;
/// while !scheduler.is_idle() {
///     scheduler.step(&mut |id, work| ControlFlow::Continue(()), &mut over);
///     for finished in over.drain(..) { .. }
/// }
/// ```
pub struct Scheduler<W: Work, N: Network + ?Sized> {
    hosts: Vec<Option<Host<N>>>,
    running: Vec<Running<W>>,
    /// Predictions by running work and sequence. They lie beside the works, which a forward borrows while it fills them.
    answers: Vec<Vec<Predictions>>,
    waiting: Queue<Waiter<W>>,
    ledgers: Ledgers,
    /// Records whether anything came or went since waiting work was last looked at.
    stirred: bool,
    next: u64,
    counters: Totals,
    clock: Box<dyn FnMut() -> Duration + Send>,
    leak: fn(&str),
    attendant: Option<Box<Attendant>>,
}

/// Feeds the works of a forward, by calling what it is given, while it holds what [attended](Work::is_attended) ones need.
pub type Attendant = dyn Fn(&mut dyn FnMut()) + Send;

/// Open sequences of a work.
struct Opened {
    /// Memory of the sequences.
    bills: Vec<Bill>,
    sequences: Vec<(NetworkId, SequenceId)>,
    /// Leading positions of each whose slots are filled.
    filled: Vec<Position>,
}

/// Work that waits, and the networks that it is to run on.
struct Waiter<W> {
    work: W,
    on: Vec<NetworkId>,
    submitted: Duration,
}

/// Work that is over.
#[derive(Debug)]
pub struct Finished<W> {
    /// Name of the request.
    pub id: RequestId,
    /// The work.
    pub work: W,
    /// End of the request.
    pub end: Result<(), WorkError>,
    /// Time that it took.
    pub spent: Spent,
    /// Bytes that its sequences held.
    pub bytes: u64,
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ran {
    /// The network that ran a forward; none if nothing was ready.
    pub network: Option<NetworkId>,
    /// Works that took part.
    pub works: usize,
    /// Groups that ran.
    pub groups: usize,
    /// Rows that ran.
    pub rows: usize,
}

/// Counts over all networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Forwards of all networks.
    pub forwards: u64,
    /// Work that was refused when it was submitted, or because it could not be opened with nothing else open.
    pub refused: u64,
    /// Work that still waited for memory when its deadline passed.
    pub expired: u64,
    /// Work that was cancelled, waiting or running.
    pub cancelled: u64,
    /// Work that ended with any other error.
    pub failed: u64,
    /// Work that was done.
    pub done: u64,
    /// Work whose sequences are open.
    pub running: usize,
    /// Work that waits for memory.
    pub waiting: usize,
    /// Positions of the sequences, those of guides left out, of all work that runs or waits: the rows that it keeps open, by
    /// which load is compared and spread.
    pub waiting_rows: u64,
    /// Longest wait for memory, in forwards.
    pub oldest: u64,
    /// Times that something was still open or held although nothing ran or waited: always 0, or there is a bug.
    pub leaks: u64,
}

/// Positions of a work's own sequences.
fn rows<W: Work>(work: &W) -> u64 {
    let own = work.needs().iter().filter(|need| need.network == 0);
    own.map(|need| need.sequence.positions as u64).sum()
}

impl<W: Work, N: Network + ?Sized> Default for Scheduler<W, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: Work, N: Network + ?Sized> Scheduler<W, N> {
    /// Makes a scheduler without networks.
    pub fn new() -> Self {
        let start = Instant::now();
        Self {
            hosts: Vec::new(),
            running: Vec::new(),
            answers: Vec::new(),
            waiting: Queue::new(PATIENCE),
            ledgers: Ledgers::default(),
            stirred: false,
            next: 0,
            counters: Totals::default(),
            clock: Box::new(move || start.elapsed()),
            leak: |what| tracing::error!("{what} although nothing runs (a bug, please report it)"),
            attendant: None,
        }
    }

    /// Sets who is there while works are fed of which at least one is [attended](Work::is_attended).
    pub fn set_attendant(&mut self, attendant: Box<Attendant>) {
        self.attendant = Some(attendant);
    }

    /// Sets another clock, for tests. Later calls must not return earlier times.
    #[must_use]
    pub fn with_clock(mut self, clock: impl FnMut() -> Duration + Send + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Sets for how many forwards work that waits for memory may be overtaken by work that needs less. The default is 64.
    #[must_use]
    pub fn with_patience(mut self, forwards: u64) -> Self {
        self.waiting.patience = forwards;
        self
    }

    /// Sets what is done if something is still open although nothing runs. The default is a line in the log.
    #[must_use]
    pub fn with_leak(mut self, leak: fn(&str)) -> Self {
        self.set_leak(leak);
        self
    }

    /// Sets what is done if something is still open although nothing runs.
    pub fn set_leak(&mut self, leak: fn(&str)) {
        self.leak = leak;
    }

    /// Takes a network over.
    pub fn add(&mut self, network: Box<N>) -> NetworkId {
        self.hosts.push(Some(Host::new(network)));
        NetworkId(self.hosts.len() - 1)
    }

    /// Hands a network back, if it is there.
    ///
    /// # Errors
    /// If sequences are open on it, or work waits for it.
    pub fn remove(&mut self, network: NetworkId) -> Result<Option<Box<N>>, Busy> {
        let waiting = self.waiting.count(|waiter| waiter.on.contains(&network));
        let Some(host) = self.hosts.get_mut(network.0) else { return Ok(None) };
        let open = host.as_ref().map_or(0, |host| host.counters.open) + waiting;
        if open > 0 {
            return Err(Busy { open });
        }
        Ok(host.take().map(|host| host.network))
    }

    /// Puts faults in front of a network's forwards and openings.
    pub(crate) fn set_faults(&mut self, network: NetworkId, faults: Faults) {
        if let Some(host) = self.hosts.get_mut(network.0).and_then(Option::as_mut) {
            host.faults = faults;
        }
    }

    /// Returns a network, to look at it.
    pub fn network(&self, network: NetworkId) -> Option<&N> {
        Some(&*self.hosts.get(network.0)?.as_ref()?.network)
    }

    /// Returns a network, to look into it between forwards.
    pub fn network_mut(&mut self, network: NetworkId) -> Option<&mut N> {
        Some(&mut *self.hosts.get_mut(network.0)?.as_mut()?.network)
    }

    /// Sets how many bytes sequences and the growth of shared buffers may take on a device from now on, beside what they
    /// hold already. Without a limit the device itself says when it is full.
    pub fn limit(&mut self, device: DeviceId, bytes: u64) {
        let ledger = self.ledgers.of(device);
        ledger.limit = bytes.saturating_add(ledger.held).saturating_add(ledger.grown);
        self.stirred = true;
    }

    /// Returns counts over all networks.
    pub fn counters(&self) -> Totals {
        let (running, waiting) = (self.running.len(), self.waiting.len());
        let open: u64 = self.running.iter().map(|running| rows(&running.work)).sum();
        let waiting_rows = open + self.waiting.sum(|waiter| rows(&waiter.work));
        Totals { running, waiting, waiting_rows, oldest: self.waiting.oldest(self.counters.forwards), ..self.counters }
    }

    /// Returns the counts of a network.
    pub fn network_counters(&self, network: NetworkId) -> Option<NetworkCounters> {
        let host = self.hosts.get(network.0)?.as_ref()?;
        let one = SequenceNeeds { positions: 1, ..SequenceNeeds::default() };
        let page = host.network.price(&one).map_or(0, |price| price.own);
        let capacity = self.ledgers.capacity(host.device);
        Some(NetworkCounters { page_capacity: capacity.and_then(|bytes| bytes.checked_div(page)), ..host.counters() })
    }

    /// Returns why a network is not used any more, the first of them; none if all are sound.
    pub fn failure(&self) -> Option<&DeviceError> {
        self.hosts.iter().flatten().find_map(|host| host.failed.as_ref())
    }

    /// Returns whether nothing runs and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.len() == 0
    }

    /// Takes work on: it enters before one of the next forwards, when there is memory for all its sequences. Its network 0
    /// is `on[0]`, and so on.
    ///
    /// # Errors
    /// If it could never run. The work is handed back.
    pub fn submit(&mut self, work: W, on: &[NetworkId], class: Class) -> Result<RequestId, Refused<W>> {
        if let Err(error) = self.refuse(&work, on, class) {
            self.counters.refused += 1;
            return Err(Refused { work, error });
        }
        let id = self.next;
        self.next += 1;
        // What it does not need it is not bound to: that may fail without it.
        let needed = work.needs().iter().map(|need| need.network + 1).max().unwrap_or(0);
        let waiter = Waiter { work, on: on[..needed].to_vec(), submitted: (self.clock)() };
        self.waiting.push(id, class, waiter);
        self.stirred = true;
        Ok(RequestId(id))
    }

    fn refuse(&mut self, work: &W, on: &[NetworkId], class: Class) -> Result<(), SubmitError> {
        for weight in [class.weight, class.tenant.weight] {
            if !(weight > 0.0 && weight.is_finite()) {
                return Err(SubmitError::Weight(weight));
            }
        }
        for need in work.needs() {
            let host = on.get(need.network).and_then(|id| self.hosts.get(id.0)).and_then(Option::as_ref);
            let host = host.ok_or(SubmitError::NoNetwork(need.network))?;
            if let Some(error) = &host.failed {
                return Err(error.clone().into());
            }
        }
        let bills = self.bills(work, on)?;
        Ok(self.ledgers.check_ever(&bills)?)
    }

    /// Returns what a work takes of each device.
    fn bills(&self, work: &W, on: &[NetworkId]) -> Result<Vec<Bill>, OpenError> {
        bills(work.needs().iter().filter_map(|need| {
            let id = *on.get(need.network)?;
            let price = self.network(id)?.price(&need.sequence);
            Some(price.map(|price| (id, price)))
        }))
    }

    /// Gives up a work that waits or runs, and hands it over; none if it is over or was never there.
    pub fn cancel(&mut self, id: RequestId) -> Option<W> {
        let work = if let Some(waiter) = self.waiting.remove(id.0) {
            // Others may have waited behind it.
            self.stirred = true;
            waiter.work
        } else {
            let place = self.running.iter().position(|running| running.id == id.0)?;
            self.close(place, true).0.work
        };
        self.counters.cancelled += 1;
        self.check_leaks();
        Some(work)
    }

    /// Refuses work that waits although its deadline has passed. It is handed over.
    pub fn expire(&mut self, now: Instant, over: &mut Vec<Finished<W>>) {
        let mut waiting = std::mem::replace(&mut self.waiting, Queue::new(PATIENCE));
        waiting.expire(now, |id, waiter| {
            self.counters.expired += 1;
            // Others may have waited behind it.
            self.stirred = true;
            let spent = Spent { wall: (self.clock)().saturating_sub(waiter.submitted), ..Spent::default() };
            over.push(Finished { id: RequestId(id), work: waiter.work, end: Err(WorkError::Expired), spent, bytes: 0 });
        });
        self.waiting = waiting;
    }

    /// Lets work enter and runs one forward of one network: that of all with ready work whose last turn is longest ago.
    /// `seen` is shown each work when it enters and after each of its forwards, and says whether it goes on. What is over
    /// goes to `over`.
    pub fn step(
        &mut self,
        seen: &mut dyn FnMut(RequestId, &mut W) -> ControlFlow<()>,
        over: &mut Vec<Finished<W>>,
    ) -> Ran {
        let started = (self.clock)();
        self.admit(over);
        self.running.iter_mut().for_each(|running| running.show_first(seen));
        let ran = match self.turn() {
            Some(network) => self.forward(network, started, seen),
            None => Ran::default(),
        };
        self.retire(over);
        self.check_leaks();
        ran
    }

    /// Opens sequences for the work that waits, as far as there is memory.
    fn admit(&mut self, over: &mut Vec<Finished<W>>) {
        // Until something comes or goes, there is room for nobody that there was no room for before.
        if !std::mem::take(&mut self.stirred) || self.waiting.len() == 0 {
            return;
        }
        let mut waiting = std::mem::replace(&mut self.waiting, Queue::new(PATIENCE));
        let forwards = self.counters.forwards;
        let running: Vec<u64> = self.running.iter().map(|running| running.tenant.id).collect();
        let entered = |tenant: u64| running.iter().filter(|&&of| of == tenant).count();
        waiting.admit(forwards, entered, |id, class, waiter| match self.enter(id, class, waiter) {
            Ok(()) => Entry::Left,
            Err((waiter, WorkError::Open(OpenError::Memory(_)))) if !self.running.is_empty() => Entry::Blocked(waiter),
            Err((waiter, error)) => {
                self.counters.refused += 1;
                let spent = Spent { wall: (self.clock)().saturating_sub(waiter.submitted), ..Spent::default() };
                over.push(Finished { id: RequestId(id), work: waiter.work, end: Err(error), spent, bytes: 0 });
                Entry::Left
            }
        });
        self.waiting = waiting;
    }

    /// Opens all sequences of a work, or none.
    fn enter(&mut self, id: u64, class: Class, waiter: Waiter<W>) -> Result<(), (Waiter<W>, WorkError)> {
        let Opened { bills, sequences, filled } = match self.open(&waiter, class.tenant) {
            Ok(opened) => opened,
            Err(error) => return Err((waiter, error)),
        };
        let Waiter { work, on, submitted } = waiter;
        let answers = work.needs().iter().map(|need| {
            let mut answer = Predictions::default();
            answer.reserve(&need.sequence);
            answer
        });
        self.answers.push(answers.collect());
        let (weight, tenant, tags) = (class.weight, class.tenant, vec![None; on.len()]);
        let spent = Spent { networks: vec![Duration::ZERO; on.len()], ..Spent::default() };
        let (end, seen, began, pieces) = (None, false, false, Pieces::default());
        let published = vec![false; sequences.len()];
        let mut running = Running {
            id,
            work,
            pieces,
            weight,
            tenant,
            on,
            sequences,
            published,
            tags,
            bills,
            submitted,
            spent,
            end,
            seen,
            began,
        };
        running.opened(&filled);
        self.running.push(running);
        Ok(())
    }

    fn open(&mut self, waiter: &Waiter<W>, tenant: Tenant) -> Result<Opened, WorkError> {
        for &id in &waiter.on {
            match self.hosts.get(id.0).and_then(Option::as_ref).map(|host| &host.failed) {
                Some(None) => {}
                Some(Some(error)) => return Err(error.clone().into()),
                None => return Err(WorkError::Broken("a network went away while work waited for it")),
            }
        }
        let bills = self.bills(&waiter.work, &waiter.on)?;
        self.ledgers.check_now(&bills)?;
        self.evict(waiter, &bills);
        let (mut sequences, mut filled) = (Vec::with_capacity(waiter.work.needs().len()), Vec::new());
        for (index, need) in waiter.work.needs().iter().enumerate() {
            let id = waiter.on[need.network];
            let Some(host) = &mut self.hosts[id.0] else { continue };
            let begins = if host.keeps_prefixes() { waiter.work.begins(index) } else { Prefix::default() };
            match host.open(&need.sequence, begins, tenant) {
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
        self.ledgers.pay(&bills);
        Ok(Opened { bills, sequences, filled })
    }

    /// Makes room for work that is about to enter: idle pages are as good as free, and go where they would not fit beside
    /// it. What it begins with itself goes last, and is part of its bill.
    fn evict(&mut self, waiter: &Waiter<W>, bills: &[Bill]) {
        for bill in bills {
            let mut left = self.ledgers.left(bill);
            for (index, need) in waiter.work.needs().iter().enumerate() {
                if let Some(host) = &mut self.hosts[waiter.on[need.network].0]
                    && host.device == bill.device
                    && host.keeps_prefixes()
                {
                    left = left.saturating_add(host.network.spare(waiter.work.begins(index)));
                }
            }
            for host in self.hosts.iter_mut().flatten().filter(|host| host.device == bill.device) {
                left = left.saturating_sub(host.network.evict(left));
            }
        }
    }

    fn close_sequences(&mut self, sequences: &[(NetworkId, SequenceId)], tenant: Tenant) {
        for &(network, sequence) in sequences {
            if let Some(host) = &mut self.hosts[network.0] {
                host.close(sequence, tenant);
            }
        }
    }

    /// Takes a running work out and gives back what it held; also the bytes of its sequences. What is reusable of a sound
    /// work is published.
    fn close(&mut self, place: usize, sound: bool) -> (Running<W>, u64) {
        let mut running = self.running.swap_remove(place);
        if sound {
            running.published.fill(false);
            for (id, host) in self.hosts.iter_mut().enumerate() {
                if let Some(host) = host.as_mut().filter(|host| host.keeps_prefixes()) {
                    running.publish(NetworkId(id), &mut *host.network);
                }
            }
        }
        self.stirred = true;
        self.answers.swap_remove(place);
        self.close_sequences(&running.sequences, running.tenant);
        self.ledgers.give_back(&running.bills);
        let bytes = running.bills.iter().map(|bill| bill.own).sum();
        (running, bytes)
    }

    /// Finds the network whose turn it is. Work that breaks its contract ends here.
    fn turn(&mut self) -> Option<NetworkId> {
        let mut least: Option<(u64, NetworkId)> = None;
        for running in &mut self.running {
            let wanted = match running.wanted() {
                Ok(wanted) => wanted.map(|wanted| wanted.network),
                Err(broken) => {
                    running.end = Some(Err(WorkError::Broken(broken)));
                    continue;
                }
            };
            let Some(network) = wanted else { continue };
            let Some(host) = &self.hosts[network.0] else { continue };
            least = Some(least.map_or((host.turn, network), |least| least.min((host.turn, network))));
        }
        least.map(|(_, network)| network)
    }

    /// Runs one forward of a network and feeds those who took part.
    fn forward(
        &mut self,
        id: NetworkId,
        started: Duration,
        seen: &mut dyn FnMut(RequestId, &mut W) -> ControlFlow<()>,
    ) -> Ran {
        let Self { hosts, running, answers, clock, counters, attendant, .. } = self;
        let Some(host) = &mut hosts[id.0] else { return Ran::default() };
        counters.forwards += 1;
        host.turn = counters.forwards;
        host.choose(id, running);
        let result = host.run(running, answers, &mut **clock);
        let elapsed = match result {
            Ok(elapsed) => elapsed,
            Err(error) => {
                host.put_back(answers);
                for one in running.iter_mut().filter(|one| one.end.is_none() && one.on.contains(&id)) {
                    one.end = Some(Err(error.clone().into()));
                }
                host.failed = Some(error);
                return Ran { network: Some(id), ..Ran::default() };
            }
        };
        let mut ran = Ran { network: Some(id), ..Ran::default() };
        let keeps = host.keeps_prefixes();
        let attended = host.joined.iter().any(|part| running[part.slot].work.is_attended());
        let mut feed = || {
            for part in &host.joined {
                let one = &mut running[part.slot];
                if part.is_piece {
                    one.feed_piece(host.predictions(part));
                } else {
                    one.feed(host.predictions(part));
                }
                if keeps && one.end.is_none() {
                    one.publish(id, &mut *host.network);
                }
                one.show(seen);
                ran.works += 1;
                ran.groups += part.groups;
                ran.rows += part.rows;
            }
        };
        match attendant.as_ref().filter(|_| attended) {
            Some(attendant) => attendant(&mut feed),
            None => feed(),
        }
        host.put_back(answers);
        let all = clock().saturating_sub(started);
        for part in &host.joined {
            // A network may take groups without rows: nobody is charged for these.
            running[part.slot].charge(id, elapsed, all, part.rows as f64 / ran.rows.max(1) as f64);
        }
        ran
    }

    /// Hands over what is over.
    fn retire(&mut self, over: &mut Vec<Finished<W>>) {
        let mut place = 0;
        while place < self.running.len() {
            let running = &mut self.running[place];
            if running.end.is_none() && matches!(running.work.pending(), Pending::Done) {
                running.end = Some(Ok(()));
            }
            let Some(end) = running.end.take() else {
                place += 1;
                continue;
            };
            match &end {
                Ok(()) => self.counters.done += 1,
                Err(WorkError::Cancelled) => self.counters.cancelled += 1,
                Err(_) => self.counters.failed += 1,
            }
            let sound = matches!(end, Ok(()) | Err(WorkError::Cancelled));
            let (Running { id, work, mut spent, submitted, .. }, bytes) = self.close(place, sound);
            spent.wall = (self.clock)().saturating_sub(submitted);
            over.push(Finished { id: RequestId(id), work, end, spent, bytes });
        }
    }

    /// Looks for what is still open or held although nothing runs.
    fn check_leaks(&mut self) {
        if !self.is_idle() {
            return;
        }
        let mut leaks = Vec::new();
        for host in self.hosts.iter().flatten() {
            let (open, pages) = (host.counters.open, host.network.pages().used);
            if open > 0 || pages > 0 {
                leaks.push(format!("{open} sequences and {pages} pages are open"));
            }
        }
        let held = self.ledgers.held();
        if held > 0 || !self.answers.is_empty() {
            leaks.push(format!("{held} bytes and {} answers are held", self.answers.len()));
        }
        self.counters.leaks += leaks.len() as u64;
        for leak in leaks {
            (self.leak)(&leak);
        }
    }
}
