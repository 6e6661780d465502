//! What processes say of themselves, turned into what the scheduler is told. No I/O, no clock.
//!
//! Every value is a claim. Counters that go backwards or jump, times from the future and waits that lead to nothing cost
//! nobody but the tenant that wrote them: device time is charged within what has passed, and who is given the token
//! and does nothing with it is passed over for a while.

use quota_core::compute::{Event, Tenant};
use quota_core::ledger::SlotId;
use quota_wire::usage::ProcessUsage;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// How long the claims of a tenant that was free of all counting are not taken for idleness: what it has under way from
/// before isn't counted.
pub(super) const FREE_GRACE_NS: u64 = 2_000_000;
/// How long past its own prediction a process that is stopped is waited for.
const STOPPED_GRACE_NS: u64 = 1_000_000;
/// Pause between two looks at whether a process that is late is stopped.
const STOPPED_AGAIN_NS: u64 = 5_000_000;
/// A holder that waits and doesn't go through its open gate for so long is passed over: it lies, or nobody can say that it is
/// stopped, which is asked after [`STOPPED_GRACE_NS`]. More than
/// the kernel takes to run a thread that it has woken on a busy machine.
const NO_SHOW_NS: u64 = 5_000_000;
/// For how long it is passed over the first time; twice as long each time after that.
const NO_SHOW_PAUSE_NS: u64 = 10_000_000;
/// The longest such pause: what is lost to a tenant that always waits and never comes is below a hundredth.
const NO_SHOW_PAUSE_NS_MAX: u64 = 640_000_000;
/// The latest end of what is under way that is believed.
const UNTIL_NS_MAX: u64 = 1_000_000_000;
/// The longest way from an open gate to the first launch that is believed.
const OPENED_NS_MAX: u64 = 10_000_000;

/// A tenant whose gate was closed, of which something is under way, of which nothing ends or begins, and of which somebody
/// waits at the gate, may be waiting for itself: a rank spins on the device for another one that is kept out. After so long
/// its gate is opened until something moves. A launch that is let in for no reason costs what it takes.
const STUCK_NS: u64 = 3_000_000;
/// Pause between two looks at whether it moves.
const LEASE_LOOK_NS: u64 = 500_000;

/// Names a process: its slot, and which of the slot's owners it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Process {
    /// Where in the usage page.
    pub(super) slot: u32,
    /// Which of the processes that have had the slot.
    pub(super) generation: u64,
    /// Its pid, by the kernel's word.
    pub(super) pid: u32,
}

impl Process {
    /// The slot as the usage page knows it.
    pub(super) fn slot(self) -> Option<SlotId> {
        SlotId::new(self.slot)
    }
}

/// What one process says of itself on one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Claim {
    pub(super) submitted: u64,
    pub(super) completed: u64,
    pub(super) until_ns: u64,
    pub(super) busy_ns: u64,
    pub(super) passed_at_ns: u64,
    pub(super) waiting: u32,
    /// Out of credit under its cap: it will not come back within a linger.
    pub(super) throttled: u32,
    pub(super) sure: bool,
}

impl Claim {
    pub(super) fn read(usage: &ProcessUsage) -> Self {
        // Before `submitted`, so that what ends meanwhile doesn't seem to end before it has begun.
        let completed = usage.completed.load(Ordering::Acquire);
        Self {
            completed,
            submitted: usage.submitted.load(Ordering::Acquire),
            until_ns: usage.until_ns.load(Ordering::Relaxed),
            busy_ns: usage.busy_ns.load(Ordering::Relaxed),
            passed_at_ns: usage.passed_at_ns.load(Ordering::Relaxed),
            waiting: usage.waiting.load(Ordering::Acquire),
            throttled: usage.throttled.load(Ordering::Acquire),
            sure: usage.sure.load(Ordering::Relaxed) == 1,
        }
    }

    /// True while something is under way. More completed than submitted is nonsense, and nothing.
    pub(super) fn is_under_way(&self) -> bool {
        (self.submitted.wrapping_sub(self.completed)).cast_signed() > 0
    }
}

/// What was last seen of a process.
#[derive(Clone, Copy, Debug)]
struct Last {
    submitted: u64,
    completed: u64,
    busy_ns: u64,
    passed_at_ns: u64,
}

