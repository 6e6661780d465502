//! The launch path under compute quotas: when a launch may go to the driver, and how much device time it took.
//!
//! Hooks say what they are about to launch and where; this decides whether the thread waits, and counts. While nothing is
//! to be counted ([`is_free`]) the entry points go to the driver without coming here.
//!
//! A counted launch waits for credit under the tenant's cap, for the gate, and for room among what may be under way
//! ([`admit`]); its length is predicted ([`predictor`]). Launches into one stream are measured in segments that end with an
//! event of ours ([`track`]); whoever comes by looks which events have been passed ([`context`]), and a thread of ours does when
//! nobody else comes ([`keeper`]). What was measured goes to the usage page ([`device`]).

mod admit;
mod captures;
pub(crate) mod clock;
mod context;
mod device;
mod free;
mod gate;
pub(crate) mod keeper;
mod predictor;
mod streams;
mod track;

use crate::calls;
use crate::entry::{Lane, Next};
use crate::hooks::Answer;
use crate::join::{Member, Standing};
use crate::process::process;
use core::sync::atomic::{AtomicU32, Ordering};
use device::{Count, Device};
use driver_api::{CUdevice, CUstream};
use parking_lot::Mutex;
use quota_core::compute::spans::Span;
use std::sync::{Arc, OnceLock};
use track::{Launch, Track};

/// What is about to be launched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// A kernel of this shape.
    Kernel { function: usize, grid: [u32; 3], block: [u32; 3] },
    /// A whole graph.
    Graph { exec: usize },
    /// A copy of so many bytes.
    Copy { bytes: u64 },
    /// A memset of so many bytes.
    Set { bytes: u64 },
    /// Anything else, of unknown length.
    Other,
}

/// What a thread is about to wait for, or to ask about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    /// All that is in the current context.
    Context,
    /// All that is in this one.
    ThisContext(usize),
    /// What is in a stream.
    Stream(CUstream),
    /// An event of the program's; mostly what this thread launched last is before it.
    Event,
}

/// One of so many launches of kernels that are known is measured by itself all the same.
const SAMPLED: u64 = 61;
/// What a synchronous copy is taken to move at least, in bytes a microsecond (8 GB/s), with so much before it. The call lasts
/// longer mostly, because the host copies as well, which takes no device time.
const BYTES_PER_US: u64 = 8_000;
const COPY_BEGINS_NS: u64 = 2_000;

/// Everything of this process that concerns compute.
#[derive(Default)]
pub(crate) struct Pace {
    /// By the member's number of the device; made at its first use.
    devices: Mutex<Vec<Arc<Device>>>,
    streams: streams::Streams,
    predictor: OnceLock<predictor::Predictor>,
    decisions: free::Decisions,
    governed: gate::Governed,
    keeper: keeper::Keeper,
    /// 0 while nothing that was counted is under way, which spares a look.
    counted: AtomicU32,
}

/// True while nothing is to be counted: whatever is launched may go straight to the driver.
#[inline]
pub(crate) fn is_free() -> bool {
    free::is_free()
}

/// Nothing is counted in this process, ever.
pub(crate) fn free_for_good() {
    free::for_good();
}

/// A launch into `stream` (with the default streams of `next`'s lane).
pub(crate) fn paced(next: Next<'_>, stream: CUstream, work: Work) -> Answer {
    let Some(member) = member() else { return next.call() };
    let pace = &process().pace;
    match pace.streams.find(pace, member, stream, next.lane) {
        Some(track) => {
            let answer = pace.launch(&track, next, work);
            pace.streams.put_back(track);
            answer
        }
        // No context, or one of a device without a quota.
        None => next.call(),
    }
}

/// A synchronous copy or memset on the current context, which has ended when the call returns.
///
/// How much of the call was device time nobody tells; it is charged what its bytes take at [`BYTES_PER_US`], or the whole call
/// where that was shorter.
pub(crate) fn paced_blocking(next: Next<'_>, work: Work) -> Answer {
    let (Some(member), Some(current)) = (member(), calls::current_device()) else { return next.call() };
    let pace = &process().pace;
    let Some(device) = pace.device(member, current).filter(|device| !pace.passes(device)) else { return next.call() };
    let bytes = if let Work::Copy { bytes } | Work::Set { bytes } = work { bytes } else { 0 };
    let predicted_ns = (bytes.saturating_mul(1000) / BYTES_PER_US).saturating_add(COPY_BEGINS_NS);
    // It waits for what is before it in the default stream.
    pace.close(member, Awaited::Stream(core::ptr::null_mut()), next.lane);
    if !admit::only_observes() {
        admit::admit(pace, &device, None)?;
    }
    let count = Count { launches: 1, unsure: 0, vague: 0, predicted_ns };
    device.submit(count);
    let begun = clock::now_ns();
    let answer = next.call();
    let now = clock::now_ns();
    // What was under way before it has ended by now, too, and is charged first.
    pace.reap(&device);
    let took = Span { start: begun.max(now.saturating_sub(predicted_ns)), end: now };
    device.ended(count, answer.is_ok().then_some(took), now);
    answer
}

