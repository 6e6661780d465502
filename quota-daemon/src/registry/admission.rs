//! Whether quotas fit on their devices, and if not, why, with the numbers.

use super::pools::Whose;
use super::{GUARANTEED_MAX, Registry, SharedDevice, Tenant, TenantId};
use core::fmt;
use quota_core::{Bytes, Percent, Priority};
use quota_wire::page::{Quota, firm_part};

/// Tenants that a reason names.
const NAMED_MAX: usize = 4;

/// Why there is no room.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NoRoom {
    /// Waiting would not help.
    Never(String),
    /// There may be room later.
    NotNow(String),
    /// It would share a device with somebody from whom it is kept apart.
    Apart(String),
    /// There is room, but those before it would start later.
    Behind,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never(reason) | Self::NotNow(reason) | Self::Apart(reason) => f.write_str(reason),
            Self::Behind => f.write_str("those before it"),
        }
    }
}

impl NoRoom {
    /// The same for one that doesn't wait.
    pub(super) fn unqueued(&self) -> String {
        match self {
            Self::Apart(reason) => format!("{reason}, unless an administrator allows a job that waits to share it"),
            _ => self.to_string(),
        }
    }
}

impl Registry {
    /// Whether `wants` fit beside what all others have; with `as_job`, also whether their devices take one more job.
    pub(super) fn fits(&self, wants: &[(usize, Quota)], whose: Whose, as_job: bool) -> Result<(), NoRoom> {
        let except = whose.tenant;
        // What can never fit is said first, whatever the other devices say.
        for (index, quota) in wants {
            self.could_ever_fit(*index, quota, whose)?;
        }
        // What the document promises is lent out of the promise itself: whoever has it has what is there, and the rest as it
        // comes back.
        let is_promised = except.map_or(!as_job, |id| self.tenants[&id].is_standing());
        for (index, quota) in wants {
            self.fits_now(*index, quota, whose)?;
            if !is_promised && self.pool_memory(whose.pool, *index).is_none() {
                let lent = firm(quota).and_then(|asked| self.is_lent_away(asked, *index, except));
                lent.map_or(Ok(()), |reason| Err(NoRoom::NotNow(reason)))?;
            }
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

    /// What of that can't be moved to the host.
    pub(super) fn firm(&self, device: usize, except: Option<TenantId>) -> Bytes {
        self.firm_to(device, except, Priority::High)
    }

    /// Tenants with a memory quota on a device, which they have not of another tenant's.
    fn holders(&self, device: usize, except: Option<TenantId>) -> impl Iterator<Item = (&Tenant, Bytes)> {
        let others = self
            .tenants
            .iter()
            .filter(move |(id, tenant)| Some(**id) != except && self.pool_memory(tenant.pool, device).is_none());
        others.filter_map(move |(_, tenant)| Some((tenant, tenant.grants[device]?.quota.memory_cap?)))
    }

    /// The same with what can't be moved.
    fn firm_holders(&self, device: usize, except: Option<TenantId>) -> impl Iterator<Item = (&Tenant, Bytes)> {
        self.holders(device, except).filter_map(move |(tenant, _)| Some((tenant, firm(&tenant.grants[device]?.quota)?)))
    }

    /// Whether `wants` would fit if nothing were lent of what nobody has been promised. What is had of a pool is another matter.
    pub(super) fn fits_but_for_loans(&self, wants: &[(usize, Quota)], whose: Whose) -> bool {
        let fits = |(index, quota): &(usize, Quota)| {
            let is_of_pool = self.pool_memory(whose.pool, *index).is_some();
            (is_of_pool || self.memory_would_fit(*index, quota, whose.tenant).is_ok())
                && self.guarantee_fits(*index, quota, whose).is_ok()
                && self.takes_another_job(*index, whose.tenant, quota.priority).is_ok()
        };
        wants.iter().all(fits)
    }

    fn could_ever_fit(&self, index: usize, quota: &Quota, whose: Whose) -> Result<(), NoRoom> {
        self.guarantee_could_fit(index, quota.guarantee, whose)?;
        if let (Some(pool), Some(cap)) = (whose.pool, self.pool_memory(whose.pool, index)) {
            return self.pool_could_give(pool, index, quota, cap);
        }
        let except = whose.tenant;
        let device = &self.devices[index];
        if quota.dynamic && !device.is_oversubscribed() {
            return Err(NoRoom::Never(format!(
                "device {index} is not oversubscribed, so nobody's memory on it may be moved to the host; the daemon's document allows it with devices[].oversubscribe above 1.0"
            )));
        }
        let (Some(asked), Some(firm)) = (quota.memory_cap, firm(quota)) else {
            let reason = "oversubscribe: it needs a quota to go beyond; give --memory".to_owned();
            return if quota.dynamic { Err(NoRoom::Never(reason)) } else { Ok(()) };
        };
        let standing: u64 = self
            .firm_holders(index, except)
            .filter(|(tenant, _)| tenant.is_standing())
            .map(|(_, memory)| memory.0)
            .sum();
        if asked > device.capacity() {
            let (asked, capacity) = (asked.human(), capacity_in_words(device));
            return Err(NoRoom::Never(format!("{asked} on device {index} can never fit: {capacity}")));
        }
        if firm.0 + standing > device.capacity().0 {
            let asked = asked_in_words(firm, quota);
            let (capacity, standing) = (capacity_in_words(device), Bytes(standing).human());
            return Err(NoRoom::Never(format!(
                "{asked} on device {index} can never fit: {capacity}, {standing} of it set aside by the daemon's document"
            )));
        }
        Ok(())
    }

    fn fits_now(&self, index: usize, quota: &Quota, whose: Whose) -> Result<(), NoRoom> {
        match (whose.pool, self.pool_memory(whose.pool, index)) {
            (Some(pool), Some(_)) => self.pool_gives(pool, index, quota, whose.tenant)?,
            _ => self.memory_would_fit(index, quota, whose.tenant)?,
        }
        self.guarantee_fits(index, quota, whose)
    }

    /// Whether the memory fits, if nothing of it were lent.
    fn memory_would_fit(&self, index: usize, quota: &Quota, except: Option<TenantId>) -> Result<(), NoRoom> {
        let device = &self.devices[index];
        let (capacity, firm_granted) = (device.capacity(), self.firm_to(index, except, quota.priority));
        if let Some(asked) = firm(quota).filter(|asked| asked.0 + firm_granted.0 > capacity.0) {
            let asked = asked_in_words(asked, quota);
            let granted = in_words(self.firm_holders(index, except));
            let what = if device.is_oversubscribed() { "of it granted as memory that stays," } else { "granted" };
            return Err(NoRoom::NotNow(format!(
                "{asked} on device {index} do not fit: {} capacity, {} {what} to {granted}, {} left",
                capacity.human(),
                firm_granted.human(),
                Bytes(capacity.0.saturating_sub(firm_granted.0)).human()
            )));
        }
        let (most, granted) = (device.quotas_max(), self.granted_to(index, except, quota.priority));
        if let Some(asked) = quota.memory_cap.filter(|asked| asked.0 + granted.0 > most.0) {
            return Err(NoRoom::NotNow(format!(
                "{} on device {index} do not fit: {} may be granted ({} times {} capacity), {} granted to {}, {} left",
                asked.human(),
                most.human(),
                f64::from(device.oversubscribe) / 100.0,
                capacity.human(),
                granted.human(),
                in_words(self.holders(index, except)),
                Bytes(most.0.saturating_sub(granted.0)).human()
            )));
        }
        Ok(())
    }

    /// Says why the memory granted on a device doesn't go with it, when it doesn't.
    pub(super) fn check_memory(&self, index: usize, device: &SharedDevice) -> Result<(), String> {
        let dynamic = |tenant: &&Tenant| tenant.grants[index].is_some_and(|grant| grant.quota.dynamic);
        let dynamic = self.tenants.values().find(dynamic).filter(|_| !device.is_oversubscribed());
        if let Some(tenant) = dynamic {
            let name = &tenant.name;
            return Err(format!(
                "device {index}: tenant {name} is oversubscribed, so `oversubscribe` must be above 1.0"
            ));
        }
        let (granted, capacity) = (self.firm(index, None), device.capacity());
        if granted > capacity {
            let (granted, capacity) = (granted.human(), capacity.human());
            return Err(format!("device {index}: {granted} would be granted of {capacity} capacity"));
        }
        let (granted, most) = (self.granted(index, None), device.quotas_max());
        if granted > most {
            let (granted, most) = (granted.human(), most.human());
            return Err(format!("device {index}: {granted} would be granted of {most} that may be"));
        }
        Ok(())
    }

    fn guarantee_fits(&self, index: usize, quota: &Quota, whose: Whose) -> Result<(), NoRoom> {
        let Some(asked) = quota.guarantee else { return Ok(()) };
        if let (Some(pool), Some(all)) = (whose.pool, self.pool_guarantee(whose.pool, index)) {
            return self.pool_guarantees(pool, index, asked, all, whose.tenant);
        }
        let promised = self.guaranteed_to(index, whose.tenant, quota.priority);
        if asked.hundredths() + promised <= GUARANTEED_MAX {
            return Ok(());
        }
        let (promised, most) = (in_percent(promised), in_percent(GUARANTEED_MAX));
        Err(NoRoom::NotNow(format!(
            "a guarantee of {asked} on device {index} does not fit: {promised} are promised already, of {most} that can be"
        )))
    }

    fn guarantee_could_fit(&self, index: usize, asked: Option<Percent>, whose: Whose) -> Result<(), NoRoom> {
        let Some(asked) = asked else { return Ok(()) };
        if let (Some(pool), Some(all)) = (whose.pool, self.pool_guarantee(whose.pool, index)) {
            return match self.pool_guarantees(pool, index, asked, all, whose.tenant) {
                Err(never @ NoRoom::Never(_)) => Err(never),
                _ => Ok(()),
            };
        }
        let others = self.tenants.iter().filter(|(id, tenant)| Some(**id) != whose.tenant && tenant.is_standing());
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

    /// Tenants of which a process or job is on a device.
    pub(super) fn jobs_on(&self, device: usize, except: Option<TenantId>) -> usize {
        let others = self.tenants.iter().filter(|(id, _)| Some(**id) != except);
        others.filter(|(_, tenant)| tenant.is_on(device)).count()
    }
}

/// All quotas together are what there is.
pub(super) const OVERSUBSCRIBE_NONE: u32 = 100;

impl SharedDevice {
    /// What all quotas may be together; what of them can't be moved to the host, no more than the capacity.
    pub fn quotas_max(&self) -> Bytes {
        Bytes((u128::from(self.capacity().0) * u128::from(self.oversubscribe) / 100) as u64)
    }

    /// True when memory on it may be moved to the host.
    pub fn is_oversubscribed(&self) -> bool {
        self.oversubscribe > OVERSUBSCRIBE_NONE
    }
}

impl Tenant {
    pub(super) fn guaranteed(&self, device: usize) -> u32 {
        self.grants[device].and_then(|grant| grant.quota.guarantee).map_or(0, Percent::hundredths)
    }
}

/// What of a quota can't be moved to the host.
pub(super) fn firm(quota: &Quota) -> Option<Bytes> {
    quota.memory_cap.map(|cap| if quota.dynamic { firm_part(cap) } else { cap })
}

/// What is asked for, of which so much can't be moved.
fn asked_in_words(firm: Bytes, quota: &Quota) -> String {
    match quota.memory_cap {
        Some(all) if quota.dynamic => format!("{} of {}, which can't be moved,", firm.human(), all.human()),
        _ => firm.human(),
    }
}

fn in_words<'a>(holders: impl Iterator<Item = (&'a Tenant, Bytes)>) -> String {
    let holders: Vec<String> = holders.map(|(tenant, memory)| format!("{}: {}", tenant.name, memory.human())).collect();
    tenants_in_words(&holders)
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
