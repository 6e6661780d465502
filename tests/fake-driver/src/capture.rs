//! Stream capture: what is enqueued becomes nodes of a graph instead of work.
//!
//! For those who enqueue things:
//! - [`enter`] first: `Some` tells to record instead of doing, an error that it isn't possible;
//! - [`record_copy`], [`record_fill`], [`record_allocation`], [`record_free`] do both steps for memory, and
//!   answer whether the operation has been recorded;
//! - [`forbid_on`] for what can't be captured, such as waiting for a stream;
//! - [`forbid_unsafe_call`] for calls that may synchronise behind the caller's back (`cuMemAlloc`).
//!
//! A forbidden call fails with 900 and spoils the capture: its end then fails with 901.

pub(crate) mod calls;

use crate::args::Answer;
use crate::context::Context;
use crate::graph::memory::Allocation;
use crate::graph::{Copy3d, Edge, Fill, Graph, Node, Payload};
use crate::stream::{Kind, Stream};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use driver_api::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS_v2, CUdeviceptr, CUgraphEdgeData, CUgraphNode, CUresult};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

/// `CUDA_ERROR_STREAM_CAPTURE_MERGE`
const MERGE: CUresult = CUresult(902);

/// How far a capture, or a thread, forbids unsafe calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// To every thread; as a thread's own mode: for every thread's captures.
    Global,
    /// To the capturing thread only.
    ThreadLocal,
    /// To nobody.
    Relaxed,
}

