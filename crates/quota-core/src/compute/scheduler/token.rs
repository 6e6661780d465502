//! When the token changes hands: turns and their ends, linger, draining, and what is due when.

use super::choose::{Choice, Kind, Level};
use super::{Action, Scheduler, Tenant};
use crate::Priority;

/// Shortest time for which a gate is opened while others wait.
const SLICE_MIN_NS: u64 = 300_000;
/// Longest turn while somebody with a guarantee waits: a fifth of the period that guarantees are meant for.
const GUARANTEE_WAIT_MAX_NS: u64 = 20_000_000;
/// A bucket that is all but empty is not looked at more often than this.
const CAP_LOOK_MIN_NS: u64 = 50_000;

/// The turn of a tenant: from the opening of its gate until another's may be opened.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) tenant: Tenant,
    /// Since when the gate has been open.
    since: u64,
    /// What was measured since, and for how long it had nothing to do.
    pub(super) used_ns: u64,
    idle_ns: u64,
    pub(super) idle_since: Option<u64>,
    slice_from: u64,
    slice_ns: u64,
    /// Others competed at the last decision.
    contended: bool,
    /// Another one has begun to compete, and whether it takes over wasn't decided yet.
    pub(super) challenged: bool,
    pub(super) closed: Option<Closed>,
}

/// A gate that was closed and whose tenant has work under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    since: u64,
    /// When the next is let in all the same.
    until: u64,
    /// Who is above this does not wait.
    level: Level,
}

/// A hand-over between equals, until what it cost is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handover {
    from: Tenant,
    to: Tenant,
    opened_at: u64,
    drained_at: Option<u64>,
}

impl Turn {
    /// For how long the tenant has had the device and something to do.
    pub(super) fn held_ns(&self, now: u64) -> u64 {
        let idle_ns = self.idle_ns + self.idle_since.map_or(0, |since| now.saturating_sub(since));
        now.saturating_sub(self.since).saturating_sub(idle_ns)
    }
}

