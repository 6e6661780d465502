//! Which threads are between a charge and what it is for.
//!
//! Books and driver can be compared only when no thread is in the middle of an allocation or a free: then what is
//! charged and not held yet, or freed and not credited yet, would look like memory that is gone. Every thread
//! has a counter of its own, odd while it is in such a call, so that looking after it costs no shared cache line.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

/// The counter of one thread; given to another when the thread ends, never freed.
#[repr(align(64))]
struct Counter {
    value: AtomicU32,
    taken: AtomicU32,
    next: AtomicPtr<Counter>,
}

/// All counters, a list that only grows.
static FIRST: AtomicPtr<Counter> = AtomicPtr::new(core::ptr::null_mut());

/// How many measurements ask the other threads to begin nothing for a moment.
static PAUSES: AtomicU32 = AtomicU32::new(0);
/// Longest wait of a thread that is asked to, and longest wait for those that are in the middle of something.
const PAUSE_MAX: Duration = Duration::from_millis(5);

struct Own(Cell<Option<&'static Counter>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(counter) = self.0.get() {
            counter.taken.store(0, Ordering::Release);
        }
    }
}

thread_local! {
    static OWN: Own = const { Own(Cell::new(None)) };
}

/// While it lives, this thread is in the middle of something.
pub(crate) struct Flight(Option<&'static Counter>);

impl Flight {
    pub(crate) fn enter() -> Self {
        // A thread that is ending has no counter any more; nobody compares books for its sake.
        let own = OWN.try_with(|own| own.0.get().unwrap_or_else(|| own.register())).ok();
        let Some(counter) = own else { return Self(None) };
        let value = counter.value.load(Ordering::Relaxed);
        if value % 2 == 1 {
            return Self(None);
        }
        if PAUSES.load(Ordering::Relaxed) > 0 {
            wait_while(|| PAUSES.load(Ordering::Relaxed) > 0);
        }
        counter.value.store(value.wrapping_add(1), Ordering::Release);
        Self(Some(counter))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(counter) = self.0 {
            let value = counter.value.load(Ordering::Relaxed);
            counter.value.store(value.wrapping_add(1), Ordering::Release);
        }
    }
}

impl Own {
    #[cold]
    fn register(&self) -> &'static Counter {
        let counter = free_counter().unwrap_or_else(new_counter);
        self.0.set(Some(counter));
        counter
    }
}

fn free_counter() -> Option<&'static Counter> {
    let is_ours =
        |counter: &&Counter| counter.taken.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    all().find(is_ours)
}

fn new_counter() -> &'static Counter {
    let counter = Box::leak(Box::new(Counter {
        value: AtomicU32::new(0),
        taken: AtomicU32::new(1),
        next: AtomicPtr::new(core::ptr::null_mut()),
    }));
    let mut first = FIRST.load(Ordering::Acquire);
    loop {
        counter.next.store(first, Ordering::Relaxed);
        match FIRST.compare_exchange_weak(first, counter, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return counter,
            Err(seen) => first = seen,
        }
    }
}

fn all() -> impl Iterator<Item = &'static Counter> {
    let first = as_counter(FIRST.load(Ordering::Acquire));
    core::iter::successors(first, |counter| as_counter(counter.next.load(Ordering::Acquire)))
}

#[allow(unsafe_code)]
fn as_counter(at: *mut Counter) -> Option<&'static Counter> {
    // SAFETY: null, or a leaked box.
    unsafe { at.as_ref() }
}

/// Asks the others to begin nothing while this lives, and waits until they have ended what they are at. Neither
/// waits for long: then the comparison is not still, and nothing else is lost.
pub(crate) struct Pause;

impl Pause {
    pub(crate) fn begin() -> Self {
        PAUSES.fetch_add(1, Ordering::SeqCst);
        let own = OWN.try_with(|own| own.0.get()).ok().flatten();
        let is_own = |counter: &Counter| own.is_some_and(|own| core::ptr::eq(own, counter));
        wait_while(|| all().any(|counter| !is_own(counter) && counter.value.load(Ordering::Acquire) % 2 == 1));
        Self
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        PAUSES.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cold]
fn wait_while(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PAUSE_MAX;
    while condition() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// In a forked child, where the other threads are not: what they were in the middle of will never end.
pub(crate) fn forget_in_child() {
    let own = OWN.try_with(|own| own.0.get()).ok().flatten();
    for counter in all().filter(|counter| !own.is_some_and(|own| core::ptr::eq(own, *counter))) {
        counter.value.store(0, Ordering::Relaxed);
        counter.taken.store(0, Ordering::Relaxed);
    }
    PAUSES.store(0, Ordering::Relaxed);
}

/// Runs `compare` and says whether no other thread was in the middle of anything meanwhile.
pub(crate) fn while_still<T>(compare: impl FnOnce() -> T) -> (T, bool) {
    let own = OWN.try_with(|own| own.0.get()).ok().flatten();
    let is_own = |counter: &&Counter| own.is_some_and(|own| core::ptr::eq(own, *counter));
    let look = || -> Vec<u32> {
        all().filter(|counter| !is_own(counter)).map(|counter| counter.value.load(Ordering::Acquire)).collect()
    };
    fence(Ordering::SeqCst);
    let before = look();
    let answer = compare();
    fence(Ordering::SeqCst);
    let after = look();
    // New counters come first in the list: one that has come and moved shows by the length.
    let still = before == after && before.iter().all(|value| value % 2 == 0);
    (answer, still)
}
