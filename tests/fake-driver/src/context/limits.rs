//! `cuCtxGetLimit` and `cuCtxSetLimit`; some limits are device memory.

use super::Context;
use crate::args::{Answer, put};
use crate::device::attributes::{self, MAX_THREADS_PER_MULTIPROCESSOR};
use crate::entry::Call;
use crate::state::{self, Device};
use core::sync::atomic::Ordering;
use driver_api::{CUlimit, CUresult};

/// Local memory of a thread that a context has room for from the beginning, `STACK_SIZE`'s default.
pub(super) const LOCAL_BYTES_DEFAULT: u64 = DEFAULTS[0];

const STACK_SIZE: CUlimit = 0;
const PRINTF_FIFO_SIZE: CUlimit = 1;
const MALLOC_HEAP_SIZE: CUlimit = 2;
const DEV_RUNTIME_SYNC_DEPTH: CUlimit = 3;
const DEV_RUNTIME_PENDING_LAUNCH_COUNT: CUlimit = 4;
const MAX_L2_FETCH_GRANULARITY: CUlimit = 5;
const PERSISTING_L2_CACHE_SIZE: CUlimit = 6;
/// `CU_LIMIT_MAX` of CUDA 13.5.
const LIMIT_MAX: CUlimit = 11;
/// What the driver itself needs of a thread's stack.
const STACK_OVERHEAD: u64 = 512;
const STACK_SIZE_MAX: u64 = 512 << 10;
/// The first capability without the device runtime's synchronisation.
const NO_SYNC_DEPTH_SINCE: u32 = 9;

const DEFAULTS: [u64; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];

/// The limits of a context.
pub(crate) struct Limits {
    values: [u64; DEFAULTS.len()],
    /// Device memory taken for more than the defaults, which are part of what a context costs.
    charged: [u64; DEFAULTS.len()],
    /// The most local memory of a thread that a kernel needed.
    local_bytes: u64,
}

impl Limits {
    pub(super) fn new() -> Self {
        Self { values: DEFAULTS, charged: [0; DEFAULTS.len()], local_bytes: 0 }
    }

    pub(super) fn charged(&self) -> u64 {
        self.charged.iter().sum()
    }
}

/// Where the limit is kept, if this device has it.
fn place(limit: CUlimit, device: &Device) -> Answer<usize> {
    if !(0..LIMIT_MAX).contains(&limit) {
        return Err(CUresult::INVALID_VALUE);
    }
    let lacks_depth = limit == DEV_RUNTIME_SYNC_DEPTH && device.spec().compute_capability.0 >= NO_SYNC_DEPTH_SINCE;
    let place = usize::try_from(limit).map_err(|_| CUresult::INVALID_VALUE)?;
    if place >= DEFAULTS.len() || lacks_depth { Err(CUresult::UNSUPPORTED_LIMIT) } else { Ok(place) }
}

/// Device memory that a limit stands for.
fn memory(limit: CUlimit, value: u64, device: &Device) -> u64 {
    match limit {
        STACK_SIZE => {
            let threads = attributes::value(device, MAX_THREADS_PER_MULTIPROCESSOR).unwrap_or(0);
            let resident = u64::from(device.spec().sm_count) * u64::try_from(threads).unwrap_or(0);
            (value + STACK_OVERHEAD).next_multiple_of(STACK_OVERHEAD / 4) * resident
        }
        PRINTF_FIFO_SIZE | MALLOC_HEAP_SIZE => value,
        _ => 0,
    }
}

/// The value as the driver keeps it.
fn rounded(limit: CUlimit, value: u64, device: &Device) -> Answer<u64> {
    match limit {
        STACK_SIZE if value > STACK_SIZE_MAX => Err(CUresult::INVALID_VALUE),
        STACK_SIZE => Ok(value.next_multiple_of(16)),
        MALLOC_HEAP_SIZE | PRINTF_FIFO_SIZE if value > device.total_bytes() => Err(CUresult::OUT_OF_MEMORY),
        DEV_RUNTIME_SYNC_DEPTH if value > 24 => Err(CUresult::INVALID_VALUE),
        DEV_RUNTIME_PENDING_LAUNCH_COUNT if value > 1 << 24 => Err(CUresult::INVALID_VALUE),
        MAX_L2_FETCH_GRANULARITY if value > 128 => Err(CUresult::INVALID_VALUE),
        PERSISTING_L2_CACHE_SIZE => {
            let most = attributes::value(device, attributes::MAX_PERSISTING_L2_CACHE_SIZE).unwrap_or(0);
            Ok(value.min(u64::try_from(most).unwrap_or(0)))
        }
        _ => Ok(value),
    }
}

impl Context {
    fn set_limit(&self, limit: CUlimit, value: u64) -> Answer {
        let place = place(limit, self.device)?;
        let value = rounded(limit, value, self.device)?;
        let mut limits = self.limits.lock();
        // What kernels have needed stays, however small the stack becomes.
        let room = if limit == STACK_SIZE { value.max(limits.local_bytes) } else { value };
        self.charge(&mut limits, limit, room)?;
        limits.values[place] = value;
        Ok(())
    }

    /// Takes or gives back device memory, so that it is enough for a value of the limit.
    fn charge(&self, limits: &mut Limits, limit: CUlimit, value: u64) -> Answer {
        let place = place(limit, self.device)?;
        let default = memory(limit, DEFAULTS[place], self.device);
        let wanted = memory(limit, value, self.device).saturating_sub(default);
        let charged = limits.charged[place];
        if wanted > charged {
            self.device.take(wanted - charged)?;
        } else {
            self.device.give(charged - wanted);
        }
        limits.charged[place] = wanted;
        if limit == STACK_SIZE {
            // Under the lock. Launches look at it without one: a smaller value than is true only makes them ask.
            self.local_room.store(value, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes room for the local memory of a kernel's threads, as a launch does; it stays until the context ends.
    #[inline]
    pub(crate) fn fit_local(&self, bytes: u32) -> Answer {
        if u64::from(bytes) <= self.local_room.load(Ordering::Relaxed) { Ok(()) } else { self.grow_local(bytes.into()) }
    }

    #[cold]
    fn grow_local(&self, bytes: u64) -> Answer {
        if bytes > STACK_SIZE_MAX {
            return Err(crate::launch::OUT_OF_RESOURCES);
        }
        let mut limits = self.limits.lock();
        let room = bytes.max(limits.local_bytes).max(limits.values[0]);
        self.charge(&mut limits, STACK_SIZE, room)?;
        limits.local_bytes = limits.local_bytes.max(bytes);
        Ok(())
    }
}

pub(crate) fn cuCtxGetLimit(_: &Call, out: *mut usize, limit: CUlimit) -> Answer {
    let context = state::current()?;
    let place = place(limit, context.device)?;
    let value = context.limits.lock().values[place];
    put(out, usize::try_from(value).unwrap_or(usize::MAX))
}

pub(crate) fn cuCtxSetLimit(_: &Call, limit: CUlimit, value: usize) -> Answer {
    state::current()?.set_limit(limit, value as u64)
}
