//! Our own calls of the driver, as safe functions. They go to the driver's own functions, past everybody.
#![allow(unsafe_code)]
#![allow(non_snake_case)]

use crate::entry::id;
use crate::names::Id;
use crate::real;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use driver_api::*;

type Called<T> = Result<T, CUresult>;

/// Calls a function of the driver by name; `NOT_SUPPORTED` when the driver lacks it.
macro_rules! call {
    ($name:ident($($argument:expr => $kind:ty),* $(,)?)) => {
        match real::driver_address(Id(id::$name)) {
            None => CUresult::NOT_SUPPORTED,
            Some(address) => {
                // SAFETY: the driver's function of this name has this signature (the list's `sig`).
                let function = unsafe { core::mem::transmute::<*const c_void, unsafe extern "C" fn($($kind),*) -> CUresult>(address) };
                // SAFETY: pointers come from references that outlive the call; handles are the program's.
                unsafe { function($($argument),*) }
            }
        }
    };
}

fn when_done<T>(code: CUresult, value: T) -> Called<T> {
    if code.is_success() { Ok(value) } else { Err(code) }
}

pub(crate) fn device_count() -> Called<usize> {
    let mut count: c_int = 0;
    let code = call!(cuDeviceGetCount(&mut count => *mut c_int));
    when_done(code, usize::try_from(count).unwrap_or(0))
}

pub(crate) fn device_at(ordinal: usize) -> Called<CUdevice> {
    let mut device: CUdevice = 0;
    let code = call!(cuDeviceGet(&mut device => *mut CUdevice, ordinal as c_int => c_int));
    when_done(code, device)
}

/// The UUID, of the MIG instance where there is one.
pub(crate) fn device_uuid(device: CUdevice) -> Called<[u8; 16]> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    let mut code = call!(cuDeviceGetUuid_v2(&mut uuid => *mut CUuuid, device => CUdevice));
    if code == CUresult::NOT_SUPPORTED {
        code = call!(cuDeviceGetUuid(&mut uuid => *mut CUuuid, device => CUdevice));
    }
    when_done(code, uuid.bytes)
}

pub(crate) fn device_total_bytes(device: CUdevice) -> Called<u64> {
    let mut bytes = 0usize;
    let code = call!(cuDeviceTotalMem_v2(&mut bytes => *mut usize, device => CUdevice));
    when_done(code, bytes as u64)
}

/// The thread's context, as an opaque number; `None` when it has none.
pub(crate) fn current_context() -> Option<usize> {
    let mut context: CUcontext = core::ptr::null_mut();
    let code = call!(cuCtxGetCurrent(&mut context => *mut CUcontext));
    (code.is_success() && !context.is_null()).then_some(context as usize)
}

/// The device of the thread's context.
pub(crate) fn current_device() -> Option<CUdevice> {
    let mut device: CUdevice = 0;
    let code = call!(cuCtxGetDevice(&mut device => *mut CUdevice));
    when_done(code, device).ok()
}

/// The device of a context that need not be current.
pub(crate) fn device_of_context(context: usize) -> Option<CUdevice> {
    let context = context as CUcontext;
    if !call!(cuCtxPushCurrent_v2(context => CUcontext)).is_success() {
        return None;
    }
    let device = current_device();
    let mut popped: CUcontext = core::ptr::null_mut();
    let _ = call!(cuCtxPopCurrent_v2(&mut popped => *mut CUcontext));
    device
}

/// The context of a primary context that is active already; never activates one.
pub(crate) fn primary_is_active(device: CUdevice) -> bool {
    let (mut flags, mut active): (c_uint, c_int) = (0, 0);
    let code =
        call!(cuDevicePrimaryCtxGetState(device => CUdevice, &mut flags => *mut c_uint, &mut active => *mut c_int));
    code.is_success() && active != 0
}

/// The context in which a stream was made. The default streams (0, 1, 2) are the current context's.
pub(crate) fn context_of_stream(stream: CUstream) -> Option<usize> {
    if (stream as usize) <= 2 {
        return current_context();
    }
    let mut context: CUcontext = core::ptr::null_mut();
    let code = call!(cuStreamGetCtx(stream => CUstream, &mut context => *mut CUcontext));
    (code.is_success() && !context.is_null()).then_some(context as usize)
}

/// True when what is enqueued on the stream is recorded instead of run.
pub(crate) fn is_capturing(stream: CUstream, per_thread: bool) -> bool {
    let mut status: c_int = 0;
    let code = if per_thread {
        call!(cuStreamIsCapturing_ptsz(stream => CUstream, &mut status => *mut c_int))
    } else {
        call!(cuStreamIsCapturing(stream => CUstream, &mut status => *mut c_int))
    };
    code.is_success() && status != 0
}

/// The pool from which a device's streams allocate.
pub(crate) fn current_pool(device: CUdevice) -> Called<usize> {
    let mut pool: CUmemoryPool = core::ptr::null_mut();
    let code = call!(cuDeviceGetMemPool(&mut pool => *mut CUmemoryPool, device => CUdevice));
    when_done(code, pool as usize)
}

/// The pool that a device starts with.
pub(crate) fn default_pool(device: CUdevice) -> Called<usize> {
    let mut pool: CUmemoryPool = core::ptr::null_mut();
    let code = call!(cuDeviceGetDefaultMemPool(&mut pool => *mut CUmemoryPool, device => CUdevice));
    when_done(code, pool as usize)
}

/// Runs a call of our own in a capture mode that lets it: another stream's capture may forbid it in the program's.
fn outside_captures<T>(call: impl FnOnce() -> T) -> T {
    const RELAXED: c_int = 2;
    let mut mode = RELAXED;
    let exchanged = call!(cuThreadExchangeStreamCaptureMode(&mut mode => *mut c_int)).is_success();
    let answer = call();
    if exchanged {
        let _ = call!(cuThreadExchangeStreamCaptureMode(&mut mode => *mut c_int));
    }
    answer
}

/// Bytes that a pool holds, and bytes of it that are allocated.
pub(crate) fn pool_bytes(pool: usize) -> Called<(u64, u64)> {
    const RESERVED_MEM_CURRENT: c_int = 5;
    const USED_MEM_CURRENT: c_int = 7;
    let read = |attribute: c_int| {
        let mut bytes = 0u64;
        let code = call!(cuMemPoolGetAttribute(
            pool as CUmemoryPool => CUmemoryPool,
            attribute => c_int,
            (&raw mut bytes).cast() => *mut c_void,
        ));
        when_done(code, bytes)
    };
    outside_captures(|| Ok((read(RESERVED_MEM_CURRENT)?, read(USED_MEM_CURRENT)?)))
}

pub(crate) fn trim_pool(pool: usize) -> Called<()> {
    outside_captures(|| when_done(call!(cuMemPoolTrimTo(pool as CUmemoryPool => CUmemoryPool, 0 => usize)), ()))
}

pub(crate) fn free_async(pointer: CUdeviceptr, stream: CUstream, per_thread: bool) -> Called<()> {
    let code = if per_thread {
        call!(cuMemFreeAsync_ptsz(pointer => CUdeviceptr, stream => CUstream))
    } else {
        call!(cuMemFreeAsync(pointer => CUdeviceptr, stream => CUstream))
    };
    when_done(code, ())
}

pub(crate) fn free(pointer: CUdeviceptr) -> Called<()> {
    when_done(call!(cuMemFree_v2(pointer => CUdeviceptr)), ())
}

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
