//! Whether quotas fit on their devices, and if not, why, with the numbers.

use super::{GUARANTEED_MAX, Registry, SharedDevice, Tenant, TenantId};
use core::fmt;
use quota_core::{Bytes, Percent, Priority};
use quota_wire::page::Quota;

/// Tenants that a reason names.
const NAMED_MAX: usize = 4;

/// Why there is no room.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NoRoom {
    /// Waiting would not help.
    Never(String),
    /// There may be room later.
    NotNow(String),
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Never(reason) | Self::NotNow(reason)) = self;
        f.write_str(reason)
    }
}

impl Registry {
    /// Whether `wants` fit beside what all tenants but `except` have; with `as_job`, also whether their devices
    /// take one more job.
    pub(super) fn fits(&self, wants: &[(usize, Quota)], except: Option<TenantId>, as_job: bool) -> Result<(), NoRoom> {
        // What can never fit is said first, whatever the other devices say.
        for (index, quota) in wants {
            self.could_ever_fit(*index, quota, except)?;
        }
        for (index, quota) in wants {
            self.fits_now(*index, quota, except)?;
            if as_job {
                self.takes_another_job(*index, except, quota.priority)?;
            }
        }
        Ok(())
    }

    /// What has to fit for a job on `devices`: what it wants, or, for a tenant of the document that comes to
    /// life, what it has.
    pub(super) fn needs(
        &self,
        tenant: Option<TenantId>,
        devices: &[usize],
        wants: &[(usize, Quota)],
    ) -> Vec<(usize, Quota)> {
        match tenant.map(|id| &self.tenants[&id]) {
            Some(tenant) if wants.is_empty() && !tenant.is_active() => {
                devices.iter().filter_map(|index| Some((*index, tenant.grants[*index]?.quota))).collect()
            }
            _ => wants.to_vec(),
        }
    }

    /// Memory that all tenants but `except` have been granted on a device.
    pub(super) fn granted(&self, device: usize, except: Option<TenantId>) -> Bytes {
        // Of those that are interrupted, what they keep.
        self.granted_to(device, except, Priority::High)
    }

    /// Tenants with a memory quota on a device.
    fn holders(&self, device: usize, except: Option<TenantId>) -> impl Iterator<Item = (&Tenant, Bytes)> {
        let others = self.tenants.iter().filter(move |(id, _)| Some(**id) != except);
        others.filter_map(move |(_, tenant)| Some((tenant, tenant.grants[device]?.quota.memory_cap?)))
    }

    fn could_ever_fit(&self, index: usize, quota: &Quota, except: Option<TenantId>) -> Result<(), NoRoom> {
        self.guarantee_could_fit(index, quota.guarantee, except)?;
        let device = &self.devices[index];
        let Some(asked) = quota.memory_cap else { return Ok(()) };
        let standing: u64 =
            self.holders(index, except).filter(|(tenant, _)| tenant.is_standing()).map(|(_, memory)| memory.0).sum();
        if asked > device.capacity() {
            let (asked, capacity) = (asked.human(), capacity_in_words(device));
            return Err(NoRoom::Never(format!("{asked} on device {index} can never fit: {capacity}")));
        }
        if asked.0 + standing > device.capacity().0 {
            let (asked, capacity, standing) = (asked.human(), capacity_in_words(device), Bytes(standing).human());
            return Err(NoRoom::Never(format!(
                "{asked} on device {index} can never fit: {capacity}, {standing} of it set aside by the daemon's document"
            )));
        }
        Ok(())
    }

