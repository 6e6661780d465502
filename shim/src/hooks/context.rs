//! Contexts cost memory, which is measured; their end gives it back, with their pointers and arrays (not pools, not
//! physical handles). Who has one takes part in the device's time.
#![allow(non_snake_case)]

use super::{Answer, Undone};
use crate::args::{Out, Raw};
use crate::entry::Next;
use crate::process::process;
use crate::{account, calls, live, overhead, pace};
use core::ffi::c_void;
use core::time::Duration;
use driver_api::{
    CUcontext, CUctxCreateParams, CUdevResourceDesc, CUdevice, CUexecAffinityParam, CUgreenCtx, VdpGetProcAddress,
};

/// Longest wait for another thread that makes a primary context.
const MAKING_WAIT_MAX: Duration = Duration::from_secs(2);

pub(crate) fn cuInit(next: Next<'_>, _flags: u32) -> Answer {
    next.call()
}

pub(crate) fn cuCtxCreate(next: Next<'_>, pctx: Out<CUcontext>, _flags: u32, dev: CUdevice) -> Answer {
    create(next, pctx, dev)
}

pub(crate) fn cuCtxCreate_v2(next: Next<'_>, pctx: Out<CUcontext>, _flags: u32, dev: CUdevice) -> Answer {
    create(next, pctx, dev)
}

pub(crate) fn cuCtxCreate_v3(
    next: Next<'_>,
    pctx: Out<CUcontext>,
    _paramsArray: Raw<CUexecAffinityParam>,
    _numParams: i32,
    _flags: u32,
    dev: CUdevice,
) -> Answer {
    create(next, pctx, dev)
}

pub(crate) fn cuCtxCreate_v4(
    next: Next<'_>,
    pctx: Out<CUcontext>,
    _ctxCreateParams: Raw<CUctxCreateParams>,
    _flags: u32,
    dev: CUdevice,
) -> Answer {
    create(next, pctx, dev)
}

pub(crate) fn cuGLCtxCreate(next: Next<'_>, pCtx: Out<CUcontext>, _Flags: u32, device: CUdevice) -> Answer {
    create(next, pCtx, device)
}

pub(crate) fn cuGLCtxCreate_v2(next: Next<'_>, pCtx: Out<CUcontext>, _Flags: u32, device: CUdevice) -> Answer {
    create(next, pCtx, device)
}

pub(crate) fn cuVDPAUCtxCreate(
    next: Next<'_>,
    pCtx: Out<CUcontext>,
    _flags: u32,
    device: CUdevice,
    _vdpDevice: u32,
    _vdpGetProcAddress: Raw<VdpGetProcAddress>,
) -> Answer {
    create(next, pCtx, device)
}

pub(crate) fn cuVDPAUCtxCreate_v2(
    next: Next<'_>,
    pCtx: Out<CUcontext>,
    _flags: u32,
    device: CUdevice,
    _vdpDevice: u32,
    _vdpGetProcAddress: Raw<VdpGetProcAddress>,
) -> Answer {
    create(next, pCtx, device)
}

fn create(next: Next<'_>, context: Out<CUcontext>, device: CUdevice) -> Answer {
    made(next, context, device, |context| calls::destroy_context(context as usize))
}

/// Makes what costs a context; `undo` unmakes what the driver has put into `out`, which is then as it was.
fn made(next: Next<'_>, out: Out<*mut c_void>, device: CUdevice, undo: impl FnOnce(*mut c_void) -> Undone) -> Answer {
    // Where nothing can be charged, nothing can be allocated; but a program may see that for itself.
    let Ok(Some(account)) = account::of_device(device) else { return next.call() };
    let measured = overhead::before_context(account)?;
    let before = out.get();
    next.call()?;
    measured.settle_or(|| {
        undo(out.get())?;
        out.set(before);
        Ok(())
    })?;
    pace::attach(device);
    Ok(())
}

pub(crate) fn cuCtxDestroy_v2(next: Next<'_>, ctx: CUcontext) -> Answer {
    destroy(next, ctx)
}

pub(crate) fn cuCtxDestroy(next: Next<'_>, ctx: CUcontext) -> Answer {
    destroy(next, ctx)
}

fn destroy(next: Next<'_>, context: CUcontext) -> Answer {
    pace::context_going(context as usize);
    overhead::around_free(|| {
        let inside = live::context_ends(context as usize);
        let answer = next.call();
        if answer.is_ok() {
            inside.gone()
        } else {
            inside.undo()
        }
        answer
    })
}

