//! Memory of the devices: what sequences take of it and are likely to take, and whether there is enough.

use demask_step::{DeviceId, MemoryCost, OpenError, OutOfMemory};

use crate::ids::NetworkId;

/// Memory of one device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryBudget {
    pub(crate) device: DeviceId,
    /// Bytes that sequences may take.
    pub(crate) limit: u64,
    /// Bytes that open sequences are likely to take in all: none enter where others are promised the rest.
    pub(crate) promised: u64,
    /// Bytes that they have taken.
    pub(crate) allocated: u64,
    /// Bytes by which shared buffers have grown; they never shrink.
    pub(crate) grown: u64,
}

/// Memory of a request's sequences on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) device: DeviceId,
    /// Bytes that they are likely to take, at least those that they have taken.
    pub(crate) promised: u64,
    /// Bytes that they have taken, or take when they are opened.
    pub(crate) allocated: u64,
    /// Growth of shared buffers.
    pub(crate) growth: u64,
}

/// Memory of a sequence: what opening it takes, and the bytes that it is likely to take in all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SequenceCost {
    pub(crate) network: NetworkId,
    pub(crate) opening: MemoryCost,
    pub(crate) promised: u64,
}

impl MemoryBudget {
    /// Refuses a reservation that does not fit beside the bytes that are promised.
    fn covers(&self, reservation: &Reservation, promised: u64) -> Result<(), OpenError> {
        let needed = reservation.promised.saturating_add(reservation.growth);
        let available = self.limit.saturating_sub(self.grown).saturating_sub(promised);
        if needed > available { Err(OutOfMemory { needed, available }.into()) } else { Ok(()) }
    }
}

/// The budgets of all devices.
#[derive(Debug, Default)]
pub(crate) struct MemoryBudgets(Vec<MemoryBudget>);

impl MemoryBudgets {
    pub(crate) fn of(&mut self, device: DeviceId) -> &mut MemoryBudget {
        let found = self.0.iter().position(|budget| budget.device == device);
        let place = found.unwrap_or_else(|| {
            self.0.push(MemoryBudget { device, limit: u64::MAX, promised: 0, allocated: 0, grown: 0 });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// Returns the bytes that open sequences have taken or are promised on all devices.
    pub(crate) fn held(&self) -> u64 {
        self.0.iter().map(|budget| budget.promised.max(budget.allocated)).sum()
    }

    /// Returns the bytes of a device that are not taken.
    pub(crate) fn left(&mut self, device: DeviceId) -> u64 {
        let MemoryBudget { limit, allocated: taken, grown, .. } = *self.of(device);
        limit.saturating_sub(grown).saturating_sub(taken)
    }

    /// Returns the bytes of a device that sequences may hold in all; none where no limit is set.
    pub(crate) fn capacity(&self, device: DeviceId) -> Option<u64> {
        let budget = self.0.iter().find(|budget| budget.device == device)?;
        (budget.limit < u64::MAX).then(|| budget.limit.saturating_sub(budget.grown))
    }

    /// Refuses reservations that would not fit with nothing else open.
    pub(crate) fn check_ever(&mut self, reservations: &[Reservation]) -> Result<(), OpenError> {
        reservations.iter().try_for_each(|reservation| self.of(reservation.device).covers(reservation, 0))
    }

    /// Refuses reservations that do not fit now.
    pub(crate) fn check_now(&mut self, reservations: &[Reservation]) -> Result<(), OpenError> {
        reservations.iter().try_for_each(|reservation| {
            let budget = self.of(reservation.device);
            budget.covers(reservation, budget.promised)
        })
    }

    pub(crate) fn reserve(&mut self, reservations: &[Reservation]) {
        for reservation in reservations {
            let budget = self.of(reservation.device);
            budget.promised += reservation.promised;
            budget.allocated += reservation.allocated;
            budget.grown += reservation.growth;
        }
    }

    /// Adds bytes to a reservation that was made: sequences take more than they were opened with.
    pub(crate) fn add(&mut self, reservation: &mut Reservation, bytes: u64) {
        let budget = self.of(reservation.device);
        reservation.allocated += bytes;
        budget.allocated += bytes;
        let beyond = reservation.allocated.saturating_sub(reservation.promised);
        reservation.promised += beyond;
        budget.promised += beyond;
    }

    pub(crate) fn release(&mut self, reservations: &[Reservation]) {
        for reservation in reservations {
            let budget = self.of(reservation.device);
            budget.promised -= reservation.promised;
            budget.allocated -= reservation.allocated;
        }
    }
}

/// Adds up the costs of a request's sequences, device by device. Sequences of one network make the same buffers grow:
/// the largest growth is theirs together.
pub(crate) fn reservations(
    costs: impl Iterator<Item = Result<SequenceCost, OpenError>>,
) -> Result<Vec<Reservation>, OpenError> {
    let (mut reservations, mut grown): (Vec<Reservation>, Vec<(NetworkId, u64)>) = (Vec::new(), Vec::new());
    for cost in costs {
        let SequenceCost { network, opening: MemoryCost { own, growth, device }, promised } = cost?;
        let before = grown.iter().filter(|(id, _)| *id == network).map(|&(_, most)| most).max().unwrap_or(0);
        grown.push((network, growth));
        let growth = growth.saturating_sub(before);
        match reservations.iter_mut().find(|reservation| reservation.device == device) {
            Some(reservation) => {
                reservation.allocated = reservation.allocated.saturating_add(own);
                reservation.promised = reservation.promised.saturating_add(promised.max(own));
                reservation.growth = reservation.growth.saturating_add(growth);
            }
            None => reservations.push(Reservation { device, promised: promised.max(own), allocated: own, growth }),
        }
    }
    Ok(reservations)
}

/// Positions that a sequence is likely to grow by, before one of its order has ended.
const UNKNOWN: f64 = 256.0;
/// Part that the last answer has in the mean.
const NEWEST: f64 = 0.125;

/// Running means of the positions that sequences grew by, by the binary order of the most that they could: endpoints and their
/// users ask for different lengths.
#[derive(Debug)]
pub(crate) struct Growths([Option<f64>; usize::BITS as usize]);

impl Default for Growths {
    fn default() -> Self {
        Self([None; usize::BITS as usize])
    }
}

impl Growths {
    /// Returns by how many positions a sequence is likely to grow that may grow by `most`.
    pub(crate) fn likely(&self, most: usize) -> usize {
        let mean = most.checked_ilog2().and_then(|order| self.0[order as usize]);
        most.min(mean.unwrap_or(UNKNOWN).ceil() as usize)
    }

    /// Learns by how many positions a sequence grew.
    pub(crate) fn learn(&mut self, most: usize, grown: usize) {
        let Some(order) = most.checked_ilog2() else { return };
        let (mean, grown) = (&mut self.0[order as usize], grown as f64);
        *mean = Some(mean.map_or(grown, |mean| mean + NEWEST * (grown - mean)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_expected_as_answers_of_the_length_have_grown() {
        let mut growths = Growths::default();
        assert_eq!([0, 100, 4096].map(|most| growths.likely(most)), [0, 100, 256]);
        growths.learn(4096, 64);
        growths.learn(0, 0);
        assert_eq!([0, 100, 4096, 8191, 8192].map(|most| growths.likely(most)), [0, 100, 64, 64, 256]);
        growths.learn(5000, 128);
        assert_eq!(growths.likely(4096), 72);
    }
}
