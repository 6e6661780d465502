//! A device of a few lines: it runs one kernel after the other, in the order in which they were launched. Tenants
//! launch ahead by a bounded time while their gate is open, and the device tells the scheduler what the daemon would.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;

/// Work under way per tenant, in nanoseconds.
pub(super) const AHEAD_NS: u64 = MS;
/// From the opening of a gate to the first launch.
const LATENCY_NS: u64 = 20 * US;

/// Numbers from a seed (xorshift).
#[derive(Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number of a range, both ends included.
    pub(super) fn within(&mut self, range: (u64, u64)) -> u64 {
        range.0 + self.next() % (range.1 - range.0 + 1)
    }
}

/// What a tenant does.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) share: Share,
    /// Length of its kernels.
    pub(super) kernel_ns: (u64, u64),
    /// Work between two pauses, and their length; none if it never pauses.
    pub(super) burst: Option<((u64, u64), (u64, u64))>,
    /// Says when it will be drained.
    pub(super) tells: bool,
}

pub(super) fn busy(share: Share, kernel_ns: (u64, u64)) -> Job {
    Job { share, kernel_ns, burst: None, tells: true }
}

pub(super) struct Device {
    pub(super) scheduler: Scheduler,
    pub(super) now: u64,
    pub(super) dice: Dice,
    pub(super) jobs: Vec<State>,
    running: VecDeque<(usize, u64)>,
    queue: BinaryHeap<Reverse<(u64, u64, What)>>,
    told: u64,
    pub(super) events: u64,
    /// A number that any other order of actions would make another one.
    pub(super) fingerprint: u64,
    /// Nobody is to be further from its share than theory allows.
    pub(super) check_lag: bool,
    tick_at: Option<u64>,
}

pub(super) struct State {
    pub(super) job: Job,
    pub(super) attached: bool,
    open: bool,
    opened_at: Option<u64>,
    left_ns: u64,
    queued_ns: u64,
    idle: bool,
    /// Kernels by when they ended.
    pub(super) served: Vec<(u64, u64)>,
    pub(super) used_ns: u64,
    /// Longest that it had work and none of it ran.
    pub(super) starved_ns: u64,
    last_ran: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    Ends,
    Arrives(usize),
    Launches(usize),
    Tick,
}

impl Device {
    pub(super) fn new(rules: Rules, seed: u64, jobs: &[Job]) -> Self {
        let mut device = Self {
            scheduler: Scheduler::new(rules),
            now: 0,
            dice: Dice::new(seed),
            jobs: Vec::new(),
            running: VecDeque::new(),
            queue: BinaryHeap::new(),
            told: 0,
            events: 0,
            fingerprint: 0,
            check_lag: false,
            tick_at: None,
        };
        jobs.iter().for_each(|job| device.add(*job));
        device
    }

    /// A tenant more; its work arrives at once.
    pub(super) fn add(&mut self, job: Job) {
        let index = self.jobs.len();
        self.jobs.push(State {
            job,
            attached: true,
            open: false,
            opened_at: None,
            left_ns: 0,
            queued_ns: 0,
            idle: true,
            served: Vec::new(),
            used_ns: 0,
            starved_ns: 0,
            last_ran: 0,
        });
        self.ask(|scheduler, now, actions| {
            scheduler.attach(Tenant(index as u64), job.share, now, actions);
        });
        self.later(0, What::Arrives(index));
    }

    /// Takes a tenant away. What it launched runs on.
    pub(super) fn kill(&mut self, index: usize) {
        self.jobs[index].attached = false;
        self.jobs[index].open = false;
        self.ask(|scheduler, now, actions| scheduler.detach(Tenant(index as u64), now, actions));
        assert_ne!(self.scheduler.holder(), Some(Tenant(index as u64)));
    }

    pub(super) fn run(&mut self, for_ns: u64) {
        let until = self.now + for_ns;
        while let Some(Reverse((at, ..))) = self.queue.peek()
            && *at <= until
        {
            let Some(Reverse((at, _, what))) = self.queue.pop() else { break };
            self.now = at;
            self.events += 1;
            match what {
                What::Ends => self.ends(),
                What::Arrives(index) => self.arrives(index),
                What::Launches(index) => self.launches(index),
                What::Tick if self.tick_at == Some(at) => {
                    self.tick_at = None;
                    self.step(Event::Tick);
                }
                What::Tick => {}
            }
        }
        self.now = until;
    }

    /// What each used since a time, in ten-thousandths of it.
    pub(super) fn parts_since(&self, from: u64) -> Vec<u64> {
        let used = |state: &State| state.served.iter().filter(|(at, _)| *at > from).map(|(_, ns)| ns).sum::<u64>();
        self.jobs.iter().map(|state| used(state) * 10_000 / (self.now - from)).collect()
    }

    pub(super) fn step(&mut self, event: Event) {
        self.ask(|scheduler, now, actions| scheduler.step(event, now, actions));
    }

