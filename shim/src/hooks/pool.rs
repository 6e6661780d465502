//! Stream-ordered memory: what is charged is what the pools hold.
#![allow(non_snake_case)]

use super::Answer;
use crate::account::{self, Account};
use crate::args::{In, Out};
use crate::calls;
use crate::entry::{Lane, Next};
use crate::flight::Flight;
use crate::movable;
use crate::overhead;
use crate::pools::{self, Source};
use core::ffi::c_void;
use driver_api::layout::SMALL_BLOCK_MAX;
use driver_api::{CUdeviceptr, CUmemLocation, CUmemPoolProps, CUmemoryPool, CUstream};
use quota_core::ledger::Units;

pub(crate) fn cuMemAllocAsync(next: Next<'_>, dptr: Out<CUdeviceptr>, bytesize: usize, hStream: CUstream) -> Answer {
    let device = calls::context_of_stream(hStream).and_then(calls::device_of_context);
    let (1.., Some(device)) = (bytesize, device) else { return next.call() };
    let (Some(account), Ok(pool)) = (account::of_device(device)?, calls::current_pool(device)) else {
        return next.call();
    };
    // A pool stays where it is. Of one that the program has chosen it may use more than memory.
    let is_default = || calls::default_pool(device) == Ok(pool) && calls::current_device() == Some(device);
    if movable::is_wanted_by(&account)
        && bytesize as u64 > SMALL_BLOCK_MAX
        && is_default()
        && !calls::is_capturing(hStream, next.lane == Lane::PerThread)
        && let Some(context) = calls::current_context()
    {
        return movable::allocate_in_order(account, context, bytesize as u64, dptr);
    }
    allocate(next, dptr, bytesize, hStream, account, pool)
}

pub(crate) fn cuMemAllocFromPoolAsync(
    next: Next<'_>,
    dptr: Out<CUdeviceptr>,
    bytesize: usize,
    pool: CUmemoryPool,
    hStream: CUstream,
) -> Answer {
    // A pool that the program didn't make through us (a default pool, an import) is looked up by its device.
    let pool = pool as usize;
    let device = pools::device_of(pool).or_else(|| pools::find_default(pool));
    let (1.., Some(device)) = (bytesize, device) else { return next.call() };
    let Some(account) = account::of_member_device(device) else { return next.call() };
    allocate(next, dptr, bytesize, hStream, account, pool)
}

fn allocate(
    next: Next<'_>,
    dptr: Out<CUdeviceptr>,
    bytes: usize,
    stream: CUstream,
    account: Account,
    pool: usize,
) -> Answer {
    let _flight = Flight::enter();
    // Without a living context, or into a stream that isn't there, it is the driver's to refuse.
    if calls::current_device().is_none() || calls::context_of_stream(stream).is_none() {
        return next.call();
    }
    let per_thread = next.lane == Lane::PerThread;
    // A captured allocation takes no memory: it becomes a node of the graph.
    if calls::is_capturing(stream, per_thread) {
        return next.call();
    }
    let held = pools::reserve(account, Source::Pool(pool), bytes as u64)?;
    if let Err(refusal) = next.call_for(&account, bytes as u64) {
        // The pool may have grown before the driver found that it can't do it.
        pools::settle_forced(Source::Pool(pool), held);
        return Err(refusal);
    }
    pools::settle(Source::Pool(pool), held).or_else(|refusal| {
        let undone = calls::free_async(dptr.get(), stream, per_thread);
        let _ = calls::trim_pool(pool);
        // What its stream has not let go yet is held, and so is what could not be freed: that is the program's.
        pools::settle_forced(Source::Pool(pool), account.force(Units::ZERO));
        pools::mark_stale();
        if undone.is_ok() { Err(refusal) } else { Ok(()) }
    })
}

pub(crate) fn cuMemPoolCreate(next: Next<'_>, pool: Out<CUmemoryPool>, poolProps: In<CUmemPoolProps>) -> Answer {
    next.call()?;
    let location = poolProps.get().location;
    pools::remember(Source::Pool(pool.get() as usize), charged_device(location));
    Ok(())
}

/// The member's number of the device that a location lies on; `None` for host memory.
fn charged_device(location: CUmemLocation) -> Option<usize> {
    let device = super::vmm::device_of_location(location)?;
    account::of_device(device).ok().flatten().map(|account| account.device())
}

pub(crate) fn cuMemPoolDestroy(next: Next<'_>, pool: CUmemoryPool) -> Answer {
    let _flight = Flight::enter();
    overhead::know_slack();
    // Out of the books first: once the driver has destroyed it, another thread may get the same handle for another one.
    let ending = pools::ending(pool as usize);
    let answer = next.call();
    if answer.is_ok() {
        ending.gone();
    } else {
        ending.undo();
    }
    answer
}

pub(crate) fn cuMemPoolTrimTo(next: Next<'_>, _pool: CUmemoryPool, _minBytesToKeep: usize) -> Answer {
    next.call()?;
    pools::resample_all();
    Ok(())
}

pub(crate) fn cuMemPoolSetAttribute(next: Next<'_>, _pool: CUmemoryPool, _attr: i32, _value: *mut c_void) -> Answer {
    next.call()?;
    // A lower release threshold acts at the next synchronisation.
    pools::mark_stale();
    Ok(())
}

/// The pool is another process's, which is charged for it.
pub(crate) fn cuMemPoolImportFromShareableHandle(
    next: Next<'_>,
    pool_out: Out<CUmemoryPool>,
    _handle: *mut c_void,
    _handleType: i32,
    _flags: u64,
) -> Answer {
    next.call()?;
    pools::remember(Source::Pool(pool_out.get() as usize), None);
    Ok(())
}
