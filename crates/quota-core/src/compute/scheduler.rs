//! Who has the token of a device, decided without a clock: [`Scheduler::step`] takes an event and the time and says
//! whose gate is to be opened or closed.
//!
//! The device's time is shared out in a tree, device, class, tenant ([`tree`]); `choose` says who is to be served now
//! and why, `token` when the token changes hands. What is charged is what was measured, all of it: a kernel that ran
//! past the end of a turn is a debt. In the meantime a holder is taken to have used the device since its turn began,
//! so that a decision in the middle of a long kernel is the one that its end will show to have been right.
//!
//! One gate is open at a time. What a tenant has under way when its gate is closed runs on, beside the next one's if
//! that is not to wait for it.

mod account;
mod choose;
mod pace;
mod pools;
mod token;
mod tree;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::{Percent, Priority};

use super::Limit;
use account::{BUDGET_PERIOD_NS, BUDGET_RATE, Budget, FLOOR_PERIOD_NS, FLOOR_RATE, Guarantee};
use choose::Kind;
use pace::Pace;
use token::{Handover, Turn};
use tree::{Node, Tree};

/// Most tenants of a device: a decision looks at all that compete, and a node runs far fewer containers.
pub const TENANTS_MAX: usize = 4096;

/// Names a tenant on this device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tenant(pub u64);

/// What a tenant is to get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Weight among those of its class, 1 to 10,000.
    pub weight: u32,
    /// Least share of the device's time while it has work.
    pub guarantee: Option<Percent>,
    /// Most share of the device's time, where the scheduler and not the shim enforces it.
    pub cap: Option<Percent>,
    /// Its class.
    pub class: Priority,
    /// What it shares with others before the rest of its class is shared with.
    pub pool: Option<Pool>,
}

/// Several tenants that get by their own weights what they get together by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pool {
    /// Which.
    pub id: u64,
    /// Its weight among those of its class, 1 to 10,000; that of the tenant that was attached or changed last.
    pub weight: u32,
}

/// In which order tenants are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// By when they began to want, each until it has nothing to do.
    Fifo,
    /// By class, in each by when they began to want.
    Priority,
    /// By weight, whatever the class.
    Fair,
    /// By class, in each by weight.
    #[default]
    PriorityFair,
}

/// How long a turn lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Quantum {
    /// Long enough that changing hands costs no more than a fiftieth of the time, 1 ms to 20 ms.
    #[default]
    Adaptive,
    /// So many nanoseconds, 1 ms to 1 s.
    Fixed(u64),
}

/// How a device is shared out. The defaults are those of the model; each can be changed so that the reason for it can
/// be shown again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Who is served.
    pub policy: Policy,
    /// For how long.
    pub quantum: Quantum,
    /// Whether one of a higher class takes the token at once.
    pub preemption: bool,
    /// Turn of a batch tenant while nobody else waits, in nanoseconds.
    pub batch_quantum_ns: u64,
    /// How long an idle holder keeps the token.
    pub linger_ns: u64,
    /// Least that a holder gets before one of its own class that wakes up may take its place; none for never.
    pub wake_grain_ns: Option<u64>,
    /// Longest wait for what an equal has under way, before the next is let in all the same.
    pub drain_max_ns: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            quantum: Quantum::default(),
            preemption: true,
            batch_quantum_ns: 500_000_000,
            linger_ns: 100_000,
            wake_grain_ns: Some(1_000_000),
            drain_max_ns: 25_000_000,
        }
    }
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The tenant has work: it waits at its gate, or goes on launching after it was idle.
    Wants(Tenant),
    /// All that the tenant had has ended, and nothing waits.
    Idles(Tenant),
    /// As before, and it is known not to go on soon: nobody lingers for it.
    Rests(Tenant),
    /// The tenant was measured to have used so many nanoseconds of the device since it was last told.
    Used(Tenant, u64),
    /// All that the tenant had under way when its gate was closed has ended.
    Drained(Tenant),
    /// What the tenant has under way will have ended at this time.
    DrainsAt(Tenant, u64),
    /// Between the opening of the tenant's gate and its first launch went so many nanoseconds.
    Opened(Tenant, u64),
    /// Time has passed.
    Tick,
}

