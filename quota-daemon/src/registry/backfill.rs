//! What may be given to those further back in the queue without anybody before them starting later for it.
//!
//! How long jobs run, nobody knows; so what is given must delay nobody in whatever order the running ones end. One that
//! misses `m` bytes starts as soon as those that have ended had `m` together. What may be given beside it is the least
//! that any set of them with at least `m` has beyond `m`: with more, the one that ends exactly that set would wait on.

use super::admission::{NoRoom, firm};
use super::isolation::Allowed;
use super::job::Job;
use super::pools::Whose;
use super::{Registry, Tenant, TenantId};
use quota_core::Bytes;
use quota_wire::page::Quota;

/// Steps in which sums of memory are looked through, at most: 2 TiB by the MiB. Sizes that need more leave nothing.
const STEPS_MAX: u64 = 1 << 21;
/// Waiting jobs on a device that one may pass, and quotas there that may end, at most: with more, it waits.
const AHEAD_MAX: usize = 16;
const ENDING_MAX: usize = 256;

impl Registry {
    /// Why a job that wants `wants` may not have its place on a device before those `ahead` of it, in their order.
    pub(super) fn behind<'a>(
        &self,
        index: usize,
        whose: Whose,
        wants: &[(usize, Quota)],
        allowed: &Allowed,
        ahead: impl Iterator<Item = &'a Job>,
    ) -> Option<NoRoom> {
        let party = whose.pool.or(whose.tenant);
        // Whoever waits for an owner to leave its device has no use for what is free there meanwhile; nor has whom only such
        // a one keeps waiting.
        let (mut strangers, mut before) = (Vec::new(), Vec::new());
        for job in ahead.filter(|job| job.devices.contains(&index)) {
            if self.waits_for_owner(index, party, job) {
                strangers.push(job);
            } else if !self.waits_behind(index, job, &strangers) {
                before.push(job);
            }
        }
        (!self.delays_nobody(index, whose, wants, allowed, &before)).then_some(NoRoom::Behind)
    }

    /// Whether a job waits for one of those alone, who are before it.
    fn waits_behind(&self, index: usize, job: &Job, ahead: &[&Job]) -> bool {
        if ahead.is_empty() {
            return false;
        }
        let asked = self.whose_is(job).and_then(|whose| Ok((whose, self.wants_of_job(job, whose)?)));
        let Ok((whose, wants)) = asked else { return false };
        let party = whose.pool.or(whose.tenant);
        let before: Vec<&Job> = ahead.iter().copied().filter(|job| !self.waits_for_owner(index, party, job)).collect();
        !self.delays_nobody(index, whose, &wants, &job.allowed, &before)
    }

    /// Whether none of those `before` it starts later for what a job gets on a device.
    fn delays_nobody(
        &self,
        index: usize,
        whose: Whose,
        wants: &[(usize, Quota)],
        allowed: &Allowed,
        before: &[&Job],
    ) -> bool {
        // One of a tenant that runs already takes no further place among the jobs.
        let is_new = whose.tenant.is_none_or(|id| !self.tenants[&id].is_active());
        let wanted = wants.iter().find(|(device, _)| *device == index).map(|(_, quota)| quota);
        before.is_empty()
            || before.len() <= AHEAD_MAX
                && !self.keeps_waiting(index, whose.pool.or(whose.tenant), allowed, before)
                && (!is_new || self.leaves_a_place(index, before.len()))
                && wanted.is_none_or(|quota| self.leaves_room(index, quota, whose.pool, before))
    }

    /// A place among the jobs that somebody before it may need is not given away.
    fn leaves_a_place(&self, index: usize, before: usize) -> bool {
        let jobs = self.jobs_on(index, None) + before + 1;
        self.devices[index].jobs_max.is_none_or(|most| jobs <= most as usize)
    }

    fn leaves_room(&self, index: usize, quota: &Quota, pool: Option<TenantId>, before: &[&Job]) -> bool {
        // What is in a pool and what is on the device are not taken from each other.
        let room = |pool: Option<TenantId>| pool.filter(|_| self.pool_memory(pool, index).is_some());
        let source = |pool: Option<TenantId>| pool.filter(|_| self.pool_guarantee(pool, index).is_some());
        let (mut wanted, mut promises) = (Vec::new(), Vec::new());
        for job in before {
            let asked = self.whose_is(job).and_then(|whose| Ok((whose.pool, self.wants_of_job(job, whose)?)));
            let Ok((its, wants)) = asked else { return false };
            for (_, wants) in wants.into_iter().filter(|(device, _)| *device == index) {
                if room(its) == room(pool) {
                    wanted.push(wants);
                }
                if source(its) == source(pool) {
                    promises.push(guaranteed(&wants));
                }
            }
        }
        let ending = self.tenants.values().filter(|it| !it.is_standing() && source(it.pool) == source(pool));
        let ending: Vec<u64> = ending.filter_map(|tenant| Some(guaranteed(&tenant.grants[index]?.quota))).collect();
        let left = u64::from(self.guarantees_left(source(pool), index));
        if quota.guarantee.is_some() && guaranteed(quota) > spare(left, &promises, &ending) {
            return false;
        }
        if let Some(pool) = room(pool) {
            let needs: Vec<u64> = wanted.iter().map(|quota| quota.memory_cap.map_or(0, |cap| cap.0)).collect();
            let parts = self.parts(pool).filter_map(|(_, part)| part.may_free(index));
            let left = self.left_of_pool(pool, index, None, quota.priority).0;
            return quota.memory_cap.unwrap_or_default().0 <= spare(left, &needs, &parts.collect::<Vec<_>>());
        }
        let device = &self.devices[index];
        let leaves = |most: Bytes, granted: Bytes, part: fn(&Quota) -> Option<Bytes>| {
            let part_of = |quota: &Quota| part(quota).map_or(0, |part| part.0);
            let needs: Vec<u64> = wanted.iter().map(part_of).collect();
            let ending = self.tenants.values().filter(|it| !it.is_standing() && room(it.pool).is_none());
            let frees = |tenant: &Tenant| Some(part(&tenant.grants[index]?.quota)?.0.min(tenant.may_free(index)?));
            let running: Vec<u64> = ending.filter_map(frees).collect();
            part_of(quota) <= spare(most.0.saturating_sub(granted.0), &needs, &running)
        };
        leaves(device.capacity(), self.firm(index, None), firm)
            && (!device.is_oversubscribed()
                || leaves(device.quotas_max(), self.granted(index, None), |quota| quota.memory_cap))
    }
}

