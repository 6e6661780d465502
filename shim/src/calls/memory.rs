//! Our own calls that concern pools and pointers.
#![allow(unsafe_code)]
#![allow(non_snake_case)]

use super::{Called, call, when_done};
use crate::entry::id;
use crate::names::Id;
use crate::real;
use core::ffi::{c_int, c_uint, c_void};
use driver_api::*;

/// The pool from which a device's streams allocate.
pub(crate) fn current_pool(device: CUdevice) -> Called<usize> {
    let mut pool: CUmemoryPool = core::ptr::null_mut();
    let code = call!(cuDeviceGetMemPool(&mut pool => *mut CUmemoryPool, device => CUdevice));
    when_done(code, pool as usize)
}

/// What the device of the current context has free, whoever uses the rest.
pub(crate) fn free_bytes() -> Called<u64> {
    let (mut free, mut total) = (0usize, 0usize);
    let code = outside_captures(|| call!(cuMemGetInfo_v2(&mut free => *mut usize, &mut total => *mut usize)));
    when_done(code, free as u64)
}

/// Whether the memory of process `pid` is at the host.
pub(crate) fn is_checkpointed(pid: c_int) -> Called<bool> {
    const CHECKPOINTED: CUprocessState = 2;
    let mut state: CUprocessState = 0;
    let code = call!(cuCheckpointProcessGetState(pid => c_int, &mut state => *mut CUprocessState));
    when_done(code, state == CHECKPOINTED)
}

/// The pool that a device starts with.
pub(crate) fn default_pool(device: CUdevice) -> Called<usize> {
    let mut pool: CUmemoryPool = core::ptr::null_mut();
    let code = call!(cuDeviceGetDefaultMemPool(&mut pool => *mut CUmemoryPool, device => CUdevice));
    when_done(code, pool as usize)
}

/// Runs a call of our own in a capture mode that lets it: another stream's capture may forbid it in the program's.
pub(crate) fn outside_captures<T>(call: impl FnOnce() -> T) -> T {
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

/// Whether a device brings managed memory in page by page, and lets it go when it is full.
pub(crate) fn has_concurrent_managed_access(device: CUdevice) -> bool {
    const CONCURRENT_MANAGED_ACCESS: c_int = 89;
    let mut value: c_int = 0;
    let code = call!(cuDeviceGetAttribute(
        &mut value => *mut c_int,
        CONCURRENT_MANAGED_ACCESS => c_int,
        device => CUdevice,
    ));
    code.is_success() && value != 0
}

/// Managed memory that every stream may use.
pub(crate) fn allocate_managed(bytes: u64) -> Called<CUdeviceptr> {
    const ATTACH_GLOBAL: c_uint = 1;
    let mut pointer: CUdeviceptr = 0;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let code = call!(cuMemAllocManaged(
        &mut pointer => *mut CUdeviceptr,
        bytes => usize,
        ATTACH_GLOBAL => c_uint,
    ));
    when_done(code, pointer)
}

/// Says that managed memory is to be on `device` while it can be.
pub(crate) fn prefer_device(pointer: CUdeviceptr, bytes: u64, device: CUdevice) -> Called<()> {
    const SET_PREFERRED_LOCATION: c_int = 3;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let code = call!(cuMemAdvise(
        pointer => CUdeviceptr,
        bytes => usize,
        SET_PREFERRED_LOCATION => c_int,
        device => CUdevice,
    ));
    when_done(code, ())
}

pub(crate) fn free(pointer: CUdeviceptr) -> Called<()> {
    when_done(call!(cuMemFree_v2(pointer => CUdeviceptr)), ())
}
