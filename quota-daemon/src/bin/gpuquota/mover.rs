//! Takes the memory of a job's processes to the host, or back: a program of its own, since a driver may hang, and a process of
//! the job, with the library preloaded, so that the tenant's books follow.
//!
//! The driver does it to other processes by their pids, of the same user; it needs no context for that.
#![allow(unsafe_code)]

use crate::Failure;
use crate::cuda::LIBRARY;
use crate::options::{Move, MoveOptions};
use core::ffi::{c_int, c_uint, c_void};
use libloading::Library;
use quota_wire::notice::{Event, JobNotice};
use std::process::{Command, Stdio};

/// How long a process may have work under way; then it isn't checkpointed.
const LOCK_MS_MAX: u32 = 30_000;
const RUNNING: c_int = 0;
const LOCKED: c_int = 1;
const CHECKPOINTED: c_int = 2;

/// The command that does what a notice asks for.
pub(crate) fn command(notice: &JobNotice) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program can't be found: {error}"))?;
    let mut command = Command::new(program);
    command.arg("move").arg(if notice.event == Event::Checkpoint { "checkpoint" } else { "restore" });
    command.args(notice.pids.iter().map(u32::to_string));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Ok(command)
}

/// Does it to all of the processes; to none of them where one can't be checkpointed.
pub(crate) fn run(options: &MoveOptions) -> Result<(), Failure> {
    let driver = Driver::open().map_err(Failure::new)?;
    let own = std::process::id();
    let pids: Vec<c_int> = options.pids.iter().filter(|pid| **pid != own).map(|pid| pid.cast_signed()).collect();
    match options.what {
        Move::Checkpoint => driver.checkpoint(&pids).map_err(|reason| {
            // What was done is undone; what that can't be is the next restore's.
            let _ = driver.restore(&pids);
            Failure::new(reason)
        }),
        Move::Restore => driver.restore(&pids).map_err(Failure::new),
    }
}

struct Driver(Library);

/// `CUcheckpointLockArgs`.
#[repr(C)]
struct LockArgs {
    timeout_ms: c_uint,
    reserved0: c_uint,
    reserved1: [u64; 7],
}

impl Driver {
    fn open() -> Result<Self, String> {
        // SAFETY: the driver's library, or what stands in for it; its initialisers have no demands on the caller.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| format!("{LIBRARY}: {error}"))?;
        let driver = Self(library);
        // SAFETY: the function's type in the driver API.
        let init = unsafe { driver.0.get::<unsafe extern "C" fn(c_uint) -> c_int>(b"cuInit") };
        let init = init.map_err(|error| error.to_string())?;
        // SAFETY: no argument but the flags.
        match unsafe { init(0) } {
            0 => Ok(driver),
            code => Err(format!("cuInit answers {code}")),
        }
    }

    /// Calls a function that takes a pid and a pointer, with what the pointer is to be.
    fn call(&self, name: &str, pid: c_int, argument: *mut c_void) -> Result<(), String> {
        // SAFETY: all functions that are called so have this type in the driver API.
        let function = unsafe { self.0.get::<unsafe extern "C" fn(c_int, *mut c_void) -> c_int>(name.as_bytes()) };
        let function = function.map_err(|_| format!("the driver can't checkpoint: it has no {name}"))?;
        // SAFETY: the pointer is null, or to what the function reads or writes, for the whole call.
        match unsafe { function(pid, argument) } {
            0 => Ok(()),
            code => Err(format!("{name} answers {code} for process {pid}")),
        }
    }

    fn state(&self, pid: c_int) -> Result<c_int, String> {
        let mut state: c_int = RUNNING;
        self.call("cuCheckpointProcessGetState", pid, (&raw mut state).cast())?;
        Ok(state)
    }

    /// All are locked before the first is moved, so that none goes on with what another one lacks.
    fn checkpoint(&self, pids: &[c_int]) -> Result<(), String> {
        for pid in pids {
            if self.state(*pid)? == RUNNING {
                let mut args = LockArgs { timeout_ms: LOCK_MS_MAX, reserved0: 0, reserved1: [0; 7] };
                self.call("cuCheckpointProcessLock", *pid, (&raw mut args).cast())?;
            }
        }
        for pid in pids {
            if self.state(*pid)? == LOCKED {
                self.call("cuCheckpointProcessCheckpoint", *pid, core::ptr::null_mut())?;
            }
        }
        Ok(())
    }

    /// None goes on before all have what they had. One that has died, or of which the driver knows nothing, needs nothing.
    fn restore(&self, pids: &[c_int]) -> Result<(), String> {
        let are_in = |wanted: c_int| pids.iter().filter(move |pid| self.state(**pid) == Ok(wanted));
        for pid in are_in(CHECKPOINTED) {
            self.call("cuCheckpointProcessRestore", *pid, core::ptr::null_mut())?;
        }
        for pid in are_in(LOCKED) {
            self.call("cuCheckpointProcessUnlock", *pid, core::ptr::null_mut())?;
        }
        Ok(())
    }
}