fn guaranteed(quota: &Quota) -> u64 {
    quota.guarantee.map_or(0, |guarantee| guarantee.hundredths().into())
}

/// What may be given away now, of `free`, so that those who need `needs`, in this order, start no later, whichever
/// of the `running` end, and when.
fn spare(free: u64, needs: &[u64], running: &[u64]) -> u64 {
    if running.len() > ENDING_MAX {
        return 0;
    }
    let Some(mut ends) = Sums::of(running, needs) else { return 0 };
    let (mut wanted, mut spare) = (0u64, free);
    for need in needs {
        wanted = wanted.saturating_add(*need);
        let beyond = match wanted.checked_sub(free) {
            None | Some(0) => free - wanted,
            // Where all that may end is too little, it waits for something else, of which nothing is known.
            Some(missing) => ends.least_from(missing).map_or(0, |least| least - missing),
        };
        spare = spare.min(beyond);
        // By the time the next one starts, this one may have ended too.
        ends.add(*need);
    }
    spare
}

/// All that any of some values make together.
struct Sums {
    step: u64,
    /// Bit n: some of them are n steps.
    reached: Vec<u64>,
}

impl Sums {
    /// Those of `values`, with room for `more`; none where there would be too many to look through.
    fn of(values: &[u64], more: &[u64]) -> Option<Self> {
        let all = || values.iter().chain(more).copied();
        let step = all().fold(0, greatest_common).max(1);
        let steps = all().try_fold(0u64, u64::checked_add)? / step;
        if steps > STEPS_MAX {
            return None;
        }
        let mut sums = Self { step, reached: vec![0; (steps / 64 + 1) as usize] };
        sums.reached[0] = 1;
        values.iter().for_each(|value| sums.add(*value));
        Some(sums)
    }

