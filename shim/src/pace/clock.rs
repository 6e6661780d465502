//! Time, sleep and waiting on words of memory.
#![allow(unsafe_code)]

use core::sync::atomic::AtomicU32;

/// Nanoseconds of the monotonic clock, which all processes and the daemon share; answered without a system call.
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / 1_000_000_000) as libc::time_t, tv_nsec: (ns % 1_000_000_000) as libc::c_long }
}

/// Sleeps for so long, or until a signal has been handled.
pub(super) fn sleep_ns(ns: u64) {
    let time = timespec(ns);
    // SAFETY: reads the structure; how much is left after a signal is of no interest.
    unsafe { libc::nanosleep(&time, core::ptr::null_mut()) };
}

/// Waits until somebody wakes the word, for at most `ns`; not at all when it isn't `expected`. Of this process alone, or of all
/// that have the memory.
pub(crate) fn wait_on(word: &AtomicU32, expected: u32, ns: u64, is_shared: bool) {
    let private = if is_shared { 0 } else { libc::FUTEX_PRIVATE_FLAG };
    let time = timespec(ns);
    // SAFETY: the word is mapped for as long as the reference lives, readable at least, which is all that waiting needs.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | private,
            expected,
            &raw const time,
            0usize,
            0u32,
        )
    };
}

/// Wakes all threads of this process that wait on the word.
pub(super) fn wake(word: &AtomicU32) {
    // SAFETY: as above; nothing is written.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX) };
}
