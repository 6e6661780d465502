//! Ours, level G0: the scheduler that the daemon uses, with the daemon's and the shim's sides around it as they are in
//! real processes, and what their ways to each other cost.

mod books;
mod shim;

use self::books::Books;
use self::shim::Shim;
use super::Policy;
use crate::device::{Done, Kernel};
use crate::queue::Timer;
use crate::scenario::Change;
use crate::world::{Phase, System};
use quota_core::Priority;
use quota_core::compute::scheduler::{Action, Event, Rules, Scheduler, Share, Tenant};

/// How ours is set up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Those of the scheduler.
    pub rules: Rules,
    /// Predicted work that a process may have under way while others want the device, in nanoseconds.
    pub ahead_ns: u64,
    /// The same while nobody else wants it.
    pub ahead_quiet_ns: u64,
    /// The most for tenants beside which one of the high class is attached, whether that wants anything or not.
    pub ahead_beside_high_ns: u64,
    /// Caps are the scheduler's to enforce, not the shim's.
    pub caps_in_scheduler: bool,
    /// A process says that it is sure when its work will have ended while no kernel of it was predicted to be longer, in
    /// nanoseconds; 0 for never. A longer one's end is wrong by so much that the next would often meet it.
    pub announced_up_to_ns: u64,
    /// A launch waits until it fits within what may be under way, instead of until there is less than that: a long kernel
    /// then waits until the device has all but run dry.
    pub strict_room: bool,
    /// A launch needs credit for what is under way as well, not only for what has ended.
    pub reserves: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            ahead_ns: 1_000_000,
            ahead_quiet_ns: 5_000_000,
            ahead_beside_high_ns: 500_000,
            caps_in_scheduler: false,
            announced_up_to_ns: 200_000,
            strict_room: false,
            reserves: true,
        }
    }
}

/// Ours.
#[derive(Debug)]
pub struct Ours {
    options: Options,
    scheduler: Scheduler,
    shims: Vec<Shim>,
    books: Vec<Books>,
    /// A look is on its way.
    poked: bool,
    /// Number of the tick that is set.
    tick: u64,
    ticks_at_ns: Option<u64>,
    actions: Vec<Action>,
}

/// A process looks which of its kernels have ended.
const SEE: u8 = 0;
/// The daemon looks because it was poked.
const LOOK: u8 = 1;
/// The daemon looks because time has passed.
const TICK: u8 = 2;

