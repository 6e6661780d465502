//! Which captures are under way, so that nothing of ours is ever put into a stream that is being captured.
//!
//! What a thread launches itself is judged at the launch. But segments are also closed by others (the keeper, a thread that
//! waits), and between their look at a stream and their event a capture could begin there: so a capture waits for who is just
//! doing that.

use super::clock;
use crate::calls::{self, Captures};
use core::sync::atomic::{AtomicU32, Ordering};

/// Captures that have begun and were not seen to end.
static ACTIVE: AtomicU32 = AtomicU32::new(0);
/// Threads that are putting something into a stream now.
static PUTTING: AtomicU32 = AtomicU32::new(0);
/// Longest wait of a capture's beginning for them: they make one call that doesn't wait.
const WAIT_MAX_NS: u64 = 1_000_000;

/// A capture is about to begin; with [`ended`] when it doesn't.
pub(super) fn begins() {
    // Pairs with `aside`: either it sees the capture, or this sees the thread.
    ACTIVE.fetch_add(1, Ordering::SeqCst);
    let deadline = clock::now_ns() + WAIT_MAX_NS;
    while PUTTING.load(Ordering::SeqCst) > 0 && clock::now_ns() < deadline {
        core::hint::spin_loop();
    }
}

/// A capture has ended.
pub(super) fn ended() {
    let _ = ACTIVE.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |active| active.checked_sub(1));
}

/// Whether any is under way.
pub(super) fn active() -> Captures {
    if ACTIVE.load(Ordering::Acquire) == 0 { Captures::None } else { Captures::Some }
}

/// True when what is put into the stream may be recorded instead of run.
pub(super) fn may_hold(stream: usize) -> bool {
    active() == Captures::Some && calls::may_be_captured(stream)
}

/// Runs `put`, a call that puts something into `stream` or asks it something, unless the stream may be captured.
pub(super) fn aside<T>(stream: usize, put: impl FnOnce(Captures) -> T) -> Option<T> {
    PUTTING.fetch_add(1, Ordering::SeqCst);
    let active = if ACTIVE.load(Ordering::SeqCst) == 0 { Captures::None } else { Captures::Some };
    let done = if active == Captures::Some && calls::may_be_captured(stream) { None } else { Some(put(active)) };
    PUTTING.fetch_sub(1, Ordering::SeqCst);
    done
}

/// In a forked child.
pub(super) fn forget_in_child() {
    ACTIVE.store(0, Ordering::Relaxed);
    PUTTING.store(0, Ordering::Relaxed);
}
