//! Events: points in streams, with the time at which they are passed.

use crate::args::{Answer, put};
use crate::capture::{self, Tips};
use crate::entry::Call;
use crate::graph::Payload;
use crate::ipc::event::SharedEvent;
use crate::registry::Registry;
use crate::state;
use crate::stream::callbacks::forbid_inside;
use crate::stream::{ContextStreams, DeviceQueue, End, Mark, Stream, belongs, now_ns, resolve};
use core::ffi::c_uint;
use driver_api::{CUevent, CUresult, CUstream};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;
/// `CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`
const EXTERNAL: c_uint = 1;

pub(crate) static EVENTS: Registry<Event> = Registry::new();

/// One event.
pub(crate) struct Event {
    pub(crate) queue: Arc<DeviceQueue>,
    flags: c_uint,
    state: Mutex<State>,
    /// What other processes see of it, once they may.
    shared: OnceLock<Arc<SharedEvent>>,
}

/// What an event was last recorded as.
#[derive(Clone, Default)]
enum State {
    /// Nothing yet.
    #[default]
    Never,
    /// Points in streams; one unless a whole context was recorded.
    Recorded { marks: Vec<(Mark, End)>, at_ns: u64 },
    /// A place in a graph that is being captured.
    Captured(Tips),
}

impl Event {
    /// Makes the event the present end of a stream. What is recorded in a capture is told by `capture`.
    pub(crate) fn record(&self, stream: &Arc<Stream>) {
        stream.begin();
        self.set(vec![stream.mark()]);
        if let Some(shared) = self.shared.get().cloned() {
            let number = shared.record();
            stream.host(move || shared.complete(number));
        }
    }

    /// An event of another process, in the current context.
    pub(crate) fn open(queue: &Arc<DeviceQueue>, shared: SharedEvent) -> CUevent {
        let flags = DISABLE_TIMING | INTERPROCESS;
        let shared = OnceLock::from(Arc::new(shared));
        EVENTS.insert(Arc::new(Self { queue: Arc::clone(queue), flags, state: Mutex::default(), shared }))
    }

    /// What other processes are to see of it: made at the first question, when all that was recorded is done.
    pub(crate) fn share(&self) -> Answer<Arc<SharedEvent>> {
        if self.flags & (INTERPROCESS | DISABLE_TIMING) != INTERPROCESS | DISABLE_TIMING {
            return Err(CUresult::INVALID_VALUE);
        }
        if let Some(shared) = self.shared.get() {
            return Ok(Arc::clone(shared));
        }
        let state = self.state.lock().clone();
        if let State::Recorded { marks, .. } = state {
            marks.iter().for_each(|(mark, _)| mark.wait());
        }
        let made = Arc::new(SharedEvent::new()?);
        Ok(Arc::clone(self.shared.get_or_init(|| made)))
    }

    /// The record of any process that is not passed yet.
    fn pending(&self) -> Option<(Arc<SharedEvent>, u64)> {
        let shared = self.shared.get()?;
        let number = shared.recorded();
        (!shared.is_done(number)).then(|| (Arc::clone(shared), number))
    }

    fn set(&self, marks: Vec<Mark>) {
        let is_timed = self.flags & DISABLE_TIMING == 0;
        let end = |mark: &Mark| if is_timed { mark.watch() } else { End::Before };
        let marks = marks.into_iter().map(|mark| {
            let end = end(&mark);
            (mark, end)
        });
        let state = State::Recorded { marks: marks.collect(), at_ns: now_ns() };
        let before = std::mem::replace(&mut *self.state.lock(), state);
        // What the event held may end here, which is not for the lock.
        drop(before);
    }

    /// Makes `stream` wait for what the event was last recorded as.
    pub(crate) fn wait_by(&self, stream: &Arc<Stream>) {
        if let Some((shared, number)) = self.pending() {
            stream.begin();
            stream.defer(move |_| shared.wait(number));
        }
        let state = self.state.lock().clone();
        if let State::Recorded { marks, .. } = state {
            stream.begin();
            marks.iter().for_each(|(mark, _)| stream.follow(mark));
        }
    }

    /// When the event was passed: `Err(600)` before that, `Err(400)` when there is no time.
    fn time_ns(&self) -> Answer<u64> {
        if self.flags & DISABLE_TIMING != 0 {
            return Err(CUresult::INVALID_HANDLE);
        }
        match &*self.state.lock() {
            State::Never => Err(CUresult::INVALID_HANDLE),
            State::Captured(_) => Err(CUresult::CAPTURED_EVENT),
            State::Recorded { marks, .. } if !all_done(marks) => Err(CUresult::NOT_READY),
            // An event of a stream that was idle is passed when it is recorded.
            State::Recorded { marks, at_ns } => {
                Ok(marks.iter().filter_map(|(_, end)| end.time_ns()).fold(*at_ns, u64::max))
            }
        }
    }
}

fn all_done(marks: &[(Mark, End)]) -> bool {
    marks.iter().all(|(mark, _)| mark.is_done())
}

/// Ends the events of a context that is destroyed.
pub(crate) fn forget_queue(queue: &Arc<DeviceQueue>) {
    EVENTS.remove_all(|event| Arc::ptr_eq(&event.queue, queue));
}

