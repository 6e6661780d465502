//! Many copies in one call, and work on managed or compressed memory: paced as a whole, by the bytes of all its parts.
#![allow(non_snake_case, clippy::too_many_arguments)]

use super::Answer;
use crate::args::Raw;
use crate::entry::Next;
use crate::pace::{self, Work};
use driver_api::{
    CUDA_FABRIC_COPY_BATCH_OP, CUDA_MEMCPY3D_BATCH_OP, CUdevice, CUdeviceptr, CUmemDecompressParams, CUmemLocation,
    CUmemcpyAttributes, CUstream,
};

/// How many parts of a batch are looked at: reading as many takes less than submitting them, and a batch of more is long in any
/// case.
const PARTS_MAX: usize = 4096;

/// The bytes of all parts together; 0 for a list that isn't there, which the driver refuses.
fn total<T: Copy>(parts: &Raw<T>, count: usize, bytes: impl Fn(T) -> u64) -> u64 {
    let Some(parts) = parts.out() else { return 0 };
    (0..count.min(PARTS_MAX)).fold(0, |total, at| total.saturating_add(bytes(parts.get_nth(at))))
}

fn copies(next: Next<'_>, stream: CUstream, bytes: u64) -> Answer {
    pace::paced(next, stream, Work::Copy { bytes })
}

pub(crate) fn cuMemcpyBatchAsync(
    next: Next<'_>,
    _dsts: Raw<CUdeviceptr>,
    _srcs: Raw<CUdeviceptr>,
    sizes: Raw<usize>,
    count: usize,
    _attrs: Raw<CUmemcpyAttributes>,
    _attrsIdxs: Raw<usize>,
    _numAttrs: usize,
    _failIdx: Raw<usize>,
    hStream: CUstream,
) -> Answer {
    copies(next, hStream, total(&sizes, count, |size| size as u64))
}

pub(crate) fn cuMemcpyBatchAsync_v2(
    next: Next<'_>,
    _dsts: Raw<CUdeviceptr>,
    _srcs: Raw<CUdeviceptr>,
    sizes: Raw<usize>,
    count: usize,
    _attrs: Raw<CUmemcpyAttributes>,
    _attrsIdxs: Raw<usize>,
    _numAttrs: usize,
    hStream: CUstream,
) -> Answer {
    copies(next, hStream, total(&sizes, count, |size| size as u64))
}

pub(crate) fn cuMemcpyWithAttributesAsync(
    next: Next<'_>,
    _dst: CUdeviceptr,
    _src: CUdeviceptr,
    size: usize,
    _attr: Raw<CUmemcpyAttributes>,
    hStream: CUstream,
) -> Answer {
    copies(next, hStream, size as u64)
}

/// Elements of an array may have more bytes than one; what is known of the copy then is a little too small.
fn volume(copy: CUDA_MEMCPY3D_BATCH_OP) -> u64 {
    copy.extent.iter().fold(1, |bytes, side| bytes.saturating_mul(*side as u64))
}

pub(crate) fn cuMemcpy3DBatchAsync(
    next: Next<'_>,
    numOps: usize,
    opList: Raw<CUDA_MEMCPY3D_BATCH_OP>,
    _failIdx: Raw<usize>,
    _flags: u64,
    hStream: CUstream,
) -> Answer {
    copies(next, hStream, total(&opList, numOps, volume))
}

pub(crate) fn cuMemcpy3DBatchAsync_v2(
    next: Next<'_>,
    numOps: usize,
    opList: Raw<CUDA_MEMCPY3D_BATCH_OP>,
    _flags: u64,
    hStream: CUstream,
) -> Answer {
    copies(next, hStream, total(&opList, numOps, volume))
}

pub(crate) fn cuMemcpy3DWithAttributesAsync(
    next: Next<'_>,
    op: Raw<CUDA_MEMCPY3D_BATCH_OP>,
    _flags: u64,
    hStream: CUstream,
) -> Answer {
    copies(next, hStream, total(&op, 1, volume))
}

pub(crate) fn cuFabricCpyBatchAsync(
    next: Next<'_>,
    numOps: usize,
    opList: Raw<CUDA_FABRIC_COPY_BATCH_OP>,
    _flags: u64,
    hStream: CUstream,
) -> Answer {
    copies(next, hStream, total(&opList, numOps, |copy| copy.size as u64))
}

pub(crate) fn cuMemPrefetchAsync(
    next: Next<'_>,
    _devPtr: CUdeviceptr,
    count: usize,
    _dstDevice: CUdevice,
    hStream: CUstream,
) -> Answer {
    copies(next, hStream, count as u64)
}

pub(crate) fn cuMemPrefetchAsync_v2(
    next: Next<'_>,
    _devPtr: CUdeviceptr,
    count: usize,
    _location: CUmemLocation,
    _flags: u32,
    hStream: CUstream,
) -> Answer {
    copies(next, hStream, count as u64)
}

pub(crate) fn cuMemPrefetchBatchAsync(
    next: Next<'_>,
    _dptrs: Raw<CUdeviceptr>,
    sizes: Raw<usize>,
    count: usize,
    _prefetchLocs: Raw<CUmemLocation>,
    _prefetchLocIdxs: Raw<usize>,
    _numPrefetchLocs: usize,
    _flags: u64,
    hStream: CUstream,
) -> Answer {
    copies(next, hStream, total(&sizes, count, |size| size as u64))
}

pub(crate) fn cuMemDiscardAndPrefetchBatchAsync(
    next: Next<'_>,
    _dptrs: Raw<CUdeviceptr>,
    sizes: Raw<usize>,
    count: usize,
    _prefetchLocs: Raw<CUmemLocation>,
    _prefetchLocIdxs: Raw<usize>,
    _numPrefetchLocs: usize,
    _flags: u64,
    hStream: CUstream,
) -> Answer {
    copies(next, hStream, total(&sizes, count, |size| size as u64))
}

/// Moves nothing, so that its bytes say little about how long it takes.
pub(crate) fn cuMemDiscardBatchAsync(
    next: Next<'_>,
    _dptrs: Raw<CUdeviceptr>,
    _sizes: Raw<usize>,
    _count: usize,
    _flags: u64,
    hStream: CUstream,
) -> Answer {
    pace::paced(next, hStream, Work::Other)
}

pub(crate) fn cuMemBatchDecompressAsync(
    next: Next<'_>,
    paramsArray: Raw<CUmemDecompressParams>,
    count: usize,
    _flags: u32,
    _errorIndex: Raw<usize>,
    stream: CUstream,
) -> Answer {
    copies(next, stream, total(&paramsArray, count, |one| one.dstNumBytes as u64))
}