/// All processes of a tenant on one device, taken together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sum {
    under_way: bool,
    waiting: bool,
    throttled: bool,
    /// Something was launched, or a gate passed, since the last look.
    progress: bool,
    /// Something ended.
    ended: bool,
    /// The latest end of what is under way; none where some process doesn't say.
    until_ns: Option<u64>,
    /// How long all of it will take from now.
    left_ns: Option<u64>,
    /// All that is under way rests on measured kernels.
    sure: bool,
    busy_ns: u64,
    passed_at_ns: u64,
}

impl Sum {
    /// When all that is under way will have ended, as far as is believed; none where nothing is, or nobody says.
    fn ends_at(&self, now_ns: u64) -> Option<u64> {
        let (until_ns, left_ns) = self.until_ns.zip(self.left_ns).filter(|_| self.under_way)?;
        let ends_ns = if left_ns > 0 { until_ns.max(now_ns.saturating_add(left_ns)) } else { until_ns };
        Some(ends_ns.min(now_ns.saturating_add(UNTIL_NS_MAX)))
    }
}

/// The books of one tenant on one device.
#[derive(Debug)]
pub(super) struct Account {
    tenant: Tenant,
    last: BTreeMap<Process, Last>,
    /// Since when it can have used the device; bounds what can be charged.
    since_ns: u64,
    charged_ns: u64,
    /// Charged for a turn in which nothing was measured; what is measured later is less by that.
    ahead_ns: u64,
    /// It has work, as the scheduler was told.
    wants: bool,
    /// Nobody else has the device: it counts nothing, and is taken to be busy.
    free: bool,
    /// Its claims are not taken for idleness before.
    idle_from_ns: u64,
    /// Its gate is open since.
    opened_at_ns: Option<u64>,
    /// It has gone through since.
    shown_up: bool,
    /// Something was measured in this turn.
    measured: bool,
    /// Its gate was closed, and what it had under way hasn't ended.
    draining: bool,
    /// The end of what drains, as the scheduler was told.
    drains_at_ns: Option<u64>,
    /// When to look whether the processes that are late are stopped.
    stopped_at_ns: Option<u64>,
    /// All that have something under way are.
    stopped: bool,
    /// These, and all that wait.
    all_stopped: bool,
    /// Whether those who wait are stopped was asked in this turn.
    asked_stopped: bool,
    /// Since when nothing has moved of what drains while somebody waits at the gate.
    stuck_since_ns: Option<u64>,
    looked_at_ns: u64,
    /// How long it has had an open gate and not come.
    no_show_ns: u64,
    pause_ns: u64,
    /// Its waits are not believed until.
    passed_over_until_ns: Option<u64>,
    waits: bool,
    /// It is out of credit, as the scheduler was told.
    rests: bool,
    /// What it was measured to use, and whether it was out of credit, since that was taken last.
    used_ns: u64,
    was_throttled: bool,
}

impl Account {
    pub(super) fn new(tenant: Tenant, now_ns: u64) -> Self {
        Self {
            tenant,
            last: BTreeMap::new(),
            since_ns: now_ns,
            charged_ns: 0,
            ahead_ns: 0,
            wants: false,
            free: false,
            idle_from_ns: now_ns,
            opened_at_ns: None,
            shown_up: false,
            measured: false,
            draining: false,
            drains_at_ns: None,
            stopped_at_ns: None,
            stopped: false,
            all_stopped: false,
            asked_stopped: false,
            stuck_since_ns: None,
            looked_at_ns: now_ns,
            no_show_ns: 0,
            pause_ns: NO_SHOW_PAUSE_NS,
            passed_over_until_ns: None,
            waits: false,
            rests: false,
            used_ns: 0,
            was_throttled: false,
        }
    }

    /// What it was measured to use since the last call, and whether it was ever seen to wait for credit.
    pub(super) fn take_use(&mut self) -> (u64, bool) {
        (core::mem::take(&mut self.used_ns), core::mem::take(&mut self.was_throttled))
    }

    /// True while it has work, as far as the scheduler knows.
    pub(super) fn wants(&self) -> bool {
        self.wants
    }

