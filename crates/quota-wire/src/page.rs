//! The quota page: what a tenant may use, written by the daemon and read on every path that decides.

use crate::notice::Notice;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use quota_core::ledger::{DEVICES_MAX, DeviceId};
use quota_core::{Bytes, Percent, Priority};

/// Marks an initialised page ("gpuqpage").
pub const MAGIC: u64 = u64::from_le_bytes(*b"gpuqpage");
/// Layout version; raised whenever the meaning of any byte changes. What was reserved may get one under which zero is what
/// held before: then pages of both ages are read rightly by daemons and processes of both.
pub const VERSION: u32 = 3;
/// What a process finds at the gate of a device before it launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Gate {
    /// Nothing is decided yet: say that there is work, and wait. What a fresh page says.
    Ask = 0,
    /// Nobody else uses the device and no cap holds: launch, and count nothing.
    Free = 1,
    /// The tenant has the token: launch no further ahead than is allowed, and say what was used.
    Open = 2,
    /// Another has the token, or the tenant is paused: wait.
    Closed = 3,
}

impl Gate {
    /// The gate that a word of the page stands for; a word of another version keeps the process waiting.
    pub fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Ask,
            1 => Self::Free,
            2 => Self::Open,
            _ => Self::Closed,
        }
    }
}

/// The tenant's own memory may be moved to the host.
const DYNAMIC: u32 = 1;
/// That of others on the device may, and makes room for the tenant's.
const CROWDED: u32 = 2;
/// Of a dynamic quota, what can't be moved is at least so much, where the quota is.
const FIRM_LEAST: u64 = 512 << 20;
/// And else one part in so many. No larger than the largest oversubscription: with quotas of that many times a device,
/// what can't be moved still fits it.
pub const FIRM_PARTS: u64 = 4;

/// How much of a dynamic quota may be memory that can't be moved to the host: contexts, code, arrays, physical handles.
pub fn firm_part(quota: Bytes) -> Bytes {
    Bytes((quota.0 / FIRM_PARTS).max(FIRM_LEAST).min(quota.0))
}

/// Bits of a loan's word that are its cap; the others are its time.
const LOAN_TIME_SHIFT: u32 = 16;
/// A memory cap that is none.
const NO_CAP: u64 = u64::MAX;

/// The shared memory itself; one a tenant.
#[repr(C)]
#[derive(Debug)]
pub struct QuotaPage {
    magic: AtomicU64,
    version: AtomicU32,
    /// The number of the tenant's last notice, 0 for none; a futex. Changes after what it is about.
    notice: AtomicU32,
    /// Grows with every change of any quota below.
    epoch: AtomicU64,
    /// Grows with every change of any gate, so that a process that was free on all its devices sees with one load
    /// that it still is.
    gates_epoch: AtomicU64,
    /// When the daemon last looked after the gates, in nanoseconds of its monotonic clock. Moves while anybody waits.
    heartbeat_ns: AtomicU64,
    /// What the notice says, [`Notice::to_word`].
    notice_word: AtomicU64,
    /// When its grace is over, in nanoseconds of the daemon's monotonic clock.
    notice_until_ns: AtomicU64,
    _reserved_line: AtomicU64,
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
    /// The launch gate, a [`Gate`]; a futex.
    gate: AtomicU32,
    /// Microseconds of predicted work that may be under way at a time while the gate is open.
    ahead_us: AtomicU32,
    /// Whose memory may be moved: bits of [`DYNAMIC`] and [`CROWDED`].
    moving: AtomicU32,
    _reserved: AtomicU32,
    /// A compute cap that holds for a while instead of the other, and until when: hundredths of a percent in the lower 16
    /// bits, above them milliseconds of the monotonic clock. 0 for none.
    loan: AtomicU64,
    _reserved_line: [AtomicU32; 2],
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
    /// Its memory may be moved to the host, all but [`firm_part`].
    pub dynamic: bool,
    /// Memory of others on the device may be, and makes room.
    pub crowded: bool,
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

    /// The compute cap on `device`: one load, for the launch path.
    pub fn compute_cap(&self, device: DeviceId) -> Option<Percent> {
        Percent::part(self.device(device).compute_cap.load(Ordering::Relaxed))
    }

    /// The same at a time, in nanoseconds of the monotonic clock: the tenant may have borrowed of others with whom it has a cap
    /// together, or what nobody else wants.
    pub fn compute_cap_at(&self, device: DeviceId, now_ns: u64) -> Option<Percent> {
        let loan = self.device(device).loan.load(Ordering::Relaxed);
        let holds = now_ns / 1_000_000 < loan >> LOAN_TIME_SHIFT;
        let cap = u32::try_from(loan & ((1 << LOAN_TIME_SHIFT) - 1)).unwrap_or(0);
        Percent::part(cap).filter(|_| holds).or_else(|| self.compute_cap(device))
    }

