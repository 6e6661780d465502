//! One stream: what was launched into it, in segments that end with an event of ours.
//!
//! A segment is open while launches are added to it, then closed (an event is put behind it), then reaped once the event is
//! passed. An ordinary launch into an open segment adds a few numbers under the stream's own lock, which nobody holds for
//! longer than that.

use super::captures;
use super::clock;
use super::context::Context;
use super::device::Count;
use super::predictor::Place;
use crate::calls;
use core::sync::atomic::{AtomicBool, Ordering};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Longest segment, in predicted time: what is measured and seen to have ended at once.
const SEGMENT_NS: u64 = 250_000;
/// Most launches of a segment, so that predictions that are too small are found out.
pub(super) const LAUNCHES_MAX: usize = 32;
/// How long after its predicted end a segment is taken to have ended which nobody can ask about.
const PRESUMED_AFTER_NS: u64 = 1_000_000;

/// An event of ours in a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) event: usize,
    /// When it was recorded, which is not after it was passed.
    pub(super) recorded_ns: u64,
}

/// What tells that a closed segment has ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// An event.
    At(Mark),
    /// An event that a thread is just putting behind it.
    Coming,
    /// Nothing: it is taken to last as predicted.
    Unknown,
}

impl End {
    pub(super) fn mark(self) -> Option<Mark> {
        if let Self::At(mark) = self { Some(mark) } else { None }
    }
}

/// Longest launch whose end is announced: by the simulator, announcing longer ones costs more than it saves.
const ANNOUNCED_NS_MAX: u64 = 250_000;

/// Launches that are measured together.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    /// When the first of them was about to be launched; 0 for none.
    pub(super) launched_ns: u64,
    /// Before the first, where nothing was before it.
    pub(super) start: Option<Mark>,
    /// Behind the last.
    pub(super) end: End,
    pub(super) count: Count,
    /// Each with the nanoseconds that were predicted of it.
    pub(super) launches: [(Place, u32); LAUNCHES_MAX],
    /// [`super::device::Device::alone`] at its beginning.
    pub(super) alone: Option<u64>,
    /// It was begun before its first launch, not after.
    pub(super) is_whole: bool,
    /// It is the first since a thread has waited at the gate.
    pub(super) begins_turn: bool,
}

impl Segment {
    const NONE: Self = Self {
        launched_ns: 0,
        start: None,
        end: End::Unknown,
        count: Count { launches: 0, unsure: 0, vague: 0, predicted_ns: 0 },
        launches: [(Place::FIRST, 0); LAUNCHES_MAX],
        alone: None,
        is_whole: false,
        begins_turn: false,
    };
}

impl Segment {
    /// How many launches it has that are known by name.
    pub(super) fn length(&self) -> usize {
        (self.count.launches as usize).min(LAUNCHES_MAX)
    }
}

/// One launch.
#[derive(Clone, Copy)]
pub(super) struct Launch {
    pub(super) place: Place,
    pub(super) predicted_ns: u64,
    /// Its prediction can be relied upon.
    pub(super) is_known: bool,
    /// It is to be measured by itself.
    pub(super) apart: bool,
}

impl Launch {
    pub(super) fn count(&self) -> Count {
        let vague = !self.is_known || self.predicted_ns > ANNOUNCED_NS_MAX;
        Count {
            launches: 1,
            unsure: u32::from(!self.is_known),
            vague: u32::from(vague),
            predicted_ns: self.predicted_ns,
        }
    }
}

/// A stream.
pub(super) struct Track {
    pub(super) context: Arc<Context>,
    pub(super) stream: usize,
    open: Mutex<Segment>,
    /// True while `open` is a segment that was begun; for a look without the lock, which may come too early or too late.
    is_begun: AtomicBool,
    /// Nobody looks after it any more.
    is_gone: AtomicBool,
    closed: Mutex<Closed>,
}

#[derive(Default)]
struct Closed {
    segments: VecDeque<Segment>,
    last_end_ns: u64,
    /// It is one of the device's busy streams.
    is_busy: bool,
}

impl Track {
    pub(super) fn new(context: Arc<Context>, stream: usize) -> Self {
        Self {
            context,
            stream,
            open: Mutex::new(Segment::NONE),
            is_begun: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            closed: Mutex::default(),
        }
    }

    /// Before a launch: makes sure that there is an open segment for it. Mostly there is; true when one was begun.
    pub(super) fn before(&self, launch: &Launch) -> bool {
        // What is between here and the end of the launch is seen by `add`.
        let begins = launch.apart || !self.is_begun.load(Ordering::Acquire);
        if begins {
            self.begin();
        }
        begins
    }

    #[cold]
    fn begin(&self) {
        self.close();
        let mut closed = self.closed.lock();
        let is_idle = closed.segments.is_empty();
        if !closed.is_busy {
            closed.is_busy = true;
            self.context.device.stream_begins();
        }
        drop(closed);
        let start = if is_idle { self.context.mark(self.stream) } else { None };
        let mut open = self.open.lock();
        if open.launched_ns == 0 {
            *open = Segment {
                launched_ns: clock::now_ns().max(1),
                start,
                alone: self.context.device.alone(),
                is_whole: true,
                begins_turn: self.context.device.begins_turn(),
                ..Segment::NONE
            };
            self.is_begun.store(true, Ordering::Release);
        } else if let Some(mark) = start {
            // Another thread was faster.
            drop(open);
            self.context.keep(mark.event);
        }
    }

