//! Copies: those within devices wait for the gate like kernels, since they take the memory that kernels work on; those
//! over the bus do when they are large.
#![allow(non_snake_case)]

use super::Answer;
use crate::args::{In, Raw};
use crate::entry::Next;
use crate::pace::{self, Awaited, Work};
use core::ffi::c_void;
use driver_api::{
    CUDA_MEMCPY2D, CUDA_MEMCPY2D_v1, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUDA_MEMCPY3D_v1, CUarray, CUcontext,
    CUdeviceptr, CUdeviceptr_v1, CUstream,
};

/// The default stream, of the thread or of the context, as the symbol has it.
pub(super) const DEFAULT: CUstream = core::ptr::null_mut();

/// From how many bytes on a copy over the bus is paced. At 10 GB/s, which buses of today reach, it takes a millisecond, as
/// long as the least slice; a smaller one, which takes a copy engine and no multiprocessor, holds nobody up.
const BUS_BYTES_PACED: u64 = 8 << 20;

/// `CU_MEMORYTYPE_HOST`
const HOST: i32 = 1;

/// A copy between places on devices, or between addresses that may be anywhere. The calls without a stream go through the
/// default one, and don't wait for its end where both places are on devices.
fn within(next: Next<'_>, stream: CUstream, bytes: u64) -> Answer {
    pace::paced(next, stream, Work::Copy { bytes })
}

/// A copy between host and device.
fn over_the_bus(next: Next<'_>, stream: CUstream, bytes: u64) -> Answer {
    if bytes < BUS_BYTES_PACED { next.call() } else { pace::paced(next, stream, Work::Copy { bytes }) }
}

/// The same where the call waits for its end, and so for everything before it in the stream.
fn over_the_bus_now(next: Next<'_>, bytes: u64) -> Answer {
    if bytes < BUS_BYTES_PACED {
        pace::synchronising(next, Awaited::Stream(DEFAULT))
    } else {
        pace::paced_blocking(next, Work::Copy { bytes })
    }
}

pub(crate) fn cuMemcpy(next: Next<'_>, _dst: CUdeviceptr, _src: CUdeviceptr, ByteCount: usize) -> Answer {
    within(next, DEFAULT, ByteCount as u64)
}

pub(crate) fn cuMemcpyAsync(
    next: Next<'_>,
    _dst: CUdeviceptr,
    _src: CUdeviceptr,
    ByteCount: usize,
    hStream: CUstream,
) -> Answer {
    within(next, hStream, ByteCount as u64)
}

pub(crate) fn cuMemcpyDtoD(
    next: Next<'_>,
    _dstDevice: CUdeviceptr_v1,
    _srcDevice: CUdeviceptr_v1,
    ByteCount: u32,
) -> Answer {
    within(next, DEFAULT, u64::from(ByteCount))
}

pub(crate) fn cuMemcpyDtoD_v2(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _srcDevice: CUdeviceptr,
    ByteCount: usize,
) -> Answer {
    within(next, DEFAULT, ByteCount as u64)
}

pub(crate) fn cuMemcpyDtoDAsync(
    next: Next<'_>,
    _dstDevice: CUdeviceptr_v1,
    _srcDevice: CUdeviceptr_v1,
    ByteCount: u32,
    hStream: CUstream,
) -> Answer {
    within(next, hStream, u64::from(ByteCount))
}

pub(crate) fn cuMemcpyDtoDAsync_v2(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _srcDevice: CUdeviceptr,
    ByteCount: usize,
    hStream: CUstream,
) -> Answer {
    within(next, hStream, ByteCount as u64)
}

pub(crate) fn cuMemcpyDtoH(
    next: Next<'_>,
    _dstHost: Raw<c_void>,
    _srcDevice: CUdeviceptr_v1,
    ByteCount: u32,
) -> Answer {
    over_the_bus_now(next, u64::from(ByteCount))
}

