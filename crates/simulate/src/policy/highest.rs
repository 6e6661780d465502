//! The highest class only: all others may not launch while one of it has work; what they have in flight is not waited
//! for, and is bounded in number.

use super::Policy;
use crate::device::Done;
use crate::queue::Timer;
use crate::world::System;
use quota_core::Priority;

/// From a decision to its effect.
const SWITCH_NS: u64 = 40_000;

/// The highest class first.
#[derive(Debug)]
pub struct Highest {
    threshold: u32,
    ready: Vec<bool>,
    top: Priority,
}

impl Highest {
    /// With so many kernels in flight.
    pub fn new(threshold: u32) -> Self {
        Self { threshold, ready: Vec::new(), top: Priority::Batch }
    }

    fn decide(&mut self, system: &mut System) {
        system.set_timer(system.now_ns() + SWITCH_NS, Timer { kind: 0, who: 0, stamp: 0 });
    }
}

fn class(system: &System, process: usize) -> Priority {
    system.shares()[system.jobs()[process].tenant].class
}

impl Policy for Highest {
    fn begin(&mut self, system: &mut System) {
        self.ready = vec![false; system.jobs().len()];
    }

    fn admit(&mut self, system: &mut System, process: usize) -> bool {
        class(system, process) >= self.top && system.jobs()[process].in_flight < self.threshold
    }

    fn ended(&mut self, system: &mut System, process: usize, _done: &Done) {
        system.retry(process, 0);
    }

    fn wants(&mut self, system: &mut System, process: usize) {
        self.ready[process] = true;
        self.decide(system);
    }

    fn idles(&mut self, system: &mut System, process: usize) {
        self.ready[process] = false;
        self.decide(system);
    }

    fn exits(&mut self, system: &mut System, process: usize) {
        self.idles(system, process);
    }

    fn timer(&mut self, system: &mut System, _timer: Timer) {
        let ready = (0..self.ready.len()).filter(|process| self.ready[*process]);
        self.top = ready.map(|process| class(system, process)).max().unwrap_or(Priority::Batch);
        for process in 0..self.ready.len() {
            system.retry(process, 0);
        }
    }
}