    /// The daemon's side of the above: `cap` holds until then. None for what the quota says.
    pub fn lend(&self, device: DeviceId, cap: Option<Percent>, until_ns: u64) {
        let until_ms = (until_ns / 1_000_000).min(u64::MAX >> LOAN_TIME_SHIFT);
        let word = cap.map_or(0, |cap| until_ms << LOAN_TIME_SHIFT | u64::from(cap.hundredths()));
        self.device(device).loan.store(word, Ordering::Relaxed);
    }

    /// Everything that holds on `device`. Fields written by one `publish` may be seen one by one.
    pub fn quota(&self, device: DeviceId) -> Quota {
        let entry = self.device(device);
        Quota {
            memory_cap: self.memory_cap(device),
            compute_cap: Percent::part(entry.compute_cap.load(Ordering::Relaxed)),
            guarantee: Percent::part(entry.guarantee.load(Ordering::Relaxed)),
            weight: entry.weight.load(Ordering::Relaxed),
            priority: match entry.priority.load(Ordering::Relaxed) {
                0 => Priority::Batch,
                2 => Priority::High,
                _ => Priority::Normal,
            },
            dynamic: self.is_dynamic(device),
            crowded: self.is_crowded(device),
        }
    }

    /// True when the tenant's memory may be moved to the host: one load, for the allocation path.
    pub fn is_dynamic(&self, device: DeviceId) -> bool {
        self.device(device).moving.load(Ordering::Relaxed) & DYNAMIC != 0
    }

    /// True when somebody's may: what the driver calls free is then less than what can be had.
    pub fn is_crowded(&self, device: DeviceId) -> bool {
        self.device(device).moving.load(Ordering::Relaxed) & (DYNAMIC | CROWDED) != 0
    }

