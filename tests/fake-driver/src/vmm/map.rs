//! Address ranges, and memory mapped into them.

use super::{Physical, find, give_out};
use crate::args::{Answer, put};
use crate::entry::Call;
use crate::memory::{self, Kind};
use crate::pages;
use crate::state::{self, driver};
use core::ffi::{c_int, c_void};
use driver_api::layout::DEVICE_PAGE;
use driver_api::{CUdeviceptr, CUmemGenericAllocationHandle, CUresult};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ranges of addresses that the program has reserved: start and size.
static RESERVED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

/// Memory in a range, and who may use it there.
pub(crate) struct Mapping {
    pub(crate) physical: Arc<Physical>,
    /// Access flags by location.
    pub(super) access: Mutex<BTreeMap<(c_int, c_int), c_int>>,
}

impl Mapping {
    /// True when some device may read it, or write it too.
    pub(crate) fn allows(&self, write: bool) -> bool {
        let least = if write { super::access::READ_WRITE } else { super::access::READ };
        self.access.lock().values().any(|&flags| flags >= least)
    }

    /// The size of the memory behind it.
    pub(crate) fn handle_types(&self) -> c_int {
        self.physical.properties.handle_types
    }
}

/// True when the program has reserved the whole range.
pub(crate) fn is_reserved(start: u64, size: u64) -> bool {
    reservation(start).is_some_and(|(base, whole)| start.checked_add(size).is_some_and(|end| end <= base + whole))
}

/// The reservation that an address lies in.
pub(crate) fn reservation(address: u64) -> Option<(u64, u64)> {
    let reserved = RESERVED.lock();
    let (&start, &size) = reserved.range(..=address).next_back()?;
    (address - start < size).then_some((start, size))
}

pub(crate) fn cuMemAddressReserve(
    _: &Call,
    out: *mut CUdeviceptr,
    size: usize,
    alignment: usize,
    hint: CUdeviceptr,
    flags: u64,
) -> Answer {
    let size = size as u64;
    let aligned = alignment == 0 || alignment.is_power_of_two();
    if out.is_null() || size == 0 || !size.is_multiple_of(DEVICE_PAGE) || !aligned || flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let alignment = (alignment as u64).max(DEVICE_PAGE);
    let wanted = (hint != 0 && hint.is_multiple_of(alignment)).then(|| pages::reserve_at(hint, size)).flatten();
    let start = wanted.or_else(|| pages::reserve(size, alignment, false)).ok_or(CUresult::OUT_OF_MEMORY)?;
    RESERVED.lock().insert(start, size);
    put(out, start)
}

pub(crate) fn cuMemAddressFree(_: &Call, start: CUdeviceptr, size: usize) -> Answer {
    let size = size as u64;
    let mut reserved = RESERVED.lock();
    if reserved.get(&start) != Some(&size) || memory::overlaps(start, size) {
        return Err(CUresult::INVALID_VALUE);
    }
    reserved.remove(&start);
    pages::unreserve(start, size);
    Ok(())
}

pub(crate) fn cuMemMap(
    _: &Call,
    start: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> Answer {
    let physical = find(handle)?;
    let size = size as u64;
    let whole =
        size > 0 && size.is_multiple_of(DEVICE_PAGE) && start.is_multiple_of(DEVICE_PAGE) && size <= physical.size;
    // The offset is documented to be zero for now.
    if !whole || offset != 0 || flags != 0 || !is_reserved(start, size) || memory::overlaps(start, size) {
        return Err(CUresult::INVALID_VALUE);
    }
    if let Some(team) = &physical.team {
        team.wait(&physical)?;
    }
    if !pages::map_file(start, size, &physical.file, 0, false) {
        return Err(CUresult::OUT_OF_MEMORY);
    }
    let device = physical.device().map_or_else(|| state::device(0), Ok)?;
    let mapping = Arc::new(Mapping { physical, access: Mutex::default() });
    memory::adopt(start, size, Kind::Mapped(mapping), None, device);
    Ok(())
}

/// Takes whole mappings out of their range; memory that nothing else holds goes with them.
pub(crate) fn cuMemUnmap(_: &Call, start: CUdeviceptr, size: usize) -> Answer {
    let size = size as u64;
    let blocks = memory::within(start, size);
    let exact = blocks.iter().all(|(at, block)| at + block.size <= start + size);
    let mapped = blocks.iter().map(|(_, block)| block.size).sum::<u64>();
    if blocks.is_empty() || !exact || mapped != size {
        return Err(CUresult::INVALID_VALUE);
    }
    for context in driver().contexts() {
        context.streams.wait();
    }
    for (at, _) in &blocks {
        drop(memory::remove(*at, |block| matches!(block.kind, Kind::Mapped(_))));
    }
    if pages::map_private(start, size, false) { Ok(()) } else { Err(CUresult::OUT_OF_MEMORY) }
}

/// The handle of the memory at an address, one more reference to it.
pub(crate) fn cuMemRetainAllocationHandle(
    _: &Call,
    out: *mut CUmemGenericAllocationHandle,
    address: *mut c_void,
) -> Answer {
    match memory::find(address.addr() as u64).map(|(_, block)| block.kind) {
        Some(Kind::Mapped(mapping)) if !out.is_null() => put(out, give_out(&mapping.physical)),
        _ => Err(CUresult::INVALID_VALUE),
    }
}
