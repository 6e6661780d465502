//! Pools across processes: one file of memory for the whole pool, pointers as offsets into it.

use super::{POOLS, Pool, PoolState};
use crate::args::{Answer, get, put};
use crate::entry::Call;
use crate::memory::ranges::{Ranges, Source};
use crate::memory::{self, Kind};
use crate::pages;
use crate::state::{Device, driver};
use crate::vmm::FILE_DESCRIPTOR;
use core::ffi::{c_int, c_void};
use driver_api::layout::{BLOCK_UNIT, DEVICE_PAGE};
use driver_api::{CUdeviceptr, CUmemAllocationHandleType, CUmemPoolPtrExportData, CUmemoryPool, CUresult};
use parking_lot::Mutex;
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const MAGIC: u64 = u64::from_le_bytes(*b"fakepool");

/// Memory of a pool that other processes can map: as large as its device, empty where nothing is written.
pub(super) struct Region {
    file: File,
    base: u64,
    size: u64,
    /// Free addresses; `None` in a process that has imported the pool.
    free: Option<Mutex<Ranges>>,
}

impl Drop for Region {
    fn drop(&mut self) {
        pages::unreserve(self.base, self.size);
    }
}

impl Region {
    pub(super) fn new(device: &Device) -> Answer<Self> {
        let size = device.total_bytes().next_multiple_of(DEVICE_PAGE);
        let file = pages::memory_file(size + pages::HOST_PAGE).map_err(|_| CUresult::OUT_OF_MEMORY)?;
        let header = [MAGIC, size, device.physical as u64].map(u64::to_le_bytes).concat();
        file.write_all_at(&header, size).map_err(|_| CUresult::OUT_OF_MEMORY)?;
        let mut region = Self::map(file, size)?;
        let mut free = Ranges::new(Source::Nowhere, 0, BLOCK_UNIT);
        free.give(region.base, size);
        region.free = Some(Mutex::new(free));
        Ok(region)
    }

    fn map(file: File, size: u64) -> Answer<Self> {
        let base = pages::reserve(size, DEVICE_PAGE, false).ok_or(CUresult::OUT_OF_MEMORY)?;
        let region = Self { file, base, size, free: None };
        if pages::map_file(base, size, &region.file, 0, true) { Ok(region) } else { Err(CUresult::OUT_OF_MEMORY) }
    }

    pub(super) fn is_imported(&self) -> bool {
        self.free.is_none()
    }

    pub(super) fn take(&self, bytes: u64) -> Option<u64> {
        self.free.as_ref()?.lock().take(bytes)
    }

    pub(super) fn give(&self, start: u64, bytes: u64) {
        if let Some(free) = &self.free {
            pages::empty(start, bytes);
            free.lock().give(start, bytes);
        }
    }
}

pub(crate) fn cuMemPoolExportToShareableHandle(
    _: &Call,
    out: *mut c_void,
    pool: CUmemoryPool,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> Answer {
    let pool = POOLS.get(pool).map_err(|_| CUresult::INVALID_VALUE)?;
    let region = pool.region.as_ref().filter(|region| !region.is_imported()).ok_or(CUresult::INVALID_VALUE)?;
    if out.is_null() || flags != 0 || kind != FILE_DESCRIPTOR {
        return Err(CUresult::INVALID_VALUE);
    }
    let exported = region.file.try_clone().map_err(|_| CUresult::OUT_OF_MEMORY)?;
    put(out.cast::<c_int>(), exported.into_raw_fd())
}

pub(crate) fn cuMemPoolImportFromShareableHandle(
    _: &Call,
    out: *mut CUmemoryPool,
    descriptor: *mut c_void,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> Answer {
    if out.is_null() || flags != 0 || kind != FILE_DESCRIPTOR {
        return Err(CUresult::INVALID_VALUE);
    }
    let descriptor = c_int::try_from(descriptor.addr()).map_err(|_| CUresult::INVALID_VALUE)?;
    let file = pages::duplicate(descriptor).map_err(|_| CUresult::INVALID_VALUE)?;
    let length = file.metadata().map_err(|_| CUresult::INVALID_VALUE)?.len();
    let size = length.checked_sub(pages::HOST_PAGE).ok_or(CUresult::INVALID_VALUE)?;
    let mut header = [0; 24];
    file.read_exact_at(&mut header, size).map_err(|_| CUresult::INVALID_VALUE)?;
    let word = |at: usize| header[at * 8..][..8].try_into().map_or(0, u64::from_le_bytes);
    let device = driver().devices().iter().find(|device| device.physical as u64 == word(2));
    let device = device.filter(|_| word(0) == MAGIC && word(1) == size).ok_or(CUresult::INVALID_VALUE)?;
    let region = Region::map(file, size)?;
    let pool = Pool {
        device,
        handle_types: 0,
        max_size: 0,
        is_default: false,
        region: Some(region),
        state: Mutex::new(PoolState::default()),
    };
    put(out, POOLS.insert(Arc::new(pool)))
}

pub(crate) fn cuMemPoolExportPointer(_: &Call, out: *mut CUmemPoolPtrExportData, address: CUdeviceptr) -> Answer {
    let (start, block) = memory::find(address).ok_or(CUresult::INVALID_VALUE)?;
    let Kind::Pool(pool) = &block.kind else { return Err(CUresult::INVALID_VALUE) };
    let region = pool.region.as_ref().filter(|region| !region.is_imported()).ok_or(CUresult::INVALID_VALUE)?;
    let mut data = CUmemPoolPtrExportData { reserved: [0; 64] };
    let words = [MAGIC, start - region.base, block.size].map(u64::to_le_bytes).concat();
    data.reserved[..words.len()].copy_from_slice(&words);
    put(out, data)
}

pub(crate) fn cuMemPoolImportPointer(
    _: &Call,
    out: *mut CUdeviceptr,
    pool: CUmemoryPool,
    data: *mut CUmemPoolPtrExportData,
) -> Answer {
    let pool = POOLS.get(pool).map_err(|_| CUresult::INVALID_VALUE)?;
    let region = pool.region.as_ref().filter(|region| region.is_imported()).ok_or(CUresult::INVALID_VALUE)?;
    let data = get(data)?;
    let word = |at: usize| data.reserved[at * 8..][..8].try_into().map_or(0, u64::from_le_bytes);
    let (offset, size) = (word(1), word(2));
    let inside = size > 0 && offset.checked_add(size).is_some_and(|end| end <= region.size);
    if word(0) != MAGIC || !inside || memory::overlaps(region.base + offset, size) || out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    memory::adopt(region.base + offset, size, Kind::Pool(Arc::clone(&pool)), None, pool.device);
    put(out, region.base + offset)
}
