//! How long a process lives: so many steps, then it is killed in front of the next.

use super::checker;
use core::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A process's end, as it unwinds.
struct Killed;

checker::thread_local! {
    static STEPS_LEFT: Cell<Option<u32>> = Cell::new(None);
}

/// Before each atomic operation.
pub(crate) fn step() {
    let left = STEPS_LEFT.with(|steps| {
        let left = steps.get();
        steps.set(left.map(|left| left.saturating_sub(1)));
        left
    });
    if left == Some(0) {
        // No atomic operation may follow: nothing of the ledger or the node has a destructor that does one.
        resume_unwind(Box::new(Killed));
    }
}

/// Runs `script` for at most `steps` steps, or to its end; true when it came there.
pub(crate) fn lasting(steps: Option<u32>, script: impl FnOnce()) -> bool {
    STEPS_LEFT.with(|left| left.set(steps));
    let ended = catch_unwind(AssertUnwindSafe(script));
    STEPS_LEFT.with(|left| left.set(None));
    match ended {
        Ok(()) => true,
        Err(end) if end.is::<Killed>() => false,
        Err(failure) => resume_unwind(failure),
    }
}
