//! The shim's side: what a process counts, and what its tenant's processes share.
//!
//! Launches are counted and measured in segments, a few hundred microseconds of predicted work each, which end with an
//! event. Nobody is told of an end: whoever waits looks, at the time at which it should have come.

use crate::device::{Done, Kernel};
use quota_core::Percent;
use quota_core::compute::Limit;
use quota_core::compute::spans::{Span, Spans};
use std::collections::VecDeque;

/// Longest segment, in predicted time.
const SEGMENT_NS: u64 = 250_000;
/// Most launches of a segment.
const LAUNCHES_MAX: u32 = 32;
/// Pieces of a wait for room.
const ROOM_PIECE_NS: (u64, u64) = (20_000, 200_000);
/// Pieces of a wait at the gate while something is under way, and of the thread that looks while nobody else does.
const LOOK_PIECE_NS: (u64, u64) = (50_000, 1_000_000);
/// What takes longer than predicted is said to take so much longer still.
const OVERDUE_NS: u64 = 50_000;

/// What a process says of itself, and what it knows besides.
#[derive(Debug, Default)]
pub(super) struct Shim {
    pub(super) submitted: u64,
    pub(super) completed: u64,
    pub(super) busy_ns: u64,
    pub(super) passed_at_ns: u64,
    pub(super) waiting: bool,
    pub(super) throttled: bool,
    /// Its thread waits for room.
    pub(super) crowded: bool,
    /// Since when what is under way has been, as far as is known.
    since_ns: u64,
    /// Predicted length of what is under way, as far as it has not been seen to end.
    predicted_ns: u64,
    /// It was later than predicted; what is said instead.
    overdue_until_ns: Option<u64>,
    /// How many of the launches under way are of a length that is not announced.
    long: u64,
    sure_up_to_ns: u64,
    streams: Vec<Stream>,
    /// What was measured, whatever the order in which it is seen.
    spans: Spans,
    /// What was last written to the tenant's time of the same name: while it stands there, no other process was charged.
    covered_until_ns: u64,
    look_ns: u64,
    looks_at_ns: Option<u64>,
}

#[derive(Debug, Default)]
struct Stream {
    segments: VecDeque<Segment>,
    last_end_ns: u64,
}

/// Launches that are measured together.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    launched_ns: u64,
    launches: u32,
    ended: u32,
    long: u32,
    predicted_ns: u64,
    /// There was nothing before it in its stream, so that its beginning is marked.
    marked: bool,
    began_ns: u64,
    ended_ns: u64,
    closed: bool,
}

/// What the processes of a tenant share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    cap: Option<Limit>,
    credit: u64,
    covered_until_ns: u64,
}

impl Shim {
    pub(super) fn new(sure_up_to_ns: u64) -> Self {
        Self { sure_up_to_ns, ..Self::default() }
    }

    /// Predicted length of what is under way.
    pub(super) fn predicted_ns(&self) -> u64 {
        self.predicted_ns
    }

    /// When all that is under way will have ended, as predicted.
    pub(super) fn until_ns(&self) -> u64 {
        self.overdue_until_ns.unwrap_or(self.since_ns + self.predicted_ns)
    }

    /// What it says about the end of its work is worth something.
    pub(super) fn is_sure(&self) -> bool {
        self.long == 0 && self.overdue_until_ns.is_none()
    }

    /// Everything is seen to have ended.
    pub(super) fn is_done(&self) -> bool {
        self.submitted == self.completed
    }

    /// True when `more_ns` of predicted work may be added; any, where nothing is under way.
    pub(super) fn has_room(&self, more_ns: u64, ahead_ns: u64) -> bool {
        self.is_done() || self.predicted_ns + more_ns.max(1) <= ahead_ns
    }

    pub(super) fn submit(&mut self, kernel: &Kernel, ahead_ns: u64, now_ns: u64) {
        if self.is_done() {
            (self.since_ns, self.overdue_until_ns) = (now_ns, None);
        }
        self.submitted += 1;
        self.predicted_ns += kernel.predicted_ns;
        let is_long = u32::from(kernel.predicted_ns > self.sure_up_to_ns);
        self.long += u64::from(is_long);
        if self.streams.len() <= kernel.stream {
            self.streams.resize_with(kernel.stream + 1, Stream::default);
        }
        let segments = &mut self.streams[kernel.stream].segments;
        if segments.back().is_none_or(|segment| segment.closed) {
            let marked = segments.is_empty();
            segments.push_back(Segment { launched_ns: now_ns, marked, ..Segment::default() });
        }
        if let Some(segment) = segments.back_mut() {
            segment.launches += 1;
            segment.long += is_long;
            segment.predicted_ns += kernel.predicted_ns;
            segment.closed = segment.predicted_ns >= SEGMENT_NS.min(ahead_ns / 4) || segment.launches >= LAUNCHES_MAX;
        }
    }

