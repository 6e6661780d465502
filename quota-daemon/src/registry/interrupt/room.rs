//! What is missing for a job, and what those of a lower class would yield.

use super::victims::{Amount, Candidate, VICTIMS_MAX, choose};
use super::{Interruption, Manner, Stage};
use crate::registry::admission::firm;
use crate::registry::job::Job;
use crate::registry::pools::Whose;
use crate::registry::rows::Usage;
use crate::registry::{ConnectionId, GUARANTEED_MAX, Registry, Tenant, TenantId};
use quota_core::{Bytes, Priority};
use quota_wire::page::Quota;
use std::collections::BTreeSet;

/// What is missing for a job.
struct Missing {
    class: Priority,
    /// Of which its tenant would be a part.
    pool: Option<TenantId>,
    /// The devices that it would have, and what is missing on each.
    devices: Vec<usize>,
    amounts: Vec<Amount>,
    /// Those from whom it is to be kept apart, who are there and can be made to leave.
    leaving: BTreeSet<TenantId>,
}

impl Registry {
    /// True when what `other` doesn't use may be counted on for a quota of `class`, of `claimant` where it is a tenant's that is
    /// there: it is lent to higher classes, and among the interrupted to those who come back before it.
    fn is_lent_to(&self, other: TenantId, class: Priority, claimant: Option<TenantId>) -> bool {
        let owner = &self.tenants[&other];
        if !owner.lends() {
            return false;
        }
        let waits = claimant.filter(|id| self.tenants.get(id).is_some_and(|tenant| tenant.interrupt.now.is_some()));
        let before = waits.is_some_and(|id| class == owner.class() && id < other);
        class > owner.class() || before
    }

    /// Memory that all tenants but `except` hold against a quota of `class` on a device.
    pub(in crate::registry) fn granted_to(&self, device: usize, except: Option<TenantId>, class: Priority) -> Bytes {
        self.held(device, (None, except), class, |quota| quota.memory_cap)
    }

    /// What of that can't be moved to the host.
    pub(in crate::registry) fn firm_to(&self, device: usize, except: Option<TenantId>, class: Priority) -> Bytes {
        self.held(device, (None, except), class, firm)
    }

    /// What the parts of a pool, but `except`, hold against a quota of `class` on a device.
    pub(in crate::registry) fn held_of_pool(
        &self,
        pool: TenantId,
        device: usize,
        except: Option<TenantId>,
        class: Priority,
    ) -> Bytes {
        self.held(device, (Some(pool), except), class, |quota| quota.memory_cap)
    }

    /// The same of a part of the quotas: of those that have it of the device, or of that pool.
    fn held(
        &self,
        device: usize,
        (pool, except): (Option<TenantId>, Option<TenantId>),
        class: Priority,
        part: fn(&Quota) -> Option<Bytes>,
    ) -> Bytes {
        let others =
            self.tenants.iter().filter(|(id, tenant)| Some(**id) != except && self.room_of(tenant, device) == pool);
        let held = others.filter_map(|(id, tenant)| {
            let grant = tenant.grants[device]?;
            // What others have lent is not its pool's.
            let borrowed = if pool.is_some() { grant.borrowed.0 } else { 0 };
            let cap = Bytes(part(&grant.quota)?.0.saturating_sub(borrowed));
            let keeps = tenant.keeps(device).filter(|_| self.is_lent_to(*id, class, except));
            Some(keeps.map_or(cap, |keeps| keeps.min(cap)).0)
        });
        Bytes(held.sum())
    }

    /// The pool of which a tenant has its memory on a device; none where it has it of the device.
    pub(in crate::registry) fn room_of(&self, tenant: &Tenant, device: usize) -> Option<TenantId> {
        tenant.pool.filter(|_| self.pool_memory(tenant.pool, device).is_some())
    }

    /// What all but `except` are guaranteed on a device, against a quota of `class`.
    pub(in crate::registry) fn guaranteed_to(&self, device: usize, except: Option<TenantId>, class: Priority) -> u32 {
        let others = self.tenants.iter().filter(|(id, _)| Some(**id) != except);
        others
            .filter(|(_, tenant)| self.pool_guarantee(tenant.pool, device).is_none())
            .filter(|(id, _)| !self.is_lent_to(**id, class, except))
            .map(|(_, tenant)| tenant.guaranteed(device))
            .sum()
    }

    /// Active tenants that take a place on a device from one of `class`.
    pub(in crate::registry) fn jobs_against(&self, device: usize, except: Option<TenantId>, class: Priority) -> usize {
        let others = self.tenants.iter().filter(|(id, _)| Some(**id) != except);
        let counts =
            |(id, tenant): &(&TenantId, &Tenant)| tenant.is_on(device) && !self.is_lent_to(**id, class, except);
        others.filter(counts).count()
    }

