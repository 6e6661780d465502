//! Byte-range locks on a ledger's file, owned by the kernel.
//!
//! They are process-owned (`F_SETLK`): the kernel drops them when the process dies, however it dies, and a
//! child made by `fork` doesn't inherit them. Open-file-description locks would live on in such a child,
//! and a parent killed with a child alive would never be noticed. The price: closing *any* descriptor of
//! the file drops all of the process's locks, so a ledger's file is opened once and never closed.
//!
//! Byte 0 is the ledger's lock, byte `1 + slot` shows that the slot's owner lives.
#![allow(unsafe_code)]

use crate::Stat;
use crate::usage::TenantMemory;
use quota_core::ledger::SlotId;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Longest wait for the ledger's lock: it is held for microseconds, so more means a stopped holder.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);

/// Longest wait for a process that is just ending, before what it held is anybody's.
pub const ENDING_WAIT_MAX: Duration = Duration::from_millis(50);
/// Pause between two looks at it.
pub const ENDING_PAUSE: Duration = Duration::from_millis(1);

/// The ledger's lock, held; released when dropped.
#[derive(Debug)]
pub struct LedgerLock<'a> {
    file: BorrowedFd<'a>,
    token: quota_core::ledger::Locked<'a>,
}

impl<'a> LedgerLock<'a> {
    /// Takes the lock. Excludes other processes only: threads of one process must exclude each other first.
    ///
    /// # Errors
    /// `TimedOut` after [`LOCK_WAIT_MAX`], or what the kernel says.
    pub fn take(file: BorrowedFd<'a>) -> io::Result<Self> {
        let deadline = Instant::now() + LOCK_WAIT_MAX;
        let mut pause = Duration::from_micros(20);
        while !try_lock(file, 0)? {
            if Instant::now() >= deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another process holds the ledger's lock"));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
        Ok(Self { file, token: quota_core::ledger::Locked::assume() })
    }

    /// Takes the lock if nobody has it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn try_take(file: BorrowedFd<'a>) -> io::Result<Option<Self>> {
        let taken = try_lock(file, 0)?;
        Ok(taken.then(|| Self { file, token: quota_core::ledger::Locked::assume() }))
    }

    /// What the ledger's methods want to see.
    pub fn token(&self) -> &quota_core::ledger::Locked<'a> {
        &self.token
    }
}

impl Drop for LedgerLock<'_> {
    fn drop(&mut self) {
        let _ = set(self.file, libc::F_UNLCK, 0);
    }
}

/// Marks the calling process as the living owner of `slot`; false when another process lives there.
pub fn mark_alive(file: BorrowedFd<'_>, slot: SlotId) -> io::Result<bool> {
    try_lock(file, byte_of(slot))
}

/// Gives the mark up.
pub fn unmark(file: BorrowedFd<'_>, slot: SlotId) -> io::Result<()> {
    set(file, libc::F_UNLCK, byte_of(slot)).map(|_| ())
}

/// True when a process other than the caller lives in `slot`.
pub fn is_alive(file: BorrowedFd<'_>, slot: SlotId) -> io::Result<bool> {
    owner(file, slot).map(|owner| owner.is_some())
}

/// The process other than the caller that lives in `slot`: its pid in the caller's namespace, 0 where that doesn't
/// contain it.
pub fn owner(file: BorrowedFd<'_>, slot: SlotId) -> io::Result<Option<u32>> {
    let mut range = range(libc::F_WRLCK, byte_of(slot));
    // SAFETY: the kernel reads and fills the structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut range) } {
        0 if range.l_type == libc::F_UNLCK as libc::c_short => Ok(None),
        0 => Ok(Some(u32::try_from(range.l_pid).unwrap_or(0))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What [`sweep`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Somebody was dead; what was theirs is given back.
    pub found: bool,
    /// Somebody is ending, and holds it still.
    pub ending: bool,
}

/// Gives back what dead processes held; `own` is the caller's slot.
pub fn sweep(
    file: BorrowedFd<'_>,
    ledger: &TenantMemory,
    own: Option<SlotId>,
    _lock: &LedgerLock<'_>,
) -> io::Result<Swept> {
    let mut swept = Swept::default();
    for slot in ledger.slots().filter(|slot| Some(*slot) != own && ledger.pid(*slot) != 0) {
        if is_alive(file, slot)? {
            continue;
        }
        if is_still_ending(ledger.pid(slot)) {
            swept.ending = true;
        } else {
            ledger.vacate(slot);
            swept.found = true;
        }
    }
    Ok(swept)
}

/// True while the kernel takes process `pid` down ([`Stat::is_still_ending`]). Also false where `/proc` is hidden, or shows other
/// processes under that number.
pub fn is_still_ending(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.is_still_ending())
}

fn byte_of(slot: SlotId) -> libc::off_t {
    1 + libc::off_t::from(slot.index())
}

fn range(kind: libc::c_int, byte: libc::off_t) -> libc::flock {
    // SAFETY: `flock` is plain data, for which all zero is valid.
    let mut range: libc::flock = unsafe { core::mem::zeroed() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = byte;
    range.l_len = 1;
    range
}

fn try_lock(file: BorrowedFd<'_>, byte: libc::off_t) -> io::Result<bool> {
    set(file, libc::F_WRLCK, byte)
}

fn set(file: BorrowedFd<'_>, kind: libc::c_int, byte: libc::off_t) -> io::Result<bool> {
    let range = range(kind, byte);
    // SAFETY: the kernel reads the structure.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &range) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::c_void;

    extern "C" fn sleep_for_ever(_: *mut c_void) -> *mut c_void {
        loop {
            // SAFETY: plain call.
            unsafe { libc::pause() };
        }
    }

    /// A process of which the first thread has ended and the second has not, as while many threads are taken down.
    fn half_ended() -> libc::pid_t {
        // SAFETY: the child makes a thread and ends its first, by plain calls.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                let mut thread = core::mem::zeroed();
                libc::pthread_create(&mut thread, core::ptr::null(), sleep_for_ever, core::ptr::null_mut());
                libc::syscall(libc::SYS_exit, 0);
            }
            pid
        }
    }

    fn eventually(what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_process_is_ending_until_its_last_thread_has_ended() {
        assert!(!is_still_ending(std::process::id()), "it lives");
        let pid = half_ended();
        let of = u32::try_from(pid).expect("it was made");
        eventually("the first thread ends", || is_still_ending(of));
        // SAFETY: plain calls on a child of ours.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
        eventually("all have ended, and nobody has asked how", || !is_still_ending(of));
        // SAFETY: as above; nobody wants the status.
        assert_eq!(unsafe { libc::waitpid(pid, core::ptr::null_mut(), 0) }, pid);
        assert!(!is_still_ending(of), "there is no such process");
    }
}