pub(crate) fn cuMemcpyDtoH_v2(
    next: Next<'_>,
    _dstHost: Raw<c_void>,
    _srcDevice: CUdeviceptr,
    ByteCount: usize,
) -> Answer {
    over_the_bus_now(next, ByteCount as u64)
}

pub(crate) fn cuMemcpyDtoHAsync(
    next: Next<'_>,
    _dstHost: Raw<c_void>,
    _srcDevice: CUdeviceptr_v1,
    ByteCount: u32,
    hStream: CUstream,
) -> Answer {
    over_the_bus(next, hStream, u64::from(ByteCount))
}

pub(crate) fn cuMemcpyDtoHAsync_v2(
    next: Next<'_>,
    _dstHost: Raw<c_void>,
    _srcDevice: CUdeviceptr,
    ByteCount: usize,
    hStream: CUstream,
) -> Answer {
    over_the_bus(next, hStream, ByteCount as u64)
}

pub(crate) fn cuMemcpyHtoD(
    next: Next<'_>,
    _dstDevice: CUdeviceptr_v1,
    _srcHost: Raw<c_void>,
    ByteCount: u32,
) -> Answer {
    over_the_bus_now(next, u64::from(ByteCount))
}

pub(crate) fn cuMemcpyHtoD_v2(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _srcHost: Raw<c_void>,
    ByteCount: usize,
) -> Answer {
    over_the_bus_now(next, ByteCount as u64)
}

pub(crate) fn cuMemcpyHtoDAsync(
    next: Next<'_>,
    _dstDevice: CUdeviceptr_v1,
    _srcHost: Raw<c_void>,
    ByteCount: u32,
    hStream: CUstream,
) -> Answer {
    over_the_bus(next, hStream, u64::from(ByteCount))
}

pub(crate) fn cuMemcpyHtoDAsync_v2(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _srcHost: Raw<c_void>,
    ByteCount: usize,
    hStream: CUstream,
) -> Answer {
    over_the_bus(next, hStream, ByteCount as u64)
}

pub(crate) fn cuMemcpyPeer(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _dstContext: CUcontext,
    _srcDevice: CUdeviceptr,
    _srcContext: CUcontext,
    ByteCount: usize,
) -> Answer {
    within(next, DEFAULT, ByteCount as u64)
}

pub(crate) fn cuMemcpyPeerAsync(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _dstContext: CUcontext,
    _srcDevice: CUdeviceptr,
    _srcContext: CUcontext,
    ByteCount: usize,
    hStream: CUstream,
) -> Answer {
    within(next, hStream, ByteCount as u64)
}

pub(crate) fn cuMemcpyAtoA(
    next: Next<'_>,
    _dstArray: CUarray,
    _dstOffset: u32,
    _srcArray: CUarray,
    _srcOffset: u32,
    ByteCount: u32,
) -> Answer {
    within(next, DEFAULT, u64::from(ByteCount))
}

pub(crate) fn cuMemcpyAtoA_v2(
    next: Next<'_>,
    _dstArray: CUarray,
    _dstOffset: usize,
    _srcArray: CUarray,
    _srcOffset: usize,
    ByteCount: usize,
) -> Answer {
    within(next, DEFAULT, ByteCount as u64)
}

pub(crate) fn cuMemcpyAtoD(
    next: Next<'_>,
    _dstDevice: CUdeviceptr_v1,
    _srcArray: CUarray,
    _srcOffset: u32,
    ByteCount: u32,
) -> Answer {
    within(next, DEFAULT, u64::from(ByteCount))
}

pub(crate) fn cuMemcpyAtoD_v2(
    next: Next<'_>,
    _dstDevice: CUdeviceptr,
    _srcArray: CUarray,
    _srcOffset: usize,
    ByteCount: usize,
) -> Answer {
    within(next, DEFAULT, ByteCount as u64)
}

