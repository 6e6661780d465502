//! Physical memory and its mappings: charged at creation, credited when nothing refers to it any more.
#![allow(non_snake_case)]

use super::Answer;
use crate::args::{In, Out, Raw};
use crate::entry::Next;
use crate::flight::Flight;
use crate::{account, overhead, vmm};
use core::ffi::c_void;
use driver_api::layout::DEVICE_PAGE;
use driver_api::{CUdevice, CUdeviceptr, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation};

/// `CU_MEM_LOCATION_TYPE_DEVICE`
const LOCATION_DEVICE: i32 = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN`: the device in the lowest byte, the domain above.
const LOCATION_LOCALITY_DOMAIN: i32 = 6;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`
const PINNED: i32 = 1;

/// The device a location lies on; `None` for host memory.
pub(crate) fn device_of_location(location: CUmemLocation) -> Option<CUdevice> {
    match location.kind {
        LOCATION_DEVICE => Some(location.id),
        LOCATION_LOCALITY_DOMAIN => Some(location.id & 0xff),
        _ => None,
    }
}

pub(crate) fn cuMemCreate(
    next: Next<'_>,
    handle: Out<CUmemGenericAllocationHandle>,
    size: usize,
    prop: In<CUmemAllocationProp>,
    flags: u64,
) -> Answer {
    let _flight = Flight::enter();
    // The device is the one named in the properties, whatever context the thread has, if any. Sizes and flags that
    // can't be are the driver's to refuse.
    let prop = prop.get();
    let is_legal = size > 0 && (size as u64).is_multiple_of(DEVICE_PAGE) && flags == 0 && prop.kind == PINNED;
    let account = match device_of_location(prop.location) {
        Some(device) if is_legal => account::of_device(device)?,
        _ => None,
    };
    let held = account.map(|account| account.reserve(size as u64)).transpose()?;
    match &account {
        Some(account) => next.call_for(account, size as u64)?,
        None => next.call()?,
    }
    vmm::created(handle.get(), held.map(account::Held::commit));
    Ok(())
}

pub(crate) fn cuMemRelease(next: Next<'_>, handle: CUmemGenericAllocationHandle) -> Answer {
    let _flight = Flight::enter();
    overhead::know_slack();
    let releasing = vmm::releasing(handle);
    let answer = next.call();
    match (releasing, &answer) {
        (Some(releasing), Ok(())) => releasing.done(),
        (Some(releasing), Err(_)) => releasing.undo(),
        (None, _) => {}
    }
    answer
}

pub(crate) fn cuMemMap(
    next: Next<'_>,
    ptr: CUdeviceptr,
    size: usize,
    _offset: usize,
    handle: CUmemGenericAllocationHandle,
    _flags: u64,
) -> Answer {
    next.call()?;
    vmm::mapped(ptr, size as u64, handle);
    Ok(())
}

pub(crate) fn cuMemUnmap(next: Next<'_>, ptr: CUdeviceptr, size: usize) -> Answer {
    let _flight = Flight::enter();
    overhead::know_slack();
    next.call()?;
    vmm::unmapped(ptr, size as u64);
    Ok(())
}

pub(crate) fn cuMemRetainAllocationHandle(
    next: Next<'_>,
    handle: Out<CUmemGenericAllocationHandle>,
    addr: Raw<c_void>,
) -> Answer {
    next.call()?;
    vmm::retained(handle.get(), addr.0 as u64);
    Ok(())
}

/// The exporter is charged.
pub(crate) fn cuMemImportFromShareableHandle(
    next: Next<'_>,
    handle: Out<CUmemGenericAllocationHandle>,
    _osHandle: *mut c_void,
    _shHandleType: i32,
) -> Answer {
    next.call()?;
    vmm::imported(handle.get());
    overhead::imported();
    Ok(())
}
