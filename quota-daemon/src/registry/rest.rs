//! What of a device nobody has been promised: the *free rest*. It is lent as what owners leave idle is, and given back by the same
//! steps as soon as somebody needs it to be let in: a job that waits and would have room but for the loan asks for it by that, and
//! so does a process without `gpuquota run` that was turned away for it, for a while.
//!
//! What is lent of it is counted as free by nobody: whoever is let in on the device waits until it is back
//! ([`Registry::is_lent_away`]). Those that are interrupted have their room kept from it whole, so that they come back as if
//! nothing were lent; those for whom they make room may have that all the same.

use super::admission::firm;
use super::job::Job;
use super::pools::Whose;
use super::{Registry, TenantId};
use quota_core::{Bytes, Priority};
use quota_wire::page::Quota;

/// How long one that was turned away is believed to come again, beyond the grace of those who are to give back.
const TURNED_AWAY_MS: u64 = 10_000;
/// Those that are remembered.
const TURNED_AWAY_MAX: usize = 16;

/// A process that was refused for what is lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TurnedAway {
    pid: u32,
    device: usize,
    bytes: u64,
    until_ms: u64,
}

impl Registry {
    /// The free rest of a device beside what all but `except` hold against a quota of `class`.
    fn rest(&self, device: usize, except: Option<TenantId>, class: Priority) -> u64 {
        let it = &self.devices[device];
        let firm = it.capacity().0.saturating_sub(self.firm_to(device, except, class).0);
        firm.min(it.quotas_max().0.saturating_sub(self.granted_to(device, except, class).0))
    }

    /// What of it can be lent.
    pub(super) fn rest_to_lend(&self, device: usize) -> u64 {
        self.rest(device, None, Priority::Batch)
    }

    /// What of it there is for loans, and for whoever is let in, but for `except`.
    pub(super) fn rest_now(&self, device: usize, except: Option<TenantId>) -> u64 {
        self.rest(device, except, Priority::High)
    }

    /// What of a device is lent that nobody has been promised.
    pub(super) fn lent_of_rest(&self, device: usize) -> Bytes {
        Bytes(self.lent(device).0.saturating_sub(self.lendable_by_all(device, None)))
    }

    /// All that could ever be free of a device.
    pub(super) fn rest_ever(&self, device: usize) -> u64 {
        let standing = self.tenants.values().filter(|tenant| tenant.is_standing());
        let promised = standing.filter_map(|tenant| firm(&tenant.grants[device]?.quota)).map(|firm| firm.0).sum();
        self.devices[device].capacity().0.saturating_sub(promised)
    }

    /// What those want of it who would be let in but for what is lent; no more than there is.
    pub(super) fn wanted_of_rest(&self, device: usize) -> u64 {
        let jobs = self.waiting.iter().filter_map(|waiting| self.wants_of_rest(&waiting.job, device));
        let turned_away = self.turned_away.iter().filter(|it| it.device == device && it.until_ms > self.now_ms);
        let all = jobs.chain(turned_away.map(|it| it.bytes)).fold(0, u64::saturating_add);
        all.min(self.rest_now(device, None))
    }

    /// What a job wants of the rest of a device, where nothing else keeps it waiting.
    pub(super) fn wants_of_rest(&self, job: &Job, device: usize) -> Option<u64> {
        let whose = self.whose_is(job).ok().filter(|_| job.devices.contains(&device))?;
        let wants = self.wants_of_job(job, whose).ok()?;
        let needs = self.needs(whose.tenant, &job.devices, &wants);
        let fits = |at: &usize| {
            let on: Vec<(usize, Quota)> = needs.iter().filter(|(index, _)| index == at).copied().collect();
            !self.is_drained(*at)
                && self.fits_but_for_loans(&on, whose)
                && self.is_apart(&[*at], whose, &job.allowed).is_ok()
        };
        let count = job.count.unwrap_or(job.devices.len());
        let its: Vec<usize> = job.devices.iter().copied().filter(fits).take(count).collect();
        let is_of_rest = self.pool_memory(whose.pool, device).is_none();
        let wanted = wants.iter().find(|(index, _)| *index == device).and_then(|(_, quota)| firm(quota));
        wanted.filter(|_| is_of_rest && its.len() == count && its.contains(&device)).map(|wanted| wanted.0)
    }

    /// A process has been refused, perhaps for what is lent: then that is asked back, for when it comes again.
    pub(super) fn turn_away(&mut self, pid: u32, wants: &[(usize, Quota)], whose: Whose) {
        let now_ms = self.now_ms;
        self.turned_away.retain(|it| it.until_ms > now_ms && it.pid != pid);
        if !self.fits_but_for_loans(wants, whose) {
            return;
        }
        let until_ms = now_ms + self.interrupts.grace_ms + TURNED_AWAY_MS;
        for (device, quota) in wants {
            let is_of_rest = self.pool_memory(whose.pool, *device).is_none();
            let bytes = firm(quota).map_or(0, |firm| firm.0);
            if is_of_rest && self.lent(*device) > Bytes(0) && self.turned_away.len() < TURNED_AWAY_MAX {
                self.turned_away.push(TurnedAway { pid, device: *device, bytes, until_ms });
                self.stirred = true;
            }
        }
    }

    /// It is here.
    pub(super) fn let_in(&mut self, pid: u32) {
        self.turned_away.retain(|it| it.pid != pid);
    }
}
