//! Functions of the program that are told of a device: there is nothing to tell, as no budget is set here.

use crate::args::{Answer, put};
use crate::entry::Call;
use crate::registry::Registry;
use crate::state;
use core::ffi::c_void;
use driver_api::{CUasyncCallback, CUasyncCallbackHandle, CUdevice, CUresult};
use std::sync::Arc;

static LISTENERS: Registry<Listener> = Registry::new();

/// A function that wants to be told.
struct Listener {
    device: CUdevice,
}

pub(crate) fn cuDeviceRegisterAsyncNotification(
    _: &Call,
    device: CUdevice,
    function: CUasyncCallback,
    _argument: *mut c_void,
    out: *mut CUasyncCallbackHandle,
) -> Answer {
    let device = state::device(device)?.ordinal;
    if function.is_null() || out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, LISTENERS.insert(Arc::new(Listener { device })))
}

pub(crate) fn cuDeviceUnregisterAsyncNotification(
    _: &Call,
    device: CUdevice,
    listener: CUasyncCallbackHandle,
) -> Answer {
    let device = state::device(device)?.ordinal;
    match LISTENERS.get(listener) {
        Ok(known) if known.device == device => LISTENERS.remove(listener).map(drop),
        _ => Err(CUresult::INVALID_VALUE),
    }
}
