//! What is to be simulated.

use crate::device::Costs;
use crate::workload::Workload;
use quota_core::compute::Share;
use quota_core::{Percent, Priority};

/// A device, those who share it, and what happens to them.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// All chance comes from it.
    pub seed: u64,
    /// When it ends.
    pub until_ns: u64,
    /// From when on things are measured.
    pub warm_ns: u64,
    /// The device.
    pub device: Costs,
    /// What the rest costs.
    pub overheads: Overheads,
    /// Parts of a thousand by which predictions of a kernel's length are wrong either way.
    pub misprediction: u32,
    /// Those who share the device.
    pub tenants: Vec<TenantPlan>,
    /// What happens when.
    pub changes: Vec<(u64, Change)>,
}

/// What things cost outside of the device, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overheads {
    /// A launch.
    pub launch_ns: u64,
    /// From the end of the last kernel until the program that waited for it goes on.
    pub synchronise_ns: u64,
    /// From a poke of the daemon to what it does.
    pub daemon_ns: u64,
    /// From a moment for which somebody set a timer to what it does then.
    pub timer_ns: u64,
    /// From the opening of a gate, or the end of a sleep, until the thread goes on.
    pub wake_ns: u64,
    /// Kernels that fit into the driver's queue.
    pub depth: u32,
}

impl Default for Overheads {
    fn default() -> Self {
        Self {
            launch_ns: 4_000,
            synchronise_ns: 8_000,
            daemon_ns: 15_000,
            timer_ns: 5_000,
            wake_ns: 30_000,
            depth: 1_024,
        }
    }
}

/// A tenant.
#[derive(Clone, Debug)]
pub struct TenantPlan {
    /// What it is called in tables.
    pub name: &'static str,
    /// What it is to get.
    pub share: Share,
    /// What its processes do; each has a context of its own.
    pub processes: Vec<Workload>,
}

/// Something that happens to a tenant (by its place in the scenario) or to a process (by its place among all).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The tenant is to get something else.
    Share(usize, Share),
    /// The tenant gets nothing.
    Pause(usize),
    /// It gets again what it is to get.
    Resume(usize),
    /// The process is stopped (SIGSTOP).
    Stop(usize),
    /// It goes on.
    Continue(usize),
    /// It is killed.
    Kill(usize),
}

impl Scenario {
    /// `tenants` share a device for `seconds`; what happens in the first two seconds is not measured.
    pub fn new(seed: u64, seconds: u64, tenants: Vec<TenantPlan>) -> Self {
        Self {
            seed,
            until_ns: seconds * 1_000_000_000,
            warm_ns: 2_000_000_000,
            device: Costs::default(),
            overheads: Overheads::default(),
            misprediction: 250,
            tenants,
            changes: Vec::new(),
        }
    }
}

impl TenantPlan {
    /// A tenant with one process, of normal class and weight 100, with neither cap nor guarantee.
    pub fn new(name: &'static str, workload: Workload) -> Self {
        let share = Share { weight: 100, guarantee: None, cap: None, class: Priority::Normal, pool: None };
        Self { name, share, processes: vec![workload] }
    }

    /// With this weight.
    pub fn weight(mut self, weight: u32) -> Self {
        self.share.weight = weight;
        self
    }

    /// With a cap in percent.
    pub fn cap(mut self, percent: u32) -> Self {
        self.share.cap = Percent::from_hundredths(percent * 100);
        self
    }

    /// With a guarantee in percent.
    pub fn guarantee(mut self, percent: u32) -> Self {
        self.share.guarantee = Percent::from_hundredths(percent * 100);
        self
    }

    /// Of this class.
    pub fn class(mut self, class: Priority) -> Self {
        self.share.class = class;
        self
    }

    /// With so many processes that do the same.
    pub fn processes(mut self, count: usize) -> Self {
        self.processes = self.processes.repeat(count);
        self
    }
}
