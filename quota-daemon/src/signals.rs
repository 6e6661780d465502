//! Signals as something to read: blocked, and taken from a descriptor.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A descriptor from which the signals it was made for are read.
#[derive(Debug)]
pub struct Signals(OwnedFd);

/// A signal that has come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Its number.
    pub number: i32,
    /// True when a process sent it; false when the kernel did, as for the keys of a terminal.
    pub by_process: bool,
}

impl Signals {
    /// Blocks `numbers` in this thread, and in those it makes later; from now on they are read here.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(numbers: &[i32]) -> io::Result<Self> {
        // SAFETY: plain data that the calls fill; no pointer outlives them.
        let fd = unsafe {
            let mut set: libc::sigset_t = core::mem::zeroed();
            libc::sigemptyset(&mut set);
            for number in numbers {
                libc::sigaddset(&mut set, *number);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, core::ptr::null_mut());
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next signal, when there is one.
    pub fn next(&self) -> Option<Received> {
        // SAFETY: plain data, for which all zero is valid.
        let mut info: libc::signalfd_siginfo = unsafe { core::mem::zeroed() };
        let wanted = size_of_val(&info);
        // SAFETY: the kernel fills at most `wanted` bytes.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), wanted) };
        (read == wanted as isize).then_some(Received { number: info.ssi_signo as i32, by_process: info.ssi_code <= 0 })
    }

    /// Waits for the next signal.
    pub fn wait(&self) -> Received {
        loop {
            if let Some(received) = self.next() {
                return received;
            }
            let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid entry.
            unsafe { libc::poll(&mut poll, 1, -1) };
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Closes every descriptor above the standard ones: whoever started a program that stays must not wait for
/// the end of a pipe that it has inherited. To be called first thing in `main`.
pub fn close_inherited() {
    // SAFETY: called before anything was opened, so no descriptor above 2 has an owner in this program.
    unsafe { libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, libc::c_uint::MAX, 0 as libc::c_uint) };
}
