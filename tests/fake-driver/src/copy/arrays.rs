//! Copies of one row to, from and between arrays.

use super::{ARRAY, DEVICE, HOST, enqueue, flat, now};
use crate::args::Answer;
use crate::entry::Call;
use core::ffi::c_void;
use driver_api::{CUDA_MEMCPY3D, CUarray, CUdeviceptr, CUstream};

fn into_array(to: CUarray, offset: usize, copy: CUDA_MEMCPY3D) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D { dstMemoryType: ARRAY, dstArray: to, dstXInBytes: offset, ..copy }
}

fn out_of_array(from: CUarray, offset: usize, copy: CUDA_MEMCPY3D) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D { srcMemoryType: ARRAY, srcArray: from, srcXInBytes: offset, ..copy }
}

pub(super) fn host_to_array(to: CUarray, offset: usize, from: *const c_void, bytes: usize) -> CUDA_MEMCPY3D {
    into_array(to, offset, flat((ARRAY, 0), (HOST, from.addr() as u64), bytes))
}

pub(super) fn array_to_host(to: *mut c_void, from: CUarray, offset: usize, bytes: usize) -> CUDA_MEMCPY3D {
    out_of_array(from, offset, flat((HOST, to.addr() as u64), (ARRAY, 0), bytes))
}

pub(super) fn device_to_array(to: CUarray, offset: usize, from: CUdeviceptr, bytes: usize) -> CUDA_MEMCPY3D {
    into_array(to, offset, flat((ARRAY, 0), (DEVICE, from), bytes))
}

pub(super) fn array_to_device(to: CUdeviceptr, from: CUarray, offset: usize, bytes: usize) -> CUDA_MEMCPY3D {
    out_of_array(from, offset, flat((DEVICE, to), (ARRAY, 0), bytes))
}

pub(super) fn array_to_array(
    to: CUarray,
    to_offset: usize,
    from: CUarray,
    from_offset: usize,
    bytes: usize,
) -> CUDA_MEMCPY3D {
    into_array(to, to_offset, out_of_array(from, from_offset, flat((ARRAY, 0), (ARRAY, 0), bytes)))
}

pub(crate) fn cuMemcpyHtoA_v2(call: &Call, to: CUarray, offset: usize, from: *const c_void, bytes: usize) -> Answer {
    now(call, &host_to_array(to, offset, from, bytes))
}

pub(crate) fn cuMemcpyHtoAAsync_v2(
    call: &Call,
    to: CUarray,
    offset: usize,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    enqueue(call, stream, &host_to_array(to, offset, from, bytes))
}

pub(crate) fn cuMemcpyAtoH_v2(call: &Call, to: *mut c_void, from: CUarray, offset: usize, bytes: usize) -> Answer {
    now(call, &array_to_host(to, from, offset, bytes))
}

pub(crate) fn cuMemcpyAtoHAsync_v2(
    call: &Call,
    to: *mut c_void,
    from: CUarray,
    offset: usize,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    enqueue(call, stream, &array_to_host(to, from, offset, bytes))
}

pub(crate) fn cuMemcpyDtoA_v2(call: &Call, to: CUarray, offset: usize, from: CUdeviceptr, bytes: usize) -> Answer {
    now(call, &device_to_array(to, offset, from, bytes))
}

pub(crate) fn cuMemcpyAtoD_v2(call: &Call, to: CUdeviceptr, from: CUarray, offset: usize, bytes: usize) -> Answer {
    now(call, &array_to_device(to, from, offset, bytes))
}

pub(crate) fn cuMemcpyAtoA_v2(
    call: &Call,
    to: CUarray,
    to_offset: usize,
    from: CUarray,
    from_offset: usize,
    bytes: usize,
) -> Answer {
    now(call, &array_to_array(to, to_offset, from, from_offset, bytes))
}
