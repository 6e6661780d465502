//! Memory pools: device memory in large steps, handed out in stream order.
//!
//! A pool takes 32 MiB at a time, or what a large request needs, and gives back at a synchronisation what
//! exceeds its threshold. Freed memory counts as used until the host has seen the stream pass the free.

pub(crate) mod allocate;
pub(crate) mod attributes;
pub(crate) mod choose;
pub(crate) mod share;

use crate::args::Answer;
use crate::context::Context;
use crate::memory::{self, Kind, Placement};
use crate::registry::Registry;
use crate::state::{Device, driver};
use crate::stream::{Mark, Stream};
use driver_api::layout::{BLOCK_UNIT, DEVICE_PAGE, POOL_GROWTH, round_up};
use driver_api::{CUmemPoolProps, CUresult};
use parking_lot::Mutex;
use share::Region;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

pub(crate) static POOLS: Registry<Pool> = Registry::new();

/// Pools that are destroyed while something is allocated from them: they go with the last of it.
pub(crate) static DYING: Mutex<Vec<Arc<Pool>>> = Mutex::new(Vec::new());

/// The pools that a device has.
#[derive(Default)]
pub(crate) struct DevicePools {
    default: OnceLock<Arc<Pool>>,
    current: Mutex<Option<Arc<Pool>>>,
}

/// One pool.
pub(crate) struct Pool {
    pub(crate) device: &'static Device,
    handle_types: i32,
    /// 0 for no maximum.
    max_size: u64,
    is_default: bool,
    /// Shared memory, for a pool that can be exported or was imported.
    region: Option<Region>,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
    threshold: u64,
    /// `REUSE_FOLLOW_EVENT_DEPENDENCIES` and its like; kept for who asks.
    reuse: [i32; 3],
    /// Blocks that were freed in a stream, by address.
    freed: BTreeMap<u64, Freed>,
    /// Access of other devices.
    access: BTreeMap<i32, i32>,
}

struct Freed {
    stream: u64,
    mark: Mark,
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.device.give(self.state.get_mut().reserved);
    }
}

impl Pool {
    fn new(device: &'static Device, props: Option<&CUmemPoolProps>) -> Answer<Arc<Self>> {
        let handle_types = props.map_or(0, |props| props.handleTypes);
        let region = if handle_types == 0 { None } else { Some(Region::new(device)?) };
        Ok(Arc::new(Self {
            device,
            handle_types,
            max_size: props.map_or(0, |props| props.maxSize as u64),
            is_default: props.is_none(),
            region,
            state: Mutex::new(PoolState { reuse: [1; 3], ..PoolState::default() }),
        }))
    }

    /// The device's own pool.
    fn default_of(device: &'static Device) -> Answer<Arc<Self>> {
        if let Some(pool) = device.pools.default.get() {
            return Ok(Arc::clone(pool));
        }
        let pool = Self::new(device, None)?;
        let first = device.pools.default.get_or_init(|| pool);
        POOLS.insert(Arc::clone(first));
        Ok(Arc::clone(first))
    }

    /// The pool that the device's allocations come from.
    pub(crate) fn current_of(device: &'static Device) -> Answer<Arc<Self>> {
        let current = device.pools.current.lock().clone();
        current.map_or_else(|| Self::default_of(device), Ok)
    }

    /// Takes a block for `stream`.
    fn allocate(self: &Arc<Self>, context: &Arc<Context>, size: u64, stream: &Arc<Stream>) -> Answer<u64> {
        if self.region.as_ref().is_some_and(Region::is_imported) || size == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let bytes = round_up(size, BLOCK_UNIT).ok_or(CUresult::OUT_OF_MEMORY)?;
        let mut state = self.state.lock();
        self.settle(&mut state, Some(stream));
        self.grow(&mut state, bytes)?;
        let kind = Kind::Pool(Arc::clone(self));
        let address = match &self.region {
            None => memory::allocate_on(self.device, Some(context), size, kind, Placement::Any)?,
            Some(region) => {
                let address = region.take(bytes).ok_or(CUresult::OUT_OF_MEMORY)?;
                memory::adopt(address, size, kind, Some(context), self.device);
                address
            }
        };
        state.used += bytes;
        state.used_high = state.used_high.max(state.used);
        Ok(address)
    }

    /// Makes sure that `bytes` more fit into what the pool has reserved.
    fn grow(&self, state: &mut PoolState, bytes: u64) -> Answer {
        let wanted = state.used.checked_add(bytes).ok_or(CUresult::OUT_OF_MEMORY)?;
        if wanted <= state.reserved {
            return Ok(());
        }
        let missing = wanted - state.reserved;
        let room = if self.max_size == 0 { u64::MAX } else { self.max_size.saturating_sub(state.reserved) };
        // A device too full for a whole step may still have room for the request.
        for unit in [POOL_GROWTH, DEVICE_PAGE] {
            let step = round_up(missing, unit).filter(|&step| step <= room);
            if let Some(step) = step.filter(|&step| self.device.take(step).is_ok()) {
                state.reserved += step;
                state.reserved_high = state.reserved_high.max(state.reserved);
                return Ok(());
            }
        }
        Err(CUresult::OUT_OF_MEMORY)
    }