pub(crate) fn cuMemcpyAtoH(
    next: Next<'_>,
    _dstHost: Raw<c_void>,
    _srcArray: CUarray,
    _srcOffset: u32,
    ByteCount: u32,
) -> Answer {
    over_the_bus_now(next, u64::from(ByteCount))
}

pub(crate) fn cuMemcpyAtoH_v2(
    next: Next<'_>,
    _dstHost: Raw<c_void>,
    _srcArray: CUarray,
    _srcOffset: usize,
    ByteCount: usize,
) -> Answer {
    over_the_bus_now(next, ByteCount as u64)
}

pub(crate) fn cuMemcpyAtoHAsync(
    next: Next<'_>,
    _dstHost: Raw<c_void>,
    _srcArray: CUarray,
    _srcOffset: u32,
    ByteCount: u32,
    hStream: CUstream,
) -> Answer {
    over_the_bus(next, hStream, u64::from(ByteCount))
}

pub(crate) fn cuMemcpyAtoHAsync_v2(
    next: Next<'_>,
    _dstHost: Raw<c_void>,
    _srcArray: CUarray,
    _srcOffset: usize,
    ByteCount: usize,
    hStream: CUstream,
) -> Answer {
    over_the_bus(next, hStream, ByteCount as u64)
}

pub(crate) fn cuMemcpyDtoA(
    next: Next<'_>,
    _dstArray: CUarray,
    _dstOffset: u32,
    _srcDevice: CUdeviceptr_v1,
    ByteCount: u32,
) -> Answer {
    within(next, DEFAULT, u64::from(ByteCount))
}

pub(crate) fn cuMemcpyDtoA_v2(
    next: Next<'_>,
    _dstArray: CUarray,
    _dstOffset: usize,
    _srcDevice: CUdeviceptr,
    ByteCount: usize,
) -> Answer {
    within(next, DEFAULT, ByteCount as u64)
}

pub(crate) fn cuMemcpyHtoA(
    next: Next<'_>,
    _dstArray: CUarray,
    _dstOffset: u32,
    _srcHost: Raw<c_void>,
    ByteCount: u32,
) -> Answer {
    over_the_bus_now(next, u64::from(ByteCount))
}

pub(crate) fn cuMemcpyHtoA_v2(
    next: Next<'_>,
    _dstArray: CUarray,
    _dstOffset: usize,
    _srcHost: Raw<c_void>,
    ByteCount: usize,
) -> Answer {
    over_the_bus_now(next, ByteCount as u64)
}

pub(crate) fn cuMemcpyHtoAAsync(
    next: Next<'_>,
    _dstArray: CUarray,
    _dstOffset: u32,
    _srcHost: Raw<c_void>,
    ByteCount: u32,
    hStream: CUstream,
) -> Answer {
    over_the_bus(next, hStream, u64::from(ByteCount))
}

pub(crate) fn cuMemcpyHtoAAsync_v2(
    next: Next<'_>,
    _dstArray: CUarray,
    _dstOffset: usize,
    _srcHost: Raw<c_void>,
    ByteCount: usize,
    hStream: CUstream,
) -> Answer {
    over_the_bus(next, hStream, ByteCount as u64)
}

/// A copy with a shape, as far as it matters here.
struct Shaped {
    extent: [u64; 3],
    /// One of its ends is memory of the host by its type. Of unified addresses nobody can tell without asking.
    is_over_the_bus: bool,
}

impl Shaped {
    fn bytes(&self) -> u64 {
        self.extent.iter().fold(1, |bytes, side| bytes.saturating_mul(*side))
    }
}

