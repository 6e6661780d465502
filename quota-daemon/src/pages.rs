//! A tenant's shared memory: its ledger, and the page on which its quota is published.

use crate::arbiter::{Common, now_ns};
use crate::devices::DeviceSample;
use crate::peer::LEDGER_NAME;
use crate::registry::{MemberName, Registry, SharedDevice, TenantId, Usage};
use crate::shares::ComputeClaim;
use crate::survival::PAGE_NAME;
use quota_core::ledger::{Correction, DeviceId, SlotId, Units};
use quota_core::{Bytes, Percent};
use quota_wire::TenantMemory;
use quota_wire::lock::{self, ENDING_PAUSE, ENDING_WAIT_MAX, LedgerLock};
use quota_wire::memory::{Access, Mapping, anonymous_file};
use quota_wire::page::{Gate, QuotaPage};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::SealFlags;
use rustix::thread::futex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The pages of one tenant, and the descriptors through which others get them.
#[derive(Debug)]
pub struct TenantPages {
    common: Arc<Common>,
    ledger_file: OwnedFd,
    page_file: OwnedFd,
}

/// The same file for reading, by whom it doesn't belong to.
fn read_only(file: &OwnedFd) -> io::Result<OwnedFd> {
    rustix::fs::fchmod(file, rustix::fs::Mode::RUSR)?;
    Ok(std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into())
}

/// What the threads share. The eventfd is a fresh one also for pages that are taken back: the old one went with the
/// daemon that made it, and who rejoins is sent this.
fn common(page: Mapping<QuotaPage>, memory: Mapping<TenantMemory>, places: Vec<DeviceId>) -> io::Result<Arc<Common>> {
    let poke = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok(Arc::new(Common { page, memory, places, poke }))
}

/// The pages of all tenants that have had a member.
#[derive(Debug, Default)]
pub struct Pages {
    tenants: HashMap<TenantId, TenantPages>,
}

impl TenantPages {
    fn new(devices: &[SharedDevice]) -> io::Result<Self> {
        let name = CString::new(LEDGER_NAME).expect("there is no zero in it");
        let ledger_file = anonymous_file(&name, size_of::<TenantMemory>() as u64)?;
        let ledger = Mapping::<TenantMemory>::new(ledger_file.as_fd(), Access::ReadWrite)?;
        let mut places = Vec::new();
        {
            // Nobody else has the file yet, so the lock is never waited for.
            let guard = LedgerLock::take(ledger_file.as_fd())?;
            ledger.initialise(guard.token()).map_err(io::Error::other)?;
            for device in devices {
                places.push(ledger.device(device.uuid, guard.token()).map_err(io::Error::other)?);
            }
        }
        let name = CString::new(PAGE_NAME).expect("there is no zero in it");
        let page_file = anonymous_file(&name, size_of::<QuotaPage>() as u64)?;
        let page = Mapping::<QuotaPage>::new(page_file.as_fd(), Access::ReadWrite)?;
        page.initialise();
        // Not sealed against writing: a daemon that comes after this one has to write it, too.
        let page_file = read_only(&page_file)?;
        Ok(Self { common: common(page, ledger, places)?, ledger_file, page_file })
    }

