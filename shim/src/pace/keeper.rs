//! The one thread of ours, which looks what has ended while nobody else does.
//!
//! It exists only while something is counted, and for a second after: a program that neither launches nor waits would otherwise
//! keep the token of a device on which it has nothing to do. Where no thread can be made, launching and waiting threads do all of
//! this for themselves, only later.
#![allow(unsafe_code)]

use super::Pace;
use super::clock;
use crate::process::{Inside, process};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// How long it stays when there is nothing to look after.
const STAYS_NS: u64 = 1_000_000_000;
/// Pause before it is tried again to make the thread, once that has failed.
const RETRY_NS: u64 = 1_000_000_000;
/// First look after something should have ended, and how much later at most each next one is.
const POLL_MIN_NS: u64 = 50_000;
const POLL_MAX_NS: u64 = 1_000_000;
/// How often it looks while nothing is under way; it is woken where it is needed before.
const IDLE_POLL_NS: u64 = 2_000_000;
/// Its stack: the deepest it goes is the driver's look at an event. Some programs have thread-local memory beside it.
const STACK_BYTES: usize = 256 << 10;

/// The thread of this process.
#[derive(Default)]
pub(super) struct Keeper {
    runs: AtomicBool,
    failed_at_ns: AtomicU64,
    /// 1 while it sleeps and has nothing to look after; a futex.
    asleep: AtomicU32,
    /// It was it that found the last work to have ended: nobody else looks.
    pub(super) is_needed: AtomicBool,
}

impl Keeper {
    /// Something is under way that was not: makes sure that somebody will see its end.
    pub(super) fn look_after(&self) {
        if !self.runs.load(Ordering::Acquire) {
            self.start();
        } else if self.is_needed.load(Ordering::Relaxed) && self.asleep.swap(0, Ordering::AcqRel) == 1 {
            clock::wake(&self.asleep);
        }
    }

    #[cold]
    fn start(&self) {
        let (now, failed_at) = (clock::now_ns(), self.failed_at_ns.load(Ordering::Relaxed));
        if failed_at != 0 && now.saturating_sub(failed_at) < RETRY_NS || self.runs.swap(true, Ordering::AcqRel) {
            return;
        }
        if !start_thread(main, STACK_BYTES) {
            self.failed_at_ns.store(now, Ordering::Relaxed);
            self.runs.store(false, Ordering::Release);
        }
    }

    fn run(&self, pace: &Pace) {
        let mut idle_since = clock::now_ns();
        let mut poll_ns = POLL_MIN_NS;
        let mut seen = 0;
        loop {
            let until_ns = pace.look_after_all();
            let now = clock::now_ns();
            let Some(until_ns) = until_ns else {
                if now.saturating_sub(idle_since) >= STAYS_NS && self.ends(pace) {
                    return;
                }
                self.asleep.store(1, Ordering::Release);
                // Something may have begun just before that store, and nobody wakes us for it.
                if pace.is_idle() {
                    clock::wait_on(&self.asleep, 1, IDLE_POLL_NS, false);
                }
                self.asleep.store(0, Ordering::Release);
                continue;
            };
            idle_since = now;
            if until_ns != seen {
                (seen, poll_ns) = (until_ns, POLL_MIN_NS);
            }
            clock::sleep_ns(until_ns.saturating_sub(now).clamp(poll_ns, POLL_MAX_NS.max(poll_ns)));
            poll_ns = (poll_ns * 2).min(POLL_MAX_NS);
        }
    }

    /// Ends the thread, unless something has begun at the last moment and nobody else takes it over.
    fn ends(&self, pace: &Pace) -> bool {
        self.runs.store(false, Ordering::SeqCst);
        pace.is_idle() || self.runs.swap(true, Ordering::SeqCst)
    }
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    // The driver's calls of its own functions must not come back to us, for as long as the thread lives.
    let _inside = Inside::enter();
    // SAFETY: a name of less than 16 bytes, and a number; about this thread only.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"gpuquota".as_ptr());
        // It sleeps for microseconds at a time.
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
    }
    let pace = &process().pace;
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pace.keeper.run(pace)));
    if ran.is_err() {
        pace.keeper.failed_at_ns.store(clock::now_ns(), Ordering::Relaxed);
        pace.keeper.runs.store(false, Ordering::Release);
    }
    core::ptr::null_mut()
}

unsafe extern "C" {
    /// In `compat/glibc.c`: a detached thread with so large a stack, or 0.
    fn gpuquota_start_thread(main: extern "C" fn(*mut c_void) -> *mut c_void, stack_bytes: usize) -> libc::c_int;
}

/// Makes a thread of ours, which gets none of the program's signals.
pub(crate) fn start_thread(main: extern "C" fn(*mut c_void) -> *mut c_void, stack_bytes: usize) -> bool {
    // SAFETY: sets of signals are plain data, for which zeros are valid.
    let (mut all, mut before) =
        unsafe { (core::mem::zeroed::<libc::sigset_t>(), core::mem::zeroed::<libc::sigset_t>()) };
    // SAFETY: fills the set.
    unsafe { libc::sigfillset(&mut all) };
    // A new thread inherits the mask. (On Linux this is the calling thread's own, and there since the first glibc.)
    // SAFETY: two sets of our own.
    if unsafe { libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before) } != 0 {
        return false;
    }
    // SAFETY: `main` takes no argument and lives as long as the library, which is never unloaded.
    let started = unsafe { gpuquota_start_thread(main, stack_bytes) } != 0;
    // SAFETY: as above.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &before, core::ptr::null_mut()) };
    started
}