impl Mode {
    pub(crate) fn new(number: i32) -> Answer<Self> {
        match number {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    pub(crate) fn number(self) -> i32 {
        self as i32
    }
}

/// A capture in progress: one graph, from its beginning in one stream to its end there.
pub(crate) struct Capture {
    pub(crate) id: u64,
    pub(crate) mode: Mode,
    pub(crate) thread: ThreadId,
    pub(crate) graph: Arc<Graph>,
    /// Id of the stream in which it began.
    pub(crate) origin: u64,
    /// True when the graph was the program's before.
    pub(crate) is_given: bool,
    is_invalid: AtomicBool,
    streams: Mutex<Vec<Weak<Stream>>>,
}

/// Nodes that the next one depends on.
#[derive(Clone)]
pub(crate) struct Tips {
    capture: Arc<Capture>,
    nodes: Ends,
}

/// A stream's part in a capture.
pub(crate) struct StreamCapture {
    pub(crate) capture: Arc<Capture>,
    pub(crate) tips: Ends,
    /// What `cuStreamGetCaptureInfo` gave out last; kept as its caller looks at it until the next call.
    pub(crate) shown: Shown,
}

/// Handles and edges of the tips, in the API's types.
#[derive(Default)]
pub(crate) struct Shown {
    pub(crate) nodes: Vec<CUgraphNode>,
    pub(crate) edges: Vec<CUgraphEdgeData>,
}

// SAFETY: the handles are numbers in the form of pointers; nothing here follows them.
#[allow(unsafe_code)]
unsafe impl Send for Shown {}

/// Captures that have begun and not ended; the count spares everybody the lock while there is none.
static ACTIVE: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
static ACTIVE_COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// A stream that is being captured, for one operation.
pub(crate) struct Recorder {
    stream: Arc<Stream>,
    capture: Arc<Capture>,
}

impl Recorder {
    /// Adds a node behind the stream's last one.
    pub(crate) fn record(&self, payload: Payload) -> Answer<Arc<Node>> {
        let mut place = self.stream.capture.lock();
        let part = place.as_mut().ok_or(CUresult::ILLEGAL_STATE)?;
        let after: Vec<(u64, Edge)> = part.tips.iter().map(|(node, edge)| (node.id, *edge)).collect();
        let node = self.capture.graph.add(payload, &after)?;
        part.tips = vec![(Arc::clone(&node), Edge::default())];
        Ok(node)
    }

    /// Where the stream is in the graph.
    pub(crate) fn tips(&self) -> Tips {
        let nodes = self.stream.capture.lock().as_ref().map(|part| part.tips.clone()).unwrap_or_default();
        Tips { capture: Arc::clone(&self.capture), nodes }
    }

    /// Spoils the capture; the code for the caller.
    pub(crate) fn invalidate(&self, code: CUresult) -> CUresult {
        self.capture.is_invalid.store(true, Ordering::Release);
        code
    }
}

impl Capture {
    fn streams(&self) -> Vec<Arc<Stream>> {
        self.streams.lock().iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn is_invalid(&self) -> bool {
        self.is_invalid.load(Ordering::Acquire)
    }
}

fn capture_of(stream: &Stream) -> Option<Arc<Capture>> {
    stream.capture.lock().as_ref().map(|part| Arc::clone(&part.capture))
}

/// Whether an operation of the stream is to be recorded.
pub(crate) fn enter(stream: &Arc<Stream>) -> Answer<Option<Recorder>> {
    if !stream.is_capturing() {
        forbid_implicit(stream)?;
        return Ok(None);
    }
    match capture_of(stream) {
        None => Ok(None),
        Some(capture) if capture.is_invalid() => Err(CUresult::STREAM_CAPTURE_INVALIDATED),
        Some(capture) => Ok(Some(Recorder { stream: Arc::clone(stream), capture })),
    }
}

/// The legacy stream can't be used while it would have to wait for a stream that is being captured.
fn forbid_implicit(stream: &Stream) -> Answer {
    if stream.kind != Kind::Legacy || stream.queue.blocking_captures.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    for other in stream.queue.streams().iter().filter(|other| other.kind == Kind::Blocking) {
        if let Some(capture) = capture_of(other) {
            capture.is_invalid.store(true, Ordering::Release);
        }
    }
    Err(CUresult::STREAM_CAPTURE_IMPLICIT)
}

/// Fails for an operation that a stream under capture doesn't allow.
pub(crate) fn forbid_on(stream: &Arc<Stream>) -> Answer {
    forbid_implicit(stream)?;
    match capture_of(stream) {
        None => Ok(()),
        Some(capture) => {
            capture.is_invalid.store(true, Ordering::Release);
            Err(CUresult::STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

/// Fails for a call that may disturb captures, where a capture or the thread's mode forbids it.
#[inline]
pub(crate) fn forbid_unsafe_call() -> Answer {
    // Acquire pairs with the release in `begin`; a capture that begins at the same time may come after.
    if ACTIVE_COUNT.load(Ordering::Acquire) == 0 { Ok(()) } else { forbid_unsafe_call_now() }
}

#[cold]
fn forbid_unsafe_call_now() -> Answer {
    let mode = THREAD_MODE.get();
    let here = std::thread::current().id();
    let mut answer = Ok(());
    for capture in ACTIVE.lock().iter() {
        let forbids = match (mode, capture.mode) {
            (Mode::Relaxed, _) | (_, Mode::Relaxed) => false,
            (Mode::Global, Mode::Global) => true,
            _ => capture.thread == here,
        };
        if forbids {
            capture.is_invalid.store(true, Ordering::Release);
            answer = Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    answer
}

/// Nodes with the kinds of the edges from them.
pub(crate) type Ends = Vec<(Arc<Node>, Edge)>;

/// Begins a capture in `stream`, into a graph of the program's if one is given.
fn begin(stream: &Arc<Stream>, mode: Mode, given: Option<(Arc<Graph>, Ends)>) -> Answer {
    use core::sync::atomic::AtomicU64;
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    if stream.kind == Kind::Legacy {
        return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    if stream.is_capturing() {
        return Err(CUresult::ILLEGAL_STATE);
    }
    let is_given = given.is_some();
    let (graph, tips) = given.unwrap_or_else(|| (Graph::new(), Vec::new()));
    let capture = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        mode,
        thread: std::thread::current().id(),
        graph,
        origin: stream.id,
        is_given,
        is_invalid: AtomicBool::new(false),
        streams: Mutex::new(vec![Arc::downgrade(stream)]),
    });
    let mut active = ACTIVE.lock();
    active.push(Arc::clone(&capture));
    ACTIVE_COUNT.store(active.len(), Ordering::Release);
    drop(active);
    stream.set_capture(Some(StreamCapture { capture, tips, shown: Shown::default() }));
    Ok(())
}

/// Ends the capture that began in `stream`: its graph, complete.
fn end(stream: &Arc<Stream>) -> Answer<Arc<Graph>> {
    let capture = capture_of(stream).ok_or(CUresult::ILLEGAL_STATE)?;
    if capture.origin != stream.id {
        capture.is_invalid.store(true, Ordering::Release);
        return Err(CUresult::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
        return Err(CUresult::STREAM_CAPTURE_WRONG_THREAD);
    }
    let is_joined = is_joined(&capture, stream);
    for member in capture.streams() {
        member.set_capture(None);
    }
    let mut active = ACTIVE.lock();
    active.retain(|other| !Arc::ptr_eq(other, &capture));
    ACTIVE_COUNT.store(active.len(), Ordering::Release);
    drop(active);
    let failure = if capture.is_invalid() {
        CUresult::STREAM_CAPTURE_INVALIDATED
    } else if is_joined {
        return Ok(Arc::clone(&capture.graph));
    } else {
        CUresult::STREAM_CAPTURE_UNJOINED
    };
    if !capture.is_given {
        capture.graph.forget();
    }
    Err(failure)
}

/// True when everything that other streams recorded comes before the end of the first one.
fn is_joined(capture: &Arc<Capture>, origin: &Arc<Stream>) -> bool {
    let members = capture.streams();
    if members.len() < 2 {
        return true;
    }
    let ids = |stream: &Arc<Stream>| -> Vec<u64> {
        let part = stream.capture.lock();
        part.iter().flat_map(|part| part.tips.iter().map(|(node, _)| node.id)).collect()
    };
    let reached = capture.graph.shape.lock().up_to(ids(origin).into_iter());
    members.iter().all(|member| ids(member).iter().all(|id| reached.contains(id)))
}

/// A wait for an event that was recorded in a capture: the stream becomes part of it.
pub(crate) fn join(stream: &Arc<Stream>, tips: &Tips) -> Answer {
    if tips.capture.is_invalid() {
        return Err(CUresult::STREAM_CAPTURE_INVALIDATED);
    }
    if stream.kind == Kind::Legacy {
        tips.capture.is_invalid.store(true, Ordering::Release);
        return Err(CUresult::STREAM_CAPTURE_IMPLICIT);
    }
    if let Some(recorder) = enter(stream)? {
        if !Arc::ptr_eq(&recorder.capture, &tips.capture) {
            tips.capture.is_invalid.store(true, Ordering::Release);
            return Err(recorder.invalidate(MERGE));
        }
        let mut place = stream.capture.lock();
        let part = place.as_mut().ok_or(CUresult::ILLEGAL_STATE)?;
        add_tips(&mut part.tips, &tips.nodes);
        return Ok(());
    }
    let still_active = ACTIVE.lock().iter().any(|capture| Arc::ptr_eq(capture, &tips.capture));
    if !still_active {
        return Err(CUresult::STREAM_CAPTURE_ISOLATION);
    }
    let capture = Arc::clone(&tips.capture);
    capture.streams.lock().push(Arc::downgrade(stream));
    stream.set_capture(Some(StreamCapture { capture, tips: tips.nodes.clone(), shown: Shown::default() }));
    Ok(())
}

/// More nodes to depend on, none twice.
fn add_tips(tips: &mut Ends, more: &[(Arc<Node>, Edge)]) {
    for (node, edge) in more {
        if !tips.iter().any(|(known, kind)| known.id == node.id && kind == edge) {
            tips.push((Arc::clone(node), *edge));
        }
    }
}

/// Records a copy of any kind; false when the stream isn't being captured and the copy has to be done.
pub(crate) fn record_copy(stream: &Arc<Stream>, copy: &CUDA_MEMCPY3D) -> Answer<bool> {
    record_if_capturing(stream, || Ok(Payload::Copy(Copy3d(*copy))))
}

/// Records a memset; false when the stream isn't being captured.
pub(crate) fn record_fill(stream: &Arc<Stream>, fill: &CUDA_MEMSET_NODE_PARAMS_v2) -> Answer<bool> {
    record_if_capturing(stream, || Fill::new(fill).map(Payload::Fill))
}

fn record_if_capturing(stream: &Arc<Stream>, payload: impl FnOnce() -> Answer<Payload>) -> Answer<bool> {
    match enter(stream)? {
        None => Ok(false),
        Some(recorder) => recorder.record(payload()?).map(|_| true),
    }
}

/// Records an allocation as a node of the graph, which owns its memory; its address. `None` when the
/// stream isn't being captured.
pub(crate) fn record_allocation(
    stream: &Arc<Stream>,
    context: &Arc<Context>,
    bytes: u64,
) -> Answer<Option<CUdeviceptr>> {
    let Some(recorder) = enter(stream)? else { return Ok(None) };
    let allocation = Allocation::new(context, bytes)?;
    recorder.record(Payload::Allocation(Arc::clone(&allocation)))?;
    Ok(Some(allocation.address()))
}

/// Records the end of an allocation of a graph; false when the stream isn't being captured. Other memory
/// can't be freed in a capture: 1.
pub(crate) fn record_free(stream: &Arc<Stream>, address: CUdeviceptr) -> Answer<bool> {
    record_if_capturing(stream, || Allocation::to_free(address).map(Payload::Free))
}
