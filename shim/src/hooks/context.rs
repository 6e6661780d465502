//! The end of a context gives back its pointers and arrays (not pools, not physical handles).
#![allow(non_snake_case)]

use super::Answer;
use crate::entry::Next;
use crate::{calls, live};
use driver_api::{CUcontext, CUdevice};

pub(crate) fn cuInit(next: Next<'_>, _flags: u32) -> Answer {
    next.call()
}

pub(crate) fn cuCtxDestroy_v2(next: Next<'_>, ctx: CUcontext) -> Answer {
    destroy(next, ctx)
}

pub(crate) fn cuCtxDestroy(next: Next<'_>, ctx: CUcontext) -> Answer {
    destroy(next, ctx)
}

fn destroy(next: Next<'_>, context: CUcontext) -> Answer {
    next.call()?;
    live::context_is_gone(context as usize);
    Ok(())
}

/// Destroys the context when its last attachment goes; the driver then no longer knows it.
pub(crate) fn cuCtxDetach(next: Next<'_>, ctx: CUcontext) -> Answer {
    next.call()?;
    if calls::device_of_context(ctx as usize).is_none() {
        live::context_is_gone(ctx as usize);
    }
    Ok(())
}

pub(crate) fn cuDevicePrimaryCtxRetain(next: Next<'_>, pctx: crate::args::Out<CUcontext>, dev: CUdevice) -> Answer {
    next.call()?;
    live::primary_is(dev, pctx.get() as usize);
    Ok(())
}

pub(crate) fn cuDevicePrimaryCtxRelease_v2(next: Next<'_>, dev: CUdevice) -> Answer {
    release_primary(next, dev)
}

pub(crate) fn cuDevicePrimaryCtxRelease(next: Next<'_>, dev: CUdevice) -> Answer {
    release_primary(next, dev)
}

/// Only the release that takes the count to zero ends the context; the driver counts.
fn release_primary(next: Next<'_>, device: CUdevice) -> Answer {
    next.call()?;
    if !calls::primary_is_active(device) {
        live::primary_is_gone(device);
    }
    Ok(())
}

pub(crate) fn cuDevicePrimaryCtxReset_v2(next: Next<'_>, dev: CUdevice) -> Answer {
    next.call()?;
    live::primary_is_gone(dev);
    Ok(())
}

pub(crate) fn cuDevicePrimaryCtxReset(next: Next<'_>, dev: CUdevice) -> Answer {
    next.call()?;
    live::primary_is_gone(dev);
    Ok(())
}
