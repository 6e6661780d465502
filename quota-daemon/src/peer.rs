//! Who is at the other end of a connection: the kernel's word, never the peer's.
#![allow(unsafe_code)]

mod cgroup;

pub use cgroup::is_container;

use quota_wire::{Stat, stat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, SystemTime};

/// Characters of a command line that are kept.
pub const COMMAND_BYTES_MAX: usize = 256;
/// Name of the ledgers' anonymous file, as `/proc/<pid>/maps` shows it.
pub const LEDGER_NAME: &str = "gpuquota-ledger";
/// `SO_PEERPIDFD`, since Linux 6.5.
const PEER_PIDFD: libc::c_int = 77;

/// A process, as the kernel knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Peer {
    /// In the daemon's pid namespace.
    pub pid: u32,
    /// Its user when it connected.
    pub uid: u32,
    /// The path of its control group: its container's, where it is in one, whatever groups that makes for itself.
    pub cgroup: String,
    /// When it started: RFC 3339, UTC.
    pub started: String,
}

/// A process at the other end of a connection, from when it was accepted: so that another one which has got its pid since is
/// not taken for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    pid: u32,
    uid: u32,
    start_ticks: Option<u64>,
}

impl Arrival {
    /// Process `pid` of user `uid`, as it is now.
    pub fn now(pid: u32, uid: u32) -> Self {
        Self { pid, uid, start_ticks: start_ticks(pid) }
    }

    /// Who it is, and a descriptor that becomes readable when it dies.
    ///
    /// What is read under a pid is only believed while the process that has the connection is known to live: read between two
    /// looks at it.
    ///
    /// # Errors
    /// One line, when it is dead or can't be known.
    pub fn identify(&self, connection: BorrowedFd<'_>) -> Result<(Peer, OwnedFd), String> {
        let Self { pid, uid, start_ticks: arrived } = *self;
        let notice = death_notice(connection, pid)
            .map_err(|error| format!("the process can't be watched (pidfd, Linux 5.3): {error}"))?;
        let text = match stat::text_of(format!("/proc/{pid}/cgroup")) {
            Err(error) if !lacks_cgroups() => return Err(format!("the control group of process {pid}: {error}")),
            text => text.unwrap_or_default(),
        };
        let peer = Peer { pid, uid, cgroup: cgroup::identity(&text), started: started(pid) };
        if is_dead(&notice) || arrived.is_none() || start_ticks(pid) != arrived {
            return Err(format!("process {pid} is not the one that connected: that is dead"));
        }
        Ok((peer, notice))
    }
}

