//! A tenant's shared memory: its ledger, and the page on which its quota is published.

use crate::devices::DeviceSample;
use crate::peer::LEDGER_NAME;
use crate::registry::{MemberName, Registry, SharedDevice, TenantId, Usage};
use quota_core::Bytes;
use quota_core::ledger::{Correction, DeviceId, Ledger, SlotId};
use quota_wire::lock::{self, LedgerLock};
use quota_wire::memory::{Access, Mapping, anonymous_file, seal_against_others};
use quota_wire::page::QuotaPage;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The pages of one tenant.
#[derive(Debug)]
pub struct TenantPages {
    ledger: Mapping<Ledger>,
    ledger_file: OwnedFd,
    page: Mapping<QuotaPage>,
    page_file: OwnedFd,
    /// The ledger's place of each device. Remembered, since the tenant's processes can write the ledger.
    places: Vec<DeviceId>,
}

/// The pages of all tenants that have had a member.
#[derive(Debug, Default)]
pub struct Pages {
    tenants: HashMap<TenantId, TenantPages>,
}

impl TenantPages {
    fn new(devices: &[SharedDevice]) -> io::Result<Self> {
        let name = CString::new(LEDGER_NAME).expect("there is no zero in it");
        let ledger_file = anonymous_file(&name, size_of::<Ledger>() as u64)?;
        let ledger = Mapping::<Ledger>::new(ledger_file.as_fd(), Access::ReadWrite)?;
        let mut places = Vec::new();
        {
            // Nobody else has the file yet, so the lock is never waited for.
            let guard = LedgerLock::take(ledger_file.as_fd())?;
            ledger.initialise(guard.token()).map_err(io::Error::other)?;
            for device in devices {
                places.push(ledger.device(device.uuid, guard.token()).map_err(io::Error::other)?);
            }
        }
        let page_file = anonymous_file(c"gpuquota-page", size_of::<QuotaPage>() as u64)?;
        let page = Mapping::<QuotaPage>::new(page_file.as_fd(), Access::ReadWrite)?;
        page.initialise();
        seal_against_others(&page_file)?;
        Ok(Self { ledger, ledger_file, page, page_file, places })
    }

    /// What a member is sent: the quota page and the ledger.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.page_file.as_fd(), self.ledger_file.as_fd()]
    }

    /// Makes `slot` the place of process `pid`.
    pub fn occupy(&self, slot: u32, pid: u32) {
        if let Some(slot) = SlotId::new(slot) {
            self.ledger.occupy(slot, pid);
        }
    }

    /// The place of a device, as members know it.
    pub fn place(&self, device: usize) -> Option<u32> {
        self.places.get(device).map(|place| place.index())
    }

    fn publish(&self, tenant: TenantId, registry: &Registry) {
        for (device, place) in self.places.iter().enumerate() {
            if let Some(quota) = registry.effective(tenant, device).filter(|quota| *quota != self.page.quota(*place)) {
                self.page.publish(*place, &quota);
                // What was handed out under the old cap and isn't used must not outlive it.
                for slot in self.ledger.slots() {
                    self.ledger.drop_slack(slot, *place);
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

    /// Publishes what holds for the tenant now.
    pub fn publish(&self, tenant: TenantId, registry: &Registry) {
        if let Some(pages) = self.tenants.get(&tenant) {
            pages.publish(tenant, registry);
        }
    }

    /// Gives back what the process of a slot had.
    pub fn vacate(&self, tenant: TenantId, slot: u32) {
        if let (Some(pages), Some(slot)) = (self.tenants.get(&tenant), SlotId::new(slot)) {
            pages.ledger.vacate(slot);
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
        let length = pages.places.iter().map(|place| place.index() as usize + 1).max().unwrap_or(0);
        let mut held = vec![None; length];
        for (device, place) in pages.places.iter().enumerate() {
            held[place.index() as usize] = registry.held_on(member, device, self, sample).map(|bytes| bytes.0);
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
        Some((pages, SlotId::new(slot)?, *pages.places.get(device)?))
    }

    /// Books what the driver says the process of a slot holds and nobody asked for. Waits for nobody: where the
    /// ledger's lock is taken, the next comparison will do it.
    pub fn correct(&self, tenant: TenantId, slot: u32, device: usize, held: Bytes) {
        let Some((pages, slot, place)) = self.at(tenant, slot, device) else { return };
        let Ok(Some(guard)) = LedgerLock::try_take(pages.ledger_file.as_fd()) else { return };
        match pages.ledger.correction(slot, place, held) {
            Correction::None => {}
            Correction::Raise(more) => {
                pages.ledger.force(slot, place, more, guard.token());
                pages.ledger.add_overhead(slot, place, more);
            }
            Correction::Lower(less) => {
                let gone = pages.ledger.take_overhead(slot, place, less);
                pages.ledger.give_back(slot, place, gone);
            }
        }
    }
}

impl Usage for Pages {
    fn charged(&self, tenant: TenantId, slot: u32, device: usize) -> Bytes {
        self.at(tenant, slot, device).map_or(Bytes(0), |(pages, slot, place)| pages.ledger.used_by(slot, place))
    }

    fn overhead(&self, tenant: TenantId, slot: u32, device: usize) -> Bytes {
        self.at(tenant, slot, device)
            .map_or(Bytes(0), |(pages, slot, place)| pages.ledger.overhead(slot, place).bytes())
    }
}
