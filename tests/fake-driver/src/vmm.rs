//! Virtual memory management: address ranges, physical memory by handle, mappings of one into the other.
//!
//! Physical memory is a file in memory. It is charged when it is made, and given back when nothing holds
//! it any more: no handle, no mapping, and no other process to which it was exported ([`share`]).

pub(crate) mod access;
mod bindings;
pub(crate) mod endpoint;
pub(crate) mod map;
pub(crate) mod multicast;
pub(crate) mod range;
pub(crate) mod share;

use crate::args::{Answer, get, put};
use crate::entry::Call;
use crate::pages;
use crate::state::{self, Device};
use core::ffi::c_int;
use driver_api::layout::DEVICE_PAGE;
use driver_api::{
    CUmemAllocationGranularity_flags, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUresult,
};
pub(crate) use map::Mapping;
use multicast::Team;
use parking_lot::Mutex;
use share::Sharing;
pub(crate) use share::reap;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

/// `CU_MEM_LOCATION_TYPE_*`
pub(crate) const LOCATION_DEVICE: c_int = 1;
const LOCATION_HOST: c_int = 2;
const LOCATION_HOST_NUMA: c_int = 3;
const LOCATION_HOST_NUMA_CURRENT: c_int = 4;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`
pub(crate) const PINNED: c_int = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
pub(crate) const FILE_DESCRIPTOR: c_int = 1;

/// A piece of physical memory.
pub(crate) struct Physical {
    file: File,
    pub(crate) size: u64,
    pub(crate) properties: Properties,
    /// Where it is charged and how it is shared; `None` for host memory that can't be shared.
    sharing: Mutex<Sharing>,
    /// For an object of multicast, which has no memory of its own: what is bound to it.
    team: Option<Team>,
}

impl Physical {
    /// The device of device memory that can be had as tiles of sparse arrays.
    pub(crate) fn tile_pool(&self) -> Option<&'static Device> {
        const TILE_POOL: u16 = 1;
        (self.properties.usage == TILE_POOL).then(|| self.device()).flatten()
    }

    /// The device that the memory is on.
    pub(crate) fn device(&self) -> Option<&'static Device> {
        self.properties.device().ok().flatten()
    }
}

/// What is kept of `CUmemAllocationProp`.
#[derive(Clone, Copy)]
pub(crate) struct Properties {
    pub(crate) handle_types: c_int,
    pub(crate) location: CUmemLocation,
    compression: u8,
    usage: u16,
}

impl Properties {
    fn new(prop: &CUmemAllocationProp) -> Answer<Self> {
        if prop.kind != PINNED || !prop.win32HandleMetaData.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        if prop.requestedHandleTypes & !FILE_DESCRIPTOR != 0 || prop.allocFlags.gpuDirectRDMACapable != 0 {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let properties = Self {
            handle_types: prop.requestedHandleTypes,
            location: prop.location,
            compression: prop.allocFlags.compressionType,
            usage: prop.allocFlags.usage,
        };
        properties.device()?;
        Ok(properties)
    }

    /// The device it is on; `None` for memory of the host.
    pub(crate) fn device(&self) -> Answer<Option<&'static Device>> {
        device_of(self.location)
    }

    fn prop(&self) -> CUmemAllocationProp {
        CUmemAllocationProp {
            kind: PINNED,
            requestedHandleTypes: self.handle_types,
            location: self.location,
            win32HandleMetaData: core::ptr::null_mut(),
            allocFlags: driver_api::CUmemAllocationFlags {
                compressionType: self.compression,
                gpuDirectRDMACapable: 0,
                usage: self.usage,
                reserved: [0; 4],
            },
        }
    }
}

/// The device of a location; `None` for the host's memory.
pub(crate) fn device_of(location: CUmemLocation) -> Answer<Option<&'static Device>> {
    match location.kind {
        LOCATION_DEVICE => state::device(location.id).map(Some),
        LOCATION_HOST | LOCATION_HOST_NUMA_CURRENT => Ok(None),
        LOCATION_HOST_NUMA if location.id >= 0 => Ok(None),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// Handles that the program holds: the memory, and how often it was given out.
static HANDLES: Mutex<BTreeMap<u64, (Arc<Physical>, u64)>> = Mutex::new(BTreeMap::new());

/// Gives out a handle, the same for the same memory.
fn give_out(physical: &Arc<Physical>) -> CUmemGenericAllocationHandle {
    let handle = Arc::as_ptr(physical).addr() as u64;
    HANDLES.lock().entry(handle).or_insert_with(|| (Arc::clone(physical), 0)).1 += 1;
    handle
}

/// The memory behind a handle; 1 for none.
pub(crate) fn find(handle: CUmemGenericAllocationHandle) -> Answer<Arc<Physical>> {
    HANDLES.lock().get(&handle).map(|(physical, _)| Arc::clone(physical)).ok_or(CUresult::INVALID_VALUE)
}

/// Memory comes in pages of the device, also the host's.
pub(crate) fn cuMemGetAllocationGranularity(
    _: &Call,
    out: *mut usize,
    prop: *const CUmemAllocationProp,
    option: CUmemAllocationGranularity_flags,
) -> Answer {
    Properties::new(&get(prop)?)?;
    if !matches!(option, 0 | 1) {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, usize::try_from(DEVICE_PAGE).map_err(|_| CUresult::INVALID_VALUE)?)
}

pub(crate) fn cuMemCreate(
    _: &Call,
    out: *mut CUmemGenericAllocationHandle,
    size: usize,
    prop: *const CUmemAllocationProp,
    flags: u64,
) -> Answer {
    let properties = Properties::new(&get(prop)?)?;
    let size = size as u64;
    if out.is_null() || size == 0 || !size.is_multiple_of(DEVICE_PAGE) || flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    reap();
    let device = properties.device()?;
    if let Some(device) = device {
        device.take(size)?;
    }
    let give_back = |_| {
        if let Some(device) = device {
            device.give(size);
        }
        CUresult::OUT_OF_MEMORY
    };
    let file = pages::memory_file(size + share::HEADER_BYTES).map_err(give_back)?;
    let sharing = Sharing::own(&file, size, &properties).map_err(give_back)?;
    let physical = Arc::new(Physical { file, size, properties, sharing: Mutex::new(sharing), team: None });
    share::remember(&physical);
    put(out, give_out(&physical))
}

pub(crate) fn cuMemRelease(_: &Call, handle: CUmemGenericAllocationHandle) -> Answer {
    let mut handles = HANDLES.lock();
    let (_, count) = handles.get_mut(&handle).ok_or(CUresult::INVALID_VALUE)?;
    *count -= 1;
    let last = if *count == 0 { handles.remove(&handle) } else { None };
    drop(handles);
    drop(last);
    Ok(())
}

pub(crate) fn cuMemGetAllocationPropertiesFromHandle(
    _: &Call,
    out: *mut CUmemAllocationProp,
    handle: CUmemGenericAllocationHandle,
) -> Answer {
    put(out, find(handle)?.properties.prop())
}
