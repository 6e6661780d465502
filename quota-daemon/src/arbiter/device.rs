//! One device: its scheduler, the tenants that use it, and which gate each of them is shown. No I/O, no clock.

mod loans;

pub(super) use loans::Loan;

use super::claims::{Account, Claim, Process};
use quota_core::Priority;
use quota_core::compute::scheduler::Rules;
use quota_core::compute::{Action, Event, Part, Pool, Scheduler, Share, Tenant};
use quota_wire::page::Gate;
use std::collections::BTreeMap;

/// Predicted work that a process may have under way while others want the device, in microseconds: a token comes back
/// within so long plus the kernel that runs. The model's figure (less costs throughput, more costs latency).
pub(super) const AHEAD_CONTENDED_US: u32 = 1_000;
/// The same while nobody else wants it: more launches before a thread waits, and still little to wait for when somebody
/// comes.
pub(super) const AHEAD_QUIET_US: u32 = 5_000;
/// The same beside a tenant of the high class, whether it has work or not: what is under way when it comes is what it waits
/// for. By the simulator, 1 ms makes the slowest hundredth of its requests 1.16 times as slow as alone, this 1.07 times.
pub(super) const AHEAD_BESIDE_HIGH_US: u32 = 500;
/// A tenant that has had no work for so long is asked again at its next use, so that whoever is left alone is free.
pub(super) const REST_AFTER_NS: u64 = 10_000_000_000;
/// Whoever waits sees a heartbeat every 100 ms; without one for so long, processes launch without asking. What they use then
/// is nobody's debt: they measure it while contexts take turns, each with the other's time in it.
pub(super) const UNWATCHED_NS: u64 = 500_000_000;
/// Rounds of looking and deciding at one time: a decision may close a gate behind which nothing is under way, which
/// allows the next one. More than that waits for the next look.
const ROUNDS_MAX: usize = 4;

/// What holds for a tenant on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    pub(super) share: Share,
    /// A cap holds, so that its use has to be counted also when it is alone.
    pub(super) capped: bool,
    /// The cap holds only while somebody of another tenant wants the device.
    pub(super) soft: bool,
    /// Its part of a cap that it has together with others.
    pub(super) part: Option<Part>,
    pub(super) paused: bool,
}

impl Terms {
    /// The same for one that shares, at that weight, what a pool gets.
    pub(super) fn in_pool(self, pool: Pool, weight: u32) -> Self {
        Self { share: Share { pool: Some(pool), weight, ..self.share }, ..self }
    }
}

/// A gate that has to be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Show {
    pub(super) tenant: Tenant,
    pub(super) gate: Gate,
    pub(super) ahead_us: u32,
}

/// How tenants' claims are read; the only way in which a device sees anything.
pub(super) trait Eyes {
    /// What the processes of a tenant say now.
    fn claims(&mut self, tenant: Tenant, claims: &mut Vec<(Process, Claim)>);

    /// Whether the kernel says that a process is stopped.
    fn is_stopped(&mut self, process: Process) -> bool;

    /// The time, in nanoseconds of the monotonic clock.
    fn now_ns(&mut self) -> u64;
}

/// A tenant that uses the device.
#[derive(Debug)]
struct Seat {
    terms: Terms,
    account: Account,
    /// Its soft cap holds.
    is_held: bool,
    /// The scheduler lets it launch.
    open: bool,
    /// It has had no work for long, and is out of the scheduler.
    resting: bool,
    idle_since_ns: u64,
    shown: Option<(Gate, u32)>,
    uses: loans::Use,
}

/// The token of one device, and who can have it.
#[derive(Debug)]
pub(super) struct Device {
    scheduler: Scheduler,
    seats: BTreeMap<Tenant, Seat>,
    actions: Vec<Action>,
    events: Vec<Event>,
    claims: Vec<(Process, Claim)>,
    looked_at_ns: u64,
    /// When loans were last looked at.
    lent_at_ns: u64,
    /// Since then somebody has another part, or came, or went, or a cap has begun to hold or no longer does.
    loans_changed: bool,
}

