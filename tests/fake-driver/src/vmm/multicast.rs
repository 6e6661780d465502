//! Multicast: one range of addresses that means the same place in memory of several devices.
//!
//! An object has no memory of its own. What is bound to it lives until it is unbound or the object is gone:
//! released, unmapped everywhere. Nothing here executes kernels, the only ones that could tell; a copy to a
//! mapped object reaches a file of its own and no device. Processes that share an object share its team of
//! devices, and each keeps what it has bound itself.

use super::bindings::{Bindings, GRANULARITY, Memory, Place};
use super::{FILE_DESCRIPTOR, Physical, Properties, Sharing, find, give_out, reap, share};
use crate::args::{Answer, get, put};
use crate::device::attributes;
use crate::entry::Call;
use crate::pages;
use crate::state::{self, Device, driver};
use core::ffi::c_int;
use driver_api::{
    CUdevice, CUdeviceptr, CUmemGenericAllocationHandle, CUmemLocation, CUmulticastGranularity_flags,
    CUmulticastObjectProp, CUresult,
};
use fake_machine::now_ns;
use parking_lot::Mutex;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

/// The location of what is nowhere.
pub(super) const LOCATION_NONE: c_int = 0;
/// Behind the memory and what `share` keeps there: how many devices are wanted, and a byte for each there is.
const WANTED: u64 = 512;
const ADDED: u64 = 520;
const ADDED_MAX: usize = 64;
/// How long a process waits for the devices that others have to add.
const TEAM_WAIT_MAX_NS: u64 = 10_000_000_000;

/// The devices of an object, and what this process has bound to them.
pub(super) struct Team {
    wanted: u32,
    bindings: Bindings,
}

impl Team {
    /// The team of an object that another process made.
    pub(super) fn of_file(file: &File, size: u64) -> Option<Self> {
        let mut wanted = [0; 4];
        file.read_exact_at(&mut wanted, size + WANTED).ok()?;
        Some(Self { wanted: u32::from_le_bytes(wanted), bindings: Bindings::default() })
    }

    /// A byte for each of the machine's devices, not 0 for those of the team.
    fn added(object: &Physical) -> Answer<[u8; ADDED_MAX]> {
        let mut added = [0; ADDED_MAX];
        object.file.read_exact_at(&mut added, object.size + ADDED).map_err(|_| CUresult::UNKNOWN)?;
        Ok(added)
    }

    fn is_complete(&self, object: &Physical) -> Answer<bool> {
        Ok(Self::added(object)?.iter().filter(|added| **added != 0).count() >= self.wanted as usize)
    }