    /// True while some thread says that it waits at the gate.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// True while its gate is to be open out of turn, so that what it has under way can end.
    pub(super) fn has_lease(&self) -> bool {
        self.stuck_since_ns.is_some_and(|since_ns| self.looked_at_ns.saturating_sub(since_ns) >= STUCK_NS)
    }

    /// True while what it had under way at the end of its turn hasn't ended.
    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    /// Its gate has been opened.
    pub(super) fn opened(&mut self, now_ns: u64) {
        self.opened_at_ns = Some(now_ns);
        (self.shown_up, self.measured, self.draining, self.asked_stopped) = (false, false, false, false);
    }

    /// Its gate has been closed.
    pub(super) fn closed(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        let Some(opened_at_ns) = self.opened_at_ns.take() else { return };
        (self.draining, self.drains_at_ns) = (true, None);
        if self.free || self.measured || !self.wants || !self.shown_up {
            return;
        }
        // A kernel that outlasts the turn will be measured when it ends, a process that measures nothing never.
        let held_ns = self.charge(now_ns.saturating_sub(opened_at_ns), now_ns);
        self.ahead_ns = self.ahead_ns.saturating_add(held_ns);
        if held_ns > 0 {
            events.push(Event::Used(self.tenant, held_ns));
        }
    }

    /// From now on it is alone, and what it says isn't looked at; or it no longer is.
    pub(super) fn set_free(&mut self, free: bool, now_ns: u64, events: &mut Vec<Event>) {
        if free && !self.wants {
            self.wants = true;
            events.push(Event::Wants(self.tenant));
        }
        if self.free && !free {
            self.idle_from_ns = now_ns.saturating_add(FREE_GRACE_NS);
            // It had the device for itself; nothing of that is a debt.
            self.begin_anew(now_ns);
        }
        self.free = free;
    }

    /// Nothing of what was used until now is charged any more.
    pub(super) fn begin_anew(&mut self, now_ns: u64) {
        (self.since_ns, self.charged_ns, self.ahead_ns) = (now_ns, 0, 0);
    }

    /// It is no longer scheduled.
    pub(super) fn rest(&mut self) {
        (self.wants, self.draining, self.opened_at_ns, self.free) = (false, false, None, false);
        self.stuck_since_ns = None;
    }

    /// It is scheduled again, since it has work.
    pub(super) fn works(&mut self) {
        self.wants = true;
    }

    /// Takes in what its processes say now. `is_stopped` is asked of those that are later than they predicted.
    pub(super) fn look(
        &mut self,
        claims: &[(Process, Claim)],
        now_ns: u64,
        is_stopped: &mut dyn FnMut(Process) -> bool,
        events: &mut Vec<Event>,
    ) {
        let sum = self.sum(claims, now_ns);
        self.waits = sum.waiting;
        self.used_ns = self.used_ns.saturating_add(sum.busy_ns);
        self.was_throttled |= sum.throttled;
        if sum.busy_ns > 0 && !self.wants && !self.free {
            // It went on after a pause and said nothing, as a holder may. What it used is charged while it competes: as
            // the debt of one that sleeps it would be held against nobody's progress.
            self.wants = true;
            events.push(Event::Wants(self.tenant));
        }
        self.charge_measured(sum.busy_ns, now_ns, events);
        if self.free {
            self.looked_at_ns = now_ns;
            return;
        }
        let mut waits_stopped = || {
            let mut waiting = claims.iter().filter(|(_, claim)| claim.waiting > 0);
            waiting.all(|(process, _)| is_stopped(*process))
        };
        self.note_turn(&sum, now_ns, &mut waits_stopped, events);
        self.note_stopped(claims, &sum, now_ns, is_stopped);
        let may_be_stuck = self.draining && sum.under_way && sum.waiting && !self.stopped;
        let since_ns = self.stuck_since_ns.filter(|_| !sum.progress && !sum.ended).unwrap_or(now_ns);
        self.stuck_since_ns = may_be_stuck.then_some(since_ns);
        let has_work = (sum.under_way && !self.stopped)
            || (sum.waiting && self.passed_over_until_ns.is_none() && !self.all_stopped);
        if !self.wants && (has_work || sum.progress) {
            self.wants = true;
            events.push(Event::Wants(self.tenant));
        }
        if self.wants && !has_work && now_ns >= self.idle_from_ns {
            self.wants = false;
            self.rests = sum.throttled;
            events.push(if self.rests { Event::Rests(self.tenant) } else { Event::Idles(self.tenant) });
        } else if !self.wants && sum.throttled && !self.rests {
            self.rests = true;
            events.push(Event::Rests(self.tenant));
        }
        self.rests &= !self.wants && sum.throttled;
        if self.draining {
            self.drain(&sum, now_ns, events);
        }
        self.looked_at_ns = now_ns;
    }

