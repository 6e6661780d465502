//! How busy devices and processes were lately, as NVML's samplers see it: whole windows, so always late.

use crate::Machine;
use crate::clock::now_ns;
use crate::time::{DEVICE_WINDOWS, QUEUE_WINDOWS, WINDOW_NS, window_of};

/// How busy a device was during one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// End of the window, on the clock of [`crate::now_ns`].
    pub at_ns: u64,
    /// Part of the window in which a context was on the device.
    pub percent: u32,
}

/// How much of a device one process had during one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessSample {
    /// As in [`crate::ProcessUse`].
    pub host_pid: u32,
    /// End of the window, on the clock of [`crate::now_ns`].
    pub at_ns: u64,
    /// Part of the window in which the process's contexts were served.
    pub percent: u32,
}

impl Machine {
    /// How busy the device was during the last whole window.
    pub fn utilisation(&self, device: usize) -> u32 {
        self.samples(device).last().map_or(0, |sample| sample.percent)
    }

    /// The device's last whole windows, the oldest first.
    pub fn samples(&self, device: usize) -> Vec<Sample> {
        let now = now_ns();
        let mut locked = self.lock();
        let windows = &locked.time(device, now).windows;
        whole_windows(now, DEVICE_WINDOWS)
            .map(|window| Sample { at_ns: (window + 1) * WINDOW_NS, percent: percent(windows.busy_ns(window)) })
            .collect()
    }

    /// The last whole windows of every process that had the device in them, the oldest first.
    pub fn process_samples(&self, device: usize) -> Vec<ProcessSample> {
        let living = self.sweep();
        let now = now_ns();
        let mut locked = self.lock();
        locked.time(device, now);
        let time = &locked.devices[device];
        let mut samples = Vec::new();
        for window in whole_windows(now, QUEUE_WINDOWS) {
            for process in living.iter().filter(|process| process.of(&locked).is_some()) {
                let queues = time.queues_of(process.entry as u32);
                let busy: u64 = queues.map(|(_, queue)| queue.windows.busy_ns(window)).sum();
                if busy > 0 {
                    let at_ns = (window + 1) * WINDOW_NS;
                    samples.push(ProcessSample { host_pid: process.host_pid, at_ns, percent: percent(busy) });
                }
            }
        }
        samples
    }
}

/// Windows that are over and still kept; the newest kept one is not over.
fn whole_windows(now_ns: u64, kept: usize) -> std::ops::Range<u64> {
    let running = window_of(now_ns);
    running.saturating_sub(kept as u64 - 1)..running
}

fn percent(busy_ns: u64) -> u32 {
    // Rounded to the nearest; a window is never busier than whole.
    u32::try_from((busy_ns * 100 + WINDOW_NS / 2) / WINDOW_NS).unwrap_or(100).min(100)
}
