//! The primary context of a device: one for all that retain it, counted.

use super::{Context, check_flags};
use crate::args::{Answer, put};
use crate::entry::Call;
use crate::state::{self, Device};
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use driver_api::{CUcontext, CUdevice, CUresult};
use std::sync::Arc;

/// What a device keeps for its primary context.
#[derive(Default)]
pub(crate) struct Primary {
    retained: u32,
    flags: u32,
    active: Option<Arc<Context>>,
}

/// Retains the primary context, and makes it if it isn't there.
pub(crate) fn retain(device: &'static Device) -> Answer<Arc<Context>> {
    let mut primary = device.primary.lock();
    let context = match &primary.active {
        Some(context) => Arc::clone(context),
        None => {
            let context = Context::open(device, true, primary.flags, 3020)?;
            primary.active = Some(Arc::clone(&context));
            context
        }
    };
    primary.retained += 1;
    Ok(context)
}

/// The primary context that a handle means while it isn't active.
pub(super) fn inactive(handle: CUcontext) -> Option<Arc<Context>> {
    let device = state::driver().devices().iter().find(|device| device.primary_handle() == handle.addr())?;
    Some(Context::inactive(device))
}

/// Gives a reference back; the last one ends the context.
pub(crate) fn release(device: &'static Device) -> Answer {
    let ended = {
        let mut primary = device.primary.lock();
        primary.retained = primary.retained.checked_sub(1).ok_or(CUresult::INVALID_CONTEXT)?;
        if primary.retained == 0 { primary.active.take() } else { None }
    };
    if let Some(context) = ended {
        context.close();
    }
    Ok(())
}

/// Ends the context; whoever has retained it still has to release it.
fn reset(device: &'static Device) {
    let ended = device.primary.lock().active.take();
    if let Some(context) = ended {
        context.close();
    }
}

pub(crate) fn cuDevicePrimaryCtxRetain(_: &Call, out: *mut CUcontext, device: CUdevice) -> Answer {
    let device = state::device(device)?;
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, retain(device)?.pointer())
}

pub(crate) fn cuDevicePrimaryCtxRelease(_: &Call, device: CUdevice) -> Answer {
    release(state::device(device)?)
}

pub(crate) fn cuDevicePrimaryCtxRelease_v2(_: &Call, device: CUdevice) -> Answer {
    release(state::device(device)?)
}

pub(crate) fn cuDevicePrimaryCtxReset(_: &Call, device: CUdevice) -> Answer {
    reset(state::device(device)?);
    Ok(())
}

pub(crate) fn cuDevicePrimaryCtxReset_v2(_: &Call, device: CUdevice) -> Answer {
    reset(state::device(device)?);
    Ok(())
}

pub(crate) fn cuDevicePrimaryCtxGetState(_: &Call, device: CUdevice, flags: *mut u32, active: *mut c_int) -> Answer {
    let primary = state::device(device)?.primary.lock();
    if flags.is_null() || active.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    put(flags, primary.flags)?;
    put(active, c_int::from(primary.active.is_some()))
}

/// Before CUDA 11 the flags of an active context couldn't be changed.
pub(crate) fn cuDevicePrimaryCtxSetFlags(_: &Call, device: CUdevice, flags: u32) -> Answer {
    let device = state::device(device)?;
    if device.primary.lock().active.is_some() {
        return Err(CUresult::PRIMARY_CONTEXT_ACTIVE);
    }
    set_flags(device, flags)
}

pub(crate) fn cuDevicePrimaryCtxSetFlags_v2(_: &Call, device: CUdevice, flags: u32) -> Answer {
    set_flags(state::device(device)?, flags)
}

fn set_flags(device: &'static Device, flags: u32) -> Answer {
    check_flags(flags)?;
    let mut primary = device.primary.lock();
    primary.flags = flags;
    if let Some(context) = &primary.active {
        context.flags.store(flags, Ordering::Release);
    }
    Ok(())
}
