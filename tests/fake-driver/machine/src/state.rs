//! The machine's state, in a file that all its processes map.
//!
//! What a process may leave behind by dying anywhere is repaired by the next one that takes the lock: the
//! totals here are sums of what the processes' own entries say.

mod file;
mod lock;

pub(crate) use file::{MachineFile, Wanted, default_path};

use crate::MachineError;
use crate::liveness;
use crate::models::UNITS_MAX;
use crate::time::meeting::{self, Meetings};
use crate::time::{DeviceTime, Hardware};
use lock::Mutex;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

/// Processes that may use one machine at a time; a node has a thousand at most.
pub(crate) const PROCESSES_MAX: usize = 2048;

/// Processes whose account is kept after their end; the oldest goes first. A test runs some dozens.
pub(crate) const ENDED_MAX: usize = 1024;

/// Raised with every change to the structures here and in `time`.
pub(crate) const LAYOUT_VERSION: u32 = 6;

/// What a process holds of one device.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Use {
    pub(crate) bytes: u64,
    /// What it held when it was checkpointed, and will want again; 0 in every other state.
    pub(crate) parked_bytes: u64,
    /// Device time of contexts that are gone.
    pub(crate) closed_busy_ns: u64,
    pub(crate) has_context: u32,
    unused: u32,
    /// Managed memory, wherever it is.
    pub(crate) managed_bytes: u64,
    /// What of it is on the device: a part of what it holds, which goes to the host when the device is full.
    pub(crate) movable_bytes: u64,
}

impl Use {
    /// What can be moved to the host; nothing of what is parked.
    pub(crate) fn movable(&self) -> u64 {
        self.movable_bytes.min(self.bytes)
    }
}

/// What a process that is gone had of each device.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Ended {
    /// As the process itself saw it.
    pub(crate) pid: u32,
    unused: u32,
    pub(crate) busy_ns: [u64; UNITS_MAX],
}

/// The accounts of processes that are gone: a ring.
#[repr(C)]
pub(crate) struct EndedProcesses {
    count: u64,
    ring: [Ended; ENDED_MAX],
}

impl EndedProcesses {
    fn add(&mut self, pid: u32, busy_ns: [u64; UNITS_MAX]) {
        if busy_ns.iter().any(|busy| *busy > 0) {
            self.ring[(self.count % ENDED_MAX as u64) as usize] = Ended { pid, unused: 0, busy_ns };
            self.count += 1;
        }
    }

    pub(crate) fn all(&self) -> &[Ended] {
        &self.ring[..self.count.min(ENDED_MAX as u64) as usize]
    }
}

/// A process's entry.
#[repr(C)]
pub(crate) struct Process {
    /// As the process itself sees it; 0 when the entry is free.
    pub(crate) pid: u32,
    /// Grows whenever the entry is taken.
    pub(crate) generation: u32,
    /// 1 when it called `cuInit`: only such processes can be checkpointed.
    pub(crate) uses_cuda: u32,
    /// Who is locking it: one more than the entry, and the entry's generation.
    pub(crate) locker: (u32, u32),
    unused: u32,
    pub(crate) uses: [Use; UNITS_MAX],
}

/// What is looked at without the lock, by every call of the process; changed only under it.
#[repr(C)]
pub(crate) struct Gate {
    state: AtomicU32,
    /// Streams of the process with work that is not yet on the device. The process counts without the lock.
    pub(crate) waiting: AtomicU32,
}

/// States of a process, as the API numbers them, and one that it shows as `RUNNING`.
pub(crate) mod gate {
    /// Calls go through.
    pub(crate) const RUNNING: u32 = 0;
    /// Calls wait.
    pub(crate) const LOCKED: u32 = 1;
    /// And its memory is parked.
    pub(crate) const CHECKPOINTED: u32 = 2;
    /// Calls wait, and somebody waits for the end of what was submitted.
    pub(crate) const LOCKING: u32 = 16;
}

impl Gate {
    /// Relaxed: who must not miss a change looks under the lock.
    #[inline]
    pub(crate) fn state(&self) -> u32 {
        self.state.load(Ordering::Relaxed)
    }

