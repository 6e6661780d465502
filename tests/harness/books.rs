//! What processes are charged, as the ledger has it, against what they hold, as the simulated machine has it.

use core::sync::atomic::{AtomicU64, Ordering};
use quota_core::ledger::{DeviceId, SlotId};
use quota_wire::lock::LedgerLock;
use quota_wire::memory::{Access, Mapping};
use quota_wire::{QuotaPage, TenantMemory};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Both sets of books of one machine.
pub struct Books {
    machine: fake_machine::Machine,
    ledgers: Vec<PathBuf>,
}

impl Books {
    pub(crate) fn new(spec: &str, state: &Path, ledgers: Vec<PathBuf>) -> Self {
        let machine = fake_machine::Machine::open(spec, state).expect("the machine of the test");
        Self { machine, ledgers }
    }

    /// Bytes that process `pid` is charged on a device, by the machine's order; 0 where it is in no ledger.
    pub fn charged(&self, pid: u32, device: usize) -> u64 {
        self.of(pid, device, |ledger, slot, place| ledger.used_by(slot, place).0)
    }

    /// What of that was measured, not asked for.
    pub fn overhead(&self, pid: u32, device: usize) -> u64 {
        self.of(pid, device, |ledger, slot, place| ledger.overhead(slot, place).bytes().0)
    }

    /// What of that need not be on the device.
    pub fn soft(&self, pid: u32, device: usize) -> u64 {
        self.of(pid, device, |ledger, slot, place| ledger.soft(slot, place).bytes().0)
    }

    /// Bytes that all processes together are charged on a device.
    pub fn charged_in_all(&self, device: usize) -> u64 {
        self.sum(device, |ledger, slot, place| ledger.used_by(slot, place).0)
    }

    /// Bytes that all processes together may charge without asking, which is at least what they are charged. Unlike a
    /// sum of charges, which others change while it is made, it is exact.
    pub fn stock_in_all(&self, device: usize) -> u64 {
        let uuid = self.machine.devices()[device].uuid;
        let stock = |path: &PathBuf| {
            let file = std::fs::File::options().read(true).write(true).open(path).ok()?;
            let ledger = Mapping::<TenantMemory>::new(file.as_fd(), Access::ReadOnly).ok()?;
            let (place, _) = ledger.devices().find(|(_, known)| *known == uuid)?;
            let guard = LedgerLock::take(file.as_fd()).ok()?;
            Some(ledger.stock(place, guard.token()).0)
        };
        self.ledgers.iter().filter_map(stock).sum()
    }

    /// Bytes that process `pid` holds on a device.
    pub fn held(&self, pid: u32, device: usize) -> u64 {
        let processes = self.machine.processes(device);
        processes.iter().filter(|process| process.host_pid == pid).map(|process| process.bytes).sum()
    }

    /// Bytes that it holds and that can't be moved to the host.
    pub fn held_firmly(&self, pid: u32, device: usize) -> u64 {
        let processes = self.machine.processes(device).into_iter().filter(|process| process.host_pid == pid);
        processes.map(|process| process.bytes - process.movable_bytes).sum()
    }

    /// Bytes that all processes together hold on a device.
    pub fn held_in_all(&self, device: usize) -> u64 {
        self.machine.processes(device).iter().map(|process| process.bytes).sum()
    }

    /// A line for each process: pid, held, charged, overhead.
    pub fn dump(&self, device: usize) -> String {
        let row = |process: fake_machine::ProcessUse| {
            let pid = process.host_pid;
            let (charged, overhead) = (self.charged(pid, device), self.overhead(pid, device));
            format!("{pid}: {} held, {charged} charged, {overhead} overhead\n", process.bytes)
        };
        self.machine.processes(device).into_iter().map(row).collect()
    }

    fn of(&self, pid: u32, device: usize, part: impl Fn(&TenantMemory, SlotId, DeviceId) -> u64) -> u64 {
        self.sum(device, |ledger, slot, place| if ledger.pid(slot) == pid { part(ledger, slot, place) } else { 0 })
    }