/// What has to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The tenant may launch.
    Open(Tenant),
    /// It may not.
    Close(Tenant),
}

/// The token of one device.
#[derive(Clone, Debug)]
pub struct Scheduler {
    rules: Rules,
    /// The latest time that was told.
    now: u64,
    pace: Pace,
    tree: Tree,
    roots: Roots,
    pools: pools::Pools,
    members: BTreeMap<Tenant, Member>,
    leaves: BTreeMap<Node, Tenant>,
    /// Those that could be served now.
    competing: BTreeSet<Tenant>,
    /// Those out of credit.
    throttled: BTreeSet<Tenant>,
    turn: Option<Turn>,
    /// Those whose gate is closed and whose work runs beside another's.
    overlapping: Vec<Tenant>,
    /// What the high class may use before all others.
    budget: Budget,
    /// What batch is let have though others wait.
    floor: Budget,
    handover: Option<Handover>,
    /// How often somebody began to want.
    arrivals: u64,
}

/// The queues of the classes. That of the high class is a child of that of the normal one, with the weight of its
/// tenants that compete: beyond its budget it shares with the normal ones.
#[derive(Clone, Copy, Debug)]
struct Roots {
    normal: Node,
    high: Node,
    batch: Node,
}

/// What is known of a tenant.
#[derive(Clone, Debug)]
struct Member {
    share: Share,
    node: Node,
    wants: bool,
    paused: bool,
    throttled: bool,
    /// What it was let launch outlasts the wait for it.
    overlong: bool,
    /// Wants, and nothing of that stands in the way.
    competes: bool,
    /// Its place among those that began to want.
    arrival: u64,
    /// When it began to compete.
    woke_at: u64,
    /// Why it was given its last turn.
    kind: Kind,
    guarantee: Guarantee,
    limit: Option<Limit>,
    /// The word of its bucket.
    empty_at: u64,
}

impl Member {
    fn could_be_served(&self) -> bool {
        self.wants && !self.paused && !self.throttled && !self.overlong
    }
}

impl Scheduler {
    /// A device that nobody uses.
    pub fn new(rules: Rules) -> Self {
        let mut tree = Tree::default();
        let normal = tree.add(None, 1);
        let high = tree.add(Some(normal), 0);
        let batch = tree.add(None, 1);
        Self {
            rules,
            now: 0,
            pace: Pace::new(),
            tree,
            roots: Roots { normal, high, batch },
            pools: pools::Pools::default(),
            members: BTreeMap::new(),
            leaves: BTreeMap::new(),
            competing: BTreeSet::new(),
            throttled: BTreeSet::new(),
            turn: None,
            overlapping: Vec::new(),
            budget: Budget::new(BUDGET_RATE, BUDGET_PERIOD_NS, true),
            floor: Budget::new(FLOOR_RATE, FLOOR_PERIOD_NS, false),
            handover: None,
            arrivals: 0,
        }
    }

