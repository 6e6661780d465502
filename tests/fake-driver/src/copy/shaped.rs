//! Copies in two and three dimensions.

use super::linear::check_contexts;
use super::{enqueue, now};
use crate::args::{Answer, get};
use crate::entry::Call;
use core::ptr::null_mut;
use driver_api::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUresult, CUstream};

/// The same copy with a third dimension of one.
pub(super) fn widened(copy: CUDA_MEMCPY2D) -> Answer<CUDA_MEMCPY3D> {
    // A pitch of zero means tightly packed rows; any other has to hold a row.
    let fits = |pitch: usize| pitch == 0 || pitch >= copy.WidthInBytes || copy.Height <= 1;
    if !fits(copy.srcPitch) || !fits(copy.dstPitch) {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        reserved0: null_mut(),
        srcPitch: copy.srcPitch,
        srcHeight: 0,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        reserved1: null_mut(),
        dstPitch: copy.dstPitch,
        dstHeight: 0,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: 1,
    })
}

fn without_contexts(copy: CUDA_MEMCPY3D_PEER) -> Answer<CUDA_MEMCPY3D> {
    check_contexts(copy.dstContext, copy.srcContext)?;
    Ok(CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcLOD: copy.srcLOD,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        reserved0: null_mut(),
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstLOD: copy.dstLOD,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        reserved1: null_mut(),
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
    })
}

pub(crate) fn cuMemcpy2D_v2(call: &Call, copy: *const CUDA_MEMCPY2D) -> Answer {
    now(call, &widened(get(copy)?)?)
}

/// Alignment never matters here.
pub(crate) fn cuMemcpy2DUnaligned_v2(call: &Call, copy: *const CUDA_MEMCPY2D) -> Answer {
    now(call, &widened(get(copy)?)?)
}

pub(crate) fn cuMemcpy2DAsync_v2(call: &Call, copy: *const CUDA_MEMCPY2D, stream: CUstream) -> Answer {
    enqueue(call, stream, &widened(get(copy)?)?)
}

pub(crate) fn cuMemcpy3D_v2(call: &Call, copy: *const CUDA_MEMCPY3D) -> Answer {
    now(call, &get(copy)?)
}

pub(crate) fn cuMemcpy3DAsync_v2(call: &Call, copy: *const CUDA_MEMCPY3D, stream: CUstream) -> Answer {
    enqueue(call, stream, &get(copy)?)
}

pub(crate) fn cuMemcpy3DPeer(call: &Call, copy: *const CUDA_MEMCPY3D_PEER) -> Answer {
    now(call, &without_contexts(get(copy)?)?)
}

pub(crate) fn cuMemcpy3DPeerAsync(call: &Call, copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) -> Answer {
    enqueue(call, stream, &without_contexts(get(copy)?)?)
}