impl Ours {
    /// Set up like this.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            scheduler: Scheduler::new(options.rules),
            shims: Vec::new(),
            books: Vec::new(),
            poked: false,
            tick: 0,
            ticks_at_ns: None,
            actions: Vec::new(),
        }
    }

    fn share(&self, share: Share) -> Share {
        Share { cap: share.cap.filter(|_| self.options.caps_in_scheduler), ..share }
    }

    /// Publishes how far ahead each may launch.
    fn set_ahead(&mut self, system: &System) {
        let class = |tenant: usize| system.shares()[tenant].class;
        for at in 0..self.books.len() {
            let mut others = self.books.iter().enumerate().filter(|(other, books)| *other != at && books.is_attached());
            let beside_high = class(at) < Priority::High && others.any(|(other, _)| class(other) == Priority::High);
            let contended = self.scheduler.is_contended(Tenant(at as u64));
            let ahead_ns = if contended { self.options.ahead_ns } else { self.options.ahead_quiet_ns };
            let most_ns = if beside_high { self.options.ahead_beside_high_ns } else { u64::MAX };
            self.books[at].ahead_ns = ahead_ns.min(most_ns);
        }
    }

    /// A process tells the daemon to look at its usage page.
    fn poke(&mut self, system: &mut System) {
        if !std::mem::replace(&mut self.poked, true) {
            let at_ns = system.now_ns() + system.overheads().daemon_ns;
            system.set_timer(at_ns, Timer { kind: LOOK, who: 0, stamp: 0 });
        }
    }

    /// The daemon takes in what the usage pages say, lets the scheduler decide, and acts.
    fn look(&mut self, system: &mut System) {
        let now_ns = system.now_ns();
        let mut events = Vec::new();
        for books in &mut self.books {
            books.look(&self.shims, system, now_ns, &mut events);
        }
        self.tell(&events, now_ns);
        if self.scheduler.next_deadline().is_some_and(|at_ns| at_ns <= now_ns) {
            self.scheduler.step(Event::Tick, now_ns, &mut self.actions);
        }
        self.act(system);
        self.set_tick(system);
    }

    fn tell(&mut self, events: &[Event], now_ns: u64) {
        for event in events {
            self.scheduler.step(*event, now_ns, &mut self.actions);
        }
    }

    /// Opens and closes gates, as the scheduler wants it.
    fn act(&mut self, system: &mut System) {
        let now_ns = system.now_ns();
        // What follows from an action can be another one, a few times at most: each takes a gate to where it stays.
        while !self.actions.is_empty() {
            let mut events = Vec::new();
            for action in std::mem::take(&mut self.actions) {
                let (Action::Open(tenant) | Action::Close(tenant)) = action;
                let at = usize::try_from(tenant.0).unwrap_or(usize::MAX);
                self.books[at].set(matches!(action, Action::Open(_)), &self.shims, now_ns, &mut events);
                if matches!(action, Action::Open(_)) {
                    for process in self.books[at].processes().to_vec() {
                        system.retry(process, system.overheads().wake_ns);
                    }
                }
            }
            self.tell(&events, now_ns);
        }
    }

    fn set_tick(&mut self, system: &mut System) {
        self.set_ahead(system);
        let stopped_ns = self.books.iter().filter_map(Books::next_deadline).min();
        let decided_ns = self.scheduler.next_deadline();
        let next_ns = [stopped_ns, decided_ns].into_iter().flatten().min();
        if next_ns != self.ticks_at_ns {
            self.ticks_at_ns = next_ns;
            self.tick += 1;
            if let Some(at_ns) = next_ns {
                let at_ns = at_ns.max(system.now_ns()) + system.overheads().timer_ns;
                system.set_timer(at_ns, Timer { kind: TICK, who: 0, stamp: self.tick });
            }
        }
    }

    /// Sets the time at which somebody in the process looks what has ended.
    fn set_look(&mut self, system: &mut System, process: usize, at_ns: u64) {
        if self.shims[process].set_look(at_ns) {
            let who = u32::try_from(process).unwrap_or(u32::MAX);
            system.set_timer(at_ns, Timer { kind: SEE, who, stamp: at_ns });
        }
    }

    /// Sets it to when the end of something is expected.
    fn expect(&mut self, system: &mut System, process: usize) {
        let job = &system.jobs()[process];
        let ahead_ns = self.books[job.tenant].ahead_ns;
        let shim = &mut self.shims[process];
        let room = match job.phase {
            Phase::Waiting(kernel) if shim.crowded => Some((needed_ns(&self.options, kernel), ahead_ns)),
            _ => None,
        };
        if let Some(at_ns) = shim.next_look_ns(room, system.now_ns()) {
            self.set_look(system, process, at_ns + system.overheads().timer_ns);
        }
    }

    /// The process sees what has ended, and says so.
    fn see(&mut self, system: &mut System, process: usize) {
        let job = &system.jobs()[process];
        if job.is_stopped || job.exited_ns.is_some() {
            return;
        }
        let tenant = job.tenant;
        let was_done = self.shims[process].is_done();
        self.shims[process].look(&mut self.books[tenant].shared, system.now_ns());
        if self.shims[process].is_done() && !was_done && !self.books[tenant].is_free() {
            self.poke(system);
        }
        system.retry(process, 0);
        self.expect(system, process);
    }

    /// The gates of those that are alone and have no cap are not kept.
    fn set_free(&mut self, system: &System) {
        let now_ns = system.now_ns();
        let attached = self.books.iter().filter(|books| books.is_attached()).count();
        let mut events = Vec::new();
        for (books, share) in self.books.iter_mut().zip(system.shares()) {
            let free = books.is_attached() && attached == 1 && share.cap.is_none();
            books.set_free(free, now_ns, &mut events);
        }
        self.tell(&events, now_ns);
    }
}

/// How much room a kernel has to find.
fn needed_ns(options: &Options, kernel: Kernel) -> u64 {
    if options.strict_room { kernel.predicted_ns } else { 0 }
}

impl Policy for Ours {
    fn begin(&mut self, system: &mut System) {
        let sure_up_to_ns = self.options.announced_up_to_ns;
        self.shims = system.jobs().iter().map(|_| Shim::new(sure_up_to_ns)).collect();
        for (at, share) in system.shares().to_vec().into_iter().enumerate() {
            let processes = (0..system.jobs().len()).filter(|process| system.jobs()[*process].tenant == at).collect();
            let tenant = Tenant(at as u64);
            let mut books = Books::new(tenant, processes, self.options.ahead_ns);
            books.shared.set_cap(share.cap.filter(|_| !self.options.caps_in_scheduler), self.scheduler.quantum_ns());
            self.books.push(books);
            self.scheduler.attach(tenant, self.share(share), 0, &mut self.actions);
        }
        self.set_free(system);
        self.act(system);
        self.set_tick(system);
    }