    /// The pages that an earlier daemon made, through the descriptors of one of the tenant's processes.
    ///
    /// # Errors
    /// When they are no pages of this version.
    pub fn take_back(page: &OwnedFd, ledger_file: OwnedFd, devices: &[SharedDevice]) -> io::Result<Self> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        // A process could have made the file itself, to take the memory away from under us.
        let sealed = SealFlags::SHRINK | SealFlags::GROW;
        for file in [page, &ledger_file] {
            if !rustix::fs::fcntl_get_seals(file)?.contains(sealed) {
                return Err(invalid("its pages are none of ours"));
            }
        }
        let mapping = Mapping::<QuotaPage>::new(page.as_fd(), Access::ReadWrite)?;
        let ledger = Mapping::<TenantMemory>::new(ledger_file.as_fd(), Access::ReadWrite)?;
        if !mapping.is_valid() {
            return Err(invalid("its quota page is of another version"));
        }
        let mut places = Vec::new();
        {
            let guard = LedgerLock::take(ledger_file.as_fd())?;
            ledger.initialise(guard.token()).map_err(io::Error::other)?;
            for device in devices {
                places.push(ledger.device(device.uuid, guard.token()).map_err(io::Error::other)?);
            }
        }
        Ok(Self { common: common(mapping, ledger, places)?, ledger_file, page_file: read_only(page)? })
    }

    /// The process that lives in a slot, by the kernel's word.
    pub fn owner(&self, slot: u32) -> Option<u32> {
        lock::owner(self.ledger_file.as_fd(), SlotId::new(slot)?).ok().flatten()
    }

    /// Gives back what processes have left that died while no daemon watched. Those that are just ending are waited for, but
    /// not for long.
    pub fn bury(&self) {
        let (memory, deadline) = (&self.common.memory, Instant::now() + ENDING_WAIT_MAX);
        for slot in memory.slots().filter(|slot| memory.pid(*slot) != 0) {
            if lock::is_alive(self.ledger_file.as_fd(), slot).is_ok_and(|alive| !alive) {
                while lock::is_still_ending(memory.pid(slot)) && Instant::now() < deadline {
                    std::thread::sleep(ENDING_PAUSE);
                }
                memory.vacate(slot);
            }
        }
    }

    /// What a member is sent: the quota page, the ledger, and the eventfd with which it pokes the arbiter.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.page_file.as_fd(), self.ledger_file.as_fd(), self.common.poke.as_fd()]
    }

    /// What the arbiter gets of it.
    pub fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// Makes `slot` the place of process `pid`.
    pub fn occupy(&self, slot: u32, pid: u32) {
        if let Some(slot) = SlotId::new(slot) {
            self.common.memory.occupy(slot, pid);
        }
    }

    /// The place of a device, as members know it.
    pub fn place(&self, device: usize) -> Option<u32> {
        self.common.places.get(device).map(|place| place.index())
    }

    fn publish(&self, tenant: TenantId, registry: &Registry) {
        self.publish_quotas(tenant, registry);
        if let Some(notice) = registry.notice(tenant)
            && self.common.page.tell(notice, now_ns())
        {
            // Whoever waits there; that nobody does is no error.
            let _ = futex::wake(self.common.page.notice_number(), futex::Flags::empty(), u32::MAX >> 1);
        }
    }

    fn publish_quotas(&self, tenant: TenantId, registry: &Registry) {
        for (device, place) in self.common.places.iter().enumerate() {
            if let Some(quota) =
                registry.effective(tenant, device).filter(|quota| *quota != self.common.page.quota(*place))
            {
                self.common.page.publish(*place, &quota);
                // What was handed out under the old cap and isn't used must not outlive it.
                for slot in self.common.memory.slots() {
                    self.common.memory.drop_slack(slot, *place);
                }
            }
        }
    }
}

impl Pages {
    /// The tenant's pages, made and filled when there are none yet.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of(&mut self, tenant: TenantId, registry: &Registry) -> io::Result<&TenantPages> {
        match self.tenants.entry(tenant) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let pages = TenantPages::new(registry.devices())?;
                pages.publish(tenant, registry);
                Ok(entry.insert(pages))
            }
        }
    }

    /// Makes pages that an earlier daemon made the tenant's.
    pub fn insert(&mut self, tenant: TenantId, pages: TenantPages, registry: &Registry) {
        pages.publish(tenant, registry);
        self.tenants.insert(tenant, pages);
    }

    /// The tenant's pages, when it has any.
    pub fn get(&self, tenant: TenantId) -> Option<&TenantPages> {
        self.tenants.get(&tenant)
    }

    /// Publishes what holds for the tenant now.
    pub fn publish(&self, tenant: TenantId, registry: &Registry) {
        if let Some(pages) = self.tenants.get(&tenant) {
            pages.publish(tenant, registry);
        }
    }

    /// Gives back what the process of a slot had.
    pub fn vacate(&self, tenant: TenantId, slot: u32) {
        if let (Some(pages), Some(slot)) = (self.tenants.get(&tenant), SlotId::new(slot)) {
            pages.common.memory.vacate(slot);
        }
    }

    /// True when the process of a slot still has its mark there, or nobody can say.
    pub fn is_marked(&self, tenant: TenantId, slot: u32) -> bool {
        match (self.tenants.get(&tenant), SlotId::new(slot)) {
            (Some(pages), Some(slot)) => lock::is_alive(pages.ledger_file.as_fd(), slot).unwrap_or(true),
            _ => true,
        }
    }

    /// What the driver says a member holds, by the device's place in ledger and page.
    pub fn held_by_place(&self, member: &MemberName, registry: &Registry, sample: &[DeviceSample]) -> Vec<Option<u64>> {
        let Some(pages) = self.tenants.get(&member.tenant) else { return Vec::new() };
        let all: Vec<MemberName> = registry.members().filter(|other| other.pid == member.pid).collect();
        let length = pages.common.places.iter().map(|place| place.index() as usize + 1).max().unwrap_or(0);
        let mut held = vec![None; length];
        for (device, place) in pages.common.places.iter().enumerate() {
            held[place.index() as usize] = registry.held_on(member, &all, device, self, sample).map(|bytes| bytes.0);
        }
        held
    }

    /// The tenant is gone.
    pub fn forget(&mut self, tenant: TenantId) {
        self.tenants.remove(&tenant);
    }
}

