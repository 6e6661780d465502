//! The daemon's side: what it knows of a tenant, and what it tells the scheduler about it.

use super::shim::{Shared, Shim};
use crate::world::System;
use quota_core::compute::scheduler::{Event, Tenant};

/// How long past its own prediction a process that is stopped is waited for.
const STOPPED_GRACE_NS: u64 = 1_000_000;
/// Pause between two looks at whether a process that is late is stopped.
const STOPPED_AGAIN_NS: u64 = 5_000_000;
/// A holder that waits and doesn't come through its open gate for so long has nothing to do.
const NO_SHOW_NS: u64 = 5_000_000;
/// For how long it is then passed over, and at most: each time twice as long as before.
const NO_SHOW_PAUSE_NS: u64 = 10_000_000;
const NO_SHOW_PAUSE_NS_MAX: u64 = 640_000_000;
/// The longest way from an open gate to the first launch that is believed.
const OPENED_NS_MAX: u64 = 10_000_000;

/// The books of a tenant.
#[derive(Debug)]
pub(super) struct Books {
    tenant: Tenant,
    processes: Vec<usize>,
    pub(super) shared: Shared,
    pub(super) ahead_ns: u64,
    attached: bool,
    free: bool,
    open: bool,
    opened_at_ns: u64,
    shown_up: bool,
    /// Something was measured in this turn.
    measured: bool,
    /// Its waits are not believed until then, or until it moves.
    passed_over_until_ns: Option<u64>,
    pause_ns: u64,
    /// How long it has had an open gate and not come, turn after turn.
    no_show_ns: u64,
    looked_at_ns: u64,
    wants: bool,
    draining: bool,
    drains_at_ns: u64,
    looks_at_ns: Option<u64>,
    submitted: u64,
    busy_ns: u64,
    /// Since when it can have used the device, and what of that was charged; the one bounds the other.
    since_ns: u64,
    charged_ns: u64,
    /// Charged for turns in which nothing was measured; what is measured later is less by that.
    ahead_charged_ns: u64,
}

impl Books {
    pub(super) fn new(tenant: Tenant, processes: Vec<usize>, ahead_ns: u64) -> Self {
        Self {
            tenant,
            processes,
            shared: Shared::default(),
            ahead_ns,
            attached: true,
            free: false,
            open: false,
            opened_at_ns: 0,
            shown_up: false,
            measured: false,
            passed_over_until_ns: None,
            pause_ns: NO_SHOW_PAUSE_NS,
            no_show_ns: 0,
            looked_at_ns: 0,
            wants: false,
            draining: false,
            drains_at_ns: 0,
            looks_at_ns: None,
            submitted: 0,
            busy_ns: 0,
            since_ns: 0,
            charged_ns: 0,
            ahead_charged_ns: 0,
        }
    }

    pub(super) fn processes(&self) -> &[usize] {
        &self.processes
    }

    pub(super) fn is_attached(&self) -> bool {
        self.attached
    }

    pub(super) fn is_free(&self) -> bool {
        self.free
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    pub(super) fn detach(&mut self) {
        (self.attached, self.open, self.free) = (false, false, false);
        (self.looks_at_ns, self.passed_over_until_ns) = (None, None);
    }

    /// Whether it is alone and has no cap: nothing is then counted.
    pub(super) fn set_free(&mut self, free: bool, now_ns: u64, events: &mut Vec<Event>) {
        if free && !self.free && !std::mem::replace(&mut self.wants, true) {
            events.push(Event::Wants(self.tenant));
        }
        if self.free && !free {
            (self.since_ns, self.charged_ns, self.ahead_charged_ns) = (now_ns, 0, 0);
        }
        self.free = free;
    }

    /// When it is to be looked at though nobody says so.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        [self.looks_at_ns, self.passed_over_until_ns].into_iter().flatten().min()
    }

    /// The gate was opened or closed.
    pub(super) fn set(&mut self, open: bool, shims: &[Shim], now_ns: u64, events: &mut Vec<Event>) {
        self.open = open;
        if open {
            (self.opened_at_ns, self.shown_up, self.measured, self.draining) = (now_ns, false, false, false);
            self.looks_at_ns = Some(now_ns + NO_SHOW_NS.saturating_sub(self.no_show_ns));
            return;
        }
        self.looks_at_ns = None;
        if self.under_way(shims).next().is_none() {
            events.push(Event::Drained(self.tenant));
            return;
        }
        (self.draining, self.drains_at_ns) = (true, 0);
        if !self.measured && self.wants && self.shown_up {
            // A kernel that outlasts the turn will be measured when it ends, a process that measures nothing never.
            let held_ns = self.bounded(now_ns - self.opened_at_ns, now_ns);
            self.ahead_charged_ns += held_ns;
            events.push(Event::Used(self.tenant, held_ns));
        }
        self.drain(shims, None, now_ns, events);
    }

