//! A machine as the driver's processes use it.

use crate::clock::now_ns;
use crate::liveness;
use crate::models::{self, DeviceSpec, parse_machine};
use crate::settings::{self, SettingError};
use crate::state::{Claim, Locked, MachineFile, Wanted, default_path, gate};
use crate::time::Hardware;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What keeps a machine from being opened.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The machine's description can't be followed.
    #[error(
        "FAKE_CUDA_MACHINE={spec:?}: {why}; devices, counts and lists of them are right, such as 2xa100-80gb,l4-24gb; known: {known}"
    )]
    Spec {
        /// The description.
        spec: String,
        /// What is wrong with it.
        why: String,
        /// The devices that there are.
        known: String,
    },
    /// Another setting can't be followed.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The file can't be used.
    #[error("the simulated machine's state {path:?} can't be used: {source}; FAKE_CUDA_STATE names another file")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// The file is not, or no longer, the state of a machine.
    #[error(
        "{path:?} is no state of a simulated machine: {why}; name another file with FAKE_CUDA_STATE, or remove this one if nothing needs it"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another version of this software made the file.
    #[error(
        "the simulated machine's state {path:?} has layout {found}, this software writes layout {known}; remove it, or name another file with FAKE_CUDA_STATE"
    )]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The file holds another machine.
    #[error(
        "the simulated machine's state {path:?} holds {holds}, not {wanted}; set FAKE_CUDA_MACHINE to that, remove the file, or name another one with FAKE_CUDA_STATE"
    )]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// Its machine.
        holds: String,
        /// The one asked for.
        wanted: String,
    },
    /// There are more processes than the file has room for.
    #[error("the simulated machine's state {path:?} has no room for another process")]
    Full {
        /// The file.
        path: PathBuf,
    },
}

/// The device has not that much memory left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{requested_bytes} bytes were asked for, {free_bytes} are free")]
pub struct OutOfMemory {
    /// What was asked for.
    pub requested_bytes: u64,
    /// What is left.
    pub free_bytes: u64,
}

/// What a living process holds of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessUse {
    /// Its number as the caller's PID namespace sees it; its own number where that sees it not.
    pub host_pid: u32,
    /// Device memory that it holds.
    pub bytes: u64,
    /// What of it goes to the host when somebody needs the room.
    pub movable_bytes: u64,
    /// True when it has a context on the device.
    pub has_context: bool,
}

/// A simulated machine, and this process's place on it.
///
/// # Panics
/// Every method that takes a device expects the number of one of [`Machine::units`]. All of them panic when the state
/// can't be locked: its file was overwritten, or a stopped process has held it for ten seconds.
pub struct Machine {
    pub(crate) file: MachineFile,
    /// The devices, then the MIG instances.
    pub(crate) units: Vec<DeviceSpec>,
    /// How many of them are devices.
    boards: usize,
    /// This process's entry and its generation, in the upper and lower half.
    pub(crate) entry: AtomicU64,
    /// True once the process has called `cuInit`.
    pub(crate) uses_cuda: AtomicBool,
    /// What [`liveness::forks`] said when the entry was taken.
    forks: AtomicU64,
}

/// The machine where nothing names another.
const SPEC_DEFAULT: &str = "a100-80gb";

impl Machine {
    /// The machine of the environment: `FAKE_CUDA_MACHINE`, `FAKE_CUDA_STATE`, `FAKE_CUDA_SLICE` and
    /// `FAKE_CUDA_SWITCH`. Checks all other settings too.
    ///
    /// # Errors
    /// A setting that can't be followed, or a state that can't be used.
    pub fn from_environment() -> Result<Self, MachineError> {
        settings::validate()?;
        let spec = settings::text("FAKE_CUDA_MACHINE")?;
        let state = std::env::var_os("FAKE_CUDA_STATE").filter(|path| !path.is_empty()).map(PathBuf::from);
        let hardware = settings::hardware_from_environment()?;
        Self::open_with(spec.as_deref().unwrap_or(SPEC_DEFAULT), state.as_deref(), hardware)
    }

    /// The machine `spec` whose state is the file `state`, made if there is none.
    ///
    /// # Errors
    /// A machine that is none, or a state that can't be used.
    pub fn open(spec: &str, state: &Path) -> Result<Self, MachineError> {
        Self::open_with(spec, Some(state), None)
    }