    fn sum(
        &self,
        device: usize,
        count: impl Fn(&TenantMemory, quota_core::ledger::SlotId, quota_core::ledger::DeviceId) -> u64,
    ) -> u64 {
        let uuid = self.machine.devices()[device].uuid;
        let mut sum = 0;
        for path in &self.ledgers {
            // Opened anew each time: a daemon may have replaced it, and who locks it is not disturbed by reading.
            let Ok(file) = std::fs::File::open(path) else { continue };
            let Ok(ledger) = Mapping::<TenantMemory>::new(file.as_fd(), Access::ReadOnly) else { continue };
            let Some((place, _)) = ledger.devices().find(|(_, known)| *known == uuid) else { continue };
            sum += ledger.slots().map(|slot| count(&ledger, slot, place)).sum::<u64>();
        }
        sum
    }
}

/// What a process says about the device time it uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Pieces of work given to the driver.
    pub submitted: u64,
    /// Pieces of work that have ended.
    pub completed: u64,
    /// Device time used, in nanoseconds.
    pub busy_ns: u64,
    /// Nanoseconds for which threads waited for the token.
    pub waited_ns: u64,
    /// Nanoseconds for which threads waited for credit under the cap.
    pub throttled_ns: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            submitted: self.submitted + other.submitted,
            completed: self.completed + other.completed,
            busy_ns: self.busy_ns + other.busy_ns,
            waited_ns: self.waited_ns + other.waited_ns,
            throttled_ns: self.throttled_ns + other.throttled_ns,
        }
    }
}

impl Books {
    /// What process `pid` says about its use of a device, by the machine's order; nothing where it is in no ledger.
    pub fn usage(&self, pid: u32, device: usize) -> Usage {
        let of = |word: fn(&quota_wire::usage::ProcessUsage) -> &AtomicU64| {
            self.sum(device, |memory, slot, place| {
                let said = memory.pid(slot) == pid && memory.usage.is_attached(slot, place);
                if said { word(memory.usage.process(slot, place)).load(Ordering::Acquire) } else { 0 }
            })
        };
        Usage {
            submitted: of(|usage| &usage.submitted),
            completed: of(|usage| &usage.completed),
            busy_ns: of(|usage| &usage.busy_ns),
            waited_ns: of(|usage| &usage.waited_ns),
            throttled_ns: of(|usage| &usage.throttled_ns),
        }
    }
}

/// The ledger of the tenant that process `pid` is a member of, through the process's own descriptor.
pub fn ledger_of(pid: u32) -> PathBuf {
    descriptor_of(pid, |target| {
        target.starts_with("/memfd:gpuquota-ledger") || target.ends_with(".gpuquota") || target.contains("/gpuquota-")
    })
}

/// The memory that the processes of the tenant of process `pid` share.
pub fn tenant_memory_of(pid: u32) -> Mapping<TenantMemory> {
    let file = std::fs::File::open(ledger_of(pid)).expect("it is readable");
    Mapping::new(file.as_fd(), Access::ReadOnly).expect("it is of this version")
}

/// The quota page of the tenant of process `pid`, which is a daemon's member.
pub fn page_of(pid: u32) -> Mapping<QuotaPage> {
    let path = descriptor_of(pid, |target| target.starts_with("/memfd:gpuquota-page"));
    let file = std::fs::File::open(path).expect("it is readable");
    Mapping::new(file.as_fd(), Access::ReadOnly).expect("it is of this version")
}

fn descriptor_of(pid: u32, is_it: impl Fn(&str) -> bool) -> PathBuf {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let descriptors = std::fs::read_dir(&folder).expect("it lives").flatten().map(|entry| entry.path());
    let fits = |path: &PathBuf| is_it(&std::fs::read_link(path).unwrap_or_default().to_string_lossy());
    descriptors.into_iter().find(fits).expect("it has it open")
}
