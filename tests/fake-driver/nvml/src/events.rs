//! Event sets. The machine has no faults, so that a wait always ends with its time.
#![allow(non_snake_case)]

use crate::args::put;
use crate::devices::device;
use crate::types::{Answer, Code, nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t};
use core::ffi::{c_uint, c_ulonglong};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ptr::without_provenance_mut;
use std::time::Duration;

/// Sets that a program may have; one that makes more leaks them.
const SETS_MAX: usize = 65_536;

/// `nvmlEventTypeXidCriticalError`, and the correction of single and double bits.
const SUPPORTED: c_ulonglong = 0x8 | 0x2 | 0x1;

/// Handles of the sets that exist; they are numbers, not addresses.
static SETS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

fn known(set: nvmlEventSet_t) -> Answer {
    if SETS.lock().contains(&set.addr()) { Ok(()) } else { Err(Code::INVALID_ARGUMENT) }
}

pub(crate) fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> Answer {
    /// Where the numbers begin.
    const HANDLE_BASE: usize = 0x4e57_0000;
    let mut sets = SETS.lock();
    if sets.len() >= SETS_MAX {
        return Err(Code::UNKNOWN);
    }
    let handle = sets.last().map_or(HANDLE_BASE, |last| last + 1);
    put(set, without_provenance_mut(handle))?;
    sets.insert(handle);
    Ok(())
}

pub(crate) fn nvmlEventSetFree(set: nvmlEventSet_t) -> Answer {
    if SETS.lock().remove(&set.addr()) { Ok(()) } else { Err(Code::INVALID_ARGUMENT) }
}

pub(crate) fn nvmlDeviceGetSupportedEventTypes(handle: nvmlDevice_t, eventTypes: *mut c_ulonglong) -> Answer {
    device(handle)?;
    put(eventTypes, SUPPORTED)
}

pub(crate) fn nvmlDeviceRegisterEvents(handle: nvmlDevice_t, eventTypes: c_ulonglong, set: nvmlEventSet_t) -> Answer {
    device(handle)?;
    known(set)?;
    if eventTypes & !SUPPORTED == 0 { Ok(()) } else { Err(Code::NOT_SUPPORTED) }
}

fn wait(set: nvmlEventSet_t, data: *mut nvmlEventData_t, timeout_ms: c_uint) -> Answer {
    known(set)?;
    if data.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    std::thread::sleep(Duration::from_millis(timeout_ms.into()));
    Err(Code::TIMEOUT)
}

pub(crate) fn nvmlEventSetWait(set: nvmlEventSet_t, data: *mut nvmlEventData_t, timeoutms: c_uint) -> Answer {
    wait(set, data, timeoutms)
}

pub(crate) fn nvmlEventSetWait_v2(set: nvmlEventSet_t, data: *mut nvmlEventData_t, timeoutms: c_uint) -> Answer {
    wait(set, data, timeoutms)
}
