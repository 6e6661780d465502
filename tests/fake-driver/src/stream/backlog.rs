//! Work of a stream that is not on the device yet, since something before it waits for the host.
//!
//! A thread of the stream works it off in order and ends when it has had nothing to do for a while. The
//! count of work includes the piece being done, so that "empty" means that the stream is in step. Points
//! that somebody waits for don't count: they delay nothing, and other streams' calls put them here too.

use super::{DeviceQueue, Stream, now_ns};
use core::sync::atomic::{AtomicUsize, Ordering};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How many pieces may wait, as the driver bounds what is enqueued; the caller blocks beyond that.
const WAITING_MAX: usize = 1024;
/// How long the thread stays for more work.
const LINGER: Duration = Duration::from_millis(200);

type Work = Box<dyn FnOnce(&Arc<Stream>) + Send>;

/// What waits in a backlog.
pub(super) enum Piece {
    /// Something to do, which may block.
    Work(Work),
    /// A point that somebody waits for.
    Point(Arc<Later>),
}

#[derive(Default)]
struct Waiting {
    pieces: VecDeque<Piece>,
    /// True while a thread works them off.
    served: bool,
}

#[derive(Default)]
pub(super) struct Backlog {
    /// Work waiting or being done.
    count: AtomicUsize,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Backlog {
    /// True when the stream is in step with its caller.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    pub(super) fn push(&self, stream: &Arc<Stream>, piece: Piece) {
        let mut waiting = self.waiting.lock();
        while waiting.pieces.len() >= WAITING_MAX {
            self.changed.wait(&mut waiting);
        }
        if !waiting.served {
            // Before anything is changed: a process that can start no thread gets 999 from this call, as from
            // any that panics, and the stream stays as it was.
            let stream = Arc::clone(stream);
            let started = std::thread::Builder::new().name("cuda-stream".to_owned()).spawn(move || serve(&stream));
            started.expect("the process may start threads");
            waiting.served = true;
        }
        if matches!(piece, Piece::Work(_)) && self.count.fetch_add(1, Ordering::AcqRel) == 0 {
            stream.queue.backlogs.fetch_add(1, Ordering::AcqRel);
            stream.queue.stream_waits(true);
        }
        waiting.pieces.push_back(piece);
        drop(waiting);
        self.changed.notify_all();
    }
}

impl Backlog {
    /// One piece of work less.
    fn leave(&self, stream: &Stream) {
        // Under the lock, so that the two counts change together for `push`.
        let waiting = self.waiting.lock();
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            stream.queue.backlogs.fetch_sub(1, Ordering::AcqRel);
            stream.queue.stream_waits(false);
        }
        drop(waiting);
        self.changed.notify_all();
    }
}

fn serve(stream: &Arc<Stream>) {
    let backlog = &stream.backlog;
    loop {
        let mut waiting = backlog.waiting.lock();
        if waiting.pieces.is_empty() {
            backlog.changed.wait_for(&mut waiting, LINGER);
        }
        let Some(piece) = waiting.pieces.pop_front() else {
            waiting.served = false;
            return;
        };
        drop(waiting);
        match piece {
            Piece::Work(work) => {
                work(stream);
                backlog.leave(stream);
            }
            Piece::Point(later) => {
                later.set(stream.last.load(Ordering::Acquire));
                backlog.changed.notify_all();
            }
        }
    }
}

/// A point in a backlog, once the thread has come there.
pub(crate) struct Later {
    queue: Arc<DeviceQueue>,
    reached: Mutex<Option<Reached>>,
    changed: Condvar,
}

#[derive(Clone)]
struct Reached {
    /// The last piece of the device's work before the point.
    number: u64,
    at_ns: u64,
    /// When that work ends, if it hadn't yet.
    end_ns: Option<Arc<OnceLock<u64>>>,
}

impl Later {
    pub(super) fn new(queue: &Arc<DeviceQueue>) -> Self {
        Self { queue: Arc::clone(queue), reached: Mutex::default(), changed: Condvar::new() }
    }

    fn set(&self, number: u64) {
        let reached = Reached { number, at_ns: now_ns(), end_ns: self.queue.watch(number) };
        *self.reached.lock() = Some(reached);
        self.changed.notify_all();
    }

    pub(super) fn get(&self) -> Option<(Arc<DeviceQueue>, u64)> {
        let number = self.reached.lock().as_ref()?.number;
        Some((Arc::clone(&self.queue), number))
    }

    pub(super) fn wait(&self) -> (Arc<DeviceQueue>, u64) {
        let mut reached = self.reached.lock();
        loop {
            if let Some(reached) = &*reached {
                return (Arc::clone(&self.queue), reached.number);
            }
            self.changed.wait(&mut reached);
        }
    }

    /// When the stream passed the point, if it has.
    pub(super) fn end_ns(&self) -> Option<u64> {
        let reached = self.reached.lock().clone()?;
        let end_ns = reached.end_ns.as_ref().and_then(|end| end.get()).copied();
        Some(end_ns.map_or(reached.at_ns, |end_ns| end_ns.max(reached.at_ns)))
    }
}
