//! The file itself: found or made, checked, mapped.
//!
//! A file that is new, or that no living process uses, begins afresh, so nothing of what dead processes
//! left in it is ever trusted. Only the header has to be right: it says what the file is.
#![allow(unsafe_code)]

use super::lock::{Guard, Mutex};
use super::{Body, Claim, Front, Gate, LAYOUT_VERSION, PROCESSES_MAX};
use crate::MachineError;
use crate::liveness::{self, Opening};
use crate::time::{DeviceTime, Hardware};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// What the file is: magic, layout, size of the file and of libc's mutex, and the machine.
pub(super) type Header = [u8; HEADER_BYTES];
const HEADER_BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"fakecuda";
const LAYOUT_AT: usize = 8;
const FILE_BYTES_AT: usize = 16;
const MUTEX_BYTES_AT: usize = 24;
const SPEC_AT: usize = 32;

/// Attempts to open what another process is just making or removing.
const OPEN_ATTEMPTS: u32 = 16;

/// What the machine's user asked for.
pub(crate) struct Wanted<'a> {
    pub(crate) path: &'a Path,
    /// The machine in its canonical form.
    pub(crate) spec: &'a str,
    /// Devices and instances.
    pub(crate) devices: usize,
    /// Set by the environment: then it holds for all processes.
    pub(crate) hardware: Option<Hardware>,
    /// True for a path that nobody named: then it has to be the user's own.
    pub(crate) is_default: bool,
}

/// The file of a machine, mapped.
pub(crate) struct MachineFile {
    path: PathBuf,
    file: &'static File,
    /// Device and inode, by which the descriptor is known to be still the file's.
    identity: (u64, u64),
    map: NonNull<u8>,
    devices: usize,
}

// SAFETY: the map is shared memory that stays until the value is dropped; what lies in it is reached
// through the mutex only.
unsafe impl Send for MachineFile {}
// SAFETY: as above.
unsafe impl Sync for MachineFile {}

impl MachineFile {
    /// Opens or makes the file and takes an entry in it for the calling process.
    pub(crate) fn open(wanted: &Wanted<'_>) -> Result<(Self, Claim), MachineError> {
        let io = |source| MachineError::Io { path: wanted.path.to_owned(), source };
        let mut known = KNOWN.lock();
        let file = known.find_or_make(wanted)?;
        check(file, wanted)?;
        let identity = identity(file).map_err(io)?;
        let map = map(file, file_bytes(wanted.devices)).map_err(io)?;
        let machine = Self { path: wanted.path.to_owned(), file, identity, map, devices: wanted.devices };
        let opening = Opening::begin(file.as_fd()).map_err(io)?;
        let is_first = !liveness::is_anyone_alive(file.as_fd()).map_err(io)?;
        if is_first {
            machine.begin_afresh();
        }
        let mut locked = machine.lock()?;
        if let Some(hardware) = wanted.hardware.or(is_first.then(Hardware::default)) {
            locked.body.hardware = hardware;
        }
        let claim = machine.claim(&mut locked)?;
        drop((locked, opening));
        Ok((machine, claim))
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Device and inode of the file, which name the machine.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// False when the program closed the descriptor: then its locks are gone, and it tells nothing.
    pub(crate) fn is_intact(&self) -> bool {
        identity(self.file).is_ok_and(|identity| identity == self.identity)
    }

    pub(crate) fn damaged(&self, why: &str) -> MachineError {
        MachineError::Damaged { path: self.path.clone(), why: why.to_owned() }
    }

    pub(crate) fn io(&self, source: io::Error) -> MachineError {
        MachineError::Io { path: self.path.clone(), source }
    }

    pub(crate) fn full(&self) -> MachineError {
        MachineError::Full { path: self.path.clone() }
    }

    pub(super) fn mutex(&self) -> &Mutex {
        // SAFETY: the map is that long and aligned, and any bytes are a `Mutex`.
        unsafe { &*self.front().byte_add(offset_of!(Front, mutex)).cast::<Mutex>() }
    }

    /// What may be looked at without the mutex.
    pub(crate) fn gates(&self) -> &[Gate; PROCESSES_MAX] {
        // SAFETY: the map is that long and aligned, any bytes are gates, and all access to them is atomic.
        unsafe { &*self.front().byte_add(offset_of!(Front, gates)).cast::<[Gate; PROCESSES_MAX]>() }
    }

    /// What the mutex protects.
    #[allow(clippy::mut_from_ref)] // The guard is what makes it exclusive.
    pub(super) fn parts<'a>(&'a self, _guard: &Guard<'a>) -> (&'a mut Body, &'a mut [DeviceTime]) {
        let body = self.front().wrapping_byte_add(offset_of!(Front, body)).cast::<Body>();
        let devices = self.front().wrapping_byte_add(size_of::<Front>()).cast::<DeviceTime>();
        // SAFETY: in the map and aligned, any bytes are a `Body`, and the guard keeps others away.
        let body = unsafe { &mut *body };
        // SAFETY: the file has that many after its front; otherwise as above.
        let devices = unsafe { core::slice::from_raw_parts_mut(devices, self.devices) };
        (body, devices)
    }

    fn front(&self) -> *mut Front {
        self.map.as_ptr().cast()
    }

    /// Forgets what dead processes left, damage included.
    fn begin_afresh(&self) {
        let from = offset_of!(Front, mutex);
        let length = file_bytes(self.devices) - from;
        let (offset, size) = (from.try_into(), length.try_into());
        let (offset, size) = (offset.expect("small"), size.expect("small"));
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: changes the file only, whose length stays.
        let punched = unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset, size) } == 0;
        if !punched {
            // SAFETY: within the map, and nobody alive uses what lies there.
            unsafe { self.map.as_ptr().add(from).write_bytes(0, length) };
        }
        self.mutex().initialise();
    }
}

