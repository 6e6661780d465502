//! Our own calls of the driver, as safe functions. They go to the driver's own functions, past everybody.
#![allow(unsafe_code)]
#![allow(non_snake_case)]

mod graph;
mod memory;
mod nvml;
mod pace;

pub(crate) use graph::*;
pub(crate) use memory::*;
pub(crate) use nvml::*;
pub(crate) use pace::*;

use crate::entry::id;
use crate::names::Id;
use crate::real;
use core::ffi::{c_int, c_uint, c_void};
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
use call;

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

/// The UUID of the whole device, also where the program sees a MIG instance of it.
pub(crate) fn whole_device_uuid(device: CUdevice) -> Called<[u8; 16]> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    let code = call!(cuDeviceGetUuid(&mut uuid => *mut CUuuid, device => CUdevice));
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
    look_into(context).ok()
}

/// Whether the driver says that a context is none any more.
pub(crate) fn is_gone(context: usize) -> bool {
    const GONE: [CUresult; 2] = [CUresult::INVALID_CONTEXT, CUresult::CONTEXT_IS_DESTROYED];
    look_into(context).is_err_and(|code| GONE.contains(&code))
}

fn look_into(context: usize) -> Called<CUdevice> {
    when_done(call!(cuCtxPushCurrent_v2(context as CUcontext => CUcontext)), ())?;
    let mut device: CUdevice = 0;
    let code = call!(cuCtxGetDevice(&mut device => *mut CUdevice));
    let mut popped: CUcontext = core::ptr::null_mut();
    let _ = call!(cuCtxPopCurrent_v2(&mut popped => *mut CUcontext));
    when_done(code, device)
}

/// Whether the primary context of a device is active; never activates it.
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
