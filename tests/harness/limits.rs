//! Limits of other processes, set from outside, what they have used, and with what they begin.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// Lets `pid` have no more than `count` descriptors from now on; those it has stay open.
///
/// # Errors
/// What the kernel says.
pub fn limit_descriptors(pid: u32, count: u64) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the structure.
    if unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, core::ptr::null(), &mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The hard limit stays, so that the soft one can be given back.
    let limit = libc::rlimit { rlim_cur: count.min(before.rlim_max), rlim_max: before.rlim_max };
    // SAFETY: the kernel reads the structure.
    match unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &limit, core::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the command begin with no signal ignored, which whoever runs the tests may have had them begin with (`nohup`, a shell's
/// `&`): a shell can't trap those.
pub fn hears_signals(command: &mut Command) -> &mut Command {
    let hear = || {
        for number in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: the default action is no function.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: in the child before it becomes the program, `signal` is safe.
    unsafe { command.pre_exec(hear) }
}

/// Has the command be a copy of this process for so long, with all that is open in it, before it becomes another program.
pub fn starts_slowly(command: &mut Command, pause: Duration) -> &mut Command {
    let wait = move || {
        std::thread::sleep(pause);
        Ok(())
    };
    // SAFETY: to sleep takes no lock and allocates nothing.
    unsafe { command.pre_exec(wait) }
}

/// Processor time that process `pid` has used.
pub fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields = stat.rsplit(')').next().expect("there is always one").split_whitespace();
    // SAFETY: plain call.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let ticks: f64 = fields.skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number")).sum();
    Duration::from_secs_f64(ticks / per_second)
}
