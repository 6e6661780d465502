//! Locking, checkpointing and restoring of processes, the caller's own among them.
//!
//! What is done is the machine's; here are the arguments. Memory that a process shares with others goes with
//! the process that is charged for it. Restoring onto another device and storage of the program's own are not
//! supported.

use crate::args::{Answer, get, get_optional, put, slice};
use crate::entry::{Call, version};
use crate::state::driver;
use core::ffi::{c_int, c_void};
use driver_api::{
    CUcheckpointCheckpointArgs, CUcheckpointLockArgs, CUcheckpointOperationHandle, CUcheckpointRestoreArgs,
    CUcheckpointUnlockArgs, CUprocessState, CUresult, CUuuid,
};
use fake_machine::CheckpointError;
use std::time::Duration;

/// How long a lock without a timeout waits: longer than any test's work, and not for ever.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(30);
/// The first version whose arguments have a place for the program's own storage.
const CUSTOM_STORAGE_SINCE: c_int = 13_040;

fn process(pid: c_int) -> Answer<u32> {
    u32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(CUresult::INVALID_VALUE)
}

fn code(error: CheckpointError) -> CUresult {
    match error {
        CheckpointError::NoSuchProcess | CheckpointError::DeviceNotListed => CUresult::INVALID_VALUE,
        CheckpointError::WrongState => CUresult::ILLEGAL_STATE,
        CheckpointError::NotReady => CUresult::NOT_READY,
        CheckpointError::OutOfMemory => CUresult::OUT_OF_MEMORY,
    }
}

/// Fails for storage of the program's own: in older versions its place is reserved.
fn check_storage(storage: *mut c_void) -> Answer {
    match storage.is_null() {
        true => Ok(()),
        false if version() < CUSTOM_STORAGE_SINCE => Err(CUresult::INVALID_VALUE),
        false => Err(CUresult::NOT_SUPPORTED),
    }
}

fn check_reserved(is_zero: bool) -> Answer {
    if is_zero { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

pub(crate) fn cuCheckpointProcessGetState(_: &Call, pid: c_int, state: *mut CUprocessState) -> Answer {
    let process = process(pid)?;
    put(state, driver().machine.process_state(process).map_err(code)? as CUprocessState)
}

/// No thread of its own restores a process here, so that it is the main one, whose number is the process's.
pub(crate) fn cuCheckpointProcessGetRestoreThreadId(_: &Call, pid: c_int, thread: *mut c_int) -> Answer {
    driver().machine.process_state(process(pid)?).map_err(code)?;
    put(thread, pid)
}

pub(crate) fn cuCheckpointProcessLock(_: &Call, pid: c_int, args: *mut CUcheckpointLockArgs) -> Answer {
    let process = process(pid)?;
    let mut timeout = LOCK_WAIT_MAX;
    if let Some(args) = get_optional(args) {
        check_reserved(args.reserved0 == 0 && args.reserved1 == [0; 7])?;
        if args.timeoutMs > 0 {
            timeout = Duration::from_millis(args.timeoutMs.into()).min(LOCK_WAIT_MAX);
        }
    }
    driver().machine.lock_process(process, timeout).map_err(code)
}

pub(crate) fn cuCheckpointProcessCheckpoint(_: &Call, pid: c_int, args: *mut CUcheckpointCheckpointArgs) -> Answer {
    let process = process(pid)?;
    if let Some(args) = get_optional(args) {
        check_reserved(args.reserved == [0; 56])?;
        check_storage(args.customStorageInfo_out)?;
    }
    driver().machine.checkpoint_process(process).map_err(code)
}

/// The machine's number of a device, of those that the caller sees.
fn physical(uuid: CUuuid) -> Answer<usize> {
    let of_uuid = driver().devices().iter().find(|device| device.spec().uuid == uuid.bytes);
    of_uuid.map(|device| device.physical).ok_or(CUresult::INVALID_VALUE)
}

pub(crate) fn cuCheckpointProcessRestore(_: &Call, pid: c_int, args: *mut CUcheckpointRestoreArgs) -> Answer {
    let process = process(pid)?;
    let mut listed = None;
    if let Some(args) = get_optional(args) {
        check_reserved(args.padding0 == 0 && args.reserved == [0; 40])?;
        check_storage(args.customStorageInfo_out)?;
        let pairs = slice(args.gpuPairs, args.gpuPairsCount as usize)?;
        let mut devices = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let (from, to) = (physical(pair.oldUuid)?, physical(pair.newUuid)?);
            if from != to {
                return Err(CUresult::NOT_SUPPORTED);
            }
            devices.push(from);
        }
        listed = (!devices.is_empty()).then_some(devices);
    }
    driver().machine.restore_process(process, listed.as_deref()).map_err(code)
}

pub(crate) fn cuCheckpointProcessUnlock(_: &Call, pid: c_int, args: *mut CUcheckpointUnlockArgs) -> Answer {
    let process = process(pid)?;
    if !args.is_null() {
        check_reserved(get(args.cast_const())?.reserved == [0; 8])?;
    }
    driver().machine.unlock_process(process).map_err(code)
}

/// Operations with storage of the program's own are the only ones that have a handle, and there are none.
pub(crate) fn cuCheckpointOperationComplete(_: &Call, _handle: CUcheckpointOperationHandle) -> Answer {
    Err(CUresult::INVALID_VALUE)
}
