//! The arbiter's thread: sleeps, reads, has decided, writes.

use super::claims::{Claim, Process};
use super::device::{Device, Eyes, Loan, Show};
use super::wanted::{Board, Common, News, Wanted};
use super::{Shown, rank};
use crate::log;
use crate::registry::TenantId;
use crate::threads;
use quota_core::compute::Tenant;
use quota_core::compute::scheduler::Rules;
use quota_core::settings::LogLevel;
use quota_wire::page::Gate;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::thread::futex;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the heartbeat moves while anybody waits: a fifth of what the processes allow.
const HEARTBEAT_NS: u64 = 100_000_000;
/// Over which time a tenant's pokes are counted.
const POKES_PERIOD_NS: u64 = 10_000_000;
/// Most pokes of a tenant in that time: one a launch of a tenant that pauses after each is far below. Who pokes more
/// isn't heard for the rest of it, so that he doesn't keep the arbiter from the others.
const POKES_MAX: u32 = 100;
/// Over which time wake-ups are counted.
const ROUNDS_PERIOD_NS: u64 = 10_000_000;
/// Most of them in that time without a pause between two: ten times what devices that are shared need. The arbiter runs
/// before others, and must not keep a processor from them whoever pokes.
const ROUNDS_MAX: u32 = 200;
/// That pause.
const ROUND_PAUSE: Duration = Duration::from_micros(100);
/// Shortest sleep, in nanoseconds: what a turn may last longer than it should.
const PAUSE_NS: u64 = 20_000;
/// Descriptors that are taken from the kernel at a time.
const EVENTS_PER_ROUND: usize = 64;
const TOKEN_BELL: u64 = 0;
const TOKEN_TIMER: u64 = 1;
/// Tenants' tokens are their numbers with this added.
const TOKEN_TENANTS: u64 = 2;

/// The time of the monotonic clock in nanoseconds, as pages have it.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

pub(super) fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Starts the thread.
pub(super) fn start(
    board: &Arc<Board>,
    shown: &Arc<[Shown]>,
    bell: &Arc<OwnedFd>,
    rules: Rules,
) -> io::Result<JoinHandle<()>> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    for (source, token) in [(&**bell, TOKEN_BELL), (&timer, TOKEN_TIMER)] {
        epoll::add(&epoll, source, epoll::EventData::new_u64(token), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    }
    let mut arbiter = Work {
        board: Arc::clone(board),
        shown: Arc::clone(shown),
        epoll,
        timer,
        armed_ns: None,
        devices: (0..shown.len()).map(|_| Device::new(rules)).collect(),
        members: Members::default(),
        dirty: BTreeSet::new(),
        muted: VecDeque::new(),
        beat_at_ns: None,
        shows: Vec::new(),
        loans: Vec::new(),
        rounds: 0,
        rounds_since_ns: 0,
    };
    std::thread::Builder::new().name("arbiter".to_owned()).spawn(move || arbiter.run())
}

/// A tenant, as the thread has it.
#[derive(Debug)]
struct Member {
    wanted: Wanted,
    /// By device: those of its processes that use it.
    attached: Vec<Vec<Process>>,
    pokes: u32,
    pokes_since_ns: u64,
}

#[derive(Debug, Default)]
struct Members(BTreeMap<Tenant, Member>);

#[derive(Debug)]
struct Work {
    board: Arc<Board>,
    shown: Arc<[Shown]>,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer goes off.
    armed_ns: Option<u64>,
    devices: Vec<Device>,
    members: Members,
    /// Devices on which something may have happened.
    dirty: BTreeSet<usize>,
    /// Tenants that poke too often, and until when they aren't heard.
    muted: VecDeque<(u64, Tenant)>,
    beat_at_ns: Option<u64>,
    shows: Vec<Show>,
    loans: Vec<Loan>,
    rounds: u32,
    rounds_since_ns: u64,
}

