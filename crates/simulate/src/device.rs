//! The device: contexts take turns in hardware, a slice each, as a GPU does that is shared without anybody's help.
//!
//! A context is one process's. Its streams are queues in order; what several of them hold is executed one kernel after
//! the other, so that a context never uses more than the whole device. A kernel that is under way when the slice ends
//! is set aside and goes on in the context's next slice.

mod context;

pub use context::{After, Done, Kernel};

use crate::queue::{Event, Queue};
use crate::record::Record;
use context::Context;

/// What sharing costs in hardware, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Longest turn of a context while others have work.
    pub slice_ns: u64,
    /// From one context to another in the middle of work.
    pub hot_ns: u64,
    /// From one context that has nothing left to another.
    pub drained_ns: u64,
}

impl Default for Costs {
    /// Such that two busy contexts get 92 % of the device together, as was measured on an A100.
    fn default() -> Self {
        Self { slice_ns: 2_000_000, hot_ns: 170_000, drained_ns: 30_000 }
    }
}

/// A device.
#[derive(Debug)]
pub struct Device {
    costs: Costs,
    contexts: Vec<Context>,
    stage: Stage,
    /// Whose state is loaded.
    loaded: Option<usize>,
    /// Number of the only event that means something.
    stamp: u64,
    /// Times at which another context was loaded.
    switches: u64,
    switching_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Idle,
    Switching {
        to: usize,
    },
    Running {
        context: usize,
        since_ns: u64,
        slice_end_ns: u64,
        /// The event that is set comes at the end of the slice at the latest.
        watched: bool,
    },
}

impl Device {
    /// A device with so many contexts.
    pub fn new(costs: Costs, contexts: usize) -> Self {
        Self {
            costs,
            contexts: (0..contexts).map(|_| Context::default()).collect(),
            stage: Stage::Idle,
            loaded: None,
            stamp: 0,
            switches: 0,
            switching_ns: 0,
        }
    }

    /// Times at which another context was loaded.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Time that went by in loading contexts.
    pub fn switching_ns(&self) -> u64 {
        self.switching_ns
    }

    /// Puts a kernel at the end of its stream.
    pub fn submit(&mut self, context: usize, kernel: Kernel, now_ns: u64, queue: &mut Queue) {
        let was_ready = self.contexts[context].is_ready();
        self.contexts[context].push(kernel);
        match self.stage {
            Stage::Idle => self.pick(None, now_ns, queue),
            Stage::Running { context: running, watched: false, .. } if running != context && !was_ready => {
                self.set_event(now_ns, queue);
            }
            _ => {}
        }
    }

    /// An event of the device; answers which kernel has ended by it, and whose.
    pub fn event(&mut self, stamp: u64, now_ns: u64, queue: &mut Queue, record: &mut Record) -> Option<(usize, Done)> {
        if stamp != self.stamp {
            return None;
        }
        match self.stage {
            Stage::Idle => None,
            Stage::Switching { to } if self.contexts[to].is_ready() => {
                self.start(to, now_ns, queue);
                None
            }
            Stage::Switching { to } => {
                self.pick(Some(to), now_ns, queue);
                None
            }
            Stage::Running { context, slice_end_ns, .. } => {
                self.settle(now_ns, record);
                let done = self.contexts[context].take_done(now_ns);
                if !self.contexts[context].is_ready() {
                    self.pick(Some(context), now_ns, queue);
                } else if now_ns >= slice_end_ns && self.next_ready(Some(context)).is_some() {
                    self.switch(Some(context), true, now_ns, queue);
                } else {
                    self.set_event(now_ns, queue);
                }
                done.map(|done| (context, done))
            }
        }
    }

    /// The process is gone, and with it all that it had on the device.
    pub fn clear(&mut self, context: usize, now_ns: u64, queue: &mut Queue, record: &mut Record) {
        self.settle(now_ns, record);
        self.contexts[context] = Context::default();
        if matches!(self.stage, Stage::Running { context: running, .. } if running == context) {
            self.pick(Some(context), now_ns, queue);
        }
    }

    /// Books what the running kernel has had so far.
    pub fn settle(&mut self, now_ns: u64, record: &mut Record) {
        if let Stage::Running { context, since_ns, .. } = &mut self.stage {
            let from_ns = std::mem::replace(since_ns, now_ns);
            record.used(*context, from_ns, now_ns);
            self.contexts[*context].advance(from_ns, now_ns - from_ns);
        }
    }

    /// Gives the device to the next context that has work; the one before, if any, has none.
    fn pick(&mut self, before: Option<usize>, now_ns: u64, queue: &mut Queue) {
        self.switch(before, false, now_ns, queue);
    }

    fn switch(&mut self, before: Option<usize>, hot: bool, now_ns: u64, queue: &mut Queue) {
        let Some(next) = self.next_ready(before.or(self.loaded)) else {
            self.stage = Stage::Idle;
            self.stamp += 1;
            return;
        };
        if self.loaded == Some(next) {
            return self.start(next, now_ns, queue);
        }
        let cost_ns = if hot { self.costs.hot_ns } else { self.costs.drained_ns };
        self.loaded = Some(next);
        self.switches += 1;
        self.switching_ns += cost_ns;
        self.stage = Stage::Switching { to: next };
        self.stamp += 1;
        queue.set(now_ns + cost_ns, Event::Device(self.stamp));
    }

    /// The first with work in the round that begins behind `before`.
    fn next_ready(&self, before: Option<usize>) -> Option<usize> {
        let count = self.contexts.len();
        let first = before.map_or(0, |before| before + 1);
        let others = count - usize::from(before.is_some());
        (0..others).map(|step| (first + step) % count).find(|context| self.contexts[*context].is_ready()).or_else(
            || {
                // Nobody else: the same again, if it has anything.
                before.filter(|before| self.contexts[*before].is_ready() && !self.is_running(*before))
            },
        )
    }

    fn is_running(&self, context: usize) -> bool {
        matches!(self.stage, Stage::Running { context: running, .. } if running == context)
    }

    fn start(&mut self, context: usize, now_ns: u64, queue: &mut Queue) {
        let slice_end_ns = now_ns + self.costs.slice_ns;
        self.stage = Stage::Running { context, since_ns: now_ns, slice_end_ns, watched: false };
        self.set_event(now_ns, queue);
    }

    /// Sets the event at the end of the running kernel, or of the slice if others wait for it.
    fn set_event(&mut self, now_ns: u64, queue: &mut Queue) {
        let Stage::Running { context, since_ns, mut slice_end_ns, .. } = self.stage else { return };
        if slice_end_ns <= now_ns {
            // Slices that nobody else wanted went by; the one that is under way ends as if they had been noticed.
            slice_end_ns += ((now_ns - slice_end_ns) / self.costs.slice_ns + 1) * self.costs.slice_ns;
        }
        let end_ns = since_ns + self.contexts[context].remaining_ns();
        let watched = self.next_ready(Some(context)).is_some();
        let at_ns = if watched { end_ns.min(slice_end_ns) } else { end_ns };
        self.stage = Stage::Running { context, since_ns, slice_end_ns, watched };
        self.stamp += 1;
        queue.set(at_ns, Event::Device(self.stamp));
    }
}

#[cfg(test)]
mod tests;