/// Records `event` when everything is done that these streams of a context hold now.
pub(crate) fn record_after(context: &ContextStreams, streams: &[Arc<Stream>], event: &Event) -> Answer {
    if !Arc::ptr_eq(&event.queue, &context.queue) {
        return Err(CUresult::INVALID_HANDLE);
    }
    let mut marks = Vec::new();
    for stream in streams {
        capture::forbid_on(stream)?;
        marks.push(stream.mark());
    }
    event.set(marks);
    Ok(())
}

/// Lets `stream` wait for `event`: as a dependency of its graph when either is being captured.
pub(crate) fn wait_in(stream: &Arc<Stream>, event: &Arc<Event>, flags: c_uint) -> Answer {
    if flags & !EXTERNAL != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let state = event.state.lock().clone();
    if flags == EXTERNAL {
        let capture = capture::enter(stream)?.ok_or(CUresult::INVALID_VALUE)?;
        return capture.record(Payload::EventWait(Arc::clone(event))).map(drop);
    }
    match state {
        State::Captured(tips) => capture::join(stream, &tips),
        // An event that was never recorded has nothing to wait for, whether captured or not.
        State::Never if event.shared.get().is_none() => Ok(()),
        State::Never | State::Recorded { .. } => {
            if let Some(capture) = capture::enter(stream)? {
                return Err(capture.invalidate(CUresult::STREAM_CAPTURE_ISOLATION));
            }
            event.wait_by(stream);
            Ok(())
        }
    }
}

pub(crate) fn cuEventCreate(_: &Call, event: *mut CUevent, flags: c_uint) -> Answer {
    let untimed_interprocess = flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS;
    if event.is_null() || flags > 7 || untimed_interprocess {
        return Err(CUresult::INVALID_VALUE);
    }
    let queue = Arc::clone(&state::current()?.streams.queue);
    let shared = OnceLock::new();
    put(event, EVENTS.insert(Arc::new(Event { queue, flags, state: Mutex::default(), shared })))
}

pub(crate) fn cuEventDestroy(_: &Call, event: CUevent) -> Answer {
    EVENTS.remove(event).map(drop)
}

pub(crate) fn cuEventDestroy_v2(call: &Call, event: CUevent) -> Answer {
    cuEventDestroy(call, event)
}

pub(crate) fn cuEventRecord(call: &Call, event: CUevent, stream: CUstream) -> Answer {
    cuEventRecordWithFlags(call, event, stream, 0)
}

pub(crate) fn cuEventRecordWithFlags(call: &Call, event: CUevent, stream: CUstream, flags: c_uint) -> Answer {
    let event = EVENTS.get(event)?;
    let stream = resolve(call, stream)?;
    belongs(&stream, &event.queue)?;
    if flags & !EXTERNAL != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    match capture::enter(&stream)? {
        None if flags == EXTERNAL => Err(CUresult::INVALID_VALUE),
        None => {
            event.record(&stream);
            Ok(())
        }
        Some(capture) if flags == EXTERNAL => capture.record(Payload::EventRecord(event)).map(drop),
        Some(capture) => {
            *event.state.lock() = State::Captured(capture.tips());
            Ok(())
        }
    }
}

pub(crate) fn cuEventQuery(_: &Call, event: CUevent) -> Answer {
    let event = EVENTS.get(event)?;
    let state = event.state.lock().clone();
    match state {
        State::Captured(_) => Err(CUresult::CAPTURED_EVENT),
        state => {
            capture::forbid_unsafe_call()?;
            match state {
                _ if event.pending().is_some() => Err(CUresult::NOT_READY),
                State::Recorded { marks, .. } if !all_done(&marks) => Err(CUresult::NOT_READY),
                _ => Ok(()),
            }
        }
    }
}

pub(crate) fn cuEventSynchronize(_: &Call, event: CUevent) -> Answer {
    forbid_inside()?;
    let event = EVENTS.get(event)?;
    let state = event.state.lock().clone();
    match state {
        State::Captured(_) => return Err(CUresult::CAPTURED_EVENT),
        State::Never => capture::forbid_unsafe_call()?,
        State::Recorded { marks, .. } => {
            capture::forbid_unsafe_call()?;
            marks.iter().for_each(|(mark, _)| mark.wait());
            crate::pool::synchronised(event.queue.device);
        }
    }
    if let Some((shared, number)) = event.pending() {
        shared.wait(number);
    }
    Ok(())
}

pub(crate) fn cuEventElapsedTime(_: &Call, milliseconds: *mut f32, start: CUevent, end: CUevent) -> Answer {
    let (start, end) = (EVENTS.get(start)?, EVENTS.get(end)?);
    if !Arc::ptr_eq(&start.queue, &end.queue) {
        return Err(CUresult::INVALID_HANDLE);
    }
    let (from, to) = (start.time_ns()?, end.time_ns()?);
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)] // The API's own precision.
    let elapsed = if to >= from { (to - from) as f64 / 1e6 } else { -((from - to) as f64) / 1e6 } as f32;
    put(milliseconds, elapsed)
}

pub(crate) fn cuEventElapsedTime_v2(call: &Call, milliseconds: *mut f32, start: CUevent, end: CUevent) -> Answer {
    cuEventElapsedTime(call, milliseconds, start, end)
}
