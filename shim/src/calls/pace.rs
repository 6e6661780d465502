//! Our own calls that concern the timing of the program's streams.
#![allow(unsafe_code)]
#![allow(non_snake_case)]

use super::memory::outside_captures;
use super::{Called, call, current_context, when_done};
use crate::entry::id;
use crate::names::Id;
use crate::real;
use core::ffi::{c_int, c_uint, c_void};
use driver_api::*;

/// The legacy default stream, by the handle that means it in every lane.
pub(crate) const LEGACY_STREAM: usize = 1;
/// The default stream of the calling thread.
pub(crate) const PER_THREAD_STREAM: usize = 2;

/// Whether our own calls have to get out of the way of captures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Captures {
    /// None is under way in this process.
    None,
    /// Some may be.
    Some,
}

impl Captures {
    fn around<T>(self, call: impl FnOnce() -> T) -> T {
        if self == Self::None { call() } else { outside_captures(call) }
    }
}

/// Makes an event that keeps the time, in the current context.
pub(crate) fn create_event(captures: Captures) -> Called<usize> {
    let mut event: CUevent = core::ptr::null_mut();
    let code = captures.around(|| call!(cuEventCreate(&mut event => *mut CUevent, 0 => c_uint)));
    when_done(code, event as usize)
}

pub(crate) fn destroy_event(event: usize) {
    let code = call!(cuEventDestroy_v2(event as CUevent => CUevent));
    if code == CUresult::NOT_SUPPORTED {
        let _ = call!(cuEventDestroy(event as CUevent => CUevent));
    }
}

/// Puts the event behind what is in the stream now. Never for one that is being captured.
pub(crate) fn record_event(event: usize, stream: usize, captures: Captures) -> Called<()> {
    let (event, stream) = (event as CUevent, stream as CUstream);
    when_done(captures.around(|| call!(cuEventRecord(event => CUevent, stream => CUstream))), ())
}

/// True once the event has been passed.
pub(crate) fn event_is_passed(event: usize, captures: Captures) -> Called<bool> {
    passed(captures.around(|| call!(cuEventQuery(event as CUevent => CUevent))))
}

/// True when nothing is left to do in the stream.
pub(crate) fn stream_is_idle(stream: usize, captures: Captures) -> Called<bool> {
    passed(captures.around(|| call!(cuStreamQuery(stream as CUstream => CUstream))))
}

fn passed(code: CUresult) -> Called<bool> {
    match code {
        CUresult::SUCCESS => Ok(true),
        CUresult::NOT_READY => Ok(false),
        code => Err(code),
    }
}

/// Milliseconds from one passed event to another; below zero when the second came first.
pub(crate) fn elapsed_ms(from: usize, to: usize) -> Called<f32> {
    let mut elapsed = 0f32;
    let (from, to) = (from as CUevent, to as CUevent);
    let at = &raw mut elapsed;
    let mut code = call!(cuEventElapsedTime(at => *mut f32, from => CUevent, to => CUevent));
    if code == CUresult::NOT_SUPPORTED {
        code = call!(cuEventElapsedTime_v2(at => *mut f32, from => CUevent, to => CUevent));
    }
    when_done(code, elapsed)
}

/// True unless what is put into the stream surely runs: while it is being captured, and while the driver doesn't say.
/// The legacy stream doesn't as long as a stream is captured that it would have to wait for, and asking spoils nothing.
pub(crate) fn may_be_captured(stream: usize) -> bool {
    let mut status: c_int = 0;
    let code = call!(cuStreamIsCapturing(stream as CUstream => CUstream, &mut status => *mut c_int));
    // Drivers before captures have no such function.
    !(code == CUresult::NOT_SUPPORTED || code.is_success() && status == 0)
}

/// Runs `call` with `context` current; the thread's own is back afterwards.
pub(crate) fn within_context<T>(context: usize, call: impl FnOnce() -> Called<T>) -> Called<T> {
    if current_context() == Some(context) {
        return call();
    }
    when_done(call!(cuCtxPushCurrent_v2(context as CUcontext => CUcontext)), ())?;
    let answer = call();
    let mut popped: CUcontext = core::ptr::null_mut();
    let _ = call!(cuCtxPopCurrent_v2(&mut popped => *mut CUcontext));
    answer
}