/// One launch into streams of several devices. Each device's gate is waited for in the order of the devices, so that two
/// such launches never wait for each other; nothing is held meanwhile.
pub(crate) fn paced_on_devices(next: Next<'_>, streams: &[CUstream], work: Work) -> Answer {
    let Some(member) = member() else { return next.call() };
    let pace = &process().pace;
    let mut tracks: Vec<_> =
        streams.iter().filter_map(|stream| pace.streams.find_apart(pace, member, *stream, next.lane)).collect();
    tracks.retain(|track| {
        !pace.passes(&track.context.device) && !track.context.is_broken() && !captures::may_hold(track.stream)
    });
    tracks.sort_by_key(|track| track.context.device.index);
    let Some(first) = tracks.first() else { return next.call() };
    let launch = pace.predict(work, &first.context.device);
    for track in &tracks {
        if !admit::only_observes() {
            admit::admit(pace, &track.context.device, Some(track))?;
        }
    }
    tracks.iter().for_each(|track| pace.submit(track, &launch));
    let answer = next.call();
    tracks.iter().for_each(|track| Pace::launched(track, &launch, &answer));
    answer
}

/// Runs `next`, which waits for something, or asks whether it has ended: what is open is closed first, so that its end is
/// known to the microsecond, and what has ended is counted afterwards.
pub(crate) fn synchronising(next: Next<'_>, awaited: Awaited) -> Answer {
    let Some(pace) = counting() else { return next.call() };
    if let Some(member) = member() {
        pace.close(member, awaited, next.lane);
    }
    next.call()?;
    pace.synchronised();
    Ok(())
}

/// A capture is about to begin.
pub(crate) fn capture_begins() {
    captures::begins();
}

/// A capture has ended, or did not begin.
pub(crate) fn capture_ended() {
    captures::ended();
}

/// The program has made or retained a context on `device`.
pub(crate) fn attach(device: CUdevice) {
    if let Some(member) = member() {
        // Using it for the first time is all there is to it.
        let _ = process().pace.device(member, device);
    }
}

/// The context is about to be destroyed or reset: call it before the driver is asked.
pub(crate) fn context_going(context: usize) {
    process().pace.streams.context_going(|known| known.handle == context);
}

/// The primary context of `device` is about to be released or reset.
pub(crate) fn primary_going(device: CUdevice) {
    // Which of the device's contexts that is only the driver knows. The others lose nothing but a few events.
    if let Some(member) = known_member() {
        let index = member.device_of(device).ok().flatten();
        process().pace.streams.context_going(|known| Some(known.device.index) == index);
    }
}

/// The stream is about to be destroyed.
pub(crate) fn stream_going(stream: CUstream) {
    process().pace.streams.stream_going(stream as usize);
}

/// The executable graph is about to be destroyed, or was updated: what is known of its length is void.
pub(crate) fn graph_gone(exec: usize) {
    if let Some(predictor) = process().pace.predictor.get() {
        predictor.forget(Work::Graph { exec });
    }
}

/// The function is no more (its module was unloaded).
pub(crate) fn function_gone(function: usize) {
    if let Some(predictor) = process().pace.predictor.get() {
        predictor.forget_function(function);
    }
}

/// In a forked child, between `fork` and anything else: what the parent counts is not the child's, nor is its thread.
pub(crate) fn forget_in_child() {
    free::forget_in_child();
    captures::forget_in_child();
    streams::forget_in_child();
}

/// The member, where there is one; joins at the first call. Where there is none and never will be, nothing is counted.
fn member() -> Option<&'static Member> {
    match process().membership.standing() {
        Standing::Member(member) => Some(member),
        Standing::Unmanaged => {
            free_for_good();
            None
        }
        // What can't be had yet: launches need memory, which is refused.
        Standing::NotReady | Standing::Refused => None,
    }
}

/// The member, if the process has become one.
fn known_member() -> Option<&'static Member> {
    process().membership.member()
}

/// Where something may be under way that was counted.
fn counting() -> Option<&'static Pace> {
    let pace = &process().pace;
    (pace.counted.load(Ordering::Acquire) > 0).then_some(pace)
}

impl Pace {
    fn predictor(&self) -> &predictor::Predictor {
        self.predictor.get_or_init(predictor::Predictor::default)
    }

    /// CUDA's `device` as one that the process uses; none where nobody has given a quota on it.
    fn device(&self, member: &'static Member, device: CUdevice) -> Option<Arc<Device>> {
        let index = member.device_of(device).ok().flatten()?;
        let place = member.devices.get(index)?.place?;
        let mut devices = self.devices.lock();
        if let Some(known) = devices.iter().find(|known| known.index == index) {
            return Some(Arc::clone(known));
        }
        let fresh = Arc::new(Device::new(member, index, place));
        devices.push(Arc::clone(&fresh));
        drop(devices);
        fresh.attach();
        self.decisions.reconsider();
        Some(fresh)
    }

