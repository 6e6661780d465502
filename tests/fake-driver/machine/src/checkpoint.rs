//! Processes that others stop: their calls wait, and their memory can be put aside for others to use.
//!
//! Every process has a gate in the shared state. Whoever locks it has the process's calls wait there, and waits
//! in turn for the work that was submitted before. Memory that is put aside ("parked") is a number in the
//! process's entry, which counts again when it is restored, and is forgotten when the process dies.

use crate::Machine;
use crate::clock::now_ns;
use crate::liveness;
use crate::machine::Living;
use crate::state::{Locked, gate};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a gate is looked at.
const LOOK: Duration = Duration::from_millis(1);
/// After so many looks it is asked whether who locks the process still lives.
const LOOKS_BEFORE_ASKING: u32 = 64;

/// The state of a process, with the API's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessState {
    /// Its calls go through.
    Running = 0,
    /// Its calls wait, and no work of it is left.
    Locked = 1,
    /// Its memory is put aside, too.
    Checkpointed = 2,
}

/// What keeps a process from being stopped or let go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Nobody of that number uses CUDA here.
    #[error("no process of this machine has that number and uses CUDA")]
    NoSuchProcess,
    /// The process is in another state than the one from which this can be done.
    #[error("the process is in another state")]
    WrongState,
    /// The process's work didn't end in time.
    #[error("the process still has work")]
    NotReady,
    /// What was put aside no longer fits its devices.
    #[error("the devices have no room for the process's memory")]
    OutOfMemory,
    /// The process's memory is on a device that was not named.
    #[error("a device of the process is not listed")]
    DeviceNotListed,
}

/// Waits until it is worth looking again.
pub(crate) fn pause() {
    std::thread::sleep(LOOK);
}

impl Machine {
    /// Makes this process one that others can stop.
    pub fn use_cuda(&self) {
        self.uses_cuda.store(true, Ordering::Relaxed);
        let mut locked = self.lock();
        let entry = self.own_entry(&mut locked);
        locked.body.processes[entry].uses_cuda = 1;
    }

    /// True when calls of this process have to wait: asked at every call.
    #[inline]
    pub fn is_held(&self) -> bool {
        let entry = (self.entry.load(Ordering::Relaxed) >> 32) as usize;
        self.file.gates().get(entry).is_some_and(|gate| gate.state() != gate::RUNNING)
    }

    /// Waits until calls of this process go through again.
    pub fn wait_until_let_go(&self) {
        let mut looks = 0;
        while self.is_held() {
            pause();
            looks += 1;
            if looks % LOOKS_BEFORE_ASKING == 0 {
                let mut locked = self.lock();
                let entry = self.own_entry(&mut locked);
                self.forget_dead_locker(&mut locked, entry);
            }
        }
    }

