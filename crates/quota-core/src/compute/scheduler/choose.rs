//! Who is to be served, and why: the accounts, and the order in which they are looked at.

use crate::Priority;

use super::account::{BUDGET_PERIOD_NS, BUDGET_RATE, FLOOR_RATE, PROMISED_MAX};
use super::{Member, Policy, Scheduler, Tenant};

/// Why a tenant has its turn, and so to which account what it uses goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// By its weight or its place in the row.
    Weight,
    /// It is behind its guarantee.
    Guarantee,
    /// It is of the high class, whose budget isn't spent.
    Budget,
    /// It is of batch, which has had less than the least.
    Floor,
}

/// Who may take the token from whom at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Level {
    /// Yields to all others.
    Low,
    /// Waits for the end of a turn.
    Middle,
    /// Takes the token from all others.
    Top,
}

/// Who is to be served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) tenant: Tenant,
    pub(super) level: Level,
    pub(super) kind: Kind,
}

impl Scheduler {
    /// Lets time pass; what falls due with it goes to those that were waiting for it.
    pub(super) fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        for tenant in &self.competing {
            if let Some(member) = self.members.get_mut(tenant) {
                member.guarantee.pass(self.now, true);
            }
        }
        self.budget.pass(self.now, self.budget_rate(), self.quantum_ns());
        if self.rules.policy == Policy::PriorityFair && self.tree.is_active(self.roots.batch) {
            self.floor.pass(self.now, FLOOR_RATE, u64::MAX);
        } else {
            self.floor.stop(self.now);
        }
    }

    /// Charges what a tenant has used to all that it was used from.
    pub(super) fn charge(&mut self, tenant: Tenant, used_ns: u64) {
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.tenant == tenant) {
            turn.used_ns = turn.used_ns.saturating_add(used_ns);
        }
        self.account(tenant, used_ns);
        let now = self.now;
        if let Some(member) = self.members.get_mut(&tenant)
            && let Some(limit) = member.limit
        {
            // What could be saved up was so when it began to be used: what flowed in meanwhile is not lost.
            member.empty_at = limit.charge(member.empty_at, used_ns, now.saturating_sub(used_ns));
        }
    }

    /// A tenant begins or ceases to compete, as what is known of it says.
    pub(super) fn sync(&mut self, tenant: Tenant) {
        let (now, quantum_ns) = (self.now, self.quantum_ns());
        let Some(member) = self.members.get_mut(&tenant) else { return };
        let competes = member.could_be_served();
        if member.competes == competes {
            return;
        }
        member.guarantee.pass(now, member.competes);
        member.competes = competes;
        member.guarantee.pass(now, competes);
        self.tree.set_competes(member.node, competes, now, quantum_ns);
        if competes {
            member.woke_at = now;
            self.competing.insert(tenant);
            if let Some(turn) = self.turn.as_mut().filter(|turn| turn.tenant != tenant) {
                turn.challenged = true;
            }
        } else {
            self.competing.remove(&tenant);
        }
    }

    /// Throttles those whose bucket is empty, and lets those go on whose bucket has filled.
    pub(super) fn apply_caps(&mut self) {
        let capped = |tenant: &&Tenant| self.members.get(tenant).is_some_and(|member| member.limit.is_some());
        let looked_at: Vec<Tenant> =
            self.competing.iter().filter(capped).chain(self.throttled.iter()).copied().collect();
        for tenant in looked_at {
            let word = self.word(tenant);
            let now = self.now;
            let Some(member) = self.members.get_mut(&tenant) else { continue };
            member.throttled = member.limit.is_some_and(|limit| {
                if member.throttled { now < limit.resumes_at(word) } else { !limit.has_credit(word, now) }
            });
            if member.throttled && member.wants {
                self.throttled.insert(tenant);
            } else {
                self.throttled.remove(&tenant);
            }
            self.sync(tenant);
        }
    }

    /// The word of a tenant's bucket if it has used the device as long as its turn has lasted.
    pub(super) fn word(&self, tenant: Tenant) -> u64 {
        let Some(member) = self.members.get(&tenant) else { return 0 };
        let Some(limit) = member.limit else { return 0 };
        match self.unmeasured_ns(tenant) {
            0 => member.empty_at,
            unmeasured_ns => limit.charge(member.empty_at, unmeasured_ns, self.now.saturating_sub(unmeasured_ns)),
        }
    }

    /// Decides as if the holder had used the device as long as its turn has lasted.
    pub(super) fn foresee<T>(&mut self, decide: impl FnOnce(&mut Self) -> T) -> T {
        let holder = self.turn.as_ref().map(|turn| turn.tenant);
        let before = holder.and_then(|tenant| {
            let member = self.members.get(&tenant)?;
            Some((tenant, self.unmeasured_ns(tenant), self.tree.save(member.node), member.guarantee))
        });
        let Some((tenant, unmeasured_ns, saved, guarantee)) = before else { return decide(self) };
        let (budget, floor) = (self.budget, self.floor);
        self.account(tenant, unmeasured_ns);
        let decision = decide(self);
        (self.budget, self.floor) = (budget, floor);
        self.tree.restore(saved);
        if let Some(member) = self.members.get_mut(&tenant) {
            member.guarantee = guarantee;
        }
        decision
    }

    /// Who is to be served next, or still.
    pub(super) fn choose(&mut self) -> Option<Choice> {
        match self.rules.policy {
            Policy::Fifo | Policy::Priority => {
                let rank = |tenant: &&Tenant| {
                    let arrival = self.members.get(tenant).map(|member| member.arrival);
                    (std::cmp::Reverse(self.level(**tenant)), arrival)
                };
                let tenant = *self.competing.iter().min_by_key(rank)?;
                Some(Choice { tenant, level: self.level(tenant), kind: Kind::Weight })
            }
            Policy::Fair => self.overdue().or_else(|| self.pick(self.roots.normal, Level::Middle, Kind::Weight)),
            Policy::PriorityFair => self.choose_by_class(),
        }
    }

    /// Whether the token may be taken from the tenant, and by it.
    pub(super) fn level(&self, tenant: Tenant) -> Level {
        let Some(member) = self.members.get(&tenant) else { return Level::Low };
        match (self.rules.policy, member.share.class) {
            (Policy::Fifo | Policy::Fair, _) | (_, Priority::Normal) => Level::Middle,
            (Policy::Priority, Priority::High) => Level::Top,
            (Policy::PriorityFair, Priority::High) if self.budget.has_credit() => Level::Top,
            (Policy::PriorityFair, Priority::High) => Level::Middle,
            (Policy::PriorityFair, Priority::Batch) if member.kind == Kind::Guarantee => Level::Middle,
            (Policy::PriorityFair, Priority::Batch) if self.floor.has_credit() => Level::Middle,
            (_, Priority::Batch) => Level::Low,
        }
    }

    /// True where turns end by time.
    pub(super) fn slices(&self) -> bool {
        matches!(self.rules.policy, Policy::Fair | Policy::PriorityFair)
    }

    /// True if all that compete are of batch.
    pub(super) fn is_batch_only(&self) -> bool {
        let mut competing = self.competing.iter().filter_map(|tenant| self.members.get(tenant));
        competing.all(|member| member.share.class == Priority::Batch)
    }

    /// What the holder may have used since its turn began without its having been told yet.
    pub(super) fn unmeasured_ns(&self, tenant: Tenant) -> u64 {
        let Some(turn) = self.turn.as_ref().filter(|turn| turn.tenant == tenant) else { return 0 };
        // Who runs beside others gets its part of the device.
        let among = 1 + self.overlapping.len() as u64;
        turn.held_ns(self.now).saturating_sub(turn.used_ns) / among
    }

    fn choose_by_class(&mut self) -> Option<Choice> {
        let roots = self.roots;
        if self.budget.has_credit() && self.tree.is_active(roots.high) {
            return self.pick(roots.high, Level::Top, Kind::Budget);
        }
        if let Some(choice) = self.overdue() {
            return Some(choice);
        }
        if self.floor.has_credit()
            && let Some(choice) = self.pick(roots.batch, Level::Middle, Kind::Floor)
        {
            return Some(choice);
        }
        self.pick(roots.normal, Level::Middle, Kind::Weight)
            .or_else(|| self.pick(roots.batch, Level::Low, Kind::Weight))
    }

    /// Who is behind its guarantee for the longest time.
    fn overdue(&self) -> Option<Choice> {
        let overdue = self.competing.iter().filter_map(|tenant| {
            let overdue_ns = self.members.get(tenant)?.guarantee.overdue_ns()?;
            Some((overdue_ns, std::cmp::Reverse(*tenant)))
        });
        let (_, std::cmp::Reverse(tenant)) = overdue.max()?;
        Some(Choice { tenant, level: Level::Middle, kind: Kind::Guarantee })
    }

    fn pick(&mut self, root: super::Node, level: Level, kind: Kind) -> Option<Choice> {
        let node = self.tree.pick(root, self.now)?;
        let tenant = *self.leaves.get(&node)?;
        Some(Choice { tenant, level, kind })
    }

    /// Charges all but the bucket.
    fn account(&mut self, tenant: Tenant, used_ns: u64) {
        let quantum_ns = self.quantum_ns();
        let budget_ns = BUDGET_PERIOD_NS / 10_000 * u64::from(self.budget_rate());
        let Some(member) = self.members.get_mut(&tenant) else { return };
        let by_guarantee = member.kind == Kind::Guarantee;
        let bounded = match member.kind {
            Kind::Guarantee => Some((member.node, member.guarantee.ahead_ns().saturating_add(quantum_ns))),
            Kind::Budget => Some((self.roots.high, budget_ns.saturating_add(quantum_ns))),
            Kind::Weight | Kind::Floor => None,
        };
        self.tree.charge(member.node, used_ns, bounded, quantum_ns);
        member.guarantee.serve(used_ns, by_guarantee, 2 * quantum_ns);
        if member.kind == Kind::Budget {
            self.budget.spend(used_ns);
        }
        if member.share.class == Priority::Batch {
            self.floor.use_up(used_ns);
        }
    }

    /// What the high class may use before all others, in hundredths of a percent: what its tenants are guaranteed, and
    /// half of the device if one has no guarantee, as far as that leaves the others theirs.
    fn budget_rate(&self) -> u32 {
        let competing = self.competing.iter().filter_map(|tenant| self.members.get(tenant));
        let (mut own, mut others, mut some, mut all) = (0u32, 0u32, false, true);
        for Member { share, guarantee, .. } in competing {
            match share.class {
                Priority::High => {
                    own = own.saturating_add(guarantee.rate());
                    (some, all) = (true, all && guarantee.rate() > 0);
                }
                _ => others = others.saturating_add(guarantee.rate()),
            }
        }
        let free = if some && all { 0 } else { BUDGET_RATE.min(PROMISED_MAX.saturating_sub(others)) };
        own.max(free).min(PROMISED_MAX)
    }
}
