//! Allocation and free in the order of a stream.

use super::{POOLS, Pool};
use crate::args::{Answer, put};
use crate::capture;
use crate::entry::Call;
use crate::memory::{self, Kind};
use crate::state::{self, driver};
use crate::stream::{self, Stream};
use driver_api::{CUdeviceptr, CUmemoryPool, CUresult, CUstream};
use std::sync::Arc;

fn allocate(out: *mut CUdeviceptr, size: usize, stream: &Arc<Stream>, pool: &Arc<Pool>) -> Answer {
    let context = state::current()?;
    if out.is_null() || size == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    if let Some(address) = capture::record_allocation(stream, &context, size as u64)? {
        return put(out, address);
    }
    crate::vmm::reap();
    put(out, pool.allocate(&context, size as u64, stream)?)
}

pub(crate) fn cuMemAllocAsync(call: &Call, out: *mut CUdeviceptr, size: usize, stream: CUstream) -> Answer {
    let stream = stream::resolve(call, stream)?;
    let device = driver().devices().iter().find(|device| device.physical == stream.queue.device);
    let pool = Pool::current_of(device.ok_or(CUresult::INVALID_CONTEXT)?)?;
    allocate(out, size, &stream, &pool)
}

pub(crate) fn cuMemAllocFromPoolAsync(
    call: &Call,
    out: *mut CUdeviceptr,
    size: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Answer {
    let pool = POOLS.get(pool).map_err(|_| CUresult::INVALID_VALUE)?;
    allocate(out, size, &stream::resolve(call, stream)?, &pool)
}

pub(crate) fn cuMemFreeAsync(call: &Call, address: CUdeviceptr, stream: CUstream) -> Answer {
    let stream = stream::resolve(call, stream)?;
    if address == 0 {
        return Ok(());
    }
    if capture::record_free(&stream, address)? {
        return Ok(());
    }
    match memory::find(address) {
        Some((start, block)) if start == address => match block.kind {
            Kind::Pool(pool) => pool.free_in(address, &stream),
            Kind::Graph => crate::graph::memory::free_in(address, &stream),
            // Legal since pools exist; the documentation lets the driver assume what `cuMemFree` assumes.
            Kind::Linear | Kind::Managed(_) if block.is_freeable() => memory::linear::free(address),
            _ => Err(CUresult::INVALID_VALUE),
        },
        _ => Err(CUresult::INVALID_VALUE),
    }
}
