//! Tenants of the document as pools: a tenant whose name begins with that of another and `/`, or a job of one that asks for
//! memory of its own, is a *part* of it.
//!
//! What the pool has on a device (memory, a guarantee) its parts have of it, and nobody counts it twice; where the pool has
//! none, they have it of the device. Processes of the pool that are of no part have what memory its parts leave. A pool's cap
//! and guarantee are divided among those that are active, by weight; its weight is the scheduler's business.

use super::admission::NoRoom;
use super::{Action, Grant, Registry, Tenant, TenantId, WEIGHT_DEFAULT};
use quota_core::compute::parts::shares;
use quota_core::compute::{Part, Pool};
use quota_core::{Bytes, Percent, Priority};
use quota_wire::page::Quota;

/// Whose a job or a process is, or would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Whose {
    /// Its tenant, when there is one already.
    pub(super) tenant: Option<TenantId>,
    /// What the tenant is a part of.
    pub(super) pool: Option<TenantId>,
}

impl Registry {
    /// The tenant of the document of which one of this name is a part.
    pub(super) fn pool_for(&self, name: &str) -> Option<TenantId> {
        let standing = |head: &str| self.tenant_named(head).filter(|id| self.tenants[id].is_standing());
        name.rmatch_indices('/').find_map(|(at, _)| standing(&name[..at]))
    }

    /// Whose a job or process of that tenant is. With `own`, it asks for memory of its own.
    pub(super) fn whose(&self, name: Option<&str>, own: bool) -> Whose {
        let Some(name) = name else { return Whose::default() };
        let Some(tenant) = self.tenant_named(name) else { return Whose { tenant: None, pool: self.pool_for(name) } };
        let it = &self.tenants[&tenant];
        let has_memory = it.grants.iter().flatten().any(|grant| grant.quota.memory_cap.is_some());
        match own && it.is_standing() && has_memory {
            true => Whose { tenant: None, pool: Some(tenant) },
            false => Whose { tenant: Some(tenant), pool: it.pool },
        }
    }

    /// The parts of a pool.
    pub(super) fn parts(&self, pool: TenantId) -> impl Iterator<Item = (TenantId, &Tenant)> {
        let all = self.tenants.get(&pool).filter(|tenant| tenant.is_pool).map(|_| self.tenants.iter());
        all.into_iter().flatten().filter(move |(_, tenant)| tenant.pool == Some(pool)).map(|(id, tenant)| (*id, tenant))
    }

    pub(super) fn has_parts(&self, id: TenantId) -> bool {
        self.parts(id).next().is_some()
    }

    /// What the pool has on a device for its parts.
    pub(super) fn pool_grant(&self, pool: Option<TenantId>, index: usize) -> Option<Quota> {
        Some(self.tenants.get(&pool?)?.grants[index]?.quota)
    }

    /// The memory of which one of that pool has its own; none where it has it of the device.
    pub(super) fn pool_memory(&self, pool: Option<TenantId>, index: usize) -> Option<Bytes> {
        self.pool_grant(pool, index)?.memory_cap
    }

    /// The same of the guarantee.
    pub(super) fn pool_guarantee(&self, pool: Option<TenantId>, index: usize) -> Option<Percent> {
        self.pool_grant(pool, index)?.guarantee
    }

    /// What the parts of a pool, but `except`, have on a device.
    pub(super) fn memory_of_parts(&self, pool: TenantId, index: usize, except: Option<TenantId>) -> Bytes {
        let parts = self.parts(pool).filter(|(id, _)| Some(*id) != except);
        let of_it = |grant: Grant| Some(grant.quota.memory_cap?.0.saturating_sub(grant.borrowed.0));
        Bytes(parts.filter_map(|(_, part)| of_it(part.grants[index]?)).sum())
    }

    fn guarantee_of_parts(&self, pool: TenantId, index: usize, except: Option<TenantId>) -> u32 {
        let parts = self.parts(pool).filter(|(id, _)| Some(*id) != except);
        let guarantees = parts.filter_map(|(_, part)| part.grants[index]?.quota.guarantee);
        guarantees.map(Percent::hundredths).sum()
    }

