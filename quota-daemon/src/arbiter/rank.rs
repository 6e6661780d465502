//! The arbiter's place before what computes on the machine.
#![allow(unsafe_code)]

/// Where the kernel doesn't allow more.
const NICE: i32 = -10;

/// Lets the calling thread run as soon as it has something to do, as far as the kernel allows that: it works for
/// microseconds at a time, and a device waits for it. Among ordinary threads it may wait for long though it uses hardly
/// any time: the share of a daemon's few threads in a busy machine is small, and divided between its processors.
pub(super) fn before_others() {
    // SAFETY: plain data, for which all zero is valid.
    let mut parameters: libc::sched_param = unsafe { core::mem::zeroed() };
    // The lowest of the urgent ones: before everything ordinary, and behind whatever else is urgent.
    parameters.sched_priority = 1;
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads the structure; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, policy, &parameters) } != 0 {
        // An ordinary user's daemon may not have that either, and does without.
        let _ = rustix::process::setpriority_process(None, NICE);
    }
}
