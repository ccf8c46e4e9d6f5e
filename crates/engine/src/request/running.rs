//! A request while it runs: its forwards, predictions, memory and charges.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use demask_decode::{Event, Session};
use demask_step::{ForwardInput, Job, Network, OutOfMemory, Pending, Position, Predictions, Prefix, SequenceId};

use super::{FirstTokens, Observer, Open, Request, Wanted, message};
use crate::{
    error::{RequestError, SubmitError},
    ids::NetworkId,
    memory::Reservation,
    order::Party,
    params::Tenant,
    pieces::Pieces,
};

impl Request {
    /// Returns the inputs that it wants to run, or how its job breaks its contract.
    pub(crate) fn wanted(&self) -> Result<Option<Wanted<'_>>, &'static str> {
        let (None, Pending::Run { requests, group }) = (&self.end, self.job.pending()) else { return Ok(None) };
        if group == 0 || requests.is_empty() || !requests.len().is_multiple_of(group) {
            return Err("what is pending is no whole number of groups");
        }
        let network = |sequence: usize| self.open.sequences.get(sequence).map(|&(network, _)| network);
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
    pub(crate) fn party(&self, parties: &[Party]) -> Option<usize> {
        parties.iter().position(|party| party.id == self.tenant().id)
    }

    pub(crate) fn tenant(&self) -> Tenant {
        self.scheduling.tenant
    }

    /// Returns its tag on a network, if it was ready there in this round.
    pub(crate) fn tag(&self, network: NetworkId, round: u64) -> Option<f64> {
        let place = self.on.iter().position(|&on| on == network)?;
        self.open.tags[place].filter(|&(_, ready)| ready == round).map(|(tag, _)| tag)
    }

    /// Returns the tag that it had on a network when it was last ready there; 0 if it never was.
    pub(crate) fn last_tag(&self, network: NetworkId) -> f64 {
        let place = self.on.iter().position(|&on| on == network);
        place.and_then(|place| self.open.tags[place]).map_or(0.0, |(tag, _)| tag)
    }

    pub(crate) fn set_tag(&mut self, network: NetworkId, tag: f64, round: u64) {
        if let Some(place) = self.on.iter().position(|&on| on == network) {
            self.open.tags[place] = Some((tag, round));
        }
    }

    /// Lets it run on open sequences; `filled` counts the leading slots of each that are filled already.
    pub(crate) fn enter(
        &mut self,
        sequences: Vec<(NetworkId, SequenceId)>,
        reservations: Vec<Reservation>,
        filled: &[Position],
    ) {
        let predictions = self.job.needs().iter().map(|need| {
            let mut predictions = Predictions::default();
            predictions.reserve(&need.limits);
            Cell::new(predictions)
        });
        self.open = Open {
            predictions: predictions.collect(),
            published: vec![false; sequences.len()],
            filling: true,
            tags: vec![None; self.on.len()],
            pieces: Pieces::default(),
            room: self.job.needs().iter().map(|need| need.limits.opens_with.unwrap_or(usize::MAX)).collect(),
            sequences,
            reservations,
        };
        self.spent.networks.resize(self.on.len(), Duration::ZERO);
        self.preempted = false;
        self.count_bytes();
        self.guarded(|job| job.opened(filled));
    }

    /// Counts the bytes that its sequences have taken by now.
    pub(crate) fn count_bytes(&mut self) {
        let taken = self.open.reservations.iter().map(|reservation| reservation.allocated).sum();
        self.bytes = self.bytes.max(taken);
    }

    /// Returns the first of its sequences that has memory for fewer positions than its next forwards see, and how many these are.
    pub(crate) fn wants_room(&self) -> Option<(usize, usize)> {
        if self.end.is_some() || self.open.room.iter().all(|&room| room == usize::MAX) {
            return None;
        }
        let short = |input: &&ForwardInput| {
            self.open.room.get(input.sequence).is_some_and(|&room| input.plan.kv_len as usize > room)
        };
        let input = self.job.pending().requests().iter().find(short)?;
        Some((input.sequence, input.plan.kv_len as usize))
    }

    /// Returns whether memory for all of its positions is taken when it enters.
    pub(crate) fn is_fixed(&self) -> bool {
        self.job.needs().iter().all(|need| need.limits.opens_with.is_none())
    }

    /// Learns that its sequences were closed, for it to wait again.
    pub(crate) fn preempt(&mut self) {
        self.preempted = true;
        self.guarded(Job::preempted);
    }

    /// Ends its answer with its settled tokens, since there is no memory for more.
    pub(crate) fn run_out_of_memory(&mut self, error: OutOfMemory) {
        match self.session_mut() {
            Some(session) => session.run_out_of_memory(),
            None => self.fail(RequestError::Open(error.into())),
        }
    }

    /// Prepares the piece of its next group that ends there, for a network whose own shift is `shift`.
    pub(crate) fn cut(&mut self, end: usize, shift: Position) {
        if let Pending::Run { requests, group } = self.job.pending() {
            self.open.pieces.prepare(&requests[..group.min(requests.len())], end, shift);
        }
    }

    /// Takes the predictions of a piece, and feeds those of its group once that has run as a whole.
    pub(crate) fn feed_piece(&mut self, predictions: &[Predictions]) {
        if self.open.pieces.accept(predictions) {
            let predictions = self.open.pieces.take();
            self.feed(&predictions);
            self.open.pieces.give_back(predictions);
        }
    }

    /// Feeds it predictions, if they are those that it asked for.
    pub(crate) fn feed(&mut self, predictions: &[Predictions]) {
        let mut asked = self.job.pending().requests().iter().zip(predictions);
        let whole = |(request, answer): (&ForwardInput, &Predictions)| {
            let lanes = request.plan.lanes.count();
            answer.lanes == lanes && answer.tokens.len() == lanes * request.plan.predictions()
        };
        if !asked.all(whole) {
            self.fail(RequestError::Broken("the network's answer has another length than what was asked"));
            return;
        }
        if let Some(position) = predictions.iter().find_map(Predictions::without_numbers) {
            self.fail(RequestError::NotNumbers { position });
            return;
        }
        let own = self.intercept.as_mut().map(|intercept| intercept(self.job.pending().requests(), predictions));
        let predictions = own.as_deref().unwrap_or(predictions);
        self.keep(predictions);
        self.open.filling = false;
        self.guarded(|job| job.feed(predictions));
        if let (None, Some(fault)) = (&self.end, self.job.fault()) {
            self.end = Some(Err(RequestError::Fault(fault.to_owned())));
        }
    }

    /// Keeps predictions as events, if they are recorded.
    fn keep(&mut self, predictions: &[Predictions]) {
        let Some(feed) = &mut self.records else { return };
        let needs = self.job.needs();
        for (input, predictions) in self.job.pending().requests().iter().zip(predictions) {
            let network = needs.get(input.sequence).map_or(0, |need| need.network);
            self.recorded.push(Event::Predicted { step: *feed, network, predictions: Box::new(predictions.clone()) });
        }
        *feed += 1;
    }

    /// Ends it before it is taken on.
    pub(crate) fn refuse(&mut self, error: SubmitError) {
        self.fail(RequestError::Refused(error));
    }

    /// Ends it with an error.
    pub(crate) fn fail(&mut self, error: RequestError) {
        self.end = Some(Err(error));
    }

    /// Calls its job; a panic ends this request alone.
    fn guarded(&mut self, call: impl FnOnce(&mut dyn Job)) {
        let job = &mut *self.job;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| call(job))) {
            self.fail(RequestError::Panicked(message(&*panic)));
        }
    }

    /// Notes that a forward begins, if it is the first.
    pub(crate) fn begin(&mut self) {
        self.began.get_or_insert_with(Instant::now);
    }

    /// Publishes the reusable prefixes of its sequences on a network: each the first time that there is one, and all where no
    /// forward of it follows.
    pub(crate) fn cache_prefixes<N: Network + ?Sized>(&mut self, on: NetworkId, network: &mut N, ends: bool) {
        let Open { sequences, published, .. } = &mut self.open;
        let sequences = sequences.iter().zip(published).enumerate();
        for (index, (&(_, sequence), published)) in
            sequences.filter(|(_, ((id, _), done))| *id == on && (ends || !**done))
        {
            let prefix = self.job.reusable(index);
            if !prefix.tokens.is_empty() {
                network.cache_prefix(sequence, prefix, ends);
                *published = true;
            }
        }
    }

    /// Reports whether it is about to write what its sequences begin with.
    pub(crate) fn is_filling(&self) -> bool {
        self.open.filling && self.end.is_none()
    }

    /// Returns what its sequences on a network begin with, while it is about to write it.
    pub(crate) fn filling(&self, on: NetworkId) -> impl Iterator<Item = Prefix<'_>> {
        let sequences =
            self.open.sequences.iter().enumerate().filter(move |(_, (id, _))| *id == on && self.is_filling());
        sequences.map(|(index, _)| self.job.prefix_tokens(index)).filter(|prefix| !prefix.tokens.is_empty())
    }

    /// Shows it to its owner for the first time.
    pub(crate) fn show_first(&mut self, seen: &mut Observer<'_>) {
        if !std::mem::replace(&mut self.seen, true) {
            self.show(seen);
        }
    }

    /// Shows it to its owner, who may end it.
    pub(crate) fn show(&mut self, seen: &mut Observer<'_>) {
        if self.end.is_none() && seen(self).is_break() {
            self.fail(RequestError::Cancelled);
        }
    }

    /// Charges its share of a forward that took `elapsed` in the network, and of `all`, which counts the time around it, too.
    /// `now` is the time at its end.
    pub(crate) fn charge(&mut self, network: NetworkId, elapsed: Duration, all: Duration, share: f64, now: Duration) {
        if let Some(place) = self.on.iter().position(|&on| on == network) {
            self.spent.networks[place] += elapsed.mul_f64(share);
        }
        self.spent.total += all.mul_f64(share);
        if self.spent.first.is_none() {
            let tokens = self.session().map_or(0, Session::settled);
            self.spent.first = (tokens > 0).then(|| FirstTokens { tokens, wall: now.saturating_sub(self.submitted) });
        }
    }
}
