//! Our own calls of NVML.
#![allow(unsafe_code)]
#![allow(non_snake_case)]

use super::{Called, call, when_done};
use crate::entry::id;
use crate::names::Id;
use crate::real;
use core::ffi::{CStr, c_char, c_uint, c_void};
use driver_api::*;

/// Longest UUID text that NVML writes, with its NUL.
const NVML_UUID_BYTES: usize = 96;

/// Devices that NVML lists; an error when NVML is absent or not initialised by the program.
pub(crate) fn nvml_device_count() -> Called<u32> {
    let mut count: c_uint = 0;
    let code = call!(nvmlDeviceGetCount_v2(&mut count => *mut c_uint));
    when_done(code, count)
}

pub(crate) fn nvml_device_at(index: u32) -> Called<usize> {
    let mut device: *mut c_void = core::ptr::null_mut();
    let code = call!(nvmlDeviceGetHandleByIndex_v2(index => c_uint, &mut device => *mut *mut c_void));
    when_done(code, device as usize)
}

pub(crate) fn nvml_uuid(device: usize) -> Option<[u8; 16]> {
    let mut text = [0 as c_char; NVML_UUID_BYTES];
    let code = call!(nvmlDeviceGetUUID(
        device as *mut c_void => *mut c_void,
        text.as_mut_ptr() => *mut c_char,
        NVML_UUID_BYTES as c_uint => c_uint,
    ));
    // SAFETY: zeroed before, and NVML ends what it writes with NUL within the length.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    code.is_success().then(|| crate::devices::parse_uuid(text.to_str().ok()?))?
}

pub(crate) fn nvml_total_bytes(device: usize) -> Called<u64> {
    let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
    let code = call!(nvmlDeviceGetMemoryInfo(device as *mut c_void => *mut c_void, &mut memory => *mut nvmlMemory_t));
    when_done(code, memory.total)
}

/// Runs questions between an initialisation and a shutdown of our own; NVML counts them.
pub(crate) fn with_nvml<T>(ask: impl FnOnce() -> Option<T>) -> Option<T> {
    if !call!(nvmlInit_v2()).is_success() {
        return None;
    }
    let answer = ask();
    let _ = call!(nvmlShutdown());
    answer
}

/// The device, or MIG instance, with this UUID.
pub(crate) fn nvml_device_with(uuid: &[u8; 16]) -> Called<usize> {
    nvml_device_named("GPU", uuid).or_else(|_| nvml_device_named("MIG", uuid))
}

fn nvml_device_named(what: &str, uuid: &[u8; 16]) -> Called<usize> {
    let text = std::ffi::CString::new(crate::devices::uuid_text(what, uuid)).map_err(|_| CUresult::INVALID_VALUE)?;
    let mut device: *mut c_void = core::ptr::null_mut();
    let code = call!(nvmlDeviceGetHandleByUUID(text.as_ptr() => *const c_char, &mut device => *mut *mut c_void));
    when_done(code, device as usize)
}

/// Instances of one device that are looked at: today's have seven at most.
const NVML_INSTANCES_MAX: c_uint = 64;

/// The MIG instances of a device whose MIG mode is on; `None` for any other. Numbers between two may be nobody's.
pub(crate) fn nvml_instances(device: usize) -> Option<Vec<usize>> {
    let device = device as *mut c_void;
    let (mut current, mut pending, mut most): (c_uint, c_uint, c_uint) = (0, 0, 0);
    let code = call!(nvmlDeviceGetMigMode(
        device => *mut c_void, &mut current => *mut c_uint, &mut pending => *mut c_uint,
    ));
    if !code.is_success() || current == 0 {
        return None;
    }
    if !call!(nvmlDeviceGetMaxMigDeviceCount(device => *mut c_void, &mut most => *mut c_uint)).is_success() {
        return Some(Vec::new());
    }
    let instance = |index: c_uint| {
        let mut instance: *mut c_void = core::ptr::null_mut();
        let code = call!(nvmlDeviceGetMigDeviceHandleByIndex(
            device => *mut c_void, index => c_uint, &mut instance => *mut *mut c_void,
        ));
        code.is_success().then_some(instance as usize)
    };
    Some((0..most.min(NVML_INSTANCES_MAX)).filter_map(instance).collect())
}

/// The numbers of a MIG instance: of its GPU instance, and of its compute instance; `None` for a whole device.
pub(crate) fn nvml_instance_numbers(device: usize) -> Option<(u32, u32)> {
    let device = device as *mut c_void;
    let (mut gpu, mut compute): (c_uint, c_uint) = (0, 0);
    let code = call!(nvmlDeviceGetGpuInstanceId(device => *mut c_void, &mut gpu => *mut c_uint));
    if !code.is_success() {
        return None;
    }
    let code = call!(nvmlDeviceGetComputeInstanceId(device => *mut c_void, &mut compute => *mut c_uint));
    code.is_success().then_some((gpu, compute))
}

/// Memory of the device in use, by whomever.
pub(crate) fn nvml_used_bytes(device: usize) -> Called<u64> {
    let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
    let code = call!(nvmlDeviceGetMemoryInfo(device as *mut c_void => *mut c_void, &mut memory => *mut nvmlMemory_t));
    when_done(code, memory.used)
}

/// Most processes that are looked at on one device.
const NVML_PROCESSES_MAX: usize = 4096;

/// Pids of the host that have a context on the device, with the bytes that each holds where NVML knows.
pub(crate) fn nvml_processes(device: usize) -> Called<Vec<(u32, Option<u64>)>> {
    const INSUFFICIENT_SIZE: CUresult = CUresult(7);
    let mut room = 64;
    loop {
        let empty = nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
        let mut rows = vec![empty; room];
        let mut count = room as c_uint;
        let code = list_processes(device, &mut count, &mut rows);
        if code == INSUFFICIENT_SIZE && room < NVML_PROCESSES_MAX {
            room = (count as usize + 16).max(room * 2).min(NVML_PROCESSES_MAX);
            continue;
        }
        rows.truncate(count as usize);
        let known = |bytes: u64| (bytes != u64::MAX).then_some(bytes);
        let rows = rows.into_iter().map(|row| (row.pid, known(row.usedGpuMemory))).collect();
        return when_done(code, rows);
    }
}

/// The third version has the second's layout; drivers before them have neither.
fn list_processes(device: usize, count: &mut c_uint, rows: &mut [nvmlProcessInfo_t]) -> CUresult {
    let device = device as *mut c_void;
    let code = call!(nvmlDeviceGetComputeRunningProcesses_v3(
        device => *mut c_void, &mut *count => *mut c_uint, rows.as_mut_ptr() => *mut nvmlProcessInfo_t,
    ));
    if code != CUresult::NOT_SUPPORTED {
        return code;
    }
    call!(nvmlDeviceGetComputeRunningProcesses_v2(
        device => *mut c_void, &mut *count => *mut c_uint, rows.as_mut_ptr() => *mut nvmlProcessInfo_t,
    ))
}