impl Drop for MachineFile {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.map.as_ptr().cast(), file_bytes(self.devices)) };
    }
}

/// Files that were opened: they stay so, since closing one would drop the process's locks on it.
struct Known {
    files: Vec<KnownFile>,
}

struct KnownFile {
    identity: (u64, u64),
    /// A child's descriptor is its parent's, and so would be the lock on opening: it opens its own.
    forks: u64,
    file: &'static File,
}

static KNOWN: parking_lot::Mutex<Known> = parking_lot::Mutex::new(Known { files: Vec::new() });

impl Known {
    fn find_or_make(&mut self, wanted: &Wanted<'_>) -> Result<&'static File, MachineError> {
        let io = |source| MachineError::Io { path: wanted.path.to_owned(), source };
        for _ in 0..OPEN_ATTEMPTS {
            match self.find(wanted) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                outcome => return outcome.map_err(io),
            }
            match make(wanted) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                outcome => outcome.map_err(io)?,
            }
        }
        Err(io(io::Error::other("it is made and removed all the time")))
    }

    fn find(&mut self, wanted: &Wanted<'_>) -> io::Result<&'static File> {
        let metadata = std::fs::metadata(wanted.path)?;
        let found = (metadata.dev(), metadata.ino());
        let is_known = |known: &&KnownFile| known.identity == found && known.forks == liveness::forks();
        if let Some(known) = self.files.iter().find(is_known) {
            return Ok(known.file);
        }
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let flags = if wanted.is_default { libc::O_NOFOLLOW } else { 0 };
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(wanted.path)?;
        let metadata = file.metadata()?;
        // SAFETY: the call has no arguments and can't fail.
        if wanted.is_default && metadata.uid() != unsafe { libc::geteuid() } {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user made it"));
        }
        let file: &'static File = Box::leak(Box::new(file));
        let identity = (metadata.dev(), metadata.ino());
        self.files.push(KnownFile { identity, forks: liveness::forks(), file });
        Ok(file)
    }
}

/// Makes the file in one step: it has its name only when it is complete.
fn make(wanted: &Wanted<'_>) -> io::Result<()> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    // Only a count: it makes the name one that no other thread uses.
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let mut name = wanted.path.as_os_str().to_owned();
    name.push(format!(".{}.{number}.new", std::process::id()));
    let outcome = fill(Path::new(&name), wanted).and_then(|()| std::fs::hard_link(&name, wanted.path));
    std::fs::remove_file(&name).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()), // It could not be made.
        _ => Err(error),
    })?;
    outcome
}

fn fill(path: &Path, wanted: &Wanted<'_>) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(file_bytes(wanted.devices) as u64)?;
    file.write_all_at(&header(wanted.spec, wanted.devices), 0)
}

/// Says whether the file is what was asked for.
fn check(file: &File, wanted: &Wanted<'_>) -> Result<(), MachineError> {
    let path = || wanted.path.to_owned();
    let not = |why: &str| MachineError::Damaged { path: path(), why: why.to_owned() };
    let mut found = [0; HEADER_BYTES];
    let length = file.metadata().map_err(|source| MachineError::Io { path: path(), source })?.len();
    if file.read_exact_at(&mut found, 0).is_err() || found[..MAGIC.len()] != *MAGIC {
        return Err(not("it holds something else"));
    }
    let layout = u32::from_le_bytes([0, 1, 2, 3].map(|at| found[LAYOUT_AT + at]));
    if layout != LAYOUT_VERSION {
        return Err(MachineError::OtherVersion { path: path(), found: layout, known: LAYOUT_VERSION });
    }
    if found == header(wanted.spec, wanted.devices) {
        let whole = length == file_bytes(wanted.devices) as u64;
        return if whole { Ok(()) } else { Err(not("it has been cut or lengthened")) };
    }
    let spec = found[SPEC_AT..].split(|byte| *byte == 0).next().unwrap_or_default();
    let holds = String::from_utf8_lossy(spec).into_owned();
    let machine = crate::parse_machine(&holds).map_err(|_| not("its header is damaged"))?;
    if found == header(&holds, crate::models::devices(&machine).len()) {
        return Err(MachineError::OtherMachine { path: path(), holds, wanted: wanted.spec.to_owned() });
    }
    Err(not("its header is damaged, or another build made it"))
}

fn header(spec: &str, devices: usize) -> Header {
    let mut header = [0; HEADER_BYTES];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, MAGIC);
    put(LAYOUT_AT, &LAYOUT_VERSION.to_le_bytes());
    put(FILE_BYTES_AT, &(file_bytes(devices) as u64).to_le_bytes());
    put(MUTEX_BYTES_AT, &(size_of::<Mutex>() as u64).to_le_bytes());
    put(SPEC_AT, spec.as_bytes()); // The longest spec of a machine is half as long as the room for it.
    header
}

fn file_bytes(devices: usize) -> usize {
    size_of::<Front>() + devices * size_of::<DeviceTime>()
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

fn map(file: &File, length: usize) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping where the kernel chooses, of a file that is that long.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), length, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("the kernel mapped it at zero"))
}

/// Where the machine is when nobody says: one file for each user and machine.
pub(crate) fn default_path(spec: &str) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    // SAFETY: the call has no arguments and can't fail.
    let user = unsafe { libc::geteuid() };
    folder.join(format!("fake-cuda-{user}-v{LAYOUT_VERSION}-{}", spec.replace(',', "+")))
}
