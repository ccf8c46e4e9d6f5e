//! Memory of the devices: what sequences take of it, and whether there is enough.

use demask_step::{DeviceId, OpenError, OutOfMemory, Price};

use crate::ids::NetworkId;

/// Memory of one device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ledger {
    pub(crate) device: DeviceId,
    /// Bytes that sequences may take.
    pub(crate) limit: u64,
    /// Bytes that open sequences hold.
    pub(crate) held: u64,
    /// Bytes by which shared buffers have grown; they never shrink.
    pub(crate) grown: u64,
}

/// Memory of a request's sequences on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bill {
    pub(crate) device: DeviceId,
    pub(crate) own: u64,
    pub(crate) growth: u64,
}

impl Ledger {
    /// Refuses a bill that cannot be paid while so many bytes are held.
    fn covers(&self, bill: &Bill, held: u64) -> Result<(), OpenError> {
        let needed = bill.own.saturating_add(bill.growth);
        let available = self.limit.saturating_sub(self.grown).saturating_sub(held);
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
            self.0.push(Ledger { device, limit: u64::MAX, held: 0, grown: 0 });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// Returns the bytes that open sequences hold on all devices.
    pub(crate) fn held(&self) -> u64 {
        self.0.iter().map(|ledger| ledger.held).sum()
    }

    /// Returns the bytes that would be left of a device after a bill, if everything is paid.
    pub(crate) fn left(&mut self, bill: &Bill) -> u64 {
        let Ledger { limit, held, grown, .. } = *self.of(bill.device);
        [held, grown, bill.own, bill.growth].into_iter().fold(limit, u64::saturating_sub)
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
            ledger.covers(bill, ledger.held)
        })
    }

    pub(crate) fn pay(&mut self, bills: &[Bill]) {
        for bill in bills {
            let ledger = self.of(bill.device);
            ledger.held += bill.own;
            ledger.grown += bill.growth;
        }
    }

    pub(crate) fn give_back(&mut self, bills: &[Bill]) {
        for bill in bills {
            self.of(bill.device).held -= bill.own;
        }
    }
}

/// Adds up the prices of a request's sequences, device by device. Sequences of one network make the same buffers grow: the
/// largest growth is theirs together.
pub(crate) fn bills(
    prices: impl Iterator<Item = Result<(NetworkId, Price), OpenError>>,
) -> Result<Vec<Bill>, OpenError> {
    let (mut bills, mut grown): (Vec<Bill>, Vec<(NetworkId, u64)>) = (Vec::new(), Vec::new());
    for priced in prices {
        let (network, Price { own, growth, device }) = priced?;
        let before = grown.iter().filter(|(id, _)| *id == network).map(|&(_, most)| most).max().unwrap_or(0);
        grown.push((network, growth));
        let growth = growth.saturating_sub(before);
        match bills.iter_mut().find(|bill| bill.device == device) {
            Some(bill) => {
                bill.own = bill.own.saturating_add(own);
                bill.growth = bill.growth.saturating_add(growth);
            }
            None => bills.push(Bill { device, own, growth }),
        }
    }
    Ok(bills)
}
