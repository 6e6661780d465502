//! How long kernels take, by `FAKE_CUDA_KERNELS` and their names.

use core::sync::atomic::{AtomicU64, Ordering};
use fake_machine::{KernelTime, Kernels, Work};
use std::sync::OnceLock;

/// The durations of one function's launches.
pub(crate) struct Timing {
    time: KernelTime,
    launches: AtomicU64,
}

impl Timing {
    /// What the script says of a function. A faulty script has stopped `cuInit`, so that none is left here.
    pub(crate) fn of(name: &str) -> Self {
        static KERNELS: OnceLock<Kernels> = OnceLock::new();
        let kernels = KERNELS.get_or_init(|| Kernels::from_environment().unwrap_or_default());
        Self { time: kernels.time_of(name), launches: AtomicU64::new(0) }
    }

    /// What the next launch has the device do.
    #[inline]
    pub(crate) fn next(&self) -> Work {
        match self.time {
            KernelTime::Fixed { duration_ns } => Work::Time(duration_ns),
            other => other.work(self.launches.fetch_add(1, Ordering::Relaxed)),
        }
    }
}
