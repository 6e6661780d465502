//! Memory that tenants of the document lend each other: what one has and doesn't use, its parts and processes being gone or
//! smaller, others that may borrow (`borrow: true`) have for jobs that need more than their own tenant has left. What nobody
//! has been promised (`rest`) is lent in the same way.
//!
//! The owner has it back when it asks. From then on the borrower's quota is what it has of its own; it is told, and has a grace;
//! what it then still has too much is moved to the host or ended (`scheduling: {reclaim: checkpoint | terminate}`).
//! Until it is back, nothing of it is granted a second time: an owner's job waits for it, and its processes that are of no job
//! have what is there.

use super::interrupt::RECLAIM_LOOK_MS;
use super::job::Job;
use super::pools::Whose;
use super::rows::Usage;
use super::{Action, Grant, Registry, Tenant, TenantId};
use quota_core::Bytes;
use quota_wire::page::Quota;

impl Registry {
    /// What others may have of a tenant's memory on a device: nothing while processes of it run that are of no part.
    fn lendable(&self, id: TenantId, device: usize) -> Bytes {
        let tenant = &self.tenants[&id];
        let quota =
            tenant.grants[device].map(|grant| grant.quota).filter(|quota| tenant.is_standing() && !quota.dynamic);
        let Some(cap) = quota.and_then(|quota| quota.memory_cap).filter(|_| !tenant.is_active()) else {
            return Bytes(0);
        };
        Bytes(cap.0.saturating_sub(self.memory_of_parts(id, device, None).0))
    }

    pub(super) fn lendable_by_all(&self, device: usize, but: Option<TenantId>) -> u64 {
        let tenants = self.tenants.keys().filter(|id| Some(**id) != but);
        tenants.map(|id| self.lendable(*id, device).0).sum()
    }

    /// What is lent on a device; what has been moved to the host is not.
    pub(super) fn lent(&self, device: usize) -> Bytes {
        Bytes(self.tenants.values().map(|tenant| tenant.has_borrowed(device).0).sum())
    }

    /// True for one that may use the device's time beyond its cap while nobody of another tenant wants it.
    pub fn borrows_time(&self, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get(&id) else { return false };
        tenant.borrows || tenant.pool.and_then(|pool| self.tenants.get(&pool)).is_some_and(|pool| pool.borrows)
    }

    /// What of a quota the tenant's pool doesn't have left, and others lend.
    pub(super) fn beyond_its_pool(&self, id: TenantId, device: usize, quota: &Quota) -> Bytes {
        let pool = self.tenants.get(&id).and_then(|tenant| tenant.pool);
        let Some(pool) = pool.filter(|_| self.pool_memory(pool, device).is_some()) else { return Bytes(0) };
        let left = self.left_of_pool(pool, device, Some(id), quota.priority);
        Bytes(quota.memory_cap.unwrap_or_default().0.saturating_sub(left.0))
    }

    /// What a job of `pool` may borrow on a device now, or `except`, which is one, have in all. Nothing, while somebody is to
    /// give back.
    pub(super) fn to_borrow(&self, pool: TenantId, device: usize, except: Option<TenantId>) -> Bytes {
        let reclaims =
            self.tenants.values().any(|tenant| tenant.gives_back() && tenant.has_borrowed(device) > Bytes(0));
        if !self.tenants[&pool].borrows || reclaims || self.owed(device) > 0 {
            return Bytes(0);
        }
        let has = except.and_then(|id| Some(self.tenants.get(&id)?.has_borrowed(device).0)).unwrap_or_default();
        let all = self.lendable_by_all(device, Some(pool)) + self.rest_to_lend(device);
        Bytes((all + has).saturating_sub(self.lent(device).0))
    }

    /// All that a job of `pool` could ever borrow on a device.
    pub(super) fn could_borrow(&self, pool: TenantId, device: usize) -> Bytes {
        if !self.tenants[&pool].borrows {
            return Bytes(0);
        }
        let others = self.tenants.iter().filter(|(id, tenant)| **id != pool && tenant.is_standing());
        let others: u64 = others.filter_map(|(_, tenant)| Some(tenant.grants[device]?.quota.memory_cap?.0)).sum();
        Bytes(others + self.rest_ever(device))
    }

