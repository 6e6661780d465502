//! Weighted turns: each process in turn may launch for a while that is in proportion to its weight, with a bounded number
//! of kernels in flight; what is in flight at the end of a turn is not waited for.

use super::Policy;
use crate::device::Done;
use crate::queue::Timer;
use crate::world::System;

/// Average length of a turn.
const TURN_NS: u64 = 5_000_000;
/// From a decision to its effect.
const SWITCH_NS: u64 = 40_000;

/// Weighted turns.
#[derive(Debug)]
pub struct Turns {
    threshold: u32,
    ready: Vec<bool>,
    holder: Option<usize>,
    turn: u64,
}

const BEGIN: u8 = 0;
const END: u8 = 1;

impl Turns {
    /// With so many kernels in flight.
    pub fn new(threshold: u32) -> Self {
        Self { threshold, ready: Vec::new(), holder: None, turn: 0 }
    }

    fn next(&mut self, system: &mut System, before: Option<usize>) {
        let count = self.ready.len();
        let first = before.map_or(0, |before| before + 1);
        self.turn += 1;
        self.holder = (0..count).map(|step| (first + step) % count).find(|process| self.ready[*process]);
        let Some(holder) = self.holder else { return };
        let weight = |process: usize| u64::from(system.shares()[system.jobs()[process].tenant].weight);
        let sum: u64 = (0..count).map(weight).sum();
        let length_ns = TURN_NS * count as u64 * weight(holder) / sum;
        let at_ns = system.now_ns() + length_ns;
        system.set_timer(at_ns, Timer { kind: END, who: 0, stamp: self.turn });
        system.retry(holder, SWITCH_NS);
    }
}

impl Policy for Turns {
    fn begin(&mut self, system: &mut System) {
        self.ready = vec![false; system.jobs().len()];
    }

    fn admit(&mut self, system: &mut System, process: usize) -> bool {
        self.holder == Some(process) && system.jobs()[process].in_flight < self.threshold
    }

    fn ended(&mut self, system: &mut System, process: usize, _done: &Done) {
        if self.holder == Some(process) {
            system.retry(process, 0);
        }
    }

    fn wants(&mut self, system: &mut System, process: usize) {
        self.ready[process] = true;
        if self.holder.is_none() {
            system.set_timer(system.now_ns() + SWITCH_NS, Timer { kind: BEGIN, who: 0, stamp: self.turn });
        }
    }

    fn idles(&mut self, system: &mut System, process: usize) {
        self.ready[process] = false;
        if self.holder == Some(process) {
            self.next(system, Some(process));
        }
    }

    fn exits(&mut self, system: &mut System, process: usize) {
        self.idles(system, process);
    }

    fn timer(&mut self, system: &mut System, timer: Timer) {
        if timer.stamp == self.turn && (timer.kind == END || self.holder.is_none()) {
            self.next(system, self.holder);
        }
    }
}
