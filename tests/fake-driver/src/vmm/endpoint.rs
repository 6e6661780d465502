//! Logical endpoints: numbers that stand for a range of one device's memory, or of several devices'.
//!
//! Only who holds which memory is kept here. There is no fabric, so that no endpoint can be handed to other
//! processes.

use super::bindings::{Bindings, GRANULARITY, Memory, Place};
use super::reap;
use crate::args::{Answer, get, put};
use crate::device::attributes::{self, ENDPOINT_MULTICAST_SUPPORTED, ENDPOINT_UNICAST_SUPPORTED};
use crate::entry::Call;
use crate::state::{self, Device, driver};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use driver_api::{
    CUdevice, CUlogicalEndpointId, CUlogicalEndpointIpcHandleType, CUlogicalEndpointProp, CUmemGenericAllocationHandle,
    CUresult,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest endpoint.
const SIZE_MAX: u64 = 1 << 40;
/// Numbers that a process may have reserved at a time.
const IDS_MAX: usize = 1 << 16;
/// `CU_LOGICAL_ENDPOINT_TYPE_*`
const UNICAST: c_int = 1;
const MULTICAST: c_int = 2;

/// One endpoint.
struct Endpoint {
    size: u64,
    is_multicast: bool,
    /// How many devices it is to have, and the machine's numbers of those that it has.
    wanted: usize,
    devices: Mutex<Vec<usize>>,
    /// True once the program has asked whether it is complete, and was told that it is.
    is_ready: AtomicBool,
    bindings: Bindings,
}

impl Endpoint {
    fn is_complete(&self) -> bool {
        self.devices.lock().len() >= self.wanted
    }
}

/// Reserved numbers, and what they stand for.
static IDS: Mutex<BTreeMap<u32, Option<Arc<Endpoint>>>> = Mutex::new(BTreeMap::new());

fn find(id: CUlogicalEndpointId) -> Answer<Arc<Endpoint>> {
    IDS.lock().get(&id).cloned().flatten().ok_or(CUresult::INVALID_VALUE)
}

/// The machine's numbers of an endpoint's first devices, and how many it is to have; fails for properties that no
/// endpoint here can have.
fn check(prop: &CUlogicalEndpointProp) -> Answer<(Vec<usize>, usize)> {
    const COUNTED: u32 = 1;
    const FABRIC: u32 = 1;
    let supports = |attribute| move |device: &Device| attributes::value(device, attribute) == Ok(1);
    if prop.flags & !COUNTED != 0 || prop.ipcHandleTypes & !FABRIC != 0 || prop.size == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let team = match prop.r#type {
        UNICAST => {
            let owner = state::device(prop.member)?;
            if !supports(ENDPOINT_UNICAST_SUPPORTED)(owner) {
                return Err(CUresult::NOT_SUPPORTED);
            }
            (vec![owner.physical], 1)
        }
        MULTICAST => {
            if !driver().devices().iter().any(supports(ENDPOINT_MULTICAST_SUPPORTED)) {
                return Err(CUresult::NOT_SUPPORTED);
            }
            let wanted = usize::try_from(prop.member).map_err(|_| CUresult::INVALID_VALUE)?;
            if wanted == 0 || wanted > driver().machine.devices().len() {
                return Err(CUresult::INVALID_VALUE);
            }
            (Vec::new(), wanted)
        }
        _ => return Err(CUresult::INVALID_VALUE),
    };
    if prop.ipcHandleTypes & FABRIC != 0 { Err(CUresult::NOT_SUPPORTED) } else { Ok(team) }
}

pub(crate) fn cuLogicalEndpointIdReserve(_: &Call, out: *mut CUlogicalEndpointId, count: u32) -> Answer {
    static NEXT: Mutex<u32> = Mutex::new(1);
    if out.is_null() || count == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let (mut next, mut ids) = (NEXT.lock(), IDS.lock());
    let end = next.checked_add(count).filter(|_| ids.len() + count as usize <= IDS_MAX);
    let end = end.ok_or(CUresult::OUT_OF_MEMORY)?;
    let first = std::mem::replace(&mut *next, end);
    ids.extend((first..end).map(|id| (id, None)));
    put(out.cast::<u32>(), first)
}

pub(crate) fn cuLogicalEndpointIdRelease(_: &Call, first: CUlogicalEndpointId, count: u32) -> Answer {
    let end = first.checked_add(count).filter(|_| count > 0).ok_or(CUresult::INVALID_VALUE)?;
    let mut ids = IDS.lock();
    let unused = ids.range(first..end).filter(|(_, endpoint)| endpoint.is_none()).count();
    if unused != count as usize {
        return Err(CUresult::INVALID_VALUE);
    }
    ids.retain(|id, _| !(first..end).contains(id));
    Ok(())
}

pub(crate) fn cuLogicalEndpointGetLimits(
    _: &Call,
    alignment: *mut u64,
    size_max: *mut u64,
    prop: *const CUlogicalEndpointProp,
) -> Answer {
    check(&get(prop)?)?;
    if size_max.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    put(alignment, GRANULARITY)?;
    put(size_max, SIZE_MAX)
}