    /// What can still be promised by a pool, or by the device, in hundredths of a percent.
    pub(super) fn guarantees_left(&self, pool: Option<TenantId>, index: usize) -> u32 {
        match (pool, self.pool_guarantee(pool, index)) {
            (Some(pool), Some(all)) => all.hundredths().saturating_sub(self.guarantee_of_parts(pool, index, None)),
            _ => super::GUARANTEED_MAX.saturating_sub(self.guaranteed(index, None)),
        }
    }

    /// What a part of that class may get of a pool's memory now: nothing while processes of no part have the rest.
    pub(super) fn left_of_pool(
        &self,
        pool: TenantId,
        index: usize,
        except: Option<TenantId>,
        class: Priority,
    ) -> Bytes {
        let cap = self.pool_memory(Some(pool), index).unwrap_or_default();
        if self.tenants[&pool].is_active() {
            return Bytes(0);
        }
        Bytes(cap.0.saturating_sub(self.held_of_pool(pool, index, except, class).0))
    }

    /// A process of no part needs something that the parts leave.
    pub(super) fn leaves_something(&self, pool: TenantId, devices: &[usize]) -> Result<(), String> {
        let name = &self.tenants[&pool].name;
        for index in devices {
            let Some(cap) = self.pool_memory(Some(pool), *index) else { continue };
            let parts = self.memory_of_parts(pool, *index, None);
            if parts >= cap {
                let cap = cap.human();
                return Err(format!(
                    "all {cap} of tenant {name} on device {index} are granted to jobs with quotas of their own"
                ));
            }
        }
        Ok(())
    }

