//! Handles to ranges of addresses, for other drivers of the system.

use crate::args::{Answer, put};
use crate::entry::Call;
use crate::memory::{self, Kind};
use crate::pages;
use core::ffi::{c_int, c_void};
use driver_api::{CUdeviceptr, CUmemRangeHandleType, CUresult};
use std::os::fd::IntoRawFd;

/// A descriptor of a DMA buffer. No other driver is here to use it: a file of the range's size stands for it, and
/// shows nothing of the memory.
pub(crate) fn cuMemGetHandleForAddressRange(
    _: &Call,
    out: *mut c_void,
    address: CUdeviceptr,
    size: usize,
    kind: CUmemRangeHandleType,
    flags: u64,
) -> Answer {
    const DMA_BUFFER: CUmemRangeHandleType = 1;
    /// `CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE`
    const BY_PCIE: u64 = 1;
    let size = size as u64;
    let aligned = address.is_multiple_of(pages::HOST_PAGE) && size.is_multiple_of(pages::HOST_PAGE);
    if out.is_null() || size == 0 || !aligned || kind != DMA_BUFFER || flags & !BY_PCIE != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let (_, first) = memory::find(address).ok_or(CUresult::INVALID_VALUE)?;
    let same = |block: &memory::Block| {
        let is_memory = matches!(block.kind, Kind::Linear) || matches!(block.kind, Kind::Mapped(_));
        is_memory && block.device.physical == first.device.physical
    };
    if !memory::covers(address, size, same) {
        return Err(CUresult::INVALID_VALUE);
    }
    let file = pages::memory_file(size).map_err(|_| CUresult::OUT_OF_MEMORY)?;
    put(out.cast::<c_int>(), file.into_raw_fd())
}