impl Work {
    fn run(&mut self) {
        rank::before_others();
        let mut events = Vec::with_capacity(EVENTS_PER_ROUND);
        loop {
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => threads::end_all(&format!("the arbiter can't wait: {error}")),
            }
            threads::test_fault("arbiter");
            for event in events.drain(..) {
                match event.data.u64() {
                    TOKEN_BELL => {
                        if self.take_news() {
                            return;
                        }
                    }
                    // What is due is found by the time.
                    TOKEN_TIMER => self.armed_ns = None,
                    token => self.poked(Tenant(token - TOKEN_TENANTS)),
                }
            }
            self.find_due();
            self.look();
            self.beat();
            self.arm();
            self.pause();
        }
    }

    /// Leaves the processor to others when there is too much to do.
    fn pause(&mut self) {
        let now_ns = now_ns();
        if now_ns.saturating_sub(self.rounds_since_ns) >= ROUNDS_PERIOD_NS {
            (self.rounds, self.rounds_since_ns) = (0, now_ns);
        }
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            std::thread::sleep(ROUND_PAUSE);
        }
    }

    /// Takes what the main thread has to say; true when it is that the daemon ends.
    fn take_news(&mut self) -> bool {
        let News { tenants, rules, ends } = self.board.news();
        if let Some(rules) = rules {
            self.devices.iter_mut().for_each(|device| device.set_rules(rules));
            self.dirty.extend(0..self.devices.len());
        }
        for (id, wanted) in tenants {
            let tenant = tenant_of(id);
            match wanted {
                Some(wanted) => self.welcome(tenant, wanted),
                None => self.part(tenant),
            }
        }
        ends
    }

    fn welcome(&mut self, tenant: Tenant, wanted: Wanted) {
        let fresh = match self.members.0.get_mut(&tenant) {
            Some(member) => {
                let same = Arc::ptr_eq(&member.wanted.common, &wanted.common);
                member.wanted = wanted;
                !same
            }
            None => {
                let attached = vec![Vec::new(); wanted.common.places.len()];
                self.members.0.insert(tenant, Member { wanted, attached, pokes: 0, pokes_since_ns: 0 });
                true
            }
        };
        if fresh {
            self.listen(tenant, true);
            self.ask_all(tenant);
        }
        self.seat(tenant);
        let now_ns = now_ns();
        let Some(member) = self.members.0.get(&tenant) else { return };
        for (index, terms) in member.wanted.terms.iter().enumerate() {
            if let (Some(terms), Some(device)) = (terms, self.devices.get_mut(index)) {
                device.change(tenant, *terms, now_ns);
            }
        }
    }

    /// What an earlier daemon has left on the page means nothing any more.
    fn ask_all(&self, tenant: Tenant) {
        let Some(Member { wanted: Wanted { common, .. }, .. }) = self.members.0.get(&tenant) else { return };
        for place in &common.places {
            set_gate(common, *place, Gate::Ask);
        }
    }

    fn part(&mut self, tenant: Tenant) {
        let now_ns = now_ns();
        for (index, device) in self.devices.iter_mut().enumerate().filter(|(_, device)| device.is_seated(tenant)) {
            device.unseat(tenant, now_ns);
            self.dirty.insert(index);
        }
        // With the last mapping of it the eventfd closes, and the kernel forgets that we listened.
        self.listen(tenant, false);
        self.members.0.remove(&tenant);
    }

    /// A process of the tenant says: look.
    fn poked(&mut self, tenant: Tenant) {
        let now_ns = now_ns();
        let Some(member) = self.members.0.get_mut(&tenant) else { return };
        if now_ns.saturating_sub(member.pokes_since_ns) >= POKES_PERIOD_NS {
            (member.pokes, member.pokes_since_ns) = (0, now_ns);
        }
        member.pokes += 1;
        if member.pokes > POKES_MAX {
            self.muted.push_back((now_ns + POKES_PERIOD_NS, tenant));
            self.listen(tenant, false);
        }
        self.seat(tenant);
    }

    /// Listens to the tenant's pokes, or not. Only to the edge, and without ever reading: whether a read would wait is
    /// for anybody to say who has the descriptor.
    fn listen(&self, tenant: Tenant, listen: bool) {
        let Some(member) = self.members.0.get(&tenant) else { return };
        let poke = &member.wanted.common.poke;
        let done = if listen {
            let token = epoll::EventData::new_u64(tenant.0 + TOKEN_TENANTS);
            epoll::add(&self.epoll, poke, token, epoll::EventFlags::IN | epoll::EventFlags::ET)
        } else {
            epoll::delete(&self.epoll, poke)
        };
        if let (Err(error), true) = (done, listen) {
            log::line(LogLevel::Error, format_args!("a tenant can't be heard: {error}"));
        }
    }

    /// Gives the tenant its seat on each device that some process of it uses, and takes it where none does any more.
    fn seat(&mut self, tenant: Tenant) {
        let now_ns = now_ns();
        let Some(member) = self.members.0.get_mut(&tenant) else { return };
        for (index, device) in self.devices.iter_mut().enumerate() {
            let Some(terms) = member.wanted.terms.get(index).copied().flatten() else { continue };
            member.attach(index);
            match (device.is_seated(tenant), member.attached[index].is_empty()) {
                (false, false) => device.seat(tenant, terms, now_ns),
                (true, true) => {
                    device.unseat(tenant, now_ns);
                    set_gate(&member.wanted.common, member.wanted.common.places[index], Gate::Ask);
                }
                (true, false) => {}
                (false, true) => continue,
            }
            self.dirty.insert(index);
        }
    }

    /// Devices on which time alone has something happen, and tenants that are heard again.
    fn find_due(&mut self) {
        let now_ns = now_ns();
        while let Some((_, tenant)) = self.muted.front().copied().filter(|(until_ns, _)| *until_ns <= now_ns) {
            self.muted.pop_front();
            self.listen(tenant, true);
            self.seat(tenant);
        }
        let beat = self.beat_at_ns.is_some_and(|at_ns| at_ns <= now_ns);
        for (index, device) in self.devices.iter().enumerate() {
            let due = device.next_deadline().is_some_and(|at_ns| at_ns <= now_ns);
            if due || (beat && device.beats()) {
                self.dirty.insert(index);
            }
        }
    }

    fn look(&mut self) {
        for index in core::mem::take(&mut self.dirty) {
            let Some(device) = self.devices.get_mut(index) else { continue };
            device.look(&mut Sight { members: &self.members, index });
            device.shows(&mut self.shows);
            for show in self.shows.drain(..) {
                let Some(member) = self.members.0.get(&show.tenant) else { continue };
                let common = &member.wanted.common;
                let Some(place) = common.places.get(index) else { continue };
                common.page.set_ahead_us(*place, show.ahead_us);
                set_gate(common, *place, show.gate);
            }
            device.lend(now_ns(), &mut self.loans);
            for loan in self.loans.drain(..) {
                let Some(Member { wanted: Wanted { common, .. }, .. }) = self.members.0.get(&loan.tenant) else {
                    continue;
                };
                if let Some(place) = common.places.get(index) {
                    common.page.lend(*place, loan.cap, loan.until_ns);
                }
            }
            self.shown[index].holder.store(device.holder().map_or(0, |tenant| tenant.0), Ordering::Relaxed);
            self.shown[index].contenders.store(device.contenders() as u32, Ordering::Relaxed);
        }
    }

    /// Shows those who wait that somebody looks after them.
    fn beat(&mut self) {
        let now_ns = now_ns();
        let mut beats = false;
        for device in self.devices.iter().filter(|device| device.beats()) {
            beats = true;
            for member in device.tenants().filter_map(|tenant| self.members.0.get(&tenant)) {
                member.wanted.common.page.beat(now_ns);
            }
        }
        self.beat_at_ns = beats.then_some(now_ns + HEARTBEAT_NS);
    }

    /// Sets the timer to when something is due; never, where nothing is.
    fn arm(&mut self) {
        let devices = self.devices.iter().filter_map(Device::next_deadline).min();
        let muted = self.muted.front().map(|(until_ns, _)| *until_ns);
        let next_ns = [devices, muted, self.beat_at_ns].into_iter().flatten().min();
        // What has become due meanwhile is seen a moment later: nobody can make the thread run round without a pause.
        let next_ns = next_ns.map(|at_ns| at_ns.max(now_ns() + PAUSE_NS));
        if next_ns == self.armed_ns {
            return;
        }
        self.armed_ns = next_ns;
        // Zero is never.
        let at_ns = next_ns.unwrap_or(0);
        let seconds = i64::try_from(at_ns / 1_000_000_000).unwrap_or(i64::MAX);
        let it_value = Timespec { tv_sec: seconds, tv_nsec: (at_ns % 1_000_000_000) as i64 };
        let value = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        if let Err(error) = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value) {
            log::line(LogLevel::Error, format_args!("the arbiter's timer can't be set: {error}"));
        }
    }
}