impl Pages {
    fn at(&self, tenant: TenantId, slot: u32, device: usize) -> Option<(&TenantPages, SlotId, DeviceId)> {
        let pages = self.tenants.get(&tenant)?;
        Some((pages, SlotId::new(slot)?, *pages.common.places.get(device)?))
    }

    /// Books what the driver says the process of a slot holds and nobody asked for. Waits for nobody: where the
    /// ledger's lock is taken, the next comparison will do it.
    pub fn correct(&self, tenant: TenantId, slot: u32, device: usize, held: Bytes) {
        let Some((pages, slot, place)) = self.at(tenant, slot, device) else { return };
        let Ok(Some(guard)) = LedgerLock::try_take(pages.ledger_file.as_fd()) else { return };
        // Of a process that is checkpointed nothing is held, and nothing charged.
        if pages.common.memory.parked(slot, place) != Units::ZERO {
            return;
        }
        match pages.common.memory.correction(slot, place, held) {
            Correction::None => {}
            Correction::Raise(more) => {
                pages.common.memory.force(slot, place, more, guard.token());
                pages.common.memory.add_overhead(slot, place, more);
            }
            Correction::Lower(less) => {
                let gone = pages.common.memory.take_overhead(slot, place, less);
                pages.common.memory.give_back(slot, place, gone);
            }
        }
    }
}

impl Usage for Pages {
    fn charged(&self, tenant: TenantId, slot: u32, device: usize) -> Bytes {
        self.at(tenant, slot, device).map_or(Bytes(0), |(pages, slot, place)| pages.common.memory.used_by(slot, place))
    }

    fn overhead(&self, tenant: TenantId, slot: u32, device: usize) -> Bytes {
        self.at(tenant, slot, device)
            .map_or(Bytes(0), |(pages, slot, place)| pages.common.memory.overhead(slot, place).bytes())
    }

    fn compute(&self, tenant: TenantId, slot: u32, device: usize) -> Option<ComputeClaim> {
        let (pages, slot, place) = self.at(tenant, slot, device)?;
        let Common { page, memory, .. } = &*pages.common;
        if !memory.usage.is_attached(slot, place) {
            return None;
        }
        let usage = memory.usage.process(slot, place);
        Some(ComputeClaim {
            busy_ns: usage.busy_ns.load(Ordering::Relaxed),
            waited_ns: usage.waited_ns.load(Ordering::Relaxed),
            throttled_ns: usage.throttled_ns.load(Ordering::Relaxed),
            waiting: usage.waiting.load(Ordering::Relaxed),
            throttled: usage.throttled.load(Ordering::Relaxed),
            under_way: usage.is_under_way(),
            borrowed: borrowed(page, place),
            counted: matches!(page.gate(place), Gate::Open | Gate::Closed),
        })
    }
}

/// What is lent on a device now, beyond the tenant's own cap.
fn borrowed(page: &QuotaPage, place: DeviceId) -> Option<Percent> {
    let (own, now) = (page.compute_cap(place)?, page.compute_cap_at(place, now_ns())?);
    Percent::part(now.hundredths().saturating_sub(own.hundredths()))
}
