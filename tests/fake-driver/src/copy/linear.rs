//! Copies of one row: between addresses of the host and the device.

use super::{DEVICE, HOST, UNIFIED, enqueue, flat, now};
use crate::args::Answer;
use crate::entry::Call;
use crate::state;
use core::ffi::c_void;
use driver_api::{CUcontext, CUdeviceptr, CUstream};

pub(crate) fn cuMemcpy(call: &Call, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Answer {
    now(call, &flat((UNIFIED, to), (UNIFIED, from), bytes))
}

pub(crate) fn cuMemcpyAsync(call: &Call, to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Answer {
    enqueue(call, stream, &flat((UNIFIED, to), (UNIFIED, from), bytes))
}

pub(crate) fn cuMemcpyHtoD_v2(call: &Call, to: CUdeviceptr, from: *const c_void, bytes: usize) -> Answer {
    now(call, &flat((DEVICE, to), (HOST, from.addr() as u64), bytes))
}

pub(crate) fn cuMemcpyHtoDAsync_v2(
    call: &Call,
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    enqueue(call, stream, &flat((DEVICE, to), (HOST, from.addr() as u64), bytes))
}

pub(crate) fn cuMemcpyDtoH_v2(call: &Call, to: *mut c_void, from: CUdeviceptr, bytes: usize) -> Answer {
    now(call, &flat((HOST, to.addr() as u64), (DEVICE, from), bytes))
}

pub(crate) fn cuMemcpyDtoHAsync_v2(
    call: &Call,
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    enqueue(call, stream, &flat((HOST, to.addr() as u64), (DEVICE, from), bytes))
}

pub(crate) fn cuMemcpyDtoD_v2(call: &Call, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Answer {
    now(call, &flat((DEVICE, to), (DEVICE, from), bytes))
}

pub(crate) fn cuMemcpyDtoDAsync_v2(
    call: &Call,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    enqueue(call, stream, &flat((DEVICE, to), (DEVICE, from), bytes))
}

/// Both contexts have to exist; addresses alone say where the memory is.
pub(super) fn check_contexts(to: CUcontext, from: CUcontext) -> Answer {
    state::context(to)?;
    state::context(from)?;
    Ok(())
}

pub(crate) fn cuMemcpyPeer(
    call: &Call,
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
) -> Answer {
    check_contexts(to_context, from_context)?;
    now(call, &flat((DEVICE, to), (DEVICE, from), bytes))
}

pub(crate) fn cuMemcpyPeerAsync(
    call: &Call,
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    check_contexts(to_context, from_context)?;
    enqueue(call, stream, &flat((DEVICE, to), (DEVICE, from), bytes))
}