impl Device {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            scheduler: Scheduler::new(rules),
            seats: BTreeMap::new(),
            actions: Vec::new(),
            events: Vec::new(),
            claims: Vec::new(),
            looked_at_ns: 0,
            lent_at_ns: 0,
            loans_changed: false,
        }
    }

    pub(super) fn set_rules(&mut self, rules: Rules) {
        self.scheduler.set_rules(rules);
    }

    pub(super) fn is_seated(&self, tenant: Tenant) -> bool {
        self.seats.contains_key(&tenant)
    }

    /// The tenant has a process that uses the device.
    pub(super) fn seat(&mut self, tenant: Tenant, terms: Terms, now_ns: u64) {
        let seat = Seat {
            terms,
            account: Account::new(tenant, now_ns),
            is_held: false,
            open: false,
            resting: false,
            idle_since_ns: now_ns,
            shown: None,
            uses: loans::Use::default(),
        };
        self.seats.insert(tenant, seat);
        self.enter(tenant, now_ns);
    }

    /// It has none any more. What it had under way isn't waited for: the driver tears it down by itself.
    pub(super) fn unseat(&mut self, tenant: Tenant, now_ns: u64) {
        let seat = self.seats.remove(&tenant);
        self.loans_changed |= seat.is_some();
        if seat.is_some_and(|seat| !seat.resting) {
            self.scheduler.detach(tenant, now_ns, &mut self.actions);
            self.act(now_ns);
        }
    }

    /// Something else holds for it from now on.
    pub(super) fn change(&mut self, tenant: Tenant, terms: Terms, now_ns: u64) {
        let Some(seat) = self.seats.get_mut(&tenant) else { return };
        let before = core::mem::replace(&mut seat.terms, terms);
        self.loans_changed |= (before.part, before.soft) != (terms.part, terms.soft);
        if seat.resting || before == terms {
            return;
        }
        self.scheduler.change(tenant, terms.share, now_ns, &mut self.actions);
        match (before.paused, terms.paused) {
            (false, true) => {
                seat.idle_since_ns = now_ns;
                self.scheduler.pause(tenant, now_ns, &mut self.actions);
            }
            (true, false) => self.scheduler.resume(tenant, now_ns, &mut self.actions),
            _ => {}
        }
        self.act(now_ns);
    }

    /// Looks at what everybody says, and decides.
    pub(super) fn look(&mut self, eyes: &mut dyn Eyes) {
        self.forget_unwatched(eyes.now_ns());
        for _ in 0..ROUNDS_MAX {
            let now_ns = eyes.now_ns();
            self.free_who_is_alone(now_ns);
            // The holder first: that it goes on after a pause must be known before another's wish is.
            let holder = self.scheduler.holder();
            let others = self.seats.keys().copied().filter(|tenant| Some(*tenant) != holder);
            let order: Vec<Tenant> = holder.into_iter().chain(others).collect();
            let mut decided = false;
            for tenant in order {
                decided |= self.look_at(tenant, eyes, now_ns);
            }
            self.rest_who_is_idle(now_ns);
            self.hold_soft_caps();
            self.events.push(Event::Tick);
            decided |= self.tell(now_ns);
            if !decided {
                break;
            }
        }
        self.looked_at_ns = eyes.now_ns();
        self.free_who_is_alone(self.looked_at_ns);
    }

    /// The gates that are no longer as they are shown.
    pub(super) fn shows(&mut self, shows: &mut Vec<Show>) {
        let alone = self.alone();
        let is_high = |seat: &Seat| !seat.resting && seat.terms.share.class == Priority::High;
        let high: Vec<Tenant> =
            self.seats.iter().filter(|(_, seat)| is_high(seat)).map(|(tenant, _)| *tenant).collect();
        let beside_high = |tenant: Tenant| !high.is_empty() && !high.contains(&tenant);
        for (tenant, seat) in &mut self.seats {
            let gate = match () {
                () if seat.terms.paused => Gate::Closed,
                () if seat.resting => Gate::Ask,
                () if alone == Some(*tenant) && !seat.terms.capped => Gate::Free,
                () if seat.open || seat.account.has_lease() => Gate::Open,
                () => Gate::Closed,
            };
            let contended = self.scheduler.is_contended(*tenant);
            let ahead_us = match () {
                () if beside_high(*tenant) => AHEAD_BESIDE_HIGH_US,
                () if contended => AHEAD_CONTENDED_US,
                () => AHEAD_QUIET_US,
            };
            if seat.shown != Some((gate, ahead_us)) {
                seat.shown = Some((gate, ahead_us));
                shows.push(Show { tenant: *tenant, gate, ahead_us });
            }
        }
    }

    /// When it is to be looked at again though nobody says so.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        let active = self.seats.values().filter(|seat| !seat.resting);
        let crowded = active.clone().count() > 1;
        let rest = active
            .clone()
            .filter(|seat| crowded && seat.may_rest())
            .map(|seat| seat.idle_since_ns.saturating_add(REST_AFTER_NS));
        let accounts = active.filter_map(|seat| seat.account.next_deadline());
        rest.chain(accounts).chain(self.scheduler.next_deadline()).chain(self.loans_due()).min()
    }

    /// True while somebody waits at a gate or shares the device: then the gates are looked after, and it shows.
    pub(super) fn beats(&self) -> bool {
        self.contenders() > 1 || self.seats.values().any(|seat| seat.account.waits())
    }

    /// Tenants that have work now and may do it.
    pub(super) fn contenders(&self) -> usize {
        self.seats.values().filter(|seat| seat.account.wants() && !seat.terms.paused).count()
    }

    /// Who may launch.
    pub(super) fn holder(&self) -> Option<Tenant> {
        self.scheduler.holder()
    }

    /// Those that use it.
    pub(super) fn tenants(&self) -> impl Iterator<Item = Tenant> + '_ {
        self.seats.keys().copied()
    }

    fn enter(&mut self, tenant: Tenant, now_ns: u64) {
        let Some(seat) = self.seats.get_mut(&tenant) else { return };
        (seat.resting, seat.idle_since_ns) = (false, now_ns);
        self.loans_changed = true;
        self.scheduler.attach(tenant, seat.terms.share, now_ns, &mut self.actions);
        if seat.terms.paused {
            self.scheduler.pause(tenant, now_ns, &mut self.actions);
        }
        self.act(now_ns);
    }

    /// The only tenant that may use the device now.
    fn alone(&self) -> Option<Tenant> {
        let mut active = self.seats.iter().filter(|(_, seat)| !seat.resting);
        let first = active.next().map(|(tenant, _)| *tenant);
        first.filter(|_| active.next().is_none())
    }

    /// After a time in which the gates should have been looked after and weren't, since the daemon was stopped or starved,
    /// accounts begin anew.
    fn forget_unwatched(&mut self, now_ns: u64) {
        if self.beats() && now_ns.saturating_sub(self.looked_at_ns) >= UNWATCHED_NS {
            self.seats.values_mut().for_each(|seat| seat.account.begin_anew(now_ns));
        }
    }

    fn free_who_is_alone(&mut self, now_ns: u64) {
        let alone = self.alone();
        for (tenant, seat) in self.seats.iter_mut().filter(|(_, seat)| !seat.resting) {
            let free = alone == Some(*tenant) && !seat.terms.capped && !seat.terms.paused;
            seat.account.set_free(free, now_ns, &mut self.events);
        }
        self.tell(now_ns);
    }

    /// Takes in what one tenant says; true when that changed a gate.
    fn look_at(&mut self, tenant: Tenant, eyes: &mut dyn Eyes, now_ns: u64) -> bool {
        self.claims.clear();
        eyes.claims(tenant, &mut self.claims);
        let Some(seat) = self.seats.get_mut(&tenant) else { return false };
        let had_work = seat.account.wants();
        seat.account.look(&self.claims, now_ns, &mut |process| eyes.is_stopped(process), &mut self.events);
        if seat.resting {
            // Of a tenant that rests, any sign of work brings it back; of one that is paused, only the end of the pause.
            let works = seat.account.wants() && !seat.terms.paused;
            self.events.clear();
            seat.account.rest();
            if works {
                self.enter(tenant, now_ns);
                self.events.push(Event::Wants(tenant));
                self.seats.entry(tenant).and_modify(|seat| seat.account.works());
            }
        } else if had_work && !seat.account.wants() {
            seat.idle_since_ns = now_ns;
        }
        self.tell(now_ns)
    }

    fn rest_who_is_idle(&mut self, now_ns: u64) {
        let mut active = self.seats.values().filter(|seat| !seat.resting).count();
        for (tenant, seat) in &mut self.seats {
            let idle_ns = now_ns.saturating_sub(seat.idle_since_ns);
            if active > 1 && !seat.resting && seat.may_rest() && idle_ns >= REST_AFTER_NS {
                active -= 1;
                (seat.resting, seat.open) = (true, false);
                seat.account.rest();
                self.scheduler.detach(*tenant, now_ns, &mut self.actions);
            }
        }
        self.act(now_ns);
    }

    /// Tells the scheduler what has happened, in order; true when that changed a gate.
    fn tell(&mut self, now_ns: u64) -> bool {
        let mut decided = false;
        let mut next = 0;
        // What a decision causes, such as a charge for the turn that ends, is told in the same way.
        while let Some(event) = self.events.get(next).copied() {
            next += 1;
            self.scheduler.step(event, now_ns, &mut self.actions);
            decided |= self.act(now_ns);
        }
        self.events.clear();
        decided
    }

    /// Carries out what the scheduler has decided; true when that changed a gate.
    fn act(&mut self, now_ns: u64) -> bool {
        let mut decided = false;
        for action in self.actions.drain(..) {
            let (tenant, open) = match action {
                Action::Open(tenant) => (tenant, true),
                Action::Close(tenant) => (tenant, false),
            };
            let Some(seat) = self.seats.get_mut(&tenant).filter(|seat| seat.open != open) else { continue };
            (seat.open, decided) = (open, true);
            if open {
                seat.account.opened(now_ns);
            } else {
                seat.account.closed(now_ns, &mut self.events);
            }
        }
        decided
    }
}

impl Seat {
    fn may_rest(&self) -> bool {
        // Who is paused may wait for as long as he likes; that is no use of the device.
        !self.account.is_draining() && (!self.account.wants() || self.terms.paused)
    }
}

#[cfg(test)]
#[path = "device/tests.rs"]
mod tests;
