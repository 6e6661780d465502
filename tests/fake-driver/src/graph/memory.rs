//! Memory that belongs to graphs: addresses from the making of a node on, device memory while it is launched.
//!
//! Each device has a pool for all graphs of the process. A launch takes what its allocations need at their
//! highest; what it doesn't need any more stays reserved for the next until the pool is trimmed.

use super::Payload;
use crate::args::{Answer, get, put};
use crate::capture;
use crate::context::Context;
use crate::entry::Call;
use crate::memory::{self, Kind, Placement};
use crate::state::{self, Device};
use crate::stream::Stream;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use driver_api::{CUdevice, CUdeviceptr, CUgraphMem_attribute, CUresult, layout};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

#[derive(Default)]
struct Pool {
    used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
    /// Allocations that hold memory now, by address; what only a launch knows of lives on here.
    live: BTreeMap<u64, Arc<Allocation>>,
}

static POOLS: Mutex<BTreeMap<CUdevice, Pool>> = Mutex::new(BTreeMap::new());
/// Every allocation there is, by address.
static KNOWN: Mutex<BTreeMap<u64, Weak<Allocation>>> = Mutex::new(BTreeMap::new());

/// What an allocation node gives out.
pub(crate) struct Allocation {
    address: CUdeviceptr,
    pub(crate) bytes: u64,
    device: &'static Device,
    /// True once some graph has a node that frees it; no other may have one.
    has_free_node: AtomicBool,
}

impl Allocation {
    /// An address on the context's device, with nothing behind it yet.
    pub(crate) fn new(context: &Arc<Context>, bytes: u64) -> Answer<Arc<Self>> {
        Self::on(context.device, bytes)
    }

    pub(crate) fn on(device: &'static Device, bytes: u64) -> Answer<Arc<Self>> {
        let address = memory::allocate_on(device, None, bytes, Kind::Graph, Placement::Any)?;
        let allocation = Arc::new(Self { address, bytes, device, has_free_node: AtomicBool::new(false) });
        KNOWN.lock().insert(address, Arc::downgrade(&allocation));
        Ok(allocation)
    }

    /// The allocation at an address, for a node that is to free it: 1 for none, or a second such node.
    pub(crate) fn to_free(address: CUdeviceptr) -> Answer<Arc<Self>> {
        let known = KNOWN.lock().get(&address).and_then(Weak::upgrade);
        let allocation = known.ok_or(CUresult::INVALID_VALUE)?;
        if allocation.has_free_node.swap(true, Ordering::AcqRel) {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(allocation)
    }

    pub(crate) fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// The device it is on.
    pub(crate) fn ordinal(&self) -> c_int {
        self.device.ordinal
    }

    fn charge(&self) -> u64 {
        layout::round_up(self.bytes, layout::DEVICE_PAGE).unwrap_or(self.bytes)
    }

    /// True while memory is behind the address.
    pub(crate) fn is_live(&self) -> bool {
        POOLS.lock().get(&self.device.ordinal).is_some_and(|pool| pool.live.contains_key(&self.address))
    }

    /// Puts memory behind the address; 2 when the device has none.
    pub(crate) fn occupy(self: &Arc<Self>) -> Answer {
        let mut pools = POOLS.lock();
        let pool = pools.entry(self.device.ordinal).or_default();
        let used = pool.used + self.charge();
        if used > pool.reserved {
            self.device.take(used - pool.reserved)?;
            pool.reserved = used;
            pool.reserved_high = pool.reserved_high.max(used);
        }
        pool.used = used;
        pool.used_high = pool.used_high.max(used);
        pool.live.insert(self.address, Arc::clone(self));
        Ok(())
    }

    /// Gives the memory back to the pool.
    pub(crate) fn release(&self) {
        let mut pools = POOLS.lock();
        let pool = pools.entry(self.device.ordinal).or_default();
        let released = pool.live.remove(&self.address);
        if released.is_some() {
            pool.used -= self.charge();
        }
        drop(pools);
        // The last reference may be this one, whose end takes other locks.
        drop(released);
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        KNOWN.lock().remove(&self.address);
        memory::remove(self.address, |block| matches!(block.kind, Kind::Graph));
    }
}

/// What `cuMemFree` and `cuMemFreeAsync` may free: memory that a launch left, and that no graph frees.
fn to_free_outside(address: CUdeviceptr) -> Answer<Arc<Allocation>> {
    let live = POOLS.lock().values().find_map(|pool| pool.live.get(&address).cloned());
    let allocation = live.ok_or(CUresult::INVALID_VALUE)?;
    if allocation.has_free_node.load(Ordering::Acquire) { Err(CUresult::INVALID_VALUE) } else { Ok(allocation) }
}

/// `cuMemFree` of graph memory; its caller has waited for the device.
pub(crate) fn free_now(address: CUdeviceptr) -> Answer {
    to_free_outside(address)?.release();
    Ok(())
}

/// `cuMemFreeAsync` of graph memory.
pub(crate) fn free_in(address: CUdeviceptr, stream: &Arc<Stream>) -> Answer {
    let allocation = to_free_outside(address)?;
    stream.run(move || allocation.release());
    Ok(())
}

/// What a launch does to graph memory: all of it, or nothing when some doesn't fit.
///
/// `payloads` come in the order of the launch. Memory that an earlier launch left is an error, unless the
/// graph was instantiated to free it.
pub(crate) fn launch<'a>(payloads: impl Iterator<Item = &'a Payload> + Clone, frees_first: bool) -> Answer {
    for payload in payloads.clone() {
        if let Payload::Allocation(allocation) = payload
            && allocation.is_live()
        {
            if !frees_first {
                return Err(CUresult::INVALID_VALUE);
            }
            allocation.release();
        }
    }
    let mut occupied: Vec<&Arc<Allocation>> = Vec::new();
    for payload in payloads {
        match payload {
            Payload::Allocation(allocation) => {
                if let Err(error) = allocation.occupy() {
                    occupied.iter().for_each(|taken| taken.release());
                    return Err(error);
                }
                occupied.push(allocation);
            }
            Payload::Free(allocation) if !allocation.is_live() => {
                occupied.iter().for_each(|taken| taken.release());
                return Err(CUresult::INVALID_VALUE);
            }
            Payload::Free(allocation) => allocation.release(),
            _ => {}
        }
    }
    Ok(())
}