    /// After a launch: adds it to the open segment, and closes that when it is long enough.
    pub(super) fn add(&self, launch: &Launch) {
        let count = launch.count();
        let mut open = self.open.lock();
        if open.launched_ns == 0 {
            // Another thread has closed it in between: what follows is begun without a mark.
            *open = Segment { launched_ns: clock::now_ns().max(1), ..Segment::NONE };
            self.is_begun.store(true, Ordering::Release);
        }
        let at = open.count.launches as usize;
        let predicted_ns = u32::try_from(launch.predicted_ns).unwrap_or(u32::MAX);
        open.launches[at.min(LAUNCHES_MAX - 1)] = (launch.place, predicted_ns);
        open.count.launches += 1;
        open.count.unsure += count.unsure;
        open.count.vague += count.vague;
        open.count.predicted_ns = open.count.predicted_ns.saturating_add(launch.predicted_ns);
        let limit = SEGMENT_NS.min(self.context.device.ahead_ns() / 4);
        let is_full = open.count.predicted_ns >= limit || at + 1 >= LAUNCHES_MAX;
        drop(open);
        if is_full || launch.apart {
            self.close();
        }
    }

    /// Takes the open segment away.
    fn take_open(&self, open: &mut Segment) -> Segment {
        self.is_begun.store(false, Ordering::Release);
        std::mem::replace(open, Segment::NONE)
    }

    /// The launch failed: a segment that was begun for it is none.
    pub(super) fn failed(&self) {
        let mut open = self.open.lock();
        if open.launched_ns != 0 && open.count.launches == 0 {
            let begun = self.take_open(&mut open);
            drop(open);
            begun.start.into_iter().for_each(|mark| self.context.keep(mark.event));
            self.rest_if_empty();
        }
    }

    /// Ends the open segment, from the thread that launches or waits.
    pub(super) fn close(&self) {
        let mut open = self.open.lock();
        if open.count.launches == 0 {
            return;
        }
        let segment = self.take_open(&mut open);
        // It must not look idle in between.
        let mut closed = self.closed.lock();
        closed.segments.push_back(Segment { end: End::Coming, ..segment });
        let at = closed.segments.len() - 1;
        drop((open, closed));
        let mark = self.context.mark(self.stream);
        let mut closed = self.closed.lock();
        // Those before it may have been reaped meanwhile; it itself only if the stream or the context has gone.
        let launched_ns = segment.launched_ns;
        let found = closed.segments.iter_mut().take(at + 1).rev().find(|known| known.launched_ns == launched_ns);
        match (found, mark) {
            (Some(found), Some(mark)) => found.end = End::At(mark),
            (Some(found), None) => found.end = End::Unknown,
            (None, Some(mark)) => {
                drop(closed);
                self.context.keep(mark.event);
            }
            (None, None) => {}
        }
    }

    /// Ends the open segment from another thread than those that launch: by an event if the stream still works at it. If not,
    /// it ended some time ago, and is taken to have lasted as predicted.
    pub(super) fn close_from_outside(&self) {
        let launched = self.open.lock().launched_ns;
        if self.stream == calls::PER_THREAD_STREAM {
            // Only its own thread can ask about it.
            let open = *self.open.lock();
            let presumed_ns = open.launched_ns + open.count.predicted_ns + PRESUMED_AFTER_NS;
            if open.count.launches > 0 && presumed_ns < clock::now_ns() {
                self.close_without_mark(launched);
            }
            return;
        }
        let ask = |active| calls::within_context(self.context.handle, || calls::stream_is_idle(self.stream, active));
        match captures::aside(self.stream, ask) {
            Some(Ok(true)) => self.close_without_mark(launched),
            Some(Ok(false)) => self.close(),
            Some(Err(code)) => self.context.judge(code),
            None => {}
        }
    }

    /// Closes the segment that was begun at `launched`, as one that has ended some time ago.
    fn close_without_mark(&self, launched: u64) {
        let mut open = self.open.lock();
        if open.launched_ns == launched && open.count.launches > 0 {
            let segment = self.take_open(&mut open);
            self.closed.lock().segments.push_back(segment);
        }
    }

    /// It is about to be forgotten, before what it has is taken: who adds something later finds this.
    pub(super) fn goes(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    /// True once it is forgotten.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire) || self.context.is_broken()
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.lock().count.launches > 0
    }

    /// When what is open will have ended, as predicted, if nothing is before it.
    pub(super) fn open_until_ns(&self) -> u64 {
        let open = self.open.lock();
        open.launched_ns.saturating_add(open.count.predicted_ns)
    }

    pub(super) fn first_closed(&self) -> Option<Segment> {
        self.closed.lock().segments.front().copied()
    }

    pub(super) fn pop_first(&self) {
        self.closed.lock().segments.pop_front();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.closed.lock().segments.is_empty()
    }

    pub(super) fn last_end_ns(&self) -> u64 {
        self.closed.lock().last_end_ns
    }

    pub(super) fn ended_at(&self, ns: u64) {
        let mut closed = self.closed.lock();
        closed.last_end_ns = closed.last_end_ns.max(ns);
    }

    /// Everything that is open or closed; the stream is about to go.
    pub(super) fn take_all(&self) -> Vec<Segment> {
        let open = self.take_open(&mut self.open.lock());
        let mut all: Vec<_> = self.closed.lock().segments.drain(..).collect();
        all.extend((open.launched_ns != 0).then_some(open));
        all
    }

    /// Nothing is under way here any more, unless something has been launched since.
    pub(super) fn rests(&self) {
        self.rest_if_empty();
    }

    fn rest_if_empty(&self) {
        let open = self.open.lock();
        let mut closed = self.closed.lock();
        if closed.is_busy && closed.segments.is_empty() && open.launched_ns == 0 {
            closed.is_busy = false;
            self.context.device.stream_ends();
        }
    }
}