    /// What is missing for a job now; none for one that no interruption helps.
    fn missing(&self, job: &Job) -> Option<Missing> {
        if !self.waits_for_room(job) {
            return None;
        }
        let whose = self.whose_is(job).ok()?;
        let wants = self.wants_of_job(job, whose).ok()?;
        let needs = self.needs(whose.tenant, &job.devices, &wants);
        let class = needs.iter().map(|(_, quota)| quota.priority).max().unwrap_or_else(|| self.class_of(job));
        let of = |index: &usize| {
            let needed = needs.iter().find(|(device, _)| device == index);
            // Room is of no use where somebody stays from whom it is kept apart.
            let leaving = self.to_leave(*index, whose, &job.allowed)?;
            let all_leave = leaving.iter().all(|id| self.leaves_for(&self.tenants[id], class));
            let missing = needed.map(|(_, quota)| self.missing_on(*index, quota, whose, class));
            all_leave.then(|| (*index, missing.unwrap_or_default(), leaving))
        };
        let open = job.devices.iter().filter(|index| !self.is_drained(**index));
        let mut amounts: Vec<(usize, Amount, BTreeSet<TenantId>)> = open.filter_map(of).collect();
        let count = job.count.unwrap_or(job.devices.len());
        // Of devices that it may choose, those that the fewest leave, and on which the least is missing.
        amounts.sort_by_key(|(_, amount, leaving)| (leaving.len(), amount.memory, amount.guarantee, amount.places));
        amounts.truncate(count);
        let leaving: BTreeSet<TenantId> = amounts.iter().flat_map(|(.., leaving)| leaving).copied().collect();
        let (devices, amounts) = amounts.into_iter().map(|(device, amount, _)| (device, amount)).unzip();
        let missing = Missing { class, pool: whose.pool, devices, amounts, leaving };
        (missing.devices.len() == count && missing.leaving.len() <= VICTIMS_MAX).then_some(missing)
    }

    /// True for one that leaves its devices for a job of `class`: one that is paused, or of which the driver has the memory at
    /// the host, is there all the same.
    fn leaves_for(&self, tenant: &Tenant, class: Priority) -> bool {
        tenant.is_moved_aside_for(class) && self.manner_of(tenant) == Manner::Terminate
    }

    fn missing_on(&self, index: usize, quota: &Quota, whose: Whose, class: Priority) -> Amount {
        let Whose { tenant, pool } = whose;
        let device = &self.devices[index];
        let asked = quota.memory_cap.map_or(0, |cap| cap.0);
        let beyond =
            |asked: u64, held: Bytes, most: Bytes| asked.saturating_add(held.0).saturating_sub(most.0).min(asked);
        let memory = match (pool, self.pool_memory(pool, index)) {
            (Some(pool), Some(cap)) => beyond(asked, self.held_of_pool(pool, index, tenant, class), cap),
            _ => {
                let firm = firm(quota).unwrap_or_default().0;
                beyond(firm, self.firm_to(index, tenant, class), device.capacity()).max(beyond(
                    asked,
                    self.granted_to(index, tenant, class),
                    device.quotas_max(),
                ))
            }
        };
        let promised = quota.guarantee.map_or(0, |it| it.hundredths());
        let (all, guaranteed) = match self.pool_guarantee(pool, index) {
            Some(all) => (all.hundredths(), all.hundredths().saturating_sub(self.guarantees_left(pool, index))),
            None => (GUARANTEED_MAX, self.guaranteed_to(index, tenant, class)),
        };
        let running = self.jobs_against(index, tenant, class) as u32;
        Amount {
            memory,
            guarantee: (promised + guaranteed).saturating_sub(all).min(promised),
            places: device.jobs_max.map_or(0, |most| (running + 1).saturating_sub(most)),
        }
    }

    /// The class for which a job may interrupt others.
    pub(super) fn class_in_need(&self, job: &Job) -> Option<Priority> {
        self.missing(job).map(|missing| missing.class)
    }

    /// True for a job that might have room if others were interrupted; it may turn out that it hasn't.
    pub(in crate::registry) fn may_interrupt(&self, job: &Job) -> bool {
        let below = |class| self.tenants.values().any(|tenant| tenant.is_moved_aside_for(class));
        self.waits_for_borrowers(job)
            || self.interrupts.preemption && self.missing(job).is_some_and(|missing| below(missing.class))
    }

    /// False where there is nothing to look for: nobody is interrupted, and nobody can be.
    pub(super) fn somebody_may_be_interrupted(&self) -> bool {
        let may = |tenant: &Tenant| tenant.interrupt.now.is_some() || tenant.may_be_interrupted_for(Priority::High);
        self.tenants.values().any(may)
    }

