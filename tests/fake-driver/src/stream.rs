//! Streams: work in order, on the device or still waiting for the host.
//!
//! Kernels are durations: they go to the device at the call ([`DeviceQueue`]), and a stream remembers the
//! number of its last. Nothing they do can be seen in memory, so a copy may be carried out at the call even
//! when kernels before it still "run"; it counts as done when they are. Only what has to wait for something
//! other than the context's own device (host functions, values in memory, other contexts' events) puts a
//! stream behind: then everything after it waits in its [`Backlog`], which a thread of the stream works off.
//!
//! What copies and memsets need of a stream:
//! - [`resolve`]: the stream that a handle means;
//! - [`Stream::run`]: to do something to memory in the stream's order;
//! - [`Stream::wait`]: to block until the stream is idle, as synchronous calls do;
//! - [`Stream::mark`] and [`Mark::is_done`]: whether the stream has passed a point (stream-ordered frees);
//! - `crate::capture`: to record the operation instead when the stream is being captured.

pub(crate) mod attributes;
mod backlog;
pub(crate) mod callbacks;
pub(crate) mod calls;
mod queue;
pub(crate) mod values;

use crate::args::Answer;
use crate::capture::StreamCapture;
use crate::context::Context;
use crate::entry::Call;
use crate::registry::{Cache, Registry};
use crate::state;
use backlog::{Backlog, Later, Piece};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use driver_api::{CUlaunchAttributeValue, CUresult, CUstream};
use fake_machine::{Machine, Work};
use parking_lot::Mutex;
pub(crate) use queue::{DeviceQueue, now_ns};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

/// `CU_STREAM_LEGACY`
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: usize = 2;
/// `CU_STREAM_NON_BLOCKING`
pub(crate) const NON_BLOCKING: u32 = 1;

pub(crate) static STREAMS: Registry<Stream> = Registry::new();

thread_local! {
    static CACHE: Cache<Stream> = const { Cache::new() };
    /// This thread's default streams, by the context's queue.
    static OWN: RefCell<Vec<(Weak<DeviceQueue>, Arc<Stream>)>> = const { RefCell::new(Vec::new()) };
}

/// How a stream orders itself against the legacy stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The context's default stream: a barrier in both directions.
    Legacy,
    /// Waits for the legacy stream, which waits for it. Threads' default streams are of this kind too.
    Blocking,
    /// Has nothing to do with the legacy stream.
    NonBlocking,
}

/// The streams of a context; a part of [`Context`], opened and closed with it.
pub(crate) struct ContextStreams {
    pub(crate) queue: Arc<DeviceQueue>,
    pub(crate) legacy: Arc<Stream>,
}

impl ContextStreams {
    /// A hardware queue on the device, and the default stream.
    pub(crate) fn open(machine: &'static Machine, device: usize) -> Self {
        let queue = DeviceQueue::open(machine, device);
        let legacy = Stream::new(&queue, Kind::Legacy, 0, 0);
        Self { queue, legacy }
    }

    /// Blocks until all work of the context is done.
    pub(crate) fn wait(&self) {
        for stream in self.queue.streams() {
            stream.mark().wait();
        }
        self.queue.wait(self.queue.last());
    }

    /// Ends the context's streams, as its destruction does: their handles are valid no more.
    pub(crate) fn close(&self) {
        self.wait();
        STREAMS.remove_all(|stream| Arc::ptr_eq(&stream.queue, &self.queue));
        crate::event::forget_queue(&self.queue);
        self.queue.close();
    }
}

/// One stream.
pub(crate) struct Stream {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) flags: u32,
    pub(crate) priority: AtomicI32,
    pub(crate) queue: Arc<DeviceQueue>,
    /// Number of the last piece of device work that the stream depends on.
    last: AtomicU64,
    backlog: Backlog,
    /// True while `capture` holds something.
    capturing: AtomicBool,
    pub(crate) capture: Mutex<Option<StreamCapture>>,
    pub(crate) attributes: Mutex<BTreeMap<i32, CUlaunchAttributeValue>>,
    /// The green context that the stream belongs to, 0 for none.
    pub(crate) green: usize,
}

impl Stream {
    fn new(queue: &Arc<DeviceQueue>, kind: Kind, flags: u32, priority: i32) -> Arc<Self> {
        Self::with_green(queue, kind, flags, priority, 0)
    }

