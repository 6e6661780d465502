//! The job itself: started, told what we are told, its end passed on.

pub(crate) mod interruption;

use crate::Failure;
use interruption::Interruption;
use quota_daemon::signals::Signals;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

/// The command is there but can't be run.
const STATUS_NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
const STATUS_NOT_FOUND: u8 = 127;
/// Signals that are passed on.
const PASSED_ON: [i32; 6] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// Says that a command can't be run before it waits for a place, not after.
pub(crate) fn check_command(command: &[OsString]) -> Result<(), Failure> {
    let Some(name) = command.first().filter(|name| !name.is_empty()) else {
        return Err(Failure::usage("there is no command; expected -- COMMAND ..."));
    };
    let path = Path::new(name);
    if name.to_string_lossy().contains('/') {
        return check_file(path);
    }
    let folders = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let candidates: Vec<PathBuf> = std::env::split_paths(&folders).map(|folder| folder.join(path)).collect();
    match candidates.iter().find(|candidate| check_file(candidate).is_ok()) {
        Some(_) => Ok(()),
        // The first that is there decides what is said, as in a shell.
        None => match candidates.iter().find(|candidate| candidate.is_file()) {
            Some(candidate) => check_file(candidate),
            None => Err(failed(name, &ErrorKind::NotFound.into())),
        },
    }
}

fn check_file(path: &Path) -> Result<(), Failure> {
    let data = std::fs::metadata(path).map_err(|error| failed(path.as_os_str(), &error))?;
    let executable = rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    if data.is_file() && executable {
        Ok(())
    } else {
        Err(failed(path.as_os_str(), &ErrorKind::PermissionDenied.into()))
    }
}

fn failed(name: &std::ffi::OsStr, error: &io::Error) -> Failure {
    let name = name.to_string_lossy();
    match error.kind() {
        ErrorKind::NotFound => Failure { status: STATUS_NOT_FOUND, text: format!("{name}: command not found") },
        ErrorKind::PermissionDenied => {
            Failure { status: STATUS_NOT_EXECUTABLE, text: format!("{name}: it can't be executed") }
        }
        _ => Failure { status: STATUS_NOT_EXECUTABLE, text: format!("{name}: {error}") },
    }
}

/// Runs the command to its end and answers its exit status: 128 and the signal's number when one ended it.
pub(crate) fn run(
    command: &[OsString],
    environment: &[(String, String)],
    mut interruption: Interruption,
) -> Result<u8, Failure> {
    let mut numbers = PASSED_ON.to_vec();
    numbers.push(libc::SIGCHLD);
    // Blocked before the child is made, so that no signal is lost between its start and our wait.
    let signals = Signals::new(&numbers).map_err(|error| Failure::new(format!("signals can't be read: {error}")))?;
    let mut job = Command::new(&command[0]);
    job.args(&command[1..]).envs(environment.iter().map(|(name, value)| (name, value)));
    signals.unblock_in(&mut job);
    let mut child = job.spawn().map_err(|error| failed(&command[0], &error))?;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                if let Some(why) = interruption.ended() {
                    eprintln!("gpuquota: {why}");
                }
                return Ok(status_of(status));
            }
            Ok(None) => {}
            Err(error) => return Err(Failure::new(format!("the command can't be waited for: {error}"))),
        }
        interruption.turn(&child, &signals);
        let Some(received) = signals.wait_beside(interruption.connection(), interruption.timeout()) else { continue };
        // The terminal's keys reach the whole foreground group, so the child has had those already.
        if received.number != libc::SIGCHLD && received.by_process {
            pass_on(&child, received.number);
        }
    }
}

fn pass_on(child: &Child, number: i32) {
    let signal = Signal::from_named_raw(number);
    if let (Some(signal), Some(pid)) = (signal, Pid::from_raw(child.id().cast_signed())) {
        // It may have ended just now; then there is nobody to tell.
        let _ = kill_process(pid, signal);
    }
}

fn status_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_looked_for_before_it_is_needed() {
        let check = |name: &str| check_command(&[name.into()]).map_err(|failure| failure.status);
        assert_eq!(check("sh"), Ok(()));
        assert_eq!(check("/bin/sh"), Ok(()));
        assert_eq!(check("no-such-command-here"), Err(STATUS_NOT_FOUND));
        assert_eq!(check("/no/such/file"), Err(STATUS_NOT_FOUND));
        assert_eq!(check("/etc/passwd"), Err(STATUS_NOT_EXECUTABLE));
        assert_eq!(check("/etc"), Err(STATUS_NOT_EXECUTABLE));
        assert_eq!(check(""), Err(crate::STATUS_USAGE));
    }
}