macro_rules! shaped_by {
    ($($from:ty: $depth:expr),* $(,)?) => { $(impl From<$from> for Shaped {
        fn from(copy: $from) -> Self {
            // Of either width.
            #[allow(clippy::unnecessary_cast)]
            let sides = [copy.WidthInBytes as u64, copy.Height as u64];
            let depth: fn(&$from) -> u64 = $depth;
            Self {
                extent: [sides[0], sides[1], depth(&copy)],
                is_over_the_bus: [copy.srcMemoryType, copy.dstMemoryType].contains(&HOST),
            }
        }
    })* };
}
shaped_by! {
    CUDA_MEMCPY2D_v1: |_| 1,
    CUDA_MEMCPY2D: |_| 1,
    CUDA_MEMCPY3D_v1: |copy| u64::from(copy.Depth),
    CUDA_MEMCPY3D: |copy| copy.Depth as u64,
    CUDA_MEMCPY3D_PEER: |copy| copy.Depth as u64,
}

/// Without a stream the call is the synchronous one.
fn shaped(next: Next<'_>, stream: Option<CUstream>, copy: Shaped) -> Answer {
    match stream {
        Some(stream) if copy.is_over_the_bus => over_the_bus(next, stream, copy.bytes()),
        None if copy.is_over_the_bus => over_the_bus_now(next, copy.bytes()),
        stream => within(next, stream.unwrap_or(DEFAULT), copy.bytes()),
    }
}

pub(crate) fn cuMemcpy2D(next: Next<'_>, pCopy: In<CUDA_MEMCPY2D_v1>) -> Answer {
    shaped(next, None, Shaped::from(pCopy.get()))
}

pub(crate) fn cuMemcpy2D_v2(next: Next<'_>, pCopy: In<CUDA_MEMCPY2D>) -> Answer {
    shaped(next, None, Shaped::from(pCopy.get()))
}

pub(crate) fn cuMemcpy2DAsync(next: Next<'_>, pCopy: In<CUDA_MEMCPY2D_v1>, hStream: CUstream) -> Answer {
    shaped(next, Some(hStream), Shaped::from(pCopy.get()))
}

pub(crate) fn cuMemcpy2DAsync_v2(next: Next<'_>, pCopy: In<CUDA_MEMCPY2D>, hStream: CUstream) -> Answer {
    shaped(next, Some(hStream), Shaped::from(pCopy.get()))
}

pub(crate) fn cuMemcpy2DUnaligned(next: Next<'_>, pCopy: In<CUDA_MEMCPY2D_v1>) -> Answer {
    shaped(next, None, Shaped::from(pCopy.get()))
}

pub(crate) fn cuMemcpy2DUnaligned_v2(next: Next<'_>, pCopy: In<CUDA_MEMCPY2D>) -> Answer {
    shaped(next, None, Shaped::from(pCopy.get()))
}

pub(crate) fn cuMemcpy3D(next: Next<'_>, pCopy: In<CUDA_MEMCPY3D_v1>) -> Answer {
    shaped(next, None, Shaped::from(pCopy.get()))
}

pub(crate) fn cuMemcpy3D_v2(next: Next<'_>, pCopy: In<CUDA_MEMCPY3D>) -> Answer {
    shaped(next, None, Shaped::from(pCopy.get()))
}

pub(crate) fn cuMemcpy3DAsync(next: Next<'_>, pCopy: In<CUDA_MEMCPY3D_v1>, hStream: CUstream) -> Answer {
    shaped(next, Some(hStream), Shaped::from(pCopy.get()))
}

pub(crate) fn cuMemcpy3DAsync_v2(next: Next<'_>, pCopy: In<CUDA_MEMCPY3D>, hStream: CUstream) -> Answer {
    shaped(next, Some(hStream), Shaped::from(pCopy.get()))
}

pub(crate) fn cuMemcpy3DPeer(next: Next<'_>, pCopy: In<CUDA_MEMCPY3D_PEER>) -> Answer {
    shaped(next, None, Shaped::from(pCopy.get()))
}

pub(crate) fn cuMemcpy3DPeerAsync(next: Next<'_>, pCopy: In<CUDA_MEMCPY3D_PEER>, hStream: CUstream) -> Answer {
    shaped(next, Some(hStream), Shaped::from(pCopy.get()))
}
