//! Errors of memory and links: there are none, since the machine has no faults.
#![allow(non_snake_case)]

use crate::args::put;
use crate::devices::{device, ecc_mode};
use crate::types::{Answer, Code, nvmlDevice_t, nvmlEccErrorCounts_t};
use core::ffi::{c_uint, c_ulonglong};

/// Errors are counted while they are corrected.
fn counting(handle: nvmlDevice_t, error: c_uint, counter: c_uint) -> Answer {
    let device = device(handle)?;
    if error > 1 || counter > 1 {
        return Err(Code::INVALID_ARGUMENT);
    }
    if ecc_mode(device.spec)? == 0 { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
}

pub(crate) fn nvmlDeviceGetTotalEccErrors(
    handle: nvmlDevice_t,
    errorType: c_uint,
    counterType: c_uint,
    eccCounts: *mut c_ulonglong,
) -> Answer {
    counting(handle, errorType, counterType)?;
    put(eccCounts, 0)
}

pub(crate) fn nvmlDeviceGetDetailedEccErrors(
    handle: nvmlDevice_t,
    errorType: c_uint,
    counterType: c_uint,
    eccCounts: *mut nvmlEccErrorCounts_t,
) -> Answer {
    counting(handle, errorType, counterType)?;
    put(eccCounts, nvmlEccErrorCounts_t { l1Cache: 0, l2Cache: 0, deviceMemory: 0, registerFile: 0 })
}

pub(crate) fn nvmlDeviceGetMemoryErrorCounter(
    handle: nvmlDevice_t,
    errorType: c_uint,
    counterType: c_uint,
    locationType: c_uint,
    count: *mut c_ulonglong,
) -> Answer {
    /// `NVML_MEMORY_LOCATION_COUNT`.
    const LOCATIONS: c_uint = 8;
    counting(handle, errorType, counterType)?;
    if locationType >= LOCATIONS { Err(Code::INVALID_ARGUMENT) } else { put(count, 0) }
}

/// Rows are replaced from Ampere on, where there is error correction.
pub(crate) fn nvmlDeviceGetRemappedRows(
    handle: nvmlDevice_t,
    corrRows: *mut c_uint,
    uncRows: *mut c_uint,
    isPending: *mut c_uint,
    failureOccurred: *mut c_uint,
) -> Answer {
    let spec = device(handle)?.spec;
    if spec.compute_capability < (8, 0) || ecc_mode(spec)? == 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    [corrRows, uncRows, isPending, failureOccurred].into_iter().try_for_each(|out| put(out, 0))
}

pub(crate) fn nvmlDeviceGetPcieReplayCounter(handle: nvmlDevice_t, value: *mut c_uint) -> Answer {
    device(handle)?;
    put(value, 0)
}
