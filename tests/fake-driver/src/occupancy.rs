//! Occupancy: how many blocks of a kernel a multiprocessor holds, by threads, registers and shared memory.

mod callback;

use crate::args::{Answer, get, put};
use crate::device::attributes::value as device_attribute;
use crate::entry::Call;
use crate::launch::extended::{attributes, check_cluster, cluster, shape};
use crate::launch::multiprocessors;
use crate::module::function::{self, Function};
use core::ffi::{c_int, c_uint};
use driver_api::{CUfunction, CUlaunchConfig, CUoccupancyB2DSize, CUresult};

const WARP: u64 = 32;
/// Registers are given to warps in units of this.
const REGISTER_UNIT: u64 = 256;
/// Shared memory that the system takes of each block, on devices since Ampere.
const SYSTEM_SHARED_BYTES: u64 = 1024;
/// `CU_DEVICE_ATTRIBUTE_*`
const REGISTERS_PER_MULTIPROCESSOR: c_int = 82;
const SHARED_PER_MULTIPROCESSOR: c_int = 81;
const THREADS_PER_MULTIPROCESSOR: c_int = 39;
const BLOCKS_PER_MULTIPROCESSOR: c_int = 106;
/// Blocks of a cluster that every device with clusters allows.
const CLUSTER_BLOCKS: u64 = 8;

/// How many blocks of `threads` threads and `dynamic_bytes` of dynamic shared memory fit at once.
pub(crate) fn blocks_per_multiprocessor(function: &Function, threads: u64, dynamic_bytes: u64) -> Answer<u64> {
    let device = function.context()?.device;
    let most = |attribute| device_attribute(device, attribute).map(|value| u64::try_from(value).unwrap_or(0));
    if threads == 0 || threads > 1024 {
        return Err(CUresult::INVALID_VALUE);
    }
    let warps = threads.div_ceil(WARP);
    let warp_registers = (u64::from(function.facts.registers) * WARP).next_multiple_of(REGISTER_UNIT).max(1);
    let system = if device.spec().compute_capability.0 >= 8 { SYSTEM_SHARED_BYTES } else { 0 };
    let shared = u64::from(function.facts.shared_bytes) + dynamic_bytes + system;
    let by_threads = most(THREADS_PER_MULTIPROCESSOR)? / (warps * WARP);
    let by_registers = most(REGISTERS_PER_MULTIPROCESSOR)? / warp_registers / warps;
    let by_shared = most(SHARED_PER_MULTIPROCESSOR)?.checked_div(shared).unwrap_or(u64::MAX);
    Ok(by_threads.min(by_registers).min(by_shared).min(most(BLOCKS_PER_MULTIPROCESSOR)?))
}

/// The same for arguments of a call, whose sizes are signed.
fn blocks(function: &Function, threads: c_int, dynamic_bytes: usize) -> Answer<u64> {
    let threads = u64::try_from(threads).map_err(|_| CUresult::INVALID_VALUE)?;
    blocks_per_multiprocessor(function, threads, dynamic_bytes as u64)
}

pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    call: &Call,
    count: *mut c_int,
    function: CUfunction,
    threads: c_int,
    dynamic_bytes: usize,
) -> Answer {
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(call, count, function, threads, dynamic_bytes, 0)
}

pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    _: &Call,
    count: *mut c_int,
    function: CUfunction,
    threads: c_int,
    dynamic_bytes: usize,
    flags: c_uint,
) -> Answer {
    let function = function::find(function)?;
    if flags > 1 {
        return Err(CUresult::INVALID_VALUE);
    }
    put(count, c_int::try_from(blocks(&function, threads, dynamic_bytes)?).unwrap_or(c_int::MAX))
}