    /// Only under the lock.
    pub(crate) fn set(&self, state: u32) {
        self.state.store(state, Ordering::Release);
    }

    fn reset(&self) {
        self.set(gate::RUNNING);
        self.waiting.store(0, Ordering::Relaxed);
    }
}

/// Everything but the devices' time.
#[repr(C)]
pub(crate) struct Body {
    pub(crate) hardware: Hardware,
    /// Sum of the processes' bytes.
    pub(crate) used_bytes: [u64; UNITS_MAX],
    /// No entry from here on was ever taken.
    processes_used: u32,
    unused: u32,
    pub(crate) processes: [Process; PROCESSES_MAX],
    pub(crate) meetings: Meetings,
    pub(crate) ended: EndedProcesses,
}

impl Body {
    /// The entries that were ever taken.
    pub(crate) fn processes_used(&self) -> &[Process] {
        &self.processes[..(self.processes_used as usize).min(PROCESSES_MAX)]
    }

    /// An entry for a new process.
    pub(crate) fn free_entry(&self) -> Option<usize> {
        let used = self.processes_used();
        let free = used.iter().position(|process| process.pid == 0);
        free.or((used.len() < PROCESSES_MAX).then_some(used.len()))
    }

    /// Makes an entry a process's own; its generation.
    pub(crate) fn take_entry(&mut self, at: usize, pid: u32) -> u32 {
        let process = &mut self.processes[at];
        process.uses = [Use::default(); UNITS_MAX];
        process.uses_cuda = 0;
        process.generation = process.generation.wrapping_add(1).max(1);
        process.pid = pid;
        self.processes_used = self.processes_used.max(at as u32 + 1);
        process.generation
    }
}

/// The beginning of the file.
#[repr(C)]
struct Front {
    header: file::Header,
    mutex: Mutex,
    gates: [Gate; PROCESSES_MAX],
    body: UnsafeCell<Body>,
}

/// The state, held: no other thread or process sees or changes it meanwhile.
pub(crate) struct Locked<'a> {
    pub(crate) body: &'a mut Body,
    pub(crate) devices: &'a mut [DeviceTime],
    pub(crate) gates: &'a [Gate; PROCESSES_MAX],
    _guard: lock::Guard<'a>,
}

