//! The rules one by one, by hand-made traces ([`turns`], [`debts`], [`classes`], [`lives`]) and on a device of a few lines that
//! is driven at random ([`device`], [`shares`]).

mod classes;
mod debts;
mod device;
mod lives;
mod shares;
mod turns;

use super::{Action, Event, Quantum, Rules, Scheduler, Share, Tenant};
use crate::{Percent, Priority};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const A: Tenant = Tenant(1);
const B: Tenant = Tenant(2);
const C: Tenant = Tenant(3);

/// The model's settings: turns of 3 ms.
fn rules() -> Rules {
    Rules { quantum: Quantum::Fixed(3 * MS), ..Rules::default() }
}

fn normal(weight: u32) -> Share {
    Share { weight, guarantee: None, cap: None, class: Priority::Normal, pool: None }
}

fn of_class(class: Priority) -> Share {
    Share { class, ..normal(100) }
}

fn percent(percent: u32) -> Option<Percent> {
    Percent::from_hundredths(percent * 100)
}

/// A scheduler with a clock that is moved by hand.
struct Desk {
    scheduler: Scheduler,
    now: u64,
}

impl Desk {
    /// Tenants with their shares, a second after the beginning of time.
    fn new(rules: Rules, tenants: &[(Tenant, Share)]) -> Self {
        let mut desk = Self { scheduler: Scheduler::new(rules), now: 1000 * MS };
        for (tenant, share) in tenants {
            assert_eq!(
                desk.ask(|scheduler, now, actions| assert!(scheduler.attach(*tenant, *share, now, actions))),
                []
            );
        }
        desk
    }

    fn ask(&mut self, what: impl FnOnce(&mut Scheduler, u64, &mut Vec<Action>)) -> Vec<Action> {
        let mut actions = Vec::new();
        what(&mut self.scheduler, self.now, &mut actions);
        self.scheduler.check();
        actions
    }

    fn step(&mut self, event: Event) -> Vec<Action> {
        self.ask(|scheduler, now, actions| scheduler.step(event, now, actions))
    }

    fn wants(&mut self, tenant: Tenant) -> Vec<Action> {
        self.step(Event::Wants(tenant))
    }

    fn idles(&mut self, tenant: Tenant) -> Vec<Action> {
        self.step(Event::Idles(tenant))
    }

    /// Lets time pass in which the tenant uses the device, and says so.
    fn uses(&mut self, tenant: Tenant, ns: u64) -> Vec<Action> {
        self.now += ns;
        self.step(Event::Used(tenant, ns))
    }

    /// Lets time pass in which nothing is told.
    fn pass(&mut self, ns: u64) -> Vec<Action> {
        self.now += ns;
        self.step(Event::Tick)
    }

    /// In how long the next decision is due.
    fn due(&self) -> Option<u64> {
        self.scheduler.next_deadline().map(|deadline| deadline - self.now)
    }

    /// Lets turns pass until the tenant has just got the token from another.
    fn until_turn_of(&mut self, tenant: Tenant) {
        self.turns(1, MS);
        while self.scheduler.holder() != Some(tenant) {
            self.turns(1, MS);
        }
    }

    /// The turns that follow if all that compete use what they get in pieces, and end at once: who had how much.
    fn turns(&mut self, count: usize, piece_ns: u64) -> Vec<(Tenant, u64)> {
        let mut turns = Vec::new();
        let mut used_ns = 0;
        while turns.len() < count {
            let holder = self.scheduler.holder().expect("somebody has the token");
            used_ns += piece_ns;
            let mut actions = self.uses(holder, piece_ns);
            if actions == [close(holder)] {
                actions = self.step(Event::Drained(holder));
                assert!(matches!(actions[..], [Action::Open(_)]), "{actions:?}");
                turns.push((holder, used_ns));
                used_ns = 0;
            } else {
                assert_eq!(actions, []);
            }
        }
        turns
    }
}

fn open(tenant: Tenant) -> Action {
    Action::Open(tenant)
}

fn close(tenant: Tenant) -> Action {
    Action::Close(tenant)
}

/// Who had how much in all.
fn sum(turns: &[(Tenant, u64)], tenant: Tenant) -> u64 {
    turns.iter().filter(|(holder, _)| *holder == tenant).map(|(_, ns)| ns).sum()
}
