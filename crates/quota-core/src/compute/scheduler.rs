//! Who has the token of a device, decided without a clock: [`Scheduler::step`] takes an event and the time and says
//! whose gate is to be opened or closed.

use crate::{Percent, Priority};

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
}

impl Scheduler {
    /// A device that nobody uses.
    pub fn new(rules: Rules) -> Self {
        Self { rules }
    }

    /// Changes the rules; they hold from the next decision on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// A tenant uses the device from now on; its gate is closed.
    pub fn attach(&mut self, _tenant: Tenant, _share: Share, _now: u64, _actions: &mut Vec<Action>) {}

    /// The tenant is gone; whatever it had under way is not waited for.
    pub fn detach(&mut self, _tenant: Tenant, _now: u64, _actions: &mut Vec<Action>) {}

    /// The tenant is to get something else; what it has used stays.
    pub fn change(&mut self, _tenant: Tenant, _share: Share, _now: u64, _actions: &mut Vec<Action>) {}

    /// The tenant gets nothing until it is resumed.
    pub fn pause(&mut self, _tenant: Tenant, _now: u64, _actions: &mut Vec<Action>) {}

    /// It is served as before.
    pub fn resume(&mut self, _tenant: Tenant, _now: u64, _actions: &mut Vec<Action>) {}

    /// Something has happened at `now`.
    pub fn step(&mut self, _event: Event, _now: u64, _actions: &mut Vec<Action>) {}

    /// When time is to pass next (an [`Event::Tick`] is due); none while nothing is to be decided.
    pub fn next_deadline(&self) -> Option<u64> {
        None
    }

    /// Who has the token.
    pub fn holder(&self) -> Option<Tenant> {
        None
    }

    /// True while some tenant other than `tenant` waits or runs.
    pub fn is_contended(&self, _tenant: Tenant) -> bool {
        false
    }

    /// Length of a turn now, in nanoseconds.
    pub fn quantum_ns(&self) -> u64 {
        3_000_000
    }
}
