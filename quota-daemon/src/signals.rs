//! Signals as something to read: blocked, and taken from a descriptor.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// A descriptor from which the signals it was made for are read.
#[derive(Debug)]
pub struct Signals {
    file: OwnedFd,
    /// What was blocked before.
    before: libc::sigset_t,
}

/// A signal that has come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Its number.
    pub number: i32,
    /// True when a process sent it; false when the kernel did, as for the keys of a terminal.
    pub by_process: bool,
    /// The user whose process sent it.
    pub uid: Option<u32>,
    /// That process.
    pub pid: Option<u32>,
}

impl Signals {
    /// Blocks `numbers` in this thread, and in those it makes later; from now on they are read here.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(numbers: &[i32]) -> io::Result<Self> {
        // SAFETY: plain data that the calls fill; no pointer outlives them.
        let (fd, before) = unsafe {
            let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = (core::mem::zeroed(), core::mem::zeroed());
            libc::sigemptyset(&mut set);
            for number in numbers {
                libc::sigaddset(&mut set, *number);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            (libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK), before)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Self { file: unsafe { OwnedFd::from_raw_fd(fd) }, before })
    }

    /// Lets the program that `command` starts have the signals that were not blocked before: a blocked signal
    /// stays blocked across `exec`, and few programs expect that.
    pub fn unblock_in(&self, command: &mut Command) {
        let before = self.before;
        let unblock = move || {
            // SAFETY: safe between fork and exec; the set outlives the call.
            match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &before, core::ptr::null_mut()) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: `unblock` makes one system call on a copy of its own: no allocation, no lock.
        unsafe { command.pre_exec(unblock) };
    }

    /// The next signal, when there is one.
    pub fn next(&self) -> Option<Received> {
        // SAFETY: plain data, for which all zero is valid.
        let mut info: libc::signalfd_siginfo = unsafe { core::mem::zeroed() };
        let wanted = size_of_val(&info);
        // SAFETY: the kernel fills at most `wanted` bytes.
        let read = unsafe { libc::read(self.file.as_raw_fd(), (&raw mut info).cast(), wanted) };
        let by_process = info.ssi_code <= 0;
        let (uid, pid) = (by_process.then_some(info.ssi_uid), by_process.then_some(info.ssi_pid));
        (read == wanted as isize).then_some(Received { number: info.ssi_signo as i32, by_process, uid, pid })
    }

    /// Waits for the next signal; none when `other` is ready before, or the time is over.
    pub fn wait_beside(&self, other: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> Option<Received> {
        if let Some(received) = self.next() {
            return Some(received);
        }
        let entry = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // A descriptor below zero is passed over.
        let mut polls = [entry(self.file.as_raw_fd()), entry(other.map_or(-1, |other| other.as_raw_fd()))];
        // A millisecond more: to wake just before would be to wake for nothing.
        let most_ms = timeout.map_or(-1, |timeout| timeout.as_millis().min(1 << 30) as libc::c_int + 1);
        // SAFETY: as many valid entries as are said.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, most_ms) };
        self.next()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Has a write beyond the limit on the size of files (`ulimit -f`) be an error, which is told, and not the end.
pub fn survive_large_files() {
    // SAFETY: plain call; no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Closes every descriptor above the standard ones: whoever started a program that stays must not wait for
/// the end of a pipe that it has inherited. To be called first thing in `main`.
pub fn close_inherited() {
    // SAFETY: called before anything was opened, so no descriptor above 2 has an owner in this program.
    unsafe { libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, libc::c_uint::MAX, 0 as libc::c_uint) };
}
