//! The ledger: device memory of one tenant, accounted by all its processes together.
//!
//! A ledger is plain shared memory. Every process has a slot, and a slot has one packed word per device:
//! *stock* (what the process may charge without asking anybody) above *used* (what it has charged).
//! Always `used <= stock`, and the sum of the stocks never exceeds the cap under which they were granted;
//! so the sum of what is used cannot either, under any interleaving:
//!
//! - [`Ledger::charge`] and [`Ledger::give_back`] change `used` within the process's own word, by
//!   compare-and-swap: no lock, no system call, O(1).
//! - [`Ledger::grow`] raises the own stock. It needs the ledger's lock, which the kernel owns (see
//!   `quota_wire::lock`), so that it dies with its holder. When the sum would pass the cap, the slack of
//!   the others (`stock - used`) is taken back first, by compare-and-swap against their lock-free charges.
//! - Lowering a stock and clearing a dead process's slot only ever lower the sum, so they need no lock.
//! - Only [`Ledger::force`] and a cap that falls can leave the sum above the cap. Then slack is taken back, and a
//!   stock without slack falls with what is given back: whoever wants more has to ask.
//!
//! A process killed between any two instructions leaves words that are valid as they stand; its slot is
//! cleared when the kernel reports the death. There is no state that needs repair.
//!
//! Beside each word stand two numbers that say what part of `used` is what, for [`correction`]: *overhead*,
//! which was measured and not asked for (contexts, code, heaps), and *soft*, which is charged whether the
//! device holds it or not (managed memory). And one for later: *parked*, what a checkpointed process held.
//!
//! Loads and stores are `Relaxed` but for the compare-and-swaps (`AcqRel`): the words carry no other data,
//! and each property above is about single words or, in `grow`, about words whose growth the lock orders.

mod parts;

pub use parts::{Correction, correction};

pub use super::basis::{DEVICES_MAX, SLOTS_MAX};

use super::basis::{AtomicU32, AtomicU64, BATCH_UNITS, Ordering};
use crate::Bytes;

/// The unit of account. Every charge is a multiple of it; 2^32 units are 2 TiB per process and device.
pub const UNIT: u64 = 512;
/// Marks an initialised ledger ("gpuqldgr").
pub const MAGIC: u64 = u64::from_le_bytes(*b"gpuqldgr");
/// Layout version; raised whenever the meaning of any byte changes.
pub const VERSION: u32 = 3;

/// The shared memory itself. All zero bytes is a valid, empty ledger that lacks only its header.
#[repr(C)]
#[derive(Debug)]
pub struct Ledger {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    /// One more than the highest slot ever used: bounds the walks.
    pub(crate) high: AtomicU32,
    pub(crate) _reserved: [u64; 6],
    pub(crate) devices: [DeviceName; DEVICES_MAX],
    pub(crate) slots: [Slot; SLOTS_MAX],
}

/// The UUID of a device, all zero while the entry is free.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct DeviceName {
    pub(crate) halves: [AtomicU64; 2],
    /// What a context was last seen to cost, in units; 0 while nobody knows.
    pub(crate) context: AtomicU32,
    pub(crate) _reserved: AtomicU32,
}

/// One process.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Slot {
    /// The pid of the owner as it sees itself; 0 while the slot is free.
    pub(crate) pid: AtomicU32,
    pub(crate) _reserved: AtomicU32,
    pub(crate) words: [AtomicU64; DEVICES_MAX],
    pub(crate) overhead: [AtomicU32; DEVICES_MAX],
    pub(crate) soft: [AtomicU32; DEVICES_MAX],
    pub(crate) parked: [AtomicU32; DEVICES_MAX],
}

/// A process's place in the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlotId(u32);

/// A device's place in the ledger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(u32);

/// An amount of memory in [`UNIT`]s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Units(u32);

