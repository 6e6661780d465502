//! What jobs may use beyond their own caps: what others of their pool leave of a cap that they have together, and, of a tenant
//! that borrows, all that nobody of another tenant wants. Looked at ten times a second while one of them has work; a loan ends
//! by itself soon after, also where the daemon is gone or hangs.

use super::{Device, Seat};
use quota_core::Percent;
use quota_core::compute::{Demand, Part, Tenant, parts};
use std::collections::BTreeMap;

/// Time between two looks at what the jobs use.
const PERIOD_NS: u64 = 100_000_000;
/// How long a loan holds: a look may come late.
const LASTS_NS: u64 = 3 * PERIOD_NS;

/// A loan to be shown: the cap that holds until then, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Loan {
    pub(crate) tenant: Tenant,
    pub(crate) cap: Option<Percent>,
    pub(crate) until_ns: u64,
}

/// What a seat borrows, and what was seen of its use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    demand: Demand,
    loan: Option<Percent>,
}

impl Device {
    /// Looks at what jobs use of their caps, when it is time or something has changed, and lends what they don't.
    pub(in crate::arbiter) fn lend(&mut self, now_ns: u64, loans: &mut Vec<Loan>) {
        let elapsed_ns = now_ns.saturating_sub(self.lent_at_ns);
        let is_time = elapsed_ns >= PERIOD_NS;
        if !core::mem::take(&mut self.loans_changed) && !is_time {
            return;
        }
        if is_time {
            self.lent_at_ns = now_ns;
            self.seats.values_mut().for_each(|seat| seat.note_use(elapsed_ns));
        }
        let parts = self.lend_parts();
        for (tenant, seat) in &mut self.seats {
            let is_lent_all = seat.terms.soft && !seat.is_held;
            let cap = if is_lent_all { Some(Percent::ALL) } else { parts.get(tenant).copied() };
            let before = core::mem::replace(&mut seat.uses.loan, cap);
            if before.or(cap).is_some() {
                loans.push(Loan { tenant: *tenant, cap, until_ns: now_ns.saturating_add(LASTS_NS) });
            }
        }
    }

    /// What jobs may have with what others of their pools don't use of their parts; only those for whom that is more.
    fn lend_parts(&self) -> BTreeMap<Tenant, Percent> {
        let mut pools: BTreeMap<u64, Vec<(Tenant, Part, Demand)>> = BTreeMap::new();
        for (tenant, seat) in &self.seats {
            if let Some((part, pool)) = seat.terms.part.zip(seat.terms.share.pool) {
                pools.entry(pool.id).or_default().push((*tenant, part, seat.uses.demand));
            }
        }
        let mut more = BTreeMap::new();
        for jobs in pools.values() {
            let parts: Vec<_> = jobs.iter().map(|(_, part, demand)| (*part, *demand)).collect();
            let lent = jobs.iter().zip(parts::lend(&parts)).filter(|((_, part, _), may)| *may > part.own);
            more.extend(lent.filter_map(|((tenant, ..), may)| Some((*tenant, Percent::part(may)?))));
        }
        more
    }

    /// Has soft caps hold from the moment when somebody of another tenant wants the device, and no longer.
    pub(super) fn hold_soft_caps(&mut self) {
        let wants = |seat: &Seat| !seat.resting && !seat.terms.paused && seat.account.wants();
        let pool = |seat: &Seat| seat.terms.share.pool.map(|pool| pool.id);
        let wanting: Vec<(Tenant, Option<u64>)> =
            self.seats.iter().filter(|(_, seat)| wants(seat)).map(|(tenant, seat)| (*tenant, pool(seat))).collect();
        for (tenant, seat) in self.seats.iter_mut().filter(|(_, seat)| seat.terms.soft) {
            let own = pool(seat);
            let is_held = wanting.iter().any(|(other, pool)| other != tenant && (own.is_none() || *pool != own));
            self.loans_changed |= core::mem::replace(&mut seat.is_held, is_held) != is_held;
        }
    }

    /// When loans are to be looked at again.
    pub(super) fn loans_due(&self) -> Option<u64> {
        let may_more = |seat: &Seat| seat.terms.soft || seat.terms.part.is_some_and(|part| part.most > part.own);
        let wants_more = |seat: &Seat| seat.account.wants() && may_more(seat);
        let is_watched = self.seats.values().any(wants_more);
        is_watched.then(|| self.lent_at_ns.saturating_add(PERIOD_NS))
    }
}

impl Seat {
    fn note_use(&mut self, elapsed_ns: u64) {
        let (used_ns, waited) = self.account.take_use();
        let Some(part) = self.terms.part else { return };
        let used = u128::from(used_ns) * u128::from(Percent::ALL.hundredths()) / u128::from(elapsed_ns.max(1));
        let used = u32::try_from(used).unwrap_or(u32::MAX).min(Percent::ALL.hundredths());
        // Who is paused may wait as he likes.
        let may_work = !self.terms.paused;
        let is_silent = used_ns == 0 && self.account.wants() && may_work;
        self.uses.demand = self.uses.demand.after(&part, (!is_silent).then_some(used), waited && may_work);
    }
}