    /// Whom to interrupt for a job.
    pub(super) fn victims(&self, job: &Job, usage: &dyn Usage) -> Option<Vec<TenantId>> {
        let Missing { class, pool, devices, mut amounts, leaving } = self.missing(job)?;
        let others = self.tenants.iter().filter(|(id, _)| !leaving.contains(id));
        let may = others.filter(|(_, tenant)| tenant.may_be_interrupted_for(class));
        // What one has of another pool is of no use.
        let yields = |id: TenantId, device: usize| {
            let (has, its) = (self.yields(id, device, usage), self.tenants[&id].pool);
            let same = |of: &dyn Fn(Option<TenantId>) -> bool| match (of(its), of(pool)) {
                (true, true) => its == pool,
                (one, other) => one == other,
            };
            let of_room = same(&|pool| self.pool_memory(pool, device).is_some());
            let of_time = same(&|pool| self.pool_guarantee(pool, device).is_some());
            Amount {
                memory: if of_room { has.memory } else { 0 },
                guarantee: if of_time { has.guarantee } else { 0 },
                places: has.places,
            }
        };
        let candidate = |(id, tenant): (&TenantId, &Tenant)| Candidate {
            tenant: *id,
            class: tenant.class(),
            yields: devices.iter().map(|device| yields(*id, *device)).collect(),
        };
        for (device, missing) in devices.iter().zip(&mut amounts) {
            leaving.iter().for_each(|id| *missing = missing.less(&yields(*id, *device)));
        }
        let chosen = match amounts.iter().all(Amount::is_nothing) {
            true if leaving.is_empty() => None,
            true => Some(Vec::new()),
            false => choose(&amounts, may.map(candidate).collect()),
        };
        chosen.map(|chosen| leaving.into_iter().chain(chosen).collect())
    }

    /// What a tenant would yield on a device. What one that is paused frees by itself isn't known before: all but what it can't.
    pub(super) fn yields(&self, id: TenantId, device: usize, usage: &dyn Usage) -> Amount {
        let tenant = &self.tenants[&id];
        let Some(Quota { memory_cap, guarantee, .. }) = tenant.grants[device].map(|grant| grant.quota) else {
            return Amount::default();
        };
        let cap = memory_cap.map_or(0, |cap| cap.0);
        let memory = match self.manner_of(tenant) {
            Manner::Terminate => cap,
            Manner::Checkpoint => cap,
            Manner::Pause if tenant.hears() => {
                let slots = tenant.members.values().map(|member| usage.overhead(id, member.slot, device).0);
                cap.saturating_sub(slots.fold(0, u64::saturating_add))
            }
            Manner::Pause => 0,
        };
        Amount { memory, guarantee: guarantee.map_or(0, |it| it.hundredths()), places: 1 }
    }

    /// What follows a notice to a tenant.
    pub(super) fn manner_of(&self, tenant: &Tenant) -> Manner {
        match tenant.interrupt.manner.unwrap_or(self.interrupts.manner) {
            Manner::Checkpoint if !tenant.can_be_parked() => Manner::Pause,
            manner => manner,
        }
    }

    /// For whom a job waits that has others make room, for people.
    pub(in crate::registry) fn making_room_in_words(&self, connection: ConnectionId) -> Option<String> {
        let of_it = |tenant: &&Tenant| tenant.interrupt.now.as_ref().is_some_and(|now| now.is_for(connection));
        let words = self.tenants.values().filter(of_it).filter_map(|tenant| {
            let now = tenant.interrupt.now.as_ref()?;
            let within = match now.stage {
                Stage::Noticed { .. } => format!("within {} s, then: {}", now.left_ms.div_ceil(1000), now.manner),
                Stage::Settled { .. } => return None,
                Stage::Ending { .. } => "it is ending".to_owned(),
                _ => "now".to_owned(),
            };
            Some(format!("tenant {} makes room ({within})", tenant.name))
        });
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

impl Tenant {
    /// Its class: the highest that it has anywhere.
    pub(in crate::registry) fn class(&self) -> Priority {
        self.grants.iter().flatten().map(|grant| grant.quota.priority).max().unwrap_or_default()
    }

    /// True for one that makes room for a job of `class`, or made it for somebody under an earlier daemon.
    fn is_moved_aside_for(&self, class: Priority) -> bool {
        let is_earlier = |now: &Interruption| matches!(now.cause, super::Cause::Earlier(_));
        self.may_be_interrupted_for(class)
            || (self.interrupt.now.as_ref().is_some_and(is_earlier) && self.class() < class)
    }

    fn may_be_interrupted_for(&self, class: Priority) -> bool {
        let interrupt = &self.interrupt;
        self.came_by_itself()
            && self.is_active()
            && self.class() < class
            && !interrupt.spared
            && interrupt.now.is_none()
    }
}

impl Interruption {
    /// True when that job wants it.
    pub(in crate::registry) fn is_for(&self, connection: ConnectionId) -> bool {
        self.cause == super::Cause::Job(connection)
    }
}