    /// What owners miss that have come back, on a device, in bytes: those that run, and those whose jobs wait.
    fn owed(&self, device: usize) -> u64 {
        let lent = self.lent(device).0;
        if lent == 0 {
            return 0;
        }
        let owners: u64 = self.waiting.iter().filter_map(|waiting| self.owners_want(&waiting.job, device)).sum();
        let wanted = owners + self.wanted_of_rest(device);
        (lent + wanted).saturating_sub(self.lendable_by_all(device, None) + self.rest_now(device, None))
    }

    /// What an owner that runs misses now, on a device.
    pub(super) fn owed_now(&self, device: usize) -> Bytes {
        match self.lent_of_rest(device) {
            Bytes(0) => Bytes(0),
            lent => Bytes(lent.0.saturating_sub(self.rest_now(device, None))),
        }
    }

    /// What a job wants of its own tenant's memory on a device, where it waits for nothing else of it.
    fn owners_want(&self, job: &Job, device: usize) -> Option<u64> {
        let whose = self.whose_is(job).ok().filter(|_| job.devices.contains(&device) && self.waits_for_room(job))?;
        let owner = whose.pool.or(whose.tenant).filter(|id| self.tenants[id].is_standing())?;
        let left = self.lendable(owner, device).0;
        match whose {
            Whose { pool: Some(_), .. } => {
                let wants = self.wants_of_job(job, whose).ok()?;
                let asked = wants.iter().find(|(at, _)| *at == device)?.1.memory_cap?.0;
                (asked <= left).then_some(asked)
            }
            _ => Some(left),
        }
    }

    /// What a part has of its pool's memory on a device.
    pub(super) fn own_part(&self, id: TenantId, device: usize) -> Bytes {
        let grant = self.tenants.get(&id).and_then(|tenant| tenant.grants[device]);
        let own = |grant: Grant| Some(grant.quota.memory_cap?.0.saturating_sub(grant.borrowed.0));
        Bytes(grant.and_then(own).unwrap_or_default())
    }

    /// Why a job that takes `asked` of its own tenant's memory, or of the free rest, has to wait: it is lent.
    pub(super) fn is_lent_away(&self, asked: Bytes, device: usize, except: Option<TenantId>) -> Option<String> {
        let lent = self.lent(device);
        let there = self.lendable_by_all(device, None) + self.rest_now(device, except);
        if lent == Bytes(0) || lent.0 + asked.0 <= there {
            return None;
        }
        let borrowers: Vec<&str> =
            self.tenants.values().filter(|it| it.has_borrowed(device) > Bytes(0)).map(|it| it.name.as_str()).collect();
        Some(format!(
            "{} of memory on device {device} are lent to {}, which {} asked to give back",
            lent.human(),
            borrowers.join(", "),
            if borrowers.len() == 1 { "is" } else { "are" }
        ))
    }

    /// True for a job for which others are to give back what they have borrowed.
    pub(super) fn waits_for_borrowers(&self, job: &Job) -> bool {
        let waits = |device: &usize| {
            let wanted = self.owners_want(job, *device).or_else(|| self.wants_of_rest(job, *device));
            wanted.is_some_and(|wanted| self.is_lent_away(Bytes(wanted), *device, None).is_some())
        };
        job.devices.iter().any(waits)
    }

    /// Has borrowers give back what owners miss, the latest first, and takes what they have given back.
    pub(super) fn reclaim(&mut self, now_ms: u64, usage: &dyn Usage, actions: &mut Vec<Action>) {
        let givers: Vec<TenantId> =
            self.tenants.iter().filter(|(_, tenant)| tenant.gives_back()).map(|(id, _)| *id).collect();
        for id in givers {
            self.take_back(id, now_ms, usage, actions);
        }
        for device in 0..self.devices.len() {
            self.to_be_told(device).into_iter().for_each(|id| self.begin_reclaim(id, now_ms, actions));
        }
    }