    fn admit(&mut self, system: &mut System, process: usize) -> bool {
        let now_ns = system.now_ns();
        let books = &self.books[system.jobs()[process].tenant];
        let shim = &mut self.shims[process];
        let reserved_ns = if self.options.reserves { shim.predicted_ns() } else { 0 };
        if let Some(at_ns) = books.shared.throttled_until(shim.throttled, reserved_ns, now_ns) {
            // Out of credit it waits where the daemon doesn't see it; with nothing under way it is idle.
            let pokes = !std::mem::replace(&mut shim.throttled, true) && (shim.waiting || shim.is_done());
            shim.waiting = false;
            let delay_ns = at_ns - now_ns + system.overheads().wake_ns;
            system.retry(process, delay_ns);
            if pokes {
                self.poke(system);
            }
            return false;
        }
        shim.throttled = false;
        if books.is_free() {
            return true;
        }
        if !books.is_open() {
            if !std::mem::replace(&mut shim.waiting, true) {
                self.poke(system);
            }
            return false;
        }
        if std::mem::take(&mut shim.waiting) {
            shim.passed_at_ns = now_ns;
        }
        let Phase::Waiting(kernel) = system.jobs()[process].phase else { return true };
        shim.crowded = !shim.has_room(needed_ns(&self.options, kernel), books.ahead_ns);
        if shim.crowded {
            self.expect(system, process);
        }
        !self.shims[process].crowded
    }

    fn launched(&mut self, system: &mut System, process: usize, kernel: &Kernel) {
        let was_done = self.shims[process].is_done();
        let ahead_ns = self.books[system.jobs()[process].tenant].ahead_ns;
        self.shims[process].submit(kernel, ahead_ns, system.now_ns());
        if was_done {
            self.expect(system, process);
        }
    }

    fn ended(&mut self, _system: &mut System, process: usize, done: &Done) {
        self.shims[process].ended(done);
    }

    fn wants(&mut self, system: &mut System, process: usize) {
        // A scheduler that enforces caps has to know when a holder that was idle goes on, contended or not.
        let tenant = system.jobs()[process].tenant;
        if self.options.caps_in_scheduler && system.shares()[tenant].cap.is_some() {
            self.poke(system);
        }
    }

    fn idles(&mut self, system: &mut System, process: usize) {
        // A thread that waited for the device sees at once that it is done.
        let at_ns = system.now_ns() + system.overheads().synchronise_ns;
        self.set_look(system, process, at_ns);
    }

    fn exits(&mut self, system: &mut System, process: usize) {
        let tenant = system.jobs()[process].tenant;
        self.shims[process].vacate();
        let alive = self.books[tenant].processes().iter().any(|other| system.jobs()[*other].exited_ns.is_none());
        if !alive {
            self.books[tenant].detach();
            self.scheduler.detach(Tenant(tenant as u64), system.now_ns(), &mut self.actions);
            self.set_free(system);
            self.act(system);
        }
        self.poke(system);
    }

    fn timer(&mut self, system: &mut System, timer: Timer) {
        match timer.kind {
            SEE if self.shims[timer.who as usize].take_look(timer.stamp) => self.see(system, timer.who as usize),
            LOOK => {
                self.poked = false;
                self.look(system);
            }
            TICK if timer.stamp == self.tick => {
                self.ticks_at_ns = None;
                self.look(system);
            }
            _ => {}
        }
    }

    fn change(&mut self, system: &mut System, change: Change) {
        let now_ns = system.now_ns();
        let id = |tenant: usize| Tenant(tenant as u64);
        match change {
            Change::Share(tenant, share) => {
                let cap = share.cap.filter(|_| !self.options.caps_in_scheduler);
                self.books[tenant].shared.set_cap(cap, self.scheduler.quantum_ns());
                self.scheduler.change(id(tenant), self.share(share), now_ns, &mut self.actions);
                self.set_free(system);
                for process in self.books[tenant].processes().to_vec() {
                    system.retry(process, system.overheads().wake_ns);
                }
            }
            Change::Pause(tenant) => self.scheduler.pause(id(tenant), now_ns, &mut self.actions),
            Change::Resume(tenant) => self.scheduler.resume(id(tenant), now_ns, &mut self.actions),
            Change::Continue(process) => self.set_look(system, process, now_ns),
            Change::Stop(_) | Change::Kill(_) => {}
        }
        self.act(system);
        self.set_tick(system);
    }
}
