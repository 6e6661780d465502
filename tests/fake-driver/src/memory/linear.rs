//! `cuMemAlloc` and its relatives: blocks of linear memory.

use super::{Kind, Placement, allocate, find, remove};
use crate::args::{Answer, optional, put};
use crate::entry::Call;
use crate::{capture, state};
use driver_api::{CUdeviceptr, CUresult};

/// Rows of pitched memory begin at multiples of this.
pub(super) const PITCH_UNIT: u64 = 512;

/// A block for the current context.
pub(super) fn linear(size: u64, placement: Placement) -> Answer<u64> {
    let context = state::current()?;
    if size == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    capture::forbid_unsafe_call()?;
    crate::vmm::reap();
    allocate(&context, size, Kind::Linear, placement)
}

/// A block of rows; its address and pitch.
pub(super) fn pitched(width: u64, height: u64, element: u32, placement: Placement) -> Answer<(u64, u64)> {
    state::current()?;
    if !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let pitch = width.checked_next_multiple_of(PITCH_UNIT).ok_or(CUresult::OUT_OF_MEMORY)?;
    let size = pitch.checked_mul(height).ok_or(CUresult::OUT_OF_MEMORY)?;
    Ok((linear(size, placement)?, pitch))
}

/// Frees what the ordinary free calls may free, after all work that could still use it.
pub(crate) fn free(address: u64) -> Answer {
    if address == 0 {
        return Ok(());
    }
    let (start, block) = find(address).ok_or(CUresult::INVALID_VALUE)?;
    if start != address {
        return Err(CUresult::INVALID_VALUE);
    }
    capture::forbid_unsafe_call()?;
    if let Some(context) = &block.context {
        context.streams.wait();
    }
    match block.kind {
        Kind::Pool(pool) => pool.free_now(address),
        Kind::Graph => crate::graph::memory::free_now(address),
        _ => {
            let freed = remove(address, |block| block.is_freeable());
            freed.map(drop).ok_or(CUresult::INVALID_VALUE)
        }
    }
}

pub(crate) fn cuMemAlloc_v2(_: &Call, out: *mut CUdeviceptr, size: usize) -> Answer {
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, linear(size as u64, Placement::Any)?)
}

pub(crate) fn cuMemAllocPitch_v2(
    _: &Call,
    out: *mut CUdeviceptr,
    pitch_out: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> Answer {
    if out.is_null() || pitch_out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let (address, pitch) = pitched(width as u64, height as u64, element, Placement::Any)?;
    put(pitch_out, usize::try_from(pitch).unwrap_or(usize::MAX))?;
    put(out, address)
}

pub(crate) fn cuMemFree_v2(_: &Call, address: CUdeviceptr) -> Answer {
    free(address)
}

pub(crate) fn cuMemGetAddressRange_v2(
    _: &Call,
    base: *mut CUdeviceptr,
    size: *mut usize,
    address: CUdeviceptr,
) -> Answer {
    state::current()?;
    let (start, block) = find(address).ok_or(CUresult::NOT_FOUND)?;
    optional(base, start);
    optional(size, usize::try_from(block.size).unwrap_or(usize::MAX));
    Ok(())
}