    /// Ends the blocks whose stream has passed their free, or whose stream asks for memory again.
    fn settle(&self, state: &mut PoolState, asking: Option<&Arc<Stream>>) {
        let again = |freed: &Freed| asking.is_some_and(|stream| stream.id == freed.stream && stream.is_direct());
        let done = state.freed.iter().filter(|(_, freed)| again(freed) || freed.mark.is_done());
        let done: Vec<u64> = done.map(|(&address, _)| address).collect();
        for address in done {
            state.freed.remove(&address);
            self.end(state, address);
        }
    }

    fn end(&self, state: &mut PoolState, address: u64) {
        if let Some(block) = memory::remove(address, |block| self.owns(&block.kind)) {
            let bytes = round_up(block.size, BLOCK_UNIT).unwrap_or(0);
            if let Some(region) = &self.region {
                region.give(address, bytes);
            }
            if !self.region.as_ref().is_some_and(Region::is_imported) {
                state.used -= bytes;
            }
        }
    }

    fn owns(&self, kind: &Kind) -> bool {
        matches!(kind, Kind::Pool(owner) if core::ptr::eq(Arc::as_ptr(owner), self))
    }

    /// `CUmemAllocationHandleType` bits that it can be exported as.
    pub(crate) fn handle_types(&self) -> i32 {
        self.handle_types
    }

    /// True when the pool's blocks lie in memory that it shares.
    pub(crate) fn is_shared(&self) -> bool {
        self.region.is_some()
    }

    /// Frees a block in the order of `stream`.
    fn free_in(&self, address: u64, stream: &Arc<Stream>) -> Answer {
        let mut state = self.state.lock();
        if state.freed.contains_key(&address) {
            return Err(CUresult::INVALID_VALUE);
        }
        state.freed.insert(address, Freed { stream: stream.id, mark: stream.mark() });
        Ok(())
    }

    /// Frees a block now that its context is idle, as `cuMemFree` does.
    pub(crate) fn free_now(&self, address: u64) -> Answer {
        let mut state = self.state.lock();
        if state.freed.contains_key(&address) {
            return Err(CUresult::INVALID_VALUE);
        }
        self.end(&mut state, address);
        self.release(&mut state, None);
        Ok(())
    }

    /// Gives unused memory back, down to `keep` bytes or else the threshold.
    fn release(&self, state: &mut PoolState, keep: Option<u64>) {
        self.settle(state, None);
        let least = round_up(keep.unwrap_or(state.threshold), DEVICE_PAGE).unwrap_or(u64::MAX);
        let used = round_up(state.used, POOL_GROWTH).unwrap_or(u64::MAX);
        let kept = least.max(used).min(state.reserved);
        self.device.give(state.reserved - kept);
        state.reserved = kept;
    }

    /// Ends what a primary context leaves in the pool when it is reset.
    fn forget(&self, context: &Context) {
        let mut state = self.state.lock();
        let addresses = memory::addresses(|block| {
            self.owns(&block.kind) && block.context.as_ref().is_some_and(|owner| owner.id == context.id)
        });
        for address in addresses {
            state.freed.remove(&address);
            self.end(&mut state, address);
        }
        self.release(&mut state, Some(0));
    }
}

/// The host has waited for work of a device (by the machine's number): its pools give back what they can.
pub(crate) fn synchronised(physical: usize) {
    let Some(device) = driver().devices().iter().find(|device| device.physical == physical) else { return };
    for pool in POOLS.all().iter().filter(|pool| pool.device.physical == device.physical) {
        pool.release(&mut pool.state.lock(), None);
    }
    bury(|pool| {
        if pool.device.physical == device.physical {
            pool.release(&mut pool.state.lock(), Some(0));
        }
    });
}

/// Has `act` do something to each pool that is destroyed, and lets go of those from which nothing is allocated.
fn bury(act: impl Fn(&Pool)) {
    let dying = std::mem::take(&mut *DYING.lock());
    dying.iter().for_each(|pool| act(pool));
    let left: Vec<Arc<Pool>> = dying.into_iter().filter(|pool| pool.state.lock().used > 0).collect();
    DYING.lock().extend(left);
}

/// A primary context ends, and with it what it had from the device's pools.
pub(crate) fn primary_closes(context: &Arc<Context>) {
    for pool in POOLS.all().iter().filter(|pool| pool.device.physical == context.device.physical) {
        pool.forget(context);
    }
    bury(|pool| {
        if pool.device.physical == context.device.physical {
            pool.forget(context);
        }
    });
}