/// Shows that the caller holds the ledger's lock; made by whoever took it.
#[derive(Debug)]
pub struct Locked<'a>(core::marker::PhantomData<&'a ()>);

/// A charge that does not fit under the cap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} asked, {} of {} in use", asked.human(), used.human(), cap.human())]
pub struct Denied {
    /// What was asked for.
    pub asked: Bytes,
    /// What the tenant uses.
    pub used: Bytes,
    /// What it may use.
    pub cap: Bytes,
}

/// Why a ledger can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LedgerError {
    /// Not a ledger at all.
    #[error("it is not a gpuquota ledger")]
    NotALedger,
    /// Written by another version.
    #[error("it has layout version {0}, this is version {VERSION}")]
    OtherVersion(u32),
    /// More devices than [`DEVICES_MAX`].
    #[error("it names {DEVICES_MAX} other devices already")]
    DevicesFull,
    /// More processes than [`SLOTS_MAX`].
    #[error("{SLOTS_MAX} processes of the tenant are running already")]
    SlotsFull,
}

impl<'a> Locked<'a> {
    /// For the code that has just taken the lock and holds it for `'a`.
    pub fn assume() -> Self {
        Locked(core::marker::PhantomData)
    }
}

impl Units {
    /// None.
    pub const ZERO: Self = Self(0);

    /// What is left when `other` is taken away; zero when that is more.
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The smallest number of units that hold `bytes`; `None` beyond what a word can count.
    pub fn holding(bytes: Bytes) -> Option<Self> {
        u32::try_from(bytes.0.div_ceil(UNIT)).ok().map(Units)
    }

    /// The same amount in bytes.
    pub fn bytes(self) -> Bytes {
        Bytes(u64::from(self.0) * UNIT)
    }
}

impl SlotId {
    /// From its number, when it is one.
    pub fn new(index: u32) -> Option<Self> {
        ((index as usize) < SLOTS_MAX).then_some(Self(index))
    }

    /// Its number.
    pub fn index(self) -> u32 {
        self.0
    }
}

impl DeviceId {
    /// From its number, when it is one.
    pub fn new(index: u32) -> Option<Self> {
        ((index as usize) < DEVICES_MAX).then_some(Self(index))
    }

    /// Its number.
    pub fn index(self) -> u32 {
        self.0
    }
}

fn pack(stock: u32, used: u32) -> u64 {
    u64::from(stock) << 32 | u64::from(used)
}

fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl Ledger {
    /// Writes the header of a fresh ledger, or checks that of an old one.
    pub fn initialise(&self, _lock: &Locked<'_>) -> Result<(), LedgerError> {
        match (self.magic.load(Ordering::Acquire), self.version.load(Ordering::Relaxed)) {
            (0, 0) => {
                self.version.store(VERSION, Ordering::Relaxed);
                self.magic.store(MAGIC, Ordering::Release);
                Ok(())
            }
            // Killed between the two stores above.
            (0, VERSION) => {
                self.magic.store(MAGIC, Ordering::Release);
                Ok(())
            }
            (MAGIC, VERSION) => Ok(()),
            (MAGIC, other) => Err(LedgerError::OtherVersion(other)),
            _ => Err(LedgerError::NotALedger),
        }
    }

    /// The entry of the device with this UUID, made when there is none.
    pub fn device(&self, uuid: [u8; 16], _lock: &Locked<'_>) -> Result<DeviceId, LedgerError> {
        let (low, high) = halves(uuid);
        for (index, device) in self.devices.iter().enumerate() {
            let now = (device.halves[0].load(Ordering::Relaxed), device.halves[1].load(Ordering::Relaxed));
            if now == (low, high) {
                return Ok(DeviceId(index as u32));
            }
            if now == (0, 0) {
                // The second half goes last: killed in between, the entry matches no UUID, and is lost, not wrong.
                device.halves[0].store(low, Ordering::Relaxed);
                device.halves[1].store(high, Ordering::Release);
                return Ok(DeviceId(index as u32));
            }
        }
        Err(LedgerError::DevicesFull)
    }

    /// UUIDs of the devices that have an entry.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceId, [u8; 16])> + '_ {
        self.devices.iter().enumerate().filter_map(|(index, device)| {
            let (low, high) = (device.halves[0].load(Ordering::Relaxed), device.halves[1].load(Ordering::Acquire));
            let mut uuid = [0; 16];
            uuid[..8].copy_from_slice(&low.to_le_bytes());
            uuid[8..].copy_from_slice(&high.to_le_bytes());
            (low != 0 || high != 0).then_some((DeviceId(index as u32), uuid))
        })
    }

    /// Slots that have ever been used.
    pub fn slots(&self) -> impl Iterator<Item = SlotId> + use<> {
        let high = (self.high.load(Ordering::Relaxed) as usize).min(SLOTS_MAX);
        (0..high as u32).map(SlotId)
    }

    /// The pid that owns the slot, as the owner sees it; 0 when it is free.
    pub fn pid(&self, slot: SlotId) -> u32 {
        self.slot(slot).pid.load(Ordering::Relaxed)
    }

    /// Makes `slot` the place of process `pid`, with nothing charged.
    pub fn occupy(&self, slot: SlotId, pid: u32) {
        self.vacate(slot);
        self.high.fetch_max(slot.0 + 1, Ordering::Relaxed);
        self.slot(slot).pid.store(pid, Ordering::Release);
    }

    /// Writes the pid of the slot's owner as the owner sees it.
    pub fn set_pid(&self, slot: SlotId, pid: u32) {
        self.slot(slot).pid.store(pid, Ordering::Release);
    }

    /// Gives back everything that the process of `slot` had; for a process known to be dead, or leaving.
    pub fn vacate(&self, slot: SlotId) {
        let slot = self.slot(slot);
        for word in &slot.words {
            word.store(0, Ordering::Relaxed);
        }
        for part in slot.overhead.iter().chain(&slot.soft).chain(&slot.parked) {
            part.store(0, Ordering::Relaxed);
        }
        slot.pid.store(0, Ordering::Release);
    }

    /// Charges `amount` from the process's stock; false when the stock does not hold it.
    pub fn charge(&self, slot: SlotId, device: DeviceId, amount: Units) -> bool {
        let word = self.word(slot, device);
        let mut now = word.load(Ordering::Relaxed);
        loop {
            let (stock, used) = unpack(now);
            let Some(after) = used.checked_add(amount.0).filter(|after| *after <= stock) else { return false };
            match word.compare_exchange_weak(now, pack(stock, after), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
    }

    /// Gives `amount` back to the process's stock; where that is used up, the stock falls with it.
    ///
    /// A stock without slack may be one of which the slack was taken back, because the sum has passed the cap:
    /// what is freed then must not be charged again without asking.
    ///
    /// Giving back more than is charged leaves zero: a mistake must not turn into room for others.
    pub fn give_back(&self, slot: SlotId, device: DeviceId, amount: Units) {
        let word = self.word(slot, device);
        let mut now = word.load(Ordering::Relaxed);
        loop {
            let (stock, used) = unpack(now);
            let after = used.saturating_sub(amount.0);
            let stock_after = if stock == used { after } else { stock };
            match word.compare_exchange_weak(now, pack(stock_after, after), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(seen) => now = seen,
            }
        }
    }

    /// Charges `amount` under `cap`, raising the stock; takes back everybody's slack before it says no.
    pub fn grow(
        &self,
        slot: SlotId,
        device: DeviceId,
        amount: Units,
        cap: Bytes,
        _lock: &Locked<'_>,
    ) -> Result<(), Denied> {
        // What does not fill a unit can't be charged.
        let cap_units = cap.0 / UNIT;
        for reclaimed in [false, true] {
            if reclaimed {
                self.drop_all_slack(device);
            }
            if self.raise(slot, device, amount, cap_units) {
                return Ok(());
            }
        }
        Err(Denied { asked: amount.bytes(), used: self.used(device), cap })
    }

    /// Charges `amount` whatever the cap: for memory that is held already, and where quotas are only observed.
    ///
    /// That may raise the sum of the stocks beyond the cap, so nobody keeps slack: who wants more has to ask.
    pub fn force(&self, slot: SlotId, device: DeviceId, amount: Units, _lock: &Locked<'_>) {
        self.drop_all_slack(device);
        let word = self.word(slot, device);
        let mut now = word.load(Ordering::Relaxed);
        loop {
            let (stock, used) = unpack(now);
            let after = used.saturating_add(amount.0);
            match word.compare_exchange_weak(now, pack(stock.max(after), after), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(seen) => now = seen,
            }
        }
    }

    /// One attempt of [`Ledger::grow`]; under the lock, so that no other stock grows meanwhile.
    fn raise(&self, slot: SlotId, device: DeviceId, amount: Units, cap_units: u64) -> bool {
        let word = self.word(slot, device);
        let others: u64 = self
            .slots()
            .filter(|other| *other != slot)
            .map(|other| u64::from(unpack(self.word(other, device).load(Ordering::Relaxed)).0))
            .sum();
        let mut now = word.load(Ordering::Relaxed);
        loop {
            let (stock, used) = unpack(now);
            let after = u64::from(used) + u64::from(amount.0);
            let room = cap_units.saturating_sub(others).min(u64::from(u32::MAX));
            if after > room {
                return false;
            }
            let stock_after = u64::from(stock).max(after + BATCH_UNITS).min(room);
            let raised = pack(stock_after as u32, after as u32);
            match word.compare_exchange_weak(now, raised, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
    }

    /// Lowers the stock of a process to what it uses.
    pub fn drop_slack(&self, slot: SlotId, device: DeviceId) {
        let word = self.word(slot, device);
        let mut now = word.load(Ordering::Relaxed);
        loop {
            let (stock, used) = unpack(now);
            if stock == used {
                return;
            }
            match word.compare_exchange_weak(now, pack(used, used), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(seen) => now = seen,
            }
        }
    }

    /// Lowers every stock to what is used; under the lock, so that none grows again meanwhile.
    fn drop_all_slack(&self, device: DeviceId) {
        for slot in self.slots() {
            self.drop_slack(slot, device);
        }
    }

    /// What all processes have charged on `device`.
    pub fn used(&self, device: DeviceId) -> Bytes {
        let units: u64 =
            self.slots().map(|slot| u64::from(unpack(self.word(slot, device).load(Ordering::Relaxed)).1)).sum();
        Bytes(units * UNIT)
    }

    /// What the process of `slot` has charged on `device`.
    pub fn used_by(&self, slot: SlotId, device: DeviceId) -> Bytes {
        Units(unpack(self.word(slot, device).load(Ordering::Relaxed)).1).bytes()
    }

    /// What all processes together may charge on `device` without asking. Under the ledger's lock it can only fall, so
    /// that the sum is one that there was.
    pub fn stock(&self, device: DeviceId, _lock: &Locked<'_>) -> Bytes {
        let units: u64 =
            self.slots().map(|slot| u64::from(unpack(self.word(slot, device).load(Ordering::Relaxed)).0)).sum();
        Bytes(units * UNIT)
    }

    fn slot(&self, slot: SlotId) -> &Slot {
        &self.slots[slot.0 as usize]
    }

    fn word(&self, slot: SlotId, device: DeviceId) -> &AtomicU64 {
        &self.slot(slot).words[device.0 as usize]
    }
}

fn halves(uuid: [u8; 16]) -> (u64, u64) {
    let half = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&uuid[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    (half(0), half(8))
}

#[cfg(test)]
mod tests;
