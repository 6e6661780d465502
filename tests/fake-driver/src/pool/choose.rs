//! Making and destroying pools, and which one a device uses.

use super::{DYING, POOLS, Pool};
use crate::args::{Answer, get, put};
use crate::entry::Call;
use crate::registry::{handle_of, pointer};
use crate::state::{self, Device};
use crate::vmm::{FILE_DESCRIPTOR, LOCATION_DEVICE, PINNED};
use driver_api::{CUdevice, CUmemAllocationType, CUmemLocation, CUmemPoolProps, CUmemoryPool, CUresult};
use std::sync::Arc;

pub(crate) fn cuMemPoolCreate(_: &Call, out: *mut CUmemoryPool, props: *const CUmemPoolProps) -> Answer {
    let props = get(props)?;
    if out.is_null() || props.allocType != PINNED {
        return Err(CUresult::INVALID_VALUE);
    }
    let device = device_of(props.location)?;
    if props.handleTypes & !FILE_DESCRIPTOR != 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    put(out, POOLS.insert(Pool::new(device, Some(&props))?))
}

/// Pools of host memory are not modelled, and the devices' attributes say so.
fn device_of(location: CUmemLocation) -> Answer<&'static Device> {
    match location.kind {
        LOCATION_DEVICE => state::device(location.id),
        2..=4 => Err(CUresult::NOT_SUPPORTED),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// What was allocated stays until it is freed; only then does the memory go.
pub(crate) fn cuMemPoolDestroy(_: &Call, pool: CUmemoryPool) -> Answer {
    let found = POOLS.get(pool).map_err(|_| CUresult::INVALID_VALUE)?;
    if found.is_default {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut current = found.device.pools.current.lock();
    current.take_if(|current| Arc::ptr_eq(current, &found));
    drop(current);
    drop(POOLS.remove(pool)?);
    let mut state = found.state.lock();
    found.release(&mut state, Some(0));
    if state.used > 0 {
        DYING.lock().push(Arc::clone(&found));
    }
    Ok(())
}

fn handle(pool: &Arc<Pool>) -> CUmemoryPool {
    pointer(handle_of(pool))
}

pub(crate) fn cuDeviceGetDefaultMemPool(_: &Call, out: *mut CUmemoryPool, device: CUdevice) -> Answer {
    put(out, handle(&Pool::default_of(state::device(device)?)?))
}

pub(crate) fn cuDeviceGetMemPool(_: &Call, out: *mut CUmemoryPool, device: CUdevice) -> Answer {
    put(out, handle(&Pool::current_of(state::device(device)?)?))
}

pub(crate) fn cuDeviceSetMemPool(_: &Call, device: CUdevice, pool: CUmemoryPool) -> Answer {
    set(state::device(device)?, pool)
}

fn set(device: &'static Device, pool: CUmemoryPool) -> Answer {
    let pool = POOLS.get(pool).map_err(|_| CUresult::INVALID_VALUE)?;
    if pool.device.physical != device.physical || pool.region.as_ref().is_some_and(super::Region::is_imported) {
        return Err(CUresult::INVALID_VALUE);
    }
    *device.pools.current.lock() = Some(pool);
    Ok(())
}

/// The device of a location, for memory that is pinned there.
fn located(location: *mut CUmemLocation, kind: CUmemAllocationType) -> Answer<&'static Device> {
    let device = device_of(get(location)?)?;
    if kind == PINNED { Ok(device) } else { Err(CUresult::NOT_SUPPORTED) }
}

pub(crate) fn cuMemGetDefaultMemPool(
    _: &Call,
    out: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> Answer {
    put(out, handle(&Pool::default_of(located(location, kind)?)?))
}

pub(crate) fn cuMemGetMemPool(
    _: &Call,
    out: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> Answer {
    put(out, handle(&Pool::current_of(located(location, kind)?)?))
}

pub(crate) fn cuMemSetMemPool(
    _: &Call,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
    pool: CUmemoryPool,
) -> Answer {
    set(located(location, kind)?, pool)
}