    fn devices(&self) -> Vec<Arc<Device>> {
        self.devices.lock().clone()
    }

    /// True when launches on `device` are not counted now; sees to it that the next ones don't even ask.
    fn passes(&self, device: &Device) -> bool {
        if !device.is_free() {
            return false;
        }
        if !is_free() {
            let devices = self.devices();
            self.decisions.decide(device.member, || devices.iter().all(|device| device.is_free()));
        }
        true
    }

    fn launch(&self, track: &Track, next: Next<'_>, work: Work) -> Answer {
        let device = &*track.context.device;
        if self.passes(device) || track.context.is_broken() || captures::may_hold(track.stream) {
            return next.call();
        }
        let launch = self.predict(work, device);
        if !admit::only_observes() {
            admit::admit(self, device, Some(track))?;
        }
        self.submit(track, &launch);
        let answer = next.call();
        Self::launched(track, &launch, &answer);
        answer
    }

    /// Before the driver is asked.
    fn submit(&self, track: &Track, launch: &Launch) {
        let begins = track.before(launch);
        track.context.device.submit(launch.count());
        if begins {
            // After the above: who finds nothing under way and clears this has not seen it, and is overruled here.
            self.counted.store(1, Ordering::SeqCst);
            self.keeper.look_after();
        }
    }

    /// After it has answered.
    fn launched(track: &Track, launch: &Launch, answer: &Answer) {
        if answer.is_ok() {
            track.add(launch);
            if track.is_gone() {
                track.context.forget_late(track);
            }
        } else {
            track.context.withdraw(launch.count());
            track.failed();
        }
    }

    fn predict(&self, work: Work, device: &Device) -> Launch {
        let (place, estimate) = self.predictor().look_up(work);
        let is_known = estimate.is_known();
        // Of what nobody has seen yet, two at a time: it may take a hundred times as long as one thinks.
        let predicted_ns =
            if estimate.seen() == 0 { (device.ahead_ns() / 2).max(estimate.ns()) } else { estimate.ns() };
        let number = device.usage().submitted.load(Ordering::Relaxed);
        Launch { place, predicted_ns, is_known, apart: !is_known || number % SAMPLED == SAMPLED - 1 }
    }

    /// Closes what is open where the thread is about to wait.
    fn close(&self, member: &'static Member, awaited: Awaited, lane: Lane) {
        match awaited {
            Awaited::Context | Awaited::ThisContext(_) => {
                // The thread's own first: it may be its default stream, into which no other can put anything.
                self.streams.with_last(Track::close);
                let whose = if let Awaited::ThisContext(one) = awaited { Some(one) } else { calls::current_context() };
                let contexts = self.streams.contexts();
                for context in contexts.iter().filter(|context| Some(context.handle) == whose) {
                    context.close_open(|_| true);
                }
            }
            Awaited::Stream(stream) => {
                if let Some(track) = self.streams.find_apart(self, member, stream, lane) {
                    track.close();
                }
            }
            Awaited::Event => self.streams.with_last(Track::close),
        }
    }

    fn synchronised(&self) {
        for context in self.streams.contexts().iter().filter(|context| context.device.under_way_ns() > 0) {
            context.reap(self.predictor());
        }
        self.keeper.is_needed.store(false, Ordering::Relaxed);
        self.settle_counted();
    }

    /// Counts what has ended on `device`.
    fn reap(&self, device: &Device) {
        for context in self.streams.contexts().iter().filter(|context| context.device.index == device.index) {
            context.reap(self.predictor());
        }
    }

    /// Closes what is open in all streams of `device`.
    fn close_open(&self, device: &Device) {
        for context in self.streams.contexts().iter().filter(|context| context.device.index == device.index) {
            context.close_open(|_| true);
        }
    }

    fn is_idle(&self) -> bool {
        self.devices().iter().all(|device| device.under_way_ns() == 0)
    }

    fn settle_counted(&self) {
        // Cleared before the look: who adds something in between sets it again.
        self.counted.store(0, Ordering::SeqCst);
        if !self.is_idle() {
            self.counted.store(1, Ordering::SeqCst);
        }
    }

    /// The keeper's round: what has ended is counted, and what nobody closes is closed. When the next thing should have
    /// ended, if any is under way.
    fn look_after_all(&self) -> Option<u64> {
        let before = clock::now_ns();
        let busy_before = !self.is_idle();
        for context in self.streams.contexts().iter() {
            context.reap(self.predictor());
            context.close_open(|track| track.open_until_ns() <= before);
            context.reap(self.predictor());
        }
        let now = clock::now_ns();
        let devices = self.devices();
        let busy = devices.iter().filter(|device| device.under_way_ns() > 0);
        let next = busy.map(|device| device.until_ns()).min();
        devices.iter().for_each(|device| device.look_at_overdue(now));
        if busy_before && next.is_none() {
            self.keeper.is_needed.store(true, Ordering::Relaxed);
            self.settle_counted();
        }
        next
    }
}
