//! The machine's clock, `CLOCK_MONOTONIC`, which all processes share.
#![allow(unsafe_code)]

use std::time::Duration;

/// By how much a sleep may end late on a machine that is not overloaded; so much is waited for awake.
const SLEEP_LATENESS_NS: u64 = 40_000;

/// Now, in nanoseconds.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Sleeps until a moment, and no longer than some microseconds more; a signal ends it early.
///
/// The last bit is spun: giving the processor away instead costs milliseconds where others want it.
pub(crate) fn sleep_until(at_ns: u64) {
    let left = at_ns.saturating_sub(now_ns());
    if left > SLEEP_LATENESS_NS && !sleep(left - SLEEP_LATENESS_NS) {
        return;
    }
    while now_ns() < at_ns {
        core::hint::spin_loop();
    }
}

/// False if a signal ended it.
fn sleep(duration_ns: u64) -> bool {
    let duration = Duration::from_nanos(duration_ns);
    let wanted = libc::timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    };
    let before = timer_slack();
    set_timer_slack(1);
    // SAFETY: the kernel reads the structure; there is no second one to fill.
    let outcome = unsafe { libc::nanosleep(&raw const wanted, core::ptr::null_mut()) };
    set_timer_slack(before);
    outcome == 0
}

/// How late the kernel may end the thread's sleeps; by default some fifty microseconds.
fn timer_slack() -> libc::c_ulong {
    // SAFETY: this request takes no further arguments and touches no memory.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    slack.try_into().unwrap_or(0)
}

fn set_timer_slack(slack_ns: libc::c_ulong) {
    // SAFETY: the request takes a number and touches no memory; 0 means the thread's default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) };
}