impl Scheduler {
    /// The tenant has something to do.
    pub(super) fn wants(&mut self, tenant: Tenant) {
        let Some(member) = self.members.get_mut(&tenant) else { return };
        if !member.wants {
            member.wants = true;
            member.arrival = self.arrivals;
            self.arrivals += 1;
            if member.throttled {
                self.throttled.insert(tenant);
            }
        }
        let now = self.now;
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.tenant == tenant)
            && let Some(since) = turn.idle_since.take()
        {
            turn.idle_ns += now - since;
        }
        self.sync(tenant);
    }

    /// The tenant has nothing to do, and nothing under way. One that `rests` has lingered for long enough already.
    pub(super) fn idles(&mut self, tenant: Tenant, rests: bool, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(&tenant) else { return };
        member.wants = false;
        self.throttled.remove(&tenant);
        self.sync(tenant);
        let since = if rests { self.now.saturating_sub(self.rules.linger_ns) } else { self.now };
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.tenant == tenant) {
            let idle_since = turn.idle_since.get_or_insert(since);
            *idle_since = since.min(*idle_since);
        }
        self.drained(tenant, actions);
    }

    /// Nothing that the tenant was let launch is under way any more.
    pub(super) fn drained(&mut self, tenant: Tenant, actions: &mut Vec<Action>) {
        self.overlapping.retain(|other| *other != tenant);
        self.set_overlong(tenant, false);
        let now = self.now;
        if let Some(handover) = self.handover.as_mut().filter(|handover| handover.from == tenant) {
            handover.drained_at.get_or_insert(now);
        }
        if self.turn.take_if(|turn| turn.tenant == tenant && turn.closed.is_some()).is_some() {
            self.open_next(actions);
            self.note_handover(tenant, Some(now));
        }
    }

    /// What the tenant has under way will have ended at that time.
    pub(super) fn drains_at(&mut self, tenant: Tenant, at: u64) {
        let (now, lead_ns, drain_max_ns) = (self.now, self.pace.lead_ns(), self.rules.drain_max_ns);
        let turn = self.turn.as_mut().filter(|turn| turn.tenant == tenant);
        if let Some(closed) = turn.and_then(|turn| turn.closed.as_mut()) {
            let last = closed.since.saturating_add(drain_max_ns);
            closed.until = at.saturating_sub(lead_ns).max(now).min(last);
        }
    }

    /// So long went by between the opening of the tenant's gate and its first launch.
    pub(super) fn opened(&mut self, tenant: Tenant, latency_ns: u64) {
        if !self.members.contains_key(&tenant) {
            return;
        }
        self.pace.latency_was(latency_ns);
        if let Some(handover) = self.handover.take_if(|handover| handover.to == tenant) {
            // What isn't drained yet keeps the device busy: nothing was lost.
            let launched_at = handover.opened_at.saturating_add(latency_ns);
            let cost_ns = handover.drained_at.map_or(0, |drained_at| launched_at.saturating_sub(drained_at));
            self.pace.cost_was(cost_ns);
        }
    }

    /// Decides what is to be decided now.
    pub(super) fn decide(&mut self, actions: &mut Vec<Action>) {
        self.apply_caps();
        match &self.turn {
            None => self.open_next(actions),
            Some(turn) if turn.closed.is_some() => self.while_draining(actions),
            Some(_) => self.while_open(actions),
        }
    }

    /// When the next decision is due.
    pub(super) fn deadline(&self) -> Option<u64> {
        let mut next = self.throttled.iter().filter_map(|tenant| self.resumes_at(*tenant)).min();
        let mut at = |time: Option<u64>| next = [next, time].into_iter().flatten().min();
        let Some(turn) = &self.turn else { return next };
        if let Some(closed) = turn.closed {
            at(Some(closed.until));
            return next;
        }
        if turn.idle_since.is_none() {
            at(self.runs_out_at(turn.tenant));
        }
        if !self.is_contested(turn.tenant) {
            return next;
        }
        match turn.idle_since {
            Some(since) => at(Some(since.saturating_add(self.rules.linger_ns))),
            None if self.slices() => {
                at(Some(self.slice_end(turn)));
                at(self.rules.wake_grain_ns.filter(|_| turn.challenged).map(|grain| turn.since.saturating_add(grain)));
                self.class_deadlines(turn.tenant).into_iter().for_each(at);
            }
            None => {}
        }
        next
    }

    /// The gate is open: who else is to have it, and may it take it now?
    fn while_open(&mut self, actions: &mut Vec<Action>) {
        let Some(turn) = self.turn.as_mut() else { return };
        let (holder, first) = (turn.tenant, !turn.contended);
        let Some(member) = self.members.get_mut(&holder) else { return };
        if member.paused || member.throttled {
            return self.close(actions);
        }
        if !self.competing.iter().any(|other| *other != holder) {
            // Nobody is kept waiting: nothing is used that was somebody's due.
            turn.contended = false;
            turn.challenged = false;
            member.kind = Kind::Weight;
            return;
        }
        turn.contended = true;
        let level = self.level(holder);
        self.set_kind(holder, level);
        if first {
            self.renew(holder);
        }
        let (choice, left_ns, beaten) = self.foresee(|this| {
            let left_ns = this.members.get(&holder).map_or(0, |member| this.tree.left_ns(member.node));
            (this.choose(), left_ns, this.is_beaten(holder))
        });
        if first {
            self.begin_slice(left_ns);
        }
        let (Some(choice), Some(turn)) = (choice, self.turn.as_ref()) else { return };
        let ended = self.slices() && self.now >= self.slice_end(turn);
        let lingered = turn.idle_since.map(|since| self.now >= since.saturating_add(self.rules.linger_ns));
        if choice.tenant == holder {
            if ended {
                self.begin_slice(left_ns);
                self.set_member_kind(holder, choice.kind);
            }
        } else if choice.level > level && self.rules.preemption {
            self.replace(choice, actions);
        } else if let Some(lingered) = lingered {
            if lingered {
                self.replace(choice, actions);
            }
        } else if ended || beaten || (choice.kind == Kind::Floor && !self.is_batch(holder)) {
            self.close(actions);
        }
    }

    /// The gate is closed, and what was launched runs on.
    fn while_draining(&mut self, actions: &mut Vec<Action>) {
        let Some((from, closed)) = self.turn.as_ref().and_then(|turn| Some((turn.tenant, turn.closed?))) else {
            return;
        };
        let choice = self.foresee(Self::choose);
        let above = choice.is_some_and(|choice| choice.level > closed.level && self.rules.preemption);
        let again = choice.is_some_and(|choice| choice.tenant == from);
        if !above && !again && self.now < closed.until {
            return;
        }
        self.turn = None;
        if !again {
            self.overlapping.push(from);
            if !above && self.now >= closed.since.saturating_add(self.rules.drain_max_ns) {
                self.set_overlong(from, true);
            }
        }
        if let Some(choice) = choice {
            self.open(choice, actions);
        }
        if !above && !again {
            self.note_handover(from, None);
        }
    }

    /// Closes the holder's gate, and opens the next if nothing is to be waited for.
    fn close(&mut self, actions: &mut Vec<Action>) {
        let Some(turn) = self.turn.as_ref() else { return };
        let (tenant, idle) = (turn.tenant, turn.idle_since.is_some());
        let level = self.level(tenant);
        actions.push(Action::Close(tenant));
        if idle {
            self.turn = None;
            return self.open_next(actions);
        }
        let until = self.now.saturating_add(self.rules.drain_max_ns);
        if let Some(turn) = self.turn.as_mut() {
            turn.closed = Some(Closed { since: self.now, until, level });
        }
        if until <= self.now {
            self.while_draining(actions);
        }
    }

    /// Opens the gate of another at once; what the holder has under way runs on beside it.
    fn replace(&mut self, choice: Choice, actions: &mut Vec<Action>) {
        if let Some(turn) = self.turn.take() {
            actions.push(Action::Close(turn.tenant));
            if turn.idle_since.is_none() {
                self.overlapping.push(turn.tenant);
            }
        }
        self.open(choice, actions);
    }

    fn open_next(&mut self, actions: &mut Vec<Action>) {
        if self.competing.is_empty() {
            // Nobody is kept waiting by those whose work goes on and on. Where there is a cap, it has to be measured first.
            for tenant in self.overlapping.clone() {
                if self.members.get(&tenant).is_some_and(|member| member.limit.is_none()) {
                    self.set_overlong(tenant, false);
                }
            }
        }
        if let Some(choice) = self.choose() {
            self.open(choice, actions);
        }
    }

    /// Who had more under way than the drain is waited for has its turn already, beside the others': it gets no other
    /// while it lasts, since the others would wait for the end of that again.
    fn set_overlong(&mut self, tenant: Tenant, overlong: bool) {
        if let Some(member) = self.members.get_mut(&tenant).filter(|member| member.overlong != overlong) {
            member.overlong = overlong;
            self.sync(tenant);
        }
    }

    fn open(&mut self, choice: Choice, actions: &mut Vec<Action>) {
        let Choice { tenant, kind, .. } = choice;
        self.overlapping.retain(|other| *other != tenant);
        self.turn = Some(Turn {
            tenant,
            since: self.now,
            used_ns: 0,
            idle_ns: 0,
            idle_since: None,
            slice_from: self.now,
            slice_ns: 0,
            contended: self.is_contested(tenant),
            challenged: false,
            closed: None,
        });
        self.set_member_kind(tenant, kind);
        let left_ns = self.members.get(&tenant).map_or(0, |member| self.tree.left_ns(member.node));
        self.begin_slice(left_ns);
        self.handover = None;
        actions.push(Action::Open(tenant));
    }

    /// What is left of the slice begins now.
    fn begin_slice(&mut self, left_ns: u64) {
        let quantum_ns = self.quantum_ns();
        let Some(turn) = self.turn.as_mut() else { return };
        let mut slice_ns = left_ns.clamp(SLICE_MIN_NS, quantum_ns);
        if self.members.get(&turn.tenant).is_some_and(|member| member.kind == Kind::Floor) {
            slice_ns = slice_ns.min(self.floor.credit_ns().max(SLICE_MIN_NS));
        }
        (turn.slice_from, turn.slice_ns) = (self.now, slice_ns);
    }

    /// When the holder's slice ends. Among batch alone it is a long one, as long as it is among batch alone.
    fn slice_end(&self, turn: &Turn) -> u64 {
        let mut slice_ns = turn.slice_ns;
        if self.is_batch(turn.tenant) && self.is_batch_only() {
            slice_ns = self.rules.batch_quantum_ns.max(SLICE_MIN_NS);
        }
        let mut others = self.competing.iter().filter(|other| **other != turn.tenant);
        if others.any(|other| self.members.get(other).is_some_and(|member| member.guarantee.rate() > 0)) {
            slice_ns = slice_ns.min(GUARANTEE_WAIT_MAX_NS);
        }
        turn.slice_from.saturating_add(slice_ns)
    }

    /// The holder had the device to itself, and others have come: its slice begins now.
    fn renew(&mut self, holder: Tenant) {
        let quantum_ns = self.quantum_ns();
        if let Some(member) = self.members.get(&holder) {
            self.tree.renew(member.node, quantum_ns);
        }
    }

    /// Whether one that has begun to compete during this slice is to take the holder's place before its end. Each has
    /// one chance, when it comes or as soon as the holder has had the least that it gets.
    fn is_beaten(&mut self, holder: Tenant) -> bool {
        let (now, slices) = (self.now, self.slices());
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.challenged) else { return false };
        let Some(grain_ns) = self.rules.wake_grain_ns.filter(|_| slices) else {
            turn.challenged = false;
            return false;
        };
        if turn.idle_since.is_some() || now < turn.since.saturating_add(grain_ns) {
            return false;
        }
        turn.challenged = false;
        let since = turn.slice_from;
        let Some(member) = self.members.get(&holder) else { return false };
        let by_due = matches!(member.kind, Kind::Guarantee | Kind::Floor);
        // Long turns are what batch is for.
        if by_due || self.is_batch_only() {
            return false;
        }
        let mut woken = self.competing.iter().filter(|other| **other != holder);
        woken.any(|other| {
            let Some(other) = self.members.get(other) else { return false };
            other.woke_at >= since && self.tree.beats(other.node, member.node, grain_ns)
        })
    }

    /// Between equals, what it costs to change hands is measured.
    fn note_handover(&mut self, from: Tenant, drained_at: Option<u64>) {
        let Some(turn) = self.turn.as_ref().filter(|turn| turn.tenant != from) else { return };
        self.handover = Some(Handover { from, to: turn.tenant, opened_at: self.now, drained_at });
    }

    /// What a holder of the high class uses while others wait goes to the budget, as long as there is one.
    fn set_kind(&mut self, holder: Tenant, level: Level) {
        let Some(member) = self.members.get_mut(&holder) else { return };
        if member.share.class == Priority::High && self.rules.policy == super::Policy::PriorityFair {
            if level == Level::Top {
                member.kind = Kind::Budget;
            } else if member.kind == Kind::Budget {
                member.kind = Kind::Weight;
            }
        }
    }

    fn set_member_kind(&mut self, tenant: Tenant, kind: Kind) {
        if let Some(member) = self.members.get_mut(&tenant) {
            member.kind = kind;
        }
    }

    fn is_batch(&self, tenant: Tenant) -> bool {
        self.members.get(&tenant).is_some_and(|member| member.share.class == Priority::Batch)
    }

    /// True while others compete.
    fn is_contested(&self, tenant: Tenant) -> bool {
        self.competing.iter().any(|other| *other != tenant)
    }

    fn resumes_at(&self, tenant: Tenant) -> Option<u64> {
        let limit = self.members.get(&tenant).filter(|member| !member.paused)?.limit?;
        Some(limit.resumes_at(self.word(tenant)).max(self.now + 1))
    }

    fn runs_out_at(&self, tenant: Tenant) -> Option<u64> {
        let limit = self.members.get(&tenant)?.limit?;
        Some(limit.lasts_until(self.word(tenant), self.now).max(self.now + CAP_LOOK_MIN_NS))
    }

    /// When the budget of the high class or the least of batch is there, if somebody waits for it.
    fn class_deadlines(&self, holder: Tenant) -> [Option<u64>; 2] {
        let high = self.tree.is_active(self.roots.high) && !self.is_high(holder);
        let batch = self.tree.is_active(self.roots.batch) && !self.is_batch(holder);
        // The quantum may have changed in this very step, and with it what is to be in the budget.
        let soon = |at: u64| at.max(self.now + 1);
        [
            self.budget.available_at(self.quantum_ns()).filter(|_| high).map(soon),
            self.floor.available_at(u64::MAX).filter(|_| batch).map(soon),
        ]
    }

    fn is_high(&self, tenant: Tenant) -> bool {
        self.members.get(&tenant).is_some_and(|member| member.share.class == Priority::High)
    }
}
