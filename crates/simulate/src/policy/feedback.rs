//! Caps by feedback: utilisation is sampled through the driver's management library, late and in whole percents, and
//! turned into tokens that are spent in thread blocks.

use super::Policy;
use crate::device::Kernel;
use crate::queue::Timer;
use crate::record::BIN_NS;
use crate::world::{Phase, System};

/// How often the controllers run.
const TICK_NS: u64 = 120_000_000;
/// The window that a sample is of.
const WINDOW_NS: u64 = 170_000_000;
/// How long a launch without tokens sleeps before it looks again.
const SLEEP_NS: u64 = 10_000_000;
/// Multiprocessors of the device.
const MULTIPROCESSORS: i64 = 132;
/// Threads that one of them holds.
const THREADS: i64 = 2_048;
/// The most tokens there are.
const POOL: i64 = MULTIPROCESSORS * THREADS * 32;
/// Blocks of a kernel for each microsecond that it takes: what the controllers take for its cost.
const BLOCKS_PER_US: u64 = 40;
/// Looks at the tokens.
const SLEPT: u8 = 0;
/// Runs the controllers.
const TICK: u8 = 1;

/// How tokens follow from utilisation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Controller {
    /// In proportion to what is missing.
    Delta,
    /// A little more while too low, a third as much when too high.
    Aimd,
}

/// Caps by feedback.
#[derive(Debug)]
pub struct Feedback {
    controller: Controller,
    processes: Vec<Bucket>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    tokens: i64,
    share: i64,
    sleeps: bool,
}

impl Feedback {
    /// With this controller.
    pub fn new(controller: Controller) -> Self {
        Self { controller, processes: Vec::new() }
    }

    fn next_share(&self, share: i64, used: i64, cap: i64) -> i64 {
        match self.controller {
            Controller::Delta => {
                let missing = (cap - used).abs().max(5);
                let mut step = MULTIPROCESSORS * MULTIPROCESSORS * THREADS * missing / 2_560;
                if missing > cap / 2 {
                    step = step * missing * 2 / (cap + 1);
                }
                if used <= cap { POOL.min(share + step) } else { (share - step).max(0) }
            }
            Controller::Aimd => {
                let aim = cap * 875 / 1_000;
                if used > aim {
                    return share / 3;
                }
                let step = MULTIPROCESSORS * THREADS * aim.max(1) / 400 * (cap - used).max(5) / 5;
                POOL.min(share + step)
            }
        }
    }

    fn tick(&mut self, system: &mut System) {
        for process in 0..self.processes.len() {
            let Some(cap) = cap(system, process) else { continue };
            let used = sampled(system, process);
            let bucket = self.processes[process];
            let share = self.next_share(bucket.share, used, cap);
            self.processes[process] = Bucket { share, tokens: POOL.min(bucket.tokens + share), ..bucket };
        }
        let at_ns = system.now_ns() + TICK_NS;
        system.set_timer(at_ns, Timer { kind: TICK, who: 0, stamp: 0 });
    }
}

/// The cap of a process in percent.
fn cap(system: &System, process: usize) -> Option<i64> {
    let share = system.shares()[system.jobs()[process].tenant];
    share.cap.map(|cap| i64::from(cap.hundredths() / 100))
}

/// What the management library says: whole percents of a window that is over.
fn sampled(system: &mut System, process: usize) -> i64 {
    let last = usize::try_from(system.now_ns() / BIN_NS).unwrap_or(usize::MAX);
    let bins = usize::try_from(WINDOW_NS / BIN_NS).unwrap_or(1);
    let record = system.record();
    let used_ns: u64 = (last.saturating_sub(bins)..last).map(|bin| record.used_ns(process, bin)).sum();
    i64::try_from((used_ns * 100 + WINDOW_NS / 2) / WINDOW_NS).unwrap_or(100)
}

impl Policy for Feedback {
    fn begin(&mut self, system: &mut System) {
        self.processes = vec![Bucket::default(); system.jobs().len()];
        self.tick(system);
    }

    fn admit(&mut self, system: &mut System, process: usize) -> bool {
        let bucket = &mut self.processes[process];
        if cap(system, process).is_none() || bucket.tokens >= 0 {
            if let Phase::Waiting(Kernel { duration_ns, .. }) = system.jobs()[process].phase {
                let blocks = (duration_ns * BLOCKS_PER_US / 1_000).max(1);
                bucket.tokens -= i64::try_from(blocks).unwrap_or(i64::MAX);
            }
            return true;
        }
        if !std::mem::replace(&mut bucket.sleeps, true) {
            let who = u32::try_from(process).unwrap_or(u32::MAX);
            system.set_timer(system.now_ns() + SLEEP_NS, Timer { kind: SLEPT, who, stamp: 0 });
        }
        false
    }

    fn timer(&mut self, system: &mut System, timer: Timer) {
        if timer.kind == TICK {
            return self.tick(system);
        }
        self.processes[timer.who as usize].sleeps = false;
        system.retry(timer.who as usize, 0);
    }
}
