//! Creating, ending, asking and awaiting streams and contexts.

use super::callbacks::forbid_inside;
use super::{Kind, NON_BLOCKING, STREAMS, Stream, resolve};
use crate::args::{Answer, optional, put};
use crate::capture;
use crate::context::Context;
use crate::context::properties::greatest_priority;
use crate::entry::Call;
use crate::event::{self, EVENTS};
use crate::registry::pointer;
use crate::state;
use core::ffi::{c_int, c_uint};
use core::sync::atomic::Ordering;
use driver_api::{CUcontext, CUdevice, CUevent, CUgreenCtx, CUresult, CUstream};
use std::sync::Arc;

/// A priority as a stream can have it.
pub(crate) fn possible_priority(wanted: c_int) -> c_int {
    wanted.clamp(greatest_priority(), 0)
}

/// A stream of a context, registered; its handle. `green` is the green context's, 0 for none.
pub(crate) fn create_in(context: &Context, flags: c_uint, priority: c_int, green: usize) -> Answer<CUstream> {
    let kind = match flags {
        0 => Kind::Blocking,
        NON_BLOCKING => Kind::NonBlocking,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    let queue = &context.streams.queue;
    queue.context.store(context.handle(), Ordering::Relaxed);
    let priority = possible_priority(priority);
    Ok(STREAMS.insert(Stream::with_green(queue, kind, flags, priority, green)))
}

pub(crate) fn cuStreamCreate(call: &Call, stream: *mut CUstream, flags: c_uint) -> Answer {
    cuStreamCreateWithPriority(call, stream, flags, 0)
}

pub(crate) fn cuStreamCreateWithPriority(_: &Call, stream: *mut CUstream, flags: c_uint, priority: c_int) -> Answer {
    if stream.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    put(stream, create_in(&*state::current()?, flags, priority, 0)?)
}

pub(crate) fn cuStreamDestroy(call: &Call, stream: CUstream) -> Answer {
    cuStreamDestroy_v2(call, stream)
}

/// The handle ends at once, the stream itself when its work is done.
pub(crate) fn cuStreamDestroy_v2(_: &Call, stream: CUstream) -> Answer {
    if stream.addr() <= super::PER_THREAD {
        return Err(CUresult::INVALID_HANDLE);
    }
    capture::forbid_on(&STREAMS.get(stream)?)?;
    STREAMS.remove(stream).map(drop)
}

pub(crate) fn cuStreamQuery(call: &Call, stream: CUstream) -> Answer {
    let stream = resolve(call, stream)?;
    capture::forbid_on(&stream)?;
    if stream.is_idle() { Ok(()) } else { Err(CUresult::NOT_READY) }
}

pub(crate) fn cuStreamSynchronize(call: &Call, stream: CUstream) -> Answer {
    let stream = resolve(call, stream)?;
    capture::forbid_on(&stream)?;
    stream.wait();
    crate::pool::synchronised(stream.queue.device);
    Ok(())
}

pub(crate) fn cuStreamWaitEvent(call: &Call, stream: CUstream, event: CUevent, flags: c_uint) -> Answer {
    event::wait_in(&resolve(call, stream)?, &EVENTS.get(event)?, flags)
}

pub(crate) fn cuStreamGetFlags(call: &Call, stream: CUstream, flags: *mut c_uint) -> Answer {
    put(flags, resolve(call, stream)?.flags)
}

pub(crate) fn cuStreamGetId(call: &Call, stream: CUstream, id: *mut u64) -> Answer {
    put(id, resolve(call, stream)?.id)
}

pub(crate) fn cuStreamGetPriority(call: &Call, stream: CUstream, priority: *mut c_int) -> Answer {
    put(priority, resolve(call, stream)?.priority.load(Ordering::Relaxed))
}

/// The handle of the stream's context.
fn context_of(stream: &Arc<Stream>) -> Answer<usize> {
    let current = state::current();
    match current {
        Ok(current) if Arc::ptr_eq(&current.streams.queue, &stream.queue) => Ok(current.handle()),
        _ => Ok(stream.queue.context.load(Ordering::Relaxed)),
    }
}

pub(crate) fn cuStreamGetCtx(call: &Call, stream: CUstream, context: *mut CUcontext) -> Answer {
    put(context, pointer(context_of(&resolve(call, stream)?)?))
}

pub(crate) fn cuStreamGetCtx_v2(
    call: &Call,
    stream: CUstream,
    context: *mut CUcontext,
    green: *mut CUgreenCtx,
) -> Answer {
    let stream = resolve(call, stream)?;
    if stream.green != 0 {
        optional(context, core::ptr::null_mut());
        return put(green, pointer(stream.green));
    }
    optional(green, core::ptr::null_mut());
    put(context, pointer(context_of(&stream)?))
}

pub(crate) fn cuStreamGetDevice(call: &Call, stream: CUstream, device: *mut CUdevice) -> Answer {
    let context = state::context(pointer(context_of(&resolve(call, stream)?)?))?;
    put(device, context.device.ordinal)
}

pub(crate) fn cuStreamGetGreenCtx(call: &Call, stream: CUstream, green: *mut CUgreenCtx) -> Answer {
    put(green, pointer(resolve(call, stream)?.green))
}

pub(crate) fn cuCtxSynchronize(call: &Call) -> Answer {
    cuCtxSynchronize_v2(call, core::ptr::null_mut())
}

pub(crate) fn cuCtxSynchronize_v2(_: &Call, context: CUcontext) -> Answer {
    forbid_inside()?;
    let context = state::context(context)?;
    let streams = context.streams.queue.streams();
    streams.iter().filter(|stream| stream.is_capturing()).try_for_each(capture::forbid_on)?;
    context.streams.wait();
    crate::pool::synchronised(context.streams.queue.device);
    Ok(())
}

/// The event is reached when everything that is in the context's streams now is done.
pub(crate) fn cuCtxRecordEvent(_: &Call, context: CUcontext, event: CUevent) -> Answer {
    let context = state::context(context)?;
    let event = EVENTS.get(event)?;
    event::record_after(&context.streams, &context.streams.queue.streams(), &event)
}

/// All later work of the context waits for the event.
pub(crate) fn cuCtxWaitEvent(_: &Call, context: CUcontext, event: CUevent) -> Answer {
    let context = state::context(context)?;
    let event = EVENTS.get(event)?;
    for stream in context.streams.queue.streams() {
        event::wait_in(&stream, &event, 0)?;
    }
    Ok(())
}
