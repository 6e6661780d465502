//! What can be asked of a pool, and set.

use super::{POOLS, Pool};
use crate::args::{Answer, get, put, slice};
use crate::entry::Call;
use crate::vmm::access::{READ_WRITE, check};
use crate::vmm::{LOCATION_DEVICE, PINNED};
use core::ffi::{c_int, c_void};
use driver_api::{CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemPool_attribute, CUmemoryPool, CUresult};
use std::sync::Arc;

const RELEASE_THRESHOLD: CUmemPool_attribute = 4;
const RESERVED_MEM_CURRENT: CUmemPool_attribute = 5;
const RESERVED_MEM_HIGH: CUmemPool_attribute = 6;
const USED_MEM_CURRENT: CUmemPool_attribute = 7;
const USED_MEM_HIGH: CUmemPool_attribute = 8;

fn find(pool: CUmemoryPool) -> Answer<Arc<Pool>> {
    POOLS.get(pool).map_err(|_| CUresult::INVALID_VALUE)
}

/// The reuse policy that an attribute is.
fn policy(attribute: CUmemPool_attribute) -> Option<usize> {
    usize::try_from(attribute).ok()?.checked_sub(1).filter(|&at| at < 3)
}

pub(crate) fn cuMemPoolGetAttribute(
    _: &Call,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> Answer {
    let pool = find(pool)?;
    let state = pool.state.lock();
    if let Some(at) = policy(attribute) {
        return put(value.cast::<c_int>(), state.reuse[at]);
    }
    let number = match attribute {
        RELEASE_THRESHOLD => state.threshold,
        RESERVED_MEM_CURRENT => state.reserved,
        RESERVED_MEM_HIGH => state.reserved_high,
        USED_MEM_CURRENT => state.used,
        USED_MEM_HIGH => state.used_high,
        9 => return put(value.cast::<c_int>(), PINNED),
        10 => return put(value.cast::<c_int>(), pool.handle_types),
        11 => return put(value.cast::<c_int>(), pool.device.ordinal),
        12 => return put(value.cast::<c_int>(), LOCATION_DEVICE),
        13 => pool.max_size,
        14 => return put(value.cast::<c_int>(), 0),
        _ => return Err(CUresult::INVALID_VALUE),
    };
    put(value.cast::<u64>(), number)
}

pub(crate) fn cuMemPoolSetAttribute(
    _: &Call,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> Answer {
    let pool = find(pool)?;
    let mut state = pool.state.lock();
    if let Some(at) = policy(attribute) {
        state.reuse[at] = c_int::from(get(value.cast::<c_int>())? != 0);
        return Ok(());
    }
    let number = get(value.cast::<u64>())?;
    match (attribute, number) {
        (RELEASE_THRESHOLD, _) => state.threshold = number,
        // A high watermark can only be reset.
        (RESERVED_MEM_HIGH, 0) => state.reserved_high = state.reserved,
        (USED_MEM_HIGH, 0) => state.used_high = state.used,
        _ => return Err(CUresult::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) fn cuMemPoolTrimTo(_: &Call, pool: CUmemoryPool, keep: usize) -> Answer {
    let pool = find(pool)?;
    pool.release(&mut pool.state.lock(), Some(keep as u64));
    Ok(())
}

pub(crate) fn cuMemPoolSetAccess(_: &Call, pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize) -> Answer {
    let pool = find(pool)?;
    let descriptions = slice(map, count)?;
    for description in descriptions {
        check(description)?;
        let own = description.location.id == pool.device.ordinal;
        if description.location.kind != LOCATION_DEVICE || own && description.flags != READ_WRITE {
            return Err(CUresult::INVALID_VALUE);
        }
    }
    let mut state = pool.state.lock();
    state.access.extend(descriptions.iter().map(|description| (description.location.id, description.flags)));
    Ok(())
}

pub(crate) fn cuMemPoolGetAccess(
    _: &Call,
    out: *mut CUmemAccess_flags,
    pool: CUmemoryPool,
    location: *mut CUmemLocation,
) -> Answer {
    let pool = find(pool)?;
    let location = get(location)?;
    if location.kind != LOCATION_DEVICE {
        return Err(CUresult::INVALID_VALUE);
    }
    crate::state::device(location.id)?;
    let own = if location.id == pool.device.ordinal { READ_WRITE } else { 0 };
    let flags = pool.state.lock().access.get(&location.id).copied().unwrap_or(own);
    put(out, flags)
}