    /// The daemon's side: makes `quota` hold on `device`.
    pub fn publish(&self, device: DeviceId, quota: &Quota) {
        let entry = self.device(device);
        let hundredths = |percent: Option<Percent>| percent.map_or(0, Percent::hundredths);
        let moving = if quota.dynamic { DYNAMIC } else { 0 } | if quota.crowded { CROWDED } else { 0 };
        // Before the cap: who sees the cap of a dynamic quota must not take it for one of memory that stays.
        entry.moving.store(moving, Ordering::Release);
        entry.memory_cap_bytes.store(quota.memory_cap.map_or(NO_CAP, |cap| cap.0), Ordering::Relaxed);
        let cap = hundredths(quota.compute_cap);
        if entry.compute_cap.swap(cap, Ordering::Relaxed) != cap {
            // What was lent was of another part.
            entry.loan.store(0, Ordering::Relaxed);
        }
        entry.guarantee.store(hundredths(quota.guarantee), Ordering::Relaxed);
        entry.weight.store(quota.weight, Ordering::Relaxed);
        entry.priority.store(quota.priority as u32, Ordering::Relaxed);
        // Pairs with the Acquire of `epoch`: who sees the new number sees what it stands for.
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// The gate of `device`. Pairs with the Release of `set_gate`.
    pub fn gate(&self, device: DeviceId) -> Gate {
        Gate::from_word(self.gate_word(device).load(Ordering::Acquire))
    }

    /// The word to wait on while the gate is [`Gate::Closed`] or [`Gate::Ask`]: a futex shared between processes.
    pub fn gate_word(&self, device: DeviceId) -> &AtomicU32 {
        &self.device(device).gate
    }

    /// The daemon's side: sets the gate. True when it was another before; whoever waits is then to be woken.
    pub fn set_gate(&self, device: DeviceId, gate: Gate) -> bool {
        let before = self.device(device).gate.swap(gate as u32, Ordering::Release);
        // A process that is free of all gates watches this word only.
        if before != gate as u32 {
            self.gates_epoch.fetch_add(1, Ordering::Release);
        }
        before != gate as u32
    }

    /// The word that grows with every change of any gate.
    pub fn gates_epoch(&self) -> &AtomicU64 {
        &self.gates_epoch
    }

    /// How far ahead of the device a process may launch, in microseconds of predicted work.
    pub fn ahead_us(&self, device: DeviceId) -> u32 {
        self.device(device).ahead_us.load(Ordering::Relaxed)
    }

    /// The daemon's side of the above.
    pub fn set_ahead_us(&self, device: DeviceId, ahead_us: u32) {
        self.device(device).ahead_us.store(ahead_us, Ordering::Relaxed);
    }

    /// When the daemon last looked after the gates, in nanoseconds of its monotonic clock.
    pub fn heartbeat_ns(&self) -> u64 {
        self.heartbeat_ns.load(Ordering::Acquire)
    }

    /// The daemon's side of the above.
    pub fn beat(&self, now_ns: u64) {
        self.heartbeat_ns.store(now_ns, Ordering::Release);
    }

    /// The tenant's last notice, and when its grace is over, in nanoseconds of the daemon's monotonic clock.
    pub fn notice(&self) -> Option<(Notice, u64)> {
        // Another try only when a notice came in the middle; the next change of the number tells of what is missed.
        for _ in 0..4 {
            // Acquire pairs with the Release of `tell`: who sees the number sees what it stands for, or what comes after,
            // of which the word knows.
            let number = self.notice.load(Ordering::Acquire);
            let word = self.notice_word.load(Ordering::Acquire);
            let until_ns = self.notice_until_ns.load(Ordering::Acquire);
            if let Some(notice) = Notice::from_word(number, word) {
                return Some((notice, until_ns));
            }
        }
        None
    }

    /// The number of the last notice: a futex shared between processes.
    pub fn notice_number(&self) -> &AtomicU32 {
        &self.notice
    }

    /// The daemon's side: makes it the last one. True when it was another before; whoever waits is then to be woken.
    pub fn tell(&self, notice: Notice, now_ns: u64) -> bool {
        if self.notice.load(Ordering::Relaxed) == notice.number {
            return false;
        }
        self.notice_until_ns.store(now_ns + u64::from(notice.grace_ms) * 1_000_000, Ordering::Release);
        self.notice_word.store(notice.to_word(), Ordering::Release);
        self.notice.store(notice.number, Ordering::Release);
        true
    }

    fn device(&self, device: DeviceId) -> &DeviceQuota {
        &self.devices[device.index() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Access, Mapping, anonymous_file};
    use crate::notice::{Action, Event, Reason};
    use core::mem::offset_of;
    use std::os::fd::AsFd;

    fn page() -> Mapping<QuotaPage> {
        let file = anonymous_file(c"gpuquota-page", size_of::<QuotaPage>() as u64).expect("memory");
        Mapping::new(file.as_fd(), Access::ReadWrite).expect("memory")
    }

    #[test]
    fn a_notice_is_read_as_it_was_told_and_a_page_of_before_has_none() {
        let page = page();
        page.initialise();
        assert_eq!(page.notice(), None);
        let notice =
            Notice { number: 1, event: Event::Notice, reason: Reason::Preempted, action: Action::Pause, grace_ms: 30 };
        assert!(page.tell(notice, 5) && !page.tell(notice, 6), "told once");
        assert_eq!(page.notice(), Some((notice, 30_000_005)));
        let resumed = Notice { number: 2, event: Event::Resumed, ..notice };
        assert!(page.tell(resumed, 7));
        assert_eq!(page.notice().map(|(notice, _)| notice), Some(resumed));
    }

    /// What is lent holds until its time, and no longer than what it is lent beyond.
    #[test]
    fn a_loan_ends_by_itself() {
        const MS: u64 = 1_000_000;
        let page = page();
        let (device, percent) = (DeviceId::new(1).expect("a place"), Percent::from_hundredths);
        let own = Quota { compute_cap: percent(2_500), ..Quota::default() };
        page.publish(device, &own);
        page.lend(device, percent(4_000), 300 * MS);
        let at = |ms: u64| page.compute_cap_at(device, ms * MS).map(Percent::hundredths);
        assert_eq!([at(0), at(299), at(300), at(u64::MAX / MS)], [Some(4_000), Some(4_000), Some(2_500), Some(2_500)]);
        assert_eq!(page.compute_cap(device), percent(2_500), "its own is what it was");
        page.publish(device, &Quota { weight: 3, ..own });
        assert_eq!(at(0), Some(4_000), "something else has changed");
        page.publish(device, &Quota { compute_cap: Percent::part(5), ..own });
        assert_eq!(at(0), Some(5), "however small");
        page.publish(device, &Quota { compute_cap: percent(1_000), ..own });
        assert_eq!(at(0), Some(1_000), "its part has");
        page.lend(device, percent(10_000), u64::MAX);
        assert_eq!(at(1 << 40), Some(10_000));
        page.lend(device, None, u64::MAX);
        assert_eq!(at(0), Some(1_000));
    }

    /// Notices and loans lie in what was reserved: what was there before is where it was.
    #[test]
    fn the_layout_is_that_of_its_version() {
        let offsets = [
            offset_of!(QuotaPage, notice),
            offset_of!(QuotaPage, epoch),
            offset_of!(QuotaPage, gates_epoch),
            offset_of!(QuotaPage, heartbeat_ns),
            offset_of!(QuotaPage, notice_word),
            offset_of!(QuotaPage, devices),
            offset_of!(DeviceQuota, moving),
            offset_of!(DeviceQuota, loan),
        ];
        assert_eq!((VERSION, offsets), (3, [12, 16, 24, 32, 40, 64, 32, 40]));
        assert_eq!(size_of::<QuotaPage>(), 64 + 64 * DEVICES_MAX);
    }
}
