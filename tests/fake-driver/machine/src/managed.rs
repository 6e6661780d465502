//! Managed memory: on the device while there is room, and moved to the host for whoever needs the room.
//!
//! As on the real device, memory that can't be moved has precedence: managed memory of any process makes room for it. What is on
//! the host comes back when a kernel of its process runs, and moves that of others away. How long that takes, the driver adds.

use crate::machine::Machine;
use crate::models::DeviceSpec;
use crate::state::Locked;

/// What is moved at a time.
const CHUNK_BYTES: u64 = 2 << 20;

impl Locked<'_> {
    /// What nobody holds.
    pub(crate) fn free_bytes(&self, spec: &DeviceSpec, device: usize) -> u64 {
        spec.total_bytes.saturating_sub(spec.reserved_bytes + self.body.used_bytes[device])
    }

    /// What could be moved to the host.
    pub(crate) fn movable_bytes(&self, device: usize) -> u64 {
        self.body.processes_used().iter().map(|process| process.uses[device].movable()).sum()
    }

    /// Moves so much to the host, or all that there is of others than `spared`: first of who has most on the device.
    pub(crate) fn evict(&mut self, device: usize, bytes: u64, spared: Option<usize>) {
        let mut left = bytes.next_multiple_of(CHUNK_BYTES);
        while left > 0 {
            let movable = |at: &usize| self.body.processes[*at].uses[device].movable();
            let others = (0..self.body.processes_used().len()).filter(|at| Some(*at) != spared);
            let Some(at) = others.max_by_key(movable).filter(|at| movable(at) > 0) else { return };
            let held = &mut self.body.processes[at].uses[device];
            let part = held.movable().min(left);
            held.movable_bytes -= part;
            held.bytes -= part;
            self.body.used_bytes[device] = self.body.used_bytes[device].saturating_sub(part);
            left -= part;
        }
    }

    fn come(&mut self, entry: usize, device: usize, bytes: u64) {
        let held = &mut self.body.processes[entry].uses[device];
        held.bytes += bytes;
        held.movable_bytes += bytes;
        self.body.used_bytes[device] += bytes;
    }
}

impl Machine {
    /// Has this process have `bytes` more of managed memory: on the device if they fit beside what is there.
    pub fn take_managed(&self, device: usize, bytes: u64) {
        let spec = &self.units[device];
        if self.lock().free_bytes(spec, device) < bytes {
            self.sweep();
        }
        let (mut locked, entry) = self.own();
        locked.body.processes[entry].uses[device].managed_bytes += bytes;
        if bytes <= locked.free_bytes(spec, device) {
            locked.come(entry, device, bytes);
        }
    }

    /// Gives back `bytes` of this process's managed memory; what is on the host goes first.
    pub fn give_managed(&self, device: usize, bytes: u64) {
        let (locked, entry) = self.own();
        let held = &mut locked.body.processes[entry].uses[device];
        held.managed_bytes = held.managed_bytes.saturating_sub(bytes);
        let gone = held.movable().saturating_sub(held.managed_bytes);
        held.movable_bytes -= gone;
        held.bytes -= gone;
        locked.body.used_bytes[device] = locked.body.used_bytes[device].saturating_sub(gone);
    }

    /// A kernel runs: this process's managed memory comes to the device, as far as there is room for it beside what
    /// can't be moved. What was moved, to the device and away from it.
    pub fn use_managed(&self, device: usize) -> u64 {
        let spec = &self.units[device];
        let (mut locked, entry) = self.own();
        let held = locked.body.processes[entry].uses[device];
        let missing = held.managed_bytes.saturating_sub(held.movable());
        if missing == 0 {
            return 0;
        }
        let free = locked.free_bytes(spec, device);
        if missing > free {
            locked.evict(device, missing - free, Some(entry));
        }
        let free_now = locked.free_bytes(spec, device);
        let comes = missing.min(free_now / CHUNK_BYTES * CHUNK_BYTES);
        locked.come(entry, device, comes);
        comes + free_now.saturating_sub(free)
    }

    /// This process's managed memory, and what of it is on the device.
    pub fn managed(&self, device: usize) -> (u64, u64) {
        let (locked, entry) = self.own();
        let held = locked.body.processes[entry].uses[device];
        (held.managed_bytes, held.movable())
    }
}