/// The container that process `pid` is in, as far as the kernel says; empty for one that is in none.
pub fn container(pid: u32) -> String {
    let text = stat::text_of(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let path = cgroup::identity(&text);
    if is_container(&path) { path } else { String::new() }
}

/// True on a kernel without control groups.
fn lacks_cgroups() -> bool {
    !std::path::Path::new("/proc/self/cgroup").exists()
}

/// True when the process that a notice is of has died.
fn is_dead(notice: &OwnedFd) -> bool {
    let mut entries = [rustix::event::PollFd::new(notice, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    // What can't be looked at is not believed.
    rustix::event::poll(&mut entries, Some(&now)).map_or(true, |ready| ready > 0)
}

/// A descriptor that becomes readable when process `pid` dies.
///
/// # Errors
/// What the kernel says; `ESRCH` when it is dead already.
pub fn death_of(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// A descriptor that becomes readable when the peer of `connection`, process `pid`, dies.
///
/// # Errors
/// What the kernel says; `ESRCH` when it is dead already.
pub fn death_notice(connection: BorrowedFd<'_>, pid: u32) -> io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel fills one integer.
    let result = unsafe {
        libc::getsockopt(connection.as_raw_fd(), libc::SOL_SOCKET, PEER_PIDFD, (&raw mut fd).cast(), &mut length)
    };
    if result == 0 && fd >= 0 {
        // SAFETY: a fresh descriptor that nobody else owns.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    // Older kernels. The pid can't have been reused by another process unless the peer died since it
    // connected, and then its connection is closed, which the caller sees.
    death_of(pid)
}

/// True when process `pid` has certainly none of our ledgers mapped any more: it has called `exec`, or is
/// about to die. Where the kernel doesn't say, false.
pub fn has_dropped_ledger(pid: u32) -> bool {
    /// No sane process has more mappings than fit here; of one that has, nothing is concluded.
    const MAPS_BYTES_MAX: u64 = 16 << 20;
    let Ok(file) = std::fs::File::open(format!("/proc/{pid}/maps")) else { return false };
    let mut maps = Vec::new();
    match file.take(MAPS_BYTES_MAX).read_to_end(&mut maps) {
        Ok(bytes) if (bytes as u64) < MAPS_BYTES_MAX => {
            !maps.windows(LEDGER_NAME.len()).any(|window| window == LEDGER_NAME.as_bytes())
        }
        _ => false,
    }
}

/// The command line of process `pid`, for people.
pub fn command(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    clean(&String::from_utf8_lossy(&bytes).replace('\0', " "))
}

/// The user of process `pid`.
pub fn user(pid: u32) -> Option<u32> {
    std::fs::metadata(format!("/proc/{pid}")).ok().map(|data| std::os::unix::fs::MetadataExt::uid(&data))
}

/// What others wrote, fit to be shown on one line: no control characters, no endless text.
pub fn clean(text: &str) -> String {
    clean_to(text, COMMAND_BYTES_MAX)
}

/// The same, in at most `bytes_max` bytes.
pub fn clean_to(text: &str, bytes_max: usize) -> String {
    let mut clean = String::new();
    for c in text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if clean.len() + c.len_utf8() > bytes_max {
            break;
        }
        clean.push(c);
    }
    clean
}

/// When process `pid` started; now, where the kernel doesn't say.
#[allow(clippy::disallowed_methods)] // It is shown to people.
pub fn started(pid: u32) -> String {
    let at = started_at(pid).unwrap_or_else(SystemTime::now);
    humantime::format_rfc3339_seconds(at).to_string()
}

/// When process `pid` started, in ticks since the machine did: with the pid, a name that no other process has.
pub fn start_ticks(pid: u32) -> Option<u64> {
    Stat::of(pid).map(|stat| stat.start_ticks)
}

/// True when the kernel says that process `pid` is stopped, by a signal or a debugger.
pub fn is_stopped(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.is_stopped())
}

/// True for a process that has ended and was not waited for.
pub fn is_zombie(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.is_zombie())
}

/// True for a process that is ending, or has ended.
pub fn is_ending(pid: u32) -> bool {
    Stat::of(pid).is_none_or(|stat| stat.is_ending())
}

fn started_at(pid: u32) -> Option<SystemTime> {
    let ticks = start_ticks(pid)?;
    // SAFETY: plain call.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|hertz| *hertz > 0)?;
    let kernel = std::fs::read_to_string("/proc/stat").ok()?;
    let booted: u64 = kernel.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(booted) + Duration::from_millis(ticks * 1000 / per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods)] // It is shown to people.
    fn this_process_is_known() {
        use std::os::fd::AsFd;
        let (end, _other) = quota_wire::socket::Connection::pair().expect("a pair");
        let arrival = Arrival::now(std::process::id(), 7);
        let (own, notice) = arrival.identify(end.as_fd()).expect("it lives");
        assert!(own.cgroup.starts_with('/') && own.pid == std::process::id() && !is_dead(&notice), "{own:?}");
        // Another process that has got the pid since is not believed to be the one that connected.
        let other = Arrival { start_ticks: arrival.start_ticks.map(|ticks| ticks + 1), ..arrival };
        assert!(other.identify(end.as_fd()).expect_err("another").contains("is not the one that connected"));
        let started = humantime::parse_rfc3339(&own.started).expect("a time");
        let age = SystemTime::now().duration_since(started).expect("not in the future");
        assert!(age < Duration::from_secs(3600), "{age:?}");
        assert!(command(std::process::id()).contains("quota_daemon"));
        assert!(has_dropped_ledger(std::process::id()), "there is none here");
        assert!(!has_dropped_ledger(u32::MAX), "unknown");
    }

    #[test]
    fn what_others_wrote_stays_on_its_line() {
        assert_eq!(clean(" a\nb\u{1b}[2Jc "), "a b [2Jc");
        assert!(clean(&"ü".repeat(1000)).len() <= COMMAND_BYTES_MAX);
    }
}
