//! One context: events of our own in its streams, their times on the host's clock, and what they say has ended.

use super::captures;
use super::clock;
use super::device::{Count, Device};
use super::predictor::Predictor;
use super::track::{End, Mark, Segment, Track};
use crate::calls::{self, Captures};
use core::sync::atomic::{AtomicBool, Ordering};
use driver_api::CUresult;
use parking_lot::Mutex;
use quota_core::compute::predict::Predicted;
use quota_core::compute::spans::Span;
use std::sync::Arc;

/// After so long a reference is replaced: the driver tells times in single precision, which then still is a microsecond.
const REFERENCE_MS_MAX: f32 = 5_000.0;
/// Events that are kept for later use; a stream has a handful under way.
const POOL_MAX: usize = 256;

/// A context of the program.
pub(super) struct Context {
    pub(super) handle: usize,
    pub(super) device: Arc<Device>,
    /// The driver has said that nothing works here any more, or the context is gone.
    broken: AtomicBool,
    tracks: Mutex<Vec<Arc<Track>>>,
    events: Mutex<Vec<usize>>,
    /// Held while events are looked at, so that they don't go meanwhile.
    reference: Mutex<Option<Reference>>,
}

/// An event that has been passed, and when that was.
struct Reference {
    event: usize,
    host_ns: u64,
}

