//! The quota page: what a tenant may use, written by the daemon and read on every path that decides.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use quota_core::ledger::{DEVICES_MAX, DeviceId};
use quota_core::{Bytes, Percent, Priority};

/// Marks an initialised page ("gpuqpage").
pub const MAGIC: u64 = u64::from_le_bytes(*b"gpuqpage");
/// Layout version; raised whenever the meaning of any byte changes.
pub const VERSION: u32 = 1;
/// A memory cap that is none.
const NO_CAP: u64 = u64::MAX;

/// The shared memory itself; one a tenant.
#[repr(C)]
#[derive(Debug)]
pub struct QuotaPage {
    magic: AtomicU64,
    version: AtomicU32,
    _reserved: AtomicU32,
    /// Grows with every change of anything below.
    epoch: AtomicU64,
    _reserved_line: [AtomicU64; 5],
    devices: [DeviceQuota; DEVICES_MAX],
}

/// What holds on one device; indexed by the ledger's [`DeviceId`].
#[repr(C, align(64))]
#[derive(Debug)]
struct DeviceQuota {
    memory_cap_bytes: AtomicU64,
    /// Hundredths of a percent; 0 for none.
    compute_cap: AtomicU32,
    /// Hundredths of a percent; 0 for none.
    guarantee: AtomicU32,
    weight: AtomicU32,
    /// 0 batch, 1 normal, 2 high.
    priority: AtomicU32,
    /// The futex of the launch gate: 0 is open.
    gate: AtomicU32,
    _reserved: [AtomicU32; 7],
}

/// A quota on one device, as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Quota {
    /// Most device memory, or no cap.
    pub memory_cap: Option<Bytes>,
    /// Most compute, or no cap.
    pub compute_cap: Option<Percent>,
    /// Least compute.
    pub guarantee: Option<Percent>,
    /// Weight among contenders, 1 to 10,000.
    pub weight: u32,
    /// Class among contenders.
    pub priority: Priority,
}

impl QuotaPage {
    /// Writes the header of a fresh page.
    pub fn initialise(&self) {
        for device in &self.devices {
            device.memory_cap_bytes.store(NO_CAP, Ordering::Relaxed);
        }
        self.version.store(VERSION, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// True when the page is one this version can read.
    pub fn is_valid(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC && self.version.load(Ordering::Relaxed) == VERSION
    }

    /// The number of the published state; a change of any quota raises it.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The memory cap on `device`: one load, for the allocation path.
    pub fn memory_cap(&self, device: DeviceId) -> Option<Bytes> {
        match self.device(device).memory_cap_bytes.load(Ordering::Relaxed) {
            NO_CAP => None,
            bytes => Some(Bytes(bytes)),
        }
    }

    /// Everything that holds on `device`. Fields written by one `publish` may be seen one by one.
    pub fn quota(&self, device: DeviceId) -> Quota {
        let entry = self.device(device);
        Quota {
            memory_cap: self.memory_cap(device),
            compute_cap: Percent::from_hundredths(entry.compute_cap.load(Ordering::Relaxed)),
            guarantee: Percent::from_hundredths(entry.guarantee.load(Ordering::Relaxed)),
            weight: entry.weight.load(Ordering::Relaxed),
            priority: match entry.priority.load(Ordering::Relaxed) {
                0 => Priority::Batch,
                2 => Priority::High,
                _ => Priority::Normal,
            },
        }
    }

    /// The daemon's side: makes `quota` hold on `device`.
    pub fn publish(&self, device: DeviceId, quota: &Quota) {
        let entry = self.device(device);
        let hundredths = |percent: Option<Percent>| percent.map_or(0, Percent::hundredths);
        entry.memory_cap_bytes.store(quota.memory_cap.map_or(NO_CAP, |cap| cap.0), Ordering::Relaxed);
        entry.compute_cap.store(hundredths(quota.compute_cap), Ordering::Relaxed);
        entry.guarantee.store(hundredths(quota.guarantee), Ordering::Relaxed);
        entry.weight.store(quota.weight, Ordering::Relaxed);
        entry.priority.store(quota.priority as u32, Ordering::Relaxed);
        // Pairs with the Acquire of `epoch`: who sees the new number sees what it stands for.
        self.epoch.fetch_add(1, Ordering::Release);
    }

    fn device(&self, device: DeviceId) -> &DeviceQuota {
        &self.devices[device.index() as usize]
    }
}