    /// The same with hardware that shares itself out in another way; that holds for all its processes.
    ///
    /// # Errors
    /// As those of [`Machine::open`].
    pub fn open_with(spec: &str, state: Option<&Path>, hardware: Option<Hardware>) -> Result<Self, MachineError> {
        liveness::count_forks();
        let boards = parse_machine(spec)?;
        let (spec, units) = (models::canonical(&boards), models::devices(&boards));
        let default = default_path(&spec);
        let (path, is_default) = (state.unwrap_or(&default), state.is_none());
        let wanted = Wanted { path, spec: &spec, devices: units.len(), hardware, is_default };
        let (file, claim) = MachineFile::open(&wanted)?;
        let machine =
            Self { file, units, boards: boards.len(), entry: 0.into(), uses_cuda: false.into(), forks: 0.into() };
        machine.remember(claim);
        Ok(machine)
    }

    /// The devices in the order of the PCI bus, which is NVML's.
    pub fn devices(&self) -> &[DeviceSpec] {
        &self.units[..self.boards]
    }

    /// The devices, then the MIG instances. Memory and time are a unit's: of a divided device, its instances'.
    pub fn units(&self) -> &[DeviceSpec] {
        &self.units
    }

    /// The units that are MIG instances of a device, in the order in which they were made.
    pub fn instances(&self, device: usize) -> impl Iterator<Item = usize> + '_ {
        let is_its = move |unit: &usize| self.units[*unit].instance.as_ref().is_some_and(|it| it.parent == device);
        (self.boards..self.units.len()).filter(is_its)
    }

    /// Has this process hold `bytes` more.
    ///
    /// # Errors
    /// [`OutOfMemory`] when the device has less left.
    pub fn take(&self, device: usize, bytes: u64) -> Result<(), OutOfMemory> {
        self.try_take(device, bytes).or_else(|_| {
            self.sweep();
            self.try_take(device, bytes)
        })
    }

    fn try_take(&self, device: usize, bytes: u64) -> Result<(), OutOfMemory> {
        let spec = &self.units[device];
        let (mut locked, entry) = self.own();
        let free_bytes = locked.free_bytes(spec, device);
        if bytes > free_bytes {
            if bytes - free_bytes > locked.movable_bytes(device) {
                return Err(OutOfMemory { requested_bytes: bytes, free_bytes });
            }
            locked.evict(device, bytes - free_bytes, None);
        }
        locked.body.processes[entry].uses[device].bytes += bytes;
        locked.body.used_bytes[device] += bytes;
        Ok(())
    }

    /// Gives back `bytes` of what this process holds.
    pub fn give(&self, device: usize, bytes: u64) {
        let (locked, entry) = self.own();
        let held = &mut locked.body.processes[entry].uses[device].bytes;
        debug_assert!(*held >= bytes, "{bytes} bytes are given back, {held} are held");
        let bytes = bytes.min(*held);
        *held -= bytes;
        locked.body.used_bytes[device] -= bytes;
    }

    /// Memory in use: what living processes hold, and what the driver keeps for itself.
    ///
    /// The device's total less this is what can still be taken.
    pub fn used(&self, device: usize) -> u64 {
        self.sweep();
        self.units[device].reserved_bytes + self.lock().body.used_bytes[device]
    }

    /// Memory that this process holds.
    pub fn used_by_self(&self, device: usize) -> u64 {
        let mut locked = self.lock();
        let entry = self.own_entry(&mut locked);
        locked.body.processes[entry].uses[device].bytes
    }

    /// Living processes that have a context or memory on the device: what they hold at one moment, at which they all live.
    pub fn processes(&self, device: usize) -> Vec<ProcessUse> {
        let living = self.sweep();
        let locked = self.lock();
        let uses = living.iter().filter_map(|process| {
            let held = process.of(&locked)?.uses[device];
            let has_context = held.has_context != 0;
            let it = ProcessUse {
                host_pid: process.host_pid,
                bytes: held.bytes,
                movable_bytes: held.movable(),
                has_context,
            };
            (has_context || held.bytes > 0).then_some((process, it))
        });
        let uses: Vec<_> = uses.collect();
        drop(locked);
        // Who has died since it was asked for may have been followed by others, who hold that memory now.
        let still = self.sweep();
        let lives = |process: &Living| still.iter().any(|other| other.is_same(process));
        uses.into_iter().filter(|(process, _)| lives(process)).map(|(_, it)| it).collect()
    }

    /// Says whether this process has a context on the device; lists of processes show it then.
    pub fn set_context(&self, device: usize, present: bool) {
        let (locked, entry) = self.own();
        locked.body.processes[entry].uses[device].has_context = present.into();
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        self.file.lock().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The state, held, and this process's entry: once nobody has it locked or checkpointed, so that a call which
    /// was under way then changes nothing meanwhile.
    pub(crate) fn own(&self) -> (Locked<'_>, usize) {
        loop {
            let mut locked = self.lock();
            let entry = self.own_entry(&mut locked);
            if matches!(locked.gates[entry].state(), gate::RUNNING | gate::LOCKING) {
                return (locked, entry);
            }
            drop(locked);
            crate::checkpoint::pause();
        }
    }

    /// This process's entry, taken anew where a fork or an unlucky program lost it.
    pub(crate) fn own_entry(&self, locked: &mut Locked<'_>) -> usize {
        let word = self.entry.load(Ordering::Relaxed); // Written under the machine's lock only.
        let (entry, generation) = ((word >> 32) as usize, word as u32);
        let is_own = self.forks.load(Ordering::Relaxed) == liveness::forks();
        let process = locked.body.processes.get(entry);
        if is_own && process.is_some_and(|process| process.generation == generation && process.pid != 0) {
            return entry;
        }
        let claim = self.file.claim(locked).unwrap_or_else(|error| panic!("{error}"));
        self.remember(claim);
        locked.body.processes[claim.entry].uses_cuda = self.uses_cuda.load(Ordering::Relaxed).into();
        claim.entry
    }

    fn remember(&self, claim: Claim) {
        self.entry.store((claim.entry as u64) << 32 | u64::from(claim.generation), Ordering::Relaxed);
        self.forks.store(liveness::forks(), Ordering::Relaxed);
    }

    /// Gives back what dead processes hold; the living ones.
    pub(crate) fn sweep(&self) -> Vec<Living> {
        let mut processes: Vec<Living> = {
            let locked = self.lock();
            let taken = (0..).zip(locked.body.processes_used()).filter(|(_, process)| process.pid != 0);
            taken
                .map(|(entry, process)| Living {
                    entry,
                    generation: process.generation,
                    host_pid: process.pid,
                    is_seen: false,
                })
                .collect()
        };
        if self.file.is_intact() {
            // The kernel is asked without the lock: with many processes that takes a while.
            processes.retain_mut(|process| match liveness::owner(self.file.descriptor(), process.entry) {
                Ok(Some(0)) | Err(_) => true,
                Ok(Some(pid)) => {
                    (process.host_pid, process.is_seen) = (pid, true);
                    true
                }
                Ok(None) => !self.release_if_dead(process.entry),
            });
        }
        processes
    }

    /// True when the entry's process was dead, and what it held is given back.
    pub(crate) fn release_if_dead(&self, entry: usize) -> bool {
        let mut locked = self.lock();
        let is_taken = locked.body.processes_used().get(entry).is_some_and(|process| process.pid != 0);
        // Under the lock, under which entries are taken: an entry without a mark has no living owner.
        let is_dead = matches!(liveness::owner(self.file.descriptor(), entry), Ok(None));
        if !is_taken || !is_dead || !self.file.is_intact() {
            return false;
        }
        for device in 0..self.units.len() {
            locked.time(device, now_ns());
        }
        locked.release(entry);
        true
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Machine {
    /// Gives this process's place back: for who only looks. Whoever takes something afterwards gets a new one.
    pub fn leave(&self) {
        let word = self.entry.load(Ordering::Relaxed);
        let (entry, generation) = ((word >> 32) as usize, word as u32);
        if self.forks.load(Ordering::Relaxed) != liveness::forks() {
            return; // The parent's.
        }
        let Ok(mut locked) = self.file.lock() else { return };
        if locked.body.processes.get(entry).is_some_and(|process| process.generation == generation && process.pid != 0)
        {
            locked.release(entry);
            let _ = liveness::unmark(self.file.descriptor(), entry); // At worst nobody takes the entry again.
        }
    }
}

/// A process that lives.
pub(crate) struct Living {
    pub(crate) entry: usize,
    generation: u32,
    pub(crate) host_pid: u32,
    /// True when the caller's PID namespace shows it.
    pub(crate) is_seen: bool,
}

impl Living {
    fn is_same(&self, other: &Self) -> bool {
        (self.entry, self.generation) == (other.entry, other.generation)
    }

    /// Its entry, unless it has died since.
    pub(crate) fn of<'a>(&self, locked: &'a Locked<'_>) -> Option<&'a crate::state::Process> {
        locked
            .body
            .processes
            .get(self.entry)
            .filter(|process| process.generation == self.generation && process.pid != 0)
    }
}