impl Context {
    pub(super) fn new(handle: usize, device: Arc<Device>) -> Self {
        Self {
            handle,
            device,
            broken: AtomicBool::new(false),
            tracks: Mutex::default(),
            events: Mutex::default(),
            reference: Mutex::default(),
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    pub(super) fn add(&self, track: Arc<Track>) {
        self.tracks.lock().push(track);
    }

    fn tracks(&self) -> Vec<Arc<Track>> {
        self.tracks.lock().clone()
    }

    /// Puts an event of ours behind what is in the stream; none where that can't be, or must not.
    pub(super) fn mark(&self, stream: usize) -> Option<Mark> {
        if self.is_broken() {
            return None;
        }
        let pooled = self.events.lock().pop();
        let marked = captures::aside(stream, |active| {
            calls::within_context(self.handle, || {
                let event = pooled.map_or_else(|| calls::create_event(active), Ok)?;
                // Before the call: it is not passed earlier.
                let recorded_ns = clock::now_ns();
                calls::record_event(event, stream, active).inspect_err(|_| self.keep(event))?;
                Ok(Mark { event, recorded_ns })
            })
        });
        match marked {
            Some(Ok(mark)) => Some(mark),
            Some(Err(code)) => {
                self.judge(code);
                None
            }
            None => {
                pooled.into_iter().for_each(|event| self.keep(event));
                None
            }
        }
    }

    /// Takes an event back for later use.
    pub(super) fn keep(&self, event: usize) {
        let mut events = self.events.lock();
        if events.len() < POOL_MAX && !self.is_broken() {
            events.push(event);
            return;
        }
        drop(events);
        if !self.is_broken() {
            calls::destroy_event(event);
        }
    }

    /// After an error of a call of ours: what only concerns one stream or event is no reason to stop counting.
    pub(super) fn judge(&self, code: CUresult) {
        let harmless = matches!(
            code,
            CUresult::INVALID_VALUE | CUresult::INVALID_HANDLE | CUresult::NOT_READY | CUresult::OUT_OF_MEMORY
        ) || (900..=910).contains(&code.0);
        if !harmless {
            self.broken.store(true, Ordering::Release);
        }
    }

    /// Looks what has ended. True unless another thread is just doing so.
    pub(super) fn reap(&self, predictor: &Predictor) -> bool {
        let Some(mut reference) = self.reference.try_lock() else { return false };
        let active = captures::active();
        for track in self.tracks() {
            while !self.is_broken() {
                let Some(segment) = track.first_closed() else { break };
                let Some(passed) = self.is_passed(&segment, active) else { break };
                track.pop_first();
                self.settle(&track, segment, passed, &mut reference, predictor);
            }
        }
        drop(reference);
        if self.is_broken() {
            self.forget_tracks(false);
        }
        true
    }

    /// When the segment was found to have ended: whether by its event, and the time; none while it hasn't.
    fn is_passed(&self, segment: &Segment, active: Captures) -> Option<(bool, u64)> {
        let now = clock::now_ns();
        let end = match segment.end {
            End::At(end) => end,
            End::Coming => return None,
            End::Unknown => {
                let until_ns = segment.launched_ns.saturating_add(segment.count.predicted_ns);
                return (until_ns <= now).then_some((false, now));
            }
        };
        match calls::event_is_passed(end.event, active) {
            Ok(true) => Some((true, clock::now_ns())),
            Ok(false) => None,
            Err(code) => {
                self.judge(code);
                Some((false, now))
            }
        }
    }

    /// Charges what a segment took, and learns from it.
    fn settle(
        &self,
        track: &Track,
        segment: Segment,
        (by_event, now): (bool, u64),
        reference: &mut Option<Reference>,
        predictor: &Predictor,
    ) {
        let predicted_ns = segment.count.predicted_ns;
        let begun = segment.start.map(|start| self.time_of(start, now, reference));
        let since = begun.unwrap_or_else(|| track.last_end_ns()).max(segment.launched_ns).min(now);
        let ended = match segment.end {
            End::At(end) if by_event => self.time_of(end, now, reference).max(since),
            // Not measured: as long as predicted, or until now.
            _ => since.saturating_add(predicted_ns).min(now),
        };
        for mark in segment.start.into_iter().chain(segment.end.mark()) {
            if reference.as_ref().is_none_or(|reference| reference.event != mark.event) {
                self.keep(mark.event);
            }
        }
        track.ended_at(ended);
        let Judged { busy_ns, learned_ns } = judge_time(&segment, Span { start: since, end: ended });
        if let Some(took) = learned_ns.filter(|_| by_event) {
            let is_alone = segment.alone.is_some() && segment.alone == self.device.alone();
            let launches = &segment.launches[..segment.length()];
            // Once each, however often it was launched: mostly right before.
            let is_first = |at: usize, place| launches[..at].iter().rev().all(|(earlier, _)| *earlier != place);
            for (at, (place, own_ns)) in launches.iter().enumerate() {
                let predicted = Predicted { own_ns: u64::from(*own_ns), all_ns: predicted_ns };
                if is_first(at, *place) {
                    predictor.learn(*place, |known| match (launches.len(), is_alone) {
                        (1, true) => known.measured(took),
                        (1, false) => known.at_most(took),
                        (_, true) => known.measured_among(predicted, took),
                        (_, false) => known,
                    });
                }
            }
        }
        // Before the counts: who sees nothing under way must find everything charged.
        let is_last = track.is_empty();
        self.device.ended(segment.count, Some(Span { start: ended - busy_ns.min(ended), end: ended }), now);
        if is_last {
            track.rests();
        }
    }

    /// When a mark that has been passed by `now` was passed, on the host's clock.
    ///
    /// The clocks are compared through a reference event. Its own time is known only by what it must have been for every other
    /// to lie between its recording and the moment it was seen; each mark narrows that, and takes drift out of it.
    fn time_of(&self, mark: Mark, now: u64, reference: &mut Option<Reference>) -> u64 {
        let Some(known) = reference else {
            // Put into an idle stream, it is passed at once.
            *reference = Some(Reference { event: mark.event, host_ns: mark.recorded_ns });
            return mark.recorded_ns;
        };
        if known.event == mark.event {
            return known.host_ns;
        }
        let Ok(elapsed_ms) = calls::elapsed_ms(known.event, mark.event) else { return now };
        let elapsed_ns = (f64::from(elapsed_ms) * 1e6) as i64;
        let at = known.host_ns.saturating_add_signed(elapsed_ns);
        let right = at.clamp(mark.recorded_ns, now.max(mark.recorded_ns));
        known.host_ns = known.host_ns.saturating_add(right).saturating_sub(at);
        if elapsed_ms > REFERENCE_MS_MAX {
            let before = known.event;
            *known = Reference { event: mark.event, host_ns: right };
            self.keep(before);
        }
        right
    }

    /// Closes what streams have open although nobody launches into them any more.
    pub(super) fn close_open(&self, is_due: impl Fn(&Track) -> bool) {
        // The lock keeps the context from going meanwhile.
        let Some(_not_going) = self.reference.try_lock() else { return };
        for track in self.tracks().iter().filter(|track| track.is_open() && is_due(track)) {
            track.close_from_outside();
        }
    }

    /// The stream is about to go.
    pub(super) fn forget_stream(&self, stream: usize) {
        let _not_reaped = self.reference.lock();
        let mut tracks = self.tracks.lock();
        let gone: Vec<_> = tracks.extract_if(.., |track| track.stream == stream).collect();
        drop(tracks);
        for event in gone.iter().flat_map(|track| self.forget_track(track)) {
            self.keep(event);
        }
    }

    /// Forgets streams that have nothing under way; for programs that make new ones without end.
    pub(super) fn forget_idle(&self) {
        let Some(_not_reaped) = self.reference.try_lock() else { return };
        let mut tracks = self.tracks.lock();
        let gone: Vec<_> = tracks.extract_if(.., |track| !track.is_open() && track.is_empty()).collect();
        drop(tracks);
        for event in gone.iter().flat_map(|track| self.forget_track(track)) {
            self.keep(event);
        }
    }

    /// The context is about to go, or works no more: nothing of ours stays in it.
    pub(super) fn forget_tracks(&self, is_going: bool) {
        // First, so that who launches meanwhile either is found below or finds this.
        let worked = is_going && !self.broken.swap(true, Ordering::AcqRel);
        let mut reference = self.reference.lock();
        let tracks = std::mem::take(&mut *self.tracks.lock());
        let mut events: Vec<usize> = tracks.iter().flat_map(|track| self.forget_track(track)).collect();
        events.append(&mut self.events.lock());
        events.extend(reference.take().map(|reference| reference.event));
        if worked {
            events.into_iter().for_each(calls::destroy_event);
        }
    }

    /// A launch was counted into a track that was forgotten at the same moment: it is so, too.
    pub(super) fn forget_late(&self, track: &Track) {
        let _not_reaped = self.reference.lock();
        for event in self.forget_track(track) {
            self.keep(event);
        }
    }

    /// What it had under way is charged as predicted. The events that it had.
    fn forget_track(&self, track: &Track) -> Vec<usize> {
        let now = clock::now_ns();
        let mut events = Vec::new();
        track.goes();
        for segment in track.take_all() {
            let marks = segment.start.into_iter().chain(segment.end.mark());
            events.extend(marks.map(|mark| mark.event));
            let start = track.last_end_ns().max(segment.launched_ns);
            let end = start.saturating_add(segment.count.predicted_ns);
            track.ended_at(end);
            self.device.ended(segment.count, Some(Span { start, end }), now);
        }
        track.rests();
        events
    }

    /// Nothing of this launch came to be.
    pub(super) fn withdraw(&self, count: Count) {
        self.device.ended(count, None, clock::now_ns());
    }
}

/// What is made of the time that a segment took.
struct Judged {
    /// Device time.
    busy_ns: u64,
    /// What to learn from it.
    learned_ns: Option<u64>,
}

/// How much of the time of a segment was device time.
///
/// While its launches were still being made, the device may have had nothing to do in between: because the program was slow, or
/// the processor was given to somebody else. So much of it is in doubt, and the prediction decides, where there is one. When a
/// turn begins, what another tenant had under way may not have ended, and all of it is.
fn judge_time(segment: &Segment, span: Span) -> Judged {
    let took = span.end.saturating_sub(span.start);
    let predicted_ns = segment.count.predicted_ns;
    let Some(end) = segment.end.mark().filter(|_| segment.count.unsure == 0) else {
        return Judged { busy_ns: took, learned_ns: Some(took) };
    };
    if !segment.is_whole {
        return Judged { busy_ns: took.max(predicted_ns), learned_ns: None };
    }
    if segment.begins_turn {
        return Judged { busy_ns: took.min(predicted_ns), learned_ns: (took < predicted_ns).then_some(took) };
    }
    let in_doubt = end.recorded_ns.saturating_sub(span.start);
    let busy_ns = predicted_ns.clamp(took.saturating_sub(in_doubt), took);
    Judged { busy_ns, learned_ns: Some(busy_ns) }
}