    /// One more value.
    fn add(&mut self, value: u64) {
        let steps = (value / self.step) as usize;
        let (words, bits) = (steps / 64, steps % 64);
        for at in (words..self.reached.len()).rev() {
            let low = self.reached[at - words] << bits;
            let high = if bits > 0 && at > words { self.reached[at - words - 1] >> (64 - bits) } else { 0 };
            self.reached[at] |= low | high;
        }
    }

    /// The least that is at least `least`.
    fn least_from(&self, least: u64) -> Option<u64> {
        let is_reached = |at: &u64| self.reached[(*at / 64) as usize] >> (at % 64) & 1 == 1;
        let steps = self.reached.len() as u64 * 64;
        (least.div_ceil(self.step)..steps).find(is_reached).map(|at| at * self.step)
    }
}

fn greatest_common(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spare_is_what_the_next_to_end_leaves_over() {
        assert_eq!(spare(20, &[70], &[60]), 10, "60 and 20, less 70");
        assert_eq!(spare(10, &[40], &[40, 30]), 0, "whoever of 30 ends leaves exactly 40");
        assert_eq!(spare(10, &[40], &[40]), 10, "all that is free");
        assert_eq!(spare(50, &[40], &[]), 10, "it has room; it waits for something else");
        assert_eq!(spare(10, &[40], &[20]), 0, "nobody knows what it waits for");
        assert_eq!(spare(40, &[50, 20], &[40]), 10, "the second is delayed as well");
        assert_eq!(spare(40, &[50, 60], &[40, 40]), 10);
        assert_eq!(spare(20, &[35, 75], &[60, 60]), 5, "the second starts when one of 60 and the first have ended");
        assert_eq!(spare(10, &[79], &[40, 30, 1]), 1, "sums of more than 64 steps");
    }

    #[test]
    fn what_would_take_too_long_to_find_out_is_nothing() {
        assert_eq!(spare(1 << 30, &[(2 << 30) + 1], &[(3 << 30) + 1, 5 << 30]), 0, "no common step");
        assert_eq!(spare(10, &[11], &[20; ENDING_MAX]), 10);
        assert_eq!(spare(10, &[11], &[20; ENDING_MAX + 1]), 0);
    }

    /// Starts of the waiting, each in its place of the order of ends; jobs behind the first don't pass it here.
    fn starts(free: u64, needs: &[u64], ends: &[u64]) -> Vec<usize> {
        let (mut free, mut waiting, mut starts) = (free, needs.iter().peekable(), Vec::new());
        for (at, end) in core::iter::once(&0).chain(ends).enumerate() {
            free += end;
            while let Some(need) = waiting.next_if(|need| **need <= free) {
                free -= need;
                starts.push(at);
            }
        }
        starts.resize(needs.len(), usize::MAX);
        starts
    }

    fn orders(values: &[u64]) -> Vec<Vec<u64>> {
        if values.is_empty() {
            return vec![Vec::new()];
        }
        let mut all = Vec::new();
        for at in 0..values.len() {
            let mut rest = values.to_vec();
            let first = rest.remove(at);
            all.extend(orders(&rest).into_iter().map(|tail| [vec![first], tail].concat()));
        }
        all
    }

    /// Against all orders in which up to five can end: what is spare delays nobody, and one more would delay the first.
    #[test]
    fn what_is_spare_delays_nobody_and_more_would() {
        let mut seed = 1u64;
        let mut draw = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % limit
        };
        for round in 0..4000 {
            let running: Vec<u64> = (0..1 + draw(5)).map(|_| 1 + draw(9)).collect();
            let free = draw(8);
            let needs: Vec<u64> = (0..1 + draw(2)).map(|_| free + 1 + draw(9)).collect();
            let spare = spare(free, &needs, &running);
            assert!(spare <= free);
            let case = format!("round {round}: {free} free, {needs:?} wait for {running:?}: {spare}");
            let is_later = |given: u64| {
                let later = |ends: &Vec<u64>| {
                    let (with, without) = (starts(free - given, &needs, ends), starts(free, &needs, ends));
                    with.iter().zip(without).any(|(with, without)| *with > without)
                };
                orders(&running).iter().any(later)
            };
            assert!(!is_later(spare), "{case}");
            let can_start = running.iter().sum::<u64>() + free >= needs[0];
            if needs.len() == 1 && can_start && spare < free {
                assert!(is_later(spare + 1), "{case}: one more does no harm");
            }
        }
    }
}