    /// Says that a stream of this process has work which is not yet on the device, or has it no longer.
    pub fn stream_waits(&self, waits: bool) {
        let entry = (self.entry.load(Ordering::Relaxed) >> 32) as usize;
        let Some(gate) = self.file.gates().get(entry) else { return };
        // Release pairs with the acquire of who waits for zero: what the stream did is done then.
        let count = |before: u32| Some(if waits { before.saturating_add(1) } else { before.saturating_sub(1) });
        let _ = gate.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, count); // It always has a new value.
    }

    /// The state of a process, by its number as the caller sees it.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn process_state(&self, pid: u32) -> Result<ProcessState, CheckpointError> {
        let target = self.target(pid)?;
        let (locked, entry) = self.of_target(&target)?;
        Ok(match locked.gates[entry].state() {
            gate::LOCKED => ProcessState::Locked,
            gate::CHECKPOINTED => ProcessState::Checkpointed,
            _ => ProcessState::Running,
        })
    }

    /// Has a process's calls wait, once its work is done; it stays running when that takes longer than `timeout`.
    ///
    /// # Errors
    /// When there is no such process, it is not running, or its work takes too long.
    pub fn lock_process(&self, pid: u32, timeout: Duration) -> Result<(), CheckpointError> {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = now_ns().saturating_add(timeout_ns);
        let target = self.target(pid)?;
        {
            let (mut locked, entry) = self.of_target(&target)?;
            expect(&locked, entry, gate::RUNNING)?;
            let own = self.own_entry(&mut locked);
            let generation = locked.body.processes[own].generation;
            locked.body.processes[entry].locker = (own as u32 + 1, generation);
            locked.gates[entry].set(gate::LOCKING);
        }
        loop {
            {
                let (mut locked, entry) = self.of_target(&target)?;
                let now = now_ns();
                if locked.is_idle(entry, now) {
                    locked.gates[entry].set(gate::LOCKED);
                    return Ok(());
                }
                if now >= deadline_ns {
                    locked.gates[entry].set(gate::RUNNING);
                    return Err(CheckpointError::NotReady);
                }
            }
            pause();
            self.release_if_dead(target.entry);
        }
    }

    /// Puts the memory of a locked process aside.
    ///
    /// # Errors
    /// When there is no such process, or it is not locked.
    pub fn checkpoint_process(&self, pid: u32) -> Result<(), CheckpointError> {
        let target = self.target(pid)?;
        let (mut locked, entry) = self.of_target(&target)?;
        expect(&locked, entry, gate::LOCKED)?;
        locked.park(entry);
        Ok(())
    }

    /// Takes the memory of a checkpointed process again, all of it or nothing. `listed` are the devices that the
    /// caller named, where it did.
    ///
    /// # Errors
    /// When there is no such process, it is not checkpointed, has memory on another device, or it doesn't fit.
    pub fn restore_process(&self, pid: u32, listed: Option<&[usize]>) -> Result<(), CheckpointError> {
        let target = self.target(pid)?; // Has looked for the dead, so that what they held is free.
        let (mut locked, entry) = self.of_target(&target)?;
        expect(&locked, entry, gate::CHECKPOINTED)?;
        for (device, spec) in self.units.iter().enumerate() {
            let held = &locked.body.processes[entry].uses[device];
            let is_used = held.parked_bytes > 0 || held.has_context != 0;
            if is_used && listed.is_some_and(|listed| !listed.contains(&device)) {
                return Err(CheckpointError::DeviceNotListed);
            }
            let used = spec.reserved_bytes + locked.body.used_bytes[device];
            if held.parked_bytes > spec.total_bytes.saturating_sub(used) {
                return Err(CheckpointError::OutOfMemory);
            }
        }
        locked.unpark(entry);
        Ok(())
    }

    /// Lets the calls of a locked process go on.
    ///
    /// # Errors
    /// When there is no such process, or it is not locked.
    pub fn unlock_process(&self, pid: u32) -> Result<(), CheckpointError> {
        let target = self.target(pid)?;
        let (locked, entry) = self.of_target(&target)?;
        expect(&locked, entry, gate::LOCKED)?;
        locked.gates[entry].set(gate::RUNNING);
        Ok(())
    }

    /// The living process of a number that uses CUDA.
    fn target(&self, pid: u32) -> Result<Living, CheckpointError> {
        let living = self.sweep();
        let locked = self.lock();
        let uses_cuda = |process: &Living| process.of(&locked).is_some_and(|entry| entry.uses_cuda != 0);
        let mut of_number = living.into_iter().filter(|process| process.is_seen && process.host_pid == pid);
        of_number.find(uses_cuda).ok_or(CheckpointError::NoSuchProcess)
    }

    /// The state, held, and the process's entry, unless it has died since.
    fn of_target(&self, target: &Living) -> Result<(Locked<'_>, usize), CheckpointError> {
        let mut locked = self.lock();
        target.of(&locked).ok_or(CheckpointError::NoSuchProcess)?;
        self.forget_dead_locker(&mut locked, target.entry);
        Ok((locked, target.entry))
    }

    /// Lets a process go on whose locker died waiting for its work.
    fn forget_dead_locker(&self, locked: &mut Locked<'_>, entry: usize) {
        if locked.gates[entry].state() != gate::LOCKING {
            return;
        }
        let (locker, generation) = locked.body.processes[entry].locker;
        let at = (locker as usize).wrapping_sub(1);
        let known = locked.body.processes.get(at).filter(|locker| locker.pid != 0 && locker.generation == generation);
        let is_dead = known.is_none() || matches!(liveness::owner(self.file.descriptor(), at), Ok(None));
        if is_dead {
            locked.gates[entry].set(gate::RUNNING);
        }
    }
}

fn expect(locked: &Locked<'_>, entry: usize, state: u32) -> Result<(), CheckpointError> {
    if locked.gates[entry].state() == state { Ok(()) } else { Err(CheckpointError::WrongState) }
}