    /// Whether a part could ever have that memory of its pool, which has `cap`.
    pub(super) fn pool_could_give(
        &self,
        pool: TenantId,
        index: usize,
        quota: &Quota,
        cap: Bytes,
    ) -> Result<(), NoRoom> {
        let (name, has) = (&self.tenants[&pool].name, cap.human());
        match quota.memory_cap {
            None => Err(NoRoom::Never(format!(
                "a job of tenant {name} needs a part of the {has} that it has on device {index}; give --memory"
            ))),
            Some(asked) if asked.0 > cap.0 + self.could_borrow(pool, index).0 => {
                let (asked, borrows) = (asked.human(), self.tenants[&pool].borrows);
                let all = if borrows { ", all that could be borrowed included" } else { "" };
                Err(NoRoom::Never(format!(
                    "{asked} on device {index} can never fit: tenant {name} has {has} there{all}"
                )))
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether it can have it now.
    pub(super) fn pool_gives(
        &self,
        pool: TenantId,
        index: usize,
        quota: &Quota,
        except: Option<TenantId>,
    ) -> Result<(), NoRoom> {
        let asked = quota.memory_cap.unwrap_or_default();
        let left = self.left_of_pool(pool, index, except, quota.priority);
        let own = asked.min(left);
        let more = own.0.saturating_sub(except.map_or(0, |id| self.own_part(id, index).0));
        if let Some(reason) = self.is_lent_away(Bytes(more), index, None) {
            return Err(NoRoom::NotNow(reason));
        }
        let is_closed = self.tenants[&pool].is_active();
        if asked <= left || !is_closed && asked.0 - own.0 <= self.to_borrow(pool, index, except).0 {
            return Ok(());
        }
        let (name, asked) = (&self.tenants[&pool].name, asked.human());
        let cap = self.pool_memory(Some(pool), index).unwrap_or_default();
        if self.tenants[&pool].is_active() {
            return Err(NoRoom::NotNow(format!(
                "{asked} on device {index} do not fit: processes of tenant {name} without a quota of their own have what is left of its {}",
                cap.human()
            )));
        }
        let used = self.memory_of_parts(pool, index, except);
        let jobs = self.parts(pool).filter(|(id, _)| Some(*id) != except).count();
        Err(NoRoom::NotNow(format!(
            "{asked} on device {index} do not fit: tenant {name} has {} there, {} granted to {jobs} of its jobs, {} left{}",
            cap.human(),
            used.human(),
            Bytes(cap.0.saturating_sub(used.0)).human(),
            if self.tenants[&pool].borrows {
                format!(" and {} to borrow", self.to_borrow(pool, index, except).human())
            } else {
                String::new()
            }
        )))
    }

    /// Whether a guarantee fits in that of the pool, which is `all`.
    pub(super) fn pool_guarantees(
        &self,
        pool: TenantId,
        index: usize,
        asked: Percent,
        all: Percent,
        except: Option<TenantId>,
    ) -> Result<(), NoRoom> {
        let name = &self.tenants[&pool].name;
        if asked > all {
            return Err(NoRoom::Never(format!(
                "a guarantee of {asked} on device {index} can never fit: tenant {name} has {all} there"
            )));
        }
        let promised = self.guarantee_of_parts(pool, index, except);
        if promised + asked.hundredths() <= all.hundredths() {
            return Ok(());
        }
        let promised = f64::from(promised) / 100.0;
        Err(NoRoom::NotNow(format!(
            "a guarantee of {asked} on device {index} does not fit: tenant {name} has {all} there, {promised}% promised to its jobs"
        )))
    }

    /// The quota that one of the pool gets which asks for `quota`.
    ///
    /// # Errors
    /// When the pool can't have such parts.
    pub(super) fn as_part(
        &self,
        pool: TenantId,
        index: usize,
        quota: Quota,
        asks_class: bool,
    ) -> Result<Quota, NoRoom> {
        let name = &self.tenants[&pool].name;
        let Some(all) = self.pool_grant(Some(pool), index) else {
            return Err(NoRoom::Never(format!("tenant {name} may not use device {index}")));
        };
        if asks_class && quota.priority > all.priority {
            return Err(NoRoom::Never(format!(
                "priority {}: tenant {name} is of class {}",
                quota.priority, all.priority
            )));
        }
        if quota.dynamic && !all.dynamic {
            return Err(NoRoom::Never(format!(
                "--oversubscribe: tenant {name} has memory that stays on device {index}"
            )));
        }
        let priority = if asks_class { quota.priority } else { all.priority };
        Ok(Quota { priority, dynamic: all.dynamic, ..quota })
    }

    /// What holds for a tenant on a device: its grant, what its pool or its parts leave of it, or less where one of its
    /// members asked for less.
    pub fn effective(&self, tenant: TenantId, device: usize) -> Option<Quota> {
        let it = self.tenants.get(&tenant)?;
        let mut quota = it.effective(device)?;
        quota.crowded = self.devices[device].is_oversubscribed();
        let parts = self.memory_of_parts(tenant, device, None);
        // Nor what it has to give back, or what others have to give it back.
        let gives_back = it.grants[device].filter(|_| it.gives_back()).map_or(0, |grant| grant.borrowed.0);
        let is_owed = if it.is_standing() && it.is_active() { self.owed_now(device).0 } else { 0 };
        let less = parts.0.saturating_add(gives_back).saturating_add(is_owed);
        quota.memory_cap = quota.memory_cap.map(|cap| Bytes(cap.0.saturating_sub(less)));
        let pool = it.pool.or_else(|| self.has_parts(tenant).then_some(tenant));
        if let (Some(pool), Some(all)) = (pool, self.pool_grant(pool, device)) {
            quota.priority = quota.priority.min(all.priority);
            self.divide(pool, tenant, device, &all, &mut quota);
        }
        Some(quota)
    }

    /// The weights at which a tenant's pool and the tenant share device time; none where it is in no pool.
    pub fn pool_of(&self, tenant: TenantId, device: usize) -> Option<(Pool, u32)> {
        let it = self.tenants.get(&tenant)?;
        let pool = it.pool.or_else(|| self.has_parts(tenant).then_some(tenant))?;
        let all = self.pool_grant(Some(pool), device)?;
        let own = if pool == tenant { WEIGHT_DEFAULT } else { it.grants[device]?.quota.weight };
        Some((Pool { id: pool.number(), weight: all.weight }, own))
    }

    /// A tenant's part of its pool's cap, where there is one: what it may have of the others' parts while they don't use them.
    pub fn part_of_cap(&self, tenant: TenantId, device: usize) -> Option<Part> {
        let it = self.tenants.get(&tenant)?;
        let (_, weight) = self.pool_of(tenant, device)?;
        let all = self.pool_grant(Some(it.pool.unwrap_or(tenant)), device)?.compute_cap.filter(Percent::binds)?;
        let most = it.effective(device)?.compute_cap.map_or(all, |own| own.min(all));
        let own = self.effective(tenant, device)?.compute_cap?;
        Some(Part { weight, own: own.hundredths(), most: most.hundredths(), all: all.hundredths() })
    }

    /// Gives one of a pool its part of the pool's cap and guarantee.
    fn divide(&self, pool: TenantId, tenant: TenantId, device: usize, all: &Quota, quota: &mut Quota) {
        let own = self.tenants[&pool].is_active().then_some((pool, WEIGHT_DEFAULT, None, None));
        let parts = self.parts(pool).filter_map(|(id, part)| {
            let Grant { quota, .. } = part.grants[device]?;
            let hundredths = |percent: Option<Percent>| percent.map(Percent::hundredths);
            Some((id, quota.weight, hundredths(quota.compute_cap), hundredths(quota.guarantee)))
        });
        let all_of_it: Vec<_> = own.into_iter().chain(parts).collect();
        let Some(at) = all_of_it.iter().position(|(id, ..)| *id == tenant) else { return };
        if let Some(cap) = all.compute_cap.filter(Percent::binds) {
            let claims: Vec<(u32, Option<u32>)> = all_of_it.iter().map(|(_, weight, cap, _)| (*weight, *cap)).collect();
            let part = shares(cap.hundredths(), &claims)[at];
            quota.compute_cap = super::least(quota.compute_cap, Percent::part(part.max(1)));
        }
        if let (Some(guarantee), None) = (all.guarantee, quota.guarantee.filter(|_| pool != tenant)) {
            let promised: u32 = all_of_it.iter().filter_map(|(.., guarantee)| *guarantee).sum();
            let claims = all_of_it.iter().map(|(_, weight, cap, guarantee)| {
                let has_own = guarantee.is_some();
                (if has_own { 0 } else { *weight }, *cap)
            });
            let left = guarantee.hundredths().saturating_sub(promised);
            let part = shares(left, &claims.collect::<Vec<_>>())[at];
            quota.guarantee = Percent::part(part);
        }
        quota.guarantee = match (quota.guarantee, quota.compute_cap) {
            (Some(guarantee), Some(cap)) => Some(guarantee.min(cap)),
            (guarantee, _) => guarantee,
        };
    }

    /// Somebody of the tenant's pool came or went, or has something else: what the others have of it changes.
    pub(super) fn publish_pool(&self, id: TenantId, actions: &mut Vec<Action>) {
        let pool = self.tenants.get(&id).and_then(|tenant| tenant.pool).unwrap_or(id);
        // Also where the last part has gone.
        if self.tenants.get(&pool).is_some_and(Tenant::is_standing) || self.has_parts(pool) {
            actions.push(Action::Publish(pool));
            actions.extend(self.parts(pool).map(|(id, _)| Action::Publish(id)));
        }
    }

    /// Whether the parts of a pool, if it has any, fit in what it is to have on a device.
    pub(super) fn parts_fit(&self, id: TenantId, index: usize, quota: &Quota) -> Result<(), String> {
        let (granted, name) = (self.memory_of_parts(id, index, None), &self.tenants[&id].name);
        if let Some(cap) = quota.memory_cap.filter(|cap| *cap < granted) {
            let (cap, granted) = (cap.human(), granted.human());
            return Err(format!("tenant {name}: {granted} are granted to its jobs on device {index}, of {cap}"));
        }
        let promised = self.guarantee_of_parts(id, index, None);
        if let Some(all) = quota.guarantee.filter(|all| all.hundredths() < promised) {
            let promised = f64::from(promised) / 100.0;
            return Err(format!("tenant {name}: {promised}% are promised to its jobs on device {index}, of {all}"));
        }
        Ok(())
    }

    /// Says which pool its parts no longer fit in, when there is one.
    pub(super) fn check_pools(&self) -> Result<(), String> {
        let pools = self.tenants.iter().filter(|(id, _)| self.has_parts(**id));
        for (id, tenant) in pools {
            for (index, quota) in tenant.granted() {
                self.parts_fit(*id, index, &quota)?;
            }
        }
        Ok(())
    }
}