impl Locked<'_> {
    /// A device's time, moved to now.
    pub(crate) fn time(&mut self, device: usize, now_ns: u64) -> &mut DeviceTime {
        let Body { hardware, meetings, .. } = &mut *self.body;
        if meetings.is_any() {
            meeting::advance_all(self.devices, meetings, hardware, now_ns);
        } else {
            self.devices[device].advance(hardware, now_ns);
        }
        &mut self.devices[device]
    }

    /// Forgets the groups of kernels that meet which have nobody left.
    pub(crate) fn collect_meetings(&mut self) {
        if self.body.meetings.is_any() {
            self.body.meetings.collect(self.devices);
        }
    }

    /// Gives back all that a process holds.
    pub(crate) fn release(&mut self, at: usize) {
        let process = &mut self.body.processes[at];
        let mut busy_ns = process.uses.map(|held| held.closed_busy_ns);
        for (device, time) in self.devices.iter_mut().enumerate() {
            let used = &mut self.body.used_bytes[device];
            *used = used.saturating_sub(process.uses[device].bytes);
            let names: Vec<_> = time.queues_of(at as u32).map(|(name, _)| name).collect();
            for name in names {
                busy_ns[device] += time.close(&self.body.hardware, name).unwrap_or(0);
            }
        }
        self.body.ended.add(process.pid, busy_ns);
        process.uses = [Use::default(); UNITS_MAX];
        process.pid = 0;
        self.gates[at].reset();
        self.collect_meetings();
    }

    /// True when the device has nothing left to do for a process.
    pub(crate) fn is_idle(&mut self, at: usize, now_ns: u64) -> bool {
        let queues_idle = (0..self.devices.len())
            .all(|device| self.time(device, now_ns).queues_of(at as u32).all(|(_, queue)| queue.pending_ns() == 0));
        queues_idle && self.gates[at].waiting.load(Ordering::Acquire) == 0
    }

    /// Takes a process's memory away and remembers how much it was.
    pub(crate) fn park(&mut self, at: usize) {
        for (held, used) in self.body.processes[at].uses.iter_mut().zip(&mut self.body.used_bytes) {
            *used = used.saturating_sub(held.bytes);
            held.parked_bytes = held.bytes;
            // In this order, so that who dies in between leaves the number in one place or in both.
            compiler_fence(Ordering::SeqCst);
            held.bytes = 0;
        }
        compiler_fence(Ordering::SeqCst);
        self.gates[at].set(gate::CHECKPOINTED);
    }

    /// Gives a process its memory again, which has to fit.
    pub(crate) fn unpark(&mut self, at: usize) {
        for (held, used) in self.body.processes[at].uses.iter_mut().zip(&mut self.body.used_bytes) {
            *used += held.parked_bytes;
            held.bytes = held.parked_bytes;
            compiler_fence(Ordering::SeqCst);
            held.parked_bytes = 0;
        }
        compiler_fence(Ordering::SeqCst);
        self.gates[at].set(gate::LOCKED);
    }

    /// Ends what `park` and `unpark` leave when their process dies: nothing is parked but of a checkpointed
    /// process, which holds nothing.
    fn repair_parked(&mut self) {
        for (at, process) in self.body.processes.iter_mut().enumerate() {
            let is_parked = self.gates[at].state() == gate::CHECKPOINTED;
            for held in process.uses.iter_mut().filter(|held| held.parked_bytes > 0) {
                let bytes = held.bytes.max(held.parked_bytes);
                (held.bytes, held.parked_bytes) = if is_parked { (0, bytes) } else { (bytes, 0) };
            }
        }
    }

    /// Makes the totals agree with the entries, after a process died in the middle of a change.
    fn repair(&mut self) {
        self.body.processes_used = self.body.processes_used.min(PROCESSES_MAX as u32);
        self.repair_parked();
        for (device, time) in self.devices.iter_mut().enumerate() {
            let holders = self.body.processes_used().iter().filter(|process| process.pid != 0);
            self.body.used_bytes[device] = holders.map(|process| process.uses[device].bytes).sum();
            for process in &mut self.body.processes {
                let held = &mut process.uses[device];
                held.movable_bytes = held.movable_bytes.min(held.managed_bytes).min(held.bytes.max(held.parked_bytes));
            }
            time.repair(&self.body.hardware);
        }
    }
}

/// A process's entry, as the process itself knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) entry: usize,
    pub(crate) generation: u32,
}

impl MachineFile {
    /// Takes the state's lock.
    ///
    /// # Errors
    /// When a stopped process holds it, or the file has been written to by somebody else.
    pub(crate) fn lock(&self) -> Result<Locked<'_>, MachineError> {
        let guard = self.mutex().lock().map_err(|why| self.damaged(why))?;
        let holder_died = guard.holder_died();
        let (body, devices) = self.parts(&guard);
        let mut locked = Locked { body, devices, gates: self.gates(), _guard: guard };
        if holder_died {
            locked.repair();
        }
        Ok(locked)
    }

    /// Takes an entry for the calling process.
    ///
    /// # Errors
    /// When all are taken, or the kernel refuses the record lock.
    pub(crate) fn claim(&self, locked: &mut Locked<'_>) -> Result<Claim, MachineError> {
        if !self.is_intact() {
            return Err(self.damaged("the program closed the descriptor through which it used it"));
        }
        let entry = locked.body.free_entry().ok_or_else(|| self.full())?;
        // Nobody else can be alive in a free entry: an entry is given back before its mark.
        if !liveness::mark(self.descriptor(), entry).map_err(|error| self.io(error))? {
            return Err(self.damaged("a process is alive in an entry that is free"));
        }
        locked.gates[entry].reset();
        Ok(Claim { entry, generation: locked.body.take_entry(entry, std::process::id()) })
    }
}
