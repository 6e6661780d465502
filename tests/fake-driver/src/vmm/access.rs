//! Who may use mapped memory.

use super::{Mapping, device_of};
use crate::args::{Answer, get, put, slice};
use crate::entry::Call;
use crate::memory::{self, Kind};
use crate::pages;
use core::ffi::c_int;
use driver_api::{CUdeviceptr, CUmemAccessDesc, CUmemLocation, CUresult};
use std::sync::Arc;

/// `CU_MEM_ACCESS_FLAGS_PROT_*`
pub(crate) const READ: c_int = 1;
pub(crate) const READ_WRITE: c_int = 3;

/// Fails for a location that doesn't exist or flags that there are not.
pub(crate) fn check(description: &CUmemAccessDesc) -> Answer {
    device_of(description.location)?;
    if matches!(description.flags, 0 | READ | READ_WRITE) { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

/// The range has to consist of whole mappings. The host reads and writes for every device: what one of them
/// may do, the copies here may do.
pub(crate) fn cuMemSetAccess(
    _: &Call,
    start: CUdeviceptr,
    size: usize,
    descriptions: *const CUmemAccessDesc,
    count: usize,
) -> Answer {
    let size = size as u64;
    let descriptions = slice(descriptions, count)?;
    descriptions.iter().try_for_each(check)?;
    let mappings = mappings(start, size)?;
    if count == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    for (at, bytes, mapping) in mappings {
        let mut access = mapping.access.lock();
        for description in descriptions {
            access.insert((description.location.kind, description.location.id), description.flags);
        }
        let most = access.values().copied().max().unwrap_or(0);
        if !pages::protect(at, bytes, most >= READ, most >= READ_WRITE) {
            return Err(CUresult::INVALID_VALUE);
        }
    }
    Ok(())
}

fn mappings(start: u64, size: u64) -> Answer<Vec<(u64, u64, Arc<Mapping>)>> {
    let mut reached = start;
    let mut found = Vec::new();
    for (at, block) in memory::within(start, size) {
        let Kind::Mapped(mapping) = block.kind else { return Err(CUresult::INVALID_VALUE) };
        if at != reached {
            return Err(CUresult::INVALID_VALUE);
        }
        reached = at + block.size;
        found.push((at, block.size, mapping));
    }
    if size > 0 && reached == start + size { Ok(found) } else { Err(CUresult::INVALID_VALUE) }
}

pub(crate) fn cuMemGetAccess(_: &Call, out: *mut u64, location: *const CUmemLocation, address: CUdeviceptr) -> Answer {
    let location = get(location)?;
    device_of(location)?;
    let Some(Kind::Mapped(mapping)) = memory::find(address).map(|(_, block)| block.kind) else {
        return Err(CUresult::INVALID_VALUE);
    };
    let flags = mapping.access.lock().get(&(location.kind, location.id)).copied().unwrap_or(0);
    put(out, u64::from(flags.cast_unsigned()))
}
