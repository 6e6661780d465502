//! The ledger of a tenant without a daemon: a file that all its processes find by themselves.
#![allow(unsafe_code)]

use quota_core::Settings;
use quota_core::ledger::{SLOTS_MAX, SlotId};
use quota_wire::TenantMemory;
use quota_wire::lock::{self, LedgerLock};
use quota_wire::memory::{self, Access, Mapping};
use quota_wire::stat;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// Where ledgers lie: memory that a container's processes share, and a reboot clears.
const FOLDER: &str = "/dev/shm";
/// Descriptors below this belong to the program: shells and daemons count on getting the low numbers.
const DESCRIPTOR_MIN: libc::c_int = 512;

/// A ledger of which this process has a slot.
pub(crate) struct Joined {
    pub(crate) file: OwnedFd,
    pub(crate) ledger: Mapping<TenantMemory>,
    pub(crate) slot: SlotId,
}

/// Where the ledger of these settings lies: by tenant name, else by user and cgroup; or beside HAMi's file.
pub(crate) fn path(settings: &Settings) -> PathBuf {
    if let Some(beside) = &settings.ledger_beside {
        return PathBuf::from(format!("{beside}.gpuquota"));
    }
    let key = match &settings.tenant {
        Some(tenant) => format!("tenant {tenant}"),
        None => {
            // SAFETY: plain call.
            let uid = unsafe { libc::geteuid() };
            let cgroup = stat::text_of("/proc/self/cgroup").unwrap_or_default();
            format!("user {uid} cgroup {cgroup}")
        }
    };
    PathBuf::from(format!("{FOLDER}/gpuquota-{:016x}", fingerprint(&key)))
}

/// FNV-1a: the same in every process and version.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Opens or makes the ledger and takes a slot in it.
pub(crate) fn join(settings: &Settings) -> Result<Joined, String> {
    let path = path(settings);
    open(&path).and_then(take_slot).map_err(|error| format!("the ledger {}: {error}", path.display()))
}

fn open(path: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let file =
        std::fs::OpenOptions::new().read(true).write(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    let data = file.metadata()?;
    // SAFETY: plain call.
    let uid = unsafe { libc::geteuid() };
    if !data.is_file() || (data.uid() != uid && uid != 0) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    high_descriptor(file.into())
}

/// The same file under a descriptor out of the program's way. The low one is closed before any lock is taken.
pub(crate) fn high_descriptor(file: OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: plain system call.
    let mut high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, DESCRIPTOR_MIN) };
    if high < 0 {
        // A limit below DESCRIPTOR_MIN.
        // SAFETY: as above.
        high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
    }
    if high < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(high) })
}

fn take_slot(file: OwnedFd) -> io::Result<Joined> {
    let invalid = |error: &dyn core::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    let guard = LedgerLock::take(file.as_fd())?;
    match memory::file_bytes(file.as_fd())? {
        0 => set_length(file.as_fd())?,
        bytes if bytes == size_of::<TenantMemory>() as u64 => {}
        _ => return Err(invalid(&"it is not a gpuquota ledger; remove it")),
    }
    let ledger = Mapping::<TenantMemory>::new(file.as_fd(), Access::ReadWrite)?;
    ledger.initialise(guard.token()).map_err(|error| invalid(&error))?;
    lock::sweep(file.as_fd(), &ledger, None, &guard)?;
    for slot in (0..SLOTS_MAX as u32).filter_map(SlotId::new) {
        if ledger.pid(slot) == 0 && lock::mark_alive(file.as_fd(), slot)? {
            ledger.occupy(slot, std::process::id());
            drop(guard);
            return Ok(Joined { file, ledger, slot });
        }
    }
    Err(invalid(&quota_core::ledger::LedgerError::SlotsFull))
}

fn set_length(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain system call.
    match unsafe { libc::ftruncate(file.as_raw_fd(), size_of::<TenantMemory>() as libc::off_t) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