    /// When it is to be looked at again though nobody says so.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        let unsure = (self.wants || self.draining) && !self.free && self.idle_from_ns > self.looked_at_ns;
        let idle = unsure.then_some(self.idle_from_ns);
        let no_show = (self.opened_at_ns.is_some() && !self.shown_up && !self.free && self.waits)
            .then(|| self.looked_at_ns + NO_SHOW_NS.saturating_sub(self.no_show_ns))
            .filter(|_| self.passed_over_until_ns.is_none());
        let late = no_show.and(self.opened_at_ns).filter(|_| !self.asked_stopped).map(|at_ns| at_ns + STOPPED_GRACE_NS);
        let passed_over = self.passed_over_until_ns.filter(|_| self.waits);
        let stopped = self.stopped_at_ns.filter(|_| self.draining && !self.stopped);
        let stuck = self.stuck_since_ns.map(|since_ns| {
            if self.has_lease() { self.looked_at_ns + LEASE_LOOK_NS } else { since_ns.saturating_add(STUCK_NS) }
        });
        [idle, no_show, late, passed_over, stopped, stuck].into_iter().flatten().min()
    }

    /// All claims together, compared with those before; those who are gone are forgotten.
    fn sum(&mut self, claims: &[(Process, Claim)], now_ns: u64) -> Sum {
        let mut sum = Sum { sure: true, until_ns: Some(0), left_ns: Some(0), ..Sum::default() };
        let mut last = BTreeMap::new();
        for (process, claim) in claims {
            let Claim { submitted, completed, busy_ns, passed_at_ns, .. } = *claim;
            let seen = Last { submitted, completed, busy_ns, passed_at_ns };
            // What a process did before it was first seen is nobody's business: an earlier daemon's.
            let before = self.last.get(process).copied().unwrap_or(seen);
            sum.busy_ns = sum.busy_ns.saturating_add(claim.busy_ns.saturating_sub(before.busy_ns));
            sum.progress |= claim.submitted != before.submitted || claim.passed_at_ns != before.passed_at_ns;
            sum.ended |= claim.completed != before.completed;
            sum.waiting |= claim.waiting > 0;
            sum.throttled |= claim.throttled > 0;
            sum.passed_at_ns = sum.passed_at_ns.max(claim.passed_at_ns);
            if claim.is_under_way() {
                sum.under_way = true;
                sum.sure &= claim.sure;
                let until_ns = Some(claim.until_ns).filter(|until_ns| *until_ns > 0);
                // Each predicts as if it had the device for itself; contexts take turns.
                let left_ns = until_ns.map(|until_ns| until_ns.saturating_sub(now_ns).min(UNTIL_NS_MAX));
                sum.left_ns = sum.left_ns.zip(left_ns).map(|(one, other)| one.saturating_add(other));
                sum.until_ns = sum.until_ns.zip(until_ns).map(|(one, other)| one.max(other));
            }
            last.insert(*process, seen);
        }
        self.last = last;
        sum
    }

    fn charge_measured(&mut self, busy_ns: u64, now_ns: u64, events: &mut Vec<Event>) {
        self.measured |= busy_ns > 0;
        let ahead_ns = busy_ns.min(self.ahead_ns);
        self.ahead_ns -= ahead_ns;
        let used_ns = self.charge(busy_ns - ahead_ns, now_ns);
        if used_ns > 0 && !self.free {
            events.push(Event::Used(self.tenant, used_ns));
        }
    }

    /// Bounds a charge by the time that has passed and hasn't been charged.
    fn charge(&mut self, used_ns: u64, now_ns: u64) -> u64 {
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        let used_ns = used_ns.min(passed_ns.saturating_sub(self.charged_ns));
        self.charged_ns += used_ns;
        used_ns
    }

    /// Whether who has the token makes use of it.
    fn note_turn(&mut self, sum: &Sum, now_ns: u64, waits_stopped: &mut dyn FnMut() -> bool, events: &mut Vec<Event>) {
        if let Some(until_ns) = self.passed_over_until_ns.filter(|until_ns| now_ns >= *until_ns || sum.progress) {
            self.passed_over_until_ns = None;
            // Who is still stopped would only let the device stand idle.
            if now_ns >= until_ns && sum.waiting && !sum.progress && waits_stopped() {
                self.pass_over(now_ns);
            }
        }
        if sum.progress {
            (self.no_show_ns, self.pause_ns) = (0, NO_SHOW_PAUSE_NS);
        }
        let Some(opened_at_ns) = self.opened_at_ns else { return };
        if sum.passed_at_ns > opened_at_ns && !self.shown_up {
            let took_ns = sum.passed_at_ns.min(now_ns).saturating_sub(opened_at_ns).min(OPENED_NS_MAX);
            events.push(Event::Opened(self.tenant, took_ns));
        }
        self.shown_up |= sum.under_way || sum.progress || sum.passed_at_ns > opened_at_ns;
        if self.shown_up || !sum.waiting || self.passed_over_until_ns.is_some() {
            return;
        }
        self.no_show_ns += now_ns.saturating_sub(self.looked_at_ns.max(opened_at_ns));
        let is_late = now_ns >= opened_at_ns.saturating_add(STOPPED_GRACE_NS);
        let is_stopped = is_late && !core::mem::replace(&mut self.asked_stopped, true) && waits_stopped();
        if self.no_show_ns >= NO_SHOW_NS || is_stopped {
            self.pass_over(now_ns);
        }
    }

    fn pass_over(&mut self, now_ns: u64) {
        self.no_show_ns = 0;
        self.passed_over_until_ns = Some(now_ns.saturating_add(self.pause_ns));
        self.pause_ns = (self.pause_ns * 2).min(NO_SHOW_PAUSE_NS_MAX);
    }

    /// Whether all that have something under way are stopped. Who is says nothing of what has ended; its prediction is
    /// all there is.
    fn note_stopped(
        &mut self,
        claims: &[(Process, Claim)],
        sum: &Sum,
        now_ns: u64,
        is_stopped: &mut dyn FnMut(Process) -> bool,
    ) {
        let Some(until_ns) = sum.ends_at(now_ns).filter(|_| self.wants || self.draining || self.stopped) else {
            (self.stopped, self.all_stopped, self.stopped_at_ns) = (false, false, None);
            return;
        };
        let late_at_ns = until_ns.saturating_add(STOPPED_GRACE_NS);
        let look_at_ns = self.stopped_at_ns.unwrap_or(late_at_ns).max(late_at_ns);
        self.stopped_at_ns = Some(look_at_ns);
        self.stopped &= !sum.progress && now_ns >= late_at_ns;
        self.all_stopped &= self.stopped;
        if now_ns >= look_at_ns {
            let (late, waiting): (Vec<_>, Vec<_>) = claims
                .iter()
                .filter(|(_, claim)| claim.is_under_way() || claim.waiting > 0)
                .partition(|it| it.1.is_under_way());
            self.stopped = late.iter().all(|(process, _)| is_stopped(*process));
            self.all_stopped = self.stopped && waiting.iter().all(|(process, _)| is_stopped(*process));
            self.stopped_at_ns = Some(now_ns.saturating_add(STOPPED_AGAIN_NS));
        }
    }

    /// Whether what it had under way has ended, or when it will.
    fn drain(&mut self, sum: &Sum, now_ns: u64, events: &mut Vec<Event>) {
        if (!sum.under_way && now_ns >= self.idle_from_ns) || self.stopped {
            self.draining = false;
            events.push(Event::Drained(self.tenant));
        } else if let Some(until_ns) = sum.ends_at(now_ns).filter(|_| sum.sure)
            && self.drains_at_ns != Some(until_ns)
        {
            self.drains_at_ns = Some(until_ns);
            events.push(Event::DrainsAt(self.tenant, until_ns));
        }
    }
}

#[cfg(test)]
#[path = "claims/tests.rs"]
mod tests;
