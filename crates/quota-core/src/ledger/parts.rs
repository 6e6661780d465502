//! What a process's charges consist of, and how they are corrected by what the driver says it holds.

use super::{AtomicU32, DeviceId, Ledger, Ordering, SlotId, Units, unpack};
use crate::Bytes;

impl Ledger {
    /// What of the process's charges was measured, not asked for. While they are parked, that is nothing.
    pub fn overhead(&self, slot: SlotId, device: DeviceId) -> Units {
        let used = unpack(self.word(slot, device).load(Ordering::Relaxed)).1;
        Units(self.slot(slot).overhead[device.0 as usize].load(Ordering::Relaxed).min(used))
    }

    /// Calls `amount` of what is charged already overhead.
    pub fn add_overhead(&self, slot: SlotId, device: DeviceId, amount: Units) {
        add(&self.slot(slot).overhead[device.0 as usize], amount);
    }

    /// Takes up to `amount` out of the overhead; how much that was. Still charged: the caller gives it back.
    pub fn take_overhead(&self, slot: SlotId, device: DeviceId, amount: Units) -> Units {
        take(&self.slot(slot).overhead[device.0 as usize], amount)
    }

    /// Charges that the device need not hold.
    pub fn soft(&self, slot: SlotId, device: DeviceId) -> Units {
        Units(self.slot(slot).soft[device.0 as usize].load(Ordering::Relaxed))
    }

    /// Calls `amount` of what is charged already soft.
    pub fn add_soft(&self, slot: SlotId, device: DeviceId, amount: Units) {
        add(&self.slot(slot).soft[device.0 as usize], amount);
    }

    /// Takes up to `amount` out of what is soft.
    pub fn take_soft(&self, slot: SlotId, device: DeviceId, amount: Units) {
        take(&self.slot(slot).soft[device.0 as usize], amount);
    }

    /// What a context costs on `device`, as last seen; zero while nobody knows.
    pub fn context_cost(&self, device: DeviceId) -> Units {
        Units(self.devices[device.0 as usize].context.load(Ordering::Relaxed))
    }

    /// Remembers what a context costs on `device`.
    pub fn set_context_cost(&self, device: DeviceId, cost: Units) {
        self.devices[device.0 as usize].context.store(cost.0, Ordering::Relaxed);
    }

    /// How what the driver says the process of `slot` holds differs from what it is charged.
    pub fn correction(&self, slot: SlotId, device: DeviceId, held: Bytes) -> Correction {
        let used = Units(unpack(self.word(slot, device).load(Ordering::Relaxed)).1);
        correction(used, self.overhead(slot, device), self.soft(slot, device), held)
    }

    /// Sets aside what the process of `slot` has charged on `device`: it was checkpointed, and holds nothing now.
    ///
    /// The process itself must not be running: its calls are locked out. A second call changes nothing, unless
    /// the first caller died in the middle: then it does the rest.
    pub fn park(&self, slot: SlotId, device: DeviceId) {
        let used = unpack(self.word(slot, device).load(Ordering::Relaxed)).1;
        if used == 0 {
            return;
        }
        let parked = &self.slot(slot).parked[device.0 as usize];
        let before = parked.compare_exchange(0, used, Ordering::AcqRel, Ordering::Relaxed).unwrap_or_else(|set| set);
        if before == 0 || before == used {
            self.word(slot, device).store(0, Ordering::Release);
        }
    }

    /// What [`Ledger::park`] set aside.
    pub fn parked(&self, slot: SlotId, device: DeviceId) -> Units {
        Units(self.slot(slot).parked[device.0 as usize].load(Ordering::Relaxed))
    }

    /// What was set aside is charged again, or will never be.
    pub fn unpark(&self, slot: SlotId, device: DeviceId) {
        self.slot(slot).parked[device.0 as usize].store(0, Ordering::Release);
    }
}

/// What has to happen so that a process is charged what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Correction {
    /// The books are right, or differ in a way that overhead can't explain.
    None,
    /// So much more is held than is charged: it is overhead.
    Raise(Units),
    /// So much of the overhead is gone.
    Lower(Units),
}

/// Compares what is charged, of which `overhead` was measured and `soft` need not be on the device, with
/// what the driver says is held. Only overhead is ever corrected: what was asked for is charged by the rules.
pub fn correction(used: Units, overhead: Units, soft: Units, held: Bytes) -> Correction {
    let held = Units::holding(held).unwrap_or(Units(u32::MAX));
    let least = used.less(soft);
    if held > used {
        Correction::Raise(held.less(used))
    } else if held < least && overhead > Units::ZERO {
        Correction::Lower(least.less(held).min(overhead))
    } else {
        Correction::None
    }
}

fn add(part: &AtomicU32, amount: Units) {
    let add = |now: u32| Some(now.saturating_add(amount.0));
    let _ = part.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add);
}

fn take(part: &AtomicU32, amount: Units) -> Units {
    let take = |now: u32| Some(now.saturating_sub(amount.0));
    let before = part.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).unwrap_or(0);
    Units(before.min(amount.0))
}
