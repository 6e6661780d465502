//! The machine's clock, `CLOCK_MONOTONIC`, which all processes share.
#![allow(unsafe_code)]

use std::time::Duration;

/// Below this, a sleep would end later than asked by about as much as it is long.
const TOO_SHORT_TO_SLEEP_NS: u64 = 20_000;

/// Now, in nanoseconds.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Sleeps until a moment, some microseconds more at most; a signal ends it early.
pub(crate) fn sleep_until(at_ns: u64) {
    let left = at_ns.saturating_sub(now_ns());
    if left < TOO_SHORT_TO_SLEEP_NS {
        while now_ns() < at_ns {
            std::thread::yield_now();
        }
        return;
    }
    let duration = Duration::from_nanos(left);
    let wanted = libc::timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    };
    let before = timer_slack();
    set_timer_slack(1);
    // SAFETY: the kernel reads the structure; there is no second one to fill.
    unsafe { libc::nanosleep(&raw const wanted, core::ptr::null_mut()) };
    set_timer_slack(before);
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
