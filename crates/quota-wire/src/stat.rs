//! What the kernel says of a process, in `/proc/<pid>/stat`.

use std::io;
use std::path::Path;

/// `PF_EXITING` of the kernel's flags of a process.
const EXITING: u32 = 4;

/// A file of the kernel's as text. What in it is no UTF-8 is replaced: names of processes, files and control groups may be of any
/// bytes, and those of processes are cut in the middle of a character.
///
/// # Errors
/// When it can't be read.
pub fn text_of(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}

/// A process at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    state: u8,
    flags: u32,
    threads: u32,
    /// When it started, in ticks since the machine did: with the pid, a name that no other process has.
    pub start_ticks: u64,
}

impl Stat {
    /// Process `pid`; `None` where there is none, or the kernel doesn't show it.
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&text_of(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name in parentheses may hold anything, so the fields are counted from behind it.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let state = *fields.first()?.as_bytes().first()?;
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            state,
            flags: u32::try_from(number(6)?).ok()?,
            threads: u32::try_from(number(17)?).ok()?,
            start_ticks: number(19)?,
        })
    }

    /// True when it is stopped, by a signal or a debugger.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// True when its first thread has ended; others may live on.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// True when it has begun to end.
    pub fn is_ending(&self) -> bool {
        self.flags & EXITING != 0 || self.is_zombie()
    }

    /// True while the kernel takes it down. It drops the locks of a file when it closes the process's descriptor, and has the
    /// driver let go of the device's memory only after that; by the time at which the process has ended both is done.
    pub fn is_still_ending(&self) -> bool {
        self.flags & EXITING != 0 && !(self.is_zombie() && self.threads <= 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_behind_the_name() {
        let line = |state: char, flags: u32, threads: u32| {
            format!(
                "17 (a) R (b) {state} 1 17 17 0 -1 {flags} 0 0 0 0 1 2 0 0 20 0 {threads} 0 4242 18446744073709551615 7"
            )
        };
        let at = |state, flags, threads| Stat::parse(&line(state, flags, threads)).expect("a whole line");
        let judged = |stat: Stat| (stat.is_stopped(), stat.is_zombie(), stat.is_ending(), stat.is_still_ending());
        assert_eq!(at('S', 0x400100, 1).start_ticks, 4242);
        assert_eq!(judged(at('S', 0x400100, 1)), (false, false, false, false));
        assert_eq!(judged(at('T', 0x400100, 1)), (true, false, false, false));
        assert_eq!(judged(at('R', 0x400104, 1)), (false, false, true, true));
        assert_eq!(judged(at('Z', 0x400104, 2)), (false, true, true, true), "a second thread is there");
        assert_eq!(judged(at('Z', 0x400104, 1)), (false, true, true, false));
        assert_eq!(Stat::parse("17 (cut"), None);
        assert_eq!(Stat::parse("17 (cut) R 1 17"), None);
        assert!(Stat::of(std::process::id()).is_some_and(|own| !own.is_ending() && own.start_ticks > 0));
        assert_eq!(Stat::of(u32::MAX), None, "there is no such process");
    }
}
