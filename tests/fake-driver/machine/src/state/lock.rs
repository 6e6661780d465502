//! A lock that processes share and that nobody can die holding.
//!
//! A robust mutex: the kernel passes it on when its holder dies, and tells the next one that the state may
//! be in the middle of a change.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// It is held for microseconds, so more means a stopped holder.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A process that is stopped or killed just when the lock is passed to it leaves the others asleep: they look again.
const LOOK: Duration = Duration::from_millis(5);

/// The mutex, in shared memory.
#[repr(transparent)]
pub(super) struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: sharing it between threads is what a mutex is for; it is changed by the calls of libc only.
unsafe impl Sync for Mutex {}

impl Mutex {
    /// Makes it one that nobody holds, whatever was there.
    ///
    /// The caller knows that no other thread or process uses it.
    pub(super) fn initialise(&self) {
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: initialised here, before the other calls use it.
        let outcome = unsafe { libc::pthread_mutexattr_init(attributes) };
        assert_eq!(outcome, 0, "glibc's initialisation doesn't fail");
        // SAFETY: the attributes are initialised.
        unsafe { libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) };
        // SAFETY: the attributes are initialised.
        unsafe { libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) };
        // SAFETY: the memory is mapped for as long as `self` lives, and nobody uses the mutex meanwhile.
        let outcome = unsafe { libc::pthread_mutex_init(self.0.get(), attributes) };
        assert_eq!(outcome, 0, "Linux has robust mutexes that processes share");
    }

    pub(super) fn lock(&self) -> Result<Guard<'_>, &'static str> {
        // SAFETY: the mutex was initialised when the machine was opened, and stays mapped.
        let mut outcome = unsafe { libc::pthread_mutex_trylock(self.0.get()) };
        let mut looks = 0;
        while matches!(outcome, libc::EBUSY | libc::ETIMEDOUT) && looks < WAIT_MAX.as_millis() / LOOK.as_millis() {
            let deadline = after(LOOK);
            // SAFETY: as above; the call reads the deadline.
            outcome = unsafe { libc::pthread_mutex_timedlock(self.0.get(), &raw const deadline) };
            looks += 1;
        }
        match outcome {
            0 => Ok(Guard { mutex: self, holder_died: false, stays_here: PhantomData }),
            libc::EOWNERDEAD => {
                // Before the state is repaired: who dies doing so leaves the lock to the next one to repair.
                // SAFETY: this thread holds the mutex, in the state that this call ends.
                unsafe { libc::pthread_mutex_consistent(self.0.get()) };
                Ok(Guard { mutex: self, holder_died: true, stays_here: PhantomData })
            }
            libc::ETIMEDOUT => Err("its lock is held by a process that doesn't run"),
            _ => Err("its lock is damaged"),
        }
    }
}

/// The lock, held; released when dropped.
pub(super) struct Guard<'a> {
    mutex: &'a Mutex,
    holder_died: bool,
    /// The thread that took a mutex has to release it.
    stays_here: PhantomData<*const ()>,
}

impl Guard<'_> {
    /// True when the last holder died with the lock.
    pub(super) fn holder_died(&self) -> bool {
        self.holder_died
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: there is a guard, so this thread holds the mutex; a guard can't be sent to another.
        unsafe { libc::pthread_mutex_unlock(self.mutex.0.get()) };
    }
}

/// On `CLOCK_REALTIME`, which the call measures by.
#[allow(clippy::disallowed_methods)] // `pthread_mutex_timedlock` knows no other clock.
fn after(wait: Duration) -> libc::timespec {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + wait;
    libc::timespec { tv_sec: at.as_secs().try_into().unwrap_or(libc::time_t::MAX), tv_nsec: at.subsec_nanos().into() }
}
