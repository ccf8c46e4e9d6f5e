//! Memory of the devices: what sequences take of it and are likely to take, and whether there is enough.

use demask_step::{DeviceId, OpenError, OutOfMemory, Price};

use crate::ids::NetworkId;

/// Memory of one device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ledger {
    pub(crate) device: DeviceId,
    /// Bytes that sequences may take.
    pub(crate) limit: u64,
    /// Bytes that open sequences are likely to take in all: none enter where others are promised the rest.
    pub(crate) promised: u64,
    /// Bytes that they have taken.
    pub(crate) taken: u64,
    /// Bytes by which shared buffers have grown; they never shrink.
    pub(crate) grown: u64,
}

/// Memory of a request's sequences on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bill {
    pub(crate) device: DeviceId,
    /// Bytes that they are likely to take, at least those that they have taken.
    pub(crate) promised: u64,
    /// Bytes that they have taken, or take when they are opened.
    pub(crate) taken: u64,
    /// Growth of shared buffers.
    pub(crate) growth: u64,
}

/// Memory of a sequence: what opening it takes, and the bytes that it is likely to take in all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quote {
    pub(crate) network: NetworkId,
    pub(crate) opening: Price,
    pub(crate) promised: u64,
}

impl Ledger {
    /// Refuses a bill that cannot be paid beside the bytes that are promised.
    fn covers(&self, bill: &Bill, promised: u64) -> Result<(), OpenError> {
        let needed = bill.promised.saturating_add(bill.growth);
        let available = self.limit.saturating_sub(self.grown).saturating_sub(promised);
        if needed > available { Err(OutOfMemory { needed, available }.into()) } else { Ok(()) }
    }
}

/// The ledgers of all devices.
#[derive(Debug, Default)]
pub(crate) struct Ledgers(Vec<Ledger>);

impl Ledgers {
    pub(crate) fn of(&mut self, device: DeviceId) -> &mut Ledger {
        let found = self.0.iter().position(|ledger| ledger.device == device);
        let place = found.unwrap_or_else(|| {
            self.0.push(Ledger { device, limit: u64::MAX, promised: 0, taken: 0, grown: 0 });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// Returns the bytes that open sequences have taken or are promised on all devices.
    pub(crate) fn held(&self) -> u64 {
        self.0.iter().map(|ledger| ledger.promised.max(ledger.taken)).sum()
    }

    /// Returns the bytes of a device that are not taken.
    pub(crate) fn left(&mut self, device: DeviceId) -> u64 {
        let Ledger { limit, taken, grown, .. } = *self.of(device);
        limit.saturating_sub(grown).saturating_sub(taken)
    }

    /// Returns the bytes of a device that sequences may hold in all; none where no limit is set.
    pub(crate) fn capacity(&self, device: DeviceId) -> Option<u64> {
        let ledger = self.0.iter().find(|ledger| ledger.device == device)?;
        (ledger.limit < u64::MAX).then(|| ledger.limit.saturating_sub(ledger.grown))
    }

    /// Refuses bills that could not be paid with nothing else open.
    pub(crate) fn check_ever(&mut self, bills: &[Bill]) -> Result<(), OpenError> {
        bills.iter().try_for_each(|bill| self.of(bill.device).covers(bill, 0))
    }

    /// Refuses bills that cannot be paid now.
    pub(crate) fn check_now(&mut self, bills: &[Bill]) -> Result<(), OpenError> {
        bills.iter().try_for_each(|bill| {
            let ledger = self.of(bill.device);
            ledger.covers(bill, ledger.promised)
        })
    }

    pub(crate) fn pay(&mut self, bills: &[Bill]) {
        for bill in bills {
            let ledger = self.of(bill.device);
            ledger.promised += bill.promised;
            ledger.taken += bill.taken;
            ledger.grown += bill.growth;
        }
    }

    /// Adds bytes to a bill that was paid: sequences take more than they were opened with.
    pub(crate) fn add(&mut self, bill: &mut Bill, bytes: u64) {
        let ledger = self.of(bill.device);
        bill.taken += bytes;
        ledger.taken += bytes;
        let beyond = bill.taken.saturating_sub(bill.promised);
        bill.promised += beyond;
        ledger.promised += beyond;
    }

    pub(crate) fn give_back(&mut self, bills: &[Bill]) {
        for bill in bills {
            let ledger = self.of(bill.device);
            ledger.promised -= bill.promised;
            ledger.taken -= bill.taken;
        }
    }
}

/// Adds up the quotes of a request's sequences, device by device. Sequences of one network make the same buffers grow: the
/// largest growth is theirs together.
pub(crate) fn bills(quotes: impl Iterator<Item = Result<Quote, OpenError>>) -> Result<Vec<Bill>, OpenError> {
    let (mut bills, mut grown): (Vec<Bill>, Vec<(NetworkId, u64)>) = (Vec::new(), Vec::new());
    for quote in quotes {
        let Quote { network, opening: Price { own, growth, device }, promised } = quote?;
        let before = grown.iter().filter(|(id, _)| *id == network).map(|&(_, most)| most).max().unwrap_or(0);
        grown.push((network, growth));
        let growth = growth.saturating_sub(before);
        match bills.iter_mut().find(|bill| bill.device == device) {
            Some(bill) => {
                bill.taken = bill.taken.saturating_add(own);
                bill.promised = bill.promised.saturating_add(promised.max(own));
                bill.growth = bill.growth.saturating_add(growth);
            }
            None => bills.push(Bill { device, promised: promised.max(own), taken: own, growth }),
        }
    }
    Ok(bills)
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