    /// Waits for the devices that others may add; fails where nobody else can.
    pub(super) fn wait(&self, object: &Physical) -> Answer {
        let deadline_ns = now_ns() + TEAM_WAIT_MAX_NS;
        while !self.is_complete(object)? {
            if !object.sharing.lock().is_shared() || now_ns() >= deadline_ns {
                return Err(CUresult::INVALID_VALUE);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn add(&self, object: &Physical, device: &Device) -> Answer {
        let added = Self::added(object)?;
        if added[device.physical] != 0 || self.is_complete(object)? {
            return Err(CUresult::INVALID_VALUE);
        }
        let at = object.size + ADDED + device.physical as u64;
        object.file.write_all_at(&[1], at).map_err(|_| CUresult::OUT_OF_MEMORY)
    }

    fn bind(&self, object: &Physical, device: &Device, place: Place, memory: Memory) -> Answer {
        self.wait(object)?;
        if Self::added(object)?[device.physical] == 0 {
            return Err(CUresult::INVALID_DEVICE);
        }
        self.bindings.bind(device, place, memory)
    }
}

/// The object behind a handle; 1 for any other memory.
fn object(handle: CUmemGenericAllocationHandle) -> Answer<Arc<Physical>> {
    find(handle).and_then(|found| if found.team.is_some() { Ok(found) } else { Err(CUresult::INVALID_VALUE) })
}

fn team(object: &Physical) -> Answer<&Team> {
    object.team.as_ref().ok_or(CUresult::INVALID_VALUE)
}

fn supports(device: &Device) -> bool {
    attributes::value(device, attributes::MULTICAST_SUPPORTED) == Ok(1)
}

/// Fails for properties that no object here can have.
fn check(prop: &CUmulticastObjectProp) -> Answer {
    if !driver().devices().iter().any(supports) {
        return Err(CUresult::NOT_SUPPORTED);
    }
    let devices = driver().machine.devices().len();
    if prop.numDevices == 0 || prop.numDevices as usize > devices || prop.flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let is_known = prop.handleTypes & !u64::from(FILE_DESCRIPTOR.cast_unsigned()) == 0;
    if is_known { Ok(()) } else { Err(CUresult::NOT_SUPPORTED) }
}

pub(crate) fn cuMulticastGetGranularity(
    _: &Call,
    out: *mut usize,
    prop: *const CUmulticastObjectProp,
    option: CUmulticastGranularity_flags,
) -> Answer {
    check(&get(prop)?)?;
    if !matches!(option, 0 | 1) {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, usize::try_from(GRANULARITY).map_err(|_| CUresult::INVALID_VALUE)?)
}

pub(crate) fn cuMulticastCreate(
    _: &Call,
    out: *mut CUmemGenericAllocationHandle,
    prop: *const CUmulticastObjectProp,
) -> Answer {
    let prop = get(prop)?;
    check(&prop)?;
    let size = prop.size as u64;
    if out.is_null() || size == 0 || !size.is_multiple_of(GRANULARITY) {
        return Err(CUresult::INVALID_VALUE);
    }
    let room = size.checked_add(share::HEADER_BYTES).filter(|room| i64::try_from(*room).is_ok());
    let failed = |_| CUresult::OUT_OF_MEMORY;
    let file = pages::memory_file(room.ok_or(CUresult::OUT_OF_MEMORY)?).map_err(failed)?;
    file.write_all_at(&prop.numDevices.to_le_bytes(), size + WANTED).map_err(failed)?;
    let properties = Properties {
        handle_types: c_int::try_from(prop.handleTypes).map_err(|_| CUresult::INVALID_VALUE)?,
        location: CUmemLocation { kind: LOCATION_NONE, id: 0 },
        compression: 0,
        usage: 0,
    };
    let sharing = Mutex::new(Sharing::own(&file, size, &properties).map_err(failed)?);
    let team = Some(Team { wanted: prop.numDevices, bindings: Bindings::default() });
    let object = Arc::new(Physical { file, size, properties, sharing, team });
    share::remember(&object);
    put(out, give_out(&object))
}

pub(crate) fn cuMulticastAddDevice(_: &Call, handle: CUmemGenericAllocationHandle, device: CUdevice) -> Answer {
    let object = object(handle)?;
    let device = state::device(device)?;
    if !supports(device) {
        return Err(CUresult::NOT_SUPPORTED);
    }
    team(&object)?.add(&object, device)
}

/// Binds memory to an object, for the device that it is on or that the caller names.
fn bind(
    handle: CUmemGenericAllocationHandle,
    device: Option<CUdevice>,
    offset: usize,
    size: usize,
    memory: Memory,
) -> Answer {
    let object = object(handle)?;
    let place = Place::new(offset as u64, size as u64, object.size)?;
    if object.properties.handle_types != 0 && !memory.is_shareable() {
        return Err(CUresult::INVALID_VALUE);
    }
    reap();
    let device = memory.device_for(device)?;
    team(&object)?.bind(&object, device, place, memory)
}

pub(crate) fn cuMulticastBindMem(
    _: &Call,
    handle: CUmemGenericAllocationHandle,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    memory_offset: usize,
    size: usize,
    flags: u64,
) -> Answer {
    bind(handle, None, offset, size, Memory::of_handle(memory, memory_offset as u64, size as u64, flags)?)
}

#[allow(clippy::too_many_arguments)] // The API has that many.
pub(crate) fn cuMulticastBindMem_v2(
    _: &Call,
    handle: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    memory_offset: usize,
    size: usize,
    flags: u64,
) -> Answer {
    bind(handle, Some(device), offset, size, Memory::of_handle(memory, memory_offset as u64, size as u64, flags)?)
}

pub(crate) fn cuMulticastBindAddr(
    _: &Call,
    handle: CUmemGenericAllocationHandle,
    offset: usize,
    address: CUdeviceptr,
    size: usize,
    flags: u64,
) -> Answer {
    bind(handle, None, offset, size, Memory::at(address, size as u64, flags)?)
}

pub(crate) fn cuMulticastBindAddr_v2(
    _: &Call,
    handle: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    address: CUdeviceptr,
    size: usize,
    flags: u64,
) -> Answer {
    bind(handle, Some(device), offset, size, Memory::at(address, size as u64, flags)?)
}

pub(crate) fn cuMulticastUnbind(
    _: &Call,
    handle: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    size: usize,
) -> Answer {
    let object = object(handle)?;
    let device = state::device(device)?;
    let place = Place::new(offset as u64, size as u64, object.size)?;
    team(&object)?.bindings.unbind(device, place)
}
