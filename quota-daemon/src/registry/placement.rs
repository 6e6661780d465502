//! Which devices a job gets, of those that it may have.

use super::admission::NoRoom;
use super::job::Job;
use super::pools::Whose;
use super::queue::{Plan, Wants};
use super::{Registry, TENANTS_MAX, TenantId};
use crate::document::Placement;
use core::cmp::Reverse;
use quota_core::{Percent, Priority};
use quota_wire::page::Quota;

/// What one device goes by; the least is taken first.
type Rank = (Reverse<bool>, u64, u64, u64, usize);

impl Registry {
    /// Where the job has its place now, without anybody `ahead` of it starting later for that.
    pub(super) fn plan<'a>(&self, job: &Job, ahead: impl Iterator<Item = &'a Job> + Clone) -> Result<Plan, NoRoom> {
        let whose = self.whose_is(job)?;
        let tenant = whose.tenant;
        let wants = self.wants_of_job(job, whose)?;
        let on = |index: &usize| wants.iter().filter(|(wanted, _)| wanted == index).copied().collect::<Wants>();
        let Some(count) = job.count else {
            self.has_room(&self.needs(tenant, &job.devices, &wants), whose, &job.devices, job)?;
            if let Some(behind) =
                job.devices.iter().find_map(|index| self.behind(*index, whose, &wants, &job.allowed, ahead.clone()))
            {
                return Err(behind);
            }
            return Ok(Plan { whose, devices: job.devices.clone(), wants });
        };
        let (mut fit, mut later, mut never) = (Vec::new(), Vec::new(), Vec::new());
        for index in &job.devices {
            let wants = on(index);
            let room = self.has_room(&self.needs(tenant, &[*index], &wants), whose, &[*index], job);
            match room.err().or_else(|| self.behind(*index, whose, &wants, &job.allowed, ahead.clone())) {
                None => fit.push(*index),
                Some(NoRoom::Never(reason)) => never.push(reason),
                Some(no_room) => later.push(no_room),
            }
        }
        if fit.len() + later.len() < count {
            let (all, reason) = (job.devices.len(), never.into_iter().next().unwrap_or_default());
            return Err(NoRoom::Never(format!("{count} of {all} devices can never be had: {reason}")));
        }
        if fit.len() < count
            && let Some(reason) = later.into_iter().next()
        {
            return Err(reason);
        }
        let class = self.class_of(job);
        fit.sort_by_key(|index| self.rank(*index, tenant, class, on(index).first().map(|(_, quota)| quota)));
        fit.truncate(count);
        fit.sort_unstable();
        let wants = fit.iter().flat_map(on).collect();
        Ok(Plan { whose, devices: fit, wants })
    }

    fn has_room(&self, needs: &[(usize, Quota)], whose: Whose, devices: &[usize], job: &Job) -> Result<(), NoRoom> {
        let fits = self.fits(needs, whose, true);
        // What can never fit is said first, and then what no room would help.
        if !matches!(fits, Err(NoRoom::Never(_))) {
            self.takes_anybody(devices)?;
        }
        fits?;
        let left = whose.tenant.map_or(Ok(()), |id| self.leaves_something(id, devices));
        left.map_err(NoRoom::NotNow)?;
        self.is_apart(devices, whose, &job.allowed)
    }

    /// Whose the job is.
    pub(super) fn whose_is(&self, job: &Job) -> Result<Whose, NoRoom> {
        let whose = self.whose(job.tenant.as_deref(), job.wish.memory.is_some());
        if whose.tenant.is_none() && self.tenants.len() >= TENANTS_MAX {
            return Err(NoRoom::NotNow(format!("there are {TENANTS_MAX} tenants already")));
        }
        if let Some(id) = whose.tenant.or(whose.pool) {
            self.tenants[&id].check_user(job.uid, &job.cgroup, job.secret.as_ref()).map_err(NoRoom::Never)?;
        }
        Ok(whose)
    }

    fn rank(&self, index: usize, tenant: Option<TenantId>, class: Priority, quota: Option<&Quota>) -> Rank {
        let has = tenant.is_some_and(|id| self.tenants[&id].grants[index].is_some());
        let asked = quota.and_then(|quota| quota.memory_cap).map_or(0, |cap| cap.0);
        let left = self.devices[index].capacity().0.saturating_sub(self.granted(index, None).0 + asked);
        let jobs = self.jobs_on(index, None) as u64;
        let (first, second, third) = match self.admission.placement {
            Placement::BestFit => (left, jobs, 0),
            Placement::Spread => (jobs, u64::MAX - left, 0),
            Placement::LeastInterference => {
                (self.wanted_by(index, class), self.wanted_by(index, Priority::Batch), left)
            }
        };
        (Reverse(has), first, second, third, index)
    }

    /// How much of a device's time those who are served no later than `class` may want, in hundredths of a percent.
    fn wanted_by(&self, index: usize, class: Priority) -> u64 {
        let active = self.tenants.iter().filter(|(_, tenant)| tenant.is_active());
        let quotas = active.filter_map(|(id, _)| self.effective(*id, index)).filter(|quota| quota.priority >= class);
        quotas.map(|quota| u64::from(quota.compute_cap.unwrap_or(Percent::ALL).hundredths())).sum()
    }
}