    pub(super) fn ask(&mut self, what: impl FnOnce(&mut Scheduler, u64, &mut Vec<Action>)) {
        let mut actions = Vec::new();
        what(&mut self.scheduler, self.now, &mut actions);
        self.scheduler.check();
        for action in &actions {
            self.act(*action);
        }
        self.check();
        actions.iter().for_each(|action| self.tell(*action));
        if let Some(deadline) = self.scheduler.next_deadline()
            && self.tick_at.is_none_or(|tick_at| deadline < tick_at)
        {
            self.tick_at = Some(deadline);
            self.later(deadline - self.now, What::Tick);
        }
    }

    fn act(&mut self, action: Action) {
        let (Action::Open(tenant) | Action::Close(tenant)) = action;
        let index = tenant.0 as usize;
        let opens = matches!(action, Action::Open(_));
        self.fingerprint = self.fingerprint.rotate_left(5) ^ self.now ^ (tenant.0 << 1 | u64::from(opens));
        assert!(self.jobs[index].attached, "{action:?} of one that is gone");
        assert_ne!(self.jobs[index].open, opens, "{action:?} changes nothing");
        self.jobs[index].open = opens;
        if opens {
            self.jobs[index].opened_at = Some(self.now);
            self.later(LATENCY_NS, What::Launches(index));
        }
    }

    /// What a tenant lets be known whose gate was closed.
    fn tell(&mut self, action: Action) {
        let Action::Close(tenant) = action else { return };
        let index = tenant.0 as usize;
        let state = &self.jobs[index];
        if state.queued_ns == 0 {
            // Nothing is under way: that is told as soon as the daemon has looked.
            self.later(0, What::Launches(index));
        } else if state.job.tells {
            let until = self.now + self.running.iter().map(|(_, ns)| ns).sum::<u64>();
            self.step(Event::DrainsAt(tenant, until));
        }
    }

    fn check(&mut self) {
        let open: Vec<usize> = (0..self.jobs.len()).filter(|index| self.jobs[*index].open).collect();
        assert!(open.len() <= 1, "more than one gate is open: {open:?}");
        let holder = self.scheduler.holder().map(|tenant| tenant.0 as usize);
        assert_eq!(open.first().copied(), holder);
        if self.check_lag {
            let kernel_ns = self.jobs.iter().map(|state| state.job.kernel_ns.1).max().unwrap_or(0);
            let most = (self.scheduler.quantum_ns() + kernel_ns + AHEAD_NS) as i64;
            for index in 0..self.jobs.len() {
                let Some(lag) = self.scheduler.lag_ns(Tenant(index as u64)) else { continue };
                assert!(lag.abs() <= most, "tenant {index} is {lag} ns off");
            }
        }
    }

    fn arrives(&mut self, index: usize) {
        let state = &mut self.jobs[index];
        if !state.attached || state.left_ns > 0 {
            return;
        }
        state.left_ns = match state.job.burst {
            Some((work, _)) => self.dice.within(work),
            None => u64::MAX,
        };
        (state.idle, state.last_ran) = (false, self.now);
        self.step(Event::Wants(Tenant(index as u64)));
        self.launches(index);
    }

    fn launches(&mut self, index: usize) {
        let state = &mut self.jobs[index];
        let tenant = Tenant(index as u64);
        if !state.attached {
            return;
        }
        if !state.open {
            if state.queued_ns == 0 && !state.idle {
                self.step(Event::Drained(tenant));
            }
            return;
        }
        let latency = state.opened_at.take().map(|at| self.now - at);
        while self.jobs[index].left_ns > 0 && self.jobs[index].queued_ns < AHEAD_NS {
            let state = &mut self.jobs[index];
            let kernel_ns = self.dice.within(state.job.kernel_ns);
            state.left_ns = state.left_ns.saturating_sub(kernel_ns);
            state.queued_ns += kernel_ns;
            self.running.push_back((index, kernel_ns));
            if self.running.len() == 1 {
                self.later(kernel_ns, What::Ends);
            }
        }
        if let Some(latency) = latency {
            self.step(Event::Opened(tenant, latency));
        }
    }

    fn ends(&mut self) {
        let Some((index, kernel_ns)) = self.running.pop_front() else { return };
        if let Some((_, next_ns)) = self.running.front() {
            self.later(*next_ns, What::Ends);
        }
        let tenant = Tenant(index as u64);
        let now = self.now;
        let state = &mut self.jobs[index];
        state.queued_ns -= kernel_ns;
        state.used_ns += kernel_ns;
        state.served.push((now, kernel_ns));
        state.starved_ns = state.starved_ns.max((now - kernel_ns).saturating_sub(state.last_ran));
        state.last_ran = now;
        if !state.attached {
            return;
        }
        let (done, drained) = (state.left_ns == 0 && state.queued_ns == 0, state.queued_ns == 0);
        state.idle = done;
        let (burst, open) = (state.job.burst, state.open);
        self.step(Event::Used(tenant, kernel_ns));
        if let Some((_, pause)) = burst.filter(|_| done) {
            let pause = self.dice.within(pause);
            self.later(pause, What::Arrives(index));
            self.step(Event::Idles(tenant));
        } else if open {
            self.launches(index);
        } else if drained {
            self.step(Event::Drained(tenant));
        }
    }

    fn later(&mut self, ns: u64, what: What) {
        self.told += 1;
        self.queue.push(Reverse((self.now + ns, self.told, what)));
    }
}