    /// Takes in what the processes say.
    pub(super) fn look(&mut self, shims: &[Shim], system: &System, now_ns: u64, events: &mut Vec<Event>) {
        if !self.attached {
            return;
        }
        self.charge(shims, now_ns, events);
        if self.free {
            return;
        }
        let submitted: u64 = self.processes.iter().map(|process| shims[*process].submitted).sum();
        let moved = std::mem::replace(&mut self.submitted, submitted) != submitted;
        // Who is stopped says nothing of what has ended: past its prediction it has nothing under way.
        let is_stopped = |process: usize| {
            system.jobs()[process].is_stopped && now_ns >= shims[process].until_ns() + STOPPED_GRACE_NS
        };
        let under_way = self.under_way(shims).any(|process| !is_stopped(process));
        let waiting = self.processes.iter().any(|process| shims[*process].waiting);
        self.note_turn(shims, moved || under_way, waiting, now_ns, events);
        let has_work = under_way || (waiting && self.passed_over_until_ns.is_none());
        if !self.wants && (has_work || moved) {
            self.wants = true;
            events.push(Event::Wants(self.tenant));
        }
        if self.wants && !has_work {
            self.wants = false;
            let throttled = self.processes.iter().any(|process| shims[*process].throttled);
            events.push(if throttled { Event::Rests(self.tenant) } else { Event::Idles(self.tenant) });
        }
        if self.draining {
            self.drain(shims, Some(system), now_ns, events);
        }
    }

    fn charge(&mut self, shims: &[Shim], now_ns: u64, events: &mut Vec<Event>) {
        let busy_ns: u64 = self.processes.iter().map(|process| shims[*process].busy_ns).sum();
        let measured_ns = busy_ns.saturating_sub(self.busy_ns);
        self.busy_ns = busy_ns;
        self.measured |= measured_ns > 0;
        let known_ns = measured_ns.min(self.ahead_charged_ns);
        self.ahead_charged_ns -= known_ns;
        let used_ns = self.bounded(measured_ns - known_ns, now_ns);
        if used_ns > 0 && !self.free {
            if !std::mem::replace(&mut self.wants, true) {
                // It has gone on after a pause without a word: what it used then is no debt to those that wanted nothing.
                events.push(Event::Wants(self.tenant));
            }
            events.push(Event::Used(self.tenant, used_ns));
        }
    }

    /// What of a charge is within the time that has passed and was not charged.
    fn bounded(&mut self, used_ns: u64, now_ns: u64) -> u64 {
        let used_ns = used_ns.min((now_ns - self.since_ns).saturating_sub(self.charged_ns));
        self.charged_ns += used_ns;
        used_ns
    }

    /// Whether who has the token makes use of it.
    fn note_turn(&mut self, shims: &[Shim], moved: bool, waiting: bool, now_ns: u64, events: &mut Vec<Event>) {
        let passed_at_ns = self.processes.iter().map(|process| shims[*process].passed_at_ns).max().unwrap_or(0);
        if self.passed_over_until_ns.is_some_and(|until_ns| moved || now_ns >= until_ns) {
            self.passed_over_until_ns = None;
        }
        if !self.open || self.shown_up {
            return;
        }
        if passed_at_ns > self.opened_at_ns {
            let took_ns = (passed_at_ns - self.opened_at_ns).min(OPENED_NS_MAX);
            events.push(Event::Opened(self.tenant, took_ns));
        }
        if moved || passed_at_ns > self.opened_at_ns {
            (self.shown_up, self.looks_at_ns) = (true, None);
            (self.no_show_ns, self.pause_ns) = (0, NO_SHOW_PAUSE_NS);
            return;
        }
        self.no_show_ns += now_ns - self.looked_at_ns.max(self.opened_at_ns);
        self.looked_at_ns = now_ns;
        if self.no_show_ns >= NO_SHOW_NS && waiting {
            (self.looks_at_ns, self.no_show_ns) = (None, 0);
            self.passed_over_until_ns = Some(now_ns + self.pause_ns);
            self.pause_ns = (self.pause_ns * 2).min(NO_SHOW_PAUSE_NS_MAX);
        }
    }

    /// Whether what it had under way has ended, or when it will.
    fn drain(&mut self, shims: &[Shim], system: Option<&System>, now_ns: u64, events: &mut Vec<Event>) {
        let until_ns = self.until_ns(shims, now_ns);
        let Some(until_ns) = until_ns else {
            (self.draining, self.looks_at_ns) = (false, None);
            events.push(Event::Drained(self.tenant));
            return;
        };
        let looks_at_ns = *self.looks_at_ns.get_or_insert(until_ns + STOPPED_GRACE_NS);
        if let Some(system) = system.filter(|_| now_ns >= looks_at_ns) {
            if self.under_way(shims).all(|process| system.jobs()[process].is_stopped) {
                (self.draining, self.looks_at_ns) = (false, None);
                events.push(Event::Drained(self.tenant));
                return;
            }
            self.looks_at_ns = Some(now_ns + STOPPED_AGAIN_NS);
        }
        let sure = self.under_way(shims).all(|process| shims[process].is_sure());
        if sure && self.drains_at_ns != until_ns {
            self.drains_at_ns = until_ns;
            events.push(Event::DrainsAt(self.tenant, until_ns));
        }
    }

    /// When all that is under way will have ended. Each process predicts as if it were alone, but contexts take turns: what
    /// is left of each adds up.
    fn until_ns(&self, shims: &[Shim], now_ns: u64) -> Option<u64> {
        let left = self.under_way(shims).map(|process| shims[process].until_ns().saturating_sub(now_ns));
        left.reduce(|all_ns, one_ns| all_ns + one_ns).map(|left_ns| now_ns + left_ns)
    }

    fn under_way(&self, shims: &[Shim]) -> impl Iterator<Item = usize> {
        self.processes.iter().copied().filter(|process| !shims[*process].is_done())
    }
}
