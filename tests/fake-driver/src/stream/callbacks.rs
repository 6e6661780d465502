//! Functions of the program that a stream calls when it gets there, on the stream's own thread.
//!
//! They must not call the driver. Here the calls that use a stream or wait are refused (800), as those
//! could wait for the function itself.
#![allow(unsafe_code)]

use super::{Stream, resolve};
use crate::args::Answer;
use crate::capture;
use crate::entry::Call;
use crate::graph::Payload;
use core::ffi::{c_int, c_uint, c_void};
use driver_api::{CUdeviceptr, CUhostFn, CUresult, CUstream, CUstreamCallback};
use std::cell::Cell;
use std::sync::Arc;

/// A function of the program with its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFunction {
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
}

// SAFETY: the program hands both over to be used from a thread of the driver; that is what the API is for.
unsafe impl Send for HostFunction {}
// SAFETY: as above; nothing here writes through the pointer.
unsafe impl Sync for HostFunction {}

impl HostFunction {
    /// Fails with 1 when there is no function.
    pub(crate) fn new(function: CUhostFn, argument: *mut c_void) -> Answer<Self> {
        Ok(Self { function: function.ok_or(CUresult::INVALID_VALUE)?, argument })
    }

    /// Function and argument, as the API's structures have them.
    pub(crate) fn parts(&self) -> (CUhostFn, *mut c_void) {
        (Some(self.function), self.argument)
    }

    /// Calls it.
    pub(crate) fn call(self) {
        // SAFETY: the program passed the function to be called with this argument, and keeps both alive
        // until the stream has called it.
        on_behalf_of_program(|| unsafe { (self.function)(self.argument) });
    }
}

thread_local! {
    /// True while the thread runs a function of the program.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

fn on_behalf_of_program(call: impl FnOnce()) {
    let outer = INSIDE.replace(true);
    call();
    INSIDE.set(outer);
}

/// Fails with 800 in a function that a stream has called.
#[inline]
pub(crate) fn forbid_inside() -> Answer {
    if INSIDE.get() { Err(CUresult::NOT_PERMITTED) } else { Ok(()) }
}

pub(crate) fn cuLaunchHostFunc(call: &Call, stream: CUstream, function: CUhostFn, argument: *mut c_void) -> Answer {
    let stream = resolve(call, stream)?;
    let host = HostFunction::new(function, argument)?;
    if let Some(capture) = capture::enter(&stream)? {
        return capture.record(Payload::Host(host)).map(drop);
    }
    stream.host(move || host.call());
    Ok(())
}

pub(crate) fn cuLaunchHostFunc_v2(
    call: &Call,
    stream: CUstream,
    function: CUhostFn,
    argument: *mut c_void,
    sync_mode: c_uint,
) -> Answer {
    if sync_mode > 2 {
        return Err(CUresult::INVALID_VALUE);
    }
    cuLaunchHostFunc(call, stream, function, argument)
}

/// The older form, whose function is told stream and status, too.
#[derive(Clone, Copy)]
struct Callback {
    function: unsafe extern "C" fn(CUstream, c_int, *mut c_void),
    stream: CUstream,
    argument: *mut c_void,
}

// SAFETY: as for `HostFunction`.
unsafe impl Send for Callback {}

impl Callback {
    fn call(self) {
        // SAFETY: as for `HostFunction::call`.
        on_behalf_of_program(|| unsafe { (self.function)(self.stream, 0, self.argument) });
    }
}

pub(crate) fn cuStreamAddCallback(
    call: &Call,
    stream: CUstream,
    callback: CUstreamCallback,
    argument: *mut c_void,
    flags: c_uint,
) -> Answer {
    let found: Arc<Stream> = resolve(call, stream)?;
    if callback.is_null() || flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    capture::forbid_on(&found)?;
    // SAFETY: not null, and the API says that the pointer is a function of this type.
    let function =
        unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(CUstream, c_int, *mut c_void)>(callback) };
    let callback = Callback { function, stream, argument };
    found.host(move || callback.call());
    Ok(())
}

/// Attachments say which stream may touch managed memory; here every stream may.
pub(crate) fn cuStreamAttachMemAsync(
    call: &Call,
    stream: CUstream,
    pointer: CUdeviceptr,
    _length: usize,
    flags: c_uint,
) -> Answer {
    let stream = resolve(call, stream)?;
    if pointer == 0 || !matches!(flags, 1 | 2 | 4) {
        return Err(CUresult::INVALID_VALUE);
    }
    capture::forbid_on(&stream)
}
