//! One token for the whole device, over a socket: who has it launches without bound, and at the end of its time waits for
//! all of it before it gives the token back.

use super::Policy;
use crate::device::Done;
use crate::queue::Timer;
use crate::world::System;
use std::collections::VecDeque;

/// Half a round trip over the socket.
const WAY_NS: u64 = 40_000;
/// How long an idle holder keeps the token under [`Rule::Long`].
const IDLE_NS: u64 = 5_000_000_000;
/// Time over which use is compared with what was promised, under [`Rule::Window`].
const WINDOW_NS: u64 = 10_000_000_000;
/// Pause before somebody above its cap is looked at again.
const AGAIN_NS: u64 = 20_000_000;

const DECIDE: u8 = 0;
const EXPIRE: u8 = 1;
const IDLE: u8 = 2;

/// Who is next, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// First come, first served, for 30 s.
    Long,
    /// Whoever lacks most of what was promised over ten seconds, for 300 ms, whether it uses it or not.
    Window,
}

/// One token.
#[derive(Debug)]
pub struct Exclusive {
    rule: Rule,
    processes: Vec<Member>,
    holder: Option<usize>,
    releasing: bool,
    turn: u64,
    granted_ns: u64,
    turns: VecDeque<(usize, u64, u64)>,
    asks_again: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    asked_ns: Option<u64>,
    touched_ns: u64,
}

impl Exclusive {
    /// By this rule.
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            processes: Vec::new(),
            holder: None,
            releasing: false,
            turn: 0,
            granted_ns: 0,
            turns: VecDeque::new(),
            asks_again: false,
        }
    }

    fn quantum_ns(&self) -> u64 {
        match self.rule {
            Rule::Long => 30_000_000_000,
            Rule::Window => 300_000_000,
        }
    }

    fn decide(&mut self, system: &mut System) {
        if self.holder.is_some() {
            return;
        }
        let Some(next) = self.pick(system) else {
            if self.processes.iter().any(|member| member.asked_ns.is_some()) && !self.asks_again {
                self.asks_again = true;
                system.set_timer(system.now_ns() + AGAIN_NS, Timer { kind: DECIDE, who: 0, stamp: 0 });
            }
            return;
        };
        self.holder = Some(next);
        self.processes[next].asked_ns = None;
        self.turn += 1;
        self.granted_ns = system.now_ns();
        system.retry(next, WAY_NS);
        system.set_timer(system.now_ns() + self.quantum_ns(), Timer { kind: EXPIRE, who: 0, stamp: self.turn });
    }

    fn pick(&self, system: &System) -> Option<usize> {
        let asking = (0..self.processes.len()).filter(|process| self.processes[*process].asked_ns.is_some());
        match self.rule {
            Rule::Long => asking.min_by_key(|process| self.processes[*process].asked_ns),
            Rule::Window => {
                // Those below what was promised first, by the part that is missing; the others by their use.
                let rank = |process| {
                    let (missing, used) = self.missing_and_used(system, process)?;
                    let part = if missing > 0.0 { (0, -missing / (missing + used)) } else { (1, used) };
                    Some((part, process))
                };
                let by_rank =
                    |a: &((i32, f64), usize), b: &((i32, f64), usize)| a.0.0.cmp(&b.0.0).then(a.0.1.total_cmp(&b.0.1));
                asking.filter_map(rank).min_by(by_rank).map(|(_, process)| process)
            }
        }
    }

    /// What a process lacks of its promise in the window, and what it used; none when it is at its cap.
    fn missing_and_used(&self, system: &System, process: usize) -> Option<(f64, f64)> {
        let (now_ns, shares) = (system.now_ns(), system.shares());
        let (from_ns, window) = (now_ns.saturating_sub(WINDOW_NS), now_ns.clamp(1, WINDOW_NS) as f64);
        let inside = self.turns.iter().filter(|(who, _, end_ns)| *who == process && *end_ns > from_ns);
        let used = inside.map(|(_, begin_ns, end_ns)| (end_ns - (*begin_ns).max(from_ns)) as f64).sum::<f64>();
        let share = shares[system.jobs()[process].tenant];
        let sum: u32 = shares.iter().map(|share| share.weight).sum();
        let fraction = |percent: quota_core::Percent| f64::from(percent.hundredths()) / 10_000.0;
        let promised = (f64::from(share.weight) / f64::from(sum)).max(share.guarantee.map_or(0.0, fraction));
        let cap = share.cap.map_or(1.0, fraction);
        (cap * window > used).then_some((promised * window - used, used))
    }

    /// Gives the token back once nothing is under way.
    fn drain(&mut self, system: &mut System) {
        let Some(holder) = self.holder.filter(|holder| self.releasing && system.jobs()[*holder].in_flight == 0) else {
            return;
        };
        let now_ns = system.now_ns();
        self.turns.push_back((holder, self.granted_ns, now_ns));
        while self.turns.front().is_some_and(|(_, _, end_ns)| *end_ns + WINDOW_NS < now_ns) {
            self.turns.pop_front();
        }
        (self.holder, self.releasing) = (None, false);
        if system.jobs()[holder].is_at_launch() {
            self.processes[holder].asked_ns = Some(now_ns);
        }
        system.set_timer(now_ns + WAY_NS, Timer { kind: DECIDE, who: 0, stamp: 0 });
    }

    fn release(&mut self, system: &mut System) {
        self.releasing = true;
        self.drain(system);
    }
}

impl Policy for Exclusive {
    fn begin(&mut self, system: &mut System) {
        self.processes = vec![Member::default(); system.jobs().len()];
    }

    fn admit(&mut self, system: &mut System, process: usize) -> bool {
        self.processes[process].touched_ns = system.now_ns();
        self.holder == Some(process) && !self.releasing
    }

    fn ended(&mut self, system: &mut System, process: usize, _done: &Done) {
        self.processes[process].touched_ns = system.now_ns();
        self.drain(system);
    }

    fn wants(&mut self, system: &mut System, process: usize) {
        let has_it = self.holder == Some(process) && !self.releasing;
        if !has_it && self.processes[process].asked_ns.is_none() {
            self.processes[process].asked_ns = Some(system.now_ns());
            system.set_timer(system.now_ns() + WAY_NS, Timer { kind: DECIDE, who: 0, stamp: 0 });
        }
    }

    fn idles(&mut self, system: &mut System, process: usize) {
        if self.rule == Rule::Long && self.holder == Some(process) {
            let who = u32::try_from(process).unwrap_or(u32::MAX);
            system.set_timer(system.now_ns() + IDLE_NS, Timer { kind: IDLE, who, stamp: system.now_ns() });
        }
    }

    fn exits(&mut self, system: &mut System, process: usize) {
        self.processes[process].asked_ns = None;
        if self.holder == Some(process) {
            self.release(system);
        }
    }

    fn timer(&mut self, system: &mut System, timer: Timer) {
        match timer.kind {
            DECIDE => {
                self.asks_again = false;
                self.decide(system);
            }
            EXPIRE if timer.stamp == self.turn && self.holder.is_some() => self.release(system),
            IDLE => {
                let (who, job) = (timer.who as usize, &system.jobs()[timer.who as usize]);
                let untouched = self.processes[who].touched_ns <= timer.stamp && !job.has_work;
                if untouched && self.holder == Some(who) && !self.releasing {
                    self.release(system);
                }
            }
            _ => {}
        }
    }
}
