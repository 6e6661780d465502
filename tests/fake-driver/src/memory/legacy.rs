//! The first API, whose device pointers and sizes have 32 bits: its memory lies below 4 GiB.

use super::linear::{free, linear, pitched};
use super::{Placement, find};
use crate::args::{Answer, optional, put};
use crate::entry::Call;
use crate::state;
use driver_api::{CUdeviceptr_v1, CUresult};

/// An address from [`Placement::Low`], as the first API names it.
pub(crate) fn short(address: u64) -> Answer<CUdeviceptr_v1> {
    CUdeviceptr_v1::try_from(address).map_err(|_| CUresult::INVALID_VALUE)
}

pub(crate) fn cuMemAlloc(_: &Call, out: *mut CUdeviceptr_v1, size: u32) -> Answer {
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, short(linear(size.into(), Placement::Low)?)?)
}

pub(crate) fn cuMemAllocPitch(
    _: &Call,
    out: *mut CUdeviceptr_v1,
    pitch_out: *mut u32,
    width: u32,
    height: u32,
    element: u32,
) -> Answer {
    if out.is_null() || pitch_out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let (address, pitch) = pitched(width.into(), height.into(), element, Placement::Low)?;
    put(pitch_out, short(pitch)?)?;
    put(out, short(address)?)
}

pub(crate) fn cuMemFree(_: &Call, address: CUdeviceptr_v1) -> Answer {
    free(address.into())
}

pub(crate) fn cuMemGetAddressRange(
    _: &Call,
    base: *mut CUdeviceptr_v1,
    size: *mut u32,
    address: CUdeviceptr_v1,
) -> Answer {
    state::current()?;
    let (start, block) = find(address.into()).ok_or(CUresult::NOT_FOUND)?;
    optional(base, short(start)?);
    optional(size, u32::try_from(block.size).unwrap_or(u32::MAX));
    Ok(())
}