    pub(crate) fn with_green(
        queue: &Arc<DeviceQueue>,
        kind: Kind,
        flags: u32,
        priority: i32,
        green: usize,
    ) -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let stream = Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            kind,
            flags,
            priority: AtomicI32::new(priority),
            queue: Arc::clone(queue),
            last: AtomicU64::new(0),
            backlog: Backlog::default(),
            capturing: AtomicBool::new(false),
            capture: Mutex::new(None),
            attributes: Mutex::new(BTreeMap::new()),
            green,
        });
        queue.enlist(&stream);
        stream
    }

    /// True when neither capture nor backlog stands between a call and the device.
    #[inline]
    pub(crate) fn is_direct(&self) -> bool {
        let implicit = self.kind == Kind::Legacy && self.queue.blocking_captures.load(Ordering::Acquire) > 0;
        !self.is_capturing() && !implicit && self.queue.backlogs.load(Ordering::Acquire) == 0
    }

    /// True while the stream is part of a capture.
    pub(crate) fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Acquire)
    }

    /// Puts the stream into a capture or takes it out of one.
    pub(crate) fn set_capture(&self, capture: Option<StreamCapture>) {
        let mut place = self.capture.lock();
        let (before, after) = (place.is_some(), capture.is_some());
        *place = capture;
        self.capturing.store(after, Ordering::Release);
        if self.kind == Kind::Blocking && before != after {
            if after {
                self.queue.blocking_captures.fetch_add(1, Ordering::AcqRel);
            } else {
                self.queue.blocking_captures.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// Every operation begins here: it goes behind what the legacy stream's rules put before it.
    pub(crate) fn begin(self: &Arc<Self>) {
        let other = match self.kind {
            Kind::NonBlocking => return,
            Kind::Legacy => self.queue.blocking_last.load(Ordering::Acquire),
            Kind::Blocking => self.queue.legacy_last.load(Ordering::Acquire),
        };
        if other > self.last.load(Ordering::Relaxed) {
            self.last.fetch_max(other, Ordering::AcqRel);
        }
        if self.queue.backlogs.load(Ordering::Acquire) > 0 {
            let barrier = if self.kind == Kind::Legacy { Kind::Blocking } else { Kind::Legacy };
            for stream in self.queue.streams() {
                if stream.kind == barrier && !stream.backlog.is_empty() {
                    self.follow(&stream.mark());
                }
            }
        }
    }

    /// A kernel, or any other work that takes time on the device.
    pub(crate) fn launch(self: &Arc<Self>, work: impl Into<Work>) -> Answer {
        let work = work.into();
        self.begin();
        if self.backlog.is_empty() {
            return self.submit(work);
        }
        self.defer(move |stream| {
            // It fails when the context is gone, and then nobody waits for the kernel.
            let _ = stream.submit(work);
        });
        Ok(())
    }

    /// To the device, now.
    pub(crate) fn submit(&self, work: Work) -> Answer {
        // Nothing to do and nothing before it: the device need not be asked. (Busy streams stay busy no
        // longer either.)
        if work == Work::Time(0) {
            return Ok(());
        }
        let number = self.queue.submit(work)?;
        self.last.fetch_max(number, Ordering::AcqRel);
        match self.kind {
            Kind::Legacy => _ = self.queue.legacy_last.fetch_max(number, Ordering::AcqRel),
            Kind::Blocking => _ = self.queue.blocking_last.fetch_max(number, Ordering::AcqRel),
            Kind::NonBlocking => {}
        }
        Ok(())
    }

    /// Does something to memory that takes the device so long: a copy or a memset.
    pub(crate) fn run_for(self: &Arc<Self>, duration_ns: u64, work: impl FnOnce() + Send + 'static) -> Answer {
        self.run(work);
        if duration_ns > 0 { self.launch(duration_ns) } else { Ok(()) }
    }

    /// Does something to memory in the stream's order: at once, or when the stream gets there.
    pub(crate) fn run(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) {
        self.begin();
        if self.backlog.is_empty() {
            work();
        } else {
            self.defer(move |_| work());
        }
    }

    /// Calls the host once everything before is done, from the stream's thread; what follows waits for it.
    pub(crate) fn host(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) {
        self.begin();
        self.defer(move |stream| {
            stream.queue.wait(stream.last.load(Ordering::Acquire));
            work();
        });
    }

    /// Lets the stream's thread do `work`, which may block, after all that is before it.
    pub(crate) fn defer(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        self.backlog.push(self, Piece::Work(Box::new(work)));
    }

    /// Makes what follows in this stream wait for `mark`.
    pub(crate) fn follow(self: &Arc<Self>, mark: &Mark) {
        match mark.reached() {
            Some((queue, number)) if Arc::ptr_eq(&queue, &self.queue) && self.backlog.is_empty() => {
                self.last.fetch_max(number, Ordering::AcqRel);
            }
            Some((queue, number)) if queue.is_done(number) => {}
            _ => {
                let mark = mark.clone();
                self.defer(move |stream| {
                    let (queue, number) = mark.reach();
                    if Arc::ptr_eq(&queue, &stream.queue) {
                        stream.last.fetch_max(number, Ordering::AcqRel);
                    } else {
                        queue.wait(number);
                    }
                });
            }
        }
    }

    /// The point after everything that is in the stream now.
    pub(crate) fn mark(self: &Arc<Self>) -> Mark {
        if self.backlog.is_empty() {
            return Mark::At(Arc::clone(&self.queue), self.last.load(Ordering::Acquire));
        }
        let later = Arc::new(Later::new(&self.queue));
        self.backlog.push(self, Piece::Point(Arc::clone(&later)));
        Mark::Later(later)
    }

    /// True when nothing is left to do in the stream.
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        if self.kind == Kind::Legacy {
            // A new operation of the legacy stream would wait for the blocking ones, and so does a query.
            let others = self.queue.streams();
            let blocking = others.iter().filter(|stream| stream.kind == Kind::Blocking);
            let quiet = |stream: &Arc<Self>| stream.backlog.is_empty();
            if !blocking.clone().all(quiet) || !self.queue.is_done(self.queue.blocking_last.load(Ordering::Acquire)) {
                return false;
            }
        }
        self.backlog.is_empty() && self.queue.is_done(self.last.load(Ordering::Acquire))
    }

    /// Blocks until everything in the stream is done.
    pub(crate) fn wait(self: &Arc<Self>) {
        if self.kind == Kind::Legacy {
            self.begin();
        }
        self.mark().wait();
    }
}

/// A point in a stream.
#[derive(Clone)]
pub(crate) enum Mark {
    /// After that piece of work of a queue.
    At(Arc<DeviceQueue>, u64),
    /// Known when the stream's backlog gets there.
    Later(Arc<Later>),
}

impl Mark {
    /// The piece of work before it, if that is on the device already.
    fn reached(&self) -> Option<(Arc<DeviceQueue>, u64)> {
        match self {
            Self::At(queue, number) => Some((Arc::clone(queue), *number)),
            Self::Later(later) => later.get(),
        }
    }

    /// Blocks until the work before it is on the device.
    fn reach(&self) -> (Arc<DeviceQueue>, u64) {
        match self {
            Self::At(queue, number) => (Arc::clone(queue), *number),
            Self::Later(later) => later.wait(),
        }
    }

    /// True once the stream has passed it.
    pub(crate) fn is_done(&self) -> bool {
        self.reached().is_some_and(|(queue, number)| queue.is_done(number))
    }

    /// Blocks until the stream has passed it.
    pub(crate) fn wait(&self) {
        let (queue, number) = self.reach();
        queue.wait(number);
    }

    /// Keeps the time at which the stream passes it, which has to be asked for before that.
    pub(crate) fn watch(&self) -> End {
        match self {
            Self::At(queue, number) => queue.watch(*number).map_or(End::Before, End::OfWork),
            Self::Later(later) => End::OfPoint(Arc::clone(later)),
        }
    }
}

/// When a stream passes a point.
#[derive(Clone)]
pub(crate) enum End {
    /// Before the question.
    Before,
    /// When that piece of work ends.
    OfWork(Arc<OnceLock<u64>>),
    /// When that point is reached.
    OfPoint(Arc<Later>),
}

impl End {
    /// The time, once the point is passed; `None` also when it was passed before the question.
    pub(crate) fn time_ns(&self) -> Option<u64> {
        match self {
            Self::Before => None,
            Self::OfWork(end_ns) => end_ns.get().copied(),
            Self::OfPoint(later) => later.end_ns(),
        }
    }
}

/// The stream that a handle means in this call, with the default streams of the current context.
pub(crate) fn resolve(call: &Call, handle: CUstream) -> Answer<Arc<Stream>> {
    with(call, handle, Arc::clone)
}

/// The same, without taking a reference: for the launch path. `use_stream` resolves no stream itself.
pub(crate) fn with<R>(call: &Call, handle: CUstream, use_stream: impl FnOnce(&Arc<Stream>) -> R) -> Answer<R> {
    callbacks::forbid_inside()?;
    match handle.addr() {
        0 | LEGACY if !(call.per_thread && handle.is_null()) => {
            state::with_current(|context| Ok(use_stream(&context.streams.legacy)))
        }
        0 | PER_THREAD => Ok(use_stream(&own(&*state::current()?))),
        _ => CACHE.with(|cache| cache.with(&STREAMS, handle, use_stream)),
    }
}

/// This thread's default stream in `context`.
fn own(context: &Context) -> Arc<Stream> {
    let queue = &context.streams.queue;
    OWN.with_borrow_mut(|streams| {
        if let Some((_, stream)) = streams.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(queue)) {
            return Arc::clone(stream);
        }
        streams.retain(|(_, stream)| !stream.queue.is_closed());
        let stream = Stream::new(queue, Kind::Blocking, 0, 0);
        streams.push((Arc::downgrade(queue), Arc::clone(&stream)));
        stream
    })
}

/// Fails with 400 unless the stream belongs to that context.
pub(crate) fn belongs(stream: &Stream, queue: &Arc<DeviceQueue>) -> Answer {
    if Arc::ptr_eq(&stream.queue, queue) { Ok(()) } else { Err(CUresult::INVALID_HANDLE) }
}
