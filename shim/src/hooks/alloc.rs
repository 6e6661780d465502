//! Linear, pitched and managed memory.
#![allow(non_snake_case)]

use super::Answer;
use crate::account::Account;
use crate::args::Out;
use crate::entry::Next;
use crate::flight::Flight;
use crate::{account, calls, live, movable, overhead};
use driver_api::layout::{DEVICE_PAGE, SMALL_BLOCK_MAX, round_up};
use driver_api::{CUdeviceptr, CUdeviceptr_v1};

/// Rows of a pitched allocation start at multiples of this on every device so far; a bound, settled to the driver's pitch.
const PITCH_BOUND: u64 = 512;

pub(crate) fn cuMemAlloc_v2(next: Next<'_>, dptr: Out<CUdeviceptr>, bytesize: usize) -> Answer {
    let moved = |account, context| movable::allocate(next, account, context, bytesize as u64, dptr);
    block(next, bytesize as u64, || dptr.get() as usize, moved)
}

/// What the first API can name lies low, where managed memory does not.
pub(crate) fn cuMemAlloc(next: Next<'_>, dptr: Out<CUdeviceptr_v1>, bytesize: u32) -> Answer {
    let stays = |account, context| allocate(next, account, context, u64::from(bytesize), || dptr.get() as usize);
    block(next, u64::from(bytesize), || dptr.get() as usize, stays)
}

/// A block as the driver makes it; of a dynamic quota, as `moved` does.
fn block(
    next: Next<'_>,
    bytes: u64,
    address: impl Fn() -> usize,
    moved: impl FnOnce(Account, usize) -> Answer,
) -> Answer {
    let _flight = Flight::enter();
    // Nothing asked, or no context: the driver's error.
    let (1.., Some(context)) = (bytes, calls::current_context()) else { return next.call() };
    let Some(account) = account::of_current_device()? else { return next.call() };
    if movable::is_wanted_by(&account) {
        return moved(account, context);
    }
    allocate(next, account, context, bytes, address)
}

fn allocate(next: Next<'_>, account: Account, context: usize, bytes: u64, address: impl Fn() -> usize) -> Answer {
    let pending = live::reserve_block(account, context, bytes)?;
    next.call_for(&account, bytes)?;
    pending.enter(address());
    Ok(())
}

pub(crate) fn cuMemAllocPitch_v2(
    next: Next<'_>,
    dptr: Out<CUdeviceptr>,
    pPitch: Out<usize>,
    WidthInBytes: usize,
    Height: usize,
    ElementSizeBytes: u32,
) -> Answer {
    let (width, height) = (WidthInBytes as u64, Height as u64);
    let pitch = round_up(width, PITCH_BOUND).unwrap_or(u64::MAX);
    let bytes = pitch.saturating_mul(height);
    let moved = |account, context| {
        movable::allocate(next, account, context, bytes, dptr)?;
        pPitch.set(pitch as usize);
        Ok(())
    };
    // Small ones have the driver's own pitch, and what it finds wrong it says itself.
    let may_move = bytes > SMALL_BLOCK_MAX && matches!(ElementSizeBytes, 4 | 8 | 16);
    pitched(next, width, height, || (dptr.get(), pPitch.get() as u64), may_move.then_some(moved))
}

pub(crate) fn cuMemAllocPitch(
    next: Next<'_>,
    dptr: Out<CUdeviceptr_v1>,
    pPitch: Out<u32>,
    WidthInBytes: u32,
    Height: u32,
    _ElementSizeBytes: u32,
) -> Answer {
    let stays = None::<fn(Account, usize) -> Answer>;
    let made = || (u64::from(dptr.get()), u64::from(pPitch.get()));
    pitched(next, u64::from(WidthInBytes), u64::from(Height), made, stays)
}

fn pitched(
    next: Next<'_>,
    width: u64,
    height: u64,
    made: impl Fn() -> (CUdeviceptr, u64),
    moved: Option<impl FnOnce(Account, usize) -> Answer>,
) -> Answer {
    let _flight = Flight::enter();
    let bound = round_up(width, PITCH_BOUND).and_then(|pitch| pitch.checked_mul(height)).unwrap_or(u64::MAX);
    let (1.., Some(context)) = (bound, calls::current_context()) else { return next.call() };
    let Some(account) = account::of_current_device()? else { return next.call() };
    if let Some(moved) = moved.filter(|_| movable::is_wanted_by(&account)) {
        return moved(account, context);
    }
    let pending = live::reserve_block(account, context, bound)?;
    next.call_for(&account, bound)?;
    let (pointer, pitch) = made();
    let bytes = pitch.saturating_mul(height);
    if bytes == bound {
        pending.enter(pointer as usize);
        return Ok(());
    }
    match pending.settle(account, bytes) {
        Ok(settled) => settled.enter(pointer as usize),
        Err(refusal) => {
            // The driver's pitch made it larger than the bound, and larger than what is left.
            if calls::free(pointer).is_ok() {
                return Err(refusal);
            }
            // It is the program's: charged as what is measured, and looked for when the program frees it.
            overhead::watch_frees();
            overhead::settle(account);
        }
    }
    Ok(())
}

/// Managed memory is charged in full, wherever its pages are: they may all come to the device.
pub(crate) fn cuMemAllocManaged(next: Next<'_>, dptr: Out<CUdeviceptr>, bytesize: usize, flags: u32) -> Answer {
    let _flight = Flight::enter();
    // Global or host, and nothing else: other flags are the driver's to refuse.
    if !matches!(flags, 1 | 2) {
        return next.call();
    }
    let (1.., Some(context)) = (bytesize, calls::current_context()) else { return next.call() };
    let Some(account) = account::of_current_device()? else { return next.call() };
    overhead::around_soft(account, || {
        let bytes = round_up(bytesize as u64, DEVICE_PAGE).unwrap_or(u64::MAX);
        let pending = live::reserve_soft(account, context, bytes)?;
        next.call()?;
        pending.enter(dptr.get() as usize);
        Ok(())
    })
}
