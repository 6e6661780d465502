//! Who of those who wait is next: by the document's policy, so that nobody waits for ever.
//!
//! - `fifo`: who came first.
//! - `priority`: the higher class; a job rises by one class for each [aging time](crate::document::AdmissionRules::aging_ms) that it has waited.
//! - `fair`: whose party has the smallest dominant share (the largest of its parts of all memory and of all compute that are
//!   granted, by its weight), as in dominant resource fairness; one that has waited for an aging time goes before all that
//!   haven't, one that has waited for two before those, and so on.
//! - `priority-fair`: by class, then by share.
//!
//! Where that leaves two equal, who came first. A *party* is a tenant of the document, else a user: who runs many jobs under
//! many names gains nothing by it.

use super::job::Job;
use super::pools::Whose;
use super::queue::Waiting;
use super::{Registry, Tenant, TenantId, WEIGHT_DEFAULT};

use core::cmp::Reverse;
use quota_core::compute::scheduler::Policy;
use quota_core::{Percent, Priority};
use std::collections::BTreeMap;

/// Whose jobs are counted together when shares are compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Party {
    Tenant(TenantId),
    User(u32),
}

/// A share of one, in parts.
const WHOLE: u128 = 1_000_000_000;

/// What one goes by; the least is next.
type Rank = (Reverse<bool>, Reverse<u64>, u128, u64);

impl Registry {
    /// Sorts those who wait: who is next comes first.
    pub(super) fn put_in_order(&mut self) {
        let ranks = self.ranks();
        self.waiting.make_contiguous().sort_by_cached_key(|waiting| ranks.get(&waiting.arrival).copied());
    }

    /// When time alone changes the order.
    pub(super) fn next_rise_ms(&self) -> Option<u64> {
        let ages = |waiting: &Waiting| self.now_ms.saturating_sub(waiting.since_ms) / self.aging_ms() + 1;
        let rises = self.waiting.iter().map(|waiting| waiting.since_ms.saturating_add(ages(waiting) * self.aging_ms()));
        // In order of arrival, or alone, nobody rises.
        rises.min().filter(|_| self.rules.policy != Policy::Fifo && self.waiting.len() > 1)
    }

    /// The class of a job: what it asks for, else its tenant's.
    pub(super) fn class_of(&self, job: &Job) -> Priority {
        let of_tenant =
            |id: TenantId| self.tenants[&id].grants.iter().flatten().map(|grant| grant.quota.priority).max();
        let Whose { tenant, pool } = self.whose(job.tenant.as_deref(), job.wish.memory.is_some());
        job.wish.priority.or_else(|| of_tenant(tenant.or(pool)?)).unwrap_or_default()
    }

    fn aging_ms(&self) -> u64 {
        self.admission.aging_ms.max(1)
    }

    fn ranks(&self) -> BTreeMap<u64, Rank> {
        let policy = self.rules.policy;
        let shares =
            if matches!(policy, Policy::Fair | Policy::PriorityFair) { self.shares() } else { BTreeMap::new() };
        let makers = self.makers_of_room();
        let rank = |waiting: &Waiting| {
            let age = self.now_ms.saturating_sub(waiting.since_ms) / self.aging_ms();
            let class = self.class_of(&waiting.job) as u64;
            let level = match policy {
                Policy::Fifo => 0,
                Policy::Fair => age,
                Policy::Priority | Policy::PriorityFair => class + age,
            };
            let share = shares.get(&self.party_of(&waiting.job)).copied().unwrap_or_default();
            // What others make room for is for whom they make it.
            let has_makers = makers.contains(&waiting.connection);
            (waiting.arrival, (Reverse(has_makers), Reverse(level), share, waiting.arrival))
        };
        self.waiting.iter().map(rank).collect()
    }

    fn party_of(&self, job: &Job) -> Party {
        let Whose { tenant, pool } = self.whose(job.tenant.as_deref(), job.wish.memory.is_some());
        let standing = pool.or(tenant.filter(|id| self.tenants[id].is_standing()));
        standing.map_or(Party::User(job.uid), Party::Tenant)
    }

    /// The dominant share of each party that has something.
    fn shares(&self) -> BTreeMap<Party, u128> {
        let capacity: u64 = self.devices.iter().map(|device| device.capacity().0).sum();
        let usable = self.devices.iter().filter(|device| !device.is_divided).count();
        let time = usable as u64 * u64::from(Percent::ALL.hundredths());
        let mut held: BTreeMap<Party, (u64, u64, u32)> = BTreeMap::new();
        // What the document sets aside for a tenant that has no job is in nobody's use.
        for (id, tenant) in self.tenants.iter().filter(|(_, tenant)| tenant.is_active()) {
            let pool = tenant.pool.or(Some(*id).filter(|_| tenant.is_standing()));
            let party = pool.map_or(Party::User(tenant.owner), Party::Tenant);
            let weight = pool.map_or(WEIGHT_DEFAULT, |pool| self.tenants[&pool].weight());
            let sum = held.entry(party).or_insert((0, 0, weight));
            // Of a pool, processes of no part have what the parts leave.
            for quota in (0..self.devices.len()).filter_map(|device| self.effective(*id, device)) {
                sum.0 += quota.memory_cap.map_or(0, |cap| cap.0);
                sum.1 += u64::from(quota.guarantee.or(quota.compute_cap).map_or(0, Percent::hundredths));
            }
        }
        let part = |of: u64, all: u64| u128::from(of) * WHOLE / u128::from(all.max(1));
        let share = |(memory, compute, weight)| {
            u128::max(part(memory, capacity), part(compute, time)) * u128::from(WEIGHT_DEFAULT) / u128::from(weight)
        };
        held.into_iter().map(|(party, held): (_, (u64, u64, u32))| (party, share(held))).collect()
    }
}

#[cfg(test)]
impl Registry {
    /// The parties that have something, the smallest share first, by name.
    pub(super) fn shares_in_order(&self) -> Vec<String> {
        let mut shares: Vec<(Party, u128)> = self.shares().into_iter().collect();
        shares.sort_by_key(|(_, share)| *share);
        let name = |(party, _): (Party, u128)| match party {
            Party::Tenant(id) => self.tenants[&id].name.clone(),
            Party::User(uid) => format!("user {uid}"),
        };
        shares.into_iter().map(name).collect()
    }
}

impl Tenant {
    fn weight(&self) -> u32 {
        self.grants.iter().flatten().map(|grant| grant.quota.weight).max().unwrap_or(WEIGHT_DEFAULT).max(1)
    }
}
