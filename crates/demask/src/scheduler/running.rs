//! A work whose sequences are open: what it wants, what it is fed, what it is charged.

use std::{
    any::Any,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use demask_step::{Network, Pending, Position, Predictions, Request, SequenceId, Work};

use super::{NetworkId, RequestId, Tenant, WorkError, host::Wanted, memory::Bill, order::Party, pieces::Pieces};

/// Work whose sequences are open.
pub(super) struct Running<W> {
    pub(super) id: u64,
    pub(super) work: W,
    /// Progress through its next group, if that runs in pieces.
    pub(super) pieces: Pieces,
    pub(super) weight: f64,
    pub(super) tenant: Tenant,
    pub(super) on: Vec<NetworkId>,
    /// The sequence behind each of the work's needs, and its network.
    pub(super) sequences: Vec<(NetworkId, SequenceId)>,
    /// Sequences whose reusable part was published, so that others may begin with it.
    pub(super) published: Vec<bool>,
    /// Tag on each of `on`, and the round in which it was ready there; none before.
    pub(super) tags: Vec<Option<(f64, u64)>>,
    pub(super) bills: Vec<Bill>,
    pub(super) submitted: Duration,
    pub(super) spent: Spent,
    /// End of the work, once it has one.
    pub(super) end: Option<Result<(), WorkError>>,
    /// Records whether its owner has seen it since it entered.
    pub(super) seen: bool,
    /// Records whether its first forward has begun.
    pub(super) began: bool,
}

/// Time that a work took. A forward is divided by rows, and so is what is spent around it: the shares of all works
/// together are the time of the clock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spent {
    /// Time in each of the work's networks.
    pub networks: Vec<Duration>,
    /// Total time, including time around forwards.
    pub total: Duration,
    /// Wall time from the submission on, including waiting and others' shares.
    pub wall: Duration,
}

impl<W: Work> Running<W> {
    /// Returns what it wants to run, or how it breaks its contract.
    pub(super) fn wanted(&self) -> Result<Option<Wanted<'_>>, &'static str> {
        let (None, Pending::Run { requests, group }) = (&self.end, self.work.pending()) else { return Ok(None) };
        if group == 0 || requests.is_empty() || !requests.len().is_multiple_of(group) {
            return Err("what is pending is no whole number of groups");
        }
        let network = |sequence: usize| self.sequences.get(sequence).map(|&(network, _)| network);
        let unknown = "what is pending names a sequence that was not needed";
        let first = network(requests[0].sequence).ok_or(unknown)?;
        for request in requests {
            if network(request.sequence).ok_or(unknown)? != first {
                return Err("what is pending runs on two networks");
            }
        }
        Ok(Some(Wanted { network: first, requests, group }))
    }

    /// Returns the place of its tenant among those of a network.
    pub(super) fn party(&self, parties: &[Party]) -> Option<usize> {
        parties.iter().position(|party| party.id == self.tenant.id)
    }

    /// Returns its tag on a network, if it was ready there in this round.
    pub(super) fn tag(&self, network: NetworkId, round: u64) -> Option<f64> {
        let place = self.on.iter().position(|&on| on == network)?;
        self.tags[place].filter(|&(_, ready)| ready == round).map(|(tag, _)| tag)
    }

    /// Returns the tag that it had on a network when it was last ready there; 0 if it never was.
    pub(super) fn last_tag(&self, network: NetworkId) -> f64 {
        let place = self.on.iter().position(|&on| on == network);
        place.and_then(|place| self.tags[place]).map_or(0.0, |(tag, _)| tag)
    }

    pub(super) fn set_tag(&mut self, network: NetworkId, tag: f64, round: u64) {
        if let Some(place) = self.on.iter().position(|&on| on == network) {
            self.tags[place] = Some((tag, round));
        }
    }

    /// Prepares the piece of its next group that ends there, for a network whose own shift is `shift`.
    pub(super) fn cut(&mut self, end: usize, shift: Position) {
        if let Pending::Run { requests, group } = self.work.pending() {
            self.pieces.prepare(&requests[..group.min(requests.len())], end, shift);
        }
    }

    /// Takes what a piece predicted, and feeds it what its group did once that has run as a whole.
    pub(super) fn feed_piece(&mut self, predictions: &[Predictions]) {
        if self.pieces.absorb(predictions) {
            let predictions = self.pieces.take();
            self.feed(&predictions);
            self.pieces.give_back(predictions);
        }
    }

    /// Feeds it what was predicted, if that is what it asked for.
    pub(super) fn feed(&mut self, predictions: &[Predictions]) {
        let mut asked = self.work.pending().requests().iter().zip(predictions);
        let whole = |(request, answer): (&Request, &Predictions)| {
            let lanes = request.plan.lanes.count();
            answer.lanes == lanes && answer.tokens.len() == lanes * request.plan.predictions()
        };
        if !asked.all(whole) {
            self.end = Some(Err(WorkError::Broken("the network's answer has another length than what was asked")));
            return;
        }
        if let Some(position) = predictions.iter().find_map(Predictions::without_numbers) {
            self.end = Some(Err(WorkError::NotNumbers { position }));
            return;
        }
        let work = &mut self.work;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work.feed(predictions))) {
            self.end = Some(Err(WorkError::Panicked(message(&*panic))));
        } else if let Some(fault) = self.work.fault() {
            self.end = Some(Err(WorkError::Fault(fault.to_owned())));
        }
    }

    /// Passes on which of the leading slots are filled.
    pub(super) fn opened(&mut self, filled: &[Position]) {
        let work = &mut self.work;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work.opened(filled))) {
            self.end = Some(Err(WorkError::Panicked(message(&*panic))));
        }
    }

    /// Passes on, for the first forward, that one begins.
    pub(super) fn begin(&mut self) {
        if !std::mem::replace(&mut self.began, true) {
            let work = &mut self.work;
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work.began())) {
                self.end = Some(Err(WorkError::Panicked(message(&*panic))));
            }
        }
    }

    /// Publishes what is reusable of its sequences on a network, of each the first time that there is something.
    pub(super) fn publish<N: Network + ?Sized>(&mut self, on: NetworkId, network: &mut N) {
        let sequences = self.sequences.iter().zip(&mut self.published).enumerate();
        for (index, (&(_, sequence), published)) in sequences.filter(|(_, ((id, _), done))| *id == on && !**done) {
            let prefix = self.work.reusable(index);
            if !prefix.tokens.is_empty() {
                network.publish(sequence, prefix);
                *published = true;
            }
        }
    }

    /// Shows it to its owner for the first time.
    pub(super) fn show_first(&mut self, seen: &mut dyn FnMut(RequestId, &mut W) -> ControlFlow<()>) {
        if !std::mem::replace(&mut self.seen, true) {
            self.show(seen);
        }
    }

    /// Shows it to its owner, who may end it.
    pub(super) fn show(&mut self, seen: &mut dyn FnMut(RequestId, &mut W) -> ControlFlow<()>) {
        if self.end.is_none() && seen(RequestId(self.id), &mut self.work).is_break() {
            self.end = Some(Err(WorkError::Cancelled));
        }
    }

    /// Charges its share of a forward that took `elapsed` in the network, and `all` with what was spent around it.
    pub(super) fn charge(&mut self, network: NetworkId, elapsed: Duration, all: Duration, share: f64) {
        if let Some(place) = self.on.iter().position(|&on| on == network) {
            self.spent.networks[place] += elapsed.mul_f64(share);
        }
        self.spent.total += all.mul_f64(share);
    }
}

/// Returns what a panic said.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