impl Member {
    /// Finds the processes that use a device.
    fn attach(&mut self, index: usize) {
        let Wanted { common, processes, .. } = &self.wanted;
        let (attached, place) = (&mut self.attached[index], common.places[index]);
        let uses = |process: &Process| process.slot().is_some_and(|slot| common.memory.usage.is_attached(slot, place));
        attached.clear();
        attached.extend(processes.iter().copied().filter(uses));
    }
}

/// A device's eyes.
struct Sight<'a> {
    members: &'a Members,
    index: usize,
}

impl Eyes for Sight<'_> {
    fn claims(&mut self, tenant: Tenant, claims: &mut Vec<(Process, Claim)>) {
        let Some(member) = self.members.0.get(&tenant) else { return };
        let common = &member.wanted.common;
        let place = common.places[self.index];
        claims.extend(
            member.attached[self.index].iter().filter_map(|process| {
                Some((*process, Claim::read(common.memory.usage.process(process.slot()?, place))))
            }),
        );
    }

    fn is_stopped(&mut self, process: Process) -> bool {
        crate::peer::is_stopped(process.pid)
    }

    fn now_ns(&mut self) -> u64 {
        now_ns()
    }
}

/// Shows a gate; wakes those who wait when it is one that lets them through.
fn set_gate(common: &Common, place: quota_core::ledger::DeviceId, gate: Gate) {
    let changed = common.page.set_gate(place, gate);
    if changed && matches!(gate, Gate::Free | Gate::Open) {
        // Shared between processes, so not private; it fails only for an address that is none.
        let _ = futex::wake(common.page.gate_word(place), futex::Flags::empty(), i32::MAX as u32);
    }
}

fn tenant_of(id: TenantId) -> Tenant {
    Tenant(id.number())
}