    fn fits_now(&self, index: usize, quota: &Quota, except: Option<TenantId>) -> Result<(), NoRoom> {
        let capacity = self.devices[index].capacity();
        let granted = self.granted_to(index, except, quota.priority);
        if let Some(asked) = quota.memory_cap.filter(|asked| asked.0 + granted.0 > capacity.0) {
            let holders: Vec<String> = self
                .holders(index, except)
                .map(|(tenant, memory)| format!("{}: {}", tenant.name, memory.human()))
                .collect();
            return Err(NoRoom::NotNow(format!(
                "{} on device {index} do not fit: {} capacity, {} granted to {}, {} left",
                asked.human(),
                capacity.human(),
                granted.human(),
                tenants_in_words(&holders),
                Bytes(capacity.0.saturating_sub(granted.0)).human()
            )));
        }
        self.guarantee_fits(index, quota, except)
    }

    fn guarantee_fits(&self, index: usize, quota: &Quota, except: Option<TenantId>) -> Result<(), NoRoom> {
        let Some(asked) = quota.guarantee else { return Ok(()) };
        let promised = self.guaranteed_to(index, except, quota.priority);
        if asked.hundredths() + promised <= GUARANTEED_MAX {
            return Ok(());
        }
        let (promised, most) = (in_percent(promised), in_percent(GUARANTEED_MAX));
        Err(NoRoom::NotNow(format!(
            "a guarantee of {asked} on device {index} does not fit: {promised} are promised already, of {most} that can be"
        )))
    }

    fn guarantee_could_fit(
        &self,
        index: usize,
        asked: Option<Percent>,
        except: Option<TenantId>,
    ) -> Result<(), NoRoom> {
        let Some(asked) = asked else { return Ok(()) };
        let others = self.tenants.iter().filter(|(id, tenant)| Some(**id) != except && tenant.is_standing());
        let standing: u32 = others.map(|(_, tenant)| tenant.guaranteed(index)).sum();
        if asked.hundredths() + standing <= GUARANTEED_MAX {
            return Ok(());
        }
        let (standing, most) = (in_percent(standing), in_percent(GUARANTEED_MAX));
        Err(NoRoom::Never(format!(
            "a guarantee of {asked} on device {index} can never fit: {most} can be promised, {standing} of it by the daemon's document"
        )))
    }

    /// What all tenants but `except` are guaranteed on a device, in hundredths of a percent.
    pub(super) fn guaranteed(&self, device: usize, except: Option<TenantId>) -> u32 {
        self.guaranteed_to(device, except, Priority::High)
    }

    fn takes_another_job(&self, index: usize, except: Option<TenantId>, class: Priority) -> Result<(), NoRoom> {
        let Some(most) = self.devices[index].jobs_max else { return Ok(()) };
        let running = self.jobs_against(index, except, class);
        if running < most as usize {
            return Ok(());
        }
        Err(NoRoom::NotNow(format!("device {index} takes at most {most} jobs at a time, {running} are running")))
    }

    /// Active tenants on a device.
    pub(super) fn jobs_on(&self, device: usize, except: Option<TenantId>) -> usize {
        let others = self.tenants.iter().filter(|(id, _)| Some(**id) != except);
        others.filter(|(_, tenant)| tenant.is_active() && tenant.grants[device].is_some()).count()
    }
}

impl Tenant {
    pub(super) fn guaranteed(&self, device: usize) -> u32 {
        self.grants[device].and_then(|grant| grant.quota.guarantee).map_or(0, Percent::hundredths)
    }
}

fn in_percent(hundredths: u32) -> String {
    format!("{}%", f64::from(hundredths) / 100.0)
}

fn capacity_in_words(device: &SharedDevice) -> String {
    let (capacity, total, reserve) = (device.capacity().human(), device.total.human(), device.reserve.human());
    format!("{capacity} capacity ({total} less {reserve} reserve)")
}

fn tenants_in_words(holders: &[String]) -> String {
    let more = holders.len().saturating_sub(NAMED_MAX);
    let mut named = holders[..holders.len() - more].join(", ");
    if more > 0 {
        named.push_str(&format!(" and {more} more"));
    }
    let plural = if holders.len() == 1 { "" } else { "s" };
    format!("{} tenant{plural} ({named})", holders.len())
}