pub(crate) fn cuOccupancyMaxPotentialBlockSize(
    call: &Call,
    grid: *mut c_int,
    block: *mut c_int,
    function: CUfunction,
    dynamic: CUoccupancyB2DSize,
    dynamic_bytes: usize,
    limit: c_int,
) -> Answer {
    cuOccupancyMaxPotentialBlockSizeWithFlags(call, grid, block, function, dynamic, dynamic_bytes, limit, 0)
}

/// The block size with the most threads at once; of equals, the largest.
#[allow(clippy::too_many_arguments)] // The API has that many.
pub(crate) fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    _: &Call,
    grid: *mut c_int,
    block: *mut c_int,
    function: CUfunction,
    dynamic: CUoccupancyB2DSize,
    dynamic_bytes: usize,
    limit: c_int,
    flags: c_uint,
) -> Answer {
    let function = function::find(function)?;
    if flags > 1 || limit < 0 || grid.is_null() || block.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let most = i64::from(function.facts.max_threads);
    let most = if limit == 0 { most } else { most.min(i64::from(limit)) };
    let mut best = (0, 0, 0);
    let sizes = (1..=most / 32).rev().map(|warps| warps * 32).chain((most < 32).then_some(most));
    for threads in sizes {
        let threads = c_int::try_from(threads).unwrap_or(0);
        let bytes = callback::dynamic_bytes(dynamic, threads).unwrap_or(dynamic_bytes);
        let resident = blocks(&function, threads, bytes)?;
        let active = resident * u64::from(threads.unsigned_abs());
        if active > best.0 {
            best = (active, threads, resident);
        }
    }
    put(block, best.1)?;
    put(grid, c_int::try_from(best.2 * multiprocessors(&function)?).unwrap_or(c_int::MAX))
}

pub(crate) fn cuOccupancyAvailableDynamicSMemPerBlock(
    _: &Call,
    bytes: *mut usize,
    function: CUfunction,
    count: c_int,
    threads: c_int,
) -> Answer {
    let function = function::find(function)?;
    let device = function.context()?.device;
    let count = u64::try_from(count).ok().filter(|count| *count > 0).ok_or(CUresult::INVALID_VALUE)?;
    if count > blocks(&function, threads, 0)? {
        return Err(CUresult::INVALID_VALUE);
    }
    let system = if device.spec().compute_capability.0 >= 8 { SYSTEM_SHARED_BYTES } else { 0 };
    let all = u64::try_from(device_attribute(device, SHARED_PER_MULTIPROCESSOR)?).unwrap_or(0);
    let each = (all / count).saturating_sub(system + u64::from(function.facts.shared_bytes));
    let most = function.settings.dynamic_shared_max.load(core::sync::atomic::Ordering::Relaxed);
    put(bytes, usize::try_from(each.min(u64::from(most))).unwrap_or(0))
}

/// Clusters exist since Hopper.
fn check_clusters(function: &Function) -> Answer {
    let has_clusters = function.context()?.device.spec().compute_capability.0 >= 9;
    if has_clusters { Ok(()) } else { Err(CUresult::NOT_SUPPORTED) }
}

pub(crate) fn cuOccupancyMaxPotentialClusterSize(
    _: &Call,
    size: *mut c_int,
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> Answer {
    let function = function::find(function)?;
    get(config)?;
    check_clusters(&function)?;
    put(size, c_int::try_from(CLUSTER_BLOCKS).unwrap_or(0))
}

pub(crate) fn cuOccupancyMaxActiveClusters(
    _: &Call,
    count: *mut c_int,
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> Answer {
    let function = function::find(function)?;
    let config = get(config)?;
    check_clusters(&function)?;
    let (shape, cluster) = (shape(&config), cluster(attributes(&config)?));
    check_cluster(&shape, cluster)?;
    let each: u64 = cluster.iter().map(|side| u64::from(*side)).product();
    let resident = blocks_per_multiprocessor(&function, shape.threads(), u64::from(shape.shared_bytes))?;
    put(count, c_int::try_from(resident * multiprocessors(&function)? / each).unwrap_or(c_int::MAX))
}
