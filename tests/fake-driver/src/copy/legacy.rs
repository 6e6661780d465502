//! The copies of the first API, with 32-bit addresses and sizes.

use super::arrays::{array_to_array, array_to_device, array_to_host, device_to_array, host_to_array};
use super::shaped::widened;
use super::{DEVICE, HOST, enqueue, flat, now};
use crate::args::{Answer, get};
use crate::entry::Call;
use core::ffi::c_void;
use driver_api::{CUDA_MEMCPY2D, CUDA_MEMCPY2D_v1, CUDA_MEMCPY3D, CUDA_MEMCPY3D_v1, CUarray, CUdeviceptr_v1, CUstream};

fn two(copy: CUDA_MEMCPY2D_v1) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcXInBytes: copy.srcXInBytes as usize,
        srcY: copy.srcY as usize,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice.into(),
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch as usize,
        dstXInBytes: copy.dstXInBytes as usize,
        dstY: copy.dstY as usize,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice.into(),
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch as usize,
        WidthInBytes: copy.WidthInBytes as usize,
        Height: copy.Height as usize,
    }
}

fn three(copy: CUDA_MEMCPY3D_v1) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes as usize,
        srcY: copy.srcY as usize,
        srcZ: copy.srcZ as usize,
        srcLOD: copy.srcLOD as usize,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice.into(),
        srcArray: copy.srcArray,
        reserved0: copy.reserved0,
        srcPitch: copy.srcPitch as usize,
        srcHeight: copy.srcHeight as usize,
        dstXInBytes: copy.dstXInBytes as usize,
        dstY: copy.dstY as usize,
        dstZ: copy.dstZ as usize,
        dstLOD: copy.dstLOD as usize,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice.into(),
        dstArray: copy.dstArray,
        reserved1: copy.reserved1,
        dstPitch: copy.dstPitch as usize,
        dstHeight: copy.dstHeight as usize,
        WidthInBytes: copy.WidthInBytes as usize,
        Height: copy.Height as usize,
        Depth: copy.Depth as usize,
    }
}

pub(crate) fn cuMemcpyHtoD(call: &Call, to: CUdeviceptr_v1, from: *const c_void, bytes: u32) -> Answer {
    now(call, &flat((DEVICE, to.into()), (HOST, from.addr() as u64), bytes as usize))
}

pub(crate) fn cuMemcpyDtoH(call: &Call, to: *mut c_void, from: CUdeviceptr_v1, bytes: u32) -> Answer {
    now(call, &flat((HOST, to.addr() as u64), (DEVICE, from.into()), bytes as usize))
}

pub(crate) fn cuMemcpyDtoD(call: &Call, to: CUdeviceptr_v1, from: CUdeviceptr_v1, bytes: u32) -> Answer {
    now(call, &flat((DEVICE, to.into()), (DEVICE, from.into()), bytes as usize))
}

pub(crate) fn cuMemcpyHtoA(call: &Call, to: CUarray, offset: u32, from: *const c_void, bytes: u32) -> Answer {
    now(call, &host_to_array(to, offset as usize, from, bytes as usize))
}

pub(crate) fn cuMemcpyAtoH(call: &Call, to: *mut c_void, from: CUarray, offset: u32, bytes: u32) -> Answer {
    now(call, &array_to_host(to, from, offset as usize, bytes as usize))
}

pub(crate) fn cuMemcpy2D(call: &Call, copy: *const CUDA_MEMCPY2D_v1) -> Answer {
    now(call, &widened(two(get(copy)?))?)
}

pub(crate) fn cuMemcpy3D(call: &Call, copy: *const CUDA_MEMCPY3D_v1) -> Answer {
    now(call, &three(get(copy)?))
}

pub(crate) fn cuMemcpyHtoDAsync(
    call: &Call,
    to: CUdeviceptr_v1,
    from: *const c_void,
    bytes: u32,
    stream: CUstream,
) -> Answer {
    enqueue(call, stream, &flat((DEVICE, to.into()), (HOST, from.addr() as u64), bytes as usize))
}

pub(crate) fn cuMemcpyDtoHAsync(
    call: &Call,
    to: *mut c_void,
    from: CUdeviceptr_v1,
    bytes: u32,
    stream: CUstream,
) -> Answer {
    enqueue(call, stream, &flat((HOST, to.addr() as u64), (DEVICE, from.into()), bytes as usize))
}

pub(crate) fn cuMemcpyDtoDAsync(
    call: &Call,
    to: CUdeviceptr_v1,
    from: CUdeviceptr_v1,
    bytes: u32,
    stream: CUstream,
) -> Answer {
    enqueue(call, stream, &flat((DEVICE, to.into()), (DEVICE, from.into()), bytes as usize))
}

pub(crate) fn cuMemcpyHtoAAsync(
    call: &Call,
    to: CUarray,
    offset: u32,
    from: *const c_void,
    bytes: u32,
    stream: CUstream,
) -> Answer {
    enqueue(call, stream, &host_to_array(to, offset as usize, from, bytes as usize))
}

pub(crate) fn cuMemcpyAtoHAsync(
    call: &Call,
    to: *mut c_void,
    from: CUarray,
    offset: u32,
    bytes: u32,
    stream: CUstream,
) -> Answer {
    enqueue(call, stream, &array_to_host(to, from, offset as usize, bytes as usize))
}

pub(crate) fn cuMemcpy2DAsync(call: &Call, copy: *const CUDA_MEMCPY2D_v1, stream: CUstream) -> Answer {
    enqueue(call, stream, &widened(two(get(copy)?))?)
}

pub(crate) fn cuMemcpy3DAsync(call: &Call, copy: *const CUDA_MEMCPY3D_v1, stream: CUstream) -> Answer {
    enqueue(call, stream, &three(get(copy)?))
}

pub(crate) fn cuMemcpy2DUnaligned(call: &Call, copy: *const CUDA_MEMCPY2D_v1) -> Answer {
    now(call, &widened(two(get(copy)?))?)
}

pub(crate) fn cuMemcpyDtoA(call: &Call, to: CUarray, offset: u32, from: CUdeviceptr_v1, bytes: u32) -> Answer {
    now(call, &device_to_array(to, offset as usize, from.into(), bytes as usize))
}

pub(crate) fn cuMemcpyAtoD(call: &Call, to: CUdeviceptr_v1, from: CUarray, offset: u32, bytes: u32) -> Answer {
    now(call, &array_to_device(to.into(), from, offset as usize, bytes as usize))
}

pub(crate) fn cuMemcpyAtoA(
    call: &Call,
    to: CUarray,
    to_offset: u32,
    from: CUarray,
    from_offset: u32,
    bytes: u32,
) -> Answer {
    now(call, &array_to_array(to, to_offset as usize, from, from_offset as usize, bytes as usize))
}