    /// Those who are to give back what owners miss on a device and haven't been told: the latest first, and no more than it takes.
    fn to_be_told(&self, device: usize) -> Vec<TenantId> {
        let mut owed = self.owed(device);
        let mut told = Vec::new();
        for (id, tenant) in self.tenants.iter().rev() {
            let has = tenant.has_borrowed(device).0;
            if has > 0 && owed > 0 && tenant.interrupt.now.is_none() {
                told.push(*id);
            }
            owed = owed.saturating_sub(has);
        }
        told
    }

    /// True where somebody is still to be told: what an interrupted one that goes on had borrowed is lent again.
    pub(super) fn has_to_reclaim(&self) -> bool {
        (0..self.devices.len()).any(|device| !self.to_be_told(device).is_empty())
    }

    /// True while owners miss something that the tenant has borrowed.
    pub(super) fn is_to_give_back(&self, id: TenantId) -> bool {
        let tenant = &self.tenants[&id];
        (0..self.devices.len()).any(|device| tenant.has_borrowed(device) > Bytes(0) && self.owed(device) > 0)
    }

    /// What the tenant uses is down to its own: then that is its quota, and the rest the owner's again.
    fn take_back(&mut self, id: TenantId, now_ms: u64, usage: &dyn Usage, actions: &mut Vec<Action>) {
        let fits = |(device, grant): (usize, &Option<Grant>)| {
            grant.is_none_or(|grant| {
                let own = grant.quota.memory_cap.unwrap_or_default().0.saturating_sub(grant.borrowed.0);
                self.charged(id, device, usage).0 <= own
            })
        };
        let is_down = self.tenants[&id].grants.iter().enumerate().all(fits);
        let tenant = self.tenants.get_mut(&id).expect("the caller has found it");
        // Twice, a while apart: what was admitted before the quota was lowered is charged by then.
        if !tenant.is_still_down(is_down, now_ms, now_ms + RECLAIM_LOOK_MS) {
            return;
        }
        for grant in tenant.grants.iter_mut().flatten() {
            let borrowed = core::mem::take(&mut grant.borrowed);
            for quota in [&mut grant.quota, &mut grant.admitted] {
                quota.memory_cap = quota.memory_cap.map(|cap| Bytes(cap.0.saturating_sub(borrowed.0)));
            }
        }
        self.changed.insert(id);
        actions.push(Action::Publish(id));
        let event = self.about_change(id, "reclaim", "has given back what it had borrowed");
        self.note_grants_of(id, event, actions);
    }

    /// Has owners that run know what they have of their memory, where that has changed: whoever borrows, gives back, comes or
    /// goes may be the reason.
    pub(super) fn publish_owners(&mut self, actions: &mut Vec<Action>) {
        let owed: Vec<Bytes> = (0..self.devices.len()).map(|device| self.owed_now(device)).collect();
        if core::mem::replace(&mut self.owed, owed.clone()) != owed {
            let owners = self.tenants.iter().filter(|(_, tenant)| tenant.is_standing() && tenant.is_active());
            actions.extend(owners.map(|(id, _)| Action::Publish(*id)));
        }
    }
}

impl Tenant {
    /// True for one that has something of others.
    pub(super) fn is_borrower(&self) -> bool {
        self.grants.iter().flatten().any(|grant| grant.borrowed > Bytes(0))
    }

    /// What it has borrowed on a device and has there.
    pub(super) fn has_borrowed(&self, device: usize) -> Bytes {
        let Some(Grant { quota, borrowed, .. }) = self.grants[device] else { return Bytes(0) };
        let own = quota.memory_cap.unwrap_or_default().0.saturating_sub(borrowed.0);
        let keeps = self.keeps(device).filter(|_| self.lends());
        keeps.map_or(borrowed, |keeps| Bytes(keeps.0.saturating_sub(own).min(borrowed.0)))
    }
}