/// Reserves what a launch will need.
pub(crate) fn upload<'a>(payloads: impl Iterator<Item = &'a Payload>) -> Answer {
    let mut occupied = Vec::new();
    let mut answer = Ok(());
    for payload in payloads {
        match payload {
            Payload::Allocation(allocation) if answer.is_ok() && !allocation.is_live() => {
                answer = allocation.occupy();
                occupied.push(allocation);
            }
            Payload::Free(allocation) if occupied.iter().any(|taken| Arc::ptr_eq(taken, allocation)) => {
                allocation.release();
            }
            _ => {}
        }
    }
    occupied.iter().for_each(|taken| taken.release());
    answer
}

const USED: CUgraphMem_attribute = 0;
const USED_HIGH: CUgraphMem_attribute = 1;
const RESERVED: CUgraphMem_attribute = 2;
const RESERVED_HIGH: CUgraphMem_attribute = 3;

pub(crate) fn cuDeviceGetGraphMemAttribute(
    _: &Call,
    device: CUdevice,
    attribute: CUgraphMem_attribute,
    value: *mut c_void,
) -> Answer {
    let device = state::device(device)?;
    let mut pools = POOLS.lock();
    let pool = pools.entry(device.ordinal).or_default();
    let number = match attribute {
        USED => pool.used,
        USED_HIGH => pool.used_high,
        RESERVED => pool.reserved,
        RESERVED_HIGH => pool.reserved_high,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    put(value.cast::<u64>(), number)
}

/// The high marks can be set back to the present values, by writing 0.
pub(crate) fn cuDeviceSetGraphMemAttribute(
    _: &Call,
    device: CUdevice,
    attribute: CUgraphMem_attribute,
    value: *mut c_void,
) -> Answer {
    let device = state::device(device)?;
    if get(value.cast::<u64>())? != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut pools = POOLS.lock();
    let pool = pools.entry(device.ordinal).or_default();
    match attribute {
        USED_HIGH => pool.used_high = pool.used,
        RESERVED_HIGH => pool.reserved_high = pool.reserved,
        _ => return Err(CUresult::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) fn cuDeviceGraphMemTrim(_: &Call, device: CUdevice) -> Answer {
    let device = state::device(device)?;
    capture::forbid_unsafe_call()?;
    let mut pools = POOLS.lock();
    let pool = pools.entry(device.ordinal).or_default();
    device.give(pool.reserved - pool.used);
    pool.reserved = pool.used;
    Ok(())
}
