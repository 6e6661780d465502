//! Which processes live, told by the kernel and not by their numbers.
//!
//! A process that uses a machine holds a record lock on one byte of the machine's file. The kernel drops it
//! when the process dies, however it dies, and a child made by `fork` doesn't inherit it. Two things follow.
//! Closing *any* descriptor of the file would drop all of the process's locks on it, so a file that was a
//! machine once stays open for the life of the process (see `state::file`). And the question whether a byte
//! is locked is put on behalf of the descriptor, not of the process, so that a process sees its own locks
//! too: several copies of this code, in `libcuda` and `libnvidia-ml`, live in one process.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The byte held by whoever opens the machine; those of processes follow.
const OPENING: u64 = 0;
/// Opening takes microseconds, so more means a stopped process.
const OPENING_WAIT_MAX: Duration = Duration::from_secs(5);

/// Marks the calling process as alive in `entry`; false if another process is.
pub(crate) fn mark(file: BorrowedFd<'_>, entry: usize) -> io::Result<bool> {
    set(file, libc::F_SETLK, libc::F_WRLCK, OPENING + 1 + entry as u64)
}

/// Takes the mark away.
pub(crate) fn unmark(file: BorrowedFd<'_>, entry: usize) -> io::Result<()> {
    set(file, libc::F_SETLK, libc::F_UNLCK, OPENING + 1 + entry as u64).map(drop)
}

/// The process that lives in `entry`, as the caller's PID namespace numbers it; 0 for one outside of it.
pub(crate) fn owner(file: BorrowedFd<'_>, entry: usize) -> io::Result<Option<u32>> {
    ask(file, OPENING + 1 + entry as u64, 1)
}

/// True when any process lives in any entry.
pub(crate) fn is_anyone_alive(file: BorrowedFd<'_>) -> io::Result<bool> {
    ask(file, OPENING + 1, 0).map(|owner| owner.is_some())
}

/// True when all threads of a process are stopped by a signal, or it is about to be gone.
pub(crate) fn is_stopped(pid: u32) -> io::Result<bool> {
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(text) = std::fs::read(thread?.path().join("stat")) else { continue };
        // The state follows the name, which may be of any bytes, in parentheses.
        let state = text.iter().rposition(|byte| *byte == b')').and_then(|at| text.get(at + 2));
        if !matches!(state, Some(b'T' | b'Z' | b'X')) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Keeps others from opening the machine while its beginning is looked at.
pub(crate) struct Opening<'a>(BorrowedFd<'a>);

impl<'a> Opening<'a> {
    pub(crate) fn begin(file: BorrowedFd<'a>) -> io::Result<Self> {
        let deadline = Instant::now() + OPENING_WAIT_MAX;
        // The descriptor's lock, not the process's: it also keeps out the other copies in this process.
        while !set(file, libc::F_OFD_SETLK, libc::F_WRLCK, OPENING)? {
            if Instant::now() >= deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another process is stopped while opening it"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(Self(file))
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let _ = set(self.0, libc::F_OFD_SETLK, libc::F_UNLCK, OPENING); // Unlocking what is held can't fail.
    }
}

fn range(kind: libc::c_int, first: u64, length: u64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: first.cast_signed(),
        l_len: length.cast_signed(),
        l_pid: 0,
    }
}

/// Locks or unlocks a byte; false if somebody else holds it.
fn set(file: BorrowedFd<'_>, request: libc::c_int, kind: libc::c_int, byte: u64) -> io::Result<bool> {
    let range = range(kind, byte, 1);
    // SAFETY: the request reads the structure and nothing else.
    if unsafe { libc::fcntl(file.as_raw_fd(), request, &raw const range) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

/// The process that holds a lock on some of `length` bytes (0: all that follow).
fn ask(file: BorrowedFd<'_>, first: u64, length: u64) -> io::Result<Option<u32>> {
    let mut range = range(libc::F_WRLCK, first, length);
    // SAFETY: the request reads and fills the structure and nothing else.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut range) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let is_free = range.l_type == libc::F_UNLCK as libc::c_short;
    Ok((!is_free).then(|| u32::try_from(range.l_pid).unwrap_or(0)))
}

/// How many forks lie between this process and the one that loaded this code.
///
/// A child has its parent's memory but not its locks: what was claimed with another count isn't its own.
pub(crate) fn forks() -> u64 {
    // A child is single-threaded when it counts, and every later thread is its own.
    FORKS.load(Ordering::Relaxed)
}

static FORKS: AtomicU64 = AtomicU64::new(0);

/// Has every fork counted from now on.
pub(crate) fn count_forks() {
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only adds to an atomic, and this library is never unloaded (`-z nodelete`).
        let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        assert_eq!(refused, 0, "there is memory for one more handler");
    });
}