pub(crate) fn cuLogicalEndpointCreate(_: &Call, id: CUlogicalEndpointId, prop: *const CUlogicalEndpointProp) -> Answer {
    let prop = get(prop)?;
    let (devices, wanted) = check(&prop)?;
    if prop.size > SIZE_MAX || !prop.size.is_multiple_of(GRANULARITY) {
        return Err(CUresult::INVALID_VALUE);
    }
    let endpoint = Endpoint {
        size: prop.size,
        is_multicast: prop.r#type == MULTICAST,
        wanted,
        devices: Mutex::new(devices),
        is_ready: AtomicBool::new(false),
        bindings: Bindings::default(),
    };
    let mut ids = IDS.lock();
    let place = ids.get_mut(&id).filter(|place| place.is_none()).ok_or(CUresult::INVALID_VALUE)?;
    *place = Some(Arc::new(endpoint));
    Ok(())
}

pub(crate) fn cuLogicalEndpointDestroy(_: &Call, id: CUlogicalEndpointId) -> Answer {
    let ended = IDS.lock().get_mut(&id).and_then(Option::take);
    // Not under the lock: what is bound to it may end, too.
    ended.map(drop).ok_or(CUresult::INVALID_VALUE)
}

pub(crate) fn cuLogicalEndpointAddDevice(_: &Call, id: CUlogicalEndpointId, device: CUdevice) -> Answer {
    let endpoint = find(id)?;
    let device = state::device(device)?;
    if attributes::value(device, ENDPOINT_MULTICAST_SUPPORTED) != Ok(1) {
        return Err(CUresult::NOT_SUPPORTED);
    }
    let mut devices = endpoint.devices.lock();
    if !endpoint.is_multicast || devices.len() >= endpoint.wanted || devices.contains(&device.physical) {
        return Err(CUresult::INVALID_VALUE);
    }
    devices.push(device.physical);
    Ok(())
}

/// Endpoints are complete as soon as they have their devices; a number that stands for none is not.
pub(crate) fn cuLogicalEndpointQuery(_: &Call, first: CUlogicalEndpointId, count: u32, status: *mut c_int) -> Answer {
    let end = first.checked_add(count).filter(|_| count > 0).ok_or(CUresult::INVALID_VALUE)?;
    let ids = IDS.lock();
    let mut known = ids.range(first..end).map(|(_, endpoint)| endpoint);
    if known.clone().count() != count as usize || status.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let are_complete = known.all(|known| known.as_ref().is_some_and(|endpoint| endpoint.is_complete()));
    if are_complete {
        for endpoint in ids.range(first..end).filter_map(|(_, endpoint)| endpoint.as_ref()) {
            endpoint.is_ready.store(true, Ordering::Relaxed);
        }
    }
    put(status, are_complete.into())
}

fn bind(id: CUlogicalEndpointId, device: CUdevice, offset: u64, size: u64, memory: Memory) -> Answer {
    let endpoint = find(id)?;
    let place = Place::new(offset, size, endpoint.size)?;
    if !endpoint.is_ready.load(Ordering::Relaxed) {
        return Err(CUresult::INVALID_VALUE);
    }
    reap();
    let device = memory.device_for(Some(device))?;
    if !endpoint.devices.lock().contains(&device.physical) {
        return Err(CUresult::INVALID_DEVICE);
    }
    endpoint.bindings.bind(device, place, memory)
}

#[allow(clippy::too_many_arguments)] // The API has that many.
pub(crate) fn cuLogicalEndpointBindMem(
    _: &Call,
    id: CUlogicalEndpointId,
    device: CUdevice,
    offset: u64,
    memory: CUmemGenericAllocationHandle,
    memory_offset: u64,
    size: u64,
    flags: u64,
) -> Answer {
    bind(id, device, offset, size, Memory::of_handle(memory, memory_offset, size, flags)?)
}

pub(crate) fn cuLogicalEndpointBindAddr(
    _: &Call,
    id: CUlogicalEndpointId,
    device: CUdevice,
    offset: u64,
    address: *mut c_void,
    size: u64,
    flags: u64,
) -> Answer {
    bind(id, device, offset, size, Memory::at(address.addr() as u64, size, flags)?)
}

pub(crate) fn cuLogicalEndpointUnbind(
    _: &Call,
    id: CUlogicalEndpointId,
    device: CUdevice,
    offset: u64,
    size: u64,
) -> Answer {
    let endpoint = find(id)?;
    let device = state::device(device)?;
    endpoint.bindings.unbind(device, Place::new(offset, size, endpoint.size)?)
}

/// No endpoint has a handle of any kind.
pub(crate) fn cuLogicalEndpointExport(
    _: &Call,
    _handle: *mut c_void,
    id: CUlogicalEndpointId,
    _kind: CUlogicalEndpointIpcHandleType,
) -> Answer {
    find(id)?;
    Err(CUresult::INVALID_VALUE)
}

/// Handles come by a fabric, and there is none.
pub(crate) fn cuLogicalEndpointImport(
    _: &Call,
    id: CUlogicalEndpointId,
    handle: *const c_void,
    kind: CUlogicalEndpointIpcHandleType,
) -> Answer {
    const FABRIC: CUlogicalEndpointIpcHandleType = 1;
    let is_free = matches!(IDS.lock().get(&id), Some(None));
    if !is_free || handle.is_null() || kind != FABRIC {
        Err(CUresult::INVALID_VALUE)
    } else {
        Err(CUresult::NOT_SUPPORTED)
    }
}
