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
use quota_daemon::peer::is_ending;
use quota_wire::notice::JobNotice;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::process::Command;

/// How long a process may have work under way; then it isn't checkpointed.
const LOCK_MS_MAX: u32 = 30_000;
const RUNNING: c_int = 0;
const LOCKED: c_int = 1;
const CHECKPOINTED: c_int = 2;

/// The command that does what a notice asks for.
pub(crate) fn command(notice: &JobNotice) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program can't be found: {error}"))?;
    let mut command = Command::new(program);
    quota_daemon::movers::instruct(&mut command, notice);
    Ok(command)
}

/// Does it to all of the processes; to none of them where one can't be checkpointed.
pub(crate) fn run(options: &MoveOptions) -> Result<(), Failure> {
    end_with(options.parent)?;
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

/// Whoever has the memory moved may be killed. What is left to do is somebody else's then, and never done by two at a time.
fn end_with(parent: u32) -> Result<(), Failure> {
    let failed = |error| Failure::new(format!("it can't be known when process {parent} ends: {error}"));
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    // It may have been killed before the kernel knew that we want to hear of it.
    match getppid().is_some_and(|pid| pid.as_raw_nonzero().get().unsigned_abs() == parent) {
        true => Ok(()),
        false => Err(Failure::new(format!("process {parent}, for which this was to be done, has ended"))),
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
        // One that dies meanwhile has nothing left to be moved: who did this before us and was killed, for one.
        let of =
            |pid: &c_int, done: Result<(), String>| done.or_else(|why| if has_ended(*pid) { Ok(()) } else { Err(why) });
        for pid in pids {
            of(pid, self.lock(*pid))?;
        }
        for pid in pids {
            of(pid, self.park(*pid))?;
        }
        Ok(())
    }

    fn lock(&self, pid: c_int) -> Result<(), String> {
        if self.state(pid)? != RUNNING {
            return Ok(());
        }
        let mut args = LockArgs { timeout_ms: LOCK_MS_MAX, reserved0: 0, reserved1: [0; 7] };
        self.call("cuCheckpointProcessLock", pid, (&raw mut args).cast())
    }

    fn park(&self, pid: c_int) -> Result<(), String> {
        match self.state(pid)? {
            LOCKED => return self.call("cuCheckpointProcessCheckpoint", pid, core::ptr::null_mut()),
            // Done by one that may have been killed before the books were: the library sees to those, the driver refuses.
            CHECKPOINTED => _ = self.call("cuCheckpointProcessCheckpoint", pid, core::ptr::null_mut()),
            _ => {}
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
            // As above: it may have been brought back, and not be in the books. The driver refuses to do it twice.
            let _ = self.call("cuCheckpointProcessRestore", *pid, core::ptr::null_mut());
            self.call("cuCheckpointProcessUnlock", *pid, core::ptr::null_mut())?;
        }
        Ok(())
    }
}

fn has_ended(pid: c_int) -> bool {
    u32::try_from(pid).is_ok_and(is_ending)
}