    /// Changes the rules; they hold from the next decision on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        let tenants: Vec<Tenant> = self.members.keys().copied().collect();
        for tenant in tenants {
            self.settle_in(tenant);
        }
    }

    /// A tenant uses the device from now on; its gate is closed. False if there are [`TENANTS_MAX`] already, and it is
    /// not taken in. One that is there already is changed.
    pub fn attach(&mut self, tenant: Tenant, share: Share, now: u64, actions: &mut Vec<Action>) -> bool {
        if self.members.contains_key(&tenant) {
            self.change(tenant, share, now, actions);
            return true;
        }
        if self.members.len() >= TENANTS_MAX {
            return false;
        }
        self.advance(now);
        let queue = self.queue(&share);
        let node = self.tree.add(Some(queue), share.weight.max(1));
        let mut guarantee = Guarantee::default();
        guarantee.set_rate(share.guarantee.map_or(0, Percent::hundredths));
        guarantee.pass(self.now, false);
        let limit = share.cap.map(|cap| Limit::new(cap, self.quantum_ns()));
        // No credit was saved up before: to come and go is not to gain any.
        let empty_at = self.now.saturating_sub(1);
        let member = Member {
            share,
            node,
            wants: false,
            paused: false,
            throttled: false,
            overlong: false,
            competes: false,
            arrival: 0,
            woke_at: 0,
            kind: Kind::Weight,
            guarantee,
            limit,
            empty_at,
        };
        self.members.insert(tenant, member);
        self.leaves.insert(node, tenant);
        self.decide(actions);
        true
    }

    /// The tenant is gone; whatever it had under way is not waited for. Its gate is gone too: there is no action on it.
    pub fn detach(&mut self, tenant: Tenant, now: u64, actions: &mut Vec<Action>) {
        self.advance(now);
        let Some(member) = self.members.remove(&tenant) else { return };
        self.tree.remove(member.node, self.now, self.quantum_ns());
        self.leaves.remove(&member.node);
        self.drop_empty_pools();
        self.competing.remove(&tenant);
        self.throttled.remove(&tenant);
        self.overlapping.retain(|other| *other != tenant);
        self.turn.take_if(|turn| turn.tenant == tenant);
        self.decide(actions);
    }

    /// The tenant is to get something else; what it has used stays.
    pub fn change(&mut self, tenant: Tenant, share: Share, now: u64, actions: &mut Vec<Action>) {
        self.advance(now);
        let (now, quantum_ns) = (self.now, self.quantum_ns());
        let Some(member) = self.members.get_mut(&tenant) else { return };
        member.share = share;
        member.guarantee.set_rate(share.guarantee.map_or(0, Percent::hundredths));
        let limit = share.cap.map(|cap| Limit::new(cap, quantum_ns));
        let credit_ns = member.limit.map_or(0, |old| old.credit_ns(member.empty_at, now));
        if let Some(limit) = limit.filter(|_| credit_ns <= 0) {
            // As much debt as before, which the new rate pays off.
            member.empty_at = limit.charge(now.saturating_sub(1), credit_ns.unsigned_abs(), now);
        }
        member.limit = limit;
        self.tree.set_weight(member.node, share.weight);
        self.settle_in(tenant);
        self.decide(actions);
    }

    /// The tenant gets nothing until it is resumed; an open gate is closed at once.
    pub fn pause(&mut self, tenant: Tenant, now: u64, actions: &mut Vec<Action>) {
        self.set_paused(tenant, true, now, actions);
    }

    /// It is served as before.
    pub fn resume(&mut self, tenant: Tenant, now: u64, actions: &mut Vec<Action>) {
        self.set_paused(tenant, false, now, actions);
    }

    /// Something has happened at `now`. Time that goes backwards stands still; tenants that are not attached are
    /// ignored. What was used is to be told before what happened at its end, and before others begin to want.
    pub fn step(&mut self, event: Event, now: u64, actions: &mut Vec<Action>) {
        self.advance(now);
        match event {
            Event::Wants(tenant) => self.wants(tenant),
            Event::Idles(tenant) => self.idles(tenant, false, actions),
            Event::Rests(tenant) => self.idles(tenant, true, actions),
            Event::Used(tenant, used_ns) => self.charge(tenant, used_ns),
            Event::Drained(tenant) => self.drained(tenant, actions),
            Event::DrainsAt(tenant, at) => self.drains_at(tenant, at),
            Event::Opened(tenant, latency_ns) => self.opened(tenant, latency_ns),
            Event::Tick => {}
        }
        self.decide(actions);
    }

    /// When time is to pass next (an [`Event::Tick`] is due); none while nothing is to be decided. It is later than the
    /// time that was last told.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadline()
    }

    /// Whose gate is open.
    pub fn holder(&self) -> Option<Tenant> {
        self.turn.as_ref().filter(|turn| turn.closed.is_none()).map(|turn| turn.tenant)
    }

    /// Who was closed and is waited for.
    pub fn draining(&self) -> Option<Tenant> {
        self.turn.as_ref().filter(|turn| turn.closed.is_some()).map(|turn| turn.tenant)
    }

    /// Whose work runs on beside that of another, with a closed gate.
    pub fn overlapping(&self) -> &[Tenant] {
        &self.overlapping
    }

    /// True while some tenant other than `tenant` waits or runs; one that is paused does not count.
    pub fn is_contended(&self, tenant: Tenant) -> bool {
        let other = |other: &Tenant| *other != tenant;
        self.competing.iter().any(other)
            || self.throttled.iter().any(other)
            || self.overlapping.iter().any(other)
            || self.turn.as_ref().is_some_and(|turn| turn.tenant != tenant && turn.idle_since.is_none())
    }

    /// Length of a turn now, in nanoseconds.
    pub fn quantum_ns(&self) -> u64 {
        self.pace.quantum_ns(self.rules.quantum)
    }

    /// By how much device time the tenant is behind what its weight gives it among its siblings, in nanoseconds; ahead
    /// of it is below zero.
    pub fn lag_ns(&self, tenant: Tenant) -> Option<i64> {
        self.members.get(&tenant).map(|member| self.tree.lag_ns(member.node))
    }

    /// Asserts what has to hold between any two events.
    ///
    /// # Panics
    ///
    /// If it doesn't.
    pub fn check(&self) {
        self.tree.check();
        for (tenant, member) in &self.members {
            let competes = member.could_be_served();
            assert_eq!(member.competes, competes, "{tenant:?} competes if it could be served");
            assert_eq!(self.competing.contains(tenant), competes, "{tenant:?} is counted among those that compete");
            let waits = member.throttled && member.wants;
            assert_eq!(self.throttled.contains(tenant), waits, "{tenant:?} waits for credit");
            assert!(!waits || member.paused || self.deadline().is_some(), "{tenant:?} waits for credit for ever");
            assert_eq!(self.leaves.get(&member.node), Some(tenant));
        }
        let attached = |tenant: &Tenant| self.members.contains_key(tenant);
        assert!(self.competing.iter().chain(&self.throttled).all(attached), "one that is gone is to be served");
        assert!(self.overlapping.iter().all(attached), "one that is gone overlaps");
        assert!(self.turn.is_some() || self.competing.is_empty(), "somebody waits and nobody is served");
        if let Some(turn) = &self.turn {
            assert!(attached(&turn.tenant), "one that is gone holds the token");
            assert!(!self.overlapping.contains(&turn.tenant), "the holder overlaps itself");
            assert!(!self.members[&turn.tenant].overlong, "the holder has its turn already");
            let deadline = self.deadline();
            let contended = self.competing.iter().any(|other| *other != turn.tenant);
            let by_turns = self.slices();
            assert!(turn.closed.is_none() || deadline.is_some(), "a hand-over without a deadline");
            assert!(!contended || !by_turns || deadline.is_some(), "others wait, and nothing ends the turn");
        }
        let late = self.deadline().filter(|deadline| *deadline <= self.now);
        assert!(late.is_none(), "at {} a deadline has passed, {late:?}: {:?}", self.now, self.turn);
    }

    fn set_paused(&mut self, tenant: Tenant, paused: bool, now: u64, actions: &mut Vec<Action>) {
        self.advance(now);
        let Some(member) = self.members.get_mut(&tenant) else { return };
        member.paused = paused;
        self.sync(tenant);
        self.decide(actions);
    }

    /// The queue of a tenant's class.
    fn root(&self, share: &Share) -> Node {
        match (self.rules.policy, share.class) {
            (Policy::Fair | Policy::Fifo, _) | (_, Priority::Normal) => self.roots.normal,
            (_, Priority::High) => self.roots.high,
            (_, Priority::Batch) => self.roots.batch,
        }
    }

    /// Moves a tenant to the queue where it belongs. It takes its debt along.
    fn settle_in(&mut self, tenant: Tenant) {
        let (now, quantum_ns) = (self.now, self.quantum_ns());
        let Some(share) = self.members.get(&tenant).map(|member| member.share) else { return };
        let parent = self.queue(&share);
        let Some(member) = self.members.get(&tenant) else { return };
        let old = member.node;
        if self.tree.parent(old) == Some(parent) {
            return;
        }
        let (competes, weight) = (member.competes, member.share.weight.max(1));
        let debt_ns = self.tree.lag_ns(old).min(0).unsigned_abs();
        self.tree.remove(old, now, quantum_ns);
        self.leaves.remove(&old);
        let node = self.tree.add(Some(parent), weight);
        self.tree.set_debt(node, debt_ns);
        self.tree.set_competes(node, competes, now, quantum_ns);
        self.leaves.insert(node, tenant);
        if let Some(member) = self.members.get_mut(&tenant) {
            (member.node, member.kind) = (node, Kind::Weight);
        }
        self.drop_empty_pools();
    }
}