    /// A kernel has ended; nobody has seen it yet.
    pub(super) fn ended(&mut self, done: &Done) {
        let segments = &mut self.streams[done.kernel.stream].segments;
        if let Some(segment) = segments.iter_mut().find(|segment| segment.ended < segment.launches) {
            if segment.ended == 0 {
                segment.began_ns = done.began_ns;
            }
            segment.ended += 1;
            segment.ended_ns = done.ended_ns;
        }
    }

    /// Sees what has ended: measures it, spends credit, predicts anew when the rest will have. Who looks also ends the
    /// segments that are open.
    pub(super) fn look(&mut self, shared: &mut Shared, now_ns: u64) {
        let before = self.completed;
        for stream in &mut self.streams {
            while let Some(segment) = stream.segments.front_mut() {
                segment.closed = true;
                if segment.ended < segment.launches {
                    break;
                }
                let since_ns =
                    if segment.marked { segment.began_ns } else { stream.last_end_ns.max(segment.launched_ns) };
                let fresh_ns = self.spans.add(Span { start: since_ns, end: segment.ended_ns });
                let used_ns = shared.cover(segment.ended_ns, fresh_ns, &mut self.covered_until_ns);
                self.busy_ns += used_ns;
                shared.charge(used_ns, now_ns);
                self.completed += u64::from(segment.launches);
                self.predicted_ns -= segment.predicted_ns;
                self.long -= u64::from(segment.long);
                self.since_ns = self.since_ns.max(segment.ended_ns);
                stream.last_end_ns = segment.ended_ns;
                stream.segments.pop_front();
            }
            if let Some(last) = stream.segments.back_mut() {
                last.closed = true;
            }
        }
        if self.completed != before {
            (self.overdue_until_ns, self.look_ns) = (None, LOOK_PIECE_NS.0);
        }
        if !self.is_done() && self.until_ns() <= now_ns {
            self.overdue_until_ns = Some(now_ns + OVERDUE_NS);
        }
    }

    /// When somebody will look next: where a thread waits for room for so much (within so much ahead), when there should be;
    /// else when all should have ended.
    pub(super) fn next_look_ns(&mut self, room: Option<(u64, u64)>, now_ns: u64) -> Option<u64> {
        if self.is_done() {
            return None;
        }
        if let Some((more_ns, ahead_ns)) = room {
            let has_room_at_ns = (self.until_ns() + more_ns).saturating_sub(ahead_ns);
            let wait_ns = has_room_at_ns.saturating_sub(now_ns).clamp(ROOM_PIECE_NS.0, ROOM_PIECE_NS.1);
            return Some(now_ns + wait_ns);
        }
        let predicted_ns = self.until_ns().saturating_sub(now_ns);
        let least_ns = self.look_ns.clamp(LOOK_PIECE_NS.0, LOOK_PIECE_NS.1);
        self.look_ns = least_ns * 2;
        Some(now_ns + predicted_ns.clamp(least_ns, LOOK_PIECE_NS.1))
    }

    /// Somebody looks at that time; false if somebody does so earlier.
    pub(super) fn set_look(&mut self, at_ns: u64) -> bool {
        if self.looks_at_ns.is_some_and(|before_ns| before_ns <= at_ns) {
            return false;
        }
        self.looks_at_ns = Some(at_ns);
        true
    }

    /// The look that was set for that time is now; false if another has taken its place.
    pub(super) fn take_look(&mut self, at_ns: u64) -> bool {
        self.looks_at_ns.take_if(|set_ns| *set_ns == at_ns).is_some()
    }

    /// The process is gone.
    pub(super) fn vacate(&mut self) {
        *self = Self::new(self.sure_up_to_ns);
    }
}

impl Shared {
    pub(super) fn set_cap(&mut self, cap: Option<Percent>, quantum_ns: u64) {
        self.cap = cap.map(|cap| Limit::new(cap, quantum_ns));
    }

    /// Until when a thread has to wait for credit; who has begun to wait does so until there is a little of it.
    /// `reserved_ns` of it are spoken for.
    pub(super) fn throttled_until(&self, throttled: bool, reserved_ns: u64, now_ns: u64) -> Option<u64> {
        let cap = self.cap?;
        let credit = if reserved_ns == 0 { self.credit } else { cap.charge(self.credit, reserved_ns, now_ns) };
        if !throttled && cap.has_credit(credit, now_ns) {
            return None;
        }
        Some(cap.resumes_at(credit)).filter(|at_ns| *at_ns > now_ns)
    }

    fn charge(&mut self, used_ns: u64, now_ns: u64) {
        if let Some(cap) = self.cap {
            self.credit = cap.charge(self.credit, used_ns, now_ns);
        }
    }

    /// How much of what is new to a process is new to its tenant; it ended at `ended_ns`.
    fn cover(&mut self, ended_ns: u64, fresh_ns: u64, own_until_ns: &mut u64) -> u64 {
        let known_ns = self.covered_until_ns;
        let is_own = known_ns == *own_until_ns;
        self.covered_until_ns = known_ns.max(ended_ns);
        *own_until_ns = self.covered_until_ns;
        if is_own { fresh_ns } else { fresh_ns.min(ended_ns.saturating_sub(known_ns)) }
    }
}
