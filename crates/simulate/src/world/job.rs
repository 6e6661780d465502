//! A process as the simulation sees it.

use crate::device::Kernel;
use crate::program::Program;
use crate::rng::Rng;
use crate::workload::Workload;

/// A process with one thread.
#[derive(Debug)]
pub struct Job {
    /// Whose it is.
    pub tenant: usize,
    /// What its thread does.
    pub phase: Phase,
    /// Kernels that were given to the device and have not ended.
    pub in_flight: u32,
    /// Kernels that have ended.
    pub kernels: u64,
    /// Whether it is stopped (SIGSTOP).
    pub is_stopped: bool,
    /// Whether it has work, under way or to be launched.
    pub has_work: bool,
    /// When it exited, or was killed.
    pub exited_ns: Option<u64>,
    /// When each request was answered, and how long after it came.
    pub answers: Vec<(u64, u64)>,
    pub(super) program: Program,
    pub(super) request_ns: Option<u64>,
    pub(super) wakes_at_ns: Option<u64>,
    pub(super) stamp: u32,
    /// It would have gone on, had it not been stopped.
    pub(super) is_late: bool,
}

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Goes on at once, or after it has noticed that the device is done.
    Running,
    /// Computes on the CPU, or waits for a request.
    Computing,
    /// Waits for leave to launch.
    Waiting(Kernel),
    /// Is in the driver's launch.
    Launching(Kernel),
    /// Waits for the device.
    Synchronising,
    /// Is gone.
    Exited,
}

impl Job {
    pub(super) fn new(tenant: usize, workload: Workload, rng: Rng) -> Self {
        Self {
            tenant,
            phase: Phase::Running,
            in_flight: 0,
            kernels: 0,
            is_stopped: false,
            has_work: false,
            exited_ns: None,
            answers: Vec::new(),
            program: Program::new(workload, rng),
            request_ns: None,
            wakes_at_ns: None,
            stamp: 0,
            is_late: false,
        }
    }

    /// True while its thread is at a launch.
    pub fn is_at_launch(&self) -> bool {
        matches!(self.phase, Phase::Waiting(_) | Phase::Launching(_))
    }

    /// The device has done all that was asked of it.
    pub(super) fn answer(&mut self, now_ns: u64) {
        if let Some(came_ns) = self.request_ns.take() {
            self.answers.push((now_ns, now_ns.saturating_sub(came_ns)));
        }
    }
}