/// Ends what may be a context; `credit`s what the books say was in it.
fn ending(next: Next<'_>, credit: impl FnOnce()) -> Answer {
    overhead::around_free(|| {
        next.call()?;
        credit();
        Ok(())
    })
}

/// The primary context of a device is gone; or, where nobody was seen to retain it, whichever the driver says.
fn primary_is_gone(device: CUdevice) {
    live::primary_is_gone(device);
    live::contexts_are(calls::is_gone);
}

/// Destroys the context when its last attachment goes; the driver then no longer knows it.
pub(crate) fn cuCtxDetach(next: Next<'_>, ctx: CUcontext) -> Answer {
    pace::context_going(ctx as usize);
    ending(next, || {
        if calls::device_of_context(ctx as usize).is_none() {
            live::context_is_gone(ctx as usize);
        }
    })
}

/// The first to retain the primary context makes it.
pub(crate) fn cuDevicePrimaryCtxRetain(next: Next<'_>, pctx: Out<CUcontext>, dev: CUdevice) -> Answer {
    retained(next, pctx, dev, |_| calls::release_primary(dev))?;
    live::primary_is(dev, pctx.get() as usize);
    Ok(())
}

/// Retains the primary context, for what is put into `out`; `undo` gives that back.
///
/// One that was reset is still retained by whoever did. It is there again then, and doesn't go when this is undone; so it is
/// reset again, unless another thread may have come to use it. Where the driver doesn't, its cost is measured and charged.
fn retained(
    next: Next<'_>,
    out: Out<*mut c_void>,
    device: CUdevice,
    undo: impl FnOnce(*mut c_void) -> Undone,
) -> Answer {
    // Of what is no device, the driver says so.
    let making = usize::try_from(device).ok().and_then(|device| process().making_primary.get(device));
    let alone = making.and_then(|making| making.try_lock_for(MAKING_WAIT_MAX));
    if calls::primary_is_active(device) {
        next.call()?;
        pace::attach(device);
        return Ok(());
    }
    made(next, out, device, |made| {
        undo(made)?;
        if alone.is_some() && calls::primary_is_active(device) {
            let _measured_if_not = calls::reset_primary(device);
        }
        Ok(())
    })
}

pub(crate) fn cuDevicePrimaryCtxRelease_v2(next: Next<'_>, dev: CUdevice) -> Answer {
    release_primary(next, dev)
}

pub(crate) fn cuDevicePrimaryCtxRelease(next: Next<'_>, dev: CUdevice) -> Answer {
    release_primary(next, dev)
}

/// Only the release that takes the count to zero ends the context; the driver counts.
fn release_primary(next: Next<'_>, device: CUdevice) -> Answer {
    pace::primary_going(device);
    ending(next, || {
        if !calls::primary_is_active(device) {
            primary_is_gone(device);
        }
    })
}

pub(crate) fn cuDevicePrimaryCtxReset_v2(next: Next<'_>, dev: CUdevice) -> Answer {
    reset_primary(next, dev)
}

pub(crate) fn cuDevicePrimaryCtxReset(next: Next<'_>, dev: CUdevice) -> Answer {
    reset_primary(next, dev)
}

fn reset_primary(next: Next<'_>, device: CUdevice) -> Answer {
    pace::primary_going(device);
    ending(next, || primary_is_gone(device))
}

/// A green context retains the primary one, and makes it where it isn't there.
pub(crate) fn cuGreenCtxCreate(
    next: Next<'_>,
    phCtx: Out<CUgreenCtx>,
    _desc: CUdevResourceDesc,
    dev: CUdevice,
    _flags: u32,
) -> Answer {
    retained(next, phCtx, dev, |green| calls::destroy_green_context(green as usize))
}

pub(crate) fn cuGreenCtxDestroy(next: Next<'_>, hCtx: CUgreenCtx) -> Answer {
    // Nobody can tell beforehand whether the primary context goes with it.
    if let Some(device) = calls::device_of_green_context(hCtx as usize) {
        pace::primary_going(device);
    }
    ending(next, || {
        // The device isn't known any more, nor whether the primary context went with it.
        live::primaries_are(calls::primary_is_active);
        live::contexts_are(calls::is_gone);
    })
}
