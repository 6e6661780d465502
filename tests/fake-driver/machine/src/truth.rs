//! Who had how much of a device: what tests measure shares by. A program on a real machine can't know it so well.
#![allow(unsafe_code)]

use crate::Machine;
use crate::clock::now_ns;
use crate::liveness;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// A signalled process stops within microseconds, or it is not there.
const STOP_WAIT_MAX: Duration = Duration::from_secs(2);

/// What a device did since the machine began, at one moment. Two of them tell what it did in between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// The moment, on the clock of [`now_ns`].
    pub at_ns: u64,
    /// Time in which a context had the device.
    pub busy_ns: u64,
    /// Time that went into switches between contexts; neither busy nor idle.
    pub switch_ns: u64,
    /// Time in which a process's contexts had the device, by the process's own pid, those included that have ended.
    pub processes: BTreeMap<u32, u64>,
}

/// Sends a process a signal, wherever it is.
///
/// # Errors
/// When there is no such process, or it is not ours to send.
pub fn signal_process(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    // SAFETY: a system call without pointers.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Account {
    /// What happened since an earlier one.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |pid: &u32| earlier.processes.get(pid).copied().unwrap_or(0);
        Self {
            at_ns: self.at_ns.saturating_sub(earlier.at_ns),
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            switch_ns: self.switch_ns.saturating_sub(earlier.switch_ns),
            processes: self.processes.iter().map(|(pid, busy)| (*pid, busy.saturating_sub(before(pid)))).collect(),
        }
    }

    /// What a process had.
    pub fn of(&self, pid: u32) -> u64 {
        self.processes.get(&pid).copied().unwrap_or(0)
    }

    /// Time in which the device did nothing; of the difference of two accounts only.
    pub fn idle_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.busy_ns).saturating_sub(self.switch_ns)
    }
}

impl Machine {
    /// What a device did so far, all of it at one moment.
    pub fn account(&self, device: usize) -> Account {
        let mut locked = self.lock();
        locked.devices[device].buried_ns = 0; // Whoever measures wants to know now who is dead.
        let at_ns = self.look(&mut locked, device);
        let time = &locked.devices[device];
        let mut processes = BTreeMap::new();
        for ended in locked.body.ended.all() {
            *processes.entry(ended.pid).or_insert(0) += ended.busy_ns[device];
        }
        for (entry, process) in (0..).zip(locked.body.processes_used()).filter(|(_, process)| process.pid != 0) {
            let open: u64 = time.queues_of(entry).map(|(_, queue)| queue.busy_ns()).sum();
            let busy = open + process.uses[device].closed_busy_ns;
            if busy > 0 {
                *processes.entry(process.pid).or_insert(0) += busy;
            }
        }
        Account { at_ns, busy_ns: time.busy_ns, switch_ns: time.switch_ns, processes }
    }

    /// Time in which a process's contexts had the device, also of one that has ended; by its own pid.
    pub fn served(&self, pid: u32, device: usize) -> u64 {
        self.account(device).of(pid)
    }

    /// Time in which a context had the device.
    pub fn busy_ns(&self, device: usize) -> u64 {
        self.lock().time(device, now_ns()).busy_ns
    }

    /// Device time that a living process's contexts had so far.
    pub fn busy_ns_of(&self, device: usize, host_pid: u32) -> u64 {
        let living = self.sweep();
        let mut locked = self.lock();
        locked.time(device, now_ns());
        let of_process = living.iter().filter(|process| process.host_pid == host_pid);
        let busy = of_process.filter_map(|process| {
            let closed = process.of(&locked)?.uses[device].closed_busy_ns;
            let open = locked.devices[device].queues_of(process.entry as u32).map(|(_, queue)| queue.busy_ns());
            Some(closed + open.sum::<u64>())
        });
        busy.sum()
    }

    /// Stops a process by `SIGSTOP`, at a moment at which it doesn't hold the machine's lock: a real driver's work on the
    /// device doesn't depend on whether a process runs, and nor must this one's. What the device has goes on.
    ///
    /// # Errors
    /// When the signal can't be sent, or the process doesn't stop.
    pub fn stop_process(&self, pid: u32) -> io::Result<()> {
        let _held = self.lock();
        signal_process(pid, libc::SIGSTOP)?;
        let deadline = Instant::now() + STOP_WAIT_MAX;
        while !liveness::is_stopped(pid)? {
            if Instant::now() >= deadline {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }
}
