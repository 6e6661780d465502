//! The usage page: what the processes of a tenant say about the device time they use, and the tenant's credit under
//! its compute cap.
//!
//! It lies behind the ledger in the tenant's shared memory. The tenant's processes write it; to the daemon every value
//! in it is a claim, which harms only the tenant's own account.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use quota_core::ledger::{DEVICES_MAX, DeviceId, Ledger, SLOTS_MAX, SlotId};

/// What the processes of a tenant share: the ledger of its memory, and the usage of its compute.
#[repr(C)]
#[derive(Debug)]
pub struct TenantMemory {
    /// Who has charged how much device memory.
    pub ledger: Ledger,
    /// Who has used how much device time.
    pub usage: UsagePage,
}

impl core::ops::Deref for TenantMemory {
    type Target = Ledger;

    fn deref(&self) -> &Ledger {
        &self.ledger
    }
}

/// Device time by tenant and by process. Zero is its beginning.
#[repr(C)]
#[derive(Debug)]
pub struct UsagePage {
    devices: [TenantUsage; DEVICES_MAX],
    /// By process, a bit for each device on which it has a context. What the process says of any other device is not
    /// looked at, so that the memory of a slot is touched only where it is used.
    attached: [AtomicU64; SLOTS_MAX],
    processes: [[ProcessUsage; DEVICES_MAX]; SLOTS_MAX],
}

/// What the processes of a tenant know together about one device.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct TenantUsage {
    /// The bucket of the tenant's compute cap: the word of [`quota_core::compute::limit`].
    pub credit: AtomicU64,
    /// Until when the device's time has been charged, in nanoseconds of the monotonic clock: two processes that run
    /// at one time are charged once.
    pub covered_until_ns: AtomicU64,
    _reserved: [AtomicU64; 6],
}

/// What one process says about one device; times are nanoseconds of the monotonic clock.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct ProcessUsage {
    /// Pieces of work given to the driver; with `completed` equal, nothing is under way.
    pub submitted: AtomicU64,
    /// Pieces of work that have ended.
    pub completed: AtomicU64,
    /// When all that is submitted will have ended, as predicted.
    pub until_ns: AtomicU64,
    /// Device time used, measured.
    pub busy_ns: AtomicU64,
    /// When a thread last went through the gate after it had waited there.
    pub passed_at_ns: AtomicU64,
    /// Time in which some thread waited at the gate, for the token.
    pub waited_ns: AtomicU64,
    /// Time in which some thread waited for credit under the cap.
    pub throttled_ns: AtomicU64,
    /// Threads that wait at the gate now.
    pub waiting: AtomicU32,
    /// Threads that wait for credit now.
    pub throttled: AtomicU32,
    /// 1 while `until_ns` rests on measured kernels only.
    pub sure: AtomicU32,
    _reserved_flag: AtomicU32,
    _reserved: [AtomicU64; 7],
}

impl TenantMemory {
    /// Makes `slot` the place of process `pid`, with nothing charged and nothing said.
    pub fn occupy(&self, slot: SlotId, pid: u32) {
        self.usage.vacate(slot);
        self.ledger.occupy(slot, pid);
    }

    /// Gives back what the process of `slot` had.
    pub fn vacate(&self, slot: SlotId) {
        self.usage.vacate(slot);
        self.ledger.vacate(slot);
    }
}

impl UsagePage {
    /// What the tenant's processes share about `device`.
    pub fn tenant(&self, device: DeviceId) -> &TenantUsage {
        &self.devices[device.index() as usize]
    }

    /// What the process of `slot` says about `device`.
    pub fn process(&self, slot: SlotId, device: DeviceId) -> &ProcessUsage {
        &self.processes[slot.index() as usize][device.index() as usize]
    }

    /// The process of `slot` uses `device` from now on; true when it did not before.
    pub fn attach(&self, slot: SlotId, device: DeviceId) -> bool {
        let bit = 1 << device.index();
        self.attached[slot.index() as usize].fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// True once the process of `slot` uses `device`.
    pub fn is_attached(&self, slot: SlotId, device: DeviceId) -> bool {
        self.attached[slot.index() as usize].load(Ordering::Acquire) >> device.index() & 1 == 1
    }

    /// Forgets what the process said that had the slot; for its next owner.
    pub fn vacate(&self, slot: SlotId) {
        let attached = self.attached[slot.index() as usize].swap(0, Ordering::AcqRel);
        let processes = &self.processes[slot.index() as usize];
        for usage in processes.iter().enumerate().filter(|(at, _)| attached >> at & 1 == 1).map(|(_, usage)| usage) {
            usage.clear();
        }
    }
}

impl ProcessUsage {
    fn clear(&self) {
        let words = [&self.submitted, &self.completed, &self.until_ns, &self.busy_ns, &self.passed_at_ns];
        for word in words.into_iter().chain([&self.waited_ns, &self.throttled_ns]) {
            word.store(0, Ordering::Relaxed);
        }
        for flag in [&self.waiting, &self.throttled, &self.sure] {
            flag.store(0, Ordering::Relaxed);
        }
    }

    /// True while something is submitted that has not been seen to end.
    pub fn is_under_way(&self) -> bool {
        self.submitted.load(Ordering::Acquire) != self.completed.load(Ordering::Acquire)
    }
}

const _: () = assert!(size_of::<TenantUsage>() == 64 && size_of::<ProcessUsage>() == 128);
const _: () = assert!(DEVICES_MAX <= 64, "a device is a bit of a word");
